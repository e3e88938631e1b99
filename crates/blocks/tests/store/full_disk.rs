//! What a full disk leaves as it was, and what goes on.

use crate::owner::{DIRECTORY, Owner, disk, open};
use blocks::{Purpose, VolumeId};
use engine::ErrorKind;
use std::path::Path;
use vfs::{Fault, FaultKind, FileSystem};

fn main_file_bytes(fs: &vfs::SimulatedFs) -> u64 {
    let path = Path::new(DIRECTORY).join("main.blocks");
    fs.open(&path, vfs::Access::Read).unwrap().len().unwrap()
}

#[test]
fn a_full_disk_harms_nothing_durable() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    for id in 0..10 {
        owner.put(&mut writer, VolumeId::MAIN, id, 9000).unwrap();
    }
    owner.checkpoint().unwrap();
    let durable = owner.blocks.clone();
    let mut refused = 0;
    for room in (0..300_000).step_by(10_007) {
        fs.set_free_bytes(Some(room));
        // Bytes taken ahead come first.
        let full = (0..200).find_map(|round| owner.put(&mut writer, VolumeId::MAIN, 1000 + round, 9000).err());
        let full = full.expect("the disk is full some time");
        assert_eq!(full.kind(), ErrorKind::OutOfSpace);
        if room > 100_000 {
            // Not even a map finds a hole then.
            let full = (1200..4000).find_map(|id| owner.put(&mut writer, VolumeId::MAIN, id, 1).err());
            assert_eq!(full.expect("no hole is left").kind(), ErrorKind::OutOfSpace);
        }
        owner.check();
        owner.begin();
        if let Err(error) = owner.commit(owner.next_id) {
            assert_eq!(error.kind(), ErrorKind::OutOfSpace);
            refused += 1;
            owner.store.abandon_checkpoint();
        }
        owner.cut = None;
        let (found, _) = Owner::recover(&fs.after_crash(room));
        for (id, held) in &durable {
            assert_eq!(found.blocks.get(id), Some(held), "room {room}");
        }
        if refused > 0 {
            break;
        }
        for id in 1000..1200 {
            owner.forget(id);
        }
        fs.set_free_bytes(None);
        owner.checkpoint().unwrap();
        owner.checkpoint().unwrap();
    }
    assert!(refused > 0, "a checkpoint found no room");
}

/// Where overwriting takes space a superblock can find none: the store closed, and the server ended.
#[test]
fn a_superblock_without_room_harms_nothing() {
    let mut refused = 0;
    for (seed, skip) in (0..12).flat_map(|seed| (0..8).map(move |skip| (seed, skip))) {
        println!("seed {seed}, write {skip}");
        let fs = disk(seed);
        let mut owner = Owner::new(open(&fs).unwrap().0);
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        owner.put(&mut writer, VolumeId::MAIN, 0, 3000).unwrap();
        owner.checkpoint().unwrap();
        let durable = owner.blocks.clone();
        owner.put(&mut writer, VolumeId::MAIN, 1, 3000).unwrap();
        owner.begin();
        let main = Path::new(DIRECTORY).join("main.blocks");
        fs.inject(Fault::new(FaultKind::NoSpace).on(main).after(skip));
        let committed = owner.commit(owner.next_id);
        fs.clear_faults();
        let Err(error) = committed else { continue };
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        refused += 1;
        owner.store.abandon_checkpoint();
        owner.cut = None;
        owner.check();
        // What the one that was given up had referred to is written over.
        for id in 2..40 {
            owner.put(&mut writer, VolumeId::MAIN, id, 3000).unwrap();
        }
        writer.flush().unwrap();
        for crash in 0..3 {
            let (found, root) = Owner::recover(&fs.after_crash(crash));
            assert_eq!((&found.blocks, root.unwrap().number), (&durable, 1));
        }
        owner.checkpoint().unwrap();
        owner.check();
        let (found, _) = Owner::recover(&fs.after_crash(seed));
        assert_eq!(found.blocks, owner.blocks);
    }
    assert!(refused > 24, "{refused} refused");
}

/// A block for which no hole was long enough made the map longer and the file could not follow: from then on the new
/// segment, the emptiest of all, was preferred to every hole within the file, and each write failed.
#[test]
fn a_full_disk_leaves_the_holes_of_the_file_to_use() {
    let fs = disk(1);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    for id in 0..200 {
        owner.put(&mut writer, VolumeId::MAIN, id, 9000).unwrap();
    }
    owner.checkpoint().unwrap();
    (0..200).step_by(4).for_each(|id| owner.forget(id));
    owner.checkpoint().unwrap();
    fs.set_free_bytes(Some(0));
    let full = (0..100).find_map(|at| owner.put(&mut writer, VolumeId::MAIN, 1000 + at, 30_000).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::OutOfSpace);
    let file_bytes = main_file_bytes(&fs);
    for id in 2000..2020 {
        owner.put(&mut writer, VolumeId::MAIN, id, 9000).unwrap();
        // Another writer has no run to go on with.
        writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    }
    owner.checkpoint().unwrap();
    assert_eq!(main_file_bytes(&fs), file_bytes);
    // What does not fit is tried at the end again, and when there is room the file grows as ever.
    let put_long = |owner: &mut Owner, id, bytes| {
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        owner.put(&mut writer, VolumeId::MAIN, id, bytes)
    };
    for bytes in [30_000, 100_000] {
        let full = put_long(&mut owner, 3000, bytes).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::OutOfSpace, "{bytes}");
    }
    fs.set_free_bytes(None);
    put_long(&mut owner, 3000, 30_000).unwrap();
    put_long(&mut owner, 3001, 100_000).unwrap();
    owner.checkpoint().unwrap();
    assert!(main_file_bytes(&fs) > file_bytes);
    owner.check();
    let (found, _) = Owner::recover(&fs.after_crash(1));
    assert_eq!(found.blocks, owner.blocks);
}
