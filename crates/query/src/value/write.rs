//! Writing values as BSON bytes.
//!
//! [`DocumentWriter`] and [`ArrayWriter`] append to a caller's buffer and patch the length when finished; a writer that
//! is dropped without `finish` leaves an unusable frame, so callers always finish. Missing values write nothing.

use bson::{RawBson, RawDocument};

use super::scan::Elements;
use super::{ArrayValue, SharedDocument, Value};

/// Appends an element's type byte and name. A zero byte inside `name` ends the name there (BSON cannot express it).
#[inline]
pub fn append_element_header(out: &mut Vec<u8>, kind: u8, name: &str) {
    out.push(kind);
    let bytes = name.as_bytes();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    out.extend_from_slice(&bytes[..end]);
    out.push(0);
}

/// Writes one document's frame into a buffer.
pub struct DocumentWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> DocumentWriter<'b> {
    /// Starts a document at the end of `out`.
    pub fn new(out: &'b mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, start }
    }

    /// Appends a field; nothing when the value is missing.
    #[inline]
    pub fn append(&mut self, name: &str, value: &Value<'_>) {
        value.append_to(self.out, name);
    }

    /// Appends a copied element: its type, name and value bytes as they are.
    #[inline]
    pub fn append_raw(&mut self, kind: u8, name: &[u8], value: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(name);
        self.out.push(0);
        self.out.extend_from_slice(value);
    }

    /// Appends the bytes of whole elements.
    pub(crate) fn append_elements(&mut self, elements: &[u8]) {
        self.out.extend_from_slice(elements);
    }

    /// Starts an embedded document called `name`.
    pub fn document(&mut self, name: &str) -> DocumentWriter<'_> {
        append_element_header(self.out, 0x03, name);
        DocumentWriter::new(self.out)
    }

    /// Starts an array called `name`.
    pub fn array(&mut self, name: &str) -> ArrayWriter<'_> {
        append_element_header(self.out, 0x04, name);
        ArrayWriter::new(self.out)
    }

    /// Ends the frame that begins `out`.
    pub(crate) fn close(out: &mut Vec<u8>) {
        DocumentWriter { out, start: 0 }.finish();
    }

    /// Ends the frame.
    pub fn finish(self) {
        self.out.push(0);
        // A document beyond 2 GiB cannot come about: callers bound their inputs to far less.
        let length = (self.out.len() - self.start) as i32;
        self.out[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Writes one array's frame into a buffer; the names count up from "0".
pub struct ArrayWriter<'b> {
    frame: DocumentWriter<'b>,
    next: usize,
}

impl<'b> ArrayWriter<'b> {
    /// Starts an array's body, without a name, at the end of `out`.
    pub(crate) fn new(out: &'b mut Vec<u8>) -> Self {
        Self {
            frame: DocumentWriter::new(out),
            next: 0,
        }
    }

    /// Appends a document.
    pub(crate) fn push_document(&mut self, document: &RawDocument) {
        let mut digits = [0u8; 20];
        let name = decimal_digits(self.next, &mut digits);
        self.frame.append_raw(0x03, name.as_bytes(), document.as_bytes());
        self.next += 1;
    }

    /// Appends an element; missing is written as null.
    pub fn push(&mut self, value: &Value<'_>) {
        let mut digits = [0u8; 20];
        let name = decimal_digits(self.next, &mut digits);
        if value.is_missing() {
            self.frame.append(name, &Value::Null);
        } else {
            self.frame.append(name, value);
        }
        self.next += 1;
    }

    /// Ends the frame.
    pub fn finish(self) {
        self.frame.finish();
    }
}

/// `n` in decimal, without allocating.
fn decimal_digits(mut n: usize, buffer: &mut [u8; 20]) -> &str {
    let mut at = buffer.len();
    loop {
        at -= 1;
        buffer[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    std::str::from_utf8(&buffer[at..]).expect("decimal digits are ASCII")
}

fn append_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

impl Value<'_> {
    /// Appends this value to `out` as an element called `name`; nothing when it is missing.
    pub fn append_to(&self, out: &mut Vec<u8>, name: &str) {
        let mut scalar = |kind: u8, bytes: &[u8]| {
            append_element_header(out, kind, name);
            out.extend_from_slice(bytes);
        };
        match self {
            Value::Missing => {}
            Value::Undefined => scalar(0x06, &[]),
            Value::Null => scalar(0x0A, &[]),
            Value::MinKey => scalar(0xFF, &[]),
            Value::MaxKey => scalar(0x7F, &[]),
            Value::Boolean(v) => scalar(0x08, &[u8::from(*v)]),
            Value::Int32(v) => scalar(0x10, &v.to_le_bytes()),
            Value::Int64(v) => scalar(0x12, &v.to_le_bytes()),
            Value::Double(v) => scalar(0x01, &v.to_le_bytes()),
            Value::Decimal(v) => scalar(0x13, &v.bytes()),
            Value::Date(v) => scalar(0x09, &v.to_le_bytes()),
            Value::Timestamp(v) => scalar(
                0x11,
                &((u64::from(v.time) << 32) | u64::from(v.increment)).to_le_bytes(),
            ),
            Value::ObjectId(v) => scalar(0x07, &v.bytes()),
            Value::Document(v) => scalar(0x03, v.as_bytes()),
            Value::Array(ArrayValue::Raw(v)) => scalar(0x04, v.as_bytes()),
            Value::String(v) => {
                append_element_header(out, 0x02, name);
                append_text(out, v);
            }
            Value::JavaScript(v) => {
                append_element_header(out, 0x0D, name);
                append_text(out, v);
            }
            Value::Symbol(v) => {
                append_element_header(out, 0x0E, name);
                append_text(out, v);
            }
            Value::Binary(subtype, bytes) => {
                append_element_header(out, 0x05, name);
                append_binary(out, *subtype, bytes);
            }
            Value::Array(ArrayValue::List(items)) => {
                append_element_header(out, 0x04, name);
                let mut array = ArrayWriter::new(out);
                items.iter().for_each(|item| array.push(item));
                array.finish();
            }
            Value::Other(other) => append_rare(out, name, other),
        }
    }

    /// The document `{"": value}`; the wrapped form for code that takes only raw BSON.
    pub fn wrapped(&self) -> SharedDocument {
        let mut out = Vec::with_capacity(64);
        let mut writer = DocumentWriter::new(&mut out);
        writer.append("", self);
        writer.finish();
        SharedDocument::new(out.into()).expect("the writer makes complete frames")
    }
}

fn append_binary(out: &mut Vec<u8>, subtype: u8, bytes: &[u8]) {
    let inner = if subtype == 2 { 4 } else { 0 };
    out.extend_from_slice(&((bytes.len() + inner) as i32).to_le_bytes());
    out.push(subtype);
    if subtype == 2 {
        out.extend_from_slice(&(bytes.len() as i32).to_le_bytes());
    }
    out.extend_from_slice(bytes);
}

fn append_rare(out: &mut Vec<u8>, name: &str, value: &RawBson) {
    let mut wrapper = bson::RawDocumentBuf::new();
    wrapper.append(bson::raw::cstr!(""), value.clone());
    let document: &RawDocument = &wrapper;
    for element in Elements::new(document).flatten() {
        append_element_header(out, element.kind, name);
        out.extend_from_slice(element.value);
    }
}
