//! Read and write concerns: what a client asks to be true of what it reads, and of what it wrote, before it is
//! answered.

use crate::arguments::{Arguments, number_as_i64, wrong_type};
use crate::error::{CommandError, Result};
use crate::reply::narrowed;
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use std::sync::Arc;
use std::time::Duration;
use storage::ClusterTime;
use wire::ErrorCode;

/// What concerns mean here depends on what this server is.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// The log is on.
    pub journal: bool,
    /// A member of a replica set.
    pub is_member: bool,
    /// Of commands that name none.
    pub defaults: DefaultConcerns,
}

/// What `setDefaultRWConcern` has set for commands that name no concern.
#[derive(Clone, Debug, Default)]
pub struct DefaultConcerns {
    /// `defaultReadConcern.level`.
    pub read: ReadLevel,
    /// `defaultWriteConcern`.
    pub write: Option<WriteConcern>,
    /// What was written down of them could not be understood, and is not in here.
    pub is_unusable: bool,
}

/// Whether the documents of a collection are about the defaults.
pub fn is_about_defaults(namespace: &storage::Namespace) -> bool {
    namespace.as_str() == "config.settings"
}

/// `writeConcern`: how safe a write has to be before it is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConcern {
    /// Answer only when the log is flushed beyond the write.
    pub journaled: bool,
    /// `w: 0`.
    pub unacknowledged: bool,
    /// Which members have to have it, in a replica set.
    pub members: Acknowledging,
    /// `wtimeout`: how long that is waited for.
    pub timeout: Option<Duration>,
    /// Nobody asked for it: it is what writes get that name none.
    pub is_implicit: bool,
    /// What was said of `j`.
    pub said_of_journal: Option<bool>,
    /// Who decided on it.
    pub provenance: Provenance,
}

/// Who decided on a write concern.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provenance {
    /// Nobody.
    #[default]
    Implicit,
    /// Who called `setDefaultRWConcern`.
    Default,
    /// Who called the command.
    Client,
}

impl Provenance {
    fn name(self) -> &'static str {
        match self {
            Self::Implicit => "implicitDefault",
            Self::Default => "customDefault",
            Self::Client => "clientSupplied",
        }
    }
}

/// `w`: which members acknowledge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Acknowledging {
    /// The primary, whose writes stay in any case.
    #[default]
    Primary,
    /// So many members with data, the primary among them.
    Count(usize),
    /// `majority`.
    Majority,
    /// A mode of the configuration's `getLastErrorModes`.
    Mode(Arc<str>),
    /// Members that have so many values of each tag, as a mode says it.
    Tags(Arc<[(String, usize)]>),
}

impl WriteConcern {
    /// That of a command that names none: what was set for all of them, else a member's is `majority`, which in a set
    /// of one is this server's disk.
    pub fn implicit(deployment: &Deployment) -> Self {
        if let Some(given) = &deployment.defaults.write {
            return Self {
                provenance: Provenance::Default,
                ..given.clone()
            };
        }
        Self {
            journaled: deployment.is_member && deployment.journal,
            members: if deployment.is_member {
                Acknowledging::Majority
            } else {
                Acknowledging::Primary
            },
            is_implicit: true,
            ..Self::default()
        }
    }

    /// Reads one.
    pub fn read(document: &RawDocument, deployment: &Deployment) -> Result<Self> {
        let arguments = Arguments::of("writeConcern");
        let mut concern = Self {
            provenance: Provenance::Client,
            ..Self::default()
        };
        let (mut journaled, mut synced, mut has_w) = (false, false, false);
        arguments.each(document, |name, value| {
            match name {
                "w" => {
                    has_w = true;
                    concern.read_w(value, deployment)?;
                }
                "j" | "fsync" => {
                    let on = arguments.boolean(name, value)?;
                    concern.said_of_journal = Some(on);
                    *(if name == "j" { &mut journaled } else { &mut synced }) = on;
                }
                "wtimeout" => {
                    // What is no number is 0, as in MongoDB: no limit.
                    let timeout = number_as_i64(value).unwrap_or(0);
                    if timeout > i64::from(i32::MAX) {
                        return Err(CommandError::new(
                            ErrorCode::FailedToParse,
                            format!("wtimeout must be at most {}", i32::MAX),
                        ));
                    }
                    let timeout = u64::try_from(timeout).ok();
                    concern.timeout = timeout.filter(|ms| *ms > 0).map(Duration::from_millis);
                }
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
            if !deployment.journal {
                return Err(CommandError::bad_value(
                    "cannot use 'j' option when a host does not have journaling enabled",
                ));
            }
            concern.journaled = true;
        }
        if !has_w {
            let implicit = Self::implicit(deployment);
            concern.journaled |= implicit.journaled;
            (concern.members, concern.is_implicit) = (implicit.members, implicit.is_implicit);
        }
        Ok(concern)
    }

    /// As errors show it.
    pub fn shown(&self) -> Document {
        let w: Bson = match &self.members {
            _ if self.unacknowledged => 0.into(),
            Acknowledging::Primary => 1.into(),
            Acknowledging::Count(count) => narrowed(*count as i64),
            Acknowledging::Majority => "majority".into(),
            Acknowledging::Mode(mode) => Bson::from(&**mode),
            Acknowledging::Tags(tags) => {
                let tags = tags.iter().map(|(tag, count)| (tag.clone(), narrowed(*count as i64)));
                Bson::Document(tags.collect())
            }
        };
        let mut shown = doc! { "w": w };
        if let Some(journaled) = self.said_of_journal {
            shown.insert("j", journaled);
        }
        let timeout = self.timeout.unwrap_or_default();
        shown.insert("wtimeout", narrowed(timeout.as_millis() as i64));
        shown.insert("provenance", self.provenance.name());
        shown
    }

    fn read_w(&mut self, w: RawBsonRef<'_>, deployment: &Deployment) -> Result<()> {
        let w = match w {
            // A mode without a name, which no set has.
            RawBsonRef::Null | RawBsonRef::Undefined => RawBsonRef::String(""),
            w => w,
        };
        let failed_to_parse = |reason| Err(CommandError::new(ErrorCode::FailedToParse, reason));
        match w {
            RawBsonRef::String("majority") => {
                self.journaled |= deployment.journal;
                self.members = Acknowledging::Majority;
            }
            RawBsonRef::String(mode) if deployment.is_member => self.members = Acknowledging::Mode(mode.into()),
            RawBsonRef::String(mode) => {
                return Err(CommandError::bad_value(format!(
                    "cannot use non-majority 'w' mode \"{mode}\" when a host is not a member of a replica set"
                )));
            }
            RawBsonRef::Document(tags) => {
                let mut wanted = Vec::new();
                for element in tags {
                    let (tag, count) = element?;
                    match number_as_i64(count).and_then(|count| usize::try_from(count).ok()) {
                        Some(count) => wanted.push((tag.as_str().to_owned(), count)),
                        None => return failed_to_parse("tags in w have to be numbers that are not negative"),
                    }
                }
                if wanted.is_empty() {
                    return failed_to_parse("tags in w are required");
                }
                if deployment.is_member {
                    self.members = Acknowledging::Tags(wanted.into());
                }
            }
            number => match number_as_i64(number) {
                Some(0) if is_nan(number) => return failed_to_parse("w has to be a number that is not NaN"),
                Some(0) => self.unacknowledged = true,
                Some(1) => {}
                Some(count @ 2..=50) if deployment.is_member => self.members = Acknowledging::Count(count as usize),
                Some(2..=50) => {
                    return Err(CommandError::bad_value(
                        "cannot use 'w' > 1 when a host is not replicated",
                    ));
                }
                Some(_) => return failed_to_parse("w has to be a non-negative number and not greater than 50"),
                None => return failed_to_parse("w has to be a number, string, or object"),
            },
        }
        Ok(())
    }
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(number) => number.is_nan(),
        RawBsonRef::Decimal128(number) => keys::Decimal::from(number).is_nan(),
        _ => false,
    }
}

/// How much of what is read must stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadLevel {
    /// Nothing is asked.
    #[default]
    Local,
    /// Nothing is asked, of shards neither.
    Available,
    /// All of it.
    Majority,
    /// All of it, and nothing acknowledged is missing.
    Linearizable,
    /// All of it, and it is of one moment.
    Snapshot,
}

impl ReadLevel {
    /// As clients write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Available => "available",
            Self::Majority => "majority",
            Self::Linearizable => "linearizable",
            Self::Snapshot => "snapshot",
        }
    }
}

/// `readConcern`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadConcern {
    /// `level`.
    pub level: ReadLevel,
    /// `afterClusterTime`: what was written until then has to be seen.
    pub after: Option<ClusterTime>,
    /// `atClusterTime`: the moment to be read.
    pub at: Option<ClusterTime>,
    /// It was given with anything in it.
    pub is_given: bool,
    /// It was given with a level.
    pub has_level: bool,
}

impl ReadConcern {
    /// That of a command that names none.
    pub fn implicit(deployment: &Deployment) -> Self {
        Self {
            level: deployment.defaults.read,
            ..Self::default()
        }
    }

    /// Reads one.
    pub fn read(document: &RawDocument, deployment: &Deployment) -> Result<Self> {
        let arguments = Arguments::of("readConcern");
        let mut concern = Self::implicit(deployment);
        let mut timeless = None;
        arguments.each(document, |name, value| {
            concern.is_given = true;
            match name {
                "level" => {
                    concern.has_level = true;
                    concern.level = match arguments.string(name, value)? {
                        "local" => ReadLevel::Local,
                        "available" => ReadLevel::Available,
                        "majority" => ReadLevel::Majority,
                        "linearizable" => ReadLevel::Linearizable,
                        "snapshot" => ReadLevel::Snapshot,
                        other => {
                            return Err(CommandError::bad_value(format!(
                                "Enumeration value '{other}' for field 'readConcern.level' is not a valid value."
                            )));
                        }
                    }
                }
                "afterClusterTime" | "atClusterTime" => match value {
                    // Here a null is not as if there were nothing.
                    RawBsonRef::Null | RawBsonRef::Undefined => timeless = Some((name, value)),
                    RawBsonRef::Timestamp(time) if time.time == 0 && time.increment == 0 => {
                        return Err(CommandError::new(
                            ErrorCode::InvalidOptions,
                            format!("readConcern.{name} cannot be Timestamp(0, 0)"),
                        ));
                    }
                    RawBsonRef::Timestamp(time) if name == "atClusterTime" => {
                        concern.at = Some(ClusterTime::from(time))
                    }
                    RawBsonRef::Timestamp(time) => concern.after = Some(ClusterTime::from(time)),
                    other => return Err(wrong_type(arguments.command, name, other, "type 'timestamp'")),
                },
                "provenance" => check_provenance(arguments, value)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if let Some((name, value)) = timeless {
            return Err(wrong_type(arguments.command, name, value, "type 'timestamp'"));
        }
        let invalid = |reason| Err(CommandError::new(ErrorCode::InvalidOptions, reason));
        match concern.level {
            _ if concern.at.is_some() && concern.after.is_some() => {
                invalid("Specifying both atClusterTime and afterClusterTime is not allowed")
            }
            level if concern.at.is_some() && level != ReadLevel::Snapshot => {
                invalid("readConcern.atClusterTime may only be used with readConcern level 'snapshot'")
            }
            ReadLevel::Linearizable if concern.after.is_some() => {
                invalid("afterClusterTime field can be set only if level is equal to majority, local, or snapshot")
            }
            _ => Ok(concern),
        }
    }

    /// Fails where only a member of a replica set reads like that.
    pub fn check_membership(&self, deployment: &Deployment) -> Result<()> {
        match self.level {
            _ if deployment.is_member => Ok(()),
            level @ (ReadLevel::Linearizable | ReadLevel::Snapshot) => Err(CommandError::new(
                ErrorCode::NotAReplicaSet,
                format!(
                    "node needs to be a replica set member to use read concern '{}'",
                    level.name()
                ),
            )),
            _ if self.after.is_some() => Err(CommandError::new(
                ErrorCode::IllegalOperation,
                "Cannot specify afterClusterTime readConcern without replication enabled",
            )),
            _ => Ok(()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawDocumentBuf, Timestamp, rawdoc};

    const MEMBER: Deployment = Deployment {
        journal: true,
        is_member: true,
        defaults: DefaultConcerns {
            read: ReadLevel::Local,
            write: None,
            is_unusable: false,
        },
    };

    fn write(document: &RawDocumentBuf) -> WriteConcern {
        WriteConcern::read(document, &MEMBER).expect("accepted")
    }

    #[test]
    fn a_member_waits_for_the_majority_unless_told_otherwise() {
        for waits in [
            rawdoc! {},
            rawdoc! { "wtimeout": 5 },
            rawdoc! { "w": "majority", "j": false },
            rawdoc! { "w": 1, "j": true },
        ] {
            assert!(write(&waits).journaled, "{waits:?}");
        }
        assert!(!write(&rawdoc! { "w": 1 }).journaled);
        assert!(WriteConcern::implicit(&MEMBER).journaled);
        let alone = Deployment {
            is_member: false,
            ..MEMBER
        };
        assert!(!WriteConcern::implicit(&alone).journaled);
        for (given, members) in [
            (rawdoc! { "w": 1 }, Acknowledging::Primary),
            (rawdoc! { "w": 2 }, Acknowledging::Count(2)),
            (rawdoc! { "w": "dc" }, Acknowledging::Mode("dc".into())),
            (rawdoc! { "w": "majority" }, Acknowledging::Majority),
            (rawdoc! { "j": true }, Acknowledging::Majority),
        ] {
            assert_eq!(write(&given).members, members, "{given:?}");
        }
        assert_eq!(
            write(&rawdoc! { "w": 2, "wtimeout": 5 }).timeout,
            Some(Duration::from_millis(5))
        );
        assert_eq!(write(&rawdoc! { "w": 2, "wtimeout": 0 }).timeout, None);
        assert!(WriteConcern::read(&rawdoc! { "w": 51 }, &MEMBER).is_err());
    }

    #[test]
    fn a_write_concern_is_shown_as_it_holds() {
        for (given, shown) in [
            (rawdoc! { "w": 2, "wtimeout": 10 }, doc! { "w": 2, "wtimeout": 10 }),
            (rawdoc! { "w": "majority" }, doc! { "w": "majority", "wtimeout": 0 }),
            (rawdoc! { "w": 0 }, doc! { "w": 0, "wtimeout": 0 }),
            (
                rawdoc! { "j": true },
                doc! { "w": "majority", "j": true, "wtimeout": 0 },
            ),
        ] {
            let mut shown = shown;
            shown.insert("provenance", "clientSupplied");
            assert_eq!(write(&given).shown(), shown);
        }
        let default = Deployment {
            defaults: DefaultConcerns {
                write: Some(write(&rawdoc! { "w": 3 })),
                ..MEMBER.defaults
            },
            ..MEMBER
        };
        for (deployment, provenance) in [(&MEMBER, "implicitDefault"), (&default, "customDefault")] {
            let shown = WriteConcern::implicit(deployment).shown();
            assert_eq!(shown.get_str("provenance").ok(), Some(provenance));
        }
    }

    #[test]
    fn times_go_with_some_levels_only() {
        let time = Timestamp { time: 7, increment: 1 };
        let read = |document: RawDocumentBuf| ReadConcern::read(&document, &MEMBER);
        assert_eq!(read(rawdoc! {}).expect("accepted"), ReadConcern::default());
        let after = read(rawdoc! { "level": "majority", "afterClusterTime": time }).expect("accepted");
        assert_eq!(
            (after.level, after.after),
            (ReadLevel::Majority, Some(ClusterTime(7 << 32 | 1)))
        );
        assert!(read(rawdoc! { "level": "snapshot", "atClusterTime": time }).is_ok());
        for bad in [
            rawdoc! { "level": "majority", "atClusterTime": time },
            rawdoc! { "atClusterTime": time },
            rawdoc! { "level": "linearizable", "afterClusterTime": time },
            rawdoc! { "level": "snapshot", "atClusterTime": time, "afterClusterTime": time },
            rawdoc! { "afterClusterTime": Timestamp { time: 0, increment: 0 } },
        ] {
            assert_eq!(read(bad).expect_err("refused").code, ErrorCode::InvalidOptions);
        }
        let code = |document: RawDocumentBuf| read(document).expect_err("refused").code;
        assert_eq!(
            code(rawdoc! { "afterClusterTime": bson::RawBson::Null }),
            ErrorCode::TypeMismatch
        );
        assert_eq!(code(rawdoc! { "level": "nearby" }), ErrorCode::BadValue);
    }

    #[test]
    fn write_concerns_name_members_by_count_mode_or_tags() {
        let read = |document: RawDocumentBuf| WriteConcern::read(&document, &MEMBER).map(|concern| concern.members);
        let members = |document: RawDocumentBuf| read(document).expect("accepted");
        assert_eq!(members(rawdoc! { "w": 2 }), Acknowledging::Count(2));
        assert_eq!(
            members(rawdoc! { "w": bson::RawBson::Null }),
            Acknowledging::Mode("".into())
        );
        let tags = [("rack".to_owned(), 2), ("hall".to_owned(), 1)];
        assert_eq!(
            members(rawdoc! { "w": { "rack": 2, "hall": 1 } }),
            Acknowledging::Tags(tags.into())
        );
        for bad in [
            rawdoc! { "w": {} },
            rawdoc! { "w": { "rack": "x" } },
            rawdoc! { "w": { "rack": -1 } },
            rawdoc! { "w": true },
        ] {
            assert_eq!(read(bad).expect_err("refused").code, ErrorCode::FailedToParse);
        }
    }
}
