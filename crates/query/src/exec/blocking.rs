//! SORT: gathers its input, then gives it in order. With a limit it keeps only the best so many rows.
//!
//! Rows of equal keys keep the order they came in. Memory is bounded: beyond [`SORT_BYTES_MAX`] the sort fails, and before
//! when the operation may not have that much.

use super::context::Run;
use super::row::{Row, RowDocument, RowKey, as_document};
use super::sort_key::SortKeys;
use super::stage::{Flow, Ran, Receiver, Stage, StageCounters};
use crate::QueryError;
use crate::evaluation::StageMemory;
use bytes::Bytes;
use std::collections::BinaryHeap;
use std::sync::Arc;
use storage::{Index, RecordId};
use wire::ErrorCode;

/// Documents, keys and their bookkeeping that one sort may hold.
pub const SORT_BYTES_MAX: u64 = 100 << 20;
/// Bookkeeping of one row, about.
const ROW_OVERHEAD_BYTES: u64 = 96;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    key: Vec<u8>,
    arrival: u64,
}

struct Entry {
    place: Place,
    id: RecordId,
    document: Bytes,
    index_key: Option<(Arc<Index>, Vec<u8>, Vec<u8>)>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        (self.document.len() + self.place.key.len()) as u64 + ROW_OVERHEAD_BYTES
    }
}

/// See the module. Rows carry their documents.
pub(crate) struct Sort {
    pub(crate) input: Stage,
    pub(crate) keys: SortKeys,
    pub(crate) limit: Option<u64>,
    pub(crate) counters: StageCounters,
    /// Keep index keys for RETURN_KEY.
    keep_index_keys: bool,
    arrivals: u64,
    gathered: BinaryHeap<Entry>,
    sorted: Option<std::vec::IntoIter<Entry>>,
    memory: StageMemory,
}

impl Sort {
    pub(crate) fn new(input: Stage, keys: SortKeys, limit: Option<u64>, keep_index_keys: bool) -> Self {
        Self {
            input,
            keys,
            limit,
            counters: StageCounters::default(),
            keep_index_keys,
            arrivals: 0,
            gathered: BinaryHeap::new(),
            sorted: None,
            memory: StageMemory::default(),
        }
    }

    fn gather(&mut self, run: &Run<'_>) -> Result<Ran, QueryError> {
        let Self {
            input,
            keys,
            limit,
            counters,
            keep_index_keys,
            arrivals,
            gathered,
            memory,
            ..
        } = self;
        let limit = limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        input.run(run, &mut |row| {
            counters.works += 1;
            *arrivals += 1;
            let key = keys.key(as_document(row.document.bytes())?)?;
            if limit.is_some_and(|limit| gathered.len() >= limit) {
                match gathered.peek() {
                    Some(worst) if key < worst.place.key.as_slice() => {
                        let bytes = gathered.pop().map_or(0, |worst| worst.bytes());
                        counters.memory_bytes -= bytes;
                        memory.shrink(bytes as usize);
                    }
                    _ => return Ok(Flow::Continue),
                }
            }
            let index_key = row.key.filter(|_| *keep_index_keys);
            let entry = Entry {
                place: Place {
                    key: key.to_vec(),
                    arrival: *arrivals,
                },
                id: row.id,
                document: row.document.to_bytes(),
                index_key: index_key.map(|k| (k.index.clone(), k.key.to_vec(), k.type_bits.to_vec())),
            };
            counters.memory_bytes += entry.bytes();
            if counters.memory_bytes > SORT_BYTES_MAX {
                return Err(QueryError::new(
                    ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                    format!(
                        "Sort exceeded memory limit of {SORT_BYTES_MAX} bytes, and sorting on disk is not built yet"
                    ),
                ));
            }
            memory.grow(&run.evaluation, entry.bytes() as usize)?;
            gathered.push(entry);
            Ok(Flow::Continue)
        })
    }

    pub(crate) fn run(&mut self, run: &Run<'_>, receive: &mut Receiver<'_>) -> Result<Ran, QueryError> {
        if self.sorted.is_none() {
            let ran = self.gather(run)?;
            if ran != Ran::Exhausted {
                return Ok(ran);
            }
            let gathered = std::mem::take(&mut self.gathered).into_vec();
            self.sorted = Some(run.evaluation.sort(gathered, Entry::cmp)?.into_iter());
        }
        while let Some(entry) = self.sorted.as_mut().and_then(Iterator::next) {
            self.counters.works += 1;
            self.counters.advanced += 1;
            let key = entry
                .index_key
                .as_ref()
                .map(|(index, key, type_bits)| RowKey { index, key, type_bits });
            let row = Row {
                id: entry.id,
                document: RowDocument::Shared(&entry.document),
                key,
            };
            if receive(row)? == Flow::Stop {
                return Ok(Ran::Stopped);
            }
        }
        self.memory.clear();
        self.counters.exhausted = true;
        Ok(Ran::Exhausted)
    }
}
