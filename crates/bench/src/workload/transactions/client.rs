//! A client that commits transactions as the drivers' `withTransaction` does:
//!
//! 1. Each statement, then `commitTransaction`.
//! 2. After a statement that fails with `TransientTransactionError`: `abortTransaction`, whatever that answers, then
//!    the whole transaction again with the next number. After a commit that fails so, the same without the abort.
//! 3. A commit whose outcome is not known is sent again, from then on with write concern `majority`.

use super::{DATABASE, WriteConcern};
use crate::actor::{Actor, Progress, affected, batch};
use crate::connection::{is_ok, refusal};
use crate::error::{Error, Result};
use crate::message::Message;
use crate::random::Random;
use bson::raw::{RawBsonRef, RawDocument};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Of the drivers' specification: the pause before the second attempt, how it grows, and its bound.
const PAUSE_FIRST: Duration = Duration::from_millis(5);
const PAUSE_GROWTH: f64 = 1.5;
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// One commit is sent so often at most. Drivers go on for two minutes; a server that answers so does not get better.
const COMMITS_MAX: u32 = 100;
/// How long a commit that is sent again waits for its write concern, as drivers have it.
const COMMIT_AGAIN_MS: i32 = 10_000;
/// `MaxTimeMSExpired`.
const OUT_OF_TIME: i32 = 50;

/// What a client does before it tries an aborted transaction again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backoff {
    /// Nothing: it tries at once, as drivers did for years.
    None,
    /// It waits for a random time up to a bound that grows by half with each attempt, as the drivers' specification now
    /// says.
    Exponential,
}

impl Backoff {
    /// The name in choices and results.
    pub fn name(self) -> &'static str {
        match self {
            Backoff::None => "none",
            Backoff::Exponential => "exponential",
        }
    }

    /// The pause behind so many attempts.
    pub(super) fn pause(self, attempts: u32, random: &mut Random) -> Duration {
        if self == Backoff::None {
            return Duration::ZERO;
        }
        let grown = PAUSE_FIRST.as_secs_f64() * PAUSE_GROWTH.powf(f64::from(attempts.saturating_sub(1)));
        Duration::from_secs_f64(grown.min(PAUSE_MAX.as_secs_f64()) * random.unit())
    }
}

/// What all clients of a phase do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub collection: &'static str,
    pub reads: usize,
    pub updates: usize,
    pub backoff: Backoff,
    pub write_concern: WriteConcern,
    /// Of the first transaction in each session.
    pub first_number: i64,
}

/// What became of the commits of all clients, and the sessions that they were of.
#[derive(Debug, Default)]
pub(super) struct Tally {
    acknowledged: AtomicU64,
    in_doubt: AtomicU64,
    sessions: Mutex<Vec<[u8; 16]>>,
}

impl Tally {
    /// Commits that were answered with success, warm-up included.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Commits that were sent, and of which nobody knows.
    pub fn in_doubt(&self) -> u64 {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// The sessions that have had transactions. Some may be open if the run did not end as it was meant to.
    pub fn sessions(&self) -> Vec<[u8; 16]> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn uses(&self, session: [u8; 16]) {
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(session);
    }
}

/// The request whose reply is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// A statement, by its place in the transaction.
    Statement(usize),
    /// A commit, and how often it has been sent.
    Commit(u32),
    Abort,
}

/// See the module.
pub(super) struct Client {
    task: Task,
    tally: Arc<Tally>,
    /// Documents to choose among.
    documents: Range<u64>,
    random: Random,
    /// Apart from the choices, which so depend on the seed alone.
    jitter: Random,
    /// Of the attempt.
    number: i64,
    attempts: u32,
    /// The documents of the transaction, all different.
    chosen: Vec<u64>,
    sent: Sent,
}

impl Client {
    /// `documents` are as many as a transaction touches, at least.
    pub fn new(task: &Task, tally: &Arc<Tally>, documents: Range<u64>, mut random: Random) -> Self {
        debug_assert!(documents.end - documents.start >= (task.reads + task.updates) as u64);
        Self {
            task: task.clone(),
            tally: Arc::clone(tally),
            documents,
            jitter: Random::new(random.next()),
            random,
            number: task.first_number,
            attempts: 0,
            chosen: Vec::with_capacity(task.reads + task.updates),
            sent: Sent::Abort,
        }
    }

    fn choose(&mut self) {
        let Range { start, end } = self.documents;
        self.chosen.clear();
        while self.chosen.len() < self.task.reads + self.task.updates {
            let document = start + self.random.below(end - start);
            if !self.chosen.contains(&document) {
                self.chosen.push(document);
            }
        }
    }

    /// The first statement of a new attempt.
    fn attempt(&mut self, message: &mut Message) {
        self.number += 1;
        self.attempts += 1;
        self.statement(0, message);
    }

    fn statement(&mut self, place: usize, message: &mut Message) {
        self.sent = Sent::Statement(place);
        let id = self.chosen[place] as i64;
        if place < self.task.reads {
            message.begin("find", self.task.collection);
            message.document("filter");
            message.int64("_id", id);
            message.end();
            message.int32("limit", 1);
            message.boolean("singleBatch", true);
            self.end_body(DATABASE, message);
            return;
        }
        message.begin("update", self.task.collection);
        self.end_body(DATABASE, message);
        message.begin_sequence("updates");
        message.element();
        message.document("q");
        message.int64("_id", id);
        message.end();
        message.document("u");
        message.document("$inc");
        message.int64("n", 1);
        message.end();
        message.end();
        message.end();
        message.end_sequence();
    }

    fn commit(&mut self, times: u32, message: &mut Message) {
        self.sent = Sent::Commit(times);
        message.begin_plain("commitTransaction");
        message.document("writeConcern");
        match self.task.write_concern {
            WriteConcern::One if times == 1 => message.int32("w", 1),
            _ => message.string("w", "majority"),
        }
        if times > 1 {
            message.int32("wtimeout", COMMIT_AGAIN_MS);
        }
        message.end();
        self.end_body("admin", message);
    }

    fn abort(&mut self, message: &mut Message) {
        self.sent = Sent::Abort;
        message.begin_plain("abortTransaction");
        self.end_body("admin", message);
    }

    /// Ends a command with what makes it one of the transaction.
    fn end_body(&self, database: &str, message: &mut Message) {
        message.int64("txnNumber", self.number);
        message.boolean("autocommit", false);
        if self.sent == Sent::Statement(0) {
            message.boolean("startTransaction", true);
        }
        message.end_body(database);
    }

    fn again(&mut self, message: &mut Message) -> Progress {
        let after = self.task.backoff.pause(self.attempts, &mut self.jitter);
        self.attempt(message);
        Progress::Again { after }
    }

    fn after_statement(&mut self, place: usize, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        if is_transient(reply) {
            self.abort(message);
            return Ok(Progress::Next);
        }
        let (verb, count) = if place < self.task.reads {
            ("read", batch("find", reply)?.len())
        } else {
            ("update", affected("update", reply)?)
        };
        if count != 1 {
            return Err(Error::Protocol(format!("a {verb} by _id found {count} documents")));
        }
        if place + 1 < self.chosen.len() {
            self.statement(place + 1, message);
        } else {
            self.tally.in_doubt.fetch_add(1, Ordering::Relaxed);
            self.commit(1, message);
        }
        Ok(Progress::Next)
    }

    fn after_commit(&mut self, times: u32, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        if is_unknown(reply) {
            if times >= COMMITS_MAX {
                return Err(refusal("commitTransaction", reply));
            }
            self.commit(times + 1, message);
            return Ok(Progress::Next);
        }
        self.tally.in_doubt.fetch_sub(1, Ordering::Relaxed);
        if is_ok(reply) {
            self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
            return Ok(Progress::written(size_of::<i64>() * self.task.updates));
        }
        if is_transient(reply) {
            return Ok(self.again(message));
        }
        Err(refusal("commitTransaction", reply))
    }
}

impl Actor for Client {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        if self.chosen.is_empty() {
            self.tally.uses(message.session());
        }
        self.choose();
        self.attempts = 0;
        self.attempt(message);
        Some(0)
    }

    fn advance(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        match self.sent {
            Sent::Statement(place) => self.after_statement(place, reply, message),
            Sent::Commit(times) => self.after_commit(times, reply, message),
            Sent::Abort => Ok(self.again(message)),
        }
    }
}

fn has_label(reply: &RawDocument, label: &str) -> bool {
    let Ok(labels) = reply.get_array("errorLabels") else {
        return false;
    };
    labels
        .into_iter()
        .flatten()
        .any(|found| found == RawBsonRef::String(label))
}

/// The whole transaction may be tried again.
fn is_transient(reply: &RawDocument) -> bool {
    !is_ok(reply) && has_label(reply, "TransientTransactionError")
}

/// A commit may have come about or not. Servers say so by what drivers make `UnknownTransactionCommitResult` of.
fn is_unknown(reply: &RawDocument) -> bool {
    if is_ok(reply) {
        return matches!(reply.get("writeConcernError"), Ok(Some(_)));
    }
    has_label(reply, "UnknownTransactionCommitResult")
        || has_label(reply, "RetryableWriteError")
        || matches!(reply.get_i32("code"), Ok(OUT_OF_TIME))
}
