//! Updates: from a document to the changed document.

use bson::oid::ObjectId;
use bson::{RawArray, RawBsonRef, RawDocument, Timestamp};

use crate::QueryError;
use crate::expression::ExpressionContext;
use crate::matcher::{MatchDetails, Matcher};

/// A parsed update: operators, a replacement or a pipeline.
#[derive(Debug)]
pub struct Update {}

/// What applying an update needs to know besides the document.
#[derive(Clone, Copy, Debug)]
pub struct UpdateContext {
    /// `$currentDate`, in milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// `$currentDate` of type timestamp, and what an empty top-level timestamp of a replacement becomes.
    pub timestamp: Timestamp,
    /// Empty timestamps stay (`bypassEmptyTsReplacement`).
    pub keep_empty_timestamps: bool,
    /// What the filter's match found out, for the positional `$`.
    pub details: MatchDetails,
}

impl Update {
    /// Parses the `u` of an update statement: a document or an array of stages.
    pub fn parse(
        update: RawBsonRef<'_>,
        array_filters: Option<&RawArray>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let _ = (update, array_filters, context);
        Err(QueryError::not_implemented("update"))
    }

    /// The changed document; `None` when nothing changes.
    pub fn apply(&self, document: &RawDocument, context: &UpdateContext) -> Result<Option<Vec<u8>>, QueryError> {
        let _ = (document, context);
        Err(QueryError::not_implemented("update"))
    }

    /// The document that an upsert inserts when nothing matches `filter`: the filter's equalities, the update applied
    /// with `$setOnInsert`, `_id` in front (`generated_id` when neither gives one).
    pub fn upsert(
        &self,
        filter: &Matcher,
        generated_id: ObjectId,
        context: &UpdateContext,
    ) -> Result<Vec<u8>, QueryError> {
        let _ = (filter, generated_id, context);
        Err(QueryError::not_implemented("update"))
    }

    /// Whether it is a whole document.
    pub fn is_replacement(&self) -> bool {
        false
    }

    /// Whether it is an array of stages.
    pub fn is_pipeline(&self) -> bool {
        false
    }

    /// Whether a positional `$` is in it: then the match's details are needed.
    pub fn is_positional(&self) -> bool {
        false
    }
}
