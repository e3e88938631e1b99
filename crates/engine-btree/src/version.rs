//! Versions of one key: a chain, newest first, each stamped with the `Seq` of the batch that wrote it.
//!
//! Invariants:
//! - `seq` falls strictly along the chain;
//! - a chain that ends without an absolute change ([`Change::Put`] or [`Change::Delete`]) goes on in the leaf's base, which then
//!   holds nothing newer than the chain's last version;
//! - the first version at or below a snapshot's `Seq`, or the base, is what that snapshot sees; sums of [`Change::Add`] are
//!   added up on the way down.

use crate::large_values::LargeOwner;
use bytes::Bytes;
use engine::Seq;
use rcu::{Guard, RcuOption};
use std::sync::Arc;

/// A value, in memory or on disk.
#[derive(Clone)]
pub(crate) enum Value {
    /// The bytes.
    Inline(Bytes),
    /// Where a large value lies, as a leaf's cell has it; with its owner while no stored leaf holds that cell.
    Large(Bytes, Option<Arc<LargeOwner>>),
}

impl Value {
    /// Heap bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Inline(bytes) | Self::Large(bytes, _) => bytes.len(),
        }
    }
}

/// What a version does to its key.
#[derive(Clone)]
pub(crate) enum Change {
    Put(Value),
    Delete,
    /// Adds to the older value, see [`engine::Op::Add`].
    Add(i64),
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
    /// The newest version seen; `None` when everything is the base's.
    pub(crate) newest: Option<Seq>,
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

    /// Adds a version on top. The caller holds the leaf's lock.
    pub(crate) fn push(&self, seq: Seq, change: Change, guard: &Guard) {
        let version = Version {
            seq,
            change,
            older: RcuOption::none(),
        };
        if let Some(head) = self.head.load(guard)
            && head.seq == seq
        {
            // A batch that writes a key twice: the later change wins, additions add up.
            let change = match (version.change, &head.change) {
                (Change::Add(amount), Change::Add(before)) => Change::Add(amount.wrapping_add(*before)),
                (Change::Add(amount), Change::Put(Value::Inline(bytes))) => {
                    Change::Put(Value::Inline(sum(bytes, amount)))
                }
                (Change::Add(amount), Change::Put(Value::Large(..)) | Change::Delete) => {
                    Change::Put(Value::Inline(sum(&[], amount)))
                }
                (change, _) => change,
            };
            let rest = head.older.load(guard).map(|older| copy_chain(older, guard));
            let replacement = Version {
                seq,
                change,
                older: rest.map_or_else(RcuOption::none, RcuOption::some),
            };
            self.head.replace(Some(replacement), guard);
            return;
        }
        self.head.push(version, |version| &version.older, guard);
    }

    /// What a snapshot at `at` sees.
    #[inline]
    pub(crate) fn see<'g>(&self, at: Seq, guard: &'g Guard) -> Sight<'g> {
        let mut next = self.head.load(guard);
        let mut sight = Sight {
            added: None,
            ground: Ground::Base,
            newest: None,
        };
        while let Some(version) = next {
            if version.seq <= at {
                sight.newest = sight.newest.or(Some(version.seq));
                match &version.change {
                    Change::Put(value) => {
                        sight.ground = Ground::Value(value);
                        return sight;
                    }
                    Change::Delete => {
                        sight.ground = Ground::Gone;
                        return sight;
                    }
                    Change::Add(amount) => {
                        sight.added = Some(sight.added.unwrap_or(0).wrapping_add(*amount));
                    }
                }
            }
            next = version.older.load(guard);
        }
        sight
    }

    /// Puts another change in the place of the version at `seq`, if there is one, and answers the heap bytes that this saves.
    /// Readers go on in what they have. The caller holds the leaf's lock.
    pub(crate) fn replace_at(&self, seq: Seq, change: Change, guard: &Guard) -> usize {
        let mut kept = Vec::new();
        let mut next = self.head.load(guard);
        let mut saved = None;
        while let Some(version) = next {
            if version.seq == seq {
                saved = Some(change_bytes(&version.change).saturating_sub(change_bytes(&change)));
                kept.push((seq, change.clone()));
            } else {
                kept.push((version.seq, version.change.clone()));
            }
            next = version.older.load(guard);
        }
        let Some(saved) = saved else { return 0 };
        self.head.replace(linked(kept.into_iter()), guard);
        saved
    }

    /// Forgets what no snapshot can see: everything below the newest absolute version at or under `low`, the oldest position
    /// anybody reads at. Answers the value bytes freed. The caller holds the leaf's lock.
    pub(crate) fn trim(&self, low: Seq, guard: &Guard) -> usize {
        let mut next = self.head.load(guard);
        while let Some(version) = next {
            if version.seq <= low && !matches!(version.change, Change::Add(_)) {
                let mut freed = 0;
                let mut old = version.older.load(guard);
                if old.is_none() {
                    return 0;
                }
                while let Some(dead) = old {
                    freed += version_bytes(dead);
                    old = dead.older.load(guard);
                }
                version.older.replace(None, guard);
                return freed;
            }
            next = version.older.load(guard);
        }
        0
    }
}

/// Heap bytes of a version.
pub(crate) fn version_bytes(version: &Version) -> usize {
    change_bytes(&version.change)
}

/// Heap bytes of a version with this change.
pub(crate) fn change_bytes(change: &Change) -> usize {
    let value = match change {
        Change::Put(value) => crate::budget::good_size(value.bytes()),
        Change::Delete | Change::Add(_) => 0,
    };
    value + crate::budget::good_size(size_of::<Version>())
}

fn copy_chain(version: &Version, guard: &Guard) -> Version {
    // Chains below a batch that is not published are short: pushes trim them.
    let mut versions = vec![(version.seq, version.change.clone())];
    let mut next = version.older.load(guard);
    while let Some(version) = next {
        versions.push((version.seq, version.change.clone()));
        next = version.older.load(guard);
    }
    linked(versions.into_iter()).expect("there is at least one version")
}

/// A chain of these versions, given newest first.
pub(crate) fn chain_of(versions: impl DoubleEndedIterator<Item = (Seq, Change)>) -> Chain {
    Chain {
        head: linked(versions).map_or_else(RcuOption::none, RcuOption::some),
    }
}

/// The head of a chain of these versions, given newest first.
fn linked(versions: impl DoubleEndedIterator<Item = (Seq, Change)>) -> Option<Version> {
    let mut older: Option<Version> = None;
    for (seq, change) in versions.rev() {
        older = Some(Version {
            seq,
            change,
            older: older.map_or_else(RcuOption::none, RcuOption::some),
        });
    }
    older
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
            Ground::Value(Value::Large(..)) => "large".to_owned(),
            Ground::Gone => "gone".to_owned(),
            Ground::Base => "base".to_owned(),
        };
        sight.added.map_or(ground.clone(), |added| format!("{ground}+{added}"))
    }

    #[test]
    fn each_snapshot_sees_the_newest_version_at_or_below_it() {
        let chain = Chain::new();
        let guard = pin();
        chain.push(Seq(3), put("c"), &guard);
        chain.push(Seq(5), Change::Delete, &guard);
        chain.push(Seq(7), Change::Add(2), &guard);
        chain.push(Seq(8), Change::Add(3), &guard);
        let all: Vec<_> = [2, 3, 4, 5, 6, 7, 8, 9].iter().map(|&at| seen(&chain, at)).collect();
        assert_eq!(all, ["base", "c", "c", "gone", "gone", "gone+2", "gone+5", "gone+5"]);
    }

    #[test]
    fn trimming_keeps_what_the_oldest_reader_sees() {
        let chain = Chain::new();
        let guard = pin();
        for seq in [1, 3, 5, 7] {
            chain.push(Seq(seq), put("x"), &guard);
        }
        assert!(chain.trim(Seq(5), &guard) > 0);
        let seqs = || {
            let mut seqs = Vec::new();
            let mut next = chain.head(&guard);
            while let Some(version) = next {
                seqs.push(version.seq.0);
                next = version.older(&guard);
            }
            seqs
        };
        assert_eq!(seqs(), [7, 5]);
        chain.push(Seq(8), Change::Add(1), &guard);
        assert_eq!(
            chain.trim(Seq(8), &guard),
            change_bytes(&put("x")),
            "an addition stands on 7"
        );
        assert_eq!(seqs(), [8, 7]);
    }

    #[test]
    fn the_later_change_of_one_batch_wins() {
        let guard = pin();
        let chain = Chain::new();
        chain.push(Seq(1), put("a"), &guard);
        chain.push(Seq(2), put("b"), &guard);
        chain.push(Seq(2), Change::Delete, &guard);
        assert_eq!((seen(&chain, 1), seen(&chain, 2)), ("a".to_owned(), "gone".to_owned()));
        chain.push(Seq(2), Change::Add(4), &guard);
        let Ground::Value(Value::Inline(bytes)) = chain.see(Seq(2), &guard).ground else {
            panic!("an addition to nothing is a value")
        };
        assert_eq!(number(bytes), 4);
    }
}
