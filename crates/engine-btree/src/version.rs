//! Versions of one key: a chain, newest first, each stamped with the `Seq` of the batch that wrote it.
//!
//! Invariants:
//! - `seq` falls strictly along the chain;
//! - a chain that ends without an absolute change ([`Change::Put`], [`Change::Delete`] or [`Change::AsBase`]) goes on
//!   in the leaf's base, which then holds nothing newer than the chain's last version;
//! - [`Change::AsBase`] is no newer than the published position, so that no batch writes at its `Seq` again, and the
//!   base has a row for the key as long as it stands in the chain;
//! - the first version at or below a snapshot's `Seq`, or the base, is what that snapshot sees;
//! - an addition in a chain ([`Change::Add`]) holds the sum of all since what it stands on, the nearest absolute change
//!   below it or the base. So any version can leave a chain without a look at the others, but the absolute one that an
//!   addition stands on.

use crate::history_file::Spilled;
use crate::large_values::LargeOwner;
use bytes::Bytes;
use engine::Seq;
use pins::Horizon;
use rcu::{Guard, RcuOption};
use std::sync::Arc;

/// The end of time: no version is that new.
pub(crate) const SEQ_MAX: Seq = Seq(u64::MAX);
/// A reader here sees every version.
pub(crate) const NEWEST: Seq = Seq(u64::MAX - 1);

/// A value, in memory or on disk.
#[derive(Clone)]
pub(crate) enum Value {
    /// The bytes.
    Inline(Bytes),
    /// Where a large value lies, as a leaf's cell has it; with its owner while no leaf on disk holds that cell.
    Large(Bytes, Option<Arc<LargeOwner>>),
    /// In the file of history. Only a version that is covered by a newer one in the leaf's base, and that no checkpoint
    /// sees: it never becomes a base's row.
    Spilled(Spilled),
}

impl Value {
    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) | Self::Large(bytes, _) => bytes.len(),
            Self::Spilled(_) => 0,
        }
    }
}

/// What a version does to its key.
#[derive(Clone)]
pub(crate) enum Change {
    Put(Value),
    Delete,
    /// Adds to what it stands on, see [`engine::Op::Add`] and the module.
    Add(i64),
    /// From here on the key is as the leaf's base has it: what the versions below say is for older snapshots. Only a
    /// consolidation writes this, together with that base.
    AsBase,
}

/// A version in a chain.
pub(crate) struct Version {
    pub(crate) seq: Seq,
    pub(crate) change: Change,
    older: RcuOption<Version>,
}

impl Version {
    pub(crate) fn older<'g>(&self, guard: &'g Guard) -> Option<&'g Version> {
        self.older.load(guard)
    }
}

/// The chain of a key.
pub(crate) struct Chain {
    head: RcuOption<Version>,
}

/// What a snapshot finds in a chain.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'g> {
    /// Sum of the additions above the ground, if any.
    pub(crate) added: Option<i64>,
    /// What they stand on.
    pub(crate) ground: Ground<'g>,
    /// The version seen; `None` when everything is the base's.
    pub(crate) seen: Option<&'g Version>,
}

impl Sight<'_> {
    /// Of a key without versions.
    pub(crate) const NOTHING: Self = Self {
        added: None,
        ground: Ground::Base,
        seen: None,
    };
}

/// What versions take, or took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) versions: usize,
    /// On the heap.
    pub(crate) bytes: usize,
    /// Of values that came since the base.
    pub(crate) rows: usize,
}

impl Taken {
    fn add(&mut self, version: &Version, base: Seq) {
        self.versions += 1;
        self.bytes += change_bytes(&version.change);
        if version.seq > base
            && let Change::Put(value) = &version.change
        {
            self.rows += value.bytes();
        }
    }
}

/// See [`Sight::ground`].
#[derive(Clone, Copy)]
pub(crate) enum Ground<'g> {
    Value(&'g Value),
    Gone,
    /// The chain says nothing: look into the leaf's base.
    Base,
}

impl Chain {
    #[cfg(test)]
    fn new() -> Self {
        Self {
            head: RcuOption::none(),
        }
    }

    /// The newest version.
    pub(crate) fn head<'g>(&self, guard: &'g Guard) -> Option<&'g Version> {
        self.head.load(guard)
    }

    /// Adds a version on top and answers what it took the place of. The caller holds the leaf's lock. `base` is the
    /// newest `Seq` of the leaf's base.
    pub(crate) fn push(&self, seq: Seq, change: Change, base: Seq, guard: &Guard) -> Taken {
        let head = self.head.load(guard);
        debug_assert!(head.is_none_or(|head| head.seq <= seq), "versions come in order");
        let in_batch = head.filter(|head| head.seq == seq);
        debug_assert!(
            !matches!(
                (&change, in_batch.map(|head| &head.change)),
                (Change::Add(_), Some(Change::AsBase))
            ),
            "a batch comes after what is in a base"
        );
        // A batch that writes a key twice: the later change wins, additions add up.
        let change = match (change, in_batch.or(head).map(|head| &head.change)) {
            (Change::Add(amount), Some(Change::Add(before))) => Change::Add(before.wrapping_add(amount)),
            (Change::Add(amount), Some(Change::Put(Value::Inline(bytes)))) if in_batch.is_some() => {
                Change::Put(Value::Inline(sum(bytes, amount)))
            }
            (Change::Add(amount), Some(Change::Put(Value::Large(..) | Value::Spilled(_)) | Change::Delete))
                if in_batch.is_some() =>
            {
                Change::Put(Value::Inline(sum(&[], amount)))
            }
            (change, _) => change,
        };
        let version = Version {
            seq,
            change,
            older: RcuOption::none(),
        };
        let mut replaced = Taken::default();
        match in_batch {
            Some(head) => {
                replaced.add(head, base);
                self.head.take_over(version, |version| &version.older, guard);
            }
            None => self.head.push(version, |version| &version.older, guard),
        }
        replaced
    }

    /// What a snapshot at `at` sees.
    #[inline]
    pub(crate) fn see<'g>(&self, at: Seq, guard: &'g Guard) -> Sight<'g> {
        see_from(self.head.load(guard), at, guard)
    }

    /// The change of the version at `seq`, if there is one.
    pub(crate) fn at<'g>(&self, seq: Seq, guard: &'g Guard) -> Option<&'g Change> {
        let mut next = self.head.load(guard);
        while let Some(version) = next {
            if version.seq == seq {
                return Some(&version.change);
            }
            next = version.older.load(guard);
        }
        None
    }

    /// Puts another change in the place of the version at `seq`, if there is one, and answers the heap bytes that this
    /// saves. Readers go on in what they have. The caller holds the leaf's lock.
    pub(crate) fn replace_at(&self, seq: Seq, change: Change, guard: &Guard) -> usize {
        let mut cell = &self.head;
        while let Some(version) = cell.load(guard) {
            if version.seq == seq {
                let saved = change_bytes(&version.change).saturating_sub(change_bytes(&change));
                let replacement = Version {
                    seq,
                    change,
                    older: RcuOption::none(),
                };
                cell.take_over(replacement, |version| &version.older, guard);
                return saved;
            }
            cell = &version.older;
        }
        0
    }

    /// Forgets versions that nobody can see: all below an absolute one that the oldest position sees, and those between
    /// two positions. Goes on past `kept_max` that are needed at most: a push that calls this costs no more than that,
    /// however long the chain. Answers what went. The caller holds the leaf's lock; `base` as for [`Chain::push`].
    pub(crate) fn prune(&self, horizon: &Horizon, kept_max: usize, base: Seq, guard: &Guard) -> Taken {
        let mut gone = Taken::default();
        let Some(mut newer) = self.head.load(guard) else {
            return gone;
        };
        let mut kept = 0;
        while let Some(version) = newer.older.load(guard) {
            let covers = !matches!(newer.change, Change::Add(_));
            if covers && newer.seq <= horizon.oldest() {
                let mut dead = Some(version);
                while let Some(version) = dead {
                    gone.add(version, base);
                    dead = version.older.load(guard);
                }
                newer.older.replace(None, guard);
                return gone;
            }
            let stood_on = !covers && !matches!(version.change, Change::Add(_));
            if stood_on || horizon.needs(version.seq, newer.seq) {
                kept += 1;
                if kept == kept_max {
                    break;
                }
                newer = version;
            } else {
                gone.add(version, base);
                // Readers that stand on it go on from there.
                newer.older.unlink(|version| &version.older, guard);
            }
        }
        gone
    }
}

/// What a snapshot at `at` sees in the part of a chain that begins with `next`.
#[inline]
pub(crate) fn see_from<'g>(mut next: Option<&'g Version>, at: Seq, guard: &'g Guard) -> Sight<'g> {
    while let Some(version) = next
        && version.seq > at
    {
        next = version.older.load(guard);
    }
    let Some(seen) = next else {
        return Sight::NOTHING;
    };
    let added = match seen.change {
        Change::Add(sum) => Some(sum),
        Change::Put(_) | Change::Delete | Change::AsBase => None,
    };
    let mut under = Some(seen);
    let ground = loop {
        match under.map(|version| (version, &version.change)) {
            Some((_, Change::Put(value))) => break Ground::Value(value),
            Some((_, Change::Delete)) => break Ground::Gone,
            Some((version, Change::Add(_))) => under = version.older.load(guard),
            Some((_, Change::AsBase)) | None => break Ground::Base,
        }
    };
    Sight {
        added,
        ground,
        seen: Some(seen),
    }
}

/// Heap bytes of a version with this change.
pub(crate) fn change_bytes(change: &Change) -> usize {
    let value = match change {
        Change::Put(value) => crate::budget::good_size(value.bytes()),
        Change::Delete | Change::Add(_) | Change::AsBase => 0,
    };
    value + crate::budget::good_size(size_of::<Version>())
}

/// A chain of these versions, given newest first.
pub(crate) fn chain_of(versions: impl DoubleEndedIterator<Item = (Seq, Change)>) -> Chain {
    let mut older: Option<Version> = None;
    for (seq, change) in versions.rev() {
        older = Some(Version {
            seq,
            change,
            older: older.map_or_else(RcuOption::none, RcuOption::some),
        });
    }
    Chain {
        head: older.map_or_else(RcuOption::none, RcuOption::some),
    }
}

/// A value as a number: 0 unless it is 8 bytes long.
pub(crate) fn number(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(0, i64::from_le_bytes)
}

/// The bytes of a value to which `amount` was added.
pub(crate) fn sum(bytes: &[u8], amount: i64) -> Bytes {
    Bytes::copy_from_slice(&number(bytes).wrapping_add(amount).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcu::pin;

    fn put(text: &'static str) -> Change {
        Change::Put(Value::Inline(Bytes::from_static(text.as_bytes())))
    }

    fn seen(chain: &Chain, at: u64) -> String {
        let guard = pin();
        let sight = chain.see(Seq(at), &guard);
        let ground = match sight.ground {
            Ground::Value(Value::Inline(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
            Ground::Value(Value::Large(..) | Value::Spilled(_)) => "elsewhere".to_owned(),
            Ground::Gone => "gone".to_owned(),
            Ground::Base => "base".to_owned(),
        };
        sight.added.map_or(ground.clone(), |added| format!("{ground}+{added}"))
    }

    /// Pushes, and keeps everything.
    fn push(chain: &Chain, seq: u64, change: Change, guard: &Guard) -> Taken {
        chain.push(Seq(seq), change, Seq::ZERO, guard)
    }

    fn horizon(open: &[u64], published: u64) -> Horizon {
        Horizon::new(Seq(published), open.iter().map(|&seq| Seq(seq)).collect())
    }

    fn seqs(chain: &Chain) -> Vec<u64> {
        let guard = pin();
        let mut seqs = Vec::new();
        let mut next = chain.head(&guard);
        while let Some(version) = next {
            seqs.push(version.seq.0);
            next = version.older(&guard);
        }
        seqs
    }

    #[test]
    fn each_snapshot_sees_the_newest_version_at_or_below_it() {
        let chain = Chain::new();
        let guard = pin();
        push(&chain, 3, put("c"), &guard);
        push(&chain, 5, Change::Delete, &guard);
        push(&chain, 7, Change::Add(2), &guard);
        push(&chain, 8, Change::Add(3), &guard);
        let all: Vec<_> = [2, 3, 4, 5, 6, 7, 8, 9].iter().map(|&at| seen(&chain, at)).collect();
        assert_eq!(all, ["base", "c", "c", "gone", "gone", "gone+2", "gone+5", "gone+5"]);
    }

    #[test]
    fn pruning_keeps_what_anybody_sees() {
        let chain = Chain::new();
        let guard = pin();
        for seq in [1, 3, 5, 7, 9, 11] {
            push(&chain, seq, put("x"), &guard);
        }
        let each = change_bytes(&put("x"));
        let gone = chain.prune(&horizon(&[6], 10), 16, Seq(2), &guard);
        assert_eq!(seqs(&chain), [11, 9, 5], "10 is published: 9 may yet be read");
        assert_eq!(
            (gone.versions, gone.bytes, gone.rows),
            (3, 3 * each, 2),
            "1 came before the base"
        );
        assert_eq!(chain.prune(&horizon(&[6], 10), 16, Seq::ZERO, &guard), Taken::default());
        chain.prune(&horizon(&[], 11), 16, Seq::ZERO, &guard);
        assert_eq!(seqs(&chain), [11]);
    }

    #[test]
    fn additions_that_nobody_can_tell_apart_become_one() {
        let chain = Chain::new();
        let guard = pin();
        for seq in 1..=1000 {
            push(&chain, seq, Change::Add(1), &guard);
            chain.prune(&horizon(&[500], seq - 1), 4, Seq::ZERO, &guard);
            assert!(seqs(&chain).len() <= 4, "{:?}", seqs(&chain));
        }
        assert_eq!(seqs(&chain), [1000, 999, 500]);
        assert_eq!(
            (seen(&chain, 700), seen(&chain, 1000)),
            ("base+500".to_owned(), "base+1000".to_owned())
        );
        push(&chain, 1001, put("y"), &guard);
        chain.prune(&horizon(&[500], 1001), 4, Seq::ZERO, &guard);
        assert_eq!(
            (seqs(&chain), seen(&chain, 600)),
            (vec![1001, 500], "base+500".to_owned())
        );
    }

    #[test]
    fn what_additions_stand_on_stays() {
        let chain = chain_of([(Seq(9), Change::Add(7)), (Seq(8), Change::Add(4)), (Seq(5), put("5"))].into_iter());
        let guard = pin();
        chain.prune(&horizon(&[], 10), 4, Seq::ZERO, &guard);
        assert_eq!((seqs(&chain), seen(&chain, 10)), (vec![9, 5], "5+7".to_owned()));
    }

    #[test]
    fn a_push_looks_at_few_versions_of_a_long_chain() {
        let chain = Chain::new();
        let guard = pin();
        let open: Vec<u64> = (1..=100).collect();
        for seq in 1..=102 {
            push(&chain, seq, put("x"), &guard);
        }
        let gone = chain.prune(&horizon(&open[50..], 102), 8, Seq::ZERO, &guard);
        assert_eq!(gone.versions, 1, "101; what 50 and more need hides the rest");
        let gone = chain.prune(&horizon(&open[50..], 102), usize::MAX, Seq::ZERO, &guard);
        assert_eq!(gone.versions, 50);
    }

    #[test]
    fn a_change_takes_the_place_of_another() {
        let chain = Chain::new();
        let guard = pin();
        for seq in [1, 3, 5] {
            push(&chain, seq, put("long ago, and far away, and long"), &guard);
        }
        assert_eq!(chain.replace_at(Seq(3), put("c"), &guard), 16);
        assert_eq!(chain.replace_at(Seq(4), put("d"), &guard), 0);
        assert_eq!((seqs(&chain), seen(&chain, 4)), (vec![5, 3, 1], "c".to_owned()));
    }

    #[test]
    fn the_later_change_of_one_batch_wins() {
        let guard = pin();
        let chain = Chain::new();
        push(&chain, 1, put("a"), &guard);
        assert_eq!(push(&chain, 2, put("b"), &guard), Taken::default());
        assert_eq!(push(&chain, 2, Change::Delete, &guard).rows, 1);
        assert_eq!((seen(&chain, 1), seen(&chain, 2)), ("a".to_owned(), "gone".to_owned()));
        push(&chain, 2, Change::Add(4), &guard);
        let Ground::Value(Value::Inline(bytes)) = chain.see(Seq(2), &guard).ground else {
            panic!("an addition to nothing is a value")
        };
        assert_eq!(number(bytes), 4);
        assert_eq!(seqs(&chain), [2, 1]);
    }

    /// Random pushes and prunings against all that was ever written: every open snapshot sees what it saw.
    #[test]
    fn every_open_snapshot_sees_what_it_saw() {
        use vfs::{Random, SeededRandom, SystemRandom};
        let seed = SystemRandom::new().next_u64();
        println!("seed {seed}");
        let random = SeededRandom::new(seed);
        let below = |end: u64| random.next_u64() % end;
        for _ in 0..300 {
            let chain = Chain::new();
            let guard = pin();
            // What each position sees, the base first.
            let mut history = vec![seen(&chain, 0)];
            let mut open: Vec<u64> = Vec::new();
            let mut published = 0;
            let mut cached = horizon(&[], 0);
            for seq in 1..=60 {
                // As `Leaf::push` does: an addition to a known value is a value.
                let on_base = seen(&chain, u64::MAX - 1).starts_with("base");
                let change = match below(8) {
                    0 => Change::Delete,
                    1 => put("x"),
                    2 => put("yy"),
                    _ if on_base => Change::Add(below(9) as i64),
                    _ => put("z"),
                };
                push(&chain, seq, change, &guard);
                history.push(seen(&chain, seq));
                if below(3) == 0 {
                    open.sort_unstable();
                    open.dedup();
                    cached = horizon(&open, published);
                }
                chain.prune(&cached, 1 + below(4) as usize, Seq::ZERO, &guard);
                published = published.max(seq - below(4).min(seq));
                match below(3) {
                    0 => open.push(published),
                    1 if !open.is_empty() => drop(open.swap_remove(below(open.len() as u64) as usize)),
                    _ => {}
                }
                for &at in open.iter().chain([&published, &seq]) {
                    assert_eq!(
                        seen(&chain, at),
                        history[at as usize],
                        "at {at} after {seq}, seed {seed}"
                    );
                }
            }
        }
    }
}
