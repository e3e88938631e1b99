//! What an execution reads: the newest state, a kept one, or that of a transaction.

use crate::error::QueryError;
use crate::scripts::OperationScripts;
use std::cell::RefCell;
use std::sync::Arc;
use storage::{
    CollectionGuard, LockMode, Namespace, Operation, PinnedView, ReadView, Storage, StorageError, Transaction,
};

/// See the module.
#[derive(Clone, Copy)]
pub struct DataSource<'a> {
    /// The data.
    pub storage: &'a Arc<Storage>,
    /// Deadline, kill flag and counters of the client's operation.
    pub op: &'a Arc<Operation>,
    /// The transaction that the operation is a statement of.
    pub transaction: Option<&'a RefCell<Transaction>>,
    /// The state to be read, where it is not the newest one.
    pub pinned: Option<&'a PinnedView>,
    /// What scripts of the operation run in, if somebody has lent it.
    pub scripts: Option<&'a OperationScripts>,
}

impl DataSource<'_> {
    /// The newest state; of a transaction that of its beginning, with its own changes.
    pub(crate) fn view(&self) -> Result<ReadView, QueryError> {
        Ok(match (self.transaction, self.pinned) {
            (Some(transaction), _) => transaction.borrow_mut().view(),
            (None, Some(pinned)) => pinned.view().clone(),
            (None, None) => self.storage.read()?,
        })
    }

    /// Whether the newest state is read, which what is kept in memory describes.
    pub(crate) fn is_newest(&self) -> bool {
        self.transaction.is_none() && self.pinned.is_none()
    }

    /// Access to a collection, see [`Storage::collection`] and [`Transaction::collection`].
    pub fn collection(&self, ns: &Namespace, mode: LockMode) -> Result<Option<CollectionGuard>, StorageError> {
        if let Some(transaction) = self.transaction {
            return transaction.borrow_mut().collection(self.op, ns, mode);
        }
        let guard = self.storage.collection(self.op, ns, mode)?;
        match self.pinned {
            Some(pinned) => pinned.readable(self.storage.catalog(), ns, guard),
            None => Ok(guard),
        }
    }
}
