//! What clients' scripts may have: an operation carries it to whoever runs them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that the heap of one operation's scripts may have when nothing is set.
pub const SCRIPT_HEAP_BYTES_MAX: u64 = 1100 << 20;
/// Milliseconds that one call of a script may take when nothing is set.
pub const SCRIPT_CALL_MS_MAX: u64 = 60_000;

/// The limits of a server's scripts; they may change while it runs.
#[derive(Debug)]
pub struct ScriptLimits {
    is_enabled: AtomicBool,
    heap_bytes_max: AtomicU64,
    call_ms_max: AtomicU64,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            is_enabled: AtomicBool::new(true),
            heap_bytes_max: AtomicU64::new(SCRIPT_HEAP_BYTES_MAX),
            call_ms_max: AtomicU64::new(SCRIPT_CALL_MS_MAX),
        }
    }
}

impl ScriptLimits {
    /// Whether scripts run at all.
    pub fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Bytes that the heap of one operation's scripts may have.
    pub fn heap_bytes_max(&self) -> u64 {
        self.heap_bytes_max.load(Ordering::Relaxed)
    }

    /// Milliseconds that one call of a script may take.
    pub fn call_ms_max(&self) -> u64 {
        self.call_ms_max.load(Ordering::Relaxed)
    }

    /// No script runs any more.
    pub fn disable(&self) {
        self.is_enabled.store(false, Ordering::Relaxed);
    }

    /// Changes what the heap may have.
    pub fn set_heap_bytes_max(&self, bytes: u64) {
        self.heap_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Changes how long a call may take.
    pub fn set_call_ms_max(&self, ms: u64) {
        self.call_ms_max.store(ms, Ordering::Relaxed);
    }
}
