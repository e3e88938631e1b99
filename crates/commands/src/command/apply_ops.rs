//! `applyOps`: applies operations as logs have them, one after the other, for clients that replay a log.
//!
//! Each is logged as what it is, and waits for no other but where it may be about the same documents, or is a command:
//! all wait together at the end. A failure leaves those before it applied. Replaying is
//! idempotent: what an operation finds done is no error. An update that finds nothing is told as one when the
//! others are done.

use super::collections::create_as;
use super::insert::{InsertBatch, asks_for_bypass, insert_documents};
use super::log_operation::{self, LogOperation, Target, Uuid};
use super::update::{ChangeForm, Images, Statement, check_writable};
use super::write_result::WriteErrors;
use super::{collections, delete, update};
use crate::authorization;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, ActionSet};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, doc};
use std::borrow::Cow;
use storage::Namespace;
use wire::ErrorCode;

/// `applyOps`.
pub const APPLY_OPS: Command = Command::new(
    "applyOps",
    "Applies operations of a log.",
    OperationKind::Command,
    Access::Fields(access),
    run,
)
.takes_write_concern();

/// The operations, each as what it is made of, in their order; and the defaults that they were read with.
fn read<'i>(call: &Invocation<'i>) -> Result<Vec<Vec<LogOperation<'i>>>> {
    let arguments = call.arguments();
    let refused = |code, name: &str| {
        let reason = format!("applyOps does not take '{name}'");
        Err(CommandError::new(code, reason))
    };
    call.for_each_field(|name, value| {
        match name {
            "alwaysUpsert" if arguments.flag(name, value)? => return refused(ErrorCode(6_711_601), name),
            "preCondition" => return refused(ErrorCode(6_711_600), name),
            "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
            "oplogApplicationMode" => return Err(CommandError::not_implemented(format!("applyOps.{name}"))),
            // Of an entry of a log, not of the command.
            "prepare" => {
                arguments.flag(name, value)?;
                return refused(ErrorCode::BadValue, name);
            }
            "partialTxn" => {
                arguments.flag(name, value)?;
                return refused(ErrorCode(31056), name);
            }
            "count" => {
                arguments.integer(name, value)?;
                return refused(ErrorCode(31240), name);
            }
            // MongoDB does not look at others; `allowAtomic` is one.
            _ => {}
        }
        Ok(true)
    })?;
    let mut operations = Vec::new();
    for operation in arguments.array("applyOps", call.target()?)? {
        let mut several = Vec::new();
        log_operation::read(arguments.document("applyOps", operation?)?, &mut several)?;
        operations.push(several);
    }
    Ok(operations)
}

/// What each operation would need as the command that it stands for.
fn access(call: &Invocation<'_>) -> Result<bool> {
    let bypasses = asks_for_bypass(call.body)?;
    for operation in read(call)?.iter().flatten() {
        let may = |target: &Target, actions: &[Action]| {
            let namespace = resolved(call, target)?;
            let target = auth::Target::Collection(namespace.db(), namespace.collection());
            let may_bypass = || call.may(target, Action::BypassDocumentValidation);
            Ok::<_, CommandError>(call.rights.allow(target, ActionSet::of(actions)) && (!bypasses || may_bypass()))
        };
        let is_allowed = match operation {
            LogOperation::Note | LogOperation::Nothing => true,
            LogOperation::Insert { target, .. } => may(target, &[Action::Insert, Action::Update])?,
            LogOperation::Update { target, upsert, .. } => match upsert {
                true => may(target, &[Action::Insert, Action::Update])?,
                false => may(target, &[Action::Update])?,
            },
            LogOperation::Delete { target, .. } => may(target, &[Action::Remove])?,
            LogOperation::Command {
                database,
                uuid,
                name,
                body,
                ..
            } => match of_collection(call, name, *uuid, body) {
                Ok(body) => authorization::permitted(&call.within(find(call, name)?, &body, database))?,
                // It is told below that there is no such collection.
                Err(error) => error.code == ErrorCode::NamespaceNotFound,
            },
        };
        if !is_allowed {
            return Ok(false);
        }
    }
    Ok(true)
}

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let operations = read(call)?;
    let mut results = Vec::with_capacity(operations.len());
    let failed = |mut error: CommandError, results: Vec<Bson>| {
        let progress = doc! { "applied": results.len() as i32, "results": results };
        error.extra.get_or_insert_default().extend(progress);
        Err(error)
    };
    let mut all_found = true;
    let is_one_of_many = operations.iter().flatten().count() > 1;
    for several in &operations {
        if matches!(several[..], [LogOperation::Note]) {
            continue;
        }
        let applied = several
            .iter()
            .try_for_each(|operation| apply(call, operation, is_one_of_many));
        results.push(Bson::Boolean(applied.is_ok()));
        match applied {
            Err(error) if error.code == ErrorCode::UpdateOperationFailed => all_found = false,
            Err(error) => return failed(error, results),
            Ok(()) => {}
        }
    }
    if !all_found {
        let error = CommandError::new(ErrorCode::UnknownError, "applyOps had an update that found no document");
        return failed(error, results);
    }
    reply.int32("applied", results.len() as i32);
    reply.value("results", &Bson::Array(results));
    Ok(())
}

fn apply(call: &mut Invocation<'_>, operation: &LogOperation<'_>, is_one_of_many: bool) -> Result<()> {
    call.operation.check()?;
    match operation {
        LogOperation::Note | LogOperation::Nothing => Ok(()),
        LogOperation::Insert { target, document } => {
            let namespace = writable(call, target)?;
            insert(call, &namespace, document, is_one_of_many)
        }
        LogOperation::Update {
            target,
            filter,
            change,
            form,
            upsert,
        } => {
            let namespace = writable(call, target)?;
            let mut statement = Statement::new(None);
            statement.is_one_of_many = is_one_of_many;
            statement.filter = filter;
            statement.change = RawBsonRef::Document(change);
            statement.form = *form;
            statement.upsert = *upsert;
            statement.keep_empty_timestamps = true;
            let done = update::run(call, &namespace, &statement, Images::None)?;
            if done.matched == 0 && done.upserted.is_none() {
                return Err(CommandError::new(
                    ErrorCode::UpdateOperationFailed,
                    format!("an update operation found nothing to update in {namespace}"),
                ));
            }
            Ok(())
        }
        LogOperation::Delete { target, filter } => {
            let namespace = writable(call, target)?;
            let mut statement = Statement::new(None);
            statement.is_one_of_many = is_one_of_many;
            statement.filter = filter;
            delete::run(call, &namespace, &statement, &mut 0).map(drop)
        }
        LogOperation::Command {
            database,
            uuid,
            name,
            body,
            accepted,
        } => {
            // It reads what readers see.
            call.settle()?;
            match run_command(call, database, *uuid, name, body) {
                Err(error) if accepted.contains(&error.code) => Ok(()),
                done => done,
            }
        }
    }
}

/// The document takes the place of one with the same `_id`.
fn insert(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    document: &RawDocument,
    is_one_of_many: bool,
) -> Result<()> {
    let batch = InsertBatch {
        documents: &[document],
        invalid: &[],
        ids: &|_| 0,
        ordered: true,
        keep_empty_timestamps: true,
        refused_each: false,
        is_one_of_many,
    };
    let mut errors = WriteErrors::new();
    insert_documents(call, namespace, &batch, &mut errors)?;
    let Some((_, error)) = errors.each().next() else {
        return Ok(());
    };
    if error.code != ErrorCode::DuplicateKey {
        return Err(error);
    }
    let mut filter = RawDocumentBuf::new();
    if let Some(id) = document.get("_id")? {
        filter.append(cstr!("_id"), id);
    }
    let mut statement = Statement::new(None);
    statement.is_one_of_many = is_one_of_many;
    statement.filter = &filter;
    statement.change = RawBsonRef::Document(document);
    statement.form = ChangeForm::Document;
    statement.keep_empty_timestamps = true;
    // What is not there under this `_id` collides with another document's key.
    match update::run(call, namespace, &statement, Images::None)?.matched {
        0 => Err(error),
        _ => Ok(()),
    }
}

fn run_command(
    call: &mut Invocation<'_>,
    database: &str,
    uuid: Option<Uuid>,
    name: &'static str,
    body: &RawDocument,
) -> Result<()> {
    let body = of_collection(call, name, uuid, body)?;
    let command = find(call, name)?;
    let mut inner = call.within(command, &body, database);
    let done = match name {
        "create" if body.get("viewOn")?.is_none() => create_as(&mut inner, uuid),
        _ => {
            let mut unread = Vec::new();
            (command.run)(&mut inner, &mut Reply::begin(&mut unread))
        }
    };
    let changed = std::mem::take(&mut inner.report);
    if let Some(seq) = changed.last_write.get() {
        call.wrote(seq);
    }
    for namespace in &changed.access_changed {
        call.changes(namespace);
    }
    call.report.cluster_parameters_changed |= changed.cluster_parameters_changed;
    call.report.default_concerns_changed |= changed.default_concerns_changed;
    done
}

fn find(call: &Invocation<'_>, name: &str) -> Result<&'static Command> {
    let found = call.server.commands.find(name);
    found
        .map(|(command, _)| command)
        .ok_or_else(|| CommandError::not_implemented(name))
}

/// The collection that an operation is about.
fn resolved(call: &Invocation<'_>, target: &Target) -> Result<Namespace> {
    match target.uuid {
        Some(uuid) => of_uuid(call, &uuid),
        None => Ok(target.namespace.clone()),
    }
}

fn of_uuid(call: &Invocation<'_>, uuid: &Uuid) -> Result<Namespace> {
    let collection = call.server.storage.catalog().collection_by_uuid(uuid);
    let namespace = collection.map(|collection| collection.namespace().clone());
    namespace.ok_or_else(|| {
        CommandError::new(
            ErrorCode::NamespaceNotFound,
            format!(
                "there is no collection with the uuid {:032x}",
                u128::from_be_bytes(*uuid)
            ),
        )
    })
}

fn writable(call: &Invocation<'_>, target: &Target) -> Result<Namespace> {
    let namespace = resolved(call, target)?;
    let there = call.definition(&namespace);
    if there.is_none_or(|there| there.timeseries().is_none()) {
        collections::refuse_system(call.server, &namespace)?;
    }
    check_writable(call, &namespace)?;
    Ok(namespace)
}

/// A command about the collection of that uuid, whatever its name is now.
fn of_collection<'b>(
    call: &Invocation<'_>,
    name: &str,
    uuid: Option<Uuid>,
    body: &'b RawDocument,
) -> Result<Cow<'b, RawDocument>> {
    let Some(uuid) = uuid.filter(|_| name != "create") else {
        return Ok(Cow::Borrowed(body));
    };
    let namespace = of_uuid(call, &uuid)?;
    let named = match name {
        "renameCollection" => namespace.as_str(),
        _ => namespace.collection(),
    };
    Ok(Cow::Owned(log_operation::renamed(body, named)?))
}
