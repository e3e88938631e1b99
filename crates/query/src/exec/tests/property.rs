//! Every plan gives what a scan with the matcher gives: random documents, indexes, filters, sorts, limits and
//! projections.

use super::fixture::{Fixture, ns, pick, plain, seeds};
use super::generate::{collation, document, filter, indexable_filter, key, partial, path, raw, wildcard};
use super::{count, distinct};
use crate::EvaluationContext;
use crate::exec::describe::{Detail, SizeBudget, describe};
use crate::exec::executor::{Body, Planned};
use crate::exec::sort_key::SortKeys;
use crate::exec::stage::Stage;
use crate::exec::{PlanExecutor, find};
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::plan::planner::Planner;
use crate::plan::query::{Order, Query, Wish, collation_of, parse_sort};
use crate::plan::{CountRequest, DistinctRequest, FindRequest, Hint};
use crate::project::Projection;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use collation::Collation;
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::StorageError;
use vfs::SeededRandom;
use wire::ErrorCode;

/// A random query.
struct Asked {
    filter: RawDocumentBuf,
    sort: Option<RawDocumentBuf>,
    projection: Option<RawDocumentBuf>,
    skip: u64,
    limit: Option<u64>,
    batch: usize,
    collation: Option<RawDocumentBuf>,
    /// What that means on the collection.
    context: ExpressionContext,
}

impl Asked {
    fn request<'a>(&'a self, hint: Option<Hint<'a>>) -> FindRequest<'a> {
        FindRequest {
            sort: self.sort.as_deref(),
            projection: self.projection.as_deref(),
            skip: self.skip,
            limit: self.limit,
            hint,
            collation: self.collation.as_deref(),
            ..FindRequest::new(ns("c"), &self.filter)
        }
    }
}

/// What a scan finds.
struct Reference {
    /// Every match, by `_id`.
    matches: Vec<i32>,
    /// Sort keys of the results in order; `None`s without a sort.
    order: Vec<Option<Vec<u8>>>,
}

struct Case {
    fixture: Fixture,
    seed: u64,
    /// By `_id`.
    documents: BTreeMap<i32, RawDocumentBuf>,
    context: ExpressionContext,
    /// There are collations.
    collates: bool,
    /// Plans that ran with results, by their stages.
    plans: BTreeMap<String, usize>,
}

/// Names and values, by name.
fn fields(document: &RawDocument) -> BTreeMap<String, String> {
    document
        .iter()
        .flatten()
        .map(|(name, value)| (name.as_str().to_owned(), format!("{value:?}")))
        .collect()
}

/// The stages of a plan, outermost first.
fn stages(executor: &PlanExecutor) -> String {
    fn names(stage: &Stage, out: &mut Vec<String>) {
        let plan = describe(stage, Detail::Plan, &mut SizeBudget::of_explanation());
        let is_clustering = plan.contains_key("isClustering");
        let mark = if is_clustering { " clustering" } else { "" };
        let is_wildcard = plan
            .get_document("keyPattern")
            .is_ok_and(|key| key.contains_key("$_path"));
        let mark = if is_wildcard { " wildcard" } else { mark };
        out.push(format!("{}{mark}", plan.get_str("stage").expect("a stage")));
        stage.inputs().first().into_iter().for_each(|input| names(input, out));
    }
    let mut out = Vec::new();
    if let Body::Plan(planned) = &executor.body {
        names(&planned.stage, &mut out);
    }
    out.join("/")
}

/// A condition on `_id`.
fn id_condition(random: &SeededRandom) -> Document {
    let id = || pick(random, 150) as i32;
    match pick(random, 6) {
        0 => doc! { "$eq": id() },
        1 => doc! { "$in": [id(), id(), id(), "x"] },
        2 => doc! { "$gte": id() },
        3 => doc! { "$lt": id() },
        4 => doc! { "$gt": id(), "$lte": id() },
        _ => doc! { "$ne": id() },
    }
}

fn id_of(document: &RawDocument) -> i32 {
    document.get_i32("_id").expect("results keep their _id")
}

impl Case {
    fn new(seed: u64, is_clustered: bool) -> Self {
        let random = SeededRandom::new(seed);
        let fixture = Fixture::new(seed);
        let collates = seed.is_multiple_of(2);
        let options = collates.then(|| collation(&random)).flatten();
        let options = options.filter(|collation| collation.len() > 1);
        let whole = options.map(|collation| {
            let parsed = Collation::parse(&raw(&collation))
                .expect("a collation")
                .expect("not simple");
            doc! { "collation": plain(parsed.document()) }
        });
        let mut whole = whole.unwrap_or_default();
        if is_clustered {
            whole.insert(
                "clusteredIndex",
                doc! { "key": { "_id": 1 }, "unique": true, "name": "_id_" },
            );
        }
        fixture.create("c", raw(&whole));
        let mut case = Self {
            fixture,
            seed,
            documents: BTreeMap::new(),
            context: ExpressionContext::new(0, Arc::new(SeededRandom::new(seed))),
            collates,
            plans: BTreeMap::new(),
        };
        let before = pick(&random, 2) == 0;
        if before {
            case.make_indexes(&random);
        }
        let arrays = pick(&random, 3) != 0;
        let some_document = |id: i32| {
            let document = document(&random, id);
            if arrays {
                return raw(&document);
            }
            let flat = |value: Bson| {
                if matches!(value, Bson::Array(_)) {
                    Bson::Int32(1)
                } else {
                    value
                }
            };
            raw(&document.into_iter().map(|(name, value)| (name, flat(value))).collect())
        };
        let is_stored = |result: Result<(), StorageError>| match result {
            Ok(()) => true,
            Err(StorageError::DuplicateKey(_) | StorageError::CannotIndexParallelArrays(_)) => false,
            Err(StorageError::CannotMakeKey(_) | StorageError::CannotIndex(16746 | 16766 | 7_246_301, _)) => false,
            Err(other) => panic!("seed {seed}: {other}"),
        };
        let mut records = Vec::new();
        for id in 0..40 + pick(&random, 100) as i32 {
            let document = some_document(id);
            let inserted = case.fixture.insert("c", &document);
            if is_stored(inserted.map(|record| records.push((id, record)))) {
                case.documents.insert(id, document);
            }
        }
        if !before {
            case.make_indexes(&random);
        }
        // What rows carry follows what documents become, whether or not their keys change.
        for (id, record) in records {
            let changed = match pick(&random, 4) {
                0 => some_document(id),
                1 => {
                    let mut kept = plain(&case.documents[&id]);
                    kept.insert("f", pick(&random, 100) as i32);
                    raw(&kept)
                }
                _ => continue,
            };
            if is_stored(case.fixture.try_replace("c", record, &changed)) {
                case.documents.insert(id, changed);
            }
        }
        case
    }

    fn make_indexes(&self, random: &SeededRandom) {
        for _ in 0..2 + pick(random, 4) {
            let mut options = match pick(random, 8) {
                0 => doc! { "sparse": true },
                1 => doc! { "unique": true, "sparse": true },
                2 | 3 => doc! { "partialFilterExpression": partial(random) },
                _ => doc! {},
            };
            if pick(random, 3) == 0 {
                options.insert("clustering", true);
            }
            let asked = collation(random)
                .filter(|_| self.collates)
                .map(|collation| raw(&collation));
            let of_index = collation_of(asked.as_deref(), self.collection().collation()).expect("a collation");
            if let Some(of_index) = of_index {
                options.insert("collation", plain(of_index.document()));
            }
            // A build may meet duplicates or parallel arrays, or an index that is there already.
            let mut pattern = key(random);
            if !options.contains_key("unique") && pick(random, 5) == 0 {
                let place = pick(random, pattern.len() as u64) as usize;
                if let Some((_, kind)) = pattern.iter_mut().nth(place) {
                    *kind = "hashed".into();
                }
            }
            if pick(random, 4) == 0 {
                pattern = wildcard(random, &mut options);
            }
            let _ = self.fixture.index("c", raw(&pattern), raw(&options));
        }
    }

    fn ask(&self, random: &SeededRandom) -> Asked {
        let indexes = self.collection();
        let indexes = indexes.access_paths();
        let some_index = || {
            let key = plain(indexes[pick(random, indexes.len() as u64) as usize].key());
            // Of a wildcard index some path.
            let named = |(name, order): (String, Bson)| match name.contains('$') {
                true => (path(random).to_owned(), order),
                false => (name, order),
            };
            key.into_iter().map(named).collect::<Document>()
        };
        let mut filter = match pick(random, 3) {
            0 => indexable_filter(random),
            _ => filter(random, 0),
        };
        if self.collection().clustered_index().is_some() && pick(random, 3) == 0 {
            filter.insert("_id", id_condition(random));
        }
        let filter = raw(&filter);
        let sort = match pick(random, 4) {
            0 | 1 => None,
            2 => Some(raw(&key(random))),
            // Some fields of an index, either way round.
            _ => {
                let turn = if pick(random, 2) == 0 { 1 } else { -1 };
                let fields = some_index()
                    .into_iter()
                    .skip(pick(random, 2) as usize)
                    .take(1 + pick(random, 2) as usize);
                let fields: Document = fields
                    .map(|(name, value)| (name, (value.as_i32().unwrap_or(1) * turn).into()))
                    .collect();
                (!fields.is_empty()).then(|| raw(&fields))
            }
        };
        let (skip, limit) = match pick(random, 3) {
            0 => (pick(random, 4), Some(1 + pick(random, 20))),
            _ => (0, None),
        };
        let projection = match pick(random, 6) {
            0 | 1 => {
                let mut paths: Vec<String> = match pick(random, 2) {
                    0 => (0..=pick(random, 2)).map(|_| path(random).to_owned()).collect(),
                    _ => some_index().into_iter().take(2).map(|(name, _)| name).collect(),
                };
                paths.sort_unstable();
                paths.dedup();
                let collides = |path: &&String| paths.iter().any(|other| path.starts_with(&format!("{other}.")));
                let kept = paths
                    .iter()
                    .filter(|path| !collides(path))
                    .map(|path| (path.clone(), Bson::Int32(1)));
                Some(raw(&kept.collect()))
            }
            _ => None,
        };
        let collation = collation(random)
            .filter(|_| self.collates)
            .map(|collation| raw(&collation));
        let effective = collation_of(collation.as_deref(), self.collection().collation()).expect("a collation");
        Asked {
            context: self.context.clone().with_collation(effective),
            collation,
            filter,
            sort,
            projection,
            skip,
            limit,
            batch: 1 + pick(random, 60) as usize,
        }
    }

    fn collection(&self) -> Arc<storage::Collection> {
        self.fixture
            .storage
            .catalog()
            .collection(&ns("c"))
            .expect("the collection exists")
    }

    fn sort_keys(&self, asked: &Asked) -> Option<SortKeys> {
        match asked.sort.as_deref().map(parse_sort) {
            Some(Ok(Order::Fields(fields))) => {
                Some(SortKeys::new(&fields, asked.context.collation.as_ref()).expect("a sort"))
            }
            _ => None,
        }
    }

    /// Sort keys of these documents; `None` where there is no sort, or (see [`Case::reference`]) no key.
    fn order(&self, asked: &Asked, ids: &[i32]) -> Vec<Option<Vec<u8>>> {
        let mut keys = self.sort_keys(asked);
        let context = EvaluationContext::uninterrupted();
        let mut key = |id: &i32| {
            let key = keys.as_mut()?.key(&self.documents[id], None, &context);
            key.ok().map(<[u8]>::to_vec)
        };
        ids.iter().map(&mut key).collect()
    }

    /// `None` when the documents cannot be sorted: parallel arrays.
    fn reference(&self, asked: &Asked) -> Option<Reference> {
        let matcher = Matcher::parse(&asked.filter, &asked.context).expect("a filter");
        let matching = self.documents.iter().filter(|(_, document)| {
            matcher
                .matches(document, &EvaluationContext::uninterrupted())
                .expect("matchable")
        });
        let matches: Vec<i32> = matching.map(|(id, _)| *id).collect();
        let mut order = self.order(asked, &matches);
        if asked.sort.is_some() && order.iter().any(Option::is_none) {
            return None;
        }
        order.sort();
        let end = asked
            .limit
            .map_or(order.len(), |limit| (asked.skip + limit) as usize)
            .min(order.len());
        let order = order[(asked.skip as usize).min(end)..end].to_vec();
        Some(Reference { matches, order })
    }

    /// The plan as chosen (twice: the second time remembered), hinted at, and each candidate by force.
    fn executors(&self, asked: &Asked) -> Vec<(String, PlanExecutor)> {
        let collection = self.collection();
        let natural = raw(&doc! { "$natural": -1 });
        let usable = collection
            .access_paths()
            .iter()
            .filter(|index| !index.sparse() && index.partial_filter().is_none());
        let mut hints: Vec<Option<Hint<'_>>> = vec![None, None, Some(Hint::Key(&natural))];
        hints.extend(usable.map(|index| Some(Hint::Name(index.name()))));
        let chosen = hints.into_iter().filter_map(|hint| {
            match self.fixture.with(|context| find(context, &asked.request(hint))) {
                Ok(planned) => Some((format!("hint {hint:?}"), planned)),
                // A wildcard index has no path of the filter's.
                Err(error) if error.code() == Some(ErrorCode::NoQueryExecutionPlans) => {
                    assert!(
                        matches!(hint, Some(Hint::Name(name)) if name.contains('$')),
                        "{hint:?}: {error}"
                    );
                    None
                }
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        });
        let query = Query::parse(&asked.request(None), &asked.context).expect("a query");
        let planner = Planner {
            collection: &collection,
            query: &query,
            allowed: None,
            evaluation: &EvaluationContext::uninterrupted(),
        };
        let forced = planner
            .candidates(&Wish::None)
            .expect("candidates")
            .into_iter()
            .map(|candidate| {
                let stage = planner.build(&candidate).expect("a tree");
                let planned = Planned::new(stage, query.clone(), collection.clone());
                (
                    format!("candidate {:?}", candidate.choice()),
                    PlanExecutor::new(ns("c"), Body::Plan(Box::new(planned))),
                )
            });
        chosen.chain(forced).collect()
    }

    fn check(&mut self, random: &SeededRandom) {
        let asked = self.ask(random);
        let Some(reference) = self.reference(&asked) else {
            return;
        };
        let described = format!(
            "seed {}: collation {:?} filter {:?} sort {:?} skip {} limit {:?} projection {:?}",
            self.seed,
            asked.context.collation,
            plain(&asked.filter),
            asked.sort.as_deref().map(plain),
            asked.skip,
            asked.limit,
            asked.projection.as_deref().map(plain)
        );
        for (how, mut executor) in self.executors(&asked) {
            let results = self.fixture.all(&mut executor, asked.batch);
            let plan = stages(&executor);
            let described = format!("{described} {how} plan {plan} {}", executor.plan_summary().text);
            self.compare(&asked, &reference, &results, &plan, &described);
            if !results.is_empty() {
                *self.plans.entry(plan).or_default() += 1;
            }
        }
        self.check_count_and_distinct(random, &asked, &reference.matches, &described);
    }

    fn compare(&self, asked: &Asked, reference: &Reference, results: &[RawDocumentBuf], plan: &str, described: &str) {
        let mut ids: Vec<i32> = results.iter().map(|document| id_of(document)).collect();
        let matches = &reference.matches;
        assert_eq!(
            self.order(asked, &ids),
            reference.order,
            "{described}: order; got {ids:?} of {matches:?}"
        );
        let projection = asked.projection.as_deref();
        let project = projection.map(|spec| Projection::parse(spec, &asked.context).expect("a projection"));
        for (document, id) in results.iter().zip(&ids) {
            let mut expected = self.documents[id].as_bytes().to_vec();
            if let Some(project) = &project {
                expected.clear();
                project
                    .apply(
                        &self.documents[id],
                        None,
                        &EvaluationContext::uninterrupted(),
                        &mut expected,
                    )
                    .expect("projected");
            }
            if plan.contains("PROJECTION_COVERED") {
                // Fields come in the index' order.
                let expected = RawDocument::from_bytes(&expected).expect("a document");
                assert_eq!(fields(document), fields(expected), "{described}: document {id}");
            } else {
                assert_eq!(document.as_bytes(), expected, "{described}: document {id}");
            }
        }
        ids.sort_unstable();
        let before = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), before, "{described}: twice");
        assert!(
            ids.iter().all(|id| matches.contains(id)),
            "{described}: {:?}",
            self.differing(&ids, matches)
        );
        if asked.limit.is_none() && asked.skip == 0 {
            assert_eq!(&ids, matches, "{described}: {:?}", self.differing(&ids, matches));
        }
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

    fn check_count_and_distinct(&self, random: &SeededRandom, asked: &Asked, matches: &[i32], described: &str) {
        let filter = &asked.filter;
        let collator = asked.context.comparer.collator();
        let counted = self
            .fixture
            .with(|context| {
                let request = CountRequest {
                    collation: asked.collation.as_deref(),
                    ..CountRequest::new(ns("c"), filter)
                };
                count(context, &request)
            })
            .expect("counted");
        assert_eq!(counted, matches.len() as u64, "{described}: count");
        let path = path(random);
        let request = DistinctRequest {
            collation: asked.collation.as_deref(),
            ..DistinctRequest::new(ns("c"), path, filter)
        };
        let encode = |value: &Bson| {
            let raw = bson::RawBson::try_from(value.clone()).expect("encodable");
            crate::plan::encode::encode_with(raw.as_raw_bson_ref(), collator)
        };
        let values = self
            .fixture
            .with(|context| distinct(context, &request))
            .expect("distinct values");
        let mut found: Vec<Vec<u8>> = values.iter().map(encode).collect();
        found.sort_unstable();
        let evaluation = crate::EvaluationContext::uninterrupted();
        let mut wanted = crate::exec::distinct::DistinctValues::new(path, asked.context.collation.clone(), &evaluation)
            .expect("a path");
        for id in matches {
            wanted.add_document(&self.documents[id]).expect("walked");
        }
        let mut wanted: Vec<Vec<u8>> = wanted.into_list().iter().map(encode).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{described}: distinct {path}");
    }
}

/// Plans that had results in random cases, by their stages, each with how often it ran.
fn checked_plans(cases: u64, are_clustered: bool) -> BTreeMap<String, usize> {
    let mut plans: BTreeMap<String, usize> = BTreeMap::new();
    for seed in seeds(cases) {
        let mut case = Case::new(seed, are_clustered);
        let random = SeededRandom::new(seed ^ 0xABCD);
        for _ in 0..40 {
            case.check(&random);
        }
        case.plans
            .into_iter()
            .for_each(|(plan, times)| *plans.entry(plan).or_default() += times);
    }
    for (plan, times) in &plans {
        println!("{times:6} {plan}");
    }
    plans
}

#[test]
fn every_plan_of_a_clustered_collection_agrees_with_a_scan() {
    let plans = checked_plans(40, true);
    for end in [
        "CLUSTERED_IXSCAN",
        "LIMIT/CLUSTERED_IXSCAN",
        "SORT/CLUSTERED_IXSCAN",
        "OR/CLUSTERED_IXSCAN",
        "FETCH/IXSCAN",
        "FETCH/IXSCAN wildcard",
        "LIMIT/IXSCAN clustering",
        "COLLSCAN",
    ] {
        assert!(plans.keys().any(|plan| plan.ends_with(end)), "no {end} had results");
    }
}

#[test]
fn every_plan_agrees_with_a_scan() {
    let plans = checked_plans(140, false);
    let met = |stage: &str| plans.keys().any(|plan| plan.split('/').any(|name| name == stage));
    for stage in [
        "COLLSCAN",
        "IXSCAN",
        "FETCH",
        "SORT",
        "SORT_MERGE",
        "OR",
        "SKIP",
        "LIMIT",
    ] {
        assert!(met(stage), "no plan with {stage} had results");
    }
    for end in [
        "FETCH/IXSCAN wildcard",
        "LIMIT/FETCH/IXSCAN wildcard",
        "OR/IXSCAN wildcard",
    ] {
        assert!(plans.keys().any(|plan| plan.ends_with(end)), "no {end} had results");
    }
    // Scans that carry the documents, as they are and below what needs documents.
    for end in [
        "SORT/IXSCAN clustering",
        "OR/IXSCAN clustering",
        "LIMIT/IXSCAN clustering",
    ] {
        assert!(plans.keys().any(|plan| plan.ends_with(end)), "no {end} had results");
    }
}
