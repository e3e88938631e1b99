//! `explain`: how a command would find its documents, and what that costs.

use super::{aggregate, delete, find, find_and_modify, map_reduce, update, write_stages};
use crate::applied_settings::Purpose;
use crate::arguments::FieldNames;
use crate::authorization::permitted;
use crate::definition::{Access, Command, ReadLevels};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::stable_api;
use bson::doc;
use bson::raw::{RawBsonRef, RawDocument};
use query::plan::{
    AggregateRequest, Answered, ExplainRequest, ExplainedWrite, FindRequest, Verbosity, WouldChange, WriteKind,
};
use wire::ErrorCode;
use wire::limits::DOCUMENT_BYTES_MAX;

/// `explain`.
pub const EXPLAIN: Command = Command::new(
    "explain",
    "Shows how a command would be executed.",
    OperationKind::Command,
    Access::Fields(access),
    explain,
)
.ends_with_client()
.read_levels(ReadLevels::NotSnapshot)
.secondary_ok()
.api_version_1()
.secret(&["pwd", "payload", "key", "nonce", "speculativeAuthenticate"]);

/// What the explained command needs.
fn access(call: &Invocation<'_>) -> Result<bool> {
    let RawBsonRef::Document(explained) = call.target()? else {
        return Ok(true);
    };
    let Some((name, _)) = explained.into_iter().next().transpose()? else {
        return Ok(true);
    };
    match call.server.commands.find(name.as_str()) {
        // It is refused anyway. To look into it would take as many levels of the stack as a document may have.
        Some((command, _)) if command.name == call.command.name => Ok(true),
        Some((command, _)) => permitted(&call.within(command, explained, call.database)),
        None => Ok(true),
    }
}

fn explain(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let explained = arguments.document("explain", call.target()?)?;
    let mut verbosity = Verbosity::AllPlansExecution;
    call.for_each_field(|name, value| {
        if name == "verbosity" {
            verbosity = match arguments.string(name, value)? {
                "queryPlanner" => Verbosity::QueryPlanner,
                "executionStats" => Verbosity::ExecutionStats,
                "allPlansExecution" => Verbosity::AllPlansExecution,
                other => {
                    return Err(CommandError::bad_value(format!(
                        "Enumeration value '{other}' for field 'explain.verbosity' is not a valid value."
                    )));
                }
            };
        }
        Ok(name == "verbosity")
    })?;
    if let Some(RawBsonRef::String(database)) = explained.get("$db")?
        && database != call.database
    {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!(
                "Mismatched $db in explain command. Expected {} but got {database}",
                call.database
            ),
        ));
    }
    let first = explained.into_iter().next().transpose()?;
    let name = first.map_or("", |(name, _)| name.as_str());
    let Some((command, _)) = call.server.commands.find(name) else {
        return Err(CommandError::new(
            ErrorCode::CommandNotFound,
            format!("Explain failed due to unknown command: {name}"),
        ));
    };
    if call.api_strict && !command.api_version_1 {
        return Err(stable_api::unstable_command(command.name));
    }
    FieldNames::check(command.name, explained)?;
    // The explained command is parsed by its own code: as a call of itself that is never run.
    let mut inner = call.within(command, explained, call.database);
    match command.name {
        "find" => {
            let namespace = inner.namespace()?;
            let parsed = find::parse_find(&inner, namespace)?;
            answer(&mut inner, reply, &ExplainRequest::Find(&parsed.request), verbosity)?;
        }
        "count" => {
            let namespace = inner.namespace()?;
            let parsed = find::parse_count(&inner, namespace)?;
            answer(&mut inner, reply, &ExplainRequest::Count(&parsed), verbosity)?;
        }
        "distinct" => {
            let namespace = inner.namespace()?;
            let parsed = find::parse_distinct(&inner, namespace)?;
            answer(&mut inner, reply, &ExplainRequest::Distinct(&parsed), verbosity)?;
        }
        "aggregate" => {
            let parsed = aggregate::parse(&mut inner)?;
            explain_aggregate(&mut inner, reply, &parsed.request, verbosity)?;
        }
        "mapReduce" => map_reduce::explain(&mut inner, reply, verbosity)?,
        "update" | "delete" => {
            let namespace = inner.namespace()?;
            let field = if command.name == "update" { "updates" } else { "deletes" };
            let statements = inner.documents(field)?.unwrap_or_default();
            let [statement] = statements.as_slice() else {
                return Err(CommandError::new(
                    ErrorCode::InvalidLength,
                    "explained write batches must be of size 1",
                ));
            };
            let remove = command.name == "delete";
            let parsed = if remove {
                let options = delete::Options::parse(&inner, &namespace)?;
                delete::parse_statement(statement, &options)?
            } else {
                let options = update::Options::parse(&inner, &namespace)?;
                update::parse_statement(statement, &options)?
            };
            explain_write(&mut inner, reply, namespace, &parsed, (remove, None), verbosity)?;
        }
        "findAndModify" => {
            let namespace = inner.namespace()?;
            let parsed = find_and_modify::parse(&inner)?;
            if !inner.server.storage.catalog().database_exists(namespace.db()) {
                return Err(CommandError::new(
                    ErrorCode::NamespaceNotFound,
                    format!("database {} does not exist", namespace.db()),
                ));
            }
            let what = (parsed.remove, Some(parsed.answered()));
            explain_write(&mut inner, reply, namespace, &parsed.statement, what, verbosity)?;
        }
        other => {
            return Err(CommandError::new(
                ErrorCode::IllegalOperation,
                format!("Explain is not supported for the {other} command"),
            ));
        }
    }
    call.report = inner.report;
    Ok(())
}

/// Explains a write: whether it deletes, and which document it answers.
fn explain_write(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    namespace: storage::Namespace,
    statement: &update::Statement<'_>,
    (remove, answered): (bool, Option<(Answered, Option<&RawDocument>)>),
    verbosity: Verbosity,
) -> Result<()> {
    let (changes, runs_scripts) = match remove {
        true => (None, false),
        false => {
            let (changes, runs_scripts) = update::would_change(call, &namespace, statement)?;
            (Some(changes), runs_scripts)
        }
    };
    let write = ExplainedWrite {
        kind: if remove { WriteKind::Delete } else { WriteKind::Update },
        is_upsert: statement.upsert,
        answered,
        changes: changes.as_ref().map(|changes| changes as &WouldChange<'_>),
        runs_scripts,
    };
    let records = write_request(namespace, statement);
    answer(call, reply, &ExplainRequest::Write(&records, write), verbosity)
}

fn write_request<'a>(namespace: storage::Namespace, statement: &update::Statement<'a>) -> FindRequest<'a> {
    let mut request = FindRequest::new(namespace, statement.filter);
    request.hint = statement.hint;
    request.sort = statement.sort;
    request.collation = statement.collation;
    request.variables = statement.variables;
    request.constants = statement.constants;
    request.for_write = true;
    if !statement.multi {
        request.limit = Some(1);
    }
    request
}

/// Explains an aggregation.
pub fn explain_aggregate(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    request: &AggregateRequest<'_>,
    verbosity: Verbosity,
) -> Result<()> {
    if let Some(split) = write_stages::split(call, request.pipeline)? {
        write_stages::check_explained(&split.stage, verbosity != Verbosity::QueryPlanner)?;
    }
    answer(call, reply, &ExplainRequest::Aggregate(request), verbosity)
}

fn answer(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    target: &ExplainRequest<'_>,
    verbosity: Verbosity,
) -> Result<()> {
    if !matches!(target, ExplainRequest::Find(request) if query::is_lookup_by_id(request)) {
        call.find_settings(Purpose::Explain)?;
    }
    let explained = query::explain(&call.context(), target, verbosity)?;
    for element in &*explained {
        let (name, value) = element?;
        reply.raw_value(name.as_str(), value);
    }
    if let Some(hash) = call.shape_hash() {
        reply.string("queryShapeHash", &hash.to_string());
    }
    let command = strip_generic(call.body)?;
    match reply.len() + command.as_bytes().len() <= DOCUMENT_BYTES_MAX {
        true => reply.document("command", &command),
        false => reply.string("warning", "'command' has been omitted due to BSON size limit"),
    }
    let settings = &call.server.settings;
    reply.append_all(&doc! {
        "serverInfo": {
            "host": &settings.host,
            "port": i32::from(settings.port),
            "version": settings.version_string(),
            "gitVersion": &settings.git_version,
        },
        "serverParameters": {},
    });
    Ok(())
}

/// The command without the fields every command carries.
fn strip_generic(body: &RawDocument) -> Result<bson::RawDocumentBuf> {
    let mut own = bson::RawDocumentBuf::new();
    for element in body {
        let (name, value): (_, RawBsonRef<'_>) = element?;
        if !crate::arguments::is_generic(name.as_str().as_bytes()) {
            own.append(name, value);
        }
    }
    Ok(own)
}
