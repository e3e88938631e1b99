//! What is not held as a whole: the input of `$facet`, and what `$lookup` finds where `$unwind` takes it apart.

use std::cell::Cell;

use super::*;
use crate::value::Value;

const MIB: usize = 1 << 20;

/// Documents of 1 MiB each, more of them than a stage may hold.
fn large() -> impl Iterator<Item = SharedDocument> + Send {
    let document = shared(&doc! {"_id": 7, "pad": "x".repeat(MIB)});
    (0..STAGE_BYTES_MAX / MIB + 20).map(move |_| document.clone())
}

#[test]
fn facets() {
    gives(
        &[
            doc! {"$facet": {"n": [{"$count": "n"}], "low": [{"$match": {"_id": {"$lt": 1}}}], "none": []}},
            doc! {"$unset": "none"},
        ],
        &numbers(0..4),
        &[doc! {"n": [{"n": 4}], "low": [{"_id": 0, "x": 0}]}],
    );
    // Without input there is still one document.
    gives(&[doc! {"$facet": {"a": []}}], &[], &[doc! {"a": []}]);
}

#[test]
fn facets_take_every_batch() {
    let facet = doc! {"$facet": {
        "n": [{"$count": "n"}],
        "last": [{"$sort": {"_id": -1}}, {"$limit": 2}, {"$project": {"_id": 1}}],
        "odd": [{"$skip": 700}, {"$project": {"_id": 1}}],
        "first": [{"$limit": 1}, {"$project": {"_id": 1}}],
        "groups": [{"$group": {"_id": "$x", "n": {"$sum": 1}}}, {"$sort": {"_id": 1}}],
        "buckets": [{"$bucketAuto": {"groupBy": "$_id", "buckets": 2}}],
        "sums": [{"$setWindowFields": {"output": {"n": {"$sum": 1}, "x": {"$max": "$_id"}}}}, {"$limit": 1},
            {"$project": {"_id": 0, "n": 1, "x": 1}}],
    }};
    // Several batches of them.
    let pad = "x".repeat(8 << 10);
    let input: Vec<_> = (0..702).map(|n| doc! {"_id": n, "x": n % 2, "pad": &pad}).collect();
    let expected = doc! {
        "n": [{"n": 702}],
        "last": [{"_id": 701}, {"_id": 700}],
        "odd": [{"_id": 700}, {"_id": 701}],
        "first": [{"_id": 0}],
        "groups": [{"_id": 0, "n": 351}, {"_id": 1, "n": 351}],
        "buckets": [{"_id": {"min": 0, "max": 351}, "count": 351}, {"_id": {"min": 351, "max": 701}, "count": 351}],
        "sums": [{"n": 702, "x": 701}],
    };
    gives(&[facet], &input, &[expected]);
}

#[test]
fn facets_are_bounded_by_their_results_alone() {
    let facet = |stages: Document| {
        let mut pipeline = parse(&[doc! {"$facet": stages}]).unwrap();
        pipeline.optimize();
        pipeline
    };
    let source = || Box::new(IteratorSource::new(large()));
    let page = facet(doc! {
        "total": [{"$count": "n"}],
        "page": [{"$sort": {"_id": 1}}, {"$limit": 1}, {"$project": {"_id": 1}}],
    });
    let found = drain_from(page, source(), &Memory::default()).unwrap();
    assert_eq!(found, [doc! {"total": [{"n": 120}], "page": [{"_id": 7}]}]);
    let error = drain_from(facet(doc! {"all": []}), source(), &Memory::default()).unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode(4031700)));
}

/// Where no pipeline wants more documents, none is read.
#[test]
fn facets_read_what_is_wanted() {
    struct Endless;
    impl Stage for Endless {
        fn next(&mut self, _: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
            Ok(Some(shared(&doc! {"_id": 1, "pad": "x".repeat(1000)})))
        }
    }
    let facet = parse(&[
        doc! {"$facet": {"a": [{"$project": {"_id": 1}}, {"$limit": 1}], "b": [{"$limit": 1}, {"$count": "n"}]}},
    ]);
    let found = drain_from(facet.unwrap(), Box::new(Endless), &Memory::default()).unwrap();
    assert_eq!(found, [doc! {"a": [{"_id": 1}], "b": [{"n": 1}]}]);
}

#[test]
fn facets_need_what_their_pipelines_need() {
    let needs = |facets: Document| {
        let dependencies = parse(&[doc! {"$facet": facets}]).unwrap().take_pushdown().dependencies;
        (
            dependencies.whole_document,
            dependencies.paths.into_iter().collect::<Vec<_>>(),
        )
    };
    let count = doc! {"$count": "n"};
    assert_eq!(needs(doc! {"n": [&count]}), (false, vec![]));
    let (whole, paths) = needs(doc! {"n": [&count], "g": [{"$match": {"a": 1}}, {"$group": {"_id": "$b.c"}}]});
    assert_eq!((whole, paths), (false, vec!["a".to_owned(), "b.c".to_owned()]));
    assert!(needs(doc! {"n": [count], "all": [{"$limit": 1}]}).0);
    let by_score = doc! {"$sort": {"s": {"$meta": "textScore"}}};
    let needed = parse(&[doc! {"$facet": {"a": [by_score]}}])
        .unwrap()
        .take_pushdown()
        .needs;
    assert_eq!(needed.check(false, false).unwrap_err().code(), Some(ErrorCode(40218)));
}

/// Another collection, of [`large`] documents.
#[derive(Default)]
struct Large {
    can_join: bool,
    opened: Cell<usize>,
}

impl Execution for Large {
    fn check(&self) -> Result<(), QueryError> {
        Ok(())
    }

    fn open_foreign(&self, request: ForeignRequest<'_>) -> Result<Box<dyn Stage>, QueryError> {
        self.opened.set(self.opened.get() + 1);
        let pipeline = Pipeline::parse_stages(request.pipeline, request.context, request.depth)?;
        pipeline.run(Box::new(IteratorSource::new(large())))
    }

    fn open_join(&self, _: JoinRequest<'_>) -> Result<Option<Box<dyn EqualityJoin>>, QueryError> {
        Ok(self.can_join.then(|| Box::new(LargeJoin) as _))
    }
}

struct LargeJoin;

impl EqualityJoin for LargeJoin {
    fn find(
        &mut self,
        values: &[Value<'_>],
        _: &StageContext<'_>,
        found: &mut dyn FnMut(&RawDocument) -> Result<(), QueryError>,
    ) -> Result<Joined, QueryError> {
        let count = if values[0].is_nullish() { 1 } else { usize::MAX };
        for document in large().take(count) {
            found(&document)?;
        }
        Ok(Joined::All)
    }

    fn takes(&self, _: &Value<'_>) -> bool {
        true
    }

    fn field(&self) -> usize {
        0
    }

    fn rest(&mut self) {}

    fn strategy(&self) -> JoinStrategy {
        JoinStrategy::Hash
    }
}

#[test]
fn what_is_unwound_need_not_fit_into_an_array() {
    let unwind = doc! {"$unwind": {"path": "$x", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": true}};
    let rest = [
        doc! {"$match": {"x._id": 7}},
        doc! {"$group": {"_id": "$v", "n": {"$sum": 1}, "last": {"$max": "$i"}}},
    ];
    let input = [doc! {"v": 1}, doc! {"v": 2}];
    let expected = [
        doc! {"_id": 1, "n": 120, "last": 119_i64},
        doc! {"_id": 2, "n": 120, "last": 119_i64},
    ];
    let source = |input: &[Document]| Box::new(IteratorSource::new(input.iter().map(shared).collect::<Vec<_>>()));
    let equality = doc! {"from": "f", "localField": "v", "foreignField": "v", "as": "x"};
    let mut with_pipeline = equality.clone();
    with_pipeline.insert("pipeline", vec![doc! {"$match": {"_id": {"$gt": 1}}}]);
    for lookup in [
        equality.clone(),
        with_pipeline,
        doc! {"from": "f", "pipeline": [], "as": "x"},
        doc! {"from": "f", "pipeline": [{"$match": {"_id": 7}}], "as": "x"},
        doc! {"from": "f", "let": {"v": "$v"}, "pipeline": [{"$match": {"$expr": {"$gt": ["$$v", 0]}}}], "as": "x"},
    ] {
        let lookup = doc! {"$lookup": lookup};
        let stages: Vec<_> = [lookup.clone(), unwind.clone()]
            .into_iter()
            .chain(rest.clone())
            .collect();
        let found = drain_from(parse(&stages).unwrap(), source(&input), &Large::default());
        assert_eq!(found.unwrap(), expected, "{lookup}");
        for stages in [vec![lookup.clone()], vec![lookup, doc! {"$unwind": "$y"}]] {
            let error = drain_from(parse(&stages).unwrap(), source(&input), &Large::default()).unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode(4568)), "{stages:?}");
        }
    }
    // By a join, which finds one document for null: the others are asked for by themselves.
    let input = [doc! {"v": null}, doc! {"v": 1}, doc! {"v": null, "w": 1}];
    let execution = Large {
        can_join: true,
        ..Large::default()
    };
    let stages = [
        doc! {"$lookup": equality},
        unwind,
        doc! {"$project": {"_id": 0, "v": 1, "i": 1, "w": 1}},
    ];
    let found = drain_from(parse(&stages).unwrap(), source(&input), &execution).unwrap();
    assert_eq!((found.len(), execution.opened.get()), (122, 1));
    assert_eq!(found[0], doc! {"v": null, "i": 0_i64});
    assert_eq!(found[120], doc! {"v": 1, "i": 119_i64});
    assert_eq!(found[121], doc! {"v": null, "w": 1, "i": 0_i64});
}

#[test]
fn a_lookup_that_is_unwound() {
    let mut memory = Memory::default();
    let foreign = vec![
        doc! {"_id": 1, "k": 1},
        doc! {"_id": 2, "k": 1},
        doc! {"_id": 3, "k": 2},
    ];
    memory.collections.insert("f".into(), foreign);
    let lookup = doc! {"$lookup": {"from": "f", "localField": "k", "foreignField": "k", "as": "to.x"}};
    let input = [doc! {"k": 1, "to": {"z": 1}}, doc! {"k": 9}, doc! {"k": 2, "to": [1]}];
    let both = |unwind: Document| {
        let pipeline = parse(&[lookup.clone(), doc! {"$unwind": unwind}]).unwrap();
        drain(pipeline, &input, &memory).unwrap()
    };
    let joined = [
        doc! {"k": 1, "to": {"z": 1, "x": {"_id": 1, "k": 1}}},
        doc! {"k": 1, "to": {"z": 1, "x": {"_id": 2, "k": 1}}},
        doc! {"k": 2, "to": {"x": {"_id": 3, "k": 2}}},
    ];
    assert_eq!(both(doc! {"path": "$to.x"}), joined);
    let kept = both(doc! {"path": "$to.x", "preserveNullAndEmptyArrays": true, "includeArrayIndex": "i"});
    let places: Vec<_> = kept
        .iter()
        .map(|document| document.get("i").unwrap().as_i64())
        .collect();
    assert_eq!(places, [Some(0), Some(1), None, Some(0)]);
    assert_eq!(kept[2], doc! {"k": 9, "to": {}, "i": null});
}
