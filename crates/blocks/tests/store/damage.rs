//! Flipped bits, lost and misplaced writes, hostile bytes: an error or the right content, never a panic, never other
//! content.

use crate::owner::{DIRECTORY, Owner, content, disk, env, open};
use blocks::{BlockAddr, BlockKind, BlockStore, Purpose, ReadScratch, SalvagedBlock, VolumeId};
use codec::Codec;
use engine::ErrorKind;
use std::path::Path;
use vfs::{Access, Fault, FaultKind, FileSystem, Random, SeededRandom, SimulatedFs};

fn main_file() -> std::path::PathBuf {
    Path::new(DIRECTORY).join("main.blocks")
}

fn small_store(fs: &SimulatedFs) -> Owner {
    let mut owner = Owner::new(open(fs).unwrap().0);
    let volume = owner.store.volume("side").unwrap();
    for id in 0..6 {
        let volume = if id % 2 == 0 { volume } else { VolumeId::MAIN };
        let mut writer = owner.store.writer(volume, Purpose::Later);
        owner.put(&mut writer, volume, id, 700).unwrap();
    }
    owner.checkpoint().unwrap();
    owner
}

#[test]
fn every_flipped_bit_of_a_block_is_noticed() {
    let fs = disk(1);
    let owner = small_store(&fs);
    let held = owner.blocks[&1];
    assert_eq!((held.volume, held.addr.sectors()), (VolumeId::MAIN, 2));
    for bit in 0..held.addr.bytes() * 8 {
        let offset = held.addr.sector() * 512 + bit / 8;
        fs.flip_bit(&main_file(), offset, (bit % 8) as u8).unwrap();
        assert_eq!(
            held.read(&owner.store, 1).unwrap_err().kind(),
            ErrorKind::Corrupt,
            "bit {bit}"
        );
        fs.flip_bit(&main_file(), offset, (bit % 8) as u8).unwrap();
    }
    held.read(&owner.store, 1).unwrap();
}

fn byte_at(fs: &SimulatedFs, offset: u64) -> u8 {
    let mut byte = [0];
    let file = fs.open(&main_file(), Access::Read).unwrap();
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0]
}

#[test]
fn no_flipped_bit_shows_other_content_or_panics() {
    let fs = disk(1);
    let owner = small_store(&fs);
    let file_bytes = fs.open(&main_file(), Access::Read).unwrap().len().unwrap().min(40_000);
    let mut opened = 0;
    for offset in (0..file_bytes).step_by(3) {
        let whole = byte_at(&fs, offset);
        fs.flip_bit(&main_file(), offset, (offset % 8) as u8).unwrap();
        match open(&fs) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "offset {offset}: {error}"),
            Ok((store, root)) => {
                opened += 1;
                assert_eq!(root.map(|root| root.number), Some(1), "offset {offset}");
                for (id, held) in &owner.blocks {
                    if let Err(error) = held.read(&store, *id) {
                        let kind = error.kind();
                        assert!([ErrorKind::Corrupt, ErrorKind::Invalid].contains(&kind), "{error}");
                    }
                }
            }
        }
        // Not flipped back: opening writes a superblock again of which one copy is whole.
        patch(&fs, offset, &[whole]);
    }
    assert!(opened > 0);
    let (found, _) = Owner::recover(&fs);
    assert_eq!(found.blocks, owner.blocks);
}

#[test]
fn lost_and_misplaced_writes_are_noticed() {
    for kind in [FaultKind::LostWrite, FaultKind::MisdirectedWrite { by: 1024 }] {
        let fs = disk(1);
        let mut owner = small_store(&fs);
        let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
        let aside = owner.blocks[&1];
        owner.put(&mut writer, VolumeId::MAIN, 10, 3000).unwrap();
        let fault = Fault::new(kind).on(main_file());
        fs.inject(fault);
        owner.put(&mut writer, VolumeId::MAIN, 11, 3000).unwrap();
        assert_eq!(fs.faults_struck(), 1);
        owner.put(&mut writer, VolumeId::MAIN, 12, 3000).unwrap();
        owner.checkpoint().unwrap();
        fs.restart();
        let (store, root) = open(&fs).unwrap();
        assert_eq!(root.unwrap().number, 2);
        let read = |id: u64| owner.blocks[&id].read(&store, id).map_err(|error| error.kind());
        assert_eq!(read(11), Err(ErrorKind::Corrupt), "{kind:?}");
        assert_eq!(read(10), Ok(()));
        assert_eq!(aside.read(&store, 1).map_err(|error| error.kind()), Ok(()));
    }
}

#[test]
fn a_stale_block_is_not_taken_for_the_new_one() {
    let (store, _) = open(&disk(1)).unwrap();
    let write = |raw: &[u8]| {
        let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
        let addr = writer.append(BlockKind::Leaf, 3, Codec::None, None, raw).unwrap();
        writer.flush().unwrap();
        addr
    };
    let old = write(b"old");
    store.free(VolumeId::MAIN, old, blocks::Referenced::No);
    let new = write(b"new");
    assert_eq!(old.sector(), new.sector(), "its place was free");
    let mut scratch = ReadScratch::default();
    let mut read = |addr: &BlockAddr| store.read(VolumeId::MAIN, addr, 3, BlockKind::Leaf, &mut scratch);
    assert_eq!(read(&old).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(read(&new).unwrap(), b"new");
}

fn salvage(fs: &SimulatedFs) -> Vec<SalvagedBlock> {
    let mut found = Vec::new();
    BlockStore::salvage_scan(&env(fs), Path::new(DIRECTORY), &mut |block| found.push(block)).unwrap();
    found
}

#[test]
fn salvage_finds_all_whole_blocks_without_superblocks_and_maps() {
    let fs = disk(1);
    let mut owner = small_store(&fs);
    let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
    // One longer than what is read ahead may hold, and compressed ones.
    for id in 20..60 {
        owner.put(&mut writer, VolumeId::MAIN, id, 60_000).unwrap();
    }
    owner.put(&mut writer, VolumeId::MAIN, 60, 3 << 20).unwrap();
    let flat = writer
        .append(BlockKind::Inner, 5, Codec::Zstd, None, &[7; 30_000])
        .unwrap();
    writer.flush().unwrap();
    owner.checkpoint().unwrap();
    let blank = vec![0; 8192];
    for path in [main_file(), Path::new(DIRECTORY).join("side/data.blocks")] {
        fs.open(&path, Access::ReadWrite)
            .unwrap()
            .write_all_at(&blank, 0)
            .unwrap();
    }
    assert!(open(&fs).is_err());
    let broken = owner.blocks[&30];
    fs.flip_bit(&main_file(), broken.addr.sector() * 512 + 5000, 1).unwrap();
    let found = salvage(&fs);
    for (id, held) in &owner.blocks {
        let twin = |block: &&SalvagedBlock| (block.volume, block.addr) == (held.volume, held.addr);
        match found.iter().find(twin) {
            Some(block) => {
                assert!(block.raw == content(*id, held.version, held.bytes));
                assert_eq!((block.kind, block.owner), (BlockKind::Leaf, 7));
                assert_eq!(block.checkpoint, if *id < 20 { 1 } else { 2 });
                assert_eq!(block.path.ends_with("main.blocks"), held.volume == VolumeId::MAIN);
            }
            None => assert_eq!(*id, 30),
        }
    }
    let flat = found.iter().find(|block| block.addr == flat).unwrap();
    assert!(flat.raw == [7; 30_000]);
}

#[test]
fn files_of_noise_are_refused() {
    let random = SeededRandom::new(11);
    for round in 0..200 {
        let fs = disk(1);
        let mut noise = vec![0; (random.next_u64() % 30_000) as usize];
        random.fill(&mut noise);
        let file = fs.open(&main_file(), Access::CreateNew).unwrap();
        file.write_all_at(&noise, 0).unwrap();
        match open(&fs) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
            Ok(_) => panic!("round {round}: noise is a store"),
        }
        assert!(noise.len() > 100_000 || salvage(&fs).is_empty());
    }
}

/// Overwrites a part of the main file.
fn patch(fs: &SimulatedFs, offset: u64, bytes: &[u8]) {
    let file = fs.open(&main_file(), Access::ReadWrite).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn found_number(fs: &SimulatedFs) -> Result<u64, ErrorKind> {
    let opened = open(fs).map_err(|error| error.kind());
    opened.map(|(_, root)| root.map_or(0, |root| root.number))
}

/// A damaged copy of the newest superblock must not bring an older checkpoint back: what came between is in no log any
/// more.
#[test]
fn the_newest_superblock_survives_damage_of_a_copy() {
    for checkpoints in 1..=4u64 {
        let fs = disk(1);
        let mut owner = small_store(&fs);
        for _ in 1..checkpoints {
            owner.checkpoint().unwrap();
        }
        let newest = if checkpoints % 2 == 1 { 4096 } else { 0 };
        for copy in [newest, newest + 2048] {
            // Every bit is noticed, see the unit test; opening is tried for a part.
            for bit in (0..2048 * 8).step_by(97) {
                let at = copy + bit / 8;
                let whole = byte_at(&fs, at);
                fs.flip_bit(&main_file(), at, (bit % 8) as u8).unwrap();
                assert_eq!(found_number(&fs), Ok(checkpoints), "bit {bit} at {copy}");
                assert_eq!(byte_at(&fs, at), whole, "opening made the copy whole");
            }
        }
        let whole = fs.after_crash(1);
        // Both gone: the checkpoint before, if there is one.
        for size in [4096, 300] {
            let fs = whole.after_crash(1);
            patch(&fs, newest, &vec![0x5A; size]);
            patch(&fs, newest + 2048, &vec![0x5A; size / 2]);
            let expected = if checkpoints > 1 {
                Ok(checkpoints - 1)
            } else {
                Err(ErrorKind::Corrupt)
            };
            assert_eq!(found_number(&fs), expected);
            patch(&fs, 4096 - newest, &[0; 4096]);
            assert_eq!(found_number(&fs), Err(ErrorKind::Corrupt), "both slots");
        }
    }
}

/// The first checkpoint's superblock never got whole to the disk: the start of a copy is there, its end is not.
#[test]
fn a_torn_first_superblock_leaves_an_empty_store() {
    let fs = disk(1);
    drop(open(&fs).unwrap());
    for copy in [4096, 6144] {
        patch(&fs, copy + 64, b"a part of a root");
    }
    assert_eq!(found_number(&fs), Ok(0));
    let mut owner = Owner::new(open(&fs).unwrap().0);
    owner.checkpoint().unwrap();
    assert_eq!(found_number(&fs), Ok(1));
}

#[test]
fn a_lost_or_misplaced_write_of_a_superblock_loses_no_checkpoint() {
    let kinds = [
        FaultKind::LostWrite,
        FaultKind::MisdirectedWrite { by: 16 },
        FaultKind::MisdirectedWrite { by: 2048 },
        FaultKind::MisdirectedWrite { by: 4096 },
    ];
    for kind in kinds {
        for checkpoints in 1..=3 {
            let mut found = 0;
            for skip in 0..5 {
                let fs = disk(1);
                let mut owner = small_store(&fs);
                for _ in 1..checkpoints {
                    owner.checkpoint().unwrap();
                }
                let mut writer = owner.store.writer(VolumeId::MAIN, Purpose::Later);
                owner.put(&mut writer, VolumeId::MAIN, 1, 2000).unwrap();
                fs.inject(Fault::new(kind).on(main_file()).after(skip));
                owner.checkpoint().unwrap();
                fs.restart();
                match found_number(&fs) {
                    Ok(number) => {
                        found += 1;
                        assert_eq!(number, checkpoints + 1, "{kind:?} {skip}");
                    }
                    Err(error) => assert_eq!(error, ErrorKind::Corrupt),
                }
            }
            assert!(found >= 2, "{kind:?}: both copies are written apart");
        }
    }
}

#[test]
fn files_that_are_too_short_or_missing_are_corrupt() {
    for name in ["main.blocks", "side/data.blocks"] {
        let path = Path::new(DIRECTORY).join(name);
        let whole = disk(1);
        let owner = small_store(&whole);
        let in_file = |held: &&crate::owner::Held| (held.volume == VolumeId::MAIN) == (name == "main.blocks");
        let end = owner
            .blocks
            .values()
            .filter(in_file)
            .map(|held| held.addr.sector() * 512 + held.addr.bytes());
        let end = end.max().unwrap();
        for length in (0..end).step_by(511).chain([4096, 8191, 8192, end - 1]) {
            let fs = whole.after_crash(1);
            fs.open(&path, Access::ReadWrite).unwrap().set_len(length).unwrap();
            assert_eq!(found_number(&fs), Err(ErrorKind::Corrupt), "{name} of {length} bytes");
        }
    }
    let fs = disk(1);
    let owner = small_store(&fs);
    let pin = owner.store.pin().unwrap();
    let aside = Path::new(DIRECTORY).join("main.superblocks");
    let copy = fs.after_crash(1);
    copy.open(&aside, Access::ReadWrite).unwrap().set_len(5000).unwrap();
    assert_eq!(found_number(&copy), Err(ErrorKind::Corrupt));
    drop(pin);
    fs.remove_file(&main_file()).unwrap();
    assert_eq!(found_number(&fs), Err(ErrorKind::Corrupt), "its side file is there");
    let fs = disk(1);
    small_store(&fs);
    fs.remove_file(&Path::new(DIRECTORY).join("side/data.blocks")).unwrap();
    assert_eq!(found_number(&fs), Err(ErrorKind::Corrupt));
}
