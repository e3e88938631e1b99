//! What a text index finds, and how it scores, is what its definition says of each document: random documents, searches
//! and conditions beside them.

use super::count;
use super::fixture::{Fixture, ns, pick, plain, seeds};
use super::generate::raw;
use crate::EvaluationContext;
use crate::exec::find;
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::plan::{CountRequest, FindRequest};
use bson::{Bson, Document, RawDocumentBuf, doc};
use keys::TextSpec;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::StorageError;
use text::{Analyzer, Folding, Language, Scores};
use vfs::SeededRandom;

const WORDS: [&str; 16] = [
    "run", "running", "Runner", "dog", "dogs", "the", "a", "café", "Cafe", "tea", "ship", "shipping", "Haus", "Häuser",
    "x-ray", "don't",
];
const LANGUAGES: [&str; 4] = ["none", "german", "en", "fr"];

fn some<'w>(random: &SeededRandom, list: &[&'w str]) -> &'w str {
    list[pick(random, list.len() as u64) as usize]
}

fn words(random: &SeededRandom, most: u64) -> String {
    let count = pick(random, most);
    let words: Vec<&str> = (0..count).map(|_| some(random, &WORDS)).collect();
    words.join([" ", ", ", "  "][pick(random, 3) as usize])
}

fn document(random: &SeededRandom, id: i32) -> Document {
    let mut document = doc! { "_id": id, "s": pick(random, 5) as i32 };
    if pick(random, 4) != 0 {
        document.insert("p", pick(random, 3) as i32);
    }
    if pick(random, 5) != 0 {
        document.insert("t", words(random, 8));
    }
    let tags: Vec<Bson> = (0..pick(random, 3)).map(|_| words(random, 3).into()).collect();
    let mut inner = doc! { "tags": tags };
    if pick(random, 4) == 0 {
        inner.insert("language", some(random, &LANGUAGES));
    }
    document.insert("in", inner);
    if pick(random, 6) == 0 {
        document.insert("language", some(random, &LANGUAGES));
    }
    document
}

fn search(random: &SeededRandom) -> Document {
    let mut search = words(random, 4);
    if pick(random, 4) == 0 {
        search += &format!(" -{}", some(random, &WORDS));
    }
    if pick(random, 4) == 0 {
        search += &format!(" \"{}\"", words(random, 3));
    }
    let mut text = doc! { "$search": search };
    if pick(random, 5) == 0 {
        text.insert("$language", some(random, &LANGUAGES));
    }
    if pick(random, 5) == 0 {
        text.insert("$caseSensitive", true);
    }
    if pick(random, 5) == 0 {
        text.insert("$diacriticSensitive", true);
    }
    text
}

/// The sum of the scores of the terms of a search, from the document alone.
fn score(spec: &TextSpec, document: &RawDocumentBuf, terms: &[String]) -> f64 {
    let mut analyzer = Analyzer::new(Language::None, Folding::default());
    let mut scores = Scores::new();
    let looked = spec.texts::<keys::ExtractError>(document, &mut |text, language, weight| {
        analyzer.set_language(language);
        scores.add(text, &mut analyzer, weight);
        Ok(())
    });
    looked.expect("languages that there are");
    let wanted = scores
        .iter()
        .filter(|(term, _)| terms.iter().any(|other| other == term));
    wanted.map(|(_, score)| score).sum()
}

struct Case {
    fixture: Fixture,
    documents: BTreeMap<i32, RawDocumentBuf>,
    has_prefix: bool,
}

impl Case {
    fn new(random: &SeededRandom, seed: u64) -> Self {
        let fixture = Fixture::new(seed);
        fixture.create("c", raw(&doc! {}));
        let has_prefix = pick(random, 2) == 0;
        let mut case = Self {
            fixture,
            documents: BTreeMap::new(),
            has_prefix,
        };
        let is_first = pick(random, 2) == 0;
        if is_first {
            case.make_index(random);
        }
        let mut records = Vec::new();
        for id in 0..80 {
            let document = raw(&document(random, id));
            records.push((id, case.fixture.insert("c", &document).expect("inserted")));
            case.documents.insert(id, document);
        }
        if !is_first {
            case.make_index(random);
        }
        for (id, record) in records {
            let mut changed = match pick(random, 4) {
                0 => document(random, id),
                1 => plain(&case.documents[&id]),
                2 => {
                    case.fixture.delete("c", record);
                    case.documents.remove(&id);
                    continue;
                }
                _ => continue,
            };
            changed.insert("language", some(random, &LANGUAGES));
            let changed = raw(&changed);
            case.fixture.replace("c", record, &changed);
            case.documents.insert(id, changed);
        }
        let refused = case
            .fixture
            .insert("c", &raw(&doc! { "_id": -1, "language": "nonsense", "t": "x" }));
        assert!(
            matches!(refused, Err(StorageError::CannotIndex(17262, _))),
            "{refused:?}"
        );
        case
    }

    fn make_index(&self, random: &SeededRandom) {
        let weights = match pick(random, 2) {
            0 => doc! { "t": 3, "in.tags": 1 },
            _ => doc! { "$**": 1, "t": 2.5 },
        };
        let mut key = match self.has_prefix {
            true => doc! { "p": 1 },
            false => doc! {},
        };
        key.extend(doc! { "_fts": "text", "_ftsx": 1, "s": -1 });
        let options = doc! { "weights": weights, "default_language": "english", "language_override": "language" };
        self.fixture.index("c", raw(&key), raw(&options)).expect("an index");
        self.fixture
            .index("c", raw(&doc! { "s": 1 }), raw(&doc! {}))
            .expect("an index");
    }

    fn check(&self, random: &SeededRandom, described: &str) -> usize {
        let mut filter = doc! { "$text": search(random) };
        if pick(random, 3) == 0 {
            let other = doc! { "s": pick(random, 5) as i32 };
            filter = doc! { "$or": [other, filter] };
        }
        if self.has_prefix {
            filter.insert("p", [Bson::Null, 0.into(), 1.into()][pick(random, 3) as usize].clone());
        }
        if pick(random, 3) == 0 {
            filter.insert("s", doc! { "$gte": pick(random, 4) as i32 });
        }
        let filter = raw(&filter);
        let described = format!("{described} {filter:?}");
        let context = ExpressionContext::new(0, Arc::new(SeededRandom::new(1)));
        let matcher = Matcher::parse_ordered(&filter, &context).expect("a filter");
        let collection = self.fixture.storage.catalog().collection(&ns("c")).expect("there");
        let spec = collection
            .indexes()
            .iter()
            .find_map(|index| index.text())
            .expect("a text index");
        let test = matcher.text().expect("a search");
        let evaluation = EvaluationContext::uninterrupted();
        let search = test.bind(spec, &evaluation).expect("a search that nothing ends");
        let terms: Vec<String> = search.terms().map(str::to_owned).collect();
        let matching = self
            .documents
            .iter()
            .filter(|(_, document)| matcher.matches(document, &evaluation).expect("matchable"));
        let expected: BTreeMap<i32, f64> = matching
            .map(|(id, document)| (*id, score(spec, document, &terms)))
            .collect();

        let run = |projection: Option<&RawDocumentBuf>, sort: Option<&RawDocumentBuf>| {
            let request = FindRequest {
                projection: projection.map(|projection| &**projection),
                sort: sort.map(|sort| &**sort),
                ..FindRequest::new(ns("c"), &filter)
            };
            let mut executor = self.fixture.with(|context| find(context, &request)).expect("planned");
            self.fixture.all(&mut executor, 1 + pick(random, 7) as usize)
        };
        let ids = |found: &[RawDocumentBuf]| {
            let mut ids: Vec<i32> = found
                .iter()
                .map(|document| document.get_i32("_id").expect("an _id"))
                .collect();
            ids.sort_unstable();
            ids
        };
        let wanted: Vec<i32> = expected.keys().copied().collect();
        assert_eq!(ids(&run(None, None)), wanted, "{described}");
        let meta = raw(&doc! { "m": { "$meta": "textScore" } });
        let scored = run(Some(&meta), None);
        assert_eq!(ids(&scored), wanted, "{described}: scored");
        for document in &scored {
            let id = document.get_i32("_id").expect("an _id");
            // By another branch of an `$or` it has none.
            if let Ok(found) = document.get_f64("m") {
                assert!(
                    (found - expected[&id]).abs() < 1e-9,
                    "{described}: {id} scored {found}, not {}",
                    expected[&id]
                );
            } else {
                assert!(filter.get_array("$or").is_ok(), "{described}: {id} has no score");
            }
        }
        let sorted = run(Some(&meta), Some(&meta));
        assert_eq!(ids(&sorted), wanted, "{described}: sorted");
        let order: Vec<f64> = sorted
            .iter()
            .map(|document| document.get_f64("m").unwrap_or(-1.0))
            .collect();
        assert!(order.is_sorted_by(|a, b| a >= b), "{described}: {order:?}");
        let counted = self
            .fixture
            .with(|context| count(context, &CountRequest::new(ns("c"), &filter)));
        assert_eq!(counted.expect("counted"), wanted.len() as u64, "{described}: counted");
        wanted.len()
    }
}

#[test]
fn searches_find_and_score_what_documents_have() {
    let mut found = 0;
    let seeds = seeds(20);
    let cases = seeds.end - seeds.start;
    for seed in seeds {
        let random = SeededRandom::new(seed);
        let case = Case::new(&random, seed);
        for _ in 0..30 {
            found += case.check(&random, &format!("seed {seed}"));
        }
    }
    assert!(found as u64 > 30 * cases, "{found} documents were found");
}
