//! Space under random changes, and many threads.

use crate::owner::{Owner, content, disk, open, open_with};
use blocks::{BlockKind, Purpose, ReadScratch, Referenced, Urgency, VolumeId};
use codec::Codec;
use vfs::{Random, SeededRandom};

/// Sizes of 1 to 40 sectors. Each round replaces a twentieth of the blocks and then makes a checkpoint.
#[test]
fn the_file_stays_near_what_lives_in_it() {
    let seed = vfs::SystemRandom::new().next_u64();
    println!("seed {seed}");
    let random = SeededRandom::new(seed);
    let bytes = || (random.next_u64() % (40 * 512 - 40)) as usize;
    let fs = disk(1);
    // The longest block is a thirteenth of a segment: still three times what the usual sizes are.
    let mut owner = Owner::new(open_with(&fs, 256 << 10).unwrap().0);
    let blocks = 1500;
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    for id in 0..blocks {
        owner.put(&mut writer, VolumeId::MAIN, id, bytes()).unwrap();
    }
    drop(writer);
    owner.checkpoint().unwrap();
    let mut worst = 0.0f64;
    for round in 0..120 {
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        for _ in 0..blocks / 20 {
            owner
                .put(&mut writer, VolumeId::MAIN, random.next_u64() % blocks, bytes())
                .unwrap();
        }
        drop(writer);
        owner.checkpoint().unwrap();
        owner.store.plan_relocation(Urgency::Background);
        owner.relocate().unwrap();
        if round >= 40 {
            let total = owner.store.stats().total;
            worst = worst.max(total.file_bytes as f64 / total.used_bytes as f64);
        }
    }
    println!("worst ratio of file to live bytes {worst:.3}");
    assert!(worst <= 1.3, "{worst}");
    owner.check();

    // Nine in ten go: the file follows.
    let before = owner.store.stats().total.file_bytes;
    for id in 0..blocks {
        if id % 10 > 0 {
            owner.forget(id);
        }
    }
    for _ in 0..12 {
        owner.checkpoint().unwrap();
        owner.store.plan_relocation(Urgency::Compact);
        owner.relocate().unwrap();
    }
    owner.checkpoint().unwrap();
    let total = owner.store.stats().total;
    println!(
        "from {before} to {} bytes for {} live ones",
        total.file_bytes, total.used_bytes
    );
    assert!(total.file_bytes < before / 5);
    owner.check();
    let (found, _) = Owner::recover(&fs);
    assert_eq!(found.blocks, owner.blocks);
}

/// Sizes up to five segments, of which many blocks are longer than one.
#[test]
fn long_blocks_leave_no_file_behind() {
    let seed = vfs::SystemRandom::new().next_u64();
    println!("seed {seed}");
    let random = SeededRandom::new(seed);
    let bytes = || {
        let bound = if random.next_u64().is_multiple_of(2) {
            5 << 15
        } else {
            9000
        };
        (random.next_u64() % bound) as usize
    };
    let fs = disk(1);
    let mut owner = Owner::new(open_with(&fs, 32 << 10).unwrap().0);
    let mut worst = 0.0f64;
    for round in 0..60 {
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        for _ in 0..10 {
            owner
                .put(&mut writer, VolumeId::MAIN, random.next_u64() % 200, bytes())
                .unwrap();
        }
        drop(writer);
        owner.checkpoint().unwrap();
        owner.store.plan_relocation(Urgency::Background);
        owner.relocate().unwrap();
        if round >= 30 {
            let total = owner.store.stats().total;
            worst = worst.max(total.file_bytes as f64 / total.used_bytes as f64);
        }
    }
    println!("worst ratio of file to live bytes {worst:.3}");
    assert!(worst <= 1.8, "{worst}");
    owner.check();
    // Nothing changes, so nothing is moved any more after a while.
    for _ in 0..40 {
        owner.checkpoint().unwrap();
        owner.store.plan_relocation(Urgency::Background);
        owner.relocate().unwrap();
    }
    let blocks = owner.blocks.clone();
    owner.checkpoint().unwrap();
    owner.store.plan_relocation(Urgency::Background);
    owner.relocate().unwrap();
    let moved = owner
        .blocks
        .iter()
        .filter(|(id, held)| held.addr.bytes() > 32 << 10 && blocks[id].addr != held.addr);
    assert_eq!(moved.count(), 0);
    let (found, _) = Owner::recover(&fs);
    assert_eq!(found.blocks.len(), owner.blocks.len());
}

#[test]
fn a_sequential_fill_is_written_in_order() {
    let (store, _) = open(&disk(1)).unwrap();
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let addrs: Vec<_> = (0..1000)
        .map(|id| {
            let raw = content(id, 1, 4000);
            writer.append(BlockKind::Leaf, 9, Codec::None, None, &raw).unwrap()
        })
        .collect();
    writer.flush().unwrap();
    let adjacent = addrs
        .windows(2)
        .filter(|two| two[0].sector() + 8 == two[1].sector())
        .count();
    assert!(adjacent > 900, "{adjacent}");
}

#[test]
fn many_threads_write_read_and_free() {
    let fs = disk(1);
    let (store, _) = open(&fs).unwrap();
    let kept: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u64)
            .map(|worker| {
                let store = &store;
                scope.spawn(move || {
                    let random = SeededRandom::new(worker);
                    let volume = if worker == 3 {
                        store.volume("other").unwrap()
                    } else {
                        VolumeId::MAIN
                    };
                    let mut writer = store.writer(volume, Purpose::Later);
                    let mut scratch = ReadScratch::default();
                    let mut live = Vec::new();
                    for round in 0..400u64 {
                        let bytes = (random.next_u64() % 6000) as usize;
                        let raw = content(worker, round, bytes);
                        let addr = writer.append(BlockKind::Leaf, 9, Codec::Lz4, None, &raw).unwrap();
                        writer.flush().unwrap();
                        live.push((addr, raw));
                        let at = random.next_u64() as usize % live.len();
                        let read = store
                            .read(volume, &live[at].0, 9, BlockKind::Leaf, &mut scratch)
                            .unwrap();
                        assert!(read == live[at].1);
                        if live.len() > 30 {
                            // Whether the running checkpoint has it, nobody here knows: the careful answer.
                            store.free(volume, live.swap_remove(at).0, Referenced::ByRunningCheckpoint);
                        }
                    }
                    live.into_iter().map(|(addr, _)| (volume, addr)).collect::<Vec<_>>()
                })
            })
            .collect();
        for seq in 0..30 {
            store.begin_checkpoint();
            match store.commit_checkpoint(seq, &[]) {
                Ok(()) => {}
                // Blocks of it wait in writers.
                Err(error) => {
                    assert_eq!(error.kind(), engine::ErrorKind::Invalid);
                    store.abandon_checkpoint();
                }
            }
        }
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(kept.len() > 100);
    assert_eq!(store.verify(kept.iter().copied()), Vec::<String>::new());
    store.begin_checkpoint();
    store.commit_checkpoint(31, &[]).unwrap();
    assert_eq!(store.verify(kept.iter().copied()), Vec::<String>::new());
    let (store, root) = open(&fs).unwrap();
    assert_eq!(root.unwrap().seq, 31);
    assert_eq!(store.verify(kept.iter().copied()), Vec::<String>::new());
    let mut scratch = ReadScratch::default();
    for (volume, addr) in &kept {
        store.read(*volume, addr, 9, BlockKind::Leaf, &mut scratch).unwrap();
    }
}
