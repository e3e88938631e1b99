//! Names of collections that open transactions are about to make.

use crate::Namespace;
use crate::limits::WAIT_SLICE;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names of collections that open transactions make, and whose they are.
#[derive(Default)]
pub(crate) struct ReservedNames {
    names: Mutex<HashMap<Namespace, u64>>,
    given_back: Condvar,
    /// How often some were given back; rises under `names`.
    times: AtomicU64,
}

impl ReservedNames {
    /// Whether the name is somebody's.
    pub(crate) fn has(&self, ns: &Namespace) -> bool {
        self.names.lock().contains_key(ns)
    }

    /// A database of such a name that differs from `db` in case only.
    pub(crate) fn case_conflict(&self, db: &str) -> Option<String> {
        let names = self.names.lock();
        let differs = |ns: &&Namespace| ns.db() != db && ns.db().eq_ignore_ascii_case(db);
        names.keys().find(differs).map(|ns| ns.db().to_owned())
    }

    pub(crate) fn reserve(&self, ns: &Namespace, owner: u64) {
        let former = self.names.lock().insert(ns.clone(), owner);
        debug_assert!(former.is_none(), "a name is one transaction's");
    }

    /// How often names were given back so far.
    pub(crate) fn times_given_back(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// Waits a moment for names to be given back, more often than `times`.
    pub(crate) fn wait(&self, times: u64) {
        let mut names = self.names.lock();
        if self.times_given_back() == times {
            self.given_back.wait_for(&mut names, WAIT_SLICE);
        }
    }

    /// The transaction has ended.
    pub(crate) fn give_back(&self, owner: u64) {
        let mut names = self.names.lock();
        names.retain(|_, of| *of != owner);
        self.times.fetch_add(1, Ordering::AcqRel);
        drop(names);
        self.given_back.notify_all();
    }
}
