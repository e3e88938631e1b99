//! Values of `values.txt` were computed with 120 to 400 digits by another library (mpmath) and rounded to 34, half to
//! even. A line is a function, its argument, its value. Those of logarithms are right but for the last digit.

use super::*;
use bson::Decimal128;

fn parsed(text: &str) -> Decimal {
    Decimal::from(text.parse::<Decimal128>().expect("a decimal"))
}

fn shown(number: Decimal) -> String {
    Decimal128::from(number).to_string()
}

#[test]
fn values_are_right_in_all_digits() {
    let functions: [(&str, Function); 16] = [
        ("exp", exp),
        ("ln", ln),
        ("log10", log10),
        ("sin", sin),
        ("cos", cos),
        ("tan", tan),
        ("asin", asin),
        ("acos", acos),
        ("atan", atan),
        ("sinh", sinh),
        ("cosh", cosh),
        ("tanh", tanh),
        ("asinh", asinh),
        ("acosh", acosh),
        ("atanh", atanh),
        ("sqrt", sqrt),
    ];
    let mut checked = 0;
    for line in include_str!("values.txt").lines() {
        let [name, argument, value] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let function = functions.iter().find(|known| known.0 == name).expect("a function").1;
        let (found, wanted) = (function(parsed(argument)), parsed(value));
        let off = ((found - wanted) / wanted).to_f64().abs();
        let is_near = matches!(name, "ln" | "log10") && off < 1e-33;
        assert!(
            is_near || shown(found) == shown(wanted),
            "{name}({argument}): {} is not {value}",
            shown(found)
        );
        checked += 1;
    }
    assert!(checked > 200, "{checked}");
}

#[test]
fn exact_values_have_the_digits_they_need() {
    let cases: [(Function, &str, &str); 14] = [
        (exp, "0", "1"),
        (exp, "0E+3", "1"),
        (ln, "1", "0"),
        (ln, "1.000", "0"),
        (log10, "100", "2"),
        (log10, "1E-6176", "-6176"),
        (log10, "0.1", "-1"),
        (sqrt, "4", "2"),
        (sqrt, "1E+6", "1E+3"),
        (sqrt, "0.0400", "0.20"),
        (sqrt, "6.25", "2.5"),
        (sqrt, "-0", "-0"),
        (cos, "0", "1"),
        (sin, "-0.0", "-0.0"),
    ];
    for (function, argument, value) in cases {
        assert_eq!(shown(function(parsed(argument))), value, "of {argument}");
    }
    assert_eq!(shown(log(parsed("81"), parsed("9"))), "2");
    for (number, base, value) in [
        ("64", "2", "5.999999999999999999999999999999999"),
        ("1000", "10", "3.000000000000000000000000000000000"),
        ("1E-6176", "10", "-6175.999999999999999999999999999999"),
    ] {
        assert_eq!(shown(log(parsed(number), parsed(base))), value, "{number}");
    }
    assert_eq!(
        shown(pow(parsed("2.25"), parsed("0.5"))),
        "1.500000000000000000000000000000000"
    );
    assert_eq!(
        shown(pow(parsed("8"), parsed("-0.5"))),
        "0.3535533905932737622004221810524245"
    );
}

#[test]
fn ends_of_the_range() {
    let cases: [(Function, &str, &str); 20] = [
        (exp, "1E+6144", "Infinity"),
        (exp, "-1E+6144", "0E-6176"),
        (exp, "14150", "Infinity"),
        (exp, "-14300", "0E-6176"),
        (exp, "Infinity", "Infinity"),
        (exp, "-Infinity", "0"),
        (exp, "NaN", "NaN"),
        (ln, "Infinity", "Infinity"),
        (sqrt, "Infinity", "Infinity"),
        (sqrt, "-1", "NaN"),
        (atan, "Infinity", "1.570796326794896619231321691639751"),
        (atan, "-Infinity", "-1.570796326794896619231321691639751"),
        (sinh, "-1E+30", "-Infinity"),
        (cosh, "-1E+30", "Infinity"),
        (tanh, "1E+30", "1"),
        (tanh, "-Infinity", "-1"),
        (atanh, "1", "Infinity"),
        (atanh, "-1", "-Infinity"),
        (acosh, "1", "0"),
        (acos, "0", "1.570796326794896619231321691639751"),
    ];
    for (function, argument, value) in cases {
        assert_eq!(shown(function(parsed(argument))), value, "of {argument}");
    }
    // Subnormal: few digits are left.
    assert_eq!(shown(exp(parsed("-14200"))), "1.043174528E-6167");
    assert_eq!(shown(pow(parsed("10"), parsed("7000.5"))), "Infinity");
    assert_eq!(shown(pow(parsed("10"), parsed("-7000.5"))), "0E-6176");
    assert_eq!(shown(pow(parsed("-8"), parsed("0.5"))), "NaN");
    assert_eq!(
        shown(sin(parsed("1E+6144"))).len(),
        "-0.1234567890123456789012345678901234".len() - 1
    );
}

#[test]
fn angles_of_points_in_every_quarter() {
    let angle = |y: &str, x: &str| shown(atan2(parsed(y), parsed(x)));
    assert_eq!(angle("1", "1"), "0.7853981633974483096156608458198757");
    assert_eq!(angle("1", "-1"), "2.356194490192344928846982537459627");
    assert_eq!(angle("-1", "-1"), "-2.356194490192344928846982537459627");
    assert_eq!(angle("-1", "1"), "-0.7853981633974483096156608458198757");
    assert_eq!(angle("0", "-1"), "3.141592653589793238462643383279503");
    assert_eq!(angle("-0", "-1"), "-3.141592653589793238462643383279503");
    assert_eq!(angle("5", "0"), "1.570796326794896619231321691639751");
    assert_eq!(angle("0", "3"), "0");
    assert_eq!(angle("1", "NaN"), "NaN");
    assert_eq!(shown(to_radians(parsed("180"))), "3.141592653589793238462643383279503");
}
