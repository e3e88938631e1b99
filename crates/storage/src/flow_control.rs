//! Flow control: a leader whose majority shows late what it has written lets fewer writes begin, so that followers that
//! are slower than it do not fall behind without bound.
//!
//! The rule is the published one of MongoDB's parameters of these names: from half of the target lag on the limit is
//! what the majority has managed lately, times 0.95, halved for each half of the target that it lags more; without lag
//! the limit rises by a twentieth and 500 a second, until it limits nobody.

use crate::{Operation, StorageError};
use engine::Seq;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Writes a second that are let through however far others are behind.
const RATE_MIN: f64 = 100.0;
/// A limit that limits nobody.
const RATE_MAX: f64 = 1e6;
/// What the majority manages is averaged over about so many looks.
const AVERAGED_OVER: f64 = 3.0;
/// Longest sleep of a writer between two looks at its operation.
const SLICE: Duration = Duration::from_millis(10);
/// Looks at the log's end that are remembered.
const SAMPLES_MAX: usize = 1000;

/// What there is to see of flow control.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowControlFigures {
    /// Writes a second that may begin; `None`: any number.
    pub limit: Option<f64>,
    /// Entries a second that the majority shows.
    pub sustained: f64,
    /// The majority lags.
    pub is_lagged: bool,
    /// How often that began.
    pub lagged_count: u64,
    /// How long it has been so.
    pub lagged: Duration,
    /// What writers have waited.
    pub waited: Duration,
}

#[derive(Default)]
struct State {
    /// When the log ended where.
    samples: VecDeque<(Duration, Seq)>,
    looked: Option<(Duration, Seq)>,
    figures: FlowControlFigures,
    /// Writes that may begin at once, less those that wait; as of the time.
    tokens: f64,
    refilled: Duration,
}

/// See the module.
#[derive(Default)]
pub struct FlowControl {
    limits: AtomicBool,
    state: Mutex<State>,
    waited_us: AtomicU64,
    // Nobody rings it: it is there to sleep on.
    bed: (Mutex<()>, Condvar),
}

impl FlowControl {
    /// A look about once a second, while this server leads others: the log ends at `last`, and the majority shows
    /// entries up to `shown`.
    pub fn look(&self, now: Duration, last: Seq, shown: Seq, target: Duration) {
        let mut state = self.state.lock();
        if state.samples.len() == SAMPLES_MAX {
            state.samples.pop_front();
        }
        state.samples.push_back((now, last));
        while state.samples.front().is_some_and(|(_, seq)| *seq <= shown) {
            state.samples.pop_front();
        }
        let lag = state
            .samples
            .front()
            .map_or(Duration::ZERO, |(then, _)| now.saturating_sub(*then));
        let Some((then, shown_then)) = state.looked.replace((now, shown)) else {
            return;
        };
        let passed = now.saturating_sub(then).as_secs_f64();
        if passed <= 0.0 {
            return;
        }
        let rate = shown.0.saturating_sub(shown_then.0) as f64 / passed;
        let figures = &mut state.figures;
        figures.sustained += (rate - figures.sustained) / AVERAGED_OVER;
        let threshold = target.as_secs_f64() / 2.0;
        let is_lagged = lag.as_secs_f64() > threshold;
        figures.lagged_count += u64::from(is_lagged && !figures.is_lagged);
        figures.is_lagged = is_lagged;
        if is_lagged {
            figures.lagged += now.saturating_sub(then);
            let beyond = (lag.as_secs_f64() - threshold) / threshold;
            figures.limit = Some((figures.sustained * 0.95 * 0.5_f64.powf(beyond)).max(RATE_MIN));
        } else {
            let raised = figures.limit.map(|limit| limit * 1.05 + 500.0);
            figures.limit = raised.filter(|limit| *limit < RATE_MAX);
        }
        self.limits.store(state.figures.limit.is_some(), Ordering::Release);
    }

    /// This server leads no others, or nobody wants limits.
    pub fn end(&self) {
        let mut state = self.state.lock();
        let figures = &mut state.figures;
        (figures.limit, figures.is_lagged, figures.sustained) = (None, false, 0.0);
        state.samples.clear();
        state.looked = None;
        self.limits.store(false, Ordering::Release);
    }

    /// What there is to see.
    pub fn figures(&self) -> FlowControlFigures {
        FlowControlFigures {
            waited: Duration::from_micros(self.waited_us.load(Ordering::Relaxed)),
            ..self.state.lock().figures
        }
    }

    /// Waits until a write may begin. Whoever waits holds nothing.
    ///
    /// # Errors
    /// The operation was interrupted.
    #[inline]
    pub(crate) fn wait(&self, op: &Operation) -> Result<(), StorageError> {
        match self.limits.load(Ordering::Acquire) {
            true => self.wait_for_turn(op),
            false => Ok(()),
        }
    }

    fn wait_for_turn(&self, op: &Operation) -> Result<(), StorageError> {
        let _asleep = vfs::asleep();
        let began = op.clock().monotonic();
        let turn = began + self.take(began);
        let result = loop {
            let now = op.clock().monotonic();
            if now >= turn || !self.limits.load(Ordering::Acquire) {
                break Ok(());
            }
            if let Err(error) = op.check_now() {
                break Err(error.into());
            }
            self.bed.1.wait_for(&mut self.bed.0.lock(), (turn - now).min(SLICE));
        };
        let waited = op.clock().monotonic().saturating_sub(began);
        self.waited_us.fetch_add(waited.as_micros() as u64, Ordering::Relaxed);
        result
    }

    /// Takes a token, and answers when it will be there.
    fn take(&self, now: Duration) -> Duration {
        let mut state = self.state.lock();
        let Some(limit) = state.figures.limit else {
            return Duration::ZERO;
        };
        let passed = now.saturating_sub(state.refilled).as_secs_f64();
        state.refilled = now;
        // A second's worth at most, either way: a writer never waits longer than that for its turn.
        state.tokens = (state.tokens + passed * limit).min(limit) - 1.0;
        state.tokens = state.tokens.max(-limit);
        Duration::from_secs_f64((-state.tokens / limit).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_secs(10);

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    /// A majority that shows less than is written: the limit goes down to what it manages, and below it while the lag
    /// grows; once it shows everything the limit rises until there is none.
    #[test]
    fn the_limit_follows_what_the_majority_manages() {
        let control = FlowControl::default();
        let (mut last, mut shown) = (0, 0);
        for now in 1..=30 {
            last += 10_000;
            shown += 2_000;
            control.look(second(now), Seq(last), Seq(shown), TARGET);
        }
        let lagged = control.figures();
        let limit = lagged.limit.expect("limited");
        assert!(lagged.is_lagged && lagged.lagged_count == 1);
        assert!((1_500.0..2_001.0).contains(&lagged.sustained), "{lagged:?}");
        assert!((RATE_MIN..0.95 * 2_000.0).contains(&limit), "{limit}");
        for now in 31..200 {
            shown = last;
            control.look(second(now), Seq(last), Seq(shown), TARGET);
        }
        assert_eq!(control.figures().limit, None);
        assert!(!control.figures().is_lagged);
    }

    #[test]
    fn nobody_waits_without_lag() {
        let control = FlowControl::default();
        for now in 1..50 {
            // A follower that stands still now and then, for less than it takes.
            let shown = if now % 5 == 0 { now * 1000 } else { now / 5 * 5000 };
            control.look(second(now), Seq(now * 1000), Seq(shown), TARGET);
            assert_eq!(control.figures().limit, None, "second {now}");
        }
        assert_eq!(control.take(second(50)), Duration::ZERO);
    }

    #[test]
    fn turns_come_at_the_rate_of_the_limit() {
        let control = FlowControl::default();
        for now in 1..=60 {
            control.look(second(now), Seq(now * 1000), Seq(0), TARGET);
        }
        assert_eq!(control.figures().limit, Some(RATE_MIN));
        let waits: Vec<_> = (0..150).map(|_| control.take(second(61))).collect();
        assert_eq!(
            waits.iter().filter(|wait| wait.is_zero()).count(),
            100,
            "a second's worth"
        );
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(waits[149], Duration::from_millis(500));
        control.end();
        assert_eq!(control.take(second(61)), Duration::ZERO);
    }
}
