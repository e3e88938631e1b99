//! What commands about users and roles need: nobody gives what they may not give.
//!
//! Whoever gives or takes a role must be allowed to on the database of that role; a privilege counts as a role of the
//! database that it is about, and of `admin` when it is about more than one.

use super::role_documents::{UnknownActions, privileges, role_name};
use crate::arguments::Arguments;
use crate::error::Result;
use crate::invocation::Invocation;
use auth::{Action, Resource, RoleName, Target};
use bson::raw::{RawArray, RawBsonRef, RawDocument};

/// What `createUser` needs.
pub fn create(call: &Invocation<'_>) -> Result<bool> {
    Ok(call.may(Target::Database(call.database), Action::CreateUser) && fields(call, Action::GrantRole)?)
}

/// What `updateUser` needs. Everybody may change their own password and data who holds the actions for that.
pub fn update(call: &Invocation<'_>) -> Result<bool> {
    let here = Target::Database(call.database);
    let own = is_own_name(call, call.database, call.target()?);
    for element in call.body {
        let (name, _) = element?;
        let allowed = match name.as_str() {
            "pwd" | "mechanisms" => {
                call.may(here, Action::ChangePassword) || own && call.may(here, Action::ChangeOwnPassword)
            }
            "customData" => {
                call.may(here, Action::ChangeCustomData) || own && call.may(here, Action::ChangeOwnCustomData)
            }
            // They take the place of the roles held so far, wherever those are from.
            "roles" => call.may(Target::AnyDatabase, Action::RevokeRole),
            _ => true,
        };
        if !allowed {
            return Ok(false);
        }
    }
    // Who may change nothing at all does not learn whether there is such a user.
    let changes = [
        Action::ChangePassword,
        Action::ChangeCustomData,
        Action::GrantRole,
        Action::ChangeOwnPassword,
        Action::ChangeOwnCustomData,
        Action::SetAuthenticationRestriction,
    ];
    Ok(changes.into_iter().any(|action| call.may(here, action)) && fields(call, Action::GrantRole)?)
}

/// What giving roles to a user or role needs.
pub fn grant(call: &Invocation<'_>) -> Result<bool> {
    changes_roles(call, Action::GrantRole)
}

/// What taking roles from a user or role needs.
pub fn revoke(call: &Invocation<'_>) -> Result<bool> {
    changes_roles(call, Action::RevokeRole)
}

/// A call that names no role is one on this database.
fn changes_roles(call: &Invocation<'_>, action: Action) -> Result<bool> {
    let mut named = false;
    for element in call.body {
        named |= match element? {
            (name, RawBsonRef::Array(array)) => {
                matches!(name.as_str(), "roles" | "privileges") && array.into_iter().next().is_some()
            }
            _ => false,
        };
    }
    Ok((named || call.may(Target::Database(call.database), action)) && fields(call, action)?)
}

/// What `createRole` needs.
pub fn create_role(call: &Invocation<'_>) -> Result<bool> {
    Ok(call.may(Target::Database(call.database), Action::CreateRole) && fields(call, Action::GrantRole)?)
}

/// What `updateRole` needs: what is given takes the place of what there was.
pub fn update_role(call: &Invocation<'_>) -> Result<bool> {
    Ok(call.may(Target::Database(call.database), Action::RevokeRole) && fields(call, Action::GrantRole)?)
}

/// What `usersInfo` needs. Everybody may see themselves, but for the credentials.
pub fn info(call: &Invocation<'_>) -> Result<bool> {
    let shows_credentials = call
        .body
        .into_iter()
        .flatten()
        .any(|(name, value)| name.as_str() == "showCredentials" && value != RawBsonRef::Boolean(false));
    infos(call, Action::ViewUser, &|call, database, value| {
        !shows_credentials && is_own_name(call, database, value)
    })
}

/// What `rolesInfo` needs. Everybody may see the roles they hold.
pub fn roles_info(call: &Invocation<'_>) -> Result<bool> {
    infos(call, Action::ViewRole, &|call, database, value| {
        let name = match value {
            RawBsonRef::String(role) => Some(RoleName::new(database, role)),
            RawBsonRef::Document(document) => name_in(document, "role").map(|(role, db)| RoleName::new(db, role)),
            _ => None,
        };
        name.is_some_and(|name| call.rights.holds(&name))
    })
}

type IsOwn<'f> = &'f dyn Fn(&Invocation<'_>, &str, RawBsonRef<'_>) -> bool;

fn infos(call: &Invocation<'_>, action: Action, is_own: IsOwn<'_>) -> Result<bool> {
    let one = |value: RawBsonRef<'_>| {
        let database = match value {
            RawBsonRef::Document(document) => match name_in(document, "user").or_else(|| name_in(document, "role")) {
                Some((_, database)) => database,
                None => return call.may(Target::AnyDatabase, action) || call.may(Target::Cluster, action),
            },
            _ => call.database,
        };
        call.may(Target::Database(database), action) || is_own(call, database, value)
    };
    Ok(match call.target()? {
        RawBsonRef::Array(array) => {
            for value in array {
                if !one(value?) {
                    return Ok(false);
                }
            }
            array.into_iter().next().is_some() || call.may(Target::Database(call.database), action)
        }
        value => one(value),
    })
}

/// `{ user, db }` or `{ role, db }`, when each is there once.
fn name_in<'d>(document: &'d RawDocument, noun: &str) -> Option<(&'d str, &'d str)> {
    let (mut name, mut database) = (None, None);
    for element in document {
        match element.ok()? {
            (field, RawBsonRef::String(text)) if field.as_str() == noun && name.is_none() => name = Some(text),
            (field, RawBsonRef::String(text)) if field.as_str() == "db" && database.is_none() => database = Some(text),
            _ => return None,
        }
    }
    Some((name?, database?))
}

fn is_own_name(call: &Invocation<'_>, database: &str, value: RawBsonRef<'_>) -> bool {
    let Some(user) = call.rights.user() else {
        return false;
    };
    match value {
        RawBsonRef::String(name) => name == user.user && database == user.database,
        RawBsonRef::Document(document) => {
            name_in(document, "user").is_some_and(|(name, db)| name == user.user && db == user.database)
        }
        _ => false,
    }
}

/// What the fields `roles`, `privileges` and `authenticationRestrictions` need.
fn fields(call: &Invocation<'_>, action: Action) -> Result<bool> {
    let arguments = call.arguments();
    for element in call.body {
        let allowed = match element? {
            (name, RawBsonRef::Array(array)) if name.as_str() == "roles" => roles(call, arguments, array, action)?,
            (name, RawBsonRef::Array(array)) if name.as_str() == "privileges" => {
                let given = privileges(arguments.command, array, UnknownActions::Refused)?;
                given.iter().all(|privilege| {
                    let database = match &privilege.resource {
                        Resource::Collection { database, .. } | Resource::Buckets { database, .. }
                            if !database.is_empty() =>
                        {
                            database.as_str()
                        }
                        _ => "admin",
                    };
                    call.may(Target::Database(database), action)
                })
            }
            (name, _) if name.as_str() == "authenticationRestrictions" => {
                call.may(Target::Database(call.database), Action::SetAuthenticationRestriction)
            }
            _ => true,
        };
        if !allowed {
            return Ok(false);
        }
    }
    Ok(true)
}

fn roles(call: &Invocation<'_>, arguments: Arguments<'_>, array: &RawArray, action: Action) -> Result<bool> {
    for value in array {
        let (_, database) = role_name(call.database, arguments, value?)?;
        if !call.may(Target::Database(database), action) {
            return Ok(false);
        }
    }
    Ok(true)
}
