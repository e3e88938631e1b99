//! States that are read for longer than a call: collections and indexes come and go meanwhile.

use crate::overlay_view::OverlaySnapshot;
use crate::storage::Storage;
use crate::{Collection, ReadView, StorageError};
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

/// An index that came after a snapshot shows nothing in it, and must not be read.
pub(crate) fn check_indexes(snapshot: &dyn Snapshot, collection: &Collection) -> Result<(), StorageError> {
    if !has_table(snapshot, collection.table())? {
        return Ok(());
    }
    for index in collection.indexes() {
        if !has_table(snapshot, index.table())? {
            return Err(StorageError::SnapshotUnavailable(collection.namespace().clone()));
        }
    }
    Ok(())
}

fn has_table(snapshot: &dyn Snapshot, table: TableId) -> Result<bool, StorageError> {
    match snapshot.get(table, b"") {
        Ok(_) => Ok(true),
        Err(EngineError::NoSuchTable(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
