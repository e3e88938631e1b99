use super::*;

#[test]
fn promotion_and_overflow() {
    gives(doc! {"$add": [1, 2]}, 3);
    gives(doc! {"$add": []}, 0);
    gives(doc! {"$add": [i32::MAX, 1]}, 2_147_483_648_i64);
    gives(doc! {"$add": [1_i64, 2]}, 3_i64);
    gives(doc! {"$add": [1, 2.5]}, 3.5);
    gives(doc! {"$add": [i64::MAX, 1]}, 9.223372036854776e18);
    gives(doc! {"$add": [dec("0.1"), dec("0.2")]}, dec("0.3"));
    gives(doc! {"$add": [dec("1.10"), 1]}, dec("2.10"));
    gives(doc! {"$subtract": [i32::MIN, 1]}, -2_147_483_649_i64);
    gives(doc! {"$subtract": [5, 2.0]}, 3.0);
    gives(doc! {"$multiply": [3, 4, 2]}, 24);
    gives(doc! {"$multiply": [i32::MAX, 2]}, 4_294_967_294_i64);
    gives(doc! {"$multiply": [i64::MAX, 2]}, 1.8446744073709552e19);
    gives(doc! {"$divide": [7, 2]}, 3.5);
    gives(doc! {"$divide": [6, 2]}, 3.0);
    gives(doc! {"$divide": [dec("1"), dec("8")]}, dec("0.125"));
    gives(doc! {"$mod": [-7, 3]}, -1);
    gives(doc! {"$mod": [7_i64, 3]}, 1_i64);
    gives(doc! {"$mod": [7.5, 2]}, 1.5);
    gives(doc! {"$mod": [i32::MIN, -1]}, 0);
    fails(doc! {"$divide": [1, 0]}, 2);
    fails(doc! {"$divide": ["a", 1]}, 14);
    fails(doc! {"$mod": [1, 0]}, 16610);
    fails(doc! {"$mod": ["a", 1]}, 16611);
    fails(doc! {"$subtract": ["a", 1]}, 14);
}

#[test]
fn dates_in_sums() {
    gives(doc! {"$add": [date(1000), 500]}, date(1500));
    gives(doc! {"$add": [500.6, date(1000)]}, date(1501));
    gives(doc! {"$subtract": [date(1000), date(400)]}, 600_i64);
    gives(doc! {"$subtract": [date(1000), 1]}, date(999));
    fails(doc! {"$add": [date(1), date(2)]}, 16612);
    fails(doc! {"$subtract": [1, date(2)]}, 14);
    fails(doc! {"$add": [date(i64::MAX), 1e300]}, 15);
    for number in [f64::NAN.into(), f64::INFINITY.into(), dec("NaN")] {
        fails(doc! {"$add": [date(1), number.clone()]}, 15);
        fails(doc! {"$subtract": [date(1), number]}, 15);
    }
}

#[test]
fn rounding() {
    gives(doc! {"$round": 2.5}, 2.0);
    gives(doc! {"$round": 3.5}, 4.0);
    gives(doc! {"$round": -1.5}, -2.0);
    gives(doc! {"$round": [2.345, 2]}, 2.35);
    gives(doc! {"$round": [1.5, 0]}, 2.0);
    gives(doc! {"$round": [1234.5678, -2]}, 1200.0);
    gives(doc! {"$round": [1250, -2]}, 1200);
    gives(doc! {"$round": [1350, -2]}, 1400);
    gives(doc! {"$round": [2_147_483_647, -1]}, 2_147_483_650_i64);
    gives(doc! {"$round": [dec("1.255"), 2]}, dec("1.26"));
    gives(doc! {"$trunc": [7.85, 1]}, 7.8);
    gives(doc! {"$trunc": -7.8}, -7.0);
    gives(doc! {"$trunc": [1299, -2]}, 1200);
    gives(doc! {"$ceil": -2.5}, -2.0);
    gives(doc! {"$floor": dec("-2.5")}, dec("-3"));
    gives(doc! {"$floor": 5}, 5);
    // All digits of a decimal are written, down to the last before the point; without room for them it is no number.
    for operator in ["$floor", "$ceil"] {
        gives(doc! {operator: dec("1E+33")}, dec(&format!("1{}", "0".repeat(33))));
        gives(doc! {operator: dec("-0E+6")}, dec("-0"));
        for beyond in [
            "1E+34",
            "9.999999999999999999999999999999999E+6144",
            "Infinity",
            "-Infinity",
            "NaN",
        ] {
            gives(doc! {operator: dec(beyond)}, dec("NaN"));
        }
    }
    gives(doc! {"$round": dec("-Infinity")}, dec("-Infinity"));
    gives(doc! {"$trunc": dec("1E+6144")}, dec("1E+6144"));
    gives(doc! {"$abs": i32::MIN}, 2_147_483_648_i64);
    gives(doc! {"$abs": -1.5}, 1.5);
    fails(doc! {"$abs": i64::MIN}, 28680);
    fails(doc! {"$round": [1.5, 101]}, 51083);
    fails(doc! {"$round": [1.5, i64::from(i32::MAX) + 1]}, 51082);
    fails(doc! {"$trunc": [1.5, 1e10]}, 51082);
    for operator in ["$round", "$trunc"] {
        fails(doc! {operator: [1.5, 0.5]}, 51082);
        fails(doc! {operator: [1.5, dec("NaN")]}, 51082);
        fails(doc! {operator: [1.5, "2"]}, 16004);
        fails(doc! {operator: [1.5, [[1]]]}, 16004);
        fails(doc! {operator: [1.5, f64::NAN]}, 31109);
        fails(doc! {operator: [1.5, f64::NEG_INFINITY]}, 31109);
        // What is null comes before a bad place, a number of a wrong type, too.
        gives(doc! {operator: [Bson::Null, 101]}, Bson::Null);
        gives(doc! {operator: ["$nothing", "x"]}, Bson::Null);
        fails(doc! {operator: ["x", 101]}, 51081);
    }
}

#[test]
fn powers_and_logarithms() {
    gives(doc! {"$sqrt": 16}, 4.0);
    gives(doc! {"$sqrt": dec("2")}, dec("1.414213562373095048801688724209698"));
    fails(doc! {"$sqrt": -1}, 28714);
    gives(doc! {"$pow": [2, 10]}, 1024);
    gives(doc! {"$pow": [2, 31]}, 2_147_483_648_i64);
    gives(doc! {"$pow": [2_i64, 3]}, 8_i64);
    gives(doc! {"$pow": [2, 64]}, 18446744073709551616.0);
    gives(doc! {"$pow": [2, -1]}, 0.5);
    gives(doc! {"$pow": [0, i64::MAX]}, 0_i64);
    gives(doc! {"$pow": [-1, i64::MAX]}, -1_i64);
    gives(doc! {"$pow": [2.0, 3]}, 8.0);
    gives(
        doc! {"$pow": [dec("1.1"), 2]},
        dec("1.210000000000000000000000000000000"),
    );
    fails(doc! {"$pow": [0, -1]}, 28764);
    fails(doc! {"$pow": ["a", 1]}, 28762);
    fails(doc! {"$pow": [1, "a"]}, 28763);
    gives(doc! {"$exp": 0}, 1.0);
    gives(doc! {"$ln": 1}, 0.0);
    gives(doc! {"$log10": 1000}, 3.0);
    gives(doc! {"$log": [8, 2]}, 3.0);
    fails(doc! {"$ln": 0}, 28766);
    fails(doc! {"$log10": -1}, 28761);
    fails(doc! {"$log": [0, 2]}, 28758);
    fails(doc! {"$log": [2, 1]}, 28759);
}

#[test]
fn angles_and_bits() {
    gives(doc! {"$sin": 0}, 0.0);
    gives(doc! {"$cos": 0}, 1.0);
    gives(doc! {"$atan2": [0, 1]}, 0.0);
    gives(doc! {"$degreesToRadians": 180}, std::f64::consts::PI);
    fails(doc! {"$acos": 2}, 50989);
    fails(doc! {"$sin": f64::INFINITY}, 50989);
    fails(doc! {"$atan2": ["a", 1]}, 51044);
    gives(doc! {"$bitAnd": [12, 10]}, 8);
    gives(doc! {"$bitOr": [12, 3_i64]}, 15_i64);
    gives(doc! {"$bitXor": [12, 10]}, 6);
    gives(doc! {"$bitAnd": []}, -1);
    gives(doc! {"$bitNot": 5}, -6);
    fails(doc! {"$bitNot": 1.5}, 14);
    fails(doc! {"$bitNot": "5"}, 28765);
    fails(doc! {"$bitAnd": [1.5]}, 14);
}

#[test]
fn comparisons_cross_types() {
    gives(doc! {"$eq": [1, 1.0]}, true);
    gives(doc! {"$eq": [dec("1.0"), 1_i64]}, true);
    gives(doc! {"$ne": [9_007_199_254_740_993_i64, 9_007_199_254_740_992.0]}, true);
    gives(doc! {"$gt": ["a", 100]}, true);
    gives(doc! {"$lt": ["$nothing", Bson::Null]}, true);
    gives(doc! {"$eq": ["$nothing", "$other"]}, true);
    gives(doc! {"$lt": [f64::NAN, -1e308]}, true);
    gives(doc! {"$cmp": [1, 2]}, -1);
    gives(doc! {"$cmp": ["b", "a"]}, 1);
    gives(doc! {"$gte": [[1, 2, 3], [1, 2]]}, true);
    gives(doc! {"$lte": [{"a": 1}, {"a": 2}]}, true);
    gives(doc! {"$eq": [{"$concatArrays": [[1], [2]]}, [1, 2.0]]}, true);
    gives(doc! {"$and": []}, true);
    gives(doc! {"$or": []}, false);
    gives(doc! {"$and": [1, "a", []]}, true);
    gives(doc! {"$and": [1, Bson::Null]}, false);
    gives(doc! {"$or": [0, false, Bson::Null, 0.5]}, true);
    gives(doc! {"$not": [dec("0")]}, true);
    // What is not reached is not evaluated.
    gives_on(doc! {"$and": [false, {"$divide": [1, "$x"]}]}, doc! {"x": 0}, false);
}

#[test]
fn accumulators_as_expressions() {
    gives(doc! {"$sum": [1, 2, "a", 3.5]}, 6.5);
    gives(doc! {"$sum": [[1, 2, 3]]}, 6);
    gives_on(doc! {"$sum": "$x"}, doc! {"x": [1, 2_i64]}, 3_i64);
    gives(doc! {"$avg": [1, 2]}, 1.5);
    gives(doc! {"$avg": ["a"]}, Bson::Null);
    gives(doc! {"$avg": [dec("1"), 2]}, dec("1.5"));
    gives(doc! {"$min": [3, Bson::Null, 1, "a"]}, 1);
    gives(doc! {"$max": [3, Bson::Null, 1, "a"]}, "a");
    gives(doc! {"$min": [Bson::Null]}, Bson::Null);
    gives(doc! {"$stdDevPop": [1, 3]}, 1.0);
    gives(doc! {"$stdDevSamp": [1]}, Bson::Null);
    gives(doc! {"$sum": [i64::MAX, 1, -1]}, i64::MAX);
}

/// Sums of doubles are MongoDB's to the last digit: its own answers.
#[test]
fn sums_of_doubles() {
    let sums: [(&[f64], f64); 7] = [
        (&[208.32, 624.96, 1249.92], 2083.2),
        (&[1249.92, 624.96, 208.32], 2083.2000000000003),
        (
            &[1022.68, 2045.36, 4090.72, 2045.36, 2045.36, 1571.28],
            12820.759999999998,
        ),
        (&[120.19, 624.96, 120.19, 160.23], 1025.57),
        (&[2499.84, 833.28, 20790.0, 20790.0, 20790.0, 2499.84], 68202.96),
        (
            &[583.2959999999999, 0.0, 0.0, 22522.5, 0.0, 2079.0, 0.0, 0.0],
            25184.796,
        ),
        // What rounding took comes back with the next number.
        (&[1e16, 1.0, -1e16], 0.0),
    ];
    for (values, sum) in sums {
        gives(doc! {"$sum": values.to_vec()}, sum);
        gives(doc! {"$avg": values.to_vec()}, sum / values.len() as f64);
    }
    gives(doc! {"$sum": [1e16, 1.0, -1e16, 0.0]}, 1.0);
    let integers = [7_900_154_101_625_246_752_i64, -1_259_608_310_039_654_329];
    let last = -6_593_466_016_263_951_012_i64;
    let with = |last: Bson| vec![integers[0].into(), integers[1].into(), last];
    gives(doc! {"$avg": with(last.into())}, 1.5693258440547136e16);
    gives(doc! {"$avg": with((last as f64).into())}, 1.5693258440546986e16);
    gives(doc! {"$sum": with(last.into())}, integers[0] + integers[1] + last);
    gives(doc! {"$sum": [1e16, 1.0, dec("-1E+16")]}, dec("1"));
}

#[test]
fn sums_that_are_not_finite() {
    let infinity = f64::INFINITY;
    gives(doc! {"$sum": [infinity, 1, 2.0]}, infinity);
    gives(doc! {"$sum": [1, -infinity, 2_i64]}, -infinity);
    gives(doc! {"$sum": [f64::MAX, f64::MAX, -1.0]}, infinity);
    gives(doc! {"$sum": [infinity, 1.0, dec("1")]}, dec("Infinity"));
    gives(doc! {"$sum": [i64::MAX, i64::MAX]}, 2.0 * i64::MAX as f64);
}

#[test]
fn decimals_keep_all_their_digits() {
    gives(doc! {"$exp": dec("1")}, dec("2.718281828459045235360287471352662"));
    gives(doc! {"$ln": dec("10")}, dec("2.302585092994045684017991454684364"));
    gives(
        doc! {"$ln": dec("1E-6143")},
        dec("-14144.78022626242263692252150612605"),
    );
    gives(doc! {"$log10": dec("1000")}, dec("3"));
    gives(doc! {"$log": [dec("8"), 2]}, dec("3.000000000000000000000000000000000"));
    gives(
        doc! {"$pow": [dec("2"), dec("0.5")]},
        dec("1.414213562373095048801688724209698"),
    );
    gives(doc! {"$sqrt": dec("10")}, dec("3.162277660168379331998893544432719"));
    gives(doc! {"$sqrt": dec("4")}, dec("2"));
    gives(doc! {"$sin": dec("0.5")}, dec("0.4794255386042030002732879352155714"));
    gives(
        doc! {"$atan2": [dec("1"), 1.0]},
        dec("0.7853981633974483096156608458198757"),
    );
    gives(doc! {"$trunc": [dec("1.1"), 2]}, dec("1.10"));
    gives(doc! {"$round": [dec("2.5"), 3]}, dec("2.500"));
    gives(doc! {"$trunc": [dec("12"), -1]}, dec("1E+1"));
    gives(
        doc! {"$add": [0.1, dec("0.2")]},
        dec("0.3000000000000000055511151231257827"),
    );
    gives(doc! {"$add": [i64::MAX, 1, dec("0")]}, dec("9223372036854775808"));
    // A double that ends within 34 digits has no more than it needs.
    for (double, text) in [(4.0, "4"), (-2.5, "-2.5"), (0.0, "0"), (1e20, "100000000000000000000")] {
        gives(doc! {"$add": [double, dec("0")]}, dec(text));
        gives(doc! {"$sum": [dec("0"), double]}, dec(text));
    }
    gives(doc! {"$avg": [1, 2_i64, 3.0, dec("7")]}, dec("3.25"));
    gives(doc! {"$avg": [4.0, dec("6.0")]}, dec("5.0"));
    gives(
        doc! {"$avg": [0.1, dec("0.2")]},
        dec("0.1500000000000000027755575615628914"),
    );
    fails(doc! {"$toDecimal": ""}, 241);
    fails(doc! {"$toDecimal": "e5"}, 241);
    fails(doc! {"$toDecimal": "-."}, 241);
    gives(doc! {"$toDecimal": "-Infinity"}, dec("-Infinity"));
}

/// Doubles tell neither of these from a bound.
#[test]
fn bounds_of_decimals() {
    gives(
        doc! {"$sin": dec("1E+6144")},
        dec("0.9168078385445297016578219657016703"),
    );
    fails(doc! {"$sin": dec("Infinity")}, 50989);
    fails(doc! {"$asin": dec("1.000000000000000000000000000000001")}, 50989);
    fails(doc! {"$acosh": dec("0.9999999999999999999999999999999999")}, 50989);
    gives(doc! {"$acosh": dec("Infinity")}, dec("Infinity"));
    fails(doc! {"$sqrt": dec("-1E-6176")}, 28714);
    fails(doc! {"$ln": dec("-1E-6176")}, 28766);
    fails(doc! {"$log": [dec("5"), dec("-1E-6176")]}, 28759);
    fails(doc! {"$log": [dec("5"), dec("1.0")]}, 28759);
    gives(
        doc! {"$log": [dec("2"), dec("1.000000000000000000000000000000001")]},
        dec("693147180559945309417232121458176.9"),
    );
    gives(doc! {"$sqrt": dec("NaN")}, dec("NaN"));
    // Logarithms of no number are doubles, whatever it was; those that are no number are decimals.
    let nan = || dec("NaN");
    for logarithm in [
        doc! {"$ln": nan()},
        doc! {"$log10": nan()},
        doc! {"$log": [nan(), 10]},
        doc! {"$log": [100, nan()]},
        doc! {"$log": [dec("100"), f64::NAN]},
    ] {
        let found = evaluate(logarithm.clone(), &doc! {}).unwrap();
        assert!(matches!(found, Some(Bson::Double(n)) if n.is_nan()), "{logarithm}");
    }
    gives(doc! {"$log": [dec("Infinity"), dec("Infinity")]}, dec("NaN"));
    gives(doc! {"$ln": dec("Infinity")}, dec("Infinity"));
}
