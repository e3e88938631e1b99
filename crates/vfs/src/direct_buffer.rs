//! Memory that a file can be read into past the system's cache.

/// What such a read's offset, length and memory are multiples of: the smallest sector of a disk.
pub const DIRECT_BYTES: usize = 512;

/// A buffer that is too short becomes longer by so much, or a multiple.
const GROWTH_BYTES: usize = 4096;

/// Whether `[offset, offset + buffer.len())` can be read into `buffer` past the system's cache.
pub(crate) fn is_aligned(buffer: &[u8], offset: u64) -> bool {
    let numbers = [buffer.as_ptr().addr(), buffer.len(), offset as usize];
    !buffer.is_empty() && numbers.into_iter().all(|number| number.is_multiple_of(DIRECT_BYTES))
}

/// Memory that only grows, and begins at a multiple of [`DIRECT_BYTES`].
#[derive(Debug, Default)]
pub struct DirectBuffer {
    bytes: Vec<u8>,
    /// Where the multiple is.
    start: usize,
}

impl DirectBuffer {
    /// The first `bytes`, of any content.
    pub fn filled(&mut self, bytes: usize) -> &mut [u8] {
        if self.len() < bytes {
            // Nothing of what was in it is wanted: growing it would copy that. In steps, as blocks differ by little.
            self.bytes = Vec::new();
            self.bytes = vec![0; bytes.next_multiple_of(GROWTH_BYTES) + DIRECT_BYTES - 1];
            self.start = self.bytes.as_ptr().align_offset(DIRECT_BYTES);
        }
        &mut self.bytes[self.start..self.start + bytes]
    }

    /// All of it.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len()]
    }

    /// Bytes that it has room for.
    pub fn len(&self) -> usize {
        self.bytes.len().saturating_sub(DIRECT_BYTES - 1)
    }

    /// True before it was used.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_where_a_disk_can_write_to_it() {
        let mut buffer = DirectBuffer::default();
        assert!(buffer.is_empty() && buffer.as_slice().is_empty());
        for bytes in [512, 100, 1024, 1 << 20, 512] {
            let filled = buffer.filled(bytes);
            assert_eq!(filled.len(), bytes);
            filled.fill(7);
            assert_eq!(is_aligned(filled, 0), bytes % DIRECT_BYTES == 0, "{bytes}");
            assert_eq!(buffer.as_slice()[..bytes], vec![7; bytes]);
        }
        assert_eq!(buffer.len(), 1 << 20, "it does not shrink");
        let filled = buffer.filled(1024);
        assert!(!is_aligned(filled, 100));
        assert!(!is_aligned(&filled[1..513], 512));
        assert!(!is_aligned(&filled[..0], 512));
    }
}
