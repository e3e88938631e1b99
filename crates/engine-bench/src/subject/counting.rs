//! The machine's file system, with its syncs counted. It changes nothing else.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Access, DirectoryLock, File, FileSystem, RealFs, Space};

/// Counts the syncs of files and directories.
pub(super) struct CountingFs {
    inner: RealFs,
    syncs: Arc<AtomicU64>,
}

impl CountingFs {
    /// With the count at zero.
    pub fn new() -> Self {
        Self {
            inner: RealFs,
            syncs: Arc::default(),
        }
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }
}

impl FileSystem for CountingFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, access)?;
        let syncs = self.syncs.clone();
        Ok(Arc::new(CountingFile { inner, syncs }))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        self.inner.remove_directory_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        self.inner.create_directory_all(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.inner.list(directory)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        self.inner.lock(path)
    }

    fn check_descriptors(&self) -> Result<()> {
        self.inner.check_descriptors()
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.inner.space(path)
    }
}

struct CountingFile {
    inner: Arc<dyn File>,
    syncs: Arc<AtomicU64>,
}

impl File for CountingFile {
    fn expect_random_reads(&self) {
        self.inner.expect_random_reads();
    }

    fn expect_read(&self, offset: u64, bytes: u64) {
        self.inner.expect_read(offset, bytes);
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.inner.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.inner.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.inner.allocate(offset, bytes)
    }
}
