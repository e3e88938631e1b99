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
    /// What is not UTF-8 becomes U+FFFD, and any boolean but 0 true.
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

    /// The document with valid content.
    pub(crate) fn replaced(&self) -> Result<RawDocumentBuf> {
        let valid = wire::with_valid_content(self.as_bytes());
        let valid = valid.and_then(|valid| RawDocumentBuf::from_bytes(valid).ok());
        valid.map_or_else(|| self.valid().map(ToOwned::to_owned), Ok)
    }
}
