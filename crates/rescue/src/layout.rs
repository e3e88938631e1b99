//! Where what stands in the files of MMAPv1; see `docs/formats/mongodb-mmapv1.md`. Little endian throughout, nothing
//! aligned.
//!
//! Decoding believes everything; checks are made by who uses it.

use std::fmt;

/// A data file begins with a header of so many bytes, and so does a file of the journal.
pub(crate) const FILE_HEADER_BYTES: u64 = 8192;
/// The only version of data files.
pub(crate) const FILE_VERSION: u32 = 4;
pub(crate) const EXTENT_HEADER_BYTES: u32 = 176;
pub(crate) const EXTENT_MAGIC: u32 = 0x4142_4344;
/// Extents begin at multiples of this.
pub(crate) const EXTENT_ALIGNMENT: u64 = 4096;
pub(crate) const RECORD_HEADER_BYTES: u32 = 16;
/// Header and the length of a document: enough to look at a record.
pub(crate) const RECORD_PROBE_BYTES: usize = 20;
/// Records begin at multiples of this.
pub(crate) const RECORD_ALIGNMENT: u32 = 4;
/// What stands in the place of the document's length in a record that is free.
pub(crate) const DELETED_MARK: u32 = 0xEEEE_EEEE;
/// The shortest document.
pub(crate) const DOCUMENT_BYTES_MIN: u32 = 5;
/// An entry of the catalog: hash, name, details.
pub(crate) const ENTRY_BYTES: usize = 628;
pub(crate) const NAME_BYTES: usize = 128;
/// No record, in links between records of one extent.
pub(crate) const NO_RECORD: i32 = -1;
/// A capped collection without a bound of documents.
const UNBOUNDED: i32 = i32::MAX;

/// A place in the data files of a database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The number of the file; negative: nowhere.
    pub file: i32,
    /// The byte in it.
    pub offset: i32,
}

impl Location {
    /// False for the several ways to say nowhere. Nothing begins within a file's header, so zeros are one of them.
    pub(crate) fn is_set(self) -> bool {
        self.file >= 0 && self.offset > 0
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{:#x}", self.file, self.offset)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Integers at places of a structure that is there whole.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("a slice of N bytes")
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    pub(crate) fn i32(&self, at: usize) -> i32 {
        i32::from_le_bytes(self.array(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    pub(crate) fn i64(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.array(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    pub(crate) fn location(&self, at: usize) -> Location {
        Location {
            file: self.i32(at),
            offset: self.i32(at + 4),
        }
    }
}

/// The beginning of a data file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileHeader {
    pub(crate) version: u32,
    pub(crate) length: i32,
    /// The first free extent, in file 0 and since 2.6.
    pub(crate) free_list: Location,
}

impl FileHeader {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let fields = Fields(bytes);
        Self {
            version: fields.u32(0),
            length: fields.i32(8),
            free_list: fields.location(24),
        }
    }
}

/// The beginning of an extent.
#[derive(Clone, Debug)]
pub(crate) struct ExtentHeader {
    pub(crate) magic: u32,
    pub(crate) location: Location,
    pub(crate) next: Location,
    pub(crate) previous: Location,
    /// The namespace that it was made for, whatever the name is now.
    pub(crate) namespace: Vec<u8>,
    pub(crate) bytes: i32,
    pub(crate) first: Location,
    pub(crate) last: Location,
}

impl ExtentHeader {
    pub(crate) fn decode(bytes: &[u8; EXTENT_HEADER_BYTES as usize]) -> Self {
        let fields = Fields(bytes);
        Self {
            magic: fields.u32(0),
            location: fields.location(4),
            next: fields.location(12),
            previous: fields.location(20),
            namespace: until_nul(&bytes[28..28 + NAME_BYTES]).to_vec(),
            bytes: fields.i32(156),
            first: fields.location(160),
            last: fields.location(168),
        }
    }
}

/// The beginning of a record, and what stands in the place of its document's length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordHeader {
    pub(crate) bytes: i32,
    pub(crate) extent: i32,
    pub(crate) next: i32,
    pub(crate) previous: i32,
    pub(crate) document_bytes: i32,
}

impl RecordHeader {
    pub(crate) fn decode(bytes: &[u8; RECORD_PROBE_BYTES]) -> Self {
        let fields = Fields(bytes);
        Self {
            bytes: fields.i32(0),
            extent: fields.i32(4),
            next: fields.i32(8),
            previous: fields.i32(12),
            document_bytes: fields.i32(16),
        }
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.document_bytes.cast_unsigned() == DELETED_MARK
    }
}

/// What the catalog has of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Details {
    pub(crate) first_extent: Location,
    pub(crate) last_extent: Location,
    /// Heads of the lists of free records.
    pub(crate) free_records: Vec<Location>,
    pub(crate) records: i64,
    pub(crate) is_capped: bool,
    /// Of a capped collection.
    pub(crate) documents_max: Option<i32>,
    pub(crate) capped_extent: Location,
    /// The first record of the round that is being written; not set before a capped collection has gone round.
    pub(crate) capped_first_new: Location,
    /// Documents of indexes in `system.indexes`.
    pub(crate) index_documents: Vec<Location>,
}

/// Indexes in an entry of the catalog, and in one of its continuations.
const INDEXES_MAX: usize = 10;
const INDEXES_EXTRA: usize = 30;
const INDEX_BYTES: usize = 16;

impl Details {
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let fields = Fields(bytes);
        let small = (0..19).map(|n| fields.location(16 + 8 * n));
        let large = (0..8).map(|n| fields.location(424 + 8 * n));
        let count = usize::try_from(fields.i32(188)).unwrap_or(0).min(INDEXES_MAX);
        let documents_max = fields.i32(356);
        Self {
            first_extent: fields.location(0),
            last_extent: fields.location(8),
            free_records: small.chain(large).filter(|at| at.is_set()).collect(),
            records: fields.i64(176),
            is_capped: fields.i32(352) != 0,
            documents_max: (documents_max > 0 && documents_max != UNBOUNDED).then_some(documents_max),
            capped_extent: fields.location(372),
            capped_first_new: fields.location(380),
            index_documents: (0..count).map(|n| fields.location(192 + INDEX_BYTES * n + 8)).collect(),
        }
    }

    /// Documents of further indexes, from an entry that continues this one.
    pub(crate) fn decode_extra(bytes: &[u8]) -> Vec<Location> {
        let fields = Fields(bytes);
        (0..INDEXES_EXTRA)
            .map(|n| fields.location(8 + INDEX_BYTES * n + 8))
            .filter(|at| at.is_set())
            .collect()
    }
}

/// The hash that an entry of the catalog has of its name.
pub(crate) fn name_hash(name: &[u8]) -> i32 {
    let mixed = name.iter().fold(0u32, |hash, &byte| {
        let signed = i32::from(byte.cast_signed());
        hash.wrapping_mul(131).wrapping_add(signed.cast_unsigned())
    });
    ((mixed & 0x7FFF_FFFF) | 0x0800_0000).cast_signed()
}

pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_real_catalogs() {
        // From a catalog that MongoDB 4.0 wrote.
        for (name, hash) in [
            ("shop.orders", 0x48C2_E691),
            ("shop.system.namespaces", 0x09C9_7F97),
            ("admin.system.version", 0x1833_C888),
            ("shop.articles.$title_text_body_text", 0x39FB_17DE),
        ] {
            assert_eq!(name_hash(name.as_bytes()), hash, "{name}");
        }
    }

    #[test]
    fn nowhere_has_several_forms() {
        for (file, offset) in [(-1, 0), (-2, 0), (0, 0), (-1, -1), (0, -1)] {
            assert!(!Location { file, offset }.is_set());
        }
        assert!(Location { file: 0, offset: 8192 }.is_set());
    }
}
