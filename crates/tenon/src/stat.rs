//! `tenon stat`: what a server does, a row at a time, with the columns of mongostat.

use crate::live::{self, LiveArgs, Pair, number};
use anyhow::{Result, bail};
use bson::{Bson, DateTime, Document, doc};
use clap::Args;
use std::io::Write as _;
use std::process::ExitCode;

/// Rows between two lines of names.
const ROWS_PER_HEADER: u64 = 20;

/// Show what a server does: operations, cache, memory, connections and network
#[derive(Args, Debug)]
pub struct StatCommand {
    #[command(flatten)]
    live: LiveArgs,
    /// No lines of names
    #[arg(long, help_heading = "Output")]
    noheaders: bool,
    /// Not supported: a row is of the one server that --uri names
    #[arg(long, help_heading = "Server")]
    discover: bool,
}

impl StatCommand {
    /// Shows rows until it is told to stop.
    pub fn run(&self) -> Result<ExitCode> {
        if self.discover {
            bail!("--discover is not supported: a row is of the one server that --uri names");
        }
        let mut rows = 0;
        self.live.run(&doc! { "serverStatus": 1 }, &mut |address, pair| {
            let columns = columns(pair);
            let mut out = std::io::stdout().lock();
            if self.live.json {
                let mut document = doc! { "host": address.to_string() };
                document.extend(columns.iter().flat_map(|column| column.figures.clone()));
                return writeln!(out, "{}", live::json(&document)).and_then(|()| out.flush());
            }
            if rows % ROWS_PER_HEADER == 0 && !self.noheaders {
                writeln!(out, "{}", line(columns.iter().map(|column| (column.name, column))))?;
            }
            rows += 1;
            writeln!(
                out,
                "{}",
                line(columns.iter().map(|column| (column.text.as_str(), column)))
            )?;
            out.flush()
        })
    }
}

/// A column: its text, and its figures for programs.
struct Column {
    name: &'static str,
    text: String,
    width: usize,
    figures: Vec<(String, Bson)>,
}

impl Column {
    fn new(name: &'static str, width: usize, text: Option<String>, figures: &[(&str, Option<f64>)]) -> Self {
        let figure = |value: &Option<f64>| match value {
            Some(value) if value.fract() == 0.0 => Bson::Int64(*value as i64),
            Some(value) => Bson::Double(*value),
            None => Bson::Null,
        };
        Self {
            name,
            width,
            text: text.unwrap_or_else(|| "-".to_owned()),
            figures: figures
                .iter()
                .map(|(name, value)| ((*name).to_owned(), figure(value)))
                .collect(),
        }
    }
}

/// Counters are shown for each second, all else as it is now. What a server does not tell is a dash, and null for
/// programs.
fn columns(pair: Pair<'_>) -> Vec<Column> {
    let now = pair.now();
    let operations = |name: &'static str| {
        let rate = pair.rate(&format!("opcounters.{name}")).map(f64::round);
        Column::new(name, 6, rate.map(whole), &[(name, rate)])
    };
    let mut columns: Vec<Column> = ["insert", "query", "update", "delete", "getmore", "command"]
        .map(operations)
        .into();
    let of_cache = |figure: &str| {
        let most = number(now, "wiredTiger.cache.maximum bytes configured").filter(|&most| most > 0.0)?;
        Some(number(now, &format!("wiredTiger.cache.{figure}"))? * 100.0 / most)
    };
    let percent = |name: &'static str, part: Option<f64>| {
        Column::new(name, 6, part.map(|part| format!("{part:.1}%")), &[(name, part)])
    };
    columns.push(percent("dirty", of_cache("tracked dirty bytes in the cache")));
    columns.push(percent("used", of_cache("bytes currently in the cache")));
    let flushes = pair
        .growth("wiredTiger.checkpoint.total succeed number of checkpoints")
        .or_else(|| pair.growth("wiredTiger.transaction.transaction checkpoints"));
    columns.push(Column::new("flushes", 7, flushes.map(whole), &[("flushes", flushes)]));
    for (name, path) in [("vsize", "mem.virtual"), ("res", "mem.resident")] {
        let bytes = number(now, path).map(|mib| mib * 1_048_576.0);
        columns.push(Column::new(name, 6, bytes.map(size), &[(name, bytes)]));
    }
    for (name, path, [reading, writing]) in [
        ("qrw", "currentQueue", ["queuedReaders", "queuedWriters"]),
        ("arw", "activeClients", ["activeReaders", "activeWriters"]),
    ] {
        let [readers, writers] = ["readers", "writers"].map(|kind| number(now, &format!("globalLock.{path}.{kind}")));
        let text = readers
            .zip(writers)
            .map(|(readers, writers)| format!("{readers}|{writers}"));
        columns.push(Column::new(name, 5, text, &[(reading, readers), (writing, writers)]));
    }
    for (name, path) in [("net_in", "network.bytesIn"), ("net_out", "network.bytesOut")] {
        let rate = pair.rate(path).map(f64::round);
        columns.push(Column::new(name, 7, rate.map(size), &[(name, rate)]));
    }
    let connections = number(now, "connections.current");
    columns.push(Column::new("conn", 4, connections.map(whole), &[("conn", connections)]));
    columns.push(time(now));
    columns
}

fn time(now: &Document) -> Column {
    let date = now.get_datetime("localTime").ok().copied();
    let text = date.and_then(|date| date.try_to_rfc3339_string().ok());
    let mut column = Column::new(
        "time",
        20,
        text.map(|text| text.split('.').next().unwrap_or(&text).to_owned()),
        &[],
    );
    column.figures.push((
        "time".to_owned(),
        date.map_or(Bson::Null, |date: DateTime| Bson::DateTime(date)),
    ));
    column
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Bytes in the unit in which they have few digits.
fn size(bytes: f64) -> String {
    const UNITS: [&str; 4] = ["k", "M", "G", "T"];
    let mut value = bytes;
    let mut unit = "b";
    for larger in UNITS {
        if value < 1000.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "b" || value >= 100.0 {
        format!("{value:.0}{unit}")
    } else {
        format!("{value:.1}{unit}")
    }
}

fn line<'a>(columns: impl Iterator<Item = (&'a str, &'a Column)>) -> String {
    let cells: Vec<String> = columns
        .map(|(text, column)| format!("{text:>width$}", width = column.width.max(column.name.len())))
        .collect();
    cells.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{columns, size};
    use crate::live::pair;
    use bson::{Bson, doc};

    #[test]
    fn rates_and_states() {
        let before = doc! {
            "opcounters": { "insert": 100_i64, "query": 7_i64 },
            "network": { "bytesIn": 0_i64 },
            "wiredTiger": { "transaction": { "transaction checkpoints": 2_i64 } },
        };
        let now = doc! {
            "opcounters": { "insert": 300_i64, "query": 7_i64 },
            "network": { "bytesIn": 4096_i64 },
            "wiredTiger": {
                "transaction": { "transaction checkpoints": 3_i64 },
                "cache": { "maximum bytes configured": 1000_i64, "bytes currently in the cache": 125_i64 },
            },
            "mem": { "virtual": 2048, "resident": 10 },
            "globalLock": { "currentQueue": { "readers": 1, "writers": 2 } },
            "connections": { "current": 5 },
        };
        let columns = columns(pair(&before, &now, 2.0));
        let text = |name: &str| columns.iter().find(|column| column.name == name).unwrap().text.as_str();
        for (name, expected) in [
            ("insert", "100"),
            ("query", "0"),
            ("update", "-"),
            ("used", "12.5%"),
            ("dirty", "-"),
            ("flushes", "1"),
            ("vsize", "2.0G"),
            ("res", "10.0M"),
            ("qrw", "1|2"),
            ("arw", "-"),
            ("net_in", "2.0k"),
            ("net_out", "-"),
            ("conn", "5"),
            ("time", "-"),
        ] {
            assert_eq!(text(name), expected, "{name}");
        }
        let update = columns.iter().find(|column| column.name == "update").unwrap();
        assert_eq!(update.figures, [("update".to_owned(), Bson::Null)]);
    }

    #[test]
    fn sizes() {
        let shown = [0.0, 999.0, 1000.0, 1024.0 * 150.0, 5e12].map(size);
        assert_eq!(shown, ["0b", "999b", "1.0k", "150k", "4.5T"]);
    }
}
