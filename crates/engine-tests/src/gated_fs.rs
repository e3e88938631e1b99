//! The machine's file system behind a gate: while it is shut, nobody changes anything.
//!
//! It shows one moment of a directory in which an engine's threads go on writing. Files that an engine opens by itself
//! do not pass the gate.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vfs::{Access, DirectoryLock, File, FileSystem, RealFs, Space};

/// Who holds it shared may change one thing.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<RwLock<()>>);

impl Gate {
    /// Nothing is changed until the guard goes.
    pub(crate) fn shut(&self) -> RwLockWriteGuard<'_, ()> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct GatedFs {
    pub(crate) gate: Gate,
}

impl FileSystem for GatedFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let _open = self.gate.pass();
        Ok(Arc::new(GatedFile {
            file: RealFs.open(path, access)?,
            gate: self.gate.clone(),
        }))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let _open = self.gate.pass();
        RealFs.remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        let _open = self.gate.pass();
        RealFs.remove_directory_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let _open = self.gate.pass();
        RealFs.rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        let _open = self.gate.pass();
        RealFs.create_directory_all(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        RealFs.list(directory)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        RealFs.exists(path)
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        RealFs.sync_directory(directory)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        RealFs.lock(path)
    }

    fn space(&self, path: &Path) -> Result<Space> {
        RealFs.space(path)
    }

    fn check_descriptors(&self) -> Result<()> {
        RealFs.check_descriptors()
    }
}

struct GatedFile {
    file: Arc<dyn File>,
    gate: Gate,
}

impl File for GatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let _open = self.gate.pass();
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let _open = self.gate.pass();
        self.file.set_len(bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        let _open = self.gate.pass();
        self.file.allocate(offset, bytes)
    }

    fn expect_random_reads(&self) {
        self.file.expect_random_reads();
    }

    fn expect_read(&self, offset: u64, bytes: u64) {
        self.file.expect_read(offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn nothing_changes_while_the_gate_is_shut() {
        let directory = tempfile::TempDir::new().unwrap();
        let fs = GatedFs::default();
        let paths = ["a", "b"].map(|name| directory.path().join(name));
        let files = paths.clone().map(|path| fs.open(&path, Access::CreateNew).unwrap());
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = 0u64;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    files[0].write_all_at(&round.to_le_bytes(), 0).unwrap();
                    files[1].write_all_at(&round.to_le_bytes(), 0).unwrap();
                }
            });
            for _ in 0..200 {
                let _shut = fs.gate.shut();
                let read = |index: usize| {
                    let mut bytes = [0; 8];
                    // Nothing was written yet: as if it were 0.
                    let _ = files[index].read_at(&mut bytes, 0).unwrap();
                    u64::from_le_bytes(bytes)
                };
                let (first, second, again) = (read(0), read(1), read(0));
                assert_eq!(first, again);
                assert!(first == second || first == second + 1, "{first} {second}");
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
