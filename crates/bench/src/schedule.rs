//! The times at which the operations of an open loop are due: the ticks of a Poisson process, of which each thread has
//! its own, and which clients are free for them.

use crate::error::{Doing, Result};
use crate::random::Random;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Operations that were due and not begun are counted one by one up to here, beyond it in groups.
const OVERDUE_MAX: f64 = 1e6;

/// See the module.
pub(crate) struct Schedule {
    random: Random,
    mean_s: f64,
    next: Instant,
    timer: OwnedFd,
    armed: bool,
    /// Clients that are free, by number.
    pub(crate) idle: VecDeque<usize>,
}

impl Schedule {
    /// Of a thread that has so many clients, and so many operations a second to do.
    pub(crate) fn new(seed: u64, rate: f64, thread: usize, clients: usize) -> Result<Self> {
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).doing("making a timer")?;
        let mut schedule = Self {
            random: Random::of_part(seed, thread as u64),
            mean_s: 1.0 / rate,
            next: Instant::now(),
            timer,
            armed: false,
            idle: (0..clients).collect(),
        };
        schedule.advance();
        Ok(schedule)
    }

    /// When the next operation is due.
    pub(crate) fn next(&self) -> Instant {
        self.next
    }

    /// What rings then.
    pub(crate) fn timer(&self) -> &OwnedFd {
        &self.timer
    }

    /// Returns when the next operation is due, and goes on to the one after it.
    pub(crate) fn advance(&mut self) -> Instant {
        let due = self.next;
        self.next += Duration::from_secs_f64(self.random.exponential() * self.mean_s);
        due
    }

    /// How long operations have been due at the end of the run that were not begun, each with how many it stands for.
    pub(crate) fn overdue(&mut self, end: Instant) -> Vec<(Duration, u64)> {
        let expected = end.saturating_duration_since(self.next).as_secs_f64() / self.mean_s;
        let group = (expected / OVERDUE_MAX).ceil().max(1.0);
        self.mean_s *= group;
        let mut overdue = Vec::new();
        while self.next < end {
            overdue.push((end - self.advance(), group as u64));
        }
        overdue
    }

    /// A kind of operation, by how often each was seen.
    pub(crate) fn random_kind(&mut self, counts: &[u64]) -> usize {
        let mut left = self.random.below(counts.iter().sum::<u64>().max(1));
        let is_it = |count: &u64| match left.checked_sub(*count) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        };
        counts.iter().position(is_it).unwrap_or(0)
    }

    /// Has the timer ring when the next operation is due.
    pub(crate) fn arm(&mut self, now: Instant) -> Result<()> {
        self.armed = true;
        self.set((self.next - now).max(Duration::from_nanos(1)))
    }

    /// A timer that has rung rings on until it is set again.
    pub(crate) fn disarm(&mut self) -> Result<()> {
        if std::mem::take(&mut self.armed) {
            self.set(Duration::ZERO)
        } else {
            Ok(())
        }
    }

    fn set(&self, wait: Duration) -> Result<()> {
        let value = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: wait.as_secs() as i64,
                tv_nsec: i64::from(wait.subsec_nanos()),
            },
        };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)
            .map(drop)
            .doing("setting a timer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdue_is_counted_in_groups_when_it_is_much() {
        let mut schedule = Schedule::new(1, 1e9, 0, 1).expect("a timer");
        let end = schedule.next + Duration::from_secs(10);
        let overdue = schedule.overdue(end);
        let all: u64 = overdue.iter().map(|(_, count)| count).sum();
        assert!((9_900_000_000..10_100_000_000).contains(&all), "{all}");
        assert!(overdue.len() < 1_100_000, "{}", overdue.len());
        let kinds: Vec<usize> = (0..100).map(|_| schedule.random_kind(&[0, 3])).collect();
        assert_eq!(kinds, [1; 100]);
        assert_eq!(schedule.random_kind(&[0, 0]), 0);
    }
}
