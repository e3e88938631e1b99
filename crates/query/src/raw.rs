//! BSON as bytes: walking a document's elements and writing documents from pieces of others.
//!
//! The walk trusts no length and decodes nothing: an [`Element`] is the bytes of one field, and copying it is one
//! `extend_from_slice`. [`Frame`] writes a document or array around appended bytes. Values for arithmetic and
//! expressions are [`crate::value`]'s business.
//!
//! Invariant of [`Element`]: type byte, name, zero byte and value lie in that order within the document it came from.

use bson::oid::ObjectId;
use bson::spec::ElementType;
use bson::{DateTime, Decimal128, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};

mod composed;

pub use crate::value::scan::Malformed;
use crate::value::scan::value_size;
pub use keys::type_name;

/// Type bytes that are asked for by name.
pub mod kind {
    /// Embedded document.
    pub const DOCUMENT: u8 = 0x03;
    /// Array.
    pub const ARRAY: u8 = 0x04;
    /// Undefined.
    pub const UNDEFINED: u8 = 0x06;
    /// Null.
    pub const NULL: u8 = 0x0A;
}

/// The empty document.
pub const EMPTY_DOCUMENT: &[u8] = &[5, 0, 0, 0, 0];

/// One field of a document, as bytes.
#[derive(Clone, Copy)]
pub struct Element<'a> {
    document: &'a RawDocument,
    start: usize,
    value_at: usize,
    end: usize,
}

impl<'a> Element<'a> {
    /// The type byte of the BSON specification.
    #[inline]
    pub fn kind(self) -> u8 {
        self.document.as_bytes()[self.start]
    }

    /// The name, without its final zero byte.
    #[inline]
    pub fn name(self) -> &'a [u8] {
        &self.document.as_bytes()[self.start + 1..self.value_at - 1]
    }

    /// The name for messages.
    pub fn name_lossy(self) -> String {
        String::from_utf8_lossy(self.name()).into_owned()
    }

    /// The name as text.
    pub fn name_str(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.name()).map_err(|_| Malformed)
    }

    /// The bytes of the value.
    #[inline]
    pub fn value_bytes(self) -> &'a [u8] {
        &self.document.as_bytes()[self.value_at..self.end]
    }

    /// Type byte, name and value.
    #[inline]
    pub fn whole(self) -> &'a [u8] {
        &self.document.as_bytes()[self.start..self.end]
    }

    /// Where the element begins in its document.
    #[inline]
    pub fn start(self) -> usize {
        self.start
    }

    /// Where the next element begins in its document.
    #[inline]
    pub fn end(self) -> usize {
        self.end
    }

    /// The type.
    pub fn element_type(self) -> Result<ElementType, Malformed> {
        ElementType::from(self.kind()).ok_or(Malformed)
    }

    /// The value as a document; also the body of an array, whose names are its indexes.
    #[inline]
    pub fn frame(self) -> Result<&'a RawDocument, Malformed> {
        RawDocument::from_bytes(self.value_bytes()).map_err(|_| Malformed)
    }

    /// The text of a string, symbol or code, as bytes.
    #[inline]
    pub fn text(self) -> Result<&'a [u8], Malformed> {
        text(self.value_bytes())
    }

    /// Whether the value is a number of any type.
    #[inline]
    pub fn is_number(self) -> bool {
        matches!(self.kind(), 0x01 | 0x10 | 0x12 | 0x13)
    }

    /// The decoded value, wherever it lies in its document: in a step. Text that is not UTF-8 is malformed.
    #[inline]
    pub fn value(self) -> Result<RawBsonRef<'a>, Malformed> {
        let bytes = self.value_bytes();
        Ok(match self.kind() {
            0x01 => RawBsonRef::Double(f64::from_le_bytes(fixed(bytes)?)),
            0x02 => RawBsonRef::String(text_str(bytes)?),
            0x03 => RawBsonRef::Document(RawDocument::from_bytes(bytes).map_err(|_| Malformed)?),
            0x06 => RawBsonRef::Undefined,
            0x07 => RawBsonRef::ObjectId(ObjectId::from_bytes(fixed(bytes)?)),
            0x08 => RawBsonRef::Boolean(bytes.first().is_some_and(|byte| *byte != 0)),
            0x09 => RawBsonRef::DateTime(DateTime::from_millis(i64::from_le_bytes(fixed(bytes)?))),
            0x0A => RawBsonRef::Null,
            0x0D => RawBsonRef::JavaScriptCode(text_str(bytes)?),
            0x0E => RawBsonRef::Symbol(text_str(bytes)?),
            0x10 => RawBsonRef::Int32(i32::from_le_bytes(fixed(bytes)?)),
            0x11 => {
                let both = u64::from_le_bytes(fixed(bytes)?);
                RawBsonRef::Timestamp(Timestamp {
                    time: (both >> 32) as u32,
                    increment: both as u32,
                })
            }
            0x12 => RawBsonRef::Int64(i64::from_le_bytes(fixed(bytes)?)),
            0x13 => RawBsonRef::Decimal128(Decimal128::from_bytes(fixed(bytes)?)),
            0x7F => RawBsonRef::MaxKey,
            0xFF => RawBsonRef::MinKey,
            kind => composed::value(kind, bytes)?,
        })
    }

    /// The decoded value, owned.
    pub fn to_owned_value(self) -> Result<RawBson, Malformed> {
        Ok(self.value()?.into())
    }

    /// The element as [`crate::value`] takes it.
    pub fn scanned(self) -> crate::value::scan::Element<'a> {
        crate::value::scan::Element {
            kind: self.kind(),
            name: self.name(),
            value: self.value_bytes(),
        }
    }
}

impl std::fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {:?}", self.name_lossy(), self.value())
    }
}

fn text(value: &[u8]) -> Result<&[u8], Malformed> {
    value.get(4..value.len().saturating_sub(1)).ok_or(Malformed)
}

fn text_str(value: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(text(value)?).map_err(|_| Malformed)
}

#[inline]
fn fixed<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed)
}

/// The elements of a document, in order; ends after the first malformed one.
#[derive(Clone)]
pub struct Elements<'a> {
    document: &'a RawDocument,
    offset: usize,
}

impl<'a> Elements<'a> {
    /// The elements of `document`.
    #[inline]
    pub fn new(document: &'a RawDocument) -> Self {
        Self { document, offset: 4 }
    }

    /// Those from one that begins at `offset`, which [`Elements::offset`] or [`Element::start`] answered.
    pub(crate) fn from_offset(document: &'a RawDocument, offset: usize) -> Self {
        Self { document, offset }
    }

    /// Where the next one begins.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        #[cfg(test)]
        walked::element();
        let bytes = self.document.as_bytes();
        // The final zero byte is not an element.
        let rest = bytes.get(self.offset..bytes.len() - 1)?;
        if rest.is_empty() {
            return None;
        }
        let Some((name_length, size)) = measure(rest) else {
            self.offset = bytes.len();
            return Some(Err(Malformed));
        };
        let start = self.offset;
        let value_at = start + name_length + 2;
        self.offset = value_at + size;
        Some(Ok(Element {
            document: self.document,
            start,
            value_at,
            end: self.offset,
        }))
    }
}

/// The lengths of the name and of the value of the element at the start of `rest`, which is not empty.
#[inline]
fn measure(rest: &[u8]) -> Option<(usize, usize)> {
    let name_length = name_length(rest)?;
    let value = &rest[name_length + 2..];
    let size = value_size(rest[0], value)?;
    (size <= value.len()).then_some((name_length, size))
}

/// The first element of `document` called `name`, which has no zero byte in it.
#[inline]
pub fn find<'a>(document: &'a RawDocument, name: &[u8]) -> Result<Option<Element<'a>>, Malformed> {
    let bytes = document.as_bytes();
    let bytes_end = bytes.len() - 1;
    let mut start = 4;
    while start < bytes_end {
        #[cfg(test)]
        walked::element();
        let rest = &bytes[start..bytes_end];
        // Most names differ in length or early, so this is decided before the name's end is looked for.
        let is_it = rest.get(name.len() + 1) == Some(&0) && rest[1..=name.len()] == *name;
        let name_length = if is_it {
            name.len()
        } else {
            name_length(rest).ok_or(Malformed)?
        };
        let value = &rest[name_length + 2..];
        let size = value_size(rest[0], value)
            .filter(|size| *size <= value.len())
            .ok_or(Malformed)?;
        let value_at = start + name_length + 2;
        if is_it {
            return Ok(Some(Element {
                document,
                start,
                value_at,
                end: value_at + size,
            }));
        }
        start = value_at + size;
    }
    Ok(None)
}

/// What is walked between two looks at an operation: whoever walks without counting steps shows in it.
#[cfg(test)]
pub(crate) mod walked {
    use std::cell::Cell;

    thread_local! {
        static SINCE_A_LOOK: Cell<u64> = const { Cell::new(0) };
        static MOST: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn element() {
        SINCE_A_LOOK.set(SINCE_A_LOOK.get() + 1);
    }

    /// The operation is asked.
    pub(crate) fn look() {
        MOST.set(MOST.get().max(SINCE_A_LOOK.replace(0)));
    }

    /// The most elements that this thread has walked without a look while `run` ran.
    pub(crate) fn most(run: impl FnOnce()) -> u64 {
        look();
        MOST.set(0);
        run();
        look();
        MOST.get()
    }
}

/// The length of the name of the element at the start of `rest`, which is not empty.
#[inline]
fn name_length(rest: &[u8]) -> Option<usize> {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let name = &rest[1..];
    // Most names end within eight bytes: the lowest high bit of `zeros` is that of the first zero byte.
    if let Some(head) = name.first_chunk::<8>() {
        let word = u64::from_le_bytes(*head);
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            return Some(zeros.trailing_zeros() as usize / 8);
        }
    }
    name.iter().position(|byte| *byte == 0)
}

/// A document or array being written at the end of a buffer. [`Frame::finish`] must be called, or the frame is
/// unusable.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    start: usize,
}

impl Frame {
    /// Starts a frame.
    #[inline]
    pub fn begin(out: &mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { start }
    }

    /// Starts a field that is a document or array (`kind`).
    #[inline]
    pub fn begin_field(out: &mut Vec<u8>, kind: u8, name: &[u8]) -> Self {
        append_header(out, kind, name);
        Self::begin(out)
    }

    /// Whether nothing was written in the frame so far.
    pub fn is_empty(self, out: &[u8]) -> bool {
        out.len() == self.start + 4
    }

    /// Ends the frame.
    #[inline]
    pub fn finish(self, out: &mut Vec<u8>) {
        out.push(0);
        // Sources are bounded by 48 MB messages and results by 16 MiB, far below 2 GiB.
        let length = (out.len() - self.start) as i32;
        out[self.start..self.start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Appends a type byte and a name, which has no zero byte in it.
#[inline]
pub fn append_header(out: &mut Vec<u8>, kind: u8, name: &[u8]) {
    out.push(kind);
    out.extend_from_slice(name);
    out.push(0);
}

/// Appends a field of these value bytes.
#[inline]
pub fn append(out: &mut Vec<u8>, kind: u8, name: &[u8], value: &[u8]) {
    append_header(out, kind, name);
    out.extend_from_slice(value);
}

/// Appends an array's element: its name is the index in decimal.
#[inline]
pub fn append_indexed(out: &mut Vec<u8>, kind: u8, index: usize, value: &[u8]) {
    out.push(kind);
    append_decimal(out, index);
    out.push(0);
    out.extend_from_slice(value);
}

/// Appends the decimal digits of a number.
pub fn append_decimal(out: &mut Vec<u8>, mut number: usize) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A value kept with its bytes: appended to documents and compared without decoding it again.
#[derive(Clone)]
pub struct Constant {
    value: RawBson,
    kind: u8,
    bytes: Box<[u8]>,
}

impl Constant {
    /// Keeps a copy of a value.
    pub fn new(value: RawBsonRef<'_>) -> Self {
        let mut document = RawDocumentBuf::new();
        document.append(bson::raw::cstr!(""), value);
        let bytes = document.as_bytes();
        // Length, type byte, the empty name's zero byte, the value, the final zero byte.
        Self {
            value: RawBson::from(value),
            kind: bytes[4],
            bytes: bytes[6..bytes.len() - 1].into(),
        }
    }

    /// Keeps a copy of an element's value. Its bytes are there already: cheaper than [`Constant::new`].
    pub fn of(element: Element<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            value: element.to_owned_value()?,
            kind: element.kind(),
            bytes: element.value_bytes().into(),
        })
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> RawBsonRef<'_> {
        self.value.as_raw_bson_ref()
    }

    /// Its type byte.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.kind
    }

    /// Its bytes, as they follow a name.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The type.
    pub fn element_type(&self) -> ElementType {
        self.value().element_type()
    }
}

impl std::fmt::Debug for Constant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.value.fmt(f)
    }
}

/// Levels of nesting that are described or measured; deeper ones are refused where documents come in.
const DEPTH_MAX: usize = 250;

/// How many levels of documents and arrays are in `document`: 1 for a flat one. Stops counting at 250.
pub fn nesting_depth(document: &RawDocument) -> Result<usize, Malformed> {
    fn measure(document: &RawDocument, level: usize) -> Result<usize, Malformed> {
        let mut deepest = level;
        if level < DEPTH_MAX {
            for element in Elements::new(document) {
                let element = element?;
                if matches!(element.kind(), kind::DOCUMENT | kind::ARRAY) {
                    deepest = deepest.max(measure(element.frame()?, level + 1)?);
                }
            }
        }
        Ok(deepest)
    }
    measure(document, 1)
}

pub use keys::describe::{describe, describe_whole};

/// An element as `name: value`.
pub fn describe_element(element: Element<'_>) -> String {
    let value = element.value().map(describe).unwrap_or_default();
    format!("{}: {value}", element.name_lossy())
}

#[cfg(test)]
mod tests;
