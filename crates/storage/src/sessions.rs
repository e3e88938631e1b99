//! Sessions: what was written under a session's transaction number, so that a write which is sent again is recognised.
//!
//! An entry names its session, the number, and the statement of each change; from that its effect derives the session's
//! record and what each statement came to. Recovery, and whoever else applies the log, derives the same: a statement is
//! known exactly as long as what it wrote is.
//!
//! Rows of the table `SESSIONS` are described in `docs/formats/catalog.md`. A record's row holds what its first
//! statement came to, which is all that most writes have; other statements have rows of their own. Memory has the
//! records of all sessions, and of a first statement only what is small: images of documents are read when somebody
//! asks.
//!
//! An entry's record follows from the session's record before it: that of its last entry which is proposed and not
//! applied yet, else the one that is installed. Those who look whether a write was sent before look at what is
//! installed: one operation at a time has a session, and it ends when what it has written has taken effect, or, under
//! a number that is asked about no more, has lost patience (`wtimeout`).

use crate::catalog::rows::{SESSIONS, corrupt};
use crate::cluster_time::{ClusterTime, EntryTime};
use crate::effect::Effect;
use crate::entry::{EntrySession, EntryWriter};
use crate::limits::{FORGOTTEN_LATE_MS, FORGOTTEN_SESSIONS_MAX};
use crate::mutations::mutated;
use crate::session_key::{Kept, SessionKey};
use crate::storage::Storage;
use crate::{StorageError, diff};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use engine::{Direction, FillLimits, KeyRange, Rows, Seq, Snapshot};
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The sort of a statement's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A document came.
    Inserted = 1,
    /// It changed.
    Updated = 2,
    /// It went.
    Deleted = 3,
}

/// What a statement came to.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementResult {
    /// What it did.
    pub kind: StatementKind,
    /// `{_id: …}` of the document, unless nothing was kept, or the image, which has it.
    pub key: Option<RawDocumentBuf>,
    /// The document before or after the change, as [`Kept`] says.
    pub image: Option<RawDocumentBuf>,
}

impl StatementResult {
    /// `_id` of the document, unless nothing was kept.
    pub fn id(&self) -> Option<RawBsonRef<'_>> {
        let kept = self.key.as_ref().or(self.image.as_ref())?;
        kept.get("_id").ok().flatten()
    }
}

/// What is known of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRecord {
    /// The newest transaction number with a write.
    pub txn_number: i64,
    /// It is that of a transaction, which was committed; else of single writes.
    pub is_transaction: bool,
    /// Place and time of its newest entry.
    pub seq: Seq,
    /// See `seq`.
    pub time: ClusterTime,
    /// Wall time of that, in milliseconds since the Unix epoch.
    pub wall_ms: i64,
    /// What is remembered of the statements in its row.
    first: Option<FirstStatements>,
    /// Others have rows of their own.
    has_rows: bool,
}

/// Statements `first..=last` in a row that came to the same.
#[derive(Clone, Debug, PartialEq)]
struct Statements {
    first: i32,
    last: i32,
    result: StatementResult,
}

/// What is remembered of the statements in a record's row.
#[derive(Clone, Debug, PartialEq)]
struct FirstStatements {
    first: i32,
    last: i32,
    /// `None`: it is large, and only in the row.
    result: Option<StatementResult>,
}

/// What is known of sessions, by session.
#[derive(Default)]
pub(crate) struct Sessions {
    records: Mutex<HashMap<SessionKey, SessionRecord>>,
    /// Of entries that are proposed and not applied yet: what the last one of each session leaves of it.
    proposed: Mutex<HashMap<SessionKey, ProposedRecord>>,
    /// There is a table for them.
    are_kept: AtomicBool,
}

/// A session as an entry leaves it.
struct ProposedRecord {
    seq: Seq,
    /// `None`: the entry forgets it.
    record: Option<SessionRecord>,
}

/// What an effect does to a session.
pub(crate) struct SessionEffect {
    session: EntrySession,
    current: Option<(i32, Kept)>,
    /// Statements before the current one of which the same changes are.
    joined: Vec<(i32, Kept)>,
    /// No change of the current statement has been noted.
    awaits_change: bool,
    statements: Vec<Statements>,
    record: Option<SessionRecord>,
}

const KEY_BYTES: usize = 16 + 32;
const STATEMENT_BYTES: usize = 4;
/// Of a record's row: number, kind, position, cluster time, wall time, whether there are rows.
const RECORD_BYTES: usize = 8 + 1 + 8 + 8 + 8 + 1;
/// The largest document key that is remembered with a record: there are up to a million of them.
const REMEMBERED_KEY_BYTES_MAX: usize = 256;

impl SessionKey {
    fn row_key(&self) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&self.id);
        key[16..].copy_from_slice(&self.user);
        key
    }

    fn statement_key(&self, statement: i32) -> Vec<u8> {
        // Statement numbers are not negative: commands check that.
        [self.row_key().as_slice(), &(statement as u32).to_be_bytes()].concat()
    }

    fn statement_rows(&self) -> KeyRange {
        KeyRange {
            start: Bound::Excluded(self.row_key().to_vec()),
            end: Bound::Included([self.row_key().as_slice(), &u32::MAX.to_be_bytes()].concat()),
        }
    }

    fn from_row_key(key: &[u8]) -> Option<Self> {
        let (id, user) = key.split_first_chunk::<16>()?;
        Some(Self {
            id: *id,
            user: user.try_into().ok()?,
        })
    }
}

impl Statements {
    fn covers(&self, statement: i32) -> bool {
        (self.first..=self.last).contains(&statement)
    }

    fn is_small(&self) -> bool {
        let key = self.result.key.as_ref();
        self.result.image.is_none() && key.is_none_or(|key| key.as_bytes().len() <= REMEMBERED_KEY_BYTES_MAX)
    }

    fn remembered(&self) -> FirstStatements {
        FirstStatements {
            first: self.first,
            last: self.last,
            result: self.is_small().then(|| self.result.clone()),
        }
    }

    fn row(&self) -> Vec<u8> {
        let mut row = Vec::new();
        self.append(&mut row);
        row
    }

    fn append(&self, row: &mut Vec<u8>) {
        row.extend_from_slice(&self.first.to_le_bytes());
        row.extend_from_slice(&self.last.to_le_bytes());
        row.push(self.result.kind as u8);
        for document in [&self.result.key, &self.result.image] {
            match document {
                Some(document) => row.extend_from_slice(document.as_bytes()),
                // No document is that short.
                None => row.extend_from_slice(&0_u32.to_le_bytes()),
            }
        }
    }

    fn read(mut bytes: &[u8]) -> Option<Self> {
        let number = |bytes: &mut &[u8]| {
            let (number, rest) = bytes.split_first_chunk::<4>()?;
            *bytes = rest;
            Some(i32::from_le_bytes(*number))
        };
        let (first, last) = (number(&mut bytes)?, number(&mut bytes)?);
        let (&kind, rest) = bytes.split_first()?;
        bytes = rest;
        let mut document = || {
            let length = usize::try_from(i32::from_le_bytes(*bytes.first_chunk::<4>()?)).ok()?;
            let (document, rest) = bytes.split_at_checked(length.max(4))?;
            bytes = rest;
            match length {
                0 => Some(None),
                _ => Some(Some(RawDocument::from_bytes(document).ok()?.to_owned())),
            }
        };
        let result = StatementResult {
            kind: match kind {
                1 => StatementKind::Inserted,
                2 => StatementKind::Updated,
                3 => StatementKind::Deleted,
                _ => return None,
            },
            key: document()?,
            image: document()?,
        };
        bytes.is_empty().then_some(Self { first, last, result })
    }
}

impl SessionRecord {
    /// The record's row, with the statements that stand in it.
    fn row(&self, first: Option<&Statements>) -> Vec<u8> {
        let mut row = Vec::with_capacity(RECORD_BYTES + 64);
        row.extend_from_slice(&self.txn_number.to_le_bytes());
        row.push(u8::from(self.is_transaction));
        row.extend_from_slice(&self.seq.0.to_le_bytes());
        row.extend_from_slice(&self.time.0.to_le_bytes());
        row.extend_from_slice(&self.wall_ms.to_le_bytes());
        row.push(u8::from(self.has_rows));
        if let Some(first) = first {
            first.append(&mut row);
        }
        row
    }

    /// The record, and the statements that stand in its row.
    fn read(row: &[u8]) -> Option<(Self, Option<Statements>)> {
        let (record, first) = row.split_at_checked(RECORD_BYTES)?;
        let number = |at: usize| Some(u64::from_le_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let flag = |at: usize| match record[at] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let first = match first {
            [] => None,
            first => Some(Statements::read(first)?),
        };
        let record = Self {
            txn_number: number(0)? as i64,
            is_transaction: flag(8)?,
            seq: Seq(number(9)?),
            time: ClusterTime(number(17)?),
            wall_ms: number(25)? as i64,
            has_rows: flag(33)?,
            first: first.as_ref().map(Statements::remembered),
        };
        Some((record, first))
    }
}

impl SessionEffect {
    pub(crate) fn new(session: EntrySession) -> Self {
        Self {
            session,
            current: None,
            joined: Vec::new(),
            awaits_change: false,
            statements: Vec::new(),
            record: None,
        }
    }

    /// The changes that follow are this statement's.
    pub(crate) fn begin_statement(&mut self, statement: i32, kept: Kept) {
        self.current = Some((statement, kept));
        self.joined.clear();
        self.awaits_change = true;
    }

    /// As the log has it: of statements without a change in between all have the changes that follow.
    pub(crate) fn replay_statement(&mut self, statement: i32, kept: Kept) {
        match self.awaits_change {
            true => self.join_statement(statement, kept),
            false => self.begin_statement(statement, kept),
        }
    }

    /// The changes that follow are this statement's, too.
    pub(crate) fn join_statement(&mut self, statement: i32, kept: Kept) {
        self.joined.extend(self.current.replace((statement, kept)));
    }

    /// A document changes.
    pub(crate) fn note(&mut self, old: Option<&RawDocument>, new: Option<&[u8]>) {
        self.awaits_change = false;
        for place in 0..self.joined.len() {
            self.note_of(self.joined[place], old, new);
        }
        if let Some(current) = self.current {
            self.note_of(current, old, new);
        }
    }

    fn note_of(&mut self, (statement, kept): (i32, Kept), old: Option<&RawDocument>, new: Option<&[u8]>) {
        let kind = match (old, new) {
            (None, _) => StatementKind::Inserted,
            (Some(_), Some(_)) => StatementKind::Updated,
            (Some(_), None) => StatementKind::Deleted,
        };
        let owned = |bytes: &[u8]| RawDocument::from_bytes(bytes).ok().map(RawDocument::to_owned);
        let key = |document: &[u8]| {
            let mut key = Vec::new();
            diff::append_key(document, &mut key)?;
            owned(&key)
        };
        let old_bytes = old.map(RawDocument::as_bytes);
        let image = match kept {
            Kept::Before => old_bytes.and_then(owned),
            Kept::After => new.and_then(owned),
            Kept::Nothing | Kept::Key => None,
        };
        // One of the two: a largest document and its `_id` together are longer than a row may be.
        let has_key = kept != Kept::Nothing && image.is_none();
        let key = new.or(old_bytes).filter(|_| has_key).and_then(key);
        let result = StatementResult { kind, key, image };
        match self.statements.last_mut() {
            // An insert into a capped collection deletes first.
            Some(last) if last.last == statement => last.result = result,
            Some(last)
                if kept == Kept::Nothing && last.last.checked_add(1) == Some(statement) && last.result == result =>
            {
                last.last = statement;
            }
            _ => self.statements.push(Statements {
                first: statement,
                last: statement,
                result,
            }),
        }
    }
}

impl Effect {
    /// What follows from the entry's place and time.
    ///
    /// # Errors
    /// What the session has written before cannot be read.
    pub(crate) fn finish(&mut self, storage: &Storage, seq: Seq, time: EntryTime) -> Result<(), StorageError> {
        self.time = time.cluster;
        self.finish_session(storage, seq, time)
    }

    /// Takes what was noted of the session into the batch.
    fn finish_session(&mut self, storage: &Storage, seq: Seq, time: EntryTime) -> Result<(), StorageError> {
        let Some(effect) = &mut self.session else {
            return Ok(());
        };
        let SessionEffect {
            session: EntrySession { key, txn_number },
            statements,
            ..
        } = &mut **effect;
        let batch = &mut self.overlay.batch;
        let before = storage.sessions.newest(key);
        let mut record = SessionRecord {
            txn_number: *txn_number,
            is_transaction: statements.is_empty(),
            seq,
            time: time.cluster,
            wall_ms: time.wall_ms,
            first: None,
            has_rows: false,
        };
        // Statements that the record's row will have.
        let mut in_row = None;
        match before {
            Some(before) if before.txn_number == *txn_number => {
                record.has_rows = before.has_rows;
                in_row = storage.newest_in_row(key, before)?;
            }
            Some(before) if before.has_rows => batch.delete_range(SESSIONS, key.statement_rows()),
            _ => {}
        }
        for statements in std::mem::take(statements) {
            // What is large leaves the record's row at the next statement: it is not written again with each.
            let stays = in_row.as_ref().is_some_and(Statements::is_small);
            let leaves = if stays {
                Some(statements)
            } else {
                in_row.replace(statements)
            };
            if let Some(leaves) = leaves {
                record.has_rows = true;
                batch.put(SESSIONS, key.statement_key(leaves.last), leaves.row());
            }
        }
        record.first = in_row.as_ref().map(Statements::remembered);
        if !mutated!(ForgetsSessions) {
            batch.put(SESSIONS, key.row_key().to_vec(), record.row(in_row.as_ref()));
        }
        effect.record = Some(record);
        Ok(())
    }

    /// Forgets sessions without a write since `before_ms`, as the entries before have left them.
    pub(crate) fn forget_sessions(&mut self, sessions: &Sessions, before_ms: i64) {
        for (key, has_rows) in sessions.unused_since(before_ms) {
            self.overlay.batch.delete(SESSIONS, key.row_key().to_vec());
            if has_rows {
                self.overlay.batch.delete_range(SESSIONS, key.statement_rows());
            }
            self.forgotten_sessions.push(key);
        }
    }
}

impl Sessions {
    fn get(&self, key: &SessionKey) -> Option<SessionRecord> {
        self.records.lock().get(key).cloned()
    }

    /// As the last entry in the log left it. By who proposes or applies the next one.
    fn newest(&self, key: &SessionKey) -> Option<SessionRecord> {
        let proposed = self.proposed.lock().get(key).map(|proposed| proposed.record.clone());
        proposed.unwrap_or_else(|| self.get(key))
    }

    /// The sessions without a write since a time, as the last entry in the log left them, by their keys, and whether
    /// they have rows of statements. By who proposes or applies the next one.
    fn unused_since(&self, before_ms: i64) -> Vec<(SessionKey, bool)> {
        let (proposed, records) = (self.proposed.lock(), self.records.lock());
        let is_unused = |record: &SessionRecord| record.wall_ms < before_ms;
        let mut unused = Vec::new();
        for (key, record) in &*records {
            if is_unused(record) && !proposed.contains_key(key) {
                unused.push((*key, record.has_rows));
            }
        }
        for (key, ProposedRecord { record, .. }) in &*proposed {
            if let Some(record) = record.as_ref().filter(|record| is_unused(record)) {
                unused.push((*key, record.has_rows));
            }
        }
        unused.sort_unstable_by_key(|(key, _)| key.row_key());
        unused
    }

    /// A time not behind `before_ms`: of the sessions without a write since then, about [`FORGOTTEN_SESSIONS_MAX`] have
    /// none since that. `None` when there are no such sessions, or few and not for long.
    fn oldest_before(&self, before_ms: i64) -> Option<i64> {
        let of_all = |record: &SessionRecord| Some(record.wall_ms).filter(|wall_ms| *wall_ms < before_ms);
        let mut times: Vec<i64> = self.records.lock().values().filter_map(of_all).collect();
        if times.len() <= FORGOTTEN_SESSIONS_MAX {
            let is_late = times
                .iter()
                .any(|time| *time < before_ms.saturating_sub(FORGOTTEN_LATE_MS));
            return is_late.then_some(before_ms);
        }
        // Not before all of them, however many have the same time.
        let (earlier, at, _) = times.select_nth_unstable(FORGOTTEN_SESSIONS_MAX);
        let has_earlier = earlier.iter().any(|earlier| *earlier < *at);
        Some(*at + i64::from(!has_earlier))
    }

    /// The entry at `seq` is proposed, and will take effect later. In the order of the log.
    pub(crate) fn propose(&self, seq: Seq, session: Option<&SessionEffect>, forgotten: &[SessionKey]) {
        if session.is_none() && forgotten.is_empty() {
            return;
        }
        let mut proposed = self.proposed.lock();
        for key in forgotten {
            proposed.insert(*key, ProposedRecord { seq, record: None });
        }
        if let Some(effect) = session {
            let record = Some(effect.record.clone().expect("its entry has its place"));
            proposed.insert(effect.session.key, ProposedRecord { seq, record });
        }
    }

    /// The entry at `seq` has taken effect on sessions. Behind `records`: whoever finds none here finds it there.
    fn installed<'k>(&self, seq: Seq, keys: impl Iterator<Item = &'k SessionKey>) {
        let mut proposed = self.proposed.lock();
        for key in keys {
            if proposed.get(key).is_some_and(|proposed| proposed.seq == seq) {
                proposed.remove(key);
            }
        }
    }

    /// What was proposed is lost.
    pub(crate) fn clear_proposed(&self) {
        self.proposed.lock().clear();
    }

    /// From here on there is a table.
    pub(crate) fn set_kept(&self) {
        self.are_kept.store(true, Ordering::Release);
    }

    pub(crate) fn are_kept(&self) -> bool {
        self.are_kept.load(Ordering::Acquire)
    }

    pub(crate) fn install(&self, effect: SessionEffect) {
        let record = effect.record.expect("it was finished when its entry got its place");
        let (key, seq) = (effect.session.key, record.seq);
        self.records.lock().insert(key, record);
        self.installed(seq, std::iter::once(&key));
    }

    /// The entry at `seq` forgets sessions.
    pub(crate) fn forget(&self, seq: Seq, forgotten: &[SessionKey]) {
        let mut records = self.records.lock();
        for key in forgotten {
            records.remove(key);
        }
        drop(records);
        self.installed(seq, forgotten.iter());
    }

    /// Fills it from its table, if there is one.
    pub(crate) fn load(&self, snapshot: &Arc<dyn Snapshot>) -> Result<(), StorageError> {
        let mut cursor = snapshot.clone().cursor(SESSIONS, KeyRange::all(), Direction::Forward)?;
        let mut rows = Rows::new();
        let mut records = self.records.lock();
        while cursor.fill(&mut rows, FillLimits::default())? {
            for row in 0..rows.len() {
                let key = rows.key(row);
                if key.len() == KEY_BYTES + STATEMENT_BYTES {
                    continue;
                }
                let damaged = |what: &str| corrupt(key, format!("a session's {what} is malformed"));
                let session = SessionKey::from_row_key(key).ok_or_else(|| damaged("key"))?;
                let (record, _) = SessionRecord::read(rows.value(row)).ok_or_else(|| damaged("record"))?;
                records.insert(session, record);
            }
        }
        Ok(())
    }
}

impl Storage {
    /// Makes the table of sessions, if there is none yet: before anything is written in a session.
    pub fn keep_sessions(&self) -> Result<(), StorageError> {
        if self.sessions.are_kept() {
            return Ok(());
        }
        let mut entry = EntryWriter::default();
        entry.keep_sessions();
        self.commit_derived(&mut entry, |_| {
            let mut effect = Effect::default();
            effect.keep_sessions();
            effect
        })?;
        Ok(())
    }

    /// What is known of a session; nothing of one without a write.
    pub fn session(&self, key: &SessionKey) -> Option<SessionRecord> {
        self.sessions.get(key)
    }

    /// Sessions of which something is known.
    pub fn session_count(&self) -> usize {
        self.sessions.records.lock().len()
    }

    /// The statements in the row of a record that is the session's newest one. By who proposes or applies the next.
    fn newest_in_row(&self, key: &SessionKey, record: SessionRecord) -> Result<Option<Statements>, StorageError> {
        let Some(FirstStatements { first, last, result }) = record.first else {
            return Ok(None);
        };
        if let Some(result) = result {
            return Ok(Some(Statements { first, last, result }));
        }
        // First what is pending: what leaves in between has been published before.
        let row = match self.pending.get(SESSIONS, &key.row_key()) {
            Some((_, row)) => row,
            None => self.engine.snapshot()?.get(SESSIONS, &key.row_key())?,
        };
        let in_row = row.map(|row| read_record(key, &row)).transpose()?;
        let found = in_row.and_then(|(_, in_row)| in_row);
        match found.filter(|found| (found.first, found.last) == (first, last)) {
            Some(found) => Ok(Some(found)),
            None => Err(corrupt(&key.row_key(), "a session's statement is missing".to_owned())),
        }
    }

    /// What a statement of the session's newest transaction number came to; `None` when it has written nothing.
    pub fn statement(
        &self,
        record: &SessionRecord,
        key: &SessionKey,
        statement: i32,
    ) -> Result<Option<StatementResult>, StorageError> {
        let first = record.first.as_ref();
        let first = first.filter(|first| (first.first..=first.last).contains(&statement));
        if first.is_none() && !record.has_rows {
            return Ok(None);
        }
        if let Some(result) = first.and_then(|first| first.result.clone()) {
            return Ok(Some(result));
        }
        let snapshot = self.engine.snapshot()?;
        if first.is_some() {
            // A statement behind it may have moved it into a row of its own.
            let row = snapshot.get(SESSIONS, &key.row_key())?;
            let in_row = row.map(|row| read_record(key, &row)).transpose()?;
            let found = in_row.filter(|(newest, _)| newest.txn_number == record.txn_number);
            let found = found.and_then(|(_, in_row)| in_row.filter(|in_row| in_row.covers(statement)));
            if let Some(found) = found {
                return Ok(Some(found.result));
            }
        }
        let range = KeyRange {
            start: Bound::Included(key.statement_key(statement)),
            ..key.statement_rows()
        };
        let mut cursor = snapshot.cursor(SESSIONS, range, Direction::Forward)?;
        let mut rows = Rows::new();
        let limits = FillLimits {
            rows_max: 1,
            bytes_max: 1,
        };
        if !cursor.fill(&mut rows, limits)? {
            return Ok(None);
        }
        let found = Statements::read(rows.value(0))
            .ok_or_else(|| corrupt(rows.key(0), "a statement's row is malformed".to_owned()))?;
        Ok(Some(found)
            .filter(|found| found.covers(statement))
            .map(|found| found.result))
    }

    /// Forgets sessions without a write since `before_ms` (wall time), of many the oldest ones, and answers how many.
    /// Their retries are then new writes. None while a barrier holds writes back.
    pub fn forget_sessions(&self, before_ms: i64) -> Result<usize, StorageError> {
        let Some(before_ms) = self.sessions.oldest_before(before_ms) else {
            return Ok(0);
        };
        let Some(mut order) = self.order_at_once() else {
            return Ok(0);
        };
        self.check_running()?;
        let (mut entry, mut effect) = (EntryWriter::default(), Effect::default());
        self.check_leads(&order, &entry)?;
        let mut applied = self.pipeline.applying.lock();
        // Where nothing waits for being committed, what is proposed is known of in memory when it is applied only.
        self.apply_committed(&mut applied)?;
        effect.forget_sessions(&self.sessions, before_ms);
        let forgotten = effect.forgotten_sessions.len();
        // They may be on their way already.
        if forgotten > 0 {
            entry.forget_sessions(before_ms);
            self.propose_under(&mut order, &mut applied, &mut entry, effect)?;
        }
        Ok(forgotten)
    }
}

fn read_record(key: &SessionKey, row: &[u8]) -> Result<(SessionRecord, Option<Statements>), StorageError> {
    SessionRecord::read(row).ok_or_else(|| corrupt(&key.row_key(), "a session's record is malformed".to_owned()))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
