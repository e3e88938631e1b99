//! What is counted, logged and profiled of a call that is over.

use super::{Call, Running};
use crate::command::profile;
use crate::error::Result;
use crate::invocation::Invocation;
use crate::lock_report::locks_document;
use crate::logger::{Component, id};
use crate::metrics::OperationKind;
use crate::profiler::{self, ProfilingLevel};
use crate::spill_report::add_spills;
use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::OperationCounters;

/// Longer commands are not written to the log whole.
const LOGGED_COMMAND_BYTES_MAX: usize = 8 * 1024;

impl Call<'_> {
    /// Counts the finished call, and logs it when it was slow.
    pub(super) fn account(&self, running: &Running<'_>, result: &Result<()>, reply_bytes: usize) {
        let Running {
            invocation,
            started,
            profiling,
            ..
        } = running;
        let server = self.server;
        let time = server.env.clock.monotonic().saturating_sub(*started);
        let kind = self.command.kind;
        let metrics = &server.metrics;
        match kind {
            OperationKind::Query if matches!(self.command.name, "find" | "count" | "distinct" | "aggregate") => {
                metrics.operations.query.add(u64::from(self.command.name == "find"))
            }
            OperationKind::GetMore => metrics.operations.getmore.add(1),
            _ => {}
        }
        if !matches!(self.command.name, "find" | "getMore" | "insert" | "update" | "delete") {
            metrics.operations.command.add(1);
        }
        // A client that has the server wait for news gets no slow answer.
        let latency = time.saturating_sub(invocation.report.idle.get());
        metrics.latencies.record(kind, latency);
        if let Some(namespace) = &invocation.report.namespace {
            let catalog = server.storage.catalog();
            let exists = || catalog.collection(namespace).is_some() || catalog.view(namespace).is_some();
            metrics.top.record(namespace.as_str(), kind, latency, exists);
        }
        let counters = invocation.operation.counters();
        metrics.queries.scanned.add(counters.keys_examined.get());
        metrics.queries.scanned_objects.add(counters.docs_examined.get());
        metrics.queries.write_conflicts.add(counters.write_conflicts.get());
        metrics.queries.document_wait_us.add(counters.document_wait_us.get());
        metrics.queries.scan_and_order.add(counters.has_sort_stage.get());
        metrics.blocking.add(counters);
        if invocation.report.plan_summary.starts_with("COLLSCAN") {
            metrics.queries.collection_scans.add(1);
        }
        if let Some(n) = invocation.report.n_returned {
            metrics.documents.returned.add(n);
        }
        let slow_ms = server.parameters.slow_ms.load(Ordering::Relaxed);
        if self.command.name == "hello" {
            return;
        }
        let working = latency.saturating_sub(invocation.report.waited);
        // What waits for its turn is no reason to look at its plan.
        let is_slow = working.as_millis() as i64 >= slow_ms.max(0);
        let attributes = || self.attributes(invocation, (time, working), result, reply_bytes);
        let entry = || self.profile_entry(invocation, attributes());
        // A cursor that follows the profile would find its own last step for ever.
        let namespace = invocation.report.namespace.as_ref();
        let is_following =
            kind == OperationKind::GetMore && namespace.is_some_and(|ns| ns.collection() == profiler::COLLECTION);
        let is_logged = profile::is_found(invocation, profiling, is_slow, &entry);
        let is_profiled = match profiling.level {
            _ if is_following => false,
            ProfilingLevel::Off => false,
            ProfilingLevel::Slow => is_logged,
            ProfilingLevel::All => true,
        };
        if is_logged || server.logger.enabled(Component::Command, 1) {
            self.log_slow(attributes());
        }
        if is_profiled {
            server.write_profile(invocation.database, &entry());
        }
    }

    /// The document of `system.profile`.
    #[cold]
    fn profile_entry(&self, invocation: &Invocation<'_>, attributes: Document) -> Document {
        let mut entry = doc! { "op": self.command.kind.op(self.command.name) };
        for (name, value) in attributes {
            match name.as_str() {
                "type" => {}
                // MongoDB has other names for these here.
                "numYields" => drop(entry.insert("numYield", value)),
                "reslen" => drop(entry.insert("responseLength", value)),
                "durationMillis" => drop(entry.insert("millis", value)),
                "remote" => drop(entry.insert("client", value)),
                _ => drop(entry.insert(name, value)),
            }
        }
        entry.insert("ts", bson::DateTime::from_millis(self.server.env.clock.now_ms()));
        let user = invocation.rights.user();
        let all = user.map(|user| Bson::from(doc! { "user": &user.user, "db": &user.database }));
        entry.insert("allUsers", all.into_iter().collect::<Vec<_>>());
        entry.insert(
            "user",
            user.map_or_else(String::new, |user| format!("{}@{}", user.user, user.database)),
        );
        entry
    }

    #[cold]
    fn log_slow(&self, attributes: Document) {
        let context = format!("conn{}", self.client.id());
        self.server
            .logger
            .log(id::SLOW_QUERY, &context, "Slow query", attributes);
    }

    /// What log lines and `system.profile` tell of a call that took so long, and worked so long.
    #[cold]
    fn attributes(
        &self,
        invocation: &Invocation<'_>,
        (time, working): (Duration, Duration),
        result: &Result<()>,
        reply_bytes: usize,
    ) -> Document {
        let report = &invocation.report;
        let namespace = report.namespace.as_ref().map_or(invocation.database, |ns| ns.as_str());
        let mut attributes = doc! { "type": "command", "ns": namespace };
        if let Some(name) = self.client.application_name() {
            attributes.insert("appName", name);
        }
        attributes.insert("command", command_for_log(&self.command.shown(invocation.body)));
        if !report.plan_summary.is_empty() {
            attributes.insert("planSummary", &*report.plan_summary);
        }
        if let Some(hash) = invocation.shape_hash() {
            attributes.insert("queryShapeHash", hash.to_string());
        }
        if let Some(id) = report.cursor_id {
            attributes.insert("cursorid", id);
        }
        let counters = invocation.operation.counters();
        // All of them, so that a new one has its place here or a reason to have none.
        let OperationCounters {
            docs_examined,
            keys_examined,
            yields,
            write_conflicts,
            keys_inserted,
            keys_deleted,
            document_wait_us,
            has_sort_stage,
            // `serverStatus` sums these up.
            keys_sorted: _,
            sorted_bytes: _,
            // Added as documents.
            locks: _,
            spilled: _,
        } = counters;
        attributes.insert("keysExamined", keys_examined.get() as i64);
        attributes.insert("docsExamined", docs_examined.get() as i64);
        if has_sort_stage.get() > 0 {
            attributes.insert("hasSortStage", true);
        }
        add_spills(counters, &mut attributes);
        if report.cursor_exhausted {
            attributes.insert("cursorExhausted", true);
        }
        let written = [
            ("nreturned", report.n_returned),
            ("ninserted", report.n_inserted),
            ("nMatched", report.n_matched),
            ("nModified", report.n_modified),
            ("nUpserted", report.n_upserted),
            ("ndeleted", report.n_deleted),
        ];
        for (name, value) in written {
            if let Some(value) = value {
                attributes.insert(name, value as i64);
            }
        }
        for (name, keys) in [("keysInserted", keys_inserted), ("keysDeleted", keys_deleted)] {
            if keys.get() > 0 {
                attributes.insert(name, keys.get() as i64);
            }
        }
        attributes.insert("writeConflicts", write_conflicts.get() as i64);
        if document_wait_us.get() > 0 {
            attributes.insert("documentLockWaitMicros", document_wait_us.get() as i64);
        }
        attributes.insert("numYields", yields.get() as i64);
        attributes.insert("reslen", reply_bytes as i64);
        if let Err(error) = result {
            attributes.insert("ok", 0);
            attributes.insert("errMsg", &error.message);
            attributes.insert("errName", error.code.name());
            attributes.insert("errCode", error.code.0);
        }
        attributes.insert("locks", locks_document(counters));
        attributes.insert("remote", self.client.peer().as_str());
        attributes.insert(
            "protocol",
            if self.request.legacy_database.is_some() {
                "op_query"
            } else {
                "op_msg"
            },
        );
        attributes.insert("workingMillis", working.as_millis() as i64);
        attributes.insert("durationMillis", time.as_millis() as i64);
        attributes
    }
}

/// The command as log lines show it: long ones are cut.
fn command_for_log(body: &RawDocument) -> Bson {
    if body.as_bytes().len() > LOGGED_COMMAND_BYTES_MAX {
        let names: Vec<String> = body
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str().to_owned())
            .collect();
        return Bson::Document(
            doc! { "$truncated": format!("a command of {} bytes with the fields {names:?}", body.as_bytes().len()) },
        );
    }
    Document::try_from(body).map_or(Bson::Null, Bson::Document)
}
