//! Views: a read of a view is a pipeline over what it stands on.

use super::aggregate::{aggregate, run_to_end};
use super::context::ExecContext;
use super::distinct::DistinctValues;
use super::executor::PlanExecutor;
use super::summary::PlanSummary;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::plan::query::{Order, collation_of, parse_sort};
use crate::plan::request::{AggregateRequest, CountRequest, DistinctRequest, FindRequest};
use crate::timeseries::UNPACK;
use bson::{Bson, RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use collation::Collation;
use std::sync::Arc;
use storage::{Namespace, Storage};
use wire::ErrorCode;

/// Views that may stand on each other.
pub(super) const VIEW_DEPTH_MAX: usize = 20;

/// What a namespace stands on, and the stages of the views in between, outermost last. A name that is no view stands on
/// itself.
pub(crate) fn resolve(storage: &Storage, ns: &Namespace) -> Result<(Namespace, Vec<RawDocumentBuf>), QueryError> {
    let mut current = ns.clone();
    let mut pipelines: Vec<Vec<RawDocumentBuf>> = Vec::new();
    while let Some(view) = storage.catalog().view(&current) {
        let stages = view
            .pipeline()
            .into_iter()
            .flatten()
            .filter_map(|stage| stage.as_document().map(ToOwned::to_owned));
        pipelines.push(stages.collect());
        // As in MongoDB, a tower of as many views as may stand on each other can be made, but not read.
        if pipelines.len() == VIEW_DEPTH_MAX {
            return Err(too_deep());
        }
        current = Namespace::new(ns.db(), view.view_on())?;
    }
    Ok((current, pipelines.into_iter().rev().flatten().collect()))
}

/// What a namespace stands on, through all views in between.
pub fn under_views(storage: &Storage, ns: &Namespace) -> Result<Namespace, QueryError> {
    resolve(storage, ns).map(|(collection, _)| collection)
}

/// Whether a view is a time-series collection, which clients see as a collection.
pub(crate) fn makes_measurements(view: &storage::View) -> bool {
    let first = view.pipeline().into_iter().next();
    first.is_some_and(|stage| {
        stage.is_ok_and(|stage| {
            let stage = stage.as_document();
            stage.is_some_and(|stage| stage.get(UNPACK).is_ok_and(|unpack| unpack.is_some()))
        })
    })
}

/// The collation that a view is read with: its own, but for a time-series collection.
///
/// Errors: another one is asked for (167).
pub(crate) fn collation_of_view(
    view: &storage::View,
    asked: Option<&RawDocument>,
) -> Result<Option<Arc<Collation>>, QueryError> {
    let own = collation_of(view.options().get_document("collation").ok(), None)?;
    if makes_measurements(view) {
        return collation_of(asked, own.as_ref());
    }
    if collation_of(asked, own.as_ref())? == own {
        return Ok(own);
    }
    Err(QueryError::new(
        ErrorCode::OptionNotSupportedOnView,
        format!("Cannot override a view's default collation: {}", view.namespace()),
    ))
}

/// `find` on a view.
pub(crate) fn find(context: &ExecContext<'_>, request: &FindRequest<'_>) -> Result<PlanExecutor, QueryError> {
    let pipeline = find_pipeline(request)?;
    aggregate(context, &find_over(request, &pipeline))
}

/// A `find` on a view, with the stages that do it.
pub(super) fn find_over<'a>(request: &'a FindRequest<'_>, pipeline: &'a RawArrayBuf) -> AggregateRequest<'a> {
    AggregateRequest {
        collation: request.collation,
        variables: request.variables,
        hint: request.hint,
        blocking: request.blocking.clone(),
        ..AggregateRequest::new(request.ns.clone(), request.ns.db(), pipeline)
    }
}

/// The stages that do what a `find` asks for.
pub(crate) fn find_pipeline(request: &FindRequest<'_>) -> Result<RawArrayBuf, QueryError> {
    let unsupported = |what: &str| {
        Err(QueryError::new(
            ErrorCode::InvalidPipelineOperator,
            format!("Option {what} not supported on views"),
        ))
    };
    match () {
        () if request.show_record_id => return unsupported("showRecordId"),
        () if request.return_key => return unsupported("returnKey"),
        () if request.tailable => return unsupported("tailable"),
        () if request.min.is_some() || request.max.is_some() => return unsupported("min/max"),
        () => {}
    }
    let mut pipeline = RawArrayBuf::new();
    if !request.filter.is_empty() {
        pipeline.push(rawdoc! { "$match": request.filter.to_owned() });
    }
    if let Some(sort) = request.sort.filter(|sort| !sort.is_empty()) {
        match parse_sort(sort)? {
            Order::Fields(_) => pipeline.push(rawdoc! { "$sort": sort.to_owned() }),
            Order::Natural(_) => return unsupported("$natural sort"),
            Order::None => {}
        }
    }
    if request.skip > 0 {
        pipeline.push(rawdoc! { "$skip": request.skip as i64 });
    }
    if let Some(limit) = request.limit {
        pipeline.push(rawdoc! { "$limit": limit as i64 });
    }
    if let Some(projection) = request.projection.filter(|projection| !projection.is_empty()) {
        pipeline.push(rawdoc! { "$project": projection.to_owned() });
    }
    Ok(pipeline)
}

/// The stages that do what a `count` asks for.
pub(super) fn count_pipeline(request: &CountRequest<'_>) -> Result<RawArrayBuf, QueryError> {
    let find = FindRequest {
        skip: request.skip,
        limit: request.limit,
        ..FindRequest::new(request.ns.clone(), request.filter)
    };
    let mut pipeline = find_pipeline(&find)?;
    pipeline.push(rawdoc! { "$count": "n" });
    Ok(pipeline)
}

/// A `count` on a view, with the stages that do it.
pub(super) fn count_over<'a>(request: &'a CountRequest<'_>, pipeline: &'a RawArrayBuf) -> AggregateRequest<'a> {
    AggregateRequest {
        collation: request.collation,
        hint: request.hint,
        blocking: request.blocking.clone(),
        ..AggregateRequest::new(request.ns.clone(), request.ns.db(), pipeline)
    }
}

/// `count` on a view.
pub(crate) fn count(
    context: &ExecContext<'_>,
    request: &CountRequest<'_>,
    on_plan: &mut dyn FnMut(PlanSummary),
) -> Result<u64, QueryError> {
    let pipeline = count_pipeline(request)?;
    let mut executor = aggregate(context, &count_over(request, &pipeline))?;
    on_plan(executor.plan_summary());
    let mut n = 0;
    run_to_end(&mut executor, context, &mut |document| {
        n = match document.get("n") {
            Ok(Some(bson::raw::RawBsonRef::Int32(n))) => u64::try_from(n).unwrap_or(0),
            Ok(Some(bson::raw::RawBsonRef::Int64(n))) => u64::try_from(n).unwrap_or(0),
            _ => 0,
        };
        Ok(())
    })?;
    Ok(n)
}

/// The stages that find the documents which a `distinct` looks at.
pub(super) fn distinct_pipeline(request: &DistinctRequest<'_>) -> Result<RawArrayBuf, QueryError> {
    find_pipeline(&FindRequest::new(request.ns.clone(), request.filter))
}

/// A `distinct` on a view, with the stages that find its documents.
pub(super) fn distinct_over<'a>(request: &'a DistinctRequest<'_>, pipeline: &'a RawArrayBuf) -> AggregateRequest<'a> {
    AggregateRequest {
        collation: request.collation,
        hint: request.hint,
        blocking: request.blocking.clone(),
        ..AggregateRequest::new(request.ns.clone(), request.ns.db(), pipeline)
    }
}

/// `distinct` on a view.
pub(crate) fn distinct(
    context: &ExecContext<'_>,
    request: &DistinctRequest<'_>,
    on_plan: &mut dyn FnMut(PlanSummary),
) -> Result<Vec<Bson>, QueryError> {
    let pipeline = distinct_pipeline(request)?;
    let mut executor = aggregate(context, &distinct_over(request, &pipeline))?;
    on_plan(executor.plan_summary());
    let view = context.storage.catalog().view(&request.ns);
    let collation = view.map_or_else(
        || collation_of(request.collation, None),
        |view| collation_of_view(&view, request.collation),
    )?;
    let evaluation = EvaluationContext::new(context.op);
    let mut values = DistinctValues::new(request.key, collation, &evaluation)?;
    run_to_end(&mut executor, context, &mut |document| values.add_document(document))?;
    Ok(values.into_list())
}

pub(super) fn too_deep() -> QueryError {
    QueryError::new(
        ErrorCode::ViewDepthLimitExceeded,
        format!("View depth too deep or view cycle detected; maximum depth is {VIEW_DEPTH_MAX}"),
    )
}
