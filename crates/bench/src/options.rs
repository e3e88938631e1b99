//! The command line.

use crate::messages::BATCH;
use crate::run::Workload;
use anyhow::{Context, Result, bail, ensure};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` prints.
pub const HELP: &str = "\
Measures a tenond server: operations per second, server CPU per operation, bytes written, latency.

  tenon-bench --tenond PATH [options]     start a server for each engine, on fresh data
  tenon-bench --uri HOST:PORT [options]   measure a server that runs (its database tenon_bench is dropped)

  --engines LIST           engines to start the server with        [inMemory,rocksdb]
  --workloads LIST         of insert,insert-1000,read,update,mix   [all]
  --connections LIST       numbers of connections                  [1,2,8,16]
  --documents N            documents of 1.1 KB to load             [100000]
  --seconds S              recorded time of each run               [3]
  --warm-up S              time before it                          [0.5]
  --idle-connections N     idle connections to hold, 0 for none    [10000]
  --server-arg ARG         pass ARG to the server (repeatable)
  --data DIR               make data directories in DIR            [the system's place for temporary files]
  --pid N                  with --uri: process to read figures of
  --json FILE              write the figures to FILE as well
";

/// What to measure, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The server's program.
    pub tenond: PathBuf,
    /// Engines to start it with.
    pub engines: Vec<String>,
    /// A server that runs, instead of starting one.
    pub uri: Option<SocketAddr>,
    /// Process of that server.
    pub pid: Option<u32>,
    /// Workloads in order.
    pub workloads: Vec<Workload>,
    /// Numbers of connections in order.
    pub connections: Vec<usize>,
    /// Documents to load, a multiple of 1000.
    pub documents: u64,
    /// Recorded time of a run.
    pub duration: Duration,
    /// Time before it.
    pub warm_up: Duration,
    /// Idle connections to hold; 0: none.
    pub idle_connections: usize,
    /// Further arguments for the server.
    pub server_arguments: Vec<String>,
    /// Where to make data directories.
    pub data_parent: Option<PathBuf>,
    /// Where to write the figures.
    pub json: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tenond: PathBuf::new(),
            engines: vec!["inMemory".to_owned(), "rocksdb".to_owned()],
            uri: None,
            pid: None,
            workloads: Workload::ALL.to_vec(),
            connections: vec![1, 2, 8, 16],
            documents: 100_000,
            duration: Duration::from_secs(3),
            warm_up: Duration::from_millis(500),
            idle_connections: 10_000,
            server_arguments: Vec::new(),
            data_parent: None,
            json: None,
        }
    }
}

impl Options {
    /// From the arguments after the program's name; `None` when help was asked for.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Option<Self>> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--help" || argument == "-h" {
                return Ok(None);
            }
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => {
                    let value = arguments.next().with_context(|| format!("{argument} needs a value"))?;
                    (argument, value)
                }
            };
            options.set(&name, &value).with_context(|| format!("{name} {value}"))?;
        }
        options.check()?;
        Ok(Some(options))
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--tenond" => self.tenond = value.into(),
            "--engines" => self.engines = list(value, |name| Ok(name.to_owned()))?,
            "--uri" => self.uri = Some(parse_address(value)?),
            "--pid" => self.pid = Some(value.parse()?),
            "--workloads" => self.workloads = list(value, |name| Workload::by_name(name).context("no such workload"))?,
            "--connections" => self.connections = list(value, |number| Ok(number.parse()?))?,
            "--documents" => self.documents = value.parse()?,
            "--seconds" => self.duration = Duration::try_from_secs_f64(value.parse()?)?,
            "--warm-up" => self.warm_up = Duration::try_from_secs_f64(value.parse()?)?,
            "--idle-connections" => self.idle_connections = value.parse()?,
            "--server-arg" => self.server_arguments.push(value.to_owned()),
            "--data" => self.data_parent = Some(value.into()),
            "--json" => self.json = Some(value.into()),
            _ => bail!("there is no such option (--help lists them)"),
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        ensure!(
            self.uri.is_some() || !self.tenond.as_os_str().is_empty(),
            "--tenond or --uri is needed"
        );
        ensure!(self.uri.is_some() || self.pid.is_none(), "--pid goes with --uri");
        ensure!(
            self.documents > 0 && self.documents.is_multiple_of(BATCH as u64),
            "--documents must be a multiple of {BATCH}, not {}",
            self.documents
        );
        ensure!(
            self.connections.iter().all(|number| (1..=1000).contains(number)),
            "--connections are from 1 to 1000"
        );
        ensure!(!self.duration.is_zero(), "--seconds must be more than 0");
        Ok(())
    }
}

fn list<T>(text: &str, parse: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    text.split(',')
        .map(|item| parse(item.trim()).with_context(|| format!("'{item}'")))
        .collect()
}

/// `host:port`, also as `mongodb://host:port/...`.
fn parse_address(text: &str) -> Result<SocketAddr> {
    let text = text.strip_prefix("mongodb://").unwrap_or(text);
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    text.to_socket_addrs()
        .context("host:port is wanted")?
        .next()
        .context("the host has no address")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<Options>> {
        Options::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn defaults_and_values() {
        let expected = Options {
            tenond: "x".into(),
            ..Options::default()
        };
        assert_eq!(parse("--tenond x").expect("it parses"), Some(expected));
        let options = parse(
            "--uri=mongodb://127.0.0.1:7/db --pid 9 --workloads read,mix --connections 4 --seconds 0.25 \
             --idle-connections 0 --server-arg=--nojournal --documents 2000",
        );
        let options = options.expect("it parses").expect("not help");
        assert_eq!(options.uri, Some(([127, 0, 0, 1], 7).into()));
        assert_eq!(options.workloads, [Workload::Read, Workload::Mix]);
        assert_eq!((options.pid, options.connections), (Some(9), vec![4]));
        assert_eq!(options.duration, Duration::from_millis(250));
        assert_eq!(options.server_arguments, ["--nojournal"]);
        assert_eq!(parse("--help").expect("it parses"), None);
    }

    #[test]
    fn refusals_name_the_option() {
        for (text, word) in [
            ("", "--tenond or --uri"),
            ("--tenond", "needs a value"),
            ("--tenond x --frob 1", "--frob"),
            ("--tenond x --workloads read,frob", "--workloads"),
            ("--tenond x --documents 1500", "multiple"),
            ("--tenond x --connections 0", "--connections"),
            ("--tenond x --seconds 0", "--seconds"),
            ("--tenond x --seconds -1", "--seconds"),
            ("--tenond x --pid 3", "--uri"),
        ] {
            let error = format!("{:#}", parse(text).expect_err(text));
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
