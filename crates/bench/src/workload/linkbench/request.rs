//! The request phase: ten operations in the published mix. Some take several commands, so a client is a small state
//! machine.

use super::data::Payload;
use super::graph::{Access, FIRST_LINK_TYPE, Graph, LINK_TYPES};
use super::loading::{LOAD_MS, NODE_TYPE, put_link_filter, put_link_key, put_node};
use super::{COUNTS, DATABASE, Indexes, LINKS, NODES};
use crate::actor::{Actor, Batch, Progress, affected, batch, expect_ok};
use crate::connection::whole_number;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::random::Random;
use bson::raw::{RawBsonRef, RawDocument};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Indexes of [`super::NAMES`].
const ADD_NODE: usize = 0;
const UPDATE_NODE: usize = 1;
const DELETE_NODE: usize = 2;
const GET_NODE: usize = 3;
const ADD_LINK: usize = 4;
const DELETE_LINK: usize = 5;
const UPDATE_LINK: usize = 6;
const COUNT_LINKS: usize = 7;
const GET_LINK: usize = 8;
const GET_LINK_LIST: usize = 9;

/// Percentages of the operations, by index; they sum up to 100.
pub const MIX: [f64; 10] = [
    2.573_278_9,
    7.366_437,
    1.011_591_4,
    12.932_668_3,
    8.988_660_1,
    2.990_766_4,
    8.012_212_5,
    4.886_356_7,
    0.526_114_2,
    50.711_914_5,
];

/// Links that a list has at most.
const LIST_LIMIT: i32 = 10_000;
/// The share of lists that go on where an earlier one had reached its limit.
const HISTORY_SHARE: f64 = 0.003;
/// Earlier lists that are remembered.
const TAILS_MAX: usize = 2048;
/// Ids of a multiget are geometric with this parameter.
const MULTIGET_P: f64 = 0.382;
const MULTIGET_MAX: usize = 128;
/// Shares of links that an operation finds.
const ADD_EXISTING: f64 = 0.05;
const CHANGE_EXISTING: f64 = 0.9;
const MULTIGET_EXISTING: f64 = 0.5;

/// Lists that had reached their limit: id, link type, the last time seen.
#[derive(Debug, Default)]
pub struct Tails(Mutex<VecDeque<(u64, i64, i64)>>);

impl Tails {
    fn add(&self, tail: (u64, i64, i64)) {
        let mut tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tails.push_back(tail);
        if tails.len() > TAILS_MAX {
            tails.pop_front();
        }
    }

    fn choose(&self, random: &mut Random) -> Option<(u64, i64, i64)> {
        let tails = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tails.is_empty() {
            return None;
        }
        tails.get(random.below(tails.len() as u64) as usize).copied()
    }
}

/// A requester.
pub struct Client {
    graph: Arc<Graph>,
    indexes: Indexes,
    next_node: Arc<AtomicU64>,
    tails: Arc<Tails>,
    random: Random,
    link_data: Payload,
    node_data: Payload,
    operation: usize,
    /// Which command of the operation is under way.
    step: u32,
    link_type: i64,
    id1: u64,
    id2: u64,
    others: Vec<u64>,
    /// A list goes back to before this time.
    time_max: i64,
    listed: i32,
    bytes: usize,
    now_ms: i64,
}

impl Client {
    /// Client `number` of a run.
    pub fn new(
        graph: &Arc<Graph>,
        indexes: Indexes,
        next_node: &Arc<AtomicU64>,
        tails: &Arc<Tails>,
        number: u64,
    ) -> Self {
        Self {
            graph: Arc::clone(graph),
            indexes,
            next_node: Arc::clone(next_node),
            tails: Arc::clone(tails),
            random: Random::of_part(graph.seed() ^ 0x7265_7175, number),
            link_data: Payload::links(graph.seed()),
            node_data: Payload::nodes(graph.seed()),
            operation: 0,
            step: 0,
            link_type: FIRST_LINK_TYPE,
            id1: 1,
            id2: 1,
            others: Vec::with_capacity(MULTIGET_MAX),
            time_max: i64::MAX,
            listed: 0,
            bytes: 0,
            now_ms: LOAD_MS,
        }
    }

    /// An operation by the published shares.
    fn choose_operation(&mut self) -> usize {
        let mut left = self.random.unit() * 100.0;
        for (operation, share) in MIX.iter().enumerate() {
            if left < *share {
                return operation;
            }
            left -= share;
        }
        GET_LINK_LIST
    }

    fn choose_link(&mut self, access: Access, existing: f64) {
        let index = self.random.below(LINK_TYPES);
        self.link_type = FIRST_LINK_TYPE + index as i64;
        self.id1 = self.graph.choose(access, &mut self.random);
        self.id2 = self.graph.choose_other(self.id1, index, existing, &mut self.random);
    }

    fn begin_update(&self, collection: &str, message: &mut Message) {
        message.begin("update", collection);
        message.end_body(DATABASE);
        message.begin_sequence("updates");
        message.element();
    }

    fn end_update(&self, message: &mut Message) {
        message.end();
        message.end_sequence();
    }

    fn end_find(&self, limit: i32, message: &mut Message) {
        message.int32("limit", limit);
        message.end_body(DATABASE);
    }

    // ---- nodes

    fn add_node(&mut self, message: &mut Message) {
        let id = self.next_node.fetch_add(1, Ordering::Relaxed);
        message.begin("insert", NODES);
        message.end_body(DATABASE);
        message.begin_sequence("documents");
        message.element();
        put_node(
            message,
            id,
            (self.now_ms / 1000) as i32,
            &self.node_data,
            &mut self.random,
        );
        self.bytes = message.end();
        message.end_sequence();
    }

    fn update_node(&mut self, message: &mut Message) {
        let id = self.graph.choose(Access::NodeUpdate, &mut self.random);
        self.begin_update(NODES, message);
        message.document("q");
        message.int64("_id", id as i64);
        message.int32("type", NODE_TYPE);
        message.end();
        message.document("u");
        message.document("$set");
        message.int64("version", 2);
        message.int32("time", (self.now_ms / 1000) as i32);
        message.binary("data", |bytes| self.node_data.put(&mut self.random, bytes));
        self.bytes = message.end();
        message.end();
        self.end_update(message);
    }

    fn delete_node(&mut self, message: &mut Message) {
        let id = self.graph.choose(Access::NodeDelete, &mut self.random);
        message.begin("delete", NODES);
        message.end_body(DATABASE);
        message.begin_sequence("deletes");
        message.element();
        message.document("q");
        message.int64("_id", id as i64);
        message.int32("type", NODE_TYPE);
        message.end();
        message.int32("limit", 1);
        message.end();
        message.end_sequence();
    }

    fn get_node(&mut self, message: &mut Message) {
        let id = self.graph.choose(Access::NodeRead, &mut self.random);
        message.begin("find", NODES);
        message.document("filter");
        message.int64("_id", id as i64);
        message.end();
        self.end_find(1, message);
    }

    // ---- links

    /// Adds a link, unless it is there.
    fn upsert_link(&mut self, message: &mut Message) {
        let (id1, id2) = (self.id1 as i64, self.id2 as i64);
        self.begin_update(LINKS, message);
        put_link_filter(message, "q", self.indexes, self.link_type, id1, id2);
        message.document("u");
        message.document("$setOnInsert");
        if self.indexes == Indexes::Few {
            message.int64("link_type", self.link_type);
            message.int64("id1", id1);
            message.int64("id2", id2);
        }
        self.put_link_value(message);
        self.bytes = message.end();
        message.document("$set");
        message.int32("visibility", 1);
        message.end();
        message.end();
        message.boolean("upsert", true);
        self.end_update(message);
    }

    fn put_link_value(&mut self, message: &mut Message) {
        message.binary("data", |bytes| self.link_data.put(&mut self.random, bytes));
        message.int64("time", self.now_ms);
        message.int32("version", 0);
    }

    /// Gives a link that is there new data. It stays hidden if another client has hidden it meanwhile, and counted
    /// that.
    fn set_link(&mut self, message: &mut Message) {
        self.begin_update(LINKS, message);
        put_link_filter(
            message,
            "q",
            self.indexes,
            self.link_type,
            self.id1 as i64,
            self.id2 as i64,
        );
        message.document("u");
        message.document("$set");
        self.put_link_value(message);
        self.bytes = message.end();
        message.end();
        self.end_update(message);
    }

    /// One link more or less.
    fn change_count(&mut self, difference: i64, message: &mut Message) {
        self.begin_update(COUNTS, message);
        message.document("q");
        message.int64("id", self.id1 as i64);
        message.int64("link_type", self.link_type);
        message.end();
        message.document("u");
        message.document("$inc");
        message.int64("count", difference);
        message.int64("version", 1);
        message.end();
        message.document("$set");
        message.int64("time", self.now_ms);
        message.end();
        message.end();
        message.boolean("upsert", true);
        self.end_update(message);
    }

    fn find_link(&mut self, message: &mut Message) {
        message.begin("find", LINKS);
        put_link_filter(
            message,
            "filter",
            self.indexes,
            self.link_type,
            self.id1 as i64,
            self.id2 as i64,
        );
        self.end_find(1, message);
    }

    /// Hides a link if it is visible still: of two clients that delete it only one takes it off the count.
    fn hide_link(&mut self, message: &mut Message) {
        self.begin_update(LINKS, message);
        message.document("q");
        put_link_key(message, self.indexes, self.link_type, self.id1 as i64, self.id2 as i64);
        message.int32("visibility", 1);
        message.end();
        message.document("u");
        message.document("$set");
        message.int32("visibility", 0);
        self.bytes = message.end();
        message.end();
        self.end_update(message);
    }

    fn count_links(&mut self, message: &mut Message) {
        message.begin("find", COUNTS);
        message.document("filter");
        message.int64("id", self.id1 as i64);
        message.int64("link_type", self.link_type);
        message.end();
        self.end_find(1, message);
    }

    // ---- several links

    fn choose_others(&mut self) {
        let index = (self.link_type - FIRST_LINK_TYPE) as u64;
        self.others.clear();
        self.others.push(self.id2);
        while self.others.len() < MULTIGET_MAX && !self.random.chance(MULTIGET_P) {
            let other = self
                .graph
                .choose_other(self.id1, index, MULTIGET_EXISTING, &mut self.random);
            self.others.push(other);
        }
    }

    fn put_others_filter(&self, name: &str, message: &mut Message) {
        message.document(name);
        if self.indexes == Indexes::Covering {
            message.int64("id1", self.id1 as i64);
            message.int64("link_type", self.link_type);
        }
        message.document(if self.indexes == Indexes::Covering {
            "id2"
        } else {
            "_id"
        });
        message.array("$in");
        for (index, id2) in (0..).zip(&self.others) {
            if self.indexes == Indexes::Covering {
                message.int64_at(index, *id2 as i64);
                continue;
            }
            message.document_at(index);
            message.int64("link_type", self.link_type);
            message.int64("id1", self.id1 as i64);
            message.int64("id2", *id2 as i64);
            message.end();
        }
        message.end();
        message.end();
        message.end();
    }

    fn choose_list(&mut self) {
        self.time_max = i64::MAX;
        self.listed = 0;
        if self.random.chance(HISTORY_SHARE)
            && let Some((id1, link_type, time)) = self.tails.choose(&mut self.random)
        {
            (self.id1, self.link_type, self.time_max) = (id1, link_type, time - 1);
            return;
        }
        self.id1 = self.graph.choose(Access::LinkRead, &mut self.random);
        self.link_type = FIRST_LINK_TYPE + self.random.below(LINK_TYPES) as i64;
    }

    fn put_list_filter(&self, name: &str, message: &mut Message) {
        message.document(name);
        message.int64("id1", self.id1 as i64);
        message.int64("link_type", self.link_type);
        message.int32("visibility", 1);
        message.document("time");
        message.int64("$gte", 0);
        message.int64("$lte", self.time_max);
        message.end();
        message.end();
    }

    fn find_list(&self, message: &mut Message) {
        message.begin("find", LINKS);
        self.put_list_filter("filter", message);
        message.document("sort");
        message.int32("time", -1);
        message.end();
        self.end_find(LIST_LIMIT, message);
    }

    /// Takes a batch of a list; asks for the next if there is one.
    fn take_list(&mut self, found: &Batch<'_>, message: &mut Message) -> Result<Progress> {
        self.listed += found.len() as i32;
        if found.cursor != 0 {
            message.begin_get_more(found.cursor, LINKS);
            message.end_body(DATABASE);
            return Ok(Progress::Next);
        }
        if self.listed >= LIST_LIMIT
            && let Some(Ok(RawBsonRef::Document(last))) = found.documents.into_iter().last()
            && let Ok(time) = last.get_i64("time")
        {
            self.tails.add((self.id1, self.link_type, time));
        }
        Ok(Progress::READ)
    }

    /// Begins the `count` command that goes with a find: drivers' `size()` of a cursor.
    fn count_command(&self, limit: i32, put_filter: impl FnOnce(&Self, &mut Message), message: &mut Message) {
        message.begin("count", LINKS);
        put_filter(self, message);
        if limit > 0 {
            message.int32("limit", limit);
        }
        message.end_body(DATABASE);
    }

    // ---- operations of several commands

    /// Steps: 0 the upsert, 1 the new data of a link that was there, 2 the count.
    fn advance_add(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        let counted = affected("update", reply)?;
        match self.step {
            0 => {
                if counted != 1 {
                    return Err(Error::Protocol(format!("an upsert affected {counted} documents")));
                }
                let is_new = matches!(reply.get("upserted"), Ok(Some(_)));
                let was_hidden = !is_new && modified(reply)? == 1;
                // 3: there and visible, so the count stays.
                self.step = if is_new {
                    2
                } else if was_hidden {
                    1
                } else {
                    3
                };
                if is_new {
                    self.change_count(1, message);
                } else {
                    self.set_link(message);
                }
                Ok(Progress::Next)
            }
            1 => {
                self.step = 2;
                self.change_count(1, message);
                Ok(Progress::Next)
            }
            _ => Ok(Progress::written(self.bytes)),
        }
    }

    /// Steps: 0 the find, 1 hiding, 2 the count.
    fn advance_delete(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        match self.step {
            0 => {
                let found = batch("find", reply)?;
                let visible = found
                    .documents
                    .get_document(0)
                    .and_then(|link| link.get_i32("visibility"));
                if visible.ok() != Some(1) {
                    return Ok(Progress::READ);
                }
                self.step = 1;
                self.hide_link(message);
                Ok(Progress::Next)
            }
            1 => {
                affected("update", reply)?;
                if modified(reply)? == 0 {
                    return Ok(Progress::READ);
                }
                self.step = 2;
                self.change_count(-1, message);
                Ok(Progress::Next)
            }
            _ => affected("update", reply).map(|_| Progress::written(self.bytes)),
        }
    }

    /// Steps: 0 the count, 1 the find and what follows of it.
    fn advance_list(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        if self.step == 0 {
            expect_ok("count", reply)?;
            self.step = 1;
            if self.operation == GET_LINK {
                message.begin("find", LINKS);
                self.put_others_filter("filter", message);
                message.end_body(DATABASE);
            } else {
                self.find_list(message);
            }
            return Ok(Progress::Next);
        }
        let found = batch("find", reply)?;
        if self.operation == GET_LINK {
            return Ok(Progress::READ);
        }
        self.take_list(&found, message)
    }
}

fn modified(reply: &RawDocument) -> Result<i64> {
    whole_number(reply, "nModified")
}

impl Actor for Client {
    fn begin(&mut self, message: &mut Message) -> Option<usize> {
        self.operation = self.choose_operation();
        self.step = 0;
        self.bytes = 0;
        self.now_ms += 1;
        match self.operation {
            ADD_NODE => self.add_node(message),
            UPDATE_NODE => self.update_node(message),
            DELETE_NODE => self.delete_node(message),
            GET_NODE => self.get_node(message),
            ADD_LINK => {
                self.choose_link(Access::LinkWrite, ADD_EXISTING);
                self.upsert_link(message);
            }
            UPDATE_LINK => {
                self.choose_link(Access::LinkWrite, CHANGE_EXISTING);
                self.upsert_link(message);
            }
            DELETE_LINK => {
                self.choose_link(Access::LinkWrite, CHANGE_EXISTING);
                self.find_link(message);
            }
            COUNT_LINKS => {
                self.choose_link(Access::LinkRead, 1.0);
                self.count_links(message);
            }
            GET_LINK => {
                self.choose_link(Access::LinkRead, MULTIGET_EXISTING);
                self.choose_others();
                self.count_command(0, |client, message| client.put_others_filter("query", message), message);
            }
            _ => {
                self.choose_list();
                self.count_command(
                    LIST_LIMIT,
                    |client, message| client.put_list_filter("query", message),
                    message,
                );
            }
        }
        Some(self.operation)
    }

    fn advance(&mut self, reply: &RawDocument, message: &mut Message) -> Result<Progress> {
        match self.operation {
            ADD_NODE => affected("insert", reply).map(|_| Progress::written(self.bytes)),
            UPDATE_NODE => affected("update", reply).map(|_| Progress::written(self.bytes)),
            DELETE_NODE => affected("delete", reply).map(|_| Progress::READ),
            // A node may have been deleted, a count may never have been there.
            GET_NODE | COUNT_LINKS => batch("find", reply).map(|_| Progress::READ),
            ADD_LINK | UPDATE_LINK => self.advance_add(reply, message),
            DELETE_LINK => self.advance_delete(reply, message),
            _ => self.advance_list(reply, message),
        }
    }
}
