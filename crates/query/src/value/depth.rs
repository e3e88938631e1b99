//! How deep what is computed may nest: no deeper than BSON that is sent.
//!
//! Stored documents and messages are measured where they come in. What stages and expressions build around them is
//! measured here, when it is finished, so that all who read values may recurse.

use bson::RawDocument;
use wire::ErrorCode;

use super::scan::{self, Element, Elements, Malformed};
use super::{DocumentWriter, Value};
use crate::error::QueryError;

/// Levels of nesting of a computed document, the outermost counted as one: MongoDB's.
pub(crate) const DOCUMENT_DEPTH_MAX: usize = wire::limits::NESTING_MAX - 1;

/// The fewest bytes of one more level: a type, an empty name with its zero, a length, and a zero.
const LEVEL_BYTES: usize = 7;
/// The bytes of a document without fields.
const EMPTY_BYTES: usize = 5;

/// Fails with code 15 when `document` nests deeper than BSON may.
pub(crate) fn check_depth(document: &RawDocument) -> Result<(), QueryError> {
    refuse(is_deeper(document, DOCUMENT_DEPTH_MAX)?)
}

/// As [`check_depth`], of a value that is put into so many levels of a document that is no deeper itself.
pub(crate) fn check_depth_within(levels: usize, value: &Value<'_>) -> Result<(), QueryError> {
    let Some(free) = DOCUMENT_DEPTH_MAX.checked_sub(levels) else {
        return refuse(true);
    };
    if !value.has_levels() {
        return Ok(());
    }
    let mut alone = Vec::with_capacity(value.approximate_bytes() + 32);
    let mut writer = DocumentWriter::new(&mut alone);
    writer.append("", value);
    writer.finish();
    // The document around it here is one level of its own.
    refuse(is_deeper(scan::frame(&alone)?, free + 1)?)
}

fn refuse(is_deeper: bool) -> Result<(), QueryError> {
    match is_deeper {
        false => Ok(()),
        true => Err(QueryError::new(
            ErrorCode::Overflow,
            format!("a computed document exceeds the limit of {DOCUMENT_DEPTH_MAX} levels of nesting"),
        )),
    }
}

/// Whether there are more than so many levels in a frame. Looks only into what has the bytes for them, which is hardly
/// ever anything.
fn is_deeper(frame: &RawDocument, levels: usize) -> Result<bool, Malformed> {
    let is_long_enough = |bytes: &[u8], levels: usize| bytes.len() >= EMPTY_BYTES + levels * LEVEL_BYTES;
    if !is_long_enough(frame.as_bytes(), levels) {
        return Ok(false);
    }
    let Some(below) = levels.checked_sub(1) else {
        return Ok(true);
    };
    for element in Elements::new(frame) {
        let element = element?;
        if is_long_enough(element.value, below)
            && let Some(inner) = inner_frame(element)?
            && is_deeper(inner, below)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The fields or items that a value has.
fn inner_frame(element: Element<'_>) -> Result<Option<&RawDocument>, Malformed> {
    let bytes = match element.kind {
        0x03 | 0x04 => element.value,
        // Code with scope: its length, the text with its own, the scope.
        0x0F => {
            let text = scan::value_size(0x0D, element.value.get(4..).ok_or(Malformed)?).ok_or(Malformed)?;
            text.checked_add(4)
                .and_then(|start| element.value.get(start..))
                .ok_or(Malformed)?
        }
        _ => return Ok(None),
    };
    scan::frame(bytes).map(Some)
}

#[cfg(test)]
mod tests {
    use super::{DOCUMENT_DEPTH_MAX, Value, check_depth, check_depth_within};
    use bson::{Bson, Document, JavaScriptCodeWithScope, RawBsonRef, RawDocumentBuf, doc};

    #[track_caller]
    fn bounded(wrap: impl Fn(Bson) -> Bson, levels: usize) {
        let nested = |levels| (0..levels).fold(Bson::Int32(1), |inner, _| wrap(inner));
        let is_taken = |levels| {
            let document: Document = doc! {"x": "text", "": nested(levels - 1), "y": [1, 2]};
            check_depth(&RawDocumentBuf::try_from(&document).expect("BSON")).is_ok()
        };
        assert!(is_taken(levels) && !is_taken(levels + 1));
    }

    #[test]
    fn computed_documents_nest_as_deep_as_bson_may() {
        bounded(|inner| doc! {"": inner}.into(), DOCUMENT_DEPTH_MAX);
        bounded(
            |inner| doc! {"a": 1, "long name": inner, "c": "x"}.into(),
            DOCUMENT_DEPTH_MAX,
        );
        bounded(|inner| Bson::Array(vec![0.into(), inner]), DOCUMENT_DEPTH_MAX);
        let scope = |inner| JavaScriptCodeWithScope {
            code: "f".to_owned(),
            scope: doc! {"a": inner},
        };
        bounded(|inner| scope(inner).into(), DOCUMENT_DEPTH_MAX);
        let below = |path: usize, levels: usize| {
            let value = (1..levels).fold(doc! {"v": 1}, |inner, _| doc! {"": inner});
            let value = RawDocumentBuf::try_from(&value).expect("BSON");
            check_depth_within(path, &Value::from_raw(RawBsonRef::Document(&value))).is_ok()
        };
        for path in [1, 7, DOCUMENT_DEPTH_MAX - 1] {
            let free = DOCUMENT_DEPTH_MAX - path;
            assert!(below(path, free) && !below(path, free + 1), "{path}");
        }
        assert!(check_depth_within(DOCUMENT_DEPTH_MAX, &Value::Null).is_ok());
        assert!(check_depth_within(DOCUMENT_DEPTH_MAX + 1, &Value::Null).is_err());
        let broad = doc! {"a": vec![doc! {"b": "x".repeat(2000)}; 100]};
        check_depth(&RawDocumentBuf::try_from(&broad).expect("BSON")).expect("three levels");
    }
}
