//! Turns groups of entries into frames and puts them on disk.
//!
//! One writer at a time (whoever holds its mutex). Protocol of a group:
//!
//! 1. Take what is buffered.
//! 2. Frame and compress as much as fits the segment.
//! 3. One write, one sync; before the first ones of a segment the position file names it.
//! 4. Only then are the entries forgotten here and the durable mark moves.
//!
//! When the segment has no room for a frame, everything in it has been synced, and a new segment is made.
//!
//! Invariants: `pending` starts with the entry after the durable mark and is what the buffer has in flight; the file
//! below `offset` is durable; frames made from the same chunks have the same lengths and entries (the same bytes,
//! unless they are sealed), so a group that found the disk full can be written again over itself: whichever write a
//! frame is of, it says the same, and one that is of both has a wrong checksum.

use crate::buffer::{Buffer, Chunk};
use crate::catalog::{Catalog, Segment, new_stamp};
use crate::disk::Disk;
use crate::format::{
    FRAME_HEADER_BYTES, FRAMES_START, FrameHeader, FrameKind, HARD_STATE_BYTES, HardState, SegmentHeader,
    SegmentNumber, VERSION, padded,
};
use crate::limits::{CHUNK_KEPT_BYTES_MAX, COMPRESS_RAW_BYTES_MIN, GROUP_KEPT_BYTES_MAX};
use crate::position::PositionFile;
use crate::stats::add;
use crate::{LogError, Result};
use codec::{Codec, Compressor};
use crypt::{Keys, SEAL_BYTES};
use engine::Seq;
use rcu::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::{Clock, Env, File, Random};

/// The segment being written.
pub(crate) struct Tail {
    pub segment: Arc<Segment>,
    pub file: Arc<dyn File>,
    /// Where the next frame goes.
    pub offset: u64,
}

/// Where writing goes on.
pub(crate) struct LogEnd {
    /// `None` when the next entry needs a new segment.
    pub tail: Option<Tail>,
    pub next_number: SegmentNumber,
    pub state: Option<HardState>,
    /// The term of the last entry.
    pub term: u64,
}

pub(crate) struct Writer {
    tail: Option<Tail>,
    /// The position file names the tail, or has been asked to: no frame is written before.
    is_named: bool,
    next_number: SegmentNumber,
    segment_bytes: u64,
    random: Arc<dyn Random>,
    keys: Option<Arc<Keys>>,
    compressor: Compressor,
    pending: VecDeque<Arc<Chunk>>,
    /// The newest state that is on disk or in `pending`'s way there: each segment begins with it.
    state: Option<HardState>,
    /// The term of the last entry on disk.
    term: u64,
    clock: Arc<dyn Clock>,
    emptied: Vec<Vec<u8>>,
    group: Vec<u8>,
    /// A group is closed at so many.
    group_bytes: usize,
}

/// What one group brought to disk.
pub(crate) struct Flushed {
    /// The last entry on disk now.
    pub last: Seq,
    /// Its chunks.
    pub chunks: usize,
    /// How many of them are states.
    pub states: u64,
    /// Raw bytes, as counted when appended.
    pub raw_bytes: usize,
    /// More is to be flushed.
    pub more: bool,
    /// The segment is more than half full.
    pub past_middle: bool,
}

/// The frames of one group, not yet written.
struct Framed {
    chunks: usize,
    raw_bytes: usize,
    stored_bytes: usize,
    /// Bytes that the first frame left out needs; 0 when none was left out for want of room.
    wanted: u64,
}

impl Writer {
    pub fn new(end: LogEnd, segment_bytes: u64, codec: Codec, group_bytes: usize, env: &Env) -> Result<Self> {
        let LogEnd {
            tail,
            next_number,
            state,
            term,
        } = end;
        let compressor = Compressor::new(codec).map_err(LogError::Compressor)?;
        Ok(Self {
            tail,
            is_named: false,
            next_number,
            segment_bytes,
            random: env.random.clone(),
            keys: env.fs.keys().cloned(),
            clock: env.clock.clone(),
            compressor,
            state,
            term,
            pending: VecDeque::new(),
            emptied: Vec::new(),
            group: Vec::new(),
            group_bytes,
        })
    }

    /// Takes over what is buffered.
    pub fn take(&mut self, buffer: &Mutex<Buffer>) {
        buffer.lock().take(&mut self.pending, &mut self.emptied);
        self.emptied.clear();
    }

    /// Writes no more to the segment in use: what comes next begins a new one.
    pub fn end_segment(&mut self) {
        self.tail = None;
    }

    /// Bytes that the segment in use has left.
    pub fn room(&self) -> u64 {
        self.tail
            .as_ref()
            .map_or(0, |tail| tail.segment.header.file_bytes - tail.offset)
    }

    /// Writes and syncs one group of what was taken; `None` when nothing is left. An error that passes may be
    /// tried again; after any other one the writer must not be used.
    pub fn flush_group(&mut self, disk: &Disk, catalog: &Catalog, position: &PositionFile) -> Result<Option<Flushed>> {
        let framed = loop {
            let Some(front) = self.pending.front() else {
                return Ok(None);
            };
            let first = front.first;
            let wanted = match &self.tail {
                None => frame_bytes_max(front.raw.len() + seal_bytes(self.keys.as_deref())),
                Some(tail) => {
                    let (offset, room) = (tail.offset, tail.segment.header.file_bytes - tail.offset);
                    let segment = tail.segment.clone();
                    let framed = self.frame_group(&segment, offset, room);
                    if framed.chunks > 0 {
                        break framed;
                    }
                    framed.wanted
                }
            };
            self.roll(disk, catalog, first, wanted)?;
        };
        let tail = self.tail.as_mut().expect("a group was framed for it");
        if !self.is_named {
            // A segment that is gone is missed only where it is named, and its entries are acknowledged from here on.
            let durable = Seq(self.pending[0].first.0 - 1);
            position.lock().name(disk, &tail.segment.header, durable)?;
            self.is_named = true;
        }
        disk.write(&*tail.file, &tail.segment.path, &self.group, tail.offset)?;
        disk.sync_file(&*tail.file, &tail.segment.path)?;
        tail.segment.mark(self.pending[0].first, tail.offset);
        tail.offset += self.group.len() as u64;
        tail.segment.set_written(tail.offset);
        add(&disk.counters.groups, 1);
        add(&disk.counters.frames, framed.chunks as u64);
        add(&disk.counters.raw_bytes, framed.raw_bytes as u64);
        add(&disk.counters.stored_bytes, framed.stored_bytes as u64);
        let next = self.pending[framed.chunks - 1].next();
        let past_middle = tail.offset > tail.segment.header.file_bytes / 2;
        let mut states = 0;
        for chunk in self.pending.iter().take(framed.chunks) {
            match chunk.kind {
                FrameKind::Entries => self.term = chunk.term,
                FrameKind::State => {
                    states += 1;
                    self.state = HardState::decode(&chunk.raw);
                }
            }
        }
        if self.group.capacity() > GROUP_KEPT_BYTES_MAX {
            self.group = Vec::new();
        }
        Ok(Some(Flushed {
            last: Seq(next.0 - 1),
            chunks: framed.chunks,
            states,
            raw_bytes: framed.raw_bytes,
            more: self.pending.len() > framed.chunks,
            past_middle,
        }))
    }

    /// Fills `group` with the frames of the first pending chunks, as many as `room` and the group's bound allow.
    fn frame_group(&mut self, segment: &Segment, group_start: u64, room: u64) -> Framed {
        let mut framed = Framed {
            chunks: 0,
            raw_bytes: 0,
            stored_bytes: 0,
            wanted: 0,
        };
        self.group.clear();
        for chunk in &self.pending {
            let start = self.group.len();
            if start > 0 && start + chunk.raw.len() > self.group_bytes {
                break;
            }
            let header = frame_into(
                &mut self.group,
                Some(&mut self.compressor),
                chunk,
                &segment.header,
                group_start,
                self.keys.as_deref(),
            );
            let end = self.group.len();
            if end as u64 > room {
                self.group.truncate(start);
                framed.wanted = (end - start) as u64;
                break;
            }
            framed.chunks += 1;
            framed.raw_bytes += chunk.raw.len();
            framed.stored_bytes += header.stored_bytes as usize;
        }
        framed
    }

    /// What [`Flushed`] told of is readable on disk: forgets it, here and in the buffer. `meanwhile` with that locked.
    pub fn forget(&mut self, chunks: usize, buffer: &Mutex<Buffer>, meanwhile: impl FnOnce()) {
        {
            let mut buffer = buffer.lock();
            buffer.forget(chunks);
            meanwhile();
        }
        for chunk in self.pending.drain(..chunks) {
            // The buffer's hold is gone, so this one is the last.
            let Some(chunk) = Arc::into_inner(chunk) else { continue };
            let mut raw = chunk.raw;
            raw.clear();
            if raw.capacity() <= CHUNK_KEPT_BYTES_MAX {
                self.emptied.push(raw);
            }
        }
    }

    /// Takes the entries from `from` on back, whose predecessor has the term `term`. Those on disk (up to `durable`) by
    /// a new segment, which says so and is durable on return. Returns the bytes of entries that were not on disk. After
    /// an error, which passes or is for ever, nothing was taken back.
    pub fn truncate(
        &mut self,
        from: Seq,
        term: u64,
        durable: Seq,
        (disk, catalog): (&Disk, &Catalog),
        buffer: &Mutex<Buffer>,
    ) -> Result<usize> {
        if from <= durable {
            self.begin_segment((disk, catalog), from, term, 0, true)?;
            self.term = term;
        }
        Ok(buffer.lock().truncate(from, term, &mut self.pending))
    }

    /// Starts a new segment for the entry `first`, whose frame needs `wanted` bytes.
    fn roll(&mut self, disk: &Disk, catalog: &Catalog, first: Seq, wanted: u64) -> Result<()> {
        self.begin_segment((disk, catalog), first, self.term, wanted, false)
    }

    fn begin_segment(
        &mut self,
        (disk, catalog): (&Disk, &Catalog),
        first: Seq,
        term_before: u64,
        wanted: u64,
        truncates: bool,
    ) -> Result<()> {
        let header = SegmentHeader {
            number: self.next_number,
            stamp: new_stamp(&*self.random),
            first,
            file_bytes: self
                .segment_bytes
                .max((FRAMES_START + state_frame_bytes(self.keys.as_deref()) + wanted).next_multiple_of(FRAMES_START)),
            made_ms: self.clock.now_ms().max(0) as u64,
            term_before,
            truncates,
            version: VERSION,
            is_sealed: self.keys.is_some(),
        };
        self.tail = Some(create_segment(disk, catalog, header, self.state.as_ref())?);
        self.is_named = false;
        self.next_number = SegmentNumber(self.next_number.0 + 1);
        Ok(())
    }
}

/// Room that a state takes at the start of a segment.
fn state_frame_bytes(keys: Option<&Keys>) -> u64 {
    padded((FRAME_HEADER_BYTES + seal_bytes(keys) + HARD_STATE_BYTES) as u64)
}

fn seal_bytes(keys: Option<&Keys>) -> usize {
    keys.map_or(0, |_| SEAL_BYTES)
}

/// Makes a segment that begins with the state, so that the newest segment always has it, whatever is purged.
pub(crate) fn create_segment(
    disk: &Disk,
    catalog: &Catalog,
    header: SegmentHeader,
    state: Option<&HardState>,
) -> Result<Tail> {
    let mut frames = Vec::new();
    if let Some(state) = state {
        let chunk = Chunk::of_state(state, header.first);
        frame_into(&mut frames, None, &chunk, &header, FRAMES_START, disk.keys());
    }
    let (segment, file) = catalog.create(disk, header, &frames)?;
    let offset = FRAMES_START + frames.len() as u64;
    segment.set_written(offset);
    Ok(Tail { segment, file, offset })
}

/// An upper bound for the frame of a chunk: it is stored as it is when it does not shrink.
fn frame_bytes_max(raw_bytes: usize) -> u64 {
    padded((FRAME_HEADER_BYTES + raw_bytes) as u64)
}

/// Appends the frame of `chunk` to `group`, which will be written at `group_start`.
fn frame_into(
    group: &mut Vec<u8>,
    compressor: Option<&mut Compressor>,
    chunk: &Chunk,
    segment: &SegmentHeader,
    group_start: u64,
    keys: Option<&Keys>,
) -> FrameHeader {
    let start = group.len();
    let payload_at = start + FRAME_HEADER_BYTES;
    let text_at = payload_at + seal_bytes(keys);
    group.resize(text_at, 0);
    let mut codec = Codec::None;
    if let Some(compressor) = compressor
        && chunk.raw.len() >= COMPRESS_RAW_BYTES_MIN
        && compressor.codec() != Codec::None
    {
        // A compressor that refuses its input leaves it as it is, like one that cannot shrink it.
        match compressor.compress(&chunk.raw, group) {
            Ok(stored) if stored < chunk.raw.len() => codec = compressor.codec(),
            _ => group.truncate(text_at),
        }
    }
    if codec == Codec::None {
        group.extend_from_slice(&chunk.raw);
    }
    let offset = group_start + start as u64;
    let mut header = FrameHeader {
        payload_crc: 0,
        stored_bytes: (group.len() - payload_at) as u32,
        raw_bytes: chunk.raw.len() as u32,
        kind: chunk.kind,
        entries: chunk.entries,
        codec,
        first: chunk.first,
        term: chunk.term,
        group_start,
    };
    if let Some(keys) = keys {
        header.seal(segment, offset, &mut group[payload_at..], keys);
    }
    header.payload_crc = crc32c::crc32c(&group[payload_at..]);
    let encoded = header.encode(segment.stamp, offset);
    group[start..payload_at].copy_from_slice(&encoded);
    group.resize(padded(group.len() as u64) as usize, 0);
    header
}
