//! Backups: RocksDB's checkpoints, hard links in a directory of their own that goes with the backup.

use crate::error::rocks_error;
use crate::layout::MARK_KEY;
use engine::{Backup, EngineError, Result, Seq};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, Options};
use std::path::{Path, PathBuf};
use vfs::{Access, Env};

/// What the directories of backups are called, before their number.
const NAME_PREFIX: &str = "backup-";

/// A pinned backup.
pub(crate) struct RocksBackup {
    env: Env,
    directory: PathBuf,
    name: PathBuf,
    seq: Seq,
    files: Vec<(PathBuf, u64)>,
}

/// Removes what backups left that a crash cut short.
pub(crate) fn remove_leftovers(env: &Env, directory: &Path) -> Result<()> {
    for name in env.fs.list(directory).map_err(io_error("list", directory))? {
        if name.to_str().is_some_and(|name| name.starts_with(NAME_PREFIX)) {
            let path = directory.join(name);
            env.fs.remove_directory_all(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

/// Pins the database as it is now; `number` is not in use.
pub(crate) fn create(env: &Env, db: &DB, number: u64) -> Result<RocksBackup> {
    let name = PathBuf::from(format!("{NAME_PREFIX}{number}"));
    let directory = db.path().join(&name);
    // Made first, so that whatever fails below is cleared away by its drop.
    let mut backup = RocksBackup {
        env: env.clone(),
        directory,
        name,
        seq: Seq::ZERO,
        files: Vec::new(),
    };
    let checkpoint = Checkpoint::new(db).map_err(rocks_error("backup"))?;
    checkpoint
        .create_checkpoint(&backup.directory)
        .map_err(rocks_error("backup"))?;
    backup.list_files()?;
    backup.seq = read_mark(&backup.directory)?;
    Ok(backup)
}

/// The mark in a directory, read without changing it.
fn read_mark(directory: &Path) -> Result<Seq> {
    let mut options = Options::default();
    options.set_merge_operator_associative("tenon.add", |_, _, _| None);
    options.set_max_open_files(4);
    // RocksDB would log into the directory that is to be copied.
    options.set_log_level(rocksdb::LogLevel::Fatal);
    let db = DB::open_for_read_only(&options, directory, false).map_err(rocks_error("read the backup"))?;
    let mark = db.get(MARK_KEY).map_err(rocks_error("read the backup"))?;
    Ok(mark
        .and_then(|mark| mark[..].try_into().ok())
        .map_or(Seq::ZERO, |mark| Seq(u64::from_le_bytes(mark))))
}

impl RocksBackup {
    fn list_files(&mut self) -> Result<()> {
        for name in self
            .env
            .fs
            .list(&self.directory)
            .map_err(io_error("list", &self.directory))?
        {
            let path = self.directory.join(&name);
            let file = self.env.fs.open(&path, Access::Read).map_err(io_error("open", &path))?;
            self.files.push((name, file.len().map_err(io_error("measure", &path))?));
        }
        Ok(())
    }
}

impl Backup for RocksBackup {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn root(&self) -> PathBuf {
        self.name.clone()
    }

    fn files(&self) -> Vec<(PathBuf, u64)> {
        self.files.clone()
    }
}

impl Drop for RocksBackup {
    fn drop(&mut self) {
        // What cannot be removed now goes at the next start.
        let _ = self.env.fs.remove_directory_all(&self.directory);
    }
}

pub(crate) fn io_error<'a>(operation: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> EngineError + 'a {
    move |source| EngineError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}
