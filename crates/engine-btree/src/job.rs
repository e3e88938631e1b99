//! Recurring background work: each kind is queued, or runs, at most once at a time.
//!
//! A job is made before what it works on, so that whoever finds that there is something to do need not know who does
//! it.

use crate::workers::{Class, Workers};
use engine::{EngineStatus, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

type Work = Box<dyn Fn() + Send + Sync>;

/// One kind of work.
pub(crate) struct Job {
    class: Class,
    is_under_way: AtomicBool,
    /// Set once, at opening.
    work: OnceLock<Work>,
}

impl Job {
    pub(crate) fn new(class: Class) -> Arc<Self> {
        Arc::new(Self {
            class,
            is_under_way: AtomicBool::new(false),
            work: OnceLock::new(),
        })
    }

    /// Says what to do: call `work` with `owner` as long as that lives; a queued job must not keep a closed engine
    /// alive. An error stops the engine unless the disk is full.
    pub(crate) fn set_work<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        status: &Arc<EngineStatus>,
        what: &'static str,
        work: fn(&T) -> Result<()>,
    ) {
        let (owner, status): (Weak<T>, _) = (Arc::downgrade(owner), status.clone());
        let work: Work = Box::new(move || {
            if let Some(owner) = owner.upgrade()
                && let Err(error) = work(&owner)
                && !matches!(error.kind(), ErrorKind::OutOfSpace | ErrorKind::Closed)
            {
                status.stop(format!("{what} failed: {error}"));
            }
        });
        assert!(self.work.set(work).is_ok(), "the work of a job is set once");
    }

    /// Has a worker do the work unless that is under way already; with no threads the caller does it.
    pub(crate) fn soon(self: &Arc<Self>, workers: &Workers) {
        if self.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        if workers.threads() == 0 {
            return self.run();
        }
        let job = self.clone();
        if workers.submit(self.class, move || job.run()).is_err() {
            self.is_under_way.store(false, Ordering::Release);
        }
    }

    fn run(&self) {
        if let Some(work) = self.work.get() {
            work();
        }
        self.is_under_way.store(false, Ordering::Release);
    }

    /// Whether it is queued or runs.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Acquire)
    }

    /// Keeps it from running.
    #[cfg(test)]
    pub(crate) fn hold(&self) {
        self.is_under_way.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::EngineError;
    use parking_lot::Mutex;

    /// Nobody heard of it before somebody asked the engine for something.
    #[test]
    fn work_that_fails_stops_the_engine_and_its_owner_hears_of_it() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let (status, failures) = (Arc::new(EngineStatus::default()), told.clone());
        status.set_failure_handler(Box::new(move |failure| failures.lock().push(failure.to_owned())));
        let (workers, job) = (
            Workers::start(Some(0)).expect("no threads"),
            Job::new(Class::Background),
        );
        let owner = Arc::new(());
        job.set_work(&owner, &status, "the work", |()| Err(EngineError::Interrupted));
        job.soon(&workers);
        assert!(status.check_running().is_err());
        assert_eq!(*told.lock(), ["the work failed: the work was interrupted"]);
    }
}
