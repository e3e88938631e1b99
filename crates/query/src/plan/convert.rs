//! From the filter's tree to the planner's predicates.
//!
//! Only predicates on indexed paths become leaves; everything else is opaque, which costs an index some precision and
//! never a result.

use super::encode::{StringKeys, bracket, everything};
use super::interval::Intervals;
use super::leaf::{Comparison, Leaf};
use super::predicate::Predicate;
use super::special;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, FieldComparison};
use crate::matcher::{CompareOp, MatchExpr, Matcher, Test, TypeSet, ValueTest};
use bson::spec::ElementType;
use keys::FieldKind;

/// How deep the tree is looked into; deeper parts are opaque. The matcher's own limit is the same.
const DEPTH_MAX: usize = 100;

/// The memory that the bounds of a query's `$expr` may take: each comparison has a copy of the value of its variable.
const EXPRESSION_BYTES_MAX: usize = 16 << 20;

/// The kinds that the indexes' fields on a path have; none, if no index is on it.
pub(crate) type Indexed<'c> = dyn Fn(&str) -> Vec<FieldKind> + 'c;

/// Turns filters into predicates on the paths that `indexed` knows.
pub(crate) struct Converter<'c> {
    indexed: &'c Indexed<'c>,
    keys: StringKeys<'c>,
    elements: usize,
    /// The memory that bounds of `$expr` take so far.
    expression_bytes: usize,
}

impl<'c> Converter<'c> {
    /// The predicates of a filter, for indexes with such keys.
    pub(crate) fn convert(matcher: Option<&Matcher>, indexed: &'c Indexed<'c>, keys: StringKeys<'c>) -> Predicate {
        let converter = |matcher: &Matcher| {
            let mut converter = Converter {
                indexed,
                keys,
                elements: 0,
                expression_bytes: 0,
            };
            converter.expression(matcher.root(), 0)
        };
        matcher.map_or(Predicate::And(Vec::new()), converter)
    }

    fn expression(&mut self, expression: &MatchExpr, depth: usize) -> Predicate {
        if depth > DEPTH_MAX {
            return Predicate::Opaque;
        }
        match expression {
            MatchExpr::AlwaysTrue => Predicate::And(Vec::new()),
            MatchExpr::AlwaysFalse => Predicate::Never,
            MatchExpr::And(parts) => {
                Predicate::And(parts.iter().map(|part| self.expression(part, depth + 1)).collect())
            }
            MatchExpr::Or(parts) => Predicate::Or(parts.iter().map(|part| self.expression(part, depth + 1)).collect()),
            MatchExpr::Nor(parts) => Predicate::And(parts.iter().map(|part| self.negation(part)).collect()),
            MatchExpr::Not(part) => self.negation(part),
            MatchExpr::Path { path, test } => self.path(path.text(), test, depth),
            MatchExpr::Expr(predicate) => self.comparisons(&predicate.expression),
            MatchExpr::Schema(_) | MatchExpr::Text(_) | MatchExpr::Where(_) => Predicate::Opaque,
        }
    }

    /// What an expression that is true tells of keys; the opaque member stands for the rest, and for comparisons whose
    /// bounds would take too much memory.
    fn comparisons(&mut self, expression: &Expression) -> Predicate {
        let context = EvaluationContext::uninterrupted();
        let leaf = |comparison: FieldComparison<'_>| {
            if self.expression_bytes >= EXPRESSION_BYTES_MAX {
                return None;
            }
            let path = comparison.path.to_string();
            if has_position(&path) || (self.indexed)(&path).is_empty() {
                return None;
            }
            // Where it fails the filter will, too, if there is a document to fail on.
            let value = comparison.operand.evaluate(&context).ok()?;
            let leaf = Leaf::in_order_of_all(&path, comparison.op, value.as_raw()?, self.keys)?;
            self.expression_bytes += leaf.set.own_bytes();
            Some(Predicate::Leaf(Box::new(leaf)))
        };
        let leaves = expression.field_comparisons().into_iter().filter_map(leaf);
        Predicate::And(std::iter::once(Predicate::Opaque).chain(leaves).collect())
    }

    fn negation(&self, part: &MatchExpr) -> Predicate {
        let MatchExpr::Path { path, test } = part else {
            return Predicate::Opaque;
        };
        if (self.indexed)(path.text()).is_empty() || has_position(path.text()) {
            return Predicate::Opaque;
        }
        let leaf = match test {
            Test::Exists => Some(Leaf::exists(path.text(), false)),
            test => simple_leaf(path.text(), test, self.keys).and_then(Leaf::negated),
        };
        leaf.map_or(Predicate::Opaque, |leaf| Predicate::Leaf(Box::new(leaf)))
    }

    fn path(&mut self, path: &str, test: &Test, depth: usize) -> Predicate {
        match test {
            Test::ElemMatchObject(_) if has_position(path) => Predicate::Opaque,
            Test::ElemMatchObject(filter) => self.element(path, filter, depth),
            test => {
                let kinds = (self.indexed)(path);
                if kinds.is_empty() {
                    return Predicate::Opaque;
                }
                let leaf = simple_leaf(path, test, self.keys);
                let leaf = if has_position(path) {
                    leaf.and_then(|leaf| at_position(leaf, test))
                } else {
                    leaf.map(|leaf| Leaf {
                        special: special::sets(test, &kinds, self.keys),
                        ..leaf
                    })
                };
                leaf.map_or(Predicate::Opaque, |leaf| Predicate::Leaf(Box::new(leaf)))
            }
        }
    }

    /// `$elemMatch` with a filter: its conjuncts bound the fields below the array. The opaque member stands for what
    /// they do not tell: that one element satisfies them all.
    fn element(&mut self, array: &str, filter: &MatchExpr, depth: usize) -> Predicate {
        self.elements += 1;
        let number = self.elements;
        let outer = self.indexed;
        let below = |path: &str| outer(&format!("{array}.{path}"));
        let mut inner = Converter {
            indexed: &below,
            keys: self.keys,
            elements: self.elements,
            expression_bytes: self.expression_bytes,
        };
        let predicate = inner.expression(filter, depth + 1);
        (self.elements, self.expression_bytes) = (inner.elements, inner.expression_bytes);
        let mut parts = vec![Predicate::Opaque];
        for conjunct in predicate.conjuncts() {
            let Predicate::Leaf(leaf) = conjunct else { continue };
            if has_position(&leaf.path) {
                continue;
            }
            let mut leaf = leaf.clone();
            leaf.path = format!("{array}.{}", leaf.path);
            leaf.exact = false;
            leaf.element = Some(match leaf.element {
                Some((inner, number)) => (format!("{array}.{inner}"), number),
                None => (array.to_owned(), number),
            });
            parts.push(Predicate::Leaf(leaf));
        }
        Predicate::And(parts)
    }
}

/// Whether a component of a path is a number, which may be a position in an array.
pub(crate) fn has_position(path: &str) -> bool {
    path.split('.').any(is_number)
}

fn is_number(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_digit())
}

/// What is left of a leaf on a path with a number in it. There keys and the matcher's walk differ: a position leads the
/// extraction to one element alone and through arrays in it, while the matcher walks through the other elements as well
/// and finds in them that the field is missing. So keys tell nothing of null, of what is inside the elements, and,
/// below two numbers, of anything; and a key in the set is no proof.
fn at_position(leaf: Leaf, test: &Test) -> Option<Leaf> {
    let numbers = leaf.path.split('.').filter(|part| is_number(part)).count();
    let by_keys = numbers < 2 && !leaf.matches_missing && !matches!(test, Test::ElemMatchValue(_));
    by_keys.then_some(Leaf { exact: false, ..leaf })
}

/// The leaf of a test on one path.
fn simple_leaf(path: &str, test: &Test, keys: StringKeys<'_>) -> Option<Leaf> {
    match test {
        Test::Compare { op, value } => match op {
            CompareOp::Eq => Leaf::equal(path, value.value(), keys),
            CompareOp::Lt => Leaf::compare(path, Comparison::Less, value.value(), keys),
            CompareOp::Lte => Leaf::compare(path, Comparison::LessOrEqual, value.value(), keys),
            CompareOp::Gt => Leaf::compare(path, Comparison::Greater, value.value(), keys),
            CompareOp::Gte => Leaf::compare(path, Comparison::GreaterOrEqual, value.value(), keys),
        },
        Test::In(list) => Leaf::one_of(
            path,
            list.values.iter().map(|value| value.value()),
            list.regexes.iter().map(|regex| (regex.pattern(), regex.options())),
            keys,
        ),
        Test::Regex(regex) => Some(Leaf::regex(path, regex.pattern(), regex.options(), keys)),
        Test::Exists => Some(Leaf::exists(path, true)),
        Test::Type(types) => type_leaf(path, *types),
        Test::Mod { .. } => Some(Leaf::superset(path, Intervals::one(bracket(ElementType::Double)))),
        Test::Bits(_) => {
            let types = vec![bracket(ElementType::Double), bracket(ElementType::Binary)];
            Some(Leaf::superset(path, Intervals::from_unsorted(types)))
        }
        Test::ElemMatchValue(tests) => Some(element_leaf(path, tests, keys)),
        // Keys of values tell nothing of geometry; the leaf carries sets of other kinds.
        Test::Geo(_) | Test::Near(_) => Some(Leaf::superset(path, Intervals::one(everything()))),
        Test::Size(_) | Test::ElemMatchObject(_) => None,
    }
}

fn type_leaf(path: &str, types: TypeSet) -> Option<Leaf> {
    if types.contains(ElementType::Array) || types.contains(ElementType::Undefined) {
        return None;
    }
    Some(Leaf::superset(
        path,
        Intervals::from_unsorted(types.types().map(bracket).collect()),
    ))
}

/// `$elemMatch` with operators: all of them hold for one element, so their sets intersect even on a field with arrays.
fn element_leaf(path: &str, tests: &[ValueTest], keys: StringKeys<'_>) -> Leaf {
    let leaf = |test: &ValueTest| {
        match test {
            // The element is an array itself, whose key is all of it.
            ValueTest::Is(Test::ElemMatchValue(_) | Test::ElemMatchObject(_) | Test::Size(_)) => {
                Some(Leaf::superset(path, Intervals::one(bracket(ElementType::Array))))
            }
            ValueTest::Is(test) => simple_leaf(path, test, keys),
            ValueTest::Not(inner) => match inner.as_slice() {
                [ValueTest::Is(test)] => simple_leaf(path, test, keys)
                    .filter(|leaf| leaf.exact)
                    .and_then(Leaf::negated),
                _ => None,
            },
        }
    };
    let sets = tests.iter().filter_map(leaf).map(|leaf| leaf.set);
    let set = Intervals::common_to_all(sets);
    Leaf::superset(path, set.unwrap_or_else(|| Intervals::one(everything())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::ExpressionContext;
    use bson::{doc, rawdoc};
    use std::sync::Arc;
    use vfs::SeededRandom;

    /// A variable was copied for each comparison with it: a command of 100 KB could take gigabytes.
    #[test]
    fn bounds_of_expressions_are_bounded_in_memory() {
        let variables = rawdoc! { "v": "x".repeat(1 << 20) };
        let context = ExpressionContext::new(0, Arc::new(SeededRandom::new(1)));
        let context = context.with_let(&variables).expect("a variable");
        let comparisons = |count: usize| {
            let parts: Vec<_> = (0..count).map(|_| doc! { "$gte": ["$a", "$$v"] }).collect();
            let filter = doc! { "$and": [{ "$expr": { "$and": parts.clone() } }, { "$expr": { "$and": parts } }] };
            let filter = bson::RawDocumentBuf::try_from(&filter).expect("BSON");
            let matcher = Matcher::parse(&filter, &context).expect("a filter");
            let predicate = Converter::convert(Some(&matcher), &|_| vec![FieldKind::Value], StringKeys::Alike(None));
            let conjuncts = predicate.conjuncts();
            let leaves = conjuncts
                .iter()
                .filter(|part| matches!(part, Predicate::Leaf(_)))
                .count();
            assert!(conjuncts.iter().any(|part| matches!(part, Predicate::Opaque)));
            leaves
        };
        assert_eq!(comparisons(3), 6);
        // An encoding may have room for as much again.
        let many = comparisons(100);
        assert!((8..=16).contains(&many), "{many}");
    }
}
