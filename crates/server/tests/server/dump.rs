//! Dumps of a server come back as they were, in both formats: documents byte for byte, options, indexes, views.

#![allow(clippy::unwrap_used)]

use crate::process::Tenond;
use ::dump::{DumpOptions, Filter, Pattern, Rename, RestoreOptions};
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc};
use std::net::SocketAddr;
use std::path::Path;

fn every_type() -> Document {
    doc! {
        "_id": ObjectId::from_bytes([7; 12]),
        "double": -0.0, "nan": f64::NAN, "string": "é\0x", "document": { "b": 1, "a": {} }, "array": [1, [2.5], "x"],
        "binary": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3] },
        "old": Binary { subtype: BinarySubtype::BinaryOld, bytes: vec![1, 2, 3] },
        "user": Binary { subtype: BinarySubtype::UserDefined(0x81), bytes: vec![] },
        "undefined": Bson::Undefined, "boolean": true, "date": DateTime::from_millis(-1), "null": Bson::Null,
        "regex": Regex { pattern: bson::cstr!("^a/").to_owned(), options: bson::cstr!("im").to_owned() },
        "code": Bson::JavaScriptCode("f()".to_owned()), "symbol": Bson::Symbol("s".to_owned()),
        "scoped": JavaScriptCodeWithScope { code: "g()".to_owned(), scope: doc! { "n": 1 } },
        "int": i32::MIN, "stamp": Timestamp { time: u32::MAX, increment: 7 }, "long": i64::MAX,
        "decimal": "1.20E+10".parse::<Decimal128>().unwrap(), "min": Bson::MinKey, "max": Bson::MaxKey,
    }
}

fn fill(server: &Tenond) {
    let mut connection = server.connect();
    let many: Vec<Document> = (0..2500)
        .map(|i| doc! { "_id": i, "k": i % 7, "text": format!("text {i}") })
        .collect();
    for batch in many.chunks(1000) {
        connection.ok(doc! { "insert": "many", "documents": batch.to_vec(), "$db": "shop" });
    }
    connection.ok(doc! { "insert": "a/b.c é", "documents": [every_type(), { "_id": 1 }], "$db": "shop" });
    connection.ok(doc! { "create": "empty", "$db": "shop" });
    connection.ok(doc! { "create": "ring", "capped": true, "size": 65536, "max": 100, "$db": "other" });
    connection.ok(doc! { "insert": "ring", "documents": [{ "_id": 3 }, { "_id": 1 }, { "_id": 2 }], "$db": "other" });
    connection.ok(doc! { "create": "view", "viewOn": "many", "pipeline": [{ "$match": { "k": 3 } }], "$db": "shop" });
    connection.ok(doc! {
        "createIndexes": "many",
        "indexes": [
            { "key": { "text": -1, "k": 1 }, "name": "compound", "unique": true },
            { "key": { "k": 1 }, "name": "partial", "partialFilterExpression": { "k": { "$gt": 3 } } },
            { "key": { "a": 1 }, "name": "sparse", "sparse": true },
            { "key": { "at": 1 }, "name": "ttl", "expireAfterSeconds": 3600, "hidden": true },
        ],
        "$db": "shop",
    });
}

/// All that a client can see of the two databases, in bytes.
fn contents(server: &Tenond) -> Vec<String> {
    let mut connection = server.connect();
    let mut contents = Vec::new();
    for database in ["other", "shop"] {
        let listed = connection.ok(doc! { "listCollections": 1, "$db": database });
        let mut entries: Vec<Document> = batch(&listed);
        entries.sort_by_key(|entry| entry.get_str("name").unwrap().to_owned());
        for entry in entries {
            let name = entry.get_str("name").unwrap();
            if name.starts_with("system.") {
                continue;
            }
            contents.push(format!(
                "{database}.{name} {} {:?}",
                entry.get_str("type").unwrap(),
                entry.get("options")
            ));
            let found = connection.ok(doc! { "find": name, "batchSize": 10_000, "$db": database });
            // Bytes and not values: NaN is not equal to itself.
            contents.extend(
                batch(&found)
                    .iter()
                    .map(|document| format!("{:?}", document.to_vec().unwrap())),
            );
            if entry.get_str("type").unwrap() == "collection" {
                let indexes = connection.ok(doc! { "listIndexes": name, "$db": database });
                contents.extend(batch(&indexes).iter().map(|index| format!("{index:?}")));
            }
        }
    }
    contents
}

fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get_document("cursor").unwrap();
    assert_eq!(cursor.get_i64("id").unwrap(), 0);
    let batch = cursor.get_array("firstBatch").unwrap();
    batch.iter().map(|entry| entry.as_document().unwrap().clone()).collect()
}

fn address(server: &Tenond) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

fn dump_options(server: &Tenond, path: &Path, archive: bool, gzip: bool) -> DumpOptions {
    DumpOptions {
        users_and_roles: false,
        server: address(server).into(),
        filter: Filter::default(),
        query: None,
        path: Some(path.to_owned()),
        archive,
        gzip,
        oplog: false,
        parallel: 3,
        interrupt: Default::default(),
        progress: indicatif::ProgressBar::hidden(),
    }
}

fn restore_options(server: &Tenond, path: &Path, archive: bool, gzip: bool) -> RestoreOptions {
    RestoreOptions {
        users_and_roles: false,
        bypass_validation: false,
        invalid_text: None,
        write_concern: bson::doc! { "w": "majority" },
        server: address(server).into(),
        filter: Filter::default(),
        renames: Vec::new(),
        path: Some(path.to_owned()),
        archive,
        gzip,
        drop: false,
        oplog: None,
        no_indexes: false,
        no_options: false,
        stop_on_error: false,
        parallel: 3,
        interrupt: Default::default(),
        progress: indicatif::ProgressBar::hidden(),
    }
}

#[test]
fn dumps_come_back_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("a")).unwrap();
    let source = Tenond::start(&path("a"), &[]);
    fill(&source);
    let expected = contents(&source);
    assert!(expected.len() > 2500, "{}", expected.len());
    for (number, (archive, gzip)) in [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .enumerate()
    {
        let out = path(&format!("dump{number}"));
        let dumped = ::dump::dump(&dump_options(&source, &out, archive, gzip)).unwrap();
        assert_eq!((dumped.collections, dumped.documents), (5, 2505));
        let data = path(&format!("b{number}"));
        std::fs::create_dir(&data).unwrap();
        let target = Tenond::start(&data, &[]);
        let options = restore_options(&target, &out, archive, gzip);
        let restored = ::dump::restore(&options).unwrap();
        assert_eq!(
            (restored.collections, restored.documents, restored.failed),
            (5, 2505, 0)
        );
        assert!(contents(&target) == expected, "archive {archive}, gzip {gzip}");

        // Again, over what is there: every document is refused, but for those of no collection; with --drop all come.
        let again = ::dump::restore(&options).unwrap();
        assert_eq!((again.documents, again.failed, again.failures.len()), (0, 2505, 3));
        let dropping = RestoreOptions {
            drop: true,
            ..options.clone()
        };
        assert_eq!(::dump::restore(&dropping).unwrap().documents, 2505);
        assert!(
            contents(&target) == expected,
            "with drop: archive {archive}, gzip {gzip}"
        );

        let renaming = RestoreOptions {
            filter: Filter {
                include: vec![Pattern::new("shop.m*")],
                ..Filter::default()
            },
            renames: vec![Rename::new("shop.$x$", "copy.$x$_2").unwrap()],
            ..options
        };
        assert_eq!(::dump::restore(&renaming).unwrap().documents, 2500);
        let mut connection = target.connect();
        let counted = connection.ok(doc! { "count": "many_2", "$db": "copy" });
        assert_eq!(counted.get_i32("n").unwrap(), 2500);
    }
}

#[test]
fn a_filter_and_a_name_choose_documents() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("a");
    std::fs::create_dir(&data).unwrap();
    let source = Tenond::start(&data, &[]);
    fill(&source);
    let out = directory.path().join("dump");
    let mut options = dump_options(&source, &out, false, false);
    options.filter.database = Some("shop".to_owned());
    options.filter.collection = Some("many".to_owned());
    options.query = Some(bson::rawdoc! { "k": { "$gt": 4 } });
    let dumped = ::dump::dump(&options).unwrap();
    assert_eq!((dumped.collections, dumped.documents), (1, 714));
    options.filter.collection = Some("none".to_owned());
    assert!(
        ::dump::dump(&options)
            .unwrap_err()
            .to_string()
            .contains("there is no collection shop.none")
    );
}
