//! What was read or written lately, decompressed, by its address on disk.
//!
//! Everything in here is immutable and on disk, so that leaving it costs nothing: there is no dirty data to
//! evict. The order is CLOCK (Corbató, 1968) in shards; nodes and filters, which every lookup needs, get more
//! rounds than rows do.
//!
//! Rows are kept as they are, or as their compressed block, which takes half the room or less: to decompress it costs
//! a tenth of what a read from the device does. So when the cache is full, rows are worth their room only if they are
//! asked for several times while the hand goes round once; each slot counts that, the rounds before halved.
//!
//! Messages that are in no tree yet have their room here, too, as much as they need at the time: units leave for them.
//!
//! An address may be used again for something else after its block was given back: whoever gives it back says so
//! ([`Cache::forget`]). The key has the block's checksum, too.

use crate::filter::Filter;
use crate::memtable::Held;
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
/// Rounds of the hand that a node or filter survives without being asked for.
const ROUNDS_OF_NODES: u8 = 4;
/// So often a block, or rows, must have been asked for to survive the hand.
const ASKED_OF_BLOCKS: u8 = 1;
const ASKED_OF_ROWS: u8 = 8;
/// A block that was asked for so often becomes rows.
const ASKED_TO_BE_ROWS: u8 = 16;
/// What of the cache messages cannot take.
const SHARE_OF_UNITS: u64 = 4;
/// Room that messages took is made when it is this share of the cache.
const OVER_SHARE: u64 = 64;
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

    /// How often it must have been asked for to survive the hand, and what is left of that afterwards.
    fn is_wanted(&self, asked: u8) -> Option<u8> {
        match self {
            Self::Run(_) => (asked >= ASKED_OF_ROWS).then_some(asked / 2),
            Self::Block(_) => (asked >= ASKED_OF_BLOCKS).then_some(asked / 2),
            Self::Node(_) | Self::Filter(_) => asked.min(ROUNDS_OF_NODES).checked_sub(1),
        }
    }

    /// How often a new one counts as asked for: rows and blocks that are scanned once leave first.
    fn asked_at_first(&self) -> u8 {
        match self {
            Self::Run(_) | Self::Block(_) => 0,
            Self::Node(_) | Self::Filter(_) => ROUNDS_OF_NODES - 1,
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
    /// See [`Unit::is_wanted`].
    asked: u8,
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
            if let Some(left) = slot.unit.is_wanted(slot.asked) {
                slot.asked = left;
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
    bytes_max: u64,
    /// Units of all shards.
    bytes: AtomicU64,
    messages: Arc<Held>,
    pub(crate) counters: CacheCounters,
}

impl Cache {
    /// Of so many bytes, `messages` included.
    pub(crate) fn new(bytes_max: u64, messages: Arc<Held>) -> Self {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            bytes_max,
            bytes: AtomicU64::new(0),
            messages,
            counters: CacheCounters::default(),
        }
    }

    /// What units may take now.
    fn limit(&self) -> u64 {
        let left = self.bytes_max.saturating_sub(self.messages.bytes());
        left.max(self.bytes_max / SHARE_OF_UNITS)
    }

    fn shard_bytes_max(&self) -> usize {
        self.limit() as usize / self.shards.len()
    }

    /// After messages came: makes the room they took.
    pub(crate) fn fit(&self) {
        if self.bytes() <= self.limit() + self.bytes_max / OVER_SHARE {
            return;
        }
        let bytes_max = self.shard_bytes_max();
        for shard in &self.shards {
            self.make_room(&mut shard.lock(), 0, bytes_max);
        }
    }

    fn make_room(&self, shard: &mut Shard, bytes: usize, bytes_max: usize) {
        let before = shard.bytes;
        let evicted = shard.make_room(bytes, bytes_max);
        if evicted > 0 {
            self.bytes.fetch_sub((before - shard.bytes) as u64, Ordering::Relaxed);
            self.counters.evicted.fetch_add(evicted, Ordering::Relaxed);
        }
    }

    fn remove(&self, shard: &mut Shard, index: u32) {
        let before = shard.bytes;
        shard.remove(index as usize);
        self.bytes.fetch_sub((before - shard.bytes) as u64, Ordering::Relaxed);
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
                slot.asked = match slot.unit {
                    Unit::Run(_) | Unit::Block(_) => slot.asked.saturating_add(1),
                    Unit::Node(_) | Unit::Filter(_) => ROUNDS_OF_NODES,
                };
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
        let asked = index.map_or(0, |index| shard.slots[index as usize].asked);
        let bytes_max = self.shard_bytes_max();
        asked >= ASKED_TO_BE_ROWS || shard.bytes + bytes + bytes_max / FREE_SHARE <= bytes_max
    }

    /// Puts something in; rows take the place of their compressed block.
    pub(crate) fn insert(&self, addr: &BlockAddr, unit: Unit) {
        let bytes = unit.bytes() + size_of::<Slot>() + 32;
        // Half a shard at most: one large row must not throw everything out.
        let bytes_max = self.shard_bytes_max();
        if bytes > bytes_max / 2 {
            return;
        }
        let place = place(addr);
        let mut asked = unit.asked_at_first();
        let mut shard = self.shard(place).lock();
        if let Some(index) = shard.by_place.get(&place).copied() {
            let slot = &shard.slots[index as usize];
            if !matches!((&slot.unit, &unit), (Unit::Block(_), Unit::Run(_))) {
                return;
            }
            asked = slot.asked;
            self.remove(&mut shard, index);
        }
        self.make_room(&mut shard, bytes, bytes_max);
        let index = shard.slots.len() as u32;
        shard.slots.push(Slot {
            place,
            unit,
            bytes,
            asked,
        });
        shard.by_place.insert(place, index);
        shard.bytes += bytes;
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The block is given back.
    pub(crate) fn forget(&self, addr: &BlockAddr) {
        let place = place(addr);
        let mut shard = self.shard(place).lock();
        if let Some(index) = shard.by_place.get(&place).copied() {
            self.remove(&mut shard, index);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
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
        let cache = Cache::new((UNITS * UNIT_BYTES) as u64, Arc::default());
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
        assert!(
            Cache::new(1 << 20, Arc::default()).takes_rows(&wanted, UNIT_BYTES),
            "there is room"
        );
        cache.insert(&wanted, block());
        for _ in 0..ASKED_TO_BE_ROWS {
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

    #[test]
    fn units_leave_for_messages_and_come_back_when_those_are_gone() {
        let bytes_max = (UNITS * UNIT_BYTES) as u64;
        let messages = Arc::new(Held::default());
        let cache = Cache::new(bytes_max, messages.clone());
        let fill = || (0..2 * UNITS).for_each(|number| cache.insert(&addr(number), rows()));
        fill();
        let summed = || cache.shards.iter().map(|shard| shard.lock().bytes as u64).sum::<u64>();
        for (held, most) in [
            (bytes_max / 2, bytes_max / 2),
            (2 * bytes_max, bytes_max / SHARE_OF_UNITS),
        ] {
            messages.change(held as usize, messages.bytes() as usize);
            cache.fit();
            assert!(cache.bytes() <= most, "{} with {held} of messages", cache.bytes());
            assert_eq!(cache.bytes(), summed());
        }
        messages.change(0, messages.bytes() as usize);
        fill();
        assert!(
            (bytes_max * 8 / 10..=bytes_max).contains(&cache.bytes()),
            "{}",
            cache.bytes()
        );
        assert_eq!(cache.bytes(), summed());
    }

    /// A read of a unit as a lookup does it; whether it was there.
    fn read(cache: &Cache, number: usize) -> bool {
        let found = cache.get(&addr(number));
        let takes_rows = cache.takes_rows(&addr(number), UNIT_BYTES);
        match found {
            Some(Unit::Run(_)) => true,
            found if takes_rows => {
                cache.insert(&addr(number), rows());
                found.is_some()
            }
            found => {
                cache.insert(&addr(number), block());
                found.is_some()
            }
        }
    }

    #[test]
    fn a_cache_holds_blocks_of_what_is_read_at_random_and_rows_of_what_is_hot() {
        use vfs::{Random, SeededRandom};
        let (cache, random) = (full(), SeededRandom::new(7));
        let below = |end: usize| random.next_u64() as usize % end;
        (0..40 * UNITS).for_each(|_| {
            read(&cache, below(4 * UNITS));
        });
        let found = (0..40 * UNITS).filter(|_| read(&cache, below(4 * UNITS))).count();
        // Half of the units fit as blocks, a quarter as rows.
        assert!(found > 16 * UNITS, "{found} of {}", 40 * UNITS);
        let hot = UNITS / 4;
        for _ in 0..80 * UNITS {
            read(&cache, below(hot));
            read(&cache, below(4 * UNITS));
        }
        let are_rows = |number: &usize| matches!(cache.get(&addr(*number)), Some(Unit::Run(_)));
        let rows = (0..hot).filter(are_rows).count();
        assert!(rows > hot * 3 / 4, "{rows} of {hot}");
    }
}
