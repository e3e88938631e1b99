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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storage::Storage;

/// The indexes that queries of one shape may use.
pub(crate) struct IndexFilter {
    pub(crate) allowed: AllowedIndexes,
    /// The shape as the client wrote it: `query`, `sort`, `projection`, `collation`.
    pub(crate) pattern: RawDocumentBuf,
}

/// The address of the storage that a collection is in. A process may have several.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StorageId(usize);

/// By the texts of the shapes.
type Filters = BTreeMap<String, Arc<IndexFilter>>;

/// See the module.
#[derive(Default)]
pub(crate) struct IndexFilters {
    by_collection: RwLock<HashMap<[u8; 16], (StorageId, Filters)>>,
    /// There has been one: the lock and the text are for those who may find something.
    is_used: AtomicBool,
    next: AtomicU64,
}

/// All of the process.
pub(crate) fn index_filters() -> &'static IndexFilters {
    static FILTERS: std::sync::LazyLock<IndexFilters> = std::sync::LazyLock::new(IndexFilters::default);
    &FILTERS
}

impl IndexFilters {
    /// Whether there has been one.
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

    /// Sets the filter of a shape in the place of its former one. Those of collections that the storage has no more
    /// go.
    pub(crate) fn set(
        &self,
        storage: &Storage,
        collection: [u8; 16],
        query: &Query,
        pattern: RawDocumentBuf,
        indexes: Vec<FilterIndex>,
    ) {
        let own = StorageId(std::ptr::from_ref(storage).addr());
        let number = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let filter = IndexFilter {
            allowed: AllowedIndexes::new(number, indexes, Otherwise::Scan(Direction::Forward)),
            pattern,
        };
        let mut all = self.by_collection.write();
        all.retain(|uuid, (of, _)| *of != own || storage.catalog().collection_by_uuid(uuid).is_some());
        all.entry(collection)
            .or_insert_with(|| (own, Filters::new()))
            .1
            .insert(shape_text(query), Arc::new(filter));
        self.is_used.store(true, Ordering::Release);
    }

    /// Takes the filter of a shape away, or all of a collection.
    pub(crate) fn clear(&self, collection: [u8; 16], query: Option<&Query>) {
        let mut all = self.by_collection.write();
        match (query, all.get_mut(&collection)) {
            (Some(query), Some((_, filters))) => drop(filters.remove(&shape_text(query))),
            (Some(_), None) => {}
            (None, _) => drop(all.remove(&collection)),
        }
    }
}
