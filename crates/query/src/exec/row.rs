//! A row on its way through the stages: borrowed from the batch it was read in.

use super::record_set::RecordSet;
use crate::metadata::Metadata;
use crate::value::COPIED_BYTES;
use bson::RawDocument;
use bytes::Bytes;
use std::sync::Arc;
use storage::{Index, IndexBatch, RecordBatch, RecordId};

/// One row. The document is there once a record was read; the key when it came out of an index.
#[derive(Clone)]
pub(crate) struct Row<'r> {
    pub(crate) id: RecordId,
    pub(crate) document: RowDocument<'r>,
    pub(crate) key: Option<RowKey<'r>>,
    pub(crate) metadata: Option<&'r Arc<Metadata>>,
}

/// The document of a row.
#[derive(Clone, Copy)]
pub(crate) enum RowDocument<'r> {
    /// Not read.
    None,
    /// Not read, like those of the rows that come next.
    Unread(Upcoming<'r>),
    /// Row `1` of a batch.
    InBatch(&'r RecordBatch, usize),
    /// Carried by entry `1` of a clustering index.
    InIndex(&'r IndexBatch, usize),
    /// Read on its own.
    Shared(&'r Bytes),
    /// Made by a stage.
    Made(&'r [u8]),
}

/// Entries of an index that come behind a row, as far as they are known to be inside the bounds.
#[derive(Clone, Copy)]
pub(crate) struct Upcoming<'r> {
    pub(crate) batch: &'r IndexBatch,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Records that do not come again.
    pub(crate) given: Option<&'r RecordSet>,
}

impl Upcoming<'_> {
    /// Their records. One that has several of the entries may be among them several times.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RecordId> {
        let ids = (self.start..self.end).map(|entry| self.batch.id(entry));
        ids.filter(|id| self.given.is_none_or(|given| !given.contains(id)))
    }

    /// True where none is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// The index entry of a row.
#[derive(Clone, Copy)]
pub(crate) struct RowKey<'r> {
    pub(crate) index: &'r Arc<Index>,
    pub(crate) key: &'r [u8],
    pub(crate) type_bits: &'r [u8],
}

impl<'r> RowDocument<'r> {
    /// The bytes, empty without a document.
    pub(crate) fn bytes(self) -> &'r [u8] {
        match self {
            RowDocument::None | RowDocument::Unread(_) => &[],
            RowDocument::InBatch(batch, i) => batch.document(i),
            // Without a document the entry is damaged, which no bytes are as well.
            RowDocument::InIndex(batch, i) => batch.document(i).unwrap_or_default(),
            RowDocument::Shared(bytes) => bytes,
            RowDocument::Made(bytes) => bytes,
        }
    }

    /// The bytes, kept beyond the row; shared where the batch shares them.
    pub(crate) fn to_bytes(self) -> Bytes {
        match self {
            RowDocument::None | RowDocument::Unread(_) => Bytes::new(),
            RowDocument::InBatch(batch, i) => batch.document_bytes(i),
            RowDocument::InIndex(batch, i) => batch.document_bytes(i).unwrap_or_default(),
            RowDocument::Shared(bytes) => bytes.clone(),
            RowDocument::Made(bytes) => Bytes::copy_from_slice(bytes),
        }
    }

    /// As [`RowDocument::to_bytes`], for stages that gather rows: as [`crate::value::SharedDocument::kept`] does.
    pub(crate) fn to_kept_bytes(self) -> Bytes {
        match self.bytes() {
            small if small.len() < COPIED_BYTES => Bytes::copy_from_slice(small),
            _ => self.to_bytes(),
        }
    }

    /// True when there is one, read or carried along.
    pub(crate) fn is_some(self) -> bool {
        !matches!(self, RowDocument::None | RowDocument::Unread(_))
    }

    /// The rows that come behind one whose document is not read.
    pub(crate) fn upcoming(self) -> Option<Upcoming<'r>> {
        match self {
            RowDocument::Unread(upcoming) => Some(upcoming),
            _ => None,
        }
    }
}

/// The bytes as a document. Stored bytes are validated when they are written and checksummed at rest; a length that
/// does not fit is reported, never trusted.
pub(crate) fn as_document(bytes: &[u8]) -> Result<&RawDocument, crate::QueryError> {
    RawDocument::from_bytes(bytes).map_err(|error| {
        crate::QueryError::new(
            wire::ErrorCode::InvalidBSON,
            format!("a stored document is damaged: {error}"),
        )
    })
}
