//! Units of one operation that do not wait for each other to take effect.
//!
//! An operation that changes many documents, each in a unit of its own, would wait for a majority of the servers once
//! for each of them. A unit that is committed ahead only gets its place in the log, and the operation has *observed*
//! it: it waits for the last one in [`Storage::wait_ahead`], and its client is told nothing before that, neither counts
//! nor an error. The units may be those of a session, whose records follow from each other in the order of the log.
//!
//! Invariants: an operation never has more ahead than `limits.rs` says, and one unit. It waits with no lock of a
//! document held. Readers do not see what is ahead, those of the operation itself neither: whoever looks for documents
//! that an earlier statement may have changed waits first.

use super::WriteUnit;
use crate::limits::{BYTES_AHEAD_MAX, UNITS_AHEAD_MAX};
use crate::storage::Storage;
use crate::{Operation, StorageError};
use engine::{Batch, Op, Seq};
use std::sync::atomic::Ordering;

impl WriteUnit<'_> {
    /// As [`WriteUnit::commit`], but its effect may be still to come on return: for one of many units of an operation,
    /// which ends with [`Storage::wait_ahead`]. There is no difference in a transaction, and where this server decides
    /// alone.
    ///
    /// Errors: as for [`WriteUnit::commit`]; those of the wait for earlier units, too.
    pub fn commit_ahead(mut self) -> Result<Seq, StorageError> {
        let (storage, op) = (self.evaluator.storage, self.evaluator.op);
        if self.home.is_some() || !storage.pending.is_used() {
            return self.commit();
        }
        let bytes = row_bytes(self.changes.effect.batch());
        if op.is_ahead() {
            // What came before it may be lost with its leadership: then this does not come alone.
            let (_, observed) = op.observed();
            let epoch = self.changes.entry.epoch.get_or_insert(observed);
            *epoch = observed.min(*epoch);
        }
        let (seq, epoch) = self.hand_in()?;
        let Some(epoch) = epoch else { return Ok(seq) };
        op.observe(seq, epoch);
        // Only the thread that runs the operation counts.
        let units = op.units_ahead.load(Ordering::Relaxed) + 1;
        let bytes = op.bytes_ahead.load(Ordering::Relaxed) + bytes;
        op.units_ahead.store(units, Ordering::Relaxed);
        op.bytes_ahead.store(bytes, Ordering::Relaxed);
        if units >= UNITS_AHEAD_MAX || bytes >= BYTES_AHEAD_MAX {
            storage.wait_ahead(op)?;
        }
        Ok(seq)
    }
}

impl Storage {
    /// Whether entries wait for others to keep them, too, so that there is something ahead at all.
    pub fn waits_for_others(&self) -> bool {
        self.pending.is_used()
    }

    /// Waits until what the operation has committed ahead has taken effect, as long as the operation may. Errors as for
    /// [`WriteUnit::commit`].
    pub fn wait_ahead(&self, op: &Operation) -> Result<(), StorageError> {
        if op.units_ahead.swap(0, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        op.bytes_ahead.store(0, Ordering::Relaxed);
        self.wait_observed(op)
    }
}

/// Bytes that a batch keeps in memory until it is applied.
fn row_bytes(batch: &Batch) -> u64 {
    let bytes = |op: &Op| match op {
        Op::Put(_, key, value) => key.len() + value.len(),
        Op::Delete(_, key) => key.len(),
        _ => 0,
    };
    batch.ops().iter().map(|op| bytes(op) as u64).sum()
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
