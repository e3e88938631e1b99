//! The `betree` engine: a buffer tree. Inner nodes hold messages on their way to the leaves, so that a write
//! moves down the tree together with many others, and nothing is read to write.
//!
//! It follows published work from before 2007 and nothing else: the buffer tree (L. Arge, *The buffer tree: a
//! new technique for optimal I/O-algorithms*, 1995), the buffered repository tree (A. Buchsbaum, M. Goldwasser,
//! S. Venkatasubramanian, J. Westbrook, *On external memory graph traversal*, 2000) and the Bε-tree (G. S.
//! Brodal, R. Fagerberg, *Lower bounds for external memory dictionaries*, 2003). It has no cache-oblivious
//! layout, no pointers that look ahead between levels, and shares no code and no file format with other
//! products of the family.
//!
//! From the bottom up:
//! - bytes: `run` is sorted entries, `filter` which keys they may have, `node` what refers to them; `fold` is
//!   what versions of one key come to, `merge` several runs as one;
//! - `core` is what all parts stand on: the block store, the `cache` of what is on disk, the `catalog` of
//!   tables; `table` is how one state of a table follows another;
//! - writes: `apply` puts batches into a `memtable`; `flush`, on `workers`, those into trees; `push` takes
//!   messages down, `leaf_merge` into basements, within a `change`; `sink` where readers pass over what was deleted;
//! - reads: `snapshot`, `lookup`, and for cursors `window`;
//! - `checkpoint` with its `directory`, `bulk`, `optimise`, `verify`; and `engine_impl`.
//!
//! `docs/engines/betree.md` tells the whole story, `docs/formats/betree.md` has the bytes.

mod apply;
mod bulk;
mod bytes_io;
mod cache;
mod catalog;
mod change;
mod checkpoint;
mod core;
#[cfg(test)]
mod core_tests;
mod cursor;
mod directory;
mod engine_impl;
mod filter;
mod flush;
mod fold;
#[cfg(test)]
mod layout_tests;
mod leaf_merge;
mod lookup;
mod memtable;
mod merge;
mod node;
mod optimise;
mod options;
mod push;
mod ranges;
mod run;
mod sink;
mod snapshot;
mod stats;
mod table;
mod verify;
mod window;
mod workers;

pub use engine_impl::BetreeEngine;
pub use options::BetreeOptions;
