//! Indexes of what is restored: made when the documents are there, or at the end, as a log has left them.

use crate::client::Client;
use crate::error::Result;
use crate::namespace::Namespace;
use bson::{Bson, Document, doc};
use std::collections::BTreeMap;

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

    /// The collection has gone, with its indexes.
    pub(crate) fn drop_all(&mut self, namespace: &Namespace) {
        self.0.remove(namespace);
    }

    /// The database has gone, with all indexes.
    pub(crate) fn drop_database(&mut self, database: &str) {
        self.0.retain(|namespace, _| namespace.database != database);
    }

    pub(crate) fn append(&mut self, other: Self) {
        for (namespace, indexes) in other.0 {
            indexes.into_iter().for_each(|index| self.put(&namespace, index));
        }
    }

    /// Makes them; answers why which ones are not made.
    pub(crate) fn create(self, client: &mut Client, stops: bool) -> Result<Vec<String>> {
        let mut failures = Vec::new();
        for (namespace, indexes) in self.0 {
            let indexes = indexes.into_iter().filter(|index| !is_of_ids(index)).collect();
            failures.extend(make(client, &namespace, indexes, stops).map_err(|error| error.of(&namespace))?);
        }
        Ok(failures)
    }

    /// What `dropIndexes` says: a name, a key, or all.
    pub(crate) fn drop_named(&mut self, namespace: &Namespace, dropped: Option<&Bson>) {
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
    pub(crate) fn change(&mut self, namespace: &Namespace, change: &Document) {
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
                let is_false = *value == Bson::Boolean(false);
                match name.as_str() {
                    "name" | "keyPattern" => {}
                    "forceNonUnique" => {
                        index.remove("unique");
                        index.remove("prepareUnique");
                    }
                    // What is not said of an index is false of it.
                    "hidden" | "prepareUnique" if is_false => drop(index.remove(name)),
                    _ => {
                        if name == "unique" {
                            // It has become what it was prepared for.
                            index.remove("prepareUnique");
                        }
                        index.insert(name.clone(), value.clone());
                    }
                }
            }
        }
    }

    pub(crate) fn rename(&mut self, from: &Namespace, to: Namespace) {
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

/// Makes indexes, all at once; where the server refuses one, each by itself. Answers why which ones are not made. With
/// `stops` the first refusal is an error.
pub(crate) fn make(
    client: &mut Client,
    namespace: &Namespace,
    indexes: Vec<Document>,
    stops: bool,
) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    if indexes.is_empty() {
        return Ok(failures);
    }
    match client.create_indexes(namespace, indexes.clone()) {
        Err(error) if error.is_of_what_was_asked() && !stops => {}
        made => return made.map(|()| failures),
    }
    for index in indexes {
        let name = index.get_str("name").unwrap_or_default().to_owned();
        match client.create_indexes(namespace, vec![index]) {
            Ok(()) => {}
            Err(error) if error.is_of_what_was_asked() => {
                failures.push(format!("{namespace}: the index {name} is not made: {error}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(failures)
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

    /// An index came back unique that had been made to take duplicates, and one that had become unique not at all.
    #[test]
    fn changes_of_uniqueness_leave_an_index_that_can_be_made() {
        let namespace = Namespace::new("d", "a");
        let changed = |index: Document, change: Document| {
            let mut pending = PendingIndexes::default();
            pending.put(&namespace, index);
            pending.change(&namespace, &change);
            pending.0[&namespace][0].clone()
        };
        let plain = doc! { "name": "x", "key": { "x": 1 } };
        let with = |field: &str| {
            let mut index = plain.clone();
            index.insert(field, true);
            index
        };
        for (index, change, left) in [
            (
                with("unique"),
                doc! { "name": "x", "forceNonUnique": true },
                plain.clone(),
            ),
            (
                with("prepareUnique"),
                doc! { "name": "x", "unique": true },
                with("unique"),
            ),
            (
                with("prepareUnique"),
                doc! { "name": "x", "prepareUnique": false },
                plain.clone(),
            ),
            (with("hidden"), doc! { "name": "x", "hidden": false }, plain.clone()),
            (
                plain.clone(),
                doc! { "name": "x", "prepareUnique": true },
                with("prepareUnique"),
            ),
        ] {
            assert_eq!(changed(index, change), left);
        }
    }
}
