//! Appending blocks.
//!
//! A writer reserves runs of sectors and fills them one after the other; blocks wait in its buffer, in the form they
//! have on disk, until a flush (or a full buffer) writes each contiguous stretch with one call.

use crate::block::{BlockHeader, seal_bytes};
use crate::limits::{
    BLOCK_HEADER_BYTES, BUFFER_BYTES_MAX, IO_BYTES_MAX, LABEL_BYTES_MAX, RAW_BYTES_MAX, RUN_SECTORS_MAX,
    RUN_SECTORS_MIN,
};
use crate::space::Mark;
use crate::stats::add;
use crate::volume::Volume;
use crate::{BlockAddr, BlockError, BlockKind, BlockStore, Purpose, Result, SECTOR_BYTES, VolumeId, sections};
use codec::{Codec, Compressor};
use engine::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// Appends blocks one after the other, in long runs, so that what is appended together is read together.
///
/// Dropping it gives back what was not flushed.
pub struct RunWriter {
    store: Arc<BlockStore>,
    id: VolumeId,
    volume: Option<Arc<Volume>>,
    /// `None` for the store's own blocks.
    purpose: Option<Purpose>,
    /// Reserved sectors that are not used yet.
    run: Range<u64>,
    /// What was left of a run when a block did not fit: a shorter one may.
    spare: Range<u64>,
    /// Blocks in the form they have on disk.
    buffer: Vec<u8>,
    /// Where the parts of the buffer go.
    stretches: Vec<Stretch>,
    /// Blocks appended since the last flush.
    pending: Vec<Pending>,
    compressors: Vec<(Codec, i32, Compressor)>,
    last_block_bytes: usize,
    /// A block's bytes with its label.
    labelled: Vec<u8>,
}

/// Contiguous sectors, and the part of the buffer that goes there.
struct Stretch {
    sector: u64,
    buffer: Range<usize>,
}

/// Contiguous blocks of the same fate.
struct Pending {
    sector: u64,
    sectors: u32,
    blocks: u64,
    mark: Mark,
    checkpoint: u64,
}

/// What becomes a block.
struct Content<'a> {
    raw: &'a [u8],
    /// Where it is cut in sections.
    cuts: &'a [usize],
    /// So many of the raw bytes are its label.
    label_bytes: u8,
}

/// How it is stored.
struct Stored {
    codec: Codec,
    sections: u16,
    bytes: usize,
}

impl RunWriter {
    pub(crate) fn new(store: &Arc<BlockStore>, id: VolumeId, purpose: Option<Purpose>) -> Self {
        Self {
            volume: store.find_volume(id).ok(),
            store: store.clone(),
            id,
            purpose,
            run: 0..0,
            spare: 0..0,
            buffer: Vec::new(),
            stretches: Vec::new(),
            pending: Vec::new(),
            compressors: Vec::new(),
            last_block_bytes: 0,
            labelled: Vec::new(),
        }
    }

    /// Bytes of the block that was appended last, without what is left of its last sector; 0 before the first.
    pub fn last_block_bytes(&self) -> usize {
        self.last_block_bytes
    }

    /// The block at `addr` as it will be on disk, right after it was appended; `None` when it was written out already.
    pub fn last_block(&self, addr: &BlockAddr) -> Option<&[u8]> {
        let start = self.buffer.len().checked_sub(addr.bytes() as usize)?;
        Some(&self.buffer[start..])
    }

    /// Bytes that a block of `raw` bytes would take, cut as for [`RunWriter::append_cut`], without what would be left
    /// of its last sector. Nothing is appended. `Invalid` as for [`RunWriter::append`].
    pub fn block_bytes(&mut self, codec: Codec, level: Option<i32>, raw: &[u8], cuts: &[usize]) -> Result<usize> {
        let start = self.buffer.len();
        let encoded = self.encode(codec, level, raw, cuts);
        self.buffer.truncate(start);
        encoded.map(|stored| self.head_bytes() + stored.bytes)
    }

    /// Appends a block of `raw` bytes, compressed where that saves a sector, and returns its address. It **must not be
    /// read, freed or referred to on disk before [`RunWriter::flush`]** has returned: its bytes may still be in the
    /// writer. `level` is the codec's own default when `None`.
    ///
    /// A block longer than a segment takes free segments in a row. `Invalid` (more than [`BlockStore::RAW_BYTES_MAX`],
    /// a level the codec has not, a volume that is gone) changes nothing. After any other error all addresses handed
    /// out since the last successful [`RunWriter::flush`] are void: they must be neither read nor freed; the writer can
    /// be used again.
    pub fn append(
        &mut self,
        kind: BlockKind,
        owner: u32,
        codec: Codec,
        level: Option<i32>,
        raw: &[u8],
    ) -> Result<BlockAddr> {
        self.append_cut(kind, owner, codec, level, raw, &[])
    }

    /// As [`RunWriter::append`], of bytes that are cut at rising places in *sections*: each is compressed for itself,
    /// and who reads with [`BlockStore::read_sections_with`] decompresses those that it asks for. They take a little
    /// more room than one. Where one would be longer than 65,535 bytes there is only one.
    pub fn append_cut(
        &mut self,
        kind: BlockKind,
        owner: u32,
        codec: Codec,
        level: Option<i32>,
        raw: &[u8],
        cuts: &[usize],
    ) -> Result<BlockAddr> {
        let content = Content {
            raw,
            cuts,
            label_bytes: 0,
        };
        self.append_content(kind, owner, codec, level, &content)
    }

    /// As [`RunWriter::append`], with a label: bytes that reading leaves out and [`BlockStore::read_segment_to_empty`]
    /// answers, by which the owner finds what refers to the block. `Invalid` beyond [`BlockStore::LABEL_BYTES_MAX`].
    pub fn append_labelled(
        &mut self,
        kind: BlockKind,
        owner: u32,
        codec: Codec,
        level: Option<i32>,
        content: &[u8],
        label: &[u8],
    ) -> Result<BlockAddr> {
        if label.is_empty() {
            return self.append(kind, owner, codec, level, content);
        }
        let Ok(label_bytes) = u8::try_from(label.len()) else {
            return Err(BlockError::Invalid {
                operation: "append a block",
                reason: format!("a label of {} bytes, more than {LABEL_BYTES_MAX}", label.len()),
            });
        };
        let mut raw = std::mem::take(&mut self.labelled);
        raw.clear();
        raw.extend_from_slice(content);
        raw.extend_from_slice(label);
        let content = Content {
            raw: &raw,
            cuts: &[],
            label_bytes,
        };
        let appended = self.append_content(kind, owner, codec, level, &content);
        self.labelled = raw;
        appended
    }

    fn append_content(
        &mut self,
        kind: BlockKind,
        owner: u32,
        codec: Codec,
        level: Option<i32>,
        content: &Content<'_>,
    ) -> Result<BlockAddr> {
        let result = self.store.check_open();
        result.map_err(|error| self.fail(error))?;
        let start = self.buffer.len();
        let encoded = self.encode(codec, level, content.raw, content.cuts);
        let placed = encoded.and_then(|stored| {
            let sectors = (self.buffer.len() - start) / SECTOR_BYTES;
            let (sector, checkpoint) = self.place(sectors)?;
            let header = BlockHeader {
                kind,
                codec: stored.codec,
                owner,
                volume: self.id,
                label_bytes: content.label_bytes,
                sections: stored.sections,
                raw_bytes: content.raw.len() as u32,
                stored_bytes: stored.bytes as u32,
                sector,
                checkpoint,
                is_sealed: self.store.is_sealed(),
            };
            let crc = header.finish(&mut self.buffer[start..], self.store.sealing.as_ref());
            self.last_block_bytes = self.head_bytes() + stored.bytes;
            Ok(BlockAddr::new(sector, sectors as u16, crc))
        });
        let addr = match placed {
            Ok(addr) => addr,
            Err(error) => {
                self.buffer.truncate(start);
                return Err(error);
            }
        };
        let end = self.buffer.len();
        match self.stretches.last_mut() {
            Some(last)
                if last.sector + (last.buffer.len() / SECTOR_BYTES) as u64 == addr.sector()
                    && last.buffer.len() < IO_BYTES_MAX =>
            {
                last.buffer.end = end;
            }
            _ => self.stretches.push(Stretch {
                sector: addr.sector(),
                buffer: start..end,
            }),
        }
        if end >= IO_BYTES_MAX {
            self.write_out()?;
        }
        Ok(addr)
    }

    /// Bytes in front of a block's stored bytes.
    fn head_bytes(&self) -> usize {
        BLOCK_HEADER_BYTES + seal_bytes(self.store.is_sealed())
    }

    /// Appends room for the header, the stored bytes and zeros up to the sector's end to the buffer.
    fn encode(&mut self, codec: Codec, level: Option<i32>, raw: &[u8], cuts: &[usize]) -> Result<Stored> {
        let head_bytes = self.head_bytes();
        let raw_bytes_max = RAW_BYTES_MAX + BLOCK_HEADER_BYTES - head_bytes;
        if raw.len() > raw_bytes_max {
            return Err(BlockError::Invalid {
                operation: "append a block",
                reason: format!("{} bytes are more than {raw_bytes_max}", raw.len()),
            });
        }
        let header_end = self.buffer.len() + head_bytes;
        self.buffer.resize(header_end, 0);
        let lengths = sections::lengths(raw.len(), cuts);
        let mut stored = Stored {
            codec,
            sections: lengths.len() as u16,
            bytes: raw.len(),
        };
        if codec != Codec::None {
            let compressor = find_compressor(&mut self.compressors, codec, level)?;
            match stored.sections {
                0 => compressor.compress(raw, &mut self.buffer).map(drop),
                _ => sections::compress(compressor, raw, &lengths, &mut self.buffer),
            }
            .map_err(invalid_codec)?;
            stored.bytes = self.buffer.len() - header_end;
        }
        let sectors = |bytes: usize| (head_bytes + bytes).div_ceil(SECTOR_BYTES);
        if sectors(stored.bytes) >= sectors(raw.len()) {
            self.buffer.truncate(header_end);
            self.buffer.extend_from_slice(raw);
            stored = Stored {
                codec: Codec::None,
                sections: 0,
                bytes: raw.len(),
            };
        }
        let start = header_end - head_bytes;
        let block_bytes = (self.buffer.len() - start).next_multiple_of(SECTOR_BYTES);
        self.buffer.resize(start + block_bytes, 0);
        Ok(stored)
    }

    /// Takes sectors for a block: the first one, and the number of the checkpoint it belongs to.
    fn place(&mut self, sectors: usize) -> Result<(u64, u64)> {
        let mut state = self.store.state.lock();
        let (mark, checkpoint) = match self.purpose {
            Some(purpose) => state.mark(purpose),
            None => (Mark::Own, state.last_number),
        };
        let Some(space) = state.spaces.get_mut(&self.id) else {
            return Err(BlockError::Invalid {
                operation: "append a block",
                reason: format!("{:?} does not exist", self.id),
            });
        };
        let length = sectors as u64;
        let is_long = length > u64::from(self.store.segment_sectors);
        let fits_spare = self.spare.end - self.spare.start >= length;
        if !is_long && !fits_spare && self.run.end - self.run.start < length {
            if self.run.end - self.run.start > self.spare.end - self.spare.start {
                std::mem::swap(&mut self.spare, &mut self.run);
                // The next run best lies right behind the last one.
                let end = self.spare.end;
                release_run(space, &mut self.run);
                self.run = end..end;
            } else {
                release_run(space, &mut self.run);
            }
            let segment = self.store.segment_sectors;
            let want = (space.sums().segments * u64::from(segment) / 16)
                .clamp(RUN_SECTORS_MIN, RUN_SECTORS_MAX)
                .min(u64::from(segment)) as u32;
            let min = sectors as u32;
            self.run = space.reserve(min, want.max(min), Some(self.run.start).filter(|start| *start > 0));
        }
        let sector = if is_long {
            space.reserve_long(sectors as u32)
        } else {
            let from = if fits_spare { &mut self.spare } else { &mut self.run };
            from.start += length;
            from.start - length
        };
        space.mark(sector, sectors as u32, mark);
        if mark != Mark::Own {
            state.removing.remove(&self.id);
            *state.unflushed.entry(checkpoint).or_default() += 1;
        }
        match self.pending.last_mut() {
            Some(last)
                if last.sector + u64::from(last.sectors) == sector
                    && last.mark == mark
                    && last.checkpoint == checkpoint
                    && last.sectors + sectors as u32 <= self.store.segment_sectors
                    && sector % u64::from(self.store.segment_sectors) != 0 =>
            {
                last.sectors += sectors as u32;
                last.blocks += 1;
            }
            _ => self.pending.push(Pending {
                sector,
                sectors: sectors as u32,
                blocks: 1,
                mark,
                checkpoint,
            }),
        }
        Ok((sector, checkpoint))
    }

    /// Writes everything appended, with one call of the file for each contiguous stretch of up to about 1 MiB. Nothing
    /// is synced: [`BlockStore::commit_checkpoint`] does that. After an error see [`RunWriter::append`].
    pub fn flush(&mut self) -> Result<()> {
        let result = self.store.check_open();
        result.map_err(|error| self.fail(error))?;
        self.write_out()?;
        let mut state = self.store.state.lock();
        for pending in self.pending.drain(..) {
            settle_count(&mut state, &pending);
            add(&self.store.counters.blocks_written, pending.blocks);
            let bytes = u64::from(pending.sectors) * SECTOR_BYTES as u64;
            add(&self.store.counters.bytes_written, bytes);
        }
        Ok(())
    }

    fn write_out(&mut self) -> Result<()> {
        if let Some(volume) = &self.volume {
            let write = |stretch: &Stretch| {
                volume.write(
                    &self.buffer[stretch.buffer.clone()],
                    stretch.sector * SECTOR_BYTES as u64,
                )
            };
            let result = self.stretches.iter().try_for_each(write);
            result.map_err(|error| self.fail(error))?;
        }
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_MAX);
        self.stretches.clear();
        Ok(())
    }

    /// Gives back all that was not flushed, and the runs: what comes next, of whatever writer, should be tried
    /// elsewhere, within the file where that could not become longer.
    fn fail(&mut self, error: BlockError) -> BlockError {
        self.void_pending();
        if let Some(space) = self.store.state.lock().spaces.get_mut(&self.id) {
            space.resume_at(None);
            if let (Some(volume), ErrorKind::OutOfSpace) = (&self.volume, error.kind()) {
                space.note_full(volume.length() / SECTOR_BYTES as u64);
            }
            for run in [&mut self.run, &mut self.spare] {
                release_run(space, run);
                *run = 0..0;
            }
        }
        error
    }

    fn void_pending(&mut self) {
        self.buffer.clear();
        self.stretches.clear();
        let mut state = self.store.state.lock();
        for pending in self.pending.drain(..) {
            settle_count(&mut state, &pending);
            if let Some(space) = state.spaces.get_mut(&self.id) {
                space.void(pending.sector, pending.sectors, pending.mark);
            }
        }
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        self.void_pending();
        if let Some(space) = self.store.state.lock().spaces.get_mut(&self.id) {
            if !self.run.is_empty() {
                space.resume_at(Some(self.run.start));
            }
            release_run(space, &mut self.run);
            release_run(space, &mut self.spare);
        }
    }
}

fn release_run(space: &mut crate::space::SpaceMap, run: &mut Range<u64>) {
    if !run.is_empty() {
        space.release(run.start, (run.end - run.start) as u32, false);
        // The start stays: the next run best lies right behind.
        run.end = run.start;
    }
}

fn settle_count(state: &mut crate::store::State, pending: &Pending) {
    if pending.mark == Mark::Own {
        return;
    }
    if let Some(count) = state.unflushed.get_mut(&pending.checkpoint) {
        *count -= pending.blocks;
        if *count == 0 {
            state.unflushed.remove(&pending.checkpoint);
        }
    }
}

fn find_compressor(
    compressors: &mut Vec<(Codec, i32, Compressor)>,
    codec: Codec,
    level: Option<i32>,
) -> Result<&mut Compressor> {
    let level = level.unwrap_or(codec.default_level());
    let at = match compressors.iter().position(|(c, l, _)| (*c, *l) == (codec, level)) {
        Some(at) => at,
        None => {
            let compressor = Compressor::with_level(codec, level).map_err(invalid_codec)?;
            compressors.push((codec, level, compressor));
            compressors.len() - 1
        }
    };
    Ok(&mut compressors[at].2)
}

fn invalid_codec(error: codec::CodecError) -> BlockError {
    BlockError::Invalid {
        operation: "compress a block",
        reason: error.to_string(),
    }
}
