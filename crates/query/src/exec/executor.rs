//! A query on its way: what `find`, `aggregate`, the cursor table and the writers hold.
//!
//! Between two calls nothing is pinned: no view, no cursor, no lock; positions are remembered and taken up again in the
//! newest state. Within a call a long run yields the same way. A collection or index that is gone meanwhile ends the
//! execution with `QueryPlanKilled`.

use super::context::{DocumentSink, ExecContext, ExecState, Run, SinkState};
use super::held::HeldRows;
use super::id_lookup::IdLookup;
use super::pipeline::PipelineRun;
use super::row::{Row, as_document};
use super::stage::{Flow, Ran, Stage};
use super::summary::{PlanSummary, id_summary};
use super::trial::{Trial, rows_of_trial, try_cached};
use crate::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory, is_interruption};
use crate::history::ResumeToken;
use crate::matcher::Matcher;
use crate::plan::cache::plan_cache;
use crate::plan::hashes::PlannedQuery;
use crate::plan::index_filters::index_filters;
use crate::plan::planner::{Candidate, Planner};
use crate::plan::query::{Query, Wish};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use storage::{CappedWaiter, Collection, CollectionGuard, LockMode, Namespace, ReadView, RecordId};
use vfs::{Await, Waker};
use wire::ErrorCode;

/// Records that [`PlanExecutor::next_record`] reads ahead, at most; it starts with one, as most writes want no more.
const RECORDS_AHEAD_MAX: usize = 64;

/// See the module.
pub struct PlanExecutor {
    ns: Namespace,
    pub(crate) body: Body,
    /// The collection as it was locked for planning: the first run goes on with it.
    locked: Option<CollectionGuard>,
    /// A document the sink refused.
    refused: Option<Vec<u8>>,
    ended: bool,
}

pub(crate) enum Body {
    Nothing,
    Id(IdLookup),
    Plan(Box<Planned>),
    Pipeline(Box<PipelineRun>),
}

/// A planned query and its state.
pub(crate) struct Planned {
    pub(crate) stage: Stage,
    pub(crate) query: Query,
    pub(crate) collection: Arc<Collection>,
    /// There were other candidates.
    pub(crate) has_rivals: bool,
    /// What `explain` tells of them.
    pub(crate) rejected: Vec<Candidate>,
    /// What `explain` tells of the trial: how far the candidates came, this one first.
    pub(crate) tried: Vec<Stage>,
    /// Set by [`Planned::of`]: what the plan is built of, and shape and work of the cache's entry that it is from.
    built_of: Option<(Candidate, Option<(u64, u64)>)>,
    /// Not given yet of what its trial has read.
    held: HeldRows,
    /// It looks up one value by its only index: what was asked is not in the query.
    pub(crate) is_lookup: bool,
    /// It was planned with some of the indexes only.
    is_restricted: bool,
    /// For the bounds, which are there as long as the plan is.
    _memory: StageMemory,
    ahead: VecDeque<RecordId>,
    ahead_max: usize,
    /// Keys and documents already counted in an operation's figures.
    counted: (u64, u64),
}

impl Planned {
    pub(crate) fn new(stage: Stage, query: Query, collection: Arc<Collection>) -> Self {
        Self {
            stage,
            query,
            collection,
            has_rivals: false,
            rejected: Vec::new(),
            tried: Vec::new(),
            built_of: None,
            held: HeldRows::default(),
            is_lookup: false,
            is_restricted: false,
            _memory: StageMemory::default(),
            ahead: VecDeque::new(),
            ahead_max: 1,
            counted: (0, 0),
        }
    }

    /// The plan that `candidate` is, from the cache where `cached` is its entry.
    pub(crate) fn of(
        planner: &Planner<'_>,
        candidate: Candidate,
        collection: Arc<Collection>,
        cached: Option<(u64, u64)>,
    ) -> Result<Self, QueryError> {
        let stage = planner.build(&candidate)?;
        super::used_indexes(&stage, &mut |index| index.record_access());
        let mut memory = StageMemory::default();
        match candidate.bounds_bytes() {
            0 => {}
            bytes => memory.grow(planner.evaluation, bytes)?,
        }
        Ok(Self {
            _memory: memory,
            built_of: Some((candidate, cached)),
            is_restricted: planner.allowed.is_some(),
            ..Self::new(stage, planner.query.clone(), collection)
        })
    }

    /// What is told of it.
    pub(crate) fn plan_summary(&self) -> PlanSummary {
        let mut looked_up = None;
        if self.is_lookup {
            super::used_indexes(&self.stage, &mut |index| looked_up = Some(index.clone()));
        }
        let query = PlannedQuery::new(&self.query, looked_up, &self.collection);
        PlanSummary::of(&self.stage, query)
    }

    /// Starts the same plan anew, to be tried with [`Planned::try_anew`]. False where there has to be another race,
    /// where another definition of the collection is in force, and where not all indexes may be used: which ones, only
    /// the planning of the whole query knows.
    pub(crate) fn restart(&mut self, context: ExecContext<'_>) -> Result<bool, QueryError> {
        let Some((candidate, cached)) = self.built_of.take().filter(|_| !self.is_restricted) else {
            return Ok(false);
        };
        let is_settled = match cached {
            Some((shape, _)) => plan_cache().get(shape).is_some(),
            // From its second run on, the winner of a race is tried as a cached plan.
            None => !self.has_rivals || candidate.finds_one(),
        };
        let definition = context.definition(self.collection.namespace());
        if !is_settled || !definition.is_some_and(|now| Arc::ptr_eq(&now, &self.collection)) {
            return Ok(false);
        }
        let planner = Planner {
            collection: &self.collection,
            query: &self.query,
            allowed: None,
            evaluation: &EvaluationContext::new(context.op),
        };
        let candidate = match self.query.filter.as_deref() {
            // Its bounds are those of the values that variables had.
            Some(filter) if filter.root().reads_outer() => match same_candidate(&planner, &candidate)? {
                Some(candidate) => candidate,
                None => return Ok(false),
            },
            _ if candidate.is_current() => candidate,
            _ => return Ok(false),
        };
        *self = Self {
            has_rivals: self.has_rivals,
            ..Self::of(&planner, candidate, self.collection.clone(), cached)?
        };
        Ok(true)
    }

    /// Tries a plan of the cache, see [`super::trial`]. Unless it stands the trial it must not be run. The cache gives
    /// one that worked too much no more.
    pub(crate) fn stands_trial(
        &mut self,
        context: ExecContext<'_>,
        guard: &CollectionGuard,
        results_max: u64,
    ) -> Result<Trial, QueryError> {
        let Some(works) = self.tried_works() else {
            return Ok(Trial::Stood);
        };
        let mut held = HeldRows::default();
        let trial = try_cached(context, guard, &mut self.stage, works, results_max, &mut held)?;
        match trial {
            Trial::Stood => {
                self.held = held;
                self.count_examined(context);
            }
            Trial::TooMuchWork => self.leave_cache(),
            Trial::Failed => {}
        }
        Ok(trial)
    }

    /// The first run of a plan that was started anew: one of the cache is tried in it, see [`super::trial`], and any
    /// other is not run yet. `None` where it does not stand the trial: what `receive` has got of it must be forgotten
    /// then, and it must not be run.
    pub(crate) fn try_anew(
        &mut self,
        context: ExecContext<'_>,
        wanted: u64,
        receive: &mut super::stage::Receiver<'_>,
    ) -> Result<Option<Ran>, QueryError> {
        let Some(works) = self.tried_works() else {
            return Ok(Some(Ran::Stopped));
        };
        match self.run_rows(context, None, wanted, Some(rows_of_trial(works)), receive) {
            Ok(Ran::Yield) => {
                self.leave_cache();
                context.op.counters().replanned.add(1);
                Ok(None)
            }
            Ok(ran) => {
                self.held.are_all = ran == Ran::Exhausted;
                self.count_examined(context);
                Ok(Some(ran))
            }
            Err(error) if is_interruption(&error) => Err(error),
            Err(_) => {
                context.op.check_now().map_err(storage::StorageError::from)?;
                Ok(None)
            }
        }
    }

    /// The work that the cache knows of the plan, if it is one of the cache that is to be tried. Scripts do not run in
    /// trials: one may never end.
    fn tried_works(&self) -> Option<u64> {
        let (_, cached) = self.built_of.as_ref()?;
        cached.map(|(_, works)| works).filter(|_| !self.query.runs_scripts)
    }

    /// The plan has worked too much: the cache gives it no more.
    fn leave_cache(&self) {
        if let Some((candidate, Some((shape, works)))) = &self.built_of
            && let Some(choice) = candidate.choice()
        {
            plan_cache().deactivate(*shape, &choice, *works);
        }
    }

    /// Adds what was examined since the last time to the operation's figures.
    fn count_examined(&mut self, context: ExecContext<'_>) {
        let (keys, docs) = self.stage.totals();
        let counters = context.op.counters();
        counters.keys_examined.add(keys - self.counted.0);
        counters.docs_examined.add(docs - self.counted.1);
        self.counted = (keys, docs);
    }

    /// Runs until `receive` stops it, which it does after `wanted` rows, or the rows end, yielding in between. `locked`
    /// is the collection, where it is locked.
    pub(crate) fn run(
        &mut self,
        context: ExecContext<'_>,
        locked: Option<CollectionGuard>,
        wanted: u64,
        receive: &mut super::stage::Receiver<'_>,
    ) -> Result<Ran, QueryError> {
        let ran = self.run_rows(context, locked, wanted, None, receive)?;
        self.count_examined(context);
        Ok(ran)
    }

    /// As [`Planned::run`], where it looks at `rows_max` rows at most: [`Ran::Yield`] when that was not enough. What
    /// was examined is still to be counted.
    fn run_rows(
        &mut self,
        context: ExecContext<'_>,
        mut locked: Option<CollectionGuard>,
        wanted: u64,
        mut rows_max: Option<u32>,
        receive: &mut super::stage::Receiver<'_>,
    ) -> Result<Ran, QueryError> {
        let evaluation = EvaluationContext::new(context.op).with_scripts(context.scripts);
        let given = Cell::new(0);
        let receive = &mut |row: Row<'_>| {
            given.set(given.get() + 1);
            receive(row)
        };
        let result = loop {
            let guard = match locked.take() {
                Some(guard) => guard,
                None => self.lock(context)?,
            };
            self.check_definition(context, &guard)?;
            if self.held.give(receive)? == Flow::Stop {
                break Ran::Stopped;
            }
            if self.held.are_all {
                break Ran::Exhausted;
            }
            // Declared before the view, which goes first.
            let mut guard = Some(guard);
            let view = context.data().view()?;
            let mut run =
                Run::new(context, &view, &self.collection, &evaluation).giving(wanted.saturating_sub(given.get()));
            if let Some(rows) = rows_max {
                run = run.looking_at(rows);
            }
            // A script may never end, and whoever wants the collection for itself would wait for it, with all who come
            // behind. The view keeps what it shows, whatever becomes of the collection.
            if self.query.runs_scripts {
                drop(guard.take());
                run = run.of_slow_rows();
            }
            match self.stage.run(&run, receive)? {
                Ran::Yield => {
                    rows_max = rows_max.map(|_| run.rows_left());
                    if rows_max == Some(0) {
                        break Ran::Yield;
                    }
                    self.stage.save();
                    context.op.counters().yields.add(1);
                }
                ran => break ran,
            }
        };
        self.stage.save();
        Ok(result)
    }

    fn lock(&self, context: ExecContext<'_>) -> Result<CollectionGuard, QueryError> {
        let ns = self.collection.namespace();
        match context.data().collection(ns, LockMode::IntentShared) {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) | Err(storage::StorageError::IsView(_)) => Err(self.gone(context)),
            Err(error) => Err(error.into()),
        }
    }

    /// The collection is not where it was.
    fn gone(&self, context: ExecContext<'_>) -> QueryError {
        let ns = self.collection.namespace();
        let uuid = self.collection.uuid();
        killed(match context.storage.catalog().collection_by_uuid(&uuid) {
            Some(now) => format!("collection renamed from '{ns}' to '{}'", now.namespace()),
            None => format!("collection dropped: {ns}"),
        })
    }

    fn check_definition(&mut self, context: ExecContext<'_>, guard: &CollectionGuard) -> Result<(), QueryError> {
        let now = guard.definition();
        if Arc::ptr_eq(now, &self.collection) {
            return Ok(());
        }
        if now.uuid() != self.collection.uuid() {
            return Err(self.gone(context));
        }
        if let Some(name) = lost_index(&self.stage, now) {
            return Err(killed(format!("index '{name}' dropped")));
        }
        self.collection = now.clone();
        Ok(())
    }
}

/// A candidate for a query whose variables have other values now; `None` where another one may be better.
fn same_candidate(planner: &Planner<'_>, candidate: &Candidate) -> Result<Option<Candidate>, QueryError> {
    if index_filters().are_used() {
        return Ok(None);
    }
    let mut all = planner.candidates(&Wish::None)?;
    let choice = candidate.choice();
    let same = all
        .iter()
        .position(|other| choice.is_some() && other.choice() == choice);
    Ok(match (same, all.len()) {
        (Some(same), _) => Some(all.swap_remove(same)),
        (None, 1) => all.pop(),
        (None, _) => None,
    })
}

fn killed(reason: String) -> QueryError {
    QueryError::new(ErrorCode::QueryPlanKilled, reason)
}

fn lost_index(stage: &Stage, collection: &Collection) -> Option<String> {
    let scanned = match stage {
        Stage::IndexScan(scan) => Some(&scan.index),
        Stage::Near(near) => Some(near.index()),
        Stage::TextMatch(text) => Some(&text.index),
        _ => None,
    };
    if let Some(scanned) = scanned {
        let there = collection
            .access_paths()
            .iter()
            .any(|index| index.table() == scanned.table());
        return (!there).then(|| scanned.name().to_owned());
    }
    stage
        .inputs()
        .into_iter()
        .find_map(|input| lost_index(input, collection))
}

impl PlanExecutor {
    pub(crate) fn new(ns: Namespace, body: Body) -> Self {
        Self::locked(ns, body, None)
    }

    /// As [`PlanExecutor::new`]; its first run does not lock the collection again.
    pub(crate) fn locked(ns: Namespace, body: Body, locked: Option<CollectionGuard>) -> Self {
        Self {
            ns,
            body,
            locked,
            refused: None,
            ended: false,
        }
    }

    /// Gives up what it holds: before it is put aside without having run.
    pub fn release(&mut self) {
        self.locked = None;
    }

    /// What it reads: the collection, or the view it was asked of.
    pub fn namespace(&self) -> &Namespace {
        &self.ns
    }

    /// Pushes results into `sink` until it is full or there are no more. Errors end the execution: interrupted
    /// operations, a dropped collection or index (175), a lost position (136), what filters and projections report.
    pub fn next_documents(
        &mut self,
        context: &ExecContext<'_>,
        sink: &mut dyn DocumentSink,
    ) -> Result<ExecState, QueryError> {
        if let Some(document) = self.refused.take() {
            match sink.push(as_document(&document)?) {
                SinkState::Continue => {
                    self.note_returned();
                }
                SinkState::Full => {
                    self.note_returned();
                    return Ok(if self.ended {
                        ExecState::Exhausted
                    } else {
                        ExecState::More
                    });
                }
                SinkState::Refused => {
                    self.refused = Some(document);
                    return Ok(ExecState::More);
                }
            }
        }
        if self.ended {
            return Ok(ExecState::Exhausted);
        }
        let mut returned = 0;
        let wanted = sink.wanted();
        let refused = &mut self.refused;
        let mut push = |document: &[u8]| -> Result<Flow, QueryError> {
            match sink.push(as_document(document)?) {
                SinkState::Continue => {
                    returned += 1;
                    Ok(Flow::Continue)
                }
                SinkState::Full => {
                    returned += 1;
                    Ok(Flow::Stop)
                }
                SinkState::Refused => {
                    *refused = Some(document.to_vec());
                    Ok(Flow::Stop)
                }
            }
        };
        let ran = match &mut self.body {
            Body::Nothing => Ran::Exhausted,
            Body::Id(lookup) => {
                if let Some(found) = run_lookup(lookup, &self.ns, *context, self.locked.take())?
                    && let Some(document) = found.document()?
                {
                    match &lookup.fields {
                        None => push(&document)?,
                        Some(fields) => {
                            let mut projected = Vec::new();
                            fields.apply(as_document(&document)?, &mut projected)?;
                            push(&projected)?
                        }
                    };
                }
                Ran::Exhausted
            }
            Body::Plan(planned) => planned.run(*context, self.locked.take(), wanted, &mut |row: Row<'_>| {
                push(row.document.bytes())
            })?,
            Body::Pipeline(pipeline) => pipeline.run(*context, &mut push)?,
        };
        if returned > 0 && self.refused.is_none() && ran == Ran::Stopped {
            self.note_returned();
        }
        self.ended = ran == Ran::Exhausted || (ran == Ran::CaughtUp && self.tail_is_empty());
        Ok(match ran {
            _ if self.refused.is_some() => ExecState::More,
            _ if self.ended => ExecState::Exhausted,
            Ran::CaughtUp => ExecState::CaughtUp,
            _ => ExecState::More,
        })
    }

    /// The next record that matches, for writers: they lock the record and check it again with
    /// [`PlanExecutor::filter`]. Records are read ahead a few at a time; each is given once.
    pub fn next_record(&mut self, context: &ExecContext<'_>) -> Result<Option<RecordId>, QueryError> {
        match &mut self.body {
            Body::Id(lookup) => {
                let found = run_lookup(lookup, &self.ns, *context, self.locked.take())?;
                Ok(found.map(|found| {
                    self.locked = Some(found.guard).filter(CollectionGuard::is_for_writers);
                    found.id
                }))
            }
            Body::Plan(planned) => {
                if planned.ahead.is_empty() && !self.ended {
                    let mut ahead = VecDeque::new();
                    let rows_max = planned.ahead_max;
                    planned.ahead_max = (rows_max * 4).min(RECORDS_AHEAD_MAX);
                    let ran = planned.run(*context, self.locked.take(), rows_max as u64, &mut |row: Row<'_>| {
                        ahead.push_back(row.id);
                        Ok(if ahead.len() >= rows_max {
                            Flow::Stop
                        } else {
                            Flow::Continue
                        })
                    })?;
                    planned.ahead = ahead;
                    self.ended = ran == Ran::Exhausted;
                }
                Ok(planned.ahead.pop_front())
            }
            Body::Nothing => Ok(None),
            Body::Pipeline(_) => Err(QueryError::new(ErrorCode::InternalError, "a pipeline gives no records")),
        }
    }

    /// The collection as it was locked for planning, until the first run.
    pub fn locked_collection(&self) -> Option<&CollectionGuard> {
        self.locked.as_ref()
    }

    /// The collection, still locked since it was planned for a writer: what looked a record up by its `_id` looks up no
    /// other, for which it would have to let go of the lock. `None` of other plans, and before the record was found.
    pub fn take_lock(&mut self) -> Option<CollectionGuard> {
        match &self.body {
            Body::Id(lookup) if lookup.done => self.locked.take(),
            _ => None,
        }
    }

    /// The filter, for writers' second look. `None` when none is needed: every document matches, or the record was
    /// found by its `_id`, which never changes.
    pub fn filter(&self) -> Option<&Arc<Matcher>> {
        match &self.body {
            Body::Plan(planned) => planned.query.filter.as_ref(),
            _ => None,
        }
    }

    /// Whether scripts run with the filter, which may never end.
    pub fn runs_scripts(&self) -> bool {
        matches!(&self.body, Body::Plan(planned) if planned.query.runs_scripts)
    }

    /// True for a cursor that stays open at the end.
    pub fn is_tailable(&self) -> bool {
        match &self.body {
            Body::Plan(planned) => planned.query.tailable,
            Body::Pipeline(pipeline) => pipeline.tail.is_some(),
            _ => false,
        }
    }

    /// Of a change stream: where it goes on with all that [`PlanExecutor::next_documents`] has pushed so far.
    pub fn resume_token(&self) -> Option<ResumeToken> {
        match &self.body {
            Body::Pipeline(pipeline) => pipeline.tail.as_ref()?.state().returned,
            _ => None,
        }
    }

    /// The client has the document that was given last.
    fn note_returned(&self) {
        if let Body::Pipeline(pipeline) = &self.body
            && let Some(tail) = &pipeline.tail
        {
            tail.return_given();
        }
    }

    /// True once [`ExecState::Exhausted`] was reported.
    pub fn is_exhausted(&self) -> bool {
        self.ended && self.refused.is_none()
    }

    /// What a tailable cursor waits with for data: call `wait` with [`PlanExecutor::tail_position`] and without locks.
    pub fn capped_waiter(&self) -> Option<CappedWaiter> {
        match &self.body {
            Body::Plan(planned) if planned.query.tailable => planned.collection.capped_waiter(),
            _ => None,
        }
    }

    /// The last record that a tailable cursor has passed.
    pub fn tail_position(&self) -> RecordId {
        match &self.body {
            Body::Plan(planned) => tail_position(&planned.stage),
            _ => RecordId::default(),
        }
    }

    /// Waits until a tailable cursor has something new to look at (true) or `timeout` has passed (false).
    pub fn wait_for_data(&self, context: &ExecContext<'_>, timeout: Duration) -> Result<bool, QueryError> {
        if let Body::Pipeline(pipeline) = &self.body
            && let Some(tail) = &pipeline.tail
        {
            return Ok(tail.wait(context, timeout)?);
        }
        let Some(waiter) = self.capped_waiter() else {
            return Ok(true);
        };
        waiter
            .wait(context.op, self.tail_position().number(), timeout)
            .map_err(|error| storage::StorageError::from(error).into())
    }

    /// Has `waker` called once a tailable cursor may have something new to look at.
    pub fn call_at_data(&self, context: &ExecContext<'_>, waker: &Arc<Waker>) -> Result<Await, QueryError> {
        if let Body::Pipeline(pipeline) = &self.body
            && let Some(tail) = &pipeline.tail
        {
            return Ok(tail.call(context, waker)?);
        }
        let waiter = self.capped_waiter();
        Ok(waiter.map_or(Await::Now, |waiter| waiter.call(self.tail_position().number(), waker)))
    }

    /// Whether a tailable cursor that has not been asked for anything yet has no collection to read, or an empty one.
    pub fn is_dead(&self) -> bool {
        matches!(self.body, Body::Nothing) || (self.capped_waiter().is_some() && self.tail_is_empty())
    }

    /// A tailable cursor on an empty collection is dead from the start.
    fn tail_is_empty(&self) -> bool {
        matches!(&self.body, Body::Plan(planned) if planned.collection.count() == 0)
    }

    /// What log lines and `currentOp` tell of the plan.
    pub fn plan_summary(&self) -> PlanSummary {
        match &self.body {
            Body::Nothing => PlanSummary::unplanned("EOF"),
            Body::Id(lookup) => PlanSummary::unplanned(id_summary(lookup.is_clustered)),
            Body::Plan(planned) => planned.plan_summary(),
            Body::Pipeline(pipeline) => pipeline.plan_summary(),
        }
    }

    /// Keys and documents examined so far.
    pub fn examined(&self) -> (u64, u64) {
        match &self.body {
            Body::Nothing => (0, 0),
            Body::Id(lookup) => (lookup.keys_examined, lookup.docs_examined),
            Body::Plan(planned) => planned.stage.totals(),
            Body::Pipeline(pipeline) => pipeline.examined(),
        }
    }
}

fn tail_position(stage: &Stage) -> RecordId {
    match stage {
        Stage::CollectionScan(scan) => scan.position(),
        other => other
            .inputs()
            .first()
            .map_or(RecordId::default(), |input| tail_position(input)),
    }
}

/// What a look-up by `_id` has found, and where its document is read from when that is wanted: writers do so under a
/// lock.
struct Found {
    id: RecordId,
    guard: CollectionGuard,
    view: ReadView,
    /// Of a clustered collection, where finding it is reading it.
    document: Option<Bytes>,
}

impl Found {
    fn document(self) -> Result<Option<Bytes>, QueryError> {
        match self.document {
            None => Ok(self.view.record(&self.guard, &self.id)?),
            document => Ok(document),
        }
    }
}

fn run_lookup(
    lookup: &mut IdLookup,
    ns: &Namespace,
    context: ExecContext<'_>,
    locked: Option<CollectionGuard>,
) -> Result<Option<Found>, QueryError> {
    if lookup.done {
        return Ok(None);
    }
    lookup.done = true;
    let guard = match locked {
        Some(guard) => Some(guard),
        None => context.data().collection(ns, LockMode::IntentShared)?,
    };
    let Some(guard) = guard else {
        return Ok(None);
    };
    let view = context.data().view()?;
    let counters = context.op.counters();
    if guard.clustered_index().is_some() {
        let id = RecordId::Key(lookup.key.as_slice().into());
        let Some(document) = view.record(&guard, &id)? else {
            return Ok(None);
        };
        lookup.docs_examined += 1;
        counters.docs_examined.add(1);
        return Ok(Some(Found {
            id,
            guard,
            view,
            document: Some(document),
        }));
    }
    lookup.keys_examined += 1;
    counters.keys_examined.add(1);
    let Some(id) = view.find_unique(guard.id_index(), &lookup.key)? else {
        return Ok(None);
    };
    lookup.docs_examined += 1;
    counters.docs_examined.add(1);
    Ok(Some(Found {
        id,
        guard,
        view,
        document: None,
    }))
}
