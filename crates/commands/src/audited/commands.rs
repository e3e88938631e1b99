//! Which calls of commands are events, beside what they change of the catalog.

use super::{AuditEvent, result_code};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::raw::RawBsonRef;
use bson::{Bson, Document, doc};
use std::sync::atomic::Ordering;
use wire::ErrorCode;

/// A command about users or roles: its name, which is the event's, what its first field names, and the fields that are
/// told.
struct Told(&'static str, &'static str, &'static [&'static str]);

const TOLD: [Told; 16] = [
    Told(
        "createRole",
        "role",
        &["roles", "privileges", "authenticationRestrictions"],
    ),
    Told(
        "createUser",
        "user",
        &["customData", "roles", "authenticationRestrictions"],
    ),
    Told("dropAllRolesFromDatabase", "", &[]),
    Told("dropAllUsersFromDatabase", "", &[]),
    Told("dropDatabase", "", &[]),
    Told("dropRole", "role", &[]),
    Told("dropUser", "user", &[]),
    Told("grantPrivilegesToRole", "role", &["privileges"]),
    Told("grantRolesToRole", "role", &["roles"]),
    Told("grantRolesToUser", "user", &["roles"]),
    Told("revokePrivilegesFromRole", "role", &["privileges"]),
    Told("revokeRolesFromRole", "role", &["roles"]),
    Told("revokeRolesFromUser", "user", &["roles"]),
    Told("setClusterParameter", "parameter", &[]),
    Told(
        "updateRole",
        "role",
        &["roles", "privileges", "authenticationRestrictions"],
    ),
    Told(
        "updateUser",
        "user",
        &["customData", "roles", "authenticationRestrictions"],
    ),
];

/// Commands that change users and roles, and whose events say so: of collections that come and go, or of each user.
const TELL_OF_THEMSELVES: [&str; 3] = ["_mergeAuthzCollections", "drop", "renameCollection"];

impl Invocation<'_> {
    /// Has the finished call audited, if it is an event.
    pub(crate) fn audit_call(&self, result: &Result<()>) {
        if self.server.settings.audit.is_none() {
            return;
        }
        let event = |action, param| AuditEvent::of(self.client, action, param, result_code(result));
        if let Some(told) = TOLD.iter().find(|told| told.0 == self.command.name) {
            self.server.audit(|| event(told.0, self.told(told)));
            return;
        }
        if self.report.shutdown {
            self.server.audit_end(Some(self.client));
        }
        if TELL_OF_THEMSELVES.contains(&self.command.name) {
            return;
        }
        // Who writes the documents of users and roles by hand. What a command has written that failed later stays.
        for namespace in &self.report.access_changed {
            let param = doc! { "ns": namespace.as_str(), "operation": self.command.name };
            self.server.audit(|| event("directAuthMutation", param));
        }
    }

    /// Has it audited that the caller may run the command, and not do what it asks of it: end another one's operation,
    /// or go on with a cursor that it may not read any more.
    pub(crate) fn audit_refusal(&self, result: &Result<()>) {
        let is_refused = |error: &CommandError| error.code == ErrorCode::Unauthorized;
        if self.server.access.is_enabled() && result.as_ref().is_err_and(is_refused) {
            self.audit_check(result);
        }
    }

    fn told(&self, Told(action, subject, fields): &Told) -> Document {
        let mut param = doc! {};
        if let (false, Ok(Ok(name))) = (subject.is_empty(), self.target().map(Bson::try_from)) {
            param.insert(*subject, name);
        }
        match *action {
            "dropDatabase" => drop(param.insert("ns", self.database)),
            "setClusterParameter" => {}
            _ => drop(param.insert("db", self.database)),
        }
        for (name, value) in self.body.into_iter().flatten() {
            match (name.as_str(), Bson::try_from(value)) {
                ("pwd", _) if *action == "updateUser" => drop(param.insert("passwordChanged", true)),
                ("roles", Ok(roles)) if fields.contains(&"roles") => {
                    drop(param.insert("roles", self.whole_names(roles)))
                }
                (name, Ok(value)) if fields.contains(&name) => drop(param.insert(name, value)),
                _ => {}
            }
        }
        param
    }

    /// Roles that are told by their names alone are those of the command's database.
    fn whole_names(&self, roles: Bson) -> Bson {
        let Bson::Array(roles) = roles else { return roles };
        let whole = |role| match role {
            Bson::String(role) => Bson::from(doc! { "role": role, "db": self.database }),
            role => role,
        };
        roles.into_iter().map(whole).collect()
    }

    /// Has it audited that the caller may run the command, or may not.
    pub(crate) fn audit_check(&self, checked: &Result<()>) {
        let is_asked_for = || checked.is_err() || self.server.parameters.audits_success.load(Ordering::Relaxed);
        if self.server.settings.audit.is_none() || !is_asked_for() {
            return;
        }
        let ns = match self.target() {
            Ok(RawBsonRef::String(collection)) => format!("{}.{collection}", self.database),
            _ => self.database.to_owned(),
        };
        let shown = Document::try_from(&*self.command.shown(self.body)).unwrap_or_default();
        let param = doc! { "command": self.command.name, "ns": ns, "args": shown };
        self.server
            .audit(|| AuditEvent::of(self.client, "authCheck", param, result_code(checked)));
    }
}
