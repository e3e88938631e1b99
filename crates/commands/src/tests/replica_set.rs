//! A replica set of one: initiating it, its role, what drivers are told.

use super::{Bench, code, succeeded};
use crate::ReplicaSet;
use bson::{Bson, Document, Timestamp, doc};
use std::sync::Arc;
use std::time::Duration;

fn hello(bench: &Bench) -> Document {
    succeeded(bench.admin(doc! { "hello": 1 }))
}

#[test]
fn a_server_alone_knows_no_set() {
    let bench = Bench::new();
    for command in [
        "replSetInitiate",
        "replSetGetStatus",
        "replSetGetConfig",
        "replSetStepDown",
        "replSetFreeze",
    ] {
        assert_eq!(code(&bench.admin(doc! { command: 1 })), 76, "{command}");
    }
    assert!(!hello(&bench).contains_key("setName"));
    let reply = bench.run(doc! { "ping": 1 });
    assert!(!reply.contains_key("operationTime"), "{reply}");
    // First whether the command takes it, then whether this is a member.
    let time = Timestamp { time: 7, increment: 1 };
    for (command, concern, expected) in [
        ("find", doc! { "level": "snapshot" }, 123),
        ("find", doc! { "level": "linearizable" }, 123),
        ("find", doc! { "level": "snapshot", "atClusterTime": time }, 123),
        ("find", doc! { "afterClusterTime": time }, 20),
        ("find", doc! { "level": "majority", "afterClusterTime": time }, 20),
        ("find", doc! { "level": "majority", "atClusterTime": time }, 72),
        ("killSessions", doc! { "afterClusterTime": time }, 20),
        ("count", doc! { "level": "snapshot" }, 72),
        ("startSession", doc! { "level": "linearizable" }, 72),
    ] {
        let name = match command {
            "startSession" => Bson::Int32(1),
            "killSessions" => Bson::Array(Vec::new()),
            _ => "c".into(),
        };
        let call = doc! { command: name, "readConcern": concern };
        assert_eq!(bench.code(call.clone()), expected, "{call}");
    }
    // And before that, whether there are transactions at all.
    let statement = doc! {
        "find": "c",
        "lsid": super::transactions::lsid(1),
        "txnNumber": 1_i64,
        "startTransaction": true,
        "autocommit": false,
        "readConcern": { "level": "snapshot" },
    };
    assert_eq!(bench.code(statement.clone()), 20, "{statement}");
    let mut numberless = statement;
    numberless.remove("txnNumber");
    assert_eq!(bench.code(numberless.clone()), 72, "{numberless}");
}

#[test]
fn before_it_is_initiated_nothing_is_read_or_written() {
    let bench = Bench::member(false);
    let said = hello(&bench);
    assert_eq!(said.get_bool("isWritablePrimary").ok(), Some(false));
    assert_eq!(said.get_bool("isreplicaset").ok(), Some(true));
    let refused = bench.run(doc! { "insert": "c", "documents": [{}] });
    assert_eq!(code(&refused), 10107);
    assert!(refused.contains_key("topologyVersion"), "{refused}");
    let preference = doc! { "mode": "primaryPreferred" };
    for read in [
        doc! { "find": "c" },
        doc! { "explain": { "find": "c" } },
        doc! { "listCollections": 1 },
    ] {
        assert_eq!(bench.code(read.clone()), 13435, "{read}");
        let mut read = read;
        read.insert("$readPreference", preference.clone());
        assert_eq!(bench.code(read.clone()), 13436, "{read}");
    }
    for read in [
        doc! { "getMore": 1_i64, "collection": "c" },
        doc! { "dbHash": 1 },
        doc! { "validate": "c" },
    ] {
        assert_eq!(bench.code(read.clone()), 13436, "{read}");
    }
    assert_eq!(code(&bench.admin(doc! { "listDatabases": 1 })), 13435);
    // Its own are there.
    succeeded(bench.run_on("local", doc! { "find": "c" }));
    assert_eq!(code(&bench.admin(doc! { "replSetGetStatus": 1 })), 94);
    assert_eq!(
        code(&bench.admin(
            doc! { "replSetInitiate": { "_id": "other", "members": [{ "_id": 0, "host": "localhost:27017" }] } }
        )),
        93
    );
    assert_eq!(
        bench.code(doc! { "insert": "c", "documents": [{}] }),
        10107,
        "a refused configuration is none"
    );
    let done = succeeded(bench.admin(doc! { "replSetInitiate": 1 }));
    assert_eq!(done.get_str("me").ok(), Some("localhost:27017"));
    assert_eq!(code(&bench.admin(doc! { "replSetInitiate": 1 })), 23);
    bench.insert("c", &[doc! { "_id": 1 }]);
}

#[test]
fn hello_tells_what_drivers_need() {
    let bench = Bench::member(true);
    let said = hello(&bench);
    assert_eq!(said.get_str("setName").ok(), Some("rs"));
    assert_eq!(said.get_array("hosts").ok(), Some(&vec!["localhost:27017".into()]));
    assert_eq!(
        (said.get_str("primary").ok(), said.get_str("me").ok()),
        (Some("localhost:27017"), Some("localhost:27017"))
    );
    assert_eq!(said.get_i32("setVersion").ok(), Some(1));
    assert_eq!(
        said.get_object_id("electionId").ok().map(|id| id.to_hex()),
        Some("7fffffff0000000000000001".to_owned())
    );
    let time = |said: &Document| -> Timestamp {
        let last = said.get_document("lastWrite").unwrap().get_document("opTime").unwrap();
        assert_eq!(last.get_i64("t").ok(), Some(1));
        last.get_timestamp("ts").unwrap()
    };
    let before = time(&said);
    bench.insert("c", &[doc! { "_id": 1 }]);
    assert!(time(&hello(&bench)) > before, "time goes on with writes");
}

#[test]
fn who_waits_for_a_change_hears_of_it() {
    let bench = Bench::member(false);
    let known = hello(&bench).get_document("topologyVersion").unwrap().clone();
    let wait =
        |patience: i64| bench.admin(doc! { "hello": 1, "topologyVersion": known.clone(), "maxAwaitTimeMS": patience });
    let unchanged = succeeded(wait(0));
    assert_eq!(unchanged.get_document("topologyVersion").ok(), Some(&known));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| succeeded(wait(600_000)));
        succeeded(bench.admin(doc! { "replSetInitiate": 1 }));
        assert_eq!(waiter.join().unwrap().get_bool("isWritablePrimary").ok(), Some(true));
    });
    for half in [
        doc! { "hello": 1, "topologyVersion": known.clone() },
        doc! { "hello": 1, "maxAwaitTimeMS": 1 },
    ] {
        assert_eq!(code(&bench.admin(half)), 31368);
    }
    let mut negative = known.clone();
    negative.insert("counter", -1_i64);
    assert_eq!(
        code(&bench.admin(doc! { "hello": 1, "topologyVersion": negative, "maxAwaitTimeMS": 1 })),
        31372
    );
    assert_eq!(code(&wait(-1)), 31373);
    let mut later = known.clone();
    later.insert("counter", 1_i64 << 40);
    assert_eq!(
        code(&bench.admin(doc! { "hello": 1, "topologyVersion": later, "maxAwaitTimeMS": 1 })),
        31382
    );
}

#[test]
fn a_primary_steps_down_by_force_only_and_comes_back() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! { "_id": 1 }]);
    assert_eq!(code(&bench.admin(doc! { "replSetStepDown": 60 })), 262);
    assert_eq!(
        code(&bench.admin(doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 10, "force": true })),
        2
    );
    for period in [Bson::Int32(0), "x".into()] {
        assert_eq!(
            code(&bench.admin(doc! { "replSetStepDown": period })),
            262,
            "as long as usual"
        );
    }
    assert_eq!(code(&bench.admin(doc! { "replSetStepDown": -1 })), 2);
    for period in [Bson::Int32(10), (-1).into(), "x".into()] {
        assert_eq!(code(&bench.admin(doc! { "replSetFreeze": period })), 95);
    }
    succeeded(bench.admin(doc! { "replSetStepDown": 60, "force": true }));
    let said = hello(&bench);
    assert_eq!(
        (said.get_bool("isWritablePrimary").ok(), said.get_bool("secondary").ok()),
        (Some(false), Some(true))
    );
    assert!(!said.contains_key("electionId") && !said.contains_key("primary"));
    assert_eq!(bench.code(doc! { "insert": "c", "documents": [{}] }), 10107);
    assert_eq!(bench.code(doc! { "find": "c" }), 13435);
    let read = bench.run(doc! { "find": "c", "$readPreference": { "mode": "secondaryPreferred" } });
    assert_eq!(super::first_batch(&succeeded(read)).len(), 1);
    bench.clock.advance(Duration::from_secs(59));
    bench.server.tick();
    assert_eq!(bench.code(doc! { "insert": "c", "documents": [{}] }), 10107);
    bench.clock.advance(Duration::from_secs(1));
    bench.server.tick();
    let said = hello(&bench);
    assert_eq!(
        said.get_object_id("electionId").ok().map(|id| id.to_hex()),
        Some("7fffffff0000000000000002".to_owned())
    );
    bench.insert("c", &[doc! { "_id": 2 }]);
}

#[test]
fn a_configuration_is_changed_by_a_later_one() {
    let bench = Bench::member(true);
    let shown = succeeded(bench.admin(doc! { "replSetGetConfig": 1 }));
    let config = shown.get_document("config").unwrap().clone();
    assert_eq!(
        (config.get_i32("version").ok(), config.get_i64("term").ok()),
        (Some(1), Some(1))
    );
    assert_eq!(code(&bench.admin(doc! { "replSetReconfig": config.clone() })), 103);
    let mut next = config.clone();
    next.insert("version", 2);
    let Some(Bson::Array(members)) = next.get_mut("members") else {
        panic!("{config}")
    };
    members[0]
        .as_document_mut()
        .unwrap()
        .insert("tags", doc! { "dc": "east" });
    let mut several = next.clone();
    several
        .get_array_mut("members")
        .unwrap()
        .push(doc! { "_id": 1, "host": "localhost:1" }.into());
    // It does not answer, and two votes need both.
    assert_eq!(code(&bench.admin(doc! { "replSetReconfig": several })), 74);
    succeeded(bench.admin(doc! { "replSetReconfig": next }));
    let said = hello(&bench);
    assert_eq!(said.get_document("tags").ok(), Some(&doc! { "dc": "east" }));
    assert_eq!(said.get_i32("setVersion").ok(), Some(2));
    let kept = super::first_batch(&succeeded(bench.run_on("local", doc! { "find": "system.replset" })));
    assert_eq!(kept[0].get_i32("version").ok(), Some(2));
}

#[test]
fn write_concerns_that_one_member_cannot_meet_leave_the_write() {
    let bench = Bench::member(true);
    for (w, expected) in [(Bson::Int32(2), 100), ("east".into(), 79)] {
        let reply = bench.ok(doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": w.clone() } });
        let error = reply.get_document("writeConcernError").unwrap();
        assert_eq!(
            (error.get_i32("code").ok(), reply.get_i32("n").ok()),
            (Some(expected), Some(1))
        );
        let concern = doc! { "w": w, "wtimeout": 0, "provenance": "clientSupplied" };
        assert_eq!(
            error.get_document("errInfo").unwrap(),
            &doc! { "writeConcern": concern }
        );
    }
    assert_eq!(bench.find("c", doc! {}).len(), 2);
    // Without a word, a write is on disk when it is answered.
    bench.ok(doc! { "insert": "c", "documents": [{}] });
    let storage = &bench.server.storage;
    assert_eq!(storage.log().durable_seq(), storage.last_seq());
    bench.ok(doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1 } });
    assert!(
        storage.log().durable_seq() < storage.last_seq(),
        "nothing flushes here but who waits"
    );
    bench.ok(doc! { "find": "c", "readConcern": { "level": "majority" } });
    assert_eq!(storage.log().durable_seq(), storage.last_seq(), "what was read stays");
}

#[test]
fn reads_after_a_time_see_it() {
    let bench = Bench::member(true);
    let now = bench.server.storage.applied().time.0;
    let at = |time: u64| Timestamp {
        time: (time >> 32) as u32,
        increment: time as u32,
    };
    let find = |after: u64| doc! { "find": "c", "readConcern": { "afterClusterTime": at(after) } };
    bench.ok(find(now));
    let later = now + (100 << 32);
    assert_eq!(bench.code(find(later)), 72, "nobody can have given that time");
    let mut told = find(later);
    told.insert("$clusterTime", doc! { "clusterTime": at(later) });
    bench.ok(told);
    assert!(bench.server.storage.applied().time.0 >= later);
}

#[test]
fn writes_are_later_than_what_their_client_has_seen() {
    let bench = Bench::member(true);
    let applied = || bench.server.storage.applied().time.0;
    let told = |mut command: Document, seconds: u64| {
        let time = (applied() >> 32) + seconds;
        command.insert(
            "$clusterTime",
            doc! { "clusterTime": Timestamp { time: time as u32, increment: 1 } },
        );
        (command, time << 32 | 1)
    };
    let (insert, seen) = told(doc! { "insert": "c", "documents": [{}] }, 3600);
    bench.ok(insert);
    assert!(applied() > seen);
    // A read shows nothing new, but the next write is later.
    let (ping, seen) = told(doc! { "ping": 1 }, 3600);
    bench.ok(ping);
    assert!(applied() < seen);
    bench.ok(doc! { "insert": "c", "documents": [{}] });
    assert!(applied() > seen);
    let (far, _) = told(doc! { "ping": 1 }, 400 * 86_400);
    assert_eq!(bench.code(far), 205);
    bench.ok(doc! { "insert": "c", "documents": [{}] });
    assert!(applied() < seen + (3600 << 32), "what was refused has moved nothing");
}

/// With access control nothing proves that a server has given the time.
#[test]
fn users_move_no_clock() {
    let set = ReplicaSet::new("rs".to_owned(), true, ("localhost", 27017), [1; 16]);
    let bench = Bench::build(&[], Some(Arc::new(set)), true, None).expect("the server starts");
    bench.server.join_set(None).expect("joined");
    bench.keep_user("admin", "root", &[doc! { "role": "root", "db": "admin" }.into()]);
    bench.become_user(&bench.client, "admin", "root");
    let applied = || bench.server.storage.applied().time.0;
    let time = (applied() >> 32) as u32 + 3600;
    let seen = doc! { "clusterTime": Timestamp { time, increment: 1 } };
    bench.ok(doc! { "insert": "c", "documents": [{}], "$clusterTime": seen.clone() });
    assert!(applied() >> 32 < u64::from(time));
    let user = bench.user("eve", &[]);
    let storage = &bench.server.storage;
    let last = storage.last_seq();
    let read_after = |command: &str| doc! { command: 1, "readConcern": { "afterClusterTime": Timestamp { time, increment: 1 } }, "$clusterTime": seen.clone() };
    // Whoever is nobody waits for nothing, and has nothing written.
    let stranger = bench.stranger();
    for command in ["ping", "hello", "buildInfo", "listCommands"] {
        succeeded(bench.run_as(&stranger, "admin", read_after(command)));
    }
    for client in [&bench.client, &user] {
        assert_eq!(super::code(&bench.run_as(client, "admin", read_after("ping"))), 72);
    }
    assert_eq!(storage.last_seq(), last);
    bench.ok(doc! { "insert": "c", "documents": [{}] });
    assert!(applied() >> 32 < u64::from(time));
}

/// Whoever asks for each time of a second has one entry written.
#[test]
fn times_of_one_second_are_one_entry() {
    let bench = Bench::member(true);
    let storage = &bench.server.storage;
    let time = (storage.applied().time.0 >> 32) as u32 + 5;
    let last = storage.last_seq();
    for increment in [1, 7, 1_000, u32::MAX] {
        let time = Timestamp { time, increment };
        bench.ok(doc! {
            "find": "c", "readConcern": { "afterClusterTime": time }, "$clusterTime": { "clusterTime": time },
        });
    }
    assert_eq!(storage.last_seq().0, last.0 + 1);
}

#[test]
fn expressions_see_the_cluster_time_of_members() {
    let bench = Bench::member(true);
    bench.ok(doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    let now = bench.server.storage.applied().time.to_timestamp();
    let found = bench.aggregate("c", &[doc! { "$project": { "t": "$$CLUSTER_TIME" } }]);
    assert_eq!(found, [doc! { "_id": 1, "t": now }]);
    let changed = bench.ok(doc! {
        "update": "c",
        "updates": [{ "q": { "$expr": { "$gte": ["$$CLUSTER_TIME", now] } }, "u": [{ "$set": { "t": "$$CLUSTER_TIME" } }] }],
    });
    assert_eq!(changed.get_i32("nModified").ok(), Some(1));
    assert_eq!(
        bench.aggregate_code("c", &[doc! { "$redact": "$$CLUSTER_TIME" }]),
        17053
    );
    // A validator sees the time of each write.
    let validator = doc! { "$expr": { "$lte": ["$t", "$$CLUSTER_TIME"] } };
    bench.ok(doc! { "create": "validated", "validator": &validator });
    bench.ok(doc! { "collMod": "c", "validator": &validator });
    let insert = |time: u32| {
        let documents = vec![doc! { "t": Timestamp { time, increment: 1 } }];
        bench.run(doc! { "insert": "validated", "documents": documents })
    };
    bench.ok(doc! { "insert": "validated", "documents": [{ "t": now }] });
    assert!(insert(u32::MAX).contains_key("writeErrors"));
    assert!(!insert(0).contains_key("writeErrors"));
    let alone = Bench::new();
    let code = alone.aggregate_code("c", &[doc! { "$project": { "t": "$$CLUSTER_TIME" } }]);
    assert_eq!(code, 51144);
    // Some commands have no time for their expressions.
    for time in ["$$NOW", "$$CLUSTER_TIME"] {
        let filter = doc! { "$expr": { "$lt": ["$t", time] } };
        bench.ok(doc! { "find": "c", "filter": &filter });
        assert_eq!(bench.code(doc! { "count": "c", "query": &filter }), 51144, "{time}");
        assert_eq!(
            bench.code(doc! { "distinct": "c", "key": "a", "query": &filter }),
            51144,
            "{time}"
        );
        assert_eq!(
            bench.code(doc! { "listCollections": 1, "filter": &filter }),
            51144,
            "{time}"
        );
    }
}

#[test]
fn an_idle_primary_lets_time_go_on() {
    let bench = Bench::member(true);
    let before = bench.server.storage.applied();
    bench.server.tick();
    assert_eq!(bench.server.storage.applied(), before);
    bench.clock.advance(Duration::from_secs(11));
    bench.server.tick();
    assert!(bench.server.storage.applied().time > before.time);
}

/// The main thread, which hears of signals and lets cursors expire, waited for `fsyncUnlock` to write that time goes
/// on.
#[test]
fn the_upkeep_of_a_primary_waits_for_no_fsync_lock() {
    let bench = Bench::member(true);
    succeeded(bench.admin(doc! { "fsync": 1, "lock": true }));
    let before = bench.server.storage.applied();
    bench.clock.advance(Duration::from_secs(11));
    bench.server.tick();
    assert_eq!(bench.server.storage.applied(), before);
    succeeded(bench.admin(doc! { "replSetStepDown": 60, "force": true }));
    bench.clock.advance(Duration::from_secs(60));
    bench.server.tick();
    assert_eq!(hello(&bench).get_bool("isWritablePrimary").ok(), Some(false));
    succeeded(bench.admin(doc! { "fsyncUnlock": 1 }));
    bench.server.tick();
    assert_eq!(hello(&bench).get_bool("isWritablePrimary").ok(), Some(true));
    assert!(bench.server.storage.applied().time > before.time);
}

#[test]
fn default_concerns_are_those_of_commands_that_name_none() {
    let bench = Bench::member(true);
    let get = |bench: &Bench| succeeded(bench.admin(doc! { "getDefaultRWConcern": 1 }));
    let implicit = get(&bench);
    assert_eq!(implicit.get_str("defaultWriteConcernSource").ok(), Some("implicit"));
    assert!(!implicit.contains_key("inMemory"));
    let in_memory = succeeded(bench.admin(doc! { "getDefaultRWConcern": 1, "inMemory": true }));
    assert_eq!(in_memory.get_bool("inMemory").ok(), Some(true));
    let set = |fields: Document| {
        let mut command = doc! { "setDefaultRWConcern": 1 };
        command.extend(fields);
        bench.admin(command)
    };
    for (refused, expected) in [
        (doc! {}, 2),
        (doc! { "defaultReadConcern": { "level": "snapshot" } }, 2),
        (
            doc! { "defaultReadConcern": { "afterClusterTime": Timestamp { time: 1, increment: 1 } } },
            2,
        ),
        (doc! { "defaultWriteConcern": { "j": true } }, 2),
        (doc! { "defaultWriteConcern": { "w": 0 } }, 2),
        (doc! { "defaultWriteConcern": { "w": 2 } }, 100),
        (doc! { "defaultWriteConcern": { "w": "dc" } }, 79),
    ] {
        assert_eq!(code(&set(refused.clone())), expected, "{refused}");
    }
    assert_eq!(
        get(&bench).get("defaultWriteConcern"),
        implicit.get("defaultWriteConcern")
    );
    let told = succeeded(set(
        doc! { "defaultWriteConcern": { "w": 1 }, "defaultReadConcern": { "level": "majority" } },
    ));
    assert_eq!(
        told.get_document("defaultWriteConcern").ok(),
        Some(&doc! { "w": 1, "wtimeout": 0 })
    );
    assert_eq!(told.get_str("defaultReadConcernSource").ok(), Some("global"));
    let storage = &bench.server.storage;
    let is_flushed = || storage.log().durable_seq() == storage.last_seq();
    bench.ok(doc! { "insert": "c", "documents": [{}] });
    assert!(!is_flushed(), "w: 1 waits for nothing");
    bench.ok(doc! { "find": "c" });
    assert!(is_flushed(), "what a majority read shows stays");
    bench.ok(doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": "majority" } });
    assert!(is_flushed());
    bench.ok(doc! { "insert": "c", "documents": [{}], "writeConcern": {} });
    assert!(!is_flushed());
    bench.ok(doc! { "find": "c", "readConcern": { "level": "local" } });
    assert!(!is_flushed());
    // One can be taken back, the other not.
    let told = succeeded(set(doc! { "defaultReadConcern": {} }));
    assert_eq!(told.get_str("defaultReadConcernSource").ok(), Some("implicit"));
    assert_eq!(told.get_str("defaultWriteConcernSource").ok(), Some("global"));
    assert_eq!(code(&set(doc! { "defaultWriteConcern": {} })), 20);
    let alone = Bench::new();
    for command in ["getDefaultRWConcern", "setDefaultRWConcern"] {
        let fields = doc! { command: 1, "defaultReadConcern": { "level": "local" } };
        let fields = if command.starts_with("get") {
            doc! { command: 1 }
        } else {
            fields
        };
        assert_eq!(code(&alone.admin(fields)), 51300, "{command}");
    }
}

/// A member that somebody had written such a document on did not start again.
#[test]
fn default_concerns_that_cannot_be_used_are_refused_and_passed_over() {
    let bench = Bench::member(true);
    let id = "ReadWriteConcernDefaults";
    let write = |id: &str, fields: Document| {
        let updates = [doc! { "q": { "_id": id }, "u": { "$set": fields }, "upsert": true }];
        super::write_errors(&bench.run_on("config", doc! { "update": "settings", "updates": updates }))
    };
    let get = || succeeded(bench.admin(doc! { "getDefaultRWConcern": 1 }));
    for (fields, expected) in [
        (doc! { "defaultReadConcern": { "level": "nix" } }, 2),
        (doc! { "defaultReadConcern": 1 }, 14),
        (doc! { "defaultWriteConcern": { "w": {} } }, 9),
        (doc! { "defaultWriteConcern": { "w": "nomode" } }, 79),
    ] {
        assert_eq!(write(id, fields.clone()), [(0, expected)], "{fields}");
        assert_eq!(write("other", fields), []);
    }
    assert_eq!(write(id, doc! { "defaultReadConcern": { "level": "majority" } }), []);
    assert_eq!(
        get().get_document("defaultReadConcern").unwrap(),
        &doc! { "level": "majority" }
    );
    let is_majority = || bench.server.default_concerns.read().read == crate::concerns::ReadLevel::Majority;
    assert!(is_majority(), "it takes effect at once");
    // It was written by another version, say.
    let namespace = storage::Namespace::new("config", "settings").unwrap();
    let unusable = bson::rawdoc! { "_id": id, "defaultReadConcern": { "level": "nix" } };
    succeeded(bench.run_on(
        "config",
        doc! { "delete": "settings", "deletes": [{ "q": { "_id": id }, "limit": 1 }] },
    ));
    assert!(!is_majority());
    let operation = bench.server.new_operation();
    let storage = &bench.server.storage;
    let guard = storage
        .collection(&operation, &namespace, storage::LockMode::IntentExclusive)
        .unwrap()
        .expect("there");
    let mut unit = storage.begin_write(&operation);
    unit.insert(&guard, &unusable).unwrap();
    unit.commit().unwrap();
    drop(guard);
    bench
        .server
        .own_call(crate::command::default_concerns::load)
        .expect("the start does not depend on it");
    assert!(bench.server.default_concerns.read().is_unusable);
    bench.insert("c", &[doc! { "_id": 1 }]);
}

#[test]
fn a_reconfiguration_leaves_writes_the_concern_that_they_have() {
    let bench = Bench::member(true);
    let change = |change: &dyn Fn(&mut Document)| {
        let shown = succeeded(bench.admin(doc! { "replSetGetConfig": 1 }));
        let mut config = shown.get_document("config").unwrap().clone();
        let version = config.get_i32("version").unwrap();
        config.insert("version", version + 1);
        change(&mut config);
        bench.admin(doc! { "replSetReconfig": config, "force": true })
    };
    let with_arbiter = |config: &mut Document| {
        let arbiter = doc! { "_id": 1, "host": "localhost:1", "arbiterOnly": true, "priority": 0 };
        config.get_array_mut("members").unwrap().push(arbiter.into());
    };
    let refused = change(&with_arbiter);
    assert_eq!(code(&refused), 103);
    assert!(
        refused
            .get_str("errmsg")
            .unwrap()
            .contains("implicit default write concern")
    );
    let with_modes = |modes: Document| {
        move |config: &mut Document| {
            let member = config.get_array_mut("members").unwrap()[0].as_document_mut().unwrap();
            member.insert("tags", doc! { "dc": "east" });
            let settings = config.get_document_mut("settings").unwrap();
            settings.insert("getLastErrorModes", modes.clone());
        }
    };
    succeeded(change(&with_modes(doc! { "one": { "dc": 1 } })));
    let default = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": "one" } };
    succeeded(bench.admin(default));
    let refused = change(&with_modes(doc! {}));
    assert_eq!(code(&refused), 103);
    assert!(refused.get_str("errmsg").unwrap().contains("in use as the default"));
    succeeded(change(&with_modes(doc! { "one": { "dc": 1 }, "other": { "dc": 1 } })));
    let other = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": { "w": 1 } };
    succeeded(bench.admin(other));
    succeeded(change(&with_modes(doc! {})));
}

/// A member that was added, and copied for hours, counted: with another one down no majority came together.
#[test]
fn who_has_no_vote_yet_is_waited_for_by_nobody() {
    use crate::replica_set::{ConsensusMembers, ReplicaSet, SetConfig};
    let set = ReplicaSet::new("rs".to_owned(), false, ("localhost", 1), [1; 16]);
    let member = |id: i32| doc! { "_id": id, "host": format!("localhost:{}", id + 1) };
    let config = doc! { "_id": "rs", "version": 1, "members": (0..4).map(member).collect::<Vec<_>>() };
    let config = SetConfig::parse(&bson::RawDocumentBuf::try_from(&config).unwrap()).unwrap();
    let mut consensus = ConsensusMembers::of_one(0, [1; 16]);
    for id in 1..4 {
        consensus.take_in(id, [id as u8 + 1; 16]);
        consensus.set_votes(id, id < 3);
    }
    set.change(|member| {
        member.config = Some(config);
        member.consensus = Some(consensus.clone());
    });
    let majorities = || {
        let counted = set.member().counting_votes().config.unwrap();
        let has = |ids: &[i32]| counted.mode_is_satisfied("majority", &|id| ids.contains(&id)).unwrap();
        (counted.majority(), has(&[0, 1]), has(&[0, 3]))
    };
    assert_eq!(majorities(), (2, true, false));
    consensus.set_votes(3, true);
    set.change(|member| member.consensus = Some(consensus));
    assert_eq!(majorities(), (3, false, false));
}

#[test]
fn a_commit_quorum_of_one_is_met() {
    let bench = Bench::member(true);
    let create = |quorum: Bson| doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }], "commitQuorum": quorum };
    for (quorum, expected) in [
        (Bson::from("dc"), 79),
        (2.into(), 278),
        (true.into(), 9),
        ((-1).into(), 9),
    ] {
        assert_eq!(bench.code(create(quorum.clone())), expected, "{quorum}");
    }
    bench.ok(create("votingMembers".into()));
    // As many as have data.
    let member = |id: i32| doc! { "_id": id, "host": format!("localhost:{}", id + 1), "arbiterOnly": id == 3 };
    let config = doc! { "_id": "rs", "version": 1, "members": (0..4).map(member).collect::<Vec<_>>() };
    let config = bson::RawDocumentBuf::try_from(&config).unwrap();
    let config = crate::replica_set::SetConfig::parse(&config).unwrap();
    bench
        .server
        .replica_set()
        .unwrap()
        .change(|member| member.config = Some(config));
    for (quorum, expected) in [(3, 0), (4, 278)] {
        let reply = bench.run(create(quorum.into()));
        assert_eq!(reply.get_i32("code").unwrap_or(0), expected, "{reply}");
    }
    assert_eq!(Bench::new().code(create(1.into())), 2);
}

#[test]
fn a_write_concern_that_cannot_be_met_is_told_whatever_the_write_did() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! { "_id": 1 }]);
    let with = |mut command: Document| {
        command.insert("writeConcern", doc! { "w": 2, "wtimeout": 1 });
        bench.run(command)
    };
    let code_of = |reply: &Document| {
        let error = reply
            .get_document("writeConcernError")
            .unwrap_or_else(|_| panic!("{reply}"));
        (
            error.get_i32("code").unwrap(),
            error.get_str("codeName").unwrap().to_owned(),
        )
    };
    let unsatisfiable = (100, "UnsatisfiableWriteConcern".to_owned());
    let nothing = doc! { "update": "c", "updates": [{ "q": { "_id": 9 }, "u": { "$set": { "a": 1 } } }] };
    assert_eq!(code_of(&with(nothing)), unsatisfiable);
    assert_eq!(code_of(&with(doc! { "drop": "none" })), unsatisfiable);
    let partly = with(doc! { "insert": "c", "documents": [{ "_id": 1 }] });
    assert_eq!(
        (code_of(&partly), super::write_errors(&partly)),
        (unsatisfiable.clone(), vec![(0, 11000)])
    );
    let failed = with(doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$set": { "_id": 2 } } });
    assert_eq!((code_of(&failed), code(&failed)), (unsatisfiable, 66));
    // Reads have none, unless they are asked to.
    let read = bench.run(doc! { "find": "c" });
    assert!(!read.contains_key("writeConcernError"), "{read}");
}

/// A session learns of the time whatever it asks for: the bench looks for it in each reply of a member.
#[test]
fn unknown_commands_are_answered_with_the_time() {
    let bench = Bench::member(true);
    assert_eq!(bench.code(doc! { "bad": 1 }), 59);
    assert_eq!(bench.code(doc! { "moveChunk": 1 }), 238);
}

#[test]
fn fail_points_end_operations_at_their_limit() {
    let bench = Bench::with_parameters(&[("enableTestCommands", "1")]).unwrap();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let opened = bench.ok(doc! { "find": "c", "batchSize": 1, "maxTimeMS": 1000 });
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    succeeded(bench.admin(doc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "alwaysOn" }));
    assert_eq!(bench.code(doc! { "count": "c", "maxTimeMS": 1000 }), 50);
    bench.ok(doc! { "count": "c" });
    assert_eq!(bench.code(doc! { "getMore": cursor, "collection": "c" }), 50);
    succeeded(bench.admin(doc! { "configureFailPoint": "maxTimeAlwaysTimeOut", "mode": "off" }));
    bench.ok(doc! { "count": "c", "maxTimeMS": 1000 });
}

#[test]
fn what_writes_cannot_be_linearizable_and_a_cursor_keeps_its_read_concern() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let out = |stage: Document| {
        let concern = doc! { "level": "linearizable" };
        bench.code(doc! { "aggregate": "c", "pipeline": [stage], "cursor": {}, "readConcern": concern })
    };
    assert_eq!((out(doc! { "$out": "d" }), out(doc! { "$merge": "d" })), (72, 72));
    let opened = bench.ok(doc! { "find": "c", "batchSize": 1, "readConcern": { "level": "snapshot" } });
    let cursor = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
    bench.ok(doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] });
    let more = bench.ok(doc! { "getMore": cursor, "collection": "c", "readConcern": { "level": "snapshot" } });
    assert_eq!(
        more.get_document("cursor")
            .unwrap()
            .get_array("nextBatch")
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn user_writes_are_let_go_by_who_held_them_off() {
    let bench = Bench::member(true);
    let set = |global: bool, reason: Bson| {
        bench.admin(doc! { "setUserWriteBlockMode": 1, "global": global, "reason": reason })
    };
    let migration = || Bson::from("ClusterToClusterMigrationInProgress");
    for (reason, expected) in [
        (Bson::from("nonesuch"), 2),
        (1.into(), 14),
        (true.into(), 14),
        (doc! {}.into(), 14),
    ] {
        assert_eq!(code(&set(true, reason.clone())), expected, "{reason}");
    }
    for (reason, other) in [(Bson::Null, migration()), (migration(), "Unspecified".into())] {
        succeeded(set(true, reason.clone()));
        succeeded(set(true, reason.clone()));
        assert_eq!(code(&set(true, other.clone())), 20);
        assert_eq!(code(&set(false, other.clone())), 20);
        assert!(bench.server.storage.are_user_writes_blocked());
        succeeded(set(false, reason));
        assert!(!bench.server.storage.are_user_writes_blocked());
        succeeded(set(false, other));
    }
}
