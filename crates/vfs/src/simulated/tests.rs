//! The rules of the module's documentation, one test each. Chances are tried with many seeds, so that a test can demand
//! that something happens at least once and something else never.
#![allow(clippy::unwrap_used)]

use super::{Fault, FaultKind, SimulatedFs};
use crate::{Access, File, FileSystem, create_directory_durably};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

const SEEDS: u64 = 200;

fn content(fs: &SimulatedFs, path: &str) -> Option<Vec<u8>> {
    let file = fs.open(Path::new(path), Access::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

/// A file `/f` whose name and first content are durable.
fn with_file(bytes: &[u8]) -> (SimulatedFs, Arc<dyn File>) {
    let fs = SimulatedFs::new(1);
    let file = fs.open(Path::new("/f"), Access::CreateNew).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    (fs, file)
}

/// What the file `/f` may hold after a crash.
fn outcomes(fs: &SimulatedFs) -> BTreeSet<Vec<u8>> {
    (0..SEEDS)
        .filter_map(|seed| content(&fs.after_crash(seed), "/f"))
        .collect()
}

#[test]
fn what_is_synced_survives_every_crash() {
    let (fs, file) = with_file(&[1; 3000]);
    file.write_all_at(&[2; 3000], 1500).unwrap();
    file.sync_data().unwrap();
    let expected = [vec![1; 1500], vec![2; 3000]].concat();
    assert_eq!(outcomes(&fs), BTreeSet::from([expected]));
}

#[test]
fn an_unsynced_overwrite_survives_by_whole_sectors() {
    let (fs, file) = with_file(&[1; 2048]);
    file.write_all_at(&[2; 1536], 256).unwrap();
    let outcomes = outcomes(&fs);
    assert!(outcomes.contains(&vec![1; 2048]), "it can be lost");
    assert!(
        outcomes.contains(&[vec![1; 256], vec![2; 1536], vec![1; 256]].concat()),
        "it can survive"
    );
    assert!(outcomes.len() > 4, "it can be torn in many ways");
    for bytes in outcomes {
        for (sector, inside) in bytes.chunks(512).zip([256..512, 0..512, 0..512, 0..256]) {
            assert!(
                sector[inside.clone()].iter().all(|&byte| byte == sector[inside.start]),
                "never within a sector"
            );
        }
    }
}

#[test]
fn unsynced_writes_survive_in_any_order() {
    let (fs, file) = with_file(&[0; 1024]);
    file.write_all_at(&[1; 512], 0).unwrap();
    file.write_all_at(&[2; 512], 512).unwrap();
    let seen: BTreeSet<(u8, u8)> = outcomes(&fs).iter().map(|bytes| (bytes[0], bytes[512])).collect();
    assert_eq!(seen, BTreeSet::from([(0, 0), (1, 0), (0, 2), (1, 2)]));
}

#[test]
fn the_length_survives_apart_from_the_data() {
    let (fs, file) = with_file(b"");
    file.write_all_at(&[7; 1024], 0).unwrap();
    let outcomes = outcomes(&fs);
    assert!(outcomes.contains(&vec![]), "neither");
    assert!(outcomes.contains(&vec![7; 1024]), "both");
    assert!(outcomes.contains(&vec![0; 1024]), "a length without data");

    let (fs, file) = with_file(&[7; 1024]);
    file.set_len(10).unwrap();
    let lengths: BTreeSet<usize> = self::outcomes(&fs).iter().map(Vec::len).collect();
    assert_eq!(lengths, BTreeSet::from([10, 1024]));
}

#[test]
fn a_name_needs_its_directorys_sync() {
    let fs = SimulatedFs::new(1);
    let file = fs.open(Path::new("/f"), Access::CreateNew).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    let survived = (0..SEEDS)
        .filter(|&seed| content(&fs.after_crash(seed), "/f").is_some())
        .count();
    assert!(
        0 < survived && survived < SEEDS as usize,
        "syncing the file does not make its name durable: {survived}"
    );
    fs.sync_directory(Path::new("/")).unwrap();
    assert!((0..SEEDS).all(|seed| content(&fs.after_crash(seed), "/f").as_deref() == Some(b"x")));
}

#[test]
fn syncing_a_directory_makes_no_data_durable() {
    let (fs, file) = with_file(&[1; 512]);
    file.write_all_at(&[2; 512], 0).unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    assert!(outcomes(&fs).contains(&vec![1; 512]));
}

#[test]
fn renames_are_atomic_and_wait_for_their_sources() {
    let (fs, _) = with_file(b"old");
    let new = fs.open(Path::new("/g"), Access::CreateNew).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    fs.rename(Path::new("/g"), Path::new("/f")).unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        let after = fs.after_crash(seed);
        let names: Vec<String> = after
            .list(Path::new("/"))
            .unwrap()
            .iter()
            .map(|name| name.display().to_string())
            .collect();
        seen.insert((names.join(" "), content(&after, "/f").unwrap()));
    }
    let expected = [("f", b"old"), ("f", b"new"), ("f g", b"old")].map(|(names, f)| (names.to_owned(), f.to_vec()));
    assert_eq!(
        seen,
        BTreeSet::from(expected),
        "the old file or the new one, never none"
    );
    fs.sync_directory(Path::new("/")).unwrap();
    assert!((0..SEEDS).all(|seed| content(&fs.after_crash(seed), "/f").unwrap() == b"new"));
}

#[test]
fn directories_need_their_parents_sync() {
    let fs = SimulatedFs::new(1);
    let path = Path::new("/a/b/c");
    fs.create_directory_all(path).unwrap();
    fs.sync_directory(Path::new("/a/b")).unwrap();
    let survived = (0..SEEDS)
        .filter(|&seed| fs.after_crash(seed).exists(path).unwrap())
        .count();
    assert!(0 < survived && survived < SEEDS as usize, "{survived}");

    let fs = SimulatedFs::new(1);
    create_directory_durably(&fs, path).unwrap();
    assert!((0..SEEDS).all(|seed| fs.after_crash(seed).exists(path).unwrap()));
}

#[test]
fn a_crash_at_an_operation_stops_everything_until_the_restart() {
    let (fs, file) = with_file(&[0; 512]);
    let before = fs.operations();
    fs.crash_at(before + 2);
    file.write_all_at(&[1; 512], 0).unwrap();
    file.read_exact_at(&mut [0; 4], 0).expect("reading is no operation");
    assert!(file.sync_data().is_err(), "the sync is the second operation");
    assert!(fs.has_crashed());
    assert_eq!(fs.operations(), before + 2);
    assert!(file.read_at(&mut [0; 4], 0).is_err());
    assert!(fs.open(Path::new("/f"), Access::Read).is_err());
    assert!(fs.list(Path::new("/")).is_err());
    fs.restart();
    assert!(!fs.has_crashed());
    assert!(file.len().is_err(), "old handles stay dead");
    assert!(content(&fs, "/f").is_some());
}

#[test]
fn equal_seeds_give_equal_crashes() {
    let (fs, file) = with_file(&[0; 8192]);
    file.write_all_at(&[1; 8192], 0).unwrap();
    for seed in 0..20 {
        assert_eq!(
            content(&fs.after_crash(seed), "/f"),
            content(&fs.after_crash(seed), "/f")
        );
    }
    assert!(outcomes(&fs).len() > 20);
    assert_eq!(
        content(&fs, "/f").unwrap(),
        [1; 8192],
        "trying crashes out leaves the machine undisturbed"
    );
}

#[test]
fn a_failed_sync_loses_data_and_the_next_one_says_nothing() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let fs = SimulatedFs::new(seed);
        let file = fs.open(Path::new("/f"), Access::CreateNew).unwrap();
        fs.sync_directory(Path::new("/")).unwrap();
        fs.inject(Fault::new(FaultKind::SyncError).on("/f"));
        file.write_all_at(&[1; 512], 0).unwrap();
        assert!(file.sync_data().is_err());
        assert_eq!(
            content(&fs, "/f").unwrap(),
            [1; 512],
            "it is seen while the machine runs"
        );
        file.sync_data().expect("the pages are clean");
        lost += u64::from(content(&fs.after_crash(seed), "/f").unwrap() != [1; 512]);
        file.write_all_at(&[1; 512], 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(
            content(&fs.after_crash(seed), "/f").unwrap(),
            [1; 512],
            "writing it again helps"
        );
    }
    assert!(0 < lost && lost < SEEDS, "{lost}");
}

#[test]
fn a_failed_directory_sync_loses_names() {
    let fs = SimulatedFs::new(3);
    for name in 0..20 {
        fs.open(Path::new(&format!("/{name}")), Access::CreateNew).unwrap();
    }
    fs.inject(Fault::new(FaultKind::SyncError).on("/"));
    assert!(fs.sync_directory(Path::new("/")).is_err());
    fs.sync_directory(Path::new("/")).unwrap();
    assert_eq!(fs.list(Path::new("/")).unwrap().len(), 20);
    let left = fs.after_crash(1).list(Path::new("/")).unwrap().len();
    assert!(0 < left && left < 20, "{left}");
}

#[test]
fn space_runs_out_and_comes_back() {
    let (fs, file) = with_file(&[1; 1000]);
    fs.set_free_bytes(Some(500));
    assert_eq!(fs.space(Path::new("/")).unwrap().available_bytes, 500);
    file.write_all_at(&[2; 1000], 0).expect("an overwrite takes no space");
    let error = file.write_all_at(&[3; 1000], 1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 1500, "what fits has been written");
    let other = fs.open(Path::new("/g"), Access::CreateNew).unwrap();
    assert_eq!(other.allocate(0, 1).unwrap_err().kind(), ErrorKind::StorageFull);
    other.set_len(1 << 20).expect("a hole takes no space");
    file.set_len(200).unwrap();
    assert_eq!(fs.space(Path::new("/")).unwrap().available_bytes, 1300);
    other.allocate(0, 1300).unwrap();
    other.write_all_at(&[1; 1300], 0).expect("allocated space is there");
    fs.remove_file(Path::new("/g")).unwrap();
    fs.remove_file(Path::new("/f")).unwrap();
    assert_eq!(fs.space(Path::new("/")).unwrap().available_bytes, 1500);
}

#[test]
fn faults_strike_the_calls_they_name() {
    let (fs, file) = with_file(&[1; 2048]);
    let other = fs.open(Path::new("/g"), Access::CreateNew).unwrap();
    fs.inject(Fault::new(FaultKind::ReadError).on("/f").after(1).times(2));
    let mut byte = [0];
    let read: Vec<bool> = (0..5).map(|_| file.read_at(&mut byte, 0).is_ok()).collect();
    assert_eq!(read, [true, false, false, true, true]);
    fs.inject(Fault::new(FaultKind::WriteError).on("/f"));
    other.write_all_at(b"x", 0).unwrap();
    assert!(file.write_all_at(&[2; 2048], 0).is_err());
    file.write_all_at(&[2; 2048], 0).unwrap();
    fs.inject(Fault::new(FaultKind::MetadataError));
    assert!(fs.rename(Path::new("/g"), Path::new("/h")).is_err());
    assert!(fs.exists(Path::new("/g")).unwrap());
    fs.inject(Fault::new(FaultKind::ShortRead));
    let short = file.read_at(&mut [0; 2048], 0).unwrap();
    assert!(0 < short && short < 2048);
    fs.inject(Fault::new(FaultKind::ShortRead).times(3));
    file.read_exact_at(&mut [0; 2048], 0).expect("short reads go on");
    assert_eq!(fs.faults_struck(), 8);
    fs.inject(Fault::new(FaultKind::WriteError));
    fs.clear_faults();
    file.write_all_at(b"x", 0).unwrap();
}

#[test]
fn lost_and_misdirected_writes_show_after_the_restart() {
    let (fs, file) = with_file(&[1; 1024]);
    fs.inject(Fault::new(FaultKind::LostWrite));
    file.write_all_at(&[2; 512], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(content(&fs, "/f").unwrap()[0], 2);
    assert_eq!(content(&fs.after_crash(0), "/f").unwrap(), [1; 1024]);

    fs.restart();
    let file = fs.open(Path::new("/f"), Access::ReadWrite).unwrap();
    fs.inject(Fault::new(FaultKind::MisdirectedWrite { by: 512 }));
    file.write_all_at(&[3; 512], 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(content(&fs, "/f").unwrap(), [vec![3; 512], vec![1; 512]].concat());
    fs.restart();
    assert_eq!(content(&fs, "/f").unwrap(), [vec![1; 512], vec![3; 512]].concat());
}

#[test]
fn a_flipped_bit_is_seen_at_once_and_stays() {
    let (fs, _) = with_file(&[0; 4]);
    fs.flip_bit(Path::new("/f"), 2, 3).unwrap();
    assert_eq!(content(&fs, "/f").unwrap(), [0, 0, 8, 0]);
    assert_eq!(content(&fs.after_crash(0), "/f").unwrap(), [0, 0, 8, 0]);
    assert_eq!(
        fs.flip_bit(Path::new("/f"), 4, 0).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
    assert_eq!(
        fs.flip_bit(Path::new("/x"), 0, 0).unwrap_err().kind(),
        ErrorKind::NotFound
    );
}

#[test]
fn a_restart_frees_locks_and_forgets_faults() {
    let fs = SimulatedFs::new(1);
    let lock = fs.lock(Path::new("/lock")).unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    fs.inject(Fault::new(FaultKind::WriteError));
    fs.restart();
    let again = fs.lock(Path::new("/lock")).unwrap();
    assert!(lock.write_content(b"x").is_err(), "the old guard is dead");
    drop(lock);
    assert_eq!(
        fs.lock(Path::new("/lock")).map(drop).unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "and frees nothing"
    );
    again.write_content(b"x").expect("the fault is gone");
}
