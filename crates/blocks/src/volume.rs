//! The file of a volume: its length ahead of the writes, and whether it must be synced. Knows nothing of what lies
//! where.

use crate::limits::GROWTH_BYTES;
use crate::sealing::Sealing;
use crate::{BlockError, Near, Result, VolumeId};
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::{Access, File, FileSystem};

/// An open volume.
pub(crate) struct Volume {
    pub id: VolumeId,
    pub name: String,
    pub path: PathBuf,
    pub file: Arc<dyn File>,
    /// The same file for reads of single blocks: behind those the system reads nothing on, as it does behind many in
    /// order. Directly, where that was asked for and can be.
    pub single: Arc<dyn File>,
    /// What is in it is sealed, with this.
    pub sealing: Option<Sealing>,
    /// Written to since the last sync. Set after the write, taken before the sync.
    dirty: AtomicBool,
    /// Bytes reserved in the file; what is written lies below.
    length: AtomicU64,
    /// Held while the length changes, file calls included: who finds it taken needs the very space that is being made.
    growth: Mutex<()>,
}

impl Volume {
    /// `file` is open at `path`; `access` is how single blocks are read.
    #[expect(clippy::too_many_arguments, reason = "what a volume is")]
    pub fn new(
        fs: &dyn FileSystem,
        access: Access,
        sealing: Option<Sealing>,
        id: VolumeId,
        name: &str,
        path: PathBuf,
        file: Arc<dyn File>,
        length: u64,
    ) -> Result<Self> {
        let single = fs.open(&path, access).map_err(BlockError::io("open", &path))?;
        single.expect_random_reads();
        Ok(Self {
            id,
            name: name.to_owned(),
            path,
            file,
            single,
            sealing,
            dirty: AtomicBool::new(false),
            length: AtomicU64::new(length),
            growth: Mutex::new(()),
        })
    }

    /// The file to read a block from.
    pub fn file_for(&self, near: Near) -> &dyn File {
        match near {
            Near::Nothing => &*self.single,
            Near::Others => &*self.file,
        }
    }

    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// The step in which a file of that length grows, and the slack it is left.
    fn step(length: u64) -> u64 {
        (length / 128).clamp(*GROWTH_BYTES.start(), *GROWTH_BYTES.end())
    }

    fn aim(end: u64) -> u64 {
        (end + Self::step(end)).next_multiple_of(*GROWTH_BYTES.start())
    }

    /// Writes at an offset, having reserved the space.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.reserve(offset + bytes.len() as u64)?;
        self.file
            .write_all_at(bytes, offset)
            .map_err(BlockError::io("write to", &self.path))?;
        self.dirty.store(true, Ordering::Release);
        Ok(())
    }

    fn reserve(&self, end: u64) -> Result<()> {
        if end <= self.length() {
            return Ok(());
        }
        let _growing = self.growth.lock();
        let length = self.length();
        if end <= length {
            return Ok(());
        }
        let mut result = self.grow(length, Self::aim(end));
        if result
            .as_ref()
            .is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
        {
            // The last bytes of a full disk, without anything ahead.
            result = self.grow(length, end);
        }
        result.map_err(BlockError::io("reserve space in", &self.path))
    }

    /// Makes the file longer by a step, for nobody yet: whether the disk has room again.
    pub fn can_grow(&self) -> bool {
        let _growing = self.growth.lock();
        let length = self.length();
        self.grow(length, Self::aim(length + 1)).is_ok()
    }

    /// Makes the file `aim` long instead of `length`. Under `growth`.
    fn grow(&self, length: u64, aim: u64) -> std::io::Result<()> {
        let grown = self.file.allocate(length, aim - length);
        match &grown {
            Ok(()) => self.length.store(aim, Ordering::Release),
            // An attempt may have taken what there was, which others need on a full disk. What stays is no harm to us.
            Err(_) => drop(self.file.set_len(length)),
        }
        grown
    }

    /// Gives back space at the end. `busy_end` tells the bytes in use, `None` when the file must stay; it is called
    /// with the growth lock held and must itself take the lock under which space is handed out: what is handed out
    /// later lies beyond the new length, and waits in `reserve` until the file is cut.
    pub fn shrink(&self, busy_end: impl FnOnce(&dyn Fn(u64) -> bool) -> bool) {
        let _growing = self.growth.lock();
        let lower = |end: u64| {
            let aim = Self::aim(end);
            let shrinks = self.length() > aim + Self::step(end);
            if shrinks {
                self.length.store(aim, Ordering::Release);
            }
            shrinks
        };
        if busy_end(&lower) {
            // A file that stays too long is no harm: the next time may succeed, and reserving what is there costs
            // little.
            let _ = self.file.set_len(self.length());
        }
    }

    /// Syncs what was written; true when there was something.
    pub fn sync(&self) -> Result<bool> {
        if !self.dirty.swap(false, Ordering::AcqRel) {
            return Ok(false);
        }
        self.file.sync_data().map_err(BlockError::io("sync", &self.path))?;
        if self.single.is_direct() {
            // What was written lies there, too, and blocks are not read from there.
            self.file.expect_no_reads(0, self.length());
        }
        Ok(true)
    }
}
