//! Clustered collections: the option `clusteredIndex` of `create`, and what is asked of the clustered index elsewhere.

use crate::arguments::{Arguments, missing_field, number_as_i64, wrong_type};
use crate::error::{CommandError, Result};
use bson::raw::{RawBsonRef, cstr};
use bson::{Bson, Document, RawBson, RawDocument, doc};
use storage::{Collection, CollectionChange};
use wire::ErrorCode;

const COMMAND: &str = "create.clusteredIndex";

/// The option `clusteredIndex`, as it is kept; `None` when it asks for nothing.
pub fn parse(value: RawBsonRef<'_>) -> Result<Option<Document>> {
    let asked = match value {
        RawBsonRef::Null | RawBsonRef::Boolean(false) => return Ok(None),
        RawBsonRef::Document(asked) => asked,
        RawBsonRef::Boolean(true) => {
            return failure(
                5_979_703,
                "The 'clusteredIndex' legacy format {clusteredIndex: <bool>} is only supported for specific internal \
                 collections and vice versa",
            );
        }
        other => return Err(wrong_type("create", "clusteredIndex", other, "types '[bool, object]'")),
    };
    let arguments = Arguments::of(COMMAND);
    let (mut key, mut unique, mut name, mut version) = (None, None, "_id_", 2);
    arguments.each(asked, |field, value| {
        match field {
            "key" => key = Some(arguments.document(field, value)?),
            "unique" => unique = Some(arguments.boolean(field, value)?),
            "name" => name = arguments.string(field, value)?,
            "v" => version = arguments.integer(field, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let key = key.ok_or_else(|| missing_field(COMMAND, "key"))?;
    let unique = unique.ok_or_else(|| missing_field(COMMAND, "unique"))?;
    if !unique {
        return failure(
            5_979_700,
            "The clusteredIndex option requires unique: true to be specified",
        );
    }
    if !is_cluster_key(key) {
        return Err(CommandError::new(
            ErrorCode::InvalidIndexSpecificationOption,
            "The clusteredIndex option supports the key {_id: 1} alone",
        ));
    }
    if version != 2 {
        return failure(5_979_704, "The only supported version of a clustered index is 2");
    }
    if name.is_empty() || name == "*" {
        return Err(CommandError::new(
            ErrorCode::CannotCreateIndex,
            format!("The name '{name}' is not valid for an index"),
        ));
    }
    Ok(Some(doc! { "v": 2, "key": { "_id": 1 }, "name": name, "unique": true }))
}

/// Refuses what a clustered collection cannot be beside that.
pub fn check_beside(is_view: bool, (capped, size, max): (bool, Option<i64>, Option<i64>), expires: bool) -> Result<()> {
    match () {
        () if is_view => failure(6_026_500, "The 'clusteredIndex' option is not supported with views"),
        () if size.is_some() => failure(
            6_049_200,
            "'size' field for capped collections is not allowed on clustered collections",
        ),
        () if max.is_some() => failure(
            6_049_204,
            "'max' field for capped collections is not allowed on clustered collections",
        ),
        () if capped && !expires => failure(
            6_049_201,
            "A capped clustered collection requires the 'expireAfterSeconds' field",
        ),
        () if capped => failure(6_127_800, "Clustered collections cannot be capped"),
        () => Ok(()),
    }
}

/// `{_id: 1}`
pub fn is_cluster_key(key: &RawDocument) -> bool {
    let mut fields = key.into_iter().flatten();
    let first = fields.next();
    let is_id = first.is_some_and(|(name, value)| {
        name.as_str() == "_id" && !matches!(value, RawBsonRef::Boolean(_)) && number_as_i64(value) == Some(1)
    });
    is_id && fields.next().is_none()
}

/// Whether a specification for `createIndexes` asks for the clustered index that is there: then nothing is to be done.
/// The option `clustered` is nothing that makes one.
pub fn is_there(specification: &RawDocument, collection: Option<&Collection>) -> Result<bool> {
    match specification.get("clustered")? {
        None => Ok(false),
        Some(RawBsonRef::Boolean(true)) => {
            let Some(collection) = collection else {
                return failure(
                    6_100_900,
                    "Cannot implicitly create a new collection with createIndex 'clustered' option",
                );
            };
            let is_asked = specification.get_document("key").is_ok_and(is_cluster_key);
            match collection.clustered_index().is_some() && is_asked {
                true => Ok(true),
                false => failure(
                    6_243_700,
                    "Cannot create index with option 'clustered' that is not on the cluster key of a clustered \
                     collection",
                ),
            }
        }
        Some(RawBsonRef::Boolean(false)) => failure(6_492_800, "The option 'clustered' must be true where it is given"),
        Some(other) => Err(wrong_type("createIndexes.indexes", "clustered", other, "type 'bool'")),
    }
}

/// The clustered index goes with its collection.
pub fn refuse_drop() -> CommandError {
    CommandError::new(ErrorCode(5_979_800), "Cannot drop a clustered index")
}

/// `expireAfterSeconds` of `collMod`: a number, or `"off"`.
pub fn change_expiry(
    collection: Option<&Collection>,
    value: RawBsonRef<'_>,
    change: &mut CollectionChange,
) -> Result<()> {
    if collection.is_none_or(|collection| collection.clustered_index().is_none()) {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "'expireAfterSeconds' is only supported on time-series collections or clustered ones",
        ));
    }
    let set = match value {
        RawBsonRef::String("off") => None,
        value => {
            let set: Bson = super::timeseries::definition::expiry(Arguments::of("collMod"), value)?;
            Some(RawBson::try_from(set)?)
        }
    };
    expire(set, change);
    Ok(())
}

/// Documents are to go after so many seconds, or to stay.
pub fn expire(after_seconds: Option<RawBson>, change: &mut CollectionChange) {
    let name = cstr!("expireAfterSeconds");
    match after_seconds {
        None => {
            change.unset_options.push(name.as_str().to_owned());
            change.requested.append(name, "off");
        }
        Some(seconds) => {
            change.set_options.append(name, seconds.clone());
            change.requested.append(name, seconds);
        }
    }
}

fn failure<T>(code: i32, message: &str) -> Result<T> {
    Err(CommandError::new(ErrorCode(code), message))
}
