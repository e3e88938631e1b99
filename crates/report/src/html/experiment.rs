//! One work on all configurations: its winners, charts and tables.

use super::charts::{Bar, Charts, LineOf, Size, Unit, line_of, passes_of, percentiles_domain};
use super::workload::bars;
use super::{Page, or_dash};
use crate::experiment::Pool;
use crate::measure::{Measure, TOLERANCE};
use crate::verdict::Standing;
use crate::{Experiment, Outcome, Run, Series, number};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// Operations whose latencies are shown without being asked for.
const LATENCY_OPEN_MAX: usize = 3;
/// Operations with a chart of their own; the table has all.
const PERCENTILE_CHARTS_MAX: usize = 10;
/// A figure that the table derives.
const GENERATOR_SHARE: &str = "generatorCpuShare";
/// The measures of the table of the whole run.
const WHOLE_RUN: [Measure; 11] = [
    Measure::Throughput,
    Measure::Cold,
    Measure::Cached,
    Measure::ServerCpu,
    Measure::Read,
    Measure::DiskReads,
    Measure::Written,
    Measure::Size,
    Measure::Memory,
    Measure::Start,
    Measure::Stop,
];
/// Passes from which they make a line.
const PASSES_LINE_MIN: usize = 3;

/// The part of the page about one experiment.
pub fn section(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let work = &experiment.work;
    let labels = experiment.pools.iter().map(|pool| pool.configuration.label.as_str());
    html! {
        article {
            h3 { (work.name()) }
            p.lead { (page.detail(work)) }
            (failures(experiment))
            (winners(page, experiment))
            @if experiment.pools.len() > 1 { (page.legend(labels)) }
            (time_lines(page, experiment, charts))
            (passes(page, experiment, charts))
            (costs(page, experiment, charts))
            (latencies(page, experiment, charts))
            (figures(page, experiment))
            (operations(page, experiment))
            (more_time_lines(page, experiment, charts))
        }
    }
}

/// What failed or was interrupted here, and what is not to be had.
fn failures(experiment: &Experiment) -> Markup {
    let runs = experiment
        .pools
        .iter()
        .flat_map(|pool| pool.without.iter().chain(&pool.runs));
    let (broken, ruled_out): (Vec<_>, Vec<_>) = runs
        .filter(|run| !run.is_complete())
        .map(|run| (run.configuration.label.as_str(), &run.outcome))
        .partition(|(_, outcome)| outcome.is_partial());
    let words = |outcome: &Outcome| match outcome {
        Outcome::Refused { message } => format!("refused by the server: {message}"),
        Outcome::Skipped { message } => format!("not tried: {message}"),
        Outcome::Failed { message } => message.clone(),
        Outcome::Complete | Outcome::Interrupted => {
            "was interrupted; the figures are of what was done by then.".to_owned()
        }
    };
    html! {
        @if !broken.is_empty() {
            div.warning role="note" { @for (label, outcome) in &broken { p { strong { (label) } ": " (words(outcome)) } } }
        }
        @for (label, outcome) in &ruled_out { p.soft { strong { (label) } ": " (words(outcome)) } }
    }
}

/// Who is best by what. The figures themselves are in the table of the whole run.
fn winners(page: &Page, experiment: &Experiment) -> Markup {
    let standings = Standing::all(experiment);
    let (clear, open): (Vec<_>, Vec<_>) = standings
        .iter()
        .partition(|standing| standing.leaders < standing.places.len());
    let open: Vec<String> = open.iter().map(|standing| standing.measure.name()).collect();
    html! {
        @if !clear.is_empty() {
            div.scroll { table {
                thead { tr {
                    th.name scope="col" { "best by" }
                    th.left scope="col" { "configuration" }
                    th scope="col" { "figure" }
                    th scope="col" { "better than the next" }
                    th scope="col" { "99 % interval" }
                    th.left scope="col" { "the next" }
                } }
                tbody { @for standing in &clear { (winner(page, standing)) } }
            } }
        }
        @if !open.is_empty() {
            p.soft.small { "No differences beyond noise and " (number::percent(TOLERANCE)) ": " (open.join(", ")) "." }
        }
    }
}

fn winner(page: &Page, standing: &Standing) -> Markup {
    let next = &standing.places[standing.leaders];
    html! {
        tr {
            th.name scope="row" { (standing.measure.name()) }
            td.wrap { @for place in &standing.places[..standing.leaders] { (page.chip(place.label)) " " } }
            td { (standing.measure.show(standing.places[0].estimate.value)) }
            td { (or_dash(next.behind.map(|ratio| number::ratio(ratio.value)))) }
            td { (or_dash(next.behind.map(|ratio| format!("{} to {}", number::ratio(ratio.low), number::ratio(ratio.high))))) }
            td.left { (next.label) " " span.soft { (standing.measure.show(next.estimate.value)) } }
        }
    }
}

/// One line per configuration of a column of its middle repetition.
fn lines(
    page: &Page,
    experiment: &Experiment,
    column: impl Fn(&Series) -> Vec<u64>,
    scale: impl Fn(&Series) -> f64,
) -> Vec<LineOf> {
    let line = |pool: &Pool| {
        let run = pool.typical()?;
        let label = &pool.configuration.label;
        Some(line_of(
            label,
            page.color(label),
            &run.series,
            &column(&run.series),
            scale(&run.series),
        ))
    };
    experiment.pools.iter().filter_map(line).collect()
}

fn time_lines(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let per_second = |series: &Series| 1.0 / series.interval_seconds;
    let caption = caption(experiment);
    if experiment.work.workload == "iibench" {
        let of = |name: &'static str| move |series: &Series| series.operations.get(name).cloned().unwrap_or_default();
        let queries = lines(page, experiment, of("query"), per_second);
        let any_query = queries
            .iter()
            .any(|line| line.points.iter().any(|point| point[1] > 0.0));
        return html! {
            (charts.over_time("Inserts per second", &caption, Unit::Number, Size::Wide, lines(page, experiment, of("insert"), per_second)))
            @if any_query { (charts.over_time("Queries per second", "", Unit::Number, Size::Wide, queries)) }
        };
    }
    charts.over_time(
        "Operations per second",
        &caption,
        Unit::Number,
        Size::Wide,
        lines(page, experiment, Series::total, per_second),
    )
}

fn caption(experiment: &Experiment) -> String {
    let repetitions = experiment.pools.iter().map(|pool| pool.runs.len()).max().unwrap_or(0);
    let stalled = experiment.pools.iter().filter_map(|pool| {
        let run = pool.typical()?;
        let seconds = stalled(run);
        (seconds > 0.0).then(|| format!("{} {}", pool.configuration.label, number::seconds(seconds)))
    });
    let stalled: Vec<_> = stalled.collect();
    let mut caption = String::from(
        "Seconds since the measurement began. The band shows the least and the most where several seconds share a point.",
    );
    if repetitions > 1 {
        caption.push_str(" The repetition in the middle by throughput is shown.");
    }
    if !stalled.is_empty() {
        caption.push_str(&format!(
            " Stalled, below half of the median or as good as still: {}.",
            stalled.join(", ")
        ));
    }
    caption
}

fn passes(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let has_passes = experiment
        .pools
        .iter()
        .flat_map(|pool| &pool.runs)
        .any(|run| !run.iterations.is_empty());
    // The book's reads are its figure 10.1, above.
    if !has_passes || (experiment.work.workload == "book" && experiment.work.phase == "read") {
        return html! {};
    }
    let line = |pool: &Pool| {
        Some(passes_of(
            &pool.configuration.label,
            page.color(&pool.configuration.label),
            pool.typical()?,
        ))
    };
    let of_passes: Vec<_> = experiment
        .pools
        .iter()
        .filter_map(line)
        .filter(|line| line.points.len() >= PASSES_LINE_MIN)
        .collect();
    html! {
        (charts.over_passes("Seconds per pass", "", of_passes))
        div.grid {
            (charts.bars("Cold pass", "The page cache was dropped and the server's cache was empty.", Unit::Seconds, bars(page, experiment, &Measure::Cold)))
            (charts.bars("Cached pass", "The mean of all passes that were not cold.", Unit::Seconds, bars(page, experiment, &Measure::Cached)))
        }
    }
}

/// Bars: what an operation costs, and what is kept.
fn costs(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let with = |pool: &Pool, parts: Vec<f64>| {
        let label = pool.configuration.label.clone();
        Bar {
            color: page.color(&label),
            label,
            parts,
        }
    };
    let mean = |pool: &Pool, figure: &dyn Fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = pool.runs.iter().filter_map(|run| figure(run)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let cpu = experiment.pools.iter().filter_map(|pool| {
        let server = mean(pool, &Run::server_cpu_us_per_operation)? / 1e6;
        let generator = mean(pool, &Run::generator_cpu_us_per_operation);
        Some(with(
            pool,
            std::iter::once(server).chain(generator.map(|us| us / 1e6)).collect(),
        ))
    });
    let cpu = cpu.collect();
    let amplification = experiment
        .pools
        .iter()
        .filter_map(|pool| Some(with(pool, vec![mean(pool, &Run::write_amplification)?])))
        .collect();
    html! {
        div.grid {
            (charts.bars("Processor time per operation", "The server, then (lighter) the load generator.", Unit::Seconds, cpu))
            (charts.bars("Bytes written per operation", "", Unit::Bytes, bars(page, experiment, &Measure::Written)))
            (charts.bars("Write amplification", "Bytes sent to storage per byte of documents.", Unit::Number, amplification))
            (charts.bars("Bytes read per operation", "", Unit::Bytes, bars(page, experiment, &Measure::Read)))
            (charts.bars("Size on disk", "", Unit::Bytes, bars(page, experiment, &Measure::Size)))
            (charts.bars("Peak memory", "", Unit::Bytes, bars(page, experiment, &Measure::Memory)))
        }
    }
}

/// The operations of all configurations, the most frequent of the first one first.
fn operation_names<'a>(experiment: &'a Experiment) -> Vec<&'a str> {
    let mut names: Vec<&'a str> = Vec::new();
    for name in experiment.pools.iter().flat_map(|pool| pool.operations()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn latencies(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let pools: Vec<(usize, &Pool)> = experiment
        .pools
        .iter()
        .map(|pool| (page.color(&pool.configuration.label), pool))
        .collect();
    let timed = |name: &&str| {
        experiment.pools.iter().flat_map(|pool| &pool.runs).any(|run| {
            run.operations
                .get(*name)
                .is_some_and(|operation| operation.latency.is_some())
        })
    };
    let names: Vec<&str> = operation_names(experiment)
        .into_iter()
        .filter(timed)
        .take(PERCENTILE_CHARTS_MAX)
        .collect();
    if names.is_empty() {
        return html! {};
    }
    let domain = percentiles_domain(&names, &pools);
    html! {
        details.print open[names.len() <= LATENCY_OPEN_MAX] {
            summary { "Latency: the time that a share of the commands did not exceed" }
            div.grid { @for name in &names { (charts.percentiles(name, domain, &pools)) } }
        }
    }
}

/// The figures of the whole run, one column per configuration; the best of a row is bold when it wins alone.
fn figures(page: &Page, experiment: &Experiment) -> Markup {
    let pools: Vec<(&Pool, &Run)> = experiment
        .pools
        .iter()
        .filter_map(|pool| Some((pool, pool.typical()?)))
        .collect();
    let names: BTreeSet<&String> = pools
        .iter()
        .flat_map(|(_, run)| run.figures.keys())
        .filter(|name| *name != GENERATOR_SHARE)
        .collect();
    let measures = WHOLE_RUN
        .iter()
        .filter(|measure| pools.iter().any(|(pool, _)| measure.estimate(pool).is_some()));
    let cells = |figure: &dyn Fn(&Run) -> Option<String>| pools.iter().map(|(_, run)| figure(run)).collect::<Vec<_>>();
    let mut rows: Vec<(&str, Vec<Option<String>>)> = vec![
        ("operations", cells(&|run| Some(number::count(run.count())))),
        ("errors", cells(&|run| Some(number::count(run.errors())))),
        ("measured for", cells(&|run| Some(number::seconds(run.seconds)))),
        (
            "write amplification",
            cells(&|run| run.write_amplification().map(number::short)),
        ),
        (
            "generator's share of the CPU time",
            cells(&|run| generator_share(run).map(number::percent)),
        ),
        ("checkpoints", cells(&|run| Some(run.checkpoint_count()?.to_string()))),
        (
            "stalled",
            cells(&|run| (run.series.total().len() > 1).then(|| number::seconds(stalled(run)))),
        ),
    ];
    rows.extend(names.into_iter().map(|name| {
        (
            name.as_str(),
            cells(&|run| run.figures.get(name).map(|value| number::named(name, *value))),
        )
    }));
    rows.retain(|(_, cells)| cells.iter().any(Option::is_some));
    if pools.is_empty() {
        return html! {};
    }
    let is_repeated = pools.iter().any(|(pool, _)| pool.runs.len() > 1);
    html! {
        div.scroll { table {
            caption { "The whole run" }
            thead { tr {
                th.name scope="col" {}
                @for (pool, _) in &pools { th scope="col" { (page.chip(&pool.configuration.label)) @if pool.runs.len() > 1 { small { "mean of " (pool.runs.len()) } } } }
            } }
            tbody {
                @for measure in measures {
                    @let standing = Standing::of(experiment, measure.clone());
                    @let winner = standing.as_ref().and_then(|standing| standing.winner()).map(|place| place.label);
                    tr {
                        th.name scope="row" { (measure.name()) }
                        @for (pool, _) in &pools {
                            td.best[winner == Some(pool.configuration.label.as_str())] { (or_dash(measure.estimate(pool).map(|estimate| measure.show(estimate.value)))) }
                        }
                    }
                }
                @if is_repeated {
                    tr { td.left.soft colspan=(pools.len() + 1) { small { "And of the repetition in the middle by throughput:" } } }
                }
                @for (name, cells) in rows {
                    tr { th.name scope="row" { (name) } @for cell in cells { td { (or_dash(cell)) } } }
                }
            }
        } }
    }
}

/// Seconds of stalls.
fn stalled(run: &Run) -> f64 {
    run.stalls.iter().map(|span| span.seconds).sum()
}

/// The load generator's part of the processor time of both.
fn generator_share(run: &Run) -> Option<f64> {
    let (generator, server) = (run.generator_cpu_us? as f64, run.server_cpu_us? as f64);
    (generator + server > 0.0).then(|| generator / (generator + server))
}

/// Latencies of all operations, one line per operation and configuration.
fn operations(page: &Page, experiment: &Experiment) -> Markup {
    let names = operation_names(experiment);
    if names.is_empty() {
        return html! {};
    }
    html! {
        details.print {
            summary { "Operations and their latencies" }
            div.scroll { table {
                thead { tr {
                    th.name scope="col" { "operation" }
                    th.left scope="col" { "configuration" }
                    @for head in ["count", "errors", "per second", "mean", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"] { th scope="col" { (head) } }
                } }
                tbody { @for name in &names { @for pool in &experiment.pools {
                    @if let Some((run, operation)) = pool.typical().and_then(|run| Some((run, run.operations.get(*name)?))) {
                        tr {
                            th.name scope="row" { (name) }
                            td.left { (page.chip(&pool.configuration.label)) }
                            td { (number::count(operation.count)) }
                            td { (number::count(operation.errors)) }
                            td { @if run.seconds > 0.0 { (number::short(operation.count as f64 / run.seconds)) } @else { "–" } }
                            @match &operation.latency {
                                Some(latency) => {
                                    td { (number::seconds(latency.mean_ns / 1e9)) }
                                    @for ns in [latency.p50_ns, latency.p90_ns, latency.p95_ns, latency.p99_ns, latency.p999_ns, latency.p9999_ns, latency.max_ns] {
                                        td { (number::seconds(ns as f64 / 1e9)) }
                                    }
                                }
                                None => { @for _ in 0..8 { td { "–" } } }
                            }
                        }
                    }
                } } }
            } }
        }
    }
}

fn more_time_lines(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let per_second = |series: &Series| 1.0 / series.interval_seconds;
    let processors = |series: &Series| 1e-6 / series.interval_seconds;
    let now = |_: &Series| 1.0;
    let has_any = experiment.pools.iter().filter_map(|pool| pool.typical()).any(|run| {
        let series = &run.series;
        let columns = [
            &series.server_cpu_us,
            &series.rss_bytes,
            &series.read_bytes,
            &series.written_bytes,
            &series.dirty_bytes,
            &series.cache_bytes,
        ];
        columns.iter().any(|column| column.len() > 1)
    });
    if !has_any {
        return html! {};
    }
    html! {
        details {
            summary.screen { "Processor, storage and memory over time" }
            div.grid {
                (charts.over_time("Processors used by the server", "", Unit::Number, Size::Small, lines(page, experiment, |series| series.server_cpu_us.clone(), processors)))
                (charts.over_time("Bytes written per second", "", Unit::Bytes, Size::Small, lines(page, experiment, |series| series.written_bytes.clone(), per_second)))
                (charts.over_time("Bytes read per second", "", Unit::Bytes, Size::Small, lines(page, experiment, |series| series.read_bytes.clone(), per_second)))
                (charts.over_time("Memory of the server", "", Unit::Bytes, Size::Small, lines(page, experiment, |series| series.rss_bytes.clone(), now)))
                (charts.over_time("Bytes in the engine's cache", "", Unit::Bytes, Size::Small, lines(page, experiment, |series| series.cache_bytes.clone(), now)))
                (charts.over_time("Bytes not yet on disk", "", Unit::Bytes, Size::Small, lines(page, experiment, |series| series.dirty_bytes.clone(), now)))
            }
        }
    }
}
