//! What the user of a connection may do, worked out of the documents of users and roles.

use super::role_store::Held;
use super::user_store;
use crate::authentication::Identity;
use crate::error::Result;
use crate::invocation::Invocation;
use crate::rights::{Grant, Rights};
use auth::Privileges;
use std::sync::Arc;

/// What the caller may do, with access control.
pub fn current(call: &mut Invocation<'_>) -> Result<Rights> {
    // Read before the users are: what changes meanwhile makes the grant an old one.
    let generation = call.server.access.generation(&call.server.storage);
    let user = {
        let state = call.client.authentication.lock();
        match (&state.user, &state.grant) {
            (None, _) => return Ok(Rights::Nobody),
            (Some(_), Some(grant)) if grant.generation == generation => return Ok(Rights::Of(Arc::clone(grant))),
            (Some(user), _) => user.clone(),
        }
    };
    let grant = work_out(call, user, generation)?.map(Arc::new);
    let mut state = call.client.authentication.lock();
    if grant.is_none() {
        state.user = None;
    }
    state.grant = grant.clone();
    Ok(grant.map_or(Rights::Nobody, Rights::Of))
}

/// What a user may do; `None` when it is gone, or may not be here any more.
#[cold]
fn work_out(call: &mut Invocation<'_>, user: Identity, generation: u64) -> Result<Option<Grant>> {
    let Some(document) = user_store::find_account(call, &user.database, &user.user)? else {
        return Ok(None);
    };
    if user_store::identity(&user.database, &user.user, &document) != user {
        return Ok(None);
    }
    let held = Held::of(call, &document)?;
    if !held.let_in(call.client.peer().ends()) {
        return Ok(None);
    }
    let mut privileges = Privileges::default();
    privileges.extend(&held.privileges);
    Ok(Some(Grant {
        generation,
        session_user: auth::session_user(&user.user, &user.database),
        user,
        roles: held.roles,
        privileges,
    }))
}
