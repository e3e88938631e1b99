//! Index filters: which indexes the planner may consider for a shape of query.
//!
//! In memory, shared by the process as the plan cache is, and forgotten when it ends. A collection is known by its
//! uuid, a shape by the text that its hash is made of.

use super::allowed_indexes::{AllowedIndexes, FilterIndex, Otherwise};
use super::hashes::shape_text;
use super::query::Query;
use bson::raw::RawDocumentBuf;
use engine::Direction;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use storage::Storage;

/// The indexes that queries of one shape may use.
pub(crate) struct IndexFilter {
    pub(crate) allowed: AllowedIndexes,
    /// The shape as the client wrote it: `query`, `sort`, `projection`, `collation`.
    pub(crate) pattern: RawDocumentBuf,
}

/// By the texts of the shapes.
type Filters = BTreeMap<String, Arc<IndexFilter>>;

/// By uuid, with the storage that the collection is in: a process may have several.
type ByCollection = HashMap<[u8; 16], (Weak<Storage>, Filters)>;

/// See the module.
#[derive(Default)]
pub(crate) struct IndexFilters {
    by_collection: RwLock<ByCollection>,
    /// There are any: the lock and the text are for those who may find something. Written with the lock held.
    is_used: AtomicBool,
    next: AtomicU64,
}

/// All of the process.
pub(crate) fn index_filters() -> &'static IndexFilters {
    static FILTERS: std::sync::LazyLock<IndexFilters> = std::sync::LazyLock::new(IndexFilters::default);
    &FILTERS
}

impl IndexFilters {
    /// Whether there are any, of collections that may be gone.
    pub(crate) fn are_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// The filter of a query's shape.
    pub(crate) fn find(&self, collection: [u8; 16], query: &Query) -> Option<Arc<IndexFilter>> {
        if !self.are_used() {
            return None;
        }
        let all = self.by_collection.read();
        let (_, filters) = all.get(&collection)?;
        filters.get(&shape_text(query)).cloned()
    }

    /// All filters of a collection.
    pub(crate) fn of(&self, collection: [u8; 16]) -> Vec<Arc<IndexFilter>> {
        let all = self.by_collection.read();
        all.get(&collection)
            .into_iter()
            .flat_map(|(_, filters)| filters.values())
            .cloned()
            .collect()
    }

    /// Sets the filter of a shape in the place of its former one.
    pub(crate) fn set(
        &self,
        storage: &Arc<Storage>,
        collection: [u8; 16],
        query: &Query,
        pattern: RawDocumentBuf,
        indexes: Vec<FilterIndex>,
    ) {
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let filter = IndexFilter {
            allowed: AllowedIndexes::new(number, indexes, Otherwise::Scan(Direction::Forward)),
            pattern,
        };
        let mut all = self.by_collection.write();
        all.entry(collection)
            .or_insert_with(|| (Arc::downgrade(storage), Filters::new()))
            .1
            .insert(shape_text(query), Arc::new(filter));
        self.tidy(&mut all);
    }

    /// Takes the filter of a shape away, or all of a collection.
    pub(crate) fn clear(&self, collection: [u8; 16], query: Option<&Query>) {
        let mut all = self.by_collection.write();
        match (query, all.get_mut(&collection)) {
            (Some(query), Some((_, filters))) => drop(filters.remove(&shape_text(query))),
            (Some(_), None) => {}
            (None, _) => drop(all.remove(&collection)),
        }
        self.tidy(&mut all);
    }

    /// Drops what is empty, and the filters of collections that are no more.
    fn tidy(&self, all: &mut ByCollection) {
        all.retain(|uuid, (storage, filters)| {
            let storage = storage.upgrade();
            let is_there = storage.is_some_and(|storage| storage.catalog().collection_by_uuid(uuid).is_some());
            is_there && !filters.is_empty()
        });
        self.is_used.store(!all.is_empty(), Ordering::Release);
    }
}
