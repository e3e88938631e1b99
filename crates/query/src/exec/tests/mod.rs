//! Plans on real storage.

mod cases;
mod clustering;
mod fixture;
mod generate;
mod paths;
mod plans;
mod property;
mod spilling;
mod text;
