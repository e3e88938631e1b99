//! `$bitsAllSet` and its like.

use super::*;

#[test]
fn bits() {
    check(
        doc! {"a": {"$bitsAllSet": [1, 3]}},
        &[doc! {"a": 10}, doc! {"a": -1}, doc! {"a": 10.0}],
        &[doc! {"a": 2}, doc! {"a": 10.5}],
    );
    check(
        doc! {"a": {"$bitsAnySet": 6}},
        &[doc! {"a": 2}],
        &[doc! {"a": 8}, doc! {"a": "x"}],
    );
    check(doc! {"a": {"$bitsAllClear": 5}}, &[doc! {"a": 10}], &[doc! {"a": 1}]);
    check(
        doc! {"a": {"$bitsAnyClear": [0, 200]}},
        &[doc! {"a": 1}],
        &[doc! {"a": -1}],
    );
    let of = |subtype, byte: u8| {
        let bytes = vec![0, byte];
        Bson::Binary(Binary { subtype, bytes })
    };
    let (binary, old) = (of(BinarySubtype::Generic, 1), of(BinarySubtype::BinaryOld, 1));
    check(
        doc! {"a": {"$bitsAllSet": binary.clone()}},
        &[doc! {"a": 256}, doc! {"a": of(BinarySubtype::Generic, 3)}],
        &[doc! {"a": 1}],
    );
    // It is stored as `02 00 00 00 00 01`.
    for set in [Bson::from(2), Bson::from(vec![40]), old.clone()] {
        let documents = [doc! {"a": old.clone()}, doc! {"a": binary.clone()}];
        check(doc! {"a": {"$bitsAllSet": set}}, &documents[..1], &documents[1..]);
    }
}
