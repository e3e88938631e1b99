//! The logical sessions that clients use: who, and when last. A session ends when nobody has used it for a while; its
//! cursors end with it. How long that is tells the monotonic clock: nobody puts that forward.
//!
//! Transactions, and what makes writes safe to send again, are kept elsewhere ([`crate::transactions`], and the
//! storage's records): a session that only reads is known here alone.

use crate::authentication::Identity;
use crate::error::{CommandError, Result};
use crate::rights::Rights;
use auth::{INTERNAL_DATABASE, INTERNAL_USER};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use storage::SessionKey;
use wire::ErrorCode;

/// Sessions at a time, as MongoDB's `maxSessions` has it.
pub const SESSIONS_MAX: usize = 1_000_000;
/// The last tenth of them is for users who have few: one who has many keeps nobody else from having any.
const RESERVED_PART: usize = 10;
/// A hundredth of them is few.
const FEW_PART: usize = 100;
/// Each look for sessions that have ended goes through one part of them.
const PARTS: usize = 16;

/// What is known of a session.
#[derive(Clone, Debug)]
pub struct SessionUse {
    /// Wall time, in milliseconds since the Unix epoch: for those who are shown it.
    pub last_ms: i64,
    /// The same by the monotonic clock.
    last: Duration,
    /// Whose it is, with access control.
    pub user: Option<Box<Identity>>,
}

/// See the module.
pub struct SessionCache {
    sessions_max: usize,
    parts: [Mutex<HashMap<SessionKey, SessionUse>>; PARTS],
    count: AtomicUsize,
    /// How many each user has, with access control. Locked with a part locked, or without.
    of_users: Mutex<HashMap<[u8; 32], usize>>,
    next_part: AtomicUsize,
}

impl Default for SessionCache {
    fn default() -> Self {
        Self::of(SESSIONS_MAX)
    }
}

impl SessionCache {
    fn of(sessions_max: usize) -> Self {
        Self {
            sessions_max,
            parts: Default::default(),
            count: AtomicUsize::new(0),
            of_users: Mutex::default(),
            next_part: AtomicUsize::new(0),
        }
    }

    fn part(&self, key: &SessionKey) -> &Mutex<HashMap<SessionKey, SessionUse>> {
        &self.parts[usize::from(key.id[15]) % PARTS]
    }

    /// A session is used, at this time by the monotonic clock and by that on the wall.
    ///
    /// # Errors
    /// `TooManyLogicalSessions`.
    pub fn touch(&self, key: SessionKey, rights: &Rights, (now, now_ms): (Duration, i64)) -> Result<()> {
        let mut sessions = self.part(&key).lock();
        if let Some(session) = sessions.get_mut(&key) {
            (session.last, session.last_ms) = (now, now_ms);
            return Ok(());
        }
        let user = rights.user().cloned().map(Box::new);
        let used = self.count.load(Ordering::Relaxed);
        let is_full = match &user {
            Some(user) if !is_member(user) => {
                let mut of_users = self.of_users.lock();
                let own = of_users.get(&key.user).copied().unwrap_or(0);
                let room = match own < self.sessions_max / FEW_PART {
                    true => self.sessions_max,
                    false => self.sessions_max - self.sessions_max / RESERVED_PART,
                };
                if used < room {
                    of_users.insert(key.user, own + 1);
                }
                used >= room
            }
            _ => used >= self.sessions_max,
        };
        if is_full {
            return Err(CommandError::new(
                ErrorCode::TooManyLogicalSessions,
                "Unable to add session into the cache because the number of active sessions is too high",
            ));
        }
        let (last, last_ms) = (now, now_ms);
        sessions.insert(key, SessionUse { last_ms, last, user });
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sessions are gone, each of the user of its key.
    fn gone<'k>(&self, keys: impl ExactSizeIterator<Item = &'k SessionKey>) {
        self.count.fetch_sub(keys.len(), Ordering::Relaxed);
        let mut of_users = self.of_users.lock();
        for key in keys {
            if let Entry::Occupied(mut own) = of_users.entry(key.user) {
                *own.get_mut() -= 1;
                if *own.get() == 0 {
                    own.remove();
                }
            }
        }
    }

    /// A session has been ended by its user.
    pub fn remove(&self, key: &SessionKey) {
        if self.part(key).lock().remove(key).is_some() {
            self.gone(std::iter::once(key));
        }
    }

    /// Takes out, and answers, some of the sessions that nobody has used since `before`; all of them within as many
    /// calls as there are parts. `is_running` is asked about each.
    pub fn expire(&self, before: Duration, mut is_running: impl FnMut(&SessionKey) -> bool) -> Vec<SessionKey> {
        let part = self.next_part.fetch_add(1, Ordering::Relaxed) % PARTS;
        let mut ended = Vec::new();
        self.parts[part].lock().retain(|key, session| {
            let keeps = session.last >= before || is_running(key);
            if !keeps {
                ended.push(*key);
            }
            keeps
        });
        self.gone(ended.iter());
        ended
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All of them that `is_meant`.
    pub fn list(&self, is_meant: impl Fn(&SessionKey) -> bool) -> Vec<(SessionKey, SessionUse)> {
        let mut all = Vec::new();
        for part in &self.parts {
            let sessions = part.lock();
            let meant = sessions.iter().filter(|(key, _)| is_meant(key));
            all.extend(meant.map(|(key, session)| (*key, session.clone())));
        }
        all
    }
}

/// Members are not held to a user's share.
fn is_member(user: &Identity) -> bool {
    user.database == INTERNAL_DATABASE && user.user == INTERNAL_USER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Grant;
    use auth::Privileges;
    use std::sync::Arc;

    fn rights(user: &str, database: &str) -> Rights {
        Rights::Of(Arc::new(Grant {
            generation: 0,
            session_user: auth::session_user(user, database),
            user: Identity {
                user: user.to_owned(),
                database: database.to_owned(),
                id: None,
            },
            roles: Vec::new(),
            privileges: Privileges::default(),
        }))
    }

    /// A user without any role could use all sessions that there may be, and nobody else had one.
    #[test]
    fn who_has_many_sessions_leaves_some_to_others() {
        let cache = SessionCache::of(1000);
        let touch = |rights: &Rights, n: usize| {
            let mut id = [0; 16];
            id[8..].copy_from_slice(&n.to_be_bytes());
            let user = rights.session_user();
            cache.touch(SessionKey { id, user }, rights, (Duration::from_secs(1), 1))
        };
        let begin = |rights: &Rights| (0..=1000).take_while(|n| touch(rights, *n).is_ok()).count();
        let (greedy, modest) = (rights("greedy", "test"), rights("modest", "test"));
        assert_eq!(begin(&greedy), 900);
        assert_eq!(begin(&modest), 10);
        touch(&greedy, 0).unwrap();
        assert_eq!(begin(&rights("__system", "local")), 90, "members take what there is");
        assert_eq!(begin(&rights("late", "test")), 0);
        // What has ended counts no more.
        for _ in 0..PARTS {
            cache.expire(Duration::from_secs(2), |key| key.user != greedy.session_user());
        }
        assert_eq!(cache.len(), 100);
        assert_eq!(begin(&modest), 810);
    }

    fn key(n: u8) -> SessionKey {
        SessionKey {
            id: [n; 16],
            user: [0; 32],
        }
    }

    #[test]
    fn sessions_end_when_nobody_uses_them() {
        let cache = SessionCache::default();
        // Somebody turns the clock on the wall.
        let time = |n: u8| (Duration::from_secs(u64::from(n)), 1000 - i64::from(n));
        for n in 0..100 {
            cache.touch(key(n), &Rights::Unchecked, time(n)).unwrap();
        }
        cache.touch(key(3), &Rights::Unchecked, time(200)).unwrap();
        assert_eq!(cache.len(), 100);
        let mut ended: Vec<u8> = (0..PARTS)
            .flat_map(|_| cache.expire(Duration::from_secs(50), |key| key.id[0] == 7))
            .map(|key| key.id[0])
            .collect();
        ended.sort_unstable();
        let expected: Vec<u8> = (0..50).filter(|n| ![3, 7].contains(n)).collect();
        assert_eq!(ended, expected);
        assert_eq!((cache.len(), cache.list(|_| true).len()), (52, 52));
        cache.remove(&key(3));
        cache.remove(&key(3));
        assert_eq!(cache.len(), 51);
        assert_eq!(cache.list(|key| key.id[0] == 99)[0].1.last_ms, 901);
    }
}
