//! Writes that wait for an idle transaction have no ticket meanwhile.

use super::{bench, end, first};
use crate::tests::{Bench, succeeded};
use bson::{Document, doc};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The least that can be set.
const TICKETS: usize = 5;

fn update() -> Document {
    doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] }
}

/// Has this command wait for a transaction so often that all have a ticket or want one, and writes elsewhere.
fn write_beside(bench: &Bench, blocked: &Document, blocker: Option<Document>) {
    bench.admin(doc! { "setParameter": 1, "storageEngineConcurrentWriteTransactions": TICKETS as i32 });
    bench.ok(first(update(), 1));
    let has_ended = AtomicBool::new(false);
    let spawned = |command: Document| {
        let client = bench.stranger();
        move || succeeded(bench.run_as(&client, "test", command))
    };
    let waiting = || {
        let waiting = bench.admin(doc! { "currentOp": 1, "waitingForLock": true });
        waiting.get_array("inprog").unwrap().len()
    };
    std::thread::scope(|scope| {
        let before = usize::from(blocker.is_some());
        let blocker = blocker.map(|blocker| scope.spawn(spawned(blocker)));
        while waiting() < before {
            std::thread::yield_now();
        }
        let blocked: Vec<_> = (0..TICKETS).map(|_| scope.spawn(spawned(blocked.clone()))).collect();
        while waiting() < before + TICKETS {
            std::thread::yield_now();
        }
        // Each millisecond is a second here: the write that gets no ticket fails before long.
        let clock = scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                bench.clock.advance(Duration::from_secs(1));
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        let hours_ms = 10 * 3_600_000;
        let elsewhere = bench.run(doc! { "insert": "elsewhere", "documents": [{}], "maxTimeMS": hours_ms });
        has_ended.store(true, Ordering::Relaxed);
        clock.join().unwrap();
        succeeded(end(bench, "commitTransaction", 1, 1));
        for thread in blocked.into_iter().chain(blocker) {
            thread.join().unwrap();
        }
        succeeded(elsewhere);
    });
    let tickets = bench.server.tickets.write.figures();
    assert_eq!((tickets.out, tickets.queued), (0, 0));
}

#[test]
fn who_waits_for_a_document_of_an_idle_transaction_holds_nobody_up() {
    let bench = bench();
    bench.ok(doc! { "create": "elsewhere" });
    write_beside(&bench, &update(), None);
    assert_eq!(
        bench.find("c", doc! { "_id": 1 }),
        [doc! { "_id": 1, "a": 2 + TICKETS as i32 }]
    );
}

#[test]
fn who_waits_behind_a_drop_that_waits_for_one_holds_nobody_up() {
    let bench = bench();
    bench.ok(doc! { "create": "elsewhere" });
    write_beside(
        &bench,
        &doc! { "insert": "c", "documents": [{}] },
        Some(doc! { "drop": "c" }),
    );
    assert_eq!(bench.find("c", doc! {}).len(), TICKETS);
}
