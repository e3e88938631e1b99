//! The directory of temporary files, and one such file while it is written.

use crate::error::{Result, SpillError};
use crate::format::{self, BlockPlace, FILE_HEADER_BYTES};
use codec::{Codec, Compressor};
use crypt::Keys;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Access, File, FileSystem};

/// Blocks are gathered until they are at least so many bytes, and written at once.
const WRITE_BYTES: usize = 1 << 20;

/// Of the process, and not of a space: whoever still has a file of an earlier space does not remove one of a later.
static NEXT_FILE: AtomicU64 = AtomicU64::new(1);

const NAME_PREFIX: &str = "spill-";
const NAME_SUFFIX: &str = ".tmp";

/// The directory that temporary files are made in.
pub struct SpillSpace {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    available_bytes_min: AtomicU64,
}

impl std::fmt::Debug for SpillSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpillSpace({})", self.directory.display())
    }
}

impl SpillSpace {
    /// Opens a directory, which is made where it is missing, and removes the files that an earlier process has left in
    /// it. Other files in it stay.
    ///
    /// Errors: `Io`, `NoSpace`.
    pub fn open(fs: Arc<dyn FileSystem>, directory: PathBuf) -> Result<Arc<Self>> {
        fs.create_directory_all(&directory)
            .map_err(|error| SpillError::io("create", &directory, error))?;
        let names = fs
            .list(&directory)
            .map_err(|error| SpillError::io("list", &directory, error))?;
        for name in names.iter().filter(|name| is_own(name)) {
            let path = directory.join(name);
            fs.remove_file(&path)
                .map_err(|error| SpillError::io("remove", &path, error))?;
        }
        Ok(Arc::new(Self {
            fs,
            directory,
            available_bytes_min: AtomicU64::new(0),
        }))
    }

    /// Sets how many bytes of the disk have to stay free: a write that would leave less fails.
    pub fn set_available_bytes_min(&self, bytes: u64) {
        self.available_bytes_min.store(bytes, Ordering::Relaxed);
    }

    /// Makes a file.
    ///
    /// Errors: `Io`, also where the process has few file descriptors left; `NoSpace`.
    pub fn create(self: &Arc<Self>) -> Result<SpillWriter> {
        let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{NAME_PREFIX}{number}{NAME_SUFFIX}"));
        let failed = |error| SpillError::io("create", &path, error);
        self.fs.check_descriptors().map_err(failed)?;
        let file = self.fs.open(&path, Access::CreateNew).map_err(failed)?;
        let compressor = Compressor::new(Codec::Snappy).map_err(|error| failed(std::io::Error::other(error)))?;
        Ok(SpillWriter {
            file: Arc::new(SpillFile {
                space: self.clone(),
                file,
                path,
                number,
                written: AtomicU64::new(0),
            }),
            compressor,
            pending: format::file_header().to_vec(),
            written: 0,
        })
    }

    fn check(&self, more: usize) -> Result<()> {
        let available_min = self.available_bytes_min.load(Ordering::Relaxed);
        let space = self.fs.space(&self.directory);
        let available = space
            .map_err(|error| SpillError::io("ask for the free space of", &self.directory, error))?
            .available_bytes;
        match available.saturating_sub(more as u64) >= available_min {
            true => Ok(()),
            false => Err(SpillError::NoSpace {
                path: self.directory.clone(),
                reason: format!(
                    "{more} more bytes of the {available} available ones would leave less than the minimum of \
                     {available_min}"
                ),
            }),
        }
    }
}

/// Whether a file of this name in the directory is one that [`SpillSpace::create`] makes.
fn is_own(name: &Path) -> bool {
    let number = name
        .to_str()
        .and_then(|name| name.strip_prefix(NAME_PREFIX)?.strip_suffix(NAME_SUFFIX));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A file, removed when nobody has it any more.
pub(crate) struct SpillFile {
    space: Arc<SpillSpace>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) path: PathBuf,
    pub(crate) number: u64,
    /// Bytes that can be read back.
    pub(crate) written: AtomicU64,
}

impl SpillFile {
    /// With what its blocks are sealed.
    pub(crate) fn keys(&self) -> Option<&Keys> {
        self.space.fs.keys().map(|keys| &**keys)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // One that cannot be removed goes when the space is opened the next time.
        let _ = self.space.fs.remove_file(&self.path);
    }
}

/// A file while blocks are added to it.
pub struct SpillWriter {
    pub(crate) file: Arc<SpillFile>,
    compressor: Compressor,
    /// Blocks that follow what is written.
    pending: Vec<u8>,
    written: u64,
}

impl SpillWriter {
    /// Bytes of the file, with those that are not written yet.
    pub fn bytes(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    /// Appends a block with these rows, and returns where it begins.
    pub(crate) fn append(&mut self, raw: &[u8]) -> Result<u64> {
        let offset = self.bytes();
        let place = BlockPlace {
            file: self.file.number,
            offset,
        };
        let keys = self.file.keys();
        format::append_block(place, raw, &mut self.compressor, keys, &mut self.pending)
            .map_err(|error| SpillError::io("compress for", &self.file.path, std::io::Error::other(error)))?;
        if self.pending.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Writes what is pending, so that it can be read back.
    ///
    /// Errors: `NoSpace`, `Io`. Afterwards nothing of the file can be relied on.
    pub fn flush(&mut self) -> Result<()> {
        debug_assert!(self.written == 0 || self.written >= FILE_HEADER_BYTES as u64);
        if self.pending.is_empty() {
            return Ok(());
        }
        self.file.space.check(self.pending.len())?;
        self.file
            .file
            .write_all_at(&self.pending, self.written)
            .map_err(|error| SpillError::io("write", &self.file.path, error))?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        self.file.written.store(self.written, Ordering::Release);
        Ok(())
    }
}
