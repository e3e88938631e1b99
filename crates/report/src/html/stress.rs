//! The tables of *MongoDB* (Object Computing, August 2011): write speed, read speed and consistent reads for each
//! combination of write concern, journal and capped collection.

use super::{Page, or_dash};
use crate::experiment::Pool;
use crate::{Experiment, Run, number};
use maud::{Markup, html};

/// Phases are called after the size of the data, then the kind of work.
const WRITE: &str = ".write";

/// Below this share of documents a speed of reading says nothing: the article's bound.
const SHARE_MIN: f64 = 0.01;

/// A table for each size of the data.
pub fn section(page: &Page, experiments: &[Experiment]) -> Markup {
    html! {
        p { "Documents 1 to N are written in batches; at once other connections read them back, N down to 1, and compare every byte." }
        @for write in experiments {
            @if let Some(size) = write.work.phase.strip_suffix(WRITE) {
                @let phase = format!("{size}.read");
                @let read = experiments.iter().find(|read| {
                    read.work.phase == phase && read.work.parameters == write.work.parameters && read.work.clients == write.work.clients
                });
                (table(page, size, write, read))
            }
        }
    }
}

fn table(page: &Page, size: &str, write: &Experiment, read: Option<&Experiment>) -> Markup {
    html! {
        div.scroll { table {
            caption { (title(size)) ", " (page.detail(&write.work)) }
            thead { tr {
                @for head in ["configuration", "write concern", "journal", "capped"] { th.name scope="col" { (head) } }
                @for head in ["write MiB/s", "read MiB/s", "consistent reads"] { th scope="col" { (head) } }
            } }
            tbody { @for pool in &write.pools {
                @let reading = read.and_then(|read| read.pool(&pool.configuration.label));
                @let read_run = reading.and_then(|pool| pool.typical().or(pool.without.first().copied()));
                tr {
                    th.name scope="row" { (page.chip(&pool.configuration.label)) }
                    @for option in ["writeConcern", "journal", "capped"] {
                        td.name { (or_dash(pool.configuration.options.get(option).cloned())) }
                    }
                    td { (write_cell(pool)) }
                    td { (or_dash(read_run.filter(|run| readable(run)).and_then(speed))) }
                    td { (or_dash(read_run.and_then(consistent))) }
                }
            } }
        } }
    }
}

fn title(size: &str) -> String {
    match size {
        "inRam" => "Single instance, all in RAM".to_owned(),
        "largerThanRam" => "Single instance, larger than available RAM".to_owned(),
        other => format!("Single instance, {other}"),
    }
}

/// The speed, or in a word why there is none; the whole reason stands with the phase.
fn write_cell(pool: &Pool) -> String {
    match (pool.typical(), pool.without.first()) {
        (Some(run), _) => or_dash(speed(run)),
        (None, without) => or_dash(without.map(|run| run.outcome.word().to_owned())),
    }
}

fn speed(run: &Run) -> Option<String> {
    run.figures.get("mebibytesPerSecond").map(|&speed| number::short(speed))
}

fn readable(run: &Run) -> bool {
    run.figures
        .get("consistentReadShare")
        .is_some_and(|&share| share >= SHARE_MIN)
}

fn consistent(run: &Run) -> Option<String> {
    run.figures
        .get("consistentReadShare")
        .map(|share| number::whole_percent(*share))
}

#[cfg(test)]
mod tests {
    use crate::{Configuration, Machine, Outcome, Run, Session};

    fn run(phase: &str, concern: &str, figures: &[(&str, f64)], outcome: Outcome) -> Run {
        let configuration = Configuration {
            label: format!("rocksdb {concern}"),
            engine: "rocksdb".to_owned(),
            options: [("writeConcern", concern), ("journal", "off"), ("capped", "on")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Configuration::default()
        };
        let mut run = Run::new("stress", phase, configuration);
        run.figures = figures
            .iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        run.outcome = outcome;
        run
    }

    #[test]
    fn what_a_server_refuses_is_no_failure() {
        let mut session = Session::new("tenon", 0, Vec::new(), Machine::default());
        let refused = Outcome::Refused {
            message: "no <journal>".to_owned(),
        };
        let skipped = Outcome::Skipped {
            message: "all in memory".to_owned(),
        };
        session.runs = vec![
            run("inRam.write", "FSYNC_SAFE", &[], refused),
            run("largerThanRam.write", "SAFE", &[], skipped),
        ];
        let page = crate::html::page(&session);
        assert!(!page.contains("This report is partial"));
        assert!(!page.contains("The whole run"), "there is none to show");
        for words in [
            "refused by the server: no &lt;journal&gt;",
            "not tried: all in memory",
            "<td>skipped</td>",
        ] {
            assert!(page.contains(words), "{words}");
        }
        let csv = crate::csv(&session);
        assert!(
            csv.contains(",refused: no <journal>,") && csv.contains(",skipped: all in memory,"),
            "{csv}"
        );
        session.runs[0].outcome = Outcome::Failed {
            message: "dead".to_owned(),
        };
        let page = crate::html::page(&session);
        assert!(page.contains("1 of 2 runs did not end as they were meant to"));
    }

    #[test]
    fn the_page_has_the_articles_table() {
        let mut session = Session::new("tenon", 0, Vec::new(), Machine::default());
        let refused = Outcome::Refused {
            message: "<no>".to_owned(),
        };
        session.runs = vec![
            run(
                "inRam.write",
                "NORMAL",
                &[("mebibytesPerSecond", 481.0)],
                Outcome::Complete,
            ),
            run(
                "inRam.read",
                "NORMAL",
                &[("mebibytesPerSecond", 797.0), ("consistentReadShare", 0.999)],
                Outcome::Complete,
            ),
            run(
                "inRam.write",
                "SAFE",
                &[("mebibytesPerSecond", 296.0)],
                Outcome::Complete,
            ),
            run(
                "inRam.read",
                "SAFE",
                &[("mebibytesPerSecond", 927.0), ("consistentReadShare", 0.001)],
                Outcome::Complete,
            ),
            run("inRam.write", "FSYNC_SAFE", &[], refused),
        ];
        let page = crate::html::page(&session);
        let table = page
            .split("Single instance, all in RAM")
            .nth(1)
            .expect("it has the title");
        let table = table.split("</table>").next().expect("it ends");
        let rows: Vec<&str> = table.split("<tr>").skip(2).collect();
        assert_eq!(rows.len(), 3, "{table}");
        for (row, parts) in rows.iter().zip([
            ["<td>481</td>", "<td>797</td>", "<td>&gt;99%</td>"],
            // A speed of so few documents says nothing.
            ["<td>296</td>", "<td>–</td>", "<td>&lt;1%</td>"],
            ["<td>refused</td>", "<td>–</td>", "<td>–</td>"],
        ]) {
            for part in parts {
                assert!(row.contains(part), "{part}: {row}");
            }
        }
    }
}
