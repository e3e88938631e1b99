//! Replaying a log over restored documents.
//!
//! Documents were read at different moments, so they have seen different parts of the log already. Operations are
//! applied in order, and each can be applied again (`applyOps`). Indexes wait for the end: a unique one can
//! refuse documents of different moments. The log's own changes of indexes are made to the list of those that wait.

use crate::client::Client;
use crate::error::{DumpError, Result};
use crate::namespace::{Filter, Namespace};
use crate::oplog::{applicable, inner, malformed};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, Timestamp, doc};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Operations are sent together up to so many, or so many bytes; one more always fits into a message.
const BATCH_OPERATIONS: usize = 1000;
const BATCH_BYTES: usize = 8 << 20;
/// Databases whose operations are those of the server that was dumped, not of its clients.
const OWN_DATABASES: [&str; 2] = ["local", "config"];

/// A log to replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The file, if it is not that of the dump.
    pub file: Option<PathBuf>,
    /// Nothing from this time on.
    pub until: Option<Timestamp>,
}

/// Indexes that are made at the end, by their names.
#[derive(Debug, Default)]
pub(crate) struct PendingIndexes(BTreeMap<Namespace, Vec<Document>>);

impl PendingIndexes {
    /// An index of this name takes the place of another one.
    pub(crate) fn put(&mut self, namespace: &Namespace, index: Document) {
        let indexes = self.0.entry(namespace.clone()).or_default();
        let name = index.get_str("name").ok().map(str::to_owned);
        match indexes
            .iter_mut()
            .find(|there| there.get_str("name").ok() == name.as_deref())
        {
            Some(there) => *there = index,
            None => indexes.push(index),
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for (namespace, indexes) in other.0 {
            indexes.into_iter().for_each(|index| self.put(&namespace, index));
        }
    }

    /// Makes them.
    pub(crate) fn create(self, client: &mut Client) -> Result<()> {
        for (namespace, indexes) in self.0 {
            let indexes: Vec<_> = indexes.into_iter().filter(|index| !is_of_ids(index)).collect();
            if !indexes.is_empty() {
                client
                    .create_indexes(&namespace, indexes)
                    .map_err(|error| error.of(&namespace))?;
            }
        }
        Ok(())
    }

    /// What `dropIndexes` says: a name, a key, or all.
    fn drop_named(&mut self, namespace: &Namespace, dropped: Option<&Bson>) {
        let is_dropped = |index: &Document| match dropped {
            Some(Bson::Document(key)) => index.get_document("key").ok() == Some(key),
            Some(Bson::String(name)) if name != "*" => index.get_str("name").ok() == Some(name),
            _ => true,
        };
        if let Some(indexes) = self.0.get_mut(namespace) {
            indexes.retain(|index| !is_dropped(index));
        }
    }

    /// What `collMod` says of an index.
    fn change(&mut self, namespace: &Namespace, change: &Document) {
        let indexes = self.0.get_mut(namespace).map(Vec::as_mut_slice).unwrap_or_default();
        for index in indexes {
            let is_meant = match (change.get_str("name").ok(), change.get("keyPattern")) {
                (Some(name), _) => index.get_str("name").ok() == Some(name),
                (None, pattern) => pattern.is_some() && index.get("key") == pattern,
            };
            if !is_meant {
                continue;
            }
            for (name, value) in change {
                if name != "name" && name != "keyPattern" {
                    index.insert(name.clone(), value.clone());
                }
            }
        }
    }

    fn rename(&mut self, from: &Namespace, to: Namespace) {
        self.0.remove(&to);
        if let Some(indexes) = self.0.remove(from) {
            self.0.insert(to, indexes);
        }
    }
}

/// Every collection has that one.
pub(crate) fn is_of_ids(index: &Document) -> bool {
    index.get_str("name").ok() == Some("_id_") || index.get_document("key").ok() == Some(&doc! { "_id": 1 })
}

/// The collation of an index that has none.
pub(crate) fn binary_order() -> Document {
    doc! { "locale": "simple" }
}

/// Who wrote a transaction, and its number.
type TransactionId = (Vec<u8>, i64);

/// A log that is being replayed.
pub(crate) struct Replay<'a> {
    client: &'a mut Client,
    filter: &'a Filter,
    until: Option<Timestamp>,
    indexes: &'a mut PendingIndexes,
    batch: Vec<Bson>,
    batch_bytes: usize,
    /// The operations of transactions whose end has not come.
    open: HashMap<TransactionId, Vec<Document>>,
    operations: u64,
    has_ended: bool,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(
        client: &'a mut Client,
        filter: &'a Filter,
        until: Option<Timestamp>,
        indexes: &'a mut PendingIndexes,
    ) -> Self {
        Self {
            client,
            filter,
            until,
            indexes,
            batch: Vec::new(),
            batch_bytes: 0,
            open: HashMap::new(),
            operations: 0,
            has_ended: false,
        }
    }

    /// The next entry of the log.
    pub(crate) fn entry(&mut self, entry: &RawDocument) -> Result<()> {
        let time = entry
            .get_timestamp("ts")
            .map_err(|_| malformed("an entry without ts"))?;
        self.has_ended |= self.until.is_some_and(|until| time >= until);
        if self.has_ended {
            return Ok(());
        }
        let kind = entry.get_str("op").map_err(|_| malformed("an entry without op"))?;
        if kind != "c" {
            return self.operation(applicable(entry)?);
        }
        let o = entry.get_document("o").map_err(|_| malformed("a command without o"))?;
        let has = |name: &str| matches!(o.get(name), Ok(Some(value)) if value != RawBsonRef::Boolean(false));
        if has("abortTransaction") {
            self.open.remove(&transaction(entry)?);
            return Ok(());
        }
        if has("commitTransaction") {
            let operations = self.open.remove(&transaction(entry)?).unwrap_or_default();
            return operations
                .into_iter()
                .try_for_each(|operation| self.operation(operation));
        }
        let Some(operations) = inner(o)? else {
            return self.operation(applicable(entry)?);
        };
        let operations = operations.into_iter().map(applicable).collect::<Result<Vec<_>>>()?;
        if has("partialTxn") || has("prepare") {
            self.open.entry(transaction(entry)?).or_default().extend(operations);
            return Ok(());
        }
        let before = match transaction(entry) {
            Ok(transaction) => self.open.remove(&transaction).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        before
            .into_iter()
            .chain(operations)
            .try_for_each(|operation| self.operation(operation))
    }

    /// One operation, which is no transaction.
    fn operation(&mut self, operation: Document) -> Result<()> {
        let ns = operation.get_str("ns").unwrap_or_default();
        let (database, collection) = ns.split_once('.').unwrap_or((ns, ""));
        if operation.get_str("op").ok() == Some("n") || OWN_DATABASES.contains(&database) {
            return Ok(());
        }
        if operation.get_str("op").ok() != Some("c") {
            let namespace = Namespace::new(database, collection);
            // Buckets are wanted as the measurements in them are.
            return match self.is_wanted(&namespace.of_measurements().unwrap_or(namespace)) {
                true => self.push(operation),
                false => Ok(()),
            };
        }
        let o = operation
            .get_document("o")
            .map_err(|_| malformed("a command without o"))?;
        let (command, target) = o.iter().next().ok_or_else(|| malformed("a command of no name"))?;
        let whole_name = match (command.as_str(), target.as_str()) {
            ("renameCollection", Some(name)) => name.to_owned(),
            (_, name) => format!("{database}.{}", name.unwrap_or_default()),
        };
        let (database, collection) = whole_name.split_once('.').unwrap_or((&whole_name, ""));
        let namespace = Namespace::new(database, collection);
        if let Some(measurements) = namespace.of_measurements()
            && !matches!(command.as_str(), "drop" | "dropDatabase")
            && self.is_wanted(&measurements)
        {
            return Err(DumpError::Choice(format!(
                "the log has {command} of the time-series collection {measurements}, which is not replayed: leave it out by --nsExclude"
            )));
        }
        if command != "dropDatabase" && !self.is_wanted(&namespace) {
            return Ok(());
        }
        match command.as_str() {
            "createIndexes" => {
                let mut index = o.get_document("spec").cloned().unwrap_or_else(|_| o.clone());
                index.remove("createIndexes");
                self.put_whole(&namespace, index);
                Ok(())
            }
            "commitIndexBuild" => {
                let indexes = o.get_array("indexes").into_iter().flatten();
                for index in indexes.filter_map(Bson::as_document) {
                    self.put_whole(&namespace, index.clone());
                }
                Ok(())
            }
            "startIndexBuild" | "abortIndexBuild" => Ok(()),
            "dropIndexes" | "deleteIndexes" | "deleteIndex" | "dropIndex" => {
                self.indexes.drop_named(&namespace, o.get("index"));
                Ok(())
            }
            "collMod" if o.contains_key("index") => {
                if let Ok(change) = o.get_document("index") {
                    self.indexes.change(&namespace, change);
                }
                let mut rest = o.clone();
                rest.remove("index");
                if rest.len() == 1 {
                    return Ok(());
                }
                let mut operation = operation.clone();
                operation.insert("o", rest);
                self.push(operation)
            }
            "drop" => {
                self.indexes.0.remove(&namespace);
                self.push(operation)
            }
            "dropDatabase" => {
                self.indexes.0.retain(|namespace, _| namespace.database != database);
                self.push(operation)
            }
            "renameCollection" => {
                let to = o.get_str("to").unwrap_or_default();
                let (database, collection) = to.split_once('.').unwrap_or((to, ""));
                self.indexes.rename(&namespace, Namespace::new(database, collection));
                self.push(operation)
            }
            _ => self.push(operation),
        }
    }

    /// An index as logs tell it, who say all that there is of it.
    fn put_whole(&mut self, namespace: &Namespace, mut index: Document) {
        index
            .entry("collation".to_owned())
            .or_insert_with(|| binary_order().into());
        self.indexes.put(namespace, index);
    }

    fn is_wanted(&self, namespace: &Namespace) -> bool {
        let is_own = namespace.collection.starts_with("system.") && namespace.collection != "system.js";
        !is_own && self.filter.takes(namespace)
    }

    fn push(&mut self, operation: Document) -> Result<()> {
        let bytes = RawDocumentBuf::try_from(&operation).map_err(|error| malformed(&error.to_string()))?;
        self.batch_bytes += bytes.as_bytes().len();
        self.batch.push(operation.into());
        if self.batch.len() >= BATCH_OPERATIONS || self.batch_bytes >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.operations += self.batch.len() as u64;
        self.batch_bytes = 0;
        let operations = std::mem::take(&mut self.batch);
        self.client.change("admin", &doc! { "applyOps": operations })?;
        Ok(())
    }

    /// The end of the log: how many operations were applied. A transaction without its end was none.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.operations)
    }
}

fn transaction(entry: &RawDocument) -> Result<TransactionId> {
    let session = entry.get_document("lsid");
    match (session, entry.get_i64("txnNumber")) {
        (Ok(session), Ok(number)) => Ok((session.as_bytes().to_vec(), number)),
        _ => Err(malformed("an entry of a transaction without lsid and txnNumber")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_follow_the_log() {
        let (a, b) = (Namespace::new("d", "a"), Namespace::new("d", "b"));
        let index = |name: &str, field: &str| doc! { "name": name, "key": { field: 1 } };
        let mut pending = PendingIndexes::default();
        pending.put(&a, index("x", "x"));
        pending.put(&a, index("y", "y"));
        pending.put(&a, index("x", "z"));
        pending.change(&a, &doc! { "name": "x", "hidden": true });
        pending.change(&a, &doc! { "keyPattern": { "y": 1 }, "expireAfterSeconds": 5 });
        let mut hidden = index("x", "z");
        hidden.insert("hidden", true);
        let mut expiring = index("y", "y");
        expiring.insert("expireAfterSeconds", 5);
        assert_eq!(pending.0[&a], [hidden.clone(), expiring]);
        pending.drop_named(&a, Some(&"y".into()));
        pending.put(&b, index("old", "o"));
        pending.rename(&a, b.clone());
        assert_eq!(pending.0, BTreeMap::from([(b.clone(), vec![hidden])]));
        pending.drop_named(&b, Some(&"*".into()));
        assert!(pending.0[&b].is_empty());
    }
}
