//! The rows of one table, as they are now: slots with records, the array that leads to them, and the tree.
//!
//! A table of records keeps rows whose keys are record ids in the array, and what else it is given in the tree; other
//! tables have the tree alone. A store knows nothing of positions and snapshots; its caller holds the table's lock.

mod array;
mod node;
mod slots;
mod tree;

use crate::bytes_at::{put, u16_at, u32_at, u64_at};
use crate::loc::Loc;
use crate::pager::Pager;
use crate::space::Extent;
use array::{ARRAY_IDS, id_of_key};
use bytes::Bytes;
use engine::{Direction, Result, TableKind};
use std::ops::Bound;

pub(crate) use slots::{BUCKETS, FREE, Fresh, SlotHeader, with_record};
pub(crate) use tree::TreePart;

/// Whether a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    More,
    Enough,
}

/// A value that a scan came to.
#[derive(Clone, Copy)]
pub(crate) enum Value<'a> {
    Here(&'a [u8]),
    Stored {
        at: Loc,
        tag: u64,
        /// The length, where it is known without looking.
        bytes: Option<u32>,
    },
}

impl Value<'_> {
    /// Hands the bytes to `read`.
    pub(crate) fn with<T>(&self, pager: &Pager<'_>, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match *self {
            Self::Here(bytes) => Ok(read(bytes)),
            Self::Stored { at, tag, .. } => with_record(pager, at, tag, read),
        }
    }

    pub(crate) fn len(&self, pager: &Pager<'_>) -> Result<usize> {
        match *self {
            Self::Here(bytes) => Ok(bytes.len()),
            Self::Stored { bytes: Some(bytes), .. } => Ok(bytes as usize),
            Self::Stored { at, .. } => Ok(SlotHeader::read(pager, &*pager.read(at)?, at)?.record_bytes as usize),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Store {
    /// In the order they were added; at the next start, in the order of their places. Not stored: the owner maps have
    /// them.
    pub(crate) extents: Vec<Extent>,
    pub(crate) fresh: Fresh,
    /// Behind this place its page is unused; null when there is no such page.
    pub(crate) small: Loc,
    pub(crate) buckets: [Loc; BUCKETS],
    pub(crate) array_root: Loc,
    pub(crate) array_levels: u8,
    pub(crate) tree_root: Loc,
    pub(crate) rows: u64,
    /// Key and value bytes.
    pub(crate) data_bytes: u64,
    /// Bytes of the extents that slots with records and pages of array and tree take.
    pub(crate) used_bytes: u64,
    /// Records that had to move since the table was made.
    pub(crate) moves: u64,
}

/// Bytes of [`Store::encode`].
pub(crate) const STORE_BYTES: usize = 80 + BUCKETS * 8;

impl Store {
    /// What of a store is kept beside its pages.
    pub(crate) fn encode(&self) -> [u8; STORE_BYTES] {
        let mut bytes = [0; STORE_BYTES];
        let words = [
            self.rows,
            self.data_bytes,
            self.used_bytes,
            self.moves,
            self.small.0,
            self.array_root.0,
            self.tree_root.0,
            u64::from(self.array_levels),
        ];
        for (index, word) in words.iter().enumerate() {
            put(&mut bytes, index * 8, &word.to_le_bytes());
        }
        put(&mut bytes, 64, &self.fresh.file.to_le_bytes());
        put(&mut bytes, 68, &self.fresh.next.to_le_bytes());
        put(&mut bytes, 72, &self.fresh.end.to_le_bytes());
        for (index, head) in self.buckets.iter().enumerate() {
            put(&mut bytes, 80 + index * 8, &head.0.to_le_bytes());
        }
        bytes
    }

    /// A store of what [`Store::encode`] gave, without its extents; `None` for what it cannot have given.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| u64_at(bytes, index * 8);
        let mut buckets = [Loc::NULL; BUCKETS];
        for (index, head) in buckets.iter_mut().enumerate() {
            *head = Loc(u64_at(bytes, 80 + index * 8)?);
        }
        let fresh = Fresh {
            file: u16_at(bytes, 64)?,
            next: u32_at(bytes, 68)?,
            end: u32_at(bytes, 72)?,
        };
        let array_levels = u8::try_from(word(7)?).ok().filter(|&levels| levels <= 4)?;
        Some(Self {
            extents: Vec::new(),
            fresh: (fresh.next <= fresh.end).then_some(fresh)?,
            small: Loc(word(4)?),
            buckets,
            array_root: Loc(word(5)?),
            array_levels,
            tree_root: Loc(word(6)?),
            rows: word(0)?,
            data_bytes: word(1)?,
            used_bytes: word(2)?,
            moves: word(3)?,
        })
    }

    /// Bytes of all extents.
    pub(crate) fn storage_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes()).sum()
    }

    /// Hands the value of a key to `read`.
    pub(crate) fn get<T>(
        &self,
        pager: &Pager<'_>,
        kind: TableKind,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        match array_id(kind, key) {
            None => self.tree_get(pager, key, read),
            Some(id) => match self.array_get(pager, id)? {
                Loc::NULL => Ok(None),
                at => with_record(pager, at, id, read).map(Some),
            },
        }
    }

    /// Sets a key.
    pub(crate) fn put(&mut self, pager: &Pager<'_>, kind: TableKind, key: &[u8], value: &[u8]) -> Result<()> {
        let before = match array_id(kind, key) {
            None => self.tree_put(pager, key, value)?,
            Some(id) => match self.array_get(pager, id)? {
                Loc::NULL => {
                    let at = self.write_record(pager, id, value)?;
                    self.array_set(pager, id, at)?;
                    None
                }
                at => {
                    let before = SlotHeader::read(pager, &*pager.read(at)?, at)?.record_bytes;
                    if let Some(moved) = self.rewrite_record(pager, at, id, value)? {
                        self.array_set(pager, id, moved)?;
                    }
                    Some(before as usize)
                }
            },
        };
        match before {
            None => {
                self.rows += 1;
                self.data_bytes += (key.len() + value.len()) as u64;
            }
            Some(before) => self.data_bytes = self.data_bytes - before as u64 + value.len() as u64,
        }
        Ok(())
    }

    /// Removes a key; false when there was none.
    pub(crate) fn delete(&mut self, pager: &Pager<'_>, kind: TableKind, key: &[u8]) -> Result<bool> {
        let before = match array_id(kind, key) {
            None => self.tree_delete(pager, key)?,
            Some(id) => match self.array_get(pager, id)? {
                Loc::NULL => None,
                at => {
                    let before = SlotHeader::read(pager, &*pager.read(at)?, at)?.record_bytes;
                    self.free_record(pager, at, id)?;
                    self.array_clear(pager, id)?;
                    Some(before as usize)
                }
            },
        };
        if let Some(before) = before {
            self.rows -= 1;
            self.data_bytes -= (key.len() + before) as u64;
        }
        Ok(before.is_some())
    }

    /// Shows rows from a bound on, in order of the direction. The visitor ends it.
    pub(crate) fn scan(
        &self,
        pager: &Pager<'_>,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], Value<'_>) -> Result<Visit>,
    ) -> Result<()> {
        let show = |visit: &mut dyn FnMut(&[u8], Value<'_>) -> Result<Visit>, id: u64, at: Loc| {
            let value = Value::Stored {
                at,
                tag: id,
                bytes: None,
            };
            visit(&id.to_be_bytes(), value)
        };
        let Some(mut next_id) = first_id(from, direction).filter(|_| self.array_levels > 0) else {
            return self.tree_scan(pager, from, direction, visit);
        };
        if self.tree_root.is_null() {
            return self.array_scan(pager, next_id, direction, &mut |id, at| show(visit, id, at));
        }
        // Both have rows: between two of the tree come those of the array. Rare, hence one at a time from the tree.
        let mut ids_left = true;
        let mut from: Bound<Vec<u8>> = from.map(<[u8]>::to_vec);
        loop {
            let mut row: Option<(Vec<u8>, Bytes)> = None;
            self.tree_scan(pager, from.as_ref().map(Vec::as_slice), direction, &mut |key, value| {
                row = Some((key.to_vec(), value.with(pager, Bytes::copy_from_slice)?));
                Ok(Visit::Enough)
            })?;
            let comes_first = |key: &[u8]| match (&row, direction) {
                (None, _) => true,
                (Some((tree, _)), Direction::Forward) => key < &tree[..],
                (Some((tree, _)), Direction::Reverse) => key > &tree[..],
            };
            let mut ended = false;
            let mut stopped_at = None;
            if ids_left {
                self.array_scan(pager, next_id, direction, &mut |id, at| {
                    if !comes_first(&id.to_be_bytes()) {
                        stopped_at = Some(id);
                        return Ok(Visit::Enough);
                    }
                    let seen = show(visit, id, at)?;
                    ended = seen == Visit::Enough;
                    Ok(seen)
                })?;
            }
            if ended {
                return Ok(());
            }
            ids_left = stopped_at.is_some();
            next_id = stopped_at.unwrap_or(next_id);
            let Some((key, value)) = row else { return Ok(()) };
            if visit(&key, Value::Here(&value))? == Visit::Enough {
                return Ok(());
            }
            from = Bound::Excluded(key);
        }
    }
}

fn array_id(kind: TableKind, key: &[u8]) -> Option<u64> {
    match kind {
        TableKind::Records => id_of_key(key),
        TableKind::Index | TableKind::Small | TableKind::Clustered => None,
    }
}

/// The first id of the array, in the direction, at or behind a bound that may be any key; `None` when there is none.
fn first_id(from: Bound<&[u8]>, direction: Direction) -> Option<u64> {
    let (key, excluded) = match from {
        Bound::Unbounded if direction == Direction::Forward => return Some(0),
        Bound::Unbounded => return Some(ARRAY_IDS - 1),
        Bound::Included(key) => (key, false),
        Bound::Excluded(key) => (key, true),
    };
    let mut padded = [0; 8];
    let length = key.len().min(8);
    padded[..length].copy_from_slice(&key[..length]);
    let number = u64::from_be_bytes(padded);
    // A shorter key lies just before its padded number, a longer one just behind.
    let id = match direction {
        Direction::Forward if key.len() > 8 || (key.len() == 8 && excluded) => number.checked_add(1)?,
        Direction::Forward => number,
        Direction::Reverse if key.len() < 8 || (key.len() == 8 && excluded) => {
            number.checked_sub(1)?.min(ARRAY_IDS - 1)
        }
        Direction::Reverse => number.min(ARRAY_IDS - 1),
    };
    (id < ARRAY_IDS).then_some(id)
}
