//! What is counted, logged and profiled of a call that is over.

use super::{Call, Running};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::{OperationKind, TopUse};
use crate::operation_entry::{COMMAND_BYTES_MAX, OperationEntry, ReplyEntry, Telling, tell};
use crate::profiler::COLLECTION;
use crate::server::Server;
use crate::shown_command::{Sequences, ShownCommand, shown_namespace};
use bson::raw::{RawBsonRef, RawDocument};
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::Namespace;

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
        let is_told_by_statement = invocation.report.is_told_by_statement;
        if let Some(namespace) = invocation.report.namespace.as_ref().filter(|_| !is_told_by_statement) {
            server.record_usage(namespace, self.command.usage(), latency);
        }
        let counters = invocation.operation.counters();
        metrics.queries.scanned.add(counters.keys_examined.get());
        metrics.queries.scanned_objects.add(counters.docs_examined.get());
        metrics.queries.write_conflicts.add(counters.write_conflicts.get());
        metrics.queries.document_wait_us.add(counters.document_wait_us.get());
        metrics.queries.scan_and_order.add(counters.has_sort_stage.get());
        metrics.plan_cache.add(counters);
        metrics.blocking.add(counters);
        // A scan is one, in however many batches it is read.
        if !is_told_by_statement
            && kind != OperationKind::GetMore
            && invocation.report.plan_summary.text.starts_with("COLLSCAN")
        {
            let is_tailable = matches!(invocation.body.get("tailable"), Ok(Some(RawBsonRef::Boolean(true))));
            server.record_scan(invocation.report.namespace.as_ref(), is_tailable);
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
        let report = &invocation.report;
        let finished = Finished {
            time,
            working,
            result,
            reply_bytes,
            documents: [
                ("nreturned", report.n_returned),
                ("ninserted", report.n_inserted),
                ("nMatched", report.n_matched),
                ("nModified", report.n_modified),
                ("nUpserted", report.n_upserted),
                ("ndeleted", report.n_deleted),
            ],
        };
        // A cursor that follows the profile would find its own last step for ever.
        let followed = report.namespace.as_ref().filter(|_| kind == OperationKind::GetMore);
        let is_following = followed.is_some_and(|ns| ns.collection() == COLLECTION);
        // `bulkWrite` is one of `admin`, and its statements are told in the databases of their collections.
        let is_told_already = is_told_by_statement && self.command.name != "bulkWrite";
        let telling = Telling {
            setting: profiling,
            is_slow,
            profiled_in: (!is_following && !is_told_already).then_some(invocation.database),
        };
        tell(invocation, &telling, || self.entry(invocation, &finished));
    }

    /// What log lines and `system.profile` tell of the call, which took so long, and worked so long.
    #[cold]
    fn entry<'e>(&self, invocation: &'e Invocation<'_>, of: &'e Finished<'_>) -> OperationEntry<'e> {
        let report = &invocation.report;
        let (name, kind) = (self.command.name, self.command.kind);
        let known = report.namespace.as_ref().map_or(invocation.database, |ns| ns.as_str());
        let shown = |body: &RawDocument, sequences: Sequences<'_>| {
            ShownCommand::of(body, sequences, COMMAND_BYTES_MAX).to_document(COMMAND_BYTES_MAX)
        };
        OperationEntry {
            sort: "command",
            op: kind.op(name),
            namespace: shown_namespace(known, name, Some(kind), invocation.body),
            command: shown(&self.command.shown(invocation.body), invocation.sequences),
            time: of.time,
            working: of.working,
            counters: invocation.operation.counters(),
            documents: &of.documents,
            error: of.result.as_ref().err(),
            reply: Some(ReplyEntry {
                bytes: of.reply_bytes,
                protocol: match self.request.legacy_database {
                    Some(_) => "op_query",
                    None => "op_msg",
                },
                originating: report.originating.as_ref().map(|command| shown(command, &[])),
            }),
        }
    }
}

/// A call that is over.
struct Finished<'f> {
    time: Duration,
    working: Duration,
    result: &'f Result<()>,
    reply_bytes: usize,
    /// Returned and written, by the names of log lines.
    documents: [(&'static str, Option<u64>); 6],
}

impl Server {
    /// Counts an operation on a collection, or on a view, for `top`.
    pub(crate) fn record_usage(&self, namespace: &Namespace, usage: TopUse, time: Duration) {
        let catalog = self.storage.catalog();
        let exists = || catalog.collection(namespace).is_some() || catalog.view(namespace).is_some();
        self.metrics.top.record(namespace.as_str(), usage, time, exists);
    }

    /// Counts an operation that read a whole collection, and that [`Server::record_usage`] has counted.
    pub(crate) fn record_scan(&self, namespace: Option<&Namespace>, is_tailable: bool) {
        let queries = &self.metrics.queries;
        queries.collection_scans.add(1);
        queries.non_tailable_scans.add(u64::from(!is_tailable));
        if let Some(namespace) = namespace {
            self.metrics.top.record_scan(namespace.as_str(), is_tailable);
        }
    }
}
