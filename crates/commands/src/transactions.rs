//! Sessions with transaction numbers: which number is the newest in each, whether a transaction is open under it, and
//! which operation's turn it is.
//!
//! One operation at a time works in a session: it checks the session out, and others wait. The rules of numbers are
//! MongoDB's (driver specifications "Transactions" and "Retryable Writes"): a new number ends what the number before
//! left open, an older one is refused, and a transaction that ended stays ended.
//!
//! Invariants: a transaction is in its session, or with the operation that has the session; the map is locked before a
//! session, and neither while an operation works; who gets a session finds in the storage's record of it all that was
//! written in it, also by an operation that was interrupted.

use crate::counter::Counter;
use crate::error::{CommandError, Result};
use crate::stable_api::ApiParameters;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use storage::{Charge, Interrupted, Operation, SessionKey, SessionRecord, Storage, Transaction};
use wire::ErrorCode;

/// How long a waiter sleeps between two looks at its operation.
const WAIT_SLICE: Duration = Duration::from_millis(10);

/// The fields `txnNumber`, `autocommit`, `startTransaction` and `stmtId` of a command, and what belongs to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionFields {
    /// `txnNumber`.
    pub number: i64,
    /// `autocommit: false`: a statement of a transaction; else a write that may be sent again.
    pub is_transaction: bool,
    /// `startTransaction: true`.
    pub starts: bool,
    /// `stmtId`; 0 when none.
    pub statement: i32,
    /// The version of the API that the statement is of.
    pub api: ApiParameters,
}

impl TransactionFields {
    /// The number of the transaction that the call is a statement of.
    pub fn transaction_number(self) -> Option<i64> {
        self.is_transaction.then_some(self.number)
    }
}

/// What a statement does to an open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    /// It reads or writes.
    GoesOn,
    /// It commits or aborts.
    Ends,
}

/// A transaction between two statements.
pub struct OpenTransaction {
    /// Its changes, locks and snapshot.
    pub transaction: Transaction,
    /// It was begun with read concern `snapshot`.
    pub reads_snapshot: bool,
    /// All of its statements are of this version of the API.
    pub api: ApiParameters,
    /// What its changes take of the memory of all operations.
    pub memory: Charge,
    /// Monotonic time at which it began.
    pub began: Duration,
    /// The same by the clock on the wall, in milliseconds.
    pub began_ms: i64,
    /// Monotonic time at which it is ended.
    pub expires: Duration,
    /// A statement has left a cursor open.
    pub has_cursors: bool,
    /// How long its statements have worked.
    pub worked: Duration,
    /// The number of the connection that its last statement came by.
    pub connection: u32,
}

/// What became of the newest number.
enum Phase {
    /// Single writes; or nothing yet.
    Writes,
    /// A transaction is open.
    Open(Box<OpenTransaction>),
    /// A transaction is open, and with the operation that has the session.
    Working,
    /// The transaction was committed.
    Committed,
    /// It was ended otherwise.
    Aborted,
    /// Its commit is in the log, and nobody waited until that was known to stay.
    InDoubt,
}

struct State {
    /// Who has the session.
    operation: Option<Arc<Operation>>,
    number: i64,
    phase: Phase,
    /// A single write has begun, and has not come to an end at which all of it had taken effect: what it has put into
    /// the log may be on its way yet.
    has_stray_write: bool,
    /// The session was killed while the operation has it: its transaction ends when it comes back.
    is_killed: bool,
    /// Of a transaction with the operation. One that is about to end does not expire any more: its client is to hear
    /// what became of it.
    expires: Duration,
    last_used: Duration,
}

/// A session that has seen a transaction number.
struct ServerSession {
    key: SessionKey,
    state: Mutex<State>,
    free: Condvar,
}

/// What `serverStatus` shows.
#[derive(Default)]
pub struct TransactionCounters {
    /// Transactions begun.
    pub started: Counter,
    /// Of them, committed.
    pub committed: Counter,
    /// Of them, ended otherwise.
    pub aborted: Counter,
    /// Statements that had been carried out when they came.
    pub retried: Counter,
}

/// All of them.
#[derive(Default)]
pub struct ServerSessions {
    sessions: Mutex<HashMap<SessionKey, Arc<ServerSession>>>,
    /// Figures.
    pub counters: Arc<TransactionCounters>,
}

/// A session, while an operation has it.
pub struct CheckedOut {
    session: Arc<ServerSession>,
    counters: Arc<TransactionCounters>,
}

impl ServerSessions {
    /// Takes a session for an operation under a number, and waits while another one has it.
    pub fn check_out(
        &self,
        key: SessionKey,
        number: i64,
        operation: &Arc<Operation>,
        storage: &Storage,
    ) -> Result<CheckedOut> {
        let session = self
            .sessions
            .lock()
            .entry(key)
            .or_insert_with(|| first_seen(key))
            .clone();
        let mut state = session.state.lock();
        while state.operation.is_some() {
            operation.check_now().map_err(storage::StorageError::from)?;
            let _asleep = vfs::asleep();
            session.free.wait_for(&mut state, WAIT_SLICE);
        }
        // In this order: who leads again has taken in what others wrote meanwhile.
        if !storage.leads() {
            return Err(CommandError::new(ErrorCode::NotWritablePrimary, "not primary"));
        }
        self.take_up(&mut state, storage.session(&key).as_ref());
        state.operation = Some(operation.clone());
        // What a write or a commit under an older number came to nobody can ask any more.
        let has_stray = state.has_stray_write || matches!(state.phase, Phase::InDoubt);
        let is_in_doubt = has_stray && number <= state.number;
        drop(state);
        let checked_out = CheckedOut {
            session,
            counters: self.counters.clone(),
        };
        if is_in_doubt {
            self.resolve(&checked_out, operation, storage)?;
        }
        Ok(checked_out)
    }

    /// Waits until it is known what became of a commit, or of a write. Before that the session's record does not tell
    /// of it: what is sent again would be done again.
    fn resolve(&self, checked_out: &CheckedOut, operation: &Operation, storage: &Storage) -> Result<()> {
        storage.wait_settled(operation)?;
        if !storage.leads() {
            return Err(CommandError::new(ErrorCode::NotWritablePrimary, "not primary"));
        }
        let mut state = checked_out.session.state.lock();
        self.take_up(&mut state, storage.session(&checked_out.key()).as_ref());
        state.has_stray_write = false;
        if matches!(state.phase, Phase::InDoubt) {
            state.phase = Phase::Aborted;
            self.counters.aborted.add(1);
        }
        Ok(())
    }

    /// What was written in the session under another primary, or by a commit of which it was not known whether it
    /// stays, is newer than what this server remembers.
    fn take_up(&self, state: &mut State, record: Option<&SessionRecord>) {
        let Some(record) = record else { return };
        let is_newer = record.txn_number > state.number;
        let was_committed = record.txn_number == state.number && record.is_transaction;
        if !is_newer && !was_committed {
            return;
        }
        if was_committed && matches!(state.phase, Phase::InDoubt) {
            self.counters.committed.add(1);
        }
        self.end(state);
        state.number = record.txn_number;
        state.phase = match record.is_transaction {
            true => Phase::Committed,
            false => Phase::Writes,
        };
    }

    /// Ends transactions whose time is over, and forgets sessions that were not used for `idle`.
    pub fn expire(&self, now: Duration, idle: Duration) {
        let mut ended = Vec::new();
        self.sessions.lock().retain(|_, session| {
            let mut state = session.state.lock();
            match &state.phase {
                Phase::Open(open) if open.expires <= now => ended.extend(self.end(&mut state)),
                Phase::Working if state.expires <= now => {
                    if let Some(operation) = &state.operation {
                        operation.interrupt(Interrupted::TransactionExpired);
                    }
                }
                _ => {}
            }
            let is_used = state.operation.is_some() || matches!(state.phase, Phase::Open(_));
            // Whoever has the session and waits for its lock holds a reference.
            is_used || now.saturating_sub(state.last_used) < idle || Arc::strong_count(session) > 1
        });
    }

    /// Ends the transactions of some sessions, and the operations that work in them: those are told why.
    pub fn kill(&self, is_meant: impl Fn(&SessionKey) -> bool, but: Option<u32>, why: Interrupted) {
        let mut ended = Vec::new();
        for session in self.sessions.lock().values().filter(|session| is_meant(&session.key)) {
            ended.extend(self.kill_in(session, but, why));
        }
    }

    /// As [`ServerSessions::kill`], of one session.
    pub fn kill_one(&self, key: &SessionKey, but: Option<u32>, why: Interrupted) {
        let session = self.sessions.lock().get(key).cloned();
        if let Some(session) = session {
            self.kill_in(&session, but, why);
        }
    }

    /// Answers as [`ServerSessions::end`].
    fn kill_in(&self, session: &ServerSession, but: Option<u32>, why: Interrupted) -> Option<Box<OpenTransaction>> {
        let mut state = session.state.lock();
        match &state.operation {
            Some(operation) if Some(operation.id) == but => None,
            Some(operation) => {
                operation.interrupt(why);
                // It may be past its last look.
                state.is_killed = true;
                None
            }
            None => self.end(&mut state),
        }
    }

    /// Ends an open transaction, and answers it: it may take its time to be dropped, behind the locks that all sessions
    /// need.
    fn end(&self, state: &mut State) -> Option<Box<OpenTransaction>> {
        let Phase::Open(_) = state.phase else { return None };
        self.counters.aborted.add(1);
        match std::mem::replace(&mut state.phase, Phase::Aborted) {
            Phase::Open(ended) => Some(ended),
            _ => None,
        }
    }

    /// Looks at the transactions that wait for their next statement: each with its session and its number.
    pub fn for_each_inactive(&self, mut look: impl FnMut(&SessionKey, i64, &OpenTransaction)) {
        for session in self.sessions.lock().values() {
            let state = session.state.lock();
            if let Phase::Open(open) = &state.phase {
                look(&session.key, state.number, open);
            }
        }
    }

    /// Transactions that wait for their next statement, and those in one.
    pub fn open(&self) -> (u64, u64) {
        let (mut inactive, mut active) = (0, 0);
        for session in self.sessions.lock().values() {
            match session.state.lock().phase {
                Phase::Open(_) => inactive += 1,
                Phase::Working => active += 1,
                _ => {}
            }
        }
        (inactive, active)
    }
}

/// What the storage knows of it is taken up by whoever checks it out.
fn first_seen(key: SessionKey) -> Arc<ServerSession> {
    Arc::new(ServerSession {
        key,
        state: Mutex::new(State {
            operation: None,
            number: -1,
            phase: Phase::Writes,
            has_stray_write: false,
            is_killed: false,
            expires: Duration::MAX,
            last_used: Duration::ZERO,
        }),
        free: Condvar::new(),
    })
}

fn too_old(what: &str, number: i64, newest: i64) -> CommandError {
    CommandError::new(
        ErrorCode::TransactionTooOld,
        format!("Cannot {what} {number} on the session: a newer transaction number {newest} has been used already."),
    )
}

fn no_such(reason: String) -> CommandError {
    CommandError::new(ErrorCode::NoSuchTransaction, reason)
}

impl CheckedOut {
    /// The session.
    pub fn key(&self) -> SessionKey {
        self.session.key
    }

    /// A single write under a number, up to [`CheckedOut::end_write`].
    ///
    /// # Errors
    /// `TransactionTooOld`; `IncompleteTransactionHistory` when the number is a transaction's.
    pub fn begin_write(&self, number: i64) -> Result<()> {
        let mut state = self.session.state.lock();
        if number < state.number {
            return Err(too_old("write under the number", number, state.number));
        }
        if number > state.number {
            self.set_number(&mut state, number);
        }
        match state.phase {
            Phase::Writes => {
                state.has_stray_write = true;
                Ok(())
            }
            _ => Err(CommandError::new(
                ErrorCode::IncompleteTransactionHistory,
                format!("The number {number} is that of a transaction, and cannot be that of a single write"),
            )),
        }
    }

    /// All that the write has put into the log has taken effect, or has been lost with this server's leadership.
    pub fn end_write(&self) {
        self.session.state.lock().has_stray_write = false;
    }

    /// A new transaction, which `begin` makes, or an open one's next statement.
    ///
    /// # Errors
    /// `TransactionTooOld`; `ConflictingOperationInProgress` when the number to begin with was used;
    /// `NoSuchTransaction`, `TransactionCommitted`, `APIMismatchError`; those of `begin`.
    pub fn take_transaction(
        &self,
        fields: TransactionFields,
        begin: impl FnOnce() -> Result<OpenTransaction>,
    ) -> Result<Box<OpenTransaction>> {
        if !fields.starts {
            return self.take_open(fields, Statement::GoesOn)?.ok_or_else(|| {
                let number = fields.number;
                CommandError::new(
                    ErrorCode::TransactionCommitted,
                    format!("Transaction with {{ txnNumber: {number} }} has been committed."),
                )
            });
        }
        let mut state = self.session.state.lock();
        if fields.number < state.number {
            return Err(too_old("start the transaction", fields.number, state.number));
        }
        if fields.number == state.number {
            return Err(CommandError::new(
                ErrorCode::ConflictingOperationInProgress,
                format!(
                    "Cannot start a transaction at given transaction number {}: the number has been used",
                    fields.number
                ),
            ));
        }
        self.set_number(&mut state, fields.number);
        let open = begin()?;
        (state.phase, state.expires) = (Phase::Working, open.expires);
        self.counters.started.add(1);
        Ok(Box::new(open))
    }

    /// The open transaction of a number; `None` when it was committed.
    ///
    /// # Errors
    /// `TransactionTooOld`, `NoSuchTransaction`; `APIMismatchError`, and it stays open.
    pub fn take_open(&self, fields: TransactionFields, what: Statement) -> Result<Option<Box<OpenTransaction>>> {
        let number = fields.number;
        let mut state = self.session.state.lock();
        if number < state.number {
            return Err(too_old("continue the transaction", number, state.number));
        }
        if number > state.number {
            return Err(no_such(format!(
                "Given transaction number {number} does not match any in-progress transactions. The active transaction number is {}",
                state.number
            )));
        }
        if let Phase::Open(open) = &state.phase
            && open.api != fields.api
        {
            return Err(CommandError::new(
                ErrorCode::APIMismatchError,
                "apiVersion, apiStrict and apiDeprecationErrors must be those that the transaction was begun with",
            ));
        }
        match std::mem::replace(&mut state.phase, Phase::Working) {
            Phase::Open(open) => {
                state.expires = match what {
                    Statement::GoesOn => open.expires,
                    Statement::Ends => Duration::MAX,
                };
                Ok(Some(open))
            }
            phase => {
                state.phase = phase;
                match state.phase {
                    Phase::Committed => Ok(None),
                    Phase::Aborted => Err(no_such(format!(
                        "Transaction with {{ txnNumber: {number} }} has been aborted."
                    ))),
                    _ => Err(no_such(format!(
                        "Given transaction number {number} does not match any in-progress transactions."
                    ))),
                }
            }
        }
    }

    /// A statement has succeeded: the transaction waits for the next one.
    pub fn put_back(&self, open: Box<OpenTransaction>) {
        self.session.state.lock().phase = Phase::Open(open);
    }

    /// The transaction was committed.
    pub fn committed(&self) {
        self.session.state.lock().phase = Phase::Committed;
        self.counters.committed.add(1);
    }

    /// The commit was not waited for to its end.
    pub fn in_doubt(&self) {
        self.session.state.lock().phase = Phase::InDoubt;
    }

    /// The transaction was dropped.
    pub fn aborted(&self) {
        self.session.state.lock().phase = Phase::Aborted;
        self.counters.aborted.add(1);
    }

    fn set_number(&self, state: &mut State, number: i64) {
        if matches!(state.phase, Phase::Open(_)) {
            self.counters.aborted.add(1);
        }
        (state.number, state.phase, state.has_stray_write) = (number, Phase::Writes, false);
    }
}

impl Drop for CheckedOut {
    fn drop(&mut self) {
        let _ended;
        let mut state = self.session.state.lock();
        if let Some(operation) = state.operation.take() {
            state.last_used = operation.clock().monotonic();
        }
        let is_killed = std::mem::take(&mut state.is_killed);
        // The operation has ended without giving the transaction back, by an error or a panic, or somebody has killed
        // the session meanwhile.
        if matches!(state.phase, Phase::Working) || is_killed && matches!(state.phase, Phase::Open(_)) {
            _ended = std::mem::replace(&mut state.phase, Phase::Aborted);
            self.counters.aborted.add(1);
        }
        self.session.free.notify_one();
    }
}
