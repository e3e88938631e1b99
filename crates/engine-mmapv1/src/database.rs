//! A database: its files, who owns their pages, and its namespace file.

use crate::cache::PageId;
use crate::files::{DataFile, Page, corrupt};
use crate::loc::{FILES_MAX, Loc, PAGE_BYTES};
use crate::namespaces::Namespaces;
use crate::options::Mmapv1Options;
use crate::sealing::{PageSealing, stored_page_bytes};
use crate::space::{Extent, Owner, Space};
use crypt::Keys;
use engine::{EngineError, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vfs::File;

/// Lock order: `namespaces`, then `space`, then `files`.
pub(crate) struct Database {
    /// Of this run, for [`PageId`].
    pub(crate) id: u32,
    pub(crate) name: String,
    /// With what its files are sealed.
    keys: Option<Arc<Keys>>,
    /// Whether it has a directory of its own.
    pub(crate) own_directory: bool,
    /// The newest root has it.
    pub(crate) is_persisted: AtomicBool,
    /// The engine's directory.
    root: PathBuf,
    files: RwLock<Vec<Arc<DataFile>>>,
    pub(crate) space: Mutex<Space>,
    pub(crate) namespaces: Mutex<Namespaces>,
    /// The namespace file, once it is there on disk.
    pub(crate) namespace_handle: std::sync::OnceLock<Arc<dyn File>>,
    /// Descriptors for files that no checkpoint has made yet.
    kept_descriptors: Mutex<Vec<Arc<dyn File>>>,
    first_file_pages: u32,
    file_pages_max: u32,
}

impl Database {
    pub(crate) fn new(
        id: u32,
        name: &str,
        own_directory: bool,
        root: &Path,
        options: &Mmapv1Options,
        keys: Option<Arc<Keys>>,
    ) -> Self {
        let pages = |bytes: u64| (bytes / PAGE_BYTES as u64).clamp(4, 1 << 18) as u32;
        Self {
            id,
            name: name.to_owned(),
            keys,
            own_directory,
            is_persisted: AtomicBool::new(false),
            root: root.to_owned(),
            files: RwLock::default(),
            space: Mutex::default(),
            namespaces: Mutex::default(),
            namespace_handle: std::sync::OnceLock::new(),
            kept_descriptors: Mutex::default(),
            first_file_pages: pages(options.first_file_bytes),
            file_pages_max: pages(options.file_bytes_max),
        }
    }

    /// With what the pages of a file are sealed: by its number, or [`crate::loc::NAMESPACE_FILE`].
    pub(crate) fn sealing(&self, file: u32) -> Option<PageSealing> {
        Some(PageSealing::new(self.keys.as_ref()?, &self.name, file))
    }

    /// Bytes of a page on disk.
    pub(crate) fn stored_page_bytes(&self) -> u64 {
        stored_page_bytes(self.keys.is_some())
    }

    /// The directory its files lie in.
    pub(crate) fn directory(&self) -> PathBuf {
        directory(&self.root, &self.name, self.own_directory)
    }

    /// Keeps descriptors for its first files.
    pub(crate) fn keep_descriptors(&self, kept: Vec<Arc<dyn File>>) {
        *self.kept_descriptors.lock() = kept;
    }

    /// Frees one that was kept, if there is one left, for a file that is opened now.
    pub(crate) fn give_back_descriptor(&self) {
        drop(self.kept_descriptors.lock().pop());
    }

    pub(crate) fn namespace_path(&self) -> PathBuf {
        file_path(&self.root, &self.name, self.own_directory, "ns")
    }

    pub(crate) fn file_path(&self, number: usize) -> PathBuf {
        file_path(&self.root, &self.name, self.own_directory, &number.to_string())
    }

    pub(crate) fn files(&self) -> Vec<Arc<DataFile>> {
        self.files.read().clone()
    }

    pub(crate) fn file_count(&self) -> usize {
        self.files.read().len()
    }

    pub(crate) fn push_file(&self, file: DataFile) {
        self.files.write().push(Arc::new(file));
    }

    pub(crate) fn pop_file(&self) {
        self.files.write().pop();
    }

    /// The name of the page that a place lies in. Damage when no file has it.
    pub(crate) fn page_id(&self, at: Loc) -> Result<PageId> {
        if at.file() < FILES_MAX as u32 && at.file_offset() < 1 << 31 {
            let low = (u64::from(at.file()) << 18) | u64::from(at.page());
            return Ok(PageId((u64::from(self.id) << 32) | low));
        }
        Err(self.no_such_place(at))
    }

    /// The file and page of a name that [`Database::page_id`] gave.
    pub(crate) fn place_of(id: PageId) -> (u32, u16, u32) {
        (
            (id.0 >> 32) as u32,
            ((id.0 >> 18) & 0x3fff) as u16,
            (id.0 & 0x3_ffff) as u32,
        )
    }

    /// Reads and checks a page.
    pub(crate) fn read_page(&self, at: Loc) -> Result<Page> {
        let file = self.files.read().get(at.file() as usize).cloned();
        match file {
            Some(file) if at.page() < file.pages => file.read_page(at.page()),
            _ => Err(self.no_such_place(at)),
        }
    }

    /// An extent of about `wanted` pages, at least `least`; adds a file where none has room.
    pub(crate) fn allocate(&self, wanted: u32, least: u32, owner: Owner) -> Result<Extent> {
        let mut space = self.space.lock();
        // Each file has room for the largest record, so one is enough.
        for _ in 0..2 {
            if let Some(extent) = space.allocate(wanted, least, owner) {
                return Ok(extent);
            }
            let number = self.file_count();
            if number == FILES_MAX {
                break;
            }
            let pages = self.pages_of_file(number, least);
            space.add_file(pages);
            let path = self.file_path(number);
            self.push_file(DataFile::new(number as u16, pages, path, self.sealing(number as u32)));
        }
        Err(EngineError::Backend {
            operation: "allocate an extent",
            kind: ErrorKind::OutOfSpace,
            message: format!("database {} has as many files as there can be", self.name),
        })
    }

    /// The longest extent worth asking for.
    pub(crate) fn extent_pages_max(&self) -> u32 {
        self.file_pages_max - crate::files::first_data_page(self.file_pages_max)
    }

    /// Each file is twice as long as the one before, up to the longest, and has room for `least` pages in one piece.
    fn pages_of_file(&self, number: usize, least: u32) -> u32 {
        let doubled = u64::from(self.first_file_pages) << number.min(20);
        let regular = doubled.min(u64::from(self.file_pages_max)) as u32;
        let mut pages = regular.max(least);
        while pages - crate::files::first_data_page(pages) < least {
            pages += 1;
        }
        pages
    }

    fn no_such_place(&self, at: Loc) -> EngineError {
        corrupt(
            &self.file_path(at.file() as usize),
            at.file_offset(),
            "no such page belongs to the database".into(),
        )
    }

    pub(crate) fn corrupt(&self, at: Loc, reason: impl Into<String>) -> EngineError {
        corrupt(&self.file_path(at.file() as usize), at.file_offset(), reason.into())
    }
}

/// The database of a table: the part of its name before the first dot.
pub(crate) fn database_of(table_name: &str) -> &str {
    table_name.split_once('.').map_or(table_name, |(database, _)| database)
}

/// The directory of a database below the engine's.
pub(crate) fn directory(root: &Path, database: &str, own_directory: bool) -> PathBuf {
    match own_directory {
        true if database == crate::journal::FILE_NAME => root.join(marked(database.to_owned(), database)),
        true => root.join(file_stem(database)),
        false => root.to_owned(),
    }
}

/// A file of a database below the engine's directory: its namespace file or, by its number, a data file.
pub(crate) fn file_path(root: &Path, database: &str, own_directory: bool, extension: &str) -> PathBuf {
    // Beside the engine's own files its name must not be that of one.
    let stem = match own_directory {
        false if database == crate::root::FILE_STEM => marked(database.to_owned(), database),
        _ => file_stem(database),
    };
    directory(root, database, own_directory).join(format!("{stem}.{extension}"))
}

/// A database's name as a file's: letters, digits, `_` and `-`, everything else as `%` and two hexadecimal digits. A
/// long one is cut and told apart by its checksum; the name itself is in the root.
fn file_stem(database: &str) -> String {
    const STEM_BYTES_MAX: usize = 200;
    let mut stem = String::new();
    for byte in database.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => stem.push(byte.into()),
            _ => stem.push_str(&format!("%{byte:02x}")),
        }
    }
    if stem.len() > STEM_BYTES_MAX || stem.is_empty() {
        stem.truncate(STEM_BYTES_MAX - 20);
        stem = marked(stem, database);
    }
    stem
}

/// A stem that no other name has: `%%` comes from none.
fn marked(stem: String, database: &str) -> String {
    format!(
        "{stem}%%{:08x}{:08x}",
        crc32c::crc32c(database.as_bytes()),
        database.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files_that_no_other_name_becomes() {
        assert_eq!(file_stem("book"), "book");
        assert_eq!(file_stem("a/../b"), "a%2f%2e%2e%2fb");
        assert!(file_stem(&"ä".repeat(300)).len() <= 200);
        assert_ne!(file_stem(&"x".repeat(300)), file_stem(&"x".repeat(301)));
        assert_eq!(database_of("db.a.b"), "db");
        assert_eq!(database_of("catalog"), "catalog");
    }

    #[test]
    fn no_database_gets_the_names_of_the_engines_own_files() {
        let path = |database, own_directory| file_path(Path::new("/e"), database, own_directory, "0");
        assert_eq!(path("root", false), Path::new("/e/root%%d9805f9f00000004.0"));
        assert_eq!(
            path("journal", true),
            Path::new("/e/journal%%2e33078700000007/journal.0")
        );
        // These are in nobody's way, and have always been called so.
        assert_eq!(path("root", true), Path::new("/e/root/root.0"));
        assert_eq!(path("journal", false), Path::new("/e/journal.0"));
    }

    #[test]
    fn files_double_and_make_room_for_the_largest_record() {
        let mut options = Mmapv1Options::with_cache(0);
        options.first_file_bytes = 64 << 10;
        options.file_bytes_max = 256 << 10;
        let database = Database::new(1, "d", false, Path::new("/"), &options, None);
        let pages = |number, least| database.pages_of_file(number, least);
        assert_eq!([pages(0, 1), pages(1, 1), pages(2, 1), pages(9, 1)], [8, 16, 32, 32]);
        let large = pages(0, 3000);
        assert_eq!(large - crate::files::first_data_page(large), 3000);
    }
}
