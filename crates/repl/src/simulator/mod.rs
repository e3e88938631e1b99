//! A whole replica set in one thread: members, their logs on disks that lose what was not synced, and a network that
//! loses, doubles and reorders messages. A seed decides everything, and says what happened again.
//!
//! What must hold is in `checks.rs`; `faults.rs` has what is done wrong on purpose, and must be found.

mod checks;
mod cluster;
mod disk;
mod faults;
mod members;
mod node;
mod tests;
