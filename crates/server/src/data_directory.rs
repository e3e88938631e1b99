//! The data directory: who uses it, which engine wrote it, and where things lie in it.
//!
//! ```text
//! tenond.lock     locked while a server runs; holds its process id, and whether it keeps a log; empty after a clean
//!                 end
//! storage.bson    engine and layout, written once; see docs/formats/data-directory.md; locked while a server runs
//! encryption.keys the data keys of a directory that is encrypted, and encryption.keys.copy the same once more; see
//!                 docs/formats/encryption.md
//! journal/        the log
//! journal.unlogged
//!                 there once a server without a log had the directory: what is in the log is not all
//! <engine>/       the engine's files
//! _tmp/           what operations spill that outgrow their memory; empty between two runs
//! ```
//!
//! Invariant: nothing in the directory is changed before the lock is held and the metadata agrees.

mod copy_place;
mod key_place;
mod metadata;
mod oplog_size;
mod repair_mark;

pub use copy_place::{BegunCopy, CopyPlace};
pub use key_place::{KeyPlaceError, Rotated, Rotation, keys_to_read, rotate};
pub use metadata::Traces;
pub use oplog_size::{AskedOplog, keep_oplog_retention};
pub use repair_mark::RepairMark;

use bson::Document;
use crypt::{Keys, MasterKey};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, DirectoryLock, Env, FileSystem, KeyedFs, Random};

/// Name of the lock file.
pub const LOCK_FILE: &str = "tenond.lock";
/// Name of the metadata file.
pub const METADATA_FILE: &str = "storage.bson";
/// Name of the key store.
pub const KEY_STORE_FILE: &str = "encryption.keys";
/// Name of the key store's second copy: without a whole one nothing of the directory can be read.
pub(crate) const KEY_STORE_COPY_FILE: &str = "encryption.keys.copy";
/// A configuration of the replica set that is to be forced at the next start.
const FORCED_FILE: &str = "forced-configuration.bson";
/// Name of the directory of what operations spill, as MongoDB's.
const TEMPORARY_DIRECTORY: &str = "_tmp";
/// Version of the directory's layout.
const FORMAT_VERSION: i32 = 1;
/// There once something may have been stored that is not in the log.
const UNLOGGED_FILE: &str = "journal.unlogged";
/// A longer metadata file is not one of ours.
const METADATA_BYTES_MAX: u64 = 64 * 1024;

/// What the metadata says of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The engine's own name.
    pub engine: String,
    /// A directory for each database.
    pub directory_per_db: bool,
}

/// A data directory in use.
pub struct DataDirectory {
    path: PathBuf,
    lock: Box<dyn DirectoryLock>,
    /// On the metadata: whoever removes the lock file of a running server, as if it were stale, does not let a second
    /// one in.
    _metadata_lock: Box<dyn DirectoryLock>,
    /// Nothing can be in it yet: engine and log have not opened so far.
    pub is_new: bool,
    /// The metadata do not have their name yet: of a directory that is new, or by a repair.
    is_begun: bool,
    /// The last server did not end cleanly.
    pub unclean: bool,
    /// That server kept a log, so what it had acknowledged may be nowhere else.
    pub needs_log: bool,
    /// A copy of another member's data has taken the place of what was here.
    pub was_replaced: bool,
    /// With what its files are sealed.
    pub keys: Option<Arc<Keys>>,
}

/// What the lock file of a server without a log says below the process id.
const NO_JOURNAL: &str = "no journal";
/// Of a lock file no more is read.
const LOCK_FILE_BYTES_READ: u64 = 256;

/// What a directory is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To serve what is in it.
    Serve,
    /// To make it one that can be served.
    Repair,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirectoryError {
    /// It does not exist.
    #[error(
        "Data directory {0} not found. Create the missing directory or specify another path using (1) the --dbpath command line option, or (2) by adding the 'storage.dbPath' option in the configuration file."
    )]
    Missing(PathBuf),
    /// Another server uses it.
    #[error(
        "Unable to lock the lock file: {0}/tenond.lock. Another tenond instance is already running on the {0} directory"
    )]
    InUse(PathBuf),
    /// Another engine wrote it.
    #[error(
        "The data in {path} was created by the storage engine '{found}', so it cannot be opened with '{wanted}'. Either start with --storageEngine {found}, or move the data: tenon migrate --from {path} --to-engine {wanted} --out NEW_DIRECTORY"
    )]
    OtherEngine {
        /// The directory.
        path: PathBuf,
        /// In the metadata.
        found: String,
        /// Asked for.
        wanted: String,
    },
    /// A first start with something else has not come to its end.
    #[error(
        "A first start on {path} did not come to its end, with the storage engine '{engine}' and {encryption}: nothing is stored in it. Start like that again, or remove what is in the directory"
    )]
    Begun {
        /// The directory.
        path: PathBuf,
        /// In the metadata.
        engine: String,
        /// What the metadata says of that.
        encryption: &'static str,
    },
    /// There is nothing to repair.
    #[error("there are no data of tenond's in {0}: is it the right directory? Nothing was changed")]
    NothingThere(PathBuf),
    /// Another program wrote it.
    #[error(
        "{0} holds files of another program, such as MongoDB: tenond reads its own files only. Run mongodump against that program and mongorestore against tenond on an empty dbPath"
    )]
    Foreign(PathBuf),
    /// A newer version wrote it.
    #[error("The data in {path} has format version {found}, and this build knows versions up to {FORMAT_VERSION}")]
    Version {
        /// The directory.
        path: PathBuf,
        /// In the metadata.
        found: i32,
    },
    /// The metadata is gone, and the data are not.
    #[error("{}/{METADATA_FILE} is missing, and the directory is not empty: there is {traces}", .path.display())]
    MetadataLost {
        /// The directory.
        path: PathBuf,
        /// What there is.
        traces: Traces,
    },
    /// The engine's files are gone.
    #[error(
        "the files of the storage engine {engine} are missing: there is nothing in {}, and {METADATA_FILE} says that there was. Put them back, or mount the volume that they are on; else restore a backup, or let a member of a replica set copy the others' data into an empty directory. Where the log still begins with the first entry, tenond --repair makes them anew from it. If nothing was ever stored in the directory, as after a first start by an earlier version that failed, remove {METADATA_FILE}", .path.display()
    )]
    EngineMissing {
        /// Where its files should be.
        path: PathBuf,
        /// The engine.
        engine: String,
    },
    /// A file beside the data is damaged.
    #[error("{path} is damaged: {reason}{}", advice(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Expected and found.
        reason: String,
    },
    /// It is encrypted, or not, and a key was not given, or was.
    #[error("The data in {path} cannot be opened: {reason}")]
    Keys {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: KeyPlaceError,
    },
    /// A repair has begun to change it and did not come to a good end.
    #[error(
        "The data in {0} is repaired in part: run tenond --repair on it to the end, or restore a backup; a member of a replica set copies the others' data into an empty directory. If no repair comes to its end, removing repair.bson from it lets a server start on what there is, which must not be done with --replSet"
    )]
    Unrepaired(PathBuf),
    /// It was a set's member, and a repair could not save all of it.
    #[error(
        "The data in {0} lacks what a repair could not save, so that a member of a replica set would vote without what it has acknowledged: let the member copy the others' data into an empty directory. If no other member has the data, start it without --replSet, and dump what there is"
    )]
    LeftSet(PathBuf),
    /// A file operation failed.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Error,
    },
}

type Result<T> = std::result::Result<T, DataDirectoryError>;

fn io<'p>(operation: &'static str, path: &'p Path) -> impl FnOnce(Error) -> DataDirectoryError + use<'p> {
    move |source| DataDirectoryError::Io {
        operation,
        path: path.to_owned(),
        source,
    }
}

impl DataDirectory {
    /// Locks the directory, checks that it belongs to `wanted`'s engine and that it is encrypted if there is a master
    /// key and only then, and creates what is missing. One that is repaired in part is refused.
    pub fn open(fs: &dyn FileSystem, path: &Path, wanted: &Metadata, master: Option<&MasterKey>) -> Result<Self> {
        Self::open_for(fs, path, wanted, master, Purpose::Serve)
    }

    /// As [`DataDirectory::open`], for a repair: it goes on with one that was cut short, and writes metadata anew that
    /// are damaged or lost, where the folder of `wanted`'s engine is there and that of no other, or a log alone.
    pub fn open_to_repair(
        fs: &dyn FileSystem,
        path: &Path,
        wanted: &Metadata,
        master: Option<&MasterKey>,
    ) -> Result<Self> {
        Self::open_for(fs, path, wanted, master, Purpose::Repair)
    }

    fn open_for(
        fs: &dyn FileSystem,
        path: &Path,
        wanted: &Metadata,
        master: Option<&MasterKey>,
        purpose: Purpose,
    ) -> Result<Self> {
        if !fs.exists(path).map_err(io("look at", path))? {
            return Err(DataDirectoryError::Missing(path.to_owned()));
        }
        let found = metadata::find_for(fs, path, purpose)?;
        if found.is_none() && purpose == Purpose::Repair && metadata::holds_nothing(fs, path, &wanted.engine)? {
            return Err(DataDirectoryError::NothingThere(path.to_owned()));
        }
        if let Some(found) = &found
            && found.is_begun
            && !found.is_of_repair
            && (found.metadata.engine != wanted.engine || (master.is_some() && !found.is_encrypted))
        {
            return Err(DataDirectoryError::Begun {
                path: path.to_owned(),
                engine: found.metadata.engine.clone(),
                encryption: match found.is_encrypted {
                    true => "--enableEncryption",
                    false => "no encryption",
                },
            });
        }
        key_place::check(fs, path, found.map(|found| found.is_encrypted), master)?;
        let lock = lock(fs, path, LOCK_FILE)?;
        let checked = metadata::check(fs, path, wanted, master, purpose)?;
        // The lock stays on the file when that gets its name.
        let metadata_file = match checked.is_begun {
            true => metadata::BEGUN_FILE,
            false => METADATA_FILE,
        };
        let metadata_lock = self::lock(fs, path, metadata_file)?;
        let was_replaced = CopyPlace::of(path, &wanted.engine).take_over(fs, path)?;
        if purpose == Purpose::Serve && RepairMark::read(fs, path)?.is_unfinished {
            return Err(DataDirectoryError::Unrepaired(path.to_owned()));
        }
        let lock_path = path.join(LOCK_FILE);
        let before = read_start(fs, &lock_path, LOCK_FILE_BYTES_READ)?;
        let unclean = !before.trim_ascii().is_empty();
        let directory = Self {
            path: path.to_owned(),
            lock,
            _metadata_lock: metadata_lock,
            is_new: checked.is_begun && !checked.is_of_repair,
            is_begun: checked.is_begun,
            unclean,
            // Of what was replaced nothing is asked any more.
            needs_log: !was_replaced && unclean && !String::from_utf8_lossy(&before).contains(NO_JOURNAL),
            was_replaced,
            keys: checked.keys,
        };
        // Until the log is open, what the last server left counts: this start may be refused, or cut short.
        directory.write_lock(directory.needs_log)?;
        for inner in [directory.journal(), directory.engine(&wanted.engine)] {
            fs.create_directory_all(&inner).map_err(io("create", &inner))?;
        }
        fs.sync_directory(path).map_err(io("sync", path))?;
        Ok(directory)
    }

    /// The engine that wrote the directory; `None` when there is nothing yet. It takes no lock and changes nothing.
    pub fn engine_of(fs: &dyn FileSystem, path: &Path) -> Result<Option<String>> {
        match metadata::find(fs, path) {
            Err(DataDirectoryError::Foreign(_)) => Ok(None),
            found => Ok(found?.map(|found| found.metadata.engine)),
        }
    }

    /// What the directory's files are opened with: with its keys, if it has any.
    pub fn env(&self, env: &Env) -> Env {
        keyed(env, self.keys.as_ref())
    }

    /// Notes that engine and log are open and fit, and whether a log is kept. From here on there may be data.
    pub fn note_opened(&self, fs: &dyn FileSystem, journal: bool) -> Result<()> {
        if !journal {
            self.note_unlogged(fs)?;
        }
        if self.is_begun {
            metadata::finish(fs, &self.path)?;
        }
        self.write_lock(journal)
    }

    /// As [`DataDirectory::note_opened`], by a repair: what the last server left counts on.
    pub(crate) fn note_repairable(&self, fs: &dyn FileSystem) -> Result<()> {
        if self.is_begun {
            metadata::finish(fs, &self.path)?;
        }
        self.write_lock(self.needs_log)
    }

    /// Whether a repair has written the metadata anew, and nothing has confirmed them.
    pub(crate) fn has_new_metadata(&self) -> bool {
        self.is_begun && !self.is_new
    }

    /// Removes such metadata.
    pub(crate) fn give_up_metadata(&self, fs: &dyn FileSystem) -> Result<()> {
        match self.has_new_metadata() {
            true => metadata::give_up(fs, &self.path),
            false => Ok(()),
        }
    }

    /// Notes, for good, that what is stored from here on is in no log. Of a log that begins anew behind that nobody
    /// asks whether it has everything.
    pub(crate) fn note_unlogged(&self, fs: &dyn FileSystem) -> Result<()> {
        match self.has_unlogged(fs)? {
            true => Ok(()),
            false => write_whole(fs, &self.path, UNLOGGED_FILE, b"written without a log\n"),
        }
    }

    /// Whether something may have been stored that never was in the log.
    pub(crate) fn has_unlogged(&self, fs: &dyn FileSystem) -> Result<bool> {
        let path = self.path.join(UNLOGGED_FILE);
        fs.exists(&path).map_err(io("look at", &path))
    }

    /// Whether nothing is where an engine's files should be, though the directory may hold data.
    pub fn lacks_engine(&self, fs: &dyn FileSystem, name: &str) -> Result<bool> {
        Ok(!self.is_new && metadata::is_empty(fs, &self.engine(name))?)
    }

    fn write_lock(&self, journal: bool) -> Result<()> {
        let note = if journal { "" } else { NO_JOURNAL };
        let content = format!("{}\n{note}", std::process::id());
        let path = self.path.join(LOCK_FILE);
        self.lock.write_content(content.as_bytes()).map_err(io("write", &path))
    }

    /// The log's directory.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// How far the log has come, beside it.
    pub fn journal_position(&self) -> PathBuf {
        self.path.join("journal.position")
    }

    /// Where operations spill to.
    pub fn temporary(&self) -> PathBuf {
        self.path.join(TEMPORARY_DIRECTORY)
    }

    /// An engine's directory.
    pub fn engine(&self, name: &str) -> PathBuf {
        engine_path(&self.path, name)
    }

    /// Where a copy of another member's data is made.
    pub fn copy_place(&self, engine: &str) -> CopyPlace {
        CopyPlace::of(&self.path, engine)
    }

    /// The directory's own number, by which a replica set knows it; made when it has none. One that must not be a
    /// member any more gives none.
    pub fn instance(&self, fs: &dyn FileSystem, random: &dyn Random) -> Result<[u8; 16]> {
        if self.repair_mark(fs)?.left_set {
            return Err(DataDirectoryError::LeftSet(self.path.clone()));
        }
        if let Some(instance) = self.known_instance(fs)? {
            return Ok(instance);
        }
        let instance = commands::new_instance(random);
        copy_place::write_instance(fs, &self.path, &instance)?;
        Ok(instance)
    }

    /// That number, when the directory has one.
    pub fn known_instance(&self, fs: &dyn FileSystem) -> Result<Option<[u8; 16]>> {
        copy_place::read_instance(fs, &self.path)
    }

    /// Whether the directory has been that of a replica set's member.
    pub fn is_members(&self, fs: &dyn FileSystem) -> Result<bool> {
        let path = self.path.join(copy_place::MEMBER_FILE);
        fs.exists(&path).map_err(io("look at", &path))
    }

    /// A configuration that somebody has forced on this member, to be taken up at this start.
    pub fn forced_configuration(&self, fs: &dyn FileSystem) -> Result<Option<Document>> {
        let path = self.path.join(FORCED_FILE);
        let bytes = read(fs, &path)?;
        bytes.map(|bytes| checked_document(&bytes, &path)).transpose()
    }

    /// It has been taken up.
    pub fn forget_forced_configuration(&self, fs: &dyn FileSystem) -> Result<()> {
        let path = self.path.join(FORCED_FILE);
        fs.remove_file(&path).map_err(io("remove", &path))?;
        fs.sync_directory(&self.path).map_err(io("sync", &self.path))
    }

    /// Notes that the server ended cleanly.
    pub fn close(self) -> Result<()> {
        // Not nothing: the next start writes over it, and needs no space on a disk that is full by then.
        self.lock
            .write_content(b"\n")
            .map_err(io("write", &self.path.join(LOCK_FILE)))
    }
}

/// Keeps a configuration that is to be forced at the next start.
pub fn force_configuration(fs: &dyn FileSystem, directory: &Path, configuration: &Document) -> Result<()> {
    write_document(fs, directory, FORCED_FILE, configuration.clone())
}

/// Takes the lock of a file in the directory.
fn lock(fs: &dyn FileSystem, directory: &Path, name: &str) -> Result<Box<dyn DirectoryLock>> {
    let path = directory.join(name);
    match fs.lock(&path) {
        Ok(lock) => Ok(lock),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(DataDirectoryError::InUse(directory.to_owned())),
        Err(error) => Err(io("lock", &path)(error)),
    }
}

/// An environment whose files are sealed with these keys.
pub fn keyed(env: &Env, keys: Option<&Arc<Keys>>) -> Env {
    let mut env = env.clone();
    if let Some(keys) = keys {
        env.fs = Arc::new(KeyedFs::new(env.fs, keys.clone()));
    }
    env
}

/// Whether the metadata says that the directory is encrypted; `None` when there is none.
fn is_encrypted(fs: &dyn FileSystem, directory: &Path) -> Result<Option<bool>> {
    Ok(metadata::find(fs, directory)?.map(|found| found.is_encrypted))
}

/// Writes a small file as a whole or not at all: a document with its checksum.
fn write_document(fs: &dyn FileSystem, directory: &Path, name: &str, document: Document) -> Result<()> {
    write_whole(fs, directory, name, &with_checksum(document))
}

/// Replaces a small file as a whole or not at all.
fn write_whole(fs: &dyn FileSystem, directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = write_unnamed(fs, directory, name, bytes)?;
    let target = directory.join(name);
    fs.rename(&temporary, &target).map_err(io("rename", &target))?;
    fs.sync_directory(directory).map_err(io("sync", directory))
}

/// Writes a small file, durably, up to its name: it is called `<name>.new`.
fn write_unnamed(fs: &dyn FileSystem, directory: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let temporary = directory.join(format!("{name}.new"));
    let file = fs
        .open(&temporary, Access::OpenOrCreate)
        .map_err(io("create", &temporary))?;
    file.set_len(0).map_err(io("write", &temporary))?;
    file.write_all_at(bytes, 0).map_err(io("write", &temporary))?;
    file.sync_data().map_err(io("sync", &temporary))?;
    Ok(temporary)
}

/// Removes a file, if it exists.
fn remove_file(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.exists(path).map_err(io("look at", path))? {
        true => fs.remove_file(path).map_err(io("remove", path)),
        false => Ok(()),
    }
}

/// An engine's directory in a data directory.
pub fn engine_path(path: &Path, name: &str) -> PathBuf {
    path.join(name)
}

/// The whole of a small file; `None` when it does not exist.
fn read(fs: &dyn FileSystem, path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match fs.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io("open", path)(error)),
    };
    let length = file.len().map_err(io("read", path))?;
    if length > METADATA_BYTES_MAX {
        let reason = format!("{length} bytes, expected at most {METADATA_BYTES_MAX}");
        return Err(DataDirectoryError::Damaged {
            path: path.to_owned(),
            reason,
        });
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(io("read", path))?;
    Ok(Some(bytes))
}

/// The start of a file; nothing when it does not exist.
fn read_start(fs: &dyn FileSystem, path: &Path, bytes_max: u64) -> Result<Vec<u8>> {
    if !fs.exists(path).map_err(io("look at", path))? {
        return Ok(Vec::new());
    }
    let file = fs.open(path, Access::Read).map_err(io("open", path))?;
    let length = file.len().map_err(io("read", path))?.min(bytes_max);
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(io("read", path))?;
    Ok(bytes)
}

/// The process id in a directory's lock file, when a server wrote one.
pub fn process_id(path: &Path) -> Option<i32> {
    let content = std::fs::read_to_string(path.join(LOCK_FILE)).ok()?;
    content.lines().next()?.trim().parse().ok()
}

/// True while a server holds the directory. A process id alone would not tell: after a crash it may be another
/// program's.
pub fn in_use(fs: &dyn FileSystem, path: &Path) -> bool {
    [LOCK_FILE, METADATA_FILE].iter().any(|name| {
        let file = path.join(name);
        matches!(fs.exists(&file), Ok(true)) && fs.lock(&file).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    })
}

fn checksum(document: &Document) -> Option<i64> {
    Some(i64::from(crc32c::crc32c(&document.to_vec().ok()?)))
}

fn with_checksum(mut document: Document) -> Vec<u8> {
    let sum = checksum(&document).expect("a few fields encode");
    document.insert("checksum", sum);
    document.to_vec().expect("a few fields encode")
}

/// A document whose checksum fits, without that.
fn checked_document(bytes: &[u8], file: &Path) -> Result<Document> {
    let damaged = |reason: &str| DataDirectoryError::Damaged {
        path: file.to_owned(),
        reason: reason.to_owned(),
    };
    let mut document = parsed(bytes, file)?;
    let found = document.remove("checksum").and_then(|sum| sum.as_i64());
    match found.is_some() && found == checksum(&document) {
        true => Ok(document),
        false => Err(damaged("the checksum does not fit")),
    }
}

fn parsed(bytes: &[u8], file: &Path) -> Result<Document> {
    let damaged = || DataDirectoryError::Damaged {
        path: file.to_owned(),
        reason: "not a BSON document".to_owned(),
    };
    if wire::validate_document(bytes).is_err() {
        return Err(damaged());
    }
    Document::from_reader(bytes).map_err(|_| damaged())
}

/// What can be done about a damaged file beside the data, as a sentence behind others.
fn advice(path: &Path) -> &'static str {
    match path.file_name().and_then(|name| name.to_str()) {
        Some(METADATA_FILE) => {
            ". Put a copy of it back, or run tenond --repair with --storageEngine and the name of the engine whose folder is there, which writes it anew"
        }
        Some(copy_place::MEMBER_FILE) => {
            ". Without it the directory is no member's: let the member copy the others' data into an empty directory. If no other member has the data, remove the file, start without --replSet, and dump what there is"
        }
        Some(repair_mark::FILE) => ". Run tenond --repair, which takes it for that of a repair that was cut short",
        Some(FORCED_FILE) => {
            ". Remove it, and force the configuration again once the member has started: it has not been taken up"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
