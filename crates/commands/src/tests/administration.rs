//! Definitions, sessions, parameters, figures.

use super::{Bench, code, first_batch, succeeded, write_errors};
use crate::Peer;
use crate::client::{Begun, WithoutClient};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};

fn top(bench: &Bench) -> Vec<String> {
    let reply = succeeded(bench.admin(doc! { "top": 1 }));
    let totals = reply.get_document("totals").unwrap();
    totals.keys().filter(|name| *name != "note").cloned().collect()
}

/// Names that were dropped, or were never there, are not kept for ever.
#[test]
fn top_forgets_what_is_gone() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.insert(name, &[doc! { "_id": 1 }]);
    }
    bench.ok(doc! { "find": "nonesuch" });
    assert_eq!(top(&bench), ["test.a", "test.b", "test.c"]);
    bench.ok(doc! { "drop": "a" });
    bench.ok(doc! { "find": "a" });
    succeeded(bench.admin(doc! { "renameCollection": "test.b", "to": "test.d" }));
    bench.ok(doc! { "find": "d" });
    assert_eq!(top(&bench), ["test.c", "test.d"]);
    bench.ok(doc! { "dropDatabase": 1 });
    assert_eq!(top(&bench), Vec::<String>::new());
}

#[test]
fn a_collation_says_of_what_locale() {
    let bench = Bench::new();
    let index = |collation: Document| {
        let spec = doc! { "key": { "a": 1 }, "name": "a_1", "collation": collation };
        bench.run(doc! { "createIndexes": "c", "indexes": [spec] })
    };
    assert_eq!(code(&index(doc! {})), 2);
    assert_eq!(code(&index(doc! { "strength": 2 })), 40414);
    assert_eq!(code(&index(doc! { "locale": 5 })), 14);
    assert_eq!(code(&index(doc! { "locale": "simple", "nonesuch": 1 })), 40415);
    assert_eq!(code(&index(doc! { "locale": "nonesuch" })), 2);
    succeeded(index(doc! { "locale": "simple" }));
    assert_eq!(
        bench.code(doc! { "create": "d", "collation": { "strength": 2 } }),
        40414
    );
    assert_eq!(bench.code(doc! { "find": "c", "collation": { "strength": 2 } }), 40414);
    assert_eq!(
        bench.code(doc! { "find": "c", "collation": { "locale": "simple", "nonesuch": 1 } }),
        40415
    );
}

#[test]
fn a_size_is_for_capped_collections() {
    let bench = Bench::new();
    assert_eq!(bench.code(doc! { "create": "c", "size": 1000 }), 72);
    assert_eq!(bench.code(doc! { "create": "c", "max": 1000 }), 72);
    assert_eq!(bench.code(doc! { "create": "v", "viewOn": "c", "size": 1000 }), 72);
    bench.ok(doc! { "create": "c", "capped": true, "size": 1000 });
}

#[test]
fn a_collection_has_a_collation_that_indexes_take_over() {
    let bench = Bench::new();
    let caseless = doc! { "locale": "en", "strength": 2 };
    bench.ok(doc! { "create": "c", "collation": caseless.clone() });
    let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": "c" } }));
    let whole = listed[0]
        .get_document("options")
        .unwrap()
        .get_document("collation")
        .unwrap();
    assert_eq!((whole.len(), whole.get_str("version").ok()), (10, Some("57.1")));
    // Of the same options, whole or not, it is there already; of others it is another one.
    bench.ok(doc! { "create": "c", "collation": whole.clone() });
    assert_eq!(bench.code(doc! { "create": "c" }), 48);
    assert_eq!(bench.code(doc! { "create": "c", "collation": { "locale": "en" } }), 48);

    let spec = |name: &str, collation: Option<Document>| {
        let mut spec = doc! { "key": { "a": 1 }, "name": name };
        spec.extend(
            collation
                .map(|collation| doc! { "collation": collation })
                .unwrap_or_default(),
        );
        bench.run(doc! { "createIndexes": "c", "indexes": [spec] })
    };
    succeeded(spec("own", None));
    succeeded(spec("plain", Some(doc! { "locale": "simple" })));
    succeeded(spec("german", Some(doc! { "locale": "de" })));
    assert_eq!(code(&spec("again", Some(caseless.clone()))), 85);
    assert_eq!(code(&spec("own", Some(doc! { "locale": "simple" }))), 86);
    let id = doc! { "key": { "_id": 1 }, "name": "_id_", "collation": { "locale": "de" } };
    assert_eq!(bench.code(doc! { "createIndexes": "c", "indexes": [id] }), 2);
    let indexes = first_batch(&bench.ok(doc! { "listIndexes": "c" }));
    let locales: Vec<_> = indexes
        .iter()
        .map(|index| {
            index
                .get_document("collation")
                .and_then(|collation| collation.get_str("locale"))
                .ok()
        })
        .collect();
    assert_eq!(locales, [Some("en"), Some("en"), None, Some("de")]);

    // Strings are equal as the collection has them, those of _id and of unique indexes, too.
    bench.insert("c", &[doc! { "_id": "x", "a": "Ann" }, doc! { "_id": "y", "a": "bob" }]);
    assert_eq!(
        write_errors(&bench.ok(doc! { "insert": "c", "documents": [{ "_id": "X" }] })),
        [(0, 11000)]
    );
    let refused = bench.ok(doc! { "insert": "c", "documents": [{ "_id": "X" }] });
    let error = refused.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(
        error.get_document("collation").unwrap().get_str("locale").ok(),
        Some("en")
    );
    assert!(
        error.get_str("errmsg").unwrap().contains("collation: { locale: \"en\""),
        "{error}"
    );
    let found = |filter: Document| bench.find("c", filter).len();
    assert_eq!(
        (
            found(doc! { "_id": "X" }),
            found(doc! { "a": "ANN" }),
            found(doc! { "a": { "$in": ["BOB", "ann"] } })
        ),
        (1, 1, 2)
    );
    let ask = |more: Document| {
        let mut find = doc! { "find": "c", "filter": { "a": "ANN" } };
        find.extend(more);
        first_batch(&bench.ok(find)).len()
    };
    assert_eq!(
        (
            ask(doc! { "collation": { "locale": "simple" } }),
            ask(doc! { "hint": "plain" }),
            ask(doc! { "hint": "german" })
        ),
        (0, 1, 1)
    );
    let explained = bench.ok(doc! { "explain": { "find": "c", "filter": { "a": "ANN" } } });
    let shown = format!("{explained}");
    assert!(
        shown.contains("CollationKey(0x") && shown.contains("\"own\"") && !shown.contains("\"plain\""),
        "{shown}"
    );

    // Writes, and stages.
    let changed = bench.ok(doc! { "update": "c", "updates": [{ "q": { "a": "ANN" }, "u": { "$set": { "n": 1 } } }] });
    assert_eq!(changed.get_i32("nModified").ok(), Some(1));
    let pulled = doc! { "q": { "_id": "x" }, "u": [{ "$set": { "same": { "$eq": ["$a", "aNN"] } } }] };
    bench.ok(doc! { "update": "c", "updates": [pulled] });
    assert_eq!(bench.find("c", doc! { "same": true }).len(), 1);
    bench.insert("c", &[doc! { "_id": "z", "a": "ANN" }]);
    let groups = bench.aggregate(
        "c",
        &[
            doc! { "$group": { "_id": "$a", "n": { "$sum": 1 } } },
            doc! { "$sort": { "_id": -1 } },
        ],
    );
    let counts: Vec<_> = groups.iter().map(|group| group.get_i32("n").unwrap()).collect();
    assert_eq!(counts, [1, 2]);
    let distinct = bench.ok(doc! { "distinct": "c", "key": "a" });
    assert_eq!(distinct.get_array("values").unwrap().len(), 2);
    let gone = bench.ok(doc! { "delete": "c", "deletes": [{ "q": { "a": "ann" }, "limit": 0 }] });
    assert_eq!(gone.get_i32("n").ok(), Some(2));
}

#[test]
fn a_view_is_read_in_its_own_order() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "c", "collation": { "locale": "en", "strength": 2 } });
    bench.insert("c", &[doc! { "_id": 1, "a": "x" }, doc! { "_id": 2, "a": "X" }]);
    bench.ok(doc! { "create": "plain", "viewOn": "c", "pipeline": [] });
    bench.ok(doc! { "create": "caseless", "viewOn": "c", "pipeline": [{ "$match": { "a": "x" } }], "collation": { "locale": "en", "strength": 2 } });
    assert_eq!(
        (
            bench.find("plain", doc! { "a": "X" }).len(),
            bench.find("caseless", doc! { "a": "X" }).len()
        ),
        (1, 2)
    );
    let asked = |view: &str, collation: Document| bench.run(doc! { "find": view, "collation": collation });
    succeeded(asked("caseless", doc! { "locale": "en", "strength": 2 }));
    succeeded(asked("plain", doc! { "locale": "simple" }));
    assert_eq!(code(&asked("caseless", doc! { "locale": "en" })), 167);
    assert_eq!(code(&asked("plain", doc! { "locale": "en" })), 167);
    let values = bench.ok(doc! { "distinct": "caseless", "key": "a" });
    assert_eq!(values.get_array("values").unwrap().len(), 1);
}

/// The same key may be indexed again where `unique` or `sparse` differ.
#[test]
fn indexes_of_one_key_differ_in_what_they_hold() {
    let bench = Bench::new();
    let index = |name: &str, options: Document| {
        let mut spec = doc! { "key": { "a": 1 }, "name": name };
        spec.extend(options);
        bench.run(doc! { "createIndexes": "c", "indexes": [spec] })
    };
    succeeded(index("plain", doc! {}));
    succeeded(index("sparse", doc! { "sparse": true }));
    succeeded(index("unique", doc! { "unique": true }));
    let again = index("again", doc! {});
    assert_eq!(code(&again), 85);
    let other = index("plain", doc! { "sparse": true });
    assert_eq!(code(&other), 86, "{other}");
    let message = other.get_str("errmsg").unwrap();
    assert!(
        message.contains("{ v: 2, key: { a: 1 }, name: \"plain\", sparse: true }"),
        "{message}"
    );
}

fn session(byte: u8) -> Document {
    doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![byte; 16] } }
}

/// Killing a session ends what runs in it, wherever it runs, and nothing else.
#[test]
fn killed_sessions_end_their_operations() {
    let kill = |command: Document, expected: [bool; 3]| {
        let bench = Bench::new();
        let running: Vec<_> = [Some([1; 16]), Some([2; 16]), None]
            .into_iter()
            .map(|session| {
                let client = bench.server.connect(Peer::Tcp("127.0.0.1:2".into(), None));
                let operation = bench.server.new_operation();
                let body = bson::rawdoc! { "find": "c" };
                let begun = Begun {
                    command: "find",
                    database: "test",
                    body: &body,
                    sequences: &[],
                    started: std::time::Duration::ZERO,
                    session,
                    transaction: None,
                    without_client: WithoutClient::Ends,
                };
                client.begin(operation.clone(), &begun);
                (client, operation)
            })
            .collect();
        bench.ok(command.clone());
        let ended: Vec<bool> = running
            .iter()
            .map(|(_, operation)| operation.check().is_err())
            .collect();
        assert_eq!(ended, expected, "{command}");
    };
    kill(doc! { "killSessions": [session(1)] }, [true, false, false]);
    kill(doc! { "killSessions": [] }, [true, true, false]);
    kill(doc! { "killAllSessions": [] }, [true, true, false]);
    // Without access control no session is of a user.
    kill(
        doc! { "killAllSessions": [{ "user": "u", "db": "d" }] },
        [false, false, false],
    );
    let by_pattern = |pattern: Document| doc! { "killAllSessionsByPattern": [pattern] };
    let digest = |byte| Binary {
        subtype: BinarySubtype::Generic,
        bytes: vec![byte; 32],
    };
    kill(doc! { "killAllSessionsByPattern": [] }, [true, true, false]);
    kill(by_pattern(doc! { "lsid": session(1) }), [true, false, false]);
    kill(by_pattern(doc! { "uid": digest(1) }), [false, false, false]);
    kill(
        by_pattern(doc! { "users": [{ "user": "u", "db": "d" }] }),
        [false, false, false],
    );
    let mut of_user = session(1);
    of_user.insert("uid", digest(1));
    kill(by_pattern(doc! { "lsid": of_user }), [false, false, false]);
    kill(doc! { "endSessions": [session(1)] }, [false, false, false]);
    let bench = Bench::new();
    bench.ok(doc! { "killAllSessions": [], "unknownField": 1 });
    bench.ok(doc! { "killAllSessionsByPattern": [], "unknownField": 1 });
    assert_eq!(bench.code(doc! { "killAllSessions": [{ "user": "u" }] }), 40414);
    assert_eq!(bench.code(doc! { "killAllSessions": [{ "user": 1, "db": "d" }] }), 14);
    assert_eq!(bench.code(doc! { "killAllSessions": [1] }), 14);
    assert_eq!(bench.code(doc! { "killSessions": [{ "id": 1 }] }), 14);
    assert_eq!(bench.code(by_pattern(doc! { "uid": 1 })), 14);
    assert_eq!(
        bench.code(by_pattern(
            doc! { "uid": Binary { subtype: BinarySubtype::Generic, bytes: vec![1] } }
        )),
        2
    );
    assert_eq!(
        bench.code(by_pattern(doc! { "roles": [{ "role": "r", "db": "d" }] })),
        238
    );
    assert_eq!(bench.code(by_pattern(doc! { "nonesuch": 1 })), 40415);
}

#[test]
fn parameters_of_the_log_take_effect() {
    let bench = Bench::new();
    let get = |name: &str| {
        succeeded(bench.admin(doc! { "getParameter": 1, name: 1 }))
            .remove(name)
            .unwrap()
    };
    let was = succeeded(bench.admin(doc! { "setParameter": 1, "logLevel": 2 }));
    assert_eq!(was, doc! { "was": 0 });
    assert_eq!(get("logLevel"), Bson::Int32(2));
    assert_eq!(
        bench.server.logger.verbosity(crate::logger::Component::Default),
        Some(2)
    );
    assert_eq!(code(&bench.admin(doc! { "setParameter": 1, "logLevel": 6 })), 2);
    assert!(!bench.server.is_quiet());
    succeeded(bench.admin(doc! { "setParameter": 1, "quiet": true }));
    assert!(bench.server.is_quiet());
    let started = Bench::with_parameters(&[("logLevel", "3"), ("quiet", "true")]).unwrap();
    assert_eq!(
        started.server.logger.verbosity(crate::logger::Component::Default),
        Some(3)
    );
    assert!(started.server.is_quiet());
    for (unread, refusal) in [("notablescan", 72), ("enableTestCommands", 20)] {
        assert!(Bench::with_parameters(&[(unread, "x")]).is_err());
        assert_eq!(code(&bench.admin(doc! { "setParameter": 1, unread: true })), refusal);
    }
}

#[test]
fn rejected_connections_and_bytes_are_counted() {
    let bench = Bench::new();
    bench.server.count_refused();
    bench.server.count_network(crate::Traffic {
        bytes_in: 1,
        bytes_out: 2,
        physical_bytes_in: 3,
        physical_bytes_out: 4,
    });
    let status = bench.ok(doc! { "serverStatus": 1 });
    assert_eq!(
        status.get_document("connections").unwrap().get_i64("rejected").ok(),
        Some(1)
    );
    let network = status.get_document("network").unwrap();
    let figures = [
        "bytesIn",
        "bytesOut",
        "physicalBytesIn",
        "physicalBytesOut",
        "numRequests",
    ];
    assert_eq!(figures.map(|name| network.get_i64(name).unwrap()), [1, 2, 3, 4, 1]);
}

#[test]
fn commands_for_tests_are_there_for_tests() {
    let strict = doc! { "testVersion2": 1, "apiVersion": "1", "apiStrict": true };
    let is_listed = |bench: &Bench| {
        let listed = succeeded(bench.admin(doc! { "listCommands": 1 }));
        let listed = listed.get_document("commands").unwrap();
        ["configureFailPoint", "testVersion2"].map(|name| listed.contains_key(name))
    };
    let bench = Bench::with_parameters(&[("enableTestCommands", "1")]).unwrap();
    succeeded(bench.run(doc! { "testVersion2": 1 }));
    assert_eq!(code(&bench.run(strict.clone())), 323);
    assert_eq!(is_listed(&bench), [true, true]);
    let bench = Bench::new();
    assert_eq!(is_listed(&bench), [false, false]);
    for command in [strict, doc! { "testVersion2": 1 }, doc! { "configureFailPoint": 1 }] {
        assert_eq!(code(&bench.admin(command)), 59);
    }
}

#[test]
fn the_version_is_a_document_and_databases_of_the_server_are_listed() {
    let bench = Bench::new();
    bench.server.keep_version().unwrap();
    let before = bench.server.storage.last_seq();
    bench.server.keep_version().unwrap();
    assert_eq!(
        bench.server.storage.last_seq(),
        before,
        "nothing changes, nothing is written"
    );
    let versions = first_batch(&succeeded(bench.admin(doc! { "find": "system.version" })));
    assert_eq!(
        versions,
        [doc! { "_id": "featureCompatibilityVersion", "version": "8.0" }]
    );
    succeeded(bench.run(doc! { "insert": "c", "documents": [{ "_id": 1 }] }));
    let listed = succeeded(bench.admin(doc! { "listDatabases": 1 }));
    let databases: Vec<_> = listed
        .get_array("databases")
        .unwrap()
        .iter()
        .flat_map(Bson::as_document)
        .collect();
    let names: Vec<_> = databases
        .iter()
        .map(|database| database.get_str("name").unwrap())
        .collect();
    assert_eq!(names, ["admin", "config", "local", "test"]);
    assert!(databases[3].get_i64("sizeOnDisk").unwrap() > 0);
    assert!(databases[1].get_bool("empty").unwrap() && !databases[3].get_bool("empty").unwrap());
}

#[test]
fn generic_arguments_are_checked() {
    let bench = Bench::new();
    for (concern, code) in [
        (doc! { "w": 51 }, 9),
        (doc! { "w": f64::NAN }, 9),
        (doc! { "w": 2 }, 2),
        (doc! { "j": true, "fsync": true }, 9),
        (doc! { "provenance": "nobody" }, 2),
    ] {
        let insert = doc! { "insert": "c", "documents": [{}], "writeConcern": concern };
        assert_eq!(bench.code(insert.clone()), code, "{insert}");
    }
    assert_eq!(
        bench.code(doc! { "find": "c", "readConcern": { "provenance": "nobody" } }),
        2
    );
    let fraction: bson::Decimal128 = "1.5".parse().unwrap();
    assert_eq!(bench.code(doc! { "find": "c", "maxTimeMS": fraction }), 9);
    for (name, value, code) in [
        ("$readPreference", Bson::from(1), 14),
        ("$readPreference", doc! { "mode": "elsewhere" }.into(), 2),
        ("$readPreference", doc! { "mode": 1 }.into(), 14),
        ("$clusterTime", 1.into(), 14),
        ("$clusterTime", doc! {}.into(), 40414),
        ("$clusterTime", doc! { "clusterTime": 5 }.into(), 14),
        ("help", "x".into(), 14),
        ("rawData", "x".into(), 14),
        ("rawData", true.into(), 238),
        ("maxTimeMSOpOnly", "x".into(), 14),
        ("txnNumber", 1.into(), 14),
        ("txnNumber", 1_i64.into(), 20),
        ("autocommit", 1.into(), 14),
        ("term", "x".into(), 14),
    ] {
        let mut find = doc! { "find": "c" };
        find.insert(name, value);
        assert_eq!(bench.code(find.clone()), code, "{find}");
    }
    succeeded(bench.run(doc! { "find": "c", "$readPreference": { "mode": "nearest" }, "term": 1_i64 }));
    assert_eq!(bench.code(doc! { "dropDatabase": "x" }), 14);
    assert_eq!(bench.code(doc! { "dropDatabase": 2 }), 5_255_100);
}

#[test]
fn parameters_that_are_facts() {
    let bench = Bench::new();
    let all = succeeded(bench.admin(doc! { "getParameter": "*" }));
    assert!(!all.get_bool("enableTestCommands").unwrap());
    let mechanisms = all.get_array("authenticationMechanisms").unwrap();
    assert_eq!(mechanisms, &["SCRAM-SHA-1".into(), "SCRAM-SHA-256".into()]);
    for name in ["maxBSONDepth", "tlsMode"] {
        assert!(all.contains_key(name), "{name}");
        let mut set = doc! { "setParameter": 1 };
        set.insert(name, 1);
        assert_eq!(code(&bench.admin(set)), 20);
    }
}

#[test]
fn parameters_tell_when_they_can_be_set() {
    let bench = Bench::new();
    let shown = |name: &str, details: Bson| {
        let mut reply = succeeded(bench.admin(doc! { "getParameter": { "showDetails": details }, name: 1 }));
        reply.remove(name)
    };
    for (name, value, runtime, startup) in [
        ("quiet", Bson::Boolean(false), true, true),
        ("logLevel", 0.into(), true, true),
        ("maxBSONDepth", 200.into(), false, false),
        ("enableTestCommands", false.into(), false, true),
    ] {
        let described = doc! { "value": value.clone(), "settableAtRuntime": runtime, "settableAtStartup": startup };
        assert_eq!(shown(name, 1.0.into()), Some(described.into()), "{name}");
        assert_eq!(shown(name, false.into()), Some(value), "{name}");
    }
    let all = succeeded(bench.admin(doc! { "getParameter": { "allParameters": 1_i64, "showDetails": true } }));
    assert!(
        all.get_document("ttlMonitorEnabled")
            .is_ok_and(|shown| shown.contains_key("settableAtRuntime"))
    );
    assert_eq!(
        code(&bench.admin(doc! { "getParameter": { "showDetails": "yes" }, "quiet": 1 })),
        14
    );
}

/// Equal documents have equal digests, whatever order they were inserted in; any difference shows.
#[test]
fn digests_tell_whether_two_databases_hold_the_same() {
    let bench = Bench::new();
    let hash = |database: &str| {
        let mut reply = succeeded(bench.run_on(database, doc! { "dbHash": 1 }));
        assert!(reply.remove("timeMillis").is_some() && reply.remove("host") == Some("host:27017".into()));
        reply
    };
    let empty = hash("a");
    assert_eq!(empty.get_str("md5").unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
    let insert = |database: &str, collection: &str, documents: &[Document]| {
        succeeded(bench.run_on(database, doc! { "insert": collection, "documents": documents }));
    };
    insert(
        "a",
        "c",
        &[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2 }, doc! { "_id": "x" }],
    );
    insert(
        "b",
        "c",
        &[doc! { "_id": "x" }, doc! { "_id": 2 }, doc! { "_id": 1, "a": 1 }],
    );
    for database in ["a", "b"] {
        succeeded(bench.run_on(database, doc! { "create": "log", "capped": true, "size": 4096 }));
        insert(database, "log", &[doc! { "_id": 2 }, doc! { "_id": 1 }]);
        succeeded(bench.run_on(database, doc! { "create": "v", "viewOn": "c", "pipeline": [] }));
    }
    let (a, b) = (hash("a"), hash("b"));
    assert_eq!(
        (a.get("collections"), a.get("md5")),
        (b.get("collections"), b.get("md5"))
    );
    assert_eq!(a.get("capped"), Some(&bson::Bson::from(vec!["log"])));
    let of = |reply: &Document| reply.get_document("collections").unwrap().clone();
    // The digest is that of the documents' bytes.
    let bytes =
        [doc! { "_id": 2 }, doc! { "_id": 1 }].map(|document| bson::RawDocumentBuf::try_from(&document).unwrap());
    let expected = format!(
        "{:x}",
        <md5::Md5 as md5::Digest>::digest([bytes[0].as_bytes(), bytes[1].as_bytes()].concat())
    );
    assert_eq!(of(&a).get_str("log").unwrap(), expected);
    assert_eq!(of(&a).len(), a.get_document("uuids").unwrap().len());
    let some = succeeded(bench.run_on("a", doc! { "dbHash": 1, "collections": ["log"] }));
    assert_eq!(of(&some), doc! { "log": expected });
    // The same value of another type is another document.
    succeeded(bench.run_on(
        "b",
        doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1_i64 } } }] },
    ));
    let changed = hash("b");
    assert_ne!(of(&a).get("c"), of(&changed).get("c"));
    assert_eq!(of(&a).get("log"), of(&changed).get("log"));
    assert_ne!(a.get("md5"), changed.get("md5"));
    assert_eq!(code(&bench.run_on("a", doc! { "dbHash": 1, "collections": [1] })), 2);
}

/// What the profiler writes, by level, filter and user; it never writes about its own collection.
#[test]
fn operations_are_profiled_as_asked() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    let profile = |command: Document| succeeded(bench.run(command));
    assert_eq!(
        profile(doc! { "profile": -1 }),
        doc! { "was": 0, "slowms": 100, "sampleRate": 1.0 }
    );
    assert_eq!(profile(doc! { "profile": 2 }).get_i32("was").unwrap(), 0);
    bench.find("c", doc! { "_id": 1 });
    assert_ne!(bench.code(doc! { "find": "c", "filter": { "$nonesuch": 1 } }), 0);
    succeeded(bench.run_on("other", doc! { "find": "c" }));
    bench.find("system.profile", doc! {});
    assert_eq!(profile(doc! { "profile": 0 }).get_i32("was").unwrap(), 2);
    bench.find("c", doc! {});
    let entries = first_batch(&bench.ok(doc! { "find": "system.profile", "sort": { "$natural": 1 } }));
    // The finds, that of the profile among them, and the command that turned it off.
    let names: Vec<_> = entries
        .iter()
        .map(|entry| entry.get_document("command").unwrap().keys().next().unwrap().clone())
        .collect();
    assert_eq!(names, ["find", "find", "find", "profile"]);
    let found = &entries[0];
    assert_eq!(
        (found.get_str("op").unwrap(), found.get_str("ns").unwrap()),
        ("query", "test.c")
    );
    assert_eq!(found.get("nreturned"), Some(&Bson::Int64(1)));
    for field in [
        "keysExamined",
        "docsExamined",
        "millis",
        "responseLength",
        "ts",
        "allUsers",
        "user",
        "planSummary",
        "locks",
        "client",
    ] {
        assert!(found.contains_key(field), "{field}");
    }
    assert!(entries[1].contains_key("errCode"));
    // Slow ones: all are at least as slow as nothing.
    profile(doc! { "profile": 1, "slowms": 1000 });
    bench.find("c", doc! {});
    profile(doc! { "profile": 1, "slowms": 0, "sampleRate": 0.0 });
    bench.find("c", doc! {});
    let count = || first_batch(&bench.ok(doc! { "find": "system.profile" })).len();
    assert_eq!(count(), 4);
    profile(doc! { "profile": 1, "filter": { "nreturned": 1, "op": "query" }, "sampleRate": 1.0 });
    bench.find("c", doc! { "_id": 1 });
    bench.find("c", doc! { "_id": 2 });
    let shown = profile(doc! { "profile": -1 });
    assert_eq!(
        shown.get_document("filter").unwrap(),
        &doc! { "nreturned": 1, "op": "query" }
    );
    // The first command with a sample rate again is one of the slow ones.
    assert_eq!(count(), 6);
    let half: bson::Decimal128 = "0.5".parse().unwrap();
    profile(doc! { "profile": 0, "filter": "unset", "slowms": 100, "sampleRate": half });
    let shown = profile(doc! { "profile": -1, "sampleRate": 1 });
    assert_eq!(shown.get_f64("sampleRate").ok(), Some(0.5));
    assert!(!profile(doc! { "profile": -1 }).contains_key("filter"));
    // Dropped, it stays so until it is asked for again.
    bench.ok(doc! { "drop": "system.profile" });
    assert_eq!(bench.code(doc! { "profile": 3 }), 2);
    assert_eq!(bench.code(doc! { "profile": 1, "sampleRate": 1.5 }), 2);
    assert_eq!(bench.code(doc! { "profile": 1, "filter": { "$nonesuch": 1 } }), 2);
    // Without a database there is nothing to write to; none is made by being read.
    profile(doc! { "profile": 2 });
    assert_eq!(bench.code(doc! { "drop": "system.profile" }), 20);
    bench.ok(doc! { "dropDatabase": 1 });
    bench.find("c", doc! {});
    let names = bench.admin(doc! { "listDatabases": 1, "nameOnly": true });
    assert!(!names.to_string().contains("\"test\""), "{names}");
}

/// The plans of commands that answer without a cursor are in the profile, too.
#[test]
fn counts_and_distincts_tell_their_plans() {
    let bench = Bench::new();
    bench.insert(
        "c",
        &[doc! { "_id": 1, "a": 1, "b": 1 }, doc! { "_id": 2, "a": 2, "b": 2 }],
    );
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] });
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [{ "$match": { "a": 2 } }] });
    bench.ok(doc! { "profile": 2 });
    for (command, plan) in [
        (doc! { "count": "c" }, "RECORD_STORE_FAST_COUNT"),
        (doc! { "count": "c", "query": { "_id": 1 } }, "IDHACK"),
        (doc! { "count": "c", "query": { "a": 1 } }, "COUNT_SCAN { a: 1 }"),
        (doc! { "count": "c", "query": { "b": 1 } }, "COLLSCAN"),
        (doc! { "count": "none", "query": { "b": 1 } }, "EOF"),
        (doc! { "count": "v" }, "COUNT_SCAN { a: 1 }"),
        (doc! { "distinct": "c", "key": "a" }, "DISTINCT_SCAN { a: 1 }"),
        (doc! { "distinct": "c", "key": "b" }, "COLLSCAN"),
        (doc! { "distinct": "v", "key": "b" }, "IXSCAN { a: 1 }"),
    ] {
        bench.ok(command.clone());
        let last = doc! { "find": "system.profile", "sort": { "$natural": -1 }, "limit": 1 };
        let entry = first_batch(&bench.ok(last)).remove(0);
        assert_eq!(entry.get_str("planSummary").ok(), Some(plan), "{command}");
    }
}

/// On a member the collection is in memory: in no log, with the size that was asked for, and it can be followed.
#[test]
fn a_member_has_a_profile_of_its_own() {
    let set = Bench::member(true);
    set.insert("c", &[doc! { "_id": 1 }]);
    set.insert("keep", &[doc! {}]);
    let entries = |command: Document| first_batch(&set.ok(command));
    let log = || entries(doc! { "find": "system.profile" }).len();
    let written = || {
        let found = set.run_on(
            "local",
            doc! { "count": "oplog.rs", "query": { "ns": "test.system.profile" } },
        );
        (found.get_i32("n").unwrap(), set.server.storage.last_seq())
    };
    assert_eq!(log(), 0);
    set.ok(doc! { "profile": 2 });
    let before = written();
    set.find("c", doc! { "_id": 1 });
    set.find("c", doc! { "_id": 2 });
    assert_eq!(written(), (0, before.1));
    // The two finds; then reading it is told of, too.
    assert_eq!((log(), log()), (2, 3));
    set.ok(doc! { "profile": 0 });
    // As any collection is read.
    let found = doc! { "op": "query", "ns": "test.c" };
    assert_eq!(
        set.ok(doc! { "count": "system.profile", "query": &found })
            .get_i32("n")
            .unwrap(),
        2
    );
    let last = entries(doc! { "find": "system.profile", "filter": &found, "sort": { "$natural": -1 }, "limit": 1 });
    assert_eq!(
        last[0].get_document("command").unwrap().get_document("filter").unwrap(),
        &doc! { "_id": 2 }
    );
    let sorted = entries(
        doc! { "find": "system.profile", "filter": &found, "sort": { "nreturned": -1 }, "projection": { "nreturned": 1, "_id": 0 }, "limit": 1 },
    );
    assert_eq!(sorted, [doc! { "nreturned": 1_i64 }]);
    let grouped = set.aggregate(
        "system.profile",
        &[
            doc! { "$match": &found },
            doc! { "$group": { "_id": "$ns", "n": { "$sum": 1 } } },
        ],
    );
    assert_eq!(grouped, [doc! { "_id": "test.c", "n": 2 }]);
    let ops = set.ok(doc! { "distinct": "system.profile", "key": "op" });
    assert_eq!(ops.get_array("values").unwrap().len(), 2);
    let listed = set.ok(doc! { "listCollections": 1, "filter": { "name": "system.profile" } });
    assert_eq!(
        first_batch(&listed)[0].get_document("options").unwrap(),
        &doc! { "capped": true, "size": 1 << 20 }
    );
    let stats = set.ok(doc! { "collStats": "system.profile" });
    assert_eq!(
        (stats.get_bool("capped").unwrap(), stats.get_i32("maxSize").unwrap()),
        (true, 1 << 20)
    );
}

/// A tailable cursor is given what comes.
#[test]
fn a_members_profile_is_followed() {
    let set = Bench::member(true);
    set.insert("c", &[doc! { "_id": 1 }]);
    set.ok(doc! { "create": "system.profile", "capped": true, "size": 8192, "max": 3 });
    assert_eq!(
        set.code(doc! { "create": "system.profile", "capped": true, "size": 4096 }),
        48
    );
    // On an empty collection such a cursor is dead.
    let follow = |batch: i32| {
        let reply = set
            .ok(doc! { "find": "system.profile", "filter": { "op": "query", "ns": "test.c" }, "tailable": true, "batchSize": batch });
        let cursor = reply.get_document("cursor").unwrap().clone();
        (cursor.get_i64("id").unwrap(), first_batch(&reply).len())
    };
    assert_eq!(follow(10), (0, 0));
    set.ok(doc! { "profile": 2 });
    set.find("c", doc! {});
    let (id, n) = follow(10);
    assert!(id != 0 && n == 1);
    let more = |id: i64| set.run(doc! { "getMore": id, "collection": "system.profile" });
    let given = |reply: &Document| {
        reply
            .get_document("cursor")
            .unwrap()
            .get_array("nextBatch")
            .unwrap()
            .len()
    };
    assert_eq!(given(&more(id)), 0);
    set.find("c", doc! {});
    assert_eq!(given(&more(id)), 1);
    // It holds three.
    for _ in 0..4 {
        set.find("c", doc! {});
    }
    assert_eq!(set.find("system.profile", doc! {}).len(), 3);
    assert_eq!(code(&more(id)), 136);
    let (id, _) = follow(10);
    assert_eq!(set.code(doc! { "drop": "system.profile" }), 20);
    set.ok(doc! { "profile": 0 });
    set.ok(doc! { "drop": "system.profile" });
    assert_eq!(code(&more(id)), 175);
    assert!(set.find("system.profile", doc! {}).is_empty());
    assert_eq!(
        set.code(doc! { "create": "system.profile", "capped": true, "size": 1_i64 << 30 }),
        2
    );
    assert_eq!(set.code(doc! { "create": "system.profile" }), 2);
    // Its name is nobody's else.
    assert_eq!(set.code(doc! { "insert": "system.profile", "documents": [{}] }), 73);
    assert_eq!(
        code(&set.admin(doc! { "renameCollection": "test.c", "to": "test.system.profile" })),
        20
    );
}
