//! `$or` of equalities.

use super::super::tree::{InList, MatchExpr, Test};
use crate::raw::Constant;
use crate::value::CompareOp;
use bson::RawBsonRef;
use keys::Collator;
use std::collections::HashMap;

/// The parts of an `$or`, where two and more equalities of one path are an `$in` in the place of the first of them: one
/// scan of an index finds them, and `$` in an update has the position of the element that is in it.
pub(super) fn join_equalities(parts: Vec<MatchExpr>, collator: Option<&dyn Collator>) -> Vec<MatchExpr> {
    // By path: there may be thousands of parts.
    let mut values: HashMap<Box<str>, Vec<Constant>> = HashMap::new();
    for part in &parts {
        if let Some((path, value)) = equality(part) {
            values.entry(path.into()).or_default().push(value.clone());
        }
    }
    let mut joined = Vec::with_capacity(parts.len());
    for part in parts {
        match equality(&part).map(|(path, _)| values.get_mut(path)) {
            Some(Some(values)) if values.len() > 1 => {
                let MatchExpr::Path { path, .. } = part else { continue };
                let test = one_of(std::mem::take(values), collator);
                joined.push(MatchExpr::Path { path, test });
            }
            // A former one has taken them all.
            Some(Some(values)) if values.is_empty() => {}
            _ => joined.push(part),
        }
    }
    joined
}

fn equality(part: &MatchExpr) -> Option<(&str, &Constant)> {
    match part {
        MatchExpr::Path {
            path,
            test: Test::Compare {
                op: CompareOp::Eq,
                value,
            },
        } if !matches!(value.value(), RawBsonRef::RegularExpression(_)) => Some((path.text(), value)),
        // As an element of a list a regular expression would be one to match by.
        _ => None,
    }
}

fn one_of(values: Vec<Constant>, collator: Option<&dyn Collator>) -> Test {
    let mut list = InList {
        has_null: values.iter().any(|value| value.value() == RawBsonRef::Null),
        values,
        regexes: Vec::new(),
    };
    list.sort(collator);
    match list.values.len() {
        // The same value again and again.
        1 => Test::Compare {
            op: CompareOp::Eq,
            value: list.values.remove(0),
        },
        _ => Test::In(list),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::evaluation::EvaluationContext;
    use crate::matcher::Matcher;
    use crate::matcher::tests::{context, raw_of};
    use bson::{Bson, doc};

    fn matcher(filter: &bson::Document) -> Matcher {
        Matcher::parse(&raw_of(filter), &context()).unwrap()
    }

    #[test]
    fn equalities_of_one_path_are_a_list() {
        let joined = |filter: bson::Document| bson::Document::try_from(matcher(&filter).to_document()).unwrap();
        for (filter, expected) in [
            (
                doc! {"$or": [{"a": 2}, {"b": 1}, {"a": 1}, {"a": 2}, {"a": {"$gt": 5}}]},
                doc! {"$or": [{"a": {"$in": [1, 2]}}, {"b": {"$eq": 1}}, {"a": {"$gt": 5}}]},
            ),
            (doc! {"$or": [{"a": 1}, {"a": 1}]}, doc! {"a": {"$eq": 1}}),
            (
                doc! {"$or": [{"a": Bson::Null}, {"a": [1]}]},
                doc! {"a": {"$in": [Bson::Null, [1]]}},
            ),
            (
                doc! {"$or": [{"a": 1}, {"b": 1}]},
                doc! {"$or": [{"a": {"$eq": 1}}, {"b": {"$eq": 1}}]},
            ),
        ] {
            assert_eq!(joined(filter.clone()), expected, "{filter}");
        }
        let filter = matcher(&doc! {"$or": [{"a": Bson::Null}, {"a": 5}]});
        for (document, is_wanted) in [(doc! {}, true), (doc! {"a": 5}, true), (doc! {"a": 6}, false)] {
            let found = filter.matches(&raw_of(&document), &EvaluationContext::uninterrupted());
            assert_eq!(found.unwrap(), is_wanted, "{document}");
        }
    }
}
