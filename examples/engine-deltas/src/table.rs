//! A table: sorted rows in chunks that views share.
//!
//! Invariants: no chunk is empty, and keys rise over all chunks. Whoever writes copies the chunks that a view holds,
//! and no others.

use bytes::Bytes;
use engine::{KeyRange, TableSpec};
use std::ops::Bound;
use std::sync::Arc;

/// A chunk of more rows is split.
const CHUNK_ROWS_MAX: usize = 128;

pub(crate) type Row = (Bytes, Bytes);
pub(crate) type Chunk = Vec<Row>;

/// A row by its place: the chunk, and the row in it. The end is the place behind the last chunk.
pub(crate) type Place = (usize, usize);

#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) spec: TableSpec,
    /// Tells a table from an earlier one of the same id.
    pub(crate) incarnation: u64,
    pub(crate) chunks: Vec<Arc<Chunk>>,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

fn row_bytes(row: &Row) -> u64 {
    (row.0.len() + row.1.len()) as u64
}

impl Table {
    pub(crate) fn new(spec: TableSpec, incarnation: u64) -> Self {
        Self {
            spec,
            incarnation,
            chunks: Vec::new(),
            rows: 0,
            bytes: 0,
        }
    }

    /// From rows whose keys rise.
    pub(crate) fn fill(&mut self, rows: Vec<Row>) {
        self.rows = rows.len() as u64;
        self.bytes = rows.iter().map(row_bytes).sum();
        let mut rest = rows.into_iter();
        loop {
            let chunk: Chunk = rest.by_ref().take(CHUNK_ROWS_MAX).collect();
            if chunk.is_empty() {
                return;
            }
            self.chunks.push(Arc::new(chunk));
        }
    }

    /// The first row whose key is not below, or with `after` the first one above.
    pub(crate) fn find(&self, key: &[u8], after: bool) -> Place {
        let is_before = |other: &Bytes| &other[..] < key || after && &other[..] == key;
        let chunk = self
            .chunks
            .partition_point(|chunk| chunk.last().is_some_and(|(last, _)| is_before(last)));
        let row = self
            .chunks
            .get(chunk)
            .map_or(0, |chunk| chunk.partition_point(|(key, _)| is_before(key)));
        (chunk, row)
    }

    /// The places of a range, the second exclusive and not before the first.
    pub(crate) fn places(&self, range: &KeyRange) -> (Place, Place) {
        let start = match &range.start {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => self.find(key, false),
            Bound::Excluded(key) => self.find(key, true),
        };
        let end = match &range.end {
            Bound::Unbounded => (self.chunks.len(), 0),
            Bound::Included(key) => self.find(key, true),
            Bound::Excluded(key) => self.find(key, false),
        };
        (start, end.max(start))
    }

    pub(crate) fn row(&self, (chunk, row): Place) -> &Row {
        &self.chunks[chunk][row]
    }

    pub(crate) fn next(&self, (chunk, row): Place) -> Place {
        match row + 1 < self.chunks[chunk].len() {
            true => (chunk, row + 1),
            false => (chunk + 1, 0),
        }
    }

    /// There must be a row before it.
    pub(crate) fn previous(&self, (chunk, row): Place) -> Place {
        match row {
            0 => (chunk - 1, self.chunks[chunk - 1].len() - 1),
            row => (chunk, row - 1),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Bytes> {
        let (chunk, row) = self.find(key, false);
        let (found, value) = self.chunks.get(chunk)?.get(row)?;
        (found == key).then_some(value)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: Bytes) {
        let (chunk, row) = self.find(key, false);
        self.bytes += value.len() as u64;
        if let Some((found, old)) = self.chunks.get_mut(chunk).map(|chunk| &mut Arc::make_mut(chunk)[row])
            && found == key
        {
            self.bytes -= old.len() as u64;
            *old = value;
            return;
        }
        self.rows += 1;
        self.bytes += key.len() as u64;
        let new = (Bytes::copy_from_slice(key), value);
        // Behind the last row of all: at the end of the last chunk.
        let (chunk, row) = match (chunk == self.chunks.len(), chunk) {
            (true, 0) => {
                self.chunks.push(Arc::new(vec![new]));
                return;
            }
            (true, _) => (chunk - 1, self.chunks[chunk - 1].len()),
            _ => (chunk, row),
        };
        let rows = Arc::make_mut(&mut self.chunks[chunk]);
        rows.insert(row, new);
        if rows.len() > CHUNK_ROWS_MAX {
            // Keys that rise leave full chunks behind.
            let at = if row + 1 == rows.len() {
                rows.len() - 1
            } else {
                rows.len() / 2
            };
            let behind = rows.split_off(at);
            self.chunks.insert(chunk + 1, Arc::new(behind));
        }
    }

    pub(crate) fn delete_range(&mut self, range: &KeyRange) {
        let (start, end) = self.places(range);
        if start == end {
            return;
        }
        let head = self.chunks[start.0][..start.1].to_vec();
        let tail = self
            .chunks
            .get(end.0)
            .map_or_else(Vec::new, |chunk| chunk[end.1..].to_vec());
        let mut at = start;
        while at < end {
            self.rows -= 1;
            self.bytes -= row_bytes(self.row(at));
            at = self.next(at);
        }
        let last = (end.0 + 1).min(self.chunks.len());
        let kept = [head, tail].into_iter().filter(|chunk| !chunk.is_empty()).map(Arc::new);
        self.chunks.splice(start.0..last, kept);
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        if self.get(key).is_some() {
            let key = Bound::Included(key.to_vec());
            self.delete_range(&KeyRange {
                start: key.clone(),
                end: key,
            });
        }
    }

    /// Rows before a place.
    pub(crate) fn rank(&self, (chunk, row): Place) -> usize {
        self.chunks[..chunk].iter().map(|chunk| chunk.len()).sum::<usize>() + row
    }

    /// The row with so many before it.
    pub(crate) fn at_rank(&self, mut rank: usize) -> Option<&Row> {
        self.chunks.iter().find_map(|chunk| {
            let found = chunk.get(rank);
            rank = rank.saturating_sub(chunk.len());
            found
        })
    }

    /// What is wrong with it.
    pub(crate) fn problem(&self) -> Option<String> {
        let mut last: Option<&Bytes> = None;
        for (key, _) in self.chunks.iter().flat_map(|chunk| chunk.iter()) {
            if last.is_some_and(|last| last >= key) {
                return Some(format!("key {key:02x?} does not follow the one before it"));
            }
            last = Some(key);
        }
        let rows: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        (rows as u64 != self.rows).then(|| format!("{rows} rows, {} are counted", self.rows))
    }
}
