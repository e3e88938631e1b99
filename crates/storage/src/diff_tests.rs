//! Differences: exact on whatever documents there are, small where little changed, errors where they do not fit.

#![allow(clippy::unwrap_used)]

use super::*;
use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc, rawdoc};
use vfs::{Random, SeededRandom};

const KINDS: [u8; 21] = [
    DOUBLE,
    STRING,
    DOCUMENT,
    ARRAY,
    BINARY,
    UNDEFINED,
    OBJECT_ID,
    BOOLEAN,
    DATE,
    NULL,
    REGEX,
    DB_POINTER,
    CODE,
    SYMBOL,
    CODE_WITH_SCOPE,
    INT32,
    TIMESTAMP,
    INT64,
    DECIMAL,
    MAX_KEY,
    MIN_KEY,
];

/// Documents of all types, with names that repeat, and changes of them.
struct Generator(SeededRandom);

impl Generator {
    fn pick(&self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    fn bytes(&self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.pick(3) as u8).collect()
    }

    fn text(&self, out: &mut Vec<u8>) {
        let length = self.pick(30) as usize;
        out.extend_from_slice(&(length as u32 + 1).to_le_bytes());
        out.extend((0..length).map(|_| b'a' + self.pick(26) as u8));
        out.push(0);
    }

    fn value(&self, kind: u8, out: &mut Vec<u8>, depth: u32) {
        match kind {
            STRING | CODE | SYMBOL => self.text(out),
            DOCUMENT => self.document(out, depth + 1),
            ARRAY => self.array(out, depth + 1),
            BINARY => {
                let length = self.pick(40) as usize;
                out.extend_from_slice(&(length as u32).to_le_bytes());
                out.push(0);
                out.extend(self.bytes(length));
            }
            REGEX => out.extend_from_slice([b"a\0i\0".as_slice(), b"\0\0", b"x.*\0\0"][self.pick(3) as usize]),
            DB_POINTER => {
                self.text(out);
                out.extend(self.bytes(12));
            }
            CODE_WITH_SCOPE => {
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                self.text(out);
                self.document(out, depth + 1);
                let length = (out.len() - start) as u32;
                out[start..start + 4].copy_from_slice(&length.to_le_bytes());
            }
            fixed => out.extend(self.bytes(value_bytes(fixed, &[]).unwrap())),
        }
    }

    fn element(&self, name: &[u8], out: &mut Vec<u8>, depth: u32) {
        let kind = match KINDS[self.pick(KINDS.len() as u64) as usize] {
            DOCUMENT | ARRAY | CODE_WITH_SCOPE if depth > 3 => INT32,
            kind => kind,
        };
        begin_element(out, kind, &[name]);
        self.value(kind, out, depth);
    }

    fn name(&self) -> Vec<u8> {
        let names: [&[u8]; 9] = [b"", b"a", b"b", b"d", b"u", b"i", b"s", b"sa", b"l"];
        match self.pick(3) {
            0 => names[self.pick(9) as usize].to_vec(),
            _ => format!("f{}", self.pick(40)).into_bytes(),
        }
    }

    fn document(&self, out: &mut Vec<u8>, depth: u32) {
        let start = begin_document(out);
        for _ in 0..self.pick(8) {
            self.element(&self.name(), out, depth);
        }
        end_document(out, start);
    }

    fn array(&self, out: &mut Vec<u8>, depth: u32) {
        let start = begin_document(out);
        for index in 0..self.pick(13) {
            let name = match self.pick(60) {
                0 => self.name(),
                _ => index.to_string().into_bytes(),
            };
            self.element(&name, out, depth);
        }
        end_document(out, start);
    }

    /// A document or array near the given one.
    fn changed(&self, document: &[u8], is_array: bool, out: &mut Vec<u8>, depth: u32) {
        let (mut elements, mut all) = (Elements::of(document).unwrap(), Vec::new());
        while let Some(element) = elements.next().unwrap() {
            all.push(element);
        }
        let rate = [2, 5, 30][self.pick(3) as usize];
        if self.pick(30) == 0 && !all.is_empty() {
            let (from, to) = (
                self.pick(all.len() as u64) as usize,
                self.pick(all.len() as u64) as usize,
            );
            all.swap(from, to);
        }
        let kept = match is_array && self.pick(4) == 0 {
            true => self.pick(all.len() as u64 + 1) as usize,
            false => all.len(),
        };
        let (start, mut index) = (begin_document(out), 0);
        for element in &all[..kept] {
            let digits = index.to_string().into_bytes();
            let name = if is_array && element.name.iter().all(u8::is_ascii_digit) {
                &digits
            } else {
                element.name
            };
            match self.pick(rate) {
                0 if !is_array && self.pick(2) == 0 => continue,
                0 => self.element(name, out, depth),
                1 if matches!(element.kind, DOCUMENT | ARRAY) => {
                    begin_element(out, element.kind, &[name]);
                    self.changed(element.value, element.kind == ARRAY, out, depth + 1);
                }
                _ => {
                    begin_element(out, element.kind, &[name]);
                    out.extend_from_slice(element.value);
                }
            }
            index += 1;
        }
        if kept == all.len() && self.pick(3) == 0 {
            for _ in 0..=self.pick(3) {
                let name = if is_array {
                    index.to_string().into_bytes()
                } else {
                    self.name()
                };
                self.element(&name, out, depth);
                index += 1;
            }
        }
        end_document(out, start);
    }
}

#[test]
fn a_difference_gives_the_new_version_byte_for_byte() {
    let seed = std::env::var("TENON_SEED").map_or(20_261_123, |seed| seed.parse().unwrap());
    println!("TENON_SEED={seed}");
    let generator = Generator(SeededRandom::new(seed));
    let (mut said, mut nested, mut bytes, mut whole) = (0, 0, 0, 0);
    for _ in 0..30_000 {
        let (mut old, mut new, mut out) = (Vec::new(), Vec::new(), Vec::new());
        generator.document(&mut old, 0);
        match generator.pick(20) {
            0 => generator.document(&mut new, 0),
            _ => generator.changed(&old, false, &mut new, 0),
        }
        if diff(&old, &new, Detail::Compact, usize::MAX, &mut out) {
            assert_eq!(
                apply(&out, &old),
                Ok(new.clone()),
                "old {old:02x?}\nnew {new:02x?}\ndiff {out:02x?}"
            );
            RawDocument::from_bytes(&out).unwrap();
            nested += usize::from(out.windows(2).any(|pair| pair == [DOCUMENT, b's']));
            (said, bytes, whole) = (said + 1, bytes + out.len(), whole + new.len());
        } else {
            assert!(out.is_empty());
        }
    }
    assert!(said > 20_000 && nested > 1_000, "{said} said, {nested} nested");
    assert!(bytes < whole, "{bytes} bytes instead of {whole}");
}

fn difference(old: Document, new: Document) -> Option<Document> {
    let (old, new) = (
        RawDocumentBuf::try_from(&old).unwrap(),
        RawDocumentBuf::try_from(&new).unwrap(),
    );
    let mut out = Vec::new();
    diff(old.as_bytes(), new.as_bytes(), Detail::Compact, usize::MAX, &mut out).then(|| {
        assert_eq!(apply(&out, old.as_bytes()).as_deref(), Ok(new.as_bytes()));
        Document::try_from(RawDocument::from_bytes(&out).unwrap()).unwrap()
    })
}

#[test]
fn sections_say_what_happened() {
    let big = "x".repeat(100);
    let old = || doc! { "_id": 1, "a": 1, "b": 2, "n": { "x": 1, "y": &big }, "l": [1, 2, 3, &big], "z": 0 };
    let new = doc! { "_id": 1, "b": 5, "n": { "x": 2, "y": &big }, "l": [1, 9, 3, &big, 4], "z": 0, "new": true };
    assert_eq!(
        difference(old(), new),
        Some(doc! {
            "d": { "a": false },
            "u": { "b": 5 },
            "i": { "new": true },
            "sn": { "u": { "x": 2 } },
            "sl": { "a": true, "u1": 9, "u4": 4 },
        })
    );
    let mut shorter = old();
    shorter.get_array_mut("l").unwrap().truncate(1);
    // One short element is shorter than the difference.
    assert_eq!(difference(old(), shorter), Some(doc! { "u": { "l": [1] } }));
    let long = |n: i32| doc! { "l": (0..n).map(|i| format!("{i}{big}")).collect::<Vec<_>>() };
    assert_eq!(difference(long(9), long(7)), Some(doc! { "sl": { "a": true, "l": 7 } }));
    assert_eq!(
        difference(doc! { "a": 1 }, doc! { "a": 1.0 }),
        Some(doc! { "u": { "a": 1.0 } })
    );
    assert_eq!(difference(old(), old()), Some(doc! {}));
    assert_eq!(
        difference(doc! { "a": 1, "b": 2, "c": 3 }, doc! { "a": 1, "c": 3, "b": 2 }),
        Some(doc! { "d": { "b": false }, "i": { "b": 2 } }),
        "a changed order"
    );
}

#[test]
fn a_difference_not_below_the_limit_is_none() {
    let (old, new) = (rawdoc! { "_id": 1, "a": 1 }, rawdoc! { "_id": 1, "a": 2 });
    let mut out = vec![7];
    assert!(diff(old.as_bytes(), new.as_bytes(), Detail::Compact, 100, &mut out));
    let length = out.len() - 1;
    out.truncate(1);
    assert!(!diff(old.as_bytes(), new.as_bytes(), Detail::Compact, length, &mut out));
    assert_eq!(out, [7], "as before");
}

#[test]
fn what_operators_did_is_told_though_the_document_is_shorter() {
    struct OfField;
    impl Targets for OfField {
        fn at(&self, _: &[&[u8]]) -> Target {
            Target::Whole
        }
    }
    let of = |letter: &str, bytes: usize| rawdoc! { "_id": 1, "a": letter.repeat(bytes) };
    let is_told = |detail, bytes| {
        between(
            of("x", bytes).as_bytes(),
            of("y", bytes).as_bytes(),
            detail,
            &mut Vec::new(),
        )
    };
    assert!(!is_told(Detail::Compact, 100) && is_told(Detail::Told, 100));
    assert!(!is_told(Detail::Told, TOLD_BYTES_FREE) && is_told(Detail::ToldAs(&OfField), TOLD_BYTES_FREE));
    assert!(is_told(Detail::ToldAs(&OfField), OPERATORS_BYTES_FREE - 100));
    assert!(!is_told(Detail::ToldAs(&OfField), OPERATORS_BYTES_FREE));
}

#[test]
fn what_does_not_fit_is_an_error_and_never_a_panic() {
    let generator = Generator(SeededRandom::new(7));
    let (mut refused, mut tried) = (0, 0);
    while tried < 20_000 {
        let (mut old, mut new, mut out) = (Vec::new(), Vec::new(), Vec::new());
        generator.document(&mut old, 0);
        generator.changed(&old, false, &mut new, 0);
        if !diff(&old, &new, Detail::Compact, usize::MAX, &mut out) {
            continue;
        }
        tried += 1;
        let victim = if generator.pick(2) == 0 { &mut old } else { &mut out };
        let at = generator.pick(victim.len() as u64) as usize;
        victim[at] = generator.0.next_u64() as u8;
        refused += usize::from(apply(&out, &old).is_err());
        let mut again = Vec::new();
        let _ = diff(&old, &new, Detail::Compact, usize::MAX, &mut again);
        let _ = diff(&out, &old, Detail::Compact, usize::MAX, &mut again);
    }
    assert!(refused > 5_000, "only {refused} refused");
    let other = rawdoc! { "u": { "nowhere": 1 } };
    assert!(apply(other.as_bytes(), rawdoc! { "a": 1 }.as_bytes()).is_err());
}

#[test]
fn deep_documents_are_replaced_at_the_bottom() {
    let deep = |last: i32| {
        (0..190).fold(
            doc! { "v": last, "pad": "x".repeat(50) },
            |inner, _| doc! { "n": inner, "o": 1 },
        )
    };
    let found = difference(deep(1), deep(2)).unwrap();
    assert!(!found.is_empty());
}

#[test]
fn a_key_is_the_first_field() {
    let mut key = Vec::new();
    assert!(append_key(rawdoc! { "_id": "x", "a": 1 }.as_bytes(), &mut key).is_some());
    assert_eq!(key, rawdoc! { "_id": "x" }.as_bytes());
    assert!(append_key(rawdoc! { "a": 1, "_id": 1 }.as_bytes(), &mut key).is_none());
    assert!(append_key(rawdoc! {}.as_bytes(), &mut key).is_none());
}

#[test]
fn many_changed_fields_are_said_and_a_name_that_repeats_is_not() {
    let fields = |value: i32, step: usize| -> Document {
        (0..200)
            .filter(|n| step == 0 || n % step != 1)
            .map(|n| (format!("field{n}"), Bson::Int32(if n % 2 == 0 { value } else { 7 })))
            .collect()
    };
    let changed = difference(fields(1, 0), fields(2, 0)).unwrap();
    assert_eq!(changed.get_document("u").unwrap().len(), 100);
    let thinned = difference(fields(1, 0), fields(2, 3)).unwrap();
    assert_eq!(thinned.get_document("d").unwrap().len(), 67);
    let (mut old, mut new) = (fields(1, 0), fields(2, 0));
    let repeated = |document: &mut Document, value| {
        let mut raw = RawDocumentBuf::try_from(&*document).unwrap();
        raw.append(bson::raw::cstr!("field3"), value);
        raw
    };
    let (old, new) = (repeated(&mut old, 1), repeated(&mut new, 2));
    assert!(!diff(
        old.as_bytes(),
        new.as_bytes(),
        Detail::Compact,
        usize::MAX,
        &mut Vec::new()
    ));
}

#[test]
fn what_a_difference_touches() {
    let old = doc! { "a": 1, "n": { "x": 1, "y": { "z": "x".repeat(50) } }, "l": [{ "q": 1 }, "x".repeat(50)], "k": 1 };
    let mut new = old.clone();
    new.get_document_mut("n").unwrap().insert("x", 2);
    *new.get_array_mut("l").unwrap().get_mut(0).unwrap() = Bson::Int32(3);
    new.remove("k");
    new.insert("m", 1);
    let said = RawDocumentBuf::try_from(&difference(old, new).unwrap()).unwrap();
    let touches = |path: &str| touches(said.as_bytes(), path.as_bytes().split(|&byte| byte == b'.'));
    for path in ["n", "n.x", "n.x.q", "l", "l.q", "l.0", "l.1.q", "k", "k.x", "m", "m.x"] {
        assert!(touches(path), "{path}");
    }
    for path in ["a", "a.x", "n.y", "n.y.z", "n.q", "x", "u", "sn", "d"] {
        assert!(!touches(path), "{path}");
    }
}
