//! Evaluation of a filter's tree over a document's bytes.

use std::cmp::Ordering;

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};
use keys::{Collator, canonical_type};

use super::MatchDetails;
use super::number::truncated;
use super::tree::{InList, MatchExpr, Test, ValueTest};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::path::{self, LeafArray, Path};
use crate::raw::{Constant, Element, Elements, kind};
use crate::value::CompareOp;
use crate::value::scan::Malformed;

/// What a match is evaluated with.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s> {
    /// The order of strings; `None` is binary.
    pub(crate) collator: Option<&'s dyn Collator>,
    pub(crate) context: &'s EvaluationContext<'s>,
}

/// Whether the document matches; fills in `details` when it does.
pub(super) fn matches(
    expr: &MatchExpr,
    document: &RawDocument,
    scope: Scope<'_>,
    mut details: Option<&mut MatchDetails>,
) -> Result<bool, QueryError> {
    match expr {
        MatchExpr::AlwaysTrue => Ok(true),
        MatchExpr::AlwaysFalse => Ok(false),
        MatchExpr::Path { path, test } => matches_path(path, test, document, scope, details),
        MatchExpr::And(parts) => {
            if details.is_some() {
                for part in in_normal_order(parts) {
                    if !matches(part, document, scope, details.as_deref_mut())? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
            if let Some(path) = path_of_equalities(parts) {
                return equals_all(path, parts, document, scope);
            }
            for part in parts {
                if !matches(part, document, scope, None)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        // Which branch found an element is not told.
        MatchExpr::Or(parts) => {
            for part in parts {
                if matches(part, document, scope, None)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        MatchExpr::Nor(parts) => {
            for part in parts {
                if matches(part, document, scope, None)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        MatchExpr::Not(part) => Ok(!matches(part, document, scope, None)?),
        MatchExpr::Schema(schema) => schema.matches(document, scope.context),
        MatchExpr::Text(test) => test.matches(document, scope.context),
        MatchExpr::Where(test) => test.matches(document, scope.context),
        MatchExpr::Expr(predicate) => Ok(predicate.expression.evaluate_on(document, scope.context)?.is_true()),
    }
}

/// Fills in the details of a document that is known to match. What finds no element is not asked again, scripts least
/// of all: they may take long, and may say something else the second time.
pub(super) fn add_details(
    expr: &MatchExpr,
    document: &RawDocument,
    scope: Scope<'_>,
    details: &mut MatchDetails,
) -> Result<(), QueryError> {
    match expr {
        MatchExpr::Path { path, test } => matches_path(path, test, document, scope, Some(details)).map(drop),
        MatchExpr::And(parts) => {
            let mut parts = in_normal_order(parts).into_iter();
            parts.try_for_each(|part| add_details(part, document, scope, details))
        }
        _ => Ok(()),
    }
}

/// The parts of a conjunction, the last of which to find an element tells which: clients count on the order that the
/// filter's normal form has.
fn in_normal_order(parts: &[MatchExpr]) -> Vec<&MatchExpr> {
    let mut ordered: Vec<&MatchExpr> = parts.iter().collect();
    ordered.sort_by_key(|part| normal_order(part));
    ordered
}

/// Whether the document matches, where scripts are not run; `None` when one would decide.
pub(super) fn matches_without_scripts(
    expr: &MatchExpr,
    document: &RawDocument,
    scope: Scope<'_>,
) -> Result<Option<bool>, QueryError> {
    let any = |parts: &[MatchExpr], wanted: bool| -> Result<Option<bool>, QueryError> {
        let mut found = Some(false);
        for part in parts {
            match matches_without_scripts(part, document, scope)? {
                Some(matched) if matched == wanted => return Ok(Some(true)),
                Some(_) => {}
                None => found = None,
            }
        }
        Ok(found)
    };
    let not = |matched: Option<bool>| matched.map(|matched| !matched);
    match expr {
        MatchExpr::And(parts) if path_of_equalities(parts).is_none() => any(parts, false).map(not),
        MatchExpr::Or(parts) => any(parts, true),
        MatchExpr::Nor(parts) => any(parts, true).map(not),
        MatchExpr::Not(part) => matches_without_scripts(part, document, scope).map(not),
        MatchExpr::Where(_) => Ok(None),
        MatchExpr::Expr(_) => {
            scope.context.take_skipped();
            match matches(expr, document, scope, None) {
                Err(QueryError::Code(_)) | Ok(_) if scope.context.take_skipped() => Ok(None),
                told => told.map(Some),
            }
        }
        _ => matches(expr, document, scope, None).map(Some),
    }
}

/// Equalities up to which each walks the document by itself.
const WALKED_EQUALITIES_MAX: usize = 8;

/// The path, where a conjunction is a long list of equalities on one: what `$all` is parsed to.
fn path_of_equalities(parts: &[MatchExpr]) -> Option<&Path> {
    if parts.len() <= WALKED_EQUALITIES_MAX {
        return None;
    }
    let (path, _) = parts[0].as_equality()?;
    let same = |part: &MatchExpr| part.as_equality().is_some_and(|(other, _)| other.text() == path.text());
    parts[1..].iter().all(same).then_some(path)
}

/// Whether a document matches all of the equalities on `path`: its values are sorted once, and not walked for each.
fn equals_all(path: &Path, parts: &[MatchExpr], document: &RawDocument, scope: Scope<'_>) -> Result<bool, QueryError> {
    let mut values = Vec::new();
    let mut is_missing = false;
    path::any(document, path, LeafArray::Expand, scope.context, |element, _| {
        match element {
            Some(element) => values.push(element.value()?),
            None => is_missing = true,
        }
        Ok(false)
    })?;
    let order = |a: &RawBsonRef<'_>, b: &RawBsonRef<'_>| keys::order::compare_with(*a, *b, scope.collator);
    let values = scope.context.sort(values, order)?;
    for (_, wanted) in parts.iter().filter_map(MatchExpr::as_equality) {
        scope.context.step()?;
        let found = values.binary_search_by(|value| order(value, &wanted)).is_ok();
        if !(found || is_missing && matches!(wanted, RawBsonRef::Null)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Where a part of a conjunction stands in the normal form: by kind of test, then by path.
fn normal_order(part: &MatchExpr) -> (u8, &str) {
    let MatchExpr::Path { path, test } = part else {
        return (u8::MAX, "");
    };
    let kind = match test {
        Test::ElemMatchObject(_) => 0,
        Test::ElemMatchValue(_) => 1,
        Test::Size(_) => 2,
        Test::Compare { op, .. } => match op {
            CompareOp::Eq => 3,
            CompareOp::Lte => 4,
            CompareOp::Lt => 5,
            CompareOp::Gt => 6,
            CompareOp::Gte => 7,
        },
        Test::Regex(_) => 8,
        Test::Mod { .. } => 9,
        Test::Exists => 10,
        Test::In(_) => 11,
        Test::Bits(_) => 12,
        Test::Type(_) => 13,
        Test::Geo(_) => 14,
        Test::Near(_) => 15,
    };
    (kind, path.text())
}

fn matches_path(
    path: &Path,
    test: &Test,
    document: &RawDocument,
    scope: Scope<'_>,
    details: Option<&mut MatchDetails>,
) -> Result<bool, QueryError> {
    let leaf = match test {
        Test::Exists | Test::Size(_) | Test::ElemMatchObject(_) | Test::ElemMatchValue(_) => LeafArray::Whole,
        _ => LeafArray::Expand,
    };
    let mut found = None;
    let matched = path::any(document, path, leaf, scope.context, |element, index| {
        let mut inner = None;
        let passed = match element {
            Some(element) => passes(test, element, scope, &mut inner)?,
            None => passes_missing(test),
        };
        found = index.or(inner);
        Ok(passed)
    })?;
    if let (true, Some(details), Some(index)) = (matched, details, found) {
        details.array_index = Some(index);
    }
    Ok(matched)
}

/// Whether a field that is not there passes.
fn passes_missing(test: &Test) -> bool {
    match test {
        Test::Compare { op, value } => matches!(
            (value.element_type(), op),
            (ElementType::Null, CompareOp::Eq | CompareOp::Lte | CompareOp::Gte)
                | (ElementType::MinKey, CompareOp::Gt | CompareOp::Gte)
                | (ElementType::MaxKey, CompareOp::Lt | CompareOp::Lte)
        ),
        Test::In(list) => list.has_null,
        _ => false,
    }
}

/// Whether a value passes, itself and not its elements. `index` gets the position of the element `$elemMatch` found.
fn passes(test: &Test, element: Element<'_>, scope: Scope<'_>, index: &mut Option<u32>) -> Result<bool, QueryError> {
    match test {
        Test::Compare {
            op: CompareOp::Eq,
            value,
        } => Ok(equals(value, element, scope.collator)?),
        Test::Compare { op, value } => Ok(compares(*op, value, element, scope.collator)?),
        Test::In(list) => is_in(list, element, scope.collator),
        Test::Regex(regex) => regex.matches(element),
        Test::Exists => Ok(true),
        Test::Type(types) => Ok(types.contains_kind(element.kind())),
        Test::Size(size) => {
            if element.kind() != kind::ARRAY {
                return Ok(false);
            }
            let mut count = 0;
            for item in Elements::new(element.frame()?) {
                item?;
                count += 1;
            }
            Ok(count == *size)
        }
        Test::Mod { divisor, remainder } => {
            if !element.is_number() {
                return Ok(false);
            }
            // `wrapping_rem`: i64::MIN by -1 is 0.
            Ok(truncated(element.value()?).is_some_and(|number| number.wrapping_rem(*divisor) == *remainder))
        }
        Test::Bits(bits) => Ok(bits.passes(element)?),
        Test::Geo(test) => test.passes(element, scope.context),
        Test::Near(_) => Ok(true),
        Test::ElemMatchObject(filter) => any_item(element, index, scope, |item| match item.kind() {
            kind::DOCUMENT | kind::ARRAY => matches(filter, item.frame()?, scope, None),
            _ => Ok(false),
        }),
        Test::ElemMatchValue(tests) => any_item(element, index, scope, |item| passes_all(tests, item, scope)),
    }
}

/// Whether one element passes all of the tests.
pub(super) fn passes_all(tests: &[ValueTest], element: Element<'_>, scope: Scope<'_>) -> Result<bool, QueryError> {
    for test in tests {
        let passed = match test {
            ValueTest::Is(test) => passes(test, element, scope, &mut None)?,
            ValueTest::Not(inner) => !passes_all(inner, element, scope)?,
        };
        if !passed {
            return Ok(false);
        }
    }
    Ok(true)
}

fn any_item<'a>(
    array: Element<'a>,
    found: &mut Option<u32>,
    scope: Scope<'_>,
    mut test: impl FnMut(Element<'a>) -> Result<bool, QueryError>,
) -> Result<bool, QueryError> {
    if array.kind() != kind::ARRAY {
        return Ok(false);
    }
    for (index, item) in (0..).zip(Elements::new(array.frame()?)) {
        scope.context.step()?;
        if test(item?)? {
            *found = Some(index);
            return Ok(true);
        }
    }
    Ok(false)
}

#[inline]
fn canonical(element: Element<'_>) -> Result<u8, Malformed> {
    Ok(canonical_type(element.element_type()?))
}

/// Whether equal bytes of this type are equal values and unequal bytes are unequal ones. Strings only without a
/// collator.
#[inline]
fn is_equal_by_bytes(kind: u8) -> bool {
    matches!(kind, 0x02 | 0x07 | 0x08 | 0x09 | 0x0A | 0x10 | 0x11 | 0x12)
}

/// Whether a value equals a constant.
#[inline]
pub(crate) fn equals(
    constant: &Constant,
    element: Element<'_>,
    collator: Option<&dyn Collator>,
) -> Result<bool, Malformed> {
    if element.kind() == constant.kind() {
        if is_equal_by_bytes(element.kind()) && (element.kind() != 0x02 || collator.is_none()) {
            return Ok(element.value_bytes() == constant.bytes());
        }
    } else if canonical(element)? != canonical_type(constant.element_type()) {
        return Ok(false);
    }
    Ok(keys::order::compare_with(element.value()?, constant.value(), collator) == Ordering::Equal)
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(number) => number.is_nan(),
        RawBsonRef::Decimal128(number) => keys::Decimal::from(number).is_nan(),
        _ => false,
    }
}

/// `$lt $lte $gt $gte` on one value.
pub(super) fn compares(
    op: CompareOp,
    constant: &Constant,
    element: Element<'_>,
    collator: Option<&dyn Collator>,
) -> Result<bool, Malformed> {
    let type_order = canonical(element)?.cmp(&canonical_type(constant.element_type()));
    if type_order != Ordering::Equal {
        return Ok(match constant.element_type() {
            ElementType::MinKey => matches!(op, CompareOp::Gt | CompareOp::Gte),
            ElementType::MaxKey => matches!(op, CompareOp::Lt | CompareOp::Lte),
            _ => false,
        });
    }
    let value = element.value()?;
    let order = keys::order::compare_with(value, constant.value(), collator);
    // NaN is only comparable to itself.
    if order != Ordering::Equal && (is_nan(value) || is_nan(constant.value())) {
        return Ok(false);
    }
    Ok(match op {
        CompareOp::Eq => order == Ordering::Equal,
        CompareOp::Lt => order == Ordering::Less,
        CompareOp::Lte => order != Ordering::Greater,
        CompareOp::Gt => order == Ordering::Greater,
        CompareOp::Gte => order != Ordering::Less,
    })
}

fn is_in(list: &InList, element: Element<'_>, collator: Option<&dyn Collator>) -> Result<bool, QueryError> {
    match list.values.as_slice() {
        [] => {}
        [only] => {
            if equals(only, element, collator)? {
                return Ok(true);
            }
        }
        values => {
            let value = element.value()?;
            let order = |constant: &Constant| keys::order::compare_with(constant.value(), value, collator);
            if values.binary_search_by(order).is_ok() {
                return Ok(true);
            }
        }
    }
    for regex in &list.regexes {
        if regex.matches(element)? {
            return Ok(true);
        }
    }
    Ok(false)
}
