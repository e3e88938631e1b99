//! States that are read for longer than a call: collections and indexes come and go meanwhile.

use crate::catalog::rows::{self, CATALOG, CollectionRow};
use crate::overlay_view::OverlaySnapshot;
use crate::storage::Storage;
use crate::{Catalog, Collection, CollectionGuard, Index, Namespace, ReadView, StorageError};
use bson::RawDocument;
use engine::{Direction, EngineError, FillLimits, KeyRange, Rows, Seq, Snapshot, TableId};
use std::sync::Arc;

/// A state that stays. A collection that came later has no documents in it.
#[derive(Clone)]
pub struct PinnedView {
    snapshot: DatedSnapshot,
    view: ReadView,
}

impl PinnedView {
    /// What is read.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// The entry whose state it is.
    pub fn seq(&self) -> Seq {
        self.snapshot.snapshot.seq()
    }

    /// What a name stands for now, as it can be read in it: without the indexes that came, or were ready, later. Those
    /// that a plan has begun with stay.
    ///
    /// Errors: [`StorageError::SnapshotUnavailable`] when the name stood for another collection then, or it is locked
    /// for writing and an index came later.
    pub fn readable(
        &self,
        catalog: &Catalog,
        ns: &Namespace,
        now: Option<CollectionGuard>,
    ) -> Result<Option<CollectionGuard>, StorageError> {
        if self.snapshot.is_current(catalog) {
            return Ok(now);
        }
        self.snapshot.check_name(ns, now.as_deref(), false)?;
        let Some(now) = now else { return Ok(None) };
        let readable = ReadableIndexes::of(self.snapshot.snapshot.as_ref(), &now)?;
        match now.indexes().iter().all(|index| readable.has(index)) {
            true => Ok(Some(now)),
            // Whoever writes keeps all of them.
            false if now.is_for_writers() => Err(StorageError::SnapshotUnavailable(ns.clone())),
            false => {
                let seen = now.with_indexes(|index| readable.has(index));
                Ok(Some(now.seen_as(seen)))
            }
        }
    }
}

impl Storage {
    /// The newest state, to be kept.
    pub fn read_pinned(&self) -> Result<PinnedView, StorageError> {
        let snapshot = DatedSnapshot::newest(self)?;
        let view = ReadView::new(Arc::new(OverlaySnapshot::new(
            snapshot.snapshot.clone(),
            Arc::default(),
        )));
        Ok(PinnedView { snapshot, view })
    }
}

/// A snapshot that definitions can be held against.
#[derive(Clone)]
pub(crate) struct DatedSnapshot {
    pub(crate) snapshot: Arc<dyn Snapshot>,
    /// [`Catalog::changes`] before it was taken.
    changes: u64,
}

impl DatedSnapshot {
    pub(crate) fn newest(storage: &Storage) -> Result<Self, StorageError> {
        let changes = storage.catalog().changes();
        let snapshot = storage.engine.snapshot()?;
        Ok(Self { snapshot, changes })
    }

    /// Whether `now`, what a name stands for in the catalog, can be used together with what the snapshot shows: it is
    /// the collection that had the name then, or, for reading, one that came later where there was none.
    ///
    /// Errors: [`StorageError::SnapshotUnavailable`]; for writers [`StorageError::WriteConflict`], where the name is
    /// another collection's.
    pub(crate) fn check(
        &self,
        catalog: &Catalog,
        ns: &Namespace,
        now: Option<&Collection>,
        is_for_writers: bool,
    ) -> Result<(), StorageError> {
        if self.is_current(catalog) {
            return Ok(());
        }
        self.check_name(ns, now, is_for_writers)?;
        let Some(now) = now else { return Ok(()) };
        let readable = ReadableIndexes::of(self.snapshot.as_ref(), now)?;
        if !now.indexes().iter().all(|index| readable.has(index)) {
            return Err(StorageError::SnapshotUnavailable(now.namespace().clone()));
        }
        match is_for_writers {
            true => check_unique_indexes(self.snapshot.as_ref(), now),
            false => Ok(()),
        }
    }

    /// The usual case: nothing was defined since. The look comes after the one for a collection.
    fn is_current(&self, catalog: &Catalog) -> bool {
        catalog.changes() == self.changes
    }

    fn check_name(&self, ns: &Namespace, now: Option<&Collection>, is_for_writers: bool) -> Result<(), StorageError> {
        let row = now.map(|now| self.snapshot.get(CATALOG, &rows::collection_key(&now.uuid())));
        let row = row.transpose()?.flatten();
        let name = row.as_deref().map(rows::name_in).transpose()?;
        match name {
            Some(name) if name == ns.as_str() => Ok(()),
            _ if now.is_some() && is_for_writers => Err(StorageError::WriteConflict),
            None if !self.has(ns)? => Ok(()),
            _ if is_for_writers => Err(StorageError::WriteConflict),
            _ => Err(StorageError::SnapshotUnavailable(ns.clone())),
        }
    }

    /// Whether the name is a collection's in it.
    fn has(&self, ns: &Namespace) -> Result<bool, StorageError> {
        let range = KeyRange::prefix(&[rows::COLLECTION_PREFIX]);
        let mut cursor = self.snapshot.clone().cursor(CATALOG, range, Direction::Forward)?;
        let mut found = Rows::new();
        while cursor.fill(&mut found, FillLimits::default())? {
            for row in 0..found.len() {
                if rows::name_in(found.value(row))? == ns.as_str() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// The indexes that can be read in a snapshot: one that came, or was ready, later does not show all documents in it.
enum ReadableIndexes {
    /// There is no document to be missed.
    All,
    Ready(Vec<TableId>),
}

impl ReadableIndexes {
    fn of(snapshot: &dyn Snapshot, collection: &Collection) -> Result<Self, StorageError> {
        let has_others = collection.indexes().iter().any(|index| !index.is_id());
        if !has_others || !has_table(snapshot, collection.table())? {
            return Ok(Self::All);
        }
        let row = snapshot.get(CATALOG, &rows::collection_key(&collection.uuid()))?;
        let ready = row.map_or_else(|| Ok(Vec::new()), |row| rows::ready_tables(&row))?;
        Ok(Self::Ready(ready))
    }

    fn has(&self, index: &Index) -> bool {
        match self {
            Self::All => true,
            // That on `_id` comes with the collection.
            Self::Ready(ready) => index.is_id() || ready.contains(&index.table()),
        }
    }
}

/// Whoever writes looks for duplicates in its snapshot, and learns of what came behind it by the locks of keys. An
/// index that began to refuse them later has no locks of what was written until then.
fn check_unique_indexes(snapshot: &dyn Snapshot, collection: &Collection) -> Result<(), StorageError> {
    // Those that were unique from the start came with their tables.
    let began_later = |index: &&Arc<Index>| index.refuses_duplicates() && !index.has_unique_rows();
    if !collection.maintained().any(|index| began_later(&index)) {
        return Ok(());
    }
    let row = snapshot.get(CATALOG, &rows::collection_key(&collection.uuid()))?;
    let row = row.and_then(|row| CollectionRow::parse(RawDocument::from_bytes(&row).ok()?).ok());
    let refused_then = |index: &Arc<Index>| {
        let mut then = row.iter().flat_map(|row| &row.indexes);
        then.any(|then| then.table == index.table() && (then.spec.unique || then.spec.prepare_unique && then.ready))
    };
    match collection.maintained().filter(began_later).all(refused_then) {
        true => Ok(()),
        false => Err(StorageError::SnapshotUnavailable(collection.namespace().clone())),
    }
}

fn has_table(snapshot: &dyn Snapshot, table: TableId) -> Result<bool, StorageError> {
    match snapshot.get(table, b"") {
        Ok(_) => Ok(true),
        Err(EngineError::NoSuchTable(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
