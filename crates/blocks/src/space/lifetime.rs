//! What becomes of blocks: from one checkpoint to the next, and on disk.

use super::SpaceMap;
use super::segment::Segment;
use crate::store::Referenced;

/// What a new block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// The running checkpoint; while none runs, the next.
    Next,
    /// The checkpoint after the running one.
    Later,
    /// The store's own: not in the map.
    Own,
}

/// How far the running checkpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// None runs.
    Idle,
    /// Its blocks are being written and freed.
    Running,
    /// Its map is fixed.
    Settling,
}

impl SpaceMap {
    /// Marks reserved sectors as a block.
    pub fn mark(&mut self, sector: u64, sectors: u32, mark: Mark) {
        let as_what = match mark {
            Mark::Own => return,
            Mark::Next => Segment::mark_next,
            Mark::Later => Segment::mark_later,
        };
        let pieces = self.find(sector, sectors).expect("the sectors are reserved");
        for (number, range) in pieces {
            self.change(number, |segment| {
                debug_assert!(
                    segment.is_reserved(range.clone()),
                    "a block lies where its writer has reserved"
                );
                as_what(segment, range);
            });
        }
    }

    /// Takes back a block that was never written.
    pub fn void(&mut self, sector: u64, sectors: u32, mark: Mark) {
        let pieces = self.find(sector, sectors).filter(|_| mark != Mark::Own);
        for (number, range) in pieces.into_iter().flatten() {
            self.change(number, |segment| segment.unmark(range));
        }
        self.release(sector, sectors, false);
    }

    /// The running checkpoint's map on disk shall not have a block of its own, which stays in use. False when the
    /// sectors are not those of such a block.
    pub fn exclude(&mut self, sector: u64, sectors: u32) -> bool {
        let Some(pieces) = self.find_where(sector, sectors, Segment::is_in_map) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| segment.exclude(range));
        }
        true
    }

    /// Whether the running checkpoint's map on disk will have a block.
    pub fn is_recorded(&self, sector: u64, sectors: u32) -> bool {
        self.find_where(sector, sectors, Segment::is_recorded).is_some()
    }

    /// Gives back a block that was kept for the running checkpoint, which has come not to refer to it after all. False
    /// when it was not kept.
    pub fn forsake(&mut self, sector: u64, sectors: u32) -> bool {
        let Some(pieces) = self.find_where(sector, sectors, Segment::is_dropped) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| segment.drop_now(range));
            self.end_evacuation_if_empty(number);
        }
        true
    }

    /// Moves a block from the running checkpoint to the one after it.
    pub fn postpone(&mut self, sector: u64, sectors: u32) -> bool {
        let Some(pieces) = self.find_where(sector, sectors, Segment::is_new) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| segment.postpone(range));
        }
        true
    }

    /// See [`crate::BlockStore::free`]; false when the sectors are not one checkpoint's blocks.
    pub fn free(&mut self, sector: u64, sectors: u32, referenced: Referenced, phase: Phase) -> bool {
        let running_has_it = match phase {
            Phase::Idle => false,
            Phase::Running => referenced == Referenced::ByRunningCheckpoint,
            Phase::Settling => true,
        };
        // What is for later the running checkpoint has not got.
        let later = self.find_where(sector, sectors, Segment::is_later);
        let waits = later.is_none() && running_has_it;
        let Some(pieces) = later.or_else(|| self.find_where(sector, sectors, Segment::is_kept)) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| {
                if waits {
                    segment.drop_later(range);
                } else {
                    segment.drop_now(range);
                }
            });
            self.end_evacuation_if_empty(number);
        }
        true
    }

    /// The running checkpoint is durable.
    pub fn settle(&mut self, withhold: bool) {
        self.change_touched(|segment| segment.settle(withhold));
    }

    /// The running checkpoint will never be durable: its blocks belong to the next one, but for those that it alone
    /// referred to.
    pub fn abandon(&mut self) {
        self.change_touched(Segment::abandon);
    }

    /// No pin is left.
    pub fn release_withheld(&mut self) {
        self.change_touched(Segment::release_withheld);
    }

    fn change_touched(&mut self, work: impl Fn(&mut Segment)) {
        for number in self.touched().clone() {
            self.change(number as usize, &work);
            self.end_evacuation_if_empty(number as usize);
        }
    }

    /// Segments of which something else is to be recorded than for the durable checkpoint.
    pub fn changed_segments(&self) -> impl Iterator<Item = u32> + '_ {
        let is_changed = |number: &u32| self.segments()[*number as usize].is_changed();
        self.touched().iter().copied().filter(is_changed)
    }

    /// Appends what the running checkpoint records of a segment, little endian; zeros past the last one.
    pub fn encode_map(&self, number: u32, out: &mut Vec<u8>) {
        match self.segments().get(number as usize) {
            Some(segment) => out.extend(segment.recorded_words().flat_map(u64::to_le_bytes)),
            None => out.resize(out.len() + self.segment_sectors as usize / 8, 0),
        }
    }

    /// Takes over the durable map of a segment, at opening. False when it marks sectors taken already.
    pub fn decode_map(&mut self, number: u32, bytes: &[u8]) -> bool {
        if bytes.iter().all(|byte| *byte == 0) {
            return true;
        }
        self.grow_to(number as usize + 1);
        self.change(number as usize, |segment| segment.load(bytes))
    }

    /// Whether a sector belongs to a block that has not been given back.
    pub fn is_in_use(&self, sector: u64) -> bool {
        let length = u64::from(self.segment_sectors);
        let segment = self.segments().get((sector / length) as usize);
        segment.is_some_and(|segment| segment.is_in_use((sector % length) as usize))
    }
}
