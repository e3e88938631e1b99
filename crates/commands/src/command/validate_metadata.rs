//! `validateDBMetadata`: what collections, indexes and views are made of that a version of the Stable API has not.

use crate::arguments::{Arguments, missing_field};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::stable_api;
use auth::{Action, Target};
use bson::{Bson, Document, doc};
use std::sync::Arc;
use storage::{Collection, Index, Namespace, View};
use wire::ErrorCode;

/// `validateDBMetadata`.
pub const VALIDATE_DB_METADATA: Command = Command::new(
    "validateDBMetadata",
    "Checks whether definitions keep to a version of the Stable API.",
    OperationKind::Command,
    Access::Fields(may_validate),
    validate,
)
.secondary_ok();

/// Bytes of errors in a reply: with more, the rest is left out and `hasMoreErrors` says so.
const ERROR_BYTES_MAX: usize = 15 << 20;

/// What is asked for.
#[derive(Default)]
struct Asked<'d> {
    /// This database; all without it.
    database: Option<&'d str>,
    /// Collections of this name.
    collection: Option<&'d str>,
    /// `apiParameters`: the version and whether what it has not is an error.
    api: Option<(&'d str, bool)>,
}

fn read<'d>(call: &Invocation<'d>) -> Result<Asked<'d>> {
    let arguments = call.arguments();
    let mut asked = Asked::default();
    call.for_each_field(|name, value| {
        match name {
            "db" => asked.database = Some(arguments.string(name, value)?),
            "collection" => asked.collection = Some(arguments.string(name, value)?),
            "apiParameters" => {
                let parameters = Arguments::of("validateDBMetadata.apiParameters");
                let (mut version, mut strict) = (None, false);
                parameters.each(arguments.document(name, value)?, |name, value| {
                    match name {
                        "version" => version = Some(parameters.string(name, value)?),
                        "strict" => strict = parameters.boolean(name, value)?,
                        // Version 1 has deprecated nothing yet.
                        "deprecationErrors" => drop(parameters.boolean(name, value)?),
                        _ => return Ok(false),
                    }
                    Ok(true)
                })?;
                let version = version.ok_or_else(|| missing_field(parameters.command, "version"))?;
                asked.api = Some((version, strict));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(asked)
}

/// What there is of what was asked for, in the order of names.
fn found(call: &Invocation<'_>, asked: &Asked<'_>) -> (Vec<Arc<Collection>>, Vec<Arc<View>>) {
    let catalog = call.server.storage.catalog();
    let databases = match asked.database {
        Some(database) => vec![database.to_owned()],
        None => catalog.databases(),
    };
    let is_asked = |namespace: &Namespace| asked.collection.is_none_or(|name| name == namespace.collection());
    let (mut collections, mut views) = (Vec::new(), Vec::new());
    for database in databases {
        let of = catalog.collections(&database).into_iter();
        collections.extend(of.filter(|collection| is_asked(collection.namespace())));
        let of = catalog.views(&database).into_iter();
        views.extend(of.filter(|view| is_asked(view.namespace())));
    }
    (collections, views)
}

/// `validate` on every collection that is looked at, and on a database that is asked about.
fn may_validate(call: &Invocation<'_>) -> Result<bool> {
    let asked = read(call)?;
    let may = |target: Target<'_>| call.may(target, Action::Validate);
    match asked {
        Asked {
            database: Some(database),
            collection: Some(collection),
            ..
        } => Ok(may(Target::Collection(database, collection))),
        Asked {
            database: Some(database),
            ..
        } => Ok(may(Target::Database(database))),
        _ => {
            let (collections, views) = found(call, &asked);
            let names = collections.iter().map(|collection| collection.namespace().clone());
            let names: Vec<Namespace> = names.chain(views.iter().map(|view| view.namespace().clone())).collect();
            let all = names
                .iter()
                .all(|name| may(Target::Collection(name.db(), name.collection())));
            Ok(all && (!names.is_empty() || may(Target::AnyDatabase)))
        }
    }
}

fn validate(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let asked = read(call)?;
    let (version, is_strict) = asked
        .api
        .ok_or_else(|| missing_field(call.command.name, "apiParameters"))?;
    if version != "1" {
        return Err(CommandError::new(
            ErrorCode::APIVersionError,
            "API version must be \"1\"",
        ));
    }
    let (collections, views) = if is_strict {
        found(call, &asked)
    } else {
        Default::default()
    };
    let mut errors = Errors::default();
    for collection in &collections {
        call.operation.check_now().map_err(storage::StorageError::from)?;
        for index in collection.indexes().iter().filter(|index| !is_in_version_1(index)) {
            let message = format!("The index with name {} is not allowed in API version 1.", index.name());
            errors.add(collection.namespace(), ErrorCode::APIStrictError, message);
        }
    }
    for view in &views {
        if let Err(error) = stable_api::check_stages(view.pipeline()) {
            errors.add(view.namespace(), error.code, error.message);
        }
    }
    reply.value("apiVersionErrors", &Bson::Array(errors.documents));
    reply.boolean("hasMoreErrors", errors.has_more);
    Ok(())
}

/// Kinds and options of indexes that version 1 has not.
fn is_in_version_1(index: &Index) -> bool {
    !index.sparse() && !stable_api::has_special_field(index.key())
}

#[derive(Default)]
struct Errors {
    documents: Vec<Bson>,
    bytes: usize,
    has_more: bool,
}

impl Errors {
    fn add(&mut self, namespace: &Namespace, code: ErrorCode, message: String) {
        // The fields' names and what stands around them.
        self.bytes += namespace.as_str().len() + message.len() + 128;
        if self.bytes > ERROR_BYTES_MAX {
            self.has_more = true;
            return;
        }
        let error: Document = doc! {
            "ns": namespace.as_str(), "code": code.0, "codeName": code.name(), "errmsg": message,
        };
        self.documents.push(error.into());
    }
}
