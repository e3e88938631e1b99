//! What log lines and `system.profile` tell of an operation: of a call of a command, or of one statement of it.
//!
//! It is made once, and only where somebody asks for it: most operations are told nowhere.

use crate::command::profile;
use crate::error::CommandError;
use crate::invocation::Invocation;
use crate::lock_report::locks_document;
use crate::logger::{Component, id};
use crate::profiler::{ProfilingLevel, Setting};
use crate::spill_report::add_spills;
use bson::{Bson, Document, doc};
use query::plan::QueryHashes;
use std::time::Duration;
use storage::OperationCounters;

/// Of a longer command log lines and the profiler show the beginning.
pub(crate) const COMMAND_BYTES_MAX: usize = 8 * 1024;

/// An operation that is over.
pub(crate) struct OperationEntry<'e> {
    /// `type` of log lines.
    pub sort: &'static str,
    /// `op` of the profiler.
    pub op: &'static str,
    pub namespace: String,
    pub command: Document,
    /// How long it took, and how much of that it worked.
    pub time: Duration,
    pub working: Duration,
    pub counters: &'e OperationCounters,
    /// Documents returned and written, by the names that they have there.
    pub documents: &'e [(&'static str, Option<u64>)],
    pub error: Option<&'e CommandError>,
    /// Of what has a reply of its own.
    pub reply: Option<ReplyEntry>,
}

/// What is told of a call and its reply, and not of a statement.
pub(crate) struct ReplyEntry {
    pub bytes: usize,
    pub protocol: &'static str,
    /// The command that made the cursor.
    pub originating: Option<Document>,
}

/// Where an operation is to be told.
pub(crate) struct Telling<'t> {
    /// What the operations of its database are asked.
    pub setting: &'t Setting,
    pub is_slow: bool,
    /// The database whose `system.profile` may have it; `None` where none may.
    pub profiled_in: Option<&'t str>,
}

/// Tells of an operation that is over: in the log when it is slow or the filter finds it, and in `system.profile`.
pub(crate) fn tell<'e>(call: &Invocation<'_>, telling: &Telling<'_>, entry: impl FnOnce() -> OperationEntry<'e>) {
    let setting = telling.setting;
    let is_sampled = telling.is_slow && setting.filter.is_none() && profile::is_sampled(call);
    let is_logged = is_sampled || call.server.logger.enabled(Component::Command, 1);
    let is_profiled = telling.profiled_in.is_some() && setting.level == ProfilingLevel::All;
    if is_logged || is_profiled || setting.filter.is_some() {
        tell_entry(call, telling, is_sampled, entry());
    }
}

/// As [`tell`], of an operation that is one of the slow ones to be told, or that is to be told whatever it is, or that
/// the filter may find.
#[cold]
fn tell_entry(call: &Invocation<'_>, telling: &Telling<'_>, is_sampled: bool, entry: OperationEntry<'_>) {
    let op = entry.op;
    let attributes = entry.into_attributes(call);
    let mut profiled = None;
    let is_found = match &telling.setting.filter {
        None => is_sampled,
        Some(filter) => {
            let document = profiled.insert(profile_document(call, op, attributes.clone()));
            profile::finds(call, filter, document)
        }
    };
    let logger = &call.server.logger;
    if is_found || logger.enabled(Component::Command, 1) {
        let context = format!("conn{}", call.client.id());
        logger.log(id::SLOW_QUERY, &context, "Slow query", &attributes);
    }
    let is_profiled = match telling.setting.level {
        ProfilingLevel::Off => false,
        ProfilingLevel::Slow => is_found,
        ProfilingLevel::All => true,
    };
    if let Some(database) = telling.profiled_in.filter(|_| is_profiled) {
        let document = profiled.unwrap_or_else(|| profile_document(call, op, attributes));
        call.server.write_profile(&call.report, database, document);
    }
}

/// The document of `system.profile`, out of what a log line tells.
fn profile_document(call: &Invocation<'_>, op: &str, attributes: Document) -> Document {
    let mut entry = doc! { "op": op };
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
    entry.insert("ts", bson::DateTime::from_millis(call.server.env.clock.now_ms()));
    let user = call.rights.user();
    let all = user.map(|user| Bson::from(doc! { "user": &user.user, "db": &user.database }));
    entry.insert("allUsers", all.into_iter().collect::<Vec<_>>());
    entry.insert(
        "user",
        user.map_or_else(String::new, |user| format!("{}@{}", user.user, user.database)),
    );
    entry
}

impl OperationEntry<'_> {
    /// As the attributes of a log line.
    fn into_attributes(mut self, call: &Invocation<'_>) -> Document {
        let report = &call.report;
        let mut attributes = doc! { "type": self.sort, "ns": std::mem::take(&mut self.namespace) };
        if let Some(name) = call.client.application_name() {
            attributes.insert("appName", name);
        }
        attributes.insert("command", std::mem::take(&mut self.command));
        if let Some(originating) = self.reply.as_mut().and_then(|reply| reply.originating.take()) {
            attributes.insert("originatingCommand", originating);
        }
        if !report.plan_summary.text.is_empty() {
            attributes.insert("planSummary", &*report.plan_summary.text);
        }
        // A command whose statements are told one by one has no query of its own.
        let is_of_statements = self.reply.is_some() && report.is_told_by_statement;
        if let Some(query) = report.plan_summary.query.as_ref().filter(|_| !is_of_statements) {
            let QueryHashes { shape, key } = query.hashes();
            attributes.insert("planCacheShapeHash", &shape);
            // Its name before MongoDB 8.0, which has both.
            attributes.insert("queryHash", shape);
            attributes.insert("planCacheKey", key);
        }
        if let Some(hash) = self.reply.as_ref().and_then(|_| call.shape_hash()) {
            attributes.insert("queryShapeHash", hash.to_string());
        }
        if let Some(id) = report.cursor_id {
            attributes.insert("cursorid", id);
        }
        self.add_figures(call, &mut attributes);
        if let Some(error) = self.error {
            attributes.insert("ok", 0);
            attributes.insert("errMsg", &error.message);
            attributes.insert("errName", error.code.name());
            attributes.insert("errCode", error.code.0);
        }
        attributes.insert("locks", locks_document(self.counters));
        attributes.insert("remote", call.client.peer().as_str());
        if let Some(reply) = &self.reply {
            attributes.insert("protocol", reply.protocol);
        }
        attributes.insert("workingMillis", self.working.as_millis() as i64);
        attributes.insert("durationMillis", self.time.as_millis() as i64);
        attributes
    }

    fn add_figures(&self, call: &Invocation<'_>, attributes: &mut Document) {
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
            plan_cache_hits,
            replanned,
            // `serverStatus` sums these up.
            plan_cache_misses: _,
            replanned_alike: _,
            keys_sorted: _,
            sorted_bytes: _,
            // Added as documents.
            locks: _,
            spilled: _,
        } = self.counters;
        attributes.insert("keysExamined", keys_examined.get() as i64);
        attributes.insert("docsExamined", docs_examined.get() as i64);
        if has_sort_stage.get() > 0 {
            attributes.insert("hasSortStage", true);
        }
        if plan_cache_hits.get() > 0 {
            attributes.insert("fromPlanCache", true);
        }
        if replanned.get() > 0 {
            attributes.insert("replanned", true);
        }
        add_spills(self.counters, attributes);
        if call.report.cursor_exhausted {
            attributes.insert("cursorExhausted", true);
        }
        for (name, value) in self.documents {
            if let Some(value) = value {
                attributes.insert(*name, *value as i64);
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
        if let Some(reply) = &self.reply {
            attributes.insert("reslen", reply.bytes as i64);
        }
    }
}
