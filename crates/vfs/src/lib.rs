//! Files, clock and randomness, real and simulated.
//!
//! All I/O of the log and the engines goes through [`FileSystem`] and [`File`], so that tests can run them on
//! [`SimulatedFs`], which crashes, tears, loses, reorders and misdirects. Time and randomness come in by the same door
//! ([`Clock`], [`Random`]). This crate knows no format and no database notion.

mod asleep;
mod clock;
mod direct_buffer;
mod file_system;
mod keyed;
mod out_of_descriptors;
mod overlay;
mod random;
mod real;
mod simulated;
mod wait_list;
mod watched;

pub use asleep::{Asleep, Lender, Lent, asleep, lend};
pub use clock::{Clock, SimulatedClock, SystemClock};
pub use direct_buffer::{DIRECT_BYTES, DirectBuffer};
pub use file_system::{Access, DirectoryLock, File, FileSystem, Space, create_directory_durably};
pub use keyed::KeyedFs;
pub use out_of_descriptors::is_out_of_descriptors;
pub use overlay::OverlayFs;
pub use random::{Random, SeededRandom, SystemRandom};
pub use real::RealFs;
pub use simulated::{Fault, FaultKind, SimulatedFs};
pub use wait_list::{Await, Registration, WaitList, Waker};
pub use watched::{Watch, WatchedFs};

/// What the rest of Tenon gets from the machine it runs on, handed from the top down.
#[derive(Clone)]
pub struct Env {
    /// Files.
    pub fs: std::sync::Arc<dyn FileSystem>,
    /// Wall and monotonic time.
    pub clock: std::sync::Arc<dyn Clock>,
    /// Randomness (identifiers, sampling); never for secrets of other users.
    pub random: std::sync::Arc<dyn Random>,
}
