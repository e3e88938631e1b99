//! Directories that the generator makes, whole and damaged.
//!
//! `TENON_RESCUE_SEED` replays one seed of the random tests, `TENON_RESCUE_RUNS` takes another number of them.

mod damage;
mod generator;
mod random;
mod reading;
mod whole;
