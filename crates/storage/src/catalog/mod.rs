//! The collections and views there are, in memory. Rows on disk are `rows.rs`; changes come from `apply.rs` only.
//!
//! Invariants: a name is a collection or a view, never both; `databases` lists exactly the names in `entries`,
//! `by_uuid` the collections among them, `tables` their tables, those of their indexes included.

pub(crate) mod collection;
pub(crate) mod index;
pub(crate) mod rows;
pub(crate) mod timeseries;
pub(crate) mod validation;

use crate::{Collection, Index, Namespace, View};
use engine::{Seq, TableId};
use hashbrown::HashMap;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a name stands for.
#[derive(Clone)]
pub(crate) enum Entry {
    Collection(Arc<Collection>),
    View(Arc<View>),
}

/// What [`Catalog::change`] changes.
#[derive(Default)]
pub(crate) struct Names {
    entries: HashMap<Namespace, Entry>,
    by_uuid: HashMap<[u8; 16], Arc<Collection>>,
    tables: HashMap<TableId, Arc<Collection>>,
    databases: BTreeMap<String, BTreeSet<Namespace>>,
    /// What tables were called before the entry that dropped or renamed them.
    former: BTreeMap<(TableId, Seq), (Namespace, [u8; 16])>,
}

/// See the module.
#[derive(Default)]
pub struct Catalog {
    names: RwLock<Names>,
    changes: AtomicU64,
    /// See [`Catalog::names_from`].
    names_from: AtomicU64,
}

impl Catalog {
    /// A collection by name.
    pub fn collection(&self, ns: &Namespace) -> Option<Arc<Collection>> {
        match self.names.read().entries.get(ns.as_str()) {
            Some(Entry::Collection(collection)) => Some(collection.clone()),
            _ => None,
        }
    }

    /// How many changes of collections' definitions have come, each after it was published: a snapshot that was taken
    /// behind a look at this number shows all of them.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// A view by name.
    pub fn view(&self, ns: &Namespace) -> Option<Arc<View>> {
        match self.names.read().entries.get(ns.as_str()) {
            Some(Entry::View(view)) => Some(view.clone()),
            _ => None,
        }
    }

    /// A collection by its identifier.
    pub fn collection_by_uuid(&self, uuid: &[u8; 16]) -> Option<Arc<Collection>> {
        self.names.read().by_uuid.get(uuid).cloned()
    }

    /// The collection that a table of documents belongs to.
    pub(crate) fn collection_of(&self, table: TableId) -> Option<Arc<Collection>> {
        let found = self.names.read().tables.get(&table).cloned();
        found.filter(|collection| collection.table() == table)
    }

    /// The index that a table belongs to.
    pub(crate) fn index_of(&self, table: TableId) -> Option<Arc<Index>> {
        let names = self.names.read();
        let mut indexes = names.tables.get(&table)?.maintained();
        indexes.find(|index| index.table() == table).cloned()
    }

    /// See [`crate::Storage::name_of_table`].
    pub(crate) fn name_of_table(&self, table: TableId, at: Seq) -> Option<(Namespace, [u8; 16])> {
        let names = self.names.read();
        if at < self.names_from() {
            // Today's name may be another one.
            return None;
        }
        if let Some((_, former)) = names.former.range((table, at)..=(table, Seq(u64::MAX))).next() {
            return Some(former.clone());
        }
        let collection = names.tables.get(&table).filter(|found| found.table() == table)?;
        Some((collection.namespace().clone(), collection.uuid()))
    }

    /// Whether a collection or an index has the table.
    pub(crate) fn has_table(&self, table: TableId) -> bool {
        self.names.read().tables.contains_key(&table)
    }

    /// The last table that it knows, those included that are gone and still have a name.
    pub(crate) fn last_table(&self) -> Option<TableId> {
        let names = self.names.read();
        let former = names.former.last_key_value().map(|((table, _), _)| *table);
        names.tables.keys().copied().max().max(former)
    }

    /// Names that no entry from `seq` on was made under, up to a number of them.
    pub(crate) fn former_names_before(&self, seq: Seq, names_max: usize) -> Vec<(TableId, Seq)> {
        let names = self.names.read();
        let old = names.former.keys().filter(|(_, until)| *until < seq);
        old.take(names_max).copied().collect()
    }

    /// What tables were called in entries before this one may be forgotten.
    pub(crate) fn names_from(&self) -> Seq {
        Seq(self.names_from.load(Ordering::Acquire))
    }

    /// Names that no entry from `from` on was made under are forgotten, these among them.
    pub(crate) fn forget_names(&self, from: Seq, forgotten: &[(TableId, Seq)]) {
        let mut names = self.names.write();
        // First: whoever finds no name any more, and looks at this then, is told why.
        self.names_from.fetch_max(from.0, Ordering::AcqRel);
        for name in forgotten {
            names.former.remove(name);
        }
    }

    pub(crate) fn entry(&self, ns: &Namespace) -> Option<Entry> {
        self.names.read().entries.get(ns.as_str()).cloned()
    }

    /// Names of the databases that hold something, sorted.
    pub fn databases(&self) -> Vec<String> {
        self.names.read().databases.keys().cloned().collect()
    }

    /// The collections of a database, by name.
    pub fn collections(&self, db: &str) -> Vec<Arc<Collection>> {
        self.of_database(db, |entry| match entry {
            Entry::Collection(collection) => Some(collection.clone()),
            Entry::View(_) => None,
        })
    }

    /// The views of a database, by name.
    pub fn views(&self, db: &str) -> Vec<Arc<View>> {
        self.of_database(db, |entry| match entry {
            Entry::View(view) => Some(view.clone()),
            Entry::Collection(_) => None,
        })
    }

    fn of_database<T>(&self, db: &str, pick: impl Fn(&Entry) -> Option<T>) -> Vec<T> {
        let names = self.names.read();
        let listed = names.databases.get(db).into_iter().flatten();
        listed
            .filter_map(|ns| names.entries.get(ns.as_str()).and_then(&pick))
            .collect()
    }

    /// True when the database holds a collection or a view.
    pub fn database_exists(&self, db: &str) -> bool {
        self.names.read().databases.contains_key(db)
    }

    /// An existing database whose name differs from `db` in case only.
    pub fn case_conflict(&self, db: &str) -> Option<String> {
        let names = self.names.read();
        names
            .databases
            .keys()
            .find(|name| *name != db && name.eq_ignore_ascii_case(db))
            .cloned()
    }

    /// The collections of all databases.
    pub fn all_collections(&self) -> Vec<Arc<Collection>> {
        let names = self.names.read();
        let entries = names.entries.values();
        entries
            .filter_map(|entry| match entry {
                Entry::Collection(collection) => Some(collection.clone()),
                Entry::View(_) => None,
            })
            .collect()
    }

    /// Changes what it holds, as one: nobody sees a part of it.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Names) -> T) -> T {
        let mut names = self.names.write();
        let answer = change(&mut names);
        self.changes.fetch_add(1, Ordering::Release);
        answer
    }
}

impl Names {
    /// Puts a collection in, in place of its former definition, whatever that was named.
    pub(crate) fn put_collection(&mut self, collection: Arc<Collection>) {
        if let Some(old) = self.by_uuid.insert(collection.uuid, collection.clone()) {
            self.remove_tables(&old);
            if old.namespace != collection.namespace {
                self.remove(&old.namespace);
            }
        }
        for table in collection.tables() {
            self.tables.insert(table, collection.clone());
        }
        self.insert(collection.namespace.clone(), Entry::Collection(collection.clone()));
        collection.shared.version.store(collection.version, Ordering::Release);
    }

    /// Takes a collection out and marks it dropped.
    pub(crate) fn remove_collection(&mut self, collection: &Collection) {
        self.by_uuid.remove(&collection.uuid);
        self.remove_tables(collection);
        self.remove(&collection.namespace);
        collection.shared.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn put_view(&mut self, view: Arc<View>) {
        self.insert(view.namespace.clone(), Entry::View(view));
    }

    pub(crate) fn remove_view(&mut self, ns: &Namespace) {
        self.remove(ns);
    }

    /// The entry at `until` took a table's name from it.
    pub(crate) fn put_former_name(&mut self, table: TableId, until: Seq, name: (Namespace, [u8; 16])) {
        self.former.insert((table, until), name);
    }

    fn remove_tables(&mut self, collection: &Collection) {
        for table in collection.tables() {
            self.tables.remove(&table);
        }
    }

    fn insert(&mut self, ns: Namespace, entry: Entry) {
        self.databases.entry(ns.db().to_owned()).or_default().insert(ns.clone());
        self.entries.insert(ns, entry);
    }

    fn remove(&mut self, ns: &Namespace) {
        self.entries.remove(ns.as_str());
        if let Some(database) = self.databases.get_mut(ns.db()) {
            database.remove(ns);
            if database.is_empty() {
                self.databases.remove(ns.db());
            }
        }
    }
}
