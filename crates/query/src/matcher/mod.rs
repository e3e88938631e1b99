//! Filters: does a document match?
//!
//! [`Matcher::parse`] turns a filter into a tree ([`MatchExpr`], which the planner reads as well), [`Matcher::matches`]
//! walks it over a document's bytes and allocates nothing. It knows no collections and no indexes.
//! - A predicate on an array holds for the array or for any of its elements (see [`crate::path`]).
//! - Comparisons stay within the canonical type of the right-hand side; only MinKey and MaxKey reach beyond.
//! - Depth is bounded at parsing ([`DEPTH_MAX`]), so evaluation recurses safely.

mod bits;
mod compile;
mod evaluate;
pub(crate) mod geo;
pub(crate) mod near;
mod number;
mod parse;
pub(crate) mod regex;
pub(crate) mod schema;
mod script;
mod serialize;
pub(crate) mod text;
mod tree;

use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use keys::Collator;

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Dependencies, ExpressionContext};
use crate::path::Path;

pub use crate::value::CompareOp;
pub use compile::{MatcherCompiler, check_partial_filter};
pub use geo::GeoTest;
pub use near::NearTest;
pub use regex::RegexTest;
pub use schema::Schema;
pub use script::ScriptTest;
pub use text::TextTest;
pub use tree::{BitOp, BitTest, ExprPredicate, InList, MatchExpr, Test, TypeSet, ValueTest};

pub use crate::expression::ExpressionContext as ParseContext;

pub(crate) use compile::compiled_filter;
pub(crate) use evaluate::{Scope, equals};
pub(crate) use number::integral;
pub(crate) use parse::{ValuePredicate, array_filter, element_condition, is_operators, names_expr, pull_condition};

/// How deep filters may nest.
pub const DEPTH_MAX: usize = 100;

/// What a match found out about the document besides that it matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchDetails {
    /// The index of the element, in the outermost array on the way, that satisfied the last predicate on an array:
    /// what the positional `$` stands for.
    pub array_index: Option<u32>,
}

/// A parsed filter.
#[derive(Clone)]
pub struct Matcher {
    root: MatchExpr,
    collator: Option<Arc<dyn Collator>>,
}

impl Matcher {
    /// Parses a filter. Strings compare by the context's collator, `$expr` sees its variables.
    pub fn parse(filter: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        let root = parse::filter(filter, context)?;
        Ok(Self {
            root,
            collator: context.comparer.shared_collator(),
        })
    }

    /// As [`Matcher::parse`], of a query that may want its matches in the order of their distance from a point.
    pub fn parse_ordered(filter: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        let root = parse::ordered_filter(filter, context)?;
        Ok(Self {
            root,
            collator: context.comparer.shared_collator(),
        })
    }

    /// As [`Matcher::parse`], of a stage, which may search for text.
    pub fn parse_searching(filter: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        let root = parse::searching_filter(filter, context)?;
        Ok(Self {
            root,
            collator: context.comparer.shared_collator(),
        })
    }

    /// A matcher of a tree made elsewhere, or of a part of one.
    pub fn from_expr(root: MatchExpr, collator: Option<Arc<dyn Collator>>) -> Self {
        Self { root, collator }
    }

    /// The filter's tree.
    pub fn into_root(self) -> MatchExpr {
        self.root
    }

    /// Whether the document matches; where scripts are not run, whether it may. Errors come from `$expr`, malformed
    /// documents and the operation's end.
    #[inline]
    pub fn matches(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        if !context.runs_scripts() {
            let matched = evaluate::matches_without_scripts(&self.root, document, self.scope(context))?;
            return Ok(matched.unwrap_or(true));
        }
        evaluate::matches(&self.root, document, self.scope(context), None)
    }

    /// As [`Matcher::matches`], and fills in the details when it does.
    pub fn matches_with_details(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
        details: &mut MatchDetails,
    ) -> Result<bool, QueryError> {
        *details = MatchDetails::default();
        evaluate::matches(&self.root, document, self.scope(context), Some(details))
    }

    /// The details of a document that is known to match.
    pub(crate) fn details_of_match(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<MatchDetails, QueryError> {
        let mut details = MatchDetails::default();
        evaluate::add_details(&self.root, document, self.scope(context), &mut details)?;
        Ok(details)
    }

    fn scope<'s>(&'s self, context: &'s EvaluationContext<'_>) -> Scope<'s> {
        Scope {
            collator: self.collator.as_deref(),
            context,
        }
    }

    /// The tree.
    pub fn root(&self) -> &MatchExpr {
        &self.root
    }

    /// The point that matches are wanted in the order of their distance from, with the path of their geometries.
    pub(crate) fn near(&self) -> Option<(&Path, &Arc<NearTest>)> {
        self.root.conjuncts().iter().find_map(|part| match part {
            MatchExpr::Path {
                path,
                test: Test::Near(near),
            } => Some((path, near)),
            _ => None,
        })
    }

    /// What text is searched for.
    pub(crate) fn text(&self) -> Option<&Arc<TextTest>> {
        text_in(&self.root)
    }

    /// The filter without the search that is one of its conjuncts; `None` when nothing is left.
    pub(crate) fn beside_text(&self) -> Option<Self> {
        let is_other = |part: &&MatchExpr| !matches!(part, MatchExpr::Text(_));
        let root = MatchExpr::and(self.root.conjuncts().iter().filter(is_other).cloned());
        (!matches!(root, MatchExpr::AlwaysTrue)).then(|| Self::from_expr(root, self.collator.clone()))
    }

    /// The order of strings; `None` is binary.
    pub fn collator(&self) -> Option<&Arc<dyn Collator>> {
        self.collator.as_ref()
    }

    /// Whether every document matches.
    pub fn is_always_true(&self) -> bool {
        matches!(self.root, MatchExpr::AlwaysTrue)
    }

    /// The filter in normal form: `parsedQuery` of explain.
    pub fn to_document(&self) -> RawDocumentBuf {
        serialize::to_document(&self.root)
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.root.fmt(f)
    }
}

/// What text a filter searches for; it does so once at most.
pub(crate) fn text_in(expr: &MatchExpr) -> Option<&Arc<TextTest>> {
    match expr {
        MatchExpr::Text(test) => Some(test),
        MatchExpr::And(parts) | MatchExpr::Or(parts) => parts.iter().find_map(text_in),
        _ => None,
    }
}

/// Whether a part of a filter matches on its own.
pub(crate) fn matches_expr(expr: &MatchExpr, document: &RawDocument, scope: Scope<'_>) -> Result<bool, QueryError> {
    evaluate::matches(expr, document, scope, None)
}

impl MatchExpr {
    /// The paths it reads.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        match self {
            Self::AlwaysTrue | Self::AlwaysFalse => {}
            Self::And(parts) | Self::Or(parts) | Self::Nor(parts) => {
                parts.iter().for_each(|part| part.add_dependencies(dependencies));
            }
            Self::Not(part) => part.add_dependencies(dependencies),
            Self::Path { path, .. } => {
                // A number in a path may be an array's index: then the field above is what is read.
                let names = path.parts().iter().take_while(|part| part.index().is_none());
                let names: Vec<&str> = names.map(|part| part.name()).collect();
                if names.is_empty() {
                    dependencies.whole_document = true;
                } else {
                    dependencies.paths.insert(names.join("."));
                }
            }
            Self::Expr(predicate) => predicate.expression.add_dependencies(dependencies),
            Self::Schema(_) | Self::Text(_) | Self::Where(_) => dependencies.whole_document = true,
        }
    }

    /// This part as a filter document in normal form.
    pub fn to_document(&self) -> RawDocumentBuf {
        serialize::to_document(self)
    }
}

#[cfg(test)]
pub(crate) mod tests;
