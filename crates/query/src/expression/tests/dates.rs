use super::*;

/// 2017-01-01T00:00:00Z, a Sunday.
const NEW_YEAR_2017: i64 = 1_483_228_800_000;
/// 2016-12-31T22:30:15.125Z
const EVE: i64 = 1_483_223_415_125;

#[test]
fn parts() {
    let all = [
        ("$year", 2016),
        ("$month", 12),
        ("$dayOfMonth", 31),
        ("$hour", 22),
        ("$minute", 30),
        ("$second", 15),
        ("$millisecond", 125),
        ("$dayOfWeek", 7),
        ("$dayOfYear", 366),
        ("$week", 52),
        ("$isoWeek", 52),
        ("$isoDayOfWeek", 6),
    ];
    for (operator, expected) in all {
        gives_on(doc! {operator: "$d"}, doc! {"d": date(EVE)}, expected);
        gives_on(doc! {operator: {"date": "$d"}}, doc! {"d": date(EVE)}, expected);
        gives(doc! {operator: [date(EVE)]}, expected);
        fails(doc! {operator: [1, 2]}, 40536);
        fails(doc! {operator: {"timezone": "UTC"}}, 40539);
        fails(doc! {operator: {"date": date(0), "x": 1}}, 40535);
        gives(doc! {operator: {"date": date(0), "timezone": Bson::Null}}, Bson::Null);
    }
    gives(doc! {"$isoWeekYear": date(NEW_YEAR_2017)}, 2016_i64);
    gives(doc! {"$isoWeek": date(NEW_YEAR_2017)}, 52);
    gives(doc! {"$week": date(NEW_YEAR_2017)}, 1);
    // Before 1970, and outside the years of texts.
    gives(doc! {"$millisecond": date(-1)}, 999);
    gives(doc! {"$year": date(-1)}, 1969);
    gives(doc! {"$year": date(i64::MAX)}, 292_278_994);
    gives(doc! {"$year": date(i64::MIN)}, -292_275_055);
}

#[test]
fn zones() {
    let hour = |zone: &str| doc! {"$hour": {"date": date(EVE), "timezone": zone}};
    gives(hour("UTC"), 22);
    gives(hour("+04:45"), 3);
    gives(hour("-0330"), 19);
    gives(hour("+01"), 23);
    gives(hour("Europe/Berlin"), 23);
    gives(hour("America/New_York"), 17);
    gives(hour("Asia/Kathmandu"), 4);
    gives_on(
        doc! {"$hour": {"date": "$d", "timezone": "$z"}},
        doc! {"d": date(EVE), "z": "Asia/Tokyo"},
        7,
    );
    gives(doc! {"$year": {"date": date(EVE), "timezone": "Asia/Tokyo"}}, 2017);
    // Daylight saving: 2017-07-01T12:00Z.
    gives(
        doc! {"$hour": {"date": date(1_498_910_400_000), "timezone": "Europe/Berlin"}},
        14,
    );
    fails(hour("Nowhere/Land"), 40485);
    fails(hour("+1"), 40485);
    fails_on(
        doc! {"$hour": {"date": "$d", "timezone": "$z"}},
        doc! {"d": date(EVE), "z": 5},
        40517,
    );
}

#[test]
fn to_text() {
    gives(doc! {"$dateToString": {"date": date(EVE)}}, "2016-12-31T22:30:15.125Z");
    gives(
        doc! {"$dateToString": {"date": date(EVE), "format": "%Y/%m/%d %H-%M-%S.%L %j %w %u %U %V %G %% %b %B"}},
        "2016/12/31 22-30-15.125 366 7 6 52 52 2016 % Dec December",
    );
    gives(
        doc! {"$dateToString": {"date": date(EVE), "format": "%H:%M %z %Z", "timezone": "Asia/Kathmandu"}},
        "04:15 +0545 345",
    );
    gives(
        doc! {"$dateToString": {"date": date(EVE), "format": "%z", "timezone": "-03:30"}},
        "-0330",
    );
    gives(doc! {"$dateToString": {"date": "$nothing", "onNull": "none"}}, "none");
    gives(doc! {"$dateToString": {"date": Bson::Null}}, Bson::Null);
    fails(doc! {"$dateToString": {"date": date(0), "format": "%n"}}, 18536);
    fails(doc! {"$dateToString": {"date": date(0), "format": "%"}}, 18535);
    fails(doc! {"$dateToString": {"date": date(0), "format": 1}}, 18533);
    fails(doc! {"$dateToString": {"date": date(i64::MAX)}}, 18537);
    fails(doc! {"$dateToString": {"format": "%Y"}}, 18628);
    fails(doc! {"$dateToString": {"date": date(0), "x": 1}}, 18534);
    fails(doc! {"$dateToString": 1}, 18629);
}

#[test]
fn from_text() {
    let parse = |text: &str| doc! {"$dateFromString": {"dateString": text}};
    for text in [
        "2016-12-31T22:30:15.125Z",
        "2016-12-31 22:30:15.125",
        "2016-12-31T22:30:15.125+00:00",
        "2016-12-31T23:30:15.125+01:00",
        "20161231T223015.125Z",
        "2016-12-31T22:30:15.125 UTC",
        "2016-12-31T18:00:15.125-0430",
    ] {
        gives(parse(text), date(EVE));
    }
    gives(parse("2017-01-01"), date(NEW_YEAR_2017));
    gives(parse("2017-01-01T00:00"), date(NEW_YEAR_2017));
    gives(
        doc! {"$dateFromString": {"dateString": "2016-12-31T23:30:15.125", "timezone": "Europe/Berlin"}},
        date(EVE),
    );
    gives(
        doc! {"$dateFromString": {"dateString": "31.12.2016 22h", "format": "%d.%m.%Y %Hh"}},
        date(1_483_221_600_000),
    );
    gives(
        doc! {"$dateFromString": {"dateString": "2016 52 7", "format": "%G %V %u"}},
        date(NEW_YEAR_2017),
    );
    gives(
        doc! {"$dateFromString": {"dateString": "Jan 01 2017", "format": "%b %d %Y"}},
        date(NEW_YEAR_2017),
    );
    gives(
        doc! {"$dateFromString": {"dateString": "2017 000", "format": "%Y %j"}},
        date(NEW_YEAR_2017),
    );
    gives(parse("\0 2017-01-01\u{a0}\0"), date(NEW_YEAR_2017));
    fails(parse("\u{2000}2017-01-01"), 241);
    gives(doc! {"$year": parse("-0001-01-01T00:00:00Z")}, -1);
    gives(doc! {"$year": parse("+0001-01-01")}, 1);
    fails(parse("-0001/01/01"), 241);
    fails(
        doc! {"$dateFromString": {"dateString": "2017-01-01", "timezone": "Z"}},
        40485,
    );
    gives(doc! {"$dateFromString": {"dateString": "x", "onError": "bad"}}, "bad");
    gives(
        doc! {"$dateFromString": {"dateString": Bson::Null, "onNull": "none"}},
        "none",
    );
    for bad in [
        "2017-13-01",
        "2017-02-29",
        "2017-01-01T25:00",
        "",
        "01/02",
        "2017-01-01Tx",
        "2017-01-01T00:00+99x",
    ] {
        fails(parse(bad), 241);
    }
    fails(doc! {"$dateFromString": {"dateString": 5}}, 241);
    fails(
        doc! {"$dateFromString": {"dateString": "2017-01-01", "format": 5}},
        40684,
    );
    fails(doc! {"$dateFromString": {"format": "%Y"}}, 40542);
    fails(doc! {"$dateFromString": {"dateString": "2017", "x": 1}}, 40541);
    fails(doc! {"$dateFromString": 1}, 40540);
}

#[test]
fn to_and_from_parts() {
    gives(
        doc! {"$dateToParts": {"date": date(EVE), "timezone": "Europe/Berlin"}},
        doc! {"year": 2016, "month": 12, "day": 31, "hour": 23, "minute": 30, "second": 15, "millisecond": 125},
    );
    gives(
        doc! {"$dateToParts": {"date": date(EVE), "iso8601": true}},
        doc! {"isoWeekYear": 2016, "isoWeek": 52, "isoDayOfWeek": 6, "hour": 22, "minute": 30, "second": 15, "millisecond": 125},
    );
    gives(doc! {"$dateFromParts": {"year": 2017}}, date(NEW_YEAR_2017));
    gives(
        doc! {"$dateFromParts": {"year": 2016, "month": 13}},
        date(NEW_YEAR_2017),
    );
    gives(
        doc! {"$dateFromParts": {"year": 2017, "day": 0, "hour": 24}},
        date(NEW_YEAR_2017),
    );
    gives(
        doc! {"$dateFromParts": {"isoWeekYear": 2016, "isoWeek": 52, "isoDayOfWeek": 7}},
        date(NEW_YEAR_2017),
    );
    gives(
        doc! {"$dateFromParts": {"year": 2017, "hour": 1, "timezone": "Europe/Berlin"}},
        date(NEW_YEAR_2017),
    );
    // Into the gap of 2017-03-26 in Berlin: an hour on.
    gives(
        doc! {"$dateFromParts": {"year": 2017, "month": 3, "day": 26, "hour": 2, "minute": 30, "timezone": "Europe/Berlin"}},
        date(1_490_491_800_000),
    );
    gives(doc! {"$dateFromParts": {"year": 2017, "month": Bson::Null}}, Bson::Null);
    fails(doc! {"$dateFromParts": {"year": 2017, "isoWeek": 1}}, 40489);
    fails(doc! {"$dateFromParts": {"month": 1}}, 40516);
    fails(doc! {"$dateFromParts": {"year": "a"}}, 40515);
    fails(doc! {"$dateFromParts": {"year": 10_000}}, 40523);
    fails(doc! {"$dateFromParts": {"year": 2017, "month": 40_000}}, 31034);
    fails(doc! {"$dateToParts": 1}, 40524);
    fails(doc! {"$dateToParts": {"date": date(0), "iso8601": 1}}, 40521);
}

#[test]
fn adding() {
    let add =
        |ms: i64, unit: &str, amount: i64| doc! {"$dateAdd": {"startDate": date(ms), "unit": unit, "amount": amount}};
    gives(add(NEW_YEAR_2017, "day", -1), date(NEW_YEAR_2017 - 86_400_000));
    gives(add(NEW_YEAR_2017, "week", 1), date(NEW_YEAR_2017 + 7 * 86_400_000));
    gives(add(NEW_YEAR_2017, "hour", 2), date(NEW_YEAR_2017 + 7_200_000));
    // 2016-12-31 + 2 months is the last of February.
    gives(add(EVE, "month", 2), date(1_488_321_015_125));
    gives(add(EVE, "quarter", 1), date(1_490_999_415_125));
    gives(add(NEW_YEAR_2017, "year", 1), date(1_514_764_800_000));
    gives(
        doc! {"$dateSubtract": {"startDate": date(NEW_YEAR_2017), "unit": "minute", "amount": 1}},
        date(NEW_YEAR_2017 - 60_000),
    );
    // A day over the change to summer time is 23 hours: 2017-03-25T12:00 Berlin.
    gives(
        doc! {"$dateAdd": {"startDate": date(1_490_439_600_000), "unit": "day", "amount": 1, "timezone": "Europe/Berlin"}},
        date(1_490_439_600_000 + 23 * 3_600_000),
    );
    gives(
        doc! {"$dateAdd": {"startDate": Bson::Null, "unit": "day", "amount": 1}},
        Bson::Null,
    );
    fails(add(i64::MAX, "day", 1), 5166406);
    for (unit, most) in [
        ("year", 584_942_418),
        ("month", 584_942_418 * 12),
        ("week", 30_500_568_906),
        ("day", 213_503_982_335_i64),
    ] {
        fails(add(0, unit, most), 5166406);
        fails(add(0, unit, most + 1), 5976500);
        fails(add(0, unit, -most - 1), 5976500);
    }
    fails(add(0, "month", i64::MIN), 5976500);
    for unit in ["year", "day", "millisecond"] {
        let subtract = doc! {"$dateSubtract": {"startDate": date(0), "unit": unit, "amount": i64::MIN}};
        fails(subtract, 6045000);
    }
    fails(add(0, "hour", i64::MAX), 5166406);
    fails(add(0, "fortnight", 1), 9);
    fails(
        doc! {"$dateAdd": {"startDate": "a", "unit": "day", "amount": 1}},
        5166403,
    );
    fails(
        doc! {"$dateAdd": {"startDate": date(0), "unit": 5, "amount": 1}},
        5439013,
    );
    fails(
        doc! {"$dateAdd": {"startDate": date(0), "unit": "day", "amount": 1.5}},
        5166405,
    );
    fails(doc! {"$dateAdd": 1}, 5166400);
}

#[test]
fn differences() {
    let diff = |unit: &str| doc! {"$dateDiff": {"startDate": date(EVE), "endDate": date(NEW_YEAR_2017), "unit": unit}};
    for (unit, expected) in [
        ("year", 1_i64),
        ("quarter", 1),
        ("month", 1),
        ("week", 1),
        ("day", 1),
        ("hour", 2),
        ("minute", 90),
        ("second", 5385),
        ("millisecond", 5_384_875),
    ] {
        gives(diff(unit), expected);
    }
    gives(
        doc! {"$dateDiff": {"startDate": date(EVE), "endDate": date(NEW_YEAR_2017), "unit": "week", "startOfWeek": "monday"}},
        0_i64,
    );
    gives(
        doc! {"$dateDiff": {"startDate": date(EVE), "endDate": date(NEW_YEAR_2017), "unit": "day", "timezone": "Asia/Tokyo"}},
        0_i64,
    );
    gives(
        doc! {"$dateDiff": {"startDate": date(NEW_YEAR_2017), "endDate": date(EVE), "unit": "day"}},
        -1_i64,
    );
    fails(
        doc! {"$dateDiff": {"startDate": "a", "endDate": date(0), "unit": "day"}},
        5166307,
    );
    fails(diff("eon"), 9);
    fails(
        doc! {"$dateDiff": {"startDate": date(0), "endDate": date(0), "unit": "week", "startOfWeek": "someday"}},
        5439016,
    );
}

#[test]
fn truncating() {
    let trunc = |unit: &str, size: i32| doc! {"$dateTrunc": {"date": date(EVE), "unit": unit, "binSize": size}};
    gives(trunc("year", 1), date(1_451_606_400_000));
    gives(trunc("quarter", 1), date(1_475_280_000_000));
    gives(trunc("month", 1), date(1_480_550_400_000));
    // Sunday 2016-12-25.
    gives(trunc("week", 1), date(1_482_624_000_000));
    gives(trunc("day", 1), date(1_483_142_400_000));
    gives(trunc("hour", 6), date(1_483_142_400_000 + 18 * 3_600_000));
    gives(trunc("minute", 15), date(1_483_223_400_000));
    gives(trunc("second", 1), date(1_483_223_415_000));
    gives(
        doc! {"$dateTrunc": {"date": date(EVE), "unit": "day", "timezone": "Asia/Tokyo"}},
        date(1_483_196_400_000),
    );
    gives(
        doc! {"$dateTrunc": {"date": date(EVE), "unit": "week", "startOfWeek": "Mon"}},
        date(1_482_710_400_000),
    );
    fails(trunc("day", 0), 5439018);
    fails(doc! {"$dateTrunc": {"date": "a", "unit": "day"}}, 5166307);
    fails(
        doc! {"$dateTrunc": {"date": date(0), "unit": "week", "startOfWeek": ""}},
        5439016,
    );
    for (unit, size, code) in [
        ("day", 100_000_000_001_i64, 5439006),
        ("year", 100_000_000_001, 5439006),
        ("hour", 2_562_047_788_016, 5439002),
        ("second", i64::MAX, 5439002),
    ] {
        fails(
            doc! {"$dateTrunc": {"date": date(0), "unit": unit, "binSize": size}},
            code,
        );
    }
    fails(doc! {"$dateTrunc": {"date": date(0), "unit": 1}}, 5439013);
    fails(
        doc! {"$dateTrunc": {"date": date(0), "unit": "day", "binSize": "a"}},
        5439017,
    );
}

/// Formats are looked at first, zones next, then dates.
#[test]
fn errors_of_dates_have_an_order() {
    let parse = |arguments: Document| {
        let mut all = doc! {"dateString": Bson::Null, "onNull": "null", "onError": "error"};
        all.extend(arguments);
        doc! {"$dateFromString": all}
    };
    fails(parse(doc! {"format": 5}), 40684);
    fails(parse(doc! {"format": "%"}), 18535);
    fails(parse(doc! {"format": "%Q"}), 18536);
    fails(parse(doc! {"format": "%Y%Q", "dateString": "x"}), 18536);
    fails(parse(doc! {"format": "%Y%", "dateString": "x"}), 18535);
    fails(parse(doc! {"format": 5, "dateString": 5}), 40684);
    fails(
        parse(doc! {"format": 5, "dateString": "2024", "timezone": Bson::Null}),
        40684,
    );
    fails(parse(doc! {"timezone": "bad"}), 40485);
    gives(parse(doc! {"format": Bson::Null}), "null");
    gives(parse(doc! {"format": "%Y", "dateString": "x"}), "error");
    let text = |arguments: Document| {
        let mut all = doc! {"date": Bson::Null, "onNull": "null"};
        all.extend(arguments);
        doc! {"$dateToString": all}
    };
    fails(text(doc! {"format": "%x"}), 18536);
    fails(text(doc! {"format": "a%"}), 18535);
    fails(text(doc! {"timezone": "bad"}), 40485);
    fails(text(doc! {"timezone": 5}), 40517);
    fails(text(doc! {"format": "%Y%x", "date": date(i64::MAX)}), 18536);
    gives(text(doc! {"format": "%Y", "timezone": "UTC"}), "null");
    let parts = |arguments: Document| {
        let mut all = doc! {"date": Bson::Null};
        all.extend(arguments);
        doc! {"$dateToParts": all}
    };
    fails(parts(doc! {"timezone": "bad"}), 40485);
    fails(parts(doc! {"iso8601": 5}), 40521);
    gives(parts(doc! {"iso8601": true}), Bson::Null);
    // A part is one of a date, whatever the zone is.
    for zone in ["$nothing", "$zone"] {
        let year = doc! {"$year": {"date": "$d", "timezone": zone}};
        fails_on(year.clone(), doc! {"d": "abc", "zone": "bad"}, 16006);
        gives_on(year, doc! {"zone": "bad"}, Bson::Null);
    }
    for ms in [Bson::Double(18_014_398_509_481_984.0), dec("9223372036854775807")] {
        fails(doc! {"$dateFromParts": {"year": 1970, "millisecond": ms}}, 159);
    }
    for amount in [Bson::Double(f64::NAN), dec("NaN"), Bson::Double(f64::INFINITY)] {
        fails(doc! {"$subtract": [date(0), amount]}, 15);
    }
}

#[test]
fn an_offset_of_nothing_is_utc() {
    let date = || Bson::DateTime(bson::DateTime::from_millis(0));
    for zone in ["UTC", "GMT", "+00:00", "-0000", "+00"] {
        gives(
            doc! {"$dateToString": {"date": date(), "timezone": zone}},
            "1970-01-01T00:00:00.000Z",
        );
        gives(
            doc! {"$dateFromString": {"dateString": "1970-01-01T01:00:00+01:00", "timezone": zone}},
            date(),
        );
    }
    gives(
        doc! {"$dateToString": {"date": date(), "timezone": "+01"}},
        "1970-01-01T01:00:00.000",
    );
}

/// Behind a change of the clock they counted from another midnight than before it.
#[test]
fn bins_of_hours_are_as_long_as_each_other() {
    // New York's clock goes forward at 2026-03-08T07:00Z.
    let midnight = 1_772_928_000_000;
    let hours = |hours: i64| date(midnight + hours * 3_600_000);
    for (hour, start) in [(0, -2), (6, 3), (8, 8), (12, 8), (13, 13)] {
        gives(
            doc! {"$dateTrunc": {"date": hours(hour), "unit": "hour", "binSize": 5, "timezone": "America/New_York"}},
            hours(start),
        );
    }
    // A bin of one hour begins where Kathmandu's does, a quarter before those of UTC.
    gives(
        doc! {"$dateTrunc": {"date": hours(8), "unit": "hour", "timezone": "Asia/Kathmandu"}},
        date(midnight + 7 * 3_600_000 + 15 * 60_000),
    );
}
