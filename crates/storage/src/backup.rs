//! Hot backup: a pinned checkpoint of the engine, and the segments of the log with what came after it.
//!
//! A copy of the files is what a crash would have left at the moment the log was pinned: opening it replays the log.
//! Order: the checkpoint is pinned first, the log after it, so that the log has every entry the checkpoint lacks, and
//! those since the counts were written down. Both under the checkpoint mutex: no checkpoint purges the log in between.

use crate::StorageError;
use crate::storage::Storage;
use engine::{Backup, EngineError, Seq};
use oplog::{LogError, PinnedLog};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that stay fit for copying until this is dropped.
pub struct StorageBackup {
    // Dropped in this order: the next backup begins when all is released.
    /// None of a backup of the log alone.
    engine: Option<Box<dyn Backup>>,
    seq: Seq,
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
        let only = self.only_backup()?;
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
        let log = self.pinned_log(engine.seq().min(counted_at))?;
        Ok(StorageBackup {
            seq: engine.seq(),
            engine: Some(engine),
            log,
            _only: only,
        })
    }

    /// Begins a backup of the log alone, with everything that is in it, to be added to an earlier backup. No checkpoint
    /// is taken, which would have the log forget what that backup ends with. With every engine.
    ///
    /// Errors: [`StorageError::BackupOpen`]; those of the log, `NoJournal` among them.
    pub fn backup_log(&self) -> Result<StorageBackup, StorageError> {
        if !self.options.journal {
            return Err(StorageError::Log(LogError::NoJournal));
        }
        let only = self.only_backup()?;
        let _running = self.checkpointer.running.lock();
        let seq = Seq(self.log.first_seq().0.saturating_sub(1));
        let log = self.pinned_log(seq)?;
        Ok(StorageBackup {
            engine: None,
            seq,
            log,
            _only: only,
        })
    }

    fn only_backup(&self) -> Result<OnlyBackup, StorageError> {
        match self.backup_open.swap(true, Ordering::AcqRel) {
            true => Err(StorageError::BackupOpen),
            false => Ok(OnlyBackup(self.backup_open.clone())),
        }
    }

    /// The log behind `after`. What is published is known to stay by it, also where others have a say.
    fn pinned_log(&self, after: Seq) -> Result<PinnedLog, StorageError> {
        let pinned = match self.options.journal {
            true => self.log.write_commit(self.pipeline.published()),
            false => Ok(()),
        };
        let pinned = pinned.and_then(|()| self.log.pin(after));
        pinned.map_err(|error| self.log_error(error))
    }

    /// Whether a backup is open.
    pub fn is_backup_open(&self) -> bool {
        self.backup_open.load(Ordering::Acquire)
    }
}

impl StorageBackup {
    /// The checkpoint's place in the log; of a backup of the log alone, the one before its first entry.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The engine's files, relative to its directory, and how many bytes of each to copy.
    pub fn engine_files(&self) -> Vec<(PathBuf, u64)> {
        self.engine.as_ref().map(|engine| engine.files()).unwrap_or_default()
    }

    /// The log's files, by whole path, and how many bytes of each to copy.
    pub fn log_files(&self) -> Vec<(PathBuf, u64)> {
        self.log.files()
    }
}

#[cfg(test)]
#[path = "backup_tests.rs"]
mod tests;
