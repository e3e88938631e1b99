//! `$backupCursor`: names the files of a hot backup, and keeps them fit for copying while its cursor is open.
//!
//! The cursor answers a document about the backup and one for each file, then empty batches. It lives like any other:
//! until it is killed, its session ends or it has been idle for too long; with it the backup ends.

use super::listing;
use crate::arguments::{Arguments, type_name};
use crate::cursors::{CursorSource, OpenCursor};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::reply::Reply;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};
use query::exec::PlanSummary;
use query::plan::AggregateRequest;
use std::path::Path;
use std::time::Duration;
use storage::{Namespace, StorageBackup};
use vfs::Access;
use wire::ErrorCode;

const STAGE: &str = "$backupCursor";

/// The options of the pipeline's first stage when it is `$backupCursor`.
pub fn requested<'a>(request: &AggregateRequest<'a>) -> Result<Option<RawBsonRef<'a>>> {
    let Some(RawBsonRef::Document(first)) = request.pipeline.into_iter().next().transpose()? else {
        return Ok(None);
    };
    let mut fields = first.into_iter();
    match (fields.next().transpose()?, fields.next()) {
        (Some((name, options)), None) if name.as_str() == STAGE => Ok(Some(options)),
        _ => Ok(None),
    }
}

/// Begins a backup and answers with its first `batch` documents.
pub fn reply_with_backup(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    request: &AggregateRequest<'_>,
    options: RawBsonRef<'_>,
    (namespace, batch): (Namespace, u64),
) -> Result<()> {
    let RawBsonRef::Document(options) = options else {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            format!("{STAGE} value must be an object. Found: {}", type_name(options)),
        ));
    };
    if request.ns.is_some() {
        return Err(CommandError::new(
            ErrorCode::InvalidNamespace,
            format!(
                "{STAGE} cannot be executed on an aggregation against a collection. Run the aggregation against the database instead."
            ),
        ));
    }
    let (arguments, extent) = parsed(options)?;
    if request.pipeline.into_iter().count() > 1 {
        return Err(CommandError::not_implemented(format!("a stage after {STAGE}")));
    }
    let backup = open(call, extent)?;
    // That took its time: nobody would read, or end, the cursor of a client that has gone.
    call.operation.check_now().map_err(storage::StorageError::from)?;
    let mut rest = documents(call, &backup, extent, arguments)?.into_iter();
    reply.open_document("cursor");
    reply.open_array("firstBatch");
    let returned = listing::fill(reply, &mut rest, Some(batch as usize)) as u64;
    reply.close();
    let id = call.server.cursors.new_id();
    call.server.cursors.add(OpenCursor {
        id,
        namespace: namespace.as_str().into(),
        source: CursorSource::Backup(rest, backup),
        session: call.session,
        pinned: None,
        transaction: None,
        grant: call.rights.grant(),
        no_timeout: false,
        tailable: true,
        await_data: false,
        max_time_ms: 0,
        originating: call.body.to_owned().into(),
        plan_summary: PlanSummary::default(),
        created_ms: call.server.env.clock.now_ms(),
        returned,
        last_used: Duration::ZERO,
    });
    reply.int64("id", id);
    reply.string("ns", namespace.as_str());
    reply.close();
    call.report.n_returned = Some(returned);
    call.report.cursor_id = Some(id);
    Ok(())
}

/// What is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Whole,
    /// The log, for an earlier backup. Tenon's own.
    Log,
}

/// Checks the stage's options; answers what of them the first document shows.
fn parsed(options: &RawDocument) -> Result<(Document, Extent)> {
    let arguments = Arguments::of(STAGE);
    // There is nothing incremental to be disabled, and blocks are those of incremental backups.
    let (mut disable, mut block_size, mut named) = (false, 16, false);
    let mut extent = Extent::Whole;
    for element in options {
        let (name, value) = element?;
        match name.as_str() {
            "disableIncrementalBackup" => disable = arguments.boolean(name.as_str(), value)?,
            "incrementalBackup" => {
                if arguments.boolean(name.as_str(), value)? {
                    return Err(CommandError::not_implemented(format!("{STAGE}.incrementalBackup")));
                }
            }
            "blockSize" => block_size = arguments.non_negative(name.as_str(), value)?,
            "thisBackupName" | "srcBackupName" => {
                arguments.string(name.as_str(), value)?;
                named = true;
            }
            "tenonLogOnly" => {
                if arguments.boolean(name.as_str(), value)? {
                    extent = Extent::Log;
                }
            }
            other => return Err(crate::arguments::unknown_field(STAGE, other)),
        }
    }
    if named {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "Cannot have 'thisBackupName' or 'srcBackupName' when incrementalBackup=false",
        ));
    }
    let shown = doc! {
        "disableIncrementalBackup": disable,
        "incrementalBackup": false,
        "blockSize": block_size,
    };
    Ok((shown, extent))
}

fn open(call: &Invocation<'_>, extent: Extent) -> Result<StorageBackup> {
    if call.server.fsync_lock.count() > 0 {
        return Err(CommandError::new(
            ErrorCode(50887),
            "The node is currently fsyncLocked.",
        ));
    }
    let storage = &call.server.storage;
    let opened = match extent {
        Extent::Whole => storage.backup(),
        Extent::Log => storage.backup_log(),
    };
    opened.map_err(|error| match error {
        storage::StorageError::Log(error) if error.kind() == engine::ErrorKind::Unsupported => CommandError::new(
            ErrorCode::CommandNotSupported,
            "the server writes no log (storage.journal.enabled is false)",
        ),
        storage::StorageError::Engine(error) if error.kind() == engine::ErrorKind::Unsupported => CommandError::new(
            ErrorCode::CommandNotSupported,
            format!("The current storage engine doesn't support backup mode: {error}"),
        ),
        error => error.into(),
    })
}

/// About the backup, then the files.
fn documents(
    call: &Invocation<'_>,
    backup: &StorageBackup,
    extent: Extent,
    arguments: Document,
) -> Result<Vec<RawDocumentBuf>> {
    let settings = &call.server.settings;
    let mut id = [0; 16];
    call.server.env.random.fill(&mut id);
    // Version 4, variant 1: random.
    (id[6], id[8]) = (id[6] & 0x0f | 0x40, id[8] & 0x3f | 0x80);
    let mut metadata = doc! {
        "backupId": Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() },
        "dbpath": &settings.db_path,
    };
    metadata.extend(arguments);
    let measured = |path: &Path| {
        let length = call.server.env.fs.open(path, Access::Read).and_then(|file| file.len());
        length.map_err(|error| {
            let message = format!("cannot measure {}: {error}", path.display());
            CommandError::new(ErrorCode::InternalError, message)
        })
    };
    let file = |path: &Path, bytes: u64| doc! { "filename": path.display().to_string(), "fileSize": bytes as i64 };
    let mut documents = vec![doc! { "metadata": metadata }];
    // Without its key store a copy of what is encrypted cannot be opened; and a key may be younger than the backup that
    // the log is for.
    let key_store = settings.encryption.as_ref().map(|encryption| &encryption.key_store);
    let metadata = Some(&settings.metadata_path).filter(|_| extent == Extent::Whole);
    // It tells that the log lacks writes, and belongs to the engine's files.
    let unlogged = settings.metadata_path.with_file_name("journal.unlogged");
    let has_unlogged = extent == Extent::Whole && call.server.env.fs.exists(&unlogged).unwrap_or(true);
    let unlogged = Some(&unlogged).filter(|_| has_unlogged);
    for path in [metadata, unlogged, key_store].into_iter().flatten() {
        documents.push(file(path, measured(path)?));
    }
    for (name, bytes) in backup.engine_files() {
        documents.push(file(&settings.engine_path.join(name), bytes));
    }
    for (path, bytes) in backup.log_files() {
        documents.push(file(&path, bytes));
    }
    documents
        .iter()
        .map(|document| Ok(RawDocumentBuf::try_from(document)?))
        .collect()
}
