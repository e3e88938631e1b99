//! Users' writes held off: while another cluster takes the data over, nobody but the server and privileged users
//! changes it.

use crate::entry::EntryWriter;
use crate::storage::Storage;
use crate::{Namespace, Operation, StorageError};
use std::sync::atomic::Ordering;

/// What the server keeps for itself.
const SYSTEM_DATABASES: [&str; 3] = ["admin", "config", "local"];

impl Storage {
    /// Refuses users' writes from now on, or takes them again. What has its place in the log may still be applied:
    /// [`Storage::wait_for_writes`] waits for that.
    pub fn set_user_writes_blocked(&self, are_blocked: bool) {
        self.user_writes_blocked.store(are_blocked, Ordering::SeqCst);
    }

    /// Are users' writes refused?
    pub fn are_user_writes_blocked(&self) -> bool {
        self.user_writes_blocked.load(Ordering::SeqCst)
    }

    /// Early, before anything is done: may the operation change what `namespace` names?
    pub(crate) fn check_user_write(&self, op: &Operation, namespace: &Namespace) -> Result<(), StorageError> {
        match self.are_user_writes_blocked() && is_bound(op, namespace) {
            true => Err(StorageError::UserWritesBlocked),
            false => Ok(()),
        }
    }

    /// The check that counts, with `order` locked: an open transaction, or who was let in before, gets no further.
    pub(crate) fn check_entry(&self, entry: &EntryWriter) -> Result<(), StorageError> {
        match self.are_user_writes_blocked() && entry.is_users {
            true => Err(StorageError::UserWritesBlocked),
            false => Ok(()),
        }
    }
}

/// Whether the operation may change what `namespace` names only while users' writes are not held off.
pub(crate) fn is_bound(op: &Operation, namespace: &Namespace) -> bool {
    op.is_users() && !SYSTEM_DATABASES.contains(&namespace.db())
}
