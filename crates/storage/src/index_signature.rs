//! What of an index makes it another one than the next: however its options are written.
//!
//! Of a partial index' filter the conditions count, not how they are put together: `$and` is what the fields of a
//! document are, and neither has an order. Of a wildcard projection the paths count.

use crate::IndexSpec;
use crate::catalog::index::truthy;
use bson::RawDocument;
use bson::raw::RawBsonRef;
use std::collections::BTreeMap;

/// Whether two indexes have the same documents.
pub(crate) fn same_filter(one: &IndexSpec, other: &IndexSpec) -> bool {
    let normal = |spec: &IndexSpec| spec.partial_filter.as_deref().map(conditions);
    one.partial_filter == other.partial_filter || normal(one) == normal(other)
}

/// Whether two indexes have the same paths of documents.
pub(crate) fn same_projection(one: &IndexSpec, other: &IndexSpec) -> bool {
    let normal = |spec: &IndexSpec| spec.spec.get_document("wildcardProjection").ok().map(projected);
    normal(one) == normal(other)
}

/// A condition of a filter: the path, or an operator that stands for itself; the operator; its operand as text.
type Condition = (String, String, String);

/// The conditions that are all to hold, by path and operator; those alike in both stay in order.
fn conditions(filter: &RawDocument) -> Vec<Condition> {
    let mut found = Vec::new();
    add_conditions(filter, &mut found);
    found.sort_by(|(path, operator, _), (other, than, _)| (path, operator).cmp(&(other, than)));
    found
}

fn add_conditions(filter: &RawDocument, found: &mut Vec<Condition>) {
    for (name, value) in filter.iter().flatten() {
        let name = name.as_str();
        let mut add = |operator: &str, value: RawBsonRef<'_>| {
            found.push((name.to_owned(), operator.to_owned(), format!("{value:?}")));
        };
        match value {
            RawBsonRef::Array(parts) if name == "$and" => {
                for part in parts.into_iter().flatten().filter_map(RawBsonRef::as_document) {
                    add_conditions(part, found);
                }
            }
            RawBsonRef::Array(parts) if name == "$or" => {
                let parts = parts.into_iter().flatten().filter_map(|part| part.as_document());
                let mut branches: Vec<Vec<Condition>> = parts.map(conditions).collect();
                branches.sort();
                found.push((name.to_owned(), String::new(), format!("{branches:?}")));
            }
            RawBsonRef::Document(operators) if begins_with_operator(operators) => {
                for (operator, operand) in operators.iter().flatten() {
                    add(operator.as_str(), operand);
                }
            }
            value => add("$eq", value),
        }
    }
}

fn begins_with_operator(document: &RawDocument) -> bool {
    let first = document.iter().flatten().next();
    first.is_some_and(|(name, _)| name.as_str().starts_with('$'))
}

/// The paths of a projection, and whether they are in it. That `_id` is not goes without saying.
fn projected(projection: &RawDocument) -> BTreeMap<String, bool> {
    let mut paths = BTreeMap::new();
    add_paths("", projection, &mut paths);
    if paths.len() > 1 && paths.get("_id") == Some(&false) {
        paths.remove("_id");
    }
    paths
}

fn add_paths(prefix: &str, projection: &RawDocument, paths: &mut BTreeMap<String, bool>) {
    for (name, value) in projection.iter().flatten() {
        let path = format!("{prefix}{}", name.as_str());
        match value {
            RawBsonRef::Document(inner) => add_paths(&format!("{path}."), inner, paths),
            value => drop(paths.insert(path, truthy(value))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn filters_are_told_from_each_other_by_their_conditions() {
        let same = |one: &RawDocument, other: &RawDocument| conditions(one) == conditions(other);
        assert!(same(
            &rawdoc! { "a": { "$gt": 0, "$lt": 10 }, "b": "x" },
            &rawdoc! { "$and": [{ "b": { "$eq": "x" } }, { "$and": [{ "a": { "$lt": 10 } }, { "a": { "$gt": 0 } }] }] },
        ));
        assert!(same(
            &rawdoc! { "$or": [{ "a": 1, "b": 2 }, { "c": 3 }] },
            &rawdoc! { "$or": [{ "c": 3 }, { "b": 2, "a": 1 }] },
        ));
        for (one, other) in [
            (rawdoc! { "a": { "$gt": 0 } }, rawdoc! { "a": { "$gte": 0 } }),
            (rawdoc! { "a": { "$gt": 0 } }, rawdoc! { "a": { "$gt": 1 } }),
            (rawdoc! { "a": 1, "b": 2 }, rawdoc! { "a": 1 }),
            (rawdoc! { "a": 1, "b": 2 }, rawdoc! { "$or": [{ "a": 1 }, { "b": 2 }] }),
            // A document in a document has its order.
            (rawdoc! { "a": { "b": 1, "c": 2 } }, rawdoc! { "a": { "c": 2, "b": 1 } }),
            // So have two of one kind on one path.
            (
                rawdoc! { "$and": [{ "a": { "$type": 1 } }, { "a": { "$type": 2 } }] },
                rawdoc! { "$and": [{ "a": { "$type": 2 } }, { "a": { "$type": 1 } }] },
            ),
        ] {
            assert!(!same(&one, &other), "{one:?} {other:?}");
        }
    }

    #[test]
    fn projections_are_told_from_each_other_by_their_paths() {
        let same = |one: &RawDocument, other: &RawDocument| projected(one) == projected(other);
        let nested = rawdoc! { "a": { "c": true, "b": 1.0 }, "_id": 0 };
        assert!(same(&rawdoc! { "a.b": 1, "a.c": 1 }, &nested));
        assert!(!same(&rawdoc! { "a": 1 }, &rawdoc! { "a": 1, "_id": 1 }));
        assert!(!same(&rawdoc! { "a": 1 }, &rawdoc! { "a": 0 }));
        assert!(!same(&rawdoc! { "_id": 0 }, &rawdoc! { "a": 0 }));
    }
}
