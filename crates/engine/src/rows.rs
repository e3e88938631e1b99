//! A batch of rows.
//!
//! Invariant: `rows[i]` describes row `i`; key bytes, and value bytes that were copied in, lie in `arena`; `shared_bytes`
//! is the length of the other values.

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
    shared_bytes: usize,
}

struct Row {
    key: Range<usize>,
    value: Value,
}

enum Value {
    Copied(Range<usize>),
    Shared(Bytes),
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
        }
    }

    /// Value of row `index`, kept beyond the next `fill`; copies only what is not shared. Panics past the end.
    pub fn value_bytes(&self, index: usize) -> Bytes {
        match &self.rows[index].value {
            Value::Copied(range) => Bytes::copy_from_slice(&self.arena[range.clone()]),
            Value::Shared(bytes) => bytes.clone(),
        }
    }

    /// Key and value bytes held.
    pub fn byte_size(&self) -> usize {
        self.arena.len() + self.shared_bytes
    }
}
