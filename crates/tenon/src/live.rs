//! Asking a server for figures again and again, for `tenon stat` and `tenon top`.

use crate::connect::{Purpose, ServerArgs};
use crate::screen::printable_lines;
use anyhow::Result;
use bench::interrupt::Interrupt;
use bson::{Bson, Document, RawDocumentBuf};
use clap::Args;
use dump::{Client, DumpError, Server};
use extjson::JsonForm;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Between two looks at whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How often, and how long.
#[derive(Args, Debug)]
pub struct LiveArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Seconds between two looks
    #[arg(value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Ends after N rows; 0 never ends
    #[arg(long, short = 'n', value_name = "N", default_value_t = 0, help_heading = "Output")]
    rowcount: u64,
    /// One document a row, with plain numbers
    #[arg(long, help_heading = "Output")]
    pub json: bool,
}

/// What a server said, and when.
#[derive(Clone, Debug)]
pub struct Sample {
    at: Instant,
    figures: Document,
}

/// Two samples of one run of the server.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    before: &'a Document,
    now: &'a Document,
    seconds: f64,
}

impl LiveArgs {
    /// Asks, and shows each pair of samples. A server that does not answer any more is told and asked again; one that
    /// does not answer at first is an error. A reader that has gone away is an end.
    pub fn run(
        &self,
        command: &Document,
        show: &mut dyn FnMut(SocketAddr, Pair<'_>) -> std::io::Result<()>,
    ) -> Result<ExitCode> {
        let (server, _) = self.server.server(None, Purpose::Read)?;
        let address = server.address;
        let interrupt = Interrupt::new();
        interrupt.install()?;
        let mut asking = Asking {
            server,
            interrupt: interrupt.clone(),
            client: None,
        };
        let mut last = Some(asking.ask(command)?);
        let mut rows = 0;
        let mut next = Instant::now();
        while self.rowcount == 0 || rows < self.rowcount {
            next = (next + Duration::from_secs(u64::from(self.seconds))).max(Instant::now());
            while Instant::now() < next {
                if interrupt.asked() {
                    return Ok(ExitCode::SUCCESS);
                }
                std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
            let sample = match asking.ask(command) {
                Ok(sample) => Some(sample),
                Err(_) if interrupt.asked() => return Ok(ExitCode::SUCCESS),
                Err(error) => {
                    eprintln!("{}", printable_lines(&bench::chain(&error)));
                    None
                }
            };
            rows += 1;
            if let (Some(before), Some(now)) = (&last, &sample)
                && !has_restarted(&before.figures, &now.figures)
            {
                let pair = Pair {
                    before: &before.figures,
                    now: &now.figures,
                    seconds: (now.at - before.at).as_secs_f64(),
                };
                match show(address, pair) {
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                    shown => shown?,
                }
            }
            last = sample;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Counters begin anew with another process.
fn has_restarted(before: &Document, now: &Document) -> bool {
    number(now, "uptimeMillis") < number(before, "uptimeMillis") || before.get("pid") != now.get("pid")
}

struct Asking {
    server: Server,
    interrupt: Interrupt,
    client: Option<Client>,
}

impl Asking {
    fn ask(&mut self, command: &Document) -> Result<Sample, DumpError> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::open(&self.server, &self.interrupt)?,
        };
        let figures = client.run("admin", command)?;
        // A connection that has failed is not used again.
        self.client = Some(client);
        Ok(Sample {
            at: Instant::now(),
            figures,
        })
    }
}

impl<'a> Pair<'a> {
    /// The newer sample.
    pub fn now(&self) -> &'a Document {
        self.now
    }

    /// The older sample.
    pub fn before(&self) -> &'a Document {
        self.before
    }

    /// How much a counter has grown; `None` where a server has no such counter.
    pub fn growth(&self, path: &str) -> Option<f64> {
        Some((number(self.now, path)? - number(self.before, path)?).max(0.0))
    }

    /// The same for each second.
    pub fn rate(&self, path: &str) -> Option<f64> {
        Some(self.growth(path)? / self.seconds.max(0.001))
    }
}

/// A number in documents in documents.
pub fn number(document: &Document, path: &str) -> Option<f64> {
    match at(document, path)? {
        Bson::Int32(value) => Some(f64::from(*value)),
        Bson::Int64(value) => Some(*value as f64),
        Bson::Double(value) => Some(*value),
        _ => None,
    }
}

fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        Some((head, rest)) => at(document.get_document(head).ok()?, rest),
        None => document.get(path),
    }
}

/// A document as one line of JSON.
pub fn json(document: &Document) -> String {
    let mut text = String::new();
    let written = RawDocumentBuf::try_from(document)
        .ok()
        .and_then(|raw| extjson::write(raw.as_bytes(), JsonForm::Relaxed, &mut text).ok());
    // Names of collections, the only names from outside, have no NUL.
    written.map_or_else(String::new, |()| text)
}

#[cfg(test)]
pub fn pair<'a>(before: &'a Document, now: &'a Document, seconds: f64) -> Pair<'a> {
    Pair { before, now, seconds }
}
