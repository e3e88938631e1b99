//! Collections that the server keeps for itself.

use super::{Bench, code, first_batch, succeeded};
use bson::doc;

fn rename(bench: &Bench, from: &str, to: &str) -> i32 {
    code(&bench.admin(doc! { "renameCollection": from, "to": to, "dropTarget": true }))
}

/// A rename took the feature compatibility version's document away.
#[test]
fn the_servers_collections_keep_their_names() {
    for bench in [Bench::new(), Bench::member(true)] {
        bench.server.keep_version().expect("kept");
        bench.insert("c", &[doc! { "_id": 1 }]);
        for name in [
            "admin.system.version",
            "admin.system.users",
            "test.system.js",
            "test.system.views",
            "test.system.profile",
        ] {
            assert_eq!(rename(&bench, name, "test.other"), 20, "{name}");
            assert_eq!(rename(&bench, "test.c", name), 20, "{name}");
        }
        let versions = first_batch(&succeeded(bench.admin(doc! { "find": "system.version" })));
        assert!(!versions.is_empty());
        assert_eq!(bench.find("c", doc! {}), [doc! { "_id": 1 }]);
    }
}

#[test]
fn renames_stay_on_one_side_of_replication() {
    let set = Bench::member(true);
    set.insert("c", &[doc! { "_id": 1 }]);
    succeeded(set.run_on("local", doc! { "insert": "mine", "documents": [{ "_id": 1 }] }));
    assert_eq!(rename(&set, "test.c", "local.c"), 20);
    assert_eq!(rename(&set, "local.mine", "test.mine"), 20);
    succeeded(set.admin(doc! { "renameCollection": "local.mine", "to": "local.own" }));
    let alone = Bench::new();
    alone.insert("c", &[doc! { "_id": 1 }]);
    succeeded(alone.admin(doc! { "renameCollection": "test.c", "to": "local.c" }));
}

/// Deletions and updates of the log answered that there was nothing to do, and dropping it that it was done.
#[test]
fn the_log_is_not_written_to() {
    let set = Bench::member(true);
    set.insert("c", &[doc! { "_id": 1 }]);
    let write = |command| code(&set.run_on("local", command));
    let log = "oplog.rs";
    assert_eq!(write(doc! { "drop": log }), 5_255_000);
    assert_eq!(write(doc! { "insert": log, "documents": [{}] }), 73);
    assert_eq!(write(doc! { "delete": log, "deletes": [{ "q": {}, "limit": 0 }] }), 73);
    let updates = [doc! { "q": {}, "u": { "$set": { "a": 1 } }, "multi": true }];
    assert_eq!(write(doc! { "update": log, "updates": updates }), 73);
    assert_eq!(write(doc! { "findAndModify": log, "remove": true }), 73);
    assert_eq!(rename(&set, "local.oplog.rs", "local.log"), 20);
    assert_eq!(rename(&set, "test.c", "local.oplog.rs"), 20);
}
