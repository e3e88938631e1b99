//! Which operations are written to `system.profile`, database by database. As in MongoDB this is forgotten when the
//! server ends.

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

/// What is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Nothing.
    #[default]
    Off,
    /// Slow operations, or those that the filter finds.
    Slow,
    /// All.
    All,
}

impl Level {
    /// As commands have it.
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
    pub level: Level,
    /// Instead of their time.
    pub filter: Option<Arc<ProfileFilter>>,
}

/// See the module.
pub struct Profiler {
    databases: RwLock<HashMap<String, Setting>>,
    /// There is one: the lock is for servers that are asked for something.
    is_used: AtomicBool,
    /// The part of the slow operations that is written, as bits of a number from 0 to 1.
    sample_rate: AtomicU64,
}

impl Default for Profiler {
    fn default() -> Self {
        Self {
            databases: RwLock::default(),
            is_used: AtomicBool::new(false),
            sample_rate: AtomicU64::new(1.0_f64.to_bits()),
        }
    }
}

impl Profiler {
    /// Of a database.
    pub fn get(&self, database: &str) -> Setting {
        if !self.is_used.load(Ordering::Relaxed) {
            return Setting::default();
        }
        self.databases.read().get(database).cloned().unwrap_or_default()
    }

    /// Changes what is asked.
    pub fn set(&self, database: &str, setting: Setting) {
        let mut databases = self.databases.write();
        match (setting.level, &setting.filter) {
            (Level::Off, None) => drop(databases.remove(database)),
            _ => drop(databases.insert(database.to_owned(), setting)),
        }
        self.is_used.store(!databases.is_empty(), Ordering::Relaxed);
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
