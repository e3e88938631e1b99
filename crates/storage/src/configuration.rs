//! The configuration of the replica set as this server has it: a document of a collection of its own.

use crate::membership::{CONFIGURATION, Membership};
use crate::storage::Storage;
use crate::{Namespace, StorageError};
use bson::RawDocumentBuf;
use engine::{Direction, FillLimits, KeyRange, Rows, TableId};

impl Storage {
    /// The configuration of the replica set as it is applied.
    ///
    /// # Errors
    /// Those of reading.
    pub fn set_configuration(&self) -> Result<Option<RawDocumentBuf>, StorageError> {
        let Ok(namespace) = Namespace::parse(CONFIGURATION) else {
            return Ok(None);
        };
        let Some(collection) = self.catalog.collection(&namespace) else {
            return Ok(None);
        };
        let snapshot = self.engine.snapshot()?;
        let mut cursor = snapshot.cursor(collection.table(), KeyRange::all(), Direction::Forward)?;
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        if !cursor.fill(&mut rows, limits)? {
            return Ok(None);
        }
        let document = RawDocumentBuf::from_bytes(rows.value(0).to_vec());
        Ok(document.ok())
    }

    /// The table with the configuration.
    pub(crate) fn configuration_table(&self) -> Option<TableId> {
        let namespace = Namespace::parse(CONFIGURATION).ok()?;
        Some(self.catalog.collection(&namespace)?.table())
    }

    /// The members as they are applied; `None` when there never was another one.
    pub fn membership(&self) -> Result<Option<Membership>, StorageError> {
        let configuration = self.set_configuration()?;
        Ok(configuration.and_then(|document| Membership::of(&document, self.options.instance.as_ref())))
    }
}
