//! The rows of a copy, fetched ahead: while the engine takes a batch of a table, the next one is on its way. A
//! connection that breaks is made anew, and the copy goes on where it was: the source keeps its state for a while.

use super::Members;
use super::copy::PATIENCE;
use super::link::{CallError, Link};
use bson::doc;
use commands::logger::Component;
use commands::{ask, read_copy_rows};
use engine::TableId;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;
use storage::CloneRows;

/// How long the answer to one question is tried for once the connection has broken. The source gives a copy up that
/// nobody asked for two minutes.
const LOOKED_FOR: Duration = Duration::from_secs(60);
/// Between two lines of the log that tell how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

/// A table, and the key behind which its next rows are.
pub type Place = (TableId, Option<Vec<u8>>);
/// Keys and values.
pub type Batch = Vec<(Vec<u8>, Vec<u8>)>;
/// A batch, or a sentence.
pub type Fetched = Result<Batch, String>;

/// What asks the source, on a thread of its own.
pub struct Fetcher<'m> {
    pub members: &'m Members,
    pub host: &'m str,
    pub link: Link,
    pub copy: i64,
}

impl Fetcher<'_> {
    /// Answers until nobody asks any more, and gives the connection back.
    pub fn run(mut self, wanted: &Receiver<Place>, fetched: &SyncSender<Fetched>) -> Link {
        while let Ok((table, after)) = wanted.recv() {
            if fetched.send(self.fetch(table, after.as_deref())).is_err() {
                break;
            }
        }
        self.link
    }

    fn fetch(&mut self, table: TableId, after: Option<&[u8]>) -> Fetched {
        let question = ask::rows(self.copy, table.0, after);
        let clock = self.members.server.env.clock.clone();
        let mut until = None;
        loop {
            if self.members.is_stopped() {
                return Err("the server ends".to_owned());
            }
            match self.link.call(&question) {
                Ok(reply) => return read_copy_rows(&reply),
                Err(CallError::Refused(reason)) => return Err(reason),
                Err(CallError::Broken(reason)) => {
                    let until = *until.get_or_insert_with(|| clock.monotonic() + LOOKED_FOR);
                    self.find_again(reason, until)?;
                }
            }
        }
    }

    fn find_again(&mut self, mut reason: String, until: Duration) -> Result<(), String> {
        let server = &self.members.server;
        while server.env.clock.monotonic() < until && !self.members.is_stopped() {
            match self.members.dialer.open(self.host, PATIENCE) {
                Ok(link) => {
                    self.link = link;
                    let attributes = doc! { "source": self.host, "reason": reason };
                    let message = "Initial sync goes on over another connection";
                    server
                        .logger
                        .info(Component::InitialSync, 8410034, "initial-sync", message, attributes);
                    return Ok(());
                }
                Err(failure) => reason = failure,
            }
            #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
            std::thread::sleep(PAUSE);
        }
        Err(reason)
    }
}

/// Rows as the source sends them, counted.
pub struct FetchedRows<'m> {
    members: &'m Members,
    wanted: SyncSender<Place>,
    fetched: Receiver<Fetched>,
    /// What was asked for ahead.
    ahead: Option<Place>,
    /// The one being copied.
    table: Option<TableId>,
    /// When the log was told last how far it is.
    told: Duration,
}

impl<'m> FetchedRows<'m> {
    pub fn new(members: &'m Members, wanted: SyncSender<Place>, fetched: Receiver<Fetched>) -> Self {
        Self {
            members,
            wanted,
            fetched,
            ahead: None,
            table: None,
            told: members.server.env.clock.monotonic(),
        }
    }

    fn ask(&mut self, place: Place) -> Result<(), String> {
        let asked = self.wanted.send(place.clone());
        self.ahead = Some(place);
        asked.map_err(|_| "the source is not asked any more".to_owned())
    }

    fn take(&mut self) -> Fetched {
        self.ahead = None;
        let gone = |_| Err("the source is not asked any more".to_owned());
        self.fetched.recv().unwrap_or_else(gone)
    }
}

impl CloneRows for FetchedRows<'_> {
    fn next(&mut self, table: TableId, after: Option<&[u8]>, rows: &mut Batch) -> Result<(), String> {
        let place = (table, after.map(<[u8]>::to_vec));
        if self.ahead.as_ref() != Some(&place) {
            if self.ahead.is_some() {
                // Of a table that is left early nothing more is needed.
                let _ = self.take();
            }
            self.ask(place)?;
        }
        let mut found = self.take()?;
        if let Some((last, _)) = found.last() {
            self.ask((table, Some(last.clone())))?;
        }
        let mut progress = self.members.set.copy.lock();
        if self.table != Some(table) {
            self.table = Some(table);
            progress.tables.0 += 1;
        }
        progress.rows += found.len() as u64;
        progress.bytes += found
            .iter()
            .map(|(key, value)| (key.len() + value.len()) as u64)
            .sum::<u64>();
        rows.append(&mut found);
        let server = &self.members.server;
        let now = server.env.clock.monotonic();
        if now.saturating_sub(self.told) >= TELL_EVERY {
            self.told = now;
            let attributes = doc! {
                "tables": progress.tables.0 as i64, "tablesTotal": progress.tables.1 as i64,
                "rows": progress.rows as i64, "bytes": progress.bytes as i64,
            };
            let message = "Initial sync goes on";
            server
                .logger
                .info(Component::InitialSync, 8410035, "initial-sync", message, attributes);
        }
        Ok(())
    }
}
