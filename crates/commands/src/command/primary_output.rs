//! `$out` and `$merge` on a secondary: the pipeline runs there, and the primary writes, by `_tenonWriteResults`.
//!
//! Each step of an [`Output`] is a command to the primary, on one connection: `begin`, `write` for a batch, `finish` or
//! `abandon`. Who may write where is checked on the secondary, by the user's rights; the primary takes the secondary's
//! word, as in all that members ask of each other. The last step waits as the write concern says. Then the secondary
//! waits until it shows what was written, so that the time in its reply is not before that.

use super::merge_stage::Inherited;
use super::write_output::Output;
use super::write_stages;
use crate::arguments::{missing_field, wrong_type};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::MemberConnection;
use crate::reply::Reply;
use auth::Action;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, rawdoc};
use std::time::Duration;
use storage::{ClusterTime, Namespace, StorageError};
use wire::ErrorCode;

/// `_tenonWriteResults`.
pub const WRITE_RESULTS: Command = Command::new(
    "_tenonWriteResults",
    "Writes the results of a pipeline that a secondary runs. Between servers.",
    OperationKind::Command,
    Access::cluster(&[Action::Internal]),
    write_results,
)
.takes_write_concern();

/// How long a member may take to answer one step.
const ANSWERS_WITHIN: Duration = Duration::from_secs(300);
/// How long one may take that is asked to forget what was gathered.
const ABANDONS_WITHIN: Duration = Duration::from_secs(5);
/// How long a secondary waits until it shows what the primary has written.
const APPLIES_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of documents in one command, but for a single one.
const WRITE_BYTES_MAX: usize = 12 << 20;

fn write_results(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let name = call.command.name;
    let arguments = call.arguments();
    let (mut stage, mut temporary, mut uuid, mut documents, mut is_users) = (None, None, None, None, true);
    let (mut collation, mut constants) = (None, None);
    call.for_each_field(|field, value| {
        match (field, value) {
            ("stage", value) => stage = Some(arguments.document(field, value)?),
            ("temporary", value) => temporary = Some(arguments.string(field, value)?),
            ("uuid", RawBsonRef::Binary(binary)) => uuid = <[u8; 16]>::try_from(binary.bytes).ok(),
            ("uuid", other) => return Err(wrong_type(name, field, other, "type 'binData'")),
            ("documents", value) => documents = Some(arguments.array(field, value)?),
            ("collation", value) => collation = Some(arguments.document(field, value)?),
            ("constants", value) => constants = Some(arguments.document(field, value)?),
            ("users", value) => is_users = arguments.boolean(field, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // A member may always write; whose writes these are may not.
    call.operation.set_users(is_users);
    let step = arguments.string(name, call.target()?)?;
    let source = stage.ok_or_else(|| missing_field(name, "stage"))?;
    let stage = write_stages::parse(call, source)?
        .ok_or_else(|| CommandError::bad_value(format!("{name}: no stage that writes: {source:?}")))?;
    let inherited = Inherited {
        collation: query::plan::collation_of(collation, None)?,
        constants: constants.map_or_else(RawDocumentBuf::new, ToOwned::to_owned),
    };
    if step == "begin" {
        let (output, _name) = Output::begin(call, &stage, inherited)?;
        if let Some(temporary) = output.temporary() {
            reply.string("temporary", temporary.namespace().collection());
            reply.generic_binary("uuid", &temporary.uuid());
        }
        return Ok(());
    }
    let temporary = match (temporary, uuid) {
        (Some(collection), Some(uuid)) => Some((Namespace::new(stage.destination().db(), collection)?, uuid)),
        _ => None,
    };
    let temporary = temporary.as_ref().map(|(name, uuid)| (name, *uuid));
    let output = Output::begun(call, &stage, inherited, temporary)?;
    match step {
        "write" => {
            let documents = documents.ok_or_else(|| missing_field(name, "documents"))?;
            let documents = documents.into_iter().map(|document| match document? {
                RawBsonRef::Document(document) => Ok(document.to_owned()),
                other => Err(wrong_type(name, "documents", other, "type 'object'")),
            });
            let documents = documents.collect::<Result<Vec<_>>>()?;
            output.write(call, documents)
        }
        "finish" => {
            output.finish(call)?;
            // All that was written before is waited for.
            call.wrote(call.server.storage.last_seq());
            Ok(())
        }
        "abandon" => output.abandon(call),
        other => Err(CommandError::bad_value(format!("{name} has no step '{other}'"))),
    }
}

/// See the module: the secondary's end.
pub struct PrimaryOutput {
    connection: Box<dyn MemberConnection>,
    /// An answer did not come: the connection is of no use any more.
    is_cut: bool,
    host: String,
    source: RawDocumentBuf,
    inherited: Inherited,
    /// Name and number of what `$out` fills.
    temporary: Option<(String, Vec<u8>)>,
}

impl PrimaryOutput {
    /// Connects to the primary and begins.
    pub fn begin(call: &mut Invocation<'_>, source: &RawDocument, inherited: Inherited) -> Result<Self> {
        let not_primary = || CommandError::new(ErrorCode::NotWritablePrimary, "not primary");
        let set = call.server.replica_set().ok_or_else(not_primary)?;
        let threads = set.threads().ok_or_else(not_primary)?;
        let primary = set.with_member(|member| {
            let primary = member.config.as_ref()?.member(member.primary?)?;
            (primary.id != member.id).then(|| primary.host.to_string())
        });
        let host =
            primary.ok_or_else(|| CommandError::new(ErrorCode::PrimarySteppedDown, "No primary exists currently"))?;
        let connection = threads
            .connect(&host, ANSWERS_WITHIN)
            .map_err(|sentence| unreachable_host(&sentence))?;
        // Whatever comes of it: the primary waits as the write concern says, if anybody does.
        call.report.primary_waited = Some(None);
        let mut primary = Self {
            connection,
            is_cut: false,
            host,
            source: source.to_owned(),
            inherited,
            temporary: None,
        };
        let reply = primary.step(call, "begin", |_| {})?;
        if let (Ok(name), Ok(uuid)) = (reply.get_str("temporary"), reply.get_binary("uuid")) {
            primary.temporary = Some((name.to_owned(), uuid.bytes.to_vec()));
        }
        Ok(primary)
    }

    /// Has a batch written.
    pub fn write(&mut self, call: &Invocation<'_>, documents: &[RawDocumentBuf]) -> Result<()> {
        let mut left = documents;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = left.iter().take_while(|document| {
                bytes += document.as_bytes().len();
                bytes <= WRITE_BYTES_MAX
            });
            let (now, later) = left.split_at(fits.count().max(1));
            left = later;
            let mut array = RawArrayBuf::new();
            now.iter().for_each(|document| array.push(document.clone()));
            self.step(call, "write", |command| command.append(cstr!("documents"), array))?;
        }
        Ok(())
    }

    /// All is written: the primary ends as the write concern says, and this member shows it.
    pub fn finish(&mut self, call: &mut Invocation<'_>) -> Result<()> {
        let concern = match call.write_concern.unacknowledged {
            true => None,
            false => call.body.get("writeConcern")?,
        };
        let reply = self.step(call, "finish", |command| {
            if let Some(concern) = concern {
                command.append(cstr!("writeConcern"), concern);
            }
        })?;
        if let Some(RawBsonRef::Document(error)) = reply.get("writeConcernError")? {
            call.report.primary_waited = Some(Some(Document::try_from(error)?));
        }
        if let Some(RawBsonRef::Timestamp(time)) = reply.get("operationTime")? {
            let (storage, time) = (&call.server.storage, ClusterTime::from(time));
            let until = call.operation.clock().monotonic() + APPLIES_WITHIN;
            storage.wait_members(&call.operation, Some(until), &|_| storage.applied().time >= time)?;
        }
        Ok(())
    }

    /// Has what was gathered forgotten. What stays, the next primary removes.
    pub fn abandon(&mut self, call: &Invocation<'_>) {
        if self.temporary.is_none() {
            return;
        }
        if self.is_cut {
            let threads = call.server.replica_set().and_then(|set| set.threads());
            match threads.map(|threads| threads.connect(&self.host, ABANDONS_WITHIN)) {
                Some(Ok(connection)) => self.connection = connection,
                _ => return,
            }
        }
        // An operation that has ended does not wait for the answer.
        let _ = self.step(call, "abandon", |_| {});
    }

    /// One command. Only the last one waits for other members.
    fn step(
        &mut self,
        call: &Invocation<'_>,
        step: &str,
        add: impl FnOnce(&mut RawDocumentBuf),
    ) -> Result<RawDocumentBuf> {
        let mut command = rawdoc! {
            "_tenonWriteResults": step,
            "stage": self.source.clone(),
            "users": call.operation.is_users(),
            "$db": call.database,
        };
        let Inherited { collation, constants } = &self.inherited;
        if let Some(collation) = collation {
            command.append(cstr!("collation"), collation.document().to_owned());
        }
        if !constants.is_empty() {
            command.append(cstr!("constants"), constants.clone());
        }
        if let Some((name, uuid)) = &self.temporary {
            command.append(cstr!("temporary"), name.as_str());
            let uuid = Binary {
                subtype: BinarySubtype::Generic,
                bytes: uuid.clone(),
            };
            command.append(cstr!("uuid"), uuid);
        }
        if step != "finish" {
            command.append(cstr!("writeConcern"), rawdoc! { "w": 1 });
        }
        if step != "abandon"
            && let Some(left) = call.operation.time_left()
        {
            command.append(cstr!("maxTimeMS"), left.as_millis().clamp(1, i32::MAX as u128) as i64);
        }
        add(&mut command);
        let goes_on = || call.operation.check_now().is_ok();
        let reply = self.connection.call(&command, &goes_on).map_err(|sentence| {
            self.is_cut = true;
            match call.operation.check_now() {
                Ok(()) => unreachable_host(&format!("{}: {sentence}", self.host)),
                Err(ended) => StorageError::from(ended).into(),
            }
        })?;
        match refusal(&reply)? {
            Some(error) => Err(error),
            None => Ok(reply),
        }
    }
}

fn unreachable_host(sentence: &str) -> CommandError {
    CommandError::new(
        ErrorCode::HostUnreachable,
        format!("the primary, which has to write, does not answer: {sentence}"),
    )
}

/// The error that a reply tells of, with what it says of the documents.
fn refusal(reply: &RawDocument) -> Result<Option<CommandError>> {
    let is_ok = match reply.get("ok")? {
        Some(RawBsonRef::Double(ok)) => ok == 1.0,
        Some(RawBsonRef::Int32(ok)) => ok == 1,
        _ => false,
    };
    if is_ok {
        return Ok(None);
    }
    let code = reply.get_i32("code").unwrap_or(ErrorCode::InternalError.0);
    let mut error = CommandError::new(ErrorCode(code), reply.get_str("errmsg").unwrap_or("it said no"));
    for name in ["keyPattern", "keyValue", "errInfo"] {
        if let Some(RawBsonRef::Document(told)) = reply.get(name)? {
            let told = Document::try_from(told)?;
            error.extra.get_or_insert_default().insert(name, told);
        }
    }
    Ok(Some(error))
}
