//! Values in the shell's notation, for messages: `{ a: 1, b: "x" }`.

use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;
use std::fmt::Write;

/// About how long a description may get before it is cut.
const LENGTH_MAX: usize = 150;
/// Levels of nesting that a description shows.
const DEPTH_MAX: usize = 20;

/// A value, cut after about 150 characters.
pub fn describe(value: RawBsonRef<'_>) -> String {
    describe_within(value, LENGTH_MAX)
}

/// A value, however long.
pub fn describe_whole(value: RawBsonRef<'_>) -> String {
    describe_within(value, usize::MAX)
}

/// A value, cut after about so many characters.
pub fn describe_within(value: RawBsonRef<'_>, length_max: usize) -> String {
    let mut description = Description {
        text: String::new(),
        length_max,
    };
    description.value(value, 0);
    let mut text = description.text;
    // What is not cut by itself, such as names and code. Texts are cut by characters, of four bytes at most.
    let most = length_max.saturating_mul(4).saturating_add(16);
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push_str("...");
    }
    text
}

struct Description {
    text: String,
    length_max: usize,
}

impl Description {
    fn value(&mut self, value: RawBsonRef<'_>, depth: usize) {
        if self.text.len() > self.length_max || depth > DEPTH_MAX {
            self.text.push_str("...");
            return;
        }
        let text = &mut self.text;
        let written = match value {
            RawBsonRef::Double(v) if v.fract() == 0.0 && v.abs() < 1e15 => write!(text, "{v:.1}"),
            RawBsonRef::Double(v) => write!(text, "{v}"),
            RawBsonRef::String(v) => {
                let end = v.char_indices().map(|(at, _)| at).nth(self.length_max);
                write!(text, "\"{}\"", &v[..end.unwrap_or(v.len())])
            }
            RawBsonRef::Document(v) => return self.fields(v, Names::Shown, depth),
            RawBsonRef::Array(v) => match RawDocument::from_bytes(v.as_bytes()) {
                Ok(items) => return self.fields(items, Names::Indexes, depth),
                Err(_) => Ok(()),
            },
            RawBsonRef::Boolean(v) => write!(text, "{v}"),
            RawBsonRef::Null => write!(text, "null"),
            RawBsonRef::Undefined => write!(text, "undefined"),
            RawBsonRef::MinKey => write!(text, "MinKey"),
            RawBsonRef::MaxKey => write!(text, "MaxKey"),
            RawBsonRef::Int32(v) => write!(text, "{v}"),
            RawBsonRef::Int64(v) => write!(text, "{v}"),
            RawBsonRef::Decimal128(v) => write!(text, "{v}"),
            RawBsonRef::ObjectId(v) => write!(text, "ObjectId('{v}')"),
            RawBsonRef::DateTime(v) => write!(text, "new Date({})", v.timestamp_millis()),
            RawBsonRef::Timestamp(v) => write!(text, "Timestamp({}, {})", v.time, v.increment),
            RawBsonRef::RegularExpression(v) => write!(text, "/{}/{}", v.pattern.as_str(), v.options.as_str()),
            RawBsonRef::Binary(v) => {
                if v.subtype == BinarySubtype::Uuid && v.bytes.len() == 16 {
                    text.push_str("UUID(\"");
                    for (at, byte) in v.bytes.iter().enumerate() {
                        let dash = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                        write!(text, "{dash}{byte:02x}").expect("writing to a string succeeds");
                    }
                    write!(text, "\")")
                } else {
                    write!(text, "BinData({}, ", u8::from(v.subtype)).expect("writing to a string succeeds");
                    for byte in v.bytes.iter().take(self.length_max / 2) {
                        write!(text, "{byte:02X}").expect("writing to a string succeeds");
                    }
                    write!(text, ")")
                }
            }
            RawBsonRef::Symbol(v) => write!(text, "{v}"),
            RawBsonRef::JavaScriptCode(v) => write!(text, "{v}"),
            RawBsonRef::JavaScriptCodeWithScope(v) => write!(text, "CodeWScope({})", v.code),
            RawBsonRef::DbPointer(_) => write!(text, "DBRef(...)"),
        };
        written.expect("writing to a string succeeds");
    }

    fn fields(&mut self, fields: &RawDocument, names: Names, depth: usize) {
        let (open, close) = match names {
            Names::Shown => ("{", "}"),
            Names::Indexes => ("[", "]"),
        };
        self.text.push_str(open);
        let mut first = true;
        for (name, value) in fields.into_iter().flatten() {
            self.text.push_str(if first { " " } else { ", " });
            first = false;
            if names == Names::Shown {
                self.text.push_str(name.as_str());
                self.text.push_str(": ");
            }
            self.value(value, depth + 1);
            if self.text.len() > self.length_max {
                self.text.push_str(", ...");
                break;
            }
        }
        if !first {
            self.text.push(' ');
        }
        self.text.push_str(close);
    }
}

/// Whether names are shown or are nothing but positions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Shown,
    Indexes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{Binary, rawdoc};

    #[test]
    fn values_read_as_in_the_shell() {
        let binary = |subtype, bytes: &[u8]| Binary {
            subtype,
            bytes: bytes.to_vec(),
        };
        let document = rawdoc! {
            "a": 1, "b": ["x", 2.0, {}], "c": {}, "d": [],
            "u": binary(BinarySubtype::Uuid, &[0xAB; 16]),
            "e": binary(BinarySubtype::Generic, &[0xDE, 0xAD]),
        };
        assert_eq!(
            describe_whole(RawBsonRef::Document(&document)),
            "{ a: 1, b: [ \"x\", 2.0, {} ], c: {}, d: [], u: UUID(\"abababab-abab-abab-abab-abababababab\"), e: BinData(0, DEAD) }"
        );
    }

    #[test]
    fn long_values_are_cut() {
        let long = rawdoc! { "a": "x".repeat(1000), "b": 1 };
        let text = describe(RawBsonRef::Document(&long));
        assert!(text.len() < 200 && text.ends_with(", ... }"), "{text}");
        assert_eq!(
            describe_whole(RawBsonRef::Document(&long)).len(),
            1000 + "{ a: \"\", b: 1 }".len()
        );
    }
}
