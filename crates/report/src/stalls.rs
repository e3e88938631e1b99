//! Stalls: stretches in which throughput stayed under half of its median, or as good as nothing was done.

use crate::{Series, Span};

/// The stretches of intervals with fewer than half the operations of the median interval, or with fewer than a tenth of
/// the run's [`pace`]: where a server stands still for most of the time, the median is that of a halt. `commands`:
/// those of the whole run, each of which may carry many operations.
pub fn stalls(series: &Series, commands: u64) -> Vec<Span> {
    let total = series.total();
    let per_command = per_command(&total, commands);
    let mut sorted = total.clone();
    sorted.sort_unstable();
    let Some(&median) = sorted.get(sorted.len() / 2) else {
        return Vec::new();
    };
    let half = median / 2 + median % 2;
    let mut spans: Vec<Span> = Vec::new();
    let mut stalled_before = false;
    for (index, &count) in total.iter().enumerate() {
        let stalled = count < half || is_still(count, pace(&sorted), per_command);
        match spans.last_mut() {
            Some(span) if stalled && stalled_before => span.seconds += series.interval_seconds,
            _ if stalled => spans.push(Span {
                at_seconds: index as f64 * series.interval_seconds,
                seconds: series.interval_seconds,
            }),
            _ => {}
        }
        stalled_before = stalled;
    }
    spans
}

/// Seconds that a run must have for [`collapse`].
const COLLAPSE_SECONDS_MIN: usize = 10;
/// An interval below one part in so many of the pace is a collapse.
const COLLAPSE_PART: u64 = 10;

/// What a good interval of a run does: a quarter of them does more. Where nothing was done in three quarters of the
/// run, what the best one did.
fn pace(sorted: &[u64]) -> u64 {
    match sorted.get(sorted.len() * 3 / 4) {
        Some(&count) if count > 0 => count,
        _ => sorted.last().copied().unwrap_or(0),
    }
}

/// Operations of a command.
fn per_command(total: &[u64], commands: u64) -> u64 {
    let operations: u64 = total.iter().fold(0, |sum, count| sum.saturating_add(*count));
    (operations / commands.max(1)).max(1)
}

/// Below a tenth of the pace. Of a run that answers few commands in each interval nothing can be said: that none is
/// answered in one is chance.
fn is_still(count: u64, pace: u64, per_command: u64) -> bool {
    pace / per_command >= COLLAPSE_PART && count < pace.div_ceil(COLLAPSE_PART)
}

/// The slowest interval's part of a good interval's operations (one that a quarter of all exceeds), when that is less
/// than a tenth: a run in which a server stood nearly still for a second fails, whatever its rate, and however long it
/// stood. The last interval, which the end may cut, does not count, and short runs say nothing. `commands` as for
/// [`stalls`].
pub fn collapse(series: &Series, commands: u64) -> Option<f64> {
    let total = series.total();
    let (_, whole) = total.split_last()?;
    let mut sorted = whole.to_vec();
    sorted.sort_unstable();
    let (slowest, pace) = (*sorted.first()?, pace(&sorted));
    let is_long = total.len() >= COLLAPSE_SECONDS_MIN;
    let fails = is_long && is_still(slowest, pace, per_command(&total, commands));
    fails.then(|| slowest as f64 / pace as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(series: &Series) -> Vec<Span> {
        super::stalls(series, series.total().iter().sum())
    }

    fn collapse(series: &Series) -> Option<f64> {
        super::collapse(series, series.total().iter().sum())
    }

    fn series(counts: &[u64]) -> Series {
        let mut series = Series::default();
        series.operations.insert("read".to_owned(), counts.to_vec());
        series
    }

    #[test]
    fn seconds_under_half_the_median_are_stalls() {
        let span = |at_seconds, seconds| Span { at_seconds, seconds };
        let found = stalls(&series(&[100, 49, 0, 50, 101, 99, 10, 100, 102, 100]));
        assert_eq!(found, [span(1.0, 2.0), span(6.0, 1.0)]);
        assert_eq!(stalls(&series(&[100, 100, 60])), []);
        assert_eq!(stalls(&series(&[])), []);
        assert_eq!(stalls(&series(&[0, 2, 0, 1, 0, 0])), [], "too few to tell");
    }

    /// The longer a server stood still, the cleaner was the report.
    #[test]
    fn a_server_that_stands_still_for_most_of_a_run_is_seen() {
        let halted = series(&[12_704, 12_105, 12_788, 8, 0, 0, 0, 0, 0, 0, 0, 4575, 10_209]);
        let span = |at_seconds, seconds| Span { at_seconds, seconds };
        assert_eq!(stalls(&halted), [span(3.0, 8.0)]);
        assert_eq!(collapse(&halted), Some(0.0));
        let mut counts = [0; 20];
        counts[2] = 5000;
        assert_eq!(collapse(&series(&counts)), Some(0.0));
        assert_eq!(stalls(&series(&counts)), [span(0.0, 2.0), span(3.0, 17.0)]);
        // Six of ten at a hundredth.
        let mut counts = vec![1000; 12];
        counts.extend([10; 18]);
        assert_eq!(collapse(&series(&counts)), Some(0.01));
        // A rate that falls while data grows is no halt.
        let falling: Vec<u64> = (0..60).map(|second| 100_000 / (10 + second)).collect();
        assert_eq!(collapse(&series(&falling)), None);
    }

    #[test]
    fn a_second_below_a_tenth_of_the_others_is_a_collapse() {
        let of = |slowest: u64, seconds: usize| {
            let mut counts = vec![100; seconds];
            counts[3] = slowest;
            counts.push(1);
            collapse(&series(&counts))
        };
        assert_eq!((of(10, 20), of(9, 20), of(0, 20)), (None, Some(0.09), Some(0.0)));
        assert_eq!(of(0, 9), Some(0.0), "ten with the last one");
        assert_eq!(of(0, 8), None, "too short to tell");
        assert_eq!(collapse(&series(&[])), None);
        assert_eq!(collapse(&series(&[9; 20])), None);
    }

    /// Batches that take seconds each made a run that collapses, whatever the server did.
    #[test]
    fn few_commands_of_many_operations_tell_nothing() {
        let mut counts: Vec<u64> = [1024, 0, 2048, 0].repeat(5);
        assert_eq!(super::collapse(&series(&counts), 15), None);
        assert!(
            super::stalls(&series(&counts), 15)
                .iter()
                .all(|span| span.seconds == 1.0)
        );
        counts.iter_mut().for_each(|count| *count *= 20);
        assert_eq!(super::collapse(&series(&counts), 300), Some(0.0));
    }

    #[test]
    fn all_operations_count_together() {
        let mut two = series(&[100, 5, 100]);
        two.operations.insert("write".to_owned(), vec![0, 95, 0]);
        assert_eq!(stalls(&two), []);
    }
}
