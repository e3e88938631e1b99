//! From a change of a document to the rows of its collection's indexes.
//!
//! The one place that knows what index rows look like; the write path, replay and index builds all come here, which is why
//! they agree. Reads nothing: what it needs of the old state is the old document.

use crate::read::RECORD_ID_BYTES;
use crate::{Collection, Index, RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{KEY_BYTES_MAX, TableId, VALUE_BYTES_MAX};
use keys::{ExtractError, KeySet, MultikeyPaths};
use std::cell::RefCell;

/// A row to write into an index.
pub(crate) struct IndexWrite {
    pub(crate) table: TableId,
    /// Place of the index among [`Collection::maintained`].
    pub(crate) position: usize,
    /// No other record may have the key.
    pub(crate) unique: bool,
    /// While a unique index is being built, a key may lead to another record than the one that gives it up (the build has
    /// not met the duplicate yet): then the row must stay.
    pub(crate) check_owner: bool,
    pub(crate) key: Bytes,
    /// `None` removes the row.
    pub(crate) value: Option<Bytes>,
}

/// The rows one change writes, and the array fields it shows. Reused between changes.
#[derive(Default)]
pub(crate) struct IndexWrites {
    pub(crate) writes: Vec<IndexWrite>,
    /// Place of the index among [`Collection::maintained`], and where its paths met arrays.
    pub(crate) multikey: Vec<(usize, MultikeyPaths)>,
    old: KeySet,
    new: KeySet,
}

thread_local! {
    static SPARE: RefCell<Option<Box<IndexWrites>>> = const { RefCell::new(None) };
}

impl IndexWrites {
    /// Memory of an earlier use on this thread, empty.
    pub(crate) fn take() -> Box<Self> {
        SPARE.with_borrow_mut(Option::take).unwrap_or_default()
    }

    /// Keeps the memory for the next use on this thread.
    pub(crate) fn give_back(mut self: Box<Self>) {
        self.clear();
        SPARE.with_borrow_mut(|spare| *spare = Some(self));
    }

    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.multikey.clear();
    }

    /// Replaces the contents by what a change of record `id` from `old` to `new` does to the maintained indexes.
    /// The only errors come from `new` (and from `old` when it is not what was stored).
    pub(crate) fn derive(
        &mut self,
        collection: &Collection,
        id: RecordId,
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
    ) -> Result<(), StorageError> {
        self.clear();
        for (position, index) in collection.maintained().enumerate() {
            self.derive_one(position, index, id, old, new)?;
        }
        Ok(())
    }

    /// As [`IndexWrites::derive`] for one index, without clearing.
    pub(crate) fn derive_one(
        &mut self,
        position: usize,
        index: &Index,
        id: RecordId,
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
    ) -> Result<(), StorageError> {
        if let (Some(old), Some(new), true) = (old, new, index.is_id())
            && same_id(old, new)
        {
            return Ok(());
        }
        let old = extract(index, old, &mut self.old)?;
        let new = extract(index, new, &mut self.new)?;
        if let Some(new) = new
            && !new.multikey().is_empty()
        {
            self.multikey.push((position, new.multikey().clone()));
        }
        let row = Row { index, position, id };
        let mut old = old.into_iter().flat_map(KeySet::iter).peekable();
        let mut new = new.into_iter().flat_map(KeySet::iter).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(new.key),
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some(gone), None) => self.writes.push(row.removed(gone.key)),
                (Some(gone), Some(come)) if gone.types == come.types => {}
                (_, Some(come)) => {
                    check_length(index, come.key.len(), come.types.len())?;
                    self.writes.push(row.put(come.key, come.types));
                }
                (None, None) => {}
            }
        }
    }
}

/// True when both documents begin with the same `_id`, type included.
fn same_id(old: &RawDocument, new: &RawDocument) -> bool {
    match (old.iter().next(), new.iter().next()) {
        (Some(Ok(old)), Some(Ok(new))) => old.0.as_str() == "_id" && old == new,
        _ => false,
    }
}

/// What the engine would refuse has to be refused here: applying never fails on data.
fn check_length(index: &Index, key_bytes: usize, types_bytes: usize) -> Result<(), StorageError> {
    if key_bytes + RECORD_ID_BYTES > KEY_BYTES_MAX || types_bytes + RECORD_ID_BYTES > VALUE_BYTES_MAX {
        let name = index.name();
        return Err(StorageError::CannotMakeKey(format!(
            "a key of index {name} has {key_bytes} bytes, the most is {}",
            KEY_BYTES_MAX - RECORD_ID_BYTES
        )));
    }
    Ok(())
}

/// The keys of a document; `None` without a document, or when it does not belong into the index.
fn extract<'k>(
    index: &Index,
    document: Option<&RawDocument>,
    keys: &'k mut KeySet,
) -> Result<Option<&'k KeySet>, StorageError> {
    let Some(document) = document.filter(|document| index.covers(document)) else {
        return Ok(None);
    };
    match index.extractor().extract(document, keys) {
        Ok(()) => Ok(Some(keys)),
        Err(error @ ExtractError::ParallelArrays { .. }) => {
            Err(StorageError::CannotIndexParallelArrays(error.to_string()))
        }
        Err(other) => Err(StorageError::CannotMakeKey(other.to_string())),
    }
}

struct Row<'i> {
    index: &'i Index,
    position: usize,
    id: RecordId,
}

impl Row<'_> {
    fn key(&self, key: &[u8]) -> Bytes {
        if self.index.unique() {
            return Bytes::copy_from_slice(key);
        }
        let mut row = Vec::with_capacity(key.len() + RECORD_ID_BYTES);
        row.extend_from_slice(key);
        row.extend_from_slice(&self.id.to_key());
        Bytes::from(row)
    }

    fn put(&self, key: &[u8], bits: &[u8]) -> IndexWrite {
        let value = if self.index.unique() {
            let mut value = Vec::with_capacity(RECORD_ID_BYTES + bits.len());
            value.extend_from_slice(&self.id.to_key());
            value.extend_from_slice(bits);
            Bytes::from(value)
        } else {
            Bytes::copy_from_slice(bits)
        };
        self.write(key, Some(value), false)
    }

    fn removed(&self, key: &[u8]) -> IndexWrite {
        self.write(key, None, self.index.unique() && !self.index.ready())
    }

    fn write(&self, key: &[u8], value: Option<Bytes>, check_owner: bool) -> IndexWrite {
        IndexWrite {
            table: self.index.table(),
            position: self.position,
            unique: self.index.unique(),
            check_owner,
            key: self.key(key),
            value,
        }
    }
}

/// The record a unique index's row value names.
pub(crate) fn owner(value: &[u8]) -> Option<RecordId> {
    value.get(..RECORD_ID_BYTES).and_then(RecordId::from_key)
}

/// The record an index row leads to, by its value in a unique index, by the end of its key in others.
pub(crate) fn row_owner(index: &Index, key: &[u8], value: &[u8]) -> Option<RecordId> {
    if index.unique() {
        owner(value)
    } else {
        key.last_chunk::<RECORD_ID_BYTES>()
            .and_then(|id| RecordId::from_key(id))
    }
}
