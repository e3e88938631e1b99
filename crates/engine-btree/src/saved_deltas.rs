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

#[derive(Default)]
struct Kept {
    /// The pages and the index above them.
    blocks: Vec<BlockAddr>,
    /// Leaves whose changes are in them, and in no image.
    leaves: Vec<(Arc<Tree>, Arc<Leaf>)>,
}

impl SavedDeltas {
    pub(crate) fn are_there(&self) -> bool {
        !self.kept.lock().blocks.is_empty()
    }

    pub(crate) fn blocks(&self) -> Vec<BlockAddr> {
        self.kept.lock().blocks.clone()
    }

    /// Makes these the last checkpoint's, and answers those of the one before.
    pub(crate) fn replace_blocks(&self, blocks: Vec<BlockAddr>) -> Vec<BlockAddr> {
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
    full: Vec<Vec<u8>>,
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
    }

    fn finish_page(&mut self) {
        if !self.builder.is_empty() {
            let mut raw = Vec::new();
            self.builder.finish().encode(&mut raw);
            self.full.push(raw);
        }
    }

    /// The raw bytes of all pages.
    pub(crate) fn finish(mut self) -> Vec<Vec<u8>> {
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
pub(crate) fn encode_index(pages: &[BlockAddr]) -> Vec<u8> {
    let mut raw = vec![FORMAT_VERSION];
    pages.iter().for_each(|page| page.encode(&mut raw));
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
    let mut blocks = pages
        .read_saved(directory, index, decode_index)?
        .ok_or_else(|| damaged(index))?;
    for &address in &blocks {
        let page = pages
            .read_saved(directory, address, SavedPage::decode)?
            .ok_or_else(|| damaged(address))?;
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
    blocks.push(index);
    base.saved_deltas.replace_blocks(blocks);
    Ok(())
}
