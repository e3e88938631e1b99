//! What a statement that writes finds to write to, record by record.

use crate::error::Result;
use crate::invocation::Invocation;
use query::PlanExecutor;
use query::matcher::Matcher;
use query::plan::FindRequest;
use std::sync::Arc;
use std::time::Duration;
use storage::{Collection, CollectionGuard, LockMode, Namespace, RecordId, StorageError};
use wire::ErrorCode;

use super::update::Statement;

/// So often scripts look at a document without locks, if others change it meanwhile each time.
const UNLOCKED_LOOKS_MAX: u32 = 10;
/// Then they look at it under its lock, for so long at most: others wait for it.
const LOCKED_LOOK_TIME: Duration = Duration::from_millis(100);

/// Finds what to write to, and locks the collection for each record.
///
/// The plan takes and releases its own lock in each call, so that the writer must hold none between records; the
/// collection's UUID tells whether the one it finds again is still the one the plan reads. A look-up by `_id`, which
/// has one record at most, leaves the lock it was planned under to the writer.
pub struct WriteTargets {
    plan: PlanExecutor,
    uuid: [u8; 16],
}

/// A record to write to, with the lock that the write needs.
pub struct Target {
    /// The collection, locked for a writer of single documents.
    pub guard: CollectionGuard,
    /// The record; it may be gone or changed by now.
    pub id: RecordId,
}

/// How often scripts have looked at a document without locks.
#[derive(Default)]
pub struct Looks(u32);

impl WriteTargets {
    /// Plans the statement's filter; `None` when there is no such collection (the statement is checked all the same).
    pub fn find(call: &mut Invocation<'_>, namespace: &Namespace, statement: &Statement<'_>) -> Result<Option<Self>> {
        let mut request = FindRequest::new(namespace.clone(), statement.filter);
        request.hint = statement.hint;
        request.sort = statement.sort;
        request.collation = statement.collation;
        request.variables = statement.variables;
        request.constants = statement.constants;
        request.for_write = true;
        request.takes_one = !statement.multi;
        let plan = query::find(&call.context(), &request)?;
        call.set_plan_summary(plan.plan_summary());
        let uuid = plan.locked_collection().map(|guard| guard.uuid());
        Ok(uuid.map(|uuid| Self { plan, uuid }))
    }

    /// The next record; `None` at the end, or when the collection is another one now.
    pub fn next(&mut self, call: &Invocation<'_>) -> Result<Option<Target>> {
        let Some(id) = self.plan.next_record(&call.context())? else {
            return Ok(None);
        };
        let guard = match self.plan.take_lock() {
            Some(kept) => Some(kept).filter(|guard| guard.uuid() == self.uuid),
            None => lock(call, self.plan.namespace(), self.uuid)?,
        };
        Ok(guard.map(|guard| Target { guard, id }))
    }

    /// Whether scripts run with the filter: then it is asked with [`Target::unlocked`].
    pub fn runs_scripts(&self) -> bool {
        self.plan.runs_scripts()
    }

    /// The filter for the second look under the record's lock; `None` when none is needed.
    pub fn filter(&self) -> Option<&Matcher> {
        self.plan.filter().map(|filter| &**filter)
    }
}

/// The collection, locked for a writer; `None` when it is another one now.
fn lock(call: &Invocation<'_>, namespace: &Namespace, uuid: [u8; 16]) -> Result<Option<CollectionGuard>> {
    let guard = call.collection(namespace, LockMode::IntentExclusive)?;
    Ok(guard.filter(|guard| guard.uuid() == uuid))
}

impl Target {
    /// Has work done while the collection is not locked: that of scripts, which may never end, and whoever wants the
    /// collection for itself would wait for them. Nothing of the record may be locked either. `None` when the
    /// collection is another one afterwards.
    pub fn unlocked<T>(
        self,
        call: &Invocation<'_>,
        looks: &mut Looks,
        work: impl FnOnce(&Arc<Collection>) -> Result<T>,
    ) -> Result<Option<(Self, T)>> {
        let Self { guard, id } = self;
        let collection = guard.definition().clone();
        drop(guard);
        if looks.0 > 0 {
            call.wait_to_look_again()?;
        }
        looks.0 += 1;
        let done = work(&collection)?;
        let guard = lock(call, collection.namespace(), collection.uuid())?;
        Ok(guard.map(|guard| (Self { guard, id }, done)))
    }
}

impl Looks {
    /// Whether scripts may look at the document without locks once more.
    pub fn may_be_unlocked(&self) -> bool {
        self.0 < UNLOCKED_LOOKS_MAX
    }

    /// Has work done under the document's lock: any but that of scripts, and theirs once they have looked too often.
    /// Who writes faster than a script runs would keep it from its turn for ever.
    ///
    /// # Errors
    /// `WriteConflict`, when scripts took too long for that.
    pub fn locked<T>(&self, call: &Invocation<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if self.may_be_unlocked() {
            return work();
        }
        let clock = call.operation.clock();
        let begun = clock.monotonic();
        call.scripts.end_within(Some(LOCKED_LOOK_TIME), &**clock);
        let done = work();
        call.scripts.end_within(None, &**clock);
        // Calls end by whole milliseconds.
        let took = clock.monotonic().saturating_sub(begun) + Duration::from_millis(1);
        match done {
            Err(error) if error.code == ErrorCode::JSInterpreterFailure && took >= LOCKED_LOOK_TIME => {
                Err(StorageError::WriteConflict.into())
            }
            done => done,
        }
    }
}
