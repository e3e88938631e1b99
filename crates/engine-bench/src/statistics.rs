//! Arithmetic of the reports: medians, ratios with their spread, time below half the median rate.

use std::collections::BTreeMap;
use std::time::Duration;

/// Length of the slices that rates are counted in.
pub const SLICE: Duration = Duration::from_millis(100);

/// The middle of sorted values; the mean of the two middle ones of an even number. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// A ratio of medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of ours over median of theirs.
    pub value: f64,
    /// The smallest ratio of two runs of the same pair.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// The figures of runs, by the number of their round.
pub type Rounds = BTreeMap<usize, f64>;

/// The median of all rounds.
pub fn median_of_rounds(rounds: &Rounds) -> Option<f64> {
    median(&rounds.values().copied().collect::<Vec<_>>())
}

/// The ratio of two series of runs, of which those of the same round make a pair. `None` when one of them has no
/// median, theirs is 0, or they have no round in common.
pub fn ratio(ours: &Rounds, theirs: &Rounds) -> Option<Ratio> {
    let value = median_of_rounds(ours)? / median_of_rounds(theirs)?;
    let pairs = ours
        .iter()
        .filter_map(|(round, a)| Some(a / theirs.get(round)?))
        .filter(|ratio| ratio.is_finite());
    let (low, high) = pairs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), ratio| {
        (low.min(ratio), high.max(ratio))
    });
    (value.is_finite() && low <= high).then_some(Ratio { value, low, high })
}

/// Seconds in slices with less than half the median slice's operations. The last slice, which is cut, does not count.
pub fn slow_seconds(slices: &[u64]) -> f64 {
    let whole = whole_counts(slices);
    let half = median(&whole).unwrap_or(0.0) / 2.0;
    whole.iter().filter(|&&count| count < half).count() as f64 * SLICE.as_secs_f64()
}

/// The smallest rate of any window of so many slices, in operations per second; of the whole when it is shorter.
pub fn worst_rate(slices: &[u64], window: usize) -> f64 {
    let rates = window_rates(slices, window);
    rates.into_iter().reduce(f64::min).unwrap_or(0.0)
}

/// The smallest of these rates over the median one; 0 without any.
pub fn worst_over_median(slices: &[u64], window: usize) -> f64 {
    // Of windows, too: slices of who pauses every second may be empty for the most part.
    match median(&window_rates(slices, window)) {
        Some(middle) if middle > 0.0 => worst_rate(slices, window) / middle,
        _ => 0.0,
    }
}

fn window_rates(slices: &[u64], window: usize) -> Vec<f64> {
    let whole = whole_counts(slices);
    let window = window.clamp(1, whole.len().max(1));
    let seconds = window as f64 * SLICE.as_secs_f64();
    let parts = whole.windows(window);
    parts.map(|part| part.iter().sum::<f64>() / seconds).collect()
}

/// The worst whole second in which a run stood still, and what a good one did, in operations, by the rule of
/// [`report::halts`]. Seconds are those from the beginning; one that the end cut off does not count, and fewer than
/// four tell nothing. Where a good one has few calls, of so many operations each, that one has none is chance.
pub fn collapsed_second(slices: &[u64], operations_per_call: f64) -> Option<(f64, f64)> {
    const SECONDS_MIN: usize = 4;
    let per_second = (1.0 / SLICE.as_secs_f64()).round() as usize;
    let seconds = whole_slices(slices).chunks_exact(per_second);
    let seconds: Vec<u64> = seconds.map(|second| second.iter().sum()).collect();
    if seconds.len() < SECONDS_MIN {
        return None;
    }
    let halts = report::halts(&seconds, operations_per_call as u64);
    let halts = seconds.iter().zip(halts);
    let halts = halts.filter_map(|(&second, good)| Some((second as f64, good? as f64)));
    halts.min_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)))
}

/// The rate over the last `part` (0 to 1) of the time.
pub fn rate_at_end(slices: &[u64], part: f64) -> f64 {
    let whole = whole_counts(slices);
    let from = (whole.len() as f64 * (1.0 - part)) as usize;
    let tail = &whole[from.min(whole.len().saturating_sub(1))..];
    tail.iter().sum::<f64>() / (tail.len().max(1) as f64 * SLICE.as_secs_f64())
}

/// Those that the end has not cut.
fn whole_slices(slices: &[u64]) -> &[u64] {
    match slices {
        [whole @ .., _cut] if !whole.is_empty() => whole,
        all => all,
    }
}

fn whole_counts(slices: &[u64]) -> Vec<f64> {
    whole_slices(slices).iter().map(|&count| count as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collapsed_second(slices: &[u64]) -> Option<(f64, f64)> {
        super::collapsed_second(slices, 1.0)
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn ratios_are_of_medians_with_the_spread_of_pairs() {
        let rounds = |values: &[f64]| -> Rounds { values.iter().copied().enumerate().collect() };
        let found = ratio(&rounds(&[20.0, 30.0, 22.0]), &rounds(&[10.0, 10.0, 11.0])).unwrap();
        assert!((found.value - 2.2).abs() < 1e-9, "{found:?}");
        assert_eq!((found.low, found.high), (2.0, 3.0));
        assert_eq!(ratio(&rounds(&[1.0]), &rounds(&[])), None);
        assert_eq!(ratio(&rounds(&[1.0]), &rounds(&[0.0])), None);
        // The first of ours failed: it left the second to be paired with their first.
        let without_first: Rounds = [(1, 30.0), (2, 22.0)].into();
        let found = ratio(&without_first, &rounds(&[5.0, 10.0, 11.0])).unwrap();
        assert_eq!((found.low, found.high), (2.0, 3.0));
    }

    #[test]
    fn a_second_below_a_tenth_of_a_good_one_is_a_collapse() {
        let run =
            |seconds: &[u64]| -> Vec<u64> { seconds.iter().flat_map(|&count| [count / 10; 10]).chain([0]).collect() };
        assert_eq!(collapsed_second(&run(&[1000, 900, 110, 1000, 1000])), None);
        assert_eq!(
            collapsed_second(&run(&[1000, 1000, 90, 1000, 1000])),
            Some((90.0, 1000.0))
        );
        // What starts slowly, or becomes slower, has not collapsed.
        assert_eq!(collapsed_second(&run(&[90, 400, 1000])), None);
        assert_eq!(collapsed_second(&run(&[90, 400, 1000, 1000])), None);
        assert_eq!(collapsed_second(&run(&[6000, 6000, 500, 500, 500, 500])), None);
        assert_eq!(collapsed_second(&run(&[1000, 0, 1000])), None, "too short to tell");
        assert_eq!(collapsed_second(&run(&[])), None);
        // The longer a halt lasted, the cleaner was the report.
        assert_eq!(
            collapsed_second(&run(&[1000, 0, 0, 0, 0, 0, 1000, 1000])),
            Some((0.0, 1000.0))
        );
        assert_eq!(collapsed_second(&run(&[0, 500, 0, 0, 0, 0, 0])), Some((0.0, 500.0)));
        // It broke down, and did not recover.
        let down = run(&[1000, 1000, 1000, 1000, 1000, 1000, 20, 20, 30]);
        assert_eq!(collapsed_second(&down), Some((20.0, 1000.0)));
        // Scans of everything, each of which takes seconds.
        let scans = run(&[250_000, 0, 0, 250_000, 0, 250_000]);
        assert_eq!(super::collapsed_second(&scans, 250_000.0), None);
        // The last second is not over.
        assert_eq!(
            collapsed_second(&[100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 0, 0, 0, 0, 9]),
            None
        );
    }

    #[test]
    fn slow_time_and_worst_windows() {
        // The last slice is cut off by the end of the phase.
        let slices = [100, 100, 40, 100, 0, 100, 100, 3];
        assert!((slow_seconds(&slices) - 0.2).abs() < 1e-9);
        assert_eq!(worst_rate(&slices, 1), 0.0);
        assert!((worst_rate(&slices, 3) - (40.0 + 100.0) / 0.3).abs() < 1e-6);
        assert!((worst_rate(&[50, 1], 10) - 500.0).abs() < 1e-6);
        assert_eq!(worst_rate(&[], 1), 0.0);
        assert!((worst_over_median(&slices, 3) - 140.0 / 200.0).abs() < 1e-9);
        let pauses = [0, 100, 0, 0, 0, 50, 0, 0, 0, 100, 0, 0, 0];
        assert!((worst_over_median(&pauses, 4) - 0.5).abs() < 1e-9);
        assert_eq!(worst_over_median(&[], 1), 0.0);
        assert!((rate_at_end(&[100, 100, 100, 20, 20, 9], 0.4) - 200.0).abs() < 1e-6);
        assert_eq!(rate_at_end(&[], 0.5), 0.0);
    }
}
