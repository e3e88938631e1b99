//! Salvage of small stores with every block damaged in turn, and of files that are worse off.

#![allow(clippy::unwrap_used, reason = "a test: a failed step is a failed test")]

use super::*;
use crate::page::LeafImage;
use blocks::{BlockKind, BlockStore, SalvagedBlock};
use engine::{Direction, FillLimits, KeyRange, TableKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vfs::{Access, SeededRandom, SimulatedClock, SimulatedFs};

const DIRECTORY_PATH: &str = "/data";
const RECORDS: TableId = TableId(3);
const INDEX: TableId = TableId(4);

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn env(fs: SimulatedFs) -> Env {
    Env {
        fs: Arc::new(fs),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    }
}

fn options() -> BtreeOptions {
    BtreeOptions {
        cache_bytes: 1 << 20,
        record_leaf_bytes: 512,
        index_leaf_bytes: 512,
        large_value_bytes: 2048,
        threads: Some(0),
        segment_bytes: 32 << 10,
        ..BtreeOptions::default()
    }
}

fn directory() -> &'static Path {
    Path::new(DIRECTORY_PATH)
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A value that tells its key and version; every 16th is large.
fn value(number: u64, version: u64) -> Vec<u8> {
    let random = SeededRandom::new(number * 1000 + version);
    let mut bytes = vec![0; if number.is_multiple_of(16) { 3000 } else { 40 }];
    vfs::Random::fill(&random, &mut bytes);
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..16].copy_from_slice(&version.to_be_bytes());
    bytes
}

/// What a store holds, and what it ever held.
struct Built {
    fs: SimulatedFs,
    tables: BTreeMap<u32, Content>,
    ever: BTreeSet<(u32, Vec<u8>, Vec<u8>)>,
    seq: Seq,
}

impl Built {
    /// Writes `rounds` times to rows of two tables, a checkpoint after each; the first one writes all rows.
    fn new(rounds: u64) -> Self {
        Self::with(rounds, options())
    }

    fn with(rounds: u64, options: BtreeOptions) -> Self {
        let fs = SimulatedFs::new(7);
        let env = env(fs.clone());
        vfs::create_directory_durably(&*env.fs, directory()).unwrap();
        let engine = BtreeEngine::open(&env, directory(), options).unwrap();
        let mut batch = Batch::new();
        for (id, kind) in [(RECORDS, TableKind::Records), (INDEX, TableKind::Index)] {
            let spec = TableSpec {
                kind,
                name: format!("db.c{}", id.0),
                compressor: None,
            };
            batch.create_table(id, spec);
        }
        let mut built = Self {
            fs,
            tables: BTreeMap::new(),
            ever: BTreeSet::new(),
            seq: Seq(1),
        };
        engine.apply(&batch, Seq(1)).unwrap();
        for round in 0..rounds {
            for id in [RECORDS, INDEX] {
                let mut batch = Batch::new();
                for number in (0..300).filter(|number| round == 0 || number % 7 == round) {
                    let (key, value) = (key(number), value(number, round));
                    batch.put(id, key.clone(), value.clone());
                    built.ever.insert((id.0, key.clone(), value.clone()));
                    built.tables.entry(id.0).or_default().insert(key, value);
                }
                // Whole leaves go, whose images stay in the file.
                for number in (60..260).filter(|_| round == 5) {
                    batch.delete(id, key(number));
                    built.tables.entry(id.0).or_default().remove(&key(number));
                }
                built.seq = built.seq.next();
                engine.apply(&batch, built.seq).unwrap();
                engine.publish(built.seq);
            }
            assert_eq!(engine.checkpoint().unwrap(), built.seq);
        }
        // Another checkpoint would leave a second image of the table of tables.
        engine.close(CloseMode::Abandon).unwrap();
        built
    }

    /// A copy on another disk.
    fn copy(&self) -> (SimulatedFs, Env) {
        let fs = self.fs.after_crash(0);
        (fs.clone(), env(fs))
    }

    fn blocks(&self) -> Vec<SalvagedBlock> {
        let mut blocks = Vec::new();
        let env = env(self.fs.clone());
        BlockStore::salvage_scan(&env, directory(), &mut |block| blocks.push(block)).unwrap();
        blocks
    }

    fn salvage(&self, env: &Env) -> (SalvageReport, BTreeMap<u32, Content>) {
        let salvaged = BtreeEngine::salvage(env, directory(), options()).unwrap();
        let report = salvaged.put_in_place().unwrap();
        assert!(
            env.fs.exists(&report.kept.join("main.blocks")).unwrap(),
            "{:?}",
            report.kept
        );
        let content = content(env);
        for (id, rows) in &content {
            for (key, value) in rows {
                let row = (*id, key.clone(), value.clone());
                assert!(self.ever.contains(&row), "never written: {id} {key:02x?}");
            }
            let kept = report.tables.iter().find(|table| table.id.0 == *id).unwrap();
            assert_eq!(kept.rows, rows.len() as u64);
        }
        (report, content)
    }
}

/// All tables of the store, which must be sound.
fn content(env: &Env) -> BTreeMap<u32, Content> {
    let engine = BtreeEngine::open(env, directory(), options()).unwrap();
    assert_eq!(
        engine.maintain(&Maintenance::Verify(None)).unwrap().problems,
        Vec::<String>::new()
    );
    let snapshot = engine.snapshot().unwrap();
    let mut tables = BTreeMap::new();
    for (id, _) in engine.tables().unwrap() {
        let mut cursor = snapshot
            .clone()
            .cursor(id, KeyRange::all(), Direction::Forward)
            .unwrap();
        let mut rows = engine::Rows::new();
        let mut content = Content::new();
        while cursor.fill(&mut rows, FillLimits::default()).unwrap() {
            content.extend((0..rows.len()).map(|row| (rows.key(row).to_vec(), rows.value(row).to_vec())));
        }
        tables.insert(id.0, content);
    }
    drop(snapshot);
    engine.close(CloseMode::Abandon).unwrap();
    tables
}

fn flip(fs: &SimulatedFs, block: &SalvagedBlock) {
    let offset = block.addr.sector() * blocks::SECTOR_BYTES as u64 + 50;
    fs.flip_bit(&block.path, offset, 3).unwrap();
}

/// The rows of the model outside of what the report calls in doubt.
fn certain(report: &SalvageReport, id: u32, rows: &Content) -> Content {
    let ranges = report
        .tables
        .iter()
        .filter(|table| table.id.0 == id)
        .flat_map(|table| &table.ranges);
    let ranges: Vec<&LostRange> = ranges.collect();
    let outside = |key: &Vec<u8>| {
        !ranges
            .iter()
            .any(|range| *key >= range.low && range.high.as_ref().is_none_or(|high| key < high))
    };
    let rows = rows.iter().filter(|(key, _)| outside(key));
    rows.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn an_undamaged_store_stays_as_it_is() {
    let built = Built::new(3);
    let (_, env) = built.copy();
    let (report, content) = built.salvage(&env);
    assert!(!report.is_damaged(), "{report}");
    assert_eq!((content, report.durable), (built.tables.clone(), built.seq));
    assert_eq!(report.kept, PathBuf::from("/data.damaged"));
    let (again, _) = built.salvage(&env);
    assert_eq!(again.kept, PathBuf::from("/data.damaged-2"));
}

/// After one checkpoint there are no older images: a leaf's rows are lost, those of others and all below inner pages
/// are there.
#[test]
fn every_damaged_block_costs_its_own_rows_only() {
    let built = Built::new(1);
    let mut kinds = BTreeMap::new();
    for block in built.blocks() {
        let (fs, env) = built.copy();
        flip(&fs, &block);
        let (report, content) = built.salvage(&env);
        *kinds.entry(block.kind as u8).or_insert(0) += 1;
        let mut expected = built.tables.clone();
        let lost_from = expected.get_mut(&block.owner).filter(|_| block.kind == BlockKind::Leaf);
        if let Some(rows) = lost_from {
            let image = LeafImage::decode(&block.raw).unwrap();
            for row in 0..image.len() {
                assert!(rows.remove(&image.key(row).to_vec()).is_some());
            }
        }
        if block.kind == BlockKind::Large {
            let table = report.tables.iter().find(|table| table.id.0 == block.owner).unwrap();
            assert_eq!(table.values_lost, 1);
            let lost: Vec<_> = expected[&block.owner]
                .iter()
                .filter(|(key, _)| !content[&block.owner].contains_key(*key))
                .map(|(key, _)| key.clone())
                .collect();
            assert_eq!(lost.len(), 1);
            expected.get_mut(&block.owner).unwrap().remove(&lost[0]);
        }
        if block.kind == BlockKind::Leaf && block.owner == u32::MAX {
            assert!(content.is_empty() && report.directory_is_damaged(), "{report}");
            assert_eq!(report.ownerless.len(), 2, "{report}");
            continue;
        }
        assert_eq!(content, expected, "{block:?}\n{report}");
        let costs = matches!(block.kind, BlockKind::Leaf | BlockKind::Inner | BlockKind::Large);
        assert_eq!(report.is_damaged(), costs, "{:?}\n{report}", block.kind);
        assert_eq!(report.durable, built.seq);
    }
    let kind = |kind: BlockKind| kinds.get(&(kind as u8)).copied().unwrap_or(0);
    assert!(kind(BlockKind::Leaf) > 8 && kind(BlockKind::Inner) == 2, "{kinds:?}");
    assert!(
        kind(BlockKind::Large) > 30 && kind(BlockKind::Map) > 0 && kind(BlockKind::Meta) > 0,
        "{kinds:?}"
    );
}

/// After many checkpoints the files hold old images, too: outside of gaps nothing changes, inside only what was written
/// once.
#[test]
fn old_images_fill_gaps_and_nothing_else() {
    let built = Built::new(6);
    let (mut filled, mut inner, mut saved) = (0, 0, 0);
    for block in built.blocks() {
        let (fs, env) = built.copy();
        flip(&fs, &block);
        let (report, content) = built.salvage(&env);
        saved += report.saved_blocks_lost;
        if report.saved_blocks_lost > 0 {
            // Every row is one that was there once, and which of them are outdated nobody can tell.
            assert!(report.is_damaged() && report.to_string().contains("saved deltas"));
            continue;
        }
        if block.kind == BlockKind::Leaf && block.owner == u32::MAX {
            // The trees of an older table of tables are not what is wanted.
            assert_eq!(content, built.tables, "{report}");
        }
        if block.kind == BlockKind::Inner {
            // The map tells the leaves below from those that were written anew or removed.
            assert_eq!(content, built.tables, "{:?}\n{report}", block.addr);
            inner += usize::from(report.is_damaged());
        }
        for (id, rows) in &content {
            assert_eq!(
                certain(&report, *id, rows).len() as u64 + lost_values(&report, *id),
                certain(&report, *id, &built.tables[id]).len() as u64,
                "{:?}\n{report}",
                block.addr
            );
            for (key, value) in certain(&report, *id, rows) {
                assert_eq!(built.tables[id][&key], value);
            }
        }
        let ranges = report.tables.iter().flat_map(|table| &table.ranges);
        filled += ranges.map(|range| range.leaves_found).sum::<u64>();
    }
    assert!(
        filled > 0 && inner == 2 && saved > 1,
        "{filled} leaves filled gaps, {inner} inner pages and {saved} blocks of saved deltas were missed"
    );
}

fn lost_values(report: &SalvageReport, id: u32) -> u64 {
    let table = report.tables.iter().find(|table| table.id.0 == id).unwrap();
    // In a gap the row of a lost value is in doubt anyhow.
    if table.ranges.is_empty() { table.values_lost } else { 0 }
}

#[test]
fn without_superblocks_the_newest_leaves_are_found() {
    let built = Built::new(1);
    let (_, env) = built.copy();
    let file = env
        .fs
        .open(&directory().join("main.blocks"), Access::ReadWrite)
        .unwrap();
    file.write_all_at(&[0xa5; 8192], 0).unwrap();
    file.sync_data().unwrap();
    assert!(BtreeEngine::open(&env, directory(), options()).is_err());
    let (report, content) = built.salvage(&env);
    assert_eq!(content, built.tables);
    assert!(
        !report.mark_is_known && report.checkpoint.is_none() && report.is_damaged(),
        "{report}"
    );
    assert!(report.durable <= built.seq);
}

#[test]
fn a_volume_is_known_by_its_blocks_when_its_head_is_damaged() {
    let options = BtreeOptions {
        directory_per_db: true,
        ..options()
    };
    let built = Built::with(1, options.clone());
    let (_, env) = built.copy();
    let volume = directory().join("db").join("data.blocks");
    let file = env.fs.open(&volume, Access::ReadWrite).unwrap();
    file.write_all_at(&[0xa5; 512], 0).unwrap();
    file.sync_data().unwrap();
    assert!(BtreeEngine::open(&env, directory(), options.clone()).is_err());
    let salvaged = BtreeEngine::salvage(&env, directory(), options).unwrap();
    let report = salvaged.put_in_place().unwrap();
    assert!(!report.is_damaged(), "{report}");
    assert_eq!(content(&env), built.tables);
    assert!(env.fs.exists(&volume).unwrap() && env.fs.exists(&report.kept.join("db/data.blocks")).unwrap());
}

#[test]
fn a_file_cut_short_keeps_what_lies_before_the_cut() {
    let built = Built::new(1);
    let end = built.blocks().iter().map(|block| block.addr.sector()).max().unwrap();
    for share in 1..8 {
        let (_, env) = built.copy();
        let file = env
            .fs
            .open(&directory().join("main.blocks"), Access::ReadWrite)
            .unwrap();
        file.set_len(end * share / 8 * blocks::SECTOR_BYTES as u64).unwrap();
        let (report, content) = built.salvage(&env);
        assert!(report.is_damaged());
        for (id, rows) in &content {
            for (key, value) in rows {
                assert_eq!(&built.tables[id][key], value);
            }
        }
    }
}

#[test]
fn there_must_be_something_to_salvage() {
    let env = env(SimulatedFs::new(1));
    vfs::create_directory_durably(&*env.fs, directory()).unwrap();
    let refusal = BtreeEngine::salvage(&env, directory(), options()).err().unwrap();
    assert_eq!(refusal.kind(), engine::ErrorKind::Invalid);
    assert!(BtreeEngine::salvage(&env, Path::new("/"), options()).is_err());
}

/// What had found too little room ate the rest of the disk.
#[test]
fn a_salvage_without_room_changes_nothing_and_gives_its_room_back() {
    let built = Built::new(1);
    let (fs, env) = built.copy();
    let damaged = built.blocks().into_iter().find(|block| block.kind == BlockKind::Leaf);
    flip(&fs, &damaged.unwrap());
    let names = || (env.fs.list(Path::new("/")).unwrap(), env.fs.list(directory()).unwrap());
    let before = names();
    fs.set_free_bytes(Some(64 << 10));
    let refusal = BtreeEngine::salvage(&env, directory(), options()).err().unwrap();
    assert_eq!(refusal.kind(), engine::ErrorKind::OutOfSpace, "{refusal}");
    assert_eq!(names(), before);
    fs.set_free_bytes(None);
    let salvaged = BtreeEngine::salvage(&env, directory(), options()).unwrap();
    assert!(salvaged.report().is_damaged());
    salvaged.discard().unwrap();
    assert_eq!(names(), before);
    built.salvage(&env);
}

/// Whatever file operation the machine stops at, opening or another salvage finds all rows.
#[test]
fn a_crash_leaves_the_old_store_or_the_new_one() {
    let built = Built::new(1);
    let inner = built
        .blocks()
        .into_iter()
        .find(|block| block.kind == BlockKind::Inner)
        .unwrap();
    let run = |crash_at: Option<u64>| {
        let (fs, env) = built.copy();
        flip(&fs, &inner);
        let before = fs.operations();
        if let Some(operation) = crash_at {
            fs.crash_at(before + operation);
        }
        let result = BtreeEngine::salvage(&env, directory(), options()).and_then(SalvagedStore::put_in_place);
        (fs.clone(), result.is_ok(), fs.operations() - before)
    };
    let (_, finished, operations) = run(None);
    assert!(finished && operations > 8, "{operations} operations");
    let (mut old, mut new) = (0, 0);
    for operation in 1..=operations {
        let (fs, ..) = run(Some(operation));
        fs.restart();
        let env = env(fs);
        let whole = || {
            let engine = BtreeEngine::open(&env, directory(), options()).ok()?;
            let tables = engine.tables().ok()?.len();
            let sound = engine.maintain(&Maintenance::Verify(None)).ok()?.problems.is_empty();
            engine.close(CloseMode::Abandon).ok()?;
            (tables == 2 && sound).then_some(())
        };
        if whole().is_some() {
            new += 1;
            assert_eq!(content(&env), built.tables, "operation {operation}");
        } else {
            old += 1;
            assert_eq!(built.salvage(&env).1, built.tables, "operation {operation}");
        }
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}
