//! What is read but is no collection: the log, as `local.oplog.rs` and as change streams, and capped collections in
//! memory.
//!
//! All are sources of pipelines, those of the log over a [`storage::HistoryReader`]. At its end such a source gives
//! nothing *for now*: the pipeline rests, its cursor stays open, and whoever fetches from it waits for more ([`Tail`]).

mod event;
mod local;
mod oplog;
mod options;
mod split;
mod stream;
mod token;
mod update_description;

pub use oplog::is_oplog;
pub(crate) use stream::{check_token, of_view, open};
pub use token::ResumeToken;

use crate::QueryError;
use crate::exec::ExecContext;
use crate::plan::{FindRequest, Hint};
use crate::stages::Stage;
use bson::raw::RawBsonRef;
use bson::{RawArray, RawDocument};
use engine::Seq;
use local::LocalSource;
use oplog::OplogSource;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use storage::{CappedWaiter, Namespace, Storage, StorageError};
use vfs::{Await, Waker};
use wire::ErrorCode;

/// A stream that meets nothing gives up the word after so much time, whichever of its stages finds that nothing fits:
/// its client is told how far it has come.
const SEARCH_SLICE: Duration = Duration::from_millis(100);

/// Whether a namespace is read, but is no collection.
pub(crate) fn is_virtual(storage: &Storage, ns: &Namespace) -> bool {
    is_oplog(storage, ns) || storage.local_capped(ns).is_some()
}

/// Whether a pipeline is that of a change stream.
pub(crate) fn begins_stream(pipeline: &RawArray) -> bool {
    let first = pipeline.into_iter().next().and_then(Result::ok);
    let name = first.and_then(|stage| stage.as_document()?.into_iter().next()?.ok());
    name.is_some_and(|(name, _)| name == "$changeStream")
}

/// A source and, of what is followed, its place.
type Source = (Box<dyn Stage>, Option<Arc<Tail>>);

/// What `find` and its like read there: all that the filter may let through, in the order that is asked for.
pub(crate) fn source_of_find(context: &ExecContext<'_>, request: &FindRequest<'_>) -> Result<Source, QueryError> {
    let backward = is_read_backward(request);
    if let Some(local) = context.storage.local_capped(&request.ns) {
        let tail = request.tailable.then(|| Arc::new(Tail::of_local(local.waiter())));
        let source = LocalSource::new(local, backward, tail.clone());
        return Ok((Box::new(source), tail));
    }
    let tail = request.tailable.then(|| Arc::new(Tail::default()));
    let source = OplogSource::new(context.storage, request.filter, backward, tail.clone())?;
    Ok((Box::new(source), tail))
}

/// Whether what is no collection is read from its end.
pub(crate) fn is_read_backward(request: &FindRequest<'_>) -> bool {
    let by_hint = matches!(request.hint, Some(Hint::Key(key)) if is_backward(key));
    by_hint || request.sort.is_some_and(is_backward)
}

/// The same for a pipeline that begins with `filter`.
pub(crate) fn source_of_pipeline(
    context: &ExecContext<'_>,
    ns: &Namespace,
    filter: &RawDocument,
) -> Result<Box<dyn Stage>, QueryError> {
    Ok(match context.storage.local_capped(ns) {
        Some(local) => Box::new(LocalSource::new(local, false, None)),
        None => Box::new(OplogSource::new(context.storage, filter, false, None)?),
    })
}

fn is_backward(sort: &RawDocument) -> bool {
    match sort.get("$natural") {
        Ok(Some(RawBsonRef::Int32(order))) => order < 0,
        Ok(Some(RawBsonRef::Int64(order))) => order < 0,
        Ok(Some(RawBsonRef::Double(order))) => order < 0.0,
        _ => false,
    }
}

/// What a pipeline that follows the end of something tells of its place, shared with its source.
#[derive(Default)]
pub(crate) struct Tail {
    state: Mutex<TailState>,
    /// Of a capped collection in memory: what waits for its documents.
    local: Option<CappedWaiter>,
}

/// See [`Tail`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailState {
    /// Nothing of the log up to here is left to be read.
    pub(crate) seen: Seq,
    /// Of a capped collection in memory: the last document that was given.
    pub(crate) passed: u64,
    /// Nothing more will come.
    pub(crate) ended: bool,
    /// Of a change stream: by then it gives up the word for now, if nothing was found since this was set.
    pub(crate) give_up_at: Duration,
    /// Of a change stream: what its source gave last, or where it stands.
    pub(crate) given: Option<ResumeToken>,
    /// What the client got last, or where the stream stands with all of that.
    pub(crate) returned: Option<ResumeToken>,
}

impl Tail {
    fn of_local(waiter: CappedWaiter) -> Self {
        Self {
            state: Mutex::default(),
            local: Some(waiter),
        }
    }

    pub(crate) fn state(&self) -> TailState {
        *self.state.lock()
    }

    /// Waits until there is something behind the place (true) or `timeout` has passed (false).
    pub(crate) fn wait(&self, context: &ExecContext<'_>, timeout: Duration) -> Result<bool, StorageError> {
        let state = self.state();
        match &self.local {
            Some(waiter) => Ok(waiter.wait(context.op, state.passed, timeout)?),
            None => context.storage.wait_history(context.op, state.seen, timeout),
        }
    }

    /// Has `waker` called once there may be something behind the place.
    pub(crate) fn call(&self, context: &ExecContext<'_>, waker: &Arc<Waker>) -> Result<Await, StorageError> {
        let state = self.state();
        match &self.local {
            Some(waiter) => Ok(waiter.call(state.passed, waker)),
            None => context.storage.call_at_history(state.seen, waker),
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut TailState)) {
        change(&mut self.state.lock());
    }

    /// Something was found, or is looked for from now on.
    pub(crate) fn go_on(&self, now: Duration) {
        self.change(|state| state.give_up_at = now + SEARCH_SLICE);
    }

    /// The client has what was given.
    pub(crate) fn return_given(&self) {
        self.change(|state| state.returned = state.given);
    }
}

/// 286 for what the log has no more, of a change stream.
fn history_error(error: StorageError) -> QueryError {
    match error {
        StorageError::HistoryLost => QueryError::new(
            ErrorCode::ChangeStreamHistoryLost,
            "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
        ),
        error => error.into(),
    }
}
