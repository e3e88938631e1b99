//! `admin.system.roles`, and what somebody may do who holds roles.

use super::role_documents::{kept_privileges, kept_restrictions, kept_roles};
use super::user_store::{self, Store};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use auth::{Ends, Privilege, Restriction, RoleName, restrictions_allow};
use bson::{Document, doc};
use wire::ErrorCode;

/// One role; not the built-in ones, which are kept nowhere.
pub fn find_one(call: &mut Invocation<'_>, name: &RoleName) -> Result<Option<Document>> {
    Ok(user_store::find(call, Store::Roles, &key(name))?.pop())
}

/// The filter for one role.
pub fn key(name: &RoleName) -> Document {
    doc! { "_id": user_store::id(&name.database, &name.role), "role": &name.role, "db": &name.database }
}

/// All that come with some roles, by way of other roles, too.
#[derive(Debug, Default)]
pub struct Held {
    /// The roles, those that are inherited behind those that hold them.
    pub roles: Vec<RoleName>,
    /// What they allow.
    pub privileges: Vec<Privilege>,
    /// The restrictions of each that has some. They must all hold.
    pub restrictions: Vec<Vec<Restriction>>,
}

impl Held {
    /// What a user's or role's document gives, with its own privileges and restrictions.
    pub fn of(call: &mut Invocation<'_>, document: &Document) -> Result<Self> {
        let mut held = Self::default();
        held.add_own(document);
        held.add_roles(call, kept_roles(document))?;
        Ok(held)
    }

    /// What these roles give.
    pub fn of_roles(call: &mut Invocation<'_>, names: Vec<RoleName>) -> Result<Self> {
        let mut held = Self::default();
        held.add_roles(call, names)?;
        Ok(held)
    }

    /// Do the restrictions let a connection in?
    pub fn let_in(&self, ends: Ends) -> bool {
        self.restrictions
            .iter()
            .all(|restrictions| restrictions_allow(restrictions, ends))
    }

    fn add_own(&mut self, document: &Document) {
        self.privileges.extend(kept_privileges(document));
        self.restrictions
            .extend(Some(kept_restrictions(document)).filter(|some| !some.is_empty()));
    }

    /// Adds roles and what they inherit, each once: a circle that somebody wrote into the collection ends here.
    /// Roles that are no more give nothing.
    fn add_roles(&mut self, call: &mut Invocation<'_>, names: Vec<RoleName>) -> Result<()> {
        let mut next = names;
        while !next.is_empty() {
            let mut inherited = Vec::new();
            for name in next {
                if self.roles.contains(&name) {
                    continue;
                }
                if name.is_builtin() {
                    self.privileges
                        .extend(auth::roles::privileges(&name.database, &name.role));
                } else if let Some(document) = find_one(call, &name)? {
                    self.add_own(&document);
                    inherited.extend(kept_roles(&document));
                } else {
                    continue;
                }
                self.roles.push(name);
            }
            next = inherited;
        }
        Ok(())
    }
}

/// Refuses names that no role has.
///
/// # Errors
/// `RoleNotFound`.
pub fn check_exist(call: &mut Invocation<'_>, names: &[RoleName]) -> Result<()> {
    for name in names {
        if !name.is_builtin() && find_one(call, name)?.is_none() {
            return Err(not_found(name));
        }
    }
    Ok(())
}

/// The error for a role that does not exist.
pub fn not_found(name: &RoleName) -> CommandError {
    CommandError::new(ErrorCode::RoleNotFound, format!("Could not find role: {name}"))
}
