//! Reading: views of one moment, and cursors over records and index entries.
//!
//! A view is the newest published state when it was taken; it never changes. Take it after the collection's guard (so
//! that the collection's tables exist in it) and before asking an index for its multikey fields (they only grow, and a
//! view shows no array that they do not tell of). Cursors are `'static`: they keep their view alive. To stop for long,
//! remember the last position, drop the cursor, and open a new one after it: nothing stays pinned.

use crate::index_rows::{RowShape, RowValue, row_owner};
use crate::record::{NUMBER_BYTES, RecordKey, append_at_end, split_from_end};
use crate::{Collection, Index, RecordId, RecordIds, StorageError};
use bytes::Bytes;
use engine::{Cursor, Direction, FillLimits, KeyRange, Rows, Seq, Snapshot};
use std::ops::Bound;
use std::sync::Arc;

/// See the module.
#[derive(Clone)]
pub struct ReadView {
    snapshot: Arc<dyn Snapshot>,
}

/// No record id that stands behind a key comes behind these bytes: a key's first byte is less.
const RECORD_ID_LAST: [u8; NUMBER_BYTES] = [0xFF; NUMBER_BYTES];

impl ReadView {
    pub(crate) fn new(snapshot: Arc<dyn Snapshot>) -> Self {
        Self { snapshot }
    }

    /// The last log entry whose effects it shows.
    pub fn seq(&self) -> Seq {
        self.snapshot.seq()
    }

    pub(crate) fn snapshot(&self) -> &Arc<dyn Snapshot> {
        &self.snapshot
    }

    /// A document, shared with the engine's memory where that is possible.
    pub fn record(&self, collection: &Collection, id: &RecordId) -> Result<Option<Bytes>, StorageError> {
        Ok(self.snapshot.get(collection.table(), &id.to_key())?)
    }

    /// Says which documents will be read next, in rising order: see [`Snapshot::expect`].
    pub fn expect_records<'i>(&self, collection: &Collection, ids: impl Iterator<Item = &'i RecordId>) {
        let keys: Vec<RecordKey<'_>> = ids.map(RecordId::to_key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        self.snapshot.expect(collection.table(), &keys);
    }

    /// The record that an index with unique rows (`_id_` and a clustered one included) has for an encoded key: one
    /// look-up.
    pub fn find_unique(&self, index: &Index, key: &[u8]) -> Result<Option<RecordId>, StorageError> {
        match self.snapshot.get(index.table(), key)? {
            None => Ok(None),
            Some(value) => unique_owner(index, key, &value).map(Some),
        }
    }

    /// Clears `batch` and appends the entries that an index with unique rows has under some keys, in their order, which
    /// is that of the index in a `direction`.
    pub fn index_entries_at(
        &self,
        index: &Index,
        keys: &[&[u8]],
        direction: Direction,
        batch: &mut IndexBatch,
    ) -> Result<(), StorageError> {
        debug_assert!(index.has_unique_rows(), "a key is all that a row's begins with");
        batch.shape = RowShape::of(index);
        batch.rows.clear();
        match direction {
            Direction::Forward => self.snapshot.expect(index.table(), keys),
            Direction::Reverse => {
                let rising: Vec<&[u8]> = keys.iter().rev().copied().collect();
                self.snapshot.expect(index.table(), &rising);
            }
        }
        for key in keys {
            if let Some(value) = self.snapshot.get(index.table(), key)? {
                batch.rows.push_shared(key, value);
            }
        }
        Ok(())
    }

    /// A cursor over documents in record-id order, which is insertion order, in a clustered collection that of `_id`.
    pub fn records(
        &self,
        collection: &Collection,
        from: Bound<RecordId>,
        to: Bound<RecordId>,
        direction: Direction,
    ) -> Result<RecordCursor, StorageError> {
        let range = record_range(from, to);
        Ok(RecordCursor {
            cursor: self.snapshot.clone().cursor(collection.table(), range, direction)?,
            ids: collection.record_ids(),
        })
    }

    /// A cursor over an index. `range` is one of encoded keys without record ids. A bound that includes its end, or
    /// excludes its start, must be a complete key (of all the pattern's fields) when the index is not unique; bounds
    /// made by `keys`' range helpers are either that or of the other two kinds.
    pub fn index_entries(
        &self,
        index: &Index,
        range: KeyRange,
        direction: Direction,
    ) -> Result<IndexCursor, StorageError> {
        let range = entry_range(index, range);
        let cursor = self.snapshot.clone().cursor(index.table(), range, direction)?;
        Ok(IndexCursor {
            cursor,
            shape: RowShape::of(index),
            direction,
            scratch: Vec::new(),
        })
    }
}

fn record_range(from: Bound<RecordId>, to: Bound<RecordId>) -> KeyRange {
    let key = |id: RecordId| id.to_key().to_vec();
    KeyRange {
        start: from.map(key),
        end: to.map(key),
    }
}

/// Turns a range of keys into one of rows: in a non-unique index rows end with the record id.
fn entry_range(index: &Index, range: KeyRange) -> KeyRange {
    if index.has_unique_rows() {
        return range;
    }
    let after_all = |mut key: Vec<u8>| {
        key.extend_from_slice(&RECORD_ID_LAST);
        key
    };
    KeyRange {
        start: match range.start {
            Bound::Excluded(key) => Bound::Excluded(after_all(key)),
            other => other,
        },
        end: match range.end {
            Bound::Included(key) => Bound::Included(after_all(key)),
            other => other,
        },
    }
}

/// The record that a unique index's row names.
fn unique_owner(index: &Index, key: &[u8], value: &[u8]) -> Result<RecordId, StorageError> {
    match row_owner(index, key, value) {
        Some(owner) => Ok(owner),
        None => Err(StorageError::CorruptIndexEntry {
            index: index.name().to_owned(),
            reason: format!("a row's value has {} bytes, at least a record id expected", value.len()),
        }),
    }
}

/// Reads documents. See the module.
pub struct RecordCursor {
    cursor: Box<dyn Cursor>,
    ids: RecordIds,
}

/// Documents that a cursor filled in. Reusing one keeps its memory.
#[derive(Default)]
pub struct RecordBatch {
    rows: Rows,
    ids: RecordIds,
}

impl RecordCursor {
    /// Clears `batch` and appends the next documents until a limit is reached. False when nothing is left.
    pub fn fill(&mut self, batch: &mut RecordBatch, limits: FillLimits) -> Result<bool, StorageError> {
        batch.ids = self.ids;
        Ok(self.cursor.fill(&mut batch.rows, limits)?)
    }

    /// Moves so that the next document is the first at or after `id` in the cursor's direction.
    pub fn seek(&mut self, id: &RecordId) -> Result<(), StorageError> {
        Ok(self.cursor.seek(&id.to_key())?)
    }
}

impl RecordBatch {
    /// No documents.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without documents.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The record id of document `index`; 0 for a row whose key is damaged. Panics past the end.
    pub fn id(&self, index: usize) -> RecordId {
        RecordId::from_key(self.ids, self.rows.key(index)).unwrap_or_default()
    }

    /// The bytes of document `index`. Panics past the end.
    pub fn document(&self, index: usize) -> &[u8] {
        self.rows.value(index)
    }

    /// The bytes of document `index`, kept beyond the next `fill`. Panics past the end.
    pub fn document_bytes(&self, index: usize) -> Bytes {
        self.rows.value_bytes(index)
    }
}

/// Reads index entries. See the module.
pub struct IndexCursor {
    cursor: Box<dyn Cursor>,
    shape: RowShape,
    direction: Direction,
    scratch: Vec<u8>,
}

/// Index entries that a cursor filled in. Reusing one keeps its memory.
#[derive(Default)]
pub struct IndexBatch {
    rows: Rows,
    shape: RowShape,
}

impl IndexCursor {
    /// Clears `batch` and appends the next entries until a limit is reached. False when nothing is left.
    pub fn fill(&mut self, batch: &mut IndexBatch, limits: FillLimits) -> Result<bool, StorageError> {
        batch.shape = self.shape;
        Ok(self.cursor.fill(&mut batch.rows, limits)?)
    }

    /// Moves so that the next entry is the first at or after `key` (a complete one, or any prefix of one going forward)
    /// and, when given, the record `id` under it, in the cursor's direction.
    pub fn seek(&mut self, key: &[u8], id: Option<&RecordId>) -> Result<(), StorageError> {
        if self.shape.unique {
            return Ok(self.cursor.seek(key)?);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(key);
        match (id, self.direction) {
            (Some(id), _) => append_at_end(&mut self.scratch, id),
            (None, Direction::Reverse) => self.scratch.extend_from_slice(&RECORD_ID_LAST),
            (None, Direction::Forward) => {}
        }
        Ok(self.cursor.seek(&self.scratch)?)
    }
}

impl IndexBatch {
    /// No entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The encoded key of entry `index`, without the record id. Panics past the end.
    pub fn key(&self, index: usize) -> &[u8] {
        let key = self.rows.key(index);
        if self.shape.unique {
            key
        } else {
            split_from_end(self.shape.ids, key).map_or(&[], |(key, _)| key)
        }
    }

    /// The record entry `index` points to; 0 for a damaged row. Panics past the end.
    pub fn id(&self, index: usize) -> RecordId {
        let (key, value) = (self.rows.key(index), self.rows.value(index));
        self.shape.owner(key, value).unwrap_or_default()
    }

    /// What the key's bytes lose (see crate `keys`); empty in most entries, and for a damaged row. Panics past the
    /// end.
    pub fn type_bits(&self, index: usize) -> &[u8] {
        self.value(index).types
    }

    /// The document that an entry of a clustering index carries, kept beyond the next `fill`; `None` for a damaged
    /// row. Panics past the end.
    pub fn document_bytes(&self, index: usize) -> Option<Bytes> {
        let value = self.rows.value_bytes(index);
        let document = self.shape.split(&value).ok()?.document?;
        Some(value.slice_ref(document))
    }

    /// As [`IndexBatch::document_bytes`], borrowed.
    pub fn document(&self, index: usize) -> Option<&[u8]> {
        self.value(index).document
    }

    fn value(&self, index: usize) -> RowValue<'_> {
        self.shape.split(self.rows.value(index)).unwrap_or_default()
    }
}
