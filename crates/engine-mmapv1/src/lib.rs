//! The mmapv1 engine: what MongoDB's first engine was good at, without what it was bad at.
//!
//! Kept: data files that double, extents, free lists by size, a namespace file, records updated where they lie, one
//! writer per collection. Left out: the mapped file (a file that somebody cuts is an error here and no signal), its
//! own journal, and indexes that point at a record's place: a dense array leads from record id to place, so a record
//! that moves touches no index.
//!
//! Nothing reaches the files between checkpoints; a checkpoint writes what changed twice, first aside and then in
//! place. So the files are always the exact fold of the log up to one position. See `docs/engines/mmapv1.md` and
//! `docs/formats/mmapv1.md`.
//!
//! Layers, each knowing only those before it: [`loc`] and [`bytes_at`] (places, checked reading), [`files`] and
//! [`space`] (a database's files and extents), [`cache`] (pages), [`store`] (one table's rows: slots, array, tree),
//! [`table`] (and what old snapshots see of it), [`apply`], [`checkpoint`], the engine.

mod apply;
mod bulk;
mod bytes_at;
mod cache;
mod checkpoint;
mod compact;
mod database;
mod engine_impl;
mod files;
mod history;
mod journal;
#[cfg(test)]
mod layout_tests;
mod loc;
mod namespaces;
mod open;
mod options;
mod pager;
mod room;
mod root;
mod sealing;
mod shared;
mod snapshot;
mod space;
mod stats;
mod store;
mod table;
mod verify;

pub use engine_impl::Mmapv1Engine;
pub use options::{Allocation, Mmapv1Options};
