//! Deleting expired documents.
//!
//! A pass looks at every TTL index: the entries from the first date up to `now - expireAfterSeconds`. The documents are
//! deleted in small units by the ordinary write path, some of which wait together, each looked at again under its lock.
//! Entries of other types than dates are outside the range; a document with an array of dates goes when the earliest
//! expires, for it has an entry for each. Of a clustered collection that expires the range is one of documents. What
//! somebody has locked for longer is left to the next pass.
//!
//! Of a time-series collection whole buckets go, when none of their measurements can be younger: `_id` tells when a
//! bucket begins, the options how long it is at most, and `control.max`, looked at under the lock, when its last
//! measurement was. Ids have no time before 1970: where nothing younger has expired, nothing goes.

use crate::effect::Evaluation;
use crate::index_keys::IndexWrites;
use crate::limits::{TTL_LEFT_MAX, TTL_PATIENCE_MS, TTL_STEP_DOCUMENTS, TTL_UNIT_DOCUMENTS};
use crate::storage::Storage;
use crate::{
    Check, Collection, CollectionGuard, Index, IndexBatch, Interrupted, LockMode, Operation, RecordId, StorageError,
    WriteUnit,
};
use bson::oid::ObjectId;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use bson::{DateTime, RawDocument};
use engine::{Direction, FillLimits, KeyRange};
use keys::key::{Edge, KeyInterval};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What has expired.
struct Expired {
    /// The entries that lead to it.
    keys: KeyInterval,
    /// Of buckets: the field with the time, and the last time, in milliseconds, of one that has expired.
    last: Option<(String, i64)>,
}

impl Storage {
    /// Changes the time between passes (`ttlMonitorSleepSecs`); zero: only on demand.
    pub fn set_ttl_sleep(&self, sleep: Duration) {
        self.ttl.set_sleep(sleep);
    }

    /// Switches passes on and off (`ttlMonitorEnabled`).
    pub fn set_ttl_enabled(&self, enabled: bool) {
        self.ttl.set_enabled(enabled);
    }

    /// Runs one pass now. Answers the number of documents deleted. What cannot be read is told, counted, and left where
    /// it is; the pass goes on behind it.
    ///
    /// Errors: the pass was interrupted, or nothing can be written.
    pub fn run_ttl_pass(&self) -> Result<u64, StorageError> {
        // The leader deletes for all members.
        if !self.leads() {
            return Ok(0);
        }
        let op = Operation::with_kill_flag(self.env.clock.clone(), 0, self.ttl.kill.clone());
        let mut deleted = 0;
        let result = self.expire_all(&op, &mut deleted);
        self.figures.ttl_deleted.fetch_add(deleted, Ordering::Relaxed);
        result?;
        self.figures.ttl_passes.fetch_add(1, Ordering::Relaxed);
        Ok(deleted)
    }

    fn expire_all(&self, op: &Operation, deleted: &mut u64) -> Result<(), StorageError> {
        op.set_document_patience_ms(TTL_PATIENCE_MS);
        for collection in self.catalog.all_collections() {
            let bucket_ms = collection.timeseries().map_or(0, |options| options.span_ms());
            let before = |seconds: i64| {
                let now_ms = self.env.clock.now_ms();
                now_ms
                    .saturating_sub(seconds.saturating_mul(1000))
                    .saturating_sub(bucket_ms)
            };
            if let Some(options) = collection.timeseries()
                && let Some(seconds) = options.expire_after_seconds
                && let Some(keys) = bucket_ids(collection.id_index(), before(seconds))
            {
                let last_ms = before(seconds).saturating_add(bucket_ms);
                let expired = Expired {
                    keys,
                    last: Some((options.time_field.clone(), last_ms)),
                };
                if let Err(error) = self.expire(op, &collection, collection.id_index(), &expired, deleted) {
                    self.leave(&collection, error)?;
                }
            }
            for index in collection.access_paths() {
                let Some(seconds) = index.expire_after_seconds() else {
                    continue;
                };
                let expired = Expired {
                    keys: dates(index, before(seconds)),
                    last: None,
                };
                if let Err(error) = self.expire(op, &collection, index, &expired, deleted) {
                    self.leave(&collection, error)?;
                }
            }
        }
        Ok(())
    }

    /// Tells of what cannot be read, so that the pass can go on; every other error ends it.
    fn leave(&self, collection: &Collection, error: StorageError) -> Result<(), StorageError> {
        match error {
            StorageError::Interrupted(_)
            | StorageError::OutOfSpace(_)
            | StorageError::OutOfDescriptors(_)
            | StorageError::Log(_)
            | StorageError::Stopped(_)
            | StorageError::Closed => Err(error),
            error => {
                self.figures.ttl_failures.fetch_add(1, Ordering::Relaxed);
                if let Some(handler) = &self.options.on_ttl_failure {
                    handler(collection.namespace(), &error);
                }
                Ok(())
            }
        }
    }

    fn expire(
        &self,
        op: &Operation,
        collection: &Collection,
        index: &Index,
        expired: &Expired,
        deleted: &mut u64,
    ) -> Result<(), StorageError> {
        let mut left = BTreeSet::new();
        // Where the step before ended. From the range's start a step would pass over all that the ones before it have
        // deleted.
        let mut position = None;
        loop {
            op.check_now()?;
            // A collection or index that is gone or changed is looked at anew by the next pass.
            let guard = match self.collection(op, collection.namespace(), LockMode::IntentExclusive) {
                Ok(Some(guard)) if guard.version() == collection.version() && guard.uuid() == collection.uuid() => {
                    guard
                }
                Ok(_) | Err(StorageError::IsView(_)) => return Ok(()),
                Err(error) => return Err(error),
            };
            let Some(mut ids) = self.expired_records(index, &expired.keys, &mut position)? else {
                return Ok(());
            };
            ids.retain(|id| !left.contains(id));
            *deleted += self.delete_expired(op, &guard, index, expired, &ids, &mut left)?;
            if left.len() >= TTL_LEFT_MAX {
                return Ok(());
            }
        }
    }

    /// The next records that the range leads to behind a position, which moves on; `None` where there are no more, and
    /// where it cannot move on: damaged entries have no position.
    fn expired_records(
        &self,
        index: &Index,
        expired: &KeyInterval,
        position: &mut Option<(Vec<u8>, RecordId)>,
    ) -> Result<Option<Vec<RecordId>>, StorageError> {
        let range = KeyRange {
            start: expired.start.clone(),
            end: expired.end.clone(),
        };
        let mut cursor = self.read()?.index_entries(index, range, Direction::Forward)?;
        if let Some((key, id)) = position {
            cursor.seek(key, Some(id))?;
        }
        let mut batch = IndexBatch::new();
        let limits = FillLimits {
            rows_max: TTL_STEP_DOCUMENTS,
            bytes_max: 1 << 20,
        };
        cursor.fill(&mut batch, limits)?;
        let is_passed = !batch.is_empty()
            && position
                .as_ref()
                .is_some_and(|(key, id)| batch.key(0) == key && batch.id(0) == *id);
        let mut rows = usize::from(is_passed)..batch.len();
        if is_passed && rows.is_empty() {
            // One that carries a long document fills a batch by itself.
            cursor.fill(&mut batch, limits)?;
            rows = 0..batch.len();
        }
        let Some(last) = rows.clone().rev().find(|row| !batch.key(*row).is_empty()) else {
            return Ok(None);
        };
        let next = Some((batch.key(last).to_vec(), batch.id(last)));
        if *position == next {
            return Ok(None);
        }
        let mut ids: Vec<_> = rows.map(|row| batch.id(row)).collect();
        *position = next;
        ids.sort_unstable();
        ids.dedup();
        Ok(Some(ids))
    }

    /// Deletes what has expired of these records; it is gone on return.
    fn delete_expired(
        &self,
        op: &Operation,
        guard: &CollectionGuard,
        index: &Index,
        expired: &Expired,
        ids: &[RecordId],
        left: &mut BTreeSet<RecordId>,
    ) -> Result<u64, StorageError> {
        let mut unit = self.begin_write(op);
        let (mut deleted, mut ids) = (0, ids.iter().peekable());
        while let Some(&id) = ids.peek() {
            if unit.operations() >= TTL_UNIT_DOCUMENTS {
                unit.commit_ahead()?;
                unit = self.begin_write(op);
            }
            match delete_if_expired(&mut unit, guard, index, expired, id) {
                Ok(gone) => {
                    deleted += u64::from(gone);
                    if !gone {
                        left.insert(id.clone());
                    }
                    ids.next();
                }
                Err(StorageError::WouldWait) => {
                    unit.commit_ahead()?;
                    unit = self.begin_write(op);
                }
                // A transaction, perhaps: everything else that has expired would wait for it.
                Err(StorageError::Interrupted(Interrupted::LockTimeout(_))) => {
                    op.set_document_patience_ms(0);
                    left.insert(id.clone());
                    ids.next();
                }
                Err(error) => {
                    self.leave(guard, error)?;
                    left.insert(id.clone());
                    ids.next();
                }
            }
        }
        unit.commit_ahead()?;
        self.wait_ahead(op)?;
        Ok(deleted)
    }
}

/// The entries of dates up to `last_ms`.
fn dates(index: &Index, last_ms: i64) -> KeyInterval {
    KeyInterval::new(
        &[],
        Edge::Bracket(keys::canonical_type(ElementType::DateTime)),
        Edge::Included(RawBsonRef::DateTime(DateTime::from_millis(last_ms))),
        index.pattern().ordering(),
        None,
    )
}

/// The entries of buckets that begin at `last_ms` at the latest; `None` before 1970, of which ids have no times.
fn bucket_ids(index: &Index, last_ms: i64) -> Option<KeyInterval> {
    let last_ms = u64::try_from(last_ms).ok()?;
    let mut last = [0xFF; 12];
    // The second of `last_ms` may have later milliseconds: buckets begin at whole seconds, those at its begin are in.
    // The last second stands for all times behind it, too.
    let seconds = u32::try_from(last_ms / 1000).unwrap_or(u32::MAX).min(u32::MAX - 1);
    last[..4].copy_from_slice(&seconds.to_be_bytes());
    Some(KeyInterval::new(
        &[],
        Edge::Bracket(keys::canonical_type(ElementType::ObjectId)),
        Edge::Included(RawBsonRef::ObjectId(ObjectId::from_bytes(last))),
        index.pattern().ordering(),
        None,
    ))
}

/// Whether the last measurement of a bucket is at `last_ms` at the latest. What does not tell has not expired.
fn has_ended(bucket: &RawDocument, time_field: &str, last_ms: i64) -> bool {
    let greatest = bucket
        .get_document("control")
        .and_then(|control| control.get_document("max"));
    let time = greatest.and_then(|greatest| greatest.get_datetime(time_field));
    time.is_ok_and(|time| time.timestamp_millis() <= last_ms)
}

/// Whether an index leads to a document by a key in an interval; as long as `check` lets it.
fn leads_there(
    index: &Index,
    id: &RecordId,
    document: &RawDocument,
    keys: &KeyInterval,
    check: &Check<'_>,
) -> Result<bool, StorageError> {
    let mut writes = IndexWrites::take();
    writes.derive_watched(0, index, id, (None, Some(document)), check)?;
    let leads = writes.rows.iter().any(|row| keys.contains(row.key));
    writes.give_back();
    Ok(leads)
}

fn delete_if_expired(
    unit: &mut WriteUnit<'_>,
    guard: &CollectionGuard,
    index: &Index,
    expired: &Expired,
    id: &RecordId,
) -> Result<bool, StorageError> {
    let Some(document) = unit.lock_record(guard, id)? else {
        return Ok(false);
    };
    let document = RawDocument::from_bytes(document.as_ref()).map_err(|error| StorageError::CorruptRecord {
        namespace: guard.namespace().clone(),
        record: id.clone(),
        reason: error.to_string(),
    })?;
    let still = match index.is_clustered() {
        true => expired.keys.contains(&id.to_key()),
        false => leads_there(index, id, document, &expired.keys, &|| unit.evaluator.check())?,
    };
    let still = still
        && expired
            .last
            .as_ref()
            .is_none_or(|(time_field, last_ms)| has_ended(document, time_field, *last_ms));
    if still {
        unit.delete(guard, id, document)?;
    }
    Ok(still)
}

#[cfg(test)]
#[path = "ttl_tests.rs"]
mod tests;
