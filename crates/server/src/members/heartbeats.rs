//! Asks one other member how it is, now and then, and tells it how this one is.

use super::link::{CallError, Dialer, Link};
use commands::{ReplicaSet, Role, Server};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Members that are on their way to being useful are asked more often.
const OFTEN: Duration = Duration::from_millis(200);

/// See the module.
pub struct Heartbeats {
    /// Its `_id` in the configuration.
    member: i32,
    /// `host:port`.
    pub host: String,
    server: Arc<Server>,
    set: Arc<ReplicaSet>,
    dialer: Arc<Dialer>,
    rung: Mutex<Rung>,
    alarm: Condvar,
}

#[derive(Default)]
struct Rung {
    at_once: bool,
    stopped: bool,
}

impl Heartbeats {
    /// Begins to ask a member.
    pub fn start(
        member: i32,
        host: &str,
        server: &Arc<Server>,
        set: &Arc<ReplicaSet>,
        dialer: &Arc<Dialer>,
    ) -> Arc<Self> {
        let asked = Arc::new(Self {
            member,
            host: host.to_owned(),
            server: server.clone(),
            set: set.clone(),
            dialer: dialer.clone(),
            rung: Mutex::default(),
            alarm: Condvar::new(),
        });
        let of_thread = asked.clone();
        let spawned = std::thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || of_thread.run());
        if spawned.is_err() {
            // It counts as silent, and is asked when the configuration changes.
            asked.stop();
        }
        asked
    }

    /// Asks it at once.
    pub fn ask(&self) {
        self.rung.lock().at_once = true;
        self.alarm.notify_all();
    }

    /// It is asked no more. A question that is on its way is not waited for.
    pub fn stop(&self) {
        self.rung.lock().stopped = true;
        self.alarm.notify_all();
    }

    fn run(&self) {
        let clock = self.server.env.clock.clone();
        let mut link: Option<Link> = None;
        loop {
            let (every, patience) = self.set.heartbeat_times();
            let question = self.set.question(self.member, self.server.storage.standing().as_ref());
            let before = clock.monotonic();
            link = link.take().filter(|link| !link.is_dropped());
            let reply = match &mut link {
                Some(link) => Link::call(link, &question).map_err(CallError::into_sentence),
                None => self.dialer.open(&self.host, patience).and_then(|mut new| {
                    let reply = new.call(&question);
                    link = reply.is_ok().then_some(new);
                    reply.map_err(CallError::into_sentence)
                }),
            };
            if reply.is_err() {
                link = None;
            }
            let ping = clock.monotonic().saturating_sub(before);
            let heard = reply.as_ref().map(|reply| &**reply).map_err(|reason| &**reason);
            if self.rung.lock().stopped {
                return;
            }
            self.server.heard(self.member, heard, ping);
            let peer = self.set.peer(self.member);
            let is_settled = peer.is_up
                && matches!(peer.role, Role::Primary | Role::Secondary | Role::Arbiter)
                && self.set.role() != Role::Startup2;
            let pause = if is_settled { every } else { OFTEN.min(every) };
            let mut rung = self.rung.lock();
            if !rung.at_once && !rung.stopped {
                self.alarm.wait_for(&mut rung, pause);
            }
            rung.at_once = false;
            if rung.stopped {
                return;
            }
        }
    }
}
