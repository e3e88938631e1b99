//! Rows of the catalog and statistics tables: bytes and back. `docs/formats/catalog.md` describes them.

use crate::catalog::collection::{CollectionShared, capped_limits};
use crate::catalog::index::IndexShared;
use crate::{Collection, Index, IndexSpec, Namespace, PredicateCompiler, StorageError, View};
use bson::raw::cstr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocument, RawDocumentBuf};
use engine::TableId;
use keys::MultikeyPaths;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The table of definitions.
pub(crate) const CATALOG: TableId = TableId(1);
/// The table of counts.
pub(crate) const STATISTICS: TableId = TableId(2);
/// Format of the catalog, the log entries and the index rows together.
pub(crate) const FORMAT_VERSION: u32 = 1;

pub(crate) const META_KEY: &[u8] = b"m";
pub(crate) const COLLECTION_PREFIX: u8 = b'c';
pub(crate) const VIEW_PREFIX: u8 = b'v';
pub(crate) const MULTIKEY_PREFIX: u8 = b'k';
/// In [`STATISTICS`], behind the table id.
pub(crate) const COUNT_SUFFIX: u8 = 0;
pub(crate) const BYTES_SUFFIX: u8 = 1;

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

pub(crate) fn statistics_key(table: TableId, suffix: u8) -> [u8; 5] {
    let [a, b, c, d] = table.0.to_be_bytes();
    [a, b, c, d, suffix]
}

/// The row that holds what belongs to no collection.
pub(crate) fn meta_row(next_table: u32) -> Vec<u8> {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("format"), i64::from(FORMAT_VERSION));
    row.append(cstr!("nextTable"), i64::from(next_table));
    row.into_bytes()
}

/// Reads [`meta_row`]: the next table id.
pub(crate) fn read_meta_row(bytes: &[u8]) -> Result<u32, StorageError> {
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
    number("nextTable")
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
            indexes.push(row);
        }
        let mut row = RawDocumentBuf::new();
        row.append(cstr!("ns"), self.namespace.as_str());
        row.append(
            cstr!("uuid"),
            Binary {
                subtype: BinarySubtype::Uuid,
                bytes: self.uuid.to_vec(),
            },
        );
        row.append(cstr!("table"), i64::from(self.table.0));
        row.append(cstr!("options"), self.options.clone());
        row.append(cstr!("indexes"), indexes);
        row
    }

    /// Reads [`CollectionRow::to_document`]; errors say what is wrong.
    pub(crate) fn parse(row: &RawDocument) -> Result<Self, String> {
        let text = |error: bson::error::Error| error.to_string();
        let uuid = row.get_binary("uuid").map_err(text)?.bytes;
        let mut indexes = Vec::new();
        for index in row.get_array("indexes").map_err(text)? {
            let index = index.map_err(text)?;
            let index = index.as_document().ok_or("an index is not a document")?;
            indexes.push(IndexRow {
                table: table(index)?,
                ready: index.get_bool("ready").map_err(text)?,
                spec: IndexSpec::from_document(index.get_document("spec").map_err(text)?).map_err(|e| e.to_string())?,
            });
        }
        if !indexes
            .first()
            .is_some_and(|index| index.ready && index.spec.name == "_id_")
        {
            return Err("the first index is not _id_".to_owned());
        }
        Ok(Self {
            namespace: Namespace::parse(row.get_str("ns").map_err(text)?).map_err(|error| error.to_string())?,
            uuid: uuid.try_into().map_err(|_| format!("uuid has {} bytes", uuid.len()))?,
            table: table(row)?,
            options: row.get_document("options").map_err(text)?.to_owned(),
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
        for row in &self.indexes {
            let former = former.and_then(|former| former.maintained().find(|index| index.table() == row.table));
            let shared = former.map_or_else(
                || IndexShared::new(multikey.get(&row.table), now_ms),
                |former| former.shared().clone(),
            );
            let index = Arc::new(Index::new(&row.spec, row.table, row.ready, compiler, shared)?);
            if row.ready { &mut ready } else { &mut building }.push(index);
        }
        let capped = capped_limits(&self.options);
        Ok(Collection {
            namespace: self.namespace.clone(),
            uuid: self.uuid,
            capped,
            options: self.options.clone(),
            table: self.table,
            indexes: ready.into(),
            building: building.into(),
            version: former.map_or(1, |former| former.version + 1),
            shared: former.map_or_else(
                || CollectionShared::new(capped.is_some()),
                |former| former.shared.clone(),
            ),
        })
    }
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
