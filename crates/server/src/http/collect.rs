//! What is shown, as commands answer it.

use super::json::to_json;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, rawdoc};
use commands::{Client, Request, Server};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Collections that the page gets, those that took most time.
const COLLECTIONS_MAX: usize = 100;
/// Log lines of slow operations that it gets, the newest.
const SLOW_LINES_MAX: usize = 30;
/// Running operations that it gets, those that run longest.
const RUNNING_MAX: usize = 50;
/// The number of such log lines.
const SLOW_LINE_ID: i64 = 51803;

/// Why a command did not answer.
#[derive(Debug)]
pub struct Refused {
    /// MongoDB's code.
    pub code: i32,
    /// Its sentence.
    pub message: String,
}

impl Refused {
    /// The caller may not.
    pub fn is_unauthorized(&self) -> bool {
        self.code == wire::ErrorCode::Unauthorized.0
    }
}

/// Has a command run as the client's.
///
/// # Errors
/// What the command answers other than `ok: 1`.
pub fn call(server: &Arc<Server>, client: &Arc<Client>, command: &RawDocument) -> Result<Document, Refused> {
    let request = Request::of(command);
    let mut bytes = Vec::new();
    server.handle(client, &request, &mut bytes);
    let malformed = |error: bson::error::Error| Refused {
        code: wire::ErrorCode::InvalidBSON.0,
        message: error.to_string(),
    };
    let reply = RawDocument::from_bytes(&bytes).map_err(malformed)?;
    let reply = Document::try_from(reply).map_err(malformed)?;
    match reply.get_f64("ok") {
        Ok(1.0) => Ok(reply),
        _ => Err(Refused {
            code: reply.get_i32("code").unwrap_or(0),
            message: reply.get_str("errmsg").unwrap_or("the command failed").to_owned(),
        }),
    }
}

/// `serverStatus`, with what takes how long.
///
/// # Errors
/// As [`call`].
pub fn server_status(server: &Arc<Server>, client: &Arc<Client>) -> Result<Document, Refused> {
    let command = rawdoc! { "serverStatus": 1, "opLatencies": { "histograms": true }, "$db": "admin" };
    call(server, client, &command)
}

/// `replSetGetStatus` of a member; `None` for any other server, and for who may not ask.
pub fn set_status(server: &Arc<Server>, client: &Arc<Client>) -> Option<Document> {
    server.replica_set()?;
    call(server, client, &rawdoc! { "replSetGetStatus": 1, "$db": "admin" }).ok()
}

/// All that the page shows. What the caller may not see is named in `refused`.
///
/// # Errors
/// `serverStatus` is refused.
pub fn page_status(server: &Arc<Server>, client: &Arc<Client>) -> Result<Value, Refused> {
    let status = server_status(server, client)?;
    let mut refused = Map::new();
    let mut ask = |name: &str, command: RawDocumentBuf| match call(server, client, &command) {
        Ok(reply) => reply,
        Err(error) => {
            refused.insert(name.to_owned(), error.message.into());
            Document::new()
        }
    };
    let top = ask("top", rawdoc! { "top": 1, "$db": "admin" });
    let running = ask("running", rawdoc! { "currentOp": 1, "$db": "admin" });
    let lines = ask("slow", rawdoc! { "getLog": "global", "$db": "admin" });
    let mut page = json!({
        "status": to_json(&Bson::Document(status)),
        "collections": collections(&top),
        "running": operations(&running, client.id()),
        "slow": slow_lines(&lines),
        "engine": server.storage.engine().info().name,
        "refused": refused,
    });
    if let Some(set) = set_status(server, client) {
        page["set"] = to_json(&Bson::Document(set));
    }
    Ok(page)
}

/// Microseconds and operations of the collections that took most time.
fn collections(top: &Document) -> Vec<Value> {
    let Ok(totals) = top.get_document("totals") else {
        return Vec::new();
    };
    let mut rows: Vec<(i64, Value)> = totals
        .iter()
        .filter_map(|(namespace, figures)| {
            let figures = figures.as_document()?;
            let figure = |sort: &str, name: &str| {
                let of = figures.get_document(sort).and_then(|sort| sort.get_i64(name));
                of.unwrap_or(0)
            };
            let time = figure("total", "time");
            let row = json!({
                "ns": namespace,
                "time": time,
                "count": figure("total", "count"),
                "readTime": figure("readLock", "time"),
                "reads": figure("readLock", "count"),
                "writeTime": figure("writeLock", "time"),
                "writes": figure("writeLock", "count"),
            });
            Some((time, row))
        })
        .collect();
    rows.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    rows.truncate(COLLECTIONS_MAX);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// What runs, without what it was given: field names and values are the clients' affair.
fn operations(reply: &Document, own: u32) -> Vec<Value> {
    let Ok(operations) = reply.get_array("inprog") else {
        return Vec::new();
    };
    let mut rows: Vec<(i64, Value)> = operations
        .iter()
        .filter_map(|operation| {
            let operation = operation.as_document()?;
            let command = operation
                .get_document("command")
                .ok()
                .and_then(|command| command.keys().next());
            // What waits to be told of changes of the topology is no work.
            let is_idle = matches!(command.map(String::as_str), Some("hello" | "isMaster" | "ismaster"));
            if is_idle || operation.get_i32("connectionId").is_ok_and(|id| id == own as i32) {
                return None;
            }
            // One that waits for its client's next statement holds locks, for as long as it is open.
            let transaction = operation.get_document("transaction").ok();
            let us = match transaction {
                Some(transaction) => transaction.get_i64("timeOpenMicros"),
                None => operation.get_i64("microsecs_running"),
            };
            let us = us.unwrap_or(0);
            let row = json!({
                "id": operation.get_i32("opid").ok(),
                "us": us,
                "op": operation.get_str("op").or(operation.get_str("desc")).unwrap_or(""),
                "command": command,
                "ns": operation.get_str("ns").unwrap_or(""),
                "plan": operation.get_str("planSummary").unwrap_or(""),
                "waits": operation.get_bool("waitingForLock").unwrap_or(false),
            });
            Some((us, row))
        })
        .collect();
    rows.sort_by_key(|(us, _)| std::cmp::Reverse(*us));
    rows.truncate(RUNNING_MAX);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The newest log lines of slow operations, newest first, without what the operations were given.
fn slow_lines(reply: &Document) -> Vec<Value> {
    let Ok(lines) = reply.get_array("log") else {
        return Vec::new();
    };
    let marked = format!("\"id\":{SLOW_LINE_ID},");
    let lines = lines
        .iter()
        .rev()
        .filter_map(Bson::as_str)
        .filter(|line| line.contains(&marked));
    lines.filter_map(slow_line).take(SLOW_LINES_MAX).collect()
}

fn slow_line(line: &str) -> Option<Value> {
    let line: Line = serde_json::from_str(line).ok()?;
    // The number may stand in what a client has sent.
    if line.id != SLOW_LINE_ID {
        return None;
    }
    let of = line.attr;
    // The line of the command that the statement is of has its name. There is none where a filter of `profile` finds
    // the statement alone: then it is in the log, and not here.
    if matches!(of.sort.as_deref(), Some("update" | "remove")) {
        return None;
    }
    Some(json!({
        "time": line.t.date,
        "ns": of.ns,
        "command": of.command.and_then(|command| command.0).filter(|name| !name.starts_with('$')),
        "plan": of.plan_summary,
        "keys": of.keys_examined,
        "docs": of.docs_examined,
        "returned": of.nreturned,
        "ms": of.duration_millis,
        "error": of.err_name,
    }))
}

/// What is read of a log line.
#[derive(Deserialize)]
struct Line {
    t: Time,
    id: i64,
    #[serde(default)]
    attr: Attributes,
}

#[derive(Deserialize)]
struct Time {
    #[serde(rename = "$date")]
    date: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Attributes {
    #[serde(rename = "type")]
    sort: Option<String>,
    ns: Option<String>,
    command: Option<FirstName>,
    plan_summary: Option<String>,
    keys_examined: Option<i64>,
    docs_examined: Option<i64>,
    nreturned: Option<i64>,
    duration_millis: Option<i64>,
    err_name: Option<String>,
}

/// The name of an object's first field: what a command is called by. The others are passed over.
struct FirstName(Option<String>);

impl<'de> Deserialize<'de> for FirstName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First;
        impl<'de> Visitor<'de> for First {
            type Value = FirstName;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a command")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<FirstName, A::Error> {
                let mut first = None;
                while let Some((name, _)) = fields.next_entry::<String, IgnoredAny>()? {
                    first.get_or_insert(name);
                }
                Ok(FirstName(first))
            }
        }
        deserializer.deserialize_map(First)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn what_operations_were_given_is_not_shown() {
        let line = r#"{"t":{"$date":"2026-11-25T20:00:00.000+00:00"},"s":"I","c":"COMMAND","id":51803,"ctx":"conn1",
            "msg":"Slow query","attr":{"type":"command","ns":"shop.orders",
            "command":{"find":"orders","filter":{"card":"4711"},"$db":"shop"},"planSummary":"COLLSCAN",
            "keysExamined":0,"docsExamined":9,"nreturned":1,"durationMillis":120}}"#;
        let other = r#"{"t":{"$date":"x"},"id":7,"attr":{"text":"\"id\":51803,"}}"#;
        let statement = r#"{"t":{"$date":"x"},"id":51803,"attr":{"type":"update","ns":"a.b","command":{"q":{}}}}"#;
        let lines = slow_lines(&doc! { "log": [line, other, statement, "no JSON \"id\":51803,"] });
        assert_eq!(lines.len(), 1);
        let shown = lines[0].to_string();
        assert!(
            shown.contains("shop.orders") && shown.contains("120") && !shown.contains("4711"),
            "{shown}"
        );
        assert_eq!(lines[0]["command"], "find");

        let running = |id: i32, command: Document| {
            doc! {
                "connectionId": id, "opid": 5, "microsecs_running": 7_000_i64, "op": "command", "ns": "shop.orders",
                "command": command, "waitingForLock": true,
            }
        };
        let reply = doc! { "inprog": [
            running(1, doc! { "hello": 1 }),
            running(2, doc! { "currentOp": 1 }),
            running(3, doc! { "find": "orders", "filter": { "card": "4711" } }),
            doc! {
                "type": "idleSession", "connectionId": 4, "desc": "inactive transaction",
                "transaction": { "timeOpenMicros": 9_000_i64 }, "waitingForLock": false,
            },
        ] };
        let shown = operations(&reply, 2);
        let told = |row: &Value| {
            (
                row["op"].clone(),
                row["command"].clone(),
                row["us"].clone(),
                row["id"].clone(),
            )
        };
        assert_eq!(shown.len(), 2);
        assert_eq!(
            told(&shown[0]),
            (json!("inactive transaction"), Value::Null, json!(9000), Value::Null)
        );
        assert_eq!(
            told(&shown[1]),
            (json!("command"), json!("find"), json!(7000), json!(5))
        );
        assert!(!shown[1].to_string().contains("4711"));
    }

    #[test]
    fn collections_that_took_most_time_come_first() {
        let figures = |time: i64| doc! { "total": { "time": time, "count": 1_i64 } };
        let mut totals = doc! { "note": "all times in microseconds" };
        for number in 0..200 {
            totals.insert(format!("t.c{number}"), figures(number));
        }
        let rows = collections(&doc! { "totals": totals });
        assert_eq!((rows.len(), &rows[0]["ns"]), (COLLECTIONS_MAX, &json!("t.c199")));
        assert!(collections(&doc! {}).is_empty());
    }
}
