//! Room for a checkpoint: files that are new, and blocks for what was never written, so that writing in place needs no
//! space.
//!
//! Nothing of the checkpoint before is touched, and what fails can be tried again.

use crate::checkpoint::{Cut, CutDatabase, Disk, Failure, Plan, files_of};
use crate::database::Database;
use crate::files::{DataFile, first_data_page, io_error};
use crate::loc::PAGE_BYTES;
use crate::sealing::stored_page_bytes;
use crate::shared::Shared;
use engine::{EngineError, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vfs::{Access, File};

/// Makes room for a plan, and makes the names of new files durable.
pub(crate) fn make_room(shared: &Shared, disk: &mut Disk, cut: &Cut, plan: &Plan) -> std::result::Result<(), Failure> {
    let mut room = Room { shared, disk };
    room.remove_leftovers(cut);
    room.make(cut, plan).map_err(Failure::Harmless)?;
    for directory in std::mem::take(&mut disk.unsynced) {
        let synced = shared.env.fs.sync_directory(&directory);
        synced.map_err(io_error("sync", &directory)).map_err(Failure::Fatal)?;
    }
    Ok(())
}

struct Room<'a> {
    shared: &'a Shared,
    disk: &'a mut Disk,
}

impl Room<'_> {
    fn make(&mut self, cut: &Cut, plan: &Plan) -> Result<()> {
        for (number, part) in cut.databases.iter().enumerate() {
            self.make_namespaces(part)?;
            for file in &part.files {
                let written = plan.checksums.get(&(number, file.number));
                self.make_file(&part.database, file, written.map_or(&[], Vec::as_slice))?;
            }
        }
        self.disk.root_files.reserve(plan.root.encode(None).len())
    }

    fn make_namespaces(&mut self, part: &CutDatabase) -> Result<()> {
        let database = &part.database;
        let path = database.namespace_path();
        let known = self
            .disk
            .root
            .databases
            .iter()
            .find(|known| known.name == database.name);
        let mut written = known
            .filter(|_| !part.is_new)
            .map_or(0, |known| 1 + known.namespaces.len() as u64);
        let handle = match database.namespace_handle.get() {
            Some(handle) => handle,
            None => {
                written = 0;
                let opened = self.open(database, &path)?;
                database.namespace_handle.get_or_init(|| opened)
            }
        };
        let needed = 1 + part.namespace_pages as u64;
        if needed > written {
            let whole = self.shared.options.namespace_bytes / PAGE_BYTES as u64;
            self.reserve(&**handle, &path, written, needed, whole)?;
        }
        Ok(())
    }

    /// A data file; `written` are the pages of it that the plan writes, with their checksums.
    fn make_file(&mut self, database: &Database, file: &DataFile, written: &[(u32, u32)]) -> Result<()> {
        let handle = match file.handle.get() {
            Some(handle) => handle,
            None => {
                let opened = self.open(database, &file.path)?;
                let (needed, whole) = (first_data_page(file.pages).into(), file.pages.into());
                let is_whole = self.reserve(&*opened, &file.path, 0, needed, whole)?;
                file.is_reserved.store(is_whole, Relaxed);
                file.handle.get_or_init(|| opened)
            }
        };
        if file.is_reserved.load(Relaxed) {
            return Ok(());
        }
        let sums = file.checksums.read();
        let pages = written.iter().map(|sum| sum.0);
        let mut pages: Vec<u32> = pages.filter(|&page| sums[page as usize] == 0).collect();
        drop(sums);
        pages.sort_unstable();
        for run in pages.chunk_by(|left, right| left + 1 == *right) {
            let (start, end) = (run[0].into(), u64::from(run[run.len() - 1]) + 1);
            self.reserve(&**handle, &file.path, start, end, end)?;
        }
        Ok(())
    }

    fn open(&mut self, database: &Database, path: &Path) -> Result<Arc<dyn File>> {
        // A new database has kept one. Nobody else is asked whether there are enough: what is in the log has to get to
        // disk, and the checkpoint writes for all databases. For that some are kept.
        database.give_back_descriptor();
        let directory = database.directory();
        if database.own_directory {
            let made = self.shared.env.fs.create_directory_all(&directory);
            made.map_err(io_error("create", &directory))?;
            self.disk.unsynced.insert(self.shared.directory.clone());
        }
        // Remembered until they are synced, or named: the attempt may end before.
        self.disk.unsynced.insert(directory);
        self.disk.made.insert(path.to_owned());
        // One of the same name may be there that an older root names: it is overwritten in place, not before.
        let opened = self.shared.env.fs.open(path, Access::OpenOrCreate);
        opened.map_err(io_error("create", path))
    }

    /// Reserves pages from `start` to `whole`, if files are reserved whole and the disk has room for that, and to
    /// `needed` otherwise. True for the whole.
    fn reserve(&self, file: &dyn File, path: &Path, start: u64, needed: u64, whole: u64) -> Result<bool> {
        let page = stored_page_bytes(self.shared.env.fs.keys().is_some());
        let reserve = |end: u64| -> Result<()> {
            let reserved = file.allocate(start * page, (end - start) * page);
            reserved.map_err(io_error("reserve space for", path))
        };
        if self.shared.options.preallocate && whole > needed {
            let length = file.len().map_err(io_error("measure", path))?;
            match reserve(whole) {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::OutOfSpace => {}
                Err(error) => return Err(error),
            }
            // File systems keep what they found until they found no more: it would be all there is.
            file.set_len(length).map_err(io_error("cut", path))?;
        }
        reserve(needed)?;
        Ok(needed >= whole)
    }

    /// Removes files that attempts before made, and that belong to nothing any more: of databases that were dropped,
    /// files that were given back. What fails here is left to the next start.
    fn remove_leftovers(&mut self, cut: &Cut) {
        if self.disk.made.is_empty() {
            return;
        }
        let mut named = files_of(&self.disk.root, &self.shared.directory);
        for part in &cut.databases {
            named.insert(part.database.namespace_path());
            named.extend(part.files.iter().map(|file| file.path.clone()));
        }
        let fs = &self.shared.env.fs;
        let left: Vec<_> = self.disk.made.difference(&named).cloned().collect();
        for path in left {
            self.disk.made.remove(&path);
            // Whoever still has it open keeps no blocks.
            if let Ok(file) = fs.open(&path, Access::ReadWrite) {
                let _ = file.set_len(0);
                let _ = fs.remove_file(&path);
            }
            let home = path.parent().filter(|home| *home != self.shared.directory);
            if let Some(home) = home.filter(|home| !named.iter().any(|named| named.starts_with(home))) {
                self.disk.unsynced.remove(home);
                let _ = fs.remove_directory_all(home);
            }
        }
    }
}

/// Room that is not there, and no disk's.
pub(crate) fn no_room(message: String) -> EngineError {
    EngineError::Backend {
        operation: "grow",
        kind: ErrorKind::OutOfSpace,
        message,
    }
}
