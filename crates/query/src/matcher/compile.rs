//! Filters of partial indexes, for the storage layer.

use std::sync::Arc;

use bson::RawDocument;
use keys::Collator;
use storage::{Predicate, PredicateCompiler};

use super::Matcher;
use super::parse;
use super::tree::{CompareOp, MatchExpr, Test};
use crate::QueryError;
use crate::evaluation::EvaluationContext;

/// Refuses a `partialFilterExpression` that is no filter, or one for other places, by the filter's own error.
pub fn check_partial_filter(filter: &RawDocument) -> Result<(), QueryError> {
    parse::filter(filter, None).map(drop)
}

/// Compiles the `partialFilterExpression` of an index. Only what can be decided from the document alone, and what the
/// planner can reason about, is allowed: `$eq $lt $lte $gt $gte $in $type $exists: true $and $or`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatcherCompiler;

impl PredicateCompiler for MatcherCompiler {
    fn compile(&self, filter: &RawDocument, collator: Option<Arc<dyn Collator>>) -> Result<Arc<dyn Predicate>, String> {
        let root = parse::filter(filter, None).map_err(|error| error.to_string())?;
        check(&root)?;
        Ok(Arc::new(PartialFilter(Matcher::from_expr(root, collator))))
    }
}

fn check(expr: &MatchExpr) -> Result<(), String> {
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
            | Test::Type(_) => Ok(()),
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

fn refusal(expr: &MatchExpr) -> String {
    let filter = expr.to_document();
    format!(
        "Expression not supported in partial index: {}",
        crate::raw::describe((&filter).into())
    )
}

/// The compiled filter of a partial index.
struct PartialFilter(Matcher);

impl Predicate for PartialFilter {
    /// Errors cannot come about: the filter has no `$expr`, and stored documents are well-formed. A damaged one is not
    /// in the index.
    fn matches(&self, document: &RawDocument) -> bool {
        self.0
            .matches(document, &EvaluationContext::uninterrupted())
            .unwrap_or(false)
    }
}
