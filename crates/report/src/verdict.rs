//! Which configuration is best by which measure, by how much, and how sure that is.

use crate::Experiment;
use crate::experiment::Pool;
use crate::measure::{Measure, TOLERANCE, Verdict};
use crate::noise::{Basis, Estimate, Ratio};
use crate::number;

/// All configurations of an experiment by one measure.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    /// The measure.
    pub measure: Measure,
    /// Label and figure of each configuration, the best first.
    pub places: Vec<Place<'a>>,
    /// How many of the first places are not told apart.
    pub leaders: usize,
    /// The share of the processors that other programs took, where that rules a verdict out.
    pub disturbed: Option<f64>,
}

/// One configuration in a [`Standing`].
#[derive(Clone, Debug)]
pub struct Place<'a> {
    /// Its label.
    pub label: &'a str,
    /// Its figure.
    pub estimate: Estimate,
    /// How much better the best one is (above 1 means better); `None` for the best one itself, and beside zero.
    pub behind: Option<Ratio>,
    /// What the best one is, compared with it.
    pub verdict: Verdict,
}

impl<'a> Standing<'a> {
    /// The standings of an experiment in which two configurations or more can be compared.
    pub fn all(experiment: &Experiment<'a>) -> Vec<Self> {
        let mut measures: Vec<Measure> = Vec::new();
        for measure in experiment.pools.iter().flat_map(Measure::of) {
            if !measures.contains(&measure) {
                measures.push(measure);
            }
        }
        measures.sort_by_key(rank);
        measures
            .into_iter()
            .filter_map(|measure| Self::of(experiment, measure))
            .collect()
    }

    /// The standing by one measure.
    pub fn of(experiment: &Experiment<'a>, measure: Measure) -> Option<Self> {
        let first = experiment.pools.first()?;
        let comparable = |pool: &&Pool| measure.comparable(first, pool);
        if !experiment.pools.iter().all(|pool| comparable(&pool)) {
            return None;
        }
        let figure = |pool: &Pool<'a>| Some((pool.configuration.label.as_str(), measure.estimate(pool)?));
        let mut figures: Vec<_> = experiment.pools.iter().filter_map(figure).collect();
        if figures.len() < 2 {
            return None;
        }
        figures.sort_by(|a, b| {
            let order = a.1.value.total_cmp(&b.1.value);
            if measure.more_is_better() {
                order.reverse()
            } else {
                order
            }
        });
        let best = figures[0].1;
        let disturbed = experiment.disturbed();
        let comparisons = (figures.len() - 1) * Measure::of(first).len();
        let places: Vec<Place> = figures
            .into_iter()
            .enumerate()
            .map(|(index, (label, estimate))| {
                if index == 0 {
                    return Place {
                        label,
                        estimate,
                        behind: None,
                        verdict: Verdict::Same,
                    };
                }
                let (ratio, verdict) = measure.judge(&best, &estimate, TOLERANCE, comparisons);
                let verdict = match disturbed {
                    Some(_) if verdict == Verdict::Better => Verdict::Unclear,
                    _ => verdict,
                };
                // Of nothing there are no multiples.
                let is_something = best.value.min(estimate.value) > measure.none_below();
                let behind = ratio.filter(|_| is_something).map(|ratio| {
                    if measure.more_is_better() {
                        ratio
                    } else {
                        ratio.inverse()
                    }
                });
                Place {
                    label,
                    estimate,
                    behind,
                    verdict,
                }
            })
            .collect();
        let leaders = places
            .iter()
            .take_while(|place| place.verdict != Verdict::Better)
            .count();
        Some(Self {
            measure,
            places,
            leaders,
            disturbed,
        })
    }

    /// The one best configuration, when there is one.
    pub fn winner(&self) -> Option<&Place<'a>> {
        (self.leaders == 1).then(|| &self.places[0])
    }

    /// It in a sentence, such as `btree: 12,345/s, 1.42x better than rocksdb (99 % sure of 1.30x to 1.55x)`.
    pub fn sentence(&self) -> String {
        let best = &self.places[0];
        let value = self.measure.show(best.estimate.value);
        if self.leaders == self.places.len() {
            let unclear = self.places.iter().any(|place| place.verdict == Verdict::Unclear);
            let why = match self.disturbed {
                _ if !unclear => "no difference that matters".to_owned(),
                Some(share) => format!("other programs took {} of the processors", number::percent(share)),
                None if self.was_measured_once() => "it was measured once".to_owned(),
                None => "the noise is larger than the differences".to_owned(),
            };
            return format!(
                "no winner: {why} ({} to {})",
                value,
                self.measure.show(self.worst().estimate.value)
            );
        }
        let next = &self.places[self.leaders];
        let lead = match next.behind {
            Some(ratio) => format!(
                "{} better than {} {}",
                number::ratio(ratio.value),
                next.label,
                sureness(ratio)
            ),
            None => format!("against {} of {}", self.measure.show(next.estimate.value), next.label),
        };
        let names: Vec<_> = self.places[..self.leaders].iter().map(|place| place.label).collect();
        match names.as_slice() {
            [one] => format!("{one}: {value}, {lead}"),
            many => format!("{} share the lead at about {value}, {lead}", and(many)),
        }
    }

    /// True when nothing was repeated that would show how much repetitions differ.
    pub fn was_measured_once(&self) -> bool {
        self.places.iter().any(|place| place.estimate.basis == Basis::Once)
    }

    fn worst(&self) -> &Place<'a> {
        self.places.last().expect("a standing has two places")
    }
}

/// The order of measures in texts.
fn rank(measure: &Measure) -> (usize, usize) {
    match measure {
        Measure::Throughput => (0, 0),
        Measure::Cold => (1, 0),
        Measure::Cached => (2, 0),
        Measure::P99(_) => (3, 0),
        Measure::ServerCpu => (4, 0),
        Measure::Read => (5, 0),
        Measure::DiskReads => (6, 0),
        Measure::Written => (7, 0),
        Measure::Size => (8, 0),
        Measure::Memory => (9, 0),
        Measure::Start => (10, 0),
        Measure::Stop => (11, 0),
    }
}

fn sureness(ratio: Ratio) -> String {
    let (low, high) = (number::ratio(ratio.low), number::ratio(ratio.high));
    format!("(99 % sure of {low} to {high})")
}

/// `a`, `a and b`, `a, b and c`.
pub fn and(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
