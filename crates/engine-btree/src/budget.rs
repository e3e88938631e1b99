//! What memory the engine takes, how much it may take, and how long writers wait when it takes too much.
//!
//! Owners report what they allocate and free, as the allocator rounds it ([`good_size`]). The last twentieth of the
//! limit is a *reserve*: eviction keeps it free, and what reaches into it makes writers wait a little, in proportion.
//! Readers do not wait for it. The limit gives way to memory that the process takes beside ([`Budget::give_way`]).
//! Nothing here waits, evicts or reads a clock: it is arithmetic, for those who do.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Leaf images.
    Images,
    /// Entries and versions that are not yet part of an image.
    Deltas,
    /// Inner pages and what hangs at them.
    Inner,
    /// Compressed blocks of leaves that were read once.
    Blocks,
    /// Raw bytes of leaves that walks have for themselves, ahead of them and behind.
    Walks,
    /// The maps of space in the files. Nothing evicts them.
    Maps,
}

const USES: usize = 6;
/// The reserve is one part in so many of the limit.
const RESERVE_PART: u64 = 20;
/// What eviction frees besides, where it can: one part in so many of the limit.
const SLACK_PART: u64 = 256;
/// Memory is tight when less than one part in so many of the limit is left below what is evicted at.
const TIGHT_PART: u64 = 16;
/// Deltas that stay over a checkpoint where memory is short: one part in so many of the limit. With more, pages that
/// are read would have to go for them.
const KEPT_PART: u64 = 2;
/// Share of the memory for leaves that compressed blocks have when pages want all of it, in percent: at first, and what
/// it becomes by what reads miss.
const BLOCKS_PERCENT_AT_START: u64 = 60;
const BLOCKS_PERCENT: std::ops::RangeInclusive<u64> = 20..=90;
/// Inner pages up to one part in so many of the limit come before compressed blocks of leaves; others are pages like
/// leaves.
const INNER_PART: u64 = 4;
/// Longest wait of one call: what the engine's interface allows.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(5);
/// Bytes written back in a second, until it was measured.
const RATE_AT_START: u64 = 64 << 20;
/// The limit never sinks by more than one part in so many of the largest one: what fills the rest is not pages.
const SUNK_PART: u64 = 3;
/// What was taken beside is forgotten by one part in so many with each look: it comes in bursts, and the next one needs
/// room too.
const FORGET_PART: u64 = 16;
/// The limit moves by at most one part in so many of the largest one at a time, less than half of the reserve: writers
/// do not come to a halt when it sinks.
const LIMIT_STEP_PART: u64 = 64;
/// Memory that could not be freed has grown noticeably by one part in so many of the limit.
const NOTICEABLE_PART: u64 = 32;
/// Weight of a new measurement of the rate: one part in so many.
const RATE_SMOOTHING: u64 = 8;

/// Which way the shares of blocks and pages shall move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShareStep {
    MoreBlocks,
    MorePages,
}

/// See the module.
pub(crate) struct Budget {
    limit: AtomicU64,
    limit_max: u64,
    /// What the heap took beside what is counted here, at the last look.
    beside: AtomicU64,
    /// The most of it that was unexpected, of late.
    unexpected: AtomicU64,
    /// What eviction could not bring the sum below the last time, because open snapshots need it: trying again is of no
    /// use before there is noticeably more, or a snapshot has gone. 0 when there is no such bound.
    floor: AtomicU64,
    /// By [`Use`]. A sum may be below zero for a moment, when a free is counted before its allocation.
    used: [AtomicI64; USES],
    /// Bytes written back in a second, as measured lately.
    rate: AtomicU64,
    blocks_percent: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit_bytes),
            limit_max: limit_bytes,
            beside: AtomicU64::new(0),
            unexpected: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            used: Default::default(),
            rate: AtomicU64::new(RATE_AT_START),
            blocks_percent: AtomicU64::new(BLOCKS_PERCENT_AT_START),
        }
    }

    /// Bytes that may be used, the reserve included.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// What the limit is when nothing unexpected is taken beside.
    pub(crate) fn limit_max(&self) -> u64 {
        self.limit_max
    }

    /// Moves the limit a step towards what leaves room for what the heap takes beside what is counted here, as far as
    /// that exceeds `expected`, now or a moment ago. It never goes below two thirds of the largest limit. One caller at
    /// a time.
    pub(crate) fn give_way(&self, beside: u64, expected: u64) {
        self.beside.store(beside, Ordering::Relaxed);
        let before = self.unexpected.load(Ordering::Relaxed);
        let unexpected = beside
            .saturating_sub(expected)
            .max(before - before.div_ceil(FORGET_PART));
        self.unexpected.store(unexpected, Ordering::Relaxed);
        let wanted = self.limit_max - unexpected.min(self.limit_max / SUNK_PART);
        let (now, step) = (self.limit(), (self.limit_max / LIMIT_STEP_PART).max(1));
        self.limit
            .store(wanted.clamp(now.saturating_sub(step), now + step), Ordering::Relaxed);
    }

    /// What the heap took beside what is counted here, at the last look.
    pub(crate) fn beside(&self) -> u64 {
        self.beside.load(Ordering::Relaxed)
    }

    /// Reports bytes allocated, or freed when negative.
    pub(crate) fn add(&self, purpose: Use, bytes: isize) {
        self.used[purpose as usize].fetch_add(bytes as i64, Ordering::Relaxed);
    }

    /// Reports what a purpose takes in all: one that nobody adds to.
    pub(crate) fn set(&self, purpose: Use, bytes: u64) {
        self.used[purpose as usize].store(i64::try_from(bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Bytes in use for one purpose.
    pub(crate) fn used(&self, purpose: Use) -> u64 {
        not_negative(&self.used[purpose as usize])
    }

    /// Bytes in use.
    pub(crate) fn total(&self) -> u64 {
        self.used.iter().map(not_negative).sum()
    }

    fn reserve(&self) -> u64 {
        self.limit() / RESERVE_PART
    }

    /// Bytes up to which nobody evicts and nobody waits.
    pub(crate) fn target(&self) -> u64 {
        self.limit() - self.reserve()
    }

    /// True when what comes in drives something out, or soon will.
    pub(crate) fn is_tight(&self) -> bool {
        self.total() + self.limit() / TIGHT_PART > self.target()
    }

    /// Bytes of deltas that may stay in memory over a checkpoint: any, where nothing else wants the room.
    pub(crate) fn kept_deltas_max(&self) -> u64 {
        match self.is_tight() {
            true => self.limit() / KEPT_PART,
            false => u64::MAX,
        }
    }

    /// Bytes that compressed blocks of leaves may take: of what writes and a quarter for inner pages leave of the
    /// limit, their share, or what pages do not take.
    pub(crate) fn blocks_limit(&self) -> u64 {
        // Read once: others count at the same time.
        let inner_all = self.used(Use::Inner);
        let inner = inner_all.min(self.limit() / INNER_PART);
        let pages = self.used(Use::Images) + inner_all - inner;
        let fixed = self.used(Use::Deltas) + self.used(Use::Maps) + self.used(Use::Walks) + inner;
        // What eviction frees besides is not for them: else pages would lose it to them, each time anew.
        let rest = (self.target() - self.slack()).saturating_sub(fixed);
        rest.saturating_sub(pages).max(rest / 100 * self.blocks_percent())
    }

    /// Share of the memory for leaves that compressed blocks have when pages want all of it, in percent.
    pub(crate) fn blocks_percent(&self) -> u64 {
        self.blocks_percent.load(Ordering::Relaxed)
    }

    /// Takes a little of what it has gained since the start back.
    pub(crate) fn give_writes_room(&self) {
        if self.blocks_percent() > BLOCKS_PERCENT_AT_START {
            self.move_blocks_share(ShareStep::MorePages);
        }
    }

    /// Moves that share a little.
    pub(crate) fn move_blocks_share(&self, step: ShareStep) {
        let moved = match step {
            ShareStep::MoreBlocks => self.blocks_percent() + 1,
            ShareStep::MorePages => self.blocks_percent() - 1,
        };
        let moved = moved.clamp(*BLOCKS_PERCENT.start(), *BLOCKS_PERCENT.end());
        self.blocks_percent.store(moved, Ordering::Relaxed);
    }

    /// Bytes to evict so that the reserve is free.
    pub(crate) fn excess(&self) -> u64 {
        self.total().saturating_sub(self.target())
    }

    /// Whether what comes in next finds room.
    pub(crate) fn has_slack(&self) -> bool {
        self.total() + self.slack() <= self.target()
    }

    fn slack(&self) -> u64 {
        self.limit() / SLACK_PART
    }

    /// Bytes beyond what nothing can bring memory below: those that it is of use to wait for.
    pub(crate) fn evictable_excess(&self) -> u64 {
        let floor = self.floor.load(Ordering::Relaxed);
        self.total().saturating_sub(self.target().max(floor))
    }

    /// True when there is more than the last eviction left, and noticeably so where it could not do better.
    pub(crate) fn has_grown(&self) -> bool {
        let (floor, total) = (self.floor.load(Ordering::Relaxed), self.total());
        let noticeable = self.limit() / NOTICEABLE_PART;
        if floor > total.saturating_add(noticeable) {
            // Part of what could not go has gone by itself: perhaps the rest can.
            self.floor.store(0, Ordering::Relaxed);
            return true;
        }
        floor == 0 || total > floor.saturating_add(noticeable)
    }

    /// Eviction has ended: with all done that was to do (`None`), or with nothing left that could go.
    pub(crate) fn set_floor(&self, floor: Option<u64>) {
        self.floor.store(floor.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether eviction could not do what it should.
    pub(crate) fn has_floor(&self) -> bool {
        self.floor.load(Ordering::Relaxed) > 0
    }

    /// True when write-back should run at the usual priority: the reserve is half gone.
    pub(crate) fn is_pressing(&self) -> bool {
        self.excess() > self.reserve() / 2
    }

    /// Takes in that `bytes` were written back in `elapsed`.
    pub(crate) fn note_write_back(&self, bytes: u64, elapsed: Duration) {
        let nanos = elapsed.as_nanos().max(1);
        let measured = u128::from(bytes) * 1_000_000_000 / nanos;
        let measured = u64::try_from(measured).unwrap_or(u64::MAX).max(1);
        let smooth = |old: u64| old - old / RATE_SMOOTHING + measured / RATE_SMOOTHING;
        // Two at once may lose one measurement, which is one of many.
        self.rate.store(smooth(self.rate()).max(1), Ordering::Relaxed);
    }

    /// Bytes written back in a second, as measured lately; never 0.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// How long the writer of `bytes` waits.
    ///
    /// With `p` the part of the reserve that is gone to what eviction can hope to free, `bytes / rate * p / (1 - p)`:
    /// nothing up to the target; at half the reserve one writer is as fast as the disk; any number of writers find a
    /// `p` below 1 at which all of them together are. Beyond, or where that is longer, [`DELAY_MAX`].
    pub(crate) fn delay_for(&self, bytes: u64) -> Option<Duration> {
        let gone = self.evictable_excess();
        if gone == 0 || bytes == 0 {
            return None;
        }
        let left = self.reserve().saturating_sub(gone);
        if left == 0 {
            return Some(DELAY_MAX);
        }
        let write_nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate());
        let nanos = write_nanos.saturating_mul(u128::from(gone)) / u128::from(left);
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        Some(Duration::from_nanos(nanos).min(DELAY_MAX)).filter(|delay| !delay.is_zero())
    }
}

fn not_negative(sum: &AtomicI64) -> u64 {
    u64::try_from(sum.load(Ordering::Relaxed)).unwrap_or(0)
}

/// What the allocator (jemalloc) really hands out for `bytes`: steps of 16 bytes up to 128, then four sizes per
/// doubling.
pub(crate) fn good_size(bytes: usize) -> usize {
    const STEP_SMALL: usize = 16;
    const SMALL_MAX: usize = 128;
    /// Nobody asks for more.
    const CLASSES_MAX: usize = 1 << 40;
    match bytes {
        0 => 0,
        1..=SMALL_MAX => bytes.next_multiple_of(STEP_SMALL),
        _ if bytes <= CLASSES_MAX => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
        _ => bytes,
    }
}

/// The largest length up to `bytes` of which nothing is lost to rounding.
pub(crate) fn good_size_below(bytes: usize) -> usize {
    match good_size(bytes) {
        taken if taken == bytes => bytes,
        // A size's step is an eighth of the power of two above it, and so is the distance to the size before.
        taken => taken - (taken.next_power_of_two() / 8).max(16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// 100 MiB, of which 5 are the reserve, and a disk of 100 MiB a second.
    fn budget(used_mib: u64) -> Budget {
        let budget = Budget::new(100 * MIB);
        budget.add(Use::Images, (used_mib * MIB) as isize);
        budget.rate.store(100 * MIB, Ordering::Relaxed);
        budget
    }

    #[test]
    fn the_share_of_blocks_moves_between_its_bounds() {
        let budget = Budget::new(1000 * 1000);
        budget.add(Use::Images, 1000 * 1000);
        let limit_at_start = budget.blocks_limit();
        for _ in 0..100 {
            budget.move_blocks_share(ShareStep::MoreBlocks);
        }
        assert_eq!(
            (budget.blocks_percent(), budget.blocks_limit()),
            (90, limit_at_start / 60 * 90)
        );
        for _ in 0..100 {
            budget.give_writes_room();
        }
        assert_eq!((budget.blocks_percent(), budget.blocks_limit()), (60, limit_at_start));
        for _ in 0..100 {
            budget.move_blocks_share(ShareStep::MorePages);
        }
        assert_eq!(
            (budget.blocks_percent(), budget.blocks_limit()),
            (20, limit_at_start / 60 * 20)
        );
    }

    #[test]
    fn nobody_waits_below_the_target() {
        for used in [0, 50, 95] {
            let budget = budget(used);
            assert_eq!(budget.delay_for(u64::MAX), None, "{used} MiB");
            assert_eq!(budget.excess(), 0);
            assert!(!budget.is_pressing());
        }
        let budget = budget(95);
        budget.add(Use::Inner, 1);
        assert_eq!(budget.excess(), 1);
        assert_eq!(budget.delay_for(0), None);
        assert!(
            budget
                .delay_for(MIB)
                .is_some_and(|delay| delay < Duration::from_micros(1))
        );
    }

    #[test]
    fn the_wait_grows_with_the_deficit_up_to_its_cap() {
        let wait = |used_tenths: u64, bytes| {
            let budget = budget(0);
            budget.add(Use::Deltas, (used_tenths * MIB / 10) as isize);
            budget.delay_for(bytes).expect("in the reserve")
        };
        let kib_100 = 100 << 10;
        // Half of the reserve: as long as the disk takes for these bytes, a thousandth of its second.
        let one = Duration::from_nanos(976_562);
        assert_eq!(wait(975, kib_100), one);
        // A fifth: a quarter of that. Four fifths: four times.
        assert_eq!(wait(960, kib_100), one / 4);
        assert_eq!(wait(990, kib_100), one * 4);
        // Twice the bytes wait twice as long.
        assert_eq!(wait(975, 2 * kib_100), one * 2 + Duration::from_nanos(1));
        for (used, bytes) in [
            (999, kib_100),
            (975, 100 * MIB),
            (1000, 1),
            (1001, 1),
            (5000, 1),
            (975, u64::MAX),
        ] {
            assert_eq!(wait(used, bytes), DELAY_MAX, "{used} {bytes}");
        }
    }

    #[test]
    fn nobody_waits_for_what_cannot_go() {
        let budget = budget(150);
        assert_eq!(budget.delay_for(1), Some(DELAY_MAX));
        budget.set_floor(Some(150 * MIB));
        assert_eq!((budget.delay_for(u64::MAX), budget.excess()), (None, 55 * MIB));
        assert!(!budget.has_grown());
        // What comes on top may go again: it is waited for as if the limit were there.
        budget.add(Use::Deltas, 5 * MIB as isize / 2);
        assert_eq!(budget.evictable_excess(), 5 * MIB / 2);
        assert!(budget.delay_for(100 << 10).is_some_and(|delay| delay < DELAY_MAX));
        budget.add(Use::Deltas, MIB as isize);
        assert!(budget.has_grown());
        // Some of it goes by itself: perhaps the rest can, too.
        budget.add(Use::Images, -50 * MIB as isize);
        assert!(budget.has_floor() && budget.has_grown());
        assert!(!budget.has_floor() && budget.evictable_excess() > 0);
    }

    #[test]
    fn a_limit_of_nothing_waits_and_does_not_divide_by_zero() {
        let budget = Budget::new(0);
        assert_eq!(budget.delay_for(1), None);
        budget.add(Use::Images, 1);
        assert_eq!(budget.delay_for(1), Some(DELAY_MAX));
        assert_eq!(budget.excess(), 1);
    }

    #[test]
    fn the_rate_follows_the_disk() {
        let budget = budget(0);
        for _ in 0..100 {
            budget.note_write_back(10 * MIB, Duration::from_millis(500));
        }
        assert!((19 * MIB..=21 * MIB).contains(&budget.rate()), "{}", budget.rate());
        budget.note_write_back(0, Duration::from_secs(1));
        assert!(budget.rate() < 19 * MIB);
        for _ in 0..1000 {
            budget.note_write_back(0, Duration::MAX);
        }
        assert!(
            (1..100).contains(&budget.rate()),
            "slow, but never 0: {}",
            budget.rate()
        );
        for _ in 0..1000 {
            budget.note_write_back(u64::MAX, Duration::ZERO);
        }
        assert!(budget.rate() > u64::MAX / 2, "no overflow: {}", budget.rate());
    }

    #[test]
    fn sums_by_use() {
        let budget = budget(0);
        budget.add(Use::Images, 10);
        budget.add(Use::Deltas, 20);
        budget.add(Use::Inner, 30);
        budget.add(Use::Deltas, -5);
        assert_eq!(
            [Use::Images, Use::Deltas, Use::Inner].map(|purpose| budget.used(purpose)),
            [10, 15, 30]
        );
        assert_eq!(budget.total(), 55);
        // Freed before it was counted: for a moment less than nothing, never a huge number.
        budget.add(Use::Inner, -100);
        assert_eq!((budget.used(Use::Inner), budget.total()), (0, 25));
        budget.add(Use::Inner, 70);
        assert_eq!(budget.total(), 25);
    }

    #[test]
    fn the_limit_gives_way_step_by_step_to_what_is_taken_beside_and_comes_back() {
        let budget = budget(0);
        let settle = |beside: u64| {
            let mut before = budget.limit();
            for _ in 0..1000 {
                budget.give_way(beside, 3 * MIB);
                assert!(budget.limit().abs_diff(before) <= 100 * MIB / 64, "small steps");
                before = budget.limit();
            }
            budget.limit()
        };
        assert_eq!(settle(0), 100 * MIB);
        assert_eq!(settle(3 * MIB), 100 * MIB, "as much as that is expected");
        assert_eq!(settle(23 * MIB), 80 * MIB);
        assert_eq!(budget.beside(), 23 * MIB);
        assert_eq!(budget.target(), 76 * MIB, "the reserve follows");
        assert_eq!(settle(u64::MAX), 100 * MIB - 100 * MIB / 3, "two thirds of it stay");
        assert_eq!(settle(0), 100 * MIB);
        let nothing = Budget::new(0);
        nothing.give_way(u64::MAX, 0);
        assert!(nothing.limit() <= 1);
    }

    #[test]
    fn a_burst_is_remembered_for_a_while() {
        let budget = budget(0);
        (0..100).for_each(|_| budget.give_way(20 * MIB, 0));
        assert_eq!(budget.limit(), 80 * MIB);
        budget.give_way(0, 0);
        let after = budget.limit();
        assert!((80 * MIB..=82 * MIB).contains(&after), "{after}");
        budget.give_way(20 * MIB, 0);
        assert_eq!(budget.limit(), 80 * MIB);
    }

    #[test]
    fn sizes_are_those_of_the_allocator() {
        let sizes = [
            (0, 0),
            (1, 16),
            (16, 16),
            (17, 32),
            (65, 80),
            (113, 128),
            (128, 128),
            (129, 160),
            (192, 192),
            (193, 224),
            (256, 256),
            (257, 320),
            (1000, 1024),
            (1025, 1280),
            (15_487, 16_384),
            (16_385, 20_480),
            (65_536, 65_536),
            (65_537, 81_920),
            (1 << 30, 1 << 30),
            ((1 << 30) + 1, (1 << 30) + (1 << 28)),
            (usize::MAX, usize::MAX),
        ];
        for (bytes, taken) in sizes {
            assert_eq!(good_size(bytes), taken, "{bytes}");
        }
        for bytes in 1..200_000 {
            let taken = good_size(bytes);
            assert!(
                taken >= bytes && good_size(taken) == taken && taken <= bytes + bytes / 4 + 16,
                "{bytes}: {taken}"
            );
            let below = good_size_below(bytes);
            assert!(
                below <= bytes && good_size(below) == below && (below == bytes || good_size(below + 1) == taken),
                "{bytes}: {below}"
            );
        }
    }
}
