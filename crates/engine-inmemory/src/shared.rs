//! What the engine and its snapshots share.

use crate::table::Table;
use engine::{EngineError, EngineStatus, Result, Seq, TableId};
use parking_lot::RwLock;
use pins::Pins;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Tables and open snapshots.
///
/// Lock order: `tables`, then one table's rows; [`Pins`] is taken alone.
pub(crate) struct Shared {
    /// Every table a snapshot may see, dropped ones included.
    tables: RwLock<BTreeMap<TableId, Arc<Table>>>,
    /// Memory of the rows of all of them, and of those of dropped tables that are not freed yet.
    memory: Arc<AtomicUsize>,
    pub(crate) pins: Pins,
    pub(crate) status: EngineStatus,
}

impl Shared {
    pub(crate) fn new(tables: impl IntoIterator<Item = Table>, published: Seq) -> Self {
        let memory = Arc::default();
        let counted = |mut table: Table| {
            table.count_in(&memory);
            (table.id, Arc::new(table))
        };
        let tables = tables.into_iter().map(counted).collect();
        Self {
            tables: RwLock::new(tables),
            memory,
            pins: Pins::new(published),
            status: EngineStatus::default(),
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.status.check_running()
    }

    /// Calls `read` on the table if a snapshot at `seq` has it.
    #[inline]
    pub(crate) fn with_table<T>(&self, id: TableId, seq: Seq, read: impl FnOnce(&Arc<Table>) -> T) -> Result<T> {
        match self.tables.read().get(&id) {
            Some(table) if table.exists_at(seq) => Ok(read(table)),
            _ => Err(EngineError::NoSuchTable(id)),
        }
    }

    /// The table as the newest batch left it.
    pub(crate) fn live_table(&self, id: TableId) -> Result<Arc<Table>> {
        match self.tables.read().get(&id) {
            Some(table) if table.is_live() => Ok(Arc::clone(table)),
            _ => Err(EngineError::NoSuchTable(id)),
        }
    }

    /// The tables a snapshot at `seq` has, by id.
    pub(crate) fn tables_at(&self, seq: Seq) -> Vec<Arc<Table>> {
        self.tables
            .read()
            .values()
            .filter(|table| table.exists_at(seq))
            .cloned()
            .collect()
    }

    /// Every table there is, dropped ones that a snapshot may still see included.
    pub(crate) fn all_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    /// Memory of all rows, and of what is kept of them for open snapshots.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.load(Relaxed) as u64
    }

    /// Takes from it what was freed of rows that belong to no table any more.
    pub(crate) fn forget_memory(&self, bytes: usize) {
        self.memory.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn insert_table(&self, mut table: Table) {
        table.count_in(&self.memory);
        self.tables.write().insert(table.id, Arc::new(table));
    }

    pub(crate) fn remove_table(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.write().remove(&id)
    }
}
