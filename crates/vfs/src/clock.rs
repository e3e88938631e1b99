//! Time by a handle, so that tests and the simulator own it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall and monotonic time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch (may jump).
    fn now_ms(&self) -> i64;
    /// Time since an arbitrary fixed point; never goes back.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        }
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Default)]
pub struct SimulatedClock {
    now_ms: AtomicI64,
}

impl SimulatedClock {
    /// A clock that stands at `now_ms`.
    pub fn new(now_ms: i64) -> Self {
        Self {
            now_ms: AtomicI64::new(now_ms),
        }
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.now_ms.fetch_add(by.as_millis() as i64, Ordering::SeqCst);
    }
}

impl Clock for SimulatedClock {
    fn now_ms(&self) -> i64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now_ms.load(Ordering::SeqCst).max(0) as u64)
    }
}
