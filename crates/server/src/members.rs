//! A member's threads and connections: heartbeats, the messages of consensus, copies of all data, and who looks after
//! the set.
//!
//! For each other member one thread asks it how it is (`heartbeats.rs`), and one brings it what consensus says
//! (`sender.rs`). A thread of its own does what may wait for entries to stay: it takes up the configuration, steers
//! those threads by it, and has `commands` do the upkeep. What the consensus thread calls ([`Outlet`]) only notes and
//! rings.

mod copy;
mod copy_files;
mod copy_rows;
mod fetch;
mod heartbeats;
mod link;
mod outgoing;
mod sender;

pub use copy::CopySettings;

use crate::data_directory;
use crate::events::Event;
use bson::{Document, RawDocument, RawDocumentBuf, doc};
use commands::logger::id;
use commands::{MemberConnection, MemberConnections, MemberThreads, ReplicaSet, Role, Server, Upkeep, WantedCopy};
use heartbeats::Heartbeats;
use link::{CallError, Dialer};
use oplog::Retention;
use parking_lot::{Condvar, Mutex};
use sender::Sender as ToMember;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use storage::{ClusterTime, Membership, Message, Outlet, Standing, StorageError};

/// Longest time between two rounds of upkeep.
const UPKEEP_EVERY: Duration = Duration::from_millis(500);

/// Longest time until another member takes a connection.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// What the thread that looks after the set is to do.
#[derive(Default)]
struct Rung {
    at_once: bool,
    configuration_changed: bool,
    stopped: bool,
}

/// See the module.
pub struct Members {
    me: Weak<Self>,
    server: Arc<Server>,
    set: Arc<ReplicaSet>,
    dialer: Arc<Dialer>,
    copying: CopySettings,
    events: Sender<Event>,
    rung: Mutex<Rung>,
    alarm: Condvar,
    heartbeats: Mutex<HashMap<i32, Arc<Heartbeats>>>,
    /// By the receivers' numbers in consensus.
    senders: Mutex<HashMap<u64, Arc<ToMember>>>,
    /// Entries up to here are applied.
    applied: Arc<AtomicU64>,
    /// The leader's number in consensus, 0: none is known.
    leader: AtomicU64,
    is_copying: AtomicBool,
    /// A copy was begun before this start.
    has_old_copy: AtomicBool,
    /// When the log was told last how far a copy is.
    told: Mutex<Duration>,
    /// Who looks after the set.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Members {
    /// Begins to look after a member's set. Nobody is asked anything before there is a configuration.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        server: &Arc<Server>,
        set: &Arc<ReplicaSet>,
        copying: CopySettings,
        events: Sender<Event>,
    ) -> std::io::Result<Arc<Self>> {
        let members = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            server: server.clone(),
            set: set.clone(),
            dialer: Arc::new(Dialer {
                cluster_auth: server.settings.cluster_auth.clone(),
                random: server.env.random.clone(),
                tls: server.settings.tls.clone(),
                outgoing: Arc::default(),
            }),
            copying,
            events,
            rung: Mutex::default(),
            alarm: Condvar::new(),
            heartbeats: Mutex::default(),
            senders: Mutex::default(),
            applied: Arc::new(AtomicU64::new(server.storage.last_seq().0)),
            leader: AtomicU64::new(0),
            is_copying: AtomicBool::new(false),
            has_old_copy: AtomicBool::new(false),
            told: Mutex::default(),
            thread: Mutex::default(),
        });
        let begun = members.copying.place.begun(&*server.env.fs).ok().flatten();
        members.has_old_copy.store(begun.is_some(), Ordering::Release);
        *set.begun_as.lock() = begun.map(|begun| begun.instance).filter(|begun| *begun != set.instance);
        let threads: Arc<dyn MemberThreads> = members.clone();
        set.set_threads(Arc::downgrade(&threads));
        let of_thread = members.clone();
        let thread = std::thread::Builder::new()
            .name("replica-set".to_owned())
            .spawn(move || of_thread.run())?;
        *members.thread.lock() = Some(thread);
        Ok(members)
    }

    /// Ends all threads. Those that wait for another server end when they have waited; they change nothing any more.
    pub fn stop(&self) {
        self.rung.lock().stopped = true;
        self.alarm.notify_all();
        for (_, heartbeats) in self.heartbeats.lock().drain() {
            heartbeats.stop();
        }
        for (_, sender) in self.senders.lock().drain() {
            sender.stop();
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn is_stopped(&self) -> bool {
        self.rung.lock().stopped
    }

    fn run(&self) {
        let mut upkeep = Upkeep::default();
        loop {
            let configuration_changed = {
                let mut rung = self.rung.lock();
                if !rung.at_once && !rung.configuration_changed && !rung.stopped {
                    self.alarm.wait_for(&mut rung, UPKEEP_EVERY);
                }
                if rung.stopped {
                    return;
                }
                rung.at_once = false;
                std::mem::take(&mut rung.configuration_changed)
            };
            if configuration_changed && let Err(error) = self.server.take_up_configuration(&self.set) {
                let attributes = doc! { "error": error.message };
                let message = "The replica set's configuration cannot be read";
                self.server
                    .logger
                    .log(id::CONFIGURATION_UNREADABLE, "replica-set", message, attributes);
            }
            self.connect_all();
            self.server.look_after_members(&mut upkeep);
            self.forget_old_copy();
        }
    }

    /// A copy that was begun before this start and is not needed any more: the log was enough.
    fn forget_old_copy(&self) {
        let follows = self
            .set
            .with_member(|member| matches!(member.role, Role::Primary | Role::Secondary));
        if follows && !self.is_copying.load(Ordering::Acquire) && self.has_old_copy.swap(false, Ordering::AcqRel) {
            let _ = self.copying.place.throw_away(&*self.server.env.fs);
        }
    }

    /// Has threads for the members that there are now, and for no others.
    fn connect_all(&self) {
        let member = self.set.member();
        let Some((config, _)) = member.newest_configuration() else {
            return;
        };
        let own = self.server.storage.standing().map(|standing| standing.id);
        let others = config.members.iter().filter(|other| other.id != member.id);
        let hosts: HashMap<i32, &str> = others.map(|other| (other.id, &*other.host)).collect();
        let mut heartbeats = self.heartbeats.lock();
        heartbeats.retain(|id, asked| {
            let stays = hosts.get(id).is_some_and(|host| *host == asked.host);
            if !stays {
                asked.stop();
            }
            stays
        });
        for (id, host) in &hosts {
            if !heartbeats.contains_key(id) && !self.is_stopped() {
                heartbeats.insert(*id, Heartbeats::start(*id, host, &self.server, &self.set, &self.dialer));
            }
        }
        drop(heartbeats);
        let Some(own) = own else { return };
        let wanted = self.set.receivers(own);
        let mut senders = self.senders.lock();
        senders.retain(|id, sender| {
            let stays = wanted.get(id).is_some_and(|host| *host == sender.host);
            if !stays {
                sender.stop();
            }
            stays
        });
        for (id, host) in wanted {
            if !senders.contains_key(&id) && !self.is_stopped() {
                senders.insert(id, ToMember::start(&host, &self.set, own, &self.applied, &self.dialer));
            }
        }
    }
}

impl MemberThreads for Members {
    fn ask(&self, host: &str, question: &RawDocument, patience: Duration) -> Result<RawDocumentBuf, String> {
        let reply = self.dialer.open(host, patience)?.call(question);
        reply.map_err(CallError::into_sentence)
    }

    fn connect(&self, host: &str, patience: Duration) -> Result<Box<dyn MemberConnection>, String> {
        let connected = self.dialer.open_within(host, CONNECTS_WITHIN, patience)?;
        Ok(Box::new(connected.look_often()?))
    }

    fn wake(&self) {
        self.rung.lock().at_once = true;
        self.alarm.notify_all();
    }

    fn ask_all(&self) {
        self.heartbeats.lock().values().for_each(|asked| asked.ask());
    }

    fn take_part(&self, members: &Membership, election_timeout: Duration) -> Result<(), StorageError> {
        let Some(me) = self.me.upgrade() else {
            return Err(StorageError::Closed);
        };
        self.server.storage.take_part(members, election_timeout, me)
    }

    fn copy(&self, wanted: WantedCopy) {
        let Some(me) = self.me.upgrade() else { return };
        if self.is_stopped() || self.is_copying.swap(true, Ordering::AcqRel) {
            return;
        }
        let spawned = std::thread::Builder::new()
            .name("initial-sync".to_owned())
            .spawn(move || me.make_copy(&wanted));
        if spawned.is_err() {
            self.is_copying.store(false, Ordering::Release);
        }
    }

    fn force(&self, configuration: &Document) -> Result<(), String> {
        let fs = &*self.server.env.fs;
        data_directory::force_configuration(fs, &self.copying.data, configuration)
            .map_err(|error| error.to_string())?;
        self.events
            .send(Event::Restart)
            .map_err(|_| "the server ends".to_owned())
    }

    fn keep_oplog_retention(&self, bytes: u64, time: Duration) -> Result<(), String> {
        let retention = Retention { bytes, time };
        let fs = &*self.server.env.fs;
        data_directory::keep_oplog_retention(fs, &self.copying.data, retention).map_err(|error| error.to_string())
    }

    fn connections(&self) -> Vec<MemberConnections> {
        self.dialer.outgoing.figures()
    }

    fn drop_connections(&self, hosts: &[String]) {
        self.dialer.outgoing.drop_all(hosts);
    }

    fn want(&self, primary: u64, time: ClusterTime) {
        if let Some(sender) = self.senders.lock().get(&primary) {
            sender.want(time.0);
        }
    }
}

impl Outlet for Members {
    fn send(&self, messages: Vec<Message>) {
        let senders = self.senders.lock();
        for message in messages {
            if let Some(sender) = senders.get(&message.to())
                && let Ok(bytes) = message.encode()
            {
                sender.push(bytes);
            }
        }
    }

    fn standing_changed(&self, standing: &Standing) {
        self.leader.store(standing.leader.unwrap_or(0), Ordering::Release);
        self.server.standing_changed(standing);
        // Others hear of it at once: the state that they show is not long out of date.
        self.ask_all();
    }

    fn configuration_changed(&self) {
        self.rung.lock().configuration_changed = true;
        self.alarm.notify_all();
    }

    fn applied_more(&self) {
        self.applied
            .fetch_max(self.server.storage.last_seq().0, Ordering::AcqRel);
        let leader = self.leader.load(Ordering::Acquire);
        if let Some(sender) = self.senders.lock().get(&leader) {
            sender.tell();
        }
    }
}
