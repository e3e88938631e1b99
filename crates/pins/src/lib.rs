//! The register of open snapshots, from which engines tell which versions are needed.
//!
//! A snapshot pins the published position ([`Pins::pin`]) and reads there until it is unpinned. Writers ask for the
//! [`Horizon`], which says whether a version can still be seen by anybody. The register is spread over shards, so that
//! reads on different threads meet in no lock.
//!
//! A snapshot that holds too much history can be ended ([`Pins::expire_oldest`]): its versions are then free to go, and
//! it finds out by [`Pins::is_expired`].

mod horizon;
mod register;
mod shard;

pub use horizon::Horizon;
pub use register::{Holder, Pin, Pins};
