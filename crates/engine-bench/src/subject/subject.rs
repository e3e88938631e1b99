//! The interface of what is measured.

use anyhow::{Result, bail};

/// Number of a table; below [`TABLES_MAX`].
pub type Table = u32;

/// Tables a subject can have.
pub const TABLES_MAX: u32 = 16;

/// What a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableUse {
    /// Documents by record id.
    Records,
    /// Index entries without a value.
    Index,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// At once; the log reaches the disk every 100 ms.
    Buffered,
    /// When the log is on disk.
    Synced,
}

/// Why an operation of a session failed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Another transaction changed the same key: abandon and try again.
    #[error("write conflict")]
    Conflict,
    /// Anything else.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// The result of an operation of a session.
pub type SessionResult<T> = std::result::Result<T, SessionError>;

/// What a scan saw. The sum of the values' first bytes proves that they were touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Rows.
    pub rows: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// Sum of the first bytes of the values.
    pub sum: u64,
}

/// What a subject has done since it was opened, as far as it knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes written to the log.
    pub log_bytes: u64,
    /// Syncs of files and directories; of RocksDB only the log's.
    pub syncs: u64,
    /// Blocks read from its files, wherever the system had them; `None` when the subject does not count them.
    pub blocks_read: Option<u64>,
}

/// What opening found to replay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Replayed {
    /// Log entries; 0 when the subject does not tell.
    pub entries: u64,
}

/// One thread's view of a subject. Operations belong to a transaction: `begin`, operations, `commit` or `abandon`.
pub trait Session {
    /// Begins a transaction that sees the newest committed state.
    fn begin(&mut self) -> SessionResult<()>;
    /// Puts the value of a key into `value`; false when there is none. Does not see the transaction's own changes.
    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> SessionResult<bool>;
    /// Sets a key.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> SessionResult<()>;
    /// Adds to the number of eight bytes (little-endian) that a key has; a missing one counts as 0.
    fn add(&mut self, table: Table, key: &[u8], amount: i64) -> SessionResult<()>;
    /// Removes a key; a missing one is fine.
    fn delete(&mut self, table: Table, key: &[u8]) -> SessionResult<()>;
    /// Walks a whole table.
    fn scan(&mut self, table: Table) -> SessionResult<Scanned>;
    /// Makes the changes visible, and durable when asked.
    fn commit(&mut self, durability: Durability) -> SessionResult<()>;
    /// Drops the changes.
    fn abandon(&mut self) -> SessionResult<()>;
}

/// A storage engine with its log, open on a directory.
pub trait Subject: Send + Sync {
    /// A session for one thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;
    /// Creates an empty table.
    fn create_table(&self, table: Table, table_use: TableUse) -> Result<()>;
    /// Fills an empty table from rising keys; answers the number of rows.
    fn bulk_load(&self, table: Table, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<u64>;
    /// Makes everything committed durable outside the log, which may then shrink.
    fn checkpoint(&self) -> Result<()>;
    /// Brings the log to disk.
    fn flush_log(&self) -> Result<()>;
    /// Lets reorganisation that the engine puts off come to its end, so that sizes can be compared.
    fn settle(&self) -> Result<()>;
    /// Bytes of a table on disk, as the subject accounts for it.
    fn table_bytes(&self, table: Table) -> Result<u64>;
    /// Counters since opening.
    fn counters(&self) -> Result<Counters>;
    /// What opening replayed.
    fn replayed(&self) -> Replayed;
    /// Takes a checkpoint and ends background work; nothing else may be called then. Memory is freed by the drop.
    fn close(&self) -> Result<()>;
}

/// A transaction that is tried again after conflicts, as mongod does.
pub fn transact(
    session: &mut dyn Session,
    durability: Durability,
    mut body: impl FnMut(&mut dyn Session) -> SessionResult<()>,
) -> Result<()> {
    /// More conflicts in a row than this mean that something else is wrong.
    const TRIES: u32 = 100_000;
    for _ in 0..TRIES {
        session.begin()?;
        match body(session).and_then(|()| session.commit(durability)) {
            Ok(()) => return Ok(()),
            Err(SessionError::Conflict) => session.abandon()?,
            Err(SessionError::Failed(error)) => return Err(error),
        }
    }
    bail!("{TRIES} write conflicts in a row")
}
