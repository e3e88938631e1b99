//! Making room in a capped collection: the oldest documents go, in the unit that inserts.
//!
//! 1. Under the collection's insert lock the counts, with what others have proposed, only shrink by others' deletes;
//!    take from them what this unit does.
//! 2. While the new document does not fit, choose the oldest record: of the snapshot first, then of what is proposed,
//!    then of this unit's own inserts. Lock it and read its newest version.
//! 3. When all are locked (nothing has changed so far, so that a conflict leaves the unit as it was), delete them.
//!
//! A document larger than the whole cap is accepted: everything else goes.

use crate::entry::Deletion;
use crate::index_keys::{IndexWrites, Versions};
use crate::limits::CAPPED_EVICT_DOCUMENTS_MAX;
use crate::read::ReadView;
use crate::write::{Evaluator, WriteUnit};
use crate::{CappedLimits, CollectionGuard, RecordBatch, RecordId, StorageError};
use bson::RawDocument;
use bytes::Bytes;
use engine::{Direction, Engine, EngineError, FillLimits};
use std::ops::Bound;
use std::sync::atomic::Ordering;

/// Whether the engine takes one more document of so many bytes. A bound that was configured keeps nothing out of a
/// collection that deletes as much as it adds; a full disk does, which has no room for a deletion either.
pub(crate) fn check_growth(engine: &dyn Engine, c: &CollectionGuard, bytes: usize) -> Result<(), StorageError> {
    match engine.check_growth(c.table(), bytes) {
        Err(EngineError::Backend { .. }) if pushes_out(c, bytes) => Ok(()),
        checked => Ok(checked?),
    }
}

/// Whether a capped collection deletes documents for one more of so many bytes, by what has taken effect.
fn pushes_out(c: &CollectionGuard, new_bytes: usize) -> bool {
    c.is_capped().is_some_and(|limits| {
        let bytes = c.data_bytes().saturating_add(new_bytes as u64);
        bytes > limits.size_bytes || limits.max_documents.is_some_and(|max| c.count() >= max)
    })
}

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
        // Once in a unit: the insert lock keeps others' inserts out until its end, and others' deletes may wait.
        let others = self.changes.touched[place].others;
        let others = others.unwrap_or_else(|| self.evaluator.storage().counts_to_come(c));
        self.changes.touched[place].others = Some(others);
        let (others_count, others_bytes) = others;
        let done = self.effect_on(c);
        let mut count = others_count + done.count + 1;
        let mut bytes = others_bytes + done.bytes + new_bytes as i64;
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
            let Some(id) = candidates.next(self, c)? else {
                break;
            };
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

/// Records in insertion order: those of the snapshot, those that are proposed, then the unit's own.
struct Candidates {
    cursor: crate::RecordCursor,
    batch: RecordBatch,
    at: usize,
    /// Behind the last one that was given and is not the unit's own.
    next_stored: u64,
    stored_left: bool,
    /// Those that were proposed when the snapshot was read to its end; `None` before.
    proposed: Option<std::vec::IntoIter<u64>>,
    own: Vec<u64>,
    own_taken: usize,
}

impl Candidates {
    fn new(unit: &mut WriteUnit<'_>, c: &CollectionGuard, place: usize) -> Result<Self, StorageError> {
        let evicted_to = unit.effect_on(c).evict_from;
        let from = evicted_to.max(c.shared.capped_first.load(Ordering::Relaxed));
        let (epoch, ahead) = *c.shared.capped_ahead.lock();
        let from = match unit.changes.entry.epoch == Some(epoch) {
            true => from.max(ahead),
            false => from,
        };
        Ok(Self {
            cursor: stored(unit, c, from)?,
            batch: RecordBatch::new(),
            at: 0,
            next_stored: from,
            stored_left: true,
            proposed: None,
            own: unit.changes.touched[place].inserted.iter().copied().collect(),
            own_taken: 0,
        })
    }

    fn next(&mut self, unit: &mut WriteUnit<'_>, c: &CollectionGuard) -> Result<Option<RecordId>, StorageError> {
        if self.stored_left && self.at == self.batch.len() {
            self.stored_left = self.fill()?;
            if !self.stored_left && self.proposed.is_none() {
                // Looked at first: what is no longer proposed is in a snapshot that is taken behind.
                self.proposed = Some(unit.evaluator.proposed_records(c, self.next_stored).into_iter());
                unit.evaluator.refresh_snapshot()?;
                self.cursor = stored(unit, c, self.next_stored)?;
                self.stored_left = self.fill()?;
            }
        }
        if self.stored_left {
            let id = self.batch.id(self.at);
            self.at += 1;
            self.next_stored = id.number().saturating_add(1);
            return Ok(Some(id));
        }
        let behind = |number: &u64| *number >= self.next_stored;
        if let Some(number) = self.proposed.as_mut().and_then(|proposed| proposed.find(behind)) {
            self.next_stored = number.saturating_add(1);
            return Ok(Some(RecordId::Number(number)));
        }
        let own = self.own.get(self.own_taken).copied();
        self.own_taken += usize::from(own.is_some());
        Ok(own.map(RecordId::Number))
    }

    /// Reads on in the snapshot.
    fn fill(&mut self) -> Result<bool, StorageError> {
        let limits = FillLimits {
            rows_max: 8,
            bytes_max: 64 * 1024,
        };
        self.at = 0;
        self.cursor.fill(&mut self.batch, limits)
    }
}

impl Evaluator<'_> {
    /// The numbers from `from` on of records of a collection that are proposed and not applied yet, in their order; of
    /// those that are applied already some may be among them.
    fn proposed_records(&self, c: &CollectionGuard, from: u64) -> Vec<u64> {
        let storage = self.storage();
        if !storage.pending.is_used() {
            return Vec::new();
        }
        let from = RecordId::Number(from);
        let rows = storage.pending.with_prefix_from(c.table(), &[], &from.to_key());
        let there = rows.into_iter().filter(|(_, _, is_there)| *is_there);
        there
            .filter_map(|(key, ..)| RecordId::from_key(c.record_ids(), &key))
            .map(|id| id.number())
            .collect()
    }
}

/// The records of the unit's snapshot from this number on.
fn stored(unit: &WriteUnit<'_>, c: &CollectionGuard, from: u64) -> Result<crate::RecordCursor, StorageError> {
    let view = ReadView::new(unit.evaluator.snapshot().clone());
    let from = Bound::Included(RecordId::Number(from));
    view.records(c, from, Bound::Unbounded, Direction::Forward)
}

#[cfg(test)]
#[path = "capped_tests.rs"]
mod tests;
