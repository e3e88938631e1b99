//! What changes do: one engine batch, and changes of what is kept in memory beside the engine.
//!
//! The only derivation there is. A unit derives its effect change by change while it is evaluated; recovery derives the
//! same from an entry (`fold.rs`). What differs between the two is an [`Evaluation`]: a unit locks and checks unique
//! keys, recovery knows that this was done. An effect owns what it holds: it outlives the unit.

use crate::catalog::collection::CollectionShared;
use crate::catalog::rows::{self, CATALOG, STATISTICS};
use crate::cluster_time::ClusterTime;
use crate::definition::Definition;
use crate::duplicate_key::duplicate_key;
use crate::index_keys::{IndexWrites, Versions};
use crate::membership::is_configuration;
use crate::overlay::Overlay;
use crate::record::split_from_start;
use crate::session_key::SessionKey;
use crate::sessions::SessionEffect;
use crate::{Collection, Index, Namespace, RecordId, RecordIds, StorageError};
use bytes::Bytes;
use engine::{Batch, KEY_BYTES_MAX, Op, Seq, TableId, VALUE_BYTES_MAX};
use keys::MultikeyPaths;
use std::sync::Arc;

/// What evaluating a change stands on.
pub(crate) trait Evaluation {
    /// Locks the unique keys that the rows take, and makes sure that [`Evaluation::row`] shows the newest state.
    fn lock_unique(&mut self, ids: RecordIds, writes: &IndexWrites) -> Result<(), StorageError>;

    /// A row in its newest version, those of `overlay` included.
    fn row(&mut self, overlay: &mut Overlay, table: TableId, key: &[u8]) -> Result<Option<Bytes>, StorageError>;

    /// Whether a record other than `own` has a key in an index whose rows end with the record's id; `own` is a whole
    /// row's key. The newest state counts, with `overlay` on top.
    fn is_held_by_another(
        &mut self,
        overlay: &mut Overlay,
        table: TableId,
        key: &[u8],
        own: &[u8],
    ) -> Result<bool, StorageError>;

    /// Whether the operation may go on.
    fn check(&self) -> Result<(), StorageError>;

    /// Bytes of memory that index rows may take.
    fn row_bytes_left(&self) -> u64;

    /// Whether somebody else may have a unique key.
    const CHECKS_UNIQUE: bool;
}

/// What a unit's [`Effect`] was before a statement.
pub(crate) struct EffectSavepoint {
    operations: usize,
    collections: Vec<CollectionEffect>,
}

/// What is done to one collection.
#[derive(Clone)]
pub(crate) struct CollectionEffect {
    pub(crate) collection: Arc<Collection>,
    pub(crate) count: i64,
    pub(crate) bytes: i64,
    /// The highest number of a record that it inserts; 0 without any.
    pub(crate) last_inserted: u64,
    /// Capped: the number of the first record that was there before and has not been evicted.
    pub(crate) evict_from: u64,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Effect {
    pub(crate) overlay: Overlay,
    pub(crate) collections: Vec<CollectionEffect>,
    pub(crate) multikey: Vec<(Arc<Index>, MultikeyPaths)>,
    /// Each with the entry that makes it.
    pub(crate) definitions: Vec<(Definition, Seq)>,
    /// Names of tables that are no longer needed, and the entry from which on all are known that are.
    pub(crate) forgotten_names: Vec<(TableId, Seq)>,
    pub(crate) names_from: Option<Seq>,
    /// Of a unit that belongs to a session.
    pub(crate) session: Option<Box<SessionEffect>>,
    pub(crate) forgotten_sessions: Vec<SessionKey>,
    /// There is a table of sessions from here on.
    pub(crate) keeps_sessions: bool,
    /// When its entry was made.
    pub(crate) time: ClusterTime,
    /// All counts have been written down: what has changed since is told by the entries from behind this one on.
    pub(crate) counted_at: Option<Seq>,
}

impl Effect {
    /// What is done to a collection so far.
    pub(crate) fn of(&mut self, collection: &Arc<Collection>) -> &mut CollectionEffect {
        let shared = &collection.shared;
        let found = self
            .collections
            .iter()
            .position(|effect| Arc::ptr_eq(&effect.collection.shared, shared));
        let place = found.unwrap_or_else(|| {
            self.collections.push(CollectionEffect {
                collection: collection.clone(),
                count: 0,
                bytes: 0,
                last_inserted: 0,
                evict_from: 0,
            });
            self.collections.len() - 1
        });
        &mut self.collections[place]
    }

    /// What it is so far, for [`Effect::roll_back`].
    pub(crate) fn savepoint(&self) -> EffectSavepoint {
        EffectSavepoint {
            operations: self.overlay.batch.ops().len(),
            collections: self.collections.clone(),
        }
    }

    /// Forgets what was gathered since.
    pub(crate) fn roll_back(&mut self, to: EffectSavepoint) {
        self.overlay.truncate(to.operations);
        self.collections = to.collections;
    }

    /// Derives the index rows of a change, and leaves out what the state does not want. Changes nothing.
    pub(crate) fn evaluate<E: Evaluation>(
        &mut self,
        evaluation: &mut E,
        collection: &Collection,
        id: &RecordId,
        versions: Versions<'_>,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        writes.rows.bytes_max = evaluation.row_bytes_left();
        writes.derive_checked(collection, id, versions, &|| evaluation.check())?;
        self.settle(evaluation, collection, id, writes)
    }

    /// Checks that nobody else has the unique keys of `writes`, and takes out removals of rows of other records (see
    /// `IndexRow::check_owner`).
    pub(crate) fn settle<E: Evaluation>(
        &mut self,
        evaluation: &mut E,
        collection: &Collection,
        id: &RecordId,
        writes: &mut IndexWrites,
    ) -> Result<(), StorageError> {
        let (ids, own) = (collection.record_ids(), id.to_key());
        evaluation.lock_unique(ids, writes)?;
        let mut of_others = Vec::new();
        for row in writes.rows.iter() {
            let takes_key = E::CHECKS_UNIQUE && row.unique && row.value.is_some();
            if takes_key && row.record_in_key {
                if evaluation.is_held_by_another(&mut self.overlay, row.table, row.bare_key(ids), row.key)? {
                    return Err(duplicate_key(collection, &row));
                }
            } else if takes_key || row.check_owner {
                let found = evaluation.row(&mut self.overlay, row.table, row.key)?;
                let holder = found
                    .as_deref()
                    .and_then(|value| split_from_start(ids, value))
                    .map(|(id, _)| id);
                if row.check_owner && holder != Some(&*own) {
                    of_others.push(row.place());
                } else if row.value.is_some() && holder.is_some_and(|holder| holder != &*own) {
                    return Err(duplicate_key(collection, &row));
                }
            }
        }
        for place in of_others {
            writes.rows.leave_out(place);
        }
        Ok(())
    }

    /// Takes an evaluated change of a record in: its rows, and the counts. Answers [`Effect::put_index_rows`].
    pub(crate) fn change(
        &mut self,
        collection: &Arc<Collection>,
        id: &RecordId,
        old_bytes: Option<usize>,
        new: Option<Bytes>,
        writes: &mut IndexWrites,
    ) -> (u64, u64) {
        let of = self.of(collection);
        of.count += i64::from(new.is_some()) - i64::from(old_bytes.is_some());
        of.bytes += new.as_ref().map_or(0, Bytes::len) as i64 - old_bytes.unwrap_or(0) as i64;
        if old_bytes.is_none() {
            of.last_inserted = of.last_inserted.max(id.number());
        }
        let key = Bytes::copy_from_slice(&id.to_key());
        match new {
            Some(new) => self.overlay.batch.put(collection.table(), key, new),
            None => self.overlay.batch.delete(collection.table(), key),
        }
        self.put_index_rows(writes)
    }

    /// Moves index rows into the batch; how many are put and how many deleted.
    pub(crate) fn put_index_rows(&mut self, writes: &mut IndexWrites) -> (u64, u64) {
        writes.rows.move_into(&mut self.overlay.batch)
    }

    /// An index's path has met an array.
    pub(crate) fn set_multikey(&mut self, index: &Arc<Index>, field: u8, part: u8) {
        let key = rows::multikey_key(index.table(), field, part);
        self.overlay
            .batch
            .put(CATALOG, Bytes::copy_from_slice(&key), Bytes::new());
        let (field, part) = (usize::from(field), usize::from(part));
        match self.multikey.iter_mut().find(|(noted, _)| Arc::ptr_eq(noted, index)) {
            Some((_, places)) => {
                places.insert(field, part);
            }
            None => {
                let mut places = MultikeyPaths::new();
                places.insert(field, part);
                self.multikey.push((index.clone(), places));
            }
        }
    }

    /// Directories of format 1 count by additions in every batch.
    pub(crate) fn add_counts(&mut self) {
        for effect in &self.collections {
            for (suffix, amount) in [(rows::COUNT_SUFFIX, effect.count), (rows::BYTES_SUFFIX, effect.bytes)] {
                if amount != 0 {
                    let key = rows::statistics_key(effect.collection.table(), suffix);
                    self.overlay.batch.add(STATISTICS, Bytes::copy_from_slice(&key), amount);
                }
            }
        }
    }

    pub(crate) fn batch(&self) -> &Batch {
        &self.overlay.batch
    }

    /// Bytes that its batch keeps in memory until it is applied.
    pub(crate) fn row_bytes(&self) -> u64 {
        let bytes = |op: &Op| match op {
            Op::Put(_, key, value) => key.len() + value.len(),
            Op::Delete(_, key) => key.len(),
            _ => 0,
        };
        self.batch().ops().iter().map(|op| bytes(op) as u64).sum()
    }

    /// What engines refuse for its length is refused before the log has the entry: behind that every server would meet
    /// it in the engine, and stop, each time it is started.
    ///
    /// Errors: [`StorageError::DocumentTooLarge`].
    pub(crate) fn check_lengths(&self) -> Result<(), StorageError> {
        let check = |bytes, bytes_max| match bytes > bytes_max {
            true => Err(StorageError::DocumentTooLarge { bytes, bytes_max }),
            false => Ok(()),
        };
        self.batch().ops().iter().try_for_each(|op| match op {
            Op::Put(_, key, value) => {
                check(value.len(), VALUE_BYTES_MAX)?;
                check(key.len(), KEY_BYTES_MAX)
            }
            Op::Delete(_, key) | Op::Add(_, key, _) => check(key.len(), KEY_BYTES_MAX),
            Op::DeleteRange(..) | Op::CreateTable(..) | Op::DropTable(_) => Ok(()),
        })
    }

    /// Whether it changes who is a member of the replica set.
    pub(crate) fn changes_members(&self) -> bool {
        self.collections
            .iter()
            .any(|effect| is_configuration(&effect.collection))
    }

    /// Whether it changes users, roles, or what else the server keeps about access.
    pub(crate) fn changes_access(&self) -> bool {
        let changed = || self.collections.iter().map(|effect| &effect.collection.namespace);
        let defined = || {
            let definitions = self.definitions.iter();
            definitions.flat_map(|(definition, _)| [Some(definition.namespace()), definition.former_namespace()])
        };
        changed().chain(defined().flatten()).any(Namespace::is_about_access)
    }

    /// The capped collections that it makes room in, and where the search for the next document to go begins then.
    pub(crate) fn evicted(&self) -> Vec<(Arc<CollectionShared>, u64)> {
        let evicted = self.collections.iter().filter(|effect| effect.evict_from > 0);
        evicted
            .map(|effect| (effect.collection.shared.clone(), effect.evict_from))
            .collect()
    }

    /// What it changes in the counts: table, documents, bytes.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (TableId, i64, i64)> {
        let of = |effect: &CollectionEffect| (effect.collection.table(), effect.count, effect.bytes);
        self.collections.iter().map(of)
    }
}
