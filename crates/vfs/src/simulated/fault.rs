//! Faults that strike single calls.

use std::path::{Path, PathBuf};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// `read_at` fails with an I/O error.
    ReadError,
    /// `read_at` yields fewer bytes than it could, at least one.
    ShortRead,
    /// `write_all_at` fails with an I/O error after any part has been written.
    WriteError,
    /// `write_all_at` finds the disk full after any part has been written, also where nothing grows: as on a file
    /// system that puts what is overwritten in a new place.
    NoSpace,
    /// `sync_data` or `sync_directory` fails with an I/O error; what was unsynced is clean afterwards.
    SyncError,
    /// Creating, removing, renaming or resizing fails with an I/O error and changes nothing.
    MetadataError,
    /// `open` fails as if the process had no descriptor left, and changes nothing; so does `check_descriptors`, on the
    /// path `/`.
    NoDescriptors,
    /// `write_all_at` reports success and the bytes are seen until the restart, but never reach the disk.
    LostWrite,
    /// `write_all_at` reports success and the bytes are seen until the restart, but reach the disk so many bytes
    /// further on (cut at the end of the file); what was at the right place stays.
    MisdirectedWrite {
        /// Distance in bytes.
        by: u64,
    },
}

/// A fault that waits for calls. Built like `Fault::new(FaultKind::SyncError).on("/data/x").after(2)`.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(super) kind: FaultKind,
    path: Option<PathBuf>,
    skip: u64,
    times: u64,
}

impl Fault {
    /// Strikes the next call that it fits, on any file, once.
    pub fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            path: None,
            skip: 0,
            times: 1,
        }
    }

    /// Only calls on the file or directory that had this absolute path when it was opened or renamed last.
    pub fn on(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Lets `calls` fitting calls pass first.
    pub fn after(mut self, calls: u64) -> Self {
        self.skip = calls;
        self
    }

    /// Strikes so many fitting calls.
    pub fn times(mut self, calls: u64) -> Self {
        self.times = calls;
        self
    }

    /// True when the fault is used up.
    pub(super) fn is_spent(&self) -> bool {
        self.times == 0
    }

    /// Takes note of a call; true when it is struck.
    pub(super) fn strikes(&mut self, fits: impl FnOnce(FaultKind) -> bool, path: &Path) -> bool {
        if self.times == 0 || !fits(self.kind) || self.path.as_deref().is_some_and(|wanted| wanted != path) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}
