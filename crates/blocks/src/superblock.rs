//! The superblock and the header of the other volumes. Described in `docs/formats/btree-blocks.md`.

use crate::block::{Mismatch, mismatch, u32_at, u64_at};
use crate::limits::{ROOT_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};
use crate::sealing::{open_root, seal_root};
use crate::{BlockAddr, VolumeId};
use crypt::{Keys, SEAL_BYTES};

/// Length of one copy.
pub(crate) const SUPERBLOCK_BYTES: usize = 2048;
pub(crate) const SUPERBLOCK_MAGIC: [u8; 8] = *b"TENONBLK";
pub(crate) const SUPERBLOCK_VERSION: u32 = 1;
/// The same with an encrypted root, and its seal at the end.
pub(crate) const SEALED_SUPERBLOCK_VERSION: u32 = 2;
pub(crate) const SUPERBLOCK_SEAL_OFFSET: usize = SUPERBLOCK_BYTES - SEAL_BYTES;
pub(crate) const SUPERBLOCK_ROOT_OFFSET: usize = 64;
/// One past the greatest number: a block's header has room for 48 bits.
pub(crate) const CHECKPOINT_END: u64 = 1 << 48;
pub(crate) const VOLUME_HEADER_BYTES: usize = 512;
pub(crate) const VOLUME_MAGIC: [u8; 8] = *b"TENONVOL";

const _: () = assert!(SUPERBLOCK_ROOT_OFFSET + ROOT_BYTES_MAX <= SUPERBLOCK_SEAL_OFFSET);

/// What makes a checkpoint durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub segment_bytes: u32,
    /// Random, chosen when the store is made: files of another store are told by it.
    pub store: u64,
    /// 0 says that there is no checkpoint yet.
    pub number: u64,
    pub seq: u64,
    pub directory: Option<BlockAddr>,
    pub root: Vec<u8>,
}

impl Superblock {
    /// The bytes of the copy at offset `place`. With keys they differ from call to call.
    pub fn encode(&self, place: u32, keys: Option<&Keys>) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        bytes[12..16].copy_from_slice(&version(keys).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&(self.root.len() as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.store.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.seq.to_le_bytes());
        let mut address = Vec::with_capacity(BlockAddr::ENCODED_BYTES);
        encode_address(self.directory, &mut address);
        bytes[48..60].copy_from_slice(&address);
        bytes[60..64].copy_from_slice(&place.to_le_bytes());
        bytes[SUPERBLOCK_ROOT_OFFSET..SUPERBLOCK_ROOT_OFFSET + self.root.len()].copy_from_slice(&self.root);
        if let Some(keys) = keys {
            let (fields, rest) = bytes.split_at_mut(SUPERBLOCK_ROOT_OFFSET);
            let seal = seal_root(keys, &fields[12..], &mut rest[..self.root.len()]);
            bytes[SUPERBLOCK_SEAL_OFFSET..].copy_from_slice(&seal);
        }
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the copy at offset `place`.
    pub fn decode(bytes: &[u8; SUPERBLOCK_BYTES], place: u32, keys: Option<&Keys>) -> Result<Self, Mismatch> {
        check_start(bytes, &SUPERBLOCK_MAGIC, version(keys))?;
        if u32_at(bytes, 60) != place {
            return Err(mismatch("own place", place, u32_at(bytes, 60)));
        }
        let segment_bytes = u32_at(bytes, 16);
        check_segment_bytes(segment_bytes)?;
        let root_bytes = u32_at(bytes, 20) as usize;
        if root_bytes > ROOT_BYTES_MAX {
            return Err(mismatch(
                "root's length",
                format!("at most {ROOT_BYTES_MAX}"),
                root_bytes,
            ));
        }
        if u64_at(bytes, 32) >= CHECKPOINT_END {
            return Err(mismatch("number", format!("below {CHECKPOINT_END}"), u64_at(bytes, 32)));
        }
        let root_end = SUPERBLOCK_ROOT_OFFSET + root_bytes;
        let (content, seal) = match keys {
            Some(_) => bytes.split_at(SUPERBLOCK_SEAL_OFFSET),
            None => (&bytes[..], &[][..]),
        };
        if content[root_end..].iter().any(|byte| *byte != 0) {
            return Err(mismatch("reserved", "zeros", "other bytes"));
        }
        let mut root = bytes[SUPERBLOCK_ROOT_OFFSET..root_end].to_vec();
        if let (Some(keys), Some(seal)) = (keys, seal.first_chunk()) {
            open_root(keys, &bytes[12..SUPERBLOCK_ROOT_OFFSET], seal, &mut root)?;
        }
        Ok(Self {
            segment_bytes,
            store: u64_at(bytes, 24),
            number: u64_at(bytes, 32),
            seq: u64_at(bytes, 40),
            directory: BlockAddr::decode(&bytes[48..60]),
            root,
        })
    }
}

/// Whether bytes without a right checksum at offset `place` can be what a torn write left in a store that has `other`:
/// their first sector is that of a superblock, before or after.
pub(crate) fn check_torn(
    bytes: &[u8; SUPERBLOCK_BYTES],
    place: u32,
    other: &Superblock,
    keys: Option<&Keys>,
) -> Result<(), Mismatch> {
    let expected = other.encode(place, keys);
    for (what, range) in [
        ("magic", 0..8),
        ("version, segment's length", 12..20),
        ("store", 24..32),
        ("own place", 60..64),
    ] {
        if bytes[range.clone()] != expected[range.clone()] {
            let text = |bytes: &[u8]| format!("{bytes:02x?}");
            return Err(mismatch(what, text(&expected[range.clone()]), text(&bytes[range])));
        }
    }
    Ok(())
}

/// Start of the file of a volume other than the main one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct VolumeHeader {
    pub segment_bytes: u32,
    pub store: u64,
    pub volume: VolumeId,
}

impl VolumeHeader {
    pub fn encode(&self) -> [u8; VOLUME_HEADER_BYTES] {
        let mut bytes = [0; VOLUME_HEADER_BYTES];
        bytes[..8].copy_from_slice(&VOLUME_MAGIC);
        bytes[12..16].copy_from_slice(&SUPERBLOCK_VERSION.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.volume.0.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.store.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8; VOLUME_HEADER_BYTES]) -> Result<Self, Mismatch> {
        check_start(bytes, &VOLUME_MAGIC, SUPERBLOCK_VERSION)?;
        if bytes[32..].iter().any(|byte| *byte != 0) {
            return Err(mismatch("reserved", "zeros", "other bytes"));
        }
        Ok(Self {
            segment_bytes: u32_at(bytes, 16),
            store: u64_at(bytes, 24),
            volume: VolumeId(u32_at(bytes, 20)),
        })
    }
}

/// That of a superblock.
fn version(keys: Option<&Keys>) -> u32 {
    match keys {
        Some(_) => SEALED_SUPERBLOCK_VERSION,
        None => SUPERBLOCK_VERSION,
    }
}

/// Magic, checksum and version of either.
fn check_start(bytes: &[u8], magic: &[u8; 8], expected: u32) -> Result<(), Mismatch> {
    if bytes[..8] != *magic {
        return Err(mismatch(
            "magic",
            format!("{magic:02x?}"),
            format!("{:02x?}", &bytes[..8]),
        ));
    }
    let (computed, found) = (crc32c::crc32c(&bytes[12..]), u32_at(bytes, 8));
    if computed != found {
        return Err(mismatch("checksum", format!("{computed:08x}"), format!("{found:08x}")));
    }
    match u32_at(bytes, 12) {
        found if found == expected => Ok(()),
        SEALED_SUPERBLOCK_VERSION => Err(mismatch("format version", expected, "2, which is encrypted")),
        found => Err(mismatch("format version", expected, found)),
    }
}

pub(crate) fn check_segment_bytes(bytes: u32) -> Result<(), Mismatch> {
    if bytes.is_power_of_two() && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
        Ok(())
    } else {
        Err(mismatch(
            "length of a segment",
            format!("a power of two from {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX}"),
            bytes,
        ))
    }
}

/// Zeros where there is none.
pub(crate) fn encode_address(address: Option<BlockAddr>, out: &mut Vec<u8>) {
    match address {
        Some(address) => address.encode(out),
        None => out.resize(out.len() + BlockAddr::ENCODED_BYTES, 0),
    }
}
