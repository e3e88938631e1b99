//! Counters and figures, for `serverStatus`, `collStats` and `dbStats`.

use crate::checkpoint::Written;
use crate::database::Database;
use crate::shared::Shared;
use crate::table::Table;
use engine::{CommonStats, StatValue};
use std::sync::atomic::Ordering::Relaxed;

/// What the applier and the checkpoints count.
pub(crate) struct Counts {
    pub(crate) batches: u64,
    pub(crate) operations: u64,
    pub(crate) history_bytes: u64,
    pub(crate) pending: u64,
    pub(crate) ended: u64,
    pub(crate) durable_seq: u64,
    pub(crate) dirty_max: u64,
    pub(crate) written: Written,
}

/// See [`engine::Engine::common_stats`].
pub(crate) fn common(shared: &Shared, history_bytes: u64) -> CommonStats {
    let databases = shared.all_databases();
    CommonStats {
        cache_bytes: Some(shared.cache.bytes()),
        cache_bytes_max: Some(shared.options.cache_bytes),
        dirty_bytes: Some(shared.cache.dirty_bytes()),
        pages_read: Some(shared.cache.reads.load(Relaxed)),
        pages_evicted: Some(shared.cache.evicted.load(Relaxed)),
        file_bytes: Some(databases.iter().map(|database| Figures::of(database).file_bytes).sum()),
        history_bytes: Some(history_bytes),
        snapshots_open: Some(shared.pins.open().0 as u64),
        ..CommonStats::default()
    }
}

/// See [`engine::Engine::stats`].
pub(crate) fn engine_stats(shared: &Shared, counts: &Counts, sink: &mut dyn FnMut(&str, StatValue)) {
    let (snapshots, oldest) = shared.pins.open();
    let published = shared.pins.published();
    let tables = shared.all_tables();
    let (mut extents, mut moves) = (0, 0);
    for table in &tables {
        let state = table.state.read();
        extents += state.store.extents.len() as u64;
        moves += state.store.moves;
    }
    let databases = shared.all_databases();
    let (mut files, mut file_bytes, mut free_extents) = (0, 0, 0);
    for database in &databases {
        let figures = Figures::of(database);
        files += figures.files;
        file_bytes += figures.file_bytes;
        free_extents += figures.free_extents;
    }
    let mut number = |name: &str, value: u64| sink(name, StatValue::Number(value as i64));
    number("cache.bytes", shared.cache.bytes());
    number("cache.bytes_max", shared.options.cache_bytes);
    number("cache.dirty_bytes", shared.cache.dirty_bytes());
    number("cache.dirty_bytes_max", counts.dirty_max);
    number("cache.pages_read", shared.cache.reads.load(Relaxed));
    number("cache.pages_evicted", shared.cache.evicted.load(Relaxed));
    number("databases", databases.len() as u64);
    number("files.count", files);
    number("files.bytes", file_bytes);
    number("extents.count", extents);
    number("extents.free", free_extents);
    number("records.moved", moves);
    number("tables", tables.len() as u64);
    number("snapshots.open", snapshots as u64);
    number("snapshots.oldest_lag", published.0 - oldest.unwrap_or(published).0);
    number("snapshots.ended", counts.ended);
    number("history.bytes", counts.history_bytes);
    number("cleanup.pending", counts.pending);
    number("apply.batches", counts.batches);
    number("apply.operations", counts.operations);
    number("checkpoint.count", counts.written.checkpoints);
    number("checkpoint.pages", counts.written.pages);
    number("checkpoint.journal_bytes", counts.written.journal_bytes);
    number("checkpoint.in_place_bytes", counts.written.in_place_bytes);
    number("checkpoint.durable_seq", counts.durable_seq);
}

struct Figures {
    files: u64,
    file_bytes: u64,
    free_extents: u64,
    free_bytes: u64,
}

impl Figures {
    fn of(database: &Database) -> Self {
        let (files, free_extents, free_pages) = database.space.lock().free_totals();
        let file_bytes = database
            .files()
            .iter()
            .map(|file| u64::from(file.pages) * database.stored_page_bytes())
            .sum();
        Self {
            files: files as u64,
            file_bytes,
            free_extents: free_extents as u64,
            free_bytes: free_pages * database.stored_page_bytes(),
        }
    }
}

/// What `dbStats` shows of this engine beside what it shows of all.
pub(crate) fn database_details(shared: &Shared, name: &str, sink: &mut dyn FnMut(&str, StatValue)) {
    let database = shared.databases.read().get(name).cloned();
    let Some(database) = database else { return };
    let figures = Figures::of(&database);
    let namespace_bytes = database.namespaces.lock().page_count() as u64 * database.stored_page_bytes();
    let mut number = |name: &str, value: u64| sink(name, StatValue::Number(value as i64));
    number("fileSize", figures.file_bytes);
    number("nsSizeMB", namespace_bytes.max(shared.options.namespace_bytes) >> 20);
    number("dataFileVersion.major", crate::files::FORMAT_VERSION.into());
    number("dataFileVersion.minor", 0);
    number("extentFreeList.num", figures.free_extents);
    number("extentFreeList.totalSize", figures.free_bytes);
}

/// What `collStats` shows of this engine.
pub(crate) fn table_details(table: &Table, sink: &mut dyn FnMut(&str, StatValue)) {
    let state = table.state.read();
    let store = &state.store;
    let last = store.extents.last().map_or(0, |extent| extent.bytes());
    sink("numExtents", StatValue::Number(store.extents.len() as i64));
    sink("lastExtentSize", StatValue::Number(last as i64));
    // Room is given by sizes and not by a factor that is learnt: as MongoDB 3.0 showed it.
    sink("paddingFactor", StatValue::Float(1.0));
    sink("recordsMoved", StatValue::Number(store.moves as i64));
}
