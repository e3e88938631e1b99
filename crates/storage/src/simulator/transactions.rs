//! Transactions of several statements.

use super::clients::change;
use super::model::{Change, Doc, Docs, InSession, State, Uid};
use super::run::{NAMES, Simulator, session_key};
use super::{Checked, Violation, ensure};
use crate::testing::{ns, number_of};
use crate::{CollectionGuard, LockMode, Operation, StorageError, Transaction, UpdateForm};
use std::collections::BTreeSet;
use std::rc::Rc;

/// One that is under way.
pub(super) struct Open {
    transaction: Transaction,
    session: u8,
    number: i64,
    /// What it sees.
    state: State,
    changes: Vec<Change>,
    /// Records and unique keys that others would wait for.
    pub(super) locked: BTreeSet<(Uid, u64)>,
    pub(super) locked_keys: BTreeSet<(Uid, i32)>,
    pub(super) used: BTreeSet<Uid>,
}

/// Sessions of transactions begin behind those of clients.
const SESSIONS: u8 = 100;

impl Open {
    fn docs(&self, uid: Uid) -> Rc<Docs> {
        let coll = self.state.collections.get(&uid);
        coll.map(|coll| coll.docs.clone()).unwrap_or_default()
    }

    fn note(&mut self, change: Change) {
        self.state.make(&change);
        self.changes.push(change);
    }
}

impl Simulator {
    /// A transaction begins, goes on or ends.
    pub(super) fn transact(&mut self) -> Checked {
        let place = self.pick(self.open.len() as u64) as usize;
        self.say(format_args!(" {place}"));
        let Some(mut open) = self.open[place].take() else {
            return self.begin(place);
        };
        match self.pick(10) {
            0 => {
                self.say(" abort");
                Ok(())
            }
            1 | 2 => self.end(open),
            3 => {
                self.look_inside(&mut open)?;
                self.open[place] = Some(open);
                Ok(())
            }
            _ => {
                self.open[place] = self.go_on(open)?;
                Ok(())
            }
        }
    }

    fn begin(&mut self, place: usize) -> Checked {
        let session = SESSIONS + place as u8;
        let of = |state: &State| state.sessions.get(&session).map_or(0, |session| session.number);
        let number = 1 + of(&self.model.newest);
        let transaction = self.storage().begin_transaction();
        let mut transaction = transaction.map_err(|error| Violation(format!("no transaction begins: {error}")))?;
        if self.one_in(3) {
            transaction.in_small_parts(200);
        }
        transaction.in_session(session_key(session), number);
        self.say(format_args!(" begins {number}"));
        self.open[place] = Some(Open {
            transaction,
            session,
            number,
            state: self.model.applied.clone(),
            changes: Vec::new(),
            locked: BTreeSet::new(),
            locked_keys: BTreeSet::new(),
            used: BTreeSet::new(),
        });
        Ok(())
    }

    /// A statement. `None` when it ended the transaction.
    fn go_on(&mut self, mut open: Open) -> Checked<Option<Open>> {
        let name = NAMES[self.pick(3) as usize];
        let Some((uid, _)) = self.model.applied.find(name) else {
            return Ok(Some(open));
        };
        let had_name = open.state.find(name).is_some_and(|(then, _)| then == uid);
        // It would end there, mostly before it has done much.
        if !had_name && !self.one_in(8) {
            return Ok(Some(open));
        }
        let op = self.op();
        let guard = match open.transaction.collection(&op, &ns(name), LockMode::IntentExclusive) {
            Ok(Some(guard)) => guard,
            Ok(None) => return Err(Violation(format!("{name} is not there"))),
            Err(StorageError::WriteConflict) if !had_name => {
                self.say(" is too old for the name");
                return Ok(None);
            }
            Err(StorageError::SnapshotUnavailable(_)) => {
                self.say(" has no snapshot");
                return Ok(None);
            }
            Err(error) => return Err(Violation(format!("{name} cannot be locked: {error}"))),
        };
        ensure!(
            had_name,
            "a transaction writes to {name}, which came after its beginning"
        );
        open.used.insert(uid);
        let docs = open.docs(uid);
        let any = docs.iter().nth(self.pick(docs.len().max(1) as u64) as usize);
        let any = any.map(|(record, doc)| (*record, doc.clone()));
        let result = match (self.pick(3), any) {
            (0, Some(was)) => {
                let new = self.doc_of(was.1.id);
                self.change_in(&mut open, (&op, &guard, uid), was, Some(new))?
            }
            (1, Some(was)) => self.change_in(&mut open, (&op, &guard, uid), was, None)?,
            _ => self.insert_in(&mut open, (&op, &guard, uid))?,
        };
        match result {
            Ok(()) => Ok(Some(open)),
            Err(StorageError::DuplicateKey(_)) => {
                self.say(" duplicate");
                Ok(Some(open))
            }
            Err(StorageError::WriteConflict) => {
                self.say(" conflict");
                self.figures.conflicts += 1;
                self.check_conflict(&open, uid)?;
                Ok(None)
            }
            Err(error) => {
                self.failed(&error)?;
                Ok(None)
            }
        }
    }

    /// Some inserts, all or none of them.
    fn insert_in(
        &mut self,
        open: &mut Open,
        (op, guard, uid): (&Operation, &CollectionGuard, Uid),
    ) -> Checked<Result<(), StorageError>> {
        let docs: Vec<_> = (0..=self.pick(4)).map(|_| self.new_doc_of(uid)).collect();
        self.say(format_args!(
            " insert {} {:?}",
            guard.namespace().collection(),
            docs.iter().map(|doc| doc.id).collect::<Vec<_>>()
        ));
        let before = open.state.clone();
        let mut changes = Vec::new();
        let mut unit = open.transaction.resume(op);
        for doc in docs {
            if let Some(u) = doc.u {
                open.locked_keys.insert((uid, u));
            }
            match unit.insert(guard, &doc.bytes) {
                Ok(record) => {
                    let record = number_of(&record);
                    open.locked.insert((uid, record));
                    changes.push(Change::Put {
                        coll: uid,
                        record,
                        doc,
                        was: None,
                    });
                }
                Err(error) => {
                    drop(unit);
                    open.state = before;
                    return Ok(Err(error));
                }
            }
        }
        if let Err(error) = unit.commit() {
            return Ok(Err(error));
        }
        changes.into_iter().for_each(|change| open.note(change));
        Ok(Ok(()))
    }

    fn change_in(
        &mut self,
        open: &mut Open,
        (op, guard, uid): (&Operation, &CollectionGuard, Uid),
        (record, was): (u64, Doc),
        new: Option<Doc>,
    ) -> Checked<Result<(), StorageError>> {
        let verb = if new.is_some() { "update" } else { "delete" };
        self.say(format_args!(" {verb} {} {}", guard.namespace().collection(), was.id));
        if let Some(u) = new.as_ref().and_then(|new| new.u) {
            open.locked_keys.insert((uid, u));
        }
        open.locked_keys.extend(was.u.map(|u| (uid, u)));
        open.locked.insert((uid, record));
        let mut unit = open.transaction.resume(op);
        let update = new.as_ref().map(|new| (new, UpdateForm::Pipeline));
        let changed = change(&mut unit, guard, record, &was, update)?;
        if let Err(error) = changed.and_then(|()| unit.commit().map(drop)) {
            return Ok(Err(error));
        }
        // Nobody else has changed it since the transaction began.
        let is_own = open
            .changes
            .iter()
            .any(|change| matches!(change, Change::Put { coll, record: own, .. } if *coll == uid && *own == record));
        let newest = self.coll(uid).docs.get(&record);
        ensure!(
            is_own || newest.is_some_and(|newest| newest.version == was.version),
            "a transaction changed {was:?}, which is {newest:?} by now"
        );
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
        open.note(change);
        Ok(Ok(()))
    }

    /// Somebody has changed the collection since, or is changing it.
    fn check_conflict(&self, open: &Open, uid: Uid) -> Checked {
        let is_used = |other: &Open| other.locked.iter().any(|(coll, _)| *coll == uid);
        let others = self.open.iter().flatten().any(is_used);
        let newest = self.coll(uid);
        let own: BTreeSet<u64> = open.locked.iter().map(|(_, record)| *record).collect();
        let seen = open.docs(uid);
        let versions = |docs: &Docs| -> Vec<(u64, u64)> {
            let others = docs.iter().filter(|(record, _)| !own.contains(record));
            others.map(|(record, doc)| (*record, doc.version)).collect()
        };
        let differs = versions(&newest.docs) != versions(&seen);
        let of_own = open.locked.iter().filter(|(coll, _)| *coll == uid);
        let own_changed = of_own.clone().count() > 0;
        // A document that came and went again leaves no trace here where its `_id` is all that it is known by.
        ensure!(
            others || differs || own_changed || newest.is_clustered,
            "a conflict about {}, which nobody else has changed",
            newest.name
        );
        Ok(())
    }

    /// It sees its own changes on the state of its beginning.
    fn look_inside(&mut self, open: &mut Open) -> Checked {
        self.say(" looks");
        let view = open.transaction.view();
        for uid in &open.used {
            let Some(expected) = open.state.collections.get(uid) else {
                continue;
            };
            let name = self.coll(*uid).name;
            super::readers::compare(&view, &*self.found(name)?, &expected.docs, &expected.indexes)?;
        }
        Ok(())
    }

    fn end(&mut self, open: Open) -> Checked {
        self.say(" commit");
        let op = self.op();
        let Open {
            transaction,
            session,
            number,
            changes,
            used,
            ..
        } = open;
        let before = self.before_commit(&op);
        let result = transaction.commit(&op);
        if changes.is_empty() {
            return Ok(());
        }
        self.figures.transactions += 1;
        let in_session = InSession {
            session,
            number,
            is_transaction: true,
            statements: Vec::new(),
        };
        self.committed(before, result, changes, Some(in_session))?;
        for uid in used {
            let coll = self.coll(uid);
            for (record, doc) in coll.docs.iter() {
                let holder = coll.holder_of(doc.u, Some(*record));
                ensure!(holder.is_none(), "{doc:?} and record {holder:?} have one unique key");
            }
        }
        if self.one_in(3) {
            self.flush()?;
        }
        Ok(())
    }
}
