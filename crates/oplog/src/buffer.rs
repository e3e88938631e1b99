//! Entries that wait for the flusher, in memory, already in the raw form of frames.
//!
//! Knows no I/O. Invariant: `chunks` hold the entries from some `Seq` to `next - 1` in order, without holes.

use crate::format::ENTRY_LENGTH_BYTES;
use crate::limits::SPARE_CHUNKS_MAX;
use engine::Seq;
use std::collections::VecDeque;

/// The raw bytes of one future frame.
pub(crate) struct Chunk {
    /// Entries, each with its length in front.
    pub raw: Vec<u8>,
    /// The first entry's position.
    pub first: Seq,
    /// Number of entries.
    pub entries: u32,
}

impl Chunk {
    /// The last entry's position.
    pub fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.entries) - 1)
    }
}

/// The append side.
pub(crate) struct Buffer {
    next: Seq,
    frame_bytes: usize,
    chunks: Vec<Chunk>,
    spare: Vec<Vec<u8>>,
}

impl Buffer {
    pub fn new(next: Seq, frame_bytes: usize) -> Self {
        Self {
            next,
            frame_bytes,
            chunks: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Copies one entry of `bytes` bytes in all.
    pub fn push(&mut self, parts: &[&[u8]], bytes: usize) -> Seq {
        let needed = ENTRY_LENGTH_BYTES + bytes;
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.raw.len() + needed > self.frame_bytes)
        {
            // Behind a full frame another full one is likely: its memory at once, instead of growing step by step.
            let raw = self.spare.pop().unwrap_or_else(|| match self.chunks.last() {
                Some(_) => Vec::with_capacity(self.frame_bytes),
                None => Vec::new(),
            });
            self.chunks.push(Chunk {
                raw,
                first: self.next,
                entries: 0,
            });
        }
        let chunk = self.chunks.last_mut().expect("one was pushed when there was none");
        chunk.raw.extend_from_slice(&(bytes as u32).to_le_bytes());
        for part in parts {
            chunk.raw.extend_from_slice(part);
        }
        chunk.entries += 1;
        let seq = self.next;
        self.next = seq.next();
        seq
    }

    /// Moves every chunk to the end of `pending`, and takes the memory of emptied ones back.
    pub fn take(&mut self, pending: &mut VecDeque<Chunk>, emptied: &mut Vec<Vec<u8>>) {
        pending.extend(self.chunks.drain(..));
        let room = SPARE_CHUNKS_MAX.saturating_sub(self.spare.len());
        let kept = emptied.len().min(room);
        self.spare.extend(emptied.drain(..kept));
    }
}
