//! `aggregate`: the leading stages become a query plan, the rest runs on top of it.

use super::context::{ExecContext, ExecState};
use super::executor::{Body, PlanExecutor, Planned};
use super::explain::{PlanRun, run_all};
use super::find::{Memory, expression_context, plan};
use super::index_only::{covering_fields, first_of_each};
use super::pipeline::{PipelineRun, PlanSource, SourceFacts};
use super::sort_key::shown_sort;
use super::stage::{Flow, Ran, Stage};
use super::trial::RESULTS_MAX;
use super::view::{collation_of_view, makes_measurements};
use super::view_graph::check_views_read;
use crate::QueryError;
use crate::history::{self, Tail, is_virtual};
use crate::limits::BlockingLimits;
use crate::plan::query::{Order, Query, collation_of, parse_sort};
use crate::plan::request::Verbosity;
use crate::plan::request::{AggregateRequest, FindRequest, Hint};
use crate::stages::{
    self, CountOnly, ForeignRequest, IteratorSource, Pipeline, Pushdown, StageContext, StageReport, StageSpec,
    may_search,
};
use crate::timeseries::{index_key_of_buckets, index_key_shown_as};
use crate::value::SharedDocument;
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use collation::Collation;
use parking_lot::Mutex;
use std::sync::Arc;
use storage::{CollectionGuard, LockMode, Namespace};
use wire::ErrorCode;

/// Plans an aggregation. Views are resolved; a collection that does not exist is empty.
pub fn aggregate(context: &ExecContext<'_>, request: &AggregateRequest<'_>) -> Result<PlanExecutor, QueryError> {
    let ns = match &request.ns {
        Some(ns) => ns.clone(),
        None => Namespace::of_command(request.db, "aggregate")?,
    };
    if context.transaction.is_some() {
        stages::check_in_transaction(request.pipeline)?;
    }
    let (mut pipeline, base, collation) = parse(context, request)?;
    let db: Arc<str> = request.db.into();
    if pipeline.initial().is_some() {
        // A stage of the client's on a view is about the view, one of the view's about what that stands on.
        let of_view = |ns: &&Namespace| {
            let view = context.storage.catalog().view(ns);
            view.is_some_and(|view| view.pipeline().into_iter().next().is_some() && !makes_measurements(&view))
        };
        let subject = match request.ns.as_ref().filter(of_view) {
            Some(_) => base.as_ref(),
            None => request.ns.as_ref(),
        };
        if let Some(("$changeStream", _)) = pipeline.initial() {
            let (top, tail) = history::open(context, pipeline, request.ns.as_ref(), &db)?;
            return Ok(PlanExecutor::new(ns, following(top, db, tail, &request.blocking)));
        }
        let source = initial_source(context, &pipeline, subject, &db)?;
        pipeline.optimize();
        return Ok(PlanExecutor::new(
            ns,
            over(pipeline.run(source)?, db, Arc::default(), &request.blocking),
        ));
    }
    let Some(base) = base else {
        return Err(QueryError::new(
            ErrorCode::InvalidNamespace,
            "{aggregate: 1} is not valid for a pipeline whose first stage reads a collection",
        ));
    };
    if is_virtual(context.storage, &base) {
        let source = virtual_source(context, &base, &pipeline)?;
        return Ok(PlanExecutor::new(
            ns,
            over(pipeline.run(source)?, db, Arc::default(), &request.blocking),
        ));
    }
    let hinted = hinted_buckets(context, request);
    let hint = hinted.as_deref().map(Hint::Key).or(request.hint);
    let is_hinted = hint.is_some();
    let opening = Opening {
        base: &base,
        collation,
        hint,
        memory: Memory::Use,
        blocking: &request.blocking,
    };
    let body = match open(*context, opening, &mut pipeline)? {
        Opened::Nothing => over(
            pipeline.run(Box::new(IteratorSource::new(Vec::new())))?,
            db,
            Arc::default(),
            &request.blocking,
        ),
        Opened::Plan(planned, _) if pipeline.is_empty() => Body::Plan(planned),
        Opened::Plan(planned, count) => {
            let (source, facts, planned) = PlanSource::new(*planned)?;
            let top = match count {
                Some(count) => Box::new(CountSource {
                    is_hinted,
                    ..CountSource::new(planned, count)
                }),
                None => pipeline.run(Box::new(source))?,
            };
            over(top, db, facts, &request.blocking)
        }
    };
    Ok(PlanExecutor::new(ns, body))
}

/// The source under a pipeline that starts with an initial stage.
fn initial_source(
    context: &ExecContext<'_>,
    pipeline: &Pipeline,
    ns: Option<&Namespace>,
    db: &str,
) -> Result<Box<dyn stages::Stage>, QueryError> {
    let documents = match pipeline.initial() {
        // It makes its documents itself.
        None | Some(("$documents", _)) => Vec::new(),
        Some((name, specification)) => match context.sources {
            Some(sources) => shared(&sources.documents(name, specification, ns, db)?)?,
            None => return Err(QueryError::not_implemented(&format!("the stage {name}"))),
        },
    };
    Ok(Box::new(IteratorSource::new(documents)))
}

fn shared(documents: &[Document]) -> Result<Vec<SharedDocument>, QueryError> {
    let encode = |document: &Document| {
        let raw = RawDocumentBuf::try_from(document).map_err(|error| QueryError::bad_value(error.to_string()))?;
        Ok(SharedDocument::new(raw.into_bytes().into())?)
    };
    documents.iter().map(encode).collect()
}

fn over(top: Box<dyn stages::Stage>, db: Arc<str>, source: Arc<SourceFacts>, blocking: &BlockingLimits) -> Body {
    Body::Pipeline(Box::new(PipelineRun {
        top,
        db,
        source,
        tail: None,
        blocking: blocking.clone(),
    }))
}

/// A pipeline on top of the log's end.
fn following(top: Box<dyn stages::Stage>, db: Arc<str>, tail: Arc<Tail>, blocking: &BlockingLimits) -> Body {
    Body::Pipeline(Box::new(PipelineRun {
        top,
        db,
        source: Arc::default(),
        tail: Some(tail),
        blocking: blocking.clone(),
    }))
}

/// `find` on what is read but is no collection.
pub(crate) fn find_in_virtual(
    context: &ExecContext<'_>,
    request: &FindRequest<'_>,
) -> Result<PlanExecutor, QueryError> {
    let (source, tail) = history::source_of_find(context, request)?;
    let natural = request
        .sort
        .is_some_and(|sort| sort.get("$natural").is_ok_and(|order| order.is_some()));
    let over_source = FindRequest {
        sort: request.sort.filter(|_| !natural),
        tailable: false,
        ..request.clone()
    };
    let stages = super::view::find_pipeline(&over_source)?;
    let pipeline = Pipeline::parse(
        &stages,
        &expression_context(context, request.variables, collation_of(request.collation, None)?)?,
    )?;
    let (top, db) = (pipeline.run(source)?, request.ns.db().into());
    let body = match tail {
        Some(tail) => following(top, db, tail, &request.blocking),
        None => over(top, db, Arc::default(), &request.blocking),
    };
    Ok(PlanExecutor::new(request.ns.clone(), body))
}

/// What is no collection as a pipeline's source, from where the pipeline's first filter lets it begin.
fn virtual_source(
    context: &ExecContext<'_>,
    ns: &Namespace,
    pipeline: &Pipeline,
) -> Result<Box<dyn stages::Stage>, QueryError> {
    let all = RawDocumentBuf::new();
    let filter = match pipeline.stages().first() {
        Some(StageSpec::Match { filter, .. }) => filter,
        _ => &all,
    };
    history::source_of_pipeline(context, ns, filter)
}

/// A pipeline that can be run.
type Parsed = (Pipeline, Option<Namespace>, Option<Arc<Collation>>);

fn view_of(context: &ExecContext<'_>, request: &AggregateRequest<'_>) -> Option<Arc<storage::View>> {
    context.storage.catalog().view(request.ns.as_ref()?)
}

/// The collation of an aggregation: the one it asks for, or that of what it is on.
pub fn collation(
    context: &ExecContext<'_>,
    request: &AggregateRequest<'_>,
) -> Result<Option<Arc<Collation>>, QueryError> {
    if let Some(view) = view_of(context, request) {
        return collation_of_view(&view, request.collation);
    }
    // Whether the collection is there makes no difference to what a stream lets through.
    if history::begins_stream(request.pipeline) {
        return collation_of(request.collation, None);
    }
    let collection = request.ns.as_ref().and_then(|ns| context.definition(ns));
    let of_collection = collection.as_ref().and_then(|collection| collection.collation());
    collation_of(request.collation, of_collection)
}

/// The pipeline with those of the views it reads in front, the collection at the bottom, and the collation.
fn parse(context: &ExecContext<'_>, request: &AggregateRequest<'_>) -> Result<Parsed, QueryError> {
    let view = view_of(context, request);
    let collation = collation(context, request)?;
    check_views_read(
        context,
        request.db,
        request.ns.as_ref(),
        request.pipeline,
        collation.as_ref(),
    )?;
    let expressions = expression_context(context, request.variables, collation.clone())?
        .with_script_globals(request.script_globals.clone());
    let Some(ns) = &request.ns else {
        return Ok((Pipeline::parse(request.pipeline, &expressions)?, None, collation));
    };
    let (base, mut stages) = super::view::resolve(context.storage, ns)?;
    if stages.is_empty() {
        let pipeline = Pipeline::parse(request.pipeline, &expressions)?;
        if let Some(("$documents", _)) = pipeline.initial() {
            return Err(QueryError::new(
                ErrorCode::InvalidNamespace,
                "'$documents' can only be run with {aggregate: 1}",
            ));
        }
        return Ok((pipeline, Some(base), collation));
    }
    // Checked by itself first: errors speak of the client's stages.
    let own = Pipeline::parse(request.pipeline, &expressions)?;
    if let Some(("$changeStream", _)) = own.initial() {
        return Err(history::of_view(ns));
    }
    // What tells of a collection tells of the buckets, and of another view that it is one: whoever makes the documents
    // knows which.
    let is_of_buckets = view.is_some_and(|view| makes_measurements(&view));
    match own.initial() {
        Some((name, _)) if is_of_buckets && name != "$documents" => return Ok((own, Some(base), collation)),
        Some(("$collStats", _)) => return Ok((own, Some(ns.clone()), collation)),
        _ => {}
    }
    stages.extend(
        request
            .pipeline
            .into_iter()
            .flatten()
            .filter_map(|stage| stage.as_document().map(ToOwned::to_owned)),
    );
    let pipeline = Pipeline::parse_stages(&stages, &expressions.for_stored(), 0)?;
    Ok((pipeline, Some(base), collation))
}

/// The buckets' key pattern for one that is hinted at on a time-series collection.
fn hinted_buckets(context: &ExecContext<'_>, request: &AggregateRequest<'_>) -> Option<RawDocumentBuf> {
    let Some(Hint::Key(key)) = request.hint else {
        return None;
    };
    let buckets = context.storage.catalog().buckets(request.ns.as_ref()?)?;
    let options = buckets.timeseries()?;
    // A pattern that says nothing of measurements (`$natural`) stays what it is.
    match index_key_shown_as(&buckets, key, options) {
        Some(found) => Some(found.to_owned()),
        None => index_key_of_buckets(key, options).ok(),
    }
}

enum Opened {
    Nothing,
    /// A plan, and whether only the number of its rows counts.
    Plan(Box<Planned>, Option<CountOnly>),
}

/// How the collection at the bottom of a pipeline is read.
struct Opening<'o> {
    base: &'o Namespace,
    collation: Option<Arc<Collation>>,
    hint: Option<Hint<'o>>,
    memory: Memory,
    blocking: &'o BlockingLimits,
}

/// Plans the leading stages of a pipeline, which are taken off it.
fn open(context: ExecContext<'_>, opening: Opening<'_>, pipeline: &mut Pipeline) -> Result<Opened, QueryError> {
    pipeline.optimize();
    let pushdown = pipeline.take_pushdown();
    let Some(guard) = context.data().collection(opening.base, LockMode::IntentShared)? else {
        if pushdown.near.is_some_and(|near| near.output.is_some()) {
            return Err(QueryError::new(
                ErrorCode::NamespaceNotFound,
                format!(
                    "$geoNear requires a geo index to run, but {} does not exist",
                    opening.base
                ),
            ));
        }
        return Ok(Opened::Nothing);
    };
    let count = pushdown.count.clone();
    let planned = plan_pushdown(context, &guard, opening, pushdown)?;
    Ok(Opened::Plan(Box::new(planned), count))
}

fn plan_pushdown(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    opening: Opening<'_>,
    pushdown: Pushdown,
) -> Result<Planned, QueryError> {
    let covering = covering_fields(&context, guard, &pushdown)?;
    let (filter_document, matcher) = match pushdown.filter {
        Some((document, matcher)) => (
            document,
            Some(Arc::new(matcher)).filter(|matcher| !matcher.is_always_true()),
        ),
        None => (RawDocumentBuf::new(), None),
    };
    let order = pushdown
        .sort
        .as_ref()
        .map_or(Ok(Order::None), |pattern| parse_sort(pattern.document()))?;
    let sort = match &order {
        Order::Fields(fields) => Some(shown_sort(fields)),
        _ => None,
    };
    let needs_of_order = order.metadata_needs();
    let shown_fields = covering.as_ref().map(|covering| covering.source().to_owned());
    let first_by = pushdown.first_by.filter(|_| pushdown.near.is_none());
    let query = Query {
        filter: matcher,
        order: if pushdown.count.is_some() { Order::None } else { order },
        projection: None,
        covering,
        skip: pushdown.skip,
        limit: pushdown.limit,
        show_record_id: false,
        return_key: false,
        tailable: false,
        for_write: false,
        count_only: pushdown.count.is_some(),
        collation: opening.collation,
        blocking: opening.blocking.clone(),
        near: pushdown.near,
        needs: pushdown.needs.and(needs_of_order),
        runs_scripts: pushdown.runs_scripts,
    };
    let request = FindRequest {
        sort: sort.as_deref(),
        // A plan that reads keys alone is not the best one for whole documents.
        projection: shown_fields.as_deref(),
        skip: pushdown.skip,
        limit: pushdown.limit,
        hint: opening.hint,
        ..FindRequest::new(opening.base.clone(), &filter_document)
    };
    if let Some(key) = &first_by
        && let Some(stage) = first_of_each(&context, guard, &query, &request, key)?
    {
        return Ok(Planned::new(stage, query, guard.definition().clone()));
    }
    plan(context, guard, query, &request, opening.memory)
}

/// Opens another collection for a stage.
pub(crate) fn open_foreign(
    context: ExecContext<'_>,
    db: &str,
    blocking: &BlockingLimits,
    request: ForeignRequest<'_>,
) -> Result<Box<dyn stages::Stage>, QueryError> {
    let (base, mut stages) = match request.collection {
        None => (None, Vec::new()),
        Some(collection) => {
            let ns = Namespace::new(request.database.unwrap_or(db), collection)?;
            let (base, stages) = super::view::resolve(context.storage, &ns)?;
            (Some(base), stages)
        }
    };
    let own = stages.len();
    stages.extend(request.pipeline.iter().cloned());
    if let Some(filter) = request.filter {
        // In front of the stages of the request, but for one that must come first.
        let must_be_first = Pipeline::starts_with_source(&stages) || starts_with_search(&stages);
        let place = own + usize::from(own == 0 && must_be_first);
        stages.insert(place, bson::rawdoc! { "$match": filter });
    }
    // What is not the views' has been parsed when the stage was.
    let stored = (own > 0).then(|| request.context.clone().for_stored());
    let expressions = stored.as_ref().unwrap_or(request.context);
    let mut pipeline = Pipeline::parse_stages(&stages, expressions, request.depth)?;
    let Some(base) = base.filter(|_| pipeline.initial().is_none()) else {
        let ns = match request.collection {
            Some(collection) => Some(Namespace::new(request.database.unwrap_or(db), collection)?),
            None => None,
        };
        let source = initial_source(&context, &pipeline, ns.as_ref(), db)?;
        return pipeline.run(source);
    };
    if is_virtual(context.storage, &base) {
        let source = virtual_source(&context, &base, &pipeline)?;
        return pipeline.run(source);
    }
    let collation = request.context.collation.clone();
    let context = ExecContext {
        settings: request.context.settings(),
        ..context
    };
    let opening = Opening {
        base: &base,
        collation,
        hint: None,
        memory: Memory::Use,
        blocking,
    };
    match open(context, opening, &mut pipeline)? {
        Opened::Nothing => pipeline.run(Box::new(IteratorSource::new(Vec::new()))),
        Opened::Plan(planned, count) => {
            let (source, _, planned) = PlanSource::new(*planned)?;
            match count {
                Some(count) => Ok(Box::new(CountSource::new(planned, count))),
                None => pipeline.run(Box::new(source)),
            }
        }
    }
}

/// Whether the first of these stages searches for text.
fn starts_with_search(stages: &[RawDocumentBuf]) -> bool {
    let filter = stages.first().and_then(|stage| stage.get_document("$match").ok());
    filter.is_some_and(may_search)
}

/// A pipeline that only counts: gives one document.
struct CountSource {
    planned: Arc<Mutex<Planned>>,
    /// An index that the client names may be without some documents, which are not counted then.
    is_hinted: bool,
    count: CountOnly,
    /// Counted in the trial of a plan that was started anew.
    counted: u64,
    /// That is all there is to count.
    has_all: bool,
    done: bool,
}

impl CountSource {
    fn new(planned: Arc<Mutex<Planned>>, count: CountOnly) -> Self {
        Self {
            planned,
            is_hinted: false,
            count,
            counted: 0,
            has_all: false,
            done: false,
        }
    }
}

impl stages::Stage for CountSource {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(None);
        }
        let data = context.execution.data().ok_or_else(|| {
            QueryError::new(
                ErrorCode::InternalError,
                "a collection is read by an execution without storage",
            )
        })?;
        let mut planned = self.planned.lock();
        let mut n = std::mem::take(&mut self.counted);
        let counts_all = planned.query.filter.is_none() && planned.query.near.is_none() && !self.is_hinted;
        // The number in memory is that of the newest state.
        if counts_all && data.is_newest() {
            let left = planned.collection.count().saturating_sub(planned.query.skip);
            n = planned.query.limit.map_or(left, |limit| left.min(limit));
        } else if !std::mem::take(&mut self.has_all) {
            planned.run(ExecContext::of(data), None, u64::MAX, &mut |_| {
                n += 1;
                Ok(Flow::Continue)
            })?;
        }
        self.count.document(n)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        let Some(data) = context.execution.data() else {
            return Ok(false);
        };
        let (context, mut planned) = (ExecContext::of(data), self.planned.lock());
        self.done = false;
        self.counted = 0;
        self.has_all = false;
        if !planned.restart(context)? {
            return Ok(false);
        }
        let ran = planned.try_anew(context, RESULTS_MAX, &mut |_| {
            self.counted += 1;
            Ok(match self.counted {
                RESULTS_MAX.. => Flow::Stop,
                _ => Flow::Continue,
            })
        })?;
        self.has_all = ran == Some(Ran::Exhausted);
        Ok(ran.is_some())
    }
}

/// Runs an execution to its end.
pub(crate) fn run_to_end(
    executor: &mut PlanExecutor,
    context: &ExecContext<'_>,
    each: &mut dyn FnMut(&RawDocument) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    struct Each<'e> {
        each: &'e mut dyn FnMut(&RawDocument) -> Result<(), QueryError>,
        failed: Option<QueryError>,
    }
    impl super::DocumentSink for Each<'_> {
        fn push(&mut self, document: &RawDocument) -> super::SinkState {
            match (self.each)(document) {
                Ok(()) => super::SinkState::Continue,
                Err(error) => {
                    self.failed = Some(error);
                    super::SinkState::Full
                }
            }
        }
    }
    let mut sink = Each { each, failed: None };
    loop {
        let state = executor.next_documents(context, &mut sink)?;
        if let Some(error) = sink.failed.take() {
            return Err(error);
        }
        if state != ExecState::More {
            return Ok(());
        }
    }
}

/// The explanation of an aggregation: that of the plan alone when the plan does everything, else the list of stages.
pub(crate) fn explain(
    context: ExecContext<'_>,
    request: &AggregateRequest<'_>,
    verbosity: Verbosity,
) -> Result<Document, QueryError> {
    let (mut pipeline, base, collation) = parse(&context, request)?;
    let mut stages = Vec::new();
    let mut reports = Vec::new();
    let base = base.filter(|_| pipeline.initial().is_none());
    let documents = match base {
        None => pipeline.to_documents(),
        Some(base) => {
            let hinted = hinted_buckets(&context, request);
            let opening = Opening {
                base: &base,
                collation,
                hint: hinted.as_deref().map(Hint::Key).or(request.hint),
                memory: Memory::Ignore,
                blocking: &request.blocking,
            };
            let opened = open(context, opening, &mut pipeline)?;
            let documents = pipeline.to_documents();
            let mut cursor = match opened {
                Opened::Nothing => super::explain::missing(&base, &RawDocumentBuf::new(), verbosity),
                Opened::Plan(mut planned, None) if !documents.is_empty() => {
                    let mut pipeline = Some(pipeline);
                    let mut run = |context: ExecContext<'_>, planned: &mut Planned| match pipeline.take() {
                        Some(pipeline) => {
                            let (ran, of_stages) = run_observed(context, planned, pipeline, request)?;
                            reports = of_stages;
                            Ok(ran)
                        }
                        None => run_all(context, planned),
                    };
                    super::explain::explain_under_pipeline(context, &mut planned, verbosity, &mut run)?
                }
                Opened::Plan(mut planned, _) => {
                    super::explain::explain_under_pipeline(context, &mut planned, verbosity, &mut run_all)?
                }
            };
            if documents.is_empty() {
                return Ok(cursor);
            }
            cursor.remove("explainVersion");
            stages.push(doc! { "$cursor": cursor });
            documents
        }
    };
    stages.extend(documents.iter().map(|stage| super::describe::to_document(stage)));
    for (stage, report) in stages.iter_mut().zip(&reports) {
        let mut report = report.lock();
        stage.extend(std::mem::take(&mut report.statistics));
        stage.insert("nReturned", report.returned as i64);
        stage.insert("executionTimeMillisEstimate", report.time.as_millis() as i64);
    }
    Ok(doc! { "explainVersion": "1", "stages": stages })
}

/// A run of a plan, and what is known of it and of the stages on top.
type ObservedRun = (PlanRun, Vec<Arc<Mutex<StageReport>>>);

/// Runs a pipeline on top of a plan to its end.
fn run_observed(
    context: ExecContext<'_>,
    planned: &mut Planned,
    pipeline: Pipeline,
    request: &AggregateRequest<'_>,
) -> Result<ObservedRun, QueryError> {
    let nothing = Planned::new(Stage::Eof, planned.query.clone(), planned.collection.clone());
    let (source, facts, shared) = PlanSource::new(std::mem::replace(planned, nothing))?;
    let (source, of_source) = stages::observed(Box::new(source));
    let (top, mut reports) = pipeline.run_observed(source)?;
    let mut run = PipelineRun {
        top,
        db: request.db.into(),
        source: facts,
        tail: None,
        blocking: request.blocking.clone(),
    };
    run.run(context, &mut |_| Ok(Flow::Continue))?;
    drop(run);
    if let Some(shared) = Arc::into_inner(shared) {
        *planned = shared.into_inner();
    }
    let ran = {
        let report = of_source.lock();
        PlanRun::of(report.returned, report.time)
    };
    reports.insert(0, of_source);
    Ok((ran, reports))
}
