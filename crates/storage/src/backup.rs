//! Hot backup: a pinned checkpoint of the engine, and the segments of the log with what came after it.
//!
//! A copy of the files is what a crash would have left at the moment the log was pinned: opening it replays the log.
//! Order: the checkpoint is pinned first, the log after it, so that the log has every entry the checkpoint lacks, and
//! those since the counts were written down. Both under the checkpoint mutex: no checkpoint purges the log in between.

use crate::StorageError;
use crate::storage::Storage;
use engine::{Backup, EngineError, Seq};
use oplog::PinnedLog;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that stay fit for copying until this is dropped.
pub struct StorageBackup {
    // Dropped in this order: the next backup begins when all is released.
    engine: Box<dyn Backup>,
    log: PinnedLog,
    _only: OnlyBackup,
}

/// The mark that a backup is open.
struct OnlyBackup(Arc<AtomicBool>);

impl Drop for OnlyBackup {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Storage {
    /// Begins a backup. It has every write that was published before the call. Takes a checkpoint, and waits for one
    /// that is running; reads and writes go on. While the backup is open, space in the engine's files is not reused,
    /// and the log keeps what the backup needs.
    ///
    /// Errors: [`StorageError::BackupOpen`]; `Unsupported` from engines without hot backup; those of
    /// [`Storage::checkpoint`].
    pub fn backup(&self) -> Result<StorageBackup, StorageError> {
        if self.backup_open.swap(true, Ordering::AcqRel) {
            return Err(StorageError::BackupOpen);
        }
        let only = OnlyBackup(self.backup_open.clone());
        let info = self.engine.info();
        let unsupported = EngineError::Unsupported {
            engine: info.name,
            operation: "hot backup",
        };
        if !info.capabilities.hot_backup {
            return Err(unsupported.into());
        }
        let running = self.checkpointer.running.lock();
        self.checkpoint_alone(&running)?;
        let engine = self.engine.backup()?;
        if engine.root() != Path::new("") {
            // The copies would have to go elsewhere than the files lie, which no list of files says.
            return Err(unsupported.into());
        }
        let counted_at = self.pipeline.applying.lock().counted_at;
        let log = self.log.pin(engine.seq().min(counted_at));
        let log = log.map_err(|error| self.log_error(error))?;
        Ok(StorageBackup {
            engine,
            log,
            _only: only,
        })
    }

    /// Whether a backup is open.
    pub fn is_backup_open(&self) -> bool {
        self.backup_open.load(Ordering::Acquire)
    }
}

impl StorageBackup {
    /// The checkpoint's place in the log.
    pub fn seq(&self) -> Seq {
        self.engine.seq()
    }

    /// The engine's files, relative to its directory, and how many bytes of each to copy.
    pub fn engine_files(&self) -> Vec<(PathBuf, u64)> {
        self.engine.files()
    }

    /// The log's files, by whole path, and how many bytes of each to copy.
    pub fn log_files(&self) -> Vec<(PathBuf, u64)> {
        self.log.files()
    }
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
