//! Threads in the background that flush, and the back-pressure on writers when they fall behind.
//!
//! Writers owe time for what they wrote: as much as flushing it takes by the pace measured, times how far the
//! memory for messages has filled up beyond where flushing begins. The debt is paid when it has come to a
//! millisecond, at most five at a time. Only where all memory is taken do writers wait for some to come back,
//! in steps of ten milliseconds at most.

use crate::core::{Core, count};
use crate::flush::{flush_above, flush_down};
use crate::sink::sink_all;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const STEP: Duration = Duration::from_millis(10);
const DELAY_MAX_NS: u64 = 5_000_000;
const DEBT_MIN_NS: u64 = 1_000_000;
/// Bytes a second that are taken to be flushed before it was measured.
const PACE_START: u64 = 16 << 20;

#[derive(Default)]
struct Signals {
    /// There may be something to flush.
    has_work: bool,
    is_closing: bool,
}

/// Shared by the threads and the engine.
pub(crate) struct Shared {
    core: Arc<Core>,
    signals: Mutex<Signals>,
    work: Condvar,
    /// Memory came back.
    room: Condvar,
    room_lock: Mutex<()>,
    /// Bytes written since the last time a writer was asked to wait.
    unpaid_bytes: AtomicU64,
    debt_ns: AtomicU64,
    /// Bytes a second, as measured.
    pace: AtomicU64,
}

/// See the module.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    count: usize,
}

impl Workers {
    pub(crate) fn start(core: Arc<Core>) -> std::io::Result<Self> {
        let count = core.options.threads.unwrap_or_else(|| {
            let processors = std::thread::available_parallelism().map_or(2, usize::from);
            (processors / 2 + 1).min(8)
        });
        let shared = Arc::new(Shared {
            core,
            signals: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            room_lock: Mutex::new(()),
            unpaid_bytes: AtomicU64::new(0),
            debt_ns: AtomicU64::new(0),
            pace: AtomicU64::new(PACE_START),
        });
        if count > 0 {
            let threads = Arc::downgrade(&shared);
            let wake = move || {
                if let Some(threads) = threads.upgrade() {
                    threads.wake();
                }
            };
            // Once for each engine.
            let _ = shared.core.wake.set(Box::new(wake));
        }
        let workers = Self {
            shared,
            threads: Mutex::default(),
            count,
        };
        for number in 0..count {
            let shared = workers.shared.clone();
            let builder = std::thread::Builder::new().name(format!("betree-{number}"));
            // Those that run end when `workers` is dropped.
            let thread = builder.spawn(move || shared.run())?;
            workers.threads.lock().push(thread);
        }
        Ok(workers)
    }

    /// Threads for work that can be shared out.
    pub(crate) fn parallel(&self) -> usize {
        self.count.max(1)
    }

    /// After a batch of so many bytes.
    pub(crate) fn note_batch(&self, bytes: u64, is_urgent: bool) {
        let core = &self.shared.core;
        // Readers wake the threads by themselves.
        let is_urgent = is_urgent || self.count == 0 && !core.sinking.lock().is_empty();
        if core.held.bytes() <= flush_above(core) && !is_urgent {
            return;
        }
        self.shared.unpaid_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.flush_soon();
    }

    /// Has the memory looked at.
    pub(crate) fn flush_soon(&self) {
        match self.count {
            0 => {
                flush_down(&self.shared.core);
                sink_all(&self.shared.core);
            }
            _ => self.shared.wake(),
        }
    }

    /// See [`engine::Engine::throttle`].
    pub(crate) fn throttle(&self) -> bool {
        let shared = &*self.shared;
        let core = &shared.core;
        let (held, start, most) = (core.flushable_bytes(), flush_above(core), core.options.messages_bytes());
        if held <= start || self.count == 0 || !core.status.is_running() || core.is_disk_full.load(Ordering::Acquire) {
            shared.debt_ns.store(0, Ordering::Relaxed);
            return true;
        }
        let since = core.clock.monotonic();
        let goes_on = if held >= most {
            // Those that went to sleep may not have been able to flush it then; nobody writes who would wake them.
            shared.wake();
            shared.wait_for_room(STEP);
            core.flushable_bytes() < most
        } else {
            let bytes = shared.unpaid_bytes.swap(0, Ordering::Relaxed);
            let fill = (held - start) * 1024 / (most - start).max(1);
            let pace = shared.pace.load(Ordering::Relaxed).max(1);
            let owed = u128::from(bytes) * 1_000_000_000 / u128::from(pace) * u128::from(fill) * 2 / 1024;
            let debt = shared.debt_ns.fetch_add(owed as u64, Ordering::Relaxed) + owed as u64;
            if debt < DEBT_MIN_NS {
                return true;
            }
            shared.debt_ns.store(0, Ordering::Relaxed);
            shared.wait_for_room(Duration::from_nanos(debt.min(DELAY_MAX_NS)));
            true
        };
        let waited = core.clock.monotonic().saturating_sub(since);
        count(&core.counters.throttled_us, waited.as_micros() as u64);
        goes_on
    }

    /// Ends the threads; what they are at is done first.
    pub(crate) fn close(&self) {
        self.shared.signals.lock().is_closing = true;
        self.shared.work.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // A panic in it was printed, and what it held stays as it was.
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        loop {
            {
                let mut signals = self.signals.lock();
                while !signals.has_work && !signals.is_closing {
                    self.work.wait(&mut signals);
                }
                if signals.is_closing {
                    return;
                }
                signals.has_work = false;
            }
            let before = self.core.held.bytes();
            let since = self.core.clock.monotonic();
            flush_down(&self.core);
            let flushed = before.saturating_sub(self.core.held.bytes());
            let took = self.core.clock.monotonic().saturating_sub(since);
            if flushed > 0 && !took.is_zero() {
                let pace = (flushed as f64 / took.as_secs_f64()) as u64;
                let old = self.pace.load(Ordering::Relaxed);
                self.pace.store((old * 3 + pace) / 4, Ordering::Relaxed);
            }
            {
                let _lock = self.room_lock.lock();
                self.room.notify_all();
            }
            // Memory first: what readers pass only takes time. And what this takes is none of the pace of flushes.
            sink_all(&self.core);
        }
    }

    fn wake(&self) {
        let mut signals = self.signals.lock();
        if !signals.has_work {
            signals.has_work = true;
            self.work.notify_all();
        }
    }

    fn wait_for_room(&self, most: Duration) {
        let mut lock = self.room_lock.lock();
        self.room.wait_for(&mut lock, most);
    }
}
