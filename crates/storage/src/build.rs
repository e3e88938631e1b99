//! Building indexes while writes go on.
//!
//! 1. Under the exclusive lock the indexes enter the definition as *building* (logged). Every writer keeps them from
//!    then on. On an empty collection they enter as ready, and that is all.
//! 2. The builder walks the records in chunks. For each chunk, in one unit: lock the documents, read their newest
//!    versions, derive the keys, lock and check the unique ones; log one entry that names the record range. Chunks wait
//!    together to be applied.
//!    Records that come later than the walk's start are in the indexes by their writers; taking them again is harmless.
//! 3. Under the exclusive lock the indexes become *ready* (logged). On failure they are dropped instead, which a full
//!    disk puts off.
//!
//! Replay derives a chunk's keys from the records as they were at the entry, so an entry holds no keys. After a crash
//! the indexes are still building in the catalog, maintained, and possibly incomplete: the walk starts over on the same
//! tables, where writing a row again changes nothing.
//!
//! An index that is to be another one with the same name, as a unique one that is to take duplicates, or the same one
//! made anew, is built beside that, whose place it takes in step 3.
//!
//! A unique index that is being built may hide a duplicate the walk has not met. Its rows are therefore removed only
//! when they lead to the record that gives the key up (`IndexRow::check_owner`).

use crate::catalog::Entry;
use crate::catalog::rows::{CollectionRow, IndexRow};
use crate::effect::Evaluation;
use crate::index_keys::IndexWrites;
use crate::index_signature::{same_filter, same_projection};
use crate::limits::{
    BUILD_CHUNK_BYTES, BUILD_CHUNK_DOCUMENTS, FULL_DISK_PAUSE, GIVE_UP_PATIENCE_MS, INDEXES_MAX, WAIT_SLICE,
};
use crate::storage::Storage;
use crate::{
    Collection, CollectionGuard, IndexSpec, Interrupted, KillFlag, LockMode, Namespace, Operation, RecordBatch,
    RecordId, StorageError,
};
use bson::{RawDocument, RawDocumentBuf};
use engine::{Direction, FillLimits, TableId};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What [`Storage::create_indexes`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateIndexesReport {
    /// Indexes before.
    pub before: usize,
    /// Indexes after.
    pub after: usize,
    /// The collection did not exist.
    pub created_collection: bool,
    /// Nothing was to be done.
    pub all_existed: bool,
    /// There were documents to build them from.
    pub was_built: bool,
}

/// A build in progress: the collection and the tables of the indexes.
#[derive(Clone)]
pub(crate) struct Build {
    pub(crate) uuid: [u8; 16],
    pub(crate) tables: Vec<TableId>,
}

/// What [`Storage::start_build`] leaves to be done.
struct Started {
    build: Option<Build>,
    /// Indexes asked for that somebody else is building.
    elsewhere: Build,
    report: CreateIndexesReport,
}

impl Storage {
    /// Creates indexes, and the collection when it does not exist. Returns when they are ready, or when the build
    /// failed and they are gone again; writes go on meanwhile. All or none of the command's indexes come into being.
    ///
    /// Errors: [`StorageError::IndexOptionsConflict`], [`StorageError::IndexKeySpecsConflict`],
    /// [`StorageError::CannotCreateIndex`], [`StorageError::DuplicateKey`],
    /// [`StorageError::CannotIndexParallelArrays`], [`StorageError::IndexBuildAborted`], [`StorageError::IsView`].
    pub fn create_indexes(
        &self,
        op: &Operation,
        ns: &Namespace,
        specs: &[IndexSpec],
    ) -> Result<CreateIndexesReport, StorageError> {
        let Started {
            build,
            elsewhere,
            mut report,
        } = self.while_reserved(op, || self.start_build(op, ns, specs))?;
        if let Some(build) = &build {
            self.run_build(op, build)?;
        }
        self.wait_for_builds(op, &elsewhere)?;
        if let Some(collection) = self.catalog.collection_by_uuid(&elsewhere.uuid) {
            report.after = CollectionRow::of(&collection).index_count();
        }
        Ok(report)
    }

    /// Has a unique index take duplicates (`collMod` with `forceNonUnique`); one that does already stays as it is. Its
    /// rows have no room for two documents of one key unless it was made without `unique`: it is built anew then, and
    /// refuses duplicates until that is done.
    ///
    /// Errors: [`StorageError::NamespaceNotFound`], [`StorageError::IndexNotFound`], [`StorageError::IsView`],
    /// [`StorageError::InvalidOptions`] for `_id_`, [`StorageError::IndexBuildAborted`].
    pub fn make_index_non_unique(&self, op: &Operation, ns: &Namespace, name: &str) -> Result<(), StorageError> {
        loop {
            let (own, elsewhere) = self.start_successor(op, ns, name)?;
            if !own.tables.is_empty() {
                return self.run_build(op, &own);
            }
            if elsewhere.tables.is_empty() {
                return Ok(());
            }
            // It may be one that is made anew as it is (`reIndex`): look again.
            self.wait_for_builds(op, &elsewhere)?;
        }
    }

    /// Enters the successor of a unique index into the definition: what is to be built for it, and what somebody else
    /// is building.
    fn start_successor(&self, op: &Operation, ns: &Namespace, name: &str) -> Result<(Build, Build), StorageError> {
        let (mut next_table, guard) = self.lock_existing(op, ns)?;
        let mut row = CollectionRow::of(&guard);
        let uuid = row.uuid;
        let build = |tables| Build { uuid, tables };
        let mut of_name = (0..row.indexes.len()).filter(|place| row.indexes[*place].spec.name == name);
        let place = of_name
            .next()
            .ok_or_else(|| StorageError::IndexNotFound(name.to_owned()))?;
        if let Some(successor) = of_name.next() {
            return Ok((build(Vec::new()), build(vec![row.indexes[successor].table])));
        }
        let former = &row.indexes[place];
        if former.spec.is_id() {
            return Err(StorageError::InvalidOptions("the index _id_ is unique".to_owned()));
        }
        if former.spec.unique {
            check_no_equal(&row, place, false)?;
        }
        let former = &mut row.indexes[place];
        let mut tables = Vec::new();
        if former.spec.unique {
            let has_room = former.spec.records_in_keys;
            let spec = IndexSpec {
                unique: false,
                records_in_keys: false,
                ..former.spec.clone()
            }
            .normalised();
            let table = TableId(*next_table);
            match (has_room, self.is_empty(&guard)?) {
                (true, _) => former.spec = spec,
                (false, true) => {
                    *former = IndexRow {
                        table,
                        ready: true,
                        spec,
                    }
                }
                (false, false) => {
                    tables.push(table);
                    row.indexes.push(IndexRow {
                        table,
                        ready: false,
                        spec,
                    });
                }
            }
            self.commit_definitions(op, vec![self.define(row)?], &mut next_table)?;
        }
        Ok((build(tables), build(Vec::new())))
    }

    /// Waits until the indexes are ready. When their build fails, this fails too.
    fn wait_for_builds(&self, op: &Operation, build: &Build) -> Result<(), StorageError> {
        let mut changes = self.definition_changes.lock();
        while !build.tables.is_empty() {
            let collection = self.catalog.collection_by_uuid(&build.uuid);
            let indexes: Vec<_> = collection.iter().flat_map(|c| c.maintained()).collect();
            let state = |table: &TableId| {
                indexes
                    .iter()
                    .find(|index| index.table() == *table)
                    .map(|index| index.ready())
            };
            if build.tables.iter().all(|table| state(table) == Some(true)) {
                break;
            }
            if build.tables.iter().any(|table| state(table).is_none()) {
                return Err(StorageError::IndexBuildAborted(
                    "the build it waited for failed".to_owned(),
                ));
            }
            self.check_running()?;
            self.definitions_changed.wait_for(&mut changes, WAIT_SLICE);
            op.check_now()?;
        }
        Ok(())
    }

    /// Enters the indexes into the definition. No build is needed when there is none to make, or no record.
    fn start_build(&self, op: &Operation, ns: &Namespace, specs: &[IndexSpec]) -> Result<Started, StorageError> {
        // Most commands ask for what is there. They wait for no transaction on the collection, and hold nobody up.
        if let Some(Entry::Collection(collection)) = self.catalog.entry(ns)
            && let Some(started) = existing_indexes(&collection, specs)?
        {
            op.check_now()?;
            self.check_running()?;
            return Ok(started);
        }
        let (mut next_table, mut guards) = self.lock_for_definition(op, || match self.catalog.entry(ns) {
            None => Ok(Vec::new()),
            Some(Entry::View(_)) => Err(StorageError::IsView(ns.clone())),
            Some(Entry::Collection(collection)) => Ok(vec![collection]),
        })?;
        let existing = guards.pop();
        let mut row = match &existing {
            Some(guard) => CollectionRow::of(guard),
            None => {
                self.check_new_name(ns)?;
                self.new_collection_row(ns, &RawDocumentBuf::new(), *next_table)?
            }
        };
        let before = row.index_count();
        let ready = match &existing {
            Some(guard) => self.is_empty(guard)?,
            None => true,
        };
        let first_table = next_table.saturating_add(if existing.is_none() { 2 } else { 0 });
        let Added { tables, elsewhere } = add_indexes(&mut row, specs, first_table, ready)?;
        if row.index_count() > INDEXES_MAX {
            let text = format!("add index fails, too many indexes for {ns}, the limit is {INDEXES_MAX}");
            return Err(StorageError::CannotCreateIndex(text));
        }
        let report = CreateIndexesReport {
            before,
            after: row.index_count(),
            created_collection: existing.is_none(),
            all_existed: tables.is_empty(),
            was_built: !ready && !tables.is_empty(),
        };
        let uuid = row.uuid;
        if !tables.is_empty() || existing.is_none() {
            self.commit_definitions(op, vec![self.define(row)?], &mut next_table)?;
        }
        let build = report.was_built.then_some(Build { uuid, tables });
        Ok(Started {
            build,
            elsewhere: Build {
                uuid,
                tables: elsewhere,
            },
            report,
        })
    }

    /// Whether a collection that is locked exclusively has no document. Its records tell: without a journal the count
    /// may be an older one after a crash, and what is taken for empty gets indexes that nothing is walked for. What has
    /// some by its count is walked, whatever there is: there may be much to pass over in front of the first record.
    pub(crate) fn is_empty(&self, guard: &CollectionGuard) -> Result<bool, StorageError> {
        if guard.count() > 0 {
            return Ok(false);
        }
        let mut cursor = self
            .read()?
            .records(guard, Bound::Unbounded, Bound::Unbounded, Direction::Forward)?;
        let one = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        Ok(!cursor.fill(&mut RecordBatch::new(), one)?)
    }

    /// Steps 2 and 3.
    pub(crate) fn run_build(&self, op: &Operation, build: &Build) -> Result<(), StorageError> {
        op.outlives_client();
        self.figures.index_builds.fetch_add(1, Ordering::Relaxed);
        let built = self.try_build(op, build);
        let result = built.or_else(|error| self.give_build_up(op, build, error));
        self.figures.index_builds.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn try_build(&self, op: &Operation, build: &Build) -> Result<(), StorageError> {
        let walked = self.walk(op, build);
        // Of an error, too, nobody is told before what it follows from stays: what a lost leadership took along is no
        // reason to give the indexes up.
        let stays = self.wait_ahead(op).and_then(|()| self.wait_observed(op));
        stays.and(walked)?;
        self.end_build(op, build, true)
    }

    /// As [`Storage::run_build`], of all that was being built of a collection, by whatever commands: where they cannot
    /// be built together each is built, or given up, alone.
    fn run_resumed_build(&self, op: &Operation, build: &Build) -> Result<(), StorageError> {
        if build.tables.len() > 1 {
            self.figures.index_builds.fetch_add(1, Ordering::Relaxed);
            let built = self.try_build(op, build);
            self.figures.index_builds.fetch_sub(1, Ordering::Relaxed);
            match built {
                Ok(()) => return Ok(()),
                Err(error @ StorageError::Interrupted(_)) => return self.give_build_up(op, build, error),
                Err(_) => {}
            }
        }
        let mut result = Ok(());
        for &table in &build.tables {
            let alone = Build {
                uuid: build.uuid,
                tables: vec![table],
            };
            result = self.run_build(op, &alone).and(result);
        }
        result
    }

    /// Drops the indexes of a build that failed with an error, which is answered.
    fn give_build_up(&self, op: &Operation, build: &Build, error: StorageError) -> Result<(), StorageError> {
        // A storage that has stopped or closed resumes the build when it is opened again. As does the next leader.
        let is_ours = self.check_running().is_ok() && self.leads();
        let ends = matches!(
            error,
            StorageError::Interrupted(Interrupted::Shutdown | Interrupted::RoleChanged)
        );
        if !is_ours || ends {
            return Err(error);
        }
        // Whoever has run out of time, or was told to end, does not wait for long.
        let brief = Operation::new(self.env.clock.clone(), op.id);
        brief.set_deadline_ms(GIVE_UP_PATIENCE_MS);
        let ended = self.end_build(&brief, build, false);
        op.note_catalog_changes(brief.take_catalog_changes());
        match ended {
            // Without a builder they would be building for ever.
            Err(error) if passes(&error) => self.give_build_up_later(build.clone()),
            ended => ended?,
        }
        Err(error)
    }

    /// Drops the indexes of a build once the log has room for that, and nobody reads the collection.
    fn give_build_up_later(&self, build: Build) {
        let Some(me) = self.me.upgrade().filter(|_| self.options.background) else {
            return;
        };
        let kill: Arc<KillFlag> = Arc::default();
        me.spawn("index-builds", kill.clone(), move |storage| {
            // In turns: while this waits for a reader, no other one comes in. Locks are taken when there is room, not
            // to look for it.
            let end = |op: &Operation| {
                op.check_now()?;
                storage.wait_for_log_room()?;
                storage.end_build(op, &build, false)
            };
            loop {
                let op = Operation::with_kill_flag(storage.env.clock.clone(), 0, kill.clone());
                op.set_deadline_ms(GIVE_UP_PATIENCE_MS);
                let ended = end(&op);
                storage.tell_unasked(&op);
                if !storage.leads() || !matches!(&ended, Err(error) if passes(error)) {
                    return;
                }
                #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
                std::thread::sleep(FULL_DISK_PAUSE);
            }
        });
    }

    /// The collection by what does not change; an error when it or one of the indexes is gone.
    fn built(&self, build: &Build) -> Result<Arc<Collection>, StorageError> {
        let gone = |what: &str| StorageError::IndexBuildAborted(format!("{what} was dropped"));
        let collection = self
            .catalog
            .collection_by_uuid(&build.uuid)
            .ok_or_else(|| gone("the collection"))?;
        if building(&collection, build).count() != build.tables.len() {
            return Err(gone("the index"));
        }
        Ok(collection)
    }

    /// The collection, locked for the walk.
    fn build_guard(&self, op: &Operation, build: &Build) -> Result<CollectionGuard, StorageError> {
        loop {
            let collection = self.built(build)?;
            let guard = self.collection(op, collection.namespace(), LockMode::IntentExclusive)?;
            // Renamed, dropped or changed in between: look again.
            if let Some(guard) = guard
                && guard.uuid() == build.uuid
                && building(&guard, build).count() == build.tables.len()
            {
                return Ok(guard);
            }
        }
    }

    fn walk(&self, op: &Operation, build: &Build) -> Result<(), StorageError> {
        let mut after = Bound::Unbounded;
        let mut batch = RecordBatch::new();
        let limits = FillLimits {
            rows_max: BUILD_CHUNK_DOCUMENTS,
            bytes_max: BUILD_CHUNK_BYTES,
        };
        op.begins_walk(self.built(build)?.count());
        loop {
            let guard = self.build_guard(op, build)?;
            // A new view per chunk: nothing stays pinned, and the walk ends at the newest record.
            let mut cursor = self
                .read()?
                .records(&guard, after, Bound::Unbounded, Direction::Forward)?;
            if !cursor.fill(&mut batch, limits)? {
                return Ok(());
            }
            let (first, last) = (batch.id(0), batch.id(batch.len() - 1));
            self.build_chunk(
                op,
                &guard,
                build,
                (0..batch.len()).map(|row| batch.id(row)),
                (&first, &last),
            )?;
            op.has_walked(batch.len() as u64);
            after = Bound::Excluded(last);
        }
    }

    /// One chunk, evaluated again from the start when it meets a lock.
    fn build_chunk(
        &self,
        op: &Operation,
        guard: &CollectionGuard,
        build: &Build,
        ids: impl Iterator<Item = RecordId> + Clone,
        (first, last): (&RecordId, &RecordId),
    ) -> Result<(), StorageError> {
        loop {
            op.check_now()?;
            self.wait_for_room()?;
            let mut unit = self.begin_write(op);
            match unit.gather_chunk(guard, build, ids.clone()) {
                Ok(()) => {
                    unit.changes
                        .entry
                        .build_chunk(guard.table(), first, last, &build.tables);
                    unit.commit_ahead()?;
                    return Ok(());
                }
                Err(StorageError::WouldWait) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the build's indexes ready, or drops what is left of them. Those that are ready stay.
    fn end_build(&self, op: &Operation, build: &Build, ready: bool) -> Result<(), StorageError> {
        let (mut next_table, guards) = self.lock_for_definition(op, || {
            Ok(match ready {
                true => vec![self.built(build)?],
                // One that was dropped ends the build of the others, which have no other builder.
                false => self.catalog.collection_by_uuid(&build.uuid).into_iter().collect(),
            })
        })?;
        let Some(guard) = guards.first() else {
            return Ok(());
        };
        let mut row = CollectionRow::of(guard);
        let ours = |index: &IndexRow| build.tables.contains(&index.table);
        if !row.indexes.iter().any(ours) {
            return Ok(());
        }
        // Leadership went and came back while this waited: another builder has ended the build, and said so.
        if row.indexes.iter().any(|index| ours(index) && index.ready) {
            return Ok(());
        }
        match ready {
            true => {
                let built = row.indexes.iter_mut().filter(|index| ours(index));
                built.for_each(|index| index.ready = true);
                take_places(&mut row.indexes, &build.tables);
            }
            false => row.indexes.retain(|index| !ours(index)),
        }
        self.commit_definitions(op, vec![self.define(row)?], &mut next_table)?;
        Ok(())
    }

    /// Goes on with the builds that a stop interrupted: in the background, or at once where there is none.
    pub(crate) fn resume_index_builds(self: &Arc<Self>) -> Result<(), StorageError> {
        let interrupted = |collection: &Arc<Collection>| {
            let tables: Vec<_> = collection
                .building_indexes()
                .iter()
                .map(|index| index.table())
                .collect();
            (!tables.is_empty()).then_some(Build {
                uuid: collection.uuid(),
                tables,
            })
        };
        let builds: Vec<_> = self.catalog.all_collections().iter().filter_map(interrupted).collect();
        if builds.is_empty() {
            return Ok(());
        }
        self.report_progress(crate::RecoveryProgress::ResumingIndexBuilds {
            indexes: builds.iter().map(|build| build.tables.len()).sum(),
        });
        let op = Operation::new(self.env.clock.clone(), 0);
        if !self.options.background {
            // A build that fails on data drops its index; only a failing storage is an error of `open`.
            return builds
                .iter()
                .try_for_each(|build| self.run_resumed_build(&op, build).or_else(|_| self.check_running()));
        }
        self.spawn("index-builds", op.kill_handle(), move |storage| {
            for build in &builds {
                // The outcome is in the catalog: ready, dropped, or still building after a shutdown.
                let _ = storage.run_resumed_build(&op, build);
                storage.tell_unasked(&op);
            }
        });
        Ok(())
    }
}

/// Indexes that were built in the place of others of their names get it.
fn take_places(indexes: &mut Vec<IndexRow>, built: &[TableId]) {
    for table in built {
        let Some(place) = indexes.iter().position(|index| index.table == *table) else {
            continue;
        };
        let name = &indexes[place].spec.name;
        let former = indexes
            .iter()
            .position(|index| index.spec.name == *name && index.table != *table);
        if let Some(former) = former {
            indexes.swap(former, place);
            indexes.remove(place);
        }
    }
}

/// Whether the indexes of a build that is given up can be dropped later, as it was for want of space or of time.
fn passes(error: &StorageError) -> bool {
    error.passes() || matches!(error, StorageError::Interrupted(Interrupted::TimeExpired))
}

fn building<'g>(collection: &'g Collection, build: &'g Build) -> impl Iterator<Item = usize> + 'g {
    collection
        .maintained()
        .enumerate()
        .filter(|(_, index)| build.tables.contains(&index.table()))
        .map(|(position, _)| position)
}

/// What is left to be done where a collection has all of the indexes; `None` where it does not.
///
/// Errors: as [`add_indexes`].
fn existing_indexes(collection: &Collection, specs: &[IndexSpec]) -> Result<Option<Started>, StorageError> {
    let mut row = CollectionRow::of(collection);
    let (uuid, before) = (row.uuid, row.index_count());
    let Added { tables, elsewhere } = add_indexes(&mut row, specs, 0, true)?;
    Ok(tables.is_empty().then_some(Started {
        build: None,
        elsewhere: Build {
            uuid,
            tables: elsewhere,
        },
        report: CreateIndexesReport {
            before,
            after: before,
            created_collection: false,
            all_existed: true,
            was_built: false,
        },
    }))
}

/// What [`add_indexes`] did.
pub(crate) struct Added {
    /// Of the indexes that are new.
    pub(crate) tables: Vec<TableId>,
    /// Of those that somebody else is building.
    pub(crate) elsewhere: Vec<TableId>,
}

/// Adds the indexes that a definition does not have, with tables from `first_table` on.
///
/// Errors: [`StorageError::IndexOptionsConflict`], [`StorageError::IndexKeySpecsConflict`].
pub(crate) fn add_indexes(
    row: &mut CollectionRow,
    specs: &[IndexSpec],
    first_table: u32,
    ready: bool,
) -> Result<Added, StorageError> {
    let (mut tables, mut elsewhere) = (Vec::new(), Vec::new());
    for spec in specs {
        // That of an index which became unique is given where another collection is to have the same ones.
        let spec = IndexSpec {
            records_in_keys: false,
            ..spec.clone().normalised()
        };
        // The documents are in the order of `_id` by themselves.
        if spec.is_id() && row.is_clustered() {
            continue;
        }
        match existing_index(row, &spec)? {
            Some(index) if index.ready || tables.contains(&index.table) => {}
            Some(index) => elsewhere.push(index.table),
            None => {
                let table = TableId(first_table + tables.len() as u32);
                tables.push(table);
                row.indexes.push(IndexRow { table, ready, spec });
            }
        }
    }
    Ok(Added { tables, elsewhere })
}

/// Whether an index may become, or cease to be, unique: [`StorageError::IndexOptionsConflict`] where there would be two
/// of the same then.
pub(crate) fn check_no_equal(row: &CollectionRow, place: usize, unique: bool) -> Result<(), StorageError> {
    let changed = &row.indexes[place];
    let is_equal = |other: &&IndexRow| other.spec.unique == unique && is_same_but_unique(&other.spec, &changed.spec);
    // Its own successor has its name.
    let mut others = row.indexes.iter().filter(|other| other.spec.name != changed.spec.name);
    match others.find(is_equal) {
        None => Ok(()),
        Some(equal) => Err(StorageError::IndexOptionsConflict(format!(
            "Index already exists with a different name: {}",
            equal.spec.name
        ))),
    }
}

/// Whether two indexes are one, or would be if both were unique or neither: two of the same key may exist where more
/// differs.
fn is_same_but_unique(one: &IndexSpec, other: &IndexSpec) -> bool {
    same_pattern(one, other)
        && same_filter(one, other)
        && one.sparse == other.sparse
        && one.collation == other.collation
        && same_projection(one, other)
}

/// The index if it exists already, `None` if it may be made.
fn existing_index<'r>(row: &'r CollectionRow, spec: &IndexSpec) -> Result<Option<&'r IndexRow>, StorageError> {
    for index in &row.indexes {
        let existing = &index.spec;
        let same_index = existing.is_unique_as(spec) && is_same_but_unique(existing, spec);
        if existing.name == spec.name {
            if !same_index {
                return Err(StorageError::IndexKeySpecsConflict(format!(
                    "An existing index has the same name as the requested index. When index names are not specified, they \
                     are auto generated and can cause conflicts. Please refer to our documentation. Requested index: {}, \
                     existing index: {}",
                    shown(spec),
                    shown(existing)
                )));
            }
            if existing.same_options(spec) {
                return Ok(Some(index));
            }
            return Err(StorageError::IndexOptionsConflict(format!(
                "An equivalent index already exists with the same name but different options. Requested index: {}, \
                 existing index: {}",
                shown(spec),
                shown(existing)
            )));
        }
        if same_index {
            return Err(StorageError::IndexOptionsConflict(if existing.same_options(spec) {
                format!("Index already exists with a different name: {}", existing.name)
            } else {
                format!(
                    "An equivalent index already exists with a different name and options. Requested index: {}, existing \
                     index: {}",
                    shown(spec),
                    shown(existing)
                )
            }));
        }
    }
    if let Some(clustered) = IndexSpec::clustered(&row.options)?.filter(|clustered| clustered.name == spec.name) {
        return Err(StorageError::IndexKeySpecsConflict(format!(
            "An existing index has the same name as the requested index. When index names are not specified, they are \
             auto generated and can cause conflicts. Please refer to our documentation. Requested index: {}, existing \
             index: {}",
            shown(spec),
            shown(&clustered)
        )));
    }
    let text_index = row.indexes.iter().find(|index| is_text(&index.spec));
    match text_index.filter(|_| is_text(spec)) {
        Some(existing) => Err(StorageError::CannotCreateIndex(format!(
            "only one text index per collection allowed, found existing text index \"{}\"",
            existing.spec.name
        ))),
        None => Ok(None),
    }
}

fn is_text(spec: &IndexSpec) -> bool {
    spec.key
        .iter()
        .flatten()
        .any(|(name, value)| name.as_str() == keys::extract::TERM_FIELD && value == bson::RawBsonRef::String("text"))
}

fn shown(spec: &IndexSpec) -> String {
    keys::describe::describe_whole(bson::RawBsonRef::Document(&spec.spec))
}

/// Whether both are on the same fields with equal numbers, of whatever types: `{a: 2}` is another key than `{a: 1}`.
fn same_pattern(a: &IndexSpec, b: &IndexSpec) -> bool {
    keys::compare_documents(&a.key, &b.key).is_eq()
}

impl crate::WriteUnit<'_> {
    /// Locks the documents of a chunk and puts their keys into the batch. Documents that are gone are left out.
    fn gather_chunk(
        &mut self,
        guard: &CollectionGuard,
        build: &Build,
        ids: impl Iterator<Item = RecordId>,
    ) -> Result<(), StorageError> {
        let positions: Vec<_> = building(guard, build).collect();
        let mut writes = IndexWrites::take();
        for id in ids {
            let Some(document) = self.lock_record(guard, &id)? else {
                continue;
            };
            let document = RawDocument::from_bytes(document.as_ref()).map_err(|error| StorageError::CorruptRecord {
                namespace: guard.namespace().clone(),
                record: id.clone(),
                reason: error.to_string(),
            })?;
            writes.clear();
            for &position in &positions {
                let index = guard
                    .maintained()
                    .nth(position)
                    .expect("positions come from the same guard");
                let check = || self.evaluator.check();
                writes.derive_watched(position, index, &id, (None, Some(document)), &check)?;
            }
            self.changes
                .effect
                .settle(&mut self.evaluator, guard, &id, &mut writes)?;
            let rows = self.changes.effect.put_index_rows(&mut writes);
            self.note_index_rows(guard, rows, &mut writes);
        }
        writes.give_back();
        Ok(())
    }
}

#[cfg(test)]
#[path = "build_tests.rs"]
mod tests;
