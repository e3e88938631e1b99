//! Which blocks of large values hang on what: the delta, an image, or only a reader.
//!
//! A leaf's image is written whole, so that its own blocks are easily told: the checkpoint that runs refers to them or
//! does not. A large value outlives images. Here are those whose standing may differ from one checkpoint to the next:
//! - values that were given blocks since the last checkpoint, whether a base holds them already or the delta only;
//! - values that a base has dropped, until no snapshot can read them and their blocks are given back.
//!
//! Every other large value is a row of a base, and every checkpoint refers to it.
//!
//! A checkpoint refers to a value when the state at its position has it. Those that stand here and that it does not
//! refer to are *excluded* from what it records as used, so that a crash makes their blocks free; while the engine runs
//! they stay.
//!
//! A value that moves (`relocate`) is another one at another place from the position on at which it moved.
//!
//! Invariant: the blocks of what stands here are in use. Who gives them back takes the value out first.

use crate::page::LargeRef;
use blocks::VolumeId;
use bytes::Bytes;
use engine::{Seq, TableId};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The end of time: nothing has taken the value's place yet.
const NEVER: Seq = crate::version::SEQ_MAX;

/// See the module.
#[derive(Default)]
pub(crate) struct LargeValues {
    state: Mutex<ValueLists>,
}

#[derive(Default)]
struct ValueLists {
    /// By volume and first sector.
    entries: BTreeMap<(u32, u64), NotedValue>,
    /// Those whose blocks go when no snapshot can read them.
    lost: Vec<Lost>,
}

struct Lost {
    /// Readers at this position and later cannot know it: the one behind the published position at the first look.
    since: Option<Seq>,
    volume: VolumeId,
    cell: Bytes,
}

#[derive(Clone)]
struct NotedValue {
    cell: Bytes,
    /// The position that wrote it; `ZERO`: the durable checkpoint has it.
    born: Seq,
    /// The position from which on something else is there.
    gone: Seq,
    /// Its row while only a delta holds it.
    row: Option<RowOfValue>,
}

impl NotedValue {
    /// Whether a position lies in the value's life, as far as that is known without a look at its place.
    fn is_alive(&self, at: Seq) -> bool {
        self.born <= at && at < self.gone
    }
}

/// The row of a value that is in a delta.
#[derive(Clone)]
pub(crate) struct RowOfValue {
    pub(crate) table: TableId,
    pub(crate) key: Box<[u8]>,
}

/// A value that stands here, for [`LargeValues::not_in`].
pub(crate) struct NotedForCheckpoint {
    pub(crate) cell: Bytes,
    /// Whether the position asked for lies in the value's life, as far as that is known without a look at its place.
    pub(crate) is_alive: bool,
    pub(crate) row: Option<RowOfValue>,
}

fn name(volume: VolumeId, cell: &[u8]) -> Option<(u32, u64)> {
    let first = LargeRef::from_cell(cell)?.addresses().next()?;
    Some((volume.0, first.sector()))
}

impl LargeValues {
    fn change(&self, volume: VolumeId, cell: &Bytes, work: impl FnOnce(&mut NotedValue)) {
        let Some(name) = name(volume, cell) else { return };
        let mut state = self.state.lock();
        let entry = state.entries.entry(name).or_insert_with(|| NotedValue {
            cell: cell.clone(),
            born: Seq::ZERO,
            gone: NEVER,
            row: None,
        });
        work(entry);
    }

    /// A value has got blocks, which are not flushed yet. A delta holds it, or will in a moment.
    pub(crate) fn note_written(&self, volume: VolumeId, cell: &Bytes, seq: Seq, row: RowOfValue) {
        self.change(volume, cell, |entry| {
            entry.born = seq;
            entry.row = Some(row);
        });
    }

    /// A base holds it.
    pub(crate) fn note_in_base(&self, volume: VolumeId, cell: &Bytes) {
        self.change(volume, cell, |entry| entry.row = None);
    }

    /// A base that held it has been replaced by one that does not; since `gone` something else is there.
    pub(crate) fn drop_from_base(&self, volume: VolumeId, cell: &Bytes, gone: Seq) {
        self.change(volume, cell, |entry| {
            entry.row = None;
            entry.gone = gone;
        });
    }

    /// The image on disk does not have it either: it goes when no snapshot can read it.
    pub(crate) fn free_later(&self, volume: VolumeId, cell: Bytes) {
        self.state.lock().lost.push(Lost {
            since: None,
            volume,
            cell,
        });
    }

    /// No delta holds it any more, and no base ever has: no checkpoint that is not over can refer to it.
    pub(crate) fn free_from_delta(&self, volume: VolumeId, cell: Bytes) {
        self.drop_from_base(volume, &cell, Seq::ZERO);
        self.free_later(volume, cell);
    }

    /// Its blocks are void, or given back.
    pub(crate) fn forget(&self, volume: VolumeId, cell: &[u8]) {
        if let Some(name) = name(volume, cell) {
            self.state.lock().entries.remove(&name);
        }
    }

    /// Takes out what nobody reads any more: the caller gives the blocks back. `low` is the oldest position of any
    /// reader, or one behind the published when there is none; a running checkpoint, at `position`, is left out of it.
    /// A reader at the position where a value was moved may have found the one or the other, so that only later ones
    /// cannot have the old one's address.
    pub(crate) fn take(&self, published: Seq, low: Seq, position: Option<Seq>) -> Vec<(VolumeId, Bytes)> {
        let mut free = Vec::new();
        let mut state = self.state.lock();
        let ValueLists { entries, lost } = &mut *state;
        let gone = |lost: &Lost| Some(entries.get(&name(lost.volume, &lost.cell)?)?.gone);
        lost.retain_mut(|lost| {
            let since = *lost.since.get_or_insert(published.next());
            let is_referred_to = position.is_some_and(|position| gone(lost).is_none_or(|gone| gone > position));
            let is_free = since <= low && !is_referred_to;
            if is_free {
                free.push((lost.volume, lost.cell.clone()));
            }
            !is_free
        });
        for (volume, cell) in &free {
            if let Some(name) = name(*volume, cell) {
                entries.remove(&name);
            }
        }
        free
    }

    /// All that stands in the values.
    pub(crate) fn all(&self) -> Vec<(VolumeId, Bytes)> {
        let state = self.state.lock();
        let of = |(name, entry): (&(u32, u64), &NotedValue)| (VolumeId(name.0), entry.cell.clone());
        state.entries.iter().map(of).collect()
    }

    /// All that waits for readers.
    pub(crate) fn waiting(&self) -> Vec<(VolumeId, Bytes)> {
        let state = self.state.lock();
        state.lost.iter().map(|lost| (lost.volume, lost.cell.clone())).collect()
    }

    /// The values that a checkpoint at `position` does not refer to, and whose blocks are in use. `is_there` decides
    /// about those that have a place, outside the lock.
    pub(crate) fn not_in(
        &self,
        position: Seq,
        is_there: impl Fn(&NotedForCheckpoint) -> bool,
    ) -> Vec<(VolumeId, Bytes)> {
        // A tree that goes gives values back: none may go under the lock.
        let standing: Vec<(VolumeId, NotedForCheckpoint)> = {
            let state = self.state.lock();
            let of = |(name, entry): (&(u32, u64), &NotedValue)| {
                let standing = NotedForCheckpoint {
                    cell: entry.cell.clone(),
                    is_alive: entry.is_alive(position),
                    row: entry.row.clone(),
                };
                (VolumeId(name.0), standing)
            };
            state.entries.iter().map(of).collect()
        };
        let is_absent = |standing: &NotedForCheckpoint| match standing.row {
            None => !standing.is_alive,
            Some(_) => !is_there(standing),
        };
        let absent = standing.into_iter().filter(|(_, standing)| is_absent(standing));
        absent.map(|(volume, standing)| (volume, standing.cell)).collect()
    }

    /// Whether the state at `position` has a value that stands here in a base that is not in memory. A base takes a
    /// value over before anybody sees that base: what still has its place in a delta is in none, though no delta may
    /// hold it any more.
    pub(crate) fn is_in_base(&self, volume: VolumeId, cell: &[u8], position: Seq) -> bool {
        let state = self.state.lock();
        let entry = name(volume, cell).and_then(|name| state.entries.get(&name));
        // One that does not stand here is given back, or was never more than another row of a base.
        entry.is_none_or(|entry| entry.row.is_none() && entry.is_alive(position))
    }

    /// A checkpoint at `position` is durable: rows of bases that it has are as all others are.
    pub(crate) fn settle(&self, position: Seq) {
        self.state
            .lock()
            .entries
            .retain(|_, entry| entry.row.is_some() || entry.gone != NEVER || entry.born > position);
    }
}

/// Owns the blocks of a large value from when they were written until a leaf's base holds its cell. Dropped before
/// that, it gives the blocks back.
pub(crate) struct LargeOwner {
    values: Arc<LargeValues>,
    volume: VolumeId,
    cell: Bytes,
    in_base: std::sync::atomic::AtomicBool,
}

impl LargeOwner {
    pub(crate) fn new(values: Arc<LargeValues>, volume: VolumeId, cell: Bytes) -> Self {
        Self {
            values,
            volume,
            cell,
            in_base: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// A base holds the cell now: the blocks are freed after a later base that lacks it is on disk.
    pub(crate) fn now_in_base(&self) {
        if !self.in_base.swap(true, std::sync::atomic::Ordering::AcqRel) {
            self.values.note_in_base(self.volume, &self.cell);
        }
    }

    /// Whether the blocks are a base's.
    pub(crate) fn is_in_base(&self) -> bool {
        self.in_base.load(std::sync::atomic::Ordering::Acquire)
    }
}

impl Drop for LargeOwner {
    fn drop(&mut self) {
        if !*self.in_base.get_mut() {
            self.values.free_from_delta(self.volume, self.cell.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blocks::BlockAddr;

    fn cell(sector: u64) -> Bytes {
        let mut address = sector.to_le_bytes()[..6].to_vec();
        address.extend([1, 0, 7, 7, 7, 7]);
        let address = BlockAddr::decode(&address).expect("an address");
        LargeRef::encode(100, &[address]).into()
    }

    fn nowhere() -> RowOfValue {
        RowOfValue {
            table: TableId(1),
            key: Box::default(),
        }
    }

    #[test]
    fn a_checkpoint_refers_to_what_its_position_sees() {
        let values = Arc::new(LargeValues::default());
        let main = VolumeId::MAIN;
        let absent = |position: u64| -> Vec<Bytes> {
            let absent = values.not_in(Seq(position), |_| true);
            absent.into_iter().map(|(_, cell)| cell).collect()
        };
        // An old one that 5 replaces, and the one that takes its place.
        values.drop_from_base(main, &cell(1), Seq(5));
        values.note_written(main, &cell(2), Seq(5), nowhere());
        values.note_in_base(main, &cell(2));
        assert_eq!(absent(4), [cell(2)]);
        assert_eq!(absent(5), [cell(1)]);
        values.settle(Seq(5));
        values.free_later(main, cell(1));
        assert_eq!(absent(6), [cell(1)]);
        assert_eq!(absent(4), Vec::<Bytes>::new(), "what is durable is not looked at again");
        // A reader from before keeps it, and one from when it went.
        assert_eq!(values.take(Seq(6), Seq(4), None), []);
        assert_eq!(values.take(Seq(9), Seq(6), None), []);
        assert_eq!(values.waiting(), [(main, cell(1))]);
        assert_eq!(
            values.take(Seq(9), Seq(7), Some(Seq(4))),
            [],
            "a checkpoint refers to it"
        );
        assert_eq!(values.take(Seq(9), Seq(7), Some(Seq(5))), [(main, cell(1))]);
        assert_eq!(
            absent(6),
            Vec::<Bytes>::new(),
            "its blocks may be used for something else"
        );
    }

    #[test]
    fn what_no_base_held_is_given_back() {
        let values = Arc::new(LargeValues::default());
        let main = VolumeId::MAIN;
        for (sector, goes_in_base) in [(1, false), (2, true)] {
            values.note_written(main, &cell(sector), Seq(3), nowhere());
            let owner = LargeOwner::new(values.clone(), main, cell(sector));
            assert_eq!(values.not_in(Seq(3), |_| false).len(), 1, "the place decides");
            if goes_in_base {
                owner.now_in_base();
            }
            drop(owner);
            let expected = if goes_in_base {
                vec![]
            } else {
                vec![(main, cell(sector))]
            };
            assert_eq!(values.waiting(), expected);
            assert_eq!(values.not_in(Seq(3), |_| true), expected);
            values.take(Seq(3), Seq(4), Some(Seq(3)));
        }
        values.settle(Seq(2));
        assert_eq!(values.not_in(Seq(2), |_| true), [(main, cell(2))], "not durable yet");
    }
}
