//! `$sort`, with a limit where one follows, and `$sample`.
//!
//! Documents are ordered by the memcmp-able keys of [`SortPattern`]; ties keep their order of arrival. With a limit only
//! that many documents are held, in a heap whose top is the worst of them. `$sample` keeps a reservoir (Vitter 1985, R).

use std::collections::BinaryHeap;
use std::sync::Arc;

use keys::KeySet;
use vfs::Random;
use wire::ErrorCode;

use super::filter::Checkpoint;
use super::{STAGE_BYTES_MAX, Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::StageMemory;
use crate::value::{SharedDocument, SortPattern};

/// Memory of one held document beyond its bytes and its key's.
const HELD_BYTES: usize = 64;

/// A held document. Orders by key, then by arrival.
struct Held {
    key: Vec<u8>,
    arrival: u64,
    document: SharedDocument,
}

impl Held {
    fn bytes(&self) -> usize {
        self.key.len() + self.document.as_bytes().len() + HELD_BYTES
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key).then(self.arrival.cmp(&other.arrival))
    }
}

fn too_much_memory<T>(stage: &str) -> Result<T, QueryError> {
    failure(
        ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed.0,
        format!("{stage} exceeded memory limit of {STAGE_BYTES_MAX} bytes, but did not opt in to external sorting."),
    )
}

pub(super) struct SortStage {
    source: Box<dyn Stage>,
    pattern: SortPattern,
    limit: Option<u64>,
    sorted: Option<std::vec::IntoIter<Held>>,
    memory: StageMemory,
}

impl SortStage {
    pub(super) fn new(source: Box<dyn Stage>, pattern: SortPattern, limit: Option<u64>) -> Self {
        Self {
            source,
            pattern,
            limit,
            sorted: None,
            memory: StageMemory::default(),
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Held>, QueryError> {
        let limit = self
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        if limit == usize::MAX {
            self.consume_all(context)
        } else {
            self.consume_top(context, limit)
        }
    }

    fn consume_all(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Held>, QueryError> {
        let mut held = Vec::new();
        let (mut keys, mut bytes, mut checkpoint) = (KeySet::new(), 0, Checkpoint::default());
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            let mut key = Vec::with_capacity(16);
            self.pattern.append_key(&document, &mut keys, &mut key)?;
            let next = Held {
                key,
                arrival: held.len() as u64,
                document,
            };
            bytes += next.bytes();
            if bytes > STAGE_BYTES_MAX {
                return too_much_memory("Sort");
            }
            self.memory.grow(context.evaluation, next.bytes())?;
            held.push(next);
        }
        context.evaluation.sort(held, Held::cmp)
    }

    fn consume_top(&mut self, context: &mut StageContext<'_>, limit: usize) -> Result<Vec<Held>, QueryError> {
        let mut heap: BinaryHeap<Held> = BinaryHeap::new();
        let (mut keys, mut bytes, mut checkpoint) = (KeySet::new(), 0, Checkpoint::default());
        let mut key = Vec::new();
        let mut arrival = 0;
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            key.clear();
            self.pattern.append_key(&document, &mut keys, &mut key)?;
            arrival += 1;
            if heap.len() >= limit {
                // A later arrival loses ties, so only a smaller key gets in.
                match heap.peek() {
                    Some(worst) if key < worst.key => {}
                    _ => continue,
                }
                if let Some(worst) = heap.pop() {
                    bytes -= worst.bytes();
                    self.memory.shrink(worst.bytes());
                }
            }
            let next = Held {
                key: key.clone(),
                arrival,
                document,
            };
            bytes += next.bytes();
            if bytes > STAGE_BYTES_MAX {
                return too_much_memory("Sort");
            }
            self.memory.grow(context.evaluation, next.bytes())?;
            heap.push(next);
        }
        context.evaluation.sort(heap.into_vec(), Held::cmp)
    }
}

impl Stage for SortStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.sorted.is_none() {
            self.sorted = Some(self.consume(context)?.into_iter());
        }
        let next = self.sorted.as_mut().and_then(Iterator::next);
        if next.is_none() {
            self.memory.clear();
        }
        Ok(next.map(|held| held.document))
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
                return too_much_memory("$sample");
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
