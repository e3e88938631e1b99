//! Walking the trees of a damaged store.
//!
//! The walk knows the range of keys of each page from the separators above it. A page that cannot be read, or is not
//! what the page above says, is a gap; nothing else is skipped. It goes the same way twice: first to learn the gaps,
//! then for the rows.

use super::find::{FoundLeaf, FoundLeaves};
use super::report::LostRange;
use crate::directory::RootAddress;
use crate::page::{CellValue, LARGE_CHUNK_BYTES, LargeRef, LeafImage, decode_inner};
use blocks::{BlockKind, SalvageReader, VolumeId};
use engine::{KEY_BYTES_MAX, TableId, VALUE_BYTES_MAX};
use std::collections::VecDeque;
use std::ops::Range;

/// Where a tree begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Root {
    NoRows,
    At(RootAddress),
    /// Nothing says where.
    Unknown,
}

/// A tree of the damaged store.
#[derive(Clone, Debug)]
pub(super) struct SalvagedTree {
    pub(super) owner: TableId,
    pub(super) volume: VolumeId,
    pub(super) root: Root,
}

/// Keys from `low`, inclusive, to `high`, exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySpan {
    pub(super) low: Vec<u8>,
    pub(super) high: Option<Vec<u8>>,
}

impl KeySpan {
    fn all() -> Self {
        Self {
            low: Vec::new(),
            high: None,
        }
    }

    /// The rows of a leaf that lie in it.
    pub(super) fn rows_of(&self, image: &LeafImage) -> Range<usize> {
        let end = self.high.as_ref().map_or(image.len(), |high| image.lower_bound(high));
        image.lower_bound(&self.low).min(end)..end
    }
}

/// A range of keys whose page cannot be read.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    pub(super) owner: TableId,
    pub(super) span: KeySpan,
    /// The page's.
    pub(super) level: u8,
}

enum WalkPiece {
    Leaf(LeafImage, KeySpan),
    Gap(Gap),
}

/// The pieces of a tree in the order of their keys.
struct SalvageWalk<'s> {
    reader: &'s SalvageReader,
    owner: TableId,
    volume: VolumeId,
    /// What is to be visited, the next one last.
    left: Vec<(RootAddress, KeySpan)>,
    is_unknown: bool,
}

impl<'s> SalvageWalk<'s> {
    fn new(reader: &'s SalvageReader, tree: &SalvagedTree) -> Self {
        let left = match tree.root {
            Root::At(root) => vec![(root, KeySpan::all())],
            Root::NoRows | Root::Unknown => Vec::new(),
        };
        Self {
            reader,
            owner: tree.owner,
            volume: tree.volume,
            left,
            is_unknown: matches!(tree.root, Root::Unknown),
        }
    }

    /// Puts a page's children on the list; false when it cannot be read.
    fn enter(&mut self, at: RootAddress, span: &KeySpan) -> bool {
        let read = self
            .reader
            .read(self.volume, &at.address, self.owner.0, BlockKind::Inner);
        let Some(page) = read.ok().and_then(|raw| decode_inner(&raw).ok()) else {
            return false;
        };
        if page.level != at.level {
            return false;
        }
        // From the right to the left. Separators rise; those outside of the span part nothing.
        let mut high = span.high.clone();
        for (index, address) in page.children.into_iter().enumerate().rev() {
            let separator = index.checked_sub(1).map(|index| page.separators.get(index).to_vec());
            let low = separator
                .filter(|low| *low > span.low)
                .unwrap_or_else(|| span.low.clone());
            if high.as_ref().is_none_or(|high| low < *high) {
                let level = at.level - 1;
                let child = KeySpan {
                    low: low.clone(),
                    high: high.replace(low),
                };
                self.left.push((RootAddress { address, level }, child));
            }
        }
        true
    }
}

impl Iterator for SalvageWalk<'_> {
    type Item = WalkPiece;

    fn next(&mut self) -> Option<WalkPiece> {
        let gap = |owner, span, level| Some(WalkPiece::Gap(Gap { owner, span, level }));
        if std::mem::take(&mut self.is_unknown) {
            return gap(self.owner, KeySpan::all(), 1);
        }
        loop {
            let (at, span) = self.left.pop()?;
            if at.level > 0 {
                if !self.enter(at, &span) {
                    return gap(self.owner, span, at.level);
                }
                continue;
            }
            let read = self
                .reader
                .read(self.volume, &at.address, self.owner.0, BlockKind::Leaf);
            return match read.ok().and_then(|raw| LeafImage::decode(&raw).ok()) {
                Some(image) => Some(WalkPiece::Leaf(image, span)),
                None => gap(self.owner, span, 0),
            };
        }
    }
}

/// What of a tree cannot be read, by rising keys.
pub(super) fn gaps(reader: &SalvageReader, tree: &SalvagedTree) -> Vec<Gap> {
    let gaps = SalvageWalk::new(reader, tree).filter_map(|piece| match piece {
        WalkPiece::Leaf(..) => None,
        WalkPiece::Gap(gap) => Some(gap),
    });
    gaps.collect()
}

/// The rows of a tree by rising keys, gaps filled with what was found for them.
pub(super) struct SalvagedRows<'s> {
    reader: &'s SalvageReader,
    owner: TableId,
    volume: VolumeId,
    walk: SalvageWalk<'s>,
    found: &'s FoundLeaves,
    /// Leaves that fill the gap at hand, and what of them lies in it.
    filling: VecDeque<(FoundLeaf, Gap)>,
    /// The checkpoint of the leaf at hand, when it was found in place of a leaf that cannot be read.
    replaced: Option<u64>,
    leaf: Option<(LeafImage, Range<usize>)>,
    last: Option<Vec<u8>>,
    ranges: Vec<LostRange>,
    /// Rows given up because their values are gone.
    pub(super) values_lost: u64,
}

impl<'s> SalvagedRows<'s> {
    pub(super) fn new(reader: &'s SalvageReader, tree: &SalvagedTree, found: &'s FoundLeaves) -> Self {
        Self {
            reader,
            owner: tree.owner,
            volume: tree.volume,
            walk: SalvageWalk::new(reader, tree),
            found,
            filling: VecDeque::new(),
            replaced: None,
            leaf: None,
            last: None,
            ranges: Vec::new(),
            values_lost: 0,
        }
    }

    /// The gaps that were met, after the last row.
    pub(super) fn into_ranges(self) -> Vec<LostRange> {
        self.ranges
    }

    /// For the row that came last: the checkpoint of its leaf, when that stands in for one that cannot be read.
    pub(super) fn replaced(&self) -> Option<u64> {
        self.replaced
    }

    /// Goes to the next leaf; false at the end.
    fn next_leaf(&mut self) -> bool {
        self.replaced = None;
        if let Some((leaf, gap)) = self.filling.pop_front() {
            self.replaced = (gap.level == 0).then_some(leaf.checkpoint);
            let read = self.reader.read(leaf.volume, &leaf.addr, self.owner.0, BlockKind::Leaf);
            if let Some(image) = read.ok().and_then(|raw| LeafImage::decode(&raw).ok()) {
                let rows = gap.span.rows_of(&image);
                self.leaf = Some((image, rows));
            }
            return true;
        }
        match self.walk.next() {
            None => false,
            Some(WalkPiece::Leaf(image, span)) => {
                let rows = span.rows_of(&image);
                self.leaf = Some((image, rows));
                true
            }
            Some(WalkPiece::Gap(gap)) => {
                let leaves = self.found.leaves_of(&gap);
                self.ranges.push(LostRange {
                    low: gap.span.low.clone(),
                    high: gap.span.high.clone(),
                    level: gap.level,
                    leaves_found: leaves.len() as u64,
                    oldest_checkpoint: leaves.iter().map(|leaf| leaf.checkpoint).min(),
                });
                self.filling = leaves.iter().map(|leaf| (leaf.clone(), gap.clone())).collect();
                true
            }
        }
    }

    fn large(&self, large: LargeRef<'_>) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        for address in large.addresses() {
            let expected = (large.total_bytes() - value.len()).min(LARGE_CHUNK_BYTES);
            let chunk = self.reader.read(self.volume, &address, self.owner.0, BlockKind::Large);
            value.extend(chunk.ok().filter(|chunk| chunk.len() == expected)?);
        }
        Some(value)
    }
}

impl Iterator for SalvagedRows<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((image, rows)) = &mut self.leaf else {
                if !self.next_leaf() {
                    return None;
                }
                continue;
            };
            let Some(index) = rows.next() else {
                self.leaf = None;
                continue;
            };
            let (key, value) = image.row(index);
            let key = key.to_vec();
            let value = match value {
                CellValue::Inline(place) => Some(image.data()[place].to_vec()),
                CellValue::Large(large) => {
                    let cell = large.cell().to_vec();
                    LargeRef::from_cell(&cell).and_then(|large| self.large(large))
                }
            };
            let fits = |value: &Vec<u8>| key.len() <= KEY_BYTES_MAX && value.len() <= VALUE_BYTES_MAX;
            let Some(value) = value.filter(fits) else {
                self.values_lost += 1;
                continue;
            };
            // Spans follow each other, so this holds for every leaf in order.
            if self.last.as_ref().is_some_and(|last| *last >= key) {
                continue;
            }
            self.last = Some(key.clone());
            return Some((key, value));
        }
    }
}
