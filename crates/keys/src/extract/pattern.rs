//! What an index is on: the fields of its key document, their paths and directions.
//!
//! Invariants of [`IndexPattern`]: 1 to 32 fields, no empty path parts, no part that starts with `$` (a DBRef's apart),
//! at most [`PATH_PARTS_MAX`] parts a path.

use crate::decimal::Decimal;
use crate::key::{FIELDS_MAX, FieldOrder, KeyOrdering};
use bson::raw::{RawBsonRef, RawDocument};

/// Most parts of a dotted path: documents are not nested deeper.
pub const PATH_PARTS_MAX: usize = 200;

/// Why a key document is refused. `CannotCreateIndex` (67) all, but for damaged bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// No fields.
    #[error("Index keys cannot be an empty object.")]
    Empty,
    /// More fields than 32.
    #[error("Index key pattern has {count} fields, but the most is 32")]
    TooManyFields {
        /// Fields in the document.
        count: usize,
    },
    /// A name, or a part of a dotted path, is empty.
    #[error("Index keys cannot contain an empty field: '{path}'")]
    EmptyPart {
        /// The path as given.
        path: String,
    },
    /// A part starts with `$`.
    #[error("Index key contains an illegal field name: field name starts with '$': '{path}'")]
    DollarPart {
        /// The path as given.
        path: String,
    },
    /// More parts than documents have levels.
    #[error("Index path '{path}' has too many parts")]
    PathTooLong {
        /// The path as given.
        path: String,
    },
    /// The value is 0 or NaN.
    #[error("Values in the index key pattern cannot be 0: '{path}'")]
    Zero {
        /// The path as given.
        path: String,
    },
    /// The value is neither a number nor a string.
    #[error(
        "Values in v:2 index key pattern cannot be of type {found}. Only numbers > 0, numbers < 0, and strings are allowed."
    )]
    WrongType {
        /// The path as given.
        path: String,
        /// The type found, as `$type` calls it.
        found: &'static str,
    },
    /// A kind of index that MongoDB has and this server does not (yet): text, 2d, 2dsphere, hashed, wildcard.
    #[error("Index type '{plugin}' is not supported")]
    UnsupportedPlugin {
        /// Its name.
        plugin: String,
    },
    /// A string that names no kind of index.
    #[error("Unknown index plugin '{plugin}'")]
    UnknownPlugin {
        /// The string.
        plugin: String,
    },
    /// The document is not BSON.
    #[error("the key document is not valid BSON")]
    Malformed,
}

/// A field of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternField {
    path: String,
    parts: Vec<PathPart>,
    order: FieldOrder,
}

/// A part of a dotted path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathPart {
    pub(crate) name: Box<[u8]>,
    /// It could be the position of an array element: digits, no leading zero.
    pub(crate) is_position: bool,
}

impl PatternField {
    /// The dotted path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The direction.
    pub fn order(&self) -> FieldOrder {
        self.order
    }

    /// Parts of the path, at least 1.
    pub fn parts_len(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn parts(&self) -> &[PathPart] {
        &self.parts
    }
}

/// The fields of an index in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPattern {
    fields: Vec<PatternField>,
    ordering: KeyOrdering,
}

impl IndexPattern {
    /// From a key document such as `{a: 1, "b.c": -1}`.
    pub fn parse(document: &RawDocument) -> Result<Self, PatternError> {
        let mut fields = Vec::new();
        for element in document.iter() {
            let (name, value) = element.map_err(|_| PatternError::Malformed)?;
            fields.push(parse_field(name.as_str(), value)?);
        }
        match fields.len() {
            0 => return Err(PatternError::Empty),
            count if count > FIELDS_MAX => return Err(PatternError::TooManyFields { count }),
            _ => {}
        }
        let ordering = KeyOrdering::new(fields.iter().map(PatternField::order));
        Ok(Self { fields, ordering })
    }

    /// The fields, at least 1, at most 32.
    pub fn fields(&self) -> &[PatternField] {
        &self.fields
    }

    /// The directions of all fields.
    pub fn ordering(&self) -> KeyOrdering {
        self.ordering
    }
}

fn parse_field(path: &str, value: RawBsonRef<'_>) -> Result<PatternField, PatternError> {
    let owned = || path.to_owned();
    if path == "$**" || path.ends_with(".$**") {
        return Err(PatternError::UnsupportedPlugin {
            plugin: "wildcard".to_owned(),
        });
    }
    let order = parse_order(path, value)?;
    let mut parts = Vec::new();
    for (index, part) in path.split('.').enumerate() {
        if part.is_empty() {
            return Err(PatternError::EmptyPart { path: owned() });
        }
        if part.starts_with('$') && (index == 0 || !matches!(part, "$ref" | "$id" | "$db")) {
            return Err(PatternError::DollarPart { path: owned() });
        }
        let is_position = part == "0" || !part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit());
        parts.push(PathPart {
            name: part.as_bytes().into(),
            is_position,
        });
    }
    if parts.len() > PATH_PARTS_MAX {
        return Err(PatternError::PathTooLong { path: owned() });
    }
    Ok(PatternField {
        path: owned(),
        parts,
        order,
    })
}

fn parse_order(path: &str, value: RawBsonRef<'_>) -> Result<FieldOrder, PatternError> {
    let sign = match value {
        RawBsonRef::Int32(v) => f64::from(v),
        RawBsonRef::Int64(v) => v as f64,
        RawBsonRef::Double(v) => v,
        RawBsonRef::Decimal128(v) => match Decimal::from(v) {
            Decimal::NaN => f64::NAN,
            v if v.is_zero() => 0.0,
            v => 1.0_f64.copysign(if v.is_negative() { -1.0 } else { 1.0 }),
        },
        RawBsonRef::String(plugin) => {
            return Err(match plugin {
                "text" | "2d" | "2dsphere" | "2dsphere_bucket" | "hashed" | "wildcard" | "columnstore"
                | "geoHaystack" => PatternError::UnsupportedPlugin {
                    plugin: plugin.to_owned(),
                },
                _ => PatternError::UnknownPlugin {
                    plugin: plugin.to_owned(),
                },
            });
        }
        other => {
            return Err(PatternError::WrongType {
                path: path.to_owned(),
                found: type_name(other),
            });
        }
    };
    if sign == 0.0 || sign.is_nan() {
        return Err(PatternError::Zero { path: path.to_owned() });
    }
    Ok(if sign < 0.0 {
        FieldOrder::Descending
    } else {
        FieldOrder::Ascending
    })
}

/// The alias that `$type` has for a type.
fn type_name(value: RawBsonRef<'_>) -> &'static str {
    match value {
        RawBsonRef::Double(_) => "double",
        RawBsonRef::String(_) => "string",
        RawBsonRef::Array(_) => "array",
        RawBsonRef::Document(_) => "object",
        RawBsonRef::Boolean(_) => "bool",
        RawBsonRef::Null => "null",
        RawBsonRef::RegularExpression(_) => "regex",
        RawBsonRef::JavaScriptCode(_) => "javascript",
        RawBsonRef::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        RawBsonRef::Int32(_) => "int",
        RawBsonRef::Int64(_) => "long",
        RawBsonRef::Timestamp(_) => "timestamp",
        RawBsonRef::Binary(_) => "binData",
        RawBsonRef::ObjectId(_) => "objectId",
        RawBsonRef::DateTime(_) => "date",
        RawBsonRef::Symbol(_) => "symbol",
        RawBsonRef::Decimal128(_) => "decimal",
        RawBsonRef::Undefined => "undefined",
        RawBsonRef::MaxKey => "maxKey",
        RawBsonRef::MinKey => "minKey",
        RawBsonRef::DbPointer(_) => "dbPointer",
    }
}
