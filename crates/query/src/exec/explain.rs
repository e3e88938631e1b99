//! `explain`: the chosen plan, the others, and what the chosen one does when it runs.

use super::aggregate;
use super::clustered;
use super::context::{DocumentSink, ExecContext, SinkState};
use super::count::{FAST_COUNT, is_metadata_count, plan_count, trimmed};
use super::describe::{Detail, SizeBudget, describe, narrowed, to_document};
use super::distinct::plan_distinct;
use super::executor::{Body, PlanExecutor, Planned};
use super::find::{Memory, allowed_by_settings, find_with, request_context};
use super::id_lookup::IdLookup;
use super::row::{Row, as_document};
use super::stage::{Flow, Stage};
use super::view;
use crate::QueryError;
use crate::error::CodedError;
use crate::evaluation::EvaluationContext;
use crate::history::{is_read_backward, is_virtual};
use crate::plan::hashes::QueryHashes;
use crate::plan::index_filters::index_filters;
use crate::plan::planner::Planner;
use crate::plan::query::{Query, collation_of};
use crate::plan::query_settings::QuerySettings;
use crate::plan::request::{
    Answered, CountRequest, DistinctRequest, ExplainRequest, ExplainedWrite, FindRequest, Verbosity, WriteKind,
};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use std::time::Duration;
use storage::{LockMode, Namespace};
use wire::ErrorCode;

/// The explanation: `explainVersion`, `queryPlanner`, `executionStats`, or `stages` for a pipeline. The command layer
/// adds `queryShapeHash`, `command`, `serverInfo`, `serverParameters` and `ok`.
pub fn explain(
    context: &ExecContext<'_>,
    request: &ExplainRequest<'_>,
    verbosity: Verbosity,
) -> Result<RawDocumentBuf, QueryError> {
    let context = *context;
    let is_view = |ns: &Namespace| context.storage.catalog().view(ns).is_some();
    let mut document = match request {
        ExplainRequest::Find(request) if is_view(&request.ns) => {
            let pipeline = view::find_pipeline(request)?;
            aggregate::explain(context, &view::find_over(request, &pipeline), verbosity)?
        }
        ExplainRequest::Count(request) if is_view(&request.ns) => {
            let pipeline = view::count_pipeline(request)?;
            aggregate::explain(context, &view::count_over(request, &pipeline), verbosity)?
        }
        ExplainRequest::Distinct(request) if is_view(&request.ns) => {
            let pipeline = view::distinct_pipeline(request)?;
            aggregate::explain(context, &view::distinct_over(request, &pipeline), verbosity)?
        }
        ExplainRequest::Find(request) => explain_find(context, request, Wrapper::None, verbosity)?,
        ExplainRequest::Aggregate(request) => aggregate::explain(context, request, verbosity)?,
        ExplainRequest::Count(request) => explain_count(context, request, verbosity)?,
        ExplainRequest::Distinct(request) => explain_distinct(context, request, verbosity)?,
        ExplainRequest::Write(records, write) => explain_find(context, records, Wrapper::Write(*write), verbosity)?,
    };
    if let Some(settings) = context.settings {
        show_settings(&mut document, settings);
    }
    RawDocumentBuf::try_from(&document)
        .map_err(|error| QueryError::new(ErrorCode::InternalError, format!("explain cannot be encoded: {error}")))
}

/// Adds what the operator has set to what was planned.
fn show_settings(document: &mut Document, settings: &QuerySettings) {
    if let Ok(section) = document.get_document_mut("queryPlanner") {
        section.insert("querySettings", settings.to_document());
    }
    if let Ok([Bson::Document(stage), ..]) = document.get_array_mut("stages").map(Vec::as_mut_slice)
        && let Ok(cursor) = stage.get_document_mut("$cursor")
    {
        show_settings(cursor, settings);
    }
}

/// The stage that a command puts on top of its plan.
#[derive(Clone, Copy)]
enum Wrapper<'a> {
    None,
    Count,
    Write(ExplainedWrite<'a>),
}

/// What a plan came to that was run, to its end unless it failed.
#[derive(Default)]
pub(crate) struct PlanRun {
    rows: u64,
    /// Of these, what a write would change.
    changed: u64,
    time: Duration,
    failure: Option<Box<CodedError>>,
}

impl Wrapper<'_> {
    fn wrap(self, plan: Document, run: Option<&PlanRun>) -> Document {
        let mut stage = match self {
            Wrapper::None => return plan,
            Wrapper::Count => doc! { "stage": "COUNT" },
            Wrapper::Write(write) => match write.kind {
                WriteKind::Update => doc! { "stage": "UPDATE" },
                WriteKind::Delete => doc! { "stage": "DELETE" },
            },
        };
        if let Some(run) = run {
            stage.insert("nReturned", self.returned(run));
            stage.insert("isEOF", 1);
            match self {
                Wrapper::Count => {
                    stage.insert("nCounted", narrowed(run.rows));
                    stage.insert("nSkipped", 0);
                }
                Wrapper::Write(write) if write.kind == WriteKind::Update => {
                    let inserts = write.is_upsert && run.rows == 0;
                    stage.insert("nMatched", narrowed(run.rows));
                    stage.insert("nWouldModify", narrowed(run.changed));
                    stage.insert("nWouldUpsert", i32::from(inserts));
                }
                Wrapper::Write(_) => {
                    stage.insert("nWouldDelete", narrowed(run.rows));
                }
                Wrapper::None => {}
            }
        }
        stage.insert("inputStage", plan);
        let Wrapper::Write(ExplainedWrite {
            answered: Some((_, Some(fields))),
            ..
        }) = self
        else {
            return stage;
        };
        let mut projection = doc! { "stage": "PROJECTION_DEFAULT" };
        projection.extend(run.map(|run| ("nReturned".to_owned(), self.returned(run))));
        projection.extend(doc! { "transformBy": to_document(fields), "inputStage": stage });
        projection
    }

    /// The documents that the command returns.
    fn returned(self, run: &PlanRun) -> Bson {
        narrowed(match self {
            Wrapper::None => run.rows,
            Wrapper::Count => 0,
            Wrapper::Write(write) => match write.answered {
                None => 0,
                Some((Answered::After, _)) if write.is_upsert => run.rows.max(1),
                Some(_) => run.rows,
            },
        })
    }

    /// Runs a plan as the command would, but for what it writes.
    fn run(self, context: ExecContext<'_>, planned: &mut Planned) -> Result<PlanRun, QueryError> {
        let changes = match self {
            Wrapper::Write(write) => {
                planned.query.runs_scripts |= write.runs_scripts;
                write.changes
            }
            _ => None,
        };
        run_each(context, planned, &mut |row| match changes {
            Some(changes) => changes(as_document(row.document.bytes())?),
            None => Ok(true),
        })
    }
}

fn explain_find(
    context: ExecContext<'_>,
    request: &FindRequest<'_>,
    wrapper: Wrapper<'_>,
    verbosity: Verbosity,
) -> Result<Document, QueryError> {
    let mut executor = find_with(&context, request, Memory::Ignore)?;
    executor.release();
    match &mut executor.body {
        Body::Plan(planned) => explain_planned(context, planned, wrapper, verbosity),
        Body::Pipeline(_) if is_virtual(context.storage, &request.ns) => {
            let start = context.op.clock().monotonic();
            let mut rows = RowCount(0);
            if verbosity > Verbosity::QueryPlanner {
                executor.next_documents(&context, &mut rows)?;
            }
            let ran = PlanRun::of(rows.0, context.op.clock().monotonic().saturating_sub(start));
            let hashes = hashes_of(&context, request)?;
            Ok(explain_fixed(request, &executor, hashes, wrapper, &ran, verbosity))
        }
        Body::Pipeline(_) => Err(QueryError::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("{} is a view, not a collection", request.ns),
        )),
        Body::Nothing => Ok(explain_fixed(
            request,
            &executor,
            hashes_of(&context, request)?,
            wrapper,
            &PlanRun::default(),
            verbosity,
        )),
        Body::Id(_) => {
            let start = context.op.clock().monotonic();
            let mut rows: Vec<RawDocumentBuf> = Vec::new();
            if verbosity > Verbosity::QueryPlanner {
                executor.next_documents(&context, &mut rows)?;
            }
            let time = context.op.clock().monotonic().saturating_sub(start);
            let mut ran = PlanRun::of(rows.len() as u64, time);
            for row in &rows {
                let would_change = match wrapper {
                    Wrapper::Write(ExplainedWrite {
                        changes: Some(changes), ..
                    }) => changes(row),
                    _ => Ok(true),
                };
                ran.note(would_change)?;
            }
            let hashes = hashes_of(&context, request)?;
            Ok(explain_fixed(request, &executor, hashes, wrapper, &ran, verbosity))
        }
    }
}

/// Counts what a plan gives, and keeps nothing: a log is long.
struct RowCount(u64);

impl DocumentSink for RowCount {
    fn push(&mut self, _: &RawDocument) -> SinkState {
        self.0 += 1;
        SinkState::Continue
    }
}

/// The hashes of a query whose plan was found without parsing it.
fn hashes_of(context: &ExecContext<'_>, request: &FindRequest<'_>) -> Result<QueryHashes, QueryError> {
    let collection = context.definition(&request.ns);
    let of_collection = collection.as_ref().and_then(|collection| collection.collation());
    let collation = collation_of(request.collation, of_collection)?;
    let query = Query::parse(request, &request_context(context, request, collation)?)?;
    Ok(QueryHashes::of(&query, collection.as_deref()))
}

/// Plans that have no tree of stages.
fn explain_fixed(
    request: &FindRequest<'_>,
    executor: &PlanExecutor,
    hashes: QueryHashes,
    wrapper: Wrapper<'_>,
    ran: &PlanRun,
    verbosity: Verbosity,
) -> Document {
    let is_lookup = matches!(executor.body, Body::Id(_));
    let clustered = match &executor.body {
        Body::Id(lookup) if lookup.is_clustered => Some(&lookup.key),
        _ => None,
    };
    let mut plan = match (wrapper, clustered) {
        _ if matches!(executor.body, Body::Pipeline(_)) => {
            let direction = match is_read_backward(request) {
                true => "backward",
                false => "forward",
            };
            doc! { "stage": "COLLSCAN", "filter": to_document(request.filter), "direction": direction }
        }
        _ if !is_lookup => doc! { "stage": "EOF" },
        (Wrapper::None, Some(_)) => {
            doc! { "isCached": false, "stage": "EXPRESS_CLUSTERED_IXSCAN", "keyPattern": "{ _id: 1 }" }
        }
        (_, Some(key)) => clustered::lookup_facts(key),
        (Wrapper::None, None) => {
            doc! { "isCached": false, "stage": "EXPRESS_IXSCAN", "keyPattern": "{ _id: 1 }", "indexName": "_id_" }
        }
        _ => doc! { "stage": "IDHACK", "keyPattern": { "_id": 1 }, "indexName": "_id_" },
    };
    if let Body::Id(IdLookup { fields: Some(_), .. }) = &executor.body {
        plan.insert("projection", request.projection.map(to_document));
        plan.insert("projectionCovered", false);
    }
    let filter = to_document(request.filter);
    let mut document = planner_section(
        &request.ns,
        Some(filter),
        Some(hashes),
        wrapper.wrap(plan.clone(), None),
        Vec::new(),
    );
    if verbosity > Verbosity::QueryPlanner {
        let (keys, docs) = executor.examined();
        let mut stages = plan;
        stages.insert("nReturned", narrowed(ran.rows));
        stages.insert("keysExamined", narrowed(keys));
        stages.insert("docsExamined", narrowed(docs));
        stages.insert("isEOF", 1);
        let stages = wrapper.wrap(stages, Some(ran));
        document.insert(
            "executionStats",
            stats_section(wrapper.returned(ran), ran, (keys, docs), stages),
        );
        add_all_plans(&mut document, Vec::new(), verbosity);
    }
    document
}

/// Without `parsed` there was no room for it.
fn planner_section(
    ns: &Namespace,
    parsed: Option<Document>,
    hashes: Option<QueryHashes>,
    winning: Document,
    rejected: Vec<Bson>,
) -> Document {
    let mut section = doc! { "namespace": ns.as_str() };
    match parsed {
        Some(parsed) => section.insert("parsedQuery", parsed),
        None => section.insert("warning", "'parsedQuery' has been omitted due to BSON size limit"),
    };
    section.insert("indexFilterSet", false);
    if let Some(QueryHashes { shape, key }) = hashes {
        section.extend(doc! { "queryHash": &shape, "planCacheShapeHash": shape, "planCacheKey": key });
    }
    section.extend(doc! {
        "optimizationTimeMillis": 0,
        "maxIndexedOrSolutionsReached": false,
        "maxIndexedAndSolutionsReached": false,
        "maxScansToExplodeReached": false,
        "prunedSimilarIndexes": false,
        "winningPlan": winning,
        "rejectedPlans": rejected,
    });
    doc! { "explainVersion": "1", "queryPlanner": section }
}

fn stats_section(returned: Bson, ran: &PlanRun, (keys, docs): (u64, u64), stages: Document) -> Document {
    let mut section = doc! { "executionSuccess": ran.failure.is_none() };
    if let Some(failure) = &ran.failure {
        section.extend(doc! { "errorMessage": &failure.message, "errorCode": failure.code.0 });
    }
    section.extend(doc! {
        "nReturned": returned,
        "executionTimeMillis": narrowed(ran.time.as_millis() as u64),
        "totalKeysExamined": narrowed(keys),
        "totalDocsExamined": narrowed(docs),
        "executionStages": stages,
    });
    section
}

/// How far a candidate came in the trial.
fn trial_section(stage: &Stage, budget: &mut SizeBudget) -> Bson {
    let (keys, docs) = stage.totals();
    Bson::from(doc! {
        "nReturned": narrowed(stage.counters().advanced),
        "executionTimeMillisEstimate": 0,
        "totalKeysExamined": narrowed(keys),
        "totalDocsExamined": narrowed(docs),
        "executionStages": describe(stage, Detail::Execution, budget),
    })
}

fn add_all_plans(document: &mut Document, plans: Vec<Bson>, verbosity: Verbosity) {
    if verbosity == Verbosity::AllPlansExecution
        && let Ok(stats) = document.get_document_mut("executionStats")
    {
        stats.insert("allPlansExecution", plans);
    }
}

/// Runs a plan to its end, or until it fails.
pub(crate) type RunPlan<'r> = dyn FnMut(ExecContext<'_>, &mut Planned) -> Result<PlanRun, QueryError> + 'r;

fn explain_planned(
    context: ExecContext<'_>,
    planned: &mut Planned,
    wrapper: Wrapper<'_>,
    verbosity: Verbosity,
) -> Result<Document, QueryError> {
    let mut run = |context: ExecContext<'_>, planned: &mut Planned| wrapper.run(context, planned);
    explain_run(context, planned, wrapper, verbosity, &mut run)
}

/// Explains a plan under a pipeline; `run` runs both when the verbosity asks for it.
pub(crate) fn explain_under_pipeline(
    context: ExecContext<'_>,
    planned: &mut Planned,
    verbosity: Verbosity,
    run: &mut RunPlan<'_>,
) -> Result<Document, QueryError> {
    explain_run(context, planned, Wrapper::None, verbosity, run)
}

fn explain_run(
    context: ExecContext<'_>,
    planned: &mut Planned,
    wrapper: Wrapper<'_>,
    verbosity: Verbosity,
    run: &mut RunPlan<'_>,
) -> Result<Document, QueryError> {
    let collection = planned.collection.clone();
    let query = planned.query.clone();
    let planner = Planner {
        collection: &collection,
        query: &query,
        allowed: None,
        evaluation: &EvaluationContext::new(context.op),
    };
    let mut budget = SizeBudget::of_explanation();
    let parsed = query
        .filter
        .as_ref()
        .map_or_else(Document::new, |filter| to_document(&filter.to_document()));
    let parsed = Some(parsed).filter(|parsed| budget.takes(parsed));
    let winning = wrapper.wrap(describe(&planned.stage, Detail::Plan, &mut budget), None);
    let mut rejected = Vec::new();
    for candidate in &planned.rejected {
        // The warning stands for all that are left.
        let is_last = budget.is_used_up();
        let stage = planner.build(candidate)?;
        rejected.push(Bson::from(describe(&stage, Detail::Plan, &mut budget)));
        if is_last {
            break;
        }
    }
    let hashes = QueryHashes::of(&query, Some(&collection));
    let mut document = planner_section(collection.namespace(), parsed, Some(hashes), winning, rejected);
    if allowed_by_settings(&context, &collection).is_none()
        && index_filters().find(collection.uuid(), &query).is_some()
        && let Ok(section) = document.get_document_mut("queryPlanner")
    {
        section.insert("indexFilterSet", true);
    }
    if verbosity == Verbosity::QueryPlanner {
        return Ok(document);
    }
    let ran = run(context, planned)?;
    let stages = wrapper.wrap(describe(&planned.stage, Detail::Execution, &mut budget), Some(&ran));
    document.insert(
        "executionStats",
        stats_section(wrapper.returned(&ran), &ran, planned.stage.totals(), stages),
    );
    let tried = planned.tried.iter();
    let tried = tried.map(|stage| trial_section(stage, &mut budget)).collect();
    add_all_plans(&mut document, tried, verbosity);
    Ok(document)
}

pub(crate) fn run_all(context: ExecContext<'_>, planned: &mut Planned) -> Result<PlanRun, QueryError> {
    Wrapper::None.run(context, planned)
}

/// Runs a plan; `would_change` says whether a row is one that a write would change.
fn run_each(
    context: ExecContext<'_>,
    planned: &mut Planned,
    would_change: &mut dyn FnMut(&Row<'_>) -> Result<bool, QueryError>,
) -> Result<PlanRun, QueryError> {
    let start = context.op.clock().monotonic();
    let mut ran = PlanRun::default();
    let result = planned.run(context, None, u64::MAX, &mut |row| {
        ran.rows += 1;
        ran.changed += u64::from(would_change(&row)?);
        Ok(Flow::Continue)
    });
    ran.time = context.op.clock().monotonic().saturating_sub(start);
    ran.note(result.map(|_| false))?;
    Ok(ran)
}

impl PlanRun {
    /// One that succeeded.
    pub(crate) fn of(rows: u64, time: Duration) -> Self {
        Self {
            rows,
            time,
            ..Self::default()
        }
    }

    /// Takes in whether a row would change. What fails in the query is told of in its explanation; what ends the
    /// operation ends that, too.
    fn note(&mut self, would_change: Result<bool, QueryError>) -> Result<(), QueryError> {
        match would_change {
            Ok(would_change) => self.changed += u64::from(would_change),
            Err(QueryError::Code(error)) => self.failure = Some(error),
            Err(other) => return Err(other),
        }
        Ok(())
    }
}

fn explain_count(
    context: ExecContext<'_>,
    request: &CountRequest<'_>,
    verbosity: Verbosity,
) -> Result<Document, QueryError> {
    let guard = context.data().collection(&request.ns, LockMode::IntentShared)?;
    if let (true, Some(guard)) = (is_metadata_count(request), &guard) {
        let n = trimmed(guard.count(), request);
        let counted = |rows: Option<u64>| {
            let mut stage = doc! { "stage": FAST_COUNT };
            stage.extend(
                rows.map(|rows| doc! { "nCounted": narrowed(rows), "nSkipped": 0 })
                    .unwrap_or_default(),
            );
            stage
        };
        let mut document = planner_section(&request.ns, Some(Document::new()), None, counted(None), Vec::new());
        if verbosity > Verbosity::QueryPlanner {
            document.insert(
                "executionStats",
                stats_section(Bson::Int32(0), &PlanRun::default(), (0, 0), counted(Some(n))),
            );
            add_all_plans(&mut document, Vec::new(), verbosity);
        }
        return Ok(document);
    }
    match plan_count(context, guard.as_ref(), request, Memory::Ignore)? {
        Some(mut planned) => explain_planned(context, &mut planned, Wrapper::Count, verbosity),
        None => Ok(missing(&request.ns, request.filter, verbosity)),
    }
}

fn explain_distinct(
    context: ExecContext<'_>,
    request: &DistinctRequest<'_>,
    verbosity: Verbosity,
) -> Result<Document, QueryError> {
    let guard = context.data().collection(&request.ns, LockMode::IntentShared)?;
    match plan_distinct(context, guard.as_ref(), request, Memory::Ignore)? {
        Some(mut planned) => explain_planned(context, &mut planned, Wrapper::None, verbosity),
        None => Ok(missing(&request.ns, request.filter, verbosity)),
    }
}

/// The explanation of a read of a collection that does not exist.
pub(crate) fn missing(ns: &Namespace, filter: &bson::RawDocument, verbosity: Verbosity) -> Document {
    let eof = doc! { "stage": "EOF" };
    let mut document = planner_section(ns, Some(to_document(filter)), None, eof.clone(), Vec::new());
    if verbosity > Verbosity::QueryPlanner {
        document.insert(
            "executionStats",
            stats_section(Bson::Int32(0), &PlanRun::default(), (0, 0), eof),
        );
        add_all_plans(&mut document, Vec::new(), verbosity);
    }
    document
}
