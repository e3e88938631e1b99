//! The state of the one who writes is the state of whoever reads the log: every row of every table, on every engine.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::Index;
use crate::recovery::model_tests::{Run, seed_or};
use crate::storage::StorageOptions;
use crate::testing::EqualCompiler;
use engine::{Engine, TableSpec};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::InMemoryEngine;
use oplog::{Log, LogOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use vfs::FileSystem;

/// All tables with their rows.
type State = BTreeMap<TableId, (TableSpec, Vec<(Vec<u8>, Vec<u8>)>)>;

fn state(engine: &dyn Engine) -> State {
    let snapshot = engine.snapshot().unwrap();
    let rows_of = |table| {
        let mut cursor = snapshot
            .clone()
            .cursor(table, KeyRange::all(), Direction::Forward)
            .unwrap();
        let (mut rows, mut all) = (Rows::new(), Vec::new());
        while cursor.fill(&mut rows, FillLimits::default()).unwrap() {
            all.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), rows.value(row).to_vec())));
        }
        all
    };
    let tables = engine.tables().unwrap().into_iter();
    tables.map(|(table, spec)| (table, (spec, rows_of(table)))).collect()
}

/// Array places of the indexes of a collection.
type Multikey = Vec<(String, Vec<(usize, usize)>)>;

/// What is kept in memory beside the engine: of each collection its name, counts and array places.
fn in_memory(storage: &Storage) -> Vec<(Namespace, u64, u64, Multikey)> {
    let mut all: Vec<_> = storage
        .catalog()
        .all_collections()
        .iter()
        .map(|c| {
            let multikey = |index: &Arc<Index>| (index.name().to_owned(), index.multikey().iter().collect());
            (
                c.namespace().clone(),
                c.count(),
                c.data_bytes(),
                c.maintained().map(multikey).collect(),
            )
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn whoever_reads_the_log_has_the_state_of_the_one_who_wrote_it() {
    for round in 0..4 {
        let mut run = Run::new(seed_or(5000 + round));
        run.keeps_log = true;
        (0..250).for_each(|_| run.step().unwrap());
        let written = state(run.storage.engine().as_ref());
        let rows: usize = written.values().map(|(_, rows)| rows.len()).sum();
        assert!(written.len() > 6 && rows > 30, "{} tables, {rows} rows", written.len());
        let kept = in_memory(&run.storage);
        run.storage.close(false).unwrap();
        let env = run.machine.env();
        for reader in ["inMemory", "btree"] {
            let directory = Path::new("/db/reader").join(reader);
            run.machine.fs.create_directory_all(&directory).unwrap();
            let engine: Arc<dyn Engine> = match reader {
                "inMemory" => Arc::new(InMemoryEngine::open(&env, &directory, Default::default()).unwrap()),
                _ => {
                    let options = BtreeOptions {
                        threads: Some(0),
                        ..BtreeOptions::default()
                    };
                    Arc::new(BtreeEngine::open(&env, &directory, options).unwrap())
                }
            };
            let mut log = LogOptions::new("/db/journal");
            log.segment_bytes = oplog::SEGMENT_BYTES_MIN;
            log.background = false;
            let log = Arc::new(Log::open(&env, log, Seq::ZERO).unwrap());
            let mut options = StorageOptions::new(Arc::new(EqualCompiler));
            options.background = false;
            options.sync_period = Duration::ZERO;
            let storage = Storage::open(env.clone(), engine, log, options).unwrap();
            assert_eq!(storage.stats().replayed_entries, storage.last_seq().0);
            assert_eq!(state(storage.engine().as_ref()), written, "{reader}");
            assert_eq!(in_memory(&storage), kept, "{reader}");
            storage.close(false).unwrap();
        }
    }
}
