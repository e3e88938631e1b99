//! tenond: sockets, configuration, process.
//!
//! The only crate with threads of its own for clients, and a main loop. Reading the source: `run.rs` is the life of the
//! process; `net/pool.rs` and `net/connection.rs` are what happens to a request; `config.rs` and its table
//! `config/options.rs` are what can be configured; `data_directory.rs` is what keeps two servers apart.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the process itself: its own files, sockets and waits are the machine's, not the simulator's"
)]

mod announcement;
pub mod config;
pub mod daemon;
pub mod data_directory;
mod descriptors;
pub mod encryption;
pub mod engines;
pub mod events;
mod http;
pub mod inspect;
mod key_file;
mod members;
mod memory;
pub mod net;
pub mod point_in_time;
pub mod process;
mod reasons;
pub mod repair;
pub mod run;
mod settings;
mod start_lines;

pub use reasons::reasons;
