//! Data definition: creating, changing, renaming and dropping collections, views and indexes.
//!
//! One at a time (`Storage::definitions`). A definition changes under the collection's exclusive lock, as one log entry
//! that holds the new definition whole. Callers hold no collection guards: whoever waits here must not be waited for.
//! Nobody waits for a collection's lock in their turn: a long reader of one collection would hold up the definitions of
//! all others. Index builds are `build.rs`.

use crate::catalog::Entry;
use crate::catalog::collection::CollectionShared;
use crate::catalog::index::collation_in;
use crate::catalog::rows::{CollectionRow, IndexRow};
use crate::collection_change::{change_index, changed_options};
use crate::definition::Definition;
use crate::history::OPLOG;
use crate::history::commands::{commands_of, modified, view_command};
use crate::limits::WAIT_SLICE;
use crate::operation::DefinitionWaiter;
use crate::storage::Storage;
use crate::{
    Collection, CollectionChange, CollectionGuard, IndexSpec, LockMode, Namespace, Operation, StorageError, View,
};
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use engine::TableId;
use locks::{Claims, Held, Waiter};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What [`Storage::drop_collection`] dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropReport {
    /// Indexes it had, of a time-series collection without the one on its buckets' `_id`; 0 for a view.
    pub n_indexes_was: usize,
    /// It was a view.
    pub was_view: bool,
}

/// What is done about a collection that has the name which another one is to have.
#[derive(Clone, Copy)]
pub(crate) enum RenameTarget<'v> {
    /// There must be none.
    Refused,
    /// It goes.
    Dropped,
    /// It goes if the other one was made after it. With a view that there has to be then.
    Replaced {
        /// See above.
        view: Option<&'v Arc<View>>,
    },
}

impl RenameTarget<'_> {
    fn is_dropped(self) -> bool {
        !matches!(self, Self::Refused)
    }
}

impl Storage {
    /// Waits for the turn to change definitions.
    pub(crate) fn lock_definitions(&self, op: &Operation) -> Result<MutexGuard<'_, u32>, StorageError> {
        debug_assert_eq!(
            op.locks_held.load(Ordering::Relaxed),
            0,
            "data definition without collection guards"
        );
        self.next_turn(op)
    }

    /// The same, for who may have locked what concerns no reader. Writes are not held back while it lasts: whoever has
    /// the turn, and locks by then, does not wait for that.
    pub(crate) fn next_turn(&self, op: &Operation) -> Result<MutexGuard<'_, u32>, StorageError> {
        loop {
            self.wait_for_barrier(op)?;
            if let Some(turn) = self.next_turn_with_locks(op)? {
                return Ok(turn);
            }
        }
    }

    /// As [`Storage::next_turn`], for who has a collection locked. `None` while writes are held back: readers are not
    /// to wait for that.
    pub(crate) fn next_turn_with_locks(&self, op: &Operation) -> Result<Option<MutexGuard<'_, u32>>, StorageError> {
        let turn = self.next_turn_behind_barrier(op)?;
        Ok(Some(turn).filter(|_| self.barriers.load(Ordering::Acquire) == 0))
    }

    /// As [`Storage::next_turn`], whether writes are held back or not.
    pub(crate) fn next_turn_behind_barrier(&self, op: &Operation) -> Result<MutexGuard<'_, u32>, StorageError> {
        op.check_now()?;
        self.check_running()?;
        let turn = match self.definitions.try_lock() {
            Some(turn) => {
                self.lock_counts.definition();
                turn
            }
            None => {
                let _wait = op.begins_to_wait(LockMode::Exclusive);
                let turn = self.wait_for_turn(op);
                op.ends_to_wait();
                turn?
            }
        };
        self.await_definitions(op)?;
        let epoch = self.pipeline.epoch();
        self.definitions_epoch.store(epoch, Ordering::Release);
        Ok(turn)
    }

    /// Waits for what somebody defined who did not: in the turn the catalog has all that was proposed in turns before.
    fn await_definitions(&self, op: &Operation) -> Result<(), StorageError> {
        let Some((seq, epoch)) = *self.defined_meanwhile.lock() else {
            return Ok(());
        };
        // The operation may be told to end because the role has changed, while the entry still goes its way: of that
        // its epoch alone tells.
        let is_over = || epoch.is_some_and(|epoch| !self.pipeline.is_kept(seq, epoch));
        match self.wait_applied_in(op, seq, epoch) {
            Err(error) if !is_over() => return Err(error),
            // Lost with its leader, or to be applied before this server leads again.
            _ => {}
        }
        *self.defined_meanwhile.lock() = None;
        op.check_now()?;
        Ok(())
    }

    fn wait_for_turn(&self, op: &Operation) -> Result<MutexGuard<'_, u32>, StorageError> {
        loop {
            if let Some(turn) = self.definitions.try_lock_for(WAIT_SLICE) {
                self.lock_counts.definition();
                return Ok(turn);
            }
            op.check_now()?;
            self.check_running()?;
        }
    }

    /// Waits for the turn to change definitions, with the collections that `concerned` finds locked exclusively.
    ///
    /// 1. In the turn, when the catalog stands still, look for the collections and try their locks.
    /// 2. When one is taken, give the turn and all locks back and wait for that one, holding nothing. From here on
    ///    nobody new comes in anywhere: where several collections always have a reader, they would not all be free at
    ///    once. Readers do come in while a transaction has one of them. Where nothing has been changed yet, a
    ///    client that has gone may end this wait.
    /// 3. With that one lock, wait for the turn, and begin again. This cannot close a circle: whoever has the turn
    ///    waits for no collection lock, and whoever has a collection comes into others. While writes are held back the
    ///    lock is given back, too, and all may come in.
    pub(crate) fn lock_for_definition(
        &self,
        op: &Operation,
        concerned: impl Fn() -> Result<Vec<Arc<Collection>>, StorageError>,
    ) -> Result<(MutexGuard<'_, u32>, Vec<CollectionGuard>), StorageError> {
        let locked = self.lock_in_turn(op, concerned)?;
        // A writer that gave up waiting holds no lock any more, and what it proposed is still under way.
        self.settle(&|| Ok(op.check_now()?))?;
        Ok(locked)
    }

    /// As [`Storage::lock_for_definition`], of a server that leads or not: what is proposed may not have taken effect.
    pub(crate) fn lock_in_turn(
        &self,
        op: &Operation,
        concerned: impl Fn() -> Result<Vec<Arc<Collection>>, StorageError>,
    ) -> Result<(MutexGuard<'_, u32>, Vec<CollectionGuard>), StorageError> {
        let mut turn = self.lock_definitions(op)?;
        let mut waited: Option<(Arc<CollectionShared>, Held)> = None;
        let mut claims = None;
        loop {
            let mut guards = Vec::new();
            let mut taken = None;
            let concerned = concerned()?;
            let locks: Vec<_> = concerned.iter().map(|collection| collection.shared.clone()).collect();
            for collection in concerned {
                let held = match waited.take_if(|(shared, _)| Arc::ptr_eq(shared, &collection.shared)) {
                    Some((_, held)) => Some(held),
                    None => Held::try_take(&collection.shared.lock, op, LockMode::Exclusive),
                };
                match held {
                    Some(held) => guards.push(CollectionGuard::from_parts(collection, held)),
                    None => {
                        taken = Some(collection.shared.clone());
                        break;
                    }
                }
            }
            let Some(shared) = taken else {
                return Ok((turn, guards));
            };
            if locks.len() > 1 {
                // The former ones go when the new ones are there.
                claims = Some(Claims::new(locks.iter().map(|shared| shared.lock.clone()).collect()));
            }
            // The turn first: nobody is to wait for it while this waits.
            drop(turn);
            drop(guards);
            drop(waited.take());
            let waiter = DefinitionWaiter {
                op,
                claims: claims.as_ref(),
            };
            let held = self.lock_for(op, &waiter, &shared, LockMode::Exclusive)?;
            turn = match self.next_turn_with_locks(op)? {
                Some(turn) => {
                    waited = Some((shared, held));
                    turn
                }
                None => {
                    drop(held);
                    claims = None;
                    self.next_turn(op)?
                }
            };
        }
    }

    /// As [`Storage::lock_for_definition`], for one collection that has to exist.
    pub(crate) fn lock_existing(
        &self,
        op: &Operation,
        ns: &Namespace,
    ) -> Result<(MutexGuard<'_, u32>, CollectionGuard), StorageError> {
        let (turn, mut guards) = self.lock_for_definition(op, || match self.catalog.entry(ns) {
            None => Err(StorageError::NamespaceNotFound(ns.clone())),
            Some(Entry::View(_)) => Err(StorageError::IsView(ns.clone())),
            Some(Entry::Collection(collection)) => Ok(vec![collection]),
        })?;
        let guard = guards.pop().expect("the collection was found or this failed");
        Ok((turn, guard))
    }

    /// Does what needs names again for as long as they are a transaction's. The caller holds no locks.
    pub(crate) fn while_reserved<T>(
        &self,
        op: &Operation,
        mut attempt: impl FnMut() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        loop {
            // Before it looks: a name that is given back behind that is not waited for.
            let times = self.reserved.times_given_back();
            match attempt() {
                Err(StorageError::WriteConflict) => {}
                done => return done,
            }
            let _wait = op.begins_to_wait(LockMode::IntentExclusive);
            let ended = self.wait_for_names(op, times);
            op.ends_to_wait();
            ended?;
        }
    }

    fn wait_for_names(&self, op: &Operation, times: u64) -> Result<(), StorageError> {
        while self.reserved.times_given_back() == times {
            self.reserved.wait(times);
            op.check_now()?;
            self.check_running()?;
            op.waits_on();
        }
        Ok(())
    }

    /// Creates a collection with its `_id_` index, or a clustered one without. `options` are as given to `create`,
    /// checked by the caller.
    ///
    /// Errors: [`StorageError::NamespaceExists`] for any collection or view of the name;
    /// [`StorageError::DatabaseDiffersInCase`].
    pub fn create_collection(&self, op: &Operation, ns: &Namespace, options: &RawDocument) -> Result<(), StorageError> {
        self.while_reserved(op, || self.try_create_collection(op, ns, options, None))
    }

    /// The same with a uuid that it had elsewhere.
    ///
    /// Errors: as above, and [`StorageError::NamespaceExists`] naming the collection that has the uuid.
    pub fn create_collection_as(
        &self,
        op: &Operation,
        ns: &Namespace,
        options: &RawDocument,
        uuid: [u8; 16],
    ) -> Result<(), StorageError> {
        self.while_reserved(op, || self.try_create_collection(op, ns, options, Some(uuid)))
    }

    fn try_create_collection(
        &self,
        op: &Operation,
        ns: &Namespace,
        options: &RawDocument,
        uuid: Option<[u8; 16]>,
    ) -> Result<(), StorageError> {
        let mut next_table = self.lock_definitions(op)?;
        self.check_new_name(ns)?;
        let mut row = self.new_collection_row(ns, options, *next_table)?;
        if let Some(uuid) = uuid {
            if let Some(there) = self.catalog.collection_by_uuid(&uuid) {
                return Err(StorageError::NamespaceExists(there.namespace().clone()));
            }
            row.uuid = uuid;
        }
        self.commit_definitions(op, vec![self.define(row)?], &mut next_table)?;
        Ok(())
    }

    pub(crate) fn new_collection_row(
        &self,
        ns: &Namespace,
        options: &RawDocument,
        next_table: u32,
    ) -> Result<CollectionRow, StorageError> {
        let uuid = self.new_uuid();
        let id_index = IndexRow {
            table: TableId(next_table + 1),
            ready: true,
            spec: IndexSpec::id_index(collation_in(options)?),
        };
        let mut row = CollectionRow {
            namespace: ns.clone(),
            uuid,
            table: TableId(next_table),
            options: options.to_owned(),
            indexes: Vec::new(),
        };
        if !row.is_clustered() {
            row.indexes.push(id_index);
        }
        Ok(row)
    }

    /// A random UUID.
    pub fn new_uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        self.env.random.fill(&mut uuid);
        // Version 4, variant 1 (RFC 9562).
        uuid[6] = uuid[6] & 0x0F | 0x40;
        uuid[8] = uuid[8] & 0x3F | 0x80;
        uuid
    }

    /// Whether something of the name can be made: [`StorageError::WriteConflict`] while a transaction is about to.
    pub(crate) fn check_new_name(&self, ns: &Namespace) -> Result<(), StorageError> {
        if ns.as_str() == OPLOG && self.keeps_history() {
            return Err(StorageError::InvalidNamespace {
                name: ns.as_str().to_owned(),
                reason: "cannot write to the log of a replica set's member".to_owned(),
            });
        }
        if self.local_capped(ns).is_some() {
            return Err(StorageError::InvalidNamespace {
                name: ns.as_str().to_owned(),
                reason: "it is a collection of this member alone".to_owned(),
            });
        }
        if self.catalog.entry(ns).is_some() {
            return Err(StorageError::NamespaceExists(ns.clone()));
        }
        if self.reserved.has(ns) {
            return Err(StorageError::WriteConflict);
        }
        let other = self.catalog.case_conflict(ns.db());
        match other.or_else(|| self.reserved.case_conflict(ns.db())) {
            Some(existing) if !self.catalog.database_exists(ns.db()) => Err(StorageError::DatabaseDiffersInCase {
                existing,
                wanted: ns.db().to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Creates a view. Whether `view_on` makes a cycle or is too deep is for the caller to check. Errors as for
    /// [`Storage::create_collection`].
    pub fn create_view(
        &self,
        op: &Operation,
        ns: &Namespace,
        view_on: &str,
        pipeline: RawArrayBuf,
        options: &RawDocument,
    ) -> Result<(), StorageError> {
        self.while_reserved(op, || self.try_create_view(op, ns, view_on, pipeline.clone(), options))
    }

    fn try_create_view(
        &self,
        op: &Operation,
        ns: &Namespace,
        view_on: &str,
        pipeline: RawArrayBuf,
        options: &RawDocument,
    ) -> Result<(), StorageError> {
        let mut next_table = self.lock_definitions(op)?;
        self.check_new_name(ns)?;
        let (view_on, options) = (view_on.to_owned(), options.to_owned());
        let view = View {
            namespace: ns.clone(),
            view_on,
            pipeline,
            options,
        };
        self.commit_definitions(op, vec![Definition::PutView(Arc::new(view))], &mut next_table)?;
        Ok(())
    }

    /// Drops a collection or view, of a time-series collection its buckets, too. `None` when there is none of that
    /// name.
    pub fn drop_collection(&self, op: &Operation, ns: &Namespace) -> Result<Option<DropReport>, StorageError> {
        let (mut next_table, guards) = self.lock_for_definition(op, || {
            Ok(match self.catalog.entry(ns) {
                Some(Entry::Collection(collection)) => vec![collection],
                Some(Entry::View(view)) => self.catalog.buckets_of(&view).into_iter().collect(),
                None => Vec::new(),
            })
        })?;
        if let Some(guard) = guards.first() {
            let n_indexes_was = guard.maintained().count() - usize::from(guard.timeseries().is_some());
            let mut drop = vec![Definition::DropCollection(guard.definition().clone())];
            if guard.namespace() != ns {
                drop.push(Definition::DropView(ns.clone()));
            }
            self.commit_definitions(op, drop, &mut next_table)?;
            return Ok(Some(DropReport {
                n_indexes_was,
                was_view: false,
            }));
        }
        if self.catalog.entry(ns).is_none() {
            return Ok(None);
        }
        self.commit_definitions(op, vec![Definition::DropView(ns.clone())], &mut next_table)?;
        Ok(Some(DropReport {
            n_indexes_was: 0,
            was_view: true,
        }))
    }

    /// Drops everything in a database, as one change. False when there was nothing.
    pub fn drop_database(&self, op: &Operation, db: &str) -> Result<bool, StorageError> {
        let (mut next_table, guards) = self.lock_for_definition(op, || Ok(self.catalog.collections(db)))?;
        let dropped = guards
            .iter()
            .map(|guard| Definition::DropCollection(guard.definition().clone()));
        let views = self
            .catalog
            .views(db)
            .into_iter()
            .map(|view| Definition::DropView(view.namespace().clone()));
        let definitions: Vec<_> = dropped.chain(views).collect();
        if definitions.is_empty() {
            return Ok(false);
        }
        let commands = commands_of(&definitions, Some(db));
        self.commit_commands(op, definitions, &commands, &mut next_table)?;
        Ok(true)
    }

    /// Renames a collection, between databases too. With `drop_target` a collection of the new name is dropped in the
    /// same change. Errors: [`StorageError::NamespaceNotFound`], [`StorageError::NamespaceExists`],
    /// [`StorageError::IsView`].
    pub fn rename_collection(
        &self,
        op: &Operation,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<(), StorageError> {
        let target = match drop_target {
            true => RenameTarget::Dropped,
            false => RenameTarget::Refused,
        };
        self.while_reserved(op, || self.try_rename_collection(op, from, to, target))
    }

    /// Puts a collection in the place of another one that it was made after, and filled since, or of none.
    ///
    /// Errors: as for [`Storage::rename_collection`]; [`StorageError::TargetChanged`] when the other one has got other
    /// options or indexes meanwhile, which would be lost.
    pub fn replace_collection(&self, op: &Operation, with: &Namespace, ns: &Namespace) -> Result<(), StorageError> {
        let target = RenameTarget::Replaced { view: None };
        self.while_reserved(op, || self.try_rename_collection(op, with, ns, target))
    }

    pub(crate) fn try_rename_collection(
        &self,
        op: &Operation,
        from: &Namespace,
        to: &Namespace,
        target: RenameTarget<'_>,
    ) -> Result<(), StorageError> {
        let concerned = || {
            let source = match self.catalog.entry(from) {
                None => return Err(StorageError::NamespaceNotFound(from.clone())),
                Some(Entry::View(_)) => return Err(StorageError::IsView(from.clone())),
                Some(Entry::Collection(collection)) => collection,
            };
            match self.catalog.entry(to) {
                Some(Entry::Collection(there)) if target.is_dropped() && from != to => Ok(vec![source, there]),
                Some(_) => Err(StorageError::NamespaceExists(to.clone())),
                None => {
                    self.check_new_name(to)?;
                    Ok(vec![source])
                }
            }
        };
        let (mut next_table, guards) = self.lock_for_definition(op, concerned)?;
        let mut row = CollectionRow::of(&guards[0]);
        row.namespace = to.clone();
        let mut definitions = Vec::new();
        for there in &guards[1..] {
            if let RenameTarget::Replaced { .. } = target {
                check_made_after(&guards[0], there)?;
            }
            definitions.push(Definition::DropCollection(there.definition().clone()));
        }
        definitions.push(self.define(row)?);
        if let RenameTarget::Replaced { view: Some(view) } = target
            && self.is_missing(view)?
        {
            definitions.push(Definition::PutView(Arc::clone(view)));
        }
        self.commit_definitions(op, definitions, &mut next_table)?;
        Ok(())
    }

    /// Whether a view is to be made, in the turn: there is none of its name that is on the same collection.
    ///
    /// Errors: as for [`Storage::create_view`].
    fn is_missing(&self, view: &View) -> Result<bool, StorageError> {
        match self.catalog.entry(&view.namespace) {
            Some(Entry::View(there)) if there.view_on == view.view_on => Ok(false),
            _ => self.check_new_name(&view.namespace).map(|()| true),
        }
    }

    /// Drops one index. [`StorageError::IndexNotFound`], [`StorageError::CannotDropIdIndex`].
    pub fn drop_index(&self, op: &Operation, ns: &Namespace, name: &str) -> Result<usize, StorageError> {
        self.drop_indexes(op, ns, &[name.to_owned()])
    }

    /// Drops indexes, builds in progress included, all or none. Answers how many indexes there were before.
    pub fn drop_indexes(&self, op: &Operation, ns: &Namespace, names: &[String]) -> Result<usize, StorageError> {
        self.drop_chosen_indexes(op, ns, Some(names))
    }

    /// Drops all indexes there are but `_id_`, builds in progress included. Answers how many there were before.
    pub fn drop_all_indexes(&self, op: &Operation, ns: &Namespace) -> Result<usize, StorageError> {
        self.drop_chosen_indexes(op, ns, None)
    }

    /// Those of these names, or all.
    fn drop_chosen_indexes(
        &self,
        op: &Operation,
        ns: &Namespace,
        names: Option<&[String]>,
    ) -> Result<usize, StorageError> {
        let (mut next_table, guard) = self.lock_existing(op, ns)?;
        for name in names.into_iter().flatten() {
            let mut all = guard.access_paths().iter().chain(guard.building_indexes());
            match all.find(|index| index.name() == name) {
                None => return Err(StorageError::IndexNotFound(name.clone())),
                Some(index) if index.is_id() => return Err(StorageError::CannotDropIdIndex),
                Some(_) => {}
            }
        }
        let before = guard.access_paths().len() + guard.new_building_indexes().count();
        let mut row = CollectionRow::of(&guard);
        let there = row.indexes.len();
        row.indexes.retain(|index| match names {
            Some(names) => !names.contains(&index.spec.name),
            None => index.spec.is_id(),
        });
        if row.indexes.len() < there {
            self.commit_definitions(op, vec![self.define(row)?], &mut next_table)?;
        }
        Ok(before)
    }

    /// Changes a collection's or view's definition (`collMod`). Errors: [`StorageError::NamespaceNotFound`],
    /// [`StorageError::IndexNotFound`], [`StorageError::InvalidOptions`], [`StorageError::IsView`];
    /// [`StorageError::WriteConflict`] when an index was to become unique and the definition is another one than the
    /// one it was checked in, and when a view is another one than that which was to be changed.
    pub fn modify_collection(
        &self,
        op: &Operation,
        ns: &Namespace,
        change: &CollectionChange,
    ) -> Result<(), StorageError> {
        let (mut next_table, guards) = self.lock_for_definition(op, || match self.catalog.entry(ns) {
            None => Err(StorageError::NamespaceNotFound(ns.clone())),
            Some(Entry::View(_)) => Ok(Vec::new()),
            Some(Entry::Collection(collection)) => Ok(vec![collection]),
        })?;
        if let Some(Entry::View(view)) = self.catalog.entry(ns) {
            let Some(new) = &change.view else {
                return Err(StorageError::IsView(ns.clone()));
            };
            if new.former.as_ref().is_some_and(|former| **former != *view) {
                return Err(StorageError::WriteConflict);
            }
            let view = View {
                namespace: ns.clone(),
                view_on: new.view_on.clone(),
                pipeline: new.pipeline.clone(),
                options: view.options.clone(),
            };
            let commands = [view_command("collMod", &view)];
            self.commit_commands(
                op,
                vec![Definition::PutView(Arc::new(view))],
                &commands,
                &mut next_table,
            )?;
            return Ok(());
        }
        let guard = guards.first().expect("it is a collection, which was locked");
        if change.view.is_some() {
            return Err(StorageError::InvalidOptions(format!(
                "{ns} is a collection, not a view"
            )));
        }
        let mut row = CollectionRow::of(guard);
        if let Some(change) = &change.index {
            if change.unique_as_of.is_some_and(|version| version != guard.version()) {
                return Err(StorageError::WriteConflict);
            }
            change_index(&mut row, change)?;
        }
        row.options = changed_options(guard, change)?;
        let commands = [modified(guard, &row, change)];
        let definitions = vec![self.define(row)?];
        self.commit_commands(op, definitions, &commands, &mut next_table)?;
        Ok(())
    }
}

/// Whether a collection has the options and indexes of another one still, after which it was made.
fn check_made_after(made: &Collection, there: &Collection) -> Result<(), StorageError> {
    fn specs(collection: &Collection) -> BTreeMap<&str, RawDocumentBuf> {
        let others = collection.indexes().iter().filter(|index| !index.is_id());
        // One that is being built is nobody's yet: its builder is told that it is gone.
        others
            .map(|index| (index.name(), index.parsed_spec().clone().normalised().spec))
            .collect()
    }
    let changed = |what| Err(StorageError::TargetChanged(there.namespace().clone(), what));
    match () {
        () if made.options() != there.options() => changed("options"),
        () if specs(made) != specs(there) => changed("indexes"),
        () => Ok(()),
    }
}

#[cfg(test)]
#[path = "ddl_tests.rs"]
mod tests;
