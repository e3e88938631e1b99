//! Places in the data files of a database.

use std::fmt;

/// Bytes of a page: the unit of the cache, of checksums and of ownership.
pub(crate) const PAGE_BYTES: usize = 8192;
/// Bytes that reach the disk as a whole: a checkpoint writes the sectors of a page that changed.
pub(crate) const SECTOR_BYTES: usize = 512;
/// A mask of a page's sectors with all of them set.
pub(crate) const ALL_SECTORS: u16 = u16::MAX;
/// As many data files a database may have.
pub(crate) const FILES_MAX: usize = 16_000;
/// The namespace file among a database's files.
pub(crate) const NAMESPACE_FILE: u32 = u32::MAX;

const _: () = assert!(PAGE_BYTES / SECTOR_BYTES == 16, "a mask of sectors has 16 bits");

/// A byte of a data file: the file's number above, the offset below. [`Loc::NULL`] is the first file's header, where
/// nothing is ever stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Loc(pub(crate) u64);

impl Loc {
    /// Nowhere.
    pub(crate) const NULL: Loc = Loc(0);

    /// The first byte of a page.
    pub(crate) fn of_page(file: u16, page: u32) -> Self {
        Self((u64::from(file) << 32) | (u64::from(page) * PAGE_BYTES as u64))
    }

    pub(crate) fn is_null(self) -> bool {
        self == Self::NULL
    }

    /// The number of the file; out of range when the bytes it was read from are damaged.
    pub(crate) fn file(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number of the page in its file.
    pub(crate) fn page(self) -> u32 {
        (self.0 as u32) / PAGE_BYTES as u32
    }

    /// The place in its page.
    pub(crate) fn offset(self) -> usize {
        self.0 as usize % PAGE_BYTES
    }

    /// So many bytes further on in the same file.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Self(self.0 + bytes as u64)
    }

    /// The byte's offset in its file.
    pub(crate) fn file_offset(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }
}

impl fmt::Debug for Loc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "loc:{}:{:#x}", self.file(), self.file_offset())
    }
}
