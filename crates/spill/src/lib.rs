//! Temporary files of operations that outgrow their memory: sorted runs and hash partitions.
//!
//! A [`SpillSpace`] is a directory. A [`SpillWriter`] writes one file of it, in which any number of [`Run`]s lie side
//! by side; each run is a sequence of rows, which are bytes to this crate, and is read back from its beginning by a
//! [`RunReader`].
//! - A file goes with the last of its writer, runs and readers, however their operation ends. What a process leaves
//!   behind that is killed goes when the next one opens the space.
//! - Nothing is synced: no file outlives its process.
//! - What is read back is checked (length, place, checksum) before it is used; see `docs/formats/spill.md`.

mod error;
mod format;
mod run;
mod space;
#[cfg(test)]
mod tests;

pub use error::{Result, SpillError};
pub use format::{BLOCK_BYTES, ROW_BYTES_MAX};
pub use run::{Run, RunAccess, RunReader, RunWriter};
pub use space::{SpillSpace, SpillWriter};
