//! `find`: from a request to an execution.
//!
//! A look-up by `_id` is taken first and plans nothing. Else the request is parsed, candidates are made, and one is chosen:
//! the only one, one that finds at most one record, the plan cache's, or the winner of a race.

use super::context::ExecContext;
use super::executor::{Body, PlanExecutor, Planned};
use super::id_lookup::{IdLookup, plain_id};
use super::trial::race;
use crate::QueryError;
use crate::expression::ExpressionContext;
use crate::plan::cache::{Remembered, plan_cache};
use crate::plan::planner::{Candidate, Planner};
use crate::plan::query::{Query, Wish, resolve_hint};
use crate::plan::request::FindRequest;
use crate::plan::shape::hash_shape;
use bson::RawDocument;
use std::sync::Arc;
use storage::{CollectionGuard, LockMode, Operation, Storage, StorageError};
use wire::ErrorCode;

/// Plans a `find`. A view is read through its pipeline; a collection that does not exist is empty.
pub fn find(storage: &Arc<Storage>, op: &Operation, request: &FindRequest<'_>) -> Result<PlanExecutor, QueryError> {
    match storage.collection(op, &request.ns, LockMode::IntentShared) {
        Ok(guard) => find_in(ExecContext::new(storage, op), guard, request),
        Err(StorageError::IsView(_)) => super::view::find(storage, op, request),
        Err(error) => Err(error.into()),
    }
}

/// As [`find`], for a caller that has locked the collection and keeps the lock while it uses the executor (with
/// [`ExecContext::locked`]): writers.
pub fn find_locked(
    storage: &Arc<Storage>,
    op: &Operation,
    guard: &CollectionGuard,
    request: &FindRequest<'_>,
) -> Result<PlanExecutor, QueryError> {
    find_in(ExecContext::locked(storage, op, guard), Some(guard.clone()), request)
}

fn find_in(
    context: ExecContext<'_>,
    guard: Option<CollectionGuard>,
    request: &FindRequest<'_>,
) -> Result<PlanExecutor, QueryError> {
    let kept = |guard: CollectionGuard| if context.guard.is_some() { None } else { Some(guard) };
    if let Some(id) = plain_id(request) {
        let Some(guard) = guard else {
            return Ok(PlanExecutor::new(request.ns.clone(), Body::Nothing, None));
        };
        guard.id_index().record_access();
        return Ok(PlanExecutor::new(
            request.ns.clone(),
            Body::Id(IdLookup::new(id)),
            kept(guard),
        ));
    }
    let expressions = expression_context(context.storage, request.variables)?;
    let query = Query::parse(request, &expressions)?;
    let Some(guard) = guard else {
        return Ok(PlanExecutor::new(request.ns.clone(), Body::Nothing, None));
    };
    let planned = plan(context, &guard, query, request)?;
    Ok(PlanExecutor::new(
        request.ns.clone(),
        Body::Plan(Box::new(planned)),
        kept(guard),
    ))
}

/// What expressions of one operation see.
pub(crate) fn expression_context(
    storage: &Storage,
    variables: Option<&RawDocument>,
) -> Result<ExpressionContext, QueryError> {
    let env = storage.env();
    let context = ExpressionContext::new(env.clock.now_ms(), env.random.clone());
    match variables {
        Some(variables) if !variables.is_empty() => context.with_let(variables),
        _ => Ok(context),
    }
}

/// Chooses a plan and builds it.
pub(crate) fn plan(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    query: Query,
    request: &FindRequest<'_>,
) -> Result<Planned, QueryError> {
    if query.tailable && guard.is_capped().is_none() {
        return Err(QueryError::bad_value(format!(
            "error processing query: ns={} tailable cursor requested on non capped collection",
            guard.namespace()
        )));
    }
    let wish = resolve_hint(request.hint, guard)?;
    let planner = Planner {
        collection: guard,
        query: &query,
    };
    if request.min.is_some() || request.max.is_some() {
        let candidate = bounded_by_keys(&planner, &wish, request)?;
        return build(&planner, &candidate, guard);
    }
    let shape = (wish == Wish::None).then(|| hash_shape(guard.uuid(), guard.version(), request));
    if let Some((shape, remembered)) = shape.and_then(|shape| Some((shape, plan_cache().get(shape)?))) {
        if let Some(candidate) = planner.candidate(&remembered.choice)? {
            let mut planned = build(&planner, &candidate, guard)?;
            planned.cached = Some((shape, remembered.works));
            return Ok(planned);
        }
    }
    let mut candidates = planner.candidates(&wish)?;
    if candidates.len() == 1 {
        return build(&planner, &candidates[0], guard);
    }
    candidates.sort_by_cached_key(|candidate| candidate.rank(&query));
    if candidates[0].finds_one() {
        let mut planned = build(&planner, &candidates[0], guard)?;
        planned.rejected = candidates.split_off(1);
        return Ok(planned);
    }
    let outcome = race(context, guard, &planner, &candidates)?;
    let winner = candidates.remove(outcome.winner);
    if let (Some(shape), Some(choice)) = (shape, winner.choice()) {
        plan_cache().put(
            shape,
            Remembered {
                choice,
                works: outcome.works,
            },
        );
    }
    let mut planned = build(&planner, &winner, guard)?;
    planned.rejected = candidates;
    Ok(planned)
}

fn build(planner: &Planner<'_>, candidate: &Candidate, guard: &CollectionGuard) -> Result<Planned, QueryError> {
    let stage = planner.build(candidate)?;
    super::used_indexes(&stage, &mut |index| index.record_access());
    Ok(Planned::new(stage, planner.query.clone(), guard.definition().clone()))
}

fn bounded_by_keys(planner: &Planner<'_>, wish: &Wish, request: &FindRequest<'_>) -> Result<Candidate, QueryError> {
    let Wish::Index(position) = wish else {
        return Err(QueryError::new(
            ErrorCode(51173),
            "When using min()/max() a hint of which index to use must be provided",
        ));
    };
    let index = &planner.collection.indexes()[*position];
    planner.key_range(index, request.min, request.max)
}
