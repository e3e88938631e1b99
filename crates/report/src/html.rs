//! The page for people: one file with everything in it, that fetches nothing.
//!
//! All text of results goes through `maud`, which escapes it, or into a JSON block whose `<` are escaped; the scripts
//! set text, never markup. A content policy in the page forbids every request besides.

mod book;
mod charts;
mod compared;
mod experiment;
mod linkbench;
mod replica_set;
mod setup;
mod stress;
mod summary;
mod transactions;
mod workload;

use crate::verdict::and;
use crate::{Comparison, Experiment, Session, Work, labels};
use charts::Charts;
use jiff::Timestamp;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::BTreeMap;

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
const D3: &str = include_str!("../assets/vendor/d3.min.js");
const PLOT: &str = include_str!("../assets/vendor/plot.umd.min.js");
/// The licence of both libraries; their copyright lines stand in the files.
const LIBRARIES_LICENSE: &str = include_str!("../assets/vendor/LICENSE.plot");
/// Only what is in the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// The page of a session.
pub fn page(session: &Session) -> String {
    let page = Page::new(session);
    let mut charts = Charts::default();
    let workloads = workload::all(session);
    let sections: Vec<Markup> = workloads
        .iter()
        .map(|workload| workload.section(&page, &mut charts))
        .collect();
    let names: Vec<&str> = workloads.iter().map(|workload| workload.name).collect();
    let title = match names.as_slice() {
        [] => "Benchmark report".to_owned(),
        names => format!("Benchmark report: {}", and(names)),
    };
    let body = html! {
        header.top {
            h1 { (title) }
            p.lead { (labels(session).join(" · ")) }
            p.lead.small { (moment(session.started_ms)) " · " (session.tool) @if !session.machine.cpu.is_empty() { " · " (session.machine.cpu) } }
            nav aria-label="Contents" {
                a href="#verdict" { "Verdict" }
                @for workload in &workloads { a href={ "#" (workload.anchor()) } { (workload.name) } }
                a href="#configurations" { "Configurations" }
                a href="#machine" { "Machine" }
                a href="#reading" { "How to read this" }
            }
        }
        main {
            (summary::section(&page))
            @for section in &sections { (section) }
            (setup::sections(&page))
        }
    };
    shell(&title, body, Some(&charts))
}

/// The page of a comparison of two sessions.
pub fn comparison_page(comparison: &Comparison, before: &Session, after: &Session) -> String {
    shell(
        "Compared: before and after",
        compared::body(comparison, before, after),
        None,
    )
}

/// A session and the look of its configurations.
struct Page<'a> {
    session: &'a Session,
    labels: Vec<&'a str>,
    /// The parameters that every run has, with the same value.
    shared: BTreeMap<String, String>,
}

impl<'a> Page<'a> {
    fn new(session: &'a Session) -> Self {
        let mut shared = session
            .runs
            .first()
            .map(|run| run.parameters.clone())
            .unwrap_or_default();
        shared.retain(|name, value| session.runs.iter().all(|run| run.parameters.get(name) == Some(value)));
        Self {
            session,
            labels: labels(session),
            shared,
        }
    }

    /// What tells a work from others, without what all have.
    fn detail(&self, work: &Work) -> String {
        work.detail_but(&self.shared)
    }

    /// The number of a configuration's colour.
    fn color(&self, label: &str) -> usize {
        self.labels.iter().position(|known| *known == label).unwrap_or(0)
    }

    /// A configuration's name beside its colour.
    fn chip(&self, label: &str) -> Markup {
        let color = self.color(label) % charts::COLORS;
        html! { span.chip style={ "--chip: var(--c" (color) ")" } { (label) } }
    }

    /// The names beside their colours, for a chart.
    fn legend<'l>(&self, labels: impl Iterator<Item = &'l str>) -> Markup {
        html! { ul.legend { @for label in labels { li { (self.chip(label)) } } } }
    }
}

/// The document around a page's body.
fn shell(title: &str, body: Markup, charts: Option<&Charts>) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (body)
                footer {
                    p { "This page is complete in itself: it fetches nothing and can be kept, sent and printed." }
                    @if charts.is_some() {
                        p { "Charts by Observable Plot and D3, used under the ISC licence, which is in the page's source." }
                    }
                }
                @if let Some(charts) = charts {
                    noscript { p.warning { "The charts need JavaScript. All their figures are in the tables." } }
                    script { (PreEscaped(D3)) }
                    script { (PreEscaped(PLOT)) }
                    script type="text/plain" { (PreEscaped(LIBRARIES_LICENSE)) }
                    script type="application/json" id="data" { (PreEscaped(charts.json())) }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
    };
    document.into_string()
}

/// A moment in words, in UTC.
fn moment(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        Err(_) => "an unknown time".to_owned(),
    }
}

/// Under tables whose figures are those of one run: which one, when there are several.
fn one_of_many(experiments: &[Experiment]) -> Markup {
    let mut pools = experiments.iter().flat_map(|experiment| &experiment.pools);
    let is_repeated = pools.any(|pool| pool.runs.len() > 1);
    html! { @if is_repeated { p.small.soft { "These figures are of the repetition in the middle by throughput." } } }
}

/// A figure or a dash.
fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}
