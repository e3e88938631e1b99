//! Random runs of the engines btree and betree against a model of every position that was ever written.
//!
//! [`Plan`] draws the engine's options and the shape of the work from a seed; [`event_at`] is what happens at one
//! position, and depends on nothing but the plan, the position and the state before it, so that whoever knows how far
//! an engine came knows what must be in it. [`Model`] keeps all versions. [`Run`] mixes events with snapshots,
//! checkpoints, maintenance, reopenings, backups and crashes at a [`Place`], which is a simulated disk or a directory,
//! and [`check`] compares. [`Hold`] works on any engine beside one snapshot that stays open.
//!
//! An engine's failure to do what it must is a panic here: this crate is a test.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

pub mod check;
mod crash;
mod dice;
mod hold;
mod kill;
mod model;
mod place;
mod plan;
mod repeat;
mod run;
mod subject;

pub use crash::crash_everywhere;
pub use dice::Dice;
pub use hold::{Held, Hold};
pub use kill::{KillLoop, child};
pub use model::Model;
pub use place::{Place, copy_file};
pub use plan::{Event, Plan, event_at};
pub use repeat::{seeds, steps};
pub use run::{Run, Weights};
pub use subject::Subject;
