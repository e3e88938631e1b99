//! States that are read for longer than a call: collections and indexes come and go meanwhile.

use crate::catalog::rows::{self, CATALOG, CollectionRow};
use crate::overlay_view::OverlaySnapshot;
use crate::storage::Storage;
use crate::{Catalog, Collection, Index, Namespace, ReadView, StorageError};
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

    /// Whether what a name stands for now can be read in it: [`StorageError::SnapshotUnavailable`] when it stood for
    /// another collection then, or when an index came later.
    pub fn check(&self, catalog: &Catalog, ns: &Namespace, now: Option<&Collection>) -> Result<(), StorageError> {
        self.snapshot.check(catalog, ns, now, false)
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
        // The usual case. The look comes after the one for the collection.
        if catalog.changes() == self.changes {
            return Ok(());
        }
        self.check_name(ns, now, is_for_writers)?;
        let Some(now) = now else { return Ok(()) };
        check_indexes(self.snapshot.as_ref(), now)?;
        match is_for_writers {
            true => check_unique_indexes(self.snapshot.as_ref(), now),
            false => Ok(()),
        }
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

/// An index that came, or was ready, after a snapshot does not show all documents in it, and must not be read.
fn check_indexes(snapshot: &dyn Snapshot, collection: &Collection) -> Result<(), StorageError> {
    // That on `_id` comes with the collection.
    let mut others = collection.indexes().iter().filter(|index| !index.is_id()).peekable();
    if others.peek().is_none() || !has_table(snapshot, collection.table())? {
        return Ok(());
    }
    let row = snapshot.get(CATALOG, &rows::collection_key(&collection.uuid()))?;
    let ready = row.map_or_else(|| Ok(Vec::new()), |row| rows::ready_tables(&row))?;
    match others.all(|index| ready.contains(&index.table())) {
        true => Ok(()),
        false => Err(StorageError::SnapshotUnavailable(collection.namespace().clone())),
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
