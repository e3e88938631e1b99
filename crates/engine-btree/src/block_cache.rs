//! Blocks of leaves that were read once, compressed as they lie on disk, in case they are wanted again soon.
//!
//! When memory is short, the first read of a leaf on disk that wants a row, or a short range, takes it from the block
//! and leaves the block here. A read *soon after*, while the block is among the youngest quarter, does so, too, and the
//! third of them brings the leaf into memory and takes the block out: one operation often reads a leaf twice. A later
//! read makes the block the youngest. So leaves that are read now and then do not drive out those that are read often,
//! and more of them have room, because they are compressed. That is the queue `A1` of *2Q* (Johnson and Shasha, 1994),
//! with the pages themselves in it, in the order of their last use.
//!
//! How much memory blocks take and how much pages depends on what is read. Both leave their keys when they go
//! ([`Ghosts`]), and a read that meets one tells which of the two it would have been served by, had that had more
//! ([`BlockCache::take_step`]). Reads all over a table want blocks, of which about twice as many have room; those of
//! few leaves want pages, which need not be decompressed each time, and so do all where values do not compress.
//!
//! A block is asked for by its address, whose checksum tells it from whatever lay there before or comes later: what is
//! here needs no care when blocks are given back. Whoever opens one checks it as if it came from disk.

use crate::budget::ShareStep;
use crate::budget::{good_size, good_size_below};
use crate::ghosts::Ghosts;
use blocks::{BlockAddr, VolumeId};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Which block.
pub(crate) type BlockKey = (VolumeId, BlockAddr);

/// A map by block. A hash that resists chosen keys would cost more than all else that is done here.
pub(crate) type BlockMap<T> = HashMap<BlockKey, T, BuildHasherDefault<BlockKeyHasher>>;

/// Folds the numbers of a key together. The last one is a checksum, as good as random.
#[derive(Default)]
pub(crate) struct BlockKeyHasher(u64);

impl BlockKeyHasher {
    fn fold(&mut self, number: u64) {
        // An odd number whose bits look random: the golden ratio's.
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

impl Hasher for BlockKeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.fold(u64::from(*byte)));
    }

    fn write_u16(&mut self, number: u16) {
        self.fold(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.fold(u64::from(number));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Reads count as soon after while a block is among the youngest of so many parts.
const YOUNG_PART: u64 = 4;
/// So many of them make a leaf worth a page.
const HOT_READS: u8 = 3;
/// Bytes of a block's entry, in the map and in the queue, about, and of what counts its holders.
const ENTRY_BYTES: usize = 96 + 48;
/// Ghosts, of blocks and of pages, stand for one part in so many of what blocks may take.
const GHOST_PART: usize = 4;
/// What a read of a block from disk costs, in times of what it costs to decompress one.
const READ_COST: i64 = 4;
/// So much would have been saved before the shares move.
const STEP_COST: i64 = 64;

/// Weight of a page in the average: one part in so many.
const PAGES_AVERAGED: usize = 64;
/// A block is small that could have one part in so many more.
const SMALLER_PART: usize = 6;

/// See the module.
#[derive(Default)]
pub(crate) struct BlockCache {
    state: Mutex<BlockQueue>,
    /// What more blocks would have saved, less what more pages would have.
    gain: AtomicI64,
}

/// Invariant: `bytes` is the sum of [`Pieces::weight`] of all blocks.
#[derive(Default)]
struct BlockQueue {
    blocks: BlockMap<Block>,
    /// Numbers and keys in the order in which blocks were last used. Of one that was taken out, or used again, the
    /// number stays behind.
    order: VecDeque<(u64, BlockKey)>,
    next: u64,
    bytes: usize,
    gone_blocks: Ghosts,
    gone_pages: Ghosts,
    /// Bytes that each of them may stand for.
    ghost_bytes: usize,
    /// What a page takes that leaves, on average of late; 0 before the first.
    page_bytes: usize,
}

struct Block {
    number: u64,
    /// Reads since it was made the youngest.
    reads: u8,
    bytes: Arc<Pieces>,
}

/// The bytes of a block in two pieces of memory, the first as long as the allocator's sizes allow: in one piece a
/// seventh of what it takes would be lost to rounding.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pieces([Box<[u8]>; 2]);

impl Pieces {
    pub(crate) fn new(block: &[u8]) -> Self {
        let (first, rest) = block.split_at(good_size_below(block.len()));
        Self([first.into(), rest.into()])
    }

    pub(crate) fn get(&self) -> [&[u8]; 2] {
        self.0.each_ref().map(|piece| &**piece)
    }

    /// Heap bytes that they take here.
    pub(crate) fn weight(&self) -> usize {
        self.0.iter().map(|piece| good_size(piece.len())).sum::<usize>() + ENTRY_BYTES
    }
}

/// What a read finds here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BlockLookup {
    /// Nothing.
    Unknown,
    /// A block that is read often: it is worth a page.
    Hot,
    /// A block.
    Warm(Arc<Pieces>),
}

impl BlockCache {
    /// A read of a row or a short range asks for a block.
    pub(crate) fn look_up(&self, key: &BlockKey) -> BlockLookup {
        let mut state = self.state.lock();
        let BlockQueue { blocks, next, .. } = &mut *state;
        let young = blocks.len() as u64 / YOUNG_PART;
        let Some(block) = blocks.get_mut(key) else {
            let was_page = state.gone_pages.take(key);
            if was_page {
                // It need not have been read nor decompressed.
                self.gain.fetch_sub(READ_COST + 1, Ordering::Relaxed);
            }
            // Blocks that are no smaller than pages have no more room in the same memory, and have to be opened.
            if state.gone_blocks.take(key) && state.blocks_are_small() {
                self.gain.fetch_add(READ_COST, Ordering::Relaxed);
            }
            return BlockLookup::Unknown;
        };
        let bytes = block.bytes.clone();
        if *next - block.number > young {
            block.number = *next;
            block.reads = 0;
            state.queue(*key);
            return BlockLookup::Warm(bytes);
        }
        block.reads = block.reads.saturating_add(1);
        if block.reads < HOT_READS {
            BlockLookup::Warm(bytes)
        } else {
            BlockLookup::Hot
        }
    }

    /// A block, which does not become younger by this: a walk comes to each once, however rarely it is wanted.
    pub(crate) fn peek(&self, key: &BlockKey) -> Option<Arc<Pieces>> {
        let state = self.state.lock();
        state.blocks.get(key).map(|block| block.bytes.clone())
    }

    /// Whether a block is there.
    pub(crate) fn has(&self, key: &BlockKey) -> bool {
        self.state.lock().blocks.contains_key(key)
    }

    /// Takes a block out, and with it its [`Pieces::weight`].
    pub(crate) fn take(&self, key: &BlockKey) -> Option<Arc<Pieces>> {
        let mut state = self.state.lock();
        let block = state.blocks.remove(key)?;
        state.bytes -= block.bytes.weight();
        Some(block.bytes)
    }

    /// Puts a block in; those that came first go until all take at most `limit` bytes. Returns the change of bytes.
    pub(crate) fn put(&self, key: BlockKey, bytes: Arc<Pieces>, limit: usize) -> isize {
        let mut state = self.state.lock();
        state.ghost_bytes = limit / GHOST_PART;
        let bytes_before = state.bytes;
        let number = state.next;
        state.bytes += bytes.weight();
        if let Some(before) = state.blocks.insert(
            key,
            Block {
                number,
                reads: 0,
                bytes,
            },
        ) {
            state.bytes -= before.bytes.weight();
        }
        state.queue(key);
        let gone = state.shrink(limit);
        let change = state.bytes as isize - bytes_before as isize;
        drop(state);
        drop(gone);
        change
    }

    /// A page of `bytes` has left memory, and is on disk there.
    pub(crate) fn note_gone_page(&self, key: BlockKey, bytes: usize) {
        let mut state = self.state.lock();
        let limit = state.ghost_bytes;
        state.page_bytes = match state.page_bytes {
            0 => bytes,
            average => average - average / PAGES_AVERAGED + bytes / PAGES_AVERAGED,
        };
        state.gone_pages.note(key, bytes, limit);
    }

    /// The step that is due, if one is.
    pub(crate) fn take_step(&self) -> Option<ShareStep> {
        let gain = self.gain.load(Ordering::Relaxed);
        if gain.abs() < STEP_COST {
            return None;
        }
        // Two at once make one step. Where a read has counted meanwhile, the next one takes it.
        self.gain
            .compare_exchange(gain, 0, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        Some(if gain > 0 {
            ShareStep::MoreBlocks
        } else {
            ShareStep::MorePages
        })
    }

    /// Lets go of blocks, those that came first, until all take at most `limit` bytes. Returns the change of bytes.
    pub(crate) fn trim(&self, limit: usize) -> isize {
        let mut state = self.state.lock();
        let bytes_before = state.bytes;
        let gone = state.shrink(limit);
        let change = state.bytes as isize - bytes_before as isize;
        drop(state);
        drop(gone);
        change
    }
}

impl BlockQueue {
    /// Whether a page takes noticeably more than its block: not where values are random, or compressed already.
    fn blocks_are_small(&self) -> bool {
        let block_bytes = self.bytes / self.blocks.len().max(1);
        self.page_bytes == 0 || block_bytes + block_bytes / SMALLER_PART < self.page_bytes
    }

    /// Puts a block that has the next number at the end of the queue.
    fn queue(&mut self, key: BlockKey) {
        let BlockQueue {
            blocks, order, next, ..
        } = self;
        order.push_back((*next, key));
        *next += 1;
        // Numbers that stayed behind must not pile up where nothing ever has to go.
        if order.len() > 2 * blocks.len() + 64 {
            order.retain(|(number, key)| blocks.get(key).is_some_and(|block| block.number == *number));
        }
    }

    /// What had to go; to be freed without the lock.
    fn shrink(&mut self, limit: usize) -> Vec<Block> {
        let mut gone = Vec::new();
        while self.bytes > limit
            && let Some((number, key)) = self.order.pop_front()
        {
            if self.blocks.get(&key).is_some_and(|block| block.number == number)
                && let Some(block) = self.blocks.remove(&key)
            {
                let bytes = block.bytes.weight();
                self.bytes -= bytes;
                self.gone_blocks.note(key, bytes, self.ghost_bytes);
                gone.push(block);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(number: u32) -> BlockKey {
        let mut bytes = [0; BlockAddr::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[6] = 1;
        (VolumeId(0), BlockAddr::decode(&bytes).unwrap())
    }

    fn block(length: usize) -> Arc<Pieces> {
        Pieces::new(&vec![7; length]).into()
    }

    #[test]
    fn pieces_are_the_block_and_waste_little() {
        for length in [0, 1, 16, 17, 500, 512, 8192, 8704, 9216, 12_288, 40_960 + 512] {
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let pieces = Pieces::new(&bytes);
            assert_eq!(pieces.get().concat(), bytes);
            assert!(pieces.weight() <= length + length / 50 + 16 + ENTRY_BYTES, "{length}");
        }
    }

    #[test]
    fn the_first_go_first_and_the_bytes_are_exact() {
        let cache = BlockCache::default();
        let each = block(1000).weight();
        let mut bytes = 0;
        for number in 0..10 {
            bytes += cache.put(key_of(number), block(1000), 4 * each);
        }
        let is_here = |number: &u32| cache.state.lock().blocks.contains_key(&key_of(*number));
        let here = |range: std::ops::Range<u32>| range.filter(is_here).collect::<Vec<_>>();
        assert_eq!((here(0..10), bytes), (vec![6, 7, 8, 9], 4 * each as isize));
        assert_eq!(cache.take(&key_of(7)), Some(block(1000)));
        assert_eq!(cache.take(&key_of(7)), None);
        bytes -= each as isize;
        // Put in once more they are the last to go; one in the place of another counts once.
        bytes += cache.put(key_of(7), block(1000), 4 * each);
        bytes += cache.put(key_of(6), block(500), 4 * each);
        bytes += cache.trim(2 * each);
        assert_eq!(here(0..10), vec![6, 7]);
        assert_eq!(bytes, (each + block(500).weight()) as isize);
        bytes += cache.trim(0);
        assert_eq!((here(0..10), bytes), (vec![], 0));
    }

    #[test]
    fn what_is_read_again_soon_is_hot_and_what_is_read_later_stays_longer() {
        let cache = BlockCache::default();
        let limit = 100 * block(1000).weight();
        let put = |number: u32| cache.put(key_of(number), block(1000), limit);
        (0..100).for_each(|number| {
            put(number);
        });
        let warm = || BlockLookup::Warm(block(1000));
        assert_eq!(cache.look_up(&key_of(100)), BlockLookup::Unknown);
        for young in [99, 75] {
            // 25 of 100 are young.
            assert_eq!(
                [(); 3].map(|()| cache.look_up(&key_of(young))),
                [warm(), warm(), BlockLookup::Hot]
            );
        }
        // These become young only with the first read.
        assert_eq!(
            [(); 4].map(|()| cache.look_up(&key_of(74))),
            [warm(), warm(), warm(), BlockLookup::Hot]
        );
        assert_eq!(cache.look_up(&key_of(0)), warm());
        // The next to go is the one that was used longest ago.
        put(100);
        assert_eq!(cache.look_up(&key_of(1)), BlockLookup::Unknown);
        assert_eq!([(); 2].map(|()| cache.look_up(&key_of(0))), [warm(), warm()]);
        (101..173).for_each(|number| {
            put(number);
        });
        assert_eq!(cache.look_up(&key_of(73)), BlockLookup::Unknown);
        assert_eq!(
            [(); 3].map(|()| cache.look_up(&key_of(0))),
            [warm(), warm(), warm()],
            "there still, and read anew"
        );
    }

    #[test]
    fn reads_tell_of_what_there_should_be_more() {
        let cache = BlockCache::default();
        let put = |number| {
            cache.put(key_of(number), block(1000), 100 * block(1000).weight());
        };
        (0..120).for_each(put);
        // Twenty have gone, and are known.
        (0..120).for_each(|number| {
            cache.look_up(&key_of(number));
        });
        assert_eq!(cache.take_step(), Some(ShareStep::MoreBlocks));
        assert_eq!(cache.take_step(), None, "each read counts once");
        (200..220).for_each(|number| cache.note_gone_page(key_of(number), 1000));
        (200..210).for_each(|number| {
            cache.look_up(&key_of(number));
        });
        assert_eq!(cache.take_step(), None, "ten reads are not enough");
        (210..220).for_each(|number| {
            cache.look_up(&key_of(number));
        });
        assert_eq!(cache.take_step(), Some(ShareStep::MorePages));
    }

    #[test]
    fn blocks_that_save_no_room_get_no_more_of_it() {
        for (page_bytes, step) in [(2000, Some(ShareStep::MoreBlocks)), (1100, None)] {
            let cache = BlockCache::default();
            cache.note_gone_page(key_of(1000), page_bytes);
            let weight = block(1000).weight();
            (0..120).for_each(|number| {
                cache.put(key_of(number), block(1000), 100 * weight);
            });
            (0..120).for_each(|number| {
                cache.look_up(&key_of(number));
            });
            assert_eq!(cache.take_step(), step, "pages of {page_bytes} bytes");
        }
    }

    #[test]
    fn numbers_of_blocks_that_were_taken_out_do_not_pile_up() {
        let cache = BlockCache::default();
        for number in 0..10_000 {
            cache.put(key_of(number), block(10), usize::MAX);
            assert!(cache.take(&key_of(number)).is_some());
        }
        assert!(cache.state.lock().order.len() < 200);
        (0..200).for_each(|number| {
            cache.put(key_of(number), block(10), usize::MAX);
        });
        for number in 0..10_000 {
            assert_ne!(cache.look_up(&key_of(number % 200)), BlockLookup::Unknown);
        }
        assert!(cache.state.lock().order.len() < 500);
    }
}
