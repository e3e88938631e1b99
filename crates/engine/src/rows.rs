//! A batch of rows.
//!
//! Invariant: `rows[i]` describes row `i`; key bytes, and value bytes that were copied in, lie in `arena`; values of a
//! page lie in `pages`; `shared_bytes` is the length of the values that do not lie in `arena`.

use bytes::Bytes;
use std::ops::Range;

/// When [`crate::Cursor::fill`] stops.
#[derive(Clone, Copy, Debug)]
pub struct FillLimits {
    /// At most so many rows; 0 means 1.
    pub rows_max: usize,
    /// Stop after the row that brings keys and values to so many bytes.
    pub bytes_max: usize,
}

impl FillLimits {
    /// True when `rows` are as many as a [`crate::Cursor::fill`] under these limits returns.
    pub fn are_reached_by(&self, rows: &Rows) -> bool {
        rows.len() >= self.rows_max || rows.byte_size() >= self.bytes_max
    }
}

impl Default for FillLimits {
    fn default() -> Self {
        Self {
            rows_max: 256,
            bytes_max: 256 * 1024,
        }
    }
}

/// Rows that a cursor filled in, valid until it is filled again. Reusing one keeps its memory.
#[derive(Default)]
pub struct Rows {
    arena: Vec<u8>,
    rows: Vec<Row>,
    pages: Vec<Bytes>,
    shared_bytes: usize,
}

/// A page of an engine's memory that [`Rows`] keep alive: see [`Rows::add_page`].
#[derive(Clone, Copy, Debug)]
pub struct PageIndex(u32);

struct Row {
    key: Range<usize>,
    value: Value,
}

enum Value {
    Copied(Range<usize>),
    Shared(Bytes),
    OfPage { page: PageIndex, start: u32, end: u32 },
}

impl Rows {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the rows and keeps the memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.rows.clear();
        self.pages.clear();
        self.shared_bytes = 0;
    }

    /// Adds a row whose value is copied.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let key = self.copy(key);
        let value = Value::Copied(self.copy(value));
        self.rows.push(Row { key, value });
    }

    /// Adds a row whose value is shared with the engine's memory.
    pub fn push_shared(&mut self, key: &[u8], value: Bytes) {
        let key = self.copy(key);
        self.shared_bytes += value.len();
        self.rows.push(Row {
            key,
            value: Value::Shared(value),
        });
    }

    /// Keeps a page of the engine's memory until the rows are cleared, for [`Rows::push_of_page`]: one count of users
    /// for all rows of the page instead of one for each.
    pub fn add_page(&mut self, page: &Bytes) -> PageIndex {
        self.pages.push(page.clone());
        PageIndex(self.pages.len() as u32 - 1)
    }

    /// Adds a row whose value is the bytes `start..end` of a page, and whose key comes in two parts. Panics when the
    /// page has no such bytes.
    #[inline]
    pub fn push_of_page(&mut self, key: [&[u8]; 2], page: PageIndex, value: Range<usize>) {
        assert!(
            value.start <= value.end && value.end <= self.pages[page.0 as usize].len(),
            "a value lies in its page"
        );
        let start = self.arena.len();
        self.arena.extend_from_slice(key[0]);
        self.arena.extend_from_slice(key[1]);
        self.shared_bytes += value.len();
        self.rows.push(Row {
            key: start..self.arena.len(),
            value: Value::OfPage {
                page,
                start: value.start as u32,
                end: value.end as u32,
            },
        });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        start..self.arena.len()
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Key of row `index`. Panics past the end.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.arena[self.rows[index].key.clone()]
    }

    /// Value of row `index`. Panics past the end.
    pub fn value(&self, index: usize) -> &[u8] {
        match &self.rows[index].value {
            Value::Copied(range) => &self.arena[range.clone()],
            Value::Shared(bytes) => bytes,
            Value::OfPage { page, start, end } => &self.pages[page.0 as usize][*start as usize..*end as usize],
        }
    }

    /// Value of row `index`, kept beyond the next `fill`; copies only what is not shared. Panics past the end.
    pub fn value_bytes(&self, index: usize) -> Bytes {
        match &self.rows[index].value {
            Value::Copied(range) => Bytes::copy_from_slice(&self.arena[range.clone()]),
            Value::Shared(bytes) => bytes.clone(),
            Value::OfPage { page, start, end } => self.pages[page.0 as usize].slice(*start as usize..*end as usize),
        }
    }

    /// Key and value bytes held.
    pub fn byte_size(&self) -> usize {
        self.arena.len() + self.shared_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_every_sort_lie_side_by_side() {
        let mut rows = Rows::new();
        for round in 0..2 {
            rows.clear();
            rows.push(b"a", b"copied");
            rows.push_shared(b"b", Bytes::from_static(b"shared"));
            let page = rows.add_page(&Bytes::from_static(b"..paged.."));
            rows.push_of_page([b"c", b"d"], page, 2..7);
            rows.push_of_page([b"", b"e"], page, 9..9);
            let all: Vec<_> = (0..rows.len())
                .map(|index| (rows.key(index), rows.value(index)))
                .collect();
            let expected: [(&[u8], &[u8]); 4] = [(b"a", b"copied"), (b"b", b"shared"), (b"cd", b"paged"), (b"e", b"")];
            assert_eq!(all, expected, "round {round}");
            assert_eq!(rows.value_bytes(2), Bytes::from_static(b"paged"));
            assert_eq!(rows.byte_size(), 5 + 6 + 6 + 5);
        }
    }

    #[test]
    #[should_panic(expected = "a value lies in its page")]
    fn a_value_beyond_its_page_is_refused() {
        let mut rows = Rows::new();
        let page = rows.add_page(&Bytes::from_static(b"abc"));
        rows.push_of_page([b"k", b""], page, 1..4);
    }
}
