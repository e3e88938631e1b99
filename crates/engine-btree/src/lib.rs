//! The `btree` engine: ordered trees of immutable pages, kept in memory and written to checksummed blocks.
//!
//! How the pieces lie, from the bottom up: `page` is what a leaf or inner node looks like; `version` and `delta` are what was
//! written since; `leaf` puts both together, `fold` merges them; `tree` is the structure above, `restructure` changes it;
//! `core` holds what all share and brings pages in; `apply` writes, `snapshot` reads, `ahead` before it is asked; `write_back`, `checkpoint` and `bulk` write
//! to disk, `relief` keeps memory within its bounds, `kept` has blocks that were read once, `relocate` empties parts of the files; `large_values` is the book of
//! values outside leaves; `directory` is the table of tables; `maintain` checks and compacts, `salvage` rebuilds what damage
//! has left.
//! `docs/engines/btree.md` tells the whole story.

mod ahead;
mod apply;
mod audit;
mod backup;
mod budget;
mod bulk;
mod checkpoint;
mod core;
mod delta;
mod directory;
mod engine_impl;
mod evict_inner;
mod fill;
#[cfg(test)]
mod fixture;
mod fold;
mod history;
mod kept;
mod large_values;
mod leaf;
mod maintain;
mod options;
mod page;
mod relief;
mod relocate;
mod restructure;
mod ring;
mod salvage;
mod snapshot;
mod stats;
mod tables;
mod tree;
mod version;
mod workers;
mod write_back;
mod write_behind;

pub use engine_impl::BtreeEngine;
pub use options::{BtreeOptions, Heap, HeapBytes};
pub use salvage::{LostRange, SalvageReport, TableSalvage};
