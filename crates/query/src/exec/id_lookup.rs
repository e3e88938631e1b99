//! IDHACK: one document by its `_id`, with two look-ups and nothing in between.

use crate::plan::encode::encode_with;
use crate::plan::request::FindRequest;
use crate::project::TopFields;
use crate::raw::Elements;
use bson::raw::RawBsonRef;
use storage::Index;

/// A look-up by `_id`.
pub(crate) struct IdLookup {
    /// The encoded `_id`.
    pub(crate) key: Vec<u8>,
    /// In a clustered collection: without an index.
    pub(crate) is_clustered: bool,
    pub(crate) keys_examined: u64,
    pub(crate) docs_examined: u64,
    pub(crate) done: bool,
    /// What of the document goes out; `None`: all of it.
    pub(crate) fields: Option<TopFields>,
}

impl IdLookup {
    /// For an `_id` of this value in what leads to documents by `_id`.
    pub(crate) fn new(id: RawBsonRef<'_>, index: &Index) -> Self {
        Self {
            key: encode_with(id, index.extractor().collator()),
            is_clustered: index.is_clustered(),
            keys_examined: 0,
            docs_examined: 0,
            done: false,
            fields: None,
        }
    }
}

/// Whether a request is a look-up by `_id`, which nothing is planned for.
pub fn is_lookup_by_id(request: &FindRequest<'_>) -> bool {
    plain_id(request).is_some()
}

/// The path and the operand of a filter that is one condition, where nothing but an order, an upper limit, a projection
/// and a collation may be asked for beside it.
pub(super) fn only_condition<'a>(request: &FindRequest<'a>) -> Option<(&'a str, RawBsonRef<'a>)> {
    let is_plain = request.skip == 0
        && request.limit != Some(0)
        && request.hint.is_none()
        && request.min.is_none()
        && request.max.is_none()
        && !request.show_record_id
        && !request.return_key
        && !request.tailable;
    if !is_plain {
        return None;
    }
    let mut fields = Elements::new(request.filter);
    let (field, None) = (fields.next()?.ok()?, fields.next()) else {
        return None;
    };
    Some((std::str::from_utf8(field.name()).ok()?, field.value().ok()?))
}

/// The `_id` that a request asks for, when that is all it does: a value that is equal to nothing else, and no option
/// but an upper limit and a projection.
pub(crate) fn plain_id<'a>(request: &FindRequest<'a>) -> Option<RawBsonRef<'a>> {
    let (path, value) = only_condition(request)?;
    if path != "_id" || request.collation.is_some() {
        return None;
    }
    match value {
        RawBsonRef::Document(document) => {
            let operator = document.iter().next()?.ok()?.0.as_str().starts_with('$');
            (!operator).then_some(value)
        }
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined | RawBsonRef::Null => None,
        RawBsonRef::DbPointer(_) | RawBsonRef::JavaScriptCodeWithScope(_) => None,
        _ => Some(value),
    }
}
