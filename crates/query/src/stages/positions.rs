//! Where stages may stand: at the beginning only, or not in a pipeline inside another.

use bson::{RawDocument, RawDocumentBuf};

use super::failure;
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

/// Stages that may not appear inside `$facet`.
pub(super) const NOT_IN_FACET: &[&str] = &[
    "$facet",
    "$out",
    "$merge",
    "$geoNear",
    "$search",
    "$searchMeta",
    "$vectorSearch",
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

/// Refuses what the sub-pipeline of `$lookup` or `$unionWith` may not have.
pub(super) fn check_sub_pipeline(stages: &[RawDocumentBuf], outer: &str, code: i32) -> Result<(), QueryError> {
    for stage in stages {
        let Some((name, _)) = stage.into_iter().next().transpose().map_err(|_| Malformed)? else {
            continue;
        };
        if NOT_IN_SUB_PIPELINE.contains(&name.as_str()) {
            return failure(
                code,
                format!("{} is not allowed within a {outer}'s sub-pipeline", name.as_str()),
            );
        }
    }
    Ok(())
}
