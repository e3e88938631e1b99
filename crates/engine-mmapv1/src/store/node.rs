//! A page of the tree, and the cells in it.
//!
//! | bytes | |
//! |---|---|
//! | 0..2 | level: 0 is a leaf |
//! | 2..4 | number of cells |
//! | 4..6 | where the cells begin; they grow down from the end of the page |
//! | 6..8 | bytes of cells that were removed above that |
//! | 8.. | places of the cells in the page, 2 bytes each, in order of their keys |
//!
//! A cell of a leaf is flags (1), key length (2), value length (2), key, value. A cell above leaves is flags (1), key
//! length (2), child (8), key; the first one's key does not count. A key or value too long for a page lies in a slot:
//! then 12 bytes, place and length, stand for it.

use crate::bytes_at::{put, u16_at, u64_at};
use crate::files::PageBuf;
use crate::loc::{Loc, PAGE_BYTES};

pub(crate) const NODE_HEADER_BYTES: usize = 8;
const LEAF_CELL_HEADER_BYTES: usize = 5;
const INNER_CELL_HEADER_BYTES: usize = 11;
/// The key lies in a slot.
pub(crate) const KEY_STORED: u8 = 1;
/// The value lies in a slot.
pub(crate) const VALUE_STORED: u8 = 2;
/// Longer keys go to slots: as long as MongoDB's mmapv1 took them at all.
pub(crate) const KEY_INLINE_MAX: usize = 1024;
/// Longer values go to slots.
pub(crate) const VALUE_INLINE_MAX: usize = 768;
/// Every page has room for at least four of the longest cells.
const _: () =
    assert!(4 * (LEAF_CELL_HEADER_BYTES + KEY_INLINE_MAX + VALUE_INLINE_MAX + 2) <= PAGE_BYTES - NODE_HEADER_BYTES);

/// A cell as it lies in a page. What a page does not hold is `None` all through this file: the caller names the damage.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) flags: u8,
    pub(crate) key: &'a [u8],
    /// Empty above leaves.
    pub(crate) value: &'a [u8],
    /// Null in leaves.
    pub(crate) child: Loc,
    pub(crate) bytes: &'a [u8],
}

pub(crate) fn level(page: &PageBuf) -> u16 {
    u16::from_le_bytes([page[0], page[1]])
}

pub(crate) fn count(page: &PageBuf) -> usize {
    usize::from(u16::from_le_bytes([page[2], page[3]]))
}

fn cells_start(page: &PageBuf) -> usize {
    usize::from(u16::from_le_bytes([page[4], page[5]]))
}

fn removed(page: &PageBuf) -> usize {
    usize::from(u16::from_le_bytes([page[6], page[7]]))
}

fn set_u16(page: &mut PageBuf, at: usize, value: usize) {
    put(page, at, &(value as u16).to_le_bytes());
}

/// Makes an empty node of a page.
pub(crate) fn init(page: &mut PageBuf, level: u16) {
    page.fill(0);
    set_u16(page, 0, level.into());
    set_u16(page, 4, PAGE_BYTES);
}

/// The cell of an index.
pub(crate) fn cell(page: &PageBuf, index: usize) -> Option<Cell<'_>> {
    if index >= count(page) {
        return None;
    }
    let at = usize::from(u16_at(page, NODE_HEADER_BYTES + 2 * index)?);
    parse(page.get(at..)?, level(page) == 0)
}

/// The cell that `bytes` begin with.
pub(crate) fn parse(bytes: &[u8], leaf: bool) -> Option<Cell<'_>> {
    let flags = *bytes.first()?;
    let key_bytes = usize::from(u16_at(bytes, 1)?);
    if leaf {
        let value_bytes = usize::from(u16_at(bytes, 3)?);
        let key_end = LEAF_CELL_HEADER_BYTES + key_bytes;
        Some(Cell {
            flags,
            key: bytes.get(LEAF_CELL_HEADER_BYTES..key_end)?,
            value: bytes.get(key_end..key_end + value_bytes)?,
            child: Loc::NULL,
            bytes: bytes.get(..key_end + value_bytes)?,
        })
    } else {
        let key_end = INNER_CELL_HEADER_BYTES + key_bytes;
        Some(Cell {
            flags,
            key: bytes.get(INNER_CELL_HEADER_BYTES..key_end)?,
            value: &[],
            child: Loc(u64_at(bytes, 3)?),
            bytes: bytes.get(..key_end)?,
        })
    }
}

/// A leaf's cell.
pub(crate) fn leaf_cell(flags: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut cell = Vec::with_capacity(LEAF_CELL_HEADER_BYTES + key.len() + value.len());
    cell.push(flags);
    cell.extend_from_slice(&(key.len() as u16).to_le_bytes());
    cell.extend_from_slice(&(value.len() as u16).to_le_bytes());
    cell.extend_from_slice(key);
    cell.extend_from_slice(value);
    cell
}

/// A cell above leaves.
pub(crate) fn inner_cell(flags: u8, key: &[u8], child: Loc) -> Vec<u8> {
    let mut cell = Vec::with_capacity(INNER_CELL_HEADER_BYTES + key.len());
    cell.push(flags);
    cell.extend_from_slice(&(key.len() as u16).to_le_bytes());
    cell.extend_from_slice(&child.0.to_le_bytes());
    cell.extend_from_slice(key);
    cell
}

/// Bytes that cells and their places take.
pub(crate) fn used(page: &PageBuf) -> usize {
    (PAGE_BYTES - cells_start(page).min(PAGE_BYTES)).saturating_sub(removed(page)) + 2 * count(page)
}

/// Bytes that could be added, a cell's place included.
pub(crate) fn free(page: &PageBuf) -> usize {
    (PAGE_BYTES - NODE_HEADER_BYTES).saturating_sub(used(page))
}

/// Puts a cell before that of `index`. False, and nothing done, when there is no room.
pub(crate) fn insert(page: &mut PageBuf, index: usize, bytes: &[u8]) -> bool {
    let cells = count(page);
    if free(page) < bytes.len() + 2 || index > cells {
        return false;
    }
    let places_end = NODE_HEADER_BYTES + 2 * cells;
    if cells_start(page) < places_end + 2 + bytes.len() && !compact(page) {
        return false;
    }
    let at = cells_start(page) - bytes.len();
    put(page, at, bytes);
    let place = NODE_HEADER_BYTES + 2 * index;
    page.copy_within(place..places_end, place + 2);
    set_u16(page, place, at);
    set_u16(page, 2, cells + 1);
    set_u16(page, 4, at);
    true
}

/// Removes a cell.
pub(crate) fn remove(page: &mut PageBuf, index: usize) {
    let Some(length) = cell(page, index).map(|cell| cell.bytes.len()) else {
        return;
    };
    let cells = count(page);
    let place = NODE_HEADER_BYTES + 2 * index;
    page.copy_within(place + 2..NODE_HEADER_BYTES + 2 * cells, place);
    set_u16(page, 2, cells - 1);
    let gone = removed(page) + length;
    set_u16(page, 6, gone);
}

/// Overwrites the bytes of a cell by as many.
pub(crate) fn overwrite(page: &mut PageBuf, index: usize, bytes: &[u8]) {
    if let Some(at) = u16_at(page, NODE_HEADER_BYTES + 2 * index) {
        put(page, at.into(), bytes);
    }
}

/// All cells, copied.
pub(crate) fn cells(page: &PageBuf) -> Option<Vec<Vec<u8>>> {
    (0..count(page))
        .map(|index| Some(cell(page, index)?.bytes.to_vec()))
        .collect()
}

/// Makes a node of these cells. False when they do not fit.
pub(crate) fn rebuild(page: &mut PageBuf, level: u16, cells: &[Vec<u8>]) -> bool {
    init(page, level);
    cells.iter().enumerate().all(|(index, cell)| insert(page, index, cell))
}

fn compact(page: &mut PageBuf) -> bool {
    match cells(page) {
        Some(cells) => rebuild(page, level(page), &cells),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_come_and_go_and_room_is_used_again() {
        let mut page = [0; PAGE_BYTES];
        init(&mut page, 0);
        let cell_of = |number: u16| leaf_cell(0, &number.to_be_bytes(), &vec![number as u8; 300]);
        let mut fitted = 0;
        while insert(&mut page, fitted, &cell_of(fitted as u16)) {
            fitted += 1;
        }
        assert_eq!(fitted, (PAGE_BYTES - NODE_HEADER_BYTES) / (300 + 2 + 5 + 2));
        remove(&mut page, 3);
        assert!(insert(&mut page, 3, &cell_of(999)));
        let third = cell(&page, 3).expect("there");
        assert_eq!((third.key, third.value.len()), (&999u16.to_be_bytes()[..], 300));
        assert_eq!(cell(&page, 4).expect("there").key, 4u16.to_be_bytes());
        assert!(cell(&page, fitted).is_none());
    }

    #[test]
    fn no_bytes_make_a_cell_panic() {
        for seed in 0..200u64 {
            let mut page = [0; PAGE_BYTES];
            let random = vfs::SeededRandom::new(seed);
            vfs::Random::fill(&random, &mut page);
            (0..count(&page).min(100)).for_each(|index| _ = cell(&page, index).map(|cell| cell.key.len()));
            let _ = (used(&page), free(&page));
        }
    }
}
