//! A collection and the lock under which it is used.

use crate::{Collection, LockMode};
use locks::Held;
use std::ops::Deref;
use std::sync::Arc;

/// A collection, locked for one operation; the lock is given back when the last clone is dropped. A write unit keeps
/// its own clones until it ends.
#[derive(Clone)]
pub struct CollectionGuard {
    collection: Arc<Collection>,
    held: Arc<Held>,
}

impl CollectionGuard {
    /// The definition, for keeping beyond the lock.
    pub fn definition(&self) -> &Arc<Collection> {
        &self.collection
    }

    /// The mode it is locked in.
    pub fn mode(&self) -> LockMode {
        self.held.mode()
    }

    /// Whether documents may be changed under it.
    pub fn is_for_writers(&self) -> bool {
        matches!(self.mode(), LockMode::IntentExclusive | LockMode::Exclusive)
    }

    /// Whether somebody waits who wants the collection for itself, and all others are kept out meanwhile. Not while
    /// that one waits for a transaction: it would not have the collection sooner without this lock.
    pub fn keeps_others_out(&self) -> bool {
        self.collection.shared.lock.keeps_newcomers_out()
    }

    pub(crate) fn from_parts(collection: Arc<Collection>, held: Held) -> Self {
        let held = Arc::new(held);
        Self { collection, held }
    }

    /// The same lock, of the collection as it is to be seen.
    pub(crate) fn seen_as(self, collection: Collection) -> Self {
        Self {
            collection: Arc::new(collection),
            ..self
        }
    }
}

impl Deref for CollectionGuard {
    type Target = Collection;

    fn deref(&self) -> &Collection {
        &self.collection
    }
}
