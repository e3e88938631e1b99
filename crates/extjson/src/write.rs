//! BSON as Extended JSON.

use crate::error::JsonError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::{DateTime, Decimal128};
use std::fmt::Write as _;

/// How numbers and dates are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonForm {
    /// Every type by name: what comes back is bit for bit what was there (but for the payload of a NaN).
    Canonical,
    /// Numbers as numbers, dates as text, where JSON can tell them.
    Relaxed,
}

/// The last millisecond of the year 9999, the last date with a text.
const LAST_TEXT_DATE_MS: i64 = 253_402_300_799_999;

/// Appends a document to `out`. Bytes that are no BSON document are an error, with nothing useful in `out`.
pub fn write(document: &[u8], form: JsonForm, out: &mut String) -> Result<(), JsonError> {
    let document = wire::validate_document(document)?.as_bytes();
    Writer { form, out }.fields(&mut Bytes(document), ['{', '}']);
    Ok(())
}

/// What is left of a validated document, so that reading never runs past its end.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap_or([0; N])
    }

    fn int32(&mut self) -> i32 {
        i32::from_le_bytes(self.array())
    }

    fn int64(&mut self) -> i64 {
        i64::from_le_bytes(self.array())
    }

    fn c_string(&mut self) -> &'a str {
        let length = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        let text = self.take(length);
        self.take(1);
        std::str::from_utf8(text).unwrap_or_default()
    }

    fn string(&mut self) -> &'a str {
        let length = self.int32() as usize;
        let text = self.take(length);
        std::str::from_utf8(text.strip_suffix(&[0]).unwrap_or(text)).unwrap_or_default()
    }
}

struct Writer<'a> {
    form: JsonForm,
    out: &'a mut String,
}

impl Writer<'_> {
    /// The document or array at the front of `bytes`. Validation has bounded the depth.
    fn fields(&mut self, bytes: &mut Bytes<'_>, [open, close]: [char; 2]) {
        let length = bytes.0.first_chunk().map_or(0, |length| i32::from_le_bytes(*length)) as usize;
        let mut inner = Bytes(bytes.take(length));
        inner.take(4);
        self.out.push(open);
        let mut is_first = true;
        // A document ends with a zero where the next type would be.
        while let Some(kind) = inner.take(1).first().copied().filter(|&kind| kind != 0) {
            let name = inner.c_string();
            if !is_first {
                self.out.push(',');
            }
            is_first = false;
            if open == '{' {
                self.text(name);
                self.out.push(':');
            }
            self.value(kind, &mut inner);
        }
        self.out.push(close);
    }

    fn value(&mut self, kind: u8, bytes: &mut Bytes<'_>) {
        let is_relaxed = self.form == JsonForm::Relaxed;
        match kind {
            0x01 => self.double(f64::from_le_bytes(bytes.array())),
            0x02 => self.text(bytes.string()),
            0x03 => self.fields(bytes, ['{', '}']),
            0x04 => self.fields(bytes, ['[', ']']),
            0x05 => self.binary(bytes),
            0x06 => self.plain("{\"$undefined\":true}"),
            0x07 => {
                let id = hex(bytes.take(12));
                self.wrapped("$oid", &id);
            }
            0x08 => self.plain(if bytes.take(1) == [1] { "true" } else { "false" }),
            0x09 => self.date(bytes.int64()),
            0x0A => self.plain("null"),
            0x0B => {
                self.plain("{\"$regularExpression\":{\"pattern\":");
                self.text(bytes.c_string());
                self.plain(",\"options\":");
                self.text(bytes.c_string());
                self.plain("}}");
            }
            0x0C => {
                self.plain("{\"$dbPointer\":{\"$ref\":");
                self.text(bytes.string());
                let id = hex(bytes.take(12));
                self.plain(",\"$id\":");
                self.wrapped("$oid", &id);
                self.plain("}}");
            }
            0x0D => self.wrapped("$code", bytes.string()),
            0x0E => self.wrapped("$symbol", bytes.string()),
            0x0F => {
                bytes.take(4);
                self.plain("{\"$code\":");
                self.text(bytes.string());
                self.plain(",\"$scope\":");
                self.fields(bytes, ['{', '}']);
                self.plain("}");
            }
            0x10 if is_relaxed => self.format(format_args!("{}", bytes.int32())),
            0x10 => self.wrapped("$numberInt", &bytes.int32().to_string()),
            0x11 => {
                let increment = bytes.int32() as u32;
                let time = bytes.int32() as u32;
                self.format(format_args!("{{\"$timestamp\":{{\"t\":{time},\"i\":{increment}}}}}"));
            }
            0x12 if is_relaxed => self.format(format_args!("{}", bytes.int64())),
            0x12 => self.wrapped("$numberLong", &bytes.int64().to_string()),
            0x13 => self.wrapped("$numberDecimal", &Decimal128::from_bytes(bytes.array()).to_string()),
            0x7F => self.plain("{\"$maxKey\":1}"),
            _ => self.plain("{\"$minKey\":1}"),
        }
    }

    fn double(&mut self, value: f64) {
        if value.is_finite() && self.form == JsonForm::Relaxed {
            return self.format(format_args!("{value:?}"));
        }
        let text = match value {
            value if value.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "Infinity".to_owned(),
            f64::NEG_INFINITY => "-Infinity".to_owned(),
            value => format!("{value:?}"),
        };
        self.wrapped("$numberDouble", &text);
    }

    fn date(&mut self, value_ms: i64) {
        if self.form == JsonForm::Relaxed
            && (0..=LAST_TEXT_DATE_MS).contains(&value_ms)
            && let Ok(text) = DateTime::from_millis(value_ms).try_to_rfc3339_string()
        {
            return self.wrapped("$date", &text);
        }
        self.format(format_args!("{{\"$date\":{{\"$numberLong\":\"{value_ms}\"}}}}"));
    }

    fn binary(&mut self, bytes: &mut Bytes<'_>) {
        let length = bytes.int32() as usize;
        let kind = bytes.take(1).first().copied().unwrap_or_default();
        let mut content = bytes.take(length);
        // The old subtype repeats the length inside; the text has the content alone.
        if kind == 2 {
            content = content.get(4..).unwrap_or_default();
        }
        let text = BASE64_STANDARD.encode(content);
        self.format(format_args!(
            "{{\"$binary\":{{\"base64\":\"{text}\",\"subType\":\"{kind:02x}\"}}}}"
        ));
    }

    fn plain(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn format(&mut self, text: std::fmt::Arguments<'_>) {
        self.out.write_fmt(text).expect("a String takes every text");
    }

    fn wrapped(&mut self, wrapper: &str, text: &str) {
        self.format(format_args!("{{\"{wrapper}\":"));
        self.text(text);
        self.out.push('}');
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.plain("\\\""),
                '\\' => self.plain("\\\\"),
                '\n' => self.plain("\\n"),
                '\r' => self.plain("\\r"),
                '\t' => self.plain("\\t"),
                control if control < ' ' || control == '\u{7f}' => {
                    self.format(format_args!("\\u{:04x}", u32::from(control)));
                }
                other => self.out.push(other),
            }
        }
        self.out.push('"');
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes every text");
        text
    })
}
