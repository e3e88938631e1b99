//! Reading a checkpoint file at start. Nothing in it is believed before its checksum.

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, BlockKind, FILE_HEADER_BYTES, FileHeader, Totals, decode_table, split_row,
};
use super::{file_name, io_error, seq_of_name};
use crate::key::Key;
use crate::table::{RowMap, Table};
use bytes::Bytes;
use codec::Decompressor;
use crypt::{Keys, SEAL_BYTES};
use engine::{EngineError, Result, Seq, TableId, TableSpec};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, File};

/// The content of a checkpoint.
pub(crate) struct Loaded {
    pub(crate) seq: Seq,
    pub(crate) tables: Vec<Table>,
    pub(crate) file_bytes: u64,
}

/// Loads the newest checkpoint of a directory; `None` when there is none.
pub(crate) fn load_newest(env: &Env, directory: &Path) -> Result<Option<Loaded>> {
    let names = env.fs.list(directory).map_err(io_error("list", directory))?;
    let Some(seq) = names.iter().filter_map(|name| seq_of_name(name)).max() else {
        return Ok(None);
    };
    FileReader::open(env, directory.join(file_name(seq)))?
        .load(seq)
        .map(Some)
}

struct FileReader {
    file: Arc<dyn File>,
    path: PathBuf,
    length: u64,
    /// Where the next block starts.
    offset: u64,
    blocks: u64,
    stored: Vec<u8>,
    decompressor: Decompressor,
    keys: Option<Arc<Keys>>,
}

/// The table whose rows are being read.
struct Growing {
    id: TableId,
    spec: TableSpec,
    rows: Vec<(Key, Bytes)>,
}

impl FileReader {
    fn open(env: &Env, path: PathBuf) -> Result<Self> {
        let file = env.fs.open(&path, Access::Read).map_err(io_error("open", &path))?;
        let length = file.len().map_err(io_error("measure", &path))?;
        Ok(Self {
            file,
            path,
            length,
            offset: 0,
            blocks: 0,
            stored: Vec::new(),
            decompressor: Decompressor::new(),
            keys: env.fs.keys().cloned(),
        })
    }

    fn load(mut self, seq: Seq) -> Result<Loaded> {
        let mut header = [0; FILE_HEADER_BYTES];
        self.read(&mut header)?;
        let header = FileHeader::decode(&header).map_err(|reason| self.corrupt(reason))?;
        if header.seq != seq {
            return Err(self.corrupt(format!("the file says {:?}, its name {seq:?}", header.seq)));
        }
        if header.is_sealed != self.keys.is_some() {
            let reason = match header.is_sealed {
                true => "the file is encrypted, and there is no key",
                false => "the file is not encrypted, and the data is",
            };
            return Err(self.corrupt(reason.into()));
        }
        self.offset += FILE_HEADER_BYTES as u64;
        let mut totals = Totals::default();
        let mut tables: Vec<Table> = Vec::new();
        let mut growing: Option<Growing> = None;
        let mut content = Vec::new();
        loop {
            totals.blocks = self.blocks;
            match self.read_block(seq, &mut content)? {
                BlockKind::Table => {
                    let (id, spec) = decode_table(&content).map_err(|reason| self.corrupt(reason))?;
                    tables.extend(growing.take().map(|done| done.finish(seq)));
                    if tables.last().is_some_and(|before| before.id >= id) {
                        return Err(self.corrupt(format!("{id:?} follows a later table")));
                    }
                    totals.tables += 1;
                    growing = Some(Growing {
                        id,
                        spec,
                        rows: Vec::new(),
                    });
                }
                BlockKind::Rows => {
                    let table = growing
                        .as_mut()
                        .ok_or_else(|| self.corrupt("rows come before any table".into()))?;
                    totals.rows += table.add(&content).map_err(|reason| self.corrupt(reason))?;
                }
                BlockKind::End => {
                    tables.extend(growing.take().map(|done| done.finish(seq)));
                    self.check_end(&content, totals)?;
                    return Ok(Loaded {
                        seq,
                        tables,
                        file_bytes: self.length,
                    });
                }
            }
        }
    }

    fn check_end(&self, content: &[u8], found: Totals) -> Result<()> {
        let expected = Totals::decode(content).map_err(|reason| self.corrupt(reason))?;
        if expected != found {
            return Err(self.corrupt(format!("the file should hold {expected:?} and holds {found:?}")));
        }
        if self.offset != self.length {
            return Err(self.corrupt(format!("{} bytes follow the last block", self.length - self.offset)));
        }
        Ok(())
    }

    /// Reads and checks the next block and leaves what it holds in `content`.
    fn read_block(&mut self, seq: Seq, content: &mut Vec<u8>) -> Result<BlockKind> {
        let mut head = [0; BLOCK_HEADER_BYTES];
        self.read(&mut head)?;
        let header = BlockHeader::decode(&head).map_err(|reason| self.corrupt(reason))?;
        let after_head = self.offset + BLOCK_HEADER_BYTES as u64;
        let seal_bytes = self.keys.as_ref().map_or(0, |_| SEAL_BYTES);
        let sealed_bytes = header.stored_bytes as usize + seal_bytes;
        if self.length.saturating_sub(after_head) < sealed_bytes as u64 {
            return Err(self.corrupt("the block reaches past the end of the file".into()));
        }
        let mut stored = std::mem::take(&mut self.stored);
        stored.resize(sealed_bytes, 0);
        self.file
            .read_exact_at(&mut stored, after_head)
            .map_err(io_error("read", &self.path))?;
        BlockHeader::check(&head, &stored).map_err(|reason| self.corrupt(reason))?;
        if (header.number, header.seq) != (self.blocks, seq) {
            return Err(self.corrupt(format!(
                "block {} of {:?} lies where block {} belongs",
                header.number, header.seq, self.blocks
            )));
        }
        let opened = match &self.keys {
            Some(keys) => header.open(&mut stored, keys).map_err(|reason| self.corrupt(reason))?,
            None => &stored[..],
        };
        content.clear();
        let decompressed = self
            .decompressor
            .decompress(header.codec, opened, header.raw_bytes as usize, content);
        decompressed.map_err(|error| self.corrupt(error.to_string()))?;
        self.stored = stored;
        self.offset = after_head + sealed_bytes as u64;
        self.blocks += 1;
        Ok(header.kind)
    }

    fn read(&self, buffer: &mut [u8]) -> Result<()> {
        if self.length.saturating_sub(self.offset) < buffer.len() as u64 {
            return Err(self.corrupt("the file ends here".into()));
        }
        self.file
            .read_exact_at(buffer, self.offset)
            .map_err(io_error("read", &self.path))
    }

    fn corrupt(&self, reason: String) -> EngineError {
        EngineError::Corrupt {
            path: self.path.clone(),
            offset: self.offset,
            reason,
        }
    }
}

impl Growing {
    /// Adds the rows of a block and returns how many they are.
    fn add(&mut self, mut content: &[u8]) -> std::result::Result<u64, String> {
        let before = self.rows.len();
        while !content.is_empty() {
            let ((key, value), rest) = split_row(content)?;
            let key = Key::new(key);
            if self.rows.last().is_some_and(|(last, _)| *last >= key) {
                return Err(format!("keys of {:?} do not rise", self.id));
            }
            self.rows.push((key, Bytes::copy_from_slice(value)));
            content = rest;
        }
        Ok((self.rows.len() - before) as u64)
    }

    fn finish(self, seq: Seq) -> Table {
        let table = Table::new(self.id, self.spec, seq);
        table.load(RowMap::from_sorted(self.rows, seq));
        table
    }
}
