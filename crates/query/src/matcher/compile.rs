//! Filters of partial indexes, for the storage layer.

use std::any::Any;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use keys::Collator;
use storage::{Check, Predicate, PredicateCompiler, StorageError};
use wire::ErrorCode;

use super::Matcher;
use super::parse::{self, Origin};
use super::tree::{MatchExpr, Test};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::CompareOp;
use crate::value::scan::Malformed;

/// Compiles the `partialFilterExpression` of an index. Only what can be decided from the document alone, and what the
/// planner can reason about, is allowed: `$eq $lt $lte $gt $gte $in $type $exists: true $geoWithin $geoIntersects $and
/// $or`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatcherCompiler;

impl PredicateCompiler for MatcherCompiler {
    fn compile(&self, filter: &RawDocument, collator: Option<Arc<dyn Collator>>) -> Result<Arc<dyn Predicate>, String> {
        let mut root = allowed(filter, Origin::Stored).map_err(|error| error.to_string())?;
        if let Some(collator) = &collator {
            sort_lists(&mut root, &**collator);
        }
        Ok(Arc::new(PartialFilter(Matcher::from_expr(root, collator))))
    }
}

/// Brings the lists of `$in`, which are looked up by halves, into the order of the index's strings.
fn sort_lists(expr: &mut MatchExpr, collator: &dyn Collator) {
    match expr {
        MatchExpr::And(parts) | MatchExpr::Or(parts) => parts.iter_mut().for_each(|part| sort_lists(part, collator)),
        MatchExpr::Path {
            test: Test::In(list), ..
        } => list.sort(Some(collator)),
        _ => {}
    }
}

/// Refuses a `partialFilterExpression` that no index may have.
///
/// Errors: those of filters, and `CannotCreateIndex` for what can be said in a filter and not here.
pub fn check_partial_filter(filter: &RawDocument) -> Result<(), QueryError> {
    allowed(filter, Origin::New)?;
    match deepest_condition(filter, 1)? > PARTIAL_DEPTH_MAX {
        true => Err(QueryError::new(
            ErrorCode::CannotCreateIndex,
            format!("partialFilterExpression depth may not exceed {PARTIAL_DEPTH_MAX}"),
        )),
        false => Ok(()),
    }
}

/// Levels of `$and` and `$or` that conditions of a `partialFilterExpression` may stand under, the whole being one.
const PARTIAL_DEPTH_MAX: usize = 4;

/// Under how many levels the deepest condition stands, where those of the filter stand under `levels`. Several
/// conditions without a `$and` are one, too.
fn deepest_condition(filter: &RawDocument, levels: usize) -> Result<usize, QueryError> {
    let mut deepest = levels;
    for element in filter {
        let (name, value) = element.map_err(|_| Malformed)?;
        let ("$and" | "$or", RawBsonRef::Array(parts)) = (name.as_str(), value) else {
            continue;
        };
        for part in parts {
            if let RawBsonRef::Document(part) = part.map_err(|_| Malformed)? {
                let is_conjunction = part.into_iter().nth(1).is_some();
                let inside = levels + 1 + usize::from(is_conjunction);
                deepest = deepest.max(deepest_condition(part, inside)?);
            }
        }
    }
    Ok(deepest)
}

fn allowed(filter: &RawDocument, origin: Origin) -> Result<MatchExpr, QueryError> {
    let root = parse::partial_filter(filter, origin)?;
    check(&root)?;
    Ok(root)
}

fn check(expr: &MatchExpr) -> Result<(), QueryError> {
    match expr {
        MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse => Ok(()),
        MatchExpr::And(parts) | MatchExpr::Or(parts) => parts.iter().try_for_each(check),
        MatchExpr::Path { test, .. } => match test {
            Test::Compare {
                op: CompareOp::Eq | CompareOp::Lt | CompareOp::Lte | CompareOp::Gt | CompareOp::Gte,
                ..
            }
            | Test::In(_)
            | Test::Exists
            | Test::Type(_)
            | Test::Geo(_) => Ok(()),
            _ => Err(refusal(expr)),
        },
        MatchExpr::Nor(_)
        | MatchExpr::Not(_)
        | MatchExpr::Expr(_)
        | MatchExpr::Schema(_)
        | MatchExpr::Text(_)
        | MatchExpr::Where(_) => Err(refusal(expr)),
    }
}

fn refusal(expr: &MatchExpr) -> QueryError {
    let filter = expr.to_document();
    QueryError::new(
        ErrorCode::CannotCreateIndex,
        format!(
            "Expression not supported in partial index: {}",
            crate::raw::describe((&filter).into())
        ),
    )
}

/// The compiled filter of a partial index.
struct PartialFilter(Matcher);

/// What an index's predicate asks of documents; `None` of one that another compiler has made.
pub(crate) fn compiled_filter(predicate: &Arc<dyn Predicate>) -> Option<&MatchExpr> {
    let predicate: &dyn Any = &**predicate;
    let filter = predicate.downcast_ref::<PartialFilter>()?;
    Some(filter.0.root())
}

impl Predicate for PartialFilter {
    /// Other errors than those of `check` are the document's and the same for everybody: the filter has no `$expr`, and
    /// what its walks remember of a stored document is always below the limit ([`crate::path`]) and charged to nobody.
    fn matches(&self, document: &RawDocument, check: &Check<'_>) -> Result<bool, StorageError> {
        match self.0.matches(document, &EvaluationContext::checked(check)) {
            Err(QueryError::Storage(error)) => Err(error),
            matched => Ok(matched.unwrap_or(false)),
        }
    }
}
