//! From predicates on measurements to predicates on buckets.
//!
//! A predicate on buckets is *sound* when no bucket that it leaves out has a measurement that the predicate on
//! measurements finds. It is *exact* when all measurements of the other buckets are found, which predicates on the
//! metaField are. What is not understood becomes nothing, and is asked of the measurements alone.
//!
//! - The metaField has one value in a bucket: the predicate is asked of `meta`.
//! - Times lie between `control.min` and less than the longest span behind it; that is also what `_id` begins with.
//! - Other values lie between `control.min` and `control.max`, which have one canonical type at each path, and arrays
//!   element by element. A least number may be NaN, which hides the least of the others.

use bson::raw::{RawBsonRef, RawDocument, cstr};
use bson::spec::ElementType;
use bson::{DateTime, RawDocumentBuf, rawbson};
use storage::TimeseriesOptions;

use super::bucket::id_of;
use super::index_keys::below;
use crate::error::QueryError;
use crate::expression::Dependencies;
use crate::matcher::{CompareOp, InList, MatchExpr, Matcher, Schema, Test};
use crate::path::Path;
use crate::raw::Constant;
use crate::value::{Comparer, SortPattern};

/// What predicates are about.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'f> {
    pub(crate) time: &'f str,
    pub(crate) meta: Option<&'f str>,
    /// The longest span of a bucket, in milliseconds.
    pub(crate) span_ms: i64,
    /// Strings compare otherwise than in the buckets' control fields.
    pub(crate) is_collated: bool,
}

/// What stands for a predicate on measurements.
pub(crate) struct Rewritten {
    /// A sound predicate on buckets.
    pub(crate) buckets: Option<MatchExpr>,
    /// The buckets' predicate is exact.
    pub(crate) is_exact: bool,
}

const BEHIND: Rewritten = Rewritten {
    buckets: None,
    is_exact: false,
};

fn sound(buckets: Option<MatchExpr>) -> Rewritten {
    Rewritten {
        buckets,
        is_exact: false,
    }
}

/// What stands for one predicate.
pub(crate) fn rewrite(fields: Fields<'_>, part: &MatchExpr) -> Result<Rewritten, QueryError> {
    if let Some(buckets) = renamed(fields, part)? {
        return Ok(Rewritten {
            buckets: Some(buckets),
            is_exact: true,
        });
    }
    match part {
        MatchExpr::And(parts) => {
            let mut buckets = Vec::new();
            for part in parts {
                buckets.extend(rewrite(fields, part)?.buckets);
            }
            Ok(sound((!buckets.is_empty()).then(|| MatchExpr::and(buckets))))
        }
        MatchExpr::Or(parts) => {
            let mut buckets = Vec::new();
            for part in parts {
                match rewrite(fields, part)?.buckets {
                    Some(part) => buckets.push(part),
                    None => return Ok(BEHIND),
                }
            }
            Ok(sound(Some(MatchExpr::or(buckets))))
        }
        MatchExpr::Path { path, test } if path.text() == fields.time => Ok(sound(on_time(fields, test)?)),
        MatchExpr::Path { path, test } if is_of_measurements(fields, path) => {
            Ok(sound(on_values(fields, path.text(), test)?))
        }
        _ => Ok(BEHIND),
    }
}

fn is_of_measurements(fields: Fields<'_>, path: &Path) -> bool {
    let first = path.parts().first().map_or("", |part| part.name());
    first != fields.time && Some(first) != fields.meta && path.parts().iter().all(|part| !part.name().is_empty())
}

/// The same predicate on `meta`, of one that is about the metaField alone.
fn renamed(fields: Fields<'_>, part: &MatchExpr) -> Result<Option<MatchExpr>, QueryError> {
    let several = |parts: &[MatchExpr]| -> Result<Option<Vec<MatchExpr>>, QueryError> {
        parts.iter().map(|part| renamed(fields, part)).collect()
    };
    Ok(match part {
        MatchExpr::And(parts) => several(parts)?.map(MatchExpr::And),
        MatchExpr::Or(parts) => several(parts)?.map(MatchExpr::Or),
        MatchExpr::Nor(parts) => several(parts)?.map(MatchExpr::Nor),
        MatchExpr::Not(part) => renamed(fields, part)?.map(|part| MatchExpr::Not(Box::new(part))),
        MatchExpr::Path {
            test: Test::Near(_), ..
        } => None,
        MatchExpr::Path { path, test } => match fields.meta.and_then(|meta| below(path.text(), meta)) {
            Some(rest) => Some(MatchExpr::on(Path::new(&format!("meta{rest}"))?, test.clone())),
            None => None,
        },
        MatchExpr::Schema(schema) => match renamed_schema(fields, schema.source()) {
            Some(schema) => Some(MatchExpr::Schema(Schema::parse(&schema)?)),
            None => None,
        },
        // They read nothing.
        MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse => Some(part.clone()),
        MatchExpr::Expr(_) | MatchExpr::Text(_) | MatchExpr::Where(_) => None,
    })
}

/// The same schema for `meta`, of one that asks nothing of other fields, nor of the document as a whole.
fn renamed_schema(fields: Fields<'_>, schema: &RawDocument) -> Option<RawDocumentBuf> {
    let is_meta = |name: &str| fields.meta == Some(name);
    let mut of_buckets = RawDocumentBuf::new();
    for keyword in schema {
        let (keyword, value) = keyword.ok()?;
        match (keyword.as_str(), value) {
            ("required", RawBsonRef::Array(names)) => {
                let is_about_meta = |name: bson::error::Result<RawBsonRef<'_>>| matches!(name, Ok(RawBsonRef::String(name)) if is_meta(name));
                if !names.into_iter().all(is_about_meta) {
                    return None;
                }
                of_buckets.append(keyword, rawbson!(["meta"]));
            }
            ("properties", RawBsonRef::Document(properties)) => {
                let mut renamed = RawDocumentBuf::new();
                for property in properties {
                    let (name, schema) = property.ok()?;
                    if !is_meta(name.as_str()) {
                        return None;
                    }
                    renamed.append(cstr!("meta"), schema);
                }
                of_buckets.append(keyword, renamed);
            }
            ("title" | "description" | "type" | "bsonType", value) => of_buckets.append(keyword, value),
            _ => return None,
        }
    }
    Some(of_buckets)
}

/// A filter on the metaField as one on buckets; `None` when it reads anything else.
pub fn meta_filter(filter: &Matcher, meta_field: Option<&str>) -> Result<Option<RawDocumentBuf>, QueryError> {
    if filter.is_always_true() {
        return Ok(Some(RawDocumentBuf::new()));
    }
    let fields = Fields {
        time: "",
        meta: meta_field,
        span_ms: 0,
        is_collated: false,
    };
    Ok(renamed(fields, filter.root())?.map(|filter| filter.to_document()))
}

/// Whether a filter reads the metaField and nothing else.
pub fn reads_meta_alone(filter: &Matcher, meta_field: &str) -> bool {
    let mut read = Dependencies::default();
    filter.root().add_dependencies(&mut read);
    !read.whole_document && read.paths.iter().all(|path| below(path, meta_field).is_some())
}

/// A path in the metaField as one in `meta`; `None` for other paths.
pub fn on_meta(path: &str, meta_field: Option<&str>) -> Option<String> {
    let rest = below(path, meta_field?)?;
    Some(format!("meta{rest}"))
}

fn compare(path: &str, op: CompareOp, value: RawBsonRef<'_>) -> Result<MatchExpr, QueryError> {
    let value = Constant::new(value);
    Ok(MatchExpr::on(Path::new(path)?, Test::Compare { op, value }))
}

/// The times that a predicate wants, both ends included, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeBounds {
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
}

impl TimeBounds {
    pub(crate) const ALL: Self = Self {
        first_ms: i64::MIN,
        last_ms: i64::MAX,
    };

    /// The times of which a test is true and of no others; `None` for tests that are not understood so.
    pub(crate) fn of(test: &Test) -> Option<Self> {
        let Test::Compare { op, value } = test else { return None };
        let RawBsonRef::DateTime(at) = value.value() else {
            return None;
        };
        let at = at.timestamp_millis();
        Some(match op {
            CompareOp::Eq => Self {
                first_ms: at,
                last_ms: at,
            },
            CompareOp::Gte => Self {
                first_ms: at,
                ..Self::ALL
            },
            CompareOp::Gt => Self {
                first_ms: at.checked_add(1)?,
                ..Self::ALL
            },
            CompareOp::Lte => Self {
                last_ms: at,
                ..Self::ALL
            },
            CompareOp::Lt => Self {
                last_ms: at.checked_sub(1)?,
                ..Self::ALL
            },
        })
    }

    /// The times that both have.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            first_ms: self.first_ms.max(other.first_ms),
            last_ms: self.last_ms.min(other.last_ms),
        }
    }

    pub(crate) fn contains(self, time_ms: i64) -> bool {
        (self.first_ms..=self.last_ms).contains(&time_ms)
    }

    /// The buckets that may have such times.
    fn buckets(self, fields: Fields<'_>) -> Result<Option<MatchExpr>, QueryError> {
        let (least, greatest) = (
            format!("control.min.{}", fields.time),
            format!("control.max.{}", fields.time),
        );
        let date = |time_ms| RawBsonRef::DateTime(DateTime::from_millis(time_ms));
        let mut parts = Vec::new();
        if self.first_ms > i64::MIN {
            parts.push(compare(&greatest, CompareOp::Gte, date(self.first_ms))?);
            let before = self.first_ms.saturating_sub(fields.span_ms);
            if before > i64::MIN {
                parts.push(compare(&least, CompareOp::Gt, date(before))?);
                let id = RawBsonRef::ObjectId(id_of(before, &[0; 8]));
                parts.push(compare("_id", CompareOp::Gte, id)?);
            }
        }
        if self.last_ms < i64::MAX {
            parts.push(compare(&least, CompareOp::Lte, date(self.last_ms))?);
            let behind = self.last_ms.saturating_add(fields.span_ms);
            if behind < i64::MAX {
                parts.push(compare(&greatest, CompareOp::Lt, date(behind))?);
            }
            let id = RawBsonRef::ObjectId(id_of(self.last_ms, &[0xFF; 8]));
            parts.push(compare("_id", CompareOp::Lte, id)?);
        }
        Ok((!parts.is_empty()).then(|| MatchExpr::and(parts)))
    }
}

fn on_time(fields: Fields<'_>, test: &Test) -> Result<Option<MatchExpr>, QueryError> {
    if let Some(bounds) = TimeBounds::of(test) {
        return bounds.buckets(fields);
    }
    let Test::In(list) = test else { return Ok(None) };
    let dates = || {
        list.values.iter().map(|value| match value.value() {
            RawBsonRef::DateTime(at) => Some(at.timestamp_millis()),
            _ => None,
        })
    };
    let (first, last) = (dates().flatten().min(), dates().flatten().max());
    match (first, last) {
        (Some(first_ms), Some(last_ms)) if is_plain(list) && dates().all(|date| date.is_some()) => {
            TimeBounds { first_ms, last_ms }.buckets(fields)
        }
        _ => Ok(None),
    }
}

fn is_plain(list: &InList) -> bool {
    list.regexes.is_empty() && !list.has_null && !list.values.is_empty()
}

/// The canonical type of a constant that extents can be compared with.
fn comparable(fields: Fields<'_>, value: &Constant) -> Option<u8> {
    let is_nan = match value.value() {
        RawBsonRef::Double(number) => number.is_nan(),
        RawBsonRef::Decimal128(number) => number.to_string().contains("NaN"),
        RawBsonRef::String(_) => fields.is_collated,
        _ => false,
    };
    match value.element_type() {
        ElementType::Double
        | ElementType::Int32
        | ElementType::Int64
        | ElementType::Decimal128
        | ElementType::String
        | ElementType::ObjectId
        | ElementType::Boolean
        | ElementType::DateTime
            if !is_nan =>
        {
            Some(keys::canonical_type(value.element_type()))
        }
        _ => None,
    }
}

fn on_values(fields: Fields<'_>, path: &str, test: &Test) -> Result<Option<MatchExpr>, QueryError> {
    let (op, least, greatest) = match test {
        Test::Compare { op, value } if comparable(fields, value).is_some() => (*op, value, value),
        Test::In(list) if is_plain(list) => {
            let mut types = list.values.iter().map(|value| comparable(fields, value));
            let one_type = types.next().flatten();
            let (Some(first), Some(last)) = (list.values.first(), list.values.last()) else {
                return Ok(None);
            };
            if one_type.is_none() || types.any(|of| of != one_type) {
                return Ok(None);
            }
            (CompareOp::Eq, first, last)
        }
        _ => return Ok(None),
    };
    let is_number = comparable(fields, least) == Some(keys::canonical_type(ElementType::Double));
    let from_below = |op| -> Result<MatchExpr, QueryError> {
        let path = format!("control.min.{path}");
        let within = compare(&path, op, greatest.value())?;
        Ok(match is_number {
            true => MatchExpr::or([within, compare(&path, CompareOp::Eq, RawBsonRef::Double(f64::NAN))?]),
            false => within,
        })
    };
    let from_above = |op| compare(&format!("control.max.{path}"), op, least.value());
    Ok(Some(match op {
        CompareOp::Lt | CompareOp::Lte => from_below(op)?,
        CompareOp::Gt | CompareOp::Gte => from_above(op)?,
        CompareOp::Eq => MatchExpr::and([from_below(CompareOp::Lte)?, from_above(CompareOp::Gte)?]),
    }))
}

/// The order of buckets that gives measurements in this order, which is that of the metaField alone.
pub(crate) fn sort_on_buckets(
    pattern: &SortPattern,
    meta_field: Option<&str>,
    comparer: &Comparer,
) -> Result<Option<SortPattern>, QueryError> {
    let mut on_buckets = RawDocumentBuf::new();
    for element in pattern.document() {
        let (path, direction) = element.map_err(|_| crate::raw::Malformed)?;
        let Some(path) = on_meta(path.as_str(), meta_field) else {
            return Ok(None);
        };
        let path = bson::raw::CString::try_from(path).map_err(|_| crate::raw::Malformed)?;
        on_buckets.append(path, direction);
    }
    SortPattern::parse(&on_buckets, comparer).map(Some)
}

/// The filter of buckets that may have measurements that a filter finds; `None` for all buckets.
pub fn bucket_filter(filter: &Matcher, options: &TimeseriesOptions) -> Result<Option<RawDocumentBuf>, QueryError> {
    let fields = Fields {
        time: &options.time_field,
        meta: options.meta_field.as_deref(),
        span_ms: options.span_ms(),
        is_collated: filter.collator().is_some(),
    };
    let mut buckets = Vec::new();
    for part in filter.root().conjuncts() {
        buckets.extend(rewrite(fields, part)?.buckets);
    }
    Ok((!buckets.is_empty()).then(|| MatchExpr::and(buckets).to_document()))
}
