//! What the engine, its batches, its checkpoints and its snapshots share.

use crate::cache::Cache;
use crate::database::{Database, database_of};
use crate::files::io_error;
use crate::options::Mmapv1Options;
use crate::pager::Pager;
use crate::root::RootFiles;
use crate::space::Owner;
use crate::table::Table;
use engine::{EngineError, EngineStatus, Result, Seq, TableId};
use parking_lot::{Mutex, RwLock};
use pins::{Holder, Pin, Pins};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use vfs::{Env, File};

/// The namespace file and the first data file.
const FILES_OF_NEW_DATABASE: usize = 2;

/// A database that is to be made.
struct Prepared {
    name: String,
    descriptors: Vec<Arc<dyn File>>,
}

/// Lock order: `gate`, `tables`, one table's state, `databases`, `prepared`, those of a database, the cache's; [`Pins`]
/// is taken alone.
pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) directory: PathBuf,
    pub(crate) options: Mmapv1Options,
    pub(crate) cache: Cache,
    /// By name.
    pub(crate) databases: RwLock<BTreeMap<String, Arc<Database>>>,
    next_database: AtomicU32,
    /// Descriptors for the databases that are to be made next.
    prepared: Mutex<Vec<Prepared>>,
    /// Every table a snapshot may see, dropped ones included.
    tables: RwLock<BTreeMap<TableId, Arc<Table>>>,
    pub(crate) pins: Pins,
    /// Held for a batch, and by who takes a snapshot: so none begins in the middle of one, and a batch that finds no
    /// snapshot open need not keep what it overwrites.
    pub(crate) gate: RwLock<()>,
    /// Snapshots that are open; rises under the gate alone.
    snapshots: AtomicUsize,
    pub(crate) status: EngineStatus,
}

impl Shared {
    pub(crate) fn new(env: &Env, directory: PathBuf, options: Mmapv1Options, published: Seq) -> Self {
        Self {
            env: env.clone(),
            directory,
            cache: Cache::new(options.cache_bytes),
            options,
            databases: RwLock::default(),
            next_database: AtomicU32::new(0),
            prepared: Mutex::default(),
            tables: RwLock::default(),
            pins: Pins::new(published),
            gate: RwLock::new(()),
            snapshots: AtomicUsize::new(0),
            status: EngineStatus::default(),
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        self.status.check_running()
    }

    pub(crate) fn pager<'a>(&'a self, database: &'a Database, owner: Owner) -> Pager<'a> {
        Pager {
            cache: &self.cache,
            database,
            owner,
            allocation: self.options.allocation,
        }
    }

    /// A new database, which nobody knows yet.
    pub(crate) fn make_database(&self, name: &str, own_directory: bool) -> Arc<Database> {
        let id = self.next_database.fetch_add(1, Relaxed);
        let keys = self.env.fs.keys().cloned();
        Arc::new(Database::new(
            id,
            name,
            own_directory,
            &self.directory,
            &self.options,
            keys,
        ))
    }

    /// The database of a table, made when it is the first one.
    pub(crate) fn database_for(&self, table_name: &str) -> Arc<Database> {
        let name = database_of(table_name);
        let mut databases = self.databases.write();
        if let Some(database) = databases.get(name) {
            return Arc::clone(database);
        }
        let database = self.make_database(name, self.options.directory_per_database);
        let mut prepared = self.prepared.lock();
        if let Some(number) = prepared.iter().position(|prepared| prepared.name == name) {
            database.keep_descriptors(prepared.swap_remove(number).descriptors);
        }
        drop(prepared);
        databases.insert(name.to_owned(), Arc::clone(&database));
        database
    }

    /// Whether another file may be opened.
    pub(crate) fn check_descriptors(&self) -> Result<()> {
        let checked = self.env.fs.check_descriptors();
        checked.map_err(io_error("open another file in", &self.directory))
    }

    /// Keeps descriptors for the files of databases that are to be made, and of no others any more: they are opened by
    /// a checkpoint, which must not find that others have taken the last.
    pub(crate) fn prepare_databases(&self, names: &[&str]) -> Result<()> {
        let mut prepared = self.prepared.lock();
        prepared.clear();
        let prepare = |name: &&str| {
            let descriptors = (0..FILES_OF_NEW_DATABASE).map(|_| RootFiles::any_descriptor(&self.env, &self.directory));
            Ok(Prepared {
                name: (*name).to_owned(),
                descriptors: descriptors.collect::<Result<_>>()?,
            })
        };
        *prepared = names.iter().map(prepare).collect::<Result<_>>()?;
        Ok(())
    }

    pub(crate) fn all_databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().values().cloned().collect()
    }

    /// Calls `read` on the table if a snapshot at `seq` has it.
    pub(crate) fn table_at(&self, id: TableId, seq: Seq) -> Result<Arc<Table>> {
        match self.tables.read().get(&id) {
            Some(table) if table.exists_at(seq) => Ok(Arc::clone(table)),
            _ => Err(EngineError::NoSuchTable(id)),
        }
    }

    /// The table as the newest batch left it.
    pub(crate) fn live_table(&self, id: TableId) -> Result<Arc<Table>> {
        match self.tables.read().get(&id) {
            Some(table) if table.is_live() => Ok(Arc::clone(table)),
            _ => Err(EngineError::NoSuchTable(id)),
        }
    }

    /// Every table there is, dropped ones that a snapshot may still see included.
    pub(crate) fn all_tables(&self) -> Vec<Arc<Table>> {
        self.tables.read().values().cloned().collect()
    }

    pub(crate) fn insert_table(&self, table: Table) {
        self.tables.write().insert(table.id, Arc::new(table));
    }

    pub(crate) fn remove_table(&self, id: TableId) -> Option<Arc<Table>> {
        self.tables.write().remove(&id)
    }

    /// Holds the newest position for a snapshot.
    pub(crate) fn pin(&self) -> Pin {
        let _between_batches = self.gate.read();
        self.snapshots.fetch_add(1, SeqCst);
        self.pins.pin(Holder::Reader)
    }

    pub(crate) fn unpin(&self, pin: Pin) {
        self.pins.unpin(pin);
        self.snapshots.fetch_sub(1, SeqCst);
    }

    /// Whether a snapshot is open. Asked under the gate the answer no lasts as long as the gate is held.
    pub(crate) fn has_snapshots(&self) -> bool {
        self.snapshots.load(SeqCst) > 0
    }
}
