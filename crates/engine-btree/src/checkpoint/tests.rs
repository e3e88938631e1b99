//! What happens beside a checkpoint, one step at a time.

use super::*;
use crate::engine_impl::BtreeEngine;
use crate::large_values::RowOfValue;
use crate::options::BtreeOptions;
use crate::tree::{Child, Tree};
use crate::write_back::Need;
use blocks::BlockAddr;
use engine::{Batch, Engine, TableId, TableKind, TableSpec};
use std::ops::Bound;
use std::path::Path;
use vfs::{Env, FileSystem, Random, SeededRandom, SimulatedClock, SimulatedFs, Watch, WatchedFs};

const ROWS: TableId = TableId(1);

fn put(engine: &BtreeEngine, seq: u64, numbers: impl Iterator<Item = u64>) {
    let mut batch = Batch::new();
    if seq == 1 {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: "one.rows".into(),
            compressor: None,
        };
        batch.create_table(ROWS, spec);
    }
    for number in numbers {
        batch.put(ROWS, number.to_be_bytes().to_vec(), vec![seq as u8; 60]);
    }
    engine.apply(&batch, Seq(seq)).expect("a batch");
    engine.publish(Seq(seq));
}

fn open(fs: &SimulatedFs) -> BtreeEngine {
    open_on(Arc::new(fs.clone()))
}

fn open_on(fs: Arc<dyn FileSystem>) -> BtreeEngine {
    let env = Env {
        fs,
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    let directory = Path::new("/store");
    vfs::create_directory_durably(&*env.fs, directory).expect("a directory");
    let options = BtreeOptions {
        record_leaf_bytes: 300,
        segment_bytes: 32 << 10,
        threads: Some(0),
        ..BtreeOptions::default()
    };
    BtreeEngine::open(&env, directory, options).expect("an engine")
}

/// Every block of a tree, as it is on disk.
fn on_disk(pages: &Pages, tree: &Tree, root: RootAddress, found: &mut Vec<BlockAddr>) {
    found.push(root.address);
    if root.level == 0 {
        return;
    }
    let inner = pages
        .read_inner(tree, root.address, root.level)
        .expect("what a page on disk refers to is on disk");
    for cell in &inner.children {
        let Child::OnDisk { address, level } = cell.load(&rcu::pin()).clone() else {
            panic!("a page from disk")
        };
        on_disk(pages, tree, RootAddress { address, level }, found);
    }
}

/// A split replaced a node that an image on its way to the file referred to, and gave its block back.
#[test]
fn a_node_on_its_way_to_the_file_refers_to_nothing_that_was_given_back() {
    const NUMBERS: u64 = 2000;
    let fs = SimulatedFs::new(1);
    let engine = open(&fs);
    let parts = &engine.parts().checkpointer.parts;
    put(&engine, 1, (0..NUMBERS).map(|number| number * 1000));
    engine.checkpoint().expect("a checkpoint");
    put(&engine, 2, (0..NUMBERS).map(|number| number * 1000));
    let (position, _pin, changed) = parts.take_position();
    let run = Run::new(parts, position, &changed);
    let table = changed[0].clone();
    let tree = &table.tree;
    run.write_dirty_leaves(&[&table]).expect("leaves");
    let mut writer = parts.write_back.writer();
    run.write_level(tree, 1, &mut writer).expect("the lowest nodes");
    let mut appended = Vec::new();
    run.append_level(tree, 2, &mut writer, &mut appended)
        .expect("the nodes above them");
    assert!(!appended.is_empty(), "the tree has three levels");
    // Below each of them a leaf splits in two: the node above that one is replaced, and those further up are not.
    for (step, base) in [0, NUMBERS / 2].into_iter().enumerate() {
        put(&engine, 3 + step as u64, (1..5).map(|number| base * 1000 + number));
    }
    run.flush_inner(tree, &mut appended, &mut writer).expect("a flush");
    let root = run.write_inner_nodes(tree).expect("the rest").expect("rows");
    // Whatever has become free is used.
    let leaves = std::mem::take(&mut tree.dirty.lock().leaves);
    run.write_leaves(tree, leaves, Need::Dirty).expect("write-back");
    let mut blocks = Vec::new();
    on_disk(&parts.pages, tree, root, &mut blocks);
    assert!(blocks.len() > 300, "{} blocks", blocks.len());
    for address in blocks {
        assert!(
            parts.store.exclude(tree.shape.volume, address),
            "{address:?} is a block of the checkpoint"
        );
    }
}

/// A leaf's image stayed for a checkpoint, which then came to refer to what the leaf was split into.
#[test]
fn an_image_that_stays_for_a_checkpoint_in_vain_is_not_recorded_as_used() {
    let fs = SimulatedFs::new(2);
    let engine = open(&fs);
    let parts = &engine.parts().checkpointer.parts;
    put(&engine, 1, (0..200).map(|number| number * 1000));
    engine.checkpoint().expect("a checkpoint");
    // Some leaf changes, so that the tree is written; another one changes after the position only.
    put(&engine, 2, 0..1);
    let (position, pin, changed) = parts.take_position();
    let run = Run::new(parts, position, &changed);
    let tree = &changed[0].tree;
    // A leaf that is not split at once.
    let (number, leaf, kept) = (100..150)
        .find_map(|number: u64| {
            put(&engine, number, [number * 1000].into_iter());
            let leaf = tree.leaf_in_memory(&(number * 1000).to_be_bytes(), &rcu::pin())?;
            run.write_leaves(tree, vec![leaf.clone()], Need::Dirty).ok()?;
            let (of, kept) = leaf.state.lock().checkpoint?;
            assert_eq!(of, position.number);
            Some((number, leaf, kept?))
        })
        .expect("the checkpoint keeps an image that was replaced");
    assert!(parts.store.exclude(tree.shape.volume, kept), "it is kept");
    put(&engine, 200, (1..60).map(|step| number * 1000 + step));
    assert!(leaf.view.load(&rcu::pin()).retired, "it was split");
    assert!(!parts.store.exclude(tree.shape.volume, kept), "nothing refers to it");
    let result = run.write(&engine.parts().checkpointer.write_ahead);
    result.expect("the rest of the checkpoint");
    *parts.running.lock() = None;
    parts.readers.unpin(pin);
    drop(engine);
    let after = open(&fs.after_crash(3));
    assert_eq!(after.durable_seq(), Seq(2));
    assert_eq!(after.check_space().expect("pages are whole"), Vec::<String>::new());
}

/// A large value that nobody reads any more waits to be dropped with its delta while its leaf leaves memory: it is no
/// row of the leaf on disk.
#[test]
fn a_value_that_no_base_took_over_is_not_found_in_a_leaf_on_disk() {
    let fs = SimulatedFs::new(3);
    let engine = open(&fs);
    let parts = &engine.parts().checkpointer.parts;
    put(&engine, 1, 0..3);
    engine.checkpoint().expect("a checkpoint");
    let table = parts.catalog.live(ROWS).expect("the table");
    let position = CheckpointPosition { number: 1, seq: Seq(1) };
    let run = Run::new(parts, position, &[]);
    let (tree, volume) = (&table.tree, table.tree.shape.volume);
    let key: Box<[u8]> = 1_u64.to_be_bytes().into();
    let address = BlockAddr::decode(&[0, 0, 9, 0, 0, 0, 1, 0, 7, 7, 7, 7]).expect("an address");
    let cell = bytes::Bytes::from(LargeRef::encode(100, &[address]));
    let absent = |while_it_looks: &dyn Fn()| {
        let absent = parts.large_values.not_in(Seq(1), |standing| {
            while_it_looks();
            run.is_in_place(standing, Seq(1))
        });
        !absent.is_empty()
    };
    for leaf_is_there in [true, false] {
        let leaf = tree.leaf_in_memory(&key, &rcu::pin()).expect("it was just written");
        parts.cache.drop_base(tree, &leaf);
        if !leaf_is_there {
            assert!(parts.pages.unlink(tree, &leaf), "nothing of it is left");
        }
        let row = RowOfValue {
            table: ROWS,
            key: key.clone(),
        };
        parts.large_values.note_written(volume, &cell, Seq(1), row);
        assert!(absent(&|| ()), "leaf in memory: {leaf_is_there}");
        // A base takes it over at that moment, and goes to disk.
        assert!(!absent(&|| parts.large_values.note_in_base(volume, &cell)));
        assert!(!absent(&|| ()), "a row like others");
        parts.large_values.drop_from_base(volume, &cell, Seq(1));
        assert!(absent(&|| ()), "the row is another one");
        parts.large_values.forget(volume, &cell);
    }
}

/// A key so long that an inner node has three children at most: a tree of few rows is high.
fn long_key(number: u64) -> Vec<u8> {
    let mut key = vec![b'k'; 30_000];
    key.extend(number.to_be_bytes());
    key
}

fn put_long(engine: &BtreeEngine, seq: u64, numbers: impl Iterator<Item = u64>) {
    let mut batch = Batch::new();
    for number in numbers {
        batch.put(ROWS, long_key(number), vec![seq as u8; 60]);
    }
    engine.apply(&batch, Seq(seq)).expect("a batch");
    engine.publish(Seq(seq));
}

/// Leaves split, go and are written back while a checkpoint writes the levels of a high tree one after the other: nodes
/// that it has written already are replaced, and what it took for settled is not. Whatever happens, its tree is whole.
#[test]
fn a_high_tree_changes_between_the_levels_of_a_checkpoint() {
    for seed in 0..12 {
        let random = SeededRandom::new(seed);
        let below = |end: u64| random.next_u64() % end;
        let fs = SimulatedFs::new(seed);
        let engine = open(&fs);
        let parts = &engine.parts().checkpointer.parts;
        put(&engine, 1, std::iter::empty());
        put_long(&engine, 2, (1..40).map(|number| number * 1000));
        engine.checkpoint().expect("a checkpoint");
        put_long(&engine, 3, (0..20).map(|_| below(40_000)));
        let seq = std::cell::Cell::new(3);
        let (position, pin, changed) = parts.take_position();
        let run = Run::new(parts, position, &changed);
        let table = changed[0].clone();
        let tree = &table.tree;
        run.write_dirty_leaves(&[&table]).expect("leaves");
        let disturb = || {
            for _ in 0..below(8) {
                match below(4) {
                    0 | 1 => {
                        seq.set(seq.get() + 1);
                        put_long(&engine, seq.get(), (0..1 + below(3)).map(|_| below(40_000)));
                    }
                    2 => {
                        seq.set(seq.get() + 1);
                        let mut batch = Batch::new();
                        let start = below(40_000);
                        let range = engine::KeyRange {
                            start: Bound::Included(long_key(start)),
                            end: Bound::Excluded(long_key(start + below(3000))),
                        };
                        batch.delete_range(ROWS, range);
                        engine.apply(&batch, Seq(seq.get())).expect("a batch");
                        engine.publish(Seq(seq.get()));
                    }
                    _ => {
                        let leaves = std::mem::take(&mut tree.dirty.lock().leaves);
                        run.write_leaves(tree, leaves, Need::Dirty).expect("write-back");
                    }
                }
            }
        };
        let mut writer = parts.write_back.writer();
        for level in 1..8 {
            let mut appended = Vec::new();
            run.append_level(tree, level, &mut writer, &mut appended)
                .expect("nodes");
            disturb();
            run.flush_inner(tree, &mut appended, &mut writer).expect("a flush");
            disturb();
        }
        drop(writer);
        let is_high = matches!(tree.root.load(&rcu::pin()), Child::Inner(root) if root.level > 3);
        assert!(is_high, "seed {seed}");
        run.write(&engine.parts().checkpointer.write_ahead).expect("the rest");
        *parts.running.lock() = None;
        parts.readers.unpin(pin);
        let problems = crate::durable_audit::check_durable(&parts.store).expect("it can be read");
        assert_eq!(problems, Vec::<String>::new(), "seed {seed}");
        // What was free for that checkpoint is used.
        disturb();
        let leaves = std::mem::take(&mut tree.dirty.lock().leaves);
        run.write_leaves(tree, leaves, Need::Dirty).expect("write-back");
        let problems = crate::durable_audit::check_durable(&parts.store).expect("it can be read");
        assert_eq!(problems, Vec::<String>::new(), "seed {seed}, later");
        drop(engine);
        let after = open(&fs.after_crash(seed));
        assert_eq!(after.durable_seq(), Seq(3));
        assert_eq!(after.check_space().expect("pages are whole"), Vec::<String>::new());
    }
}

/// The same with keys of eight bytes takes four levels, some ten thousand leaves: the root's image is on its way, and
/// two levels below it a node is replaced, under one that the checkpoint has written or under one where nothing had
/// changed.
#[test]
fn a_leaf_splits_while_the_root_is_on_its_way() {
    const NUMBERS: u64 = 60_000;
    // Few rows more make two leaves of one, many make two nodes of the one above.
    for (place, rows) in [
        (NUMBERS / 2, 4),
        (NUMBERS / 2, 20),
        (NUMBERS - 5000, 4),
        (NUMBERS - 5000, 20),
    ] {
        let fs = SimulatedFs::new(4);
        let engine = open(&fs);
        let parts = &engine.parts().checkpointer.parts;
        put(&engine, 1, (0..NUMBERS).map(|number| number * 1000));
        engine.checkpoint().expect("a checkpoint");
        put(&engine, 2, 0..1);
        let (position, pin, changed) = parts.take_position();
        let mut run = Run::new(parts, position, &changed);
        run.may_save = false;
        let table = changed[0].clone();
        let tree = &table.tree;
        run.write_dirty_leaves(&[&table]).expect("leaves");
        let mut writer = parts.write_back.writer();
        run.write_level(tree, 1, &mut writer).expect("nodes");
        run.write_level(tree, 2, &mut writer).expect("nodes");
        let mut appended = Vec::new();
        run.append_level(tree, 3, &mut writer, &mut appended).expect("nodes");
        assert_eq!(appended.len(), 1, "the root");
        put(&engine, 3, (1..rows).map(|number| place * 1000 + number));
        run.flush_inner(tree, &mut appended, &mut writer).expect("a flush");
        drop(writer);
        run.write(&engine.parts().checkpointer.write_ahead).expect("the rest");
        *parts.running.lock() = None;
        parts.readers.unpin(pin);
        let problems = crate::durable_audit::check_durable(&parts.store).expect("it can be read");
        assert_eq!(problems, Vec::<String>::new(), "{rows} rows at {place}");
    }
}

/// Notes at each sync whether write-back stands still.
#[derive(Default)]
struct NoteStandstill {
    write_back: PlainMutex<Option<Arc<WriteBack>>>,
    noted: PlainMutex<Vec<bool>>,
}

impl Watch for NoteStandstill {
    type Held<'w> = ();

    fn change(&self) {}

    fn sync(&self) {
        if let Some(write_back) = &*self.write_back.lock() {
            self.noted.lock().push(write_back.stands_still());
        }
    }
}

/// The cache grew beyond its bound as long as the disk took for all that was written since the last checkpoint.
#[test]
fn what_was_written_is_synced_before_write_back_stands_still() {
    let fs = Arc::new(WatchedFs::new(Arc::new(SimulatedFs::new(1)), NoteStandstill::default()));
    let engine = open_on(fs.clone());
    put(&engine, 1, 0..200);
    let watch = fs.watch();
    *watch.write_back.lock() = Some(engine.parts().checkpointer.parts.write_back.clone());
    engine.checkpoint().expect("a checkpoint");
    *watch.write_back.lock() = None;
    let noted = watch.noted.lock().clone();
    assert!(!noted[0] && noted[1..].contains(&true), "{noted:?}");
}
