//! The tables 10.3, 10.4 and 10.5 and the figure 10.1 of *MongoDB in Action*, second edition, chapter 10, with the
//! figures of this session.

use super::charts::{Charts, passes_of};
use super::{Page, one_of_many, or_dash};
use crate::experiment::Pool;
use crate::{Experiment, Run, number};
use maud::{Markup, html};

/// Label and figure of a table's row.
type Row = (&'static str, fn(&Run) -> Option<String>);

const TABLE_10_3: [Row; 4] = [
    ("Starting up", |run| run.start_seconds.map(in_seconds)),
    ("Insert job", |run| Some(in_seconds(run.seconds))),
    ("Shut down", |run| run.stop_seconds.map(in_seconds)),
    ("Disk use", |run| {
        run.file_bytes.map(|bytes| format!("{:.2} MB", bytes as f64 / 1e6))
    }),
];

const TABLE_10_4: [Row; 3] = [
    ("Starting up", |run| run.start_seconds.map(in_seconds)),
    ("Read job", |run| {
        Some(in_seconds(run.iterations.iter().map(|pass| pass.seconds).sum()))
    }),
    ("Shut down", |run| run.stop_seconds.map(in_seconds)),
];

fn in_seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

/// The tables and the figure; what was not run is left out.
pub fn section(page: &Page, experiments: &[Experiment], charts: &mut Charts) -> Markup {
    let phase = |name: &'static str| {
        experiments
            .iter()
            .filter(move |experiment| experiment.work.phase == name)
    };
    html! {
        p { "The experiment of " em { "MongoDB in Action" } ", chapter 10: documents with two arrays are inserted into a fresh directory, then all of them are read, again and again." }
        @for insert in phase("insert") {
            (table(page, insert, &format!("Table 10.3: {} documents into a fresh directory", documents(insert)), &TABLE_10_3))
        }
        @for read in phase("read") {
            (table(page, read, "Table 10.4: the same directory again", &TABLE_10_4))
            (figure(page, read, charts))
            (passes(page, read))
        }
        (one_of_many(experiments))
    }
}

fn documents(experiment: &Experiment) -> String {
    let run = experiment.pools.iter().find_map(|pool| pool.typical());
    run.map_or_else(|| "the".to_owned(), |run| number::count(run.count()))
}

/// One column per configuration, as in the book.
fn table(page: &Page, experiment: &Experiment, title: &str, rows: &[Row]) -> Markup {
    html! {
        div.scroll { table {
            caption { (title) }
            (head(page, experiment))
            tbody { @for (label, figure) in rows {
                tr {
                    th.name scope="row" { (label) }
                    @for pool in &experiment.pools { td { (or_dash(pool.typical().and_then(figure))) } }
                }
            } }
        } }
    }
}

fn head(page: &Page, experiment: &Experiment) -> Markup {
    html! {
        thead { tr {
            th.name scope="col" {}
            @for pool in &experiment.pools { th scope="col" { (page.chip(&pool.configuration.label)) } }
        } }
    }
}

fn figure(page: &Page, experiment: &Experiment, charts: &mut Charts) -> Markup {
    let line = |pool: &Pool| {
        let label = &pool.configuration.label;
        Some(passes_of(label, page.color(label), pool.typical()?))
    };
    let lines = experiment.pools.iter().filter_map(line).collect();
    let labels = experiment.pools.iter().map(|pool| pool.configuration.label.as_str());
    html! {
        (page.legend(labels))
        (charts.over_passes("Figure 10.1: seconds of each read of all documents", cold(experiment), lines))
    }
}

fn cold(experiment: &Experiment) -> &'static str {
    let first = |pool: &Pool| {
        pool.runs
            .first()
            .and_then(|run| run.iterations.first())
            .is_some_and(|pass| pass.cold)
    };
    if experiment.pools.iter().all(first) {
        "Before the first read the system's page cache was dropped."
    } else {
        "The page cache could not be dropped before every first read, so that it is not a cold one everywhere."
    }
}

fn passes(page: &Page, experiment: &Experiment) -> Markup {
    let first = experiment.pools.iter().filter_map(|pool| pool.typical());
    let count = first.map(|run| run.iterations.len()).max().unwrap_or(0);
    html! {
        div.scroll { table {
            caption { "Table 10.5: each read of all documents, in seconds" }
            (head(page, experiment))
            tbody { @for index in 0..count {
                tr {
                    th.name scope="row" { (index + 1) }
                    @for pool in &experiment.pools {
                        @match pool.typical().and_then(|run| run.iterations.get(index)) {
                            Some(pass) => { td { @if pass.cold { span.soft { "cold " } } (format!("{:.2}", pass.seconds)) } }
                            None => { td { "–" } }
                        }
                    }
                }
            } }
        } }
    }
}
