//! The conformance kit every storage engine passes.
//!
//! An engine's crate writes a [`Fixture`] - how to get an empty place, open an engine on it, and crash it - and calls
//! [`run_all`] from a test. One file per theme; one function per rule of the engine API; `CHECKLIST.md` beside the
//! sources maps the list of behaviours to them. The kit knows no engine: where engines may differ it asks their
//! `Capabilities`.
//!
//! `TENON_KIT_ONLY=text` runs the tests whose names contain the text; `TENON_KIT_SEED=n` replays the random ones.

#![allow(clippy::unwrap_used, reason = "a test kit: a failed step is a failed test")]

mod batches;
mod bulk;
mod concurrency;
mod cursors;
mod driver;
mod durability;
mod faults;
mod fixture;
mod gate;
mod lifecycle;
mod maintenance;
mod measure;
mod model;
mod points;
mod ranges;
mod real_site;
mod resources;
mod snapshots;
mod space;
mod suite;
mod write_ahead;

pub use fixture::{Fixture, Opened, Site, encrypted};
pub use measure::measure;
pub use real_site::RealSite;
pub use suite::run_all;
