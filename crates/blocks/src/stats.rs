//! Counters.

use crate::{BlockStore, SECTOR_BYTES, VolumeId};
use engine::CommonStats;
use std::sync::atomic::{AtomicU64, Ordering};

/// Space of one volume, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Length of the file.
    pub file_bytes: u64,
    /// Bytes of blocks that the running checkpoint, the next one or the one after refers to.
    pub used_bytes: u64,
    /// Bytes of the file that can be written to now.
    pub free_bytes: u64,
    /// All others: what becomes free with a later checkpoint or when a pin goes, what writers have reserved, and the
    /// store's own blocks.
    pub waiting_bytes: u64,
}

/// Counters of the store since it was opened, and the space of its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// All volumes together.
    pub total: VolumeStats,
    /// Each volume.
    pub volumes: Vec<(VolumeId, VolumeStats)>,
    /// So many of them are read past the system's cache ([`crate::StoreOptions::direct_io`]).
    pub direct_volumes: u64,
    /// Blocks written, the store's own included.
    pub blocks_written: u64,
    /// Their bytes on disk.
    pub bytes_written: u64,
    /// Reads of blocks; one of many that lie side by side is one.
    pub blocks_read: u64,
    /// Their bytes on disk.
    pub bytes_read: u64,
    /// Syncs of files.
    pub syncs: u64,
    /// Calls of [`BlockStore::free`] and [`BlockStore::postpone`] for what was not in use: not 0 tells of a mistake.
    pub ignored_frees: u64,
    /// Number of the last durable checkpoint, 0 for none.
    pub checkpoint: u64,
}

impl StoreStats {
    /// What the store has to tell of the figures that engines have in common.
    pub fn common(&self) -> CommonStats {
        CommonStats {
            file_bytes: Some(self.total.file_bytes),
            blocks_read: Some(self.blocks_read),
            bytes_read: Some(self.bytes_read),
            blocks_written: Some(self.blocks_written),
            bytes_written: Some(self.bytes_written),
            syncs: Some(self.syncs),
            ..CommonStats::default()
        }
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub blocks_written: AtomicU64,
    pub bytes_written: AtomicU64,
    pub blocks_read: AtomicU64,
    pub bytes_read: AtomicU64,
    pub syncs: AtomicU64,
    pub ignored_frees: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl BlockStore {
    /// Memory that the maps of space take, in bytes: it rises with the length of the files, and with the segments
    /// something happened to since the last checkpoint.
    pub fn map_memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.spaces.values().map(|space| space.memory_bytes() as u64).sum()
    }

    /// Counters.
    pub fn stats(&self) -> StoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = StoreStats {
            blocks_written: get(&self.counters.blocks_written),
            bytes_written: get(&self.counters.bytes_written),
            blocks_read: get(&self.counters.blocks_read),
            bytes_read: get(&self.counters.bytes_read),
            syncs: get(&self.counters.syncs),
            ignored_frees: get(&self.counters.ignored_frees),
            ..StoreStats::default()
        };
        let volumes = self.all_volumes();
        let state = self.state.lock();
        stats.checkpoint = state.durable_number;
        for volume in volumes {
            stats.direct_volumes += u64::from(volume.single.is_direct());
            let Some(space) = state.spaces.get(&volume.id) else {
                continue;
            };
            let sums = space.sums();
            let sector = SECTOR_BYTES as u64;
            let (file_bytes, used_bytes) = (volume.length(), sums.live_sectors * sector);
            let mapped = sums.segments * u64::from(self.segment_sectors) * sector;
            // The last segment may be longer than the file.
            let beyond = mapped.saturating_sub(file_bytes);
            let waiting_bytes = mapped - used_bytes - sums.free_sectors * sector;
            let one = VolumeStats {
                file_bytes,
                used_bytes,
                free_bytes: (sums.free_sectors * sector).saturating_sub(beyond),
                waiting_bytes,
            };
            stats.total.file_bytes += one.file_bytes;
            stats.total.used_bytes += one.used_bytes;
            stats.total.free_bytes += one.free_bytes;
            stats.total.waiting_bytes += one.waiting_bytes;
            stats.volumes.push((volume.id, one));
        }
        stats
    }
}
