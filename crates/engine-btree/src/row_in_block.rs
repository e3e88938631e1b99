//! A row of a leaf on disk, out of its block, without bringing the leaf into memory.
//!
//! Of a block in sections the one is decompressed that has the row. An operation often wants several rows of a leaf,
//! one after the other: the second one has the whole block decompressed, and the next ones find it as it was left.

use crate::counters::Counters;
use crate::leaf::{Elsewhere, Found};
use crate::page::{LeafSearch, NewValue};
use crate::pages::{Pages, SCRATCH};
use crate::tree::Tree;
use blocks::{BlockAddr, Sections, VolumeId};
use bytes::Bytes;
use std::cell::Cell;

/// Rows that one read after the other takes of what is left of a decompressed block, at most: a leaf that is read again
/// and again is to be noticed.
const TAKEN_FROM_LAST_MAX: u32 = 32;

thread_local! {
    /// The block of the last row that this thread has looked up in one, if it took a part.
    static LAST_PART: Cell<Option<(VolumeId, BlockAddr)>> = const { Cell::new(None) };
    /// Rows that were taken from what is left of the last block.
    static TAKEN_FROM_LAST: Cell<u32> = const { Cell::new(0) };
}

impl Pages {
    /// A row of a leaf on disk; see [`Pages::read_in_block`].
    pub(crate) fn look_up_in_block(&self, tree: &Tree, address: BlockAddr, key: &[u8]) -> Option<Found> {
        if !self.cache().budget().is_tight() {
            return None;
        }
        if let Some(found) = look_up_in_last(tree, address, key) {
            self.counters().read_from_last.add(1);
            return Some(found);
        }
        let block = Some((tree.shape.volume, address));
        let is_second = LAST_PART.take() == block;
        TAKEN_FROM_LAST.set(0);
        self.read_in_block(tree, address, is_second, |sections| {
            if is_second {
                return find_in_whole(sections, key);
            }
            if sections.len() > 1 {
                LAST_PART.set(block);
            }
            find_in_block(sections, key, self.counters())
        })
    }
}

/// A row of a leaf whose block this thread has decompressed last, as a whole. `None` where that is another one, and
/// after some rows.
fn look_up_in_last(tree: &Tree, address: BlockAddr, key: &[u8]) -> Option<Found> {
    let found = SCRATCH.with_borrow(|scratch| {
        let raw = scratch.last_whole(tree.shape.volume, &address)?;
        let Some(search) = LeafSearch::new(raw, key).ok()? else {
            return Some(Found::Nothing);
        };
        Some(found_value(search.find_in_whole(raw).ok()?))
    })?;
    let taken = TAKEN_FROM_LAST.replace(TAKEN_FROM_LAST.get() + 1);
    (taken < TAKEN_FROM_LAST_MAX).then_some(found)
}

/// A row of a leaf, from all of its block.
fn find_in_whole(sections: &mut Sections<'_>, key: &[u8]) -> Option<Found> {
    let raw = sections.get_all().ok()?;
    match LeafSearch::new(raw, key).ok()? {
        Some(search) => Some(found_value(search.find_in_whole(raw).ok()?)),
        None => Some(Found::Nothing),
    }
}

/// A row of a leaf, from the sections of its block that it takes. `None` when something is wrong with them.
fn find_in_block(sections: &mut Sections<'_>, key: &[u8], counters: &Counters) -> Option<Found> {
    let block_sections = sections.len();
    let front = sections.get(0).ok()?;
    let front_bytes = front.len();
    let Some(search) = LeafSearch::new(front, key).ok()? else {
        return Some(Found::Nothing);
    };
    let (leaf_sections, number) = search.section();
    let value = if block_sections == 1 {
        search.find_in_whole(front)
    } else if block_sections == 1 + leaf_sections && front_bytes == search.front_bytes() {
        counters.read_in_part.add(1);
        search.find_in_section(sections.get(1 + number).ok()?)
    } else {
        return None;
    };
    Some(found_value(value.ok()?))
}

fn found_value(value: Option<NewValue<'_>>) -> Found {
    match value {
        None => Found::Nothing,
        Some(NewValue::Inline(value)) => Found::Inline(Bytes::copy_from_slice(value)),
        Some(NewValue::Large(large)) => Found::Elsewhere(Elsewhere::Large(Bytes::copy_from_slice(large.cell()))),
    }
}
