use bson::oid::ObjectId;
use bson::{Binary, Timestamp, spec::BinarySubtype};

use super::*;

#[test]
fn type_names() {
    let all: [(Bson, &str); 12] = [
        (1.into(), "int"),
        (1_i64.into(), "long"),
        (1.5.into(), "double"),
        (dec("1"), "decimal"),
        ("a".into(), "string"),
        (true.into(), "bool"),
        (Bson::Null, "null"),
        (date(0), "date"),
        (Bson::Timestamp(Timestamp { time: 1, increment: 2 }), "timestamp"),
        (Bson::MinKey, "minKey"),
        (Bson::ObjectId(ObjectId::from_bytes([1; 12])), "objectId"),
        (
            Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: vec![1],
            }),
            "binData",
        ),
    ];
    for (value, name) in all {
        gives_on(doc! {"$type": "$x"}, doc! {"x": value}, name);
    }
    gives(doc! {"$type": "$nothing"}, "missing");
    gives(doc! {"$type": {"$literal": {"a": 1}}}, "object");
    gives(doc! {"$isNumber": 1_i64}, true);
    gives(doc! {"$isNumber": "1"}, false);
}

#[test]
fn decimals_stay_as_they_are() {
    let negative = bson::Decimal128::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFC]);
    match evaluate(doc! {"$toDecimal": "$x"}, &doc! {"x": negative}) {
        Ok(Some(Bson::Decimal128(found))) => assert_eq!(found.bytes(), negative.bytes()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn conversions() {
    gives(doc! {"$toInt": "42"}, 42);
    gives(doc! {"$toInt": 3.9}, 3);
    gives(doc! {"$toInt": true}, 1);
    gives(doc! {"$toInt": dec("7.9")}, 7);
    gives(doc! {"$toLong": date(5)}, 5_i64);
    gives(doc! {"$toLong": "-9223372036854775808"}, i64::MIN);
    gives(doc! {"$toDouble": "1e3"}, 1000.0);
    gives(doc! {"$toDouble": "-Infinity"}, f64::NEG_INFINITY);
    gives(doc! {"$toDecimal": "1.50"}, dec("1.50"));
    gives(doc! {"$toDecimal": 0.1}, dec("0.100000000000000"));
    gives(doc! {"$toBool": "false"}, true);
    gives(doc! {"$toBool": 0}, false);
    gives(doc! {"$toBool": [[1]]}, true);
    gives(doc! {"$toDate": 1000_i64}, date(1000));
    gives(doc! {"$toDate": "2018-03-27T16:58:51.538Z"}, date(1_522_169_931_538));
    gives(
        doc! {"$toDate": Bson::ObjectId(ObjectId::parse_str("5ab9cbfa31c2ab715d42129e").unwrap())},
        date(1_522_125_818_000),
    );
    gives(doc! {"$toString": date(1_522_169_931_538)}, "2018-03-27T16:58:51.538Z");
    gives(doc! {"$toString": 2.5}, "2.5");
    gives(doc! {"$toString": 1e20}, "1e+20");
    gives(doc! {"$toString": 1.0}, "1");
    gives(doc! {"$toString": dec("1.50")}, "1.50");
    gives(doc! {"$toString": true}, "true");
    gives(
        doc! {"$toObjectId": "5ab9cbfa31c2ab715d42129e"},
        ObjectId::parse_str("5ab9cbfa31c2ab715d42129e").unwrap(),
    );
    for bad in [
        doc! {"$toInt": "4.2"},
        doc! {"$toInt": "0x10"},
        doc! {"$toInt": " 1"},
        doc! {"$toInt": 1e10},
        doc! {"$toInt": f64::NAN},
        doc! {"$toInt": f64::INFINITY},
        doc! {"$toLong": 1e30},
        doc! {"$toInt": date(1)},
        doc! {"$toDouble": "0x1"},
        doc! {"$toDouble": "1e999"},
        doc! {"$toDate": 1},
        doc! {"$toDate": "yesterday"},
        doc! {"$toObjectId": "abc"},
        doc! {"$toString": {"$literal": {"a": 1}}},
    ] {
        fails(bad, 241);
    }
    for operator in ["$toInt", "$toDecimal", "$toString", "$toDate", "$toUUID"] {
        fails(doc! {operator: []}, 50723);
        fails(doc! {operator: [1, 2]}, 50723);
    }
}

#[test]
fn numbers_of_text() {
    for (text, number) in [
        (
            "12345678901234567890123456789012345",
            "1.234567890123456789012345678901234E+34",
        ),
        (
            "1.00000000000000000000000000000000099999",
            "1.000000000000000000000000000000000",
        ),
        (
            "-0001.0000000000000000000000000000000015e3",
            "-1000.000000000000000000000000000001",
        ),
        (
            "99999999999999999999999999999999995",
            "9.999999999999999999999999999999999E+34",
        ),
    ] {
        gives(doc! {"$toDecimal": text}, dec(number));
    }
    fails(doc! {"$toDecimal": "1234567890123456789012345678901234x"}, 241);
    for (text, number) in [
        ("+0x1p0", 1.0),
        ("+0x1.8p1", 3.0),
        ("-0x1p-1", -0.5),
        ("0X1P0", 1.0),
        ("+0xff", 255.0),
        ("+0x10000000000000000000", 75_557_863_725_914_323_419_136.0),
        ("0e400", 0.0),
        ("2.2250738585072014e-308", f64::MIN_POSITIVE),
        ("+0x1.8p-1022", 1.5 * f64::MIN_POSITIVE),
        ("+0x0.8p-1021", f64::MIN_POSITIVE),
        ("-0x1p-1074", -5e-324),
        ("+0x1p-1060", 5e-324 * 16384.0),
        ("+0x00000000000000000000000000000000000000001p-1022", f64::MIN_POSITIVE),
        ("+0xccdf69372698c920db9.D9p-1073", 5.975_007_393_666_67e-301),
        ("+0x1.fffffffffffff7p1023", f64::MAX),
        ("+0x1.00000000000008p0", 1.0),
        ("+0x1.000000000000080000000001p0", 1.0 + f64::EPSILON),
        ("-0x0p-5000", -0.0),
    ] {
        gives(doc! {"$toDouble": text}, number);
    }
    for text in [
        "0x1p0",
        "+0x",
        "+0x.p1",
        "+0xg",
        "+0x1p",
        "1e-400",
        "1e-310",
        "-4.9e-324",
        "2.2250738585072011e-308",
        "+0xap-2000",
        "+0x1.8p-1074",
        "+0x1.fffffffffffff8p1023",
        "+0x1p-9999",
        "+0x1p9999",
    ] {
        fails(doc! {"$toDouble": text}, 241);
    }
}

#[test]
fn decimals_that_no_double_is_near_are_not_converted() {
    gives(doc! {"$toDouble": dec("1E-300")}, 1e-300);
    gives(doc! {"$toDouble": dec("0E-6176")}, 0.0);
    gives(doc! {"$toDouble": dec("Infinity")}, f64::INFINITY);
    for number in ["1E-400", "-1E-400", "2E-324", "1E-320", "1E-6176", "1E+309"] {
        fails(doc! {"$toDouble": dec(number)}, 241);
        let convert = doc! {"$convert": {"input": dec(number), "to": "double", "onError": "x"}};
        gives(convert, "x");
    }
}

#[test]
fn numbers_of_bytes_and_back() {
    let bytes = |bytes: &[u8]| binary_value(0, bytes);
    gives(doc! {"$toInt": bytes(&[0x7f])}, 127);
    gives(doc! {"$toInt": bytes(&[0xff])}, -1);
    gives(doc! {"$toInt": bytes(&[1, 2])}, 513);
    gives(doc! {"$toInt": bytes(&[0, 0, 0, 0x80])}, i32::MIN);
    gives(doc! {"$toInt": binary_value(2, &[])}, 0);
    gives(doc! {"$toLong": bytes(&[0xfe])}, -2_i64);
    gives(doc! {"$toLong": bytes(&[0, 0, 0, 0, 1, 0, 0, 0])}, 1_i64 << 32);
    gives(doc! {"$toDouble": bytes(&1.5_f32.to_le_bytes())}, 1.5);
    gives(doc! {"$toDouble": bytes(&0.1_f64.to_le_bytes())}, 0.1);
    fails(doc! {"$toInt": bytes(&[])}, 241);
    fails(doc! {"$toInt": bytes(&[0; 8])}, 241);
    fails(doc! {"$toLong": bytes(&[0; 3])}, 241);
    fails(doc! {"$toDouble": bytes(&[0; 2])}, 241);
    fails(doc! {"$toDecimal": bytes(&[0; 4])}, 241);
    let convert =
        |input: Bson, to: &str, order: &str| doc! {"$convert": {"input": input, "to": to, "byteOrder": order}};
    gives(convert(bytes(&[1, 2]), "int", "big"), 258);
    gives(convert(bytes(&[1, 2]), "int", "little"), 513);
    gives(convert(258.into(), "binData", "big"), bytes(&[0, 0, 1, 2]));
    gives(
        convert(258_i64.into(), "binData", "little"),
        bytes(&[2, 1, 0, 0, 0, 0, 0, 0]),
    );
    gives(convert(1.5.into(), "binData", "big"), bytes(&1.5_f64.to_be_bytes()));
    fails(convert(1.into(), "binData", "middle"), 9);
    fails(convert(dec("1"), "binData", "big"), 241);
    fails(doc! {"$toUUID": 1}, 241);
}

#[test]
fn convert_with_handlers() {
    gives(doc! {"$convert": {"input": "x", "to": "int", "onError": -1}}, -1);
    gives(doc! {"$convert": {"input": "$nothing", "to": "int", "onNull": -2}}, -2);
    gives(doc! {"$convert": {"input": "5", "to": 16}}, 5);
    gives(doc! {"$convert": {"input": "5", "to": {"type": "long"}}}, 5_i64);
    gives(doc! {"$convert": {"input": "5", "to": Bson::Null}}, Bson::Null);
    fails(doc! {"$convert": {"input": "5", "to": "nothing"}}, 2);
    fails(doc! {"$convert": {"input": "5", "to": 99}}, 9);
    fails(doc! {"$convert": {"input": "5"}}, 9);
    fails(doc! {"$convert": {"input": 1, "to": "regex"}}, 241);
    let uuid = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: (0..16).collect(),
    };
    gives(doc! {"$toUUID": "00010203-0405-0607-0809-0a0b0c0d0e0f"}, uuid.clone());
    gives(doc! {"$toString": uuid}, "00010203-0405-0607-0809-0a0b0c0d0e0f");
}

#[test]
fn sizes_and_timestamps() {
    gives(doc! {"$binarySize": "é"}, 2);
    gives(doc! {"$bsonSize": {"$literal": {}}}, 5);
    fails(doc! {"$binarySize": 1}, 51276);
    let stamp = Bson::Timestamp(Timestamp {
        time: 100,
        increment: 7,
    });
    gives(doc! {"$tsSecond": stamp.clone()}, 100_i64);
    gives(doc! {"$tsIncrement": stamp}, 7_i64);
}

#[test]
fn bytes_as_text_and_back() {
    let uuid = binary_value(4, &[0x11; 16]);
    let some = binary_value(0, &[0xfb, 0xef, 0xff]);
    let convert = |input: Bson, to: Bson, format: &str| doc! {"$convert": {"input": input, "to": to, "format": format}};
    let binary = |subtype: i32| Bson::Document(doc! {"type": "binData", "subtype": subtype});
    for (format, text) in [
        ("base64", "++//"),
        ("base64url", "--__"),
        ("hex", "FBEFFF"),
        ("auto", "++//"),
    ] {
        gives(convert(some.clone(), "string".into(), format), text);
        gives(convert(text.into(), binary(0), format), some.clone());
    }
    gives(
        convert(uuid.clone(), "string".into(), "auto"),
        "11111111-1111-1111-1111-111111111111",
    );
    gives(
        convert(uuid.clone(), "string".into(), "base64"),
        "EREREREREREREREREREREQ==",
    );
    gives(
        convert("11111111-1111-1111-1111-111111111111".into(), binary(4), "uuid"),
        uuid.clone(),
    );
    gives(
        convert("h\u{e9}".into(), binary(0), "utf8"),
        binary_value(0, "h\u{e9}".as_bytes()),
    );
    gives(doc! {"$toString": some.clone()}, "++//");
    fails(convert(some.clone(), "string".into(), "uuid"), 241);
    fails(convert(some.clone(), "string".into(), "utf8"), 241);
    fails(convert(uuid, "string".into(), "octal"), 4341125);
    fails(convert("abc".into(), binary(0), "hex"), 241);
    fails(convert("++//".into(), binary(4), "base64"), 241);
    fails(doc! {"$convert": {"input": some, "to": "string"}}, 4341115);
    fails(doc! {"$convert": {"input": "12", "to": "int", "base": 8}}, 238);
}

#[test]
fn object_ids_have_seconds_with_a_sign() {
    let id = bson::oid::ObjectId::parse_str("ffffffff0000000000000000").expect("an id");
    gives(doc! {"$toDate": id}, date(-1000));
    gives(doc! {"$year": id}, 1969);
    fails(doc! {"$year": {"date": date(0), "timezone": "europe/paris"}}, 40485);
    gives(doc! {"$hour": {"date": date(0), "timezone": "Europe/Paris"}}, 1);
}

fn binary_value(subtype: u8, bytes: &[u8]) -> Bson {
    Bson::Binary(Binary {
        subtype: subtype.into(),
        bytes: bytes.to_vec(),
    })
}

#[test]
fn what_stands_for_an_error_or_null_is_computed_only_then() {
    let root = || doc! {"a": "5", "b": "x", "c": "2017-02-08", "d": date(0)};
    let wrong = || doc! {"$toInt": "$b"};
    let convert = |input: &str| doc! {"$convert": {"input": input, "to": "int", "onError": wrong(), "onNull": wrong()}};
    gives_on(convert("$a"), root(), 5);
    fails_on(convert("$b"), root(), 241);
    fails_on(convert("$nothing"), root(), 241);
    let parse = |text: &str| doc! {"$dateFromString": {"dateString": text, "onError": wrong(), "onNull": wrong()}};
    gives_on(parse("$c"), root(), date(1_486_512_000_000));
    fails_on(parse("$b"), root(), 241);
    fails_on(parse("$nothing"), root(), 241);
    let text = |of: &str| doc! {"$dateToString": {"date": of, "format": "%Y", "onNull": wrong()}};
    gives_on(text("$d"), root(), "1970");
    fails_on(text("$nothing"), root(), 241);
}

/// What is wrong with `$convert` itself is no fault of the conversion, and comes first.
#[test]
fn conversions_that_cannot_be() {
    let convert = |input: Bson, to: Bson, format: Bson| {
        doc! {"$convert": {"input": input, "to": to, "format": format, "onError": "error", "onNull": "null"}}
    };
    let binary = |subtype: Bson| Bson::Document(doc! {"type": "binData", "subtype": subtype});
    for (to, code) in [
        ("dinosaur".into(), 2),
        (1000.into(), 9),
        (1.5.into(), 9),
        (true.into(), 9),
        (binary(9.into()), 4341107),
        (binary((-1).into()), 4341107),
        (binary(256.into()), 4341107),
        (binary("a".into()), 4341108),
        (binary(1.5.into()), 4341106),
        (doc! {"type": "int", "subtype": "a"}.into(), 4341108),
    ] {
        fails(convert(Bson::Null, to.clone(), Bson::Null), code);
        fails(convert("aa".into(), to, "hex".into()), code);
    }
    for (format, code) in [(Bson::from("octal"), 4341125), (1.into(), 4341114)] {
        fails(convert(1.into(), "string".into(), format.clone()), code);
        gives(convert(Bson::Null, "string".into(), format), "null");
    }
    fails(convert("aa".into(), "binData".into(), Bson::Null), 4341115);
    gives(convert("a".into(), "binData".into(), "hex".into()), "error");
    gives(convert(date(i64::MAX), "string".into(), Bson::Null), "error");
    // Types that there are, and nothing is converted to.
    for to in [-1, 0, 127] {
        gives(convert(1.into(), to.into(), Bson::Null), "error");
    }
    for text in [
        "+67dee52-c331-484e-92d1-c56479b8e67e",
        "067dee52-c331-484e-92d1-c56479b8e6+e",
    ] {
        fails(doc! {"$toUUID": text}, 241);
        gives(convert(text.into(), binary(4.into()), "uuid".into()), "error");
    }
}
