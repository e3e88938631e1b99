//! What a replica set costs, how far its followers are behind, what a failover takes, and how fast new members have
//! all data.

use super::{Page, one_of_many, or_dash};
use crate::{
    ALL_CPU, CATCH_UP, COPIED, DEVICE_WRITTEN, ERRORS, Experiment, FAILOVERS, FIRST_WRITE, FOLLOWER_RATE,
    FOLLOWER_WIRE, FOLLOWER_WRITTEN, LAG_MAX, LAG_MAX_OPERATIONS, LAG_MEDIAN, LAG_MEDIAN_OPERATIONS, LOST_WRITES,
    Latency, NEW_MEMBER_CPU, PRIMARY_WIRE, REJOIN, Run, WITHOUT_PRIMARY, number,
};
use maud::{Markup, html};

/// Head of a column and its figure.
type Column = (&'static str, fn(&Run) -> Option<String>);

const COSTS: [Column; 9] = [
    ("writes/s", |run| run.rate().map(number::short)),
    ("p50 ms", |run| milliseconds(run, |latency| latency.p50_ns)),
    ("p99 ms", |run| milliseconds(run, |latency| latency.p99_ns)),
    ("CPU, primary", |run| {
        run.server_cpu_us_per_operation().map(|us| number::seconds(us / 1e6))
    }),
    ("CPU, all", |run| figure(run, ALL_CPU)),
    ("disk, primary", |run| {
        run.per_operation(run.written_bytes).map(number::bytes)
    }),
    ("disk, follower", |run| figure(run, FOLLOWER_WRITTEN)),
    ("device, member", |run| figure(run, DEVICE_WRITTEN)),
    ("wire", wire),
];

const LAGS: [Column; 6] = [
    ("lag, median", |run| figure(run, LAG_MEDIAN)),
    ("lag, max", |run| figure(run, LAG_MAX)),
    ("writes behind, median", |run| figure(run, LAG_MEDIAN_OPERATIONS)),
    ("writes behind, max", |run| figure(run, LAG_MAX_OPERATIONS)),
    ("rate of the slowest", |run| figure(run, FOLLOWER_RATE)),
    ("catching up", |run| figure(run, CATCH_UP)),
];

const FAILOVER: [Column; 8] = [
    ("times", |run| figure(run, FAILOVERS)),
    ("no primary, median", |run| figure(run, WITHOUT_PRIMARY[0])),
    ("no primary, max", |run| figure(run, WITHOUT_PRIMARY[1])),
    ("first write, median", |run| figure(run, FIRST_WRITE[0])),
    ("first write, max", |run| figure(run, FIRST_WRITE[1])),
    ("back, max", |run| figure(run, REJOIN[1])),
    ("errors", |run| Some(errors(run))),
    ("writes lost", |run| figure(run, LOST_WRITES)),
];

const SYNC: [Column; 4] = [
    ("documents", |run| run.parameters.get("documents").cloned()),
    ("time", |run| Some(number::seconds(run.seconds))),
    ("MB/s", |run| run.figures.get(COPIED).map(|value| number::short(*value))),
    ("CPU, new member", |run| figure(run, NEW_MEMBER_CPU)),
];

fn figure(run: &Run, name: &str) -> Option<String> {
    run.figures.get(name).map(|value| number::named(name, *value))
}

fn milliseconds(run: &Run, percentile: fn(&Latency) -> u64) -> Option<String> {
    let latency = run.operations.values().next()?.latency.as_ref()?;
    Some(number::short(percentile(latency) as f64 / 1e6))
}

/// To one follower, and from all of them.
fn wire(run: &Run) -> Option<String> {
    let back = figure(run, PRIMARY_WIRE)?;
    Some(format!("{} / {back}", figure(run, FOLLOWER_WIRE)?))
}

fn errors(run: &Run) -> String {
    let of = |(name, count): (&String, &f64)| Some(format!("{} {count}", name.strip_prefix(ERRORS)?));
    let errors: Vec<String> = run.figures.iter().filter_map(of).collect();
    if errors.is_empty() {
        "none".to_owned()
    } else {
        errors.join(", ")
    }
}

/// A table for each part of the workload that was run.
pub fn section(page: &Page, experiments: &[Experiment]) -> Markup {
    html! {
        p {
            "Sets of members on one machine, which share its processors and its disk. "
            em { "insert" } ": clients insert documents one by one. "
            em { "failover" } ": the primary is killed while clients write; " em { "stepDown" } ": it hands over. "
            em { "initialSync" } ": a member without data joins."
        }
        (table(page, experiments, "What a write costs", &["insert"], &["writeConcern"], &COSTS))
        (table(page, experiments, "How far followers are behind", &["insert"], &["writeConcern"], &LAGS))
        (table(page, experiments, "When the primary goes", &["failover", "stepDown"], &["electionTimeoutMillis"], &FAILOVER))
        (table(page, experiments, "When a member joins", &["initialSync"], &["to"], &SYNC))
        p.small.soft {
            "CPU: for each write, of the primary and of all members together. disk: bytes to storage for each write, by the kernel's count for the process. device: what the whole disk wrote for each write and member. wire: bytes between "
            "members for each write, to one follower and from all of them to the primary. lag: since the primary showed what a follower shows, "
            "looked at twenty times a second. rate of the slowest: what the slowest follower applied, as a share of what the primary did in the same "
            "time. catching up: from the end of the load until all members showed everything. no primary: from the kill, or from when nobody "
            "led, until another member led. first write: from the kill, or the order to step down, until another member had acknowledged a write. back: from "
            "the killed member's start until it followed. errors: what all clients saw, by code."
        }
        (one_of_many(experiments))
    }
}

fn table(
    page: &Page,
    experiments: &[Experiment],
    title: &str,
    phases: &[&str],
    parameters: &[&str],
    columns: &[Column],
) -> Markup {
    let of_phase = || {
        experiments
            .iter()
            .filter(|experiment| phases.contains(&experiment.work.phase))
    };
    html! {
        @if of_phase().next().is_some() {
            div.scroll { table {
                caption { (title) }
                thead { tr {
                    @for head in ["phase", "clients"].iter().chain(parameters) { th.name scope="col" { (head) } }
                    th.name scope="col" { "configuration" }
                    @for (head, _) in columns { th scope="col" { (head) } }
                } }
                tbody { @for experiment in of_phase() {
                    @for pool in &experiment.pools {
                        tr {
                            td.name { (experiment.work.phase) }
                            td.name { (experiment.work.clients) }
                            @for name in parameters { td.name { (or_dash(experiment.work.parameters.get(*name).cloned())) } }
                            th.name scope="row" { (page.chip(&pool.configuration.label)) }
                            @for (_, cell) in columns { td { (or_dash(pool.typical().and_then(cell))) } }
                        }
                    }
                } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::tests::run;
    use crate::{FAILOVERS, FIRST_WRITE, LOST_WRITES, Machine, Session};

    #[test]
    fn parts_that_were_run_have_tables() {
        let mut session = Session::new("tenon", 0, Vec::new(), Machine::default());
        let mut insert = run("btree x3", "insert", 12_340);
        insert.workload = "replicaSet".to_owned();
        insert.clients = 128;
        insert
            .parameters
            .insert("writeConcern".to_owned(), "majority".to_owned());
        let mut failover = run("btree x3", "failover", 10);
        failover.workload = "replicaSet".to_owned();
        let figures = [
            (FAILOVERS, 5.0),
            (FIRST_WRITE[1], 1.25),
            (LOST_WRITES, 0.0),
            ("errors.<189>", 3.0),
        ];
        failover.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        session.runs = vec![insert, failover];
        let page = crate::html::page(&session);
        let table = |title: &str| {
            let behind = page
                .split(&format!("<caption>{title}</caption>"))
                .nth(1)
                .unwrap_or_default();
            behind.split("</table>").next().unwrap_or_default().to_owned()
        };
        let costs = table("What a write costs");
        for part in [">128<", ">majority<", "<td>1,234</td>"] {
            assert!(costs.contains(part), "{part}: {costs}");
        }
        let failovers = table("When the primary goes");
        for part in ["<td>5</td>", "<td>1.25 s</td>", "&lt;189&gt; 3", "<td>0</td>"] {
            assert!(failovers.contains(part), "{part}: {failovers}");
        }
        assert_eq!(table("When a member joins"), "", "none did");
    }
}
