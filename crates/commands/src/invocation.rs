//! One call of a command: the fields every command shares, read once, and what the call reports about itself.

use crate::Client;
use crate::arguments::{Arguments, is_generic, missing_field, number_as_i64, take, unknown_field, wrong_type};
use crate::cursors::SessionId;
use crate::definition::Command;
use crate::error::{CommandError, Result};
use crate::request::Request;
use crate::server::Server;
use bson::raw::{RawBsonRef, RawDocument};
use engine::Seq;
use query::EvaluationContext;
use query::exec::ExecContext;
use query::expression::ExpressionContext;
use query::raw::{Elements, Values};
use std::borrow::Cow;
use std::sync::Arc;
use storage::{Namespace, Operation};
use wire::ErrorCode;

/// `writeConcern` as a standalone server needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// Answer only when the log is flushed beyond the write.
    pub journaled: bool,
    /// `w: 0`.
    pub unacknowledged: bool,
}

/// What a call did, for the slow-operation log line, `top` and the counters.
#[derive(Default)]
pub struct Report {
    /// The collection it worked on.
    pub namespace: Option<Namespace>,
    /// One line about the plan.
    pub plan_summary: Cow<'static, str>,
    /// Documents returned.
    pub n_returned: Option<u64>,
    /// Documents written, by sort: inserted, matched, modified, deleted, upserted.
    pub n_inserted: Option<u64>,
    pub n_matched: Option<u64>,
    pub n_modified: Option<u64>,
    pub n_deleted: Option<u64>,
    pub n_upserted: Option<u64>,
    /// The cursor that stays open.
    pub cursor_id: Option<i64>,
    /// The cursor was exhausted by this call.
    pub cursor_exhausted: bool,
    /// The newest write of the call.
    pub last_write: Option<Seq>,
    /// Set by `shutdown`.
    pub shutdown: bool,
    /// Reply again without being asked (exhaust).
    pub more_to_come: bool,
}

/// A call of a command.
pub struct Invocation<'i> {
    /// The server.
    pub server: &'i Arc<Server>,
    /// Who calls.
    pub client: &'i Arc<Client>,
    /// The running operation: deadline, kill flag, counters.
    pub operation: Arc<Operation>,
    /// The command's entry in the table.
    pub command: &'static Command,
    /// The command document.
    pub body: &'i RawDocument,
    /// Document sequences by name.
    pub sequences: &'i [(&'i str, &'i [u8])],
    /// The database addressed.
    pub database: &'i str,
    /// `lsid`.
    pub session: Option<SessionId>,
    /// `writeConcern`.
    pub write_concern: WriteConcern,
    /// `maxTimeMS`, 0 when none.
    pub max_time_ms: u64,
    /// Only what Stable API version 1 has is wanted.
    pub api_strict: bool,
    /// A chain of replies is welcome.
    pub exhaust_allowed: bool,
    /// What it did.
    pub report: Report,
}

/// The generic fields as read from the body, before the operation starts.
#[derive(Default)]
pub(crate) struct Generic<'i> {
    pub database: &'i str,
    pub session: Option<SessionId>,
    pub write_concern: WriteConcern,
    pub max_time_ms: u64,
    /// `apiVersion` is there.
    api_version: bool,
    /// `apiStrict` or `apiDeprecationErrors` is there.
    api_option: bool,
    pub api_strict: bool,
}

impl<'i> Generic<'i> {
    /// Reads the fields every command may carry. `journal` says whether the log is on.
    pub(crate) fn read(request: &Request<'i>, command: &Command, journal: bool) -> Result<Self> {
        let arguments = Arguments::of(command.name);
        let mut generic = Self {
            database: request.legacy_database.unwrap_or(""),
            ..Self::default()
        };
        let mut values = Values::of(request.body);
        for element in Elements::new(request.body) {
            let element = element?;
            let name = element.name_str()?;
            if is_generic(name) {
                take(name, values.value(element)?, &mut |name, value| {
                    generic.take(name, value, arguments, journal).map(|()| true)
                })?;
            }
        }
        if generic.database.is_empty() {
            return Err(CommandError::new(
                ErrorCode(40571),
                "OP_MSG requests require a $db argument",
            ));
        }
        if generic.api_option && !generic.api_version {
            return Err(CommandError::new(
                ErrorCode::APIVersionError,
                "Provided apiStrict or apiDeprecationErrors without passing apiVersion",
            ));
        }
        if generic.api_strict {
            check_api_strict(command)?;
        }
        Ok(generic)
    }

    fn take(&mut self, name: &str, value: RawBsonRef<'i>, arguments: Arguments<'_>, journal: bool) -> Result<()> {
        match name {
            "$db" => self.database = arguments.string("$db", value)?,
            "lsid" => self.session = Some(session_id(arguments.document("lsid", value)?)?),
            "maxTimeMS" => self.max_time_ms = max_time_ms(arguments, name, value)?,
            "writeConcern" => self.write_concern = write_concern(arguments.document("writeConcern", value)?, journal)?,
            "readConcern" => check_read_concern(arguments.document("readConcern", value)?)?,
            "maxTimeMSOpOnly" => drop(max_time_ms(arguments, name, value)?),
            "$readPreference" => check_read_preference(arguments.document(name, value)?)?,
            "$clusterTime" => drop(arguments.document(name, value)?),
            "help" | "rawData" => drop(arguments.boolean(name, value)?),
            "txnNumber" | "startTransaction" | "autocommit" => {
                match (name, value) {
                    ("txnNumber", RawBsonRef::Int64(_)) => {}
                    ("txnNumber", other) => return Err(wrong_type(arguments.command, name, other, "type 'long'")),
                    _ => drop(arguments.flag(name, value)?),
                }
                return Err(CommandError::new(
                    ErrorCode::IllegalOperation,
                    "Transaction numbers are only allowed on a replica set member or mongos",
                ));
            }
            "apiVersion" => {
                if arguments.string("apiVersion", value)? != "1" {
                    return Err(CommandError::new(
                        ErrorCode::APIVersionError,
                        "API version must be \"1\"",
                    ));
                }
                self.api_version = true;
            }
            "apiStrict" => {
                self.api_strict = arguments.boolean("apiStrict", value)?;
                self.api_option = true;
            }
            "apiDeprecationErrors" => {
                arguments.boolean("apiDeprecationErrors", value)?;
                self.api_option = true;
            }
            _ => {}
        }
        Ok(())
    }
}

/// `apiStrict: true` takes only what Stable API version 1 has.
pub(crate) fn check_api_strict(command: &Command) -> Result<()> {
    if command.api_version_1 {
        return Ok(());
    }
    Err(CommandError::new(
        ErrorCode::APIStrictError,
        format!(
            "Provided apiStrict:true, but the command {} is not in API Version 1",
            command.name
        ),
    ))
}

/// Reads `{ id: UUID }`, perhaps with the user's digest.
pub(crate) fn session_id(lsid: &RawDocument) -> Result<SessionId> {
    let arguments = Arguments::of("lsid");
    let mut id = None;
    arguments.each(lsid, |name, value| {
        match (name, value) {
            ("id", RawBsonRef::Binary(binary)) => {
                let bytes: SessionId = binary
                    .bytes
                    .try_into()
                    .map_err(|_| CommandError::bad_value("BSON field 'lsid.id' is not a UUID of 16 bytes"))?;
                id = Some(bytes);
            }
            ("id", other) => return Err(wrong_type("lsid", "id", other, "type 'binData'")),
            ("uid", RawBsonRef::Binary(_)) => {}
            ("uid", other) => return Err(wrong_type("lsid", "uid", other, "type 'binData'")),
            ("txnNumber" | "txnUUID", _) => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    id.ok_or_else(|| missing_field("lsid", "id"))
}

/// A standalone server answers in every mode; what is none is refused.
fn check_read_preference(preference: &RawDocument) -> Result<()> {
    let arguments = Arguments::of("readPreference");
    match preference
        .get("mode")?
        .map(|mode| arguments.string("mode", mode))
        .transpose()?
    {
        None | Some("primary" | "primaryPreferred" | "secondary" | "secondaryPreferred" | "nearest") => Ok(()),
        Some(other) => Err(CommandError::bad_value(format!(
            "Enumeration value '{other}' for field 'readPreference.mode' is not a valid value."
        ))),
    }
}

fn max_time_ms(arguments: Arguments<'_>, name: &str, value: RawBsonRef<'_>) -> Result<u64> {
    let number = arguments.integer(name, value)?;
    let is_whole = match value {
        RawBsonRef::Double(v) => v.fract() == 0.0,
        RawBsonRef::Decimal128(v) => v.to_string().parse::<f64>().is_ok_and(|v| v.fract() == 0.0),
        _ => true,
    };
    if !is_whole {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            format!("{name} has non-integral value"),
        ));
    }
    if !(0..=i64::from(i32::MAX)).contains(&number) {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            format!("{number} value for {name} is out of range [0, {}]", i32::MAX),
        ));
    }
    Ok(number as u64)
}

fn write_concern(document: &RawDocument, journal: bool) -> Result<WriteConcern> {
    let arguments = Arguments::of("writeConcern");
    let mut concern = WriteConcern::default();
    let (mut journaled, mut synced) = (false, false);
    arguments.each(document, |name, value| {
        match name {
            "w" => match value {
                RawBsonRef::String("majority") => concern.journaled |= journal,
                RawBsonRef::String(mode) => {
                    return Err(CommandError::bad_value(format!(
                        "cannot use non-majority 'w' mode \"{mode}\" when a host is not a member of a replica set"
                    )));
                }
                number => match number_as_i64(number) {
                    Some(0) => concern.unacknowledged = true,
                    Some(1) => {}
                    Some(n) if (2..=50).contains(&n) => {
                        return Err(CommandError::bad_value(
                            "cannot use 'w' > 1 when a host is not replicated",
                        ));
                    }
                    Some(_) => {
                        return Err(CommandError::new(
                            ErrorCode::FailedToParse,
                            "w has to be a non-negative number and not greater than 50",
                        ));
                    }
                    None => {
                        return Err(CommandError::new(
                            ErrorCode::FailedToParse,
                            "w has to be a number, string, or object",
                        ));
                    }
                },
            },
            "j" | "fsync" => {
                let on = arguments.boolean(name, value)?;
                *(if name == "j" { &mut journaled } else { &mut synced }) = on;
            }
            "wtimeout" => drop(arguments.integer(name, value)?),
            "provenance" => check_provenance(arguments, value)?,
            "getLastError" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if journaled && synced {
        return Err(CommandError::new(
            ErrorCode::FailedToParse,
            "fsync and j options cannot be used together",
        ));
    }
    if journaled || synced {
        if !journal {
            return Err(CommandError::bad_value(
                "cannot use 'j' option when a host does not have journaling enabled",
            ));
        }
        concern.journaled = true;
    }
    Ok(concern)
}

/// Who decided on a concern; between servers only it makes a difference.
fn check_provenance(arguments: Arguments<'_>, value: RawBsonRef<'_>) -> Result<()> {
    match arguments.string("provenance", value)? {
        "clientSupplied" | "implicitDefault" | "customDefault" | "getLastErrorDefaults" | "internalWriteDefault" => {
            Ok(())
        }
        other => Err(CommandError::bad_value(format!(
            "Enumeration value '{other}' for field '{}.provenance' is not a valid value.",
            arguments.command
        ))),
    }
}

fn check_read_concern(document: &RawDocument) -> Result<()> {
    let arguments = Arguments::of("readConcern");
    let needs_replica_set = |what: String| {
        CommandError::new(
            ErrorCode::NotAReplicaSet,
            format!("node needs to be a replica set member to use {what}"),
        )
    };
    arguments.each(document, |name, value| {
        match name {
            "level" => match arguments.string(name, value)? {
                "local" | "available" | "majority" => {}
                level @ ("linearizable" | "snapshot") => {
                    return Err(needs_replica_set(format!("read concern '{level}'")));
                }
                other => {
                    return Err(CommandError::new(
                        ErrorCode::FailedToParse,
                        format!(
                            "readConcern.level must be one of 'local', 'majority', 'available', 'linearizable' or 'snapshot', not '{other}'"
                        ),
                    ));
                }
            },
            "afterClusterTime" | "atClusterTime" => match value {
                RawBsonRef::Timestamp(_) => return Err(needs_replica_set(format!("readConcern.{name}"))),
                other => return Err(wrong_type(arguments.command, name, other, "type 'timestamp'")),
            },
            "provenance" => check_provenance(arguments, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })
}

impl<'i> Invocation<'i> {
    /// A reader of this command's own fields.
    pub fn arguments(&self) -> Arguments<'static> {
        Arguments::of(self.command.name)
    }

    /// The value of the command's first field.
    pub fn target(&self) -> Result<RawBsonRef<'i>> {
        match Elements::new(self.body).next() {
            Some(element) => Ok(element?.value()?),
            None => Err(CommandError::bad_value("empty command")),
        }
    }

    /// The collection named by the first field.
    pub fn namespace(&mut self) -> Result<Namespace> {
        let name = match self.target()? {
            RawBsonRef::String(name) => name,
            other => {
                return Err(CommandError::new(
                    ErrorCode::InvalidNamespace,
                    format!(
                        "collection name has invalid type {}",
                        crate::arguments::type_name(other)
                    ),
                ));
            }
        };
        self.namespace_of(name)
    }

    /// A collection of this command's database; remembered for the report.
    pub fn namespace_of(&mut self, collection: &str) -> Result<Namespace> {
        let namespace = Namespace::new(self.database, collection)?;
        self.report.namespace = Some(namespace.clone());
        Ok(namespace)
    }

    /// The command's own fields, after the first: `handle` answers false for a name it does not know.
    pub fn for_each_field(&self, mut handle: impl FnMut(&'i str, RawBsonRef<'i>) -> Result<bool>) -> Result<()> {
        let mut values = Values::of(self.body);
        for element in Elements::new(self.body).skip(1) {
            let element = element?;
            let name = element.name_str()?;
            if is_generic(name) {
                continue;
            }
            if !take(name, values.value(element)?, &mut handle)? {
                return Err(unknown_field(self.command.name, name));
            }
        }
        Ok(())
    }

    /// The documents of a sequence, or of the array field of that name.
    pub fn documents(&self, field: &str) -> Result<Option<Vec<&'i RawDocument>>> {
        if let Some((_, bytes)) = self.sequences.iter().find(|(name, _)| *name == field) {
            let mut documents = Vec::new();
            let mut rest = *bytes;
            while rest.len() >= 5 {
                let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
                let Some(bytes) = rest.get(..length) else {
                    return Err(CommandError::new(
                        ErrorCode::InvalidBSON,
                        "document sequence is cut off",
                    ));
                };
                documents.push(RawDocument::from_bytes(bytes)?);
                rest = &rest[length..];
            }
            return Ok(Some(documents));
        }
        match self.body.get(field)? {
            None | Some(RawBsonRef::Null | RawBsonRef::Undefined) => Ok(None),
            Some(RawBsonRef::Array(array)) => {
                let mut documents = Vec::new();
                for (index, element) in array.into_iter().enumerate() {
                    match element? {
                        RawBsonRef::Document(document) => documents.push(document),
                        other => {
                            return Err(wrong_type(
                                self.command.name,
                                &format!("{field}.{index}"),
                                other,
                                "type 'object'",
                            ));
                        }
                    }
                }
                Ok(Some(documents))
            }
            Some(other) => Err(wrong_type(self.command.name, field, other, "type 'array'")),
        }
    }

    /// What expressions of this call see.
    pub fn expressions(&self) -> ExpressionContext {
        let random = Arc::clone(&self.server.env.random);
        ExpressionContext::new(self.operation.started_ms(), random).for_operation(&self.operation)
    }

    /// The same with the variables of `let`.
    pub fn expressions_with(&self, variables: Option<&RawDocument>) -> Result<ExpressionContext> {
        let context = self.expressions();
        Ok(match variables {
            Some(variables) => context.with_let(variables)?,
            None => context,
        })
    }

    /// What evaluations of this call are bounded by.
    pub fn evaluation(&self) -> EvaluationContext<'_> {
        EvaluationContext::new(&self.operation)
    }

    /// Where plans of this call run.
    pub fn context(&self) -> ExecContext<'_> {
        ExecContext {
            storage: &self.server.storage,
            op: &self.operation,
            sources: Some(self),
        }
    }

    /// Shows the plan in `currentOp` and the log.
    pub fn set_plan_summary(&mut self, summary: Cow<'static, str>) {
        let namespace = self.report.namespace.as_ref().map_or(self.database, Namespace::as_str);
        self.client.describe(namespace, &summary);
        self.report.plan_summary = summary;
    }

    /// Remembers the newest write, for `j: true`.
    pub fn wrote(&mut self, seq: Seq) {
        self.report.last_write = Some(seq);
    }
}
