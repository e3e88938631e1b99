//! Results of measurements: the [`Session`] of runs and its file, and what is made of it.
//!
//! It starts no server, parses no argument and reads no clock: whoever measures fills a [`Session`] and hands it over.

mod error;
mod file;
mod latency;
pub mod limits;
mod model;
mod stalls;

pub use error::{Error, Result};
pub use latency::Latency;
pub use model::{Configuration, FORMAT, Iteration, Machine, Operation, Outcome, Pacing, Run, Series, Session, Span};
pub use stalls::stalls;
