//! Which tables there are. A view holds the registry of its position; changing one copies it, since tables come and go
//! seldom and views are taken all the time.

use engine::{EngineError, Result, TableId, TableSpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The tables at a position, by id.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    tables: BTreeMap<TableId, Arc<TableSpec>>,
}

impl Registry {
    pub(crate) fn check(&self, table: TableId) -> Result<()> {
        if self.tables.contains_key(&table) {
            Ok(())
        } else {
            Err(EngineError::NoSuchTable(table))
        }
    }

    pub(crate) fn get(&self, table: TableId) -> Option<&TableSpec> {
        self.tables.get(&table).map(Arc::as_ref)
    }

    pub(crate) fn insert(&mut self, table: TableId, spec: TableSpec) {
        self.tables.insert(table, Arc::new(spec));
    }

    pub(crate) fn remove(&mut self, table: TableId) -> bool {
        self.tables.remove(&table).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (TableId, &TableSpec)> {
        self.tables.iter().map(|(id, spec)| (*id, spec.as_ref()))
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.len()
    }
}
