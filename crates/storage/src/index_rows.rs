//! Rows that are to be written into indexes, in little memory until a batch takes them.
//!
//! One document may have millions of them. Keys and values lie one behind the other, and of each row only where they
//! end is kept beside them. Rows of one index that follow each other are a run; what they have in common is kept once.
//!
//! Invariant: `parts` are those of the runs, in their order; offsets count from the beginning of the run's bytes.

use crate::mutations::mutated;
use crate::record::{append_at_end, append_at_start, split_from_end, split_from_start};
use crate::{Index, MemoryExceeded, RecordId, RecordIds, StorageError};
use bytes::Bytes;
use engine::{Batch, Op, TableId};

/// A row to write into an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexRow<'r> {
    pub(crate) table: TableId,
    /// Place of the index among [`crate::Collection::maintained`].
    pub(crate) position: usize,
    /// No other record may have the key.
    pub(crate) unique: bool,
    /// The record's id ends the row's key; else that of a unique index begins its value.
    pub(crate) record_in_key: bool,
    /// While a unique index is being built, a key may lead to another record than the one that gives it up (the build
    /// has not met the duplicate yet): then the row must stay.
    pub(crate) check_owner: bool,
    pub(crate) key: &'r [u8],
    /// `None` removes the row.
    pub(crate) value: Option<&'r [u8]>,
    /// For [`IndexRows::leave_out`].
    place: usize,
}

impl IndexRow<'_> {
    /// The key without the record's id.
    pub(crate) fn bare_key(&self, ids: RecordIds) -> &[u8] {
        match self.record_in_key {
            // The row was made by this process.
            true => split_from_end(ids, self.key).map_or(self.key, |(key, _)| key),
            false => self.key,
        }
    }

    pub(crate) fn place(&self) -> usize {
        self.place
    }
}

/// Bytes of rows that share one piece of memory. As long as one of the rows is kept somewhere, so are the others'.
const SHARED_BYTES: usize = 32 << 10;
/// Rows from which on they share memory: fewer have each their own, as nearly all documents' have.
const SHARED_FROM: usize = 8;
/// Memory for rows that is kept for the next change.
const KEPT_BYTES_MAX: usize = 256 << 10;
/// Rows of one index beside which the memory of a growing list counts.
const MANY: usize = 1024;
/// What a row takes beside its key and value, here and in a batch at once.
const ROW_BYTES: usize = size_of::<Part>() + size_of::<Op>();

/// A row: its key ends at `key_end`, its value at `end`.
struct Part {
    key_end: u32,
    end: u32,
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Put,
    Remove,
    LeftOut,
}

/// Rows of one index.
struct Run {
    table: TableId,
    position: usize,
    unique: bool,
    record_in_key: bool,
    removal_checks_owner: bool,
    bytes: RunBytes,
    /// Where its parts end.
    parts_end: usize,
}

enum RunBytes {
    /// In the arena, from here on.
    Arena(usize),
    Shared(Bytes),
}

/// See the module. Reused between changes.
pub(crate) struct IndexRows {
    runs: Vec<Run>,
    parts: Vec<Part>,
    arena: Vec<u8>,
    /// Where the run that is being gathered begins, in the arena and among the parts.
    open: (usize, usize),
    bytes: u64,
    /// Bytes of memory that the rows may take.
    pub(crate) bytes_max: u64,
}

impl Default for IndexRows {
    fn default() -> Self {
        Self {
            runs: Vec::new(),
            parts: Vec::new(),
            arena: Vec::new(),
            open: (0, 0),
            bytes: 0,
            bytes_max: u64::MAX,
        }
    }
}

/// What a row says beside its key.
#[derive(Clone, Copy)]
pub(crate) struct RowContent<'c> {
    pub(crate) types: &'c [u8],
    /// Of a clustering index; else empty.
    pub(crate) document: &'c [u8],
}

/// Whose rows are gathered.
#[derive(Clone, Copy)]
pub(crate) struct RowsOf<'i> {
    pub(crate) index: &'i Index,
    /// See [`IndexRow::position`].
    pub(crate) position: usize,
    pub(crate) id: &'i RecordId,
}

impl IndexRows {
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.parts.clear();
        self.arena.clear();
        self.open = (0, 0);
        self.bytes = 0;
        if self.arena.capacity() > KEPT_BYTES_MAX {
            self.arena = Vec::new();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes of memory that the rows take at most, while they go from here into a batch.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// So many rows of one index follow.
    pub(crate) fn reserve(&mut self, rows: usize) {
        if rows > MANY {
            self.parts.reserve_exact(rows);
        }
    }

    /// Adds a row; without content it is one to remove. The last one of an index is followed by [`IndexRows::close`].
    pub(crate) fn push(
        &mut self,
        of: RowsOf<'_>,
        key: &[u8],
        content: Option<RowContent<'_>>,
    ) -> Result<(), StorageError> {
        let unique = of.index.has_unique_rows();
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        if !unique {
            append_at_end(&mut self.arena, of.id);
        }
        let key_end = self.arena.len();
        if let Some(RowContent { types, document }) = content {
            if unique {
                append_at_start(&mut self.arena, of.id);
            }
            // A document tells its own length, type bits do not.
            self.arena.extend_from_slice(document);
            self.arena.extend_from_slice(types);
        }
        let end = self.arena.len();
        let in_run = |at: usize| u32::try_from(at - self.open.0).expect("a run is closed long before 4 GiB");
        self.parts.push(Part {
            key_end: in_run(key_end),
            end: in_run(end),
            what: if content.is_some() { What::Put } else { What::Remove },
        });
        self.bytes += (end - start + ROW_BYTES) as u64;
        if self.bytes > self.bytes_max {
            return Err(StorageError::MemoryExceeded(MemoryExceeded::Operation {
                bytes: self.bytes,
                bytes_max: self.bytes_max,
            }));
        }
        if end - self.open.0 >= SHARED_BYTES {
            self.close(of);
        }
        Ok(())
    }

    /// Makes a run of the rows that were added.
    pub(crate) fn close(&mut self, of: RowsOf<'_>) {
        let (start, parts_start) = self.open;
        let parts_end = self.parts.len();
        if parts_start == parts_end {
            return;
        }
        // Large rows are copied once, here: the arena would hold them until the last one is copied.
        let is_shared = parts_end - parts_start >= SHARED_FROM || self.arena.len() - start >= SHARED_BYTES;
        let bytes = if is_shared {
            let shared = Bytes::copy_from_slice(&self.arena[start..]);
            self.arena.truncate(start);
            RunBytes::Shared(shared)
        } else {
            RunBytes::Arena(start)
        };
        self.runs.push(Run {
            table: of.index.table(),
            position: of.position,
            unique: of.index.refuses_duplicates(),
            record_in_key: !of.index.has_unique_rows(),
            removal_checks_owner: of.index.has_unique_rows() && !of.index.ready(),
            bytes,
            parts_end,
        });
        self.open = (self.arena.len(), parts_end);
    }

    /// The rows of all runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = IndexRow<'_>> {
        let mut parts_start = 0;
        self.runs.iter().flat_map(move |run| {
            let places = parts_start..run.parts_end;
            parts_start = run.parts_end;
            let bytes = match &run.bytes {
                RunBytes::Arena(start) => &self.arena[*start..],
                RunBytes::Shared(bytes) => bytes,
            };
            let mut start = 0;
            places.filter_map(move |place| {
                let part = &self.parts[place];
                let (key_end, end) = (part.key_end as usize, part.end as usize);
                let (key, value) = (&bytes[start..key_end], &bytes[key_end..end]);
                start = end;
                (part.what != What::LeftOut).then_some(IndexRow {
                    table: run.table,
                    position: run.position,
                    unique: run.unique,
                    record_in_key: run.record_in_key,
                    check_owner: run.removal_checks_owner && part.what == What::Remove,
                    key,
                    value: (part.what == What::Put).then_some(value),
                    place,
                })
            })
        })
    }

    /// Whether one of the rows is in a unique index.
    pub(crate) fn has_unique(&self) -> bool {
        self.runs.iter().any(|run| run.unique)
    }

    /// Takes a row out.
    pub(crate) fn leave_out(&mut self, place: usize) {
        self.parts[place].what = What::LeftOut;
    }

    /// Moves the rows into a batch; how many are put and how many deleted.
    pub(crate) fn move_into(&mut self, batch: &mut Batch) -> (u64, u64) {
        let (mut put, mut deleted) = (0, 0);
        batch.reserve(self.parts.len());
        let mut parts = self.parts.drain(..);
        let mut parts_start = 0;
        for run in self.runs.drain(..) {
            let bytes = |from: usize, to: usize| match &run.bytes {
                _ if from == to => Bytes::new(),
                RunBytes::Shared(shared) => shared.slice(from..to),
                RunBytes::Arena(start) => Bytes::copy_from_slice(&self.arena[start + from..start + to]),
            };
            let mut start = 0;
            for part in parts.by_ref().take(run.parts_end - parts_start) {
                let (key_end, end) = (part.key_end as usize, part.end as usize);
                match part.what {
                    What::Put => {
                        put += 1;
                        batch.put(run.table, bytes(start, key_end), bytes(key_end, end));
                    }
                    What::Remove if mutated!(KeepsIndexRows) => {}
                    What::Remove => {
                        deleted += 1;
                        batch.delete(run.table, bytes(start, key_end));
                    }
                    What::LeftOut => {}
                }
                start = end;
            }
            parts_start = run.parts_end;
        }
        drop(parts);
        self.arena.clear();
        self.open = (0, 0);
        (put, deleted)
    }
}

/// What the value of an index row consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RowValue<'v> {
    /// Of an index with unique rows: the bytes of the record's id.
    pub(crate) owner: Option<&'v [u8]>,
    /// Of a clustering index.
    pub(crate) document: Option<&'v [u8]>,
    pub(crate) types: &'v [u8],
}

/// Which parts the values of an index's rows have.
#[derive(Clone, Copy, Default)]
pub(crate) struct RowShape {
    pub(crate) unique: bool,
    pub(crate) clustering: bool,
    /// What the owners are known by.
    pub(crate) ids: RecordIds,
    /// They are the documents of a clustered collection: a row's key is the owner, its value the document.
    pub(crate) is_collection: bool,
}

impl RowShape {
    pub(crate) fn of(index: &Index) -> Self {
        Self {
            unique: index.has_unique_rows(),
            clustering: index.clustering(),
            ids: index.record_ids(),
            is_collection: index.is_clustered(),
        }
    }

    /// The bytes of the owner's id, of a whole row; `None` when that is damaged.
    #[inline]
    pub(crate) fn owner_bytes<'r>(self, key: &'r [u8], value: &'r [u8]) -> Option<&'r [u8]> {
        match (self.is_collection, self.unique) {
            (true, _) => Some(key),
            (false, true) => split_from_start(self.ids, value).map(|(id, _)| id),
            (false, false) => split_from_end(self.ids, key).map(|(_, id)| id),
        }
    }

    /// The record that a row leads to; `None` when it is damaged.
    #[inline]
    pub(crate) fn owner(self, key: &[u8], value: &[u8]) -> Option<RecordId> {
        RecordId::from_key(self.ids, self.owner_bytes(key, value)?)
    }

    /// Takes a value apart; the error says what is wrong with it.
    pub(crate) fn split(self, value: &[u8]) -> Result<RowValue<'_>, String> {
        let (mut found, mut rest) = (RowValue::default(), value);
        if self.is_collection {
            found.document = Some(value);
            return Ok(found);
        }
        if self.unique {
            let short = || format!("a row's value has {} bytes, at least a record id expected", value.len());
            let (id, behind) = split_from_start(self.ids, rest).ok_or_else(short)?;
            (found.owner, rest) = (Some(id), behind);
        }
        if self.clustering {
            let length = rest.first_chunk().map(|length| u32::from_le_bytes(*length));
            let split = length.and_then(|length| rest.split_at_checked(length as usize));
            let short = || format!("a row's value has {} bytes, and a document of {length:?}", value.len());
            let (document, behind) = split.ok_or_else(short)?;
            (found.document, rest) = (Some(document), behind);
        }
        found.types = rest;
        Ok(found)
    }
}

/// The record an index row leads to, by its value in a unique index, by the end of its key in others.
pub(crate) fn row_owner(index: &Index, key: &[u8], value: &[u8]) -> Option<RecordId> {
    RowShape::of(index).owner(key, value)
}

#[cfg(test)]
#[path = "index_rows_tests.rs"]
mod tests;
