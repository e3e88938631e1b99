//! Blocks of bytes in a few files, never overwritten while a durable checkpoint refers to them.
//!
//! A [`BlockStore`] keeps *volumes* (files), cut in segments in which blocks lie packed at sectors of 512 bytes. A
//! block is appended by a [`RunWriter`], which yields its [`BlockAddr`]: place, length and checksum, to be kept by
//! whoever refers to it. A checkpoint ([`BlockStore::begin_checkpoint`], [`BlockStore::commit_checkpoint`]) makes a
//! root, and the exact map of the sectors it uses, durable with two syncs of the main file. The files are described in
//! `docs/formats/btree-blocks.md`.
//!
//! This crate knows nothing of trees, keys or tables: a root is opaque bytes, an owner a number.
//!
//! Invariant: a sector that the last durable checkpoint (or a pinned one) refers to is neither written nor cut off.

mod address;
mod bits;
mod block;
mod checkpoint;
mod directory;
mod error;
mod evacuation;
mod limits;
mod open;
mod pin;
mod read;
mod salvage;
mod salvage_reader;
mod sealing;
mod sections;
mod space;
mod stats;
mod store;
mod stretch;
mod superblock;
mod superblocks;
mod verify;
mod volume;
mod writer;

#[cfg(test)]
mod format_tests;

pub use address::{BlockAddr, VolumeId};
pub use block::BlockKind;
pub use error::{BlockError, Result};
pub use evacuation::{MovingBlock, SegmentBlocks};
pub use limits::{RAW_BUFFER_BYTES_MAX, SECTOR_BYTES};
pub use pin::PinnedCheckpoint;
pub use read::{Near, ReadScratch, Source};
pub use salvage::SalvagedBlock;
pub use salvage_reader::{SalvageMap, SalvageReader};
pub use sections::Sections;
pub use stats::{StoreStats, VolumeStats};
pub use store::{BlockStore, CheckpointRoot, Purpose, Referenced, StoreOptions, Urgency};
pub use stretch::Stretch;
pub use writer::RunWriter;
