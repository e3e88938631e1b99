//! Looking at a data directory that no server uses, without changing it: `tenon verify`, and names for `tenon log`.
//!
//! 1. The metadata, `storage.bson`.
//! 2. The log: every segment's header and frames, the order of segments, and that each entry can be read.
//! 3. The engine's files, by the engine's own check of everything.
//! 4. What a start would give: the log replayed, the catalog loaded, every collection's documents compared with its
//!    indexes.
//!
//! Everything is opened over an [`OverlayFs`], so that recovery writes to memory only. RocksDB opens files by itself:
//! it gets a directory of its own, with links to the tables, which it never changes, and copies of the few small
//! files.
//!
//! Each step says what it can, whatever the others find.

use crate::config::{self, Config};
use crate::data_directory::{self, DataDirectory, Metadata};
use crate::encryption::{self, KeySource};
use crate::engines::{self, Registry};
use crate::reasons::reasons;
use crate::run;
use anyhow::{Context, Result, anyhow, bail};
use crypt::MasterKey;
use engine::{CloseMode, Engine, EngineError, Maintenance, Seq};
use oplog::{Log, LogError, SegmentPart};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Operation, Storage, StorageError, TableNames, describe_entry};
use vfs::{DirectoryLock, Env, FileSystem, KeyedFs, OverlayFs, RealFs, SystemClock, SystemRandom};

/// Findings of one part that are kept; the others are counted.
const FINDINGS_MAX: usize = 1000;

/// The part of a data directory that something is wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `storage.bson`.
    Metadata,
    /// `journal/`.
    Log,
    /// The engine's files.
    Engine,
    /// The catalog, or a collection with its indexes.
    Collections,
}

impl Part {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Log => "log",
            Self::Engine => "engine",
            Self::Collections => "collections",
        }
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it belongs.
    pub part: Part,
    /// The file, where one is known.
    pub file: Option<PathBuf>,
    /// The byte of the file.
    pub offset: Option<u64>,
    /// What is wrong.
    pub what: String,
}

/// What [`verify`] read and found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The engine, if the metadata tells it.
    pub engine: Option<String>,
    /// Files of the log.
    pub segments: u64,
    /// Entries in them.
    pub entries: u64,
    /// Rows that the engine has checked.
    pub rows: u64,
    /// Collections whose documents were compared with their indexes.
    pub collections: u64,
    /// Documents of them.
    pub documents: u64,
    /// What is wrong, in the order in which it was found.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub more_findings: u64,
}

impl Report {
    fn add(&mut self, finding: Finding) {
        if self.findings.iter().filter(|found| found.part == finding.part).count() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more_findings += 1;
        }
    }

    fn error(&mut self, part: Part, error: &anyhow::Error) {
        let place = error.chain().find_map(place_of);
        let (file, offset) = place.map_or((None, None), |(file, offset)| (Some(file), offset));
        let finding = Finding {
            part,
            file,
            offset,
            what: reasons(error),
        };
        // The same damage stops more than one step.
        if !self.findings.iter().any(|found| found.what == finding.what) {
            self.add(finding);
        }
    }
}

/// The file, and the place in it, that an error is about.
fn place_of(error: &(dyn std::error::Error + 'static)) -> Option<(PathBuf, Option<u64>)> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(LogError::Corrupt { path, offset, .. }), _) | (_, Some(EngineError::Corrupt { path, offset, .. })) => {
            Some((path.clone(), Some(*offset)))
        }
        (Some(LogError::Io { path, .. }), _) | (_, Some(EngineError::Io { path, .. })) => Some((path.clone(), None)),
        _ => None,
    }
}

/// Checks everything. An error is about the call: no data directory, or one that a server uses.
pub fn verify(db_path: &Path, key: Option<&KeySource>) -> Result<Report> {
    let directory = Unused::lock(db_path, key)?;
    let mut report = Report::default();
    match directory.engine() {
        Ok(name) => report.engine = Some(name),
        Err(error) => report.error(Part::Metadata, &error),
    }
    verify_log(&*directory.env.fs, &db_path.join("journal"), &mut report)?;
    let Some(name) = report.engine.clone() else {
        return Ok(report);
    };
    verify_engine(&directory, &name, &mut report)?;
    let opened = match directory.open() {
        Ok(opened) => opened,
        Err(error) => {
            report.error(Part::Collections, &error);
            return Ok(report);
        }
    };
    let result = verify_collections(&opened.storage, &mut report);
    opened.storage.close(false)?;
    result?;
    Ok(report)
}

/// The files of a data directory, with its keys if it is encrypted; no lock is taken.
pub fn files(db_path: &Path, key: Option<&KeySource>) -> Result<Arc<dyn FileSystem>> {
    let real: Arc<dyn FileSystem> = Arc::new(RealFs::new());
    let master = encryption::load(key)?;
    Ok(match data_directory::keys_to_read(&*real, db_path, master.as_ref())? {
        Some(keys) => Arc::new(KeyedFs::new(real, keys)),
        None => real,
    })
}

/// A directory that was opened as a start would, for questions to its catalog.
pub struct Offline {
    opened: Opened,
    _directory: Unused,
}

impl Offline {
    /// Opens it. A directory that is damaged, or that a server uses, is an error.
    pub fn open(db_path: &Path, key: Option<&KeySource>) -> Result<Self> {
        let directory = Unused::lock(db_path, key)?;
        Ok(Self {
            opened: directory.open()?,
            _directory: directory,
        })
    }

    /// Names of collections for the entries of its log.
    pub fn table_names(&self) -> TableNames {
        TableNames::of(self.opened.storage.clone())
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        // Nothing was to be kept.
        let _ = self.opened.storage.close(false);
    }
}

fn verify_log(fs: &dyn FileSystem, directory: &Path, report: &mut Report) -> Result<()> {
    if !fs.exists(directory)? {
        return Ok(());
    }
    let mut names = TableNames::default();
    // Number and end of the segment before.
    let mut before: Option<(u64, Seq)> = None;
    for path in oplog::segment_files(fs, directory)? {
        report.segments += 1;
        let info = match oplog::segment_info(fs, &path) {
            Ok(info) => info,
            Err(error) => {
                report.error(Part::Log, &error.into());
                before = None;
                continue;
            }
        };
        let mut find = |file: &Path, offset, what| {
            report.add(Finding {
                part: Part::Log,
                file: Some(file.to_owned()),
                offset,
                what,
            });
        };
        if let Some((number, end)) = before {
            if info.number != number + 1 {
                let what = format!("the segment before it, number {}, is missing", info.number - 1);
                find(&path, None, what);
            } else if info.first > end {
                let what = format!(
                    "it begins with entry {}, and the one before it ends before {}",
                    info.first.0, end.0
                );
                find(&path, None, what);
            } else if info.first < end && !info.truncates {
                let what = format!(
                    "it begins with entry {}, which the one before it has, too",
                    info.first.0
                );
                find(&path, None, what);
            }
        }
        let mut entries = 0;
        let walked = oplog::walk_segment(fs, &path, &mut |part| {
            match part {
                SegmentPart::Damage { offset, damage } => find(&path, Some(offset), damage.to_string()),
                SegmentPart::Entry {
                    seq,
                    frame_offset,
                    bytes,
                    ..
                } => {
                    entries += 1;
                    if let Err(error) = describe_entry(seq, bytes, &mut names) {
                        find(&path, Some(frame_offset), error.to_string());
                    }
                }
            }
            Ok::<_, LogError>(())
        });
        report.entries += entries;
        match walked {
            Ok(end) => before = Some((info.number, end)),
            Err(error) => {
                report.error(Part::Log, &error.into());
                before = None;
            }
        }
    }
    Ok(())
}

fn verify_engine(directory: &Unused, name: &str, report: &mut Report) -> Result<()> {
    let opened = match directory.open_engine(name) {
        Ok(opened) => opened,
        Err(error) => {
            report.error(Part::Engine, &error);
            return Ok(());
        }
    };
    match opened.engine.maintain(&Maintenance::Verify(None)) {
        Ok(found) => {
            report.rows += found.rows_checked;
            for what in found.problems {
                report.add(Finding {
                    part: Part::Engine,
                    file: None,
                    offset: None,
                    what,
                });
            }
        }
        Err(EngineError::Unsupported { .. }) => {}
        Err(error) => report.error(Part::Engine, &error.into()),
    }
    Ok(opened.engine.close(CloseMode::Abandon)?)
}

fn verify_collections(storage: &Storage, report: &mut Report) -> Result<()> {
    let op = Operation::new(storage.env().clock.clone(), 0);
    for db in storage.catalog().databases() {
        for collection in storage.catalog().collections(&db) {
            let namespace = collection.namespace();
            // Errors are in the report; those of the call are damage, too, where nobody else is at work.
            match storage.validate(&op, namespace, false) {
                Ok(found) => {
                    report.collections += 1;
                    report.documents += found.n_records;
                    for what in &found.errors {
                        report.add(Finding {
                            part: Part::Collections,
                            file: None,
                            offset: None,
                            what: format!("{namespace}: {what}"),
                        });
                    }
                }
                Err(error) => report.error(Part::Collections, &anyhow!(error).context(namespace.to_string())),
            }
        }
    }
    Ok(())
}

/// A data directory that no server uses, nor begins to use while this is there.
pub struct Unused {
    config: Config,
    env: Env,
    master: Option<MasterKey>,
    _locks: Vec<Box<dyn DirectoryLock>>,
}

struct OpenedEngine {
    engine: Arc<dyn Engine>,
    /// Removed behind the engine: fields are dropped in this order.
    _copy: Option<Copy>,
}

struct Opened {
    storage: Arc<Storage>,
    _copy: Option<Copy>,
}

impl Unused {
    /// Keeps servers away from a directory. One that a server uses, or that is not there, is an error, and one that is
    /// encrypted without its key.
    pub fn lock(db_path: &Path, key: Option<&KeySource>) -> Result<Self> {
        let below: Arc<dyn FileSystem> = Arc::new(RealFs::new());
        if !below.exists(db_path)? {
            bail!("there is no directory {}", db_path.display());
        }
        let mut locks = Vec::new();
        for name in [data_directory::LOCK_FILE, data_directory::METADATA_FILE] {
            let file = db_path.join(name);
            if !below.exists(&file)? {
                continue;
            }
            match below.lock(&file) {
                Ok(lock) => locks.push(lock),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    bail!("a server uses {}", db_path.display());
                }
                // On a disk that cannot be written no server runs.
                Err(_) => {}
            }
        }
        let mut config = config::from_file_text("", Path::new("/")).map_err(|error| anyhow!(error.to_string()))?;
        config.storage.db_path = db_path.to_owned();
        let master = encryption::load(key)?;
        let keys = data_directory::keys_to_read(&*below, db_path, master.as_ref())?;
        let env = Env {
            fs: Arc::new(OverlayFs::new(below)),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom::new()),
        };
        Ok(Self {
            config,
            env: data_directory::keyed(&env, keys.as_ref()),
            master,
            _locks: locks,
        })
    }

    /// The engine's name, by the metadata. A directory of another program, or of none, is an error.
    pub fn engine(&self) -> Result<String> {
        let path = &self.config.storage.db_path;
        match DataDirectory::engine_of(&*self.env.fs, path)? {
            Some(found) => Ok(found),
            None => bail!(
                "{} is no data directory of Tenon's, or its {} is lost",
                path.display(),
                data_directory::METADATA_FILE
            ),
        }
    }

    fn open_engine(&self, name: &str) -> Result<OpenedEngine> {
        let name = Registry::built_in()
            .choose(Some(name))
            .map_err(|reason| anyhow!(reason))?;
        let path = data_directory::engine_path(&self.config.storage.db_path, name);
        let is_missing = match self.env.fs.exists(&path)? {
            true => engines::leaves_files(name) && self.env.fs.list(&path)?.is_empty(),
            false => true,
        };
        if is_missing {
            return Err(run::engine_missing(name, path).into());
        }
        if name == "rocksdb" {
            let copy = Copy::make(&path)?;
            let env = Env {
                fs: Arc::new(RealFs::new()),
                ..self.env.clone()
            };
            return Ok(OpenedEngine {
                engine: Registry::built_in().open(name, &env, &copy.0, &self.config.storage)?,
                _copy: Some(copy),
            });
        }
        Ok(OpenedEngine {
            engine: Registry::built_in().open(name, &self.env, &path, &self.config.storage)?,
            _copy: None,
        })
    }

    /// As a start would, with the log replayed.
    fn open(&self) -> Result<Opened> {
        let name = self.engine()?;
        let name = name.as_str();
        let wanted = Metadata {
            engine: name.to_owned(),
            directory_per_db: false,
        };
        // One that is repaired in part, too: nothing is changed, and this is how to see what there is.
        let directory = DataDirectory::open_to_repair(
            &*self.env.fs,
            &self.config.storage.db_path,
            &wanted,
            self.master.as_ref(),
        )?;
        let OpenedEngine { engine, _copy } = self.open_engine(name)?;
        let (log, mut options) = run::parts_of(&self.config, name, &directory)?;
        options.background = false;
        let log = Log::open(&self.env, log, engine.durable_seq())?;
        let storage = Storage::open(self.env.clone(), engine, Arc::new(log), options)
            .map_err(|error: StorageError| anyhow!(error))
            .context("opening what the files hold")?;
        Ok(Opened { storage, _copy })
    }
}

/// A directory for RocksDB to open and change, without a change of the one it stands for.
struct Copy(PathBuf);

impl Copy {
    fn make(of: &Path) -> Result<Self> {
        let of = fs::canonicalize(of).with_context(|| format!("looking at {}", of.display()))?;
        let own = (0u64..)
            .map(|number| std::env::temp_dir().join(format!("tenon-inspect-{}-{number}", std::process::id())))
            .find(|path| fs::create_dir(path).is_ok() || !std::env::temp_dir().is_dir());
        let copy = Self(own.ok_or_else(|| anyhow!("there is no directory for temporary files"))?);
        for entry in fs::read_dir(&of).with_context(|| format!("listing {}", of.display()))? {
            let entry = entry?;
            let (from, to) = (entry.path(), copy.0.join(entry.file_name()));
            if !entry.file_type()?.is_file() {
                continue;
            }
            // Tables are written once.
            let done = match from.extension().is_some_and(|ending| ending == "sst") {
                true => std::os::unix::fs::symlink(&from, &to),
                false => fs::copy(&from, &to).map(drop),
            };
            done.with_context(|| format!("copying {}", from.display()))?;
        }
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // What stays behind is a folder of links among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
