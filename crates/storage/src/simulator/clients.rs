//! Clients that write: plainly, and in sessions, where they send again what they do not know the end of.

use super::model::{Change, Coll, Doc, InSession, Uid};
use super::run::{NAMES, Simulator, session_key};
use super::{Checked, Violation, ensure};
use crate::entry::EntryWriter;
use crate::testing::{clustered_options, ns, number_of, record_of};
use crate::{CollectionGuard, Kept, LockMode, StatementKind, StatementResult, StorageError, UpdateForm, WriteUnit};
use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use std::rc::Rc;

/// A client with a session.
pub(super) struct Client {
    pub(super) session: u8,
    number: i64,
    /// The newest write of its number.
    last: Option<Sent>,
    /// The entry that has to take effect before it writes again.
    awaited: u64,
}

/// A write that may be sent again.
#[derive(Clone)]
struct Sent {
    coll: Uid,
    first_statement: i32,
    kept: Kept,
    asked: Asked,
    /// What it came to when it was answered first.
    answer: Option<Vec<Option<StatementResult>>>,
}

#[derive(Clone)]
enum Asked {
    /// Each a statement.
    Insert(Vec<Doc>),
    /// By `_id`.
    Increase(i32),
    Delete(i32),
}

/// The place of a unit, and what its statements came to.
type Written = (u64, Vec<(i32, StatementResult)>);

impl Client {
    pub(super) fn new(session: u8) -> Self {
        Self {
            session,
            number: 0,
            last: None,
            awaited: 0,
        }
    }
}

/// A document's next version.
fn increased(doc: &Doc) -> RawDocumentBuf {
    let mut new = RawDocumentBuf::new();
    for (name, value) in doc.bytes.iter().flatten() {
        match name.as_str() {
            "n" => new.append(name, value.as_i32().unwrap_or(0).wrapping_add(1)),
            _ => new.append(name, value),
        }
    }
    new
}

/// Puts a version of a document into the unit; `Ok(None)` when there is none to change.
pub(super) fn change(
    unit: &mut WriteUnit<'_>,
    guard: &CollectionGuard,
    record: u64,
    was: &Doc,
    new: Option<(&Doc, UpdateForm<'_>)>,
) -> Checked<Result<(), StorageError>> {
    let id = record_of(guard.record_ids(), record);
    let old = match unit.lock_record(guard, &id) {
        Ok(old) => old,
        Err(error) => return Ok(Err(error)),
    };
    let shown = old.as_deref().map(RawDocument::from_bytes);
    ensure!(
        old.as_deref() == Some(was.bytes.as_bytes()),
        "record {record} is found as {shown:?}, its newest version is {was:?}"
    );
    Ok(match new {
        Some((new, form)) => unit.update_as(guard, &id, &was.bytes, &new.bytes, form),
        None => unit.delete(guard, &id, &was.bytes),
    })
}

impl Simulator {
    pub(super) fn version(&mut self, id: i32, bytes: RawDocumentBuf) -> Doc {
        self.versions += 1;
        let u = bytes.get_i32("u").ok();
        Doc {
            id,
            u,
            version: self.versions,
            bytes: Rc::new(bytes),
        }
    }

    pub(super) fn new_doc(&mut self) -> Doc {
        self.next_id += 1;
        self.doc_of(self.next_id)
    }

    /// A new document of a collection; in a clustered one perhaps under an `_id` that was there before.
    pub(super) fn new_doc_of(&mut self, uid: Uid) -> Doc {
        match self.coll(uid).is_clustered && self.next_id > 0 && self.one_in(4) {
            true => {
                let id = 1 + self.pick(self.next_id as u64) as i32;
                self.doc_of(id)
            }
            false => self.new_doc(),
        }
    }

    pub(super) fn doc_of(&mut self, id: i32) -> Doc {
        let mut bytes = rawdoc! { "_id": id };
        match self.pick(6) {
            0 => {}
            1 => {
                let (a, b) = (self.pick(5) as i32, self.pick(5) as i32);
                bytes.append(cstr!("n"), bson::RawArrayBuf::from_iter([a, b]));
            }
            _ => bytes.append(cstr!("n"), self.pick(10) as i32),
        }
        if self.one_in(2) {
            bytes.append(cstr!("u"), self.pick(60) as i32);
        }
        bytes.append(cstr!("p"), self.one_in(2));
        bytes.append(cstr!("s"), "x".repeat(self.pick(200) as usize));
        self.version(id, bytes)
    }

    /// Whether a transaction holds what a plain write would wait for.
    pub(super) fn is_held(&self, coll: Uid, records: &[u64], keys: &[Option<i32>]) -> bool {
        self.open.iter().flatten().any(|open| {
            records.iter().any(|record| open.locked.contains(&(coll, *record)))
                || keys.iter().flatten().any(|u| open.locked_keys.contains(&(coll, *u)))
        })
    }

    pub(super) fn guard(&self, op: &crate::Operation, name: &str) -> Checked<CollectionGuard> {
        let guard = self.storage().collection(op, &ns(name), LockMode::IntentExclusive);
        match guard {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => Err(Violation(format!("{name} is not there"))),
            Err(error) => Err(Violation(format!("{name} cannot be locked: {error}"))),
        }
    }

    pub(super) fn coll(&self, uid: Uid) -> &Coll {
        &self.model.newest.collections[&uid]
    }

    /// A plain unit of some inserts; those with a key that is taken are left out.
    pub(super) fn insert_some(&mut self) -> Checked {
        let Some(uid) = self.some_collection()? else {
            return Ok(());
        };
        let is_chain = self.one_in(12);
        let docs: Vec<_> = (0..=self.pick(if is_chain { 12 } else { 3 }))
            .map(|_| self.new_doc_of(uid))
            .collect();
        let done = self.insert(uid, &docs, None, is_chain)?;
        if let Some((seq, _)) = done
            && self.one_in(4)
        {
            self.acknowledge(seq)?;
        }
        Ok(())
    }

    /// Inserts documents in one unit. Answers its place, and which of them were inserted.
    fn insert(
        &mut self,
        uid: Uid,
        docs: &[Doc],
        session: Option<(u8, i64, i32, Kept)>,
        is_chain: bool,
    ) -> Checked<Option<Written>> {
        let name = self.coll(uid).name;
        let keys: Vec<_> = docs.iter().map(|doc| doc.u).collect();
        let records: Vec<_> = match self.coll(uid).is_clustered {
            true => docs.iter().map(|doc| doc.id as u64).collect(),
            false => Vec::new(),
        };
        if self.is_held(uid, &records, &keys) {
            self.say(" would wait");
            return Ok(None);
        }
        let capped = self.coll(uid).capped;
        if capped.is_some() {
            // Its writers wait until what they wrote has taken effect.
            if !self.settle(if is_chain { 20 } else { 1 })? {
                return Ok(None);
            }
        }
        self.say(format_args!(
            " {name} {:?}",
            docs.iter().map(|doc| doc.id).collect::<Vec<_>>()
        ));
        let (storage, op) = (self.storage(), self.op());
        let guard = self.guard(&op, name)?;
        let mut unit = storage.begin_write(&op);
        if is_chain {
            unit.changes.entry = EntryWriter::with_part_bytes(300);
        }
        if let Some((session, number, ..)) = session {
            unit.in_session(session_key(session), number);
        }
        let (mut coll, mut changes, mut statements) = (self.coll(uid).clone(), Vec::new(), Vec::new());
        let mut refused = None;
        for (place, doc) in docs.iter().enumerate() {
            let statement = session.map(|(_, _, first, kept)| (first + place as i32, kept));
            if let Some((statement, kept)) = statement {
                unit.statement(statement, kept);
            }
            let is_taken = coll.holder_of(doc.u, None).is_some() || coll.docs.values().any(|other| other.id == doc.id);
            match unit.insert(&guard, &doc.bytes) {
                Ok(record) => {
                    ensure!(!is_taken, "{doc:?} was inserted beside another of its key");
                    let docs = Rc::make_mut(&mut coll.docs);
                    while capped.is_some_and(|max| docs.len() >= max) {
                        let (record, was) = docs.pop_first().expect("it is not empty");
                        changes.push(Change::Remove {
                            coll: uid,
                            record,
                            was,
                            evicted: true,
                        });
                    }
                    let record = number_of(&record);
                    docs.insert(record, doc.clone());
                    changes.push(Change::Put {
                        coll: uid,
                        record,
                        doc: doc.clone(),
                        was: None,
                    });
                    if let Some((statement, kept)) = statement {
                        let result = result_of(StatementKind::Inserted, kept, doc.id, None, Some(doc));
                        statements.push((statement, result));
                    }
                }
                Err(StorageError::DuplicateKey(_)) => {
                    ensure!(is_taken, "{doc:?} is refused as a duplicate, and nobody has its key");
                }
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = refused {
            drop(unit);
            self.failed(&error)?;
            return Ok(None);
        }
        let before = match capped {
            Some(_) => storage.log().last_seq(),
            None => self.before_commit(&op),
        };
        let result = unit.commit();
        let session = session.map(|(session, number, ..)| InSession {
            session,
            number,
            is_transaction: false,
            statements: statements.clone(),
        });
        let seq = self.committed(before, result, changes, session)?;
        Ok(seq.map(|seq| (seq, statements)))
    }

    /// A plain update, replacement or deletion of one document.
    pub(super) fn change_one(&mut self) -> Checked {
        let Some(uid) = self.some_collection()? else {
            return Ok(());
        };
        let docs = self.coll(uid).docs.clone();
        let Some((&record, was)) = docs.iter().nth(self.pick(docs.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let new = match self.pick(3) {
            0 => None,
            _ => Some(self.doc_of(was.id)),
        };
        let done = self.change_record(uid, (record, was), new, None)?;
        if let Some((seq, _)) = done
            && self.one_in(4)
        {
            self.acknowledge(seq)?;
        }
        Ok(())
    }

    fn change_record(
        &mut self,
        uid: Uid,
        (record, was): (u64, &Doc),
        new: Option<Doc>,
        session: Option<(u8, i64, i32, Kept)>,
    ) -> Checked<Option<Written>> {
        let name = self.coll(uid).name;
        let u = new.as_ref().and_then(|new| new.u);
        if self.is_held(uid, &[record], &[u, was.u]) {
            self.say(" would wait");
            return Ok(None);
        }
        let is_capped = self.coll(uid).capped.is_some();
        if is_capped && !self.settle(1)? {
            return Ok(None);
        }
        let verb = if new.is_some() { "update" } else { "delete" };
        self.say(format_args!(" {verb} {name} {}", was.id));
        let (storage, op) = (self.storage(), self.op());
        let guard = self.guard(&op, name)?;
        let is_taken = self.coll(uid).holder_of(u, Some(record)).is_some();
        let form = match self.one_in(3) {
            true => UpdateForm::Replacement,
            false => UpdateForm::Pipeline,
        };
        let mut unit = storage.begin_write(&op);
        if let Some((session, number, statement, kept)) = session {
            unit.in_session(session_key(session), number);
            unit.statement(statement, kept);
        }
        let changed = change(&mut unit, &guard, record, was, new.as_ref().map(|new| (new, form)))?;
        match changed {
            Ok(()) => ensure!(!is_taken, "{new:?} was stored beside another of its key"),
            Err(StorageError::DuplicateKey(_)) => {
                ensure!(is_taken, "{new:?} is refused as a duplicate, and nobody has its key");
                self.say(" duplicate");
                return Ok(None);
            }
            Err(error) => {
                drop(unit);
                self.failed(&error)?;
                return Ok(None);
            }
        }
        let before = match is_capped {
            true => storage.log().last_seq(),
            false => self.before_commit(&op),
        };
        let result = unit.commit();
        let (kind, was) = match new {
            Some(_) => (StatementKind::Updated, was.clone()),
            None => (StatementKind::Deleted, was.clone()),
        };
        let statements: Vec<_> = session
            .map(|(_, _, statement, kept)| (statement, result_of(kind, kept, was.id, Some(&was), new.as_ref())))
            .into_iter()
            .collect();
        let change = match new {
            Some(doc) => Change::Put {
                coll: uid,
                record,
                doc,
                was: Some(was),
            },
            None => Change::Remove {
                coll: uid,
                record,
                was,
                evicted: false,
            },
        };
        let session = session.map(|(session, number, ..)| InSession {
            session,
            number,
            is_transaction: false,
            statements: statements.clone(),
        });
        let seq = self.committed(before, result, vec![change], session)?;
        Ok(seq.map(|seq| (seq, statements)))
    }

    /// A client sends its next write, or the last one again.
    pub(super) fn retryable(&mut self) -> Checked {
        let place = self.pick(self.clients.len() as u64) as usize;
        let (session, awaited) = (self.clients[place].session, self.clients[place].awaited);
        self.say(format_args!(" session {session}"));
        if awaited > self.storage().last_seq().0 {
            self.say(" waits");
            return Ok(());
        }
        let is_again = self.clients[place].last.is_some() && self.one_in(2);
        if !is_again {
            let Some(uid) = self.some_collection()? else {
                return Ok(());
            };
            let ids: Vec<_> = self.coll(uid).docs.values().map(|doc| doc.id).collect();
            let any = ids.get(self.pick(ids.len().max(1) as u64) as usize).copied();
            let asked = match (self.pick(3), any) {
                (0, Some(id)) => Asked::Increase(id),
                (1, Some(id)) => Asked::Delete(id),
                _ => Asked::Insert((0..=self.pick(3)).map(|_| self.new_doc()).collect()),
            };
            let goes_on = self.one_in(3);
            let kept = [Kept::Nothing, Kept::Key, Kept::Before, Kept::After][self.pick(4) as usize];
            let client = &mut self.clients[place];
            let after = client
                .last
                .as_ref()
                .filter(|_| goes_on)
                .map(|last| last.first_statement + 10);
            client.number += i64::from(after.is_none());
            client.last = Some(Sent {
                coll: uid,
                first_statement: after.unwrap_or(0),
                kept,
                asked,
                answer: None,
            });
        }
        self.send(place)
    }

    /// What a server does with a write in a session: what was done before is answered, and the rest done.
    fn send(&mut self, place: usize) -> Checked {
        let Client { session, number, .. } = self.clients[place];
        let sent = self.clients[place].last.clone().expect("it has sent something");
        let count = match &sent.asked {
            Asked::Insert(docs) => docs.len() as i32,
            _ => 1,
        };
        let known: Vec<_> = (sent.first_statement..sent.first_statement + count)
            .map(|statement| self.known(session, number, statement))
            .collect::<Checked<_>>()?;
        if known.iter().any(Option::is_some) {
            self.figures.retries += 1;
            self.say(" again");
            if let Some(answer) = &sent.answer {
                ensure!(*answer == known, "answered {answer:?} first, and {known:?} again");
            }
            self.clients[place].last.as_mut().expect("as above").answer = Some(known);
            // Whoever is told so may rely on it.
            if self.one_in(2) {
                self.flush()?;
            }
            return Ok(());
        }
        let Some(coll) = self.model.newest.collections.get(&sent.coll) else {
            return Ok(());
        };
        let in_session = Some((session, number, sent.first_statement, sent.kept));
        let target = |id: i32| coll.docs.iter().find(|(_, doc)| doc.id == id);
        let done = match &sent.asked {
            Asked::Insert(docs) => self.insert(sent.coll, docs, in_session, false)?,
            Asked::Increase(id) | Asked::Delete(id) => {
                let Some((record, was)) = target(*id).map(|(record, was)| (*record, was.clone())) else {
                    return Ok(());
                };
                let new = match sent.asked {
                    Asked::Increase(_) => Some(self.version(*id, increased(&was))),
                    _ => None,
                };
                self.change_record(sent.coll, (record, &was), new, in_session)?
            }
        };
        let Some((seq, statements)) = done else {
            return Ok(());
        };
        self.clients[place].awaited = seq;
        if self.one_in(2) {
            self.acknowledge(seq)?;
            if self.acknowledged >= seq {
                let of = |statement| {
                    let mut all = statements.iter();
                    all.find(|(done, _)| *done == statement)
                        .map(|(_, result)| result.clone())
                };
                let answer = (sent.first_statement..sent.first_statement + count).map(of).collect();
                self.clients[place].last.as_mut().expect("as above").answer = Some(answer);
            }
        }
        Ok(())
    }

    /// What the storage knows of a statement, which is what the model does.
    fn known(&self, session: u8, number: i64, statement: i32) -> Checked<Option<StatementResult>> {
        let (storage, key) = (self.storage(), session_key(session));
        let record = storage.session(&key);
        let known = match record.filter(|record| record.txn_number == number) {
            None => None,
            Some(record) => storage
                .statement(&record, &key, statement)
                .map_err(|error| Violation(format!("statement {statement}: {error}")))?,
        };
        let of = self.model.applied.sessions.get(&session);
        let expected = of
            .filter(|of| of.number == number)
            .and_then(|of| of.statements.get(&statement));
        ensure!(
            known.as_ref() == expected,
            "statement {statement} of {number} in session {session} is {known:?}, expected {expected:?}"
        );
        Ok(known)
    }

    /// What the log lost was not sent, for those who had no answer that lasts.
    pub(super) fn clients_restart(&mut self, found: u64) {
        for client in &mut self.clients {
            if client.awaited > found {
                client.awaited = 0;
                if let Some(last) = &mut client.last {
                    last.answer = None;
                }
            }
        }
    }

    pub(super) fn create(&mut self, name: &'static str) -> Checked {
        let capped = (name == NAMES[3]).then(|| 3 + self.pick(5) as usize);
        let keeps_images = capped.is_none() && self.one_in(2);
        let is_clustered = capped.is_none() && self.one_in(2);
        let mut options = match capped {
            Some(max) => rawdoc! { "capped": true, "size": 1_000_000, "max": max as i32 },
            None if keeps_images => rawdoc! { "changeStreamPreAndPostImages": { "enabled": true } },
            None => rawdoc! {},
        };
        if is_clustered {
            let more = clustered_options();
            more.iter()
                .flatten()
                .for_each(|(name, value)| options.append(name, value));
        }
        let Some(before) = self.before_definition(&[], 1)? else {
            return Ok(());
        };
        self.say(format_args!(" create {name}"));
        let result = self.storage().create_collection(&self.op(), &ns(name), &options);
        self.versions += 1;
        let coll = Coll {
            name,
            capped,
            keeps_images,
            is_clustered,
            docs: Rc::default(),
            indexes: Default::default(),
        };
        let change = Change::Create(self.versions, coll);
        self.defined(before, result, vec![change])
    }
}

fn result_of(kind: StatementKind, kept: Kept, id: i32, old: Option<&Doc>, new: Option<&Doc>) -> StatementResult {
    let image = match kept {
        Kept::Before => old,
        Kept::After => new,
        _ => None,
    };
    StatementResult {
        kind,
        key: (kept != Kept::Nothing && image.is_none()).then(|| rawdoc! { "_id": id }),
        image: image.map(|doc| (*doc.bytes).clone()),
    }
}
