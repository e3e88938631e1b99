//! What is told of a key that another record has.

use crate::error::DuplicateKey;
use crate::index_rows::{IndexRow, RowShape};
use crate::{Collection, Index, StorageError};
use bson::{Bson, Document, RawDocumentBuf};

/// The error for a row that another record has in a unique index.
pub(crate) fn duplicate_key(collection: &Collection, row: &IndexRow<'_>) -> StorageError {
    let index = collection
        .maintained()
        .nth(row.position)
        .expect("positions come from the same collection");
    let value = row.value.and_then(|value| RowShape::of(index).split(value).ok());
    let key = row.bare_key(collection.record_ids());
    duplicate_in(collection, index, key, value.unwrap_or_default().types)
}

/// The error for a key that another record has: of a unique index, or as the `_id` in a clustered collection.
pub(crate) fn duplicate_in(collection: &Collection, index: &Index, key: &[u8], bits: &[u8]) -> StorageError {
    let key_value = match index.collation() {
        None => {
            let values = keys::key::decode_key(key, bits, index.pattern().ordering()).unwrap_or_default();
            let fields = index.pattern().fields().iter().zip(values);
            fields
                .map(|(field, value)| (field.path().to_owned(), value.unwrap_or(Bson::Null)))
                .collect()
        }
        Some(_) => collated_values(index, key),
    };
    StorageError::DuplicateKey(Box::new(DuplicateKey {
        namespace: collection.namespace().clone(),
        index: index.name().to_owned(),
        key_pattern: index.key().to_owned(),
        key_value: RawDocumentBuf::try_from(&key_value).unwrap_or_default(),
        collation: index.collation().map(|collation| collation.document().to_owned()),
    }))
}

/// The values of a key in which strings cannot be read: those that can be, and the bytes of the others.
fn collated_values(index: &Index, key: &[u8]) -> Document {
    let (mut values, mut rest) = (Document::new(), key);
    for (place, field) in index.pattern().fields().iter().enumerate() {
        let order = index.pattern().ordering().field(place);
        let length = keys::key::value_length(rest, order).unwrap_or(rest.len());
        let (bytes, behind) = rest.split_at(length.min(rest.len()));
        let decoded = keys::key::decode_key(bytes, &[], keys::KeyOrdering::new([order])).ok();
        let value = decoded.and_then(|values| values.into_iter().next().flatten());
        let is_string = matches!(value, None | Some(Bson::String(_) | Bson::Document(_)));
        let shown = match value.filter(|_| !is_string) {
            Some(value) => value,
            None => {
                let digits: String = bytes.iter().skip(1).map(|byte| format!("{byte:02x}")).collect();
                format!("CollationKey(0x{digits})").into()
            }
        };
        values.insert(field.path(), shown);
        rest = behind;
    }
    values
}
