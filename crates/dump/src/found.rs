//! Documents as files and archives have them: their structure is sound, their text need not be UTF-8: old databases
//! have other text, and servers take it no more.

use crate::error::{DumpError, Result};
use bson::{RawDocument, RawDocumentBuf};
use std::borrow::Cow;
use wire::BsonError;

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

    /// A document that a server gave.
    pub fn of_server(document: &RawDocument) -> Self {
        let invalid = wire::validate_structure(document.as_bytes()).ok().flatten();
        Self::new(document.to_owned(), 0, invalid)
    }

    /// As it is in the file.
    pub(crate) fn as_found(&self) -> &RawDocument {
        &self.document
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.document.as_bytes()
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.invalid.is_none()
    }

    /// Where it began, in words.
    pub(crate) fn place(&self) -> String {
        format!("byte {}", self.offset)
    }

    /// The document.
    ///
    /// Errors: its content is invalid.
    pub(crate) fn valid(&self) -> Result<&RawDocument> {
        match self.what_is_invalid() {
            None => Ok(&self.document),
            Some(what) => Err(DumpError::InvalidText {
                place: self.place(),
                what,
            }),
        }
    }

    /// The document with valid content, of whatever size.
    pub fn with_valid_content(&self) -> Cow<'_, [u8]> {
        let valid = self
            .invalid
            .as_ref()
            .and_then(|_| wire::with_valid_content(self.as_bytes()));
        valid.map_or(Cow::Borrowed(self.as_bytes()), Cow::Owned)
    }

    /// The document's `_id`, and where its content is invalid.
    pub fn what_is_invalid(&self) -> Option<String> {
        let error = self.invalid.as_ref()?;
        Some(wire::describe_invalid(self.as_bytes(), error))
    }
}
