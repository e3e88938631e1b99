//! The `inMemory` engine: the readable reference of the engine API, multi-versioned and concurrent.
//!
//! Every table is an ordered map under a read-write lock; every key has a short chain of versions, newest first. A
//! snapshot is a number: it sees, of each chain, the newest version at or below it. Readers lock a table only while
//! they copy out a batch of rows, so nothing ever waits for a slow reader.
//!
//! The log above the engine makes writes durable; [`engine::Engine::checkpoint`] writes one file with everything, so
//! that the log need not grow for ever. How the pieces lie: `key` and `chain` are the data, `table` the map, `apply`
//! writes and cleans up, `snapshot` reads, `checkpoint` is the file.

mod apply;
mod chain;
mod checkpoint;
mod engine_impl;
mod key;
mod options;
mod shared;
mod snapshot;
mod table;

pub use engine_impl::InMemoryEngine;
pub use options::InMemoryOptions;
