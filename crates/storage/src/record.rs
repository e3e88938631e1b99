//! Record ids and the keys they have in engine tables.

use std::fmt;

/// The place of a document in its collection. Given by Tenon, from 1, rising; never changes while the document lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordId(pub u64);

impl RecordId {
    /// The key in the collection's table: big-endian, so that memcmp order is numeric order.
    pub fn to_key(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// Reads the 8 bytes of [`RecordId::to_key`]; `None` for another length.
    pub fn from_key(key: &[u8]) -> Option<RecordId> {
        Some(RecordId(u64::from_be_bytes(key.try_into().ok()?)))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record:{}", self.0)
    }
}
