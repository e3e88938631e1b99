//! What is told of writes that wait for a document which a transaction has changed, and of a transaction's statements.

use super::{bench, end, first, insert, lsid, next};
use crate::logger::Ring;
use crate::tests::{Bench, succeeded};
use bson::{Document, doc};
use std::time::Duration;

fn update() -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] }
}

/// The one operation that fits a filter, once it is there.
fn running(bench: &Bench, filter: Document) -> Document {
    loop {
        let mut command = doc! { "currentOp": 1 };
        command.extend(filter.clone());
        let reply = succeeded(bench.admin(command));
        if let Some(found) = reply.get_array("inprog").unwrap().first() {
            return found.as_document().unwrap().clone();
        }
        std::thread::yield_now();
    }
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
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| succeeded(bench.run_as(&client, "test", blocked)));
        let waits = running(&bench, doc! { "waitingForLock": true });
        assert_eq!(waits.get_document("lsid").unwrap().get("id"), lsid(2).get("id"));
        assert!(!waits.contains_key("transaction"));
        bench.clock.advance(Duration::from_secs(3));
        succeeded(end(&bench, "abortTransaction", 1, 1));
        blocked.join().unwrap();
    });
    let (_, lines) = bench.server.logger.ring(Ring::Global);
    let slow: Vec<_> = lines.iter().filter(|line| line.contains(r#""id":51803"#)).collect();
    let [slow] = slow[..] else {
        panic!("one write was slow: {slow:?}")
    };
    assert!(slow.contains(r#""documentLockWaitMicros":3000000"#), "{slow}");
    assert!(slow.contains(r#""writeConflicts":1"#), "{slow}");
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

/// Only idle transactions had a session to be killed by.
#[test]
fn a_statement_that_runs_is_shown_with_its_session_and_transaction() {
    let bench = bench();
    bench.ok(first(insert(3), 7));
    let data = doc! { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 1_000 };
    succeeded(bench.admin(doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data }));
    let client = bench.stranger();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| succeeded(bench.run_as(&client, "test", next(doc! { "find": "c" }, 7))));
        let shown = running(&bench, doc! { "command.find": "c" });
        assert_eq!(shown.get_document("lsid").unwrap().get("id"), lsid(1).get("id"));
        let expected = doc! { "parameters": { "txnNumber": 7_i64, "autocommit": false } };
        assert_eq!(shown.get_document("transaction").ok(), Some(&expected));
        bench.clock.advance(Duration::from_secs(2));
        slow.join().unwrap();
    });
}

#[test]
fn keys_that_a_write_changes_are_told_of() {
    let bench = bench();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    bench.ok(doc! { "profile": 2 });
    bench.ok(update());
    bench.ok(doc! { "profile": 0 });
    let profiled = bench.find("system.profile", doc! { "command.update": "c" });
    let keys = ["keysInserted", "keysDeleted"].map(|name| profiled[0].get_i64(name).ok());
    assert_eq!(keys, [Some(1), Some(1)], "{profiled:?}");
}
