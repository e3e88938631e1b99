//! A block's header. Described in `docs/formats/btree-blocks.md`.

use crate::limits::{BLOCK_HEADER_BYTES, RAW_BYTES_MAX};
use crate::sealing::Sealing;
use crate::{SECTOR_BYTES, VolumeId};
use codec::Codec;
use crypt::SEAL_BYTES;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// Rows.
    Leaf = 1,
    /// Addresses of other blocks, between keys.
    Inner = 2,
    /// A piece of a large value.
    Large = 3,
    /// A page of the map of used sectors; the store's own.
    Map = 4,
    /// The store's directory, or whatever else describes others.
    Meta = 5,
}

impl BlockKind {
    /// Every kind, by tag.
    pub const ALL: [BlockKind; 5] = [Self::Leaf, Self::Inner, Self::Large, Self::Map, Self::Meta];

    fn from_tag(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == tag)
    }
}

/// Start of every block, of format [`BLOCK_VERSION`].
pub(crate) const BLOCK_MAGIC: [u8; 2] = *b"Tb";
pub(crate) const BLOCK_VERSION: u8 = 1;
/// The same, encrypted.
pub(crate) const SEALED_BLOCK_VERSION: u8 = 2;

/// What a block says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockHeader {
    pub kind: BlockKind,
    pub codec: Codec,
    pub owner: u32,
    pub volume: VolumeId,
    /// So many of the raw bytes, the last ones, are its label.
    pub label_bytes: u8,
    /// Number of sections that the stored bytes are compressed in; 0 for what is compressed as a whole.
    pub sections: u16,
    pub raw_bytes: u32,
    pub stored_bytes: u32,
    pub sector: u64,
    /// 48 bits of it are stored.
    pub checkpoint: u64,
    /// A seal stands before the stored bytes, which are encrypted.
    pub is_sealed: bool,
}

/// A field that is not as it must be: its name, what is expected, what is found.
pub(crate) type Mismatch = (&'static str, String, String);

pub(crate) fn mismatch(what: &'static str, expected: impl ToString, found: impl ToString) -> Mismatch {
    (what, expected.to_string(), found.to_string())
}

impl BlockHeader {
    /// Writes the header over the start of `block`, which is whole sectors with the stored bytes in place, seals these
    /// with `sealing`, and returns the checksum.
    pub fn finish(&self, block: &mut [u8], sealing: Option<&Sealing>) -> u32 {
        debug_assert_eq!(self.is_sealed, sealing.is_some(), "all of a store is sealed or nothing");
        block[4..6].copy_from_slice(&BLOCK_MAGIC);
        block[6] = if self.is_sealed {
            SEALED_BLOCK_VERSION
        } else {
            BLOCK_VERSION
        };
        block[7] = self.kind as u8;
        block[8] = self.codec.tag();
        block[9] = self.label_bytes;
        block[10..12].copy_from_slice(&self.sections.to_le_bytes());
        block[12..16].copy_from_slice(&self.owner.to_le_bytes());
        block[16..20].copy_from_slice(&self.volume.0.to_le_bytes());
        block[20..24].copy_from_slice(&self.raw_bytes.to_le_bytes());
        block[24..28].copy_from_slice(&self.stored_bytes.to_le_bytes());
        block[28..34].copy_from_slice(&self.sector.to_le_bytes()[..6]);
        block[34..40].copy_from_slice(&self.checkpoint.to_le_bytes()[..6]);
        if let Some(sealing) = sealing {
            sealing.seal(block, self.stored_bytes as usize);
        }
        let crc = crc32c::crc32c(&block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Reads the fields; whether they are true is for the checksum to say.
    pub fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Result<Self, Mismatch> {
        if bytes[4..6] != BLOCK_MAGIC {
            return Err(mismatch(
                "magic",
                format!("{BLOCK_MAGIC:02x?}"),
                format!("{:02x?}", &bytes[4..6]),
            ));
        }
        if ![BLOCK_VERSION, SEALED_BLOCK_VERSION].contains(&bytes[6]) {
            return Err(mismatch("format version", BLOCK_VERSION, bytes[6]));
        }
        let header = Self {
            kind: BlockKind::from_tag(bytes[7]).ok_or_else(|| mismatch("kind", "1 to 5", bytes[7]))?,
            codec: Codec::from_tag(bytes[8]).map_err(|_| mismatch("codec", "0 to 4", bytes[8]))?,
            label_bytes: bytes[9],
            sections: u16::from_le_bytes([bytes[10], bytes[11]]),
            owner: u32_at(bytes, 12),
            volume: VolumeId(u32_at(bytes, 16)),
            raw_bytes: u32_at(bytes, 20),
            stored_bytes: u32_at(bytes, 24),
            sector: u48_at(bytes, 28),
            checkpoint: u48_at(bytes, 34),
            is_sealed: bytes[6] == SEALED_BLOCK_VERSION,
        };
        if header.raw_bytes as usize > RAW_BYTES_MAX {
            return Err(mismatch(
                "raw length",
                format!("at most {RAW_BYTES_MAX}"),
                header.raw_bytes,
            ));
        }
        if u32::from(header.label_bytes) > header.raw_bytes {
            return Err(mismatch(
                "label's length",
                format!("at most {}", header.raw_bytes),
                header.label_bytes,
            ));
        }
        let is_whole = header.codec == Codec::None || header.label_bytes > 0;
        if header.sections == 1 || header.sections > 0 && is_whole {
            let of_them = if is_whole { "0" } else { "0, or 2 and more" };
            return Err(mismatch("number of sections", of_them, header.sections));
        }
        if header.stored_bytes > header.raw_bytes {
            return Err(mismatch(
                "stored length",
                format!("at most {}", header.raw_bytes),
                header.stored_bytes,
            ));
        }
        Ok(header)
    }

    /// Raw bytes without the label.
    pub fn content_bytes(&self) -> usize {
        self.raw_bytes as usize - usize::from(self.label_bytes)
    }

    /// Length of the block in sectors.
    pub fn sectors(&self) -> usize {
        (BLOCK_HEADER_BYTES + seal_bytes(self.is_sealed) + self.stored_bytes as usize).div_ceil(SECTOR_BYTES)
    }
}

/// Bytes between a block's header and its stored bytes.
pub(crate) fn seal_bytes(is_sealed: bool) -> usize {
    if is_sealed { SEAL_BYTES } else { 0 }
}

/// The checksum of a block: of all its sectors but the first four bytes.
pub(crate) fn block_crc(block: &[u8]) -> u32 {
    crc32c::crc32c(&block[4..])
}

/// The callers' ranges are constants inside fixed arrays, or checked before.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u48_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(bytes[at + 4]) << 32 | u64::from(bytes[at + 5]) << 40
}
