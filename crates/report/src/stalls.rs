//! Stalls: stretches in which throughput stayed under half of its median.

use crate::{Series, Span};

/// The stretches of intervals with fewer than half the operations of the median interval.
pub fn stalls(series: &Series) -> Vec<Span> {
    let total = series.total();
    let mut sorted = total.clone();
    sorted.sort_unstable();
    let Some(&median) = sorted.get(sorted.len() / 2) else {
        return Vec::new();
    };
    let mut spans: Vec<Span> = Vec::new();
    let mut stalled_before = false;
    for (index, &count) in total.iter().enumerate() {
        let stalled = count < median / 2 + median % 2;
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
/// An interval below one part in so many of the median is a collapse.
const COLLAPSE_PART: f64 = 10.0;

/// The slowest interval's part of the median interval's operations, when that is less than a tenth: a run in which a
/// server stood nearly still for a second fails, whatever its rate. The last interval, which the end may cut, does not
/// count, and short runs say nothing.
pub fn collapse(series: &Series) -> Option<f64> {
    let total = series.total();
    let (_, whole) = total.split_last()?;
    let mut sorted = whole.to_vec();
    sorted.sort_unstable();
    let median = *sorted.get(sorted.len() / 2)?;
    let part = sorted[0] as f64 / median.max(1) as f64;
    let is_long = whole.len() >= COLLAPSE_SECONDS_MIN && median >= COLLAPSE_PART as u64;
    (is_long && part < 1.0 / COLLAPSE_PART).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn a_second_below_a_tenth_of_the_median_is_a_collapse() {
        let of = |slowest: u64, seconds: usize| {
            let mut counts = vec![100; seconds];
            counts[3] = slowest;
            counts.push(1);
            collapse(&series(&counts))
        };
        assert_eq!((of(10, 20), of(9, 20), of(0, 20)), (None, Some(0.09), Some(0.0)));
        assert_eq!(of(0, 9), None, "too short to tell");
        assert_eq!(collapse(&series(&[])), None);
        assert_eq!(collapse(&series(&[9; 20])), None);
    }

    #[test]
    fn all_operations_count_together() {
        let mut two = series(&[100, 5, 100]);
        two.operations.insert("write".to_owned(), vec![0, 95, 0]);
        assert_eq!(stalls(&two), []);
    }
}
