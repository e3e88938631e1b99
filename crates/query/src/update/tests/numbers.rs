//! Operators that count, compare and set bits.

use super::*;

#[test]
fn inc_and_mul_promote_and_never_wrap() {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    gives(doc! {"$inc": {"a": 2}}, doc! {"a": 1}, doc! {"a": 3});
    gives(doc! {"$inc": {"a": 2}}, doc! {}, doc! {"a": 2});
    gives(
        doc! {"$inc": {"a": 1}},
        doc! {"a": i32::MAX},
        doc! {"a": 2_147_483_648_i64},
    );
    gives(doc! {"$inc": {"a": 1_i64}}, doc! {"a": 1}, doc! {"a": 2_i64});
    gives(doc! {"$inc": {"a": 0.5}}, doc! {"a": 1}, doc! {"a": 1.5});
    gives(doc! {"$inc": {"a": 0.0}}, doc! {"a": 1}, doc! {"a": 1.0});
    keeps(doc! {"$inc": {"a": 0}}, doc! {"a": 1});
    // An equal number of the same type is no change, whatever it looks like.
    keeps(doc! {"$inc": {"a": 0.0}}, doc! {"a": -0.0});
    keeps(doc! {"$mul": {"a": -1.0}}, doc! {"a": 0.0});
    keeps(doc! {"$inc": {"a": decimal("0")}}, doc! {"a": decimal("-0")});
    keeps(doc! {"$inc": {"a": decimal("0.00")}}, doc! {"a": decimal("1.0")});
    gives(doc! {"$inc": {"a": 0.0}}, doc! {"a": 0}, doc! {"a": 0.0});
    gives(doc! {"$mul": {"a": 3}}, doc! {"a": 2}, doc! {"a": 6});
    gives(doc! {"$mul": {"a": 3_i64}}, doc! {}, doc! {"a": 0_i64});
    gives(
        doc! {"$mul": {"a": 100_000}},
        doc! {"a": 100_000},
        doc! {"a": 10_000_000_000_i64},
    );
    gives(
        doc! {"$inc": {"a": decimal("0.1")}},
        doc! {"a": 1},
        doc! {"a": decimal("1.1")},
    );
    fails(
        doc! {"$inc": {"a": 1}},
        doc! {"_id": 5, "a": i64::MAX},
        ErrorCode::BadValue,
        "Failed to apply $inc operations to current value ((NumberLong)9223372036854775807) for document {_id: 5}",
    );
    fails(
        doc! {"$mul": {"a": 2}},
        doc! {"a": i64::MAX},
        ErrorCode::BadValue,
        "Failed to apply $mul",
    );
    fails(
        doc! {"$inc": {"a": 1}},
        doc! {"_id": 1, "a": "x"},
        ErrorCode::TypeMismatch,
        "{_id: 1} has the field 'a' of non-numeric type string",
    );
    fails(
        doc! {"$inc": {"a": 1}},
        doc! {"a": Bson::Null},
        ErrorCode::TypeMismatch,
        "non-numeric type null",
    );
    fails(
        doc! {"$inc": {"a": "x"}},
        doc! {},
        ErrorCode::TypeMismatch,
        "Cannot increment with non-numeric argument: {a: \"x\"}",
    );
    fails(
        doc! {"$mul": {"a": []}},
        doc! {},
        ErrorCode::TypeMismatch,
        "Cannot multiply with non-numeric argument",
    );
}

#[test]
fn min_max_current_date_bit() {
    gives(doc! {"$min": {"a": 1}}, doc! {"a": 2}, doc! {"a": 1});
    keeps(doc! {"$min": {"a": 2.0}}, doc! {"a": 2});
    gives(doc! {"$max": {"a": "x"}}, doc! {"a": 2}, doc! {"a": "x"});
    gives(doc! {"$max": {"b": 1}}, doc! {}, doc! {"b": 1});
    gives(
        doc! {"$currentDate": {"a": true}},
        doc! {},
        doc! {"a": DateTime::from_millis(1_000_000)},
    );
    gives(
        doc! {"$currentDate": {"a": {"$type": "timestamp"}}},
        doc! {"a": 1},
        doc! {"a": Timestamp { time: 7, increment: 9 }},
    );
    fails(
        doc! {"$currentDate": {"a": 1}},
        doc! {},
        ErrorCode::BadValue,
        "int is not valid type for $currentDate",
    );
    fails(
        doc! {"$currentDate": {"a": {"$type": "x"}}},
        doc! {},
        ErrorCode::BadValue,
        "required to be 'date' or 'timestamp'",
    );
    gives(doc! {"$bit": {"a": {"and": 6, "or": 1}}}, doc! {"a": 12}, doc! {"a": 5});
    gives(doc! {"$bit": {"a": {"xor": 5_i64}}}, doc! {"a": 1}, doc! {"a": 4_i64});
    gives(doc! {"$bit": {"a": {"or": 5}}}, doc! {}, doc! {"a": 5});
    fails(
        doc! {"$bit": {"a": {"or": 5}}},
        doc! {"_id": 1, "a": 1.5},
        ErrorCode::BadValue,
        "non-integral type",
    );
    fails(
        doc! {"$bit": {"a": {"nor": 5}}},
        doc! {},
        ErrorCode::BadValue,
        "only supports 'and', 'or', and 'xor'",
    );
    fails(
        doc! {"$bit": {"a": 1}},
        doc! {},
        ErrorCode::BadValue,
        "not compatible with a int",
    );
}
