//! The configuration of a replica set: its members and settings as `replSetInitiate` and `replSetReconfig` take them.
//!
//! `parse` reads the fields and fills in defaults. What has been parsed may still contradict itself; `rules` knows
//! which configurations a set can have, and which one may follow another. Nothing here asks another server: whether a
//! host is this server is for the caller to say.
//!
//! Invariant after `check`: 1 to 50 members with numbers and hosts of their own, 1 to 7 of them voters, and at least
//! one that can become the primary.

mod member;
mod rules;
mod settings;
#[cfg(test)]
mod tests;

pub use member::MemberConfig;
pub use settings::Settings;

use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::error::{CommandError, Result};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Document, doc};
use std::collections::HashSet;
use wire::ErrorCode;

/// Most members of a set.
const MEMBERS_MAX: usize = 50;

/// The configuration of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// The set's name.
    pub name: String,
    /// Rises with each change.
    pub version: i32,
    /// The term of the log that it was made in, if that is written down with it.
    pub term: Option<u64>,
    /// In the order given.
    pub members: Vec<MemberConfig>,
    /// `writeConcernMajorityJournalDefault`.
    pub majority_is_journaled: bool,
    /// What concerns all members.
    pub settings: Settings,
}

fn invalid(reason: impl std::fmt::Display) -> CommandError {
    CommandError::new(ErrorCode::InvalidReplicaSetConfig, reason.to_string())
}

/// The same reason with another code. What is not built keeps its own.
fn recoded(code: ErrorCode, error: CommandError) -> CommandError {
    if error.code == ErrorCode::NotImplemented {
        return error;
    }
    CommandError { code, ..error }
}

/// A number that must be in a range, as MongoDB words it.
fn at_least(field: &str, value: i64, least: i64) -> Result<i64> {
    if value < least {
        return Err(invalid(format!(
            "BSON field '{field}' value must be >= {least}, actual value '{value}'"
        )));
    }
    Ok(value)
}

fn at_most(field: &str, value: i64, most: i64) -> Result<i64> {
    if value > most {
        return Err(invalid(format!(
            "BSON field '{field}' value must be <= {most}, actual value '{value}'"
        )));
    }
    Ok(value)
}

impl SetConfig {
    /// The configuration of a set that nobody has configured.
    pub fn of_one(set: &str, host: &str, id: &bson::oid::ObjectId) -> Document {
        doc! {
            "_id": set,
            "version": 1,
            "members": [{ "_id": 0, "host": host }],
            "settings": { "replicaSetId": *id },
        }
    }

    /// Reads a configuration and fills the defaults in, without asking whether it makes sense.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) names the field that is missing, unknown or has a wrong value; `NotImplemented`
    /// (238) what is not built.
    pub fn parse(config: &RawDocument) -> Result<Self> {
        Self::parse_fields(config).map_err(|error| recoded(ErrorCode::InvalidReplicaSetConfig, error))
    }

    fn parse_fields(config: &RawDocument) -> Result<Self> {
        let arguments = Arguments::of("ReplSetConfig");
        let (mut name, mut version, mut term, mut members) = (None, None, -1, None);
        let (mut settings, mut journaled, mut protocol) = (Settings::default(), true, 1);
        arguments.each(config, |field, value| {
            match field {
                "_id" => name = Some(arguments.string(field, value)?.to_owned()),
                "version" => version = Some(arguments.integer(field, value)?),
                "term" => term = at_least(field, arguments.integer(field, value)?, -1)?,
                "members" => members = Some(arguments.array(field, value)?),
                "protocolVersion" => protocol = arguments.integer(field, value)?,
                "writeConcernMajorityJournalDefault" => journaled = arguments.flag(field, value)?,
                "configsvr" if arguments.boolean(field, value)? => {
                    return Err(CommandError::not_implemented("A replica set of config servers"));
                }
                "configsvr" => {}
                "settings" => settings = Settings::parse(arguments.document(field, value)?)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let name = name.ok_or_else(|| missing_field("ReplSetConfig", "_id"))?;
        let version = at_least("version", version.unwrap_or(1), 1)?;
        let version = at_most("version", version, i64::from(i32::MAX))?;
        if protocol != 1 {
            return Err(invalid(format!(
                "1 is the only supported value for protocolVersion, found: {protocol}"
            )));
        }
        let given = members.ok_or_else(|| missing_field("ReplSetConfig", "members"))?;
        let mut members = Vec::new();
        for member in given {
            match member? {
                // Counted here, before the members are compared with each other.
                _ if members.len() == MEMBERS_MAX => return Err(wrong_member_count(given.into_iter().count())),
                RawBsonRef::Document(member) => members.push(MemberConfig::parse(member)?),
                other => {
                    let field = format!("members.{}", members.len());
                    return Err(wrong_type("ReplSetConfig", &field, other, "type 'object'"));
                }
            }
        }
        Ok(Self {
            name,
            version: version as i32,
            term: u64::try_from(term).ok(),
            members,
            majority_is_journaled: journaled,
            settings,
        })
    }

    /// Reads the configuration of the set `name` as it was kept, and checks it.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) names what is wrong.
    pub fn read_kept(config: &RawDocument, name: &str) -> Result<Self> {
        Self::check_kept_name(config, name)?;
        let config = Self::parse(config)?;
        config.check()?;
        Ok(config)
    }

    /// Whether what was kept is of the set `name`, as far as it says.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93): it is another set's.
    pub fn check_kept_name(config: &RawDocument, name: &str) -> Result<()> {
        match config.get("_id")? {
            Some(RawBsonRef::String(kept)) if kept != name => Err(invalid(format!(
                "the data are those of a member of the replica set {kept}, and --replSet says {name}"
            ))),
            _ => Ok(()),
        }
    }

    /// All of it, as it is kept and shown.
    pub fn to_document(&self) -> Document {
        let members: Vec<Document> = self.members.iter().map(MemberConfig::to_document).collect();
        let mut document = doc! { "_id": &self.name, "version": self.version };
        if let Some(term) = self.term {
            document.insert("term", term as i64);
        }
        document.extend(doc! {
            "members": members,
            "protocolVersion": 1_i64,
            "writeConcernMajorityJournalDefault": self.majority_is_journaled,
            "settings": self.settings.to_document(),
        });
        document
    }

    /// The member with the number `id`.
    pub fn member(&self, id: i32) -> Option<&MemberConfig> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The member that is this server.
    ///
    /// # Errors
    /// `NodeNotFound` (74): none is; `InvalidReplicaSetConfig` (93): more than one is.
    pub fn me(&self, is_me: &dyn Fn(&str) -> bool) -> Result<&MemberConfig> {
        let mut mine = self.members.iter().filter(|member| is_me(&member.host));
        match (mine.next(), mine.next()) {
            (Some(me), None) => Ok(me),
            (Some(me), Some(other)) => Err(invalid(format!(
                "The hosts {} and {} all map to this node in new configuration with {} for replica set {}",
                me.host,
                other.host,
                self.identity(),
                self.name
            ))),
            (None, _) => Err(CommandError::new(
                ErrorCode::NodeNotFound,
                format!(
                    "No host described in new configuration with {} for replica set {} maps to this node",
                    self.identity(),
                    self.name
                ),
            )),
        }
    }

    /// Version and term for messages.
    fn identity(&self) -> String {
        format!("{{version: {}, term: {}}}", self.version, self.term.unwrap_or(0))
    }

    /// The members that have a vote.
    pub fn voters(&self) -> impl Iterator<Item = &MemberConfig> {
        self.members.iter().filter(|member| member.votes)
    }

    /// The members that keep data: all but arbiters.
    pub fn data_members(&self) -> impl Iterator<Item = &MemberConfig> {
        self.members.iter().filter(|member| !member.arbiter_only)
    }

    /// The members that keep data and have a vote: those that `w: "majority"` counts.
    pub fn data_voters(&self) -> impl Iterator<Item = &MemberConfig> {
        self.voters().filter(|member| !member.arbiter_only)
    }

    /// How many votes elect a primary.
    pub fn majority(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    /// How many members with data and a vote `w: "majority"` waits for.
    pub fn write_majority(&self) -> usize {
        self.majority().min(self.data_voters().count())
    }

    /// Whether writes without a concern wait for the majority. Not when an arbiter is among the voters and every other
    /// voter would have to be up for that.
    pub fn implicit_default_is_majority(&self) -> bool {
        let data_voters = self.data_voters().count();
        data_voters == self.voters().count() || data_voters > self.majority()
    }

    /// Whether the members that `has` is true for are enough for `w: mode`: the majority, or for each tag of the mode
    /// as many different values as it asks for.
    ///
    /// # Errors
    /// `UnknownReplWriteConcern` (79): there is no such mode.
    pub fn mode_is_satisfied(&self, mode: &str, has: &dyn Fn(i32) -> bool) -> Result<bool> {
        if mode == "majority" {
            return Ok(self.data_voters().filter(|member| has(member.id)).count() >= self.write_majority());
        }
        let Some(mode) = self.settings.modes.get(mode) else {
            return Err(CommandError::new(
                ErrorCode::UnknownReplWriteConcern,
                format!("No write concern mode named '{mode}' found in replica set configuration"),
            ));
        };
        Ok(self.tags_are_satisfied(mode, has))
    }

    /// Whether the members that `has` names have so many values of each tag.
    pub fn tags_are_satisfied(&self, tags: &[(String, usize)], has: &dyn Fn(i32) -> bool) -> bool {
        let members: Vec<&MemberConfig> = self.data_members().filter(|member| has(member.id)).collect();
        tags.iter().all(|(tag, count)| {
            let values: HashSet<&str> = members
                .iter()
                .filter_map(|member| member.tags.get_str(tag).ok())
                .collect();
            values.len() >= *count
        })
    }

    /// Whether `w: {tag: count}` can be met when all members are up.
    ///
    /// # Errors
    /// `UnsatisfiableWriteConcern` (100): it cannot.
    pub fn check_tags(&self, tags: &[(String, usize)]) -> Result<()> {
        match self.tags_are_satisfied(tags, &|_| true) {
            true => Ok(()),
            false => Err(CommandError::new(
                ErrorCode::UnsatisfiableWriteConcern,
                "Not enough nodes match the tags of the write concern",
            )),
        }
    }

    /// Whether `w: mode` can be met when all members are up.
    ///
    /// # Errors
    /// `UnknownReplWriteConcern` (79): there is no such mode; `UnsatisfiableWriteConcern` (100): it cannot be met.
    pub fn check_mode(&self, mode: &str) -> Result<()> {
        if self.mode_is_satisfied(mode, &|_| true)? {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::UnsatisfiableWriteConcern,
            format!("Not enough nodes match write concern mode \"{mode}\""),
        ))
    }

    /// Whether `w: count` can be met when all members are up.
    ///
    /// # Errors
    /// `UnsatisfiableWriteConcern` (100): there are not so many members with data.
    pub fn check_member_count(&self, count: usize) -> Result<()> {
        if count <= self.data_members().count() {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::UnsatisfiableWriteConcern,
            "Not enough data-bearing nodes",
        ))
    }
}

fn wrong_member_count(count: usize) -> CommandError {
    invalid(format!(
        "Replica set configuration contains {count} members, but must have at least 1 and no more than {MEMBERS_MAX}"
    ))
}
