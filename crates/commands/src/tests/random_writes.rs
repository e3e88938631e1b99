//! Random writes to a collection with indexes and to one without: the replies and the documents stay the same. A
//! failure prints its seed, from which `SEED=n CASES=1` begins again; `TENON_RANDOM_FACTOR=n` runs n times as many.

use super::{Bench, write_errors};
use bson::{Bson, Document, doc};
use vfs::{Random, SeededRandom};

const PATHS: [&str; 7] = ["a", "b", "c", "d.x", "d.y", "a.0", "d"];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds(usual: u64) -> std::ops::Range<u64> {
    let first = number("SEED").unwrap_or(1);
    let count = number("CASES").unwrap_or_else(|| usual * number("TENON_RANDOM_FACTOR").unwrap_or(1));
    println!("seeds {:?}", first..first + count);
    first..first + count
}

fn pick(random: &SeededRandom, below: u64) -> u64 {
    random.next_u64() % below
}

fn one<T: Copy>(random: &SeededRandom, of: &[T]) -> T {
    of[pick(random, of.len() as u64) as usize]
}

fn scalar(random: &SeededRandom) -> Bson {
    match pick(random, 14) {
        0 => Bson::Null,
        1 => Bson::Boolean(true),
        2 => Bson::Double(one(random, &[f64::NAN, -0.0, 0.5, 2.0, f64::INFINITY])),
        3 => Bson::Int64(pick(random, 4) as i64),
        4 => Bson::Decimal128(one(random, &["1", "-0", "2.0", "NaN"]).parse().expect("a decimal")),
        5 | 6 => one(random, &["", "a", "ab", "b"]).into(),
        7 => Bson::DateTime(bson::DateTime::from_millis(pick(random, 3) as i64)),
        _ => Bson::Int32(pick(random, 5) as i32),
    }
}

fn value(random: &SeededRandom, depth: u32) -> Bson {
    match pick(random, 7) {
        0 if depth < 2 => (0..pick(random, 4)).map(|_| value(random, depth + 1)).collect(),
        1 if depth < 2 => {
            let names = ["x", "y"].into_iter().filter(|_| pick(random, 3) > 0);
            names
                .map(|name| (name.to_owned(), value(random, depth + 1)))
                .collect::<Document>()
                .into()
        }
        _ => scalar(random),
    }
}

fn document(random: &SeededRandom, id: i32) -> Document {
    let mut document = doc! { "_id": id };
    for name in ["a", "b", "c", "d"] {
        if pick(random, 6) > 0 {
            document.insert(name, value(random, 0));
        }
    }
    document
}

fn filter(random: &SeededRandom, depth: u32) -> Document {
    let mut filter = Document::new();
    for _ in 0..1 + pick(random, 2) {
        let condition = match pick(random, 9) {
            0 => doc! { "$gte": scalar(random) }.into(),
            1 => doc! { "$lt": pick(random, 5) as i32 }.into(),
            2 => doc! { "$in": [scalar(random), scalar(random)] }.into(),
            3 => doc! { "$exists": pick(random, 2) == 0 }.into(),
            4 => doc! { "$ne": scalar(random) }.into(),
            5 => doc! { "$gt": 0, "$lte": pick(random, 5) as i32 }.into(),
            _ => scalar(random),
        };
        match pick(random, 8) {
            0 if depth == 0 => {
                let branches = [self::filter(random, 1), self::filter(random, 1)];
                filter.insert(one(random, &["$or", "$and", "$nor"]), branches.to_vec());
            }
            1 => drop(filter.insert("_id", doc! { "$lt": pick(random, 40) as i32 })),
            _ => drop(filter.insert(one(random, &PATHS), condition)),
        }
    }
    filter
}

/// An update, and the filter that it needs if it needs one.
fn update(random: &SeededRandom) -> (Bson, Option<Document>) {
    let path = one(random, &PATHS);
    let other = one(random, &["e", "f.g"]);
    let update = match pick(random, 16) {
        0..=2 => doc! { "$set": { path: value(random, 0), other: scalar(random) } },
        3 => doc! { "$unset": { path: 1 } },
        4 => doc! { "$inc": { path: one(random, &[1, -1, i32::MAX]) } },
        5 => doc! { "$mul": { path: scalar(random) } },
        6 => doc! { "$push": { path: { "$each": [value(random, 1), 1], "$slice": -3 } } },
        7 => doc! { "$addToSet": { path: scalar(random) } },
        8 => doc! { "$pull": { path: { "$in": [scalar(random), 1, 2] } } },
        9 => doc! { "$pop": { path: 1 } },
        10 => doc! { "$min": { path: scalar(random) }, "$max": { other: scalar(random) } },
        11 => doc! { "$rename": { one(random, &["a", "b"]): one(random, &["c", "g"]) } },
        12 => {
            let path = one(random, &["a", "b"]);
            let filter = match pick(random, 2) {
                0 => doc! { path: { "$gte": pick(random, 4) as i32 } },
                _ => doc! { path: { "$elemMatch": { "$gte": 1, "$lt": 4 } } },
            };
            return (
                doc! { "$set": { format!("{path}.$"): scalar(random) } }.into(),
                Some(filter),
            );
        }
        13 => doc! { "$set": { "a.$[]": scalar(random) } },
        14 => {
            let set = doc! { "$set": { path: { "$ifNull": ["$b", "none"] }, "e": { "$type": "$a" } } };
            return (vec![set].into(), None);
        }
        _ => doc! { "a": value(random, 0), "r": 1 },
    };
    (update.into(), None)
}

/// The command on a collection; which documents it is about does not depend on a plan.
fn command(random: &SeededRandom, step: i32) -> impl Fn(&str) -> Document + use<> {
    let (change, needed) = update(random);
    let filter = needed.unwrap_or_else(|| filter(random, 0));
    let is_operator = matches!(&change, Bson::Array(_))
        || matches!(&change, Bson::Document(change) if change.keys().all(|name| name.starts_with('$')));
    let kind = pick(random, 8);
    let inserted = document(random, 1000 + step);
    move |collection| match kind {
        0 => doc! { "delete": collection, "deletes": [{ "q": filter.clone(), "limit": 0 }] },
        1 => doc! { "findAndModify": collection, "query": filter.clone(), "sort": { "_id": 1 }, "remove": true },
        2 => doc! { "insert": collection, "documents": [inserted.clone()] },
        3..6 if is_operator => {
            doc! { "update": collection, "updates": [{ "q": filter.clone(), "u": change.clone(), "multi": true }] }
        }
        _ => {
            let sort = doc! { "_id": -1 };
            doc! { "findAndModify": collection, "query": filter.clone(), "sort": sort, "update": change.clone(), "new": true }
        }
    }
}

/// What is told of a write, with types and the bits of numbers.
fn told(reply: &Document) -> String {
    let told = ["ok", "n", "nModified", "value", "lastErrorObject", "code"];
    let told = told.iter().map(|name| format!("{name}: {:?} ", reply.get(name)));
    told.collect::<String>() + &format!("{:?}", write_errors(reply))
}

fn is_refused(reply: &Document) -> bool {
    reply.get_f64("ok").ok() != Some(1.0) || !write_errors(reply).is_empty()
}

#[test]
fn indexes_change_nothing_but_how_documents_are_found() {
    let (mut writes, mut changed, mut refused) = (0_u64, 0_u64, 0_u64);
    for seed in seeds(40) {
        let random = SeededRandom::new(seed);
        let bench = Bench::new();
        for _ in 0..1 + pick(&random, 4) {
            let mut key = doc! { one(&random, &PATHS): one(&random, &[1, -1]) };
            if pick(&random, 2) == 0 {
                key.insert(one(&random, &PATHS), 1);
            }
            let name = key.to_string();
            let index = match pick(&random, 5) {
                0 => doc! { "key": key, "name": name, "sparse": true },
                1 => doc! { "key": key, "name": name, "partialFilterExpression": { "b": { "$exists": true } } },
                2 => doc! { "key": { "$**": 1 }, "name": name },
                _ => doc! { "key": key, "name": name },
            };
            bench.run(doc! { "createIndexes": "indexed", "indexes": [index] });
        }
        for id in 0..30 {
            let document = document(&random, id);
            let reply = bench.run(doc! { "insert": "indexed", "documents": [document.clone()] });
            if !is_refused(&reply) {
                bench.insert("plain", &[document]);
            }
        }
        for step in 0..50 {
            let command = command(&random, step);
            let (found, wanted) = (bench.run(command("indexed")), bench.run(command("plain")));
            let story = || format!("seed {seed}, step {step}: {}", command("indexed"));
            writes += 1;
            let documents = |name: &str| bench.find(name, doc! {});
            if is_refused(&found) {
                // An index may refuse what there is no other reason to. A write to many stops at the first that is
                // refused, in the order of its plan: what is there afterwards is then taken over.
                let by_index = [171, 7_246_301, 16746, 16766];
                let codes: Vec<i32> = write_errors(&found).iter().map(|(_, code)| *code).collect();
                let codes = found.get_i32("code").map_or(codes, |code| vec![code]);
                let is_index = codes.iter().any(|code| by_index.contains(code));
                assert!(
                    is_index || is_refused(&wanted),
                    "{}\n{found}\ninstead of\n{wanted}",
                    story()
                );
                refused += 1;
                bench.ok(doc! { "delete": "plain", "deletes": [{ "q": {}, "limit": 0 }] });
                let kept = documents("indexed");
                if !kept.is_empty() {
                    bench.insert("plain", &kept);
                }
                continue;
            }
            assert_eq!(told(&found), told(&wanted), "{}", story());
            let shown = |name: &str| format!("{:?}", documents(name));
            assert_eq!(shown("indexed"), shown("plain"), "{}", story());
            let asked = filter(&random, 0);
            let found = |name: &str| format!("{:?}", bench.find(name, asked.clone()));
            assert_eq!(found("indexed"), found("plain"), "{}, then {asked}", story());
            let counts = ["n", "nModified"].map(|name| wanted.get_i32(name).unwrap_or(0));
            changed += u64::from(counts != [0, 0] || wanted.get_document("value").is_ok());
        }
    }
    println!("{writes} writes compared, {changed} wrote something, {refused} were refused");
    assert!(changed * 3 > writes);
}
