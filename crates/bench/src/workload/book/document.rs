//! The chapter's document: four fields of four types, an array of eight such documents and eight such sub-documents.
//!
//! All four values of a set come from one random number: a date before 2017, a whole number below 10^8, a string of
//! about 40 characters, and the whole number's parity. The string is the number times 10^64 in base 36, as JavaScript
//! writes it: what a double cannot hold is zeros.

use crate::message::{Message, numbered_id};
use crate::random::Random;

const SETS: u32 = 16;
const IN_ARRAY: u32 = 8;
const SUB_NAMES: [&str; 8] = ["sub8", "sub9", "sub10", "sub11", "sub12", "sub13", "sub14", "sub15"];
/// `log36(10^64)` is 41.1.
const STRING_MAX: usize = 48;

/// Appends document `number`.
pub fn put_document(seed: u64, number: u64, message: &mut Message) {
    let mut random = Random::of_part(seed, number);
    message.object_id("_id", numbered_id(number));
    let names = ["random_date", "random_int", "random_string", "random_bool"];
    put_set(names, &mut random, message);
    message.array("arr");
    for index in 0..IN_ARRAY {
        message.document_at(index);
        put_inner_set(&mut random, message);
        message.end();
    }
    message.end();
    for name in &SUB_NAMES[..(SETS - IN_ARRAY) as usize] {
        message.document(name);
        put_inner_set(&mut random, message);
        message.end();
    }
}

fn put_inner_set(random: &mut Random, message: &mut Message) {
    put_set(
        ["date_field", "int_field", "string_field", "bool_field"],
        random,
        message,
    );
}

fn put_set([date, int, string, boolean]: [&str; 4], random: &mut Random, message: &mut Message) {
    let unit = random.unit();
    let whole = (1e8 * unit) as i32;
    message.date(date, (1.5e12 * unit) as i64);
    message.int32(int, whole);
    let mut digits = [0; STRING_MAX];
    message.text(string, base_36((1e64 * unit).floor(), &mut digits));
    message.int32(boolean, whole % 2);
}

/// A whole number in base 36. Digits that the double does not determine are 0.
fn base_36(mut value: f64, digits: &mut [u8; STRING_MAX]) -> &[u8] {
    /// Whole numbers from here on are not all doubles.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let mut at = STRING_MAX;
    let mut put = |digit: u8| {
        at -= 1;
        digits[at] = digit;
    };
    while value >= EXACT {
        value /= 36.0;
        put(b'0');
    }
    let mut whole = value as u64;
    loop {
        put(b"0123456789abcdefghijklmnopqrstuvwxyz"[(whole % 36) as usize]);
        whole /= 36;
        if whole == 0 {
            return &digits[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::RawDocument;

    fn document(seed: u64, number: u64) -> Vec<u8> {
        let mut message = Message::new(0);
        message.begin("insert", "x");
        message.end_body("y");
        message.begin_sequence("documents");
        message.element();
        put_document(seed, number, &mut message);
        let size = message.end();
        message.end_sequence();
        message.bytes()[message.bytes().len() - size..].to_vec()
    }

    #[test]
    fn strings_are_numbers_in_base_36() {
        let mut digits = [0; STRING_MAX];
        assert_eq!(base_36(0.0, &mut digits), b"0");
        assert_eq!(base_36(35.0, &mut digits), b"z");
        assert_eq!(base_36(46656.0, &mut digits), b"1000");
        assert_eq!(base_36(1e64, &mut digits).len(), 42);
    }

    #[test]
    fn the_shape_is_the_chapters() {
        let bytes = document(1, 7);
        let document = RawDocument::from_bytes(&bytes).expect("a document");
        let names: Vec<&str> = document.iter().map(|field| field.expect("sound").0.as_str()).collect();
        assert_eq!(names.len(), 1 + 4 + 1 + 8);
        assert_eq!(
            &names[1..6],
            ["random_date", "random_int", "random_string", "random_bool", "arr"]
        );
        assert_eq!(&names[6..], SUB_NAMES);
        assert_eq!(document.get_array("arr").expect("an array").into_iter().count(), 8);
        let sub = document.get_document("sub15").expect("a document");
        let whole = sub.get_i32("int_field").expect("a number");
        assert_eq!(sub.get_i32("bool_field").ok(), Some(whole % 2));
        let date = sub.get_datetime("date_field").expect("a date").timestamp_millis();
        // Both come from the same random number.
        assert!((date as f64 / 1.5e12 - f64::from(whole) / 1e8).abs() < 1e-7);
        let text = sub.get_str("string_field").expect("a string");
        assert!((30..=42).contains(&text.len()), "{text}");
        assert!(text.ends_with("00000000000000000000"), "{text}");
    }

    #[test]
    fn values_are_uniform_and_repeat() {
        let mut sum = 0.0;
        for number in 0..2000 {
            let bytes = document(5, number);
            let document = RawDocument::from_bytes(&bytes).expect("a document");
            sum += f64::from(document.get_i32("random_int").expect("a number")) / 1e8;
        }
        assert!((sum / 2000.0 - 0.5).abs() < 0.03, "{sum}");
        assert_eq!(document(5, 3), document(5, 3));
        assert_ne!(document(5, 3), document(6, 3));
        assert!((1500..2600).contains(&document(5, 3).len()), "{}", document(5, 3).len());
    }
}
