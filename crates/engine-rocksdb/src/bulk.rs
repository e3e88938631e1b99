//! Bulk loads: sorted files, written beside the database and then taken in all at once.
//!
//! RocksDB takes several files in by one change of its manifest, so a crash leaves all rows or none. A file that a
//! crash left behind before that is removed at the next start.

use crate::backup::io_error;
use crate::error::rocks_error;
use crate::layout::put_key;
use engine::{EngineError, KEY_BYTES_MAX, Result, TableId, VALUE_BYTES_MAX};
use rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};
use std::path::{Path, PathBuf};
use vfs::Env;

/// The directory of files in the making.
const DIRECTORY: &str = "bulk";
/// A file is closed when it has grown to so many bytes.
const FILE_BYTES_AIM: u64 = 256 * 1024 * 1024;

/// Files of one load; removed on drop unless they were taken in.
pub(crate) struct BulkFiles<'a> {
    env: &'a Env,
    directory: PathBuf,
    number: u64,
    paths: Vec<PathBuf>,
    pub(crate) rows: u64,
}

/// Makes the directory and removes what a crash left in it.
pub(crate) fn prepare(env: &Env, directory: &Path) -> Result<()> {
    let path = directory.join(DIRECTORY);
    env.fs.remove_directory_all(&path).map_err(io_error("remove", &path))?;
    env.fs.create_directory_all(&path).map_err(io_error("create", &path))
}

impl<'a> BulkFiles<'a> {
    /// `number` tells loads that run side by side apart.
    pub(crate) fn new(env: &'a Env, directory: &Path, number: u64) -> Self {
        Self {
            env,
            directory: directory.join(DIRECTORY),
            number,
            paths: Vec::new(),
            rows: 0,
        }
    }

    /// Writes and checks all rows.
    pub(crate) fn write(
        &mut self,
        options: &Options,
        table: TableId,
        rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<()> {
        let mut before: Option<Vec<u8>> = None;
        let mut stored = Vec::new();
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut writer = self.next_file(options)?;
            for (key, value) in rows.by_ref() {
                if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
                    return Err(invalid(format!(
                        "a row of {} and {} bytes is too long",
                        key.len(),
                        value.len()
                    )));
                }
                if before.as_ref().is_some_and(|before| *before >= key) {
                    return Err(invalid(format!("key {key:02x?} does not follow the one before it")));
                }
                put_key(table, &key, &mut stored);
                writer.put(&stored, &value).map_err(rocks_error("bulk load"))?;
                before = Some(key);
                self.rows += 1;
                if self.rows.is_multiple_of(1024) && writer.file_size() >= FILE_BYTES_AIM {
                    break;
                }
            }
            writer.finish().map_err(rocks_error("bulk load"))?;
        }
        Ok(())
    }

    fn next_file<'b>(&mut self, options: &'b Options) -> Result<SstFileWriter<'b>> {
        let path = self.directory.join(format!("{}-{}.sst", self.number, self.paths.len()));
        let writer = SstFileWriter::create(options);
        // Named before it is there, so that a failure leaves nothing behind.
        self.paths.push(path.clone());
        writer.open(path).map_err(rocks_error("bulk load"))?;
        Ok(writer)
    }

    /// Hands the files to the database.
    pub(crate) fn ingest(&self, db: &DB) -> Result<()> {
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        db.ingest_external_file_opts(&options, self.paths.clone())
            .map_err(rocks_error("bulk load"))
    }
}

impl Drop for BulkFiles<'_> {
    fn drop(&mut self) {
        for path in &self.paths {
            // After a move there is nothing; otherwise what stays is removed at the next start.
            let _ = self.env.fs.remove_file(path);
        }
    }
}

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "bulk load",
        reason,
    }
}
