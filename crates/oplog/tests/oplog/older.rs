//! Logs of earlier formats, written by the programs of their time.
//!
//! `tests/fixtures/format-1` is a directory as version 1 left it when its process was killed, without the zeros at the
//! segments' ends. It was written with segments of 8 KiB, snappy, and a sync after each fourth of the forty entries.

use crate::support::{DIRECTORY, env, options, segments};
use engine::Seq;
use oplog::{Damage, Log, LogError, verify_segment};
use std::path::Path;
use vfs::{Access, FileSystem, SimulatedFs};

const ENTRIES: u64 = 40;
/// Where a segment's header has the version, and the file's length.
const VERSION_AT: usize = 8;
const LENGTH_AT: usize = 40;

fn expected(number: u64) -> Vec<u8> {
    let times = if number.is_multiple_of(5) { 2000 } else { 3 };
    format!("entry {number} ").repeat(times).into_bytes()
}

/// The fixture on a disk of its own.
fn format_1() -> SimulatedFs {
    let fs = SimulatedFs::new(1);
    fs.create_directory_all(Path::new(DIRECTORY)).unwrap();
    let fixture = Path::new("tests/fixtures/format-1");
    let mut segments = 0;
    for name in vfs::RealFs::new().list(fixture).unwrap() {
        let path = fixture.join(&name);
        let source = vfs::RealFs::new().open(&path, Access::Read).unwrap();
        let mut bytes = vec![0; source.len().unwrap() as usize];
        source.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[VERSION_AT], 1, "{name:?}");
        let length = u64::from_le_bytes(bytes[LENGTH_AT..LENGTH_AT + 8].try_into().unwrap());
        bytes.resize(length as usize, 0);
        let file = fs.open(&Path::new(DIRECTORY).join(&name), Access::CreateNew).unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_data().unwrap();
        segments += 1;
    }
    fs.sync_directory(Path::new(DIRECTORY)).unwrap();
    assert!(segments > 1, "an entry in a second segment");
    fs
}

fn versions(fs: &SimulatedFs) -> Vec<u8> {
    let version = |path: &std::path::PathBuf| {
        let mut head = [0; 16];
        let file = fs.open(path, Access::Read).unwrap();
        file.read_exact_at(&mut head, 0).unwrap();
        head[VERSION_AT]
    };
    segments(fs).iter().map(version).collect()
}

fn expect_entries(log: &Log, last: u64) {
    let mut due = 1;
    for item in log.read(Seq(1)).unwrap() {
        let (seq, bytes) = item.unwrap();
        assert_eq!(seq, Seq(due));
        let wanted = if due > ENTRIES { b"new".to_vec() } else { expected(due) };
        assert_eq!(bytes, wanted, "{seq:?}");
        due += 1;
    }
    assert_eq!(due, last + 1);
}

/// It is read as it is; what is appended goes to segments of today's format, and once the engine has the old entries
/// nothing of the old format is left.
#[test]
fn a_log_of_format_1_opens_and_becomes_one_of_today() {
    let fs = format_1();
    let before = versions(&fs).len();
    let log = Log::open(&env(&fs, 1), options(), Seq::ZERO).unwrap();
    assert_eq!((log.first_seq(), log.last_seq()), (Seq(1), Seq(ENTRIES)));
    assert_eq!(log.term_of(Seq(ENTRIES)).unwrap(), 0);
    expect_entries(&log, ENTRIES);
    for path in segments(&fs) {
        verify_segment(&fs, &path).unwrap();
    }
    let seq = log.append(&[b"new"]).unwrap();
    log.wait_durable(seq).unwrap();
    assert_eq!(versions(&fs), [vec![1; before], vec![2]].concat());
    drop(log);
    fs.restart();

    let log = Log::open(&env(&fs, 2), options(), Seq::ZERO).unwrap();
    expect_entries(&log, ENTRIES + 1);
    log.purge(Seq(ENTRIES)).unwrap();
    assert_eq!(versions(&fs), [2]);
    drop(log);
    let log = Log::open(&env(&fs, 3), options(), Seq(ENTRIES)).unwrap();
    assert_eq!(log.last_seq(), seq);
    assert_eq!(log.read(seq).unwrap().count(), 1);
}

/// Checksums of version 1 are looked at as today's are.
#[test]
fn damage_in_a_log_of_format_1_is_found() {
    let fs = format_1();
    let path = segments(&fs).remove(0);
    let file = fs.open(&path, Access::ReadWrite).unwrap();
    let at = 4096 + 40;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let error = Log::open(&env(&fs, 1), options(), Seq::ZERO).err().unwrap();
    let is_frame = matches!(
        &error,
        LogError::Corrupt {
            damage: Damage::Frame,
            offset: 4096,
            ..
        }
    );
    assert!(is_frame, "{error:?}");
}
