//! Change streams: `$changeStream` at the front of a pipeline.

use super::event::{COMPLETED_FIELDS, Event, add_images, complete, events, key_of};
use super::options::{Options, Scope, Start};
use super::split::SplitStage;
use super::token::{Place, ResumeToken};
use super::{Tail, history_error};
use crate::QueryError;
use crate::data::DataSource;
use crate::exec::ExecContext;
use crate::expression::Dependencies;
use crate::matcher::{MatchExpr, Matcher};
use crate::plan::FindRequest;
use crate::raw::describe_whole;
use crate::stages::{Pipeline, SPLIT_LARGE_EVENT as SPLIT, Stage, StageContext, StageSpec};
use crate::value::SharedDocument;
use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf};
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{ClusterTime, HistoryExtent, HistoryOperation, HistoryReader, HistoryUnit, Namespace, Storage};
use wire::ErrorCode;

/// What may follow `$changeStream`.
const STAGES: &[&str] = &[
    "$changeStream",
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$replaceRoot",
    "$replaceWith",
    "$redact",
    SPLIT,
];

/// The source of events.
struct StreamSource {
    reader: HistoryReader,
    scope: Scope,
    options: Options,
    /// The first stage, where parts of it ask nothing of the images: those are made for what these let through.
    filter: Option<Filter>,
    /// How many operations were looked at: now and then it is asked whether to go on.
    looked_at: u32,
    /// Nothing earlier is given.
    from: ClusterTime,
    /// Nothing up to this place of the first unit is given.
    after: Option<Place>,
    /// The token of the beginning, and its operation in its unit, until that is there to be looked at.
    unchecked: Option<(ResumeToken, usize)>,
    unit: Option<(Arc<HistoryUnit>, usize)>,
    /// Each with the operation that it is about.
    ready: VecDeque<(Event, Arc<HistoryUnit>, usize)>,
    tail: Arc<Tail>,
}

/// What is asked of events before they are made in full.
struct Filter {
    matcher: Matcher,
    /// It asks for what [`complete`] adds.
    of_complete: bool,
    /// What is asked of those that it lets through when they have been made.
    behind: Option<Matcher>,
}

/// Puts a pipeline that begins with `$changeStream` on top of the log: the top, and what is told of its place.
///
/// Errors: what is wrong with the options; 40573 where the log is no history; 286 and 280 where the stream cannot go
/// on.
pub(crate) fn open(
    context: &ExecContext<'_>,
    mut pipeline: Pipeline,
    ns: Option<&Namespace>,
    db: &str,
) -> Result<(Box<dyn Stage>, Arc<Tail>), QueryError> {
    let refused = |code, text: &str| Err(QueryError::new(code, text));
    let storage = context.storage;
    if !storage.keeps_history() {
        return refused(
            ErrorCode(40573),
            "The $changeStream stage is only supported on replica sets",
        );
    }
    if let Some(view) = ns.filter(|ns| storage.catalog().view(ns).is_some()) {
        return Err(of_view(view));
    }
    let splits = check_stages(&mut pipeline)?;
    let Some((_, specification)) = pipeline.initial() else {
        return refused(ErrorCode::InternalError, "the first stage is $changeStream");
    };
    let options = Options::parse(specification)?;
    let scope = Scope::of(ns, db, &options)?;
    let tail = Arc::new(Tail::default());
    let mut source = StreamSource::start(storage, scope, options, tail.clone())?;
    source.filter = take_filter(&mut pipeline);
    let fragment = match source.options.start {
        Start::After(token) => Some(token).filter(|token| matches!(token.place, Place::At { fragment: 1.., .. })),
        _ => None,
    };
    if fragment.is_some() && !splits {
        return refused(
            ErrorCode::ChangeStreamFatalError,
            "cannot resume stream; the resume token is that of a split event, and the pipeline does not split events",
        );
    }
    let top = pipeline.run(Box::new(source))?;
    match splits {
        true => Ok((Box::new(SplitStage::new(top, tail.clone(), fragment)), tail)),
        false => Ok((top, tail)),
    }
}

/// The error of a stream that is asked for on a view.
pub(crate) fn of_view(view: &Namespace) -> QueryError {
    QueryError::new(
        ErrorCode::CommandNotSupportedOnView,
        format!("Namespace {view} is a view, not a collection"),
    )
}

/// Refuses stages that no stream may have, and takes the one that splits events off the end.
fn check_stages(pipeline: &mut Pipeline) -> Result<bool, QueryError> {
    let stages = pipeline.stages();
    for (place, stage) in stages.iter().enumerate() {
        let name = stage.name();
        if !STAGES.contains(&name) {
            return Err(QueryError::new(
                ErrorCode::IllegalOperation,
                format!("{name} is not permitted in a $changeStream pipeline"),
            ));
        }
        if name == SPLIT && place + 1 < stages.len() {
            return Err(QueryError::new(
                ErrorCode(7182802),
                format!("{SPLIT} must be the last stage in the pipeline"),
            ));
        }
    }
    let splits = stages.last().is_some_and(|stage| stage.name() == SPLIT);
    if splits {
        pipeline.pop();
    }
    Ok(splits)
}

/// Takes the filter behind `$changeStream` off, unless all of it looks at images, which come later.
fn take_filter(pipeline: &mut Pipeline) -> Option<Filter> {
    let Some(StageSpec::Match { matcher, .. }) = pipeline.stages().get(1) else {
        return None;
    };
    let (mut ahead, mut behind, mut of_complete) = (Vec::new(), Vec::new(), false);
    for part in matcher.root().conjuncts() {
        let mut dependencies = Dependencies::default();
        part.add_dependencies(&mut dependencies);
        let asks = |field: &str| dependencies.paths.iter().any(|path| path.starts_with(field));
        if dependencies.whole_document || asks("fullDocument") {
            behind.push(part.clone());
        } else {
            of_complete |= COMPLETED_FIELDS.iter().any(|field| asks(field));
            ahead.push(part.clone());
        }
    }
    if ahead.is_empty() {
        return None;
    }
    let whole = pipeline.take_match_at(1)?;
    let matcher_of = |parts: Vec<MatchExpr>| Matcher::from_expr(MatchExpr::and(parts), whole.collator().cloned());
    Some(Filter {
        matcher: matcher_of(ahead),
        of_complete,
        behind: (!behind.is_empty()).then(|| matcher_of(behind)),
    })
}

impl StreamSource {
    fn start(storage: &Arc<Storage>, scope: Scope, options: Options, tail: Arc<Tail>) -> Result<Self, QueryError> {
        let (mut from, mut after) = (ClusterTime::default(), None);
        let seq = match options.start {
            Start::Now => storage.last_seq().next(),
            Start::At(time) => {
                from = time;
                storage.history_position(time).map_err(history_error)?
            }
            Start::After(token) => {
                (from, after) = match token.place {
                    Place::Before => (token.time, None),
                    Place::Behind => (ClusterTime(token.time.0.saturating_add(1)), None),
                    at @ Place::At { .. } => (token.time, Some(at)),
                };
                storage.history_position(from).map_err(history_error)?
            }
        };
        let start = match options.start {
            Start::Now => ResumeToken::behind(storage.applied().time),
            Start::At(time) => ResumeToken::before(time),
            Start::After(token) => token,
        };
        tail.change(|state| (state.given, state.returned) = (Some(start), Some(start)));
        let mut source = Self {
            reader: storage.history(seq, HistoryExtent::Durable),
            scope,
            options,
            filter: None,
            looked_at: 0,
            from,
            after,
            unchecked: None,
            unit: None,
            ready: VecDeque::new(),
            tail,
        };
        if let Some(Place::At { operation, .. }) = after {
            let shown = storage.applied().time;
            // The token's event has been on disk.
            let mut reader = storage.history(source.reader.position(), HistoryExtent::Applied);
            // A member that catches up shows units before it when the position was that behind all it had.
            let unit = loop {
                match reader.next_unit().map_err(history_error)? {
                    Some(unit) if unit.time < start.time => {}
                    unit => break unit,
                }
            };
            match unit {
                // Another member gave it, and this one does not show it yet.
                None if shown < start.time => source.unchecked = Some((start, operation as usize)),
                unit => source.check(unit.as_deref(), start, operation as usize)?,
            }
        }
        source.reader.rest();
        Ok(source)
    }

    /// Checks that the event of a token is one that this stream gave: `unit` is the first that is not before it.
    fn check(&self, unit: Option<&HistoryUnit>, token: ResumeToken, operation: usize) -> Result<(), QueryError> {
        let is_own = unit.filter(|unit| unit.time == token.time).is_some_and(|unit| {
            let given = |operation| events(unit, operation, &self.scope, &self.options);
            operation < unit.operations.len() && given(operation).is_ok_and(|events| !events.is_empty())
        });
        match is_own {
            true => Ok(()),
            false => Err(QueryError::new(
                ErrorCode::ChangeStreamFatalError,
                format!(
                    "cannot resume stream; the resume token was not found. {}",
                    shown(&token.to_document())
                ),
            )),
        }
    }

    /// Whether the client has an event already.
    fn is_given(&self, event: &Event) -> bool {
        match (self.after, event.token.place) {
            // Given in fragments: the rest of them is still to come.
            (
                Some(Place::At {
                    operation,
                    is_invalidation,
                    fragment: 1..,
                }),
                Place::At {
                    operation: o,
                    is_invalidation: i,
                    ..
                },
            ) => (o, i) < (operation, is_invalidation),
            (Some(after), place) => place <= after,
            (None, _) => false,
        }
    }

    /// Makes the events of the next operation ready. False when there is none for now.
    fn advance(&mut self) -> Result<bool, QueryError> {
        if self.unit.is_none() {
            let Some(unit) = self.reader.next_unit().map_err(history_error)? else {
                return Ok(false);
            };
            if unit.time < self.from {
                return Ok(true);
            }
            if let Some((token, operation)) = self.unchecked.take() {
                self.check(Some(&unit), token, operation)?;
            }
            if unit.time > self.from {
                self.after = None;
            }
            self.unit = Some((unit, 0));
        }
        let Some((unit, place)) = &mut self.unit else {
            return Ok(true);
        };
        let (unit, operation) = (unit.clone(), *place);
        *place += 1;
        if *place == unit.operations.len() {
            self.unit = None;
        }
        let made = events(&unit, operation, &self.scope, &self.options)?;
        for event in made {
            if !self.is_given(&event) {
                self.ready.push_back((event, unit.clone(), operation));
            }
        }
        if self.unit.is_none() && self.ready.is_empty() {
            let behind = ResumeToken::behind(unit.time);
            self.tail.change(|state| state.given = Some(behind));
        }
        Ok(true)
    }

    /// The document of an event in full; `None` where the filter does not let it through.
    fn make(
        &self,
        mut event: Event,
        (unit, place): (&HistoryUnit, usize),
        context: &mut StageContext<'_>,
    ) -> Result<Option<RawDocumentBuf>, QueryError> {
        let of_complete = self.filter.as_ref().is_some_and(|filter| filter.of_complete);
        if of_complete && !event.is_invalidation {
            complete(&mut event, unit, place, &self.options)?;
        }
        if let Some(filter) = &self.filter
            && !filter
                .matcher
                .matches(&SharedDocument::copy_of(&event.document), context.evaluation)?
        {
            return Ok(None);
        }
        if !event.is_invalidation {
            if !of_complete {
                complete(&mut event, unit, place, &self.options)?;
            }
            let has_images = context.execution.data().is_none_or(|data| {
                let age_ms = data.op.clock().now_ms().saturating_sub(event.wall_ms);
                data.storage.has_pre_images(age_ms)
            });
            let operation = &unit.operations[place];
            let look_up = || look_up(context, operation);
            add_images(&mut event, operation, has_images, &self.options, look_up)?;
        }
        if let Some(behind) = self.filter.as_ref().and_then(|filter| filter.behind.as_ref())
            && !behind.matches(&event.document, context.evaluation)?
        {
            return Ok(None);
        }
        Ok(Some(event.document))
    }
}

/// The newest version of a document, if there is one where the event was.
fn look_up(context: &StageContext<'_>, operation: &HistoryOperation) -> Result<Option<RawDocumentBuf>, QueryError> {
    let (Some(data), Some(uuid)) = (context.execution.data(), operation.uuid) else {
        return Ok(None);
    };
    let Some(collection) = data.storage.catalog().collection_by_uuid(&uuid) else {
        return Ok(None);
    };
    let ns = collection.namespace().clone();
    // Who may follow one database may not read another one.
    if operation.ns.as_ref().is_none_or(|of| of.db() != ns.db()) {
        return Ok(None);
    }
    let key = key_of(&operation.change)?;
    let context = ExecContext::of(data);
    let mut found: Vec<RawDocumentBuf> = Vec::new();
    crate::exec::find(&context, &FindRequest::new(ns, &key))?.next_documents(&context, &mut found)?;
    Ok(found.pop())
}

impl Stage for StreamSource {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let data = context.execution.data();
        loop {
            if self.tail.state().ended {
                return Ok(None);
            }
            if let Some((event, unit, place)) = self.ready.pop_front() {
                let (token, ends) = (event.token, event.is_invalidation);
                let document = self.make(event, (&unit, place), context)?;
                self.tail.change(|state| {
                    state.given = Some(token);
                    state.ended = ends;
                });
                match document {
                    Some(document) => return Ok(Some(SharedDocument::new(document.into_bytes().into())?)),
                    None => continue,
                }
            }
            self.looked_at = self.looked_at.wrapping_add(1);
            let is_time_to_ask = self.looked_at.is_multiple_of(64);
            if is_time_to_ask {
                context.execution.check()?;
            }
            if !self.advance()? {
                let seen = self.reader.looked_up_to();
                self.tail.change(|state| state.seen = seen);
                self.reader.rest();
                return Ok(None);
            }
            let is_over = |data: DataSource<'_>| data.op.clock().monotonic() >= self.tail.state().give_up_at;
            if is_time_to_ask && data.is_some_and(is_over) {
                // Of a long unit the rest is still to be looked at: whoever waits is not to wait for what is behind it.
                let has_rest = self.unit.is_some() || !self.ready.is_empty();
                let seen = self.reader.position().0.saturating_sub(1 + u64::from(has_rest));
                let seen = engine::Seq(seen);
                self.tail.change(|state| state.seen = seen);
                return Ok(None);
            }
        }
    }
}

/// An event that a pipeline has made unfit to go on from: 280.
pub(crate) fn check_token(document: &RawDocument, given: ResumeToken) -> Result<(), QueryError> {
    let expected = given.to_document();
    let found = document.get("_id").ok().flatten();
    if found.and_then(|id| id.as_document()) == Some(&*expected) {
        return Ok(());
    }
    Err(QueryError::new(
        ErrorCode::ChangeStreamFatalError,
        format!(
            "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. Modifying the _id field of an event makes it impossible to resume the stream from that point. Only transformations that retain the unmodified _id field are allowed. Expected: {{ _id: {} }} but found: {}",
            shown(&expected),
            found.map_or_else(
                || "{}".to_owned(),
                |found| format!("{{ _id: {} }}", describe_whole(found))
            ),
        ),
    ))
}

fn shown(token: &RawDocument) -> String {
    describe_whole(RawBsonRef::Document(token))
}
