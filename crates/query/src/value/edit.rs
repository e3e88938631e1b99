//! Changing one path of a document: copies the bytes around it.

use bson::RawDocument;

use super::depth::check_depth_within;
use super::scan::{self, Elements, Malformed};
use super::{DocumentWriter, SharedDocument, Value};
use crate::error::QueryError;

/// `document` with the value at `path` set, or removed when `value` is missing. Documents that are lacking on the way
/// are made (not for a removal); anything else in the way is replaced.
pub fn with_path(document: &RawDocument, path: &[Box<str>], value: &Value<'_>) -> Result<SharedDocument, QueryError> {
    // The rest of the document has been measured before: stages do this once for each of many values.
    check_depth_within(path.len(), value)?;
    let mut out = Vec::with_capacity(document.as_bytes().len() + value.approximate_bytes() + 32);
    write_with_path(document, path, value, DocumentWriter::new(&mut out))?;
    Ok(SharedDocument::new(out.into())?)
}

/// The length in front of a document's elements.
const HEADER_BYTES: usize = 4;

fn write_with_path(
    document: &RawDocument,
    path: &[Box<str>],
    value: &Value<'_>,
    mut writer: DocumentWriter<'_>,
) -> Result<(), Malformed> {
    // The path parser bounds the number of parts, and so the recursion.
    let Some((first, rest)) = path.split_first() else {
        writer.finish();
        return Ok(());
    };
    let mut found = false;
    let (bytes, mut copied, mut end) = (document.as_bytes(), HEADER_BYTES, HEADER_BYTES);
    for element in Elements::new(document) {
        let element = element?;
        let begin = end;
        end += element.length();
        if found || element.name != first.as_bytes() {
            continue;
        }
        found = true;
        writer.append_elements(&bytes[copied..begin]);
        copied = end;
        if rest.is_empty() {
            writer.append(first, value);
        } else if element.kind == 0x03 {
            write_with_path(scan::frame(element.value)?, rest, value, writer.document(first))?;
        } else if value.is_missing() {
            writer.append_raw(element.kind, element.name, element.value);
        } else {
            write_nested(first, rest, value, &mut writer);
        }
    }
    writer.append_elements(&bytes[copied..end]);
    if !found && !value.is_missing() {
        write_nested(first, rest, value, &mut writer);
    }
    writer.finish();
    Ok(())
}

fn write_nested(name: &str, rest: &[Box<str>], value: &Value<'_>, writer: &mut DocumentWriter<'_>) {
    match rest.split_first() {
        None => writer.append(name, value),
        Some((next, rest)) => {
            let mut inner = writer.document(name);
            write_nested(next, rest, value, &mut inner);
            inner.finish();
        }
    }
}
