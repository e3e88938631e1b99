//! The thread that waits for the disk, so that a leader's entries are on their way to others meanwhile. Now and then it
//! writes down how much of the log is known to stay: a member that comes back without the others shows so much.

use crate::background::Alarm;
use crate::limits::FULL_DISK_PAUSE;
use crate::storage::Storage;
use crate::voter::{Event, Inbox};
use engine::Seq;
use oplog::LogError;
use parking_lot::Mutex;
use repl::Unsynced;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is known to stay is noted so often while something waits for the disk, which the note then goes with, and
/// otherwise after the longer time, with a sync of its own.
const NOTE_COMMIT_EVERY: Duration = Duration::from_millis(100);
const NOTE_COMMIT_WITHIN: Duration = Duration::from_secs(1);

/// What waits for the disk.
#[derive(Default)]
pub(crate) struct Unwritten {
    pub(crate) waiting: Mutex<Vec<(Seq, Unsynced)>>,
    pub(crate) alarm: Arc<Alarm>,
}

pub(crate) fn sync(storage: &Storage, unwritten: &Unwritten, inbox: &Inbox) {
    let clock = storage.env.clock.clone();
    let mut noted = clock.monotonic();
    while unwritten.alarm.wait(NOTE_COMMIT_EVERY) {
        loop {
            let waiting = std::mem::take(&mut *unwritten.waiting.lock());
            let now = clock.monotonic();
            let pause = match waiting.is_empty() {
                true => NOTE_COMMIT_WITHIN,
                false => NOTE_COMMIT_EVERY,
            };
            if now.saturating_sub(noted) >= pause {
                noted = now;
                match storage.note_commit() {
                    Ok(()) => {}
                    // It is waited for below, where somebody waits for the disk.
                    Err(error) if error.passes() => {}
                    Err(error) => {
                        storage.log_error(error);
                        return;
                    }
                }
            }
            let Some(last) = waiting.iter().map(|(seq, _)| *seq).max() else {
                break;
            };
            match storage.log.wait_durable(last) {
                Ok(()) => {}
                // Taken back meanwhile, which is on disk.
                Err(LogError::Truncated { .. } | LogError::NotAppended { .. }) => {}
                Err(error) if error.passes() => {
                    unwritten.waiting.lock().splice(0..0, waiting);
                    if !unwritten.alarm.wait(FULL_DISK_PAUSE) {
                        return;
                    }
                    continue;
                }
                Err(error) => {
                    storage.log_error(error);
                    return;
                }
            }
            let events = waiting.into_iter().map(|(_, unsynced)| Event::Persisted(unsynced));
            inbox.events.lock().extend(events);
            inbox.alarm.ring();
        }
    }
}

impl Storage {
    /// Writes down how much of the log is known to stay, unless the log is to be left as it is.
    fn note_commit(&self) -> Result<(), LogError> {
        let _noting = self.noting_commit.lock();
        if self.keeps_log_still() {
            return Ok(());
        }
        let committed = Seq(self.pipeline.committed.load(Ordering::Acquire));
        self.log.write_commit(committed.min(self.log.durable_seq()))
    }
}
