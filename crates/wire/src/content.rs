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
/// U+FFFD.
const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

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
    let mut at = 4;
    std::iter::from_fn(move || {
        let element = element_at(document, at)?;
        at = element.value.end;
        Some(element)
    })
}

/// The element whose type byte stands there.
fn element_at(document: &[u8], start: usize) -> Option<Element> {
    let end = document.len().checked_sub(1)?;
    let kind = *document.get(start..end)?.first()?;
    let name = c_string(document, start + 1)?;
    let value_at = name.end + 1;
    let value_end = value_at + value_bytes(kind, document.get(value_at..end)?)?;
    (value_end <= end).then_some(Element {
        kind,
        start,
        name,
        value: value_at..value_end,
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

/// Makes the content of a document valid without moving anything: bytes that are no UTF-8 become question marks.
pub(crate) fn mask(document: &mut [u8]) {
    mask_elements(document);
}

fn mask_elements(document: &mut [u8]) -> Option<()> {
    let mut at = 4;
    while let Some(element) = element_at(document, at) {
        let Range { start, end } = element.value;
        at = end;
        mask_text(document, element.name);
        match element.kind {
            0x02 | 0x0D | 0x0E | 0x0C => {
                let text = string(document, start)?;
                mask_text(document, text);
            }
            0x03 | 0x04 => mask_elements(document.get_mut(start..end)?)?,
            0x08 => document[start] = u8::from(document[start] != 0),
            0x0B => {
                let pattern = c_string(document, start)?;
                let options = c_string(document, pattern.end + 1)?;
                mask_text(document, pattern);
                mask_text(document, options);
            }
            0x0F => {
                let code = string(document, start + 4)?;
                let scope = code.end + 1;
                mask_text(document, code);
                mask_elements(document.get_mut(scope..end)?)?;
            }
            _ => {}
        }
    }
    Some(())
}

fn mask_text(document: &mut [u8], text: Range<usize>) {
    let mut start = text.start;
    while let Err(error) = std::str::from_utf8(&document[start..text.end]) {
        start += error.valid_up_to();
        document[start] = b'?';
        start += 1;
    }
}

/// How text that is not UTF-8 is made such.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// U+FFFD for what is not.
    Short,
    /// U+FFFD and two hexadecimal digits for each byte, so that different texts stay different.
    Distinct,
}

/// The document with valid content: what is not UTF-8 in text becomes U+FFFD, any boolean but 0 becomes true. In names
/// and in what `_id` and `$id` have, two hexadecimal digits follow for each byte, so that different ones stay
/// different. It can be larger than a document may be. `None` for what is no document.
pub fn with_valid_content(document: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(document.len() + document.len() / 8);
    append_valid(document, Form::Short, &mut out)?;
    Some(out)
}

/// What becomes of a document whose content is invalid, for programs that go on behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidText {
    /// It is left out.
    Skip,
    /// It gets valid content. What would be too large then is left out.
    Replace,
}

impl InvalidText {
    /// What is stored of a document whose content is invalid; `None` for nothing.
    pub fn stored(self, document: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
        match self {
            Self::Skip => None,
            Self::Replace => with_valid_content(document).filter(|valid| valid.len() <= bytes_max),
        }
    }
}

fn append_valid(document: &[u8], form: Form, out: &mut Vec<u8>) -> Option<()> {
    let frame = begin(out);
    for element in elements(document) {
        append_valid_element(document, element, form, out)?;
    }
    out.push(0);
    finish(frame, out);
    Some(())
}

fn append_valid_element(document: &[u8], element: Element, form: Form, out: &mut Vec<u8>) -> Option<()> {
    let Range { start, end } = element.value;
    let name = &document[element.name];
    let form = match name {
        b"_id" | b"$id" => Form::Distinct,
        _ => form,
    };
    out.push(element.kind);
    append_c_string(name, Form::Distinct, out);
    match element.kind {
        0x02 | 0x0D | 0x0E => append_string(&document[string(document, start)?], form, out),
        0x0C => {
            append_string(&document[string(document, start)?], form, out);
            out.extend_from_slice(&document[end - 12..end]);
        }
        0x03 | 0x04 => append_valid(&document[start..end], form, out)?,
        0x08 => out.push(u8::from(document[start] != 0)),
        0x0B => {
            let pattern = c_string(document, start)?;
            append_c_string(&document[pattern.clone()], form, out);
            append_c_string(&document[c_string(document, pattern.end + 1)?], form, out);
        }
        0x0F => {
            let code = string(document, start + 4)?;
            let frame = begin(out);
            append_string(&document[code.clone()], form, out);
            append_valid(document.get(code.end + 1..end)?, form, out)?;
            finish(frame, out);
        }
        _ => out.extend_from_slice(&document[start..end]),
    }
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

fn append_c_string(text: &[u8], form: Form, out: &mut Vec<u8>) {
    append_text(text, form, out);
    out.push(0);
}

fn append_string(text: &[u8], form: Form, out: &mut Vec<u8>) {
    let frame = begin(out);
    append_text(text, form, out);
    out.push(0);
    let length = (out.len() - frame - 4) as i32;
    out[frame..frame + 4].copy_from_slice(&length.to_le_bytes());
}

fn append_text(text: &[u8], form: Form, out: &mut Vec<u8>) {
    for chunk in text.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        match form {
            Form::Short if chunk.invalid().is_empty() => {}
            Form::Short => out.extend_from_slice(REPLACEMENT),
            Form::Distinct => {
                for byte in chunk.invalid() {
                    out.extend_from_slice(REPLACEMENT);
                    out.extend_from_slice(format!("{byte:02X}").as_bytes());
                }
            }
        }
    }
}

/// Which document it is, and where an error of its content is, as
/// `field 'a.b' of the document with _id 7: not valid UTF-8`.
pub fn describe_invalid(document: &[u8], error: &BsonError) -> String {
    let mut path = Vec::new();
    find(document, error.offset, &mut path);
    let valid = valid_id(document);
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

/// A document of nothing but the `_id`, with valid content.
fn valid_id(document: &[u8]) -> Option<Vec<u8>> {
    let id = elements(document).find(|element| &document[element.name.clone()] == b"_id")?;
    let mut out = Vec::new();
    let frame = begin(&mut out);
    append_valid_element(document, id, Form::Distinct, &mut out)?;
    out.push(0);
    finish(frame, &mut out);
    Some(out)
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
