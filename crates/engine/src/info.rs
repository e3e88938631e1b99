//! What an engine is and what it can do, as data.

/// Name, version and abilities of an engine.
#[derive(Clone, Debug)]
pub struct EngineInfo {
    /// The name users write: `inMemory`, `rocksdb`, `btree`.
    pub name: &'static str,
    /// Version of the files it writes.
    pub format_version: u32,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// Differences between engines that the layers above adapt to.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The finest lock the layer above may use.
    pub lock_granularity: LockGranularity,
    /// `apply` may be called from several threads at once.
    pub concurrent_apply: bool,
    /// [`crate::Engine::backup`] works.
    pub hot_backup: bool,
    /// What a checkpoint costs.
    pub checkpoint_cost: CheckpointCost,
    /// Deleting a range costs less than deleting its keys one by one.
    pub cheap_range_delete: bool,
    /// Snapshots that hold too much in memory are ended, see [`crate::Snapshot`].
    pub ends_snapshots: bool,
    /// Compressors a table may name.
    pub compressors: &'static [&'static str],
}

/// See [`Capabilities::lock_granularity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockGranularity {
    /// Writers of different documents run side by side.
    Document,
    /// One writer per collection.
    Collection,
}

/// See [`Capabilities::checkpoint_cost`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointCost {
    /// In proportion to what changed.
    Changes,
    /// In proportion to all data: do it seldom.
    AllData,
    /// There are none; nothing survives the process but the log.
    Never,
}
