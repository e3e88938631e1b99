#![allow(clippy::unwrap_used)]
use super::*;
use bson::raw::RawBsonRef;
use bson::{Bson, doc};

/// A document with every type of value.
fn every_type() -> Vec<u8> {
    doc! {
        "double": 1.5, "string": "text ü", "document": { "a": { "b": [] } }, "array": [1, "two", { "three": 3 }],
        "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2, 3] },
        "old": bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![9; 10] },
        "undefined": Bson::Undefined, "id": bson::oid::ObjectId::from_bytes([3; 12]), "yes": true, "no": false,
        "date": bson::DateTime::from_millis(-1), "null": null,
        "regex": bson::Regex { pattern: "^a".try_into().unwrap(), options: "imx".try_into().unwrap() },
        "code": Bson::JavaScriptCode("f()".into()), "symbol": Bson::Symbol("s".into()),
        "scoped": bson::JavaScriptCodeWithScope { code: "g()".into(), scope: doc! { "x": { "y": 1 } } },
        "int": 7, "stamp": bson::Timestamp { time: 1, increment: 2 }, "long": 8i64,
        "decimal": bson::Decimal128::from_bytes([1; 16]), "min": Bson::MinKey, "max": Bson::MaxKey,
        "a long and täglich wechselnder name": 1,
    }
    .to_vec()
    .unwrap()
}

fn with_element(kind: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.push(kind);
    bytes.extend_from_slice(b"x\0");
    bytes.extend_from_slice(value);
    bytes.push(0);
    let length = bytes.len() as i32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn fault_of(bytes: &[u8]) -> BsonFault {
    validate_document(bytes).unwrap_err().fault
}

/// Reads a document to its last value with the `bson` crate.
fn readable(document: &RawDocument, depth: usize) -> bool {
    assert!(depth <= NESTING_MAX);
    document.iter().all(|element| match element {
        Ok((_, RawBsonRef::Document(inner))) => readable(inner, depth + 1),
        Ok((_, RawBsonRef::Array(inner))) => readable(inner.as_document(), depth + 1),
        Ok((_, RawBsonRef::JavaScriptCodeWithScope(code))) => readable(code.scope, depth + 1),
        Ok(_) => true,
        Err(_) => false,
    })
}

trait AsDocument {
    fn as_document(&self) -> &RawDocument;
}

impl AsDocument for bson::raw::RawArray {
    fn as_document(&self) -> &RawDocument {
        RawDocument::from_bytes(self.as_bytes()).unwrap()
    }
}

fn nested(levels: usize) -> Vec<u8> {
    let mut bytes = vec![5, 0, 0, 0, 0];
    for _ in 1..levels {
        bytes = with_element(3, &bytes);
    }
    bytes
}

#[test]
fn every_type_passes() {
    let bytes = every_type();
    assert!(readable(validate_document(&bytes).unwrap(), 1));
    let two = [bytes.clone(), bytes].concat();
    assert_eq!(validate_documents(&two), Ok(2));
    assert_eq!(validate_documents(&[]), Ok(0));
}

#[test]
fn each_fault_is_named() {
    assert_eq!(fault_of(&[]), BsonFault::Length);
    assert_eq!(fault_of(&[4, 0, 0, 0]), BsonFault::Length);
    assert_eq!(fault_of(&[5, 0, 0, 0, 1]), BsonFault::Terminator);
    assert_eq!(fault_of(&[6, 0, 0, 0, 0, 0]), BsonFault::Truncated);
    assert_eq!(fault_of(&[5, 0, 0, 0, 0, 0]), BsonFault::Length);
    assert_eq!(fault_of(&with_element(0x14, &[0; 4])), BsonFault::UnknownType(0x14));
    assert_eq!(fault_of(&with_element(8, &[2])), BsonFault::Boolean);
    assert_eq!(fault_of(&with_element(2, &[2, 0, 0, 0, 0xFF, 0])), BsonFault::Utf8);
    assert_eq!(
        fault_of(&with_element(2, &[2, 0, 0, 0, b'a', b'b'])),
        BsonFault::Terminator
    );
    assert_eq!(fault_of(&with_element(2, &[0, 0, 0, 0])), BsonFault::Length);
    assert_eq!(fault_of(&with_element(2, &[0xFF; 4])), BsonFault::Length);
    assert_eq!(fault_of(&with_element(2, &[9, 0, 0, 0, 0])), BsonFault::Truncated);
    assert_eq!(fault_of(&with_element(0x10, &[0; 3])), BsonFault::Truncated);
    assert_eq!(
        fault_of(&with_element(5, &[4, 0, 0, 0, 2, 0, 0, 0, 1])),
        BsonFault::Length
    );
    assert_eq!(fault_of(&with_element(0x0B, b"a\0b")), BsonFault::Truncated);
    let mut name = with_element(0x0A, &[]);
    name[5] = 0xFE;
    assert_eq!(fault_of(&name), BsonFault::Utf8);
}

#[test]
fn nesting_ends_at_the_limit() {
    assert!(validate_document(&nested(NESTING_MAX)).is_ok());
    assert_eq!(fault_of(&nested(NESTING_MAX + 1)), BsonFault::TooDeep);
}

#[test]
fn size_ends_at_the_limit() {
    let of_size = |bytes: usize| {
        let mut value = ((bytes - 13) as i32).to_le_bytes().to_vec();
        value.push(0);
        value.resize(value.len() + bytes - 13, 7);
        with_element(5, &value)
    };
    assert_eq!(of_size(100).len(), 100);
    assert!(validate_document(&of_size(DOCUMENT_INTERNAL_BYTES_MAX)).is_ok());
    let bytes = DOCUMENT_INTERNAL_BYTES_MAX + 1;
    assert_eq!(fault_of(&of_size(bytes)), BsonFault::TooLarge { bytes });
}

/// What passes must be readable by the `bson` crate; nothing may panic.
#[test]
fn mutated_documents_never_pass_unreadable() {
    let original = every_type();
    let seed = 0x5EED_1234_u64;
    println!("seed {seed:#x}");
    let mut state = seed;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut passed, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let mut bytes = original.clone();
        for _ in 0..=next() % 3 {
            let at = next() as usize % bytes.len();
            bytes[at] = match next() % 4 {
                0 => 0,
                1 => 0xFF,
                2 => bytes[at].wrapping_add(1),
                _ => next() as u8,
            };
        }
        match validate_document(&bytes) {
            Ok(document) => {
                assert!(readable(document, 1), "{bytes:02x?}");
                passed += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(passed > 10_000 && refused > 10_000, "{passed} {refused}");
}

/// Where the crate can read everything and the depth is fine, so does the validator: it refuses nothing needlessly.
#[test]
fn every_cut_of_a_document_is_refused() {
    let bytes = every_type();
    for length in 0..bytes.len() {
        assert!(validate_document(&bytes[..length]).is_err());
        let mut patched = bytes[..length].to_vec();
        if length >= 5 {
            patched[..4].copy_from_slice(&(length as i32).to_le_bytes());
            patched[length - 1] = 0;
            if let Ok(document) = validate_document(&patched) {
                assert!(readable(document, 1));
            }
        }
    }
}
