//! Clustered collections: documents under the keys of their `_id`, without an index on it.
//!
//! A record id is the key of the document's `_id` there, by the collection's collation. So a document is unique when
//! its row is, and the lock of the record is the lock of the unique key: who inserts takes it, and looks whether the
//! row is there. What such a collection is otherwise is what all are: rows of indexes lead to record ids.

use crate::duplicate_key::duplicate_in;
use crate::index_keys::same_id;
use crate::limits::CLUSTERED_KEY_BYTES_MAX;
use crate::{CollectionGuard, Index, RecordId, StorageError, WriteUnit};
use bson::RawDocument;
use keys::KeySet;

impl WriteUnit<'_> {
    /// The id of a new document of a clustered collection: locked by this unit, and nobody's.
    pub(crate) fn take_clustered_id(
        &mut self,
        c: &CollectionGuard,
        index: &Index,
        document: &RawDocument,
    ) -> Result<RecordId, StorageError> {
        let mut keys = KeySet::new();
        let (id, types) = clustered_id(index, document, &mut keys)?;
        let before = self.evaluator.holding.extent();
        match self.lock_newest(c, &id) {
            Ok(None) => Ok(id),
            Ok(Some(_)) => {
                self.evaluator.fall_back(before);
                Err(duplicate_in(c, index, &id.to_key(), types))
            }
            Err(error) => {
                self.evaluator.fall_back(before);
                Err(error)
            }
        }
    }
}

/// The record id that a document has in a clustered collection, and the type bits of its `_id`, of which `keys` has the
/// memory.
///
/// Errors: [`StorageError::CannotMakeKey`] for an `_id` that is too long or has several keys.
fn clustered_id<'k>(
    index: &Index,
    document: &RawDocument,
    keys: &'k mut KeySet,
) -> Result<(RecordId, &'k [u8]), StorageError> {
    let extracted = index.extractor().extract(document, keys);
    extracted.map_err(|error| StorageError::CannotMakeKey(error.to_string()))?;
    let mut found = keys.iter();
    let (Some(only), None) = (found.next(), found.next()) else {
        return Err(StorageError::CannotMakeKey("an _id has one key".to_owned()));
    };
    let bytes = only.key.len();
    if bytes > CLUSTERED_KEY_BYTES_MAX {
        return Err(StorageError::CannotMakeKey(format!(
            "the key of an _id has {bytes} bytes, in a clustered collection the most is {CLUSTERED_KEY_BYTES_MAX}"
        )));
    }
    Ok((RecordId::Key(only.key.into()), only.types))
}

/// Whether the new version of a document stays where it is; its `_id` may change to a value that is equal to it.
///
/// Errors: [`StorageError::InvalidDocument`] when it does not.
pub(crate) fn keeps_id(index: &Index, id: &RecordId, old: &RawDocument, new: &RawDocument) -> Result<(), StorageError> {
    match same_id(old, new) || clustered_id(index, new, &mut KeySet::new())?.0 == *id {
        true => Ok(()),
        false => Err(StorageError::InvalidDocument(
            "a document of a clustered collection keeps its _id".to_owned(),
        )),
    }
}

/// What is wrong with the place of a document in a clustered collection.
pub(crate) fn misplaced(index: &Index, id: &RecordId, document: &RawDocument) -> Option<String> {
    match clustered_id(index, document, &mut KeySet::new()) {
        Err(error) => Some(error.to_string()),
        Ok((found, _)) if found != *id => Some(format!("the document has the _id of {found:?}")),
        Ok(_) => None,
    }
}

#[cfg(test)]
#[path = "clustered_tests.rs"]
mod tests;
