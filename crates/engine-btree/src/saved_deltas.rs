//! Saved deltas: changes of leaves that a checkpoint keeps beside the images of those leaves.
//!
//! A leaf of which a few rows changed costs a checkpoint a whole image and, where its rows are not in memory, a read.
//! The checkpoint may refer to the image that is there instead, and put the few rows into pages that all tables share
//! (`docs/formats/btree-directory.md`). The next opening puts them back into the deltas of their leaves, as if they
//! were written at the checkpoint's position. The idea is that of delta pages: Levandoski, Lomet, Sengupta, "LLAMA: A
//! Cache/Storage Subsystem for Modern Hardware", VLDB 2013; that they lie together and are read by a start alone is
//! ours, so that no look-up reads twice.
//!
//! Invariant: what these pages say of a key is its state at the checkpoint's position. A leaf whose image there is
//! newer than they are, up to that position, is what it was.

use crate::foundation::Foundation;
use crate::leaf::Leaf;
use crate::page::{CellValue, KeyParts, LeafBuilder, LeafImage, NewValue};
use crate::tree::Tree;
use crate::version::{Change, Value};
use blocks::BlockAddr;
use bytes::Bytes;
use engine::{Result, TableId};
use parking_lot::Mutex;
use std::ops::RangeInclusive;
use std::sync::Arc;

const FORMAT_VERSION: u8 = 1;
/// Bytes of rows after which a page is full.
const PAGE_BYTES: usize = 256 << 10;
/// First byte of a row's value.
const TAG_DELETED: u8 = 0;
const TAG_PUT: u8 = 1;

/// What the last checkpoint saved.
#[derive(Default)]
pub(crate) struct SavedDeltas {
    kept: Mutex<Kept>,
}

/// A block of saved deltas: a page, or the index above all.
#[derive(Clone)]
pub(crate) struct SavedBlock {
    pub(crate) address: BlockAddr,
    /// The first and the last table whose rows are in it; the index is every table's.
    pub(crate) tables: RangeInclusive<u32>,
}

impl SavedBlock {
    pub(crate) fn index(address: BlockAddr) -> Self {
        Self {
            address,
            tables: 0..=u32::MAX,
        }
    }
}

#[derive(Default)]
struct Kept {
    /// The pages and the index above them.
    blocks: Vec<SavedBlock>,
    /// Leaves whose changes are in them, and in no image.
    leaves: Vec<(Arc<Tree>, Arc<Leaf>)>,
}

impl SavedDeltas {
    pub(crate) fn are_there(&self) -> bool {
        !self.kept.lock().blocks.is_empty()
    }

    /// All of them, or those in which there may be rows of one table.
    pub(crate) fn blocks_of(&self, table: Option<TableId>) -> Vec<BlockAddr> {
        let kept = self.kept.lock();
        let is_asked_for = |block: &&SavedBlock| table.is_none_or(|table| block.tables.contains(&table.0));
        let blocks = kept.blocks.iter().filter(is_asked_for);
        blocks.map(|block| block.address).collect()
    }

    /// Makes these the last checkpoint's, and answers those of the one before.
    pub(crate) fn replace_blocks(&self, blocks: Vec<SavedBlock>) -> Vec<SavedBlock> {
        std::mem::replace(&mut self.kept.lock().blocks, blocks)
    }

    pub(crate) fn add_leaf(&self, tree: Arc<Tree>, leaf: Arc<Leaf>) {
        self.kept.lock().leaves.push((tree, leaf));
    }

    /// The leaves that the next checkpoint has to look at though nobody has written to them.
    pub(crate) fn take_leaves(&self) -> Vec<(Arc<Tree>, Arc<Leaf>)> {
        std::mem::take(&mut self.kept.lock().leaves)
    }
}

/// Pages that are being filled.
#[derive(Default)]
pub(crate) struct SavedPages {
    builder: LeafBuilder,
    /// A row's value, with its tag.
    value: Vec<u8>,
    /// The first and the last table of the page.
    tables: Option<(u32, u32)>,
    full: Vec<FullPage>,
}

/// A page that can be written.
pub(crate) struct FullPage {
    pub(crate) raw: Vec<u8>,
    pub(crate) tables: RangeInclusive<u32>,
}

impl SavedPages {
    /// Adds the state of a key; `None` when it is gone.
    pub(crate) fn push(&mut self, table: TableId, key: &[u8], value: Option<&[u8]>) {
        let prefix = table.0.to_be_bytes();
        let key = KeyParts {
            prefix: &prefix,
            suffix: key,
        };
        let is_next = self.builder.last_key().is_none_or(|last| key.cmp(last).is_gt());
        if !is_next || self.builder.row_bytes() >= PAGE_BYTES {
            self.finish_page();
        }
        self.value.clear();
        match value {
            None => self.value.push(TAG_DELETED),
            Some(value) => {
                self.value.push(TAG_PUT);
                self.value.extend_from_slice(value);
            }
        }
        self.builder.push(key, NewValue::Inline(&self.value));
        // Keys rise within a page, and tables with them.
        let first = self.tables.map_or(table.0, |(first, _)| first);
        self.tables = Some((first, table.0));
    }

    fn finish_page(&mut self) {
        if let Some((first, last)) = self.tables.take() {
            let mut raw = Vec::new();
            self.builder.finish().encode(&mut raw);
            let tables = first..=last;
            self.full.push(FullPage { raw, tables });
        }
    }

    /// All pages.
    pub(crate) fn finish(mut self) -> Vec<FullPage> {
        self.finish_page();
        self.full
    }
}

/// A page, taken apart.
pub(crate) struct SavedPage(LeafImage);

impl SavedPage {
    /// `None` for bytes that mean nothing.
    pub(crate) fn decode(raw: &[u8]) -> Option<Self> {
        let image = LeafImage::decode(raw).ok()?;
        let page = Self(image);
        (0..page.0.len()).all(|index| page.row(index).is_some()).then_some(page)
    }

    /// The first and the last table of its rows.
    fn tables(&self) -> RangeInclusive<u32> {
        let table = |index| self.row(index).map_or(0, |(TableId(id), ..)| id);
        table(0)..=table(self.0.len().saturating_sub(1))
    }

    /// Table, key and value of each row; a value of `None` says that the key is gone.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (TableId, Vec<u8>, Option<Bytes>)> {
        (0..self.0.len()).filter_map(|index| self.row(index))
    }

    fn row(&self, index: usize) -> Option<(TableId, Vec<u8>, Option<Bytes>)> {
        let mut key = self.0.key(index).to_vec();
        let table = TableId(u32::from_be_bytes(*key.first_chunk()?));
        key.drain(..size_of::<TableId>());
        let CellValue::Inline(range) = self.0.value(index) else {
            return None;
        };
        let value = match self.0.data().get(range.clone())? {
            [TAG_DELETED] => None,
            [TAG_PUT, ..] => Some(self.0.data().slice(range.start + 1..range.end)),
            _ => return None,
        };
        Some((table, key, value))
    }
}

/// The raw bytes of an index.
pub(crate) fn encode_index(pages: &[SavedBlock]) -> Vec<u8> {
    let mut raw = vec![FORMAT_VERSION];
    pages.iter().for_each(|page| page.address.encode(&mut raw));
    raw
}

/// The pages of an index; `None` for bytes that mean nothing.
pub(crate) fn decode_index(raw: &[u8]) -> Option<Vec<BlockAddr>> {
    let (version, addresses) = raw.split_first()?;
    let chunks = addresses.chunks_exact(BlockAddr::ENCODED_BYTES);
    if *version != FORMAT_VERSION || addresses.is_empty() || !chunks.remainder().is_empty() {
        return None;
    }
    chunks.map(BlockAddr::decode).collect()
}

/// Reads what a checkpoint saved, which `write` puts back into the deltas of its leaves, a page at a time; `index` is
/// where it lies.
pub(crate) fn restore(
    base: &Foundation,
    index: BlockAddr,
    write: impl Fn(Vec<(Arc<Tree>, Vec<u8>, Change)>) -> Result<()>,
) -> Result<()> {
    let (pages, directory) = (&base.pages, base.catalog.directory_tree());
    let damaged = |address| pages.corrupt(Some(address), "saved deltas that cannot be".to_owned());
    let addresses = pages
        .read_saved(directory, index, decode_index)?
        .ok_or_else(|| damaged(index))?;
    let mut blocks = Vec::with_capacity(addresses.len() + 1);
    for address in addresses {
        let page = pages
            .read_saved(directory, address, SavedPage::decode)?
            .ok_or_else(|| damaged(address))?;
        let tables = page.tables();
        blocks.push(SavedBlock { address, tables });
        // A table that was dropped goes at the next checkpoint.
        let is_dropped = |id| base.catalog.get(id, &rcu::pin()).is_some_and(|table| !table.is_live());
        let rows = page.rows().filter(|(id, ..)| !is_dropped(*id));
        let changes = rows.map(|(id, key, value)| {
            let table = base.catalog.live(id).map_err(|_| damaged(address))?;
            let change = match value {
                // Of its own memory: the page goes.
                Some(value) => Change::Put(Value::Inline(Bytes::copy_from_slice(&value))),
                None => Change::Delete,
            };
            Ok((table.tree.clone(), key, change))
        });
        write(changes.collect::<Result<_>>()?)?;
    }
    blocks.push(SavedBlock::index(index));
    base.saved_deltas.replace_blocks(blocks);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::block;

    /// Who asks about one table reads what has its rows, and the index.
    #[test]
    fn pages_tell_whose_rows_they_have() {
        let mut pages = SavedPages::default();
        let rows_of_one = PAGE_BYTES as u32 / 1000 + 10;
        for number in 0..rows_of_one {
            pages.push(TableId(1), &number.to_be_bytes(), Some(&[0; 1000]));
        }
        pages.push(TableId(2), b"key", None);
        pages.push(TableId(4), b"key", None);
        let tables: Vec<_> = pages.finish().into_iter().map(|page| page.tables).collect();
        assert_eq!(tables, [1..=1, 1..=4]);

        let saved = SavedDeltas::default();
        let [first, second, index] = [1, 2, 3].map(|sector| block(sector, 1));
        let of = |address, tables: &RangeInclusive<u32>| SavedBlock {
            address,
            tables: tables.clone(),
        };
        let blocks = vec![of(first, &tables[0]), of(second, &tables[1]), SavedBlock::index(index)];
        saved.replace_blocks(blocks);
        assert_eq!(saved.blocks_of(None), [first, second, index]);
        assert_eq!(saved.blocks_of(Some(TableId(1))), [first, second, index]);
        assert_eq!(saved.blocks_of(Some(TableId(2))), [second, index]);
        assert_eq!(saved.blocks_of(Some(TableId(9))), [index]);
    }
}
