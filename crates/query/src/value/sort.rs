//! Sort patterns: `{a: 1, "b.c": -1}` turned into keys that memcmp orders.
//!
//! The key of a document is the smallest of the keys an index with the same pattern would have for it: an array counts
//! by its smallest element ascending and by its largest descending, a missing field as null, an empty array before
//! null.

use bson::raw::CString;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use keys::key::FIELDS_MAX;
use keys::{FieldOrder, IndexPattern, KeyExtractor, KeySet, PatternError};
use wire::ErrorCode;

use super::number::Number;
use super::scan::Malformed;
use super::{Comparer, SharedDocument, Value};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::FieldPath;
use crate::metadata::{MetadataField, MetadataNeeds};
use crate::sort_field::{SortField, extended, least_key, metadata_sort};

const TOO_MANY: &str = "a sort has too many keys";

/// What one field of a sort asks for.
pub(crate) enum SortPart<'a> {
    /// The order of what is at the path that its name is.
    Path(FieldOrder),
    /// The order of what is known beside fields, and how it is written.
    Metadata(MetadataField, &'a RawDocument),
}

impl<'a> SortPart<'a> {
    /// The value of the field `name`, which is looked at by [`SortNames::add`] alone.
    pub(crate) fn parse(name: &str, raw: RawBsonRef<'a>) -> Result<Self, QueryError> {
        if let RawBsonRef::Document(special) = raw {
            return match metadata_sort(special)? {
                Some(field) => Ok(Self::Metadata(field, special)),
                None => Err(bad(17312, "$meta is the only expression supported by $sort right now")),
            };
        }
        let value = Value::from_raw(raw);
        match Number::of(&value).map(Number::to_saturated_i64) {
            Some(1) => Ok(Self::Path(FieldOrder::Ascending)),
            Some(-1) => Ok(Self::Path(FieldOrder::Descending)),
            Some(_) => {
                let message = "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
                Err(bad(15975, message))
            }
            None => {
                let message = format!("Illegal key in $sort specification: {name}: {}", value.render());
                Err(bad(15974, message))
            }
        }
    }
}

/// The paths of a sort, to check one more.
#[derive(Default)]
pub(crate) struct SortNames<'a>(Vec<&'a str>);

impl<'a> SortNames<'a> {
    pub(crate) fn add(&mut self, name: &'a str) -> Result<(), QueryError> {
        FieldPath::parse(name)?;
        if self.0.contains(&name) {
            let message = format!("$sort key must not contain duplicate keys (field: '{name}')");
            return Err(bad(7_472_500, message));
        }
        // At once: the names are looked through for each one more.
        if self.0.len() == FIELDS_MAX {
            return Err(bad(13103, TOO_MANY));
        }
        self.0.push(name);
        Ok(())
    }
}

fn direction(order: FieldOrder) -> i32 {
    match order {
        FieldOrder::Ascending => 1,
        FieldOrder::Descending => -1,
    }
}

/// A parsed sort pattern.
#[derive(Clone)]
pub struct SortPattern {
    extractor: KeyExtractor,
    document: RawDocumentBuf,
    /// What it sorts by beside fields.
    metadata: Vec<MetadataField>,
}

impl std::fmt::Debug for SortPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.document.fmt(f)
    }
}

fn bad(code: i32, message: impl Into<String>) -> QueryError {
    QueryError::new(ErrorCode(code), message.into())
}

impl SortPattern {
    /// Parses a pattern of 1 to 32 fields whose values are 1 or -1.
    pub fn parse(pattern: &RawDocument, comparer: &Comparer) -> Result<SortPattern, QueryError> {
        let (mut document, mut keys, mut metadata) = (RawDocumentBuf::new(), RawDocumentBuf::new(), Vec::new());
        let mut names = SortNames::default();
        for element in pattern {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match SortPart::parse(name.as_str(), raw)? {
                SortPart::Metadata(field, special) => {
                    document.append(name, special.to_owned());
                    // What is never known orders nothing; but there has to be a key.
                    if field.is_never_known() && !keys.is_empty() {
                        continue;
                    }
                    let of_field = SortField::of_metadata(field, name.as_str());
                    let path = CString::try_from(of_field.path).map_err(|_| Malformed)?;
                    keys.append(&path, direction(of_field.order));
                    metadata.push(field);
                }
                SortPart::Path(order) => {
                    names.add(name.as_str())?;
                    document.append(name, direction(order));
                    keys.append(name, direction(order));
                }
            }
        }
        if document.is_empty() {
            return Err(bad(15976, "$sort stage must have at least one sort key"));
        }
        let index = IndexPattern::parse(&keys).map_err(|error| match error {
            PatternError::TooManyFields { .. } => bad(13103, TOO_MANY),
            error => bad(ErrorCode::BadValue.0, error.to_string()),
        })?;
        let collator = comparer.shared_collator();
        Ok(SortPattern {
            extractor: KeyExtractor::new(index, false, collator),
            document,
            metadata,
        })
    }

    /// The pattern as a document, values 1 or -1.
    pub fn document(&self) -> &RawDocument {
        &self.document
    }

    /// Appends the sort key of `document`.
    pub fn append_key(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
        keys: &mut KeySet,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        least_key(&self.extractor, document, keys, context)?;
        if let Some(first) = keys.get(0) {
            out.extend_from_slice(first.key);
        }
        Ok(())
    }

    /// What it sorts by beside fields.
    pub(crate) fn metadata_needs(&self) -> MetadataNeeds {
        let needs = self.metadata.iter().copied().map(MetadataNeeds::of);
        needs.fold(MetadataNeeds::default(), MetadataNeeds::and)
    }

    /// As [`SortPattern::append_key`], with what is known of the document beside its fields.
    pub(crate) fn append_key_of(
        &self,
        document: &SharedDocument,
        context: &EvaluationContext<'_>,
        keys: &mut KeySet,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        if self.metadata.is_empty() {
            return self.append_key(document, context, keys, out);
        }
        let mut buffer = Vec::new();
        let fields = self.metadata.iter().copied();
        let extended = extended(document, document.metadata(), fields, &mut buffer)?;
        self.append_key(extended, context, keys, out)
    }

    /// As [`SortPattern::append_key`], of the document that is evaluated on now.
    pub(crate) fn append_key_on(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
        keys: &mut KeySet,
        out: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        if self.metadata.is_empty() {
            return self.append_key(document, context, keys, out);
        }
        let (known, mut buffer) = (context.current(), Vec::new());
        let fields = self.metadata.iter().copied();
        let extended = extended(document, known.as_ref(), fields, &mut buffer)?;
        self.append_key(extended, context, keys, out)
    }

    /// The paths sorted by, with their directions.
    pub fn fields(&self) -> impl Iterator<Item = (&str, FieldOrder)> {
        self.extractor
            .pattern()
            .fields()
            .iter()
            .map(|field| (field.path(), field.order()))
    }
}
