//! A pipeline over a collection with indexes, optimised and planned, gives what its stages give one after the other,
//! each alone and over documents in memory.

use super::fixture::{Fixture, Limited, ns, pick, plain, seeds};
use super::generate::{self, document, filter, indexable_filter, key, partial, path, raw, wildcard};
use crate::exec::{ExecState, aggregate};
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::plan::{AggregateRequest, Hint};
use crate::stages::{Execution, ForeignRequest, IteratorSource, Pipeline, Stage, StageContext};
use crate::value::SharedDocument;
use crate::{EvaluationContext, QueryError};
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use std::sync::Arc;
use vfs::SeededRandom;

/// What is known of the documents at a point of a pipeline. Where it is not known which of them are first, only the
/// stages come that do not care.
struct Shape {
    is_ordered: bool,
    /// No two have the same `_id`, so that a sort can leave nothing open.
    has_unique_id: bool,
}

struct Generator<'r> {
    random: &'r SeededRandom,
    shape: Shape,
    stages: Vec<Document>,
}

impl Generator<'_> {
    fn pipeline(random: &SeededRandom, is_ordered: bool) -> (Vec<Document>, bool) {
        let shape = Shape {
            is_ordered,
            has_unique_id: true,
        };
        let mut generator = Generator {
            random,
            shape,
            stages: Vec::new(),
        };
        for _ in 0..1 + pick(random, 5) {
            generator.add();
        }
        (generator.stages, generator.shape.is_ordered)
    }

    fn pick(&self, below: u64) -> u64 {
        pick(self.random, below)
    }

    fn one<T: Copy>(&self, of: &[T]) -> T {
        of[self.pick(of.len() as u64) as usize]
    }

    fn path(&self) -> &'static str {
        path(self.random)
    }

    fn field(&self) -> Bson {
        format!("${}", self.path()).into()
    }

    fn push(&mut self, stage: Document) {
        self.stages.push(stage);
    }

    fn expression(&self, depth: u32) -> Bson {
        match self.pick(12) {
            0 => doc! { "$literal": generate::value(self.random, 1) }.into(),
            1 if depth < 2 => {
                let is_array = doc! { "$isArray": [self.field()] };
                doc! { "$cond": [is_array, { "$literal": 7 }, self.expression(depth + 1)] }.into()
            }
            2 if depth < 2 => doc! { "$ifNull": [self.expression(depth + 1), self.expression(depth + 1)] }.into(),
            3 if depth < 2 => vec![self.expression(depth + 1), self.expression(depth + 1)].into(),
            4 if depth < 2 => doc! { "x": self.expression(depth + 1) }.into(),
            5 => doc! { "$type": self.field() }.into(),
            6 => doc! { "$cmp": [self.field(), self.field()] }.into(),
            7 if depth < 2 => {
                let branches = [
                    doc! { "case": { "$gt": [self.field(), 2] }, "then": self.expression(depth + 1) },
                    doc! { "case": { "$lt": [self.field(), "b"] }, "then": self.field() },
                ];
                doc! { "$switch": { "branches": branches.to_vec(), "default": "$$REMOVE" } }.into()
            }
            8 => doc! { "$getField": self.one(&["a", "b", "d"]) }.into(),
            _ => self.field(),
        }
    }

    /// Sees to an order that leaves nothing open; false where there is none.
    fn order(&mut self) -> bool {
        if !self.shape.is_ordered && self.shape.has_unique_id {
            let mut by = Document::new();
            if self.pick(3) > 0 {
                by.insert(self.path(), self.one(&[1, -1]));
            }
            by.insert("_id", self.one(&[1, -1]));
            self.push(doc! { "$sort": by });
            self.shape.is_ordered = true;
        }
        self.shape.is_ordered
    }

    fn add(&mut self) {
        match self.pick(24) {
            0..=3 => {
                let filter = match self.pick(2) {
                    0 => filter(self.random, 1),
                    _ => indexable_filter(self.random),
                };
                self.push(doc! { "$match": filter });
            }
            4 => {
                self.shape.is_ordered = false;
                if !self.order() {
                    self.push(doc! { "$sort": { self.path(): 1 } });
                }
            }
            5 if self.order() => self.push(doc! { "$limit": 1 + self.pick(20) as i32 }),
            6 if self.order() => self.push(doc! { "$skip": self.pick(6) as i32 }),
            5..=7 => {
                let mut fields = doc! { self.path(): 0 };
                if self.pick(6) == 0 {
                    fields.insert("_id", 0);
                    self.shape.has_unique_id = false;
                }
                self.push(doc! { "$project": fields });
            }
            8 => self.push(doc! { "$project": { self.path(): 1 } }),
            9 => self.push(doc! { "$project": { self.one(&["a", "b", "d.x", "n"]): self.expression(0), "c": 1 } }),
            10 | 11 => {
                let name = self.one(&["$addFields", "$set"]);
                self.push(doc! { name: { self.path(): self.expression(0) } });
            }
            12 => self.push(doc! { "$unset": self.path() }),
            13 => {
                let mut unwind = doc! { "path": self.field() };
                if self.pick(2) == 0 {
                    unwind.insert("preserveNullAndEmptyArrays", true);
                }
                if self.pick(4) == 0 {
                    unwind.insert("includeArrayIndex", self.one(&["i", "a", "d.i"]));
                }
                self.push(doc! { "$unwind": unwind });
                self.shape.has_unique_id = false;
            }
            14 | 15 if self.order() => self.group(),
            14..=16 => {
                let new = doc! { "_id": "$_id", self.one(&["a", "b"]): self.expression(0) };
                let whole = self.one(&["$$ROOT", "$$CURRENT"]);
                let merged = match self.pick(2) {
                    0 => Bson::from(doc! { "$mergeObjects": [whole, new] }),
                    _ => new.into(),
                };
                self.push(match self.pick(2) {
                    0 => doc! { "$replaceRoot": { "newRoot": merged } },
                    _ => doc! { "$replaceWith": merged },
                });
            }
            17 | 18 => self.lookup(),
            19 => {
                self.push(doc! { "$count": "n" });
                self.shape = Shape {
                    is_ordered: true,
                    has_unique_id: false,
                };
            }
            20 => self.windows(),
            21 if self.order() => {
                let (inner, is_ordered) = Generator::pipeline(self.random, true);
                // The order inside of a facet counts.
                if is_ordered && !inner.iter().any(|stage| stage.contains_key("$facet")) {
                    self.push(
                        doc! { "$facet": { "all": inner, "few": [{ "$limit": 3 }, { "$project": { "a": 1 } }] } },
                    );
                    self.shape.has_unique_id = false;
                }
            }
            22 => {
                let more = doc! { "coll": "f", "pipeline": [{ "$match": filter(self.random, 1) }] };
                self.push(doc! { "$unionWith": more });
                self.shape = Shape {
                    is_ordered: false,
                    has_unique_id: false,
                };
            }
            _ => {
                let keep = doc! { "$cond": [{ "$gt": [self.field(), { "$literal": 2 }] }, "$$PRUNE", "$$KEEP"] };
                self.push(doc! { "$redact": keep });
            }
        }
    }

    fn group(&mut self) {
        let (id, is_unique) = match self.pick(5) {
            0 => (Bson::Null, true),
            1 => ("$_id".into(), self.shape.has_unique_id),
            2 => (doc! { "$type": self.field() }.into(), true),
            3 => (doc! { "x": self.field(), "y": self.field() }.into(), false),
            _ => (self.field(), false),
        };
        let mut group = doc! { "_id": id, "n": { "$sum": 1 } };
        for name in ["a", "b"] {
            let accumulator = self.one(&["$first", "$last", "$push", "$min", "$max", "$sum", "$avg"]);
            group.insert(name, doc! { accumulator: self.expression(1) });
        }
        self.push(doc! { "$group": group });
        self.shape = Shape {
            is_ordered: false,
            has_unique_id: is_unique,
        };
    }

    /// What is found comes in an order, or is taken apart again.
    fn lookup(&mut self) {
        let name = self.one(&["l", "a", "d.l"]);
        let mut lookup = doc! { "from": "f", "as": name };
        if self.pick(3) > 0 {
            lookup.insert("localField", self.path());
            lookup.insert("foreignField", self.path());
        } else {
            lookup.insert("let", doc! { "v": self.field() });
        }
        let by_id = doc! { "$sort": { "_id": 1 } };
        let has_variable = lookup.contains_key("let");
        if has_variable || self.pick(3) == 0 {
            let mut inner = Vec::new();
            if has_variable {
                inner.push(doc! { "$match": { "$expr": { self.one(&["$eq", "$eq", "$lt"]): [self.field(), "$$v"] } } });
            }
            if self.pick(2) == 0 {
                inner.push(doc! { "$match": indexable_filter(self.random) });
            }
            inner.push(by_id);
            if self.pick(3) == 0 {
                inner.push(doc! { "$limit": 2 });
            }
            lookup.insert("pipeline", inner);
            self.push(doc! { "$lookup": lookup });
        } else if self.pick(2) == 0 {
            self.push(doc! { "$lookup": lookup });
            self.push(doc! { "$unwind": format!("${name}") });
            if self.pick(2) == 0 {
                let filter = indexable_filter(self.random).into_iter();
                let below = filter.map(|(path, value)| match path.starts_with('$') {
                    true => (path, value),
                    false => (format!("{name}.{path}"), value),
                });
                self.push(doc! { "$match": below.collect::<Document>() });
            }
            self.shape = Shape {
                is_ordered: false,
                has_unique_id: false,
            };
        } else if name == "l" {
            self.push(doc! { "$lookup": lookup });
            let sorted = doc! { "$sortArray": { "input": "$l", "sortBy": { "_id": 1 } } };
            self.push(doc! { "$set": { "l": sorted } });
        }
    }

    fn windows(&mut self) {
        if !self.shape.has_unique_id {
            return;
        }
        let window = match self.pick(3) {
            0 => doc! { "documents": [-1, 1] },
            1 => doc! { "documents": ["unbounded", "current"] },
            _ => doc! { "documents": ["unbounded", "unbounded"] },
        };
        let accumulator = self.one(&["$first", "$last", "$push", "$sum", "$max"]);
        // Arrays cannot be partitioned by.
        let by = doc! { "$type": self.field() };
        self.push(doc! { "$setWindowFields": {
            "partitionBy": by,
            "sortBy": { "_id": self.one(&[1, -1]) },
            "output": { self.one(&["a", "w"]): { accumulator: self.field(), "window": window } },
        } });
        self.shape.is_ordered = false;
    }
}

/// The other collection, as the stages by themselves see it.
struct Foreign(Vec<RawDocumentBuf>);

impl Execution for Foreign {
    fn check(&self) -> Result<(), QueryError> {
        Ok(())
    }

    fn open_foreign(&self, request: ForeignRequest<'_>) -> Result<Box<dyn Stage>, QueryError> {
        let evaluation = EvaluationContext::uninterrupted();
        let matcher = request
            .filter
            .as_ref()
            .map(|filter| Matcher::parse(filter, request.context));
        let matcher = matcher.transpose()?;
        let mut documents = Vec::new();
        for document in &self.0 {
            if matcher
                .as_ref()
                .map_or(Ok(true), |matcher| matcher.matches(document, &evaluation))?
            {
                documents.push(document.clone());
            }
        }
        for stage in request.pipeline {
            documents = self.stage(stage, documents, request.context, request.depth)?;
        }
        Ok(source(documents))
    }
}

fn source(documents: Vec<RawDocumentBuf>) -> Box<dyn Stage> {
    let shared = documents.into_iter().map(SharedDocument::from);
    Box::new(IteratorSource::new(shared.collect::<Vec<_>>()))
}

impl Foreign {
    /// What one stage makes of documents.
    fn stage(
        &self,
        stage: &RawDocumentBuf,
        documents: Vec<RawDocumentBuf>,
        context: &ExpressionContext,
        depth: usize,
    ) -> Result<Vec<RawDocumentBuf>, QueryError> {
        let pipeline = Pipeline::parse_stages(std::slice::from_ref(stage), context, depth)?;
        let mut top = pipeline.run(source(documents))?;
        let evaluation = EvaluationContext::uninterrupted();
        let mut context = StageContext {
            execution: self,
            evaluation: &evaluation,
        };
        let mut results = Vec::new();
        while let Some(document) = top.next(&mut context)? {
            results.push(document.as_raw().to_owned());
        }
        Ok(results)
    }

    fn stages(&self, stages: &[Document], documents: &[RawDocumentBuf]) -> Result<Vec<RawDocumentBuf>, QueryError> {
        let context = ExpressionContext::new(0, Arc::new(SeededRandom::new(11)));
        let all = documents.to_vec();
        let mut stages = stages.iter();
        stages.try_fold(all, |documents, stage| self.stage(&raw(stage), documents, &context, 0))
    }
}

/// The whole pipeline on the collection.
fn planned(
    fixture: &Fixture,
    stages: &[Document],
    hint: Option<Hint<'_>>,
    batch: usize,
) -> Result<Vec<RawDocumentBuf>, QueryError> {
    let mut pipeline = RawArrayBuf::new();
    stages.iter().for_each(|stage| pipeline.push(raw(stage)));
    let request = AggregateRequest {
        hint,
        ..AggregateRequest::new(ns("c"), "test", &pipeline)
    };
    let op = fixture.op();
    let context = fixture.context(&op);
    let mut executor = aggregate(&context, &request)?;
    let mut results = Vec::new();
    while executor.next_documents(&context, &mut Limited(&mut results, batch))? == ExecState::More {}
    Ok(results)
}

/// Fields in one order: a covered projection has them in that of its index.
fn unordered(value: Bson) -> Bson {
    match value {
        Bson::Document(document) => {
            let mut fields: Vec<_> = document
                .into_iter()
                .map(|(name, value)| (name, unordered(value)))
                .collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Bson::Document(fields.into_iter().collect())
        }
        Bson::Array(items) => items.into_iter().map(unordered).collect(),
        other => other,
    }
}

fn comparable(documents: &[RawDocumentBuf], is_ordered: bool, has_covered: bool) -> Vec<Vec<u8>> {
    let bytes = documents.iter().map(|document| {
        if !has_covered {
            return document.as_bytes().to_vec();
        }
        match unordered(plain(document).into()) {
            Bson::Document(document) => raw(&document).into_bytes(),
            other => unreachable!("{other}"),
        }
    });
    let mut bytes: Vec<_> = bytes.collect();
    if !is_ordered {
        bytes.sort_unstable();
    }
    bytes
}

/// A collection with indexes, and what it holds in its order.
fn collection(random: &SeededRandom, fixture: &Fixture, name: &str, count: i32) -> Vec<RawDocumentBuf> {
    fixture.create(name, rawdoc! {});
    for _ in 0..pick(random, 4) {
        let mut options = match pick(random, 6) {
            0 => doc! { "sparse": true },
            1 => doc! { "partialFilterExpression": partial(random) },
            2 => doc! { "clustering": true },
            _ => doc! {},
        };
        let key = match pick(random, 6) {
            0 => wildcard(random, &mut options),
            _ => key(random),
        };
        // Some are refused, such as one that is there already.
        drop(fixture.index(name, raw(&key), raw(&options)));
    }
    let documents = (0..count).map(|id| raw(&document(random, id)));
    documents
        .filter(|document| fixture.insert(name, document).is_ok())
        .collect()
}

#[test]
fn a_pipeline_gives_what_its_stages_give_one_by_one() {
    let (mut compared, mut with_results, mut refused) = (0_u64, 0_u64, 0_u64);
    for seed in seeds(60) {
        let random = SeededRandom::new(seed);
        let fixture = Fixture::new(seed);
        let all = collection(&random, &fixture, "c", 15 + pick(&random, 30) as i32);
        let foreign = Foreign(collection(&random, &fixture, "f", 12));
        for _ in 0..40 {
            let natural = rawdoc! { "$natural": 1 };
            // A scan has an order from the beginning.
            let by_scan = pick(&random, 3) == 0;
            let (stages, is_ordered) = Generator::pipeline(&random, by_scan);
            let batch = 1 + pick(&random, 40) as usize;
            let story = format!("seed {seed}, scan {by_scan}, batch {batch}: {stages:?}");
            let found = planned(&fixture, &stages, by_scan.then_some(Hint::Key(&natural)), batch);
            let expected = foreign.stages(&stages, &all);
            compared += 1;
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    with_results += u64::from(!expected.is_empty());
                    let same =
                        |covered| comparable(&found, is_ordered, covered) == comparable(&expected, is_ordered, covered);
                    if !same(false) && !same(true) {
                        let shown =
                            |documents: &[RawDocumentBuf]| documents.iter().map(|one| plain(one)).collect::<Vec<_>>();
                        panic!("{story}\n{:?}\ninstead of\n{:?}", shown(&found), shown(&expected));
                    }
                }
                // A filter or a limit that goes first may take the documents away that a stage refuses.
                (_, Err(_)) => refused += 1,
                (Err(error), Ok(_)) => panic!("{story}\n{error}"),
            }
        }
    }
    println!("{compared} pipelines compared, {with_results} with results, {refused} refused");
    assert!(with_results * 2 > compared && refused * 5 < compared);
}
