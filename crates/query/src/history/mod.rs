//! What is read from the log instead of from collections: `local.oplog.rs`, and change streams.
//!
//! Both are sources of pipelines over a [`storage::HistoryReader`]. At the log's end such a source gives nothing *for
//! now*: the pipeline rests, its cursor stays open, and whoever fetches from it waits for more ([`Tail`]).

mod event;
mod oplog;
mod options;
mod split;
mod stream;
mod token;
mod update_description;

pub(crate) use oplog::{OplogSource, is_oplog};
pub(crate) use stream::{check_token, open};
pub use token::ResumeToken;

use crate::QueryError;
use engine::Seq;
use parking_lot::Mutex;
use storage::StorageError;
use wire::ErrorCode;

/// What a pipeline that follows the log tells of its place, shared with its source.
#[derive(Default)]
pub(crate) struct Tail(Mutex<TailState>);

/// See [`Tail`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailState {
    /// Nothing up to here is left to be read.
    pub(crate) seen: Seq,
    /// Nothing more will come.
    pub(crate) ended: bool,
    /// Of a change stream: what its source gave last, or where it stands.
    pub(crate) given: Option<ResumeToken>,
    /// What the client got last, or where the stream stands with all of that.
    pub(crate) returned: Option<ResumeToken>,
}

impl Tail {
    pub(crate) fn state(&self) -> TailState {
        *self.0.lock()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut TailState)) {
        change(&mut self.0.lock());
    }

    /// The client has what was given.
    pub(crate) fn return_given(&self) {
        self.change(|state| state.returned = state.given);
    }
}

/// 286 for what the log has no more.
fn history_error(error: StorageError) -> QueryError {
    match error {
        StorageError::HistoryLost => QueryError::new(
            ErrorCode::ChangeStreamHistoryLost,
            "Resume of change stream was not possible, as the resume point may no longer be in the oplog.",
        ),
        error => error.into(),
    }
}
