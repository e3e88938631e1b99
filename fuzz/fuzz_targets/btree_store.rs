//! A store of the btree engine whose pages, rows of the table of tables and addresses the input chooses, with right checksums:
//! opened, read both ways, checked, written to, compacted and opened again. An error, or an engine that goes on; never a panic,
//! never a walk without end.
//!
//! Pages are inside the engine, so their modules are compiled in here; rows of the table of tables are encoded as
//! `docs/formats/btree-directory.md` says, apart from the engine's code.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/engine-btree/src/budget.rs"]
mod budget;
#[path = "../../crates/engine-btree/src/page/mod.rs"]
mod page;

use blocks::{BlockAddr, BlockKind, BlockStore, Purpose, StoreOptions, VolumeId};
use codec::Codec;
use engine::{Batch, CloseMode, Direction, Engine, ErrorKind, FillLimits, KeyRange, Maintenance, Result, Rows, Seq};
use engine_btree::{BtreeEngine, BtreeOptions};
use libfuzzer_sys::fuzz_target;
use page::{KeyParts, LARGE_CHUNK_BYTES, LargeRef, LeafBuilder, NewValue, Separators, encode_inner};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const DIRECTORY: u32 = u32::MAX;
const SEGMENT_BYTES: u32 = 32 << 10;
/// Pages of a store: a tree that visits the same pages again and again must come to an end in reasonable time.
const PAGES_MAX: usize = 12;
const CHILDREN_MAX: usize = 4;

/// The input, taken from its front; zeros when it is used up.
struct Source<'d>(&'d [u8]);

impl<'d> Source<'d> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn bytes(&mut self, count: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A string of up to 15 bytes, or of some hundred.
    fn string(&mut self) -> Vec<u8> {
        let length = self.byte();
        let mut string = self.bytes(usize::from(length % 16)).to_vec();
        if length >= 240 {
            string.resize(600, length);
        }
        string
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let choice = usize::from(self.byte());
        choices.get(choice % choices.len().max(1)).copied()
    }
}

/// A leaf of these rows, by rising keys.
fn encoded<'a>(rows: impl Iterator<Item = (&'a [u8], NewValue<'a>)>) -> Vec<u8> {
    let mut builder = LeafBuilder::new();
    rows.for_each(|(key, value)| builder.push(KeyParts::from(key), value));
    let mut raw = Vec::new();
    builder.finish().encode(&mut raw);
    raw
}

fn leaf(source: &mut Source<'_>, pages: &[BlockAddr]) -> Vec<u8> {
    let mut rows: BTreeMap<Vec<u8>, (Vec<u8>, bool)> = BTreeMap::new();
    for _ in 0..source.byte() % 12 {
        let key = source.string();
        let cell = match source.byte() {
            choice if choice % 4 == 0 => source.one_of(pages).map(|address| {
                let total = 1 + usize::from(choice) * 16;
                LargeRef::encode(total, &vec![address; total.div_ceil(LARGE_CHUNK_BYTES)])
            }),
            _ => None,
        };
        let is_large = cell.is_some();
        rows.insert(key, (cell.unwrap_or_else(|| source.string()), is_large));
    }
    encoded(rows.iter().map(|(key, (value, is_large))| {
        let large = is_large.then(|| LargeRef::from_cell(value).expect("it was just encoded"));
        (key.as_slice(), large.map_or(NewValue::Inline(value), NewValue::Large))
    }))
}

fn inner(source: &mut Source<'_>, pages: &[BlockAddr]) -> Vec<u8> {
    let level = 1 + source.byte() % 3;
    let keys: BTreeSet<Vec<u8>> = (0..usize::from(source.byte()) % CHILDREN_MAX)
        .map(|_| source.string())
        .filter(|key| !key.is_empty())
        .collect();
    let keys: Vec<Vec<u8>> = keys.into_iter().collect();
    let children: Vec<BlockAddr> = (0..=keys.len()).filter_map(|_| source.one_of(pages)).collect();
    let mut raw = Vec::new();
    if children.len() == keys.len() + 1 {
        encode_inner(level, &Separators::from_keys(&keys), &children, &mut raw);
    }
    raw
}

/// A row of the table of tables.
fn table_row(source: &mut Source<'_>, pages: &[BlockAddr]) -> Vec<u8> {
    if source.byte() % 16 == 0 {
        return source.string();
    }
    let mut row = vec![1, source.byte() % 4, source.byte() % 3, source.byte() % 3];
    match source.one_of(pages) {
        Some(address) if source.byte() % 8 != 0 => {
            row.push(source.byte() % 5);
            address.encode(&mut row);
        }
        _ => {
            row.push(255);
            row.extend_from_slice(&[0; 12]);
        }
    }
    row.extend_from_slice(&u64::from(source.byte() % 32).to_le_bytes());
    row.extend_from_slice(&[source.byte(), 0, 0, 0, 0, 0, 0, 0]);
    row.extend_from_slice(&[source.byte() % 2, 0, 0, 0]);
    match source.byte() % 4 {
        0 => row.extend_from_slice(b"\x04zstd"),
        1 => row.push(source.byte()),
        _ => row.push(255),
    }
    row.extend_from_slice(if source.byte() % 8 == 0 { b"\xffx" } else { b"db.c" });
    row
}

/// Makes a store's one checkpoint.
fn make(env: &Env, source: &mut Source<'_>) {
    let options = StoreOptions {
        segment_bytes: SEGMENT_BYTES,
        direct_io: false,
    };
    let (store, _) = BlockStore::open(env, Path::new("/data"), options).expect("an empty directory");
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Checkpoint);
    let mut pages: Vec<BlockAddr> = Vec::new();
    for _ in 0..1 + usize::from(source.byte()) % PAGES_MAX {
        let manner = source.byte();
        let owner = [3, 3, 3, 4, DIRECTORY][usize::from(manner >> 4) % 5];
        let (kind, raw) = match manner % 8 {
            0..=2 => (BlockKind::Leaf, leaf(source, &pages)),
            3 | 4 => (BlockKind::Inner, inner(source, &pages)),
            5 => (BlockKind::Large, source.string()),
            6 => (BlockKind::Leaf, [&[1, 1, 0, 0][..], source.bytes(40)].concat()),
            _ => (BlockKind::Inner, [&[1, 2, 1, 0][..], source.bytes(40)].concat()),
        };
        let appended = writer.append(kind, owner, Codec::Lz4, None, &raw);
        pages.push(appended.expect("a short block"));
    }
    let rows: BTreeMap<Vec<u8>, Vec<u8>> = (0..source.byte() % 4)
        .map(|_| {
            let key = match source.byte() % 16 {
                0 => source.string(),
                choice => vec![0, 0, 0, 3 + choice % 3],
            };
            (key, table_row(source, &pages))
        })
        .collect();
    let raw = encoded(
        rows.iter()
            .map(|(key, value)| (key.as_slice(), NewValue::Inline(value))),
    );
    let address = writer
        .append(BlockKind::Leaf, DIRECTORY, Codec::Lz4, None, &raw)
        .expect("a short block");
    writer.flush().expect("the disk works");
    let mut root = vec![1, 0];
    match source.byte() {
        // A page of the input's own in its place.
        choice if choice % 8 == 0 => {
            root[1] = choice / 8 % 4;
            source.one_of(&pages).expect("there is one").encode(&mut root);
        }
        _ => address.encode(&mut root),
    }
    store.begin_checkpoint();
    store.commit_checkpoint(20, &root).expect("the disk works");
}

/// An error that damage may lead to.
fn check<T>(result: Result<T>) -> Option<T> {
    result
        .inspect_err(|error| {
            let kind = error.kind();
            assert!(
                [ErrorKind::Corrupt, ErrorKind::Closed, ErrorKind::Invalid].contains(&kind),
                "{error}"
            );
        })
        .ok()
}

fn use_it(engine: &BtreeEngine, source: &mut Source<'_>) -> Option<()> {
    let tables = check(engine.tables())?;
    let view = check(engine.snapshot())?;
    for (table, _) in &tables {
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut cursor = check(view.clone().cursor(*table, KeyRange::all(), direction))?;
            let mut rows = Rows::new();
            let limits = FillLimits {
                rows_max: 7,
                bytes_max: 1 << 20,
            };
            let mut last: Option<Vec<u8>> = None;
            while check(cursor.fill(&mut rows, limits)) == Some(true) {
                for index in 0..rows.len() {
                    let key = rows.key(index);
                    // Damage may hide rows, and not make a walk go back.
                    let goes_on = last.as_deref().is_none_or(|last| match direction {
                        Direction::Forward => key > last,
                        Direction::Reverse => key < last,
                    });
                    assert!(goes_on, "{direction:?}: {key:02x?} after {last:02x?}");
                    last = Some(key.to_vec());
                }
            }
        }
        check(view.get(*table, &source.string()));
        check(view.estimate(*table, &KeyRange::all(), 3));
    }
    check(engine.maintain(&Maintenance::Verify(None)));
    let mut seq = engine.durable_seq();
    for _ in 0..3 {
        let mut batch = Batch::new();
        for (table, _) in &tables {
            match source.byte() % 4 {
                0 => batch.delete(*table, source.string()),
                1 => batch.delete_range(*table, KeyRange::all()),
                _ => batch.put(*table, source.string(), source.string()),
            }
        }
        seq = seq.next();
        check(engine.apply(&batch, seq))?;
        engine.publish(seq);
        match source.byte() % 3 {
            0 => drop(check(engine.checkpoint())?),
            1 => drop(check(engine.maintain(&Maintenance::Compact(None)))?),
            _ => {}
        }
    }
    let mut batch = Batch::new();
    tables.iter().for_each(|(table, _)| batch.drop_table(*table));
    check(engine.apply(&batch, Seq(seq.0 + 1)))?;
    engine.publish(Seq(seq.0 + 1));
    drop(view);
    check(engine.checkpoint()).map(drop)
}

fuzz_target!(|data: &[u8]| {
    let fs = SimulatedFs::new(1);
    fs.create_directory_all(Path::new("/data")).expect("an empty disk");
    let env = Env {
        fs: Arc::new(fs),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    let mut source = Source(data);
    make(&env, &mut source);
    let options = BtreeOptions {
        cache_bytes: 1 << 20,
        record_leaf_bytes: 512,
        index_leaf_bytes: 512,
        large_value_bytes: 500,
        threads: Some(0),
        segment_bytes: SEGMENT_BYTES,
        ..BtreeOptions::default()
    };
    for _ in 0..2 {
        let Some(engine) = check(BtreeEngine::open(&env, Path::new("/data"), options.clone())) else {
            break;
        };
        use_it(&engine, &mut source);
        let _ = engine.close(CloseMode::Abandon);
    }
    check(BtreeEngine::salvage(&env, Path::new("/data"), options));
});
