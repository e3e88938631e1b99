//! The one way into log and engine.

use crate::StorageError;
use crate::entry::EntryWriter;
use crate::storage::Storage;
use engine::{Batch, Seq};
use std::sync::atomic::Ordering;

impl Storage {
    /// Appends an entry, applies its batch, publishes it, and runs `published` before anybody else may commit: what is kept
    /// in memory beside the engine (counts, definitions) changes there, in `Seq` order.
    ///
    /// Errors: before the log has the entry, an error leaves everything as it was. After that, a failure stops the storage.
    pub(crate) fn commit_entry(
        &self,
        entry: &mut EntryWriter,
        batch: &Batch,
        published: impl FnOnce(),
    ) -> Result<Seq, StorageError> {
        let mut commit = self.lock_commit();
        self.check_running()?;
        let bytes = entry.byte_len();
        let seq = entry
            .with_parts(|parts| self.log.append(parts))
            .map_err(|error| self.log_error(error))?;
        if let Err(error) = self.engine.apply(batch, seq) {
            drop(commit);
            return Err(self.stop(&format!("the storage engine failed to apply {seq:?}: {error}")));
        }
        self.engine.publish(seq);
        self.published.store(seq.0, Ordering::Release);
        published();
        commit.log_bytes += bytes as u64;
        let due = self.checkpoint_due(commit.log_bytes);
        drop(commit);
        if due {
            self.checkpointer.wake();
        }
        Ok(seq)
    }
}
