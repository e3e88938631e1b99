//! The columns in which LinkBench results of 2016 were published (Small Datum, "MongoRocks and WiredTiger versus
//! linkbench on a small server"), with the figures of this session.

use super::{Page, one_of_many, or_dash};
use crate::experiment::Pool;
use crate::{Experiment, Run, number};
use maud::{Markup, html};

/// Head of a column and its figure.
type Column = (&'static str, fn(&Run) -> Option<String>);

const LOAD: [Column; 5] = [
    ("ips", |run| run.rate().map(|rate| format!("{rate:.0}"))),
    ("wKB/i", |run| kilobytes(run, run.written_bytes)),
    ("Mcpu/i", |run| run.server_cpu_us_per_operation().map(number::short)),
    ("size GB", |run| gigabytes(run.file_bytes)),
    ("rss GB", |run| gigabytes(run.rss_peak_bytes)),
];

const QUERY: [Column; 11] = [
    ("tps", |run| run.rate().map(|rate| format!("{rate:.0}"))),
    ("r/t", |run| {
        run.per_operation(run.read_requests).map(|reads| format!("{reads:.2}"))
    }),
    ("rKB/t", |run| kilobytes(run, run.read_bytes)),
    ("wKB/t", |run| kilobytes(run, run.written_bytes)),
    ("Mcpu/t", |run| run.server_cpu_us_per_operation().map(number::short)),
    ("size GB", |run| gigabytes(run.file_bytes)),
    ("rss GB", |run| gigabytes(run.rss_peak_bytes)),
    ("un ms", |run| p99(run, "updateNode")),
    ("gn ms", |run| p99(run, "getNode")),
    ("ul ms", |run| p99(run, "updateLink")),
    ("gll ms", |run| p99(run, "getLinkList")),
];

fn kilobytes(run: &Run, bytes: Option<u64>) -> Option<String> {
    run.per_operation(bytes).map(|bytes| format!("{:.2}", bytes / 1e3))
}

fn gigabytes(bytes: Option<u64>) -> Option<String> {
    bytes.map(|bytes| number::short(bytes as f64 / 1e9))
}

fn p99(run: &Run, operation: &str) -> Option<String> {
    let latency = run.operations.get(operation)?.latency.as_ref()?;
    Some(number::short(latency.p99_ns as f64 / 1e6))
}

/// The tables of all loads and queries.
pub fn section(page: &Page, experiments: &[Experiment]) -> Markup {
    let phase = |name: &'static str| {
        experiments
            .iter()
            .filter(move |experiment| experiment.work.phase == name)
    };
    html! {
        p { "A social graph: nodes, links between them and counts of links, loaded first, then read and changed in the published mix." }
        @for load in phase("load") { (table(page, load, "Load", &LOAD)) }
        @for query in phase("query") { (table(page, query, "Query", &QUERY)) }
        p.small.soft {
            "ips, tps: inserts and transactions per second. r/t: reads of the device per transaction. rKB, wKB: kilobytes (1000) read and written by the "
            "server, per insert or transaction. Mcpu: microseconds of the server's processor time, likewise. rss: peak memory. un, gn, ul, gll: p99 in "
            "milliseconds of updateNode, getNode, updateLink and getLinkList."
        }
        (one_of_many(experiments))
    }
}

fn table(page: &Page, experiment: &Experiment, title: &str, columns: &[Column]) -> Markup {
    let first = |pool: &Pool, figure: fn(&Run) -> Option<String>| or_dash(pool.typical().and_then(figure));
    html! {
        div.scroll { table {
            caption { (title) ": " (page.detail(&experiment.work)) }
            thead { tr {
                th.name scope="col" { "configuration" }
                @for (head, _) in columns { th scope="col" { (head) } }
            } }
            tbody { @for pool in &experiment.pools {
                tr {
                    th.name scope="row" { (page.chip(&pool.configuration.label)) }
                    @for (_, figure) in columns { td { (first(pool, *figure)) } }
                }
            } }
        } }
    }
}
