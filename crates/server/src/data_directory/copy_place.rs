//! Where a member copies all data of another one to: `initial-sync/`, which takes the data's place at the next start.
//!
//! 1. The copy is made in `initial-sync/`: engine, log and instance. `begun.bson` says of whom it is made: with it the
//!    copy outlasts the end of the server, which goes on with it.
//! 2. Its marker is written and synced: from here on it counts.
//! 3. The next start removes what is in the folders of engine and log, and notes that it has.
//! 4. It moves what the copy's folders hold there. What is no longer in `initial-sync/` has been moved, so a start
//!    that was cut short goes on where it was. The folders themselves stay: each may be a link, or a disk of its own.
//! 5. The marker goes last.

use super::metadata::LOST_AND_FOUND;
use super::{DataDirectoryError, RepairMark, Result, io, remove_file};
use bson::{Document, doc};
use commands::instance_binary;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use vfs::{Access, FileSystem};

const DIRECTORY: &str = "initial-sync";
const MARKER: &str = "complete";
/// The former data are gone, and what is in their place is the copy's.
const EMPTIED: &str = "emptied";
/// Bytes that go from one disk to another at a time.
const MOVED_BYTES: usize = 1 << 20;
const BEGUN: &str = "begun.bson";
const JOURNAL: &str = "journal";
const JOURNAL_POSITION: &str = "journal.position";
/// Which instance the directory is.
pub(super) const MEMBER_FILE: &str = "member.bson";

/// A copy that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunCopy {
    /// Where its source is.
    pub source: String,
    /// The number that the source gave it.
    pub copy: i64,
    /// The instance that it is to be.
    pub instance: [u8; 16],
    /// The file that is being copied, by its place in the source's list, where files are.
    pub file: usize,
    /// So much of that is on disk; all of those before are.
    pub offset: u64,
}

/// The parts of a copy.
#[derive(Clone, Debug)]
pub struct CopyPlace {
    root: PathBuf,
    /// The engine's files.
    pub engine: PathBuf,
    /// The log.
    pub journal: PathBuf,
    /// How far the log has come.
    pub journal_position: PathBuf,
}

impl CopyPlace {
    /// That of a data directory.
    pub(super) fn of(data: &Path, engine: &str) -> Self {
        let root = data.join(DIRECTORY);
        Self {
            engine: super::engine_path(&root, engine),
            journal: root.join(JOURNAL),
            journal_position: root.join(JOURNAL_POSITION),
            root,
        }
    }

    /// Empties it.
    ///
    /// # Errors
    /// Those of files.
    pub fn begin(&self, fs: &dyn FileSystem) -> Result<()> {
        self.throw_away(fs)?;
        for inner in [&self.engine, &self.journal] {
            fs.create_directory_all(inner).map_err(io("create", inner))?;
        }
        fs.sync_directory(&self.root).map_err(io("sync", &self.root))
    }

    /// Notes how a copy goes on that is cut short.
    ///
    /// # Errors
    /// Those of files.
    pub fn note_begun(&self, fs: &dyn FileSystem, begun: &BegunCopy) -> Result<()> {
        let document = doc! {
            "tenon": "initial sync",
            "formatVersion": 1,
            "source": &begun.source,
            "copy": begun.copy,
            "instance": instance_binary(begun.instance),
            "file": begun.file as i64,
            "offset": begun.offset as i64,
        };
        super::write_document(fs, &self.root, BEGUN, document)
    }

    /// The copy that was begun and not completed.
    ///
    /// # Errors
    /// Those of files; what is noted is damaged.
    pub fn begun(&self, fs: &dyn FileSystem) -> Result<Option<BegunCopy>> {
        let path = self.root.join(BEGUN);
        let Some(bytes) = super::read(fs, &path)? else {
            return Ok(None);
        };
        let document = super::checked_document(&bytes, &path)?;
        let number = |field: &str| document.get_i64(field).ok()?.try_into().ok();
        let read = || {
            Some(BegunCopy {
                source: document.get_str("source").ok()?.to_owned(),
                copy: document.get_i64("copy").ok()?,
                instance: read_binary(&document)?,
                file: number("file")? as usize,
                offset: number("offset")?,
            })
        };
        match document.get_i32("formatVersion") {
            Ok(1) => Ok(read()),
            _ => Ok(None),
        }
    }

    /// The copy is whole and on disk: it is to be the data of the instance.
    ///
    /// # Errors
    /// Those of files.
    pub fn complete(&self, fs: &dyn FileSystem, instance: &[u8; 16]) -> Result<()> {
        // Neither may outlast the marker: a start would go on with a copy that has been moved away, or take what is in
        // the data's place for its own. The instance's name syncs that they are gone.
        remove_file(fs, &self.root.join(BEGUN))?;
        remove_file(fs, &self.root.join(EMPTIED))?;
        write_instance(fs, &self.root, instance)?;
        for inner in [&self.engine, &self.journal] {
            fs.sync_directory(inner).map_err(io("sync", inner))?;
        }
        self.mark(fs, MARKER)?;
        if let Some(data) = self.root.parent() {
            fs.sync_directory(data).map_err(io("sync", data))?;
        }
        Ok(())
    }

    fn mark(&self, fs: &dyn FileSystem, name: &str) -> Result<()> {
        let marker = self.root.join(name);
        let file = fs.open(&marker, Access::OpenOrCreate).map_err(io("create", &marker))?;
        file.sync_data().map_err(io("sync", &marker))?;
        fs.sync_directory(&self.root).map_err(io("sync", &self.root))
    }

    /// Removes what there is of a copy.
    ///
    /// # Errors
    /// Those of files.
    pub fn throw_away(&self, fs: &dyn FileSystem) -> Result<()> {
        // What is half removed must not count, and must not be gone on with.
        remove_file(fs, &self.root.join(MARKER))?;
        remove_file(fs, &self.root.join(BEGUN))?;
        if fs.exists(&self.root).map_err(io("look at", &self.root))? {
            fs.sync_directory(&self.root).map_err(io("sync", &self.root))?;
            fs.remove_directory_all(&self.root).map_err(io("remove", &self.root))?;
        }
        Ok(())
    }

    /// Has a copy that is whole take the data's place, and removes one that nobody could go on with. Answers whether
    /// there was one.
    pub(super) fn take_over(&self, fs: &dyn FileSystem, data: &Path) -> Result<bool> {
        if !fs.exists(&self.root.join(MARKER)).map_err(io("look at", &self.root))? {
            // What cannot be read is of no use.
            if !matches!(self.begun(fs), Ok(Some(_))) {
                self.throw_away(fs)?;
            }
            return Ok(false);
        }
        let emptied = self.root.join(EMPTIED);
        let is_emptied = fs.exists(&emptied).map_err(io("look at", &emptied))?;
        let mut parts = Vec::new();
        for part in [&self.engine, &self.journal] {
            if fs.exists(part).map_err(io("look at", part))? {
                parts.push((part, target(data, part)));
            }
        }
        if !is_emptied {
            for (_, target) in &parts {
                empty(fs, target).map_err(io("empty", target))?;
            }
            self.mark(fs, EMPTIED)?;
        }
        for (part, target) in &parts {
            move_content(fs, part, target).map_err(io("move the copy to", target))?;
            fs.sync_directory(data).map_err(io("sync", data))?;
            fs.remove_directory_all(part).map_err(io("remove", part))?;
        }
        // A log without its position is taken as it is; that of another log must not stay.
        let position = data.join(JOURNAL_POSITION);
        match fs.exists(&self.journal_position).map_err(io("look at", &position))? {
            true => fs
                .rename(&self.journal_position, &position)
                .map_err(io("rename", &position))?,
            false
                if fs
                    .exists(&self.root.join(MEMBER_FILE))
                    .map_err(io("look at", &self.root))? =>
            {
                remove_file(fs, &position)?;
            }
            false => {}
        }
        let member = self.root.join(MEMBER_FILE);
        if fs.exists(&member).map_err(io("look at", &member))? {
            let target = data.join(MEMBER_FILE);
            fs.rename(&member, &target).map_err(io("rename", &target))?;
        }
        // It is about what the copy has replaced.
        RepairMark::remove(fs, data)?;
        fs.sync_directory(data).map_err(io("sync", data))?;
        self.throw_away(fs)?;
        fs.sync_directory(data).map_err(io("sync", data))?;
        Ok(true)
    }
}

/// Removes what is in a folder, and makes one that is not there. A link within it goes, and what it leads to stays.
/// What a file system keeps for itself is not looked at: it may be another user's.
fn empty(fs: &dyn FileSystem, folder: &Path) -> std::io::Result<()> {
    fs.create_directory_all(folder)?;
    for name in fs.list(folder)? {
        if name == Path::new(LOST_AND_FOUND) {
            continue;
        }
        let path = folder.join(&name);
        match fs.remove_file(&path) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => remove_folder(fs, &path)?,
            removed => removed?,
        }
    }
    fs.sync_directory(folder)
}

/// Removes a folder with what is in it. One that is a disk of its own cannot go, and stays empty.
fn remove_folder(fs: &dyn FileSystem, folder: &Path) -> std::io::Result<()> {
    empty(fs, folder)?;
    if !fs.list(folder)?.is_empty() {
        return Ok(());
    }
    match fs.remove_directory_all(folder) {
        Err(error) if error.kind() == ErrorKind::ResourceBusy => Ok(()),
        removed => removed,
    }
}

/// Whether a name is that of a folder, or of a link to one.
fn is_folder(fs: &dyn FileSystem, path: &Path) -> std::io::Result<bool> {
    match fs.list(path) {
        Ok(_) => Ok(true),
        // A link may lead nowhere.
        Err(error) if matches!(error.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves what is in one folder to another, durably. To be repeated where it was cut short.
fn move_content(fs: &dyn FileSystem, from: &Path, to: &Path) -> std::io::Result<()> {
    fs.create_directory_all(to)?;
    // Its own name comes first: what goes there is nowhere else then.
    if let Some(folder) = to.parent() {
        fs.sync_directory(folder)?;
    }
    for name in fs.list(from)? {
        let (from, to) = (from.join(&name), to.join(&name));
        match fs.rename(&from, &to) {
            Err(error) if is_in_the_way(&error) => move_across(fs, &from, &to)?,
            renamed => renamed?,
        }
    }
    fs.sync_directory(to)
}

/// Whether a name could not be moved to another disk, or not to a folder that stays: a disk of its own, or one that
/// holds something already.
fn is_in_the_way(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::CrossesDevices | ErrorKind::ResourceBusy | ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists
    )
}

/// Moves a file or a folder to another disk. What a former attempt has brought there is brought once more.
fn move_across(fs: &dyn FileSystem, from: &Path, to: &Path) -> std::io::Result<()> {
    if is_folder(fs, from)? {
        move_content(fs, from, to)?;
        return fs.remove_directory_all(from);
    }
    let source = fs.open(from, Access::Read)?;
    let target = fs.open(to, Access::OpenOrCreate)?;
    let bytes = source.len()?;
    target.set_len(bytes)?;
    let mut buffer = vec![0; MOVED_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let read = source.read_at(&mut buffer, offset)?;
        let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else {
            return Err(Error::new(ErrorKind::UnexpectedEof, from.display().to_string()));
        };
        target.write_all_at(piece, offset)?;
        offset += read as u64;
    }
    target.sync_data()?;
    // Its name there comes first: with the one here it may be the only one.
    if let Some(folder) = to.parent() {
        fs.sync_directory(folder)?;
    }
    fs.remove_file(from)
}

fn target(data: &Path, part: &Path) -> PathBuf {
    data.join(part.file_name().unwrap_or_default())
}

fn read_binary(document: &Document) -> Option<[u8; 16]> {
    let instance = document.get_binary_generic("instance").ok()?;
    instance.as_slice().try_into().ok()
}

/// Writes down which instance a directory is.
pub(super) fn write_instance(fs: &dyn FileSystem, directory: &Path, instance: &[u8; 16]) -> Result<()> {
    let document =
        doc! { "tenon": "member of a replica set", "formatVersion": 1, "instance": instance_binary(*instance) };
    super::write_document(fs, directory, MEMBER_FILE, document)
}

/// Reads which instance a directory is; `None` when it is none yet.
pub(super) fn read_instance(fs: &dyn FileSystem, directory: &Path) -> Result<Option<[u8; 16]>> {
    let path = directory.join(MEMBER_FILE);
    let Some(bytes) = super::read(fs, &path)? else {
        return Ok(None);
    };
    let damaged = |reason: &str| DataDirectoryError::Damaged {
        path: path.clone(),
        reason: reason.to_owned(),
    };
    let document = super::checked_document(&bytes, &path)?;
    if document.get_str("tenon").ok() != Some("member of a replica set") {
        return Err(damaged("it does not tell of a member of a replica set"));
    }
    let instance = read_binary(&document);
    instance.map(Some).ok_or_else(|| damaged("instance is missing"))
}
