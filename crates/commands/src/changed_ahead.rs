//! Documents that a call has changed ahead: readers see them as they were, until the call has waited.

use crate::error::Result;
use crate::invocation::Invocation;
use bytes::Bytes;
use storage::Namespace;

/// Bytes of documents that a call remembers at most: they may be larger than what was changed of them.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// As they were, and as they will be.
#[derive(Default)]
pub struct ChangedAhead {
    documents: Vec<Changed>,
    bytes: usize,
}

/// A document before and after a change; `None` where it is not there.
pub struct Changed {
    namespace: Namespace,
    before: Option<Bytes>,
    after: Option<Bytes>,
}

impl Changed {
    /// Neither came nor went.
    pub fn stays(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// What it was and what it will be.
    pub fn images(&self) -> impl Iterator<Item = &Bytes> {
        [&self.before, &self.after].into_iter().flatten()
    }
}

impl ChangedAhead {
    /// Those of a collection.
    pub fn of(&self, namespace: &Namespace) -> impl Iterator<Item = &Changed> {
        self.documents
            .iter()
            .filter(move |changed| changed.namespace == *namespace)
    }

    /// Forgets all: they are what readers see.
    pub fn clear(&mut self) {
        self.documents.clear();
        self.bytes = 0;
    }
}

impl Invocation<'_> {
    /// Remembers a document that was changed ahead; `before` or `after` is `None` where it is not there.
    pub fn remember(&self, namespace: &Namespace, before: Option<Bytes>, after: Option<Bytes>) -> Result<()> {
        let is_full = {
            let mut ahead = self.changed_ahead.borrow_mut();
            ahead.bytes += [&before, &after].into_iter().flatten().map(Bytes::len).sum::<usize>();
            let namespace = namespace.clone();
            ahead.documents.push(Changed {
                namespace,
                before,
                after,
            });
            ahead.bytes > BYTES_MAX
        };
        match is_full {
            true => self.settle(),
            false => Ok(()),
        }
    }

    /// Waits until what the call has committed ahead has taken effect.
    pub fn settle(&self) -> Result<()> {
        self.changed_ahead.borrow_mut().clear();
        Ok(self.server.storage.wait_ahead(&self.operation)?)
    }
}
