//! The hashes of a query that `explain` shows, by which tools put queries of one shape together.
//!
//! A shape is written as text, hashed with SHA-256: the same query has the same hashes in every process and version.
//! Values are left out; names, operators and what an expression reads stay. Conditions that are all to hold, or one of
//! which is to hold, are in the order of their texts, so that it does not matter how the client wrote them.

use super::query::{Order, Query};
use crate::matcher::{CompareOp, MatchExpr, Matcher, Test, ValueTest};
use crate::project::Projection;
use crate::raw;
use crate::value::Value;
use bson::RawDocument;
use bson::raw::RawBsonRef;
use collation::Collation;
use engine::Direction;
use keys::FieldOrder;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use storage::{Collection, Index};

/// Hashes as hexadecimal digits.
#[derive(Clone, Debug)]
pub struct QueryHashes {
    /// `queryHash` and `planCacheShapeHash`: filter, sort and projection.
    pub shape: String,
    /// `planCacheKey`: the same with the indexes there are.
    pub key: String,
}

impl QueryHashes {
    /// The hashes of a query on a collection, if there is one.
    pub(crate) fn of(query: &Query, collection: Option<&Collection>) -> Self {
        Self::of_shape(&shape_text(query), collection)
    }

    fn of_shape(shape: &str, collection: Option<&Collection>) -> Self {
        let mut key = shape.to_owned();
        for index in collection.into_iter().flat_map(|collection| collection.indexes()) {
            if !index.hidden() {
                key.push_str(&raw::describe(RawBsonRef::Document(index.key())));
                key.push_str(&format!("{}{}", index.sparse(), index.partial_filter().is_some()));
            }
        }
        Self {
            shape: hexadecimal(shape, 4),
            key: hexadecimal(&key, 4),
        }
    }
}

/// A query that was planned, as far as its hashes are made of it. It is cheap to keep: hashes are for the few who ask.
#[derive(Clone)]
pub struct PlannedQuery {
    shape: PlannedShape,
    collection: Arc<Collection>,
}

#[derive(Clone)]
enum PlannedShape {
    /// One value of the path that this index is on, and nothing besides: it was not parsed.
    Lookup(Arc<Index>),
    Parsed {
        filter: Option<Arc<Matcher>>,
        order: Order,
        projection: Option<Arc<Projection>>,
        collation: Option<Arc<Collation>>,
    },
}

impl PlannedQuery {
    /// A query on a collection; `looked_up` is the index of one that was not parsed.
    pub(crate) fn new(query: &Query, looked_up: Option<Arc<Index>>, collection: &Arc<Collection>) -> Self {
        let shape = match looked_up {
            Some(index) => PlannedShape::Lookup(index),
            None => PlannedShape::Parsed {
                filter: query.filter.clone(),
                order: query.order.clone(),
                projection: query.projection.clone(),
                collation: query.collation.clone(),
            },
        };
        Self {
            shape,
            collection: Arc::clone(collection),
        }
    }

    /// Makes its hashes.
    pub fn hashes(&self) -> QueryHashes {
        let shape = match &self.shape {
            PlannedShape::Lookup(index) => {
                let path = index.pattern().fields().first().map_or("", |field| field.path());
                text_of(&path_text(path, CompareOp::Eq.name()), &Order::None, None, None)
            }
            PlannedShape::Parsed {
                filter,
                order,
                projection,
                collation,
            } => {
                let filter = whole_filter_text(filter.as_deref());
                text_of(&filter, order, projection.as_deref(), collation.as_deref())
            }
        };
        QueryHashes::of_shape(&shape, Some(&self.collection))
    }
}

fn hexadecimal(text: &str, bytes: usize) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(bytes).map(|byte| format!("{byte:02X}")).collect()
}

/// What the hash of a query's shape is made of.
pub(super) fn shape_text(query: &Query) -> String {
    let filter = whole_filter_text(query.filter.as_deref());
    let (projection, collation) = (query.projection.as_deref(), query.collation.as_deref());
    text_of(&filter, &query.order, projection, collation)
}

fn text_of(filter: &str, order: &Order, projection: Option<&Projection>, collation: Option<&Collation>) -> String {
    let sort: Vec<String> = match order {
        Order::None => Vec::new(),
        Order::Natural(Direction::Forward) => vec!["$natural".to_owned()],
        Order::Natural(Direction::Reverse) => vec!["-$natural".to_owned()],
        Order::Fields(fields) => fields
            .iter()
            .map(|field| match (&field.metadata, field.order) {
                (Some((metadata, _)), _) => format!("$meta:{}", metadata.name()),
                (None, FieldOrder::Ascending) => field.path.clone(),
                (None, FieldOrder::Descending) => format!("-{}", field.path),
            })
            .collect(),
    };
    let projection = projection.map_or_else(String::new, |projection| projection_text(projection.source()));
    // Of an order of strings all is of the shape: which indexes can be used depends on it.
    let collation = collation.map_or_else(String::new, |collation| {
        raw::describe_whole(RawBsonRef::Document(collation.document()))
    });
    format!("({filter})({})({projection}){collation}", sort.join(","))
}

/// Fields in the order of their names; whether they are in or out.
fn projection_text(projection: &RawDocument) -> String {
    let mut fields: Vec<String> = projection
        .iter()
        .flatten()
        .map(|(name, value)| match Value::from_raw(value) {
            Value::Boolean(_) | Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => {
                format!("{name}:{}", Value::from_raw(value).is_true())
            }
            _ => format!("{name}:{}", value_text(value)),
        })
        .collect();
    fields.sort_unstable();
    format!("{{{}}}", fields.join(","))
}

fn whole_filter_text(filter: Option<&Matcher>) -> String {
    filter.map_or_else(String::new, |filter| filter_text(filter.root()))
}

/// That of a filter with one test of a path.
fn path_text(path: &str, test: &str) -> String {
    format!("{path}:{test}")
}

/// Recursion is bounded by the depth that filters may have.
fn filter_text(expr: &MatchExpr) -> String {
    let list = |name: &str, parts: &[MatchExpr]| {
        let mut parts: Vec<String> = parts.iter().map(filter_text).collect();
        parts.sort_unstable();
        format!("{name}[{}]", parts.join(","))
    };
    match expr {
        MatchExpr::AlwaysTrue => "true".to_owned(),
        MatchExpr::AlwaysFalse => "false".to_owned(),
        MatchExpr::And(parts) => list("and", parts),
        MatchExpr::Or(parts) => list("or", parts),
        MatchExpr::Nor(parts) => list("nor", parts),
        MatchExpr::Not(part) => format!("not[{}]", filter_text(part)),
        MatchExpr::Path { path, test } => path_text(path.text(), &test_text(test)),
        MatchExpr::Text(_) => "$text".to_owned(),
        MatchExpr::Where(_) => "$where".to_owned(),
        MatchExpr::Schema(schema) => format!("schema[{}]", schema_text(RawBsonRef::Document(schema.source()))),
        MatchExpr::Expr(predicate) => format!("expr[{}]", value_text(predicate.source.value())),
    }
}

fn test_text(test: &Test) -> String {
    match test {
        Test::Compare { op, .. } => op.name().to_owned(),
        // It is the same question.
        Test::In(list) if list.values.len() == 1 && list.regexes.is_empty() => CompareOp::Eq.name().to_owned(),
        Test::In(_) => "$in".to_owned(),
        Test::Regex(_) => "$regex".to_owned(),
        Test::Exists => "$exists".to_owned(),
        Test::Type(_) => "$type".to_owned(),
        Test::Size(_) => "$size".to_owned(),
        Test::Mod { .. } => "$mod".to_owned(),
        Test::Bits(bits) => bits.op.name().to_owned(),
        Test::Geo(test) => test.operator().to_owned(),
        Test::Near(_) => "$near".to_owned(),
        Test::ElemMatchObject(filter) => format!("$elemMatch[{}]", filter_text(filter)),
        Test::ElemMatchValue(tests) => format!("$elemMatch({})", tests_text(tests)),
    }
}

fn tests_text(tests: &[ValueTest]) -> String {
    let mut texts: Vec<String> = tests
        .iter()
        .map(|test| match test {
            ValueTest::Is(test) => test_text(test),
            ValueTest::Not(tests) => format!("not({})", tests_text(tests)),
        })
        .collect();
    texts.sort_unstable();
    texts.join(",")
}

/// A specification: names and paths as they are, of other values the type. Depth is that of a document of a client.
/// A value without what it is, but for the names that an expression reads.
pub(super) fn value_text(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::Document(document) => document_text(document),
        RawBsonRef::Array(array) => {
            let parts: Vec<String> = array.into_iter().flatten().map(value_text).collect();
            format!("[{}]", parts.join(","))
        }
        RawBsonRef::String(text) if text.starts_with('$') => text.to_owned(),
        other => format!("?{}", raw::type_name(other.element_type())),
    }
}

/// A schema: the words in it are names of fields and of types.
fn schema_text(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::Document(document) => {
            let fields = document.iter().flatten();
            let parts: Vec<String> = fields
                .map(|(name, value)| format!("{name}:{}", schema_text(value)))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        RawBsonRef::Array(array) => {
            let parts: Vec<String> = array.into_iter().flatten().map(schema_text).collect();
            format!("[{}]", parts.join(","))
        }
        RawBsonRef::String(text) => format!("{text:?}"),
        other => value_text(other),
    }
}

fn document_text(document: &RawDocument) -> String {
    let fields = document.iter().flatten();
    let parts: Vec<String> = fields
        .map(|(name, value)| format!("{name}:{}", value_text(value)))
        .collect();
    format!("{{{}}}", parts.join(","))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::matcher::tests::{context, raw_of};
    use crate::plan::request::FindRequest;
    use bson::{Document, doc};
    use storage::Namespace;

    fn shape(filter: Document, sort: Option<Document>) -> String {
        let (filter, sort) = (raw_of(&filter), sort.map(|sort| raw_of(&sort)));
        let mut request = FindRequest::new(Namespace::parse("d.c").unwrap(), &filter);
        request.sort = sort.as_deref();
        QueryHashes::of(&Query::parse(&request, &context()).unwrap(), None).shape
    }

    #[test]
    fn values_do_not_matter_and_all_else_does() {
        let first = shape(doc! { "a": 1, "b": { "$in": [1, 2] } }, None);
        assert_eq!(first.len(), 8);
        assert_eq!(
            first,
            shape(doc! { "b": { "$in": [5, 6, 7] }, "a": { "$eq": "x" } }, None)
        );
        assert_eq!(shape(doc! { "a": { "$in": [5] } }, None), shape(doc! { "a": 5 }, None));
        let others = [
            shape(doc! { "a": 1 }, None),
            shape(doc! { "a": { "$gt": 1 }, "b": { "$in": [1, 2] } }, None),
            shape(doc! { "a": 1, "b": { "$in": [1, 2] } }, Some(doc! { "a": 1 })),
            shape(doc! { "a": 1, "b": { "$in": [1, 2] } }, Some(doc! { "a": -1 })),
            shape(doc! { "$expr": { "$eq": ["$a", 1] } }, None),
            shape(doc! { "$expr": { "$eq": ["$b", 1] } }, None),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(&first, other, "{i}");
            assert!(!others[i + 1..].contains(other), "{i}");
        }
        assert_eq!(others[4], shape(doc! { "$expr": { "$eq": ["$a", 7] } }, None));
        let requires = |name: &str| shape(doc! { "$jsonSchema": { "required": [name] } }, None);
        assert_ne!(requires("a"), requires("b"));
    }

    #[test]
    fn projections_and_collations_are_of_the_shape() {
        let shape = |projection: Document, collation: Document| {
            let (filter, projection) = (raw_of(&doc! { "a": "x" }), raw_of(&projection));
            let collation = raw_of(&collation);
            let mut request = FindRequest::new(Namespace::parse("d.c").unwrap(), &filter);
            request.projection = Some(&projection);
            request.collation = Some(&collation);
            let context = context().with_collation(crate::plan::collation_of(Some(&collation), None).unwrap());
            QueryHashes::of(&Query::parse(&request, &context).unwrap(), None).shape
        };
        let simple = || doc! { "locale": "simple" };
        let first = shape(doc! { "a": 1, "b": 1 }, simple());
        assert_eq!(first, shape(doc! { "b": true, "a": 2.5 }, simple()));
        let others = [
            shape(doc! { "a": 0, "b": 0 }, simple()),
            shape(doc! { "a": 1 }, simple()),
            shape(doc! { "a": 1, "b": 1 }, doc! { "locale": "en" }),
            shape(doc! { "a": 1, "b": 1 }, doc! { "locale": "fr" }),
            shape(doc! { "a": 1, "b": 1 }, doc! { "locale": "en", "strength": 1 }),
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(&first, other, "{i}");
            assert!(!others[i + 1..].contains(other), "{i}");
        }
    }

    #[test]
    fn hashes_stay_the_same_for_ever() {
        assert_eq!(shape(doc! { "a": 1 }, None), "EBC54F15");
    }
}
