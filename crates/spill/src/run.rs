//! A sequence of rows in a file: written once, read from its beginning.

use crate::error::{Result, SpillError};
use crate::format::{self, BLOCK_BYTES, BLOCK_HEADER_BYTES, BlockPlace, ROW_BYTES_MAX};
use crate::space::{SpillFile, SpillWriter};
use codec::Decompressor;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A run while rows are added to it. Several may grow side by side in one file.
#[derive(Default)]
pub struct RunWriter {
    /// Rows that are not in a block yet.
    raw: Vec<u8>,
    blocks: Vec<u64>,
    block_bytes_max: usize,
    rows: u64,
    bytes: u64,
}

impl RunWriter {
    /// A run without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row, given in parts that follow each other.
    ///
    /// Errors: as [`SpillWriter::flush`]; `RowTooLarge`.
    pub fn push(&mut self, file: &mut SpillWriter, parts: &[&[u8]]) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        if bytes > ROW_BYTES_MAX {
            return Err(SpillError::RowTooLarge {
                bytes,
                bytes_max: ROW_BYTES_MAX,
            });
        }
        self.raw.extend_from_slice(&(bytes as u32).to_le_bytes());
        parts.iter().for_each(|part| self.raw.extend_from_slice(part));
        self.rows += 1;
        self.bytes += bytes as u64;
        match self.raw.len() >= BLOCK_BYTES {
            true => self.end_block(file),
            false => Ok(()),
        }
    }

    fn end_block(&mut self, file: &mut SpillWriter) -> Result<()> {
        let offset = file.append(&self.raw)?;
        self.blocks.push(offset);
        self.block_bytes_max = self.block_bytes_max.max(self.raw.len());
        self.raw.clear();
        Ok(())
    }

    /// Bytes of memory that its rows take until they are in a block, and the list of its blocks.
    pub fn memory_bytes(&self) -> usize {
        self.raw.capacity() + self.blocks.capacity() * size_of::<u64>()
    }

    /// Rows added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Ends the run. It can be read when the file has been flushed.
    pub fn finish(mut self, file: &mut SpillWriter) -> Result<Run> {
        if !self.raw.is_empty() {
            self.end_block(file)?;
        }
        Ok(Run {
            file: file.file.clone(),
            blocks: self.blocks,
            block_bytes_max: self.block_bytes_max,
            rows: self.rows,
            bytes: self.bytes,
        })
    }
}

/// A run that is complete.
pub struct Run {
    file: Arc<SpillFile>,
    /// Where its blocks begin.
    blocks: Vec<u64>,
    block_bytes_max: usize,
    rows: u64,
    bytes: u64,
}

impl Run {
    /// Its rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes of its rows.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that reading it takes, at most: a block as it is stored, and its rows.
    pub fn read_bytes(&self) -> usize {
        2 * self.block_bytes_max + BLOCK_HEADER_BYTES + self.blocks.capacity() * size_of::<u64>()
    }

    /// Reads it. Its file must have been flushed.
    pub fn read(self) -> RunReader {
        RunReader {
            run: self,
            next_block: 0,
            stored: Vec::new(),
            raw: Vec::new(),
            row: 0..0,
            decompressor: Decompressor::new(),
        }
    }
}

/// Reads a run row by row.
pub struct RunReader {
    run: Run,
    /// The position, in the run's list, of the block after the open one.
    next_block: usize,
    stored: Vec<u8>,
    /// The rows of the open block.
    raw: Vec<u8>,
    row: Range<usize>,
    decompressor: Decompressor,
}

impl RunReader {
    /// Goes on to the next row; false behind the last one.
    ///
    /// Errors: `Io`, `Damaged`.
    pub fn advance(&mut self) -> Result<bool> {
        if self.row.end == self.raw.len() && !self.open_next_block()? {
            self.row = 0..0;
            return Ok(false);
        }
        let at = (&*self.run.file.path, self.run.blocks[self.next_block - 1]);
        self.row = format::row_at(&self.raw, self.row.end, at)?;
        Ok(true)
    }

    /// The row that [`RunReader::advance`] has gone to.
    pub fn row(&self) -> &[u8] {
        &self.raw[self.row.clone()]
    }

    fn open_next_block(&mut self) -> Result<bool> {
        self.raw.clear();
        self.row = 0..0;
        let Some(&offset) = self.run.blocks.get(self.next_block) else {
            return Ok(false);
        };
        self.next_block += 1;
        let file = &*self.run.file;
        let failed = |error| SpillError::io("read", &file.path, error);
        let mut header = [0; BLOCK_HEADER_BYTES];
        file.file.read_exact_at(&mut header, offset).map_err(failed)?;
        let body = offset + BLOCK_HEADER_BYTES as u64;
        let left = file.written.load(Ordering::Acquire).saturating_sub(body);
        let stored_bytes = format::stored_bytes(&header, left, (&file.path, offset))?;
        self.stored.clear();
        self.stored.extend_from_slice(&header);
        self.stored.resize(BLOCK_HEADER_BYTES + stored_bytes, 0);
        file.file
            .read_exact_at(&mut self.stored[BLOCK_HEADER_BYTES..], body)
            .map_err(failed)?;
        if let Some(&next) = self.run.blocks.get(self.next_block) {
            file.file.expect_read(next, BLOCK_BYTES as u64);
        }
        let place = BlockPlace {
            file: file.number,
            offset,
        };
        format::open_block(&self.stored, place, &file.path, &mut self.decompressor, &mut self.raw)?;
        Ok(true)
    }
}
