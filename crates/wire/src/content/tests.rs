#![allow(clippy::unwrap_used)]
use super::*;
use crate::{BsonFault, validate_document, validate_structure};
use bson::doc;

/// With the text `caf#` wherever text can be, names included.
fn everywhere() -> Vec<u8> {
    doc! {
        "_id": 7, "caf#": 1, "string": "caf#", "document": { "a": { "caf#": ["x", "caf#"] } },
        "regex": bson::Regex { pattern: "caf#".try_into().unwrap(), options: "i".try_into().unwrap() },
        "code": Bson::JavaScriptCode("caf#".into()), "symbol": Bson::Symbol("caf#".into()),
        "scoped": bson::JavaScriptCodeWithScope { code: "caf#".into(), scope: doc! { "x": { "y": "caf#" } } },
        "yes": true, "no": false, "stamp": bson::Timestamp { time: 1, increment: 2 }, "ü": "ü",
        "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: b"caf#".to_vec() },
    }
    .to_vec()
    .unwrap()
}

/// As a program wrote it whose strings are Latin-1.
fn latin1() -> Vec<u8> {
    everywhere()
        .into_iter()
        .map(|byte| if byte == b'#' { 0xE9 } else { byte })
        .collect()
}

#[test]
fn text_that_is_not_utf8_is_replaced_wherever_it_is() {
    let old = latin1();
    let fault = validate_structure(&old).unwrap().unwrap();
    assert_eq!(fault.fault, BsonFault::Utf8);
    assert_eq!(validate_document(&old).unwrap_err(), fault);
    let valid = with_valid_content(&old).unwrap();
    let document = validate_document(&valid).unwrap();
    let mut wanted = bson::Document::from_reader(&*everywhere()).unwrap();
    let mut found = bson::Document::try_from(document).unwrap();
    // A binary is no text.
    assert_eq!(found.get_binary_generic("binary").unwrap(), b"caf\xE9");
    assert!(found.remove("binary").is_some() && wanted.remove("binary").is_some());
    // In names with the byte.
    let renamed = wanted.to_string().replace("\"caf#\":", "\"caf\u{FFFD}E9\":");
    assert_eq!(found.to_string(), renamed.replace("caf#", "caf\u{FFFD}"));
    assert!(found.get_bool("yes").unwrap() && found.get_str("ü").unwrap() == "ü");
    assert_eq!(with_valid_content(&valid).unwrap(), valid);
}

/// Else documents were lost as duplicates of others, and fields behind others.
#[test]
fn different_ids_and_names_stay_different() {
    let bytes = |byte: u8| {
        let document = doc! { "_id": { "a": "caf#" }, "#": 1, "text": "caf#" };
        let mut bytes = document.to_vec().unwrap();
        bytes.iter_mut().filter(|old| **old == b'#').for_each(|old| *old = byte);
        bytes
    };
    for (byte, digits) in [(0xE8, "E8"), (0xE9, "E9")] {
        let id = format!("caf\u{FFFD}{digits}");
        let mut wanted = doc! { "_id": { "a": id } };
        wanted.insert(format!("\u{FFFD}{digits}"), 1);
        wanted.insert("text", "caf\u{FFFD}");
        assert_eq!(with_valid_content(&bytes(byte)).unwrap(), wanted.to_vec().unwrap());
    }
}

#[test]
fn a_mask_moves_nothing() {
    let old = latin1();
    let mut masked = old.clone();
    mask(&mut masked);
    validate_document(&masked).unwrap();
    let changed = |(old, masked): (&u8, &u8)| old != masked && (*old, *masked) != (0xE9, b'?');
    assert!(!old.iter().zip(&masked).any(changed));
    assert_eq!(masked.len(), old.len());
}

#[test]
fn booleans_become_0_or_1() {
    let mut bytes = doc! { "a": { "b": true } }.to_vec().unwrap();
    let at = bytes.len() - 3;
    bytes[at] = 7;
    let fault = validate_structure(&bytes).unwrap().unwrap();
    assert_eq!(
        describe_invalid(&bytes, &fault),
        "field 'a.b' of the document without _id: boolean is neither 0 nor 1"
    );
    let wanted = doc! { "a": { "b": true } }.to_vec().unwrap();
    assert_eq!(with_valid_content(&bytes).unwrap(), wanted);
    mask(&mut bytes);
    assert_eq!(bytes, wanted);
}

#[test]
fn the_document_and_the_field_are_named() {
    let described = |document: bson::Document| {
        let bytes: Vec<u8> = document.to_vec().unwrap();
        let bytes: Vec<u8> = bytes
            .into_iter()
            .map(|byte| if byte == b'#' { 0xE9 } else { byte })
            .collect();
        describe_invalid(&bytes, &validate_structure(&bytes).unwrap().unwrap())
    };
    for (document, wanted) in [
        (
            doc! { "_id": 7, "a": ["x", { "b": "#" }] },
            "field 'a.1.b' of the document with _id 7: not valid UTF-8",
        ),
        (
            doc! { "_id": "#" },
            "field '_id' of the document with _id \"\u{FFFD}E9\": not valid UTF-8",
        ),
        (
            doc! { "a#": 1 },
            "field 'a\u{FFFD}' of the document without _id: not valid UTF-8",
        ),
        (
            doc! { "_id": 1, "c": bson::JavaScriptCodeWithScope { code: "c".into(), scope: doc! { "x": "#" } } },
            "field 'c.x' of the document with _id 1: not valid UTF-8",
        ),
    ] {
        assert_eq!(described(document), wanted);
    }
}

/// Whatever the bytes are: nothing panics.
#[test]
fn bytes_of_another_structure_are_passed_over() {
    let whole = latin1();
    for end in 0..whole.len() {
        for bytes in [whole[..end].to_vec(), [&whole[..end], &[0xFF; 40]].concat()] {
            let _ = with_valid_content(&bytes);
            mask(&mut bytes.clone());
        }
    }
}
