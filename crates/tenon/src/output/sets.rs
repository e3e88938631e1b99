//! What is told of replica sets beside the table of all runs: costs and lag, failovers, members that joined.

use super::{layout, phase};
use report::{Run, Session, number};

/// Heads of columns, and the figures in them.
type Columns<'a> = [(&'a str, &'a str)];

const FOLLOWING: &Columns = &[
    ("all CPU", report::ALL_CPU),
    ("written/follower", report::FOLLOWER_WRITTEN),
    ("device/member", report::DEVICE_WRITTEN),
    ("to follower", report::FOLLOWER_WIRE),
    ("to primary", report::PRIMARY_WIRE),
    ("lag p50", report::LAG_MEDIAN),
    ("lag max", report::LAG_MAX),
    ("lag p50 ops", report::LAG_MEDIAN_OPERATIONS),
    ("lag max ops", report::LAG_MAX_OPERATIONS),
    ("follower rate", report::FOLLOWER_RATE),
    ("catch-up", report::CATCH_UP),
];

const FAILOVERS: &Columns = &[
    ("times", report::FAILOVERS),
    ("no primary p50", report::WITHOUT_PRIMARY[0]),
    ("no primary max", report::WITHOUT_PRIMARY[1]),
    ("first write p50", report::FIRST_WRITE[0]),
    ("first write max", report::FIRST_WRITE[1]),
    ("rejoin max", report::REJOIN[1]),
    ("lost", report::LOST_WRITES),
];

const JOINING: &Columns = &[("MB", report::COPIED), ("new member's CPU", report::NEW_MEMBER_CPU)];

/// The tables of which there is something to tell, each behind an empty line.
pub fn tables(session: &Session) -> String {
    let mut text = table(session, FOLLOWING, report::ALL_CPU, &|_| Vec::new(), &[]);
    text += &table(session, FAILOVERS, report::FAILOVERS, &errors, &["errors"]);
    text += &table(session, JOINING, report::COPIED, &seconds, &["time"]);
    if !text.is_empty() {
        text += "all CPU: of all members, per operation. device/member: bytes that the whole disk wrote, per operation and member.\n\
                 to follower, to primary: bytes between members per operation. lag: of followers behind the primary, while clients\n\
                 wrote. follower rate: of the slowest, as a share of the primary's. catch-up: after the load.\n";
    }
    text
}

/// A line for each run that has the figure `telling`; `more` are further cells, below further heads.
fn table(
    session: &Session,
    columns: &Columns,
    telling: &str,
    more: &dyn Fn(&Run) -> Vec<String>,
    more_heads: &[&str],
) -> String {
    let heads: Vec<&str> = ["configuration", "workload", "phase"]
        .into_iter()
        .chain(columns.iter().map(|(head, _)| *head))
        .chain(more_heads.iter().copied())
        .collect();
    let row = |run: &Run| {
        let cells = columns.iter().map(|(_, name)| {
            let value = run.figures.get(*name);
            value.map_or("-".to_owned(), |value| number::named(name, *value))
        });
        let names = [run.configuration.label.clone(), run.workload.clone(), phase(run)];
        names.into_iter().chain(cells).chain(more(run)).collect()
    };
    let is_set = |run: &&Run| run.configuration.options.contains_key("members") && run.figures.contains_key(telling);
    let rows: Vec<Vec<String>> = session.runs.iter().filter(is_set).map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", layout(&heads, rows.into_iter())),
    }
}

/// What clients saw, as one cell: `connection 16, 10107 3`.
fn errors(run: &Run) -> Vec<String> {
    let errors = run.figures.iter().filter_map(|(name, count)| {
        let code = name.strip_prefix(report::ERRORS)?;
        Some(format!("{code} {count}"))
    });
    let errors: Vec<String> = errors.collect();
    vec![if errors.is_empty() {
        "none".to_owned()
    } else {
        errors.join(", ")
    }]
}

fn seconds(run: &Run) -> Vec<String> {
    vec![number::seconds(run.seconds)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Configuration, Machine};

    #[test]
    fn each_kind_of_figures_has_a_table() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        assert_eq!(tables(&session), "");
        let run = |phase: &str, figures: &[(&str, f64)]| {
            let configuration = Configuration {
                label: "btree x3".to_owned(),
                options: [("members".to_owned(), "3".to_owned())].into(),
                ..Configuration::default()
            };
            let mut run = Run::new("replicaSet", phase, configuration);
            run.figures = figures
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect();
            run
        };
        session.runs = vec![
            run("insert", &[(report::ALL_CPU, 0.000_25), (report::FOLLOWER_RATE, 0.97)]),
            run(
                "failover",
                &[
                    (report::FAILOVERS, 5.0),
                    (report::FIRST_WRITE[1], 1.25),
                    (report::LOST_WRITES, 0.0),
                    ("errors.connection", 80.0),
                    ("errors.10107", 3.0),
                ],
            ),
            run("initialSync", &[(report::COPIED, 42.0)]),
        ];
        session.runs[2].seconds = 2.0;
        let text = tables(&session);
        let line = |phase: &str| text.lines().find(|line| line.contains(phase)).unwrap_or_default();
        assert!(
            line("insert").contains("250 µs") && line("insert").contains("97 %"),
            "{text}"
        );
        assert!(line("failover").contains("1.25 s"), "{text}");
        assert!(line("failover").ends_with("0  10107 3, connection 80"), "{text}");
        assert!(line("initialSync").ends_with("2.00 s"), "{text}");
        assert_eq!(text.matches("configuration").count(), 3, "{text}");
    }
}
