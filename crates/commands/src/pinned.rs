//! Reads of one moment outside of transactions (`readConcern: {level: "snapshot"}`): a session's reads name the time
//! that its first one was told. So that they find it, states that were read are kept for a while.

use crate::error::{CommandError, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use storage::{AppliedPoint, ClusterTime, PinnedView, Seq, Storage};
use wire::ErrorCode;

/// A state is kept for so long after it was last asked for, as for MongoDB's `minSnapshotHistoryWindowInSeconds`. What
/// history that keeps in the engine's memory is bounded there.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// Attempts to take a state while nothing is written. After them the state may show a write that is later than its
/// time.
const TRIES_MAX: u32 = 1000;
/// More states are not kept; the one that was not asked for longest goes.
const KEPT_MAX: usize = 4096;

/// A state of all data.
#[derive(Clone)]
pub struct PinnedState {
    /// What is read.
    pub view: PinnedView,
    /// The time by which clients name it.
    pub time: ClusterTime,
}

/// Those that are kept.
#[derive(Default)]
pub struct PinnedStates {
    states: Mutex<Kept<PinnedView>>,
}

/// Views by their time, and when each was last asked for.
struct Kept<V>(BTreeMap<ClusterTime, (V, Duration)>);

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V: Clone> Kept<V> {
    fn get(&mut self, time: ClusterTime, now: Duration) -> Option<V> {
        let (view, used) = self.0.get_mut(&time)?;
        *used = now;
        Some(view.clone())
    }

    fn keep(&mut self, time: ClusterTime, view: V, now: Duration) {
        if self.0.len() >= KEPT_MAX {
            let unused = self.0.iter().min_by_key(|(time, (_, used))| (*used, **time));
            let unused = unused.map(|(time, _)| *time);
            unused.and_then(|time| self.0.remove(&time));
        }
        self.0.insert(time, (view, now));
    }

    fn expire(&mut self, now: Duration) {
        self.0.retain(|_, (_, used)| now.saturating_sub(*used) < KEPT_FOR);
    }
}

impl PinnedStates {
    /// The state of a time that was told to a client, or the newest one.
    ///
    /// # Errors
    /// `SnapshotTooOld`, when it is not kept any more; `InvalidOptions` for a time to come.
    pub fn at(&self, storage: &Storage, time: Option<ClusterTime>, now: Duration) -> Result<PinnedState> {
        let mut states = self.states.lock();
        let newest = storage.newest().time;
        let asked = time;
        let time = asked.unwrap_or(newest);
        if time > newest {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                "readConcern atClusterTime value must not be greater than the current clusterTime",
            ));
        }
        if let Some(view) = states.get(time, now) {
            return Ok(PinnedState { view, time });
        }
        let read = || {
            let view = storage.read_pinned()?;
            let seq = view.seq();
            Ok((view, seq))
        };
        let (view, time) = newest_state(asked, || storage.newest(), read)?;
        states.keep(time, view.clone(), now);
        Ok(PinnedState { view, time })
    }

    /// Gives up what nobody has asked for in a while.
    pub fn expire(&self, now: Duration) {
        self.states.lock().expire(now);
    }
}

/// The newest state, which must be that of the time that was asked for, and its time: between two looks at which state
/// that is, as long as others write. What is read may be a state that is not told of yet.
fn newest_state<V>(
    asked: Option<ClusterTime>,
    newest: impl Fn() -> AppliedPoint,
    read: impl Fn() -> Result<(V, Seq)>,
) -> Result<(V, ClusterTime)> {
    let mut tries = 0;
    loop {
        let before = newest();
        let is_over = tries == TRIES_MAX && asked.is_some();
        if is_over || asked.is_some_and(|asked| asked != before.time) {
            return Err(CommandError::new(
                ErrorCode::SnapshotTooOld,
                "Read timestamp is older than the oldest available timestamp",
            ));
        }
        let (view, seq) = read()?;
        tries += 1;
        if tries % 16 == 0 {
            // Whoever tells of the state that is read already may not run just now.
            std::thread::yield_now();
        }
        let is_told_of = seq <= before.seq && newest() == before;
        if is_told_of || asked.is_none() && tries == TRIES_MAX {
            return Ok((view, before.time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A session that went on reading its moment lost it to 64 others, as the earliest moment went.
    #[test]
    fn who_goes_on_reading_a_moment_keeps_it_however_many_others_are_read() {
        let mut kept = Kept::default();
        let at = Duration::from_millis;
        kept.keep(ClusterTime(1), "first", at(0));
        for other in 2..3 * KEPT_MAX as u64 {
            kept.keep(ClusterTime(other), "other", at(other));
            assert_eq!(kept.get(ClusterTime(1), at(other)), Some("first"));
            assert!(kept.0.len() <= KEPT_MAX);
        }
        assert_eq!(kept.get(ClusterTime(2), at(0)), None);
        let last = at(3 * KEPT_MAX as u64) + KEPT_FOR;
        kept.get(ClusterTime(1), last);
        kept.expire(last + at(1));
        assert_eq!(kept.0.len(), 1);
    }

    /// Whoever asked for a time while others wrote got a later state.
    #[test]
    fn a_time_that_is_asked_for_is_that_of_no_later_state() {
        let at = |time| AppliedPoint {
            seq: Seq(time),
            time: ClusterTime(time),
        };
        // What is newest at each look, and what is read between two of them.
        let take_reading = |asked: Option<u64>, looks: &[u64], read: &dyn Fn(usize) -> u64| {
            let look = Cell::new(0);
            let newest = || {
                look.set(look.get() + 1);
                at(looks[look.get() - 1])
            };
            let read = || Ok((look.get(), Seq(read(look.get()))));
            newest_state(asked.map(ClusterTime), newest, read)
        };
        let take = |asked, looks: &[u64]| take_reading(asked, looks, &|look| looks[look - 1]);
        assert_eq!(take(Some(1), &[1, 1]).unwrap(), (1, ClusterTime(1)));
        for later in [&[2, 2][..], &[1, 2, 2, 2]] {
            assert_eq!(take(Some(1), later).unwrap_err().code, ErrorCode::SnapshotTooOld);
        }
        assert_eq!(take(None, &[1, 2, 2, 2]).unwrap(), (3, ClusterTime(2)));
        // The state is there a moment before its time is told.
        let early = |_| 2;
        let refused = take_reading(Some(1), &[1, 2, 2], &early);
        assert_eq!(refused.unwrap_err().code, ErrorCode::SnapshotTooOld);
        assert_eq!(take_reading(None, &[1, 2, 2], &early).unwrap(), (2, ClusterTime(2)));
    }
}
