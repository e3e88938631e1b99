//! An operation as logs have them (`docs/compatibility.md` has the fields), made ready to be applied.

use super::update::ChangeForm;
use crate::arguments::{Arguments, missing_field, type_name};
use crate::error::{CommandError, Result};
use bson::raw::{CString, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use bson::spec::BinarySubtype;
use storage::Namespace;
use wire::ErrorCode;

/// Operations within operations within operations.
const NESTED_MAX: usize = 10;

/// The identity of a collection, `ui`.
pub type Uuid = [u8; 16];

/// What to do.
pub enum LogOperation<'a> {
    /// A note, which is not applied.
    Note,
    /// What has nothing to do in this place of a log.
    Nothing,
    /// `i`: the document takes the place of one with its `_id`.
    Insert { target: Target, document: &'a RawDocument },
    /// `u`.
    Update {
        target: Target,
        filter: &'a RawDocument,
        change: RawDocumentBuf,
        form: ChangeForm,
        upsert: bool,
    },
    /// `d`.
    Delete { target: Target, filter: &'a RawDocument },
    /// `c`: a command of this name.
    Command {
        database: &'a str,
        uuid: Option<Uuid>,
        name: &'static str,
        body: RawDocumentBuf,
        /// What it says when it has nothing left to do.
        accepted: &'static [ErrorCode],
    },
}

/// The collection: by its uuid, where there is one.
pub struct Target {
    pub namespace: Namespace,
    pub uuid: Option<Uuid>,
}

/// Reads `operation`, and adds what it is: several ones when it is `applyOps`.
pub fn read<'a>(operation: &'a RawDocument, to: &mut Vec<LogOperation<'a>>) -> Result<()> {
    read_at(operation, to, 1)
}

fn read_at<'a>(operation: &'a RawDocument, to: &mut Vec<LogOperation<'a>>, depth: usize) -> Result<()> {
    let illegal = |reason: &str| CommandError::new(ErrorCode::IllegalOperation, reason);
    let fields = Fields::read(operation)?;
    let kind = fields
        .op
        .ok_or_else(|| CommandError::new(ErrorCode::NoSuchKey, "an operation has no 'op'"))?;
    let ns = match fields.ns {
        Some(RawBsonRef::String(ns)) => ns,
        _ => return Err(illegal("an operation needs a string 'ns'")),
    };
    match kind {
        "" => return Err(illegal("the 'op' of an operation is empty")),
        "n" => {
            to.push(LogOperation::Note);
            return Ok(());
        }
        _ if ns.is_empty() => return Err(illegal("the 'ns' of an operation is empty")),
        _ => {}
    }
    let o = fields.o.ok_or_else(|| missing_field("applyOps", "o"))?;
    let target = || -> Result<Target> {
        Ok(Target {
            namespace: Namespace::parse(ns)?,
            uuid: fields.uuid,
        })
    };
    to.push(match kind {
        "i" => LogOperation::Insert {
            target: target()?,
            document: identified(o, "i")?,
        },
        "u" => {
            let filter = fields.o2.ok_or_else(|| missing_field("applyOps", "o2"))?;
            let (change, form) = change(o)?;
            LogOperation::Update {
                target: target()?,
                filter: identified(filter, "u")?,
                change,
                form,
                upsert: fields.upsert.unwrap_or(fields.is_entry),
            }
        }
        "d" => LogOperation::Delete {
            target: target()?,
            filter: identified(o, "d")?,
        },
        "c" => return command(o, ns, fields.uuid, to, depth),
        other => return Err(CommandError::bad_value(format!("invalid operation 'op': '{other}'"))),
    });
    Ok(())
}

/// A log names each document: without its `_id` an operation could be about any one.
fn identified<'a>(document: &'a RawDocument, kind: &str) -> Result<&'a RawDocument> {
    match document.get("_id")? {
        Some(_) => Ok(document),
        None => Err(CommandError::new(
            ErrorCode::NoSuchKey,
            format!("the document of an operation '{kind}' has no _id"),
        )),
    }
}

/// The fields of an operation that say what to do; those that say when and by whom are left aside.
#[derive(Default)]
struct Fields<'a> {
    op: Option<&'a str>,
    ns: Option<RawBsonRef<'a>>,
    uuid: Option<Uuid>,
    o: Option<&'a RawDocument>,
    o2: Option<&'a RawDocument>,
    upsert: Option<bool>,
    /// It has the time of an entry of a log. That is replayed, perhaps on a copy that was made later: what a later
    /// entry deletes may be gone already, and is made again until then.
    is_entry: bool,
}

impl<'a> Fields<'a> {
    fn read(operation: &'a RawDocument) -> Result<Self> {
        let arguments = Arguments::of("applyOps");
        let mut fields = Self::default();
        for field in operation {
            let (name, value) = field?;
            match name.as_str() {
                "op" => fields.op = Some(arguments.string("op", value)?),
                "ns" => fields.ns = Some(value),
                "ui" => fields.uuid = Some(uuid(value)?),
                "o" => fields.o = Some(arguments.document("o", value)?),
                "o2" => fields.o2 = Some(arguments.document("o2", value)?),
                "b" => fields.upsert = Some(arguments.boolean("b", value)?),
                "ts" => fields.is_entry = true,
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn uuid(value: RawBsonRef<'_>) -> Result<Uuid> {
    match value {
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => Uuid::try_from(binary.bytes).ok(),
        _ => None,
    }
    .ok_or_else(|| {
        CommandError::new(
            ErrorCode::InvalidUUID,
            format!("'ui' must be a UUID, it is of type {}", type_name(value)),
        )
    })
}

/// The change of an update operation. `$v` says which form it has: 1 that of update commands, 2 a difference; without
/// one operators are told from a document by the first name.
fn change(o: &RawDocument) -> Result<(RawDocumentBuf, ChangeForm)> {
    let version = match o.get("$v")? {
        None => {
            let has_operators = match o.into_iter().next() {
                Some(first) => first?.0.as_str().starts_with('$'),
                None => false,
            };
            let form = if has_operators {
                ChangeForm::Statement
            } else {
                ChangeForm::Document
            };
            return Ok((o.to_owned(), form));
        }
        Some(RawBsonRef::Int32(version)) => i64::from(version),
        Some(RawBsonRef::Int64(version)) => version,
        Some(_) => 0,
    };
    match version {
        1 => {
            let mut operators = RawDocumentBuf::new();
            for field in o {
                let (name, value) = field?;
                if name != "$v" {
                    operators.append(name, value);
                }
            }
            Ok((operators, ChangeForm::Statement))
        }
        2 => match o.get("diff")? {
            Some(RawBsonRef::Document(difference)) => Ok((difference.to_owned(), ChangeForm::Difference)),
            _ => Err(CommandError::new(
                ErrorCode::FailedToParse,
                "an update operation of version 2 needs the object 'diff'",
            )),
        },
        _ => Err(CommandError::new(
            ErrorCode(4772604),
            "Unrecognized value for '$v' (Version) field of an update operation",
        )),
    }
}

fn command<'a>(
    o: &'a RawDocument,
    ns: &'a str,
    uuid: Option<Uuid>,
    to: &mut Vec<LogOperation<'a>>,
    depth: usize,
) -> Result<()> {
    let (database, _) = ns.split_once('.').unwrap_or((ns, ""));
    let (name, value) = match o.into_iter().next() {
        Some(first) => first?,
        None => return Err(CommandError::bad_value("the 'o' of a command operation is empty")),
    };
    let collection = || Arguments::of("applyOps").string("o", value);
    let rest = || o.into_iter().skip(1);
    let mut push = |name: &'static str, database, uuid, body, accepted| {
        to.push(LogOperation::Command {
            database,
            uuid,
            name,
            body,
            accepted,
        });
    };
    match name.as_str() {
        "create" => {
            // With a uuid it has to be the same collection.
            let accepted: &[_] = if uuid.is_none() {
                &[ErrorCode::NamespaceExists]
            } else {
                &[]
            };
            push("create", database, uuid, o.to_owned(), accepted);
        }
        "drop" => push("drop", database, uuid, rawdoc! { "drop": collection()? }, GONE),
        "dropDatabase" => push("dropDatabase", database, None, rawdoc! { "dropDatabase": 1 }, GONE),
        "collMod" => push("collMod", database, uuid, o.to_owned(), INDEX_GONE),
        "createIndexes" => {
            let specification = match o.get("spec")? {
                Some(RawBsonRef::Document(specification)) => specification.to_owned(),
                _ => {
                    let mut specification = RawDocumentBuf::new();
                    for field in rest() {
                        let (name, value) = field?;
                        specification.append(name, value);
                    }
                    specification
                }
            };
            let mut indexes = RawArrayBuf::new();
            indexes.push(whole(specification)?);
            let body = rawdoc! { "createIndexes": collection()?, "indexes": indexes };
            push("createIndexes", database, uuid, body, GONE);
        }
        "commitIndexBuild" => {
            let indexes = Arguments::of("applyOps").array("indexes", o.get("indexes")?.unwrap_or(RawBsonRef::Null))?;
            let mut whole_indexes = RawArrayBuf::new();
            for index in indexes {
                whole_indexes.push(whole(
                    Arguments::of("applyOps").document("indexes", index?)?.to_owned(),
                )?);
            }
            let body = rawdoc! { "createIndexes": collection()?, "indexes": whole_indexes };
            push("createIndexes", database, uuid, body, GONE);
        }
        // An index is made when its building ends.
        "startIndexBuild" | "abortIndexBuild" => to.push(LogOperation::Nothing),
        "dropIndexes" | "deleteIndexes" | "deleteIndex" | "dropIndex" => {
            let mut body = rawdoc! { "dropIndexes": collection()? };
            if let Some(index) = o.get("index")? {
                body.append(cstr!("index"), index);
            }
            push("dropIndexes", database, uuid, body, INDEX_GONE);
        }
        "renameCollection" => {
            let mut body = rawdoc! { "renameCollection": collection()? };
            for field in rest() {
                match field? {
                    // Logs name the collection that goes.
                    (name, RawBsonRef::Binary(_)) if name == "dropTarget" => body.append(name, true),
                    (name, value) => body.append(name, value),
                }
            }
            push("renameCollection", "admin", uuid, body, GONE);
        }
        "applyOps" => {
            if depth == NESTED_MAX {
                return Err(CommandError::bad_value(format!(
                    "applyOps within applyOps is possible {NESTED_MAX} levels deep"
                )));
            }
            if let Some(RawBsonRef::Boolean(true)) = o.get("prepare")? {
                return Err(CommandError::not_implemented("applyOps of a prepared transaction"));
            }
            for operation in Arguments::of("applyOps").array("applyOps", value)? {
                let operation = Arguments::of("applyOps").document("applyOps", operation?)?;
                read_at(operation, to, depth + 1)?;
            }
        }
        other => {
            return Err(CommandError::not_implemented(format!(
                "applyOps of the command '{other}'"
            )));
        }
    }
    Ok(())
}

/// The specification of an index as logs tell it, who say all that there is of it: without a collation it is in binary
/// order, whatever the collection's is.
fn whole(mut specification: RawDocumentBuf) -> Result<RawDocumentBuf> {
    if specification.get("collation")?.is_none() {
        specification.append(cstr!("collation"), rawdoc! { "locale": "simple" });
    }
    Ok(specification)
}

const GONE: &[ErrorCode] = &[ErrorCode::NamespaceNotFound];
const INDEX_GONE: &[ErrorCode] = &[ErrorCode::NamespaceNotFound, ErrorCode::IndexNotFound];

/// The command with another collection in its first field.
pub fn renamed(body: &RawDocument, collection: &str) -> Result<RawDocumentBuf> {
    let mut renamed = RawDocumentBuf::new();
    for (place, field) in body.into_iter().enumerate() {
        let (name, value) = field?;
        match place {
            0 => renamed.append(CString::from(name), collection),
            _ => renamed.append(name, value),
        }
    }
    Ok(renamed)
}
