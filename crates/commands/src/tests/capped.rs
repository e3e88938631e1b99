//! Collections made over: `convertToCapped`, `cloneCollectionAsCapped`, `reIndex`; and what is told of files and
//! versions.

use super::*;
use bson::Binary;
use bson::spec::BinarySubtype;

fn filled(bench: &Bench) {
    let documents: Vec<_> = (0..100)
        .map(|id| doc! { "_id": 99 - id, "x": "x".repeat(80) })
        .collect();
    bench.insert("c", &documents);
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "x": 1 }, "name": "x_1" }] });
}

fn natural(bench: &Bench, collection: &str) -> Vec<i32> {
    let found = first_batch(&bench.ok(doc! { "find": collection }));
    found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

#[test]
fn the_newest_documents_stay_in_a_capped_collection() {
    for bench in [Bench::new(), Bench::member(true)] {
        filled(&bench);
        bench.ok(doc! { "convertToCapped": "c", "size": 1024 });
        let left = natural(&bench, "c");
        // 10 documents of 102 bytes.
        assert_eq!(left, (0..10).rev().collect::<Vec<_>>());
        let stats = bench.ok(doc! { "collStats": "c" });
        assert_eq!(
            (stats.get_bool("capped").unwrap(), stats.get_i32("maxSize").unwrap()),
            (true, 1024)
        );
        assert_eq!(stats.get_i32("nindexes").unwrap(), 1);
        bench.insert("c", &[doc! { "_id": 100, "x": "x".repeat(80) }]);
        assert_eq!(natural(&bench, "c").len(), 10);
        bench.ok(doc! { "cloneCollectionAsCapped": "c", "toCollection": "d", "size": 300 });
        assert_eq!(natural(&bench, "d"), [0, 100]);
        let again = doc! { "cloneCollectionAsCapped": "c", "toCollection": "d", "size": 300 };
        assert_eq!(bench.code(again), 48);
        bench.ok(doc! { "create": "v", "viewOn": "c", "pipeline": [] });
        for (command, wanted) in [
            (doc! { "convertToCapped": "none", "size": 1024 }, 26),
            (doc! { "convertToCapped": "v", "size": 1024 }, 166),
            (doc! { "convertToCapped": "c" }, 40414),
            (doc! { "convertToCapped": "c", "size": 0 }, 72),
            (doc! { "convertToCapped": "c", "size": 1, "junk": 1 }, 40415),
            (doc! { "convertToCapped": "system.js", "size": 1024 }, 20),
            (
                doc! { "cloneCollectionAsCapped": "none", "toCollection": "e", "size": 1024 },
                26,
            ),
            (doc! { "cloneCollectionAsCapped": "c", "size": 1024 }, 40414),
        ] {
            assert_eq!(bench.code(command.clone()), wanted, "{command}");
        }
        let names = first_batch(&bench.ok(doc! { "listCollections": 1, "nameOnly": true }));
        let names: Vec<_> = names.iter().map(|entry| entry.get_str("name").unwrap()).collect();
        assert_eq!(names, ["c", "d", "v"]);
    }
}

/// To who follows the log it is what `$out` is: another collection takes the name.
#[test]
fn the_log_tells_of_a_conversion_as_a_renaming() {
    let bench = Bench::member(true);
    filled(&bench);
    bench.ok(doc! { "convertToCapped": "c", "size": 300 });
    let find = doc! { "find": "oplog.rs", "filter": { "op": "c" }, "sort": { "$natural": -1 }, "limit": 1 };
    let last = first_batch(&succeeded(bench.run_on("local", find)));
    let o = last[0].get_document("o").unwrap();
    assert_eq!(o.get_str("to").unwrap(), "test.c");
    assert!(o.contains_key("renameCollection") && o.contains_key("dropTarget"));
}

#[test]
fn indexes_are_made_anew_on_a_server_that_is_no_member() {
    let bench = Bench::new();
    filled(&bench);
    let done = bench.ok(doc! { "reIndex": "c" });
    assert_eq!(
        (done.get_i32("nIndexesWas").unwrap(), done.get_i32("nIndexes").unwrap()),
        (2, 2)
    );
    let names: Vec<_> = done.get_array("indexes").unwrap().iter().collect();
    assert_eq!(names[1].as_document().unwrap().get_str("name").unwrap(), "x_1");
    assert!(
        bench
            .ok(doc! { "validate": "c", "full": true })
            .get_bool("valid")
            .unwrap()
    );
    let found = bench.ok(doc! { "explain": { "find": "c", "filter": { "x": "x".repeat(80) } } });
    assert!(found.to_string().contains("x_1"));
    assert_eq!(bench.code(doc! { "reIndex": "none" }), 26);
    let member = Bench::member(true);
    filled(&member);
    assert_eq!(member.code(doc! { "reIndex": "c" }), 20);
}

#[test]
fn a_file_of_grid_fs_has_a_digest() {
    let bench = Bench::new();
    let data = |text: &str| Binary {
        subtype: BinarySubtype::Generic,
        bytes: text.as_bytes().to_vec(),
    };
    let empty = bench.ok(doc! { "filemd5": 1 });
    assert_eq!(
        empty,
        doc! { "numChunks": 0, "md5": "d41d8cd98f00b204e9800998ecf8427e" }
    );
    bench.insert(
        "fs.chunks",
        &[
            doc! { "files_id": 1, "n": 1, "data": data("bar") },
            doc! { "files_id": 1, "n": 0, "data": data("foo") },
            doc! { "files_id": 2, "n": 1, "data": data("foo") },
        ],
    );
    assert_eq!(bench.code(doc! { "filemd5": 1 }), 2);
    let key = doc! { "files_id": 1, "n": 1 };
    bench.ok(doc! { "createIndexes": "fs.chunks", "indexes": [{ "key": key, "name": "chunks", "unique": true }] });
    let whole = bench.ok(doc! { "filemd5": 1, "root": "fs" });
    assert_eq!(
        whole,
        doc! { "numChunks": 2, "md5": "3858f62230ac3c915f300c664312c63f" }
    );
    assert_eq!(bench.code(doc! { "filemd5": 2 }), 10040);
    assert_eq!(bench.code(doc! { "filemd5": 1, "partialOk": true }), 238);
}

#[test]
fn the_version_of_features_is_the_one_announced() {
    let bench = Bench::new();
    let set = |version: &str, confirm: bool| {
        let command = doc! { "setFeatureCompatibilityVersion": version, "confirm": confirm };
        bench.admin(command)
    };
    succeeded(set("8.0", true));
    assert_eq!(code(&set("8.0", false)), 7_369_100);
    assert_eq!(code(&set("7.0", false)), 7_369_100);
    assert_eq!(code(&set("7.0", true)), 238);
    assert_eq!(code(&set("9.9", true)), 4_926_900);
    let kept = doc! { "find": "system.version", "filter": { "_id": "featureCompatibilityVersion" } };
    let kept = first_batch(&succeeded(bench.admin(kept)));
    assert_eq!(kept[0].get_str("version").unwrap(), "8.0");
}

#[test]
fn a_member_never_rolls_back_and_never_catches_up() {
    let member = Bench::member(true);
    let id = succeeded(member.admin(doc! { "replSetGetRBID": 1 }))
        .get_i32("rbid")
        .unwrap();
    let status = succeeded(member.admin(doc! { "serverStatus": 1 }));
    assert_eq!(status.get_document("repl").unwrap().get_i32("rbid").unwrap(), id);
    assert_eq!(code(&member.admin(doc! { "replSetAbortPrimaryCatchUp": 1 })), 20);
    let alone = Bench::new();
    assert_eq!(code(&alone.admin(doc! { "replSetGetRBID": 1 })), 76);
    assert_eq!(code(&alone.admin(doc! { "replSetAbortPrimaryCatchUp": 1 })), 76);
}

/// Nothing will ever come to it: the cursor is not kept, not even when nothing is asked of it yet.
#[test]
fn a_tail_of_nothing_is_over() {
    let bench = Bench::new();
    bench.ok(doc! { "create": "c", "capped": true, "size": 4096 });
    let opened = |name: &str, batch: i32| {
        let find = doc! { "find": name, "tailable": true, "awaitData": true, "batchSize": batch };
        bench.ok(find).get_document("cursor").unwrap().get_i64("id").unwrap() != 0
    };
    for batch in [0, 1] {
        assert!(!opened("none", batch) && !opened("c", batch), "{batch}");
    }
    bench.insert("c", &[doc! { "_id": 1 }]);
    assert!(opened("c", 0) && opened("c", 1));
}

#[test]
fn a_cursor_that_was_overtaken_says_so() {
    for bench in [Bench::new(), Bench::member(true)] {
        bench.ok(doc! { "create": "c", "capped": true, "size": 1 << 20, "max": 10 });
        let documents = |ids: std::ops::Range<i32>| ids.map(|id| doc! { "_id": id }).collect::<Vec<_>>();
        bench.insert("c", &documents(0..10));
        let reply = bench.ok(doc! { "find": "c", "batchSize": 2 });
        let cursor = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        bench.insert("c", &documents(10..15));
        assert_eq!(bench.code(doc! { "getMore": cursor, "collection": "c" }), 136);
        // What a deletion has passed goes by its own hand.
        bench.ok(doc! { "create": "d", "capped": true, "size": 1 << 24 });
        bench.insert("d", &documents(0..3000));
        let reply = bench.ok(doc! { "delete": "d", "deletes": [{ "q": {}, "limit": 0 }] });
        assert_eq!(reply.get_i32("n").unwrap(), 3000);
    }
}

#[test]
fn bounds_with_strings_need_the_indexs_collation() {
    let bench = Bench::new();
    let collation = doc! { "locale": "en", "strength": 2 };
    bench.insert("c", &[doc! { "a": "B" }, doc! { "a": "c" }, doc! { "a": 5 }]);
    let index = doc! { "key": { "a": 1 }, "name": "a_1", "collation": &collation };
    bench.ok(doc! { "createIndexes": "c", "indexes": [index] });
    let find = |min: Bson, max: Bson| doc! { "find": "c", "hint": "a_1", "min": { "a": min }, "max": { "a": max } };
    assert_eq!(bench.code(find("a".into(), "z".into())), 51174);
    let min_and_max = doc! { "find": "c", "hint": "a_1", "min": { "a": 1, "b": 1 }, "max": { "a": 1 } };
    assert_eq!(bench.code(min_and_max), 51176);
    assert_eq!(first_batch(&bench.ok(find(1.into(), 9.into()))).len(), 1);
    let mut alike = find("a".into(), "z".into());
    alike.insert("collation", collation);
    assert_eq!(first_batch(&bench.ok(alike)).len(), 2);
}
