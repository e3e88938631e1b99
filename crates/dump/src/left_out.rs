//! Documents whose changes in a log are left out: one that was left out for its text would come back as a part of
//! itself, and a bucket that was made anew has other rows than the log counts by.

use crate::found::Found;
use crate::metadata::CollectionKind;
use crate::namespace::Namespace;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use std::collections::{HashMap, HashSet};

/// More than so many are not remembered, and then nothing more is replayed.
pub(crate) const LEFT_OUT_MAX: usize = 100_000;

/// Their `_id`s, by the collections that the log names: those of buckets for time series.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    ids: HashMap<Namespace, HashSet<Vec<u8>>>,
}

impl LeftOut {
    /// Whether there are as many as are remembered.
    pub(crate) fn is_full(&self) -> bool {
        self.ids.values().map(HashSet::len).sum::<usize>() >= LEFT_OUT_MAX
    }

    /// Whether nothing was left out.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(crate) fn contains(&self, namespace: &Namespace, id: &[u8]) -> bool {
        self.ids.get(namespace).is_some_and(|ids| ids.contains(id))
    }

    /// Adds a document; one without an `_id` is never changed by it.
    pub(crate) fn add(&mut self, namespace: Namespace, id: Option<Vec<u8>>) {
        if let Some(id) = id {
            self.ids.entry(namespace).or_default().insert(id);
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for (namespace, ids) in other.ids {
            self.ids.entry(namespace).or_default().extend(ids);
        }
    }

    /// A document is there, whole, or is gone.
    pub(crate) fn remove(&mut self, namespace: &Namespace, id: &[u8]) {
        if let Some(ids) = self.ids.get_mut(namespace) {
            ids.remove(id);
        }
    }

    /// A collection or a time series is gone.
    pub(crate) fn drop_collection(&mut self, namespace: &Namespace) {
        self.ids.remove(namespace);
        self.ids.remove(&namespace.of_documents(CollectionKind::TimeSeries));
    }

    pub(crate) fn drop_database(&mut self, database: &str) {
        self.ids.retain(|namespace, _| namespace.database != database);
    }

    /// A collection has another name, and what had that is gone.
    pub(crate) fn rename(&mut self, from: &Namespace, to: &Namespace) {
        self.ids.remove(to);
        if let Some(ids) = self.ids.remove(from) {
            self.ids.insert(to.clone(), ids);
        }
    }
}

/// The `_id` of a document of a log, in a form to be compared.
pub(crate) fn id_of(document: &Document) -> Option<Vec<u8>> {
    id_bytes(document.get("_id")?.clone())
}

/// The `_id` of a document of a dump, as [`id_of`] gives it.
pub(crate) fn id_of_found(found: &Found) -> Option<Vec<u8>> {
    let valid = found.with_valid_content();
    let document = RawDocument::from_bytes(&valid).ok()?;
    let id = document.get("_id").ok()??;
    id_bytes(Bson::try_from(id).ok()?)
}

fn id_bytes(id: Bson) -> Option<Vec<u8>> {
    let document = RawDocumentBuf::try_from(&doc! { "_id": id }).ok()?;
    Some(document.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_document_is_left_out_until_it_is_whole_or_gone() {
        let (a, b) = (Namespace::new("d", "a"), Namespace::new("d", "b"));
        let id = id_of(&doc! { "x": 1, "_id": 7 }).unwrap();
        let document = RawDocumentBuf::try_from(&doc! { "_id": 7 }).unwrap();
        assert_eq!(id_of_found(&Found::new(document, 0, None)), Some(id.clone()));
        let mut left_out = LeftOut::default();
        left_out.add(a.clone(), Some(id.clone()));
        left_out.add(a.clone(), None);
        assert!(left_out.contains(&a, &id) && !left_out.contains(&b, &id) && !left_out.is_full());
        left_out.rename(&a, &b);
        assert!(left_out.contains(&b, &id) && !left_out.contains(&a, &id));
        left_out.remove(&b, &id);
        assert!(!left_out.contains(&b, &id));
        let buckets = b.of_documents(CollectionKind::TimeSeries);
        left_out.add(buckets.clone(), Some(id.clone()));
        left_out.drop_collection(&b);
        assert!(!left_out.contains(&buckets, &id));
    }
}
