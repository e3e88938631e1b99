//! Stalls: stretches in which throughput stayed under half of its median, or in which the run stood still. Halts are
//! the latter alone, and fail a run: it has collapsed.

use crate::{Series, Span};

/// The stretches of intervals with fewer than half the operations of the median interval, or in which the run stood
/// still: where that lasts for most of the time, the median is that of a halt. `commands`: those of the whole run, each
/// of which may carry many operations.
pub fn stalls(series: &Series, commands: u64) -> Vec<Span> {
    let total = series.total();
    let still = still(&total, &begins(series), per_command(&total, commands), total.len());
    let mut sorted = total.clone();
    sorted.sort_unstable();
    let Some(&median) = sorted.get(sorted.len() / 2) else {
        return Vec::new();
    };
    let half = median / 2 + median % 2;
    let mut spans: Vec<Span> = Vec::new();
    let mut stalled_before = false;
    for (index, (&count, still)) in total.iter().zip(still).enumerate() {
        let stalled = count < half || still.is_some();
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
/// An interval below one part in so many of what is done before and after it is a halt.
const COLLAPSE_PART: u64 = 10;
/// One with no more than this part of the run's pace is one, whatever is around it.
const NOTHING_PART: u64 = 100;

/// An interval below one part in so many of those just before it is one, though nothing better comes behind it.
const CLIFF_PART: u64 = 20;
/// Those just before it: growth beyond a cache takes longer.
const CLIFF_INTERVALS: usize = 5;

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

/// For each interval the best but one of those that came before it, or the only one; 0 for the first.
fn best_but_one<'c>(counts: impl Iterator<Item = &'c u64>) -> Vec<u64> {
    let (mut best, mut next) = (0, 0);
    let mut found = Vec::new();
    for (index, &count) in counts.enumerate() {
        found.push(if index == 1 { best } else { next });
        (best, next) = (best.max(count), next.max(count.min(best)));
    }
    found
}

/// For each interval whether other work begins in it: something is done that was never done before, and is soon most of
/// what is done. An operation that is rare may be seen for the first time at any moment of the same work.
fn begins(series: &Series) -> Vec<bool> {
    let total = series.total();
    let mut begins = vec![false; total.len()];
    for column in series.operations.values() {
        let Some(first) = column.iter().position(|count| *count > 0) else {
            continue;
        };
        let leads = |count: u64, total: u64| count > 0 && count >= total.saturating_sub(count);
        let counts = column.iter().zip(&total).enumerate();
        let mut soon = counts.skip(first).take(CLIFF_INTERVALS);
        if let Some((leading, _)) = soon.find(|(_, (count, total))| leads(**count, **total)) {
            begins[first..=leading].fill(true);
        }
    }
    begins
}

/// For each interval that lies below a cliff, what the intervals before that did, their median: it has less than a
/// twentieth of that, and so have all between it and the cliff.
fn below_cliffs(counts: &[u64], begins: &[bool]) -> Vec<Option<u64>> {
    let is_below = |count: u64, good: &u64| count < good.div_ceil(CLIFF_PART);
    let (mut above, mut begun) = (None, 0);
    let of_one = |(index, (&count, &is_begin)): (usize, (&u64, &bool))| {
        if is_begin {
            (above, begun) = (None, index);
        }
        let before = || {
            let from = index.checked_sub(CLIFF_INTERVALS).filter(|from| *from >= begun)?;
            let mut before = counts[from..index].to_vec();
            before.sort_unstable();
            Some(before[CLIFF_INTERVALS / 2])
        };
        above = above.filter(|good| is_below(count, good));
        above = above.or_else(|| before().filter(|good| is_below(count, good)));
        above
    };
    counts.iter().zip(begins).enumerate().map(of_one).collect()
}

/// For each interval in which a run stood still, what a good one does. See [`collapse`]; `per_command`: operations of a
/// command.
pub fn halts(counts: &[u64], per_command: u64) -> Vec<Option<u64>> {
    still(counts, &vec![false; counts.len()], per_command.max(1), counts.len())
}

/// It has less than a tenth of that both before and after it, so that a run that only becomes slower, or starts slowly,
/// has none; or less than a twentieth of those just before it; or next to nothing. Of a run that answers few commands
/// in each interval nothing can be said: that none is answered in one is chance. Cliffs count in the first `full`
/// intervals.
fn still(counts: &[u64], begins: &[bool], per_command: u64, full: usize) -> Vec<Option<u64>> {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    let pace = pace(&sorted);
    let before = best_but_one(counts.iter());
    let mut after = best_but_one(counts.iter().rev());
    after.reverse();
    let around = before.into_iter().zip(after).map(|(before, after)| before.min(after));
    let tells = |good: u64| good / per_command >= COLLAPSE_PART;
    let of_one = |((&count, around), above): ((&u64, u64), Option<u64>)| {
        let halts = count < around.div_ceil(COLLAPSE_PART) && tells(around);
        let is_nothing = count.saturating_mul(NOTHING_PART) <= pace && tells(pace);
        let falls = above.filter(|above| tells(*above));
        halts.then_some(around).or(is_nothing.then_some(pace)).or(falls)
    };
    let above = below_cliffs(counts, begins).into_iter().enumerate();
    let above = above.map(|(index, above)| above.filter(|_| index < full));
    counts.iter().zip(around).zip(above).map(of_one).collect()
}

/// The least part of a good interval's operations that one has in which the run stood still: such a run fails,
/// whatever its rate, and however long it stood. The last interval, which the end may cut, does not count, and short
/// runs say nothing. `commands` as for [`stalls`]. In the first `full` intervals all clients were at work: behind them
/// some had nothing left to do, and that less is done is no breakdown.
pub fn collapse(series: &Series, commands: u64, full: usize) -> Option<f64> {
    let total = series.total();
    let (_, whole) = total.split_last()?;
    if total.len() < COLLAPSE_SECONDS_MIN {
        return None;
    }
    let still = still(whole, &begins(series), per_command(&total, commands), full);
    let parts = whole
        .iter()
        .zip(still)
        .filter_map(|(&count, good)| Some(count as f64 / good? as f64));
    parts.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stalls(series: &Series) -> Vec<Span> {
        super::stalls(series, series.total().iter().sum())
    }

    fn collapse(series: &Series) -> Option<f64> {
        super::collapse(series, series.total().iter().sum(), usize::MAX)
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
        let mut beyond_the_cache = vec![60_000; 9];
        beyond_the_cache.extend([5000; 21]);
        assert_eq!(collapse(&series(&beyond_the_cache)), None);
        beyond_the_cache.reverse();
        assert_eq!(collapse(&series(&beyond_the_cache)), None, "a cold start");
        beyond_the_cache[10] = 100;
        assert_eq!(collapse(&series(&beyond_the_cache)), Some(0.02));
    }

    /// Nothing better came behind it, and so the run was a good one.
    #[test]
    fn a_server_that_breaks_down_and_stays_down_has_collapsed() {
        let runs = |parts: &[(usize, u64)]| {
            let counts: Vec<u64> = parts
                .iter()
                .flat_map(|&(seconds, count)| vec![count; seconds])
                .collect();
            series(&counts)
        };
        let down = runs(&[(31, 1000), (27, 20)]);
        assert_eq!(collapse(&down), Some(0.02));
        assert_eq!(
            stalls(&down),
            [Span {
                at_seconds: 31.0,
                seconds: 27.0
            }]
        );
        assert_eq!(collapse(&runs(&[(50, 1000), (10, 11)])), Some(0.011));
        assert_eq!(
            collapse(&runs(&[(10, 1000), (40, 15), (1, 1000), (5, 15)])),
            Some(0.015)
        );
        assert_eq!(collapse(&runs(&[(10, 1000), (40, 49), (1, 50)])), Some(0.049));
        assert_eq!(collapse(&runs(&[(10, 1000), (40, 50)])), None, "a twentieth");
        assert_eq!(
            collapse(&runs(&[(2, 1000), (40, 20)])),
            None,
            "it may have been the start"
        );
        assert_eq!(
            collapse(&runs(&[(10, 9), (40, 0)])),
            None,
            "ten commands in a good second at least"
        );
        // Growth beyond a cache, whose misses take ever more of the time.
        let steps = [(9, 60_000), (2, 30_000), (2, 15_000), (2, 7000), (2, 3500), (20, 1800)];
        assert_eq!(collapse(&runs(&steps)), None);
        // Nodes are written, then links.
        let mut two = runs(&[(10, 10_000), (10, 0)]);
        two.operations.insert("other".to_owned(), [[0; 10], [300; 10]].concat());
        assert_eq!(collapse(&two), None, "it is other work");
        two.operations.insert("other".to_owned(), vec![300; 20]);
        assert_eq!(collapse(&two), Some(300.0 / 10_300.0));
        // An operation that is rare may be done for the first time just before, or in the first bad second.
        for first in [29, 31] {
            let mut rare = vec![0; 58];
            rare[first] = 1;
            let mut mixed = down.clone();
            mixed.operations.insert("rare".to_owned(), rare);
            assert_eq!(collapse(&mixed), Some(0.02), "{first}");
        }
        // Of a fixed amount of work the last client may have some left for long.
        let commands = down.total().iter().sum();
        assert_eq!(super::collapse(&down, commands, 31), None);
        assert_eq!(super::collapse(&down, commands, 32), Some(0.02));
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
        assert_eq!(super::collapse(&series(&counts), 15, usize::MAX), None);
        assert!(
            super::stalls(&series(&counts), 15)
                .iter()
                .all(|span| span.seconds == 1.0)
        );
        counts.iter_mut().for_each(|count| *count *= 20);
        assert_eq!(super::collapse(&series(&counts), 300, usize::MAX), Some(0.0));
    }

    #[test]
    fn all_operations_count_together() {
        let mut two = series(&[100, 5, 100]);
        two.operations.insert("write".to_owned(), vec![0, 95, 0]);
        assert_eq!(stalls(&two), []);
    }
}
