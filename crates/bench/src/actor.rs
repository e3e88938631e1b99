//! What a client does, as the driver sees it: operations that consist of requests, one after the other.
//!
//! An actor knows no sockets and no clock. It belongs to one connection.

use crate::connection::{is_ok, refusal, whole_number};
use crate::error::{Error, Result};
use crate::message::Message;
use bson::raw::{RawArray, RawDocument};
use std::time::Duration;

/// What became of an operation after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next request of the same operation has been encoded.
    Next,
    /// The operation begins again: nothing came of what was done for it. Its first request has been encoded.
    Again {
        /// How long to wait before it is sent.
        after: Duration,
    },
    /// The operation is over and counts for so many.
    Done {
        /// Operations (documents, for batches).
        count: u64,
        /// Bytes of documents that it wrote.
        document_bytes: u64,
    },
}

impl Progress {
    /// One operation that wrote no document.
    pub const READ: Progress = Progress::Done {
        count: 1,
        document_bytes: 0,
    };

    /// One operation that wrote so many bytes of documents.
    pub fn written(document_bytes: usize) -> Self {
        Progress::Done {
            count: 1,
            document_bytes: document_bytes as u64,
        }
    }
}

/// A client.
pub trait Actor: Send {
    /// Chooses the next operation and encodes its first request. Returns the operation's index in the plan's names, or
    /// `None` when there is nothing left to do.
    fn begin(&mut self, message: &mut Message) -> Option<usize>;

    /// Takes a reply. An error ends the operation; [`Error::Refused`] counts against it, any other ends the run.
    fn advance(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress>;
}

/// The reply must say `ok: 1` and have no write errors.
pub fn expect_ok(command: &str, reply: &RawDocument) -> Result<()> {
    if is_ok(reply) && matches!(reply.get("writeErrors"), Ok(None)) {
        return Ok(());
    }
    Err(refusal(command, reply))
}

/// `n` of a write's reply, which must be a success.
pub fn affected(command: &str, reply: &RawDocument) -> Result<u64> {
    expect_ok(command, reply)?;
    whole_number(reply, "n").map(|count| count.max(0) as u64)
}

/// A batch of a cursor.
pub struct Batch<'r> {
    /// The cursor, 0 when this is the last batch.
    pub cursor: i64,
    /// The documents.
    pub documents: &'r RawArray,
}

impl Batch<'_> {
    /// Number of documents.
    pub fn len(&self) -> u64 {
        self.documents.into_iter().count() as u64
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }
}

/// The batch in the reply of `find`, `aggregate` or `getMore`.
pub fn batch<'r>(command: &str, reply: &'r RawDocument) -> Result<Batch<'r>> {
    expect_ok(command, reply)?;
    let read = || -> std::result::Result<Batch<'r>, Box<dyn std::error::Error + 'r>> {
        let cursor = reply.get_document("cursor")?;
        let documents = match cursor.get_array("firstBatch") {
            Ok(documents) => documents,
            Err(_) => cursor.get_array("nextBatch")?,
        };
        Ok(Batch {
            cursor: whole_number(cursor, "id")?,
            documents,
        })
    };
    read().map_err(|error| Error::Protocol(error.to_string()))
}
