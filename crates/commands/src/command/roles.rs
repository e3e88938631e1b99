//! `createRole`, `updateRole`, `dropRole`, `dropAllRolesFromDatabase`, `grantPrivilegesToRole`,
//! `revokePrivilegesFromRole`, `grantRolesToRole`, `revokeRolesFromRole`, `rolesInfo`, `invalidateUserCache`.
//!
//! Invariants: no role inherits itself by any way, and a role of a database other than `admin` reaches no other
//! database.

use super::role_documents::{
    UnknownActions, give_roles, kept_privileges, kept_roles, pair, privilege_array, privileges, restrictions,
    role_array, role_names, take_roles,
};
use super::role_store::{self, Held};
use super::user_store::{self, Store};
use super::users::RESTRICTIONS;
use super::users_access as access;
use crate::arguments::{Arguments, missing_field, number_as_i64};
use crate::authorization::{refused, users_exist};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use auth::{Action, Privilege, Privileges, Resource, RoleName};
use bson::raw::RawBsonRef;
use bson::{Bson, Document, doc};
use wire::ErrorCode;

/// `createRole`.
pub const CREATE_ROLE: Command = Command::new(
    "createRole",
    "Makes a role.",
    OperationKind::Command,
    Access::Fields(access::create_role),
    create,
)
.takes_write_concern();
/// `updateRole`.
pub const UPDATE_ROLE: Command = Command::new(
    "updateRole",
    "Changes a role's privileges, roles or restrictions.",
    OperationKind::Command,
    Access::Fields(access::update_role),
    update,
)
.takes_write_concern();
/// `dropRole`.
pub const DROP_ROLE: Command = Command::new(
    "dropRole",
    "Removes a role, from whoever holds it, too.",
    OperationKind::Command,
    Access::database(&[Action::DropRole]),
    |call, _| {
        let name = target(call)?;
        call.for_each_field(|_, _| Ok(false))?;
        let _changing = call.server.user_changes.lock();
        existing(call, &name)?;
        take_from_all(call, |role| *role == name)?;
        user_store::remove(call, Store::Roles, &role_store::key(&name)).map(drop)
    },
)
.takes_write_concern();
/// `dropAllRolesFromDatabase`.
pub const DROP_ALL_ROLES_FROM_DATABASE: Command = Command::new(
    "dropAllRolesFromDatabase",
    "Removes all roles of a database that are not built in.",
    OperationKind::Command,
    Access::database(&[Action::DropRole]),
    |call, reply| {
        call.for_each_field(|_, _| Ok(false))?;
        let database = call.database;
        let _changing = call.server.user_changes.lock();
        take_from_all(call, |role| role.database == database && !role.is_builtin())?;
        let removed = user_store::remove(call, Store::Roles, &doc! { "db": database })?;
        reply.count("n", removed as i64);
        Ok(())
    },
)
.takes_write_concern();
/// `grantPrivilegesToRole`.
pub const GRANT_PRIVILEGES_TO_ROLE: Command = Command::new(
    "grantPrivilegesToRole",
    "Gives privileges to a role.",
    OperationKind::Command,
    Access::Fields(access::grant),
    |call, _| change_privileges(call, |held, given| held.extend(given)),
)
.takes_write_concern();
/// `revokePrivilegesFromRole`.
pub const REVOKE_PRIVILEGES_FROM_ROLE: Command = Command::new(
    "revokePrivilegesFromRole",
    "Takes privileges from a role.",
    OperationKind::Command,
    Access::Fields(access::revoke),
    |call, _| {
        change_privileges(call, |held, taken| {
            for privilege in held {
                for taken in taken.iter().filter(|taken| taken.resource == privilege.resource) {
                    privilege.actions = privilege.actions.without(taken.actions);
                }
            }
        })
    },
)
.takes_write_concern();
/// `grantRolesToRole`.
pub const GRANT_ROLES_TO_ROLE: Command = Command::new(
    "grantRolesToRole",
    "Gives roles to a role, which inherits them.",
    OperationKind::Command,
    Access::Fields(access::grant),
    |call, _| change_roles(call, give_roles),
)
.takes_write_concern();
/// `revokeRolesFromRole`.
pub const REVOKE_ROLES_FROM_ROLE: Command = Command::new(
    "revokeRolesFromRole",
    "Takes roles from a role.",
    OperationKind::Command,
    Access::Fields(access::revoke),
    |call, _| change_roles(call, take_roles),
)
.takes_write_concern();
/// `rolesInfo`.
pub const ROLES_INFO: Command = Command::new(
    "rolesInfo",
    "Describes roles.",
    OperationKind::Command,
    Access::Fields(access::roles_info),
    info,
)
.secondary_ok();
/// `invalidateUserCache`.
pub const INVALIDATE_USER_CACHE: Command = Command::new(
    "invalidateUserCache",
    "Has what users may do read anew.",
    OperationKind::Command,
    Access::cluster(&[Action::InvalidateUserCache]),
    |call, _| {
        call.for_each_field(|_, _| Ok(false))?;
        call.server.access.invalidate();
        Ok(())
    },
)
.secondary_ok();

/// The fields of `createRole` and `updateRole`.
#[derive(Default)]
struct Request {
    privileges: Option<Vec<Privilege>>,
    roles: Option<Vec<RoleName>>,
    restrictions: Option<Bson>,
}

impl Request {
    fn parse(call: &Invocation<'_>) -> Result<Self> {
        let arguments = call.arguments();
        let mut request = Self::default();
        call.for_each_field(|name, value| {
            match name {
                "privileges" => {
                    let array = arguments.array(name, value)?;
                    request.privileges = Some(privileges(arguments.command, array, UnknownActions::Refused)?);
                }
                "roles" => request.roles = Some(role_names(call.database, arguments, arguments.array(name, value)?)?),
                "authenticationRestrictions" => {
                    restrictions(arguments, arguments.array(name, value)?)?;
                    request.restrictions = Some(Bson::try_from(value)?);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(request)
    }
}

fn create(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let name = target(call)?;
    if name.role.is_empty() {
        return Err(CommandError::bad_value("Role name must be non-empty"));
    }
    storage::Namespace::new(call.database, "system.roles")?;
    if matches!(call.database, "local" | "$external") {
        return Err(CommandError::bad_value(format!(
            "Cannot create roles in the {} database",
            call.database
        )));
    }
    let request = Request::parse(call)?;
    let privileges = request
        .privileges
        .ok_or_else(|| missing_field("createRole", "privileges"))?;
    let roles = request.roles.ok_or_else(|| missing_field("createRole", "roles"))?;
    let _changing = call.server.user_changes.lock();
    if matches!(call.rights, Rights::First) && users_exist(call.server)? {
        return Err(refused(call));
    }
    check_roles(call, &name, &roles)?;
    check_privileges(&name, &privileges)?;
    let mut document = doc! {
        "_id": user_store::id(&name.database, &name.role),
        "role": &name.role,
        "db": &name.database,
        "privileges": privilege_array(&merged(&privileges)),
        "roles": role_array(&roles),
    };
    if let Some(restrictions) = request.restrictions {
        document.insert(RESTRICTIONS, restrictions);
    }
    user_store::insert(call, Store::Roles, &document)
}

fn update(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let name = target(call)?;
    let request = Request::parse(call)?;
    if request.privileges.is_none() && request.roles.is_none() && request.restrictions.is_none() {
        return Err(CommandError::bad_value(
            "Must specify at least one field to update in updateRole",
        ));
    }
    let _changing = call.server.user_changes.lock();
    let mut document = existing(call, &name)?;
    if let Some(privileges) = request.privileges {
        check_privileges(&name, &privileges)?;
        document.insert("privileges", privilege_array(&merged(&privileges)));
    }
    if let Some(roles) = request.roles {
        check_roles(call, &name, &roles)?;
        document.insert("roles", role_array(&roles));
    }
    match request.restrictions {
        Some(Bson::Array(none)) if none.is_empty() => drop(document.remove(RESTRICTIONS)),
        Some(restrictions) => drop(document.insert(RESTRICTIONS, restrictions)),
        None => {}
    }
    user_store::replace(call, Store::Roles, &document)
}

fn change_privileges(call: &mut Invocation<'_>, change: fn(&mut Vec<Privilege>, Vec<Privilege>)) -> Result<()> {
    let name = target(call)?;
    let arguments = call.arguments();
    let mut named = None;
    call.for_each_field(|name, value| {
        if name == "privileges" {
            let array = arguments.array(name, value)?;
            named = Some(privileges(arguments.command, array, UnknownActions::Refused)?);
        }
        Ok(name == "privileges")
    })?;
    let named = named.ok_or_else(|| missing_field(arguments.command, "privileges"))?;
    if named.is_empty() {
        return Err(CommandError::bad_value(format!(
            "{} needs at least one privilege",
            arguments.command
        )));
    }
    let _changing = call.server.user_changes.lock();
    let mut document = existing(call, &name)?;
    check_privileges(&name, &named)?;
    let mut held = kept_privileges(&document);
    change(&mut held, named);
    document.insert("privileges", privilege_array(&merged(&held)));
    user_store::replace(call, Store::Roles, &document)
}

fn change_roles(call: &mut Invocation<'_>, change: fn(&mut Vec<RoleName>, Vec<RoleName>)) -> Result<()> {
    let name = target(call)?;
    let arguments = call.arguments();
    let mut named = None;
    call.for_each_field(|name, value| {
        if name == "roles" {
            named = Some(role_names(call.database, arguments, arguments.array(name, value)?)?);
        }
        Ok(name == "roles")
    })?;
    let named = named.ok_or_else(|| missing_field(arguments.command, "roles"))?;
    if named.is_empty() {
        return Err(CommandError::bad_value(format!(
            "{} needs at least one role",
            arguments.command
        )));
    }
    let _changing = call.server.user_changes.lock();
    let mut document = existing(call, &name)?;
    let mut held = kept_roles(&document);
    if arguments.command == GRANT_ROLES_TO_ROLE.name {
        check_roles(call, &name, &named)?;
    }
    change(&mut held, named);
    document.insert("roles", role_array(&held));
    user_store::replace(call, Store::Roles, &document)
}

/// One privilege for each resource; those without actions are left out.
fn merged(privileges: &[Privilege]) -> Vec<Privilege> {
    let mut all = Privileges::default();
    all.extend(privileges);
    all.list()
}

/// Refuses roles that `name` may not inherit.
fn check_roles(call: &mut Invocation<'_>, name: &RoleName, roles: &[RoleName]) -> Result<()> {
    role_store::check_exist(call, roles)?;
    let modification = |message: String| Err(CommandError::new(ErrorCode(INVALID_ROLE_MODIFICATION), message));
    for role in roles {
        if name.database != "admin" && role.database != name.database {
            return modification(format!(
                "Roles on the '{}' database cannot be granted roles from other databases",
                name.database
            ));
        }
        let inherited = Held::of_roles(call, vec![role.clone()])?.roles;
        if inherited.contains(name) {
            return modification(format!(
                "Granting {role} to {name} would introduce a cycle in the role graph"
            ));
        }
    }
    Ok(())
}

/// `InvalidRoleModification`.
const INVALID_ROLE_MODIFICATION: i32 = 80;

/// Refuses privileges beyond the role's database, but for roles of `admin`.
fn check_privileges(name: &RoleName, privileges: &[Privilege]) -> Result<()> {
    let is_within = |privilege: &Privilege| match &privilege.resource {
        Resource::Collection { database, .. } | Resource::Buckets { database, .. } => *database == name.database,
        Resource::Any | Resource::Cluster => false,
    };
    if name.database == "admin" || privileges.iter().all(is_within) {
        return Ok(());
    }
    Err(CommandError::new(
        ErrorCode(INVALID_ROLE_MODIFICATION),
        format!(
            "Roles on the '{}' database cannot be granted privileges that target other databases or the cluster",
            name.database
        ),
    ))
}

/// Takes roles that are about to be dropped from users and roles.
fn take_from_all(call: &mut Invocation<'_>, is_dropped: impl Fn(&RoleName) -> bool) -> Result<()> {
    for store in [Store::Users, Store::Roles] {
        for mut document in user_store::find(call, store, &doc! {})? {
            let held = kept_roles(&document);
            let left: Vec<_> = held.iter().filter(|role| !is_dropped(role)).cloned().collect();
            if left.len() < held.len() {
                document.insert("roles", role_array(&left));
                user_store::replace(call, store, &document)?;
            }
        }
    }
    Ok(())
}

fn info(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut show_privileges, mut show_builtin, mut show_restrictions) = (false, false, false);
    call.for_each_field(|name, value| {
        match name {
            "showPrivileges" => show_privileges = arguments.boolean(name, value)?,
            "showBuiltinRoles" => show_builtin = arguments.boolean(name, value)?,
            "showAuthenticationRestrictions" => show_restrictions = arguments.boolean(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mut shown = Vec::new();
    for name in selection(call, show_builtin)? {
        let Some(document) = described(call, &name)? else {
            continue;
        };
        let direct = kept_roles(&document);
        let held = Held::of_roles(call, direct.clone())?;
        let mut role = doc! {
            "_id": user_store::id(&name.database, &name.role),
            "role": &name.role,
            "db": &name.database,
            "roles": role_array(&direct),
            "inheritedRoles": role_array(&held.roles),
            "isBuiltin": name.is_builtin(),
        };
        let own = match name.is_builtin() {
            true => auth::roles::privileges(&name.database, &name.role),
            false => kept_privileges(&document),
        };
        if show_privileges {
            role.insert("privileges", privilege_array(&merged(&own)));
            let all: Vec<_> = own.into_iter().chain(held.privileges).collect();
            role.insert("inheritedPrivileges", privilege_array(&merged(&all)));
        }
        if show_restrictions {
            let kept = document.get(RESTRICTIONS).cloned();
            role.insert(RESTRICTIONS, kept.unwrap_or_else(|| Bson::Array(Vec::new())));
        }
        shown.push(Bson::Document(role));
    }
    reply.value("roles", &Bson::Array(shown));
    Ok(())
}

/// A role's document; an empty one for a built-in role.
fn described(call: &mut Invocation<'_>, name: &RoleName) -> Result<Option<Document>> {
    match name.is_builtin() {
        true => Ok(Some(Document::new())),
        false => role_store::find_one(call, name),
    }
}

/// The roles that `rolesInfo` names: 1, a role, or a list of roles.
fn selection(call: &mut Invocation<'_>, with_builtin: bool) -> Result<Vec<RoleName>> {
    let (arguments, database) = (call.arguments(), call.database);
    match call.target()? {
        number if number_as_i64(number) == Some(1) => {
            let kept = user_store::find(call, Store::Roles, &doc! { "db": database })?;
            let names = kept.iter().filter_map(|role| role.get_str("role").ok());
            let mut names: Vec<_> = names.map(|role| RoleName::new(database, role)).collect();
            if with_builtin {
                let of_admin = (database == "admin").then_some(auth::roles::OF_ADMIN);
                let builtin = auth::roles::OF_DATABASES
                    .into_iter()
                    .chain(of_admin.into_iter().flatten());
                names.extend(builtin.map(|role| RoleName::new(database, role)));
            }
            names.sort();
            Ok(names)
        }
        RawBsonRef::Array(array) => role_names(database, arguments, array),
        RawBsonRef::String(role) => Ok(vec![RoleName::new(database, role)]),
        RawBsonRef::Document(document) => {
            let (role, database) = pair(Arguments::of("rolesInfo"), document, "role")?;
            Ok(vec![RoleName::new(database, role)])
        }
        _ => Err(CommandError::bad_value(
            "User and role names must be either strings or objects",
        )),
    }
}

/// The role that the first field names, which must not be one that every server has.
fn target(call: &Invocation<'_>) -> Result<RoleName> {
    let name = RoleName::new(
        call.database,
        call.arguments().string(call.command.name, call.target()?)?,
    );
    if name.is_builtin() {
        return Err(CommandError::new(
            ErrorCode(INVALID_ROLE_MODIFICATION),
            format!("{name} is a built-in role and cannot be changed"),
        ));
    }
    Ok(name)
}

fn existing(call: &mut Invocation<'_>, name: &RoleName) -> Result<Document> {
    role_store::find_one(call, name)?
        .ok_or_else(|| CommandError::new(ErrorCode::RoleNotFound, format!("Role '{name}' not found")))
}
