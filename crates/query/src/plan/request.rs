//! What a client asks for, as the command layer parsed it.
//!
//! Plain borrowed values: a request lives as long as the message it came in. Numbers have been checked for sign and
//! range by the command; filters, sorts and projections are parsed here.

use crate::QueryError;
use crate::limits::BlockingLimits;
use bson::{RawArray, RawDocument, RawDocumentBuf};
use std::sync::Arc;
use storage::Namespace;

/// The index a client wants used.
#[derive(Clone, Copy, Debug)]
pub enum Hint<'a> {
    /// By name.
    Name(&'a str),
    /// By key pattern, or `{$natural: 1}` / `{$natural: -1}`. An empty document is no hint.
    Key(&'a RawDocument),
}

/// `find`, and the selecting half of `update`, `delete` and `findAndModify`.
#[derive(Clone, Debug)]
pub struct FindRequest<'a> {
    /// Collection or view.
    pub ns: Namespace,
    /// The filter; empty matches everything.
    pub filter: &'a RawDocument,
    /// `{field: 1 | -1}` in order of weight; `{$natural: ±1}` for the stored order.
    pub sort: Option<&'a RawDocument>,
    /// The projection; empty is none.
    pub projection: Option<&'a RawDocument>,
    /// Results to leave out at the front.
    pub skip: u64,
    /// Most results; `None` is no limit (the wire's 0).
    pub limit: Option<u64>,
    /// The index to use.
    pub hint: Option<Hint<'a>>,
    /// Inclusive lower bound of the hinted index' keys.
    pub min: Option<&'a RawDocument>,
    /// Exclusive upper bound of the hinted index' keys.
    pub max: Option<&'a RawDocument>,
    /// `{locale: "simple"}` or none; others are not built.
    pub collation: Option<&'a RawDocument>,
    /// `let` variables for `$expr`.
    pub variables: Option<&'a RawDocument>,
    /// Further variables, with these very values: `c` of an update.
    pub constants: Option<&'a RawDocument>,
    /// Adds `$recordId` to each result.
    pub show_record_id: bool,
    /// Results are index keys instead of documents.
    pub return_key: bool,
    /// Stays open at the end of a capped collection.
    pub tailable: bool,
    /// A tailable cursor waits for data before it answers empty.
    pub await_data: bool,
    /// The results will be changed: each record is given at most once, however its index keys move meanwhile.
    pub for_write: bool,
    /// One result is all that is expected to be taken, whatever is found.
    pub takes_one: bool,
    /// What a sort may hold, and where it goes on beyond it.
    pub blocking: BlockingLimits,
}

impl<'a> FindRequest<'a> {
    /// Documents of `ns` that match `filter`, all of them, in any order.
    pub fn new(ns: Namespace, filter: &'a RawDocument) -> Self {
        Self {
            ns,
            filter,
            sort: None,
            projection: None,
            skip: 0,
            limit: None,
            hint: None,
            min: None,
            max: None,
            collation: None,
            variables: None,
            constants: None,
            show_record_id: false,
            return_key: false,
            tailable: false,
            await_data: false,
            for_write: false,
            takes_one: false,
            blocking: BlockingLimits::IN_MEMORY,
        }
    }
}

/// `aggregate`.
#[derive(Clone, Debug)]
pub struct AggregateRequest<'a> {
    /// Collection or view the pipeline reads; `None` for `aggregate: 1` (then the first stage makes its own documents).
    pub ns: Option<Namespace>,
    /// Database of the command.
    pub db: &'a str,
    /// The stages.
    pub pipeline: &'a RawArray,
    /// The index to use for what is pushed down.
    pub hint: Option<Hint<'a>>,
    /// As in [`FindRequest::collation`].
    pub collation: Option<&'a RawDocument>,
    /// `let` variables.
    pub variables: Option<&'a RawDocument>,
    /// What blocking stages may hold, and where they go on beyond it.
    pub blocking: BlockingLimits,
    /// Variables that scripts find in their scope: the `scope` of `mapReduce`.
    pub script_globals: Option<Arc<RawDocumentBuf>>,
}

impl<'a> AggregateRequest<'a> {
    /// A pipeline over a collection or view.
    pub fn new(ns: Namespace, db: &'a str, pipeline: &'a RawArray) -> Self {
        Self {
            ns: Some(ns),
            db,
            pipeline,
            hint: None,
            collation: None,
            variables: None,
            blocking: BlockingLimits::IN_MEMORY,
            script_globals: None,
        }
    }

    /// A pipeline that starts from a stage of its own (`aggregate: 1`).
    pub fn database(db: &'a str, pipeline: &'a RawArray) -> Self {
        Self {
            ns: None,
            db,
            pipeline,
            hint: None,
            collation: None,
            variables: None,
            blocking: BlockingLimits::IN_MEMORY,
            script_globals: None,
        }
    }
}

/// `count`.
#[derive(Clone, Debug)]
pub struct CountRequest<'a> {
    /// Collection or view.
    pub ns: Namespace,
    /// The filter; empty counts everything from metadata.
    pub filter: &'a RawDocument,
    /// Matches to leave out.
    pub skip: u64,
    /// Stop counting there; `None` is no limit.
    pub limit: Option<u64>,
    /// The index to use.
    pub hint: Option<Hint<'a>>,
    /// As in [`FindRequest::collation`].
    pub collation: Option<&'a RawDocument>,
    /// As in [`AggregateRequest::blocking`], for views.
    pub blocking: BlockingLimits,
}

impl<'a> CountRequest<'a> {
    /// How many documents match.
    pub fn new(ns: Namespace, filter: &'a RawDocument) -> Self {
        Self {
            ns,
            filter,
            skip: 0,
            limit: None,
            hint: None,
            collation: None,
            blocking: BlockingLimits::IN_MEMORY,
        }
    }
}

/// `distinct`.
#[derive(Clone, Debug)]
pub struct DistinctRequest<'a> {
    /// Collection or view.
    pub ns: Namespace,
    /// Dotted path of the values.
    pub key: &'a str,
    /// The filter.
    pub filter: &'a RawDocument,
    /// The index to use.
    pub hint: Option<Hint<'a>>,
    /// As in [`FindRequest::collation`].
    pub collation: Option<&'a RawDocument>,
    /// As in [`AggregateRequest::blocking`], for views.
    pub blocking: BlockingLimits,
}

impl<'a> DistinctRequest<'a> {
    /// The different values of `key` among the matching documents.
    pub fn new(ns: Namespace, key: &'a str, filter: &'a RawDocument) -> Self {
        Self {
            ns,
            key,
            filter,
            hint: None,
            collation: None,
            blocking: BlockingLimits::IN_MEMORY,
        }
    }
}

/// How much `explain` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Which plan is chosen; nothing runs.
    QueryPlanner,
    /// And what it does: it is run to its end.
    ExecutionStats,
    /// And what the other candidates would do.
    AllPlansExecution,
}

/// What a write does to the records it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Changes them.
    Update,
    /// Deletes them.
    Delete,
}

/// A write that is explained.
#[derive(Clone, Copy)]
pub struct ExplainedWrite<'a> {
    /// What it does to the records it finds.
    pub kind: WriteKind,
    /// It inserts a document where it finds none.
    pub is_upsert: bool,
    /// Of `findAndModify`: which document it answers, and what of it.
    pub answered: Option<(Answered, Option<&'a RawDocument>)>,
    /// Whether a document would not stay what it is.
    pub changes: Option<&'a WouldChange<'a>>,
    /// Scripts run with `changes`.
    pub runs_scripts: bool,
}

/// See [`ExplainedWrite::changes`].
pub type WouldChange<'a> = dyn Fn(&RawDocument) -> Result<bool, QueryError> + 'a;

/// The document that `findAndModify` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// As it was.
    Before,
    /// As it has become.
    After,
}

impl ExplainedWrite<'_> {
    /// One that changes or deletes what it finds, and answers no document.
    pub fn of(kind: WriteKind) -> Self {
        Self {
            kind,
            is_upsert: false,
            answered: None,
            changes: None,
            runs_scripts: false,
        }
    }
}

impl std::fmt::Debug for ExplainedWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExplainedWrite")
            .field("kind", &self.kind)
            .field("is_upsert", &self.is_upsert)
            .field("answered", &self.answered)
            .finish_non_exhaustive()
    }
}

/// The command that is explained. Writes are not carried out.
#[derive(Clone, Copy, Debug)]
pub enum ExplainRequest<'a> {
    /// `find`
    Find(&'a FindRequest<'a>),
    /// `aggregate`
    Aggregate(&'a AggregateRequest<'a>),
    /// `count`
    Count(&'a CountRequest<'a>),
    /// `distinct`
    Distinct(&'a DistinctRequest<'a>),
    /// `update`, `delete`, `findAndModify`: the records it would write to; a limit of 1 for one.
    Write(&'a FindRequest<'a>, ExplainedWrite<'a>),
}
