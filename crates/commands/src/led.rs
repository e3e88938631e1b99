//! What time it was while this server led: which sessions nobody has used for long is told by clocks that nobody puts
//! forward or back.
//!
//! Sessions are remembered with the time of day of their newest entry. Judged by that alone, a clock that is put
//! forward by an hour would have all of them forgotten, and writes that are sent again carried out twice.

use std::collections::VecDeque;
use std::time::Duration;

/// Between two samples, while the time of day goes on as it should.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// A clock that was turned is seen by the next sample, later than the first entries that have its time.
const MARGIN_MS: i64 = 60_000;

/// Samples of the time of day since the term began, by monotonic time.
#[derive(Debug, Default)]
pub struct Led {
    term: u64,
    samples: VecDeque<(Duration, i64)>,
}

impl Led {
    /// It leads in `term`, at a monotonic time and a time of day in milliseconds. Answers before which time of day
    /// sessions have not been used for `long`: all entries of that time are later. `None` when it has not led for so
    /// long.
    pub fn note(&mut self, term: u64, now: Duration, wall_ms: i64, long: Duration) -> Option<i64> {
        if self.term != term {
            *self = Self {
                term,
                samples: VecDeque::new(),
            };
        }
        let goes_on = self
            .samples
            .back()
            .is_some_and(|(at, last_ms)| now < *at + SAMPLE_EVERY && wall_ms >= *last_ms);
        if !goes_on {
            self.samples.push_back((now, wall_ms));
        }
        let long_ago = now.checked_sub(long)?;
        while self.samples.get(1).is_some_and(|(at, _)| *at <= long_ago) {
            self.samples.pop_front();
        }
        let begun = self.samples.front().is_some_and(|(at, _)| *at <= long_ago);
        let earliest_ms = self.samples.iter().map(|(_, wall_ms)| *wall_ms).min()?;
        begun.then_some(earliest_ms - MARGIN_MS)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MINUTE_MS: i64 = 60_000;

    /// Leads for so many minutes, and tells the last answer.
    fn lead(led: &mut Led, term: u64, minutes: std::ops::RangeInclusive<u32>, ahead_ms: i64) -> Option<i64> {
        let minute = Duration::from_secs(60);
        let mut note = |at: u32| led.note(term, minute * at, i64::from(at) * MINUTE_MS + ahead_ms, 30 * minute);
        minutes.map(&mut note).last().unwrap()
    }

    #[test]
    fn half_an_hour_of_leading_is_kept() {
        let mut led = Led::default();
        assert_eq!(lead(&mut led, 1, 100..=129, 0), None);
        assert_eq!(lead(&mut led, 1, 130..=130, 0), Some(99 * MINUTE_MS));
        assert_eq!(lead(&mut led, 1, 131..=200, 0), Some(169 * MINUTE_MS));
        assert_eq!(
            lead(&mut led, 2, 201..=230, 0),
            None,
            "another leader's entries may be later"
        );
    }

    #[test]
    fn a_clock_that_is_turned_makes_no_session_old() {
        let mut led = Led::default();
        lead(&mut led, 1, 100..=200, 0);
        let day_ms = 24 * 60 * MINUTE_MS;
        // Entries of the last half hour are from minute 171 on, whatever the clock says now.
        assert_eq!(lead(&mut led, 1, 201..=201, day_ms), Some(170 * MINUTE_MS));
        assert_eq!(lead(&mut led, 1, 202..=202, -day_ms), Some(201 * MINUTE_MS - day_ms));
        assert_eq!(lead(&mut led, 1, 203..=231, 0), Some(201 * MINUTE_MS - day_ms));
        assert_eq!(lead(&mut led, 1, 232..=233, 0), Some(202 * MINUTE_MS));
    }
}
