//! A document that flows between stages: complete BSON bytes, shared by reference count.
//!
//! Invariant: the outer frame (length and final zero byte) was checked when the value was made, so viewing it as a
//! `RawDocument` cannot fail; what is inside is checked where it is read.

use std::ops::Deref;

use bson::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use std::sync::Arc;

use super::BYTES_PER_STEP;
use super::depth::check_depth;
use super::scan::Malformed;
use crate::error::QueryError;
use crate::metadata::Metadata;

/// Below these bytes, those of a page, a document that is kept is copied.
pub(crate) const COPIED_BYTES: usize = 16 << 10;

/// A shared, immutable BSON document.
#[derive(Clone)]
pub struct SharedDocument {
    bytes: Bytes,
    metadata: Option<Arc<Metadata>>,
}

impl SharedDocument {
    /// A document in `bytes`, without copying; checks the outer frame.
    pub fn new(bytes: Bytes) -> Result<Self, Malformed> {
        RawDocument::from_bytes(&bytes).map_err(|_| Malformed)?;
        Ok(Self { bytes, metadata: None })
    }

    /// A document that was computed, in `bytes`; fails when it nests deeper than BSON may (15).
    pub(crate) fn computed(bytes: Vec<u8>) -> Result<Self, QueryError> {
        let document = Self::new(bytes.into())?;
        check_depth(&document)?;
        Ok(document)
    }

    /// A copy of `document`.
    pub fn copy_of(document: &RawDocument) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(document.as_bytes()),
            metadata: None,
        }
    }

    /// The document without fields.
    pub fn empty() -> Self {
        Self {
            bytes: Bytes::from_static(&[5, 0, 0, 0, 0]),
            metadata: None,
        }
    }

    /// The same document, of which so much is known beside its fields.
    pub(crate) fn with_metadata(self, metadata: Option<Arc<Metadata>>) -> Self {
        Self { metadata, ..self }
    }

    /// What is known of it beside its fields.
    pub(crate) fn metadata(&self) -> Option<&Arc<Metadata>> {
        self.metadata.as_ref()
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The bytes, given away.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// Steps that it takes to run once through it.
    #[inline]
    pub(crate) fn steps(&self) -> usize {
        self.bytes.len() / BYTES_PER_STEP
    }

    /// The document as stages that gather keep it. One that was read is a part of its page, all of which would stay in
    /// memory as long as the document does: a smaller one is copied.
    pub(crate) fn kept(self) -> Self {
        match self.bytes.len() {
            0..COPIED_BYTES => Self {
                bytes: Bytes::copy_from_slice(&self.bytes),
                ..self
            },
            _ => self,
        }
    }

    /// The document, borrowed.
    #[inline]
    pub fn as_raw(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.bytes).expect("the frame was checked when the value was made")
    }

    /// The part `document` of this document, sharing its memory; a copy when it lies elsewhere.
    pub fn share(&self, document: &RawDocument) -> SharedDocument {
        let part = document.as_bytes();
        let (own, other) = (self.bytes.as_ptr_range(), part.as_ptr_range());
        if own.start <= other.start && other.end <= own.end {
            SharedDocument {
                bytes: self.bytes.slice_ref(part),
                metadata: None,
            }
        } else {
            SharedDocument::copy_of(document)
        }
    }
}

impl Deref for SharedDocument {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        self.as_raw()
    }
}

impl From<RawDocumentBuf> for SharedDocument {
    fn from(document: RawDocumentBuf) -> Self {
        Self {
            bytes: Bytes::from(document.into_bytes()),
            metadata: None,
        }
    }
}

impl std::fmt::Debug for SharedDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_raw().fmt(f)
    }
}
