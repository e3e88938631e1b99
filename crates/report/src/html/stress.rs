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

/// A table for each size of the data, and for sets with and without a failover.
pub fn section(page: &Page, experiments: &[Experiment]) -> Markup {
    html! {
        p { "Documents 1 to N are written in batches; at once other connections read them back, N down to 1, and compare every byte." }
        @for write in experiments {
            @if let Some(size) = write.work.phase.strip_suffix(WRITE) {
                @for servers in kinds_of_servers(write) {
                    (table(page, size, servers, write, experiments))
                }
            }
        }
    }
}

/// What the cells of a table run on.
#[derive(Clone, Copy, PartialEq)]
struct Servers<'a> {
    /// Members of a set; `None` for a server alone.
    members: Option<&'a str>,
    /// The primary is killed in the middle.
    has_failover: bool,
}

impl<'a> Servers<'a> {
    fn of(pool: &Pool<'a>) -> Self {
        let option = |name: &str| pool.configuration.options.get(name).map(String::as_str);
        Self {
            members: option("members"),
            has_failover: option("failover") == Some("on"),
        }
    }

    fn words(self) -> String {
        match self.members {
            None => "Single instance".to_owned(),
            Some(members) => format!("Replica set of {members} members"),
        }
    }
}

fn kinds_of_servers<'a>(write: &Experiment<'a>) -> Vec<Servers<'a>> {
    let mut kinds = Vec::new();
    for kind in write.pools.iter().map(Servers::of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn table(page: &Page, size: &str, servers: Servers, write: &Experiment, experiments: &[Experiment]) -> Markup {
    let reads = |phase: &str| {
        let phase = format!("{size}.{phase}");
        experiments.iter().find(|read| {
            read.work.phase == phase
                && read.work.parameters == write.work.parameters
                && read.work.clients == write.work.clients
        })
    };
    let (read, read_primary) = (reads("read"), reads("readPrimary"));
    let heads: &[&str] = match servers.members {
        None => &["write MiB/s", "read MiB/s", "consistent reads"],
        Some(_) => &[
            "write MiB/s",
            "secondary reads MiB/s",
            "consistent reads",
            "primary reads MiB/s",
        ],
    };
    html! {
        div.scroll { table {
            caption { (title(size, servers)) ", " (page.detail(&write.work)) }
            thead { tr {
                @for head in ["configuration", "write concern", "journal", "capped"] { th.name scope="col" { (head) } }
                @for head in heads { th scope="col" { (head) } }
            } }
            tbody { @for pool in write.pools.iter().filter(|pool| Servers::of(pool) == servers) {
                @let read_run = run_of(read, pool);
                tr {
                    th.name scope="row" { (page.chip(&pool.configuration.label)) }
                    @for option in ["writeConcern", "journal", "capped"] {
                        td.name { (or_dash(pool.configuration.options.get(option).cloned())) }
                    }
                    td { (write_cell(pool)) }
                    td { (or_dash(read_run.filter(|run| readable(run)).and_then(speed))) }
                    td { (or_dash(read_run.and_then(consistent))) }
                    @if servers.members.is_some() {
                        td { (or_dash(run_of(read_primary, pool).filter(|run| readable(run)).and_then(speed))) }
                    }
                }
            } }
        } }
    }
}

/// The reads of a configuration's documents.
fn run_of<'a>(read: Option<&Experiment<'a>>, pool: &Pool) -> Option<&'a Run> {
    let reading = read?.pool(&pool.configuration.label)?;
    reading.typical().or(reading.without.first().copied())
}

fn title(size: &str, servers: Servers) -> String {
    let size = match size {
        "inRam" => "all in RAM",
        "largerThanRam" => "larger than available RAM",
        other => other,
    };
    let failover = match servers.has_failover {
        true => ", the primary killed in the middle",
        false => "",
    };
    format!("{}, {size}{failover}", servers.words())
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
        .get(crate::CONSISTENT)
        .is_some_and(|&share| share >= SHARE_MIN)
}

fn consistent(run: &Run) -> Option<String> {
    run.figures
        .get(crate::CONSISTENT)
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

    /// A set's page was headed "Single instance", and lacked the reads from the primary.
    #[test]
    fn a_set_has_tables_of_its_own() {
        let mut session = Session::new("tenon", 0, Vec::new(), Machine::default());
        for failover in ["off", "on"] {
            for (phase, speed) in [("write", 11.0), ("read", 222.0), ("readPrimary", 333.0)] {
                let figures = [("mebibytesPerSecond", speed), ("consistentReadShare", 1.0)];
                let mut run = run(&format!("inRam.{phase}"), "MAJORITY", &figures, Outcome::Complete);
                let options = &mut run.configuration.options;
                options.insert("members".to_owned(), "3".to_owned());
                options.insert("failover".to_owned(), failover.to_owned());
                if failover == "on" {
                    run.configuration.label += " failover";
                }
                session.runs.push(run);
            }
        }
        let page = crate::html::page(&session);
        assert!(!page.contains("Single instance"));
        let head = "Replica set of 3 members, all in RAM";
        let tables: Vec<&str> = page.split(head).skip(1).collect();
        assert!(
            tables.len() >= 2
                && tables
                    .iter()
                    .any(|table| table.starts_with(", the primary killed in the middle"))
        );
        for table in &tables[..2] {
            let table = table.split("</table>").next().expect("it ends");
            assert_eq!(table.matches("<td>333</td>").count(), 1, "{table}");
            assert!(table.contains("primary reads MiB/s"), "{table}");
        }
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
