//! What walks take of memory, and from whom.

use super::*;
use crate::block_cache::Pieces;
use crate::budget::Use;
use crate::fixture::{ROWS, Store};
use crate::options::BtreeOptions;
use engine::{Cursor, Engine};

const ROWS_MAX: u32 = 12_000;
const LEAF_BYTES: usize = 1024;

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// Three times as many leaves as have room; the rest are on disk.
fn store() -> Store {
    let mut store = Store::new(BtreeOptions {
        cache_bytes: 1 << 20,
        record_leaf_bytes: LEAF_BYTES,
        threads: Some(1),
        ..BtreeOptions::default()
    });
    for first in (0..ROWS_MAX).step_by(500) {
        store.write(|batch| (first..first + 500).for_each(|row| batch.put(ROWS, key(row), vec![row as u8; 250])));
        while !store.engine.throttle() {}
    }
    store.checkpoint();
    store.base().workers.drain().expect("all is done");
    store
}

fn fill(cursor: &mut Box<dyn Cursor>, rows: &mut Rows) -> bool {
    let limits = FillLimits {
        rows_max: 100,
        bytes_max: 1 << 20,
    };
    cursor.fill(rows, limits).expect("rows")
}

/// Each walk had a window of its own ahead of it, however many there were.
#[test]
fn walks_share_what_is_theirs_and_give_all_of_it_back() {
    const WALKS: u64 = 32;
    /// Of each walk, beside what all share: what it is in, what comes next, and what it and the worker load.
    const LEAVES_OF_EACH: u64 = 4;
    let store = store();
    let budget = store.base().cache.budget();
    let most = budget.limit() / 8 + WALKS * LEAVES_OF_EACH * 2 * LEAF_BYTES as u64;
    for direction in [Direction::Forward, Direction::Reverse] {
        let view = store.engine.snapshot().expect("a snapshot");
        let mut cursors: Vec<_> = (0..WALKS)
            .map(|_| view.clone().cursor(ROWS, KeyRange::all(), direction).expect("a cursor"))
            .collect();
        let mut highest = 0;
        for round in 0..30 {
            for cursor in &mut cursors {
                let mut rows = Rows::new();
                assert!(fill(cursor, &mut rows), "{direction:?}, {round}");
                let used = budget.used(Use::Walks);
                assert!(used <= most, "{direction:?}, {round}: {used} bytes, {most} at most");
                highest = highest.max(used);
            }
        }
        assert!(highest > 0, "the walks are long");
        drop(cursors);
        store.base().workers.drain().expect("it reads no more");
        assert_eq!(budget.used(Use::Walks), 0, "{direction:?}");
    }
}

/// A walk while writes, or anything else, had reached into the reserve gave away compressed blocks for all of it, once
/// for each leaf.
#[test]
fn blocks_give_way_to_what_walks_have_and_to_nothing_else() {
    let store = store();
    let (base, tree) = (store.base(), store.tree(ROWS));
    base.cache.eviction().hold();
    let on_disk = (0..ROWS_MAX)
        .map(key)
        .find_map(|key| match tree.descend(Target::At(&key), 0, &rcu::pin()).child {
            Child::OnDisk { address, level: 0 } => Some((key.clone(), *address)),
            _ => None,
        });
    let (key, address) = on_disk.expect("there is room for a third");
    let budget = base.cache.budget();
    for number in 1..100_u32 {
        let mut bytes = [0; BlockAddr::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[6] = 1;
        let address = BlockAddr::decode(&bytes).expect("an address");
        base.cache
            .put_block((tree.shape.volume, address), Pieces::new(&[7; 500]));
    }
    let read = |in_walks: isize| {
        base.counters.pages_walked.set(0);
        budget.add(Use::Walks, in_walks);
        budget.add(Use::Images, budget.target() as isize + 10_000 - budget.total() as isize);
        let before = budget.used(Use::Blocks);
        let raw = base.pages.read_for_walk(&tree, Target::At(&key), address, Vec::new);
        assert!(raw.expect("no error").is_some(), "it was read");
        budget.add(Use::Walks, -in_walks);
        before - budget.used(Use::Blocks)
    };
    assert!(budget.used(Use::Blocks) > 20_000);
    assert_eq!(read(0), 0);
    let given = read(5_000);
    assert!((5_000..6_000).contains(&given), "{given}");
}
