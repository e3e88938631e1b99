//! Consensus: which entries of the log stay, and which member of a replica set appends them.
//!
//! Raft (Ongaro and Ousterhout, USENIX ATC 2014; pre-vote and leader transfer from Ongaro's dissertation, 2014, 9.6 and
//! 3.10), by the crate `raft`. A [`Member`] is a state machine without sockets, clock, threads or files: it is told
//! what arrived, that time went on and what is on disk, and says what to write, whom to send what, and which entries
//! stay. The log itself is its driver's ([`LogView`]), who also fills in what the entries of a message say.
//!
//! A leader's entries get their places from the log, not from here: the write path appends, and the driver says how far
//! ([`Member::wrote`]). So no write waits for consensus to give it a place, and the state machine never holds an
//! entry's bytes but those that arrived from another leader.
//!
//! What the driver must keep to:
//! - [`Outputs`] are carried out in order, and told by [`Member::written`] before anything else is asked of the member;
//! - messages of an [`Unsynced`] leave by [`Member::persisted`], once all that was written before is on disk;
//! - entries up to [`Outputs::committed`] are never taken back.

mod error;
mod log_view;
mod member;
mod message;
#[cfg(test)]
mod simulator;

pub use error::ReplError;
pub use log_view::LogView;
pub use member::{Config, Elected, Member, Outputs, Progress, Role, Unsynced};
pub use message::{Entry, Message};
