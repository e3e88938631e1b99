//! Blocks of bytes in a few files, never overwritten while a durable checkpoint refers to them.
//!
//! A [`BlockStore`] keeps *volumes* (files), cut in segments in which blocks lie packed at sectors of 512 bytes. A block is
//! appended by a [`RunWriter`], which yields its [`BlockAddr`]: place, length and checksum, to be kept by whoever refers to
//! it. A checkpoint ([`BlockStore::begin_checkpoint`], [`BlockStore::commit_checkpoint`]) makes a root, and the exact map of
//! the sectors it uses, durable with two syncs of the main file. The files are described in
//! `docs/formats/btree-blocks.md`.
//!
//! This crate knows nothing of trees, keys or tables: a root is opaque bytes, an owner a number.
//!
//! Invariant: a sector that the last durable checkpoint (or a pinned one) refers to is neither written nor cut off.

mod address;
mod block;
mod error;
mod store;
mod writer;

pub use address::{BlockAddr, VolumeId};
pub use block::BlockKind;
pub use error::{BlockError, Result};
pub use store::{
    BlockStore, CheckpointRoot, PinnedCheckpoint, Purpose, ReadScratch, Referenced, SalvagedBlock, StoreOptions,
    StoreStats, Urgency, VolumeStats,
};
pub use writer::RunWriter;

/// Unit of allocation, in bytes: what disks write whole.
pub const SECTOR_BYTES: usize = 512;
