//! What somebody with the disk sees of an encrypted store, and what they can change in it unnoticed.

use crate::owner::{DIRECTORY, content, disk, env, open};
use blocks::{BlockAddr, BlockKind, BlockStore, Purpose, ReadScratch, SalvageReader, StoreOptions, VolumeId};
use codec::Codec;
use crypt::Keys;
use engine::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, FileSystem, KeyedFs, SimulatedFs};

fn main_file() -> PathBuf {
    Path::new(DIRECTORY).join("main.blocks")
}

fn bytes_of(fs: &SimulatedFs) -> Vec<u8> {
    let file = fs.open(&main_file(), Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn append(store: &Arc<BlockStore>, codec: Codec, raw: &[u8]) -> BlockAddr {
    let mut writer = store.writer(VolumeId::MAIN, Purpose::Later);
    let addr = writer.append(BlockKind::Leaf, 9, codec, None, raw).unwrap();
    writer.flush().unwrap();
    addr
}

fn read(store: &BlockStore, addr: &BlockAddr) -> Result<Vec<u8>, ErrorKind> {
    let read = store.read(VolumeId::MAIN, addr, 9, BlockKind::Leaf, &mut ReadScratch::default());
    read.map_err(|error| error.kind())
}

#[test]
fn nothing_of_what_is_written_is_to_be_seen() {
    let fs = disk(1);
    let store = open(&fs).unwrap().0;
    let random = content(1, 1, 3000);
    let text = b"a text that is known ".repeat(100);
    let (first, second) = (append(&store, Codec::None, &random), append(&store, Codec::Zstd, &text));
    store.begin_checkpoint();
    store.commit_checkpoint(7, b"what the owner keeps as its root").unwrap();
    let bytes = bytes_of(&fs);
    for at in (0..random.len() - 8).step_by(8) {
        assert!(!contains(&bytes, &random[at..at + 8]), "at {at}");
    }
    for part in [&b"a text"[..], b"that is known", b"the owner", b"root"] {
        assert!(!contains(&bytes, part), "{part:?}");
    }
    // Not even compressed.
    let mut compressed = Vec::new();
    let mut compressor = codec::Compressor::new(Codec::Zstd).unwrap();
    compressor.compress(&text, &mut compressed).unwrap();
    assert!(compressed.len() > 20 && !contains(&bytes, &compressed[8..20]));
    assert_eq!((read(&store, &first), read(&store, &second)), (Ok(random), Ok(text)));
    drop(store);
    let (store, root) = open(&fs).unwrap();
    assert_eq!(root.unwrap().root, b"what the owner keeps as its root");
    assert!(read(&store, &first).is_ok());
}

/// Writes over a block and makes its checksum fit again, in the block and in the address.
fn forged(fs: &SimulatedFs, addr: &BlockAddr, mut block: Vec<u8>) -> BlockAddr {
    let crc = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    let file = fs.open(&main_file(), Access::ReadWrite).unwrap();
    file.write_all_at(&block, addr.sector() * 512).unwrap();
    let mut encoded = Vec::new();
    addr.encode(&mut encoded);
    encoded[8..].copy_from_slice(&crc.to_le_bytes());
    BlockAddr::decode(&encoded).unwrap()
}

fn block_at(fs: &SimulatedFs, addr: &BlockAddr) -> Vec<u8> {
    let start = addr.sector() as usize * 512;
    bytes_of(fs)[start..start + addr.bytes() as usize].to_vec()
}

/// The checksum is not what protects it: with one that fits, every bit still counts.
#[test]
fn every_flipped_bit_is_noticed_though_the_checksum_fits() {
    let fs = disk(1);
    let store = open(&fs).unwrap().0;
    let addr = append(&store, Codec::None, b"some forty bytes of content, or a few more");
    let whole = block_at(&fs, &addr);
    for bit in 32..whole.len() * 8 {
        let mut block = whole.clone();
        block[bit / 8] ^= 1 << (bit % 8);
        let forged = forged(&fs, &addr, block);
        assert_eq!(read(&store, &forged), Err(ErrorKind::Corrupt), "bit {bit}");
    }
    let same = forged(&fs, &addr, whole);
    assert!(read(&store, &same).is_ok());
}

#[test]
fn a_block_that_was_moved_is_noticed_though_header_and_checksum_say_it_belongs_there() {
    let fs = disk(1);
    let store = open(&fs).unwrap().0;
    let (from, to) = (
        append(&store, Codec::None, &[1; 100]),
        append(&store, Codec::None, &[2; 100]),
    );
    let mut block = block_at(&fs, &from);
    block[28..34].copy_from_slice(&to.sector().to_le_bytes()[..6]);
    let forged = forged(&fs, &to, block);
    assert_eq!(read(&store, &forged), Err(ErrorKind::Corrupt));
}

/// One that was never encrypted must not be taken for one that was.
#[test]
fn a_plain_block_is_refused() {
    let fs = disk(1);
    let store = open(&fs).unwrap().0;
    let addr = append(&store, Codec::None, &[1; 400]);
    let mut block = block_at(&fs, &addr);
    block[6] = 1;
    let forged = forged(&fs, &addr, block);
    assert_eq!(read(&store, &forged), Err(ErrorKind::Corrupt));
}

#[test]
fn without_the_keys_and_with_others_nothing_opens_and_nothing_is_changed() {
    let fs = disk(1);
    let store = open(&fs).unwrap().0;
    append(&store, Codec::None, &[1; 400]);
    store.begin_checkpoint();
    store.commit_checkpoint(7, b"root").unwrap();
    drop(store);
    let before = bytes_of(&fs);
    let plain: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let others: Arc<dyn FileSystem> = Arc::new(KeyedFs::new(plain.clone(), Arc::new(Keys::ephemeral())));
    for other in [plain, others] {
        let env = Env { fs: other, ..env(&fs) };
        let options = StoreOptions {
            segment_bytes: 64 << 10,
            ..StoreOptions::default()
        };
        let error = BlockStore::open(&env, Path::new(DIRECTORY), options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(before == bytes_of(&fs));
        let mut found = 0;
        BlockStore::salvage_scan(&env, Path::new(DIRECTORY), &mut |_| found += 1).unwrap();
        assert_eq!(found, 0);
    }
    let reader = SalvageReader::open(&env(&fs), Path::new(DIRECTORY)).unwrap();
    let mut found = Vec::new();
    reader.scan(&mut |block| found.push(block.raw));
    assert!(found.contains(&vec![1; 400]));
}

/// Opening writes the durable superblock again. Sealed anew it would have other bytes, and a crash could tear both of
/// its copies.
#[test]
fn opening_writes_the_same_superblock_again() {
    let fs = disk(1);
    let store = open(&fs).unwrap().0;
    for seq in 1..=2 {
        store.begin_checkpoint();
        store.commit_checkpoint(seq, b"root").unwrap();
    }
    drop(store);
    let before = bytes_of(&fs);
    drop(open(&fs).unwrap());
    assert!(before[..8192] == bytes_of(&fs)[..8192]);
    // A copy that was damaged is made whole.
    fs.flip_bit(&main_file(), 700, 3).unwrap();
    fs.flip_bit(&main_file(), 4096 + 700, 3).unwrap();
    assert_eq!(open(&fs).unwrap().1.unwrap().seq, 2);
    fs.flip_bit(&main_file(), 2048 + 700, 3).unwrap();
    fs.flip_bit(&main_file(), 6144 + 700, 3).unwrap();
    assert_eq!(open(&fs).unwrap().1.unwrap().seq, 2);
}
