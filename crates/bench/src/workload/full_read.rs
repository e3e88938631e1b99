//! Reading a whole collection by a cursor, so many times, each time timed by itself.

use crate::actor::{Actor, Progress, batch};
use crate::error::{Error, Result};
use crate::message::Message;
use bson::raw::RawDocument;
use report::Iteration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One client that reads.
pub struct FullRead {
    /// Where from.
    pub database: &'static str,
    /// Where from.
    pub collection: &'static str,
    /// So many times.
    pub times: usize,
    /// As many documents must come.
    pub documents: u64,
    /// The first reading is a cold one.
    pub cold: bool,
}

/// The times of the readings, filled while they happen.
#[derive(Clone, Debug, Default)]
pub struct Iterations(Arc<Mutex<Vec<Iteration>>>);

impl Iterations {
    /// Those that are complete.
    pub fn take(&self) -> Vec<Iteration> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FullRead {
    /// The client, and where it puts its times.
    pub fn actor(self) -> (Box<dyn Actor>, Iterations) {
        let iterations = Iterations::default();
        let reader = Reader {
            left: self.times,
            plan: self,
            done: iterations.clone(),
            began: Instant::now(),
            documents: 0,
        };
        (Box::new(reader), iterations)
    }
}

struct Reader {
    plan: FullRead,
    left: usize,
    done: Iterations,
    began: Instant,
    documents: u64,
}

impl Actor for Reader {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        self.documents = 0;
        self.began = Instant::now();
        message.begin("find", self.plan.collection);
        message.end_body(self.plan.database);
        Some(0)
    }

    fn advance(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        let batch = batch("find", reply)?;
        self.documents += batch.len();
        if batch.cursor != 0 {
            message.begin_get_more(batch.cursor, self.plan.collection);
            message.end_body(self.plan.database);
            return Ok(Progress::Next);
        }
        if self.documents != self.plan.documents {
            return Err(Error::Protocol(format!(
                "{} of {} documents were read",
                self.documents, self.plan.documents
            )));
        }
        let mut done = self.done.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cold = self.plan.cold && done.is_empty();
        done.push(Iteration {
            seconds: self.began.elapsed().as_secs_f64(),
            cold,
            operations: self.documents,
        });
        Ok(Progress::Done {
            count: self.documents,
            document_bytes: 0,
        })
    }
}
