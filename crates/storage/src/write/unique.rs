//! Who has a unique key: what a unit locks, and where it looks for others that have it.
//!
//! Where an index has one row for each key, that row says it. The rows of an index that is only prepared to be unique,
//! or was when it became unique, end with the record's id: there all rows that begin with the key are looked at.

use super::Evaluator;
use crate::effect::Evaluation;
use crate::index_keys::IndexWrites;
use crate::index_rows::IndexRow;
use crate::overlay::Overlay;
use crate::{RecordIds, StorageError};
use bytes::Bytes;
use engine::{Direction, EngineError, FillLimits, KeyRange, Rows, TableId};
use locks::{LockKey, key_hash};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows of one key that are read at once: nearly always there is one.
const HOLDERS_AT_ONCE: usize = 4;

impl Evaluation for Evaluator<'_> {
    const CHECKS_UNIQUE: bool = true;

    fn check(&self) -> Result<(), StorageError> {
        Ok(self.op.check_now()?)
    }

    fn row_bytes_left(&self) -> u64 {
        self.op.memory().left()
    }

    fn lock_unique(&mut self, ids: RecordIds, writes: &IndexWrites) -> Result<(), StorageError> {
        self.charge(writes.rows.bytes())?;
        if !writes.rows.has_unique() {
            return Ok(());
        }
        let taken = |row: &IndexRow<'_>| row.unique && row.value.is_some();
        let lock = |row: IndexRow<'_>| LockKey {
            table: row.table,
            key: key_hash(row.bare_key(ids)),
        };
        let mut unique = writes.rows.iter().filter(taken);
        match (unique.next(), unique.next()) {
            (None, _) => {}
            (Some(only), None) => self.take_locks(&[lock(only)])?,
            _ => {
                let mut locks: Vec<_> = writes.rows.iter().filter(taken).map(lock).collect();
                locks.sort_unstable();
                self.take_locks(&locks)?;
            }
        }
        self.refresh_snapshot()
    }

    fn row(&mut self, overlay: &mut Overlay, table: TableId, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        if let Some(own) = overlay.find(table, key) {
            return Ok(own.cloned());
        }
        // What is pending is behind the snapshot of a transaction, and its lock would not have been given.
        if self.isolated_at.is_none() && self.storage.pending.is_used() {
            // Looked at first: what is pending then belongs to this epoch or an earlier one.
            let epoch = self.storage.pipeline.epoch();
            if let Some((seq, value)) = self.storage.pending.get(table, key) {
                self.op.observe(seq, epoch);
                return Ok(value);
            }
            // What was pending a moment ago has been published: only a snapshot taken from here on is sure to have it.
            self.refresh_snapshot()?;
        }
        match self.snapshot().get(table, key) {
            // Of a collection that came after a transaction's snapshot.
            Err(EngineError::NoSuchTable(_)) if self.isolated_at.is_some() => Ok(None),
            found => Ok(found?),
        }
    }
    fn is_held_by_another(
        &mut self,
        overlay: &mut Overlay,
        table: TableId,
        key: &[u8],
        own: &[u8],
    ) -> Result<bool, StorageError> {
        // Whether a row is there, as whoever has changed it last says: pending changes, then the unit's own.
        let mut changed: BTreeMap<Bytes, bool> = BTreeMap::new();
        if self.isolated_at.is_none() && self.storage.pending.is_used() {
            // As for a single row: looked at before the snapshot is taken.
            let epoch = self.storage.pipeline.epoch();
            for (row, seq, is_there) in self.storage.pending.with_prefix(table, key) {
                self.op.observe(seq, epoch);
                changed.insert(row, is_there);
            }
            self.refresh_snapshot()?;
        }
        changed.extend(
            overlay
                .with_prefix(table, key)
                .map(|(row, is_there)| (row.clone(), is_there)),
        );
        if changed.iter().any(|(row, is_there)| *is_there && row != own) {
            return Ok(true);
        }
        let range = KeyRange {
            start: Bound::Included(key.to_vec()),
            end: Bound::Unbounded,
        };
        let mut cursor = match self.snapshot().clone().cursor(table, range, Direction::Forward) {
            Err(EngineError::NoSuchTable(_)) if self.isolated_at.is_some() => return Ok(false),
            cursor => cursor?,
        };
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: HOLDERS_AT_ONCE,
            ..FillLimits::default()
        };
        while cursor.fill(&mut rows, limits)? {
            self.check()?;
            for i in 0..rows.len() {
                let row = rows.key(i);
                // Of values no key is the beginning of another one: what begins so has this key.
                if !row.starts_with(key) {
                    return Ok(false);
                }
                if row != own && changed.get(row) != Some(&false) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
