//! A log line as JSON: attributes in relaxed extended JSON, long ones cut.
//!
//! An attribute that would take the line past [`ATTRIBUTE_BYTES_MAX`] is left out at the element where the room ends;
//! the `truncated` and `size` fields then say which attributes were cut and how large they were.

use super::LogId;
use bson::spec::BinarySubtype;
use bson::{Bson, Document};
use std::fmt::Write;

/// Bytes of JSON the attributes of a line may take.
pub const ATTRIBUTE_BYTES_MAX: usize = 10 * 1024;

/// The fields of a line, in the order they are written.
pub struct Line<'a> {
    pub now: &'a str,
    pub id: LogId,
    pub context: &'a str,
    pub message: &'a str,
    pub attributes: &'a Document,
    pub warning_of_startup: bool,
}

impl Line<'_> {
    /// The line without its end.
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(256);
        out.push_str("{\"t\":{\"$date\":\"");
        out.push_str(self.now);
        out.push_str("\"},\"s\":\"");
        out.push_str(self.id.severity.letter());
        let _ = write!(out, "\",\"c\":\"{}\",", self.id.component.short_name());
        let _ = write!(out, "\"id\":{},\"ctx\":", self.id.number);
        string(&mut out, self.context, usize::MAX);
        out.push_str(",\"msg\":");
        string(&mut out, self.message, usize::MAX);
        if !self.attributes.is_empty() {
            self.attributes_to(&mut out);
        }
        if self.warning_of_startup {
            out.push_str(",\"tags\":[\"startupWarnings\"]");
        }
        out.push('}');
        out
    }

    fn attributes_to(&self, out: &mut String) {
        out.push_str(",\"attr\":{");
        let limit = out.len() + ATTRIBUTE_BYTES_MAX;
        let mut cut: Vec<(&str, &Bson)> = Vec::new();
        for (index, (name, attribute)) in self.attributes.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            string(out, name, usize::MAX);
            out.push(':');
            if !value(out, attribute, limit) {
                cut.push((name, attribute));
            }
        }
        out.push('}');
        if cut.is_empty() {
            return;
        }
        for (field, describe) in [("truncated", true), ("size", false)] {
            let _ = write!(out, ",\"{field}\":{{");
            for (index, (name, attribute)) in cut.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                string(out, name, usize::MAX);
                let size = size_of(attribute);
                let _ = match describe {
                    true => write!(out, ":{{\"type\":\"{:?}\",\"size\":{size}}}", attribute.element_type()),
                    false => write!(out, ":{size}"),
                };
            }
            out.push('}');
        }
    }
}

/// The value's size in bytes, about.
fn size_of(value: &Bson) -> usize {
    match value {
        Bson::String(text) => text.len(),
        Bson::Document(document) => document.to_vec().map_or(0, |bytes| bytes.len()),
        Bson::Array(array) => {
            let wrapped = bson::doc! { "a": array.clone() };
            wrapped.to_vec().map_or(0, |bytes| bytes.len())
        }
        Bson::Binary(binary) => binary.bytes.len(),
        _ => 16,
    }
}

/// Writes a string, cut so that `out` stays below `limit`; false when cut.
fn string(out: &mut String, text: &str, limit: usize) -> bool {
    out.push('"');
    let mut whole = true;
    for character in text.chars() {
        if out.len() + 8 > limit {
            whole = false;
            break;
        }
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Those beyond ASCII end lines for some readers, and begin commands for terminals.
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            other => out.push(other),
        }
    }
    out.push('"');
    whole
}

/// Writes a value; false when some of it was left out. Documents of the server are at most 200 levels deep, so
/// recursion is bounded.
fn value(out: &mut String, value: &Bson, limit: usize) -> bool {
    match value {
        Bson::Document(document) => fields(out, document, limit),
        Bson::Array(array) => items(out, array, limit),
        Bson::String(text) => string(out, text, limit),
        Bson::JavaScriptCode(text) => wrapped(out, "$code", text, limit),
        Bson::Symbol(text) => wrapped(out, "$symbol", text, limit),
        scalar => {
            self::scalar(out, scalar);
            true
        }
    }
}

fn fields(out: &mut String, document: &Document, limit: usize) -> bool {
    out.push('{');
    let mut whole = true;
    for (index, (name, field)) in document.iter().enumerate() {
        if out.len() + name.len() + 16 > limit {
            whole = false;
            break;
        }
        if index > 0 {
            out.push(',');
        }
        string(out, name, usize::MAX);
        out.push(':');
        whole &= value(out, field, limit);
    }
    out.push('}');
    whole
}

fn items(out: &mut String, array: &[Bson], limit: usize) -> bool {
    out.push('[');
    let mut whole = true;
    for (index, item) in array.iter().enumerate() {
        if out.len() + 16 > limit {
            whole = false;
            break;
        }
        if index > 0 {
            out.push(',');
        }
        whole &= value(out, item, limit);
    }
    out.push(']');
    whole
}

fn wrapped(out: &mut String, name: &str, text: &str, limit: usize) -> bool {
    let _ = write!(out, "{{\"{name}\":");
    let whole = string(out, text, limit);
    out.push('}');
    whole
}

fn scalar(out: &mut String, value: &Bson) {
    let _ = match value {
        Bson::Boolean(v) => write!(out, "{v}"),
        Bson::Null => write!(out, "null"),
        Bson::Int32(v) => write!(out, "{v}"),
        Bson::Int64(v) => write!(out, "{v}"),
        Bson::Double(v) if v.is_finite() => write!(out, "{v:?}"),
        Bson::Double(v) if v.is_nan() => write!(out, "{{\"$numberDouble\":\"NaN\"}}"),
        Bson::Double(v) => {
            write!(
                out,
                "{{\"$numberDouble\":\"{}Infinity\"}}",
                if *v < 0.0 { "-" } else { "" }
            )
        }
        Bson::Decimal128(v) => write!(out, "{{\"$numberDecimal\":\"{v}\"}}"),
        Bson::ObjectId(v) => write!(out, "{{\"$oid\":\"{}\"}}", v.to_hex()),
        Bson::DateTime(v) => date(out, v.timestamp_millis()),
        Bson::Timestamp(v) => write!(out, "{{\"$timestamp\":{{\"t\":{},\"i\":{}}}}}", v.time, v.increment),
        Bson::Binary(v) if v.subtype == BinarySubtype::Uuid && v.bytes.len() == 16 => uuid(out, &v.bytes),
        Bson::Binary(v) => {
            let shown = v.bytes.len().min(64);
            let _ = write!(out, "{{\"$binary\":{{\"hex\":\"");
            for byte in &v.bytes[..shown] {
                let _ = write!(out, "{byte:02x}");
            }
            write!(
                out,
                "\",\"subType\":\"{:x}\",\"size\":{}}}}}",
                u8::from(v.subtype),
                v.bytes.len()
            )
        }
        Bson::RegularExpression(v) => {
            let _ = write!(out, "{{\"$regularExpression\":{{\"pattern\":");
            string(out, v.pattern.as_str(), usize::MAX);
            let _ = write!(out, ",\"options\":");
            string(out, v.options.as_str(), usize::MAX);
            write!(out, "}}}}")
        }
        Bson::Undefined => write!(out, "{{\"$undefined\":true}}"),
        Bson::MinKey => write!(out, "{{\"$minKey\":1}}"),
        Bson::MaxKey => write!(out, "{{\"$maxKey\":1}}"),
        other => {
            string(out, &format!("{other}"), usize::MAX);
            Ok(())
        }
    };
}

fn date(out: &mut String, milliseconds: i64) -> std::fmt::Result {
    match jiff::Timestamp::from_millisecond(milliseconds) {
        Ok(time) if (0..253_402_300_800_000).contains(&milliseconds) => {
            write!(out, "{{\"$date\":\"{time:.3}\"}}")
        }
        _ => write!(out, "{{\"$date\":{{\"$numberLong\":\"{milliseconds}\"}}}}"),
    }
}

fn uuid(out: &mut String, bytes: &[u8]) -> std::fmt::Result {
    let _ = write!(out, "{{\"uuid\":{{\"$uuid\":\"");
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    write!(out, "\"}}}}")
}

/// A text as it stands between quotes: control characters and quotes escaped.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    string(&mut out, text, usize::MAX);
    out[1..out.len() - 1].to_owned()
}

/// The beginning of a value.
pub fn short(of: &Bson) -> String {
    let mut out = String::new();
    value(&mut out, of, 1024);
    out
}
