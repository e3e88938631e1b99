//! Validators of collections: what is turned down, when, and who may pass.

use super::{Bench, code, first_batch, succeeded, write_errors};
use bson::{Bson, Document, doc};

fn bench(options: Document) -> Bench {
    let bench = Bench::member(true);
    let mut create = doc! { "create": "c", "validator": { "a": { "$gt": 0 } } };
    create.extend(options);
    bench.ok(create);
    bench
}

fn insert(documents: &[Document]) -> Document {
    doc! { "insert": "c", "documents": documents, "ordered": false }
}

fn update(query: Document, change: Document) -> Document {
    doc! { "update": "c", "updates": [{ "q": query, "u": change, "upsert": true }] }
}

fn options(bench: &Bench) -> Document {
    let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": "c" } }));
    listed[0].get_document("options").unwrap().clone()
}

const REFUSED: [(i32, i32); 1] = [(0, 121)];

#[test]
fn every_way_to_write_is_checked() {
    let bench = bench(doc! {});
    let reply = bench.ok(insert(&[
        doc! { "_id": 1, "a": 1 },
        doc! { "_id": 2, "a": -1 },
        doc! { "_id": 3 },
    ]));
    assert_eq!(
        (reply.get_i32("n").ok(), write_errors(&reply)),
        (Some(1), vec![(1, 121), (2, 121)])
    );
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(error.get_str("errmsg").ok(), Some("Document failed validation"));
    let info = error.get_document("errInfo").unwrap();
    assert_eq!(info.get_i32("failingDocumentId").ok(), Some(2));
    assert_eq!(
        info.get_document("details").unwrap().get_str("operatorName").ok(),
        Some("$gt")
    );

    let refused = |command: Document| assert_eq!(write_errors(&bench.ok(command.clone())), REFUSED, "{command}");
    refused(update(doc! { "_id": 1 }, doc! { "$set": { "a": 0 } }));
    refused(update(doc! { "_id": 1 }, doc! { "b": 1 }));
    refused(update(doc! { "_id": 9 }, doc! { "$set": { "a": -1 } }));
    let modify = doc! { "findAndModify": "c", "query": { "_id": 1 }, "update": { "$unset": { "a": 1 } } };
    let reply = bench.run(modify);
    assert_eq!(code(&reply), 121);
    assert!(reply.contains_key("errInfo"), "{reply}");
    let bulk =
        doc! { "bulkWrite": 1, "ops": [{ "insert": 0, "document": { "a": 0 } }], "nsInfo": [{ "ns": "test.c" }] };
    let reply = first_batch(&succeeded(bench.admin(bulk)));
    assert_eq!(
        (reply[0].get_i32("code").ok(), reply[0].contains_key("errInfo")),
        (Some(121), true)
    );
    bench.insert("source", &[doc! { "_id": 7, "a": -7 }]);
    assert_eq!(bench.aggregate_code("source", &[doc! { "$merge": "c" }]), 121);
    assert_eq!(bench.aggregate_code("source", &[doc! { "$out": "c" }]), 121);
    assert_eq!(bench.find("c", doc! {}), [doc! { "_id": 1, "a": 1 }]);

    // Who asks for it passes.
    let mut passing = insert(&[doc! { "_id": 8 }]);
    passing.insert("bypassDocumentValidation", true);
    bench.ok(passing);
    let merge =
        doc! { "aggregate": "source", "pipeline": [{ "$merge": "c" }], "cursor": {}, "bypassDocumentValidation": true };
    bench.ok(merge);
    assert_eq!(bench.find("c", doc! {}).len(), 3);
    let report = bench.ok(doc! { "validate": "c" });
    assert_eq!(
        (
            report.get_i32("nNonCompliantDocuments").ok(),
            report.get_bool("valid").ok()
        ),
        (Some(2), Some(true))
    );
}

#[test]
fn levels_and_actions() {
    let bench = bench(doc! { "validationLevel": "moderate" });
    let mut old = insert(&[doc! { "_id": 1, "a": -1 }]);
    old.insert("bypassDocumentValidation", true);
    bench.ok(old);
    // What was not valid before need not become so.
    assert_eq!(
        bench
            .ok(update(doc! { "_id": 1 }, doc! { "$set": { "b": 1 } }))
            .get_i32("nModified")
            .ok(),
        Some(1)
    );
    assert_eq!(write_errors(&bench.ok(insert(&[doc! { "_id": 2 }]))), REFUSED);
    bench.ok(insert(&[doc! { "_id": 3, "a": 1 }]));
    assert_eq!(
        write_errors(&bench.ok(update(doc! { "_id": 3 }, doc! { "$set": { "a": 0 } }))),
        REFUSED
    );
    bench.ok(doc! { "collMod": "c", "validationLevel": "strict" });
    assert_eq!(
        write_errors(&bench.ok(update(doc! { "_id": 1 }, doc! { "$set": { "b": 2 } }))),
        REFUSED
    );
    bench.ok(doc! { "collMod": "c", "validationAction": "warn" });
    assert_eq!(write_errors(&bench.ok(insert(&[doc! { "_id": 4 }]))), []);
    bench.ok(doc! { "collMod": "c", "validationAction": "error", "validationLevel": "off" });
    assert_eq!(write_errors(&bench.ok(insert(&[doc! { "_id": 5 }]))), []);
    bench.ok(doc! { "collMod": "c", "validator": { "x": 1 }, "validationLevel": "strict" });
    assert_eq!(write_errors(&bench.ok(insert(&[doc! { "_id": 6, "a": 1 }]))), REFUSED);
    assert_eq!(
        options(&bench),
        doc! { "validator": { "x": 1 }, "validationLevel": "strict", "validationAction": "error" }
    );
    bench.ok(doc! { "collMod": "c", "validator": {} });
    assert_eq!(write_errors(&bench.ok(insert(&[doc! { "_id": 6 }]))), []);
    for bad in [
        doc! { "validationLevel": "some" },
        doc! { "validationAction": "errorAndLog" },
        doc! { "validator": { "$where": "1" } },
        doc! { "validator": 1 },
    ] {
        let mut command = doc! { "create": "d" };
        command.extend(bad.clone());
        assert!([2, 14].contains(&bench.code(command)), "{bad}");
    }
    let elsewhere = doc! { "create": "c", "validator": { "a": 1 } };
    assert_eq!(code(&bench.run_on("local", elsewhere)), 72);
}

#[test]
fn strings_compare_as_the_collection_has_them() {
    let bench = Bench::new();
    let options = doc! { "validator": { "state": "open" }, "collation": { "locale": "en", "strength": 2 } };
    let mut create = doc! { "create": "c" };
    create.extend(options);
    bench.ok(create);
    bench.insert("c", &[doc! { "_id": 1, "state": "OPEN" }]);
    assert_eq!(
        write_errors(&bench.ok(insert(&[doc! { "_id": 2, "state": "shut" }]))),
        REFUSED
    );
}

#[test]
fn a_transaction_is_told_and_ends() {
    let bench = bench(doc! {});
    let lsid = doc! { "id": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] } };
    let mut statement = insert(&[doc! { "_id": 1, "a": -1 }]);
    statement.extend(doc! { "lsid": lsid, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true });
    let reply = bench.run(statement);
    let is_refused = reply.get_i32("code").ok() == Some(121) || write_errors(&reply) == REFUSED;
    assert!(is_refused, "{reply}");
    assert_eq!(bench.find("c", doc! {}), []);
}

#[test]
fn a_schema_is_a_filter_too() {
    let bench = Bench::new();
    bench.insert(
        "c",
        &[
            doc! { "_id": 1, "n": 5, "tags": ["a"] },
            doc! { "_id": 2, "n": "x" },
            doc! { "_id": 3 },
        ],
    );
    let ids = |schema: Document| -> Vec<i32> {
        let found = bench.find("c", doc! { "$jsonSchema": schema });
        found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
    };
    assert_eq!(ids(doc! { "required": ["n"] }), [1, 2]);
    assert_eq!(
        ids(doc! { "properties": { "n": { "bsonType": ["int", "long"] } } }),
        [1, 3]
    );
    assert_eq!(
        ids(doc! { "properties": { "tags": { "items": { "enum": ["a"] }, "minItems": 1 } }, "required": ["tags"] }),
        [1]
    );
    let matched = bench.aggregate(
        "c",
        &[doc! { "$match": { "$nor": [{ "$jsonSchema": { "required": ["n"] } }] } }],
    );
    assert_eq!(matched, [doc! { "_id": 3 }]);
    assert_eq!(
        bench.code(doc! { "find": "c", "filter": { "$jsonSchema": Bson::Int32(1) } }),
        14
    );
}

/// Between the room of a report and that of a reply there was none.
#[test]
fn a_large_report_is_brief() {
    let bench = bench(doc! {});
    for (megabytes, is_brief) in [(5, false), (9, true), (13, true)] {
        let large = "x".repeat(megabytes << 20);
        let reply = bench.ok(insert(&[doc! { "_id": 1, "a": large }]));
        let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
        let info = error.get_document("errInfo").unwrap();
        assert_eq!(info.get_i32("failingDocumentId").ok(), Some(1));
        assert_eq!(info.contains_key("truncated"), is_brief, "{megabytes}");
        assert!(info.contains_key("details"));
    }
}
