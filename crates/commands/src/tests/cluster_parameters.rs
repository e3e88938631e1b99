//! Parameters that all members go by.

use super::{Bench, code, first_batch, succeeded};
use bson::{Bson, Document, Timestamp, doc};

fn shown(bench: &Bench, wanted: impl Into<Bson>) -> Vec<Document> {
    let reply = succeeded(bench.admin(doc! { "getClusterParameter": wanted.into() }));
    let parameters = reply.get_array("clusterParameters").unwrap();
    parameters
        .iter()
        .map(|each| each.as_document().unwrap().clone())
        .collect()
}

fn set(bench: &Bench, name: &str, value: impl Into<Bson>) -> Document {
    bench.admin(doc! { "setClusterParameter": { name: value.into() } })
}

#[test]
fn they_are_kept_where_tools_look() {
    let bench = Bench::member(true);
    let never = Timestamp { time: 0, increment: 0 };
    assert_eq!(
        shown(&bench, "*"),
        [
            doc! {
                "_id": "changeStreamOptions",
                "clusterParameterTime": never,
                "preAndPostImages": { "expireAfterSeconds": "off" },
            },
            doc! { "_id": "defaultMaxTimeMS", "clusterParameterTime": never, "readOperations": 0_i64 },
        ]
    );
    let now = bench.server.storage.applied().time.to_timestamp();
    succeeded(set(&bench, "defaultMaxTimeMS", doc! { "readOperations": 5000 }));
    let kept = doc! { "_id": "defaultMaxTimeMS", "clusterParameterTime": now, "readOperations": 5000_i64 };
    assert_eq!(shown(&bench, "defaultMaxTimeMS"), std::slice::from_ref(&kept));
    assert_eq!(
        shown(&bench, vec!["defaultMaxTimeMS", "changeStreamOptions"])[0],
        kept.clone()
    );
    let stored = bench.run_on("config", doc! { "find": "clusterParameters" });
    assert_eq!(first_batch(&succeeded(stored)), [kept]);
    assert_eq!(bench.server.cluster_parameters.read_ms_max(), 5000);
    // Whoever writes them otherwise, a restore for one, is heard, too.
    let change = doc! { "q": {}, "u": { "$set": { "readOperations": 7_i64 } } };
    succeeded(bench.run_on("config", doc! { "update": "clusterParameters", "updates": [change] }));
    assert_eq!(bench.server.cluster_parameters.read_ms_max(), 7);
    succeeded(bench.run_on("config", doc! { "drop": "clusterParameters" }));
    assert_eq!(bench.server.cluster_parameters.read_ms_max(), 0);
    assert_eq!(
        shown(&bench, "defaultMaxTimeMS")[0].get_i64("readOperations").ok(),
        Some(0)
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let bench = Bench::new();
    for (refused, expected) in [
        (Bson::from("nonesuch"), 4),
        (vec!["defaultMaxTimeMS", "nonesuch"].into(), 4),
        (Vec::<String>::new().into(), 2),
        (vec![1].into(), 14),
        (5.into(), 14),
    ] {
        let reply = bench.admin(doc! { "getClusterParameter": refused.clone() });
        assert_eq!(code(&reply), expected, "{refused}");
    }
    for (refused, expected) in [
        (doc! {}, 4),
        (doc! { "nonesuch": {} }, 4),
        (doc! { "defaultMaxTimeMS": 5 }, 2),
        (doc! { "defaultMaxTimeMS": {}, "changeStreamOptions": {} }, 72),
        (doc! { "defaultMaxTimeMS": { "readOperations": -1 } }, 2),
        (doc! { "defaultMaxTimeMS": { "readOperations": 1_i64 << 31 } }, 2),
        (doc! { "defaultMaxTimeMS": { "readOperations": "5" } }, 14),
        (doc! { "defaultMaxTimeMS": { "nonesuch": 5 } }, 40415),
        (doc! { "changeStreamOptions": {} }, 2),
        (doc! { "changeStreamOptions": { "preAndPostImages": {} } }, 2),
        (doc! { "changeStreamOptions": { "preAndPostImages": 42 } }, 2),
        (doc! { "changeStreamOptions": { "$bad": 1 } }, 52),
        (
            doc! { "changeStreamOptions": { "preAndPostImages": { "expireAfterSeconds": 7200 }, "more": "x" } },
            2,
        ),
        (
            doc! { "changeStreamOptions": { "preAndPostImages": { "expireAfterSeconds": "on" } } },
            2,
        ),
        (
            doc! { "changeStreamOptions": { "preAndPostImages": { "expireAfterSeconds": 0 } } },
            2,
        ),
        (
            doc! { "changeStreamOptions": { "preAndPostImages": { "expireAfterSeconds": true } } },
            2,
        ),
    ] {
        let reply = bench.admin(doc! { "setClusterParameter": refused.clone() });
        assert_eq!(code(&reply), expected, "{refused}");
    }
    let valid = doc! { "defaultMaxTimeMS": { "readOperations": 5 } };
    let concern = doc! { "setClusterParameter": valid, "writeConcern": { "w": 1 } };
    assert_eq!(code(&bench.admin(concern)), 72);
    assert_eq!(
        code(&bench.run(doc! { "setClusterParameter": { "defaultMaxTimeMS": {} } })),
        13
    );
    assert!(
        shown(&bench, "*")
            .iter()
            .all(|each| each.get_timestamp("clusterParameterTime").unwrap().time == 0)
    );
}

/// The time left to a read's cursor is that of the read.
#[test]
fn reads_have_the_time_that_all_have() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    succeeded(set(&bench, "defaultMaxTimeMS", doc! { "readOperations": 5000 }));
    let time_of = |mut command: Document| {
        command.insert("cursor", doc! { "batchSize": 1 });
        if command.contains_key("find") {
            command.remove("cursor");
            command.insert("batchSize", 1);
        }
        let reply = bench.ok(command);
        let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        let time = bench.server.cursors.time_of(id).unwrap();
        bench.ok(doc! { "killCursors": "c", "cursors": [id] });
        time
    };
    assert_eq!(time_of(doc! { "find": "c" }), 5000);
    assert_eq!(time_of(doc! { "find": "c", "maxTimeMS": 0 }), 0, "0 asks for no limit");
    assert_eq!(time_of(doc! { "find": "c", "maxTimeMS": 9000 }), 9000);
    assert_eq!(time_of(doc! { "aggregate": "c", "pipeline": [] }), 5000);
}

/// Those who may go beyond it do.
#[test]
fn the_limit_can_be_passed_by_with_a_right() {
    let bench = Bench::guarded();
    let role = doc! {
        "createRole": "patient",
        "privileges": [{ "resource": { "cluster": true }, "actions": ["bypassDefaultMaxTimeMS"] }],
        "roles": [{ "role": "readWriteAnyDatabase", "db": "admin" }],
    };
    succeeded(bench.admin(role));
    let limit = doc! { "setClusterParameter": { "defaultMaxTimeMS": { "readOperations": 5000 } } };
    succeeded(bench.admin(limit.clone()));
    let patient = bench.user("patient", &[doc! { "role": "patient", "db": "admin" }.into()]);
    let other = bench.user(
        "other",
        &[doc! { "role": "readWriteAnyDatabase", "db": "admin" }.into()],
    );
    assert_eq!(code(&bench.run_as(&other, "admin", limit)), 13);
    assert_eq!(
        code(&bench.run_as(&other, "admin", doc! { "getClusterParameter": "*" })),
        13
    );
    let insert = doc! { "insert": "c", "documents": [{}, {}] };
    succeeded(bench.run_as(&other, "test", insert));
    for (client, expected) in [(&patient, 0), (&other, 5000)] {
        let reply = succeeded(bench.run_as(client, "test", doc! { "find": "c", "batchSize": 1 }));
        let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        assert_eq!(bench.server.cursors.time_of(id), Some(expected));
    }
}
