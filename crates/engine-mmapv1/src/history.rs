//! What open snapshots see of rows that were overwritten or removed since.
//!
//! For a key: values before a change, each with the position of the change. A snapshot sees the first one changed
//! behind it, or else the row as it is now. Only what an open snapshot needs is taken in.
//!
//! Invariant: of each key, positions rise, and no list is empty.

use bytes::Bytes;
use engine::{Direction, Seq};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Memory of a value beside its bytes, and of a key.
const VERSION_BYTES: usize = 64;
const KEY_BYTES: usize = 96;

#[derive(Default)]
pub(crate) struct History {
    keys: BTreeMap<Box<[u8]>, Vec<Before>>,
    bytes: usize,
    /// No change that is kept lies behind this position.
    newest: Seq,
}

/// A value up to a change; `None` where there was no row.
struct Before {
    until: Seq,
    value: Option<Bytes>,
}

impl Before {
    fn bytes(&self) -> usize {
        VERSION_BYTES + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// What [`History::note`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// No open snapshot sees the value, or it is there already.
    Nothing,
    /// The key had versions before.
    More,
    /// It had none: it has to be cleared one day.
    First,
}

impl History {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a snapshot may see something else than the rows as they are.
    #[inline]
    pub(crate) fn concerns(&self, seq: Seq) -> bool {
        seq < self.newest
    }

    /// Takes in the value before a change at `seq`, if a snapshot of `open` sees it: all of them stand before `seq`,
    /// and rise.
    pub(crate) fn note(
        &mut self,
        key: &[u8],
        seq: Seq,
        open: &[Seq],
        value: impl FnOnce() -> engine::Result<Option<Bytes>>,
    ) -> engine::Result<Noted> {
        let Some(&last) = open.last() else {
            return Ok(Noted::Nothing);
        };
        let versions = self.keys.get_mut(key);
        let from = versions
            .as_ref()
            .and_then(|versions| versions.last())
            .map_or(Seq::ZERO, |before| before.until);
        if last < from || from == seq {
            return Ok(Noted::Nothing);
        }
        let before = Before {
            until: seq,
            value: value()?,
        };
        self.newest = seq;
        self.bytes += before.bytes();
        match versions {
            Some(versions) => {
                versions.push(before);
                self.bytes -= prune(versions, open);
                Ok(Noted::More)
            }
            None => {
                self.bytes += KEY_BYTES + key.len();
                self.keys.insert(key.into(), vec![before]);
                Ok(Noted::First)
            }
        }
    }

    /// Forgets what no snapshot of `open` sees of a key. True when something is left.
    pub(crate) fn clear(&mut self, key: &[u8], open: &[Seq]) -> bool {
        let Some(versions) = self.keys.get_mut(key) else {
            return false;
        };
        self.bytes -= prune(versions, open);
        if !versions.is_empty() {
            return true;
        }
        self.keys.remove(key);
        self.bytes -= KEY_BYTES + key.len();
        if self.keys.is_empty() {
            self.newest = Seq::ZERO;
        }
        false
    }

    /// What a snapshot sees of a key; `None` when that is the row as it is.
    pub(crate) fn at(&self, key: &[u8], seq: Seq) -> Option<Option<&Bytes>> {
        seen(self.keys.get(key)?, seq)
    }

    /// The first key from a bound on of which a snapshot sees something else than the row as it is, and what.
    pub(crate) fn next(&self, from: Bound<&[u8]>, direction: Direction, seq: Seq) -> Option<(&[u8], Option<&Bytes>)> {
        let mut found: Box<dyn Iterator<Item = _>> = match direction {
            Direction::Forward => Box::new(self.keys.range::<[u8], _>((from, Bound::Unbounded))),
            Direction::Reverse => Box::new(self.keys.range::<[u8], _>((Bound::Unbounded, from)).rev()),
        };
        found.find_map(|(key, versions)| Some((&key[..], seen(versions, seq)?)))
    }
}

fn seen(versions: &[Before], seq: Seq) -> Option<Option<&Bytes>> {
    let first = versions.partition_point(|before| before.until <= seq);
    versions.get(first).map(|before| before.value.as_ref())
}

/// Keeps the versions that a snapshot of `open` stands in; the bytes that went.
fn prune(versions: &mut Vec<Before>, open: &[Seq]) -> usize {
    let (mut from, mut gone) = (Seq::ZERO, 0);
    versions.retain(|before| {
        let first = open.partition_point(|&seq| seq < from);
        let needed = open.get(first).is_some_and(|&seq| seq < before.until);
        from = before.until;
        gone += if needed { 0 } else { before.bytes() };
        needed
    });
    gone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(history: &mut History, seq: u64, open: &[u64], value: &'static str) -> Noted {
        let open: Vec<Seq> = open.iter().map(|&seq| Seq(seq)).collect();
        history
            .note(b"k", Seq(seq), &open, || Ok(Some(Bytes::from_static(value.as_bytes()))))
            .expect("nothing is read")
    }

    #[test]
    fn a_snapshot_sees_the_value_before_the_first_change_behind_it() {
        let mut history = History::default();
        assert_eq!(note(&mut history, 10, &[], "a"), Noted::Nothing);
        assert_eq!(note(&mut history, 10, &[5], "a"), Noted::First);
        assert_eq!(note(&mut history, 10, &[5], "twice in a batch"), Noted::Nothing);
        assert_eq!(note(&mut history, 12, &[5], "nobody saw it"), Noted::Nothing);
        assert_eq!(note(&mut history, 20, &[5, 15], "b"), Noted::More);
        let at = |history: &History, seq| history.at(b"k", Seq(seq)).map(|value| value.cloned());
        assert_eq!(at(&history, 5), Some(Some(Bytes::from_static(b"a"))));
        assert_eq!(at(&history, 15), Some(Some(Bytes::from_static(b"b"))));
        assert_eq!(at(&history, 20), None);
        assert!(history.concerns(Seq(19)) && !history.concerns(Seq(20)));
        assert!(history.clear(b"k", &[Seq(15)]));
        assert_eq!(at(&history, 15), Some(Some(Bytes::from_static(b"b"))));
        assert!(!history.clear(b"k", &[]));
        assert_eq!((history.bytes(), history.concerns(Seq(1))), (0, false));
    }
}
