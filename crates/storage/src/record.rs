//! Record ids, and the keys they have in engine tables and behind index keys.
//!
//! A collection's records are known by numbers that Tenon gives, or, where the collection is clustered, by the bytes
//! that its documents' `_id` has as a key (see crate `keys`). Numbers are what nearly everything has: they are as cheap
//! to hand on as an integer, and allocate nothing.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The place of a document in its collection. Never changes while the document lives. Any number comes before any key;
/// no collection has both.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordId {
    /// Given by Tenon, from 1, rising; below 2⁶³.
    Number(u64),
    /// Of a clustered collection: the key of the document's `_id`.
    Key(Arc<[u8]>),
}

/// Which of the two a collection's records have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordIds {
    /// [`RecordId::Number`]
    #[default]
    Numbers,
    /// [`RecordId::Key`]
    Keys,
}

/// The bytes of a record id, as a key in the collection's table.
#[derive(Clone, Copy)]
pub enum RecordKey<'r> {
    /// Of a number: big-endian, so that memcmp order is numeric order.
    Number([u8; 8]),
    /// Of a key: itself.
    Key(&'r [u8]),
}

impl Deref for RecordKey<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            RecordKey::Number(bytes) => bytes,
            RecordKey::Key(bytes) => bytes,
        }
    }
}

impl RecordId {
    /// The key in the collection's table.
    #[inline]
    pub fn to_key(&self) -> RecordKey<'_> {
        match self {
            RecordId::Number(number) => RecordKey::Number(number.to_be_bytes()),
            RecordId::Key(key) => RecordKey::Key(key),
        }
    }

    /// Reads [`RecordId::to_key`]; `None` for a number that has not 8 bytes.
    #[inline]
    pub fn from_key(ids: RecordIds, key: &[u8]) -> Option<RecordId> {
        match ids {
            RecordIds::Numbers => Some(RecordId::Number(u64::from_be_bytes(key.try_into().ok()?))),
            RecordIds::Keys => Some(RecordId::Key(key.into())),
        }
    }

    /// The number; 0, which no record has, of a key.
    #[inline]
    pub fn number(&self) -> u64 {
        match self {
            RecordId::Number(number) => *number,
            RecordId::Key(_) => 0,
        }
    }

    /// As `$recordId` shows it: a number, or the key's bytes.
    pub fn to_bson(&self) -> Bson {
        match self {
            RecordId::Number(number) => Bson::Int64(*number as i64),
            RecordId::Key(key) => Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: key.to_vec(),
            }),
        }
    }

    /// What the record is locked as.
    #[inline]
    pub(crate) fn lock_key(&self) -> u64 {
        match self {
            RecordId::Number(number) => *number,
            RecordId::Key(key) => locks::key_hash(key),
        }
    }
}

impl Default for RecordId {
    fn default() -> Self {
        RecordId::Number(0)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordId::Number(number) => write!(f, "record:{number}"),
            RecordId::Key(key) => {
                f.write_str("record:0x")?;
                key.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// Bytes of a number where it stands in an index row.
pub(crate) const NUMBER_BYTES: usize = 8;
/// A length of up to 28 bits in groups of seven, as it stands beside a key in an index row.
const LENGTH_BYTES_MAX: usize = 4;

/// Bytes that an id takes in an index row, at most.
pub(crate) fn row_bytes_max(id: &RecordId) -> usize {
    match id {
        RecordId::Number(_) => NUMBER_BYTES,
        RecordId::Key(key) => key.len() + LENGTH_BYTES_MAX,
    }
}

/// Appends an id so that it can be found from the row's end: a key is followed by its length, whose last group of seven
/// bits comes first, and whose first is the one without the high bit.
#[inline]
pub(crate) fn append_at_end(row: &mut Vec<u8>, id: &RecordId) {
    row.extend_from_slice(&id.to_key());
    if let RecordId::Key(key) = id {
        let (groups, used) = length_groups(key.len());
        row.extend(groups[..used].iter().rev());
    }
}

/// Appends an id so that it can be found from here on: a key comes behind its length.
#[inline]
pub(crate) fn append_at_start(row: &mut Vec<u8>, id: &RecordId) {
    if let RecordId::Key(key) = id {
        let (groups, used) = length_groups(key.len());
        row.extend_from_slice(&groups[..used]);
    }
    row.extend_from_slice(&id.to_key());
}

/// A length in groups of seven bits, the lowest first; a group that another one follows has the high bit.
fn length_groups(length: usize) -> ([u8; LENGTH_BYTES_MAX], usize) {
    let (mut groups, mut rest, mut used) = ([0; LENGTH_BYTES_MAX], length, 0);
    debug_assert!(rest >> (7 * LENGTH_BYTES_MAX) == 0, "keys are below 17 MiB");
    loop {
        groups[used] = rest as u8 & 0x7F;
        rest >>= 7;
        used += 1;
        if rest == 0 || used == LENGTH_BYTES_MAX {
            return (groups, used);
        }
        groups[used - 1] |= 0x80;
    }
}

/// Reads a length from groups in their order; with the bytes that it took.
fn read_length<'b>(groups: impl Iterator<Item = &'b u8>) -> Option<(usize, usize)> {
    let mut length = 0;
    for (place, group) in groups.take(LENGTH_BYTES_MAX).enumerate() {
        length |= usize::from(group & 0x7F) << (7 * place);
        if group & 0x80 == 0 {
            return Some((length, place + 1));
        }
    }
    None
}

/// Takes a row whose end is an id apart: what stands before it, and the id's bytes; `None` when it is damaged.
#[inline]
pub(crate) fn split_from_end(ids: RecordIds, row: &[u8]) -> Option<(&[u8], &[u8])> {
    match ids {
        RecordIds::Numbers => row.split_at_checked(row.len().checked_sub(NUMBER_BYTES)?),
        RecordIds::Keys => {
            let (length, used) = read_length(row.iter().rev())?;
            let row = &row[..row.len() - used];
            row.split_at_checked(row.len().checked_sub(length)?)
        }
    }
}

/// Takes a row that begins with an id apart: the id's bytes, and what follows; `None` when it is damaged.
#[inline]
pub(crate) fn split_from_start(ids: RecordIds, row: &[u8]) -> Option<(&[u8], &[u8])> {
    match ids {
        RecordIds::Numbers => row.split_at_checked(NUMBER_BYTES),
        RecordIds::Keys => {
            let (length, used) = read_length(row.iter())?;
            row[used..].split_at_checked(length)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_no_larger_than_a_slice() {
        assert_eq!(size_of::<RecordId>(), 16);
    }

    #[test]
    fn ids_are_found_from_both_ends_of_rows() {
        let key = |length: usize| RecordId::Key(vec![0xA5; length].into());
        for id in [
            RecordId::Number(7),
            key(0),
            key(1),
            key(127),
            key(128),
            key(16_383),
            key(16_384),
            key(3 << 20),
        ] {
            let ids = match id {
                RecordId::Number(_) => RecordIds::Numbers,
                RecordId::Key(_) => RecordIds::Keys,
            };
            let mut row = b"before".to_vec();
            append_at_end(&mut row, &id);
            assert!(row.len() <= 6 + row_bytes_max(&id));
            let (before, found) = split_from_end(ids, &row).unwrap();
            assert_eq!(
                (before, RecordId::from_key(ids, found)),
                (&b"before"[..], Some(id.clone()))
            );
            let mut row = Vec::new();
            append_at_start(&mut row, &id);
            row.extend_from_slice(b"behind");
            let (found, behind) = split_from_start(ids, &row).unwrap();
            assert_eq!((RecordId::from_key(ids, found), behind), (Some(id), &b"behind"[..]));
        }
    }

    #[test]
    fn damaged_rows_have_no_id() {
        for row in [&b""[..], b"\x05abc", b"abc\x05", b"\xFF\xFF\xFF\xFF\xFF", b"\x80"] {
            assert!(
                split_from_end(RecordIds::Keys, row).is_none() || row == b"\x05abc",
                "{row:?}"
            );
            assert!(
                split_from_start(RecordIds::Keys, row).is_none() || row.starts_with(b"abc"),
                "{row:?}"
            );
            assert_eq!(split_from_start(RecordIds::Numbers, row), None);
            assert_eq!(split_from_end(RecordIds::Numbers, row), None);
        }
    }
}
