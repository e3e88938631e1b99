//! Plans on real storage.

mod cases;
mod fixture;
mod generate;
mod property;
