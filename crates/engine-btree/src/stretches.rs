//! What a long walk reads of the file at once: stretches in which its next leaves lie side by side. One call of the
//! system costs less than calls for each leaf do, and the system reads on behind it.

use crate::raw_leaf::HeldStretch;
use blocks::{BlockAddr, SECTOR_BYTES, VolumeId};
use engine::Direction;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Most bytes of one: what was copied from the system's cache shall be in the processor's when it is opened.
pub(crate) const STRETCH_BYTES_MAX: usize = 128 << 10;
/// A shorter one is left to the system, which can have many such under way at once.
pub(crate) const STRETCH_BYTES_MIN: usize = 64 << 10;
/// Stretches in memory: the one that the walk is in, and the one behind.
const HELD_MAX: usize = 2;

/// The stretches of one walk, in its order.
#[derive(Default)]
pub(crate) struct Stretches {
    unread: VecDeque<Range<u64>>,
    /// Somebody reads this one.
    reading: Option<Range<u64>>,
    held: VecDeque<Arc<HeldStretch>>,
    /// Memory of one that the walk has passed.
    spent: Option<HeldStretch>,
}

fn contains(sectors: &Range<u64>, block: &BlockAddr) -> bool {
    sectors.start <= block.sector() && block.end() <= sectors.end
}

impl Stretches {
    /// Adds those of leaves that come behind all others, each of at most `bytes_max`. Answers what is left to the
    /// system.
    pub(crate) fn add(
        &mut self,
        blocks: impl Iterator<Item = BlockAddr>,
        direction: Direction,
        bytes_max: usize,
    ) -> Vec<Range<u64>> {
        let (long, short): (Vec<_>, Vec<_>) = side_by_side(blocks, (bytes_max / SECTOR_BYTES) as u64)
            .into_iter()
            .partition(|sectors| (sectors.end - sectors.start) as usize * SECTOR_BYTES >= STRETCH_BYTES_MIN);
        match direction {
            Direction::Forward => self.unread.extend(long),
            Direction::Reverse => self.unread.extend(long.into_iter().rev()),
        }
        short
    }

    /// The walk has come to a block: those before its own are passed. Whether its own is in memory.
    pub(crate) fn enter(&mut self, block: &BlockAddr) -> bool {
        let at = self.held.iter().position(|stretch| contains(stretch.sectors(), block));
        for _ in 0..at.unwrap_or(0) {
            self.pass();
        }
        at.is_some()
    }

    fn pass(&mut self) {
        if let Some(Ok(stretch)) = self.held.pop_front().map(Arc::try_unwrap) {
            self.spent = Some(stretch);
        }
    }

    /// Forgets those in which no leaf is `wanted`.
    pub(crate) fn keep(&mut self, wanted: &[BlockAddr]) {
        let is_wanted = |sectors: &Range<u64>| wanted.iter().any(|block| contains(sectors, block));
        self.unread.retain(is_wanted);
        for stretch in std::mem::take(&mut self.held) {
            if is_wanted(stretch.sectors()) {
                self.held.push_back(stretch);
            } else if let Ok(stretch) = Arc::try_unwrap(stretch) {
                self.spent = Some(stretch);
            }
        }
    }

    /// The next one for who reads it, with memory for it, when it is time.
    pub(crate) fn begin(&mut self) -> Option<(Range<u64>, Vec<u8>)> {
        if self.reading.is_some() || self.held.len() >= HELD_MAX {
            return None;
        }
        let sectors = self.unread.pop_front()?;
        self.reading = Some(sectors.clone());
        let buffer = self.spent.take().map(HeldStretch::into_buffer);
        Some((sectors, buffer.unwrap_or_default()))
    }

    /// As [`Stretches::begin`], for the walk that has come to a block of one: those before it are passed.
    pub(crate) fn begin_at(&mut self, block: &BlockAddr) -> Option<(Range<u64>, Vec<u8>)> {
        let at = self.unread.iter().position(|sectors| contains(sectors, block))?;
        if self.reading.is_some() {
            return None;
        }
        self.unread.drain(..at);
        if self.held.len() >= HELD_MAX {
            self.pass();
        }
        self.begin()
    }

    /// Whether there is one to read now.
    pub(crate) fn is_time(&self) -> bool {
        self.reading.is_none() && self.held.len() < HELD_MAX && !self.unread.is_empty()
    }

    /// The one that somebody read has come, or could not be read.
    pub(crate) fn end(&mut self, stretch: Option<HeldStretch>) {
        self.reading = None;
        self.held.extend(stretch.map(Arc::new));
    }

    /// The one in memory that has a block.
    pub(crate) fn holding(&self, volume: VolumeId, block: &BlockAddr) -> Option<Arc<HeldStretch>> {
        let held = self.held.iter().find(|stretch| stretch.block(volume, block).is_some());
        held.cloned()
    }

    /// Somebody reads the one that has a block.
    pub(crate) fn is_reading(&self, block: &BlockAddr) -> bool {
        self.reading.as_ref().is_some_and(|sectors| contains(sectors, block))
    }

    /// A block is in one, or will be.
    pub(crate) fn knows(&self, volume: VolumeId, block: &BlockAddr) -> bool {
        self.is_coming(block) || self.held.iter().any(|stretch| stretch.block(volume, block).is_some())
    }

    /// The one that has a block is yet to be read.
    pub(crate) fn is_coming(&self, block: &BlockAddr) -> bool {
        self.is_reading(block) || self.unread.iter().any(|sectors| contains(sectors, block))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self {
            // Whoever reads it ends it.
            reading: self.reading.take(),
            ..Self::default()
        };
    }
}

/// The sectors of blocks, those near each other in one piece, of `sectors_max` at most unless a block is longer.
pub(crate) fn side_by_side(blocks: impl Iterator<Item = BlockAddr>, sectors_max: u64) -> Vec<Range<u64>> {
    /// Sectors between two blocks that are rather read than left out.
    const GAP_MAX: u64 = 64;
    let mut stretches: Vec<Range<u64>> = Vec::with_capacity(1);
    let mut sectors: Vec<Range<u64>> = blocks.map(|block| block.sector()..block.end()).collect();
    sectors.sort_unstable_by_key(|range| range.start);
    for range in sectors {
        match stretches.last_mut() {
            Some(last) if range.start <= last.end + GAP_MAX && range.end <= last.start + sectors_max => {
                last.end = last.end.max(range.end);
            }
            _ => stretches.push(range),
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::block;

    #[test]
    fn blocks_near_each_other_are_one_stretch() {
        let blocks = [(1000, 16), (100, 17), (117, 10), (191, 5), (261, 1), (900, 20)];
        let blocks = blocks.map(|(sector, sectors)| block(sector, sectors));
        assert_eq!((blocks[1].sector(), blocks[1].end()), (100, 117));
        // Between 196 and 261 there is one sector too many.
        assert_eq!(
            side_by_side(blocks.into_iter(), u64::MAX / 2),
            [100..196, 261..262, 900..920, 1000..1016]
        );
        assert_eq!(
            side_by_side(blocks.into_iter(), 26),
            [100..117, 117..127, 191..196, 261..262, 900..920, 1000..1016]
        );
        assert_eq!(side_by_side(std::iter::empty(), 1), []);
    }
}
