//! Loading: documents in batches, from chunks that any client may take. What a document holds depends on the seed and
//! its number alone, so that the data is the same whoever loads it.

use crate::actor::{Actor, Progress, affected};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::measure::{Phase, measure};
use crate::message::Message;
use crate::subject::Subject;
use bson::raw::RawDocument;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Appends document `number` to a sequence; [`Message::element`] has been called, [`Message::end`] will be.
pub type MakeDocument = dyn Fn(u64, &mut Message) + Send + Sync;

/// Documents to insert, shared by all clients.
pub struct Load {
    /// Where to.
    pub database: &'static str,
    /// Where to.
    pub collection: &'static str,
    /// The first number.
    pub first: u64,
    /// One past the last number.
    pub end: u64,
    /// Documents of an `insert` command.
    pub batch: u64,
    /// Stop at the first error of a batch.
    pub ordered: bool,
    /// Makes the documents.
    pub make: Box<MakeDocument>,
}

impl Load {
    /// Loads into a database that is empty first, measured as phase `load` of a workload.
    pub fn measure(
        self,
        context: &mut Context,
        subject: &mut Subject,
        workload: &'static str,
        clients: usize,
    ) -> Result<()> {
        subject.connect()?.drop_database(self.database)?;
        let documents = self.end - self.first;
        let phase = Phase::work(workload, "load", &["insert"], Some(documents)).with("documents", documents);
        let loaded = measure(context, subject, &phase, self.actors(clients));
        context.keep(loaded)
    }

    /// Clients that share the work.
    pub fn actors(self, clients: usize) -> Vec<Box<dyn Actor>> {
        let next = Arc::new(AtomicU64::new(self.first));
        let load = Arc::new(self);
        (0..clients.max(1))
            .map(|_| {
                Box::new(Loader {
                    load: Arc::clone(&load),
                    next: Arc::clone(&next),
                    documents: 0,
                    bytes: 0,
                }) as Box<dyn Actor>
            })
            .collect()
    }
}

struct Loader {
    load: Arc<Load>,
    next: Arc<AtomicU64>,
    documents: u64,
    bytes: usize,
}

impl Actor for Loader {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        let load = &*self.load;
        let first = self.next.fetch_add(load.batch, Ordering::Relaxed);
        if first >= load.end {
            return None;
        }
        let end = (first + load.batch).min(load.end);
        message.begin("insert", load.collection);
        message.boolean("ordered", load.ordered);
        message.end_body(load.database);
        message.begin_sequence("documents");
        self.bytes = 0;
        for number in first..end {
            message.element();
            (load.make)(number, message);
            self.bytes += message.end();
        }
        message.end_sequence();
        self.documents = end - first;
        Some(0)
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        let inserted = affected("insert", reply)?;
        if inserted != self.documents {
            return Err(Error::Protocol(format!(
                "{inserted} of {} documents were inserted",
                self.documents
            )));
        }
        Ok(Progress::Done {
            count: inserted,
            document_bytes: self.bytes as u64,
        })
    }
}
