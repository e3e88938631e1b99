//! Documents whose structure is sound and whose content is not: text that is not UTF-8, booleans that are neither 0 nor
//! 1. Programs in languages whose strings are bytes wrote such, and databases of old servers have them.
//!
//! What is read here has passed [`validate_structure`](crate::validate_structure), so it nests no deeper than
//! [`NESTING_MAX`](crate::limits::NESTING_MAX). Bytes of another structure are passed over without a panic.

use crate::BsonError;
use bson::{Bson, RawDocument};
use std::ops::Range;

/// Characters of an `_id`, and of a field's path, that are shown.
const SHOWN_CHARS_MAX: usize = 100;

/// One element, by offsets in its document.
pub(crate) struct Element {
    pub(crate) kind: u8,
    /// Of the type byte.
    start: usize,
    pub(crate) name: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// The elements of a document.
pub(crate) fn elements(document: &[u8]) -> impl Iterator<Item = Element> {
    let end = document.len().saturating_sub(1);
    let mut at = 4;
    std::iter::from_fn(move || {
        let start = at;
        let kind = *document.get(start..end)?.first()?;
        let name = c_string(document, start + 1)?;
        let value_at = name.end + 1;
        let value_end = value_at + value_bytes(kind, document.get(value_at..end)?)?;
        at = value_end;
        (value_end <= end).then_some(Element {
            kind,
            start,
            name,
            value: value_at..value_end,
        })
    })
}

/// The text of a C string that starts there.
fn c_string(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let length = bytes.get(start..)?.iter().position(|byte| *byte == 0)?;
    Some(start..start + length)
}

fn length(bytes: &[u8]) -> Option<usize> {
    usize::try_from(i32::from_le_bytes(*bytes.first_chunk::<4>()?)).ok()
}

/// How many bytes the value of a type has that `bytes` begin with.
fn value_bytes(kind: u8, bytes: &[u8]) -> Option<usize> {
    Some(match kind {
        0x10 => 4,
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 | 0x0D | 0x0E => 4 + length(bytes)?,
        0x03 | 0x04 | 0x0F => length(bytes)?,
        0x05 => 5 + length(bytes)?,
        0x07 => 12,
        0x08 => 1,
        0x0B => c_string(bytes, c_string(bytes, 0)?.end + 1)?.end + 1,
        0x0C => 4 + length(bytes)? + 12,
        0x13 => 16,
        _ => 0,
    })
}

/// The text of a string with its length that starts there.
fn string(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let length = length(bytes.get(start..)?)?;
    let text = start + 4..(start + 4 + length).checked_sub(1)?;
    bytes.get(text.clone())?;
    Some(text)
}

/// Something in a document that can be invalid.
enum Piece {
    Text(Range<usize>),
    Boolean(usize),
}

/// Calls `each` with the pieces of a document that stands at `base`.
fn pieces(document: &[u8], base: usize, each: &mut dyn FnMut(Piece)) -> Option<()> {
    let at = |range: Range<usize>| Piece::Text(base + range.start..base + range.end);
    for element in elements(document) {
        let start = element.value.start;
        each(at(element.name.clone()));
        match element.kind {
            0x02 | 0x0D | 0x0E | 0x0C => each(at(string(document, start)?)),
            0x03 | 0x04 => pieces(&document[element.value], base + start, each)?,
            0x08 => each(Piece::Boolean(base + start)),
            0x0B => {
                let pattern = c_string(document, start)?;
                let options = c_string(document, pattern.end + 1)?;
                each(at(pattern));
                each(at(options));
            }
            0x0F => {
                let code = string(document, start + 4)?;
                let scope = code.end + 1;
                each(at(code));
                pieces(document.get(scope..element.value.end)?, base + scope, each)?;
            }
            _ => {}
        }
    }
    Some(())
}

/// Makes the content of a document valid without moving anything: bytes that are no UTF-8 become question marks.
pub(crate) fn mask(document: &mut [u8]) {
    let mut found = Vec::new();
    pieces(document, 0, &mut |piece| found.push(piece));
    for piece in found {
        match piece {
            Piece::Boolean(at) => document[at] = u8::from(document[at] != 0),
            Piece::Text(text) => {
                let mut start = text.start;
                while let Err(error) = std::str::from_utf8(&document[start..text.end]) {
                    start += error.valid_up_to();
                    document[start] = b'?';
                    start += 1;
                }
            }
        }
    }
}

/// The document with valid content: what is not UTF-8 in text becomes U+FFFD, any boolean but 0 becomes true. `None`
/// for what is no document.
pub fn with_valid_content(document: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(document.len() + document.len() / 8);
    append_valid(document, &mut out)?;
    Some(out)
}

fn append_valid(document: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let frame = begin(out);
    for element in elements(document) {
        let Range { start, end } = element.value;
        out.push(element.kind);
        append_c_string(&document[element.name], out);
        match element.kind {
            0x02 | 0x0D | 0x0E => append_string(&document[string(document, start)?], out),
            0x0C => {
                append_string(&document[string(document, start)?], out);
                out.extend_from_slice(&document[end - 12..end]);
            }
            0x03 | 0x04 => append_valid(&document[start..end], out)?,
            0x08 => out.push(u8::from(document[start] != 0)),
            0x0B => {
                let pattern = c_string(document, start)?;
                append_c_string(&document[pattern.clone()], out);
                append_c_string(&document[c_string(document, pattern.end + 1)?], out);
            }
            0x0F => {
                let code = string(document, start + 4)?;
                let frame = begin(out);
                append_string(&document[code.clone()], out);
                append_valid(document.get(code.end + 1..end)?, out)?;
                finish(frame, out);
            }
            _ => out.extend_from_slice(&document[start..end]),
        }
    }
    out.push(0);
    finish(frame, out);
    Some(())
}

fn begin(out: &mut Vec<u8>) -> usize {
    out.extend_from_slice(&[0; 4]);
    out.len() - 4
}

/// Writes the length of what began there.
fn finish(frame: usize, out: &mut [u8]) {
    let length = (out.len() - frame) as i32;
    out[frame..frame + 4].copy_from_slice(&length.to_le_bytes());
}

fn append_c_string(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(String::from_utf8_lossy(text).as_bytes());
    out.push(0);
}

fn append_string(text: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    out.extend_from_slice(&(text.len() as i32 + 1).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Which document it is, and where an error of its content is, as
/// `field 'a.b' of the document with _id 7: not valid UTF-8`.
pub fn describe_invalid(document: &[u8], error: &BsonError) -> String {
    let mut path = Vec::new();
    find(document, error.offset, &mut path);
    let valid = with_valid_content(document);
    let id = valid
        .as_deref()
        .and_then(|valid| RawDocument::from_bytes(valid).ok()?.get("_id").ok()?)
        .and_then(|id| Bson::try_from(id).ok());
    let id = match id {
        Some(id) => format!("with _id {}", shown(&id.to_string())),
        None => "without _id".to_owned(),
    };
    format!(
        "field '{}' of the document {id}: {}",
        shown(&path.join(".")),
        error.fault
    )
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The names on the way to an offset.
fn find(document: &[u8], offset: usize, path: &mut Vec<String>) {
    let Some(element) = elements(document).find(|element| (element.start..element.value.end).contains(&offset)) else {
        return;
    };
    path.push(String::from_utf8_lossy(&document[element.name]).into_owned());
    let inner = match element.kind {
        0x03 | 0x04 => element.value,
        0x0F => match string(document, element.value.start + 4) {
            Some(code) => code.end + 1..element.value.end,
            None => return,
        },
        _ => return,
    };
    if let (Some(offset), Some(document)) = (offset.checked_sub(inner.start), document.get(inner)) {
        find(document, offset, path);
    }
}

#[cfg(test)]
mod tests;
