//! From a change of a document to the rows of its collection's indexes.
//!
//! The one place that knows what index rows look like; the write path, replay and index builds all come here, which is
//! why they agree. Reads nothing: what it needs of the old state is the old document.

use crate::diff;
use crate::index_rows::{IndexRows, RowContent, RowsOf};
use crate::mutations::mutated;
use crate::record::row_bytes_max;
use crate::{Check, Collection, Index, MemoryExceeded, RecordId, StorageError};
use bson::RawDocument;
use engine::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use keys::{ExtractError, KeySet, MultikeyPaths};
use std::cell::RefCell;

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

    /// Whether both give the same rows, as far as that can be told without their keys.
    fn surely_agree_in(&self, index: &Index, check: &Check<'_>) -> Result<bool, StorageError> {
        let (Some(old), Some(new)) = (self.old, self.new) else {
            return Ok(false);
        };
        // Its rows have all of the document.
        if index.clustering() && old.as_bytes() != new.as_bytes() {
            return Ok(false);
        }
        if index.is_id() {
            return Ok(same_id(old, new));
        }
        let Some(difference) = self.difference else {
            return Ok(false);
        };
        // Who builds an index takes what he meets, whenever that came to be.
        Ok(index.ready()
            && difference.len() <= SEARCHED_DIFFERENCE_BYTES_MAX
            && !index.is_touched(|path| diff::touches(difference, &mut path.as_bytes().split(|&byte| byte == b'.')))
            && index.covers(old, check)? == index.covers(new, check)?)
    }
}

/// Every path of every index is looked for in a difference of so many bytes.
const SEARCHED_DIFFERENCE_BYTES_MAX: usize = 8 << 10;

/// The rows one change writes, and the array fields it shows. Reused between changes.
#[derive(Default)]
pub(crate) struct IndexWrites {
    pub(crate) rows: IndexRows,
    /// Place of the index among [`Collection::maintained`], and where its paths met arrays.
    pub(crate) multikey: Vec<(usize, MultikeyPaths)>,
    old: KeySet,
    new: KeySet,
    /// A document of many keys was met: the memory it took is not kept.
    is_large: bool,
    /// Room for a difference.
    pub(crate) difference: Vec<u8>,
}

/// Keys of one document from which on the memory for them is not kept for the next one.
const KEPT_KEYS_MAX: usize = 4096;
/// Bytes of a difference from which on its memory is not kept.
const KEPT_DIFFERENCE_BYTES_MAX: usize = 32 << 10;

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
        if !self.is_large && self.difference.capacity() <= KEPT_DIFFERENCE_BYTES_MAX {
            self.rows.bytes_max = u64::MAX;
            SPARE.with_borrow_mut(|spare| *spare = Some(self));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.multikey.clear();
    }

    /// Replaces the contents by what a change of record `id` does to the maintained indexes. The only errors come from
    /// the new version (and from the old one when it is not what was stored).
    pub(crate) fn derive(
        &mut self,
        collection: &Collection,
        id: &RecordId,
        versions: Versions<'_>,
    ) -> Result<(), StorageError> {
        self.derive_checked(collection, id, versions, &|| Ok(()))
    }

    /// As [`IndexWrites::derive`]; a document of many keys asks `check` now and then whether to go on.
    pub(crate) fn derive_checked(
        &mut self,
        collection: &Collection,
        id: &RecordId,
        versions: Versions<'_>,
        check: &Check<'_>,
    ) -> Result<(), StorageError> {
        self.clear();
        let Versions { old, new, .. } = versions;
        for (position, index) in collection.maintained().enumerate() {
            if versions.surely_agree_in(index, check)? {
                debug_assert!(writes_nothing(index, id, old, new), "{} keeps its rows", index.name());
                continue;
            }
            self.derive_watched(position, index, id, (old, new), check)?;
        }
        if self.is_large {
            // The rows have what is needed of the keys.
            (self.old, self.new) = (KeySet::new(), KeySet::new());
        }
        Ok(())
    }

    /// As [`IndexWrites::derive`] for one index, without clearing.
    pub(crate) fn derive_one(
        &mut self,
        position: usize,
        index: &Index,
        id: &RecordId,
        old: Option<&RawDocument>,
        new: Option<&RawDocument>,
    ) -> Result<(), StorageError> {
        self.derive_watched(position, index, id, (old, new), &|| Ok(()))
    }

    /// As [`IndexWrites::derive_one`], as long as `check` lets it.
    pub(crate) fn derive_watched(
        &mut self,
        position: usize,
        index: &Index,
        id: &RecordId,
        (old, new): (Option<&RawDocument>, Option<&RawDocument>),
        check: &Check<'_>,
    ) -> Result<(), StorageError> {
        let (old_document, new_document) = (carried(index, old), carried(index, new));
        let mut room = Room {
            taken: self.rows.bytes(),
            bytes_max: self.rows.bytes_max,
            check,
        };
        let old = extract(index, old, &mut self.old, &room)?;
        room.taken += old.map_or(0, |old| old.bytes() as u64);
        let new = extract(index, new, &mut self.new, &room)?;
        if let Some(new) = new
            && !new.multikey().is_empty()
        {
            self.multikey.push((position, new.multikey().clone()));
        }
        let of = RowsOf { index, position, id };
        let rows = &mut self.rows;
        let keys = old.map_or(0, KeySet::len).max(new.map_or(0, KeySet::len));
        self.is_large |= keys > KEPT_KEYS_MAX;
        if old.is_none() || new.is_none() {
            // All of them are written.
            rows.reserve(keys);
        }
        let mut old = old.into_iter().flat_map(KeySet::iter).peekable();
        let mut new = new.into_iter().flat_map(KeySet::iter).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => {
                    rows.close(of);
                    return Ok(());
                }
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(old), Some(new)) => old.key.cmp(new.key),
            };
            let gone = if order.is_le() { old.next() } else { None };
            let come = if order.is_ge() { new.next() } else { None };
            match (gone, come) {
                (Some(gone), None) => rows.push(of, gone.key, None)?,
                // A row that carries the document is written with every change of it, whatever became of the key.
                (Some(gone), Some(come))
                    if gone.types == come.types
                        && (old_document == new_document || mutated!(KeepsCarriedDocuments)) => {}
                (_, Some(come)) => {
                    let content = RowContent {
                        types: come.types,
                        document: new_document,
                    };
                    check_length(index, row_bytes_max(id), come.key.len(), content)?;
                    rows.push(of, come.key, Some(content))?;
                }
                (None, None) => {}
            }
        }
    }
}

/// Whether the keys of both versions are the same, by their keys; true when one of them has none it could have.
fn writes_nothing(index: &Index, id: &RecordId, old: Option<&RawDocument>, new: Option<&RawDocument>) -> bool {
    let mut writes = IndexWrites::default();
    let derived = writes.derive_one(0, index, id, old, new);
    derived.is_err() || writes.rows.is_empty()
}

/// True when both documents begin with the same `_id`, type included.
pub(crate) fn same_id(old: &RawDocument, new: &RawDocument) -> bool {
    match (diff::first_element(old.as_bytes()), diff::first_element(new.as_bytes())) {
        (Some(old), Some(new)) => old == new && old[1..].starts_with(b"_id\0"),
        _ => false,
    }
}

/// What rows of a version carry of it.
fn carried<'d>(index: &Index, document: Option<&'d RawDocument>) -> &'d [u8] {
    match document {
        Some(document) if index.clustering() => document.as_bytes(),
        _ => &[],
    }
}

/// What the engine would refuse has to be refused here: applying never fails on data.
fn check_length(index: &Index, id_bytes: usize, key_bytes: usize, content: RowContent<'_>) -> Result<(), StorageError> {
    let name = index.name();
    let value_bytes = content.types.len() + content.document.len();
    for (bytes, bytes_max, what) in [
        (key_bytes, KEY_BYTES_MAX, "a key"),
        (value_bytes, VALUE_BYTES_MAX, "what a row has beside its key"),
    ] {
        if bytes + id_bytes > bytes_max {
            let bytes_max = bytes_max.saturating_sub(id_bytes);
            return Err(StorageError::CannotMakeKey(format!(
                "{what} of index {name} has {bytes} bytes, the most is {bytes_max}"
            )));
        }
    }
    Ok(())
}

/// What the keys of one document in one index may take.
struct Room<'c> {
    /// Bytes that rows and keys of the same change have already.
    taken: u64,
    bytes_max: u64,
    check: &'c Check<'c>,
}

impl Room<'_> {
    /// Fails when so many bytes of keys, and the rows that are made of them, have no room, or nobody waits for them.
    fn refuse(&self, key_bytes: u64) -> Result<(), StorageError> {
        let bytes = self.taken.saturating_add(2 * key_bytes);
        if bytes > self.bytes_max {
            return Err(StorageError::MemoryExceeded(MemoryExceeded::Operation {
                bytes,
                bytes_max: self.bytes_max,
            }));
        }
        (self.check)()
    }
}

/// The keys of a document; `None` without a document, or when it does not belong into the index.
fn extract<'k>(
    index: &Index,
    document: Option<&RawDocument>,
    keys: &'k mut KeySet,
    room: &Room<'_>,
) -> Result<Option<&'k KeySet>, StorageError> {
    let Some(document) = document else { return Ok(None) };
    if !index.covers(document, room.check)? {
        return Ok(None);
    }
    let mut refused = None;
    let mut watch = |bytes: usize| {
        refused = room.refuse(bytes as u64).err();
        refused.is_none()
    };
    let extracted = index.extractor().extract_watched(document, keys, &mut watch);
    if let Some(refused) = refused {
        return Err(refused);
    }
    match extracted {
        Ok(()) => Ok(Some(keys)),
        Err(error @ ExtractError::ParallelArrays { .. }) => {
            Err(StorageError::CannotIndexParallelArrays(error.to_string()))
        }
        Err(error @ ExtractError::AmbiguousPosition { .. }) => Err(StorageError::CannotIndex(16746, error.to_string())),
        Err(error @ ExtractError::HashedArray { .. }) => Err(StorageError::CannotIndex(16766, error.to_string())),
        Err(error @ ExtractError::NoGeometry { .. }) => Err(StorageError::CannotIndex(16755, error.to_string())),
        Err(error @ ExtractError::NoLocation { .. }) => Err(StorageError::CannotIndex(16804, error.to_string())),
        Err(error @ ExtractError::OneCoordinate { .. }) => Err(StorageError::CannotIndex(13068, error.to_string())),
        Err(error @ ExtractError::NoPoint { .. }) => Err(StorageError::CannotIndex(13026, error.to_string())),
        Err(error @ ExtractError::OutOfGrid { .. }) => Err(StorageError::CannotIndex(13027, error.to_string())),
        Err(error @ ExtractError::ArrayBesideText { .. }) => Err(StorageError::CannotIndex(201, error.to_string())),
        Err(error @ ExtractError::ArrayBesideWildcard { .. }) => {
            Err(StorageError::CannotIndex(7_246_301, error.to_string()))
        }
        Err(error @ ExtractError::LanguageType) => Err(StorageError::CannotIndex(17261, error.to_string())),
        Err(error @ ExtractError::UnknownLanguage { .. }) => Err(StorageError::CannotIndex(17262, error.to_string())),
        Err(other) => Err(StorageError::CannotMakeKey(other.to_string())),
    }
}

#[cfg(test)]
#[path = "index_keys_tests.rs"]
mod tests;
