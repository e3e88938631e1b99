//! Transactions and writes that are sent again.

mod commits;
mod document_waits;
mod full_disk;
mod lent_tickets;
mod statements;

use super::{Bench, code, first_batch, succeeded, write_errors};
use crate::definition::InTransactions;
use crate::table::COMMANDS;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use std::time::Duration;
use storage::{LockMode, Namespace, Operation};

pub(super) fn lsid(number: u8) -> Document {
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![number; 16],
    };
    doc! { "id": id }
}

/// A command under a number of session 1.
pub(super) fn numbered(mut command: Document, number: i64) -> Document {
    command.insert("lsid", lsid(1));
    command.insert("txnNumber", number);
    command
}

/// A statement of a transaction of a session.
pub(super) fn of(session: u8, mut command: Document, number: i64, starts: bool) -> Document {
    command.insert("lsid", lsid(session));
    command.insert("txnNumber", number);
    command.insert("autocommit", false);
    if starts {
        command.insert("startTransaction", true);
    }
    command
}

pub(super) fn first(command: Document, number: i64) -> Document {
    of(1, command, number, true)
}

pub(super) fn next(command: Document, number: i64) -> Document {
    of(1, command, number, false)
}

pub(super) fn insert(id: i32) -> Document {
    doc! { "insert": "c", "documents": [{ "_id": id }] }
}

pub(super) fn end(bench: &Bench, name: &str, session: u8, number: i64) -> Document {
    bench.admin(of(session, doc! { name: 1 }, number, false))
}

fn ids(documents: &[Document]) -> Vec<i32> {
    documents
        .iter()
        .map(|document| document.get_i32("_id").unwrap())
        .collect()
}

fn labels(reply: &Document) -> Vec<&str> {
    let labels = reply
        .get_array("errorLabels")
        .ok()
        .map(|labels| labels.iter().filter_map(Bson::as_str).collect());
    labels.unwrap_or_default()
}

pub(super) fn bench() -> Bench {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }]);
    bench
}

#[test]
fn a_transaction_sees_itself_and_others_see_it_when_it_is_committed() {
    let bench = bench();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    bench.ok(first(
        doc! { "insert": "c", "documents": [{ "_id": 3, "a": 3 }, { "_id": 4, "a": 4 }] },
        1,
    ));
    bench.ok(next(doc! { "update": "c", "updates": [{ "q": { "a": { "$gte": 2 } }, "u": { "$inc": { "a": 10 } }, "multi": true }] }, 1));
    bench.ok(next(
        doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
        1,
    ));
    let reads = [
        doc! { "find": "c", "filter": { "a": { "$gte": 12 } }, "sort": { "a": 1 } },
        doc! { "find": "c", "sort": { "_id": 1 } },
        doc! { "aggregate": "c", "pipeline": [{ "$match": { "a": { "$gt": 10 } } }, { "$sort": { "_id": 1 } }], "cursor": {} },
    ];
    for read in &reads {
        let found = first_batch(&bench.ok(next(read.clone(), 1)));
        assert_eq!(ids(&found), [2, 3, 4], "{read}");
    }
    let counted = doc! { "aggregate": "c", "pipeline": [{ "$count": "n" }], "cursor": {} };
    assert_eq!(first_batch(&bench.ok(next(counted.clone(), 1))), [doc! { "n": 3 }]);
    let joined = doc! { "aggregate": "c", "cursor": {}, "pipeline": [
        { "$match": { "_id": 4 } }, { "$lookup": { "from": "c", "localField": "a", "foreignField": "a", "as": "same" } },
    ] };
    let same = &first_batch(&bench.ok(next(joined, 1)))[0];
    assert_eq!(same.get_array("same").unwrap().len(), 1);
    let distinct = bench.ok(next(doc! { "distinct": "c", "key": "a" }, 1));
    assert_eq!(distinct.get_array("values").unwrap().len(), 3);
    assert_eq!(ids(&bench.find("c", doc! {})), [1, 2], "nobody else sees it");
    succeeded(end(&bench, "commitTransaction", 1, 1));
    assert_eq!(ids(&bench.find("c", doc! {})), [2, 3, 4]);
    assert_eq!(bench.aggregate("c", &[doc! { "$count": "n" }]), [doc! { "n": 3 }]);
}

#[test]
fn a_transaction_reads_the_state_of_its_beginning() {
    let bench = bench();
    bench.ok(first(doc! { "find": "c" }, 1));
    bench.insert("c", &[doc! { "_id": 3 }]);
    bench.insert("new", &[doc! { "_id": 1 }]);
    assert_eq!(first_batch(&bench.ok(next(doc! { "find": "c" }, 1))).len(), 2);
    assert_eq!(first_batch(&bench.ok(next(doc! { "find": "new" }, 1))).len(), 0);
    assert_eq!(
        first_batch(&bench.ok(next(doc! { "find": "c", "filter": { "_id": 3 } }, 1))).len(),
        0
    );
    succeeded(end(&bench, "commitTransaction", 1, 1));
}

#[test]
fn a_transaction_that_waits_for_its_next_statement_is_shown() {
    let bench = bench();
    let shown = |options: Document| {
        let pipeline = [
            doc! { "$currentOp": options },
            doc! { "$match": { "type": "idleSession" } },
        ];
        first_batch(&bench.admin(doc! { "aggregate": 1, "pipeline": pipeline.to_vec(), "cursor": {} }))
    };
    assert_eq!(shown(doc! {}), []);
    bench.ok(of(2, insert(3), 7, true));
    bench.clock.advance(Duration::from_secs(2));
    let [idle] = &shown(doc! {})[..] else {
        panic!("one transaction is open")
    };
    assert_eq!(idle.get_document("lsid").unwrap().get("id"), lsid(2).get("id"));
    assert_eq!(
        (idle.get_bool("active").unwrap(), idle.get_str("desc").unwrap()),
        (false, "inactive transaction")
    );
    let transaction = idle.get_document("transaction").unwrap();
    assert_eq!(
        transaction.get_document("parameters").unwrap(),
        &doc! { "txnNumber": 7_i64, "autocommit": false, "readConcern": { "level": "snapshot" } }
    );
    let micros = |name: &str| transaction.get_i64(name).unwrap();
    assert_eq!(
        micros("timeOpenMicros"),
        micros("timeActiveMicros") + micros("timeInactiveMicros")
    );
    assert!(micros("timeInactiveMicros") >= 2_000_000, "{transaction}");
    assert_eq!(shown(doc! { "idleSessions": false }), []);
    let all = bench.admin(doc! { "currentOp": 1, "type": "idleSession" });
    assert_eq!(all.get_array("inprog").unwrap().len(), 1, "{all}");
    succeeded(end(&bench, "abortTransaction", 2, 7));
    assert_eq!(shown(doc! {}), []);
}

#[test]
fn an_index_that_came_later_makes_the_transaction_begin_again() {
    let bench = bench();
    bench.insert("other", &[doc! { "_id": 1 }]);
    bench.ok(first(doc! { "find": "other" }, 1));
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    let refused = bench.run(next(doc! { "find": "c", "filter": { "a": 1 } }, 1));
    assert_eq!(
        (code(&refused), labels(&refused)),
        (246, vec!["TransientTransactionError"])
    );
}

#[test]
fn a_statement_that_fails_ends_its_transaction() {
    let bench = bench();
    bench.ok(first(insert(3), 1));
    let twice = bench.ok(next(
        doc! { "insert": "c", "documents": [{ "_id": 1 }, { "_id": 4 }], "ordered": false },
        1,
    ));
    assert_eq!(
        (write_errors(&twice), twice.get_i32("n").ok()),
        (vec![(0, 11000)], Some(0))
    );
    let after = bench.run(next(doc! { "find": "c" }, 1));
    assert_eq!((code(&after), labels(&after)), (251, vec!["TransientTransactionError"]));
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 1)), 251);
    bench.ok(first(insert(3), 2));
    assert_eq!(
        bench.code(next(doc! { "find": "c", "filter": { "$nonesuch": 1 } }, 2)),
        2
    );
    assert_eq!(code(&end(&bench, "abortTransaction", 1, 2)), 251);
    assert_eq!(ids(&bench.find("c", doc! {})), [1, 2]);
    // What it had locked is free.
    bench.insert("c", &[doc! { "_id": 3 }]);
}

#[test]
fn of_two_that_write_to_a_document_the_second_has_to_begin_again() {
    let bench = bench();
    let change = || doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] };
    bench.ok(of(1, change(), 1, true));
    let second = bench.run(of(2, change(), 1, true));
    assert_eq!(
        (code(&second), labels(&second)),
        (112, vec!["TransientTransactionError"])
    );
    // One that began before and writes after.
    bench.ok(of(3, doc! { "find": "c" }, 1, true));
    succeeded(end(&bench, "commitTransaction", 1, 1));
    let third = bench.run(of(3, change(), 1, false));
    assert_eq!(code(&third), 112);
    assert_eq!(bench.find("c", doc! { "_id": 1 }), [doc! { "_id": 1, "a": 2 }]);
}

#[test]
fn ends_are_told_apart_and_can_be_asked_for_again() {
    let bench = bench();
    bench.ok(first(insert(3), 1));
    succeeded(end(&bench, "commitTransaction", 1, 1));
    succeeded(end(&bench, "commitTransaction", 1, 1));
    assert_eq!(code(&end(&bench, "abortTransaction", 1, 1)), 256);
    assert_eq!(bench.code(next(insert(4), 1)), 256);
    bench.ok(first(insert(4), 2));
    succeeded(end(&bench, "abortTransaction", 1, 2));
    assert_eq!(code(&end(&bench, "abortTransaction", 1, 2)), 251);
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 2)), 251);
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 1)), 225);
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 9)), 251);
    assert_eq!(bench.code(first(insert(5), 2)), 117);
    assert_eq!(bench.code(first(insert(5), 1)), 225);
    // A later number ends what is open.
    bench.ok(first(insert(5), 10));
    bench.ok(first(insert(5), 11));
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 10)), 225);
    succeeded(end(&bench, "commitTransaction", 1, 11));
    // One that has written nothing.
    bench.ok(first(doc! { "find": "c" }, 12));
    succeeded(end(&bench, "commitTransaction", 1, 12));
    assert_eq!(ids(&bench.find("c", doc! {})), [1, 2, 3, 5]);
}

#[test]
fn fields_that_do_not_go_together_are_refused() {
    let bench = bench();
    let with = |fields: Document| {
        let mut command = doc! { "find": "c", "lsid": lsid(1) };
        command.extend(fields);
        bench.code(command)
    };
    let number = 5_i64;
    assert_eq!(with(doc! { "autocommit": false }), 72);
    assert_eq!(with(doc! { "startTransaction": true }), 72);
    assert_eq!(with(doc! { "txnNumber": number, "autocommit": true }), 72);
    assert_eq!(
        with(doc! { "txnNumber": number, "autocommit": false, "startTransaction": false }),
        72
    );
    assert_eq!(with(doc! { "txnNumber": number, "startTransaction": true }), 72);
    assert_eq!(
        with(doc! { "txnNumber": -1_i64, "autocommit": false, "startTransaction": true }),
        72
    );
    assert_eq!(
        with(doc! { "txnNumber": 5, "autocommit": false, "startTransaction": true }),
        14
    );
    assert_eq!(with(doc! { "txnNumber": number, "autocommit": false }), 251);
    let begin = |more: Document| {
        let mut fields = doc! { "txnNumber": number, "autocommit": false, "startTransaction": true };
        fields.extend(more);
        with(fields)
    };
    assert_eq!(begin(doc! { "writeConcern": { "w": 1 } }), 72);
    assert_eq!(begin(doc! { "readConcern": { "level": "linearizable" } }), 72);
    assert_eq!(begin(doc! { "readConcern": { "level": "available" } }), 72);
    let mut without_session = first(doc! { "find": "c" }, 5);
    without_session.remove("lsid");
    assert_eq!(bench.code(without_session), 72);
    bench.ok(first(doc! { "find": "c", "readConcern": { "level": "snapshot" } }, 5));
    assert_eq!(
        bench.code(next(doc! { "find": "c", "readConcern": { "level": "snapshot" } }, 5)),
        72
    );
    assert_eq!(code(&bench.run_on("local", first(insert(1), 6))), 263);
    assert_eq!(code(&bench.admin(doc! { "commitTransaction": 1 })), 125);
    assert_eq!(code(&bench.admin(numbered(doc! { "commitTransaction": 1 }, 5))), 50768);
}

/// What tells of more than the documents of one moment is no part of a transaction, wherever it stands.
#[test]
fn stages_and_databases_that_no_transaction_reads() {
    let bench = bench();
    let run = |number, stage: Document| {
        bench.code(first(
            doc! { "aggregate": "c", "pipeline": [stage], "cursor": {} },
            number,
        ))
    };
    for (number, name) in [
        "$collStats",
        "$currentOp",
        "$indexStats",
        "$listLocalSessions",
        "$listSessions",
        "$planCacheStats",
    ]
    .into_iter()
    .enumerate()
    {
        let number = 3 * number as i64;
        assert_eq!(run(number, doc! { name: {} }), 263, "{name}");
        let inner = doc! { "from": "nothing", "pipeline": [{ name: {} }], "as": "x" };
        assert_eq!(run(number + 1, doc! { "$lookup": inner }), 263, "{name}");
        let inner = doc! { "coll": "nothing", "pipeline": [{ "$facet": { "x": [{ name: {} }] } }] };
        assert_eq!(run(number + 2, doc! { "$unionWith": inner }), 263, "{name}");
    }
    assert_eq!(code(&bench.run_on("admin", first(insert(1), 30))), 263);
    assert_eq!(code(&bench.run_on("admin", first(doc! { "find": "c" }, 31))), 263);
    let bulk = |ns: &str| {
        let operations = [doc! { "insert": 0, "document": {} }].to_vec();
        doc! { "bulkWrite": 1, "ops": operations, "nsInfo": [{ "ns": ns }] }
    };
    assert_eq!(code(&bench.admin(first(bulk("admin.c"), 32))), 263);
    succeeded(bench.admin(first(bulk("test.d"), 33)));
    let operations = vec![doc! { "insert": 0, "document": {} }; 2];
    let many = doc! { "bulkWrite": 1, "ops": operations, "nsInfo": [{ "ns": "test.d" }], "cursor": { "batchSize": 1 } };
    let reply = succeeded(bench.admin(next(many, 33)));
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    let more = doc! { "getMore": cursor, "collection": "$cmd.bulkWrite" };
    succeeded(bench.admin(next(more, 33)));
    assert_eq!(
        code(&bench.run_on("test", first(doc! { "killCursors": "c", "cursors": [1_i64] }, 34))),
        263
    );
    assert_eq!(code(&end(&bench, "abortTransaction", 1, 34)), 251);
}

#[test]
fn every_command_is_a_statement_or_refuses_to_be_one() {
    for command in COMMANDS.iter() {
        let database = if command.admin_only { "admin" } else { "test" };
        let bench = bench();
        let in_transaction = bench.run_on(database, first(doc! { command.name: 1 }, 1));
        let alone = bench.run_on(database, numbered(doc! { command.name: 1 }, 1));
        let codes = (in_transaction.get_i32("code").ok(), alone.get_i32("code").ok());
        match command.in_transactions {
            InTransactions::No | InTransactions::NotFirst => {
                assert_eq!(codes, (Some(263), Some(50768)), "{}", command.name);
            }
            InTransactions::Allowed | InTransactions::AllowedUnlessSnapshot => {
                assert_ne!(codes.0, Some(263), "{}", command.name);
                assert_eq!(codes.1, Some(50768), "{}", command.name);
            }
            InTransactions::AllowedAndRetryable => {
                assert!(
                    codes.0 != Some(263) && codes.1 != Some(50768),
                    "{}: {codes:?}",
                    command.name
                );
            }
            InTransactions::Ends => assert_eq!(codes, (Some(72), Some(50768)), "{}", command.name),
        }
    }
}

#[test]
fn a_cursor_of_a_transaction_is_its_own_and_ends_with_it() {
    let bench = bench();
    let opened = bench.ok(first(doc! { "find": "c", "batchSize": 1 }, 1));
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    bench.ok(next(insert(3), 1));
    let more = doc! { "getMore": cursor, "collection": "c", "batchSize": 1 };
    let mut outside = more.clone();
    outside.insert("lsid", lsid(1));
    assert_eq!(bench.code(outside), 50740);
    let batch = bench.ok(next(more.clone(), 1));
    let batch = batch.get_document("cursor").unwrap().get_array("nextBatch").unwrap();
    assert_eq!(batch.len(), 1);
    succeeded(end(&bench, "commitTransaction", 1, 1));
    let opened = bench.ok(first(doc! { "find": "c", "batchSize": 1 }, 2));
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    succeeded(end(&bench, "abortTransaction", 1, 2));
    assert_eq!(
        bench.code(doc! { "getMore": cursor, "collection": "c", "lsid": lsid(1) }),
        43
    );
}

#[test]
fn a_transaction_ends_after_its_time_and_with_its_session() {
    let bench = bench();
    let write = || bench.run(doc! { "insert": "c", "documents": [{ "_id": 7 }], "maxTimeMS": 1 });
    bench.ok(first(insert(7), 1));
    bench.clock.advance(Duration::from_secs(59));
    bench.server.tick();
    bench.ok(next(doc! { "find": "c" }, 1));
    bench.clock.advance(Duration::from_secs(1));
    bench.server.tick();
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 1)), 251);
    assert_eq!(succeeded(write()).get_i32("n").ok(), Some(1), "its locks are free");
    for command in [
        doc! { "killSessions": [lsid(1)] },
        doc! { "endSessions": [lsid(1)] },
        doc! { "killAllSessions": [] },
    ] {
        let number = bench.server.sessions.counters.started.get() + 10;
        bench.ok(first(insert(8), number));
        bench.ok(command.clone());
        assert_eq!(code(&end(&bench, "commitTransaction", 1, number)), 251, "{command}");
    }
    bench.insert("c", &[doc! { "_id": 8 }]);
    assert_eq!(bench.server.sessions.open(), (0, 0));
}

#[test]
fn a_session_waits_for_its_operation_in_progress() {
    let bench = bench();
    bench.ok(first(doc! { "insert": "c", "documents": [{ "_id": 3 }] }, 1));
    // Both end the same transaction: one commits it, the other hears that it was committed.
    std::thread::scope(|scope| {
        let both = [1, 2].map(|_| scope.spawn(|| end(&bench, "commitTransaction", 1, 1)));
        for thread in both {
            succeeded(thread.join().unwrap());
        }
    });
    assert_eq!(bench.server.sessions.counters.committed.get(), 1);
}

#[test]
fn writes_that_are_sent_again_are_carried_out_once() {
    let bench = bench();
    let twice = |command: Document, number: i64| {
        let command = numbered(command, number);
        let reply = bench.ok(command.clone());
        let mut again = bench.ok(command);
        let retried = again.remove("retriedStmtIds").or_else(|| again.remove("retriedStmtId"));
        assert_eq!(again, reply);
        retried.unwrap_or(Bson::Null)
    };
    let all = |numbers: &[i32]| Bson::from(numbers.to_vec());
    assert_eq!(
        twice(doc! { "insert": "c", "documents": [{ "_id": 3 }, { "_id": 4 }] }, 1),
        all(&[0, 1])
    );
    let updates = [
        doc! { "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } },
        doc! { "q": { "_id": 9 }, "u": { "$inc": { "a": 1 } }, "upsert": true },
    ];
    assert_eq!(
        twice(doc! { "update": "c", "updates": updates.to_vec() }, 2),
        all(&[0, 1])
    );
    assert_eq!(
        bench.find("c", doc! { "a": { "$exists": true } }),
        [
            doc! { "_id": 1, "a": 2 },
            doc! { "_id": 2, "a": 2 },
            doc! { "_id": 9, "a": 1 },
        ]
    );
    assert_eq!(
        twice(doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] }, 3),
        all(&[0])
    );
    assert_eq!(bench.find("c", doc! {}).len(), 4);
    for (number, new) in [(4, false), (5, true)] {
        let modify = doc! { "findAndModify": "c", "query": { "_id": 2 }, "update": { "$inc": { "a": 1 } }, "new": new };
        assert_eq!(twice(modify, number), Bson::Int32(0));
    }
    assert_eq!(bench.find("c", doc! { "_id": 2 }), [doc! { "_id": 2, "a": 4 }]);
    let upsert =
        doc! { "findAndModify": "c", "query": { "_id": 10 }, "update": { "$inc": { "a": 1 } }, "upsert": true };
    assert_eq!(twice(upsert, 6), Bson::Int32(0));
    assert_eq!(
        twice(doc! { "findAndModify": "c", "query": { "_id": 10 }, "remove": true }, 7),
        Bson::Int32(0)
    );
    assert_eq!(bench.code(numbered(insert(20), 6)), 225, "an older number");
    assert_eq!(bench.server.sessions.counters.retried.get(), 2 + 2 + 1 + 4);
}

#[test]
fn of_a_command_in_part_the_rest_is_carried_out() {
    let bench = bench();
    let first = numbered(
        doc! { "insert": "c", "documents": [{ "_id": 3 }, { "_id": 1 }, { "_id": 4 }], "stmtIds": [4, 5, 6] },
        1,
    );
    assert_eq!(write_errors(&bench.ok(first.clone())), [(1, 11000)]);
    bench.ok(doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });
    let again = bench.ok(first);
    assert_eq!(
        (again.get_i32("n").ok(), again.get_array("retriedStmtIds").ok()),
        (Some(3), Some(&vec![Bson::Int32(4)]))
    );
    assert_eq!(ids(&bench.find("c", doc! {})), [1, 2, 3, 4]);
    for bad in [
        doc! { "stmtIds": [1, 2] },
        doc! { "stmtId": -1 },
        doc! { "stmtId": "x" },
    ] {
        let mut command = numbered(insert(30), 2);
        command.extend(bad.clone());
        assert!(matches!(bench.code(command), 2 | 14 | 16), "{bad}");
    }
}

#[test]
fn bulk_writes_are_sent_again_by_operation() {
    let bench = bench();
    let bulk = numbered(
        doc! { "bulkWrite": 1, "nsInfo": [{ "ns": "test.c" }], "ops": [
            { "insert": 0, "document": { "_id": 3 } },
            { "insert": 0, "document": { "_id": 4 } },
            { "update": 0, "filter": { "_id": 3 }, "updateMods": { "$inc": { "a": 1 } } },
            { "delete": 0, "filter": { "_id": 1 } },
        ] },
        1,
    );
    let reply = succeeded(bench.admin(bulk.clone()));
    let mut again = succeeded(bench.admin(bulk));
    assert_eq!(again.remove("retriedStmtIds"), Some(vec![0, 1, 2, 3].into()));
    assert_eq!(again, reply);
    assert_eq!(bench.find("c", doc! { "_id": 3 }), [doc! { "_id": 3, "a": 1 }]);
    assert_eq!(ids(&bench.find("c", doc! {})), [2, 3, 4]);
}

#[test]
fn writes_to_many_cannot_be_sent_again() {
    let bench = bench();
    let update = doc! { "update": "c", "updates": [{ "q": {}, "u": { "$inc": { "a": 1 } }, "multi": true }] };
    assert_eq!(write_errors(&bench.ok(numbered(update, 1))), [(0, 72)]);
    let delete = doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] };
    assert_eq!(write_errors(&bench.ok(numbered(delete, 2))), [(0, 72)]);
    assert_eq!(bench.find("c", doc! {}).len(), 2);
}

#[test]
fn a_number_of_a_transaction_is_no_number_of_a_write() {
    let bench = bench();
    bench.ok(first(insert(3), 1));
    assert_eq!(bench.code(numbered(insert(4), 1)), 217);
    succeeded(end(&bench, "commitTransaction", 1, 1));
    bench.ok(numbered(insert(4), 2));
    assert_eq!(bench.code(next(doc! { "find": "c" }, 2)), 251);
    assert_eq!(bench.code(first(doc! { "find": "c" }, 2)), 117);
}

#[test]
fn open_transactions_are_part_of_the_memory_of_all_operations() {
    let bench = bench();
    let large = |session: u8, number: i64| {
        let documents = [doc! { "_id": i32::from(session), "x": "x".repeat(1 << 20) }];
        bench.run(of(
            session,
            doc! { "insert": "large", "documents": documents },
            number,
            true,
        ))
    };
    bench.insert("large", &[doc! { "_id": 0 }]);
    succeeded(bench.admin(doc! { "setParameter": 1, "totalOperationMemoryBytesMax": 4 << 20 }));
    let codes: Vec<_> = (1..9).map(|session| large(session, 1).get_i32("code").ok()).collect();
    assert_eq!(codes.iter().filter(|code| code.is_none()).count(), 3, "{codes:?}");
    assert!(codes.iter().flatten().all(|code| *code == 146), "{codes:?}");
    for session in 1..9 {
        end(&bench, "abortTransaction", session, 1);
    }
    succeeded(large(1, 2));
}

fn snapshot(command: Document, at: Option<Bson>) -> Document {
    let mut concern = doc! { "level": "snapshot" };
    concern.extend(at.map(|at| ("atClusterTime".to_owned(), at)));
    let mut command = command;
    command.insert("readConcern", concern);
    command
}

#[test]
fn reads_of_one_moment_are_of_one_moment() {
    let bench = bench();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    let first = bench.ok(snapshot(
        doc! { "find": "c", "batchSize": 1, "sort": { "_id": 1 } },
        None,
    ));
    let cursor = first.get_document("cursor").unwrap();
    let at = cursor.get("atClusterTime").cloned();
    assert!(at.is_some(), "{first}");
    bench.ok(doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 9 } }, "multi": true }] });
    bench.insert("c", &[doc! { "_id": 3, "a": 3 }]);
    bench.insert("new", &[doc! { "_id": 1 }]);
    let id = cursor.get_i64("id").unwrap();
    let more = bench.ok(doc! { "getMore": id, "collection": "c" });
    let more = more.get_document("cursor").unwrap();
    assert_eq!(more.get("atClusterTime"), at.as_ref());
    let rest = more.get_array("nextBatch").unwrap();
    assert_eq!(rest, &vec![Bson::Document(doc! { "_id": 2, "a": 2 })]);
    let count = doc! { "aggregate": "c", "pipeline": [{ "$count": "n" }], "cursor": {} };
    assert_eq!(first_batch(&bench.ok(snapshot(count, at.clone()))), [doc! { "n": 2 }]);
    let distinct = bench.ok(snapshot(doc! { "distinct": "c", "key": "a" }, at.clone()));
    assert_eq!(distinct.get_array("values").unwrap(), &vec![1.into(), 2.into()]);
    assert_eq!(distinct.get("atClusterTime"), at.as_ref());
    assert!(first_batch(&bench.ok(snapshot(doc! { "find": "new" }, at.clone()))).is_empty());
    // An index that came later shows nothing of it: what is read, or is being read, goes on without.
    let rising = doc! { "find": "c", "filter": { "a": { "$gt": 0 } }, "batchSize": 1 };
    let opened = bench.ok(snapshot(rising, at.clone()));
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "b": 1 }, "name": "b" }] });
    let none = doc! { "find": "c", "filter": { "b": Bson::Null } };
    assert_eq!(first_batch(&bench.ok(snapshot(none, at.clone()))).len(), 2);
    let more = bench.ok(doc! { "getMore": id, "collection": "c" });
    let more = more.get_document("cursor").unwrap();
    assert_eq!(more.get_array("nextBatch").unwrap(), rest);
    // What cannot be read any more, or not yet.
    bench.ok(doc! { "drop": "c" });
    assert_eq!(bench.code(snapshot(doc! { "find": "c" }, at.clone())), 246);
    bench.clock.advance(Duration::from_secs(301));
    bench.server.tick();
    assert_eq!(bench.code(snapshot(doc! { "find": "new" }, at)), 239);
    let future = bson::Timestamp {
        time: u32::MAX,
        increment: 1,
    };
    assert_eq!(bench.code(snapshot(doc! { "find": "c" }, Some(future.into()))), 72);
    assert_eq!(
        bench.code(snapshot(doc! { "insert": "c", "documents": [{}] }, None)),
        72
    );
    assert_eq!(bench.code(snapshot(doc! { "count": "c" }, None)), 72);
    assert_eq!(bench.code(snapshot(numbered(insert(7), 1), None)), 72);
}

/// After 64 other reads the one that was still in use was gone.
#[test]
fn a_state_is_kept_however_many_others_are_read() {
    let bench = bench();
    let read = || bench.ok(snapshot(doc! { "find": "c" }, None));
    let at = |reply: &Document| reply.get_document("cursor").unwrap().get("atClusterTime").cloned();
    let first = at(&read());
    assert_eq!(at(&read()), first, "nothing was written");
    for number in 0..100 {
        bench.insert("c", &[doc! { "_id": 10 + number }]);
        assert_ne!(at(&read()), first);
    }
    let again = bench.ok(snapshot(doc! { "find": "c" }, first.clone()));
    assert_eq!((first_batch(&again).len(), at(&again)), (2, first));
}

#[test]
fn collections_and_indexes_are_made_in_transactions() {
    let bench = Bench::member(true);
    let run = |number, command, starts| bench.run(of(1, command, number, starts));
    succeeded(run(
        1,
        doc! { "create": "made", "changeStreamPreAndPostImages": { "enabled": true } },
        true,
    ));
    let index =
        |name: &str| doc! { "createIndexes": name, "indexes": [{ "key": { "a": 1 }, "name": "a", "unique": true }] };
    let report = succeeded(run(1, index("made"), false));
    assert_eq!(
        (
            report.get_i32("numIndexesBefore").ok(),
            report.get_i32("numIndexesAfter").ok()
        ),
        (Some(1), Some(2))
    );
    let report = succeeded(run(1, index("by_index"), false));
    assert_eq!(report.get_bool("createdCollectionAutomatically").ok(), Some(true));
    succeeded(run(
        1,
        doc! { "insert": "made", "documents": [{ "_id": 1, "a": 1 }, { "_id": 2, "a": 2 }] },
        false,
    ));
    succeeded(run(
        1,
        doc! { "update": "made", "updates": [{ "q": { "a": 2 }, "u": { "$set": { "a": 3 } } }] },
        false,
    ));
    succeeded(run(
        1,
        doc! { "update": "upserted", "updates": [{ "q": { "_id": 5 }, "u": { "$set": { "a": 3 } }, "upsert": true }] },
        false,
    ));
    let found = first_batch(&succeeded(run(
        1,
        doc! { "find": "made", "filter": { "a": 3 }, "hint": "a" },
        false,
    )));
    assert_eq!(found, [doc! { "_id": 2, "a": 3 }]);
    let names = || {
        let reply = bench.run(doc! { "listCollections": 1, "nameOnly": true });
        let mut names: Vec<_> = first_batch(&succeeded(reply))
            .iter()
            .map(|c| c.get_str("name").unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), [""; 0]);
    assert_eq!(bench.find("made", doc! {}), []);
    let conflict = bench.run(of(2, doc! { "insert": "made", "documents": [{}] }, 1, true));
    assert_eq!(code(&conflict), 112, "{conflict}");
    succeeded(bench.run_on("admin", of(1, doc! { "commitTransaction": 1 }, 1, false)));
    assert_eq!(names(), ["by_index", "made", "upserted"]);
    assert_eq!(bench.find("made", doc! { "a": 3 }), [doc! { "_id": 2, "a": 3 }]);
    // What is refused ends the transaction, and nothing of it stays.
    for (number, refused, expected) in [
        (2, index("made"), None),
        (
            3,
            doc! { "createIndexes": "made", "indexes": [{ "key": { "b": 1 }, "name": "b" }] },
            Some(263),
        ),
        (
            4,
            doc! { "create": "view", "viewOn": "made", "pipeline": [] },
            Some(263),
        ),
        (5, doc! { "create": "made" }, Some(48)),
        (6, doc! { "drop": "made" }, Some(263)),
    ] {
        succeeded(run(
            number,
            doc! { "insert": format!("other{number}"), "documents": [{}] },
            true,
        ));
        let reply = run(number, refused.clone(), false);
        match expected {
            None => drop(succeeded(reply)),
            Some(expected) => assert_eq!(code(&reply), expected, "{refused}"),
        }
        bench.run_on("admin", of(1, doc! { "abortTransaction": 1 }, number, false));
    }
    assert_eq!(names(), ["by_index", "made", "upserted"]);
}

#[test]
fn who_waits_while_the_primary_steps_down_may_try_again_elsewhere() {
    let bench = bench();
    let storage = &bench.server.storage;
    let namespace = Namespace::new("test", "c").unwrap();
    let reader = Operation::new(bench.server.env.clock.clone(), 0);
    let held = storage.collection(&reader, &namespace, LockMode::Shared).unwrap();
    let refused = std::thread::scope(|scope| {
        let update = numbered(
            doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] },
            7,
        );
        let client = bench.stranger();
        let waiting = {
            let bench = &bench;
            scope.spawn(move || bench.run_as(&client, "test", update))
        };
        let waits = doc! { "currentOp": 1, "waitingForLock": true };
        while bench.admin(waits.clone()).get_array("inprog").unwrap().is_empty() {
            std::thread::yield_now();
        }
        succeeded(bench.admin(doc! { "replSetStepDown": 60, "force": true }));
        waiting.join().unwrap()
    });
    assert_eq!((code(&refused), labels(&refused)), (11602, vec!["RetryableWriteError"]));
    drop(held);
    // Who comes now is told that nothing has begun: of two errors in a row, a driver shows the other one.
    let refused = bench.run(numbered(insert(9), 8));
    let expected = vec!["RetryableWriteError", "NoWritesPerformed"];
    assert_eq!((code(&refused), labels(&refused)), (10107, expected));
}
