//! What every part of an open engine stands on: made first, handed to the parts at opening, each of which takes what it
//! needs.

use crate::cache::PageCache;
use crate::catalog::Catalog;
use crate::counters::Counters;
use crate::history_file::HistoryFile;
use crate::large_values::LargeValues;
use crate::options::BtreeOptions;
use crate::pages::Pages;
use crate::readers::Readers;
use crate::running::RunningCheckpoint;
use crate::saved_deltas::SavedDeltas;
use crate::tree::Tree;
use crate::workers::Workers;
use blocks::BlockStore;
use engine::{EngineStatus, Seq};
use std::path::Path;
use std::sync::Arc;

/// See the module.
pub(crate) struct Foundation {
    pub(crate) store: Arc<BlockStore>,
    pub(crate) cache: Arc<PageCache>,
    pub(crate) readers: Arc<Readers>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) large_values: Arc<LargeValues>,
    pub(crate) running: Arc<RunningCheckpoint>,
    pub(crate) saved_deltas: Arc<SavedDeltas>,
    pub(crate) status: Arc<EngineStatus>,
    pub(crate) workers: Arc<Workers>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) clock: Arc<dyn vfs::Clock>,
}

impl Foundation {
    /// For a store in `path` whose durable checkpoint, at `durable`, has `directory_tree`.
    pub(crate) fn new(
        env: &vfs::Env,
        path: &Path,
        options: BtreeOptions,
        store: Arc<BlockStore>,
        workers: Workers,
        directory_tree: Arc<Tree>,
        durable: Seq,
    ) -> Self {
        let (workers, counters) = (Arc::new(workers), Arc::new(Counters::default()));
        let (running, status) = (
            Arc::new(RunningCheckpoint::default()),
            Arc::new(EngineStatus::default()),
        );
        let of_store = status.clone();
        // Whoever met the failure.
        store.set_failure_handler(Box::new(move |failure| {
            of_store.stop(format!("the block store failed: {failure}"));
        }));
        let clock = env.clock.clone();
        let cache = Arc::new(PageCache::new(
            &options,
            clock.clone(),
            workers.clone(),
            counters.clone(),
        ));
        let pages = Pages::new(
            store.clone(),
            cache.clone(),
            running.clone(),
            workers.clone(),
            status.clone(),
            counters.clone(),
            path.to_owned(),
        );
        Self {
            readers: Arc::new(Readers::new(durable, cache.clone(), HistoryFile::new(&env.fs, path))),
            catalog: Arc::new(Catalog::new(
                directory_tree,
                store.clone(),
                env.clone(),
                path.to_owned(),
                options,
            )),
            pages: Arc::new(pages),
            large_values: Arc::default(),
            running,
            saved_deltas: Arc::default(),
            status,
            workers,
            counters,
            clock,
            cache,
            store,
        }
    }
}
