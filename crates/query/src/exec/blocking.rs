//! SORT: gathers its input, then gives it in order. With a limit it keeps only the best so many rows.
//!
//! Rows of equal keys keep the order they came in. What outgrows the memory goes to temporary files, see
//! [`crate::sorter`].

use super::context::Run;
use super::row::{Row, RowDocument, RowKey, as_document};
use super::sort_key::SortKeys;
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use crate::limits::BlockingLimits;
use crate::metadata::Metadata;
use crate::sorter::{Payload, SortStatistics, Sorted, SortedRow, Sorter};
use bytes::Bytes;
use std::sync::Arc;
use storage::{Index, RecordId, Spilling};
use wire::ErrorCode;

/// An entry of an index, kept for RETURN_KEY.
struct KeptKey {
    /// The position in [`Sort::indexes`].
    index: u32,
    key: Vec<u8>,
    type_bits: Vec<u8>,
}

/// What of a row goes through the sort. Written as the record id (of a key its length, with the highest bit), the
/// index's position (all ones without an entry), and lengths of key, type bits and metadata, each little-endian, then
/// the record's key if it has one, key, type bits, metadata and document.
struct Entry {
    id: RecordId,
    document: Bytes,
    index_key: Option<KeptKey>,
    metadata: Option<Arc<Metadata>>,
}

const HEAD_BYTES: usize = 24;
const KEY_BIT: u64 = 1 << 63;

impl Payload for Entry {
    fn memory_bytes(&self) -> usize {
        let key = self.index_key.as_ref();
        self.document.len() + key.map_or(0, |kept| kept.key.len() + kept.type_bits.len())
    }

    fn append_head(&self, head: &mut Vec<u8>) {
        let (index, key, type_bits) = match &self.index_key {
            Some(kept) => (kept.index, &*kept.key, &*kept.type_bits),
            None => (u32::MAX, &[][..], &[][..]),
        };
        let id = match &self.id {
            RecordId::Number(number) => *number,
            RecordId::Key(key) => key.len() as u64 | KEY_BIT,
        };
        head.extend_from_slice(&id.to_le_bytes());
        head.extend_from_slice(&index.to_le_bytes());
        head.extend_from_slice(&(key.len() as u32).to_le_bytes());
        head.extend_from_slice(&(type_bits.len() as u32).to_le_bytes());
        let length_at = head.len();
        head.extend_from_slice(&[0; 4]);
        if let RecordId::Key(key) = &self.id {
            head.extend_from_slice(key);
        }
        head.extend_from_slice(key);
        head.extend_from_slice(type_bits);
        if let Some(metadata) = &self.metadata {
            let start = head.len();
            metadata.append_to(head);
            let length = (head.len() - start) as u32;
            head[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        }
    }

    fn body(&self) -> &[u8] {
        &self.document
    }
}

/// A row as [`Entry`] was written; its metadata by themselves.
fn read_entry<'r>(row: &'r [u8], indexes: &'r [Arc<Index>]) -> Result<(Row<'r>, Option<Arc<Metadata>>), QueryError> {
    let damaged = || QueryError::new(ErrorCode(31182), "a row of a temporary file is not one of a sort");
    let (head, rest) = row.split_first_chunk::<HEAD_BYTES>().ok_or_else(damaged)?;
    let field = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let id = u64::from(field(0)) | u64::from(field(4)) << 32;
    let (id, rest) = match id & KEY_BIT {
        0 => (RecordId::Number(id), rest),
        _ => {
            let (key, rest) = rest.split_at_checked((id & !KEY_BIT) as usize).ok_or_else(damaged)?;
            (RecordId::Key(key.into()), rest)
        }
    };
    let (key, rest) = rest.split_at_checked(field(12) as usize).ok_or_else(damaged)?;
    let (type_bits, rest) = rest.split_at_checked(field(16) as usize).ok_or_else(damaged)?;
    let (metadata, document) = rest.split_at_checked(field(20) as usize).ok_or_else(damaged)?;
    let metadata = match metadata.is_empty() {
        true => None,
        false => Some(Arc::new(Metadata::read(as_document(metadata)?))),
    };
    let index_key = match field(8) {
        u32::MAX => None,
        index => Some(RowKey {
            index: indexes.get(index as usize).ok_or_else(damaged)?,
            key,
            type_bits,
        }),
    };
    let row = Row {
        id,
        document: RowDocument::Made(document),
        key: index_key,
        metadata: None,
    };
    Ok((row, metadata))
}

/// See the module. Rows carry their documents.
pub(crate) struct Sort {
    pub(crate) input: Stage,
    pub(crate) keys: SortKeys,
    pub(crate) limit: Option<u64>,
    pub(crate) counters: StageCounters,
    pub(crate) limits: BlockingLimits,
    /// Keep index keys for RETURN_KEY.
    keep_index_keys: bool,
    /// Those of the kept keys.
    indexes: Vec<Arc<Index>>,
    state: State,
}

enum State {
    Gathering(Sorter<Entry>),
    Giving(Sorted<Entry>),
    /// Between the two, and after an error.
    Ended(SortStatistics),
}

impl Sort {
    pub(crate) fn new(
        input: Stage,
        keys: SortKeys,
        limit: Option<u64>,
        keep_index_keys: bool,
        limits: &BlockingLimits,
    ) -> Self {
        Self {
            input,
            keys,
            limit,
            counters: StageCounters::default(),
            limits: limits.clone(),
            keep_index_keys,
            indexes: Vec::new(),
            state: State::Gathering(Sorter::new(Spilling::Sort, limit, limits)),
        }
    }

    /// What it sorted and spilled so far.
    pub(crate) fn statistics(&self) -> SortStatistics {
        match &self.state {
            State::Gathering(sorter) => sorter.statistics(),
            State::Giving(sorted) => sorted.statistics(),
            State::Ended(statistics) => *statistics,
        }
    }

    fn gather(&mut self, run: &Run<'_>) -> Result<Ran, QueryError> {
        let Self {
            input,
            keys,
            counters,
            keep_index_keys,
            indexes,
            state,
            ..
        } = self;
        let State::Gathering(sorter) = state else {
            return Ok(Ran::Exhausted);
        };
        let mut receive = |row: Row<'_>| {
            counters.works += 1;
            let key = keys.key(as_document(row.document.bytes())?, row.metadata, run.evaluation)?;
            sorter.push(run.evaluation, key, || Entry {
                id: row.id,
                document: row.document.to_kept_bytes(),
                index_key: row.key.filter(|_| *keep_index_keys).map(|key| keep(key, indexes)),
                metadata: row.metadata.cloned(),
            })?;
            Ok(Flow::Continue)
        };
        run.wanting(u64::MAX, || input.run(run, &mut receive))
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        if let State::Gathering(_) = &self.state {
            let ran = self.gather(run)?;
            if ran != Ran::Exhausted {
                return Ok(ran);
            }
            run.context.op.counters().note_sort();
            let statistics = self.statistics();
            if let State::Gathering(sorter) = std::mem::replace(&mut self.state, State::Ended(statistics)) {
                self.state = State::Giving(sorter.finish(run.evaluation)?);
            }
        }
        let State::Giving(sorted) = &mut self.state else {
            return Ok(Ran::Exhausted);
        };
        while let Some(row) = sorted.next(run.evaluation)? {
            self.counters.works += 1;
            self.counters.advanced += 1;
            let flow = match row {
                SortedRow::Kept(entry) => {
                    let key = entry.index_key.as_ref().map(|kept| RowKey {
                        index: &self.indexes[kept.index as usize],
                        key: &kept.key,
                        type_bits: &kept.type_bits,
                    });
                    receive(Row {
                        id: entry.id,
                        document: RowDocument::Shared(&entry.document),
                        key,
                        metadata: entry.metadata.as_ref(),
                    })?
                }
                SortedRow::Spilled(row) => {
                    let (row, metadata) = read_entry(row, &self.indexes)?;
                    receive(Row {
                        metadata: metadata.as_ref(),
                        ..row
                    })?
                }
            };
            if flow == Flow::Stop {
                return Ok(Ran::Stopped);
            }
        }
        // The temporary files go now, and not when the cursor does.
        self.state = State::Ended(self.statistics());
        self.counters.exhausted = true;
        Ok(Ran::Exhausted)
    }
}

fn keep(key: RowKey<'_>, indexes: &mut Vec<Arc<Index>>) -> KeptKey {
    let known = indexes.iter().position(|index| Arc::ptr_eq(index, key.index));
    let index = known.unwrap_or_else(|| {
        indexes.push(key.index.clone());
        indexes.len() - 1
    });
    KeptKey {
        index: index as u32,
        key: key.key.to_vec(),
        type_bits: key.type_bits.to_vec(),
    }
}
