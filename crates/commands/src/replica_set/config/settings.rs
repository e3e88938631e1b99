//! `settings` of a configuration: times, and the modes of write concerns.

use super::{at_least, at_most, invalid};
use crate::arguments::{Arguments, number_as_i64};
use crate::error::{CommandError, Result};
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use std::collections::BTreeMap;

/// What concerns all members.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Secondaries may copy from secondaries.
    pub chaining_allowed: bool,
    /// Members hear of each other so often.
    pub heartbeat_interval_ms: u64,
    /// A member that was not heard of for so long is down.
    pub heartbeat_timeout_s: u64,
    /// Without a primary for so long, the others elect one.
    pub election_timeout_ms: u64,
    /// How long a new primary waits for what others have and it has not; `None`: until it has it.
    pub catch_up_timeout_ms: Option<u64>,
    /// A member that is ahead of a new primary waits so long before it takes over; `None`: it never does.
    pub catch_up_takeover_delay_ms: Option<u64>,
    /// `getLastErrorModes`: for each mode, how many different values of which tags.
    pub modes: BTreeMap<String, Vec<(String, usize)>>,
    /// The set, whatever it is called.
    pub replica_set_id: Option<ObjectId>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chaining_allowed: true,
            heartbeat_interval_ms: 2000,
            heartbeat_timeout_s: 10,
            election_timeout_ms: 10_000,
            catch_up_timeout_ms: None,
            catch_up_takeover_delay_ms: Some(30_000),
            modes: BTreeMap::new(),
            replica_set_id: None,
        }
    }
}

impl Settings {
    /// Reads them and fills the defaults in.
    pub(super) fn parse(given: &RawDocument) -> Result<Self> {
        let arguments = Arguments::of("ReplSetConfig.settings");
        let number = |field: &str, value, least| {
            let number = at_least(field, arguments.integer(field, value)?, least)?;
            at_most(field, number, i64::from(i32::MAX))
        };
        let mut settings = Self::default();
        arguments.each(given, |field, value| {
            match field {
                "chainingAllowed" => settings.chaining_allowed = arguments.boolean(field, value)?,
                "heartbeatIntervalMillis" => settings.heartbeat_interval_ms = number(field, value, 1)? as u64,
                "heartbeatTimeoutSecs" => settings.heartbeat_timeout_s = number(field, value, 1)? as u64,
                "electionTimeoutMillis" => settings.election_timeout_ms = number(field, value, 1)? as u64,
                "catchUpTimeoutMillis" => {
                    settings.catch_up_timeout_ms = u64::try_from(number(field, value, -1)?).ok();
                }
                "catchUpTakeoverDelayMillis" => {
                    settings.catch_up_takeover_delay_ms = u64::try_from(number(field, value, -1)?).ok();
                }
                "getLastErrorModes" => settings.modes = parse_modes(arguments.document(field, value)?)?,
                "getLastErrorDefaults" => check_defaults(arguments.document(field, value)?)?,
                "replicaSetId" => settings.replica_set_id = Some(parse_id(value)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(settings)
    }

    /// As they are kept and shown.
    pub(super) fn to_document(&self) -> Document {
        let number = |value: u64| Bson::Int32(i32::try_from(value).unwrap_or(i32::MAX));
        let or_never = |value: Option<u64>| value.map_or(Bson::Int32(-1), number);
        let mode = |tags: &Vec<(String, usize)>| -> Document {
            tags.iter()
                .map(|(tag, count)| (tag.clone(), number(*count as u64)))
                .collect()
        };
        let modes: Document = self
            .modes
            .iter()
            .map(|(name, tags)| (name.clone(), Bson::Document(mode(tags))))
            .collect();
        let mut document = doc! {
            "chainingAllowed": self.chaining_allowed,
            "heartbeatIntervalMillis": number(self.heartbeat_interval_ms),
            "heartbeatTimeoutSecs": number(self.heartbeat_timeout_s),
            "electionTimeoutMillis": number(self.election_timeout_ms),
            "catchUpTimeoutMillis": or_never(self.catch_up_timeout_ms),
            "catchUpTakeoverDelayMillis": or_never(self.catch_up_takeover_delay_ms),
            "getLastErrorModes": modes,
            "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
        };
        if let Some(id) = self.replica_set_id {
            document.insert("replicaSetId", id);
        }
        document
    }
}

fn parse_id(value: RawBsonRef<'_>) -> Result<ObjectId> {
    match value {
        RawBsonRef::ObjectId(id) if id.bytes() == [0; 12] => Err(invalid("replicaSetId field value cannot be null")),
        RawBsonRef::ObjectId(id) => Ok(id),
        other => Err(crate::arguments::wrong_type(
            "ReplSetConfig.settings",
            "replicaSetId",
            other,
            "type 'objectId'",
        )),
    }
}

fn parse_modes(given: &RawDocument) -> Result<BTreeMap<String, Vec<(String, usize)>>> {
    let arguments = Arguments::of("ReplSetConfig.settings.getLastErrorModes");
    let mut modes = BTreeMap::new();
    arguments.each(given, |name, value| {
        let path = format!("settings.getLastErrorModes.{name}");
        let RawBsonRef::Document(tags) = value else {
            return Err(invalid(format!("Expected {path} to be an object")));
        };
        let mut mode = Vec::new();
        for tag in tags {
            let (tag, count) = tag?;
            let Some(count) = number_as_i64(count) else {
                return Err(invalid(format!("Expected {path}.{tag} to be a number")));
            };
            let count = at_most(tag.as_str(), count, i64::from(i32::MAX))?;
            match usize::try_from(count) {
                Ok(count) if count > 0 => mode.push((tag.as_str().to_owned(), count)),
                _ => {
                    return Err(invalid(format!(
                        "Value of {path}.{tag} must be positive, but found {count}"
                    )));
                }
            }
        }
        match modes.insert(name.to_owned(), mode) {
            None => Ok(true),
            Some(_) => Err(invalid(format!(
                "Value of settings.getLastErrorModes contains multiple fields named {name}"
            ))),
        }
    })?;
    Ok(modes)
}

/// A default write concern is set by `setDefaultRWConcern` now; here only what it was at first is taken.
fn check_defaults(given: &RawDocument) -> Result<()> {
    let refused = || -> CommandError {
        invalid(
            "settings.getLastErrorDefaults must be {w: 1, wtimeout: 0}; \
             use the setDefaultRWConcern command to set a cluster-wide write concern",
        )
    };
    for field in given {
        let (name, value) = field?;
        let expected = match name.as_str() {
            "w" => 1,
            "wtimeout" => 0,
            _ => return Err(refused()),
        };
        if number_as_i64(value) != Some(expected) {
            return Err(refused());
        }
    }
    Ok(())
}
