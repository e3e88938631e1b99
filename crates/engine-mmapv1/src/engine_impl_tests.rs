//! Interleavings that only the engine's own locks can bring about.

use super::*;
use crate::files::ENTRIES_PER_PAGE;
use crate::loc::Loc;
use crate::space::Owner;
use engine::TableKind;
use vfs::{FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

fn open_engine() -> (SimulatedFs, Mmapv1Engine) {
    open_with_files_of(64 << 10)
}

fn open_with_files_of(first_file_bytes: u64) -> (SimulatedFs, Mmapv1Engine) {
    let fs = SimulatedFs::new(1);
    fs.create_directory_all(Path::new("/d")).expect("a new disk");
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    let options = Mmapv1Options {
        first_file_bytes,
        namespace_bytes: 64 << 10,
        preallocate: false,
        ..Mmapv1Options::with_cache(16 << 20)
    };
    let engine = Mmapv1Engine::open(&env, Path::new("/d"), options).expect("an empty directory");
    (fs, engine)
}

fn create_tables(engine: &Mmapv1Engine, names: &[&str]) {
    let mut batch = Batch::new();
    for (number, name) in (1..).zip(names) {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: (*name).into(),
            compressor: None,
        };
        batch.create_table(TableId(number), spec);
        batch.put(TableId(number), 1u64.to_be_bytes().to_vec(), vec![7; 100]);
    }
    engine.apply(&batch, Seq(1)).expect("tables");
    engine.publish(Seq(1));
}

/// A load got its first page in a new file of a database while a checkpoint's cut was drawn, behind the list of that
/// database's files: the page was taken to be written, and was nowhere.
#[test]
fn pages_that_a_load_adds_while_a_cut_is_drawn_stay_dirty() {
    let (_fs, engine) = open_engine();
    create_tables(&engine, &["a.t", "b.t"]);
    let core = &engine.core;
    let databases = core.shared.all_databases();
    let first_file = databases[0].files().remove(0);
    let listed = Arc::strong_count(&first_file) + 1;
    let page = thread::scope(|scope| {
        let in_the_way = databases[1].space.lock();
        let checkpoint = scope.spawn(|| engine.checkpoint());
        // The first database is in the cut; the second one's turn comes behind the lock.
        while Arc::strong_count(&first_file) < listed {
            thread::yield_now();
        }
        let extent = databases[0]
            .allocate(ENTRIES_PER_PAGE, ENTRIES_PER_PAGE, Owner::UNFINISHED)
            .expect("a new file");
        assert!(extent.file > 0, "{extent:?}");
        let page = Loc::of_page(extent.file, extent.start);
        let pager = core.shared.pager(&databases[0], Owner::UNFINISHED);
        pager.create(page, |page| page[0] = 9).expect("a place of the database");
        drop(in_the_way);
        checkpoint.join().expect("no panic").expect("there is room");
        page
    });
    let written = || databases[0].files()[page.file() as usize].checksums.read()[page.page() as usize] != 0;
    assert!(!written());
    core.owes_checkpoint.store(true, Relaxed);
    engine.checkpoint().expect("there is room");
    assert!(written(), "the next checkpoint has it");
}

/// A checkpoint waited for a batch that failed half way, and made that half durable.
#[test]
fn a_checkpoint_that_waited_for_a_batch_that_failed_writes_nothing() {
    let (_fs, engine) = open_engine();
    create_tables(&engine, &["a.t"]);
    let core = &engine.core;
    let durable = engine.durable_seq();
    thread::scope(|scope| {
        let mut applier = core.applier.lock();
        let checkpoint = scope.spawn(|| engine.checkpoint());
        while core.disk.try_lock().is_some() {
            thread::yield_now();
        }
        applier.last = Seq(2);
        core.shared.status.stop("a batch failed".into());
        drop(applier);
        let answer = checkpoint.join().expect("no panic");
        assert!(matches!(answer, Err(EngineError::Stopped(_))), "{answer:?}");
    });
    assert_eq!((engine.durable_seq(), core.disk.lock().root.seq), (durable, durable));
}

/// A checkpoint gives back a gigabyte of what was dropped. Where nobody wrote any more the rest stayed.
#[test]
fn what_a_checkpoint_did_not_give_back_the_next_one_does_without_being_asked() {
    const GIGABYTE_PAGES: u32 = 128 << 10;
    let (_fs, engine) = open_with_files_of(2 << 30);
    create_tables(&engine, &["a.t"]);
    let core = &engine.core;
    let database = core.shared.all_databases().remove(0);
    let pages = GIGABYTE_PAGES + 10_000;
    let dropped = database
        .allocate(pages, pages, Owner::table(TableId(9)))
        .expect("the first file has them");
    core.applier.lock().release(&database, &[dropped]);
    engine.checkpoint().expect("there is room");
    let applier = core.applier.lock();
    assert!(core.gives_back.load(Relaxed) || !applier.has_released());
}

/// A check of a whole table kept each batch that wrote to it waiting, and with that batch all others and all readers.
#[test]
fn the_check_of_a_table_gives_way_to_a_batch() {
    let (_fs, engine) = open_engine();
    create_tables(&engine, &["a.t"]);
    let mut batch = Batch::new();
    (2..1_000u64).for_each(|id| batch.put(TableId(1), id.to_be_bytes().to_vec(), vec![7; 100]));
    engine.apply(&batch, Seq(2)).expect("rows");
    let shared = &engine.core.shared;
    let table = shared.live_table(TableId(1)).expect("it was made");
    let report = engine
        .maintain(&Maintenance::Verify(Some(TableId(1))))
        .expect("readable");
    assert_eq!((report.rows_checked, report.problems), (999, vec![]));
    let is_checking = AtomicBool::new(false);
    thread::scope(|scope| {
        let check = scope.spawn(|| {
            let state = table.state.read();
            let mut steps = 0;
            let gave_way = verify::check_still_space(&table.pager(shared), &state.store, &mut || {
                steps += 1;
                if steps < 1_000 {
                    return Ok(());
                }
                // In the middle of it, whenever the batch comes.
                is_checking.store(true, Relaxed);
                while !table.has_writers_waiting() {
                    thread::yield_now();
                }
                Err(EngineError::Closed)
            });
            gave_way.is_err()
        });
        while !is_checking.load(Relaxed) {
            thread::yield_now();
        }
        let mut batch = Batch::new();
        batch.put(TableId(1), 1u64.to_be_bytes().to_vec(), vec![8; 100]);
        engine.apply(&batch, Seq(3)).expect("a row");
        assert!(check.join().expect("no panic"));
    });
    assert!(!table.has_writers_waiting());
}

/// Free slots that an older version had put into the buckets of its day served nobody who needed as much.
#[test]
fn large_free_slots_are_found_in_the_buckets_of_an_older_version() {
    const OLD_BUCKET: usize = 17;
    const BUCKET: usize = 19;
    let (_fs, engine) = open_engine();
    create_tables(&engine, &["a.t"]);
    let row = |seq: u64| {
        let mut batch = Batch::new();
        batch.put(TableId(1), 2u64.to_be_bytes().to_vec(), vec![7; 5 << 20]);
        engine.apply(&batch, Seq(seq)).expect("a row");
        engine.publish(Seq(seq));
    };
    row(2);
    let mut batch = Batch::new();
    batch.delete(TableId(1), 2u64.to_be_bytes().to_vec());
    engine.apply(&batch, Seq(3)).expect("a row less");
    engine.publish(Seq(3));
    let table = engine.core.shared.live_table(TableId(1)).expect("it was made");
    let before = {
        let mut state = table.state.write();
        assert!(!state.store.buckets[BUCKET].is_null());
        assert!(state.store.buckets[OLD_BUCKET].is_null());
        state.store.buckets.swap(OLD_BUCKET, BUCKET);
        state.store.storage_bytes()
    };
    row(4);
    let state = table.state.read();
    assert_eq!(state.store.storage_bytes(), before);
    assert!(state.store.buckets[OLD_BUCKET].is_null());
}

/// Each table's copy may be as large as what may be dirty, and nobody waited between two: a collection with many
/// indexes took many times the cache.
#[test]
fn a_compaction_of_many_tables_waits_for_checkpoints() {
    const TABLES: u32 = 8;
    const ROWS: u64 = 5000;
    let (_fs, engine) = open_engine();
    let names: Vec<String> = (0..TABLES).map(|number| format!("a.t{number}")).collect();
    create_tables(&engine, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut seq = 1;
    let mut write = |table: u32, keep: &dyn Fn(u64) -> Option<Vec<u8>>| {
        seq += 1;
        let mut batch = Batch::new();
        for number in 0..ROWS {
            let key = number.to_be_bytes().to_vec();
            match keep(number) {
                Some(value) => batch.put(TableId(table), key, value),
                None => batch.delete(TableId(table), key),
            }
        }
        engine.apply(&batch, Seq(seq)).expect("a batch");
        engine.publish(Seq(seq));
        engine.checkpoint().expect("there is room");
    };
    for table in 1..=TABLES {
        write(table, &|_| Some(vec![3; 1000]));
        write(table, &|number| (number % 2 == 0).then(|| vec![4; 1000]));
    }
    let core = &engine.core;
    let copied: u64 = core
        .shared
        .all_tables()
        .iter()
        .map(|table| table.state.read().store.used_bytes)
        .sum();
    assert!(copied > core.shared.options.cache_bytes, "{copied} bytes are copied");
    engine.maintain(&Maintenance::Compact(None)).expect("there is room");
    let dirty = core.shared.cache.dirty_bytes();
    assert!(dirty <= 3 * core.dirty_aim(), "{dirty} bytes are dirty");
    let report = engine.maintain(&Maintenance::Verify(None)).expect("it can be read");
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(report.rows_checked, u64::from(TABLES) * ROWS / 2);
}

/// A load went on without end while somebody copied the files; a compaction that was to end waited on.
#[test]
fn what_waits_for_a_checkpoint_ends_when_it_is_told_to_and_a_load_waits_for_a_copy() {
    let (_fs, engine) = open_engine();
    create_tables(&engine, &["a.t"]);
    let core = &engine.core;
    // No checkpoint comes.
    let disk = core.disk.lock();
    let mut batch = Batch::new();
    (0..10_000u64).for_each(|id| batch.put(TableId(1), id.to_be_bytes().to_vec(), vec![7; 1000]));
    engine.apply(&batch, Seq(2)).expect("rows");
    engine.publish(Seq(2));
    assert!(core.shared.cache.dirty_bytes() > 2 * core.dirty_aim());
    let ended = core.pace(Some(&|| false));
    assert!(matches!(ended, Err(EngineError::Interrupted)), "{ended:?}");
    engine.keep_files(true).expect("it is open");
    core.pace(Some(&|| true)).expect("a compaction goes on");
    drop(disk);
    thread::scope(|scope| {
        core.owes_checkpoint.store(false, Relaxed);
        let load = scope.spawn(|| core.pace(None));
        while !core.owes_checkpoint.load(Relaxed) {
            thread::yield_now();
        }
        // It has begun to wait, and would soon be through.
        (0..10_000).for_each(|_| thread::yield_now());
        let is_waiting = !load.is_finished();
        engine.keep_files(false).expect("it is open");
        load.join().expect("no panic").expect("there is room");
        assert!(is_waiting);
    });
    assert!(core.shared.cache.dirty_bytes() <= 2 * core.dirty_aim());
}

/// A compaction of a table that had nothing to give back waited for a checkpoint.
#[test]
fn a_compaction_does_not_wait_for_the_sake_of_a_table_that_is_left_alone() {
    let (_fs, engine) = open_engine();
    create_tables(&engine, &["a.t"]);
    let core = &engine.core;
    let disk = core.disk.lock();
    let mut batch = Batch::new();
    let spec = TableSpec {
        kind: TableKind::Records,
        name: "a.empty".into(),
        compressor: None,
    };
    batch.create_table(TableId(2), spec);
    (0..10_000u64).for_each(|id| batch.put(TableId(1), id.to_be_bytes().to_vec(), vec![7; 1000]));
    engine.apply(&batch, Seq(2)).expect("rows");
    engine.publish(Seq(2));
    assert!(core.shared.cache.dirty_bytes() > 2 * core.dirty_aim());
    let compacted = core.compact_tables(Some(&[TableId(2)]), &|| true);
    compacted.expect("there is nothing to do");
    drop(disk);
}
