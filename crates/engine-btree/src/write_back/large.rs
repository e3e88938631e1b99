//! Large values: giving them blocks of their own, and writing them anew elsewhere.

use super::PageWriter;
use crate::large_values::{LargeOwner, RowOfValue};
use crate::leaf::Leaf;
use crate::page::{LARGE_CHUNK_BYTES, LargeRef};
use crate::pages::if_readable;
use crate::tree::Tree;
use crate::version::{Change, Value};
use blocks::Purpose;
use bytes::Bytes;
use engine::{Result, Seq};
use pins::Horizon;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What comes of moving a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Move {
    /// It has been written elsewhere, or has gone already.
    Done,
    /// Nobody can tell where it belongs, or it cannot be moved.
    Impossible,
    /// It cannot be moved while a checkpoint runs.
    NotNow,
}

impl PageWriter<'_> {
    /// Writes large values of a leaf's delta to blocks of their own and leaves their cells in the delta.
    pub(super) fn give_blocks(
        &mut self,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        large: Vec<(Box<[u8]>, Seq, Bytes)>,
    ) -> Result<()> {
        self.hold_off_checkpoint();
        if tree.is_dead() {
            return Ok(());
        }
        tree.has_large.store(true, Ordering::Release);
        let (values, volume) = (self.shared.large_values.clone(), tree.shape.volume);
        let mut cells: Vec<(Box<[u8]>, Seq, Bytes)> = Vec::with_capacity(large.len());
        let appended = large.into_iter().try_for_each(|(key, seq, bytes)| {
            let cell = self.append_large(tree, &key, &bytes, seq)?;
            cells.push((key, seq, cell));
            Ok(())
        });
        if let Err(error) = appended.and_then(|()| self.flush()) {
            cells.iter().for_each(|(_, _, cell)| values.forget(volume, cell));
            return Err(error);
        }
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let mut freed = 0;
        for (key, seq, cell) in cells {
            let owner = Arc::new(LargeOwner::new(values.clone(), volume, cell.clone()));
            let view = leaf.view.load(&guard);
            if let Ok(place) = view.find(&key) {
                let change = Change::Put(Value::Large(cell, Some(owner)));
                freed += view.entry(place).chain.replace_at(seq, change, &guard);
            }
        }
        state.delta_bytes = state.delta_bytes.saturating_sub(freed);
        drop(state);
        self.shared.cache.account(tree, 0, -(freed as isize));
        Ok(())
    }

    /// Appends a large value of a row, which is noted as written at `seq` and in a delta from then on. Answers its
    /// cell.
    fn append_large(&mut self, tree: &Arc<Tree>, key: &[u8], value: &[u8], seq: Seq) -> Result<Bytes> {
        let mut addresses = Vec::with_capacity(value.len().div_ceil(LARGE_CHUNK_BYTES));
        for piece in value.chunks(LARGE_CHUNK_BYTES) {
            addresses.push(self.append_piece(tree, Purpose::Checkpoint, key, piece)?);
        }
        let cell = Bytes::from(LargeRef::encode(value.len(), &addresses));
        // Before the flush: no checkpoint records what is used in between.
        let row = RowOfValue {
            table: tree.id,
            key: key.into(),
        };
        self.shared
            .large_values
            .note_written(tree.shape.volume, &cell, seq, row);
        Ok(cell)
    }

    /// Writes a large value anew elsewhere, `cell` being the one in the leaf's base, and flushes. The copy is another
    /// version of the row, as if the same had been written again at the published position: never while a checkpoint
    /// runs, whose position may be that one.
    pub(crate) fn move_large(&mut self, tree: &Arc<Tree>, leaf: &Arc<Leaf>, key: &[u8], cell: &[u8]) -> Result<Move> {
        let shared = self.shared;
        if shared.running.get().is_some() {
            return Ok(Move::NotNow);
        }
        let Some(value) = if_readable(shared.pages.read_large(tree, cell))? else {
            // It stands in nobody's way.
            return Ok(Move::Impossible);
        };
        self.hold_off_checkpoint();
        if tree.is_dead() {
            return Ok(Move::Done);
        }
        let (values, volume) = (shared.large_values.clone(), tree.shape.volume);
        let copy = self.append_large(tree, key, &value, shared.readers.published())?;
        if let Err(error) = self.flush() {
            values.forget(volume, &copy);
            return Err(error);
        }
        // Unless the delta takes it over, the copy is given back, after the locks.
        let owner = Arc::new(LargeOwner::new(values, volume, copy.clone()));
        let guard = rcu::pin();
        let mut state = leaf.state.lock();
        let running = shared.running.lock();
        let view = leaf.view.load(&guard);
        let is_as_before = view.has_large_in_base(key, cell) && Leaf::has_room(&state);
        if running.is_some() {
            return Ok(Move::NotNow);
        }
        if view.retired || !is_as_before {
            return Ok(Move::Impossible);
        }
        // No checkpoint's position lies at or after the published one before this lock is free again: every later one
        // finds the copy.
        // An image that begins at the published position, written or being written, ends where it begins: no checkpoint
        // refers to it, and the leaf is written again.
        let published = shared.readers.published();
        let change = Change::Put(Value::Large(copy, Some(owner.clone())));
        let pushed = leaf.push(&mut state, key, change, published, &Horizon::default(), &guard);
        if !std::mem::replace(&mut state.listed, true) {
            shared.catalog.list_dirty(tree, leaf.clone(), &guard);
        }
        shared.catalog.table_changed(tree.id);
        drop(running);
        drop(state);
        shared.cache.account(tree, 0, pushed.bytes);
        shared.counters.relocated.add(1);
        shared.cache.add_to_clock(tree, leaf);
        Ok(Move::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{ROWS, Store};
    use crate::leaf::{Elsewhere, Found};
    use crate::options::BtreeOptions;
    use crate::version::NEWEST;
    use crate::write_back::{Need, Written};
    use engine::{Engine, Maintenance};
    use vfs::{Fault, FaultKind};

    /// The copy is published where the new image of its leaf begins: that is the state nowhere, and the next checkpoint
    /// writes another.
    #[test]
    fn a_value_moves_while_its_leaf_is_written() {
        let value = vec![7; 50_000];
        let mut store = Store::new(BtreeOptions {
            threads: Some(0),
            ..BtreeOptions::default()
        });
        store.write(|batch| batch.put(ROWS, b"key".to_vec(), value.clone()));
        let tree = store.tree(ROWS);
        let leaf = tree.leaf_in_memory(b"key", &rcu::pin()).expect("it was just written");
        let new_writer = || store.parts().mover.writer();
        let (mut writer, mut mover) = (new_writer(), new_writer());
        assert_eq!(writer.write(&tree, &leaf, Need::Dirty).expect("room"), Written::Done);
        let found = leaf.view.load(&rcu::pin()).get(b"key", NEWEST, &rcu::pin());
        let Found::Elsewhere(Elsewhere::Large(cell)) = found else {
            panic!("the value has blocks");
        };
        let moved = mover.move_large(&tree, &leaf, b"key", &cell);
        assert_eq!(moved.expect("it can be read"), Move::Done);
        writer.flush().expect("room");
        drop((writer, mover));
        let published = store.base().readers.published();
        {
            let state = leaf.state.lock();
            assert!(state.disk_image.is_some() && !state.is_clean() && !state.has_state_at(published));
            assert_eq!(state.valid_from, published);
        }
        store.checkpoint();
        assert!(leaf.state.lock().has_state_at(published));
        let snapshot = store.engine.snapshot().expect("a view");
        assert_eq!(snapshot.get(ROWS, b"key").expect("a read").as_deref(), Some(&value[..]));
        let report = store
            .engine
            .maintain(&Maintenance::Verify(None))
            .expect("a verification");
        assert_eq!(report.problems, Vec::<String>::new());
    }

    /// One piece that does not read ended the engine wherever a piece of it lay in a segment to be emptied.
    #[test]
    fn a_value_that_cannot_be_read_stays_where_it_is() {
        let mut store = Store::new(BtreeOptions {
            threads: Some(0),
            ..BtreeOptions::default()
        });
        store.write(|batch| batch.put(ROWS, b"key".to_vec(), vec![7; 50_000]));
        store.checkpoint();
        let tree = store.tree(ROWS);
        let leaf = tree.leaf_in_memory(b"key", &rcu::pin()).expect("it was just written");
        let found = leaf.view.load(&rcu::pin()).get(b"key", NEWEST, &rcu::pin());
        let Found::Elsewhere(Elsewhere::Large(cell)) = found else {
            panic!("the value has blocks");
        };
        let mut mover = store.parts().mover.writer();
        store.fs.inject(Fault::new(FaultKind::ReadError).times(100));
        let moved = mover.move_large(&tree, &leaf, b"key", &cell);
        store.fs.clear_faults();
        assert!(store.fs.faults_struck() > 0);
        assert_eq!(moved.expect("it stands in nobody's way"), Move::Impossible);
    }
}
