//! `$bucketAuto`, `$densify`, `$percentile` and `$median`.

use super::*;
use vfs::Random;

fn buckets(values: &[f64], argument: Document) -> Vec<(Bson, Bson, i32)> {
    let input: Vec<_> = values.iter().map(|x| doc! {"x": *x}).collect();
    let mut stage = doc! {"groupBy": "$x"};
    stage.extend(argument);
    let of = |bucket: &Document| {
        let id = bucket.get_document("_id").unwrap();
        let count = bucket.get_i32("count").unwrap();
        (id.get("min").unwrap().clone(), id.get("max").unwrap().clone(), count)
    };
    run(&[doc! {"$bucketAuto": stage}], &input).iter().map(of).collect()
}

fn bounds(found: &[(Bson, Bson, i32)]) -> Vec<(f64, f64, i32)> {
    let number = |value: &Bson| match value {
        Bson::Int32(n) => f64::from(*n),
        other => other.as_f64().unwrap(),
    };
    found
        .iter()
        .map(|(min, max, n)| (number(min), number(max), *n))
        .collect()
}

#[test]
fn buckets_share_their_documents() {
    let of = |values: &[f64], n: i32| bounds(&buckets(values, doc! {"buckets": n}));
    assert_eq!(of(&[], 3), []);
    assert_eq!(of(&[5.0], 3), [(5.0, 5.0, 1)]);
    assert_eq!(of(&[5.0, 5.0, 5.0], 2), [(5.0, 5.0, 3)]);
    assert_eq!(of(&[1.0, 1.0, 2.0, 2.0], 4), [(1.0, 2.0, 2), (2.0, 2.0, 2)]);
    assert_eq!(
        of(&[7.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2),
        [(1.0, 5.0, 4), (5.0, 7.0, 3)]
    );
    assert_eq!(
        of(&[1.0, 2.0, 3.0, 3.0, 4.0, 5.0], 3),
        [(1.0, 3.0, 2), (3.0, 4.0, 2), (4.0, 5.0, 2)]
    );
    gives(
        &[doc! {"$bucketAuto": {"groupBy": "$x", "buckets": 2, "output": {"ids": {"$push": "$_id"}}}}],
        &[
            doc! {"_id": 1, "x": null},
            doc! {"_id": 2},
            doc! {"_id": 3, "x": 5},
            doc! {"_id": 4, "x": "a"},
        ],
        &[
            doc! {"_id": {"min": null, "max": 5}, "ids": [1, 2]},
            doc! {"_id": {"min": 5, "max": "a"}, "ids": [3, 4]},
        ],
    );
    // An empty output is as none.
    gives(
        &[doc! {"$bucketAuto": {"groupBy": "$x", "buckets": 1, "output": {}}}],
        &[doc! {"x": 1}, doc! {"x": 5}],
        &[doc! {"_id": {"min": 1, "max": 5}, "count": 2}],
    );
}

#[test]
fn buckets_are_rounded() {
    let of = |series: &str| {
        bounds(&buckets(
            &[1.0, 10.0, 100.0, 1000.0],
            doc! {"buckets": 3, "granularity": series},
        ))
    };
    assert_eq!(of("R5"), [(0.63, 1.6, 1), (1.6, 16.0, 1), (16.0, 1600.0, 2)]);
    assert_eq!(of("POWERSOF2"), [(0.5, 2.0, 1), (2.0, 16.0, 1), (16.0, 1024.0, 2)]);
    assert_eq!(of("1-2-5"), [(0.5, 2.0, 1), (2.0, 20.0, 1), (20.0, 2000.0, 2)]);
    assert_eq!(of("E6"), [(0.68, 1.5, 1), (1.5, 15.0, 1), (15.0, 1500.0, 2)]);
    for (series, least, greatest) in [
        ("R10", 0.8, 1250.0),
        ("R20", 0.9, 1120.0),
        ("R40", 0.9500000000000001, 1060.0),
        ("R80", 0.975, 1030.0),
        ("E12", 0.8200000000000001, 1200.0),
        ("E24", 0.91, 1100.0),
        ("E48", 0.9530000000000001, 1050.0),
        ("E96", 0.976, 1020.0),
        ("E192", 0.988, 1010.0),
    ] {
        let found = of(series);
        assert_eq!(found[0].0, least, "{series}");
        assert_eq!(found.last().unwrap().1, greatest, "{series}");
    }
    let coarse = buckets(&[1.0, 2.0], doc! {"buckets": 10, "granularity": "R5"});
    assert_eq!(bounds(&coarse), [(0.63, 1.6, 1), (1.6, 2.5, 1)]);
    // MongoDB's own series, which are not the standard's.
    let near = |series: &str, x: f64| bounds(&buckets(&[x], doc! {"buckets": 1, "granularity": series}));
    assert_eq!(near("R40", 3.3), [(3.15, 3.5500000000000003, 1)]);
    assert_eq!(near("R80", 1.0), [(0.975, 1.03, 1)]);
    assert_eq!(near("R80", 1.05), [(1.03, 1.09, 1)]);
    // Nothing lies below the least numbers, and the members above lie apart.
    assert_eq!(near("R80", 5e-324), [(0.0, 103.0 * 1e-323, 1)]);
    for series in [
        "R5", "R10", "R20", "R40", "1-2-5", "E6", "E12", "E24", "E48", "E96", "E192",
    ] {
        let found = near(series, 5e-324);
        assert!(
            found[0].0 == 0.0 && found[0].1 > 5e-324 && found[0].1 < 1e-320,
            "{series} {found:?}"
        );
    }
    let zeros = buckets(&[0.0, 0.0, 3.0], doc! {"buckets": 2, "granularity": "R5"});
    assert_eq!(bounds(&zeros), [(0.0, 0.0, 2), (0.0, 4.0, 1)]);
    let powers = buckets(&[1.0, 3.0], doc! {"buckets": 1, "granularity": "POWERSOF2"});
    assert_eq!(powers, [(0.5.into(), 4.into(), 2)]);
    let failing = |x: Bson| {
        let stage = doc! {"$bucketAuto": {"groupBy": "$x", "buckets": 1, "granularity": "R5"}};
        run_error(&[stage], &[doc! {"x": x}])
    };
    assert_eq!(failing("a".into()), 40258);
    assert_eq!(failing(f64::NAN.into()), 40259);
    assert_eq!(failing((-1).into()), 40260);
    assert_eq!(failing(f64::NEG_INFINITY.into()), 40260);
}

#[test]
fn bucket_arguments() {
    for (argument, wanted) in [
        (doc! {}, 40246),
        (doc! {"groupBy": "$x"}, 40246),
        (doc! {"buckets": 2}, 40246),
        (doc! {"groupBy": "x", "buckets": 2}, 40239),
        (doc! {"groupBy": "$x", "buckets": "2"}, 40241),
        (doc! {"groupBy": "$x", "buckets": 2.5}, 40242),
        (doc! {"groupBy": "$x", "buckets": 3_000_000_000_i64}, 40242),
        (doc! {"groupBy": "$x", "buckets": 0}, 40243),
        (doc! {"groupBy": "$x", "buckets": 2, "output": 1}, 40244),
        (
            doc! {"groupBy": "$x", "buckets": 2, "output": {"a.b": {"$sum": 1}}},
            40235,
        ),
        (doc! {"groupBy": "$x", "buckets": 2, "output": {"f": 42}}, 40234),
        (doc! {"groupBy": "$x", "buckets": 2, "extra": 1}, 40245),
        (doc! {"groupBy": "$x", "buckets": 2, "granularity": "BOGUS"}, 40257),
        (doc! {"groupBy": "$x", "buckets": 2, "granularity": 5}, 40261),
    ] {
        code(doc! {"$bucketAuto": argument}, wanted);
    }
    code(doc! {"$bucketAuto": [1]}, 40240);
}

fn densified(input: &[Document], argument: Document) -> Vec<Document> {
    run(&[doc! {"$densify": argument}], input)
}

#[test]
fn densify_numbers() {
    let input = [doc! {"_id": 1, "x": 4}, doc! {"_id": 2, "x": 1}, doc! {"_id": 3}];
    assert_eq!(
        densified(&input, doc! {"field": "x", "range": {"step": 2, "bounds": "full"}}),
        [
            doc! {"_id": 3},
            doc! {"_id": 2, "x": 1},
            doc! {"x": 3},
            doc! {"_id": 1, "x": 4}
        ]
    );
    assert_eq!(
        densified(&input, doc! {"field": "x", "range": {"step": 1, "bounds": [3, 6]}}),
        [
            doc! {"_id": 3},
            doc! {"_id": 2, "x": 1},
            doc! {"x": 3},
            doc! {"_id": 1, "x": 4},
            doc! {"x": 5}
        ]
    );
    assert_eq!(
        densified(&[], doc! {"field": "a.x", "range": {"step": 0.5, "bounds": [0.0, 1.0]}}),
        [doc! {"a": {"x": 0.0}}, doc! {"a": {"x": 0.5}}]
    );
}

#[test]
fn densify_at_the_end_of_numbers() {
    let alone = [doc! {"x": 1e300}];
    assert_eq!(
        densified(&alone, doc! {"field": "x", "range": {"step": 1, "bounds": "full"}}),
        alone
    );
    let stage = doc! {"$densify": {"field": "x", "range": {"step": 1.0, "bounds": [1e300, 2e300]}}};
    assert_eq!(run_error(&[stage], &[]), 15);
}

#[test]
fn densify_partitions() {
    let input = [
        doc! {"p": 0, "x": 0},
        doc! {"p": 1, "x": 5},
        doc! {"p": 0, "x": 4},
        doc! {"p": 2, "x": 10},
    ];
    let sorted = |bounds: Bson| {
        let mut found: Vec<(i32, i32)> = densified(
            &input,
            doc! {"field": "x", "partitionByFields": ["p"], "range": {"step": 2, "bounds": bounds}},
        )
        .iter()
        .map(|document| (document.get_i32("p").unwrap(), document.get_i32("x").unwrap()))
        .collect();
        found.sort_unstable();
        found
    };
    assert_eq!(sorted("partition".into()), [(0, 0), (0, 2), (0, 4), (1, 5), (2, 10)]);
    let all = |p: i32| [0, 2, 4, 6, 8, 10].map(|x| (p, x));
    let mut full = [all(0), all(1), all(2)].concat();
    full.push((1, 5));
    full.sort_unstable();
    assert_eq!(sorted("full".into()), full);
    assert_eq!(
        sorted(vec![4, 8].into()),
        [(0, 0), (0, 4), (0, 6), (1, 4), (1, 5), (1, 6), (2, 4), (2, 6), (2, 10)]
    );
    // In order, partition after partition.
    let found = densified(
        &[doc! {"p": 1, "x": 3}, doc! {"p": 0, "x": 1}, doc! {"p": 0, "x": 3}],
        doc! {"field": "x", "partitionByFields": ["p"], "range": {"step": 1, "bounds": "partition"}},
    );
    assert_eq!(
        found,
        [
            doc! {"p": 0, "x": 1},
            doc! {"p": 0, "x": 2},
            doc! {"p": 0, "x": 3},
            doc! {"p": 1, "x": 3}
        ]
    );
}

/// Partitions with bounds of their own, which come one after the other: a mebibyte of each is known.
struct LargePartitions(i32);

impl Stage for LargePartitions {
    fn next(&mut self, _: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        self.0 += 1;
        let partition = format!("{:05}{}", self.0 / 2, "x".repeat(1 << 20));
        Ok((self.0 < 300).then(|| shared(&doc! {"p": partition, "x": self.0 % 2 * 2})))
    }
}

#[test]
fn densify_forgets_partitions_that_are_over() {
    let range = doc! {"step": 1, "bounds": "partition"};
    let stage = doc! {"$densify": {"field": "x", "partitionByFields": ["p"], "range": range}};
    let mut pipeline = parse(&[stage]).unwrap();
    // What it begins with sorts, as the source does.
    pipeline.stages.remove(0);
    let mut top = pipeline.run(Box::new(LargePartitions(1))).unwrap();
    let (memory, evaluation) = (Memory::default(), EvaluationContext::uninterrupted());
    let mut context = StageContext {
        execution: &memory,
        evaluation: &evaluation,
    };
    let mut found = Vec::new();
    while let Some(document) = top.next(&mut context).unwrap() {
        found.push(document.as_raw().get_i32("x").unwrap());
    }
    assert_eq!(found, [0, 1, 2].repeat(149));
}

/// However partitions lie in the order of their values: that of an array is that of its least element.
#[test]
fn densify_steps_within_each_partition() {
    let kinds: Vec<Option<Bson>> = vec![
        None,
        Some(Bson::Null),
        Some(1.into()),
        Some("a".into()),
        Some(bson::bson!([1, "a"])),
        Some(bson::bson!([1])),
        Some(bson::bson!([])),
        Some(bson::bson!({ "b": 1 })),
    ];
    for seed in 0..40_u64 {
        let random = SeededRandom::new(seed);
        let mut input = Vec::new();
        let mut expected: Vec<Document> = Vec::new();
        let step: i32 = 1 + (random.next_u64() % 4) as i32;
        for kind in &kinds {
            let of_kind = |x: i32| match kind {
                Some(kind) => doc! {"p": kind.clone(), "x": x},
                None => doc! {"x": x},
            };
            let values: Vec<i32> = (0..random.next_u64() % 5)
                .map(|_| (random.next_u64() % 20) as i32)
                .collect();
            let (Some(least), Some(greatest)) = (values.iter().min(), values.iter().max()) else {
                continue;
            };
            let steps = (*least..*greatest).step_by(step as usize);
            expected.extend(steps.filter(|x| !values.contains(x)).map(of_kind));
            input.extend(values.into_iter().map(of_kind));
        }
        expected.extend(input.iter().cloned());
        let range = doc! {"step": step, "bounds": "partition"};
        let found = densified(&input, doc! {"field": "x", "partitionByFields": ["p"], "range": range});
        let sorted = |mut documents: Vec<Document>| {
            documents.sort_by_key(ToString::to_string);
            documents
        };
        assert_eq!(sorted(found), sorted(expected), "seed {seed}: {input:?}");
    }
}

#[test]
fn densify_dates() {
    let date = |text: &str| bson::DateTime::parse_rfc3339_str(text).unwrap();
    let input = [
        doc! {"t": date("2021-01-31T00:00:00Z")},
        doc! {"t": date("2021-04-01T00:00:00Z")},
    ];
    assert_eq!(
        densified(
            &input,
            doc! {"field": "t", "range": {"step": 1, "unit": "month", "bounds": "full"}}
        ),
        [
            doc! {"t": date("2021-01-31T00:00:00Z")},
            doc! {"t": date("2021-02-28T00:00:00Z")},
            doc! {"t": date("2021-03-28T00:00:00Z")},
            doc! {"t": date("2021-04-01T00:00:00Z")},
        ]
    );
    let range = |unit: Document| {
        let mut range = doc! {"step": 1, "bounds": "full"};
        range.extend(unit);
        vec![doc! {"$densify": {"field": "t", "range": range}}]
    };
    assert_eq!(run_error(&range(doc! {}), &input), 6053600);
    assert_eq!(run_error(&range(doc! {"unit": "day"}), &[doc! {"t": 1}]), 6053600);
    assert_eq!(run_error(&range(doc! {}), &[doc! {"t": "a"}]), 5733201);
}

#[test]
fn densify_makes_so_many() {
    let stage = |greatest: i32| vec![doc! {"$densify": {"field": "x", "range": {"step": 1, "bounds": [0, greatest]}}}];
    assert_eq!(run(&stage(500_000), &[]).len(), 500_000);
    assert_eq!(run_error(&stage(500_001), &[]), 5897900);
}

#[test]
fn densify_arguments() {
    let date = |ms: i64| bson::DateTime::from_millis(ms);
    let range = |range: Document| doc! {"field": "a", "range": range};
    for (argument, wanted) in [
        (doc! {"field": "a"}, 40414),
        (doc! {"range": {"step": 1, "bounds": "full"}}, 40414),
        (range(doc! {"step": 1}), 40414),
        (range(doc! {"bounds": "full"}), 40414),
        (doc! {"field": 1, "range": {}}, 14),
        (range(doc! {"step": "x", "bounds": "full"}), 14),
        (range(doc! {"step": 1, "bounds": [date(0), date(1)], "unit": 5}), 14),
        (range(doc! {"step": 1, "bounds": [0, 1, 2]}), 5733403),
        (range(doc! {"step": -1, "bounds": [0, 1]}), 5733401),
        (range(doc! {"step": 0, "bounds": [0, 1]}), 5733401),
        (range(doc! {"step": 1, "bounds": "partition"}), 5733408),
        (range(doc! {"step": 1, "bounds": [2, 1]}), 5733402),
        (
            range(doc! {"step": 1, "bounds": [date(1), date(0)], "unit": "second"}),
            5733402,
        ),
        (range(doc! {"step": 1, "bounds": [1, 2], "unit": "second"}), 5733409),
        (range(doc! {"step": 1, "bounds": [1, date(0)]}), 5733406),
        (range(doc! {"step": 1, "bounds": [1, 2_i64]}), 5876900),
        (range(doc! {"step": 0.5, "bounds": [1, 2]}), 5876900),
        (range(doc! {"step": 1, "bounds": [1.0, 2.0]}), 5876900),
        (range(doc! {"step": 1, "bounds": [date(0), date(1)]}), 5733410),
        (range(doc! {"step": 1, "bounds": [date(0), Bson::MaxKey]}), 5733405),
        (range(doc! {"step": 1, "bounds": ["a", "b"]}), 5946800),
        (
            range(doc! {"step": 1, "bounds": [date(0), 1], "unit": "second"}),
            5733402,
        ),
        (
            range(doc! {"step": 1.1, "bounds": [date(0), date(1)], "unit": "second"}),
            6586400,
        ),
        (doc! {"field": "$a", "range": {"step": 1, "bounds": [0, 1]}}, 16410),
        (
            doc! {"field": "a", "partitionByFields": "b", "range": {"step": 1, "bounds": "full"}},
            14,
        ),
        (
            doc! {"field": "a", "partitionByFields": ["a"], "range": {"step": 1, "bounds": "full"}},
            8993000,
        ),
        (
            doc! {"field": "a", "partitionByFields": ["a.b"], "range": {"step": 1, "bounds": "full"}},
            8993000,
        ),
        (
            doc! {"field": "a.b", "partitionByFields": ["a"], "range": {"step": 1, "bounds": "full"}},
            9554500,
        ),
    ] {
        code(doc! {"$densify": argument}, wanted);
    }
}

#[test]
fn percentiles_of_groups() {
    let input: Vec<_> = ["a".into(), 2.into(), Bson::Null, 0.into(), f64::NAN.into(), 1.into()]
        .map(|x: Bson| doc! {"x": x})
        .to_vec();
    let group = |field: Document| vec![doc! {"$group": {"_id": null, "v": field}}];
    let percentile = |p: Vec<f64>| doc! {"$percentile": {"input": "$x", "p": p, "method": "approximate"}};
    gives(
        &group(percentile(vec![0.5, 0.9, 0.1])),
        &input,
        &[doc! {"_id": null, "v": [1.0, 2.0, 0.0]}],
    );
    gives(
        &group(percentile(vec![0.5, 1.0])),
        &[doc! {"x": "a"}],
        &[doc! {"_id": null, "v": [null, null]}],
    );
    let median = doc! {"$median": {"input": "$x", "method": "approximate"}};
    gives(&group(median.clone()), &input, &[doc! {"_id": null, "v": 1.0}]);
    gives(&group(median), &[doc! {}], &[doc! {"_id": null, "v": null}]);
    for (argument, wanted) in [
        (doc! {"input": "$x", "method": "approximate"}, 40414),
        (doc! {"p": [0.5], "method": "approximate"}, 40414),
        (doc! {"p": [0.5], "input": "$x"}, 40414),
        (
            doc! {"p": [0.5], "input": "$x", "method": "approximate", "more": 1},
            40415,
        ),
        (doc! {"p": 0.5, "input": "$x", "method": "approximate"}, 7750301),
        (doc! {"p": [], "input": "$x", "method": "approximate"}, 7750301),
        (doc! {"p": ["$x"], "input": "$x", "method": "approximate"}, 7750300),
        (doc! {"p": ["a"], "input": "$x", "method": "approximate"}, 7750302),
        (doc! {"p": [10], "input": "$x", "method": "approximate"}, 7750303),
        (doc! {"p": [f64::NAN], "input": "$x", "method": "approximate"}, 7750303),
        (doc! {"p": [0.5], "input": "$x", "method": "discrete"}, 2),
        (doc! {"p": [0.5], "input": "$x", "method": "continuous"}, 2),
        (doc! {"p": [0.5], "input": "$x", "method": 42}, 14),
    ] {
        code(group(doc! {"$percentile": argument}).remove(0), wanted);
    }
    code(group(doc! {"$percentile": 0.5}).remove(0), 7429703);
    code(
        group(doc! {"$median": {"input": "$x", "p": [0.5], "method": "approximate"}}).remove(0),
        40415,
    );
}

#[test]
fn percentiles_of_arrays() {
    let project = |expression: Document| vec![doc! {"$replaceWith": {"v": expression}}];
    let percentile = doc! {"$percentile": {"input": "$x", "p": [0.5, 1], "method": "approximate"}};
    let median = doc! {"$median": {"input": ["$x", 5, 9], "method": "approximate"}};
    let of = |x: Bson, wanted: Bson| gives(&project(percentile.clone()), &[doc! {"x": x}], &[doc! {"v": wanted}]);
    of(vec![3, 1, 2].into(), vec![2.0, 3.0].into());
    of(7.into(), vec![7.0, 7.0].into());
    of("a".into(), vec![Bson::Null, Bson::Null].into());
    gives(&project(median), &[doc! {"x": 7}], &[doc! {"v": 7.0}]);
}
