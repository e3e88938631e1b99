//! Finds a segment with room, at a cost that does not grow with the number of segments.
//!
//! Segments stand in classes by their longest hole, four to each power of two, and a word of bits tells which classes
//! have members ("TLSF: a new dynamic memory allocator for real-time systems", Masmano and others, 2004). All members
//! of a class above that of the length asked for will do; of its own class some will, and only a few are looked at. In
//! a class they stand by their free sectors and by their numbers, so that the best of all is the best of the classes'
//! firsts.
//!
//! Segments that are free as a whole stand in rows besides, for blocks that take several.
//!
//! Invariants: a segment stands here once, in its class, or not at all; rows do not touch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Longest hole: a segment of the largest size.
const SECTORS_MAX: u32 = crate::limits::SEGMENT_BYTES_MAX / crate::SECTOR_BYTES as u32;
/// Bits that tell classes of one power of two apart.
const STEP_BITS: u32 = 2;
const CLASSES: usize = class_of(SECTORS_MAX) + 1;
/// Members of the length's own class that are looked at.
const TRIES: usize = 16;
/// Memory of a segment's two entries, in nodes that are two thirds full.
const ENTRY_BYTES: usize = 24;

const _: () = assert!(CLASSES <= u64::BITS as usize, "a bit for each class");

/// Rises with the length, which is not 0.
const fn class_of(sectors: u32) -> usize {
    let octave = sectors.ilog2();
    if octave < STEP_BITS {
        return sectors as usize;
    }
    let step = (sectors >> (octave - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    ((octave << STEP_BITS) + step) as usize
}

/// What the index knows of a segment. Without a hole it does not stand there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    pub free: u32,
    pub hole_max: u32,
    /// All of it is free.
    pub whole: bool,
}

#[derive(Default)]
struct Class {
    /// Free sectors and numbers. At the end the emptiest, of several the one with the lowest number.
    by_free: BTreeSet<(u32, Reverse<u32>)>,
    by_number: BTreeSet<u32>,
}

/// See the module.
pub(super) struct RoomIndex {
    classes: Box<[Class]>,
    /// A bit for each class that has members.
    occupied: u64,
    /// Rows of whole segments: their lengths by their first numbers, and the same turned round.
    rows: BTreeMap<u32, u32>,
    rows_by_length: BTreeSet<(u32, u32)>,
    members: usize,
}

impl RoomIndex {
    pub(super) fn new() -> Self {
        Self {
            classes: (0..CLASSES).map(|_| Class::default()).collect(),
            occupied: 0,
            rows: BTreeMap::new(),
            rows_by_length: BTreeSet::new(),
            members: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.classes) + (self.members + 2 * self.rows.len()) * ENTRY_BYTES
    }

    /// Takes in that a segment had `before` and has `after`; `None` where it is not to be found.
    pub(super) fn change(&mut self, number: u32, before: Option<Room>, after: Option<Room>) {
        let listed = |room: Option<Room>| room.filter(|room| room.hole_max > 0);
        let (before, after) = (listed(before), listed(after));
        if before == after {
            return;
        }
        let is_whole = |room: Option<Room>| room.is_some_and(|room| room.whole);
        if is_whole(before) != is_whole(after) {
            if is_whole(after) {
                self.join_rows(number);
            } else {
                self.split_row(number);
            }
        }
        let class = |room: Option<Room>| room.map(|room| class_of(room.hole_max));
        let stays = class(before) == class(after);
        if let Some(room) = before {
            self.remove(number, room, stays);
        }
        if let Some(room) = after {
            self.insert(number, room, stays);
        }
    }

    /// With `stays` only the free sectors are others than before.
    fn remove(&mut self, number: u32, room: Room, stays: bool) {
        let at = class_of(room.hole_max);
        let class = &mut self.classes[at];
        let was_there = class.by_free.remove(&(room.free, Reverse(number)));
        debug_assert!(was_there, "segment {number} stands under {room:?}");
        if stays {
            return;
        }
        class.by_number.remove(&number);
        self.members -= 1;
        if class.by_number.is_empty() {
            self.occupied &= !(1 << at);
        }
    }

    fn insert(&mut self, number: u32, room: Room, stays: bool) {
        let at = class_of(room.hole_max);
        let class = &mut self.classes[at];
        let is_new = class.by_free.insert((room.free, Reverse(number)));
        debug_assert!(is_new, "segment {number} stands here once");
        if !stays {
            class.by_number.insert(number);
            self.members += 1;
            self.occupied |= 1 << at;
        }
    }

    /// The classes all of whose members have a hole of `min` sectors.
    fn above(&self, min: u32) -> impl Iterator<Item = &Class> {
        let mut left = self.occupied & u64::MAX.checked_shl(class_of(min) as u32 + 1).unwrap_or(0);
        std::iter::from_fn(move || {
            let at = left.trailing_zeros();
            let class = self.classes.get(at as usize)?;
            left &= left - 1;
            Some(class)
        })
    }

    fn own(&self, min: u32) -> &Class {
        &self.classes[class_of(min)]
    }

    /// The emptiest segment that has a hole of `min` sectors, with the lowest number of several. `hole_of` is asked
    /// about few.
    pub(super) fn emptiest(&self, min: u32, hole_of: impl Fn(u32) -> u32) -> Option<u32> {
        let mut own = self.own(min).by_free.iter().rev().take(TRIES);
        let own = own.find(|(_, number)| hole_of(number.0) >= min);
        let others = self.above(min).filter_map(|class| class.by_free.last());
        others.chain(own).max().map(|(_, number)| number.0)
    }

    /// The fullest segment that has one, with the highest number of several.
    pub(super) fn fullest(&self, min: u32, hole_of: impl Fn(u32) -> u32) -> Option<u32> {
        let mut own = self.own(min).by_free.iter().take(TRIES);
        let own = own.find(|(_, number)| hole_of(number.0) >= min);
        let others = self.above(min).filter_map(|class| class.by_free.first());
        others.chain(own).min().map(|(_, number)| number.0)
    }

    /// The one with the lowest number.
    pub(super) fn lowest(&self, min: u32, hole_of: impl Fn(u32) -> u32) -> Option<u32> {
        let mut own = self.own(min).by_number.iter().take(TRIES);
        let own = own.find(|number| hole_of(**number) >= min);
        let others = self.above(min).filter_map(|class| class.by_number.first());
        others.chain(own).min().copied()
    }

    /// The start of the shortest row of at least `count` whole segments, the lowest of several.
    pub(super) fn row(&self, count: u32) -> Option<u32> {
        self.rows_by_length.range((count, 0)..).next().map(|(_, start)| *start)
    }

    /// Whether such a row starts below a segment. Looks at all that do.
    pub(super) fn has_row_below(&self, count: u32, below: u32) -> bool {
        self.rows.range(..below).any(|(_, length)| *length >= count)
    }

    /// The start of the row that ends where the segments end, if there is one.
    pub(super) fn last_row(&self, segments: u32) -> Option<u32> {
        let (start, length) = self.rows.last_key_value()?;
        (start + length == segments).then_some(*start)
    }

    fn join_rows(&mut self, number: u32) {
        let (mut start, mut end) = (number, number + 1);
        if let Some((before, length)) = self.rows.range(..number).next_back()
            && before + length == number
        {
            start = *before;
            self.remove_row(start);
        }
        if self.rows.contains_key(&end) {
            end += self.remove_row(end);
        }
        self.insert_row(start..end);
    }

    fn split_row(&mut self, number: u32) {
        let row = self.rows.range(..=number).next_back();
        let start = *row.expect("a whole segment stands in a row").0;
        let end = start + self.remove_row(start);
        debug_assert!(number < end, "segment {number} stands in {start}..{end}");
        self.insert_row(start..number);
        self.insert_row(number + 1..end);
    }

    fn insert_row(&mut self, row: Range<u32>) {
        if !row.is_empty() {
            self.rows.insert(row.start, row.end - row.start);
            self.rows_by_length.insert((row.end - row.start, row.start));
        }
    }

    /// The length of the row that started there.
    fn remove_row(&mut self, start: u32) -> u32 {
        let length = self.rows.remove(&start).expect("the row was found");
        self.rows_by_length.remove(&(length, start));
        length
    }

    /// Panics when the segments do not stand where they should.
    #[cfg(test)]
    pub(super) fn check_invariants(&self, rooms: &[Option<Room>]) {
        let mut members = 0;
        let mut row_ends = BTreeMap::new();
        for (number, room) in rooms.iter().enumerate() {
            let number = number as u32;
            let Some(room) = room.filter(|room| room.hole_max > 0) else {
                continue;
            };
            members += 1;
            let class = &self.classes[class_of(room.hole_max)];
            assert!(class.by_number.contains(&number), "segment {number}: {room:?}");
            assert!(
                class.by_free.contains(&(room.free, Reverse(number))),
                "segment {number}"
            );
            if room.whole {
                let start = row_ends.remove(&number).unwrap_or(number);
                row_ends.insert(number + 1, start);
            }
        }
        let lengths = row_ends.into_iter().map(|(end, start)| (start, end - start));
        assert_eq!(self.rows, lengths.collect(), "rows");
        let turned = self.rows.iter().map(|(start, length)| (*length, *start));
        assert_eq!(self.rows_by_length, turned.collect(), "rows by length");
        assert_eq!(self.members, members);
        let sizes = |class: &Class| (class.by_number.len(), class.by_free.len());
        for (at, class) in self.classes.iter().enumerate() {
            let (numbers, frees) = sizes(class);
            assert_eq!(
                (numbers, numbers > 0),
                (frees, self.occupied >> at & 1 == 1),
                "class {at}"
            );
            members -= numbers;
        }
        assert_eq!(members, 0, "each once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::{Random, SeededRandom};

    /// So few segments that all of a class are looked at: the answers are those of a search.
    #[test]
    fn the_best_of_all_is_found() {
        let random = SeededRandom::new(11);
        let below = |bound: u64| (random.next_u64() % bound) as u32;
        for _ in 0..200 {
            let mut index = RoomIndex::new();
            let mut rooms: Vec<Option<Room>> = vec![None; 1 + below(TRIES as u64) as usize];
            for _ in 0..60 {
                let at = below(rooms.len() as u64) as usize;
                let hole_max = [below(8), below(128), 128][below(3) as usize];
                let room = (below(5) > 0).then(|| Room {
                    free: hole_max + below(u64::from(129 - hole_max)),
                    hole_max,
                    whole: hole_max == 128,
                });
                index.change(at as u32, rooms[at], room);
                rooms[at] = room;
                index.check_invariants(&rooms);
                let min = 1 + below(128);
                let hole_of = |number: u32| rooms[number as usize].map_or(0, |room| room.hole_max);
                let fitting: Vec<(u32, u32)> = (0..rooms.len() as u32)
                    .filter(|number| hole_of(*number) >= min)
                    .map(|number| (rooms[number as usize].map_or(0, |room| room.free), number))
                    .collect();
                let by_free = |(free, number): &(u32, u32)| (*free, Reverse(*number));
                let of = |found: Option<&(u32, u32)>| found.map(|(_, number)| *number);
                assert_eq!(
                    index.emptiest(min, hole_of),
                    of(fitting.iter().max_by_key(|f| by_free(f)))
                );
                assert_eq!(
                    index.fullest(min, hole_of),
                    of(fitting.iter().min_by_key(|f| by_free(f)))
                );
                assert_eq!(index.lowest(min, hole_of), of(fitting.first()));
            }
        }
    }

    #[test]
    fn classes_rise_with_the_length() {
        let classes: Vec<usize> = (1..=SECTORS_MAX).map(class_of).collect();
        assert!(classes.is_sorted());
        assert_eq!((classes[0], classes.last()), (1, Some(&(CLASSES - 1))));
    }
}
