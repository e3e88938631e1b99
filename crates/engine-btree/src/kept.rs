//! Blocks of leaves that were read once, compressed as they lie on disk, in case they are wanted again soon.
//!
//! When memory is short, the first point read of a leaf on disk takes its row from the block and leaves the block here; only
//! a second one brings the leaf into memory, and takes the block out. So leaves that are read once do not drive out those
//! that are read often, and more of them have room, because they are compressed. That is the queue `A1` of *2Q* (Johnson and
//! Shasha, 1994), with the pages themselves in it: who has waited longest goes first.
//!
//! A block is asked for by its address, whose checksum tells it from whatever lay there before or comes later: what is here
//! needs no care when blocks are given back. Whoever opens one checks it as if it came from disk.

use crate::budget::good_size;
use blocks::{BlockAddr, VolumeId};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};

/// Which block.
pub(crate) type Place = (VolumeId, BlockAddr);

/// Bytes of a block's entry, in the map and in the queue, about.
const ENTRY_BYTES: usize = 96;

/// See the module.
#[derive(Default)]
pub(crate) struct Kept {
    state: Mutex<State>,
}

/// Invariant: `bytes` is the sum of [`weight`] of all blocks.
#[derive(Default)]
struct State {
    blocks: HashMap<Place, Block>,
    /// Numbers and places in the order in which blocks came. Of one that was taken out the number stays behind.
    order: VecDeque<(u64, Place)>,
    next: u64,
    bytes: usize,
}

struct Block {
    number: u64,
    bytes: Box<[u8]>,
}

/// Heap bytes that a block takes here.
pub(crate) fn weight(bytes: &[u8]) -> usize {
    good_size(bytes.len()) + ENTRY_BYTES
}

impl Kept {
    /// Whether the block is here.
    pub(crate) fn has(&self, place: &Place) -> bool {
        self.state.lock().blocks.contains_key(place)
    }

    /// Takes a block out, and with it its [`weight`].
    pub(crate) fn take(&self, place: &Place) -> Option<Box<[u8]>> {
        let mut state = self.state.lock();
        let block = state.blocks.remove(place)?;
        state.bytes -= weight(&block.bytes);
        Some(block.bytes)
    }

    /// Puts a block in; those that came first go until all take at most `limit` bytes. Returns the change of bytes.
    pub(crate) fn put(&self, place: Place, bytes: Box<[u8]>, limit: usize) -> isize {
        let mut state = self.state.lock();
        let bytes_before = state.bytes;
        let number = state.next;
        state.next += 1;
        state.bytes += weight(&bytes);
        if let Some(before) = state.blocks.insert(place, Block { number, bytes }) {
            state.bytes -= weight(&before.bytes);
        }
        state.order.push_back((number, place));
        // Numbers that stayed behind must not pile up where nothing ever has to go.
        if state.order.len() > 2 * state.blocks.len() + 64 {
            let State { blocks, order, .. } = &mut *state;
            order.retain(|(number, place)| blocks.get(place).is_some_and(|block| block.number == *number));
        }
        let gone = state.shrink(limit);
        let change = state.bytes as isize - bytes_before as isize;
        drop(state);
        drop(gone);
        change
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

impl State {
    /// What had to go; to be freed without the lock.
    fn shrink(&mut self, limit: usize) -> Vec<Block> {
        let mut gone = Vec::new();
        while self.bytes > limit
            && let Some((number, place)) = self.order.pop_front()
        {
            if self.blocks.get(&place).is_some_and(|block| block.number == number)
                && let Some(block) = self.blocks.remove(&place)
            {
                self.bytes -= weight(&block.bytes);
                gone.push(block);
            }
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u32) -> Place {
        let mut bytes = [0; BlockAddr::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[6] = 1;
        (VolumeId(0), BlockAddr::decode(&bytes).unwrap())
    }

    fn block(length: usize) -> Box<[u8]> {
        vec![7; length].into()
    }

    #[test]
    fn the_first_go_first_and_the_bytes_are_exact() {
        let kept = Kept::default();
        let each = weight(&block(1000));
        let mut bytes = 0;
        for number in 0..10 {
            bytes += kept.put(place(number), block(1000), 4 * each);
        }
        let here = |range: std::ops::Range<u32>| range.filter(|number| kept.has(&place(*number))).collect::<Vec<_>>();
        assert_eq!((here(0..10), bytes), (vec![6, 7, 8, 9], 4 * each as isize));
        assert_eq!(kept.take(&place(7)), Some(block(1000)));
        assert_eq!(kept.take(&place(7)), None);
        bytes -= each as isize;
        // Put in once more they are the last to go; one in the place of another counts once.
        bytes += kept.put(place(7), block(1000), 4 * each);
        bytes += kept.put(place(6), block(500), 4 * each);
        bytes += kept.trim(2 * each);
        assert_eq!(here(0..10), vec![6, 7]);
        assert_eq!(bytes, (each + weight(&block(500))) as isize);
        bytes += kept.trim(0);
        assert_eq!((here(0..10), bytes), (vec![], 0));
    }

    #[test]
    fn numbers_of_blocks_that_were_taken_out_do_not_pile_up() {
        let kept = Kept::default();
        for number in 0..10_000 {
            kept.put(place(number), block(10), usize::MAX);
            assert!(kept.take(&place(number)).is_some());
        }
        assert!(kept.state.lock().order.len() < 200);
    }
}
