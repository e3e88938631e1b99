//! `$_internalInhibitOptimization`: lets all documents through, and no stage past it. Tools put it where a pipeline is
//! to be run as it is written.

use bson::{RawBsonRef, RawDocumentBuf, rawdoc};
use wire::ErrorCode;

use super::{PlannedStage, Stage, StageSpec, failure};
use crate::error::QueryError;
use crate::expression::Dependencies;
use crate::value::Value;

/// The stage's name.
pub(super) const INHIBIT: &str = "$_internalInhibitOptimization";

#[derive(Debug)]
struct Inhibit;

pub(super) fn parse(raw: RawBsonRef<'_>) -> Result<StageSpec, QueryError> {
    match raw {
        RawBsonRef::Document(document) if document.is_empty() => Ok(StageSpec::Planned(Box::new(Inhibit))),
        RawBsonRef::Document(_) => failure(
            ErrorCode::FailedToParse.0,
            format!("{INHIBIT} must take an empty object"),
        ),
        other => failure(
            ErrorCode::TypeMismatch.0,
            format!(
                "{INHIBIT} must take a nested object but found: {}",
                Value::from_raw(other).render()
            ),
        ),
    }
}

impl PlannedStage for Inhibit {
    fn name(&self) -> &'static str {
        INHIBIT
    }

    fn written(&self) -> RawDocumentBuf {
        rawdoc! { "$_internalInhibitOptimization": {} }
    }

    fn start(self: Box<Self>, source: Box<dyn Stage>) -> Box<dyn Stage> {
        source
    }

    fn add_dependencies(&self, _: &mut Dependencies) -> bool {
        true
    }
}
