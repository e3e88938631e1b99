//! The configuration of a replica set: what `replSetInitiate` and `replSetReconfig` take, checked.

use crate::arguments::{Arguments, missing_field};
use crate::error::{CommandError, Result};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use wire::ErrorCode;

/// A checked configuration of one member.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// Rises with each change.
    pub version: i32,
    /// `host:port` of the member.
    pub host: String,
    /// Its number in the set.
    pub member: i32,
    /// Its tags.
    pub tags: Document,
    /// All of it, as it is kept and shown. Without the term, which is the server's.
    pub document: Document,
}

/// Highest version and highest number of a member.
const VERSION_MAX: i64 = i32::MAX as i64;
const MEMBER_MAX: i64 = 255;

fn invalid(reason: impl std::fmt::Display) -> CommandError {
    CommandError::new(ErrorCode::InvalidReplicaSetConfig, reason.to_string())
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

    /// Checks a configuration for the set `name`, and fills the defaults in. `is_me` tells whether a host is this
    /// server.
    ///
    /// # Errors
    /// `InvalidReplicaSetConfig` (93) names what is wrong; `NodeNotFound` (74) when this server is no member;
    /// `NotImplemented` (238) for sets of several members.
    pub fn read(config: &RawDocument, name: &str, is_me: &dyn Fn(&str) -> bool) -> Result<Self> {
        let arguments = Arguments::of("ReplSetConfig");
        let (mut id, mut version, mut members) = (None, 1, None);
        let (mut settings, mut journaled, mut protocol) = (Document::new(), true, 1);
        arguments.each(config, |field, value| {
            match field {
                "_id" => id = Some(arguments.string(field, value)?),
                "version" => version = arguments.integer(field, value)?,
                "term" => drop(arguments.integer(field, value)?),
                "members" => members = Some(arguments.array(field, value)?),
                "protocolVersion" => protocol = arguments.integer(field, value)?,
                "writeConcernMajorityJournalDefault" => journaled = arguments.flag(field, value)?,
                "settings" => settings = Document::try_from(arguments.document(field, value)?)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let id = id.ok_or_else(|| missing_field("ReplSetConfig", "_id"))?;
        if id != name {
            return Err(invalid(format!(
                "Attempting to initiate a replica set with name {id}, but command line reports {name}; rejecting"
            )));
        }
        if !(1..=VERSION_MAX).contains(&version) {
            return Err(invalid(format!("version field value of {version} is out of range")));
        }
        if protocol != 1 {
            return Err(invalid(format!("protocolVersion of {protocol}, only 1 is supported")));
        }
        let members = members.ok_or_else(|| missing_field("ReplSetConfig", "members"))?;
        let members = members.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        let [member] = members.as_slice() else {
            return Err(match members.len() {
                0 => invalid("Replica set configuration must contain at least one member"),
                _ => CommandError::not_implemented("A replica set of several members"),
            });
        };
        let RawBsonRef::Document(member) = *member else {
            return Err(invalid("members[0] is not a document"));
        };
        let (host, number, tags, member) = read_member(member)?;
        if !is_me(&host) {
            return Err(CommandError::new(
                ErrorCode::NodeNotFound,
                format!(
                    "No host described in new configuration with {{version: {version}, term: 0}} for replica set {name} maps to this node"
                ),
            ));
        }
        let document = doc! {
            "_id": name,
            "version": version as i32,
            "members": [member],
            "protocolVersion": 1_i64,
            "writeConcernMajorityJournalDefault": journaled,
            "settings": read_settings(settings)?,
        };
        Ok(Self {
            version: version as i32,
            host,
            member: number,
            tags,
            document,
        })
    }
}

/// Host, number, tags, and the whole with its defaults.
fn read_member(member: &RawDocument) -> Result<(String, i32, Document, Document)> {
    let arguments = Arguments::of("MemberConfig");
    let (mut number, mut host, mut priority, mut tags) = (None, None, 1.0, Document::new());
    let refused = |what: &str| invalid(format!("the only member of a set cannot have {what}"));
    arguments.each(member, |field, value| {
        match field {
            "_id" => number = Some(arguments.integer(field, value)?),
            "host" => host = Some(arguments.string(field, value)?.to_owned()),
            "priority" => {
                priority = match value {
                    RawBsonRef::Double(priority) => priority,
                    other => arguments.integer(field, other)? as f64,
                };
            }
            "tags" => tags = Document::try_from(arguments.document(field, value)?)?,
            "votes" if arguments.integer(field, value)? != 1 => return Err(refused("other than one vote")),
            "votes" => {}
            "arbiterOnly" | "hidden" if arguments.boolean(field, value)? => return Err(refused(field)),
            "arbiterOnly" | "hidden" => {}
            "buildIndexes" if !arguments.boolean(field, value)? => return Err(refused("buildIndexes: false")),
            "buildIndexes" => {}
            "secondaryDelaySecs" | "slaveDelay" if arguments.integer(field, value)? != 0 => {
                return Err(refused("secondaryDelaySecs"));
            }
            "secondaryDelaySecs" | "slaveDelay" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let number = number.ok_or_else(|| missing_field("MemberConfig", "_id"))?;
    let host = host.ok_or_else(|| missing_field("MemberConfig", "host"))?;
    if !(0..=MEMBER_MAX).contains(&number) {
        return Err(invalid(format!("_id field value of {number} is out of range.")));
    }
    if !(priority > 0.0 && priority <= 1000.0) {
        return Err(invalid(match priority {
            0.0 => "Found no electable member: the only member of a set cannot have priority 0".to_owned(),
            _ => format!("priority field value of {priority} is out of range"),
        }));
    }
    if let Some((tag, _)) = tags.iter().find(|(_, value)| !matches!(value, Bson::String(_))) {
        return Err(invalid(format!("tags.{tag} field has non-string value")));
    }
    let document = doc! {
        "_id": number as i32,
        "host": &host,
        "arbiterOnly": false,
        "buildIndexes": true,
        "hidden": false,
        "priority": priority,
        "tags": tags.clone(),
        "secondaryDelaySecs": 0_i64,
        "votes": 1,
    };
    Ok((host, number as i32, tags, document))
}

/// The settings with their defaults. Those that concern other members are kept for when there are some.
fn read_settings(given: Document) -> Result<Document> {
    let mut settings = doc! {
        "chainingAllowed": true,
        "heartbeatIntervalMillis": 2000,
        "heartbeatTimeoutSecs": 10,
        "electionTimeoutMillis": 10000,
        "catchUpTimeoutMillis": -1,
        "catchUpTakeoverDelayMillis": 30000,
        "getLastErrorModes": {},
        "getLastErrorDefaults": { "w": 1, "wtimeout": 0 },
    };
    for (name, value) in given {
        if !settings.contains_key(&name) && name != "replicaSetId" {
            return Err(invalid(format!("settings.{name} is an unknown field")));
        }
        settings.insert(name, value);
    }
    if !settings.get_document("getLastErrorModes").is_ok_and(Document::is_empty) {
        return Err(CommandError::not_implemented("settings.getLastErrorModes"));
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::RawDocumentBuf;

    fn read(config: Document) -> Result<SetConfig> {
        let raw = RawDocumentBuf::try_from(&config).expect("valid BSON");
        SetConfig::read(&raw, "rs", &|host| host == "me:1")
    }

    fn code(config: Document) -> i32 {
        read(config).expect_err("refused").code.0
    }

    #[test]
    fn defaults_are_filled_in() {
        let id = bson::oid::ObjectId::from_bytes([7; 12]);
        let config = read(SetConfig::of_one("rs", "me:1", &id)).expect("accepted");
        assert_eq!((config.version, config.member, &*config.host), (1, 0, "me:1"));
        let again = read(config.document.clone()).expect("accepted again");
        assert_eq!(again, config);
        assert_eq!(
            config
                .document
                .get_document("settings")
                .and_then(|settings| settings.get_object_id("replicaSetId"))
                .ok(),
            Some(id)
        );
    }

    #[test]
    fn what_is_no_set_of_one_is_refused_with_a_reason() {
        let with = |member: Document| doc! { "_id": "rs", "members": [member] };
        let member = || doc! { "_id": 0, "host": "me:1" };
        let but = |name: &str, value: Bson| {
            let mut member = member();
            member.insert(name, value);
            with(member)
        };
        assert_eq!(code(doc! { "_id": "other", "members": [member()] }), 93);
        assert_eq!(code(doc! { "_id": "rs" }), 40414);
        assert_eq!(code(doc! { "_id": "rs", "members": [] }), 93);
        assert_eq!(
            code(doc! { "_id": "rs", "members": [member(), { "_id": 1, "host": "b" }] }),
            238
        );
        assert_eq!(code(doc! { "_id": "rs", "version": 0, "members": [member()] }), 93);
        assert_eq!(code(doc! { "_id": "rs", "x": 0, "members": [member()] }), 40415);
        assert_eq!(code(with(doc! { "_id": 0, "host": "you:1" })), 74);
        for (name, value) in [
            ("priority", Bson::Int32(0)),
            ("priority", Bson::Double(f64::NAN)),
            ("votes", Bson::Int32(0)),
            ("hidden", Bson::Boolean(true)),
            ("arbiterOnly", Bson::Boolean(true)),
            ("secondaryDelaySecs", Bson::Int32(5)),
            ("_id", Bson::Int32(256)),
            ("tags", Bson::Document(doc! { "dc": 1 })),
        ] {
            assert_eq!(code(but(name, value.clone())), 93, "{name}: {value}");
        }
        assert_eq!(code(but("nonesuch", Bson::Int32(0))), 40415);
    }
}
