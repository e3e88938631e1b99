//! `_mergeAuthzCollections`: takes over the users and roles of a dump. A restoration has put them into collections of
//! `admin` to which whoever restores may write.

use super::role_documents::{UnknownActions, privileges};
use super::user_store::{self, Store};
use crate::arguments::missing_field;
use crate::audited::AuditEvent;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, RoleName, Target};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, doc};
use std::collections::BTreeMap;
use storage::Namespace;

/// `_mergeAuthzCollections`.
pub const MERGE_AUTHZ_COLLECTIONS: Command = Command::new(
    "_mergeAuthzCollections",
    "Takes over users and roles that a restoration has put aside.",
    OperationKind::Command,
    Access::Fields(may_merge),
    merge,
)
.takes_write_concern()
.admin_only();

/// The collections that documents are taken from. Roles first: nobody is to hold one that is not there.
const SOURCES: [(&str, Store); 2] = [
    ("tempRolesCollection", Store::Roles),
    ("tempUsersCollection", Store::Users),
];

/// Whoever takes users and roles over makes, changes and removes any of them.
fn may_merge(call: &Invocation<'_>) -> Result<bool> {
    let actions = [
        Action::CreateUser,
        Action::DropUser,
        Action::CreateRole,
        Action::DropRole,
        Action::GrantRole,
        Action::RevokeRole,
    ];
    if !actions.into_iter().all(|action| call.may(Target::AnyDatabase, action)) {
        return Ok(false);
    }
    for element in call.body {
        let (name, value) = element?;
        if let (true, RawBsonRef::String(from)) = (SOURCES.iter().any(|(field, _)| *field == name.as_str()), value)
            && let Ok(from) = Namespace::parse(from)
            && !call.may(Target::Collection(from.db(), from.collection()), Action::Find)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn merge(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut sources, mut database, mut drops) = ([""; 2], None, false);
    call.for_each_field(|name, value| {
        match name {
            "tempRolesCollection" => sources[0] = arguments.string(name, value)?,
            "tempUsersCollection" => sources[1] = arguments.string(name, value)?,
            "db" => database = Some(arguments.string(name, value)?),
            "drop" => drops = arguments.boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if sources == [""; 2] {
        return Err(CommandError::bad_value(
            "Must provide at least one of \"tempUsersCollection\" and \"tempRolescollection\"",
        ));
    }
    let database = database.ok_or_else(|| missing_field(call.command.name, "db"))?;
    let wanted = match database {
        "" => doc! {},
        database => doc! { "db": database },
    };
    let changing = &call.server.user_changes;
    let _changing = changing.lock();
    // All of them are looked at before one is changed.
    let mut found: Vec<(Store, BTreeMap<String, Document>)> = Vec::new();
    for (source, (_, store)) in sources
        .into_iter()
        .zip(SOURCES)
        .filter(|(source, _)| !source.is_empty())
    {
        let mut documents = BTreeMap::new();
        for mut document in user_store::find_in(call, &Namespace::parse(source)?, &wanted)? {
            let id = checked(store, &document)?;
            document.insert("_id", &id);
            documents.insert(id, document);
        }
        // A server without users lets in whoever is on its machine.
        if drops && store == Store::Users && documents.is_empty() && are_all_users(call, &wanted)? {
            let has_roles = found.iter().any(|(_, documents)| !documents.is_empty());
            if has_roles {
                let message = "There are no users to take the place of all that are there, which stay";
                call.server
                    .logger
                    .log(id::USER_STAYS, "conn", message, doc! { "db": database });
                continue;
            }
            return Err(CommandError::bad_value(format!(
                "{source} has no users to take the place of those that are there, and there are no others"
            )));
        }
        found.push((store, documents));
    }
    for (store, documents) in found {
        take_over(call, store, &wanted, documents, drops)?;
    }
    Ok(())
}

/// Whether there are users, and all of them match.
fn are_all_users(call: &mut Invocation<'_>, wanted: &Document) -> Result<bool> {
    let matching = user_store::find(call, Store::Users, wanted)?.len();
    Ok(matching > 0 && matching == user_store::find(call, Store::Users, &doc! {})?.len())
}

/// The `_id` of a user's or role's document.
fn checked(store: Store, document: &Document) -> Result<String> {
    let noun = noun(store);
    let text = |field: &str| {
        let value = document.get_str(field).ok().filter(|text| !text.is_empty());
        value.ok_or_else(|| {
            CommandError::bad_value(format!(
                "the document of a {noun} has no '{field}': {}",
                document.get("_id").unwrap_or(&Bson::Null)
            ))
        })
    };
    let (name, database) = (text(noun)?, text("db")?);
    let needed: &[&str] = if store == Store::Users {
        &["roles"]
    } else {
        &["roles", "privileges"]
    };
    for field in needed {
        if document.get_array(field).is_err() {
            return Err(CommandError::bad_value(format!(
                "{noun} {name}@{database} has no array '{field}'"
            )));
        }
    }
    if store == Store::Roles {
        let name = RoleName::new(database, name);
        if name.is_builtin() {
            return Err(CommandError::bad_value(format!(
                "{name} is the name of a built-in role"
            )));
        }
        let raw = RawDocumentBuf::try_from(document)?;
        privileges(
            "_mergeAuthzCollections",
            raw.get_array("privileges")?,
            UnknownActions::Skipped,
        )?;
    }
    if store == Store::Users && document.get_document("credentials").is_err() {
        return Err(CommandError::bad_value(format!(
            "user {name}@{database} has no credentials"
        )));
    }
    Ok(user_store::id(database, name))
}

fn noun(store: Store) -> &'static str {
    match store {
        Store::Users => "user",
        _ => "role",
    }
}

/// Adds what there is not; with `drops` replaces what there is, and removes the rest last, so that nobody is locked out
/// meanwhile. What cannot be added stays out, as tools expect that restore over what is there.
fn take_over(
    call: &mut Invocation<'_>,
    store: Store,
    wanted: &Document,
    documents: BTreeMap<String, Document>,
    drops: bool,
) -> Result<()> {
    let mut left_over = BTreeMap::new();
    if drops {
        for document in user_store::find(call, store, wanted)? {
            left_over.insert(document.get_str("_id").unwrap_or_default().to_owned(), document);
        }
    }
    for (id, document) in documents {
        let is_there = left_over.remove(&id).is_some();
        let (verb, done) = match is_there {
            true => ("update", user_store::replace(call, store, &document)),
            false => ("create", user_store::insert(call, store, &document)),
        };
        match done {
            Ok(()) => audit(call, verb, store, &document),
            Err(error) if matches!(error.code.0, 51002 | 51003) => {
                let attributes = doc! { noun(store): &id, "error": error.to_string() };
                let message = "A user or role of the same name is there already and stays";
                call.server.logger.log(id::USER_STAYS, "conn", message, attributes);
            }
            Err(error) => return Err(error),
        }
    }
    for (id, document) in left_over {
        user_store::remove(call, store, &doc! { "_id": id })?;
        audit(call, "drop", store, &document);
    }
    Ok(())
}

/// As if a command of its own had done it.
fn audit(call: &Invocation<'_>, verb: &str, store: Store, document: &Document) {
    let action = match (verb, store) {
        ("create", Store::Users) => "createUser",
        ("update", Store::Users) => "updateUser",
        (_, Store::Users) => "dropUser",
        ("create", _) => "createRole",
        ("update", _) => "updateRole",
        _ => "dropRole",
    };
    let fields: &[&str] = if verb == "drop" {
        &["db"]
    } else {
        &["db", "customData", "roles", "privileges", "authenticationRestrictions"]
    };
    let mut param = doc! {};
    for field in std::iter::once(&noun(store)).chain(fields) {
        if let Some(value) = document.get(field) {
            param.insert(*field, value);
        }
    }
    call.server.audit(|| AuditEvent::of(call.client, action, param, 0));
}
