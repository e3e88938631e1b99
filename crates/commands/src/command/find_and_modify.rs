//! `findAndModify`.

use super::find::{hint, optional};
use super::insert::writes_allowed;
use super::timeseries;
use super::update::asks_for_upsert;
use super::update::{Images, Statement, check_writable, refuse_system_in_transaction};
use super::write_result::StatementIds;
use super::{delete, update};
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::doc;
use bson::raw::{RawBsonRef, RawDocument};
use bytes::Bytes;
use query::EvaluationContext;
use query::matcher::Matcher;
use query::plan::Answered;
use query::project::Projection;
use storage::Kept;
use wire::ErrorCode;

/// `findAndModify`.
pub const FIND_AND_MODIFY: Command = Command::new(
    "findAndModify",
    "Changes or deletes one document and answers it.",
    OperationKind::Update,
    Access::Fields(access),
    run,
)
.takes_write_concern()
.in_transactions(InTransactions::AllowedAndRetryable)
.aliases(&["findandmodify"])
.api_version_1();

/// A parsed `findAndModify`.
pub struct FindAndModify<'a> {
    /// Filter, sort, change.
    pub statement: Statement<'a>,
    /// Delete instead of change.
    pub remove: bool,
    new: bool,
    fields: Option<&'a RawDocument>,
}

impl<'a> FindAndModify<'a> {
    /// The document that is answered, and what of it.
    pub fn answered(&self) -> (Answered, Option<&'a RawDocument>) {
        let document = if self.new { Answered::After } else { Answered::Before };
        (document, self.fields)
    }
}

/// Parses the fields of `findAndModify`.
pub fn parse<'a>(call: &Invocation<'a>) -> Result<FindAndModify<'a>> {
    let arguments = call.arguments();
    let mut change = None;
    let mut parsed = FindAndModify {
        statement: Statement::new(None),
        remove: false,
        new: false,
        fields: None,
    };
    call.for_each_field(|name, value| {
        let statement = &mut parsed.statement;
        match name {
            "query" if matches!(value, RawBsonRef::Null) => {}
            "query" => statement.filter = arguments.document(name, value)?,
            "sort" => statement.sort = optional(arguments, name, value)?,
            "remove" => parsed.remove = arguments.boolean(name, value)?,
            "update" => change = Some(value),
            "new" => parsed.new = arguments.boolean(name, value)?,
            "fields" | "projection" => parsed.fields = optional(arguments, name, value)?,
            "upsert" => statement.upsert = arguments.boolean(name, value)?,
            "arrayFilters" => statement.array_filters = Some(arguments.array(name, value)?),
            "hint" => statement.hint = hint(value)?,
            "collation" => statement.collation = optional(arguments, name, value)?,
            "let" => statement.variables = optional(arguments, name, value)?,
            "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
            "bypassEmptyTsReplacement" => statement.keep_empty_timestamps = arguments.flag(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let conflict = |message: &str| Err(CommandError::new(ErrorCode::FailedToParse, message));
    match (change, parsed.remove) {
        (None, false) => return conflict("Either an update or remove=true must be specified"),
        (Some(_), true) => return conflict("Cannot specify both an update and remove=true"),
        (Some(change), false) => parsed.statement.change = change,
        (None, true) if parsed.statement.upsert => return conflict("Cannot specify both upsert=true and remove=true "),
        (None, true) if parsed.new => {
            return conflict(
                "Cannot specify both new=true and remove=true; 'remove' always returns the deleted document",
            );
        }
        (None, true) if parsed.statement.array_filters.is_some() => {
            return conflict("Cannot specify arrayFilters and remove=true");
        }
        (None, true) => {}
    }
    parsed.statement.id = StatementIds::of_call(call).of(0);
    parsed.statement.kept = if parsed.new { Kept::After } else { Kept::Before };
    Ok(parsed)
}

/// What `findAndModify` needs: it shows the document, and changes or removes it.
fn access(call: &Invocation<'_>) -> Result<bool> {
    let (mut removes, mut updates) = (false, false);
    for element in call.body {
        let (name, value) = element?;
        removes |= name.as_str() == "remove" && !matches!(value, RawBsonRef::Boolean(false) | RawBsonRef::Null);
        updates |= name.as_str() == "update";
    }
    let mut needed = vec![Action::Find];
    needed.extend(removes.then_some(Action::Remove));
    needed.extend((updates || !removes).then_some(Action::Update));
    needed.extend(asks_for_upsert(call.body).then_some(Action::Insert));
    writes_allowed(call, &needed)
}

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let parsed = parse(call)?;
    refuse_system_in_transaction(call, &namespace, ErrorCode(50781))?;
    check_writable(call, &namespace)?;
    if timeseries::buckets(call, &namespace).is_some() {
        return Err(timeseries::write::refuse_find_and_modify(&namespace));
    }
    let expressions = call.expressions_on(&namespace, parsed.statement.variables, parsed.statement.collation)?;
    let matcher = Matcher::parse_ordered(parsed.statement.filter, &expressions)?;
    let projection = parsed
        .fields
        .map(|fields| Projection::parse(fields, &expressions))
        .transpose()?;
    // Where the filter matched says nothing of the document after the change.
    if parsed.new && projection.as_ref().is_some_and(Projection::is_positional) {
        return Err(CommandError::bad_value(
            "cannot use a positional projection and return the new document",
        ));
    }
    let (document, last_error) = if parsed.remove {
        let mut deleted = 0;
        let document = delete::run(call, &namespace, &parsed.statement, &mut deleted)?;
        call.report.n_deleted = Some(deleted);
        call.server.metrics.operations.delete.add(1);
        (document, doc! { "n": deleted as i32 })
    } else {
        let done = update::run(call, &namespace, &parsed.statement, Images::Both)?;
        call.server.metrics.operations.update.add(1);
        call.report.n_matched = Some(done.matched);
        call.report.n_modified = Some(done.modified);
        let mut last_error = doc! { "n": (done.matched + u64::from(done.upserted.is_some())) as i32, "updatedExisting": done.matched > 0 };
        if let Some(id) = done.upserted {
            last_error.insert("upserted", id);
        }
        (if parsed.new { done.after } else { done.before }, last_error)
    };
    if let Some([statement]) = call.retry.as_ref().map(|retry| &*retry.retried) {
        reply.int32("retriedStmtId", *statement);
    }
    reply.value("lastErrorObject", &last_error.into());
    write_value(
        reply,
        &call.evaluation(),
        document,
        projection.as_ref().map(|projection| (projection, &matcher)),
    )
}

fn write_value(
    reply: &mut Reply<'_>,
    evaluation: &EvaluationContext<'_>,
    document: Option<Bytes>,
    projection: Option<(&Projection, &Matcher)>,
) -> Result<()> {
    let Some(document) = document else {
        reply.null("value");
        return Ok(());
    };
    let document = RawDocument::from_bytes(&document)?;
    match projection {
        None => reply.document("value", document),
        Some((projection, matcher)) => {
            let mut projected = Vec::new();
            projection.apply(document, Some(matcher), evaluation, &mut projected)?;
            reply.document("value", RawDocument::from_bytes(&projected)?);
        }
    }
    Ok(())
}
