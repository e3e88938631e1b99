//! The machine's own file system.
//!
//! The only place of the product that calls the operating system's file functions. Knows nothing of what the files
//! hold. Errors keep the operating system's code, or, where they get another kind, its words.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the one place that reads and writes the machine's files"
)]

use crate::direct_buffer::{DIRECT_BYTES, DirectBuffer, is_aligned};
use crate::out_of_descriptors::out_of_descriptors;
use crate::{Access, DirectoryLock, File, FileSystem, Space};
use parking_lot::Mutex;
use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file is never opened through a symbolic link, which could lead a write anywhere. (Directories may be links: that
/// is how an operator puts a database on a disk of its own.)
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Descriptors that [`FileSystem::check_descriptors`] keeps for others: one of so many.
const DESCRIPTORS_KEPT_SHARE: u64 = 5;

/// A descriptor to be given up when a directory must be synced and there is no other: to fail there would be to doubt
/// what is on the disk. The process has one, as it has one limit.
static SPARE: Mutex<Option<fs::File>> = Mutex::new(None);

fn any_descriptor() -> Result<fs::File> {
    fs::File::open("/dev/null")
}

/// Whether the system says so: of this process, or of all.
fn has_too_many_files(error: &Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE))
}

/// An error of opening as [`FileSystem`] tells it.
fn opening(error: Error) -> Error {
    match has_too_many_files(&error) {
        true => out_of_descriptors(error),
        false => error,
    }
}

/// Files of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// The file system; it has no state of its own.
    pub fn new() -> Self {
        let mut spare = SPARE.lock();
        if spare.is_none() {
            *spare = any_descriptor().ok();
        }
        Self
    }
}

impl FileSystem for RealFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).custom_flags(NO_LINK);
        match access {
            Access::Read | Access::ReadDirect => {}
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
        let file = options.open(path).map_err(opening)?;
        let direct = match access {
            Access::ReadDirect => Direct::open(path)?,
            _ => None,
        };
        Ok(Arc::new(RealFile { file, direct }))
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
        let mut names = fs::read_dir(directory)
            .map_err(opening)?
            .map(|entry| Ok(PathBuf::from(entry?.file_name())))
            .collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists()
    }

    fn sync_directory(&self, directory: &Path) -> Result<()> {
        let opened = match fs::File::open(directory) {
            Err(error) if has_too_many_files(&error) => {
                let mut spare = SPARE.lock();
                *spare = None;
                let synced = fs::File::open(directory).and_then(|opened| opened.sync_all());
                *spare = any_descriptor().ok();
                return synced;
            }
            opened => opened?,
        };
        opened.sync_all()
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(NO_LINK)
            .open(path)
            .map_err(opening)?;
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

    fn check_descriptors(&self) -> Result<()> {
        // The system gives the lowest free number, so that a number tells how many are taken.
        let taken = any_descriptor().map_err(opening)?.as_raw_fd() as u64;
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        if taken < limit - limit / DESCRIPTORS_KEPT_SHARE {
            return Ok(());
        }
        let reason = format!("{taken} of {limit} file descriptors are taken, and the rest is kept");
        Err(out_of_descriptors(reason))
    }

    fn keys(&self) -> Option<&Arc<crypt::Keys>> {
        None
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

/// A second handle of a file, for reads past the system's cache.
struct Direct {
    file: fs::File,
    /// A read was refused for what it was: the disk has longer sectors, or the file system does not read so after all.
    is_refused: AtomicBool,
}

impl Direct {
    /// `None` where the file system has no such reads.
    fn open(path: &Path) -> Result<Option<Self>> {
        const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;
        match fs::OpenOptions::new()
            .read(true)
            .custom_flags(NO_LINK | DIRECT)
            .open(path)
        {
            Ok(file) => {
                let direct = Self {
                    file,
                    is_refused: AtomicBool::new(false),
                };
                // Only a read tells whether the disk's sectors are short enough.
                let probe = direct.read_at(DirectBuffer::default().filled(DIRECT_BYTES), 0);
                Ok(probe.map(|_| direct))
            }
            Err(error) if is_not_supported(&error) => Ok(None),
            Err(error) => Err(opening(error)),
        }
    }

    /// `None` where it has to be read through the cache.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Option<Result<usize>> {
        if self.is_refused.load(Ordering::Relaxed) || !is_aligned(buffer, offset) {
            return None;
        }
        match read_uninterrupted(&self.file, buffer, offset) {
            Err(error) if is_not_supported(&error) => {
                self.is_refused.store(true, Ordering::Relaxed);
                None
            }
            result => Some(result),
        }
    }
}

/// Whether the system says that it does not do that, ever.
fn is_not_supported(error: &Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::INVAL | Errno::OPNOTSUPP))
}

fn read_uninterrupted(file: &fs::File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

struct RealFile {
    file: fs::File,
    direct: Option<Direct>,
}

impl File for RealFile {
    fn expect_random_reads(&self) {
        // Only speed depends on it.
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::Random);
    }

    fn is_direct(&self) -> bool {
        let refused = |direct: &Direct| direct.is_refused.load(Ordering::Relaxed);
        self.direct.as_ref().is_some_and(|direct| !refused(direct))
    }

    fn expect_no_reads(&self, offset: u64, bytes: u64) {
        if let Some(bytes) = std::num::NonZeroU64::new(bytes) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(bytes), Advice::DontNeed);
        }
    }

    fn expect_read(&self, mut offset: u64, mut bytes: u64) {
        // Of one hint, Linux takes no more than it would read on by itself, which is so much unless somebody has set
        // another.
        const PIECE: u64 = 128 * 1024;
        while bytes > 0 {
            let piece = bytes.min(PIECE);
            let _ = rustix::fs::fadvise(&self.file, offset, std::num::NonZeroU64::new(piece), Advice::WillNeed);
            offset += piece;
            bytes -= piece;
        }
    }

    fn would_wait(&self, offset: u64) -> bool {
        let mut byte = [0];
        let mut buffers = [IoSliceMut::new(&mut byte)];
        rustix::io::preadv2(&self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT).is_err()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let _asleep = crate::asleep();
        let direct = self.direct.as_ref().and_then(|direct| direct.read_at(buffer, offset));
        direct.unwrap_or_else(|| read_uninterrupted(&self.file, buffer, offset))
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn sync_data(&self) -> Result<()> {
        let _asleep = crate::asleep();
        self.file.sync_data()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), offset, bytes) {
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
