//! `aggregate`.

use super::backup_cursor;
use super::cursor_commands::{CursorRequest, FIRST_BATCH_DEFAULT, reply_with_plan};
use super::find::{hint, optional};
use super::write_stages;
use crate::applied_settings::Purpose;
use crate::arguments::{missing_field, number_as_i64};
use crate::concerns::ReadLevel;
use crate::definition::{Access, Command, InTransactions, ReadLevels};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::stable_api;
use bson::raw::{RawArray, RawBsonRef};
use query::plan::AggregateRequest;
use query::plan::Verbosity;
use storage::Namespace;
use wire::ErrorCode;

/// `aggregate`.
pub const AGGREGATE: Command = Command::new(
    "aggregate",
    "Runs an aggregation pipeline.",
    OperationKind::Query,
    Access::Fields(super::aggregate_access::aggregate),
    aggregate,
)
.ends_with_client_if(|body| !super::write_stages::writes(body))
.read_levels(ReadLevels::All)
.takes_write_concern()
.in_transactions(InTransactions::Allowed)
.secondary_ok()
.timed_read()
.api_version_1()
.unstable_fields(&["explain"]);

/// A parsed `aggregate`.
pub struct Aggregate<'a> {
    /// What to run.
    pub request: AggregateRequest<'a>,
    batch: Option<u64>,
    explain: bool,
    has_cursor: bool,
}

/// Parses the fields of `aggregate`.
pub fn parse<'a>(call: &mut Invocation<'a>) -> Result<Aggregate<'a>> {
    let namespace = match call.target()? {
        RawBsonRef::String(_) => Some(call.readable_namespace()?),
        RawBsonRef::Double(1.0) => None,
        RawBsonRef::Decimal128(number) if number.to_string().parse() == Ok(1.0) => None,
        number @ (RawBsonRef::Int32(_) | RawBsonRef::Int64(_)) if number_as_i64(number) == Some(1) => None,
        other => {
            let code = match number_as_i64(other) {
                Some(_) => ErrorCode::BadValue,
                None => ErrorCode::InvalidNamespace,
            };
            return Err(CommandError::new(
                code,
                format!(
                    "Invalid command format: the 'aggregate' field must specify a collection name or 1, not {}",
                    crate::arguments::type_name(other)
                ),
            ));
        }
    };
    let arguments = call.arguments();
    let (mut pipeline, mut batch, mut explain, mut has_cursor) = (None, None, false, false);
    let (mut index_hint, mut collation, mut variables, mut allow_disk_use) = (None, None, None, None);
    call.for_each_field(|name, value| {
        match name {
            "pipeline" => pipeline = Some(arguments.array(name, value)?),
            "cursor" => {
                batch = super::listing::batch_size(arguments, arguments.document(name, value)?)?;
                has_cursor = true;
            }
            "explain" => explain = arguments.flag(name, value)?,
            "allowDiskUse" => allow_disk_use = Some(arguments.flag(name, value)?),
            "fromRouter" => drop(arguments.flag(name, value)?),
            "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
            "collectionUUID" => match &namespace {
                Some(namespace) => call.check_collection_uuid(namespace, value)?,
                None => {
                    return Err(CommandError::new(
                        ErrorCode(4_928_901),
                        "collectionUUID is of no use without a collection",
                    ));
                }
            },
            "hint" => index_hint = hint(value)?,
            "collation" => collation = optional(arguments, name, value)?,
            "let" => variables = optional(arguments, name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let pipeline = pipeline.ok_or_else(|| missing_field("aggregate", "pipeline"))?;
    if call.api_strict {
        stable_api::check_stages(pipeline)?;
    }
    let request = AggregateRequest {
        ns: namespace,
        db: call.database,
        pipeline,
        hint: index_hint,
        collation,
        variables,
        blocking: call.server.blocking_limits(allow_disk_use),
        script_globals: None,
    };
    Ok(Aggregate {
        request,
        batch: batch.map(|size| size as u64),
        explain,
        has_cursor,
    })
}

fn begins_with_change_stream(pipeline: &RawArray) -> bool {
    let first = pipeline.into_iter().next();
    first.is_some_and(|stage| matches!(stage, Ok(RawBsonRef::Document(stage)) if stage.get("$changeStream").is_ok_and(|stage| stage.is_some())))
}

fn aggregate(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let parsed = parse(call)?;
    if parsed.explain {
        return super::explain::explain_aggregate(call, reply, &parsed.request, Verbosity::QueryPlanner);
    }
    if !parsed.has_cursor {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            "The 'cursor' option is required, except for aggregate with the explain argument",
        ));
    }
    call.find_settings(Purpose::Run)?;
    let namespace = match &parsed.request.ns {
        Some(namespace) => namespace.clone(),
        None => Namespace::of_command(call.database, "aggregate")?,
    };
    if let Some(split) = write_stages::split(call, parsed.request.pipeline)? {
        let request = AggregateRequest {
            pipeline: &split.before,
            ..parsed.request.clone()
        };
        if call.read_concern.level == ReadLevel::Linearizable {
            return Err(CommandError::new(
                ErrorCode::InvalidOptions,
                format!(
                    "{} cannot be used with a 'linearizable' read concern level",
                    split.stage.name()
                ),
            ));
        }
        write_stages::run(call, &request, &split)?;
        reply.open_document("cursor");
        reply.open_array("firstBatch");
        reply.close();
        reply.int64("id", 0);
        reply.string("ns", namespace.as_str());
        reply.close();
        return Ok(());
    }
    let batch = parsed.batch.unwrap_or(FIRST_BATCH_DEFAULT);
    if let Some(options) = backup_cursor::requested(&parsed.request)? {
        return backup_cursor::reply_with_backup(call, reply, &parsed.request, options, (namespace, batch));
    }
    call.report.is_change_stream = begins_with_change_stream(parsed.request.pipeline);
    if call.report.is_change_stream && call.read_concern.has_level && call.read_concern.level != ReadLevel::Majority {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "$changeStream cannot run with a readConcern other than 'majority', or the current default readConcern",
        ));
    }
    let executor = query::aggregate(&call.context(), &parsed.request)?;
    call.set_plan_summary(executor.plan_summary());
    // A change stream stays open at its end.
    let tailable = executor.is_tailable();
    let request = CursorRequest {
        namespace,
        batch,
        single_batch: false,
        no_timeout: false,
        tailable,
        await_data: tailable,
    };
    reply_with_plan(call, reply, executor, request)
}
