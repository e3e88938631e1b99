//! A growing buffer for many short pieces: copies them in blocks of fixed size, which need no call.

use crate::budget::good_size;

/// Pieces up to this length are appended as one block where source and buffer have room for it, and what lies past the
/// piece is cut off again.
const BLOCK: usize = 32;
/// A buffer larger than this is given back rather than kept for the next use.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Sink {
    buffer: Vec<u8>,
}

impl Sink {
    /// With room for `bytes`, which need not be enough.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            buffer: Vec::with_capacity(bytes),
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(super) fn clear(&mut self) {
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
    }

    /// Room for as many more bytes at once.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    #[inline(always)]
    fn has_room(&self, bytes: usize) -> bool {
        self.buffer.capacity() - self.buffer.len() >= bytes
    }

    /// Appends the first `length` bytes of a block for which there is room.
    #[inline(always)]
    fn put_block<const N: usize>(&mut self, block: &[u8; N], length: usize) {
        let end = self.buffer.len() + length;
        self.buffer.extend_from_slice(block);
        self.buffer.truncate(end);
    }

    #[inline(always)]
    pub(super) fn put_byte(&mut self, byte: u8) {
        self.buffer.push(byte);
    }

    /// Appends a piece of which nothing around it is known.
    #[inline]
    pub(super) fn put(&mut self, piece: &[u8]) {
        self.put_from(piece, 0, piece.len());
    }

    /// Appends `length` bytes of `source` that begin at `from`.
    #[inline(always)]
    pub(super) fn put_from(&mut self, source: &[u8], from: usize, length: usize) {
        if length <= BLOCK
            && self.has_room(BLOCK)
            && let Some(block) = source[from..].first_chunk::<BLOCK>()
        {
            self.put_block(block, length);
        } else {
            self.buffer.extend_from_slice(&source[from..from + length]);
        }
    }

    /// Appends the first `length` of eight bytes.
    #[inline(always)]
    pub(super) fn put_part(&mut self, bytes: [u8; 8], length: usize) {
        if self.has_room(bytes.len()) {
            self.put_block(&bytes, length);
        } else {
            self.buffer.extend_from_slice(&bytes[..length]);
        }
    }

    /// Appends `length` bytes of the sink itself that begin at `from`.
    #[inline(always)]
    pub(super) fn put_again(&mut self, from: usize, length: usize) {
        if length <= BLOCK
            && self.has_room(BLOCK)
            && let Some(&block) = self.buffer[from..].first_chunk::<BLOCK>()
        {
            self.put_block(&block, length);
        } else {
            self.buffer.extend_from_within(from..from + length);
        }
    }

    /// A copy of the bytes, in memory of their length; the sink stays as it is.
    pub(super) fn to_boxed_slice(&self) -> Box<[u8]> {
        self.bytes().into()
    }

    /// The bytes, in memory of their length. An allocator may leave a shrunken block where it is, up to half of it
    /// unused: so they are copied unless their size class is that of the buffer.
    pub(super) fn into_boxed_slice(self) -> Box<[u8]> {
        if good_size(self.buffer.capacity()) > good_size(self.buffer.len()) {
            return self.bytes().into();
        }
        self.buffer.into_boxed_slice()
    }
}
