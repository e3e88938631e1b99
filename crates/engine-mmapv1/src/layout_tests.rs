//! An example of every structure on disk, compared with `tests/layout.snapshot`: what is written today must be
//! readable tomorrow. After a deliberate change of the format run with `TENON_UPDATE_LAYOUT=1`, and say so in
//! `docs/formats/mmapv1.md`.

use crate::files::{Page, header_page};
use crate::journal::{Image, Journal};
use crate::loc::{Loc, NAMESPACE_FILE, PAGE_BYTES};
use crate::namespaces::Namespaces;
use crate::root::{Root, RootDatabase, RootFile};
use crate::space::{Owner, Space};
use crate::store::{Fresh, Store};
use crate::{Mmapv1Engine, Mmapv1Options};
use engine::{Batch, Engine, Seq, TableId, TableKind, TableSpec};
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

/// Lines of 32 bytes; those of zeros are left out.
fn dump(name: &str, bytes: &[u8], text: &mut String) {
    writeln!(text, "{name}: {} bytes", bytes.len()).expect("a string takes everything");
    for (index, line) in bytes
        .chunks(32)
        .enumerate()
        .filter(|(_, line)| line.iter().any(|&byte| byte != 0))
    {
        let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "  {:5}  {hex}", index * 32).expect("a string takes everything");
    }
}

fn spec(kind: TableKind, name: &str) -> TableSpec {
    TableSpec {
        kind,
        name: name.into(),
        compressor: None,
    }
}

fn disk() -> (SimulatedFs, Env) {
    let fs = SimulatedFs::new(1);
    fs.create_directory_all(Path::new("/d")).expect("a new disk");
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    (fs, env)
}

fn read(fs: &SimulatedFs, path: &str) -> Vec<u8> {
    let file = fs.open(Path::new(path), Access::Read).expect("it was written");
    let mut bytes = vec![0; file.len().expect("it is there") as usize];
    file.read_exact_at(&mut bytes, 0).expect("it is that long");
    bytes
}

/// Each structure by itself.
fn structures(text: &mut String) {
    dump("header of a data file", &header_page("db", 3, 32)[..32], text);
    dump(
        "header of a namespace file",
        &header_page("db", NAMESPACE_FILE, 0)[..32],
        text,
    );
    let mut space = Space::default();
    space.add_file(16);
    space.allocate(3, 3, Owner::table(TableId(6))).expect("room");
    space.allocate(2, 2, Owner::UNFINISHED).expect("room");
    dump("owner map", &space.owner_page(0, 0)[..64], text);
    let mut namespaces = Namespaces::default();
    let spec = TableSpec {
        compressor: Some("zstd".into()),
        ..spec(TableKind::Index, "db.c")
    };
    namespaces.add(TableId(6), &spec, 1);
    let mut store = Store {
        rows: 1,
        data_bytes: 2,
        used_bytes: 3,
        moves: 4,
        small: Loc(5),
        array_root: Loc(6),
        tree_root: Loc(7),
        array_levels: 3,
        fresh: Fresh {
            file: 8,
            next: 9,
            end: 10,
        },
        ..Store::default()
    };
    (0..26).for_each(|bucket| store.buckets[bucket] = Loc(100 + bucket as u64));
    namespaces.write(TableId(6), &spec, &store);
    dump("entry", &namespaces.take_changed(true)[0].1[..512], text);
    let root = Root {
        generation: 2,
        seq: Seq(3),
        databases: vec![RootDatabase {
            name: "db".into(),
            own_directory: true,
            namespaces: vec![4],
            files: vec![RootFile {
                pages: 8,
                checksums: vec![5],
                owners: vec![6],
            }],
        }],
    };
    dump("root", &root.encode(None), text);
    let (fs, env) = disk();
    let journal = Journal::open(&env, Path::new("/d")).expect("a new disk");
    let bytes: Page = Arc::new([7; PAGE_BYTES]);
    let image = Image {
        database: 0,
        file: 0,
        page: 5,
        sectors: 0b10,
        bytes,
    };
    journal.write(&root, &[image]).expect("room");
    dump("journal", &read(&fs, "/d/journal")[..160], text);
}

/// Pages as an engine leaves them: slots, array, tree.
fn pages(text: &mut String) {
    let (fs, env) = disk();
    let options = Mmapv1Options {
        first_file_bytes: 128 << 10,
        preallocate: false,
        ..Mmapv1Options::with_cache(1 << 20)
    };
    let engine = Mmapv1Engine::open(&env, Path::new("/d"), options).expect("a new disk");
    let mut batch = Batch::new();
    let (records, index) = (TableId(1), TableId(2));
    batch.create_table(records, spec(TableKind::Records, "db.c"));
    batch.create_table(index, spec(TableKind::Index, "db.c"));
    for number in 1..=3u64 {
        batch.put(records, number.to_be_bytes().to_vec(), vec![number as u8; 20]);
    }
    batch.delete(records, 2u64.to_be_bytes().to_vec());
    batch.put(index, &b"a"[..], &b"1"[..]);
    batch.put(index, &b"b"[..], vec![9; 1000]);
    engine.apply(&batch, Seq(1)).expect("a sound batch");
    engine.publish(Seq(1));
    engine.checkpoint().expect("room");
    dump("data file", &read(&fs, "/d/db.0"), text);
}

#[test]
fn the_layout_is_that_of_the_snapshot() {
    let mut text = String::new();
    structures(&mut text);
    pages(&mut text);
    let expected = include_str!("../tests/layout.snapshot");
    if std::env::var_os("TENON_UPDATE_LAYOUT").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout.snapshot");
        let file = vfs::RealFs
            .open(&path, Access::OpenOrCreate)
            .expect("the source is writable");
        file.set_len(0)
            .and_then(|()| file.write_all_at(text.as_bytes(), 0))
            .expect("the source is writable");
        return;
    }
    assert!(text == expected, "the format has changed:\n{text}");
}
