//! What clients see and change of the plan cache and of index filters.

use super::context::ExecContext;
use super::find::expression_context;
use crate::QueryError;
use crate::plan::allowed_indexes::FilterIndex;
use crate::plan::cache::plan_cache;
use crate::plan::hashes::QueryHashes;
use crate::plan::index_filters::index_filters;
use crate::plan::query::{Query, collation_of};
use crate::plan::request::FindRequest;
use bson::raw::cstr;
use bson::{Bson, DateTime, Document, RawDocument, RawDocumentBuf, doc};
use std::sync::Arc;
use storage::{Collection, Namespace};

/// A shape of queries as clients write it: with values, which do not matter.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueryPattern<'a> {
    /// The filter.
    pub query: Option<&'a RawDocument>,
    /// The sort.
    pub sort: Option<&'a RawDocument>,
    /// The projection.
    pub projection: Option<&'a RawDocument>,
    /// The collation; without one it is the collection's.
    pub collation: Option<&'a RawDocument>,
}

impl QueryPattern<'_> {
    fn parse(&self, context: &ExecContext<'_>, collection: &Collection) -> Result<Query, QueryError> {
        let empty = RawDocumentBuf::new();
        let request = FindRequest {
            sort: self.sort,
            projection: self.projection,
            ..FindRequest::new(collection.namespace().clone(), self.query.unwrap_or(&empty))
        };
        let collation = collation_of(self.collation, collection.collation())?;
        Query::parse(&request, &expression_context(context, None, collation)?)
    }

    fn to_document(self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("query"), self.query.map(ToOwned::to_owned).unwrap_or_default());
        document.append(cstr!("sort"), self.sort.map(ToOwned::to_owned).unwrap_or_default());
        document.append(
            cstr!("projection"),
            self.projection.map(ToOwned::to_owned).unwrap_or_default(),
        );
        if let Some(collation) = self.collation {
            document.append(cstr!("collation"), collation.to_owned());
        }
        document
    }
}

/// A collection, and the query of a shape if there is one.
type Subject = (Arc<Collection>, Option<Query>);

/// `None` without a collection.
fn parsed(
    context: &ExecContext<'_>,
    ns: &Namespace,
    pattern: Option<QueryPattern<'_>>,
) -> Result<Option<Subject>, QueryError> {
    let Some(collection) = context.definition(ns) else {
        return Ok(None);
    };
    let query = pattern.map(|pattern| pattern.parse(context, &collection)).transpose()?;
    Ok(Some((collection, query)))
}

fn forget(collection: &Collection, query: Option<&Query>) {
    let shape = query.map(|query| QueryHashes::of(query, None).shape);
    plan_cache().remove(collection.uuid(), shape.as_deref());
}

/// Forgets the plans of a collection, or those of one shape. One that does not exist has none.
pub fn clear_plans(
    context: &ExecContext<'_>,
    ns: &Namespace,
    pattern: Option<QueryPattern<'_>>,
) -> Result<(), QueryError> {
    if let Some((collection, query)) = parsed(context, ns, pattern)? {
        forget(&collection, query.as_ref());
    }
    Ok(())
}

/// The plans that are remembered for a collection as it is defined now, as `$planCacheStats` shows them. `host` is left
/// to the caller.
pub fn cached_plans(context: &ExecContext<'_>, ns: &Namespace) -> Vec<Document> {
    let Some(collection) = context.definition(ns) else {
        return Vec::new();
    };
    let entries = plan_cache().of(collection.uuid(), collection.version());
    let shown = entries.into_iter().map(|remembered| {
        let entry = &remembered.entry;
        let mut shown = doc! {
            "version": "1",
            "queryHash": &entry.hashes.shape,
            "planCacheShapeHash": &entry.hashes.shape,
            "planCacheKey": &entry.hashes.key,
            "isActive": remembered.is_active,
            "works": remembered.works as i64,
            "timeOfCreation": DateTime::from_millis(entry.created_ms),
        };
        if let Some(of_query) = &entry.shown {
            shown.insert("createdFromQuery", super::describe::to_document(&of_query.pattern));
            shown.insert("cachedPlan", super::describe::to_document(&of_query.plan));
        }
        shown.insert("indexFilterSet", entry.is_filtered);
        if let Some(settings) = &entry.settings {
            shown.insert("querySettings", settings.to_document());
        }
        shown
    });
    shown.collect()
}

/// Has the planner consider these indexes alone for queries of a shape.
///
/// Errors: what is wrong with the pattern, and 2 without a collection.
pub fn set_index_filter(
    context: &ExecContext<'_>,
    ns: &Namespace,
    pattern: QueryPattern<'_>,
    indexes: Vec<FilterIndex>,
) -> Result<(), QueryError> {
    let collection = context
        .definition(ns)
        .ok_or_else(|| QueryError::bad_value("no such collection"))?;
    let query = pattern.parse(context, &collection)?;
    index_filters().set(
        context.storage,
        collection.uuid(),
        &query,
        pattern.to_document(),
        indexes,
    );
    forget(&collection, Some(&query));
    Ok(())
}

/// Takes index filters away: that of a shape, or all of a collection.
pub fn clear_index_filters(
    context: &ExecContext<'_>,
    ns: &Namespace,
    pattern: Option<QueryPattern<'_>>,
) -> Result<(), QueryError> {
    if let Some((collection, query)) = parsed(context, ns, pattern)? {
        index_filters().clear(collection.uuid(), query.as_ref());
        forget(&collection, query.as_ref());
    }
    Ok(())
}

/// The index filters of a collection: `query`, `sort`, `projection`, `collation`, `indexes`.
pub fn list_index_filters(context: &ExecContext<'_>, ns: &Namespace) -> Vec<Document> {
    let collection = context.definition(ns);
    let filters = collection.map_or_else(Vec::new, |collection| index_filters().of(collection.uuid()));
    let shown = filters.iter().map(|filter| {
        let indexes = filter.allowed.indexes.iter().map(|index| match index {
            FilterIndex::Name(name) => Bson::from(name.as_str()),
            FilterIndex::Key(key) => super::describe::to_document(key).into(),
        });
        let mut document = super::describe::to_document(&filter.pattern);
        document.insert("indexes", indexes.collect::<Vec<_>>());
        document
    });
    shown.collect()
}
