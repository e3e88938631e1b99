//! The cell of a value that lies outside its leaf, in blocks of its own.
//!
//! Layout: total length (4 bytes, little endian), then one block address for each [`LARGE_CHUNK_BYTES`] of it, begun
//! ones included. Nothing else, so the total length tells the cell's length.

use super::bytes::read_u32;
use blocks::BlockAddr;

/// Raw bytes of a large value in one block; its last block holds what is left.
pub(crate) const LARGE_CHUNK_BYTES: usize = 256 * 1024;

const TOTAL_BYTES: usize = 4;
const ADDR_BYTES: usize = BlockAddr::ENCODED_BYTES;

/// Where a large value lies: the checked bytes of its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeRef<'a> {
    cell: &'a [u8],
}

impl<'a> LargeRef<'a> {
    /// `None` when `cell` breaks the layout.
    pub(crate) fn from_cell(cell: &'a [u8]) -> Option<Self> {
        if cell.len() < TOTAL_BYTES {
            return None;
        }
        let large = Self { cell };
        let total = large.total_bytes();
        let is_sound = total > 0
            && total <= engine::VALUE_BYTES_MAX
            && cell.len() == TOTAL_BYTES + total.div_ceil(LARGE_CHUNK_BYTES) * ADDR_BYTES
            && cell[TOTAL_BYTES..]
                .chunks_exact(ADDR_BYTES)
                .all(|bytes| BlockAddr::decode(bytes).is_some());
        is_sound.then_some(large)
    }

    /// A cell that was checked when its page came in.
    pub(super) fn trusted(cell: &'a [u8]) -> Self {
        Self { cell }
    }

    /// The bytes of a cell, as [`LargeRef::from_cell`] takes them. One address for each chunk of a value that is not
    /// empty.
    pub(crate) fn encode(total_bytes: usize, addresses: &[BlockAddr]) -> Vec<u8> {
        assert_eq!(
            addresses.len(),
            total_bytes.div_ceil(LARGE_CHUNK_BYTES),
            "one address for each chunk"
        );
        assert!(
            total_bytes > 0 && total_bytes <= engine::VALUE_BYTES_MAX,
            "{total_bytes} bytes"
        );
        let mut cell = Vec::with_capacity(TOTAL_BYTES + addresses.len() * ADDR_BYTES);
        cell.extend_from_slice(&(total_bytes as u32).to_le_bytes());
        addresses.iter().for_each(|address| address.encode(&mut cell));
        cell
    }

    pub(crate) fn cell(&self) -> &'a [u8] {
        self.cell
    }

    /// Length of the value.
    pub(crate) fn total_bytes(&self) -> usize {
        read_u32(self.cell) as usize
    }

    /// Addresses of its chunks, in order.
    pub(crate) fn addresses(&self) -> impl ExactSizeIterator<Item = BlockAddr> + 'a {
        let addresses = self.cell[TOTAL_BYTES..].chunks_exact(ADDR_BYTES);
        addresses.map(|bytes| BlockAddr::decode(bytes).expect("checked when the cell came in"))
    }
}
