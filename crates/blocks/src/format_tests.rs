//! Round trips, refused bytes, and the layout snapshot: every size, offset, tag and limit, so that a change of the
//! format is seen in review.

use crate::block::{BLOCK_MAGIC, BLOCK_VERSION, BlockHeader, SEALED_BLOCK_VERSION};
use crate::checkpoint::{DIRECTORY_OWNER, SIDE_FILE};
use crate::directory::{Directory, DirectoryVolume, INDEX_BYTES, INDEX_PAGES, PAGE_BYTES, PAGE_SECTORS};
use crate::limits::BLOCK_HEADER_BYTES;
use crate::space::HEAD_SECTORS;
use crate::store::volume_file;
use crate::superblock::{
    SEALED_SUPERBLOCK_VERSION, SUPERBLOCK_BYTES, SUPERBLOCK_ROOT_OFFSET, SUPERBLOCK_SEAL_OFFSET, SUPERBLOCK_VERSION,
    Superblock, VOLUME_HEADER_BYTES, VolumeHeader,
};
use crate::superblocks::{SLOT_BYTES, SUPERBLOCKS_BYTES};
use crate::{BlockAddr, BlockKind, SECTOR_BYTES, VolumeId, limits};
use codec::Codec;
use std::fmt::Write;

fn address() -> BlockAddr {
    BlockAddr::new(0x1122_3344_5566, 0x7788, 0x99AA_BBCC)
}

fn header() -> BlockHeader {
    BlockHeader {
        kind: BlockKind::Inner,
        codec: Codec::Zstd,
        owner: 0x0102_0304,
        volume: VolumeId(0x0506_0708),
        label_bytes: 9,
        sections: 0,
        raw_bytes: 700,
        stored_bytes: 600,
        sector: 0x1122_3344_5566,
        checkpoint: 0x0A0B_0C0D_0E0F,
        is_sealed: false,
    }
}

fn superblock() -> Superblock {
    Superblock {
        segment_bytes: 1 << 20,
        store: 0x0102_0304_0506_0708,
        number: 3,
        seq: 0x1112_1314_1516_1718,
        directory: Some(address()),
        root: b"root".to_vec(),
    }
}

fn volume_header() -> VolumeHeader {
    VolumeHeader {
        segment_bytes: 1 << 20,
        store: 0x0102_0304_0506_0708,
        volume: VolumeId(9),
    }
}

fn directory() -> Directory {
    let volume = |id, name: &str, index| DirectoryVolume {
        id: VolumeId(id),
        name: name.to_owned(),
        index,
    };
    Directory {
        next_volume: 10,
        volumes: vec![volume(0, "", vec![Some(address()), None]), volume(9, "db", vec![])],
    }
}

fn sealed() -> Vec<u8> {
    let mut block = vec![0; 2 * SECTOR_BYTES];
    header().finish(&mut block, None);
    block
}

#[test]
fn round_trips() {
    let mut bytes = Vec::new();
    address().encode(&mut bytes);
    assert_eq!(bytes.len(), BlockAddr::ENCODED_BYTES);
    assert_eq!(BlockAddr::decode(&bytes), Some(address()));
    assert_eq!(BlockAddr::decode(&bytes[..11]), None);
    assert_eq!(BlockAddr::decode(&[0; 12]), None);
    assert_eq!(BlockHeader::decode(sealed().first_chunk().unwrap()), Ok(header()));
    assert_eq!((header().sectors(), header().content_bytes()), (2, 691));
    assert_eq!(
        Superblock::decode(&superblock().encode(4096, None), 4096, None),
        Ok(superblock())
    );
    let longest = Superblock {
        root: vec![1; limits::ROOT_BYTES_MAX],
        ..superblock()
    };
    assert_eq!(Superblock::decode(&longest.encode(4096, None), 4096, None), Ok(longest));
    assert_eq!(VolumeHeader::decode(&volume_header().encode()), Ok(volume_header()));
    assert_eq!(Directory::decode(&directory().encode()), Ok(directory()));
}

#[test]
fn every_flipped_bit_of_a_superblock_is_noticed() {
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut bytes = superblock().encode(4096, None);
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::decode(&bytes, 4096, None).is_err(), "bit {bit}");
    }
    for bit in 0..VOLUME_HEADER_BYTES * 8 {
        let mut bytes = volume_header().encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(VolumeHeader::decode(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn every_flipped_bit_of_a_sealed_superblock_is_noticed_even_with_the_checksum_made_anew() {
    let keys = crypt::Keys::ephemeral();
    let bytes = superblock().encode(4096, Some(&keys));
    assert_eq!(Superblock::decode(&bytes, 4096, Some(&keys)), Ok(superblock()));
    assert!(!bytes.windows(4).any(|part| part == b"root"), "it is not to be seen");
    for (keys, what) in [(Some(crypt::Keys::ephemeral()), "encryption"), (None, "format version")] {
        let error = Superblock::decode(&bytes, 4096, keys.as_ref()).unwrap_err();
        assert_eq!(error.0, what);
    }
    let plain = superblock().encode(4096, None);
    assert_eq!(
        Superblock::decode(&plain, 4096, Some(&keys)).unwrap_err().0,
        "format version"
    );
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut other = bytes;
        other[bit / 8] ^= 1 << (bit % 8);
        let crc = crc32c::crc32c(&other[12..]);
        other[8..12].copy_from_slice(&crc.to_le_bytes());
        let is_whole = Superblock::decode(&other, 4096, Some(&keys)).is_ok();
        assert_eq!(is_whole, (64..96).contains(&bit), "bit {bit}");
    }
}

#[test]
fn fields_out_of_bounds_are_refused_behind_a_right_checksum() {
    let patched = |at: usize, bytes: &[u8]| {
        let mut block = superblock().encode(4096, None);
        block[at..at + bytes.len()].copy_from_slice(bytes);
        let crc = crc32c::crc32c(&block[12..]);
        block[8..12].copy_from_slice(&crc.to_le_bytes());
        Superblock::decode(&block, 4096, None).map_err(|(what, ..)| what)
    };
    assert_eq!(patched(12, &[2]), Err("format version"));
    assert_eq!(patched(16, &[1]), Err("length of a segment"));
    assert_eq!(patched(20, &[1, 4]), Err("root's length"));
    assert_eq!(patched(38, &[1]), Err("number"));
    assert_eq!(patched(60, &[1]), Err("own place"));
    assert_eq!(patched(2047, &[1]), Err("reserved"));
    let mut refused = Vec::new();
    for (at, value) in [(4, 0), (6, 3), (7, 6), (7, 0), (8, 5), (10, 1), (23, 3), (25, 3)] {
        let mut block = sealed();
        block[at] = value;
        refused.push(BlockHeader::decode(block.first_chunk().unwrap()).unwrap_err().0);
    }
    let label = BlockHeader {
        raw_bytes: 8,
        stored_bytes: 8,
        ..header()
    };
    let mut block = vec![0; SECTOR_BYTES];
    label.finish(&mut block, None);
    refused.push(BlockHeader::decode(block.first_chunk().unwrap()).unwrap_err().0);
    assert_eq!(
        refused,
        [
            "magic",
            "format version",
            "kind",
            "kind",
            "codec",
            "number of sections",
            "raw length",
            "stored length",
            "label's length"
        ]
    );
    // With a label, or stored as it is, a block has none; one alone is none.
    let in_sections = |sections, label_bytes, codec| BlockHeader {
        sections,
        label_bytes,
        codec,
        ..header()
    };
    for (header, is_one) in [
        (in_sections(2, 0, Codec::Lz4), true),
        (in_sections(u16::MAX, 0, Codec::Snappy), true),
        (in_sections(1, 0, Codec::Lz4), false),
        (in_sections(2, 1, Codec::Lz4), false),
        (in_sections(2, 0, Codec::None), false),
    ] {
        let mut block = vec![0; 2 * SECTOR_BYTES];
        header.finish(&mut block, None);
        let decoded = BlockHeader::decode(block.first_chunk().unwrap());
        match is_one {
            true => assert_eq!(decoded, Ok(header)),
            false => assert_eq!(decoded.unwrap_err().0, "number of sections"),
        }
    }
}

#[test]
fn cut_and_patched_directories_are_refused() {
    let bytes = directory().encode();
    for end in 0..bytes.len() {
        assert!(Directory::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(Directory::decode(&[&bytes[..], &[0]].concat()).is_err());
    let with = |change: fn(&mut Directory)| {
        let mut directory = directory();
        change(&mut directory);
        Directory::decode(&directory.encode())
    };
    assert!(with(|_| {}).is_ok());
    assert!(with(|directory| directory.volumes[1].id = VolumeId(0)).is_err());
    assert!(with(|directory| directory.volumes[1].id = VolumeId(10)).is_err());
    assert!(with(|directory| directory.volumes[1].name = "../x".into()).is_err());
    assert!(with(|directory| directory.volumes[1].name.clear()).is_err());
    assert!(with(|directory| drop(directory.volumes.remove(0))).is_err());
}

#[test]
fn layout_snapshot() {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Debug| writeln!(text, "{name} {value:02x?}").unwrap();
    line("files", &[volume_file(""), volume_file("db"), SIDE_FILE.into()]);
    line("versions: block, superblock", &(BLOCK_VERSION, SUPERBLOCK_VERSION));
    line(
        "versions, encrypted: block, superblock",
        &(SEALED_BLOCK_VERSION, SEALED_SUPERBLOCK_VERSION),
    );
    line(
        "encrypted: seal, its offset in a superblock",
        &[crypt::SEAL_BYTES, SUPERBLOCK_SEAL_OFFSET].map(Decimal),
    );
    line("magic of a block", &BLOCK_MAGIC);
    line(
        "sizes: sector, address, block header",
        &[SECTOR_BYTES, BlockAddr::ENCODED_BYTES, BLOCK_HEADER_BYTES].map(Decimal),
    );
    line(
        "sizes: slot, all superblocks",
        &[SLOT_BYTES, SUPERBLOCKS_BYTES].map(Decimal),
    );
    line(
        "sizes: superblock, root's offset, volume header",
        &[SUPERBLOCK_BYTES, SUPERBLOCK_ROOT_OFFSET, VOLUME_HEADER_BYTES].map(Decimal),
    );
    line(
        "sizes: map page, index block, pages of it",
        &[PAGE_BYTES, INDEX_BYTES, INDEX_PAGES].map(Decimal),
    );
    line(
        "sectors: head, of a map page",
        &[Decimal(HEAD_SECTORS as usize), Decimal(PAGE_SECTORS as usize)],
    );
    line(
        "sections: at most, longest, entry in the table",
        &[
            limits::SECTIONS_MAX,
            limits::SECTION_BYTES_MAX,
            crate::sections::ENTRY_BYTES,
        ]
        .map(Decimal),
    );
    line(
        "limits: root, raw, label, name",
        &[
            limits::ROOT_BYTES_MAX,
            limits::RAW_BYTES_MAX,
            limits::LABEL_BYTES_MAX,
            limits::VOLUME_NAME_BYTES_MAX,
        ]
        .map(Decimal),
    );
    line(
        "limits: segment",
        &[limits::SEGMENT_BYTES_MIN, limits::SEGMENT_BYTES_MAX].map(|bytes| Decimal(bytes as usize)),
    );
    line("owner of the directory", &DIRECTORY_OWNER);
    line("kinds", &BlockKind::ALL.map(|kind| (kind, kind as u8)));
    let mut encoded = Vec::new();
    address().encode(&mut encoded);
    line("address", &encoded);
    line("block", &&sealed()[..BLOCK_HEADER_BYTES + 2]);
    line(
        "superblock",
        &&superblock().encode(4096, None)[..SUPERBLOCK_ROOT_OFFSET + 6],
    );
    line("volume header", &&volume_header().encode()[..34]);
    line("directory", &directory().encode());
    let expected = include_str!("../tests/layout.snapshot");
    assert_eq!(text, expected, "the format differs from tests/layout.snapshot:\n{text}");
}

/// A number that `{:x?}` does not turn into hexadecimal.
struct Decimal(usize);

impl std::fmt::Debug for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.0, f)
    }
}
