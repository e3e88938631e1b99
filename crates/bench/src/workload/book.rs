//! The experiments of "MongoDB in Action", 2nd edition, chapter 10 (Banker et al., Manning 2016): tables 10.3 to 10.5
//! and figure 10.1.
//!
//! Steps: 1. a fresh server; one client inserts documents one by one, in loops; the server stops (table 10.3); 2. the
//! page cache is emptied, the server starts again, one client reads everything so many times, the server stops (tables
//! 10.4 and 10.5); 3. what the chapter says it left out: many clients at once, searches at random, filters. The
//! chapter's own configurations, when they run beside others, have only what its tables show.
//!
//! The chapter drives the server by JavaScript, which takes longer than the server; this client does not, so that times
//! are the server's. `make book` is the version by mongosh.

mod document;

use super::full_read::FullRead;
use crate::actor::{Actor, Progress, affected, batch};
use crate::configuration::Setup;
use crate::context::Context;
use crate::error::{Doing, Error, Result};
use crate::limits;
use crate::measure::{Phase, measure, outcome};
use crate::message::{Message, numbered_id};
use crate::procfs;
use crate::random::Random;
use crate::server::Build;
use crate::subject::Subject;
use bson::raw::RawDocument;
use bson::rawdoc;
use document::put_document;
use report::Run;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Where everything is.
pub const DATABASE: &str = "benchmark";
const COLLECTION: &str = "benchmark";
/// Where the many clients insert.
const SECOND_COLLECTION: &str = "clients";

/// Documents of a loop at scale 1.
const LOOP_DOCUMENTS: u64 = 10_000;
const CLIENTS: u32 = 8;
const DURATION: Duration = Duration::from_secs(15);
/// Documents that a filter may find.
const FILTER_LIMIT: i32 = 20;

/// The configuration files of the chapter.
const FILES: [(&str, &str); 4] = [
    ("mmapv1.conf", include_str!("../../../../book/configs/mmapv1.conf")),
    (
        "wiredtiger-uncompressed.conf",
        include_str!("../../../../book/configs/wiredtiger-uncompressed.conf"),
    ),
    (
        "wiredtiger-snappy.conf",
        include_str!("../../../../book/configs/wiredtiger-snappy.conf"),
    ),
    (
        "wiredtiger-zlib.conf",
        include_str!("../../../../book/configs/wiredtiger-zlib.conf"),
    ),
];

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Loops of inserts, and readings.
    pub loops: u64,
    /// Configurations beside those that were chosen: the chapter's.
    pub besides: Option<Vec<Setup>>,
}

impl Choices {
    /// The chosen configurations and the chapter's.
    pub fn setups(&self, chosen: &[Setup]) -> Vec<Setup> {
        chosen.iter().chain(self.besides.iter().flatten()).cloned().collect()
    }

    /// True for a configuration of the chapter's that nobody chose: it is there for the chapter's tables.
    fn is_besides(&self, subject: &Subject) -> bool {
        let label = &subject.configuration.label;
        self.besides.iter().flatten().any(|setup| setup.label == *label)
    }
}

/// Writes the chapter's files into a directory and reads them as configurations. Left out are those whose engine the
/// build does not have.
pub fn shipped(directory: &Path, build: &Build) -> Result<Vec<Setup>> {
    let has = |engine: &str| build.engines.iter().any(|have| have == engine);
    let folder = directory.join("book");
    fs::create_dir_all(&folder).doing(format!("making {}", folder.display()))?;
    let mut setups = Vec::new();
    for (name, text) in FILES {
        let path: PathBuf = folder.join(name);
        fs::write(&path, text).doing(format!("writing {}", path.display()))?;
        let mut setup = Setup::file(&path)?;
        // With its ending: a file is more than the engine of its name.
        setup.label = name.to_owned();
        // `wiredTiger` in a file means Tenon's B-tree.
        let known = setup.engine.is_empty() || has(&setup.engine) || (setup.engine == "wiredTiger" && has("btree"));
        if known {
            setups.push(setup);
        }
    }
    Ok(setups)
}

/// Runs all of it.
pub fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let documents = context.options.scaled(LOOP_DOCUMENTS, 10) * choices.loops;
    let seed = context.options.seed;
    let parameters = |phase: Phase| phase.with("loops", choices.loops).with("documents", documents);
    subject.connect()?.drop_database(DATABASE)?;
    let started = subject.start_time();

    let next = Arc::new(AtomicU64::new(0));
    let inserter = Inserter::new(COLLECTION, seed, &next, documents);
    let phase = parameters(Phase::work("book", "insert", &["insert"], Some(documents)));
    let mut inserted = measure(context, subject, &phase, vec![Box::new(inserter)]);
    inserted.start_seconds = started.map(|time| time.as_secs_f64());
    stop(subject, &mut inserted);
    context.keep(inserted)?;

    let emptied = restart_cold(context, subject)?;
    let (reader, iterations) = FullRead {
        database: DATABASE,
        collection: COLLECTION,
        times: choices.loops as usize,
        documents,
        cold: emptied.is_some(),
    }
    .actor();
    let started = subject.start_time();
    let phase = parameters(Phase::work("book", "read", &["read"], Some(documents * choices.loops)));
    let mut read = measure(context, subject, &phase, vec![reader]);
    read.iterations = iterations.take();
    read.start_seconds = started.map(|time| time.as_secs_f64());
    read.notes.extend(emptied.map(|emptied| emptied.words().to_owned()));
    stop(subject, &mut read);
    context.keep(read)?;

    if choices.is_besides(subject) {
        return Ok(());
    }
    if subject.is_own() {
        subject.start_again(None, subject.limits(), &context.interrupt)?;
    }
    left_out(context, subject, documents, &parameters)
}

/// Ends our own server and tells how long it took and what it left on the disk. When that fails, or the user wants to
/// stop meanwhile, the run says so: what was measured before is kept.
fn stop(subject: &mut Subject, run: &mut Run) {
    if !run.is_complete() {
        return;
    }
    match subject.stop() {
        Ok(None) => {}
        Ok(Some(time)) => {
            run.stop_seconds = Some(time.as_secs_f64());
            run.file_bytes = subject.data().map(procfs::directory_bytes);
        }
        Err(error) => run.outcome = outcome(&error),
    }
}

/// Starts our own server on an empty page cache. `None`: it is not ours, and nothing is cold.
pub(super) fn restart_cold(context: &Context, subject: &mut Subject) -> Result<Option<limits::Emptied>> {
    let emptied = match subject.data() {
        Some(data) if subject.is_own() => limits::empty_page_cache(data),
        _ => return Ok(None),
    };
    subject.start_again(None, subject.limits(), &context.interrupt)?;
    Ok(Some(emptied))
}

/// Many clients, searches, filters.
fn left_out(
    context: &mut Context,
    subject: &mut Subject,
    documents: u64,
    parameters: &dyn Fn(Phase) -> Phase,
) -> Result<()> {
    let clients = context.options.clients.unwrap_or(CLIENTS) as usize;
    let seed = context.options.seed;
    let finders = |what: Finding| -> Vec<Box<dyn Actor>> {
        (0..clients)
            .map(|client| Box::new(Finder::new(what, documents, seed, client as u64)) as Box<dyn Actor>)
            .collect()
    };
    let phase = parameters(Phase::timed("book", "search", &["search"], context, DURATION));
    let run = measure(context, subject, &phase, finders(Finding::Id));
    context.keep(run)?;

    let index = rawdoc! { "key": { "random_int": 1 }, "name": "random_int_1" };
    let command = rawdoc! { "createIndexes": COLLECTION, "indexes": [index] };
    subject.connect()?.run(DATABASE, &command)?;
    let phase = parameters(Phase::timed("book", "filter", &["filter"], context, DURATION));
    let run = measure(context, subject, &phase, finders(Finding::Indexed));
    context.keep(run)?;
    let phase = parameters(Phase::timed("book", "scanFilter", &["filter"], context, DURATION));
    let run = measure(context, subject, &phase, finders(Finding::Scanned));
    context.keep(run)?;

    // Last, because it leaves as much behind as the server is fast.
    let next = Arc::new(AtomicU64::new(0));
    let inserters = (0..clients)
        .map(|_| Box::new(Inserter::new(SECOND_COLLECTION, seed, &next, u64::MAX)) as Box<dyn Actor>)
        .collect();
    let phase = parameters(Phase::timed("book", "clients", &["insert"], context, DURATION));
    let run = measure(context, subject, &phase, inserters);
    context.keep(run)
}

/// Inserts documents one by one.
struct Inserter {
    collection: &'static str,
    seed: u64,
    next: Arc<AtomicU64>,
    end: u64,
    bytes: usize,
}

impl Inserter {
    fn new(collection: &'static str, seed: u64, next: &Arc<AtomicU64>, end: u64) -> Self {
        Self {
            collection,
            seed,
            next: Arc::clone(next),
            end,
            bytes: 0,
        }
    }
}

impl Actor for Inserter {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.end {
            return None;
        }
        message.begin("insert", self.collection);
        message.boolean("ordered", true);
        message.end_body(DATABASE);
        message.begin_sequence("documents");
        message.element();
        put_document(self.seed, number, message);
        self.bytes = message.end();
        message.end_sequence();
        Some(0)
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        match affected("insert", reply)? {
            1 => Ok(Progress::written(self.bytes)),
            other => Err(Error::Protocol(format!(
                "{other} documents were inserted instead of one"
            ))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// One document by its `_id`.
    Id,
    /// A range of an indexed field.
    Indexed,
    /// Two conditions without an index.
    Scanned,
}

struct Finder {
    what: Finding,
    documents: u64,
    random: Random,
}

impl Finder {
    fn new(what: Finding, documents: u64, seed: u64, client: u64) -> Self {
        Self {
            what,
            documents,
            random: Random::of_part(seed ^ 0xF17D, client),
        }
    }
}

impl Actor for Finder {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        message.begin("find", COLLECTION);
        message.document("filter");
        match self.what {
            Finding::Id => message.object_id("_id", numbered_id(self.random.below(self.documents))),
            Finding::Indexed => {
                message.document("random_int");
                message.int32("$gte", self.random.below(100_000_000) as i32);
                message.end();
            }
            Finding::Scanned => {
                message.int32("random_bool", 1);
                message.document("sub8.int_field");
                // A thousandth of the documents, so that a good part of them is read until the limit is reached.
                let from = self.random.below(99_900_000) as i32;
                message.int32("$gte", from);
                message.int32("$lt", from + 100_000);
                message.end();
            }
        }
        message.end();
        message.int32("limit", if self.what == Finding::Id { 1 } else { FILTER_LIMIT });
        message.boolean("singleBatch", true);
        message.end_body(DATABASE);
        Some(0)
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        let found = batch("find", reply)?;
        if self.what == Finding::Id && found.is_empty() {
            return Err(Error::Lost("a document that was inserted is not found".to_owned()));
        }
        Ok(Progress::READ)
    }
}
