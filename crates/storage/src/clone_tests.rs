//! Copies that are cut short and gone on with, on engines whose disk loses what was not synced.

use super::*;
use engine::{CloseMode, TableKind};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use parking_lot::Mutex;
use std::path::Path;
use vfs::{Env, FileSystem as _, SeededRandom, SimulatedFs, SystemClock};

const TABLES: u32 = 7;
const ROWS: u64 = 300;

fn header(seq: u64) -> CloneHeader {
    let spec = |kind, name: &str| TableSpec {
        kind,
        name: name.to_owned(),
        compressor: None,
    };
    let mut tables = vec![
        (CATALOG, spec(TableKind::Small, "catalog")),
        (STATISTICS, spec(TableKind::Small, "statistics")),
    ];
    let of_users =
        (100..100 + TABLES).map(|id| (TableId(id), spec(TableKind::Records, &format!("db{}.c{id}", id % 3))));
    tables.extend(of_users);
    CloneHeader {
        seq: Seq(seq),
        term: 3,
        time: ClusterTime(1 << 32),
        counts: (100..100 + TABLES).map(|id| (TableId(id), ROWS as i64, 1000)).collect(),
        tables,
    }
}

fn row(table: TableId, number: u64) -> (Vec<u8>, Vec<u8>) {
    (
        number.to_be_bytes().to_vec(),
        format!("{table:?} {number}").into_bytes(),
    )
}

/// Answers so many questions, over all connections.
struct Source(Mutex<usize>);

impl CloneRowsSource for Source {
    fn open(&self) -> Result<Box<dyn CloneRows + '_>, String> {
        Ok(Box::new(self))
    }
}

impl CloneRows for &Source {
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), String> {
        let mut left = self.0.lock();
        *left = left.checked_sub(1).ok_or("the source is gone")?;
        let first = after.map_or(0, |key| u64::from_be_bytes(key.try_into().expect("a number")) + 1);
        rows.extend((first..ROWS.min(first + 100)).map(|number| row(table, number)));
        Ok(())
    }
}

fn open(fs: &SimulatedFs, on_btree: bool) -> Arc<dyn Engine> {
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SeededRandom::new(1)),
    };
    let path = Path::new("/engine");
    match on_btree {
        true => Arc::new(BtreeEngine::open(&env, path, BtreeOptions::default()).expect("opened")),
        false => Arc::new(InMemoryEngine::open(&env, path, InMemoryOptions::default()).expect("opened")),
    }
}

fn rows_of(engine: &dyn Engine, table: TableId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = engine.snapshot().expect("a snapshot");
    let mut cursor = snapshot
        .cursor(table, KeyRange::all(), Direction::Forward)
        .expect("a cursor");
    let mut all = Vec::new();
    let mut rows = Rows::new();
    let limits = FillLimits {
        rows_max: usize::MAX,
        bytes_max: 1 << 20,
    };
    while cursor.fill(&mut rows, limits).expect("read") {
        all.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), rows.value(row).to_vec())));
    }
    all
}

/// The source and the copying server end again and again: each attempt goes on behind what is durable, and in the end
/// all is there, once.
#[test]
fn a_copy_goes_on_where_it_was_cut_short() {
    // At 6 there is no room for positions of groups: all is one.
    for (on_btree, threads, seq) in [
        (true, 1, 900),
        (true, 3, 900),
        (false, 1, 900),
        (false, 3, 900),
        (true, 2, 6),
    ] {
        let options = FillOptions {
            is_arbiter: false,
            threads,
            group_bytes: 1500,
        };
        let header = header(seq);
        let fs = SimulatedFs::new(seq + threads as u64);
        fs.create_directory_all(Path::new("/engine")).expect("created");
        for directory in ["/engine", "/"] {
            fs.sync_directory(Path::new(directory)).expect("synced");
        }
        let needed = (TABLES as usize + 1) * 4;
        let mut attempts = 0;
        let mut asked = 0;
        loop {
            let engine = open(&fs, on_btree);
            // Enough for one group and a part of the next.
            let patience = if seq > 6 { 13 } else { needed };
            let source = Source(Mutex::new(patience));
            let filled = fill_from_clone(&*engine, &header, &source, options);
            asked += patience - *source.0.lock();
            attempts += 1;
            if filled.is_ok() {
                engine.close(CloseMode::Checkpoint).expect("closed");
                break;
            }
            assert!(attempts < 20, "{filled:?}");
            engine.close(CloseMode::Abandon).expect("closed");
            drop(engine);
            fs.crash();
            fs.restart();
        }
        let engine = open(&fs, on_btree);
        assert_eq!(engine.durable_seq(), Seq(seq));
        for (table, _) in header.tables.iter().filter(|(table, _)| *table != STATISTICS) {
            let expected: Vec<_> = (0..ROWS).map(|number| row(*table, number)).collect();
            assert_eq!(rows_of(&*engine, *table), expected, "{table:?}");
        }
        assert_eq!(rows_of(&*engine, STATISTICS), statistics(&header));
        assert!(
            seq == 6 || attempts > 1 && asked < attempts * needed,
            "{attempts} attempts, {asked} questions"
        );
    }
}

/// A table whose source fails is not there in part.
#[test]
fn no_table_is_there_in_part() {
    let options = FillOptions {
        is_arbiter: false,
        threads: 1,
        group_bytes: u64::MAX,
    };
    for answers in 0..12 {
        let fs = SimulatedFs::new(answers);
        fs.create_directory_all(Path::new("/engine")).expect("created");
        let engine = open(&fs, true);
        let source = Source(Mutex::new(answers as usize));
        let failed = fill_from_clone(&*engine, &header(900), &source, options);
        assert!(matches!(failed, Err(StorageError::CloneFailed(reason)) if reason == "the source is gone"));
        engine.publish(Seq(900));
        for (table, _) in header(900).tables {
            let count = rows_of(&*engine, table).len() as u64;
            assert!([0, ROWS, u64::from(TABLES) + 1].contains(&count), "{table:?}: {count}");
        }
    }
}
