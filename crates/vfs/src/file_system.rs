//! The traits every file access goes through. Errors are `std::io::Error`; callers add the path and what they were
//! doing.

use crypt::Keys;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How [`FileSystem::open`] opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The file must exist; writes fail.
    Read,
    /// As `Read`, for who keeps what was read: reads of whole sectors into a [`crate::DirectBuffer`] go past the
    /// system's cache where disk and file system can do that, and through it otherwise.
    ReadDirect,
    /// The file must exist.
    ReadWrite,
    /// The file must not exist.
    CreateNew,
    /// Open or create; an existing file keeps its bytes.
    OpenOrCreate,
}

/// Bytes of the file system that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes an unprivileged writer may still use.
    pub available_bytes: u64,
}

/// A tree of directories and files. Out of file descriptors is told as a quota that is used up (`QuotaExceeded`): as on
/// a full disk, nothing was done, and it works again when others have given theirs back
/// ([`crate::is_out_of_descriptors`] tells one from the other). Directory entries (create, remove, rename) are durable
/// only after [`FileSystem::sync_directory`] of the parent.
pub trait FileSystem: Send + Sync {
    /// Opens or creates a file.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Removes a directory and everything below it; a missing one is fine.
    fn remove_directory_all(&self, path: &Path) -> Result<()>;
    /// Renames a file or directory, replacing a file of the new name atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Creates a directory and its missing parents.
    fn create_directory_all(&self, path: &Path) -> Result<()>;
    /// Names (not paths) of the entries of a directory, sorted.
    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>>;
    /// True when a file or directory of that path exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Makes the directory's entries durable.
    fn sync_directory(&self, directory: &Path) -> Result<()>;
    /// Takes an exclusive lock by the named file (created when missing), held until the guard is dropped or the process
    /// ends; `WouldBlock` when another process has it.
    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>>;
    /// Space of the file system holding `path`, which has to exist.
    fn space(&self, path: &Path) -> Result<Space>;
    /// Fails when the process has so few descriptors left that no more file may be opened that stays open and that
    /// could be refused, such as one for each database: the rest is for what cannot wait, such as the log's next
    /// segment.
    fn check_descriptors(&self) -> Result<()>;
    /// The keys under which whoever writes data here must seal it; `None`: data is written as it is. Required, and
    /// without a default body: a wrapper that forgot to hand them on would have plain text written.
    fn keys(&self) -> Option<&Arc<Keys>>;
}

/// Guard of [`FileSystem::lock`].
pub trait DirectoryLock: Send + Sync {
    /// Replaces the lock file's content (a process id for the operator to read).
    fn write_content(&self, content: &[u8]) -> Result<()>;
}

/// An open file. Positioned reads and writes only, usable from many threads.
pub trait File: Send + Sync {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at end of file. May be short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all of `bytes` at `offset`, extending the file as needed. Nothing is durable before a sync. After an
    /// error any part may have been written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Makes the data (and the length needed to read it) durable. **After an error the unsynced data must be taken as
    /// lost**: calling again proves nothing.
    fn sync_data(&self) -> Result<()>;
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// True when the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, bytes: u64) -> Result<()>;
    /// Reserves blocks for `[offset, offset + bytes)`, extending the file; a file system without support does nothing.
    fn allocate(&self, offset: u64, bytes: u64) -> Result<()>;
    /// A hint that each read is of what is wanted and no more, in no order: the system need not read on behind it. On a
    /// file system without such hints it does nothing.
    fn expect_random_reads(&self) {}
    /// Whether the file was opened for direct reads ([`Access::ReadDirect`]), and so far they succeed.
    fn is_direct(&self) -> bool {
        false
    }
    /// A hint that what is durable of `[offset, offset + bytes)` need not stay in the system's cache.
    fn expect_no_reads(&self, _offset: u64, _bytes: u64) {}
    /// A hint that `[offset, offset + bytes)` will be read soon: the system may read it now, in as large pieces as it
    /// likes. Does not wait for that.
    fn expect_read(&self, _offset: u64, _bytes: u64) {}
    /// Whether a read at `offset` through the system's cache would wait for the disk. True where that is not known.
    fn would_wait(&self, _offset: u64) -> bool {
        true
    }
    /// Fills `buffer` from `offset`; `UnexpectedEof` when the file ends first.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                n => {
                    buffer = &mut buffer[n..];
                    offset += n as u64;
                }
            }
        }
        Ok(())
    }
}

/// Creates a directory and its missing parents, and makes their entries durable: what lies in a directory survives a
/// crash only if the directory itself does. A directory that exists already is taken to be durable.
pub fn create_directory_durably(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    let mut created = Vec::new();
    for ancestor in path.ancestors() {
        if ancestor.as_os_str().is_empty() || fs.exists(ancestor)? {
            break;
        }
        created.push(ancestor);
    }
    fs.create_directory_all(path)?;
    for directory in created.into_iter().rev() {
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs.sync_directory(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}
