//! What a server that is no member of a set tells drivers of its topology: it is this process, and never changes.

use crate::error::Result;
use crate::replica_set::TopologyVersion;
use bson::oid::ObjectId;
use std::sync::Arc;
use std::time::Duration;
use storage::{Operation, StorageError};
use vfs::{Registration, WaitList, Waker};

/// See the module.
pub(crate) struct Standalone {
    version: TopologyVersion,
    /// Drivers that wait for a change. Nothing ever calls them: they wait until their patience is over.
    wait_list: Arc<WaitList>,
}

impl Standalone {
    pub(crate) fn new() -> Self {
        Self {
            version: TopologyVersion {
                process: ObjectId::new(),
                counter: 0,
            },
            wait_list: Arc::default(),
        }
    }

    pub(crate) fn version(&self) -> TopologyVersion {
        self.version
    }

    /// A place to wait until `until` for another state than `known`; `None` where there is nothing to wait for, or no
    /// way to do so without a thread.
    pub(crate) fn wait_for_change(
        &self,
        operation: &Operation,
        known: TopologyVersion,
        until: Duration,
        waker: impl FnOnce() -> Option<Arc<Waker>>,
    ) -> Result<Option<(Arc<Waker>, Registration)>> {
        if known.process != self.version.process {
            return Ok(None);
        }
        known.check_not_ahead(self.version.counter)?;
        if operation.clock().monotonic() >= until {
            return Ok(None);
        }
        operation.check_now().map_err(StorageError::from)?;
        Ok(waker().map(|waker| {
            let place = self.wait_list.enter(&waker);
            (waker, place)
        }))
    }
}
