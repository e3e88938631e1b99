//! Units of one operation that do not wait for each other to take effect.
//!
//! An operation that changes many documents, each in a unit of its own, would wait for a majority of the servers once
//! for each of them. A unit that is committed ahead only gets its place in the log, and the operation has *observed*
//! it: it waits for the last one in [`Storage::wait_ahead`], and its client is told nothing before that, neither counts
//! nor an error. The units may be those of a session, whose records follow from each other in the order of the log.
//!
//! Invariants: an operation never has more ahead than `limits.rs` says, and one unit, or two where it has lost
//! patience. It waits with no lock of a document held. Readers do not see what is ahead, those of the operation itself
//! neither: whoever looks for documents that an earlier statement may have changed waits first.
//!
//! An operation may have patience for a while only ([`Operation::set_commit_patience`]): when that is over, its last
//! waits end, and what it waited for stays ahead. Waits that it needs to go on do not end like that, nor do those that
//! begin when all that is proposed and not applied takes much memory.

use super::WriteUnit;
use crate::limits::{BYTES_AHEAD_MAX, UNITS_AHEAD_MAX};
use crate::storage::Storage;
use crate::{Operation, StorageError};
use engine::Seq;
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
        let bytes = self.changes.effect.row_bytes();
        let was_full = op.is_far_ahead();
        if op.is_ahead() {
            // What came before it may be lost with its leadership: then this does not come alone.
            let (_, observed) = op.observed();
            let epoch = self.changes.entry.epoch.get_or_insert(observed);
            *epoch = observed.min(*epoch);
        }
        let (seq, epoch) = self.hand_in()?;
        let Some(epoch) = epoch else { return Ok(seq) };
        op.has_written();
        op.goes_ahead(seq, epoch, bytes);
        // It may be the last unit. Whoever has lost patience at the bound, and is not through, goes one unit beyond.
        match op.is_far_ahead() {
            true if was_full => storage.wait_ahead(op)?,
            true => storage.wait_ahead_patiently(op)?,
            false => {}
        }
        Ok(seq)
    }
}

impl Operation {
    fn goes_ahead(&self, seq: Seq, epoch: u64, bytes: u64) {
        self.observe(seq, epoch);
        // Only the thread that runs the operation counts.
        let units = self.units_ahead.load(Ordering::Relaxed) + 1;
        let bytes = self.bytes_ahead.load(Ordering::Relaxed) + bytes;
        self.units_ahead.store(units, Ordering::Relaxed);
        self.bytes_ahead.store(bytes, Ordering::Relaxed);
    }

    /// Whether it has to wait before it goes on.
    fn is_far_ahead(&self) -> bool {
        let (units, bytes) = (&self.units_ahead, &self.bytes_ahead);
        units.load(Ordering::Relaxed) >= UNITS_AHEAD_MAX || bytes.load(Ordering::Relaxed) >= BYTES_AHEAD_MAX
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

    /// As [`Storage::wait_ahead`], and no longer than the operation has patience: then it is still ahead on return.
    pub fn wait_ahead_patiently(&self, op: &Operation) -> Result<(), StorageError> {
        if !op.is_ahead() {
            return Ok(());
        }
        let waited = self.wait_observed_patiently(op);
        if !matches!(waited, Ok(false)) {
            op.units_ahead.store(0, Ordering::Relaxed);
            op.bytes_ahead.store(0, Ordering::Relaxed);
        }
        waited.map(drop)
    }

    /// Waits for a unit that was committed alone. It is ahead when the operation has lost patience.
    pub(super) fn wait_committed(&self, op: &Operation, seq: Seq, epoch: u64) -> Result<(), StorageError> {
        op.has_written();
        if !self.wait_applied_patiently(op, seq, epoch)? {
            op.goes_ahead(seq, epoch, 0);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
