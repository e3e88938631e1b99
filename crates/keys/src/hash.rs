//! The hash of a value in hashed indexes, the same as MongoDB's.
//!
//! The first eight bytes, as a little-endian number, of the MD5 digest of a seed (four bytes, 0), and of the value: the
//! number of its type (as in MongoDB's order of types, four bytes), then its bytes as BSON has them. Numbers are cut to
//! 64-bit integers, so that equal numbers hash alike; documents and arrays are hashed field by field, each as its type,
//! its name with the NUL, and its value, with four zero bytes at the end.

use crate::Decimal;
use crate::decimal::Rounding;
use crate::raw::{Elements, Value, with_value};
use bson::raw::RawBsonRef;
use md5::{Digest, Md5};

/// See the module.
pub fn hash(value: RawBsonRef<'_>) -> i64 {
    with_value(value, hash_of)
}

pub(crate) fn hash_of(value: Value<'_>) -> i64 {
    let mut digest = Md5::new();
    digest.update(0u32.to_le_bytes());
    add(&mut digest, value);
    let digest: [u8; 16] = digest.finalize().into();
    i64::from_le_bytes(std::array::from_fn(|i| digest[i]))
}

/// Adds a value with all that is in it. Does not recurse: what is computed nests deeper than what is stored.
fn add(digest: &mut Md5, value: Value<'_>) {
    digest.update(type_number(&value).to_le_bytes());
    let mut open: Vec<Elements<'_>> = add_own(digest, value).into_iter().collect();
    while let Some(elements) = open.last_mut() {
        let Some(element) = elements.next_or_end() else {
            digest.update(0u32.to_le_bytes());
            open.pop();
            continue;
        };
        digest.update(type_number(&element.value).to_le_bytes());
        digest.update(element.name);
        digest.update([0]);
        open.extend(add_own(digest, element.value));
    }
}

/// Adds the bytes of a value itself, and gives the fields that it has.
fn add_own<'a>(digest: &mut Md5, value: Value<'a>) -> Option<Elements<'a>> {
    let mut bytes = |parts: &[&[u8]]| parts.iter().for_each(|part| digest.update(part));
    let text = |text: &[u8]| (text.len() as u32 + 1).to_le_bytes();
    match value {
        Value::MinKey | Value::MaxKey | Value::Undefined | Value::Null => {}
        Value::Int32(number) => bytes(&[&i64::from(number).to_le_bytes()]),
        Value::Int64(number) => bytes(&[&number.to_le_bytes()]),
        // Of what is no number at all, and beyond 64 bits, the nearest.
        Value::Double(number) => bytes(&[&(number as i64).to_le_bytes()]),
        Value::Decimal(number) => bytes(&[&truncated(number).to_le_bytes()]),
        Value::String(string) | Value::Symbol(string) | Value::Code(string) => bytes(&[&text(string), string, &[0]]),
        Value::Binary {
            subtype,
            bytes: content,
        } => {
            bytes(&[&(content.len() as u32).to_le_bytes(), &[subtype], content]);
        }
        Value::ObjectId(id) => bytes(&[&id]),
        Value::Bool(truth) => bytes(&[&[truth.into()]]),
        Value::Date(millis) => bytes(&[&millis.to_le_bytes()]),
        Value::Timestamp(timestamp) => bytes(&[&timestamp.to_le_bytes()]),
        Value::Regex { pattern, options } => bytes(&[pattern, &[0], options, &[0]]),
        Value::DbPointer { namespace, id } => bytes(&[&text(namespace), namespace, &[0], &id]),
        Value::Document(fields) | Value::Array(fields) => return Some(Elements::new(fields)),
        Value::CodeWithScope { code, scope } => {
            bytes(&[&text(code), code, &[0]]);
            return Some(Elements::new(scope));
        }
    }
    None
}

/// The whole part, as of a double: of what is beyond 64 bits the nearest, of NaN zero.
fn truncated(number: [u8; 16]) -> i64 {
    let number = Decimal::from(bson::Decimal128::from_bytes(number));
    match number.to_i64(Rounding::TowardZero) {
        Some(whole) => whole,
        None if number.is_nan() => 0,
        None if number.is_negative() => i64::MIN,
        None => i64::MAX,
    }
}

/// The number of a type in MongoDB's order of types.
fn type_number(value: &Value<'_>) -> i32 {
    match value {
        Value::MinKey => -1,
        Value::Undefined => 0,
        Value::Null => 5,
        Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) => 10,
        Value::String(_) | Value::Symbol(_) => 15,
        Value::Document(_) => 20,
        Value::Array(_) => 25,
        Value::Binary { .. } => 30,
        Value::ObjectId(_) => 35,
        Value::Bool(_) => 40,
        Value::Date(_) => 45,
        Value::Timestamp(_) => 47,
        Value::Regex { .. } => 50,
        Value::DbPointer { .. } => 55,
        Value::Code(_) => 60,
        Value::CodeWithScope { .. } => 65,
        Value::MaxKey => 127,
    }
}

#[cfg(test)]
mod tests {
    use super::hash;
    use bson::raw::RawBsonRef;

    #[test]
    fn the_hash_is_the_one_that_mongodb_documents() {
        assert_eq!(hash(RawBsonRef::String("string to hash")), 763_543_691_661_428_748);
    }

    #[test]
    fn numbers_hash_by_their_whole_part_whatever_their_type() {
        let decimal = "7.9".parse().expect("a decimal");
        let of_seven = hash(RawBsonRef::Int32(7));
        for number in [
            RawBsonRef::Int64(7),
            RawBsonRef::Double(7.5),
            RawBsonRef::Decimal128(decimal),
        ] {
            assert_eq!(hash(number), of_seven, "{number:?}");
        }
        let exact = "9007199254740993".parse().expect("a decimal");
        let (exact, whole) = (RawBsonRef::Decimal128(exact), RawBsonRef::Int64(9_007_199_254_740_993));
        assert_eq!(hash(exact), hash(whole), "beyond the whole numbers of doubles");
        let huge = "1E+400".parse().expect("a decimal");
        assert_eq!(hash(RawBsonRef::Decimal128(huge)), hash(RawBsonRef::Double(1e300)));
        assert_ne!(hash(RawBsonRef::Int32(8)), of_seven);
        assert_ne!(hash(RawBsonRef::String("7")), of_seven);
    }

    #[test]
    fn what_is_computed_nests_deep_and_is_hashed_on_a_small_stack() {
        let deep = (0..2_000).fold(bson::rawdoc! {}, |inner, _| bson::rawdoc! {"": inner});
        let hashing = std::thread::Builder::new().stack_size(64 << 10);
        let hashing = hashing
            .spawn(move || hash(RawBsonRef::Document(&deep)))
            .expect("a thread");
        assert_ne!(
            hashing.join().expect("a hash"),
            hash(RawBsonRef::Document(&bson::rawdoc! {}))
        );
    }

    #[test]
    fn names_and_nesting_count() {
        let documents = [
            bson::rawdoc! {"a": 1},
            bson::rawdoc! {"b": 1},
            bson::rawdoc! {"a": {"a": 1}},
            bson::rawdoc! {"a": [1]},
            bson::rawdoc! {"a": 1, "b": 1},
        ];
        let mut hashes: Vec<i64> = documents
            .iter()
            .map(|document| hash(RawBsonRef::Document(document)))
            .collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), documents.len());
    }
}
