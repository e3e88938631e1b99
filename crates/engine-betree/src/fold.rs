//! What versions of one key come to: for a reader at a position, and for whoever keeps only what is needed.
//!
//! Versions come newest first. A range tombstone counts as a deletion at its position, below an entry of the
//! same one: within a batch, what came before the range was deleted already when the batch was applied.

use crate::run::{OpRef, Tombstone};
use engine::Seq;
use pins::Horizon;

/// A version that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept<'a> {
    pub(crate) seq: Seq,
    pub(crate) op: KeptOp<'a>,
    /// A tombstone's, which goes on by itself.
    is_of_range: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptOp<'a> {
    Put(&'a [u8]),
    /// A value of eight bytes that came about here.
    Number(i64),
    Delete,
    Add(i64),
}

impl<'a> From<OpRef<'a>> for KeptOp<'a> {
    fn from(op: OpRef<'a>) -> Self {
        match op {
            OpRef::Put(value) => Self::Put(value),
            OpRef::Delete => Self::Delete,
            OpRef::Add(amount) => Self::Add(amount),
        }
    }
}

impl KeptOp<'_> {
    /// As an entry; `number` lends the bytes.
    pub(crate) fn with_ref<T>(&self, take: impl FnOnce(OpRef<'_>) -> T) -> T {
        match *self {
            Self::Put(value) => take(OpRef::Put(value)),
            Self::Number(number) => take(OpRef::Put(&number.to_le_bytes())),
            Self::Delete => take(OpRef::Delete),
            Self::Add(amount) => take(OpRef::Add(amount)),
        }
    }
}

/// A value as a number to add to: 0 unless it is eight bytes long.
pub(crate) fn number_of(value: &[u8]) -> i64 {
    value.try_into().map_or(0, i64::from_le_bytes)
}

/// Where versions are folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Something may lie below.
    Above,
    /// Nothing lies below.
    Leaf,
}

/// Keeps of the versions of one key (newest first) what somebody can see by `horizon`, and what that needs. `covering`
/// are the positions of tombstones over the key, newest first. The answer is in `kept`, newest first.
pub(crate) fn fold<'a>(
    versions: impl Iterator<Item = (Seq, OpRef<'a>)>,
    covering: &[Seq],
    horizon: &Horizon,
    level: Level,
    kept: &mut Vec<Kept<'a>>,
) {
    kept.clear();
    let mut covering = covering.iter().copied().peekable();
    let mut above: Option<Seq> = None;
    let mut add = |seq: Seq, op: KeptOp<'a>, is_of_range: bool, kept: &mut Vec<Kept<'a>>| {
        let is_needed = above.is_none_or(|above| above != seq && horizon.needs(seq, above));
        above = Some(seq);
        if is_needed {
            kept.push(Kept { seq, op, is_of_range });
        } else if let Some(Kept { op: last, .. }) = kept.last_mut()
            && let KeptOp::Add(sum) = *last
        {
            *last = match op {
                KeptOp::Put(value) => KeptOp::Number(number_of(value).wrapping_add(sum)),
                KeptOp::Number(number) => KeptOp::Number(number.wrapping_add(sum)),
                KeptOp::Delete => KeptOp::Number(sum),
                KeptOp::Add(amount) => KeptOp::Add(amount.wrapping_add(sum)),
            };
        }
    };
    for (seq, op) in versions {
        while let Some(tombstone) = covering.next_if(|tombstone| *tombstone > seq) {
            add(tombstone, KeptOp::Delete, true, kept);
        }
        add(seq, op.into(), false, kept);
    }
    for tombstone in covering {
        add(tombstone, KeptOp::Delete, true, kept);
    }
    match level {
        Level::Above => kept.retain(|version| !version.is_of_range),
        Level::Leaf => finish_leaf(horizon.oldest(), kept),
    }
}

/// Nothing lies below: sums are values, a deletion at the bottom is nothing, and the positions of what
/// everybody sees do not matter any more.
fn finish_leaf(oldest: Seq, kept: &mut Vec<Kept<'_>>) {
    // A sum above a version that is kept for others is one above a base.
    for index in (0..kept.len()).rev() {
        if let KeptOp::Add(sum) = kept[index].op {
            let base = kept.get(index + 1).map_or(0, |below| match below.op {
                KeptOp::Put(value) => number_of(value),
                KeptOp::Number(number) => number,
                KeptOp::Delete | KeptOp::Add(_) => 0,
            });
            kept[index].op = KeptOp::Number(base.wrapping_add(sum));
        }
    }
    while kept.last().is_some_and(|version| version.op == KeptOp::Delete) {
        kept.pop();
    }
    for version in kept {
        if version.seq <= oldest {
            version.seq = Seq::ZERO;
        }
    }
}

/// What a reader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen<'a> {
    Nothing,
    Value(&'a [u8]),
    Number(i64),
}

/// What a reader has learnt so far of one key, whose versions come newest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seeing {
    sum: Option<i64>,
}

impl Seeing {
    /// Takes the next older version; answers when that is the last that matters.
    pub(crate) fn take<'a>(&mut self, op: OpRef<'a>) -> Option<Seen<'a>> {
        match (op, self.sum) {
            (OpRef::Put(value), None) => Some(Seen::Value(value)),
            (OpRef::Put(value), Some(sum)) => Some(Seen::Number(number_of(value).wrapping_add(sum))),
            (OpRef::Delete, _) => Some(self.end()),
            (OpRef::Add(amount), sum) => {
                self.sum = Some(sum.unwrap_or(0).wrapping_add(amount));
                None
            }
        }
    }

    /// There is nothing older.
    pub(crate) fn end(&self) -> Seen<'static> {
        self.sum.map_or(Seen::Nothing, Seen::Number)
    }
}

/// Tombstones, asked for rising keys.
pub(crate) struct Sweep<'a> {
    /// By their start.
    sorted: Vec<&'a Tombstone>,
    next: usize,
    active: Vec<&'a Tombstone>,
    /// Positions of those over the last key, newest first.
    covering: Vec<Seq>,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(tombstones: impl Iterator<Item = &'a Tombstone>) -> Self {
        let mut sorted: Vec<&Tombstone> = tombstones.collect();
        sorted.sort_by(|a, b| a.start.cmp(&b.start));
        Self {
            sorted,
            next: 0,
            active: Vec::new(),
            covering: Vec::new(),
        }
    }

    /// Positions of the tombstones over `key`, newest first. Keys must not fall from call to call.
    pub(crate) fn covering(&mut self, key: &[u8]) -> &[Seq] {
        if self.sorted.is_empty() {
            return &[];
        }
        let mut changed = false;
        while self.next < self.sorted.len() && *self.sorted[self.next].start <= *key {
            self.active.push(self.sorted[self.next]);
            self.next += 1;
            changed = true;
        }
        let before = self.active.len();
        self.active
            .retain(|tombstone| tombstone.end.as_ref().is_none_or(|end| *key < **end));
        if changed || before != self.active.len() {
            self.covering.clear();
            self.covering.extend(self.active.iter().map(|tombstone| tombstone.seq));
            self.covering.sort_by(|a, b| b.cmp(a));
        }
        &self.covering
    }
}

/// Tombstones without those that a newer one covers and nobody needs; the newest first.
pub(crate) fn coalesce(tombstones: &mut Vec<Tombstone>, horizon: &Horizon) {
    if tombstones.len() < 2 {
        return;
    }
    // One that covers another stands before it, so that each is compared with those alone that reach its start. What
    // covers one that went covers what that one would have.
    let end_falls = |a: &Tombstone, b: &Tombstone| match (&a.end, &b.end) {
        (Some(a), Some(b)) => b.cmp(a),
        (a, b) => a.is_some().cmp(&b.is_some()),
    };
    tombstones.sort_by(|a, b| {
        let start = a.start.cmp(&b.start);
        start.then_with(|| end_falls(a, b)).then_with(|| b.seq.cmp(&a.seq))
    });
    let mut kept: Vec<Tombstone> = Vec::with_capacity(tombstones.len());
    let mut reaching: Vec<usize> = Vec::new();
    for tombstone in tombstones.drain(..) {
        reaching.retain(|at| kept[*at].end.as_ref().is_none_or(|end| tombstone.start < *end));
        let is_covered = reaching.iter().any(|at| {
            let other = &kept[*at];
            other.seq >= tombstone.seq
                && other.covers_all(&tombstone.start, tombstone.end.as_deref())
                && (other.seq == tombstone.seq || !horizon.needs(tombstone.seq, other.seq))
        });
        if !is_covered {
            reaching.push(kept.len());
            kept.push(tombstone);
        }
    }
    kept.sort_by_key(|tombstone| std::cmp::Reverse(tombstone.seq));
    *tombstones = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(
        versions: &[(u64, OpRef<'static>)],
        covering: &[u64],
        horizon: &Horizon,
        level: Level,
    ) -> Vec<(u64, KeptOp<'static>)> {
        let covering: Vec<Seq> = covering.iter().map(|seq| Seq(*seq)).collect();
        let mut kept = Vec::new();
        fold(
            versions.iter().map(|(seq, op)| (Seq(*seq), *op)),
            &covering,
            horizon,
            level,
            &mut kept,
        );
        kept.iter().map(|version| (version.seq.0, version.op)).collect()
    }

    #[test]
    fn only_what_can_be_seen_is_kept_and_sums_find_their_base() {
        let eight = &[5, 0, 0, 0, 0, 0, 0, 0][..];
        let quiet = Horizon::new(Seq(9), vec![]);
        let chain = [(7, OpRef::Add(2)), (5, OpRef::Add(1)), (3, OpRef::Put(eight))];
        assert_eq!(folded(&chain, &[], &quiet, Level::Above), [(7, KeptOp::Number(8))]);
        assert_eq!(folded(&chain[..2], &[], &quiet, Level::Above), [(7, KeptOp::Add(3))]);
        assert_eq!(folded(&chain[..2], &[], &quiet, Level::Leaf), [(0, KeptOp::Number(3))]);
        // A snapshot at 4 needs the base.
        let held = Horizon::new(Seq(9), vec![Seq(4)]);
        assert_eq!(
            folded(&chain, &[], &held, Level::Above),
            [(7, KeptOp::Add(3)), (3, KeptOp::Put(eight))]
        );
        assert_eq!(
            folded(&chain, &[], &held, Level::Leaf),
            [(7, KeptOp::Number(8)), (0, KeptOp::Put(eight))]
        );
        // A tombstone at 6 lies between.
        assert_eq!(folded(&chain, &[6], &quiet, Level::Above), [(7, KeptOp::Number(2))]);
        assert_eq!(folded(&chain[1..], &[6], &quiet, Level::Above), []);
        assert_eq!(
            folded(&chain[2..], &[6], &held, Level::Leaf),
            [(6, KeptOp::Delete), (0, KeptOp::Put(eight))]
        );
        // Nothing of what is not published goes.
        let early = Horizon::new(Seq(4), vec![]);
        assert_eq!(folded(&chain, &[], &early, Level::Above).len(), 3);
        // Entries stand above a tombstone of their own batch.
        assert_eq!(
            folded(&[(6, OpRef::Add(2))], &[6], &early, Level::Above),
            [(6, KeptOp::Number(2))]
        );
    }

    #[test]
    fn a_sweep_tells_what_lies_over_rising_keys() {
        let tombstone = |start: &[u8], end: Option<&[u8]>, seq| Tombstone {
            start: start.into(),
            end: end.map(Into::into),
            seq: Seq(seq),
        };
        let all = [
            tombstone(b"b", Some(b"d"), 3),
            tombstone(b"c", None, 7),
            tombstone(b"", Some(b"b"), 5),
        ];
        let mut sweep = Sweep::new(all.iter());
        let mut seen = |key: &[u8]| sweep.covering(key).iter().map(|seq| seq.0).collect::<Vec<_>>();
        assert_eq!(
            [seen(b"a"), seen(b"b"), seen(b"c"), seen(b"d")],
            [vec![5], vec![3], vec![7, 3], vec![7]]
        );
    }

    /// Those that one newer and wider covers go, unless a snapshot stands between; whatever order they come in.
    #[test]
    fn covered_tombstones_go() {
        let tombstone = |start: &[u8], end: Option<&[u8]>, seq| Tombstone {
            start: start.into(),
            end: end.map(Into::into),
            seq: Seq(seq),
        };
        let all = [
            tombstone(b"a", Some(b"c"), 2),
            tombstone(b"a", Some(b"c"), 2),
            tombstone(b"b", Some(b"c"), 5),
            tombstone(b"a", Some(b"d"), 4),
            tombstone(b"a", None, 3),
            tombstone(b"x", None, 3),
            tombstone(b"x", None, 9),
        ];
        for turn in 0..all.len() {
            let left = |horizon: &Horizon| {
                let mut turned = all.to_vec();
                turned.rotate_left(turn);
                coalesce(&mut turned, horizon);
                let left: Vec<_> = turned.iter().map(|t| (t.start.to_vec(), t.seq.0)).collect();
                assert!(turned.is_sorted_by_key(|t| std::cmp::Reverse(t.seq)));
                left
            };
            let (a, b, x) = (b"a".to_vec(), b"b".to_vec(), b"x".to_vec());
            let quiet = [(x.clone(), 9), (b.clone(), 5), (a.clone(), 4), (a.clone(), 3)];
            assert_eq!(left(&Horizon::new(Seq(9), vec![])), quiet);
            let held = [(x, 9), (b, 5), (a.clone(), 4), (a.clone(), 3), (a, 2)];
            assert_eq!(left(&Horizon::new(Seq(9), vec![Seq(2)])), held);
        }
    }
}
