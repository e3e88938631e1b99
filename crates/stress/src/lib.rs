//! The MOST experiment (Object Computing, 2011): what write concern, journal and capped collections cost, per engine.
//!
//! A cell of the matrix is a server on fresh data. Threads write documents 1 to N in batches; at once others read them
//! back, N down to 1, and every byte is compared with what was written. Every command line and every admin command is
//! told before it is executed, so that it can be repeated by hand. This crate prints nothing and parses no arguments.

#![allow(
    clippy::disallowed_methods,
    reason = "a client program: time and files are the machine's own"
)]

mod cell;
mod document;
mod error;
mod event;
mod folders;
mod halt;
pub mod limits;
mod link;
mod load;
mod matrix;
mod plan;
mod record;
mod replica_set;
mod request;
mod session;
mod settings;
mod tables;

pub use cell::{CellOutcome, CellResult, Failover, Missed};
pub use document::{Documents, Tally};
pub use error::{Result, SettingsFault, StressError};
pub use event::{Event, Observer, Phase};
pub use folders::Folders;
pub use link::{Link, LinkError};
pub use load::PhaseResult;
pub use matrix::{Capped, Cell, Journal, Size, Topology, WriteConcern, cells};
pub use plan::{Admin, Place, Plan};
pub use record::{WORKLOAD, runs};
pub use request::{COLLECTION, DATABASE, Find, Insert};
pub use session::{Bench, dry_run, run};
pub use settings::{Fsync, Settings};
pub use tables::{is_any_table_refused, tables};
