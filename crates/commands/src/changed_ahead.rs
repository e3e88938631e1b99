//! Documents that a call has changed ahead: readers see them as they were, until the call has waited.

use bytes::Bytes;
use storage::Namespace;

/// Bytes of documents that a call remembers at most: they may be larger than what was changed of them.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// As they were, and as they will be.
#[derive(Default)]
pub struct ChangedAhead {
    documents: Vec<Changed>,
    bytes: usize,
    /// There may be others that are not among them.
    has_more: bool,
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

    /// Adds a document; answers whether there is no room for more.
    #[must_use]
    pub fn add(&mut self, namespace: &Namespace, before: Option<Bytes>, after: Option<Bytes>) -> bool {
        self.bytes += [&before, &after].into_iter().flatten().map(Bytes::len).sum::<usize>();
        let namespace = namespace.clone();
        self.documents.push(Changed {
            namespace,
            before,
            after,
        });
        self.bytes > BYTES_MAX
    }

    /// Others may have been changed, too.
    pub fn lose_track(&mut self) {
        self.has_more = true;
    }

    /// Whether any document may be one of them.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Forgets all: they are what readers see.
    pub fn clear(&mut self) {
        self.has_more = false;
        self.documents.clear();
        self.bytes = 0;
    }
}
