//! LinkBench (Armstrong, Ponnekanti, Borthakur, Callaghan, "LinkBench: a database benchmark based on the Facebook
//! social graph", SIGMOD 2013), as its ports to MongoDB run it: nodes, links between them, counts of links; a load and
//! the published mix of ten operations.
//!
//! Two sets of indexes: `covering` is LinkBenchX's, with a seven-field index that holds the links' data; `few` is that
//! of the other port, with compound `_id`s. Each can be run cached, and then I/O-bound: with a small cache, and with
//! the server's memory limited by the system or the pages of its files dropped every second.
//!
//! Where the ports do not keep the counts of links up, this does: one update of the count for each link that appears or
//! disappears.

mod data;
mod graph;
mod loading;
mod request;

use crate::actor::Actor;
use crate::configuration::Setup;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::limits::Wanted;
use crate::measure::{Phase, measure, skip};
use crate::subject::Subject;
use bson::raw::RawDocumentBuf;
use bson::rawdoc;
use graph::Graph;
use request::Tails;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Where everything is.
pub const DATABASE: &str = "linkdb";
const NODES: &str = "node";
const LINKS: &str = "link";
const COUNTS: &str = "count";

/// Nodes at scale 1; the run of 2016 that was cached had two million.
const IDS: u64 = 100_000;
/// The requesters of the port whose indexes are `covering`.
const CLIENTS: u32 = 16;
const DURATION: Duration = Duration::from_secs(60);
/// The cache of an I/O-bound run, as a share of the documents that were loaded: the same for all engines.
const IO_BOUND_CACHE_SHARE: f64 = 0.1;
/// The smallest cache that engines take.
const CACHE_MIN: u64 = 16 << 20;
/// Memory of a limited server beside its cache.
const MEMORY_BESIDE: u64 = 128 << 20;

/// Names of the operations, as published, in the order of their indexes.
pub const NAMES: &[&str] = &[
    "addNode",
    "updateNode",
    "deleteNode",
    "getNode",
    "addLink",
    "deleteLink",
    "updateLink",
    "countLinks",
    "getLink",
    "getLinkList",
];

/// Which indexes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// LinkBenchX's: two big ones on links.
    Covering,
    /// Fewer and smaller ones, compound `_id`s.
    Few,
}

impl Indexes {
    /// The name in choices and results.
    pub fn name(self) -> &'static str {
        match self {
            Indexes::Covering => "covering",
            Indexes::Few => "few",
        }
    }

    /// The indexes to make, with their collections.
    fn commands(self) -> Vec<RawDocumentBuf> {
        let create = |collection: &str, name: &str, key: RawDocumentBuf, unique: bool| {
            let index = rawdoc! { "key": key, "name": name, "unique": unique };
            rawdoc! { "createIndexes": collection, "indexes": [index] }
        };
        match self {
            Indexes::Covering => {
                let all = rawdoc! {
                    "id1": 1, "link_type": 1, "visibility": 1, "time": 1, "id2": 1, "version": 1, "data": 1,
                };
                vec![
                    create(LINKS, "link", rawdoc! { "link_type": 1, "id1": 1, "id2": 1 }, true),
                    create(LINKS, "list", all, false),
                    create(COUNTS, "count", rawdoc! { "id": 1, "link_type": 1 }, true),
                ]
            }
            Indexes::Few => vec![
                create(
                    LINKS,
                    "list",
                    rawdoc! { "id1": 1, "link_type": 1, "time": 1, "visibility": 1 },
                    false,
                ),
                create(COUNTS, "count", rawdoc! { "id": 1, "link_type": 1 }, false),
            ],
        }
    }
}

/// What this workload can be told.
#[derive(Clone, Debug)]
pub struct Choices {
    /// Sets of indexes to run with, one after the other.
    pub indexes: Vec<Indexes>,
    /// Run the queries again, I/O-bound.
    pub io_bound: bool,
}

/// Loads and queries with each set of indexes.
pub fn run(context: &mut Context, subject: &mut Subject, choices: &Choices) -> Result<()> {
    let ids = context.options.scaled(IDS, 1000);
    let graph = Arc::new(Graph::new(ids, context.options.seed));
    for indexes in &choices.indexes {
        run_with(context, subject, &graph, *indexes, choices.io_bound)?;
    }
    Ok(())
}

fn run_with(
    context: &mut Context,
    subject: &mut Subject,
    graph: &Arc<Graph>,
    indexes: Indexes,
    io_bound: bool,
) -> Result<()> {
    let clients = context.options.clients.unwrap_or(CLIENTS) as usize;
    let parameters = |phase: Phase| phase.with("ids", graph.ids()).with("indexes", indexes.name());
    let mut connection = subject.connect()?;
    connection.drop_database(DATABASE)?;
    connection.run(DATABASE, &rawdoc! { "create": NODES })?;
    for command in indexes.commands() {
        connection.run(DATABASE, &command)?;
    }
    drop(connection);
    let phase = parameters(Phase::work("linkbench", "load", loading::NAMES, Some(graph.rows())));
    let run = measure(context, subject, &phase, loading::actors(graph, indexes, clients));
    let document_bytes = run.document_bytes.unwrap_or(0);
    context.keep(run)?;

    let next_node = Arc::new(AtomicU64::new(graph.ids() + 1));
    let tails = Arc::new(Tails::default());
    let requesters = |part: u64| -> Vec<Box<dyn Actor>> {
        let requester = |client| request::Client::new(graph, indexes, &next_node, &tails, part * 10_000 + client);
        (0..clients as u64)
            .map(|client| Box::new(requester(client)) as Box<dyn Actor>)
            .collect()
    };
    let query = |context: &Context| parameters(Phase::timed("linkbench", "query", NAMES, context, DURATION));
    let phase = query(context).with("bound", "cached");
    let run = measure(context, subject, &phase, requesters(0));
    context.keep(run)?;
    if !io_bound {
        return Ok(());
    }
    let mut phase = query(context).with("bound", "io");
    phase.seed = 1;
    phase.drop_pages = true;
    // The cache of a configuration file stays as it is, and memory beside it cannot be known.
    let cache_bytes = subject.setup().file.is_none().then(|| {
        let share = (document_bytes as f64 * IO_BOUND_CACHE_SHARE) as u64;
        share.max(CACHE_MIN).next_multiple_of(1 << 20)
    });
    if let Some(bytes) = cache_bytes {
        phase = phase.with("cacheBytes", bytes);
    }
    if subject.is_own() && subject.setup().has_no_cache() {
        let reason = format!("{} has no cache to limit", subject.configuration.engine);
        return skip(context, subject, &phase, clients, &reason);
    }
    let before = limit(context, subject, cache_bytes)?;
    let mut run = measure(context, subject, &phase, requesters(1));
    let cache = match cache_bytes {
        Some(bytes) => format!("a cache of {} MiB", bytes >> 20),
        None => "the cache of the configuration file".to_owned(),
    };
    run.notes.push(format!(
        "I/O-bound: {cache}, and the clean pages of the server's files dropped from the page cache every second"
    ));
    context.keep(run)?;
    subject.stop()?;
    subject.start_again(Some(&before), subject.limits(), &context.interrupt)
}

/// Starts our own server again, with little cache and memory. Returns the configuration it had.
fn limit(context: &Context, subject: &mut Subject, cache_bytes: Option<u64>) -> Result<Setup> {
    if !subject.is_own() {
        return Err(Error::Choice(
            "an I/O-bound run needs a server of our own: its cache is limited by its configuration".to_owned(),
        ));
    }
    let before = subject.setup().clone();
    let limited = match cache_bytes {
        Some(bytes) => before.clone().with_cache(bytes),
        None => before.clone(),
    };
    let usual = subject.limits();
    let memory = cache_bytes.map(|bytes| bytes + MEMORY_BESIDE);
    let limits = Wanted {
        // The smaller one, if there is one.
        memory_bytes: memory.into_iter().chain(usual.memory_bytes).min(),
        ..usual
    };
    subject.stop()?;
    subject.start_again(Some(&limited), limits, &context.interrupt)?;
    Ok(before)
}

#[cfg(test)]
mod tests;
