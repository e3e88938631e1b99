//! The store's interface.

use crate::{BlockAddr, BlockKind, Result, RunWriter, VolumeId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Length of a segment: a power of two from 32 KiB to 16 MiB. Fixed when the store is created; an existing one keeps its own.
    pub segment_bytes: u32,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { segment_bytes: 1 << 20 }
    }
}

/// What a durable checkpoint says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRoot {
    /// Its number, from 1.
    pub number: u64,
    /// What the owner passed to [`BlockStore::commit_checkpoint`].
    pub seq: u64,
    /// The owner's root, at most [`BlockStore::ROOT_BYTES_MAX`].
    pub root: Vec<u8>,
}

/// Which checkpoint a new block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The running one; when none runs, the next.
    Checkpoint,
    /// The one after the running one; when none runs, the next.
    Later,
}

/// Whether the running checkpoint still needs a block that is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Referenced {
    /// Neither the running nor a later checkpoint refers to it.
    No,
    /// The running checkpoint refers to it, the ones after it do not. Means the same as `No` while none runs.
    ByRunningCheckpoint,
}

/// How much [`BlockStore::plan_relocation`] may ask to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A little, where it pays.
    Background,
    /// All that makes the files shorter.
    Compact,
}

/// Counters of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of blocks that the running or next checkpoint refers to.
    pub used_bytes: u64,
    /// Bytes that can be written to now.
    pub free_bytes: u64,
    /// Bytes that become free with a later checkpoint or when a pin goes, and those that writers have reserved.
    pub waiting_bytes: u64,
}

/// Counters of the store since it was opened, and the space of its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// All volumes together.
    pub total: VolumeStats,
    /// Each volume.
    pub volumes: Vec<(VolumeId, VolumeStats)>,
    /// Blocks written, the store's own included.
    pub blocks_written: u64,
    /// Their bytes on disk.
    pub bytes_written: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Their bytes on disk.
    pub bytes_read: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Number of the last durable checkpoint, 0 for none.
    pub checkpoint: u64,
}

/// Buffers and contexts that reading uses again and again; one for each thread.
#[derive(Default)]
pub struct ReadScratch {}

/// A block that [`BlockStore::salvage_scan`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedBlock {
    /// The file it was found in.
    pub path: PathBuf,
    /// The volume it was written to.
    pub volume: VolumeId,
    /// Where it lies.
    pub addr: BlockAddr,
    /// What it holds.
    pub kind: BlockKind,
    /// Whose it is.
    pub owner: u32,
    /// The checkpoint it was written for: of two with the same content, the newer one wins.
    pub checkpoint: u64,
    /// Its bytes, decompressed.
    pub raw: Vec<u8>,
}

/// A durable checkpoint whose files stay fit for copying while this lives: see [`BlockStore::pin`].
pub struct PinnedCheckpoint {}

impl PinnedCheckpoint {
    /// Number of the checkpoint; 0 when nothing is durable yet.
    pub fn number(&self) -> u64 {
        todo!()
    }

    /// What was passed to [`BlockStore::commit_checkpoint`].
    pub fn seq(&self) -> u64 {
        todo!()
    }

    /// The files, relative to the store's directory, and how many of their bytes to copy. A directory that holds these copies
    /// (and nothing else) is a store with that checkpoint. Empty when nothing is durable yet.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        todo!()
    }
}

/// The block store; see the crate's documentation. Any number of threads may use it.
pub struct BlockStore {}

impl BlockStore {
    /// Longest root of a checkpoint.
    pub const ROOT_BYTES_MAX: usize = 2048;

    /// Opens the store in `directory` (which exists), or makes one. The root is that of the last durable checkpoint, `None`
    /// before the first. Reads superblock, directory and maps; never blocks of data.
    pub fn open(
        _env: &vfs::Env,
        _directory: &Path,
        _options: StoreOptions,
    ) -> Result<(Arc<BlockStore>, Option<CheckpointRoot>)> {
        todo!()
    }

    /// The volume of that name, made when missing: file `<name>/data.blocks`, and `main.blocks` for the empty name. It is
    /// there after a crash once a checkpoint has become durable.
    pub fn volume(&self, _name: &str) -> Result<VolumeId> {
        todo!()
    }

    /// The name of a volume.
    pub fn volume_name(&self, _volume: VolumeId) -> Option<String> {
        todo!()
    }

    /// Removes a volume to which no block belongs any more; false (and nothing is done) when one does. The file goes after the
    /// next durable checkpoint. Until then [`BlockStore::volume`] brings it back.
    pub fn remove_volume_if_empty(&self, _volume: VolumeId) -> Result<bool> {
        todo!()
    }

    /// A writer of blocks; one for each thread that writes. It holds reserved space until it is dropped.
    pub fn writer(self: &Arc<Self>, _volume: VolumeId, _purpose: Purpose) -> RunWriter {
        todo!()
    }

    /// Reads a block that was flushed: its raw bytes. Place, kind, owner and checksum are checked.
    pub fn read(
        &self,
        _volume: VolumeId,
        _addr: &BlockAddr,
        _owner: u32,
        _kind: BlockKind,
        _scratch: &mut ReadScratch,
    ) -> Result<Vec<u8>> {
        todo!()
    }

    /// Reads many blocks, those near each other with one call of the file (up to 1 MiB). `each` gets the index in `addrs` and
    /// the result, in the order of the file.
    pub fn read_run(
        &self,
        _volume: VolumeId,
        _addrs: &[BlockAddr],
        _owner: u32,
        _kind: BlockKind,
        _scratch: &mut ReadScratch,
        _each: impl FnMut(usize, Result<Vec<u8>>),
    ) {
        todo!()
    }

    /// Gives a block back. With [`Referenced::No`] its space can be used at once when neither the running nor the durable
    /// checkpoint refers to it; when the durable one does, after the running (or next) one is durable. With
    /// [`Referenced::ByRunningCheckpoint`], after the checkpoint that follows the running one is durable. What the running
    /// checkpoint does not refer to must be freed before [`BlockStore::commit_checkpoint`]: it records what is used.
    /// An address that is not in use is ignored and counted.
    pub fn free(&self, _volume: VolumeId, _addr: BlockAddr, _referenced: Referenced) {
        todo!()
    }

    /// Moves a block from the running checkpoint to the one after it: for a block that was appended before
    /// [`BlockStore::begin_checkpoint`] and found its place in the owner's structures only after it.
    pub fn postpone(&self, _volume: VolumeId, _addr: BlockAddr) {
        todo!()
    }

    /// Draws the line: see [`Purpose`]. Returns the number of the checkpoint that now runs. Panics when one runs already.
    ///
    /// Blocks belong by the time of [`RunWriter::append`], not of the flush.
    pub fn begin_checkpoint(&self) -> u64 {
        todo!()
    }

    /// Makes the running checkpoint durable. Every block that belongs to it must have been flushed. Writes the maps, syncs each
    /// volume written to, writes a superblock, syncs it. After an error that is not `Closed` the checkpoint still runs:
    /// commit again, or [`BlockStore::abandon_checkpoint`]. A sync or superblock that fails closes the store.
    pub fn commit_checkpoint(&self, _seq: u64, _root: &[u8]) -> Result<()> {
        todo!()
    }

    /// Gives the running checkpoint up. The durable one stays; the blocks written for the abandoned one with
    /// [`Purpose::Checkpoint`] are freed (**the owner must not refer to them any more**), and all others that are alive belong
    /// to the next one.
    pub fn abandon_checkpoint(&self) {
        todo!()
    }

    /// Pins the durable checkpoint for a hot copy: while it lives its blocks are not reused and no file is made shorter.
    pub fn pin(self: &Arc<Self>) -> PinnedCheckpoint {
        todo!()
    }

    /// True when the block lies where [`BlockStore::plan_relocation`] wants room: the owner shall write it anew and free it.
    pub fn wants_move(&self, _volume: VolumeId, _addr: &BlockAddr) -> bool {
        todo!()
    }

    /// Chooses the segments to be emptied, anew. Good after each checkpoint. Returns the bytes of the blocks to move.
    pub fn plan_relocation(&self, _urgency: Urgency) -> u64 {
        todo!()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        todo!()
    }

    /// Compares the blocks the owner refers to (those of the running or next checkpoint) with what is marked as used: a
    /// sentence for each overlap, each block not marked, each run of sectors marked for nothing.
    pub fn verify(&self, _referenced: impl Iterator<Item = (VolumeId, BlockAddr)>) -> Vec<String> {
        todo!()
    }

    /// Finds every block whose header and checksum are right, whatever superblocks and maps say.
    pub fn salvage_scan(_env: &vfs::Env, _directory: &Path, _each: &mut dyn FnMut(SalvagedBlock)) -> Result<()> {
        todo!()
    }
}
