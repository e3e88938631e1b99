//! The distribution of an operation's latency: the usual percentiles, and the counts from which others can be taken.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Significant digits of the stored counts. Percentiles come from the histogram that was measured.
const DIGITS: u8 = 2;

/// How long commands took, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Latency {
    /// Commands that were timed.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The shortest.
    pub min_ns: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// Three quarters took no longer.
    pub p75_ns: u64,
    /// 90 % took no longer.
    pub p90_ns: u64,
    /// 95 % took no longer.
    pub p95_ns: u64,
    /// 99 % took no longer.
    pub p99_ns: u64,
    /// 99.9 % took no longer.
    pub p999_ns: u64,
    /// 99.99 % took no longer.
    pub p9999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Pairs of a latency and how many commands took about that long (one part in a hundred), ascending.
    pub buckets: Vec<(u64, u64)>,
}

impl Latency {
    /// What a histogram of nanoseconds says; `None` when it is empty.
    pub fn from_histogram(histogram: &Histogram<u64>) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let mut coarse = Histogram::<u64>::new(DIGITS).expect("0 to 5 digits are possible");
        for recorded in histogram.iter_recorded() {
            coarse
                .record_n(recorded.value_iterated_to(), recorded.count_at_value())
                .expect("the histogram grows with what it holds");
        }
        let buckets = coarse
            .iter_recorded()
            .map(|entry| (entry.value_iterated_to(), entry.count_at_value()))
            .collect();
        Some(Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            p50_ns: histogram.value_at_quantile(0.50),
            p75_ns: histogram.value_at_quantile(0.75),
            p90_ns: histogram.value_at_quantile(0.90),
            p95_ns: histogram.value_at_quantile(0.95),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            p9999_ns: histogram.value_at_quantile(0.9999),
            max_ns: histogram.max(),
            buckets,
        })
    }

    /// The latency that a share of the commands (0 to 1) did not exceed, from the stored counts.
    pub fn at_quantile(&self, quantile: f64) -> u64 {
        let total: u64 = self.buckets.iter().map(|bucket| bucket.1).fold(0, u64::saturating_add);
        let wanted = ((quantile.clamp(0.0, 1.0) * total as f64).ceil() as u64).max(1);
        let mut seen = 0u64;
        for &(value, count) in &self.buckets {
            seen = seen.saturating_add(count);
            if seen >= wanted {
                return value.min(self.max_ns);
            }
        }
        self.max_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_counts_give_the_percentiles_back() {
        let mut histogram = Histogram::<u64>::new(3).expect("it is a precision");
        for value in 1..=100_000u64 {
            histogram.record(value * 1_000).expect("it grows");
        }
        let latency = Latency::from_histogram(&histogram).expect("it is not empty");
        assert_eq!(latency.count, 100_000);
        for (quantile, exact) in [
            (0.5, latency.p50_ns),
            (0.99, latency.p99_ns),
            (0.9999, latency.p9999_ns),
        ] {
            let stored = latency.at_quantile(quantile) as f64;
            assert!(
                (stored / exact as f64 - 1.0).abs() < 0.02,
                "{quantile}: {stored} is not {exact}"
            );
        }
        assert_eq!(latency.at_quantile(1.0), latency.max_ns);
        assert!(latency.buckets.len() < crate::limits::BUCKETS_MAX);
        assert!(latency.buckets.is_sorted());
        assert_eq!(
            Latency::from_histogram(&Histogram::new(3).expect("it is a precision")),
            None
        );
    }

    #[test]
    fn the_widest_histogram_is_within_the_limit() {
        let mut histogram = Histogram::<u64>::new(3).expect("it is a precision");
        let mut value = 1u64;
        while value < u64::MAX / 2 {
            histogram.record(value).expect("it grows");
            value += value / 200 + 1;
        }
        let latency = Latency::from_histogram(&histogram).expect("it is not empty");
        assert!(latency.buckets.len() > 1_000);
        assert!(latency.buckets.len() <= crate::limits::BUCKETS_MAX);
    }
}
