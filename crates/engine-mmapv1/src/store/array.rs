//! The dense array of a table of records: from record id to place.
//!
//! A page holds 1,024 places; above the lowest pages lie pages of places of pages, as many levels as the largest id
//! asks for. A record that moves changes one place here and nothing else. Pages in which nothing is left are given
//! back.

use super::{Store, Visit};
use crate::bytes_at::{put, u64_at};
use crate::files::PageBuf;
use crate::loc::{Loc, PAGE_BYTES};
use crate::pager::Pager;
use engine::{Direction, Result};

const FANOUT_BITS: u32 = 10;
const FANOUT: u64 = 1 << FANOUT_BITS;
/// More levels there are not: larger ids go to the tree.
const LEVELS_MAX: u8 = 4;
/// Ids below this one are the array's.
pub(crate) const ARRAY_IDS: u64 = 1 << (FANOUT_BITS * LEVELS_MAX as u32);

const _: () = assert!(FANOUT as usize * 8 == PAGE_BYTES, "a page is full of places");

/// The id that a key stands for, if it is the array's.
pub(crate) fn id_of_key(key: &[u8]) -> Option<u64> {
    let id = u64::from_be_bytes(key.try_into().ok()?);
    (id < ARRAY_IDS).then_some(id)
}

fn ids_below(levels: u8) -> u64 {
    1 << (FANOUT_BITS * u32::from(levels))
}

fn index_at(id: u64, level: u8) -> usize {
    (id >> (FANOUT_BITS * u32::from(level)) & (FANOUT - 1)) as usize
}

fn entry(page: &PageBuf, index: usize) -> Loc {
    Loc(u64_at(page, index * 8).expect("an index below the fan-out"))
}

fn set_entry(pager: &Pager<'_>, page: Loc, index: usize, to: Loc) -> Result<()> {
    pager.modify(page, index * 8..index * 8 + 8, |page| {
        put(page, index * 8, &to.0.to_le_bytes())
    })
}

impl Store {
    /// The place of a record; null when there is none.
    pub(crate) fn array_get(&self, pager: &Pager<'_>, id: u64) -> Result<Loc> {
        if self.array_levels == 0 || id >= ids_below(self.array_levels) {
            return Ok(Loc::NULL);
        }
        let mut at = self.array_root;
        for level in (0..self.array_levels).rev() {
            at = entry(&*pager.read(at)?, index_at(id, level));
            if at.is_null() {
                break;
            }
        }
        Ok(at)
    }

    /// Sets the place of a record.
    pub(crate) fn array_set(&mut self, pager: &Pager<'_>, id: u64, place: Loc) -> Result<()> {
        while self.array_levels == 0 || id >= ids_below(self.array_levels) {
            let root = self.take_page(pager)?;
            let below = self.array_root;
            pager.create(root, |page| put(page, 0, &below.0.to_le_bytes()))?;
            self.array_root = root;
            self.array_levels += 1;
        }
        let mut at = self.array_root;
        for level in (1..self.array_levels).rev() {
            let index = index_at(id, level);
            let mut next = entry(&*pager.read(at)?, index);
            if next.is_null() {
                next = self.take_page(pager)?;
                pager.create(next, |_| ())?;
                set_entry(pager, at, index, next)?;
            }
            at = next;
        }
        set_entry(pager, at, index_at(id, 0), place)
    }

    /// Clears the place of a record, and gives back pages that hold nothing more; not the root.
    pub(crate) fn array_clear(&mut self, pager: &Pager<'_>, id: u64) -> Result<()> {
        let mut path = Vec::with_capacity(usize::from(LEVELS_MAX));
        let mut at = self.array_root;
        for level in (0..self.array_levels).rev() {
            let index = index_at(id, level);
            path.push((at, index));
            at = entry(&*pager.read(at)?, index);
        }
        while let Some((page, index)) = path.pop() {
            set_entry(pager, page, index, Loc::NULL)?;
            if path.is_empty() || pager.read(page)?.iter().any(|&byte| byte != 0) {
                break;
            }
            self.free_page(pager, page)?;
        }
        Ok(())
    }

    /// Shows ids and places of records from `from` on, in order of the direction.
    pub(crate) fn array_scan(
        &self,
        pager: &Pager<'_>,
        from: u64,
        direction: Direction,
        visit: &mut dyn FnMut(u64, Loc) -> Result<Visit>,
    ) -> Result<()> {
        let last = match self.array_levels {
            0 => return Ok(()),
            levels => ids_below(levels) - 1,
        };
        let from = match direction {
            Direction::Forward if from > last => return Ok(()),
            Direction::Forward => from,
            Direction::Reverse => from.min(last),
        };
        scan_page(pager, self.array_root, self.array_levels - 1, 0, from, direction, visit).map(|_| ())
    }

    /// Shows every page of the array, for verification.
    pub(crate) fn array_pages(&self, pager: &Pager<'_>, visit: &mut dyn FnMut(Loc) -> Result<()>) -> Result<()> {
        fn walk(pager: &Pager<'_>, at: Loc, level: u8, visit: &mut dyn FnMut(Loc) -> Result<()>) -> Result<()> {
            visit(at)?;
            if level > 0 {
                let page = pager.read(at)?;
                for index in 0..FANOUT as usize {
                    let below = entry(&page, index);
                    if !below.is_null() {
                        walk(pager, below, level - 1, visit)?;
                    }
                }
            }
            Ok(())
        }
        match self.array_levels {
            0 => Ok(()),
            levels => walk(pager, self.array_root, levels - 1, visit),
        }
    }
}

/// Scans a page that holds the ids from `base` on; those beyond `from` against the direction are left out.
fn scan_page(
    pager: &Pager<'_>,
    at: Loc,
    level: u8,
    base: u64,
    from: u64,
    direction: Direction,
    visit: &mut dyn FnMut(u64, Loc) -> Result<Visit>,
) -> Result<Visit> {
    let page = pager.read(at)?;
    let span = ids_below(level);
    let offset = from.saturating_sub(base) / span;
    let (first, last) = match direction {
        Direction::Forward => (offset, FANOUT - 1),
        Direction::Reverse => (0, offset.min(FANOUT - 1)),
    };
    let mut index = if direction == Direction::Forward { first } else { last };
    loop {
        if index > last {
            return Ok(Visit::More);
        }
        let place = entry(&page, index as usize);
        if !place.is_null() {
            let id = base + index * span;
            let seen = match level {
                0 => visit(id, place)?,
                _ => scan_page(pager, place, level - 1, id, from, direction, visit)?,
            };
            if seen == Visit::Enough {
                return Ok(Visit::Enough);
            }
        }
        match direction {
            Direction::Forward => index += 1,
            Direction::Reverse if index == first => return Ok(Visit::More),
            Direction::Reverse => index -= 1,
        }
    }
}
