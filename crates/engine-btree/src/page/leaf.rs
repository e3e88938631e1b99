//! A leaf in memory: rows in key order, immutable, made for searching.
//!
//! `data` holds the prefix that all keys share, then the cells in key order. A cell is: one byte `suffix length * 2 +
//! is-large` (`LONG_SUFFIX` in the upper seven bits: the length follows in four bytes), the key's suffix, the value.
//! Beside them, in one piece of memory, lie a [`Head`] and the index: a [`Slot`] for each cell and one for the end of
//! `data`. `prefix_head` has the prefix's first bytes: most searches then touch the head, a few lines of the index and
//! the one cell.
//!
//! Invariants: keys strictly rise; `prefix` is common to all keys, and the longest that is, but in an image of some
//! sections of a leaf ([`super::SectionRows`]), which nobody writes; heads never fall; every offset and length lies
//! inside `data` (the builder and the decoder see to that, so that readers need not check).

#[cfg(test)]
use super::LeafBuilder;
#[cfg(test)]
use super::bytes::common_prefix;
use super::bytes::{head_u32, head_u64, read_u32};
use super::{KeyParts, LargeRef};
use crate::budget::good_size;
use bytes::Bytes;
use std::cmp::Ordering;
use std::ops::Range;
use triomphe::ThinArc;

/// In the upper seven bits of a cell's first byte: the suffix's length does not fit there.
pub(super) const LONG_SUFFIX: usize = 0x7f;

/// Largest sum of key and cell value bytes of a leaf: offsets fit into 32 bits, and hostile bytes cannot make a reader
/// allocate more.
pub(crate) const LEAF_ROW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Slots that are searched by looking at all of them: their lines come from memory at once, those of a binary search
/// one after the other.
const SCANNED_SLOTS: usize = 64;

/// Memory that is fetched before a row is looked at: this many lines at most.
const FETCHED_LINES: usize = 8;
const CACHE_LINE_BYTES: usize = 64;

/// Where a cell lies, and what is compared first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// [`head_u32`] of the suffix; the largest number behind the last cell.
    pub(super) head: u32,
    /// Where the cell begins, or `data` ends.
    pub(super) offset: u32,
}

impl Slot {
    /// Behind the last cell.
    pub(super) fn end(data_bytes: usize) -> Self {
        Self {
            head: u32::MAX,
            offset: data_bytes as u32,
        }
    }
}

/// See the module. Cheap to clone: clones share all of it.
#[derive(Clone, Debug)]
pub(crate) struct LeafImage {
    rows: ThinArc<Head, Slot>,
}

/// What is in front of the index.
#[derive(Debug)]
struct Head {
    data: Bytes,
    prefix_len: usize,
    /// [`head_u64`] of the prefix.
    prefix_head: u64,
    row_bytes: usize,
}

/// The value of a row as its cell holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CellValue<'a> {
    /// The value's place in [`LeafImage::data`].
    Inline(Range<usize>),
    /// It lies outside the leaf.
    Large(LargeRef<'a>),
}

/// A value on its way into a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewValue<'a> {
    /// Kept in the leaf.
    Inline(&'a [u8]),
    /// Kept outside the leaf.
    Large(LargeRef<'a>),
}

impl<'a> NewValue<'a> {
    /// Bytes the cell takes for it.
    pub(crate) fn cell_bytes(&self) -> &'a [u8] {
        match self {
            NewValue::Inline(value) => value,
            NewValue::Large(large) => large.cell(),
        }
    }

    pub(super) fn is_large(&self) -> bool {
        matches!(self, NewValue::Large(_))
    }
}

/// A cell's pieces, as places in `data`.
pub(super) struct Cell {
    pub(super) suffix_start: usize,
    pub(super) value_start: usize,
    pub(super) end: usize,
    pub(super) is_large: bool,
}

impl LeafImage {
    pub(crate) fn empty() -> Self {
        Self::from_parts(Bytes::new(), &[Slot::end(0)], 0, 0)
    }

    /// From parts that keep the module's invariants.
    pub(super) fn from_parts(data: Bytes, index: &[Slot], prefix_len: usize, row_bytes: usize) -> Self {
        let head = Head {
            prefix_head: head_u64(&data[..prefix_len]),
            data,
            prefix_len,
            row_bytes,
        };
        Self {
            rows: ThinArc::from_header_and_slice(head, index),
        }
    }

    #[inline]
    fn head(&self) -> &Head {
        &self.rows.header.header
    }

    #[inline]
    fn index(&self) -> &[Slot] {
        &self.rows.slice
    }

    /// Whether both are clones of one image.
    pub(crate) fn is_same(&self, other: &LeafImage) -> bool {
        std::ptr::eq(self.head(), other.head())
    }

    /// An image of rows in strictly rising order. For many, keep a [`LeafBuilder`].
    #[cfg(test)]
    pub(crate) fn from_rows<'a>(rows: impl IntoIterator<Item = (&'a [u8], NewValue<'a>)>) -> Self {
        let mut builder = LeafBuilder::new();
        for (key, value) in rows {
            builder.push(KeyParts::from(key), value);
        }
        builder.finish()
    }

    /// Number of rows.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.index().len() - 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap, as the allocator rounds them.
    pub(crate) fn memory_bytes(&self) -> usize {
        // Of the index, and the number of clones.
        const COUNTS: usize = 2 * size_of::<usize>();
        const BYTES_SHARED: usize = 3 * size_of::<usize>();
        good_size(self.data().len())
            + good_size(COUNTS + size_of::<Head>() + size_of_val(self.index()))
            + good_size(BYTES_SHARED)
    }

    /// Keys and cell values as if stored plainly: the measure for splits and merges.
    pub(crate) fn row_bytes(&self) -> usize {
        self.head().row_bytes
    }

    /// Where values lie; `data.slice(range)` shares one without copying.
    pub(crate) fn data(&self) -> &Bytes {
        &self.head().data
    }

    /// The prefix that all keys share.
    pub(crate) fn prefix(&self) -> &[u8] {
        let head = self.head();
        &head.data[..head.prefix_len]
    }

    #[inline]
    pub(super) fn cell(&self, index: usize) -> Cell {
        let (slots, data) = (self.index(), self.data());
        let [start, end] = [slots[index], slots[index + 1]].map(|slot| slot.offset as usize);
        let first = usize::from(data[start]);
        let (suffix_len, suffix_start) = match first >> 1 {
            LONG_SUFFIX => (read_u32(&data[start + 1..]) as usize, start + 5),
            short => (short, start + 1),
        };
        Cell {
            suffix_start,
            value_start: suffix_start + suffix_len,
            end,
            is_large: first & 1 != 0,
        }
    }

    #[inline]
    pub(super) fn suffix(&self, index: usize) -> &[u8] {
        let cell = self.cell(index);
        &self.data()[cell.suffix_start..cell.value_start]
    }

    /// The row of `key`, or where it would stand. As `binary_search`.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        self.search(key, |_| ())
    }

    /// The value of `key`. Its memory is asked for before it is sure that the row is the one: waiting for all of it at
    /// once takes no longer than for its beginning.
    pub(crate) fn get(&self, key: &[u8]) -> Option<CellValue<'_>> {
        let fetch = |row| {
            let data = self.data();
            let [start, end] = [row, row + 1].map(|row: usize| self.index()[row].offset as usize);
            for line in data[start..end].chunks(CACHE_LINE_BYTES).take(FETCHED_LINES) {
                std::hint::black_box(line[line.len() - 1]);
            }
        };
        let row = self.search(key, fetch).ok()?;
        Some(self.value(row))
    }

    /// Asks for the memory of rows that are read next: what is waited for at once takes no longer than one. Panics past
    /// the end.
    #[inline]
    pub(crate) fn fetch(&self, rows: Range<usize>) {
        let data = self.data();
        for slot in &self.index()[rows] {
            std::hint::black_box(data[slot.offset as usize]);
        }
    }

    /// As [`LeafImage::find`]; `probe` is called with the only row that may be the one, before it is looked at.
    #[inline]
    fn search(&self, key: &[u8], probe: impl FnOnce(usize)) -> Result<usize, usize> {
        let Some((head, rest)) = key.split_at_checked(self.head().prefix_len) else {
            // Shorter than the prefix: before all rows or after all, never among them.
            return Err(if key > self.prefix() { self.len() } else { 0 });
        };
        match self.compare_prefix(head) {
            Ordering::Less => Err(0),
            Ordering::Greater => Err(self.len()),
            Ordering::Equal => self.find_suffix(rest, probe),
        }
    }

    /// How `head`, which is as long as the prefix, compares with it.
    #[inline]
    fn compare_prefix(&self, head: &[u8]) -> Ordering {
        let Head {
            prefix_head,
            prefix_len,
            ..
        } = self.head();
        let order = head_u64(head).cmp(prefix_head);
        if *prefix_len <= size_of::<u64>() {
            order
        } else {
            order.then_with(|| head.cmp(self.prefix()))
        }
    }

    /// Slots of cells whose head is below `head`.
    #[inline]
    fn heads_below(&self, head: u32) -> usize {
        let mut low = 0;
        let mut slots = &self.index()[..self.len()];
        while slots.len() > SCANNED_SLOTS {
            let (left, right) = slots.split_at(slots.len() / 2);
            // Heads never fall: with the right side's first below, so is all of the left.
            if right[0].head < head {
                low += left.len();
                slots = right;
            } else {
                slots = left;
            }
        }
        low + slots.iter().map(|slot| usize::from(slot.head < head)).sum::<usize>()
    }

    #[inline]
    fn find_suffix(&self, suffix: &[u8], probe: impl FnOnce(usize)) -> Result<usize, usize> {
        let wanted = head_u32(suffix);
        let low = self.heads_below(wanted);
        let ties = self.index()[low..self.len()]
            .iter()
            .take_while(|slot| slot.head == wanted)
            .take(2)
            .count();
        match ties {
            0 => Err(low),
            1 => {
                probe(low);
                match self.suffix(low).cmp(suffix) {
                    Ordering::Less => Err(low + 1),
                    Ordering::Equal => Ok(low),
                    Ordering::Greater => Err(low),
                }
            }
            _ => {
                let high = low + self.index()[low..self.len()].partition_point(|slot| slot.head == wanted);
                self.find_among_ties(suffix, low, high)
            }
        }
    }

    /// Among rows of equal heads: by the next eight bytes, and by whole suffixes where those tie, too.
    /// Jumps, unlike the search of heads: guessing ahead beats waiting for each cell in turn.
    fn find_among_ties(&self, suffix: &[u8], low: usize, high: usize) -> Result<usize, usize> {
        let tail_head = |suffix: &[u8]| head_u64(suffix.get(size_of::<u32>()..).unwrap_or_default());
        let wanted = tail_head(suffix);
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = low + (high - low) / 2;
            let candidate = self.suffix(middle);
            let order = tail_head(candidate).cmp(&wanted);
            match order.then_with(|| candidate.cmp(suffix)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// First row at or after `key`.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.find(key).unwrap_or_else(|index| index)
    }

    /// Key of row `index`. Panics past the end.
    pub(crate) fn key(&self, index: usize) -> KeyParts<'_> {
        KeyParts {
            prefix: self.prefix(),
            suffix: self.suffix(index),
        }
    }

    /// Value of row `index`. Panics past the end.
    pub(crate) fn value(&self, index: usize) -> CellValue<'_> {
        self.row(index).1
    }

    /// Its large values.
    pub(crate) fn large_values(&self) -> impl Iterator<Item = LargeRef<'_>> {
        (0..self.len()).filter_map(|index| match self.value(index) {
            CellValue::Large(large) => Some(large),
            CellValue::Inline(_) => None,
        })
    }

    /// Key and value of row `index`. Panics past the end.
    #[inline]
    pub(crate) fn row(&self, index: usize) -> (KeyParts<'_>, CellValue<'_>) {
        let cell = self.cell(index);
        let key = KeyParts {
            prefix: self.prefix(),
            suffix: &self.data()[cell.suffix_start..cell.value_start],
        };
        let place = cell.value_start..cell.end;
        let value = if cell.is_large {
            CellValue::Large(LargeRef::trusted(&self.data()[place]))
        } else {
            CellValue::Inline(place)
        };
        (key, value)
    }

    /// Key and value of row `index`, to put them into another leaf. Panics past the end.
    #[inline]
    pub(crate) fn row_to_copy(&self, index: usize) -> (KeyParts<'_>, NewValue<'_>) {
        let (key, value) = self.row(index);
        let value = match value {
            CellValue::Inline(place) => NewValue::Inline(&self.data()[place]),
            CellValue::Large(large) => NewValue::Large(large),
        };
        (key, value)
    }

    /// The first row before which rows of at least `left_bytes` lie, so that both sides of a split there have rows. At
    /// least two rows.
    #[cfg(test)]
    pub(crate) fn split_point(&self, left_bytes: usize) -> usize {
        assert!(self.len() >= 2, "nothing to split");
        let mut before = 0;
        for index in 0..self.len() - 1 {
            let (key, value) = self.row_to_copy(index);
            before += key.len() + value.cell_bytes().len();
            if before >= left_bytes {
                return index + 1;
            }
        }
        self.len() - 1
    }

    /// The module's invariants; for tests and debug builds.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        assert_eq!(self.index()[self.len()].offset as usize, self.data().len(), "the end");
        assert_eq!(self.head().prefix_head, head_u64(self.prefix()), "head of the prefix");
        let mut row_bytes = 0;
        for index in 0..self.len() {
            let (key, value) = self.row_to_copy(index);
            row_bytes += key.len() + value.cell_bytes().len();
            assert_eq!(self.index()[index].head, head_u32(key.suffix), "head of row {index}");
            assert!(
                index == 0 || self.suffix(index - 1) < key.suffix,
                "row {index} out of order"
            );
            if let NewValue::Large(large) = value {
                assert!(
                    LargeRef::from_cell(large.cell()).is_some(),
                    "large value of row {index}"
                );
            }
        }
        assert_eq!(self.row_bytes(), row_bytes, "row bytes");
        match self.len() {
            0 => assert_eq!(self.data().len(), 0, "an empty leaf"),
            1 => assert!(self.suffix(0).is_empty(), "one key is all prefix"),
            rows => assert_eq!(
                common_prefix(self.suffix(0), self.suffix(rows - 1)),
                0,
                "the longest prefix"
            ),
        }
    }
}
