//! `tenond --repair`: makes a data directory whose files are damaged one that opens, with all that can be read.
//!
//! 1. Open the engine and have it verify everything.
//! 2. When it cannot, or finds damage, salvage its files; the old ones stay aside.
//! 3. Replay the log. One of which a part cannot be read is replayed up to there and put aside; so is one that does not
//!    fit what was salvaged, or whose end is missing.
//! 4. Validate every collection, and write those that are not consistent anew: documents, then indexes. Documents
//!    refused because another one has their `_id` go to a collection of their own.
//!
//! It tells what it does on standard output, and never removes a damaged file.

use crate::config::Config;
use crate::data_directory::{DataDirectory, Metadata};
use crate::encryption;
use crate::engines::{self, Registry};
use crate::reasons::reasons;
use crate::run;
use anyhow::{Context, Result, anyhow, bail};
use bson::RawDocument;
use engine::{CloseMode, EngineError, ErrorKind, Maintenance, Seq};
use engine_btree::SalvageReport;
use oplog::{EngineAhead, Log, LogError, LogMode, LogOptions, SegmentPart, segment_files, walk_segment};
use std::cell::Cell;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use storage::{
    Collection, Direction, FillLimits, IndexSpec, LockMode, Namespace, Operation, RecordBatch, Storage, StorageError,
};
use vfs::{Env, FileSystem, RealFs, SystemClock, SystemRandom};

/// Suffix of a collection that is being written anew.
const UNFINISHED: &str = ".tenon.repair";
/// Suffix of a collection of documents whose `_id` another one has.
const DUPLICATES: &str = ".tenon.duplicates";
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
    let master = encryption::master_key(config, registry, name).map_err(|reason| anyhow!(reason))?;
    let directory = DataDirectory::open(&*env.fs, &config.storage.db_path, &wanted, master.as_ref())?;
    let env = &directory.env(env);
    let path = directory.engine(name);
    let salvaged = match damage((config, registry), env, name, &path)? {
        None => {
            println!("the files of the storage engine {name} are whole");
            None
        }
        Some(damage) => {
            println!("the files of the storage engine {name} are damaged: {damage}");
            let report = engines::salvage(name, env, &path, &config.storage)
                .ok_or_else(|| anyhow!("the storage engine {name} has no salvage: restore a backup"))?
                .context("salvage")?;
            println!("{report}");
            Some(report)
        }
    };
    let storage = open_storage((config, registry), env, name, &directory, salvaged.as_ref())?;
    let result = repair_collections(env, &storage);
    storage.close(result.is_ok())?;
    result?;
    directory.close()?;
    match salvaged.is_some_and(|report| report.is_damaged()) {
        true => println!("repair is done: the directory can be served, without what is named above as lost"),
        false => println!("repair is done"),
    }
    Ok(())
}

/// What is wrong with the engine's files; `None` when nothing is.
fn damage((config, registry): (&Config, &Registry), env: &Env, name: &str, path: &Path) -> Result<Option<String>> {
    let is_damage = |error: &EngineError| matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io);
    let engine = match registry.open(name, env, path, &config.storage) {
        Ok(engine) => engine,
        Err(error) if is_damage(&error) => return Ok(Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let verified = engine.maintain(&Maintenance::Verify(None));
    engine.close(CloseMode::Abandon)?;
    match verified {
        Ok(report) => Ok(match report.problems.len() {
            0 => None,
            1 => report.problems.into_iter().next(),
            more => Some(format!("{} ({} problems)", report.problems[0], more)),
        }),
        Err(EngineError::Unsupported { .. }) => Ok(None),
        Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Opens the storage, log included. After a salvage the log may not fit, and its end may be missing: then it is put
/// aside. Where a part of it that is needed cannot be read, what stands before that is replayed first.
fn open_storage(
    (config, registry): (&Config, &Registry),
    env: &Env,
    name: &str,
    directory: &DataDirectory,
    salvaged: Option<&SalvageReport>,
) -> Result<Arc<Storage>> {
    let instance = directory.known_instance(&*env.fs)?;
    let replayed_to = Cell::new(Seq::ZERO);
    // To take all that the log has is for one that is then put aside: a member of a set decides with others.
    let open = |takes_all: bool, change: &dyn Fn(&mut LogOptions)| -> Result<Arc<Storage>> {
        let engine = registry.open(name, env, &directory.engine(name), &config.storage)?;
        let (mut log, mut options) = run::parts_of(config, name, directory)?;
        change(&mut log);
        options.takes_all = takes_all;
        options.background = false;
        options.instance = instance;
        options.journal = log.mode == LogMode::On;
        replayed_to.set(engine.durable_seq());
        let log = Log::open(env, log, engine.durable_seq())?;
        replayed_to.set(log.last_seq());
        Ok(Storage::open(env.clone(), engine, Arc::new(log), options)?)
    };
    let as_it_is = |_: &mut LogOptions| {};
    match salvaged.filter(|report| report.is_damaged()) {
        None => match open(false, &as_it_is) {
            Err(error) => match log_error(&error) {
                Some(LogError::Behind { .. }) => println!("{error}"),
                Some(damage) if damage.can_be_cut() || matches!(damage, LogError::Older { .. }) => {
                    println!("the log cannot be read to its end: {error}");
                    let replayed = open(true, &|log| {
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
                    tell_readable(env, &directory.journal(), replayed_to.get())?;
                }
                _ => return Err(error),
            },
            opened => return opened,
        },
        Some(report) if report.mark_is_known => match open(false, &as_it_is) {
            Ok(storage) => return Ok(storage),
            Err(error) => println!("the log does not fit what was salvaged: {}", reasons(&error)),
        },
        Some(_) => println!("where in the log the salvaged state stands is not known"),
    }
    let aside = put_aside(&*env.fs, &directory.journal())?;
    println!(
        "the log was put aside: {}; writes that are only there are lost",
        aside.display()
    );
    let storage = open(true, &|log| log.engine_ahead = EngineAhead::BeginBehind)?;
    if storage.membership()?.is_some_and(|members| !members.decides_alone()) {
        println!(
            "this is a member of a replica set, and would vote without what it has lost: unless the other members are lost too, let it copy their data into an empty directory"
        );
    }
    Ok(storage)
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

/// Writes every collection anew that is not consistent.
fn repair_collections(env: &Env, storage: &Storage) -> Result<()> {
    let op = Operation::new(env.clock.clone(), 0);
    for db in storage.catalog().databases() {
        for collection in storage.catalog().collections(&db) {
            let ns = collection.namespace().clone();
            if ns.collection().ends_with(UNFINISHED) {
                // Of a repair that was cut short.
                storage.drop_collection(&op, &ns)?;
                continue;
            }
            let report = storage.validate(&op, &ns, false)?;
            if report.is_valid() {
                continue;
            }
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
            rewrite(storage, &op, &collection).with_context(|| format!("{ns}"))?;
            let report = storage.validate(&op, &ns, false)?;
            if !report.is_valid() {
                bail!("{ns} is still not consistent: {}", report.errors.join("; "));
            }
        }
    }
    Ok(())
}

/// Copies a collection's documents to a new one, builds its indexes, and puts it in the old one's place.
fn rewrite(storage: &Storage, op: &Operation, old: &Arc<Collection>) -> Result<()> {
    let ns = old.namespace().clone();
    let new = Namespace::new(ns.db(), &format!("{}{UNFINISHED}", ns.collection()))?;
    let duplicates = Namespace::new(ns.db(), &format!("{}{DUPLICATES}", ns.collection()))?;
    storage.drop_collection(op, &new)?;
    storage.create_collection(op, &new, old.options())?;
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
        let guard = existing(storage, op, &new)?;
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
        if !refused.is_empty() && storage.catalog().collection(&duplicates).is_none() {
            // Inside a document with an `_id` of its own, so that no index refuses them again.
            storage.create_collection(op, &duplicates, RawDocument::from_bytes(EMPTY)?)?;
        }
        for document in &refused {
            let guard = existing(storage, op, &duplicates)?;
            let mut unit = storage.begin_write(op);
            unit.insert(
                &guard,
                &bson::rawdoc! { "_id": bson::oid::ObjectId::new(), "document": document.clone() },
            )?;
            unit.commit()?;
        }
    }
    println!("{ns}: {kept} documents kept");
    if twice > 0 {
        println!(
            "{ns}: {twice} documents have the _id of another one: they are in {duplicates}, in the field 'document'"
        );
    }
    if unreadable > 0 {
        println!("{ns}: {unreadable} records are no documents and were left out");
    }
    let specs = old
        .indexes()
        .iter()
        .chain(old.building_indexes())
        .filter(|index| !index.is_id() && (index.ready() || old.index(index.name()).is_none()));
    let specs: Vec<IndexSpec> = specs.map(|index| index.parsed_spec().clone()).collect();
    for spec in specs {
        let name = spec.name.clone();
        match storage.create_indexes(op, &new, &[spec]) {
            Ok(_) => {}
            Err(StorageError::DuplicateKey(error)) => {
                println!("{ns}: the unique index {name} was dropped, since two documents have the same key: {error:?}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    storage.rename_collection(op, &new, &ns, true)?;
    Ok(())
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
