//! What transactions cost, and what conflicts leave of them: all phases in one table, so that numbers of clients stand
//! beside each other.

use super::{Page, one_of_many, or_dash};
use crate::experiment::Work;
use crate::{Experiment, LONGEST_OPERATION, Latency, RESTARTS, Run, SLOWEST_CLIENT, number};
use maud::{Markup, html};

/// The only operation.
const OPERATION: &str = "transaction";
/// The phase that prepares the others.
const LOAD: &str = "load";

/// Head of a column and its figure.
type Column = (&'static str, fn(&Run) -> Option<String>);

const COLUMNS: [Column; 9] = [
    ("committed/s", |run| run.rate().map(number::short)),
    ("aborted/committed", |run| figure(run, RESTARTS)),
    ("p50 ms", |run| milliseconds(run, |latency| latency.p50_ns)),
    ("p95 ms", |run| milliseconds(run, |latency| latency.p95_ns)),
    ("p99 ms", |run| milliseconds(run, |latency| latency.p99_ns)),
    ("max ms", |run| milliseconds(run, |latency| latency.max_ns)),
    ("CPU µs", |run| run.server_cpu_us_per_operation().map(number::short)),
    ("slowest client", |run| figure(run, SLOWEST_CLIENT)),
    ("longest wait", |run| figure(run, LONGEST_OPERATION)),
];

fn figure(run: &Run, name: &str) -> Option<String> {
    run.figures.get(name).map(|value| number::named(name, *value))
}

fn milliseconds(run: &Run, percentile: fn(&Latency) -> u64) -> Option<String> {
    let latency = run.operations.get(OPERATION)?.latency.as_ref()?;
    Some(number::short(percentile(latency) as f64 / 1e6))
}

/// The table of all phases but the load.
pub fn section(page: &Page, experiments: &[Experiment]) -> Markup {
    let timed = || experiments.iter().filter(|experiment| experiment.work.phase != LOAD);
    html! {
        p {
            "Each transaction adds one to counters of different documents. "
            em { "disjoint" } ": each client has documents of its own, so that there are no conflicts. "
            em { "hot" } ": all clients choose among the same few documents."
        }
        @if timed().next().is_some() {
            div.scroll { table {
                thead { tr {
                    @for head in ["phase", "clients", "backoff", "configuration"] { th.name scope="col" { (head) } }
                    @for (head, _) in COLUMNS { th scope="col" { (head) } }
                } }
                tbody { @for experiment in timed() {
                    @for pool in &experiment.pools {
                        tr {
                            (names(&experiment.work))
                            th.name scope="row" { (page.chip(&pool.configuration.label)) }
                            @for (_, cell) in COLUMNS { td { (or_dash(pool.typical().and_then(cell))) } }
                        }
                    }
                } }
            } }
            p.small.soft {
                "aborted/committed: attempts that ended in a conflict, for each commit. ms: of a whole transaction, attempts and pauses included. "
                "CPU: of the server, for each commit. slowest client: commits of the client with the fewest, as a share of those of the client with "
                "the most. longest wait: the longest time of one transaction, including those that were still open at the end."
            }
            (one_of_many(experiments))
        }
    }
}

/// The cells that tell phases from each other.
fn names(work: &Work) -> Markup {
    html! {
        td.name { (work.phase) }
        td.name { (work.clients) }
        td.name { (or_dash(work.parameters.get("backoff").cloned())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::run;
    use crate::{Machine, Operation, Session};

    #[test]
    fn numbers_of_clients_stand_beside_each_other() {
        let mut session = Session::new("tenon", 0, Vec::new(), Machine::default());
        for (phase, clients, backoff) in [("load", 8, None), ("disjoint", 1, None), ("hot", 64, Some("<none>"))] {
            let mut run = run("btree", phase, 0);
            run.workload = "transactions".to_owned();
            run.clients = clients;
            let operation = Operation {
                count: 12_340,
                errors: 0,
                latency: None,
            };
            run.operations = [(OPERATION.to_owned(), operation)].into();
            if let Some(backoff) = backoff {
                run.parameters.insert("backoff".to_owned(), backoff.to_owned());
                let figures = [(RESTARTS, 42.0), (SLOWEST_CLIENT, 0.25), (LONGEST_OPERATION, 1.5)];
                run.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
            }
            session.runs.push(run);
        }
        let page = crate::html::page(&session);
        let table = page.split("aborted/committed</th>").nth(1).expect("there is the table");
        let table = table.split("</table>").next().expect("it ends");
        let rows: Vec<&str> = table.split("<tr>").skip(1).collect();
        assert_eq!(rows.len(), 2, "the load is no line: {table}");
        for part in [">disjoint<", ">1<", "<td>1,234</td><td>–</td>"] {
            assert!(rows[0].contains(part), "{part}: {}", rows[0]);
        }
        for part in [
            ">hot<",
            ">64<",
            "&lt;none&gt;",
            "<td>42.0</td>",
            "<td>25 %</td><td>1.50 s</td>",
        ] {
            assert!(rows[1].contains(part), "{part}: {}", rows[1]);
        }
    }
}
