//! States that are read for longer than a call: collections and indexes come and go meanwhile.

use crate::catalog::rows::{self, CATALOG, CollectionRow};
use crate::overlay_view::OverlaySnapshot;
use crate::storage::Storage;
use crate::{Collection, Index, ReadView, StorageError};
use bson::RawDocument;
use engine::{EngineError, Snapshot, TableId};
use std::sync::Arc;

/// A state that stays. A collection that came later has no documents in it.
#[derive(Clone)]
pub struct PinnedView {
    snapshot: Arc<dyn Snapshot>,
    view: ReadView,
}

impl PinnedView {
    /// What is read.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// Whether a collection can be read in it by its indexes: [`StorageError::SnapshotUnavailable`] when one came
    /// later.
    pub fn check(&self, collection: &Collection) -> Result<(), StorageError> {
        check_indexes(self.snapshot.as_ref(), collection)
    }
}

impl Storage {
    /// The newest state, to be kept.
    pub fn read_pinned(&self) -> Result<PinnedView, StorageError> {
        let snapshot = self.engine.snapshot()?;
        let view = ReadView::new(Arc::new(OverlaySnapshot::new(snapshot.clone(), Arc::default())));
        Ok(PinnedView { snapshot, view })
    }
}

/// An index that came, or was ready, after a snapshot does not show all documents in it, and must not be read.
pub(crate) fn check_indexes(snapshot: &dyn Snapshot, collection: &Collection) -> Result<(), StorageError> {
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
pub(crate) fn check_unique_indexes(snapshot: &dyn Snapshot, collection: &Collection) -> Result<(), StorageError> {
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
