//! Filters and updates end with their operation, and sorting in runs sorts.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::exec::tests::fixture::generated;
use bson::{Bson, Document, RawArrayBuf, RawBsonRef, RawDocumentBuf, doc};
use proptest::prelude::*;
use storage::{Interrupted, MemoryBudget, MemoryExceeded};

use super::*;
use crate::expression::{Expression, ExpressionContext};
use crate::matcher::{MatchDetails, Matcher};
use crate::project::Projection;
use crate::stages::{Execution, ForeignRequest, IteratorSource, Pipeline, Stage, StageContext};
use crate::update::{Update, UpdateContext};
use crate::value::{Comparer, SharedDocument, SortPattern, Value};

/// A clock that each look moves on by a millisecond, so that a deadline is a number of looks.
#[derive(Default)]
pub(crate) struct LookedAt(AtomicU64);

impl LookedAt {
    /// How often it was looked at.
    pub(crate) fn looks(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl vfs::Clock for LookedAt {
    fn now_ms(&self) -> i64 {
        0
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

fn raw(document: Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&document).unwrap()
}

fn expressions() -> ExpressionContext {
    ExpressionContext::new(0, Arc::new(vfs::SeededRandom::new(1)))
}

/// Runs with an operation whose time is over after twenty looks at it; true when that ended it.
fn is_ended(run: impl FnOnce(&EvaluationContext<'_>) -> Result<(), QueryError>) -> bool {
    let operation = Operation::new(Arc::new(LookedAt::default()), 1);
    operation.set_deadline_ms(20);
    match run(&EvaluationContext::new(&operation)) {
        Ok(()) => false,
        Err(QueryError::Storage(StorageError::Interrupted(Interrupted::TimeExpired))) => true,
        Err(other) => panic!("ended by {other}"),
    }
}

#[test]
fn filters_end_with_their_operation() {
    let numbers: Vec<Bson> = (0..1000).map(Bson::Int32).collect();
    let objects: Vec<Bson> = (0..1000)
        .map(|i| Bson::Document(doc! {"a": [i, i + 1], "b": i}))
        .collect();
    let document = raw(doc! {"n": numbers, "o": objects});
    let absent: Vec<Bson> = (2000..3000).map(|i| Bson::Document(doc! {"n": i})).collect();
    for filter in [
        doc! {"$or": (2000..3000).map(|i| doc! {"n": {"$gt": i}}).collect::<Vec<_>>()},
        doc! {"$nor": absent},
        doc! {"$or": (0..1000).map(|i| doc! {"o": {"$elemMatch": {"b": {"$lt": 0}, "a": i}}}).collect::<Vec<_>>()},
        doc! {"$and": (0..1000).map(|_| doc! {"n": {"$elemMatch": {"$gte": 999}}}).collect::<Vec<_>>()},
        doc! {"$and": (0..1000).map(|_| doc! {"o.a": {"$gte": 1000}}).collect::<Vec<_>>()},
        doc! {"$expr": {"$anyElementTrue": {"$map": {"input": {"$range": [0, 1000]}, "in": {"$in": [-1, "$n"]}}}}},
    ] {
        let matcher = Matcher::parse(&raw(filter.clone()), &expressions()).unwrap();
        let ended = is_ended(|context| matcher.matches(&document, context).map(drop));
        assert!(ended, "{:.100}", filter.to_string());
    }
}

#[test]
fn updates_and_projections_end_with_their_operation() {
    let numbers: Vec<Bson> = (0..1000).map(Bson::Int32).collect();
    let others: Vec<Bson> = (1000..2000).map(Bson::Int32).collect();
    let document = raw(doc! {"_id": 1, "n": numbers});
    let identifiers = |one: fn(i32) -> (String, Bson)| (0..500).map(one).collect::<Document>();
    let context = UpdateContext {
        now_ms: 0,
        timestamp: bson::Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
        details: MatchDetails::default(),
    };
    let mut filters = RawArrayBuf::new();
    for i in 0..500 {
        filters.push(raw(doc! {format!("e{i}"): {"$lt": 0}}));
    }
    for (update, filters) in [
        (doc! {"$addToSet": {"n": {"$each": others.clone()}}}, None),
        (doc! {"$addToSet": {"new": {"$each": others.clone()}}}, None),
        (doc! {"$pullAll": {"n": others.clone()}}, None),
        (
            doc! {"$pull": {"n": {"$in": others.clone(), "$not": {"$elemMatch": {"$gt": 5}}}}},
            None,
        ),
        (
            doc! {"$set": identifiers(|i| (format!("n.$[e{i}]"), Bson::Null))},
            Some(&*filters),
        ),
    ] {
        let update_raw = raw(update.clone());
        let parsed = Update::parse(RawBsonRef::Document(&update_raw), filters, &expressions()).unwrap();
        // Several applications, as of several documents.
        let ended =
            is_ended(|evaluation| (0..100).try_for_each(|_| parsed.apply(&document, &context, evaluation).map(drop)));
        assert!(ended, "{:.100}", update.to_string());
    }
    let spec = raw(doc! {"n": {"$elemMatch": {"$lt": 0}}});
    let projection = Projection::parse(&spec, &expressions()).unwrap();
    assert!(is_ended(|evaluation| {
        (0..100).try_for_each(|_| projection.apply(&document, None, evaluation, &mut Vec::new()))
    }));
}

/// Each element of an array is met by all of the operators below `$[]`.
#[test]
fn many_operators_on_elements_end_with_their_operation() {
    let operators = |operator: &str, below: &str| {
        let all = (0..1000).map(|i| (format!("a.$[].{below}{i}"), Bson::Int32(1)));
        doc! {operator: all.collect::<Document>()}
    };
    let (scalars, objects) = (
        doc! {"_id": 1, "a": vec![1; 100]},
        doc! {"_id": 1, "a": vec![doc! {}; 100]},
    );
    let context = UpdateContext {
        now_ms: 0,
        timestamp: bson::Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
        details: MatchDetails::default(),
    };
    let apply = |update: &Document, document: &Document, evaluation: &EvaluationContext<'_>| {
        let parsed = Update::parse(RawBsonRef::Document(&raw(update.clone())), None, &expressions()).unwrap();
        parsed.apply(&raw(document.clone()), &context, evaluation)
    };
    for (update, document) in [
        (operators("$unset", "x"), &scalars),
        (operators("$unset", "x.y.z"), &scalars),
        (operators("$set", "x"), &objects),
        (operators("$set", "y.z"), &objects),
    ] {
        let ended = is_ended(|evaluation| apply(&update, document, evaluation).map(drop));
        assert!(ended, "{:.60} on {:.60}", update.to_string(), document.to_string());
    }
    // What makes no fields is not asked to.
    for operator in ["$unset", "$pull"] {
        assert!(!is_ended(|evaluation| {
            assert_eq!(apply(&operators(operator, "x"), &objects, evaluation)?, None);
            Ok(())
        }));
    }
}

#[test]
fn lists_of_names_in_a_schema_are_looked_up_at_once_and_end_with_their_operation() {
    let names = |count: i32| (0..count).map(|i| Bson::String(format!("f{i}"))).collect::<Vec<_>>();
    let fields: Document = (0..3000).map(|i| (format!("f{i}"), Bson::Int32(i))).collect();
    let document = raw(fields.clone());
    let dependencies: Document = (0..300).map(|i| (format!("f{i}"), names(10).into())).collect();
    let patterns: Document = (0..100).map(|i| (format!("^g{i}"), Bson::Document(doc! {}))).collect();
    for (schema, steps_max) in [
        (doc! {"required": names(3000)}, 20_000),
        (doc! {"dependencies": dependencies}, 20_000),
        (doc! {"dependencies": {"f2999": names(3000)}}, 20_000),
        (doc! {"patternProperties": patterns}, 400_000),
    ] {
        let matcher = Matcher::parse(&raw(doc! {"$jsonSchema": schema.clone()}), &expressions()).unwrap();
        let clock = Arc::new(LookedAt::default());
        let operation = Operation::new(clock.clone(), 1);
        operation.set_deadline_ms(100_000);
        assert!(matcher.matches(&document, &EvaluationContext::new(&operation)).unwrap());
        let steps = clock.looks() * u64::from(STEPS_PER_CHECK);
        assert!(steps <= steps_max, "{steps} steps for {:.60}", schema.to_string());
        let ended = is_ended(|context| (0..100).try_for_each(|_| matcher.matches(&document, context).map(drop)));
        assert!(ended, "{:.60}", schema.to_string());
    }
}

/// Ten thousand parts each: what walks all of them for each of them walks a hundred million without a look.
#[test]
fn nobody_walks_long_without_a_look_at_the_operation() {
    const PARTS: i32 = 10_000;
    const WALKED_MAX: u64 = 400_000;
    let names: Vec<Bson> = (0..PARTS).map(|i| Bson::String(format!("f{i}"))).collect();
    let fields: Document = (0..PARTS).map(|i| (format!("f{i}"), Bson::Int32(i))).collect();
    let others: Document = (0..PARTS).map(|i| (format!("f{i}"), Bson::Int32(i + 1))).collect();
    let renames: Document = (0..1000)
        .map(|i| (format!("f{i}"), Bson::String(format!("g{i}"))))
        .collect();
    let below = |step: &str| {
        (0..1000)
            .map(|i| (format!("a.{step}.x{i}"), Bson::Int32(i)))
            .collect::<Document>()
    };
    let properties: Document = (0..PARTS)
        .map(|i| (format!("f{i}"), doc! {"type": "string"}.into()))
        .collect();
    let document = raw(fields.clone());
    let array = raw(doc! {"a": vec![doc! {"b": 1}; PARTS as usize], "_id": 1});
    let nested = raw((0..18).fold(doc! {"0": [1]}, |inner, _| doc! {"0": [inner]}));
    let context = UpdateContext {
        now_ms: 0,
        timestamp: bson::Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
        details: MatchDetails::default(),
    };
    let within = |what: &str, run: &mut dyn FnMut(&EvaluationContext<'_>)| {
        // What nothing ends counts its looks all the same.
        let walked = crate::raw::walked::most(|| run(&EvaluationContext::uninterrupted()));
        assert!(walked <= WALKED_MAX, "{what} walks {walked} elements");
    };
    for (document, filter) in [
        (&document, doc! {"$jsonSchema": {"required": names.clone()}}),
        (&document, doc! {"$jsonSchema": {"dependencies": {"f1": names.clone()}}}),
        (&document, doc! {"$jsonSchema": {"properties": properties}}),
        (&array, doc! {"a.b": {"$gt": 1}}),
        (&array, doc! {"a.c": 1}),
        (&nested, doc! {(["0"; 20].join(".")): 5}),
    ] {
        let matcher = Matcher::parse(&raw(filter.clone()), &expressions()).unwrap();
        within(&format!("{:.60}", filter.to_string()), &mut |evaluation| {
            matcher.matches(document, evaluation).unwrap();
        });
    }
    for (document, path) in [(&array, "a.b"), (&nested, &*["0"; 30].join("."))] {
        within("distinct", &mut |evaluation| {
            let mut values = crate::exec::distinct::DistinctValues::new(path, None, evaluation).unwrap();
            values.add_document(document).unwrap();
        });
    }
    for (document, update) in [
        (&document, doc! {"$set": others}),
        (&document, doc! {"$unset": fields.clone()}),
        (&document, doc! {"$rename": renames}),
        (&array, doc! {"$unset": below("$[]")}),
        (&array, doc! {"$unset": below("b")}),
        (&array, doc! {"$inc": {"a.$[].b": 1}}),
    ] {
        within(&format!("{:.60}", update.to_string()), &mut |evaluation| {
            let parsed = Update::parse(RawBsonRef::Document(&raw(update.clone())), None, &expressions()).unwrap();
            parsed.apply(document, &context, evaluation).unwrap();
        });
    }
}

/// Filters of partial indexes have no operation at hand, only what asks for it.
#[test]
fn filters_of_partial_indexes_end_with_their_operation() {
    let branches: Vec<Bson> = (0..5000).map(|i| Bson::Document(doc! {"n": {"$gt": i}})).collect();
    let filter = raw(doc! {"$or": branches});
    let predicate = storage::PredicateCompiler::compile(&crate::matcher::MatcherCompiler, &filter, None).unwrap();
    let document = raw(doc! {"n": -1});
    let looks = Cell::new(0);
    let killed_at = |look: u32| {
        looks.set(0);
        let looks = &looks;
        predicate.matches(&document, &move || {
            looks.set(looks.get() + 1);
            match looks.get() == look {
                true => Err(Interrupted::Killed.into()),
                false => Ok(()),
            }
        })
    };
    assert!(matches!(
        killed_at(1),
        Err(StorageError::Interrupted(Interrupted::Killed))
    ));
    assert!(matches!(killed_at(1000), Ok(false)));
    assert!(predicate.matches(&raw(doc! {"n": 5000}), &|| Ok(())).unwrap());
}

/// The key of each element had all other fields of the sort in it.
#[test]
fn sort_keys_of_many_elements_end_with_their_operation() {
    let numbers: Vec<i32> = (0..100_000).rev().collect();
    let document = SharedDocument::new(raw(doc! {"a": numbers, "s": "x".repeat(10_000)}).into_bytes().into()).unwrap();
    for pattern in [doc! {"a": 1, "s": 1}, doc! {"s": -1, "a": 1}, doc! {"a": 1}] {
        let pattern = SortPattern::parse(&raw(pattern), &Comparer::default()).unwrap();
        let mut keys = keys::KeySet::new();
        let whole = EvaluationContext::uninterrupted();
        pattern
            .append_key(&document, &whole, &mut keys, &mut Vec::new())
            .unwrap();
        assert!(keys.bytes() < 20_000, "{} bytes for one key", keys.bytes());
        assert!(is_ended(|context| pattern.append_key(
            &document,
            context,
            &mut keys,
            &mut Vec::new()
        )));
    }
}

#[test]
fn long_arrays_and_texts_can_be_left_within() {
    let document = raw(doc! {"a": vec![1; 100_000]});
    assert!(is_ended(|evaluation| {
        crate::exec::distinct::DistinctValues::new("a", None, evaluation)?.add_document(&document)
    }));
    // Each match has looked at all the rest of the text.
    let text = raw(doc! {"t": "a".repeat(20_000)});
    let found = doc! {"$expr": {"$regexFindAll": {"input": "$t", "regex": "a*b|a"}}};
    let matcher = Matcher::parse(&raw(found), &expressions()).unwrap();
    let clock = Arc::new(LookedAt::default());
    let operation = Operation::new(clock.clone(), 1);
    operation.set_deadline_ms(1 << 40);
    let matched = matcher.matches(&text, &EvaluationContext::new(&operation));
    assert!(matched.unwrap() && clock.looks() > 500, "{}", clock.looks());
}

/// A document of so many fields, of which none begins with a `z`.
fn of_many_fields(fields: usize) -> RawDocumentBuf {
    raw((0..fields).map(|i| (format!("field{i}"), Bson::Int32(1))).collect())
}

/// Names that are not there were looked for in all of a large document as one step each, or none.
#[test]
fn looking_for_missing_names_ends_with_its_operation() {
    let document = of_many_fields(20_000);
    let missing: Vec<Bson> = (0..1000).map(|i| Bson::String(format!("$z{i}"))).collect();
    let of_variable: Vec<Bson> = (0..1000).map(|i| Bson::String(format!("$$d.z{i}"))).collect();
    for expression in [
        doc! {"$ifNull": missing.clone()},
        doc! {"$or": missing.clone()},
        doc! {"$and": [{"$not": [{"$or": missing.clone()}]}]},
        doc! {"all": missing.clone()},
        doc! {"$let": {"vars": {"d": "$$ROOT"}, "in": {"$ifNull": of_variable}}},
        doc! {"$ifNull": (0..1000).map(|i| doc! {"$getField": format!("z{i}")}).collect::<Vec<_>>()},
    ] {
        let text = expression.to_string();
        let expression = raw(doc! {"": expression});
        let (_, expression) = expression.iter().next().unwrap().unwrap();
        let expression = Expression::parse(expression, &expressions()).unwrap();
        let ended = is_ended(|context| expression.evaluate_on(&document, context).map(drop));
        assert!(ended, "{text:.100}");
    }
    let filter = raw(doc! {"$or": (0..1000).map(|i| doc! {format!("z{i}"): 1}).collect::<Vec<_>>()});
    let matcher = Matcher::parse(&filter, &expressions()).unwrap();
    assert!(is_ended(|context| matcher.matches(&document, context).map(drop)));
}

/// A `$unwind` of what the one before it gives, and has no such array, went on for good.
#[test]
fn unwinding_ends_with_its_operation() {
    let numbers: Vec<Bson> = (0..100_000).map(Bson::Int32).collect();
    let documents = vec![SharedDocument::from(raw(doc! {"a": numbers}))];
    for second in ["$missing", "$a"] {
        let stages = [
            raw(doc! {"$unwind": "$a"}),
            raw(doc! {"$unwind": second}),
            raw(doc! {"$match": {"a": -1}}),
        ];
        let pipeline = Pipeline::parse_stages(&stages, &expressions(), 0).unwrap();
        let mut top = pipeline.run(Box::new(IteratorSource::new(documents.clone()))).unwrap();
        let ended = is_ended(|evaluation| {
            top.next(&mut StageContext {
                execution: &Alone,
                evaluation,
            })
            .map(drop)
        });
        assert!(ended, "{second}");
    }
}

/// 16,000 values were compared with each other and with all that were there: seconds.
#[test]
fn many_values_are_added_to_a_set_by_one_walk() {
    let (there, new): (Vec<i32>, Vec<i32>) = ((0..10_000).collect(), (5_000..15_000).collect());
    let document = raw(doc! {"_id": 1, "n": there});
    let twice: Vec<Bson> = new
        .iter()
        .map(|n| Bson::Double((*n).into()))
        .chain(new.iter().map(|n| (*n).into()))
        .collect();
    let context = UpdateContext {
        now_ms: 0,
        timestamp: bson::Timestamp { time: 1, increment: 1 },
        keep_empty_timestamps: false,
        details: MatchDetails::default(),
    };
    for (field, expected) in [("n", 15_000), ("other", 10_000)] {
        let update = raw(doc! {"$addToSet": {field: {"$each": twice.clone()}}});
        let update = Update::parse(RawBsonRef::Document(&update), None, &expressions()).unwrap();
        let clock = Arc::new(LookedAt::default());
        let operation = Operation::new(clock.clone(), 1);
        operation.set_deadline_ms(1 << 40);
        let changed = update
            .apply(&document, &context, &EvaluationContext::new(&operation))
            .unwrap();
        let changed = RawDocumentBuf::from_bytes(changed.unwrap()).unwrap();
        let changed = Document::try_from(changed).unwrap();
        assert_eq!(changed.get_array(field).unwrap().len(), expected);
        assert!(clock.looks() < 200, "{} looks are no single walk", clock.looks());
    }
}

#[test]
fn all_of_many_values_walks_the_array_once() {
    // 10,000 values on an array of 10,000 took seconds for one document: each value walked the array.
    let numbers: Vec<Bson> = (0..10_000).rev().map(Bson::Int32).collect();
    let document = raw(doc! {"n": numbers.clone()});
    for (wanted, expected) in [
        (numbers.clone(), true),
        ([&numbers[..], &[Bson::Int32(-1)]].concat(), false),
    ] {
        let filter = raw(doc! {"n": {"$all": wanted}});
        let matcher = Matcher::parse(&filter, &expressions()).unwrap();
        let clock = Arc::new(LookedAt::default());
        let operation = Operation::new(clock.clone(), 1);
        operation.set_deadline_ms(1 << 40);
        let found = matcher.matches(&document, &EvaluationContext::new(&operation)).unwrap();
        assert_eq!(found, expected);
        assert!(clock.looks() < 200, "{} looks are no single walk", clock.looks());
    }
}

#[test]
fn many_equalities_answer_as_each_of_them_does() {
    let values: Vec<Bson> = vec![
        Bson::Null,
        Bson::Int32(1),
        Bson::Double(1.0),
        Bson::Double(f64::NAN),
        "a".into(),
        Bson::Array(vec![1.into(), 2.into()]),
        Bson::Document(doc! {"x": 1}),
        Bson::Boolean(true),
        Bson::MinKey,
    ];
    let documents: Vec<Document> = [
        doc! {},
        doc! {"a": Bson::Null},
        doc! {"a": values.clone()},
        doc! {"a": [values.clone()]},
        doc! {"a": [{"b": values.clone()}, {"b": 1}, {}, 5]},
        doc! {"a": {"b": values[..8].to_vec()}},
    ]
    .into();
    for path in ["a", "a.b"] {
        for left_out in 0..=values.len() {
            let mut wanted = values.clone();
            if left_out < wanted.len() {
                wanted.remove(left_out);
            }
            let all = raw(doc! {path: {"$all": wanted.clone()}});
            let all = Matcher::parse(&all, &expressions()).unwrap();
            for document in &documents {
                let document = raw(document.clone());
                let context = EvaluationContext::uninterrupted();
                let one_by_one = wanted.iter().all(|value| {
                    let one = raw(doc! {path: {"$all": [value.clone()]}});
                    let one = Matcher::parse(&one, &expressions()).unwrap();
                    one.matches(&document, &context).unwrap()
                });
                assert_eq!(
                    all.matches(&document, &context).unwrap(),
                    one_by_one,
                    "{wanted:?} on {document:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(generated(256))]

    #[test]
    fn sorting_in_runs_is_stable(values in prop::collection::vec(0_u16..500, 0..6000)) {
        let items: Vec<(u16, usize)> = values.into_iter().zip(0..).collect();
        let mut expected = items.clone();
        expected.sort_by_key(|(value, _)| *value);
        let sorted = EvaluationContext::uninterrupted().sort(items, |a, b| a.0.cmp(&b.0)).unwrap();
        prop_assert_eq!(sorted, expected);
    }
}

/// Stages that read nothing but their source.
struct Alone;

impl Execution for Alone {
    fn check(&self) -> Result<(), QueryError> {
        Ok(())
    }

    fn open_foreign(&self, _: ForeignRequest<'_>) -> Result<Box<dyn Stage>, QueryError> {
        Err(QueryError::not_implemented("another collection"))
    }
}

#[test]
fn what_stages_gather_is_bounded_for_all_operations_together() {
    // Forty sorts of 100 MB each were as many times 100 MB.
    let documents: Vec<SharedDocument> = (0..2000)
        .map(|i| SharedDocument::from(raw(doc! {"a": i % 7, "pad": "x".repeat(100)})))
        .collect();
    let start = |stage: &Document| {
        let pipeline = Pipeline::parse_stages(&[raw(stage.clone())], &expressions(), 0).unwrap();
        pipeline.run(Box::new(IteratorSource::new(documents.clone()))).unwrap()
    };
    for stage in [
        doc! {"$sort": {"a": 1}},
        doc! {"$group": {"_id": "$a", "all": {"$push": "$$ROOT"}}},
        doc! {"$sample": {"size": 1500}},
    ] {
        let budget = MemoryBudget::new(1 << 20, 1 << 20);
        let operations: Vec<_> = (0..4)
            .map(|id| Operation::within(Arc::new(LookedAt::default()), id, &budget))
            .collect();
        let evaluations: Vec<_> = operations.iter().map(EvaluationContext::new).collect();
        let next = |top: &mut Box<dyn Stage>, which: usize| {
            top.next(&mut StageContext {
                execution: &Alone,
                evaluation: &evaluations[which],
            })
        };
        let mut tops: Vec<_> = (0..4).map(|_| start(&stage)).collect();
        let mut refused = 0;
        for (which, top) in tops.iter_mut().enumerate() {
            match next(top, which) {
                Ok(document) => assert!(document.is_some()),
                Err(QueryError::Storage(StorageError::MemoryExceeded(MemoryExceeded::Total { .. }))) => refused += 1,
                Err(other) => panic!("{stage} fails with {other}"),
            }
        }
        assert!((1..4).contains(&refused), "{refused} of 4 were refused by {stage}");
        // What ends gives back, as does what failed, and there is room again.
        tops.truncate(4 - refused);
        while next(&mut tops[0], 0).unwrap().is_some() {}
        assert_eq!(operations[0].memory().used(), 0, "{stage} gives back at its end");
        assert!(next(&mut start(&stage), 1).unwrap().is_some());
        drop(tops);
        assert_eq!(budget.used(), 0, "{stage} gives back when it is dropped");
    }
}

#[test]
fn values_of_an_expression_are_charged_to_the_operation() {
    let budget = MemoryBudget::new(u64::MAX, 8 << 20);
    let operation = Arc::new(Operation::within(Arc::new(LookedAt::default()), 1, &budget));
    let range = raw(doc! {"": {"$size": {"$map": {"input": {"$range": [0, "$n"]}, "in": "$$this"}}}});
    let (_, expression) = range.iter().next().unwrap().unwrap();
    let expression = Expression::parse(expression, &expressions()).unwrap();
    for (n, fits) in [(1000, true), (1_000_000, false), (1000, true)] {
        let document = raw(doc! {"n": n});
        let evaluation = EvaluationContext::new(&operation);
        match expression.evaluate_on(&document, &evaluation) {
            Ok(value) => assert!(fits && matches!(value, Value::Int32(size) if size == n)),
            Err(QueryError::Storage(StorageError::MemoryExceeded(MemoryExceeded::Operation { .. }))) => assert!(!fits),
            Err(other) => panic!("{other}"),
        }
        drop(evaluation);
        assert_eq!(operation.memory().used(), 0);
    }
}
