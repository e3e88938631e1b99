//! A sequence of rows in a file: written once, read from its beginning.

use crate::error::{Result, SpillError};
use crate::format::{self, BLOCK_BYTES, BLOCK_HEADER_BYTES, BlockPlace, ROW_BYTES_MAX};
use crate::space::{SpillFile, SpillWriter};
use codec::Decompressor;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a block of a run begins in its file, and the number of the row behind its last one.
#[derive(Clone, Copy)]
struct Block {
    offset: u64,
    end_row: u64,
}

/// A run while rows are added to it. Several may grow side by side in one file.
#[derive(Default)]
pub struct RunWriter {
    /// Rows that are not in a block yet.
    raw: Vec<u8>,
    blocks: Vec<Block>,
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
        self.blocks.push(Block {
            offset,
            end_row: self.rows,
        });
        self.block_bytes_max = self.block_bytes_max.max(self.raw.len());
        self.raw.clear();
        Ok(())
    }

    /// Bytes of memory that its rows take until they are in a block, and the list of its blocks.
    pub fn memory_bytes(&self) -> usize {
        self.raw.capacity() + self.blocks.capacity() * size_of::<Block>()
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
    blocks: Vec<Block>,
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
        2 * self.block_bytes_max + BLOCK_HEADER_BYTES + crypt::SEAL_BYTES + self.blocks.capacity() * size_of::<Block>()
    }

    /// Bytes of memory that [`Run::access`] takes, at most.
    pub fn access_bytes(&self) -> usize {
        OPEN_BLOCKS * self.read_bytes()
    }

    /// Reads it. Its file must have been flushed.
    pub fn read(self) -> RunReader {
        RunReader {
            run: self,
            next_block: 0,
            raw: Vec::new(),
            row: 0..0,
            buffers: Buffers::default(),
        }
    }

    /// Reads rows of it by number. Its file must have been flushed.
    pub fn access(self) -> RunAccess {
        RunAccess {
            run: self,
            open: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    /// Puts the rows of a block into `raw`, which is emptied first.
    fn open_block(&self, Block { offset, .. }: Block, buffers: &mut Buffers, raw: &mut Vec<u8>) -> Result<()> {
        let file = &*self.file;
        let failed = |error| SpillError::io("read", &file.path, error);
        let mut header = [0; BLOCK_HEADER_BYTES];
        file.file.read_exact_at(&mut header, offset).map_err(failed)?;
        let body = offset + BLOCK_HEADER_BYTES as u64;
        let left = file.written.load(Ordering::Acquire).saturating_sub(body);
        let stored_bytes = format::stored_bytes(&header, left, (&file.path, offset))?;
        let stored = &mut buffers.stored;
        stored.clear();
        stored.extend_from_slice(&header);
        stored.resize(BLOCK_HEADER_BYTES + stored_bytes, 0);
        file.file
            .read_exact_at(&mut stored[BLOCK_HEADER_BYTES..], body)
            .map_err(failed)?;
        let place = BlockPlace {
            file: file.number,
            offset,
        };
        format::open_block(stored, place, &file.path, file.keys(), &mut buffers.decompressor, raw)
    }
}

/// What reading needs, and uses again.
#[derive(Default)]
struct Buffers {
    stored: Vec<u8>,
    decompressor: Decompressor,
}

/// Reads a run row by row.
pub struct RunReader {
    run: Run,
    /// The position, in the run's list, of the block after the open one.
    next_block: usize,
    /// The rows of the open block.
    raw: Vec<u8>,
    row: Range<usize>,
    buffers: Buffers,
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
        let at = (&*self.run.file.path, self.run.blocks[self.next_block - 1].offset);
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
        let Some(&block) = self.run.blocks.get(self.next_block) else {
            return Ok(false);
        };
        self.next_block += 1;
        self.run.open_block(block, &mut self.buffers, &mut self.raw)?;
        if let Some(next) = self.run.blocks.get(self.next_block) {
            self.run.file.file.expect_read(next.offset, BLOCK_BYTES as u64);
        }
        Ok(true)
    }
}

/// Blocks that a [`RunAccess`] has open: whoever reads at two or three places at once reads each block once.
const OPEN_BLOCKS: usize = 4;

/// A block whose rows are in memory.
struct OpenBlock {
    number: usize,
    raw: Vec<u8>,
    /// Where in `raw` they are.
    rows: Vec<Range<usize>>,
}

/// Reads rows of a run by number.
pub struct RunAccess {
    pub(crate) run: Run,
    /// The one used last is the last.
    open: Vec<OpenBlock>,
    buffers: Buffers,
}

impl RunAccess {
    /// The rows of the run.
    pub fn rows(&self) -> u64 {
        self.run.rows
    }

    /// The row of a number, from 0; `None` behind the last one.
    ///
    /// Errors: `Io`, `Damaged`.
    pub fn row(&mut self, number: u64) -> Result<Option<&[u8]>> {
        let block = self.run.blocks.partition_point(|block| block.end_row <= number);
        if block == self.run.blocks.len() {
            return Ok(None);
        }
        let first = block.checked_sub(1).map_or(0, |before| self.run.blocks[before].end_row);
        match self.open.iter().position(|open| open.number == block) {
            Some(position) => self.open[position..].rotate_left(1),
            None => self.open(block)?,
        }
        let row = |open: &'_ OpenBlock| open.rows.get((number - first) as usize).cloned();
        let open = self.open.last();
        Ok(open.and_then(|open| Some(&open.raw[row(open)?])))
    }

    /// Opens a block, in the place of the one that has not been used for the longest.
    fn open(&mut self, number: usize) -> Result<()> {
        let mut open = match self.open.len() >= OPEN_BLOCKS {
            true => self.open.remove(0),
            false => OpenBlock {
                number,
                raw: Vec::new(),
                rows: Vec::new(),
            },
        };
        let block = self.run.blocks[number];
        self.run.open_block(block, &mut self.buffers, &mut open.raw)?;
        open.number = number;
        open.rows.clear();
        let mut position = 0;
        while position < open.raw.len() {
            let row = format::row_at(&open.raw, position, (&self.run.file.path, block.offset))?;
            position = row.end;
            open.rows.push(row);
        }
        self.open.push(open);
        Ok(())
    }
}
