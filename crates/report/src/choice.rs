//! Which configuration to choose for one work, and why: what the measured counters say for it, what it costs, and
//! where another one is the better choice.
//!
//! It knows no engine and no workload. What decides is the rate, or the latency where the rate was given; everything
//! else is a reason, by the same standings as the rest of the report: beyond noise and tolerance, or not at all.

use crate::Pacing;
use crate::experiment::{Experiment, Pool};
use crate::measure::{Measure, Verdict};
use crate::number;
use crate::verdict::{Standing, and};

/// See the module.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    /// The standing that decides.
    pub decides: Standing<'a>,
    /// The configurations to choose among: the best one, or those that are not told apart.
    pub first: Vec<&'a str>,
    /// What speaks for it, in sentences; of several none.
    pub because: Vec<String>,
    /// What others do better, in sentences; of several none.
    pub costs: Vec<String>,
    /// Others that are best by something, in sentences.
    pub instead: Vec<String>,
    /// Configurations without a figure, and why.
    pub without: Vec<String>,
}

impl<'a> Choice<'a> {
    /// The choice for a work that two configurations or more have done.
    pub fn of(experiment: &Experiment<'a>) -> Option<Self> {
        let decides = deciding(experiment).find_map(|measure| Standing::of(experiment, measure))?;
        let mut first: Vec<&str> = decides.places[..decides.leaders]
            .iter()
            .map(|place| place.label)
            .collect();
        // Who stands still is not to be chosen, however many operations there are between two halts.
        if first.iter().any(|label| !collapses(experiment, label)) {
            first.retain(|label| !collapses(experiment, label));
        }
        let standings: Vec<Standing> = counters(experiment)
            .into_iter()
            .filter(|measure| *measure != decides.measure)
            .filter_map(|measure| Standing::of(experiment, measure))
            .collect();
        let (mut because, mut costs) = (Vec::new(), Vec::new());
        if let [one] = first.as_slice() {
            if decides.winner().is_some_and(|winner| winner.label == *one) {
                because.push(lead(&decides));
            }
            for standing in &standings {
                let place = place_of(standing, one);
                because.extend(
                    place
                        .filter(|at| *at < standing.leaders)
                        .and_then(|_| reason(standing, one)),
                );
                costs.extend(place.filter(|at| *at >= standing.leaders).map(|at| cost(standing, at)));
            }
            costs.extend(collapse(experiment, one));
        }
        let others = experiment.pools.iter().map(|pool| pool.configuration.label.as_str());
        let others = others.filter(|label| first.len() != 1 || first[0] != *label);
        Some(Self {
            instead: others
                .filter_map(|label| instead(label, &standings, &decides, first.len() > 1 && first.contains(&label)))
                .collect(),
            without: experiment
                .pools
                .iter()
                .filter_map(|pool| without(pool, &decides))
                .collect(),
            decides,
            first,
            because,
            costs,
        })
    }

    /// `betree`, `btree or rocksdb`, or that it does not matter.
    pub fn name(&self) -> String {
        if self.decides.leaders == self.decides.places.len() && self.first.len() == self.decides.leaders {
            let unclear = self
                .decides
                .places
                .iter()
                .any(|place| place.verdict == Verdict::Unclear);
            return match unclear {
                true => "not told apart".to_owned(),
                false => "any".to_owned(),
            };
        }
        match self.first.as_slice() {
            [firsts @ .., last] if !firsts.is_empty() => format!("{} or {last}", firsts.join(", ")),
            one => one.concat(),
        }
    }

    /// Everything but the name, each group as a sentence.
    pub fn sentences(&self) -> Vec<String> {
        [
            ("Because of ", &self.because),
            ("It costs: ", &self.costs),
            ("Instead: ", &self.instead),
            ("Without a figure: ", &self.without),
        ]
        .into_iter()
        .filter(|(_, parts)| !parts.is_empty())
        .map(|(head, parts)| format!("{head}{}.", parts.join("; ")))
        .collect()
    }
}

/// What may decide, the first that was measured.
fn deciding(experiment: &Experiment) -> impl Iterator<Item = Measure> {
    let busiest = experiment
        .busiest()
        .filter(|_| matches!(experiment.work.pacing, Pacing::Open { .. }));
    busiest.into_iter().chain([Measure::Throughput])
}

/// The counters that reasons are drawn from.
fn counters(experiment: &Experiment) -> Vec<Measure> {
    let latency = experiment.busiest();
    let others = [
        Measure::ServerCpu,
        Measure::Written,
        Measure::DiskReads,
        Measure::Read,
        Measure::Size,
        Measure::Memory,
        Measure::Cold,
    ];
    latency.into_iter().chain(others).collect()
}

fn place_of(standing: &Standing, label: &str) -> Option<usize> {
    standing.places.iter().position(|place| place.label == label)
}

/// `12,345/s, 1.42x better than rocksdb`.
fn lead(standing: &Standing) -> String {
    let (best, next) = (&standing.places[0], &standing.places[standing.leaders]);
    let value = standing.measure.show(best.estimate.value);
    let behind = match next.behind {
        Some(ratio) => format!("{} better than {}", number::ratio(ratio.value), next.label),
        None => format!(
            "against {} of {}",
            standing.measure.show(next.estimate.value),
            next.label
        ),
    };
    format!("{} {value}, {behind}", standing.measure.name())
}

/// Why a counter speaks for one of its leaders; `None` when nobody is behind.
fn reason(standing: &Standing, label: &str) -> Option<String> {
    if standing.leaders == standing.places.len() {
        return None;
    }
    if standing.leaders == 1 {
        return Some(lead(standing));
    }
    let place = standing.places.iter().find(|place| place.label == label)?;
    let shared: Vec<&str> = standing.places[..standing.leaders]
        .iter()
        .map(|place| place.label)
        .filter(|other| *other != label)
        .collect();
    let value = standing.measure.show(place.estimate.value);
    Some(format!("{} {value}, as {}", standing.measure.name(), and(&shared)))
}

/// What the best one by a counter does better than the one at a place.
fn cost(standing: &Standing, at: usize) -> String {
    let (best, place) = (&standing.places[0], &standing.places[at]);
    let show = |value| standing.measure.show(value);
    let times = place
        .behind
        .map_or_else(String::new, |ratio| format!(", {} better", number::ratio(ratio.value)));
    format!(
        "{} {}, of {} {}{times}",
        standing.measure.name(),
        show(place.estimate.value),
        best.label,
        show(best.estimate.value)
    )
}

/// By which counters another one is best alone, and what it gives of what decides.
fn instead(label: &str, standings: &[Standing], decides: &Standing, is_first: bool) -> Option<String> {
    let best: Vec<String> = standings
        .iter()
        .filter(|standing| standing.winner().is_some_and(|winner| winner.label == label))
        .map(lead)
        .collect();
    if best.is_empty() {
        return None;
    }
    let place = &decides.places[place_of(decides, label)?];
    let given = match place.behind {
        _ if is_first => format!("{} not told apart", decides.measure.name()),
        Some(ratio) if ratio.value > 0.0 => {
            let share = match decides.measure.more_is_better() {
                true => 1.0 / ratio.value,
                false => ratio.value,
            };
            format!("at {} of the {}", number::percent(share), decides.measure.name())
        }
        _ => format!(
            "at {} {}",
            decides.measure.name(),
            decides.measure.show(place.estimate.value)
        ),
    };
    Some(format!("{label} for {} ({given})", best.join(", ")))
}

fn collapses(experiment: &Experiment, label: &str) -> bool {
    collapse(experiment, label).is_some()
}

/// That a configuration nearly stood still for a second.
fn collapse(experiment: &Experiment, label: &str) -> Option<String> {
    let parts = experiment.pool(label)?.runs.iter().filter_map(|run| run.collapsed());
    let least = parts.reduce(f64::min)?;
    Some(format!(
        "its slowest second had {} of a good one's operations",
        number::percent(least)
    ))
}

/// Why a configuration has no place in the standing.
fn without(pool: &Pool, decides: &Standing) -> Option<String> {
    let label = pool.configuration.label.as_str();
    if place_of(decides, label).is_some() {
        return None;
    }
    let why = pool.without.first().map_or("not measured", |run| run.outcome.word());
    Some(format!("{label} ({why})"))
}
