//! A file system whose files can be read and not changed: what is written stays in memory, over what is there.
//!
//! Whoever opens a data directory through it can recover, repair and write as if the directory were its own, and leaves
//! no trace. Nothing is durable: syncs do nothing. Memory grows by what is written.
//!
//! Invariant: no call of the file system below is one that changes it.

use crate::{Access, DirectoryLock, File, FileSystem, Space};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is written is kept in pieces of so many bytes.
const PAGE_BYTES: usize = 4096;

/// See the module.
pub struct OverlayFs {
    below: Arc<dyn FileSystem>,
    entries: Mutex<BTreeMap<PathBuf, Entry>>,
}

/// What has become of a path.
#[derive(Clone)]
enum Entry {
    /// A file that was opened, made or renamed to here.
    File(Arc<OverlayFile>),
    /// A directory that was made here; what lies below it in the file system below does not count.
    Directory,
    /// Nothing is here any more.
    Removed,
}

impl OverlayFs {
    /// One without any change.
    pub fn new(below: Arc<dyn FileSystem>) -> Self {
        Self {
            below,
            entries: Mutex::default(),
        }
    }

    /// True when the file system below says what is at `path`.
    fn is_below(entries: &BTreeMap<PathBuf, Entry>, path: &Path) -> bool {
        path.ancestors().all(|part| {
            let hides = match entries.get(part) {
                Some(Entry::Removed) => true,
                Some(Entry::Directory) => part != path,
                Some(Entry::File(_)) | None => false,
            };
            !hides
        })
    }

    fn exists_in(&self, entries: &BTreeMap<PathBuf, Entry>, path: &Path) -> Result<bool> {
        match entries.get(path) {
            Some(Entry::File(_) | Entry::Directory) => Ok(true),
            Some(Entry::Removed) => Ok(false),
            None if Self::is_below(entries, path) => self.below.exists(path),
            None => Ok(false),
        }
    }

    /// The file at a path, from below if need be.
    fn file(&self, entries: &mut BTreeMap<PathBuf, Entry>, path: &Path) -> Result<Arc<OverlayFile>> {
        match entries.get(path) {
            Some(Entry::File(file)) => return Ok(file.clone()),
            None if Self::is_below(entries, path) => {}
            _ => return Err(ErrorKind::NotFound.into()),
        }
        let below = self.below.open(path, Access::Read)?;
        let bytes = below.len()?;
        let file = Arc::new(OverlayFile {
            state: RwLock::new(Content {
                bytes,
                below_bytes: bytes,
                pages: BTreeMap::new(),
            }),
            below: Some(below),
        });
        entries.insert(path.to_owned(), Entry::File(file.clone()));
        Ok(file)
    }

    fn list_in(&self, entries: &BTreeMap<PathBuf, Entry>, directory: &Path) -> Result<Vec<PathBuf>> {
        if matches!(entries.get(directory), Some(Entry::File(_))) {
            return Err(ErrorKind::NotADirectory.into());
        }
        let is_made = matches!(entries.get(directory), Some(Entry::Directory));
        let mut names = BTreeSet::new();
        if !is_made && Self::is_below(entries, directory) {
            names.extend(self.below.list(directory)?);
        } else if !is_made {
            return Err(ErrorKind::NotFound.into());
        }
        for (path, entry) in entries.range(directory.to_owned()..) {
            if !path.starts_with(directory) {
                // Paths below a directory may stand behind others that begin like it.
                if !path
                    .as_os_str()
                    .as_encoded_bytes()
                    .starts_with(directory.as_os_str().as_encoded_bytes())
                {
                    break;
                }
                continue;
            }
            if path.parent() != Some(directory) {
                continue;
            }
            let name = PathBuf::from(path.file_name().unwrap_or_default());
            match entry {
                Entry::Removed => names.remove(&name),
                Entry::File(_) | Entry::Directory => names.insert(name),
            };
        }
        Ok(names.into_iter().collect())
    }

    fn forget_below(entries: &mut BTreeMap<PathBuf, Entry>, path: &Path) {
        entries.retain(|entry, _| !entry.starts_with(path));
        entries.insert(path.to_owned(), Entry::Removed);
    }

    fn rename_in(&self, entries: &mut BTreeMap<PathBuf, Entry>, from: &Path, to: &Path) -> Result<()> {
        match self.list_in(entries, from) {
            Ok(names) => {
                Self::forget_below(entries, to);
                entries.insert(to.to_owned(), Entry::Directory);
                for name in names {
                    self.rename_in(entries, &from.join(&name), &to.join(&name))?;
                }
                Self::forget_below(entries, from);
            }
            // No directory, as far as can be told.
            Err(_) => {
                let file = self.file(entries, from)?;
                entries.insert(to.to_owned(), Entry::File(file));
                entries.insert(from.to_owned(), Entry::Removed);
            }
        }
        Ok(())
    }
}

impl FileSystem for OverlayFs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let mut entries = self.entries.lock();
        let found = match access {
            Access::CreateNew if self.exists_in(&entries, path)? => return Err(ErrorKind::AlreadyExists.into()),
            Access::CreateNew => Err(Error::from(ErrorKind::NotFound)),
            _ => self.file(&mut entries, path),
        };
        match (found, access) {
            (Err(error), Access::CreateNew | Access::OpenOrCreate) if error.kind() == ErrorKind::NotFound => {
                let file = Arc::new(OverlayFile {
                    below: None,
                    state: RwLock::default(),
                });
                entries.insert(path.to_owned(), Entry::File(file.clone()));
                Ok(file)
            }
            (Ok(file), _) => Ok(file),
            (Err(error), _) => Err(error),
        }
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut entries = self.entries.lock();
        if !self.exists_in(&entries, path)? {
            return Err(ErrorKind::NotFound.into());
        }
        entries.insert(path.to_owned(), Entry::Removed);
        Ok(())
    }

    fn remove_directory_all(&self, path: &Path) -> Result<()> {
        Self::forget_below(&mut self.entries.lock(), path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut entries = self.entries.lock();
        if !self.exists_in(&entries, from)? {
            return Err(ErrorKind::NotFound.into());
        }
        self.rename_in(&mut entries, from, to)
    }

    fn create_directory_all(&self, path: &Path) -> Result<()> {
        let mut entries = self.entries.lock();
        for part in path.ancestors() {
            if part.as_os_str().is_empty() || self.exists_in(&entries, part)? {
                break;
            }
            entries.insert(part.to_owned(), Entry::Directory);
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        self.list_in(&self.entries.lock(), directory)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.exists_in(&self.entries.lock(), path)
    }

    fn sync_directory(&self, _directory: &Path) -> Result<()> {
        Ok(())
    }

    /// Locks nothing: who wants to keep others away locks in the file system below.
    fn lock(&self, path: &Path) -> Result<Box<dyn DirectoryLock>> {
        let file = self.open(path, Access::OpenOrCreate)?;
        Ok(Box::new(OverlayLock(file)))
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

struct OverlayLock(Arc<dyn File>);

impl DirectoryLock for OverlayLock {
    fn write_content(&self, content: &[u8]) -> Result<()> {
        self.0.set_len(0)?;
        self.0.write_all_at(content, 0)
    }
}

struct OverlayFile {
    below: Option<Arc<dyn File>>,
    state: RwLock<Content>,
}

/// Invariant: bytes of `pages` behind `bytes` are zero.
#[derive(Default)]
struct Content {
    bytes: u64,
    /// Of the file below no more than this counts: it was cut there.
    below_bytes: u64,
    /// Pieces that were written, by their number.
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl OverlayFile {
    /// What the file below has at `offset`, and zeros where it has nothing.
    fn read_below(&self, content: &Content, buffer: &mut [u8], offset: u64) -> Result<()> {
        buffer.fill(0);
        let Some(below) = &self.below else { return Ok(()) };
        let there = content.below_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        below.read_exact_at(&mut buffer[..there], offset)
    }
}

impl File for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let content = self.state.read();
        let length = content.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..length];
        if content.pages.is_empty() {
            self.read_below(&content, buffer, offset)?;
            return Ok(length);
        }
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let part = (PAGE_BYTES - within).min(length - done);
            let target = &mut buffer[done..done + part];
            match content.pages.get(&page) {
                Some(written) => target.copy_from_slice(&written[within..within + part]),
                None => self.read_below(&content, target, at)?,
            }
            done += part;
        }
        Ok(length)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut content = self.state.write();
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, within) = (at / PAGE_BYTES as u64, (at % PAGE_BYTES as u64) as usize);
            let part = (PAGE_BYTES - within).min(bytes.len() - done);
            if !content.pages.contains_key(&page) {
                let mut fresh = Box::new([0; PAGE_BYTES]);
                self.read_below(&content, &mut fresh[..], page * PAGE_BYTES as u64)?;
                content.pages.insert(page, fresh);
            }
            if let Some(written) = content.pages.get_mut(&page) {
                written[within..within + part].copy_from_slice(&bytes[done..done + part]);
            }
            done += part;
        }
        content.bytes = content.bytes.max(offset + bytes.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.state.read().bytes)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let mut content = self.state.write();
        if bytes < content.bytes {
            content.below_bytes = content.below_bytes.min(bytes);
            drop(content.pages.split_off(&bytes.div_ceil(PAGE_BYTES as u64)));
            if let Some(last) = content.pages.get_mut(&(bytes / PAGE_BYTES as u64)) {
                last[(bytes % PAGE_BYTES as u64) as usize..].fill(0);
            }
        }
        content.bytes = bytes;
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        let mut content = self.state.write();
        content.bytes = content.bytes.max(offset.saturating_add(bytes));
        Ok(())
    }
}

#[cfg(test)]
#[path = "overlay_tests.rs"]
mod tests;
