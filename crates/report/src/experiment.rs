//! Which runs belong together: the same work on several configurations, and repetitions of it on one.

use crate::measure::Measure;
use crate::noise::Spread;
use crate::{Configuration, Outcome, Pacing, Run, Session, number};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parameters that files of earlier builds lack, whatever was chosen.
const ADDED: [&str; 3] = ["diskBytesPerSecond", "duration", "memoryBytes"];

/// What makes two runs the same work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work<'a> {
    /// The workload.
    pub workload: &'a str,
    /// Its phase.
    pub phase: &'a str,
    /// What decides the amount and kind of work.
    pub parameters: &'a BTreeMap<String, String>,
    /// Connections that worked at once.
    pub clients: u32,
    /// Who decided when an operation started.
    pub pacing: Pacing,
}

/// Repetitions of one work on one configuration.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    /// What was measured.
    pub configuration: &'a Configuration,
    /// The repetitions that measured something, in order.
    pub runs: Vec<&'a Run>,
    /// The repetitions that failed, were refused or skipped: what they measured is not of the work.
    pub without: Vec<&'a Run>,
    /// How much repetitions differ.
    pub spreads: Arc<Spreads>,
}

/// How much repetitions of the same differ, by kind of measure.
#[derive(Clone, Debug, Default)]
pub struct Spreads(BTreeMap<Measure, Spread>);

impl Spreads {
    /// Of one measure.
    pub fn of(&self, measure: &Measure) -> Option<Spread> {
        self.0.get(&measure.kind()).copied()
    }

    fn among<'p, 'r: 'p>(pools: impl Iterator<Item = &'p Pool<'r>>) -> Self {
        let mut groups: BTreeMap<Measure, Vec<Vec<f64>>> = BTreeMap::new();
        for pool in pools {
            for measure in Measure::of(pool) {
                let values = pool.runs.iter().filter_map(|run| measure.value(run)).collect();
                groups.entry(measure.kind()).or_default().push(values);
            }
        }
        let spread = |(measure, groups): (Measure, Vec<Vec<f64>>)| {
            let pooled = Spread::pooled(groups.iter().map(Vec::as_slice), measure.none_below())?;
            Some((measure, pooled))
        };
        Self(groups.into_iter().filter_map(spread).collect())
    }
}

/// One work on all configurations that did it.
#[derive(Clone, Debug)]
pub struct Experiment<'a> {
    /// What was done.
    pub work: Work<'a>,
    /// By whom, in the order of the session.
    pub pools: Vec<Pool<'a>>,
}

impl<'a> Work<'a> {
    /// The work of a run.
    pub fn of(run: &'a Run) -> Self {
        Self {
            workload: &run.workload,
            phase: &run.phase,
            parameters: &run.parameters,
            clients: run.clients,
            pacing: run.pacing,
        }
    }

    /// The parameters that an older work, else the same, does not tell; `None` when the two differ in anything else.
    pub fn added_to(&self, older: &Work<'_>) -> Option<Vec<String>> {
        let is_added = |name: &str| ADDED.contains(&name) && !older.parameters.contains_key(name);
        let mut told = self.parameters.clone();
        told.retain(|name, _| !is_added(name));
        let is_same = self.workload == older.workload
            && self.phase == older.phase
            && self.clients == older.clients
            && self.pacing == older.pacing
            && told == *older.parameters;
        let added = || self.parameters.keys().filter(|name| is_added(name)).cloned().collect();
        is_same.then(added)
    }

    /// Workload and phase.
    pub fn name(&self) -> String {
        format!("{}, {}", self.workload, self.phase)
    }

    /// What else tells it from other works, in words.
    pub fn detail(&self) -> String {
        self.detail_but(&BTreeMap::new())
    }

    /// [`Self::detail`] without parameters that are said elsewhere.
    pub fn detail_but(&self, said: &BTreeMap<String, String>) -> String {
        let clients = match self.clients {
            1 => "1 client".to_owned(),
            clients => format!("{clients} clients"),
        };
        let pacing = match self.pacing {
            Pacing::Closed => "closed loop".to_owned(),
            Pacing::Open { rate } => format!("open loop at {}/s", number::short(rate)),
        };
        let unsaid = self
            .parameters
            .iter()
            .filter(|(name, value)| said.get(*name) != Some(*value));
        let parameters = unsaid.map(|(name, value)| format!("{name} {value}"));
        [clients, pacing]
            .into_iter()
            .chain(parameters)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl<'a> Experiment<'a> {
    /// The experiments of a session in the order of their first runs.
    pub fn all(session: &'a Session) -> Vec<Self> {
        let mut experiments: Vec<Self> = Vec::new();
        for run in &session.runs {
            let work = Work::of(run);
            let index = experiments.iter().position(|experiment| experiment.work == work);
            let index = index.unwrap_or_else(|| {
                experiments.push(Self {
                    work,
                    pools: Vec::new(),
                });
                experiments.len() - 1
            });
            experiments[index].add(run);
        }
        // What the user cut short is shown where there is nothing else, and counts for nothing where there is.
        for pool in experiments.iter_mut().flat_map(|experiment| &mut experiment.pools) {
            if pool.runs.iter().any(|run| run.outcome == Outcome::Complete) {
                pool.runs.retain(|run| run.outcome == Outcome::Complete);
            }
        }
        // Few repetitions of one work may look alike by chance; those of all works seldom do.
        let of_session = Spreads::among(experiments.iter().flat_map(|experiment| &experiment.pools));
        for experiment in &mut experiments {
            let own = Spreads::among(experiment.pools.iter());
            let spreads = of_session.0.iter().map(|(measure, spread)| {
                let own = own.0.get(measure).copied();
                (measure.clone(), spread.at_least(own))
            });
            let spreads = Arc::new(Spreads(spreads.collect()));
            for pool in &mut experiment.pools {
                pool.spreads = Arc::clone(&spreads);
            }
        }
        experiments
    }

    /// The largest share of the machine's processors that other programs took while something was measured, where that
    /// is so much that nothing can be said.
    pub fn disturbed(&self) -> Option<f64> {
        let runs = self.pools.iter().flat_map(|pool| &pool.runs);
        runs.filter_map(|run| run.disturbed()).reduce(f64::max)
    }

    /// The p99 of the most frequent operation, of the first configuration that has any.
    pub fn busiest(&self) -> Option<Measure> {
        let name = self.pools.iter().find_map(|pool| pool.operations().first().copied());
        name.map(|name| Measure::P99(name.to_owned()))
    }

    fn add(&mut self, run: &'a Run) {
        let same = |pool: &&mut Pool<'a>| pool.configuration.label == run.configuration.label;
        let pool = match self.pools.iter_mut().find(same) {
            Some(pool) => pool,
            None => {
                self.pools.push(Pool {
                    configuration: &run.configuration,
                    runs: Vec::new(),
                    without: Vec::new(),
                    spreads: Arc::default(),
                });
                self.pools.last_mut().expect("it was just added")
            }
        };
        match run.outcome {
            Outcome::Complete | Outcome::Interrupted => pool.runs.push(run),
            Outcome::Failed { .. } | Outcome::Refused { .. } | Outcome::Skipped { .. } => pool.without.push(run),
        }
    }

    /// The runs of one configuration.
    pub fn pool(&self, label: &str) -> Option<&Pool<'a>> {
        self.pools.iter().find(|pool| pool.configuration.label == label)
    }
}

impl<'a> Pool<'a> {
    /// The repetition that charts and tables of single runs show: the one in the middle by throughput, of two the
    /// slower.
    pub fn typical(&self) -> Option<&'a Run> {
        let mut runs = self.runs.clone();
        let rate = |run: &Run| run.rate().unwrap_or(0.0);
        runs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        runs.get(runs.len().saturating_sub(1) / 2).copied()
    }
}

impl Pool<'_> {
    /// Names of the operations of all repetitions, the most frequent first.
    pub fn operations(&self) -> Vec<&str> {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, operation) in self.runs.iter().flat_map(|run| &run.operations) {
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(operation.count);
        }
        let mut names: Vec<_> = counts.into_iter().collect();
        names.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        names.into_iter().map(|(name, _)| name).collect()
    }
}

/// Labels of the configurations of a session in the order of their first runs.
pub fn labels(session: &Session) -> Vec<&str> {
    let mut labels = Vec::new();
    for run in &session.runs {
        let label = run.configuration.label.as_str();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Machine, Operation};

    /// Ten seconds of reading.
    pub(crate) fn run(label: &str, phase: &str, count: u64) -> Run {
        let configuration = Configuration {
            label: label.to_owned(),
            server_version: "tenond 1".to_owned(),
            ..Configuration::default()
        };
        let mut run = Run::new("ycsb", phase, configuration);
        run.seconds = 10.0;
        let operation = Operation {
            count,
            errors: 0,
            latency: None,
        };
        run.operations.insert("read".to_owned(), operation);
        run
    }

    #[test]
    fn the_typical_repetition_is_the_one_in_the_middle() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        for (repetition, count) in [(0, 500), (1, 100), (2, 900), (3, 200)] {
            let mut run = run("btree", "a", count);
            run.repetition = repetition;
            session.runs.push(run);
        }
        let typical = |session: &Session| Experiment::all(session)[0].pools[0].typical().map(Run::count);
        assert_eq!(typical(&session), Some(200), "of two in the middle the slower");
        let says =
            |session: &Session| crate::html::page(session).contains("of the repetition in the middle by throughput");
        assert!(says(&session));
        session.runs.pop();
        assert_eq!(typical(&session), Some(500));
        session.runs.truncate(1);
        assert!(!says(&session), "there is but one");
        session.runs.truncate(0);
        assert!(Experiment::all(&session).is_empty());
    }
}
