//! Documents that share a key in an index: what stands in the way of its becoming unique.

use crate::limits::{BUILD_CHUNK_BYTES, BUILD_CHUNK_DOCUMENTS};
use crate::storage::Storage;
use crate::{IndexBatch, LockMode, Namespace, Operation, RecordId, StorageError};
use bson::raw::{RawBson, cstr};
use bson::{RawDocument, RawDocumentBuf};
use engine::{Direction, FillLimits, KeyRange};

/// Records under one key that are told of, and bytes of their `_id`s: more than a reply has room for.
const HOLDERS_MAX: usize = 1 << 20;
const ID_BYTES_MAX: usize = 16 << 20;

impl Storage {
    /// Calls `each` with `_id`s of the documents that share a key in an index, once for each such key, in the order of
    /// the keys, until it answers false. Of very many, or very long ones, they are the first. Answers the version of
    /// the collection's definition; while that stays, and the index refuses new duplicates, no others come.
    ///
    /// The index is walked in chunks, with nothing locked in between. Errors: [`StorageError::NamespaceNotFound`],
    /// [`StorageError::IndexNotFound`], [`StorageError::WriteConflict`] when the definition changes meanwhile.
    pub fn duplicates(
        &self,
        op: &Operation,
        ns: &Namespace,
        name: &str,
        each: &mut dyn FnMut(Vec<RawBson>) -> bool,
    ) -> Result<u64, StorageError> {
        let limits = FillLimits {
            rows_max: BUILD_CHUNK_DOCUMENTS,
            bytes_max: BUILD_CHUNK_BYTES,
        };
        let one = FillLimits { rows_max: 1, ..limits };
        let (mut batch, mut found_entry) = (IndexBatch::new(), IndexBatch::new());
        let mut version = None;
        let mut last: Option<(Vec<u8>, RecordId)> = None;
        // The records of the last key.
        let mut holders: Vec<RecordId> = Vec::new();
        loop {
            op.check_now()?;
            let guard = self
                .collection(op, ns, LockMode::IntentShared)?
                .ok_or_else(|| StorageError::NamespaceNotFound(ns.clone()))?;
            if *version.get_or_insert(guard.version()) != guard.version() {
                return Err(StorageError::WriteConflict);
            }
            let index = guard
                .index(name)
                .ok_or_else(|| StorageError::IndexNotFound(name.to_owned()))?;
            let view = self.read()?;
            let mut give = |key: &[u8], holders: &mut Vec<RecordId>| -> Result<bool, StorageError> {
                if holders.len() < 2 {
                    holders.clear();
                    return Ok(true);
                }
                let (mut ids, mut bytes, mut found) = (Vec::new(), 0, 0);
                let mut entry = view.index_entries(index, KeyRange::all(), Direction::Forward)?;
                for record in holders.drain(..) {
                    op.check()?;
                    // It may have gone, or have another key, since it was met: one view says who shares a key.
                    entry.seek(key, Some(&record))?;
                    let is_there =
                        entry.fill(&mut found_entry, one)? && found_entry.key(0) == key && found_entry.id(0) == record;
                    let document = match is_there {
                        true => view.record(&guard, &record)?,
                        false => None,
                    };
                    let Some(document) = document else { continue };
                    found += 1;
                    if bytes < ID_BYTES_MAX
                        && let Ok(document) = RawDocument::from_bytes(&document)
                        && let Ok(Some(id)) = document.get("_id")
                    {
                        let mut alone = RawDocumentBuf::new();
                        alone.append(cstr!(""), id);
                        bytes += alone.as_bytes().len();
                        ids.push(RawBson::from(id));
                    }
                }
                Ok(found < 2 || each(ids))
            };
            let mut cursor = view.index_entries(index, KeyRange::all(), Direction::Forward)?;
            if let Some((key, id)) = &last {
                cursor.seek(key, Some(id))?;
            }
            let is_left = cursor.fill(&mut batch, limits)?;
            let mut places = 0..if is_left { batch.len() } else { 0 };
            if let Some((key, id)) = &last
                && !places.is_empty()
                && batch.key(0) == key.as_slice()
                && batch.id(0) == *id
            {
                places.start = 1;
            }
            if places.is_empty() {
                if let Some((key, _)) = &last {
                    give(key, &mut holders)?;
                }
                return Ok(guard.version());
            }
            for i in places {
                let is_same = last.as_ref().is_some_and(|(key, _)| key == batch.key(i));
                if let Some((key, _)) = &last
                    && !is_same
                    && !give(key, &mut holders)?
                {
                    return Ok(guard.version());
                }
                if holders.len() < HOLDERS_MAX {
                    holders.push(batch.id(i));
                }
                match &mut last {
                    Some((key, id)) => {
                        if !is_same {
                            key.clear();
                            key.extend_from_slice(batch.key(i));
                        }
                        *id = batch.id(i);
                    }
                    none => *none = Some((batch.key(i).to_vec(), batch.id(i))),
                }
            }
        }
    }
}
