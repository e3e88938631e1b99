#![allow(clippy::unwrap_used)]
//! `$setWindowFields`, `$fill`.

use bson::{Bson, Document, doc};
use vfs::{Random, SeededRandom};

use super::super::tests::{code, gives, optimized, run, run_error};

/// The values of `v` after one window field over `t`.
fn column(input: &[Document], field: Document) -> Vec<Bson> {
    let stage = doc! {"$setWindowFields": {"sortBy": {"t": 1}, "output": {"v": field}}};
    run(&[stage], input)
        .into_iter()
        .map(|mut document| document.remove("v").unwrap())
        .collect()
}

fn points(values: &[(i32, Bson)]) -> Vec<Document> {
    values.iter().map(|(t, y)| doc! {"t": *t, "y": y.clone()}).collect()
}

fn ints(values: &[i32]) -> Vec<Document> {
    (0..).zip(values).map(|(t, y)| doc! {"t": t, "y": *y}).collect()
}

fn failed(code: i32, input: &[Document], field: Document) {
    let stage = doc! {"$setWindowFields": {"sortBy": {"t": 1}, "output": {"v": field}}};
    assert_eq!(run_error(&[stage], input), code);
}

fn refused(code_wanted: i32, field: Document) {
    code(
        doc! {"$setWindowFields": {"sortBy": {"t": 1}, "output": {"v": field}}},
        code_wanted,
    );
}

fn bsons<T: Into<Bson> + Clone>(values: &[T]) -> Vec<Bson> {
    values.iter().cloned().map(Into::into).collect()
}

#[test]
fn windows_of_documents() {
    let input = ints(&[1, 2, 4, 8, 16]);
    let sum = |low: Bson, high: Bson| column(&input, doc! {"$sum": "$y", "window": {"documents": [low, high]}});
    assert_eq!(sum("unbounded".into(), "current".into()), bsons(&[1, 3, 7, 15, 31]));
    assert_eq!(sum("current".into(), "unbounded".into()), bsons(&[31, 30, 28, 24, 16]));
    assert_eq!(sum((-1).into(), 1.into()), bsons(&[3, 7, 14, 28, 24]));
    assert_eq!(sum((-2).into(), (-1).into()), bsons(&[0, 1, 3, 6, 12]));
    assert_eq!(sum(1.into(), 2.into()), bsons(&[6, 12, 24, 16, 0]));
    assert_eq!(sum(7.into(), 9.into()), bsons(&[0, 0, 0, 0, 0]));
    assert_eq!(sum("unbounded".into(), (-40).into()), bsons(&[0, 0, 0, 0, 0]));
    assert_eq!(column(&input, doc! {"$sum": "$y", "window": {}}), bsons(&[31; 5]));
    assert_eq!(column(&input, doc! {"$count": {}}), bsons(&[5; 5]));
}

#[test]
fn windows_by_range() {
    let input: Vec<_> = [(0, 1), (3, 2), (10, 4), (10, 8), (20, 16)]
        .map(|(t, y)| doc! {"t": t, "y": y})
        .to_vec();
    let push = |low: Bson, high: Bson| -> Vec<i32> {
        column(&input, doc! {"$sum": "$y", "window": {"range": [low, high]}})
            .iter()
            .map(|sum| sum.as_i32().unwrap())
            .collect()
    };
    assert_eq!(push((-5).into(), 5.into()), [3, 3, 12, 12, 16]);
    // Zero takes in what ties, `current` does not.
    assert_eq!(push(0.into(), 0.into()), [1, 2, 12, 12, 16]);
    assert_eq!(push("current".into(), "current".into()), [1, 2, 4, 8, 16]);
    assert_eq!(push("unbounded".into(), "current".into()), [1, 3, 7, 15, 31]);
    assert_eq!(push((-2).into(), (-1).into()), [0; 5]);
    assert_eq!(push(7.into(), "unbounded".into()), [28, 28, 16, 16, 0]);
    assert_eq!(push(Bson::Double(-7.5), 0.into()), [1, 3, 14, 14, 16]);
    let window = doc! {"$sum": "$y", "window": {"range": [3, "unbounded"]}};
    failed(5429414, &[doc! {"t": 2}, doc! {"t": "x"}], window.clone());
    failed(5429414, &[doc! {"y": 2}], window);
    let hours = doc! {"$sum": "$y", "window": {"range": [-1, 0], "unit": "hour"}};
    let date = |hour: i64| bson::DateTime::from_millis(hour * 3_600_000);
    let dates = [
        doc! {"t": date(1), "y": 1},
        doc! {"t": date(2), "y": 2},
        doc! {"t": date(4), "y": 4},
    ];
    assert_eq!(column(&dates, hours.clone()), bsons(&[1, 3, 4]));
    failed(5429513, &[doc! {"t": 2}], hours);
}

#[test]
fn partitions() {
    let input = [
        doc! {"_id": 1, "p": "a", "t": 2},
        doc! {"_id": 2, "p": "b", "t": 1},
        doc! {"_id": 3, "p": "a", "t": 1},
        doc! {"_id": 4, "t": 1},
        doc! {"_id": 5, "p": null, "t": 2},
    ];
    let ranked = |by: Bson| {
        let stage = doc! {"$setWindowFields": {"partitionBy": by, "sortBy": {"t": 1}, "output": {"n": {"$documentNumber": {}}}}};
        let mut found: Vec<(i32, i32)> = run(&[stage], &input)
            .iter()
            .map(|document| (document.get_i32("_id").unwrap(), document.get_i32("n").unwrap()))
            .collect();
        found.sort_unstable();
        found
    };
    let apart = [(1, 2), (2, 1), (3, 1), (4, 1), (5, 2)];
    assert_eq!(ranked("$p".into()), apart);
    // Computed: the stage sorts by itself.
    assert_eq!(ranked(doc! {"$toUpper": "$p"}.into()), apart);
    assert_eq!(ranked(5.into()), [(1, 4), (2, 1), (3, 2), (4, 3), (5, 5)]);
    // A document without the field is not one that has null.
    assert_eq!(
        ranked(doc! {"p": "$p"}.into()),
        [(1, 2), (2, 1), (3, 1), (4, 1), (5, 1)]
    );
    let array = doc! {"$setWindowFields": {"partitionBy": "$p", "output": {"n": {"$sum": 1}}}};
    assert_eq!(run_error(&[array], &[doc! {"p": [1]}]), 14);
}

#[test]
fn fields_are_set_as_by_add_fields() {
    let stage = doc! {"$setWindowFields": {"sortBy": {"t": 1}, "output": {"a": {"$sum": 1}, "b.c": {"$sum": 2}}}};
    gives(
        &[stage],
        &[doc! {"a": 9, "t": 1}, doc! {"t": 2, "b": [{"d": 1}, {}]}],
        &[
            doc! {"a": 2, "t": 1, "b": {"c": 4}},
            doc! {"t": 2, "b": [{"d": 1, "c": 4}, {"c": 4}], "a": 2},
        ],
    );
    gives(
        &[doc! {"$setWindowFields": {"output": {}}}],
        &[doc! {"a": 1}],
        &[doc! {"a": 1}],
    );
}

#[test]
fn accumulators_slide() {
    let input = ints(&[3, 1, 1, 2]);
    let over =
        |function: &str, argument: Bson| column(&input, doc! {function: argument, "window": {"documents": [-1, 0]}});
    assert_eq!(over("$avg", "$y".into()), bsons(&[3.0, 2.0, 1.0, 1.5]));
    assert_eq!(over("$min", "$y".into()), bsons(&[3, 1, 1, 1]));
    assert_eq!(over("$max", "$y".into()), bsons(&[3, 3, 1, 2]));
    assert_eq!(over("$first", "$y".into()), bsons(&[3, 3, 1, 1]));
    assert_eq!(over("$last", "$y".into()), bsons(&[3, 1, 1, 2]));
    let arrays = |rows: &[&[i32]]| rows.iter().map(|row| Bson::Array(bsons(row))).collect::<Vec<_>>();
    assert_eq!(over("$push", "$y".into()), arrays(&[&[3], &[3, 1], &[1, 1], &[1, 2]]));
    assert_eq!(over("$addToSet", "$y".into()), arrays(&[&[3], &[1, 3], &[1], &[1, 2]]));
    let n = |field: &str| doc! {"n": 1, field: "$y"};
    assert_eq!(over("$minN", n("input").into()), arrays(&[&[3], &[1], &[1], &[1]]));
    assert_eq!(over("$maxN", n("input").into()), arrays(&[&[3], &[3], &[1], &[2]]));
    assert_eq!(over("$firstN", n("input").into()), arrays(&[&[3], &[3], &[1], &[1]]));
    assert_eq!(over("$lastN", n("input").into()), arrays(&[&[3], &[1], &[1], &[2]]));
    let top = doc! {"sortBy": {"y": 1}, "output": "$y"};
    assert_eq!(over("$top", top.clone().into()), bsons(&[3, 1, 1, 1]));
    assert_eq!(over("$bottom", top.into()), bsons(&[3, 3, 1, 2]));
    let median = doc! {"input": "$y", "method": "approximate"};
    assert_eq!(over("$median", median.into()), bsons(&[3.0, 1.0, 1.0, 1.0]));
    let percentile = doc! {"input": "$y", "p": [0.9], "method": "approximate"};
    assert_eq!(
        over("$percentile", percentile.into()),
        [3.0, 3.0, 1.0, 2.0].map(|x| Bson::Array(vec![x.into()]))
    );
    assert_eq!(
        over("$stdDevPop", "$y".into()),
        [0.into(), 1.0.into(), 0.0.into(), 0.5.into()]
    );
    // An array is an expression here.
    assert_eq!(over("$stdDevPop", vec!["$y"].into()), vec![Bson::Null; 4]);
}

#[test]
fn what_is_not_finite_leaves_the_window() {
    let input: Vec<_> = [f64::INFINITY, 10.0, 20.0, f64::NAN, 40.0, 50.0]
        .iter()
        .zip(0..)
        .map(|(y, t)| doc! {"t": t, "y": *y})
        .collect();
    let window = doc! {"documents": [-1, 0]};
    let deviation = column(&input, doc! {"$stdDevPop": "$y", "window": window.clone()});
    let null = Bson::Null;
    assert_eq!(
        deviation,
        [null.clone(), null.clone(), 5.0.into(), null.clone(), null, 5.0.into()]
    );
    let sums = column(&input, doc! {"$sum": "$y", "window": window});
    assert_eq!(sums[2], Bson::Double(30.0));
    assert_eq!(sums[5], Bson::Double(90.0));
    let growing = column(
        &input,
        doc! {"$stdDevPop": "$y", "window": {"documents": ["unbounded", "current"]}},
    );
    assert!(growing.iter().all(|value| value.as_f64().unwrap().is_nan()));
}

/// What leaves is subtracted after what comes was added, from all that the sum knows; growing windows are groups' sums.
#[test]
fn sums_of_doubles_in_windows() {
    let input = |values: &[f64]| -> Vec<_> { (0..).zip(values).map(|(t, y)| doc! {"t": t, "y": *y}).collect() };
    let money = input(&[208.32, 624.96, 1249.92, 1022.68]);
    let over =
        |input: &[Document], low: Bson| column(input, doc! {"$sum": "$y", "window": {"documents": [low, "current"]}});
    assert_eq!(over(&money, "unbounded".into())[2], Bson::Double(2083.2));
    let sliding = over(&money, (-1).into());
    assert_eq!(sliding, bsons(&[208.32, 833.28, 1874.88, 2272.6]));
    let large = input(&[1e16, 1.0, 1.0]);
    assert_eq!(over(&large, 0.into()), bsons(&[1e16, 0.0, 1.0]));
    let averages = column(&large, doc! {"$avg": "$y", "window": {"documents": [0, 0]}});
    assert_eq!(averages, bsons(&[1e16, 0.0, 1.0]));
}

/// The type is that of the numbers inside, whatever has left.
#[test]
fn sums_in_windows_have_the_type_of_what_is_inside() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let values: [Bson; 7] = [
        decimal("0.5"),
        2.5.into(),
        i64::MIN.into(),
        7.into(),
        decimal("NaN"),
        1.5.into(),
        3.into(),
    ];
    let input: Vec<_> = (0..).zip(&values).map(|(t, y)| doc! {"t": t, "y": y}).collect();
    let window = doc! {"documents": [0, 0]};
    assert_eq!(column(&input, doc! {"$sum": "$y", "window": window}), values);
}

#[test]
fn empty_windows() {
    let input = ints(&[5]);
    let over = |function: &str| column(&input, doc! {function: "$y", "window": {"documents": [1, 2]}}).remove(0);
    assert_eq!(over("$sum"), Bson::Int32(0));
    for function in ["$avg", "$min", "$max", "$stdDevPop", "$first", "$last"] {
        assert_eq!(over(function), Bson::Null, "{function}");
    }
    assert_eq!(over("$push"), Bson::Array(Vec::new()));
    assert_eq!(over("$addToSet"), Bson::Array(Vec::new()));
}

#[test]
fn ranks() {
    let input = [1, 1, 2, 2, 3].map(|t| doc! {"t": t});
    assert_eq!(column(&input, doc! {"$rank": {}}), bsons(&[1, 1, 3, 3, 5]));
    assert_eq!(column(&input, doc! {"$denseRank": {}}), bsons(&[1, 1, 2, 2, 3]));
    assert_eq!(column(&input, doc! {"$documentNumber": {}}), bsons(&[1, 2, 3, 4, 5]));
    // By the sort's key: null, missing and an array whose least element is null tie.
    let nulls = [doc! {}, doc! {"t": null}, doc! {"t": [null]}, doc! {"t": ["a", null]}];
    assert_eq!(column(&nulls, doc! {"$rank": {}}), bsons(&[1, 1, 1, 1]));
    refused(5371601, doc! {"$rank": {}, "window": {"documents": [-1, 1]}});
    refused(5371601, doc! {"$rank": {}, "window": []});
    refused(5371603, doc! {"$denseRank": "$t"});
    let output = doc! {"v": {"$documentNumber": {}}};
    code(doc! {"$setWindowFields": {"output": output.clone()}}, 5371602);
    code(
        doc! {"$setWindowFields": {"sortBy": {"a": 1, "b": 1}, "output": output}},
        5371602,
    );
}

#[test]
fn shift() {
    let input = ints(&[1, 2, 3]);
    let null = Bson::Null;
    let by = |by: i32| column(&input, doc! {"$shift": {"output": "$y", "by": by}});
    assert_eq!(by(1), [2.into(), 3.into(), null.clone()]);
    assert_eq!(by(-2), [null.clone(), null, 1.into()]);
    assert_eq!(by(0), bsons(&[1, 2, 3]));
    let default = doc! {"$shift": {"output": "$z", "by": 1, "default": {"$concat": ["a", "b"]}}};
    assert_eq!(column(&input, default), bsons(&["ab", "ab", "ab"]));
    for wrong in [
        doc! {"output": "$y"},
        doc! {"by": 1},
        doc! {"output": "$y", "by": "1"},
        doc! {"output": "$y", "by": 1.1},
        doc! {"output": "$y", "by": {"$sum": [1, 1]}},
        doc! {"output": "$y", "by": 1, "default": "$y"},
        doc! {"output": "$y", "by": 1, "more": 1},
    ] {
        refused(9, doc! {"$shift": wrong});
    }
    code(
        doc! {"$setWindowFields": {"output": {"v": {"$shift": {"output": "$y", "by": 1}}}}},
        9,
    );
    refused(9, doc! {"$shift": {"output": "$y", "by": 1}, "window": {}});
}

#[test]
fn moving_average() {
    let input = points(&[
        (0, "a".into()),
        (1, 13.into()),
        (2, 14.into()),
        (3, Bson::Null),
        (4, 20.into()),
    ]);
    assert_eq!(
        column(&input, doc! {"$expMovingAvg": {"input": "$y", "N": 3}}),
        [Bson::Null, 13.into(), 13.5.into(), 13.5.into(), 16.75.into()]
    );
    assert_eq!(
        column(&input, doc! {"$expMovingAvg": {"input": "$y", "alpha": 0.75}})[2],
        Bson::Double(13.75)
    );
    for wrong in [
        doc! {"input": "$y", "N": 1, "alpha": 0.5},
        doc! {"input": "$y"},
        doc! {"N": 1},
        doc! {"input": "$y", "N": 0.5},
        doc! {"input": "$y", "N": "food"},
        doc! {"input": "$y", "alpha": 1.0},
        doc! {"input": "$y", "alpha": 0.0},
    ] {
        refused(9, doc! {"$expMovingAvg": wrong});
    }
    refused(9, doc! {"$expMovingAvg": "$y"});
}

#[test]
fn derivative() {
    let times = |values: &[(i32, i32)]| values.iter().map(|(t, y)| doc! {"t": *t, "y": *y}).collect::<Vec<_>>();
    let input = times(&[(0, 10), (10, 12), (11, 15), (12, 19), (13, 24), (20, 30)]);
    let slope = doc! {"$derivative": {"input": "$y"}, "window": {"range": [-10, 0]}};
    assert_eq!(
        column(&input, slope),
        [Bson::Null, 0.2.into(), 3.0.into(), 3.5.into(), 4.0.into(), 1.8.into()]
    );
    let clamped = doc! {"$derivative": {"input": "$y"}, "window": {"documents": [-3, 1]}};
    assert_eq!(
        column(&times(&[(0, 100), (1, 105), (2, 108)]), clamped),
        bsons(&[5.0, 4.0, 4.0])
    );
    let date = |ms: i64| bson::DateTime::from_millis(ms);
    let dates = [doc! {"t": date(0), "y": 5}, doc! {"t": date(1), "y": 4}];
    let unit = |unit: &str| doc! {"$derivative": {"input": "$y", "unit": unit}, "window": {"documents": [-1, 0]}};
    assert_eq!(column(&dates, unit("minute")), [Bson::Null, (-60_000.0).into()]);
    failed(5624900, &ints(&[1, 2]), unit("second"));
    failed(
        5624901,
        &dates,
        doc! {"$derivative": {"input": "$y"}, "window": {"documents": [-1, 0]}},
    );
    refused(9, doc! {"$derivative": {"input": "$y"}});
    let slope = || doc! {"$derivative": {"input": "$y"}, "window": {"documents": [-1, 0]}};
    // Dates are subtracted; what is null or missing is an error.
    let rising = [doc! {"t": 0, "y": date(0)}, doc! {"t": 8, "y": date(1000)}];
    assert_eq!(column(&rising, slope()), [Bson::Null, 125.0.into()]);
    failed(
        5624903,
        &[doc! {"t": 0, "y": 1}, doc! {"t": 1, "y": Bson::Null}],
        slope(),
    );
    failed(5624903, &[doc! {"t": 0}, doc! {"t": 1, "y": 1}], slope());
    failed(5624903, &[doc! {"t": 0}], slope());
    failed(5624902, &[doc! {"t": "a", "y": 1}], slope());
    failed(14, &[doc! {"t": 0, "y": 1}, doc! {"t": 1, "y": "a"}], slope());
    for t in [Bson::Null, "a".into(), true.into()] {
        failed(5624902, &vec![doc! {"t": t, "y": 1}; 2], slope());
    }
    refused(5490710, unit("month"));
    assert_eq!(column(&dates, unit("week")).len(), 2);
}

#[test]
fn integral() {
    let input: Vec<_> = [(0, 1), (1, 2), (2, 1), (3, 4)]
        .map(|(t, y)| doc! {"t": t, "y": y})
        .to_vec();
    let over = |low: i32, high: i32| {
        column(
            &input,
            doc! {"$integral": {"input": "$y"}, "window": {"documents": [low, high]}},
        )
    };
    assert_eq!(over(-1, 0), [0.into(), 1.5.into(), 1.5.into(), 2.5.into()]);
    assert_eq!(over(-2, 0), [0.into(), 1.5.into(), 3.0.into(), 4.0.into()]);
    assert_eq!(over(5, 6), vec![Bson::Null; 4]);
    let date = |ms: i64| bson::DateTime::from_millis(ms);
    let dates = [doc! {"t": date(0), "y": 0}, doc! {"t": date(2), "y": 2}];
    assert_eq!(
        column(&dates, doc! {"$integral": {"input": "$y", "unit": "second"}}),
        bsons(&[0.002, 0.002])
    );
    failed(5423901, &input, doc! {"$integral": {"input": "$y", "unit": "second"}});
    failed(5423902, &dates, doc! {"$integral": {"input": "$y"}});
    for wrong in [
        doc! {"t": 10},
        doc! {"t": 10, "y": Bson::Null},
        doc! {"t": 10, "y": "x"},
        doc! {"t": 10, "y": [1]},
        doc! {"t": "x", "y": 1},
    ] {
        failed(5423900, &[wrong], doc! {"$integral": {"input": "$y"}});
    }
}

#[test]
fn covariance() {
    let input = [
        doc! {"t": 1, "x": 0, "y": 0},
        doc! {"t": 2, "x": 2, "y": 2},
        doc! {"t": 3, "x": "a", "y": 1},
    ];
    let over = |function: &str, low: &str| {
        column(
            &input,
            doc! {function: ["$x", "$y"], "window": {"documents": [low, "current"]}},
        )
    };
    assert_eq!(over("$covariancePop", "unbounded"), bsons(&[0.0, 1.0, 1.0]));
    assert_eq!(
        over("$covarianceSamp", "unbounded"),
        [Bson::Null, 2.0.into(), 2.0.into()]
    );
    assert_eq!(over("$covariancePop", "current"), [0.0.into(), 0.0.into(), Bson::Null]);
}

#[test]
fn linear_fill_and_locf() {
    let null = Bson::Null;
    let input = points(&[
        (0, null.clone()),
        (1, 1.into()),
        (2, null.clone()),
        (5, 4.into()),
        (6, null.clone()),
    ]);
    assert_eq!(
        column(&input, doc! {"$linearFill": "$y"}),
        [null.clone(), 1.into(), 1.75.into(), 4.into(), null.clone()]
    );
    assert_eq!(
        column(&input, doc! {"$locf": "$y"}),
        [null.clone(), 1.into(), 1.into(), 4.into(), 4.into()]
    );
    let odd = [
        doc! {"t": 0.5, "y": 0},
        doc! {"t": 1},
        doc! {"t": 4.384},
        doc! {"t": 9},
        doc! {"t": 10.09283, "y": 11.28374},
    ];
    assert_eq!(
        column(&odd, doc! {"$linearFill": "$y"})[1..4],
        bsons(&[0.5881340542884634, 4.5686253337127845, 9.998278922903879])
    );
    failed(
        6050106,
        &[doc! {"t": 1, "y": 1}, doc! {"t": 1}],
        doc! {"$linearFill": "$y"},
    );
    failed(14, &[doc! {"t": null, "y": 1}], doc! {"$linearFill": "$y"});
    failed(14, &[doc! {"t": 1, "y": "a"}], doc! {"$linearFill": "$y"});
    let date = bson::DateTime::from_millis(5);
    failed(
        14,
        &[doc! {"t": 1, "y": 1}, doc! {"t": date, "y": 1}],
        doc! {"$linearFill": "$y"},
    );
    let fill = doc! {"v": {"$linearFill": "$y"}};
    code(
        doc! {"$setWindowFields": {"sortBy": {"a": 1, "b": 1}, "output": fill}},
        605001,
    );
    refused(9, doc! {"$locf": "$y", "window": []});
}

#[test]
fn refusals() {
    for (window, wanted) in [
        (doc! {"documents": [1, -1]}, 5339900),
        (doc! {"documents": ["current", -1]}, 5339900),
        (doc! {"range": [1, "current"]}, 5339900),
        (doc! {"range": [1, -1], "unit": "day"}, 5339900),
        (doc! {"documents": [-1.5, 0]}, 9),
        (doc! {"documents": []}, 9),
        (doc! {"documents": [true, 0]}, 9),
        (doc! {"documents": [null, 0]}, 9),
        (doc! {"documents": ["x", 0]}, 9),
        (doc! {"documents": [{"$const": "current"}, 3]}, 9),
        (doc! {"documents": [-1, 0], "range": [-1, 0]}, 9),
        (doc! {"documents": [-1, 0], "unit": "day"}, 9),
        (doc! {"documents": [-1, 0], "more": 1}, 9),
        (doc! {"range": ["x", 0]}, 9),
        (doc! {"range": [-1.5, 0], "unit": "second"}, 9),
        (doc! {"range": [-1, 0], "unit": "eon"}, 9),
        (doc! {"range": [-1, 0], "unit": null}, 9),
    ] {
        refused(wanted, doc! {"$sum": "$y", "window": window});
    }
    refused(9, doc! {"$sum": "$y", "window": null});
    refused(9, doc! {"$sum": "$y", "window": [-1, 0]});
    refused(9, doc! {"$sum": "$y", "more": 1});
    refused(9, doc! {"$mergeObjects": "$y"});
    refused(9, doc! {"sum": "$y"});
    refused(9, doc! {});
    refused(5787801, doc! {"$firstN": 5});
    refused(7429703, doc! {"$percentile": 5});
    refused(7436100, doc! {"$median": 5});
    let stage = |argument: Document| doc! {"$setWindowFields": argument};
    code(doc! {"$setWindowFields": 1}, 9);
    code(stage(doc! {}), 40414);
    code(stage(doc! {"what": 1}), 40415);
    code(stage(doc! {"sortBy": 1, "output": {}}), 14);
    code(stage(doc! {"output": 1}), 14);
    code(stage(doc! {"sortBy": {"a": 0}, "output": {}}), 15975);
    code(stage(doc! {"partitionBy": {"$not_one": 1}, "output": {}}), 168);
    code(stage(doc! {"output": {"a": {"$sum": 1}, "a.b": {"$sum": 1}}}), 6307900);
    let sliding = |kind: &str| doc! {"v": {"$sum": 1, "window": {kind: [-1, 0]}}};
    code(stage(doc! {"output": sliding("documents")}), 5339901);
    code(stage(doc! {"output": sliding("range")}), 5339902);
    code(
        stage(doc! {"sortBy": {"a": 1, "b": 1}, "output": sliding("range")}),
        5339902,
    );
    code(stage(doc! {"sortBy": {"a": -1}, "output": sliding("range")}), 8947401);
}

#[test]
fn matches_on_the_partition_go_ahead() {
    let window = doc! {"$setWindowFields": {"partitionBy": "$p", "sortBy": {"t": 1}, "output": {"v": {"$sum": 1}}}};
    let names = |filter: Document| {
        optimized(&[window.clone(), doc! {"$match": filter}])
            .iter()
            .map(|stage| stage.keys().next().unwrap().clone())
            .collect::<Vec<_>>()
    };
    let behind = ["$sort", "$_internalSetWindowFields", "$match"];
    let ahead = ["$match", "$sort", "$_internalSetWindowFields"];
    assert_eq!(names(doc! {"p": 1}), ahead);
    assert_eq!(names(doc! {"p": {"$in": [1, 2]}}), ahead);
    assert_eq!(
        names(doc! {"p": 1, "v": 2}),
        ["$match", "$sort", "$_internalSetWindowFields", "$match"]
    );
    assert_eq!(names(doc! {"t": 1}), behind);
    assert_eq!(names(doc! {"v": 1}), behind);
    // 1 and 1.0 are one partition, null and missing too.
    assert_eq!(names(doc! {"p": {"$type": "int"}}), behind);
    assert_eq!(names(doc! {"p": {"$exists": true}}), behind);
}

#[test]
fn fill() {
    let input = [
        doc! {"_id": 1, "p": 1, "a": 1, "b": 5},
        doc! {"_id": 2, "p": 2, "a": 7},
        doc! {"_id": 3, "p": 1, "a": null},
        doc! {"_id": 4, "p": 1, "a": 4},
    ];
    let filled = |partition: Document| {
        let mut stage =
            doc! {"sortBy": {"_id": 1}, "output": {"a": {"method": "linear"}, "b": {"value": {"$add": ["$p", 10]}}}};
        stage.extend(partition);
        let mut found = run(&[doc! {"$fill": stage}], &input);
        found.sort_by_key(|document| document.get_i32("_id").unwrap());
        found
    };
    let wanted = [
        doc! {"_id": 1, "p": 1, "a": 1, "b": 5},
        doc! {"_id": 2, "p": 2, "a": 7, "b": 12},
        doc! {"_id": 3, "p": 1, "a": 3.0, "b": 11},
        doc! {"_id": 4, "p": 1, "a": 4, "b": 11},
    ];
    assert_eq!(filled(doc! {"partitionByFields": ["p"]}), wanted);
    assert_eq!(
        filled(doc! {"partitionByFields": ["p"], "partitionBy": Bson::Null}),
        wanted
    );
    assert_eq!(filled(doc! {"partitionBy": {"p": "$p"}}), wanted);
    assert_eq!(filled(doc! {"partitionBy": "$p"}), wanted);
    gives(
        &[doc! {"$fill": {"output": {"a": {"method": "locf"}}}}],
        &[doc! {"a": null}, doc! {"a": 1}, doc! {}],
        &[doc! {"a": null}, doc! {"a": 1}, doc! {"a": 1}],
    );
    for (argument, wanted) in [
        (doc! {}, 40414),
        (doc! {"output": {}}, 6050203),
        (doc! {"partitionBy": {"$bad": 1}, "output": {"v": {"value": 1}}}, 168),
        (doc! {"partitionBy": "abc", "output": {"v": {"value": 1}}}, 16873),
        (doc! {"output": {"a": {"method": "random"}}}, 6050202),
        (doc! {"output": {"a": "random"}}, 6050200),
        (doc! {"output": {"a": {"method": "locf", "second": 1}}}, 40415),
        (doc! {"output": {"a": {"method": "linear"}}}, 605001),
        (
            doc! {"output": {"a": {"method": "locf"}}, "partitionBy": {"a": "$a"}, "partitionByFields": ["a"]},
            6050204,
        ),
    ] {
        code(doc! {"$fill": argument}, wanted);
    }
    code(doc! {"$fill": "test"}, 9);
}

/// A window that slides gives what the function gives over the window's documents alone.
#[test]
fn sliding_is_as_recomputing() {
    let random = SeededRandom::new(7);
    let below = |n: u64| random.next_u64() % n;
    for round in 0..60 {
        let mut t = 0;
        let mut input = Vec::new();
        for _ in 0..below(40) {
            t += below(3) as i32;
            let y: Bson = match below(8) {
                0 => Bson::Null,
                1 => "text".into(),
                2 => (below(9) as f64 / 4.0).into(),
                3 => Bson::Decimal128("1.5".parse().unwrap()),
                _ => (below(6) as i32).into(),
            };
            input.push(doc! {"t": t, "y": y});
        }
        let (low, width) = (below(9) as i32 - 4, below(6) as i32);
        let bounds = [low, low + width];
        let n = doc! {"n": 2, "input": "$y"};
        let top = doc! {"n": 2, "sortBy": {"y": -1}, "output": "$t"};
        for (function, argument) in [
            ("$sum", Bson::from("$y")),
            ("$avg", "$y".into()),
            ("$min", "$y".into()),
            ("$max", "$y".into()),
            ("$push", "$y".into()),
            ("$first", "$y".into()),
            ("$last", "$y".into()),
            ("$minN", n.clone().into()),
            ("$maxN", n.clone().into()),
            ("$firstN", n.clone().into()),
            ("$lastN", n.into()),
            ("$topN", top.clone().into()),
            ("$bottomN", top.into()),
            ("$median", doc! {"input": "$y", "method": "approximate"}.into()),
        ] {
            let inside = |place: usize, by_range: bool| -> Vec<Document> {
                let (first, last) = (i64::from(bounds[0]), i64::from(bounds[1]));
                let own = i64::from(input[place].get_i32("t").unwrap());
                input
                    .iter()
                    .enumerate()
                    .filter(|(other, document)| {
                        let distance = if by_range {
                            i64::from(document.get_i32("t").unwrap()) - own
                        } else {
                            *other as i64 - place as i64
                        };
                        (first..=last).contains(&distance)
                    })
                    .map(|(_, document)| document.clone())
                    .collect()
            };
            for by_range in [false, true] {
                let kind = if by_range { "range" } else { "documents" };
                let window = doc! {kind: [bounds[0], bounds[1]]};
                let found = column(&input, doc! {function: argument.clone(), "window": window});
                for (place, found) in found.into_iter().enumerate() {
                    let mut argument = argument.clone();
                    // Of equal greatest values, too: it takes the ends of all that are there.
                    let takes_ends = matches!(function, "$maxN" | "$bottomN");
                    if let (true, Bson::Document(argument)) = (takes_ends, &mut argument) {
                        argument.insert("n", 100);
                    }
                    let group = doc! {"$group": {"_id": null, "v": {function: argument}}};
                    let mut documents = inside(place, by_range);
                    // Of equal least values a window that slides keeps the first, a group the last.
                    if function == "$min" {
                        documents.reverse();
                    }
                    // A group of nothing is no document.
                    let Some(wanted) = run(&[group], &documents).pop() else {
                        continue;
                    };
                    let mut wanted = wanted.get("v").cloned().unwrap();
                    if let (true, Bson::Array(all)) = (takes_ends, &mut wanted) {
                        let others = all.len().saturating_sub(2);
                        match function {
                            "$maxN" => all.truncate(2),
                            _ => drop(all.drain(..others)),
                        }
                    }
                    assert_eq!(
                        found, wanted,
                        "round {round}, {function} {kind} {bounds:?}, document {place} of {input:?}"
                    );
                }
            }
        }
    }
}

/// Windows that slide have types and ties of their own.
#[test]
fn windows_that_slide() {
    let sliding = |name: &str, values: &[Bson]| {
        let input: Vec<_> = (0..).zip(values).map(|(t, y)| doc! {"t": t, "y": y}).collect();
        let column = column(&input, doc! {name: "$y", "window": {"documents": [-1, 0]}});
        column.last().unwrap().clone()
    };
    let longs: [Bson; 3] = [1_i64.into(), 2_i64.into(), (1_i64 << 40).into()];
    assert_eq!(sliding("$sum", &longs[..2]), 3.into());
    assert_eq!(sliding("$sum", &longs), ((1_i64 << 40) + 2).into());
    let equal: [Bson; 4] = [1.into(), 1_i64.into(), 1.0.into(), 2.into()];
    assert_eq!(sliding("$max", &equal[..3]), 1.0.into());
    assert_eq!(sliding("$min", &equal[..3]), 1_i64.into());
    let set = sliding("$addToSet", &[1.into(), 1_i64.into(), 2.into()]);
    assert_eq!(set, Bson::Array(vec![1_i64.into(), 2.into()]));
    assert_eq!(sliding("$stdDevPop", &equal[..1]), 0.into());
    assert_eq!(sliding("$stdDevPop", &equal[..2]), 0.0.into());
    assert_eq!(sliding("$stdDevSamp", &equal[..1]), Bson::Null);
}

#[test]
fn errors_of_windows_have_an_order() {
    let stage = |sort: Document, field: Document| {
        let field = doc! {"v": field};
        let mut stage = doc! {"partitionBy": {"$const": []}, "output": field};
        if !sort.is_empty() {
            stage.insert("sortBy", sort);
        }
        doc! {"$setWindowFields": stage}
    };
    let documents = doc! {"documents": ["unbounded", "current"]};
    code(stage(doc! {}, doc! {"$sum": "$a", "window": documents}), 5339901);
    code(stage(doc! {}, doc! {"$rank": {}}), 5371602);
    code(stage(doc! {"t": 1}, doc! {"$sum": "$a"}), 14);
    for sort in [doc! {}, doc! {"t": 1, "u": 1}] {
        for name in ["$integral", "$derivative"] {
            let curve = doc! {name: {"input": "$a"}, "window": {"range": [-1, 1]}};
            code(stage(sort.clone(), curve), 9);
        }
    }
    for wrong in [Bson::from(1), doc! {"x": 1}.into()] {
        code(stage(doc! {"t": 1}, doc! {"$count": wrong}), 9);
    }
}

/// Pairs with NaN or an infinity are not counted, and show in the result of those that are.
#[test]
fn covariance_of_what_is_not_finite() {
    let inf = f64::INFINITY;
    let of = |function: &str, odd: &[[f64; 2]], finite: usize| {
        let pairs = odd.iter().chain(&[[1.0, 2.0], [2.0, 4.0]][..finite]);
        let input: Vec<_> = (0..)
            .zip(pairs)
            .map(|(t, pair)| doc! {"t": t, "y": pair.to_vec()})
            .collect();
        column(&input, doc! {function: "$y"}).remove(0)
    };
    let population = |odd: &[[f64; 2]], finite| of("$covariancePop", odd, finite);
    assert_eq!(population(&[[inf, inf]], 2), inf.into());
    assert_eq!(population(&[[inf, 1.0]], 2), inf.into());
    assert_eq!(population(&[[-inf, -inf]], 2), (-inf).into());
    for odd in [
        vec![[inf, -inf]],
        vec![[inf, inf], [-inf, -inf]],
        vec![[inf, inf], [1.0, f64::NAN]],
    ] {
        assert!(population(&odd, 2).as_f64().unwrap().is_nan(), "{odd:?}");
    }
    assert_eq!(population(&[[inf, inf]], 1), 0.0.into());
    assert_eq!(population(&[[f64::NAN, f64::NAN]], 0), Bson::Null);
    assert_eq!(of("$covarianceSamp", &[[inf, inf]], 1), Bson::Null);
    assert_eq!(of("$covarianceSamp", &[[inf, inf]], 2), inf.into());
    let decimal = Bson::Decimal128("Infinity".parse().unwrap());
    let input = [[decimal.clone(), 1.into()], [1.into(), 2.into()], [2.into(), 4.into()]];
    let input: Vec<_> = (0..)
        .zip(input)
        .map(|(t, pair)| doc! {"t": t, "y": pair.to_vec()})
        .collect();
    assert_eq!(column(&input, doc! {"$covariancePop": "$y"})[0], decimal);
    // They leave nothing behind.
    let input = [[inf, inf], [1.0, 2.0], [2.0, 4.0]];
    let input: Vec<_> = (0..)
        .zip(input)
        .map(|(t, pair)| doc! {"t": t, "y": pair.to_vec()})
        .collect();
    let sliding = doc! {"$covariancePop": "$y", "window": {"documents": [-1, 0]}};
    assert_eq!(column(&input, sliding), [Bson::Null, 0.0.into(), 0.5.into()]);
}
