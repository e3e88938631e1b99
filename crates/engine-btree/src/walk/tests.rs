//! What walks take of memory, and from whom.

use super::*;
use crate::block_cache::Pieces;
use crate::budget::Use;
use crate::fixture::{DIRECTORY, ROWS, Store};
use crate::options::BtreeOptions;
use engine::{Cursor, Engine};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use vfs::{Fault, FaultKind, Random, SeededRandom, SystemRandom};

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

/// What decides a test's random choices.
fn seed() -> u64 {
    let seed = std::env::var("TENON_WALK_SEED").map_or_else(
        |_| SystemRandom::new().next_u64(),
        |seed| seed.parse().expect("a number"),
    );
    println!("TENON_WALK_SEED={seed}");
    seed
}

const LIMITS: FillLimits = FillLimits {
    rows_max: 100,
    bytes_max: 1 << 20,
};

fn fill(cursor: &mut Box<dyn Cursor>, rows: &mut Rows) -> bool {
    cursor.fill(rows, LIMITS).expect("rows")
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
        let raw = base
            .pages
            .read_for_walk(&tree, Target::At(&key), address, None, Vec::new);
        assert!(raw.expect("no error").is_some(), "it was read");
        budget.add(Use::Walks, -in_walks);
        before - budget.used(Use::Blocks)
    };
    assert!(budget.used(Use::Blocks) > 20_000);
    assert_eq!(read(0), 0);
    let given = read(5_000);
    assert!((5_000..6_000).contains(&given), "{given}");
}

/// Rows on disk that do not compress, in leaves of four kilobytes: twice what the cache has room for.
struct Long {
    store: Store,
    random: SeededRandom,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

const LONG_ROWS: u32 = 40_000;

impl Long {
    fn new(seed: u64) -> Self {
        let options = BtreeOptions {
            cache_bytes: 8 << 20,
            record_leaf_bytes: 4096,
            threads: Some(1),
            ..BtreeOptions::default()
        };
        let mut long = Self {
            store: Store::new(options.clone()),
            random: SeededRandom::new(seed),
            rows: BTreeMap::new(),
        };
        for first in (0..LONG_ROWS).step_by(500) {
            long.put(first..first + 500);
        }
        long.store.checkpoint();
        long.store = long.store.reopened(options);
        long
    }

    fn put(&mut self, rows: impl Iterator<Item = u32>) {
        let (random, content) = (&self.random, &mut self.rows);
        self.store.write(|batch| {
            for row in rows {
                let mut value = vec![0; 400];
                random.fill(&mut value);
                batch.put(ROWS, key(row), value.clone());
                content.insert(key(row), value);
            }
        });
        while !self.store.engine.throttle() {}
    }

    fn cursor(&self, direction: Direction) -> Box<dyn Cursor> {
        let view = self.store.engine.snapshot().expect("a snapshot");
        view.cursor(ROWS, KeyRange::all(), direction).expect("a cursor")
    }

    fn expected(&self, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let rows = self.rows.iter().map(|(key, value)| (key.clone(), value.clone()));
        match direction {
            Direction::Forward => rows.collect(),
            Direction::Reverse => rows.rev().collect(),
        }
    }

    fn reads(&self) -> u64 {
        self.store.base().store.stats().blocks_read
    }
}

fn add(found: &mut Vec<(Vec<u8>, Vec<u8>)>, rows: &Rows) {
    found.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), rows.value(row).to_vec())));
}

#[test]
fn leaves_side_by_side_are_read_at_once() {
    let long = Long::new(1);
    for direction in [Direction::Forward, Direction::Reverse] {
        let (before, read_alone) = (long.reads(), long.store.base().counters.pages_read.get());
        let (mut cursor, mut rows, mut found) = (long.cursor(direction), Rows::new(), Vec::new());
        while fill(&mut cursor, &mut rows) {
            add(&mut found, &rows);
        }
        assert!(found == long.expected(direction), "{direction:?}: {} rows", found.len());
        let leaves = long.store.base().counters.pages_read.get() - read_alone;
        let reads = long.reads() - before;
        assert!(
            leaves > 1_500 && reads < leaves / 2,
            "{direction:?}: {leaves} leaves in {reads} reads"
        );
        drop((cursor, rows));
        long.store.base().workers.drain().expect("it reads no more");
        assert_eq!(long.store.base().cache.budget().used(Use::Walks), 0);
    }
}

#[test]
fn walks_that_read_at_once_keep_to_their_share() {
    const WALKS: u64 = 24;
    const LEAVES_OF_EACH: u64 = 4;
    let long = Long::new(3);
    let budget = long.store.base().cache.budget();
    let most = budget.limit() / 8 + WALKS * LEAVES_OF_EACH * 2 * 4096;
    let mut cursors: Vec<_> = (0..WALKS).map(|_| long.cursor(Direction::Forward)).collect();
    std::thread::scope(|scope| {
        for cursor in &mut cursors {
            scope.spawn(move || {
                let mut rows = Rows::new();
                for _ in 0..40 {
                    assert!(fill(cursor, &mut rows));
                    let used = budget.used(Use::Walks);
                    assert!(used <= most, "{used} bytes, {most} at most");
                }
            });
        }
    });
    drop(cursors);
    long.store.base().workers.drain().expect("it reads no more");
    assert_eq!(budget.used(Use::Walks), 0);
}

/// What was read of the file is older than the leaves that the walk comes to, and other blocks lie there now.
#[test]
fn a_walk_that_reads_at_once_sees_its_snapshot_beside_writes() {
    let seed = seed();
    let mut long = Long::new(seed);
    for round in 0..4_u64 {
        let direction = [Direction::Forward, Direction::Reverse][round as usize % 2];
        let expected = long.expected(direction);
        let (mut cursor, mut rows, mut found) = (long.cursor(direction), Rows::new(), Vec::new());
        while fill(&mut cursor, &mut rows) {
            add(&mut found, &rows);
            if long.random.next_u64().is_multiple_of(40) {
                let first = (long.random.next_u64() % u64::from(LONG_ROWS - 200)) as u32;
                long.put(first..first + 200);
                long.store.checkpoint();
            }
        }
        assert!(found == expected, "seed {seed}, round {round}: {} rows", found.len());
    }
}

/// A read of many leaves that fails is no error of the walk, as long as each of them can be read.
#[test]
fn where_a_stretch_cannot_be_read_its_leaves_are() {
    let long = Long::new(2);
    let path = Path::new(DIRECTORY).join("main.blocks");
    let expected = long.expected(Direction::Forward);
    let (mut cursor, mut rows, mut found) = (long.cursor(Direction::Forward), Rows::new(), Vec::new());
    let mut struck = 0;
    for step in 0.. {
        // Not at once twice: the leaves are read one by one then.
        if step % 20 == 10 {
            let kind = [FaultKind::ReadError, FaultKind::ShortRead][step / 20 % 2];
            long.store.fs.inject(Fault::new(kind).on(&path));
        }
        match cursor.fill(&mut rows, LIMITS) {
            Ok(true) => add(&mut found, &rows),
            Ok(false) => break,
            // The fault met a leaf that was read alone.
            Err(_) => struck += 1,
        }
    }
    assert!(found == expected, "{} rows", found.len());
    let all = long.store.fs.faults_struck();
    assert!(all > 10 && struck < all / 2, "{struck} of {all} faults were told of");
}

/// Short ranges of leaves that are on disk, of leaves of which changes are in memory, and of leaves in memory.
#[test]
fn short_ranges_are_read_in_parts_and_are_right() {
    let seed = seed();
    let random = SeededRandom::new(seed);
    let below = |limit: u32| (random.next_u64() % u64::from(limit)) as u32;
    let mut store = Store::new(BtreeOptions {
        cache_bytes: 1 << 20,
        threads: Some(1),
        ..BtreeOptions::default()
    });
    let mut content = BTreeMap::new();
    let mut write = |store: &mut Store, rows: &[u32]| {
        store.write(|batch| {
            for &row in rows {
                // Half of it compresses, so that tables have sections.
                let value = [vec![b'v'; 30], random.next_u64().to_be_bytes().repeat(3)].concat();
                match random.next_u64() % 8 {
                    0 => {
                        batch.delete(ROWS, key(row));
                        content.remove(&key(row));
                    }
                    1 if random.next_u64().is_multiple_of(200) => {
                        let large = value.repeat(1000);
                        batch.put(ROWS, key(row), large.clone());
                        content.insert(key(row), large);
                    }
                    2 if random.next_u64().is_multiple_of(200) => {
                        let range = key(row)..key(row + 20);
                        content.retain(|key, _| !range.contains(key));
                        batch.delete_range(
                            ROWS,
                            KeyRange {
                                start: Bound::Included(range.start),
                                end: Bound::Excluded(range.end),
                            },
                        );
                    }
                    _ => {
                        batch.put(ROWS, key(row), value.clone());
                        content.insert(key(row), value);
                    }
                }
            }
        });
        while !store.engine.throttle() {}
        content.clone()
    };
    const ROWS_OF_ALL: u32 = 60_000;
    let all: Vec<u32> = (0..ROWS_OF_ALL).collect();
    for rows in all.chunks(1000) {
        write(&mut store, rows);
    }
    store.checkpoint();
    let mut in_part = 0;
    // The newest, and older ones.
    let mut views = VecDeque::new();
    for round in 0..30 {
        let near: Vec<u32> = (0..20).map(|_| below(ROWS_OF_ALL)).collect();
        let content = write(&mut store, &near);
        views.push_back((store.engine.snapshot().expect("a snapshot"), content));
        if views.len() > 3 {
            views.pop_front();
        }
        if round % 10 == 5 {
            store.checkpoint();
        }
        let before = store.base().counters.read_in_part.get();
        for _ in 0..100 {
            let (view, content) = &views[below(views.len() as u32) as usize];
            // Often where something was written.
            let from = match below(2) {
                0 => near[below(20) as usize].saturating_sub(below(100)),
                _ => below(ROWS_OF_ALL),
            };
            let (low, high) = (key(from), key(from + below(500)));
            if low == high {
                continue;
            }
            // An empty range, now and then.
            let is_empty = below(20) == 0;
            let (low, high) = if is_empty { (high, low) } else { (low, high) };
            let bounds = |key: &[u8]| match below(8) {
                0 => Bound::Unbounded,
                1..4 => Bound::Excluded(key.to_vec()),
                _ => Bound::Included(key.to_vec()),
            };
            let range = match is_empty {
                true => KeyRange {
                    start: Bound::Included(low),
                    end: Bound::Included(high),
                },
                false => KeyRange {
                    start: bounds(&low),
                    end: bounds(&high),
                },
            };
            let direction = [Direction::Forward, Direction::Reverse][below(2) as usize];
            let limits = FillLimits {
                rows_max: 1 + below(80) as usize,
                ..LIMITS
            };
            let take = if is_empty { 0 } else { 200 };
            let wanted = match is_empty {
                true => content.range::<Vec<u8>, _>(..),
                false => content.range((range.start.clone(), range.end.clone())),
            };
            let wanted = wanted.map(|(key, value)| (key.clone(), value.clone()));
            let expected: Vec<_> = match direction {
                Direction::Forward => wanted.take(take).collect(),
                Direction::Reverse => wanted.rev().take(take).collect(),
            };
            let bounds_of_range = (range.start.clone(), range.end.clone());
            let told = format!("seed {seed}: {direction:?} {range:?} {}", limits.rows_max);
            let mut cursor = view.clone().cursor(ROWS, range, direction).expect("a cursor");
            let (mut rows, mut found) = (Rows::new(), Vec::new());
            while found.len() <= take && cursor.fill(&mut rows, limits).expect("rows") {
                add(&mut found, &rows);
            }
            if found.len() > take && !is_empty {
                found.truncate(take);
            }
            assert!(found == expected, "{told}: {} of {}", found.len(), expected.len());
            // On from another place, behind or ahead, of which a part may be there.
            if !is_empty {
                let to = key(from + below(500));
                let is_left = |(key, _): &(&Vec<u8>, &Vec<u8>)| match direction {
                    Direction::Forward => **key >= to,
                    Direction::Reverse => **key <= to,
                };
                let left = content.range(bounds_of_range).filter(is_left);
                let expected: Vec<_> = match direction {
                    Direction::Forward => left.map(|(key, _)| key.clone()).take(30).collect(),
                    Direction::Reverse => left.rev().map(|(key, _)| key.clone()).take(30).collect(),
                };
                cursor.seek(&to).expect("a seek");
                let mut found = Vec::new();
                while found.len() < 30 && cursor.fill(&mut rows, limits).expect("rows") {
                    found.extend((0..rows.len()).map(|row| rows.key(row).to_vec()));
                }
                found.truncate(30);
                assert!(found == expected, "{told}, from {to:?} on");
            }
        }
        in_part += store.base().counters.read_in_part.get() - before;
    }
    assert!(in_part > 500, "{in_part} reads of a part");
}

/// Blocks that are one section, as those of documents with much in common are.
#[test]
fn rows_side_by_side_are_decompressed_once() {
    let mut store = Store::new(BtreeOptions {
        cache_bytes: 1 << 20,
        threads: Some(1),
        ..BtreeOptions::default()
    });
    let random = SeededRandom::new(1);
    let mut common = vec![0; 400];
    random.fill(&mut common);
    let value = |row: u32| [common.clone(), row.to_be_bytes().to_vec()].concat();
    for first in (0..ROWS_MAX).step_by(500) {
        store.write(|batch| (first..first + 500).for_each(|row| batch.put(ROWS, key(row), value(row))));
        while !store.engine.throttle() {}
    }
    store.checkpoint();
    store.base().workers.drain().expect("all is done");
    let counters = &store.base().counters;
    let opened = || counters.pages_read.get() + counters.read_again.get();
    let view = store.engine.snapshot().expect("a snapshot");
    let read = |row: u32| view.get(ROWS, &key(row)).expect("no error");
    // Until there is no room left.
    for row in (0..ROWS_MAX).step_by(3) {
        read(row);
    }
    // A few rows of many leaves.
    let (before, from_last) = (opened(), counters.read_from_last.get());
    for row in (0..ROWS_MAX).step_by(100).flat_map(|first| first..first + 10) {
        assert_eq!(read(row).as_deref(), Some(&value(row)[..]), "row {row}");
    }
    let (opened_once, taken) = (opened() - before, counters.read_from_last.get() - from_last);
    println!("XX {taken} rows from the last block, {opened_once} blocks");
    assert!(
        taken > 3 * opened_once,
        "{taken} rows from the last block, {opened_once} blocks"
    );
    // What is written meanwhile is seen by those who come later.
    let reread = ROWS_MAX / 2;
    assert!(read(reread).is_some());
    store.write(|batch| batch.put(ROWS, key(reread), b"new".to_vec()));
    let later = store.engine.snapshot().expect("a snapshot");
    let now = later.get(ROWS, &key(reread)).expect("no error");
    assert_eq!(now.as_deref(), Some(&b"new"[..]));
}

/// One leaf that is read again and again becomes a page.
#[test]
fn a_leaf_that_is_read_again_and_again_comes_into_memory() {
    let store = store();
    let tree = store.tree(ROWS);
    let on_disk = |key: &[u8]| {
        matches!(
            tree.descend(Target::At(key), 0, &rcu::pin()).child,
            Child::OnDisk { level: 0, .. }
        )
    };
    let view = store.engine.snapshot().expect("a snapshot");
    // Until there is no room left.
    for row in (0..ROWS_MAX).step_by(3) {
        view.get(ROWS, &key(row)).expect("no error");
    }
    let key = (0..ROWS_MAX).map(key).find(|key| on_disk(key)).expect("one on disk");
    let reads = (0..1000)
        .take_while(|_| {
            view.get(ROWS, &key).expect("no error");
            on_disk(&key)
        })
        .count();
    assert!(reads < 200, "after {reads} reads");
}
