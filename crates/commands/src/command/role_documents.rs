//! Roles, privileges and restrictions as documents: what role commands take, and what `admin.system.roles` and
//! `admin.system.users` keep.

use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::error::{CommandError, Result};
use auth::{ActionSet, AddressRange, Privilege, Resource, Restriction, RoleName};
use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use std::collections::BTreeSet;
use wire::ErrorCode;

/// `{ user, db }` or `{ role, db }`.
pub fn pair<'v>(arguments: Arguments<'_>, document: &'v RawDocument, noun: &'static str) -> Result<(&'v str, &'v str)> {
    let (mut name, mut database) = (None, None);
    arguments.each(document, |field, value| {
        match field {
            "db" => database = Some(arguments.string(field, value)?),
            _ if field == noun => name = Some(arguments.string(field, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let name = name.ok_or_else(|| missing_field(arguments.command, noun))?;
    Ok((name, database.ok_or_else(|| missing_field(arguments.command, "db"))?))
}

/// Names of roles: texts, which mean roles of `database`, and `{ role, db }`; each once.
pub fn role_names(database: &str, arguments: Arguments<'_>, array: &RawArray) -> Result<Vec<RoleName>> {
    let (mut names, mut seen) = (Vec::new(), BTreeSet::new());
    for value in array {
        let (role, database) = role_name(database, arguments, value?)?;
        if seen.insert((database, role)) {
            names.push(RoleName::new(database, role));
        }
    }
    Ok(names)
}

/// The name of the role that a text or a document gives, and that of its database.
pub fn role_name<'v>(database: &'v str, arguments: Arguments<'_>, value: RawBsonRef<'v>) -> Result<(&'v str, &'v str)> {
    match value {
        RawBsonRef::String(role) => Ok((role, database)),
        RawBsonRef::Document(document) => pair(arguments, document, "role"),
        other => Err(wrong_type(
            arguments.command,
            "roles",
            other,
            "types '[string, object]'",
        )),
    }
}

/// Adds roles to those held.
pub fn give_roles(held: &mut Vec<RoleName>, given: Vec<RoleName>) {
    let known: BTreeSet<_> = held.iter().cloned().collect();
    held.extend(given.into_iter().filter(|role| !known.contains(role)));
}

/// Takes roles from those held.
pub fn take_roles(held: &mut Vec<RoleName>, taken: Vec<RoleName>) {
    let taken: BTreeSet<_> = taken.into_iter().collect();
    held.retain(|role| !taken.contains(role));
}

/// The roles that a kept document holds.
pub fn kept_roles(document: &Document) -> Vec<RoleName> {
    let name = |role: &Bson| {
        let role = role.as_document()?;
        Some(RoleName::new(role.get_str("db").ok()?, role.get_str("role").ok()?))
    };
    let held = document.get_array("roles").map(Vec::as_slice).unwrap_or_default();
    held.iter().filter_map(name).collect()
}

/// Names of roles as documents hold them.
pub fn role_array(names: &[RoleName]) -> Bson {
    Bson::Array(
        names
            .iter()
            .map(|name| doc! { "role": &name.role, "db": &name.database }.into())
            .collect(),
    )
}

/// What becomes of actions that are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownActions {
    /// They are an error.
    Refused,
    /// They allow nothing: the document was written by another version.
    Skipped,
}

/// `[{ resource, actions }]`.
pub fn privileges(command: &str, array: &RawArray, unknown: UnknownActions) -> Result<Vec<Privilege>> {
    let mut privileges = Vec::new();
    for value in array {
        match value? {
            RawBsonRef::Document(document) => privileges.push(privilege(command, document, unknown)?),
            other => return Err(wrong_type(command, "privileges", other, "type 'object'")),
        }
    }
    Ok(privileges)
}

fn privilege(command: &str, document: &RawDocument, unknown: UnknownActions) -> Result<Privilege> {
    let arguments = Arguments::of(command);
    let (mut on, mut actions, mut named) = (None, ActionSet::EMPTY, false);
    arguments.each(document, |name, value| {
        match name {
            "resource" => on = Some(resource(arguments, arguments.document(name, value)?)?),
            "actions" => {
                for action in arguments.array(name, value)? {
                    let text = arguments.string("privileges.actions", action?)?;
                    match text.parse() {
                        Ok(action) => actions = actions | ActionSet::of(&[action]),
                        Err(()) if unknown == UnknownActions::Skipped => {}
                        Err(()) => {
                            return Err(CommandError::new(
                                ErrorCode::FailedToParse,
                                format!("Unrecognized action privilege string: {text}"),
                            ));
                        }
                    }
                    named = true;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if !named {
        return Err(missing_field(command, "privileges.actions"));
    }
    Ok(Privilege {
        resource: on.ok_or_else(|| missing_field(command, "privileges.resource"))?,
        actions,
    })
}

fn resource(arguments: Arguments<'_>, document: &RawDocument) -> Result<Resource> {
    let (mut database, mut collection, mut buckets) = (None, None, None);
    let mut whole = Vec::new();
    arguments.each(document, |name, value| {
        match name {
            "db" => database = Some(arguments.string(name, value)?),
            "collection" => collection = Some(arguments.string(name, value)?),
            "cluster" | "anyResource" => {
                if !arguments.boolean(name, value)? {
                    return Err(CommandError::bad_value(format!("{name} must be true when specified")));
                }
                whole.push(if name == "cluster" {
                    Resource::Cluster
                } else {
                    Resource::Any
                });
            }
            "system_buckets" => buckets = Some(arguments.string(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    match (whole.as_slice(), database, collection, buckets) {
        ([whole], None, None, None) => Ok(whole.clone()),
        ([], Some(database), Some(collection), None) => Ok(Resource::collection(database, collection)),
        ([], database, None, Some(buckets)) => Ok(Resource::buckets(database.unwrap_or(""), buckets)),
        _ => Err(CommandError::bad_value(
            "a resource is { db, collection }, { db, system_buckets }, { cluster: true } or { anyResource: true }",
        )),
    }
}

/// A resource as documents hold it.
pub fn resource_document(resource: &Resource) -> Document {
    match resource {
        Resource::Any => doc! { "anyResource": true },
        Resource::Cluster => doc! { "cluster": true },
        Resource::Collection { database, collection } => doc! { "db": database, "collection": collection },
        Resource::Buckets { database, collection } => doc! { "db": database, "system_buckets": collection },
    }
}

/// Privileges as documents hold them.
pub fn privilege_array(privileges: &[Privilege]) -> Bson {
    let document = |privilege: &Privilege| {
        let actions: Vec<Bson> = privilege.actions.iter().map(|action| action.name().into()).collect();
        Bson::from(doc! { "resource": resource_document(&privilege.resource), "actions": actions })
    };
    Bson::Array(privileges.iter().map(document).collect())
}

/// The privileges that a kept document holds.
pub fn kept_privileges(document: &Document) -> Vec<Privilege> {
    let kept = document.get_array("privileges").map(Vec::as_slice).unwrap_or_default();
    let one = |value: &Bson| {
        let raw = RawDocumentBuf::try_from(value.as_document()?).ok()?;
        privilege("", &raw, UnknownActions::Skipped).ok()
    };
    kept.iter().filter_map(one).collect()
}

/// `[{ clientSource: [range], serverAddress: [range] }]`.
pub fn restrictions(arguments: Arguments<'_>, array: &RawArray) -> Result<Vec<Restriction>> {
    let mut restrictions = Vec::new();
    for value in array {
        let document = arguments.document("authenticationRestrictions", value?)?;
        let mut restriction = Restriction::default();
        arguments.each(document, |name, value| {
            let ranges = match name {
                "clientSource" => &mut restriction.client_source,
                "serverAddress" => &mut restriction.server_address,
                _ => return Ok(false),
            };
            let mut read = Vec::new();
            match value {
                RawBsonRef::String(text) => read.push(range(text)?),
                value => {
                    for text in arguments.array(name, value)? {
                        read.push(range(arguments.string(name, text?)?)?);
                    }
                }
            }
            *ranges = Some(read);
            Ok(true)
        })?;
        restrictions.push(restriction);
    }
    Ok(restrictions)
}

fn range(text: &str) -> Result<AddressRange> {
    text.parse()
        .map_err(|()| CommandError::bad_value(format!("'{text}' is no address and no range of addresses")))
}

/// The restrictions that a kept document holds. What cannot be read lets nobody in.
pub fn kept_restrictions(document: &Document) -> Vec<Restriction> {
    let Some(kept) = document.get("authenticationRestrictions") else {
        return Vec::new();
    };
    let nobody = || {
        vec![Restriction {
            client_source: Some(Vec::new()),
            server_address: None,
        }]
    };
    let read = || {
        let raw = RawDocumentBuf::try_from(&doc! { "": kept.clone() }).ok()?;
        let arguments = Arguments::of("authenticationRestrictions");
        restrictions(arguments, raw.get_array("").ok()?).ok()
    };
    read().unwrap_or_else(nobody)
}
