//! Writing a checkpoint file.

use super::format::{BLOCK_BYTES_AIM, BlockHeader, BlockKind, FileHeader, Totals, encode_row, encode_table};
use super::{TEMPORARY_NAME, file_name, io_error, seq_of_name};
use crate::snapshot::InMemorySnapshot;
use crate::table::{Span, Visit};
use codec::{Codec, Compressor};
use crypt::Keys;
use engine::{Direction, EngineError, KeyRange, Result, Seq, Snapshot};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, File};

/// How writing a checkpoint failed.
pub(crate) enum Failure {
    /// The file is away and the one before it stands: trying again is sound.
    Harmless(EngineError),
    /// A sync failed: what the disk holds is not known any more.
    Fatal(EngineError),
}

/// Writes everything `snapshot` sees and makes it durable under its final name. Returns the file's length in bytes.
pub(crate) fn write(env: &Env, directory: &Path, snapshot: &InMemorySnapshot) -> std::result::Result<u64, Failure> {
    let temporary = directory.join(TEMPORARY_NAME);
    let written = write_file(env, &temporary, snapshot);
    let file = written.map_err(|error| {
        // Best effort: the next checkpoint and the next start clear it away too.
        let _ = env.fs.remove_file(&temporary);
        Failure::Harmless(error)
    })?;
    file.file
        .sync_data()
        .map_err(io_error("sync", &temporary))
        .map_err(Failure::Fatal)?;
    let path = directory.join(file_name(snapshot.seq()));
    env.fs
        .rename(&temporary, &path)
        .map_err(io_error("rename", &temporary))
        .map_err(Failure::Fatal)?;
    env.fs
        .sync_directory(directory)
        .map_err(io_error("sync", directory))
        .map_err(Failure::Fatal)?;
    Ok(file.length)
}

/// Makes sure that what was found at start stays found. The process before this one may have ended between renaming and
/// syncing the directory; then a crash now could bring back the name before.
pub(crate) fn settle(env: &Env, directory: &Path, seq: Seq) -> Result<()> {
    env.fs.sync_directory(directory).map_err(io_error("sync", directory))?;
    remove_all_but(env, directory, seq)
}

/// Removes every checkpoint but the one at `seq`, and what unfinished ones left.
pub(crate) fn remove_all_but(env: &Env, directory: &Path, seq: Seq) -> Result<()> {
    for name in env.fs.list(directory).map_err(io_error("list", directory))? {
        if name == Path::new(TEMPORARY_NAME) || seq_of_name(&name).is_some_and(|found| found != seq) {
            let path = directory.join(name);
            env.fs.remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

fn write_file(env: &Env, path: &Path, snapshot: &InMemorySnapshot) -> Result<FileWriter> {
    if env.fs.exists(path).map_err(io_error("look for", path))? {
        env.fs.remove_file(path).map_err(io_error("remove", path))?;
    }
    let mut writer = FileWriter::create(env, path, snapshot.seq())?;
    let mut totals = Totals::default();
    let mut content = Vec::with_capacity(BLOCK_BYTES_AIM + BLOCK_BYTES_AIM / 8);
    for table in snapshot.tables() {
        totals.tables += 1;
        content.clear();
        encode_table(table.id, &table.spec, &mut content);
        writer.write_block(BlockKind::Table, &content)?;
        let mut span = Span::of(&KeyRange::all());
        loop {
            content.clear();
            table.scan(&mut span, Direction::Forward, snapshot.seq(), |key, value| {
                encode_row(key.as_slice(), value, &mut content);
                totals.rows += 1;
                if content.len() >= BLOCK_BYTES_AIM {
                    Visit::Enough
                } else {
                    Visit::More
                }
            });
            if content.is_empty() {
                break;
            }
            writer.write_block(BlockKind::Rows, &content)?;
        }
    }
    totals.blocks = writer.blocks;
    writer.write_block(BlockKind::End, &totals.encode())?;
    Ok(writer)
}

/// Appends blocks to a file.
struct FileWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    seq: Seq,
    compressor: Compressor,
    compressed: Vec<u8>,
    keys: Option<Arc<Keys>>,
    sealed: Vec<u8>,
    length: u64,
    blocks: u64,
}

impl FileWriter {
    fn create(env: &Env, path: &Path, seq: Seq) -> Result<Self> {
        let file = env.fs.open(path, Access::CreateNew).map_err(io_error("create", path))?;
        let compressor = Compressor::new(Codec::Lz4).map_err(backend_error)?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
            seq,
            compressor,
            compressed: Vec::new(),
            keys: env.fs.keys().cloned(),
            sealed: Vec::new(),
            length: 0,
            blocks: 0,
        };
        let is_sealed = writer.keys.is_some();
        writer.append(&FileHeader { seq, is_sealed }.encode())?;
        Ok(writer)
    }

    /// Compresses where that makes it shorter.
    fn write_block(&mut self, kind: BlockKind, content: &[u8]) -> Result<()> {
        self.compressed.clear();
        self.compressor
            .compress(content, &mut self.compressed)
            .map_err(backend_error)?;
        let compressed = std::mem::take(&mut self.compressed);
        let (codec, stored) = if compressed.len() < content.len() {
            (Codec::Lz4, &compressed[..])
        } else {
            (Codec::None, content)
        };
        let header = BlockHeader {
            kind,
            codec,
            raw_bytes: content.len() as u32,
            stored_bytes: stored.len() as u32,
            number: self.blocks,
            seq: self.seq,
        };
        match &self.keys {
            Some(keys) => {
                let mut sealed = std::mem::take(&mut self.sealed);
                header.seal(stored, keys, &mut sealed);
                self.append(&header.encode(&sealed))?;
                self.append(&sealed)?;
                self.sealed = sealed;
            }
            None => {
                self.append(&header.encode(stored))?;
                self.append(stored)?;
            }
        }
        self.blocks += 1;
        self.compressed = compressed;
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, self.length)
            .map_err(io_error("write", &self.path))?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn backend_error(error: codec::CodecError) -> EngineError {
    EngineError::Backend {
        operation: "checkpoint",
        kind: engine::ErrorKind::Io,
        message: error.to_string(),
    }
}
