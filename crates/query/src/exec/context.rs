//! What an execution is given by its caller, and what one run of it shares among its stages.

use crate::QueryError;
use crate::data::DataSource;
use crate::evaluation::EvaluationContext;
use crate::plan::query_settings::QuerySettings;
use crate::scripts::OperationScripts;
use bson::{Document, RawDocument};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;
use storage::{Collection, Namespace, Operation, PinnedView, ReadView, Storage, Transaction};

/// The surroundings of one call into an execution.
#[derive(Clone, Copy)]
pub struct ExecContext<'a> {
    /// The data.
    pub storage: &'a Arc<Storage>,
    /// Deadline, kill flag and counters of the client's operation.
    pub op: &'a Arc<Operation>,
    /// The transaction that the operation is a statement of.
    pub transaction: Option<&'a RefCell<Transaction>>,
    /// The state to be read, where it is not the newest one.
    pub pinned: Option<&'a PinnedView>,
    /// Where the documents of initial stages come from; `None` knows no such stage.
    pub sources: Option<&'a dyn InitialSources>,
    /// What the operator has said of queries of this shape.
    pub settings: Option<&'a Arc<QuerySettings>>,
    /// What scripts run in, where several executions, or several calls into one, are one operation.
    pub scripts: Option<&'a OperationScripts>,
}

impl<'a> ExecContext<'a> {
    /// One that knows no initial stages.
    pub(crate) fn of(data: DataSource<'a>) -> Self {
        Self {
            storage: data.storage,
            op: data.op,
            transaction: data.transaction,
            pinned: data.pinned,
            sources: None,
            settings: None,
            scripts: data.scripts,
        }
    }

    /// A collection as it is defined now, for the transaction if there is one.
    pub fn definition(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        let transaction = self.transaction.map(RefCell::borrow);
        let own = transaction.and_then(|transaction| transaction.created(ns).cloned());
        own.or_else(|| self.storage.catalog().collection(ns))
    }

    /// What is read.
    pub fn data(&self) -> DataSource<'a> {
        DataSource {
            storage: self.storage,
            op: self.op,
            transaction: self.transaction,
            pinned: self.pinned,
            scripts: self.scripts,
        }
    }
}

/// The initial stages that only the layer above can serve (`$collStats`, `$indexStats`, `$currentOp` …), at the front
/// of the client's pipeline or of one inside it.
pub trait InitialSources {
    /// The documents of `stage`, whose argument is in `specification` (as `{"": x}` when it is no document), run on a
    /// collection or, with `None`, on the database.
    fn documents(
        &self,
        stage: &str,
        specification: &RawDocument,
        ns: Option<&Namespace>,
        db: &str,
    ) -> Result<Vec<Document>, QueryError>;
}

/// What a call left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecState {
    /// There may be more results.
    More,
    /// A tailable cursor has given everything there is; it stays open for what comes.
    CaughtUp,
    /// There are no more results: close the cursor.
    Exhausted,
}

/// A sink's answer to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// Taken; go on.
    Continue,
    /// Taken; stop here.
    Full,
    /// Not taken, because it does not fit any more: stop here and give it again in the next call.
    Refused,
}

/// Where results go: the command layer copies them straight into the reply.
pub trait DocumentSink {
    /// Takes a document, which is only borrowed for the call.
    fn push(&mut self, document: &RawDocument) -> SinkState;

    /// How many it takes until it is full, if they are small.
    fn wanted(&self) -> u64 {
        u64::MAX
    }
}

impl DocumentSink for Vec<bson::RawDocumentBuf> {
    fn push(&mut self, document: &RawDocument) -> SinkState {
        Vec::push(self, document.to_owned());
        SinkState::Continue
    }
}

/// Rows looked at between two yields.
const ROWS_PER_YIELD: u32 = 10_000;
/// Time between two yields; checked every [`ROWS_PER_CLOCK_READ`] rows, with scripts at each.
const YIELD_EVERY: Duration = Duration::from_millis(10);
const ROWS_PER_CLOCK_READ: u32 = 128;

/// What the stages of one run share: one view of the data, until the run yields.
pub(crate) struct Run<'a> {
    pub(crate) context: ExecContext<'a>,
    pub(crate) view: &'a ReadView,
    pub(crate) collection: &'a Collection,
    /// What evaluations are bounded by: the same for all runs of one call.
    pub(crate) evaluation: &'a EvaluationContext<'a>,
    /// Rows still to be looked at before a yield; trials use it as the budget of one turn.
    rows_left: Cell<u32>,
    rows_per_clock_read: u32,
    /// A yield is due.
    due: Cell<bool>,
    started: Duration,
    wanted: Cell<u64>,
}

impl<'a> Run<'a> {
    /// A run that yields as long calls do. Its caller takes as many rows as there are.
    pub(crate) fn new(
        context: ExecContext<'a>,
        view: &'a ReadView,
        collection: &'a Collection,
        evaluation: &'a EvaluationContext<'a>,
    ) -> Self {
        let started = context.op.clock().monotonic();
        Self {
            context,
            view,
            collection,
            evaluation,
            rows_left: Cell::new(ROWS_PER_YIELD),
            rows_per_clock_read: ROWS_PER_CLOCK_READ,
            due: Cell::new(false),
            started,
            wanted: Cell::new(u64::MAX),
        }
    }

    /// The same, yielding after it has looked at so many rows.
    pub(crate) fn looking_at(mut self, rows: u32) -> Self {
        self.rows_left = Cell::new(rows);
        self
    }

    /// The same for a caller that takes so many rows.
    pub(crate) fn giving(mut self, rows: u64) -> Self {
        self.wanted = Cell::new(rows);
        self
    }

    /// The same, for rows that may take long each.
    pub(crate) fn of_slow_rows(self) -> Self {
        Self {
            rows_per_clock_read: 1,
            ..self
        }
    }

    /// Called by leaves for each row looked at. True: stop and report [`super::stage::Ran::Yield`].
    pub(crate) fn tick(&self) -> Result<bool, QueryError> {
        let left = self.rows_left.get().saturating_sub(1);
        self.rows_left.set(left);
        if !left.is_multiple_of(self.rows_per_clock_read) {
            return Ok(false);
        }
        self.context.op.check_now().map_err(storage::StorageError::from)?;
        let due = left == 0 || self.context.op.clock().monotonic().saturating_sub(self.started) >= YIELD_EVERY;
        self.due.set(due);
        Ok(due)
    }

    /// What [`Run::tick`] answered last, where it looked: for stages above leaves that were stopped at that row.
    pub(crate) fn is_due(&self) -> bool {
        self.due.get()
    }

    /// How many rows will be looked at before a yield, the one that was ticked for last among them, whatever the clock
    /// says.
    pub(crate) fn rows_until_yield_check(&self) -> u64 {
        let left = self.rows_left.get();
        if self.due.get() || left == 0 {
            return 1;
        }
        1 + match left % self.rows_per_clock_read {
            0 => u64::from(self.rows_per_clock_read.min(left)),
            rest => u64::from(rest),
        }
    }

    /// How many rows the stage that runs is to give before it is told to stop, or more where rows are dropped above it.
    /// That is as of the beginning of its run: what it gives meanwhile does not change it.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.get()
    }

    /// Runs a stage below, which is to give so many rows.
    pub(crate) fn wanting<T>(&self, rows: u64, below: impl FnOnce() -> T) -> T {
        let above = self.wanted.replace(rows);
        let result = below();
        self.wanted.set(above);
        result
    }

    /// Rows of the budget that are left.
    pub(crate) fn rows_left(&self) -> u32 {
        self.rows_left.get()
    }
}
