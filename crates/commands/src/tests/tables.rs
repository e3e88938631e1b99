//! Walks the tables of commands and parameters: what holds for one of them holds for all.

use super::{Bench, code, succeeded};
use crate::command::parameters::FIXED;
use crate::parameters::Parameters;
use crate::table::COMMANDS;
use bson::{Bson, Document, doc};

/// A call that the command can read.
pub fn plain(name: &str) -> Document {
    match name {
        "aggregate" => doc! { "aggregate": "c", "pipeline": [], "cursor": {} },
        "applyOps" => doc! { "applyOps": [{ "op": "d", "ns": "test.c", "o": { "_id": 1 } }] },
        "authenticate" => doc! { "authenticate": 1, "mechanism": "MONGODB-X509" },
        "bulkWrite" => {
            doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": {} }], "nsInfo": [{ "ns": "test.c" }] }
        }
        "configureFailPoint" => doc! { "configureFailPoint": "failCommand", "mode": "off" },
        "createUser" => doc! { "createUser": "amy", "pwd": "x", "roles": [] },
        "createRole" => doc! { "createRole": "reader", "privileges": [], "roles": [] },
        "dropRole" => doc! { "dropRole": "reader" },
        "grantPrivilegesToRole" | "revokePrivilegesFromRole" => doc! {
            name: "reader", "privileges": [{ "resource": { "db": "test", "collection": "c" }, "actions": ["find"] }],
        },
        "grantRolesToRole" | "revokeRolesFromRole" => doc! { name: "reader", "roles": ["read"] },
        "updateRole" => doc! { "updateRole": "reader", "roles": [] },
        "dropUser" => doc! { "dropUser": "amy" },
        "grantRolesToUser" | "revokeRolesFromUser" => doc! { name: "amy", "roles": [] },
        "saslContinue" => doc! { "saslContinue": 1, "conversationId": 1, "payload": "" },
        "saslStart" => doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "" },
        "updateUser" => doc! { "updateUser": "amy", "pwd": "x" },
        "createIndexes" => doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
        "dropConnections" => doc! { name: 1, "hostAndPort": ["db1.example:27017"] },
        "dataSize" => doc! { "dataSize": "test.c" },
        "delete" => doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 1 }] },
        "distinct" => doc! { "distinct": "c", "key": "a" },
        "dropIndexes" => doc! { "dropIndexes": "c", "index": "*" },
        "explain" => doc! { "explain": { "find": "c" } },
        "findAndModify" => doc! { "findAndModify": "c", "remove": true },
        "getLog" => doc! { "getLog": "*" },
        "getMore" => doc! { "getMore": 1_i64, "collection": "c" },
        "getParameter" => doc! { "getParameter": "*" },
        "insert" => doc! { "insert": "c", "documents": [{}] },
        "killCursors" => doc! { "killCursors": "c", "cursors": [1_i64] },
        "killOp" => doc! { "killOp": 1, "op": 1 },
        "mapReduce" => doc! {
            name: "c", "map": "function() {}", "reduce": "function() {}", "out": { "inline": 1 },
        },
        "renameCollection" => doc! { "renameCollection": "test.c", "to": "test.d" },
        "setParameter" => doc! { "setParameter": 1, "quiet": true },
        "endSessions" | "killAllSessions" | "killAllSessionsByPattern" | "killSessions" | "refreshSessions" => {
            doc! { name: [] }
        }
        "update" => doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
        "cloneCollectionAsCapped" => doc! { name: "c", "toCollection": "d", "size": 1024 },
        "convertToCapped" => doc! { name: "c", "size": 1024 },
        "planCacheSetFilter" => doc! { name: "c", "query": {}, "indexes": ["_id_"] },
        "setFeatureCompatibilityVersion" => doc! { name: "8.0", "confirm": true },
        "collMod"
        | "collStats"
        | "compact"
        | "count"
        | "create"
        | "drop"
        | "find"
        | "listIndexes"
        | "validate"
        | "planCacheClear"
        | "planCacheClearFilters"
        | "planCacheListFilters"
        | "reIndex" => {
            doc! { name: "c" }
        }
        _ => doc! { name: 1 },
    }
}

/// Commands whose further fields are names of something, or that take more than they have to know, as MongoDB's do.
const OPEN: [&str; 20] = [
    "applyOps",
    "connPoolStats",
    "currentOp",
    "dbHash",
    "fsyncUnlock",
    "getParameter",
    "hello",
    "isMaster",
    "killAllSessions",
    "killAllSessionsByPattern",
    "killSessions",
    "planCacheClear",
    "planCacheClearFilters",
    "planCacheListFilters",
    "planCacheSetFilter",
    "serverStatus",
    "setClusterParameter",
    "setParameter",
    "startSession",
    "top",
];

/// Where the call is to be run.
pub fn database(name: &str) -> &'static str {
    let command = COMMANDS.iter().find(|command| command.name == name).unwrap();
    if command.admin_only { "admin" } else { "test" }
}

fn bench() -> Bench {
    let bench = Bench::with_parameters(&[("enableTestCommands", "1")]).unwrap();
    bench.insert("c", &[doc! { "_id": 1 }]);
    bench
}

#[test]
fn every_command_of_the_table_is_there() {
    for command in COMMANDS.iter() {
        let reply = bench().run_on(database(command.name), plain(command.name));
        assert_ne!(reply.get_i32("code").ok(), Some(59), "{}: {reply}", command.name);
        assert_ne!(reply.get_i32("code").ok(), Some(40415), "{}: {reply}", command.name);
    }
}

#[test]
fn every_command_refuses_a_field_it_does_not_know() {
    for command in COMMANDS.iter().filter(|command| !OPEN.contains(&command.name)) {
        let mut call = plain(command.name);
        call.insert("nonesuch", 1);
        let reply = bench().run_on(database(command.name), call);
        assert_eq!(code(&reply), 40415, "{}: {reply}", command.name);
    }
}

/// Fields that every command takes, and what is wrong with them.
#[test]
fn generic_fields_have_their_types() {
    let junk = || {
        [
            Bson::String("x".into()),
            Bson::Array(vec![]),
            Bson::Boolean(true),
            Bson::MinKey,
            Bson::ObjectId(bson::oid::ObjectId::from_bytes([1; 12])),
        ]
    };
    let with = |mut call: Document, field: &str, value: Bson| {
        call.insert(field, value);
        bench().run(call)
    };
    let find = |field: &str, value: Bson| with(doc! { "find": "c" }, field, value);
    for value in junk() {
        for field in ["maxTimeMS", "readConcern", "writeConcern", "lsid"] {
            assert_eq!(code(&find(field, value.clone())), 14, "{field}: {value}");
        }
        if value.as_str().is_none() {
            let concern = Bson::from(doc! { "level": value.clone() });
            assert_eq!(code(&find("readConcern", concern)), 14, "{value}");
        }
        for time in ["afterClusterTime", "atClusterTime"] {
            let concern = Bson::from(doc! { time: value.clone() });
            assert_eq!(code(&find("readConcern", concern)), 14, "{time}: {value}");
        }
        let concern = Bson::from(doc! { "wtimeout": value.clone() });
        let insert = doc! { "insert": "c", "documents": [{}] };
        succeeded(with(insert, "writeConcern", concern));
    }
    for (value, expected) in [
        (Bson::Int32(-1), 2),
        (Bson::Int64(1 << 31), 2),
        (Bson::Double(-1.0), 2),
        (Bson::Double(1.5), 9),
        (Bson::Double(f64::INFINITY), 9),
        (Bson::Double(f64::MAX), 9),
    ] {
        assert_eq!(code(&find("maxTimeMS", value.clone())), expected, "{value}");
    }
    let late = doc! { "insert": "c", "documents": [{}], "writeConcern": { "wtimeout": 1_i64 << 31 } };
    assert_eq!(code(&bench().run(late)), 9);
    for field in [
        "maxTimeMS",
        "readConcern",
        "writeConcern",
        "projection",
        "limit",
        "singleBatch",
    ] {
        succeeded(find(field, Bson::Null));
        succeeded(find(field, Bson::Undefined));
    }
}

/// What a client asks for and does not get is refused, not ignored.
#[test]
fn commands_take_the_concerns_that_they_can_keep() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! { "_id": 1 }]);
    let with = |mut call: Document, field: &str, value: Document| {
        call.insert(field, value);
        bench.run(call)
    };
    let insert = || doc! { "insert": "c", "documents": [{}] };
    let pipeline = || doc! { "aggregate": "c", "pipeline": [], "cursor": {} };
    let count = || doc! { "count": "c" };
    for read in [
        count(),
        doc! { "find": "c" },
        doc! { "ping": 1 },
        doc! { "listCollections": 1 },
    ] {
        for concern in [doc! {}, doc! { "w": 1 }, doc! { "w": "nonesuch" }] {
            assert_eq!(code(&with(read.clone(), "writeConcern", concern)), 72, "{read}");
        }
    }
    for write in [insert(), pipeline(), doc! { "create": "d" }, doc! { "dropDatabase": 1 }] {
        succeeded(with(write, "writeConcern", doc! { "w": 1 }));
    }
    for unlevelled in [insert(), doc! { "ping": 1 }, doc! { "create": "d" }] {
        for level in ["available", "majority", "linearizable", "snapshot"] {
            let reply = with(unlevelled.clone(), "readConcern", doc! { "level": level });
            assert_eq!(code(&reply), 72, "{level}: {unlevelled}");
        }
        succeeded(with(unlevelled.clone(), "readConcern", doc! {}));
    }
    succeeded(with(insert(), "readConcern", doc! { "level": "local" }));
    for level in ["local", "available", "majority", "linearizable"] {
        for read in [
            count(),
            pipeline(),
            doc! { "find": "c" },
            doc! { "distinct": "c", "key": "_id" },
        ] {
            succeeded(with(read, "readConcern", doc! { "level": level }));
        }
    }
    succeeded(with(pipeline(), "readConcern", doc! { "level": "snapshot" }));
    assert_eq!(code(&with(count(), "readConcern", doc! { "level": "snapshot" })), 72);
}

/// A default is for the commands that it can be for.
#[test]
fn a_default_read_concern_is_no_reason_to_refuse() {
    let bench = Bench::member(true);
    succeeded(bench.admin(doc! { "setDefaultRWConcern": 1, "defaultReadConcern": { "level": "majority" } }));
    bench.ok(doc! { "ping": 1, "readConcern": {} });
    bench.ok(doc! { "insert": "c", "documents": [{}] });
}

/// Fields of commands that are booleans and nothing else, or numbers, or documents.
#[test]
fn fields_of_commands_have_their_types() {
    let cases = [
        ("find", "singleBatch", Bson::Int32(1)),
        ("find", "tailable", Bson::String("x".into())),
        ("find", "filter", Bson::Int32(1)),
        ("find", "limit", Bson::String("x".into())),
        ("insert", "ordered", Bson::Int32(1)),
        ("update", "ordered", Bson::Int32(1)),
        ("delete", "ordered", Bson::String("x".into())),
        ("bulkWrite", "errorsOnly", Bson::Int32(1)),
        ("aggregate", "allowDiskUse", Bson::Int32(1)),
        ("aggregate", "cursor", Bson::Int32(1)),
        ("count", "query", Bson::Int32(1)),
        ("create", "capped", Bson::String("x".into())),
        ("createIndexes", "indexes", Bson::Int32(1)),
        ("collMod", "index", Bson::Int32(1)),
        ("renameCollection", "stayTemp", Bson::String("x".into())),
        ("listCollections", "nameOnly", Bson::String("x".into())),
        ("listDatabases", "filter", Bson::Int32(1)),
        ("collStats", "scale", Bson::String("x".into())),
        ("dbStats", "scale", Bson::String("x".into())),
        ("fsync", "lock", Bson::String("x".into())),
        ("fsync", "fsyncLockAcquisitionTimeoutMillis", Bson::Int64(100)),
        ("fsync", "fsyncLockAcquisitionTimeoutMillis", Bson::Double(100.0)),
        ("setUserWriteBlockMode", "global", Bson::Int32(1)),
        ("getDefaultRWConcern", "inMemory", Bson::Int32(1)),
    ];
    for (name, field, value) in cases {
        let mut call = plain(name);
        call.insert(field, value.clone());
        let reply = bench().run_on(database(name), call);
        assert_eq!(code(&reply), 14, "{name}.{field}: {value}: {reply}");
    }
    for name in [
        "dataSize",
        "getLog",
        "setClusterParameter",
        "setFeatureCompatibilityVersion",
    ] {
        let mut call = plain(name);
        call.insert(name, Bson::Null);
        let reply = bench().run_on(database(name), call);
        assert_eq!(code(&reply), 40414, "{name}: {reply}");
    }
    // Null is as if the field were not there.
    let bench = bench();
    bench.ok(doc! { "find": "c", "allowDiskUse": Bson::Null });
    bench.ok(doc! { "aggregate": "c", "pipeline": [], "cursor": {}, "allowDiskUse": Bson::Null });
}

/// A parameter can be read, and what is set is what is read, or setting it is refused.
#[test]
fn every_parameter_is_read_and_set_or_refused() {
    let bench = Bench::new();
    let get = |name: &str| {
        let mut reply = succeeded(bench.admin(doc! { "getParameter": 1, name: 1 }));
        reply.remove(name).expect("asked for")
    };
    let all = succeeded(bench.admin(doc! { "getParameter": "*" }));
    let mut listed: Vec<_> = Parameters::NAMES.into_iter().chain(FIXED).collect();
    listed.sort_unstable();
    let mut shown: Vec<_> = all.keys().map(String::as_str).collect();
    shown.sort_unstable();
    assert_eq!(shown, listed);
    for name in listed {
        let old = get(name);
        let new = match &old {
            Bson::Boolean(on) => Bson::Boolean(!on),
            Bson::Int32(number) => Bson::Int32(number + 1),
            other => other.clone(),
        };
        let reply = bench.admin(doc! { "setParameter": 1, name: new.clone() });
        if reply.get_f64("ok").is_ok_and(|ok| ok == 1.0) {
            assert_eq!(reply.get("was"), Some(&old), "{name}");
            assert_eq!(get(name), new, "{name}");
        } else {
            assert_eq!(code(&reply), 20, "{name}: {reply}");
            assert_eq!(get(name), old);
        }
    }
    assert_eq!(code(&bench.admin(doc! { "setParameter": 1, "nonesuch": 1 })), 72);
}

/// All of a command's parameters are set, or none; values are read as MongoDB reads them.
#[test]
fn parameters_are_set_together() {
    let bench = Bench::new();
    let get = |name: &str| {
        succeeded(bench.admin(doc! { "getParameter": 1, name: 1 }))
            .remove(name)
            .unwrap()
    };
    for (more, expected) in [
        (doc! { "logLevel": 3, "nonesuch": 1 }, 72),
        (doc! { "quiet": true, "logLevel": -1 }, 2),
        (doc! { "quiet": true, "cursorTimeoutMillis": 0 }, 2),
        (doc! { "quiet": true, "maxBSONDepth": 10 }, 20),
        (doc! { "logLevel": "1" }, 2),
        (doc! { "quiet": "perhaps" }, 2),
        (
            doc! { "logComponentVerbosity": { "command": { "verbosity": f64::NAN } } },
            2,
        ),
        (doc! { "logComponentVerbosity": { "command": true } }, 2),
        (doc! { "logLevel": 2, "logComponentVerbosity": { "nonesuch": 1 } }, 2),
    ] {
        let mut command = doc! { "setParameter": 1 };
        command.extend(more);
        assert_eq!(code(&bench.admin(command.clone())), expected, "{command}");
        assert_eq!((get("logLevel"), get("quiet")), (0.into(), false.into()), "{command}");
    }
    let both = succeeded(bench.admin(doc! { "setParameter": 1, "quiet": true, "logLevel": 1.5 }));
    assert_eq!(both, doc! { "was": false });
    assert_eq!((get("logLevel"), get("quiet")), (1.into(), true.into()));
    for (name, value, expected) in [
        ("logLevel", Bson::Decimal128("2".parse().unwrap()), Bson::Int32(2)),
        ("logLevel", true.into(), 1.into()),
        ("quiet", Bson::Null, false.into()),
        ("quiet", vec![true].into(), true.into()),
        ("quiet", doc! { "a": 1 }.into(), true.into()),
        ("cursorTimeoutMillis", 1000.9.into(), 1000.into()),
    ] {
        succeeded(bench.admin(doc! { "setParameter": 1, name: value.clone() }));
        assert_eq!(get(name), expected, "{name}: {value}");
    }
    let plain = doc! { "setParameter": 1, "logComponentVerbosity": { "command": 4 } };
    succeeded(bench.admin(plain));
    let verbosity = get("logComponentVerbosity");
    let verbosity = verbosity.as_document().unwrap();
    assert_eq!(verbosity.get("command"), Some(&doc! { "verbosity": 4 }.into()));
}

#[test]
fn fsync_tells_how_to_go_on() {
    let bench = Bench::new();
    let plain = succeeded(bench.admin(doc! { "fsync": 1, "fsyncLockAcquisitionTimeoutMillis": 100 }));
    assert_eq!(plain, doc! { "numFiles": 1 });
    let locked = succeeded(bench.admin(doc! { "fsync": 1, "lock": true }));
    assert_eq!(locked.get_i64("lockCount").ok(), Some(1));
    assert!(locked.get_str("seeAlso").is_ok() && !locked.contains_key("numFiles"));
    succeeded(bench.admin(doc! { "fsyncUnlock": 1, "nonesuch": 1 }));
}
