//! `delete`.

use super::find::{hint, optional};
use super::insert::writes_allowed;
use super::multi;
use super::timeseries;
use super::update::{Statement, check_writable};
use super::write_result::{StatementIds, WriteErrors, refuse_multi, write_retried};
use super::write_targets::{Looks, Target, WriteTargets};
use crate::arguments::{Arguments, check_batch, missing_field};
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::{Invocation, Writer};
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::statement_watch::{StatementWatch, ToldStatement};
use auth::Action;
use bson::raw::RawDocument;
use bytes::Bytes;
use query::EvaluationContext;
use storage::{Kept, Namespace, StatementKind, StorageError, WriteUnit};
use wire::ErrorCode;

/// `delete`.
pub const DELETE: Command = Command::new(
    "delete",
    "Deletes documents.",
    OperationKind::Remove,
    Access::Fields(access),
    delete,
)
.takes_write_concern()
.batches(&["deletes"])
.in_transactions(InTransactions::AllowedAndRetryable)
.api_version_1();

/// What `delete` needs.
fn access(call: &Invocation<'_>) -> Result<bool> {
    writes_allowed(call, &[Action::Remove])
}

/// The fields of `delete` beside the statements.
pub struct Options<'a> {
    ordered: bool,
    variables: Option<&'a RawDocument>,
    ids: StatementIds,
}

impl<'a> Options<'a> {
    /// Parses them.
    pub fn parse(call: &Invocation<'a>, namespace: &Namespace) -> Result<Self> {
        let arguments = call.arguments();
        let mut options = Self {
            ordered: true,
            variables: None,
            ids: StatementIds::of_call(call),
        };
        call.for_each_field(|name, value| {
            match name {
                "ordered" => options.ordered = arguments.flag(name, value)?,
                "let" => options.variables = optional(arguments, name, value)?,
                "collectionUUID" => call.check_collection_uuid(namespace, value)?,
                name => return options.ids.take(arguments, name, value),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

fn delete(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let options = Options::parse(call, &namespace)?;
    let documents = call
        .documents("deletes")?
        .ok_or_else(|| missing_field("delete", "deletes"))?;
    check_batch(documents.len())?;
    // A statement that cannot be read fails the command before any of them runs.
    options.ids.check(documents.len())?;
    let mut statements = documents
        .iter()
        .map(|document| parse_statement(document, &options))
        .collect::<Result<Vec<_>>>()?;
    let are_many = statements.len() > 1;
    for (index, statement) in statements.iter_mut().enumerate() {
        statement.id = options.ids.of(index);
        statement.is_one_of_many = are_many;
    }
    check_writable(call, &namespace)?;
    let mut errors = WriteErrors::new();
    let mut deleted = 0;
    for (index, statement) in statements.iter().enumerate() {
        match run_counted(call, &namespace, documents[index], statement, &mut deleted) {
            Ok(()) => {}
            Err(error) if call.is_fatal(&error) => return Err(error),
            Err(error) => {
                errors.push(index, error);
                if call.stops_after_error(options.ordered) {
                    break;
                }
            }
        }
    }
    call.report.n_deleted = Some(deleted);
    if call.write_concern.unacknowledged {
        reply.int32("n", 0);
        return Ok(());
    }
    reply.count("n", deleted as i64);
    errors.write(call, reply);
    write_retried(call, reply);
    Ok(())
}

/// Parses one element of `deletes`; `multi` stands for `limit: 0`.
pub fn parse_statement<'a>(document: &'a RawDocument, options: &Options<'a>) -> Result<Statement<'a>> {
    let arguments = Arguments::of("delete.deletes");
    let (mut filter, mut limit) = (None, None);
    let mut statement = Statement::new(options.variables);
    arguments.each(document, |name, value| {
        match name {
            "q" => filter = Some(arguments.document(name, value)?),
            "limit" => limit = Some(arguments.integer(name, value)?),
            "hint" => statement.hint = hint(value)?,
            "collation" => statement.collation = optional(arguments, name, value)?,
            "sampleId" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    statement.filter = filter.ok_or_else(|| missing_field("delete.deletes", "q"))?;
    statement.multi = match limit.ok_or_else(|| missing_field("delete.deletes", "limit"))? {
        0 => true,
        1 => false,
        other => {
            return Err(CommandError::new(
                ErrorCode::FailedToParse,
                format!("The limit field in delete objects must be 0 or 1. Got {other}"),
            ));
        }
    };
    Ok(statement)
}

/// Runs a statement of a command that may have many, and counts and tells it by itself.
pub fn run_counted(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    document: &RawDocument,
    statement: &Statement<'_>,
    deleted: &mut u64,
) -> Result<()> {
    call.server.metrics.operations.delete.add(1);
    let told = ToldStatement::Whole(document);
    let watch = StatementWatch::begin(call, OperationKind::Remove, namespace, told);
    let before = *deleted;
    let done = run(call, namespace, statement, deleted);
    watch.end(call, &[("ndeleted", Some(*deleted - before))], done.as_ref().err());
    done.map(drop)
}

/// Runs one statement, adds to `deleted` and answers the last deleted document.
pub fn run(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
    deleted: &mut u64,
) -> Result<Option<Bytes>> {
    call.changes(namespace);
    if let Some(buckets) = timeseries::buckets(call, namespace) {
        call.settle()?;
        let alone = Statement {
            is_one_of_many: false,
            ..*statement
        };
        let done = timeseries::write::delete(call, namespace, &buckets, &alone, deleted);
        return multi::end(call, &alone, done.map(|()| None));
    }
    let last = run_ahead(call, namespace, statement, deleted);
    multi::end(call, statement, last)
}

/// As [`run`]; what it has deleted may be still there for readers.
fn run_ahead(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
    deleted: &mut u64,
) -> Result<Option<Bytes>> {
    if statement.multi {
        refuse_multi(call, "limit=0")?;
    }
    if let Some(result) = call.retried(statement.id)? {
        // Of a `findAndModify`: one that changed the document has shown another version of it.
        if statement.kept != Kept::Nothing {
            let refused = match (result.kind, &result.image) {
                (StatementKind::Inserted, _) => Some(40608),
                (StatementKind::Updated, _) => Some(40609),
                (StatementKind::Deleted, None) => Some(40607),
                (StatementKind::Deleted, Some(_)) => None,
            };
            if let Some(code) = refused {
                let text = "The statement was sent before as one of another kind";
                return Err(CommandError::new(ErrorCode(code), text));
            }
        }
        *deleted += 1;
        return Ok(result.image.map(|image| Bytes::from(image.into_bytes())));
    }
    multi::begin(call, namespace, statement)?;
    let before = *deleted;
    loop {
        let mut last = None;
        let conflicted = delete_matching(call, namespace, statement, deleted, &mut last)?;
        if !conflicted || *deleted > before {
            return Ok(last);
        }
        call.wait_to_look_again()?;
    }
}

/// One pass; true when a candidate changed under way and matched no more.
fn delete_matching(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
    deleted: &mut u64,
    last: &mut Option<Bytes>,
) -> Result<bool> {
    let mut conflicted = false;
    let Some(mut targets) = WriteTargets::find(call, namespace, statement)? else {
        return Ok(false);
    };
    // One for all documents: what scripts run in is made once.
    let (operation, scripts) = (call.operation.clone(), call.scripts.clone());
    let evaluation = EvaluationContext::new(&operation).with_scripts(Some(&scripts));
    while let Some(target) = targets.next(call)? {
        match delete_one(call, statement, &targets, target, &evaluation)? {
            None => conflicted = true,
            Some(document) => {
                *deleted += 1;
                *last = Some(document);
                if !statement.multi {
                    break;
                }
            }
        }
    }
    Ok(conflicted)
}

/// Deletes one record; `None` when it is gone or matches no more.
fn delete_one(
    call: &Invocation<'_>,
    statement: &Statement<'_>,
    targets: &WriteTargets,
    mut target: Target,
    evaluation: &EvaluationContext<'_>,
) -> Result<Option<Bytes>> {
    let operation = call.operation.clone();
    let matches = |document: &RawDocument| match targets.filter() {
        Some(filter) => filter.matches(document, evaluation),
        None => Ok(true),
    };
    // The document as it was when a script said that it matches.
    let mut matched: Option<Bytes> = None;
    let mut looks = Looks::default();
    loop {
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let old = match unit.lock_record(&target.guard, &target.id) {
            Ok(Some(old)) => old,
            Ok(None) => return Ok(None),
            Err(StorageError::WouldWait) => continue,
            Err(other) => return Err(other.into()),
        };
        let document = RawDocument::from_bytes(&old)?;
        let has_matched = matched.as_ref() == Some(&old);
        if targets.runs_scripts() && !has_matched && looks.may_be_unlocked() {
            // A transaction would keep the lock.
            unit.release();
            drop(writer);
            let locked_again = target.unlocked(call, &mut looks, |_| Ok(matches(document)?))?;
            let Some((locked, true)) = locked_again else {
                return Ok(None);
            };
            target = locked;
            matched = Some(old);
            continue;
        }
        if !has_matched && !looks.locked(call, || Ok(matches(document)?))? {
            unit.release();
            return Ok(None);
        }
        Writer::begin_statement(call.retry.is_some(), &mut unit, statement.id, statement.kept);
        match unit.delete(&target.guard, &target.id, document) {
            Ok(()) => {}
            Err(StorageError::WouldWait) => {
                // Scripts do not run again for the same document.
                if targets.runs_scripts() {
                    matched = Some(old);
                }
                continue;
            }
            Err(other) => return Err(other.into()),
        }
        if delete_stored(call, statement, unit, 1)? {
            call.remember(target.guard.namespace(), Some(old.clone()), None)?;
        }
        return Ok(Some(old));
    }
}

/// Commits a unit of a statement that deletes so many documents; answers as [`multi::commit`] does.
pub fn delete_stored(
    call: &Invocation<'_>,
    statement: &Statement<'_>,
    unit: WriteUnit<'_>,
    documents: u64,
) -> Result<bool> {
    let is_remembered = multi::commit(call, statement, unit)?;
    call.server.metrics.documents.deleted.add(documents);
    Ok(is_remembered)
}
