//! `createUser`, `updateUser`, `dropUser`, `dropAllUsersFromDatabase`, `grantRolesToUser`, `revokeRolesFromUser`,
//! `usersInfo`.

use super::authenticate_x509::EXTERNAL;
use super::filter::Filter;
use super::role_documents::{
    give_roles, kept_roles, pair, privilege_array, restrictions, role_array, role_names, take_roles,
};
use super::role_store::{self, Held};
use super::user_store::{self, Store};
use super::users_access as access;
use crate::arguments::{Arguments, missing_field, wrong_type};
use crate::authorization::{refused, users_exist};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use auth::{Action, Credentials, Mechanism, Privileges, RoleName};
use bson::raw::{RawArray, RawBsonRef};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use wire::ErrorCode;

/// `createUser`.
pub const CREATE_USER: Command = Command::new(
    "createUser",
    "Makes a user.",
    OperationKind::Command,
    Access::Fields(access::create),
    create,
)
.takes_write_concern()
.secret(&["pwd"]);
/// `updateUser`.
pub const UPDATE_USER: Command = Command::new(
    "updateUser",
    "Changes a user's password, roles or data.",
    OperationKind::Command,
    Access::Fields(access::update),
    update,
)
.takes_write_concern()
.secret(&["pwd"]);
/// `dropUser`.
pub const DROP_USER: Command = Command::new(
    "dropUser",
    "Removes a user.",
    OperationKind::Command,
    Access::database(&[Action::DropUser]),
    |call, _| {
        let name = target(call)?;
        call.for_each_field(|_, _| Ok(false))?;
        let _changing = call.server.user_changes.lock();
        match user_store::remove(call, Store::Users, &user_store::key(call.database, name))? {
            0 => Err(not_found(call.database, name)),
            _ => Ok(()),
        }
    },
)
.takes_write_concern();
/// `dropAllUsersFromDatabase`.
pub const DROP_ALL_USERS_FROM_DATABASE: Command = Command::new(
    "dropAllUsersFromDatabase",
    "Removes all users of a database.",
    OperationKind::Command,
    Access::database(&[Action::DropUser]),
    |call, reply| {
        call.for_each_field(|_, _| Ok(false))?;
        let _changing = call.server.user_changes.lock();
        let removed = user_store::remove(call, Store::Users, &doc! { "db": call.database })?;
        reply.count("n", removed as i64);
        Ok(())
    },
)
.takes_write_concern();
/// `grantRolesToUser`.
pub const GRANT_ROLES_TO_USER: Command = Command::new(
    "grantRolesToUser",
    "Gives roles to a user.",
    OperationKind::Command,
    Access::Fields(access::grant),
    |call, _| change_roles(call, give_roles),
)
.takes_write_concern();
/// `revokeRolesFromUser`.
pub const REVOKE_ROLES_FROM_USER: Command = Command::new(
    "revokeRolesFromUser",
    "Takes roles from a user.",
    OperationKind::Command,
    Access::Fields(access::revoke),
    |call, _| change_roles(call, take_roles),
)
.takes_write_concern();
/// `usersInfo`.
pub const USERS_INFO: Command = Command::new(
    "usersInfo",
    "Describes users.",
    OperationKind::Command,
    Access::Fields(access::info),
    info,
)
.secondary_ok();

/// The field of users and roles with the addresses they may come from.
pub const RESTRICTIONS: &str = "authenticationRestrictions";

/// The fields of `createUser` and `updateUser`.
#[derive(Default)]
struct Request {
    password: Option<String>,
    custom_data: Option<Document>,
    roles: Option<Vec<RoleName>>,
    restrictions: Option<Bson>,
    mechanisms: Option<Vec<Mechanism>>,
    digested_by_client: bool,
}

impl Request {
    fn parse(call: &Invocation<'_>) -> Result<Self> {
        let arguments = call.arguments();
        let mut request = Self::default();
        call.for_each_field(|name, value| {
            match name {
                "pwd" => request.password = Some(arguments.string(name, value)?.to_owned()),
                "customData" => request.custom_data = Some(Document::try_from(arguments.document(name, value)?)?),
                "roles" => request.roles = Some(role_names(call.database, arguments, arguments.array(name, value)?)?),
                "mechanisms" => request.mechanisms = Some(mechanisms(arguments.array(name, value)?)?),
                "digestPassword" => request.digested_by_client = !arguments.boolean(name, value)?,
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

    /// Who proves itself elsewhere has no password here.
    fn check_external(&self) -> Result<()> {
        if self.password.is_some() {
            return Err(CommandError::bad_value(
                "Cannot set the password for users defined on the '$external' database",
            ));
        }
        match self.mechanisms {
            Some(_) => Err(CommandError::bad_value(
                "mechanisms are not for users of the '$external' database",
            )),
            None => Ok(()),
        }
    }

    /// Credentials for the password, for the mechanisms that are asked for or else for all that can be.
    fn credentials(&self, call: &Invocation<'_>, user: &str, password: &str) -> Result<Document> {
        if password.is_empty() {
            return Err(CommandError::bad_value("Password cannot be empty"));
        }
        let wanted = match &self.mechanisms {
            Some(mechanisms) => mechanisms.clone(),
            None if self.digested_by_client => vec![Mechanism::ScramSha1],
            None => Mechanism::ALL.to_vec(),
        };
        let mut all = Document::new();
        for mechanism in wanted {
            let mut salt = vec![0; mechanism.salt_bytes()];
            call.server.env.random.fill_secret(&mut salt);
            let credentials = match (mechanism, self.digested_by_client) {
                (Mechanism::ScramSha256, true) => {
                    return Err(CommandError::bad_value(
                        "Use of SCRAM-SHA-256 requires undigested passwords",
                    ));
                }
                (Mechanism::ScramSha1, true) => {
                    Credentials::of_secret(mechanism, password, &salt, mechanism.iterations())
                }
                (_, false) => Credentials::of_password(mechanism, user, password, &salt)
                    .map_err(|error| CommandError::bad_value(error.to_string()))?,
            };
            let (iterations, [salt, stored_key, server_key]) = credentials.to_stored();
            let kept = doc! {
                "iterationCount": iterations as i32,
                "salt": salt,
                "storedKey": stored_key,
                "serverKey": server_key,
            };
            all.insert(mechanism.name(), kept);
        }
        Ok(all)
    }
}

fn create(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let user = target(call)?;
    if user.is_empty() {
        return Err(CommandError::bad_value(
            "User document needs 'user' field to be non-empty",
        ));
    }
    let database = call.database;
    let is_external = database == EXTERNAL;
    if !is_external {
        storage::Namespace::new(database, "system.users")?;
    }
    if database == "local" {
        return Err(CommandError::bad_value("Cannot create users in the local database"));
    }
    let request = Request::parse(call)?;
    let roles = request
        .roles
        .as_ref()
        .ok_or_else(|| missing_field("createUser", "roles"))?;
    let credentials = match &request.password {
        _ if is_external => {
            request.check_external()?;
            doc! { "external": true }
        }
        Some(password) => request.credentials(call, user, password)?,
        None => {
            return Err(CommandError::bad_value(
                "Must provide a 'pwd' field for all user documents, except those with '$external' as the user's source db",
            ));
        }
    };
    let mut id = [0; 16];
    call.server.env.random.fill_secret(&mut id);
    // Version 4, variant 1 of RFC 9562.
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    let mut document = doc! {
        "_id": user_store::id(database, user),
        "userId": Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() },
        "user": user,
        "db": database,
        "credentials": credentials,
        "roles": role_array(roles),
    };
    if let Some(data) = request.custom_data {
        document.insert("customData", data);
    }
    if let Some(restrictions) = request.restrictions {
        document.insert(RESTRICTIONS, restrictions);
    }
    let _changing = call.server.user_changes.lock();
    role_store::check_exist(call, roles)?;
    // Of two who would be the first, one is.
    if matches!(call.rights, Rights::First) && users_exist(call.server)? {
        return Err(refused(call));
    }
    user_store::insert(call, Store::Users, &document)
}

fn update(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let user = target(call)?;
    let request = Request::parse(call)?;
    if call.database == EXTERNAL {
        request.check_external()?;
    }
    let _changing = call.server.user_changes.lock();
    role_store::check_exist(call, request.roles.as_deref().unwrap_or_default())?;
    let mut document = existing(call, user)?;
    match (&request.password, &request.mechanisms) {
        (Some(password), _) => drop(document.insert("credentials", request.credentials(call, user, password)?)),
        (None, Some(kept)) => {
            // Without the password there is nothing to make new credentials of.
            let held = user_store::mechanisms(&document);
            if !kept.iter().all(|mechanism| held.contains(mechanism)) {
                return Err(CommandError::bad_value(
                    "mechanisms field must be a subset of previously set mechanisms",
                ));
            }
            if let Ok(credentials) = document.get_document_mut("credentials") {
                for mechanism in held.iter().filter(|mechanism| !kept.contains(mechanism)) {
                    credentials.remove(mechanism.name());
                }
            }
        }
        (None, None) if request.roles.is_none() && request.custom_data.is_none() && request.restrictions.is_none() => {
            return Err(CommandError::bad_value(
                "Must specify at least one field to update in updateUser",
            ));
        }
        (None, None) => {}
    }
    if let Some(roles) = request.roles {
        document.insert("roles", role_array(&roles));
    }
    match request.restrictions {
        Some(Bson::Array(none)) if none.is_empty() => drop(document.remove(RESTRICTIONS)),
        Some(restrictions) => drop(document.insert(RESTRICTIONS, restrictions)),
        None => {}
    }
    if let Some(data) = request.custom_data {
        document.insert("customData", data);
    }
    user_store::replace(call, Store::Users, &document)
}

fn change_roles(call: &mut Invocation<'_>, change: fn(&mut Vec<RoleName>, Vec<RoleName>)) -> Result<()> {
    let user = target(call)?;
    let arguments = call.arguments();
    let mut named = None;
    call.for_each_field(|name, value| {
        if name == "roles" {
            named = Some(role_names(call.database, arguments, arguments.array(name, value)?)?);
        }
        Ok(name == "roles")
    })?;
    let named = named.ok_or_else(|| missing_field(arguments.command, "roles"))?;
    let _changing = call.server.user_changes.lock();
    role_store::check_exist(call, &named)?;
    let mut document = existing(call, user)?;
    let mut held = kept_roles(&document);
    change(&mut held, named);
    document.insert("roles", role_array(&held));
    user_store::replace(call, Store::Users, &document)
}

fn info(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut credentials, mut custom_data, mut privileges) = (false, true, false);
    let (mut show_restrictions, mut filter) = (false, Filter::all());
    let expressions = call.expressions();
    call.for_each_field(|name, value| {
        match name {
            "showCredentials" => credentials = arguments.boolean(name, value)?,
            "showCustomData" => custom_data = arguments.boolean(name, value)?,
            "showAuthenticationRestrictions" => show_restrictions = arguments.boolean(name, value)?,
            "showPrivileges" => privileges = arguments.boolean(name, value)?,
            "filter" => filter = Filter::parse(arguments.document(name, value)?, &expressions)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mut users = user_store::find(call, Store::Users, &selection(call.database, call.target()?)?)?;
    users.sort_by(|a, b| {
        a.get_str("_id")
            .unwrap_or_default()
            .cmp(b.get_str("_id").unwrap_or_default())
    });
    let mut shown = Vec::new();
    for mut user in users {
        let names = match user_store::is_external(&user) {
            true => vec!["external"],
            false => user_store::mechanisms(&user).into_iter().map(Mechanism::name).collect(),
        };
        user.insert("mechanisms", names);
        if privileges || show_restrictions {
            let held = Held::of_roles(call, kept_roles(&user))?;
            user.insert("inheritedRoles", role_array(&held.roles));
            if privileges {
                let mut all = Privileges::default();
                all.extend(&held.privileges);
                user.insert("inheritedPrivileges", privilege_array(&all.list()));
            }
            user.entry(RESTRICTIONS.to_owned())
                .or_insert_with(|| Bson::Array(Vec::new()));
        } else {
            user.remove(RESTRICTIONS);
        }
        if !credentials {
            user.remove("credentials");
        }
        if !custom_data {
            user.remove("customData");
        }
        // It is asked about what is shown alone: question by question it would tell the rest, credentials among it.
        if filter.matches(&user, &call.evaluation())? {
            shown.push(Bson::Document(user));
        }
    }
    reply.value("users", &Bson::Array(shown));
    Ok(())
}

/// The filter for what `usersInfo` names: 1, a user, a list of users, or all of the server.
fn selection(database: &str, target: RawBsonRef<'_>) -> Result<Document> {
    let one = |value: RawBsonRef<'_>| match value {
        RawBsonRef::String(user) => Ok(user_store::key(database, user)),
        RawBsonRef::Document(document) => {
            let (user, database) = pair(Arguments::of("usersInfo"), document, "user")?;
            Ok(user_store::key(database, user))
        }
        other => Err(wrong_type("usersInfo", "usersInfo", other, "types '[string, object]'")),
    };
    match target {
        RawBsonRef::Array(array) => {
            let mut named = Vec::new();
            for value in array {
                named.push(one(value?)?);
            }
            // An empty `$or` is an error, and nobody has no name.
            Ok(if named.is_empty() {
                doc! { "_id": { "$in": [] } }
            } else {
                doc! { "$or": named }
            })
        }
        RawBsonRef::Document(document) if document.get("forAllDBs")?.is_some() => Ok(doc! {}),
        RawBsonRef::String(_) | RawBsonRef::Document(_) => one(target),
        number if crate::arguments::number_as_i64(number) == Some(1) => Ok(doc! { "db": database }),
        _ => Err(CommandError::bad_value(
            "User and role names must be either strings or objects",
        )),
    }
}

fn mechanisms(array: &RawArray) -> Result<Vec<Mechanism>> {
    let mut mechanisms = Vec::new();
    for value in array {
        let mechanism = match value? {
            RawBsonRef::String(name) => name
                .parse()
                .map_err(|()| CommandError::bad_value(format!("Unknown auth mechanism '{name}'")))?,
            other => return Err(wrong_type("createUser", "mechanisms", other, "type 'string'")),
        };
        if !mechanisms.contains(&mechanism) {
            mechanisms.push(mechanism);
        }
    }
    if mechanisms.is_empty() {
        return Err(CommandError::bad_value("mechanisms field must not be empty"));
    }
    Ok(mechanisms)
}

/// The user that the first field names.
fn target<'i>(call: &Invocation<'i>) -> Result<&'i str> {
    call.arguments().string(call.command.name, call.target()?)
}

fn existing(call: &mut Invocation<'_>, user: &str) -> Result<Document> {
    user_store::find_one(call, call.database, user)?.ok_or_else(|| not_found(call.database, user))
}

fn not_found(database: &str, user: &str) -> CommandError {
    CommandError::new(ErrorCode::UserNotFound, format!("User '{user}@{database}' not found"))
}
