//! The number that a collection's next record gets.

use crate::storage::Storage;
use crate::{Collection, RecordId, RecordIds, StorageError};
use engine::{Direction, FillLimits, KeyRange, Rows};
use std::sync::atomic::Ordering;

impl Storage {
    /// Finds out which records of a collection there are, when it is changed for the first time: opening does not read
    /// anything of collections that nobody uses. Changes of several threads may do it at once; none of them goes on
    /// before it has.
    pub(crate) fn know_next_record(&self, collection: &Collection) -> Result<(), StorageError> {
        let shared = &collection.shared;
        if collection.record_ids() == RecordIds::Keys {
            return Ok(());
        }
        if shared.next_is_known.load(Ordering::Acquire) {
            return Ok(());
        }
        let snapshot = self.engine.snapshot()?;
        let mut cursor = snapshot.cursor(collection.table(), KeyRange::all(), Direction::Reverse)?;
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        if cursor.fill(&mut rows, limits)?
            && let Some(RecordId::Number(last)) = RecordId::from_key(RecordIds::Numbers, rows.key(0))
        {
            shared.saw_record(last);
            shared.published(last);
        }
        shared.next_is_known.store(true, Ordering::Release);
        Ok(())
    }
}
