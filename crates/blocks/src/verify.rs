//! Comparing what is marked as used with what is used.

use crate::bits;
use crate::{BlockAddr, BlockStore, VolumeId};
use std::collections::BTreeMap;

impl BlockStore {
    /// Compares the blocks the owner refers to, those of the running or next checkpoint and of the one after, with what is
    /// marked as used: a sentence for each overlap, each block not marked, each run of sectors marked for nothing, each block of
    /// the store's own that is marked as the owner's. Nobody may write or free meanwhile. Takes a bit for each sector.
    pub fn verify(&self, referenced: impl Iterator<Item = (VolumeId, BlockAddr)>) -> Vec<String> {
        let mut problems = Vec::new();
        // Marked and not yet referred to.
        let mut left: BTreeMap<VolumeId, Vec<u64>> = BTreeMap::new();
        let mut marked = left.clone();
        for (id, space) in &self.state.lock().spaces {
            left.insert(*id, space.live_words().collect());
        }
        marked.extend(left.iter().map(|(id, words)| (*id, words.clone())));
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
