//! The planner's view of the key encoding: single values, type brackets, and where a field of a key ends.

use super::interval::{Interval, Intervals, successor};
use bson::RawDocument;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use keys::key::{Edge, KeyDecoder, KeyInterval};
use keys::{Collator, FieldOrder, IndexPattern, KeyOrdering};
use std::ops::Bound;
use std::sync::LazyLock;
use storage::Index;

/// The ascending encoding of a value in which no string is.
pub(crate) fn encode(value: RawBsonRef<'_>) -> Vec<u8> {
    encode_with(value, None)
}

/// The ascending encoding of a value.
pub(crate) fn encode_with(value: RawBsonRef<'_>, collator: Option<&dyn Collator>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    keys::key::encode_value(&mut bytes, value, FieldOrder::Ascending, collator);
    bytes
}

/// The interval of one value in which no string is.
pub(crate) fn point(value: RawBsonRef<'_>) -> Interval {
    Interval::point(encode(value))
}

/// How the strings of an index' keys compare, as a query sees it.
#[derive(Clone, Copy)]
pub(crate) enum StringKeys<'c> {
    /// As those of the query.
    Alike(Option<&'c dyn Collator>),
    /// In another way: where a string is, keys tell nothing.
    Other,
}

impl StringKeys<'_> {
    /// Whether strings are in the keys as they are.
    pub(crate) fn is_binary(self) -> bool {
        matches!(self, Self::Alike(None))
    }

    /// The encoding of a value, if it can be told.
    pub(crate) fn encode(self, value: RawBsonRef<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Alike(collator) => Some(encode_with(value, collator)),
            Self::Other => (!may_have_strings(value)).then(|| encode(value)),
        }
    }

    /// The interval of one value, if it can be told.
    pub(crate) fn point(self, value: RawBsonRef<'_>) -> Option<Interval> {
        self.encode(value).map(Interval::point)
    }
}

/// Whether a string is the value or in it.
pub(crate) fn may_have_strings(value: RawBsonRef<'_>) -> bool {
    matches!(
        value.element_type(),
        ElementType::String | ElementType::Symbol | ElementType::EmbeddedDocument | ElementType::Array
    )
}

static EVERYTHING: LazyLock<Interval> =
    LazyLock::new(|| Interval::range(encode(RawBsonRef::MinKey), successor(&encode(RawBsonRef::MaxKey))));

/// Every value.
pub(crate) fn everything() -> Interval {
    EVERYTHING.clone()
}

/// True for the set of every value.
pub(crate) fn is_everything(set: &Intervals) -> bool {
    matches!(set.list(), [only] if *only == *EVERYTHING)
}

/// Every value of the type that this value has. Numbers are one type; NaN lies at their front.
pub(crate) fn bracket(element_type: ElementType) -> Interval {
    let canonical = keys::canonical_type(element_type);
    let range = KeyInterval::new(
        &[],
        Edge::Bracket(canonical),
        Edge::Bracket(canonical),
        KeyOrdering::ASCENDING,
        None,
    );
    let bytes = |bound: Bound<Vec<u8>>| match bound {
        Bound::Included(bytes) | Bound::Excluded(bytes) => bytes,
        Bound::Unbounded => Vec::new(),
    };
    Interval::range(bytes(range.start), bytes(range.end))
}

/// The length of the value that `bytes` start with, which is of field `field` of an index. Bytes that are no value are
/// taken as one: they compare as they are and fit no bounds.
pub(crate) fn value_length(pattern: &IndexPattern, field: usize, bytes: &[u8]) -> usize {
    let order = pattern.ordering().field(field);
    keys::key::value_length(bytes, order).unwrap_or(bytes.len())
}

/// True when the document of an index entry has no value for the first field; null has the same key.
pub(crate) fn field_is_missing(pattern: &IndexPattern, key: &[u8], type_bits: &[u8], field: usize) -> bool {
    let mut decoder = KeyDecoder::new(key, type_bits, pattern.ordering());
    let mut values = Vec::new();
    let is_present = (0..=field).map(|_| decoder.append_field("", &mut values));
    matches!(is_present.last(), Some(Ok(false)))
}

/// The values of a document in turn, as one encoded key of an index; `None` when the names are not the index' fields.
pub(crate) fn encode_key_document(index: &Index, document: &RawDocument) -> Option<Vec<u8>> {
    let pattern = index.pattern();
    if pattern.special().is_some() {
        return None;
    }
    let collator = index.extractor().collator();
    let mut key = Vec::with_capacity(32);
    let mut fields = pattern.fields().iter().enumerate();
    for element in document.iter() {
        let (name, value) = element.ok()?;
        let (i, field) = fields.next()?;
        if field.path() != name.as_str() {
            return None;
        }
        keys::key::encode_value(&mut key, value, pattern.ordering().field(i), collator);
    }
    fields.next().is_none().then_some(key)
}
