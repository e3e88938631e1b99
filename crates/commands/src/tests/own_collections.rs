//! Collections that the server keeps for itself.

use super::{Bench, code, first_batch, succeeded};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocumentBuf, doc};
use storage::Namespace;

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
    // That made a collection which was read in place of the log.
    let index = doc! { "key": { "op": 1 }, "name": "op_1" };
    assert_eq!(write(doc! { "createIndexes": log, "indexes": [index] }), 67);
    let read = set.run_on("local", doc! { "find": log, "filter": { "ns": "test.c" } });
    assert_eq!(first_batch(&succeeded(read)).len(), 1);
}

/// It was said to be a view.
#[test]
fn reads_of_the_log_are_explained() {
    let set = Bench::member(true);
    set.insert("c", &[doc! { "_id": 1 }]);
    let explained = |find: Document, verbosity: &str| {
        succeeded(set.run_on("local", doc! { "explain": find, "verbosity": verbosity }))
    };
    let find = doc! { "find": "oplog.rs", "filter": { "ns": "test.c" } };
    let told = explained(find.clone(), "executionStats");
    let winning = told
        .get_document("queryPlanner")
        .unwrap()
        .get_document("winningPlan")
        .unwrap();
    assert_eq!(winning.get_str("stage").ok(), Some("COLLSCAN"));
    assert_eq!(winning.get_str("direction").ok(), Some("forward"));
    let stats = told.get_document("executionStats").unwrap();
    assert_eq!(stats.get_i32("nReturned").ok(), Some(1));
    let mut backward = find;
    backward.insert("sort", doc! { "$natural": -1 });
    let told = explained(backward, "queryPlanner");
    let winning = told
        .get_document("queryPlanner")
        .unwrap()
        .get_document("winningPlan")
        .unwrap();
    assert_eq!(winning.get_str("direction").ok(), Some("backward"));
}

/// A collection that a server has had before it was a member hides the log, and goes.
#[test]
fn what_is_in_the_place_of_the_log_can_be_dropped() {
    let bench = Bench::member(false);
    let storage = &bench.server.storage;
    let log = Namespace::new("local", "oplog.rs").unwrap();
    storage
        .create_collection(&bench.server.new_operation(), &log, &RawDocumentBuf::new())
        .unwrap();
    succeeded(bench.admin(doc! { "replSetInitiate": 1 }));
    let read = || first_batch(&succeeded(bench.run_on("local", doc! { "find": "oplog.rs" })));
    assert_eq!(read(), []);
    succeeded(bench.run_on("local", doc! { "drop": "oplog.rs" }));
    assert!(!read().is_empty());
    assert_eq!(code(&bench.run_on("local", doc! { "drop": "oplog.rs" })), 5_255_000);
}

/// The log takes the document to all members: one write that no member can start with ended the whole set.
#[test]
fn a_members_configuration_is_changed_by_its_commands_alone() {
    let set = Bench::member(true);
    let name = "system.replset";
    let update = doc! { "q": {}, "u": { "$set": { "members": [] } } };
    set.insert("c", &[doc! { "_id": 1 }]);
    let into = doc! { "$merge": { "into": { "db": "local", "coll": name } } };
    let index = doc! { "key": { "a": 1 }, "name": "a_1" };
    let read = || first_batch(&succeeded(set.run_on("local", doc! { "find": name })));
    let before = read();
    for command in [
        doc! { "insert": name, "documents": [{}] },
        doc! { "update": name, "updates": [update.clone()] },
        doc! { "delete": name, "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": name, "remove": true },
        doc! { "collMod": name, "validator": { "a": 1 } },
        doc! { "createIndexes": name, "indexes": [index] },
    ] {
        assert_eq!(code(&set.run_on("local", command.clone())), 73, "{command}");
    }
    assert_ne!(set.aggregate_code("c", &[into]), 0);
    assert_eq!(read(), before);
    // Who is no member mends it.
    let alone = Bench::new();
    succeeded(alone.run_on("local", doc! { "insert": name, "documents": [{ "_id": "rs" }] }));
    succeeded(alone.run_on("local", doc! { "update": name, "updates": [update] }));
}

/// Programs that follow the log tell by it that this is no transaction.
#[test]
fn several_statements_that_can_be_sent_again_are_marked_in_the_log() {
    let set = Bench::member(true);
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![7; 16],
    };
    let insert = |number: i64, documents: &[Document]| {
        let lsid = doc! { "id": id.clone() };
        set.ok(doc! { "insert": "c", "documents": documents.to_vec(), "lsid": lsid, "txnNumber": number });
        let find = doc! { "find": "oplog.rs", "sort": { "$natural": -1 }, "limit": 1 };
        first_batch(&succeeded(set.run_on("local", find))).remove(0)
    };
    insert(1, &[doc! { "_id": 1 }]);
    let several = insert(2, &[doc! { "_id": 2 }, doc! { "_id": 3 }]);
    assert_eq!(several.get_i32("multiOpType").ok(), Some(1), "{several}");
    let one = insert(3, &[doc! { "_id": 4 }]);
    assert!(!one.contains_key("multiOpType"), "{one}");
}

#[test]
fn who_asks_for_one_collection_is_told_what_the_whole_list_has_of_it() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "c" });
    bench.ok(doc! { "create": "d", "capped": true, "size": 4096 });
    bench.ok(doc! { "create": "v", "viewOn": "c" });
    bench.ok(doc! { "create": "t", "timeseries": { "timeField": "t" } });
    let list = |filter: Document| first_batch(&bench.ok(doc! { "listCollections": 1, "filter": filter }));
    let all = list(doc! {});
    assert!(all.len() >= 5, "{all:?}");
    for entry in &all {
        let name = entry.get_str("name").unwrap();
        assert_eq!(list(doc! { "name": name }), std::slice::from_ref(entry));
        let kind = entry.get_str("type").unwrap();
        assert_eq!(
            list(doc! { "type": kind, "$and": [{ "name": { "$eq": name } }] }),
            std::slice::from_ref(entry)
        );
        assert_eq!(list(doc! { "name": name, "type": "nonesuch" }), [] as [Document; 0]);
        assert_eq!(
            list(doc! { "name": { "$in": [name, "nonesuch"] } }),
            std::slice::from_ref(entry)
        );
        assert_eq!(list(doc! { "$or": [{ "name": name }] }), std::slice::from_ref(entry));
    }
    for none in ["nonesuch", "", "$", "a\0b", "system.", ".c"] {
        assert_eq!(list(doc! { "name": none }), [] as [Document; 0], "{none:?}");
    }
    assert_eq!(list(doc! { "$nor": [{ "name": "c" }] }).len(), all.len() - 1);
}
