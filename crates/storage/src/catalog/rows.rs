//! Rows of the catalog and statistics tables: bytes and back. `docs/formats/catalog.md` describes them.

use crate::catalog::collection::{CollectionShared, capped_limits, keeps_pre_images};
use crate::catalog::index::{IndexShared, collation_in};
use crate::catalog::timeseries::TimeseriesOptions;
use crate::catalog::validation::Validation;
use crate::cluster_time::ClusterTime;
use crate::limits::FIRST_USER_TABLE;
use crate::{Collection, Index, IndexSpec, Namespace, PredicateCompiler, RecordIds, StorageError, View};
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocument, RawDocumentBuf};
use engine::{Batch, Seq, TableId, TableKind, TableSpec};
use keys::MultikeyPaths;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The table of definitions.
pub(crate) const CATALOG: TableId = TableId(1);
/// The table of counts.
pub(crate) const STATISTICS: TableId = TableId(2);
/// The table of what is known of sessions; there once something was written in one.
pub(crate) const SESSIONS: TableId = TableId(3);
/// Format of the catalog, the log entries and the index rows together.
pub(crate) const FORMAT_VERSION: u32 = 2;

pub(crate) const META_KEY: &[u8] = b"m";
pub(crate) const COLLECTION_PREFIX: u8 = b'c';
pub(crate) const VIEW_PREFIX: u8 = b'v';
pub(crate) const MULTIKEY_PREFIX: u8 = b'k';
pub(crate) const FORMER_NAME_PREFIX: u8 = b'n';
/// In [`STATISTICS`], behind the table id, in format 1.
pub(crate) const COUNT_SUFFIX: u8 = 0;
pub(crate) const BYTES_SUFFIX: u8 = 1;
/// In [`STATISTICS`]: the entry from which on others tell what changed in the counts.
pub(crate) const AS_OF_KEY: &[u8] = &[0, 0, 0, 0, 2];
/// In [`STATISTICS`]: the entry from which on names of tables are known.
pub(crate) const NAMES_FROM_KEY: &[u8] = &[0, 0, 0, 0, 3];

pub(crate) fn collection_key(uuid: &[u8; 16]) -> Vec<u8> {
    [&[COLLECTION_PREFIX], uuid.as_slice()].concat()
}

pub(crate) fn view_key(namespace: &str) -> Vec<u8> {
    [&[VIEW_PREFIX], namespace.as_bytes()].concat()
}

/// Prefix of the multikey rows of an index.
pub(crate) fn multikey_prefix(index: TableId) -> Vec<u8> {
    [&[MULTIKEY_PREFIX], index.0.to_be_bytes().as_slice()].concat()
}

pub(crate) fn multikey_key(index: TableId, field: u8, part: u8) -> [u8; 7] {
    let [a, b, c, d] = index.0.to_be_bytes();
    [MULTIKEY_PREFIX, a, b, c, d, field, part]
}

/// The key of a collection's [`counts_row`].
pub(crate) fn counts_key(table: TableId) -> [u8; 4] {
    table.0.to_be_bytes()
}

/// Documents and bytes of a collection, and the entry whose state has them.
pub(crate) fn counts_row(count: i64, bytes: i64, seq: Seq) -> Vec<u8> {
    [count.to_le_bytes(), bytes.to_le_bytes(), seq.0.to_le_bytes()].concat()
}

/// Reads [`counts_row`].
pub(crate) fn read_counts_row(table: TableId, row: &[u8]) -> Result<(i64, i64, Seq), StorageError> {
    match row.as_chunks::<8>() {
        ([count, bytes, seq], []) => {
            let number = |bytes: &[u8; 8]| i64::from_le_bytes(*bytes);
            Ok((number(count), number(bytes), Seq(u64::from_le_bytes(*seq))))
        }
        _ => Err(corrupt(&counts_key(table), format!("{} bytes, 24 expected", row.len()))),
    }
}

/// The key of a count in format 1.
pub(crate) fn statistics_key(table: TableId, suffix: u8) -> [u8; 5] {
    let [a, b, c, d] = table.0.to_be_bytes();
    [a, b, c, d, suffix]
}

/// The row of what a table was called before the entry at `until`.
pub(crate) fn former_name_key(table: TableId, until: Seq) -> Vec<u8> {
    let (table, until) = (table.0.to_be_bytes(), until.0.to_be_bytes());
    [&[FORMER_NAME_PREFIX], table.as_slice(), &until].concat()
}

/// Reads [`former_name_key`]'s last 12 bytes.
pub(crate) fn read_former_name_key(key: &[u8]) -> Option<(TableId, Seq)> {
    let (table, until) = key.split_first_chunk::<4>()?;
    let until = u64::from_be_bytes(until.try_into().ok()?);
    Some((TableId(u32::from_be_bytes(*table)), Seq(until)))
}

pub(crate) fn former_name_row(namespace: &Namespace, uuid: [u8; 16]) -> Vec<u8> {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("ns"), namespace.as_str());
    row.append(cstr!("uuid"), uuid_value(uuid));
    row.into_bytes()
}

pub(crate) fn parse_former_name_row(row: &RawDocument) -> Result<(Namespace, [u8; 16]), String> {
    let namespace = row.get_str("ns").map_err(|error| error.to_string())?;
    let namespace = Namespace::parse(namespace).map_err(|error| error.to_string())?;
    Ok((namespace, uuid_of(row)?))
}

fn uuid_value(uuid: [u8; 16]) -> Binary {
    Binary {
        subtype: BinarySubtype::Uuid,
        bytes: uuid.to_vec(),
    }
}

fn uuid_of(row: &RawDocument) -> Result<[u8; 16], String> {
    let uuid = row.get_binary("uuid").map_err(|error| error.to_string())?.bytes;
    uuid.try_into().map_err(|_| format!("uuid has {} bytes", uuid.len()))
}

/// The row at [`NAMES_FROM_KEY`].
pub(crate) fn names_from_row(seq: Seq) -> Vec<u8> {
    seq.0.to_le_bytes().to_vec()
}

/// Reads [`names_from_row`].
pub(crate) fn read_names_from_row(row: &[u8]) -> Result<Seq, StorageError> {
    let seq = row.try_into().map(u64::from_le_bytes);
    seq.map(Seq)
        .map_err(|_| corrupt(NAMES_FROM_KEY, format!("{} bytes, 8 expected", row.len())))
}

/// The row at [`AS_OF_KEY`].
pub(crate) fn as_of_row(seq: Seq, time: ClusterTime) -> Vec<u8> {
    [seq.0.to_le_bytes(), time.0.to_le_bytes()].concat()
}

/// Reads [`as_of_row`].
pub(crate) fn read_as_of_row(row: &[u8]) -> Result<(Seq, ClusterTime), StorageError> {
    let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    match row.split_first_chunk::<8>() {
        Some((seq, time)) if time.len() == 8 => {
            let time = time.try_into().expect("8 bytes");
            Ok((Seq(number(seq)), ClusterTime(number(time))))
        }
        _ => Err(corrupt(AS_OF_KEY, format!("{} bytes, 16 expected", row.len()))),
    }
}

/// The tables of the storage layer itself; those that exist stay.
pub(crate) fn create_tables(batch: &mut Batch) {
    for (table, name) in [(CATALOG, "catalog"), (STATISTICS, "statistics")] {
        batch.create_table(table, own_table(TableKind::Small, name));
    }
}

/// The table of sessions.
pub(crate) fn create_sessions(batch: &mut Batch) {
    batch.create_table(SESSIONS, own_table(TableKind::Index, "sessions"));
}

fn own_table(kind: TableKind, name: &str) -> TableSpec {
    TableSpec {
        kind,
        name: name.to_owned(),
        compressor: None,
    }
}

/// What belongs to no collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Version of what is stored, see [`FORMAT_VERSION`].
    pub(crate) format: u32,
    /// The lowest table id never given.
    pub(crate) next_table: u32,
}

impl Default for Meta {
    fn default() -> Self {
        Self {
            format: FORMAT_VERSION,
            next_table: FIRST_USER_TABLE,
        }
    }
}

/// The row of [`Meta`].
pub(crate) fn meta_row(meta: &Meta) -> Vec<u8> {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("format"), i64::from(meta.format));
    row.append(cstr!("nextTable"), i64::from(meta.next_table));
    row.into_bytes()
}

/// Reads [`meta_row`].
pub(crate) fn read_meta_row(bytes: &[u8]) -> Result<Meta, StorageError> {
    let bad = |reason: String| corrupt(META_KEY, reason);
    let row = RawDocument::from_bytes(bytes).map_err(|error| bad(error.to_string()))?;
    let number = |name: &str| {
        let value = row.get_i64(name).map_err(|error| bad(error.to_string()))?;
        u32::try_from(value).map_err(|_| bad(format!("{name} is {value}")))
    };
    let format = number("format")?;
    if format > FORMAT_VERSION {
        return Err(StorageError::NewerFormat {
            found: format,
            supported: FORMAT_VERSION,
        });
    }
    let next_table = number("nextTable")?;
    Ok(Meta { format, next_table })
}

/// A damaged row of the catalog.
pub(crate) fn corrupt(key: &[u8], reason: String) -> StorageError {
    StorageError::CorruptCatalog {
        key: key.iter().map(|byte| format!("{byte:02x}")).collect(),
        reason,
    }
}

/// A collection's definition as it is stored and logged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CollectionRow {
    pub(crate) namespace: Namespace,
    pub(crate) uuid: [u8; 16],
    pub(crate) table: TableId,
    pub(crate) options: RawDocumentBuf,
    pub(crate) indexes: Vec<IndexRow>,
}

/// An index in a [`CollectionRow`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexRow {
    pub(crate) table: TableId,
    pub(crate) ready: bool,
    pub(crate) spec: IndexSpec,
}

impl CollectionRow {
    pub(crate) fn of(collection: &Collection) -> Self {
        let row = |index: &Arc<Index>| IndexRow {
            table: index.table(),
            ready: index.ready(),
            spec: index.parsed_spec().clone(),
        };
        Self {
            namespace: collection.namespace().clone(),
            uuid: collection.uuid(),
            table: collection.table(),
            options: collection.options().to_owned(),
            indexes: collection.maintained().map(row).collect(),
        }
    }

    pub(crate) fn to_document(&self) -> RawDocumentBuf {
        let mut indexes = RawArrayBuf::new();
        for index in &self.indexes {
            let mut row = RawDocumentBuf::new();
            row.append(cstr!("table"), i64::from(index.table.0));
            row.append(cstr!("ready"), index.ready);
            row.append(cstr!("spec"), index.spec.spec.clone());
            if index.spec.records_in_keys {
                row.append(cstr!("recordsInKeys"), true);
            }
            if index.spec.is_on_id() && !index.spec.unique {
                row.append(cstr!("unique"), false);
            }
            if index.spec.collation.is_some() {
                row.append(cstr!("collationData"), collation::DATA_VERSION);
            }
            indexes.push(row);
        }
        let mut row = RawDocumentBuf::new();
        row.append(cstr!("ns"), self.namespace.as_str());
        row.append(cstr!("uuid"), uuid_value(self.uuid));
        row.append(cstr!("table"), i64::from(self.table.0));
        row.append(cstr!("options"), self.options.clone());
        row.append(cstr!("indexes"), indexes);
        // Its keys are those of strings in that order.
        if self.is_clustered() && self.options.get_document("collation").is_ok() {
            row.append(cstr!("collationData"), collation::DATA_VERSION);
        }
        row
    }

    /// Its indexes, the clustered one included. One that is built in the place of another does not count.
    pub(crate) fn index_count(&self) -> usize {
        let names: BTreeSet<&str> = self.indexes.iter().map(|index| index.spec.name.as_str()).collect();
        names.len() + usize::from(self.is_clustered())
    }

    /// Whether its documents' table is keyed by `_id`.
    pub(crate) fn is_clustered(&self) -> bool {
        matches!(IndexSpec::clustered(&self.options), Ok(Some(_)))
    }

    /// Reads [`CollectionRow::to_document`]; errors say what is wrong.
    pub(crate) fn parse(row: &RawDocument) -> Result<Self, String> {
        let text = |error: bson::error::Error| error.to_string();
        let mut indexes = Vec::new();
        for index in row.get_array("indexes").map_err(text)? {
            let index = index.map_err(text)?;
            let index = index.as_document().ok_or("an index is not a document")?;
            let mut spec =
                IndexSpec::from_document(index.get_document("spec").map_err(text)?).map_err(|e| e.to_string())?;
            spec.records_in_keys = matches!(index.get_bool("recordsInKeys"), Ok(true));
            // Rows of builds that took every index on `_id` alone for `_id_` do not say that it is unique.
            if spec.is_on_id() && !spec.unique && !matches!(index.get_bool("unique"), Ok(false)) {
                spec.unique = true;
                spec = spec.normalised();
            }
            check_collation_data(index, Some(&spec))?;
            indexes.push(IndexRow {
                table: table(index)?,
                ready: index.get_bool("ready").map_err(text)?,
                spec,
            });
        }
        let options = row.get_document("options").map_err(text)?.to_owned();
        let has_id_index = indexes.first().is_some_and(|index| index.ready && index.spec.is_id());
        match IndexSpec::clustered(&options).map_err(|error| error.to_string())? {
            None if !has_id_index => return Err("the first index is not _id_".to_owned()),
            Some(_) if indexes.iter().any(|index| index.spec.is_id()) => {
                return Err("a clustered collection has an index on _id".to_owned());
            }
            clustered => check_collation_data(row, clustered.as_ref())?,
        }
        Ok(Self {
            namespace: Namespace::parse(row.get_str("ns").map_err(text)?).map_err(|error| error.to_string())?,
            uuid: uuid_of(row)?,
            table: table(row)?,
            options,
            indexes,
        })
    }

    /// The definition in memory, sharing with its former one what does not change.
    pub(crate) fn build(
        &self,
        former: Option<&Collection>,
        multikey: &BTreeMap<TableId, MultikeyPaths>,
        compiler: &dyn PredicateCompiler,
        now_ms: i64,
    ) -> Result<Collection, StorageError> {
        let (mut ready, mut building) = (Vec::new(), Vec::new());
        let mut record_ids = RecordIds::Numbers;
        if let Some(spec) = IndexSpec::clustered(&self.options)? {
            let former = former.and_then(Collection::clustered_index);
            let shared = former.map_or_else(|| IndexShared::new(None, now_ms), |former| former.shared().clone());
            ready.push(Arc::new(Index::of_documents(spec, self.table, shared)?));
            record_ids = RecordIds::Keys;
        }
        for row in &self.indexes {
            let former = former.and_then(|former| former.maintained().find(|index| index.table() == row.table));
            let shared = former.map_or_else(
                || IndexShared::new(multikey.get(&row.table), now_ms),
                |former| former.shared().clone(),
            );
            let index = Arc::new(Index::new(
                &row.spec, row.table, row.ready, record_ids, compiler, shared,
            )?);
            if row.ready { &mut ready } else { &mut building }.push(index);
        }
        let capped = capped_limits(&self.options);
        let keeps_pre_images = keeps_pre_images(&self.options);
        Ok(Collection {
            namespace: self.namespace.clone(),
            uuid: self.uuid,
            capped,
            keeps_pre_images,
            collation: collation_in(&self.options)?,
            validation: Validation::of(&self.options),
            timeseries: TimeseriesOptions::of(&self.options),
            options: self.options.clone(),
            table: self.table,
            access_paths: ready.into(),
            building: building.into(),
            version: former.map_or(1, |former| former.version + 1),
            indexes_left_out: 0,
            shared: former.map_or_else(
                || CollectionShared::new(capped.is_some()),
                |former| former.shared.clone(),
            ),
        })
    }
}

/// What is stored with strings in an order of this version's data can be read; the row says of which version they are.
fn check_collation_data(row: &RawDocument, spec: Option<&IndexSpec>) -> Result<(), String> {
    let Some(spec) = spec.filter(|spec| spec.collation.is_some()) else {
        return Ok(());
    };
    let data = row.get_str("collationData").unwrap_or_default();
    match data == collation::DATA_VERSION {
        true => Ok(()),
        false => Err(format!(
            "the index {} has strings in the order of {data:?}, this version has that of {:?}: dump the data with the \
             version that wrote it",
            spec.name,
            collation::DATA_VERSION
        )),
    }
}

/// The name in a [`CollectionRow`], without all else of it.
pub(crate) fn name_in(row: &[u8]) -> Result<&str, StorageError> {
    let read = RawDocument::from_bytes(row).map_err(|error| error.to_string());
    let name = read.and_then(|row| row.get_str("ns").map_err(|error| error.to_string()));
    name.map_err(|reason| corrupt(&[COLLECTION_PREFIX], reason))
}

/// The tables of the indexes in a [`CollectionRow`] that are ready, without all else of it.
pub(crate) fn ready_tables(row: &[u8]) -> Result<Vec<TableId>, StorageError> {
    let read = || -> Result<Vec<TableId>, String> {
        let text = |error: bson::error::Error| error.to_string();
        let row = RawDocument::from_bytes(row).map_err(text)?;
        let mut ready = Vec::new();
        for index in row.get_array("indexes").map_err(text)? {
            let index = index.map_err(text)?;
            let index = index.as_document().ok_or("an index is not a document")?;
            if index.get_bool("ready").map_err(text)? {
                ready.push(table(index)?);
            }
        }
        Ok(ready)
    };
    read().map_err(|reason| corrupt(&[COLLECTION_PREFIX], reason))
}

fn table(row: &RawDocument) -> Result<TableId, String> {
    let id = row.get_i64("table").map_err(|error| error.to_string())?;
    u32::try_from(id).map(TableId).map_err(|_| format!("table is {id}"))
}

pub(crate) fn view_row(view: &View) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("ns"), view.namespace.as_str());
    row.append(cstr!("viewOn"), view.view_on.as_str());
    row.append(cstr!("pipeline"), view.pipeline.clone());
    row.append(cstr!("options"), view.options.clone());
    row
}

pub(crate) fn parse_view_row(row: &RawDocument) -> Result<View, String> {
    let text = |error: bson::error::Error| error.to_string();
    Ok(View {
        namespace: Namespace::parse(row.get_str("ns").map_err(text)?).map_err(|error| error.to_string())?,
        view_on: row.get_str("viewOn").map_err(text)?.to_owned(),
        pipeline: row.get_array("pipeline").map_err(text)?.to_owned(),
        options: row.get_document("options").map_err(text)?.to_owned(),
    })
}
