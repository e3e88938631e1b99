//! From a change of a document to the rows of its collection's indexes.
//!
//! The one place that knows what index rows look like; the write path, replay and index builds all come here, which is why
//! they agree. Reads nothing: what it needs of the old state is the old document.

use crate::diff;
use crate::read::RECORD_ID_BYTES;
use crate::{Collection, Index, MemoryExceeded, RecordId, StorageError};
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

/// A record's versions before and after a change.
#[derive(Clone, Copy, Default)]
pub(crate) struct Versions<'d> {
    pub(crate) old: Option<&'d RawDocument>,
    pub(crate) new: Option<&'d RawDocument>,
    /// Of an update, where it is known: how they differ, see `diff.rs`. Indexes on whose paths they do not differ keep
    /// their rows.
    pub(crate) difference: Option<&'d [u8]>,
}

impl<'d> Versions<'d> {
    pub(crate) fn inserted(new: &'d RawDocument) -> Self {
        Self {
            new: Some(new),
            ..Self::default()
        }
    }

    pub(crate) fn deleted(old: &'d RawDocument) -> Self {
        Self {
            old: Some(old),
            ..Self::default()
        }
    }

    /// Whether both give the same keys, as far as that can be told without them.
    fn surely_agree_in(&self, index: &Index) -> bool {
        let (Some(old), Some(new), Some(difference)) = (self.old, self.new, self.difference) else {
            return false;
        };
        if index.is_id() {
            return same_id(old, new);
        }
        // Who builds an index takes what he meets, whenever that came to be.
        index.ready()
            && difference.len() <= SEARCHED_DIFFERENCE_BYTES_MAX
            && index.pattern().fields().iter().all(|field| {
                let mut parts = field.path().as_bytes().split(|&byte| byte == b'.');
                !diff::touches(difference, &mut parts)
            })
            && index.covers(old) == index.covers(new)
    }
}

/// Every path of every index is looked for in a difference of so many bytes.
const SEARCHED_DIFFERENCE_BYTES_MAX: usize = 8 << 10;

/// The rows one change writes, and the array fields it shows. Reused between changes.
pub(crate) struct IndexWrites {
    pub(crate) writes: Vec<IndexWrite>,
    /// Place of the index among [`Collection::maintained`], and where its paths met arrays.
    pub(crate) multikey: Vec<(usize, MultikeyPaths)>,
    /// Bytes of memory that the rows may take.
    pub(crate) bytes_max: u64,
    bytes: u64,
    old: KeySet,
    new: KeySet,
    /// A document of many keys was met: the memory it took is not kept.
    is_large: bool,
    /// Room for a difference.
    pub(crate) difference: Vec<u8>,
    /// Keys and values of the rows that follow in `parts`, one behind the other.
    arena: Vec<u8>,
    parts: Vec<Part>,
}

impl Default for IndexWrites {
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            multikey: Vec::new(),
            bytes_max: u64::MAX,
            bytes: 0,
            old: KeySet::new(),
            new: KeySet::new(),
            is_large: false,
            difference: Vec::new(),
            arena: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// A row whose bytes lie in the arena: the key up to `key_end`, the value up to `end`.
struct Part {
    key_end: usize,
    end: usize,
    is_put: bool,
}

/// Bytes of rows that share one piece of memory. As long as one of the rows is kept somewhere, so are the others' bytes.
const SHARED_BYTES: usize = 32 << 10;
/// Rows from which on they share memory: fewer have each their own, as nearly all documents' have.
const SHARED_FROM: usize = 8;
/// Keys of one document from which on the memory for them is not kept for the next one.
const KEPT_KEYS_MAX: usize = 4096;

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
        if !self.is_large && self.difference.capacity() <= SHARED_BYTES {
            self.bytes_max = u64::MAX;
            SPARE.with_borrow_mut(|spare| *spare = Some(self));
        }
    }

    /// Bytes of memory that the rows take, in here or in a batch.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn clear(&mut self) {
        self.writes.clear();
        self.multikey.clear();
        self.arena.clear();
        self.parts.clear();
        self.bytes = 0;
    }

    /// Replaces the contents by what a change of record `id` does to the maintained indexes. The only errors come from
    /// the new version (and from the old one when it is not what was stored).
    pub(crate) fn derive(
        &mut self,
        collection: &Collection,
        id: RecordId,
        versions: Versions<'_>,
    ) -> Result<(), StorageError> {
        self.clear();
        let Versions { old, new, .. } = versions;
        for (position, index) in collection.maintained().enumerate() {
            if versions.surely_agree_in(index) {
                debug_assert!(writes_nothing(index, id, old, new), "{} keeps its rows", index.name());
                continue;
            }
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
        let old = extract(index, old, &mut self.old)?;
        let new = extract(index, new, &mut self.new)?;
        if let Some(new) = new
            && !new.multikey().is_empty()
        {
            self.multikey.push((position, new.multikey().clone()));
        }
        let row = Row { index, position, id };
        let keys = old.map_or(0, KeySet::len).max(new.map_or(0, KeySet::len));
        self.is_large |= keys > KEPT_KEYS_MAX;
        let mut out = RowSink {
            row,
            writes: &mut self.writes,
            arena: &mut self.arena,
            parts: &mut self.parts,
            bytes: &mut self.bytes,
            bytes_max: self.bytes_max,
        };
        if old.is_none() || new.is_none() {
            // All of them are written.
            out.writes.reserve_exact(keys);
        }
        let mut old = old.into_iter().flat_map(KeySet::iter).peekable();
        let mut new = new.into_iter().flat_map(KeySet::iter).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => {
                    out.flush();
                    return Ok(());
                }
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(new.key),
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some(gone), None) => out.push(gone.key, None)?,
                (Some(gone), Some(come)) if gone.types == come.types => {}
                (_, Some(come)) => {
                    check_length(index, come.key.len(), come.types.len())?;
                    out.push(come.key, Some(come.types))?;
                }
                (None, None) => {}
            }
        }
    }
}

/// Whether the keys of both versions are the same, by their keys; true when one of them has none it could have.
fn writes_nothing(index: &Index, id: RecordId, old: Option<&RawDocument>, new: Option<&RawDocument>) -> bool {
    let mut writes = IndexWrites::default();
    let derived = writes.derive_one(0, index, id, old, new);
    derived.is_err() || writes.writes.is_empty()
}

/// True when both documents begin with the same `_id`, type included.
fn same_id(old: &RawDocument, new: &RawDocument) -> bool {
    match (diff::first_element(old.as_bytes()), diff::first_element(new.as_bytes())) {
        (Some(old), Some(new)) => old == new && old[1..].starts_with(b"_id\0"),
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

/// Where the rows of one index go.
struct RowSink<'w, 'i> {
    row: Row<'i>,
    writes: &'w mut Vec<IndexWrite>,
    arena: &'w mut Vec<u8>,
    parts: &'w mut Vec<Part>,
    bytes: &'w mut u64,
    bytes_max: u64,
}

impl RowSink<'_, '_> {
    /// Adds a row; without type bits it is one to remove.
    fn push(&mut self, key: &[u8], types: Option<&[u8]>) -> Result<(), StorageError> {
        let id = self.row.id.to_key();
        let unique = self.row.index.unique();
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        if !unique {
            self.arena.extend_from_slice(&id);
        }
        let key_end = self.arena.len();
        if let Some(types) = types {
            if unique {
                self.arena.extend_from_slice(&id);
            }
            self.arena.extend_from_slice(types);
        }
        let end = self.arena.len();
        self.parts.push(Part {
            key_end,
            end,
            is_put: types.is_some(),
        });
        *self.bytes += (end - start + size_of::<IndexWrite>()) as u64;
        if *self.bytes > self.bytes_max {
            return Err(StorageError::MemoryExceeded(MemoryExceeded::Operation {
                bytes: *self.bytes,
                bytes_max: self.bytes_max,
            }));
        }
        if end >= SHARED_BYTES {
            self.flush();
        }
        Ok(())
    }

    /// Makes rows of what lies in the arena.
    fn flush(&mut self) {
        let shared = (self.parts.len() >= SHARED_FROM).then(|| Bytes::copy_from_slice(self.arena));
        let bytes = |from: usize, to: usize| match &shared {
            _ if from == to => Bytes::new(),
            Some(shared) => shared.slice(from..to),
            None => Bytes::copy_from_slice(&self.arena[from..to]),
        };
        let index = self.row.index;
        let mut start = 0;
        for Part { key_end, end, is_put } in self.parts.drain(..) {
            self.writes.push(IndexWrite {
                table: index.table(),
                position: self.row.position,
                unique: index.unique(),
                check_owner: !is_put && index.unique() && !index.ready(),
                key: bytes(start, key_end),
                value: is_put.then(|| bytes(key_end, end)),
            });
            start = end;
        }
        self.arena.clear();
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

#[cfg(test)]
#[path = "index_keys_tests.rs"]
mod tests;
