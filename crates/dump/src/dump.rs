//! Dumping: a list of what there is, then threads that take one collection each, with a connection of their own.

use crate::archive::{Announced, ArchiveWriter, Checksum};
use crate::client::Client;
use crate::directory::{Output, compressed, file_stem, remove};
use crate::error::{Doing, DumpError, Result};
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::{Filter, Namespace};
use crate::oplog::{OPLOG_FILE, OplogWindow};
use crate::server::Server;
use crate::users_and_roles;
use bench::interrupt::Interrupt;
use bson::raw::{CString, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use indicatif::ProgressBar;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Documents of a segment of an archive are gathered up to so many bytes.
const SEGMENT_BYTES: usize = 4 << 20;
/// What `listIndexes` says of a collection that was dropped after it was listed, and a cursor over one.
const NAMESPACE_NOT_FOUND: i32 = 26;
const QUERY_PLAN_KILLED: i32 = 175;
const UNAUTHORIZED: i32 = 13;
/// Collections of this prefix are a server's own, but for the functions of `system.js`.
const OWN_PREFIX: &str = "system.";

/// What to dump, from where to where.
#[derive(Clone, Debug)]
pub struct DumpOptions {
    /// The server.
    pub server: Server,
    /// Which collections.
    pub filter: Filter,
    /// Which documents of them.
    pub query: Option<RawDocumentBuf>,
    /// The folder, or with `archive` the file, and standard output without one.
    pub path: Option<PathBuf>,
    /// One stream instead of a folder.
    pub archive: bool,
    /// Compresses files or the stream.
    pub gzip: bool,
    /// Users and roles, too.
    pub users_and_roles: bool,
    /// With the server's log of what is written meanwhile, so that restoring can give one moment of all collections.
    pub oplog: bool,
    /// So many collections at once, at least one.
    pub parallel: usize,
    /// Ends it early, with an error.
    pub interrupt: Interrupt,
    /// Counts bytes of documents.
    pub progress: ProgressBar,
}

/// What was dumped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dumped {
    /// Collections and views.
    pub collections: u64,
    /// Documents of them.
    pub documents: u64,
    /// Bytes of the documents, before compression.
    pub bytes: u64,
    /// Entries of the log.
    pub operations: u64,
    /// Users or roles were wanted, and may not be read.
    pub lacks_users_and_roles: bool,
    /// Time series that were made or changed meanwhile, which the log tells and nobody replays.
    pub series_changed: BTreeSet<Namespace>,
    /// Everything is there, but a folder cannot be synced: after a power loss names of files may be missing.
    pub has_unsynced_folders: bool,
}

struct Job {
    namespace: Namespace,
    metadata: Metadata,
    query: Option<RawDocumentBuf>,
    size_bytes: u64,
}

impl Job {
    fn metadata_json(&self) -> Result<String> {
        self.metadata.to_json(&self.namespace.to_string())
    }
}

/// Dumps. The documents of one collection are as its cursor saw them; nothing but the log holds collections together
/// in time.
pub fn dump(options: &DumpOptions) -> Result<Dumped> {
    if options.oplog && !options.filter.takes_all() {
        return Err(DumpError::Choice(
            "--oplog goes with a dump of everything only".to_owned(),
        ));
    }
    let is_new = !root(options).exists();
    let mut client = Client::open_patient(&options.server, &options.interrupt)?;
    let window = options.oplog.then(|| OplogWindow::begin(&mut client)).transpose()?;
    let mut lacks_users_and_roles = false;
    let jobs = jobs(&mut client, options, &mut lacks_users_and_roles)?;
    if !options.archive {
        // That of an earlier dump would be replayed over newer documents. Not before the server has told what it has:
        // without one the earlier dump is all that there is.
        let log = root(options).join(OPLOG_FILE);
        remove(&compressed(&log))?;
        remove(&log)?;
    }
    options.progress.set_length(jobs.iter().map(|job| job.size_bytes).sum());
    let archive = if options.archive {
        let mut announced = jobs
            .iter()
            .map(|job| {
                Ok(Announced {
                    namespace: job.namespace.clone(),
                    metadata: job.metadata_json()?,
                    size_bytes: i64::try_from(job.size_bytes).unwrap_or(i64::MAX),
                    kind: job.metadata.kind.name(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        announced.extend(options.oplog.then(|| Announced {
            namespace: Namespace::oplog(),
            metadata: String::new(),
            size_bytes: 0,
            kind: CollectionKind::Collection.name(),
        }));
        let output = Output::create(options.path.as_deref(), options.gzip, &options.interrupt)?;
        let version = client.version()?;
        Some(Mutex::new(ArchiveWriter::begin(
            output,
            options.parallel,
            &version,
            &announced,
        )?))
    } else {
        None
    };
    let next = AtomicUsize::new(0);
    let work = || -> Result<Dumped> {
        let mut client = Client::open_patient(&options.server, &options.interrupt)?;
        let mut dumped = Dumped::default();
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let done = dump_collection(&mut client, options, job, archive.as_ref(), &mut dumped);
            if let Err(error) = done {
                // The other threads stop after the collection that they are at.
                next.store(jobs.len(), Ordering::Relaxed);
                return Err(error.of(&job.namespace));
            }
        }
        Ok(dumped)
    };
    let results: Vec<Result<Dumped>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.parallel.clamp(1, jobs.len().max(1)))
            .map(|_| scope.spawn(work))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("the threads of a dump do not panic"))
            .collect()
    });
    let mut total = Dumped {
        lacks_users_and_roles,
        ..Dumped::default()
    };
    for result in results {
        let dumped = result?;
        total.collections += dumped.collections;
        total.documents += dumped.documents;
        total.bytes += dumped.bytes;
    }
    if let Some(window) = window {
        (total.operations, total.series_changed) = dump_oplog(&mut client, options, &window, archive.as_ref())?;
    }
    match archive {
        Some(archive) => {
            let output = archive.into_inner().finish();
            output.finish().doing(|| "writing the archive".to_owned())?;
        }
        None => {
            let databases = jobs.iter().map(|job| job.namespace.database.as_str());
            for folder in folders_to_sync(&root(options), is_new, databases) {
                let opened = File::open(&folder).and_then(|opened| opened.sync_all());
                let synced = is_synced(opened).doing(|| format!("syncing the folder {}", folder.display()))?;
                total.has_unsynced_folders |= !synced;
            }
        }
    }
    Ok(total)
}

/// The folders whose names of files are on the disk, too, when a dump says that it is done. Without a new name in it
/// the one around the dump is not this program's affair, and maybe not to be read.
fn folders_to_sync<'d>(root: &Path, is_new: bool, databases: impl Iterator<Item = &'d str>) -> BTreeSet<PathBuf> {
    let mut folders: BTreeSet<_> = databases.map(|database| root.join(database)).collect();
    if is_new && let Some(parent) = root.parent() {
        folders.insert(match parent.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => parent.to_owned(),
        });
    }
    folders.insert(root.to_owned());
    // A dump of nothing makes no folder.
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Whether a folder was synced. Some may be written to and not be read, and some file systems do not sync folders: all
/// that was dumped is there all the same.
fn is_synced(synced: io::Result<()>) -> io::Result<bool> {
    match synced {
        Ok(()) => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported => Ok(false),
            _ => Err(error),
        },
    }
}

/// What the server has of what is meant. A collection that was asked for by name must be there.
fn jobs(client: &mut Client, options: &DumpOptions, lacks_users_and_roles: &mut bool) -> Result<Vec<Job>> {
    let filter = &options.filter;
    let mut jobs = Vec::new();
    for database in client.databases(filter.database.as_deref())? {
        for entry in client.collections(&database)? {
            let namespace = Namespace::new(database.as_str(), entry.get_str("name").unwrap_or_default());
            let is_own = namespace.collection.starts_with(OWN_PREFIX) && namespace.collection != "system.js";
            let is_of_users = options.users_and_roles && users_and_roles::are_dumped_from(&namespace);
            if is_own && !is_of_users || !filter.takes(&namespace) {
                continue;
            }
            let mut metadata = Metadata::of_listed(&entry);
            let size_bytes = match metadata.kind {
                CollectionKind::View => 0,
                CollectionKind::Collection | CollectionKind::TimeSeries => {
                    metadata.indexes = match client.indexes(&namespace) {
                        Err(error) if error.is_refusal(NAMESPACE_NOT_FOUND) => continue,
                        Err(error) if is_of_users && error.is_refusal(UNAUTHORIZED) => {
                            *lacks_users_and_roles = true;
                            continue;
                        }
                        indexes => indexes.map_err(|error| error.of(&namespace))?,
                    };
                    client.size_bytes(&namespace.of_documents(metadata.kind))?
                }
            };
            let query = match (&options.query, metadata.kind) {
                (Some(query), CollectionKind::TimeSeries) => {
                    let series = metadata.options.get_document("timeseries").ok();
                    Some(of_buckets(
                        query,
                        series.and_then(|series| series.get_str("metaField").ok()),
                    )?)
                }
                (query, _) => query.clone(),
            };
            jobs.push(Job {
                namespace,
                metadata,
                query,
                size_bytes,
            });
        }
    }
    if !jobs
        .iter()
        .any(|job| users_and_roles::temporary(&job.namespace).is_some())
    {
        // Nobody needs to know how users are laid out where there are none.
        jobs.retain(|job| !users_and_roles::are_dumped_from(&job.namespace));
    }
    if let (true, Some(database), Some(collection)) = (jobs.is_empty(), &filter.database, &filter.collection) {
        return Err(DumpError::Choice(format!(
            "there is no collection {database}.{collection}"
        )));
    }
    // The largest first, so that no thread is left alone with it at the end.
    jobs.sort_by(|a, b| (b.size_bytes, &a.namespace).cmp(&(a.size_bytes, &b.namespace)));
    Ok(jobs)
}

/// A filter of measurements as one of their buckets, which are dumped: what is said of `meta` is true of all
/// measurements in a bucket. What is said of other fields would choose among buckets by fields that they do not have.
fn of_buckets(query: &RawDocument, meta_field: Option<&str>) -> Result<RawDocumentBuf> {
    let refused = |name: &str| {
        let can = meta_field.map_or_else(String::new, |field| format!(", but for its metaField {field}"));
        DumpError::Choice(format!("--query: {name}: a time series cannot be dumped in part{can}"))
    };
    let malformed = |error: bson::error::Error| DumpError::Choice(format!("--query: {error}"));
    let element_name = |name: &str| CString::try_from(name).map_err(malformed);
    let mut rewritten = RawDocumentBuf::new();
    for element in query {
        let (name, value) = element.map_err(malformed)?;
        let name = name.as_str();
        if let ("$and" | "$or" | "$nor", RawBsonRef::Array(parts)) = (name, value) {
            let mut all = RawArrayBuf::new();
            for part in parts {
                match part.map_err(malformed)? {
                    RawBsonRef::Document(part) => all.push(of_buckets(part, meta_field)?),
                    _ => return Err(refused(name)),
                }
            }
            rewritten.append(element_name(name)?, all);
            continue;
        }
        let below = meta_field.and_then(|field| name.strip_prefix(field));
        match below.filter(|below| below.is_empty() || below.starts_with('.')) {
            Some(below) => rewritten.append(element_name(&format!("meta{below}"))?, value.to_owned()),
            None => return Err(refused(name)),
        }
    }
    Ok(rewritten)
}

fn dump_collection(
    client: &mut Client,
    options: &DumpOptions,
    job: &Job,
    archive: Option<&Mutex<ArchiveWriter<Output>>>,
    dumped: &mut Dumped,
) -> Result<()> {
    dumped.collections += 1;
    let is_view = job.metadata.kind == CollectionKind::View;
    let documents = job.namespace.of_documents(job.metadata.kind);
    let mut find = |each: &mut dyn FnMut(&[u8]) -> Result<()>| {
        let found = client.find(&documents, job.query.as_deref(), &mut |document| {
            let bytes = document.as_bytes();
            dumped.documents += 1;
            dumped.bytes += bytes.len() as u64;
            options.progress.inc(bytes.len() as u64);
            each(bytes)
        });
        match found {
            // The log says that it went, and what came in its place.
            Err(error) if options.oplog && error.is_refusal(QUERY_PLAN_KILLED) => Ok(()),
            found => found,
        }
    };
    if let Some(archive) = archive {
        return match is_view {
            true => Ok(()),
            false => to_archive(archive, &documents, &mut find),
        };
    }
    let root = root(options);
    if !is_plain(&job.namespace.database) {
        let name = &job.namespace.database;
        return Err(DumpError::Choice(format!("{name:?} is no name of a database")));
    }
    let folder = root.join(&job.namespace.database);
    std::fs::create_dir_all(&folder).doing(|| format!("creating the folder {}", folder.display()))?;
    let stem = file_stem(&job.namespace.collection);
    if !is_view {
        let path = folder.join(format!("{}.bson", file_stem(&documents.collection)));
        let doing = || format!("writing {}", path.display());
        let mut output = Output::of_dump(&path, options.gzip, &options.interrupt)?;
        find(&mut |bytes| output.write_all(bytes).doing(doing))?;
        output.finish().doing(doing)?;
    }
    let path = folder.join(format!("{stem}.metadata.json"));
    let doing = || format!("writing {}", path.display());
    let mut output = Output::of_dump(&path, options.gzip, &options.interrupt)?;
    output.write_all(job.metadata_json()?.as_bytes()).doing(doing)?;
    output.finish().doing(doing)
}

/// Whether a folder of this name is where it should be: servers have no other databases, and nobody checks what a
/// server says.
fn is_plain(database: &str) -> bool {
    !database.is_empty() && !matches!(database, "." | "..") && !database.contains(['/', '\0'])
}

fn root(options: &DumpOptions) -> PathBuf {
    options.path.clone().unwrap_or_else(|| PathBuf::from("dump"))
}

/// Documents on their way: each is given to the function.
type Documents<'d> = dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + 'd;

fn to_archive(archive: &Mutex<ArchiveWriter<Output>>, namespace: &Namespace, find: &mut Documents<'_>) -> Result<()> {
    let mut checksum = Checksum::default();
    let mut segment = Vec::new();
    find(&mut |bytes| {
        segment.extend_from_slice(bytes);
        if segment.len() < SEGMENT_BYTES {
            return Ok(());
        }
        checksum.add(&segment);
        archive.lock().segment(namespace, &segment)?;
        segment.clear();
        Ok(())
    })?;
    checksum.add(&segment);
    let mut writer = archive.lock();
    if !segment.is_empty() {
        writer.segment(namespace, &segment)?;
    }
    writer.end(namespace, checksum.value())
}

/// The log, when all collections have been dumped; how many entries it has, and of which time series changes that are
/// not replayed.
fn dump_oplog(
    client: &mut Client,
    options: &DumpOptions,
    window: &OplogWindow,
    archive: Option<&Mutex<ArchiveWriter<Output>>>,
) -> Result<(u64, BTreeSet<Namespace>)> {
    let (mut entries, mut series) = (0, BTreeSet::new());
    let mut read = |each: &mut dyn FnMut(&[u8]) -> Result<()>| {
        series = window.end(client, &mut |entry| {
            entries += 1;
            each(entry)
        })?;
        Ok(())
    };
    match archive {
        Some(archive) => to_archive(archive, &Namespace::oplog(), &mut read)?,
        None => {
            let root = root(options);
            std::fs::create_dir_all(&root).doing(|| format!("creating the folder {}", root.display()))?;
            let path = root.join(OPLOG_FILE);
            let doing = || format!("writing {}", path.display());
            let mut output = Output::of_dump(&path, options.gzip, &options.interrupt)?;
            read(&mut |entry| output.write_all(entry).doing(doing))?;
            output.finish().doing(doing)?;
        }
    }
    Ok((entries, series))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bson::rawdoc;

    /// The filter went to the buckets as it was, which have none of the measurements' fields: too little was dumped.
    #[test]
    fn filters_of_measurements_become_those_of_buckets() {
        for (query, expected) in [
            (rawdoc! {}, rawdoc! {}),
            (rawdoc! { "sensor": 5 }, rawdoc! { "meta": 5 }),
            (
                rawdoc! { "sensor.a": { "$gt": 1 }, "sensor": null },
                rawdoc! { "meta.a": { "$gt": 1 }, "meta": null },
            ),
            (
                rawdoc! { "$or": [{ "sensor": 1 }, { "$and": [{ "sensor.b": 2 }] }] },
                rawdoc! { "$or": [{ "meta": 1 }, { "$and": [{ "meta.b": 2 }] }] },
            ),
        ] {
            assert_eq!(of_buckets(&query, Some("sensor")).unwrap(), expected);
        }
        for query in [
            rawdoc! { "v": { "$gt": 1 } },
            rawdoc! { "sensor": 1, "v": 1 },
            rawdoc! { "sensors": 1 },
            rawdoc! { "meta": 1 },
            rawdoc! { "$expr": true },
            rawdoc! { "$or": [{ "sensor": 1 }, { "v": 1 }] },
            rawdoc! { "$or": [1] },
        ] {
            assert!(of_buckets(&query, Some("sensor")).is_err(), "{query:?}");
        }
        assert!(of_buckets(&rawdoc! { "sensor": 5 }, None).is_err());
    }

    /// A dump that was whole failed where it may not read the folder around it.
    #[test]
    fn folders_that_cannot_be_synced_are_no_failure() {
        let around = tempfile::tempdir().unwrap();
        let root = around.path().join("dump");
        std::fs::create_dir_all(root.join("shop")).unwrap();
        let folders = |is_new| folders_to_sync(&root, is_new, ["shop", "empty"].into_iter());
        assert_eq!(folders(false), BTreeSet::from([root.clone(), root.join("shop")]));
        assert!(folders(true).contains(around.path()));
        let refused = |number| is_synced(Err(io::Error::from_raw_os_error(number)));
        for number in [errors::EACCES, errors::EINVAL, errors::EOPNOTSUPP] {
            assert!(!refused(number).unwrap());
        }
        assert!(refused(errors::EIO).is_err() && is_synced(Ok(())).unwrap());
    }

    /// Errors of Linux, by their numbers.
    mod errors {
        pub(super) const EIO: i32 = 5;
        pub(super) const EACCES: i32 = 13;
        pub(super) const EINVAL: i32 = 22;
        pub(super) const EOPNOTSUPP: i32 = 95;
    }

    #[test]
    fn no_folder_is_made_elsewhere() {
        for name in ["", ".", "..", "../x", "a/b", "/etc"] {
            assert!(!is_plain(name), "{name}");
        }
        assert!(["shop", "a b", "..x", "%2F"].into_iter().all(is_plain));
    }
}
