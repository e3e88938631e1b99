//! Copies of the directory, made file by file while nobody writes.

use crate::process::open;
use engine::{Batch, Engine, Maintenance, Seq, TableId, TableKind, TableSpec};
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: TableId = TableId(3);
const ROWS: u32 = 2000;

fn key(row: u32) -> Vec<u8> {
    row.to_be_bytes().to_vec()
}

fn fill(engine: &dyn Engine, seq: Seq) {
    let mut batch = Batch::new();
    if seq == Seq(1) {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: "copied".into(),
            compressor: None,
        };
        batch.create_table(TABLE, spec);
    }
    (0..ROWS).for_each(|row| batch.put(TABLE, key(row), vec![seq.0 as u8; 200]));
    engine.apply(&batch, seq).expect("writes");
    engine.publish(seq);
    engine.checkpoint().expect("a checkpoint");
}

/// The files of a directory, with their lengths.
fn files(directory: &Path) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(directory).expect("a directory");
    let listed = entries.map(|entry| {
        let entry = entry.expect("an entry");
        (entry.path(), entry.metadata().expect("a file"))
    });
    let listed = listed.filter(|(_, metadata)| metadata.is_file());
    let listed = listed.map(|(path, metadata)| (path, metadata.len()));
    listed.collect()
}

#[test]
fn files_that_are_kept_are_there_after_a_merge_has_replaced_them() {
    let (from, to) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
    let engine = open(from.path()).expect("opens");
    (1..4).for_each(|seq| fill(&engine, Seq(seq)));
    engine.keep_files(true).expect("kept");
    let listed = files(from.path());
    engine.maintain(&Maintenance::Compact(None)).expect("merges");
    assert_ne!(files(from.path()).len(), listed.len(), "there are new ones");
    for (path, bytes) in &listed {
        let mut content = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        content.truncate(*bytes as usize);
        fs::write(to.path().join(path.file_name().expect("a name")), content).expect("copies");
    }
    let copy = open(to.path()).expect("opens");
    assert_eq!(copy.durable_seq(), Seq(3));
    let snapshot = copy.snapshot().expect("a snapshot");
    for row in 0..ROWS {
        assert_eq!(
            snapshot.get(TABLE, &key(row)).expect("a read").as_deref(),
            Some(&[3; 200][..])
        );
    }
    engine.keep_files(false).expect("let go");
    fill(&engine, Seq(4));
    engine.maintain(&Maintenance::Compact(None)).expect("merges");
    let is_there = |(path, _): &&(PathBuf, u64)| path.extension().is_some_and(|kind| kind == "sst") && path.exists();
    assert_eq!(listed.iter().filter(is_there).count(), 0, "what was replaced goes");
}
