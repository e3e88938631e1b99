//! Every plan gives what a scan with the matcher gives: random documents, indexes, filters, sorts, limits and projections.

use super::fixture::{Fixture, ns, pick, plain};
use crate::exec::sort_key::SortKeys;
use crate::exec::{count, distinct, find};
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::plan::query::{Order, parse_sort};
use crate::plan::{CountRequest, DistinctRequest, FindRequest, Hint};
use crate::project::Projection;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::StorageError;
use vfs::{Random, SeededRandom};

const PATHS: [&str; 8] = ["a", "b", "c", "d", "d.x", "d.y", "d.z.w", "e"];

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("encodable")
}

fn scalar(random: &SeededRandom) -> Bson {
    match pick(random, 22) {
        0..=7 => Bson::Int32(pick(random, 6) as i32),
        8 => Bson::Int64(pick(random, 6) as i64),
        9 => Bson::Double(pick(random, 12) as f64 / 2.0),
        10 => Bson::Double(f64::NAN),
        11 => Bson::Double(f64::NEG_INFINITY),
        12 | 13 => Bson::Null,
        14 => Bson::Boolean(random.next_u64() & 1 == 1),
        15..=17 => Bson::String(["", "a", "ab", "abc", "b", "ba"][pick(random, 6) as usize].to_owned()),
        18 => Bson::DateTime(bson::DateTime::from_millis(pick(random, 4) as i64)),
        19 => Bson::MinKey,
        20 => Bson::MaxKey,
        _ => Bson::ObjectId(bson::oid::ObjectId::from_bytes([pick(random, 3) as u8; 12])),
    }
}

fn inner(random: &SeededRandom) -> Document {
    let mut document = Document::new();
    for name in ["x", "y"] {
        if pick(random, 4) != 0 {
            document.insert(name, value(random, 1));
        }
    }
    if pick(random, 3) == 0 {
        document.insert("z", doc! { "w": value(random, 1) });
    }
    document
}

fn value(random: &SeededRandom, depth: u32) -> Bson {
    match pick(random, 12) {
        0 | 1 if depth < 3 => {
            let count = pick(random, 4);
            Bson::Array((0..count).map(|_| value(random, depth + 1)).collect())
        }
        2 | 3 if depth < 2 => inner(random).into(),
        _ => scalar(random),
    }
}

fn document(random: &SeededRandom, id: i32) -> Document {
    let mut document = doc! { "_id": id };
    for name in ["a", "b", "c", "e"] {
        if pick(random, 5) != 0 {
            document.insert(
                name,
                if pick(random, 3) == 0 {
                    value(random, 0)
                } else {
                    scalar(random)
                },
            );
        }
    }
    match pick(random, 4) {
        0 => {}
        1 => {
            let count = pick(random, 4);
            let items = (0..count).map(|_| {
                if pick(random, 5) == 0 {
                    scalar(random)
                } else {
                    inner(random).into()
                }
            });
            document.insert("d", items.collect::<Vec<Bson>>());
        }
        _ => {
            document.insert("d", inner(random));
        }
    }
    document
}

fn path(random: &SeededRandom) -> &'static str {
    PATHS[pick(random, PATHS.len() as u64) as usize]
}

fn key(random: &SeededRandom) -> Document {
    let mut key = Document::new();
    for _ in 0..=pick(random, 3) {
        key.insert(path(random), if pick(random, 3) == 0 { -1 } else { 1 });
    }
    key
}

fn operators(random: &SeededRandom) -> Bson {
    let operand = |random: &SeededRandom| {
        if pick(random, 6) == 0 {
            value(random, 1)
        } else {
            scalar(random)
        }
    };
    let comparison = |random: &SeededRandom| ["$gt", "$gte", "$lt", "$lte"][pick(random, 4) as usize];
    match pick(random, 16) {
        0..=4 => operand(random),
        5 => doc! { (comparison(random)): operand(random) }.into(),
        6 => doc! { "$gte": pick(random, 4) as i32, "$lt": pick(random, 7) as i32 }.into(),
        7 => {
            let list: Vec<Bson> = (0..pick(random, 4)).map(|_| operand(random)).collect();
            doc! { (["$in", "$nin"][pick(random, 2) as usize]): list }.into()
        }
        8 => doc! { "$ne": operand(random) }.into(),
        9 => doc! { "$exists": random.next_u64() & 1 == 1 }.into(),
        10 => doc! { "$not": { (comparison(random)): operand(random) } }.into(),
        11 => Bson::RegularExpression(bson::Regex {
            pattern: bson::raw::CString::try_from(["^a", "^ab", "b", "^(a|b)"][pick(random, 4) as usize])
                .expect("no NUL"),
            options: bson::raw::CString::try_from("").expect("no NUL"),
        }),
        12 => {
            let name = ["number", "string", "null", "object", "array", "bool"][pick(random, 6) as usize];
            doc! { "$type": name }.into()
        }
        13 => doc! { "$elemMatch": { (comparison(random)): operand(random), "$lt": pick(random, 7) as i32 } }.into(),
        14 => doc! { "$all": [operand(random), operand(random)] }.into(),
        _ => doc! { "$size": pick(random, 3) as i32 }.into(),
    }
}

fn filter(random: &SeededRandom, depth: u32) -> Document {
    let mut filter = Document::new();
    for _ in 0..pick(random, 4).max(u64::from(depth > 0)) {
        match pick(random, 10) {
            0 if depth < 2 => {
                let branches: Vec<Document> = (0..=pick(random, 3)).map(|_| self::filter(random, depth + 1)).collect();
                filter.insert(["$or", "$or", "$and", "$nor"][pick(random, 4) as usize], branches);
            }
            1 => {
                let mut element = Document::new();
                element.insert("x", operators(random));
                if random.next_u64() & 1 == 1 {
                    element.insert("y", operators(random));
                }
                filter.insert("d", doc! { "$elemMatch": element });
            }
            _ => {
                filter.insert(path(random), operators(random));
            }
        }
    }
    filter
}

fn partial(random: &SeededRandom) -> Document {
    match pick(random, 4) {
        0 => doc! { "b": { "$exists": true } },
        1 => doc! { "a": { "$gte": 2 } },
        2 => doc! { "a": { "$type": "number" } },
        _ => doc! { "c": { "$lt": 4 }, "a": { "$in": [1, 2, 3] } },
    }
}

struct Case {
    fixture: Fixture,
    seed: u64,
    /// By `_id`.
    documents: BTreeMap<i32, RawDocumentBuf>,
    context: ExpressionContext,
}

fn id_of(document: &RawDocument) -> i32 {
    document.get_i32("_id").expect("results keep their _id")
}

impl Case {
    fn new(seed: u64) -> Self {
        let random = SeededRandom::new(seed);
        let fixture = Fixture::new(seed);
        fixture.create("c", RawDocumentBuf::new());
        let mut case = Self {
            fixture,
            seed,
            documents: BTreeMap::new(),
            context: ExpressionContext::new(0, Arc::new(SeededRandom::new(seed))),
        };
        let before = pick(&random, 2) == 0;
        if before {
            case.make_indexes(&random);
        }
        let arrays = pick(&random, 3) != 0;
        for id in 0..40 + pick(&random, 100) as i32 {
            let mut document = document(&random, id);
            if !arrays {
                let flat = |value: Bson| {
                    if matches!(value, Bson::Array(_)) {
                        Bson::Int32(1)
                    } else {
                        value
                    }
                };
                document = document.into_iter().map(|(name, value)| (name, flat(value))).collect();
            }
            let document = raw(&document);
            match case.fixture.insert("c", &document) {
                Ok(_) => {
                    case.documents.insert(id, document);
                }
                Err(StorageError::DuplicateKey(_) | StorageError::CannotIndexParallelArrays(_)) => {}
                Err(StorageError::CannotMakeKey(_)) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
        }
        if !before {
            case.make_indexes(&random);
        }
        case
    }

    fn make_indexes(&self, random: &SeededRandom) {
        for _ in 0..2 + pick(random, 4) {
            let options = match pick(random, 8) {
                0 => doc! { "sparse": true },
                1 => doc! { "unique": true, "sparse": true },
                2 | 3 => doc! { "partialFilterExpression": partial(random) },
                _ => doc! {},
            };
            // A build may meet duplicates or parallel arrays, or an index that is there already.
            let _ = self.fixture.index("c", raw(&key(random)), raw(&options));
        }
    }

    fn check(&self, random: &SeededRandom) {
        let filter = raw(&filter(random, 0));
        let sort = (pick(random, 2) == 0).then(|| raw(&key(random)));
        let (skip, limit) = match pick(random, 3) {
            0 => (pick(random, 4), Some(1 + pick(random, 20))),
            _ => (0, None),
        };
        let projection = match pick(random, 3) {
            0 => {
                let mut paths: Vec<&str> = (0..=pick(random, 2)).map(|_| path(random)).collect();
                paths.sort_unstable();
                paths.dedup();
                let collides = |path: &&str| paths.iter().any(|other| path.starts_with(&format!("{other}.")));
                let spec = raw(&paths
                    .iter()
                    .filter(|path| !collides(path))
                    .map(|path| ((*path).to_owned(), Bson::Int32(1)))
                    .collect());
                Projection::parse(&spec, None, &self.context).is_ok().then_some(spec)
            }
            _ => None,
        };
        let batch = 1 + pick(random, 60) as usize;
        let described = format!(
            "seed {}: filter {:?} sort {:?} skip {skip} limit {limit:?} projection {:?}",
            self.seed,
            plain(&filter),
            sort.as_deref().map(plain),
            projection.as_deref().map(plain)
        );
        let matcher = Matcher::parse(&filter, &self.context).unwrap_or_else(|error| panic!("{described}: {error}"));
        let matches: Vec<i32> = self
            .documents
            .iter()
            .filter(|(_, document)| matcher.matches(document).expect("matchable"))
            .map(|(id, _)| *id)
            .collect();
        let mut keys = match sort.as_deref().map(parse_sort) {
            Some(Ok(Order::Fields(fields))) => Some(SortKeys::new(&fields).expect("a sort")),
            _ => None,
        };
        let mut sort_key = |id: &i32| -> Option<Vec<u8>> {
            let keys = keys.as_mut()?;
            keys.key(&self.documents[id]).ok().map(<[u8]>::to_vec)
        };
        let mut wanted: Vec<Option<Vec<u8>>> = matches.iter().map(&mut sort_key).collect();
        if sort.is_some() && wanted.iter().any(Option::is_none) {
            return; // Parallel arrays cannot be sorted.
        }
        wanted.sort();
        let end = limit
            .map_or(wanted.len(), |limit| (skip + limit) as usize)
            .min(wanted.len());
        let wanted = &wanted[(skip as usize).min(end)..end];

        let natural = raw(&doc! { "$natural": -1 });
        let collection = self
            .fixture
            .storage
            .catalog()
            .collection(&ns("c"))
            .expect("the collection exists");
        let usable = collection
            .indexes()
            .iter()
            .filter(|index| !index.sparse() && index.partial_filter().is_none());
        let mut hints: Vec<Option<Hint<'_>>> = vec![None, None, Some(Hint::Key(&natural))];
        hints.extend(usable.map(|index| Some(Hint::Name(index.name()))));
        let project = projection
            .as_deref()
            .map(|spec| Projection::parse(spec, None, &self.context).expect("a projection"));
        for hint in hints {
            let request = FindRequest {
                sort: sort.as_deref(),
                projection: projection.as_deref(),
                skip,
                limit,
                hint,
                ..FindRequest::new(ns("c"), &filter)
            };
            let mut executor = self
                .fixture
                .with(|context| find(context, &request))
                .unwrap_or_else(|error| panic!("{described} hint {hint:?}: {error}"));
            let described = format!("{described} hint {hint:?} plan {}", executor.plan_summary());
            let results = self.fixture.all(&mut executor, batch);
            let mut ids: Vec<i32> = results.iter().map(|document| id_of(document)).collect();
            let order: Vec<Option<Vec<u8>>> = ids.iter().map(&mut sort_key).collect();
            assert_eq!(order, wanted, "{described}: order; got {ids:?} of {matches:?}");
            for (document, id) in results.iter().zip(&ids) {
                let mut expected = self.documents[id].as_bytes().to_vec();
                if let Some(project) = &project {
                    expected.clear();
                    project
                        .apply(&self.documents[id], None, &mut expected)
                        .expect("projected");
                }
                assert_eq!(document.as_bytes(), expected, "{described}: document {id}");
            }
            ids.sort_unstable();
            let before = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), before, "{described}: twice");
            assert!(
                ids.iter().all(|id| matches.contains(id)),
                "{described}: {ids:?} of {matches:?}"
            );
            if limit.is_none() && skip == 0 {
                assert_eq!(ids, matches, "{described}: {:?}", self.differing(&ids, &matches));
            }
        }
        self.check_count_and_distinct(random, &filter, &matches, &described);
    }

    fn differing(&self, a: &[i32], b: &[i32]) -> Vec<Document> {
        let only = |x: &[i32], y: &[i32]| -> Vec<Document> {
            x.iter()
                .filter(|id| !y.contains(id))
                .map(|id| plain(&self.documents[id]))
                .collect()
        };
        [only(a, b), only(b, a)].concat()
    }

    fn check_count_and_distinct(&self, random: &SeededRandom, filter: &RawDocument, matches: &[i32], described: &str) {
        let counted = self
            .fixture
            .with(|context| count(context, &CountRequest::new(ns("c"), filter)))
            .expect("counted");
        assert_eq!(counted, matches.len() as u64, "{described}: count");
        let path = path(random);
        let request = DistinctRequest::new(ns("c"), path, filter);
        let encode = |value: &Bson| {
            let raw = bson::RawBson::try_from(value.clone()).expect("encodable");
            crate::plan::encode::encode(raw.as_raw_bson_ref())
        };
        let values = self
            .fixture
            .with(|context| distinct(context, &request))
            .expect("distinct values");
        let mut found: Vec<Vec<u8>> = values.iter().map(encode).collect();
        found.sort_unstable();
        let mut wanted = crate::exec::distinct::DistinctValues::new(path).expect("a path");
        for id in matches {
            wanted.add_document(&self.documents[id]).expect("walked");
        }
        let mut wanted: Vec<Vec<u8>> = wanted.list.iter().map(encode).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{described}: distinct {path}");
    }
}

#[test]
fn every_plan_agrees_with_a_scan() {
    let first: u64 = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let cases: u64 = std::env::var("CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(60);
    println!("seeds {first}..{}", first + cases);
    for seed in first..first + cases {
        let case = Case::new(seed);
        let random = SeededRandom::new(seed ^ 0xABCD);
        for _ in 0..40 {
            case.check(&random);
        }
    }
}
