//! Where a block lies, and what its bytes must sum to. Addresses are stored in other blocks, little endian, 12 bytes.

use std::fmt;

/// A file of the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct VolumeId(pub u32);

impl VolumeId {
    /// The volume that is always there, and holds the superblocks and the maps.
    pub const MAIN: VolumeId = VolumeId(0);
}

/// Place, length and checksum of a block within its volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockAddr {
    sector_low: u32,
    sector_high: u16,
    sectors: u16,
    crc: u32,
}

impl BlockAddr {
    /// Length of an encoded address.
    pub const ENCODED_BYTES: usize = 12;
    /// One past the greatest sector number.
    pub const SECTOR_END: u64 = 1 << 48;

    /// `sector` is below [`BlockAddr::SECTOR_END`] and `sectors` is not 0.
    pub(crate) fn new(sector: u64, sectors: u16, crc: u32) -> Self {
        assert!(
            sector < Self::SECTOR_END && sectors > 0,
            "sector {sector}, {sectors} sectors"
        );
        Self {
            sector_low: sector as u32,
            sector_high: (sector >> 32) as u16,
            sectors,
            crc,
        }
    }

    /// First sector.
    pub fn sector(&self) -> u64 {
        u64::from(self.sector_high) << 32 | u64::from(self.sector_low)
    }

    /// Length in sectors, not 0.
    pub fn sectors(&self) -> u32 {
        u32::from(self.sectors)
    }

    /// CRC-32C of the block.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Length in bytes on disk.
    pub fn bytes(&self) -> u64 {
        u64::from(self.sectors) * crate::SECTOR_BYTES as u64
    }

    /// One past the last sector.
    pub fn end(&self) -> u64 {
        self.sector() + u64::from(self.sectors)
    }

    /// Appends the encoded address.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sector_low.to_le_bytes());
        out.extend_from_slice(&self.sector_high.to_le_bytes());
        out.extend_from_slice(&self.sectors.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
    }

    /// Reads the address at the start of `bytes`; `None` when they are too few or the length is 0. Nothing else is
    /// checked: reading the block does that.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::ENCODED_BYTES] = bytes.first_chunk()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        let sectors = u16::from_le_bytes([g, h]);
        (sectors > 0).then_some(Self {
            sector_low: u32::from_le_bytes([a, b, c, d]),
            sector_high: u16::from_le_bytes([e, f]),
            sectors,
            crc: u32::from_le_bytes([i, j, k, l]),
        })
    }
}

impl fmt::Debug for BlockAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}:{:08x}", self.sector(), self.sectors, self.crc)
    }
}
