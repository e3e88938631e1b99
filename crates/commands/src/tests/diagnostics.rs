//! What servers tell of themselves beside figures: connections to others, and definitions that keep to the Stable API.

use super::{Bench, code, first_batch, succeeded};
use crate::{Client, MemberConnection, MemberConnections, MemberThreads, WantedCopy};
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use storage::{ClusterTime, LockMode, Membership, Namespace, StorageError};

/// Threads of a member that does nothing but count.
#[derive(Default)]
struct Threads(Mutex<Vec<String>>);

impl MemberThreads for Threads {
    fn ask(&self, _: &str, _: &RawDocument, _: Duration) -> Result<RawDocumentBuf, String> {
        Err("nobody is there".to_owned())
    }

    fn connect(&self, _: &str, _: Duration) -> Result<Box<dyn MemberConnection>, String> {
        Err("nobody is there".to_owned())
    }

    fn wake(&self) {}

    fn ask_all(&self) {}

    fn take_part(&self, _: &Membership, _: Duration) -> Result<(), StorageError> {
        Ok(())
    }

    fn copy(&self, _: WantedCopy) {}

    fn force(&self, _: &Document) -> Result<(), String> {
        Ok(())
    }

    fn keep_oplog_retention(&self, _: u64, _: Duration) -> Result<(), String> {
        Ok(())
    }

    fn want(&self, _: u64, _: ClusterTime) {}

    fn connections(&self) -> Vec<MemberConnections> {
        let of = |host: &str, in_use, available, created| MemberConnections {
            host: host.to_owned(),
            in_use,
            available,
            created,
        };
        vec![of("db2:27017", 1, 2, 5), of("db3:27017", 0, 1, 1)]
    }

    fn drop_connections(&self, hosts: &[String]) {
        self.0.lock().extend_from_slice(hosts);
    }
}

#[test]
fn a_server_alone_has_no_connections_to_others() {
    let reply = Bench::new().ok(doc! { "connPoolStats": 1 });
    let expected = doc! {
        "numClientConnections": 0, "numAScopedConnections": 0, "totalInUse": 0, "totalAvailable": 0, "totalLeased": 0,
        "totalCreated": 0, "totalRefreshing": 0, "pools": {}, "hosts": {}, "replicaSets": {},
    };
    assert_eq!(reply, expected);
}

#[test]
fn a_member_counts_its_connections_and_cuts_them() {
    let bench = Bench::member(true);
    let threads = Arc::new(Threads::default());
    let as_threads: Arc<dyn MemberThreads> = threads.clone();
    let weak: Weak<dyn MemberThreads> = Arc::downgrade(&as_threads);
    bench.server.replica_set().expect("it is a member").set_threads(weak);
    let reply = bench.ok(doc! { "connPoolStats": 1 });
    let figures = |name: &str| reply.get_i32(name).unwrap();
    assert_eq!(
        (
            figures("totalInUse"),
            figures("totalAvailable"),
            figures("totalCreated")
        ),
        (1, 3, 6)
    );
    let expected = doc! { "inUse": 1, "available": 2, "leased": 0, "created": 5, "refreshing": 0 };
    assert_eq!(
        reply.get_document("hosts").unwrap().get_document("db2:27017").unwrap(),
        &expected
    );
    let (_, pool) = reply
        .get_document("pools")
        .unwrap()
        .iter()
        .next()
        .expect("there is one");
    let pool = pool.as_document().unwrap();
    assert_eq!(
        (
            pool.get_i32("poolCreated").unwrap(),
            pool.get_document("db2:27017").unwrap()
        ),
        (6, &expected)
    );

    let cut = |hosts: Bson| bench.admin(doc! { "dropConnections": 1, "hostAndPort": hosts });
    assert_eq!(code(&cut("db2:27017".into())), 14);
    assert_eq!(code(&cut(Bson::Array(vec![5.into()]))), 14);
    assert_eq!(code(&bench.admin(doc! { "dropConnections": 1 })), 40414);
    assert_eq!(bench.code(doc! { "dropConnections": 1, "hostAndPort": [] }), 13);
    assert_eq!(cut(Bson::Array(vec!["db2:27017".into()])).get_f64("ok").unwrap(), 1.0);
    assert_eq!(*threads.0.lock(), ["db2:27017"]);
}

/// The errors of a `validateDBMetadata`, as `(ns, code, errmsg)`.
fn errors(bench: &Bench, more: Document) -> Vec<(String, i32, String)> {
    let mut command = doc! {
        "validateDBMetadata": 1, "apiParameters": { "version": "1", "strict": true, "deprecationErrors": true },
    };
    command.extend(more);
    let reply = bench.ok(command);
    assert!(!reply.get_bool("hasMoreErrors").unwrap());
    let errors = reply.get_array("apiVersionErrors").unwrap().iter().map(|error| {
        let error = error.as_document().unwrap();
        assert_eq!(error.get_str("codeName").unwrap(), "APIStrictError");
        let text = |name| error.get_str(name).unwrap().to_owned();
        (text("ns"), error.get_i32("code").unwrap(), text("errmsg"))
    });
    errors.collect()
}

#[test]
fn definitions_are_held_against_the_stable_api() {
    let bench = Bench::new();
    assert_eq!(errors(&bench, doc! {}), []);
    let indexes = doc! { "createIndexes": "sales", "indexes": [
        { "key": { "item": 1 }, "name": "item_1" }, { "key": { "a": 1 }, "name": "rare", "sparse": true },
    ] };
    bench.ok(indexes.clone());
    bench.ok(doc! { "create": "fine", "viewOn": "sales", "pipeline": [{ "$match": { "a": 1 } }] });
    bench.ok(doc! { "create": "usage", "viewOn": "sales", "pipeline": [{ "$indexStats": {} }] });
    bench.run_on("other", indexes);
    let index = |ns: &str| {
        let message = "The index with name rare is not allowed in API version 1.";
        (ns.to_owned(), 323, message.to_owned())
    };
    let of = |ns: &str, found: &[(String, i32, String)]| found.iter().any(|error| error == &index(ns));
    let all = errors(&bench, doc! {});
    assert!(
        of("test.sales", &all) && of("other.sales", &all) && all.len() == 3,
        "{all:?}"
    );
    assert_eq!(errors(&bench, doc! { "db": "other" }), [index("other.sales")]);
    assert_eq!(errors(&bench, doc! { "collection": "sales" }).len(), 2);
    let view = errors(&bench, doc! { "db": "test", "collection": "usage" });
    assert!(view.len() == 1 && view[0].2.contains("$indexStats"), "{view:?}");
    assert_eq!(errors(&bench, doc! { "db": "nonesuch" }), []);

    let with =
        |parameters: Document| bench.run_on("test", doc! { "validateDBMetadata": 1, "apiParameters": parameters });
    let lax = with(doc! { "version": "1", "strict": false, "deprecationErrors": true });
    assert!(lax.get_array("apiVersionErrors").unwrap().is_empty());
    assert_eq!(
        code(&with(
            doc! { "version": "2", "strict": true, "deprecationErrors": true }
        )),
        322
    );
    let brief = with(doc! { "version": "1" });
    assert!(brief.get_array("apiVersionErrors").unwrap().is_empty());
    assert_eq!(code(&with(doc! { "strict": true })), 40414);
    assert_eq!(bench.code(doc! { "validateDBMetadata": 1 }), 40414);
}

#[test]
fn definitions_are_shown_to_who_may_validate_them() {
    let bench = Bench::guarded();
    bench.ok(doc! { "create": "c" });
    bench.run_on("other", doc! { "create": "c" });
    let role = |name: &str, db: &str| Bson::Document(doc! { "role": name, "db": db });
    let may = |client: &Arc<Client>, more: Document| {
        let mut command = doc! {
            "validateDBMetadata": 1, "apiParameters": { "version": "1", "strict": true, "deprecationErrors": true },
        };
        command.extend(more);
        bench.run_as(client, "test", command).get_i32("code").ok() != Some(13)
    };
    let one = bench.user("one", &[role("dbAdmin", "test")]);
    assert!(may(&one, doc! { "db": "test" }) && may(&one, doc! { "db": "test", "collection": "c" }));
    assert!(!may(&one, doc! {}) && !may(&one, doc! { "db": "other" }) && !may(&one, doc! { "collection": "c" }));
    let none = bench.user("none", &[role("read", "test")]);
    assert!(!may(&none, doc! { "db": "test" }));
    assert!(may(&bench.client, doc! {}));
}

#[test]
fn a_server_tells_of_its_start() {
    for bench in [Bench::new(), Bench::member(true)] {
        let reply = bench.run_on("local", doc! { "find": "startup_log" });
        let documents = first_batch(&reply);
        assert_eq!(documents.len(), 1, "{reply}");
        let start = &documents[0];
        let names: Vec<&str> = start.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "_id",
                "hostname",
                "startTime",
                "startTimeLocal",
                "cmdLine",
                "pid",
                "buildinfo"
            ]
        );
        assert_eq!(start.get_str("_id").unwrap(), "host-1700000000000");
        let build = bench.ok(doc! { "buildInfo": 1 });
        for (name, value) in start.get_document("buildinfo").unwrap() {
            assert_eq!(build.get(name), Some(value), "{name}");
        }
        let listed = first_batch(&bench.run_on(
            "local",
            doc! { "listCollections": 1, "filter": { "name": "startup_log" } },
        ));
        assert_eq!(
            listed[0].get_document("options").unwrap().get_bool("capped").ok(),
            Some(true)
        );
        let counted = bench.run_on(
            "local",
            doc! { "aggregate": "startup_log", "pipeline": [{ "$count": "n" }], "cursor": {} },
        );
        assert_eq!(first_batch(&counted)[0].get_i32("n").ok(), Some(1));
        let written = bench.run_on("local", doc! { "insert": "startup_log", "documents": [{}] });
        assert_eq!(written.get_i32("n").ok().filter(|n| *n > 0), None, "{written}");
    }
}

#[test]
fn locks_are_shown_with_who_waits() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    let locks = || {
        let reply = succeeded(bench.admin(doc! { "lockInfo": 1 }));
        let resources = reply.get_array("lockInfo").unwrap().iter();
        resources
            .map(|resource| resource.as_document().unwrap().clone())
            .collect::<Vec<_>>()
    };
    assert!(locks().is_empty());
    let namespace = Namespace::parse("test.c").unwrap();
    let operation = bench.server.new_operation();
    let held = bench
        .server
        .storage
        .collection(&operation, &namespace, LockMode::Exclusive)
        .unwrap();
    let reader = bench.stranger();
    std::thread::scope(|scope| {
        let find = scope.spawn(|| bench.run_as(&reader, "test", doc! { "find": "c", "filter": { "a": 5 } }));
        let resource = loop {
            let found = locks();
            if !found[0].get_array("pending").unwrap().is_empty() {
                break found[0].clone();
            }
            std::thread::yield_now();
        };
        assert!(resource.get_str("resourceId").unwrap().ends_with(", test.c}"));
        let granted = doc! {
            "mode": "X", "convertMode": "NONE", "enqueueAtFront": false, "compatibleFirst": false, "debugInfo": "",
        };
        assert_eq!(resource.get_array("granted").unwrap(), &[Bson::Document(granted)]);
        let pending = resource.get_array("pending").unwrap();
        let waiting = pending[0].as_document().unwrap();
        assert_eq!((pending.len(), waiting.get_str("mode").unwrap()), (1, "IS"));
        assert!(
            waiting.get_str("debugInfo").unwrap().contains("find: \"c\""),
            "{waiting}"
        );
        let client = waiting.get_document("clientInfo").unwrap();
        assert_eq!(client.get_i32("connectionId").unwrap(), reader.id() as i32);
        assert_eq!(client.get_str("desc").unwrap(), format!("conn{}", reader.id()));
        drop(held);
        assert!(first_batch(&find.join().unwrap()).is_empty());
    });
    assert!(locks().is_empty());
}

#[test]
fn diagnostic_data_are_of_what_there_is() {
    let data_of = |bench: &Bench| {
        let reply = succeeded(bench.admin(doc! { "getDiagnosticData": "1" }));
        reply.get_document("data").unwrap().clone()
    };
    let parts = |data: &Document| -> Vec<String> {
        let parts = data.iter().filter(|(_, part)| part.as_document().is_some());
        parts.map(|(name, _)| name.clone()).collect()
    };
    let part = |data: &Document, name: &str| {
        let part = data.get_document(name).unwrap().clone();
        let times = [part.get_datetime("start"), part.get_datetime("end")].map(|time| *time.unwrap());
        assert!(times[0] <= times[1], "{part}");
        part
    };
    let alone = data_of(&Bench::new());
    assert_eq!(parts(&alone), ["serverStatus", "systemMetrics"]);
    assert_eq!(part(&alone, "serverStatus").get_str("process").ok(), Some("mongod"));
    // A member that nobody has configured has nothing to tell of a set.
    let member = Bench::member(false);
    assert_eq!(parts(&data_of(&member)), ["serverStatus", "systemMetrics"]);
    succeeded(member.admin(doc! { "replSetInitiate": 1 }));
    member.insert("c", &[doc! { "_id": 1 }]);
    let data = data_of(&member);
    assert_eq!(
        parts(&data),
        [
            "serverStatus",
            "replSetGetStatus",
            "local.oplog.rs.stats",
            "systemMetrics"
        ]
    );
    assert_eq!(part(&data, "replSetGetStatus").get_str("set").ok(), Some("rs"));
    let oplog = part(&data, "local.oplog.rs.stats");
    assert_eq!(oplog.get_str("ns").ok(), Some("local.oplog.rs"));
    assert_eq!(oplog.get_bool("capped").ok(), Some(true));
    // What is preallocated is no data.
    let (data, files) = (oplog.get_i32("size").unwrap(), oplog.get_i32("storageSize").unwrap());
    assert!(0 < data && data < files, "{oplog}");
    let compacted = succeeded(member.run_on("local", doc! { "compact": "oplog.rs" }));
    assert_eq!(compacted, doc! { "bytesFreed": 0 });
    assert_eq!(code(&member.run(doc! { "getDiagnosticData": 1 })), 13, "only on admin");
}

/// The figures of a member that was taken out of its set are those that somebody needs.
#[test]
fn a_part_of_diagnostic_data_that_fails_leaves_the_others() {
    let member = Bench::member(true);
    let set = member.server.replica_set().expect("it is a member");
    set.change(|own| own.id = 77);
    let data = succeeded(member.admin(doc! { "getDiagnosticData": 1 }));
    let data = data.get_document("data").unwrap();
    assert!(data.contains_key("serverStatus"));
    let status = data.get_document("replSetGetStatus").unwrap();
    assert_eq!(
        (status.get_i32("code").ok(), status.get_f64("ok").ok()),
        (Some(93), Some(0.0))
    );
}
