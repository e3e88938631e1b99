//! One hot document beside single inserts, on data four times the cache: queues, sequences and counters.
//!
//! What is looked for is not the rate but a collapse: a structure that grows with the updates of one document, or one
//! that has left memory and is changed all the same, shows here.

use super::load::Load;
use crate::actor::{Actor, Progress, affected};
use crate::configuration::Setup;
use crate::context::{Context, Options};
use crate::error::{Error, Result};
use crate::measure::{Phase, measure};
use crate::message::Message;
use crate::random::Random;
use crate::subject::Subject;
use bson::raw::RawDocument;
use bson::rawdoc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where everything is.
pub const DATABASE: &str = "hot";
const COLLECTION: &str = "rows";
const COUNTERS: &str = "counters";

/// The cache of a server of our own, unless one was chosen.
const CACHE_BYTES: u64 = 64 << 20;
/// The loaded documents are so many times the cache at scale 1.
const CACHES: u64 = 4;
const FIELD_BYTES: usize = 1000;
const DOCUMENTS_MIN: u64 = 1000;
const CLIENTS: u32 = 4;
const LOAD_BATCH: u64 = 1000;
const DURATION: Duration = Duration::from_secs(60);

const NAMES: &[&str] = &["insert", "update"];
const INSERT: usize = 0;
const UPDATE: usize = 1;

/// The chosen configurations, with a small cache where none was chosen.
pub fn setups(chosen: &[Setup], options: &Options) -> Vec<Setup> {
    let small = |setup: &Setup| match options.cache_bytes {
        Some(_) => setup.clone(),
        None => setup.clone().with_cache(CACHE_BYTES),
    };
    chosen.iter().map(small).collect()
}

/// Loads, and inserts beside updates of one document.
pub fn run(context: &mut Context, subject: &mut Subject) -> Result<()> {
    let cache = context.options.cache_bytes.unwrap_or(CACHE_BYTES);
    let documents = context
        .options
        .scaled(CACHES * cache / FIELD_BYTES as u64, DOCUMENTS_MIN);
    let clients = context.options.clients.unwrap_or(CLIENTS) as usize;
    let seed = context.options.seed;
    let load = Load {
        database: DATABASE,
        collection: COLLECTION,
        first: 0,
        end: documents,
        batch: LOAD_BATCH,
        ordered: false,
        make: Box::new(move |number, message| put_document(seed, number, message)),
    };
    load.measure(context, subject, "hot", clients)?;
    subject.connect()?.run(
        DATABASE,
        &rawdoc! { "insert": COUNTERS, "documents": [{ "_id": 0, "n": 0_i64 }] },
    )?;
    let next = Arc::new(AtomicU64::new(documents));
    let phase = Phase::timed("hot", "insertAndCount", NAMES, context, DURATION).with("documents", documents);
    let actors = (0..clients)
        .map(|_| {
            Box::new(Client {
                next: Arc::clone(&next),
                seed,
                operation: UPDATE,
                bytes: 0,
            }) as Box<dyn Actor>
        })
        .collect();
    let run = measure(context, subject, &phase, actors);
    context.keep(run)
}

fn put_document(seed: u64, number: u64, message: &mut Message) {
    message.int64("_id", number as i64);
    let mut random = Random::of_part(seed, number);
    message.binary("field", |bytes| random.bytes(FIELD_BYTES, bytes));
}

/// Inserts a document and updates the counter, in turn.
struct Client {
    next: Arc<AtomicU64>,
    seed: u64,
    /// The last operation that was begun, and what it writes.
    operation: usize,
    bytes: usize,
}

impl Actor for Client {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        self.operation = 1 - self.operation;
        if self.operation == INSERT {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            message.begin("insert", COLLECTION);
            message.end_body(DATABASE);
            message.begin_sequence("documents");
            message.element();
            put_document(self.seed, number, message);
            self.bytes = message.end();
        } else {
            message.begin("update", COUNTERS);
            message.end_body(DATABASE);
            message.begin_sequence("updates");
            message.element();
            message.document("q");
            message.int32("_id", 0);
            message.end();
            message.document("u");
            message.document("$inc");
            message.int64("n", 1);
            message.end();
            message.end();
            message.end();
            self.bytes = size_of::<i64>();
        }
        message.end_sequence();
        Some(self.operation)
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        match affected(NAMES[self.operation], reply)? {
            1 => Ok(Progress::written(self.bytes)),
            other => Err(Error::Protocol(format!(
                "an {} of one document changed {other}",
                NAMES[self.operation]
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_and_updates_take_turns() {
        let next = Arc::new(AtomicU64::new(5));
        let mut client = Client {
            next: Arc::clone(&next),
            seed: 1,
            operation: UPDATE,
            bytes: 0,
        };
        let mut begin = || {
            let mut message = Message::new(0);
            (client.begin(&mut message), message.bytes().len())
        };
        let turns: Vec<_> = (0..4).map(|_| begin()).collect();
        let operations: Vec<_> = turns.iter().filter_map(|turn| turn.0).collect();
        assert_eq!(operations, [INSERT, UPDATE, INSERT, UPDATE]);
        assert!(turns[0].1 > FIELD_BYTES && turns[1].1 < 200, "{turns:?}");
        assert_eq!(next.load(Ordering::Relaxed), 7);
    }
}
