//! A main volume of arbitrary bytes: opened, salvaged, written to and opened again. Never a panic; what is opened can go on.
//!
//! The first byte chooses: the bytes as they are; or a superblock, a directory, an index block and map pages with right
//! checksums and arbitrary content, so that what lies behind the checksums is reached. They are encoded here as
//! `docs/formats/btree-blocks.md` says, apart from the crate's code.
#![no_main]

use blocks::{BlockAddr, BlockKind, BlockStore, Purpose, ReadScratch, StoreOptions, VolumeId};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

const SEGMENT_BYTES: u32 = 32 << 10;

/// Appends a block at the file's end and returns its address.
fn block(file: &mut Vec<u8>, kind: u8, owner: u32, content: &[u8]) -> [u8; 12] {
    let length = (40 + content.len()).next_multiple_of(512);
    let room = SEGMENT_BYTES as usize - file.len() % SEGMENT_BYTES as usize;
    if room < length {
        file.resize(file.len() + room, 0);
    }
    let start = file.len();
    let sector = (start / 512) as u64;
    file.resize(start + length, 0);
    let bytes = &mut file[start..];
    bytes[4..9].copy_from_slice(&[b'T', b'b', 1, kind, 0]);
    bytes[12..16].copy_from_slice(&owner.to_le_bytes());
    bytes[20..24].copy_from_slice(&(content.len() as u32).to_le_bytes());
    bytes[24..28].copy_from_slice(&(content.len() as u32).to_le_bytes());
    bytes[28..34].copy_from_slice(&sector.to_le_bytes()[..6]);
    bytes[34] = 1;
    bytes[40..40 + content.len()].copy_from_slice(content);
    let crc = crc32c::crc32c(&bytes[4..]).to_le_bytes();
    bytes[..4].copy_from_slice(&crc);
    let mut address = [0; 12];
    address[..6].copy_from_slice(&sector.to_le_bytes()[..6]);
    address[6..8].copy_from_slice(&((length / 512) as u16).to_le_bytes());
    address[8..].copy_from_slice(&crc);
    address
}

/// A store whose directory or map the input describes.
fn store_file(mode: u8, data: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 8192];
    let directory = if mode & 2 == 0 {
        block(&mut file, 5, u32::MAX, &data[..data.len().min(30_000)])
    } else {
        let mut page = vec![0; 4096];
        let given = data.len().min(4096);
        page[..given].copy_from_slice(&data[..given]);
        let mut index = block(&mut file, 4, 0, &page).to_vec();
        index.extend_from_slice(data.get(4096..).unwrap_or_default());
        index.resize(3072, 0);
        let index = block(&mut file, 5, 0, &index);
        let mut directory = 1u32.to_le_bytes().to_vec();
        directory.extend_from_slice(&1u32.to_le_bytes());
        directory.extend_from_slice(&[0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        directory.extend_from_slice(&index);
        block(&mut file, 5, u32::MAX, &directory)
    };
    // The first copy of the first slot; the others are damaged.
    let superblock = &mut file[..2048];
    superblock[..8].copy_from_slice(b"TENONBLK");
    superblock[12] = 1;
    superblock[16..20].copy_from_slice(&SEGMENT_BYTES.to_le_bytes());
    superblock[32] = 1;
    superblock[48..60].copy_from_slice(&directory);
    let crc = crc32c::crc32c(&superblock[12..]).to_le_bytes();
    superblock[8..12].copy_from_slice(&crc);
    file
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else { return };
    let bytes = if mode % 2 == 0 { data.to_vec() } else { store_file(*mode, data) };
    let fs = SimulatedFs::new(1);
    fs.create_directory_all(Path::new("/data")).expect("an empty disk");
    let file = fs
        .open(Path::new("/data/main.blocks"), Access::CreateNew)
        .expect("an empty directory");
    file.write_all_at(&bytes, 0).expect("an unbounded disk");
    let env = Env {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    let directory = Path::new("/data");
    let _ = BlockStore::salvage_scan(&env, directory, &mut |_| {});
    let mut scratch = ReadScratch::default();
    let options = StoreOptions {
        segment_bytes: SEGMENT_BYTES,
        direct_io: true,
    };
    let Ok((store, _)) = BlockStore::open(&env, directory, options.clone()) else {
        return;
    };
    if let Some(addr) = BlockAddr::decode(data) {
        let _ = store.read(VolumeId::MAIN, &addr, 0, BlockKind::Map, &mut scratch);
    }
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Checkpoint);
    let addr = writer
        .append(BlockKind::Leaf, 1, codec::Codec::None, None, b"one more")
        .expect("a short block");
    writer.flush().expect("the disk works");
    store.begin_checkpoint();
    store.commit_checkpoint(7, b"root").expect("the disk works");
    drop((writer, store));
    let (store, root) = BlockStore::open(&env, directory, options).expect("what was opened once can be opened again");
    assert_eq!(root.expect("it is durable").seq, 7);
    let raw = store.read(VolumeId::MAIN, &addr, 1, BlockKind::Leaf, &mut scratch);
    assert_eq!(raw.expect("it is whole"), b"one more");
});
