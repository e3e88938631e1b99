//! The sectors of one volume: which are taken, by what, and until when. In memory, no I/O.
//!
//! Each segment has two maps of bits: `busy`, the sectors that must not be handed out, and `map`, those that the
//! checkpoint to become durable next refers to. While these are not the whole truth, [`Extra`] holds the rest; it exists for
//! the segments something happened to since the last durable checkpoint.
//!
//! A block lies in one segment; one that is longer than a segment starts where a segment does and fills whole ones, but for
//! what the last one has left.
//!
//! Invariants, see `SpaceMap::check_invariants`: `map`, `later`, `durable` and `withheld` are parts of `busy`; `map` and
//! `later` have nothing in common; `dropped` and `excluded` are parts of `map`. Busy and in none of these are the volume's
//! head, the store's own blocks, and what writers have reserved.

use crate::bits;
use crate::limits::TAIL_SHARE;
use crate::store::Referenced;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

/// Sectors at the start of each volume that hold superblocks or the volume's header.
pub(crate) const HEAD_SECTORS: u32 = 16;
/// Segments looked at for a hole, the emptiest first.
const CANDIDATES: usize = 8;
/// The same when the file should rather not grow.
const CANDIDATES_HARD: usize = 1024;
/// The file grows freely while less than one part in so many is free.
const GROWTH_SHARE: u64 = 20;

/// A file that could be shorter by so many segments is left as it is in the background.
const SLACK_SEGMENTS: usize = 2;

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
    /// What a word of `map` is on disk.
    fn recorded(&self, map: &[u64], word: usize) -> u64 {
        map[word] & !self.excluded[word]
    }
}

struct Segment {
    busy: Box<[u64]>,
    map: Box<[u64]>,
    extra: Option<Box<Extra>>,
    /// Sectors not busy.
    free: u32,
    /// Sectors in `map` or `later`.
    live: u32,
    /// No hole is longer; exact when somebody has looked since sectors became free.
    hole_max: u32,
    evacuating: bool,
    /// A part of a block longer than a segment lies at its start. False after opening, as maps know no blocks, until
    /// [`SpaceMap::wants_move`] is asked about that block.
    long: bool,
    /// Sectors in `map` or `later` when it was found that not all of it can be moved; 0 when nobody knows of such a thing.
    stuck: u32,
}

impl Segment {
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

    fn recount(&mut self, sectors: u32) {
        self.free = sectors - bits::count(&self.busy);
        self.live = bits::count(&self.map) + self.extra.as_ref().map_or(0, |extra| bits::count(&extra.later));
    }

    /// The sectors of a word that belong to blocks nobody has given back.
    fn in_use(&self, word: usize) -> u64 {
        match &self.extra {
            None => self.map[word],
            Some(extra) => self.map[word] & !extra.dropped[word] | extra.later[word],
        }
    }

    /// Panics when an invariant of the maps does not hold.
    #[cfg(any(test, debug_assertions))]
    fn check_invariants(&self, number: usize, sectors: u32) {
        assert_eq!(self.free, sectors - bits::count(&self.busy), "segment {number}");
        let mut live = bits::count(&self.map);
        for word in 0..self.map.len() {
            let (busy, map) = (self.busy[word], self.map[word]);
            assert_eq!(map & !busy, 0, "segment {number}: the map is part of what is busy");
            if let Some(extra) = &self.extra {
                let busy_parts = extra.durable[word] | extra.later[word] | extra.withheld[word];
                assert_eq!(busy_parts & !busy, 0, "segment {number}: what is used is busy");
                let others = map | extra.durable[word] | extra.withheld[word];
                assert_eq!(
                    extra.later[word] & others,
                    0,
                    "segment {number}: what is for later is new"
                );
                let parts = extra.dropped[word] | extra.excluded[word];
                assert_eq!(parts & !map, 0, "segment {number}: only what is in the map leaves it");
                live += extra.later[word].count_ones();
            }
        }
        assert_eq!(self.live, live, "segment {number}");
    }

    /// Whether some sector of a range is in one of the checkpoints' maps.
    fn is_used(&self, range: Range<usize>) -> bool {
        let in_extra =
            |extra: &Extra| bits::any(&extra.durable, range.clone()) || bits::any(&extra.later, range.clone());
        bits::any(&self.map, range.clone()) || self.extra.as_deref().is_some_and(in_extra)
    }

    fn longest_hole(&self) -> Range<usize> {
        bits::runs(&self.busy, false)
            .max_by_key(|run| (run.len(), Reverse(run.start)))
            .unwrap_or(0..0)
    }
}

/// The sectors of one volume.
pub(crate) struct SpaceMap {
    segment_sectors: u32,
    segments: Vec<Segment>,
    /// Segments with free sectors that may be handed out, by their number.
    by_free: BTreeSet<(u32, Reverse<u32>)>,
    /// Segments that have an `Extra`.
    touched: BTreeSet<u32>,
    evacuating: u32,
    free_sectors: u64,
    live_sectors: u64,
    /// Where the last writer that ended would have gone on, unless another has.
    left_off: Option<u64>,
}

/// Sums of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceSums {
    pub segments: u64,
    pub free_sectors: u64,
    pub live_sectors: u64,
}

impl SpaceMap {
    /// A volume that holds only its head.
    pub fn new(segment_sectors: u32) -> Self {
        let mut space = Self {
            segment_sectors,
            segments: Vec::new(),
            by_free: BTreeSet::new(),
            touched: BTreeSet::new(),
            evacuating: 0,
            free_sectors: 0,
            live_sectors: 0,
            left_off: None,
        };
        space.grow_to(1);
        space.occupy(0, HEAD_SECTORS);
        space
    }

    pub fn sums(&self) -> SpaceSums {
        SpaceSums {
            segments: self.segments.len() as u64,
            free_sectors: self.free_sectors,
            live_sectors: self.live_sectors,
        }
    }

    fn grow_to(&mut self, segments: usize) {
        let words = self.segment_sectors as usize / 64;
        while self.segments.len() < segments {
            let number = self.segments.len() as u32;
            self.segments.push(Segment {
                busy: vec![0; words].into_boxed_slice(),
                map: vec![0; words].into_boxed_slice(),
                extra: None,
                free: self.segment_sectors,
                live: 0,
                hole_max: self.segment_sectors,
                evacuating: false,
                long: false,
                stuck: 0,
            });
            self.by_free.insert((self.segment_sectors, Reverse(number)));
            self.free_sectors += u64::from(self.segment_sectors);
        }
    }

    /// Segments and ranges of bits of a block; `None` where no block can lie.
    fn locate(&self, sector: u64, sectors: u32) -> Option<impl Iterator<Item = (usize, Range<usize>)> + Clone + use<>> {
        let length = u64::from(self.segment_sectors);
        let (first, start) = ((sector / length) as usize, sector % length);
        let end = start + u64::from(sectors);
        (start == 0 || end <= length).then(|| {
            (0..end.div_ceil(length)).map(move |at| {
                let from = if at == 0 { start } else { 0 };
                let to = (end - at * length).min(length);
                (first + at as usize, from as usize..to as usize)
            })
        })
    }

    /// Like `locate`, and the segments exist.
    fn find(&self, sector: u64, sectors: u32) -> Option<impl Iterator<Item = (usize, Range<usize>)> + Clone + use<>> {
        self.locate(sector, sectors)
            .filter(|pieces| pieces.clone().all(|(number, _)| number < self.segments.len()))
    }

    /// Changes a segment and keeps the sums. All changes of segments go through here.
    fn change<T>(&mut self, number: usize, work: impl FnOnce(&mut Segment) -> T) -> T {
        let segment = &mut self.segments[number];
        let (free, live, evacuating) = (segment.free, segment.live, segment.evacuating);
        let result = work(segment);
        #[cfg(debug_assertions)]
        segment.check_invariants(number, self.segment_sectors);
        if segment.free > free {
            segment.hole_max = segment.free;
        }
        segment.long &= bits::any(&segment.busy, 0..1);
        if segment.live <= segment.stuck - segment.stuck.div_ceil(8) {
            // Whatever it was may have gone.
            segment.stuck = 0;
        }
        if segment.extra.is_some() {
            self.touched.insert(number as u32);
        } else {
            self.touched.remove(&(number as u32));
        }
        if (segment.free, segment.evacuating) != (free, evacuating) {
            if !evacuating && free > 0 {
                self.by_free.remove(&(free, Reverse(number as u32)));
            }
            if !segment.evacuating && segment.free > 0 {
                self.by_free.insert((segment.free, Reverse(number as u32)));
            }
        }
        self.free_sectors = self.free_sectors - u64::from(free) + u64::from(segment.free);
        self.live_sectors = self.live_sectors - u64::from(live) + u64::from(segment.live);
        self.evacuating = self.evacuating - u32::from(evacuating) + u32::from(segment.evacuating);
        result
    }

    /// Takes sectors that are free. False when they are not, or no block can lie so.
    pub fn occupy(&mut self, sector: u64, sectors: u32) -> bool {
        let Some(pieces) = self.locate(sector, sectors) else {
            return false;
        };
        self.grow_to(pieces.clone().map(|(number, _)| number + 1).max().unwrap_or(0));
        if pieces
            .clone()
            .any(|(number, range)| bits::any(&self.segments[number].busy, range))
        {
            return false;
        }
        self.take(pieces, sectors > self.segment_sectors);
        true
    }

    fn take(&mut self, pieces: impl Iterator<Item = (usize, Range<usize>)>, long: bool) {
        for (number, range) in pieces {
            debug_assert!(
                !bits::any(&self.segments[number].busy, range.clone()),
                "what is handed out is free"
            );
            self.change(number, |segment| {
                segment.free -= range.len() as u32;
                segment.long |= long;
                bits::set(&mut segment.busy, range);
            });
        }
    }

    /// Gives back sectors that belong to no checkpoint: reserved ones, and the store's own when `withhold` is false or they
    /// were never durable.
    pub fn release(&mut self, sector: u64, sectors: u32, withhold: bool) {
        for (number, range) in self.find(sector, sectors).into_iter().flatten() {
            debug_assert!(
                bits::all(&self.segments[number].busy, range.clone()) && !self.segments[number].is_used(range.clone()),
                "what was reserved, or is the store's own, and is given back once"
            );
            self.change(number, |segment| {
                if withhold {
                    bits::set(&mut segment.extra().withheld, range);
                } else {
                    segment.free += range.len() as u32;
                    bits::clear(&mut segment.busy, range);
                }
            });
            self.settle_evacuation(number);
        }
    }

    /// Reserves the sectors of a block that is longer than a segment.
    pub fn reserve_long(&mut self, sectors: u32) -> u64 {
        debug_assert!(sectors > self.segment_sectors);
        let count = sectors.div_ceil(self.segment_sectors) as usize;
        let first = self.free_row(count, usize::MAX).unwrap_or_else(|| {
            // What is free at the end is the start of it.
            let taken = |segment: &Segment| segment.free < self.segment_sectors || segment.evacuating;
            let first = self.segments.iter().rposition(taken).map_or(0, |last| last + 1);
            self.grow_to(first + count);
            first
        });
        let sector = first as u64 * u64::from(self.segment_sectors);
        let pieces = self.find(sector, sectors).expect("free segments in a row");
        self.take(pieces, true);
        sector
    }

    /// The first of `count` free segments in a row, the lowest there are, which starts below segment `below`.
    fn free_row(&self, count: usize, below: usize) -> Option<usize> {
        let mut row = 0..0;
        let free = self.by_free.range((self.segment_sectors, Reverse(u32::MAX))..);
        for (_, Reverse(number)) in free.rev() {
            let number = *number as usize;
            let start = if row.end == number { row.start } else { number };
            row = start..number + 1;
            if row.start >= below {
                return None;
            }
            if row.len() == count {
                return Some(row.start);
            }
        }
        None
    }

    /// The next writer best goes on at `sector`; `None`: anywhere.
    pub fn leave_off(&mut self, sector: Option<u64>) {
        self.left_off = sector;
    }

    /// Reserves a run of `min` to `want` sectors, right after `after` if that is free, else where there is much room. Without `after`
    /// a new writer goes on where the last one ended: what is left there is often too short to be chosen for itself, and would stay
    /// free as long as the file grows.
    pub fn reserve(&mut self, min: u32, want: u32, after: Option<u64>) -> Range<u64> {
        debug_assert!(0 < min && min <= want && want <= self.segment_sectors);
        let found = self.find_hole(min, want, after);
        let found = found.unwrap_or_else(|| {
            let number = self.segments.len();
            self.grow_to(number + 1);
            (number, 0..want as usize)
        });
        let (number, hole) = found;
        let hole = hole.start..hole.end.min(hole.start + want as usize);
        let start = number as u64 * u64::from(self.segment_sectors) + hole.start as u64;
        let run = start..start + hole.len() as u64;
        debug_assert!(
            !bits::any(&self.segments[number].busy, hole.clone()),
            "what is handed out is free"
        );
        self.change(number, |segment| {
            segment.free -= hole.len() as u32;
            bits::set(&mut segment.busy, hole);
        });
        run
    }

    fn find_hole(&mut self, min: u32, want: u32, after: Option<u64>) -> Option<(usize, Range<usize>)> {
        let good = min.max(want / 4);
        if let Some(after) = after {
            if let Some(found) = self.hole_at(after, min) {
                return Some(found);
            }
            let number = (after / u64::from(self.segment_sectors)) as usize;
            let is_usable = self.segments.get(number).is_some_and(|segment| !segment.evacuating);
            if is_usable && let Some(hole) = self.hole_of(number, good) {
                return Some((number, hole));
            }
        }
        if self.is_roomy() {
            if let Some(found) = self.lowest_hole(good) {
                return Some(found);
            }
        } else if after.is_none()
            && let Some(left_off) = self.left_off.take()
            && let Some(found) = self.hole_at(left_off, min)
        {
            return Some(found);
        }
        if let Some(found) = self.emptiest_hole(good) {
            return Some(found);
        }
        let sectors = self.segments.len() as u64 * u64::from(self.segment_sectors);
        if self.free_sectors * GROWTH_SHARE < sectors {
            return None;
        }
        self.fullest_hole(min)
    }

    /// What is free from `sector` on in its segment, if that is at least `min` sectors and may be handed out.
    fn hole_at(&self, sector: u64, min: u32) -> Option<(usize, Range<usize>)> {
        let length = u64::from(self.segment_sectors);
        let (number, start) = ((sector / length) as usize, (sector % length) as usize);
        let segment = self.segments.get(number).filter(|segment| !segment.evacuating)?;
        let hole = start..bits::next(&segment.busy, start, true);
        (hole.len() >= min as usize).then_some((number, hole))
    }

    /// Half of the file is free: it should get shorter.
    fn is_roomy(&self) -> bool {
        self.free_sectors * 2 > self.segments.len() as u64 * u64::from(self.segment_sectors)
    }

    /// The longest hole of the first segment that has one of at least `min` sectors.
    fn lowest_hole(&mut self, min: u32) -> Option<(usize, Range<usize>)> {
        (0..self.segments.len() as u32).find_map(|number| {
            let is_usable = !self.segments[number as usize].evacuating;
            is_usable.then(|| self.hole_in(number, min)).flatten()
        })
    }

    /// The longest hole of the emptiest segment that has one of at least `min` sectors.
    fn emptiest_hole(&mut self, min: u32) -> Option<(usize, Range<usize>)> {
        // Looking at a segment changes no key.
        let by_free = std::mem::take(&mut self.by_free);
        let usable = by_free.iter().rev().take_while(|(free, _)| *free >= min);
        let found = usable
            .take(CANDIDATES)
            .find_map(|(_, number)| self.hole_in(number.0, min));
        self.by_free = by_free;
        found
    }

    /// The longest hole of the fullest segment that has one of at least `min` sectors: what is nearly full stays full, and
    /// what is nearly empty becomes so.
    fn fullest_hole(&mut self, min: u32) -> Option<(usize, Range<usize>)> {
        let by_free = std::mem::take(&mut self.by_free);
        let usable = by_free.range((min, Reverse(u32::MAX))..);
        let found = usable
            .take(CANDIDATES_HARD)
            .find_map(|(_, number)| self.hole_in(number.0, min));
        self.by_free = by_free;
        found
    }

    fn hole_in(&mut self, number: u32, min: u32) -> Option<(usize, Range<usize>)> {
        Some((number as usize, self.hole_of(number as usize, min)?))
    }

    /// The longest hole of a segment, if it has at least `min` sectors.
    fn hole_of(&mut self, number: usize, min: u32) -> Option<Range<usize>> {
        let segment = &mut self.segments[number];
        if segment.hole_max < min {
            return None;
        }
        let hole = segment.longest_hole();
        segment.hole_max = hole.len() as u32;
        (segment.hole_max >= min).then_some(hole)
    }

    /// Marks reserved sectors as a block.
    pub fn mark(&mut self, sector: u64, sectors: u32, mark: Mark) {
        if mark == Mark::Own {
            return;
        }
        let pieces = self.find(sector, sectors).expect("the sectors are reserved");
        for (number, range) in pieces {
            debug_assert!(
                bits::all(&self.segments[number].busy, range.clone()) && !self.segments[number].is_used(range.clone()),
                "a block lies where its writer has reserved"
            );
            self.change(number, |segment| {
                segment.live += range.len() as u32;
                let extra = segment.extra();
                match mark {
                    Mark::Later => bits::set(&mut extra.later, range),
                    _ => bits::set(&mut segment.map, range),
                }
            });
        }
    }

    /// Takes back a block that was never written.
    pub fn void(&mut self, sector: u64, sectors: u32, mark: Mark) {
        let pieces = self.find(sector, sectors).filter(|_| mark != Mark::Own);
        for (number, range) in pieces.into_iter().flatten() {
            self.change(number, |segment| {
                segment.live -= range.len() as u32;
                let extra = segment.extra();
                bits::clear(&mut extra.later, range.clone());
                bits::clear(&mut extra.dropped, range.clone());
                bits::clear(&mut extra.excluded, range.clone());
                bits::clear(&mut segment.map, range);
            });
        }
        self.release(sector, sectors, false);
    }

    /// The running checkpoint's map on disk shall not have a block of its own, which stays in use. False when the sectors are
    /// not those of such a block.
    pub fn exclude(&mut self, sector: u64, sectors: u32) -> bool {
        let in_map = |(number, range): (usize, Range<usize>)| bits::all(&self.segments[number].map, range);
        let Some(pieces) = self.find(sector, sectors).filter(|pieces| pieces.clone().all(in_map)) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| bits::set(&mut segment.extra().excluded, range));
        }
        true
    }

    /// Whether the running checkpoint's map on disk will have a block.
    pub fn is_recorded(&self, sector: u64, sectors: u32) -> bool {
        let in_map = |(number, range): (usize, Range<usize>)| {
            let segment = &self.segments[number];
            let excluded = segment.extra.as_deref().map(|extra| &extra.excluded);
            bits::all(&segment.map, range.clone()) && !excluded.is_some_and(|excluded| bits::any(excluded, range))
        };
        self.find(sector, sectors).is_some_and(|mut pieces| pieces.all(in_map))
    }

    /// Gives back a block that was kept for the running checkpoint, which has come not to refer to it after all. False when it
    /// was not kept.
    pub fn forsake(&mut self, sector: u64, sectors: u32) -> bool {
        let is_kept = |(number, range): (usize, Range<usize>)| {
            let extra = self.segments[number].extra.as_deref();
            extra.is_some_and(|extra| bits::all(&extra.dropped, range))
        };
        let Some(pieces) = self.find(sector, sectors).filter(|pieces| pieces.clone().all(is_kept)) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| {
                bits::clear(&mut segment.extra().dropped, range.clone());
                drop_from_map(segment, range);
            });
            self.settle_evacuation(number);
        }
        true
    }

    /// Moves a block from the running checkpoint to the one after it.
    pub fn postpone(&mut self, sector: u64, sectors: u32) -> bool {
        let is_new = |(number, range): (usize, Range<usize>)| {
            let segment = &self.segments[number];
            let taken =
                |extra: &Extra| bits::any(&extra.durable, range.clone()) || bits::any(&extra.dropped, range.clone());
            bits::all(&segment.map, range.clone()) && segment.extra.as_deref().is_some_and(|extra| !taken(extra))
        };
        let Some(pieces) = self.find(sector, sectors).filter(|pieces| pieces.clone().all(is_new)) else {
            return false;
        };
        for (number, range) in pieces {
            self.change(number, |segment| {
                let extra = segment.extra();
                bits::set(&mut extra.later, range.clone());
                bits::clear(&mut segment.map, range);
            });
        }
        true
    }

    /// See [`crate::BlockStore::free`]; false when the sectors are not one checkpoint's blocks.
    pub fn free(&mut self, sector: u64, sectors: u32, referenced: Referenced, phase: Phase) -> bool {
        let Some(pieces) = self.find(sector, sectors) else {
            return false;
        };
        let segments = &self.segments;
        let extra = |number: usize| segments[number].extra.as_deref();
        let in_later = pieces
            .clone()
            .all(|(number, range)| extra(number).is_some_and(|extra| bits::all(&extra.later, range)));
        let in_map = pieces.clone().all(|(number, range)| {
            bits::all(&segments[number].map, range.clone())
                && !extra(number).is_some_and(|extra| bits::any(&extra.dropped, range))
        });
        if !in_later && !in_map {
            return false;
        }
        let kept = match phase {
            Phase::Idle => false,
            Phase::Running => referenced == Referenced::ByRunningCheckpoint,
            Phase::Settling => true,
        };
        for (number, range) in pieces {
            self.change(number, |segment| {
                let extra = segment.extra();
                if in_later {
                    bits::clear(&mut extra.later, range.clone());
                } else if kept {
                    return bits::set(&mut extra.dropped, range);
                }
                drop_from_map(segment, range);
            });
            self.settle_evacuation(number);
        }
        true
    }

    /// The running checkpoint is durable.
    pub fn settle(&mut self, withhold: bool) {
        self.finish(|segment| {
            let Some(extra) = segment.extra.as_deref_mut() else {
                return;
            };
            for word in 0..segment.map.len() {
                let before = extra.durable[word] | segment.map[word];
                let durable = extra.recorded(&segment.map, word);
                let map = segment.map[word] & !extra.dropped[word] | extra.later[word];
                if withhold {
                    extra.withheld[word] |= extra.durable[word] & !durable;
                }
                segment.busy[word] &= !(before & !(durable | map | extra.withheld[word]));
                extra.durable[word] = durable;
                segment.map[word] = map;
            }
        });
    }

    /// The running checkpoint will never be durable: its blocks belong to the next one, but for those that it alone referred to.
    pub fn abandon(&mut self) {
        self.finish(|segment| {
            let Some(extra) = segment.extra.as_deref_mut() else {
                return;
            };
            for word in 0..segment.map.len() {
                let dropped = extra.dropped[word];
                segment.busy[word] &= !(dropped & !extra.durable[word] & !extra.withheld[word]);
                segment.map[word] = segment.map[word] & !dropped | extra.later[word];
            }
        });
    }

    /// No pin is left.
    pub fn release_withheld(&mut self) {
        for number in self.touched.clone() {
            let sectors = self.segment_sectors;
            self.change(number as usize, |segment| {
                if let Some(extra) = segment.extra.as_deref_mut() {
                    for word in 0..segment.map.len() {
                        let withheld = std::mem::take(&mut extra.withheld[word]);
                        segment.busy[word] &= !(withheld & !(segment.map[word] | extra.durable[word]));
                    }
                }
                drop_extra(segment);
                segment.recount(sectors);
            });
            self.settle_evacuation(number as usize);
        }
    }

    fn finish(&mut self, work: impl Fn(&mut Segment)) {
        for number in self.touched.clone() {
            let sectors = self.segment_sectors;
            self.change(number as usize, |segment| {
                work(segment);
                if let Some(extra) = segment.extra.as_deref_mut() {
                    extra.later.fill(0);
                    extra.dropped.fill(0);
                    extra.excluded.fill(0);
                }
                drop_extra(segment);
                segment.recount(sectors);
            });
            self.settle_evacuation(number as usize);
        }
        if self.evacuating > 0 {
            (0..self.segments.len()).for_each(|number| self.settle_evacuation(number));
        }
    }

    /// An emptied segment may be handed out again.
    fn settle_evacuation(&mut self, number: usize) {
        let segment = &self.segments[number];
        if segment.evacuating && segment.free == self.segment_sectors {
            self.change(number, |segment| segment.evacuating = false);
        }
    }

    /// Segments of which something else is to be recorded than for the durable checkpoint.
    pub fn changed_segments(&self) -> impl Iterator<Item = u32> + '_ {
        self.touched.iter().copied().filter(|number| {
            let segment = &self.segments[*number as usize];
            let differs = |extra: &Extra| {
                (0..segment.map.len()).any(|word| extra.durable[word] != extra.recorded(&segment.map, word))
            };
            segment.extra.as_deref().is_some_and(differs)
        })
    }

    /// Appends what the running checkpoint records of a segment, little endian; zeros past the last one.
    pub fn encode_map(&self, number: u32, out: &mut Vec<u8>) {
        let Some(segment) = self.segments.get(number as usize) else {
            return out.resize(out.len() + self.segment_sectors as usize / 8, 0);
        };
        for (at, word) in segment.map.iter().enumerate() {
            let word = segment
                .extra
                .as_ref()
                .map_or(*word, |extra| extra.recorded(&segment.map, at));
            out.extend(word.to_le_bytes());
        }
    }

    /// Takes over the durable map of a segment, at opening. False when it marks sectors taken already.
    pub fn decode_map(&mut self, number: u32, bytes: &[u8]) -> bool {
        if bytes.iter().all(|byte| *byte == 0) {
            return true;
        }
        self.grow_to(number as usize + 1);
        let sectors = self.segment_sectors;
        self.change(number as usize, |segment| {
            for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                if segment.busy[at] & word != 0 {
                    return false;
                }
                segment.busy[at] |= word;
                segment.map[at] = word;
            }
            segment.recount(sectors);
            true
        })
    }

    /// One past the last busy sector.
    pub fn busy_end(&self) -> u64 {
        let last = self
            .segments
            .iter()
            .rposition(|segment| segment.free < self.segment_sectors)
            .unwrap_or(0);
        last as u64 * u64::from(self.segment_sectors) + bits::end(&self.segments[last].busy) as u64
    }

    /// Forgets free segments at the end.
    pub fn trim(&mut self) {
        while let Some(last) = self.segments.last()
            && self.segments.len() > 1
            && last.free == self.segment_sectors
            && last.extra.is_none()
        {
            let number = self.segments.len() - 1;
            // By `change`, so that an evacuation is over and the sums are right.
            self.change(number, |segment| segment.evacuating = false);
            self.by_free.remove(&(self.segment_sectors, Reverse(number as u32)));
            self.free_sectors -= u64::from(self.segment_sectors);
            self.segments.pop();
        }
    }

    /// Whether the segment of a block that is no longer than one is to be emptied.
    pub fn is_evacuating(&self, sector: u64) -> bool {
        let number = (sector / u64::from(self.segment_sectors)) as usize;
        self.evacuating > 0 && self.segments.get(number).is_some_and(|segment| segment.evacuating)
    }

    /// Whether a block shall move. One longer than a segment moves only to where the file gets shorter for it; elsewhere it
    /// would lie as it lies now, with what its last segment has left, and would be moved for ever. Its segments are then not
    /// emptied.
    pub fn wants_move(&mut self, sector: u64, sectors: u32) -> bool {
        if sectors <= self.segment_sectors || self.evacuating == 0 {
            return self.is_evacuating(sector);
        }
        let Some(pieces) = self.find(sector, sectors) else {
            return false;
        };
        if !pieces.clone().any(|(number, _)| self.segments[number].evacuating) {
            return false;
        }
        let first = (sector / u64::from(self.segment_sectors)) as usize;
        if self.free_row(pieces.clone().count(), first).is_some() {
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
        self.evacuating > 0
    }

    /// The segments to be emptied.
    pub fn evacuating_segments(&self) -> impl Iterator<Item = u32> + '_ {
        let count = if self.evacuating > 0 { self.segments.len() } else { 0 };
        (0..count as u32).filter(|number| self.segments[*number as usize].evacuating)
    }

    /// The runs of sectors in a segment whose blocks have to go before it is empty, counted from its start.
    pub fn runs_to_move(&self, number: u32) -> Vec<Range<usize>> {
        let Some(segment) = self.segments.get(number as usize).filter(|segment| segment.evacuating) else {
            return Vec::new();
        };
        let words: Vec<u64> = (0..segment.map.len()).map(|word| segment.in_use(word)).collect();
        bits::runs(&words, true).collect()
    }

    /// Whether a sector belongs to a block that has not been given back.
    pub fn is_in_use(&self, sector: u64) -> bool {
        let (number, at) = (
            sector / u64::from(self.segment_sectors),
            (sector % u64::from(self.segment_sectors)) as usize,
        );
        self.segments
            .get(number as usize)
            .is_some_and(|segment| segment.in_use(at / 64) >> (at % 64) & 1 == 1)
    }

    /// A segment has a block that cannot be moved: it is used again, and not chosen before an eighth of what is in it has gone.
    pub fn give_up_evacuation(&mut self, number: u32) {
        if (number as usize) < self.segments.len() {
            self.change(number as usize, |segment| {
                segment.evacuating = false;
                segment.stuck = segment.live;
            });
        }
    }

    /// Chooses anew which segments to empty: all that shortens the file, or what costs no more than `allowance` sectors to be
    /// moved, with about `tail` segments at the end. Those sectors are the result.
    pub fn plan_evacuation(&mut self, allowance: Option<u64>, tail: usize) -> u64 {
        let compact = allowance.is_none();
        for number in 0..self.segments.len() {
            if self.segments[number].evacuating {
                self.change(number, |segment| segment.evacuating = false);
            }
        }
        let length = u64::from(self.segment_sectors);
        let total = self.segments.len() as u64 * length;
        // Room for the blocks to be moved must be found in what stays.
        let (share, budget) = if compact {
            (20, self.free_sectors)
        } else {
            (8, (self.free_sectors / 2).min(allowance.unwrap_or(0)))
        };
        if self.segments.len() < 2 || self.free_sectors * share < total {
            return 0;
        }
        // What the file could be, with some room to work in.
        let aim = self.live_sectors + self.live_sectors / if compact { 32 } else { 6 } + length;
        let aim = usize::try_from(aim.div_ceil(length)).unwrap_or(usize::MAX);
        if !compact && self.segments.len() <= aim + SLACK_SEGMENTS {
            return 0;
        }
        let is_stuck = |number: &usize| self.segments[*number].stuck > 0;
        // Those at the end are not emptier than others: a few at a time.
        let few = if compact {
            usize::MAX
        } else {
            tail + self.segments.len() / TAIL_SHARE
        };
        let tail = (aim.min(self.segments.len())..self.segments.len()).rev();
        let tail: Vec<usize> = tail.filter(|number| !is_stuck(number)).take(few).collect();
        // Half empty ones always pay; others when much is free, and yet perhaps nowhere enough for a long block.
        let quarters = if self.free_sectors * 7 > total { 3 } else { 2 };
        // With that much free, from the back to the front only: what is moved once is not moved again.
        let first = if !compact && self.is_roomy() { aim } else { 1 };
        let mut sparse: Vec<usize> = (first..self.segments.len())
            .filter(|number| {
                let segment = &self.segments[*number];
                let is_sparse = segment.live > 0 && u64::from(segment.live) * 4 < length * quarters;
                is_sparse && !segment.long && !is_stuck(number)
            })
            .collect();
        sparse.sort_by_key(|number| self.segments[*number].live);
        // Room that is not handed out meanwhile: never so much that the file would grow for it.
        let room = if compact {
            self.free_sectors
        } else {
            self.free_sectors / 2
        };
        let (mut moved, mut lost) = (0, 0);
        for number in tail.into_iter().chain(sparse) {
            let segment = &self.segments[number];
            if segment.evacuating {
                continue;
            }
            let (live, free) = (u64::from(segment.live), u64::from(segment.free));
            if moved + live > budget || moved + live + lost + free > room {
                break;
            }
            moved += live;
            lost += free;
            self.change(number, |segment| segment.evacuating = true);
        }
        self.leave_room(moved);
        moved
    }

    /// Keeps the first free segments of those to be emptied for so many sectors that move, and a segment more: the holes elsewhere may
    /// be too short for them, and they would go to the end of the file again and again.
    fn leave_room(&mut self, moved: u64) {
        let mut room = if moved == 0 {
            0
        } else {
            moved + u64::from(self.segment_sectors)
        };
        for number in 0..self.segments.len() {
            if room == 0 {
                return;
            }
            if self.segments[number].evacuating && self.segments[number].free == self.segment_sectors {
                self.change(number, |segment| segment.evacuating = false);
                room = room.saturating_sub(u64::from(self.segment_sectors));
            }
        }
    }

    /// The sectors that belong to the running or the next checkpoint, or to the one after, a bit for each.
    pub fn live_words(&self) -> Vec<u64> {
        let later = |segment: &Segment, word: usize| segment.extra.as_ref().map_or(0, |extra| extra.later[word]);
        self.words(|segment, word| segment.map[word] | later(segment, word))
    }

    /// The sectors that the durable checkpoint has recorded as used, a bit for each.
    pub fn durable_words(&self) -> Vec<u64> {
        self.words(|segment, word| {
            segment
                .extra
                .as_ref()
                .map_or(segment.map[word], |extra| extra.durable[word])
        })
    }

    fn words(&self, word_of: impl Fn(&Segment, usize) -> u64) -> Vec<u64> {
        let of_segment = |segment| (0..self.segment_sectors as usize / 64).map(move |word| (segment, word));
        let words = self.segments.iter().flat_map(of_segment);
        words.map(|(segment, word)| word_of(segment, word)).collect()
    }

    /// True when no block belongs to the running, the next or the one after.
    pub fn is_empty(&self) -> bool {
        self.live_sectors == 0
    }

    /// Panics when an invariant does not hold. Slow; a debug build checks each segment that changes.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let (mut free, mut live, mut evacuating) = (0, 0, 0);
        for (number, segment) in self.segments.iter().enumerate() {
            segment.check_invariants(number, self.segment_sectors);
            assert_eq!(self.touched.contains(&(number as u32)), segment.extra.is_some());
            let listed = self.by_free.contains(&(segment.free, Reverse(number as u32)));
            assert_eq!(listed, segment.free > 0 && !segment.evacuating, "segment {number}");
            free += u64::from(segment.free);
            live += u64::from(segment.live);
            evacuating += u32::from(segment.evacuating);
        }
        assert_eq!(
            (free, live, evacuating),
            (self.free_sectors, self.live_sectors, self.evacuating)
        );
        let usable = self
            .segments
            .iter()
            .filter(|segment| segment.free > 0 && !segment.evacuating);
        assert_eq!(self.by_free.len(), usable.count());
    }
}

/// Takes sectors out of a segment's map, or what is for later; they are free unless a checkpoint on disk refers to them.
fn drop_from_map(segment: &mut Segment, range: Range<usize>) {
    let extra = segment.extra.as_deref_mut().expect("it was touched");
    bits::clear(&mut extra.excluded, range.clone());
    let waits = bits::any(&extra.durable, range.clone()) || bits::any(&extra.withheld, range.clone());
    bits::clear(&mut segment.map, range.clone());
    segment.live -= range.len() as u32;
    if !waits {
        segment.free += range.len() as u32;
        bits::clear(&mut segment.busy, range);
    }
}

/// Drops the extra maps where they say nothing more.
fn drop_extra(segment: &mut Segment) {
    let plain = |extra: &Extra| {
        extra.durable == segment.map
            && [&extra.later, &extra.dropped, &extra.excluded, &extra.withheld]
                .iter()
                .all(|words| bits::is_zero(words))
    };
    if segment.extra.as_deref().is_some_and(plain) {
        segment.extra = None;
    }
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
