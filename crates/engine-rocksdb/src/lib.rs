//! The `rocksdb` engine: RocksDB, the LSM library, behind the engine API.
//!
//! All tables share one column family; a key is the table's id and then the caller's key. RocksDB's own write-ahead log
//! is off, since the one log above makes writes durable. Every batch also writes the durable mark, and memtables reach
//! the disk in the order they were filled: so what the files hold is always a prefix of the batches, and the mark in
//! them says which. `layout` has the keys, `view` reads, `engine_impl` writes.
//!
//! RocksDB does its own input and output: the file system of [`vfs::Env`] serves only to list and remove directories
//! here, and a simulated one cannot inject faults below RocksDB.

mod backup;
mod bulk;
mod cursor;
mod engine_impl;
mod error;
mod estimate;
mod layout;
mod mark;
mod options;
mod pressure;
mod range_deletes;
mod registry;
mod stats;
mod view;

pub use engine_impl::RocksEngine;
pub use options::RocksOptions;
