//! `aggregate`: the leading stages become a query plan, the rest runs on top of it.

use super::context::{ExecContext, ExecState};
use super::executor::{Body, PlanExecutor, Planned};
use super::find::{Memory, expression_context, plan};
use super::pipeline::{PipelineRun, PlanSource, SourceFacts};
use super::sort_key::sort_document;
use super::stage::Flow;
use super::view::collation_of_view;
use crate::QueryError;
use crate::history::{self, Tail, is_virtual};
use crate::plan::query::{Order, Query, collation_of, parse_sort};
use crate::plan::request::Verbosity;
use crate::plan::request::{AggregateRequest, FindRequest, Hint};
use crate::stages::{self, CountOnly, ForeignRequest, IteratorSource, Pipeline, Pushdown, StageContext, StageSpec};
use crate::value::SharedDocument;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
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
    let (mut pipeline, base, collation) = parse(context, request)?;
    let db: Arc<str> = request.db.into();
    if pipeline.initial().is_some() {
        // A stage of the client's on a view is about the view, one of the view's about what that stands on.
        let of_view = |ns: &&Namespace| {
            let view = context.storage.catalog().view(ns);
            view.is_some_and(|view| view.pipeline().into_iter().next().is_some())
        };
        let subject = match request.ns.as_ref().filter(of_view) {
            Some(_) => base.as_ref(),
            None => request.ns.as_ref(),
        };
        if let Some(("$changeStream", _)) = pipeline.initial() {
            let (top, tail) = history::open(context, pipeline, request.ns.as_ref(), &db)?;
            return Ok(PlanExecutor::new(ns, following(top, db, tail)));
        }
        let source = initial_source(context, &pipeline, subject, &db)?;
        pipeline.optimize();
        return Ok(PlanExecutor::new(ns, over(pipeline.run(source)?, db, Arc::default())));
    }
    let Some(base) = base else {
        return Err(QueryError::new(
            ErrorCode::InvalidNamespace,
            "{aggregate: 1} is not valid for a pipeline whose first stage reads a collection",
        ));
    };
    if is_virtual(context.storage, &base) {
        let source = virtual_source(context, &base, &pipeline)?;
        return Ok(PlanExecutor::new(ns, over(pipeline.run(source)?, db, Arc::default())));
    }
    let body = match open(*context, &base, &mut pipeline, collation, request.hint, Memory::Use)? {
        Opened::Nothing => over(
            pipeline.run(Box::new(IteratorSource::new(Vec::new())))?,
            db,
            Arc::default(),
        ),
        Opened::Plan(planned, _) if pipeline.is_empty() => Body::Plan(planned),
        Opened::Plan(planned, count) => {
            let (source, facts, planned) = PlanSource::new(*planned);
            let top = match count {
                Some(count) => Box::new(CountSource {
                    planned,
                    count: Some(count),
                }),
                None => pipeline.run(Box::new(source))?,
            };
            over(top, db, facts)
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

fn over(top: Box<dyn stages::Stage>, db: Arc<str>, source: Arc<SourceFacts>) -> Body {
    let tail = None;
    Body::Pipeline(Box::new(PipelineRun { top, db, source, tail }))
}

/// A pipeline on top of the log's end.
fn following(top: Box<dyn stages::Stage>, db: Arc<str>, tail: Arc<Tail>) -> Body {
    let (source, tail) = (Arc::default(), Some(tail));
    Body::Pipeline(Box::new(PipelineRun { top, db, source, tail }))
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
        Some(tail) => following(top, db, tail),
        None => over(top, db, Arc::default()),
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

/// The pipeline with those of the views it reads in front, the collection at the bottom, and the collation.
fn parse(context: &ExecContext<'_>, request: &AggregateRequest<'_>) -> Result<Parsed, QueryError> {
    let catalog = context.storage.catalog();
    let view = request.ns.as_ref().and_then(|ns| catalog.view(ns));
    let collation = match (&view, &request.ns) {
        (Some(view), _) => collation_of_view(view, request.collation)?,
        (None, Some(ns)) => {
            let collection = context.definition(ns);
            let of_collection = collection.as_ref().and_then(|collection| collection.collation());
            collation_of(request.collation, of_collection)?
        }
        (None, None) => collation_of(request.collation, None)?,
    };
    let expressions = expression_context(context, request.variables, collation.clone())?;
    let Some(ns) = &request.ns else {
        return Ok((Pipeline::parse(request.pipeline, &expressions)?, None, collation));
    };
    let (base, mut stages) = super::view::resolve(context.storage, ns)?;
    if stages.is_empty() {
        let pipeline = Pipeline::parse(request.pipeline, &expressions)?;
        return Ok((pipeline, Some(base), collation));
    }
    // Checked by itself first: errors speak of the client's stages.
    Pipeline::parse(request.pipeline, &expressions)?;
    stages.extend(
        request
            .pipeline
            .into_iter()
            .flatten()
            .filter_map(|stage| stage.as_document().map(ToOwned::to_owned)),
    );
    let pipeline = Pipeline::parse_stages(&stages, &expressions, 0)?;
    Ok((pipeline, Some(base), collation))
}

enum Opened {
    Nothing,
    /// A plan, and whether only the number of its rows counts.
    Plan(Box<Planned>, Option<CountOnly>),
}

/// Plans the leading stages of a pipeline, which are taken off it.
fn open(
    context: ExecContext<'_>,
    base: &Namespace,
    pipeline: &mut Pipeline,
    collation: Option<Arc<Collation>>,
    hint: Option<Hint<'_>>,
    memory: Memory,
) -> Result<Opened, QueryError> {
    pipeline.optimize();
    let pushdown = pipeline.take_pushdown();
    let Some(guard) = context.data().collection(base, LockMode::IntentShared)? else {
        return Ok(Opened::Nothing);
    };
    let count = pushdown.count.clone();
    let planned = plan_pushdown(context, &guard, base, (pushdown, collation), hint, memory)?;
    Ok(Opened::Plan(Box::new(planned), count))
}

fn plan_pushdown(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    base: &Namespace,
    (pushdown, collation): (Pushdown, Option<Arc<Collation>>),
    hint: Option<Hint<'_>>,
    memory: Memory,
) -> Result<Planned, QueryError> {
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
        Order::Fields(fields) => Some(sort_document(fields)),
        _ => None,
    };
    let query = Query {
        filter: matcher,
        order: if pushdown.count.is_some() { Order::None } else { order },
        projection: None,
        skip: pushdown.skip,
        limit: pushdown.limit,
        show_record_id: false,
        return_key: false,
        tailable: false,
        for_write: false,
        count_only: pushdown.count.is_some(),
        collation,
        near: pushdown.near,
    };
    let request = FindRequest {
        sort: sort.as_deref(),
        skip: pushdown.skip,
        limit: pushdown.limit,
        hint,
        ..FindRequest::new(base.clone(), &filter_document)
    };
    plan(context, guard, query, &request, memory)
}

/// Opens another collection for a stage.
pub(crate) fn open_foreign(
    context: ExecContext<'_>,
    db: &str,
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
        let place = own + usize::from(own == 0 && Pipeline::starts_with_source(&stages));
        stages.insert(place, bson::rawdoc! { "$match": filter });
    }
    let mut pipeline = Pipeline::parse_stages(&stages, request.context, request.depth)?;
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
    match open(context, &base, &mut pipeline, collation, None, Memory::Use)? {
        Opened::Nothing => pipeline.run(Box::new(IteratorSource::new(Vec::new()))),
        Opened::Plan(planned, count) => {
            let (source, _, planned) = PlanSource::new(*planned);
            match count {
                Some(count) => Ok(Box::new(CountSource {
                    planned,
                    count: Some(count),
                })),
                None => pipeline.run(Box::new(source)),
            }
        }
    }
}

/// A pipeline that only counts: gives one document.
struct CountSource {
    planned: Arc<Mutex<Planned>>,
    count: Option<CountOnly>,
}

impl stages::Stage for CountSource {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let Some(count) = self.count.take() else {
            return Ok(None);
        };
        let data = context.execution.data().ok_or_else(|| {
            QueryError::new(
                ErrorCode::InternalError,
                "a collection is read by an execution without storage",
            )
        })?;
        let mut planned = self.planned.lock();
        let mut n = 0;
        // The number in memory is that of the newest state.
        if planned.query.filter.is_none() && data.is_newest() {
            let left = planned.collection.count().saturating_sub(planned.query.skip);
            n = planned.query.limit.map_or(left, |limit| left.min(limit));
        } else {
            planned.run(ExecContext::of(data), None, &mut |_| {
                n += 1;
                Ok(Flow::Continue)
            })?;
        }
        count.document(n)
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
    if let Some(base) = base.filter(|_| pipeline.initial().is_none()) {
        let opened = open(context, &base, &mut pipeline, collation, request.hint, Memory::Ignore)?;
        let document = match opened {
            Opened::Nothing => super::explain::missing(&base, &RawDocumentBuf::new(), verbosity),
            Opened::Plan(mut planned, ..) => super::explain::explain_planned_plain(context, &mut planned, verbosity)?,
        };
        if pipeline.is_empty() {
            return Ok(document);
        }
        let mut cursor = document;
        cursor.remove("explainVersion");
        stages.push(Bson::from(doc! { "$cursor": cursor }));
    }
    stages.extend(
        pipeline
            .to_documents()
            .iter()
            .map(|stage| Bson::from(super::describe::to_document(stage))),
    );
    Ok(doc! { "explainVersion": "1", "stages": stages })
}
