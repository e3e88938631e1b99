//! Buckets with compressed columns (layout versions 2 and 3), which MongoDB writes: read into those of version 1.
//!
//! A column is a binary of subtype 7. It begins with a value, an element without a name, and goes on with further
//! values or with blocks of deltas (Simple-8b: eight bytes with a selector and as many small numbers as fit). Which it
//! is says a control byte; a zero byte ends the column. A delta is added to the value before, or to the delta before
//! for times and ids; what all its bits are ones is a row without a value. Documents come interleaved: one document of
//! reference, and blocks for each of its leaves in the order in which rows need them. `docs/formats/buckets.md` has the
//! tables.
//!
//! What is decoded is checked as every bucket of others is: fields of `control` that do not fit are an error.
//!
//! A few bytes can stand for very many rows: a block of a run is kept as a run, and rows, leaves and bytes of a bucket
//! are bounded.

use bson::RawDocument;
use std::borrow::Cow;

use super::bucket::{BUCKET_DEPTH_MAX, malformed};
use crate::error::QueryError;
use crate::raw::{self, Elements, Frame, Malformed, kind};
use crate::update::DEPTH_MAX;
use wire::ErrorCode;

/// Rows that a compressed bucket may have: what all ways of writing one keep far below.
const ROWS_MAX: usize = 100_000;
/// Bytes of a bucket when it is no longer compressed.
const BYTES_MAX: usize = 16 << 20;
/// Leaves of the documents of one column.
const LEAVES_MAX: usize = 1 << 16;
/// Values of a bucket, those of leaves and those that rows do not have included.
const VALUES_MAX: usize = 1 << 24;
const COLUMN: u8 = 7;
const BINARY: u8 = 0x05;
/// A control byte of blocks whose numbers are values as they are in memory.
const AS_STORED: u8 = 0x80;
/// What doubles are multiplied by, by the other control bytes of blocks, from 0x90.
const SCALES: [f64; 5] = [1.0, 10.0, 100.0, 10_000.0, 100_000_000.0];
/// Integers up to this are exact as doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The bucket with columns that are documents; borrows one that has them already.
///
/// Errors: columns that cannot be read, or do not have values that may be stored (2).
pub(super) fn uncompressed(bucket: &RawDocument) -> Result<Cow<'_, [u8]>, QueryError> {
    let plain = with_plain_columns(bucket)?;
    // Values of columns are bytes of a binary to whoever has looked at the bucket: text, booleans and names below them
    // have not been checked.
    if let Cow::Owned(made) = &plain {
        wire::validate_document(made).map_err(|_| broken())?;
    }
    Ok(plain)
}

/// As buckets of version 1 have them, for who does not store the bucket: text, and booleans, may be invalid.
///
/// Errors: columns that cannot be read (2).
pub fn with_plain_columns(bucket: &RawDocument) -> Result<Cow<'_, [u8]>, QueryError> {
    // The bucket itself is well-formed: what is not are bytes of its columns.
    decoded_columns(bucket).map_err(|error| match error.code() {
        Some(ErrorCode::InvalidBSON) => broken(),
        _ => error,
    })
}

fn decoded_columns(bucket: &RawDocument) -> Result<Cow<'_, [u8]>, QueryError> {
    let version = match bucket.get_document("control").map(|control| control.get("version")) {
        Ok(Ok(Some(version))) => crate::value::number::Number::of(&crate::value::Value::from_raw(version)),
        _ => None,
    };
    if !matches!(version.and_then(|version| version.to_exact_i64()), Some(2 | 3)) {
        return Ok(Cow::Borrowed(bucket.as_bytes()));
    }
    let mut out = Vec::with_capacity(bucket.as_bytes().len() * 4);
    let mut values_left = VALUES_MAX;
    let whole = Frame::begin(&mut out);
    for element in Elements::new(bucket) {
        let element = element?;
        match (element.name(), element.kind()) {
            (b"control", kind::DOCUMENT) => {
                let control = Frame::begin_field(&mut out, kind::DOCUMENT, b"control");
                for field in Elements::new(element.frame()?) {
                    let field = field?;
                    match field.name() {
                        b"version" => raw::append(&mut out, 0x10, b"version", &1_i32.to_le_bytes()),
                        // That of the times, which is looked at.
                        b"count" => {}
                        _ => out.extend_from_slice(field.whole()),
                    }
                }
                control.finish(&mut out);
            }
            (b"data", kind::DOCUMENT) => {
                let data = Frame::begin_field(&mut out, kind::DOCUMENT, b"data");
                for column in Elements::new(element.frame()?) {
                    let column = column?;
                    let bytes = column.value_bytes();
                    match (column.kind(), bytes.get(4), bytes.get(5..)) {
                        (BINARY, Some(&COLUMN), Some(bytes)) => {
                            let frame = Frame::begin_field(&mut out, kind::DOCUMENT, column.name());
                            decode(bytes, &mut out, &mut values_left)?;
                            frame.finish(&mut out);
                        }
                        _ => return Err(malformed("a column that is not compressed beside compressed ones")),
                    }
                }
                data.finish(&mut out);
            }
            _ => out.extend_from_slice(element.whole()),
        }
    }
    whole.finish(&mut out);
    let made = RawDocument::from_bytes(&out).map_err(|_| Malformed)?;
    if out.len() > BYTES_MAX || raw::nesting_depth(made)? > BUCKET_DEPTH_MAX {
        return Err(too_large());
    }
    wire::validate_structure(&out).map_err(|_| broken())?;
    Ok(Cow::Owned(out))
}

fn broken() -> QueryError {
    malformed("a compressed column cannot be read")
}

fn too_large() -> QueryError {
    malformed("it is larger than a bucket may be")
}

/// One number of a block; `None` is a row without a value.
type Slot = Option<u128>;

/// How the numbers of a block lie in it.
struct Layout {
    /// Where the first begins, from the least bit.
    first: u32,
    /// Bits of each, the count of zeros included.
    bits: u32,
    /// Least bits of each that count zero bits to be put behind the number.
    zeros: u32,
    /// How many zero bits one of that count is.
    step: u32,
}

fn layout(selector: u64, extension: u64) -> Option<Layout> {
    const PLAIN: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 60];
    let (first, bits, zeros, step) = match (selector, extension) {
        (7 | 8, 0) => (8, PLAIN[selector as usize], 0, 0),
        (7, 1..=9) => (8, [6, 7, 8, 9, 11, 14, 18, 28, 56][extension as usize - 1], 4, 1),
        (8, 1..=7) => (8, [8, 9, 11, 14, 18, 28, 56][extension as usize - 1], 4, 4),
        (8, 8..=13) => (8, [9, 11, 14, 18, 28, 56][extension as usize - 8], 5, 4),
        (7 | 8, _) => return None,
        (1..=14, _) => (4, PLAIN[selector as usize], 0, 0),
        _ => return None,
    };
    Some(Layout {
        first,
        bits,
        zeros,
        step,
    })
}

/// The numbers of the blocks behind one control byte, read as they are asked for.
#[derive(Default)]
struct Slots {
    /// What is left of the blocks.
    blocks: std::vec::IntoIter<u64>,
    /// What is left of a run: repeats of the number before.
    repeats: usize,
    /// What is left of another block, from its next number, and where that is.
    block: Option<(u64, Layout, u32)>,
}

impl Slots {
    fn new(blocks: &[u8]) -> Result<Self, QueryError> {
        let mut read = Vec::with_capacity(blocks.len() / 8);
        for block in blocks.chunks_exact(8) {
            read.push(u64::from_le_bytes(block.try_into().map_err(|_| broken())?));
        }
        Ok(Self {
            blocks: read.into_iter(),
            ..Self::default()
        })
    }

    /// The next number; `last` is the one before it.
    fn next(&mut self, last: Slot) -> Result<Option<Slot>, QueryError> {
        loop {
            if self.repeats > 0 {
                self.repeats -= 1;
                return Ok(Some(last));
            }
            if let Some((block, layout, at)) = &mut self.block
                && *at + layout.bits <= 64
            {
                let mask = (1_u64 << layout.bits) - 1;
                let slot = *block >> *at & mask;
                *at += layout.bits;
                if slot == mask {
                    return Ok(Some(None));
                }
                let zeros = (slot & ((1 << layout.zeros) - 1)) as u32 * layout.step;
                let number = u128::from(slot >> layout.zeros).checked_shl(zeros);
                return Ok(Some(Some(number.ok_or_else(broken)?)));
            }
            let Some(block) = self.blocks.next() else {
                return Ok(None);
            };
            let (selector, extension) = (block & 15, block >> 4 & 15);
            if selector == 15 {
                (self.repeats, self.block) = ((extension as usize + 1) * 120, None);
            } else {
                let layout = layout(selector, extension).ok_or_else(broken)?;
                let first = layout.first;
                self.block = Some((block, layout, first));
            }
        }
    }
}

/// The signed number of one whose least bit is the sign.
fn signed(number: u128) -> i128 {
    (number >> 1) as i128 ^ -((number & 1) as i128)
}

/// A value with its type byte.
#[derive(Clone)]
struct Value {
    kind: u8,
    bytes: Vec<u8>,
}

/// The values of one field, while deltas are added to them.
struct Stream {
    value: Option<Value>,
    /// The value as the number that deltas are added to.
    number: i128,
    /// The delta before, of types whose deltas have deltas.
    delta: i64,
    scale: Option<f64>,
    slots: Slots,
    /// The number before.
    last: Slot,
}

impl Stream {
    fn new(value: Option<Value>) -> Self {
        let mut stream = Self {
            value: None,
            number: 0,
            delta: 0,
            scale: None,
            slots: Slots::default(),
            last: Some(0),
        };
        stream.set(value);
        stream
    }

    fn set(&mut self, value: Option<Value>) {
        self.number = value.as_ref().and_then(|value| number_of(value, None)).unwrap_or(0);
        (self.value, self.delta, self.scale) = (value, 0, None);
        (self.slots, self.last) = (Slots::default(), Some(0));
    }

    /// The blocks behind a control byte; answers what is behind them.
    fn load<'c>(&mut self, control: u8, bytes: &'c [u8]) -> Result<&'c [u8], QueryError> {
        self.scale = match control & 0xF0 {
            AS_STORED => None,
            scaled @ 0x90..=0xD0 => Some(SCALES[usize::from(scaled >> 4) - 9]),
            _ => return Err(broken()),
        };
        match &self.value {
            Some(value) if value.kind == 0x01 => self.number = number_of(value, self.scale).ok_or_else(broken)?,
            _ if self.scale.is_some() => return Err(broken()),
            _ => {}
        }
        let (blocks, rest) = bytes
            .split_at_checked((usize::from(control & 15) + 1) * 8)
            .ok_or_else(broken)?;
        self.slots = Slots::new(blocks)?;
        Ok(rest)
    }

    /// The next value of the blocks: `None` when there are no more, `Some(None)` for a row without one.
    fn next(&mut self) -> Result<Option<Option<Value>>, QueryError> {
        let Some(slot) = self.slots.next(self.last)? else {
            return Ok(None);
        };
        self.last = slot;
        let (Some(slot), Some(value)) = (slot, &self.value) else {
            return Ok(Some(None));
        };
        let has_deltas_of_deltas = matches!(value.kind, 0x07 | 0x09 | 0x11);
        if slot == 0 && !has_deltas_of_deltas {
            return Ok(Some(self.value.clone()));
        }
        let change = signed(slot);
        match value.kind {
            0x02 | 0x05 | 0x0D | 0x13 => self.number = self.number.wrapping_add(change),
            _ if has_deltas_of_deltas => {
                self.delta = self.delta.wrapping_add(change as i64);
                self.number = i128::from((self.number as i64).wrapping_add(self.delta));
            }
            _ => self.number = i128::from((self.number as i64).wrapping_add(change as i64)),
        }
        self.value = Some(value_of(self.number, value, self.scale).ok_or_else(broken)?);
        Ok(Some(self.value.clone()))
    }
}

/// The number that a value is for deltas; `None` for one that can only be repeated.
fn number_of(value: &Value, scale: Option<f64>) -> Option<i128> {
    let bytes = value.bytes.as_slice();
    let wide = |bytes: &[u8]| {
        let mut wide = [0; 16];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(i128::from_le_bytes(wide))
    };
    match (value.kind, scale) {
        (0x01, Some(scale)) => {
            let scaled = f64::from_le_bytes(bytes.try_into().ok()?) * scale;
            (-EXACT_MAX..=EXACT_MAX)
                .contains(&scaled)
                .then(|| scaled.round() as i128)
        }
        (0x01 | 0x09 | 0x11 | 0x12, _) => Some(i128::from(i64::from_le_bytes(bytes.try_into().ok()?))),
        (0x10, _) => Some(i128::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        (0x08, _) => Some(i128::from(*bytes.first()?)),
        (0x07, _) => {
            // The counter's and the time's bytes in turn, the most significant last; five bytes are the process's.
            let of = |place: usize| bytes.get(place).copied();
            let number = [of(11)?, of(3)?, of(10)?, of(2)?, of(9)?, of(1)?, of(0)?, 0];
            Some(i128::from(i64::from_le_bytes(number)))
        }
        (0x13, _) => wide(bytes),
        (0x05, _) => wide(bytes.get(5..)?),
        (0x02 | 0x0D, _) => {
            let mut text = bytes.get(4..bytes.len().checked_sub(1)?)?.to_vec();
            if text.first() == Some(&0) {
                return None;
            }
            text.reverse();
            wide(&text)
        }
        _ => None,
    }
}

/// The value of a number, of the type of the value before.
fn value_of(number: i128, before: &Value, scale: Option<f64>) -> Option<Value> {
    let bytes = match (before.kind, scale) {
        (0x01, Some(scale)) => (number as f64 / scale).to_le_bytes().to_vec(),
        (0x01 | 0x09 | 0x11 | 0x12, _) => (number as i64).to_le_bytes().to_vec(),
        (0x10, _) => (number as i32).to_le_bytes().to_vec(),
        (0x08, _) => vec![u8::from(number != 0)],
        (0x07, _) => {
            let [c2, t3, c1, t2, c0, t1, t0, _] = (number as i64).to_le_bytes();
            let mut id = vec![t0, t1, t2, t3];
            id.extend_from_slice(before.bytes.get(4..9)?);
            id.extend([c0, c1, c2]);
            id
        }
        (0x13, _) => number.to_le_bytes().to_vec(),
        (0x05, _) => {
            let (head, content) = before.bytes.split_at_checked(5)?;
            let number = number.to_le_bytes();
            [head, number.get(..content.len())?].concat()
        }
        (0x02 | 0x0D, _) => {
            let mut text = number.to_le_bytes().to_vec();
            while text.last() == Some(&0) {
                text.pop();
            }
            text.reverse();
            let mut bytes = (text.len() as i32 + 1).to_le_bytes().to_vec();
            bytes.extend_from_slice(&text);
            bytes.push(0);
            bytes
        }
        _ => return None,
    };
    Some(Value {
        kind: before.kind,
        bytes,
    })
}

/// An element without a name at the start of bytes, and what is behind it.
fn literal(bytes: &[u8]) -> Result<(Value, &[u8]), QueryError> {
    let (kind, value) = match bytes {
        [kind, 0, value @ ..] => (*kind, value),
        _ => return Err(broken()),
    };
    let size = crate::value::scan::value_size(kind, value).ok_or_else(broken)?;
    let (value, rest) = value.split_at_checked(size).ok_or_else(broken)?;
    if matches!(kind, kind::DOCUMENT | kind::ARRAY) {
        let value = RawDocument::from_bytes(value).map_err(|_| Malformed)?;
        if raw::nesting_depth(value)? > DEPTH_MAX {
            return Err(broken());
        }
    }
    let value = Value {
        kind,
        bytes: value.to_vec(),
    };
    Ok((value, rest))
}

fn is_literal(control: u8) -> bool {
    control & 0xE0 == 0 || matches!(control, 0x7F | 0xFF)
}

/// Rows on their way into a column.
struct Rows<'o> {
    out: &'o mut Vec<u8>,
    next: usize,
    /// Of [`VALUES_MAX`].
    values_left: &'o mut usize,
}

impl Rows<'_> {
    /// Counts values, whether there is one or not.
    fn count(&mut self, values: usize) -> Result<(), QueryError> {
        *self.values_left = self.values_left.checked_sub(values).ok_or_else(too_large)?;
        Ok(())
    }

    fn push(&mut self, value: Option<&Value>) -> Result<(), QueryError> {
        if let Some(value) = value {
            raw::append_indexed(self.out, value.kind, self.next, &value.bytes);
        }
        self.next += 1;
        self.count(1)?;
        match self.next > ROWS_MAX || self.out.len() > BYTES_MAX {
            true => Err(too_large()),
            false => Ok(()),
        }
    }
}

/// Appends the rows of a column.
fn decode(mut bytes: &[u8], out: &mut Vec<u8>, values_left: &mut usize) -> Result<(), QueryError> {
    let mut rows = Rows {
        out,
        next: 0,
        values_left,
    };
    let mut stream = Stream::new(None);
    loop {
        let (control, behind) = bytes.split_first().ok_or_else(broken)?;
        match *control {
            0 if behind.is_empty() => return Ok(()),
            0xF0..=0xF2 => {
                let (last, rest) = interleaved(*control, behind, &mut rows)?;
                stream.set(last);
                bytes = rest;
            }
            control if control != 0 && is_literal(control) => {
                let (value, rest) = literal(bytes)?;
                rows.push(Some(&value))?;
                stream.set(Some(value));
                bytes = rest;
            }
            control => {
                bytes = stream.load(control, behind)?;
                while let Some(value) = stream.next()? {
                    rows.push(value.as_ref())?;
                }
            }
        }
    }
}

/// A step of writing a document like the one of reference.
enum Step {
    Enter { kind: u8, name: Vec<u8> },
    Leaf { name: Vec<u8> },
    Leave { may_be_empty: bool },
}

/// The steps of a document, and its leaves.
fn steps(
    document: &RawDocument,
    enters_arrays: bool,
    steps_of: &mut Vec<Step>,
    leaves: &mut Vec<Stream>,
) -> Result<(), QueryError> {
    for element in Elements::new(document) {
        let element = element?;
        let name = element.name().to_vec();
        match element.kind() {
            kind @ (kind::DOCUMENT | kind::ARRAY) if kind == kind::DOCUMENT || enters_arrays => {
                let frame = element.frame()?;
                steps_of.push(Step::Enter { kind, name });
                steps(frame, enters_arrays, steps_of, leaves)?;
                let may_be_empty = frame.is_empty();
                steps_of.push(Step::Leave { may_be_empty });
            }
            kind => {
                steps_of.push(Step::Leaf { name });
                if leaves.len() == LEAVES_MAX {
                    return Err(too_large());
                }
                leaves.push(Stream::new(Some(Value {
                    kind,
                    bytes: element.value_bytes().to_vec(),
                })));
            }
        }
    }
    Ok(())
}

/// The rows of documents; answers the last one, and what is behind them.
fn interleaved<'c>(control: u8, bytes: &'c [u8], rows: &mut Rows<'_>) -> Result<(Option<Value>, &'c [u8]), QueryError> {
    let size = crate::value::scan::value_size(kind::DOCUMENT, bytes).ok_or_else(broken)?;
    let (reference, mut bytes) = bytes.split_at_checked(size).ok_or_else(broken)?;
    let reference = RawDocument::from_bytes(reference).map_err(|_| Malformed)?;
    if raw::nesting_depth(reference)? > DEPTH_MAX {
        return Err(broken());
    }
    let root = if control == 0xF2 { kind::ARRAY } else { kind::DOCUMENT };
    let (mut steps_of, mut leaves) = (Vec::new(), Vec::new());
    steps(reference, control != 0xF0, &mut steps_of, &mut leaves)?;
    if leaves.is_empty() {
        return Err(broken());
    }
    let mut last = None;
    loop {
        rows.count(steps_of.len())?;
        let mut document = Vec::new();
        let mut open = vec![(0, Frame::begin(&mut document))];
        let mut leaf = 0;
        for step in &steps_of {
            match step {
                Step::Enter { kind, name } => {
                    let begin = document.len();
                    open.push((begin, Frame::begin_field(&mut document, *kind, name)));
                }
                Step::Leave { may_be_empty } => {
                    let (begin, frame) = open.pop().ok_or_else(broken)?;
                    match frame.is_empty(&document) && !may_be_empty {
                        true => document.truncate(begin),
                        false => frame.finish(&mut document),
                    }
                }
                Step::Leaf { name } => {
                    let stream = &mut leaves[leaf];
                    let value = match stream.next()? {
                        Some(value) => value,
                        None => {
                            let (control, behind) = bytes.split_first().ok_or_else(broken)?;
                            match *control {
                                0 if leaf == 0 => return Ok((last, behind)),
                                0 => return Err(broken()),
                                control if is_literal(control) => {
                                    let (value, rest) = literal(bytes)?;
                                    stream.set(Some(value.clone()));
                                    bytes = rest;
                                    Some(value)
                                }
                                control => {
                                    bytes = stream.load(control, behind)?;
                                    stream.next()?.ok_or_else(broken)?
                                }
                            }
                        }
                    };
                    if let Some(value) = value {
                        raw::append(&mut document, value.kind, name, &value.bytes);
                    }
                    leaf += 1;
                }
            }
        }
        let (_, frame) = open.pop().ok_or_else(broken)?;
        last = match frame.is_empty(&document) {
            true => None,
            false => {
                frame.finish(&mut document);
                Some(Value {
                    kind: root,
                    bytes: document,
                })
            }
        };
        rows.push(last.as_ref())?;
    }
}

#[cfg(test)]
#[path = "compressed_tests.rs"]
mod tests;
