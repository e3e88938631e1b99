//! What was written to a leaf since its base was built: entries by key, each with a chain of versions.
//!
//! Entries lie in an arena that only grows ([`Arena`]); the sorted order over them is a small array of numbers
//! ([`Order`]). Writing to a key that has an entry pushes onto its chain. A new key at the right end is appended in
//! place; anywhere else the order is copied with the new number in it, and the leaf publishes the copy. Readers need no
//! lock for any of that: a number is stored before the length that covers it, an entry before its number.

use crate::page::head_u64;
use crate::version::Chain;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use triomphe::ThinArc;

/// Entries of the first chunk; each further chunk doubles. Writes all over a large table leave one or two in a leaf.
const FIRST_CHUNK: usize = 2;
const CHUNKS: usize = 13;
/// Numbers for which an order has room at first.
const FIRST_NUMBERS: usize = 8;
/// Most entries a delta can hold: undo for every row of a leaf of the shortest rows.
const ENTRIES_MAX: usize = FIRST_CHUNK * ((1 << CHUNKS) - 1);
/// Entries from which on a leaf takes no new key before it was consolidated or split.
pub(crate) const WRITES_MAX: usize = 504;
/// The same of a leaf that cannot be consolidated, as its rows on disk cannot be read.
pub(crate) const UNREADABLE_WRITES_MAX: usize = ENTRIES_MAX - WRITES_MAX;

/// Keys up to this length lie in their entries: those of documents, and of most indexes of one number.
const SHORT_KEY_BYTES: usize = 22;

/// The key of an entry.
pub(crate) struct EntryKey(Bytes);

enum Bytes {
    Short { len: u8, bytes: [u8; SHORT_KEY_BYTES] },
    Long(Box<[u8]>),
}

impl From<&[u8]> for EntryKey {
    #[inline]
    fn from(key: &[u8]) -> Self {
        if key.len() > SHORT_KEY_BYTES {
            return Self(Bytes::Long(key.into()));
        }
        let mut bytes = [0; SHORT_KEY_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        Self(Bytes::Short {
            len: key.len() as u8,
            bytes,
        })
    }
}

impl Deref for EntryKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Short { len, bytes } => &bytes[..usize::from(*len)],
            Bytes::Long(bytes) => bytes,
        }
    }
}

/// A key that was written.
pub(crate) struct Entry {
    /// [`head_u64`] of the key: a search mostly needs no more, and does not wait for the key's memory.
    head: u64,
    pub(crate) key: EntryKey,
    pub(crate) chain: Chain,
}

impl Entry {
    pub(crate) fn new(key: &[u8], chain: Chain) -> Self {
        Self {
            head: head_u64(key),
            key: key.into(),
            chain,
        }
    }

    /// How this key compares with `key`, whose head is `head`.
    #[inline]
    pub(crate) fn compare(&self, key: &[u8], head: u64) -> std::cmp::Ordering {
        self.head.cmp(&head).then_with(|| (*self.key).cmp(key))
    }

    /// Heap bytes of an entry without its versions.
    pub(crate) fn bytes(key: &[u8]) -> usize {
        let apart = match key.len() {
            0..=SHORT_KEY_BYTES => 0,
            len => crate::budget::good_size(len),
        };
        apart + size_of::<OnceLock<Entry>>()
    }
}

/// Some entries, behind a pointer of one word.
type Chunk = ThinArc<(), OnceLock<Entry>>;

/// Entries in the order of their coming.
#[derive(Default)]
pub(crate) struct Arena {
    chunks: [OnceLock<Chunk>; CHUNKS],
}

/// Chunk and place of an entry.
fn place(index: usize) -> (usize, usize) {
    let shifted = index / FIRST_CHUNK + 1;
    let chunk = shifted.ilog2() as usize;
    (chunk, index - FIRST_CHUNK * ((1 << chunk) - 1))
}

impl Arena {
    /// Entry `index`, which must have been put.
    #[inline]
    pub(crate) fn get(&self, index: u16) -> &Entry {
        let (chunk, at) = place(index as usize);
        self.chunks[chunk]
            .get()
            .and_then(|chunk| chunk.slice[at].get())
            .expect("the order names entries that are there")
    }

    /// Puts entry `index`, the next free one. The caller holds the leaf's lock.
    pub(crate) fn put(&self, index: usize, entry: Entry) {
        assert!(index < ENTRIES_MAX, "{index} entries in one leaf");
        let (chunk, at) = place(index);
        let slots = (0..FIRST_CHUNK << chunk).map(|_| OnceLock::new());
        let chunk = self.chunks[chunk].get_or_init(|| Chunk::from_header_and_iter((), slots));
        assert!(chunk.slice[at].set(entry).is_ok(), "entry {index} was free");
    }
}

/// Numbers of entries in key order, the last few places free.
pub(crate) struct Order {
    len: AtomicU16,
    numbers: Box<[AtomicU16]>,
}

impl Order {
    /// Room for `capacity` numbers at least; nothing on the heap for none.
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        let capacity = match capacity {
            0 => 0,
            _ => capacity.next_power_of_two().max(FIRST_NUMBERS),
        };
        Self {
            len: AtomicU16::new(0),
            numbers: (0..capacity).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// Numbers `0..len`, in that order.
    pub(crate) fn ascending(len: usize) -> Self {
        let order = Self::with_capacity(len);
        for number in 0..len {
            order.append(number as u16);
        }
        order
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        let len = self.len.load(Ordering::Acquire) as usize;
        rcu::schedule_point();
        len
    }

    /// Number at `at`, below a length that was read.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> u16 {
        self.numbers[at].load(Ordering::Relaxed)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() == self.numbers.len()
    }

    /// Adds a number at the end. One writer at a time; there must be room.
    pub(crate) fn append(&self, number: u16) {
        let len = self.len();
        self.numbers[len].store(number, Ordering::Relaxed);
        rcu::schedule_point();
        self.len.store(len as u16 + 1, Ordering::Release);
    }

    /// A copy with room for as many more as this has.
    pub(crate) fn copy(&self) -> Self {
        let len = self.len();
        let copy = Self::with_capacity(self.numbers.len());
        for at in 0..len {
            copy.numbers[at].store(self.get(at), Ordering::Relaxed);
        }
        copy.len.store(len as u16, Ordering::Release);
        copy
    }

    /// A copy with a number put in before `at`, and room for more.
    pub(crate) fn with_inserted(&self, at: usize, number: u16) -> Self {
        let len = self.len();
        let copy = Self::with_capacity(len + 1 + len / 4);
        for (to, from) in (0..at)
            .map(|index| (index, index))
            .chain((at..len).map(|index| (index + 1, index)))
        {
            copy.numbers[to].store(self.get(from), Ordering::Relaxed);
        }
        copy.numbers[at].store(number, Ordering::Relaxed);
        copy.len.store(len as u16 + 1, Ordering::Release);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_lengths_are_what_was_put_in() {
        for len in 0..3 * SHORT_KEY_BYTES {
            let key: Vec<u8> = (0..len as u8).collect();
            assert_eq!(*EntryKey::from(&*key), *key);
        }
        assert_eq!(size_of::<EntryKey>(), 24, "as large as a vector");
    }

    #[test]
    fn places_follow_each_other_without_gaps() {
        let mut expected = (0, 0);
        for index in 0..ENTRIES_MAX {
            assert_eq!(place(index), expected, "entry {index}");
            expected.1 += 1;
            if expected.1 == FIRST_CHUNK << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(expected, (CHUNKS, 0));
    }

    #[test]
    fn numbers_stay_where_they_were_put() {
        let mut order = Order::with_capacity(1);
        for number in 0..200_u16 {
            // Alternately at the front, in the middle and at the end.
            let at = match number % 3 {
                0 => 0,
                1 => order.len() / 2,
                _ => order.len(),
            };
            if at == order.len() && !order.is_full() {
                order.append(number);
            } else {
                order = order.with_inserted(at, number);
            }
            assert_eq!(order.get(at), number);
        }
        let mut all: Vec<u16> = (0..200).map(|at| order.get(at)).collect();
        all.sort_unstable();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
    }
}
