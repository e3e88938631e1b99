//! What must be true: the units that were logged, and the states that follow from them.
//!
//! Invariants: `newest` is `applied` and all units behind it; `applied` is `base` and the first `ahead` of `units`;
//! `base` is durable.

use crate::StatementResult;
use bson::RawDocumentBuf;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A collection over its renames.
pub(super) type Uid = u64;

/// A version of a document.
#[derive(Clone, Debug)]
pub(super) struct Doc {
    pub(super) id: i32,
    /// The unique key.
    pub(super) u: Option<i32>,
    /// Of all versions of all documents, which.
    pub(super) version: u64,
    pub(super) bytes: Rc<RawDocumentBuf>,
}

/// Documents by record id, see `testing::number_of`.
pub(super) type Docs = BTreeMap<u64, Doc>;

#[derive(Clone, Debug)]
pub(super) struct Coll {
    pub(super) name: &'static str,
    /// Documents at most.
    pub(super) capped: Option<usize>,
    pub(super) keeps_images: bool,
    /// Records are known by the `_id` of documents.
    pub(super) is_clustered: bool,
    pub(super) docs: Rc<Docs>,
    pub(super) indexes: BTreeSet<&'static str>,
}

impl Coll {
    /// The document that has a unique key, but for one record.
    pub(super) fn holder_of(&self, u: Option<i32>, but: Option<u64>) -> Option<u64> {
        let u = u.filter(|_| self.indexes.contains("u_1"))?;
        let mut docs = self.docs.iter();
        docs.find(|(record, doc)| Some(**record) != but && doc.u == Some(u))
            .map(|(record, _)| *record)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.docs.values().map(|doc| doc.bytes.as_bytes().len() as u64).sum()
    }
}

/// What is known of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) number: i64,
    pub(super) is_transaction: bool,
    pub(super) seq: u64,
    pub(super) statements: BTreeMap<i32, StatementResult>,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    /// A document comes or changes.
    Put {
        coll: Uid,
        record: u64,
        doc: Doc,
        was: Option<Doc>,
    },
    Remove {
        coll: Uid,
        record: u64,
        was: Doc,
        /// To make room.
        evicted: bool,
    },
    Create(Uid, Coll),
    Drop(Uid),
    Rename(Uid, &'static str),
    CreateIndex(Uid, &'static str),
    DropIndex(Uid, &'static str),
}

/// What a unit did in a session.
#[derive(Clone, Debug)]
pub(super) struct InSession {
    pub(super) session: u8,
    pub(super) number: i64,
    pub(super) is_transaction: bool,
    pub(super) statements: Vec<(i32, StatementResult)>,
}

/// What takes effect at once. Definitions may take entries before the last one, too.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) first: u64,
    pub(super) seq: u64,
    pub(super) changes: Vec<Change>,
    pub(super) session: Option<InSession>,
    /// What its collections were called, and whether they kept pre-images.
    pub(super) names: BTreeMap<Uid, (&'static str, bool)>,
}

impl Unit {
    pub(super) fn is_definition(&self) -> bool {
        !matches!(self.changes.first(), Some(Change::Put { .. } | Change::Remove { .. }))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) collections: BTreeMap<Uid, Coll>,
    pub(super) sessions: BTreeMap<u8, Session>,
}

impl State {
    pub(super) fn find(&self, name: &str) -> Option<(Uid, &Coll)> {
        let mut all = self.collections.iter();
        all.find(|(_, coll)| coll.name == name).map(|(uid, coll)| (*uid, coll))
    }

    fn coll(&mut self, uid: Uid) -> &mut Coll {
        self.collections
            .get_mut(&uid)
            .expect("units name collections that are there")
    }

    pub(super) fn make(&mut self, change: &Change) {
        match change {
            Change::Put { coll, record, doc, .. } => {
                Rc::make_mut(&mut self.coll(*coll).docs).insert(*record, doc.clone());
            }
            Change::Remove { coll, record, .. } => {
                Rc::make_mut(&mut self.coll(*coll).docs).remove(record);
            }
            Change::Create(uid, coll) => drop(self.collections.insert(*uid, coll.clone())),
            Change::Drop(uid) => drop(self.collections.remove(uid)),
            Change::Rename(uid, name) => self.coll(*uid).name = name,
            Change::CreateIndex(uid, index) => drop(self.coll(*uid).indexes.insert(index)),
            Change::DropIndex(uid, index) => drop(self.coll(*uid).indexes.remove(index)),
        }
    }

    fn apply(&mut self, unit: &Unit) {
        unit.changes.iter().for_each(|change| self.make(change));
        let Some(of) = &unit.session else { return };
        let session = self.sessions.entry(of.session).or_default();
        if session.number != of.number {
            *session = Session::default();
        }
        (session.number, session.is_transaction, session.seq) = (of.number, of.is_transaction, unit.seq);
        session.statements.extend(of.statements.iter().cloned());
    }
}

#[derive(Default)]
pub(super) struct Model {
    base: State,
    /// Behind `base`, in the order of the log.
    units: VecDeque<Rc<Unit>>,
    ahead: usize,
    pub(super) applied: State,
    pub(super) newest: State,
    /// All units that the log may still have.
    pub(super) log: VecDeque<Rc<Unit>>,
}

impl Model {
    pub(super) fn push(&mut self, mut unit: Unit) {
        let mut name = |uid: Uid| {
            let coll = self.newest.collections.get(&uid);
            unit.names
                .extend(coll.map(|coll| (uid, (coll.name, coll.keeps_images))));
        };
        for change in &unit.changes {
            match change {
                Change::Put { coll, .. } | Change::Remove { coll, .. } => name(*coll),
                _ => {}
            }
        }
        self.newest.apply(&unit);
        let unit = Rc::new(unit);
        self.units.push_back(unit.clone());
        self.log.push_back(unit);
    }

    /// Entries up to `published` have taken effect.
    pub(super) fn publish(&mut self, published: u64) {
        while let Some(unit) = self.units.get(self.ahead).filter(|unit| unit.seq <= published) {
            self.applied.apply(unit);
            self.ahead += 1;
        }
    }

    /// No crash takes entries up to `durable` back.
    pub(super) fn harden(&mut self, durable: u64) {
        while self.ahead > 0 && self.units[0].seq <= durable {
            self.base.apply(&self.units.pop_front().expect("it is not empty"));
            self.ahead -= 1;
        }
    }

    /// Whether all has taken effect.
    pub(super) fn is_settled(&self) -> bool {
        self.ahead == self.units.len()
    }

    /// The machine starts again, and finds the log up to `found`. Answers the units that are gone.
    pub(super) fn restart(&mut self, found: u64) -> Vec<Rc<Unit>> {
        let (kept, gone): (Vec<_>, Vec<_>) = self.units.drain(..).partition(|unit| unit.seq <= found);
        kept.iter().for_each(|unit| self.base.apply(unit));
        self.ahead = 0;
        (self.applied, self.newest) = (self.base.clone(), self.base.clone());
        self.log.retain(|unit| unit.seq <= found);
        gone
    }

    /// The log has recycled what is before `first`.
    pub(super) fn recycle(&mut self, first: u64) {
        while self.log.front().is_some_and(|unit| unit.first < first) {
            self.log.pop_front();
        }
    }
}
