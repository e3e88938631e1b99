//! Open cursors between batches.
//!
//! A cursor is either idle in the registry or pinned by the one operation that fetches from it; a pinned cursor that is
//! killed ends its operation and is forgotten when it comes back. Nothing an idle cursor holds pins a snapshot.

use crate::authentication::Identity;
use crate::counter::Counter;
use crate::error::{CommandError, Result};
use crate::pinned::PinnedState;
use crate::rights::{Grant, Rights};
use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document, doc};
use parking_lot::Mutex;
use query::exec::{PlanExecutor, PlanSummary};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use storage::{Charge, Interrupted, Operation, StorageBackup};
use vfs::Env;
use wire::ErrorCode;

/// A logical session's identifier (`lsid.id`).
pub type SessionId = [u8; 16];

/// Where a cursor's documents come from.
pub enum CursorSource {
    /// A query plan that remembers its position.
    Plan(Box<PlanExecutor>),
    /// Documents that were computed when the command ran, and their memory.
    Documents(std::vec::IntoIter<RawDocumentBuf>, Charge),
    /// The files of a backup, which ends with the cursor.
    Backup(std::vec::IntoIter<RawDocumentBuf>, StorageBackup),
}

/// A cursor with documents left.
pub struct OpenCursor {
    /// Its number, positive.
    pub id: i64,
    /// `db.collection`, or `db.$cmd.listCollections` and the like.
    pub namespace: Arc<str>,
    /// What is left.
    pub source: CursorSource,
    /// The session that made it; only that session may go on.
    pub session: Option<SessionId>,
    /// The state that it reads, where it is not the newest one.
    pub pinned: Option<PinnedState>,
    /// The number of the transaction that made it: it ends with that.
    pub transaction: Option<i64>,
    /// Who made it and what that user might do, with access control; only that user may go on.
    pub grant: Option<Arc<Grant>>,
    /// Never times out by being idle.
    pub no_timeout: bool,
    /// Answers an empty batch instead of ending.
    pub tailable: bool,
    /// Waits for documents before it answers an empty batch.
    pub await_data: bool,
    /// `maxTimeMS` of the command that made it, left for `getMore`.
    pub max_time_ms: u64,
    /// The command that made it.
    pub originating: Arc<RawDocumentBuf>,
    /// What is told of the plan.
    pub plan_summary: PlanSummary,
    /// Wall time of creation, milliseconds since the epoch.
    pub created_ms: i64,
    /// Documents returned so far.
    pub returned: u64,
    /// Monotonic time of the last use.
    pub last_used: Duration,
}

impl OpenCursor {
    /// A request for more waits for data.
    pub fn awaits(&self) -> bool {
        self.tailable && self.await_data
    }

    /// It is that of a change stream.
    pub fn follows_changes(&self) -> bool {
        matches!(&self.source, CursorSource::Plan(executor) if executor.resume_token().is_some())
    }

    /// Who made it, with access control.
    pub fn owner(&self) -> Option<&Identity> {
        self.grant.as_ref().map(|grant| &grant.user)
    }

    /// What `currentOp` tells of it.
    pub fn shown(&self) -> ShownCursor {
        ShownCursor {
            id: self.id,
            created_ms: self.created_ms,
            returned: self.returned,
            no_timeout: self.no_timeout,
            tailable: self.tailable,
            await_data: self.await_data,
            originating: Arc::clone(&self.originating),
        }
    }
}

/// What `currentOp` tells of a cursor; the fields are those of [`OpenCursor`].
#[derive(Clone)]
pub struct ShownCursor {
    id: i64,
    created_ms: i64,
    returned: u64,
    no_timeout: bool,
    tailable: bool,
    await_data: bool,
    originating: Arc<RawDocumentBuf>,
}

impl ShownCursor {
    /// As a document.
    pub fn to_document(&self) -> Document {
        doc! {
            "cursorId": self.id,
            "createdDate": DateTime::from_millis(self.created_ms),
            "nDocsReturned": self.returned as i64,
            "noCursorTimeout": self.no_timeout,
            "tailable": self.tailable,
            "awaitData": self.await_data,
            "originatingCommand": Document::try_from(&**self.originating).unwrap_or_default(),
        }
    }
}

enum Entry {
    Idle(Box<OpenCursor>),
    Pinned {
        namespace: Arc<str>,
        session: Option<SessionId>,
        grant: Option<Arc<Grant>>,
        operation: Arc<Operation>,
        /// As it was before.
        shown: ShownCursor,
    },
}

impl Entry {
    fn owner(&self) -> Option<&Identity> {
        match self {
            Self::Idle(cursor) => cursor.owner(),
            Self::Pinned { grant, .. } => grant.as_ref().map(|grant| &grant.user),
        }
    }
}

/// What became of a request to kill a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Killed {
    /// It is gone.
    Gone,
    /// There is no such cursor.
    NotFound,
}

/// How many cursors there are.
#[derive(Clone, Copy, Debug, Default)]
pub struct CursorCounts {
    /// All.
    pub total: i64,
    /// Being fetched from now.
    pub pinned: i64,
    /// Exempt from time-outs.
    pub no_timeout: i64,
}

/// Fails where a cursor was not made in the session, or transaction, that goes on with it. Three codes in a row tell of
/// what was made without one, of a call without one, and of two that differ.
fn check_same<T: PartialEq>(
    id: i64,
    what: &str,
    of_cursor: Option<T>,
    of_call: Option<T>,
    first_code: i32,
) -> Result<()> {
    let (code, how) = match (of_cursor, of_call) {
        (None, None) => return Ok(()),
        (Some(one), Some(other)) if one == other => return Ok(()),
        (None, Some(_)) => (first_code, format!("was not created in a {what}, in a {what}")),
        (Some(_), None) => (first_code + 1, format!("was created in a {what}, without one")),
        (Some(_), Some(_)) => (first_code + 2, format!("was created in another {what}")),
    };
    Err(CommandError::new(
        ErrorCode(code),
        format!("Cannot run getMore on cursor {id}, which {how}"),
    ))
}

/// All open cursors of the server.
pub struct Cursors {
    env: Env,
    entries: Mutex<HashMap<i64, Entry>>,
    /// Cursors ever opened.
    pub opened: Counter,
    /// Cursors ended by being idle.
    pub timed_out: Counter,
    next_hint: AtomicI64,
}

impl Cursors {
    /// None open.
    pub fn new(env: Env) -> Self {
        Self {
            env,
            entries: Mutex::new(HashMap::new()),
            opened: Counter::default(),
            timed_out: Counter::default(),
            next_hint: AtomicI64::new(1),
        }
    }

    /// A number no open cursor has: random, positive.
    pub fn new_id(&self) -> i64 {
        let entries = self.entries.lock();
        loop {
            let salt = self.next_hint.fetch_add(1, Ordering::Relaxed);
            let id = ((self.env.random.next_u64() ^ salt as u64) >> 1) as i64;
            if id > 0 && !entries.contains_key(&id) {
                return id;
            }
        }
    }

    /// Keeps a new cursor.
    pub fn add(&self, mut cursor: OpenCursor) {
        cursor.last_used = self.env.clock.monotonic();
        self.opened.add(1);
        self.entries.lock().insert(cursor.id, Entry::Idle(Box::new(cursor)));
    }

    /// What an idle cursor has left of its `maxTimeMS`; 0: it is not limited.
    #[cfg(test)]
    pub fn time_of(&self, id: i64) -> Option<u64> {
        match self.entries.lock().get(&id)? {
            Entry::Idle(cursor) => Some(cursor.max_time_ms),
            Entry::Pinned { .. } => None,
        }
    }

    /// Takes a cursor for one `getMore` of `operation`. Errors: `CursorNotFound`, `CursorInUse`, 50736 to 50741 for
    /// another session or transaction, `Unauthorized`-like 13 when the namespace is not the cursor's.
    pub fn check_out(
        &self,
        id: i64,
        namespace: &str,
        (session, transaction): (Option<SessionId>, Option<i64>),
        rights: &Rights,
        operation: &Arc<Operation>,
    ) -> Result<Box<OpenCursor>> {
        let mut entries = self.entries.lock();
        match entries.get(&id) {
            None => {
                return Err(CommandError::new(
                    ErrorCode::CursorNotFound,
                    format!("cursor id {id} not found"),
                ));
            }
            Some(Entry::Pinned { .. }) => {
                return Err(CommandError::new(
                    ErrorCode::CursorInUse,
                    format!("cursor id {id} is already in use"),
                ));
            }
            Some(Entry::Idle(cursor)) => {
                if !rights.is_own(cursor.owner()) {
                    return Err(CommandError::new(
                        ErrorCode::Unauthorized,
                        format!("cursor id {id} was not created by the authenticated user"),
                    ));
                }
                if *cursor.namespace != *namespace {
                    return Err(CommandError::new(
                        ErrorCode::Unauthorized,
                        format!(
                            "Requested getMore on namespace '{namespace}', but cursor belongs to a different namespace {}",
                            cursor.namespace
                        ),
                    ));
                }
                check_same(id, "session", cursor.session, session, 50736)?;
                check_same(id, "transaction", cursor.transaction, transaction, 50739)?;
            }
        }
        let Some(Entry::Idle(cursor)) = entries.remove(&id) else {
            return Err(CommandError::new(
                ErrorCode::CursorNotFound,
                format!("cursor id {id} not found"),
            ));
        };
        let pinned = Entry::Pinned {
            namespace: Arc::clone(&cursor.namespace),
            session: cursor.session,
            grant: cursor.grant.clone(),
            operation: Arc::clone(operation),
            shown: cursor.shown(),
        };
        entries.insert(id, pinned);
        Ok(cursor)
    }

    /// Gives a cursor back after a `getMore`; it is forgotten when it was killed meanwhile.
    pub fn check_in(&self, mut cursor: Box<OpenCursor>) {
        cursor.last_used = self.env.clock.monotonic();
        let mut entries = self.entries.lock();
        if let Some(entry) = entries.get_mut(&cursor.id) {
            *entry = Entry::Idle(cursor);
        }
    }

    /// Ends a cursor that was checked out.
    pub fn finish(&self, id: i64) {
        self.entries.lock().remove(&id);
    }

    /// Kills a cursor, pinned or idle.
    pub fn kill(&self, id: i64) -> Killed {
        // What a cursor holds, memory and temporary files of any size, goes outside the lock of all cursors.
        let removed = self.entries.lock().remove(&id);
        match removed {
            None => Killed::NotFound,
            Some(Entry::Idle(_)) => Killed::Gone,
            Some(Entry::Pinned { operation, .. }) => {
                operation.kill_handle().set(Interrupted::CursorKilled);
                Killed::Gone
            }
        }
    }

    /// What a cursor belongs to, if it is another user's.
    pub fn namespace_of_others(&self, id: i64, rights: &Rights) -> Option<Arc<str>> {
        match self.entries.lock().get(&id)? {
            entry if rights.is_own(entry.owner()) => None,
            Entry::Idle(cursor) => Some(Arc::clone(&cursor.namespace)),
            Entry::Pinned { namespace, .. } => Some(Arc::clone(namespace)),
        }
    }

    fn kill_where(&self, doomed: impl Fn(&Entry) -> bool) -> usize {
        // Dropped outside the lock: see `kill`.
        let removed: Vec<(i64, Entry)> = {
            let mut entries = self.entries.lock();
            entries.extract_if(|_, entry| doomed(entry)).collect()
        };
        for (_, entry) in &removed {
            if let Entry::Pinned { operation, .. } = entry {
                operation.kill_handle().set(Interrupted::CursorKilled);
            }
        }
        removed.len()
    }

    /// Kills the cursors of the sessions and users that `is_meant` says yes to.
    pub fn kill_of_sessions(&self, is_meant: impl Fn(&SessionId, Option<&Identity>) -> bool) -> usize {
        self.kill_where(|entry| {
            let session = match entry {
                Entry::Idle(cursor) => cursor.session.as_ref(),
                Entry::Pinned { session, .. } => session.as_ref(),
            };
            session.is_some_and(|session| is_meant(session, entry.owner()))
        })
    }

    /// Kills the cursors of a session's transaction.
    pub fn kill_of_transaction(&self, session: Option<SessionId>, number: i64, rights: &Rights) {
        self.kill_where(|entry| match entry {
            Entry::Idle(cursor) => {
                cursor.transaction == Some(number) && cursor.session == session && rights.is_own(cursor.owner())
            }
            Entry::Pinned { .. } => false,
        });
    }

    /// Kills every cursor.
    pub fn kill_all(&self) -> usize {
        self.kill_where(|_| true)
    }

    /// Ends cursors that were idle for longer than `limit`.
    pub fn expire(&self, limit: Duration) {
        let now = self.env.clock.monotonic();
        let ended = self.kill_where(|entry| match entry {
            Entry::Idle(cursor) => !cursor.no_timeout && now.saturating_sub(cursor.last_used) >= limit,
            Entry::Pinned { .. } => false,
        });
        self.timed_out.add(ended as u64);
    }

    /// Whether an idle cursor is that of a change stream.
    pub fn follows_changes(&self, id: i64) -> bool {
        matches!(self.entries.lock().get(&id), Some(Entry::Idle(cursor)) if cursor.follows_changes())
    }

    /// How many there are.
    pub fn counts(&self) -> CursorCounts {
        let mut counts = CursorCounts::default();
        for entry in self.entries.lock().values() {
            counts.total += 1;
            let no_timeout = match entry {
                Entry::Idle(cursor) => cursor.no_timeout,
                Entry::Pinned { shown, .. } => {
                    counts.pinned += 1;
                    shown.no_timeout
                }
            };
            counts.no_timeout += i64::from(no_timeout);
        }
        counts
    }

    /// A cursor that an operation fetches from.
    pub fn used_by(&self, operation: &Arc<Operation>, id: i64) -> Option<ShownCursor> {
        match self.entries.lock().get(&id)? {
            Entry::Pinned {
                operation: by, shown, ..
            } if Arc::ptr_eq(by, operation) => Some(shown.clone()),
            _ => None,
        }
    }

    /// Calls `look` on every idle cursor, for `currentOp` with `idleCursors`.
    pub fn for_each_idle(&self, mut look: impl FnMut(&OpenCursor)) {
        for entry in self.entries.lock().values() {
            if let Entry::Idle(cursor) = entry {
                look(cursor);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use storage::{MemoryAccount, MemoryBudget};
    use vfs::{RealFs, SeededRandom, SimulatedClock};

    fn fixture() -> (Cursors, Arc<SimulatedClock>, Arc<Operation>) {
        let clock = Arc::new(SimulatedClock::new(0));
        let env = Env {
            fs: Arc::new(RealFs),
            clock: clock.clone(),
            random: Arc::new(SeededRandom::new(1)),
        };
        let operation = Arc::new(Operation::new(clock.clone(), 1));
        (Cursors::new(env), clock, operation)
    }

    fn open(cursors: &Cursors, session: Option<SessionId>, no_timeout: bool) -> i64 {
        let id = cursors.new_id();
        cursors.add(OpenCursor {
            id,
            namespace: "db.c".into(),
            source: CursorSource::Documents(
                vec![RawDocumentBuf::new()].into_iter(),
                Charge::new(&MemoryAccount::new(&MemoryBudget::unlimited())),
            ),
            session,
            pinned: None,
            transaction: None,
            grant: None,
            no_timeout,
            tailable: false,
            await_data: false,
            max_time_ms: 0,
            originating: Arc::default(),
            plan_summary: PlanSummary::default(),
            created_ms: 0,
            returned: 0,
            last_used: Duration::ZERO,
        });
        id
    }

    #[test]
    fn a_cursor_belongs_to_its_session_and_namespace() {
        let (cursors, _, operation) = fixture();
        let id = open(&cursors, Some([1; 16]), false);
        let everybody = &Rights::Unchecked;
        let check_out = |namespace, session| cursors.check_out(id, namespace, (session, None), everybody, &operation);
        let code = |refused: Result<Box<OpenCursor>>| refused.err().unwrap().code.0;
        assert_eq!(code(check_out("db.c", None)), 50737);
        assert_eq!(code(check_out("db.c", Some([2; 16]))), 50738);
        let outside = open(&cursors, None, false);
        let inside = (Some([1; 16]), None);
        assert_eq!(
            code(cursors.check_out(outside, "db.c", inside, everybody, &operation)),
            50736
        );
        cursors.finish(outside);
        let other = (Some([1; 16]), Some(7));
        assert_eq!(code(cursors.check_out(id, "db.c", other, everybody, &operation)), 50739);
        assert!(check_out("db.d", Some([1; 16])).is_err());
        let cursor = check_out("db.c", Some([1; 16])).unwrap();
        let twice = cursors
            .check_out(id, "db.c", (Some([1; 16]), None), everybody, &operation)
            .err()
            .unwrap();
        assert_eq!(twice.code, ErrorCode::CursorInUse);
        assert_eq!(cursors.counts().pinned, 1);
        cursors.check_in(cursor);
        assert_eq!(cursors.kill_of_sessions(|id, _| *id == [2; 16]), 0);
        assert_eq!(cursors.kill_of_sessions(|id, _| *id == [1; 16]), 1);
        assert_eq!(cursors.counts().total, 0);
    }

    #[test]
    fn a_pinned_cursor_that_is_killed_does_not_come_back() {
        let (cursors, _, operation) = fixture();
        let id = open(&cursors, None, false);
        let cursor = cursors
            .check_out(id, "db.c", (None, None), &Rights::Unchecked, &operation)
            .unwrap();
        assert_eq!(cursors.kill(id), Killed::Gone);
        assert!(operation.check().is_err());
        cursors.check_in(cursor);
        assert_eq!(cursors.kill(id), Killed::NotFound);
    }

    #[test]
    fn idle_cursors_expire_and_exempt_ones_stay() {
        let (cursors, clock, _) = fixture();
        let doomed = open(&cursors, None, false);
        let kept = open(&cursors, None, true);
        clock.advance(Duration::from_secs(599));
        cursors.expire(Duration::from_secs(600));
        assert_eq!(cursors.counts().total, 2);
        clock.advance(Duration::from_secs(1));
        cursors.expire(Duration::from_secs(600));
        assert_eq!(cursors.counts().total, 1);
        assert_eq!(cursors.timed_out.get(), 1);
        assert_eq!(cursors.kill(doomed), Killed::NotFound);
        assert_eq!(cursors.kill(kept), Killed::Gone);
    }
}
