//! What each sector of a segment is.
//!
//! There are two maps of bits: `busy`, the sectors that must not be handed out, and `map`, those that the checkpoint to
//! become durable next refers to. While these are not the whole truth, [`Extra`] holds the rest; it exists for the
//! segments something happened to since the last durable checkpoint.
//!
//! Invariants, see [`Segment::check_invariants`]: `map`, `later`, `durable` and `withheld` are parts of `busy`; `map`
//! and `later` have nothing in common, so that no sector has two owners; `dropped` and `excluded` are parts of `map`;
//! `free`, `live` and `hole_max` are what counting finds. Busy and in none of these are the volume's head, the store's
//! own blocks, and what writers have reserved.

use crate::bits;
use std::cmp::Reverse;
use std::ops::Range;

#[derive(Clone)]
struct Extra {
    /// Sectors the last durable checkpoint refers to.
    durable: Box<[u64]>,
    /// Those that belong to the checkpoint after the running one.
    later: Box<[u64]>,
    /// Those of `map` that the checkpoint after the running one does not refer to.
    dropped: Box<[u64]>,
    /// Those of `map` that the running checkpoint does not refer to: on disk they are free.
    excluded: Box<[u64]>,
    /// A pinned checkpoint may refer to them, the durable one does not.
    withheld: Box<[u64]>,
}

impl Extra {
    /// Maps in it.
    const MAPS: usize = 5;

    /// What a word of `map` is on disk.
    fn recorded(&self, map: &[u64], word: usize) -> u64 {
        map[word] & !self.excluded[word]
    }
}

/// See the module. Ranges are of sectors, counted from the segment's start.
pub(super) struct Segment {
    busy: Box<[u64]>,
    map: Box<[u64]>,
    extra: Option<Box<Extra>>,
    /// Sectors not busy.
    free: u32,
    /// Sectors in `map` or `later`.
    live: u32,
    /// Length of the longest hole.
    hole_max: u32,
    /// It is to be emptied: nothing in it is handed out.
    pub(super) evacuating: bool,
    /// A part of a block longer than a segment lies at its start. False after opening, as maps know no blocks, until
    /// [`super::SpaceMap::wants_move`] is asked about that block.
    pub(super) long: bool,
    /// Sectors in `map` or `later` when it was found that not all of it can be moved; 0 when nobody knows of such a
    /// thing.
    pub(super) stuck: u32,
}

impl Segment {
    /// A free one.
    pub(super) fn new(sectors: u32) -> Self {
        let none = vec![0; sectors as usize / 64].into_boxed_slice();
        Self {
            busy: none.clone(),
            map: none,
            extra: None,
            free: sectors,
            live: 0,
            hole_max: sectors,
            evacuating: false,
            long: false,
            stuck: 0,
        }
    }

    /// Memory of the maps that each segment has, and of the further ones of a segment that is [`Segment::is_touched`].
    pub(super) fn memory_bytes(sectors: u32) -> (usize, usize) {
        let map = sectors as usize / 8;
        (size_of::<Self>() + 2 * map, size_of::<Extra>() + Extra::MAPS * map)
    }

    /// Sectors not busy.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// Sectors that the running, the next or the checkpoint after the running one refers to.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// Length of the longest hole.
    pub(super) fn hole_max(&self) -> u32 {
        self.hole_max
    }

    /// Something happened to it since the last durable checkpoint.
    pub(super) fn is_touched(&self) -> bool {
        self.extra.is_some()
    }

    /// The longest hole, the first of several.
    pub(super) fn longest_hole(&self) -> Range<usize> {
        bits::runs(&self.busy, false)
            .max_by_key(|run| (run.len(), Reverse(run.start)))
            .unwrap_or(0..0)
    }

    /// What is free from a sector on.
    pub(super) fn hole_from(&self, start: usize) -> Range<usize> {
        start..bits::next(&self.busy, start, true)
    }

    /// The hole that a free range lies in.
    fn hole_around(&self, range: &Range<usize>) -> Range<usize> {
        bits::end_before(&self.busy, range.start)..bits::next(&self.busy, range.end, true)
    }

    /// One past the last busy sector, 0 for none.
    pub(super) fn busy_end(&self) -> usize {
        bits::end(&self.busy)
    }

    pub(super) fn is_free(&self, range: Range<usize>) -> bool {
        !bits::any(&self.busy, range)
    }

    #[cfg(test)]
    pub(super) fn is_busy(&self, range: Range<usize>) -> bool {
        bits::all(&self.busy, range)
    }

    /// Busy, and in none of the checkpoints' maps: reserved, the store's own, or withheld.
    pub(super) fn is_reserved(&self, range: Range<usize>) -> bool {
        let in_extra =
            |extra: &Extra| bits::any(&extra.durable, range.clone()) || bits::any(&extra.later, range.clone());
        bits::all(&self.busy, range.clone())
            && !bits::any(&self.map, range.clone())
            && !self.extra.as_deref().is_some_and(in_extra)
    }

    /// Takes free sectors.
    pub(super) fn take(&mut self, range: Range<usize>) {
        debug_assert!(self.is_free(range.clone()), "what is handed out is free: {range:?}");
        let hole = self.hole_around(&range);
        self.free -= range.len() as u32;
        bits::set(&mut self.busy, range);
        if hole.len() as u32 == self.hole_max {
            self.hole_max = self.longest_hole().len() as u32;
        }
    }

    /// Makes sectors free.
    pub(super) fn give_back(&mut self, range: Range<usize>) {
        debug_assert!(bits::all(&self.busy, range.clone()), "given back once: {range:?}");
        self.free += range.len() as u32;
        bits::clear(&mut self.busy, range.clone());
        // Nothing else has changed: the longest hole is the one from before, or the one that has just become longer.
        self.hole_max = self.hole_max.max(self.hole_around(&range).len() as u32);
    }

    /// Reserved sectors stay busy as long as a pin is there.
    pub(super) fn withhold(&mut self, range: Range<usize>) {
        bits::set(&mut self.extra().withheld, range);
    }

    fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_with(|| {
            let none = vec![0; self.map.len()].into_boxed_slice();
            Box::new(Extra {
                durable: self.map.clone(),
                later: none.clone(),
                dropped: none.clone(),
                excluded: none.clone(),
                withheld: none,
            })
        })
    }

    /// Reserved sectors become a block of the checkpoint to become durable next.
    pub(super) fn mark_next(&mut self, range: Range<usize>) {
        self.live += range.len() as u32;
        // While `map` is still what the durable checkpoint refers to.
        self.extra();
        bits::set(&mut self.map, range);
    }

    /// Reserved sectors become a block of the checkpoint after the running one.
    pub(super) fn mark_later(&mut self, range: Range<usize>) {
        self.live += range.len() as u32;
        bits::set(&mut self.extra().later, range);
    }

    /// The opposite of both, for a block that no checkpoint has.
    pub(super) fn unmark(&mut self, range: Range<usize>) {
        self.live -= range.len() as u32;
        let extra = self.extra();
        bits::clear(&mut extra.later, range.clone());
        bits::clear(&mut extra.dropped, range.clone());
        bits::clear(&mut extra.excluded, range.clone());
        bits::clear(&mut self.map, range);
    }

    pub(super) fn is_in_map(&self, range: Range<usize>) -> bool {
        bits::all(&self.map, range)
    }

    pub(super) fn is_later(&self, range: Range<usize>) -> bool {
        self.extra
            .as_deref()
            .is_some_and(|extra| bits::all(&extra.later, range))
    }

    pub(super) fn is_dropped(&self, range: Range<usize>) -> bool {
        self.extra
            .as_deref()
            .is_some_and(|extra| bits::all(&extra.dropped, range))
    }

    /// In the map, and no part of it was given back.
    pub(super) fn is_kept(&self, range: Range<usize>) -> bool {
        let dropped = |extra: &Extra| bits::any(&extra.dropped, range.clone());
        self.is_in_map(range.clone()) && !self.extra.as_deref().is_some_and(dropped)
    }

    /// In the map, not given back, and not durable.
    pub(super) fn is_new(&self, range: Range<usize>) -> bool {
        let extra = self.extra.as_deref();
        self.is_kept(range.clone()) && extra.is_some_and(|extra| !bits::any(&extra.durable, range))
    }

    /// In the map, and in its durable form.
    pub(super) fn is_recorded(&self, range: Range<usize>) -> bool {
        let excluded = |extra: &Extra| bits::any(&extra.excluded, range.clone());
        self.is_in_map(range.clone()) && !self.extra.as_deref().is_some_and(excluded)
    }

    /// Leaves sectors of the map out of its durable form.
    pub(super) fn exclude(&mut self, range: Range<usize>) {
        bits::set(&mut self.extra().excluded, range);
    }

    /// New sectors go from the map to what is for later.
    pub(super) fn postpone(&mut self, range: Range<usize>) {
        bits::set(&mut self.extra().later, range.clone());
        bits::clear(&mut self.map, range);
    }

    /// Sectors of the map go when the running checkpoint is durable.
    pub(super) fn drop_later(&mut self, range: Range<usize>) {
        bits::set(&mut self.extra().dropped, range);
    }

    /// Takes sectors out of the map, or of what is for later; they are free unless a checkpoint on disk refers to them.
    pub(super) fn drop_now(&mut self, range: Range<usize>) {
        self.live -= range.len() as u32;
        let extra = self.extra();
        bits::clear(&mut extra.later, range.clone());
        bits::clear(&mut extra.dropped, range.clone());
        bits::clear(&mut extra.excluded, range.clone());
        let waits = bits::any(&extra.durable, range.clone()) || bits::any(&extra.withheld, range.clone());
        bits::clear(&mut self.map, range.clone());
        if !waits {
            self.give_back(range);
        }
    }

    /// The running checkpoint is durable. With `withhold` what it alone kept alive on disk until now stays busy.
    pub(super) fn settle(&mut self, withhold: bool) {
        self.end_checkpoint(|busy, map, extra| {
            for word in 0..map.len() {
                let before = extra.durable[word] | map[word];
                let durable = extra.recorded(map, word);
                let next = map[word] & !extra.dropped[word] | extra.later[word];
                if withhold {
                    extra.withheld[word] |= extra.durable[word] & !durable;
                }
                busy[word] &= !(before & !(durable | next | extra.withheld[word]));
                extra.durable[word] = durable;
                map[word] = next;
            }
        });
    }

    /// The running checkpoint will never be durable: its blocks belong to the next one, but for those that it alone
    /// referred to.
    pub(super) fn abandon(&mut self) {
        self.end_checkpoint(|busy, map, extra| {
            for word in 0..map.len() {
                let dropped = extra.dropped[word];
                busy[word] &= !(dropped & !extra.durable[word] & !extra.withheld[word]);
                map[word] = map[word] & !dropped | extra.later[word];
            }
        });
    }

    fn end_checkpoint(&mut self, work: impl FnOnce(&mut [u64], &mut [u64], &mut Extra)) {
        if let Some(extra) = self.extra.as_deref_mut() {
            work(&mut self.busy, &mut self.map, extra);
            extra.later.fill(0);
            extra.dropped.fill(0);
            extra.excluded.fill(0);
        }
        self.drop_extra();
        self.recount();
    }

    /// No pin is left.
    pub(super) fn release_withheld(&mut self) {
        if let Some(extra) = self.extra.as_deref_mut() {
            for word in 0..self.map.len() {
                let withheld = std::mem::take(&mut extra.withheld[word]);
                self.busy[word] &= !(withheld & !(self.map[word] | extra.durable[word]));
            }
        }
        self.drop_extra();
        self.recount();
    }

    /// Drops the extra maps where they say nothing more.
    fn drop_extra(&mut self) {
        let plain = |extra: &Extra| {
            extra.durable == self.map
                && [&extra.later, &extra.dropped, &extra.excluded, &extra.withheld]
                    .iter()
                    .all(|words| bits::is_zero(words))
        };
        if self.extra.as_deref().is_some_and(plain) {
            self.extra = None;
        }
    }

    fn recount(&mut self) {
        self.free = self.busy.len() as u32 * 64 - bits::count(&self.busy);
        self.live = bits::count(&self.map) + self.extra.as_ref().map_or(0, |extra| bits::count(&extra.later));
        self.hole_max = self.longest_hole().len() as u32;
    }

    /// Takes over a durable map, of 64-bit words, little endian. False when it marks sectors taken already.
    pub(super) fn load(&mut self, bytes: &[u8]) -> bool {
        let words = || bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        if words().zip(&self.busy).any(|(word, busy)| word & busy != 0) {
            return false;
        }
        for (at, word) in words().enumerate() {
            self.busy[at] |= word;
            self.map[at] = word;
        }
        self.recount();
        true
    }

    /// The words that the running checkpoint records.
    pub(super) fn recorded_words(&self) -> impl Iterator<Item = u64> + '_ {
        let extra = self.extra.as_deref();
        (0..self.map.len()).map(move |word| extra.map_or(self.map[word], |extra| extra.recorded(&self.map, word)))
    }

    /// The words that the durable checkpoint has recorded.
    pub(super) fn durable_words(&self) -> impl Iterator<Item = u64> + '_ {
        let durable = self.extra.as_deref().map_or(&self.map, |extra| &extra.durable);
        durable.iter().copied()
    }

    /// The words of what belongs to the running or the next checkpoint, or to the one after.
    pub(super) fn live_words(&self) -> impl Iterator<Item = u64> + '_ {
        let extra = self.extra.as_deref();
        (0..self.map.len()).map(move |word| self.map[word] | extra.map_or(0, |extra| extra.later[word]))
    }

    /// The words of what belongs to blocks nobody has given back.
    pub(super) fn in_use_words(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.map.len()).map(|word| self.in_use(word))
    }

    fn in_use(&self, word: usize) -> u64 {
        match &self.extra {
            None => self.map[word],
            Some(extra) => self.map[word] & !extra.dropped[word] | extra.later[word],
        }
    }

    /// Whether a sector belongs to a block that has not been given back.
    pub(super) fn is_in_use(&self, at: usize) -> bool {
        self.in_use(at / 64) >> (at % 64) & 1 == 1
    }

    /// Whether the running checkpoint records something else than the durable one has.
    pub(super) fn is_changed(&self) -> bool {
        self.extra.is_some() && !self.recorded_words().eq(self.durable_words())
    }

    /// Panics when an invariant does not hold.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_invariants(&self, number: usize) {
        let sectors = self.busy.len() as u32 * 64;
        assert_eq!(self.free, sectors - bits::count(&self.busy), "segment {number}");
        assert_eq!(self.hole_max as usize, self.longest_hole().len(), "segment {number}");
        let mut live = bits::count(&self.map);
        for word in 0..self.map.len() {
            let (busy, map) = (self.busy[word], self.map[word]);
            assert_eq!(map & !busy, 0, "segment {number}: the map is part of what is busy");
            if let Some(extra) = &self.extra {
                let busy_parts = extra.durable[word] | extra.later[word] | extra.withheld[word];
                assert_eq!(busy_parts & !busy, 0, "segment {number}: what is used is busy");
                let others = map | extra.durable[word] | extra.withheld[word];
                let twice = extra.later[word] & others;
                assert_eq!(twice, 0, "segment {number}: what is for later is new");
                let parts = extra.dropped[word] | extra.excluded[word];
                assert_eq!(parts & !map, 0, "segment {number}: only what is in the map leaves it");
                live += extra.later[word].count_ones();
            }
        }
        assert_eq!(self.live, live, "segment {number}");
    }
}
