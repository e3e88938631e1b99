//! The machine's own file system.
//!
//! The only place of the product that calls the operating system's file functions. Knows nothing of what the files
//! hold. Errors keep the operating system's code.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one place that reads and writes the machine's files"
)]

use crate::{Access, DirectoryLock, File, FileSystem, Space};
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::Errno;
use std::fs;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// The file system; it has no state.
    pub fn new() -> Self {
        Self
    }
}

impl FileSystem for RealFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match access {
            Access::Read => {}
            Access::ReadWrite => {
                options.write(true);
            }
            Access::CreateNew => {
                options.write(true).create_new(true);
            }
            Access::OpenOrCreate => {
                options.write(true).create(true).truncate(false);
            }
        }
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        fs::create_dir_all(path)
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let mut names = fs::read_dir(directory)?
            .map(|entry| Ok(PathBuf::from(entry?.file_name())))
            .collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists()
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        fs::File::open(directory)?.sync_all()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock(file)))
    }

    fn space(&self, path: &Path) -> Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }
}

/// Holds the `flock`; the system releases it with the descriptor.
struct RealLock(fs::File);

impl DirectoryLock for RealLock {
    fn write_content(&self, content: &[u8]) -> Result<()> {
        // In this order: a process that is killed in between leaves a file that is not empty.
        self.0.write_all_at(content, 0)?;
        self.0.set_len(content.len() as u64)
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn expect_random_reads(&self) {
        // Only speed depends on it.
        let _ = rustix::fs::fadvise(&self.0, 0, None, Advice::Random);
    }

    fn expect_read(&self, mut offset: u64, mut bytes: u64) {
        // Of one hint, Linux takes no more than it would read on by itself, which is so much unless somebody has set another.
        const PIECE: u64 = 128 * 1024;
        while bytes > 0 {
            let piece = bytes.min(PIECE);
            let _ = rustix::fs::fadvise(&self.0, offset, std::num::NonZeroU64::new(piece), Advice::WillNeed);
            offset += piece;
            bytes -= piece;
        }
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        loop {
            match self.0.read_at(buffer, offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.0.set_len(bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), offset, bytes) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                result => return Ok(result?),
            }
        }
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
