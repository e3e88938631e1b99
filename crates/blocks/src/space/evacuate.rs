//! Which segments are to be emptied, so that files become shorter and writers find long holes.

use super::SpaceMap;
use crate::bits;
use crate::limits::TAIL_SHARE;
use std::ops::Range;

/// A file that could be shorter by so many segments is left as it is in the background.
const SLACK_SEGMENTS: usize = 2;

impl SpaceMap {
    /// Whether the segment of a block that is no longer than one is to be emptied.
    pub fn is_evacuating(&self, sector: u64) -> bool {
        let number = sector / u64::from(self.segment_sectors);
        self.has_evacuation() && self.evacuating().contains(&(number as u32))
    }

    /// Whether a block shall move. One longer than a segment moves only to where the file gets shorter for it;
    /// elsewhere it would lie as it lies now, with what its last segment has left, and would be moved for ever. Its
    /// segments are then not emptied.
    pub fn wants_move(&mut self, sector: u64, sectors: u32) -> bool {
        if sectors <= self.segment_sectors || !self.has_evacuation() {
            return self.is_evacuating(sector);
        }
        let Some(pieces) = self.find(sector, sectors) else {
            return false;
        };
        if !pieces.clone().any(|(number, _)| self.segments()[number].evacuating) {
            return false;
        }
        let first = (sector / u64::from(self.segment_sectors)) as u32;
        if self.index.has_row_below(pieces.clone().count() as u32, first) {
            return true;
        }
        pieces.for_each(|(number, _)| {
            self.change(number, |segment| {
                segment.evacuating = false;
                segment.long = true;
            });
        });
        false
    }

    pub fn has_evacuation(&self) -> bool {
        !self.evacuating().is_empty()
    }

    /// The segments to be emptied.
    pub fn evacuating_segments(&self) -> impl Iterator<Item = u32> + '_ {
        self.evacuating().iter().copied()
    }

    /// The runs of sectors in a segment whose blocks have to go before it is empty, counted from its start.
    pub fn runs_to_move(&self, number: u32) -> Vec<Range<usize>> {
        let segment = self.segments().get(number as usize);
        let Some(segment) = segment.filter(|segment| segment.evacuating) else {
            return Vec::new();
        };
        let words: Vec<u64> = segment.in_use_words().collect();
        bits::runs(&words, true).collect()
    }

    /// A segment has a block that cannot be moved: it is used again, and not chosen before an eighth of what is in it
    /// has gone.
    pub fn give_up_evacuation(&mut self, number: u32) {
        if (number as usize) < self.segments().len() {
            self.change(number as usize, |segment| {
                segment.evacuating = false;
                segment.stuck = segment.live();
            });
        }
    }

    /// Chooses anew which segments to empty: all that shortens the file, or what costs no more than `allowance` sectors
    /// to be moved, with about `tail` segments at the end. Those sectors are the result.
    pub fn plan_evacuation(&mut self, allowance: Option<u64>, tail: usize) -> u64 {
        self.forget_evacuation();
        let Some(aim) = self.length_to_aim_at(allowance.is_none()) else {
            return 0;
        };
        let mut chosen = self.tail_to_empty(aim, allowance.map(|_| tail));
        chosen.extend(self.sparse_to_empty(aim, allowance.is_none()));
        let moved = self.empty(&chosen, allowance);
        self.leave_room(moved);
        moved
    }

    fn forget_evacuation(&mut self) {
        for number in self.evacuating().clone() {
            self.change(number as usize, |segment| segment.evacuating = false);
        }
    }

    /// How many segments the file could have, with some room to work in; `None` where it is not worth the while.
    fn length_to_aim_at(&self, compact: bool) -> Option<usize> {
        let (sums, length) = (self.sums(), u64::from(self.segment_sectors));
        let free_share = if compact { 20 } else { 8 };
        if sums.segments < 2 || sums.free_sectors * free_share < sums.segments * length {
            return None;
        }
        let aim = sums.live_sectors + sums.live_sectors / if compact { 32 } else { 6 } + length;
        let aim = usize::try_from(aim.div_ceil(length)).unwrap_or(usize::MAX);
        (compact || self.segments().len() > aim + SLACK_SEGMENTS).then_some(aim)
    }

    /// Segments beyond the aim, from the end on. They are not emptier than others: about `few` at a time.
    fn tail_to_empty(&self, aim: usize, few: Option<usize>) -> Vec<usize> {
        let segments = self.segments();
        let few = few.map_or(usize::MAX, |few| few + segments.len() / TAIL_SHARE);
        let tail = (aim.min(segments.len())..segments.len()).rev();
        tail.filter(|number| segments[*number].stuck == 0).take(few).collect()
    }

    /// Segments with little in them, the emptiest first.
    fn sparse_to_empty(&self, aim: usize, compact: bool) -> Vec<usize> {
        let (segments, length) = (self.segments(), u64::from(self.segment_sectors));
        // Half empty ones always pay; others when much is free, and yet perhaps nowhere enough for a long block.
        let is_free = self.sums().free_sectors * 7 > segments.len() as u64 * length;
        let quarters = if is_free { 3 } else { 2 };
        // With half of it free, from the back to the front only: what is moved once is not moved again.
        let first = if !compact && self.is_roomy() { aim } else { 1 };
        let is_sparse = |number: &usize| {
            let segment = &segments[*number];
            let live = u64::from(segment.live());
            live > 0 && live * 4 < length * quarters && !segment.long && segment.stuck == 0
        };
        let mut sparse: Vec<usize> = (first..segments.len()).filter(is_sparse).collect();
        sparse.sort_by_key(|number| segments[*number].live());
        sparse
    }

    /// Marks as many of some segments, in their order, as there is room for what is in them, and returns that.
    fn empty(&mut self, chosen: &[usize], allowance: Option<u64>) -> u64 {
        let free = self.sums().free_sectors;
        // Room for the blocks to be moved must be found in what stays. Nothing is handed out in these segments
        // meanwhile: never so much that the file would grow for it.
        let (budget, room) = match allowance {
            None => (free, free),
            Some(allowance) => ((free / 2).min(allowance), free / 2),
        };
        let (mut moved, mut lost) = (0, 0);
        for number in chosen {
            let segment = &self.segments()[*number];
            if segment.evacuating {
                continue;
            }
            let (live, free) = (u64::from(segment.live()), u64::from(segment.free()));
            if moved + live > budget || moved + live + lost + free > room {
                break;
            }
            moved += live;
            lost += free;
            self.change(*number, |segment| segment.evacuating = true);
        }
        moved
    }

    /// Keeps the first free segments of those to be emptied for so many sectors that move, and a segment more: the
    /// holes elsewhere may be too short for them, and they would go to the end of the file again and again.
    fn leave_room(&mut self, moved: u64) {
        let length = u64::from(self.segment_sectors);
        let mut room = if moved == 0 { 0 } else { moved + length };
        for number in self.evacuating().clone() {
            if room == 0 {
                return;
            }
            if self.segments()[number as usize].free() == self.segment_sectors {
                self.change(number as usize, |segment| segment.evacuating = false);
                room = room.saturating_sub(length);
            }
        }
    }
}
