//! Asks the server for its counters every second, on a thread of its own: a server that stands still must not stop the
//! clock.

use crate::connection::Connection;
use bson::{Document, rawdoc};
use report::Span;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at whether nobody wants to know any more.
const LOOK: Duration = Duration::from_millis(50);

/// The engine's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// What is in it.
    pub bytes: u64,
    /// What of that is not on disk.
    pub dirty_bytes: u64,
}

#[derive(Debug, Default)]
struct Seen {
    cache: Cache,
    /// Number of checkpoints; `None` until the server told.
    checkpoints: Option<i64>,
    /// When looks found that some had ended: how many, and how long the last of them took.
    ended: Vec<Ended>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ended {
    at: Instant,
    count: i64,
    last_took: Duration,
}

/// Ends its thread when dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    over: Arc<AtomicBool>,
}

impl Watch {
    /// Begins to ask.
    pub fn start(address: SocketAddr) -> Self {
        let (seen, over) = (Arc::default(), Arc::default());
        let watch = Self {
            seen: Arc::clone(&seen),
            over: Arc::clone(&over),
        };
        thread::spawn(move || ask(address, &seen, &over));
        watch
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }

    /// The cache as last heard of.
    pub fn cache(&self) -> Cache {
        self.seen().cache
    }

    /// The checkpoints since a moment whose times are known, of each second the last one's; `None` when the server does
    /// not tell.
    pub fn checkpoints(&self, start: Instant) -> Option<Vec<Span>> {
        let seen = self.seen();
        seen.checkpoints?;
        let spans = seen.ended.iter().filter(|ended| ended.at > start);
        Some(
            spans
                .map(|ended| Span {
                    at_seconds: ended
                        .at
                        .duration_since(start)
                        .saturating_sub(ended.last_took)
                        .as_secs_f64(),
                    seconds: ended.last_took.as_secs_f64(),
                })
                .collect(),
        )
    }

    /// How many checkpoints have ended since a moment; `None` when the server does not tell.
    pub fn checkpoint_count(&self, start: Instant) -> Option<i64> {
        let seen = self.seen();
        seen.checkpoints?;
        let ended = seen.ended.iter().filter(|ended| ended.at > start);
        Some(ended.map(|ended| ended.count).sum())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(address: SocketAddr, seen: &Mutex<Seen>, over: &AtomicBool) {
    let Ok(mut connection) = Connection::open(address) else {
        return;
    };
    while !over.load(Ordering::Relaxed) {
        let Ok(status) = connection.run("admin", &rawdoc! { "serverStatus": 1 }) else {
            return;
        };
        note(&status, Instant::now(), &mut lock(seen));
        let end = Instant::now() + INTERVAL;
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            thread::sleep(LOOK);
        }
    }
}

fn note(status: &Document, now: Instant, seen: &mut Seen) {
    let number = |path: &[&str]| -> Option<i64> {
        let (last, sections) = path.split_last()?;
        let mut document = status;
        for section in sections {
            document = document.get_document(section).ok()?;
        }
        let value = document.get(last)?;
        value
            .as_i64()
            .or_else(|| value.as_i32().map(i64::from))
            .or_else(|| value.as_f64().map(|float| float as i64))
    };
    let bytes = |name: &str| number(&["wiredTiger", "cache", name]).unwrap_or(0).max(0) as u64;
    seen.cache = Cache {
        bytes: bytes("bytes currently in the cache"),
        dirty_bytes: bytes("tracked dirty bytes in the cache"),
    };
    let count = number(&["tenon", "checkpoints", "count"])
        .or_else(|| number(&["wiredTiger", "transaction", "transaction checkpoints"]));
    let took_ms = number(&["tenon", "checkpoints", "lastMillis"])
        .or_else(|| {
            number(&[
                "wiredTiger",
                "transaction",
                "transaction checkpoint most recent time (msecs)",
            ])
        })
        .unwrap_or(0);
    if let (Some(before), Some(count)) = (seen.checkpoints, count)
        && count > before
    {
        seen.ended.push(Ended {
            at: now,
            count: count - before,
            last_took: Duration::from_millis(took_ms.max(0) as u64),
        });
    }
    seen.checkpoints = count.or(seen.checkpoints);
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn checkpoints_are_seen_when_the_count_rises() {
        let mut seen = Seen::default();
        let start = Instant::now();
        let status = |count: i64| doc! { "tenon": { "checkpoints": { "count": count, "lastMillis": 250_i64 } } };
        for (second, count) in [(1, 3), (2, 3), (3, 7), (4, 7)] {
            note(&status(count), start + Duration::from_secs(second), &mut seen);
        }
        let watch = Watch {
            seen: Arc::new(Mutex::new(seen)),
            over: Arc::default(),
        };
        let spans = watch.checkpoints(start).expect("the server tells");
        assert_eq!(
            spans,
            [Span {
                at_seconds: 2.75,
                seconds: 0.25
            }]
        );
        // Four of them, though only the last one's time is known.
        assert_eq!(watch.checkpoint_count(start), Some(4));
        assert_eq!(watch.checkpoint_count(start + Duration::from_secs(3)), Some(0));
    }

    #[test]
    fn a_server_that_does_not_tell_has_no_list() {
        let mut seen = Seen::default();
        note(
            &doc! { "ok": 1.0, "wiredTiger": { "cache": { "bytes currently in the cache": 7_i32 } } },
            Instant::now(),
            &mut seen,
        );
        assert_eq!((seen.checkpoints, seen.cache.bytes), (None, 7));
    }
}
