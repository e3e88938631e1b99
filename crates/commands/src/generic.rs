//! The fields that every command may carry, read once before its operation begins.

use crate::arguments::{
    Arguments, FieldNames, is_generic, max_time_ms, missing_field, take, unknown_field, wrong_type,
};
use crate::concerns::{Deployment, ReadConcern, ReadLevel, WriteConcern};
use crate::cursors::SessionId;
use crate::definition::{Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::request::Request;
use crate::stable_api::{self, ApiParameters};
use crate::transactions::TransactionFields;
use bson::raw::{RawBsonRef, RawDocument};
use query::raw::{self, Elements};
use storage::ClusterTime;
use wire::ErrorCode;

/// See the module.
#[derive(Default)]
pub(crate) struct Generic<'i> {
    pub database: &'i str,
    pub session: Option<SessionId>,
    pub write_concern: WriteConcern,
    pub has_write_concern: bool,
    pub read_concern: ReadConcern,
    /// `$clusterTime` of a member's client.
    pub cluster_time: Option<ClusterTime>,
    /// `$readPreference` lets a secondary answer.
    pub secondary_ok: bool,
    number: Option<i64>,
    autocommit: Option<bool>,
    start: Option<bool>,
    pub transaction: Option<TransactionFields>,
    pub max_time_ms: u64,
    /// `maxTimeMS` is there, perhaps with 0.
    pub has_max_time: bool,
    statement: i32,
    pub api: ApiParameters,
    /// What the command does is asked, and nothing is to be done.
    pub help: bool,
}

impl<'i> Generic<'i> {
    /// Reads the fields every command may carry.
    pub(crate) fn read(request: &Request<'i>, command: &Command, deployment: &Deployment) -> Result<Self> {
        let mut generic = Self {
            database: request.legacy_database.unwrap_or(""),
            write_concern: WriteConcern::implicit(deployment),
            read_concern: ReadConcern::implicit(deployment),
            ..Self::default()
        };
        check_sequences(request, command)?;
        let mut names = FieldNames::of(command.name, request.body);
        for element in Elements::new(request.body) {
            let element = element?;
            names.add(element.name())?;
            if is_generic(element.name()) {
                let name = element.name_str()?;
                take(name, element.value()?, &mut |name, value| {
                    generic.take(name, value, command, deployment).map(|()| true)
                })?;
            }
        }
        if generic.database.is_empty() {
            return Err(CommandError::new(
                ErrorCode(40571),
                "OP_MSG requests require a $db argument",
            ));
        }
        generic.api.check()?;
        if generic.api.is_strict() && !command.api_version_1 {
            return Err(stable_api::unstable_command(command.name));
        }
        if command.name == "getMore" {
            // A cursor reads what it was opened to read.
            generic.read_concern = ReadConcern::implicit(deployment);
        }
        generic.transaction = generic.transaction_fields(command, deployment)?;
        Ok(generic)
    }

    /// The fields of a transaction, as far as they make sense together.
    fn transaction_fields(&self, command: &Command, deployment: &Deployment) -> Result<Option<TransactionFields>> {
        let invalid = |reason: &str| Err(CommandError::new(ErrorCode::InvalidOptions, reason));
        let is_transaction = self.number.is_some() && self.autocommit.is_some();
        // In a transaction it is the transaction's.
        if !is_transaction {
            command.check_read_concern(&self.read_concern)?;
        }
        let Some(number) = self.number else {
            return match (self.autocommit, self.start) {
                // Behind what the fields of a session are told: those with a number are a member's.
                (None, None) => self.read_concern.check_membership(deployment).map(|()| None),
                (Some(_), _) => invalid("'autocommit' field requires a transaction number to also be specified"),
                _ => invalid("'startTransaction' field requires a transaction number to also be specified"),
            };
        };
        if !deployment.is_member {
            return Err(CommandError::new(
                ErrorCode::IllegalOperation,
                "Transaction numbers are only allowed on a replica set member or mongos",
            ));
        }
        match (self.autocommit, self.start) {
            _ if self.session.is_none() => {
                return invalid("Transaction number requires a session ID to also be specified");
            }
            _ if number < 0 => return invalid("Transaction number cannot be negative"),
            (Some(true), _) => return invalid("Specifying autocommit=true is not allowed."),
            (_, Some(false)) => return invalid("Specifying startTransaction=false is not allowed."),
            (None, Some(true)) => {
                return invalid("'startTransaction' field requires 'autocommit' field to also be specified");
            }
            _ => {}
        }
        let fields = TransactionFields {
            number,
            is_transaction: self.autocommit.is_some(),
            starts: self.start.is_some(),
            statement: self.statement,
            api: self.api,
        };
        self.check_transaction(command, fields)?;
        Ok(Some(fields))
    }

    fn check_transaction(&self, command: &Command, fields: TransactionFields) -> Result<()> {
        let invalid = |reason: &str| Err(CommandError::new(ErrorCode::InvalidOptions, reason));
        let name = command.name;
        if !fields.is_transaction {
            return match command.in_transactions {
                InTransactions::AllowedAndRetryable => Ok(()),
                _ => Err(CommandError::new(
                    ErrorCode::NotARetryableWriteCommand,
                    format!(
                        "txnNumber may only be provided for multi-document transactions and retryable write commands. autocommit:false was not provided, and {name} is not a retryable write command."
                    ),
                )),
            };
        }
        let unsupported =
            |reason: String| Err(CommandError::new(ErrorCode::OperationNotSupportedInTransaction, reason));
        let ends = match command.in_transactions {
            InTransactions::Ends => true,
            InTransactions::NotFirst if fields.starts => {
                return unsupported(format!("{name} cannot be the first operation of a transaction"));
            }
            InTransactions::Allowed
            | InTransactions::AllowedUnlessSnapshot
            | InTransactions::NotFirst
            | InTransactions::AllowedAndRetryable => false,
            InTransactions::No => {
                return unsupported(format!("Cannot run '{name}' in a multi-document transaction."));
            }
        };
        if ends && fields.starts {
            return invalid(&format!("Cannot start a transaction with {name}"));
        }
        if !ends && self.has_write_concern {
            return invalid("writeConcern is not allowed within a multi-statement transaction");
        }
        if self.read_concern.is_given && !fields.starts {
            return invalid("Only the first command in a transaction may specify a readConcern");
        }
        let is_of_no_transaction = matches!(self.read_concern.level, ReadLevel::Linearizable | ReadLevel::Available);
        if self.read_concern.has_level && is_of_no_transaction {
            return invalid(
                "The readConcern level must be either 'local' (default), 'majority' or 'snapshot' in order to run in a transaction",
            );
        }
        if self.read_concern.at.is_some() {
            return Err(CommandError::not_implemented("readConcern.atClusterTime"));
        }
        // A command of `admin` names the databases of its collections itself; it may have left a cursor, which is the
        // transaction's as every one that is read in it.
        if !ends && !command.admin_only && name != "getMore" {
            check_database_in_transaction(self.database)?;
        }
        Ok(())
    }

    fn take(&mut self, name: &str, value: RawBsonRef<'i>, command: &Command, deployment: &Deployment) -> Result<()> {
        let arguments = Arguments::of(command.name);
        match name {
            "$db" => self.database = arguments.string("$db", value)?,
            "lsid" => self.session = Some(session_id(arguments.document("lsid", value)?)?),
            "maxTimeMS" => {
                self.max_time_ms = max_time_ms(arguments, name, value)?;
                self.has_max_time = true;
            }
            "writeConcern" => {
                let concern = arguments.document("writeConcern", value)?;
                command.check_write_concern()?;
                self.write_concern = WriteConcern::read(concern, deployment)?;
                self.has_write_concern = true;
            }
            "readConcern" => {
                self.read_concern = ReadConcern::read(arguments.document("readConcern", value)?, deployment)?;
            }
            "maxTimeMSOpOnly" => drop(max_time_ms(arguments, name, value)?),
            "$readPreference" => self.secondary_ok = read_preference(arguments.document(name, value)?)?,
            "$clusterTime" => {
                let (name, field) = ("$clusterTime", "clusterTime");
                self.cluster_time = match arguments.document(name, value)?.get(field)? {
                    Some(RawBsonRef::Timestamp(time)) => Some(ClusterTime::from(time)),
                    Some(other) => return Err(wrong_type(name, field, other, "type 'timestamp'")),
                    None => return Err(missing_field(name, field)),
                };
            }
            "help" => self.help = arguments.boolean(name, value)?,
            "rawData" if arguments.boolean(name, value)? => return Err(CommandError::not_implemented("rawData")),
            "rawData" => {}
            "txnNumber" => match value {
                RawBsonRef::Int64(number) => self.number = Some(number),
                other => return Err(wrong_type(arguments.command, name, other, "type 'long'")),
            },
            "stmtId" => self.statement = arguments.statement_number(name, value)?,
            "startTransaction" => self.start = Some(arguments.flag(name, value)?),
            "autocommit" => self.autocommit = Some(arguments.flag(name, value)?),
            "apiVersion" => {
                if arguments.string("apiVersion", value)? != "1" {
                    return Err(CommandError::new(
                        ErrorCode::APIVersionError,
                        "API version must be \"1\"",
                    ));
                }
                self.api.has_version = true;
            }
            "apiStrict" => self.api.strict = Some(arguments.boolean(name, value)?),
            "apiDeprecationErrors" => self.api.deprecation_errors = Some(arguments.boolean(name, value)?),
            _ => {}
        }
        Ok(())
    }
}

/// A document sequence is one that the command knows, and stands in for a field that the body has not.
fn check_sequences(request: &Request<'_>, command: &Command) -> Result<()> {
    for (name, _) in request.sequences {
        if !command.batches.contains(name) {
            return Err(unknown_field(command.name, name));
        }
        if raw::find(request.body, name.as_bytes())?.is_some() {
            return Err(CommandError::new(
                ErrorCode(40433),
                format!("Duplicate field between body and document sequence {name}"),
            ));
        }
    }
    Ok(())
}

/// Fails where no transaction reads or writes.
pub(crate) fn check_database_in_transaction(database: &str) -> Result<()> {
    match database {
        "admin" | "config" | "local" => Err(CommandError::new(
            ErrorCode::OperationNotSupportedInTransaction,
            format!("Cannot run command against the '{database}' database in a transaction."),
        )),
        _ => Ok(()),
    }
}

/// Reads `{ id: UUID }`, perhaps with the user's digest.
pub(crate) fn session_id(lsid: &RawDocument) -> Result<SessionId> {
    let arguments = Arguments::of("lsid");
    let mut id = None;
    arguments.each(lsid, |name, value| {
        match (name, value) {
            ("id", value) => id = Some(arguments.uuid("id", value)?),
            ("uid", RawBsonRef::Binary(_)) => {}
            ("uid", other) => return Err(wrong_type("lsid", "uid", other, "type 'binData'")),
            ("txnNumber" | "txnUUID", _) => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    id.ok_or_else(|| missing_field("lsid", "id"))
}

/// Whether a secondary may answer. A server that is no member answers in every mode; what is none is refused.
fn read_preference(preference: &RawDocument) -> Result<bool> {
    let arguments = Arguments::of("readPreference");
    match preference
        .get("mode")?
        .map(|mode| arguments.string("mode", mode))
        .transpose()?
    {
        None | Some("primary") => Ok(false),
        Some("primaryPreferred" | "secondary" | "secondaryPreferred" | "nearest") => Ok(true),
        Some(other) => Err(CommandError::bad_value(format!(
            "Enumeration value '{other}' for field 'readPreference.mode' is not a valid value."
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concerns::DefaultConcerns;
    use crate::table::COMMANDS;
    use bson::raw::CString;
    use bson::rawdoc;

    fn read(body: &RawDocument, sequences: &[(&str, &[u8])]) -> i32 {
        let name = body.into_iter().next().expect("it has fields").expect("valid").0;
        let (command, _) = COMMANDS.find(name.as_str()).expect("there is one");
        let deployment = Deployment {
            journal: true,
            is_member: false,
            defaults: DefaultConcerns::default(),
        };
        let request = Request {
            sequences,
            ..Request::of(body)
        };
        Generic::read(&request, command, &deployment).map_or_else(|error| error.code.0, |_| 0)
    }

    /// The last of two filters won: more was found, or deleted, than the first one says.
    #[test]
    fn no_field_comes_twice() {
        let once = rawdoc! { "find": "c", "filter": { "_id": 1 }, "$db": "test" };
        assert_eq!(read(&once, &[]), 0);
        for name in ["filter", "$db", "find", "maxTimeMS", "nonesuch"] {
            let mut twice = once.clone();
            for _ in 0..2 {
                twice.append(CString::try_from(name).expect("no zero byte"), 1);
            }
            assert_eq!(read(&twice, &[]), 40413, "{name}");
        }
    }

    /// Names of the same length that begin and end alike are different ones.
    #[test]
    fn names_that_look_alike_are_told_apart() {
        let mut body = rawdoc! { "ping": 1, "$db": "test" };
        for number in 0..FieldNames::MAX * 2 {
            let name = format!("a{number:05}z");
            body.append(CString::try_from(name).expect("no zero byte"), 1);
        }
        assert_eq!(read(&body, &[]), 0);
        // Nor does one of them hide a field that every command has and that comes twice.
        for name in ["maxTimeMS", "$db"] {
            let mut twice = body.clone();
            for _ in 0..2 {
                twice.append(CString::try_from(name).expect("no zero byte"), 1);
            }
            assert_eq!(read(&twice, &[]), 40413, "{name}");
        }
    }

    #[test]
    fn sequences_are_those_that_the_command_knows_and_the_body_has_not() {
        let document = rawdoc! { "_id": 1 };
        let documents = document.as_bytes();
        let insert = rawdoc! { "insert": "c", "$db": "test" };
        assert_eq!(read(&insert, &[("documents", documents)]), 0);
        assert_eq!(read(&insert, &[("docs", documents)]), 40415);
        let find = rawdoc! { "find": "c", "$db": "test" };
        assert_eq!(read(&find, &[("filter", documents)]), 40415);
        let both = rawdoc! { "insert": "c", "documents": [{ "_id": 2 }], "$db": "test" };
        assert_eq!(read(&both, &[("documents", documents)]), 40433);
    }
}
