//! A data directory: which files there are, and how the server ended.
//!
//! `DATABASE.ns` and `DATABASE.N` stand in the directory itself, or in a folder `DATABASE` (`--directoryperdb`). What
//! else lies there is none of ours.

use crate::database::Database;
use crate::error::{Doing, RescueError, Result};
use crate::finding::{Fault, Finding, Findings};
use crate::image::{Image, Part};
use crate::journal::{self, Replayed};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, FileSystem};
use wire::InvalidText;

/// What a server writes into a file of the directory while it runs: its process id.
pub(crate) const LOCK_FILE: &str = "mongod.lock";
/// Which engine a directory belongs to, since 3.0.
const ENGINE_FILE: &str = "storage.bson";
/// A process id has fewer digits, the engine's document fewer bytes.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 10;

/// How a directory is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Pages that the journal changes stay in memory up to so many bytes.
    pub memory_bytes: usize,
    /// More of them go into a file of this path, which is made and gone at once; without it they stay in memory.
    pub scratch: Option<PathBuf>,
    /// What becomes of documents with text that is not UTF-8, which servers take no more, or with booleans that are
    /// neither 0 nor 1. They are counted, and the first of each collection are told.
    pub invalid_text: InvalidText,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            scratch: None,
            invalid_text: InvalidText::Replace,
        }
    }
}

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// In an orderly way.
    Clean,
    /// It was killed, and the journal says what is missing in the files.
    Journal,
    /// It was killed, and there is no journal.
    Unclean,
}

/// A directory that is open. Its files must not change meanwhile.
pub struct DataDirectory {
    image: Image,
    shutdown: Shutdown,
    invalid_text: InvalidText,
    replayed: Replayed,
    findings: Findings,
}

/// The process that a server's lock file names, if there is one: it may be running.
pub fn process_of(fs: &dyn FileSystem, root: &Path) -> Option<u32> {
    let text = small_file(fs, &root.join(LOCK_FILE)).ok()??;
    String::from_utf8(text).ok()?.trim().parse().ok()
}

impl DataDirectory {
    /// Reads the names of the files and the journal.
    pub fn open(fs: Arc<dyn FileSystem>, root: &Path, options: &OpenOptions) -> Result<Self> {
        if let Some(engine) = engine_of(&*fs, root)?.filter(|engine| engine != "mmapv1") {
            return Err(RescueError::OtherEngine {
                path: root.to_owned(),
                engine,
            });
        }
        let mut image = Image::new(fs.clone(), root, options.memory_bytes, options.scratch.clone());
        let mut findings = Findings::default();
        scan(&*fs, root, &mut image, &mut findings)?;
        let replayed = journal::replay(&*fs, root, &mut image, &mut findings)?;
        if image.databases().is_empty() {
            return Err(RescueError::NoFiles { path: root.to_owned() });
        }
        let was_killed = small_file(&*fs, &root.join(LOCK_FILE))
            .doing(|| format!("reading {LOCK_FILE}"))?
            .is_some_and(|text| !text.is_empty());
        let shutdown = match (replayed.files > 0, was_killed) {
            (true, _) => Shutdown::Journal,
            (false, true) => Shutdown::Unclean,
            (false, false) => Shutdown::Clean,
        };
        if shutdown == Shutdown::Unclean {
            findings.add(Finding {
                file: LOCK_FILE.to_owned(),
                offset: None,
                namespace: None,
                fault: Fault::Unclean,
            });
        }
        Ok(Self {
            image,
            shutdown,
            invalid_text: options.invalid_text,
            replayed,
            findings,
        })
    }

    /// How the server ended.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown
    }

    /// What was taken from the journal.
    pub fn replayed(&self) -> &Replayed {
        &self.replayed
    }

    /// What is wrong beside the databases.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Names, sorted.
    pub fn databases(&self) -> Vec<String> {
        self.image.databases()
    }

    /// Bytes of all data files, which bounds those of all documents.
    pub fn bytes(&self) -> u64 {
        let databases = self.image.databases();
        databases.iter().map(|name| self.image.database_bytes(name)).sum()
    }

    /// Reads the catalog of a database, and follows the links to all its extents.
    pub fn database(&self, name: &str) -> Result<Database<'_>> {
        if !self.image.databases().iter().any(|known| known == name) {
            return Err(RescueError::NoDatabase {
                database: name.to_owned(),
            });
        }
        Ok(Database::open(&self.image, name, self.shutdown, self.invalid_text))
    }
}

fn scan(fs: &dyn FileSystem, root: &Path, image: &mut Image, findings: &mut Findings) -> Result<()> {
    let listing = |path: &Path| fs.list(path).doing(|| format!("listing {}", path.display()));
    for name in listing(root)? {
        let Some(text) = name.to_str() else { continue };
        if let Some((database, part)) = file_of(text) {
            add(fs, root, image, findings, database, part, name.clone());
            continue;
        }
        // A folder of one database has files of that name only, and nothing else is looked into.
        if text.contains('.') || text == "journal" {
            continue;
        }
        let Ok(inner) = fs.list(&root.join(&name)) else {
            continue;
        };
        for entry in inner {
            match entry.to_str().and_then(file_of) {
                Some((database, part)) if database == text => {
                    add(fs, root, image, findings, database, part, name.join(&entry));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn add(
    fs: &dyn FileSystem,
    root: &Path,
    image: &mut Image,
    findings: &mut Findings,
    database: &str,
    part: Part,
    path: PathBuf,
) {
    match fs.open(&root.join(&path), Access::Read).and_then(|file| file.len()) {
        Ok(bytes) => image.add(database, part, path, bytes),
        Err(error) => findings.add(Finding {
            file: path.display().to_string(),
            offset: None,
            namespace: None,
            fault: Fault::Unreadable {
                error: error.to_string(),
            },
        }),
    }
}

/// Database and part of a file's name.
pub(crate) fn file_of(name: &str) -> Option<(&str, Part)> {
    let (database, ending) = name.rsplit_once('.')?;
    if database.is_empty() || database.contains(['.', '/', '\\', '\0']) {
        return None;
    }
    if ending == "ns" {
        return Some((database, Part::Catalog));
    }
    // As servers write numbers, so that two names are not one file.
    let number: u16 = ending.parse().ok()?;
    (number.to_string() == ending).then_some((database, Part::Data(number)))
}

/// `None` when it is not there, or is not small.
fn small_file(fs: &dyn FileSystem, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    if !fs.exists(path)? {
        return Ok(None);
    }
    let file = fs.open(path, Access::Read)?;
    let length = file.len()?;
    if length > SMALL_FILE_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

/// The engine that `storage.bson` names; damaged or missing, it says nothing.
fn engine_of(fs: &dyn FileSystem, root: &Path) -> Result<Option<String>> {
    let bytes = small_file(fs, &root.join(ENGINE_FILE)).doing(|| format!("reading {ENGINE_FILE}"))?;
    let Some(document) = bytes.as_deref().and_then(|bytes| wire::validate_document(bytes).ok()) else {
        return Ok(None);
    };
    let storage = document.get_document("storage").ok();
    Ok(storage.and_then(|storage| storage.get_str("engine").ok().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        for (name, expected) in [
            ("shop.ns", Some(("shop", Part::Catalog))),
            ("shop.0", Some(("shop", Part::Data(0)))),
            ("shop.15999", Some(("shop", Part::Data(15999)))),
            ("shop.00", None),
            ("shop.+1", None),
            ("shop.x", None),
            (".ns", None),
            ("a.b.ns", None),
            ("shop", None),
        ] {
            assert_eq!(file_of(name), expected, "{name}");
        }
    }
}
