//! Documents whose changes in a log do not fit: one that was left out for its text would come back as a part of
//! itself, and a bucket that was made anew has other rows than the log counts by.
//!
//! Changes of documents are left out. Buckets are held beside, with the text that they had, as far as there is memory
//! for them: the log changes these, and what is restored is made anew of what they have become.

use crate::found::Found;
use crate::metadata::CollectionKind;
use crate::namespace::Namespace;
use crate::texts::Counts;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use std::collections::{BTreeMap, HashMap, HashSet};

/// More than so many are not remembered, and then nothing more is replayed.
pub(crate) const LEFT_OUT_MAX: usize = 100_000;

/// Bytes of the buckets that are held.
const HELD_BYTES_MAX: usize = 64 << 20;

/// A bucket as the dump or the log has it, of which another one is restored.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bucket: RawDocumentBuf,
    /// What has been counted of its text.
    pub(crate) counted: Counts,
    /// Whether the log has changed it, so that what is restored is behind.
    pub(crate) is_changed: bool,
}

impl Held {
    pub(crate) fn of_dump(bucket: &RawDocument, counted: Counts) -> Self {
        Self {
            bucket: bucket.to_owned(),
            counted,
            is_changed: false,
        }
    }

    /// One that is made anew when the log has ended.
    pub(crate) fn of_log(bucket: RawDocumentBuf, counted: Counts) -> Self {
        Self {
            bucket,
            counted,
            is_changed: true,
        }
    }

    fn bytes(&self) -> usize {
        self.bucket.as_bytes().len()
    }
}

/// The `_id` of a bucket and the collection of buckets that it is in. They begin with the time, so that the first are
/// those that a log changes least.
type BucketKey = (Vec<u8>, Namespace);

/// Their `_id`s, by the collections that the log names: those of buckets for time series.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    ids: HashMap<Namespace, HashSet<Vec<u8>>>,
    /// Of `ids`.
    held: BTreeMap<BucketKey, Held>,
    held_bytes: usize,
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

    /// Adds a bucket, and holds it. Answers those that are held no longer, for want of room: their changes are left
    /// out.
    pub(crate) fn hold(&mut self, namespace: Namespace, id: Vec<u8>, held: Held) -> Vec<(BucketKey, Held)> {
        self.release(&namespace, &id);
        self.add(namespace.clone(), Some(id.clone()));
        self.held_bytes += held.bytes();
        self.held.insert((id, namespace), held);
        let mut let_go = Vec::new();
        while self.held_bytes > HELD_BYTES_MAX
            && let Some((key, held)) = self.held.pop_first()
        {
            self.held_bytes -= held.bytes();
            let_go.push((key, held));
        }
        let_go
    }

    /// Takes a bucket that is held, whose changes are left out from then on.
    pub(crate) fn release(&mut self, namespace: &Namespace, id: &[u8]) -> Option<Held> {
        let held = self.held.remove(&(id.to_vec(), namespace.clone()))?;
        self.held_bytes -= held.bytes();
        Some(held)
    }

    /// Takes all that are held.
    pub(crate) fn take_held(&mut self) -> BTreeMap<BucketKey, Held> {
        self.held_bytes = 0;
        std::mem::take(&mut self.held)
    }

    fn keep_held(&mut self, is_kept: impl Fn(&Namespace) -> bool) {
        self.held.retain(|(_, namespace), _| is_kept(namespace));
        self.held_bytes = self.held.values().map(Held::bytes).sum();
    }

    /// Adds those of another one, none of whose buckets a log has changed.
    pub(crate) fn append(&mut self, other: Self) {
        for (namespace, ids) in other.ids {
            self.ids.entry(namespace).or_default().extend(ids);
        }
        for ((id, namespace), held) in other.held {
            self.hold(namespace, id, held);
        }
    }

    /// A document is there, whole, or is gone.
    pub(crate) fn remove(&mut self, namespace: &Namespace, id: &[u8]) {
        if let Some(ids) = self.ids.get_mut(namespace) {
            ids.remove(id);
        }
        self.release(namespace, id);
    }

    /// A collection or a time series is gone.
    pub(crate) fn drop_collection(&mut self, namespace: &Namespace) {
        let buckets = namespace.of_documents(CollectionKind::TimeSeries);
        self.ids.remove(namespace);
        self.ids.remove(&buckets);
        self.keep_held(|held| held != namespace && *held != buckets);
    }

    pub(crate) fn drop_database(&mut self, database: &str) {
        self.ids.retain(|namespace, _| namespace.database != database);
        self.keep_held(|held| held.database != database);
    }

    /// A collection, which is none of buckets, has another name, and what had that is gone.
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

    fn held(bytes: usize) -> Held {
        let bucket = RawDocumentBuf::try_from(&doc! { "pad": "x".repeat(bytes) }).unwrap();
        Held::of_dump(&bucket, Counts::default())
    }

    /// All of them would be as large as the dump.
    #[test]
    fn of_the_buckets_that_are_held_the_oldest_are_let_go() {
        let (a, b) = (
            Namespace::new("d", "system.buckets.a"),
            Namespace::new("d", "system.buckets.b"),
        );
        let id = |n: u8| id_of(&doc! { "_id": bson::oid::ObjectId::from_bytes([n; 12]) }).unwrap();
        let mut left_out = LeftOut::default();
        let third = HELD_BYTES_MAX / 3 - 100;
        assert!(left_out.hold(a.clone(), id(2), held(third)).is_empty());
        assert!(
            left_out.hold(a.clone(), id(2), held(third)).is_empty(),
            "in its own place"
        );
        assert!(left_out.hold(b.clone(), id(1), held(third)).is_empty());
        let mut other = LeftOut::default();
        assert!(other.hold(b.clone(), id(3), held(third)).is_empty());
        left_out.append(other);
        let let_go = left_out.hold(a.clone(), id(4), held(third));
        assert!(matches!(&let_go[..], [((first, of), _)] if *first == id(1) && *of == b));
        assert!(left_out.contains(&b, &id(1)) && left_out.release(&b, &id(1)).is_none());
        left_out.remove(&a, &id(4));
        assert!(!left_out.contains(&a, &id(4)) && left_out.release(&a, &id(4)).is_none());
        assert!(left_out.release(&a, &id(2)).is_some() && left_out.contains(&a, &id(2)));
        left_out.drop_collection(&Namespace::new("d", "b"));
        assert!(left_out.take_held().is_empty() && left_out.held_bytes == 0);
    }
}
