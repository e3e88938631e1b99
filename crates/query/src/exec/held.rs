//! Rows that the trial of a cached plan has read ahead. They are given before the plan goes on.

use super::row::{Row, RowDocument, RowKey};
use super::stage::{Flow, Receiver};
use crate::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::metadata::Metadata;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{Index, RecordId};

/// See the module.
#[derive(Default)]
pub(crate) struct HeldRows {
    rows: VecDeque<HeldRow>,
    /// Of all rows that were ever pushed.
    bytes: usize,
    /// For the rows that are left: a cursor may wait long before it is asked for them.
    memory: StageMemory,
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
    /// Errors: the operation may not have as much memory.
    pub(crate) fn push(&mut self, row: &Row<'_>, evaluation: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let bytes = row.document.bytes();
        let document = row.document.is_some().then(|| Bytes::copy_from_slice(bytes));
        let key = row.key.map(|key| HeldKey {
            index: key.index.clone(),
            key: key.key.into(),
            type_bits: key.type_bits.into(),
        });
        let held = HeldRow {
            id: row.id.clone(),
            document,
            key,
            metadata: row.metadata.cloned(),
        };
        self.memory.grow(evaluation, held.bytes())?;
        self.bytes += held.bytes();
        self.rows.push_back(held);
        Ok(())
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
            self.memory.shrink(row.bytes());
            if receive(row.as_row())? == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
        self.rows = VecDeque::new();
        self.memory.clear();
        Ok(Flow::Continue)
    }
}

impl HeldRow {
    fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, |key| key.key.len() + key.type_bits.len());
        size_of::<Self>() + key + self.document.as_ref().map_or(0, Bytes::len)
    }

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
