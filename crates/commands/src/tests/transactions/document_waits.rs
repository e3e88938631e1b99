//! What is told of writes that wait for a document which a transaction has changed, and of a transaction's statements.

use super::{bench, end, first, insert, lsid, next};
use crate::logger::Ring;
use crate::tests::{Bench, succeeded};
use bson::{Document, doc};
use std::time::Duration;

fn update() -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] }
}

/// The one operation that fits a filter, once it is there. None: it does not come. Whoever asks has threads to release
/// before it fails.
fn running(bench: &Bench, filter: &Document) -> Option<Document> {
    for _ in 0..1_000_000 {
        let mut command = doc! { "currentOp": 1 };
        command.extend(filter.clone());
        let reply = succeeded(bench.admin(command));
        if let Some(found) = reply.get_array("inprog").unwrap().first() {
            return found.as_document().cloned();
        }
        std::thread::yield_now();
    }
    None
}

fn status(bench: &Bench) -> Document {
    succeeded(bench.admin(doc! { "serverStatus": 1 }))
}

/// The commonest cause of a slow write was told nowhere: neither by its line nor by a figure.
#[test]
fn a_wait_for_a_document_is_told_of() {
    let bench = bench();
    bench.ok(first(update(), 1));
    let client = bench.stranger();
    let mut blocked = update();
    blocked.insert("lsid", lsid(2));
    let waits = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| succeeded(bench.run_as(&client, "test", blocked)));
        let waits = running(&bench, &doc! { "waitingForLock": true });
        bench.clock.advance(Duration::from_secs(3));
        succeeded(end(&bench, "abortTransaction", 1, 1));
        blocked.join().unwrap();
        waits
    });
    let waits = waits.expect("the update waits");
    assert_eq!(waits.get_document("lsid").unwrap().get("id"), lsid(2).get("id"));
    assert!(!waits.contains_key("transaction"));
    let (_, lines) = bench.server.logger.ring(Ring::Global);
    let slow: Vec<_> = lines.iter().filter(|line| line.contains(r#""id":51803"#)).collect();
    // One write was slow: its statement, and the command.
    assert_eq!(slow.len(), 2, "{slow:?}");
    for slow in slow {
        assert!(slow.contains(r#""documentLockWaitMicros":3000000"#), "{slow}");
        assert!(slow.contains(r#""writeConflicts":1"#), "{slow}");
    }
    let status = status(&bench);
    let locks = status.get_document("tenon").unwrap().get_document("locks").unwrap();
    assert_eq!(locks.get_i64("waitMicros").ok(), Some(3_000_000));
    let operation = status
        .get_document("metrics")
        .unwrap()
        .get_document("operation")
        .unwrap();
    assert_eq!(operation.get_i64("writeConflicts").ok(), Some(1));
}

/// The update counted again what the storage had counted.
#[test]
fn one_wait_for_a_unique_key_counts_once() {
    let bench = bench();
    let index = doc! { "key": { "u": 1 }, "name": "u", "unique": true, "sparse": true };
    bench.ok(doc! { "createIndexes": "c", "indexes": [index] });
    bench.ok(first(doc! { "insert": "c", "documents": [{ "_id": 3, "u": 5 }] }, 1));
    let client = bench.stranger();
    let blocked = doc! { "update": "c", "updates": [{ "q": { "_id": 2 }, "u": { "$set": { "u": 5 } } }] };
    let (waits, updated) = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| bench.run_as(&client, "test", blocked));
        let waits = running(&bench, &doc! { "waitingForLock": true });
        succeeded(end(&bench, "abortTransaction", 1, 1));
        (waits, blocked.join().unwrap())
    });
    assert!(waits.is_some());
    assert_eq!(succeeded(updated).get_i32("nModified").ok(), Some(1));
    let status = status(&bench);
    let operation = status.get_document("metrics").unwrap().get_document("operation");
    assert_eq!(operation.unwrap().get_i64("writeConflicts").ok(), Some(1));
}

/// Only idle transactions had a session to be killed by. It is the same one while a statement runs, though the client
/// has logged in to a server without access control.
#[test]
fn a_statement_that_runs_is_shown_with_its_session_and_transaction() {
    let bench = bench();
    let client = bench.user("amy", &[]);
    bench.ok(first(insert(3), 7));
    let idle = running(&bench, &doc! { "type": "idleSession" }).expect("the transaction waits for a statement");
    let data = doc! { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 1_000 };
    succeeded(bench.admin(doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data }));
    let shown = std::thread::scope(|scope| {
        let slow = scope.spawn(|| bench.run_as(&client, "test", next(doc! { "find": "c" }, 7)));
        let shown = running(&bench, &doc! { "command.find": "c" });
        // It may be seen before it begins to wait, and then would wait from the new time on: that it is killed ends it
        // whenever it begins.
        let opid = shown.as_ref().and_then(|shown| shown.get_i32("opid").ok());
        succeeded(bench.admin(doc! { "killOp": 1, "op": opid.unwrap_or_default() }));
        bench.clock.advance(Duration::from_secs(2));
        slow.join().unwrap();
        shown
    });
    let shown = shown.expect("the statement runs");
    let session = shown.get_document("lsid").unwrap();
    assert_eq!(session.get("id"), lsid(1).get("id"));
    assert_eq!(Some(session), idle.get_document("lsid").ok());
    let expected = doc! { "parameters": { "txnNumber": 7_i64, "autocommit": false } };
    assert_eq!(shown.get_document("transaction").ok(), Some(&expected));
}

#[test]
fn keys_that_a_write_changes_are_told_of() {
    let bench = bench();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    bench.ok(doc! { "profile": 2 });
    bench.ok(update());
    bench.ok(doc! { "profile": 0 });
    let profiled = bench.find("system.profile", doc! { "op": "update" });
    let keys = ["keysInserted", "keysDeleted"].map(|name| profiled[0].get_i64(name).ok());
    assert_eq!(keys, [Some(1), Some(1)], "{profiled:?}");
}
