//! `tenon top`: the time that a server spends on each collection, with the columns of mongotop.

use crate::live::{self, LiveArgs, Pair};
use crate::screen::printable;
use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};
use clap::Args;
use std::io::Write as _;
use std::process::ExitCode;

/// Show which collections a server spends its time on
#[derive(Args, Debug)]
pub struct TopCommand {
    #[command(flatten)]
    live: LiveArgs,
    /// No more than N collections at once; --json has all
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    collections: usize,
}

/// What a collection took between two samples.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    namespace: String,
    /// Microseconds and operations: all, reads, writes.
    usage: [(f64, f64); 3],
}

/// How the server names them.
const KINDS: [&str; 3] = ["total", "readLock", "writeLock"];

impl TopCommand {
    /// Shows tables until it is told to stop.
    pub fn run(&self) -> Result<ExitCode> {
        self.live.run(&doc! { "top": 1 }, &mut |address, pair| {
            let rows = rows(pair);
            let now = DateTime::now();
            let mut out = std::io::stdout().lock();
            if self.live.json {
                let mut totals = Document::new();
                for row in &rows {
                    let usage = ["total", "read", "write"]
                        .iter()
                        .zip(row.usage)
                        .map(|(name, (time_us, count))| {
                            let figures = doc! { "micros": time_us as i64, "count": count as i64 };
                            ((*name).to_owned(), Bson::Document(figures))
                        });
                    totals.insert(row.namespace.clone(), usage.collect::<Document>());
                }
                let document = doc! { "host": address.to_string(), "time": now, "totals": totals };
                return writeln!(out, "{}", live::json(&document)).and_then(|()| out.flush());
            }
            let names = rows.iter().map(|row| printable(&row.namespace));
            let names: Vec<_> = names.take(self.collections).collect();
            let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max(20);
            let time = now.try_to_rfc3339_string().unwrap_or_default();
            let time = time.split('.').next().unwrap_or_default();
            writeln!(
                out,
                "{:>width$} {:>9} {:>9} {:>9}  {time}",
                "ns", "total", "read", "write"
            )?;
            for (row, name) in rows.iter().zip(&names) {
                let [total, read, write] = row.usage.map(|(time_us, _)| format!("{:.0}ms", time_us / 1000.0));
                writeln!(out, "{name:>width$} {total:>9} {read:>9} {write:>9}")?;
            }
            writeln!(out)?;
            out.flush()
        })
    }
}

/// All collections, those that took longest first. What is new counts from nothing.
fn rows(pair: Pair<'_>) -> Vec<Row> {
    let totals = |sample: &Document| sample.get_document("totals").ok().cloned().unwrap_or_default();
    let (before, now) = (totals(pair.before()), totals(pair.now()));
    let mut rows: Vec<Row> = now
        .iter()
        .filter_map(|(namespace, entry)| {
            let entry = entry.as_document()?;
            let old = before.get_document(namespace).ok();
            let grown = |path: &str| {
                let new = live::number(entry, path).unwrap_or(0.0);
                let old = old.and_then(|old| live::number(old, path)).unwrap_or(0.0);
                // A collection that was removed and made again begins anew.
                if new < old { new } else { new - old }
            };
            Some(Row {
                namespace: namespace.clone(),
                usage: KINDS.map(|kind| (grown(&format!("{kind}.time")), grown(&format!("{kind}.count")))),
            })
        })
        .collect();
    rows.sort_by(|a, b| {
        b.usage[0]
            .0
            .total_cmp(&a.usage[0].0)
            .then_with(|| a.namespace.cmp(&b.namespace))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::{Row, rows};
    use crate::live::pair;
    use bson::doc;

    #[test]
    fn what_took_longest_comes_first() {
        let entry = |time: i64, count: i64| doc! { "total": { "time": time, "count": count } };
        let before = doc! { "totals": { "note": "x", "d.a": entry(100, 1), "d.b": entry(900, 9) } };
        let now = doc! { "totals": { "note": "x", "d.a": entry(300, 2), "d.b": entry(40, 1), "d.c": entry(50, 5) } };
        let row = |namespace: &str, time, count| Row {
            namespace: namespace.to_owned(),
            usage: [(time, count), (0.0, 0.0), (0.0, 0.0)],
        };
        assert_eq!(
            rows(pair(&before, &now, 1.0)),
            [row("d.a", 200.0, 1.0), row("d.c", 50.0, 5.0), row("d.b", 40.0, 1.0)]
        );
    }
}
