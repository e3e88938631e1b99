//! Pinned checkpoints, for copying the files of a store that goes on working.
//!
//! While a pin lives, what becomes free stays as it is, no file is cut, no volume is removed, and new superblocks go to
//! a file of their own: in the main volume the pinned one remains.

use crate::store::volume_file;
use crate::volume::Volume;
use crate::{BlockError, BlockStore, Result, SECTOR_BYTES};
use std::path::PathBuf;
use std::sync::Arc;

/// A durable checkpoint whose files stay fit for copying while this lives: see [`BlockStore::pin`].
pub struct PinnedCheckpoint {
    store: Arc<BlockStore>,
    number: u64,
    seq: u64,
    files: Vec<(PathBuf, u64)>,
}

impl PinnedCheckpoint {
    /// Number of the checkpoint; 0 when nothing is durable yet.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What was passed to [`BlockStore::commit_checkpoint`].
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The files, relative to the store's directory, and how many of their bytes to copy. A directory that holds these
    /// copies (and nothing else of a store) is a store with that checkpoint. Empty when nothing is durable yet.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.files.clone()
    }
}

impl BlockStore {
    /// Pins the durable checkpoint for a hot copy: while it lives its blocks are not reused and no file is made
    /// shorter. Waits for a superblock that is being written. While another pin lives, the checkpoint is that one's,
    /// and space comes back when the last goes. `Closed` after a failure, `OutOfSpace` or `Io` when the side file
    /// cannot be made or the files cannot be measured.
    pub fn pin(self: &Arc<Self>) -> Result<PinnedCheckpoint> {
        self.check_open()?;
        let mut superblocks = self.superblocks.lock();
        {
            let mut state = self.state.lock();
            if state.pins > 0 {
                state.pins += 1;
                return Ok(self.pinned(superblocks.pinned.clone()));
            }
        }
        self.prepare_pin(&mut superblocks)?;
        let (number, seq) = (superblocks.current.number, superblocks.current.seq);
        let ends: Vec<_> = {
            let volumes = self.all_volumes();
            let mut state = self.state.lock();
            state.pins += 1;
            let listed = |volume: &Arc<Volume>| number > 0 && state.durable_volumes.contains(&volume.id);
            let end = |volume: Arc<Volume>| Some((state.spaces.get(&volume.id)?.busy_end(), volume));
            volumes.into_iter().filter(listed).filter_map(end).collect()
        };
        let mut pinned = self.pinned((number, seq, Vec::new()));
        for (end, volume) in ends {
            let measured = volume.file.len().map_err(BlockError::io("measure", &volume.path));
            pinned
                .files
                .push((volume_file(&volume.name), measured?.min(end * SECTOR_BYTES as u64)));
        }
        superblocks.pinned = (number, seq, pinned.files.clone());
        Ok(pinned)
    }

    /// The guard of a pin that has been counted.
    fn pinned(self: &Arc<Self>, (number, seq, files): PinnedFiles) -> PinnedCheckpoint {
        PinnedCheckpoint {
            store: self.clone(),
            number,
            seq,
            files,
        }
    }
}

/// Number, position and files of a pinned checkpoint.
pub(crate) type PinnedFiles = (u64, u64, Vec<(PathBuf, u64)>);

impl Drop for PinnedCheckpoint {
    fn drop(&mut self) {
        let mut state = self.store.state.lock();
        state.pins -= 1;
        if state.pins == 0 {
            for space in state.spaces.values_mut() {
                space.release_withheld();
            }
        }
    }
}
