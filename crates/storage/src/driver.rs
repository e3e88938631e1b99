//! Consensus with other members: what the state machine of `repl` says is carried out on log and pipeline.
//!
//! Three threads. The *consensus* thread owns the state machine: it is told what arrived, that the log has grown, and
//! what is on disk; it appends what another leader sends, and applies what it proposed itself once that stays. The
//! *log-sync* thread waits for the disk, so that a leader's entries are on their way to others meanwhile. The
//! *follower* thread applies what others have appended (`follow.rs`). How messages travel is not known here
//! ([`Outlet`]).
//!
//! A leader that is one no more forgets what it has proposed and not committed: nothing of it is in the engine. Whoever
//! waits for such an entry is told that its outcome is not known. If a majority has it, it comes back by the log.

use crate::background::Alarm;
use crate::effect::Effect;
use crate::entry::{EntryReader, EntryWriter};
use crate::follow::Follower;
use crate::limits::{FULL_DISK_PAUSE, WAIT_SLICE};
use crate::membership::Membership;
use crate::operation::Operation;
use crate::pipeline::Leads;
use crate::standing::{MemberProgress, Standing};
use crate::storage::Storage;
use crate::voter::{Event, Inbox, Voter, begin_with};
use crate::{KillFlag, StorageError};
use bson::rawdoc;
use bytes::Bytes;
use engine::Seq;
use oplog::LogError;
use parking_lot::Mutex;
use repl::{Elected, Message, Outputs, ReplError, Role, Unsynced};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of entries that one message carries at most, beyond one entry: far below what a message may have.
const FILLED_BYTES_MAX: usize = 16 << 20;

/// How often a member that applies with a delay, or waits for space, looks whether the time has come.
const DELAY_STEP: Duration = Duration::from_millis(250);

/// Where messages leave, and who hears of what changed. Called on the consensus thread: nothing here may wait.
pub trait Outlet: Send + Sync {
    /// To be brought to the members that they are for, in order; they may be lost.
    fn send(&self, messages: Vec<Message>);

    /// Role, term or leader are others.
    fn standing_changed(&self, standing: &Standing);

    /// The document of `local.system.replset` changed, as it is applied.
    fn configuration_changed(&self);

    /// Readers see more of what the leader wrote: it may wait for that.
    fn applied_more(&self);
}

/// What waits for the disk.
#[derive(Default)]
struct Unwritten {
    waiting: Mutex<Vec<(Seq, Unsynced)>>,
    alarm: Arc<Alarm>,
}

/// The consensus thread.
struct Driver {
    storage: Arc<Storage>,
    inbox: Arc<Inbox>,
    outlet: Arc<dyn Outlet>,
    member: Voter,
    own: u64,
    /// As [`Storage::leads`], or draining.
    leads: Leads,
    /// Its term's first entry, while it leads.
    first: Seq,
    unwritten: Arc<Unwritten>,
    /// Of those that wait for the disk.
    syncing: usize,
    follower: Arc<Alarm>,
    /// Requests to stand for election that came too early.
    asked_to_stand: Vec<Message>,
    applied_by_others: Vec<(u64, Seq)>,
    /// The entry whose members are those of `member`, as [`Inbox::members_at`] has it; `None` before the first turn.
    members_at: Option<Seq>,
    /// What it had in its log at the start, as far as nobody took it back: up to there it may have shown entries
    /// before, whose commit it does not remember.
    shown: Seq,
}

impl Storage {
    /// Takes part in consensus with other members from here on, as `members` says. A server that decided alone goes on
    /// as the leader of its term. `election_timeout` is the shortest time without a sign of life after which a
    /// follower stands for election.
    ///
    /// # Errors
    /// This server is no member; its log contradicts what is applied.
    pub fn take_part(
        self: &Arc<Self>,
        members: &Membership,
        election_timeout: Duration,
        outlet: Arc<dyn Outlet>,
    ) -> Result<(), StorageError> {
        let Some(own) = members.own else {
            return Err(StorageError::InvalidOptions("this server is no member".to_owned()));
        };
        let inbox = Arc::new(Inbox::default());
        inbox.may_stand.store(true, Ordering::Release);
        inbox.set_tick(election_timeout);
        // Before the first turn: whoever asks who this is must not hear of nobody.
        inbox.standing.lock().id = own;
        let mut voter = self.consensus.voter.lock();
        let (member, leads) = match voter.take() {
            Some(mut member) => {
                self.tell_durable(&mut member)?;
                self.begin_to_await()?;
                (member, Leads::Yes)
            }
            None => {
                self.wait_for_leader();
                let begun = begin_with(self.log.clone(), own, members, self.last_seq(), self.env.random.clone());
                (begun.map_err(|error| self.consensus_failed(&error))?, Leads::No)
            }
        };
        assert!(self.consensus.connect(inbox.clone()), "others take part once");
        self.pipeline
            .committed
            .fetch_max(member.committed().0, Ordering::AcqRel);
        drop(voter);
        let unwritten = Arc::new(Unwritten::default());
        let follower = Arc::new(Alarm::default());
        let driver = Driver {
            storage: self.clone(),
            inbox: inbox.clone(),
            outlet: outlet.clone(),
            member,
            own,
            leads,
            first: self.last_seq(),
            unwritten: unwritten.clone(),
            syncing: 0,
            follower: follower.clone(),
            asked_to_stand: Vec::new(),
            applied_by_others: Vec::new(),
            members_at: None,
            shown: if leads == Leads::Yes {
                Seq::ZERO
            } else {
                self.log.last_seq()
            },
        };
        let alarm = inbox.alarm.clone();
        self.keep_thread("consensus", Some(alarm), None, move || driver.run());
        let (me, alarm, told) = (self.clone(), unwritten.alarm.clone(), inbox.clone());
        self.keep_thread("log-sync", Some(alarm), None, move || sync(&me, &unwritten, &told));
        let (me, alarm, kill) = (self.clone(), follower.clone(), Arc::<KillFlag>::default());
        let of_thread = kill.clone();
        self.keep_thread("follower", Some(alarm), Some(kill), move || {
            follow(&me, &follower, of_thread, &inbox, &*outlet);
        });
        Ok(())
    }

    /// From here on what is proposed takes effect when others have it.
    fn begin_to_await(&self) -> Result<(), StorageError> {
        let _order = self.pipeline.order.lock();
        let mut applied = self.pipeline.applying.lock();
        self.apply_committed(&mut applied)?;
        self.pending.begin_use();
        self.pipeline.await_commits();
        Ok(())
    }

    /// A message from another member, which had applied entries up to `applied` when it sent it.
    pub fn receive(&self, message: Option<Message>, from: u64, applied: Seq) {
        let Some(inbox) = self.consensus.link() else { return };
        {
            let mut standing = inbox.standing.lock();
            if let Some(member) = standing.progress.iter_mut().find(|member| member.id == from) {
                member.applied = member.applied.max(applied);
                inbox.standing_changed.notify_all();
            }
        }
        if let Some(message) = message {
            inbox.push(Event::Message(message));
        }
    }

    /// What this member knows of itself and the others; `None` when it decides alone.
    pub fn standing(&self) -> Option<Standing> {
        self.consensus.link().map(|inbox| inbox.standing.lock().clone())
    }

    /// Changes the shortest time without a sign of life after which a follower stands for election.
    pub fn set_election_timeout(&self, election_timeout: Duration) {
        if let Some(inbox) = self.consensus.link() {
            inbox.set_tick(election_timeout);
        }
    }

    /// Whether this member may stand for election.
    pub fn set_may_stand(&self, may_stand: bool) {
        if let Some(inbox) = self.consensus.link() {
            inbox.may_stand.store(may_stand, Ordering::Release);
            inbox.alarm.ring();
        }
    }

    /// Hands leadership over to another member.
    pub fn transfer_leadership(&self, id: u64) {
        self.ask(Event::Transfer(id));
    }

    /// Leads no more, until the next election.
    pub fn give_leadership_up(&self) {
        self.ask(Event::StepDown);
    }

    /// Stands for election without waiting for a time-out.
    pub fn campaign(&self) {
        self.ask(Event::Campaign);
    }

    fn ask(&self, event: Event) {
        if let Some(inbox) = self.consensus.link() {
            inbox.push(event);
        }
    }

    /// Waits until what is known of the others is enough, as long as the operation may, and not beyond `until`
    /// (monotonic). Answers whether it is enough. Not where this server decides alone: there it always is.
    ///
    /// # Errors
    /// The operation was interrupted; the storage has stopped.
    pub fn wait_members(
        &self,
        op: &Operation,
        until: Option<Duration>,
        is_enough: &dyn Fn(&Standing) -> bool,
    ) -> Result<bool, StorageError> {
        let Some(inbox) = self.consensus.link() else {
            return Ok(true);
        };
        if is_enough(&inbox.standing.lock()) {
            return Ok(true);
        }
        let _asleep = vfs::asleep();
        let mut standing = inbox.standing.lock();
        while !is_enough(&standing) {
            op.check_now()?;
            self.check_running()?;
            let left = until.map_or(WAIT_SLICE, |until| until.saturating_sub(op.clock().monotonic()));
            if left.is_zero() {
                return Ok(false);
            }
            inbox.standing_changed.wait_for(&mut standing, left.min(WAIT_SLICE));
        }
        Ok(true)
    }

    /// Waits until no change of the members is on its way any more, as long as the operation may. Each is made from the
    /// one that is in force: two beside each other could differ by two votes, and have majorities that share nobody
    /// (Ongaro's dissertation, 4.1).
    ///
    /// # Errors
    /// The operation was interrupted; the change may have been lost with its leader; the storage has stopped.
    pub fn wait_members_in_force(&self, op: &Operation) -> Result<(), StorageError> {
        let epoch = self.pipeline.epoch();
        if let Some(change) = self.pipeline.change_of_members() {
            self.wait_applied_in(op, change, Some(epoch))?;
        }
        let has_taken = || self.consensus.link().is_none_or(|inbox| inbox.has_taken_members());
        self.wait_members(op, None, &|_| has_taken()).map(drop)
    }

    /// As [`Storage::wait_members_in_force`], for who has waited: it fails where it would have to wait again.
    pub(crate) fn check_no_members_change(&self) -> Result<(), StorageError> {
        let has_taken = self.consensus.link().is_none_or(|inbox| inbox.has_taken_members());
        match has_taken && self.pipeline.change_of_members().is_none() {
            true => Ok(()),
            false => Err(StorageError::MembersAreChanging),
        }
    }
}

fn sync(storage: &Storage, unwritten: &Unwritten, inbox: &Inbox) {
    while unwritten.alarm.wait(Duration::ZERO) {
        loop {
            let waiting = std::mem::take(&mut *unwritten.waiting.lock());
            let Some(last) = waiting.iter().map(|(seq, _)| *seq).max() else {
                break;
            };
            match storage.log.wait_durable(last) {
                Ok(()) => {}
                // Taken back meanwhile, which is on disk.
                Err(LogError::Truncated { .. } | LogError::NotAppended { .. }) => {}
                Err(LogError::OutOfSpace { .. }) => {
                    unwritten.waiting.lock().splice(0..0, waiting);
                    if !unwritten.alarm.wait(FULL_DISK_PAUSE) {
                        return;
                    }
                    continue;
                }
                Err(error) => {
                    storage.log_error(error);
                    return;
                }
            }
            let events = waiting.into_iter().map(|(_, unsynced)| Event::Persisted(unsynced));
            inbox.events.lock().extend(events);
            inbox.alarm.ring();
        }
    }
}

fn follow(storage: &Storage, alarm: &Alarm, kill: Arc<KillFlag>, inbox: &Inbox, outlet: &dyn Outlet) {
    let mut follower = Follower::new(storage, kill);
    let until_rung = |follower: &Follower| {
        let asks_again = storage.is_delayed() || storage.is_full() || follower.waits_for_descriptors();
        if asks_again { DELAY_STEP } else { Duration::ZERO }
    };
    while alarm.wait(until_rung(&follower)) {
        loop {
            match follower.follow(storage) {
                Ok(true) => {
                    inbox.alarm.ring();
                    outlet.applied_more();
                }
                Ok(false) => {
                    if follower.waits_for_time() && !inbox.waits_for_time.swap(true, Ordering::AcqRel) {
                        inbox.alarm.ring();
                    }
                    break;
                }
                Err(error) => {
                    // A member that went on would say for ever that it has what it does not show.
                    if storage.check_running().is_ok() {
                        storage.stop(&format!("what other members wrote cannot be applied: {error}"));
                    }
                    return;
                }
            }
        }
    }
}

impl Driver {
    fn run(mut self) {
        let clock = self.storage.env.clock.clone();
        let mut due = clock.monotonic() + self.inbox.tick();
        let alarm = self.inbox.alarm.clone();
        while alarm.wait(due.saturating_sub(clock.monotonic()).max(Duration::from_millis(1))) {
            let is_time = clock.monotonic() >= due;
            if is_time {
                // One at a time: a process that stood still listens before it takes others for silent.
                due = clock.monotonic() + self.inbox.tick();
            }
            if let Err(error) = self.turn(is_time) {
                if self.storage.check_running().is_ok() {
                    self.storage.stop(&format!("consensus failed: {error}"));
                }
                return;
            }
        }
    }

    fn turn(&mut self, is_time: bool) -> Result<(), StorageError> {
        self.take_members()?;
        self.member.set_may_stand(self.may_stand());
        let events = std::mem::take(&mut *self.inbox.events.lock());
        for message in std::mem::take(&mut self.asked_to_stand) {
            self.receive(message)?;
        }
        for event in events {
            match event {
                Event::Message(message) => self.receive(message)?,
                Event::Persisted(unsynced) => {
                    self.syncing -= 1;
                    let messages = self.member.persisted(unsynced);
                    self.send(messages);
                }
                Event::Transfer(id) => self.member.transfer_to(id),
                Event::StepDown => self.member.step_down(),
                Event::Campaign if self.may_stand() => match self.member.campaign() {
                    // It is asked again, if it is still wanted.
                    Ok(()) | Err(ReplError::Unsynced) => {}
                    Err(error) => return Err(self.storage.consensus_failed(&error)),
                },
                Event::Campaign => {}
            }
            // Some of them make a leader a follower, whose outputs are another's.
            self.settle()?;
        }
        if is_time {
            self.member.set_may_stand(self.may_stand());
            self.member
                .tick()
                .map_err(|error| self.storage.consensus_failed(&error))?;
            self.settle()?;
        }
        if self.member.role() == Role::Leader {
            let last = self.storage.log.last_seq();
            let told = self.member.wrote(last);
            told.map_err(|error| self.storage.consensus_failed(&error))?;
            self.settle()?;
        }
        self.member.applied(self.storage.reached().min(self.member.committed()));
        self.open()?;
        self.tell();
        Ok(())
    }

    /// Whether what it knows to stay is applied, and its members are those of that: whoever stands for election knows
    /// all that stays, and asks those who vote by it. (Of several changes of members that it has not taken up it could
    /// win votes that are no majority any more.)
    fn is_caught_up(&self) -> bool {
        let is_applied = self.storage.reached() >= self.member.committed();
        // In this order: what is applied has been told.
        is_applied && self.members_at >= Some(self.inbox.members_at())
    }

    fn may_stand(&self) -> bool {
        self.inbox.may_stand.load(Ordering::Acquire) && self.is_caught_up()
    }

    fn receive(&mut self, message: Message) -> Result<(), StorageError> {
        // Who must not stand is not made the leader by another one's wish either.
        if message.asks_to_stand() && !self.inbox.may_stand.load(Ordering::Acquire) {
            return Ok(());
        }
        if message.asks_to_stand() && !self.is_caught_up() {
            self.asked_to_stand.push(message);
            return Ok(());
        }
        let received = self.member.receive(message);
        received.map_err(|error| self.storage.consensus_failed(&error))
    }

    /// The members as they are applied, if they changed.
    fn take_members(&mut self) -> Result<(), StorageError> {
        let at = self.inbox.members_at();
        // Whoever installs the collection that has them rings for another turn.
        if self.members_at >= Some(at) || self.storage.pipeline.installed() < at {
            return Ok(());
        }
        let Some(members) = self.storage.membership()? else {
            return Ok(());
        };
        self.members_at = Some(at);
        let changed = self.member.change_members(&members.voters, &members.learners);
        changed.map_err(|error| self.storage.consensus_failed(&error))?;
        self.inbox.took_members(at);
        self.settle()?;
        // After a crash it must not ask members for their votes who are gone.
        let state = self.member.state_with_commit();
        self.persist(|log| log.write_state(state))?;
        self.outlet.configuration_changed();
        Ok(())
    }

    /// Carries out what the state machine says, until it says nothing.
    fn settle(&mut self) -> Result<(), StorageError> {
        loop {
            if self.member.role() != Role::Leader && self.leads != Leads::No {
                self.lose_leadership()?;
            }
            let Some(outputs) = self.member.outputs() else {
                return Ok(());
            };
            self.carry_out(outputs)?;
        }
    }

    fn carry_out(&mut self, outputs: Outputs) -> Result<(), StorageError> {
        let log = &self.storage.log;
        if let Some(from) = outputs.take_back_from {
            self.shown = self.shown.min(Seq(from.0 - 1));
            self.persist(|log| log.truncate(from))?;
        }
        if let Some(state) = outputs.state {
            self.persist(|log| log.write_state(state))?;
        }
        for entry in outputs.entries {
            if entry.seq > log.last_seq() {
                self.persist(|log| {
                    log.wait_for_room()?;
                    log.append_at(entry.seq, entry.term, &[&entry.bytes])
                })?;
            }
        }
        if let Some(elected) = outputs.elected {
            self.begin_term(elected)?;
        }
        self.send(outputs.messages);
        let unsynced = self.member.written();
        let log = &self.storage.log;
        let last = log.last_seq();
        if self.syncing == 0 && log.durable_seq() >= last {
            let messages = self.member.persisted(unsynced);
            self.send(messages);
        } else {
            self.syncing += 1;
            self.unwritten.waiting.lock().push((last, unsynced));
            self.unwritten.alarm.ring();
        }
        self.commit(outputs.committed)
    }

    /// Writes to the log, however long the disk is full.
    fn persist(&self, mut write: impl FnMut(&oplog::Log) -> Result<(), LogError>) -> Result<(), StorageError> {
        loop {
            match write(&self.storage.log) {
                Ok(()) => return Ok(()),
                Err(LogError::OutOfSpace { .. } | LogError::BufferFull { .. }) => {
                    self.storage.check_running()?;
                    #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
                    std::thread::sleep(FULL_DISK_PAUSE);
                }
                Err(error) => return Err(self.storage.log_error(error)),
            }
        }
    }

    fn commit(&mut self, committed: Seq) -> Result<(), StorageError> {
        let pipeline = &self.storage.pipeline;
        let before = pipeline.committed.fetch_max(committed.0, Ordering::AcqRel);
        if committed.0 <= before {
            return Ok(());
        }
        match pipeline.is_drained() && self.leads != Leads::No {
            true => self.storage.apply_committed(&mut pipeline.applying.lock()),
            false => {
                self.follower.ring();
                Ok(())
            }
        }
    }

    /// Appends the first entry of a term that this member has won.
    fn begin_term(&mut self, elected: Elected) -> Result<(), StorageError> {
        let storage = self.storage.clone();
        let mut order = storage.pipeline.order.lock();
        // Times go on from what is in the log, applied or not.
        let last = storage.log.last_seq();
        let newest = storage
            .log
            .read_appended(last)
            .map_err(|error| storage.log_error(error))?
            .next();
        if let Some(entry) = newest {
            let (seq, bytes) = entry.map_err(|error| storage.log_error(error))?;
            order.saw_time(EntryReader::new(seq, &bytes)?.header().time.cluster);
        }
        order.new_term = Some(elected.term);
        let mut applied = storage.pipeline.applying.lock();
        storage.pipeline.queue_from.store(elected.first.0, Ordering::Release);
        storage.set_leads(&mut order.leads, Leads::Draining);
        self.leads = Leads::Draining;
        self.first = elected.first;
        loop {
            let mut entry = EntryWriter::default();
            entry.note(&rawdoc! { "msg": "new primary" });
            match storage.propose_under(&mut order, &mut applied, &mut entry, Effect::default()) {
                Ok(seq) => {
                    assert_eq!(seq, elected.first, "the term's first entry");
                    return Ok(());
                }
                Err(StorageError::OutOfSpace(_)) => {
                    storage.check_running()?;
                    order.new_term = Some(elected.term);
                    #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
                    std::thread::sleep(FULL_DISK_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets others write, once all before this term is applied.
    fn open(&mut self) -> Result<(), StorageError> {
        if self.leads != Leads::Draining {
            return Ok(());
        }
        let storage = self.storage.clone();
        if storage.pipeline.is_drained() {
            storage.apply_committed(&mut storage.pipeline.applying.lock())?;
        } else {
            self.follower.ring();
        }
        if storage.pipeline.installed() >= self.first {
            let mut order = storage.pipeline.order.lock();
            // Of entries that were lost the numbers are to come once more; no transaction of before can be committed.
            storage.locks.forget_changes();
            storage.pipeline.begin_to_lead();
            storage.set_leads(&mut order.leads, Leads::Yes);
            drop(order);
            self.leads = Leads::Yes;
            storage.resume_index_builds()?;
        }
        Ok(())
    }

    /// What was proposed and does not stay yet is forgotten: another leader decides about it.
    fn lose_leadership(&mut self) -> Result<(), StorageError> {
        let storage = &self.storage;
        let pipeline = &storage.pipeline;
        let mut order = pipeline.order.lock();
        let mut applied = pipeline.applying.lock();
        storage.apply_committed(&mut applied)?;
        let drained = pipeline.is_drained();
        storage.set_leads(&mut order.leads, Leads::No);
        order.new_term = None;
        pipeline.queue.lock().clear();
        storage.pending.clear();
        storage.sessions.clear_proposed();
        if drained {
            pipeline.followed.store(storage.last_seq().0, Ordering::Release);
            pipeline
                .follow_from
                .store(storage.last_seq().next().0, Ordering::Release);
        }
        pipeline.cease_to_lead();
        pipeline.queue_from.store(u64::MAX, Ordering::Release);
        // Counts that were on their way into the table may not have got there.
        for collection in storage.catalog.all_collections() {
            applied.counts_changed(&collection);
        }
        self.leads = Leads::No;
        // What waits behind a barrier is refused.
        storage.unblocked.notify_all();
        drop((order, applied));
        pipeline.wake();
        self.follower.ring();
        Ok(())
    }

    /// Lets messages go, with what their entries say.
    fn send(&self, mut messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        messages.retain_mut(|message| {
            self.fill(message).unwrap_or_else(|error| {
                let is_gone = matches!(
                    error,
                    LogError::Truncated { .. } | LogError::NotAppended { .. } | LogError::Purged { .. }
                );
                // No descriptor is left: as if it were lost on its way.
                let passes = matches!(error, LogError::OutOfSpace { .. });
                if !is_gone && !passes && self.storage.check_running().is_ok() {
                    self.storage
                        .stop(&format!("what others are to be sent cannot be read: {error}"));
                }
                false
            })
        });
        self.outlet.send(messages);
    }

    /// False when there is nothing to be said.
    ///
    /// # Errors
    /// The log does not have its entries any more, as when they were taken back, or cannot be read.
    fn fill(&self, message: &mut Message) -> Result<bool, LogError> {
        let Some((first, count)) = message.unfilled() else {
            return Ok(true);
        };
        let mut said: Vec<Bytes> = Vec::with_capacity(count);
        let mut bytes_left = FILLED_BYTES_MAX;
        for entry in self.storage.log.read_appended(first)?.take(count) {
            let bytes = match entry {
                Ok((_, bytes)) => bytes,
                Err(_) if !said.is_empty() => break,
                Err(error) => return Err(error),
            };
            if !said.is_empty() && bytes.len() > bytes_left {
                break;
            }
            bytes_left = bytes_left.saturating_sub(bytes.len());
            said.push(bytes);
        }
        message.keep(said.len());
        let place = |seq: Seq| (seq.0 - first.0) as usize;
        message.fill(|seq| said.get(place(seq)).cloned().unwrap_or_default());
        Ok(!said.is_empty())
    }

    /// Tells others what it is now.
    fn tell(&mut self) {
        let first = self.storage.log.first_seq();
        if self.inbox.waits_for_time.load(Ordering::Acquire) {
            // What its log has beyond that it did not show before either.
            self.shown = Seq::ZERO;
        }
        let mut standing = self.inbox.standing.lock();
        self.applied_by_others.clear();
        self.applied_by_others
            .extend(standing.progress.iter().map(|member| (member.id, member.applied)));
        let leads = self.member.role() == Role::Leader;
        let progress = if leads { self.member.progress() } else { Vec::new() };
        let applied = |id: u64| self.applied_by_others.iter().find(|(of, _)| *of == id);
        let now = Standing {
            id: self.own,
            role: self.member.role(),
            is_writable: self.leads == Leads::Yes,
            is_caught_up: self.storage.reached() >= self.shown,
            term: self.member.term(),
            leader: self.member.leader(),
            left_behind: progress
                .iter()
                .filter(|member| member.next < first)
                .map(|member| member.id)
                .collect(),
            progress: progress
                .iter()
                .map(|member| MemberProgress {
                    id: member.id,
                    durable: member.matched,
                    applied: applied(member.id).map_or(Seq::ZERO, |(_, applied)| *applied),
                })
                .collect(),
        };
        let differs = now.differs(&standing);
        *standing = now.clone();
        drop(standing);
        self.inbox.standing_changed.notify_all();
        if differs {
            self.outlet.standing_changed(&now);
        }
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
