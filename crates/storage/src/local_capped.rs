//! Capped collections in memory that are one member's alone: they are in no log and no catalog, and end with the
//! process.
//!
//! A member of a replica set keeps here what is about itself, not about the set's data. Documents are numbered from 1
//! on in the order they came; the oldest go when the newest does not fit.

use crate::capped::CappedTail;
use crate::{CappedLimits, CappedWaiter, CollectionStats, Namespace, Storage, StorageError};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// See the module.
pub struct LocalCapped {
    namespace: Namespace,
    uuid: [u8; 16],
    limits: CappedLimits,
    content: Mutex<Content>,
    tail: Arc<CappedTail>,
}

/// Invariant: `bytes` is the sum of the documents' lengths, and within the limit unless there is only one document.
struct Content {
    documents: VecDeque<Bytes>,
    /// The number of the document in front, or of the one to come.
    first: u64,
    bytes: u64,
    is_dropped: bool,
}

/// What comes behind a place in a [`LocalCapped`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalNext {
    /// The next document and its number.
    Document(u64, Bytes),
    /// Nothing yet.
    Nothing,
    /// What was to come has been overwritten.
    Lost,
    /// The collection has been dropped.
    Dropped,
}

impl LocalCapped {
    fn new(namespace: Namespace, uuid: [u8; 16], limits: CappedLimits) -> Self {
        let content = Content {
            documents: VecDeque::new(),
            first: 1,
            bytes: 0,
            is_dropped: false,
        };
        Self {
            namespace,
            uuid,
            limits,
            content: Mutex::new(content),
            tail: Arc::default(),
        }
    }

    /// Its name.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Its number, which another one of the name does not have.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// What it holds at most.
    pub fn limits(&self) -> CappedLimits {
        self.limits
    }

    /// Adds a document, which must be valid BSON. What is dropped takes none.
    pub fn push(&self, document: Bytes) {
        let mut content = self.content.lock();
        if content.is_dropped {
            return;
        }
        content.bytes += document.len() as u64;
        content.documents.push_back(document);
        let documents_max = self.limits.max_documents.unwrap_or(u64::MAX);
        while content.documents.len() > 1
            && (content.bytes > self.limits.size_bytes || content.documents.len() as u64 > documents_max)
        {
            let oldest = content.documents.pop_front();
            content.bytes -= oldest.map_or(0, |oldest| oldest.len() as u64);
            content.first += 1;
        }
        let last = content.first + content.documents.len() as u64 - 1;
        drop(content);
        self.tail.published(last);
    }

    /// All that it holds now, oldest first.
    pub fn documents(&self) -> Vec<Bytes> {
        self.content.lock().documents.iter().cloned().collect()
    }

    /// What follows the document of this number; 0 is before all that there ever was, and goes on with the oldest.
    pub fn after(&self, passed: u64) -> LocalNext {
        let content = self.content.lock();
        if content.is_dropped {
            return LocalNext::Dropped;
        }
        let next = match passed {
            0 => content.first,
            passed if passed + 1 < content.first => return LocalNext::Lost,
            passed => passed + 1,
        };
        match content.documents.get((next - content.first) as usize) {
            Some(document) => LocalNext::Document(next, document.clone()),
            None => LocalNext::Nothing,
        }
    }

    /// What waits for documents to come.
    pub fn waiter(&self) -> CappedWaiter {
        CappedWaiter::new(self.tail.clone())
    }

    fn stats(&self) -> CollectionStats {
        let content = self.content.lock();
        CollectionStats {
            count: content.documents.len() as u64,
            data_bytes: content.bytes,
            memory_bytes: content.bytes,
            capped: Some(self.limits),
            ..CollectionStats::default()
        }
    }

    fn end(&self) {
        let mut content = self.content.lock();
        content.documents.clear();
        (content.bytes, content.is_dropped) = (0, true);
        drop(content);
        self.tail.close();
    }
}

/// All of a server's, by name.
#[derive(Default)]
pub(crate) struct LocalCollections {
    by_name: RwLock<BTreeMap<Namespace, Arc<LocalCapped>>>,
    /// There has been one outside of `local`: the lock is for those who may find something.
    is_used: AtomicBool,
}

/// The database that servers keep such ones of themselves in.
const OWN_DATABASE: &str = "local";

impl Storage {
    /// Makes a capped collection in memory, of this server alone. [`StorageError::NamespaceExists`] when the name is
    /// taken.
    pub fn create_local_capped(&self, ns: &Namespace, limits: CappedLimits) -> Result<(), StorageError> {
        let mut by_name = self.locals.by_name.write();
        if by_name.contains_key(ns) || self.catalog.entry(ns).is_some() {
            return Err(StorageError::NamespaceExists(ns.clone()));
        }
        let made = LocalCapped::new(ns.clone(), self.new_uuid(), limits);
        by_name.insert(ns.clone(), Arc::new(made));
        if ns.db() != OWN_DATABASE {
            self.locals.is_used.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// The capped collection in memory of that name.
    pub fn local_capped(&self, ns: &Namespace) -> Option<Arc<LocalCapped>> {
        if !self.locals.is_used.load(Ordering::Acquire) && ns.db() != OWN_DATABASE {
            return None;
        }
        self.locals.by_name.read().get(ns).cloned()
    }

    /// All capped collections in memory of a database.
    pub fn local_capped_of(&self, db: &str) -> Vec<Arc<LocalCapped>> {
        let by_name = self.locals.by_name.read();
        by_name
            .values()
            .filter(|one| one.namespace.db() == db)
            .cloned()
            .collect()
    }

    /// The databases that have such ones.
    pub fn local_databases(&self) -> Vec<String> {
        let by_name = self.locals.by_name.read();
        let mut names: Vec<_> = by_name.keys().map(|ns| ns.db().to_owned()).collect();
        names.dedup();
        names
    }

    /// Drops a capped collection in memory. False when there is none.
    pub fn drop_local_capped(&self, ns: &Namespace) -> bool {
        let dropped = self.locals.by_name.write().remove(ns);
        if let Some(dropped) = &dropped {
            dropped.end();
        }
        dropped.is_some()
    }

    /// Figures of a capped collection in memory.
    pub(crate) fn local_stats(&self, ns: &Namespace) -> Option<CollectionStats> {
        self.local_capped(ns).map(|local| local.stats())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn local(size_bytes: u64, max_documents: Option<u64>) -> LocalCapped {
        let limits = CappedLimits {
            size_bytes,
            max_documents,
        };
        LocalCapped::new(Namespace::new("db", "c").unwrap(), [1; 16], limits)
    }

    fn texts(local: &LocalCapped) -> Vec<Bytes> {
        local.documents()
    }

    #[test]
    fn the_oldest_go_by_bytes_and_by_number() {
        let of_bytes = local(10, None);
        for text in ["1234", "5678", "90"] {
            of_bytes.push(text.into());
        }
        assert_eq!(texts(&of_bytes), ["1234", "5678", "90"]);
        of_bytes.push("a".into());
        assert_eq!(texts(&of_bytes), ["5678", "90", "a"]);
        // One that is larger than all may be is there alone.
        of_bytes.push("larger than that".into());
        assert_eq!(texts(&of_bytes), ["larger than that"]);
        assert_eq!((of_bytes.stats().count, of_bytes.stats().data_bytes), (1, 16));
        let of_number = local(1000, Some(2));
        for text in ["a", "b", "c"] {
            of_number.push(text.into());
        }
        assert_eq!(texts(&of_number), ["b", "c"]);
    }

    #[test]
    fn who_follows_is_told_what_is_lost_and_when_it_ends() {
        let local = local(1000, Some(2));
        assert_eq!(local.after(0), LocalNext::Nothing);
        for text in ["a", "b", "c"] {
            local.push(text.into());
        }
        assert_eq!(local.after(0), LocalNext::Document(2, "b".into()));
        assert_eq!(local.after(1), LocalNext::Document(2, "b".into()));
        assert_eq!(local.after(3), LocalNext::Nothing);
        local.push("d".into());
        local.push("e".into());
        assert_eq!(local.after(2), LocalNext::Lost);
        assert_eq!(local.after(3), LocalNext::Document(4, "d".into()));
        local.end();
        local.push("f".into());
        assert_eq!(local.after(4), LocalNext::Dropped);
        assert!(local.documents().is_empty());
    }
}
