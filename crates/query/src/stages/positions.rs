//! Where stages may stand: at the beginning only, not in a pipeline inside another, or not in a transaction.

use bson::{RawArray, RawBsonRef, RawDocument};
use wire::ErrorCode;

use super::{PIPELINE_DEPTH_MAX, failure};
use crate::error::QueryError;
use crate::value::scan::Malformed;

/// Stages that make documents by themselves and must come first.
pub(super) const INITIAL: &[&str] = &[
    "$backupCursor",
    "$changeStream",
    "$collStats",
    "$currentOp",
    "$documents",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
];

/// Stages that MongoDB has and Tenon does not have yet, all of which make documents by themselves.
pub(super) const NOT_BUILT: &[&str] = &[
    "$backupCursorExtend",
    "$listCatalog",
    "$listClusterCatalog",
    "$listSampledQueries",
    "$queryStats",
    "$shardedDataDistribution",
];

/// Whether a stage makes documents by itself, and reads none.
pub(crate) fn makes_documents(name: &str) -> bool {
    INITIAL.contains(&name) || NOT_BUILT.contains(&name)
}

/// Stages that may not appear inside `$facet`.
pub(super) const NOT_IN_FACET: &[&str] = &[
    "$facet",
    "$out",
    "$merge",
    "$geoNear",
    "$search",
    "$searchMeta",
    "$vectorSearch",
    SPLIT_LARGE_EVENT,
];

/// The stage that splits events, behind `$changeStream` only.
pub(crate) const SPLIT_LARGE_EVENT: &str = "$changeStreamSplitLargeEvent";

/// Whether a stage makes documents by itself.
pub(super) fn is_initial(stage: &RawDocument) -> bool {
    let first = stage.into_iter().next();
    first.is_some_and(|first| first.is_ok_and(|(name, _)| INITIAL.contains(&name.as_str())))
}

/// Stages that no pipeline inside another may have.
const NOT_IN_SUB_PIPELINE: &[&str] = &["$out", "$merge", "$changeStream"];

/// Refuses what the sub-pipeline of `outer`, a `$lookup` or a `$unionWith`, may not have.
pub(super) fn check_sub_pipeline<'a>(
    outer: &str,
    stages: impl IntoIterator<Item = &'a RawDocument>,
) -> Result<(), QueryError> {
    for stage in stages {
        let Some((name, _)) = stage.into_iter().next().transpose().map_err(|_| Malformed)? else {
            continue;
        };
        if NOT_IN_SUB_PIPELINE.contains(&name.as_str()) {
            return failure(
                if outer == "$lookup" { 51047 } else { 31441 },
                format!("{} is not allowed within a {outer}'s sub-pipeline", name.as_str()),
            );
        }
    }
    Ok(())
}

/// Refuses what neither a facet may have nor a pipeline inside it, by the name of the stage and its argument.
pub(super) fn check_in_facet(name: &str, argument: RawBsonRef<'_>) -> Result<(), QueryError> {
    if let ("$lookup" | "$unionWith", RawBsonRef::Document(stage)) = (name, argument)
        && let Ok(Some(RawBsonRef::Array(pipeline))) = stage.get("pipeline")
    {
        // What such a stage itself refuses has its own code.
        let stages = pipeline.into_iter().flatten().filter_map(|stage| stage.as_document());
        check_sub_pipeline(name, stages)?;
    }
    let searches = || name == "$match" && argument.as_document().is_some_and(may_search);
    match NOT_IN_FACET.contains(&name) || INITIAL.contains(&name) || NOT_BUILT.contains(&name) || searches() {
        true => failure(
            40600,
            format!("{name} is not allowed to be used within a $facet stage, nor in a pipeline inside one"),
        ),
        false => Ok(()),
    }
}

/// Whether a filter, as it is written, searches for text.
pub(crate) fn may_search(filter: &RawDocument) -> bool {
    filter
        .iter()
        .flatten()
        .any(|(name, value)| match (name.as_str(), value) {
            ("$text", _) => true,
            ("$and" | "$or", RawBsonRef::Array(parts)) => {
                let mut parts = parts.into_iter().flatten();
                parts.any(|part| part.as_document().is_some_and(may_search))
            }
            _ => false,
        })
}

/// Stages that tell of more than the documents of a transaction's moment.
const NOT_IN_TRANSACTION: &[&str] = &[
    "$changeStream",
    "$collStats",
    "$currentOp",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$planCacheStats",
];

/// Refuses stages that no transaction can run, wherever in the pipeline they are.
pub(crate) fn check_in_transaction(pipeline: &RawArray) -> Result<(), QueryError> {
    each_stage(pipeline, &mut |name, _| {
        if !NOT_IN_TRANSACTION.contains(&name) {
            return Ok(());
        }
        failure(
            ErrorCode::OperationNotSupportedInTransaction.0,
            format!(
                "Operation not permitted in transaction :: caused by :: Aggregation stage {name} cannot run within a multi-document transaction"
            ),
        )
    })
}

/// Calls `visit` with the name and the argument of each stage of a pipeline, and of those inside it. What is no stage
/// is passed over: parsing tells of it.
pub fn each_stage<E: From<QueryError>>(
    pipeline: &RawArray,
    visit: &mut dyn FnMut(&str, RawBsonRef<'_>) -> Result<(), E>,
) -> Result<(), E> {
    visit_stages(pipeline, visit, 0)
}

fn visit_stages<E: From<QueryError>>(
    pipeline: &RawArray,
    visit: &mut dyn FnMut(&str, RawBsonRef<'_>) -> Result<(), E>,
    depth: usize,
) -> Result<(), E> {
    // Deeper ones are refused where they are parsed.
    if depth > PIPELINE_DEPTH_MAX {
        return Ok(());
    }
    let malformed = |_| E::from(Malformed.into());
    for stage in pipeline {
        let RawBsonRef::Document(stage) = stage.map_err(malformed)? else {
            continue;
        };
        let Some((name, argument)) = stage.into_iter().next().transpose().map_err(malformed)? else {
            continue;
        };
        visit(name.as_str(), argument)?;
        let RawBsonRef::Document(fields) = argument else {
            continue;
        };
        for field in fields {
            let (field, inner) = field.map_err(malformed)?;
            let is_pipeline = match name.as_str() {
                "$facet" => true,
                "$lookup" | "$unionWith" => field.as_str() == "pipeline",
                _ => false,
            };
            if let (true, RawBsonRef::Array(inner)) = (is_pipeline, inner) {
                visit_stages(inner, visit, depth + 1)?;
            }
        }
    }
    Ok(())
}
