//! Checking a collection, its figures, and compaction.
//!
//! `validate` works on one view beside ongoing writes, and reads each table once, from end to end: see `consistency`.
//! The counts are those of the same moment.

use crate::consistency;
use crate::history::OPLOG;
use crate::limits::WAIT_SLICE;
use crate::report::{CollectionStats, CompactReport, IndexStats, Inspect, ValidateReport, unless_damaged};
use crate::storage::Storage;
use crate::{Collection, Interrupted, LockMode, Namespace, Operation, StorageError};
use engine::{EngineError, Maintenance, MaintenanceReport, TableId};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

impl Storage {
    /// Checks a collection: see the module. `full` also has the engine check the tables' blocks. Errors are about the
    /// call; damage is in the report.
    pub fn validate(&self, op: &Operation, ns: &Namespace, full: bool) -> Result<ValidateReport, StorageError> {
        self.validate_with(op, ns, full, &mut |_, _| Ok(()))
    }

    /// As [`Storage::validate`], and shows `inspect` each well-formed document.
    pub fn validate_with(
        &self,
        op: &Operation,
        ns: &Namespace,
        full: bool,
        inspect: Inspect<'_>,
    ) -> Result<ValidateReport, StorageError> {
        let guard = self.existing(op, ns, LockMode::IntentShared)?;
        let (view, counted) = {
            // Counts change under it, when what they count is published.
            let _applying = self.pipeline.applying.lock();
            (self.read()?, Counted::of(&guard))
        };
        let mut report = ValidateReport::default();
        let checked = consistency::check(op, &guard, &view, &mut report, inspect);
        // Without all records, the counts cannot be compared with them.
        if let Some(Some(data_bytes)) = unless_damaged(checked, &mut report)? {
            let found = Counted {
                documents: report.n_records as i64,
                bytes: data_bytes as i64,
            };
            self.mend_counts(&guard, counted, found, &mut report);
        }
        if full {
            for table in guard.tables() {
                op.check_now()?;
                self.verify_table(op, table, &mut report)?;
            }
        }
        Ok(report)
    }

    /// Puts counts right that differ from what was found. Changes since are counted on top of either.
    fn mend_counts(&self, collection: &Collection, counted: Counted, found: Counted, report: &mut ValidateReport) {
        if counted == found {
            return;
        }
        for (counted, found, what) in [
            (counted.documents, found.documents, "documents"),
            (counted.bytes, found.bytes, "bytes of documents"),
        ] {
            if counted != found {
                let text = format!("the catalog counts {counted} {what}, there are {found}: corrected");
                // Without a journal a crash leaves the counts as they were written down last.
                match self.options.journal {
                    true => report.error(text),
                    false => report.warnings.push(text),
                }
            }
        }
        let mut applied = self.pipeline.applying.lock();
        let shared = &collection.shared;
        shared
            .count
            .fetch_add(found.documents - counted.documents, Ordering::AcqRel);
        shared
            .data_bytes
            .fetch_add(found.bytes - counted.bytes, Ordering::AcqRel);
        applied.counts_changed(collection);
    }

    fn verify_table(&self, op: &Operation, table: TableId, report: &mut ValidateReport) -> Result<(), StorageError> {
        match self.maintain_for(op, &Maintenance::Verify(Some(table))) {
            Ok(found) => found.problems.into_iter().for_each(|problem| report.error(problem)),
            Err(StorageError::Engine(EngineError::Unsupported { .. })) => {
                report
                    .warnings
                    .push(format!("the engine cannot verify {table:?} by itself"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Maintenance by the engine, as long as the operation may.
    fn maintain_for(&self, op: &Operation, task: &Maintenance) -> Result<MaintenanceReport, StorageError> {
        let done = self.engine.maintain_while(task, &|| op.check_now().is_ok());
        done.map_err(|error| match error {
            EngineError::Interrupted => op.check_now().err().unwrap_or(Interrupted::Killed).into(),
            error => error.into(),
        })
    }

    /// Figures of a collection. [`StorageError::NamespaceNotFound`], [`StorageError::IsView`].
    pub fn collection_stats(&self, ns: &Namespace) -> Result<CollectionStats, StorageError> {
        if self.catalog.view(ns).is_some() {
            return Err(StorageError::IsView(ns.clone()));
        }
        if ns.as_str() == OPLOG && self.keeps_history() {
            return Ok(self.history_stats());
        }
        if let Some(stats) = self.local_stats(ns) {
            return Ok(stats);
        }
        let collection = self
            .catalog
            .collection(ns)
            .ok_or_else(|| StorageError::NamespaceNotFound(ns.clone()))?;
        let table = self.engine.table_stats(collection.table())?;
        let mut details = Vec::new();
        self.engine.table_details(collection.table(), &mut |name, value| {
            details.push((name.to_owned(), value))
        })?;
        let mut indexes = Vec::new();
        for index in collection.maintained() {
            let table = self.engine.table_stats(index.table())?;
            indexes.push(IndexStats {
                name: index.name().to_owned(),
                storage_bytes: table.storage_bytes,
                free_bytes: table.free_bytes,
                memory_bytes: table.memory_bytes,
                building: !index.ready(),
            });
        }
        Ok(CollectionStats {
            count: collection.count(),
            data_bytes: collection.data_bytes(),
            storage_bytes: table.storage_bytes,
            free_bytes: table.free_bytes,
            memory_bytes: table.memory_bytes,
            details,
            indexes,
            capped: collection.is_capped(),
            clustered_index: collection
                .clustered_index()
                .map(|index| (index.name().to_owned(), index.spec().to_owned())),
        })
    }

    /// Gives space back to the file system. An engine that cannot says so ([`EngineError::Unsupported`]). One at a
    /// time: waits for another one as long as the operation may, and while writes are held back, as somebody copies the
    /// files.
    pub fn compact(&self, op: &Operation, ns: &Namespace) -> Result<CompactReport, StorageError> {
        // Before the collection's lock: the other one may take hours, and nobody else shall wait for it here.
        let _turn = self.wait_to_compact(op)?;
        let _compaction = self.begin_compaction(op)?;
        // The lock is not kept: behind who wants the collection for itself meanwhile everybody else would wait, too.
        // To the engine it is the same as what it moves unasked: its tables may go under it.
        let done = loop {
            let tables = self.existing(op, ns, LockMode::IntentShared)?.tables().collect();
            match self.maintain_for(op, &Maintenance::Compact(Some(tables))) {
                // Dropped meanwhile: the collection, which the next look tells, or an index.
                Err(StorageError::Engine(EngineError::NoSuchTable(_))) => op.check_now()?,
                done => break done?,
            }
        };
        let bytes_freed = done.bytes_freed;
        Ok(CompactReport { bytes_freed })
    }

    fn wait_to_compact(&self, op: &Operation) -> Result<MutexGuard<'_, ()>, StorageError> {
        loop {
            if let Some(turn) = self.compacting.try_lock_for(WAIT_SLICE) {
                return Ok(turn);
            }
            op.check_now()?;
            self.check_running()?;
        }
    }
}

/// Documents and bytes of a collection.
#[derive(Clone, Copy, PartialEq)]
struct Counted {
    documents: i64,
    bytes: i64,
}

impl Counted {
    fn of(collection: &Collection) -> Self {
        Self {
            documents: collection.shared.count.load(Ordering::Acquire),
            bytes: collection.shared.data_bytes.load(Ordering::Acquire),
        }
    }
}

#[cfg(test)]
#[path = "validate_tests.rs"]
mod tests;
