//! The log of operations beside a dump: what was written while it was made, so that replaying it over the restored
//! documents gives one moment of all collections, the dump's end.

use crate::client::Client;
use crate::error::{DumpError, Result};
use crate::namespace::Namespace;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, Timestamp, doc};
use std::collections::BTreeSet;

/// The log's file in the folder of a dump.
pub(crate) const OPLOG_FILE: &str = "oplog.bson";

/// Where the log is on a server.
fn log() -> Namespace {
    Namespace::new("local", "oplog.rs")
}

/// A command of a log.
pub(crate) struct Command {
    /// Its name.
    pub(crate) name: String,
    /// What it is about; the collection's name is empty where it is about a database.
    pub(crate) namespace: Namespace,
}

impl Command {
    /// That of an operation whose `op` is `c`.
    pub(crate) fn of(operation: &Document) -> Result<Self> {
        let o = operation
            .get_document("o")
            .map_err(|_| malformed("a command without o"))?;
        let (name, target) = o.iter().next().ok_or_else(|| malformed("a command of no name"))?;
        let ns = operation.get_str("ns").unwrap_or_default();
        let database = ns.split_once('.').map_or(ns, |(database, _)| database);
        let whole_name = match (name.as_str(), target.as_str()) {
            ("renameCollection", Some(target)) => target.to_owned(),
            (_, target) => format!("{database}.{}", target.unwrap_or_default()),
        };
        let (database, collection) = whole_name.split_once('.').unwrap_or((&whole_name, ""));
        Ok(Self {
            name: name.clone(),
            namespace: Namespace::new(database, collection),
        })
    }

    /// The time series that it makes or changes, which is not replayed.
    pub(crate) fn series_changed(&self) -> Option<Namespace> {
        let measurements = self.namespace.of_measurements()?;
        (!matches!(self.name.as_str(), "drop" | "dropDatabase")).then_some(measurements)
    }
}

/// What is read of a server's log for a dump.
pub(crate) struct OplogWindow {
    from: Timestamp,
}

impl OplogWindow {
    /// Begins with the last operation that there is, and with the first of a transaction that has not ended.
    pub(crate) fn begin(client: &mut Client) -> Result<Self> {
        let hello = client.run("admin", &doc! { "hello": 1 })?;
        if !hello.contains_key("setName") {
            return Err(DumpError::Choice(
                "--oplog: the server has no log of operations, it is no member of a replica set (tenond --replSet)"
                    .to_owned(),
            ));
        }
        let mut from = last(client)?;
        // MongoDB writes parts of a large transaction before its end.
        let open = doc! { "find": "transactions", "filter": { "state": { "$in": ["prepared", "inProgress"] } } };
        for transaction in client.documents("config", &open)? {
            let started = transaction.get_document("startOpTime").ok();
            if let Some(started) = started.and_then(|time| time.get_timestamp("ts").ok()) {
                from = from.min(started);
            }
        }
        Ok(Self { from })
    }

    /// All operations until now. Fails when the log has recycled the first of them, and when a collection got another
    /// name, which a dump cannot follow. Answers time series with changes that are not replayed.
    pub(crate) fn end(
        &self,
        client: &mut Client,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<BTreeSet<Namespace>> {
        let to = last(client)?;
        let filter = doc! { "ts": { "$gte": self.from, "$lte": to } };
        let filter = bson::RawDocumentBuf::try_from(&filter).map_err(|error| DumpError::Choice(error.to_string()))?;
        let mut is_first = true;
        let mut series = BTreeSet::new();
        client.find(&log(), Some(&filter), &mut |operation| {
            if std::mem::take(&mut is_first) && operation.get_timestamp("ts").ok() != Some(self.from) {
                return Err(recycled());
            }
            if operation.get_str("op").ok() == Some("c") {
                if renames(operation) {
                    return Err(DumpError::Choice(
                        "--oplog: a collection was renamed meanwhile, so that parts of it may be missing; dump again"
                            .to_owned(),
                    ));
                }
                series.extend(Command::of(&applicable(operation)?)?.series_changed());
            }
            each(operation.as_bytes())
        })?;
        if is_first { Err(recycled()) } else { Ok(series) }
    }
}

fn recycled() -> DumpError {
    DumpError::Choice(
        "--oplog: the server's log was recycled while the dump was made; give it more room (--oplogSize)".to_owned(),
    )
}

/// The time of the log's last operation.
fn last(client: &mut Client) -> Result<Timestamp> {
    let find = doc! { "find": "oplog.rs", "sort": { "$natural": -1 }, "limit": 1, "projection": { "ts": 1 } };
    let found = client.documents("local", &find)?;
    let time = found.first().and_then(|operation| operation.get_timestamp("ts").ok());
    time.ok_or_else(|| DumpError::Choice("--oplog: the server's log is empty".to_owned()))
}

fn renames(operation: &RawDocument) -> bool {
    let o = operation.get_document("o");
    o.is_ok_and(|o| matches!(o.get("renameCollection"), Ok(Some(_))))
}

/// What a client needs of an operation to have it applied under another uuid.
pub(crate) fn applicable(operation: &RawDocument) -> Result<Document> {
    let mut applicable = Document::new();
    for name in ["op", "ns", "o", "o2", "b"] {
        let value = operation.get(name).map_err(|error| malformed(&error.to_string()))?;
        if let Some(value) = value {
            applicable.insert(
                name,
                Bson::try_from(value).map_err(|error| malformed(&error.to_string()))?,
            );
        }
    }
    // What came later may be there already, a deletion, too: an update then makes a document, which is deleted again.
    if applicable.get_str("op").ok() == Some("u") {
        applicable.insert("b", true);
    }
    Ok(applicable)
}

pub(crate) fn malformed(fault: &str) -> DumpError {
    DumpError::Format {
        subject: "oplog".to_owned(),
        fault: fault.to_owned(),
    }
}

/// The operations of an entry that is several: the `applyOps` of a transaction.
pub(crate) fn inner(o: &RawDocument) -> Result<Option<Vec<&RawDocument>>> {
    let operations = match o.get("applyOps").map_err(|error| malformed(&error.to_string()))? {
        None => return Ok(None),
        Some(RawBsonRef::Array(operations)) => operations,
        Some(_) => return Err(malformed("applyOps is no array")),
    };
    let documents = operations.into_iter().map(|operation| match operation {
        Ok(RawBsonRef::Document(operation)) => Ok(operation),
        _ => Err(malformed("an operation of applyOps is no document")),
    });
    documents.collect::<Result<_>>().map(Some)
}
