//! How a command's function has its request wait without a thread.

use crate::cursors::OpenCursor;
use crate::invocation::Invocation;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Registration, Waker};

impl Invocation<'_> {
    /// What calls the request when it waits without a thread; `None` where it has to wait with this one.
    pub(crate) fn waker(&self) -> Option<Arc<Waker>> {
        // Others wait for what a transaction's statements hold.
        let resume = self.resume.filter(|_| self.transaction_fields.is_none())?;
        Some(Waker::new(resume()))
    }

    /// When the request waits no longer that may wait for so long, by the monotonic clock.
    pub(crate) fn patient_until(&self, patience: Duration) -> Duration {
        match &self.parked {
            Some(parked) => parked.until,
            None => self.server.env.clock.monotonic() + patience,
        }
    }

    /// Waits for an event with this thread.
    pub(crate) fn idle<T>(&self, wait: impl FnOnce() -> T) -> T {
        let now = || self.server.env.clock.monotonic();
        let (since, idle) = (now(), &self.report.idle);
        let event = wait();
        idle.set(idle.get() + now().saturating_sub(since));
        event
    }

    /// The request waits until `waker` is called, by what `place` is for, or until `until`; then the command's
    /// function is called anew. It has to return once it has said so.
    pub(crate) fn park(
        &mut self,
        waker: Arc<Waker>,
        place: Registration,
        until: Duration,
        cursor: Option<Box<OpenCursor>>,
    ) {
        let parked = self.server.parked.park(&self.operation, until, waker, place, cursor);
        self.parked = Some(parked);
        self.report.parks = true;
    }
}
