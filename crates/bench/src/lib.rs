//! Measures servers from outside: load over the wire protocol, and what the system says about the server's process.
//!
//! It starts a server for each configuration on fresh data, or takes one that is running; drives it by a workload in a
//! closed or an open loop; and puts what it saw into [`report::Session`]. It knows nothing of the server's insides.

#![allow(
    clippy::disallowed_methods,
    reason = "a client program: time and files are the machine's own"
)]

pub mod actor;
pub mod buckets;
pub mod configuration;
pub mod connection;
pub mod context;
pub mod driver;
mod error;
pub mod experiment;
mod followers;
pub mod interrupt;
pub mod limits;
pub mod measure;
pub mod message;
pub mod permutation;
pub mod pipe;
pub mod procfs;
pub mod random;
pub mod responder;
mod role;
mod schedule;
pub mod server;
pub mod set;
pub mod subject;
mod turns;
mod watch;
pub mod workload;
pub mod zipf;

pub use error::{Doing, Error, Result, chain};
