//! Background threads with a queue of jobs.
//!
//! There are two crews. The *lively* one runs at the usual priority and takes urgent jobs, for which somebody waits.
//! The *quiet* one takes background jobs and runs at the lowest priority (nice 19). When the engine falls behind
//! ([`Workers::set_pressure`]) the lively crew takes the background jobs over and the quiet one rests: a thread without
//! privileges can lower its priority but not raise it, so it is the job that changes threads and not the thread its
//! priority.
//!
//! With no threads nothing runs by itself: [`Workers::run_one`] steps the queue on the caller's thread, in an order
//! that depends on nothing but what was submitted.
//!
//! A job that panics poisons the pool: queued jobs are dropped, later calls report the panic's message.
//!
//! Invariants: a job runs at most once, and never under the pool's lock. Urgent jobs start in the order of their
//! submission, background jobs likewise, urgent ones first where one thread takes both.

use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// After a job, at most: others may free what they gave up all the time.
const FLUSHES_BEFORE_REST: usize = 32;
/// Of these in a row that free nothing the last does none either: what was given up last is freed by the third at the
/// latest where nobody reads.
const FLUSHES_IN_VAIN: usize = 3;

/// What runs.
type Task = Box<dyn FnOnce() + Send>;

/// Who waits for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Somebody: it runs before all background jobs, at the usual priority.
    Urgent,
    /// Nobody yet.
    Background,
}

/// Why a job was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorkersError {
    /// After [`Workers::close`].
    #[error("the background threads have stopped")]
    Closed,
    /// A job panicked.
    #[error("a background job failed: {message}")]
    Poisoned {
        /// What it said.
        message: Arc<str>,
    },
}

/// See the module.
pub(crate) struct Workers {
    shared: Arc<Pool>,
    /// Threads of each crew.
    crew_size: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Pool {
    state: Mutex<PoolState>,
    lively_wake: Condvar,
    quiet_wake: Condvar,
    /// Nothing is queued and nothing runs.
    idle: Condvar,
}

#[derive(Default)]
struct PoolState {
    urgent: VecDeque<Task>,
    background: VecDeque<Task>,
    running: usize,
    pressure: bool,
    is_closed: bool,
    poison: Option<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Crew {
    Lively,
    Quiet,
}

impl Workers {
    /// The number of threads for this machine: one for four processors.
    pub(crate) fn default_threads() -> usize {
        (thread::available_parallelism().map_or(1, |cores| cores.get()) / 4).max(1)
    }

    /// Starts `threads` threads of each crew; `None` takes [`Workers::default_threads`], 0 is for steps by hand.
    pub(crate) fn start(threads: Option<usize>) -> std::io::Result<Self> {
        let crew_size = threads.unwrap_or_else(Self::default_threads);
        let workers = Self {
            shared: Arc::new(Pool {
                state: Mutex::default(),
                lively_wake: Condvar::new(),
                quiet_wake: Condvar::new(),
                idle: Condvar::new(),
            }),
            crew_size,
            threads: Mutex::default(),
        };
        for (crew, name) in [(Crew::Lively, "btree-urgent"), (Crew::Quiet, "btree-quiet")] {
            for _ in 0..crew_size {
                let shared = workers.shared.clone();
                // When a thread cannot start, `drop` stops those that did.
                let handle = thread::Builder::new()
                    .name(name.into())
                    .spawn(move || shared.work(crew))?;
                workers.threads.lock().push(handle);
            }
        }
        Ok(workers)
    }

    /// Threads of each crew; 0 when the queue is stepped by hand.
    pub(crate) fn threads(&self) -> usize {
        self.crew_size
    }

    /// Puts a job into the queue.
    pub(crate) fn submit(&self, class: Class, job: impl FnOnce() + Send + 'static) -> Result<(), WorkersError> {
        let mut state = self.shared.state.lock();
        state.check()?;
        match class {
            Class::Urgent => state.urgent.push_back(Box::new(job)),
            Class::Background => state.background.push_back(Box::new(job)),
        }
        match (class, state.pressure) {
            (Class::Background, false) => self.shared.quiet_wake.notify_one(),
            _ => self.shared.lively_wake.notify_one(),
        };
        Ok(())
    }

    /// Tells whether the engine falls behind. True from when it does until it is said that it does no more.
    pub(crate) fn set_pressure(&self, pressure: bool) {
        let mut state = self.shared.state.lock();
        if state.pressure != pressure {
            state.pressure = pressure;
            let taking_over = if pressure {
                &self.shared.lively_wake
            } else {
                &self.shared.quiet_wake
            };
            taking_over.notify_all();
        }
    }

    /// Jobs that have not begun.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.shared.state.lock().queued()
    }

    /// An error after a panic or [`Workers::close`].
    pub(crate) fn check(&self) -> Result<(), WorkersError> {
        self.shared.state.lock().check()
    }

    /// Runs the next job on the caller's thread. False when there is none.
    pub(crate) fn run_one(&self) -> Result<bool, WorkersError> {
        let job = {
            let mut state = self.shared.state.lock();
            state.check()?;
            state.take_any()
        };
        let Some(job) = job else { return Ok(false) };
        self.shared.run(job);
        self.check().map(|()| true)
    }

    /// Returns when nothing is queued and nothing runs. Without threads the caller runs what is queued. Not for jobs:
    /// one would wait for itself.
    pub(crate) fn drain(&self) -> Result<(), WorkersError> {
        while self.crew_size == 0 && self.run_one()? {}
        let mut state = self.shared.state.lock();
        loop {
            state.check()?;
            if state.running == 0 && state.queued() == 0 {
                return Ok(());
            }
            self.shared.idle.wait(&mut state);
        }
    }

    /// Calls `work` with each item, on the caller's thread and on as many as a crew has, at the priority of `class`;
    /// the caller keeps its own. Returns when all are done. Items begin in order; after an error none begins, and the
    /// first error is returned.
    pub(crate) fn for_each<T, E>(
        &self,
        class: Class,
        items: Vec<T>,
        work: impl Fn(T) -> Result<(), E> + Sync,
    ) -> Result<(), E>
    where
        T: Send,
        E: From<WorkersError> + Send,
    {
        self.check()?;
        let helpers = self.crew_size.min(items.len().saturating_sub(1));
        let items = Mutex::new(items.into_iter());
        let failure = Mutex::new(None);
        let take_part = || {
            while failure.lock().is_none() {
                let next = items.lock().next();
                let Some(item) = next else { return };
                let done = match catch_unwind(AssertUnwindSafe(|| work(item))) {
                    Ok(done) => done,
                    Err(panic) => Err(self.shared.poison(&*panic).into()),
                };
                if let Err(error) = done {
                    failure.lock().get_or_insert(error);
                }
            }
        };
        // Threads of their own: only they may borrow from the caller. One costs some ten microseconds.
        thread::scope(|scope| {
            for _ in 0..helpers {
                let help = || {
                    if class == Class::Background && !self.shared.state.lock().pressure {
                        become_quiet();
                    }
                    take_part();
                    rcu::pin().flush();
                };
                let name = "btree-helper".into();
                // One that cannot start is not missed: the caller takes all that is left.
                let _ = thread::Builder::new().name(name).spawn_scoped(scope, help);
            }
            take_part();
        });
        failure.into_inner().map_or(Ok(()), Err)
    }

    /// Drops what is queued, lets what runs finish, and ends the threads. Again it does nothing.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            state.clear()
        };
        // Outside the lock: a job may own what locks it again.
        drop(dropped);
        self.shared.notify_everyone();
        let threads = std::mem::take(&mut *self.threads.lock());
        for handle in threads {
            // A job that drops the last handle of the engine closes the pool from inside.
            if handle.thread().id() != thread::current().id() {
                handle.join().expect("a worker catches its jobs' panics");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

impl PoolState {
    fn check(&self) -> Result<(), WorkersError> {
        match &self.poison {
            Some(message) => Err(WorkersError::Poisoned {
                message: message.clone(),
            }),
            None if self.is_closed => Err(WorkersError::Closed),
            None => Ok(()),
        }
    }

    fn queued(&self) -> usize {
        self.urgent.len() + self.background.len()
    }

    /// Empties the queue.
    fn clear(&mut self) -> (VecDeque<Task>, VecDeque<Task>) {
        (std::mem::take(&mut self.urgent), std::mem::take(&mut self.background))
    }

    fn take_any(&mut self) -> Option<Task> {
        let job = self.urgent.pop_front().or_else(|| self.background.pop_front())?;
        self.running += 1;
        Some(job)
    }

    fn take(&mut self, crew: Crew) -> Option<Task> {
        match (crew, self.pressure) {
            (Crew::Lively, true) => self.take_any(),
            (Crew::Lively, false) => {
                let job = self.urgent.pop_front()?;
                self.running += 1;
                Some(job)
            }
            (Crew::Quiet, true) => None,
            (Crew::Quiet, false) => {
                let job = self.background.pop_front()?;
                self.running += 1;
                Some(job)
            }
        }
    }
}

impl Pool {
    /// A thread's life.
    fn work(&self, crew: Crew) {
        let wake = match crew {
            Crew::Lively => &self.lively_wake,
            Crew::Quiet => {
                become_quiet();
                &self.quiet_wake
            }
        };
        loop {
            let job = {
                let mut state = self.state.lock();
                loop {
                    if state.is_closed {
                        return;
                    }
                    if let Some(job) = state.take(crew) {
                        break job;
                    }
                    wake.wait(&mut state);
                }
            };
            self.run(job);
        }
    }

    /// Runs a job that `take` counted.
    fn run(&self, job: Task) {
        let outcome = catch_unwind(AssertUnwindSafe(job));
        if let Err(panic) = outcome {
            self.poison(&*panic);
        }
        // A thread that rests would keep what its job gave up, blocks of large values among it; and what is freed gives
        // up more in turn.
        let (mut freed, mut in_vain) = (rcu::waiting().freed, 0);
        for _ in 0..FLUSHES_BEFORE_REST {
            rcu::pin().flush();
            let now = rcu::waiting().freed;
            in_vain = if now == freed { in_vain + 1 } else { 0 };
            if in_vain == FLUSHES_IN_VAIN {
                break;
            }
            freed = now;
        }
        let mut state = self.state.lock();
        state.running -= 1;
        if state.running == 0 && state.queued() == 0 {
            self.idle.notify_all();
        }
    }

    fn poison(&self, panic: &(dyn Any + Send)) -> WorkersError {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let (message, dropped) = {
            let mut state = self.state.lock();
            let message = state
                .poison
                .get_or_insert_with(|| text.unwrap_or("a panic without text").into());
            (message.clone(), state.clear())
        };
        drop(dropped);
        self.notify_everyone();
        WorkersError::Poisoned { message }
    }

    fn notify_everyone(&self) {
        // Under the lock, so that nobody is between its look at the state and its wait.
        let _state = self.state.lock();
        self.lively_wake.notify_all();
        self.quiet_wake.notify_all();
        self.idle.notify_all();
    }
}

/// The lowest priority at which a thread that could run does so every now and then.
#[cfg(target_os = "linux")]
const QUIET_NICE: i32 = 19;

/// Gives way to others from now on; for good. Not `SCHED_IDLE`: background jobs take latches of leaves and trees for
/// moments, and whoever is about to commit waits for them. One that was preempted then must get a processor again soon,
/// however busy they are.
fn become_quiet() {
    // On Linux a priority is a thread's. Where this is refused the thread stays as it is.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), QUIET_NICE);
}

#[cfg(test)]
mod tests;
