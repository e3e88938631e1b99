//! Cursors over documents that were made when the command ran: catalogue listings, results of `bulkWrite`.

use crate::arguments::Arguments;
use crate::cursors::{CursorSource, OpenCursor};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::reply::Reply;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use query::exec::PlanSummary;
use std::sync::Arc;
use std::time::Duration;
use storage::{Charge, MemoryAccount, MemoryExceeded, StorageError};
use wire::limits::DOCUMENT_BYTES_MAX;

/// Reads `cursor: { batchSize: n }`; `None` when no size is asked for.
pub fn batch_size(arguments: Arguments<'_>, cursor: &RawDocument) -> Result<Option<usize>> {
    let mut size = None;
    for element in cursor {
        let (name, value) = element?;
        match name.as_str() {
            "batchSize" if matches!(value, RawBsonRef::Null) => {}
            "batchSize" => size = Some(arguments.non_negative("cursor.batchSize", value)? as usize),
            other => {
                return Err(crate::arguments::unknown_field(
                    &format!("{}.cursor", arguments.command),
                    other,
                ));
            }
        }
    }
    Ok(size)
}

/// Documents for a reply and its cursor, in the memory that operations may have.
pub struct Listing {
    documents: Vec<RawDocumentBuf>,
    memory: Charge,
}

impl Listing {
    /// Without documents.
    pub fn new(account: &Arc<MemoryAccount>) -> Self {
        Self {
            documents: Vec::new(),
            memory: Charge::new(account),
        }
    }

    /// Of documents.
    pub fn of(call: &Invocation<'_>, documents: Vec<RawDocumentBuf>) -> Result<Self> {
        let mut listing = Self::new(call.operation.memory());
        let charged = documents.into_iter().try_for_each(|document| listing.push(document));
        charged.map_err(StorageError::from)?;
        Ok(listing)
    }

    /// Adds a document. An error says that there was no memory for it: it is there all the same.
    pub fn push(&mut self, document: RawDocumentBuf) -> std::result::Result<(), MemoryExceeded> {
        let charged = self
            .memory
            .grow((size_of::<RawDocumentBuf>() + document.as_bytes().len()) as u64);
        self.documents.push(document);
        charged
    }

    /// The documents.
    #[cfg(test)]
    pub fn documents(&self) -> &[RawDocumentBuf] {
        &self.documents
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

/// Replies with the first `batch` documents and keeps a cursor for the rest.
pub fn reply_with_cursor(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    namespace: String,
    listing: Listing,
    batch: Option<usize>,
) -> Result<()> {
    let mut rest = listing.documents.into_iter();
    reply.open_document("cursor");
    // The number stands in front of the batch, which decides whether there is a cursor.
    let id_at = reply.reserve_int64("id");
    reply.string("ns", &namespace);
    reply.open_array("firstBatch");
    let returned = fill(reply, &mut rest, batch);
    reply.close();
    reply.close();
    if rest.len() > 0 {
        let id = call.server.cursors.new_id();
        reply.fill_int64(id_at, id);
        call.server.cursors.add(OpenCursor {
            id,
            namespace: namespace.into(),
            source: CursorSource::Documents(rest, listing.memory),
            session: call.session,
            pinned: None,
            transaction: call.transaction_number(),
            grant: call.rights.grant(),
            no_timeout: false,
            tailable: false,
            await_data: false,
            max_time_ms: call.max_time_ms,
            originating: call.body.to_owned().into(),
            plan_summary: PlanSummary::default(),
            created_ms: call.server.env.clock.now_ms(),
            returned: returned as u64,
            last_used: Duration::ZERO,
        });
        call.report.cursor_id = Some(id);
    }
    call.report.n_returned = Some(returned as u64);
    Ok(())
}

/// Adds documents to the open array until the batch is full; returns how many.
pub fn fill(reply: &mut Reply<'_>, rest: &mut std::vec::IntoIter<RawDocumentBuf>, batch: Option<usize>) -> usize {
    let mut count = 0;
    while batch.is_none_or(|batch| count < batch) {
        let Some(next) = rest.as_slice().first() else { break };
        if count > 0 && reply.len() + next.as_bytes().len() > DOCUMENT_BYTES_MAX {
            break;
        }
        reply.element(count, next);
        rest.next();
        count += 1;
    }
    count
}
