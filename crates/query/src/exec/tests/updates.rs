//! Random updates of random documents, which a model makes, too: what comes out, and what is read afterwards by the
//! plans of a collection whose indexes followed.

use super::fixture::{Fixture, ns, pick, plain, seeds};
use super::generate::{self, document, filter, indexable_filter, key, partial, path, raw, wildcard};
use super::update_model::{Operator, Push, Update, Verdict};
use crate::EvaluationContext;
use crate::exec::find;
use crate::expression::ExpressionContext;
use crate::matcher::{MatchDetails, Matcher};
use crate::plan::FindRequest;
use crate::update::{self, UpdateContext};
use bson::{Bson, DateTime, Document, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp, doc, rawdoc};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{RecordId, StorageError};
use vfs::SeededRandom;

const NOW: UpdateContext = UpdateContext {
    now_ms: 1_000_000,
    timestamp: Timestamp { time: 7, increment: 9 },
    keep_empty_timestamps: false,
    details: MatchDetails { array_index: None },
};

const DECIMALS: [&str; 9] = ["1", "1.0", "2.50", "NaN", "Infinity", "-Infinity", "0E+3", "-0", "-3.7"];

fn number(random: &SeededRandom) -> Bson {
    match pick(random, 9) {
        0 => Bson::Int64(pick(random, 7) as i64 - 3),
        1 => Bson::Int64(i64::MAX - pick(random, 2) as i64),
        2 => Bson::Int32(i32::MAX - pick(random, 2) as i32),
        3 => Bson::Double(pick(random, 9) as f64 / 2.0 - 2.0),
        4 => Bson::Double([f64::NAN, -0.0, f64::INFINITY, 0.1][pick(random, 4) as usize]),
        5 | 6 => Bson::Decimal128(DECIMALS[pick(random, 9) as usize].parse().expect("a decimal")),
        _ => Bson::Int32(pick(random, 7) as i32 - 3),
    }
}

fn value(random: &SeededRandom) -> Bson {
    match pick(random, 3) {
        0 => number(random),
        _ => generate::value(random, 1),
    }
}

fn values(random: &SeededRandom) -> Vec<Bson> {
    (0..pick(random, 4)).map(|_| value(random)).collect()
}

fn operator(random: &SeededRandom) -> Operator {
    let maybe = |from: i32, below: u64| (pick(random, 3) == 0).then(|| from + pick(random, below) as i32);
    match pick(random, 16) {
        0..=2 => Operator::Set(value(random)),
        3 => Operator::Unset,
        4 | 5 => Operator::Inc(number(random)),
        6 => Operator::Mul(number(random)),
        7 => Operator::Min(value(random)),
        8 => Operator::Max(value(random)),
        9 => match pick(random, 2) {
            0 => Operator::CurrentDate,
            _ => Operator::SetOnInsert(value(random)),
        },
        10 | 11 => Operator::Push(Push {
            each: values(random),
            position: maybe(-3, 7),
            slice: maybe(-3, 7),
            sort: maybe(0, 2).map(|direction| if direction == 0 { 1 } else { -1 }),
        }),
        12 => Operator::AddToSet(values(random)),
        13 => Operator::Pop(if pick(random, 2) == 0 { 1 } else { -1 }),
        14 => match pick(random, 5) {
            0 => Operator::Pull(doc! { "$gte": pick(random, 5) as i32 }.into()),
            1 => Operator::Pull(doc! { "x": pick(random, 5) as i32 }.into()),
            2 => Operator::PullAll(values(random)),
            _ => loop {
                // A null matches what is undefined, and a regular expression what it matches.
                let value = value(random);
                let is_plain = !matches!(
                    value,
                    Bson::Document(_) | Bson::Null | Bson::Undefined | Bson::RegularExpression(_)
                );
                if is_plain {
                    break Operator::Pull(value);
                }
            },
        },
        _ => {
            let by = match pick(random, 2) {
                0 => Bson::Int32(pick(random, 8) as i32),
                _ => Bson::Int64(pick(random, 8) as i64),
            };
            Operator::Bit(["and", "or", "xor"][pick(random, 3) as usize], by)
        }
    }
}

fn random_update(random: &SeededRandom) -> Update {
    let mut update = Update {
        leaves: Vec::new(),
        filter: None,
        now: DateTime::from_millis(NOW.now_ms),
    };
    let mut roots: Vec<&str> = Vec::new();
    let root = |path: &str| -> &'static str {
        let first = path.split('.').next().unwrap_or_default();
        ["a", "b", "c", "d", "e"]
            .into_iter()
            .find(|name| *name == first)
            .expect("a root")
    };
    match pick(random, 6) {
        0 => {
            let path = ["a.$[e]", "d.$[e].x", "b.$[e]", "d.$[e].z.w"][pick(random, 4) as usize];
            let on = if path.len() > 6 { "e.x" } else { "e" };
            let condition = match pick(random, 3) {
                0 => value(random),
                1 => doc! { "$gte": pick(random, 4) as i32 }.into(),
                _ => doc! { "$exists": true }.into(),
            };
            let is_plain = !matches!(condition, Bson::RegularExpression(_) | Bson::Undefined);
            update.filter = Some(doc! { on: if is_plain { condition } else { 1.into() } });
            update.leaves.push((path.to_owned(), operator(random)));
            roots.push(root(path));
        }
        1 => {
            let path = ["a.$[]", "d.$[].x", "d.$[].z.w", "a.$[].$[]"][pick(random, 4) as usize];
            update.leaves.push((path.to_owned(), operator(random)));
            roots.push(root(path));
        }
        2 => {
            let names = ["a", "b", "c", "e"];
            let at = pick(random, 4) as usize;
            let to = names[(at + 1 + pick(random, 3) as usize) % 4];
            update.leaves.push((names[at].to_owned(), Operator::Rename(to)));
            roots.extend([names[at], to]);
        }
        _ => {}
    }
    let has_special = !roots.is_empty();
    for _ in 0..1 + pick(random, 3) {
        let path = path(random);
        let is_below = |one: &str, other: &str| one == other || one.starts_with(&format!("{other}."));
        let conflicts = update
            .leaves
            .iter()
            .any(|(other, _)| is_below(path, other) || is_below(other, path));
        if !(conflicts || has_special && roots.contains(&root(path))) {
            update.leaves.push((path.to_owned(), operator(random)));
        }
    }
    update
}

/// One that mostly is not refused for this document.
fn fitting_update(random: &SeededRandom, document: &RawDocument) -> Update {
    let document = plain(document);
    loop {
        let update = random_update(random);
        if pick(random, 8) == 0 || update.apply(&document) != Err(Verdict::Refused) {
            return update;
        }
    }
}

/// A document with numbers at the edges, too.
fn some_document(random: &SeededRandom, id: i32) -> Document {
    let mut document = document(random, id);
    for name in ["a", "b", "c", "e"] {
        if pick(random, 4) == 0 {
            document.insert(name, number(random));
        }
    }
    document
}

fn context() -> ExpressionContext {
    ExpressionContext::new(0, Arc::new(SeededRandom::new(11)))
}

/// What the update makes of a document: the bytes, nothing when it changes nothing, or a refusal.
fn applied(update: &Update, document: &RawDocument) -> Result<Option<RawDocumentBuf>, crate::QueryError> {
    let filters = Vec::from_iter(update.filter.clone());
    let written = raw(&doc! { "u": update.written(), "f": filters });
    let filters = written.get_array("f").expect("filters");
    let parsed = update::Update::parse(
        RawBsonRef::Document(written.get_document("u").expect("an update")),
        update.filter.is_some().then_some(filters),
        &context(),
    )?;
    let changed = parsed.apply(document, &NOW, &EvaluationContext::uninterrupted())?;
    Ok(changed.map(|bytes| RawDocumentBuf::from_bytes(bytes).expect("a document")))
}

/// What the update makes of a document, which is what the model makes of it.
fn agreed(update: &Update, document: &RawDocument, story: &str) -> Option<RawDocumentBuf> {
    let before = plain(document);
    let found = applied(update, document);
    let wanted = update.apply(&before);
    let story = || format!("{story}: {} {:?} on {before:?}", update.written(), update.filter);
    match (found, wanted) {
        (Ok(found), Ok(wanted)) => {
            if let Some(found) = &found {
                assert!(**found != *document, "{}: changed into itself", story());
            }
            let found = found.unwrap_or_else(|| document.to_owned());
            let is_same = found.as_bytes() == raw(&wanted).as_bytes();
            assert!(is_same, "{}\n{:?}\ninstead of\n{wanted:?}", story(), plain(&found));
            Some(found)
        }
        (Err(_), Err(Verdict::Refused)) => None,
        // Another of its operators may be refused.
        (found, Err(Verdict::Unknown)) => found.ok().map(|found| found.unwrap_or_else(|| document.to_owned())),
        (found, wanted) => panic!("{}\n{found:?}\ninstead of\n{wanted:?}", story()),
    }
}

#[test]
fn operators_do_what_the_model_does() {
    let (mut refused, mut changed, mut compared) = (0_u64, 0_u64, 0_u64);
    for seed in seeds(100) {
        let random = SeededRandom::new(seed);
        for id in 0..50 {
            let before = raw(&some_document(&random, id));
            let after = agreed(&fitting_update(&random, &before), &before, &format!("seed {seed}"));
            refused += u64::from(after.is_none());
            changed += u64::from(after.is_some_and(|after| after != before));
            compared += 1;
        }
    }
    println!("{compared} updates compared, {changed} changed the document, {refused} were refused");
    assert!(changed * 2 > compared && refused * 20 > compared);
}

struct Case {
    fixture: Fixture,
    documents: BTreeMap<i32, (RecordId, RawDocumentBuf)>,
}

impl Case {
    fn new(random: &SeededRandom, seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        fixture.create("c", rawdoc! {});
        for _ in 0..1 + pick(random, 4) {
            let mut options = match pick(random, 7) {
                0 => doc! { "sparse": true },
                1 => doc! { "unique": true, "sparse": true },
                2 => doc! { "partialFilterExpression": partial(random) },
                3 => doc! { "clustering": true },
                _ => doc! {},
            };
            let key = match pick(random, 6) {
                0 => wildcard(random, &mut options),
                _ => key(random),
            };
            // Some are refused, such as one that is there already.
            drop(fixture.index("c", raw(&key), raw(&options)));
        }
        let mut documents = BTreeMap::new();
        for id in 0..40 {
            let document = raw(&some_document(random, id));
            if let Ok(record) = fixture.insert("c", &document) {
                documents.insert(id, (record, document));
            }
        }
        Self { fixture, documents }
    }

    /// The `_id`s of what a filter finds, by the plan that is chosen; each document is what the model has.
    fn find(&self, random: &SeededRandom, filter: &Document, story: &str) -> Vec<i32> {
        let filter = raw(filter);
        let request = FindRequest::new(ns("c"), &filter);
        let mut executor = self.fixture.with(|context| find(context, &request)).expect("planned");
        let results = self.fixture.all(&mut executor, 1 + pick(random, 50) as usize);
        let mut found: Vec<i32> = Vec::new();
        for result in &results {
            let id = result.get_i32("_id").expect("an _id");
            let (_, known) = &self.documents[&id];
            assert_eq!(
                result.as_bytes(),
                known.as_bytes(),
                "{story}: {filter:?}: {result:?}, {known:?}"
            );
            found.push(id);
        }
        found.sort_unstable();
        let matcher = Matcher::parse(&filter, &context()).expect("a filter");
        let evaluation = EvaluationContext::uninterrupted();
        let matching = self
            .documents
            .iter()
            .filter(|(_, (_, document))| matcher.matches(document, &evaluation).expect("matchable"));
        let wanted: Vec<i32> = matching.map(|(id, _)| *id).collect();
        assert_eq!(found, wanted, "{story}: {filter:?} by {}", executor.plan_summary().text);
        found
    }

    /// Writes what became of a document, unless an index refuses it.
    fn write(&mut self, id: i32, changed: RawDocumentBuf, story: &str) {
        let (record, document) = self.documents.get_mut(&id).expect("there");
        match self.fixture.try_replace("c", record.clone(), &changed) {
            Ok(()) => *document = changed,
            Err(StorageError::DuplicateKey(_) | StorageError::CannotIndexParallelArrays(_)) => {}
            Err(StorageError::CannotMakeKey(_) | StorageError::CannotIndex(16746 | 16766 | 7_246_301, _)) => {}
            Err(other) => panic!("{story}: {other}"),
        }
    }
}

fn some_filter(random: &SeededRandom) -> Document {
    match pick(random, 2) {
        0 => filter(random, 0),
        _ => indexable_filter(random),
    }
}

#[test]
fn what_was_updated_is_found() {
    let (mut updated, mut asked) = (0_u64, 0_u64);
    for seed in seeds(40) {
        let random = SeededRandom::new(seed);
        let mut case = Case::new(&random, seed);
        for step in 0..50 {
            let story = format!("seed {seed}, step {step}");
            let found = case.find(&random, &some_filter(&random), &story);
            let first = found.first().map(|id| &case.documents[id].1);
            let update = first.map_or_else(|| random_update(&random), |first| fitting_update(&random, first));
            for id in found.into_iter().take(4) {
                let (_, before) = &case.documents[&id];
                // What grows without end is begun again.
                let after = match before.as_bytes().len() {
                    ..2000 => agreed(&update, before, &story),
                    _ => Some(raw(&some_document(&random, id))),
                };
                updated += 1;
                if let Some(after) = after {
                    case.write(id, after, &story);
                }
                case.find(&random, &doc! { "_id": id }, &story);
            }
            case.find(&random, &some_filter(&random), &story);
            asked += 2;
        }
        case.find(&random, &doc! {}, &format!("seed {seed}, at the end"));
    }
    println!("{updated} updates compared, {asked} filters compared");
    assert!(updated > asked / 2);
}
