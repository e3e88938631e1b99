//! Keys of what left memory lately, without what they stand for: whoever asks for one of them would have been served by
//! so much more memory.

use crate::block_cache::{BlockKey, BlockMap};
use std::collections::VecDeque;

/// Invariant: `bytes` is the sum of what the keys stand for.
#[derive(Default)]
pub(crate) struct Ghosts {
    entries: BlockMap<Ghost>,
    /// Numbers and keys in the order in which they came. Of one that was taken out, the number stays behind.
    order: VecDeque<(u64, BlockKey)>,
    next: u64,
    bytes: usize,
}

struct Ghost {
    number: u64,
    bytes: usize,
}

impl Ghosts {
    /// Notes what took `bytes`. Those that came first are forgotten until all stand for at most `limit`.
    pub(crate) fn note(&mut self, key: BlockKey, bytes: usize, limit: usize) {
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        if let Some(before) = self.entries.insert(key, Ghost { number, bytes }) {
            self.bytes -= before.bytes;
        }
        self.order.push_back((number, key));
        while self.bytes > limit
            && let Some((number, key)) = self.order.pop_front()
        {
            if self.entries.get(&key).is_some_and(|ghost| ghost.number == number) {
                self.take(&key);
            }
        }
        // Numbers that stayed behind must not pile up. They lie among those of keys that are known, which stay.
        let Ghosts { entries, order, .. } = self;
        if order.len() > 2 * entries.len() + 64 {
            order.retain(|(number, key)| entries.get(key).is_some_and(|ghost| ghost.number == *number));
        }
    }

    /// Whether a key is known; it is not afterwards.
    pub(crate) fn take(&mut self, key: &BlockKey) -> bool {
        let ghost = self.entries.remove(key);
        self.bytes -= ghost.as_ref().map_or(0, |ghost| ghost.bytes);
        ghost.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blocks::{BlockAddr, VolumeId};

    fn key_of(number: u32) -> BlockKey {
        let mut bytes = [0; BlockAddr::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[6] = 1;
        (VolumeId(0), BlockAddr::decode(&bytes).expect("an address"))
    }

    #[test]
    fn those_that_came_last_are_known_once() {
        let mut ghosts = Ghosts::default();
        (0..100).for_each(|number| ghosts.note(key_of(number), 10, 500));
        assert!((0..50).all(|number| !ghosts.take(&key_of(number))));
        assert!((50..100).step_by(2).all(|number| ghosts.take(&key_of(number))));
        assert!((50..100).step_by(2).all(|number| !ghosts.take(&key_of(number))));
        assert_eq!(ghosts.bytes, 250);
        // One that comes again is the youngest, and counts once.
        ghosts.note(key_of(51), 20, 500);
        assert_eq!(ghosts.bytes, 260);
        ghosts.note(key_of(200), 475, 500);
        assert_eq!((ghosts.take(&key_of(51)), ghosts.take(&key_of(99))), (true, false));
    }

    #[test]
    fn numbers_do_not_pile_up() {
        let mut ghosts = Ghosts::default();
        for number in 0..10_000 {
            ghosts.note(key_of(number), 10, usize::MAX);
            assert!(ghosts.take(&key_of(number)));
        }
        assert!(ghosts.order.len() <= 66 && ghosts.bytes == 0);
    }
    #[test]
    fn numbers_that_stayed_behind_cost_no_key_that_is_known() {
        let mut ghosts = Ghosts::default();
        (0..1_000).for_each(|number| ghosts.note(key_of(number), 10, usize::MAX));
        for number in 1_000..3_000 {
            ghosts.note(key_of(number), 10, usize::MAX);
            assert!(ghosts.take(&key_of(number)));
        }
        assert!(ghosts.order.len() <= 2_066, "{}", ghosts.order.len());
        assert!((0..1_000).all(|number| ghosts.take(&key_of(number))));
        assert_eq!(ghosts.bytes, 0);
    }
}
