//! A figure that commands add to.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that only grows.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        // Most operations have nothing to add to most counters, and an atomic addition is dear.
        if amount > 0 {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// Its value.
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed) as i64
    }
}
