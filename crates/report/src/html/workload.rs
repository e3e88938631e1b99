//! One section per workload: its phases together, then each by itself.

use super::charts::{Bar, Charts, Unit};
use super::{Page, book, experiment, linkbench, replica_set, stress, transactions};
use crate::Experiment;
use crate::measure::Measure;
use maud::{Markup, html};

/// Phases from which a chart of all of them helps.
const OVERVIEW_PHASES_MIN: usize = 3;

/// The experiments of one workload.
pub struct Workload<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its phases and variants.
    pub experiments: Vec<Experiment<'a>>,
}

/// The workloads of a session in their order.
pub fn all(session: &crate::Session) -> Vec<Workload<'_>> {
    let mut workloads: Vec<Workload> = Vec::new();
    for experiment in Experiment::all(session) {
        let name = experiment.work.workload;
        match workloads.iter_mut().find(|workload| workload.name == name) {
            Some(workload) => workload.experiments.push(experiment),
            None => workloads.push(Workload {
                name,
                experiments: vec![experiment],
            }),
        }
    }
    workloads
}

impl Workload<'_> {
    /// The name of its place in the page.
    pub fn anchor(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        format!("workload-{}", self.name.chars().map(plain).collect::<String>())
    }

    /// Its section.
    pub fn section(&self, page: &Page, charts: &mut Charts) -> Markup {
        html! {
            section id=(self.anchor()) {
                h2 { (self.name) }
                @match self.name {
                    "book" => { (book::section(page, &self.experiments, charts)) }
                    "linkbench" => { (linkbench::section(page, &self.experiments)) }
                    "replicaSet" => { (replica_set::section(page, &self.experiments)) }
                    "stress" => { (stress::section(page, &self.experiments)) }
                    "transactions" => { (transactions::section(page, &self.experiments)) }
                    _ => {}
                }
                (self.overview(page, charts))
                @for experiment in &self.experiments { (experiment::section(page, experiment, charts)) }
            }
        }
    }

    /// Throughput of all phases beside each other.
    fn overview(&self, page: &Page, charts: &mut Charts) -> Markup {
        if self.experiments.len() < OVERVIEW_PHASES_MIN {
            return html! {};
        }
        html! {
            h3 { "All phases: operations per second" }
            div.grid {
                @for experiment in &self.experiments {
                    (charts.bars(&format!("{} ({})", experiment.work.phase, page.detail(&experiment.work)), "", Unit::Number, bars(page, experiment, &Measure::Throughput)))
                }
            }
        }
    }
}

/// One bar per configuration that has the figure.
pub fn bars(page: &Page, experiment: &Experiment, measure: &Measure) -> Vec<Bar> {
    let bar = |pool: &crate::Pool| {
        let label = pool.configuration.label.clone();
        Some(Bar {
            color: page.color(&label),
            label,
            parts: vec![measure.estimate(pool)?.value],
        })
    };
    experiment.pools.iter().filter_map(bar).collect()
}
