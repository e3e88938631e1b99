//! Reads of one moment outside of transactions (`readConcern: {level: "snapshot"}`): a session's reads name the time
//! that its first one was told. So that they find it, states that were read are kept for a while.

use crate::error::{CommandError, Result};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use storage::{AppliedPoint, ClusterTime, PinnedView, Seq, Storage};
use wire::ErrorCode;

/// A state that was asked for by its time is kept for so long after that, as for MongoDB's
/// `minSnapshotHistoryWindowInSeconds`. Engines that end snapshots bound what history that keeps in memory.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The same for one that nobody has asked for by its time: most reads of one moment are the only ones of it.
const KEPT_AT_FIRST_FOR: Duration = Duration::from_secs(60);
/// Attempts to take a state while nothing is written. After them the state may show a write that is later than its
/// time.
const TRIES_MAX: u32 = 1000;
/// More states are not kept; the one goes that would go first. Rows that are written between two of them have a version
/// for each, which every write of the row looks at.
const KEPT_MAX: usize = 512;

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

/// Views by their time, and until when each is kept.
struct Kept<V> {
    states: BTreeMap<ClusterTime, (V, Duration)>,
    /// The same times, in the order in which they go.
    order: BTreeSet<(Duration, ClusterTime)>,
}

impl<V> Default for Kept<V> {
    fn default() -> Self {
        Self {
            states: BTreeMap::new(),
            order: BTreeSet::new(),
        }
    }
}

impl<V: Clone> Kept<V> {
    /// That of a time, which is kept until `until` now, or for longer.
    fn get(&mut self, time: ClusterTime, until: Duration) -> Option<V> {
        let (view, kept_until) = self.states.get_mut(&time)?;
        if *kept_until < until {
            self.order.remove(&(*kept_until, time));
            self.order.insert((until, time));
            *kept_until = until;
        }
        Some(view.clone())
    }

    /// Answers what is not kept any more instead.
    fn keep(&mut self, time: ClusterTime, view: V, until: Duration) -> Option<V> {
        let gone = match self.states.len() >= KEPT_MAX {
            true => self.take_first(),
            false => None,
        };
        if let Some((_, former)) = self.states.insert(time, (view, until)) {
            self.order.remove(&(former, time));
        }
        self.order.insert((until, time));
        gone
    }

    fn take_first(&mut self) -> Option<V> {
        let (_, time) = self.order.pop_first()?;
        self.states.remove(&time).map(|(view, _)| view)
    }

    /// Answers those whose time is over.
    fn expire(&mut self, now: Duration) -> Vec<V> {
        let mut gone = Vec::new();
        while self.order.first().is_some_and(|(until, _)| *until <= now) {
            gone.extend(self.take_first());
        }
        gone
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
        let until = now
            + match asked {
                Some(_) => KEPT_FOR,
                None => KEPT_AT_FIRST_FOR,
            };
        if let Some(view) = states.get(time, until) {
            return Ok(PinnedState { view, time });
        }
        let read = || {
            let view = storage.read_pinned()?;
            let seq = view.seq();
            Ok((view, seq))
        };
        let (view, time) = newest_state(asked, || storage.newest(), read)?;
        let gone = states.keep(time, view.clone(), until);
        // The engine's snapshot ends without the lock.
        drop(states);
        drop(gone);
        Ok(PinnedState { view, time })
    }

    /// The state of a time that is about to be asked for.
    pub fn keep(&self, time: ClusterTime, view: PinnedView, now: Duration) {
        let until = now + KEPT_FOR;
        let mut states = self.states.lock();
        // Another read has waited for it as well: its view stays, and nothing has to go for this one.
        if states.get(time, until).is_some() {
            return;
        }
        let gone = states.keep(time, view, until);
        // The engine's snapshot ends without the lock.
        drop(states);
        drop(gone);
    }

    /// Gives up what nobody has asked for in a while.
    pub fn expire(&self, now: Duration) {
        let gone = self.states.lock().expire(now);
        drop(gone);
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
        kept.keep(ClusterTime(1), "first", KEPT_AT_FIRST_FOR);
        for other in 2..3 * KEPT_MAX as u64 {
            let gone = kept.keep(ClusterTime(other), "other", at(other) + KEPT_AT_FIRST_FOR);
            assert_eq!(gone.is_some(), other > KEPT_MAX as u64);
            assert_eq!(kept.get(ClusterTime(1), at(other) + KEPT_FOR), Some("first"));
            assert_eq!(
                (kept.states.len(), kept.order.len()),
                (KEPT_MAX.min(other as usize), kept.states.len())
            );
        }
        assert_eq!(kept.get(ClusterTime(2), at(0)), None);
        let last = at(3 * KEPT_MAX as u64);
        assert_eq!(kept.expire(last + KEPT_AT_FIRST_FOR).len(), KEPT_MAX - 1);
        assert_eq!(kept.expire(last + KEPT_FOR), ["first"]);
        assert_eq!((kept.states.len(), kept.order.len()), (0, 0));
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
