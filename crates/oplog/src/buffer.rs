//! Entries that are not yet on disk, in memory, already in the raw form of frames.
//!
//! Knows no I/O. `filling` grows by appends; [`Buffer::take`] hands it to the writer, and keeps what was handed over
//! readable until [`Buffer::forget`] hears that it is durable.
//!
//! Invariant: `in_flight` and `filling` hold the entries from some `Seq` to `next - 1` in order, without holes, in
//! chunks of one term each.

use crate::format::{FrameKind, HardState, entry_length};
use crate::limits::{ENTRY_LENGTH_BYTES, SPARE_CHUNKS_MAX};
use bytes::Bytes;
use engine::Seq;
use std::collections::VecDeque;
use std::sync::Arc;

/// The raw bytes of one future frame.
pub(crate) struct Chunk {
    pub kind: FrameKind,
    /// Entries, each with its length in front; or a state.
    pub raw: Vec<u8>,
    /// The first entry's position.
    pub first: Seq,
    /// Number of entries.
    pub entries: u32,
    /// Their term.
    pub term: u64,
}

impl Chunk {
    /// A chunk with a state, before the entry `next`.
    pub fn of_state(state: &HardState, next: Seq) -> Self {
        Self {
            kind: FrameKind::State,
            raw: state.encode().to_vec(),
            first: next,
            entries: 0,
            term: state.term,
        }
    }

    /// The position after the last entry.
    pub fn next(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.entries))
    }

    /// Whether it may have entries of a term.
    fn takes(&self, term: u64) -> bool {
        self.kind == FrameKind::Entries && self.term == term
    }

    /// Offset of an entry that it holds.
    fn offset_of(&self, seq: Seq) -> usize {
        debug_assert!(self.kind == FrameKind::Entries && (self.first..=self.next()).contains(&seq));
        let mut offset = 0;
        for _ in self.first.0..seq.0 {
            let length = entry_length(&self.raw[offset..]).expect("entries as they were pushed");
            offset += ENTRY_LENGTH_BYTES + length;
        }
        offset
    }

    /// Takes the entries from `from` on away; returns the bytes that went.
    fn cut(&mut self, from: Seq) -> usize {
        let before = self.raw.len();
        self.raw.truncate(self.offset_of(from));
        self.entries = (from.0 - self.first.0) as u32;
        before - self.raw.len()
    }
}

/// Entries read from memory: raw, from the one asked for on.
pub(crate) struct BufferedEntries {
    pub raw: Bytes,
    pub term: u64,
}

/// The append side.
pub(crate) struct Buffer {
    next: Seq,
    /// The term of the last entry, in force for appends that name none.
    term: u64,
    frame_bytes: usize,
    filling: Vec<Chunk>,
    in_flight: VecDeque<Arc<Chunk>>,
    spare: Vec<Vec<u8>>,
    /// Most that the capacities in `spare` add up to, unless there is one alone.
    spare_bytes_max: usize,
}

impl Buffer {
    pub fn new(next: Seq, term: u64, frame_bytes: usize, spare_bytes_max: usize) -> Self {
        Self {
            spare_bytes_max,
            next,
            term,
            frame_bytes,
            filling: Vec::new(),
            in_flight: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// The position of the next entry, and the term of the one before it.
    pub fn end(&self) -> (Seq, u64) {
        (self.next, self.term)
    }

    /// The bytes of the frames that what is here will make, in order, before headers and compression.
    pub fn frames(&self) -> impl Iterator<Item = usize> {
        let chunks = self.in_flight.iter().map(|chunk| &**chunk).chain(&self.filling);
        chunks.map(|chunk| chunk.raw.len())
    }

    /// As [`Buffer::frames`], once entries of these lengths and one term are here, too.
    pub fn frames_with(&self, term: u64, lengths: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut frames: Vec<_> = self.frames().collect();
        let mut joins = self.filling.last().is_some_and(|chunk| chunk.takes(term));
        for needed in lengths {
            match frames.last_mut() {
                Some(last) if joins && *last + needed <= self.frame_bytes => *last += needed,
                _ => frames.push(needed),
            }
            joins = true;
        }
        frames
    }

    /// How many those are.
    pub fn frame_count(&self) -> usize {
        self.in_flight.len() + self.filling.len()
    }

    /// Whether so many bytes of an entry go into the last one of them.
    fn joins_last(&self, term: u64, needed: usize) -> bool {
        let last = self.filling.last().filter(|chunk| chunk.takes(term));
        last.is_some_and(|chunk| chunk.raw.len() + needed <= self.frame_bytes)
    }

    /// Copies one entry of `bytes` bytes in all.
    pub fn push(&mut self, term: u64, parts: &[&[u8]], bytes: usize) -> Seq {
        debug_assert!(term >= self.term, "terms never fall");
        let needed = ENTRY_LENGTH_BYTES + bytes;
        if !self.joins_last(term, needed) {
            // Behind a full frame another full one is likely: its memory at once, instead of growing step by step.
            let raw = self.spare.pop().unwrap_or_else(|| match self.filling.last() {
                Some(full) if full.kind == FrameKind::Entries => Vec::with_capacity(self.frame_bytes),
                _ => Vec::new(),
            });
            self.filling.push(Chunk {
                kind: FrameKind::Entries,
                raw,
                first: self.next,
                entries: 0,
                term,
            });
        }
        let chunk = self.filling.last_mut().expect("one was pushed when there was none");
        chunk.raw.extend_from_slice(&(bytes as u32).to_le_bytes());
        for part in parts {
            chunk.raw.extend_from_slice(part);
        }
        chunk.entries += 1;
        self.term = term;
        let seq = self.next;
        self.next = seq.next();
        seq
    }

    /// Puts a state behind what was appended.
    pub fn push_state(&mut self, state: &HardState) {
        self.filling.push(Chunk::of_state(state, self.next));
    }

    /// Hands every chunk to the end of `pending`, and takes the memory of emptied ones back.
    pub fn take(&mut self, pending: &mut VecDeque<Arc<Chunk>>, emptied: &mut Vec<Vec<u8>>) {
        for chunk in self.filling.drain(..) {
            let chunk = Arc::new(chunk);
            self.in_flight.push_back(chunk.clone());
            pending.push_back(chunk);
        }
        // What is not kept stays there: it is freed without the lock.
        let mut bytes: usize = self.spare.iter().map(Vec::capacity).sum();
        while self.spare.len() < SPARE_CHUNKS_MAX
            && let Some(raw) =
                emptied.pop_if(|raw| self.spare.is_empty() || bytes + raw.capacity() <= self.spare_bytes_max)
        {
            bytes += raw.capacity();
            self.spare.push(raw);
        }
    }

    /// The first `chunks` chunks that were handed over are on disk.
    pub fn forget(&mut self, chunks: usize) {
        self.in_flight.drain(..chunks);
    }

    /// The entries from `from` on that are in the chunk of `from`; `None` when that is not here (any more).
    pub fn read(&self, from: Seq) -> Option<BufferedEntries> {
        let here = |chunk: &&Chunk| chunk.first <= from && from < chunk.next();
        let in_flight = self.in_flight.iter().map(|chunk| &**chunk);
        let chunk = in_flight.chain(&self.filling).find(here)?;
        Some(BufferedEntries {
            raw: Bytes::copy_from_slice(&chunk.raw[chunk.offset_of(from)..]),
            term: chunk.term,
        })
    }

    /// Takes the entries from `from` on back; `term` is that of the entry before. States stay. `pending` is what the
    /// writer has of `in_flight`, and still has after the call, in the same order. Returns the bytes of entries that
    /// went.
    pub fn truncate(&mut self, from: Seq, term: u64, pending: &mut VecDeque<Arc<Chunk>>) -> usize {
        debug_assert!(from <= self.next);
        let mut bytes = 0;
        let mut cut = |mut chunk: Chunk| {
            if chunk.kind == FrameKind::State {
                // Its place is before the next entry that is written.
                chunk.first = chunk.first.min(from);
                return Some(chunk);
            }
            if chunk.first >= from {
                bytes += chunk.raw.len();
                return None;
            }
            if chunk.next() > from {
                bytes += chunk.cut(from);
            }
            Some(chunk)
        };
        self.filling = std::mem::take(&mut self.filling)
            .into_iter()
            .filter_map(&mut cut)
            .collect();
        // The writer's own hold of each goes first, so that the chunk is this one's to change.
        pending.clear();
        let in_flight = std::mem::take(&mut self.in_flight);
        let owned = in_flight.into_iter().filter_map(Arc::into_inner);
        self.in_flight = owned.filter_map(&mut cut).map(Arc::new).collect();
        pending.extend(self.in_flight.iter().cloned());
        self.next = from;
        self.term = term;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_chunks_keep_to_their_bound_but_for_one() {
        let spare_after = |capacities: &[usize]| {
            let mut buffer = Buffer::new(Seq(1), 1, 100, 1000);
            let mut emptied: Vec<_> = capacities.iter().map(|bytes| Vec::with_capacity(*bytes)).collect();
            buffer.take(&mut VecDeque::new(), &mut emptied);
            assert_eq!(
                buffer.spare.len() + emptied.len(),
                capacities.len(),
                "the rest is the caller's"
            );
            buffer.spare.iter().map(Vec::capacity).collect::<Vec<_>>()
        };
        assert_eq!(spare_after(&[600, 600, 300]), [300, 600]);
        assert_eq!(spare_after(&[600, 2000]), [2000], "one is kept whatever its size");
        assert_eq!(spare_after(&[100; 9]), [100; SPARE_CHUNKS_MAX]);
    }
}
