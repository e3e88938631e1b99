//! The cell of a value that lies outside its leaf, in blocks of its own.
//!
//! Layout: total length (4 bytes, little endian), then one block address for each [`LARGE_CHUNK_BYTES`] of it, begun ones
//! included. Nothing else, so the total length tells the cell's length.

use super::bytes::read_u32;

/// A block's address as cells and inner pages store it.
pub(crate) type EncodedAddr = [u8; 12];

/// Raw bytes of a large value in one block; its last block holds what is left.
pub(crate) const LARGE_CHUNK_BYTES: usize = 256 * 1024;

const TOTAL_BYTES: usize = 4;
const ADDR_BYTES: usize = size_of::<EncodedAddr>();

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
            && cell.len() == TOTAL_BYTES + total.div_ceil(LARGE_CHUNK_BYTES) * ADDR_BYTES;
        is_sound.then_some(large)
    }

    /// A cell that was checked when its page came in.
    pub(super) fn trusted(cell: &'a [u8]) -> Self {
        Self { cell }
    }

    /// The bytes of a cell, as [`LargeRef::from_cell`] takes them. One address for each chunk of a value that is not empty.
    pub(crate) fn encode(total_bytes: usize, addresses: &[EncodedAddr]) -> Vec<u8> {
        assert_eq!(addresses.len(), total_bytes.div_ceil(LARGE_CHUNK_BYTES), "one address for each chunk");
        assert!(total_bytes > 0 && total_bytes <= engine::VALUE_BYTES_MAX, "{total_bytes} bytes");
        let mut cell = Vec::with_capacity(TOTAL_BYTES + size_of_val(addresses));
        cell.extend_from_slice(&(total_bytes as u32).to_le_bytes());
        cell.extend_from_slice(addresses.as_flattened());
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
    pub(crate) fn addresses(&self) -> impl ExactSizeIterator<Item = EncodedAddr> + 'a {
        let (addresses, _) = self.cell[TOTAL_BYTES..].as_chunks::<ADDR_BYTES>();
        addresses.iter().copied()
    }
}
