//! The threads that serve whatever has something to say, and the set of what is quiet.
//!
//! It knows neither sockets nor requests: those are its owner's, by [`Host`]. With the feature `shuttle` locks and
//! threads are the schedule checker's, see `tests/schedules.rs`.

mod crew;
mod host;

pub use crew::{Crew, Stay, Turn};
pub use host::{Event, Host, Leave};
