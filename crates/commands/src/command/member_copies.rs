//! Copies of all data for members that have none: by the rows of each table, or by files.
//!
//! Whoever makes the copy keeps its place; this side only keeps the state (`copies.rs`).

use super::member_streams::not_of_the_set;
use super::membership::set;
use crate::arguments::missing_field;
use crate::copies::{CopySource, FilesSource, write_begin};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::Role;
use crate::reply::Reply;
use auth::Action;
use bson::RawDocument;
use bson::raw::RawBsonRef;
use engine::TableId;
use std::sync::Arc;
use wire::ErrorCode;

/// `_tenonCopyBegin`.
pub const COPY_BEGIN: Command = Command::new(
    "_tenonCopyBegin",
    "Begins a copy of all data for a member that has none. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_begin,
)
.admin_only()
.secondary_ok();
/// `_tenonCopyRows`.
pub const COPY_ROWS: Command = Command::new(
    "_tenonCopyRows",
    "Rows of a table of a copy. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_rows,
)
.admin_only()
.secondary_ok();
/// `_tenonCopyEnd`.
pub const COPY_END: Command = Command::new(
    "_tenonCopyEnd",
    "Ends a copy. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_end,
)
.admin_only()
.secondary_ok();

/// `_tenonCopyFile`.
pub const COPY_FILE: Command = Command::new(
    "_tenonCopyFile",
    "A piece of a file of a copy. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    copy_file,
)
.admin_only()
.secondary_ok();

/// Bytes of a copy in one answer, beyond one row.
const COPY_BYTES_MAX: usize = 4 << 20;

fn copy_begin(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut name, mut instance, mut again, mut files) = ("", None, None, None);
    call.for_each_field(|field, value| {
        match (field, value) {
            ("set", value) => name = arguments.string(field, value)?,
            ("instance", RawBsonRef::Binary(binary)) => instance = binary.bytes.try_into().ok(),
            ("again", value) => again = Some(arguments.integer(field, value)?),
            ("files", value) => files = Some(arguments.document(field, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let set = set(call)?;
    not_of_the_set(set, name)?;
    let instance: [u8; 16] = instance.ok_or_else(|| missing_field("_tenonCopyBegin", "instance"))?;
    let (role, is_known) = set.with_member(|member| {
        let consensus = member.consensus.as_ref();
        (
            member.role,
            consensus.is_some_and(|consensus| consensus.of_instance(&instance).is_some()),
        )
    });
    let may_be_copied = matches!(role, Role::Primary | Role::Secondary);
    // The copy must have the entry by which the copying member was taken in.
    if !may_be_copied || !is_known {
        return Err(CommandError::new(
            ErrorCode::NotPrimaryOrSecondary,
            "a copy is of a primary's or a secondary's data, for a member that it knows to be taken in",
        ));
    }
    let copies = &call.server.copies;
    let now = call.server.env.clock.monotonic();
    if let Some(id) = again {
        write_begin(reply, id, &copies.source_of(id, instance, now)?);
        return Ok(());
    }
    copies.end_all_of(instance);
    let source = match files.map(|wanted| files_like(call, wanted)) {
        Some(Some(files)) => CopySource::Files(Arc::new(files)),
        _ => CopySource::Rows(Arc::new(call.server.storage.begin_clone()?)),
    };
    let id = (call.server.env.random.next_u64() >> 1) as i64;
    write_begin(reply, id, &source);
    copies.open(id, source, instance, now);
    Ok(())
}

/// A checkpoint's files, when they suit another server's engine, and nobody else is copying them.
fn files_like(call: &Invocation<'_>, wanted: &RawDocument) -> Option<FilesSource> {
    let (server, settings) = (call.server, &call.server.settings);
    let engine = server.storage.engine().info();
    let is_alike = wanted.get_str("engine").is_ok_and(|name| name == engine.name)
        && wanted
            .get_bool("directoryPerDB")
            .is_ok_and(|per_db| per_db == settings.directory_per_db);
    // What is sealed here opens with this member's keys alone: rows are copied, and the other member seals them with
    // its own.
    let is_sealed = server.env.fs.keys().is_some();
    if !is_alike || is_sealed || server.fsync_lock.count() > 0 {
        return None;
    }
    let backup = server.storage.backup().ok()?;
    let term = server.storage.log().term_of(backup.seq()).ok()?;
    FilesSource::new(backup, term, &settings.engine_path).ok()
}

fn copy_rows(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut table, mut after) = (None, None);
    call.for_each_field(|field, value| {
        match (field, value) {
            ("table", value) => table = u32::try_from(arguments.integer(field, value)?).ok(),
            ("after", RawBsonRef::Binary(binary)) => after = Some(binary.bytes),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let id = arguments.integer(call.command.name, call.target()?)?;
    let table = table.ok_or_else(|| missing_field("_tenonCopyRows", "table"))?;
    let CopySource::Rows(source) = call.server.copies.source(id, call.server.env.clock.monotonic())? else {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "the copy is one of files",
        ));
    };
    // Asked again it would fail again, as where the engine has given the state up: another copy has to begin.
    let rows = source.rows(TableId(table), after, COPY_BYTES_MAX);
    let rows = rows.inspect_err(|_| call.server.copies.end(id))?;
    let mut bytes = Vec::with_capacity(COPY_BYTES_MAX / 2);
    for row in 0..rows.len() {
        let (key, value) = (rows.key(row), rows.value(row));
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
    }
    reply.generic_binary("rows", &bytes);
    Ok(())
}

fn copy_file(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut file, mut offset) = (0, 0);
    call.for_each_field(|field, value| {
        match field {
            "file" => file = arguments.non_negative(field, value)? as usize,
            "offset" => offset = arguments.non_negative(field, value)? as u64,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let id = arguments.integer(call.command.name, call.target()?)?;
    let CopySource::Files(source) = call.server.copies.source(id, call.server.env.clock.monotonic())? else {
        return Err(CommandError::new(
            ErrorCode::IllegalOperation,
            "the copy is one of rows",
        ));
    };
    let (path, copied) = source
        .files
        .get(file)
        .filter(|(_, copied)| offset <= copied.bytes)
        .ok_or_else(|| CommandError::bad_value("the copy has no such piece"))?;
    let mut bytes = vec![0; (copied.bytes - offset).min(COPY_BYTES_MAX as u64) as usize];
    let opened = call.server.env.fs.open(path, vfs::Access::Read);
    opened
        .and_then(|file| file.read_exact_at(&mut bytes, offset))
        .map_err(|error| {
            call.server.copies.end(id);
            let message = format!("cannot read {}: {error}", path.display());
            CommandError::new(ErrorCode::InternalError, message)
        })?;
    reply.generic_binary("bytes", &bytes);
    Ok(())
}

fn copy_end(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let arguments = call.arguments();
    let id = arguments.integer(call.command.name, call.target()?)?;
    call.server.copies.end(id);
    Ok(())
}
