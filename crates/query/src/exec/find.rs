//! `find`: from a request to an execution.
//!
//! A look-up by `_id` is taken first and plans nothing, then one by a value that a single index is on. Else the request
//! is parsed, candidates are made, and one is chosen: the only one, one that finds at most one record, the plan
//! cache's, or the winner of a race.

use super::context::ExecContext;
use super::describe::{Detail, SizeBudget, describe};
use super::executor::{Body, PlanExecutor, Planned};
use super::id_lookup::{IdLookup, plain_id};
use super::key_lookup::key_lookup;
use super::stage::Stage;
use super::trial::{RESULTS_MAX, Trial, race};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::ExpressionContext;
use crate::history::is_virtual;
use crate::plan::allowed_indexes::AllowedIndexes;
use crate::plan::cache::{CacheEntry, Remembered, SHOWN_BYTES_MAX, ShownPlan, plan_cache};
use crate::plan::hashes::QueryHashes;
use crate::plan::index_filters::index_filters;
use crate::plan::planner::{Candidate, Planner};
use crate::plan::query::{Query, Wish, collation_of, parse_sort, resolve_hint};
use crate::plan::request::FindRequest;
use crate::plan::shape::hash_shape;
use crate::project::TopFields;
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use collation::Collation;
use std::sync::Arc;
use storage::{Collection, CollectionGuard, LockMode, StorageError};
use wire::ErrorCode;

/// Plans a `find`. A view is read through its pipeline; a collection that does not exist is empty.
///
/// Errors: what is wrong with the filter, sort, projection or hint (2 and others), a tailable request on a collection
/// that is not capped.
pub fn find(context: &ExecContext<'_>, request: &FindRequest<'_>) -> Result<PlanExecutor, QueryError> {
    find_with(context, request, Memory::Use)
}

/// Whether the plan cache is asked and told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Use,
    /// `explain` races anew, to show all candidates.
    Ignore,
}

pub(crate) fn find_with(
    context: &ExecContext<'_>,
    request: &FindRequest<'_>,
    memory: Memory,
) -> Result<PlanExecutor, QueryError> {
    let lookup = plain_id(request).and_then(|id| match request.projection {
        Some(projection) if !projection.is_empty() => Some((id, Some(TopFields::of(projection)?))),
        _ => Some((id, None)),
    });
    // While users' writes are held off, one that finds nothing is not refused: then whoever writes locks for itself.
    let for_write =
        lookup.is_some() && request.for_write && memory == Memory::Use && !context.storage.are_user_writes_blocked();
    let mode = match for_write {
        true => LockMode::IntentExclusive,
        false => LockMode::IntentShared,
    };
    let guard = match context.data().collection(&request.ns, mode) {
        Ok(None) if is_virtual(context.storage, &request.ns) => {
            return super::aggregate::find_in_virtual(context, request);
        }
        Ok(guard) => guard,
        Err(StorageError::IsView(_)) => return super::view::find(context, request),
        Err(error) => return Err(error.into()),
    };
    let known = match (&lookup, &guard) {
        // `explain` shows what the planner makes of it.
        (None, Some(guard)) if memory == Memory::Use && allowed_by_settings(context, guard).is_none() => {
            key_lookup(request, guard)
        }
        _ => None,
    };
    let body = match (lookup, known, &guard) {
        (Some((id, fields)), _, guard) => {
            // Neither changes what is found; both are checked.
            if request.variables.is_some() {
                expression_context(context, request.variables, None)?;
            }
            request.sort.map(parse_sort).transpose()?;
            match guard {
                None => Body::Nothing,
                Some(guard) => {
                    guard.id_index().record_access();
                    Body::Id(IdLookup {
                        fields,
                        ..IdLookup::new(id, guard.id_index())
                    })
                }
            }
        }
        (None, Some((stage, query)), Some(guard)) => {
            let mut planned = Planned::new(stage, query, guard.definition().clone());
            super::used_indexes(&planned.stage, &mut |index| index.record_access());
            planned.is_lookup = true;
            Body::Plan(Box::new(planned))
        }
        (None, ..) => {
            let of_collection = guard.as_ref().and_then(|guard| guard.collation());
            let collation = collation_of(request.collation, of_collection)?;
            let query = Query::parse(request, &request_context(context, request, collation)?)?;
            match &guard {
                None => Body::Nothing,
                Some(guard) => Body::Plan(Box::new(plan(*context, guard, query, request, memory)?)),
            }
        }
    };
    Ok(PlanExecutor::locked(request.ns.clone(), body, guard))
}

/// What expressions of a request see.
pub(super) fn request_context(
    context: &ExecContext<'_>,
    request: &FindRequest<'_>,
    collation: Option<Arc<Collation>>,
) -> Result<ExpressionContext, QueryError> {
    let expressions = expression_context(context, request.variables, collation)?;
    match request.constants {
        Some(constants) => expressions.with_constants(constants),
        None => Ok(expressions),
    }
}

/// What expressions of one operation see.
pub(crate) fn expression_context(
    context: &ExecContext<'_>,
    variables: Option<&RawDocument>,
    collation: Option<Arc<Collation>>,
) -> Result<ExpressionContext, QueryError> {
    let random = context.storage.env().random.clone();
    let expressions = ExpressionContext::of_operation(context.op, random)
        .with_settings(context.settings.cloned())
        .with_collation(collation);
    match variables {
        Some(variables) if !variables.is_empty() => expressions.with_let(variables),
        _ => Ok(expressions),
    }
}

/// Chooses a plan and builds it.
pub(crate) fn plan(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    query: Query,
    request: &FindRequest<'_>,
    memory: Memory,
) -> Result<Planned, QueryError> {
    if query.tailable && guard.is_capped().is_none() {
        return Err(QueryError::bad_value(format!(
            "error processing query: ns={} tailable cursor requested on non capped collection",
            guard.namespace()
        )));
    }
    query.bind(guard, context.op)?;
    let is_bounded = request.min.is_some() || request.max.is_some();
    if !is_bounded && let Some(planned) = plan_by_settings(context, guard, &query, request, memory)? {
        return Ok(planned);
    }
    let filter = index_filters().find(guard.uuid(), &query);
    let wish = match &filter {
        // A filter that the operator has set goes before what the client wants, whatever that is.
        Some(_) if !is_bounded => Wish::None,
        _ => resolve_hint(request.hint, guard)?,
    };
    let planner = Planner {
        collection: guard,
        query: &query,
        allowed: filter.as_deref().map(|filter| &filter.allowed),
        evaluation: &EvaluationContext::new(context.op),
    };
    if is_bounded {
        let candidate = bounded_by_keys(&planner, &wish, request)?;
        return build(&planner, candidate, guard);
    }
    let planned = choose(context, guard, &planner, &wish, request, memory)?;
    planned.ok_or_else(|| {
        QueryError::new(
            ErrorCode::NoQueryExecutionPlans,
            "error processing query: planner returned error :: caused by :: no query solutions",
        )
    })
}

/// Chooses among what query settings allow, where they say anything of the collection. The client's hint goes unheard.
/// Where no plan is left, it is to be planned as if nothing had been set.
pub(crate) fn plan_by_settings(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    query: &Query,
    request: &FindRequest<'_>,
    memory: Memory,
) -> Result<Option<Planned>, QueryError> {
    let Some(allowed) = allowed_by_settings(&context, guard) else {
        return Ok(None);
    };
    let planner = Planner {
        collection: guard,
        query,
        allowed: Some(allowed),
        evaluation: &EvaluationContext::new(context.op),
    };
    choose(context, guard, &planner, &Wish::None, request, memory)
}

/// What query settings allow in a collection, if they say anything of it.
pub(crate) fn allowed_by_settings<'c>(
    context: &ExecContext<'c>,
    collection: &Collection,
) -> Option<&'c AllowedIndexes> {
    context.settings?.allowed(collection.namespace())
}

/// The plan of the plan cache, or of the best candidate; `None` without any.
fn choose(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    planner: &Planner<'_>,
    wish: &Wish,
    request: &FindRequest<'_>,
    memory: Memory,
) -> Result<Option<Planned>, QueryError> {
    let query = planner.query;
    // A tailable query has one plan, whatever others of its shape run by.
    let is_raced = *wish == Wish::None && !query.tailable;
    let shape = (is_raced && memory == Memory::Use).then(|| {
        // Who reads an older state, without its younger indexes, has plans of its own.
        let version = guard.version() ^ ((guard.indexes_left_out() as u64) << 48);
        let shape = hash_shape(guard.uuid(), version, request, query.collation.as_deref());
        planner.allowed.map_or(shape, |allowed| allowed.place(shape))
    });
    let counters = context.op.counters();
    let mut replanned = None;
    let mut is_told = true;
    if let Some((shape, remembered)) = shape.and_then(|shape| Some((shape, plan_cache().get(shape)?)))
        && let Some(candidate) = planner.candidate(&remembered.choice)?
    {
        counters.plan_cache_hits.add(1);
        let cached = Some((shape, remembered.works));
        let mut planned = Planned::of(planner, candidate, guard.definition().clone(), cached)?;
        let results_max = if request.takes_one { 1 } else { RESULTS_MAX };
        match planned.stands_trial(context, guard, results_max)? {
            Trial::Stood => return Ok(Some(planned)),
            Trial::TooMuchWork => {}
            // What this query runs by instead is not what others of its shape should.
            Trial::Failed => is_told = false,
        }
        counters.replanned.add(1);
        replanned = Some(remembered.choice);
    } else if shape.is_some() {
        counters.plan_cache_misses.add(1);
    }
    let mut candidates = planner.candidates(wish)?;
    if candidates.is_empty() {
        return Ok(None);
    }
    if candidates.len() == 1 {
        return build(planner, candidates.remove(0), guard).map(Some);
    }
    candidates.sort_by_cached_key(|candidate| planner.rank(candidate));
    if candidates[0].finds_one() {
        let planned = build(planner, candidates.remove(0), guard)?;
        return Ok(Some(chosen_among(planned, candidates, Vec::new(), memory)));
    }
    let outcome = race(context, guard, planner, &candidates)?;
    let winner = candidates.remove(outcome.winner);
    let choice = winner.choice().filter(|_| !outcome.has_failed);
    if choice.is_some() && choice == replanned {
        counters.replanned_alike.add(1);
    }
    let planned = build(planner, winner, guard)?;
    if let (Some(shape), Some(choice)) = (shape.filter(|_| is_told), choice) {
        let is_by_settings = match (planner.allowed, allowed_by_settings(&context, guard)) {
            (Some(allowed), Some(by_settings)) => std::ptr::eq(allowed, by_settings),
            _ => false,
        };
        let entry = CacheEntry {
            collection: guard.uuid(),
            version: guard.version(),
            hashes: QueryHashes::of(query, Some(guard)),
            shown: shown_plan(request, &planned.stage),
            is_filtered: planner.allowed.is_some() && !is_by_settings,
            settings: context.settings.filter(|_| is_by_settings).cloned(),
            created_ms: context.storage.env().clock.now_ms(),
        };
        plan_cache().put(
            shape,
            Remembered {
                choice,
                works: outcome.works,
                is_decided: outcome.is_decided,
                is_active: true,
                entry: Arc::new(entry),
            },
        );
    }
    Ok(Some(chosen_among(planned, candidates, outcome.tried, memory)))
}

/// The plan with what is to be known of the candidates that it was chosen among: all of them where it is explained; a
/// cursor that runs does not keep them.
fn chosen_among(mut planned: Planned, rejected: Vec<Candidate>, tried: Vec<Stage>, memory: Memory) -> Planned {
    planned.has_rivals = !rejected.is_empty();
    if memory == Memory::Ignore {
        planned.rejected = rejected;
        planned.tried = tried;
    }
    planned
}

/// What `$planCacheStats` shows of a plan; `None` where that is large.
fn shown_plan(request: &FindRequest<'_>, stage: &Stage) -> Option<ShownPlan> {
    let parts = [
        Some(request.filter),
        request.sort,
        request.projection,
        request.collation,
    ];
    let bytes: usize = parts.iter().flatten().map(|part| part.as_bytes().len()).sum();
    if bytes > SHOWN_BYTES_MAX {
        return None;
    }
    let mut budget = SizeBudget::of_tree(SHOWN_BYTES_MAX);
    let plan = describe(stage, Detail::Plan, &mut budget);
    if budget.is_exceeded() {
        return None;
    }
    let shown = ShownPlan {
        pattern: pattern_of(request),
        plan: RawDocumentBuf::try_from(plan).ok()?,
    };
    (shown.bytes() <= SHOWN_BYTES_MAX).then_some(shown)
}

/// What of a request makes its shape.
fn pattern_of(request: &FindRequest<'_>) -> RawDocumentBuf {
    let owned = |document: Option<&RawDocument>| document.map(ToOwned::to_owned).unwrap_or_default();
    let mut pattern = rawdoc! {
        "query": request.filter.to_owned(),
        "sort": owned(request.sort),
        "projection": owned(request.projection),
    };
    if let Some(collation) = request.collation {
        pattern.append(cstr!("collation"), collation.to_owned());
    }
    pattern
}

fn build(planner: &Planner<'_>, candidate: Candidate, guard: &CollectionGuard) -> Result<Planned, QueryError> {
    Planned::of(planner, candidate, guard.definition().clone(), None)
}

fn bounded_by_keys(planner: &Planner<'_>, wish: &Wish, request: &FindRequest<'_>) -> Result<Candidate, QueryError> {
    let position = match wish {
        Wish::Index(position) => position,
        Wish::Natural(_) => {
            return Err(QueryError::new(
                ErrorCode::NoQueryExecutionPlans,
                "min and max are incompatible with $natural",
            ));
        }
        Wish::None => {
            return Err(QueryError::new(
                ErrorCode(51173),
                "When using min()/max() a hint of which index to use must be provided",
            ));
        }
    };
    let index = &planner.collection.access_paths()[*position];
    planner.key_range(index, request.min, request.max)
}
