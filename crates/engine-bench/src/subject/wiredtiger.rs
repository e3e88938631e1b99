//! WiredTiger, opened and used as mongod 3.2 to 4.0 does: numeric record keys, one transaction per operation, the log
//! flushed with sync every 100 ms, checkpoints by the caller.
//!
//! The tuned variant lets dirty pages fill most of the cache, has 16 KiB leaves, and leaves grouping of synced commits
//! to WiredTiger instead of flushing the log the way mongod does.

use super::ffi::{Code, Database, Handle, version};
use super::kind::{Layout, SubjectKind};
use super::subject::{
    Counters, Durability, Replayed, Scanned, Session, SessionError, SessionResult, Subject, Table, TableUse,
};
use crate::machine::disk_bytes;
use crate::spec::RunSpec;
use crate::ticker::Ticker;
use anyhow::{Context, Result};
use codec::Codec;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// As mongod's `storage.journal.commitIntervalMs`.
const LOG_FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// See the module's documentation.
pub(super) struct WiredTigerSubject {
    database: Arc<Database>,
    /// For what belongs to no client: checkpoints, tables, statistics.
    service: Mutex<Handle>,
    checkpointer: Mutex<Handle>,
    flusher: Arc<Flusher>,
    ticker: Mutex<Option<Ticker>>,
    directory: PathBuf,
    codec: Codec,
    tuned: bool,
}

impl WiredTigerSubject {
    pub fn open(layout: &Layout, spec: &RunSpec) -> Result<Self> {
        let tuned = spec.subject == SubjectKind::WiredTigerTuned;
        std::fs::create_dir_all(&layout.log).with_context(|| format!("creating {}", layout.log.display()))?;
        let home = layout.data.to_str().context("the directory's name is not UTF-8")?;
        let config = connection_config(spec.cache_bytes, spec.codec, tuned)?;
        let database = Database::open(home, &config).with_context(version)?;
        let flusher = Arc::new(Flusher {
            handle: Mutex::new(database.session()?),
            rounds: AtomicU64::new(0),
        });
        let ticking = flusher.clone();
        let ticker = Ticker::start("log-flusher", LOG_FLUSH_INTERVAL, move || {
            if let Err(error) = ticking.flush() {
                eprintln!("flushing the log: {error}");
            }
        })?;
        Ok(Self {
            service: Mutex::new(database.session()?),
            checkpointer: Mutex::new(database.session()?),
            database,
            flusher,
            ticker: Mutex::new(Some(ticker)),
            directory: layout.data.clone(),
            codec: spec.codec,
            tuned,
        })
    }
}

/// What mongod gives to `wiredtiger_open`, with its eviction threads.
fn connection_config(cache_bytes: u64, codec: Codec, tuned: bool) -> Result<String> {
    let mut config = format!(
        "create,cache_size={cache_bytes},session_max=20000,statistics=(fast),\
         eviction=(threads_min=4,threads_max=4),config_base=false,file_manager=(close_idle_time=100000),\
         log=(enabled=true,archive=true,path=journal,compressor=snappy)"
    );
    if tuned {
        config.push_str(",eviction_dirty_target=70,eviction_dirty_trigger=90");
    }
    let mut extensions = vec![extension("snappy")?];
    if codec == Codec::Zlib {
        extensions.push(extension("zlib")?);
    }
    config.push_str(&format!(",extensions=[{}]", extensions.join(",")));
    Ok(config)
}

fn extension(name: &str) -> Result<String> {
    let path = Path::new(env!("WIREDTIGER_LIB")).join(format!("libwiredtiger_{name}.so"));
    let path = path.to_str().context("the library's folder is not UTF-8")?;
    Ok(format!("{path:?}"))
}

fn table_config(table_use: TableUse, codec: Codec, tuned: bool) -> String {
    let compressor = codec.name();
    match (table_use, tuned) {
        (TableUse::Records, false) => format!(
            "type=file,memory_page_max=10m,split_pct=90,leaf_value_max=64MB,checksum=on,\
             block_compressor={compressor},key_format=q,value_format=u,log=(enabled=true)"
        ),
        (TableUse::Records, true) => format!(
            "type=file,memory_page_max=10m,split_pct=90,leaf_value_max=64MB,checksum=on,leaf_page_max=16k,\
             block_compressor={compressor},key_format=q,value_format=u,log=(enabled=true)"
        ),
        (TableUse::Index, _) => {
            "type=file,internal_page_max=16k,leaf_page_max=16k,checksum=on,prefix_compression=true,\
             block_compressor=,key_format=u,value_format=u,log=(enabled=true)"
                .into()
        }
    }
}

impl Subject for WiredTigerSubject {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(WiredTigerSession {
            handle: self.database.session()?,
            flusher: &self.flusher,
            tuned: self.tuned,
            open: false,
            changed: false,
            number: Vec::with_capacity(8),
        }))
    }

    fn create_table(&self, table: Table, table_use: TableUse) -> Result<()> {
        let config = table_config(table_use, self.codec, self.tuned);
        self.service.lock().create(table, &config)?;
        Ok(())
    }

    fn bulk_load(&self, table: Table, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64> {
        Ok(self.service.lock().bulk_load(table, rows)?)
    }

    fn checkpoint(&self) -> Result<()> {
        Ok(self.checkpointer.lock().checkpoint()?)
    }

    fn flush_log(&self) -> Result<()> {
        Ok(self.flusher.flush()?)
    }

    fn settle(&self) -> Result<()> {
        // Space of old checkpoints is free for reuse after the second one.
        self.checkpoint()
    }

    fn table_bytes(&self, table: Table) -> Result<u64> {
        Ok(disk_bytes(&self.directory.join(format!("t{table}.wt"))))
    }

    fn counters(&self) -> Result<Counters> {
        let [log_bytes, syncs, blocks_read] = self.service.lock().statistics()?;
        Ok(Counters {
            log_bytes,
            syncs,
            blocks_read: Some(blocks_read),
        })
    }

    fn replayed(&self) -> Replayed {
        Replayed::default()
    }

    fn close(&self) -> Result<()> {
        // Ends the thread; the drop closes the database.
        *self.ticker.lock() = None;
        self.checkpoint()
    }
}

/// Flushes the log for everybody, as mongod's `waitUntilDurable` does: who waits while another flushes is served by the
/// flush after it, once for all that waited.
struct Flusher {
    handle: Mutex<Handle>,
    rounds: AtomicU64,
}

impl Flusher {
    fn flush(&self) -> std::result::Result<(), Code> {
        let before = self.rounds.load(Ordering::Acquire);
        let mut handle = self.handle.lock();
        // A flush that began after the call has brought everything down.
        if self.rounds.load(Ordering::Acquire) >= before + 2 {
            return Ok(());
        }
        handle.log_flush()?;
        self.rounds.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

struct WiredTigerSession<'s> {
    handle: Handle,
    flusher: &'s Flusher,
    tuned: bool,
    open: bool,
    changed: bool,
    /// What an addition reads.
    number: Vec<u8>,
}

impl Session for WiredTigerSession<'_> {
    fn begin(&mut self) -> SessionResult<()> {
        self.handle.begin()?;
        self.open = true;
        self.changed = false;
        Ok(())
    }

    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> SessionResult<bool> {
        Ok(self.handle.get(table, key, value)?)
    }

    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> SessionResult<()> {
        self.changed = true;
        Ok(self.handle.put(table, key, value)?)
    }

    /// WiredTiger has nothing of the kind: the number is read and written.
    fn add(&mut self, table: Table, key: &[u8], amount: i64) -> SessionResult<()> {
        let mut value = std::mem::take(&mut self.number);
        self.handle.get(table, key, &mut value)?;
        let number = value.as_slice().try_into().map_or(0, i64::from_le_bytes);
        self.number = value;
        self.put(table, key, &number.wrapping_add(amount).to_le_bytes())
    }

    fn delete(&mut self, table: Table, key: &[u8]) -> SessionResult<()> {
        self.changed = true;
        Ok(self.handle.delete(table, key)?)
    }

    fn scan(&mut self, table: Table) -> SessionResult<Scanned> {
        let (rows, value_bytes, sum) = self.handle.scan(table)?;
        Ok(Scanned { rows, value_bytes, sum })
    }

    fn commit(&mut self, durability: Durability) -> SessionResult<()> {
        // Whatever the outcome: WiredTiger rolls back what it cannot commit.
        self.open = false;
        if !self.changed {
            return Ok(self.handle.rollback()?);
        }
        let synced = durability == Durability::Synced;
        self.handle.commit(synced && self.tuned)?;
        if synced && !self.tuned {
            self.flusher.flush()?;
        }
        Ok(())
    }

    fn abandon(&mut self) -> SessionResult<()> {
        if std::mem::take(&mut self.open) {
            self.handle.rollback()?;
        }
        Ok(())
    }
}

impl From<Code> for SessionError {
    fn from(code: Code) -> Self {
        if code.is_conflict() {
            Self::Conflict
        } else {
            Self::Failed(code.into())
        }
    }
}
