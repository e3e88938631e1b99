//! Version 1 of the Stable API, for clients that want nothing else (`apiStrict: true`): the commands, fields, stages
//! and kinds of indexes that it has not. Which commands it has, and which of their fields not, is in their definitions.
//!
//! Expressions and validators are not looked into, and the planner takes indexes that version 1 has not.

use crate::error::{CommandError, Result};
use bson::Document;
use bson::raw::{RawArray, RawBsonRef, RawDocument};
use query::stages::each_stage;
use wire::ErrorCode;

/// The fields of a command about the version of the API that it is of, as far as they are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApiParameters {
    /// `apiVersion` is there; there is only "1".
    pub has_version: bool,
    /// `apiStrict`.
    pub strict: Option<bool>,
    /// `apiDeprecationErrors`.
    pub deprecation_errors: Option<bool>,
}

impl ApiParameters {
    /// Those of a command that was read before.
    pub fn of(command: &RawDocument) -> Result<Self> {
        let flag = |name| Ok::<_, CommandError>(command.get(name)?.and_then(|value| value.as_bool()));
        Ok(Self {
            has_version: command.get("apiVersion")?.is_some(),
            strict: flag("apiStrict")?,
            deprecation_errors: flag("apiDeprecationErrors")?,
        })
    }

    /// As messages show them.
    fn shown(self) -> Document {
        let mut shown = Document::new();
        if self.has_version {
            shown.insert("apiVersion", "1");
        }
        for (name, flag) in [
            ("apiStrict", self.strict),
            ("apiDeprecationErrors", self.deprecation_errors),
        ] {
            if let Some(flag) = flag {
                shown.insert(name, flag);
            }
        }
        shown
    }

    /// Fails (347) when they are not those of the command that made the cursor.
    pub fn check_cursor(self, made_by: Self) -> Result<()> {
        if self == made_by {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode::APIMismatchError,
            format!(
                "API parameter mismatch: getMore used params {}, the cursor-creating command used {}",
                self.shown(),
                made_by.shown()
            ),
        ))
    }

    /// Only what the version has is wanted.
    pub fn is_strict(self) -> bool {
        self.strict == Some(true)
    }

    /// Fails (4886600) when they are of no version.
    pub fn check(self) -> Result<()> {
        if self.has_version || (self.strict.is_none() && self.deprecation_errors.is_none()) {
            return Ok(());
        }
        Err(CommandError::new(
            ErrorCode(4_886_600),
            "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion",
        ))
    }
}

/// Stages that version 1 has not.
const STAGES: [&str; 7] = [
    "$_internalInhibitOptimization",
    "$currentOp",
    "$indexStats",
    "$listLocalSessions",
    "$listSessions",
    "$planCacheStats",
    "$querySettings",
];

/// Options of an index that version 1 has not.
const INDEX_OPTIONS: [&str; 5] = ["background", "bucketSize", "prepareUnique", "sparse", "storageEngine"];

fn refused(message: String) -> CommandError {
    CommandError::new(ErrorCode::APIStrictError, message)
}

/// The error for a command that version 1 has not.
pub(crate) fn unstable_command(name: &str) -> CommandError {
    refused(format!(
        "Provided apiStrict:true, but the command {name} is not in API Version 1"
    ))
}

/// The error for a field that version 1 has not, whatever its value.
pub(crate) fn unstable_field(within: &str, field: &str) -> CommandError {
    refused(format!(
        "BSON field '{within}.{field}' is not allowed with apiStrict:true."
    ))
}

/// Fails for stages that version 1 has not, wherever in the pipeline they are.
pub(crate) fn check_stages(pipeline: &RawArray) -> Result<()> {
    each_stage(pipeline, &mut |name, argument| match name {
        name if STAGES.contains(&name) => Err(refused(format!(
            "stage {name} is not allowed with 'apiStrict: true' in API Version 1"
        ))),
        "$collStats" => check_coll_stats(argument),
        "$changeStream" => match argument.as_document().map(|asked| asked.get("showExpandedEvents")) {
            Some(Ok(Some(_))) => Err(unstable_field(name, "showExpandedEvents")),
            _ => Ok(()),
        },
        _ => Ok(()),
    })
}

/// `$collStats` is there for the count of documents alone, which drivers ask for.
fn check_coll_stats(argument: RawBsonRef<'_>) -> Result<()> {
    let RawBsonRef::Document(asked) = argument else {
        return Ok(());
    };
    for field in asked {
        let (name, _) = field?;
        if name.as_str() != "count" {
            return Err(unstable_field("$collStats", name.as_str()));
        }
    }
    Ok(())
}

/// Fails for the specification of an index that version 1 has not.
pub(crate) fn check_index(specification: &RawDocument) -> Result<()> {
    for field in specification {
        let (name, value) = field?;
        if INDEX_OPTIONS.contains(&name.as_str()) {
            return Err(unstable_field("createIndexes.indexes", name.as_str()));
        }
        if let ("key", RawBsonRef::Document(key)) = (name.as_str(), value)
            && has_special_field(key)
        {
            return Err(refused(
                "text indexes are not allowed with apiStrict:true in API Version 1".to_owned(),
            ));
        }
    }
    Ok(())
}

/// Fails for the change of an index that version 1 has not.
pub(crate) fn check_index_change(change: &RawDocument) -> Result<()> {
    match change.get("prepareUnique")? {
        None => Ok(()),
        Some(_) => Err(unstable_field("collMod.index", "prepareUnique")),
    }
}

/// Whether a key has a field of a kind that version 1 has not.
pub(crate) fn has_special_field(key: &RawDocument) -> bool {
    let is_special = |value: RawBsonRef<'_>| matches!(value, RawBsonRef::String("text" | "geoHaystack"));
    key.into_iter().flatten().any(|(_, value)| is_special(value))
}
