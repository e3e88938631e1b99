//! One file of a database: its layout, its page checksums, reading a page.
//!
//! A data file is a header page, the checksums of all pages (4 bytes each), the owners of all pages (4 bytes each),
//! and then data pages. It knows nothing of what lies in them. The checksums are kept in memory; a page whose
//! checksum is 0 was never written.

use crate::bytes_at::{checksum, put, u32_at, u64_at};
use crate::loc::PAGE_BYTES;
use crate::sealing::{PageSealing, SEALED_PAGE_BYTES, stored_page_bytes};
use engine::{EngineError, Result};
use parking_lot::RwLock;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use vfs::File;

/// One page's bytes.
pub(crate) type PageBuf = [u8; PAGE_BYTES];
/// A page as it stood at some moment.
pub(crate) type Page = Arc<PageBuf>;

/// Entries of checksums or owners in a page of them.
pub(crate) const ENTRIES_PER_PAGE: u32 = (PAGE_BYTES / 4) as u32;
const MAGIC: u64 = u64::from_le_bytes(*b"TENONmm1");
/// See `docs/formats/mmapv1.md`.
pub(crate) const FORMAT_VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;

/// Pages that the checksums of so many pages take; the owners take as many.
pub(crate) fn map_pages(pages: u32) -> u32 {
    pages.div_ceil(ENTRIES_PER_PAGE)
}

/// The first page behind header and maps.
pub(crate) fn first_data_page(pages: u32) -> u32 {
    1 + 2 * map_pages(pages)
}

/// A data file.
pub(crate) struct DataFile {
    pub(crate) number: u16,
    pub(crate) pages: u32,
    pub(crate) path: PathBuf,
    /// With what its pages are sealed.
    pub(crate) sealing: Option<PageSealing>,
    /// The newest root has it.
    pub(crate) is_persisted: AtomicBool,
    /// The whole of it was reserved in this run: its pages need no room any more.
    pub(crate) is_reserved: AtomicBool,
    /// Set when the file is there on disk.
    pub(crate) handle: OnceLock<Arc<dyn File>>,
    /// By page; 0 where none was ever written.
    pub(crate) checksums: RwLock<Vec<u32>>,
}

impl DataFile {
    pub(crate) fn new(number: u16, pages: u32, path: PathBuf, sealing: Option<PageSealing>) -> Self {
        Self {
            number,
            pages,
            path,
            sealing,
            is_persisted: AtomicBool::new(false),
            is_reserved: AtomicBool::new(false),
            handle: OnceLock::new(),
            checksums: RwLock::new(vec![0; pages as usize]),
        }
    }

    /// Reads and checks a page.
    pub(crate) fn read_page(&self, page: u32) -> Result<Page> {
        let offset = u64::from(page) * stored_page_bytes(self.sealing.is_some());
        let expected = self.checksums.read().get(page as usize).copied().unwrap_or(0);
        let Some(handle) = self.handle.get().filter(|_| expected != 0) else {
            return Err(corrupt(&self.path, offset, "the page was never written".into()));
        };
        let read = read_page_at(&**handle, &self.path, page, self.sealing.as_ref())?;
        match checksum(&read[..]) {
            found if found == expected => Ok(read),
            found => Err(corrupt(
                &self.path,
                offset,
                format!("the page's checksum is {found:08x} and should be {expected:08x}"),
            )),
        }
    }
}

/// Reads a page without knowing what it should be.
pub(crate) fn read_page_at(file: &dyn File, path: &Path, page: u32, sealing: Option<&PageSealing>) -> Result<Page> {
    let offset = u64::from(page) * stored_page_bytes(sealing.is_some());
    let read = match sealing {
        None => {
            let mut read = Arc::new([0; PAGE_BYTES]);
            let buffer = Arc::get_mut(&mut read).expect("nobody else has it yet");
            file.read_exact_at(buffer, offset).map(|()| read)
        }
        Some(sealing) => {
            let mut stored = [0; SEALED_PAGE_BYTES];
            match file.read_exact_at(&mut stored, offset) {
                Ok(()) => {
                    let opened = sealing.open(page, &stored);
                    return opened.map_err(|error| corrupt(path, offset, format!("encryption: {error}")));
                }
                Err(error) => Err(error),
            }
        }
    };
    match read {
        Ok(read) => Ok(read),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(corrupt(path, offset, "the file ends before this page does".into()))
        }
        Err(error) => Err(io_error("read", path)(error)),
    }
}

/// The first page of a file: which file it is. `number` is [`crate::loc::NAMESPACE_FILE`] for the namespace file.
pub(crate) fn header_page(database: &str, number: u32, pages: u32) -> Page {
    let mut page = [0; PAGE_BYTES];
    put(&mut page, 0, &MAGIC.to_le_bytes());
    put(&mut page, 8, &FORMAT_VERSION.to_le_bytes());
    put(&mut page, 12, &number.to_le_bytes());
    put(&mut page, 16, &pages.to_le_bytes());
    put(&mut page, 20, &checksum(database.as_bytes()).to_le_bytes());
    let sum = checksum(&page[..HEADER_BYTES - 4]);
    put(&mut page, HEADER_BYTES - 4, &sum.to_le_bytes());
    Arc::new(page)
}

/// Checks a file's first page against what [`header_page`] would write.
pub(crate) fn check_header(page: &PageBuf, path: &Path, database: &str, number: u32, pages: u32) -> Result<()> {
    if u64_at(page, 0) == Some(MAGIC) && u32_at(page, 8).is_some_and(|version| version > FORMAT_VERSION) {
        let sum = checksum(&page[..HEADER_BYTES - 4]);
        if u32_at(page, HEADER_BYTES - 4) == Some(sum) {
            return Err(corrupt(path, 8, "the file was written by a later version".into()));
        }
    }
    if page[..] != header_page(database, number, pages)[..] {
        return Err(corrupt(path, 0, "the header is not that of this file".into()));
    }
    Ok(())
}

pub(crate) fn corrupt(path: &Path, offset: u64, reason: String) -> EngineError {
    EngineError::Corrupt {
        path: path.to_owned(),
        offset,
        reason,
    }
}

pub(crate) fn io_error<'a>(operation: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> EngineError + 'a {
    move |source| EngineError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}
