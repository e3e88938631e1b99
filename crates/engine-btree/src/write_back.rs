//! Writing pages: encode, compress, append, flush, and only then make the new image the page's own.
//!
//! A [`PageWriter`] appends blocks through buffers of its own. What it appended may be referred to after
//! [`PageWriter::flush`]; dropped before, it leaves everything as it was. No checkpoint becomes durable in between
//! (`unflushed`): what that records as used has been flushed. Nobody's lock is held while blocks are compressed or
//! written.
//!
//! `leaf_image` tells which image of a leaf is written and when; `large` writes values that lie outside leaves.

mod large;
mod leaf_image;
mod unflushed;

use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::cutting::Measured;
use crate::foundation::Foundation;
use crate::large_values::LargeValues;
use crate::leaf::Leaf;
use crate::page::LeafImage;
use crate::pages::Pages;
use crate::readers::Readers;
use crate::restructure::Structure;
use crate::running::RunningCheckpoint;
use crate::tree::Tree;
use blocks::{BlockAddr, BlockKind, BlockStore, Purpose, Referenced, RunWriter, VolumeId};
use codec::Codec;
use engine::{EngineError, Result};
use leaf_image::Prepared;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use unflushed::{Unflushed, UnflushedLock};

pub(crate) use large::Move;

/// How long a flush waits at most until what it replaced can be freed.
const FREE_PATIENCE: Duration = Duration::from_millis(20);

/// Which leaves to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Those that the running checkpoint lacks an image of.
    Checkpoint,
    /// Those with changes that are not on disk.
    Dirty,
    /// Any: their blocks shall lie elsewhere.
    Move,
}

/// What became of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It has the image it needed, or will have with the next flush.
    Done,
    /// It left the tree; others are listed in its place.
    Retired,
    /// Somebody else is writing it.
    Busy,
    /// Its rows are on disk and cannot be read: what was written to it stays in memory.
    Unreadable,
}

/// What writers of pages share.
pub(crate) struct WriteBack {
    store: Arc<BlockStore>,
    pages: Arc<Pages>,
    cache: Arc<PageCache>,
    catalog: Arc<Catalog>,
    readers: Arc<Readers>,
    structure: Arc<Structure>,
    large_values: Arc<LargeValues>,
    running: Arc<RunningCheckpoint>,
    counters: Arc<Counters>,
    unflushed: UnflushedLock,
}

impl WriteBack {
    pub(crate) fn new(base: &Foundation, structure: Arc<Structure>) -> Self {
        Self {
            store: base.store.clone(),
            pages: base.pages.clone(),
            cache: base.cache.clone(),
            catalog: base.catalog.clone(),
            readers: base.readers.clone(),
            structure,
            large_values: base.large_values.clone(),
            running: base.running.clone(),
            counters: base.counters.clone(),
            unflushed: UnflushedLock::new(),
        }
    }

    /// A writer without anything to write yet.
    pub(crate) fn writer(&self) -> PageWriter<'_> {
        PageWriter {
            shared: self,
            writers: HashMap::new(),
            pending: Vec::new(),
            appended: Vec::new(),
            pending_bytes: 0,
            leaf: EncodedLeaf::default(),
            unflushed: None,
        }
    }

    /// Whether a checkpoint keeps blocks from being appended.
    #[cfg(test)]
    pub(crate) fn stands_still(&self) -> bool {
        self.unflushed.keeps_writers_out()
    }

    /// Waits until nobody has blocks that are not flushed, and keeps it so: for a checkpoint that records what is used.
    pub(crate) fn all_flushed(&self) -> rcu::RwLockWriteGuard<'_, ()> {
        self.unflushed.all_flushed()
    }

    /// Writes those of `leaves` that differ from what is on disk, neighbours together. Answers the bytes of their
    /// deltas.
    pub(crate) fn write_dirty(&self, mut leaves: Vec<(Arc<Tree>, Arc<Leaf>)>) -> Result<u64> {
        leaves.sort_unstable_by(|a, b| (a.0.id, &a.1.low).cmp(&(b.0.id, &b.1.low)));
        // Reads of what is merged go on at once, and not one after the other.
        for (tree, leaf) in &leaves {
            self.pages.expect_base(tree, leaf);
        }
        let mut writer = self.writer();
        let mut bytes = 0;
        for (tree, leaf) in &leaves {
            bytes += leaf.state.lock().delta_bytes;
            writer.write(tree, leaf, Need::Dirty)?;
        }
        writer.flush()?;
        Ok(bytes as u64)
    }
}

/// The volume that a writer writes to, and whether for later.
type WriterName = (VolumeId, bool);

fn writer_name(tree: &Tree, purpose: Purpose) -> WriterName {
    (tree.shape.volume, purpose == Purpose::Later)
}

fn writer_of<'w>(
    writers: &'w mut HashMap<WriterName, RunWriter>,
    store: &Arc<BlockStore>,
    tree: &Tree,
    purpose: Purpose,
) -> &'w mut RunWriter {
    writers
        .entry(writer_name(tree, purpose))
        .or_insert_with(|| store.writer(tree.shape.volume, purpose))
}

/// The label of a block that is found by a key. Without one it may stay where it is for good.
fn label(key: &[u8]) -> &[u8] {
    if key.len() <= BlockStore::LABEL_BYTES_MAX {
        key
    } else {
        &[]
    }
}

/// How blocks of a tree are compressed.
fn codec_of(tree: &Tree, kind: BlockKind) -> (Codec, Option<i32>) {
    match kind {
        BlockKind::Inner => (Codec::Lz4, None),
        _ => (tree.shape.codec, tree.shape.level),
    }
}

/// A leaf's raw bytes, and where they are cut in sections.
#[derive(Default)]
struct EncodedLeaf {
    raw: Vec<u8>,
    cuts: Vec<usize>,
}

impl EncodedLeaf {
    fn encode(&mut self, image: &LeafImage, in_sections: bool) {
        self.raw.clear();
        self.cuts.clear();
        match in_sections {
            true => image.encode_in_sections(&mut self.raw, &mut self.cuts),
            false => image.encode(&mut self.raw),
        }
    }
}

/// What there is to a block's bytes.
enum Content<'a> {
    Labelled(&'a [u8]),
    /// They are sections, cut at these places.
    Cut(&'a [usize]),
}

/// A leaf's image that was appended.
struct Appended {
    prepared: Prepared,
    address: BlockAddr,
    /// The leaf's rows came into memory only to be written, and go again.
    came_in: bool,
}

/// See the module. Invariant: where something was appended and not flushed, `unflushed` is held.
pub(crate) struct PageWriter<'c> {
    shared: &'c WriteBack,
    writers: HashMap<WriterName, RunWriter>,
    pending: Vec<Appended>,
    /// Every block since the last flush.
    appended: Vec<(WriterName, BlockAddr)>,
    pending_bytes: usize,
    leaf: EncodedLeaf,
    /// From the first block that is appended to the flush.
    unflushed: Option<Unflushed<'c>>,
}

impl PageWriter<'_> {
    /// Tells the tree how long the block of a leaf would get.
    pub(crate) fn sample_leaf(&mut self, tree: &Tree, image: &LeafImage) {
        let (codec, level) = codec_of(tree, BlockKind::Leaf);
        self.encode_leaf(tree, image);
        let writer = writer_of(&mut self.writers, &self.shared.store, tree, Purpose::Later);
        // An error is told when the leaf is written.
        if let Ok(block_bytes) = writer.block_bytes(codec, level, &self.leaf.raw, &self.leaf.cuts) {
            tree.fill.note(image.row_bytes(), block_bytes, tree.shape.leaf_bytes);
        }
    }

    /// Appends a leaf whose range begins at `low`. It may be referred to after a flush.
    pub(crate) fn append_leaf(
        &mut self,
        tree: &Tree,
        purpose: Purpose,
        image: &LeafImage,
        low: &[u8],
    ) -> Result<BlockAddr> {
        self.encode_leaf(tree, image);
        let leaf = std::mem::take(&mut self.leaf);
        let content = match (image.is_empty(), &*leaf.cuts) {
            (true, _) => Content::Labelled(label(low)),
            (false, cuts) => Content::Cut(cuts),
        };
        let appended = self.append(tree, BlockKind::Leaf, purpose, &leaf.raw, content);
        self.pending_bytes += leaf.raw.len();
        self.leaf = leaf;
        let (address, block_bytes) = appended?;
        tree.fill.note(image.row_bytes(), block_bytes, tree.shape.leaf_bytes);
        Ok(address)
    }

    /// In sections where they cost less than they give.
    fn encode_leaf(&mut self, tree: &Tree, image: &LeafImage) {
        // The other codecs are there to save room, not time.
        let is_for_speed = matches!(codec_of(tree, BlockKind::Leaf).0, Codec::Snappy | Codec::Lz4);
        let may_be_cut = is_for_speed && image.has_sections();
        if may_be_cut && tree.cutting.is_due() {
            self.measure_sections(tree, image);
        }
        self.leaf.encode(image, may_be_cut && tree.cutting.pays());
    }

    /// Compresses a leaf in sections and without, and tells the tree what they cost.
    fn measure_sections(&mut self, tree: &Tree, image: &LeafImage) {
        let (codec, level) = codec_of(tree, BlockKind::Leaf);
        let writer = writer_of(&mut self.writers, &self.shared.store, tree, Purpose::Later);
        let mut bytes_of = |in_sections| {
            self.leaf.encode(image, in_sections);
            writer.block_bytes(codec, level, &self.leaf.raw, &self.leaf.cuts)
        };
        // An error is told when the leaf is written. What is left in the buffer is the leaf without sections.
        if let (Ok(in_sections), Ok(whole)) = (bytes_of(true), bytes_of(false)) {
            tree.cutting.note(Measured {
                raw: self.leaf.raw.len() as u64,
                in_sections: in_sections as u64,
                whole: whole as u64,
            });
        }
    }

    /// Appends an inner node of the running checkpoint, whose range begins at `low`. It may be referred to after a
    /// flush.
    pub(crate) fn append_inner(
        &mut self,
        tree: &Tree,
        page: &[u8],
        separators: usize,
        low: &[u8],
    ) -> Result<BlockAddr> {
        let label = if separators == 0 { label(low) } else { &[] };
        self.append(
            tree,
            BlockKind::Inner,
            Purpose::Checkpoint,
            page,
            Content::Labelled(label),
        )
        .map(|(address, _)| address)
    }

    /// Appends one piece of a large value of a row. It may be referred to after a flush.
    pub(crate) fn append_piece(
        &mut self,
        tree: &Tree,
        purpose: Purpose,
        key: &[u8],
        piece: &[u8],
    ) -> Result<BlockAddr> {
        self.append(tree, BlockKind::Large, purpose, piece, Content::Labelled(label(key)))
            .map(|(address, _)| address)
    }

    /// Appends a page of the running checkpoint's saved deltas, or their index. It may be referred to after a flush.
    pub(crate) fn append_saved(&mut self, directory: &Tree, raw: &[u8]) -> Result<BlockAddr> {
        self.append_piece(directory, Purpose::Checkpoint, &[], raw)
    }

    /// The address of a new block, and its bytes without what is left of the last sector.
    fn append(
        &mut self,
        tree: &Tree,
        kind: BlockKind,
        purpose: Purpose,
        raw: &[u8],
        content: Content<'_>,
    ) -> Result<(BlockAddr, usize)> {
        self.hold_off_checkpoint();
        let (codec, level) = codec_of(tree, kind);
        let writer = writer_of(&mut self.writers, &self.shared.store, tree, purpose);
        let appended = match content {
            Content::Labelled(label) => writer.append_labelled(kind, tree.id.0, codec, level, raw, label),
            Content::Cut(cuts) => writer.append_cut(kind, tree.id.0, codec, level, raw, cuts),
        };
        match appended {
            Ok(address) => {
                let block_bytes = writer.last_block_bytes();
                self.appended.push((writer_name(tree, purpose), address));
                tree.disk_bytes.fetch_add(address.bytes(), Ordering::Relaxed);
                self.shared.counters.pages_written.add(1);
                Ok((address, block_bytes))
            }
            Err(error) => {
                self.give_up_all();
                Err(error.into())
            }
        }
    }

    /// No checkpoint becomes durable from here to the next flush. A block for later, too, is one of the next checkpoint
    /// when that comes before the flush. And a tree that is not dead now keeps its volume until then.
    fn hold_off_checkpoint(&mut self) {
        if self.unflushed.is_none() {
            self.unflushed = Some(self.shared.unflushed.hold());
        }
    }

    /// What was appended and not flushed is void: nodes and leaves keep, or lack, an image.
    fn give_up_all(&mut self) {
        for appended in self.pending.drain(..) {
            self.shared.give_up(&appended.prepared);
        }
        self.appended.clear();
        // Their blocks with them.
        self.writers.clear();
        self.unflushed = None;
    }

    /// Everything appended gets to the disk's cache, and the leaves get their new images.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.pending_bytes = 0;
        let mut flushed: Vec<WriterName> = Vec::with_capacity(self.writers.len());
        let result: blocks::Result<()> = self.writers.iter_mut().try_for_each(|(name, writer)| {
            writer.flush()?;
            flushed.push(*name);
            Ok(())
        });
        if let Err(error) = result {
            // What other writers have flushed is as unwanted.
            let unwanted = self.appended.drain(..).filter(|(name, _)| flushed.contains(name));
            for ((volume, _), address) in unwanted {
                self.shared.store.free(volume, address, Referenced::No);
            }
            self.give_up_all();
            return Err(EngineError::from(error));
        }
        self.appended.clear();
        for appended in std::mem::take(&mut self.pending) {
            let cold = appended
                .came_in
                .then(|| (appended.prepared.tree.clone(), appended.prepared.leaf.clone()));
            self.shared.publish(appended.prepared, appended.address);
            if let Some((tree, leaf)) = cold {
                self.shared.cache.drop_base(&tree, &leaf);
            }
        }
        // Only now: a checkpoint that commits from here on finds every block at its leaf.
        self.unflushed = None;
        // What the leaves had before goes back to the allocator now, not some time.
        self.shared.cache.free_replaced_in_background(FREE_PATIENCE);
        Ok(())
    }
}

impl Drop for PageWriter<'_> {
    fn drop(&mut self) {
        self.give_up_all();
    }
}
