//! The hash table of an equality join: a collection's documents by their keys.
//!
//! What a look-up touches lies together, because most of its time goes into waiting for memory: short keys are in the
//! table itself, and the documents lie one behind the other.

use super::row::as_document;
use crate::QueryError;
use bson::RawDocument;
use hashbrown::HashMap;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};

/// Bytes that a document and a key take beside their own, at most.
const DOCUMENT_OVERHEAD: usize = size_of::<u32>();
const KEY_OVERHEAD: usize = 2 * size_of::<(JoinKey, Numbers)>();

/// See the module.
#[derive(Default)]
pub(super) struct JoinTable {
    documents: Vec<u8>,
    /// Where each document starts.
    starts: Vec<u32>,
    by_key: HashMap<JoinKey, Numbers>,
}

/// The numbers of the documents that have a key, in their order.
struct Numbers {
    first: u32,
    others: Vec<u32>,
}

impl JoinTable {
    /// An empty one that has room for documents of so many bytes.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self {
            documents: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// Adds a document with its keys. Answers the bytes that it takes; all documents together take less than 4 GiB.
    pub(super) fn insert<'k>(&mut self, document: &RawDocument, keys: impl Iterator<Item = &'k [u8]>) -> usize {
        let number = self.starts.len() as u32;
        let mut taken = DOCUMENT_OVERHEAD + document.as_bytes().len();
        for key in keys {
            taken += KEY_OVERHEAD + key.len();
            match self.by_key.get_mut(key) {
                Some(numbers) => numbers.others.push(number),
                None => {
                    let numbers = Numbers {
                        first: number,
                        others: Vec::new(),
                    };
                    self.by_key.insert(JoinKey::new(key), numbers);
                }
            }
        }
        self.starts.push(self.documents.len() as u32);
        self.documents.extend_from_slice(document.as_bytes());
        taken
    }

    /// The numbers of the documents that have a key.
    pub(super) fn numbers(&self, key: &[u8]) -> impl Iterator<Item = u32> {
        let found = self.by_key.get(key).into_iter();
        found.flat_map(|numbers| std::iter::once(numbers.first).chain(numbers.others.iter().copied()))
    }

    /// The document of a number.
    pub(super) fn document(&self, number: u32) -> Result<&RawDocument, QueryError> {
        let start = self.starts[number as usize] as usize;
        let end = self
            .starts
            .get(number as usize + 1)
            .map_or(self.documents.len(), |end| *end as usize);
        as_document(&self.documents[start..end])
    }
}

const SHORT: usize = 22;

/// A key; most have no allocation of their own.
enum JoinKey {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl JoinKey {
    fn new(key: &[u8]) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..key.len()) {
            Some(room) => {
                room.copy_from_slice(key);
                Self::Short(key.len() as u8, short)
            }
            None => Self::Long(key.into()),
        }
    }
}

impl Borrow<[u8]> for JoinKey {
    fn borrow(&self) -> &[u8] {
        match self {
            Self::Short(length, short) => &short[..usize::from(*length)],
            Self::Long(long) => long,
        }
    }
}

impl Hash for JoinKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Borrow::<[u8]>::borrow(self).hash(state);
    }
}

impl PartialEq for JoinKey {
    fn eq(&self, other: &Self) -> bool {
        Borrow::<[u8]>::borrow(self) == Borrow::<[u8]>::borrow(other)
    }
}

impl Eq for JoinKey {}

#[cfg(test)]
mod tests {
    use super::JoinTable;
    use bson::rawdoc;

    /// A key that fits into the table, one that does not by a byte, and one that is the other's beginning.
    #[test]
    fn keys_of_all_lengths_lead_to_their_documents() {
        let keys: Vec<Vec<u8>> = [0, 1, 21, 22, 23, 24, 500].map(|length| vec![7; length]).into();
        let mut table = JoinTable::default();
        for id in 0..100_i32 {
            let of_document = keys
                .iter()
                .enumerate()
                .filter(|(place, _)| (id as usize).is_multiple_of(place + 1));
            let document = rawdoc! { "_id": id, "text": "x".repeat(id as usize) };
            let taken = table.insert(&document, of_document.map(|(_, key)| key.as_slice()));
            assert!(taken > document.as_bytes().len());
        }
        for (place, key) in keys.iter().enumerate() {
            let ids = table.numbers(key).map(|number| {
                let document = table.document(number).expect("a document");
                assert_eq!(document.get_str("text").expect("a text").len(), number as usize);
                document.get_i32("_id").expect("an _id")
            });
            let expected = (0..100).filter(|id| (*id as usize).is_multiple_of(place + 1));
            assert!(ids.eq(expected), "{} bytes", key.len());
        }
        assert_eq!(table.numbers(&[7; 20]).count(), 0);
    }
}
