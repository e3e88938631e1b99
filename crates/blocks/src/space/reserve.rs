//! Room for writers: runs of sectors in one segment, and whole segments in a row for a block that is longer.

use super::SpaceMap;
use std::ops::Range;

/// The file grows freely while less than one part in so many is free.
const GROWTH_SHARE: u64 = 20;

impl SpaceMap {
    /// The next writer best goes on at `sector`; `None`: anywhere.
    pub fn resume_at(&mut self, sector: Option<u64>) {
        self.resume_at = sector;
    }

    /// Reserves a run of `min` to `want` sectors, right after `after` if that is free, else where there is much room.
    /// Without `after` a new writer goes on where the last one ended: what is left there is often too short to be
    /// chosen for itself, and would stay free as long as the file grows.
    pub fn reserve(&mut self, min: u32, want: u32, after: Option<u64>) -> Range<u64> {
        debug_assert!(0 < min && min <= want && want <= self.segment_sectors);
        let mut found = self.find_hole(min, want, after);
        if found.is_none() && self.forget_full() {
            found = self.find_hole(min, want, after);
        }
        let (number, hole) = found.unwrap_or_else(|| {
            let number = self.segments().len();
            self.grow_to(number + 1);
            (number, 0..want as usize)
        });
        let hole = hole.start..hole.end.min(hole.start + want as usize);
        let start = number as u64 * u64::from(self.segment_sectors) + hole.start as u64;
        let run = start..start + hole.len() as u64;
        debug_assert!(run.end - run.start >= u64::from(min));
        self.take(std::iter::once((number, hole)), false);
        run
    }

    fn find_hole(&mut self, min: u32, want: u32, after: Option<u64>) -> Option<(usize, Range<usize>)> {
        let good = min.max(want / 4);
        if let Some(after) = after {
            if let Some(found) = self.hole_at(after, min) {
                return Some(found);
            }
            let number = (after / u64::from(self.segment_sectors)) as usize;
            if self.is_usable(number) && self.segments()[number].hole_max() >= good {
                return Some(self.longest_hole_in(number));
            }
        }
        let is_roomy = self.is_roomy();
        if !is_roomy && after.is_none() {
            // Once only, whether it will do or not.
            let resumed = self.resume_at.take();
            if let Some(found) = resumed.and_then(|sector| self.hole_at(sector, min)) {
                return Some(found);
            }
        }
        let hole_of = |number: u32| self.segments()[number as usize].hole_max();
        let lowest = is_roomy.then(|| self.index.lowest(good, hole_of)).flatten();
        let found = lowest.or_else(|| self.index.emptiest(good, hole_of)).or_else(|| {
            let sectors = self.segments().len() as u64 * u64::from(self.segment_sectors);
            let is_to_grow = !self.is_full() && self.sums().free_sectors * GROWTH_SHARE < sectors;
            // What is nearly full stays full, and what is nearly empty becomes so.
            (!is_to_grow).then(|| self.index.fullest(min, hole_of)).flatten()
        });
        found.map(|number| self.longest_hole_in(number as usize))
    }

    /// What is free from `sector` on in its segment, if that is at least `min` sectors and may be handed out.
    fn hole_at(&self, sector: u64, min: u32) -> Option<(usize, Range<usize>)> {
        let length = u64::from(self.segment_sectors);
        let (number, start) = ((sector / length) as usize, (sector % length) as usize);
        if !self.is_usable(number) {
            return None;
        }
        let hole = self.segments()[number].hole_from(start);
        (hole.len() >= min as usize).then_some((number, hole))
    }

    fn longest_hole_in(&self, number: usize) -> (usize, Range<usize>) {
        (number, self.segments()[number].longest_hole())
    }

    /// Half of the file is free: it should get shorter.
    pub(super) fn is_roomy(&self) -> bool {
        self.sums().free_sectors * 2 > self.segments().len() as u64 * u64::from(self.segment_sectors)
    }

    /// Reserves the sectors of a block that is longer than a segment.
    pub fn reserve_long(&mut self, sectors: u32) -> u64 {
        debug_assert!(sectors > self.segment_sectors);
        let count = sectors.div_ceil(self.segment_sectors);
        let mut row = self.index.row(count);
        if row.is_none() && self.forget_full() {
            row = self.index.row(count);
        }
        let first = row.unwrap_or_else(|| {
            // What is free at the end is the start of it.
            let segments = self.segments().len() as u32;
            let first = self.index.last_row(segments).unwrap_or(segments);
            self.grow_to((first + count) as usize);
            first
        });
        let sector = u64::from(first) * u64::from(self.segment_sectors);
        let pieces = self.find(sector, sectors).expect("free segments in a row");
        self.take(pieces, true);
        sector
    }
}
