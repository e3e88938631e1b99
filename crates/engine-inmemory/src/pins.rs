//! Which snapshots are open, and hence which versions are needed.
//!
//! One short lock holds the published `Seq` and the open snapshots together, so that a [`Horizon`] is a sound answer: a
//! snapshot opened after it was taken stands at its published `Seq` or later.

use engine::Seq;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// The register of open snapshots.
pub(crate) struct Pins {
    state: Mutex<State>,
}

struct State {
    published: Seq,
    /// Open snapshots: position and number, rising. Positions whose number fell to 0 leave when they reach the front.
    open: VecDeque<(Seq, usize)>,
}

impl Pins {
    pub(crate) fn new(published: Seq) -> Self {
        Self {
            state: Mutex::new(State {
                published,
                open: VecDeque::new(),
            }),
        }
    }

    pub(crate) fn published(&self) -> Seq {
        self.state.lock().published
    }

    /// Makes `seq` the position of new snapshots; never goes back.
    pub(crate) fn publish(&self, seq: Seq) {
        let mut state = self.state.lock();
        state.published = state.published.max(seq);
    }

    /// Registers a snapshot at the published position.
    pub(crate) fn pin(&self) -> Seq {
        let mut state = self.state.lock();
        let seq = state.published;
        match state.open.back_mut() {
            Some((last, count)) if *last == seq => *count += 1,
            _ => state.open.push_back((seq, 1)),
        }
        seq
    }

    /// Removes a snapshot that [`Pins::pin`] registered.
    pub(crate) fn unpin(&self, seq: Seq) {
        let mut state = self.state.lock();
        let index = state
            .open
            .binary_search_by_key(&seq, |open| open.0)
            .expect("an open snapshot is registered");
        state.open[index].1 -= 1;
        while state.open.front().is_some_and(|open| open.1 == 0) {
            state.open.pop_front();
        }
    }

    /// Number of open snapshots and the oldest one's position.
    pub(crate) fn open(&self) -> (usize, Option<Seq>) {
        let state = self.state.lock();
        (
            state.open.iter().map(|open| open.1).sum(),
            state.open.front().map(|open| open.0),
        )
    }

    /// Brings `horizon` up to date, keeping its memory.
    pub(crate) fn update(&self, horizon: &mut Horizon) {
        let state = self.state.lock();
        horizon.published = state.published;
        horizon.open.clear();
        horizon
            .open
            .extend(state.open.iter().filter(|open| open.1 > 0).map(|open| open.0));
    }
}

/// The positions versions are needed for: those of open snapshots, the published one, and every later one.
#[derive(Default)]
pub(crate) struct Horizon {
    published: Seq,
    /// Rising.
    open: Vec<Seq>,
}

impl Horizon {
    /// True when a version of `from` that is covered by a newer one of `covered_from` can still be seen.
    pub(crate) fn needs(&self, from: Seq, covered_from: Seq) -> bool {
        if covered_from > self.published {
            return true;
        }
        let first = self.open.partition_point(|&seq| seq < from);
        self.open.get(first).is_some_and(|&seq| seq < covered_from)
    }

    /// The oldest position that is needed.
    pub(crate) fn oldest(&self) -> Seq {
        self.open.first().copied().unwrap_or(self.published)
    }

    #[cfg(test)]
    pub(crate) fn of(open: &[u64], published: u64) -> Self {
        Self {
            published: Seq(published),
            open: open.iter().map(|&seq| Seq(seq)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_follows_the_oldest_open_snapshot() {
        let pins = Pins::new(Seq(4));
        let mut horizon = Horizon::default();
        let (a, b) = (pins.pin(), pins.pin());
        pins.publish(Seq(7));
        let c = pins.pin();
        assert_eq!((a, b, c), (Seq(4), Seq(4), Seq(7)));
        pins.update(&mut horizon);
        assert_eq!(horizon.oldest(), Seq(4));
        pins.unpin(a);
        pins.unpin(c);
        assert_eq!(pins.open(), (1, Some(Seq(4))));
        pins.unpin(b);
        assert_eq!(pins.open(), (0, None));
        pins.update(&mut horizon);
        assert_eq!(horizon.oldest(), Seq(7));
    }

    #[test]
    fn publishing_never_goes_back() {
        let pins = Pins::new(Seq(4));
        pins.publish(Seq(2));
        assert_eq!(pins.published(), Seq(4));
    }
}
