//! By which versions of the API applications have sent commands: `metrics.apiVersions` of `serverStatus`.
//!
//! Each connection knows when it told of a version last, and tells of it once an hour. So no command waits for another
//! one, and what an application has used within a day is known however long its connections last.

use bson::{Bson, Document};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The versions as `serverStatus` shows them: of commands without `apiVersion`, and of those that have it.
const SHOWN: [&str; 2] = ["default", "1"];
/// As long a version is shown that is not used any more, as in MongoDB; less by what a connection keeps to itself.
const SHOWN_FOR: Duration = Duration::from_secs(24 * 3600);
const TOLD_FOR: Duration = Duration::from_secs(3600);
/// Applications that are known at once. Each can give itself any name.
const NAMES_MAX: usize = 512;

/// When a connection told of each version last.
#[derive(Default)]
pub(crate) struct ToldVersions {
    /// Seconds by the monotonic clock, and one more; 0: never.
    told: [AtomicU64; SHOWN.len()],
}

impl ToldVersions {
    /// Whether a version is to be told of now, which it is taken to be then.
    fn tells(&self, version: usize, now: Duration) -> bool {
        let told = &self.told[version];
        let before = told.load(Ordering::Relaxed);
        let is_due = before == 0 || now.as_secs() + 1 >= before + TOLD_FOR.as_secs();
        if is_due {
            told.store(now.as_secs() + 1, Ordering::Relaxed);
        }
        is_due
    }

    /// What was told was told without a name.
    pub(crate) fn forget(&self) {
        self.told.iter().for_each(|told| told.store(0, Ordering::Relaxed));
    }
}

/// When each application used a version last, by the monotonic clock.
type LastUsed = [Option<Duration>; SHOWN.len()];

/// See the module.
#[derive(Default)]
pub(crate) struct ApiVersions {
    applications: Mutex<BTreeMap<String, LastUsed>>,
}

impl ApiVersions {
    /// A command was sent, with `apiVersion` or without, on the connection that `told` is of. The application's name is
    /// asked for only when the version is to be told.
    pub(crate) fn note(
        &self,
        told: &ToldVersions,
        has_version: bool,
        now: Duration,
        name: impl FnOnce() -> Option<String>,
    ) {
        let version = usize::from(has_version);
        if told.tells(version, now)
            && let Some(name) = name()
        {
            self.add(name, version, now);
        }
    }

    fn add(&self, name: String, version: usize, now: Duration) {
        // A field of a document cannot have such a name.
        if name.contains('\0') {
            return;
        }
        let mut applications = self.applications.lock();
        if applications.len() >= NAMES_MAX && !applications.contains_key(&name) {
            forget_unused(&mut applications, now);
            if applications.len() >= NAMES_MAX {
                return;
            }
        }
        // A command that took long tells of its beginning, and others may have told of a later time.
        let used = &mut applications.entry(name).or_default()[version];
        *used = (*used).max(Some(now));
    }

    /// The versions of each application.
    pub(crate) fn document(&self, now: Duration) -> Document {
        let mut applications = self.applications.lock();
        forget_unused(&mut applications, now);
        let versions = |used: &LastUsed| {
            let shown = SHOWN.iter().zip(used).filter(|(_, used)| is_shown(**used, now));
            shown.map(|(version, _)| Bson::from(*version)).collect::<Vec<_>>()
        };
        let each = applications.iter();
        each.map(|(name, used)| (name.clone(), Bson::Array(versions(used))))
            .collect()
    }
}

fn is_shown(used: Option<Duration>, now: Duration) -> bool {
    used.is_some_and(|used| now.saturating_sub(used) < SHOWN_FOR)
}

fn forget_unused(applications: &mut BTreeMap<String, LastUsed>, now: Duration) {
    applications.retain(|_, used| used.iter().any(|used| is_shown(*used, now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_applications_are_known_and_none_for_ever() {
        let versions = ApiVersions::default();
        let at = |hours: u64| Duration::from_secs(hours * 3600);
        for n in 0..2 * NAMES_MAX {
            versions.add(format!("a{n}"), 0, at(1));
        }
        versions.add("a0".to_owned(), 1, at(20));
        versions.add("no\0name".to_owned(), 0, at(20));
        assert_eq!(versions.document(at(20)).len(), NAMES_MAX);
        versions.add("late".to_owned(), 0, at(26));
        // A command that had begun long before.
        versions.add("late".to_owned(), 0, at(2));
        let shown = versions.document(at(26));
        assert_eq!(shown, bson::doc! { "a0": ["1"], "late": ["default"] });
    }

    #[test]
    fn a_connection_tells_once_an_hour() {
        let told = ToldVersions::default();
        let tells = |seconds: u64| told.tells(1, Duration::from_secs(seconds));
        assert!(tells(0) && !tells(0) && !tells(3599) && tells(3600) && !tells(3601));
        assert!(told.tells(0, Duration::ZERO), "the other version");
        told.forget();
        assert!(tells(3602));
    }
}
