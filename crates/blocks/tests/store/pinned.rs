//! A copy made of a pinned checkpoint's files, at any pace, is a store with that checkpoint.

use crate::owner::{DIRECTORY, Owner, disk, open};
use blocks::{PinnedCheckpoint, Purpose, VolumeId};
use std::path::Path;
use vfs::{Access, FileSystem, Random, SeededRandom, SimulatedFs};

/// Copies a part of the files' bytes.
fn copy(from: &SimulatedFs, to: &SimulatedFs, pin: &PinnedCheckpoint, part: u64, parts: u64) {
    for (name, bytes) in pin.files() {
        let path = Path::new(DIRECTORY).join(name);
        to.create_directory_all(path.parent().unwrap()).unwrap();
        let range = bytes * part / parts..bytes * (part + 1) / parts;
        let mut buffer = vec![0; (range.end - range.start) as usize];
        let source = from.open(&path, Access::Read).unwrap();
        source.read_exact_at(&mut buffer, range.start).unwrap();
        let target = to.open(&path, Access::OpenOrCreate).unwrap();
        target.write_all_at(&buffer, range.start).unwrap();
    }
}

fn churn(owner: &mut Owner, random: &SeededRandom) {
    let volumes = [VolumeId::MAIN, owner.store.volume("x").unwrap()];
    for _ in 0..40 {
        let id = random.next_u64() % 60;
        let volume = volumes[(id % 2) as usize];
        let mut writer = owner.store.writer(volume, Purpose::Later);
        owner
            .put(&mut writer, volume, id, (random.next_u64() % 8000) as usize)
            .unwrap();
    }
    owner.checkpoint().unwrap();
}

#[test]
fn a_slow_copy_is_the_pinned_checkpoint() {
    let fs = disk(3);
    let random = SeededRandom::new(3);
    let mut owner = Owner::new(open(&fs).unwrap().0);
    assert!(owner.store.pin().unwrap().files().is_empty(), "nothing is durable yet");
    for _ in 0..5 {
        churn(&mut owner, &random);
    }
    // The second pin comes when the first has just gone, and the durable superblock lies in the side file.
    let mut waiting = 0;
    for round in 0..3 {
        let pinned_blocks = owner.blocks.clone();
        let pin = owner.store.pin().unwrap();
        let second = owner.store.pin().unwrap();
        assert_eq!((pin.number(), pin.files()), (second.number(), second.files()));
        assert_eq!(pin.number(), owner.store.stats().checkpoint);
        drop(second);
        let target = disk(4);
        for part in 0..8 {
            copy(&fs, &target, &pin, part, 8);
            churn(&mut owner, &random);
            // Whoever crashes meanwhile finds the newest, not the pinned one.
            let (after, root) = Owner::recover(&fs.after_crash(part));
            assert_eq!(after.blocks, owner.blocks);
            assert!(root.unwrap().number > pin.number());
        }
        waiting = owner.store.stats().total.waiting_bytes;
        let (copied, root) = Owner::recover(&target);
        assert_eq!(copied.blocks, pinned_blocks, "round {round}");
        assert_eq!(
            root.map(|root| (root.number, root.seq)),
            Some((pin.number(), pin.seq()))
        );
    }
    // Without pins the space comes back, and the side file goes.
    for _ in 0..3 {
        churn(&mut owner, &random);
    }
    assert!(owner.store.stats().total.waiting_bytes < waiting / 2);
    assert!(!fs.exists(&Path::new(DIRECTORY).join("main.superblocks")).unwrap());
    owner.check();
    let (after, _) = Owner::recover(&fs);
    assert_eq!(after.blocks, owner.blocks);
}
