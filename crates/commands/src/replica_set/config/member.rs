//! One member of a configuration: its fields, and which of them exclude each other.

use super::{at_least, at_most, invalid};
use crate::arguments::{Arguments, missing_field};
use crate::error::{CommandError, Result};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};

/// Highest number of a member.
const ID_MAX: i64 = 255;
const PRIORITY_MAX: f64 = 1000.0;
/// 366 days.
const DELAY_S_MAX: i64 = 366 * 24 * 60 * 60;
const PORT_DEFAULT: u16 = 27017;

/// A member of a set.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberConfig {
    /// Its number in the set.
    pub id: i32,
    /// `host:port`, always with the port.
    pub host: String,
    /// It votes and keeps no data.
    pub arbiter_only: bool,
    /// It has the indexes that the others have.
    pub build_indexes: bool,
    /// Drivers are not told of it.
    pub hidden: bool,
    /// The member with the highest one becomes the primary when it can; with 0 it never does.
    pub priority: f64,
    /// Strings by name.
    pub tags: Document,
    /// It stays so many seconds behind.
    pub secondary_delay_s: u32,
    /// Whether it has a vote.
    pub votes: bool,
}

impl MemberConfig {
    /// Reads one and fills the defaults in.
    pub(super) fn parse(member: &RawDocument) -> Result<Self> {
        let arguments = Arguments::of("MemberConfig");
        let (mut id, mut host, mut priority, mut tags) = (None, None, None, Document::new());
        let (mut arbiter_only, mut build_indexes, mut hidden) = (false, true, false);
        let (mut delay_s, mut votes) = (0, 1);
        arguments.each(member, |field, value| {
            match field {
                "_id" => id = Some(arguments.integer(field, value)?),
                "host" => host = Some(with_port(arguments.string(field, value)?)?),
                "arbiterOnly" => arbiter_only = arguments.boolean(field, value)?,
                "buildIndexes" => build_indexes = arguments.boolean(field, value)?,
                "hidden" => hidden = arguments.boolean(field, value)?,
                "priority" => {
                    priority = Some(match value {
                        RawBsonRef::Double(priority) => priority,
                        other => arguments.integer(field, other)? as f64,
                    });
                }
                "tags" => tags = Document::try_from(arguments.document(field, value)?)?,
                "secondaryDelaySecs" => delay_s = arguments.integer(field, value)?,
                "votes" => votes = arguments.integer(field, value)?,
                "horizons" => return Err(CommandError::not_implemented("members.horizons")),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let id = id.ok_or_else(|| missing_field("MemberConfig", "_id"))?;
        let id = at_most("_id", at_least("_id", id, 0)?, ID_MAX)?;
        let host = host.ok_or_else(|| missing_field("MemberConfig", "host"))?;
        let delay_s = at_most(
            "secondaryDelaySecs",
            at_least("secondaryDelaySecs", delay_s, 0)?,
            DELAY_S_MAX,
        )?;
        if !matches!(votes, 0 | 1) {
            return Err(invalid(format!("votes field value is {votes} but must be 0 or 1")));
        }
        let priority = match (priority, arbiter_only) {
            // Configurations made before arbiters had a priority of their own say 1.
            (None, true) | (Some(1.0), true) => 0.0,
            (None, false) => 1.0,
            (Some(given), _) => given,
        };
        if !(0.0..=PRIORITY_MAX).contains(&priority) {
            return Err(invalid(format!(
                "priority field value of {priority} is out of range: it must be from 0 to {PRIORITY_MAX}"
            )));
        }
        if let Some((tag, _)) = tags.iter().find(|(_, value)| !matches!(value, Bson::String(_))) {
            return Err(invalid(format!("tags.{tag} field has non-string value")));
        }
        Ok(Self {
            id: id as i32,
            host,
            arbiter_only,
            build_indexes,
            hidden,
            priority,
            tags,
            secondary_delay_s: delay_s as u32,
            votes: votes == 1,
        })
    }

    /// As it is kept and shown.
    pub(super) fn to_document(&self) -> Document {
        doc! {
            "_id": self.id,
            "host": &self.host,
            "arbiterOnly": self.arbiter_only,
            "buildIndexes": self.build_indexes,
            "hidden": self.hidden,
            "priority": self.priority,
            "tags": self.tags.clone(),
            "secondaryDelaySecs": i64::from(self.secondary_delay_s),
            "votes": i32::from(self.votes),
        }
    }

    /// Whether it can become the primary.
    pub fn is_electable(&self) -> bool {
        !self.arbiter_only && self.priority > 0.0
    }

    /// Whether its host names the machine it is used on.
    pub(super) fn is_local(&self) -> bool {
        let host = self.host.rsplit_once(':').map_or(&*self.host, |(host, _)| host);
        matches!(host, "localhost" | "[::1]") || host.starts_with("127.")
    }

    /// Whether its fields go together.
    pub(super) fn check(&self) -> Result<()> {
        let priority = self.priority != 0.0;
        let problem = if self.arbiter_only && !self.tags.is_empty() {
            "Cannot set tags on arbiters."
        } else if self.arbiter_only && !self.votes {
            "Arbiter must vote (cannot have 0 votes)"
        } else if self.arbiter_only && priority {
            "Arbiter must have priority 0"
        } else if !self.votes && priority {
            "priority must be 0 when non-voting (votes:0)"
        } else if self.secondary_delay_s > 0 && priority {
            "priority must be 0 when secondaryDelaySecs is used"
        } else if self.hidden && priority {
            "priority must be 0 when hidden=true"
        } else if !self.build_indexes && priority {
            "priority must be 0 when buildIndexes=false"
        } else {
            return Ok(());
        };
        Err(invalid(problem))
    }
}

/// `host:port` of a host that may have no port. IPv6 addresses get brackets.
fn with_port(given: &str) -> Result<String> {
    let wrong = |what: &str| Err(invalid(format!("{what} parsing HostAndPort from \"{given}\"")));
    let (host, port) = match given.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, "")) => (host, None),
            Some((host, port)) if port.starts_with(':') => (host, Some(&port[1..])),
            _ => return wrong("Missing ']' or stray characters after it"),
        },
        None => match given.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (given, None),
        },
    };
    let port = match port {
        None => PORT_DEFAULT,
        Some("") => return wrong("Empty port component"),
        Some(port) if !port.bytes().all(|byte| byte.is_ascii_digit()) => return wrong("Port is not a number"),
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return wrong(&format!("Port number {port} out of range")),
        },
    };
    if host.is_empty() {
        return wrong("Empty host component");
    }
    Ok(match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_get_the_default_port() {
        for (given, expected) in [
            ("db", Some("db:27017")),
            ("db.example.org:1", Some("db.example.org:1")),
            ("db:00001", Some("db:1")),
            ("10.0.0.1", Some("10.0.0.1:27017")),
            ("::1", Some("[::1]:27017")),
            ("[::1]", Some("[::1]:27017")),
            ("[::1]:2", Some("[::1]:2")),
            ("", None),
            (":1", None),
            ("[]:1", None),
            ("[::1", None),
            ("[::1]x", None),
            ("db:", None),
            ("db:0", None),
            ("db:+1", None),
            ("db:65536", None),
            ("db:x", None),
        ] {
            assert_eq!(with_port(given).ok().as_deref(), expected, "{given}");
        }
    }
}
