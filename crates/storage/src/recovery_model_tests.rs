//! Replay against a plain model: random definitions and changes, clean reopening, crashes at any operation of the disk.
//!
//! After every opening the storage must be the model's state at the last entry found, which must not be older than what
//! was acknowledged as durable. `TENON_SEED` replays a run.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{Calls, Machine, clustered_options, index, ns, number_of, record_of};
use crate::{IndexSpec, LockMode, Operation, RecordIds};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use std::collections::BTreeSet;
use vfs::{Random, SeededRandom};

#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    collections: BTreeMap<&'static str, ModelCollection>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelCollection {
    capped: Option<u64>,
    ids: RecordIds,
    documents: BTreeMap<u64, Document>,
    indexes: BTreeSet<String>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) fn specs() -> [IndexSpec; 4] {
    [
        index("n_1", rawdoc! { "n": 1 }, rawdoc! {}),
        index("u_1", rawdoc! { "u": 1 }, rawdoc! { "unique": true, "sparse": true }),
        index("n_1_s_-1", rawdoc! { "n": 1, "s": -1 }, rawdoc! {}),
        index(
            "s_1",
            rawdoc! { "s": 1 },
            rawdoc! { "partialFilterExpression": { "p": true } },
        ),
    ]
}

/// A storage, its model, and the model's state after each entry.
pub(crate) struct Run {
    pub(crate) machine: Machine,
    random: SeededRandom,
    pub(crate) storage: Arc<Storage>,
    /// No step takes a checkpoint: the log holds everything.
    pub(crate) keeps_log: bool,
    model: Model,
    history: BTreeMap<u64, Model>,
    acknowledged: Seq,
    next_id: i32,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let machine = Machine::new(seed);
        let storage = machine.open().unwrap();
        let history = BTreeMap::from([(0, Model::default()), (storage.last_seq().0, Model::default())]);
        let (random, model) = (SeededRandom::new(seed), Model::default());
        Self {
            machine,
            random,
            storage,
            keeps_log: false,
            model,
            history,
            acknowledged: Seq::ZERO,
            next_id: 1,
        }
    }

    fn pick(&self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn op(&self) -> Operation {
        self.machine.operation()
    }

    fn document(&mut self) -> RawDocumentBuf {
        let id = self.next_id;
        self.next_id += 1;
        let mut document = doc! { "_id": id };
        match self.pick(4) {
            0 => {}
            1 => drop(document.insert(
                "n",
                Bson::Array((0..self.pick(4)).map(|_| Bson::Int32(self.pick(5) as i32)).collect()),
            )),
            _ => drop(document.insert("n", self.pick(10) as i32)),
        }
        if self.pick(3) > 0 {
            document.insert("u", self.pick(30) as i32);
        }
        if self.pick(2) > 0 {
            document.insert("s", "x".repeat(self.pick(200) as usize));
        }
        document.insert("p", self.pick(2) > 0);
        RawDocumentBuf::try_from(&document).unwrap()
    }

    /// One random step. An error is the disk's crash.
    pub(crate) fn step(&mut self) -> Result<(), StorageError> {
        let name = NAMES[self.pick(3) as usize];
        if !self.model.collections.contains_key(name) {
            self.create(name)?;
            self.history.insert(self.storage.last_seq().0, self.model.clone());
        }
        match self.pick(100) {
            0..50 => self.insert_some(name)?,
            50..64 => self.change_one(name, true)?,
            64..72 => self.change_one(name, false)?,
            72..75 => self.create(name)?,
            75..77 => {
                self.storage.drop_collection(&self.op(), &ns(name))?;
                self.model.collections.remove(name);
            }
            77..79 => self.rename(name)?,
            79..84 => self.create_index(name)?,
            84..86 => self.drop_index(name)?,
            86..97 => {
                let seq = self.storage.last_seq();
                self.storage.wait_durable(seq)?;
                self.acknowledged = seq;
            }
            97..99 if self.keeps_log => {}
            97 => drop(self.storage.checkpoint()?),
            98 => {
                // What an engine does whose mark moves by itself: the counts were written down some time ago.
                self.storage.wait_durable(self.storage.last_seq())?;
                self.storage.engine().checkpoint()?;
            }
            _ if self.keeps_log => {}
            _ => self.reopen_cleanly()?,
        }
        self.history.insert(self.storage.last_seq().0, self.model.clone());
        Ok(())
    }

    fn create(&mut self, name: &'static str) -> Result<(), StorageError> {
        let capped = (self.pick(3) == 0).then_some(4u64);
        let ids = match capped.is_none() && self.pick(2) == 0 {
            true => RecordIds::Keys,
            false => RecordIds::Numbers,
        };
        let options = match (capped, ids) {
            (Some(max), _) => rawdoc! { "capped": true, "size": 100_000, "max": max as i32 },
            (None, RecordIds::Keys) => clustered_options(),
            (None, RecordIds::Numbers) => rawdoc! {},
        };
        let id_index = (ids == RecordIds::Numbers).then(|| "_id_".to_owned());
        match self.storage.create_collection(&self.op(), &ns(name), &options) {
            Ok(()) => {
                let made = ModelCollection {
                    capped,
                    ids,
                    indexes: id_index.into_iter().collect(),
                    ..ModelCollection::default()
                };
                assert!(self.model.collections.insert(name, made).is_none());
                Ok(())
            }
            Err(StorageError::NamespaceExists(_)) => {
                assert!(self.model.collections.contains_key(name));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn rename(&mut self, name: &'static str) -> Result<(), StorageError> {
        let to = NAMES[self.pick(3) as usize];
        match self.storage.rename_collection(&self.op(), &ns(name), &ns(to), true) {
            Ok(()) => {
                let moved = self.model.collections.remove(name).unwrap();
                self.model.collections.insert(to, moved);
                Ok(())
            }
            Err(StorageError::NamespaceNotFound(_) | StorageError::NamespaceExists(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn create_index(&mut self, name: &'static str) -> Result<(), StorageError> {
        let Some(model) = self.model.collections.get(name) else {
            return Ok(());
        };
        let spec = specs()[self.pick(4) as usize].clone();
        let mut uniques = BTreeSet::new();
        let duplicates = model
            .documents
            .values()
            .filter_map(|document| document.get_i32("u").ok());
        let duplicates = spec.unique && !duplicates.into_iter().all(|u| uniques.insert(u));
        match self
            .storage
            .create_indexes(&self.op(), &ns(name), std::slice::from_ref(&spec))
        {
            Ok(report) => {
                assert!(!duplicates, "{name} has duplicates");
                let indexes = &mut self.model.collections.get_mut(name).unwrap().indexes;
                assert_eq!(indexes.insert(spec.name), !report.all_existed);
                Ok(())
            }
            Err(StorageError::DuplicateKey(_)) => {
                assert!(duplicates, "{name} has no duplicates");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn drop_index(&mut self, name: &'static str) -> Result<(), StorageError> {
        let index = specs()[self.pick(4) as usize].name.clone();
        match self.storage.drop_index(&self.op(), &ns(name), &index) {
            Ok(_) => {
                assert!(self.model.collections.get_mut(name).unwrap().indexes.remove(&index));
                Ok(())
            }
            Err(StorageError::IndexNotFound(_) | StorageError::NamespaceNotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A unit of one to six inserts; those with a key that is taken are left out.
    fn insert_some(&mut self, name: &'static str) -> Result<(), StorageError> {
        let documents: Vec<_> = (0..=self.pick(6)).map(|_| self.document()).collect();
        let (storage, op) = (self.storage.clone(), self.op());
        let Some(guard) = storage.collection(&op, &ns(name), LockMode::IntentExclusive)? else {
            assert!(!self.model.collections.contains_key(name));
            return Ok(());
        };
        let mut model = self.model.collections[name].clone();
        let mut unit = storage.begin_write(&op);
        for document in documents {
            let taken = self.u_taken(&model, &document, None);
            match unit.insert(&guard, &document) {
                Ok(id) => {
                    assert!(!taken);
                    model
                        .documents
                        .insert(number_of(&id), Document::try_from(&document).unwrap());
                    while model.capped.is_some_and(|max| model.documents.len() as u64 > max) {
                        model.documents.pop_first();
                    }
                }
                Err(StorageError::DuplicateKey(_)) => assert!(taken),
                Err(error) => return Err(error),
            }
        }
        unit.commit()?;
        self.model.collections.insert(name, model);
        Ok(())
    }

    fn u_taken(&self, model: &ModelCollection, document: &RawDocumentBuf, but: Option<u64>) -> bool {
        let Ok(u) = document.get_i32("u") else { return false };
        let mut others = model.documents.iter().filter(|(id, _)| Some(**id) != but);
        model.indexes.contains("u_1") && others.any(|(_, other)| other.get_i32("u").is_ok_and(|other| other == u))
    }

    fn change_one(&mut self, name: &'static str, update: bool) -> Result<(), StorageError> {
        let Some(model) = self.model.collections.get(name).cloned() else {
            return Ok(());
        };
        if model.documents.is_empty() {
            return Ok(());
        }
        let (&id, old) = model
            .documents
            .iter()
            .nth(self.pick(model.documents.len() as u64) as usize)
            .unwrap();
        let mut new = Document::try_from(&self.document()).unwrap();
        new.insert("_id", old.get("_id").unwrap().clone());
        let mut ordered = doc! { "_id": new.remove("_id").unwrap() };
        ordered.extend(new);
        let new = RawDocumentBuf::try_from(&ordered).unwrap();
        let taken = self.u_taken(&model, &new, Some(id));
        let record = record_of(model.ids, id);
        let model = self.model.collections.get_mut(name).unwrap();
        if !update {
            self.storage.remove(&self.machine.operation(), name, record)?;
            model.documents.remove(&id);
            return Ok(());
        }
        match self.storage.replace(&self.machine.operation(), name, record, new) {
            Ok(()) => {
                assert!(!taken);
                model.documents.insert(id, ordered);
                Ok(())
            }
            Err(StorageError::DuplicateKey(_)) => {
                assert!(taken);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn reopen_cleanly(&mut self) -> Result<(), StorageError> {
        self.storage.close(true)?;
        let last = self.storage.last_seq();
        self.storage = self.machine.open()?;
        assert_eq!(
            (self.storage.last_seq(), self.storage.stats().replayed_entries),
            (last, 0),
            "nothing to replay"
        );
        self.acknowledged = last;
        Ok(())
    }

    /// What is there after a crash becomes the model.
    fn reopen_after_crash(&mut self) -> Result<(), StorageError> {
        self.machine.fs.restart();
        self.storage = self.machine.open()?;
        // The last entry before `open` ended the index builds that were cut off.
        let found = Seq(self.machine.found.load(Ordering::SeqCst));
        assert!(
            found >= self.acknowledged,
            "acknowledged {:?}, found {found:?}",
            self.acknowledged
        );
        let (_, model) = self.history.range(..=found.0).next_back().unwrap();
        self.model = self.adopt(model.clone());
        let found = self.storage.last_seq();
        self.history = BTreeMap::from([(0, Model::default()), (found.0, self.model.clone())]);
        self.acknowledged = Seq::ZERO;
        self.verify();
        Ok(())
    }

    /// Only index builds take several entries, so that collections and documents have to be those of the last step
    /// whose entries were found; its indexes may have got less or more far.
    fn adopt(&self, mut model: Model) -> Model {
        let collections = self.storage.catalog().collections("test");
        assert_eq!(collections.len(), model.collections.len());
        for collection in collections {
            let entry = model
                .collections
                .get_mut(collection.namespace().collection())
                .expect("in the model");
            entry.indexes = collection
                .indexes()
                .iter()
                .map(|index| index.name().to_owned())
                .collect();
        }
        model
    }

    fn verify(&self) {
        let found: Vec<_> = self
            .storage
            .catalog()
            .collections("test")
            .iter()
            .map(|c| c.namespace().collection().to_owned())
            .collect();
        assert_eq!(
            found,
            self.model
                .collections
                .keys()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        );
        for (name, model) in &self.model.collections {
            let documents: BTreeMap<_, _> = self
                .storage
                .all(name)
                .into_iter()
                .map(|(id, d)| (number_of(&id), d))
                .collect();
            assert_eq!(documents, model.documents, "{name}");
            let collection = self.storage.catalog().collection(&ns(name)).unwrap();
            let indexes: BTreeSet<_> = collection
                .indexes()
                .iter()
                .map(|index| index.name().to_owned())
                .collect();
            assert_eq!(
                (indexes, collection.building_indexes().len()),
                (model.indexes.clone(), 0),
                "{name}"
            );
            let bytes: usize = model
                .documents
                .values()
                .map(|d| RawDocumentBuf::try_from(d).unwrap().as_bytes().len())
                .sum();
            assert_eq!(
                (collection.count(), collection.data_bytes()),
                (model.documents.len() as u64, bytes as u64)
            );
            self.storage.assert_valid(&self.op(), name);
        }
    }
}

pub(crate) fn seed_or(default: u64) -> u64 {
    let seed = std::env::var("TENON_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(default);
    println!("TENON_SEED={seed}");
    seed
}

#[test]
fn random_changes_agree_with_a_model() {
    for round in 0..4 {
        let mut run = Run::new(seed_or(1000 + round));
        for step in 0..400 {
            run.step().unwrap();
            if step % 20 == 0 {
                run.verify();
            }
        }
        run.verify();
        assert!(run.history.len() > 200, "the run did something");
    }
}

#[test]
fn random_crashes_between_steps_agree_with_a_model() {
    for round in 0..6 {
        let mut run = Run::new(seed_or(2000 + round));
        for _ in 0..12 {
            for _ in 0..30 {
                run.step().unwrap();
            }
            run.machine.fs.crash();
            run.reopen_after_crash().unwrap();
        }
    }
}

/// The same workload, crashing at every so many operations of the disk, in all its phases.
#[test]
fn a_crash_at_any_disk_operation_keeps_what_was_acknowledged() {
    const STEPS: usize = 160;
    let seed = seed_or(3000);
    let operations = {
        let mut run = Run::new(seed);
        (0..STEPS).for_each(|_| run.step().unwrap());
        run.machine.fs.operations()
    };
    assert!(
        operations > 80,
        "{operations} disk operations are not worth enumerating"
    );
    let mut crashed = 0;
    for at in (1..operations).step_by(4) {
        let mut run = Run::new(seed);
        if run.machine.fs.operations() >= at {
            continue;
        }
        run.machine.fs.crash_at(at);
        if (0..STEPS).any(|_| run.step().is_err()) {
            crashed += 1;
            assert!(
                run.machine.fs.has_crashed(),
                "only a crash fails a step (operation {at})"
            );
            run.reopen_after_crash()
                .unwrap_or_else(|error| panic!("operation {at}: {error}"));
            (0..20).for_each(|_| run.step().unwrap());
            run.verify();
        }
    }
    assert!(crashed > 20, "{crashed} crashes");
}
