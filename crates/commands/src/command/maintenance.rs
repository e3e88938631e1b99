//! `validate`, `compact`, `reIndex`, `collStats`, `dataSize`.

use super::server_status::insert_detail;
use super::{timeseries, views};
use crate::arguments::is_true;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::{Reply, narrowed};
use crate::validation;
use auth::{Action, Target};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use engine::{Direction, FillLimits};
use keys::key::{Discriminator, encode_bound};
use keys::{IndexPattern, KeyExtractor, KeySet};
use std::ops::Bound;
use storage::{CollectionStats, LocalCapped, LockMode, Namespace, RecordBatch, StorageError};
use wire::ErrorCode;

/// `validate`.
pub const VALIDATE: Command = Command::new(
    "validate",
    "Checks a collection's records against its indexes.",
    OperationKind::Command,
    Access::collection(&[Action::Validate]),
    validate,
)
.secondary_ok();
/// `compact`.
pub const COMPACT: Command = Command::new(
    "compact",
    "Gives a collection's unused space back.",
    OperationKind::Command,
    Access::collection(&[Action::Compact]),
    compact,
)
.secondary_ok();
/// `reIndex`.
pub const RE_INDEX: Command = Command::new(
    "reIndex",
    "Makes the indexes of a collection anew, but for _id_.",
    OperationKind::Command,
    Access::collection(&[Action::ReIndex]),
    re_index,
);
/// `collStats`.
pub const COLL_STATS: Command = Command::new(
    "collStats",
    "Sizes of a collection.",
    OperationKind::Command,
    Access::collection(&[Action::CollStats]),
    coll_stats,
)
.ends_with_client()
.aliases(&["collstats"])
.secondary_ok();
/// `dataSize`.
pub const DATA_SIZE: Command = Command::new(
    "dataSize",
    "Bytes of a collection's documents.",
    OperationKind::Command,
    Access::Fields(data_size_access),
    data_size,
)
.aliases(&["datasize"])
.secondary_ok();

/// What `dataSize` needs; its first field has the database, too.
fn data_size_access(call: &Invocation<'_>) -> Result<bool> {
    Ok(match call.target()? {
        RawBsonRef::String(name) => match name.split_once('.') {
            Some((database, collection)) => call.may(Target::Collection(database, collection), Action::Find),
            None => call.may(Target::Database(name), Action::Find),
        },
        _ => call.may(Target::Database(call.database), Action::Find),
    })
}

fn validate(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let namespace = timeseries::of_buckets(call, &namespace);
    let options = ValidateOptions::read(call)?;
    let storage = &call.server.storage;
    if storage.catalog().view(&namespace).is_some() {
        return Err(CommandError::new(
            ErrorCode::CommandNotSupportedOnView,
            "Cannot validate a view",
        ));
    }
    if let Some(local) = storage.local_capped(&namespace) {
        return validate_local(&local, reply);
    }
    if storage.catalog().collection(&namespace).is_none() && query::is_oplog(storage, &namespace) {
        // Its entries are checked whenever they are read.
        let entries = storage.collection_stats(&namespace)?.count;
        return told_without_indexes(&namespace, None, entries as usize, 0, reply);
    }
    let Some(collection) = storage.catalog().collection(&namespace) else {
        return Err(CommandError::new(
            ErrorCode::NamespaceNotFound,
            format!("Collection '{namespace}' does not exist to validate."),
        ));
    };
    if options.metadata {
        let indexes = collection
            .access_paths()
            .iter()
            .map(|index| (index.name(), index.spec()));
        let mut details = Document::new();
        for (name, spec) in indexes {
            details.insert(name, doc! { "valid": true, "spec": Document::try_from(spec)? });
        }
        // Definitions that make no sense keep the catalog from being read.
        reply.append_all(&doc! {
            "ns": namespace.as_str(),
            "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: collection.uuid().to_vec() },
            "nIndexes": details.len() as i32,
            "keysPerIndex": {},
            "indexDetails": details,
        });
        reply.append_all(&verdict(&options, &storage::ValidateReport::default()));
        return Ok(());
    }
    let mut compliance = validation::Compliance::of(call, &collection);
    let inspect = &mut |id: &storage::RecordId, document: &_| compliance.inspect(id, document);
    let mut report = storage.validate_with(&call.operation, &namespace, options.full, inspect)?;
    let n_non_compliant = compliance.finish(&mut report);
    if options.repair_mode != "None" && !report.is_valid() {
        report
            .errors
            .push("nothing was repaired: repair of a collection is not built".to_owned());
    }
    let mut keys_per_index = Document::new();
    let mut details = Document::new();
    for index in &report.indexes {
        keys_per_index.insert(&index.name, narrowed(index.keys as i64));
        let mut detail = doc! { "valid": index.valid };
        if let Some(index) = collection.index(&index.name) {
            detail.insert("spec", Document::try_from(index.spec())?);
        }
        details.insert(&index.name, detail);
    }
    reply.append_all(&doc! {
        "ns": namespace.as_str(),
        "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: collection.uuid().to_vec() },
        "nInvalidDocuments": narrowed(report.n_invalid_documents as i64),
        "nNonCompliantDocuments": narrowed(n_non_compliant as i64),
        "nrecords": narrowed(report.n_records as i64),
        "nIndexes": report.indexes.len() as i32,
        "keysPerIndex": keys_per_index,
        "indexDetails": details,
    });
    reply.append_all(&verdict(&options, &report));
    Ok(())
}

/// What is wrong. Entries of indexes are counted, not listed.
fn verdict(options: &ValidateOptions, report: &storage::ValidateReport) -> Document {
    let strings = |lines: &[String]| Bson::Array(lines.iter().cloned().map(Bson::String).collect());
    let corrupt: Vec<Bson> = report.corrupt_records.iter().map(storage::RecordId::to_bson).collect();
    doc! {
        "valid": report.is_valid(),
        "repaired": false,
        "repairMode": options.repair_mode,
        "warnings": strings(&report.warnings),
        "errors": strings(&report.errors),
        "extraIndexEntries": [],
        "numExtraIndexEntries": narrowed(report.extra_entries as i64),
        "missingIndexEntries": [],
        "numMissingIndexEntries": narrowed(report.missing_entries as i64),
        "corruptRecords": corrupt,
    }
}

/// What `validate` is asked for. Every value of an option is true or false.
struct ValidateOptions {
    full: bool,
    /// Only definitions.
    metadata: bool,
    /// As MongoDB calls it.
    repair_mode: &'static str,
}

impl ValidateOptions {
    fn read(call: &Invocation<'_>) -> Result<Self> {
        let names = [
            "full",
            // Every validation is: it looks at one state beside those who write.
            "background",
            "scandata",
            "checkBSONConformance",
            "repair",
            "fixMultikey",
            "enforceFastCount",
            "metadata",
        ];
        let mut asked = Vec::new();
        call.for_each_field(|name, value| {
            let known = names.iter().find(|known| **known == name);
            asked.extend(known.filter(|_| is_true(value)).copied());
            Ok(known.is_some())
        })?;
        let is_asked = |name: &str| asked.contains(&name);
        const TOGETHER: [(&str, &[&str]); 3] = [
            ("background", &["full", "repair", "enforceFastCount"]),
            ("checkBSONConformance", &["repair", "fixMultikey"]),
            (
                "metadata",
                &[
                    "full",
                    "background",
                    "checkBSONConformance",
                    "repair",
                    "fixMultikey",
                    "enforceFastCount",
                ],
            ),
        ];
        for (one, others) in TOGETHER {
            if let Some(other) = others.iter().find(|other| is_asked(one) && is_asked(other)) {
                return Err(CommandError::new(
                    ErrorCode::InvalidOptions,
                    format!(
                        "Running the validate command with both {{ {one}: true }} and {{ {other}: true }} is not supported."
                    ),
                ));
            }
        }
        Ok(Self {
            full: is_asked("full"),
            metadata: is_asked("metadata"),
            repair_mode: match (is_asked("repair"), is_asked("fixMultikey")) {
                (true, _) => "FixErrors",
                (false, true) => "AdjustMultikey",
                (false, false) => "None",
            },
        })
    }
}

/// A collection in memory of this member has documents and no indexes.
fn validate_local(local: &LocalCapped, reply: &mut Reply<'_>) -> Result<()> {
    let documents = local.documents();
    let is_valid = |bytes: &[u8]| RawDocument::from_bytes(bytes).is_ok_and(|raw| Document::try_from(raw).is_ok());
    let invalid = documents.iter().filter(|bytes| !is_valid(bytes)).count();
    told_without_indexes(local.namespace(), Some(local.uuid()), documents.len(), invalid, reply)
}

fn told_without_indexes(
    namespace: &Namespace,
    uuid: Option<[u8; 16]>,
    documents: usize,
    invalid: usize,
    reply: &mut Reply<'_>,
) -> Result<()> {
    let errors = (invalid > 0).then(|| Bson::from("there are documents that are no valid BSON"));
    reply.string("ns", namespace.as_str());
    if let Some(uuid) = uuid {
        reply.append_all(&doc! { "uuid": Binary { subtype: BinarySubtype::Uuid, bytes: uuid.to_vec() } });
    }
    reply.append_all(&doc! {
        "nInvalidDocuments": narrowed(invalid as i64),
        "nNonCompliantDocuments": 0,
        "nrecords": narrowed(documents as i64),
        "nIndexes": 0,
        "keysPerIndex": {},
        "indexDetails": {},
        "valid": invalid == 0,
        "repaired": false,
        "repairMode": "None",
        "warnings": [],
        "errors": errors.into_iter().collect::<Vec<_>>(),
        "extraIndexEntries": [],
        "numExtraIndexEntries": 0,
        "missingIndexEntries": [],
        "numMissingIndexEntries": 0,
        "corruptRecords": [],
    });
    Ok(())
}

fn compact(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let namespace = timeseries::of_buckets(call, &namespace);
    let arguments = call.arguments();
    let mut is_dry_run = false;
    call.for_each_field(|name, value| {
        match name {
            "force" => drop(arguments.flag(name, value)?),
            "dryRun" => is_dry_run = arguments.flag(name, value)?,
            "freeSpaceTargetMB" => {
                let target = arguments.integer(name, value)?;
                if target < 1 {
                    return Err(CommandError::bad_value(format!(
                        "BSON field 'freeSpaceTargetMB' value must be >= 1, actual value '{target}'"
                    )));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if call.server.storage.catalog().view(&namespace).is_some() {
        return Err(CommandError::new(
            ErrorCode::CommandNotSupportedOnView,
            "can't compact a view",
        ));
    }
    if query::is_oplog(&call.server.storage, &namespace) {
        // It gives back its segments by itself, and none of them has free space within.
        reply.count(
            if is_dry_run {
                "estimatedBytesFreed"
            } else {
                "bytesFreed"
            },
            0,
        );
        return Ok(());
    }
    if is_dry_run {
        let stats = call.server.storage.collection_stats(&namespace)?;
        let of_indexes: u64 = stats.indexes.iter().map(|index| index.free_bytes).sum();
        reply.count("estimatedBytesFreed", (stats.free_bytes + of_indexes) as i64);
        return Ok(());
    }
    let report = call
        .server
        .storage
        .compact(&call.operation, &namespace)
        .map_err(|error| match error {
            StorageError::Engine(error) if error.kind() == engine::ErrorKind::Unsupported => {
                CommandError::new(ErrorCode::CommandNotSupported, error.to_string())
            }
            other => other.into(),
        })?;
    reply.count("bytesFreed", report.bytes_freed as i64);
    Ok(())
}

fn re_index(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    call.for_each_field(|_, _| Ok(false))?;
    if call.server.replica_set().is_some() {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!(
                "reIndex is only allowed on a standalone mongod instance. Cannot reIndex '{namespace}' while replication is active"
            ),
        ));
    }
    let storage = &call.server.storage;
    let indexes = match storage.rebuild_indexes(&call.operation, &namespace) {
        Err(StorageError::NamespaceNotFound(_)) => {
            return Err(CommandError::new(
                ErrorCode::NamespaceNotFound,
                format!("collection does not exist: {namespace}"),
            ));
        }
        Err(StorageError::IsView(_)) => {
            return Err(CommandError::new(
                ErrorCode::CommandNotSupportedOnView,
                "can't re-index a view",
            ));
        }
        indexes => indexes?,
    };
    call.wrote(storage.last_seq());
    let collection = storage.catalog().collection(&namespace);
    let specs = collection.iter().flat_map(|collection| collection.access_paths());
    let specs = specs.map(|index| Ok(Bson::Document(Document::try_from(index.spec())?)));
    let specs = specs.collect::<Result<Vec<_>>>()?;
    reply.int32("nIndexesWas", indexes as i32);
    reply.int32("nIndexes", specs.len() as i32);
    reply.value("indexes", &Bson::Array(specs));
    Ok(())
}

/// A table's figures under the names that tools read in WiredTiger's. In bytes, whatever the scale.
fn table_details(storage_bytes: u64, free_bytes: u64, memory_bytes: u64) -> Document {
    doc! {
        "block-manager": {
            "file bytes available for reuse": narrowed(free_bytes as i64),
            "file size in bytes": narrowed(storage_bytes as i64),
        },
        "cache": { "bytes currently in the cache": narrowed(memory_bytes as i64) },
    }
}

/// `storageStats` of `$collStats`, and the body of `collStats`. `scale` divides byte figures.
pub fn storage_stats(stats: &CollectionStats, scale: i64) -> Document {
    let scaled = |bytes: u64| narrowed(bytes as i64 / scale);
    let mut index_sizes = Document::new();
    let mut index_details = Document::new();
    if let Some((name, spec)) = &stats.clustered_index {
        index_details.insert(name, Document::try_from(&**spec).unwrap_or_default());
    }
    let mut index_bytes = 0;
    let mut index_free = 0;
    for index in &stats.indexes {
        index_sizes.insert(&index.name, scaled(index.storage_bytes));
        index_details.insert(
            &index.name,
            table_details(index.storage_bytes, index.free_bytes, index.memory_bytes),
        );
        index_bytes += index.storage_bytes;
        index_free += index.free_bytes;
    }
    let mut document = doc! {
        "size": scaled(stats.data_bytes),
        "count": narrowed(stats.count as i64),
        "numOrphanDocs": 0,
        "storageSize": scaled(stats.storage_bytes),
        "freeStorageSize": scaled(stats.free_bytes),
        "capped": stats.capped.is_some(),
        "wiredTiger": table_details(stats.storage_bytes, stats.free_bytes, stats.memory_bytes),
        "nindexes": (stats.indexes.len() + usize::from(stats.clustered_index.is_some())) as i32,
        "indexDetails": index_details,
        "indexBuilds": stats.indexes.iter().filter(|index| index.building).map(|index| Bson::String(index.name.clone())).collect::<Vec<_>>(),
        "totalIndexSize": scaled(index_bytes),
        "indexFreeStorageSize": scaled(index_free),
        "totalSize": scaled(stats.storage_bytes + index_bytes),
        "indexSizes": index_sizes,
        "scaleFactor": narrowed(scale),
    };
    for (name, value) in &stats.details {
        insert_detail(&mut document, name, value.clone(), scale);
    }
    if let Some(average) = stats.data_bytes.checked_div(stats.count) {
        document.insert("avgObjSize", narrowed(average as i64));
    }
    if let Some(limits) = &stats.capped {
        document.insert(
            "max",
            limits.max_documents.map_or(Bson::Int32(0), |max| narrowed(max as i64)),
        );
        document.insert("maxSize", scaled(limits.size_bytes));
    }
    document
}

fn coll_stats(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let arguments = call.arguments();
    let mut scale = 1;
    call.for_each_field(|name, value| {
        match name {
            "scale" => scale = arguments.integer(name, value)?,
            "verbose" | "waitForLock" | "numericOnly" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if scale < 1 {
        return Err(CommandError::bad_value("scale has to be >= 1"));
    }
    reply.string("ns", namespace.as_str());
    let buckets = timeseries::of_buckets(call, &namespace);
    let stats = existing_stats(call, &buckets)?.unwrap_or_default();
    let stats = match buckets == namespace {
        true => storage_stats(&stats, scale),
        false => bucket_stats(&buckets, &stats, scale),
    };
    reply.append_all(&stats);
    Ok(())
}

/// The figures of a time-series collection: what the documents are is told apart.
pub fn bucket_stats(buckets: &Namespace, stats: &CollectionStats, scale: i64) -> Document {
    let mut document = storage_stats(stats, scale);
    document.remove("count");
    let average = document.remove("avgObjSize").unwrap_or(Bson::Int32(0));
    document.insert(
        "timeseries",
        doc! {
            "bucketsNs": buckets.as_str(),
            "bucketCount": narrowed(stats.count as i64),
            "avgBucketSize": average,
        },
    );
    document
}

/// What `collStats` tells of a collection, sizes in bytes. None where there is no such collection.
pub fn stats_of(call: &Invocation<'_>, namespace: &Namespace) -> Result<Option<Document>> {
    Ok(existing_stats(call, namespace)?.map(|stats| {
        let mut document = doc! { "ns": namespace.as_str() };
        document.extend(storage_stats(&stats, 1));
        document
    }))
}

fn existing_stats(call: &Invocation<'_>, namespace: &Namespace) -> Result<Option<CollectionStats>> {
    let storage = &call.server.storage;
    if storage.catalog().view(namespace).is_some() {
        return Err(views::refused(namespace));
    }
    match storage.collection_stats(namespace) {
        Ok(stats) => Ok(Some(stats)),
        Err(StorageError::NamespaceNotFound(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

fn data_size(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let namespace = Namespace::parse(arguments.string("dataSize", call.required_target()?)?)?;
    call.report.namespace = Some(namespace.clone());
    let started = call.server.env.clock.monotonic();
    let mut estimate = false;
    let (mut pattern, mut min, mut max) = (None, None, None);
    call.for_each_field(|name, value| {
        match name {
            // There is nothing to estimate: sizes are counted.
            "estimate" => estimate = arguments.boolean(name, value)?,
            "keyPattern" => pattern = Some(arguments.document(name, value)?),
            "min" => min = Some(arguments.document(name, value)?),
            "max" => max = Some(arguments.document(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let namespace = timeseries::of_buckets(call, &namespace);
    let stats = existing_stats(call, &namespace)?.unwrap_or_default();
    let (count, bytes) = match KeyBounds::of(pattern, min, max)? {
        Some(bounds) => bounds.size_of(call, &namespace)?,
        None => (stats.count, stats.data_bytes),
    };
    reply.boolean("estimate", estimate);
    reply.int64("size", bytes as i64);
    reply.int64("numObjects", count as i64);
    let took = call.server.env.clock.monotonic().saturating_sub(started);
    reply.int64("millis", took.as_millis() as i64);
    Ok(())
}

/// Keys of a pattern between two bounds, the second one excluded.
struct KeyBounds {
    extractor: KeyExtractor,
    min: Vec<u8>,
    max: Vec<u8>,
}

impl KeyBounds {
    /// None without bounds: all documents.
    fn of(pattern: Option<&RawDocument>, min: Option<&RawDocument>, max: Option<&RawDocument>) -> Result<Option<Self>> {
        let given = |document: Option<&'_ RawDocument>| document.is_some_and(|document| !document.is_empty());
        let (Some(min), Some(max)) = (min, max) else {
            return match given(min) || given(max) {
                true => Err(CommandError::bad_value("only one of min or max specified")),
                false => Ok(None),
            };
        };
        let of_min;
        let pattern = match pattern {
            Some(pattern) if !pattern.is_empty() => pattern,
            _ => {
                let mut ascending = RawDocumentBuf::new();
                for field in min {
                    ascending.append(field?.0, 1);
                }
                of_min = ascending;
                &of_min
            }
        };
        let pattern = IndexPattern::parse(pattern).map_err(|error| CommandError::bad_value(error.to_string()))?;
        let bound = |document: &RawDocument| -> Result<Vec<u8>> {
            let mut values = Vec::new();
            for (place, field) in document.iter().enumerate() {
                let (name, value) = field?;
                if pattern.fields().get(place).is_none_or(|field| name != field.path()) {
                    return Err(CommandError::bad_value(
                        "min and max have the first fields of keyPattern",
                    ));
                }
                values.push(value);
            }
            Ok(encode_bound(&values, Discriminator::Before, pattern.ordering(), None))
        };
        Ok(Some(Self {
            min: bound(min)?,
            max: bound(max)?,
            extractor: KeyExtractor::new(pattern, false, None),
        }))
    }

    /// How many documents have a key there, and their bytes. Reads them all, as there need not be an index.
    fn size_of(&self, call: &Invocation<'_>, namespace: &Namespace) -> Result<(u64, u64)> {
        let storage = &call.server.storage;
        let Some(guard) = storage.collection(&call.operation, namespace, LockMode::IntentShared)? else {
            return Ok((0, 0));
        };
        let view = storage.read()?;
        let mut records = view.records(&guard, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        let (mut batch, mut keys) = (RecordBatch::new(), KeySet::new());
        let (mut count, mut bytes) = (0, 0);
        while records.fill(&mut batch, FillLimits::default())? {
            call.operation.check_now().map_err(StorageError::from)?;
            for at in 0..batch.len() {
                let document = RawDocument::from_bytes(batch.document(at))?;
                // What has no keys of this pattern has none between the bounds.
                let is_within = self.extractor.extract(document, &mut keys).is_ok()
                    && keys
                        .iter()
                        .any(|key| key.key >= &self.min[..] && key.key < &self.max[..]);
                if is_within {
                    count += 1;
                    bytes += document.as_bytes().len() as u64;
                }
            }
        }
        Ok((count, bytes))
    }
}
