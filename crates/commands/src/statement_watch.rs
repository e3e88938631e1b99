//! Statements of a write command one by one: each of them is counted for its collection, and told in the log and in
//! `system.profile`, by itself. A command may have a hundred thousand of them.

use crate::command::profile;
use crate::error::CommandError;
use crate::invocation::Invocation;
use crate::logger::Component;
use crate::metrics::OperationKind;
use crate::operation_entry::{COMMAND_BYTES_MAX, OperationEntry};
use crate::profiler::ProfilingLevel;
use crate::shown_command::ShownCommand;
use bson::RawDocument;
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{Namespace, OperationCounters};

/// A statement that runs.
pub(crate) struct StatementWatch<'s> {
    kind: OperationKind,
    namespace: &'s Namespace,
    /// As the client sent it.
    statement: &'s RawDocument,
    began: Duration,
    before: OperationCounters,
}

impl<'s> StatementWatch<'s> {
    /// Begins with a statement.
    pub(crate) fn begin(
        call: &mut Invocation<'_>,
        kind: OperationKind,
        namespace: &'s Namespace,
        statement: &'s RawDocument,
    ) -> Self {
        // That of the statement before is none of this one's.
        call.report.plan_summary = Cow::Borrowed("");
        call.report.is_told_by_statement = true;
        Self {
            kind,
            namespace,
            statement,
            began: call.server.env.clock.monotonic(),
            before: call.operation.counters().since(&OperationCounters::default()),
        }
    }

    /// The statement has ended, however it did. Its documents are by the names of log lines.
    pub(crate) fn end(
        self,
        call: &Invocation<'_>,
        documents: &[(&'static str, Option<u64>)],
        error: Option<&CommandError>,
    ) {
        let server = call.server;
        let time = server.env.clock.monotonic().saturating_sub(self.began);
        server.record_usage(self.namespace, self.kind.usage(), time);
        let setting = server.profiler.get(self.namespace.db());
        let slow_ms = server.parameters.slow_ms.load(Ordering::Relaxed);
        let is_slow = time.as_millis() as i64 >= slow_ms.max(0);
        let is_logged_all = server.logger.enabled(Component::Command, 1);
        let is_profiled_all = setting.level == ProfilingLevel::All;
        if !(is_slow || is_logged_all || is_profiled_all || setting.filter.is_some()) {
            return;
        }
        let name = self.kind.op("update");
        let entry = OperationEntry {
            sort: name,
            op: name,
            namespace: self.namespace.as_str().to_owned(),
            command: ShownCommand::of(self.statement, &[], COMMAND_BYTES_MAX).to_document(COMMAND_BYTES_MAX),
            time,
            working: time,
            counters: &call.operation.counters().since(&self.before),
            documents,
            error,
            reply: None,
        };
        let is_found = profile::is_found(call, &setting, is_slow, &|| entry.profile(call));
        if is_found || is_logged_all {
            entry.log(call);
        }
        if is_profiled_all || is_found && setting.level == ProfilingLevel::Slow {
            server.write_profile(self.namespace.db(), &entry.profile(call));
        }
    }
}
