//! What the caller of a command may do.
//!
//! What a user may do is worked out once and kept with the connection as a [`Grant`]. Whatever changes users or
//! roles, a command or an entry from another member, moves the server on to the next generation when it takes effect,
//! and a grant of an older one is worked out anew before the next command: rights that were taken away are gone in open
//! connections, too, and a command pays one comparison for that.

use crate::authentication::Identity;
use crate::internal_user::InternalVerifiers;
use crate::throttle::Throttle;
use auth::{ActionSet, Privileges, RoleName, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use storage::Storage;

/// SHA-256 of nothing: the user of sessions without one.
const NOBODY: [u8; 32] = [
    0xE3, 0xB0, 0xC4, 0x42, 0x98, 0xFC, 0x1C, 0x14, 0x9A, 0xFB, 0xF4, 0xC8, 0x99, 0x6F, 0xB9, 0x24, 0x27, 0xAE, 0x41,
    0xE4, 0x64, 0x9B, 0x93, 0x4C, 0xA4, 0x95, 0x99, 0x1B, 0x78, 0x52, 0xB8, 0x55,
];

/// What tells a user's sessions from those of others.
pub fn session_user(user: Option<&Identity>) -> [u8; 32] {
    user.map_or(NOBODY, |user| auth::session_user(&user.user, &user.database))
}

/// What a proven user may do, as of one generation.
pub struct Grant {
    /// The generation of users and roles that it was worked out of.
    pub generation: u64,
    /// The user.
    pub user: Identity,
    /// What tells its sessions from those of others.
    pub session_user: [u8; 32],
    /// The roles it holds, inherited ones behind those that hold them.
    pub roles: Vec<RoleName>,
    /// All it may do.
    pub privileges: Privileges,
}

/// What the caller of a command may do.
#[derive(Clone)]
pub enum Rights {
    /// There is no access control.
    Unchecked,
    /// It has not proven to be anybody.
    Nobody,
    /// Nobody, from this machine, while there are no users: it may make the first.
    First,
    /// A user.
    Of(Arc<Grant>),
}

impl Rights {
    /// May the caller do all of `actions` to `target`?
    pub fn allow(&self, target: Target<'_>, actions: ActionSet) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Nobody | Self::First => false,
            Self::Of(grant) => grant.privileges.allow(target, actions),
        }
    }

    /// The user, when there is access control and the caller is one.
    pub fn user(&self) -> Option<&Identity> {
        match self {
            Self::Of(grant) => Some(&grant.user),
            _ => None,
        }
    }

    /// What tells the sessions of the caller from those of others.
    pub fn session_user(&self) -> [u8; 32] {
        match self {
            Self::Of(grant) => grant.session_user,
            _ => NOBODY,
        }
    }

    /// Does the caller hold the role?
    pub fn holds(&self, role: &RoleName) -> bool {
        matches!(self, Self::Of(grant) if grant.roles.contains(role))
    }

    /// What the caller may do, to be kept with what it makes.
    pub fn grant(&self) -> Option<Arc<Grant>> {
        match self {
            Self::Of(grant) => Some(Arc::clone(grant)),
            _ => None,
        }
    }

    /// Does what `owner` made belong to the caller? To everybody without access control.
    pub fn is_own(&self, owner: Option<&Identity>) -> bool {
        match self {
            Self::Unchecked => true,
            Self::Nobody | Self::First => false,
            Self::Of(grant) => owner == Some(&grant.user),
        }
    }
}

/// The server's part of access control.
pub struct AccessControl {
    enabled: bool,
    /// How often somebody asked for all to be read anew.
    invalidations: AtomicU64,
    /// Somebody on the same machine may make the first user.
    lets_local_begin: AtomicBool,
    /// There is a user or was one since the start: the first has been made.
    pub users_seen: AtomicBool,
    /// Failed proofs of late.
    pub throttle: Throttle,
    /// What other members' keys are checked against.
    pub(crate) internal: InternalVerifiers,
}

impl AccessControl {
    pub(crate) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            invalidations: AtomicU64::new(0),
            lets_local_begin: AtomicBool::new(true),
            users_seen: AtomicBool::new(false),
            throttle: Throttle::default(),
            internal: InternalVerifiers::default(),
        }
    }

    /// Is it on?
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// May somebody on the same machine make the first user?
    pub fn lets_local_begin(&self) -> bool {
        self.lets_local_begin.load(Ordering::Relaxed)
    }

    /// Says whether they may. At the start only.
    pub fn let_local_begin(&self, lets: bool) {
        self.lets_local_begin.store(lets, Ordering::Relaxed);
    }

    /// The generation of users and roles: the storage moves it when a change has taken effect, whoever made it.
    pub fn generation(&self, storage: &Storage) -> u64 {
        // Neither ever goes back, so that no sum comes again.
        storage.access_changes() + self.invalidations.load(Ordering::SeqCst)
    }

    /// Every grant is to be worked out anew, though nothing has changed.
    pub fn invalidate(&self) {
        self.invalidations.fetch_add(1, Ordering::SeqCst);
    }
}
