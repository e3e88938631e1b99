//! Finding leaves for ranges of keys whose pages cannot be read.
//!
//! A block says whose it is, where it was written and for which checkpoint; a leaf's rows say which keys it held.
//! Whether anything still refers to it they do not say; the block store's map of used sectors does, where it can be
//! read. Below a lost inner page exactly the leaves that the map marks are wanted. In the place of a lost leaf, or
//! without a map, the newest are taken first, and none that overlaps one that was taken: an older image of a leaf that
//! was split or written anew overlaps its successors. What remains in doubt without a map: a leaf of another time that
//! lies wholly between two others, and two images of one checkpoint, of which the one further back in the file is
//! taken.

use super::walk::Gap;
use crate::page::LeafImage;
use blocks::{BlockAddr, BlockKind, SalvageReader, SalvagedBlock, VolumeId};
use std::collections::{BTreeMap, HashMap};

/// A leaf that holds rows of a gap.
#[derive(Clone, Debug)]
pub(super) struct FoundLeaf {
    pub(super) volume: VolumeId,
    pub(super) addr: BlockAddr,
    pub(super) checkpoint: u64,
    /// Its first and last key in the gap.
    first: Vec<u8>,
    last: Vec<u8>,
}

/// What a pass over all files found.
#[derive(Default)]
pub(super) struct FoundLeaves {
    /// By the gap's owner and lowest key; by rising keys.
    leaves: HashMap<(u32, Vec<u8>), Vec<FoundLeaf>>,
    /// What there is of each owner, of any time.
    pub(super) owners: BTreeMap<u32, Seen>,
}

/// What a pass saw of an owner.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) leaves: u64,
    /// The newest checkpoint that a leaf was written for.
    pub(super) newest: u64,
}

impl FoundLeaves {
    /// Reads all files for the leaves of gaps, which do not overlap.
    pub(super) fn scan(reader: &SalvageReader, gaps: &[Gap]) -> Self {
        let mut by_owner: HashMap<u32, Vec<(&Gap, Vec<FoundLeaf>)>> = HashMap::new();
        for gap in gaps {
            by_owner.entry(gap.owner.0).or_default().push((gap, Vec::new()));
        }
        for gaps in by_owner.values_mut() {
            gaps.sort_by(|(a, _), (b, _)| a.span.low.cmp(&b.span.low));
        }
        let map = reader.map();
        let mut owners = BTreeMap::new();
        reader.scan(&mut |block| {
            if block.kind != BlockKind::Leaf {
                return;
            }
            let seen: &mut Seen = owners.entry(block.owner).or_default();
            seen.leaves += 1;
            seen.newest = seen.newest.max(block.checkpoint);
            if let Some(gaps) = by_owner.get_mut(&block.owner) {
                let is_used = map.as_ref().and_then(|map| map.is_used(block.volume, &block.addr));
                note(gaps, &block, is_used);
            }
        });
        owners.remove(&crate::directory::DIRECTORY.0);
        let mut leaves = HashMap::new();
        for (owner, gaps) in by_owner {
            for (gap, candidates) in gaps {
                leaves.insert((owner, gap.span.low.clone()), choose(candidates));
            }
        }
        Self { leaves, owners }
    }

    /// The leaves for a gap.
    pub(super) fn leaves_of(&self, gap: &Gap) -> &[FoundLeaf] {
        let key = (gap.owner.0, gap.span.low.clone());
        self.leaves.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// Adds a leaf to the gaps that it has rows of.
fn note(gaps: &mut [(&Gap, Vec<FoundLeaf>)], block: &SalvagedBlock, is_used: Option<bool>) {
    let Ok(image) = LeafImage::decode(&block.raw) else {
        return;
    };
    let Some(last) = image.len().checked_sub(1) else { return };
    let (first, last) = (image.key(0).to_vec(), image.key(last).to_vec());
    let start = gaps.partition_point(|(gap, _)| gap.span.high.as_ref().is_some_and(|high| *high <= first));
    for (gap, candidates) in gaps[start..].iter_mut().take_while(|(gap, _)| gap.span.low <= last) {
        let rows = gap.span.rows_of(&image);
        // What the map calls free is no leaf below a lost inner page.
        let is_outdated = gap.level > 0 && is_used == Some(false);
        if !rows.is_empty() && !is_outdated {
            candidates.push(FoundLeaf {
                volume: block.volume,
                addr: block.addr,
                checkpoint: block.checkpoint,
                first: image.key(rows.start).to_vec(),
                last: image.key(rows.end - 1).to_vec(),
            });
        }
    }
}

/// The newest without overlap, by rising keys.
fn choose(mut candidates: Vec<FoundLeaf>) -> Vec<FoundLeaf> {
    candidates.sort_by_key(|leaf| std::cmp::Reverse((leaf.checkpoint, leaf.addr.sector())));
    let mut taken: BTreeMap<Vec<u8>, FoundLeaf> = BTreeMap::new();
    for leaf in candidates {
        // Those taken do not overlap, so only the last one that begins before this one's end can reach into it.
        let before = taken.range::<Vec<u8>, _>(..=&leaf.last).next_back();
        if before.is_none_or(|(_, before)| before.last < leaf.first) {
            taken.insert(leaf.first.clone(), leaf);
        }
    }
    taken.into_values().collect()
}
