//! A `find` by one value of one path that a single index is on: the plan is known without a planner.
//!
//! It is the one that the planner makes, and the only one; nothing is parsed for it. Where there is more to a request
//! or to the indexes the planner decides.

use super::filter::Limit;
use super::id_lookup::only_condition;
use super::index_scan::{IndexScan, ScanKind};
use super::stage::Stage;
use crate::metadata::MetadataNeeds;
use crate::plan::convert::has_position;
use crate::plan::encode::point;
use crate::plan::index_bounds::IndexBounds;
use crate::plan::index_filters::index_filters;
use crate::plan::interval::Intervals;
use crate::plan::leaf::is_scalar;
use crate::plan::query::{Order, Query};
use crate::plan::request::FindRequest;
use bson::raw::RawBsonRef;
use engine::Direction;
use keys::{FieldKind, FieldOrder};
use std::sync::Arc;
use storage::{Collection, Index};

/// The tree of a look-up and its query; `None` where the planner is to be asked.
pub(crate) fn key_lookup(request: &FindRequest<'_>, collection: &Collection) -> Option<(Stage, Query)> {
    let (path, value) = plain_equality(request)?;
    if collection.collation().is_some() || index_filters().are_used() {
        return None;
    }
    let index = only_index(collection, path)?;
    let set = Intervals::one(point(value));
    let bounds = match index.pattern().ordering().field(0) {
        FieldOrder::Ascending => set,
        FieldOrder::Descending => set.complemented(),
    };
    // However many values a record has at the path, it has one entry under each.
    let scan = IndexScan::new(
        index.clone(),
        IndexBounds::new(vec![bounds]),
        Direction::Forward,
        ScanKind::Entries,
        false,
    );
    let mut stage = Stage::fetch(Stage::IndexScan(Box::new(scan)), None);
    if let Some(limit) = request.limit {
        stage = Stage::Limit(Box::new(Limit::new(stage, limit)));
    }
    let query = Query {
        filter: None,
        order: Order::None,
        projection: None,
        covering: None,
        skip: 0,
        limit: request.limit,
        show_record_id: false,
        return_key: false,
        tailable: false,
        for_write: false,
        count_only: false,
        collation: None,
        blocking: request.blocking.clone(),
        near: None,
        needs: MetadataNeeds::default(),
        runs_scripts: false,
    };
    Some((stage, query))
}

/// The path and the value that a request asks for, when that is all it does, but for an upper limit: a value that is
/// equal to those with its key, and to nothing else.
fn plain_equality<'a>(request: &FindRequest<'a>) -> Option<(&'a str, RawBsonRef<'a>)> {
    let is_empty = |document: Option<&bson::RawDocument>| document.is_none_or(bson::RawDocument::is_empty);
    let is_plain = request.variables.is_none()
        && is_empty(request.sort)
        && is_empty(request.projection)
        && is_empty(request.collation)
        && !request.for_write;
    let (path, value) = only_condition(request).filter(|_| is_plain)?;
    (is_scalar(value) && !path.starts_with('$') && !has_position(path)).then_some((path, value))
}

/// The index that leads to the documents with a value at a path, where no other one does, or might.
fn only_index<'c>(collection: &'c Collection, path: &str) -> Option<&'c Arc<Index>> {
    let concerns = |index: &&Arc<Index>| {
        let fields = index.pattern().fields();
        index.wildcard().is_some() || fields.first().is_some_and(|first| first.path() == path)
    };
    let visible = collection.access_paths().iter().filter(|index| !index.hidden());
    let mut concerned = visible.filter(concerns);
    let (only, None) = (concerned.next()?, concerned.next()) else {
        return None;
    };
    let serves = matches!(only.pattern().fields(), [field] if field.kind() == FieldKind::Value)
        && only.partial_filter().is_none()
        && only.collation().is_none()
        && !only.clustering()
        && !only.is_clustered();
    serves.then_some(only)
}
