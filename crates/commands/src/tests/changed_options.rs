//! `collMod` of collections and views.

use super::{Bench, code, first_batch, succeeded};
use bson::{Bson, Document, doc};

#[test]
fn a_view_is_changed_in_part() {
    let bench = Bench::new();
    succeeded(bench.run(doc! { "create": "v", "viewOn": "a", "pipeline": [{ "$match": { "x": 1 } }] }));
    succeeded(bench.run(doc! { "collMod": "v", "viewOn": "b" }));
    succeeded(bench.run(doc! { "collMod": "v", "pipeline": [] }));
    let views = first_batch(&succeeded(
        bench.run(doc! { "listCollections": 1, "filter": { "name": "v" } }),
    ));
    assert_eq!(
        views[0].get_document("options").unwrap(),
        &doc! { "viewOn": "b", "pipeline": [] }
    );
    succeeded(bench.run(doc! { "create": "c" }));
    assert_eq!(bench.code(doc! { "collMod": "c", "viewOn": "b" }), 72);
}

fn refused(bench: &Bench, command: Document, text: &str) {
    let reply = bench.run(command.clone());
    assert_eq!(code(&reply), 72, "{command}");
    assert!(reply.get_str("errmsg").unwrap().contains(text), "{reply}");
}

/// Beside `viewOn` they were taken, and nothing became of them.
#[test]
fn views_have_no_options_of_collections() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "c" });
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    let options = [
        doc! { "validator": { "a": 1 } },
        doc! { "validationLevel": "off" },
        doc! { "validationAction": "warn" },
        doc! { "changeStreamPreAndPostImages": { "enabled": true } },
        doc! { "cappedSize": 4096 },
        doc! { "cappedMax": 1 },
        doc! { "index": { "name": "a_1", "hidden": true } },
    ];
    for option in options {
        let name = option.keys().next().unwrap();
        let text = format!("option not supported on a view: {name}");
        for mut command in [
            doc! { "collMod": "v" },
            doc! { "collMod": "v", "viewOn": "c", "pipeline": [] },
        ] {
            command.extend(option.clone());
            refused(&bench, command, &text);
        }
    }
    for name in ["c", "v"] {
        let command = doc! { "collMod": name, "timeseries": { "granularity": "hours" } };
        refused(
            &bench,
            command,
            "option only supported on a time-series collection: timeseries",
        );
    }
    let images = doc! { "enabled": true };
    let create = doc! { "create": "w", "viewOn": "c", "pipeline": [], "changeStreamPreAndPostImages": images };
    refused(&bench, create, "changeStreamPreAndPostImages");
}

#[test]
fn bounds_of_capped_collections_hold_for_changes() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "c", "capped": true, "size": 4096 });
    bench.ok(doc! { "collMod": "c", "cappedSize": 1_i64 << 50, "cappedMax": (1_i64 << 31) - 1 });
    assert_eq!(bench.code(doc! { "collMod": "c", "cappedSize": (1_i64 << 50) + 1 }), 2);
    assert_eq!(bench.code(doc! { "collMod": "c", "cappedSize": 0 }), 2);
    assert_eq!(bench.code(doc! { "collMod": "c", "cappedMax": 1_i64 << 31 }), 2);
    let bounds = || {
        let stats = bench.ok(doc! { "collStats": "c" });
        (stats.get_i32("maxSize").unwrap(), stats.get_i32("max").unwrap())
    };
    bench.ok(doc! { "collMod": "c", "cappedSize": 51150, "cappedMax": -2 });
    assert_eq!(bounds(), (51150, i32::MAX));
    bench.ok(doc! { "drop": "c" });
    bench.ok(doc! { "create": "c", "capped": true, "size": 1000, "max": 0 });
    assert_eq!(bounds(), (1000, i32::MAX));
}

#[test]
fn without_pre_images_there_is_no_option() {
    let bench = Bench::new();
    let images = |enabled: bool| doc! { "enabled": enabled };
    let options = || {
        let listed = first_batch(&bench.ok(doc! { "listCollections": 1 }));
        listed[0].get_document("options").unwrap().clone()
    };
    bench.ok(doc! { "create": "c", "changeStreamPreAndPostImages": images(false) });
    assert_eq!(options(), doc! {});
    bench.ok(doc! { "collMod": "c", "changeStreamPreAndPostImages": images(true) });
    assert_eq!(options(), doc! { "changeStreamPreAndPostImages": images(true) });
    bench.ok(doc! { "collMod": "c", "changeStreamPreAndPostImages": images(false) });
    assert_eq!(options(), doc! {});
    // No change stream follows the server's own databases.
    for database in ["admin", "config", "local"] {
        let with = |command: &str, enabled: bool| {
            bench.run_on(
                database,
                doc! { command: "c", "changeStreamPreAndPostImages": images(enabled) },
            )
        };
        assert_eq!(code(&with("create", true)), 72, "{database}");
        succeeded(with("create", false));
        assert_eq!(code(&with("collMod", true)), 72, "{database}");
    }
}

#[test]
fn indexes_of_system_collections_stay_visible() {
    let bench = Bench::new();
    let index = |hidden: bool| doc! { "key": { "a": 1 }, "name": "a_1", "hidden": hidden };
    assert_eq!(
        bench.code(doc! { "createIndexes": "system.js", "indexes": [index(true)] }),
        2
    );
    bench.ok(doc! { "createIndexes": "system.js", "indexes": [index(false)] });
    let hide = doc! { "collMod": "system.js", "index": { "name": "a_1", "hidden": true } };
    assert_eq!(bench.code(hide), 2);
}

#[test]
fn an_index_is_named_in_one_way() {
    let bench = Bench::new();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] });
    let index = doc! { "name": "a_1", "keyPattern": { "a": 1 }, "hidden": true };
    refused(
        &bench,
        doc! { "collMod": "c", "index": index },
        "both key pattern and name",
    );
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    assert_eq!(bench.code(doc! { "dropIndexes": "v", "index": "*" }), 166);
    assert_eq!(bench.code(doc! { "dropIndexes": "none", "index": "*" }), 26);
}

#[test]
fn what_reads_no_collection_defines_no_view() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "c" });
    bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
    for (stage, code) in [
        (doc! { "$documents": [] }, 73),
        (doc! { "$currentOp": {} }, 73),
        (doc! { "$listLocalSessions": {} }, 73),
        (doc! { "$changeStream": {} }, 167),
    ] {
        let pipeline = vec![Bson::from(stage)];
        assert_eq!(bench.code(doc! { "collMod": "v", "pipeline": pipeline.clone() }), code);
        assert_eq!(
            bench.code(doc! { "create": "w", "viewOn": "c", "pipeline": pipeline }),
            code
        );
    }
    bench.ok(doc! { "collMod": "v", "pipeline": Bson::Null, "viewOn": Bson::Null });
    bench.ok(doc! { "collMod": "v", "pipeline": [Bson::Null, { "$match": { "a": 1 } }] });
    let views = first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": "v" } }));
    let options = views[0].get_document("options").unwrap();
    assert_eq!(options, &doc! { "viewOn": "c", "pipeline": [{ "$match": { "a": 1 } }] });
}

#[test]
fn hiding_an_index_begins_its_count_anew() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "a": 1 }]);
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }] });
    bench.ok(doc! { "find": "c", "filter": { "a": 1 }, "hint": "a_1" });
    let uses = || {
        let found = bench.aggregate("c", &[doc! { "$indexStats": {} }, doc! { "$match": { "name": "a_1" } }]);
        found[0].get_document("accesses").unwrap().get_i64("ops").unwrap()
    };
    assert_eq!(uses(), 1);
    bench.ok(doc! { "collMod": "c", "index": { "name": "a_1", "hidden": false } });
    assert_eq!(uses(), 1);
    bench.ok(doc! { "collMod": "c", "index": { "name": "a_1", "hidden": true } });
    assert_eq!(uses(), 0);
    let without = doc! { "name": "a_1", "expireAfterSeconds": -1 };
    assert_eq!(bench.code(doc! { "collMod": "c", "index": without }), 72);
    let without = doc! { "name": "a_1", "hidden": Bson::Null };
    assert_eq!(bench.code(doc! { "collMod": "c", "index": without }), 72);
}

#[test]
fn what_changes_nothing_of_an_index_is_not_logged() {
    let bench = Bench::new();
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a", "hidden": true }] });
    bench.ok(doc! { "create": "x", "timeseries": { "timeField": "t", "metaField": "m" } });
    let logged = || bench.server.storage.last_seq();
    let before = logged();
    for (collection, index) in [
        ("c", doc! { "name": "a", "hidden": true }),
        ("c", doc! { "name": "a", "prepareUnique": false }),
        ("x", doc! { "name": "m_1_t_1", "hidden": false }),
    ] {
        let reply = bench.ok(doc! { "collMod": collection, "index": index.clone() });
        assert_eq!(reply.keys().find(|name| name.contains("_old")), None, "{index}");
        assert_eq!(logged(), before, "{index}");
    }
    let reply = bench.ok(doc! { "collMod": "c", "index": { "name": "a", "hidden": false } });
    assert_eq!(
        (reply.get_bool("hidden_old").ok(), reply.get_bool("hidden_new").ok()),
        (Some(true), Some(false))
    );
    assert!(logged() > before);
    assert_eq!(
        bench.code(doc! { "collMod": "c", "timeseriesBucketsMayHaveMixedSchemaData": true }),
        72
    );
}
