//! The versions of one key.
//!
//! Invariants (`Chain::check_invariants`): versions fall strictly in `Seq` from newest to oldest; the oldest is never a
//! deletion (a key nobody ever saw needs no grave).

use bytes::Bytes;
use engine::Seq;
use pins::Horizon;

/// A value, or its absence, from `seq` on.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) seq: Seq,
    /// `None` where the key was deleted.
    pub(crate) value: Option<Bytes>,
}

/// Versions of one key, newest first.
#[derive(Debug)]
pub(crate) struct Chain {
    newest: Version,
    /// Older ones, newest first; boxed twice because most chains have none. `None` rather than empty.
    #[allow(clippy::box_collection, reason = "eight bytes in every row instead of 24")]
    older: Option<Box<Vec<Version>>>,
}

impl Chain {
    pub(crate) fn new(seq: Seq, value: Bytes) -> Self {
        Self {
            newest: Version {
                seq,
                value: Some(value),
            },
            older: None,
        }
    }

    /// The value a snapshot at `seq` sees.
    #[inline]
    pub(crate) fn at(&self, seq: Seq) -> Option<&Bytes> {
        if self.newest.seq <= seq {
            return self.newest.value.as_ref();
        }
        let older = self.older.as_ref()?;
        older.iter().find(|version| version.seq <= seq)?.value.as_ref()
    }

    /// The newest value, published or not.
    pub(crate) fn newest(&self) -> Option<&Bytes> {
        self.newest.value.as_ref()
    }

    /// Number of the older versions, and bytes of their values.
    pub(crate) fn history(&self) -> (usize, usize) {
        let older = self.older.as_deref().map_or(&[][..], Vec::as_slice);
        let values = older.iter().filter_map(|version| version.value.as_ref());
        (older.len(), values.map(Bytes::len).sum())
    }

    /// Puts a version on top. One of the same `Seq` is replaced: a batch shows only its last word on a key.
    pub(crate) fn push(&mut self, seq: Seq, value: Option<Bytes>) {
        let replaced = std::mem::replace(&mut self.newest, Version { seq, value });
        if replaced.seq != seq {
            self.older.get_or_insert_default().insert(0, replaced);
        }
    }

    /// Forgets what no snapshot of `horizon` and no later one can see. Returns false when nothing is left at all.
    pub(crate) fn prune(&mut self, horizon: &Horizon) -> bool {
        let Some(older) = &mut self.older else {
            return self.newest.value.is_some();
        };
        let mut covered_from = self.newest.seq;
        older.retain(|version| {
            let needed = horizon.needs(version.seq, covered_from);
            covered_from = version.seq;
            needed
        });
        while older.last().is_some_and(|version| version.value.is_none()) {
            older.pop();
        }
        if older.is_empty() {
            self.older = None;
        }
        self.older.is_some() || self.newest.value.is_some()
    }

    /// Bytes of all values, and the number of versions.
    pub(crate) fn weight(&self) -> (usize, usize) {
        let older = self.older.as_deref().map_or(&[][..], Vec::as_slice);
        let bytes = std::iter::once(&self.newest)
            .chain(older)
            .filter_map(|version| version.value.as_ref())
            .map(Bytes::len)
            .sum();
        (bytes, 1 + older.len())
    }

    /// The invariants of the module's head, or what is wrong.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let older = self.older.as_deref().map_or(&[][..], Vec::as_slice);
        let mut above = self.newest.seq;
        for version in older {
            if version.seq >= above {
                return Err(format!("version {:?} lies below {above:?}", version.seq));
            }
            above = version.seq;
        }
        match older.last().unwrap_or(&self.newest).value {
            Some(_) => Ok(()),
            None => Err(format!("the oldest version, {above:?}, is a deletion")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(versions: &[(u64, Option<&'static str>)]) -> Chain {
        let mut chain = Chain::new(
            Seq(versions[0].0),
            Bytes::from_static(versions[0].1.unwrap_or("").as_bytes()),
        );
        for (seq, value) in &versions[1..] {
            chain.push(Seq(*seq), value.map(|value| Bytes::from_static(value.as_bytes())));
        }
        chain
    }

    fn horizon(open: &[u64], published: u64) -> Horizon {
        Horizon::new(Seq(published), open.iter().map(|&seq| Seq(seq)).collect())
    }

    fn seqs(chain: &Chain) -> Vec<u64> {
        std::iter::once(&chain.newest)
            .chain(chain.older.iter().flat_map(|older| older.iter()))
            .map(|version| version.seq.0)
            .collect()
    }

    #[test]
    fn a_snapshot_sees_the_newest_version_at_or_below_it() {
        let chain = chain(&[(3, Some("a")), (5, None), (9, Some("b"))]);
        let seen = |seq| chain.at(Seq(seq)).map(|value| value.as_ref());
        assert_eq!(
            [seen(2), seen(3), seen(4), seen(5), seen(8), seen(9)],
            [None, Some(&b"a"[..]), Some(b"a"), None, None, Some(b"b")]
        );
    }

    #[test]
    fn pruning_keeps_exactly_what_can_be_seen() {
        let mut pruned = chain(&[
            (3, Some("a")),
            (5, Some("b")),
            (7, Some("c")),
            (9, Some("d")),
            (11, Some("e")),
        ]);
        assert!(pruned.prune(&horizon(&[6], 10)));
        assert_eq!(
            seqs(&pruned),
            [11, 9, 5],
            "6 sees 5; 10 sees 9; 11 is not published yet"
        );
        assert!(pruned.prune(&horizon(&[], 11)));
        assert_eq!(seqs(&pruned), [11]);
        pruned.check_invariants().expect("holds");
    }

    #[test]
    fn a_deleted_key_vanishes_when_nobody_sees_it() {
        let mut deleted = chain(&[(3, Some("a")), (5, None)]);
        assert!(deleted.prune(&horizon(&[4], 5)));
        assert!(!deleted.prune(&horizon(&[], 5)));
    }

    #[test]
    fn the_last_word_of_a_batch_replaces_the_earlier() {
        let chain = chain(&[(3, Some("a")), (5, Some("b")), (5, Some("c"))]);
        assert_eq!(seqs(&chain), [5, 3]);
        assert_eq!(chain.newest().map(Bytes::as_ref), Some(&b"c"[..]));
    }
}
