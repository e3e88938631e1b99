//! Requests that wait for an event without a thread.

use super::{Bench, code, succeeded};
use crate::request::Resume;
use crate::{Client, Request};
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A client's request that may be put off.
pub(super) struct Asked<'b> {
    bench: &'b Bench,
    client: Arc<Client>,
    body: RawDocumentBuf,
    has_reply: bool,
    is_too_many: bool,
    is_resumed: bool,
    called: Arc<AtomicUsize>,
}

impl<'b> Asked<'b> {
    pub(super) fn new(bench: &'b Bench, database: &str, mut command: Document) -> Self {
        command.insert("$db", database);
        Self {
            bench,
            client: bench.server.connect(crate::Peer::Tcp("127.0.0.1:4".into(), None)),
            body: RawDocumentBuf::try_from(&command).unwrap(),
            has_reply: true,
            is_too_many: false,
            is_resumed: false,
            called: Arc::default(),
        }
    }

    /// Nobody waits for its reply.
    pub(super) fn without_reply(self) -> Self {
        Self {
            has_reply: false,
            ..self
        }
    }

    /// It comes when too many wait for a thread.
    pub(super) fn too_many(self) -> Self {
        Self {
            is_too_many: true,
            ..self
        }
    }

    pub(super) fn client(&self) -> Arc<Client> {
        self.client.clone()
    }

    /// The reply, or nothing while it waits.
    pub(super) fn answer(&mut self) -> Option<Document> {
        let called = self.called.clone();
        let resume = || -> Resume {
            let called = called.clone();
            Box::new(move || {
                called.fetch_add(1, Ordering::SeqCst);
            })
        };
        let request = Request {
            resume: Some(&resume),
            has_reply: self.has_reply,
            is_too_many: self.is_too_many,
            is_resumed: self.is_resumed,
            ..Request::of(&self.body)
        };
        let mut reply = Vec::new();
        let outcome = self.bench.server.handle(&self.client, &request, &mut reply);
        self.is_resumed = outcome.put_off;
        (!outcome.put_off).then(|| {
            let mut reply = Document::try_from(RawDocument::from_bytes(&reply).unwrap()).unwrap();
            reply.remove("$clusterTime");
            reply.remove("operationTime");
            reply
        })
    }

    /// How often it was called to go on.
    pub(super) fn called(&self) -> usize {
        self.called.load(Ordering::SeqCst)
    }
}

fn hello(version: &Bson, patience_ms: i64) -> Document {
    doc! { "hello": 1, "topologyVersion": version.clone(), "maxAwaitTimeMS": patience_ms }
}

#[test]
fn a_hello_waits_until_the_set_changes_or_its_patience_is_over() {
    let bench = Bench::member(true);
    let version = |reply: &Document| reply.get("topologyVersion").cloned().unwrap();
    let now = version(&succeeded(bench.admin(doc! { "hello": 1 })));
    let (mut patient, mut hasty) = (
        Asked::new(&bench, "admin", hello(&now, 10_000)),
        Asked::new(&bench, "admin", hello(&now, 1_000)),
    );
    assert!(patient.answer().is_none() && hasty.answer().is_none());
    let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
    let connections = status.get_document("connections").unwrap();
    assert_eq!(connections.get_i32("awaitingTopologyChanges").ok(), Some(2));
    bench.clock.advance(Duration::from_secs(1));
    bench.server.end_late();
    assert_eq!((patient.called(), hasty.called()), (0, 1));
    assert_eq!(version(&hasty.answer().unwrap()), now);
    // Called without a reason it waits on, as long as it would have.
    assert!(patient.answer().is_none());
    let reply = succeeded(bench.admin(doc! { "replSetGetConfig": 1 }));
    let mut config = reply.get_document("config").unwrap().clone();
    config.insert("version", config.get_i32("version").unwrap() + 1);
    succeeded(bench.admin(doc! { "replSetReconfig": config }));
    assert_eq!(patient.called(), 1);
    let told = patient.answer().unwrap();
    assert_ne!(version(&told), now);
    assert_eq!(told.get_i32("setVersion").ok(), Some(2));
}

/// One request without patience made replies as fast as its client read them, each at once.
#[test]
fn a_chain_of_hellos_waits_between_its_replies() {
    let bench = Bench::member(true);
    let now = bench
        .admin(doc! { "hello": 1 })
        .get("topologyVersion")
        .cloned()
        .unwrap();
    let mut body = hello(&now, 0);
    body.insert("$db", "admin");
    let body = RawDocumentBuf::try_from(&body).unwrap();
    let resume = || -> Resume { Box::new(|| {}) };
    let ask = |is_repeated: bool, is_resumed: bool| {
        let request = Request {
            exhaust_allowed: true,
            is_repeated,
            is_resumed,
            resume: Some(&resume),
            ..Request::of(&body)
        };
        bench.server.handle(&bench.client, &request, &mut Vec::new())
    };
    let first = ask(false, false);
    assert!(first.more_to_come && !first.put_off);
    assert!(ask(true, false).put_off);
    bench.clock.advance(Duration::from_millis(99));
    assert!(ask(true, true).put_off);
    bench.clock.advance(Duration::from_millis(1));
    let next = ask(true, true);
    assert!(next.more_to_come && !next.put_off);
}

fn cursor_of(reply: &Document) -> (i64, usize) {
    let cursor = reply.get_document("cursor").unwrap();
    let batch = cursor
        .get_array("firstBatch")
        .or_else(|_| cursor.get_array("nextBatch"));
    (cursor.get_i64("id").unwrap(), batch.unwrap().len())
}

fn tail(bench: &Bench) -> i64 {
    bench.ok(doc! { "create": "c", "capped": true, "size": 100_000 });
    bench.insert("c", &[doc! { "_id": 1 }]);
    let reply = bench.ok(doc! { "find": "c", "tailable": true, "awaitData": true });
    cursor_of(&reply).0
}

fn more(id: i64) -> Document {
    doc! { "getMore": id, "collection": "c", "maxTimeMS": 5_000 }
}

#[test]
fn a_tail_waits_for_documents() {
    let bench = Bench::new();
    let id = tail(&bench);
    let mut waits = Asked::new(&bench, "test", more(id));
    assert!(waits.answer().is_none());
    let running = succeeded(bench.admin(doc! { "currentOp": 1, "cursor.cursorId": id }));
    let [Bson::Document(shown)] = &running.get_array("inprog").unwrap()[..] else {
        panic!("one operation uses it: {running}")
    };
    let cursor = shown.get_document("cursor").unwrap();
    let originating = cursor.get_document("originatingCommand").unwrap();
    assert_eq!(originating.get_str("find").ok(), Some("c"));
    assert_eq!(cursor.get_bool("awaitData").ok(), Some(true));
    assert_eq!(bench.code(more(id)), 143, "nobody else may use its cursor");
    bench.insert("c", &[doc! { "_id": 2 }, doc! { "_id": 3 }]);
    assert_eq!(waits.called(), 1);
    assert_eq!(cursor_of(&succeeded(waits.answer().unwrap())), (id, 2));
    // In vain, and once more.
    let mut waits = Asked::new(&bench, "test", more(id));
    assert!(waits.answer().is_none());
    bench.clock.advance(Duration::from_secs(5));
    bench.server.end_late();
    assert_eq!(waits.called(), 1);
    assert_eq!(cursor_of(&succeeded(waits.answer().unwrap())), (id, 0));
}

/// An idle server with an open change stream, or with nothing but drivers' monitors, looked slow and busy.
#[test]
fn a_wait_for_news_is_neither_latency_nor_use() {
    let bench = Bench::member(true);
    let id = tail(&bench);
    let version = bench
        .admin(doc! { "hello": 1 })
        .get("topologyVersion")
        .cloned()
        .unwrap();
    let mut monitor = Asked::new(&bench, "admin", hello(&version, 5_000));
    let mut waits = Asked::new(&bench, "test", more(id));
    assert!(monitor.answer().is_none() && waits.answer().is_none());
    // Called too early it waits on.
    bench.clock.advance(Duration::from_secs(2));
    assert!(waits.answer().is_none());
    bench.clock.advance(Duration::from_secs(3));
    bench.server.end_late();
    succeeded(monitor.answer().unwrap());
    succeeded(waits.answer().unwrap());
    let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
    let latencies = status.get_document("opLatencies").unwrap();
    for kind in ["reads", "commands"] {
        let kind = latencies.get_document(kind).unwrap();
        assert!(kind.get_i64("ops").unwrap() > 0);
        assert_eq!(kind.get_i64("latency").ok(), Some(0), "{latencies}");
    }
    let top = succeeded(bench.admin(doc! { "top": 1 }));
    let used = top.get_document("totals").unwrap().get_document("test.c").unwrap();
    let used = used.get_document("getmore").unwrap();
    assert_eq!(
        (used.get_i64("time").ok(), used.get_i64("count").ok()),
        (Some(0), Some(1))
    );
}

#[test]
fn what_waits_is_killed_like_what_runs() {
    let bench = Bench::new();
    let id = tail(&bench);
    let mut waits = Asked::new(&bench, "test", more(id));
    assert!(waits.answer().is_none());
    bench.ok(doc! { "killCursors": "c", "cursors": [id] });
    // What it waits for comes before it hears of its end.
    bench.insert("c", &[doc! { "_id": 2 }]);
    bench.server.end_late();
    assert_eq!(waits.called(), 1);
    assert_eq!(code(&waits.answer().unwrap()), 237);
    assert_eq!(bench.code(more(id)), 43);
    // The other end goes away: the cursor goes with it.
    let reply = bench.ok(doc! { "find": "c", "tailable": true, "awaitData": true });
    let (id, _) = cursor_of(&reply);
    let mut waits = Asked::new(&bench, "test", more(id));
    assert!(waits.answer().is_none());
    bench.server.disconnect(&waits.client);
    bench.server.end_late();
    assert_eq!(code(&waits.answer().unwrap()), 11601);
    assert_eq!(bench.code(more(id)), 43);
    // The collection is dropped.
    let reply = bench.ok(doc! { "find": "c", "tailable": true, "awaitData": true });
    let mut waits = Asked::new(&bench, "test", more(cursor_of(&reply).0));
    assert!(waits.answer().is_none());
    bench.ok(doc! { "drop": "c" });
    bench.server.end_late();
    assert_eq!(waits.called(), 1);
    assert!(waits.answer().is_some());
}

/// A request that waited and is refused when it goes on gives its cursor back.
#[test]
fn who_is_refused_after_waiting_leaves_no_cursor_in_use() {
    let bench = Bench::guarded();
    bench.ok(doc! { "create": "c", "capped": true, "size": 100_000 });
    bench.insert("c", &[doc! { "_id": 1 }]);
    let eve = bench.user("eve", &[doc! { "role": "read", "db": "test" }.into()]);
    let reply = succeeded(bench.run_as(&eve, "test", doc! { "find": "c", "tailable": true, "awaitData": true }));
    let mut waits = Asked::new(&bench, "test", more(cursor_of(&reply).0));
    waits.client = eve;
    assert!(waits.answer().is_none());
    assert_eq!(bench.server.cursors.counts().pinned, 1);
    bench.ok(doc! { "dropUser": "eve" });
    bench.insert("c", &[doc! { "_id": 2 }]);
    assert_eq!(code(&waits.answer().unwrap()), 13);
    let counts = bench.server.cursors.counts();
    assert_eq!((counts.pinned, counts.total), (0, 1));
    bench.clock.advance(Duration::from_secs(600));
    bench.server.tick();
    assert_eq!(bench.server.cursors.counts().total, 0, "it ends as others do");
}

/// The number that is shown is the number that kills, however many operations there were.
#[test]
fn operations_are_killed_by_the_number_that_is_shown() {
    let bench = Bench::new();
    bench.server.next_operation.store(u32::MAX / 2 + 10, Ordering::SeqCst);
    let mut waits = Asked::new(&bench, "test", more(tail(&bench)));
    assert!(waits.answer().is_none());
    let running = succeeded(bench.admin(doc! { "currentOp": 1, "command.getMore": { "$exists": true } }));
    let [Bson::Document(shown)] = &running.get_array("inprog").unwrap()[..] else {
        panic!("one waits: {running}")
    };
    let number = shown.get_i32("opid").unwrap();
    assert!(number >= 0, "{number}");
    succeeded(bench.admin(doc! { "killOp": 1, "op": number }));
    bench.server.end_late();
    assert_eq!(code(&waits.answer().unwrap()), 11601);
}

/// Nobody else was to get what is left of it.
#[test]
fn a_cursor_that_a_connection_streams_ends_with_it() {
    let bench = Bench::new();
    bench.insert("c", &[doc! {}, doc! {}, doc! {}, doc! {}]);
    let open = || cursor_of(&bench.ok(doc! { "find": "c", "batchSize": 1 })).0;
    let (streamed, asked_for) = (open(), open());
    let client = bench.stranger();
    for (id, exhaust_allowed) in [(streamed, true), (asked_for, false)] {
        let body = bson::rawdoc! { "getMore": id, "collection": "c", "batchSize": 1, "$db": "test" };
        let request = Request {
            exhaust_allowed,
            ..Request::of(&body)
        };
        let outcome = bench.server.handle(&client, &request, &mut Vec::new());
        assert_eq!(outcome.more_to_come, exhaust_allowed);
    }
    bench.server.disconnect(&client);
    let more = |id: i64| bench.run(doc! { "getMore": id, "collection": "c", "batchSize": 1 });
    assert_eq!(code(&more(streamed)), 43);
    succeeded(more(asked_for));
}

#[test]
fn a_change_stream_waits_for_what_is_on_disk() {
    let bench = Bench::member(true);
    bench.ok(doc! { "create": "c" });
    bench
        .server
        .storage
        .wait_durable(bench.server.storage.last_seq())
        .unwrap();
    let reply = bench.ok(doc! { "aggregate": "c", "pipeline": [{ "$changeStream": {} }], "cursor": {} });
    let (id, _) = cursor_of(&reply);
    let mut waits = Asked::new(&bench, "test", more(id));
    assert!(waits.answer().is_none());
    bench.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": { "w": 1 } });
    // It took effect; whether it stays is not known.
    while waits.called() > 0 {
        waits.called.store(0, Ordering::SeqCst);
        assert!(waits.answer().is_none());
    }
    bench
        .server
        .storage
        .wait_durable(bench.server.storage.last_seq())
        .unwrap();
    assert_eq!(waits.called(), 1);
    assert_eq!(cursor_of(&succeeded(waits.answer().unwrap())), (id, 1));
}

/// A `getMore` that may not say for how long it waits ended its cursor, and the next one found none.
#[test]
fn a_request_for_more_that_is_refused_leaves_its_cursor() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]);
    let (id, _) = cursor_of(&bench.ok(doc! { "find": "c", "batchSize": 1 }));
    assert_eq!(bench.code(more(id)), 2);
    assert_eq!(cursor_of(&bench.ok(doc! { "getMore": id, "collection": "c" })), (0, 2));
    for id in [bson::Bson::Int32(1), 1.5.into()] {
        assert_eq!(bench.code(doc! { "killCursors": "c", "cursors": [id] }), 14);
    }
}

/// Drivers asked a server alone again and again, as it told them of no topology to wait for a change of.
#[test]
fn a_hello_waits_at_a_server_alone_too() {
    let bench = Bench::new();
    let told = succeeded(bench.admin(doc! { "hello": 1 }));
    let now = told.get("topologyVersion").cloned().unwrap();
    assert_eq!(told.get_bool("isWritablePrimary").ok(), Some(true));
    let mut monitor = Asked::new(&bench, "admin", hello(&now, 10_000));
    assert!(monitor.answer().is_none());
    bench.clock.advance(Duration::from_secs(10));
    bench.server.end_late();
    assert_eq!(monitor.called(), 1);
    assert_eq!(succeeded(monitor.answer().unwrap()).get("topologyVersion"), Some(&now));
    // What another process told is no reason to wait, and what nobody told none to believe.
    let process = bson::oid::ObjectId::from_bytes([7; 12]);
    let of_another: Bson = doc! { "processId": process, "counter": 0_i64 }.into();
    let mut newcomer = Asked::new(&bench, "admin", hello(&of_another, 10_000));
    assert_eq!(newcomer.answer().unwrap().get("topologyVersion"), Some(&now));
    let own = now.as_document().unwrap().get_object_id("processId").unwrap();
    let ahead: Bson = doc! { "processId": own, "counter": 1_i64 }.into();
    assert_eq!(code(&bench.admin(hello(&ahead, 10_000))), 31382);
    // Nothing waits for longer than its connection lasts, nor for ever.
    for has_reply in [true, false] {
        let monitor = Asked::new(&bench, "admin", hello(&now, 1 << 62));
        let mut monitor = if has_reply { monitor } else { monitor.without_reply() };
        assert!(monitor.answer().is_none());
        bench.server.abandon(&monitor.client());
        bench.server.end_late();
        assert_eq!((monitor.called(), code(&monitor.answer().unwrap())), (1, 11601));
    }
    let mut monitor = Asked::new(&bench, "admin", hello(&now, 1 << 62));
    assert!(monitor.answer().is_none());
    bench.clock.advance(Duration::from_secs(600));
    bench.server.end_late();
    assert_eq!(succeeded(monitor.answer().unwrap()).get("topologyVersion"), Some(&now));
    // It is told of the end.
    let mut monitor = Asked::new(&bench, "admin", hello(&now, 10_000));
    assert!(monitor.answer().is_none());
    bench.server.begin_shutdown();
    bench.server.end_late();
    assert_eq!(code(&monitor.answer().unwrap()), 11600);
}
