//! `storage.bson`: which engine a directory belongs to.
//!
//! 1. A directory that holds nothing yet gets the file under the name `storage.bson.new`.
//! 2. Engine and log are opened; only then can anything be stored.
//! 3. The file gets its name.
//!
//! Invariant: a directory with anything of a server's data in it has the one file or the other. So one that has data
//! and neither of them has lost it, and is never taken for an empty one.

use super::{DataDirectoryError, FORMAT_VERSION, METADATA_FILE, Metadata, Purpose, Result, key_place};
use super::{checked_document, io, parsed, read, remove_file, with_checksum, write_unnamed};
use bson::{Bson, Document, doc};
use crypt::{Keys, MasterKey};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::FileSystem;

/// Its name before engine and log have opened.
pub(super) const BEGUN_FILE: &str = "storage.bson.new";
/// Where a repair puts one that is damaged.
const ASIDE_FILE: &str = "storage.bson.damaged";
/// Names of the engines' folders, whether this build has the engine or not.
const ENGINES: [&str; 5] = ["btree", "betree", "inMemory", "mmapv1", "rocksdb"];
/// What a file system makes in its topmost directory.
pub(super) const LOST_AND_FOUND: &str = "lost+found";
/// Files beside the engine's and the log's folder that only a directory with data has.
const SIDE_FILES: [&str; 2] = ["journal.position", "member.bson"];

/// What a directory's metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub metadata: Metadata,
    pub is_encrypted: bool,
    /// Engine and log have not opened yet.
    pub is_begun: bool,
    /// A repair wrote it, for data that were there.
    pub is_of_repair: bool,
}

/// What [`check`] answers.
pub(super) struct Checked {
    /// The directory's.
    pub keys: Option<Arc<Keys>>,
    /// The metadata are begun.
    pub is_begun: bool,
    /// They are those of a repair.
    pub is_of_repair: bool,
}

/// What a server's data leave in a directory, beside the metadata.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Engines whose folders hold something.
    pub engines: Vec<String>,
    /// The log has segments.
    has_segments: bool,
    /// Everything that was found, by name.
    names: Vec<String>,
}

impl Traces {
    fn find(fs: &dyn FileSystem, directory: &Path, wanted: &str) -> Result<Self> {
        let mut traces = Self::default();
        let others = (!ENGINES.contains(&wanted)).then_some(wanted);
        for engine in ENGINES.into_iter().chain(others) {
            if !is_empty(fs, &super::engine_path(directory, engine))? {
                traces.engines.push(engine.to_owned());
                traces.names.push(format!("{engine}/"));
            }
        }
        let journal = directory.join("journal");
        if fs.exists(&journal).map_err(io("look at", &journal))? {
            let names = fs.list(&journal).map_err(io("list", &journal))?;
            if names
                .iter()
                .any(|name| name.extension().is_some_and(|ending| ending == "log"))
            {
                traces.has_segments = true;
                traces.names.push("segments of a log in journal/".to_owned());
            }
        }
        for name in SIDE_FILES {
            if fs.exists(&directory.join(name)).map_err(io("look at", directory))? {
                traces.names.push(name.to_owned());
            }
        }
        Ok(traces)
    }
}

impl fmt::Display for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        f.write_str(". ")?;
        match &self.engines[..] {
            [engine] => write!(
                f,
                "Put it back, or run tenond --repair --storageEngine {engine} once, which writes it anew"
            ),
            [] => f.write_str(
                "Put back the engine's folder, and that file; or restore a backup. Where the log begins with the first entry, tenond --repair --storageEngine with an engine's name makes the data anew from it",
            ),
            more => write!(
                f,
                "Put it back, or move those of the folders {} away that do not hold the data, and run tenond --repair with --storageEngine and the name of the other one, which writes it anew",
                more.join(", ")
            ),
        }
    }
}

/// Whether a folder holds nothing, or is not there.
pub(super) fn is_empty(fs: &dyn FileSystem, folder: &Path) -> Result<bool> {
    if !fs.exists(folder).map_err(io("look at", folder))? {
        return Ok(true);
    }
    let names = fs.list(folder).map_err(io("list", folder))?;
    Ok(names.iter().all(|name| name == Path::new(LOST_AND_FOUND)))
}

/// What the metadata says; `None` when there is none. One that is begun and not whole was never built upon.
pub(super) fn find(fs: &dyn FileSystem, directory: &Path) -> Result<Option<Found>> {
    let file = directory.join(METADATA_FILE);
    if let Some(bytes) = read(fs, &file)? {
        return decode(&bytes, &file).map(Some);
    }
    let file = directory.join(BEGUN_FILE);
    let found = read(fs, &file)?.map(|bytes| decode(&bytes, &file));
    match found {
        None | Some(Err(DataDirectoryError::Damaged { .. } | DataDirectoryError::Foreign(_))) => Ok(None),
        Some(Err(error)) => Err(error),
        Some(Ok(found)) => Ok(Some(Found {
            is_begun: true,
            ..found
        })),
    }
}

/// As [`find`]. To a repair, a file that is damaged is none.
pub(super) fn find_for(fs: &dyn FileSystem, directory: &Path, purpose: Purpose) -> Result<Option<Found>> {
    match find(fs, directory) {
        Err(DataDirectoryError::Damaged { .. }) if purpose == Purpose::Repair => Ok(None),
        found => found,
    }
}

/// Checks that a directory belongs to an engine, and begins the metadata of one that holds nothing yet. Answers its
/// keys, and what the metadata is. The directory is locked.
pub(super) fn check(
    fs: &dyn FileSystem,
    directory: &Path,
    wanted: &Metadata,
    master: Option<&MasterKey>,
    purpose: Purpose,
) -> Result<Checked> {
    if let Some(found) = find_for(fs, directory, purpose)? {
        if found.metadata.engine != wanted.engine {
            return Err(DataDirectoryError::OtherEngine {
                path: directory.to_owned(),
                found: found.metadata.engine,
                wanted: wanted.engine.clone(),
            });
        }
        let keys = key_place::keys(fs, directory, Some(found.is_encrypted), master)?;
        return Ok(Checked {
            keys,
            is_begun: found.is_begun,
            is_of_repair: found.is_of_repair,
        });
    }
    for foreign in ["WiredTiger", "mongod.lock", "local.0", "_mdb_catalog.wt"] {
        if fs.exists(&directory.join(foreign)).map_err(io("look at", directory))? {
            return Err(DataDirectoryError::Foreign(directory.to_owned()));
        }
    }
    let traces = Traces::find(fs, directory, &wanted.engine)?;
    let (keys, is_of_repair) = match &traces {
        // The store first: a directory that says it is encrypted has one.
        Traces { names, .. } if names.is_empty() => (key_place::keys(fs, directory, None, master)?, false),
        // A store that is lost must not get another one in its place.
        // Without any engine's files, whether the log has everything is for the repair to say.
        Traces {
            engines, has_segments, ..
        } if purpose == Purpose::Repair
            && (engines[..] == [wanted.engine.clone()] || (engines.is_empty() && *has_segments)) =>
        {
            let keys = key_place::keys_to_read(fs, directory, master)?;
            put_aside(fs, directory)?;
            (keys, true)
        }
        _ => {
            return Err(DataDirectoryError::MetadataLost {
                path: directory.to_owned(),
                traces,
            });
        }
    };
    let mut document = fields(wanted);
    if keys.is_some() {
        document.insert("encrypted", true);
    }
    if is_of_repair {
        document.insert("ofRepair", true);
    }
    write_unnamed(fs, directory, METADATA_FILE, &with_checksum(document))?;
    fs.sync_directory(directory).map_err(io("sync", directory))?;
    Ok(Checked {
        keys,
        is_begun: true,
        is_of_repair,
    })
}

/// Removes what was begun.
pub(super) fn give_up(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    remove_file(fs, &directory.join(BEGUN_FILE))?;
    fs.sync_directory(directory).map_err(io("sync", directory))
}

/// Whether there are no data in a directory.
pub(super) fn holds_nothing(fs: &dyn FileSystem, directory: &Path, wanted: &str) -> Result<bool> {
    Ok(Traces::find(fs, directory, wanted)?.names.is_empty())
}

/// Step 3.
pub(super) fn finish(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    let begun = directory.join(BEGUN_FILE);
    if fs.exists(&begun).map_err(io("look at", &begun))? {
        let file = directory.join(METADATA_FILE);
        fs.rename(&begun, &file).map_err(io("rename", &begun))?;
        fs.sync_directory(directory).map_err(io("sync", directory))?;
    }
    Ok(())
}

/// Renames a file that is damaged, if there is one.
fn put_aside(fs: &dyn FileSystem, directory: &Path) -> Result<()> {
    let file = directory.join(METADATA_FILE);
    match fs.exists(&file).map_err(io("look at", &file))? {
        true => fs
            .rename(&file, &directory.join(ASIDE_FILE))
            .map_err(io("rename", &file)),
        false => Ok(()),
    }
}

pub(super) fn fields(metadata: &Metadata) -> Document {
    doc! {
        "tenon": "data directory",
        "formatVersion": FORMAT_VERSION,
        "engine": &metadata.engine,
        "directoryPerDB": metadata.directory_per_db,
    }
}

/// The metadata in a file's bytes. That of another program is an error of its own.
pub(super) fn decode(bytes: &[u8], file: &Path) -> Result<Found> {
    let damaged = |reason: &str| DataDirectoryError::Damaged {
        path: file.to_owned(),
        reason: reason.to_owned(),
    };
    let document = parsed(bytes, file)?;
    if !document.contains_key("tenon") && document.get_document("storage").is_ok() {
        let directory = file.parent().map(PathBuf::from).unwrap_or_default();
        return Err(DataDirectoryError::Foreign(directory));
    }
    let document = checked_document(bytes, file)?;
    if document.get_str("tenon").ok() != Some("data directory") {
        return Err(damaged("it does not tell of a data directory"));
    }
    match document.get_i32("formatVersion") {
        Ok(FORMAT_VERSION) => {}
        Ok(found) => {
            return Err(DataDirectoryError::Version {
                path: file.to_owned(),
                found,
            });
        }
        Err(_) => return Err(damaged("formatVersion is missing")),
    }
    let is_encrypted = match document.get("encrypted") {
        None => false,
        Some(Bson::Boolean(is_encrypted)) => *is_encrypted,
        Some(_) => return Err(damaged("encrypted is not true or false")),
    };
    match (document.get_str("engine"), document.get_bool("directoryPerDB")) {
        (Ok(engine), Ok(directory_per_db)) => Ok(Found {
            metadata: Metadata {
                engine: engine.to_owned(),
                directory_per_db,
            },
            is_encrypted,
            is_begun: false,
            is_of_repair: document.get_bool("ofRepair").unwrap_or(false),
        }),
        _ => Err(damaged("engine or directoryPerDB is missing")),
    }
}
