//! Restoring: each collection is made, filled by batches in the order of the dump, and gets its indexes at the end.

use crate::archive::{ArchiveReader, Part};
use crate::client::Client;
use crate::directory::{Files, bson_file, open_file, read_metadata, scan};
use crate::error::{DumpError, Result};
use crate::metadata::{CollectionKind, Metadata};
use crate::namespace::{Filter, Namespace, Rename};
use crate::server::Server;
use bench::interrupt::Interrupt;
use bson::{Bson, Document, RawDocumentBuf, doc};
use indicatif::ProgressBar;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A batch is sent at so many bytes or documents; one document more always fits into a message.
const BATCH_BYTES: usize = 8 << 20;
const BATCH_DOCUMENTS: u64 = 1000;
/// Parts of an archive that wait for one thread.
const QUEUE_PARTS: usize = 64;
/// `create` of something that is there, and `drop` of something that is not.
const NAMESPACE_EXISTS: i32 = 48;
const NAMESPACE_NOT_FOUND: i32 = 26;

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
    /// Makes no indexes but those on `_id`.
    pub no_indexes: bool,
    /// Makes collections without their options.
    pub no_options: bool,
    /// Ends at the first document that the server refuses.
    pub stop_on_error: bool,
    /// So many collections at once, at least one.
    pub parallel: usize,
    /// Ends it early, with an error.
    pub interrupt: Interrupt,
    /// Counts bytes of documents.
    pub progress: ProgressBar,
}

/// What was restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Collections and views.
    pub collections: u64,
    /// Documents that the server took.
    pub documents: u64,
    /// Documents that it refused, most often because they were there already.
    pub failed: u64,
    /// Why, for the first of each collection.
    pub failures: Vec<String>,
}

impl Restored {
    fn add(&mut self, other: Self) {
        self.collections += other.collections;
        self.documents += other.documents;
        self.failed += other.failed;
        self.failures.extend(other.failures);
    }
}

/// Restores. After an error what has been restored so far is left there.
pub fn restore(options: &RestoreOptions) -> Result<Restored> {
    if options.archive {
        return restore_archive(options);
    }
    let root = options.path.clone().unwrap_or_else(|| PathBuf::from("dump"));
    let database = options.filter.database.as_deref();
    let found = if root.is_file() {
        let (Some(database), Some(collection)) = (database, options.filter.collection.as_deref()) else {
            return Err(DumpError::Choice("one file needs --db and --collection".to_owned()));
        };
        let metadata = PathBuf::from(root.to_string_lossy().replacen(".bson", ".metadata.json", 1));
        let files = Files {
            metadata: Some(metadata).filter(|path| *path != root && path.is_file()),
            documents: Some(root),
        };
        vec![(Namespace::new(database, collection), files)]
    } else {
        scan(&root, database, options.gzip)?
    };
    restore_files(options, &found)
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
        let mut client = Client::open(&options.server, &options.interrupt)?;
        let mut restored = Restored::default();
        while let Some((namespace, files)) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
            match restore_one(&mut client, options, namespace, files) {
                Ok(one) => restored.add(one),
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
    let whole_name = match &metadata.collection {
        // A name that was too long for a file is whole in the metadata; for one file the user has named the
        // collection.
        Some(collection) if options.filter.collection.is_none() => collection.clone(),
        _ => namespace.collection.clone(),
    };
    let namespace = Namespace::new(namespace.database.as_str(), whole_name);
    if !is_wanted(options, &namespace) {
        return Ok(Restored::default());
    }
    let mut loading = Loading::begin(client, options, &namespace, metadata)?;
    if let Some(path) = &files.documents {
        let mut input = open_file(Some(path), options.gzip)?;
        bson_file(&mut *input, &path.display().to_string(), &mut |document| {
            loading.add(client, &document)
        })?;
    }
    loading.finish(client)
}

fn is_wanted(options: &RestoreOptions, namespace: &Namespace) -> bool {
    let is_own = namespace.collection.starts_with("system.") && namespace.collection != "system.js";
    !is_own && options.filter.takes(namespace)
}

fn restore_archive(options: &RestoreOptions) -> Result<Restored> {
    let input = open_file(options.path.as_deref(), options.gzip)?;
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
    let parallel = options.parallel.max(1);
    let announced = &announced;
    std::thread::scope(|scope| {
        let (queues, threads): (Vec<_>, Vec<_>) = (0..parallel)
            .map(|_| {
                let (sender, receiver) = sync_channel(QUEUE_PARTS);
                (sender, scope.spawn(move || load_parts(options, announced, &receiver)))
            })
            .unzip();
        let routed = route(options, &mut reader, announced, &queues);
        drop(queues);
        let restored = collect(threads);
        // When a thread has ended by an error, its queue is closed and routing has ended without one.
        routed.and(restored)
    })
}

/// Gives each namespace's parts to one thread, the next free one in turn.
fn route(
    options: &RestoreOptions,
    reader: &mut ArchiveReader<Box<dyn Read>>,
    announced: &HashMap<Namespace, Metadata>,
    queues: &[SyncSender<Part>],
) -> Result<()> {
    let mut assigned: HashMap<Namespace, usize> = HashMap::new();
    while let Some(part) = reader.next_part()? {
        let (Part::Document(namespace, _) | Part::End(namespace)) = &part;
        if !is_wanted(options, namespace) {
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
        if queues[thread].send(part).is_err() {
            return Ok(());
        }
    }
    let mut silent: Vec<_> = announced
        .keys()
        .filter(|namespace| !assigned.contains_key(*namespace))
        .collect();
    silent.sort();
    // Views are announced only.
    for namespace in silent {
        if queues[0].send(Part::End(namespace.clone())).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn load_parts(
    options: &RestoreOptions,
    announced: &HashMap<Namespace, Metadata>,
    parts: &Receiver<Part>,
) -> Result<Restored> {
    let mut client = Client::open(&options.server, &options.interrupt)?;
    let mut open: HashMap<Namespace, Loading<'_>> = HashMap::new();
    let mut restored = Restored::default();
    for part in parts {
        let (Part::Document(namespace, _) | Part::End(namespace)) = &part;
        let mut loading = match open.remove(namespace) {
            Some(loading) => loading,
            None => {
                let metadata = match announced.get(namespace) {
                    Some(metadata) => metadata.clone(),
                    None => Metadata::from_json("{}", "")?,
                };
                Loading::begin(&mut client, options, namespace, metadata).map_err(|error| error.of(namespace))?
            }
        };
        match &part {
            Part::Document(_, document) => {
                loading
                    .add(&mut client, document)
                    .map_err(|error| error.of(namespace))?;
                open.insert(namespace.clone(), loading);
            }
            Part::End(_) => restored.add(loading.finish(&mut client).map_err(|error| error.of(namespace))?),
        }
    }
    Ok(restored)
}

/// A collection that is being filled.
struct Loading<'a> {
    options: &'a RestoreOptions,
    target: Namespace,
    metadata: Metadata,
    batch: Vec<u8>,
    batch_documents: u64,
    restored: Restored,
}

impl<'a> Loading<'a> {
    /// Makes the collection or the view. One that is there already stays, and is filled further.
    fn begin(client: &mut Client, options: &'a RestoreOptions, source: &Namespace, metadata: Metadata) -> Result<Self> {
        if metadata.kind == CollectionKind::TimeSeries || metadata.options.contains_key("timeseries") {
            return Err(DumpError::Choice(
                "a time-series collection, which is not supported: leave it out by --nsExclude".to_owned(),
            ));
        }
        let target = options
            .renames
            .iter()
            .find_map(|rename| rename.apply(source))
            .unwrap_or_else(|| source.clone());
        if options.drop {
            let dropped = client.run(&target.database, &doc! { "drop": &target.collection });
            unless_code(dropped, NAMESPACE_NOT_FOUND)?;
        }
        let mut create = doc! { "create": &target.collection };
        if !options.no_options || metadata.kind == CollectionKind::View {
            create.extend(metadata.options.clone());
        }
        unless_code(client.run(&target.database, &create), NAMESPACE_EXISTS)?;
        Ok(Self {
            options,
            target,
            metadata,
            batch: Vec::new(),
            batch_documents: 0,
            restored: Restored {
                collections: 1,
                ..Restored::default()
            },
        })
    }

    fn add(&mut self, client: &mut Client, document: &RawDocumentBuf) -> Result<()> {
        self.batch.extend_from_slice(document.as_bytes());
        self.batch_documents += 1;
        self.options.progress.inc(document.as_bytes().len() as u64);
        if self.batch.len() >= BATCH_BYTES || self.batch_documents >= BATCH_DOCUMENTS {
            self.flush(client)?;
        }
        Ok(())
    }

    fn flush(&mut self, client: &mut Client) -> Result<()> {
        if self.batch_documents == 0 {
            return Ok(());
        }
        let inserted = client.insert(&self.target, &self.batch, self.batch_documents)?;
        self.batch.clear();
        self.batch_documents = 0;
        self.restored.documents += inserted.documents;
        self.restored.failed += inserted.failed;
        if let Some(failure) = inserted.first_failure {
            if self.options.stop_on_error {
                return Err(DumpError::Choice(format!("{failure} (--stopOnError)")));
            }
            if self.restored.failures.is_empty() {
                self.restored.failures.push(format!("{}: {failure}", self.target));
            }
        }
        Ok(())
    }

    fn finish(mut self, client: &mut Client) -> Result<Restored> {
        self.flush(client)?;
        let id = doc! { "_id": 1 };
        let indexes: Vec<Bson> = std::mem::take(&mut self.metadata.indexes)
            .into_iter()
            .filter(|index| index.get_str("name").ok() != Some("_id_") && index.get_document("key").ok() != Some(&id))
            .map(|mut index: Document| {
                // Old servers repeat the namespace, which may have another name now.
                index.remove("ns");
                Bson::Document(index)
            })
            .collect();
        if !indexes.is_empty() && !self.options.no_indexes {
            let command = doc! { "createIndexes": &self.target.collection, "indexes": indexes };
            client.run(&self.target.database, &command)?;
        }
        Ok(self.restored)
    }
}

/// Takes a refusal with this code for success.
fn unless_code(result: Result<Document>, accepted: i32) -> Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(DumpError::Server(bench::Error::Refused { code, .. })) if code == accepted => Ok(()),
        Err(error) => Err(error),
    }
}
