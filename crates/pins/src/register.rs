//! The register itself.
//!
//! Why a [`Horizon`] is sound: [`Pins::update`] loads the published position *before* it takes the shards' locks, and
//! [`Pins::pin`] loads it *under* one. A pin that an update did not find took its shard's lock after the update had
//! released it, and so loaded a position no older than the update's.

use crate::horizon::Horizon;
use crate::shard::Shard;
use engine::Seq;
use rcu::Mutex;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Enough that threads on different processors rarely meet, few enough to look at all of them. The schedule checker
/// would spend its time on them.
const SHARDS: usize = if cfg!(feature = "shuttle") { 2 } else { 16 };

/// See [`Pins::refresh`]. A key that is written again and again keeps about so many versions more than it must.
const REFRESH_BATCHES: usize = if cfg!(feature = "shuttle") { 2 } else { 16 };

/// Who holds a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A snapshot that was handed out; it may be ended, see [`Pins::expire_oldest`].
    Reader,
    /// The engine's own work, such as a checkpoint: it lasts until it is unpinned.
    Engine,
}

/// A position that is held, until [`Pins::unpin`].
#[derive(Debug)]
#[must_use = "it is held until it is unpinned"]
pub struct Pin {
    seq: Seq,
    shard: usize,
    holder: Holder,
}

impl Pin {
    /// The position.
    #[inline]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Who holds it.
    pub fn holder(&self) -> Holder {
        self.holder
    }
}

/// A cache line of its own, and the one that is fetched with it.
#[repr(align(128))]
#[derive(Default)]
struct Aligned<T>(T);

/// See the crate.
pub struct Pins {
    published: Aligned<AtomicU64>,
    /// Readers at a position below this one were ended.
    expired: Aligned<AtomicU64>,
    shards: [Aligned<Mutex<Shard>>; SHARDS],
}

static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

rcu::thread_local! {
    static SHARD: Cell<usize> = Cell::new(NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS);
}

impl Pins {
    /// With a published position and nothing open.
    pub fn new(published: Seq) -> Self {
        Self {
            published: Aligned(AtomicU64::new(published.0)),
            expired: Aligned::default(),
            shards: Default::default(),
        }
    }

    /// The position of new snapshots.
    #[inline]
    pub fn published(&self) -> Seq {
        rcu::schedule_point();
        Seq(self.published.0.load(Ordering::Acquire))
    }

    /// Makes `seq` the position of new snapshots; never goes back.
    pub fn publish(&self, seq: Seq) {
        rcu::schedule_point();
        self.published.0.fetch_max(seq.0, Ordering::AcqRel);
    }

    fn expired(&self) -> Seq {
        rcu::schedule_point();
        Seq(self.expired.0.load(Ordering::Acquire))
    }

    /// Holds the published position.
    #[inline]
    pub fn pin(&self, holder: Holder) -> Pin {
        // A thread that is ending has none any more.
        let shard = SHARD.try_with(Cell::get).unwrap_or(0);
        let mut open = self.shards[shard].0.lock();
        // Under the lock: see the module. Positions rise within a shard for the same reason.
        let seq = self.published();
        open.pin(seq, holder);
        Pin { seq, shard, holder }
    }

    /// Gives back what [`Pins::pin`] holds.
    #[inline]
    pub fn unpin(&self, pin: Pin) {
        self.shards[pin.shard].0.lock().unpin(pin.seq, pin.holder);
    }

    /// Whether a reader was ended. To be asked *after* it has read: what it needs went only after this became true, so
    /// what was read while it is false is right.
    #[inline]
    pub fn is_expired(&self, pin: &Pin) -> bool {
        pin.holder == Holder::Reader && pin.seq < self.expired()
    }

    /// Ends the readers at the oldest position of all, and answers it. Not the newest, which need nothing that is old,
    /// and not while the engine's own work stands there or before: that needs what they do, and ends by itself.
    pub fn expire_oldest(&self) -> Option<Seq> {
        let others = self.oldest_of_engine();
        let oldest = self.oldest_of(Holder::Reader).filter(|&oldest| oldest < others)?;
        rcu::schedule_point();
        // Before anybody frees what they needed: a horizon without them is drawn by who has seen this.
        self.expired.0.fetch_max(oldest.next().0, Ordering::AcqRel);
        Some(oldest)
    }

    fn oldest_of(&self, holder: Holder) -> Option<Seq> {
        let expired = self.expired();
        let oldest = |shard: &Aligned<Mutex<Shard>>| shard.0.lock().oldest_of(holder, expired);
        self.shards.iter().filter_map(oldest).min()
    }

    /// The oldest position at which the engine's own work stands, or can stand later; the published one when there is
    /// none.
    pub fn oldest_of_engine(&self) -> Seq {
        // First: see the module.
        let published = self.published();
        self.oldest_of(Holder::Engine)
            .map_or(published, |engine| engine.min(published))
    }

    /// Brings `horizon` up to date now and then, for who asks before each batch: on average that costs as much as a few
    /// snapshots do, however many are open.
    #[inline]
    pub fn refresh(&self, horizon: &mut Horizon) {
        if horizon.age == 0 {
            self.update(horizon);
            horizon.age = REFRESH_BATCHES + horizon.open.len() / 4;
        }
        horizon.age -= 1;
    }

    /// Brings `horizon` up to date, keeping its memory.
    pub fn update(&self, horizon: &mut Horizon) {
        // First: see the module.
        horizon.published = self.published();
        let expired = self.expired();
        horizon.open.clear();
        for shard in &self.shards {
            let shard = shard.0.lock();
            horizon.open.extend(shard.held(expired).map(|(seq, _)| seq));
        }
        // Each shard's run rises already.
        horizon.open.sort();
        horizon.open.dedup();
    }

    /// The oldest position that a snapshot reads at, or that a later one can read at.
    pub fn oldest(&self) -> Seq {
        let published = self.published();
        let expired = self.expired();
        let first = |shard: &Aligned<Mutex<Shard>>| shard.0.lock().held(expired).next().map(|(seq, _)| seq);
        let oldest = self.shards.iter().filter_map(first).min();
        oldest.map_or(published, |oldest| oldest.min(published))
    }

    /// The published position, and the oldest one that is held, one holder at `own` left out; behind the published one
    /// when there is no other.
    pub fn oldest_but(&self, own: Option<Seq>) -> (Seq, Seq) {
        let published = self.published();
        let expired = self.expired();
        let (mut oldest, mut at_own) = (published.next(), 0);
        for shard in &self.shards {
            for (seq, count) in shard.0.lock().held(expired) {
                if Some(seq) == own {
                    at_own += count;
                } else {
                    oldest = oldest.min(seq);
                    break;
                }
            }
        }
        match own {
            Some(own) if at_own > 1 => (published, oldest.min(own)),
            _ => (published, oldest),
        }
    }

    /// Number of open snapshots, and the oldest one's position. Those that were ended do not count.
    pub fn open(&self) -> (usize, Option<Seq>) {
        let expired = self.expired();
        let (mut open, mut oldest) = (0, None);
        for shard in &self.shards {
            let shard = shard.0.lock();
            open += shard.held(expired).map(|(_, count)| count as usize).sum::<usize>();
            let first = shard.held(expired).next().map(|(seq, _)| seq);
            oldest = [oldest, first].into_iter().flatten().min();
        }
        (open, oldest)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_position_follows_the_oldest_open_snapshot() {
        let pins = Pins::new(Seq(4));
        let (a, b) = (pins.pin(Holder::Reader), pins.pin(Holder::Engine));
        pins.publish(Seq(7));
        let c = pins.pin(Holder::Reader);
        assert_eq!((a.seq(), b.seq(), c.seq()), (Seq(4), Seq(4), Seq(7)));
        assert_eq!(pins.oldest(), Seq(4));
        assert_eq!(pins.oldest_but(Some(Seq(4))), (Seq(7), Seq(4)), "two are open there");
        pins.unpin(a);
        pins.unpin(c);
        assert_eq!(pins.oldest_but(Some(Seq(4))), (Seq(7), Seq(8)));
        assert_eq!(pins.oldest_but(None), (Seq(7), Seq(4)));
        assert_eq!((pins.open(), pins.oldest()), ((1, Some(Seq(4))), Seq(4)));
        pins.unpin(b);
        assert_eq!((pins.open(), pins.oldest()), ((0, None), Seq(7)));
        pins.publish(Seq(2));
        assert_eq!(pins.published(), Seq(7), "it never goes back");
    }

    #[test]
    fn the_oldest_readers_are_ended_and_the_engines_own_work_is_not() {
        let pins = Pins::new(Seq(3));
        assert_eq!(pins.expire_oldest(), None);
        let first = pins.pin(Holder::Reader);
        assert_eq!(pins.expire_oldest(), None, "it needs nothing that is old");
        pins.publish(Seq(4));
        let checkpoint = pins.pin(Holder::Engine);
        let beside = pins.pin(Holder::Reader);
        pins.publish(Seq(5));
        let second = pins.pin(Holder::Reader);
        pins.publish(Seq(9));
        assert_eq!(pins.expire_oldest(), Some(Seq(3)));
        let ended = |pin: &Pin| pins.is_expired(pin);
        assert_eq!(
            [ended(&first), ended(&checkpoint), ended(&second)],
            [true, false, false]
        );
        assert_eq!(pins.oldest(), Seq(4), "the checkpoint's");
        assert_eq!(pins.expire_oldest(), None, "the checkpoint needs as much");
        pins.unpin(checkpoint);
        assert_eq!(pins.expire_oldest(), Some(Seq(4)));
        pins.unpin(beside);
        assert_eq!(pins.oldest(), Seq(5));
        assert_eq!(pins.expire_oldest(), Some(Seq(5)));
        assert_eq!(pins.expire_oldest(), None);
        let mut horizon = Horizon::default();
        pins.update(&mut horizon);
        assert_eq!((horizon.oldest(), horizon.open()), (Seq(9), &[][..]));
        pins.unpin(first);
        pins.unpin(second);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Publish,
        Pin(bool),
        Unpin(usize),
        Expire,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Publish),
            4 => any::<bool>().prop_map(Step::Pin),
            4 => any::<usize>().prop_map(Step::Unpin),
            1 => Just(Step::Expire),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Against a plain list of what is open.
        #[test]
        fn answers_are_those_of_a_list(steps in steps()) {
            let pins = Pins::new(Seq(1));
            let (mut published, mut expired) = (Seq(1), Seq::ZERO);
            let mut open: Vec<Pin> = Vec::new();
            let mut horizon = Horizon::default();
            for step in steps {
                match step {
                    Step::Publish => {
                        published = published.next();
                        pins.publish(published);
                    }
                    Step::Pin(reader) => {
                        let holder = if reader { Holder::Reader } else { Holder::Engine };
                        // As from different threads.
                        SHARD.with(|shard| shard.set(open.len() % 3));
                        open.push(pins.pin(holder));
                    }
                    Step::Unpin(which) if !open.is_empty() => pins.unpin(open.swap_remove(which % open.len())),
                    Step::Unpin(_) => {}
                    Step::Expire => {
                        let of_readers = open.iter().filter(|pin| pin.holder == Holder::Reader && pin.seq >= expired);
                        let engine = open.iter().filter(|pin| pin.holder == Holder::Engine).map(Pin::seq).min();
                        let others = engine.map_or(published, |engine| engine.min(published));
                        let oldest = of_readers.map(Pin::seq).min().filter(|&oldest| oldest < others);
                        prop_assert_eq!(pins.expire_oldest(), oldest);
                        expired = oldest.map_or(expired, Seq::next);
                    }
                }
                let ended = |pin: &&Pin| pin.holder == Holder::Reader && pin.seq < expired;
                prop_assert!(open.iter().all(|pin| pins.is_expired(pin) == ended(&pin)));
                let held: Vec<&Pin> = open.iter().filter(|pin| !ended(pin)).collect();
                let mut seqs: Vec<Seq> = held.iter().map(|pin| pin.seq).collect();
                seqs.sort();
                prop_assert_eq!(pins.open(), (held.len(), seqs.first().copied()));
                prop_assert_eq!(pins.oldest(), seqs.first().copied().unwrap_or(published));
                for own in [None, seqs.first().copied(), seqs.last().copied()] {
                    let mut others = seqs.clone();
                    if let Some(own) = own {
                        others.remove(others.iter().position(|&seq| seq == own).expect("it is one of them"));
                    }
                    let expected = others.first().copied().unwrap_or(published.next());
                    prop_assert_eq!(pins.oldest_but(own), (published, expected));
                }
                seqs.dedup();
                pins.update(&mut horizon);
                prop_assert_eq!(&horizon.open, &seqs);
                prop_assert_eq!(horizon.published, published);
            }
        }
    }
}
