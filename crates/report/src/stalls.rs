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
    fn all_operations_count_together() {
        let mut two = series(&[100, 5, 100]);
        two.operations.insert("write".to_owned(), vec![0, 95, 0]);
        assert_eq!(stalls(&two), []);
    }
}
