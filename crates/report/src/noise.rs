//! How sure a figure is, and whether two figures differ.
//!
//! The noise of a mean over time comes from the method of *batch means* (R. W. Conway, "Some tactical problems in
//! digital simulation", Management Science 10, 1963; A. M. Law and J. S. Carson, Operations Research 27, 1979):
//! neighbouring seconds are not independent, so the series is cut into batches that nearly are, and the spread of the
//! batches' means gives the standard error of the whole mean. Details:
//!
//! 1. A figure is a ratio of sums, such as CPU per operation. Each interval's error is `numerator - ratio *
//!    denominator`, relative to the mean numerator.
//! 2. A straight line is taken off the errors: throughput that falls while data grows is no noise.
//! 3. Up to 20 batches of at least three intervals; five batches at least, or the noise is not known.
//! 4. How much two runs of the same differ is not to be seen within one run: caches, layouts and the machine's mood are
//!    others in the next. It is measured where something ran twice ([`Spread`]): the deviation of repetitions of one
//!    configuration is pooled over all configurations. Whichever is larger counts, that or the batches'.
//! 5. What ran once has an interval of the batches and of [`RUN_TO_RUN`], which is only shown: no verdict rests on it.
//! 6. Two figures are compared by the logarithm of their ratio, with Student's distribution, at 99 % for all figures of
//!    a work together (C. E. Bonferroni). Quantiles come from G. W. Hill's approximation (Algorithm 396,
//!    Communications of the ACM 13, 1970).

use std::f64::consts::FRAC_PI_2;

/// Batches of one run.
const BATCHES: std::ops::RangeInclusive<usize> = 5..=20;
/// Intervals of the shortest batch.
const BATCH_INTERVALS_MIN: usize = 3;
/// Standard error that is added where no repetition shows it.
pub const RUN_TO_RUN: f64 = 0.02;
/// Share of cases in which a ratio may be outside its interval.
pub const MISSED: f64 = 0.01;

/// Where a figure's noise comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Basis {
    /// Repetitions, of which this figure has so many.
    Repetitions(usize),
    /// Nothing that ran twice.
    Once,
}

/// How much repetitions of the same differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Their standard deviation as a share of the figure.
    pub deviation: f64,
    /// Degrees of freedom of it.
    pub freedom: f64,
}

impl Spread {
    /// Of groups of repetitions; figures below `least` are taken for it. `None` when nothing was repeated.
    pub fn pooled<'g>(groups: impl Iterator<Item = &'g [f64]>, least: f64) -> Option<Self> {
        let (mut squares, mut freedom) = (0.0, 0.0);
        for group in groups.filter(|group| group.len() > 1) {
            let logarithms: Vec<f64> = group
                .iter()
                .map(|value| value.max(least).max(f64::MIN_POSITIVE).ln())
                .collect();
            let mean = mean_of(&logarithms);
            squares += logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            freedom += group.len() as f64 - 1.0;
        }
        (freedom > 0.0).then(|| Self {
            deviation: (squares / freedom).sqrt(),
            freedom,
        })
    }

    /// The larger of two, with the freedom of the first.
    pub fn at_least(self, other: Option<Self>) -> Self {
        Self {
            deviation: other.map_or(self.deviation, |other| other.deviation.max(self.deviation)),
            ..self
        }
    }
}

/// A figure and its noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its standard error as a share of it.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
    /// Where the error comes from.
    pub basis: Basis,
}

/// Two columns of a series whose sums' ratio is a figure.
pub struct Columns {
    /// What is counted.
    pub numerator: Vec<f64>,
    /// What it is divided by.
    pub denominator: Vec<f64>,
}

impl Estimate {
    /// A figure of so many repetitions, with the noise of their series and that of what was repeated; `usual` is a
    /// standard error for where neither shows any.
    pub fn new(value: f64, repetitions: usize, series: &[Columns], spread: Option<Spread>, usual: f64) -> Self {
        let batches: Vec<f64> = series.iter().flat_map(batch_errors).collect();
        let within = (!batches.is_empty()).then(|| standard_error(&batches));
        match spread {
            Some(spread) => {
                let between = spread.deviation / (repetitions.max(1) as f64).sqrt();
                Self {
                    value,
                    error: between.max(within.unwrap_or(0.0)),
                    freedom: spread.freedom,
                    basis: Basis::Repetitions(repetitions),
                }
            }
            None => Self {
                value,
                error: within.map_or(usual, |within| within.hypot(RUN_TO_RUN)),
                freedom: f64::INFINITY,
                basis: Basis::Once,
            },
        }
    }
}

/// The 99 % interval of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// It is hardly smaller than this.
    pub low: f64,
    /// It is hardly larger than this.
    pub high: f64,
}

impl Ratio {
    /// `a` divided by `b`, at 99 %; `None` when one of them is not positive.
    pub fn of(a: &Estimate, b: &Estimate) -> Option<Self> {
        Self::among(a, b, 1)
    }

    /// [`Self::of`] with an interval so wide that in 99 of 100 cases all of so many comparisons hold (C. E.
    /// Bonferroni).
    pub fn among(a: &Estimate, b: &Estimate, comparisons: usize) -> Option<Self> {
        let value = a.value / b.value;
        if !(a.value > 0.0 && b.value > 0.0 && value.is_finite() && value > 0.0) {
            return None;
        }
        let variance = a.error.powi(2) + b.error.powi(2);
        // Both may rest on the same repetitions: nothing is gained by there being two.
        let freedom = a.freedom.min(b.freedom);
        let quantile = student(MISSED / comparisons.max(1) as f64, freedom);
        let reach = (quantile * variance.sqrt()).min(20.0).exp();
        Some(Self {
            value,
            low: value / reach,
            high: value * reach,
        })
    }

    /// The ratio the other way round.
    pub fn inverse(self) -> Self {
        Self {
            value: 1.0 / self.value,
            low: 1.0 / self.high,
            high: 1.0 / self.low,
        }
    }
}

/// Relative errors of the means of a run's batches; none when it was too short.
fn batch_errors(columns: &Columns) -> Vec<f64> {
    let points = columns.numerator.len().min(columns.denominator.len());
    let numerator = &columns.numerator[..points];
    let denominator = &columns.denominator[..points];
    let sum: f64 = numerator.iter().sum();
    let divided_by: f64 = denominator.iter().sum();
    let batches = (points / BATCH_INTERVALS_MIN).min(*BATCHES.end());
    if batches < *BATCHES.start() || sum <= 0.0 || divided_by <= 0.0 {
        return Vec::new();
    }
    let ratio = sum / divided_by;
    let mean = sum / points as f64;
    let mut errors: Vec<f64> = numerator
        .iter()
        .zip(denominator)
        .map(|(n, d)| (n - ratio * d) / mean)
        .collect();
    remove_line(&mut errors);
    let batch = |index: usize| &errors[index * points / batches..(index + 1) * points / batches];
    (0..batches).map(|index| mean_of(batch(index))).collect()
}

/// Takes the line of least squares off the values.
fn remove_line(values: &mut [f64]) {
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mean = mean_of(values);
    let (mut product, mut square) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let x = index as f64 - middle;
        product += x * (value - mean);
        square += x * x;
    }
    let slope = if square > 0.0 { product / square } else { 0.0 };
    for (index, value) in values.iter_mut().enumerate() {
        *value -= mean + slope * (index as f64 - middle);
    }
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The standard error of the mean of independent values.
fn standard_error(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let count = values.len() as f64;
    if count < 2.0 {
        0.0
    } else {
        (squares / (count - 1.0) / count).sqrt()
    }
}

/// The value that Student's distribution exceeds, on both sides together, with the given probability.
fn student(probability: f64, freedom: f64) -> f64 {
    let n = freedom.max(1.0);
    if n < 2.0 {
        // With one degree of freedom it is Cauchy's distribution; up to two, its tail is the wider one.
        return 1.0 / (probability * FRAC_PI_2).tan();
    }
    if n < 2.5 {
        return (2.0 / (probability * (2.0 - probability)) - 2.0).sqrt();
    }
    let normal = normal_quantile(probability / 2.0);
    if !n.is_finite() {
        return -normal;
    }
    let a = 1.0 / (n - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20_700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * FRAC_PI_2).sqrt() * n;
    let mut y = (d * probability).powf(2.0 / n);
    if y > 0.05 + a {
        let x = normal;
        y = x * x;
        if n < 5.0 {
            c += 0.3 * (n - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = (a * y * y).exp_m1();
    } else {
        y = ((1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0) + 0.5 / (n + 4.0)) * y - 1.0)
            * (n + 1.0)
            / (n + 2.0)
            + 1.0 / y;
    }
    (n * y).sqrt()
}

/// The value that the normal distribution is below with the given small probability (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(probability: f64) -> f64 {
    let t = (-2.0 * probability.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    above / below - t
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::{Random, SeededRandom};

    /// Throughput of `points` seconds around `mean` with a share of noise, of which a part is left over from the second
    /// before.
    fn series(random: &SeededRandom, points: usize, mean: f64, share: f64, memory: f64) -> Columns {
        let mut state = 0.0;
        let numerator = (0..points).map(|_| {
            let uniform = random.next_u64() as f64 / u64::MAX as f64;
            state = memory * state + (uniform - 0.5) * 3.46 * share * (1.0f64 - memory * memory).sqrt();
            mean * (1.0 + state)
        });
        Columns {
            numerator: numerator.collect(),
            denominator: vec![1.0; points],
        }
    }

    fn estimate(columns: Columns) -> Estimate {
        let value = mean_of(&columns.numerator);
        Estimate::new(value, 1, &[columns], None, 0.1)
    }

    #[test]
    fn the_interval_holds_the_truth_nearly_always() {
        let random = SeededRandom::new(7);
        let mut held = 0;
        for _ in 0..400 {
            let a = estimate(series(&random, 120, 1000.0, 0.2, 0.5));
            let b = estimate(series(&random, 120, 1000.0, 0.2, 0.5));
            let ratio = Ratio::of(&a, &b).expect("both are positive");
            held += usize::from(ratio.low <= 1.0 && 1.0 <= ratio.high);
        }
        assert!(held >= 392, "seed 7: {held} of 400 intervals hold 1");
    }

    #[test]
    fn a_clear_difference_is_outside_the_interval() {
        let random = SeededRandom::new(8);
        let a = estimate(series(&random, 60, 1300.0, 0.1, 0.3));
        let b = estimate(series(&random, 60, 1000.0, 0.1, 0.3));
        let ratio = Ratio::of(&a, &b).expect("both are positive");
        assert!(ratio.low > 1.1 && ratio.high < 1.6, "seed 8: {ratio:?}");
        let inverse = ratio.inverse();
        assert!(inverse.high < 1.0 && (inverse.value * ratio.value - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_steady_fall_is_no_noise() {
        let falling = |points: usize| (0..points).map(|i| 2000.0 - 10.0 * i as f64).collect::<Vec<_>>();
        let columns = Columns {
            numerator: falling(100),
            denominator: vec![1.0; 100],
        };
        let found = estimate(columns);
        assert!((found.error - RUN_TO_RUN).abs() < 1e-9, "{found:?}");
        assert_eq!(found.basis, Basis::Once);
    }

    #[test]
    fn short_runs_have_the_usual_noise() {
        let random = SeededRandom::new(9);
        assert_eq!(estimate(series(&random, 14, 10.0, 0.1, 0.0)).error, 0.1);
        assert!(estimate(series(&random, 15, 10.0, 0.1, 0.0)).error < 0.1);
    }

    #[test]
    fn repetitions_show_their_own_noise() {
        let groups = [vec![90.0, 110.0], vec![9.0, 11.0], vec![100.0]];
        let spread = Spread::pooled(groups.iter().map(Vec::as_slice), 0.0).expect("two were repeated");
        assert_eq!(spread.freedom, 2.0);
        assert!(
            (spread.deviation - (11.0f64 / 9.0).ln() / 2.0f64.sqrt()).abs() < 1e-12,
            "{spread:?}"
        );
        let found = Estimate::new(100.0, 4, &[], Some(spread), 0.5);
        assert_eq!(
            (found.basis, found.error),
            (Basis::Repetitions(4), spread.deviation / 2.0)
        );
        // What is as good as nothing does not differ.
        let spread = Spread::pooled([vec![0.0, 0.04]].iter().map(Vec::as_slice), 0.05);
        assert_eq!(spread.expect("it was repeated").deviation, 0.0);
        assert_eq!(Spread::pooled([vec![1.0]].iter().map(Vec::as_slice), 0.0), None);
    }

    /// A thousand times two equal configurations, each of three works measured twice: a verdict that tells them apart
    /// in one of a hundred is right.
    #[test]
    fn equal_configurations_are_seldom_told_apart() {
        let random = SeededRandom::new(11);
        let figure = || {
            let sum: f64 = (0..12).map(|_| random.next_u64() as f64 / u64::MAX as f64).sum();
            1000.0 * (1.0 + 0.15 * (sum - 6.0))
        };
        let mut told_apart = 0;
        for _ in 0..1000 {
            let groups: Vec<[f64; 2]> = (0..6).map(|_| [figure(), figure()]).collect();
            let spread = Spread::pooled(groups.iter().map(<[f64; 2]>::as_slice), 0.0);
            let of = |group: &[f64; 2]| Estimate::new((group[0] + group[1]) / 2.0, 2, &[], spread, 0.0);
            let ratio = Ratio::of(&of(&groups[0]), &of(&groups[1])).expect("both are positive");
            told_apart += usize::from(ratio.low > 1.0 || ratio.high < 1.0);
        }
        assert!((1..=25).contains(&told_apart), "seed 11: {told_apart} of 1000");
    }

    #[test]
    fn quantiles_are_those_of_the_printed_tables() {
        for (probability, freedom, printed) in [
            (0.01, 1.0, 63.657),
            (0.01, 2.0, 9.925),
            (0.01, 3.0, 5.841),
            (0.01, 4.0, 4.604),
            (0.01, 10.0, 3.169),
            (0.01, 19.0, 2.861),
            (0.01, 120.0, 2.617),
            (0.01, f64::INFINITY, 2.576),
            (0.05, 5.0, 2.571),
            (0.001, 7.0, 5.408),
            (0.001, 30.0, 3.646),
            (0.0001, f64::INFINITY, 3.891),
        ] {
            let found = student(probability, freedom);
            assert!(
                (found / printed - 1.0f64).abs() < 0.003,
                "{probability}, {freedom}: {found} is not {printed}"
            );
        }
        assert_eq!(student(0.01, 0.2), student(0.01, 1.0));
    }

    #[test]
    fn many_comparisons_have_wider_intervals() {
        let of = |value| Estimate::new(value, 1, &[], None, 0.02);
        let (a, b) = (of(1.1), of(1.0));
        let (one, many) = (Ratio::of(&a, &b), Ratio::among(&a, &b, 300));
        let (one, many) = (one.expect("both are positive"), many.expect("both are positive"));
        assert!(one.low > 1.0 && many.low < 1.0 && many.high > one.high && many.value == one.value);
    }

    #[test]
    fn there_is_no_ratio_to_nothing() {
        let of = |value| Estimate::new(value, 1, &[], None, 0.1);
        assert_eq!(Ratio::of(&of(1.0), &of(0.0)), None);
        assert_eq!(Ratio::of(&of(0.0), &of(1.0)), None);
    }
}
