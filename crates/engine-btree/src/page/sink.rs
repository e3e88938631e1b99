//! A growing buffer for many short pieces: copies them in blocks of fixed size, which need no call.

use crate::budget::good_size;

/// Pieces up to this length are copied as one block where source and buffer have room for it; what lies past the piece is
/// overwritten by the next one.
const BLOCK: usize = 32;
/// A buffer larger than this is given back rather than kept for the next use.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

/// See the module. Invariant: `length <= buffer.len()`; what lies beyond `length` is garbage.
#[derive(Default)]
pub(super) struct Sink {
    buffer: Vec<u8>,
    length: usize,
}

impl Sink {
    /// With room for `bytes`, which need not be enough.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            buffer: vec![0; bytes],
            length: 0,
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.length
    }

    #[inline(always)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    pub(super) fn clear(&mut self) {
        self.length = 0;
        if self.buffer.len() > KEPT_BYTES_MAX {
            self.buffer = Vec::new();
        }
    }

    #[inline(always)]
    fn make_room(&mut self, bytes: usize) {
        if bytes > self.buffer.len() - self.length {
            self.grow(bytes);
        }
    }

    #[inline(never)]
    fn grow(&mut self, bytes: usize) {
        self.buffer.truncate(self.length);
        self.buffer.reserve(bytes.max(4 * BLOCK));
        self.buffer.resize(self.buffer.capacity(), 0);
    }

    #[inline(always)]
    pub(super) fn put_byte(&mut self, byte: u8) {
        self.make_room(1);
        self.buffer[self.length] = byte;
        self.length += 1;
    }

    /// Appends a piece of which nothing around it is known.
    #[inline]
    pub(super) fn put(&mut self, piece: &[u8]) {
        self.put_from(piece, 0, piece.len());
    }

    /// Appends `length` bytes of `source` that begin at `from`.
    #[inline(always)]
    pub(super) fn put_from(&mut self, source: &[u8], from: usize, length: usize) {
        self.make_room(length);
        let target = &mut self.buffer[self.length..];
        if length <= BLOCK
            && let Some(block) = target.first_chunk_mut::<BLOCK>()
            && let Some(piece) = source[from..].first_chunk::<BLOCK>()
        {
            *block = *piece;
        } else {
            target[..length].copy_from_slice(&source[from..from + length]);
        }
        self.length += length;
    }

    /// Appends the first `length` of eight bytes.
    #[inline(always)]
    pub(super) fn put_part(&mut self, bytes: [u8; 8], length: usize) {
        self.make_room(length);
        let target = &mut self.buffer[self.length..];
        match target.first_chunk_mut::<8>() {
            Some(whole) => *whole = bytes,
            None => target[..length].copy_from_slice(&bytes[..length]),
        }
        self.length += length;
    }

    /// Appends `length` bytes of the sink itself that begin at `from`.
    #[inline(always)]
    pub(super) fn put_again(&mut self, from: usize, length: usize) {
        assert!(
            from + length <= self.length,
            "{length} bytes at {from} of {}",
            self.length
        );
        self.make_room(length);
        if length <= BLOCK
            && self.buffer.len() - self.length >= BLOCK
            && let Some(&piece) = self.buffer[from..].first_chunk::<BLOCK>()
        {
            self.buffer[self.length..self.length + BLOCK].copy_from_slice(&piece);
        } else {
            self.buffer.copy_within(from..from + length, self.length);
        }
        self.length += length;
    }

    /// The bytes, in memory of their length. An allocator may leave a shrunken block where it is, up to half of it unused:
    /// so they are copied unless their size class is that of the buffer.
    pub(super) fn into_boxed_slice(mut self) -> Box<[u8]> {
        if good_size(self.buffer.capacity()) > good_size(self.length) {
            return self.bytes().into();
        }
        self.buffer.truncate(self.length);
        self.buffer.into_boxed_slice()
    }
}
