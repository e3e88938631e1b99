//! A replica set on this machine: what a write costs, what a failover takes, and how fast a new member has all data.
//!
//! `insert`: clients insert documents one by one, into a set of one member and into one of three, with each write
//! concern. `failover`, `stepDown`: the primary is killed, or steps down, while clients write. `initialSync`: a member
//! without data joins.
//!
//! Invariant, checked after each phase: all members hold the same, and every acknowledged document is among it.

mod failover;
mod initial_sync;

use super::transactions::WriteConcern;
use crate::actor::{Actor, Progress, affected};
use crate::configuration::Setup;
use crate::connection::whole_number;
use crate::context::{Context, Options};
use crate::error::{Error, Result};
use crate::measure::{Phase, measure, outcome};
use crate::message::Message;
use crate::random::Random;
use crate::set::{Members, raw};
use crate::subject::Subject;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::rawdoc;
use report::{Outcome, Run};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The name in results.
pub const NAME: &str = "replicaSet";
/// Where everything is.
pub const DATABASE: &str = "replicaSet";
const COLLECTION: &str = "documents";

/// Members of the sets, unless that was chosen.
const MEMBERS: [usize; 2] = [1, 3];
/// Numbers of clients, one phase each.
const CLIENTS: [u32; 3] = [1, 16, 128];
const DURATION: Duration = Duration::from_secs(20);
/// Fewest members that elect another primary when one is gone.
const FAILOVER_MEMBERS_MIN: usize = 3;

const NAMES: &[&str] = &["insert"];

/// A part of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Inserts with each write concern and number of clients.
    Insert,
    /// The primary is killed, and steps down.
    Failover,
    /// A member without data joins.
    InitialSync,
}

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// What to do.
    pub parts: Vec<Part>,
    /// Of the inserts.
    pub write_concerns: Vec<WriteConcern>,
    /// Bytes of a document, about.
    pub document_bytes: usize,
    /// How long members do without a sign of their primary before they elect another one, one phase each.
    pub election_timeouts: Vec<Duration>,
    /// How often the primary is killed, and steps down, in each phase.
    pub failovers: u32,
    /// Sets are of a size that was chosen, so that a member joins each; otherwise it joins the sets of one member.
    pub members_chosen: bool,
    /// Engines of members that join, each as ENGINE or ENGINE:COMPRESSOR.
    pub joining: Vec<Setup>,
}

/// Refuses what is not possible together.
pub fn check(choices: &Choices, options: &Options) -> Result<()> {
    let refuse = |what: &str| Err(Error::Choice(format!("replica-set: {what}")));
    if choices.parts.is_empty() || choices.write_concerns.is_empty() || choices.election_timeouts.is_empty() {
        return refuse("choose one phase, write concern and election time-out at least");
    }
    if options.rate.is_some() && choices.parts != [Part::Insert] {
        return refuse("--rate is for --phases insert alone");
    }
    Ok(())
}

/// Each chosen engine in sets of one and of three members; sets that were chosen as they are.
pub fn setups(chosen: &[Setup]) -> Result<Vec<Setup>> {
    let mut setups = Vec::new();
    for setup in chosen {
        if setup.others.is_some() {
            setups.push(setup.clone());
            continue;
        }
        for members in MEMBERS {
            setups.push(Setup::set_of(vec![setup.clone(); members])?);
        }
    }
    Ok(setups)
}

/// Runs all parts that make sense with this number of members.
pub fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let Some((members, _)) = subject.members() else {
        let what = "this workload starts and kills the members of its sets: leave --uri out";
        return Err(Error::Choice(what.to_owned()));
    };
    let members = members.all().len();
    let does = |part| choices.parts.contains(&part);
    if does(Part::Insert) {
        inserts(context, subject, choices)?;
    }
    if does(Part::InitialSync) && (members == 1 || choices.members_chosen) {
        initial_sync::run(context, subject, choices)?;
    }
    if does(Part::Failover) && members >= FAILOVER_MEMBERS_MIN {
        failover::run(context, subject, choices)?;
    }
    Ok(())
}

fn inserts(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let clients = match context.options.clients {
        Some(clients) => vec![clients],
        None => CLIENTS.to_vec(),
    };
    for &concern in &choices.write_concerns {
        for &clients in &clients {
            insert(context, subject, choices, concern, clients)?;
        }
    }
    Ok(())
}

fn insert(
    context: &mut Context,
    subject: &mut Subject,
    choices: &Choices,
    concern: WriteConcern,
    clients: u32,
) -> Result<()> {
    subject.find_primary()?;
    subject.connect()?.drop_database(DATABASE)?;
    let phase = Phase::timed(NAME, "insert", NAMES, context, DURATION)
        .with("writeConcern", concern.name())
        .with("documentBytes", choices.document_bytes);
    let tally = Arc::new(Tally::default());
    let actor = |_| {
        Box::new(Client {
            tally: Arc::clone(&tally),
            concern,
            seed: context.options.seed,
            field_bytes: field_bytes(choices.document_bytes),
            bytes: 0,
        }) as Box<dyn Actor>
    };
    let actors = (0..clients).map(actor).collect();
    let mut run = measure(context, subject, &phase, actors);
    if run.is_complete() {
        let acknowledged = tally.acknowledged.load(Ordering::Relaxed);
        let begun = tally.next.load(Ordering::Relaxed);
        if let Err(error) = same_everywhere(subject, COLLECTION, acknowledged, begun) {
            run.outcome = outcome(&error);
        }
    }
    context.keep(run)
}

/// Bytes of the field that makes a document as large as was asked for.
fn field_bytes(document_bytes: usize) -> usize {
    // Length, `_id`, the field's name and head, and the end.
    const AROUND: usize = 4 + 13 + 12 + 1;
    document_bytes.saturating_sub(AROUND).max(1)
}

fn put_document(number: u64, seed: u64, field_bytes: usize, message: &mut Message) {
    message.int64("_id", number as i64);
    let mut random = Random::of_part(seed, number);
    message.binary("field", |bytes| random.bytes(field_bytes, bytes));
}

/// All members hold the same documents: so many at least, and at most those that were begun.
fn same_everywhere(subject: &Subject, collection: &str, acknowledged: u64, begun: u64) -> Result<()> {
    let Some((members, primary)) = subject.members() else {
        return Ok(());
    };
    let all: Vec<usize> = (0..members.all().len()).collect();
    members.catch_up(primary, &all, Instant::now())?;
    let counts = all
        .iter()
        .map(|number| count(members, *number, collection))
        .collect::<Result<Vec<u64>>>()?;
    if counts
        .iter()
        .any(|count| *count != counts[0] || !(acknowledged..=begun).contains(count))
    {
        return Err(Error::Protocol(format!(
            "{acknowledged} documents were acknowledged and {begun} sent, and the members have {counts:?}"
        )));
    }
    let digests = all
        .iter()
        .map(|number| digest(members, *number, collection))
        .collect::<Result<Vec<String>>>()?;
    if digests.iter().any(|digest| *digest != digests[0]) {
        return Err(Error::Protocol(format!(
            "the members hold different documents: {digests:?}"
        )));
    }
    Ok(())
}

fn count(members: &Members, number: usize, collection: &str) -> Result<u64> {
    let command = on_any_member(rawdoc! { "count": collection });
    let reply = members.open(number)?.run(DATABASE, &command)?;
    Ok(whole_number(&raw(&reply)?, "n")?.max(0) as u64)
}

/// What `dbHash` says of a collection.
fn digest(members: &Members, number: usize, collection: &str) -> Result<String> {
    let command = on_any_member(rawdoc! { "dbHash": 1, "collections": [collection] });
    let reply = members.open(number)?.run(DATABASE, &command)?;
    let digest = reply
        .get_document("collections")
        .and_then(|all| all.get_str(collection));
    digest
        .map(str::to_owned)
        .map_err(|error| Error::Protocol(format!("dbHash of {collection}: {error}")))
}

/// A command that a secondary answers, too.
fn on_any_member(mut command: RawDocumentBuf) -> RawDocumentBuf {
    command.append(
        bson::raw::cstr!("$readPreference"),
        rawdoc! { "mode": "primaryPreferred" },
    );
    command
}

/// A run that the driver has no part in.
fn blank(context: &Context, subject: &Subject, phase: &str, clients: u32) -> Run {
    let mut run = Run::new(NAME, phase, subject.configuration.clone());
    run.seed = context.options.seed;
    run.repetition = context.repetition;
    run.clients = clients;
    run.started_ms = crate::procfs::now_ms();
    run.notes.clone_from(&subject.notes);
    run.parameters
        .insert("scale".to_owned(), context.options.scale.to_string());
    run
}

/// Keeps a run, which an error has ended or not.
fn keep(context: &mut Context, mut run: Run, result: Result<()>) -> Result<()> {
    if let (Err(error), Outcome::Complete) = (result, &run.outcome) {
        run.outcome = outcome(&error);
    }
    context.keep(run)
}

/// What all clients of a phase share.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    acknowledged: AtomicU64,
}

/// Inserts documents one by one.
struct Client {
    tally: Arc<Tally>,
    concern: WriteConcern,
    seed: u64,
    field_bytes: usize,
    /// Of the document that was begun last.
    bytes: usize,
}

impl Actor for Client {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        let number = self.tally.next.fetch_add(1, Ordering::Relaxed);
        self.bytes = put_insert(message, COLLECTION, self.concern, |message| {
            put_document(number, self.seed, self.field_bytes, message);
        });
        Some(0)
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        if let Some(error) = write_concern_error(reply) {
            return Err(error);
        }
        match affected("insert", reply)? {
            1 => {
                self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
                Ok(Progress::written(self.bytes))
            }
            other => Err(Error::Protocol(format!("an insert of one document inserted {other}"))),
        }
    }
}

/// Encodes an insert of one document. Returns the document's bytes.
fn put_insert(message: &mut Message, collection: &str, concern: WriteConcern, put: impl FnOnce(&mut Message)) -> usize {
    message.begin("insert", collection);
    message.document("writeConcern");
    match concern {
        WriteConcern::One => message.int32("w", 1),
        WriteConcern::Majority => message.string("w", "majority"),
    }
    message.end();
    message.end_body(DATABASE);
    message.begin_sequence("documents");
    message.element();
    put(message);
    let bytes = message.end();
    message.end_sequence();
    bytes
}

/// A write that was done, and not as safely as was asked for.
fn write_concern_error(reply: &RawDocument) -> Option<Error> {
    let error = reply.get_document("writeConcernError").ok()?;
    Some(Error::Refused {
        command: "insert".to_owned(),
        code: error.get_i32("code").unwrap_or(0),
        message: error.get_str("errmsg").unwrap_or("no message").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::parts;

    #[test]
    fn documents_have_the_size_that_was_asked_for() {
        let mut client = Client {
            tally: Arc::default(),
            concern: WriteConcern::Majority,
            seed: 1,
            field_bytes: field_bytes(1000),
            bytes: 0,
        };
        let mut message = Message::new(1);
        for number in 0..2 {
            assert_eq!(client.begin(&mut message), Some(0));
            let (body, documents) = parts(&message);
            let concern = body.get_document("writeConcern").expect("it is there");
            assert_eq!(concern.get_str("w").ok(), Some("majority"));
            assert_eq!((documents.len(), documents[0].as_bytes().len()), (1, 1000));
            assert_eq!(documents[0].get_i64("_id").ok(), Some(number));
        }
        assert_eq!(client.bytes, 1000);
        assert_eq!(field_bytes(0), 1, "there is one byte at least");
    }

    #[test]
    fn what_is_not_safe_is_not_acknowledged() {
        let mut client = Client {
            tally: Arc::default(),
            concern: WriteConcern::One,
            seed: 1,
            field_bytes: 1,
            bytes: 1,
        };
        let mut message = Message::new(1);
        let late = rawdoc! { "n": 1, "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "late" } };
        let error = client.advance(&late, &mut message).expect_err("nobody has it");
        assert!(matches!(error, Error::Refused { code: 64, .. }), "{error}");
        client
            .advance(&rawdoc! { "n": 1, "ok": 1.0 }, &mut message)
            .expect("it is done");
        assert_eq!(client.tally.acknowledged.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn engines_are_measured_in_sets_of_one_and_three() {
        let chosen = [
            Setup::engine("btree"),
            Setup::set_of(vec![Setup::engine("a"), Setup::engine("b")]).expect("a set"),
        ];
        let setups = setups(&chosen).expect("they are sets");
        let labels: Vec<&str> = setups.iter().map(|setup| setup.label.as_str()).collect();
        assert_eq!(labels, ["btree x1", "btree x3", "a+b"]);
    }
}
