//! Extended JSON as BSON: first JSON as it stands, then its types.
//!
//! A document is special when its fields are exactly those of one of the wrappers (`$oid`, `$date`, ...); any other
//! document may have fields with a dollar, so that filters can be read. The old form `{ $regex, $options }` is a
//! filter, no value.

use crate::error::JsonError;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::{DateTime, Decimal128, RawDocumentBuf};
use wire::limits::NESTING_MAX;

type Result<T> = std::result::Result<T, JsonError>;

/// One document from text that has nothing else.
pub fn parse(text: &str) -> Result<RawDocumentBuf> {
    let mut parser = Parser { text, at: 0 };
    parser.skip_space();
    let Json::Object(fields) = parser.value(0)? else {
        return Err(parser.expected("a document"));
    };
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.expected("the end"));
    }
    let mut out = Vec::with_capacity(text.len());
    document(fields.iter().map(|(name, value)| (name.as_str(), value)), &mut out)?;
    let document = wire::validate_document(&out)?;
    Ok(document.to_owned())
}

#[derive(Debug)]
enum Json {
    Null,
    Boolean(bool),
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn expected(&self, expected: &'static str) -> JsonError {
        JsonError::Syntax {
            offset: self.at,
            expected,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over `byte` if it is next, and over the space around it.
    fn eat(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        if is_next {
            self.skip_space();
        }
        is_next
    }

    fn value(&mut self, depth: usize) -> Result<Json> {
        if depth > NESTING_MAX {
            return Err(JsonError::TooDeep);
        }
        let rest = &self.text[self.at..];
        for (word, value) in [
            ("null", Json::Null),
            ("true", Json::Boolean(true)),
            ("false", Json::Boolean(false)),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match self.peek() {
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.expected("a value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json> {
        let mut fields = Vec::new();
        self.eat(b'{');
        if self.eat(b'}') {
            return Ok(Json::Object(fields));
        }
        loop {
            let name = self.string()?;
            if !self.eat(b':') {
                return Err(self.expected("':'"));
            }
            fields.push((name, self.value(depth + 1)?));
            if self.eat(b'}') {
                return Ok(Json::Object(fields));
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json> {
        let mut items = Vec::new();
        self.eat(b'[');
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    fn number(&mut self) -> Result<Json> {
        let rest = &self.text[self.at..];
        let length = rest
            .bytes()
            .position(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        let number = &rest[..length];
        if !number.parse().is_ok_and(f64::is_finite) {
            return Err(self.expected("a number, not beyond all doubles"));
        }
        self.at += length;
        Ok(Json::Number(number.to_owned()))
    }

    fn string(&mut self) -> Result<String> {
        if self.peek() != Some(b'"') {
            return Err(self.expected("a string"));
        }
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = &self.text[self.at..];
            let length = rest
                .find(|character: char| matches!(character, '"' | '\\') || character < ' ')
                .ok_or_else(|| self.expected("'\"'"))?;
            string.push_str(&rest[..length]);
            self.at += length;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                _ => return Err(self.expected("no control character")),
            }
        }
    }

    fn escape(&mut self) -> Result<char> {
        self.at += 1;
        let byte = self.peek().ok_or_else(|| self.expected("an escape"))?;
        let character = match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.expected("an escape")),
        };
        self.at += 1;
        Ok(character)
    }

    /// `u` and four digits; characters beyond 16 bits are two such escapes.
    fn unicode_escape(&mut self) -> Result<char> {
        let mut units = [0; 2];
        for count in 1..=2 {
            self.at += 1;
            let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
            let is_hex = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_hex {
                return Err(self.expected("four hexadecimal digits"));
            }
            units[count - 1] = u16::from_str_radix(digits, 16).unwrap_or_default();
            self.at += 4;
            if let Some(Ok(character)) = char::decode_utf16(units[..count].iter().copied()).next() {
                return Ok(character);
            }
            if !self.text[self.at..].starts_with("\\u") {
                break;
            }
            self.at += 1;
        }
        Err(self.expected("a pair of surrogates"))
    }
}

fn document<'a>(fields: impl Iterator<Item = (&'a str, &'a Json)>, out: &mut Vec<u8>) -> Result<()> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    for (name, json) in fields {
        let kind_at = out.len();
        out.push(0);
        c_string(name, out)?;
        out[kind_at] = value(json, out)?;
    }
    out.push(0);
    let length = i32::try_from(out.len() - at).map_err(|_| JsonError::TooLarge)?;
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Appends a value and returns its type.
fn value(json: &Json, out: &mut Vec<u8>) -> Result<u8> {
    match json {
        Json::Null => Ok(0x0A),
        Json::Boolean(boolean) => {
            out.push(u8::from(*boolean));
            Ok(0x08)
        }
        Json::Number(number) => Ok(self::number(number, out)),
        Json::Text(text) => {
            string(text, out)?;
            Ok(0x02)
        }
        Json::Array(items) => {
            let names: Vec<String> = (0..items.len()).map(|index| index.to_string()).collect();
            document(names.iter().map(String::as_str).zip(items), out)?;
            Ok(0x04)
        }
        Json::Object(fields) => {
            if let Some(kind) = wrapped(fields, out)? {
                return Ok(kind);
            }
            document(fields.iter().map(|(name, value)| (name.as_str(), value)), out)?;
            Ok(0x03)
        }
    }
}

/// A number without a type is an int, a long when it must be, a double when it has a fraction or is larger.
fn number(text: &str, out: &mut Vec<u8>) -> u8 {
    if let Ok(int) = text.parse::<i32>() {
        out.extend_from_slice(&int.to_le_bytes());
        return 0x10;
    }
    if let Ok(long) = text.parse::<i64>() {
        out.extend_from_slice(&long.to_le_bytes());
        return 0x12;
    }
    let double = text.parse::<f64>().unwrap_or(f64::NAN);
    out.extend_from_slice(&double.to_le_bytes());
    0x01
}

/// The value of a wrapper and its type; `None` for a document like others.
fn wrapped(fields: &[(String, Json)], out: &mut Vec<u8>) -> Result<Option<u8>> {
    let Some((wrapper, first)) = fields.first().filter(|(name, _)| name.starts_with('$')) else {
        return Ok(None);
    };
    let second = fields.get(1).map(|(name, value)| (name.as_str(), value));
    let kind = match (wrapper.as_str(), first, second, fields.len()) {
        ("$code", Json::Text(code), None, 1) => string(code, out).map(|()| Some(0x0D))?,
        ("$code", Json::Text(code), Some(("$scope", Json::Object(scope))), 2) => {
            let at = out.len();
            out.extend_from_slice(&[0; 4]);
            string(code, out)?;
            document(scope.iter().map(|(name, value)| (name.as_str(), value)), out)?;
            let length = i32::try_from(out.len() - at).map_err(|_| JsonError::TooLarge)?;
            out[at..at + 4].copy_from_slice(&length.to_le_bytes());
            Some(0x0F)
        }
        ("$binary", Json::Text(base64), Some(("$type", Json::Text(kind))), 2) => binary(base64, kind, out),
        (_, _, None, 1) => return single(wrapper, first, out),
        _ => return Ok(None),
    };
    wrong_unless(kind, wrapper)
}

/// A wrapper with one field.
fn single(wrapper: &str, content: &Json, out: &mut Vec<u8>) -> Result<Option<u8>> {
    let text = match content {
        Json::Text(text) => Some(text.as_str()),
        _ => None,
    };
    let kind = match wrapper {
        "$oid" => text
            .and_then(|text| bson::oid::ObjectId::parse_str(text).ok())
            .map(|id| fixed(0x07, &id.bytes(), out)),
        "$symbol" => match text {
            Some(text) => string(text, out).map(|()| Some(0x0E))?,
            None => None,
        },
        "$numberInt" => text
            .and_then(|text| text.parse::<i32>().ok())
            .map(|int| fixed(0x10, &int.to_le_bytes(), out)),
        "$numberLong" => long(content).map(|long| fixed(0x12, &long.to_le_bytes(), out)),
        "$numberDouble" => text
            .and_then(double)
            .map(|double| fixed(0x01, &double.to_le_bytes(), out)),
        "$numberDecimal" => text
            .and_then(|text| text.parse::<Decimal128>().ok())
            .map(|decimal| fixed(0x13, &decimal.bytes(), out)),
        "$uuid" => text.and_then(|text| uuid(text, out)),
        "$date" => date_ms(content).map(|date_ms| fixed(0x09, &date_ms.to_le_bytes(), out)),
        "$minKey" => Some(0xFF),
        "$maxKey" => Some(0x7F),
        "$undefined" => Some(0x06),
        "$binary" => match pair(content, "base64", "subType") {
            Some((Json::Text(base64), Json::Text(kind))) => binary(base64, kind, out),
            _ => None,
        },
        "$timestamp" => match pair(content, "t", "i") {
            Some((Json::Number(time), Json::Number(increment))) => time
                .parse::<u32>()
                .ok()
                .zip(increment.parse::<u32>().ok())
                .map(|(time, increment)| {
                    fixed(0x11, &(u64::from(time) << 32 | u64::from(increment)).to_le_bytes(), out)
                }),
            _ => None,
        },
        "$regularExpression" => match pair(content, "pattern", "options") {
            Some((Json::Text(pattern), Json::Text(options))) => {
                c_string(pattern, out)?;
                c_string(options, out)?;
                Some(0x0B)
            }
            _ => None,
        },
        "$dbPointer" => match pair(content, "$ref", "$id") {
            Some((Json::Text(namespace), Json::Object(id))) => {
                string(namespace, out)?;
                wrapped(id, out)?.filter(|&kind| kind == 0x07).map(|_| 0x0C)
            }
            _ => None,
        },
        _ => return Ok(None),
    };
    wrong_unless(kind, wrapper)
}

fn wrong_unless(kind: Option<u8>, wrapper: &str) -> Result<Option<u8>> {
    kind.map(Some).ok_or_else(|| JsonError::Value {
        wrapper: wrapper.to_owned(),
    })
}

/// Infinite is only what says so, and no number that is beyond all doubles.
fn double(text: &str) -> Option<f64> {
    let is_said = !text.bytes().any(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|double: &f64| double.is_finite() || is_said)
}

fn fixed(kind: u8, bytes: &[u8], out: &mut Vec<u8>) -> u8 {
    out.extend_from_slice(bytes);
    kind
}

/// The values of an object that has exactly these two fields, in either order.
fn pair<'a>(content: &'a Json, first: &str, second: &str) -> Option<(&'a Json, &'a Json)> {
    let Json::Object(fields) = content else { return None };
    match fields.as_slice() {
        [(one, a), (two, b)] if one == first && two == second => Some((a, b)),
        [(two, b), (one, a)] if one == first && two == second => Some((a, b)),
        _ => None,
    }
}

fn long(content: &Json) -> Option<i64> {
    match content {
        Json::Text(text) | Json::Number(text) => text.parse().ok(),
        _ => None,
    }
}

fn date_ms(content: &Json) -> Option<i64> {
    match content {
        Json::Text(text) => DateTime::parse_rfc3339_str(text).ok().map(DateTime::timestamp_millis),
        Json::Number(_) => long(content),
        Json::Object(fields) => match fields.as_slice() {
            [(name, value)] if name == "$numberLong" => long(value),
            _ => None,
        },
        _ => None,
    }
}

fn binary(base64: &str, kind: &str, out: &mut Vec<u8>) -> Option<u8> {
    let content = BASE64_STANDARD.decode(base64).ok()?;
    let kind = u8::from_str_radix(kind, 16).ok()?;
    let inner = i32::try_from(content.len()).ok()?;
    let is_old = kind == 2;
    let length = inner.checked_add(if is_old { 4 } else { 0 })?;
    out.extend_from_slice(&length.to_le_bytes());
    out.push(kind);
    if is_old {
        out.extend_from_slice(&inner.to_le_bytes());
    }
    out.extend_from_slice(&content);
    Some(0x05)
}

fn uuid(text: &str, out: &mut Vec<u8>) -> Option<u8> {
    let digits: String = text.chars().filter(|&character| character != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let number = u128::from_str_radix(&digits, 16).ok()?;
    out.extend_from_slice(&16i32.to_le_bytes());
    out.push(4);
    out.extend_from_slice(&number.to_be_bytes());
    Some(0x05)
}

fn c_string(text: &str, out: &mut Vec<u8>) -> Result<()> {
    if text.contains('\0') {
        return Err(JsonError::Nul(text.to_owned()));
    }
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}

fn string(text: &str, out: &mut Vec<u8>) -> Result<()> {
    let length = i32::try_from(text.len() + 1).map_err(|_| JsonError::TooLarge)?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    Ok(())
}
