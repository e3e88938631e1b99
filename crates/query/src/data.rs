//! What an execution reads: the newest state, or that of a transaction.

use crate::error::QueryError;
use std::cell::RefCell;
use std::sync::Arc;
use storage::{CollectionGuard, LockMode, Namespace, Operation, ReadView, Storage, StorageError, Transaction};

/// See the module.
#[derive(Clone, Copy)]
pub struct DataSource<'a> {
    /// The data.
    pub storage: &'a Arc<Storage>,
    /// Deadline, kill flag and counters of the client's operation.
    pub op: &'a Arc<Operation>,
    /// The transaction that the operation is a statement of.
    pub transaction: Option<&'a RefCell<Transaction>>,
}

impl DataSource<'_> {
    /// The newest state; of a transaction that of its beginning, with its own changes.
    pub(crate) fn view(&self) -> Result<ReadView, QueryError> {
        Ok(match self.transaction {
            Some(transaction) => transaction.borrow_mut().view(),
            None => self.storage.read()?,
        })
    }

    /// Access to a collection, see [`Storage::collection`] and [`Transaction::collection`].
    pub fn collection(&self, ns: &Namespace, mode: LockMode) -> Result<Option<CollectionGuard>, StorageError> {
        match self.transaction {
            Some(transaction) => transaction.borrow_mut().collection(self.op, ns, mode),
            None => self.storage.collection(self.op, ns, mode),
        }
    }
}
