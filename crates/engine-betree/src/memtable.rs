//! Messages in memory: what came last to a table, sorted.
//!
//! One thread writes at a time (`apply` holds a lock of its own), any number reads. A memtable that is frozen
//! is not written to any more; it is read until its messages are in the tree.
//!
//! Invariant: versions of one key are folded as far as the horizon of their writer allows, so that a key that
//! is written again and again does not fill the memory.

use crate::fold::{Level, Seeing, Seen, fold};
use crate::ranges::Ranges;
use crate::run::{Key, OpRef, Run, RunBuilder, Tombstone, behind};
use engine::Seq;
use parking_lot::RwLock;
use pins::Horizon;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What a version takes beside its bytes: its place in the tree, and what the heap adds.
pub(crate) const OVERHEAD_BYTES: usize = 72;
/// With more tombstones a memtable is flushed: a reader that scans takes all of them with it.
pub(crate) const TOMBSTONES_MAX: usize = 128;

/// How much is copied, about: whole keys, and at least one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) keys: usize,
    /// Of keys and values: many large ones are copied for the few that are taken.
    pub(crate) bytes: usize,
}

impl Wanted {
    fn is_reached_by(self, keys: usize, bytes: usize) -> bool {
        keys >= self.keys || bytes >= self.bytes
    }
}

/// A version of a key: its bytes are the key's and behind them the value's.
struct Slot {
    bytes: Box<[u8]>,
    key_bytes: u32,
    kind: Kind,
    seq: Seq,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    Add,
}

impl Slot {
    fn new(key: &[u8], seq: Seq, op: OpRef<'_>) -> Self {
        let amount;
        let (kind, value): (Kind, &[u8]) = match op {
            OpRef::Put(value) => (Kind::Put, value),
            OpRef::Delete => (Kind::Delete, &[]),
            OpRef::Add(number) => {
                amount = number.to_le_bytes();
                (Kind::Add, &amount)
            }
        };
        let mut bytes = Vec::with_capacity(key.len() + value.len());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self {
            bytes: bytes.into(),
            key_bytes: key.len() as u32,
            kind,
            seq,
        }
    }

    fn op(&self) -> OpRef<'_> {
        let value = &self.bytes[self.key_bytes as usize..];
        match self.kind {
            Kind::Put => OpRef::Put(value),
            Kind::Delete => OpRef::Delete,
            Kind::Add => OpRef::Add(crate::fold::number_of(value)),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

/// What versions are sorted by: the key, and for one key from the newest to the oldest.
trait Place {
    fn key(&self) -> &[u8];
    fn seq(&self) -> Seq;
}

impl Place for Slot {
    #[inline]
    fn key(&self) -> &[u8] {
        &self.bytes[..self.key_bytes as usize]
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.seq
    }
}

struct At<'k>(&'k [u8], Seq);

impl Place for At<'_> {
    #[inline]
    fn key(&self) -> &[u8] {
        self.0
    }

    #[inline]
    fn seq(&self) -> Seq {
        self.1
    }
}

fn compare(a: &(impl Place + ?Sized), b: &(impl Place + ?Sized)) -> Ordering {
    a.key().cmp(b.key()).then_with(|| b.seq().cmp(&a.seq()))
}

impl Ord for Slot {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self, other)
    }
}
impl PartialOrd for Slot {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Slot {}

impl Ord for dyn Place + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(self, other)
    }
}
impl PartialOrd for dyn Place + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for dyn Place + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for dyn Place + '_ {}

impl<'a> Borrow<dyn Place + 'a> for Slot {
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

#[derive(Default)]
struct Content {
    slots: BTreeSet<Slot>,
    tombstones: Ranges,
    newest: Seq,
}

impl Content {
    /// Versions from the first at or above a place on.
    fn from<'s>(&'s self, key: &[u8], seq: Seq) -> impl Iterator<Item = &'s Slot> + use<'s> {
        let at = At(key, seq);
        self.slots
            .range::<dyn Place, _>((Included(&at as &dyn Place), Unbounded))
    }
}

/// Memory that messages take, over all tables, and in one.
#[derive(Default)]
pub(crate) struct Held(AtomicUsize);

impl Held {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Relaxed) as u64
    }

    pub(crate) fn change(&self, added: usize, removed: usize) {
        if added >= removed {
            self.0.fetch_add(added - removed, Relaxed);
        } else {
            self.0.fetch_sub(removed - added, Relaxed);
        }
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Memtable {
    content: RwLock<Content>,
    held: Held,
    entries: AtomicU64,
}

impl Memtable {
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.held.bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.load(Relaxed) == 0
    }

    pub(crate) fn tombstones(&self) -> usize {
        self.content.read().tombstones.len()
    }

    #[cfg(test)]
    pub(crate) fn newest(&self) -> Seq {
        self.content.read().newest
    }

    /// Takes a message. Answers the memory that was added and given back.
    pub(crate) fn write(&self, key: &[u8], seq: Seq, op: OpRef<'_>, horizon: &Horizon) -> (usize, usize) {
        let mut content = self.content.write();
        content.newest = content.newest.max(seq);
        let has_older = {
            let mut from = content.from(key, Seq(u64::MAX));
            from.next().is_some_and(|slot| slot.key() == key)
        };
        let (added, removed) = if has_older || !content.tombstones.is_empty() {
            Self::write_folded(&mut content, key, seq, op, horizon)
        } else {
            let slot = Slot::new(key, seq, op);
            let bytes = slot.memory_bytes();
            content.slots.insert(slot);
            (bytes, 0)
        };
        self.entries
            .store((content.slots.len() + content.tombstones.len()) as u64, Relaxed);
        drop(content);
        self.held.change(added, removed);
        (added, removed)
    }

    /// Puts all versions of the key anew, as far as they are needed.
    fn write_folded(content: &mut Content, key: &[u8], seq: Seq, op: OpRef<'_>, horizon: &Horizon) -> (usize, usize) {
        let mut kept = Vec::new();
        let covering = content.tombstones.covering(key, Seq(u64::MAX));
        let older: Vec<&Slot> = content
            .from(key, Seq(u64::MAX))
            .take_while(|slot| slot.key() == key)
            .collect();
        // Within a batch the last word counts, and a number is added to the word before.
        let word;
        let (op, older) = match (op, older.split_first()) {
            (op, Some((newest, older))) if newest.seq == seq => {
                let op = match (op, newest.op()) {
                    (OpRef::Add(amount), OpRef::Add(before)) => OpRef::Add(amount.wrapping_add(before)),
                    (OpRef::Add(amount), before) => {
                        let before = match before {
                            OpRef::Put(value) => crate::fold::number_of(value),
                            OpRef::Delete | OpRef::Add(_) => 0,
                        };
                        word = before.wrapping_add(amount).to_le_bytes();
                        OpRef::Put(&word)
                    }
                    (op, _) => op,
                };
                (op, older)
            }
            (op, _) => (op, &older[..]),
        };
        let versions = std::iter::once((seq, op)).chain(older.iter().map(|slot| (slot.seq, slot.op())));
        fold(versions, &covering, horizon, Level::Above, &mut kept);
        let slots: Vec<Slot> = kept
            .iter()
            .map(|version| version.op.with_ref(|op| Slot::new(key, version.seq, op)))
            .collect();
        let mut removed = 0;
        loop {
            let first = content.from(key, Seq(u64::MAX)).next().filter(|slot| slot.key() == key);
            let Some(seq) = first.map(|slot| slot.seq) else { break };
            let slot = content.slots.take::<dyn Place>(&At(key, seq) as &dyn Place);
            removed += slot.map_or(0, |slot| slot.memory_bytes());
        }
        let mut added = 0;
        for slot in slots {
            added += slot.memory_bytes();
            content.slots.insert(slot);
        }
        (added, removed)
    }

    /// Takes a range away.
    pub(crate) fn delete_range(&self, tombstone: Tombstone, horizon: &Horizon) -> (usize, usize) {
        let mut content = self.content.write();
        content.newest = content.newest.max(tombstone.seq);
        let (added, removed) = content.tombstones.add(tombstone, horizon);
        self.entries
            .store((content.slots.len() + content.tombstones.len()) as u64, Relaxed);
        drop(content);
        self.held.change(added, removed);
        (added, removed)
    }

    /// Looks at the versions of a key that a reader at `seq` sees; `take` gets what the reader finds, if that
    /// is decided here.
    pub(crate) fn look<T>(
        &self,
        key: &[u8],
        seq: Seq,
        seeing: &mut Seeing,
        take: impl FnOnce(Seen<'_>) -> T,
    ) -> Option<T> {
        let content = self.content.read();
        let covered = content.tombstones.covering(key, seq).first().copied();
        for slot in content.from(key, seq).take_while(|slot| slot.key() == key) {
            if covered.is_some_and(|covered| covered > slot.seq) {
                break;
            }
            if let Some(seen) = seeing.take(slot.op()) {
                return Some(take(seen));
            }
        }
        covered.map(|_| take(seeing.end()))
    }

    /// A copy of `wanted` of a range, from its start on, and the end of what was copied.
    pub(crate) fn copy_forward(&self, low: &[u8], high: Option<&[u8]>, wanted: Wanted) -> (Run, Option<Key>) {
        let content = self.content.read();
        let mut builder = RunBuilder::new(content.newest);
        let mut keys = 0;
        let mut cut: Option<Key> = None;
        let mut last: &[u8] = &[];
        for slot in content.from(low, Seq(u64::MAX)) {
            if high.is_some_and(|high| slot.key() >= high) {
                break;
            }
            if keys == 0 || slot.key() != last {
                if keys > 0 && wanted.is_reached_by(keys, builder.bytes()) {
                    cut = Some(behind(last));
                    break;
                }
                keys += 1;
                last = slot.key();
            }
            builder.push(slot.key(), slot.seq, slot.op());
        }
        let end = cut.as_deref().or(high);
        let over = content.tombstones.overlapping(low, end);
        over.filter_map(|tombstone| tombstone.clipped(low, end))
            .for_each(|tombstone| builder.push_tombstone(tombstone));
        (builder.finish(), cut)
    }

    /// The same from the end backwards; answers the first key that was copied, if it did not reach the start.
    pub(crate) fn copy_backward(&self, low: &[u8], high: Option<&[u8]>, wanted: Wanted) -> (Run, Option<Key>) {
        let content = self.content.read();
        let start = At(low, Seq(u64::MAX));
        let end = high.map(|high| At(high, Seq(u64::MAX)));
        let bounds = (
            Included(&start as &dyn Place),
            end.as_ref().map_or(Unbounded, |end| Excluded(end as &dyn Place)),
        );
        if high.is_some_and(|high| high <= low) {
            return (RunBuilder::new(content.newest).finish(), None);
        }
        let mut slots: Vec<&Slot> = Vec::new();
        let (mut keys, mut bytes) = (0, 0);
        let mut cut: Option<Key> = None;
        for slot in content.slots.range::<dyn Place, _>(bounds).rev() {
            if slots.last().is_none_or(|last| last.key() != slot.key()) {
                if keys > 0 && wanted.is_reached_by(keys, bytes) {
                    cut = slots.last().map(|last| last.key().into());
                    break;
                }
                keys += 1;
            }
            bytes += slot.bytes.len();
            slots.push(slot);
        }
        let mut builder = RunBuilder::new(content.newest);
        for slot in slots.iter().rev() {
            builder.push(slot.key(), slot.seq, slot.op());
        }
        let start = cut.as_deref().unwrap_or(low);
        let over = content.tombstones.overlapping(start, high);
        over.filter_map(|tombstone| tombstone.clipped(start, high))
            .for_each(|tombstone| builder.push_tombstone(tombstone));
        (builder.finish(), cut)
    }

    /// The messages up to a position from `low` on, in about so many bytes, and where the next piece begins; versions
    /// of one key, and the parts of ranges over the keys, are in one piece.
    pub(crate) fn piece(&self, low: &[u8], upto: Seq, bytes: usize) -> (Run, Option<Key>) {
        let content = self.content.read();
        let mut builder = RunBuilder::new(upto);
        let mut cut: Option<Key> = None;
        for slot in content.from(low, Seq(u64::MAX)).filter(|slot| slot.seq <= upto) {
            if !builder.is_empty() && builder.bytes() >= bytes && builder.last_key() != slot.key() {
                cut = Some(slot.key().into());
                break;
            }
            builder.push(slot.key(), slot.seq, slot.op());
        }
        let over = content.tombstones.overlapping(low, cut.as_deref());
        let over = over.filter(|tombstone| tombstone.seq <= upto);
        for tombstone in over.filter_map(|tombstone| tombstone.clipped(low, cut.as_deref())) {
            builder.push_tombstone(tombstone);
        }
        (builder.finish(), cut)
    }

    /// What is newer than a position, as a memtable, if there is something.
    pub(crate) fn rest(&self, upto: Seq) -> Option<Memtable> {
        let content = self.content.read();
        let mut rest = Content {
            newest: content.newest,
            ..Content::default()
        };
        let mut held = 0;
        for slot in content.slots.iter().filter(|slot| slot.seq > upto) {
            let slot = Slot::new(slot.key(), slot.seq, slot.op());
            held += slot.memory_bytes();
            rest.slots.insert(slot);
        }
        for tombstone in content.tombstones.iter().filter(|tombstone| tombstone.seq > upto) {
            held += rest.tombstones.insert(tombstone.clone());
        }
        let entries = (rest.slots.len() + rest.tombstones.len()) as u64;
        (entries > 0).then(|| Memtable {
            content: RwLock::new(rest),
            held: Held(AtomicUsize::new(held)),
            entries: AtomicU64::new(entries),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(run: &Run) -> Vec<(Vec<u8>, u64)> {
        (0..run.len())
            .map(|at| (run.entry(at).key.to_vec(), run.entry(at).seq.0))
            .collect()
    }

    fn keys(keys: usize) -> Wanted {
        Wanted {
            keys,
            bytes: usize::MAX,
        }
    }

    /// A reader that takes a few large values has not all of them copied each time.
    #[test]
    fn no_more_large_values_are_copied_than_are_wanted() {
        let memtable = Memtable::default();
        let now = Horizon::new(Seq(9), vec![]);
        let value = vec![1; 10_000];
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            memtable.write(key, Seq(1), OpRef::Put(&value), &now);
        }
        for (bytes, copied) in [(0, 1), (1, 1), (15_000, 2), (25_000, 3), (100_000, 5)] {
            let wanted = Wanted { keys: 100, bytes };
            let (forward, forward_cut) = memtable.copy_forward(b"", None, wanted);
            let (backward, backward_cut) = memtable.copy_backward(b"", None, wanted);
            assert_eq!((forward.len(), backward.len()), (copied, copied), "{bytes}");
            let is_cut = copied < 5;
            assert_eq!((forward_cut.is_some(), backward_cut.is_some()), (is_cut, is_cut));
        }
    }

    #[test]
    fn versions_are_folded_and_copied_both_ways() {
        let memtable = Memtable::default();
        let held = Horizon::new(Seq(9), vec![Seq(2)]);
        for (key, seq) in [(b"a", 1), (b"b", 2), (b"b", 3), (b"b", 4), (b"c", 5)] {
            memtable.write(key, Seq(seq), OpRef::Put(b"v"), &held);
        }
        let (run, cut) = memtable.copy_forward(b"", None, keys(10));
        assert_eq!(cut, None);
        let all = [
            (b"a".to_vec(), 1),
            (b"b".to_vec(), 4),
            (b"b".to_vec(), 2),
            (b"c".to_vec(), 5),
        ];
        assert_eq!(dump(&run), all, "3 is not needed");
        let (run, cut) = memtable.copy_forward(b"", None, keys(2));
        assert_eq!((dump(&run), cut.as_deref()), (all[..3].to_vec(), Some(&b"b\0"[..])));
        let (run, cut) = memtable.copy_backward(b"a", Some(b"c"), keys(1));
        assert_eq!((dump(&run), cut.as_deref()), (all[1..3].to_vec(), Some(&b"b"[..])));
        let (run, cut) = memtable.piece(b"", Seq(4), usize::MAX);
        assert_eq!((dump(&run), cut), (all[..3].to_vec(), None));
        assert_eq!(memtable.rest(Seq(4)).expect("one is left").newest(), Seq(5));
        assert!(memtable.rest(Seq(5)).is_none());
        let before = memtable.memory_bytes();
        memtable.write(b"c", Seq(6), OpRef::Put(b"v"), &Horizon::new(Seq(9), vec![]));
        assert_eq!(memtable.memory_bytes(), before);
    }

    /// The end of a piece lies between two keys, and a range is in every piece that it reaches into: else older
    /// messages would lie above it.
    #[test]
    fn pieces_have_all_of_their_keys() {
        let memtable = Memtable::default();
        let held = Horizon::new(Seq(9), vec![Seq(1), Seq(2)]);
        for (key, seq) in [(b"a", 1), (b"b", 1), (b"b", 2), (b"b", 3), (b"c", 1), (b"d", 5)] {
            memtable.write(key, Seq(seq), OpRef::Put(b"value"), &held);
        }
        let range = Tombstone {
            start: b"aa"[..].into(),
            end: Some(b"cc"[..].into()),
            seq: Seq(4),
        };
        memtable.delete_range(range, &held);
        let (mut low, mut pieces) = (Key::from(&[][..]), Vec::new());
        loop {
            let (run, cut) = memtable.piece(&low, Seq(4), 1);
            let ranges = run
                .tombstones()
                .iter()
                .map(|t| (t.start.to_vec(), t.end.clone().map(|end| end.to_vec())));
            pieces.push((dump(&run), ranges.collect::<Vec<_>>()));
            match cut {
                Some(next) => low = next,
                None => break,
            }
        }
        let range = |start: &[u8], end: &[u8]| vec![(start.to_vec(), Some(end.to_vec()))];
        let versions = |key: &[u8], seqs: &[u64]| seqs.iter().map(|seq| (key.to_vec(), *seq)).collect::<Vec<_>>();
        assert_eq!(
            pieces,
            [
                (versions(b"a", &[1]), range(b"aa", b"b")),
                (versions(b"b", &[3, 2, 1]), range(b"b", b"c")),
                (versions(b"c", &[1]), range(b"c", b"cc")),
            ]
        );
    }

    #[test]
    fn a_batch_has_one_word_on_a_key() {
        let memtable = Memtable::default();
        let horizon = Horizon::default();
        let write = |seq, op| memtable.write(b"k", Seq(seq), op, &horizon);
        write(1, OpRef::Put(&[7, 0, 0, 0, 0, 0, 0, 0]));
        write(2, OpRef::Add(1));
        write(2, OpRef::Add(1));
        write(3, OpRef::Delete);
        write(3, OpRef::Add(4));
        let look = |seq| {
            let mut seeing = Seeing::default();
            memtable.look(b"k", Seq(seq), &mut seeing, |seen| match seen {
                Seen::Value(value) => crate::fold::number_of(value),
                Seen::Number(number) => number,
                Seen::Nothing => -1,
            })
        };
        assert_eq!([look(0), look(1), look(2), look(3)], [None, Some(7), Some(9), Some(4)]);
    }
}
