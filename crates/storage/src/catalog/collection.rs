//! The definition of one collection, and of one view.
//!
//! A `Collection` is immutable; a change of definition puts a new one into the catalog that shares `CollectionShared`:
//! the lock, the counters, the next record id, the tail of a capped collection. Whoever holds a guard on the collection
//! sees a definition that does not change, because definitions change under the exclusive lock only.

use crate::capped::CappedTail;
use crate::catalog::index::{truthy, whole_number};
use crate::catalog::timeseries::TimeseriesOptions;
use crate::catalog::validation::Validation;
use crate::{CappedLimits, CappedWaiter, Index, Namespace, RecordId, RecordIds};
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf};
use collation::Collation;
use engine::TableId;
use locks::CollectionLock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// What all definitions of one collection share.
pub(crate) struct CollectionShared {
    pub(crate) lock: Arc<CollectionLock>,
    /// The version of the definition in the catalog.
    pub(crate) version: AtomicU64,
    pub(crate) dropped: AtomicBool,
    pub(crate) next_record: AtomicU64,
    /// The next record comes after those that were there when the collection was opened.
    pub(crate) next_is_known: AtomicBool,
    /// Exact; changed by who applies.
    pub(crate) count: AtomicI64,
    /// Exact; changed by who applies.
    pub(crate) data_bytes: AtomicI64,
    /// The counts differ from those in the statistics table. For who applies.
    pub(crate) counts_changed: AtomicBool,
    /// Of a capped one.
    pub(crate) tail: Option<Arc<CappedTail>>,
    /// Capped: no record before this one is left. Where the search for the next one to evict begins.
    pub(crate) capped_first: AtomicU64,
    /// The same once all has taken effect that is proposed in an epoch, and that epoch: void in another one.
    pub(crate) capped_ahead: Mutex<(u64, u64)>,
}

impl CollectionShared {
    pub(crate) fn new(is_capped: bool) -> Arc<Self> {
        Arc::new(Self {
            lock: Arc::default(),
            version: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            next_record: AtomicU64::new(1),
            next_is_known: AtomicBool::new(false),
            count: AtomicI64::new(0),
            data_bytes: AtomicI64::new(0),
            counts_changed: AtomicBool::new(false),
            tail: is_capped.then(Arc::default),
            capped_first: AtomicU64::new(0),
            capped_ahead: Mutex::default(),
        })
    }

    /// A record id nobody has.
    pub(crate) fn take_record_id(&self) -> RecordId {
        RecordId::Number(self.next_record.fetch_add(1, Ordering::Relaxed))
    }

    /// Records up to this one are visible.
    pub(crate) fn published(&self, last: u64) {
        if let Some(tail) = &self.tail {
            tail.published(last);
        }
    }

    /// A record of this number exists: the next ones are higher.
    pub(crate) fn saw_record(&self, number: u64) {
        self.next_record.fetch_max(number.saturating_add(1), Ordering::Relaxed);
    }
}

/// See the module.
pub struct Collection {
    pub(crate) namespace: Namespace,
    pub(crate) uuid: [u8; 16],
    pub(crate) options: RawDocumentBuf,
    pub(crate) table: TableId,
    pub(crate) capped: Option<CappedLimits>,
    pub(crate) collation: Option<Arc<Collation>>,
    pub(crate) keeps_pre_images: bool,
    pub(crate) validation: Option<Box<Validation>>,
    pub(crate) timeseries: Option<Arc<TimeseriesOptions>>,
    /// What leads to documents by `_id` first: `_id_`, or the documents of a clustered collection themselves. Then the
    /// other indexes that are ready, in the order they were made.
    pub(crate) access_paths: Box<[Arc<Index>]>,
    pub(crate) building: Box<[Arc<Index>]>,
    pub(crate) version: u64,
    /// See [`Collection::indexes_left_out`].
    pub(crate) indexes_left_out: usize,
    pub(crate) shared: Arc<CollectionShared>,
}

impl Collection {
    /// Database and name.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Identifies the collection for its life, renames included.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// The order of strings where none is asked for; `None` is binary.
    pub fn collation(&self) -> Option<&Arc<Collation>> {
        self.collation.as_ref()
    }

    /// As given to `create`, with later changes.
    pub fn options(&self) -> &RawDocument {
        &self.options
    }

    /// Its table in the engine.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The ready indexes, `_id_` first where there is one: a clustered collection has none.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.access_paths[usize::from(self.clustered_index().is_some())..]
    }

    /// All that a plan may scan in the order of keys: the indexes, and of a clustered collection the documents, which
    /// come first.
    pub fn access_paths(&self) -> &[Arc<Index>] {
        &self.access_paths
    }

    /// The documents of a clustered collection, by `_id`; `None` of others.
    pub fn clustered_index(&self) -> Option<&Arc<Index>> {
        self.access_paths.first().filter(|first| first.is_clustered())
    }

    /// What its records are known by.
    pub fn record_ids(&self) -> RecordIds {
        match self.clustered_index() {
            Some(_) => RecordIds::Keys,
            None => RecordIds::Numbers,
        }
    }

    /// Indexes that are being built.
    pub fn building_indexes(&self) -> &[Arc<Index>] {
        &self.building
    }

    /// Indexes that are being built, without those that are to take the place of a ready one.
    pub fn new_building_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.building.iter().filter(|index| self.index(index.name()).is_none())
    }

    /// A ready index by name.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes().iter().find(|index| index.name() == name)
    }

    /// What leads to documents by `_id`: the `_id_` index, or [`Collection::clustered_index`].
    pub fn id_index(&self) -> &Arc<Index> {
        &self.access_paths[0]
    }

    /// The limits of a capped collection; `None` for others.
    pub fn is_capped(&self) -> Option<CappedLimits> {
        self.capped
    }

    /// Whether changes are logged with the document as it was before (`changeStreamPreAndPostImages`).
    pub fn keeps_pre_images(&self) -> bool {
        self.keeps_pre_images
    }

    /// The rules that documents have to keep; `None` without any.
    #[inline]
    pub fn validation(&self) -> Option<&Validation> {
        self.validation.as_deref()
    }

    /// What measurements its documents are buckets of; `None` for others.
    pub fn timeseries(&self) -> Option<&Arc<TimeseriesOptions>> {
        self.timeseries.as_ref()
    }

    /// Documents, exactly.
    pub fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Acquire).max(0) as u64
    }

    /// Bytes of all documents, exactly.
    pub fn data_bytes(&self) -> u64 {
        self.shared.data_bytes.load(Ordering::Acquire).max(0) as u64
    }

    /// Waits for new documents of a capped collection; `None` for others.
    pub fn capped_waiter(&self) -> Option<CappedWaiter> {
        self.shared.tail.clone().map(CappedWaiter::new)
    }

    /// True once the collection was dropped.
    pub fn is_dropped(&self) -> bool {
        self.shared.dropped.load(Ordering::Acquire)
    }

    /// Rises with every change of the definition: what a plan cache may key by, with
    /// [`Collection::indexes_left_out`].
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many of the ready indexes a reader of an older state does not see, for they are younger than that: plans of
    /// such a reader are not for others.
    pub fn indexes_left_out(&self) -> usize {
        self.indexes_left_out
    }

    /// For readers: the same without the ready indexes that `is_left` does not let be.
    pub(crate) fn with_indexes(&self, is_left: impl Fn(&Index) -> bool) -> Self {
        let own_first = self.access_paths.len() - self.indexes().len();
        let (clustered, indexes) = self.access_paths.split_at(own_first);
        let left: Vec<_> = indexes.iter().filter(|index| is_left(index)).collect();
        Self {
            indexes_left_out: self.indexes_left_out + (indexes.len() - left.len()),
            namespace: self.namespace.clone(),
            options: self.options.clone(),
            collation: self.collation.clone(),
            validation: Validation::of(&self.options),
            timeseries: self.timeseries.clone(),
            access_paths: clustered.iter().chain(left).cloned().collect(),
            building: Box::default(),
            shared: self.shared.clone(),
            ..*self
        }
    }

    /// True when the definition is no longer the one in the catalog.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_dropped() || self.shared.version.load(Ordering::Acquire) != self.version
    }

    /// Its tables: its documents', then its indexes'.
    pub(crate) fn tables(&self) -> impl Iterator<Item = TableId> {
        std::iter::once(self.table).chain(self.maintained().map(|index| index.table()))
    }

    /// Every index that writers keep up to date.
    pub fn maintained(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes().iter().chain(&self.building)
    }
}

/// Reads the limits out of a collection's options.
pub(crate) fn capped_limits(options: &RawDocument) -> Option<CappedLimits> {
    let number = |name: &str| {
        options
            .get(name)
            .ok()
            .flatten()
            .and_then(whole_number)
            .filter(|n| *n > 0)
    };
    options.get("capped").ok().flatten().filter(|capped| truthy(*capped))?;
    let size = number("size").unwrap_or(0) as u64;
    Some(CappedLimits {
        size_bytes: size.max(1),
        max_documents: number("max").map(|max| max as u64),
    })
}

/// Whether a collection's options ask for pre-images.
pub(crate) fn keeps_pre_images(options: &RawDocument) -> bool {
    let asked = options.get_document("changeStreamPreAndPostImages");
    asked.is_ok_and(|asked| asked.get_bool("enabled").unwrap_or(false))
}

/// A view's definition.
#[derive(Debug, PartialEq)]
pub struct View {
    pub(crate) namespace: Namespace,
    pub(crate) view_on: String,
    pub(crate) pipeline: RawArrayBuf,
    pub(crate) options: RawDocumentBuf,
}

impl View {
    /// Database and name.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The collection or view it is on, in the same database.
    pub fn view_on(&self) -> &str {
        &self.view_on
    }

    /// Its pipeline.
    pub fn pipeline(&self) -> &bson::RawArray {
        &self.pipeline
    }

    /// Its other options (`collation`).
    pub fn options(&self) -> &RawDocument {
        &self.options
    }
}
