//! `count`: from metadata, from index keys alone, or by running the plan.

use super::context::ExecContext;
use super::executor::Planned;
use super::find::{Memory, expression_context, plan};
use super::id_lookup::{IdLookup, plain_id};
use super::stage::Flow;
use super::summary::{PlanSummary, id_summary};
use crate::QueryError;
use crate::history::is_virtual;
use crate::plan::query::{Query, collation_of};
use crate::plan::request::{CountRequest, FindRequest};
use storage::{CollectionGuard, LockMode, StorageError};

/// How many documents match, after `skip` and up to `limit`. A collection that does not exist has none. `on_plan` is
/// told of the plan before it runs.
pub fn count(
    context: &ExecContext<'_>,
    request: &CountRequest<'_>,
    on_plan: &mut dyn FnMut(PlanSummary),
) -> Result<u64, QueryError> {
    let (data, op) = (context.data(), context.op);
    let guard = match data.collection(&request.ns, LockMode::IntentShared) {
        Ok(None) if is_virtual(context.storage, &request.ns) => return super::view::count(context, request, on_plan),
        Ok(guard) => guard,
        Err(StorageError::IsView(_)) => return super::view::count(context, request, on_plan),
        Err(error) => return Err(error.into()),
    };
    let find = as_find(request);
    if let (Some(guard), Some(id)) = (&guard, plain_id(&find)) {
        let is_clustered = guard.id_index().is_clustered();
        on_plan(PlanSummary::unplanned(id_summary(is_clustered)));
        match is_clustered {
            true => op.counters().docs_examined.add(1),
            false => op.counters().keys_examined.add(1),
        }
        let key = IdLookup::new(id, guard.id_index()).key;
        return Ok(u64::from(data.view()?.find_unique(guard.id_index(), &key)?.is_some()));
    }
    if is_metadata_count(request) {
        collation_of(request.collation, None)?;
        on_plan(PlanSummary::unplanned(FAST_COUNT));
        return Ok(trimmed(guard.map_or(0, |guard| guard.count()), request));
    }
    let Some(mut planned) = plan_count(*context, guard.as_ref(), request, Memory::Use)? else {
        on_plan(PlanSummary::unplanned("EOF"));
        return Ok(0);
    };
    on_plan(planned.plan_summary());
    let mut n = 0;
    planned.run(*context, guard, u64::MAX, &mut |_| {
        n += 1;
        Ok(Flow::Continue)
    })?;
    Ok(n)
}

/// What MongoDB calls a count of all documents.
pub(crate) const FAST_COUNT: &str = "RECORD_STORE_FAST_COUNT";

/// True when no document has to be looked at.
pub(crate) fn is_metadata_count(request: &CountRequest<'_>) -> bool {
    request.filter.is_empty() && request.hint.is_none()
}

/// A number of documents after `skip` and `limit`.
pub(crate) fn trimmed(documents: u64, request: &CountRequest<'_>) -> u64 {
    let left = documents.saturating_sub(request.skip);
    request.limit.map_or(left, |limit| left.min(limit))
}

/// The plan of a count; `None` without a collection.
pub(crate) fn plan_count(
    context: ExecContext<'_>,
    guard: Option<&CollectionGuard>,
    request: &CountRequest<'_>,
    memory: Memory,
) -> Result<Option<Planned>, QueryError> {
    let collation = collation_of(request.collation, guard.and_then(|guard| guard.collation()))?;
    let expressions = expression_context(&context, None, collation)?.without_time();
    let find = as_find(request);
    let query = Query {
        count_only: true,
        ..Query::parse(&find, &expressions)?
    };
    guard
        .map(|guard| plan(context, guard, query, &find, memory))
        .transpose()
}

fn as_find<'a>(request: &CountRequest<'a>) -> FindRequest<'a> {
    FindRequest {
        skip: request.skip,
        limit: request.limit,
        hint: request.hint,
        collation: request.collation,
        ..FindRequest::new(request.ns.clone(), request.filter)
    }
}
