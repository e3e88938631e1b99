//! Rows that the trial of a cached plan has read ahead. They are given before the plan goes on.

use super::row::{Row, RowDocument, RowKey};
use super::stage::{Flow, Receiver};
use crate::QueryError;
use crate::metadata::Metadata;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{Index, RecordId};

/// See the module.
#[derive(Default)]
pub(crate) struct HeldRows {
    rows: VecDeque<HeldRow>,
    bytes: usize,
    /// The plan has no rows but these.
    pub(crate) are_all: bool,
}

/// A row apart from the batch that it was read in. It pins nothing of the store.
struct HeldRow {
    id: RecordId,
    document: Option<Bytes>,
    key: Option<HeldKey>,
    metadata: Option<Arc<Metadata>>,
}

struct HeldKey {
    index: Arc<Index>,
    key: Box<[u8]>,
    type_bits: Box<[u8]>,
}

impl HeldRows {
    pub(crate) fn push(&mut self, row: &Row<'_>) {
        let document = row.document.is_some().then(|| row.document.to_kept_bytes());
        let key = row.key.map(|key| HeldKey {
            index: key.index.clone(),
            key: key.key.into(),
            type_bits: key.type_bits.into(),
        });
        self.bytes += document.as_ref().map_or(0, Bytes::len);
        self.bytes += key.as_ref().map_or(0, |key| key.key.len() + key.type_bits.len());
        self.rows.push_back(HeldRow {
            id: row.id.clone(),
            document,
            key,
            metadata: row.metadata.cloned(),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The bytes of all rows that were ever pushed.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives rows until none is left or `receive` says stop.
    pub(crate) fn give(&mut self, receive: &mut Receiver<'_>) -> Result<Flow, QueryError> {
        while let Some(row) = self.rows.pop_front() {
            if receive(row.as_row())? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        Ok(Flow::Continue)
    }
}

impl HeldRow {
    fn as_row(&self) -> Row<'_> {
        Row {
            id: self.id.clone(),
            document: self.document.as_ref().map_or(RowDocument::None, RowDocument::Shared),
            key: self.key.as_ref().map(|key| RowKey {
                index: &key.index,
                key: &key.key,
                type_bits: &key.type_bits,
            }),
            metadata: self.metadata.as_ref(),
        }
    }
}
