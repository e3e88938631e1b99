//! The segments of a volume, with their sums and the index of their room.
//!
//! Invariants, see `SpaceMap::check_invariants`: the index has each segment that may be handed out, as it is; the sums
//! are the segments' sums; `touched` and `evacuating` name those that are. All changes of segments go through
//! [`SpaceMap::change`], which keeps this.

use super::index::{Room, RoomIndex};
use super::segment::Segment;
use std::collections::BTreeSet;
use std::ops::Range;

/// Sectors at the start of each volume that hold superblocks or the volume's header.
pub(crate) const HEAD_SECTORS: u32 = 16;
/// Memory of a number in a set, in nodes that are two thirds full.
const NUMBER_BYTES: usize = 8;

/// The sectors of one volume.
pub(crate) struct SpaceMap {
    pub(super) segment_sectors: u32,
    segments: Vec<Segment>,
    pub(super) index: RoomIndex,
    /// Segments something happened to since the last durable checkpoint.
    touched: BTreeSet<u32>,
    /// Segments that are to be emptied.
    evacuating: BTreeSet<u32>,
    free_sectors: u64,
    live_sectors: u64,
    /// The file could not become longer: from this segment on none is to be found as long as others will do.
    full_from: Option<u32>,
    /// Where the last writer that ended would have gone on, unless another has.
    pub(super) resume_at: Option<u64>,
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
            index: RoomIndex::new(),
            touched: BTreeSet::new(),
            evacuating: BTreeSet::new(),
            free_sectors: 0,
            live_sectors: 0,
            full_from: None,
            resume_at: None,
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

    /// Memory that the map takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let (each, touched) = Segment::memory_bytes(self.segment_sectors);
        self.segments.len() * each
            + self.touched.len() * (touched + NUMBER_BYTES)
            + self.evacuating.len() * NUMBER_BYTES
            + self.index.memory_bytes()
    }

    /// All of them, by number.
    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Segments something happened to since the last durable checkpoint.
    pub(super) fn touched(&self) -> &BTreeSet<u32> {
        &self.touched
    }

    /// Segments that are to be emptied.
    pub(super) fn evacuating(&self) -> &BTreeSet<u32> {
        &self.evacuating
    }

    pub(super) fn grow_to(&mut self, segments: usize) {
        while self.segments.len() < segments {
            let (segment, number) = (Segment::new(self.segment_sectors), self.segments.len() as u32);
            let room = self.is_within_file(number).then(|| self.room_of(&segment));
            self.index.change(number, None, room);
            self.free_sectors += u64::from(self.segment_sectors);
            self.segments.push(segment);
        }
    }

    fn is_within_file(&self, number: u32) -> bool {
        self.full_from.is_none_or(|from| number < from)
    }

    /// Whether something in a segment may be handed out.
    pub(super) fn is_usable(&self, number: usize) -> bool {
        let is_within = self.is_within_file(number as u32);
        is_within && self.segments.get(number).is_some_and(|segment| !segment.evacuating)
    }

    /// The file cannot become longer than so many sectors, of which the last segment is left out, too, unless it is the
    /// only one: a hole in it may lie behind the end.
    pub fn note_full(&mut self, sectors: u64) {
        let from = u32::try_from(sectors / u64::from(self.segment_sectors)).unwrap_or(u32::MAX);
        self.set_full_from(Some(from.max(1)));
    }

    /// The file may be able to become longer. False when nobody said that it was not.
    pub fn forget_full(&mut self) -> bool {
        let was_full = self.is_full();
        self.set_full_from(None);
        was_full
    }

    /// [`SpaceMap::note_full`] was called, and nothing has shown the opposite since.
    pub fn is_full(&self) -> bool {
        self.full_from.is_some()
    }

    fn set_full_from(&mut self, full_from: Option<u32>) {
        let count = self.segments.len();
        let first = |from: Option<u32>| from.map_or(count, |from| (from as usize).min(count));
        let (before, after) = (first(self.full_from), first(full_from));
        self.full_from = full_from;
        for number in before.min(after)..before.max(after) {
            let segment = &self.segments[number];
            let room = (!segment.evacuating).then(|| self.room_of(segment));
            let (old, new) = if after < before { (room, None) } else { (None, room) };
            self.index.change(number as u32, old, new);
        }
    }

    fn room_of(&self, segment: &Segment) -> Room {
        Room {
            free: segment.free(),
            hole_max: segment.hole_max(),
            whole: segment.free() == self.segment_sectors,
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
    pub(super) fn find(
        &self,
        sector: u64,
        sectors: u32,
    ) -> Option<impl Iterator<Item = (usize, Range<usize>)> + Clone + use<>> {
        self.locate(sector, sectors)
            .filter(|pieces| pieces.clone().all(|(number, _)| number < self.segments.len()))
    }

    /// Like `find`, and `is` holds for each piece.
    pub(super) fn find_where(
        &self,
        sector: u64,
        sectors: u32,
        is: fn(&Segment, Range<usize>) -> bool,
    ) -> Option<impl Iterator<Item = (usize, Range<usize>)> + Clone + use<>> {
        let mut pieces = self.find(sector, sectors)?;
        let found = pieces.clone();
        pieces
            .all(|(number, range)| is(&self.segments[number], range))
            .then_some(found)
    }

    /// Changes a segment, and keeps the sums, the sets and the index.
    pub(super) fn change<T>(&mut self, number: usize, work: impl FnOnce(&mut Segment) -> T) -> T {
        let before = self.room_of(&self.segments[number]);
        let segment = &mut self.segments[number];
        let (live, evacuating) = (segment.live(), segment.evacuating);
        let result = work(segment);
        #[cfg(debug_assertions)]
        segment.check_invariants(number);
        segment.long &= !segment.is_free(0..1);
        if segment.live() <= segment.stuck - segment.stuck.div_ceil(8) {
            // Whatever it was may have gone.
            segment.stuck = 0;
        }
        let segment = &self.segments[number];
        let id = number as u32;
        let after = self.room_of(segment);
        let is_within = self.is_within_file(id);
        let usable = |evacuating: bool, room: Room| (is_within && !evacuating).then_some(room);
        self.index
            .change(id, usable(evacuating, before), usable(segment.evacuating, after));
        self.free_sectors = self.free_sectors - u64::from(before.free) + u64::from(after.free);
        self.live_sectors = self.live_sectors - u64::from(live) + u64::from(segment.live());
        keep(&mut self.touched, id, segment.is_touched());
        if segment.evacuating != evacuating {
            keep(&mut self.evacuating, id, segment.evacuating);
        }
        result
    }

    /// Takes sectors that are free. False when they are not, or no block can lie so.
    pub fn occupy(&mut self, sector: u64, sectors: u32) -> bool {
        let Some(pieces) = self.locate(sector, sectors) else {
            return false;
        };
        self.grow_to(pieces.clone().map(|(number, _)| number + 1).max().unwrap_or(0));
        if !pieces
            .clone()
            .all(|(number, range)| self.segments[number].is_free(range))
        {
            return false;
        }
        self.take(pieces, sectors > self.segment_sectors);
        true
    }

    pub(super) fn take(&mut self, pieces: impl Iterator<Item = (usize, Range<usize>)>, long: bool) {
        for (number, range) in pieces {
            self.change(number, |segment| {
                segment.long |= long;
                segment.take(range);
            });
        }
    }

    /// Gives back sectors that belong to no checkpoint: reserved ones, and the store's own when `withhold` is false or
    /// they were never durable.
    pub fn release(&mut self, sector: u64, sectors: u32, withhold: bool) {
        for (number, range) in self.find(sector, sectors).into_iter().flatten() {
            self.change(number, |segment| {
                debug_assert!(
                    segment.is_reserved(range.clone()),
                    "what was reserved, or is the store's own, and is given back once"
                );
                if withhold {
                    segment.withhold(range);
                } else {
                    segment.give_back(range);
                }
            });
            self.end_evacuation_if_empty(number);
        }
    }

    /// An emptied segment may be handed out again.
    pub(super) fn end_evacuation_if_empty(&mut self, number: usize) {
        let segment = &self.segments[number];
        if segment.evacuating && segment.free() == self.segment_sectors {
            self.change(number, |segment| segment.evacuating = false);
        }
    }

    /// One past the last busy sector.
    pub fn busy_end(&self) -> u64 {
        let is_busy = |segment: &Segment| segment.free() < self.segment_sectors;
        let last = self.segments.iter().rposition(is_busy).unwrap_or(0);
        last as u64 * u64::from(self.segment_sectors) + self.segments[last].busy_end() as u64
    }

    /// Forgets free segments at the end.
    pub fn trim(&mut self) {
        while let Some(last) = self.segments.last()
            && self.segments.len() > 1
            && last.free() == self.segment_sectors
            && !last.is_touched()
        {
            let number = self.segments.len() - 1;
            self.change(number, |segment| segment.evacuating = false);
            let room = self.is_usable(number).then(|| self.room_of(&self.segments[number]));
            self.index.change(number as u32, room, None);
            self.free_sectors -= u64::from(self.segment_sectors);
            self.segments.pop();
        }
    }

    /// True when no block belongs to the running checkpoint, the next or the one after.
    pub fn is_empty(&self) -> bool {
        self.live_sectors == 0
    }

    /// The sectors that belong to the running or the next checkpoint, or to the one after, a bit for each.
    pub fn live_words(&self) -> Vec<u64> {
        self.segments.iter().flat_map(Segment::live_words).collect()
    }

    /// The sectors that the durable checkpoint has recorded as used, a bit for each.
    pub fn durable_words(&self) -> Vec<u64> {
        self.segments.iter().flat_map(Segment::durable_words).collect()
    }

    /// Panics when an invariant does not hold. Slow; a debug build checks each segment that changes.
    #[cfg(test)]
    pub fn check_invariants(&self) {
        let (mut free, mut live) = (0, 0);
        let mut rooms = Vec::new();
        for (number, segment) in self.segments.iter().enumerate() {
            segment.check_invariants(number);
            let id = number as u32;
            assert_eq!(self.touched.contains(&id), segment.is_touched(), "segment {number}");
            assert_eq!(self.evacuating.contains(&id), segment.evacuating, "segment {number}");
            rooms.push(self.is_usable(number).then(|| self.room_of(segment)));
            free += u64::from(segment.free());
            live += u64::from(segment.live());
        }
        assert_eq!((free, live), (self.free_sectors, self.live_sectors));
        self.index.check_invariants(&rooms);
    }

    /// As after opening, when nobody knows which segments a long block has.
    #[cfg(test)]
    pub fn forget_long(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.long = false);
    }
}

fn keep(set: &mut BTreeSet<u32>, number: u32, is_member: bool) {
    if is_member {
        set.insert(number);
    } else {
        set.remove(&number);
    }
}
