//! Counts of lock acquisitions for `serverStatus.locks`.
//!
//! Only collection locks are counted as they happen, in stripes so that threads do not share a cache line. The levels
//! above follow from them: intent modes on `Global` and `Database` conflict with nothing that Tenon takes there.

use crate::LockMode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const STRIPES: usize = 8;

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    acquired: [AtomicU64; 4],
}

/// The counters.
#[derive(Default)]
pub struct LockCounts {
    stripes: [Stripe; STRIPES],
    waits: [AtomicU64; 4],
    wait_us: [AtomicU64; 4],
    definitions: AtomicU64,
}

impl LockCounts {
    /// One acquisition by the operation numbered `operation`.
    pub fn acquired(&self, operation: u32, mode: LockMode, waited: Option<Duration>) {
        self.stripes[operation as usize % STRIPES].acquired[mode as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(waited) = waited {
            self.waits[mode as usize].fetch_add(1, Ordering::Relaxed);
            self.wait_us[mode as usize].fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// A data-definition operation had its turn: shown as an exclusive database lock.
    pub fn definition(&self) {
        self.definitions.fetch_add(1, Ordering::Relaxed);
    }

    /// The figures now.
    pub fn snapshot(&self) -> LockStats {
        let mut collection = LevelStats::default();
        for (mode, stats) in collection.modes.iter_mut().enumerate() {
            stats.acquire_count = self
                .stripes
                .iter()
                .map(|stripe| stripe.acquired[mode].load(Ordering::Relaxed))
                .sum();
            stats.acquire_wait_count = self.waits[mode].load(Ordering::Relaxed);
            stats.time_acquiring_us = self.wait_us[mode].load(Ordering::Relaxed);
        }
        let [r, w, shared, exclusive] = collection.modes.map(|stats| stats.acquire_count);
        let definitions = self.definitions.load(Ordering::Relaxed);
        let count = |acquire_count| ModeStats {
            acquire_count,
            ..ModeStats::default()
        };
        let global = LevelStats {
            modes: [
                count(r + shared),
                count(w + exclusive + definitions),
                count(0),
                count(0),
            ],
        };
        let mut database = global.clone();
        database.modes[1] = count(w + exclusive);
        database.modes[3] = count(definitions);
        LockStats {
            global,
            database,
            collection,
        }
    }
}

/// Acquisitions in one mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeStats {
    /// `acquireCount`.
    pub acquire_count: u64,
    /// `acquireWaitCount`.
    pub acquire_wait_count: u64,
    /// `timeAcquiringMicros`.
    pub time_acquiring_us: u64,
}

/// Acquisitions at one level, by [`LockMode`] in its order: `r w R W`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// See the type.
    pub modes: [ModeStats; 4],
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockStats {
    /// `Global`.
    pub global: LevelStats,
    /// `Database`.
    pub database: LevelStats,
    /// `Collection`.
    pub collection: LevelStats,
}
