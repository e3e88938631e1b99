//! What of a pipeline's input an index tells by itself: the fields that its stages look at, and the first document of
//! each group.

use super::context::ExecContext;
use super::distinct::{Skipping, Wanted};
use super::filter::{Project, Shape};
use super::find::expression_context;
use super::key_document::{KeyDocument, holds_fields};
use super::known::RowMetadata;
use super::stage::{Stage, StageCounters};
use crate::QueryError;
use crate::plan::query::{Order, Query};
use crate::plan::request::FindRequest;
use crate::project::Projection;
use crate::stages::Pushdown;
use bson::RawDocumentBuf;
use bson::raw::{CString, cstr};
use std::sync::Arc;
use storage::{CollectionGuard, Index};

/// The fields that the stages of a pipeline look at, as a projection, where an index may have them all and nothing
/// else of the documents can be told from what comes out.
pub(super) fn covering_fields(
    context: &ExecContext<'_>,
    guard: &CollectionGuard,
    pushdown: &Pushdown,
) -> Result<Option<Arc<Projection>>, QueryError> {
    let read = &pushdown.dependencies;
    let is_bounded = !read.whole_document && !pushdown.shows_order && !read.paths.is_empty();
    if !is_bounded || pushdown.count.is_some() || !pushdown.needs.is_empty() {
        return Ok(None);
    }
    let mut wanted: Vec<String> = Vec::new();
    for path in &read.paths {
        // With a document come its fields.
        let is_below = |outer: &String| {
            path.strip_prefix(outer.as_str())
                .is_some_and(|rest| rest.starts_with('.'))
        };
        if !wanted.iter().any(is_below) {
            wanted.push(path.clone());
        }
    }
    let may_cover = |index: &Arc<Index>| match index.wildcard() {
        Some(_) => wanted.len() == 1,
        None => holds_fields(index, &wanted),
    };
    if !guard.access_paths().iter().any(may_cover) {
        return Ok(None);
    }
    let mut fields = RawDocumentBuf::new();
    for path in wanted.iter().filter(|path| *path != "_id") {
        let Ok(path) = CString::try_from(path.as_str()) else {
            return Ok(None);
        };
        fields.append(&path, 1);
    }
    // Kept or left out, it is to be said of it.
    let has_id = wanted.iter().any(|path| path == "_id");
    fields.append(cstr!("_id"), i32::from(has_id));
    // Not all names of fields can be projected.
    let projection = Projection::parse(&fields, &expression_context(context, None, None)?).ok();
    Ok(projection.map(Arc::new))
}

/// The plan under a `$group` by the field `key` that only wants the first document of each group: an index is skipped
/// through, one entry for each value. `None` where no index can be.
pub(super) fn first_of_each(
    context: &ExecContext<'_>,
    guard: &CollectionGuard,
    query: &Query,
    request: &FindRequest<'_>,
    key: &str,
) -> Result<Option<Stage>, QueryError> {
    let is_plain = query.needs.is_empty() && query.near.is_none() && query.skip == 0 && query.limit.is_none();
    if !is_plain || query.text().is_some() || matches!(query.order, Order::Natural(_)) {
        return Ok(None);
    }
    let skipping = Skipping {
        key,
        hint: request.hint,
        wanted: Wanted::Groups,
    };
    let Some(scan) = skipping.scan(context, guard, query)? else {
        return Ok(None);
    };
    scan.index.record_access();
    let wanted = query.covering.as_ref().and_then(|covering| covering.simple_inclusion());
    let is_covered = wanted.is_some_and(|wanted| holds_fields(&scan.index, &wanted));
    let input = Stage::IndexScan(Box::new(scan));
    if !is_covered {
        return Ok(Some(Stage::fetch(input, None)));
    }
    Ok(Some(Stage::Project(Box::new(Project {
        input,
        projection: query.covering.clone(),
        shape: Shape::Covered,
        show_record_id: false,
        matcher: None,
        key_document: KeyDocument::default(),
        known: RowMetadata::new(query)?,
        scratch: Vec::new(),
        counters: StageCounters::default(),
    }))))
}
