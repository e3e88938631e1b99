//! Plans on real storage.

mod cases;
mod clustering;
mod correlated;
pub(crate) mod fixture;
mod generate;
mod joins;
mod lookups;
mod paths;
mod pipelines;
mod plans;
mod property;
mod spilling;
mod text;
mod update_model;
mod updates;
