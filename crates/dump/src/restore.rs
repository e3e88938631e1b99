//! Restoring: each collection is made, filled by batches in the order of the dump, and gets its indexes at the end.

use crate::archive::{ArchiveReader, Part};
use crate::client::Client;
use crate::directory::{Files, bson_file, compressed, is_compressed, metadata_beside, open_file, read_metadata, scan};
use crate::error::{Doing, DumpError, Result};
use crate::found::Found;
use crate::indexes::PendingIndexes;
use crate::left_out::LeftOut;
use crate::loading::Loading;
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::{Filter, Namespace, Rename};
use crate::oplog::OPLOG_FILE;
use crate::part_queue::{PartSender, part_queue};
use crate::replay::{Replay, ReplayOptions};
use crate::server::Server;
use crate::texts::Texts;
use crate::users_and_roles;
use bench::interrupt::Interrupt;
use bson::Document;
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use wire::InvalidText;

/// Databases of a server's own, which are restored by name only.
const OWN_DATABASES: [&str; 2] = ["local", "config"];
/// What mongodump puts beside one database's collections: the users and roles that belong to it.
const USERS_OF_DATABASE: &str = "$admin.system.";

/// What to restore, from where to where.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// The server.
    pub server: Server,
    /// Which collections of the dump, by their names in it.
    pub filter: Filter,
    /// The first that applies gives a collection another name.
    pub renames: Vec<Rename>,
    /// The folder or one file of documents, or with `archive` the file, and standard input without one.
    pub path: Option<PathBuf>,
    /// One stream instead of a folder.
    pub archive: bool,
    /// Files or the stream are compressed.
    pub gzip: bool,
    /// Removes collections that the dump has, too, before they are restored.
    pub drop: bool,
    /// Users and roles, too; with `drop` all that there are otherwise go.
    pub users_and_roles: bool,
    /// Replays the log that was dumped along, so that all collections are as at the dump's end.
    pub oplog: Option<ReplayOptions>,
    /// Makes no indexes but those on `_id`.
    pub no_indexes: bool,
    /// Makes collections without their options.
    pub no_options: bool,
    /// Ends at the first document, index or option that the server refuses.
    pub stop_on_error: bool,
    /// Takes documents that the collection's validator would not.
    pub bypass_validation: bool,
    /// What becomes of documents, and of operations of a log, with text that is not UTF-8. Without a choice the
    /// restoration ends at the first.
    pub invalid_text: Option<InvalidText>,
    /// Of every write: what fewer members have may be taken back.
    pub write_concern: Document,
    /// So many collections at once, at least one.
    pub parallel: usize,
    /// Ends it early, with an error.
    pub interrupt: Interrupt,
    /// Counts bytes of documents.
    pub progress: ProgressBar,
}

/// What was restored.
#[derive(Debug, Default)]
pub struct Restored {
    /// Collections and views.
    pub collections: u64,
    /// Documents that the server took.
    pub documents: u64,
    /// Documents that it refused, most often because they were there already.
    pub failed: u64,
    /// Documents, measurements, and operations of the log, that were left out for their text.
    pub skipped: u64,
    /// Documents, measurements, and operations of the log, whose text was replaced.
    pub replaced: u64,
    /// Where, for the first of each collection.
    pub replacements: Vec<String>,
    /// Why documents failed, for the first of each collection, and what else the server refused.
    pub failures: Vec<String>,
    /// Operations of the log that were applied.
    pub operations: u64,
    /// The text that is not UTF-8 at which it ended. What had been restored by then has its indexes.
    pub stopped: Option<DumpError>,
    /// Indexes that wait for the log.
    pub(crate) indexes: PendingIndexes,
    /// What the log's changes do not fit.
    pub(crate) left_out: LeftOut,
    /// The temporary collections that users and roles were put into.
    pub(crate) temporaries: Vec<Namespace>,
}

impl Restored {
    fn is_nothing(&self) -> bool {
        self.collections == 0 && self.failures.is_empty() && self.stopped.is_none()
    }

    fn add(&mut self, other: Self) {
        self.collections += other.collections;
        self.documents += other.documents;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.replaced += other.replaced;
        self.replacements.extend(other.replacements);
        self.failures.extend(other.failures);
        self.operations += other.operations;
        self.stopped = self.stopped.take().or(other.stopped);
        self.indexes.append(other.indexes);
        self.left_out.append(other.left_out);
        self.temporaries.extend(other.temporaries);
    }
}

impl RestoreOptions {
    /// A connection for what is restored, whose indexes may take hours.
    pub fn client(&self, interrupt: &Interrupt) -> Result<Client> {
        let mut client = Client::open_patient(&self.server, interrupt)?;
        client.set_write_concern(&self.write_concern);
        Ok(client)
    }

    /// Where a collection goes.
    pub(crate) fn target(&self, source: &Namespace) -> Result<Namespace> {
        for rename in &self.renames {
            if let Some(target) = rename.apply(source)? {
                return Ok(target);
            }
        }
        Ok(source.clone())
    }

    /// That all collections have somewhere to go, before anything is written.
    fn check_targets<'n>(&self, mut found: impl Iterator<Item = &'n Namespace>) -> Result<()> {
        found.try_for_each(|source| match is_wanted(self, source) {
            true => self.target(source).map(drop),
            false => Ok(()),
        })
    }
}

/// Restores. After an error what has been restored so far is left there.
pub fn restore(options: &RestoreOptions) -> Result<Restored> {
    if options.oplog.is_some() {
        let selects = options.filter.database.is_some() || !options.filter.include.is_empty();
        if selects || options.filter.collection.is_some() || !options.renames.is_empty() {
            return Err(DumpError::Choice(
                "--oplogReplay goes with --nsExclude, but with no other choice of collections and no other names"
                    .to_owned(),
            ));
        }
    }
    let mut has_temporaries = false;
    let restored = match options.archive {
        true => restore_archive(options, &mut has_temporaries),
        false => restore_folder(options, &mut has_temporaries),
    };
    let selects = options.filter.database.is_some() || !options.filter.include.is_empty();
    if selects && matches!(&restored, Ok(restored) if restored.is_nothing()) {
        return Err(DumpError::Choice(
            "nothing of the dump is what was asked for".to_owned(),
        ));
    }
    if !has_temporaries {
        return restored;
    }
    let client = options.client(&Interrupt::new());
    let mut restored = match restored {
        Ok(restored) => restored,
        Err(error) => {
            // Hashes of passwords are not left behind, whatever it was that failed.
            if let Ok(mut client) = client {
                users_and_roles::drop_temporaries(&mut client);
            }
            return Err(error);
        }
    };
    if restored.stopped.is_some() {
        if !restored.temporaries.is_empty() {
            let failure = "users and roles are not restored: the restoration ended early".to_owned();
            restored.failures.push(failure);
        }
        // That it ended early, and why, is to be told even where the server has gone.
        if let Ok(mut client) = client {
            users_and_roles::drop_temporaries(&mut client);
        }
    } else if !restored.temporaries.is_empty() {
        let mut client = client?;
        let failures = users_and_roles::take_over(&mut client, &restored.temporaries, options.drop);
        restored.failures.extend(failures);
    }
    Ok(restored)
}

/// `has_temporaries` tells, after a failure too, that temporary collections of users and roles may have been made.
fn restore_folder(options: &RestoreOptions, has_temporaries: &mut bool) -> Result<Restored> {
    let root = options.path.clone().unwrap_or_else(|| PathBuf::from("dump"));
    let database = options.filter.database.as_deref();
    let found = if root.is_file() {
        let (Some(database), Some(collection)) = (database, options.filter.collection.as_deref()) else {
            return Err(DumpError::Choice("one file needs --db and --collection".to_owned()));
        };
        let files = Files {
            metadata: metadata_beside(&root).filter(|path| path.is_file()),
            documents: Some(root.clone()),
        };
        vec![(Namespace::new(database, collection), files)]
    } else {
        scan(&root, database, options.gzip)?
    };
    let log = options
        .oplog
        .as_ref()
        .map(|replay| oplog_file(options, replay, &root))
        .transpose()?;
    if found.is_empty() && log.is_none() {
        return Err(DumpError::Format {
            subject: root.display().to_string(),
            fault: nothing_found(&root, database, options.gzip),
        });
    }
    options.check_targets(found.iter().map(|(namespace, _)| namespace))?;
    *has_temporaries = options.users_and_roles && found.iter().any(|(of, _)| users_and_roles::temporary(of).is_some());
    let restored = restore_files(options, &found)?;
    match log {
        None => Ok(restored),
        Some(_) if restored.stopped.is_some() => make_indexes(options, restored),
        Some((path, is_gzip)) => {
            let subject = path.display().to_string();
            replay(options, restored, &subject, &mut |replay| {
                let mut input = open_file(Some(&path), is_gzip, &options.interrupt)?;
                bson_file(&mut *input, &subject, &mut |entry| {
                    options.progress.inc(entry.as_bytes().len() as u64);
                    replay.found(&entry)
                })
            })
        }
    }
}

/// What is wrong with a folder in which nothing was found: often it has the other form of files.
fn nothing_found(root: &Path, database: Option<&str>, gzip: bool) -> String {
    let has_others = scan(root, database, !gzip).is_ok_and(|found| !found.is_empty());
    match (gzip, has_others) {
        (false, true) => "its files are compressed: give --gzip".to_owned(),
        (true, true) => "its files are not compressed: leave --gzip out".to_owned(),
        (true, false) => "no files of a dump with --gzip".to_owned(),
        (false, false) => "no files of a dump".to_owned(),
    }
}

/// The file of the log, and whether it is compressed.
fn oplog_file(options: &RestoreOptions, replay: &ReplayOptions, root: &Path) -> Result<(PathBuf, bool)> {
    if let Some(file) = &replay.file {
        // A pipe cannot be looked into beforehand.
        let is_gzip = match file.is_file() {
            true => is_compressed(file)?,
            false => options.gzip,
        };
        return Ok((file.clone(), is_gzip));
    }
    let plain = root.join(OPLOG_FILE);
    let compressed = compressed(&plain);
    match (compressed.is_file(), plain.is_file()) {
        (true, true) => Err(DumpError::Format {
            subject: root.display().to_string(),
            fault: format!("both {OPLOG_FILE} and {OPLOG_FILE}.gz are there: only one can be of this dump"),
        }),
        (true, false) => Ok((compressed, true)),
        // Compressed or not, mongodump's has this name.
        (false, true) => Ok((plain.clone(), is_compressed(&plain)?)),
        (false, false) => Err(DumpError::Format {
            subject: root.display().to_string(),
            fault: format!("no {OPLOG_FILE} in the dump: it was made without --oplog"),
        }),
    }
}

/// Replays a log over what has been restored, and makes the indexes: these, too, where the server refuses a part of the
/// log.
fn replay(
    options: &RestoreOptions,
    mut restored: Restored,
    subject: &str,
    read: &mut dyn FnMut(&mut Replay<'_>) -> Result<()>,
) -> Result<Restored> {
    let mut client = options.client(&options.interrupt)?;
    let until = options.oplog.as_ref().and_then(|replay| replay.until);
    let mut indexes = std::mem::take(&mut restored.indexes);
    let stops = options.stop_on_error;
    let texts = Texts::new(options.invalid_text);
    let mut replay = Replay::new(&mut client, &options.filter, until, &mut indexes, subject, texts, stops);
    replay.left_out = std::mem::take(&mut restored.left_out);
    let read = match read(&mut replay) {
        // What is in front of it is applied.
        Err(error) if error.is_invalid_text() => {
            restored.stopped = Some(error);
            Ok(())
        }
        read => read,
    };
    let goes_on = |error: &DumpError| error.is_of_what_was_asked() && !stops;
    // Before what was counted is told: their text is. Where the server refuses a part of the log, what was read of it
    // by then has changed them, too.
    let read = match read {
        Err(error) if !goes_on(&error) => Err(error),
        read => match replay.restore_held() {
            Err(error) if !goes_on(&error) => Err(error),
            held => read.and(held),
        },
    };
    let (left_out, replaced) = replay.texts.told("the log");
    restored.skipped += replay.texts.counts().left_out;
    restored.replaced += replay.texts.counts().replaced;
    restored.failures.extend(left_out);
    restored.replacements.extend(replaced);
    match read.and_then(|()| replay.finish()) {
        Ok((operations, failures)) => {
            restored.operations = operations;
            restored.failures.extend(failures);
        }
        // Without its indexes what is there would be worth less still.
        Err(error) if goes_on(&error) => {
            let failure = format!("the log is replayed in part only, up to what the server refuses: {error}");
            restored.failures.push(failure);
        }
        Err(error) => return Err(error),
    }
    restored.indexes = indexes;
    drop(client);
    make_indexes(options, restored)
}

/// Makes the indexes that waited for the log.
fn make_indexes(options: &RestoreOptions, mut restored: Restored) -> Result<Restored> {
    let indexes = std::mem::take(&mut restored.indexes);
    if !options.no_indexes {
        let mut client = options.client(&options.interrupt)?;
        let failures = indexes.create(&mut client, options.stop_on_error)?;
        restored.failures.extend(failures);
    }
    Ok(restored)
}

fn restore_files(options: &RestoreOptions, found: &[(Namespace, Files)]) -> Result<Restored> {
    let next = AtomicUsize::new(0);
    let bytes: u64 = found
        .iter()
        .filter_map(|(_, files)| files.documents.as_ref()?.metadata().ok())
        .map(|metadata| metadata.len())
        .sum();
    // How long compressed documents are is not known before they are read.
    if !options.gzip {
        options.progress.set_length(bytes);
    }
    let work = || -> Result<Restored> {
        let mut client = options.client(&options.interrupt)?;
        let mut restored = Restored::default();
        while let Some((namespace, files)) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
            match restore_one(&mut client, options, namespace, files) {
                Ok(one) => {
                    if one.stopped.is_some() {
                        next.store(found.len(), Ordering::Relaxed);
                    }
                    restored.add(one);
                }
                Err(error) => {
                    next.store(found.len(), Ordering::Relaxed);
                    return Err(error.of(namespace));
                }
            }
        }
        Ok(restored)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.parallel.clamp(1, found.len().max(1)))
            .map(|_| scope.spawn(work))
            .collect();
        collect(threads)
    })
}

fn collect(threads: Vec<std::thread::ScopedJoinHandle<'_, Result<Restored>>>) -> Result<Restored> {
    let results: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().expect("the threads of a restoration do not panic"))
        .collect();
    let mut total = Restored::default();
    for result in results {
        total.add(result?);
    }
    Ok(total)
}

fn restore_one(
    client: &mut Client,
    options: &RestoreOptions,
    namespace: &Namespace,
    files: &Files,
) -> Result<Restored> {
    let metadata = match &files.metadata {
        Some(path) => Metadata::from_json(&read_metadata(path, options.gzip)?, &path.display().to_string())?,
        None => Metadata::from_json("{}", "")?,
    };
    if !is_wanted(options, namespace) {
        return match (&files.documents, namespace.of_measurements()) {
            (Some(path), Some(measurements)) if options.filter.takes(&measurements) && has_bytes(path)? => {
                Err(DumpError::Format {
                    subject: path.display().to_string(),
                    fault: format!("what tells of the time series {measurements} is not in the dump"),
                })
            }
            _ => Ok(Restored::default()),
        };
    }
    let mut loading = Loading::new(options, namespace, metadata)?;
    let Some(path) = &files.documents else {
        return loading.finish(client);
    };
    let mut input = open_file(Some(path), options.gzip, &options.interrupt)?;
    let read = bson_file(&mut *input, &path.display().to_string(), &mut |document| {
        loading.add_found(client, &document)
    });
    match read {
        Err(error) if error.is_invalid_text() => stop(client, loading, error.of(namespace)),
        read => read.and_then(|()| loading.finish(client)),
    }
}

/// The end at text that is not UTF-8: what has been restored gets its indexes.
fn stop(client: &mut Client, loading: Loading<'_>, error: DumpError) -> Result<Restored> {
    let restored = match loading.has_begun() {
        true => loading.finish(client)?,
        false => Restored::default(),
    };
    Ok(Restored {
        stopped: Some(error),
        ..restored
    })
}

fn has_bytes(path: &Path) -> Result<bool> {
    let metadata = path.metadata().doing(|| format!("looking at {}", path.display()))?;
    Ok(metadata.len() > 0)
}

fn is_wanted(options: &RestoreOptions, namespace: &Namespace) -> bool {
    let is_of_users = options.users_and_roles && users_and_roles::temporary(namespace).is_some();
    let is_own = namespace.collection.starts_with("system.") && namespace.collection != "system.js" && !is_of_users
        || namespace.collection.starts_with(USERS_OF_DATABASE)
        || OWN_DATABASES.contains(&namespace.database.as_str())
            && options.filter.database.as_ref() != Some(&namespace.database)
        || *namespace == Namespace::oplog();
    !is_own && options.filter.takes(namespace)
}

fn restore_archive(options: &RestoreOptions, has_temporaries: &mut bool) -> Result<Restored> {
    let input = open_file(options.path.as_deref(), options.gzip, &options.interrupt)?;
    let mut reader = ArchiveReader::begin(input)?;
    let mut announced = HashMap::new();
    for entry in reader.collections() {
        if is_wanted(options, &entry.namespace) {
            let metadata = Metadata::from_json(&entry.metadata, &format!("metadata of {}", entry.namespace))?;
            options
                .progress
                .inc_length(u64::try_from(entry.size_bytes).unwrap_or(0));
            announced.insert(entry.namespace.clone(), metadata);
        }
    }
    if options.oplog.as_ref().is_some_and(|replay| replay.file.is_some()) {
        return Err(DumpError::Choice("--oplogFile: an archive has its own".to_owned()));
    }
    options.check_targets(announced.keys())?;
    *has_temporaries = options.users_and_roles && announced.keys().any(|of| users_and_roles::temporary(of).is_some());
    let parallel = options.parallel.max(1);
    let announced = &announced;
    let ending = &Ending::default();
    let (first, restored) = std::thread::scope(|scope| {
        let (mut queues, threads): (Vec<_>, Vec<_>) = (0..parallel)
            .map(|_| {
                let (sender, receiver) = part_queue();
                (
                    sender,
                    scope.spawn(move || load_parts_or_end(options, announced, receiver, ending)),
                )
            })
            .unzip();
        let routed = route(options, &mut reader, announced, &mut queues, ending);
        // In front of a fault of the archive, too. Threads that have ended say why themselves.
        for mut queue in queues {
            queue.hand_over();
        }
        let restored = collect(threads);
        // When a thread has ended by an error, its queue is closed and routing has ended without one.
        routed.and_then(|first| Ok((first, restored?)))
    })?;
    if options.oplog.is_none() {
        return Ok(restored);
    }
    if restored.stopped.is_some() {
        return make_indexes(options, restored);
    }
    let Some(first) = first else {
        return Err(DumpError::Format {
            subject: "archive".to_owned(),
            fault: "it has no log of operations: it was made without --oplog".to_owned(),
        });
    };
    replay(options, restored, "archive", &mut |replay| {
        replay.found(&first)?;
        while let Some(part) = reader.next_part()? {
            match part {
                Part::Document(namespace, entry) if namespace == Namespace::oplog() => replay.found(&entry)?,
                Part::End(_) => {}
                Part::Document(namespace, _) => {
                    return Err(DumpError::Format {
                        subject: "archive".to_owned(),
                        fault: format!("documents of {namespace} behind the log of operations"),
                    });
                }
            }
        }
        Ok(())
    })
}

/// That the restoration of an archive ends early.
#[derive(Debug, Default)]
struct Ending {
    /// Nothing more is read.
    has_ended: AtomicBool,
    /// What is there gets its indexes.
    is_for_text: AtomicBool,
}

/// Gives each namespace's parts to one thread, the next free one in turn; answers the first entry of a log that is to
/// be replayed, in front of which it ends.
fn route(
    options: &RestoreOptions,
    reader: &mut ArchiveReader<Box<dyn Read>>,
    announced: &HashMap<Namespace, Metadata>,
    queues: &mut [PartSender],
    ending: &Ending,
) -> Result<Option<Found>> {
    let mut first_of_log = None;
    let mut assigned: HashMap<Namespace, usize> = HashMap::new();
    while let Some(mut part) = reader.next_part()? {
        let (Part::Document(namespace, _) | Part::End(namespace)) = &mut part;
        // Buckets come under the name of their own collection.
        if let Some(measurements) = namespace.of_measurements()
            && let Some(metadata) = announced.get(&measurements)
            && metadata.kind == CollectionKind::TimeSeries
        {
            *namespace = measurements;
        }
        let (Part::Document(namespace, _) | Part::End(namespace)) = &part;
        if !is_wanted(options, namespace) {
            if let (Part::Document(_, entry), true) =
                (&part, options.oplog.is_some() && *namespace == Namespace::oplog())
            {
                first_of_log = Some(entry.clone());
                break;
            }
            continue;
        }
        let thread = match assigned.get(namespace) {
            Some(thread) => *thread,
            None => {
                let thread = assigned.len() % queues.len();
                assigned.insert(namespace.clone(), thread);
                thread
            }
        };
        if ending.has_ended.load(Ordering::Acquire) || !queues[thread].send(part) {
            return Ok(None);
        }
    }
    let mut silent: Vec<_> = announced
        .keys()
        .filter(|namespace| !assigned.contains_key(*namespace))
        .collect();
    silent.sort();
    // Views are announced only.
    for namespace in silent {
        let end = Part::End(namespace.clone());
        if ending.has_ended.load(Ordering::Acquire) || !queues[0].send(end) {
            return Ok(None);
        }
    }
    Ok(first_of_log)
}

/// One thread's work. After an error nothing more is read for the others.
fn load_parts_or_end(
    options: &RestoreOptions,
    announced: &HashMap<Namespace, Metadata>,
    parts: Receiver<Vec<Part>>,
    ending: &Ending,
) -> Result<Restored> {
    let restored = load_parts(options, announced, parts, ending);
    if restored.is_err() {
        ending.has_ended.store(true, Ordering::Release);
    }
    restored
}

fn load_parts(
    options: &RestoreOptions,
    announced: &HashMap<Namespace, Metadata>,
    parts: Receiver<Vec<Part>>,
    ending: &Ending,
) -> Result<Restored> {
    let mut client = options.client(&options.interrupt)?;
    let mut open: HashMap<Namespace, Loading<'_>> = HashMap::new();
    let mut restored = Restored::default();
    let mut stopped = None;
    // Takes the queue: it is closed behind the loop, so that nobody waits for it while indexes are made.
    for part in parts.into_iter().flatten() {
        let (Part::Document(namespace, _) | Part::End(namespace)) = &part;
        let mut loading = match open.remove(namespace) {
            Some(loading) => loading,
            None => {
                let metadata = match announced.get(namespace) {
                    Some(metadata) => metadata.clone(),
                    None => Metadata::from_json("{}", "")?,
                };
                Loading::new(options, namespace, metadata).map_err(|error| error.of(namespace))?
            }
        };
        match &part {
            Part::Document(_, document) => match loading.add_found(&mut client, document) {
                Err(error) if error.is_invalid_text() => {
                    stopped = Some((loading, error.of(namespace)));
                    ending.is_for_text.store(true, Ordering::Release);
                    ending.has_ended.store(true, Ordering::Release);
                    break;
                }
                added => {
                    added.map_err(|error| error.of(namespace))?;
                    open.insert(namespace.clone(), loading);
                }
            },
            Part::End(_) => restored.add(loading.finish(&mut client).map_err(|error| error.of(namespace))?),
        }
    }
    if let Some((loading, error)) = stopped {
        restored.add(stop(&mut client, loading, error)?);
    }
    // An archive that is truncated, and any other error, end without them.
    if !ending.is_for_text.load(Ordering::Acquire) {
        return Ok(restored);
    }
    for (namespace, loading) in open {
        if loading.has_begun() {
            restored.add(loading.finish(&mut client).map_err(|error| error.of(&namespace))?);
            let failure = format!("{namespace}: restored in part: the restoration ended");
            restored.failures.push(failure);
        }
    }
    Ok(restored)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_dump_of_the_other_form_is_told_from_none() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path();
        assert_eq!(nothing_found(path, None, false), "no files of a dump");
        std::fs::create_dir(path.join("shop")).unwrap();
        std::fs::write(path.join("shop/orders.bson.gz"), "").unwrap();
        assert_eq!(
            nothing_found(path, None, false),
            "its files are compressed: give --gzip"
        );
        assert_eq!(
            nothing_found(&path.join("shop"), Some("shop"), false),
            "its files are compressed: give --gzip"
        );
        std::fs::rename(path.join("shop/orders.bson.gz"), path.join("shop/orders.bson")).unwrap();
        assert!(nothing_found(path, None, true).contains("not compressed"));
    }
}
