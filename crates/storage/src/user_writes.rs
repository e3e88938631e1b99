//! Users' writes held off: while another cluster takes the data over, nobody but the server and privileged users
//! changes it.

use crate::storage::Storage;
use crate::{Namespace, Operation, StorageError};
use std::sync::atomic::Ordering;

/// What the server keeps for itself.
const SYSTEM_DATABASES: [&str; 3] = ["admin", "config", "local"];

impl Storage {
    /// Refuses users' writes from now on, or takes them again. Those that have begun may still be applied:
    /// [`Storage::block_writes`] waits for them.
    pub fn set_user_writes_blocked(&self, are_blocked: bool) {
        self.user_writes_blocked.store(are_blocked, Ordering::SeqCst);
    }

    /// Are users' writes refused?
    pub fn are_user_writes_blocked(&self) -> bool {
        self.user_writes_blocked.load(Ordering::Relaxed)
    }

    /// May the operation change what `namespace` names?
    pub(crate) fn check_user_write(&self, op: &Operation, namespace: &Namespace) -> Result<(), StorageError> {
        let is_refused = self.user_writes_blocked.load(Ordering::SeqCst)
            && op.is_users()
            && !SYSTEM_DATABASES.contains(&namespace.db());
        match is_refused {
            true => Err(StorageError::UserWritesBlocked),
            false => Ok(()),
        }
    }
}
