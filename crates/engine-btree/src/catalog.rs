//! The tables of an open engine: making and dropping them, the files they lie in, and which of them the next checkpoint
//! has to look at.
//!
//! Finding a table takes no latch (`tables`). A table's volume is looked up and kept under `volumes`, so that no volume
//! is removed between the look and the table's coming.

use crate::leaf::Leaf;
use crate::options::BtreeOptions;
use crate::tables::{Table, Tables};
use crate::tree::{Child, Shape, Tree};
use crate::version::SEQ_MAX;
use crate::write_pace::WritePace;
use blocks::{BlockStore, VolumeId};
use codec::Codec;
use engine::{EngineError, Result, Seq, TableId, TableKind, TableSpec};
use rcu::{Guard, Mutex};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "apply",
        reason,
    }
}

/// See the module.
pub(crate) struct Catalog {
    tables: Tables,
    /// The tree of the tables' rows: see `directory`.
    directory_tree: Arc<Tree>,
    /// Tables that the next checkpoint has to look at. Invariant: a table is in it when its `listed` says so.
    changed: Mutex<Vec<Arc<Table>>>,
    /// Held from when a table's volume is looked up until the table is known, and while an unused volume is removed.
    /// The volumes that were prepared last, as far as no table is in them yet.
    volumes: Mutex<Vec<VolumeId>>,
    /// How fast leaves become dirty, for `write_behind`.
    pace: WritePace,
    store: Arc<BlockStore>,
    env: vfs::Env,
    path: PathBuf,
    options: BtreeOptions,
}

impl Catalog {
    /// Without tables. `path` is the store's directory.
    pub(crate) fn new(
        directory_tree: Arc<Tree>,
        store: Arc<BlockStore>,
        env: vfs::Env,
        path: PathBuf,
        options: BtreeOptions,
    ) -> Self {
        Self {
            tables: Tables::default(),
            directory_tree,
            changed: Mutex::new(Vec::new()),
            volumes: Mutex::default(),
            pace: WritePace::default(),
            store,
            env,
            path,
            options,
        }
    }

    /// The table of an id, dropped or not.
    #[inline]
    pub(crate) fn get<'g>(&self, id: TableId, guard: &'g Guard) -> Option<&'g Arc<Table>> {
        self.tables.get(id, guard)
    }

    /// The table of an id for those who read or write now.
    pub(crate) fn live(&self, id: TableId) -> Result<Arc<Table>> {
        let guard = rcu::pin();
        let table = self.tables.get(id, &guard).filter(|table| table.is_live());
        table.cloned().ok_or(EngineError::NoSuchTable(id))
    }

    /// One live table, or all of them.
    pub(crate) fn live_tables(&self, id: Option<TableId>) -> Result<Vec<Arc<Table>>> {
        match id {
            None => Ok(self.all().into_iter().filter(|table| table.is_live()).collect()),
            Some(id) => Ok(vec![self.live(id)?]),
        }
    }

    /// All tables, dropped ones that somebody may still read included, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Table>> {
        self.tables.all()
    }

    /// The lowest id of a table above `id`, if any.
    pub(crate) fn id_after(&self, id: Option<TableId>) -> Option<TableId> {
        self.tables.id_after(id)
    }

    pub(crate) fn directory_tree(&self) -> &Arc<Tree> {
        &self.directory_tree
    }

    pub(crate) fn pace(&self) -> &WritePace {
        &self.pace
    }

    /// A table as it was found on disk.
    pub(crate) fn add(&self, table: Arc<Table>) {
        self.tables.put(table);
    }

    /// Forgets a table whose blocks were given back.
    pub(crate) fn forget(&self, id: TableId) {
        self.tables.remove(id);
    }

    /// The next checkpoint has to look at a table.
    pub(crate) fn table_changed(&self, id: TableId) {
        let guard = rcu::pin();
        if let Some(table) = self.tables.get(id, &guard)
            && !table.listed.swap(true, Ordering::AcqRel)
        {
            self.changed.lock().push(table.clone());
        }
    }

    /// Whether no table has changed since the last checkpoint looked.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.changed.lock().is_empty()
    }

    /// The tables that have changed; the list is empty then. For a checkpoint that begins.
    pub(crate) fn take_changed(&self) -> Vec<Arc<Table>> {
        let changed = std::mem::take(&mut *self.changed.lock());
        for table in &changed {
            table.listed.store(false, Ordering::Release);
        }
        changed
    }

    /// The tables that have changed.
    pub(crate) fn changed(&self) -> Vec<Arc<Table>> {
        self.changed.lock().clone()
    }

    /// How many tables have changed.
    pub(crate) fn changed_count(&self) -> usize {
        self.changed.lock().len()
    }

    /// The changed table number `turn`, counted round and round.
    pub(crate) fn changed_in_turn(&self, turn: usize) -> Option<Arc<Table>> {
        let changed = self.changed.lock();
        let place = turn.checked_rem(changed.len())?;
        changed.get(place).cloned()
    }

    /// Puts a leaf into its tree's list of those to write.
    pub(crate) fn list_dirty(&self, tree: &Tree, leaf: Arc<Leaf>, guard: &Guard) {
        tree.list_dirty(leaf, guard);
        self.pace.became_dirty();
    }

    /// Puts a leaf into the list of those to be written, unless it is there.
    pub(crate) fn list(&self, tree: &Arc<Tree>, leaf: &Arc<Leaf>) {
        let mut state = leaf.state.lock();
        if !state.listed {
            state.listed = true;
            drop(state);
            self.list_dirty(tree, leaf.clone(), &rcu::pin());
            self.table_changed(tree.id);
        }
    }

    /// What the pages of a table of this specification are like.
    pub(crate) fn shape_in(&self, spec: &TableSpec, volume: VolumeId) -> Result<Shape> {
        let codec = match &spec.compressor {
            None if matches!(spec.kind, TableKind::Records | TableKind::Clustered) => {
                self.options.collection_compressor
            }
            None => self.options.index_compressor,
            Some(name) => name
                .parse::<Codec>()
                .map_err(|_| invalid(format!("unknown compressor {name:?}")))?,
        };
        Ok(Shape {
            codec,
            level: self.options.level(codec),
            leaf_bytes: match spec.kind {
                TableKind::Records | TableKind::Clustered => self.options.record_leaf_bytes,
                TableKind::Index | TableKind::Small => self.options.index_leaf_bytes,
            },
            large_bytes_min: self.options.large_value_bytes,
            volume,
        })
    }

    /// Makes a table. Again it does nothing.
    pub(crate) fn create_table(&self, id: TableId, spec: &TableSpec, seq: Seq) -> Result<()> {
        let guard = rcu::pin();
        if let Some(table) = self.tables.get(id, &guard) {
            if !table.is_live() {
                return Err(invalid(format!("{id:?} was dropped; ids are not used twice")));
            }
            if table.kind != spec.kind {
                return Err(invalid(format!("{id:?} exists and is of kind {:?}", table.kind)));
            }
            return Ok(());
        }
        let mut volumes = self.volumes.lock();
        let volume = match self.own_volume(spec) {
            Some(database) => self.store.volume(database)?,
            None => VolumeId::MAIN,
        };
        let tree = Arc::new(Tree::new(id, self.shape_in(spec, volume)?, Child::Nothing));
        self.tables.put(Arc::new(Table::new(spec, tree, seq)));
        // From here on the table keeps its volume.
        volumes.retain(|prepared| *prepared != volume);
        self.table_changed(id);
        Ok(())
    }

    /// The name of the volume that a table has with others of its database.
    fn own_volume<'s>(&self, spec: &'s TableSpec) -> Option<&'s str> {
        let (database, _) = spec.name.split_once('.')?;
        self.options.directory_per_db.then_some(database)
    }

    /// A volume more leaves the descriptors that are kept for others.
    pub(crate) fn check_new_table(&self, spec: &TableSpec) -> Result<()> {
        let Some(database) = self
            .own_volume(spec)
            .filter(|database| !self.store.has_volume(database))
        else {
            return Ok(());
        };
        self.env.fs.check_descriptors().map_err(|source| EngineError::Io {
            operation: "open another file in",
            path: self.path.join(database),
            source,
        })
    }

    /// Makes the volumes of tables that are to be created. Until they are, the volumes are empty, and nobody removes
    /// them.
    pub(crate) fn prepare_tables(&self, specs: &[TableSpec]) -> Result<()> {
        let mut prepared = Vec::new();
        let (result, given_up) = {
            let mut volumes = self.volumes.lock();
            let mut databases = specs.iter().filter_map(|spec| self.own_volume(spec)).peekable();
            if databases.peek().is_none() {
                return Ok(());
            }
            let result = databases.try_for_each(|database| {
                let volume = self.store.volume(database)?;
                if !prepared.contains(&volume) {
                    prepared.push(volume);
                }
                Ok(())
            });
            let kept = match result {
                Ok(()) => prepared.clone(),
                Err(_) => Vec::new(),
            };
            let before = std::mem::replace(&mut *volumes, kept);
            prepared.extend(before);
            prepared.retain(|volume| !volumes.contains(volume));
            (result, prepared)
        };
        // Whatever these were prepared for has not come to be.
        self.remove_unused_volumes(given_up.into_iter().collect());
        result
    }

    /// Drops a table. Snapshots from before go on seeing it.
    pub(crate) fn drop_table(&self, id: TableId, seq: Seq) {
        let guard = rcu::pin();
        if let Some(table) = self.tables.get(id, &guard)
            && table.is_live()
        {
            table.set_dropped(seq);
            self.table_changed(id);
        }
    }

    /// Has the files of those volumes go in which no table is. The main one stays.
    pub(crate) fn remove_unused_volumes(&self, mut volumes: BTreeSet<VolumeId>) {
        volumes.remove(&VolumeId::MAIN);
        if volumes.is_empty() {
            return;
        }
        let prepared = self.volumes.lock();
        volumes.retain(|volume| !prepared.contains(volume));
        // One look at all tables, however many volumes go.
        for table in self.tables.all() {
            if !table.tree.is_dead() {
                volumes.remove(&table.tree.shape.volume);
            }
        }
        for volume in volumes {
            self.store.remove_volume_if_empty(volume);
        }
    }

    /// Leaves that the next checkpoint looks at, those that it finds written included.
    pub(crate) fn dirty_leaves(&self) -> u64 {
        let changed = self.changed();
        changed
            .iter()
            .map(|table| table.tree.dirty.lock().leaves.len() as u64)
            .sum()
    }
}

impl Table {
    /// Whether the table is there for those who read or write now.
    pub(crate) fn is_live(&self) -> bool {
        self.dropped() == SEQ_MAX
    }
}
