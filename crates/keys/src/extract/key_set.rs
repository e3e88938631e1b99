//! The keys of one document in one index, in one piece of memory.
//!
//! Invariants after an extraction: keys rise strictly; each key's type bits lie right behind it in the arena.

use super::text_terms::TermScratch;
use super::{ExtractError, WATCHED_BYTES, Watch};
use crate::key::TypeBits;

/// The keys taken out of a document. Reusing one keeps its memory.
#[derive(Debug, Default)]
pub struct KeySet {
    pub(super) arena: Vec<u8>,
    pub(super) types: TypeBits,
    entries: Vec<Entry>,
    pub(super) multikey: MultikeyPaths,
    /// Bytes that were there when somebody last looked.
    looked_at: usize,
    /// What text indexes gather in.
    pub(super) terms: Option<Box<TermScratch>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    /// Lengths of what stands there. Documents are below 2 GiB, and so are their keys.
    key_bytes: u32,
    types_bytes: u32,
}

/// A key as it goes into an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtractedKey<'a> {
    /// The encoded fields, without a record id.
    pub key: &'a [u8],
    /// The type bits' bytes.
    pub types: &'a [u8],
}

impl KeySet {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of keys: none for a document that a sparse index leaves out.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The keys, strictly rising.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = ExtractedKey<'_>> {
        self.entries.iter().map(|entry| entry.of(&self.arena))
    }

    /// The key at a place.
    pub fn get(&self, index: usize) -> Option<ExtractedKey<'_>> {
        self.entries.get(index).map(|entry| entry.of(&self.arena))
    }

    /// Which path parts went through arrays in this document.
    pub fn multikey(&self) -> &MultikeyPaths {
        &self.multikey
    }

    /// Bytes of memory that the keys take.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Asks `watch` whether to go on when there is much that it has not heard of.
    pub(super) fn look(&mut self, watch: &mut Watch<'_>) -> Result<(), ExtractError> {
        let bytes = self.bytes();
        if bytes - self.looked_at < WATCHED_BYTES {
            return Ok(());
        }
        self.looked_at = bytes;
        if watch(bytes) { Ok(()) } else { Err(ExtractError::Ended) }
    }

    pub(super) fn clear(&mut self) {
        self.looked_at = 0;
        self.arena.clear();
        self.types.clear();
        self.entries.clear();
        self.multikey.clear();
    }

    /// Ends a key that starts at `start` in the arena, with the type bits gathered.
    pub(super) fn finish_key(&mut self, start: usize) {
        let types_at = self.arena.len();
        self.arena.extend_from_slice(self.types.as_bytes());
        self.types.clear();
        let length = |from: usize, to: usize| u32::try_from(to - from).expect("a key is below 4 GiB");
        self.entries.push(Entry {
            start,
            key_bytes: length(start, types_at),
            types_bytes: length(types_at, self.arena.len()),
        });
    }

    /// Sorts, and drops keys that are there already (their type bits with them; a multikey index never covers).
    pub(super) fn sort(&mut self) {
        if self.entries.len() > 1 {
            let arena = &self.arena;
            self.entries.sort_unstable_by(|a, b| a.of(arena).cmp(&b.of(arena)));
            self.entries.dedup_by(|a, b| a.of(arena).key == b.of(arena).key);
        }
    }
}

impl Entry {
    fn of<'a>(&self, arena: &'a [u8]) -> ExtractedKey<'a> {
        let (key, rest) = arena[self.start..].split_at(self.key_bytes as usize);
        ExtractedKey {
            key,
            types: &rest[..self.types_bytes as usize],
        }
    }
}

/// Which parts of which fields' paths have met an array: for `{"a.b": 1}` and `{a: [{b: 1}]}` part 0 of field 0. An
/// index keeps the union over its documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultikeyPaths {
    /// Field and part, rising. Nearly always empty or very short, but of wildcard indexes.
    places: Vec<(u8, u8)>,
}

impl MultikeyPaths {
    /// No arrays.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when no path met an array.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// True when this part of this field's path met an array.
    pub fn contains(&self, field: usize, part: usize) -> bool {
        let place = |&(own_field, own_part): &(u8, u8)| (usize::from(own_field), usize::from(own_part));
        self.places.binary_search_by_key(&(field, part), place).is_ok()
    }

    /// True when any part of this field's path met an array.
    pub fn field_is_multikey(&self, field: usize) -> bool {
        self.places.iter().any(|place| usize::from(place.0) == field)
    }

    /// Field and part of every place, rising.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.places
            .iter()
            .map(|(field, part)| (usize::from(*field), usize::from(*part)))
    }

    /// Adds a place (field below 32, part below 200). True when it is new.
    pub fn insert(&mut self, field: usize, part: usize) -> bool {
        let place = (field as u8, part as u8);
        match self.places.binary_search(&place) {
            Ok(_) => false,
            Err(at) => {
                self.places.insert(at, place);
                true
            }
        }
    }

    /// Adds all places of another. True when one of them is new.
    pub fn merge(&mut self, other: &MultikeyPaths) -> bool {
        other
            .iter()
            .fold(false, |new, (field, part)| self.insert(field, part) | new)
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
    }
}
