//! Documents as files and archives have them: their structure is sound, their text need not be UTF-8: old databases
//! have other text, and servers take it no more.

use crate::error::{DumpError, Result};
use bson::{RawDocument, RawDocumentBuf};
use wire::BsonError;

/// What becomes of a document with text that is not UTF-8, or a boolean that is neither 0 nor 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InvalidText {
    /// An error, which names it.
    #[default]
    Stop,
    /// It is left out.
    Skip,
    /// What is not UTF-8 becomes U+FFFD, and any boolean but 0 true. What would be too large then is left out.
    Replace,
}

/// A document of a file or an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    document: RawDocumentBuf,
    /// Where it began.
    offset: u64,
    /// What is invalid in its content.
    invalid: Option<BsonError>,
}

impl Found {
    pub(crate) fn new(document: RawDocumentBuf, offset: u64, invalid: Option<BsonError>) -> Self {
        Self {
            document,
            offset,
            invalid,
        }
    }

    /// As it is in the file.
    pub(crate) fn as_found(&self) -> &RawDocument {
        &self.document
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.document.as_bytes()
    }

    /// The document.
    ///
    /// Errors: its content is invalid.
    pub fn valid(&self) -> Result<&RawDocument> {
        match self.what_is_invalid() {
            None => Ok(&self.document),
            Some(what) => Err(DumpError::InvalidText {
                offset: self.offset,
                what,
            }),
        }
    }

    /// The document's `_id`, and where its content is invalid.
    pub(crate) fn what_is_invalid(&self) -> Option<String> {
        let error = self.invalid.as_ref()?;
        Some(wire::describe_invalid(self.as_bytes(), error))
    }

    /// What the user chose for a document with invalid content: one with valid content, or why it is left out.
    ///
    /// Errors: it ends the restoration.
    pub(crate) fn for_restoring(
        &self,
        chosen: InvalidText,
        what: &str,
        bytes_max: usize,
    ) -> Result<std::result::Result<RawDocumentBuf, String>> {
        match chosen {
            InvalidText::Stop => Err(DumpError::InvalidText {
                offset: self.offset,
                what: format!("{what} (--invalidUtf8 skip or replace goes on)"),
            }),
            InvalidText::Skip => Ok(Err(what.to_owned())),
            InvalidText::Replace => {
                let valid = wire::with_valid_content(self.as_bytes()).filter(|valid| valid.len() <= bytes_max);
                let valid = valid.and_then(|valid| RawDocumentBuf::from_bytes(valid).ok());
                Ok(valid.ok_or_else(|| format!("{what}, and it would be too large with U+FFFD")))
            }
        }
    }
}
