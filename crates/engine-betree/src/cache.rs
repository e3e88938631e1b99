//! What was read or written lately, decompressed, by its address on disk.
//!
//! Everything in here is immutable and on disk, so that leaving it costs nothing: there is no dirty data to
//! evict. The order is CLOCK (Corbató, 1968) in shards; nodes and filters, which every lookup needs, get more
//! rounds than rows do.
//!
//! An address may be used again for something else after its block was given back: whoever gives it back says so
//! ([`Cache::forget`]). The key has the block's checksum, too.

use crate::filter::Filter;
use crate::node::Node;
use crate::run::Run;
use blocks::BlockAddr;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A shard has at least this much, so that its largest units are a small part of it.
const SHARD_BYTES_MIN: u64 = 8 << 20;
const SHARDS_MAX: u64 = 16;
/// Rounds of the hand that something survives without being asked for.
const ROUNDS_OF_ROWS: u8 = 1;
const ROUNDS_OF_NODES: u8 = 4;
/// A compressed block that is asked for so often is worth the room that its rows take.
const USES_OF_BLOCKS: u8 = 3;
/// A shard with less than this share of its room free is full.
const FREE_SHARE: usize = 16;

/// Something that is cached.
#[derive(Clone)]
pub(crate) enum Unit {
    Run(Arc<Run>),
    Node(Arc<Node>),
    Filter(Arc<Filter>),
    /// A block of rows as it is on disk, compressed.
    Block(Arc<[u8]>),
}

impl Unit {
    fn bytes(&self) -> usize {
        match self {
            Self::Run(run) => run.memory_bytes(),
            Self::Node(node) => node.memory_bytes(),
            Self::Filter(filter) => filter.raw().len() + 64,
            Self::Block(block) => block.len() + 16,
        }
    }

    fn rounds(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Block(_) => ROUNDS_OF_ROWS,
            Self::Node(_) | Self::Filter(_) => ROUNDS_OF_NODES,
        }
    }
}

type Place = (u64, u32);

fn place(addr: &BlockAddr) -> Place {
    (addr.sector(), addr.crc())
}

struct Slot {
    place: Place,
    unit: Unit,
    bytes: usize,
    rounds: u8,
    /// How often it was asked for, up to [`USES_OF_BLOCKS`].
    uses: u8,
}

#[derive(Default)]
struct Shard {
    by_place: HashMap<Place, u32>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

impl Shard {
    fn remove(&mut self, index: usize) {
        let slot = self.slots.swap_remove(index);
        self.by_place.remove(&slot.place);
        self.bytes -= slot.bytes;
        if let Some(moved) = self.slots.get(index) {
            self.by_place.insert(moved.place, index as u32);
        }
    }

    /// Evicts until there is room for so many bytes.
    fn make_room(&mut self, bytes: usize, bytes_max: usize) -> u64 {
        let mut evicted = 0;
        while self.bytes + bytes > bytes_max && !self.slots.is_empty() {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            if slot.rounds > 0 {
                slot.rounds -= 1;
                self.hand += 1;
            } else {
                // What takes its place, the newest, is looked at in the next round.
                self.remove(self.hand);
                self.hand += 1;
                evicted += 1;
            }
        }
        evicted
    }
}

/// Counters of the cache.
#[derive(Default)]
pub(crate) struct CacheCounters {
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) evicted: AtomicU64,
}

/// See the module.
pub(crate) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    shard_bytes_max: usize,
    pub(crate) counters: CacheCounters,
}

impl Cache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            shard_bytes_max: (bytes_max / shards) as usize,
            counters: CacheCounters::default(),
        }
    }

    fn shard(&self, place: Place) -> &Mutex<Shard> {
        let mixed = (place.0 ^ u64::from(place.1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        &self.shards[mixed as usize % self.shards.len()]
    }

    pub(crate) fn get(&self, addr: &BlockAddr) -> Option<Unit> {
        let place = place(addr);
        let found = {
            let mut shard = self.shard(place).lock();
            let index = shard.by_place.get(&place).copied();
            index.map(|index| {
                let slot = &mut shard.slots[index as usize];
                slot.rounds = slot.rounds.max(slot.unit.rounds());
                slot.uses = (slot.uses + 1).min(USES_OF_BLOCKS);
                slot.unit.clone()
            })
        };
        let counter = match found {
            Some(_) => &self.counters.hits,
            None => &self.counters.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether it is there; nothing is counted.
    pub(crate) fn has(&self, addr: &BlockAddr) -> bool {
        let place = place(addr);
        self.shard(place).lock().by_place.contains_key(&place)
    }

    /// Whether the rows of a unit shall be kept decompressed: the cache is not full, or they are asked for again and
    /// again. A shard that evicts has some room, too: that of the last unit that left.
    pub(crate) fn takes_rows(&self, addr: &BlockAddr, bytes: usize) -> bool {
        let place = place(addr);
        let shard = self.shard(place).lock();
        let index = shard.by_place.get(&place).copied();
        let uses = index.map_or(0, |index| shard.slots[index as usize].uses);
        uses >= USES_OF_BLOCKS || shard.bytes + bytes + self.shard_bytes_max / FREE_SHARE <= self.shard_bytes_max
    }

    /// Puts something in; rows take the place of their compressed block.
    pub(crate) fn insert(&self, addr: &BlockAddr, unit: Unit) {
        let bytes = unit.bytes() + size_of::<Slot>() + 32;
        // Half a shard at most: one large row must not throw everything out.
        if bytes > self.shard_bytes_max / 2 {
            return;
        }
        let place = place(addr);
        let mut shard = self.shard(place).lock();
        if let Some(index) = shard.by_place.get(&place).copied() {
            let is_rows = matches!(unit, Unit::Run(_));
            match shard.slots[index as usize].unit {
                Unit::Block(_) if is_rows => shard.remove(index as usize),
                _ => return,
            }
        }
        let evicted = shard.make_room(bytes, self.shard_bytes_max);
        // What is scanned once leaves first.
        let rounds = unit.rounds() - 1;
        let index = shard.slots.len() as u32;
        shard.slots.push(Slot {
            place,
            unit,
            bytes,
            rounds,
            uses: 0,
        });
        shard.by_place.insert(place, index);
        shard.bytes += bytes;
        drop(shard);
        if evicted > 0 {
            self.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        }
    }

    /// The block is given back.
    pub(crate) fn forget(&self, addr: &BlockAddr) {
        let place = place(addr);
        let mut shard = self.shard(place).lock();
        if let Some(index) = shard.by_place.get(&place).copied() {
            shard.remove(index as usize);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{OpRef, RunBuilder};
    use engine::Seq;

    const UNIT_BYTES: usize = 10_000;
    const UNITS: usize = 100;

    fn addr(number: usize) -> BlockAddr {
        let mut bytes = [0, 0, 0, 0, 0, 0, 1, 0, 7, 7, 7, 7];
        bytes[..4].copy_from_slice(&(number as u32).to_le_bytes());
        BlockAddr::decode(&bytes).expect("it has a length")
    }

    fn rows() -> Unit {
        let mut builder = RunBuilder::new(Seq(1));
        builder.push(b"key", Seq(1), OpRef::Put(&[0; UNIT_BYTES]));
        Unit::Run(Arc::new(builder.finish()))
    }

    fn block() -> Unit {
        Unit::Block([0; UNIT_BYTES / 2].into())
    }

    fn full() -> Cache {
        let cache = Cache::new((UNITS * UNIT_BYTES) as u64);
        (0..UNITS).for_each(|number| cache.insert(&addr(number), rows()));
        cache
    }

    /// The last unit took the place of the one that left, and was the next to leave: what was read first stayed for
    /// ever.
    #[test]
    fn what_is_not_asked_for_leaves_before_what_came_later() {
        let cache = full();
        (UNITS..3 * UNITS).for_each(|number| cache.insert(&addr(number), rows()));
        let there = |numbers: std::ops::Range<usize>| numbers.filter(|number| cache.has(&addr(*number))).count();
        assert_eq!(there(0..UNITS), 0, "of the first");
        assert!(there(2 * UNITS..3 * UNITS) > UNITS * 8 / 10, "of the last");
        assert!(cache.bytes() <= (UNITS * UNIT_BYTES) as u64);
    }

    #[test]
    fn rows_take_the_place_of_a_block_that_is_asked_for_often() {
        let (cache, wanted) = (full(), addr(1000));
        assert!(Cache::new(1 << 20).takes_rows(&wanted, UNIT_BYTES), "there is room");
        cache.insert(&wanted, block());
        for _ in 0..USES_OF_BLOCKS {
            assert!(!cache.takes_rows(&wanted, UNIT_BYTES));
            assert!(matches!(cache.get(&wanted), Some(Unit::Block(_))));
        }
        assert!(cache.takes_rows(&wanted, UNIT_BYTES));
        cache.insert(&wanted, rows());
        cache.insert(&wanted, block());
        assert!(matches!(cache.get(&wanted), Some(Unit::Run(_))));
        cache.forget(&wanted);
        assert!(cache.get(&wanted).is_none());
    }
}
