//! Which snapshots are open, and hence which versions are needed.
//!
//! One short lock holds the published `Seq` and the open snapshots together: a snapshot opened after [`Pins::readers`] was asked
//! stands at the published position it answered with, or later.

use engine::Seq;
use rcu::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

/// The register of open snapshots.
pub(crate) struct Pins {
    state: Mutex<State>,
    /// The oldest position anybody reads at or will read at.
    low: AtomicU64,
    published: AtomicU64,
}

struct State {
    /// Positions with open snapshots and the number of these, rising. A checkpoint's position stays for long while every
    /// transaction comes and goes at one behind it, so those that are over must not pile up.
    open: VecDeque<(Seq, usize)>,
}

impl Pins {
    pub(crate) fn new(published: Seq) -> Self {
        Self {
            state: Mutex::new(State { open: VecDeque::new() }),
            low: AtomicU64::new(published.0),
            published: AtomicU64::new(published.0),
        }
    }

    pub(crate) fn published(&self) -> Seq {
        rcu::schedule_point();
        Seq(self.published.load(Ordering::Acquire))
    }

    /// The oldest position that a snapshot reads at, or that a later one can read at. A moment old, and then too low, which
    /// is safe.
    pub(crate) fn low(&self) -> Seq {
        rcu::schedule_point();
        Seq(self.low.load(Ordering::Acquire))
    }

    /// Whether it rose.
    fn set_low(&self, state: &State) -> bool {
        let low = state.open.front().map_or(self.published(), |open| open.0);
        rcu::schedule_point();
        self.low.swap(low.0, Ordering::AcqRel) < low.0
    }

    /// Makes `seq` the position of new snapshots; never goes back.
    pub(crate) fn publish(&self, seq: Seq) {
        let state = self.state.lock();
        if seq > self.published() {
            self.published.store(seq.0, Ordering::Release);
            self.set_low(&state);
        }
    }

    /// Registers a snapshot at the published position.
    pub(crate) fn pin(&self) -> Seq {
        let mut state = self.state.lock();
        let seq = self.published();
        match state.open.back_mut() {
            Some((last, count)) if *last == seq => *count += 1,
            _ => state.open.push_back((seq, 1)),
        }
        seq
    }

    /// Removes a snapshot that [`Pins::pin`] registered. Whether the oldest position rose: then there is undo that nobody reads
    /// any more.
    pub(crate) fn unpin(&self, seq: Seq) -> bool {
        let mut state = self.state.lock();
        let index = state
            .open
            .binary_search_by_key(&seq, |open| open.0)
            .expect("an open snapshot is registered");
        state.open[index].1 -= 1;
        if state.open[index].1 == 0 {
            // Most are near one of the ends, and only what lies on that side moves.
            state.open.remove(index);
        }
        self.set_low(&state)
    }

    /// The published position, and in `readers` the positions of open snapshots, rising.
    pub(crate) fn readers(&self, readers: &mut Vec<Seq>) -> Seq {
        let state = self.state.lock();
        readers.clear();
        readers.extend(state.open.iter().map(|open| open.0));
        self.published()
    }

    /// The published position, and the oldest one of an open snapshot, one at `own` left out; behind the published one when there
    /// is no other.
    pub(crate) fn low_but(&self, own: Option<Seq>) -> (Seq, Seq) {
        let state = self.state.lock();
        let published = self.published();
        let is_other = |open: &&(Seq, usize)| open.1 > usize::from(Some(open.0) == own);
        let oldest = state.open.iter().find(is_other).map(|open| open.0);
        (published, oldest.unwrap_or(published.next()))
    }

    /// Number of open snapshots.
    pub(crate) fn open(&self) -> usize {
        self.state.lock().open.iter().map(|open| open.1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_mark_follows_the_oldest_open_snapshot() {
        let pins = Pins::new(Seq(4));
        let (a, b) = (pins.pin(), pins.pin());
        pins.publish(Seq(7));
        let c = pins.pin();
        assert_eq!((a, b, c), (Seq(4), Seq(4), Seq(7)));
        assert_eq!(pins.low(), Seq(4));
        assert_eq!(pins.low_but(Some(Seq(4))), (Seq(7), Seq(4)), "two are open there");
        assert!(!pins.unpin(a) && !pins.unpin(c), "one at 4 is open");
        assert_eq!(pins.low_but(Some(Seq(4))), (Seq(7), Seq(8)));
        assert_eq!(pins.low_but(None), (Seq(7), Seq(4)));
        assert_eq!((pins.open(), pins.low()), (1, Seq(4)));
        let mut readers = vec![Seq(99)];
        assert_eq!(pins.readers(&mut readers), Seq(7));
        assert_eq!(readers, [Seq(4)]);
        assert!(pins.unpin(b));
        assert_eq!((pins.open(), pins.low()), (0, Seq(7)));
        pins.publish(Seq(2));
        assert_eq!(pins.published(), Seq(7));
    }

    #[test]
    fn snapshots_that_are_over_do_not_pile_up_behind_an_open_one() {
        let pins = Pins::new(Seq(1));
        let old = pins.pin();
        for seq in 2..100 {
            pins.publish(Seq(2 * seq));
            let (first, second) = (pins.pin(), pins.pin());
            assert!(!pins.unpin(first));
            pins.publish(Seq(2 * seq + 1));
            let third = pins.pin();
            assert!(!pins.unpin(second) && !pins.unpin(third));
            assert_eq!(pins.state.lock().open.len(), 1, "{seq}");
        }
        assert!(pins.unpin(old));
        assert_eq!(pins.state.lock().open.len(), 0);
    }
}
