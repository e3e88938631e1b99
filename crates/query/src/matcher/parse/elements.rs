//! Filters on the elements of arrays: what `$pull`, `arrayFilters` and the `$elemMatch` of a projection ask.

use bson::{RawBsonRef, RawDocument};

use super::super::evaluate::{self, Scope};
use super::{Nearness, Parser, Running, Searching, begins_pathless, first_name, implicit, is_operators, names_expr};
use crate::QueryError;
use crate::expression::ExpressionContext;
use crate::matcher::tree::{MatchExpr, Test, ValueTest};
use crate::raw::{self, Elements, kind};
use crate::value::scan::frame;
use wire::ErrorCode;

/// What `$pull` and `arrayFilters` ask of one array element or value.
#[derive(Clone, Debug)]
pub(crate) enum ValuePredicate {
    /// The value passes these tests, itself.
    Tests(Vec<ValueTest>),
    /// The value, or one of its elements when it is an array, passes operators: a filter on the field "".
    Field(MatchExpr),
    /// The value is a document that matches.
    Document(MatchExpr),
    /// The value is a document, or an array with positions for names, that matches.
    Nested(MatchExpr),
}

impl ValuePredicate {
    /// Whether a value fulfils it.
    pub(crate) fn matches(&self, element: raw::Element<'_>, scope: Scope<'_>) -> Result<bool, QueryError> {
        match self {
            Self::Tests(tests) => evaluate::passes_all(tests, element, scope),
            Self::Field(filter) => {
                let mut bytes = Vec::with_capacity(element.value_bytes().len() + 7);
                let document = raw::Frame::begin(&mut bytes);
                raw::append(&mut bytes, element.kind(), b"", element.value_bytes());
                document.finish(&mut bytes);
                evaluate::matches(filter, frame(&bytes)?, scope, None)
            }
            Self::Document(filter) if element.kind() == kind::DOCUMENT => {
                evaluate::matches(filter, element.frame()?, scope, None)
            }
            Self::Nested(filter) if matches!(element.kind(), kind::DOCUMENT | kind::ARRAY) => {
                evaluate::matches(filter, element.frame()?, scope, None)
            }
            Self::Document(_) | Self::Nested(_) => Ok(false),
        }
    }
}

/// A parser that is inside of an array.
fn of_elements(context: &ExpressionContext) -> Parser<'_> {
    Parser {
        context: Some(context),
        is_stored: context.is_stored(),
        in_element: true,
        may_be_near: Nearness::Refused,
        may_search: Searching::Refused,
        may_run: Running::Refused,
    }
}

/// Fails where a filter on elements has `$expr`, which needs a whole document.
fn refuse_expr(filter: &RawDocument) -> Result<(), QueryError> {
    match names_expr(filter)? {
        true => Err(QueryError::new(
            ErrorCode::QueryFeatureNotAllowed,
            "$expr is not allowed in this context",
        )),
        false => Ok(()),
    }
}

/// The argument of `$pull`: operators on the elements, a filter for elements that are documents, a value to equal or a
/// regular expression to match.
pub(crate) fn pull_condition(value: RawBsonRef<'_>, context: &ExpressionContext) -> Result<ValuePredicate, QueryError> {
    let parser = of_elements(context);
    // `$not` stands for no operator on a value alone: it is refused as at the top of a filter.
    let is_filter = |document: &RawDocument| begins_pathless(document) || first_name(document) == Some(b"$not");
    match value {
        RawBsonRef::Document(operators) if is_operators(operators) && !is_filter(operators) => {
            let filter = bson::rawdoc! { "": operators.to_owned() };
            Ok(ValuePredicate::Field(parser.document(&filter, 0)?))
        }
        RawBsonRef::Document(filter) => {
            refuse_expr(filter)?;
            Ok(ValuePredicate::Document(parser.document(filter, 0)?))
        }
        value => Ok(ValuePredicate::Tests(vec![ValueTest::Is(implicit(value)?)])),
    }
}

/// The argument of `$elemMatch` in a projection.
pub(crate) fn element_condition(
    filter: &RawDocument,
    context: &ExpressionContext,
) -> Result<ValuePredicate, QueryError> {
    let parser = of_elements(context);
    Ok(match parser.element_match(RawBsonRef::Document(filter), 0)? {
        Test::ElemMatchObject(filter) => ValuePredicate::Nested(*filter),
        Test::ElemMatchValue(tests) => ValuePredicate::Tests(tests),
        other => ValuePredicate::Tests(vec![ValueTest::Is(other)]),
    })
}

/// One of `arrayFilters`, as a filter on the document `{identifier: element}`, with the identifier.
pub(crate) fn array_filter(
    document: &RawDocument,
    context: &ExpressionContext,
) -> Result<(String, MatchExpr), QueryError> {
    refuse_expr(document)?;
    let root = of_elements(context).document(document, 0)?;
    let mut identifier = None;
    collect_identifier(document, &mut identifier)?;
    let identifier = identifier.ok_or_else(|| {
        QueryError::failed_to_parse("Cannot use an expression without a top-level field name in arrayFilters")
    })?;
    let lower_first = identifier.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !lower_first || !identifier.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(QueryError::bad_value(format!(
            "Error parsing array filter :: caused by :: The top-level field name must be an alphanumeric string \
             beginning with a lowercase letter, found '{identifier}'"
        )));
    }
    Ok((identifier, root))
}

/// The name that all conditions begin with. The filter as written has it also where the parsed one has folded the
/// condition away.
fn collect_identifier(filter: &RawDocument, found: &mut Option<String>) -> Result<(), QueryError> {
    for element in Elements::new(filter) {
        let element = element?;
        let name = element.name_str()?;
        if matches!(name, "$and" | "$or" | "$nor") {
            for part in Elements::new(element.frame()?) {
                collect_identifier(part?.frame()?, found)?;
            }
        } else if !name.starts_with('$') {
            let name = name.split('.').next().unwrap_or_default();
            match found {
                Some(first) if first != name => {
                    return Err(QueryError::failed_to_parse(format!(
                        "Error parsing array filter :: caused by :: Expected a single top-level field name, found '{first}' \
                         and '{name}'"
                    )));
                }
                _ => *found = Some(name.to_owned()),
            }
        }
    }
    Ok(())
}
