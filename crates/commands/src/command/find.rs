//! `find`, `count`, `distinct`.

use super::cursor_commands::{CursorRequest, FIRST_BATCH_DEFAULT, reply_with_plan, write_moment};
use crate::applied_settings::Purpose;
use crate::arguments::{Arguments, number_as_i64, wrong_type};
use crate::definition::{Access, Command, InTransactions, ReadLevels};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::raw::{CStr, RawBsonRef, RawDocument};
use bson::rawdoc;
use query::exec::PlanSummary;
use query::plan::{CountRequest, DistinctRequest, FindRequest, Hint};
use std::sync::LazyLock;
use storage::Namespace;
use wire::ErrorCode;

/// `find`.
pub const FIND: Command = Command::new(
    "find",
    "Finds documents.",
    OperationKind::Query,
    Access::collection(&[Action::Find]),
    find,
)
.ends_with_client()
.read_levels(ReadLevels::All)
.in_transactions(InTransactions::Allowed)
.secondary_ok()
.timed_read()
.api_version_1()
.unstable_fields(&[
    "awaitData",
    "max",
    "min",
    "noCursorTimeout",
    "oplogReplay",
    "readOnce",
    "returnKey",
    "showRecordId",
    "tailable",
]);
/// `count`.
pub const COUNT: Command = Command::new(
    "count",
    "Counts documents.",
    OperationKind::Query,
    Access::collection(&[Action::Find]),
    count,
)
.ends_with_client()
.read_levels(ReadLevels::NotSnapshot)
.secondary_ok()
.timed_read()
.api_version_1();
/// `distinct`.
pub const DISTINCT: Command = Command::new(
    "distinct",
    "The different values of a field.",
    OperationKind::Query,
    Access::collection(&[Action::Find]),
    distinct,
)
.ends_with_client()
.read_levels(ReadLevels::All)
.in_transactions(InTransactions::Allowed)
.secondary_ok()
.timed_read();

/// The filter of requests that give none.
pub fn empty_document() -> &'static RawDocument {
    static EMPTY: LazyLock<bson::RawDocumentBuf> = LazyLock::new(|| rawdoc! {});
    &EMPTY
}

/// A hint: an index's name or key pattern.
pub fn hint<'a>(value: RawBsonRef<'a>) -> Result<Option<Hint<'a>>> {
    match value {
        RawBsonRef::String(name) => Ok(Some(Hint::Name(name))),
        RawBsonRef::Document(key) if key.is_empty() => Ok(None),
        RawBsonRef::Document(key) => Ok(Some(Hint::Key(key))),
        _ => Err(CommandError::new(
            ErrorCode::FailedToParse,
            "Hint must be a string or an object",
        )),
    }
}

/// An optional document, where an empty one means none.
pub fn optional<'a>(arguments: Arguments<'_>, name: &str, value: RawBsonRef<'a>) -> Result<Option<&'a RawDocument>> {
    match value {
        RawBsonRef::Null => Ok(None),
        value => Ok(Some(arguments.document(name, value)?).filter(|document| !document.is_empty())),
    }
}

/// A parsed `find`.
pub struct Find<'a> {
    /// What to find.
    pub request: FindRequest<'a>,
    batch: Option<u64>,
    single_batch: bool,
    no_timeout: bool,
}

/// Parses the fields of `find`.
pub fn parse_find<'a>(call: &Invocation<'a>, namespace: Namespace) -> Result<Find<'a>> {
    let arguments = call.arguments();
    let mut find = Find {
        request: FindRequest::new(namespace, empty_document()),
        batch: None,
        single_batch: false,
        no_timeout: false,
    };
    let request = &mut find.request;
    let mut allow_disk_use = None;
    let mut lost_filter = None;
    call.for_each_field(|name, value| {
        match name {
            // As it is no document that says what to find, it does not stand for everything.
            "filter" if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) => lost_filter = Some(value),
            "filter" => request.filter = arguments.document(name, value)?,
            "sort" => request.sort = optional(arguments, name, value)?,
            "projection" => request.projection = optional(arguments, name, value)?,
            "collectionUUID" => call.check_collection_uuid(&request.ns, value)?,
            "hint" => request.hint = hint(value)?,
            "skip" => request.skip = arguments.non_negative(name, value)? as u64,
            "limit" => request.limit = Some(arguments.non_negative(name, value)? as u64).filter(|limit| *limit > 0),
            "batchSize" => find.batch = Some(arguments.non_negative(name, value)? as u64),
            "singleBatch" => find.single_batch = arguments.flag(name, value)?,
            "min" => request.min = optional(arguments, name, value)?,
            "max" => request.max = optional(arguments, name, value)?,
            "returnKey" => request.return_key = arguments.flag(name, value)?,
            "showRecordId" => request.show_record_id = arguments.flag(name, value)?,
            "tailable" => request.tailable = arguments.flag(name, value)?,
            "awaitData" => request.await_data = arguments.flag(name, value)?,
            "noCursorTimeout" => find.no_timeout = arguments.flag(name, value)?,
            "allowDiskUse" => allow_disk_use = Some(arguments.flag(name, value)?),
            "oplogReplay" | "allowPartialResults" => drop(arguments.flag(name, value)?),
            // A hint to the cache, which takes scans for read once by itself.
            "readOnce" => {
                if arguments.flag(name, value)? && call.transaction.is_some() {
                    return Err(CommandError::new(
                        ErrorCode::OperationNotSupportedInTransaction,
                        "The 'readOnce' option is not supported within a transaction.",
                    ));
                }
            }
            "collation" => request.collation = optional(arguments, name, value)?,
            "let" => request.variables = optional(arguments, name, value)?,
            "term" if matches!(value, RawBsonRef::Int64(_)) => {}
            "term" => return Err(wrong_type("find", name, value, "type 'long'")),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if let Some(value) = lost_filter {
        return Err(wrong_type("find", "filter", value, "type 'object'"));
    }
    request.blocking = call.server.blocking_limits(allow_disk_use);
    if let (Some(min), Some(max)) = (request.min, request.max) {
        let names = |document: &'a RawDocument| document.into_iter().flatten().map(|(name, _)| name);
        if !names(min).eq(names(max)) {
            return Err(CommandError::new(
                ErrorCode(51176),
                "min and max must have the same field names",
            ));
        }
    }
    if request.await_data && !request.tailable {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            "Cannot set 'awaitData' without also setting 'tailable'",
        ));
    }
    if request.tailable && call.transaction.is_some() {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "It is illegal to open a tailable cursor in a transaction",
        ));
    }
    if request.tailable && find.single_batch {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            "Cannot use tailable option with the 'singleBatch' option",
        ));
    }
    Ok(find)
}

fn find(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.readable_namespace()?;
    let find = parse_find(call, namespace)?;
    if call.server.query_settings.are_used() && !query::is_lookup_by_id(&find.request) {
        call.find_settings(Purpose::Run)?;
    }
    let executor = query::find(&call.context(), &find.request)?;
    call.set_plan_summary(executor.plan_summary());
    let request = CursorRequest {
        namespace: find.request.ns.clone(),
        batch: find.batch.unwrap_or(FIRST_BATCH_DEFAULT),
        single_batch: find.single_batch,
        no_timeout: find.no_timeout,
        tailable: find.request.tailable,
        await_data: find.request.await_data,
    };
    reply_with_plan(call, reply, executor, request)
}

/// Parses the fields of `count`.
pub fn parse_count<'a>(call: &Invocation<'a>, namespace: Namespace) -> Result<CountRequest<'a>> {
    let arguments = call.arguments();
    let mut request = CountRequest::new(namespace, empty_document());
    request.blocking = call.server.blocking_limits(None);
    call.for_each_field(|name, value| {
        match name {
            "query" if matches!(value, RawBsonRef::Null) => {}
            "query" => request.filter = arguments.document(name, value)?,
            "limit" => {
                let Some(limit) = number_as_i64(value) else {
                    return Err(CommandError::bad_value("limit value is not a valid number"));
                };
                request.limit = Some(limit.unsigned_abs()).filter(|limit| *limit > 0);
            }
            "skip" => request.skip = arguments.non_negative(name, value)? as u64,
            "collectionUUID" => call.check_collection_uuid(&request.ns, value)?,
            "hint" => request.hint = hint(value)?,
            "collation" => request.collation = optional(arguments, name, value)?,
            "fields" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(request)
}

/// Runs what tells its plan before it begins: to `currentOp` at once, and to the report.
fn telling_plan<'b, T>(
    call: &mut Invocation<'b>,
    run: impl FnOnce(&Invocation<'b>, &mut dyn FnMut(PlanSummary)) -> T,
) -> T {
    let mut plan = PlanSummary::default();
    let result = run(call, &mut |summary| {
        call.tell_plan(&summary.text);
        plan = summary;
    });
    call.report.plan_summary = plan;
    result
}

fn count(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.readable_namespace()?;
    let request = parse_count(call, namespace)?;
    // A view is counted by an aggregation, whose `$limit` is above 0.
    let is_no_limit =
        |(name, value): (&CStr, RawBsonRef<'_>)| name.as_str() == "limit" && number_as_i64(value) == Some(0);
    if call.body.into_iter().flatten().any(is_no_limit) && call.server.storage.catalog().view(&request.ns).is_some() {
        return Err(CommandError::new(ErrorCode(15958), "the limit must be positive"));
    }
    let counted = telling_plan(call, |call, on_plan| query::count(&call.context(), &request, on_plan))?;
    reply.count("n", counted as i64);
    Ok(())
}

/// Parses the fields of `distinct`.
pub fn parse_distinct<'a>(call: &Invocation<'a>, namespace: Namespace) -> Result<DistinctRequest<'a>> {
    let arguments = call.arguments();
    let mut key = None;
    let mut request = DistinctRequest::new(namespace, "", empty_document());
    request.blocking = call.server.blocking_limits(None);
    call.for_each_field(|name, value| {
        match name {
            "key" => key = Some(arguments.string(name, value)?),
            "query" if matches!(value, RawBsonRef::Null) => {}
            "query" => request.filter = arguments.document(name, value)?,
            "collectionUUID" => call.check_collection_uuid(&request.ns, value)?,
            "hint" => request.hint = hint(value)?,
            "collation" => request.collation = optional(arguments, name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    request.key = key.ok_or_else(|| crate::arguments::missing_field("distinct", "key"))?;
    if request.key.contains('\0') {
        return Err(CommandError::new(
            ErrorCode(31032),
            "key field cannot contain an embedded null byte",
        ));
    }
    query::expression::FieldPath::parse(request.key)?;
    Ok(request)
}

fn distinct(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.readable_namespace()?;
    let request = parse_distinct(call, namespace)?;
    call.find_settings(Purpose::Run)?;
    let values = telling_plan(call, |call, on_plan| {
        query::distinct(&call.context(), &request, on_plan)
    })?;
    reply.value("values", &bson::Bson::Array(values));
    write_moment(call, reply);
    Ok(())
}
