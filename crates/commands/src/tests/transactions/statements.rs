//! What a statement of a transaction may be.

use super::*;

fn insert_into(collection: &str) -> Document {
    doc! { "insert": collection, "documents": [{ "_id": 9 }] }
}

#[test]
fn every_statement_may_have_a_number() {
    let bench = bench();
    let with = |mut command: Document, statement: i32| {
        command.insert("stmtId", statement);
        command
    };
    let reply = bench.ok(first(with(doc! { "find": "c", "batchSize": 1 }, 0), 1));
    let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
    bench.ok(next(with(doc! { "getMore": cursor, "collection": "c" }, 1), 1));
    let aggregate = doc! { "aggregate": "c", "pipeline": [], "cursor": {} };
    for (command, statement) in [
        (aggregate, 2),
        (doc! { "distinct": "c", "key": "_id" }, 3),
        (insert(9), 4),
    ] {
        bench.ok(next(with(command, statement), 1));
    }
    assert_eq!(
        bench.code(first(with(doc! { "find": "c" }, -1), 2)),
        2,
        "the transaction was not begun"
    );
    let commit = with(doc! { "commitTransaction": 1 }, 5);
    succeeded(bench.admin(of(1, commit, 1, false)));
    assert_eq!(ids(&bench.find("c", doc! {})), [1, 2, 9]);
}

#[test]
fn collections_are_not_made_in_snapshots() {
    let bench = bench();
    let snapshot = || doc! { "level": "snapshot" };
    let create = || doc! { "create": "new" };
    let index = doc! { "createIndexes": "new", "indexes": [{ "key": { "a": 1 }, "name": "a" }] };
    for (number, command) in [(1, create()), (2, index)] {
        let mut begin = command.clone();
        begin.insert("readConcern", snapshot());
        assert_eq!(bench.code(first(begin, 10 * number)), 72, "{command}");
        assert_eq!(code(&end(&bench, "commitTransaction", 1, 10 * number)), 251);
        bench.ok(first(doc! { "find": "c", "readConcern": snapshot() }, 10 * number + 1));
        assert_eq!(bench.code(next(command, 10 * number + 1)), 72);
        assert_eq!(code(&end(&bench, "commitTransaction", 1, 10 * number + 1)), 251);
    }
    let mut begin = create();
    begin.insert("readConcern", doc! { "level": "local" });
    bench.ok(first(begin, 30));
    succeeded(end(&bench, "commitTransaction", 1, 30));
}

#[test]
fn statements_are_of_the_version_of_the_api_of_the_first() {
    let bench = bench();
    let parameters = [
        doc! {},
        doc! { "apiVersion": "1" },
        doc! { "apiVersion": "1", "apiDeprecationErrors": false },
        doc! { "apiVersion": "1", "apiDeprecationErrors": true },
        doc! { "apiVersion": "1", "apiStrict": false },
        doc! { "apiVersion": "1", "apiStrict": true },
    ];
    let with = |mut command: Document, parameters: &Document| {
        command.extend(parameters.clone());
        command
    };
    let mut number = 0;
    for begun in &parameters {
        for other in &parameters {
            number += 1;
            let id = 100 + number as i32;
            bench.ok(first(with(insert(id), begun), number));
            let end = |name: &str, parameters| {
                bench
                    .admin(of(1, with(doc! { name: 1 }, parameters), number, false))
                    .get_i32("code")
                    .ok()
            };
            let wanted = (begun != other).then_some(347);
            let next = bench
                .run(next(with(insert(1000 + id), other), number))
                .get_i32("code")
                .ok();
            assert_eq!(next, wanted, "{begun} {other}");
            if wanted.is_some() {
                assert_eq!(end("commitTransaction", other), wanted, "{begun} {other}");
                assert_eq!(end("abortTransaction", other), wanted, "{begun} {other}");
            }
            assert_eq!(end("commitTransaction", begun), None, "it stayed open: {begun} {other}");
        }
    }
    assert_eq!(bench.find("c", doc! {}).len(), 2 + 36 + 6);
}

#[test]
fn system_collections_are_no_part_of_transactions() {
    let bench = bench();
    bench.insert("system.js", &[doc! { "_id": "f", "value": 1 }]);
    let modify = doc! { "findAndModify": "system.js", "query": {}, "update": { "$set": { "value": 2 } } };
    let update = doc! { "update": "system.js", "updates": [{ "q": {}, "u": { "$set": { "value": 2 } } }] };
    let delete = doc! { "delete": "system.js", "deletes": [{ "q": {}, "limit": 0 }] };
    for (number, command, wanted) in [
        (1, modify, 50781),
        (2, update, 50791),
        (3, delete, 50791),
        (4, insert_into("system.js"), 50791),
        (5, doc! { "find": "system.views" }, 263),
        (
            6,
            doc! { "aggregate": "system.profile", "pipeline": [], "cursor": {} },
            263,
        ),
    ] {
        assert_eq!(bench.code(first(command.clone(), number)), wanted, "{command}");
        assert_eq!(code(&end(&bench, "commitTransaction", 1, number)), 251, "{command}");
    }
    bench.ok(first(doc! { "find": "system.js" }, 7));
    succeeded(end(&bench, "commitTransaction", 1, 7));
    bench.ok(insert_into("system.js"));
    bench.ok(doc! { "find": "system.views" });
}

#[test]
fn transactions_open_no_tailable_cursors() {
    let bench = bench();
    bench.ok(doc! { "create": "capped", "capped": true, "size": 4096 });
    bench.insert("capped", &[doc! { "_id": 1 }]);
    for (number, option, wanted) in [(1, "tailable", 72), (2, "readOnce", 263)] {
        let find = doc! { "find": "capped", option: true };
        assert_eq!(bench.code(first(find.clone(), number)), wanted, "{option}");
        assert_eq!(code(&end(&bench, "commitTransaction", 1, number)), 251, "{option}");
        bench.ok(find);
    }
}

/// It locked its document, and failed where somebody else had changed that.
#[test]
fn an_update_that_changes_nothing_is_in_nobodys_way() {
    let bench = bench();
    let set = |field: &str, value: i32| {
        let change = doc! { "$set": { field: value } };
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": change }] }
    };
    let counts = |reply: Document| (reply.get_i32("n").unwrap(), reply.get_i32("nModified").unwrap());
    bench.ok(of(1, doc! { "find": "c" }, 1, true));
    bench.ok(set("b", 1));
    assert_eq!(counts(bench.ok(of(1, set("a", 1), 1, false))), (1, 0));
    let modify = doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$set": { "a": 1 } } };
    let found = bench.ok(of(1, modify, 1, false));
    assert_eq!(found.get_document("value").unwrap(), &doc! { "_id": 1, "a": 1 });
    succeeded(end(&bench, "commitTransaction", 1, 1));
    // Neither does it keep others from changing the document, unless the transaction had changed it before.
    assert_eq!(counts(bench.ok(of(1, set("a", 1), 2, true))), (1, 0));
    assert_eq!(counts(bench.ok(of(2, set("a", 2), 1, true))), (1, 1));
    assert_eq!(counts(bench.ok(of(2, set("a", 2), 1, false))), (1, 0));
    assert_eq!(bench.code(of(1, set("a", 3), 2, false)), 112);
    succeeded(end(&bench, "commitTransaction", 2, 1));
    assert_eq!(bench.find("c", doc! { "_id": 1 }), [doc! { "_id": 1, "a": 2, "b": 1 }]);
}

/// It left the transaction open, where the same into a collection that is there ends it.
#[test]
fn a_document_that_is_refused_ends_the_transaction_whether_its_collection_is_there() {
    let bench = bench();
    let refused = |collection: &str| doc! { "insert": collection, "documents": [{ "_id": [1] }, { "_id": [2] }] };
    let bulk = doc! {
        "bulkWrite": 1, "nsInfo": [{ "ns": "test.new" }], "ops": [{ "insert": 0, "document": { "_id": [1] } }],
    };
    for (number, ordered, collection) in [(1, true, "c"), (2, true, "new"), (3, false, "c"), (4, false, "new")] {
        let mut command = refused(collection);
        command.insert("ordered", ordered);
        bench.ok(first(insert(9), number));
        assert_eq!(write_errors(&bench.ok(next(command, number))), [(0, 53)]);
        assert_eq!(code(&end(&bench, "commitTransaction", 1, number)), 251);
    }
    bench.ok(first(insert(9), 20));
    succeeded(bench.admin(of(1, bulk, 20, false)));
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 20)), 251);
    assert_eq!(ids(&bench.find("c", doc! {})), [1, 2]);
}

/// It was told that somebody had killed it.
#[test]
fn a_statement_whose_transaction_has_lasted_too_long_is_told_so() {
    let bench = bench();
    bench.ok(first(doc! { "find": "c" }, 1));
    // It would not end by itself.
    let range = |of: Document| doc! { "$sum": { "$map": { "input": { "$range": [0, 10_000] }, "in": of } } };
    let endless = range(range(range(doc! { "$add": ["$a", 1] })));
    let command = || doc! { "find": "c", "filter": { "$expr": { "$gt": [&endless, 0] } } };
    std::thread::scope(|scope| {
        let statement = scope.spawn(|| bench.run(next(command(), 1)));
        while bench.server.sessions.open() != (0, 1) {
            std::thread::yield_now();
        }
        bench.clock.advance(Duration::from_secs(61));
        bench.server.tick();
        assert_eq!(code(&statement.join().unwrap()), 290);
    });
    assert_eq!(code(&end(&bench, "commitTransaction", 1, 1)), 251);
}
