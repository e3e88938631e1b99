//! The table of exclusive locks on documents and on unique keys.
//!
//! A lock is a table id and a number: the record id for documents, a hash of the key bytes for unique keys (two keys of
//! one hash only wait for each other without need). An owner is a write unit. Locks are held from evaluation until the
//! unit is published or forgotten: a few microseconds.
//!
//! Nobody sleeps here while holding another lock of the table (the write path sees to it), so there is no deadlock to
//! detect. A lock given back wakes its waiters, which then compete: passing locks by hand-over would cost a scheduler
//! round trip per change of owner.
//!
//! While transactions are open the table also remembers which entry changed last what a lock stands for, as far as one
//! of them may have a snapshot from before it: "the first who commits wins" (Berenson et al., *A Critique of ANSI SQL
//! Isolation Levels*, 1995). Without open transactions nothing is remembered.
//!
//! Invariant: a transaction is registered before its snapshot is taken, and an entry is published before its locks are
//! given back, or pending; so whoever gives locks back sees every transaction whose snapshot lacks the entry.

use crate::waiter::WAIT_SLICE;
use crate::{LockMode, Waiter};
use engine::{Seq, TableId};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rcu::thread::{self, Thread};
use rcu::{Mutex, schedule_point};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey {
    /// Of the document, or of the index of the unique key.
    pub table: TableId,
    /// The record id, or [`key_hash`].
    pub key: u64,
}

/// The number by which a unique key is locked.
pub fn key_hash(key: &[u8]) -> u64 {
    // FNV-1a over 8-byte words with a final mix: collisions only cost a wait.
    const PRIME: u64 = 0x0000_0100_0000_01B3;
    let mut hash = 0xCBF2_9CE4_8422_2325 ^ key.len() as u64;
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of 8 bytes"));
        hash = (hash ^ word).wrapping_mul(PRIME).rotate_left(29);
    }
    for &byte in words.remainder() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    }
    hash ^ (hash >> 32)
}

/// The answer of [`LockTable::try_take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is the owner's now.
    New,
    /// It was the owner's before.
    Already,
    /// Somebody else has it.
    Busy,
}

/// Bits of a key's mixed number that choose its shard. The schedule checker would spend its time on many.
const SHARD_BITS: u32 = if cfg!(feature = "shuttle") { 1 } else { 6 };
const SHARDS: usize = 1 << SHARD_BITS;
/// Tries before sleeping: most locks are free again within the time of a few system calls.
const YIELDS_BEFORE_SLEEP: usize = if cfg!(feature = "shuttle") { 1 } else { 4 };

struct Entries {
    owner: u64,
    waiters: VecDeque<Arc<Thread>>,
}

#[derive(Default)]
#[repr(align(64))]
struct Shard(Mutex<Locks>);

#[derive(Default)]
struct Locks {
    held: HashMap<LockKey, Entries>,
    /// The last entry that changed what is not locked any more.
    changed: HashMap<LockKey, Seq>,
    /// At so many it is looked whether some are of no use any more.
    changed_max: usize,
}

/// What a unit tells when it gives its locks back.
#[derive(Clone, Copy)]
pub struct Changed {
    /// Its entry.
    pub seq: Seq,
    /// Entries up to here have been published.
    pub published: Seq,
}

/// Remembered per shard before the first look.
const CHANGED_MIN: usize = 64;

/// See the module.
pub struct LockTable {
    shards: Box<[Shard]>,
    /// Snapshots of open transactions, and how many have each.
    open: Mutex<BTreeMap<Seq, u32>>,
    /// The oldest of them; the largest number without any.
    oldest: AtomicU64,
}

impl Default for LockTable {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            open: Mutex::default(),
            oldest: AtomicU64::new(u64::MAX),
        }
    }
}

impl LockTable {
    /// Nothing is locked.
    pub fn new() -> Self {
        Self::default()
    }

    fn shard(&self, key: LockKey) -> &Mutex<Locks> {
        let mixed = (key.key ^ u64::from(key.table.0).rotate_left(40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(mixed >> (u64::BITS - SHARD_BITS)) as usize].0
    }

    /// A transaction begins, whose snapshot will have everything up to `published`.
    pub fn open(&self, published: Seq) {
        let mut open = self.open.lock();
        *open.entry(published).or_default() += 1;
        let oldest = open.first_key_value().map_or(u64::MAX, |(seq, _)| seq.0);
        schedule_point();
        self.oldest.store(oldest, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// A transaction that was opened at `opened` has ended.
    pub fn close(&self, opened: Seq, published: Seq) {
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&opened) {
            *count -= 1;
            if *count == 0 {
                open.remove(&opened);
            }
        }
        let oldest = open.first_key_value().map_or(u64::MAX, |(seq, _)| seq.0);
        schedule_point();
        self.oldest.store(oldest, Ordering::SeqCst);
        if open.is_empty() {
            for shard in &self.shards {
                shard.0.lock().forget(published.0);
            }
        }
    }

    /// Whether an entry behind `seq` has changed what a lock stands for. By the lock's owner.
    pub fn has_changed_since(&self, key: LockKey, seq: Seq) -> bool {
        self.shard(key)
            .lock()
            .changed
            .get(&key)
            .is_some_and(|changed| *changed > seq)
    }

    /// Takes a lock if nobody else has it.
    pub fn try_take(&self, key: LockKey, owner: u64) -> Taken {
        match self.shard(key).lock().held.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(Entries {
                    owner,
                    waiters: VecDeque::new(),
                });
                Taken::New
            }
            Entry::Occupied(held) if held.get().owner == owner => Taken::Already,
            Entry::Occupied(_) => Taken::Busy,
        }
    }

    /// Waits until nobody has the lock. Somebody may have taken it again on return.
    pub fn wait_until_free<W: Waiter>(&self, key: LockKey, waiter: &W) -> Result<(), W::Interrupted> {
        for _ in 0..YIELDS_BEFORE_SLEEP {
            if !self.shard(key).lock().held.contains_key(&key) {
                return Ok(());
            }
            rcu::yield_now();
        }
        let me = Arc::new(thread::current());
        let start = waiter.now();
        let _wait = waiter.begins_to_wait(LockMode::IntentExclusive);
        let result = loop {
            let is_held_on = match self.shard(key).lock().held.get_mut(&key) {
                None => break Ok(()),
                // The queue goes away with the lock: nobody has given it back for a slice.
                Some(held) if held.waiters.iter().any(|waiter| Arc::ptr_eq(waiter, &me)) => true,
                Some(held) => {
                    held.waiters.push_back(me.clone());
                    false
                }
            };
            if is_held_on {
                waiter.waits_on();
            }
            thread::park_timeout(WAIT_SLICE);
            if let Err(interrupted) = waiter.check() {
                break Err(interrupted);
            }
        };
        self.leave(key, &me);
        waiter.ends_to_wait();
        waiter.waited_for_document(waiter.now().saturating_sub(start));
        result
    }

    /// Takes a waiter out of a queue it may still stand in.
    fn leave(&self, key: LockKey, me: &Arc<Thread>) {
        if let Some(held) = self.shard(key).lock().held.get_mut(&key) {
            held.waiters.retain(|waiter| !Arc::ptr_eq(waiter, me));
        }
    }

    /// Gives locks back and wakes who waits for them. `changed`: what they stand for has been.
    pub fn release(&self, keys: &[LockKey], owner: u64, changed: Option<Changed>) {
        let changed = changed.and_then(|changed| {
            // Pairs with the one in `open`.
            fence(Ordering::SeqCst);
            schedule_point();
            let oldest = self.oldest.load(Ordering::SeqCst);
            let needed_from = oldest.min(changed.published.0);
            (changed.seq.0 > needed_from).then_some((changed.seq, needed_from))
        });
        for &key in keys {
            let removed = {
                let mut shard = self.shard(key).lock();
                if let Some((seq, needed_from)) = changed {
                    shard.remember(key, seq, needed_from);
                }
                match shard.held.entry(key) {
                    Entry::Occupied(held) if held.get().owner == owner => Some(held.remove()),
                    _ => None,
                }
            };
            // All are woken: the queue goes away with the lock, and those who lose queue up anew.
            for waiter in removed.into_iter().flat_map(|held| held.waiters) {
                waiter.unpark();
            }
        }
    }

    /// Forgets what was changed: none of the transactions that are open may take locks any more.
    pub fn forget_changes(&self) {
        for shard in &self.shards {
            shard.0.lock().forget(u64::MAX);
        }
    }

    /// Entries remembered.
    pub fn remembered(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().changed.len()).sum()
    }

    /// Number of locks held.
    #[expect(clippy::len_without_is_empty, reason = "a figure, not a container")]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().held.len()).sum()
    }
}

impl Locks {
    fn remember(&mut self, key: LockKey, seq: Seq, needed_from: u64) {
        let last = self.changed.entry(key).or_default();
        *last = (*last).max(seq);
        if self.changed.len() >= self.changed_max.max(CHANGED_MIN) {
            self.forget(needed_from);
        }
    }

    /// Forgets what every open transaction sees.
    fn forget(&mut self, needed_from: u64) {
        self.changed.retain(|_, seq| seq.0 > needed_from);
        self.changed_max = 2 * self.changed.len();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::test_waiter::Client;
    use std::sync::atomic::{AtomicU64, Ordering};

    const KEY: LockKey = LockKey {
        table: TableId(16),
        key: 5,
    };

    #[test]
    fn one_owner_at_a_time() {
        let table = LockTable::new();
        assert_eq!(table.try_take(KEY, 1), Taken::New);
        assert_eq!(table.try_take(KEY, 1), Taken::Already);
        assert_eq!(table.try_take(KEY, 2), Taken::Busy);
        table.release(&[KEY], 2, None);
        assert_eq!(table.try_take(KEY, 2), Taken::Busy, "only the owner gives back");
        table.release(&[KEY], 1, None);
        assert_eq!(table.try_take(KEY, 2), Taken::New);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn what_was_changed_is_forgotten_on_demand() {
        let table = LockTable::new();
        let changed = |seq| Changed {
            seq: Seq(seq),
            published: Seq(1),
        };
        table.try_take(KEY, 1);
        table.release(&[KEY], 1, Some(changed(9)));
        assert!(table.has_changed_since(KEY, Seq(5)));
        table.forget_changes();
        assert_eq!((table.has_changed_since(KEY, Seq(5)), table.remembered()), (false, 0));
        table.release(&[KEY], 1, Some(changed(6)));
        assert!(table.has_changed_since(KEY, Seq(5)));
    }

    #[test]
    fn a_killed_waiter_leaves() {
        let table = LockTable::new();
        table.try_take(KEY, 1);
        let op = Client::default();
        op.kill();
        assert_eq!(table.wait_until_free(KEY, &op), Err(()));
        assert!(table.shard(KEY).lock().held[&KEY].waiters.is_empty());
    }

    #[test]
    fn a_hot_lock_excludes() {
        let (table, inside, total) = (LockTable::new(), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for owner in 1..=8u64 {
                let (table, inside, total) = (&table, &inside, &total);
                scope.spawn(move || {
                    let op = Client::default();
                    for _ in 0..200 {
                        while table.try_take(KEY, owner) != Taken::New {
                            table.wait_until_free(KEY, &op).unwrap();
                        }
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        total.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        table.release(&[KEY], owner, None);
                    }
                });
            }
        });
        assert_eq!((total.load(Ordering::SeqCst), table.len()), (1600, 0));
    }
}
