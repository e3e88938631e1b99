//! Change streams: where they stand, what they follow, events that are split.

use super::parked::Asked;
use super::{Bench, code, succeeded};
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
