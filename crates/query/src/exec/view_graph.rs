//! What views read: the collections and views they stand on, and those that their stages name.
//!
//! A view is checked against all views below and above it before it is made ([`check_view`]), and a pipeline against
//! all views that it leads to before it runs ([`check_views_read`]). Both look at each view once, however often it is
//! named: the ways through twenty views that name each other several times are more than can be walked.

use super::context::ExecContext;
use super::find::expression_context;
use super::view::{VIEW_DEPTH_MAX, makes_measurements, resolve, too_deep};
use crate::QueryError;
use crate::plan::query::collation_of;
use crate::stages::{Pipeline, StageSpec, each_stage};
use bson::raw::RawBsonRef;
use bson::{Bson, RawArray, RawArrayBuf, RawBson, RawDocument};
use collation::Collation;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use storage::{Namespace, View};
use wire::ErrorCode;

/// Checks a view before it is made or changed: its pipeline parses, and what it stands on does not lead back to it (5
/// GraphContainsCycle). With the views below and above it there are not too many on each other (165), and all have its
/// collation (167).
pub fn check_view(
    context: &ExecContext<'_>,
    ns: &Namespace,
    view_on: &str,
    pipeline: &[Bson],
    collation: Option<&RawDocument>,
) -> Result<(), QueryError> {
    let mut array = RawArrayBuf::new();
    for stage in pipeline {
        array.push(RawBson::try_from(stage.clone()).map_err(|error| QueryError::bad_value(error.to_string()))?);
    }
    let collation = collation_of(collation, None)?;
    let parsed = Pipeline::parse(&array, &expression_context(context, None, collation.clone())?)?;
    if let Some(stage) = parsed.stages().iter().find(|stage| reads_no_collection(stage)) {
        return Err(QueryError::new(
            ErrorCode::InvalidNamespace,
            format!("{} reads no collection, and no view can be defined by it", stage.name()),
        ));
    }
    if let Some(stage) = parsed
        .stages()
        .iter()
        .find(|stage| matches!(stage, StageSpec::Write { .. }) || stage.name() == "$changeStream")
    {
        return Err(QueryError::new(
            ErrorCode::OptionNotSupportedOnView,
            format!(
                "The aggregation stage {} cannot be used in a view definition",
                stage.name()
            ),
        ));
    }
    let mut graph = Graph {
        context,
        made: ns,
        collation,
        heights: HashMap::new(),
    };
    let mut below = 0;
    for read in reads(ns.db(), view_on, &array)? {
        below = below.max(graph.views_below(&read, 1)?);
    }
    let above = graph.views_above()?;
    match below + 1 + above > VIEW_DEPTH_MAX {
        true => Err(too_deep()),
        false => Ok(()),
    }
}

/// A stage that stands for a database or the server, where a view stands for a collection.
fn reads_no_collection(stage: &StageSpec) -> bool {
    matches!(
        stage.name(),
        "$backupCursor" | "$currentOp" | "$documents" | "$listLocalSessions" | "$listSessions" | "$querySettings"
    )
}

/// The views around one that is to be made.
struct Graph<'g> {
    context: &'g ExecContext<'g>,
    made: &'g Namespace,
    collation: Option<Arc<Collation>>,
    /// How many views stand on each other, of those that were looked at.
    heights: HashMap<Namespace, usize>,
}

impl Graph<'_> {
    /// How many views stand on each other, `ns` the highest. Recursion ends at the greatest depth.
    fn views_below(&mut self, ns: &Namespace, depth: usize) -> Result<usize, QueryError> {
        if ns == self.made {
            return Err(QueryError::new(
                ErrorCode::GraphContainsCycle,
                format!("View cycle detected: {ns}"),
            ));
        }
        if let Some(height) = self.heights.get(ns) {
            return Ok(*height);
        }
        let Some(view) = self.context.storage.catalog().view(ns) else {
            return Ok(0);
        };
        if depth >= VIEW_DEPTH_MAX {
            return Err(too_deep());
        }
        self.check_collation(&view)?;
        let mut below = 0;
        for read in reads(ns.db(), view.view_on(), view.pipeline())? {
            below = below.max(self.views_below(&read, depth + 1)?);
        }
        self.heights.insert(ns.clone(), below + 1);
        Ok(below + 1)
    }

    /// How many views stand on each other above the one to be made.
    fn views_above(&self) -> Result<usize, QueryError> {
        let mut readers: HashMap<Namespace, Vec<Arc<View>>> = HashMap::new();
        for view in self.context.storage.catalog().views(self.made.db()) {
            for read in reads(self.made.db(), view.view_on(), view.pipeline())? {
                readers.entry(read).or_default().push(view.clone());
            }
        }
        // Level by level: a view is on the highest one that it is met on.
        let mut level = HashSet::from([self.made.clone()]);
        for above in 0..=VIEW_DEPTH_MAX {
            let mut next = HashSet::new();
            for view in level.iter().filter_map(|ns| readers.get(ns)).flatten() {
                self.check_collation(view)?;
                next.insert(view.namespace().clone());
            }
            if next.is_empty() {
                return Ok(above);
            }
            level = next;
        }
        Err(too_deep())
    }

    fn check_collation(&self, view: &View) -> Result<(), QueryError> {
        match has_collation(view, self.collation.as_ref())? {
            true => Ok(()),
            false => Err(QueryError::new(
                ErrorCode::OptionNotSupportedOnView,
                format!(
                    "View {} has a collation that does not match the collation of view {}",
                    self.made,
                    view.namespace()
                ),
            )),
        }
    }
}

/// Whether a view is read with this collation. A time-series collection is with any.
fn has_collation(view: &View, collation: Option<&Arc<Collation>>) -> Result<bool, QueryError> {
    let own = collation_of(view.options().get_document("collation").ok(), None)?;
    Ok(own.as_ref() == collation || makes_measurements(view))
}

/// What a view, or a pipeline, reads: what it is on and what its stages name, with duplicates.
fn reads(db: &str, on: &str, pipeline: &RawArray) -> Result<Vec<Namespace>, QueryError> {
    let mut found = named_by_stages(db, pipeline)?;
    found.push(Namespace::new(db, on)?);
    Ok(found)
}

/// The namespaces that stages name, as they are written. What is no name is passed over: parsing tells of it.
fn named_by_stages(db: &str, pipeline: &RawArray) -> Result<Vec<Namespace>, QueryError> {
    let mut found = Vec::new();
    each_stage::<QueryError>(pipeline, &mut |stage, argument| {
        let field = |fields: &RawDocument, name| match fields.get(name) {
            Ok(Some(RawBsonRef::String(collection))) => Namespace::new(db, collection).ok(),
            _ => None,
        };
        found.extend(match (stage, argument) {
            ("$lookup" | "$graphLookup", RawBsonRef::Document(fields)) => field(fields, "from"),
            ("$unionWith", RawBsonRef::Document(fields)) => field(fields, "coll"),
            ("$unionWith", RawBsonRef::String(collection)) => Namespace::new(db, collection).ok(),
            _ => None,
        });
        Ok(())
    })?;
    Ok(found)
}

/// Checks the views that a pipeline leads to: none is too high to be read (165), and all have the pipeline's collation
/// (167).
pub(super) fn check_views_read(
    context: &ExecContext<'_>,
    db: &str,
    ns: Option<&Namespace>,
    pipeline: &RawArray,
    collation: Option<&Arc<Collation>>,
) -> Result<(), QueryError> {
    let catalog = context.storage.catalog();
    let mut open = named_by_stages(db, pipeline)?;
    open.extend(ns.cloned());
    let mut seen = HashSet::new();
    while let Some(next) = open.pop() {
        let Some(view) = catalog.view(&next).filter(|_| !seen.contains(&next)) else {
            continue;
        };
        if !has_collation(&view, collation)? {
            return Err(QueryError::new(
                ErrorCode::OptionNotSupportedOnView,
                format!("Cannot override a view's default collation: {next}"),
            ));
        }
        resolve(context.storage, &next)?;
        open.extend(reads(next.db(), view.view_on(), view.pipeline())?);
        seen.insert(next);
    }
    Ok(())
}
