//! Comparing what is marked as used with what is used.

use crate::bits;
use crate::space::SpaceMap;
use crate::{BlockAddr, BlockStore, VolumeId};
use std::collections::BTreeMap;

impl BlockStore {
    /// Compares the blocks the owner refers to, those of the running or next checkpoint and of the one after, with what
    /// is marked as used: a sentence for each overlap, each block not marked, each run of sectors marked for nothing,
    /// each block of the store's own that is marked as the owner's. Nobody may write or free meanwhile. Takes a bit for
    /// each sector.
    pub fn verify(&self, referenced: impl Iterator<Item = (VolumeId, BlockAddr)>) -> Vec<String> {
        self.compare(SpaceMap::live_words, referenced)
    }

    /// As [`BlockStore::verify`], with the blocks that the durable checkpoint refers to and what it has recorded as
    /// used. No checkpoint may become durable meanwhile; writing and freeing go on.
    pub fn verify_durable(&self, referenced: impl Iterator<Item = (VolumeId, BlockAddr)>) -> Vec<String> {
        self.compare(SpaceMap::durable_words, referenced)
    }

    fn compare(
        &self,
        words_of: fn(&SpaceMap) -> Vec<u64>,
        referenced: impl Iterator<Item = (VolumeId, BlockAddr)>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let marked: BTreeMap<VolumeId, Vec<u64>> = {
            let state = self.state.lock();
            state.spaces.iter().map(|(id, space)| (*id, words_of(space))).collect()
        };
        // Marked and not yet referred to.
        let mut left = marked.clone();
        for (volume, addr) in referenced {
            let (Some(left), Some(marked)) = (left.get_mut(&volume), marked.get(&volume)) else {
                problems.push(format!("{addr:?} lies in {volume:?}, which does not exist"));
                continue;
            };
            let range = addr.sector() as usize..addr.end() as usize;
            if range.end > marked.len() * 64 {
                problems.push(format!("{volume:?}: {addr:?} lies past the end"));
                continue;
            }
            if !bits::all(marked, range.clone()) {
                problems.push(format!("{volume:?}: {addr:?} is not marked as used"));
            } else if !bits::all(left, range.clone()) {
                problems.push(format!("{volume:?}: {addr:?} overlaps another block"));
            }
            bits::clear(left, range);
        }
        for (volume, words) in &left {
            for run in bits::runs(words, true) {
                problems.push(format!(
                    "{volume:?}: sectors {} to {} are marked as used for nothing",
                    run.start,
                    run.end - 1
                ));
            }
        }
        if let Some(main) = marked.get(&VolumeId::MAIN) {
            for addr in self.checkpoint.lock().blocks() {
                let range = addr.sector() as usize..addr.end() as usize;
                if range.end <= main.len() * 64 && bits::any(main, range) {
                    problems.push(format!("{addr:?} of the map overlaps a block"));
                }
            }
        }
        problems
    }
}
