//! A file that lines, or whole documents, are appended to, and that gives way to a new one.

use super::{Rotate, utc_text};
use parking_lot::RwLock;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What is written by one call stays together. [`LogFile::put`] locks nothing while bytes go to the file.
pub struct LogFile {
    path: PathBuf,
    rotate: Rotate,
    file: RwLock<Arc<File>>,
    /// A disk that filled has taken the beginning of a line only.
    is_cut: AtomicBool,
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
            is_cut: AtomicBool::new(false),
        };
        Ok((file, renamed))
    }

    /// Appends lines. What was left of one that could not be written whole stays a line of its own.
    pub fn put(&self, bytes: &[u8]) -> io::Result<()> {
        let file = Arc::clone(&self.file.read());
        append(&mut &*file, bytes, &self.is_cut)
    }

    /// Whether writing to it waits for the disk at most, and for nobody who reads.
    pub(crate) fn is_regular(&self) -> bool {
        self.file.read().metadata().is_ok_and(|metadata| metadata.is_file())
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
        // A pipe or a device has nothing to be put aside, and opening a pipe waits for its reader.
        if self.path.metadata().is_ok_and(|found| !found.is_file()) {
            return Ok(None);
        }
        let mut file = self.file.write();
        let renamed = match self.rotate {
            Rotate::Rename => match rename_with_time(&self.path, now_ms) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                renamed => Some(renamed?),
            },
            Rotate::Reopen => None,
        };
        let opened = open_at_end(&self.path)?;
        // Where nobody has moved the file, it is the same one.
        if opened.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            self.is_cut.store(false, Ordering::Relaxed);
        }
        *file = Arc::new(opened);
        Ok(renamed)
    }
}

/// Appends lines. What was left of one that could not be written whole stays a line of its own.
pub(super) fn append(out: &mut impl Write, bytes: &[u8], is_cut: &AtomicBool) -> io::Result<()> {
    let was_cut = is_cut.swap(false, Ordering::Relaxed);
    let ended = was_cut.then(|| [b"\n".as_slice(), bytes].concat());
    let bytes = ended.as_deref().unwrap_or(bytes);
    let mut rest = bytes;
    while !rest.is_empty() {
        let error: io::Error = match out.write(rest) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(written) => {
                rest = rest.get(written..).unwrap_or_default();
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        let written = bytes.strip_suffix(rest).unwrap_or_default();
        let ends_cut = written.last().map_or(was_cut, |last| *last != b'\n');
        is_cut.fetch_or(ends_cut, Ordering::Relaxed);
        return Err(error);
    }
    Ok(())
}

fn open_at_end(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Renames `path` to `path.2026-01-31T12-00-00`, with a number behind when that name is taken.
fn rename_with_time(path: &Path, now_ms: i64) -> io::Result<PathBuf> {
    let time = utc_text(now_ms);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{LogFile, Rotate, append};

    /// The next line was glued to what a disk that filled had taken of one.
    #[test]
    fn half_a_line_does_not_spoil_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let (log, _) = LogFile::open(&path, true, Rotate::Reopen, 0).unwrap();
        let mut room = [0_u8; 3];
        assert!(append(&mut room.as_mut_slice(), b"lost\n", &log.is_cut).is_err());
        assert!(append(&mut [0_u8; 0].as_mut_slice(), b"lost\n", &log.is_cut).is_err());
        log.put(b"one\n").unwrap();
        log.put(b"two\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "\none\ntwo\n");
        assert!(append(&mut room.as_mut_slice(), b"lost\n", &log.is_cut).is_err());
        std::fs::remove_file(&path).unwrap();
        log.rotate(0).unwrap();
        log.put(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }
}
