//! Storage engines measured side by side: the engines of Tenon with the one log in front, and WiredTiger.
//!
//! `subject` is what is measured, `workload` what is done to it, `driver` calls and times it. One process measures one
//! run and answers an [`Outcome`]; `session` starts those processes in turn, and `report` makes ratios of medians from
//! what they answer and holds them against `targets`. The measured figures never depend on the order of runs, and a run
//! never shares a process, a directory or a cache with another.
//!
//! A workspace member that is never linked into the server: the WiredTiger library is GPL software, and only this
//! crate's shim knows it.
#![allow(clippy::disallowed_methods, reason = "a tool that measures real time and real files")]

pub mod data;
pub mod driver;
mod interrupt;
pub mod machine;
pub mod outcome;
pub mod report;
pub mod session;
pub mod spec;
pub mod statistics;
pub mod subject;
pub mod targets;
pub mod ticker;
pub mod workload;

pub use outcome::Outcome;
