//! From BSON to stages.

use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::geo_near::GeoNearSpec;
use super::graph_lookup::GraphLookupSpec;
use super::group::GroupSpec;
use super::inhibit::INHIBIT;
use super::lookup::{LookupSpec, UnionSpec};
use super::optimize::replaced;
use super::positions::{INITIAL, NOT_BUILT, SPLIT_LARGE_EVENT, check_in_facet, each_stage};
use super::specification::{StageSpec, stage_document};
use super::transform::redact_variables;
use super::unpack::UnpackSpec;
use super::unwind::UnwindSpec;
use super::{PIPELINE_DEPTH_MAX, Pipeline, STAGES_MAX, bucket, bucket_auto, densify, failure, fill, inhibit, window};
use crate::error::QueryError;
use crate::expression::{Expression, ExpressionContext, FieldPath, check_part, render};
use crate::matcher::Matcher;
use crate::project::Projection;
use crate::timeseries::UNPACK;
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{SharedDocument, SortPattern, Value};

/// Stages of a real server's search extension, which answers so without it.
const SEARCH: &[&str] = &[
    "$search",
    "$searchMeta",
    "$vectorSearch",
    "$rankFusion",
    "$scoreFusion",
    "$listSearchIndexes",
];

pub(super) fn parse_array(array: &RawArray, context: &ExpressionContext, depth: usize) -> Result<Pipeline, QueryError> {
    let context = &context.apart();
    let mut stages = Vec::new();
    for raw in array {
        match raw.map_err(|_| Malformed)? {
            RawBsonRef::Document(stage) => push_stage(&mut stages, stage, context, depth)?,
            _ => {
                return failure(
                    ErrorCode::TypeMismatch.0,
                    "Each element of the 'pipeline' array must be an object",
                );
            }
        }
    }
    Ok(Pipeline {
        stages,
        context: context.clone(),
    })
}

pub(super) fn parse_documents(
    documents: &[RawDocumentBuf],
    context: &ExpressionContext,
    depth: usize,
) -> Result<Pipeline, QueryError> {
    let context = &context.apart();
    let mut stages = Vec::new();
    for stage in documents {
        push_stage(&mut stages, stage, context, depth)?;
    }
    Ok(Pipeline {
        stages,
        context: context.clone(),
    })
}

fn push_stage(
    stages: &mut Vec<StageSpec>,
    stage: &RawDocument,
    context: &ExpressionContext,
    depth: usize,
) -> Result<(), QueryError> {
    let mut elements = stage.into_iter();
    let (Some(only), None) = (elements.next(), elements.next()) else {
        return failure(
            40323,
            "A pipeline stage specification object must contain exactly one field.",
        );
    };
    let (name, raw) = only.map_err(|_| Malformed)?;
    let first = stages.is_empty();
    if let Some(StageSpec::Write { name, .. }) = stages.last() {
        return failure(40601, format!("{name} can only be the final stage in the pipeline"));
    }
    parse_stage(stages, name.as_str(), raw, context, depth)?;
    if stages.len() > STAGES_MAX {
        return failure(
            7749501,
            format!("Pipeline length must be no longer than {STAGES_MAX} stages"),
        );
    }
    if !first && stages.last().is_some_and(StageSpec::searches) {
        return failure(17313, "$match with $text is only allowed as the first pipeline stage");
    }
    if let [StageSpec::Unpack(_), StageSpec::GeoNear(_)] = &**stages {
        return Err(QueryError::not_implemented("$geoNear on a time-series collection"));
    }
    if !first && matches!(stages.last(), Some(StageSpec::Initial { .. } | StageSpec::GeoNear(_))) {
        let code = if name == "$geoNear" { 40603 } else { 40602 };
        let message = format!("{} is only valid as the first stage in a pipeline.", name.as_str());
        return failure(code, message);
    }
    Ok(())
}

fn parse_stage(
    stages: &mut Vec<StageSpec>,
    name: &str,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
    depth: usize,
) -> Result<(), QueryError> {
    let written = || stage_document(name, &Value::from_raw(raw));
    stages.push(match name {
        "$match" => parse_match(raw, context)?,
        "$project" => parse_project(raw, written(), context)?,
        "$addFields" | "$set" => parse_add_fields(name, raw, written(), context)?,
        "$unset" => parse_unset(raw, written())?,
        "$sort" => parse_sort(raw, context)?,
        "$limit" => parse_limit(raw)?,
        "$skip" => parse_skip(raw)?,
        "$group" => StageSpec::Group(GroupSpec::parse(raw, context)?),
        "$unwind" => StageSpec::Unwind(UnwindSpec::parse(raw)?),
        "$count" => parse_count(raw)?,
        "$sample" => parse_sample(raw, context)?,
        UNPACK => StageSpec::Unpack(Box::new(UnpackSpec::parse(raw, context)?)),
        "$graphLookup" => StageSpec::GraphLookup(Box::new(GraphLookupSpec::parse(raw, context, depth)?)),
        "$geoNear" => StageSpec::GeoNear(Box::new(GeoNearSpec::parse(raw, written(), context)?)),
        "$lookup" => StageSpec::Lookup(Box::new(LookupSpec::parse(raw, context, depth)?)),
        "$unionWith" => StageSpec::Union(Box::new(UnionSpec::parse(raw, context, depth)?)),
        "$replaceRoot" => StageSpec::ReplaceRoot {
            written: written(),
            expression: parse_new_root(raw, context)?,
        },
        "$replaceWith" => StageSpec::ReplaceRoot {
            written: written(),
            expression: Expression::parse(raw, context)?,
        },
        "$redact" => StageSpec::Redact {
            written: written(),
            expression: Expression::parse_at(raw, &context.with_variables(redact_variables()))?,
        },
        "$facet" => parse_facet(raw, context, depth)?,
        "$sortByCount" => return bucket::parse_sort_by_count(stages, raw, context),
        "$bucket" => return bucket::parse_bucket(stages, raw, context),
        "$bucketAuto" => bucket_auto::parse(raw, context)?,
        "$densify" => return densify::parse(stages, raw, context),
        "$fill" => return fill::parse(stages, raw, context),
        "$setWindowFields" => return window::parse(stages, raw, context),
        "$out" | "$merge" => StageSpec::Write {
            name: if name == "$out" { "$out" } else { "$merge" },
            written: written(),
        },
        INHIBIT => inhibit::parse(raw)?,
        SPLIT_LARGE_EVENT => parse_split(stages, raw, written())?,
        _ => parse_other(name, raw, context)?,
    });
    Ok(())
}

/// Initial stages, and names that are no stage of Tenon's.
fn parse_other(name: &str, raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<StageSpec, QueryError> {
    if name == "$documents" {
        let expression = Expression::parse(raw, context)?;
        let value = expression
            .evaluate_on(&SharedDocument::empty(), &context.evaluation())?
            .into_owned();
        if !matches!(value, Value::Array(_)) {
            return failure(5858203, "an array of documents expected in $documents");
        }
        return Ok(StageSpec::Initial {
            name: name.to_owned(),
            specification: stage_document("", &value),
        });
    }
    if INITIAL.contains(&name) {
        let RawBsonRef::Document(document) = raw else {
            let code = match name {
                "$changeStream" => 6_188_500,
                "$collStats" => 5_447_000,
                "$indexStats" => 28803,
                "$querySettings" => 7_746_800,
                "$currentOp" | "$planCacheStats" => ErrorCode::FailedToParse.0,
                _ => ErrorCode::TypeMismatch.0,
            };
            let found = Value::from_raw(raw).type_name();
            return failure(code, format!("{name} must take an object, but found {found}"));
        };
        return Ok(StageSpec::Initial {
            name: name.to_owned(),
            specification: document.to_owned(),
        });
    }
    if NOT_BUILT.contains(&name) {
        return Err(QueryError::not_implemented(&format!("the stage {name}")));
    }
    if SEARCH.contains(&name) {
        return failure(
            ErrorCode::SearchNotEnabled.0,
            format!(
                "Using {name} and other stages of Atlas Search requires additional configuration that this server does not have."
            ),
        );
    }
    failure(40324, format!("Unrecognized pipeline stage name: '{name}'"))
}

fn parse_split(stages: &[StageSpec], raw: RawBsonRef<'_>, written: RawDocumentBuf) -> Result<StageSpec, QueryError> {
    if !matches!(raw, RawBsonRef::Document(argument) if argument.is_empty()) {
        return failure(7182800, format!("{SPLIT_LARGE_EVENT} spec should be an empty object"));
    }
    match stages.first() {
        Some(StageSpec::Initial { name, .. }) if name == "$changeStream" => Ok(StageSpec::SplitLargeEvent { written }),
        _ => failure(
            ErrorCode::IllegalOperation.0,
            format!("{SPLIT_LARGE_EVENT} can only be used in a $changeStream pipeline"),
        ),
    }
}

fn parse_match(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<StageSpec, QueryError> {
    let RawBsonRef::Document(filter) = raw else {
        return failure(15959, "the match filter must be an expression in an object");
    };
    Ok(StageSpec::Match {
        filter: filter.to_owned(),
        matcher: Matcher::parse_searching(filter, context)?,
    })
}

fn parse_project(
    raw: RawBsonRef<'_>,
    written: RawDocumentBuf,
    context: &ExpressionContext,
) -> Result<StageSpec, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        return failure(15969, "$project specification must be an object");
    };
    if document.is_empty() {
        return failure(
            51272,
            "Invalid $project :: caused by :: projection specification must have at least one field",
        );
    }
    let projection = Projection::parse_project(document, context)?;
    let changed = projection_exclusions(document);
    Ok(StageSpec::Project {
        name: "$project",
        written,
        projection,
        changed,
    })
}

/// The paths that a `$project` leaves out, when leaving out is all it does.
fn projection_exclusions(document: &RawDocument) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for element in document {
        let (name, raw) = element.ok()?;
        let value = Value::from_raw(raw);
        if matches!(value, Value::Boolean(_)) || value.is_number() {
            if value.is_true() {
                return None;
            }
            paths.push(name.as_str().to_owned());
        } else {
            return None;
        }
    }
    // {_id: 0} alone is an exclusion, too.
    Some(paths)
}

pub(super) fn parse_add_fields(
    name: &str,
    raw: RawBsonRef<'_>,
    written: RawDocumentBuf,
    context: &ExpressionContext,
) -> Result<StageSpec, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40272,
            format!("{name} specification stage must be an object, got {found}"),
        );
    };
    let projection = Projection::parse_add_fields(document, context)?;
    let mut changed = Vec::new();
    for element in document {
        let (path, _) = element.map_err(|_| Malformed)?;
        changed.push(replaced(path.as_str()));
    }
    let name = if name == "$set" { "$set" } else { "$addFields" };
    Ok(StageSpec::Project {
        name,
        written,
        projection,
        changed: Some(changed),
    })
}

fn parse_unset(raw: RawBsonRef<'_>, written: RawDocumentBuf) -> Result<StageSpec, QueryError> {
    let mut paths = Vec::new();
    match raw {
        RawBsonRef::String(path) => paths.push(path),
        RawBsonRef::Array(array) => {
            for item in array {
                match item.map_err(|_| Malformed)? {
                    RawBsonRef::String(path) => paths.push(path),
                    _ => {
                        return failure(
                            31120,
                            "$unset specification must be a string or an array containing only string values",
                        );
                    }
                }
            }
            if paths.is_empty() {
                return failure(
                    31119,
                    "$unset specification must be a string or an array with at least one field",
                );
            }
        }
        _ => return failure(31002, "$unset specification must be a string or an array"),
    }
    for path in &paths {
        FieldPath::parse(path)?;
    }
    let projection = Projection::parse_unset(raw)?;
    let changed = Some(paths.iter().map(|path| (*path).to_owned()).collect());
    Ok(StageSpec::Project {
        name: "$unset",
        written,
        projection,
        changed,
    })
}

fn parse_sort(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<StageSpec, QueryError> {
    match raw {
        RawBsonRef::Document(pattern) => Ok(StageSpec::Sort {
            pattern: SortPattern::parse(pattern, &context.comparer)?,
            limit: None,
        }),
        _ => failure(15973, "the $sort key specification must be an object"),
    }
}

/// A whole number of documents.
pub(super) fn whole_number(raw: RawBsonRef<'_>) -> Option<i64> {
    Number::of(&Value::from_raw(raw)).and_then(Number::to_exact_i64)
}

fn parse_limit(raw: RawBsonRef<'_>) -> Result<StageSpec, QueryError> {
    let shown = || Value::from_raw(raw).render();
    match whole_number(raw) {
        Some(0) => failure(15958, "the limit must be positive"),
        Some(n) if n > 0 => Ok(StageSpec::Limit(n as u64)),
        Some(_) => failure(
            5107201,
            format!(
                "invalid argument to $limit stage: Expected a non-negative number in: $limit: {}",
                shown()
            ),
        ),
        None if Value::from_raw(raw).is_number() => failure(
            5107201,
            format!(
                "invalid argument to $limit stage: Expected an integer: $limit: {}",
                shown()
            ),
        ),
        None => failure(
            5107201,
            format!(
                "invalid argument to $limit stage: Expected a number in: $limit: {}",
                shown()
            ),
        ),
    }
}

fn parse_skip(raw: RawBsonRef<'_>) -> Result<StageSpec, QueryError> {
    let shown = || Value::from_raw(raw).render();
    match whole_number(raw) {
        Some(n) if n >= 0 => Ok(StageSpec::Skip(n as u64)),
        Some(_) => failure(
            5107200,
            format!(
                "invalid argument to $skip stage: Expected a non-negative number in: $skip: {}",
                shown()
            ),
        ),
        None if Value::from_raw(raw).is_number() => failure(
            5107200,
            format!(
                "invalid argument to $skip stage: Expected an integer: $skip: {}",
                shown()
            ),
        ),
        None => failure(
            5107200,
            format!(
                "invalid argument to $skip stage: Expected a number in: $skip: {}",
                shown()
            ),
        ),
    }
}

fn parse_count(raw: RawBsonRef<'_>) -> Result<StageSpec, QueryError> {
    let RawBsonRef::String(field) = raw else {
        return failure(40156, "the count field must be a non-empty string");
    };
    if field.is_empty() {
        return failure(40157, "the count field must be a non-empty string");
    }
    if field.starts_with('$') {
        return failure(40158, "the count field cannot be a $-prefixed path");
    }
    if field.contains('\0') {
        return failure(40159, "the count field cannot contain a null byte");
    }
    if field.contains('.') {
        return failure(40160, "the count field cannot contain '.'");
    }
    if field == "_id" {
        return failure(9039800, "the count field cannot be '_id'");
    }
    Ok(StageSpec::Count {
        field: field.to_owned(),
    })
}

fn parse_sample(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<StageSpec, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        return failure(28745, "the $sample stage specification must be an object");
    };
    let mut size = None;
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        if name.as_str() != "size" {
            return failure(28748, format!("unrecognized option to $sample: {}", name.as_str()));
        }
        let Some(number) = Number::of(&Value::from_raw(raw)) else {
            return failure(28746, "size argument to $sample must be a number");
        };
        size = Some(number.to_saturated_i64());
    }
    match size {
        // Last: a field that is unknown goes before.
        Some(..=0) => failure(28747, "size argument to $sample must be a positive integer"),
        Some(size) => Ok(StageSpec::Sample {
            size: size.unsigned_abs(),
            context: context.clone(),
        }),
        None => failure(28749, "$sample stage must specify a size"),
    }
}

/// The expression of `$replaceRoot`.
pub(crate) fn parse_new_root(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Expression, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40229,
            format!("expected an object as specification for $replaceRoot stage, got {found}"),
        );
    };
    let mut new_root = None;
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        if name.as_str() != "newRoot" {
            return failure(
                40415,
                format!("BSON field '$replaceRoot.{}' is an unknown field.", name.as_str()),
            );
        }
        new_root = Some(raw);
    }
    match new_root {
        Some(raw) => Expression::parse(raw, context),
        None => failure(
            40414,
            "BSON field '$replaceRoot.newRoot' is missing but a required field",
        ),
    }
}

fn parse_facet(raw: RawBsonRef<'_>, context: &ExpressionContext, depth: usize) -> Result<StageSpec, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).render();
        return failure(
            40169,
            format!("the $facet specification must be a non-empty object, but found: {found}"),
        );
    };
    if document.is_empty() {
        return failure(
            40169,
            format!(
                "the $facet specification must be a non-empty object, but found: {}",
                render(document)
            ),
        );
    }
    if depth >= PIPELINE_DEPTH_MAX {
        return failure(ErrorCode::BadValue.0, "too many levels of nested pipelines");
    }
    let mut facets = Vec::new();
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        let name = name.as_str();
        check_part(name)?;
        let RawBsonRef::Array(array) = raw else {
            let found = Value::from_raw(raw).type_name();
            return failure(
                40170,
                format!("arguments to $facet must be arrays, {name} is type {found}"),
            );
        };
        if let Some(other) = array.into_iter().flatten().find(|stage| stage.as_document().is_none()) {
            let found = Value::from_raw(other).type_name();
            return failure(
                40171,
                format!("stages of a facet must be objects, but {name} has one of type {found}"),
            );
        }
        // Before it is parsed: stages that are not built are none the less known not to belong here.
        each_stage(array, &mut check_in_facet)?;
        let pipeline = parse_array(array, context, depth + 1)?;
        context.note_needs(pipeline.context.metadata_needs());
        facets.push((name.to_owned(), pipeline));
    }
    Ok(StageSpec::Facet(facets))
}
