//! The tables, those included that only older snapshots see.

use crate::table::Table;
use engine::{EngineError, Result, Seq, TableId};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[derive(Default)]
pub(crate) struct Catalog {
    tables: RwLock<BTreeMap<TableId, Arc<Table>>>,
    /// Those that the next checkpoint looks at.
    changed: Mutex<Vec<Arc<Table>>>,
}

impl Catalog {
    pub(crate) fn insert(&self, table: Arc<Table>) {
        self.tables.write().insert(table.id, table);
    }

    pub(crate) fn forget(&self, id: TableId) {
        self.tables.write().remove(&id);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// The table as the newest batch left it.
    pub(crate) fn live(&self, id: TableId) -> Result<Arc<Table>> {
        let tables = self.tables.read();
        let table = tables.get(&id).filter(|table| table.is_live());
        table.cloned().ok_or(EngineError::NoSuchTable(id))
    }

    /// The table as a snapshot at `seq` has it.
    pub(crate) fn at(&self, id: TableId, seq: Seq) -> Result<Arc<Table>> {
        let tables = self.tables.read();
        let table = tables.get(&id).filter(|table| table.lives_at(seq));
        table.cloned().ok_or(EngineError::NoSuchTable(id))
    }

    /// The next checkpoint shall look at a table.
    #[inline]
    pub(crate) fn note_change(&self, table: &Arc<Table>) {
        if !table.is_changed.load(Ordering::Acquire) && !table.is_changed.swap(true, Ordering::AcqRel) {
            self.changed.lock().push(table.clone());
        }
    }

    pub(crate) fn is_unchanged(&self) -> bool {
        self.changed.lock().is_empty()
    }

    /// Those that changed since the last time. What changes from now on is for the next.
    pub(crate) fn take_changed(&self) -> Vec<Arc<Table>> {
        let mut changed = std::mem::take(&mut *self.changed.lock());
        changed
            .iter()
            .for_each(|table| table.is_changed.store(false, Ordering::Release));
        changed.sort_by_key(|table| table.id);
        changed
    }

    /// Tables with messages in memory, the most first.
    pub(crate) fn by_memory(&self) -> Vec<(u64, Arc<Table>)> {
        let changed = self.changed.lock();
        let mut tables: Vec<_> = changed
            .iter()
            .map(|table| (table.memory_bytes(), table.clone()))
            .collect();
        drop(changed);
        tables.retain(|(bytes, _)| *bytes > 0);
        tables.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        tables
    }
}
