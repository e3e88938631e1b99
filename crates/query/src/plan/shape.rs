//! The shape of a query: what two queries that differ only in their values have in common.
//!
//! A 64-bit hash over the raw request. It only finds a remembered choice of plan, and every use checks that choice
//! against the query itself, so a collision costs time, not correctness.

use super::hashes::value_text;
use super::request::FindRequest;
use bson::RawDocument;
use bson::raw::RawBsonRef;
use collation::Collation;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How deep filters are looked into.
const DEPTH_MAX: usize = 32;

/// The hash of a request's shape on a collection.
pub(crate) fn hash_shape(
    collection: [u8; 16],
    version: u64,
    request: &FindRequest<'_>,
    collation: Option<&Collation>,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    (collection, version).hash(&mut hasher);
    hash_filter(request.filter, 0, &mut hasher);
    hash_bytes(1, request.sort, &mut hasher);
    hash_bytes(2, request.projection, &mut hasher);
    hash_bytes(3, collation.map(Collation::document), &mut hasher);
    (
        request.limit.is_some(),
        request.skip > 0,
        request.return_key,
        request.for_write,
    )
        .hash(&mut hasher);
    hasher.finish()
}

fn hash_bytes(tag: u8, document: Option<&RawDocument>, hasher: &mut DefaultHasher) {
    tag.hash(hasher);
    document.map(RawDocument::as_bytes).hash(hasher);
}

fn hash_filter(document: &RawDocument, depth: usize, hasher: &mut DefaultHasher) {
    if depth > DEPTH_MAX {
        return;
    }
    for (name, value) in document.iter().flatten() {
        hasher.write(name.as_str().as_bytes());
        hasher.write_u8(0xFF);
        if name.as_str() == "$expr" {
            // Which fields are compared decides about indexes, and they are in values.
            hasher.write(value_text(value).as_bytes());
            continue;
        }
        match value {
            RawBsonRef::Document(inner) => hash_filter(inner, depth + 1, hasher),
            RawBsonRef::Array(inner) => {
                hasher.write_u8(4);
                // The lists of `$in` may be long; their values do not matter.
                for element in inner.into_iter().flatten().take(8) {
                    match element {
                        RawBsonRef::Document(inner) => hash_filter(inner, depth + 1, hasher),
                        other => hasher.write_u8(keys::canonical_type(other.element_type())),
                    }
                }
            }
            other => hasher.write_u8(keys::canonical_type(other.element_type())),
        }
    }
    hasher.write_u8(0xFE);
}

#[cfg(test)]
mod tests {
    use super::{FindRequest, hash_shape};
    use bson::{RawDocumentBuf, rawdoc};
    use storage::Namespace;

    fn hash(filter: RawDocumentBuf) -> u64 {
        let ns = Namespace::new("d", "c").expect("a name");
        hash_shape([0; 16], 1, &FindRequest::new(ns, &filter), None)
    }

    #[test]
    fn the_fields_that_expr_compares_are_of_the_shape_and_values_are_not() {
        let one = hash(rawdoc! { "$expr": { "$eq": ["$a", "x"] } });
        assert_eq!(one, hash(rawdoc! { "$expr": { "$eq": ["$a", "y"] } }));
        assert_ne!(one, hash(rawdoc! { "$expr": { "$eq": ["$b", "x"] } }));
        assert_ne!(one, hash(rawdoc! { "$expr": { "$gt": ["$a", "x"] } }));
    }
}
