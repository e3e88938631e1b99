//! `$sort`, with a limit where one follows, and `$sample`.
//!
//! Documents are ordered by the memcmp-able keys of [`SortPattern`], see [`crate::sorter`]. `$sample` keeps a reservoir
//! (Vitter 1985, R).

use std::sync::Arc;

use bson::Document;
use bytes::Bytes;
use keys::KeySet;
use storage::Spilling;
use vfs::Random;
use wire::ErrorCode;

use super::filter::Checkpoint;
use super::{STAGE_BYTES_MAX, Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::sorter::{Payload, Sorted, SortedRow, Sorter};
use crate::value::{SharedDocument, SortPattern};

/// Memory of one held document beyond its bytes.
const HELD_BYTES: usize = 64;

impl Payload for SharedDocument {
    fn memory_bytes(&self) -> usize {
        self.as_bytes().len()
    }

    fn append_head(&self, _head: &mut Vec<u8>) {}

    fn body(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl SortedRow<'_, SharedDocument> {
    /// The document, where nothing else has gone through the sort.
    pub(super) fn into_document(self) -> Result<SharedDocument, QueryError> {
        match self {
            SortedRow::Kept(document) => Ok(document),
            SortedRow::Spilled(bytes) => Ok(SharedDocument::new(Bytes::copy_from_slice(bytes))?),
        }
    }
}

pub(super) struct SortStage {
    source: Box<dyn Stage>,
    pattern: SortPattern,
    limit: Option<u64>,
    sorted: Option<Sorted<SharedDocument>>,
}

impl SortStage {
    pub(super) fn new(source: Box<dyn Stage>, pattern: SortPattern, limit: Option<u64>) -> Self {
        Self {
            source,
            pattern,
            limit,
            sorted: None,
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<Sorted<SharedDocument>, QueryError> {
        let mut sorter = Sorter::new(Spilling::Sort, self.limit, context.execution.blocking());
        let (mut keys, mut key, mut checkpoint) = (KeySet::new(), Vec::new(), Checkpoint::default());
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            key.clear();
            self.pattern.append_key(&document, &mut keys, &mut key)?;
            sorter.push(context.evaluation, &key, || document)?;
        }
        if let Some(operation) = context.evaluation.operation() {
            operation.counters().note_sort();
        }
        sorter.finish(context.evaluation)
    }
}

impl Stage for SortStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.consume(context)?);
        }
        let next = self.sorted.as_mut().map(|sorted| sorted.next(context.evaluation));
        let next = next.transpose()?.flatten();
        next.map(SortedRow::into_document).transpose()
    }

    fn add_statistics(&self, statistics: &mut Document) {
        let sorted = self.sorted.as_ref().map(Sorted::statistics).unwrap_or_default();
        statistics.insert("totalDataSizeSortedBytesEstimate", sorted.data_bytes as i64);
        sorted.spill.add_to(statistics);
    }
}

pub(super) struct SampleStage {
    source: Box<dyn Stage>,
    size: u64,
    random: Arc<dyn Random>,
    chosen: Option<std::vec::IntoIter<SharedDocument>>,
    memory: StageMemory,
}

impl SampleStage {
    pub(super) fn new(source: Box<dyn Stage>, size: u64, random: Arc<dyn Random>) -> Self {
        Self {
            source,
            size,
            random,
            chosen: None,
            memory: StageMemory::default(),
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<Vec<SharedDocument>, QueryError> {
        let mut chosen: Vec<SharedDocument> = Vec::new();
        let (mut seen, mut bytes, mut checkpoint) = (0_u64, 0_usize, Checkpoint::default());
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            seen += 1;
            let size = document.as_bytes().len() + HELD_BYTES;
            if (chosen.len() as u64) < self.size {
                bytes += size;
                self.memory.grow(context.evaluation, size)?;
                chosen.push(document);
            } else {
                let place = self.random.next_u64() % seen;
                if let Some(old) = usize::try_from(place).ok().and_then(|place| chosen.get_mut(place)) {
                    let old_size = old.as_bytes().len() + HELD_BYTES;
                    bytes = bytes + size - old_size;
                    self.memory.shrink(old_size);
                    self.memory.grow(context.evaluation, size)?;
                    *old = document;
                }
            }
            if bytes > STAGE_BYTES_MAX {
                return failure(
                    ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed.0,
                    format!("$sample exceeded memory limit of {STAGE_BYTES_MAX} bytes, and it does not use the disk"),
                );
            }
        }
        // The reservoir's places are not random among themselves: shuffle (Fisher, Yates).
        for last in (1..chosen.len()).rev() {
            let other = (self.random.next_u64() % (last as u64 + 1)) as usize;
            chosen.swap(last, other);
        }
        Ok(chosen)
    }
}

impl Stage for SampleStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.chosen.is_none() {
            self.chosen = Some(self.consume(context)?.into_iter());
        }
        let next = self.chosen.as_mut().and_then(Iterator::next);
        if next.is_none() {
            self.memory.clear();
        }
        Ok(next)
    }
}
