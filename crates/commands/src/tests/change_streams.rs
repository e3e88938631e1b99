//! Change streams: where they stand, what they follow, events that are split.

use super::parked::Asked;
use super::{Bench, code, first_batch, succeeded, transactions};
use bson::{Bson, Document, RawDocumentBuf, doc};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A member whose log is on disk at once.
struct Member(Bench);

impl Member {
    fn new() -> Self {
        Self(Bench::member(true))
    }

    fn settle(&self) {
        let storage = &self.0.server.storage;
        storage.wait_durable(storage.last_seq()).unwrap();
    }

    fn run(&self, command: Document) -> Document {
        self.settle();
        self.0.run(command)
    }

    /// The cursor of a stream on a collection, without events yet.
    fn watch(&self, collection: &str, options: Document, stages: &[Document]) -> Document {
        let mut pipeline = vec![doc! { "$changeStream": options }];
        pipeline.extend_from_slice(stages);
        let reply = self.run(doc! { "aggregate": collection, "pipeline": pipeline, "cursor": { "batchSize": 0 } });
        succeeded(reply).get_document("cursor").unwrap().clone()
    }

    fn try_more(&self, cursor: &Document, collection: &str) -> Document {
        self.run(doc! { "getMore": cursor.get_i64("id").unwrap(), "collection": collection })
    }

    /// The next batch, which is there, and the stream's token behind it.
    fn more(&self, cursor: &Document, collection: &str) -> (Vec<Document>, Document) {
        let reply = succeeded(self.try_more(cursor, collection));
        (batch_of(&reply), token_of(reply.get_document("cursor").unwrap()))
    }
}

fn batch_of(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    batch.iter().map(|event| event.as_document().unwrap().clone()).collect()
}

fn token_of(cursor: &Document) -> Document {
    cursor.get_document("postBatchResumeToken").unwrap().clone()
}

fn keys(events: &[Document]) -> Vec<Bson> {
    let key = |event: &Document| event.get_document("documentKey").unwrap().get("_id").cloned().unwrap();
    events.iter().map(key).collect()
}

fn kinds(events: &[Document]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event.get_str("operationType").unwrap())
        .collect()
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn labels(reply: &Document) -> Vec<&str> {
    let labels = reply.get_array("errorLabels").ok();
    labels.into_iter().flatten().filter_map(Bson::as_str).collect()
}

/// It stayed where the batch began, and a client that resumed there got the event again.
#[test]
fn the_token_is_behind_what_was_returned_when_the_next_event_does_not_fit() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let stream = member.watch("c", doc! {}, &[]);
    for id in 0..3 {
        member.0.insert("c", &[doc! { "_id": id, "t": text(9 << 20) }]);
    }
    let (events, token) = member.more(&stream, "c");
    assert_eq!(keys(&events), [0.into()]);
    assert_eq!(Some(&token), events[0].get_document("_id").ok());
    let resumed = member.watch("c", doc! { "resumeAfter": token }, &[]);
    assert_eq!(keys(&member.more(&resumed, "c").0), [1.into()]);
    assert_eq!(keys(&member.more(&stream, "c").0), [1.into()]);
}

/// Before the collection is there it has none, and a stream that is resumed was to let through what it did.
#[test]
fn a_stream_has_no_collation_of_its_collection() {
    let member = Member::new();
    let matches = [doc! { "$match": { "fullDocument.t": "abc" } }];
    let before = member.watch("c", doc! {}, &matches);
    let strength = doc! { "locale": "en", "strength": 2 };
    member.0.ok(doc! { "create": "c", "collation": strength.clone() });
    let after = member.watch("c", doc! {}, &matches);
    let asked = doc! {
        "aggregate": "c", "pipeline": [{ "$changeStream": {} }, matches[0].clone()], "cursor": { "batchSize": 0 },
        "collation": strength,
    };
    let asked = succeeded(member.run(asked)).get_document("cursor").unwrap().clone();
    member
        .0
        .insert("c", &[doc! { "_id": 1, "t": "ABC" }, doc! { "_id": 2, "t": "abc" }]);
    assert_eq!(keys(&member.more(&before, "c").0), [2.into()]);
    assert_eq!(keys(&member.more(&after, "c").0), [2.into()]);
    assert_eq!(keys(&member.more(&asked, "c").0), [1.into(), 2.into()]);
}

/// Who watched another collection of it was told of the end, and so was who began anew behind the end.
#[test]
fn streams_of_collections_do_not_tell_of_their_database() {
    let member = Member::new();
    let (own, other) = (member.watch("c", doc! {}, &[]), member.watch("none", doc! {}, &[]));
    member.0.insert("c", &[doc! { "_id": 1 }]);
    member.0.ok(doc! { "dropDatabase": 1 });
    member.0.insert("c", &[doc! { "_id": 2 }]);
    let (events, token) = member.more(&own, "c");
    assert_eq!(kinds(&events), ["insert", "drop", "invalidate"]);
    let more = doc! { "getMore": other.get_i64("id").unwrap(), "collection": "none" };
    let mut waits = Asked::new(&member.0, "test", more);
    assert!(waits.answer().is_none(), "nothing has come");
    let again = member.watch("c", doc! { "startAfter": token }, &[]);
    assert_eq!(kinds(&member.more(&again, "c").0), ["insert"]);
    member.0.insert("none", &[doc! { "_id": 3 }]);
    member.settle();
    let reply = succeeded(waits.answer().expect("a document came"));
    assert_eq!(kinds(&batch_of(&reply)), ["insert"]);
}

/// The stream could not get past them.
#[test]
fn documents_of_any_size_get_through_a_stream_that_splits() {
    let member = Member::new();
    let images = doc! { "enabled": true };
    member
        .0
        .ok(doc! { "create": "c", "changeStreamPreAndPostImages": images });
    let options = doc! { "fullDocument": "required", "fullDocumentBeforeChange": "required" };
    let stream = member.watch("c", options, &[doc! { "$changeStreamSplitLargeEvent": {} }]);
    let around = RawDocumentBuf::try_from(&doc! { "_id": 0, "t": "" })
        .unwrap()
        .as_bytes()
        .len();
    let document = |id: i32, letter: &str| doc! { "_id": id, "t": letter.repeat((16 << 20) - around) };
    member.0.insert("c", &[document(0, "x")]);
    let (events, _) = member.more(&stream, "c");
    assert_eq!(keys(&events), [0.into()]);
    assert!(!events[0].contains_key("splitEvent"));
    let replaced = document(0, "y");
    member
        .0
        .ok(doc! { "update": "c", "updates": [{ "q": { "_id": 0 }, "u": replaced.clone() }] });
    let mut whole = Document::new();
    for fragment in 1..=2 {
        let (mut events, _) = member.more(&stream, "c");
        assert_eq!(events.len(), 1);
        let split = events[0].remove("splitEvent").unwrap();
        assert_eq!(split, Bson::from(doc! { "fragment": fragment, "of": 2 }));
        whole.extend(events.remove(0));
    }
    assert_eq!(whole.get_document("fullDocument").ok(), Some(&replaced));
    assert_eq!(
        whole.get_document("fullDocumentBeforeChange").ok(),
        Some(&document(0, "x"))
    );
}

/// The fragments that the client has were left out of whichever event came first.
#[test]
fn behind_a_fragment_goes_on_only_who_makes_it() {
    let member = Member::new();
    let images = doc! { "enabled": true };
    member
        .0
        .ok(doc! { "create": "c", "changeStreamPreAndPostImages": images });
    let split = doc! { "$changeStreamSplitLargeEvent": {} };
    let options = doc! { "fullDocument": "required", "fullDocumentBeforeChange": "required" };
    let stream = member.watch("c", options.clone(), std::slice::from_ref(&split));
    member.0.insert("c", &[doc! { "_id": 0, "t": text(9 << 20) }]);
    for letter in ["y", "z"] {
        let update = doc! { "q": {}, "u": { "$set": { "a": letter.repeat(1 << 20) } } };
        member.0.ok(doc! { "update": "c", "updates": [update] });
    }
    member.more(&stream, "c");
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let (events, token) = member.more(&stream, "c");
        assert_eq!(events.len(), 1);
        tokens.push(token);
    }
    let next = |token: usize, stages: &[Document]| {
        let mut options = options.clone();
        options.insert("resumeAfter", tokens[token].clone());
        let resumed = member.watch("c", options, stages);
        member.try_more(&resumed, "c")
    };
    let fragment = |reply: Document| {
        let reply = succeeded(reply);
        let event = &batch_of(&reply)[0];
        let split = event.get_document("splitEvent").unwrap();
        (
            event.get_document("_id").unwrap() == &tokens[1],
            split.get_i32("fragment").unwrap(),
        )
    };
    assert_eq!(fragment(next(0, std::slice::from_ref(&split))), (true, 2));
    assert_eq!(fragment(next(1, std::slice::from_ref(&split))), (false, 1));
    let later = doc! { "$match": { "updateDescription.updatedFields.a": { "$regex": "^z" } } };
    assert_eq!(code(&next(0, &[later, split.clone()])), 280, "its event is left out");
    let small = doc! { "$project": { "fullDocument": 0 } };
    assert_eq!(code(&next(0, &[small, split.clone()])), 280, "its event is whole");
    let fewer = doc! { "$unset": "updateDescription" };
    let reply = next(1, &[fewer, split]);
    assert_eq!(fragment(reply), (false, 1), "there are as many");
}

/// It looked at some of a long unit and waited for what is behind it.
#[test]
fn a_search_in_a_long_unit_goes_on() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let last = 20_000;
    let stream = member.watch("c", doc! {}, &[doc! { "$match": { "documentKey._id": last } }]);
    let documents: Vec<_> = (0..=last).map(|id| doc! { "_id": id }).collect();
    member.0.insert("c", &documents);
    member.settle();
    let day_ms = 24 * 60 * 60 * 1000;
    let more = doc! { "getMore": stream.get_i64("id").unwrap(), "collection": "c", "maxTimeMS": day_ms };
    let found = AtomicBool::new(false);
    let reply = std::thread::scope(|scope| {
        // Each look takes as long as it may.
        scope.spawn(|| {
            while !found.load(Ordering::SeqCst) {
                member.0.clock.advance(Duration::from_millis(101));
                std::thread::yield_now();
            }
        });
        let mut asked = Asked::new(&member.0, "test", more);
        let reply = asked.answer();
        found.store(true, Ordering::SeqCst);
        reply
    });
    let reply = succeeded(reply.expect("it does not wait"));
    assert_eq!(keys(&batch_of(&reply)), [last.into()]);
}

/// Who asked for what only a later stage looks at, such as the document, was told nothing before the log's end, and a
/// client that was cut off meanwhile never got anywhere.
#[test]
fn a_search_by_a_later_stage_tells_how_far_it_has_come() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let last = 20_000;
    let stream = member.watch("c", doc! {}, &[doc! { "$match": { "fullDocument.n": last } }]);
    let documents: Vec<_> = (0..=last).map(|id| doc! { "_id": id, "n": id }).collect();
    member.0.insert("c", &documents);
    member.settle();
    let (found, has_moved) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut tokens = vec![token_of(&stream)];
    std::thread::scope(|scope| {
        // Each look takes as long as it may.
        scope.spawn(|| {
            while !found.load(Ordering::SeqCst) {
                member.0.clock.advance(Duration::from_millis(101));
                has_moved.store(true, Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        while !has_moved.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        loop {
            let more = doc! { "getMore": stream.get_i64("id").unwrap(), "collection": "c", "maxTimeMS": 1 };
            let reply = member.0.run(more);
            let events = batch_of(&reply);
            tokens.push(token_of(reply.get_document("cursor").unwrap()));
            if !events.is_empty() {
                found.store(true, Ordering::SeqCst);
                assert_eq!(keys(&events), [last.into()]);
                break;
            }
        }
    });
    assert!(tokens.len() > 2, "it was told something before");
    tokens.dedup();
    assert!(tokens.len() > 2, "it had come farther");
}

/// The filter was asked twice, once by the source and once as a stage.
#[test]
fn a_random_filter_is_asked_once() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let stream = member.watch("c", doc! {}, &[doc! { "$match": { "$sampleRate": 0.5 } }]);
    let documents: Vec<_> = (0..2_000).map(|id| doc! { "_id": id }).collect();
    member.0.insert("c", &documents);
    member.settle();
    let more = doc! { "getMore": stream.get_i64("id").unwrap(), "collection": "c", "batchSize": 5_000 };
    let events = batch_of(&succeeded(member.run(more)));
    assert!((800..=1_200).contains(&events.len()), "{}", events.len());
}

/// Each change has its whole path: an update of 200 kB made gigabytes for each stream, for those that did not want it,
/// too.
#[test]
fn a_description_that_no_document_holds_is_made_for_who_wants_it() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let inserts = [doc! { "$match": { "operationType": "insert" } }];
    let (some, all) = (member.watch("c", doc! {}, &inserts), member.watch("c", doc! {}, &[]));
    let by_document = [doc! { "$match": { "operationType": "insert", "fullDocument._id": 1 } }];
    let one = member.watch("c", doc! {}, &by_document);
    let name = text(100_000);
    let list = vec![Bson::from(doc! { "x": 0 }); 5_000];
    member.0.insert("c", &[doc! { "_id": 0, "f": { name.as_str(): list } }]);
    let (events, token) = member.more(&all, "c");
    assert_eq!(keys(&events), [0.into()]);
    let increment = doc! { "$inc": { format!("f.{name}.$[].x"): 1 } };
    member
        .0
        .ok(doc! { "update": "c", "updates": [{ "q": {}, "u": increment }] });
    member.0.insert("c", &[doc! { "_id": 1 }]);
    assert_eq!(keys(&member.more(&some, "c").0), [0.into(), 1.into()]);
    assert_eq!(keys(&member.more(&one, "c").0), [1.into()]);
    assert_eq!(code(&member.try_more(&all, "c")), 10334);
    let resumed = member.watch("c", doc! { "resumeAfter": token }, &inserts);
    assert_eq!(keys(&member.more(&resumed, "c").0), [1.into()]);
}

/// Those who may read one database were shown what became of a document in another one.
#[test]
fn the_newest_version_is_not_looked_up_in_another_database() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let options = doc! { "fullDocument": "updateLookup" };
    let stream = member.watch("c", options, &[doc! { "$match": { "operationType": "update" } }]);
    member.0.insert("c", &[doc! { "_id": 0 }]);
    let set = |n: i32| doc! { "q": {}, "u": { "$set": { "n": n } } };
    member.0.ok(doc! { "update": "c", "updates": [set(1)] });
    let updated = |token: Option<&Document>| {
        let cursor = match token {
            None => stream.clone(),
            Some(token) => {
                let options = doc! { "fullDocument": "updateLookup", "startAfter": token.clone() };
                member.watch("c", options, &[doc! { "$match": { "operationType": "update" } }])
            }
        };
        member.more(&cursor, "c").0[0].get("fullDocument").cloned().unwrap()
    };
    let before = token_of(&stream);
    assert_eq!(updated(None), Bson::from(doc! { "_id": 0, "n": 1 }));
    succeeded(member.0.admin(doc! { "renameCollection": "test.c", "to": "secret.c" }));
    succeeded(member.0.run_on("secret", doc! { "update": "c", "updates": [set(2)] }));
    assert_eq!(updated(Some(&before)), Bson::Null);
}

impl Member {
    fn log(&self, filter: Document, order: i32) -> Vec<Document> {
        let find = doc! {
            "find": "oplog.rs", "filter": filter, "sort": { "$natural": order }, "batchSize": 1_000,
            "projection": { "ts": 1, "op": 1, "ns": 1 },
        };
        first_batch(&succeeded(self.0.run_on("local", find)))
    }
}

/// A unit that becomes several documents was left out where a bound of time lay between them, and all units of a step
/// were held at a time, however large.
#[test]
fn the_log_is_read_backward() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    let large: Vec<_> = (0..4).map(|id| doc! { "_id": id, "t": text(9 << 20) }).collect();
    member.0.insert("c", &large);
    for id in 10..20 {
        member.0.insert("c", &[doc! { "_id": id, "t": text(6 << 20) }]);
        member.0.insert("c", &[doc! { "_id": id + 100 }]);
    }
    let (forward, mut backward) = (member.log(doc! {}, 1), member.log(doc! {}, -1));
    assert!(forward.len() > 24, "{}", forward.len());
    backward.reverse();
    assert_eq!(backward, forward);
    for document in &forward {
        let at = document.get("ts").unwrap();
        let one = std::slice::from_ref(document);
        assert_eq!(member.log(doc! { "ts": at }, 1), one);
        assert_eq!(member.log(doc! { "ts": at }, -1), one);
        let until = member.log(doc! { "ts": { "$lte": at } }, -1);
        assert_eq!(until.first(), Some(document));
    }
}

/// A tool that copies the log had entries that no server had after a crash.
#[test]
fn a_tail_of_the_log_shows_what_no_crash_takes_back() {
    let member = Member::new();
    member.0.ok(doc! { "create": "c" });
    member.settle();
    let find = doc! { "find": "oplog.rs", "filter": { "ns": "test.c", "op": "i" }, "tailable": true };
    let reply = succeeded(member.0.run_on("local", find));
    let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let concern = doc! { "w": 1, "j": false };
    member
        .0
        .ok(doc! { "insert": "c", "documents": [{ "_id": 1 }], "writeConcern": concern });
    let more = || {
        let more = doc! { "getMore": id, "collection": "oplog.rs" };
        batch_of(&succeeded(member.0.run_on("local", more))).len()
    };
    assert_eq!(more(), 0);
    member.settle();
    assert_eq!(more(), 1);
}

/// Scripts that validate all collections that are listed failed there.
#[test]
fn the_log_is_valid() {
    let member = Member::new();
    member.0.insert("c", &[doc! { "_id": 1 }]);
    let report = succeeded(member.0.run_on("local", doc! { "validate": "oplog.rs" }));
    assert_eq!(report.get_bool("valid").ok(), Some(true));
    assert!(report.get_i32("nrecords").unwrap() > 0, "{report}");
}

/// Drivers go by labels, and refusals had none: streams ended with an error when their member was taken out of use or
/// ended in an orderly way, and so did writes and transactions.
#[test]
fn who_is_refused_by_a_member_that_ends_goes_on_elsewhere() {
    let member = Member::new();
    let bench = &member.0;
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let stream = member.watch("c", doc! {}, &[]);
    let find = succeeded(bench.run(doc! { "find": "c", "batchSize": 1 }));
    let found = find.get_document("cursor").unwrap();
    let set = bench.server.replica_set().unwrap();
    set.change(|member| (member.leads, member.maintenance) = (false, 1));
    let refused = member.try_more(&stream, "c");
    assert_eq!(
        (code(&refused), labels(&refused)),
        (13436, vec!["ResumableChangeStreamError"])
    );
    let refused = member.try_more(found, "c");
    assert_eq!((code(&refused), labels(&refused)), (13436, vec![]));
    set.change(|member| (member.leads, member.maintenance) = (true, 0));
    // It goes on here as well.
    let id = stream.get_i64("id").unwrap();
    let mut waiting = Asked::new(
        bench,
        "test",
        doc! { "getMore": id, "collection": "c", "maxTimeMS": 60_000 },
    );
    assert!(waiting.answer().is_none());
    bench.ok(transactions::first(transactions::insert(3), 1));
    bench.server.begin_shutdown();
    bench.server.end_late();
    let refused = waiting.answer().unwrap();
    assert_eq!(
        (code(&refused), labels(&refused)),
        (11600, vec!["ResumableChangeStreamError"])
    );
    let not_begun = vec!["RetryableWriteError", "NoWritesPerformed"];
    for (command, expected) in [
        (
            transactions::next(transactions::insert(4), 1),
            vec!["TransientTransactionError"],
        ),
        (transactions::numbered(transactions::insert(4), 2), not_begun),
        (transactions::insert(4), vec![]),
    ] {
        let refused = bench.run(command);
        assert_eq!((code(&refused), labels(&refused)), (11600, expected));
    }
}
