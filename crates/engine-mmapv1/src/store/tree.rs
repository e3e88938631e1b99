//! The tree of a table: rows whose keys are not record ids.
//!
//! A B+ tree of pages of 8 KiB, without links between neighbours: a scan goes by way of the parents. A page that is
//! full is parted in the middle, or at the end when what comes is the last of it, so that rising keys leave full
//! pages. Leaves that are nearly empty are merged with a neighbour, empty pages go.
//!
//! Invariants: keys rise strictly; of the page above, the keys of a child lie at or above its cell's and below the
//! next cell's; levels fall by one on each way down (so damage makes no circle).

use super::node::{self, Cell, KEY_INLINE_MAX, KEY_STORED, VALUE_INLINE_MAX, VALUE_STORED};
use super::slots::{read_record, with_record};
use super::{Store, Value, Visit};
use crate::bytes_at::{put, u32_at, u64_at};
use crate::files::{Page, PageBuf};
use crate::loc::{Loc, PAGE_BYTES};
use crate::pager::Pager;
use engine::{Direction, Result};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

/// Tags of slots that hold what is too long for a page of the tree.
pub(crate) const KEY_TAG: u64 = u64::MAX;
pub(crate) const VALUE_TAG: u64 = u64::MAX - 1;
/// No page lies deeper.
const LEVELS_MAX: u16 = 64;
/// A leaf with less in it is merged with a neighbour, if both then fill no more than [`MERGED_MAX`].
const MERGE_BELOW: usize = PAGE_BYTES / 4;
const MERGED_MAX: usize = PAGE_BYTES * 3 / 4;

/// A page on the way down, and which of its children the way took.
#[derive(Clone, Copy)]
struct Step {
    page: Loc,
    index: usize,
}

/// Where a key is in its leaf, or would be.
struct Found {
    path: Vec<Step>,
    leaf: Loc,
    page: Page,
    index: std::result::Result<usize, usize>,
}

/// The 12 bytes that stand for a key or value in a slot.
fn stored(bytes: &[u8]) -> Option<(Loc, u32)> {
    (bytes.len() == 12).then_some((Loc(u64_at(bytes, 0)?), u32_at(bytes, 8)?))
}

fn cell_of<'a>(pager: &Pager<'_>, page: &'a PageBuf, at: Loc, index: usize) -> Result<Cell<'a>> {
    node::cell(page, index).ok_or_else(|| pager.corrupt(at, format!("the page has no sound cell {index}")))
}

fn key_of<'a>(pager: &Pager<'_>, cell: &Cell<'a>, at: Loc) -> Result<Cow<'a, [u8]>> {
    if cell.flags & KEY_STORED == 0 {
        return Ok(Cow::Borrowed(cell.key));
    }
    let (record, _) = stored(cell.key).ok_or_else(|| pager.corrupt(at, "a stored key has no place"))?;
    Ok(Cow::Owned(read_record(pager, record, KEY_TAG)?.to_vec()))
}

fn compare(pager: &Pager<'_>, page: &PageBuf, at: Loc, index: usize, key: &[u8]) -> Result<Ordering> {
    let cell = cell_of(pager, page, at, index)?;
    if cell.flags & KEY_STORED == 0 {
        return Ok(cell.key.cmp(key));
    }
    let (record, _) = stored(cell.key).ok_or_else(|| pager.corrupt(at, "a stored key has no place"))?;
    with_record(pager, record, KEY_TAG, |stored| stored.cmp(key))
}

/// The first cell of `from..` whose key is not below `key`.
fn search(
    pager: &Pager<'_>,
    page: &PageBuf,
    at: Loc,
    from: usize,
    key: &[u8],
) -> Result<std::result::Result<usize, usize>> {
    let (mut low, mut high) = (from, node::count(page).max(from));
    while low < high {
        let middle = (low + high) / 2;
        match compare(pager, page, at, middle, key)? {
            Ordering::Equal => return Ok(Ok(middle)),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    Ok(Err(low))
}

/// The child whose keys `key` is among.
fn child_index(pager: &Pager<'_>, page: &PageBuf, at: Loc, key: &[u8]) -> Result<usize> {
    Ok(match search(pager, page, at, 1, key)? {
        Ok(equal) => equal,
        Err(above) => above - 1,
    })
}

fn value_of<'a>(pager: &Pager<'_>, cell: &Cell<'a>, at: Loc) -> Result<Value<'a>> {
    if cell.flags & VALUE_STORED == 0 {
        return Ok(Value::Here(cell.value));
    }
    let (record, bytes) = stored(cell.value).ok_or_else(|| pager.corrupt(at, "a stored value has no place"))?;
    Ok(Value::Stored {
        at: record,
        tag: VALUE_TAG,
        bytes: Some(bytes),
    })
}

impl Store {
    /// Goes down to the leaf that `key` belongs to; `None` without a tree.
    fn tree_find(&self, pager: &Pager<'_>, key: &[u8]) -> Result<Option<Found>> {
        if self.tree_root.is_null() {
            return Ok(None);
        }
        let mut path = Vec::with_capacity(4);
        let mut at = self.tree_root;
        let mut page = pager.read(at)?;
        check_level(pager, &page, at, None)?;
        while node::level(&page) > 0 {
            let index = child_index(pager, &page, at, key)?;
            let child = cell_of(pager, &page, at, index)?.child;
            path.push(Step { page: at, index });
            let below = pager.read(child)?;
            check_level(pager, &below, child, Some(node::level(&page)))?;
            (at, page) = (child, below);
        }
        let index = search(pager, &page, at, 0, key)?;
        Ok(Some(Found {
            path,
            leaf: at,
            page,
            index,
        }))
    }

    /// Hands the value of a key to `read`.
    pub(crate) fn tree_get<T>(
        &self,
        pager: &Pager<'_>,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        match self.tree_find(pager, key)? {
            Some(Found {
                leaf,
                page,
                index: Ok(index),
                ..
            }) => {
                let cell = cell_of(pager, &page, leaf, index)?;
                value_of(pager, &cell, leaf)?.with(pager, read).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Sets a key; the length of the value before, if there was one.
    pub(crate) fn tree_put(&mut self, pager: &Pager<'_>, key: &[u8], value: &[u8]) -> Result<Option<usize>> {
        if self.tree_root.is_null() {
            self.tree_root = self.take_page(pager)?;
            pager.create(self.tree_root, |page| node::init(page, 0))?;
        }
        let found = self.tree_find(pager, key)?.expect("there is a root");
        let Ok(index) = found.index else {
            let index = found.index.unwrap_or_else(|index| index);
            let cell = self.make_leaf_cell(pager, key, value)?;
            drop(found.page);
            self.insert_cell(pager, found.path, found.leaf, index, cell)?;
            return Ok(None);
        };
        let old = cell_of(pager, &found.page, found.leaf, index)?;
        let old_bytes = value_of(pager, &old, found.leaf)?.len(pager)?;
        if old.flags & VALUE_STORED == 0 && value.len() == old.value.len() {
            let offset = old.bytes.len() - value.len();
            let mut cell = old.bytes.to_vec();
            put(&mut cell, offset, value);
            drop(found.page);
            pager.modify(found.leaf, 0..PAGE_BYTES, |page| node::overwrite(page, index, &cell))?;
            return Ok(Some(old_bytes));
        }
        // The key's own slot, where it has one, goes with the cell and is made again.
        self.free_stored_parts(pager, &old, found.leaf)?;
        drop(found.page);
        pager.modify(found.leaf, 0..PAGE_BYTES, |page| node::remove(page, index))?;
        let cell = self.make_leaf_cell(pager, key, value)?;
        self.insert_cell(pager, found.path, found.leaf, index, cell)?;
        Ok(Some(old_bytes))
    }

    /// Removes a key; the length of its value, if there was one.
    pub(crate) fn tree_delete(&mut self, pager: &Pager<'_>, key: &[u8]) -> Result<Option<usize>> {
        let Some(found) = self.tree_find(pager, key)? else {
            return Ok(None);
        };
        let Ok(index) = found.index else { return Ok(None) };
        let old = cell_of(pager, &found.page, found.leaf, index)?;
        let old_bytes = value_of(pager, &old, found.leaf)?.len(pager)?;
        self.free_stored_parts(pager, &old, found.leaf)?;
        drop(found.page);
        pager.modify(found.leaf, 0..PAGE_BYTES, |page| node::remove(page, index))?;
        self.shrink(pager, found.path, found.leaf)?;
        Ok(Some(old_bytes))
    }

    fn make_leaf_cell(&mut self, pager: &Pager<'_>, key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let mut flags = 0;
        let mut part = |store: &mut Self, bytes: &[u8], max: usize, flag: u8, tag: u64| -> Result<Option<Vec<u8>>> {
            if bytes.len() <= max {
                return Ok(None);
            }
            flags |= flag;
            let at = store.write_record(pager, tag, bytes)?;
            Ok(Some(
                [&at.0.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes()].concat(),
            ))
        };
        let stored_key = part(self, key, KEY_INLINE_MAX, KEY_STORED, KEY_TAG)?;
        let stored_value = part(self, value, VALUE_INLINE_MAX, VALUE_STORED, VALUE_TAG)?;
        Ok(node::leaf_cell(
            flags,
            stored_key.as_deref().unwrap_or(key),
            stored_value.as_deref().unwrap_or(value),
        ))
    }

    fn free_stored_parts(&mut self, pager: &Pager<'_>, cell: &Cell<'_>, at: Loc) -> Result<()> {
        for (flag, bytes, tag) in [(KEY_STORED, cell.key, KEY_TAG), (VALUE_STORED, cell.value, VALUE_TAG)] {
            if cell.flags & flag != 0 {
                let (record, _) = stored(bytes).ok_or_else(|| pager.corrupt(at, "a stored part has no place"))?;
                self.free_record(pager, record, tag)?;
            }
        }
        Ok(())
    }

    /// Puts a cell in, parting pages on the way up where they are full.
    fn insert_cell(
        &mut self,
        pager: &Pager<'_>,
        mut path: Vec<Step>,
        mut page: Loc,
        mut index: usize,
        mut cell: Vec<u8>,
    ) -> Result<()> {
        loop {
            if pager.modify(page, 0..PAGE_BYTES, |page| node::insert(page, index, &cell))? {
                return Ok(());
            }
            cell = self.split(pager, page, index, cell)?;
            match path.pop() {
                Some(step) => (page, index) = (step.page, step.index + 1),
                None => {
                    let level = node::level(&*pager.read(page)?) + 1;
                    let root = self.take_page(pager)?;
                    let cells = [node::inner_cell(0, &[], page), cell];
                    pager.create(root, |page| {
                        assert!(node::rebuild(page, level, &cells), "half of a page fits")
                    })?;
                    self.tree_root = root;
                    return Ok(());
                }
            }
        }
    }

    /// Parts a full page, with one cell more in it, and returns the cell of the new right page for the page above.
    fn split(&mut self, pager: &Pager<'_>, at: Loc, index: usize, cell: Vec<u8>) -> Result<Vec<u8>> {
        let page = pager.read(at)?;
        let level = node::level(&page);
        let mut cells = node::cells(&page).ok_or_else(|| pager.corrupt(at, "the page has an unsound cell"))?;
        drop(page);
        cells.insert(index, cell);
        let mut right = cells.split_off(split_point(&cells, index));
        let leaf = level == 0;
        let parse = |cell: &[u8]| node::parse(cell, leaf).map(|cell| (cell.flags, cell.key.to_vec(), cell.child));
        let unsound = || pager.corrupt(at, "a cell is unsound");
        let (flags, key, child) = parse(&right[0]).ok_or_else(unsound)?;
        let right_page = self.take_page(pager)?;
        let above = if leaf {
            let last = cells
                .last()
                .and_then(|cell| node::parse(cell, true))
                .ok_or_else(unsound)?;
            let first = node::parse(&right[0], true).ok_or_else(unsound)?;
            let separator = separator(&key_of(pager, &last, at)?, &key_of(pager, &first, at)?);
            self.make_inner_cell(pager, &separator, right_page)?
        } else {
            // The key goes up, its slot with it.
            right[0] = node::inner_cell(0, &[], child);
            node::inner_cell(flags, &key, right_page)
        };
        pager.create(right_page, |page| {
            assert!(node::rebuild(page, level, &right), "half of a page fits")
        })?;
        pager.modify(at, 0..PAGE_BYTES, |page| node::rebuild(page, level, &cells))?;
        Ok(above)
    }

    fn make_inner_cell(&mut self, pager: &Pager<'_>, key: &[u8], child: Loc) -> Result<Vec<u8>> {
        if key.len() <= KEY_INLINE_MAX {
            return Ok(node::inner_cell(0, key, child));
        }
        let at = self.write_record(pager, KEY_TAG, key)?;
        let stored = [&at.0.to_le_bytes()[..], &(key.len() as u32).to_le_bytes()].concat();
        Ok(node::inner_cell(KEY_STORED, &stored, child))
    }

    /// After a cell of `page` has gone: gives back what is empty, merges what is nearly so.
    fn shrink(&mut self, pager: &Pager<'_>, mut path: Vec<Step>, mut at: Loc) -> Result<()> {
        loop {
            let page = pager.read(at)?;
            let (level, cells) = (node::level(&page), node::count(&page));
            let Some(step) = path.last().copied() else {
                if cells == 0 {
                    self.tree_root = Loc::NULL;
                    return self.free_page(pager, at);
                }
                if level == 0 || cells > 1 {
                    return Ok(());
                }
                let only = cell_of(pager, &page, at, 0)?;
                self.tree_root = only.child;
                self.free_stored_parts(pager, &only, at)?;
                self.free_page(pager, at)?;
                at = self.tree_root;
                continue;
            };
            if cells == 0 {
                self.free_page(pager, at)?;
                self.remove_child(pager, step.page, step.index)?;
            } else if level > 0 || node::used(&page) >= MERGE_BELOW || !self.merge(pager, step)? {
                return Ok(());
            }
            path.pop();
            at = step.page;
        }
    }

    /// Removes the cell of a child that has gone.
    fn remove_child(&mut self, pager: &Pager<'_>, parent: Loc, index: usize) -> Result<()> {
        let page = pager.read(parent)?;
        self.free_stored_parts(pager, &cell_of(pager, &page, parent, index)?, parent)?;
        drop(page);
        pager.modify(parent, 0..PAGE_BYTES, |page| node::remove(page, index))
    }

    /// Merges a leaf with the one behind it, or the one before it. False when neither has room.
    fn merge(&mut self, pager: &Pager<'_>, step: Step) -> Result<bool> {
        let parent = pager.read(step.page)?;
        let pairs = [(step.index, step.index + 1), (step.index.wrapping_sub(1), step.index)];
        for (left, right) in pairs
            .into_iter()
            .filter(|pair| pair.0 < pair.1 && pair.1 < node::count(&parent))
        {
            let left_at = cell_of(pager, &parent, step.page, left)?.child;
            let right_at = cell_of(pager, &parent, step.page, right)?.child;
            let (left_page, right_page) = (pager.read(left_at)?, pager.read(right_at)?);
            if node::used(&left_page) + node::used(&right_page) > MERGED_MAX {
                continue;
            }
            let unsound = || pager.corrupt(left_at, "a page to be merged has an unsound cell");
            let mut cells = node::cells(&left_page).ok_or_else(unsound)?;
            cells.extend(node::cells(&right_page).ok_or_else(unsound)?);
            drop((left_page, right_page));
            pager.modify(left_at, 0..PAGE_BYTES, |page| node::rebuild(page, 0, &cells))?;
            self.free_page(pager, right_at)?;
            self.remove_child(pager, step.page, right)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Shows rows from a bound on, in order of the direction.
    pub(crate) fn tree_scan(
        &self,
        pager: &Pager<'_>,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], Value<'_>) -> Result<Visit>,
    ) -> Result<()> {
        if self.tree_root.is_null() {
            return Ok(());
        }
        scan_node(pager, self.tree_root, None, from, direction, visit).map(|_| ())
    }

    /// Checks the tree and shows each of its pages, and the slots that keys and values lie in.
    pub(crate) fn tree_check(
        &self,
        pager: &Pager<'_>,
        visit: &mut dyn FnMut(TreePart) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        if !self.tree_root.is_null() {
            check_node(pager, self.tree_root, None, None, None, visit, &mut problems)?;
        }
        Ok(problems)
    }
}

/// What [`Store::tree_check`] shows.
pub(crate) enum TreePart {
    Page(Loc),
    Stored(Loc),
}

/// Where the cells of a page that is too full are parted. The new cell is that of `index`.
fn split_point(cells: &[Vec<u8>], index: usize) -> usize {
    if index + 1 == cells.len() {
        return index;
    }
    let total: usize = cells.iter().map(Vec::len).sum();
    let mut left = 0;
    let half = cells.iter().take_while(|cell| {
        left += cell.len();
        left <= total / 2
    });
    half.count().clamp(1, cells.len() - 1)
}

/// The shortest key above `left` and not above `right`.
fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    let common = left.iter().zip(right).take_while(|(left, right)| left == right).count();
    right[..(common + 1).min(right.len())].to_vec()
}

/// A child lies one level below its parent.
fn check_level(pager: &Pager<'_>, page: &PageBuf, at: Loc, above: Option<u16>) -> Result<()> {
    let level = node::level(page);
    let cells = node::count(page);
    if above.is_some_and(|above| level + 1 != above) || level >= LEVELS_MAX || (level > 0 && cells == 0) {
        return Err(pager.corrupt(
            at,
            format!("a page of level {level} with {cells} cells has no place below {above:?}"),
        ));
    }
    Ok(())
}

fn scan_node(
    pager: &Pager<'_>,
    at: Loc,
    above: Option<u16>,
    from: Bound<&[u8]>,
    direction: Direction,
    visit: &mut dyn FnMut(&[u8], Value<'_>) -> Result<Visit>,
) -> Result<Visit> {
    let page = pager.read(at)?;
    check_level(pager, &page, at, above)?;
    let (level, cells) = (node::level(&page), node::count(&page));
    let forward = direction == Direction::Forward;
    // The first cell to look at; counted from 1, so that going down can end at 0.
    let mut next = match from {
        Bound::Unbounded => {
            if forward {
                1
            } else {
                cells
            }
        }
        Bound::Included(key) | Bound::Excluded(key) if level > 0 => child_index(pager, &page, at, key)? + 1,
        Bound::Included(key) => match search(pager, &page, at, 0, key)? {
            Ok(equal) => equal + 1,
            Err(above) => {
                if forward {
                    above + 1
                } else {
                    above
                }
            }
        },
        Bound::Excluded(key) => match search(pager, &page, at, 0, key)? {
            Ok(equal) => {
                if forward {
                    equal + 2
                } else {
                    equal
                }
            }
            Err(above) => {
                if forward {
                    above + 1
                } else {
                    above
                }
            }
        },
    };
    let mut from = from;
    while (1..=cells).contains(&next) {
        let cell = cell_of(pager, &page, at, next - 1)?;
        let seen = if level > 0 {
            scan_node(pager, cell.child, Some(level), from, direction, visit)?
        } else {
            visit(&key_of(pager, &cell, at)?, value_of(pager, &cell, at)?)?
        };
        if seen == Visit::Enough {
            return Ok(Visit::Enough);
        }
        from = Bound::Unbounded;
        next = if forward { next + 1 } else { next - 1 };
    }
    Ok(Visit::More)
}

fn check_node(
    pager: &Pager<'_>,
    at: Loc,
    above: Option<u16>,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
    visit: &mut dyn FnMut(TreePart) -> Result<()>,
    problems: &mut Vec<String>,
) -> Result<()> {
    let page = pager.read(at)?;
    check_level(pager, &page, at, above)?;
    visit(TreePart::Page(at))?;
    let level = node::level(&page);
    let mut keys = Vec::new();
    for index in 0..node::count(&page) {
        let cell = cell_of(pager, &page, at, index)?;
        for (flag, bytes) in [(KEY_STORED, cell.key), (VALUE_STORED, cell.value)] {
            if let Some((record, _)) = stored(bytes).filter(|_| cell.flags & flag != 0) {
                visit(TreePart::Stored(record))?;
            }
        }
        keys.push((key_of(pager, &cell, at)?.into_owned(), cell.child));
    }
    // The first cell's key above leaves does not count.
    let counted = &keys[usize::from(level > 0).min(keys.len())..];
    if !counted.is_sorted_by(|a, b| a.0 < b.0) {
        problems.push(format!("{at:?}: the keys of a page do not rise"));
    }
    let outside = |key: &[u8]| low.is_some_and(|low| key < low) || high.is_some_and(|high| key >= high);
    if counted.iter().any(|(key, _)| outside(key)) {
        problems.push(format!("{at:?}: a key lies outside of what the page above says"));
    }
    if level > 0 {
        for (index, (key, child)) in keys.iter().enumerate() {
            let low = if index == 0 { low } else { Some(&key[..]) };
            let high = keys.get(index + 1).map(|next| &next.0[..]).or(high);
            check_node(pager, *child, Some(level), low, high, visit, problems)?;
        }
    }
    Ok(())
}
