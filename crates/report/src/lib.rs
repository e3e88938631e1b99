//! Results of measurements: the [`Session`] of runs and its file, and what is made of it: [`csv()`], [`compare()`],
//! [`markdown()`] for a manual, and a page for people, [`html`].
//!
//! It starts no server, parses no argument and reads no clock: whoever measures fills a [`Session`] and hands it over.

pub mod choice;
mod compare;
mod csv;
mod error;
mod experiment;
mod file;
pub mod html;
mod latency;
pub mod limits;
mod markdown;
pub mod measure;
mod model;
pub mod noise;
pub mod number;
mod stalls;
pub mod verdict;

pub use compare::{Comparison, Line, TOLERANCE, compare};
pub use csv::csv;
pub use error::{Error, Result};
pub use experiment::{Experiment, Pool, Work, labels};
pub use file::write_whole;
pub use latency::Latency;
pub use markdown::markdown;
pub use model::{
    ALL_CPU, CATCH_UP, CHECKPOINTS, COLLAPSED, CONSISTENT, COPIED, COUNTING, CPU_US_MIN, Configuration, DEVICE_WRITTEN,
    ERRORS, FAILOVERS, FIRST_WRITE, FOLLOWER_RATE, FOLLOWER_WIRE, FOLLOWER_WRITTEN, FORMAT, Iteration, LAG_MAX,
    LAG_MAX_OPERATIONS, LAG_MEDIAN, LAG_MEDIAN_OPERATIONS, LONGEST_OPERATION, LOST, LOST_WRITES, Machine,
    NEW_MEMBER_CPU, OTHERS_CPU_SHARE_MAX, Operation, Outcome, PRIMARY_WIRE, Pacing, REJOIN, RESTARTS, Run,
    SLOWEST_CLIENT, Series, Session, Span, WITHOUT_PRIMARY, WRONG,
};
pub use stalls::{collapse, halts, stalls};
