//! The load: nodes first, then links with their counts, in unordered batches of 1024, from chunks of 2048 ids that any
//! client may take.
//!
//! Links are upserts and counts replacements, as the ports load them. What is loaded depends on the seed and the id
//! alone.

use super::data::Payload;
use super::graph::{FIRST_LINK_TYPE, Graph, LINK_TYPES};
use super::{COUNTS, DATABASE, Indexes, LINKS, NODES};
use crate::actor::{Actor, Progress, affected};
use crate::error::{Error, Result};
use crate::message::Message;
use crate::random::Random;
use bson::raw::RawDocument;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted in a load.
pub const NAMES: &[&str] = &["addNode", "addLink", "addCount"];
const NODE: usize = 0;
const LINK: usize = 1;
const COUNT: usize = 2;

const BATCH: usize = 1024;
const CHUNK_IDS: u64 = 2048;

/// The type of all nodes.
pub const NODE_TYPE: i32 = 2048;
/// The load's time: links are up to 50 days older. 2016-10-12.
pub const LOAD_MS: i64 = 1_476_230_400_000;

/// Clients that share the load.
pub fn actors(graph: &Arc<Graph>, indexes: Indexes, clients: usize) -> Vec<Box<dyn Actor>> {
    let (nodes, links) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    (0..clients.max(1))
        .map(|_| {
            Box::new(Loader {
                graph: Arc::clone(graph),
                indexes,
                node_data: Payload::nodes(graph.seed()),
                link_data: Payload::links(graph.seed()),
                node_chunks: Arc::clone(&nodes),
                link_chunks: Arc::clone(&links),
                part: Part::Nodes { next: 1, end: 1 },
                counts: Vec::with_capacity(BATCH),
                random: Random::new(0),
                documents: 0,
                bytes: 0,
                kind: NODE,
            }) as Box<dyn Actor>
        })
        .collect()
}

/// The chunk at work.
enum Part {
    Nodes { next: u64, end: u64 },
    Links { at: Place, end: u64 },
}

/// A link by its place in the order of the load.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    index: u64,
    number: u64,
}

struct Loader {
    graph: Arc<Graph>,
    indexes: Indexes,
    node_data: Payload,
    link_data: Payload,
    node_chunks: Arc<AtomicU64>,
    link_chunks: Arc<AtomicU64>,
    part: Part,
    /// Counts of the chunk that have not been sent: id, index of the type, links.
    counts: Vec<(u64, u64, u64)>,
    random: Random,
    documents: u64,
    bytes: usize,
    kind: usize,
}

impl Loader {
    /// The ids of the next chunk, `None` after the last.
    fn take_chunk(&self, chunks: &AtomicU64) -> Option<(u64, u64)> {
        let first = chunks.fetch_add(1, Ordering::Relaxed) * CHUNK_IDS + 1;
        (first <= self.graph.ids()).then(|| (first, (first + CHUNK_IDS).min(self.graph.ids() + 1)))
    }

    fn start(&mut self, command: &str, collection: &str, sequence: &str, message: &mut Message) {
        message.begin(command, collection);
        message.boolean("ordered", false);
        message.end_body(DATABASE);
        message.begin_sequence(sequence);
        self.documents = 0;
        self.bytes = 0;
    }

    fn put_nodes(&mut self, first: u64, end: u64, message: &mut Message) {
        self.start("insert", NODES, "documents", message);
        for id in first..end {
            let mut random = Random::of_part(self.graph.seed() ^ 0x6E6F_6465, id);
            message.element();
            put_node(message, id, (LOAD_MS / 1000) as i32, &self.node_data, &mut random);
            self.bytes += message.end();
        }
        self.documents = end - first;
        self.kind = NODE;
    }

    /// A batch of links from a place on. Returns the place behind it, `None` at the end of the chunk.
    fn put_links(&mut self, mut at: Place, end: u64, message: &mut Message) -> Option<Place> {
        self.start("update", LINKS, "updates", message);
        self.kind = LINK;
        loop {
            if at.id >= end {
                return None;
            }
            let links = self.graph.links_of_type(at.id, at.index);
            if at.number == 0 {
                self.random = Random::of_part(self.graph.seed() ^ at.index, at.id);
            }
            while at.number < links {
                if self.documents as usize == BATCH {
                    return Some(at);
                }
                self.put_link(at, message);
                at.number += 1;
            }
            if links > 0 {
                self.counts.push((at.id, at.index, links));
            }
            at.number = 0;
            at.index += 1;
            if at.index == LINK_TYPES {
                at.index = 0;
                at.id += 1;
            }
        }
    }

    fn put_link(&mut self, at: Place, message: &mut Message) {
        let link_type = FIRST_LINK_TYPE + at.index as i64;
        let (id1, id2) = (at.id as i64, (at.id + at.number) as i64);
        let time = LOAD_MS - (1 << 31) - 1 + i64::from(self.random.next() as i32);
        message.element();
        put_link_filter(message, "q", self.indexes, link_type, id1, id2);
        message.document("u");
        message.document("$setOnInsert");
        if self.indexes == Indexes::Few {
            message.int64("link_type", link_type);
            message.int64("id1", id1);
            message.int64("id2", id2);
        }
        message.binary("data", |bytes| self.link_data.put(&mut self.random, bytes));
        message.int64("time", time);
        message.int32("version", 0);
        self.bytes += message.end();
        message.document("$set");
        message.int32("visibility", 1);
        message.end();
        message.end();
        message.boolean("upsert", true);
        message.end();
        self.documents += 1;
    }

    fn put_counts(&mut self, message: &mut Message) {
        let mut counts = std::mem::take(&mut self.counts);
        self.start("update", COUNTS, "updates", message);
        self.kind = COUNT;
        for (id, index, links) in counts.drain(counts.len().saturating_sub(BATCH)..) {
            let link_type = FIRST_LINK_TYPE + index as i64;
            message.element();
            message.document("q");
            message.int64("id", id as i64);
            message.int64("link_type", link_type);
            message.end();
            message.document("u");
            message.int64("id", id as i64);
            message.int64("link_type", link_type);
            message.int64("count", links as i64);
            message.int64("time", LOAD_MS);
            message.int64("version", 0);
            self.bytes += message.end();
            message.boolean("upsert", true);
            message.end();
            self.documents += 1;
        }
        self.counts = counts;
    }
}

impl Actor for Loader {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        loop {
            match self.part {
                Part::Nodes { next, end } if next < end => {
                    let batch_end = (next + BATCH as u64).min(end);
                    self.put_nodes(next, batch_end, message);
                    self.part = Part::Nodes { next: batch_end, end };
                }
                Part::Nodes { .. } => {
                    self.part = match self.take_chunk(&self.node_chunks) {
                        Some((next, end)) => Part::Nodes { next, end },
                        None => Part::Links {
                            at: Place {
                                id: 1,
                                index: 0,
                                number: 0,
                            },
                            end: 1,
                        },
                    };
                    continue;
                }
                Part::Links { at, end } if at.id < end => {
                    let behind = self.put_links(at, end, message);
                    let behind = behind.unwrap_or(Place {
                        id: end,
                        index: 0,
                        number: 0,
                    });
                    self.part = Part::Links { at: behind, end };
                    if self.documents == 0 {
                        continue;
                    }
                }
                Part::Links { .. } if !self.counts.is_empty() => self.put_counts(message),
                Part::Links { .. } => {
                    let (id, end) = self.take_chunk(&self.link_chunks)?;
                    self.part = Part::Links {
                        at: Place {
                            id,
                            index: 0,
                            number: 0,
                        },
                        end,
                    };
                    continue;
                }
            }
            message.end_sequence();
            return Some(self.kind);
        }
    }

    fn advance(&mut self, reply: &RawDocument, _: &mut Message) -> Result<Progress> {
        let affected = affected("load", reply)?;
        if affected != self.documents {
            return Err(Error::Protocol(format!(
                "{affected} of {} documents were loaded",
                self.documents
            )));
        }
        Ok(Progress::Done {
            count: affected,
            document_bytes: self.bytes as u64,
        })
    }
}

/// The fields of a node.
pub fn put_node(message: &mut Message, id: u64, time_s: i32, data: &Payload, random: &mut Random) {
    message.int64("_id", id as i64);
    message.int32("type", NODE_TYPE);
    message.int64("version", 1);
    message.int32("time", time_s);
    message.binary("data", |bytes| data.put(random, bytes));
}

/// The filter that names one link.
pub fn put_link_filter(message: &mut Message, name: &str, indexes: Indexes, link_type: i64, id1: i64, id2: i64) {
    message.document(name);
    put_link_key(message, indexes, link_type, id1, id2);
    message.end();
}

/// The fields that name one link.
pub fn put_link_key(message: &mut Message, indexes: Indexes, link_type: i64, id1: i64, id2: i64) {
    if indexes == Indexes::Few {
        message.document("_id");
    }
    message.int64("link_type", link_type);
    message.int64("id1", id1);
    message.int64("id2", id2);
    if indexes == Indexes::Few {
        message.end();
    }
}
