//! Plans on real storage.

mod cases;
mod fixture;
mod generate;
mod paths;
mod property;
