//! What is told of operations: in the log, in `system.profile`, by `top` and `currentOp`; and what is told instead of
//! doing them.

use super::transactions::numbered;
use super::{Bench, code, first_batch, succeeded};
use crate::Request;
use crate::logger::Ring;
use crate::operation_entry::{Telling, tell};
use crate::profiler::{ProfilingLevel, Setting};
use bson::{Bson, Document, RawDocumentBuf, doc};
use serde_json::Value;

/// `{dropDatabase: 1, help: true}` dropped the database.
#[test]
fn help_is_told_and_nothing_is_done() {
    let bench = Bench::new();
    bench.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let state = || {
        let listed = bench.ok(doc! { "listCollections": 1 });
        (listed, bench.ok(doc! { "find": "c" }), bench.ok(doc! { "profile": -1 }))
    };
    let before = state();
    for command in bench.server.commands.iter().filter(|command| bench.server.has(command)) {
        for target in [Bson::from(1), "c".into()] {
            let mut asked = Document::from_iter([(command.name.to_owned(), target)]);
            asked.insert("help", true);
            let told = match command.admin_only {
                true => bench.admin(asked),
                false => bench.run(asked),
            };
            let help = format!("help for: {} {}", command.name, command.help);
            assert_eq!(told, doc! { "help": help, "ok": 1.0 });
        }
    }
    assert!(!bench.server.is_shutting_down());
    assert_eq!(state(), before);
    let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
    let counted = status
        .get_document("metrics")
        .unwrap()
        .get_document("commands")
        .unwrap();
    assert!(
        !counted.contains_key("drop") && !counted.contains_key("dropDatabase"),
        "{counted}"
    );
    // What is no help is done.
    bench.ok(doc! { "drop": "c", "help": false });
    assert_eq!(first_batch(&bench.ok(doc! { "find": "c" })).len(), 0);
}

/// As drivers send writes: the statements beside the body.
fn with_sequences(bench: &Bench, database: &str, mut body: Document, sequences: &[(&str, &[Document])]) -> Document {
    body.insert("$db", database);
    let body = RawDocumentBuf::try_from(&body).unwrap();
    let bytes = |documents: &[Document]| -> Vec<u8> {
        let documents = documents
            .iter()
            .map(|document| RawDocumentBuf::try_from(document).unwrap());
        documents.flat_map(RawDocumentBuf::into_bytes).collect()
    };
    let sequences: Vec<(&str, Vec<u8>)> = sequences.iter().map(|(name, of)| (*name, bytes(of))).collect();
    let sequences: Vec<(&str, &[u8])> = sequences.iter().map(|(name, of)| (*name, &of[..])).collect();
    let request = Request {
        sequences: &sequences,
        ..Request::of(&body)
    };
    bench.handle(&bench.client, &request)
}

fn profile(bench: &Bench, filter: Document) -> Vec<Document> {
    first_batch(&bench.ok(doc! { "find": "system.profile", "filter": filter, "sort": { "$natural": 1 } }))
}

/// `attr` of the log lines about slow operations.
fn slow_lines(bench: &Bench) -> Vec<Value> {
    let (_, lines) = bench.server.logger.ring(Ring::Global);
    let parsed = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    parsed
        .filter(|line| line["msg"] == "Slow query")
        .map(|line| line["attr"].clone())
        .collect()
}

/// Of `{update: "c", ordered: true}` nobody could tell what it looked for.
#[test]
fn statements_are_told_one_by_one() {
    let bench = Bench::new();
    let documents: Vec<Document> = (0..20).map(|n| doc! { "_id": n, "a": n % 2 }).collect();
    bench.insert("c", &documents);
    bench.ok(doc! { "profile": 2, "slowms": 0 });
    let statements = [
        doc! { "q": { "_id": 1 }, "u": { "$set": { "b": 1 } } },
        doc! { "q": { "a": 0 }, "u": { "$set": { "b": 2 } }, "multi": true },
        doc! { "q": { "_id": 2 }, "u": { "$inc": { "a": "x" } } },
    ];
    let update = doc! { "update": "c", "ordered": false };
    let reply = with_sequences(&bench, "test", update, &[("updates", &statements)]);
    assert_eq!(reply.get_array("writeErrors").unwrap().len(), 1, "{reply}");
    let deletes = [doc! { "q": { "a": 1 }, "limit": 0 }];
    succeeded(with_sequences(
        &bench,
        "test",
        doc! { "delete": "c" },
        &[("deletes", &deletes)],
    ));
    bench.ok(doc! { "profile": 0, "slowms": 100 });

    let entries = profile(&bench, doc! { "ns": "test.c" });
    let told: Vec<_> = entries
        .iter()
        .map(|entry| entry.get_document("command").unwrap())
        .collect();
    assert_eq!(told, statements.iter().chain(&deletes).collect::<Vec<_>>());
    let figure = |place: usize, name: &str| entries[place].get_i64(name).ok();
    let ops: Vec<_> = entries.iter().map(|entry| entry.get_str("op").unwrap()).collect();
    assert_eq!(ops, ["update", "update", "update", "remove"]);
    // Each has its own figures and its own plan.
    assert_eq!((figure(0, "docsExamined"), figure(0, "nModified")), (Some(1), Some(1)));
    assert_eq!(
        (figure(1, "docsExamined"), figure(1, "nModified")),
        (Some(20), Some(10))
    );
    assert_eq!((figure(3, "docsExamined"), figure(3, "ndeleted")), (Some(20), Some(10)));
    assert_eq!(entries[0].get_str("planSummary").ok(), Some("IDHACK"));
    assert_eq!(entries[1].get_str("planSummary").ok(), Some("COLLSCAN"));
    assert_eq!(entries[2].get_i32("errCode").ok(), Some(14));
    // The log has them, too, and the command with all of its statements.
    let lines = slow_lines(&bench);
    let updates: Vec<_> = lines.iter().filter(|line| line["type"] == "update").collect();
    assert_eq!(updates.len(), 3);
    let told = &updates[1]["command"];
    assert!(
        told["q"]["a"] == 0 && told["multi"] == true && told["u"]["$set"]["b"] == 2,
        "{told}"
    );
    let commands = lines.iter().filter_map(|line| line["command"]["updates"].as_array());
    assert_eq!(commands.map(Vec::len).collect::<Vec<_>>(), [3]);
    // A filter finds them by what they say.
    bench.ok(doc! { "profile": 1, "filter": { "command.q.a": 0 } });
    with_sequences(&bench, "test", doc! { "update": "c" }, &[("updates", &statements[..2])]);
    bench.ok(doc! { "profile": 0, "filter": "unset" });
    assert_eq!(profile(&bench, doc! { "command.q.a": 0 }).len(), 2);
    assert_eq!(profile(&bench, doc! { "command.q._id": 1 }).len(), 1);
}

/// What was told of a slow statement was made before it was known whether anybody is to be told.
#[test]
fn nothing_is_made_of_an_operation_that_is_told_nowhere() {
    let bench = Bench::new();
    bench.ok(doc! { "profile": 0, "slowms": 0, "sampleRate": 0.0 });
    let told = |setting: &Setting, is_slow: bool| {
        bench
            .server
            .own_call(|call| {
                let telling = Telling {
                    setting,
                    is_slow,
                    profiled_in: Some("test"),
                };
                tell(call, &telling, || panic!("nobody asks for it"));
                Ok(())
            })
            .unwrap();
    };
    let slow = Setting {
        level: ProfilingLevel::Slow,
        filter: None,
    };
    for setting in [Setting::default(), slow] {
        told(&setting, false);
        told(&setting, true);
    }
    // It is made once, for the filter, the log and the profile.
    bench.ok(doc! { "profile": 2, "sampleRate": 1.0 });
    bench.ok(doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 }, "upsert": true }] });
    bench.ok(doc! { "profile": 1, "filter": { "command.q._id": 2 } });
    bench.ok(doc! { "update": "c", "updates": [{ "q": { "_id": 2 }, "u": { "a": 2 }, "upsert": true }] });
    bench.ok(doc! { "profile": 0, "filter": "unset", "slowms": 100 });
    let lines = slow_lines(&bench);
    for id in [1, 2] {
        let entries = profile(&bench, doc! { "command.q._id": id });
        let of_line: Vec<_> = lines.iter().filter(|line| line["command"]["q"]["_id"] == id).collect();
        assert_eq!((entries.len(), of_line.len()), (1, 1), "{entries:?} {of_line:?}");
        let keys = entries[0].get_i64("keysInserted").ok();
        assert_eq!(of_line[0]["keysInserted"].as_i64(), keys);
    }
}

/// Of a `bulkWrite` only updates and deletes were told, so that nothing said which of its inserts was slow.
#[test]
fn inserts_of_a_bulk_write_are_told_where_they_go() {
    let bench = Bench::new();
    let insert = |namespace: i32, id: i32| doc! { "insert": namespace, "document": { "_id": id, "secret": 1 } };
    let remove = doc! { "delete": 0, "filter": { "_id": 1 } };
    let ops = [
        insert(0, 1),
        insert(0, 2),
        remove,
        insert(1, 1),
        insert(1, 1),
        insert(1, 3),
    ];
    let namespaces = [doc! { "ns": "test.a" }, doc! { "ns": "test.b" }];
    let run = || {
        let bulk = [("ops", &ops[..]), ("nsInfo", &namespaces)];
        succeeded(with_sequences(
            &bench,
            "admin",
            doc! { "bulkWrite": 1, "ordered": false },
            &bulk,
        ));
    };
    bench.ok(doc! { "profile": 2, "slowms": 0 });
    run();
    bench.ok(doc! { "profile": 0, "slowms": 100 });
    let entries = profile(&bench, doc! { "op": { "$in": ["insert", "remove"] } });
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            let text = |name| entry.get_str(name).unwrap();
            let figures = (entry.get_i64("ninserted").ok(), entry.get_i32("errCode").ok());
            (text("op"), text("ns"), figures)
        })
        .collect();
    let expected = [
        ("insert", "test.a", (Some(2), None)),
        ("remove", "test.a", (None, None)),
        ("insert", "test.b", (Some(2), Some(11000))),
    ];
    assert_eq!(told, expected);
    assert_eq!(entries[2].get_document("command").ok(), Some(&doc! { "insert": "b" }));
    assert!(!entries[2].contains_key("planSummary"), "that is the delete's");
    let lines = slow_lines(&bench);
    let inserts: Vec<_> = lines.iter().filter(|line| line["type"] == "insert").collect();
    assert_eq!(inserts.len(), 2);
    assert!(inserts[0]["command"]["insert"] == "a" && inserts[0]["ninserted"] == 2);
    assert!(lines.iter().all(|line| !line.to_string().contains("secret")));
    // They go by the filter, the sample rate and the time as others do.
    bench.ok(doc! { "profile": 1, "filter": { "op": "insert", "ns": "test.b" } });
    run();
    bench.ok(doc! { "profile": 1, "slowms": 0, "sampleRate": 0.0, "filter": "unset" });
    run();
    bench.ok(doc! { "profile": 0, "slowms": 100, "sampleRate": 1.0 });
    run();
    assert_eq!(profile(&bench, doc! { "op": "insert" }).len(), 3);
}

/// Documents go in some hundred at a time, and what ends the command may come between them.
#[test]
fn inserts_that_an_error_ends_are_told_with_what_is_in() {
    let bench = Bench::member(true);
    bench.insert("b", &[doc! { "_id": -1 }]);
    let of_a = [doc! { "insert": 0, "document": { "_id": 0 } }];
    let of_b = (0..300).map(|id| doc! { "insert": 1, "document": { "_id": id } });
    let ops: Vec<Document> = of_a.into_iter().chain(of_b).collect();
    let command = doc! { "bulkWrite": 1, "ops": ops, "nsInfo": [{ "ns": "test.a" }, { "ns": "test.b" }] };
    succeeded(bench.admin(doc! {
        "configureFailPoint": "onPrimaryTransactionalWrite", "mode": { "skip": 257 },
        "data": { "failBeforeCommitExceptionCode": 11601, "closeConnection": false },
    }));
    bench.ok(doc! { "profile": 0, "slowms": 0 });
    assert_eq!(code(&bench.admin(numbered(command, 1))), 11601);
    bench.ok(doc! { "profile": 0, "slowms": 100 });
    let lines = slow_lines(&bench);
    let inserts: Vec<_> = lines.iter().filter(|line| line["type"] == "insert").collect();
    assert_eq!(inserts.len(), 2);
    assert!(inserts[0]["ninserted"] == 1 && inserts[0].get("errCode").is_none());
    assert_eq!(inserts[1]["errCode"], 11601);
    let n = bench.ok(doc! { "count": "b", "query": { "_id": { "$gte": 0 } } });
    assert_eq!(inserts[1]["ninserted"], n.get_i32("n").unwrap());
    assert_eq!(inserts[1]["ninserted"], 256);
}

/// What `explain` tells of a query's hashes: those of its shape, and of its plan.
fn explained_hashes(bench: &Bench, command: Document) -> (String, String) {
    let explained = bench.ok(doc! { "explain": command, "verbosity": "queryPlanner" });
    let planner = match explained.get_array("stages") {
        Ok(stages) => stages[0].as_document().unwrap().get_document("$cursor").unwrap(),
        Err(_) => &explained,
    };
    let planner = planner.get_document("queryPlanner").unwrap();
    let text = |name| planner.get_str(name).unwrap().to_owned();
    (text("planCacheShapeHash"), text("planCacheKey"))
}

/// Hashes of shapes put the slow operations of a log together; only `explain` had them.
#[test]
fn plans_are_told_with_the_hashes_of_their_queries() {
    let bench = Bench::new();
    let documents: Vec<Document> = (0..20).map(|n| doc! { "_id": n, "a": n % 5, "b": n % 3 }).collect();
    bench.insert("c", &documents);
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    bench.ok(doc! { "createIndexes": "m", "indexes": [{ "key": { "a": 1 }, "name": "a", "unique": true }] });
    let entry_of = |mut command: Document, comment: i32| {
        command.insert("comment", comment);
        bench.ok(doc! { "profile": 2, "slowms": 0 });
        let reply = bench.ok(command);
        bench.ok(doc! { "profile": 0, "slowms": 100 });
        let entry = profile(&bench, doc! { "command.comment": comment }).remove(0);
        (entry, reply)
    };
    let hashes_in = |entry: &Document| {
        let text = |name| entry.get_str(name).unwrap().to_owned();
        assert_eq!(text("queryHash"), text("planCacheShapeHash"), "{entry}");
        (text("planCacheShapeHash"), text("planCacheKey"))
    };
    let group = [doc! { "$match": { "b": 1 } }, doc! { "$group": { "_id": "$a" } }];
    // What it writes is planned, too: by another field.
    let merge = [
        doc! { "$match": { "b": 1 } },
        doc! { "$merge": { "into": "m", "on": "a", "whenMatched": "keepExisting" } },
    ];
    let queries = [
        // One that is planned without having been parsed.
        doc! { "find": "c", "filter": { "a": 1 } },
        doc! { "find": "c", "filter": { "a": 1 }, "sort": { "b": -1 }, "projection": { "b": 1 } },
        doc! { "find": "c", "filter": { "b": { "$gt": 1 } } },
        doc! { "find": "v", "filter": { "b": 1 } },
        doc! { "count": "c", "query": { "b": 1 } },
        doc! { "count": "v", "query": { "b": 1 } },
        doc! { "distinct": "c", "key": "b", "query": { "a": 1 } },
        doc! { "aggregate": "c", "pipeline": group.to_vec(), "cursor": {} },
        doc! { "aggregate": "c", "pipeline": merge.to_vec(), "cursor": {} },
        doc! { "findAndModify": "c", "query": { "b": 1 }, "update": { "$set": { "x": 1 } } },
    ];
    for (comment, query) in (0..).zip(queries) {
        let expected = explained_hashes(&bench, query.clone());
        let (entry, _) = entry_of(query.clone(), comment);
        assert_eq!(hashes_in(&entry), expected, "{query}");
        let is_in_log = |line: &Value| {
            line["command"]["comment"] == comment
                && line["planCacheShapeHash"] == expected.0.as_str()
                && line["queryHash"] == expected.0.as_str()
                && line["planCacheKey"] == expected.1.as_str()
        };
        assert!(slow_lines(&bench).iter().any(is_in_log), "{query}");
    }

    // Statements have those of their filters, and cursors those of the query that made them.
    let of_filter = explained_hashes(&bench, doc! { "find": "c", "filter": { "b": 1 } });
    bench.ok(doc! { "profile": 2, "slowms": 0 });
    let statements = [
        doc! { "q": { "_id": 1 }, "u": { "$set": { "y": 2 } } },
        doc! { "q": { "b": 1 }, "u": { "$set": { "y": 1 } }, "multi": true },
    ];
    bench.ok(doc! { "update": "c", "updates": statements.to_vec() });
    bench.ok(doc! { "profile": 0, "slowms": 100 });
    let updates = profile(&bench, doc! { "op": "update" });
    assert_eq!(hashes_in(&updates[1]), of_filter);
    let (first, opened) = entry_of(doc! { "find": "c", "filter": { "b": 1 }, "batchSize": 2 }, 100);
    assert_eq!(hashes_in(&first), of_filter);
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    let (more, _) = entry_of(doc! { "getMore": cursor, "collection": "c" }, 101);
    assert_eq!(hashes_in(&more), of_filter);

    // What is not planned has none.
    let unplanned = [
        doc! { "find": "c", "filter": { "_id": 1 } },
        doc! { "find": "none", "filter": { "b": 1 } },
        doc! { "count": "c" },
        doc! { "insert": "c", "documents": [{ "_id": 100 }] },
    ];
    let entries = (200..)
        .zip(unplanned)
        .map(|(comment, command)| entry_of(command, comment).0);
    let hashes = ["planCacheShapeHash", "queryHash", "planCacheKey"];
    for entry in entries.chain([updates[0].clone()]) {
        assert!(hashes.iter().all(|name| !entry.contains_key(name)), "{entry}");
    }
    // Nor has a command whose statements have their own.
    let lines = slow_lines(&bench);
    let of_command: Vec<_> = lines
        .iter()
        .filter(|line| line["command"]["updates"].is_array())
        .collect();
    assert_eq!(of_command.len(), 1);
    assert!(
        hashes.iter().all(|name| of_command[0].get(name).is_none()),
        "{}",
        of_command[0]
    );
}

#[test]
fn a_cursor_is_told_by_what_made_it() {
    let bench = Bench::new();
    let documents: Vec<Document> = (0..9).map(|n| doc! { "_id": n }).collect();
    bench.insert("c", &documents);
    let opened = bench.ok(doc! { "find": "c", "filter": { "_id": { "$gt": 1 } }, "batchSize": 2 });
    let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    bench.ok(doc! { "profile": 2, "slowms": 0 });
    bench.ok(doc! { "getMore": id, "collection": "c" });
    bench.ok(doc! { "ping": 1 });
    bench.ok(doc! { "profile": 0, "slowms": 100 });
    let entries = profile(&bench, doc! { "op": "getmore" });
    let originating = entries[0].get_document("originatingCommand").unwrap();
    assert_eq!(
        originating.get_document("filter").ok(),
        Some(&doc! { "_id": { "$gt": 1 } })
    );
    assert!(
        slow_lines(&bench)
            .iter()
            .any(|line| line.get("originatingCommand").is_some())
    );
    // What is on no collection has a name of two parts all the same.
    assert_eq!(profile(&bench, doc! { "ns": "test.$cmd" }).len(), 2, "ping and profile");
}

fn top_of(bench: &Bench, namespace: &str) -> Vec<(String, i64)> {
    let top = succeeded(bench.admin(doc! { "top": 1 }));
    let Ok(entry) = top.get_document("totals").unwrap().get_document(namespace) else {
        return Vec::new();
    };
    let counts = entry.iter().map(|(name, usage)| {
        let count = usage.as_document().unwrap().get_i64("count").unwrap();
        (name.clone(), count)
    });
    counts.filter(|(name, count)| *count > 0 && name != "total").collect()
}

fn latencies(bench: &Bench, collection: &str) -> (i64, i64, i64) {
    let [stats] = &bench.aggregate(collection, &[doc! { "$collStats": { "latencyStats": {} } }])[..] else {
        panic!("one document")
    };
    let stats = stats.get_document("latencyStats").unwrap();
    let ops = |name| stats.get_document(name).unwrap().get_i64("ops").unwrap();
    (ops("reads"), ops("writes"), ops("commands"))
}

/// A scan was counted again with each batch of its cursor.
#[test]
fn a_scan_is_counted_once() {
    let bench = Bench::new();
    let documents: Vec<_> = (0..10).map(|n| doc! { "_id": n }).collect();
    bench.insert("c", &documents);
    bench.ok(doc! { "create": "tail", "capped": true, "size": 4096 });
    bench.insert("tail", &documents);
    let server = || {
        let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
        let executor = status
            .get_document("metrics")
            .unwrap()
            .get_document("queryExecutor")
            .unwrap();
        let scans = executor.get_document("collectionScans").unwrap();
        (scans.get_i64("total").unwrap(), scans.get_i64("nonTailable").unwrap())
    };
    let of = |collection: &str| {
        let stats = bench.aggregate(collection, &[doc! { "$collStats": { "queryExecStats": {} } }]);
        let scans = stats[0].get_document("queryExecStats").unwrap();
        let scans = scans.get_document("collectionScans").unwrap();
        (scans.get_i64("total").unwrap(), scans.get_i64("nonTailable").unwrap())
    };
    let read = |command: Document| {
        let collection = command.get_str("find").unwrap().to_owned();
        let mut cursor = bench.ok(command).get_document("cursor").unwrap().get_i64("id").unwrap();
        for _ in 0..3 {
            let more = bench.ok(doc! { "getMore": cursor, "collection": collection.as_str(), "batchSize": 2 });
            cursor = more.get_document("cursor").unwrap().get_i64("id").unwrap();
        }
    };
    let (total, others) = server();
    read(doc! { "find": "c", "batchSize": 2 });
    read(doc! { "find": "tail", "batchSize": 2, "tailable": true });
    bench.ok(doc! { "find": "c", "filter": { "_id": 1 } });
    assert_eq!(server(), (total + 2, others + 1));
    assert_eq!((of("c"), of("tail")), ((1, 1), (1, 0)));

    let change = doc! { "q": { "x": 1 }, "u": { "$set": { "x": 2 } } };
    bench.ok(doc! { "update": "c", "updates": [change.clone(), change] });
    assert_eq!(of("c"), (3, 3));
    bench.ok(doc! { "delete": "c", "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] });
    assert_eq!(of("c"), (3, 3));
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    assert_eq!(
        bench.aggregate_code("v", &[doc! { "$collStats": { "queryExecStats": {} } }]),
        166
    );
}

fn counts(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// A collection that only `bulkWrite`, `$merge` and `$out` write to looked idle.
#[test]
fn writes_are_counted_where_they_are_done() {
    let bench = Bench::new();
    let namespaces = [doc! { "ns": "test.a" }, doc! { "ns": "test.b" }];
    let mut ops: Vec<Document> = (0..10)
        .map(|n| doc! { "insert": 0, "document": { "_id": n } })
        .collect();
    ops.push(doc! { "update": 0, "filter": { "_id": 1 }, "updateMods": { "$set": { "x": 1 } } });
    ops.push(doc! { "insert": 1, "document": { "_id": 1 } });
    ops.push(doc! { "delete": 0, "filter": { "_id": 2 } });
    let bulk = [("ops", &ops[..]), ("nsInfo", &namespaces)];
    succeeded(with_sequences(&bench, "admin", doc! { "bulkWrite": 1 }, &bulk));
    let of_a = counts(&[("writeLock", 3), ("insert", 1), ("update", 1), ("remove", 1)]);
    assert_eq!(top_of(&bench, "test.a"), of_a);
    assert_eq!(top_of(&bench, "test.b"), counts(&[("writeLock", 1), ("insert", 1)]));
    assert_eq!(latencies(&bench, "a"), (0, 3, 0));

    let counters = || {
        let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
        status.get_document("opcounters").unwrap().get_i64("update").unwrap()
    };
    let before = counters();
    bench.aggregate("a", &[doc! { "$merge": "merged" }]);
    assert_eq!(counters() - before, 9);
    assert_eq!(
        top_of(&bench, "test.merged"),
        counts(&[("writeLock", 1), ("update", 1)])
    );
    bench.insert("out", &[doc! { "_id": 1 }]);
    bench.aggregate("a", &[doc! { "$out": "out" }]);
    assert_eq!(top_of(&bench, "test.out"), counts(&[("writeLock", 2), ("insert", 2)]));
}

/// `top` had more queries than `opcounters`, and an index that was made under `readLock`.
#[test]
fn top_counts_as_opcounters_do() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    bench.find("c", doc! {});
    bench.aggregate("c", &[]);
    bench.ok(doc! { "count": "c" });
    bench.ok(doc! { "distinct": "c", "key": "_id" });
    let reads = counts(&[
        ("readLock", 4),
        ("writeLock", 1),
        ("queries", 1),
        ("insert", 1),
        ("commands", 3),
    ]);
    assert_eq!(top_of(&bench, "test.c"), reads);
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] });
    let all = counts(&[
        ("readLock", 4),
        ("writeLock", 2),
        ("queries", 1),
        ("insert", 1),
        ("commands", 4),
    ]);
    assert_eq!(top_of(&bench, "test.c"), all);
    // By what they are, wherever `top` has them.
    assert_eq!(latencies(&bench, "c"), (4, 1, 1));
}

/// Tools parse these times by a format with a fraction; one in a thousand had none.
#[test]
fn times_of_operations_have_fractions() {
    let bench = Bench::new();
    let shown = succeeded(bench.admin(doc! { "currentOp": 1 }));
    let [Bson::Document(own)] = &shown.get_array("inprog").unwrap()[..] else {
        panic!("it shows itself")
    };
    assert_eq!(own.get_str("currentOpTime").ok(), Some("2023-11-14T22:13:20.000+00:00"));
    assert_eq!(own.get_str("ns").ok(), Some("admin.$cmd"));
}

/// Whoever may read what the profiler writes may ask how much it does.
#[test]
fn the_profiling_level_is_told_to_who_may_read_the_profile() {
    let bench = Bench::guarded();
    let reader = bench.user("reader", &[doc! { "role": "clusterMonitor", "db": "admin" }.into()]);
    let asked = |database: &str, command: Document| bench.run_as(&reader, database, command);
    assert_eq!(
        succeeded(asked("test", doc! { "profile": -1 })).get_i32("was").ok(),
        Some(0)
    );
    for command in [
        doc! { "profile": 0 },
        doc! { "profile": 2 },
        doc! { "profile": -1, "slowms": 5 },
        doc! { "profile": -1, "sampleRate": 0.5 },
        doc! { "profile": -1, "filter": {} },
    ] {
        assert_eq!(code(&asked("test", command.clone())), 13, "{command}");
    }
    let nobody = bench.user("nobody", &[]);
    assert_eq!(code(&bench.run_as(&nobody, "test", doc! { "profile": -1 })), 13);
}

/// Who asked put back what was changed in the meantime, and made collections.
#[test]
fn to_ask_for_the_profiling_level_changes_nothing() {
    let bench = Bench::new();
    let level = |database: &str| bench.server.profiler.get(database).level;
    bench
        .server
        .profiler
        .update("unheard", |setting| setting.level = ProfilingLevel::All);
    let asked = succeeded(bench.run_as(&bench.client, "unheard", doc! { "profile": -1 }));
    assert_eq!(asked.get_i32("was").ok(), Some(2));
    assert_eq!(level("unheard"), ProfilingLevel::All);
    assert!(!bench.server.storage.catalog().database_exists("unheard"));
    // A level stays where only a filter is given, and a filter where only a level is.
    bench.ok(doc! { "profile": 1, "filter": { "op": "query" } });
    bench.ok(doc! { "profile": 2 });
    bench.ok(doc! { "profile": -1, "filter": { "op": "insert" } });
    assert_eq!(level("test"), ProfilingLevel::All);
    bench.ok(doc! { "profile": 0 });
    let asked = bench.ok(doc! { "profile": -1 });
    assert_eq!(asked.get_document("filter").ok(), Some(&doc! { "op": "insert" }));
}

/// Each had a name that never comes back, and its figures stayed.
#[test]
fn top_forgets_what_an_output_was_gathered_in() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let same = doc! { "$set": { "_id": 7 } };
    let refused = doc! { "aggregate": "c", "pipeline": [same, { "$out": "out" }], "cursor": {} };
    assert_eq!(bench.code(refused), 11000);
    let known = bench.server.metrics.top.all();
    assert!(!known.is_empty() && !known.keys().any(|name| name.contains("tmp.agg_out")));
}

/// A filter that was lost on its way found everything.
#[test]
fn a_null_is_no_filter_and_no_limit() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    assert_eq!(bench.code(doc! { "find": "c", "filter": Bson::Null }), 14);
    for limit in [Bson::Null, "x".into(), true.into()] {
        assert_eq!(bench.code(doc! { "count": "c", "limit": limit }), 2);
    }
    assert_eq!(bench.ok(doc! { "count": "c", "skip": Bson::Null }), doc! { "n": 1 });
}
