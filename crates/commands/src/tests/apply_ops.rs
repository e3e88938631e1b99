//! `applyOps`: operations one by one, and whole logs replayed into another server.

use super::{Bench, code, first_batch, succeeded};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, Timestamp, doc};
use vfs::{Random as _, SeededRandom};

fn apply(bench: &Bench, operations: &[Document]) -> Document {
    bench.admin(doc! { "applyOps": operations })
}

fn applied(bench: &Bench, operations: &[Document]) {
    let reply = succeeded(apply(bench, operations));
    let counted = operations
        .iter()
        .filter(|operation| operation.get_str("op").ok() != Some("n"))
        .count();
    let expected = doc! { "applied": counted as i32, "results": vec![true; counted] };
    assert_eq!(reply, expected, "{operations:?}");
}

fn op(op: &str, o: Document) -> Document {
    doc! { "op": op, "ns": "test.c", "o": o }
}

fn update(id: i32, o: Document) -> Document {
    doc! { "op": "u", "ns": "test.c", "o2": { "_id": id }, "o": o }
}

fn command(o: Document) -> Document {
    doc! { "op": "c", "ns": "test.$cmd", "o": o }
}

fn uuid(bench: &Bench, collection: &str) -> Bson {
    let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": collection } }));
    listed[0].get_document("info").unwrap().get("uuid").unwrap().clone()
}

#[test]
fn documents_are_inserted_changed_and_removed() {
    let bench = Bench::new();
    applied(&bench, &[]);
    applied(
        &bench,
        &[
            op("n", doc! { "msg": "x" }),
            doc! { "op": "n", "ns": "" },
            op("i", doc! { "_id": 1, "a": 1 }),
            op("i", doc! { "_id": 2 }),
        ],
    );
    // The form of update commands, with and without a version; a replacement; a difference.
    applied(
        &bench,
        &[
            update(1, doc! { "$v": 1, "$set": { "b": 2 } }),
            update(1, doc! { "$unset": { "a": true } }),
        ],
    );
    assert_eq!(bench.find("c", doc! { "_id": 1 }), [doc! { "_id": 1, "b": 2 }]);
    applied(&bench, &[update(2, doc! { "_id": 2, "x": [1, 2] })]);
    applied(
        &bench,
        &[update(
            2,
            doc! { "$v": 2, "diff": { "sx": { "a": true, "u1": 5 }, "i": { "y": 1 } } },
        )],
    );
    assert_eq!(
        bench.find("c", doc! { "_id": 2 }),
        [doc! { "_id": 2, "x": [1, 5], "y": 1 }]
    );
    applied(&bench, &[op("d", doc! { "_id": 1 }), op("d", doc! { "_id": 1 })]);
    // What is there is replaced; what is not there is made where the operation says so.
    applied(
        &bench,
        &[op(
            "i",
            doc! { "_id": 2, "$odd": 1, "t": Timestamp { time: 0, increment: 0 } },
        )],
    );
    let mut upsert = update(3, doc! { "$v": 2, "diff": { "u": { "z": 1 } } });
    upsert.insert("b", true);
    applied(&bench, &[upsert]);
    let left = [
        doc! { "_id": 2, "$odd": 1, "t": Timestamp { time: 0, increment: 0 } },
        doc! { "_id": 3, "z": 1 },
    ];
    assert_eq!(bench.find("c", doc! {}), left);
}

#[test]
fn definitions_change() {
    let bench = Bench::new();
    let index = doc! { "createIndexes": "c", "v": 2, "key": { "a": 1 }, "name": "a_1", "unique": true };
    let create = doc! { "create": "c", "capped": true, "size": 4096, "idIndex": { "v": 2, "key": { "_id": 1 }, "name": "_id_" } };
    for _ in 0..2 {
        applied(&bench, &[command(create.clone()), command(index.clone())]);
        let build = doc! { "indexes": [{ "v": 2, "key": { "b": 1 }, "name": "b_1" }] };
        let mut commit = doc! { "commitIndexBuild": "c" };
        commit.extend(build.clone());
        let mut start = doc! { "startIndexBuild": "c" };
        start.extend(build);
        applied(&bench, &[command(start), command(commit)]);
    }
    let hide = doc! { "collMod": "c", "index": { "name": "a_1", "hidden": true } };
    applied(&bench, &[command(hide)]);
    let indexes = first_batch(&bench.ok(doc! { "listIndexes": "c" }));
    let names: Vec<_> = indexes.iter().map(|index| index.get_str("name").unwrap()).collect();
    assert_eq!(names, ["_id_", "a_1", "b_1"]);
    assert_eq!(indexes[1].get_bool("hidden").ok(), Some(true));
    for _ in 0..2 {
        applied(&bench, &[command(doc! { "dropIndexes": "c", "index": "a_1" })]);
    }
    bench.insert("other", &[doc! { "_id": 1 }]);
    let of_other = uuid(&bench, "other");
    let rename = doc! { "renameCollection": "test.c", "to": "test.other", "stayTemp": false, "dropTarget": of_other };
    applied(&bench, &[command(rename)]);
    assert_eq!(bench.find("other", doc! {}), []);
    for _ in 0..2 {
        applied(&bench, &[command(doc! { "drop": "other" })]);
        applied(&bench, &[command(doc! { "dropDatabase": 1 })]);
    }
}

#[test]
fn a_uuid_says_which_collection() {
    let bench = Bench::new();
    let own = Bson::from(Binary {
        subtype: BinarySubtype::Uuid,
        bytes: (1..17).collect(),
    });
    let with = |mut operation: Document| {
        operation.insert("ui", own.clone());
        operation
    };
    assert_eq!(code(&apply(&bench, &[with(op("i", doc! { "_id": 1 }))])), 26);
    for _ in 0..2 {
        applied(&bench, &[with(command(doc! { "create": "c" }))]);
    }
    assert_eq!(uuid(&bench, "c"), own);
    let taken = apply(
        &bench,
        &[with(command(doc! { "create": "d", "capped": true, "size": 1 }))],
    );
    assert_eq!(code(&taken), 48);
    assert!(taken.get_str("errmsg").unwrap().contains("test.c"), "{taken}");
    bench.admin(doc! { "renameCollection": "test.c", "to": "test.d" });
    applied(
        &bench,
        &[with(op("i", doc! { "_id": 1 })), with(command(doc! { "collMod": "c" }))],
    );
    assert_eq!(bench.find("d", doc! {}), [doc! { "_id": 1 }]);
    applied(&bench, &[with(command(doc! { "drop": "c" }))]);
    assert_eq!(code(&apply(&bench, &[with(update(1, doc! { "a": 1 }))])), 26);
}

#[test]
fn nothing_is_done_when_one_of_them_makes_no_sense() {
    let bench = Bench::new();
    let good = op("i", doc! { "_id": 1 });
    let nested = (0..11).fold(good.clone(), |inside, _| command(doc! { "applyOps": [inside] }));
    for (bad, expected) in [
        (doc! {}, 4),
        (doc! { "op": "i", "ns": "test.c" }, 40414),
        (doc! { "op": "i", "o": { "_id": 1 } }, 20),
        (doc! { "op": "i", "ns": 5, "o": { "_id": 1 } }, 20),
        (doc! { "op": "i", "ns": Bson::Null, "o": { "_id": 1 } }, 20),
        (doc! { "op": "i", "ns": "", "o": { "_id": 1 } }, 20),
        (doc! { "op": 1, "ns": "test.c", "o": {} }, 14),
        (op("", doc! {}), 20),
        (op("i", doc! { "a": 1 }), 4),
        (op("d", doc! { "a": 1 }), 4),
        (op("d", doc! {}), 4),
        (
            doc! { "op": "u", "ns": "test.c", "o2": {}, "o": { "_id": 1, "a": 1 } },
            4,
        ),
        (
            doc! { "op": "u", "ns": "test.c", "o2": { "a": 1 }, "o": { "$set": { "a": 2 } } },
            4,
        ),
        (op("x", doc! {}), 2),
        (doc! { "op": "i", "ns": "test.c", "ui": 1, "o": { "_id": 1 } }, 207),
        (doc! { "op": "i", "ns": "test", "o": { "_id": 1 } }, 73),
        (op("u", doc! { "a": 1 }), 40414),
        (update(1, doc! { "$v": 2 }), 9),
        (update(1, doc! { "$v": 3, "diff": {} }), 4_772_604),
        (command(doc! {}), 2),
        (command(doc! { "drop": 1 }), 14),
        (command(doc! { "convertToCapped": "c" }), 238),
        (command(doc! { "applyOps": [1] }), 14),
        (command(doc! { "applyOps": [], "prepare": true }), 238),
        (nested, 2),
    ] {
        assert_eq!(code(&apply(&bench, &[good.clone(), bad.clone()])), expected, "{bad}");
    }
    assert_eq!(bench.code(doc! { "applyOps": 1 }), 14);
    for (field, value, expected) in [
        ("preCondition", Bson::Array(vec![]), 6_711_600),
        ("alwaysUpsert", true.into(), 6_711_601),
        ("alwaysUpsert", 1.into(), 14),
        ("prepare", false.into(), 2),
        ("partialTxn", true.into(), 31056),
        ("count", true.into(), 14),
        ("count", 1_i64.into(), 31240),
    ] {
        let reply = bench.admin(doc! { "applyOps": [&good], field: value });
        assert_eq!(code(&reply), expected, "{field}");
    }
    assert_eq!(bench.find("c", doc! {}), []);
}

#[test]
fn a_failure_ends_it_and_says_how_far_it_came() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": 2 }]);
    bench.ok(doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a", "unique": true }] });
    let failed = apply(
        &bench,
        &[
            op("i", doc! { "_id": 3 }),
            op("i", doc! { "_id": 4, "a": 2 }),
            op("d", doc! { "_id": 1 }),
        ],
    );
    assert_eq!(code(&failed), 11000);
    assert_eq!(
        (
            failed.get_i32("applied").ok(),
            failed.get_array("results").unwrap().len()
        ),
        (Some(2), 2)
    );
    assert_eq!(bench.find("c", doc! {}).len(), 3);
    // An update that finds nothing changes nothing; those behind it are done.
    for change in [
        doc! { "$set": { "b": 1 } },
        doc! { "_id": 9 },
        doc! { "$v": 2, "diff": { "u": { "b": 1 } } },
    ] {
        let operations = [update(9, change), update(3, doc! { "$set": { "b": 1 } })];
        let missing = bench.admin(doc! { "applyOps": operations.to_vec(), "alwaysUpsert": false, "allowAtomic": "x" });
        assert_eq!(code(&missing), 8);
        let results = bson::bson!([false, true]);
        assert_eq!(
            (missing.get_i32("applied").ok(), missing.get("results")),
            (Some(2), Some(&results))
        );
    }
    assert_eq!(bench.find("c", doc! { "b": 1 }), [doc! { "_id": 3, "b": 1 }]);
    assert_eq!(bench.find("c", doc! { "_id": 9 }), []);
    // An entry of a log is replayed: what it is about is deleted by a later one.
    let mut entry = update(9, doc! { "$v": 2, "diff": { "u": { "a": 9 } } });
    entry.insert("ts", bson::Timestamp { time: 7, increment: 1 });
    let made = bench.admin(doc! { "applyOps": [entry] });
    assert_eq!(made.get_i32("applied").ok(), Some(1), "{made}");
    assert_eq!(bench.find("c", doc! { "_id": 9 }), [doc! { "_id": 9, "a": 9 }]);
    bench.admin(doc! { "applyOps": [{ "op": "d", "ns": "test.c", "o": { "_id": 9 } }] });
    let system = doc! { "op": "i", "ns": "test.system.views", "o": { "_id": "v" } };
    assert_eq!(code(&apply(&bench, &[system])), 73);
}

#[test]
fn it_needs_what_its_operations_need() {
    let bench = Bench::guarded();
    let on_c = doc! { "resource": { "db": "test", "collection": "c" }, "actions": ["insert", "update", "remove"] };
    bench.ok(doc! { "createRole": "c", "privileges": [on_c], "roles": [] });
    let client = bench.user("eve", &[doc! { "role": "c", "db": "test" }.into()]);
    let may = |operation: Document| {
        let reply = bench.run_as(&client, "test", doc! { "applyOps": [operation] });
        reply.get_i32("code").ok() != Some(13)
    };
    assert!(may(op("i", doc! { "_id": 1 })) && may(update(1, doc! { "a": 1 })) && may(op("d", doc! { "_id": 1 })));
    assert!(may(command(doc! { "applyOps": [op("i", doc! { "_id": 1 })] })));
    assert!(!may(doc! { "op": "i", "ns": "test.d", "o": { "_id": 1 } }));
    assert!(!may(command(
        doc! { "applyOps": [{ "op": "d", "ns": "other.c", "o": { "_id": 1 } }] }
    )));
    assert!(!may(command(doc! { "drop": "c" })) && !may(command(doc! { "dropDatabase": 1 })));
    // A name of its own does not open another one's collection.
    bench.insert("d", &[doc! { "_id": 1 }]);
    let mut of_other = op("d", doc! { "_id": 1 });
    of_other.insert("ui", uuid(&bench, "d"));
    assert!(!may(of_other));
    let users = doc! { "op": "i", "ns": "admin.system.users", "o": { "_id": "admin.eve" } };
    assert!(!may(users));
}

/// A client that changes all sorts of things.
struct Chaos {
    random: SeededRandom,
}

impl Chaos {
    fn below(&self, bound: u64) -> i32 {
        (self.random.next_u64() % bound) as i32
    }

    fn value(&self, depth: usize) -> Bson {
        match self.below(if depth > 2 { 4 } else { 7 }) {
            0 => Bson::Null,
            1 => self.below(5).into(),
            2 => f64::from(self.below(5)).into(),
            3 => "text".repeat(self.below(30) as usize).into(),
            4 | 5 => (0..self.below(5))
                .map(|_| self.value(depth + 1))
                .collect::<Vec<_>>()
                .into(),
            _ => self.document(depth + 1).into(),
        }
    }

    fn document(&self, depth: usize) -> Document {
        let fields = self.below(5);
        (0..fields).map(|_| (self.field(), self.value(depth))).collect()
    }

    fn field(&self) -> String {
        ["a", "b", "c", "0", "s", "u1"][self.below(6) as usize].to_owned()
    }

    fn path(&self) -> String {
        match self.below(3) {
            0 => self.field(),
            1 => format!("{}.{}", self.field(), self.field()),
            _ => format!("{}.{}", self.field(), self.below(6)),
        }
    }

    fn change(&self) -> Bson {
        match self.below(9) {
            0 => self.document(0).into(),
            1 => bson::bson!([{ "$set": { self.field(): self.value(1) } }, { "$unset": self.field() }]),
            2 => bson::bson!({ "$set": { self.path(): self.value(1) } }),
            3 => bson::bson!({ "$unset": { self.path(): 1 } }),
            4 => bson::bson!({ "$push": { self.path(): { "$each": [self.value(2)], "$position": self.below(3) } } }),
            5 => bson::bson!({ "$push": { self.path(): { "$each": [], "$slice": self.below(3) } } }),
            6 => bson::bson!({ "$rename": { self.field(): self.path() } }),
            7 => bson::bson!({ "$pop": { self.path(): 1 } }),
            _ => bson::bson!({ "$pull": { self.path(): self.below(5) } }),
        }
    }

    /// A step, which may fail.
    fn step(&self, bench: &Bench, transaction: i64, defines: bool) {
        let collection = || ["x", "y", "z"][self.below(3) as usize];
        let id = || self.below(8);
        let write = || match self.below(4) {
            0 => {
                let mut document = doc! { "_id": id() };
                document.extend(self.document(0));
                doc! { "insert": collection(), "documents": [document] }
            }
            1 | 2 => {
                let statement = doc! { "q": { "_id": id() }, "u": self.change(), "upsert": self.below(2) == 0 };
                doc! { "update": collection(), "updates": [statement] }
            }
            _ => doc! { "delete": collection(), "deletes": [{ "q": { "_id": id() }, "limit": 1 }] },
        };
        match self.below(24) {
            0..5 if !defines => drop(bench.run(write())),
            0 => drop(bench.run(doc! { "drop": collection() })),
            1 => drop(bench.admin(doc! {
                "renameCollection": format!("test.{}", collection()), "to": format!("test.{}", collection()),
                "dropTarget": self.below(2) == 0,
            })),
            2 => {
                let index = doc! { "key": { self.field(): 1 }, "name": format!("i{}", self.below(3)), "sparse": true };
                bench.run(doc! { "createIndexes": collection(), "indexes": [index] });
            }
            3 => drop(bench.run(doc! { "dropIndexes": collection(), "index": format!("i{}", self.below(3)) })),
            4 => {
                let index = doc! { "name": format!("i{}", self.below(3)), "hidden": self.below(2) == 0 };
                bench.run(doc! { "collMod": collection(), "index": index });
            }
            5 => {
                let session = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes: vec![1; 16] } };
                for statement in 0..self.below(4) + 1 {
                    let mut command = write();
                    command.extend(doc! { "lsid": session.clone(), "txnNumber": transaction, "autocommit": false });
                    if statement == 0 {
                        command.insert("startTransaction", true);
                    }
                    bench.run(command);
                }
                bench.admin(doc! {
                    "commitTransaction": 1, "lsid": session, "txnNumber": transaction, "autocommit": false,
                });
            }
            _ => drop(bench.run(write())),
        }
    }
}

/// All that is in the database `test`.
fn everything(bench: &Bench) -> Vec<(String, Vec<Document>, Vec<Document>)> {
    let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "nameOnly": true }));
    let mut names: Vec<_> = listed
        .iter()
        .map(|entry| entry.get_str("name").unwrap().to_owned())
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| {
            let mut indexes = first_batch(&bench.ok(doc! { "listIndexes": &name }));
            indexes.sort_by_key(|index| index.get_str("name").unwrap().to_owned());
            let documents = bench.find(&name, doc! {});
            (name, documents, indexes)
        })
        .collect()
}

/// A log replayed from its beginning gives what is there; so does a part of it over the whole, which has changes of
/// documents only: what collections were called when is not asked again.
#[test]
fn a_replayed_log_gives_the_same_data() {
    for seed in 0..40 {
        let chaos = Chaos {
            random: SeededRandom::new(seed),
        };
        let source = Bench::member(true);
        for step in 0..150 {
            chaos.step(&source, step, step < 80);
        }
        let find = doc! { "find": "oplog.rs", "filter": { "ns": { "$regex": "^(test|admin)" } }, "batchSize": 10_000 };
        let mut log = first_batch(&succeeded(source.run_on("local", find)));
        // The target's collections have uuids of their own.
        fn forget(operation: &mut Document) {
            operation.remove("ui");
            if operation.get_str("op").ok() == Some("u") {
                operation.insert("b", true);
            }
            let inner = operation
                .get_document_mut("o")
                .and_then(|o| o.get_array_mut("applyOps"));
            inner
                .into_iter()
                .flatten()
                .filter_map(Bson::as_document_mut)
                .for_each(forget);
        }
        log.iter_mut().for_each(forget);
        let expected = everything(&source);
        let is_definition = |operation: &Document| operation.get_str("ns").ok() == Some("test.$cmd");
        let documents_from = log.iter().rposition(is_definition).map_or(0, |last| last + 1);
        let target = Bench::new();
        for round in 0..4 {
            let from = match round {
                0 => 0,
                _ => documents_from + chaos.below((log.len() - documents_from) as u64) as usize,
            };
            for operation in &log[from..] {
                let reply = apply(&target, std::slice::from_ref(operation));
                let is_ok = reply.get_f64("ok").ok() == Some(1.0);
                assert!(is_ok, "seed {seed} round {round}: {operation}: {reply}");
            }
            assert_eq!(everything(&target), expected, "seed {seed} round {round} from {from}");
        }
    }
}
