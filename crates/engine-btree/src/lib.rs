//! The `btree` engine: ordered trees of immutable pages, kept in memory and written to checksummed blocks.
//!
//! From the bottom up:
//! - pages and trees: `page` is what a leaf or inner node looks like; `version` and `delta` are what was written since;
//!   `leaf` puts both together, `consolidation` merges them; `tree` is the structure above;
//! - what everything stands on (`foundation`): `cache` counts memory and knows what leaves it first, `readers` who
//!   reads at which position, `catalog` the tables, `pages` brings pages in, `running` tells of the checkpoint that
//!   runs;
//! - changes: `consolidator` and `restructure` in memory, `write_back` to disk, `apply` for batches, and
//!   `consolidation_queue` for what they leave to a worker;
//! - reads: `snapshot`, `walk` with `raw_leaf`, and `read_ahead`, with `coming` and `stretches`, before it is asked;
//! - what runs in the background: `checkpoint` with `saved_deltas`, `eviction`, `write_behind`, `history_limit`,
//!   `relocate`; and on demand:
//!   `bulk`, `maintain`, `audit`; `salvage` rebuilds what damage has left;
//! - `parts` puts all of that together, for `engine_impl`.
//!
//! `docs/engines/btree.md` tells the whole story.

mod apply;
mod audit;
mod backup;
mod block_cache;
mod block_mover;
mod budget;
mod bulk;
mod cache;
mod catalog;
mod checkpoint;
mod clock_list;
mod coming;
mod consolidation;
mod consolidation_queue;
mod consolidator;
mod counters;
mod cutting;
mod delta;
mod directory;
mod durable_audit;
mod engine_impl;
mod evict_inner;
mod eviction;
mod expect;
mod fill;
#[cfg(test)]
mod fixture;
mod foundation;
mod ghosts;
mod history;
mod history_file;
mod history_limit;
mod job;
mod large_values;
mod leaf;
mod leaf_part;
mod loads;
mod maintain;
mod options;
mod page;
mod pages;
mod parts;
mod raw_leaf;
mod read_ahead;
mod readers;
mod relocate;
mod restructure;
mod row_in_block;
mod running;
mod salvage;
mod saved_deltas;
mod snapshot;
mod stats;
mod stretches;
mod table_removal;
mod tables;
mod throttle;
mod tree;
mod version;
mod walk;
mod workers;
mod write_back;
mod write_behind;
mod write_pace;

pub use engine_impl::BtreeEngine;
pub use options::{BtreeOptions, Heap, HeapBytes};
pub use salvage::{LostRange, SalvageReport, SalvagedStore, TableSalvage};
