//! What is known of a document beside its fields: the score of a search, a distance, the key it was found by. `{$meta:
//! ...}` reads it.
//!
//! Most documents have none, and nothing is kept for them. What a query's expressions ask for is known when they are
//! parsed ([`MetadataNeeds`]); the plan gathers that alone.

use bson::RawBson;
use wire::ErrorCode;

use crate::QueryError;
use crate::value::Value;

/// A kind of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataField {
    TextScore,
    NearDistance,
    NearPoint,
    IndexKey,
    RecordId,
    SortKey,
    /// Of Atlas Search and of internal sorts, under MongoDB's name: never known here, and may be asked for anyway.
    Never(&'static str),
}

/// Names of [`MetadataField::Never`], those that can be sorted by first.
const NEVER_KNOWN: [&str; 6] = [
    "randVal",
    "searchScore",
    "vectorSearchScore",
    "searchHighlights",
    "searchScoreDetails",
    "searchSequenceToken",
];
const NEVER_KNOWN_SORTED: &[&str] = NEVER_KNOWN.split_at(3).0;

use MetadataField as Field;

impl MetadataField {
    /// The argument of `$meta`.
    pub(crate) fn parse(name: &str) -> Result<Self, QueryError> {
        Ok(match name {
            "textScore" => Field::TextScore,
            "geoNearDistance" => Field::NearDistance,
            "geoNearPoint" => Field::NearPoint,
            "indexKey" => Field::IndexKey,
            "recordId" => Field::RecordId,
            "sortKey" => Field::SortKey,
            "searchRootDocumentId"
            | "timeseriesBucketMinTime"
            | "timeseriesBucketMaxTime"
            | "score"
            | "scoreDetails" => {
                return Err(QueryError::not_implemented(&format!("$meta: \"{name}\"")));
            }
            other => {
                let never = NEVER_KNOWN.iter().find(|name| **name == other);
                let message = || format!("Unsupported argument to $meta: {other}");
                Field::Never(never.ok_or_else(|| QueryError::new(ErrorCode(17308), message()))?)
            }
        })
    }

    /// Whether it is missing of all documents.
    pub(crate) fn is_never_known(self) -> bool {
        matches!(self, Field::Never(_))
    }

    /// Whether a sort may ask for it.
    pub(crate) fn is_sorted_by(self) -> bool {
        match self {
            Field::TextScore | Field::NearDistance => true,
            Field::Never(name) => NEVER_KNOWN_SORTED.contains(&name),
            _ => false,
        }
    }

    /// The argument of `$meta`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Field::TextScore => "textScore",
            Field::NearDistance => "geoNearDistance",
            Field::NearPoint => "geoNearPoint",
            Field::IndexKey => "indexKey",
            Field::RecordId => "recordId",
            Field::SortKey => "sortKey",
            Field::Never(name) => name,
        }
    }

    /// In [`MetadataNeeds`]; 0 for what no plan has to gather.
    fn bit(self) -> u8 {
        match self {
            Field::TextScore => 1,
            Field::NearDistance => 1 << 1,
            Field::NearPoint => 1 << 2,
            Field::IndexKey => 1 << 3,
            Field::RecordId => 1 << 4,
            Field::SortKey => 1 << 5,
            Field::Never(_) => 0,
        }
    }
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetadataNeeds(pub(crate) u8);

impl MetadataNeeds {
    pub(crate) fn of(field: MetadataField) -> Self {
        Self(field.bit())
    }

    pub(crate) fn has(self, field: MetadataField) -> bool {
        self.0 & field.bit() != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Fails where a plan cannot know what is asked for.
    pub(crate) fn check(self, searches: bool, is_near: bool) -> Result<(), QueryError> {
        let missing = match () {
            () if self.has(Field::TextScore) && !searches => "text score",
            () if self.has(Field::NearDistance) && !is_near => "$geoNear distance",
            () if self.has(Field::NearPoint) && !is_near => "$geoNear point",
            () => return Ok(()),
        };
        Err(QueryError::new(
            ErrorCode(40218),
            format!("query requires {missing} metadata, but it is not available"),
        ))
    }
}

/// What is known of one document.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Metadata {
    pub(crate) text_score: Option<f64>,
    pub(crate) near_distance: Option<f64>,
    /// A number, or the bytes of a key.
    pub(crate) record_id: Option<RawBson>,
    /// `geoNearPoint`, `indexKey`, `sortKey`.
    pub(crate) values: Vec<(u8, RawBson)>,
}

impl Metadata {
    /// The value that `$meta` gives; missing where nothing is known.
    pub(crate) fn get(&self, field: MetadataField) -> Value<'static> {
        let double = |number: Option<f64>| number.map_or(Value::Missing, Value::Double);
        match field {
            Field::TextScore => double(self.text_score),
            Field::NearDistance => double(self.near_distance),
            Field::RecordId => self
                .record_id
                .as_ref()
                .map_or(Value::Missing, |id| Value::from_raw(id.as_raw_bson_ref()).into_owned()),
            other => {
                let found = self.values.iter().find(|(bit, _)| *bit == other.bit());
                found.map_or(Value::Missing, |(_, value)| {
                    Value::from_raw(value.as_raw_bson_ref()).into_owned()
                })
            }
        }
    }

    pub(crate) fn set(&mut self, field: MetadataField, value: RawBson) {
        self.values.push((field.bit(), value));
    }

    /// For a temporary file: a document.
    pub(crate) fn append_to(&self, out: &mut Vec<u8>) {
        let mut document = bson::RawDocumentBuf::new();
        if let Some(score) = self.text_score {
            document.append(bson::raw::cstr!("t"), score);
        }
        if let Some(distance) = self.near_distance {
            document.append(bson::raw::cstr!("d"), distance);
        }
        if let Some(id) = &self.record_id {
            document.append(bson::raw::cstr!("r"), id.clone());
        }
        for (bit, value) in &self.values {
            let mut one = bson::RawDocumentBuf::new();
            one.append(bson::raw::cstr!("k"), i32::from(*bit));
            one.append(bson::raw::cstr!("v"), value.clone());
            document.append(bson::raw::cstr!("x"), one);
        }
        out.extend_from_slice(document.as_bytes());
    }

    /// What [`Metadata::append_to`] wrote.
    pub(crate) fn read(document: &bson::RawDocument) -> Self {
        let mut metadata = Self::default();
        for (name, value) in document.iter().flatten() {
            match (name.as_str(), value) {
                ("t", bson::RawBsonRef::Double(score)) => metadata.text_score = Some(score),
                ("d", bson::RawBsonRef::Double(distance)) => metadata.near_distance = Some(distance),
                ("r", id) => metadata.record_id = Some(RawBson::from(id)),
                ("x", bson::RawBsonRef::Document(one)) => {
                    let (kind, value) = (one.get_i32("k").unwrap_or(0), one.get("v").ok().flatten());
                    metadata
                        .values
                        .extend(value.map(|value| (kind as u8, RawBson::from(value))));
                }
                _ => {}
            }
        }
        metadata
    }
}
