//! Making room in a capped collection: the oldest documents go, in the unit that inserts.
//!
//! 1. Under the collection's insert lock the counts only shrink by others' deletes; take from them what this unit does.
//! 2. While the new document does not fit, choose the oldest record: of the snapshot first, then of this unit's own
//!    inserts. Lock it and read its newest version.
//! 3. When all are locked (nothing has changed so far, so that a conflict leaves the unit as it was), delete them.
//!
//! A document larger than the whole cap is accepted: everything else goes.

use crate::entry::Deletion;
use crate::index_keys::{IndexWrites, Versions};
use crate::limits::CAPPED_EVICT_DOCUMENTS_MAX;
use crate::read::ReadView;
use crate::write::WriteUnit;
use crate::{CappedLimits, CollectionGuard, RecordBatch, RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Direction, FillLimits};
use std::ops::Bound;
use std::sync::atomic::Ordering;

struct Victim {
    id: RecordId,
    document: Bytes,
    writes: Box<IndexWrites>,
}

impl WriteUnit<'_> {
    /// Evicts what has to go before a document of `new_bytes` is inserted.
    pub(crate) fn make_room_in_capped(
        &mut self,
        c: &CollectionGuard,
        place: usize,
        limits: CappedLimits,
        new_bytes: usize,
    ) -> Result<(), StorageError> {
        let done = self.effect_on(c);
        let mut count = c.shared.count.load(Ordering::Acquire) + done.count + 1;
        let mut bytes = c.shared.data_bytes.load(Ordering::Acquire) + done.bytes + new_bytes as i64;
        let too_many = |count: i64, bytes: i64| {
            bytes > limits.size_bytes as i64 || limits.max_documents.is_some_and(|max| count > max as i64)
        };
        if !too_many(count, bytes) {
            return Ok(());
        }
        self.evaluator.refresh_snapshot()?;
        let mut candidates = Candidates::new(self, c, place)?;
        let mut victims = Vec::new();
        while too_many(count, bytes) && victims.len() < CAPPED_EVICT_DOCUMENTS_MAX {
            let Some(id) = candidates.next()? else { break };
            let Some(document) = self.lock_newest(c, &id)? else {
                continue;
            };
            count -= 1;
            bytes -= document.len() as i64;
            victims.push(self.victim(c, id, document)?);
        }
        let (evict_from, own) = (candidates.next_stored, candidates.own_taken);
        for mut victim in victims {
            self.log_delete(
                c,
                &victim.id,
                raw(c, &victim.id, &victim.document)?,
                Deletion::Evicted,
                &mut victim.writes,
            );
            victim.writes.give_back();
        }
        self.effect_on(c).evict_from = evict_from;
        self.changes.touched[place].inserted.drain(..own);
        Ok(())
    }

    fn victim(&mut self, c: &CollectionGuard, id: RecordId, document: Bytes) -> Result<Victim, StorageError> {
        let old = raw(c, &id, &document)?;
        let mut writes = IndexWrites::take();
        self.changes
            .effect
            .evaluate(&mut self.evaluator, c, &id, Versions::deleted(old), &mut writes)?;
        Ok(Victim { id, document, writes })
    }
}

fn raw<'d>(c: &CollectionGuard, id: &RecordId, document: &'d Bytes) -> Result<&'d RawDocument, StorageError> {
    RawDocument::from_bytes(document.as_ref()).map_err(|error| StorageError::CorruptRecord {
        namespace: c.namespace().clone(),
        record: id.clone(),
        reason: error.to_string(),
    })
}

/// Records in insertion order: those of the snapshot, then the unit's own.
struct Candidates {
    cursor: crate::RecordCursor,
    batch: RecordBatch,
    at: usize,
    next_stored: u64,
    stored_left: bool,
    own: Vec<u64>,
    own_taken: usize,
}

impl Candidates {
    fn new(unit: &mut WriteUnit<'_>, c: &CollectionGuard, place: usize) -> Result<Self, StorageError> {
        let evicted_to = unit.effect_on(c).evict_from;
        let from = evicted_to.max(c.shared.capped_first.load(Ordering::Relaxed));
        let view = ReadView::new(unit.evaluator.snapshot().clone());
        Ok(Self {
            cursor: view.records(
                c,
                Bound::Included(RecordId::Number(from)),
                Bound::Unbounded,
                Direction::Forward,
            )?,
            batch: RecordBatch::new(),
            at: 0,
            next_stored: from,
            stored_left: true,
            own: unit.changes.touched[place].inserted.iter().copied().collect(),
            own_taken: 0,
        })
    }

    fn next(&mut self) -> Result<Option<RecordId>, StorageError> {
        if self.stored_left && self.at == self.batch.len() {
            let limits = FillLimits {
                rows_max: 8,
                bytes_max: 64 * 1024,
            };
            self.stored_left = self.cursor.fill(&mut self.batch, limits)?;
            self.at = 0;
        }
        if self.stored_left {
            let id = self.batch.id(self.at);
            self.at += 1;
            self.next_stored = id.number().saturating_add(1);
            return Ok(Some(id));
        }
        let own = self.own.get(self.own_taken).copied();
        self.own_taken += usize::from(own.is_some());
        Ok(own.map(RecordId::Number))
    }
}

#[cfg(test)]
#[path = "capped_tests.rs"]
mod tests;
