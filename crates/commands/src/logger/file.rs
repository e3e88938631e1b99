//! A file that lines, or whole documents, are appended to, and that gives way to a new one.

use super::{Rotate, time_text};
use parking_lot::RwLock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is written by one call stays together. [`LogFile::put`] locks nothing while bytes go to the file.
pub struct LogFile {
    path: PathBuf,
    rotate: Rotate,
    file: RwLock<Arc<File>>,
}

impl LogFile {
    /// Opens `path`. An existing file that shall not be appended to is renamed first: the second value is its new
    /// name.
    pub fn open(path: &Path, append: bool, rotate: Rotate, now_ms: i64) -> io::Result<(Self, Option<PathBuf>)> {
        let mut renamed = None;
        if !append && path.try_exists()? && path.metadata()?.is_file() {
            renamed = Some(rename_with_time(path, now_ms)?);
        }
        let file = Self {
            path: path.to_owned(),
            rotate,
            file: RwLock::new(Arc::new(open_at_end(path)?)),
        };
        Ok((file, renamed))
    }

    /// Appends bytes.
    pub fn put(&self, bytes: &[u8]) -> io::Result<()> {
        let file = Arc::clone(&self.file.read());
        (&*file).write_all(bytes)
    }

    /// Appends bytes, or none of them: what follows a part of a document could not be read. One caller at a time; a
    /// file that is written so is not written by [`LogFile::put`].
    pub fn put_whole(&self, bytes: &[u8]) -> io::Result<()> {
        // Held across the write, or the cut would take what others have appended since.
        let file = self.file.write();
        let length = file.metadata()?.len();
        (&**file).write_all(bytes).inspect_err(|_| {
            // A pipe cannot be cut.
            let _ = file.set_len(length);
        })
    }

    /// Begins a new file as [`Rotate`] says; the name of the former one, where this has given it one and nobody else
    /// has moved it.
    pub fn rotate(&self, now_ms: i64) -> io::Result<Option<PathBuf>> {
        let mut file = self.file.write();
        let renamed = match self.rotate {
            Rotate::Rename => match rename_with_time(&self.path, now_ms) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                renamed => Some(renamed?),
            },
            Rotate::Reopen => None,
        };
        *file = Arc::new(open_at_end(&self.path)?);
        Ok(renamed)
    }
}

fn open_at_end(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Renames `path` to `path.2026-01-31T12-00-00`, with a number behind when that name is taken.
fn rename_with_time(path: &Path, now_ms: i64) -> io::Result<PathBuf> {
    let time = time_text(now_ms, &jiff::tz::TimeZone::UTC);
    let stem = format!(
        "{}.{}",
        path.display(),
        time.get(..19).unwrap_or(&time).replace(':', "-")
    );
    let mut target = PathBuf::from(&stem);
    let mut number = 1;
    while target.try_exists()? {
        number += 1;
        target = PathBuf::from(format!("{stem}-{number}"));
    }
    std::fs::rename(path, &target)?;
    Ok(target)
}
