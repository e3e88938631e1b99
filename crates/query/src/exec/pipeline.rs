//! A pipeline on top of a plan, and what its stages ask of the world.

use super::context::ExecContext;
use super::executor::Planned;
use super::known::RowMetadata;
use super::stage::{Flow, Ran, Receiver};
use super::summary::PlanSummary;
use crate::QueryError;
use crate::data::DataSource;
use crate::evaluation::EvaluationContext;
use crate::history::{Tail, check_token};
use crate::limits::BlockingLimits;
use crate::stack::on_enough_stack;
use crate::stages::{self, DeepStage, ForeignRequest, StageContext};
use crate::value::{COPIED_BYTES, SharedDocument};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storage::{Namespace, StorageError};
use wire::ErrorCode;

/// Documents that a source reads ahead: in the first batch, and at most.
const FIRST_AHEAD: usize = 16;
const AHEAD_MAX: usize = 1024;
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// A running pipeline.
pub(crate) struct PipelineRun {
    pub(crate) top: Box<dyn stages::Stage>,
    /// Database of names that stages give without one.
    pub(crate) db: Arc<str>,
    pub(crate) source: Arc<SourceFacts>,
    /// Where the source follows the log.
    pub(crate) tail: Option<Arc<Tail>>,
    pub(crate) blocking: BlockingLimits,
}

/// What is known of a pipeline's source from outside.
#[derive(Default)]
pub(crate) struct SourceFacts {
    summary: PlanSummary,
    keys: AtomicU64,
    docs: AtomicU64,
    ended: AtomicBool,
}

impl PipelineRun {
    /// Pushes documents into `receive` until it says stop or there are no more.
    pub(crate) fn run(
        &mut self,
        context: ExecContext<'_>,
        receive: &mut dyn FnMut(&[u8]) -> Result<Flow, QueryError>,
    ) -> Result<Ran, QueryError> {
        let execution = PipelineExecution {
            context,
            db: &self.db,
            blocking: &self.blocking,
        };
        let evaluation = EvaluationContext::new(context.op).with_scripts(context.scripts);
        let mut stage_context = StageContext {
            execution: &execution,
            evaluation: &evaluation,
        };
        let go_on = |tail: &Tail| tail.go_on(context.op.clock().monotonic());
        self.tail.as_deref().into_iter().for_each(go_on);
        loop {
            evaluation.step()?;
            let Some(document) = self.top.next(&mut stage_context)? else {
                let Some(tail) = &self.tail else {
                    return Ok(Ran::Exhausted);
                };
                tail.return_given();
                return Ok(match tail.state().ended {
                    true => Ran::Exhausted,
                    false => Ran::CaughtUp,
                });
            };
            let given = self.tail.as_ref().and_then(|tail| tail.state().given);
            if let Some(given) = given {
                check_token(document.as_raw(), given)?;
            }
            if receive(document.as_raw().as_bytes())? == Flow::Stop {
                return Ok(Ran::Stopped);
            }
            // The next one may be refused, and what is given is that one then.
            if let Some(tail) = &self.tail {
                tail.return_given();
                go_on(tail);
            }
        }
    }

    pub(crate) fn plan_summary(&self) -> PlanSummary {
        self.source.summary.clone()
    }

    pub(crate) fn examined(&self) -> (u64, u64) {
        (
            self.source.keys.load(Ordering::Relaxed),
            self.source.docs.load(Ordering::Relaxed),
        )
    }
}

/// A plan as a source, what stays known of it, and the plan.
type OpenedPlan = (PlanSource, Arc<SourceFacts>, Arc<Mutex<Planned>>);

/// The documents of a plan as the source of a pipeline.
pub(crate) struct PlanSource {
    planned: Arc<Mutex<Planned>>,
    ahead: VecDeque<SharedDocument>,
    known: RowMetadata,
    ahead_max: usize,
    facts: Arc<SourceFacts>,
}

impl PlanSource {
    /// The source, and what stays known of it.
    pub(crate) fn new(planned: Planned) -> Result<OpenedPlan, QueryError> {
        let facts = Arc::new(SourceFacts {
            summary: planned.plan_summary(),
            ..SourceFacts::default()
        });
        let known = RowMetadata::new(&planned.query)?;
        let planned = Arc::new(Mutex::new(planned));
        let source = Self {
            planned: planned.clone(),
            ahead: VecDeque::new(),
            known,
            ahead_max: FIRST_AHEAD,
            facts: facts.clone(),
        };
        Ok((source, facts, planned))
    }

    /// Reads as many rows ahead as `run` of the plan gives, or so many. False where that tells that the plan is of no
    /// use.
    fn read_ahead(
        &mut self,
        context: ExecContext<'_>,
        rows_max: usize,
        run: impl FnOnce(&mut Planned, &mut Receiver<'_>) -> Result<Option<Ran>, QueryError>,
    ) -> Result<bool, QueryError> {
        let mut bytes = 0;
        let (ahead, known) = (&mut self.ahead, &mut self.known);
        let mut last = 0;
        let evaluation = EvaluationContext::new(context.op);
        let mut planned = self.planned.lock();
        let ran = run(&mut planned, &mut |row| {
            let document = row.document.to_bytes();
            // Documents of one page lie near each other; one that is alone may hold all of its page.
            let start = document.as_ptr().addr();
            bytes += match start.abs_diff(last) {
                0..COPIED_BYTES => document.len(),
                _ => document.len().max(COPIED_BYTES),
            };
            last = start;
            let metadata = known.of(&row, &evaluation)?;
            ahead.push_back(SharedDocument::new(document)?.with_metadata(metadata));
            Ok(if ahead.len() >= rows_max || bytes >= AHEAD_BYTES_MAX {
                Flow::Stop
            } else {
                Flow::Continue
            })
        })?;
        let (keys, docs) = planned.stage.totals();
        self.facts.keys.store(keys, Ordering::Relaxed);
        self.facts.docs.store(docs, Ordering::Relaxed);
        self.facts.ended.store(ran == Some(Ran::Exhausted), Ordering::Relaxed);
        Ok(ran.is_some())
    }
}

impl stages::Stage for PlanSource {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.ahead.is_empty() && !self.facts.ended.load(Ordering::Relaxed) {
            let data = context.execution.data().ok_or_else(|| {
                QueryError::new(
                    ErrorCode::InternalError,
                    "a collection is read by an execution without storage",
                )
            })?;
            let (context, rows_max) = (ExecContext::of(data), self.ahead_max);
            self.ahead_max = (rows_max * 4).min(AHEAD_MAX);
            self.read_ahead(context, rows_max, |planned, receive| {
                planned.run(context, None, rows_max as u64, receive).map(Some)
            })?;
        }
        Ok(self.ahead.pop_front())
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        let Some(data) = context.execution.data() else {
            return Ok(false);
        };
        self.ahead.clear();
        self.ahead_max = FIRST_AHEAD;
        self.facts.ended.store(false, Ordering::Relaxed);
        let context = ExecContext::of(data);
        if !self.planned.lock().restart(context)? {
            return Ok(false);
        }
        self.read_ahead(context, FIRST_AHEAD, |planned, receive| {
            planned.try_anew(context, FIRST_AHEAD as u64, receive)
        })
    }
}

/// What stages ask of the operation they run in.
pub(crate) struct PipelineExecution<'e> {
    pub(crate) context: ExecContext<'e>,
    pub(crate) db: &'e str,
    pub(crate) blocking: &'e BlockingLimits,
}

impl stages::Execution for PipelineExecution<'_> {
    fn check(&self) -> Result<(), QueryError> {
        self.context
            .op
            .check_now()
            .map_err(|interrupted| StorageError::from(interrupted).into())
    }

    fn open_foreign(&self, request: ForeignRequest<'_>) -> Result<Box<dyn stages::Stage>, QueryError> {
        // There may be nothing in what is opened, and no end of what opens it.
        self.check()?;
        let open = || super::aggregate::open_foreign(self.context, self.db, self.blocking, request);
        Ok(Box::new(DeepStage::new(on_enough_stack(open)?)))
    }

    fn open_join(&self, request: stages::JoinRequest<'_>) -> Result<Option<Box<dyn stages::EqualityJoin>>, QueryError> {
        let settings = request.context.settings();
        if let Some(settings) = settings.filter(|settings| !settings.hints.is_empty()) {
            let ns = Namespace::new(request.database.unwrap_or(self.db), request.collection)?;
            if settings.allowed(&ns).is_some() {
                // The planner knows what to keep to.
                return Ok(None);
            }
        }
        let join = super::join::CollectionJoin::new(self.context, self.db, &request)?;
        Ok(join.map(|join| Box::new(join) as Box<dyn stages::EqualityJoin>))
    }

    fn data(&self) -> Option<DataSource<'_>> {
        Some(self.context.data())
    }

    fn blocking(&self) -> &BlockingLimits {
        self.blocking
    }
}
