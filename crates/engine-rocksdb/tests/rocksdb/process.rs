//! What takes a process of its own or RocksDB's own hand: a killed writer, and directories that are not ours.

use engine::{Batch, Direction, Engine, ErrorKind, FillLimits, KeyRange, Rows, Seq, TableId, TableKind, TableSpec};
use engine_rocksdb::{RocksEngine, RocksOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const TABLE: TableId = TableId(3);
/// Names the directory to the child, and makes it one.
const CHILD: &str = "TENON_ROCKSDB_KILLED_WRITER";

pub(crate) fn open(directory: &Path) -> engine::Result<RocksEngine> {
    let env = vfs::Env {
        fs: Arc::new(vfs::RealFs),
        clock: Arc::new(vfs::SystemClock::new()),
        random: Arc::new(vfs::SystemRandom::new()),
    };
    let options = RocksOptions {
        cache_size_bytes: 16 << 20,
        ..RocksOptions::default()
    };
    RocksEngine::open(&env, directory, options)
}

/// Position `n` puts a row under `n` and counts in one more key.
fn write_for_ever(directory: &Path) {
    let engine = open(directory).expect("opens");
    let mut seq = engine.durable_seq();
    loop {
        seq = seq.next();
        let mut batch = Batch::new();
        if seq == Seq(1) {
            batch.create_table(
                TABLE,
                TableSpec {
                    kind: TableKind::Records,
                    name: "killed".into(),
                    compressor: None,
                },
            );
        }
        batch.put(TABLE, seq.0.to_be_bytes().to_vec(), vec![seq.0 as u8; 2000]);
        batch.add(TABLE, &b"count"[..], 1);
        engine.apply(&batch, seq).expect("applies");
        engine.publish(seq);
        if seq.0.is_multiple_of(5000) {
            println!("mark {}", engine.checkpoint().expect("flushes").0);
        }
    }
}

#[test]
fn a_killed_process_leaves_a_fold() {
    if let Some(directory) = std::env::var_os(CHILD) {
        return write_for_ever(Path::new(&directory));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut acknowledged = 0;
    for _ in 0..3 {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "process::a_killed_process_leaves_a_fold", "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let lines = output.lines().map(|line| line.expect("text"));
        let marks = lines.filter_map(|line| line.split_once("mark ")?.1.parse::<u64>().ok());
        acknowledged = marks.take(2).last().expect("the child makes checkpoints");
        child.kill().expect("runs");
        child.wait().expect("ends");
        expect_fold(directory.path(), acknowledged);
    }
    assert!(acknowledged >= 15_000);
}

fn expect_fold(directory: &Path, acknowledged: u64) {
    let engine = open(directory).expect("opens after the kill");
    let mark = engine.durable_seq().0;
    assert!(mark >= acknowledged, "{acknowledged} was durable, {mark} came back");
    let snapshot = engine.snapshot().expect("open");
    let count = snapshot.get(TABLE, b"count").expect("reads").expect("is there");
    assert_eq!(count[..], mark.to_le_bytes());
    let mut cursor = snapshot
        .cursor(TABLE, KeyRange::all(), Direction::Forward)
        .expect("open");
    let mut rows = Rows::new();
    let mut next = 1;
    while cursor.fill(&mut rows, FillLimits::default()).expect("reads") {
        for index in (0..rows.len()).filter(|&index| rows.key(index) != b"count") {
            assert_eq!(rows.key(index), u64::to_be_bytes(next));
            assert_eq!(rows.value(index), vec![next as u8; 2000]);
            next += 1;
        }
    }
    assert_eq!(next, mark + 1);
}

#[test]
fn what_is_not_ours_is_refused() {
    for (key, value) in [(&b"a"[..], &b"1"[..]), (b"\xFF\xFF\xFF\xFFv", b"\x02\0\0\0")] {
        let directory = tempfile::tempdir().expect("a directory");
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        rocksdb::DB::open(&options, directory.path())
            .and_then(|db| db.put(key, value))
            .expect("writes");
        match open(directory.path()) {
            Ok(_) => panic!("a directory with {key:02x?} was taken"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
        }
    }
}
