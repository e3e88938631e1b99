//! Transactions of several documents: each adds one to counters of different documents, and is committed.
//!
//! In `disjoint` each client has documents of its own, so that no two transactions are in conflict: what is left is the
//! price of a transaction. In `hot` all clients choose among the same few documents: what is looked for is how many
//! commits remain, and whether every client gets its share of them.
//!
//! Invariant, checked after each phase: the sum of the counters has grown by what the acknowledged commits added, and
//! by nothing else.

mod client;

use super::load::Load;
use crate::actor::Actor;
use crate::configuration::Setup;
use crate::connection::whole_number;
use crate::context::{Context, Options};
use crate::error::{Error, Result};
use crate::measure::{Phase, measure, outcome, skip};
use crate::message::Message;
use crate::procfs;
use crate::random::Random;
use crate::subject::Subject;
use bson::raw::{RawArrayBuf, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, rawdoc};
pub use client::Backoff;
use client::{Client, Tally};
use report::{Outcome, Run};
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Where everything is.
pub const DATABASE: &str = "transactions";
/// Documents that belong to one client each.
const DISJOINT: &str = "disjoint";
/// Documents that all clients want.
const HOT: &str = "hot";

/// Documents of [`DISJOINT`] at scale 1.
const DOCUMENTS: u64 = 100_000;
/// Of each, the field beside the counter.
const FIELD_BYTES: usize = 100;
/// Numbers of clients, one phase each.
const CLIENTS: [u32; 3] = [1, 16, 64];
const LOAD_CLIENTS: u32 = 8;
const LOAD_BATCH: u64 = 1000;
const DURATION: Duration = Duration::from_secs(30);
/// A server of our own is the primary by then.
const ELECTION: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Sessions that one command ends; servers take ten times as many.
const SESSIONS_AT_ONCE: usize = 1000;

const NAMES: &[&str] = &["transaction"];

/// When a commit is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteConcern {
    /// When the primary has it in memory.
    One,
    /// When it stays, whatever crashes.
    Majority,
}

impl WriteConcern {
    /// The name in choices and results.
    pub fn name(self) -> &'static str {
        match self {
            WriteConcern::One => "1",
            WriteConcern::Majority => "majority",
        }
    }
}

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Documents that all clients want.
    pub hot_documents: u64,
    /// Reads by `_id` before the updates, each of another document.
    pub reads: usize,
    /// Updates, each of another document.
    pub updates: usize,
    /// What to do before an aborted transaction is tried again; `hot` is run with each.
    pub backoffs: Vec<Backoff>,
    /// Of the commits.
    pub write_concern: WriteConcern,
    /// A server that has no transactions is skipped with a remark; otherwise that is an error.
    pub may_be_skipped: bool,
}

impl Choices {
    /// Documents that one transaction touches.
    fn touched(&self) -> u64 {
        (self.reads + self.updates) as u64
    }
}

/// Refuses what is not possible together.
pub fn check(choices: &Choices) -> Result<()> {
    let refuse = |what: String| Err(Error::Choice(format!("transactions: {what}")));
    if choices.updates == 0 {
        return refuse("without updates there is nothing to commit".to_owned());
    }
    if choices.hot_documents < choices.touched() {
        return refuse(format!(
            "a transaction touches {} different documents, and --hot-documents is {}",
            choices.touched(),
            choices.hot_documents
        ));
    }
    Ok(())
}

/// The chosen configurations, each as a member of a replica set: others have no transactions.
pub fn setups(chosen: &[Setup]) -> Vec<Setup> {
    chosen.iter().map(|setup| setup.clone().as_member()).collect()
}

/// Loads, and runs both kinds with each number of clients.
pub fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let clients = match context.options.clients {
        Some(clients) => vec![clients],
        None => CLIENTS.to_vec(),
    };
    if let Some(reason) = what_is_missing(context, subject)? {
        if !choices.may_be_skipped {
            return Err(Error::Choice(reason));
        }
        let phase = Phase::timed("transactions", DISJOINT, NAMES, context, DURATION);
        return skip(context, subject, &phase, clients[0] as usize, &reason);
    }
    let documents = documents(&context.options, &clients, choices);
    load(context, subject, documents, choices)?;
    for &clients in &clients {
        let phase = phase(context, DISJOINT, choices).with("documents", documents);
        let share = documents / u64::from(clients);
        let own = move |client: u64| client * share..(client + 1) * share;
        // Nothing has to be tried again.
        run_one(context, subject, choices, phase, clients, Backoff::None, own)?;
    }
    for &clients in &clients {
        for &backoff in &choices.backoffs {
            let phase = phase(context, HOT, choices)
                .with("documents", choices.hot_documents)
                .with("backoff", backoff.name());
            let all = 0..choices.hot_documents;
            run_one(context, subject, choices, phase, clients, backoff, move |_| all.clone())?;
        }
    }
    Ok(())
}

/// Documents of their own for all clients, a few times what one transaction touches.
fn documents(options: &Options, clients: &[u32], choices: &Choices) -> u64 {
    let most = clients.iter().copied().max().unwrap_or(1);
    options.scaled(DOCUMENTS, u64::from(most) * choices.touched() * 4)
}

/// Why a server cannot have transactions; `None`: it can. One of our own has some time to become primary.
fn what_is_missing(context: &Context, subject: &Subject) -> Result<Option<String>> {
    let give_up = Instant::now() + ELECTION;
    loop {
        let hello = subject.connect()?.hello()?;
        let is_router = matches!(hello.get_str("msg"), Ok("isdbgrid"));
        let is_writable = |name| matches!(hello.get_bool(name), Ok(true));
        let missing = if !is_router && !hello.contains_key("setName") {
            "is no member of one: start it with --replSet NAME --replSetInitiate"
        } else if !is_writable("isWritablePrimary") && !is_writable("ismaster") {
            "is not its primary"
        } else {
            return Ok(None);
        };
        if !subject.is_own() || Instant::now() >= give_up {
            return Ok(Some(format!(
                "transactions need a replica set, and the server at {} {missing}",
                subject.address()
            )));
        }
        context.interrupt.check()?;
        thread::sleep(LOOK);
    }
}

fn load(context: &mut Context, subject: &mut Subject, documents: u64, choices: &Choices) -> Result<()> {
    let seed = context.options.seed;
    let clients = context.options.clients.unwrap_or(LOAD_CLIENTS) as usize;
    let load = Load {
        database: DATABASE,
        collection: DISJOINT,
        first: 0,
        end: documents,
        batch: LOAD_BATCH,
        ordered: false,
        make: Box::new(move |number, message| put_document(seed, number, message)),
    };
    load.measure(context, subject, "transactions", clients)?;
    let mut rows = RawArrayBuf::new();
    for number in 0..choices.hot_documents {
        rows.push(rawdoc! { "_id": number as i64, "n": 0_i64 });
    }
    subject
        .connect()?
        .run(DATABASE, &rawdoc! { "insert": HOT, "documents": rows })
        .map(drop)
}

fn put_document(seed: u64, number: u64, message: &mut Message) {
    message.int64("_id", number as i64);
    message.int64("n", 0);
    let mut random = Random::of_part(seed, number);
    message.binary("field", |bytes| random.bytes(FIELD_BYTES, bytes));
}

fn phase(context: &Context, collection: &'static str, choices: &Choices) -> Phase {
    let phase = Phase::timed("transactions", collection, NAMES, context, DURATION)
        .with("reads", choices.reads)
        .with("updates", choices.updates)
        .with("writeConcern", choices.write_concern.name());
    Phase {
        contended: true,
        ..phase
    }
}

/// Runs one phase, whose name is that of its collection. `documents`: those that a client chooses among.
fn run_one(
    context: &mut Context,
    subject: &mut Subject,
    choices: &Choices,
    phase: Phase,
    clients: u32,
    backoff: Backoff,
    documents: impl Fn(u64) -> Range<u64>,
) -> Result<()> {
    let tally = Arc::new(Tally::default());
    let before = sum(subject, &phase.phase)?;
    let task = client::Task {
        collection: if phase.phase == HOT { HOT } else { DISJOINT },
        reads: choices.reads,
        updates: choices.updates,
        backoff,
        write_concern: choices.write_concern,
        first_number: first_number(),
    };
    let actors = (0..u64::from(clients))
        .map(|client| {
            let random = Random::of_part(context.options.seed, client);
            Box::new(Client::new(&task, &tally, documents(client), random)) as Box<dyn Actor>
        })
        .collect();
    let mut run = measure(context, subject, &phase, actors);
    let ended = end_sessions(subject, &tally.sessions());
    if run.is_complete() {
        match ended.and_then(|()| sum(subject, &phase.phase)) {
            Ok(after) => {
                let (acknowledged, in_doubt) = (tally.acknowledged(), tally.in_doubt());
                judge(&mut run, after - before, acknowledged, in_doubt, choices.updates as i64);
            }
            Err(error) => run.outcome = outcome(&error),
        }
    }
    context.keep(run)
}

/// Ends sessions, and transactions that were left open: they would keep documents and the collection from others.
fn end_sessions(subject: &Subject, sessions: &[[u8; 16]]) -> Result<()> {
    let mut connection = subject.connect()?;
    for some in sessions.chunks(SESSIONS_AT_ONCE) {
        let mut ids = RawArrayBuf::new();
        for bytes in some {
            let id = Binary {
                subtype: BinarySubtype::Uuid,
                bytes: bytes.to_vec(),
            };
            ids.push(rawdoc! { "id": id });
        }
        connection.run("admin", &rawdoc! { "endSessions": ids })?;
    }
    Ok(())
}

/// Sessions are the same in each run of a seed, and a server that stays remembers their transactions: numbers begin
/// with the clock, a thousand for each millisecond.
fn first_number() -> i64 {
    procfs::now_ms() << 10
}

/// What all counters of a collection come to.
fn sum(subject: &Subject, collection: &str) -> Result<i64> {
    let group = rawdoc! { "$group": { "_id": null, "n": { "$sum": "$n" } } };
    let command = rawdoc! { "aggregate": collection, "pipeline": [group], "cursor": {} };
    let reply = RawDocumentBuf::try_from(&subject.connect()?.run(DATABASE, &command)?);
    let read = || -> std::result::Result<i64, Box<dyn std::error::Error>> {
        let reply = reply?;
        let row = reply.get_document("cursor")?.get_array("firstBatch")?.get_document(0)?;
        Ok(whole_number(row, "n")?)
    };
    read().map_err(|error| Error::Protocol(format!("the sum of the counters: {error}")))
}

/// Fails a run whose counters have not grown by what was committed. A commit that was sent and not answered may be in
/// them or not.
fn judge(run: &mut Run, grown: i64, acknowledged: u64, in_doubt: u64, updates: i64) {
    let least = acknowledged as i64 * updates;
    let most = least + in_doubt as i64 * updates;
    if (least..=most).contains(&grown) && (grown - least) % updates == 0 {
        return;
    }
    let doubt = match in_doubt {
        0 => String::new(),
        commits => format!(", {commits} more without an answer"),
    };
    let message = format!(
        "the counters have grown by {grown}, and {acknowledged} commits of {updates} each were acknowledged{doubt}"
    );
    run.outcome = Outcome::Failed { message };
}

#[cfg(test)]
mod tests;
