//! `tenond --repair`: makes a data directory whose files are damaged one that opens, with all that can be read.
//!
//! 1. Open the engine and have it verify everything.
//! 2. When it cannot, or finds damage, salvage its files; the old ones stay aside. Where that cannot tell from where on
//!    the log goes on, or the engine has no salvage, a log that begins with the first entry is worth more, unless a
//!    server without a log had the directory: all is made anew from it, or the old files come back where that fails.
//!    Where the files are gone altogether there is nothing else.
//! 3. Replay the log. One of which a part cannot be read is replayed up to there and put aside; so is one that does not
//!    fit what was salvaged, or whose end is missing.
//! 4. Validate every collection, and write those that are not consistent anew: documents, then indexes. Documents
//!    refused because another one has their `_id` go to a collection of their own. One that fails does not keep the
//!    others from being written.
//!
//! It tells what it does on standard output, and never removes a damaged file. Before it changes anything it leaves a
//! [`RepairMark`], with which no server starts; that of a set's member which has lost something stays.

use crate::config::Config;
use crate::data_directory::{DataDirectory, DataDirectoryError, Metadata, RepairMark};
use crate::encryption;
use crate::engines::{self, Registry};
use crate::reasons::reasons;
use crate::run;
use anyhow::{Context, Result, anyhow, bail};
use bson::RawDocument;
use engine::{CloseMode, EngineError, ErrorKind, Maintenance, Seq};
use engine_btree::{SalvageReport, SalvagedStore};
use oplog::{EngineAhead, Log, LogError, LogMode, LogOptions, SegmentPart, segment_files, segment_info, walk_segment};
use std::cell::Cell;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use storage::{
    Collection, Direction, FillLimits, IndexSpec, LockMode, Namespace, Operation, RecordBatch, Storage, StorageError,
};
use vfs::{Env, FileSystem, RealFs, SystemClock, SystemRandom};

/// Suffix of a collection of documents whose `_id` another one has.
const DUPLICATES: &str = ".tenon.duplicates";
/// Suffix of a collection that earlier versions were writing in another one's place.
const FORMER_REPAIR: &str = ".tenon.repair";
/// A unit of writing ends at so many bytes or documents.
const UNIT_BYTES: usize = 4 << 20;
const UNIT_DOCUMENTS: usize = 1000;
/// Lines of one sort that are printed.
const LINES_MAX: usize = 20;

/// Repairs, tells, and answers the exit code: 0 when the directory can be served, 1 otherwise.
pub fn run(config: &Config, engines: &Registry) -> ExitCode {
    let env = Env {
        fs: Arc::new(RealFs::new()),
        clock: Arc::new(SystemClock::new()),
        random: Arc::new(SystemRandom::new()),
    };
    match repair(config, &env, engines) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("repair failed: {}", reasons(&error));
            ExitCode::from(1)
        }
    }
}

fn repair(config: &Config, env: &Env, registry: &Registry) -> Result<()> {
    let name = run::engine_name(config, env, registry)?;
    let wanted = Metadata {
        engine: name.to_owned(),
        directory_per_db: config.storage.directory_per_db,
    };
    let master = encryption::master_key(config, registry, name)?;
    let directory = DataDirectory::open_to_repair(&*env.fs, &config.storage.db_path, &wanted, master.as_ref())?;
    let env = directory.env(env);
    let mark = directory.repair_mark_or_worst(&*env.fs)?;
    let mut repair = Repair {
        config,
        registry,
        env,
        name,
        // One that was cut short may have lost what nothing tells of any more.
        has_lost: mark.is_unfinished,
        mark,
        directory,
        replayed_to: Cell::new(Seq::ZERO),
        replaced: None,
    };
    let rebuilt = repair.salvage().and_then(|salvaged| repair.rebuild(salvaged.as_ref()));
    match rebuilt {
        Ok(failed) => repair.finish(failed),
        Err(error) => {
            let error = repair.take_back(error);
            // Written for data that could not be opened they may be wrong; with changes begun they are needed.
            if !repair.mark.is_unfinished {
                let _ = repair.directory.give_up_metadata(&*repair.env.fs);
                // That its end was an orderly one still counts.
                if !repair.directory.unclean {
                    let _ = repair.directory.close();
                }
            }
            Err(error)
        }
    }
}

/// Engine files that were put aside, to be made anew from the log.
struct Replaced {
    aside: PathBuf,
    /// How far they may have come.
    durable: Seq,
    /// The directory's mark before that.
    mark: RepairMark,
}

/// A repair under way.
struct Repair<'r> {
    config: &'r Config,
    registry: &'r Registry,
    env: Env,
    name: &'static str,
    directory: DataDirectory,
    /// As it is noted in the directory.
    mark: RepairMark,
    /// Something of what was acknowledged may be missing.
    has_lost: bool,
    /// How far the log was replayed that was opened last.
    replayed_to: Cell<Seq>,
    /// What comes back when the data cannot be made anew.
    replaced: Option<Replaced>,
}

impl Repair<'_> {
    /// Notes that from here on the directory is not to be served before the end.
    fn begin_changes(&mut self) -> Result<()> {
        self.mark.is_unfinished = true;
        Ok(self.directory.note_repair(&*self.env.fs, &self.mark)?)
    }

    /// Steps 3 and 4. Answers how many collections could not be repaired.
    fn rebuild(&mut self, salvaged: Option<&SalvageReport>) -> Result<u64> {
        let storage = self.open_storage(salvaged)?;
        if !self.config.storage.journal {
            self.directory.note_unlogged(&*self.env.fs)?;
        }
        self.directory.note_repairable(&*self.env.fs)?;
        self.collections(storage)
    }

    /// After data that could not be made anew, for want of space perhaps: gives the directory back as it was. Answers
    /// the error with what became of it.
    fn take_back(&mut self, error: anyhow::Error) -> anyhow::Error {
        let Some(replaced) = self.replaced.take() else {
            return error;
        };
        match self.put_back(replaced) {
            Ok(true) => error.context("the data cannot be made anew, and the damaged files are in their place again"),
            Ok(false) => error,
            Err(left) => error.context(format!("the damaged files cannot be put back: {}", reasons(&left))),
        }
    }

    fn put_back(&mut self, replaced: Replaced) -> Result<bool> {
        // Where a checkpoint has let go of the log's beginning, only the new files have what stood there.
        if self.has_lost || !self.log_has_all(replaced.durable)? {
            return Ok(false);
        }
        let (fs, path) = (self.env.fs.clone(), self.directory.engine(self.name));
        fs.remove_directory_all(&path)?;
        fs.rename(&replaced.aside, &path)?;
        fs.sync_directory(path.parent().unwrap_or(Path::new(".")))?;
        self.mark = replaced.mark;
        self.directory.note_repair(&*fs, &self.mark)?;
        Ok(true)
    }

    /// Steps 1 and 2.
    fn salvage(&mut self) -> Result<Option<SalvageReport>> {
        let (name, path) = (self.name, self.directory.engine(self.name));
        match run::check_engine_files(&self.directory, &*self.env.fs, name) {
            // Of which engine the files were nothing tells where the metadata are lost: it is to be named.
            Err(DataDirectoryError::EngineMissing { .. })
                if (self.config.storage.engine.is_some() || !self.directory.has_new_metadata())
                    && self.log_has_all(Seq::ZERO)? =>
            {
                println!("the files of the storage engine {name} are missing: all is made anew from the log");
                return Ok(None);
            }
            checked => checked?,
        }
        let Some(damage) = damage((self.config, self.registry), &self.env, name, &path)? else {
            println!("the files of the storage engine {name} are whole");
            return Ok(None);
        };
        println!("the files of the storage engine {name} are damaged: {}", damage.what);
        let salvaged = engines::salvage(name, &self.env, &path, &self.config.storage);
        let salvaged = salvaged.transpose().context("salvage")?;
        let is_placed = salvaged
            .as_ref()
            .is_some_and(|salvaged| salvaged.report().mark_is_known);
        // What a salvage has found tells of writes that a log may lack.
        let salvaged_to = salvaged
            .as_ref()
            .map_or(Seq::ZERO, |salvaged| salvaged.report().durable);
        let durable = damage.durable.max(salvaged_to);
        if !is_placed && self.log_has_all(durable)? {
            salvaged.map_or(Ok(()), SalvagedStore::discard)?;
            let mark = self.mark.clone();
            self.begin_changes()?;
            let aside = put_aside(&*self.env.fs, &path)?;
            println!(
                "they were put aside: {}; all is made anew from the log, which begins with the first entry. What an earlier version wrote with --nojournal is not in it",
                aside.display()
            );
            self.replaced = Some(Replaced { aside, durable, mark });
            return Ok(None);
        }
        let Some(salvaged) = salvaged else {
            bail!("the storage engine {name} has no salvage: restore a backup");
        };
        if salvaged.report().tables.is_empty() && !is_placed {
            salvaged.discard()?;
            bail!("nothing in them can be read, and nothing was changed: restore a backup");
        }
        self.begin_changes()?;
        let report = salvaged.put_in_place().context("salvage")?;
        println!("{report}");
        self.has_lost |= report.is_damaged();
        Ok(Some(report))
    }

    /// Whether the log has all that was ever written: from the first entry on, whole, as far as the engine had come,
    /// and nothing was written without one.
    fn log_has_all(&self, durable: Seq) -> Result<bool> {
        if self.directory.has_unlogged(&*self.env.fs)? {
            return Ok(false);
        }
        let (mut log, _) = run::parts_of(self.config, self.name, &self.directory)?;
        let kept_none = self.directory.unclean && !self.directory.needs_log;
        let segments = segment_files(&*self.env.fs, &self.directory.journal())?;
        let Some(first) = segments.first().filter(|_| log.mode == LogMode::On && !kept_none) else {
            return Ok(false);
        };
        let is_damage = |error: &LogError| error.kind() == ErrorKind::Corrupt;
        match segment_info(&*self.env.fs, first) {
            Ok(info) if info.first == Seq(1) => {}
            Ok(_) => return Ok(false),
            Err(error) if is_damage(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        // Nothing is written, and what is damaged is not passed over.
        log.mode = LogMode::Off;
        log.engine_ahead = EngineAhead::Refuse;
        match Log::open(&self.env, log, Seq::ZERO) {
            Ok(log) => Ok(log.last_seq() > Seq::ZERO && log.last_seq() >= durable),
            Err(error) if is_damage(&error) => {
                println!("the log begins with the first entry, but cannot be read to its end: {error}");
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The end: what is noted for later starts, and what is said.
    fn finish(mut self, failed: u64) -> Result<()> {
        if failed > 0 {
            self.directory.close()?;
            let left = match self.mark.is_unfinished {
                true => DataDirectoryError::Unrepaired(self.config.storage.db_path.clone()).to_string(),
                false => "Servers start on the directory all the same".to_owned(),
            };
            bail!("{failed} collections are not repaired, for the reasons above; all others were looked at. {left}");
        }
        self.mark.is_unfinished = false;
        self.mark.rewriting = None;
        self.directory.note_repair(&*self.env.fs, &self.mark)?;
        self.directory.close()?;
        match (self.mark.left_set, self.has_lost) {
            (true, _) => println!(
                "repair is done. {}",
                DataDirectoryError::LeftSet(self.config.storage.db_path.clone())
            ),
            (false, true) => {
                println!("repair is done: the directory can be served, without what is named above as lost");
            }
            (false, false) => println!("repair is done"),
        }
        Ok(())
    }
}

/// What is wrong with the engine's files.
struct EngineDamage {
    what: String,
    /// The engine's mark, where it opens.
    durable: Seq,
}

/// `None` when nothing is wrong with the engine's files.
fn damage(
    (config, registry): (&Config, &Registry),
    env: &Env,
    name: &str,
    path: &Path,
) -> Result<Option<EngineDamage>> {
    let is_damage = |error: &EngineError| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io);
    let engine = match registry.open(name, env, path, &config.storage) {
        Ok(engine) => engine,
        Err(error) if is_damage(&error) => {
            return Ok(Some(EngineDamage {
                what: error.to_string(),
                durable: Seq::ZERO,
            }));
        }
        Err(error) => return Err(error.into()),
    };
    let durable = engine.durable_seq();
    let verified = engine.maintain(&Maintenance::Verify(None));
    engine.close(CloseMode::Abandon)?;
    let what = match verified {
        Ok(report) => match report.problems.len() {
            0 => None,
            1 => report.problems.into_iter().next(),
            more => Some(format!("{} ({} problems)", report.problems[0], more)),
        },
        Err(EngineError::Unsupported { .. }) => None,
        Err(error) if is_damage(&error) => Some(error.to_string()),
        Err(error) => return Err(error.into()),
    };
    Ok(what.map(|what| EngineDamage { what, durable }))
}

impl Repair<'_> {
    /// Opens the storage with its log as `change` has it.
    ///
    /// With `takes_all` it decides by itself: a member of a set would wait for others, and may have lost nothing.
    fn open(&self, takes_all: bool, change: &dyn Fn(&mut LogOptions)) -> Result<Arc<Storage>> {
        let (config, directory) = (self.config, &self.directory);
        let engine = self
            .registry
            .open(self.name, &self.env, &directory.engine(self.name), &config.storage)?;
        let (mut log, mut options) = run::parts_of(config, self.name, directory)?;
        change(&mut log);
        options.takes_all = takes_all;
        options.background = false;
        options.instance = directory.known_instance(&*self.env.fs)?;
        options.journal = log.mode == LogMode::On;
        self.replayed_to.set(engine.durable_seq());
        let log = Log::open(&self.env, log, engine.durable_seq())?;
        self.replayed_to.set(log.last_seq());
        Ok(Storage::open(self.env.clone(), engine, Arc::new(log), options)?)
    }

    /// Step 3. After a salvage the log may not fit, and its end may be missing: then it is put aside. Where a part of
    /// it that is needed cannot be read, what stands before that is replayed first.
    fn open_storage(&mut self, salvaged: Option<&SalvageReport>) -> Result<Arc<Storage>> {
        let as_it_is = |_: &mut LogOptions| {};
        match salvaged.filter(|report| report.is_damaged()) {
            None => match self.open(self.has_lost, &as_it_is) {
                Err(error) => match log_error(&error) {
                    Some(LogError::Behind { .. }) => println!("{error}"),
                    // What is missing before the log went with a checkpoint, and the engine has none.
                    Some(LogError::Gap { durable: Seq::ZERO, .. }) => {
                        let missing = run::engine_missing(self.name, self.directory.engine(self.name));
                        return Err(error.context(missing));
                    }
                    Some(damage) if damage.can_be_cut() || matches!(damage, LogError::Older { .. }) => {
                        println!("the log cannot be read to its end: {error}");
                        self.begin_changes()?;
                        self.replay_readable()?;
                    }
                    _ => return Err(error),
                },
                opened => return opened,
            },
            Some(report) if report.mark_is_known => match self.open(true, &as_it_is) {
                Ok(storage) => return Ok(storage),
                Err(error) => println!("the log does not fit what was salvaged: {}", reasons(&error)),
            },
            Some(_) => println!("where in the log the salvaged state stands is not known"),
        }
        self.has_lost = true;
        self.begin_changes()?;
        let aside = put_aside(&*self.env.fs, &self.directory.journal())?;
        println!(
            "the log was put aside: {}; writes that are only there are lost",
            aside.display()
        );
        self.open(true, &|log| log.engine_ahead = EngineAhead::BeginBehind)
    }

    /// Replays a log up to its damage.
    fn replay_readable(&self) -> Result<()> {
        let replayed = self.open(true, &|log| {
            log.mode = LogMode::Off;
            log.ends_at_damage = true;
        });
        match replayed {
            Ok(storage) => storage.close(true).context("writing what the log has before that")?,
            Err(error) if log_error(&error).is_some_and(|error| error.kind() == ErrorKind::Corrupt) => {
                println!("nothing of it can be used: {}", reasons(&error));
            }
            // A full disk, say: it may go another time.
            Err(error) => return Err(error),
        }
        tell_readable(&self.env, &self.directory.journal(), self.replayed_to.get())
    }
}

fn log_error(error: &anyhow::Error) -> Option<&LogError> {
    match error.downcast_ref() {
        Some(StorageError::Log(error)) => Some(error),
        _ => error.downcast_ref(),
    }
}

/// Tells how many entries of the log behind `kept` can be read all the same.
fn tell_readable(env: &Env, journal: &Path, kept: Seq) -> Result<()> {
    let mut readable = 0u64;
    for path in segment_files(&*env.fs, journal)? {
        let walked = walk_segment(&*env.fs, &path, &mut |part| -> oplog::Result<()> {
            readable += u64::from(matches!(part, SegmentPart::Entry { seq, .. } if seq > kept));
            Ok(())
        });
        if let Err(error) = walked {
            println!("{error}");
        }
    }
    if readable > 0 {
        println!(
            "{readable} entries of the log stand behind what is damaged and are not applied: 'tenon log' shows them"
        );
    }
    Ok(())
}

/// Renames a directory and makes it anew, empty.
fn put_aside(fs: &dyn FileSystem, path: &Path) -> Result<PathBuf> {
    let mut number = 1u64;
    let aside = loop {
        let mut name = path.as_os_str().to_owned();
        name.push(".damaged");
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let name = PathBuf::from(name);
        if !fs.exists(&name)? {
            break name;
        }
        number += 1;
    };
    fs.rename(path, &aside)
        .with_context(|| format!("cannot rename {}", path.display()))?;
    fs.create_directory_all(path)?;
    fs.sync_directory(path.parent().unwrap_or(Path::new(".")))?;
    Ok(aside)
}

impl Repair<'_> {
    /// Step 4. Answers how many collections could not be repaired; the storage is closed.
    fn collections(&mut self, mut storage: Arc<Storage>) -> Result<u64> {
        let op = Operation::new(self.env.clock.clone(), 0);
        let (broken, mut failed) = inconsistent(&storage, &op);
        self.has_lost |= !broken.is_empty();
        let members = storage.membership()?;
        if self.has_lost {
            self.mark.left_set |= match &members {
                Some(members) => !members.decides_alone(),
                // A set that never had another member; or the configuration is lost, and may have named others.
                None => storage.set_configuration()?.is_none() && self.directory.is_members(&*self.env.fs)?,
            };
            self.begin_changes()?;
        }
        if !broken.is_empty() && members.is_some() {
            // It may have been opened as one that waits for others.
            storage.close(true)?;
            drop(storage);
            storage = self.open(true, &|_: &mut LogOptions| {})?;
        }
        let rewritten = self.rewrite_all(&storage, &op, &broken);
        storage.close(rewritten.is_ok())?;
        failed += rewritten?;
        Ok(failed)
    }

    /// Writes collections anew; answers how many of them could not be.
    fn rewrite_all(&mut self, storage: &Storage, op: &Operation, broken: &[Namespace]) -> Result<u64> {
        if let Some(cut_short) = self.mark.rewriting.as_deref() {
            storage.drop_collection(op, &Namespace::parse(cut_short)?)?;
        }
        let mut failed = 0;
        for ns in broken {
            if let Err(error) = self.rewrite(storage, op, ns) {
                println!("{ns} is not repaired: {}", reasons(&error));
                failed += 1;
            }
        }
        Ok(failed)
    }

    /// Copies a collection's documents to a new one, builds its indexes, and puts it in the old one's place.
    fn rewrite(&mut self, storage: &Storage, op: &Operation, ns: &Namespace) -> Result<()> {
        let Some(old) = storage.catalog().collection(ns) else {
            // What a repair before this one had begun to write, or what the end of the log drops.
            return Ok(());
        };
        let new = free_name(storage, ns, "tenon.repair")?;
        // What is found under this name by a later repair is this one's.
        self.mark.rewriting = Some(new.as_str().to_owned());
        self.begin_changes()?;
        let rewritten = fill(storage, op, &old, &new)
            .and_then(|()| build_indexes(storage, op, &old, &new))
            .and_then(|()| Ok(storage.rename_collection(op, &new, ns, true)?));
        if rewritten.is_err() {
            storage.drop_collection(op, &new)?;
        }
        rewritten?;
        let report = storage.validate(op, ns, false)?;
        if !report.is_valid() {
            bail!("it is still not consistent: {}", report.errors.join("; "));
        }
        Ok(())
    }
}

/// The collections that are not consistent, and how many cannot be looked at.
fn inconsistent(storage: &Storage, op: &Operation) -> (Vec<Namespace>, u64) {
    let (mut broken, mut failed) = (Vec::new(), 0);
    for db in storage.catalog().databases() {
        for collection in storage.catalog().collections(&db) {
            let ns = collection.namespace();
            if ns.collection().ends_with(FORMER_REPAIR) {
                println!("{ns} may be what a repair by an earlier version left that was cut short: if so, drop it");
            }
            match storage.validate(op, ns, false) {
                Ok(report) if report.is_valid() => {}
                Ok(report) => {
                    println!(
                        "{ns}: {} documents cannot be read, {} index entries are missing, {} lead to no document",
                        report.n_invalid_documents, report.missing_entries, report.extra_entries
                    );
                    for error in report.errors.iter().take(LINES_MAX) {
                        println!("  {error}");
                    }
                    if report.errors.len() > LINES_MAX {
                        println!("  and so on");
                    }
                    broken.push(ns.clone());
                }
                Err(error) => {
                    println!("{ns} cannot be looked at: {}", reasons(&error.into()));
                    failed += 1;
                }
            }
        }
    }
    (broken, failed)
}

fn is_taken(storage: &Storage, ns: &Namespace) -> bool {
    storage.catalog().collection(ns).is_some() || storage.catalog().view(ns).is_some()
}

/// A name in a collection's database that nothing has; of buckets one that is of buckets, too.
fn free_name(storage: &Storage, of: &Namespace, name: &str) -> Result<Namespace> {
    let prefix = match of.collection().starts_with(storage::BUCKETS_PREFIX) {
        true => storage::BUCKETS_PREFIX,
        false => "",
    };
    for number in 1u64.. {
        let free = Namespace::new(of.db(), &format!("{prefix}{name}.{number}"))?;
        if !is_taken(storage, &free) {
            return Ok(free);
        }
    }
    bail!("no name is free")
}

/// Where documents of a collection go whose `_id` another one has: beside it, as far as the name has room.
fn duplicates_of(storage: &Storage, op: &Operation, of: &Namespace) -> Result<Namespace> {
    let duplicates = match Namespace::new(of.db(), &format!("{}{DUPLICATES}", of.collection())) {
        Ok(beside) if storage.catalog().collection(&beside).is_some() => return Ok(beside),
        Ok(beside) if !is_taken(storage, &beside) => beside,
        Ok(_) | Err(_) => free_name(storage, of, "tenon.duplicates")?,
    };
    // Inside a document with an `_id` of its own, so that no index refuses them again.
    storage.create_collection(op, &duplicates, RawDocument::from_bytes(EMPTY)?)?;
    Ok(duplicates)
}

fn fill(storage: &Storage, op: &Operation, old: &Arc<Collection>, new: &Namespace) -> Result<()> {
    let ns = old.namespace();
    storage.create_collection(op, new, old.options())?;
    let mut duplicates: Option<Namespace> = None;
    let (mut kept, mut twice, mut unreadable) = (0u64, 0u64, 0u64);
    let view = storage.read()?;
    let mut cursor = view.records(old, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
    let mut batch = RecordBatch::new();
    let limits = FillLimits {
        rows_max: UNIT_DOCUMENTS,
        bytes_max: UNIT_BYTES,
    };
    while cursor.fill(&mut batch, limits)? {
        let mut refused = Vec::new();
        let guard = existing(storage, op, new)?;
        let mut unit = storage.begin_write(op);
        for index in 0..batch.len() {
            let Some(document) = checked(batch.document(index)) else {
                unreadable += 1;
                continue;
            };
            match unit.insert(&guard, document) {
                Ok(_) => kept += 1,
                Err(StorageError::DuplicateKey(_)) => refused.push(document.to_owned()),
                Err(error) => return Err(error.into()),
            }
        }
        unit.commit()?;
        drop(guard);
        twice += refused.len() as u64;
        for document in &refused {
            let place = match &duplicates {
                Some(place) => place,
                None => duplicates.insert(duplicates_of(storage, op, ns)?),
            };
            let guard = existing(storage, op, place)?;
            let mut unit = storage.begin_write(op);
            unit.insert(
                &guard,
                &bson::rawdoc! { "_id": bson::oid::ObjectId::new(), "document": document.clone() },
            )?;
            unit.commit()?;
        }
    }
    println!("{ns}: {kept} documents kept");
    if let Some(place) = duplicates {
        println!("{ns}: {twice} documents have the _id of another one: they are in {place}, in the field 'document'");
    }
    if unreadable > 0 {
        println!("{ns}: {unreadable} records are no documents and were left out");
    }
    Ok(())
}

/// Builds the indexes that a collection had. One that its documents do not go into is left out.
fn build_indexes(storage: &Storage, op: &Operation, old: &Collection, new: &Namespace) -> Result<()> {
    let ns = old.namespace();
    let specs = old
        .indexes()
        .iter()
        .chain(old.building_indexes())
        .filter(|index| !index.is_id() && (index.ready() || old.index(index.name()).is_none()));
    let specs: Vec<IndexSpec> = specs.map(|index| index.parsed_spec().clone()).collect();
    for spec in specs {
        let name = spec.name.clone();
        match storage.create_indexes(op, new, &[spec]) {
            Ok(_) => {}
            Err(StorageError::DuplicateKey(error)) => {
                println!("{ns}: the unique index {name} was dropped, since two documents have the same key: {error:?}");
            }
            Err(error) if is_of_documents(&error) => println!("{ns}: the index {name} was dropped: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether an index cannot be made of these documents, however often it is tried.
fn is_of_documents(error: &StorageError) -> bool {
    matches!(
        error,
        StorageError::CannotCreateIndex(_)
            | StorageError::CannotIndexParallelArrays(_)
            | StorageError::CannotIndex(..)
            | StorageError::CannotMakeKey(_)
            | StorageError::IndexBuildAborted(_)
            | StorageError::IndexOptionsConflict(_)
            | StorageError::IndexKeySpecsConflict(_)
            | StorageError::InvalidOptions(_)
    )
}

/// A document without any field.
const EMPTY: &[u8] = &[5, 0, 0, 0, 0];

/// A record's bytes as a document that can be stored.
fn checked(bytes: &[u8]) -> Option<&RawDocument> {
    wire::validate_document(bytes).ok()?;
    let document = RawDocument::from_bytes(bytes).ok()?;
    let first = document.iter().next()?.ok()?;
    (first.0.as_str() == "_id").then_some(document)
}

fn existing(storage: &Storage, op: &Operation, ns: &Namespace) -> Result<storage::CollectionGuard> {
    let guard = storage.collection(op, ns, LockMode::IntentExclusive)?;
    guard.ok_or_else(|| anyhow!("{ns} has gone"))
}
