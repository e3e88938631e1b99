//! Does a filter imply the filter of a partial index? Only then may the index answer it.
//!
//! Answers yes only when sure: each conjunct of the partial filter is found again among the query's conjuncts, or a
//! predicate on the same path is at least as narrow.

use super::convert::Converter;
use super::encode::{StringKeys, may_have_strings};
use super::leaf::Leaf;
use super::predicate::Predicate;
use crate::matcher::{CompareOp, MatchExpr, Matcher, Test, compiled_filter};
use crate::raw::Constant;
use bson::raw::RawBsonRef;
use collation::Collation;
use keys::{Collator, FieldKind};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use storage::Index;

/// How deep the trees are looked into; beyond, the answer is no.
const DEPTH_MAX: usize = 20;

/// True when every document that matches `filter`, whose strings are in the order of `collation`, is in the index.
pub(crate) fn holds_matches(index: &Index, filter: Option<&Matcher>, collation: Option<&Arc<Collation>>) -> bool {
    let Some(predicate) = index.predicate() else {
        return true;
    };
    let is_alike = index.collation() == collation;
    compiled_filter(predicate).is_some_and(|partial| implies(filter, partial, is_alike))
}

/// True when every document that matches `filter` matches `partial`. Which documents match `partial` depends on the
/// order of strings in the index: `is_alike` where that is the filter's.
fn implies(filter: Option<&Matcher>, partial: &MatchExpr, is_alike: bool) -> bool {
    if matches!(partial, MatchExpr::AlwaysTrue) {
        return true;
    }
    let Some(filter) = filter else {
        return false;
    };
    // Values without strings compare alike in all orders.
    if !is_alike && compares_strings(partial) {
        return false;
    }
    let implication = Implication {
        collator: filter.collator().map(|collator| &**collator),
        leaves: RefCell::default(),
    };
    implication.of_trees(filter.root(), partial, 0)
}

/// Whether the order of strings may have a say in what matches.
fn compares_strings(filter: &MatchExpr) -> bool {
    match filter {
        MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse => false,
        MatchExpr::And(parts) | MatchExpr::Or(parts) => parts.iter().any(compares_strings),
        MatchExpr::Path { test, .. } => match test {
            Test::Exists | Test::Type(_) | Test::Geo(_) => false,
            Test::Compare { value, .. } => may_have_strings(value.value()),
            Test::In(list) => list.values.iter().any(|value| may_have_strings(value.value())),
            _ => true,
        },
        _ => true,
    }
}

/// One filter asked about another.
struct Implication<'f> {
    /// The order of strings in both.
    collator: Option<&'f dyn Collator>,
    /// The keys of tests by their addresses: a test is compared with each of the other side, and may be a long list.
    leaves: RefCell<HashMap<*const Test, Option<Rc<Leaf>>>>,
}

impl Implication<'_> {
    fn of_trees(&self, query: &MatchExpr, partial: &MatchExpr, depth: usize) -> bool {
        if depth > DEPTH_MAX {
            return false;
        }
        match (query, partial) {
            (_, MatchExpr::AlwaysTrue) | (MatchExpr::AlwaysFalse, _) => true,
            (_, MatchExpr::And(parts)) => parts.iter().all(|part| self.of_trees(query, part, depth + 1)),
            (MatchExpr::Or(branches), _) => branches.iter().all(|branch| self.of_trees(branch, partial, depth + 1)),
            (MatchExpr::And(conjuncts), _) => conjuncts
                .iter()
                .any(|conjunct| self.of_trees(conjunct, partial, depth + 1)),
            (_, MatchExpr::Or(branches)) => branches.iter().any(|branch| self.of_trees(query, branch, depth + 1)),
            (
                MatchExpr::Path { path, test },
                MatchExpr::Path {
                    path: partial_path,
                    test: partial_test,
                },
            ) => match partial_test {
                // Which geometries are within others is not looked into.
                Test::Geo(_) => {
                    path.text() == partial_path.text()
                        && matches!(test, Test::Geo(_))
                        && query.to_document() == partial.to_document()
                }
                _ => path.text() == partial_path.text() && self.of_tests(test, partial_test),
            },
            // On the way to a dotted path there may be an empty array, which leads nowhere, and is not null.
            (
                MatchExpr::Not(part),
                MatchExpr::Path {
                    path: partial_path,
                    test: Test::Exists,
                },
            ) => {
                let MatchExpr::Path { path, test } = &**part else {
                    return false;
                };
                path.text() == partial_path.text() && !path.text().contains('.') && matches_missing(test)
            }
            _ => false,
        }
    }

    /// Both are asked of the same values, and one value that passes is enough for either: so a test that passes for
    /// fewer values implies the other.
    fn of_tests(&self, query: &Test, partial: &Test) -> bool {
        match partial {
            Test::Exists => match query {
                Test::Exists | Test::Regex(_) | Test::Mod { .. } | Test::Bits(_) | Test::Size(_) | Test::Type(_) => {
                    true
                }
                Test::Geo(_) | Test::Near(_) => true,
                Test::ElemMatchObject(_) | Test::ElemMatchValue(_) => true,
                Test::Compare {
                    op: CompareOp::Eq,
                    value,
                } => !is_nullish(value),
                // Beyond the smallest and the largest value lies everything, missing fields too.
                Test::Compare { value, .. } => {
                    !is_nullish(value) && !matches!(value.value(), RawBsonRef::MinKey | RawBsonRef::MaxKey)
                }
                Test::In(list) => !list.has_null && !list.values.iter().any(is_nullish),
            },
            Test::Type(wanted) => match query {
                Test::Type(types) => types.types().all(|element_type| wanted.contains(element_type)),
                Test::Compare {
                    op: CompareOp::Eq,
                    value,
                } => {
                    !matches!(value.value(), RawBsonRef::Array(_))
                        && !is_nullish(value)
                        && types_comparing_equal(value).all(|element_type| wanted.contains(element_type))
                }
                _ => false,
            },
            Test::Compare {
                op: CompareOp::Eq,
                value: wanted,
            } => match query {
                Test::Compare {
                    op: CompareOp::Eq,
                    value,
                } => self.are_equal(value, wanted),
                Test::In(list) => {
                    list.regexes.is_empty()
                        && !list.values.is_empty()
                        && list.values.iter().all(|value| self.are_equal(value, wanted))
                }
                _ => false,
            },
            _ => self.is_narrower(query, partial),
        }
    }

    fn are_equal(&self, one: &Constant, other: &Constant) -> bool {
        keys::order::compare_with(one.value(), other.value(), self.collator).is_eq()
    }

    /// By their sets of keys, where both are exact.
    fn is_narrower(&self, query: &Test, partial: &Test) -> bool {
        let (Some(query), Some(partial)) = (self.leaf_of(query), self.leaf_of(partial)) else {
            return false;
        };
        query.exact && partial.exact && query.set.is_within(&partial.set)
    }

    fn leaf_of(&self, test: &Test) -> Option<Rc<Leaf>> {
        let made = self.leaves.borrow().get(&std::ptr::from_ref(test)).cloned();
        made.unwrap_or_else(|| {
            let leaf = leaf_of(test, StringKeys::Alike(self.collator)).map(Rc::new);
            self.leaves.borrow_mut().insert(test, leaf.clone());
            leaf
        })
    }
}

fn leaf_of(test: &Test, keys: StringKeys<'_>) -> Option<Leaf> {
    let path = crate::path::Path::new("a").ok()?;
    let matcher = Matcher::from_expr(MatchExpr::on(path, test.clone()), None);
    match Converter::convert(Some(&matcher), &|_| vec![FieldKind::Value], keys) {
        Predicate::Leaf(leaf) => Some(*leaf),
        _ => None,
    }
}

/// Whether a field that is not there passes: it is null, and not `undefined`.
fn matches_missing(test: &Test) -> bool {
    match test {
        Test::Compare {
            op: CompareOp::Eq,
            value,
        } => matches!(value.value(), RawBsonRef::Null),
        Test::In(list) => list.has_null,
        _ => false,
    }
}

fn is_nullish(value: &Constant) -> bool {
    matches!(value.value(), RawBsonRef::Null | RawBsonRef::Undefined)
}

/// The types whose values may equal this one: all number types for a number, strings and symbols for either.
fn types_comparing_equal(value: &Constant) -> impl Iterator<Item = bson::spec::ElementType> {
    let canonical = keys::canonical_type(value.element_type());
    (0..=u8::MAX)
        .filter_map(bson::spec::ElementType::from)
        .filter(move |other| keys::canonical_type(*other) == canonical)
}
