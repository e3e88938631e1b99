//! File operations with the log's errors and counters.
//!
//! A full disk and the want of a file descriptor are told apart here: they are the failures the log outlives, except
//! at a sync, after which nobody knows what is on the disk.

use crate::stats::{Counters, add};
use crate::{LogError, Result};
use crypt::Keys;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Clock, Env, File, FileSystem};

pub(crate) struct Disk {
    pub fs: Arc<dyn FileSystem>,
    pub clock: Arc<dyn Clock>,
    pub counters: Counters,
}

/// The operation named in the error of a failed directory sync.
pub(crate) const SYNC_DIRECTORY: &str = "sync directory";

/// An `Io` error, or `OutOfSpace` or `NoDescriptors` when that is the cause.
pub(crate) fn failure(operation: &'static str, path: &Path, source: std::io::Error) -> LogError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::QuotaExceeded if vfs::is_out_of_descriptors(&source) => LogError::NoDescriptors {
            operation,
            path,
            source,
        },
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => LogError::OutOfSpace {
            operation,
            path,
            source,
        },
        _ => LogError::Io {
            operation,
            path,
            source,
        },
    }
}

impl Disk {
    pub fn new(env: &Env) -> Self {
        Self {
            fs: env.fs.clone(),
            clock: env.clock.clone(),
            counters: Counters::default(),
        }
    }

    /// With what the log is sealed.
    pub fn keys(&self) -> Option<&Keys> {
        self.fs.keys().map(|keys| &**keys)
    }

    pub fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.fs
            .open(path, access)
            .map_err(|source| failure("open", path, source))
    }

    pub fn write(&self, file: &dyn File, path: &Path, bytes: &[u8], offset: u64) -> Result<()> {
        file.write_all_at(bytes, offset)
            .map_err(|source| failure("write", path, source))?;
        add(&self.counters.written_bytes, bytes.len() as u64);
        Ok(())
    }

    pub fn sync_file(&self, file: &dyn File, path: &Path) -> Result<()> {
        self.timed(|| file.sync_data()).map_err(|source| LogError::Io {
            operation: "sync",
            path: path.to_owned(),
            source,
        })
    }

    pub fn sync_directory(&self, path: &Path) -> Result<()> {
        self.timed(|| self.fs.sync_directory(path))
            .map_err(|source| LogError::Io {
                operation: SYNC_DIRECTORY,
                path: path.to_owned(),
                source,
            })
    }

    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.fs
            .rename(from, to)
            .map_err(|source| failure("rename", from, source))
    }

    pub fn remove(&self, path: &Path) -> Result<()> {
        self.fs
            .remove_file(path)
            .map_err(|source| failure("remove", path, source))
    }

    pub fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.fs
            .list(directory)
            .map_err(|source| failure("list", directory, source))
    }

    fn timed(&self, sync: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        let start = self.clock.monotonic();
        let result = sync();
        add(
            &self.counters.sync_us,
            self.clock.monotonic().saturating_sub(start).as_micros() as u64,
        );
        add(&self.counters.syncs, 1);
        result
    }
}
