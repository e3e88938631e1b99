//! Which operations are written to `system.profile`, database by database. As in MongoDB this is forgotten when the
//! server ends, but for the level that all databases begin with (`operationProfiling.mode`).

use bson::Document;
use parking_lot::RwLock;
use query::matcher::Matcher;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The collection's name in each database.
pub const COLLECTION: &str = "system.profile";
/// Its size when nobody has made it: what MongoDB's has.
pub const BYTES: i64 = 1 << 20;
/// What it may have on a member of a replica set, where it is in memory.
pub const LOCAL_BYTES_MAX: u64 = 64 << 20;

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProfilingLevel {
    /// Nothing.
    #[default]
    Off,
    /// Slow operations, or those that the filter finds.
    Slow,
    /// All.
    All,
}

impl ProfilingLevel {
    /// As `profile` has it.
    pub fn of_number(number: i64) -> Option<Self> {
        [Self::Off, Self::Slow, Self::All]
            .into_iter()
            .nth(usize::try_from(number).ok()?)
    }
}

/// A filter in the place of `slowms` and `sampleRate`.
pub struct ProfileFilter {
    /// As it was given.
    pub document: Document,
    /// The same, parsed.
    pub matcher: Matcher,
}

/// What a database's operations are asked.
#[derive(Clone, Default)]
pub struct Setting {
    /// How many are written.
    pub level: ProfilingLevel,
    /// Instead of their time.
    pub filter: Option<Arc<ProfileFilter>>,
}

/// See the module.
pub struct Profiler {
    /// Of databases that have not been asked anything.
    default: ProfilingLevel,
    databases: RwLock<HashMap<String, Setting>>,
    /// Something is asked somewhere: the lock is for servers where it is so.
    is_used: AtomicBool,
    /// The part of the slow operations that is written, as bits of a number from 0 to 1.
    sample_rate: AtomicU64,
}

impl Profiler {
    /// With the level that all databases begin with, and the share of slow operations that is told.
    pub fn new(default: ProfilingLevel, sample_rate: f64) -> Self {
        Self {
            default,
            databases: RwLock::default(),
            is_used: AtomicBool::new(default != ProfilingLevel::Off),
            sample_rate: AtomicU64::new(sample_rate.to_bits()),
        }
    }

    /// Of a database.
    pub fn get(&self, database: &str) -> Setting {
        if !self.is_used.load(Ordering::Relaxed) {
            return Setting::default();
        }
        let asked = self.databases.read().get(database).cloned();
        asked.unwrap_or_else(|| self.at_start(database))
    }

    /// Of a database that has not been asked anything.
    fn at_start(&self, database: &str) -> Setting {
        Setting {
            level: if database == "local" {
                ProfilingLevel::Off
            } else {
                self.default
            },
            filter: None,
        }
    }

    /// Changes what is asked, from what it is by then.
    pub fn update(&self, database: &str, change: impl FnOnce(&mut Setting)) {
        let mut databases = self.databases.write();
        let mut setting = match databases.get(database) {
            Some(asked) => asked.clone(),
            None => self.at_start(database),
        };
        change(&mut setting);
        match setting.filter.is_none() && setting.level == self.at_start(database).level {
            true => drop(databases.remove(database)),
            false => drop(databases.insert(database.to_owned(), setting)),
        }
        let is_used = self.default != ProfilingLevel::Off || !databases.is_empty();
        self.is_used.store(is_used, Ordering::Relaxed);
    }

    /// `sampleRate`.
    pub fn sample_rate(&self) -> f64 {
        f64::from_bits(self.sample_rate.load(Ordering::Relaxed))
    }

    /// Sets `sampleRate`.
    pub fn set_sample_rate(&self, rate: f64) {
        self.sample_rate.store(rate.to_bits(), Ordering::Relaxed);
    }
}
