//! Space on disk: it is given back by itself, and none of it is lost by a crash.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use engine::{
    Batch, Direction, Engine, FillLimits, KeyRange, Maintenance, Rows, Seq, Snapshot, StatValue, TableId, TableKind,
    TableSpec,
};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_soak::{Dice, Place, check};
use std::sync::Arc;
use vfs::{Random, SystemRandom};

const ROWS: TableId = TableId(1);
const LARGE: TableId = TableId(2);

/// Values of so many bytes lie in blocks of their own.
const LARGE_BYTES: usize = 4000;

fn seed() -> u64 {
    let seed =
        std::env::var("TENON_SEED").map_or_else(|_| SystemRandom::new().next_u64(), |text| text.parse().unwrap());
    println!("TENON_SEED={seed}");
    seed
}

fn options(threads: usize) -> BtreeOptions {
    BtreeOptions {
        cache_bytes: 4 << 20,
        collection_compressor: codec::Codec::None,
        record_leaf_bytes: 4 << 10,
        large_value_bytes: LARGE_BYTES,
        threads: Some(threads),
        segment_bytes: 64 << 10,
        ..BtreeOptions::default()
    }
}

/// An engine, and the position of its last batch.
struct Store {
    place: Place,
    engine: Option<BtreeEngine>,
    options: BtreeOptions,
    seq: Seq,
    dice: Dice,
}

impl Store {
    fn new(threads: usize) -> Self {
        Self::with(options(threads))
    }

    fn with(options: BtreeOptions) -> Self {
        let seed = seed();
        let place = Place::simulated(seed);
        let engine = BtreeEngine::open(&place.env(), &place.directory(), options.clone()).unwrap();
        let mut store = Self {
            place,
            engine: Some(engine),
            options,
            seq: Seq(0),
            dice: Dice::new(seed),
        };
        store.write(|batch, _| {
            for table in [ROWS, LARGE] {
                let spec = TableSpec {
                    kind: TableKind::Records,
                    name: "one.rows".into(),
                    compressor: None,
                };
                batch.create_table(table, spec);
            }
        });
        store
    }

    fn engine(&self) -> &BtreeEngine {
        self.engine.as_ref().unwrap()
    }

    fn write(&mut self, fill: impl FnOnce(&mut Batch, &Dice)) {
        self.seq = self.seq.next();
        let mut batch = Batch::new();
        fill(&mut batch, &self.dice);
        let engine = self.engine.as_ref().unwrap();
        engine.apply(&batch, self.seq).unwrap();
        engine.publish(self.seq);
    }

    /// Writes the rows of some numbers with random bytes.
    fn put(&mut self, table: TableId, numbers: impl Iterator<Item = u64>, bytes: usize) {
        let numbers: Vec<u64> = numbers.collect();
        for numbers in numbers.chunks(50) {
            self.write(|batch, dice| {
                for number in numbers {
                    batch.put(table, number.to_be_bytes().to_vec(), dice.bytes(bytes));
                }
            });
        }
    }

    fn delete(&mut self, table: TableId, numbers: impl Iterator<Item = u64>) {
        let numbers: Vec<u64> = numbers.collect();
        for numbers in numbers.chunks(50) {
            self.write(|batch, _| {
                for number in numbers {
                    batch.delete(table, number.to_be_bytes().to_vec());
                }
            });
        }
    }

    /// Checkpoints as time would make them: each with something new, and with background work done in between.
    fn checkpoints(&mut self, count: usize) {
        for _ in 0..count {
            self.put(ROWS, std::iter::once(0), 10);
            self.engine().checkpoint().unwrap();
            self.sound("between checkpoints");
        }
    }

    /// Waits for background work, too.
    fn sound(&self, what: &str) {
        check::engine_is_sound(self.engine(), what).unwrap();
    }

    fn figure(&self, name: &str) -> u64 {
        let mut found = None;
        self.engine().stats(&mut |figure, value| {
            if figure == name
                && let StatValue::Number(value) = value
            {
                found = Some(value as u64);
            }
        });
        found.unwrap_or_else(|| panic!("the engine tells {name}"))
    }

    fn file_and_live(&self) -> (u64, u64) {
        (self.figure("files.bytes"), self.figure("files.usedBytes"))
    }

    /// Crashes, opens again, and looks for lost space.
    fn crash(&mut self) {
        let Place::Simulated(fs) = &self.place else {
            unreachable!("it was made so")
        };
        self.engine = None;
        let after = fs.after_crash(self.dice.next());
        self.place = Place::Simulated(after);
        let engine = BtreeEngine::open(&self.place.env(), &self.place.directory(), self.options.clone()).unwrap();
        self.seq = engine.durable_seq();
        self.engine = Some(engine);
        self.sound("after a crash");
    }

    fn row(&self, table: TableId, number: u64) -> Option<usize> {
        let view = self.engine().snapshot().unwrap();
        view.get(table, &number.to_be_bytes()).unwrap().map(|value| value.len())
    }

    fn compact(&self) {
        self.engine().maintain(&Maintenance::Compact(None)).unwrap();
        self.sound("after compacting");
    }

    #[track_caller]
    fn demand_small_file(&self) {
        let (file, live) = self.file_and_live();
        // The store grows in steps, and what relocation needs is worth a few segments.
        assert!(
            file <= live + live / 2 + 8 * u64::from(self.options.segment_bytes),
            "the file has {file} bytes for {live} of blocks"
        );
    }
}

/// The values of some rows.
fn values(view: &dyn Snapshot, table: TableId, numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    let value = |number: u64| view.get(table, &number.to_be_bytes()).unwrap().unwrap().to_vec();
    numbers.map(value).collect()
}

fn after_mass_delete(threads: usize) {
    let mut store = Store::new(threads);
    store.put(ROWS, 0..20_000, 200);
    store.engine().checkpoint().unwrap();
    let (full, _) = store.file_and_live();
    assert!(full > 4 << 20, "the load takes {full} bytes");
    store.delete(ROWS, (0..20_000).filter(|number| number % 1000 >= 100));
    store.checkpoints(14);
    let (file, live) = store.file_and_live();
    assert!(live < full / 5, "{live} of {full} bytes live on");
    assert!(file < full);
    store.demand_small_file();
    assert!(store.figure("files.blocksMoved") > 0);
    store.crash();
    for number in [5, 50, 19_099] {
        assert_eq!(store.row(ROWS, number), Some(200), "row {number}");
    }
    assert_eq!(store.row(ROWS, 500), None);
}

#[test]
fn files_shrink_by_themselves_after_a_mass_delete() {
    after_mass_delete(0);
}

#[test]
fn files_shrink_by_themselves_on_background_threads() {
    after_mass_delete(1);
}

#[test]
fn leaves_emptied_beside_a_reader_do_not_keep_files_long() {
    let mut store = Store::new(0);
    store.put(ROWS, 0..20_000, 200);
    store.engine().checkpoint().unwrap();
    let reader = store.engine().snapshot().unwrap();
    store.delete(ROWS, (0..20_000).filter(|number| number % 1000 >= 100));
    // What the reader sees is in memory: on disk are leaves without rows, at the end of the file.
    store.engine().checkpoint().unwrap();
    drop(reader);
    store.checkpoints(14);
    store.demand_small_file();
    store.crash();
    store.demand_small_file();
    assert_eq!((store.row(ROWS, 50), store.row(ROWS, 500)), (Some(200), None));
}

#[test]
fn files_stay_near_what_lives_while_every_row_is_updated_three_times() {
    let mut store = Store::new(0);
    store.put(ROWS, 0..10_000, 200);
    store.engine().checkpoint().unwrap();
    // A checkpoint writes a twentieth of the leaves anew, beside those that the one before refers to.
    let mut worst = 0;
    for round in 0..60 {
        let first = store.dice.below(20) * 500;
        let numbers: Vec<u64> = (0..500).map(|_| first + store.dice.below(500)).collect();
        store.put(ROWS, numbers.into_iter(), 200);
        store.engine().checkpoint().unwrap();
        store.sound(&format!("round {round}"));
        let (file, live) = store.file_and_live();
        worst = worst.max(file * 100 / live);
    }
    assert!(worst <= 150, "the file has {worst} % of what lives in it");
}

/// A store with large values, some of them of two pieces, of which few live on; and the numbers of these.
fn with_large_values(threads: usize) -> (Store, impl Iterator<Item = u64> + Clone + use<>) {
    const COUNT: u64 = 600;
    let is_kept = |number: &u64| number % 20 < 2;
    let mut store = Store::with(BtreeOptions {
        segment_bytes: 512 << 10,
        ..options(threads)
    });
    store.put(LARGE, 0..COUNT, 50_000);
    store.put(LARGE, (0..COUNT).step_by(60), 300_000);
    store.engine().checkpoint().unwrap();
    store.delete(LARGE, (0..COUNT).filter(move |number| !is_kept(number)));
    (store, (0..COUNT).filter(is_kept))
}

fn after_deleting_large_values(threads: usize) {
    let (mut store, kept) = with_large_values(threads);
    let before = values(&*store.engine().snapshot().unwrap(), LARGE, kept.clone());
    store.engine().checkpoint().unwrap();
    let (full, _) = store.file_and_live();
    store.checkpoints(16);
    let (file, live) = store.file_and_live();
    assert!(live < full && file < full, "{file} and {live} of {full} bytes");
    store.demand_small_file();
    let moved = values(&*store.engine().snapshot().unwrap(), LARGE, kept.clone());
    assert!(moved == before);
    store.crash();
    let after = values(&*store.engine().snapshot().unwrap(), LARGE, kept);
    assert!(after == before, "after a crash");
}

#[test]
fn files_shrink_by_themselves_when_large_values_go() {
    after_deleting_large_values(0);
}

#[test]
fn files_shrink_on_background_threads_when_large_values_go() {
    after_deleting_large_values(1);
}

/// Nothing is written meanwhile, so that old and new places belong to the same position.
#[test]
fn large_values_move_under_readers() {
    let (store, kept) = with_large_values(0);
    store.engine().checkpoint().unwrap();
    let view = store.engine().snapshot().unwrap();
    let before = values(&*view, LARGE, kept.clone());
    let mut cursor = view.clone().cursor(LARGE, KeyRange::all(), Direction::Forward).unwrap();
    let mut rows = Rows::new();
    let few = FillLimits {
        rows_max: 3,
        ..FillLimits::default()
    };
    cursor.fill(&mut rows, few).unwrap();
    let moved = store.figure("files.blocksMoved");
    store.compact();
    assert!(store.figure("files.blocksMoved") > moved + 20);
    let mut read: Vec<Vec<u8>> = Vec::new();
    while !rows.is_empty() {
        read.extend((0..rows.len()).map(|index| rows.value(index).to_vec()));
        cursor.fill(&mut rows, few).unwrap();
    }
    assert!(read == before && values(&*view, LARGE, kept.clone()) == before);
    drop(cursor);
    drop(view);
    store.compact();
    store.demand_small_file();
    let after = values(&*store.engine().snapshot().unwrap(), LARGE, kept);
    assert!(after == before);
}

/// A segment with a large value whose key is too long for a label is not emptied. It must be used again, and the others
/// emptied none the less.
#[test]
fn large_values_of_long_keys_stay_where_they_are_and_hold_nothing_else_up() {
    let mut store = Store::new(0);
    let key = |number: u64| [&number.to_be_bytes()[..], &[7; 250]].concat();
    for number in 0..4000 {
        store.put(ROWS, std::iter::once(number), 200);
        if number % 200 == 0 {
            store.write(|batch, dice| batch.put(LARGE, key(number), dice.bytes(2 * LARGE_BYTES)));
            store.engine().checkpoint().unwrap();
        }
    }
    store.engine().checkpoint().unwrap();
    store.delete(ROWS, (0..4000).filter(|number| number % 400 >= 40));
    store.checkpoints(12);
    let written = store.figure("files.blocksMoved");
    store.checkpoints(6);
    let more = store.figure("files.blocksMoved") - written;
    assert!(more < 40, "{more} pages were moved when there was nothing left to do");
    let view = store.engine().snapshot().unwrap();
    for number in (0..4000).step_by(200) {
        let value = view.get(LARGE, &key(number)).unwrap();
        assert_eq!(value.map(|value| value.len()), Some(2 * LARGE_BYTES));
    }
    drop(view);
    store.write(|batch, _| (0..4000).for_each(|number| batch.delete(LARGE, key(number))));
    store.checkpoints(10);
    store.demand_small_file();
}

/// Values that only readers, or only later checkpoints, want are not recorded as used.
#[test]
fn a_crash_leaves_no_large_value_behind() {
    let mut store = Store::new(0);
    store.put(LARGE, 0..40, 2 * LARGE_BYTES);
    store.engine().checkpoint().unwrap();
    let old: Arc<dyn Snapshot> = store.engine().snapshot().unwrap();
    for round in 0..4 {
        store.put(LARGE, 0..30, 2 * LARGE_BYTES + round);
        store.engine().checkpoint().unwrap();
        store.sound("with a reader");
    }
    assert_eq!(
        old.get(LARGE, &7_u64.to_be_bytes()).unwrap().map(|value| value.len()),
        Some(2 * LARGE_BYTES)
    );
    drop(old);
    let used = store.figure("files.usedBytes");
    store.crash();
    let (_, live) = store.file_and_live();
    assert!(
        live <= 45 * (2 * LARGE_BYTES as u64 + 1024) && live < used,
        "{live} of {used} bytes"
    );
    assert_eq!(store.row(LARGE, 7), Some(2 * LARGE_BYTES + 3));
    store.checkpoints(2);
    store.crash();
}

/// What a backup may read is not used again, whatever later checkpoints leave out.
#[test]
fn a_backup_keeps_large_values_that_checkpoints_leave_out() {
    let mut store = Store::new(0);
    store.put(LARGE, 0..20, 2 * LARGE_BYTES);
    let backup = store.engine().backup().unwrap();
    let view = store.engine().snapshot().unwrap();
    store.put(LARGE, 0..20, 3 * LARGE_BYTES);
    store.engine().checkpoint().unwrap();
    drop(view);
    for _ in 0..3 {
        store.put(LARGE, 100..140, 2 * LARGE_BYTES);
        store.engine().checkpoint().unwrap();
    }
    let env = store.place.env();
    let target = store.place.directory_beside("copy");
    env.fs.create_directory_all(&target).unwrap();
    for (name, bytes) in backup.files() {
        engine_soak::copy_file(
            &*env.fs,
            &store.place.directory().join(backup.root()).join(&name),
            &target.join(&name),
            bytes,
        )
        .unwrap();
    }
    drop(backup);
    let copy = BtreeEngine::open(&env, &target, store.options.clone()).unwrap();
    check::engine_is_sound(&copy, "the copy").unwrap();
    let view = copy.snapshot().unwrap();
    for number in 0..20_u64 {
        let value = view.get(LARGE, &number.to_be_bytes()).unwrap();
        assert_eq!(value.map(|value| value.len()), Some(2 * LARGE_BYTES), "row {number}");
    }
    drop(view);
    store.sound("after the backup");
}

/// A loaded table that no checkpoint has yet is gone after a crash, and its blocks with it.
#[test]
fn a_crash_leaves_nothing_of_a_table_that_came_after_the_cut() {
    let mut store = Store::new(0);
    store.put(ROWS, 0..100, 100);
    let table = TableId(9);
    let later = store.seq.next();
    let mut batch = Batch::new();
    let spec = TableSpec {
        kind: TableKind::Records,
        name: "one.loaded".into(),
        compressor: None,
    };
    batch.create_table(table, spec);
    store.engine().apply(&batch, later).unwrap();
    let rows = (0..300_u64).map(|number| {
        let bytes = if number % 10 == 0 { 2 * LARGE_BYTES } else { 100 };
        (number.to_be_bytes().to_vec(), vec![number as u8; bytes])
    });
    store.engine().bulk_load(table, &mut rows.into_iter(), later).unwrap();
    // Nobody sees it yet.
    store.engine().checkpoint().unwrap();
    store.sound("before it is published");
    store.crash();
    let tables: Vec<TableId> = store.engine().tables().unwrap().into_iter().map(|(id, _)| id).collect();
    assert_eq!(tables, [ROWS, LARGE]);
    assert!(store.figure("files.usedBytes") < 100 << 10);
    store.engine().maintain(&Maintenance::Compact(None)).unwrap();
    store.sound("at the end");
}

/// Rows of 60 bytes of value take 62 or 63 of a page. Leaves of 4 KiB would have 60 of them in 7.4 sectors; ones that
/// end sooner have 56 in 7.
#[test]
fn leaves_of_rows_in_order_fill_their_sectors() {
    const COUNT: u64 = 20_000;
    const BYTES_AT_MOST: u64 = 66;
    let mut store = Store::new(0);
    store.put(ROWS, 0..COUNT, 60);
    store.engine().checkpoint().unwrap();
    let appended = store.figure("files.usedBytes");
    assert!(appended < COUNT * BYTES_AT_MOST, "{appended}");

    let table = TableId(9);
    store.write(|batch, _| {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: "one.loaded".into(),
            compressor: None,
        };
        batch.create_table(table, spec);
    });
    let value = store.dice.bytes(60);
    let mut rows = (0..COUNT).map(|number| (number.to_be_bytes().to_vec(), value.clone()));
    store.engine().bulk_load(table, &mut rows, store.seq).unwrap();
    store.engine().checkpoint().unwrap();
    store.sound("after the load");
    let loaded = store.figure("files.usedBytes") - appended;
    assert!(loaded < COUNT * BYTES_AT_MOST, "{loaded}");
}
