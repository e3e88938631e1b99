//! Hot backup: a pinned checkpoint.

use blocks::PinnedCheckpoint;
use engine::{Backup, Seq};
use std::path::PathBuf;

/// The files of a checkpoint, kept as they are while this lives.
pub(crate) struct PinnedBackup {
    pin: PinnedCheckpoint,
}

impl PinnedBackup {
    pub(crate) fn new(pin: PinnedCheckpoint) -> Self {
        Self { pin }
    }
}

impl Backup for PinnedBackup {
    fn seq(&self) -> Seq {
        Seq(self.pin.seq())
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        self.pin.files()
    }
}
