//! The background threads: how they are woken and ended.

use crate::KillFlag;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Wakes and stops a background thread.
#[derive(Default)]
pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    rung: bool,
    stopped: bool,
}

impl Alarm {
    /// Ends the current [`Alarm::wait`].
    pub(crate) fn ring(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub(crate) fn is_rung(&self) -> bool {
        self.state.lock().rung
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits until rung or until `period` has passed (zero: until rung). False when the thread has to end.
    pub(crate) fn wait(&self, period: Duration) -> bool {
        let mut state = self.state.lock();
        while !state.rung && !state.stopped {
            if period.is_zero() {
                self.changed.wait(&mut state);
            } else if self.changed.wait_for(&mut state, period).timed_out() {
                break;
            }
        }
        state.rung = false;
        !state.stopped
    }
}

/// A thread that closing ends.
pub(crate) struct Thread {
    pub(crate) handle: JoinHandle<()>,
    pub(crate) alarm: Option<Arc<Alarm>>,
    pub(crate) kill: Option<Arc<KillFlag>>,
}

/// What a thread does.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Work whose thread could not be started.
pub(crate) struct Delayed {
    pub(crate) name: String,
    pub(crate) kill: Arc<KillFlag>,
    pub(crate) work: Work,
}

/// State of checkpoints and of the threads.
#[derive(Default)]
pub(crate) struct Checkpointer {
    pub(crate) alarm: Arc<Alarm>,
    /// Held during a checkpoint.
    pub(crate) running: Mutex<()>,
    /// Bytes of log since the last checkpoint that make one due; 0 before the first commit.
    pub(crate) due_bytes: AtomicU64,
    /// The last one was not taken, for want of space or of a file descriptor.
    pub(crate) is_stuck: AtomicBool,
    /// It was a descriptor that it lacked.
    pub(crate) lacks_descriptors: AtomicBool,
    /// And as much has changed since the one before as is to be held in memory: nothing more is written.
    pub(crate) is_full: AtomicBool,
    /// The last entry that the log may drop by what the last checkpoint kept, pinned or not; 0 before the first one.
    pub(crate) may_go: AtomicU64,
    /// The last entry that was published before the last checkpoint began.
    pub(crate) taken_at: AtomicU64,
    /// Of a log without room on its disk: what was told of it last.
    pub(crate) told: Mutex<(bool, u64)>,
    pub(crate) threads: Mutex<Vec<Thread>>,
    /// The system had no threads for these; it is asked again before long.
    pub(crate) delayed: Mutex<Vec<Delayed>>,
}

impl Drop for Checkpointer {
    /// A storage that was not closed leaves no threads behind. They hold no storage now, and end by themselves.
    fn drop(&mut self) {
        for thread in self.threads.get_mut() {
            if let Some(alarm) = &thread.alarm {
                alarm.stop();
            }
        }
    }
}

impl Checkpointer {
    /// A checkpoint is being taken.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_locked()
    }

    /// A checkpoint is due.
    pub(crate) fn wake(&self) {
        self.alarm.ring();
    }
}

/// When passes run.
pub(crate) struct TtlMonitor {
    pub(crate) alarm: Arc<Alarm>,
    pub(crate) kill: Arc<KillFlag>,
    sleep: Mutex<Duration>,
    enabled: AtomicBool,
    /// The settings changed: the thread woke for that, not for a pass.
    changed: AtomicBool,
}

impl TtlMonitor {
    pub(crate) fn new(sleep: Duration) -> Self {
        Self {
            alarm: Arc::default(),
            kill: Arc::default(),
            sleep: Mutex::new(sleep),
            enabled: AtomicBool::new(true),
            changed: AtomicBool::new(false),
        }
    }

    pub(crate) fn sleep(&self) -> Duration {
        *self.sleep.lock()
    }

    /// Whether the thread, awake now, shall run a pass.
    pub(crate) fn take_turn(&self) -> bool {
        !self.changed.swap(false, Ordering::AcqRel) && self.enabled.load(Ordering::Acquire)
    }

    /// Changes the time between passes.
    pub(crate) fn set_sleep(&self, sleep: Duration) {
        *self.sleep.lock() = sleep;
        self.changed.store(true, Ordering::Release);
        self.alarm.ring();
    }

    /// Switches passes on and off.
    pub(crate) fn set_enabled(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Release);
    }
}
