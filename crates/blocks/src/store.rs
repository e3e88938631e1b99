//! The store: its volumes, and what happens to the space in them.
//!
//! Locks, in the order in which they are taken: `checkpoint` (a commit from start to end), `creation` (volumes made and
//! removed), `superblocks` (the last step of a commit, and pinning), a volume's growth lock, `state`. The first four
//! are held across file calls, each because the next one to want it must not go on before those calls have ended;
//! `state` and the map of volumes never are.

use crate::checkpoint::MetaTree;
use crate::directory::check_name;
use crate::limits::{BACKGROUND_SEGMENTS, BACKGROUND_SHARE, ROOT_BYTES_MAX, TAIL_SEGMENTS};
use crate::sealing::Sealing;
use crate::space::{Mark, Phase, SpaceMap};
use crate::stats::{Counters, add};
use crate::superblock::{Superblock, VolumeHeader};
use crate::superblocks::Superblocks;
use crate::volume::Volume;
use crate::{BlockAddr, BlockError, Result, RunWriter, SECTOR_BYTES, VolumeId};
use engine::{EngineStatus, FailureHandler};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vfs::{Access, FileSystem};

/// How a store is made.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Length of a segment: a power of two from 32 KiB to 16 MiB; longer blocks take whole ones in a row. Fixed when
    /// the store is made; an existing one keeps its own.
    pub segment_bytes: u32,
    /// Read single blocks past the system's cache, where disk and file system can do that, and drop from it what was
    /// written once that is durable.
    pub direct_io: bool,
}

impl StoreOptions {
    pub(crate) fn access(&self) -> Access {
        if self.direct_io {
            Access::ReadDirect
        } else {
            Access::Read
        }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 20,
            direct_io: false,
        }
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
    /// The running one; when none runs, the next. (Once a commit has fixed the running one's map: the one after.)
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
    /// All that makes the files shorter, as far as there is room to move to. Repeat with a checkpoint between.
    Compact,
}

/// A checkpoint between its beginning and its end.
pub(crate) struct Running {
    pub number: u64,
    /// Its map is fixed.
    pub settling: bool,
}

/// Everything in memory that changes together.
pub(crate) struct State {
    pub spaces: BTreeMap<VolumeId, SpaceMap>,
    pub names: HashMap<String, VolumeId>,
    /// Volumes to be removed if they are still empty.
    pub removing: BTreeSet<VolumeId>,
    pub next_volume: u32,
    pub running: Option<Running>,
    /// The number begun last.
    pub last_number: u64,
    pub durable_number: u64,
    pub durable_seq: u64,
    /// The volumes that the durable checkpoint's directory lists.
    pub durable_volumes: Vec<VolumeId>,
    pub pins: u32,
    /// Blocks appended and not flushed, by the checkpoint they belong to.
    pub unflushed: BTreeMap<u64, u64>,
    /// Bytes written when a relocation was planned the last time.
    pub written_at_plan: u64,
}

impl State {
    pub fn phase(&self) -> Phase {
        match &self.running {
            None => Phase::Idle,
            Some(running) if running.settling => Phase::Settling,
            Some(_) => Phase::Running,
        }
    }

    /// What a block appended now belongs to, and the number of that checkpoint.
    pub fn mark(&self, purpose: Purpose) -> (Mark, u64) {
        match &self.running {
            None => (Mark::Next, self.last_number + 1),
            Some(running) if purpose == Purpose::Checkpoint && !running.settling => (Mark::Next, running.number),
            Some(running) => (Mark::Later, running.number + 1),
        }
    }
}

/// The block store; see the crate's documentation. Any number of threads may use it. Dropping it writes nothing.
pub struct BlockStore {
    /// For the writers that its methods make.
    pub(crate) this: Weak<BlockStore>,
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) directory: PathBuf,
    pub(crate) segment_sectors: u32,
    /// How single blocks are read.
    pub(crate) access: Access,
    pub(crate) store_id: u64,
    /// With what everything in it is sealed.
    pub(crate) sealing: Option<Sealing>,
    pub(crate) volumes: RwLock<HashMap<VolumeId, Arc<Volume>>>,
    pub(crate) state: Mutex<State>,
    pub(crate) checkpoint: Mutex<MetaTree>,
    pub(crate) creation: Mutex<()>,
    /// Files of volumes that no checkpoint knows may be there: they go after the first one of this process.
    pub(crate) has_leftovers: AtomicBool,
    pub(crate) superblocks: Mutex<Superblocks>,
    pub(crate) counters: Counters,
    /// Closes at the first failure that leaves in doubt what is durable.
    pub(crate) status: EngineStatus,
}

impl BlockStore {
    /// Longest root of a checkpoint.
    pub const ROOT_BYTES_MAX: usize = ROOT_BYTES_MAX;
    /// Longest block before compression; one that long can be appended whether it can be compressed or not. In a store
    /// that is sealed it is shorter by a seal.
    pub const RAW_BYTES_MAX: usize = crate::limits::RAW_BYTES_MAX;
    /// Longest label of a block, in bytes.
    pub const LABEL_BYTES_MAX: usize = crate::limits::LABEL_BYTES_MAX;

    /// What the durable checkpoint says of itself; `None` before the first.
    pub fn durable_root(&self) -> Option<CheckpointRoot> {
        let superblocks = self.superblocks.lock();
        let Superblock { number, seq, root, .. } = &superblocks.current;
        (*number > 0).then(|| CheckpointRoot {
            number: *number,
            seq: *seq,
            root: root.clone(),
        })
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealing.is_some()
    }

    /// Length of a segment in bytes.
    pub fn segment_bytes(&self) -> u32 {
        self.segment_sectors * SECTOR_BYTES as u32
    }

    /// The volume of that name, made when missing: file `<name>/data.blocks`, and `main.blocks` for the empty name. It
    /// is there after a crash once a checkpoint has become durable.
    pub fn volume(&self, name: &str) -> Result<VolumeId> {
        self.check_open()?;
        let _creating = self.creation.lock();
        let id = {
            let mut state = self.state.lock();
            if let Some(id) = state.names.get(name).copied() {
                state.removing.remove(&id);
                return Ok(id);
            }
            check_name(name).map_err(|reason| BlockError::Invalid {
                operation: "create a volume",
                reason,
            })?;
            // The last number is the owner of the directory's block.
            if state.next_volume == u32::MAX {
                return Err(BlockError::Invalid {
                    operation: "create a volume",
                    reason: "all ids have been used".to_owned(),
                });
            }
            VolumeId(state.next_volume)
        };
        let volume = Arc::new(self.create_volume(id, name)?);
        self.volumes.write().insert(id, volume);
        let mut state = self.state.lock();
        state.next_volume += 1;
        state.spaces.insert(id, SpaceMap::new(self.segment_sectors));
        state.names.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Whether there is a volume of that name.
    pub fn has_volume(&self, name: &str) -> bool {
        self.state.lock().names.contains_key(name)
    }

    fn create_volume(&self, id: VolumeId, name: &str) -> Result<Volume> {
        let path = volume_path(&self.directory, name);
        let parent = &path.parent().unwrap_or(&self.directory).to_owned();
        vfs::create_directory_durably(&*self.fs, parent).map_err(BlockError::io("create", parent))?;
        let file = self
            .fs
            .open(&path, Access::OpenOrCreate)
            .map_err(BlockError::io("create", &path))?;
        // A file of that name is what a crash left of a volume that no checkpoint knows.
        file.set_len(0).map_err(BlockError::io("empty", &path))?;
        let volume = Volume::new(&*self.fs, self.access, self.sealing.clone(), id, name, path, file, 0)?;
        let header = VolumeHeader {
            segment_bytes: self.segment_bytes(),
            store: self.store_id,
            volume: id,
        };
        volume.write(&header.encode(), 0)?;
        self.fs
            .sync_directory(parent)
            .map_err(BlockError::io("sync", parent))
            .map_err(|error| self.close_after(error))?;
        Ok(volume)
    }

    /// The name of a volume.
    pub fn volume_name(&self, volume: VolumeId) -> Option<String> {
        Some(self.volumes.read().get(&volume)?.name.clone())
    }

    /// Removes a volume to which no block belongs any more; false (and nothing is done) when one does, or when it is
    /// the main one. The file goes after the next durable checkpoint without a pin. Until then [`BlockStore::volume`],
    /// or a block that is appended, brings the volume back.
    pub fn remove_volume_if_empty(&self, volume: VolumeId) -> bool {
        let mut state = self.state.lock();
        let empty = state.spaces.get(&volume).is_some_and(SpaceMap::is_empty);
        let removes = empty && volume != VolumeId::MAIN;
        if removes {
            state.removing.insert(volume);
        }
        removes
    }

    /// A writer of blocks; one for each thread that writes. It holds reserved space until it is dropped. A volume that
    /// does not exist makes every append `Invalid`.
    pub fn writer(self: &Arc<Self>, volume: VolumeId, purpose: Purpose) -> RunWriter {
        RunWriter::new(self, volume, Some(purpose))
    }

    /// Gives a block back. With [`Referenced::No`] its space can be used at once when neither the running nor the
    /// durable checkpoint refers to it; when the durable one does, after the running (or next) one is durable. With
    /// [`Referenced::ByRunningCheckpoint`], after the checkpoint that follows the running one is durable. What the
    /// running checkpoint does not refer to must be freed before [`BlockStore::commit_checkpoint`]: that records what
    /// is used.
    ///
    /// The block must have been flushed, and nobody may read it any more. An address that is not in use is ignored and
    /// counted, and the answer is false. After the store has closed this does nothing.
    pub fn free(&self, volume: VolumeId, addr: BlockAddr, referenced: Referenced) -> bool {
        if self.check_open().is_err() {
            return true;
        }
        let mut state = self.state.lock();
        let phase = state.phase();
        let freed = state
            .spaces
            .get_mut(&volume)
            .is_some_and(|space| space.free(addr.sector(), addr.sectors(), referenced, phase));
        if !freed {
            add(&self.counters.ignored_frees, 1);
        }
        freed
    }

    /// Moves a block from the running checkpoint to the one after it: for a block that was appended before
    /// [`BlockStore::begin_checkpoint`] and found its place in the owner's structures only after it, so that the
    /// running checkpoint does not refer to it. Does nothing while none runs.
    pub fn postpone(&self, volume: VolumeId, addr: BlockAddr) {
        let mut state = self.state.lock();
        if state.phase() == Phase::Running {
            let postponed = state
                .spaces
                .get_mut(&volume)
                .is_some_and(|space| space.postpone(addr.sector(), addr.sectors()));
            if !postponed {
                add(&self.counters.ignored_frees, 1);
            }
        }
    }

    /// True when the block lies where [`BlockStore::plan_relocation`] wants room: the owner shall write it anew and
    /// free it.
    pub fn wants_move(&self, volume: VolumeId, addr: &BlockAddr) -> bool {
        let mut state = self.state.lock();
        state
            .spaces
            .get_mut(&volume)
            .is_some_and(|space| space.wants_move(addr.sector(), addr.sectors()))
    }

    /// True until the block is given back: a checkpoint after the durable one records it, as far as is known now.
    pub fn is_in_use(&self, volume: VolumeId, addr: &BlockAddr) -> bool {
        let state = self.state.lock();
        state
            .spaces
            .get(&volume)
            .is_some_and(|space| space.is_in_use(addr.sector()))
    }

    /// Chooses the segments to be emptied, anew: sparse ones, and those at the end of a file that could be shorter.
    /// Good after each checkpoint. Returns the bytes of the blocks to be moved, the store's own (which it moves itself)
    /// not counted.
    ///
    /// In the background that is at most the largest of a twentieth of all blocks' bytes, half of what was written
    /// since the last time, and sixteen segments. Full segments at the end of a file, whose blocks only make it
    /// shorter, are few of them where half of all blocks or more have been written since.
    pub fn plan_relocation(&self, urgency: Urgency) -> u64 {
        let mut state = self.state.lock();
        let written = self.counters.bytes_written.load(Ordering::Relaxed);
        let since = written - std::mem::replace(&mut state.written_at_plan, written);
        let live: u64 = state.spaces.values().map(|space| space.sums().live_sectors).sum();
        let since = since / SECTOR_BYTES as u64;
        let mut allowance = (live / BACKGROUND_SHARE)
            .max(since / 2)
            .max(BACKGROUND_SEGMENTS * u64::from(self.segment_sectors));
        let tail = if since < live / 2 {
            BACKGROUND_SEGMENTS as usize
        } else {
            TAIL_SEGMENTS
        };
        let mut sectors = 0;
        for space in state.spaces.values_mut() {
            let moved = space.plan_evacuation((urgency == Urgency::Background).then_some(allowance), tail);
            allowance = allowance.saturating_sub(moved);
            sectors += moved;
        }
        sectors * SECTOR_BYTES as u64
    }

    /// The durable form of the running checkpoint's map shall not have a block, which stays in use: that checkpoint
    /// does not refer to it, but a reader does, or a later one will. A crash makes it free. For between the last flush
    /// and [`BlockStore::commit_checkpoint`]; good for one checkpoint. False when the block is none of the running
    /// checkpoint's, whose map has not got it then.
    pub fn exclude(&self, volume: VolumeId, addr: BlockAddr) -> bool {
        let mut state = self.state.lock();
        let is_running = state.phase() == Phase::Running;
        let space = state.spaces.get_mut(&volume).filter(|_| is_running);
        space.is_some_and(|space| space.exclude(addr.sector(), addr.sectors()))
    }

    /// The first of some blocks that the running checkpoint does not record as used: one that was given back, or that
    /// belongs to the checkpoint after it. The owner must not refer to it there.
    pub fn find_unrecorded(&self, volume: VolumeId, blocks: &[BlockAddr]) -> Option<BlockAddr> {
        let state = self.state.lock();
        let space = state.spaces.get(&volume);
        let is_recorded =
            |addr: &&BlockAddr| space.is_some_and(|space| space.is_recorded(addr.sector(), addr.sectors()));
        blocks.iter().find(|addr| !is_recorded(addr)).copied()
    }

    /// The running checkpoint does not refer to a block that was freed as [`Referenced::ByRunningCheckpoint`]: what did
    /// refer to it went before it was recorded. Another block is ignored and counted.
    pub fn forsake(&self, volume: VolumeId, addr: BlockAddr) {
        let mut state = self.state.lock();
        if state.phase() == Phase::Running {
            let forsaken = state
                .spaces
                .get_mut(&volume)
                .is_some_and(|space| space.forsake(addr.sector(), addr.sectors()));
            if !forsaken {
                add(&self.counters.ignored_frees, 1);
            }
        }
    }

    /// Sets who is told, once, of the failure that closes the store, whichever call met it: what is durable is in doubt
    /// from then on. It must not call the store.
    pub fn set_failure_handler(&self, handler: FailureHandler) {
        self.status.set_failure_handler(handler);
    }

    /// `Closed` after a failure that leaves in doubt what is durable.
    pub(crate) fn check_open(&self) -> Result<()> {
        match self.status.failure() {
            None => Ok(()),
            Some(reason) => Err(BlockError::Closed(reason.to_owned())),
        }
    }

    /// Closes the store for an error, and passes the error on.
    pub(crate) fn close_after(&self, error: BlockError) -> BlockError {
        self.status.stop(error.to_string());
        error
    }

    pub(crate) fn find_volume(&self, volume: VolumeId) -> Result<Arc<Volume>> {
        self.volumes
            .read()
            .get(&volume)
            .cloned()
            .ok_or_else(|| BlockError::Invalid {
                operation: "use a volume",
                reason: format!("{volume:?} does not exist"),
            })
    }

    /// All volumes, by their ids.
    pub(crate) fn all_volumes(&self) -> Vec<Arc<Volume>> {
        let mut volumes: Vec<_> = self.volumes.read().values().cloned().collect();
        volumes.sort_by_key(|volume| volume.id);
        volumes
    }
}

/// Path of a volume's file relative to the store's directory.
pub(crate) fn volume_file(name: &str) -> PathBuf {
    if name.is_empty() {
        PathBuf::from("main.blocks")
    } else {
        Path::new(name).join("data.blocks")
    }
}

pub(crate) fn volume_path(directory: &Path, name: &str) -> PathBuf {
    directory.join(volume_file(name))
}
