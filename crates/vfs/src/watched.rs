//! A file system of which somebody is told whenever files change or are made durable.

use crate::{Access, DirectoryLock, File, FileSystem, Space};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who is told. What a call answers is held until what it tells of is done.
pub trait Watch: Send + Sync {
    /// Lives while files change.
    type Held<'w>
    where
        Self: 'w;

    /// Bytes or names are about to change.
    fn change(&self) -> Self::Held<'_>;

    /// A file or directory is about to be made durable.
    fn sync(&self) -> Self::Held<'_>;
}

/// See the module. Reads, and the files that locks are taken on, are not told of.
pub struct WatchedFs<W> {
    below: Arc<dyn FileSystem>,
    watch: Arc<W>,
}

impl<W: Watch + 'static> WatchedFs<W> {
    /// `below`, with `watch` told of it.
    pub fn new(below: Arc<dyn FileSystem>, watch: W) -> Self {
        let watch = Arc::new(watch);
        Self { below, watch }
    }

    /// Who is told.
    pub fn watch(&self) -> &W {
        &self.watch
    }
}

impl<W: Watch + 'static> FileSystem for WatchedFs<W> {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let _held = self.watch.change();
        Ok(Arc::new(WatchedFile {
            below: self.below.open(path, access)?,
            watch: Arc::clone(&self.watch),
        }))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let _held = self.watch.change();
        self.below.remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        let _held = self.watch.change();
        self.below.remove_directory_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let _held = self.watch.change();
        self.below.rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        let _held = self.watch.change();
        self.below.create_directory_all(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.below.list(directory)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.below.exists(path)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        let _held = self.watch.sync();
        self.below.sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        self.below.lock(path)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        self.below.space(path)
    }

    fn check_descriptors(&self) -> Result<()> {
        self.below.check_descriptors()
    }

    fn keys(&self) -> Option<&Arc<crypt::Keys>> {
        self.below.keys()
    }
}

struct WatchedFile<W> {
    below: Arc<dyn File>,
    watch: Arc<W>,
}

impl<W: Watch> File for WatchedFile<W> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.below.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _held = self.watch.change();
        self.below.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        let _held = self.watch.sync();
        self.below.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let _held = self.watch.change();
        self.below.set_len(bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        let _held = self.watch.change();
        self.below.allocate(offset, bytes)
    }

    fn expect_random_reads(&self) {
        self.below.expect_random_reads();
    }

    fn is_direct(&self) -> bool {
        self.below.is_direct()
    }

    fn expect_no_reads(&self, offset: u64, bytes: u64) {
        self.below.expect_no_reads(offset, bytes);
    }

    fn expect_read(&self, offset: u64, bytes: u64) {
        self.below.expect_read(offset, bytes);
    }

    fn would_wait(&self, offset: u64) -> bool {
        self.below.would_wait(offset)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

    use super::*;
    use crate::SimulatedFs;
    use parking_lot::Mutex;

    /// What is under way, and what was told.
    #[derive(Default)]
    struct Diary(Mutex<(u32, Vec<&'static str>)>);

    struct UnderWay<'w>(&'w Diary);

    impl Drop for UnderWay<'_> {
        fn drop(&mut self) {
            self.0.0.lock().0 -= 1;
        }
    }

    impl Diary {
        fn note(&self, what: &'static str) -> UnderWay<'_> {
            let mut diary = self.0.lock();
            diary.0 += 1;
            diary.1.push(what);
            UnderWay(self)
        }
    }

    impl Watch for Diary {
        type Held<'w> = UnderWay<'w>;

        fn change(&self) -> UnderWay<'_> {
            self.note("change")
        }

        fn sync(&self) -> UnderWay<'_> {
            self.note("sync")
        }
    }

    #[test]
    fn each_change_and_each_sync_is_told_of_once_and_no_read() {
        let fs = WatchedFs::new(Arc::new(SimulatedFs::new(1)), Diary::default());
        let told = |what: &[&str]| {
            let mut diary = fs.watch().0.lock();
            assert_eq!(diary.0, 0, "nothing is under way any more");
            assert_eq!(std::mem::take(&mut diary.1), what);
        };
        let (directory, path, other) = (Path::new("/d"), Path::new("/d/a"), Path::new("/d/b"));
        fs.create_directory_all(directory).unwrap();
        let file = fs.open(path, Access::CreateNew).unwrap();
        told(&["change", "change"]);
        file.write_all_at(b"text", 0).unwrap();
        file.allocate(0, 8).unwrap();
        file.set_len(6).unwrap();
        told(&["change", "change", "change"]);
        file.sync_data().unwrap();
        fs.sync_directory(directory).unwrap();
        told(&["sync", "sync"]);
        let mut read = [0; 4];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!((&read, file.len().unwrap()), (b"text", 6));
        assert!(fs.exists(path).unwrap());
        assert_eq!(fs.list(directory).unwrap(), [Path::new("a")]);
        told(&[]);
        fs.rename(path, other).unwrap();
        fs.remove_file(other).unwrap();
        fs.remove_directory_all(directory).unwrap();
        told(&["change", "change", "change"]);
        assert!(!fs.exists(directory).unwrap());
    }
}
