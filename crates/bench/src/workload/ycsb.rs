//! YCSB's core workloads A to F (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010).
//!
//! Documents have ten fields of a hundred random bytes; keys are `user` and a hash of the document's number. Requests
//! follow a scrambled Zipf distribution with constant 0.99; in D the newest documents are read most. D and E insert;
//! what is read stays behind what is being inserted.

use super::load::Load;
use crate::actor::{Actor, Progress, affected, batch};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::measure::{Phase, measure};
use crate::message::Message;
use crate::random::{Random, fnv64};
use crate::subject::Subject;
use crate::zipf::Zipf;
use bson::raw::RawDocument;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where everything is.
pub const DATABASE: &str = "ycsb";
const COLLECTION: &str = "usertable";
const FIELDS: u64 = 10;
const FIELD_NAMES: [&str; FIELDS as usize] = [
    "field0", "field1", "field2", "field3", "field4", "field5", "field6", "field7", "field8", "field9",
];
const FIELD_BYTES: usize = 100;
const ZIPF_CONSTANT: f64 = 0.99;
const SCAN_LENGTH_MAX: u64 = 100;

/// Documents at scale 1.
const RECORDS: u64 = 100_000;
const CLIENTS: u32 = 8;
const DURATION: Duration = Duration::from_secs(30);

/// Names of the operations, by index.
pub const NAMES: &[&str] = &["read", "update", "insert", "scan", "readModifyWrite"];
const READ: usize = 0;
const UPDATE: usize = 1;
const INSERT: usize = 2;
const SCAN: usize = 3;
const READ_MODIFY_WRITE: usize = 4;

/// Which documents are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popularity {
    /// Zipf over scrambled numbers.
    Zipfian,
    /// The newest most.
    Latest,
}

/// A workload: how often each operation is done.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Its letter.
    pub letter: char,
    /// Shares by index of [`NAMES`]; they sum up to 1.
    pub shares: [f64; 5],
    /// Which documents are asked for.
    pub popularity: Popularity,
}

const fn mix(letter: char, shares: [f64; 5], popularity: Popularity) -> Mix {
    Mix {
        letter,
        shares,
        popularity,
    }
}

/// The published workloads, in the order in which YCSB advises to run them: those that insert come last.
pub const MIXES: [Mix; 6] = [
    mix('a', [0.5, 0.5, 0.0, 0.0, 0.0], Popularity::Zipfian),
    mix('b', [0.95, 0.05, 0.0, 0.0, 0.0], Popularity::Zipfian),
    mix('c', [1.0, 0.0, 0.0, 0.0, 0.0], Popularity::Zipfian),
    mix('f', [0.5, 0.0, 0.0, 0.0, 0.5], Popularity::Zipfian),
    mix('d', [0.95, 0.0, 0.05, 0.0, 0.0], Popularity::Latest),
    mix('e', [0.0, 0.0, 0.05, 0.95, 0.0], Popularity::Zipfian),
];

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Letters of the workloads to run.
    pub workloads: String,
    /// Writes after the load are answered when they are on disk: `j: true`.
    pub journaled: bool,
}

/// Refuses letters that are no workload's, and none at all.
pub fn check(choices: &Choices) -> Result<()> {
    let letters = choices.workloads.to_lowercase();
    if letters.is_empty() {
        return Err(Error::Choice("choose YCSB's workloads from abcdef".to_owned()));
    }
    match letters
        .chars()
        .find(|letter| !MIXES.iter().any(|mix| mix.letter == *letter))
    {
        None => Ok(()),
        Some(letter) => Err(Error::Choice(format!(
            "YCSB has no workload {letter:?}: choose from abcdef, such as --workloads ac"
        ))),
    }
}

/// Loads, and runs each of the chosen workloads.
pub fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let records = context.options.scaled(RECORDS, 100);
    let clients = context.options.clients.unwrap_or(CLIENTS) as usize;
    let seed = context.options.seed;
    let load = Load {
        database: DATABASE,
        collection: COLLECTION,
        first: 0,
        end: records,
        batch: 1000,
        ordered: false,
        make: Box::new(move |number, message| put_document(seed, number, message)),
    };
    load.measure(context, subject, "ycsb", clients)?;
    let state = Arc::new(State::new(records, seed, choices.journaled));
    for mix in MIXES {
        if !choices.workloads.to_lowercase().contains(mix.letter) {
            continue;
        }
        let mut phase =
            Phase::timed("ycsb", &mix.letter.to_string(), NAMES, context, DURATION).with("documents", records);
        if choices.journaled {
            phase = phase.with("writeConcern", "j: true");
        }
        phase.seed = u64::from(mix.letter);
        let actors = (0..clients)
            .map(|client| Box::new(Client::new(&state, mix, client as u64)) as Box<dyn Actor>)
            .collect();
        let run = measure(context, subject, &phase, actors);
        context.keep(run)?;
    }
    Ok(())
}

/// What all clients know.
struct State {
    seed: u64,
    zipf: Zipf,
    journaled: bool,
    next: AtomicU64,
    /// All documents with smaller numbers are there.
    complete: AtomicU64,
    /// Inserted ones with larger numbers: some insert with a smaller one is under way.
    beyond: Mutex<BTreeSet<u64>>,
}

impl State {
    fn new(records: u64, seed: u64, journaled: bool) -> Self {
        Self {
            seed,
            zipf: Zipf::new(records, ZIPF_CONSTANT),
            journaled,
            next: AtomicU64::new(records),
            complete: AtomicU64::new(records),
            beyond: Mutex::default(),
        }
    }

    /// A document has been inserted.
    fn acknowledge(&self, number: u64) {
        let mut beyond = self.beyond.lock().unwrap_or_else(PoisonError::into_inner);
        beyond.insert(number);
        let mut complete = self.complete.load(Ordering::Relaxed);
        while beyond.remove(&complete) {
            complete += 1;
        }
        self.complete.store(complete, Ordering::Relaxed);
    }

    /// The number of a document that is there.
    fn choose(&self, popularity: Popularity, random: &mut Random) -> u64 {
        let rank = self.zipf.draw(random);
        match popularity {
            Popularity::Zipfian => fnv64(rank) % self.zipf.count(),
            Popularity::Latest => {
                let complete = self.complete.load(Ordering::Relaxed);
                (complete - 1).saturating_sub(rank)
            }
        }
    }
}

/// Encodes `user` and the hash of a number.
fn put_key(number: u64, key: &mut Vec<u8>) {
    key.clear();
    key.extend_from_slice(b"user");
    write!(key, "{}", fnv64(number)).expect("a vector takes all");
}

fn put_document(seed: u64, number: u64, message: &mut Message) {
    let mut random = Random::of_part(seed, number);
    let mut key = Vec::with_capacity(24);
    put_key(number, &mut key);
    message.text("_id", &key);
    for name in FIELD_NAMES {
        message.binary(name, |bytes| random.bytes(FIELD_BYTES, bytes));
    }
}

struct Client {
    state: Arc<State>,
    mix: Mix,
    random: Random,
    key: Vec<u8>,
    operation: usize,
    /// In a read-modify-write: the read is done.
    has_read: bool,
    /// The number of the document that is being inserted.
    inserting: u64,
    bytes: usize,
}

impl Client {
    fn new(state: &Arc<State>, mix: Mix, client: u64) -> Self {
        Self {
            state: Arc::clone(state),
            mix,
            random: Random::of_part(state.seed ^ u64::from(mix.letter), client),
            key: Vec::with_capacity(24),
            operation: READ,
            has_read: false,
            inserting: 0,
            bytes: 0,
        }
    }

    fn choose_operation(&mut self) -> usize {
        let mut left = self.random.unit();
        let last = self.mix.shares.iter().rposition(|share| *share > 0.0).unwrap_or(READ);
        for (operation, share) in self.mix.shares.iter().enumerate() {
            if left < *share {
                return operation;
            }
            left -= share;
        }
        last
    }

    fn read(&self, message: &mut Message) {
        message.begin("find", COLLECTION);
        message.document("filter");
        message.text("_id", &self.key);
        message.end();
        message.document("projection");
        message.int32("_id", 0);
        message.end();
        message.int32("limit", 1);
        message.boolean("singleBatch", true);
        message.end_body(DATABASE);
    }

    /// Ends the body of a write.
    fn end_write(&self, message: &mut Message) {
        if self.state.journaled {
            message.document("writeConcern");
            message.int32("w", 1);
            message.boolean("j", true);
            message.end();
        }
        message.end_body(DATABASE);
    }

    fn update(&mut self, message: &mut Message) {
        message.begin("update", COLLECTION);
        self.end_write(message);
        message.begin_sequence("updates");
        message.element();
        message.document("q");
        message.text("_id", &self.key);
        message.end();
        message.document("u");
        message.document("$set");
        let field = FIELD_NAMES[self.random.below(FIELDS) as usize];
        message.binary(field, |bytes| self.random.bytes(FIELD_BYTES, bytes));
        message.end();
        message.end();
        message.end();
        message.end_sequence();
        self.bytes = FIELD_BYTES;
    }

    fn insert(&mut self, message: &mut Message) {
        let number = self.state.next.fetch_add(1, Ordering::Relaxed);
        self.inserting = number;
        message.begin("insert", COLLECTION);
        self.end_write(message);
        message.begin_sequence("documents");
        message.element();
        put_document(self.state.seed, number, message);
        self.bytes = message.end();
        message.end_sequence();
    }

    fn scan(&mut self, message: &mut Message) {
        let length = 1 + self.random.below(SCAN_LENGTH_MAX) as i32;
        message.begin("find", COLLECTION);
        message.document("filter");
        message.document("_id");
        message.text("$gte", &self.key);
        message.end();
        message.end();
        message.document("sort");
        message.int32("_id", 1);
        message.end();
        message.int32("limit", length);
        message.end_body(DATABASE);
    }

    fn found(reply: &RawDocument) -> Result<()> {
        if batch("find", reply)?.is_empty() {
            return Err(Error::Lost("a document that was inserted is not found".to_owned()));
        }
        Ok(())
    }

    fn updated(&self, reply: &RawDocument) -> Result<Progress> {
        match affected("update", reply)? {
            1 => Ok(Progress::written(self.bytes)),
            other => Err(Error::Protocol(format!("an update by _id changed {other} documents"))),
        }
    }
}

impl Actor for Client {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        self.operation = self.choose_operation();
        self.has_read = false;
        if self.operation != INSERT {
            let number = self.state.choose(self.mix.popularity, &mut self.random);
            put_key(number, &mut self.key);
        }
        match self.operation {
            UPDATE => self.update(message),
            INSERT => self.insert(message),
            SCAN => self.scan(message),
            _ => self.read(message),
        }
        Some(self.operation)
    }

    fn advance(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        match self.operation {
            READ | SCAN => Self::found(reply).map(|()| Progress::READ),
            UPDATE => self.updated(reply),
            READ_MODIFY_WRITE if self.has_read => self.updated(reply),
            READ_MODIFY_WRITE => {
                Self::found(reply)?;
                self.has_read = true;
                self.update(message);
                Ok(Progress::Next)
            }
            _ => {
                affected("insert", reply)?;
                self.state.acknowledge(self.inserting);
                Ok(Progress::written(self.bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests;
