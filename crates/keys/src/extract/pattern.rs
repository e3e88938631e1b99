//! What an index is on: the fields of its key document, their paths, kinds and directions.
//!
//! Invariants of [`IndexPattern`]: 1 to 32 fields, no empty path parts, no part that starts with `$` (a DBRef's apart),
//! at most [`PATH_PARTS_MAX`] parts a path.

use crate::decimal::Decimal;
use crate::key::{FIELDS_MAX, FieldOrder, KeyOrdering};
use bson::raw::{RawBsonRef, RawDocument};
use geometry::plane::Grid;

/// Most parts of a dotted path: documents are not nested deeper.
pub const PATH_PARTS_MAX: usize = 200;

/// The name that the terms of a text index have in its key document; scores follow.
pub const TERM_FIELD: &str = "_fts";
/// The name that the paths of a wildcard index have in its keys.
pub const PATH_FIELD: &str = "$_path";
/// The name of the scores.
pub const SCORE_FIELD: &str = "_ftsx";

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
    /// A kind of index that MongoDB has and this server does not (yet).
    #[error("Index type '{plugin}' is not supported")]
    UnsupportedPlugin {
        /// Its name.
        plugin: String,
    },
    /// `"wildcard"`, which is said by the name `$**` instead.
    #[error("the type 'wildcard' is given by the name '$**' of a field, not by its value")]
    WildcardPlugin,
    /// More than one field `$**`.
    #[error("a wildcard index has one field $**")]
    ManyWildcards,
    /// More than one hashed field.
    #[error("A maximum of one index field is allowed to be hashed")]
    ManyHashed,
    /// More than one `2d` field.
    #[error("can't have 2 geo fields")]
    ManyPlanes,
    /// Fields in front of a `2d` field.
    #[error("2d has to be first in index")]
    PlaneNotFirst,
    /// Kinds that cannot be in one index, or not in this place.
    #[error("{0}")]
    Combination(&'static str),
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

/// What a key has of a field's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FieldKind {
    /// The value itself.
    Value,
    /// A hash of the value, see [`crate::hash()`].
    Hashed,
    /// The cells of a geometry on the sphere: `2dsphere`.
    Sphere,
    /// The square of a point in the plane: `2d`.
    Plane(Grid),
    /// A term of the document's text.
    Term,
    /// The score of the term before it.
    Score,
    /// The path of the value that follows.
    Path,
    /// Each value below a path, see [`super::WildcardSpec`].
    Wildcard,
}

/// A field of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternField {
    path: String,
    parts: Vec<PathPart>,
    order: FieldOrder,
    kind: FieldKind,
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

    /// The direction: of kinds without an order of their own ascending.
    pub fn order(&self) -> FieldOrder {
        self.order
    }

    /// What keys have of it.
    pub fn kind(&self) -> FieldKind {
        self.kind
    }

    pub(crate) fn parts(&self) -> &[PathPart] {
        &self.parts
    }
}

/// The fields of an index in order. There is at most one kind beside [`FieldKind::Value`].
#[derive(Clone, Debug, PartialEq)]
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
            let mut field = parse_field(name.as_str(), value)?;
            let follows_term = fields
                .last()
                .is_some_and(|last: &PatternField| last.kind == FieldKind::Term);
            if follows_term && field.path == SCORE_FIELD {
                field.kind = FieldKind::Score;
            }
            if field.kind == FieldKind::Wildcard {
                fields.push(PatternField {
                    path: PATH_FIELD.to_owned(),
                    parts: Vec::new(),
                    order: FieldOrder::Ascending,
                    kind: FieldKind::Path,
                });
            }
            fields.push(field);
        }
        match fields.len() {
            0 => return Err(PatternError::Empty),
            count if count > FIELDS_MAX => return Err(PatternError::TooManyFields { count }),
            _ => {}
        }
        check_kinds(&fields)?;
        let ordering = KeyOrdering::new(fields.iter().map(PatternField::order));
        Ok(Self { fields, ordering })
    }

    /// The same with this grid for the point of a `2d` index.
    pub fn with_grid(mut self, grid: Grid) -> Self {
        for field in &mut self.fields {
            if let FieldKind::Plane(own) = &mut field.kind {
                *own = grid;
            }
        }
        self
    }

    /// The kind beside [`FieldKind::Value`], if one of the fields has it.
    pub fn special(&self) -> Option<FieldKind> {
        self.fields
            .iter()
            .map(PatternField::kind)
            .find(|kind| *kind != FieldKind::Value)
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
    let (checked, is_wildcard) = match path.strip_suffix("$**") {
        Some("") => ("", true),
        Some(below) if below.ends_with('.') => (&below[..below.len() - 1], true),
        _ => (path, false),
    };
    let own_kind = match kind_of(value) {
        // Of a field that is a wildcard it says nothing new.
        Err(PatternError::WildcardPlugin) if is_wildcard => Ok(FieldKind::Path),
        kind => kind,
    }?;
    let (kind, order) = match own_kind {
        FieldKind::Value if is_wildcard => (FieldKind::Wildcard, parse_order(path, value)?),
        _ if is_wildcard => {
            return Err(PatternError::Combination(
                "a wildcard index has no other kind: its value is 1 or -1",
            ));
        }
        FieldKind::Value => (FieldKind::Value, parse_order(path, value)?),
        kind => (kind, FieldOrder::Ascending),
    };
    let mut parts = Vec::new();
    let names = checked.split('.').filter(|_| !checked.is_empty() || !is_wildcard);
    for (index, part) in names.enumerate() {
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
        kind,
    })
}

fn check_kinds(fields: &[PatternField]) -> Result<(), PatternError> {
    let of = |kind: fn(&FieldKind) -> bool| fields.iter().filter(|field| kind(&field.kind)).count();
    let hashed = of(|kind| *kind == FieldKind::Hashed);
    let sphere = of(|kind| *kind == FieldKind::Sphere);
    let plane = of(|kind| matches!(kind, FieldKind::Plane(_)));
    let terms = of(|kind| *kind == FieldKind::Term);
    let wildcards = of(|kind| *kind == FieldKind::Wildcard);
    let refused = match () {
        () if hashed > 1 => return Err(PatternError::ManyHashed),
        () if wildcards > 1 => return Err(PatternError::ManyWildcards),
        () if terms > 1 || terms != of(|kind| *kind == FieldKind::Score) => {
            "the terms of a text index are one field, _fts, and their scores follow: _ftsx"
        }
        () if (hashed > 0) as u8 + (sphere > 0) as u8 + (plane > 0) as u8 + (terms > 0) as u8 + wildcards as u8 > 1 => {
            "Can't use more than one index plugin for a single index"
        }
        () if plane > 1 => return Err(PatternError::ManyPlanes),
        () if plane > 0 && !matches!(fields[0].kind, FieldKind::Plane(_)) => return Err(PatternError::PlaneNotFirst),
        () => return Ok(()),
    };
    Err(PatternError::Combination(refused))
}

/// The kind that a string names; [`FieldKind::Value`] of anything else.
fn kind_of(value: RawBsonRef<'_>) -> Result<FieldKind, PatternError> {
    let RawBsonRef::String(plugin) = value else {
        return Ok(FieldKind::Value);
    };
    match plugin {
        "hashed" => Ok(FieldKind::Hashed),
        "2dsphere" => Ok(FieldKind::Sphere),
        "2d" => Ok(FieldKind::Plane(Grid::default())),
        "text" => Ok(FieldKind::Term),
        "wildcard" => Err(PatternError::WildcardPlugin),
        "2dsphere_bucket" | "columnstore" | "geoHaystack" => Err(PatternError::UnsupportedPlugin {
            plugin: plugin.to_owned(),
        }),
        _ => Err(PatternError::UnknownPlugin {
            plugin: plugin.to_owned(),
        }),
    }
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
