//! Replacement: a whole document in place of the old one, whose `_id` stays.

use bson::{RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::UpdateContext;
use super::leaf::timestamp_bytes;
use crate::QueryError;
use crate::raw::{self, Elements, Frame};

/// The document to put in place of others.
pub(super) struct Replacement {
    document: RawDocumentBuf,
}

/// 52: neither replacements nor operators make such fields; pipelines do.
pub(super) fn dollar_at_the_top(name: &str) -> QueryError {
    let message = format!(
        "The dollar ($) prefixed field '{name}' in '{name}' is not allowed in the context of an update's replacement \
         document. Consider using an aggregation pipeline with $replaceWith."
    );
    QueryError::new(ErrorCode::DollarPrefixedFieldName, message)
}

impl Replacement {
    /// Fails (52) when a field at the top has a dollar in front.
    pub(super) fn parse(document: &RawDocument) -> Result<Self, QueryError> {
        for element in Elements::new(document) {
            let name = element?.name_lossy();
            if name.starts_with('$') {
                return Err(dollar_at_the_top(&name));
            }
        }
        Ok(Self::of(document))
    }

    /// Without looking at the names.
    pub(super) fn of(document: &RawDocument) -> Self {
        Self {
            document: document.to_owned(),
        }
    }

    /// Whether it is this document, byte for byte.
    pub(super) fn is(&self, document: &RawDocument) -> bool {
        self.document.as_bytes() == document.as_bytes()
    }

    /// The new document: `_id` in front, its own or the old document's.
    pub(super) fn apply(&self, old: &RawDocument, context: &UpdateContext) -> Result<Vec<u8>, QueryError> {
        let mut out = Vec::with_capacity(self.document.as_bytes().len() + 32);
        let frame = Frame::begin(&mut out);
        let id = match raw::find(&self.document, b"_id")? {
            Some(id) => Some(id),
            None => raw::find(old, b"_id")?,
        };
        if let Some(id) = id {
            out.extend_from_slice(id.whole());
        }
        for element in Elements::new(&self.document) {
            let element = element?;
            match (element.kind(), element.name()) {
                (_, b"_id") => {}
                (0x11, name) if element.value_bytes() == [0; 8] && !context.keep_empty_timestamps => {
                    raw::append(&mut out, 0x11, name, &timestamp_bytes(context.timestamp));
                }
                _ => out.extend_from_slice(element.whole()),
            }
        }
        frame.finish(&mut out);
        Ok(out)
    }
}
