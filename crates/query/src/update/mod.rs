//! Updates: from a document to the changed document.
//!
//! [`Update::parse`] takes operators, a replacement or a pipeline; [`Update::apply`] gives the bytes of the changed
//! document, or `None` when nothing changes; [`Update::upsert`] makes the document that is inserted when none matched.
//! It knows no storage, no indexes and no clock.
//! - `_id` never changes (66); it is in front of every document made here.
//! - Operators copy what they do not touch as bytes: no decoding.

mod apply;
mod array;
mod delta;
mod leaf;
mod limits;
mod parse;
mod pipeline;
mod replace;
mod tree;
mod upsert;

use std::collections::HashSet;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{RawArray, RawBsonRef, RawDocument, Timestamp};
use keys::Collator;
use storage::Targets;
use wire::ErrorCode;

use self::apply::Application;
use self::delta::Delta;
use self::leaf::Surroundings;
pub use self::limits::{DEPTH_MAX, DOCUMENT_BYTES_MAX};
use self::pipeline::Pipeline;
use self::replace::Replacement;
use self::tree::Branch;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::ExpressionContext;
use crate::matcher::{self, MatchDetails, MatchExpr, Matcher, Scope};
use crate::raw::{self, Element, Elements, Frame, kind, nesting_depth};
use crate::value::scan::frame;

/// A parsed update: operators, a replacement, a pipeline, or a difference out of a log.
pub struct Update {
    form: Form,
    collator: Option<Arc<dyn Collator>>,
    /// Levels that a changed document may have.
    depth_max: usize,
    /// Scripts run with it.
    runs_scripts: bool,
}

enum Form {
    Operators(Operators),
    Replacement(Replacement),
    Pipeline(Pipeline),
    Delta(Delta),
}

/// The operators with what they refer to.
struct Operators {
    tree: Branch,
    filters: Vec<ArrayFilter>,
    is_positional: bool,
    /// The result's nesting is to be measured.
    may_be_deep: bool,
}

/// Refuses what the filter of an upsert cannot have.
///
/// # Errors
/// `QueryFeatureNotAllowed`.
pub fn check_upsert_filter(filter: &RawDocument) -> Result<(), QueryError> {
    match matcher::names_expr(filter)? {
        true => Err(QueryError::new(
            ErrorCode::QueryFeatureNotAllowed,
            "$expr is not allowed in the query predicate for an upsert",
        )),
        false => Ok(()),
    }
}

/// One of `arrayFilters`: a filter on the document `{identifier: element}`.
struct ArrayFilter {
    identifier: String,
    filter: MatchExpr,
}

impl ArrayFilter {
    fn matches(&self, item: Element<'_>, scope: Scope<'_>) -> Result<bool, QueryError> {
        let mut bytes = Vec::with_capacity(item.value_bytes().len() + self.identifier.len() + 7);
        let document = Frame::begin(&mut bytes);
        raw::append(&mut bytes, item.kind(), self.identifier.as_bytes(), item.value_bytes());
        document.finish(&mut bytes);
        matcher::matches_expr(&self.filter, frame(&bytes)?, scope)
    }
}

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
    /// Parses the `u` of an update statement: a document or an array of stages. Variables (`let`, `c`) come in by the
    /// context.
    pub fn parse(
        update: RawBsonRef<'_>,
        array_filters: Option<&RawArray>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let filters = array_filters.map_or(Ok(Vec::new()), |filters| parse_array_filters(filters, context))?;
        let form = match update {
            RawBsonRef::Array(_) if !filters.is_empty() => {
                return Err(QueryError::failed_to_parse(
                    "Cannot specify arrayFilters and a pipeline update",
                ));
            }
            RawBsonRef::Array(stages) => Form::Pipeline(Pipeline::parse(stages, context)?),
            RawBsonRef::Document(document) => {
                let first = Elements::new(document).next().transpose()?;
                if first.is_some_and(|first| first.name().first() == Some(&b'$')) {
                    Form::Operators(parse::operators(document, filters, context)?)
                } else {
                    Form::Replacement(Replacement::parse(document)?)
                }
            }
            _ => return Err(neither_document_nor_array()),
        };
        Ok(Self {
            form,
            collator: context.comparer.shared_collator(),
            depth_max: DEPTH_MAX,
            runs_scripts: context.has_scripts(),
        })
    }

    /// Parses the `diff` of an update in a log of operations.
    pub fn delta(difference: &RawDocument) -> Result<Self, QueryError> {
        Ok(Self {
            form: Form::Delta(Delta::parse(difference)?),
            collator: None,
            depth_max: DEPTH_MAX,
            runs_scripts: false,
        })
    }

    /// A whole document, whatever the names of its fields.
    pub fn document(document: &RawDocument) -> Self {
        Self {
            form: Form::Replacement(Replacement::of(document)),
            collator: None,
            depth_max: DEPTH_MAX,
            runs_scripts: false,
        }
    }

    /// The same update of documents that may have so many levels, instead of [`DEPTH_MAX`].
    pub fn with_depth_max(mut self, depth_max: usize) -> Self {
        self.depth_max = depth_max;
        self
    }

    /// Whether scripts run with it, which may never end.
    pub fn runs_scripts(&self) -> bool {
        self.runs_scripts
    }

    /// Where operators change a document; `None` of other updates.
    pub fn targets(&self) -> Option<&dyn Targets> {
        match &self.form {
            Form::Operators(operators) => Some(&operators.tree),
            Form::Replacement(_) | Form::Pipeline(_) | Form::Delta(_) => None,
        }
    }

    /// The changed document; `None` when nothing changes.
    pub fn apply(
        &self,
        document: &RawDocument,
        context: &UpdateContext,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        let Some(changed) = self.evaluate(document, context, evaluation, false)? else {
            return Ok(None);
        };
        let is_same = match &self.form {
            // As it was sent: one that leaves `_id` out counts as a change, as in MongoDB.
            Form::Replacement(replacement) => replacement.is(document),
            _ => changed == document.as_bytes(),
        };
        if is_same {
            return Ok(None);
        }
        let changed_document = frame(&changed)?;
        self.check_id(document, changed_document)?;
        self.check_size(changed_document, "Resulting document after update", ErrorCode(17419))?;
        Ok(Some(changed))
    }

    /// The document that an upsert inserts when nothing matches `filter`: the filter's equalities, the update applied
    /// with `$setOnInsert`, `_id` in front (`generated_id` when neither gives one).
    pub fn upsert(
        &self,
        filter: &Matcher,
        generated_id: ObjectId,
        context: &UpdateContext,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Vec<u8>, QueryError> {
        let base = upsert::base(filter, self.is_replacement(), evaluation)?;
        let base = frame(&base)?;
        let result = self.evaluate(base, context, evaluation, true)?;
        let result = result.as_deref().map_or(Ok(base), frame)?;
        let id = raw::find(result, b"_id")?;
        if raw::find(base, b"_id")?.is_some() {
            self.check_id(base, result)?;
        }
        let document = upsert::with_id(result, id, generated_id)?;
        self.check_size(frame(&document)?, "Document to upsert", ErrorCode(17420))?;
        Ok(document)
    }

    /// Whether it is a whole document.
    pub fn is_replacement(&self) -> bool {
        matches!(self.form, Form::Replacement(_))
    }

    /// Whether it is an array of stages.
    pub fn is_pipeline(&self) -> bool {
        matches!(self.form, Form::Pipeline(_))
    }

    /// Whether a positional `$` is in it: then the match's details are needed.
    pub fn is_positional(&self) -> bool {
        matches!(&self.form, Form::Operators(operators) if operators.is_positional)
    }

    fn evaluate(
        &self,
        document: &RawDocument,
        context: &UpdateContext,
        evaluation: &EvaluationContext<'_>,
        is_insert: bool,
    ) -> Result<Option<Vec<u8>>, QueryError> {
        match &self.form {
            Form::Operators(operators) => {
                let around = Surroundings {
                    root: document,
                    context,
                    evaluation,
                    is_insert,
                    collator: self.collator.as_ref(),
                };
                let mut out = Vec::with_capacity(document.as_bytes().len() + 64);
                let mut application = Application::new(around, &operators.filters);
                let changed = application.document(&operators.tree, document, &mut out)?;
                Ok(changed.then_some(out))
            }
            Form::Replacement(replacement) => Ok(Some(replacement.apply(document, context)?)),
            Form::Pipeline(pipeline) => Ok(Some(pipeline.apply(document, evaluation)?)),
            Form::Delta(delta) => Ok(Some(delta.apply(document)?)),
        }
    }

    /// Fails (66) when `_id` is another one than before.
    fn check_id(&self, before: &RawDocument, after: &RawDocument) -> Result<(), QueryError> {
        let old = raw::find(before, b"_id")?;
        let new = raw::find(after, b"_id")?;
        let is_same = match (old, new) {
            (None, None) => true,
            (Some(old), Some(new)) => old.whole() == new.whole() || keys::compare(old.value()?, new.value()?).is_eq(),
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        let message = match (&self.form, new) {
            (Form::Operators(_) | Form::Delta(_), _) | (_, None) => {
                "Performing an update on the path '_id' would modify the immutable field '_id'".to_owned()
            }
            (_, Some(new)) => format!(
                "After applying the update, the (immutable) field '_id' was found to have been altered to {}",
                raw::describe_element(new)
            ),
        };
        Err(QueryError::new(ErrorCode::ImmutableField, message))
    }

    fn check_size(&self, document: &RawDocument, what: &str, code: ErrorCode) -> Result<(), QueryError> {
        if document.as_bytes().len() > DOCUMENT_BYTES_MAX {
            return Err(QueryError::new(
                code,
                format!("{what} is larger than {DOCUMENT_BYTES_MAX}"),
            ));
        }
        let may_be_deep = match &self.form {
            Form::Operators(operators) => operators.may_be_deep,
            Form::Replacement(_) | Form::Pipeline(_) | Form::Delta(_) => true,
        };
        if may_be_deep && nesting_depth(document)? > self.depth_max {
            let message = format!("{what} exceeds the maximum nesting depth of {}", self.depth_max);
            return Err(QueryError::new(ErrorCode::Overflow, message));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.form {
            Form::Operators(operators) => operators.tree.fmt(f),
            Form::Replacement(_) => f.write_str("Replacement"),
            Form::Pipeline(_) => f.write_str("Pipeline"),
            Form::Delta(_) => f.write_str("Delta"),
        }
    }
}

/// Fails on what no update can be: a wrong type of `u`, of a stage or of an array filter (9, 14), or a stage that there
/// is not at all (40324). The command asks before it runs any of its statements. Operators are not looked at.
pub fn check_types(update: RawBsonRef<'_>, array_filters: Option<&RawArray>) -> Result<(), QueryError> {
    match update {
        RawBsonRef::Document(_) => {}
        RawBsonRef::Array(stages) => pipeline::check_stages(stages)?,
        _ => return Err(neither_document_nor_array()),
    }
    let Some(filters) = array_filters else { return Ok(()) };
    Elements::new(frame(filters.as_bytes())?).try_for_each(|item| check_array_filter(item?))
}

fn neither_document_nor_array() -> QueryError {
    QueryError::failed_to_parse("Update argument must be either an object or an array")
}

fn check_array_filter(item: Element<'_>) -> Result<(), QueryError> {
    if item.kind() == kind::DOCUMENT {
        return Ok(());
    }
    Err(QueryError::type_mismatch(format!(
        "BSON field 'update.updates.arrayFilters.{}' is the wrong type '{}', expected type 'object'",
        item.name_lossy(),
        raw::type_name(item.element_type()?)
    )))
}

fn parse_array_filters(filters: &RawArray, context: &ExpressionContext) -> Result<Vec<ArrayFilter>, QueryError> {
    let mut parsed: Vec<ArrayFilter> = Vec::new();
    let mut identifiers = HashSet::new();
    for item in Elements::new(frame(filters.as_bytes())?) {
        let item = item?;
        check_array_filter(item)?;
        let (identifier, filter) = matcher::array_filter(item.frame()?, context)?;
        if !identifiers.insert(identifier.clone()) {
            return Err(QueryError::failed_to_parse(format!(
                "Found multiple array filters with the same top-level field name {identifier}"
            )));
        }
        parsed.push(ArrayFilter { identifier, filter });
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests;
