//! Statements of a write command one by one: each of them is counted for its collection, and told in the log and in
//! `system.profile`, by itself. A command may have a hundred thousand of them.

use crate::error::CommandError;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::operation_entry::{COMMAND_BYTES_MAX, OperationEntry, Telling, tell};
use crate::shown_command::ShownCommand;
use bson::doc;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use query::exec::PlanSummary;
use query::raw::{self, Elements, Frame};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{Namespace, OperationCounters};

/// What is told of a statement.
#[derive(Clone, Copy)]
pub(crate) enum ToldStatement<'s> {
    /// An update or a deletion, as the client sent it.
    Whole(&'s RawDocument),
    /// Inserts that go in together: what is inserted is not told, as it is of no command.
    Inserts,
}

/// A statement that runs.
pub(crate) struct StatementWatch<'s> {
    kind: OperationKind,
    namespace: &'s Namespace,
    told: ToldStatement<'s>,
    began: Duration,
    /// What the call had counted before; `None` of its first statement, as that was nothing.
    before: Option<OperationCounters>,
    /// A statement before it has sorted.
    has_sorted: bool,
}

impl<'s> StatementWatch<'s> {
    /// Begins with a statement.
    pub(crate) fn begin(
        call: &mut Invocation<'_>,
        kind: OperationKind,
        namespace: &'s Namespace,
        told: ToldStatement<'s>,
    ) -> Self {
        // That of the statement before is none of this one's.
        call.report.plan_summary = PlanSummary::default();
        let is_first = !std::mem::replace(&mut call.report.is_told_by_statement, true);
        let counters = call.operation.counters();
        let has_sorted = counters.forget_sort();
        Self {
            kind,
            namespace,
            told,
            began: call.server.env.clock.monotonic(),
            before: (!is_first).then(|| counters.since(&OperationCounters::default())),
            has_sorted,
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
        if call.report.plan_summary.text.starts_with("COLLSCAN") {
            server.record_scan(Some(self.namespace), false);
        }
        let setting = server.profiler.get(self.namespace.db());
        let slow_ms = server.parameters.slow_ms.load(Ordering::Relaxed);
        let is_slow = time.as_millis() as i64 >= slow_ms.max(0);
        let telling = Telling {
            setting: &setting,
            is_slow,
            profiled_in: Some(self.namespace.db()),
        };
        let counted = OnceCell::new();
        tell(call, &telling, || {
            let counters = call.operation.counters();
            let name = self.kind.op("update");
            let command = match self.told {
                ToldStatement::Whole(statement) => {
                    let statement = by_common_names(self.kind, statement);
                    ShownCommand::of(&statement, &[], COMMAND_BYTES_MAX).to_document(COMMAND_BYTES_MAX)
                }
                ToldStatement::Inserts => doc! { "insert": self.namespace.collection() },
            };
            OperationEntry {
                sort: name,
                op: name,
                namespace: self.namespace.as_str().to_owned(),
                command,
                time,
                working: time,
                counters: match &self.before {
                    Some(before) => counted.get_or_init(|| counters.since(before)),
                    None => counters,
                },
                documents,
                error,
                reply: None,
            }
        });
        if self.has_sorted {
            // It is so of the command as a whole.
            call.operation.counters().note_sort();
        }
    }
}

/// A statement with the names that `update` and `delete` have for its fields: those of `bulkWrite` are others.
fn by_common_names(kind: OperationKind, statement: &RawDocument) -> Cow<'_, RawDocument> {
    let fields = || Elements::new(statement).map_while(Result::ok);
    if !fields().any(|field| field.name() == b"filter") {
        return Cow::Borrowed(statement);
    }
    let is_delete = kind == OperationKind::Remove;
    let mut is_multi = false;
    let mut bytes = Vec::new();
    let frame = Frame::begin(&mut bytes);
    for field in fields() {
        let name = match field.name() {
            // A place in `nsInfo`: the entry has the name.
            b"update" | b"delete" => continue,
            b"multi" if is_delete => {
                is_multi = matches!(field.value(), Ok(RawBsonRef::Boolean(true)));
                continue;
            }
            b"filter" => "q".as_bytes(),
            b"updateMods" => "u".as_bytes(),
            b"constants" => "c".as_bytes(),
            name => name,
        };
        raw::append(&mut bytes, field.kind(), name, field.value_bytes());
    }
    if is_delete {
        let limit = i32::from(!is_multi);
        raw::append(&mut bytes, ElementType::Int32 as u8, b"limit", &limit.to_le_bytes());
    }
    frame.finish(&mut bytes);
    RawDocumentBuf::from_bytes(bytes).map_or(Cow::Borrowed(statement), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    #[test]
    fn statements_of_bulk_writes_have_the_names_of_others() {
        let common = |kind, statement: &RawDocument| by_common_names(kind, statement).into_owned();
        let update = rawdoc! { "update": 3, "filter": { "a": 1 }, "updateMods": { "b": 1 }, "multi": true };
        let told = rawdoc! { "q": { "a": 1 }, "u": { "b": 1 }, "multi": true };
        assert_eq!(common(OperationKind::Update, &update), told);
        assert_eq!(common(OperationKind::Update, &told), told);
        let delete = rawdoc! { "delete": 0, "filter": { "a": 1 }, "multi": true };
        assert_eq!(
            common(OperationKind::Remove, &delete),
            rawdoc! { "q": { "a": 1 }, "limit": 0 }
        );
        let delete = rawdoc! { "delete": 0, "filter": {} };
        assert_eq!(common(OperationKind::Remove, &delete), rawdoc! { "q": {}, "limit": 1 });
    }
}
