//! Consensus with other members: what the state machine of `repl` says is carried out on log and pipeline.
//!
//! Three threads. The *consensus* thread owns the state machine: it is told what arrived, that the log has grown, and
//! what is on disk; it appends what another leader sends, and applies what it proposed itself once that stays. The
//! *log-sync* thread waits for the disk (`log_sync.rs`). The *follower* thread applies what others have appended
//! (`follow.rs`). How messages travel is not known here ([`Outlet`]); `requests.rs` is how others ask for something.
//!
//! A leader that is one no more forgets what it has proposed and not committed: nothing of it is in the engine. Whoever
//! waits for such an entry is told that its outcome is not known. If a majority has it, it comes back by the log.

use crate::background::Alarm;
use crate::effect::Effect;
use crate::entry::{EntryReader, EntryWriter};
use crate::follow::Follower;
use crate::limits::FULL_DISK_PAUSE;
use crate::log_sync::{Unwritten, sync};
use crate::membership::Membership;
use crate::pipeline::Leads;
use crate::standing::{ElectionReason, MemberProgress, Standing};
use crate::storage::Storage;
use crate::voter::{Event, Inbox, Voter, begin_with, read_some};
use crate::{KillFlag, StorageError};
use bson::rawdoc;
use engine::Seq;
use oplog::LogError;
use repl::{Elected, Message, Outputs, ReplError, Role};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of entries that one message carries at most, beyond one entry: far below what a message may have.
const FILLED_BYTES_MAX: u64 = 16 << 20;

/// How often a member that applies with a delay, or waits for space, looks whether the time has come.
const DELAY_STEP: Duration = Duration::from_millis(250);

/// Leadership that is handed over is kept when nobody has taken it after so long: writers wait meanwhile. So long who
/// was asked to take it may put that off.
pub const TRANSFER_PATIENCE: Duration = Duration::from_secs(1);

/// A member that has shown entries before it was started, and does not know yet that they stay, shows what it knows to
/// stay after so many election time-outs without a leader.
const LEADERLESS_TIMEOUTS: u32 = 2;

/// Bytes of entries that are kept in memory for as long as the log stays as it is. What comes beyond that is forgotten:
/// the leader sends it again.
const KEPT_BYTES_MAX: usize = 16 << 20;

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
    /// A request to stand for election that came too early, and when it is over.
    asked_to_stand: Option<(Message, Duration)>,
    /// To whom leadership is being handed over, and since when.
    heir: Option<(u64, Duration)>,
    /// Why it is, while this member leads.
    hands_over_for: ElectionReason,
    /// Why this member stood for election last.
    stands_for: ElectionReason,
    /// Entries that are to be appended when the log need not stay as it is any more, each message behind the one
    /// before, and how long they are.
    kept: Vec<Message>,
    kept_bytes: usize,
    /// When it last heard of its leader, or led.
    led_until: Duration,
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
                let begun = begin_with(
                    self.log_history(),
                    own,
                    members,
                    self.last_seq(),
                    self.env.random.clone(),
                );
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
            asked_to_stand: None,
            heir: None,
            hands_over_for: ElectionReason::StepUp,
            stands_for: ElectionReason::Timeout,
            kept: Vec::new(),
            kept_bytes: 0,
            led_until: self.env.clock.monotonic(),
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
        self.take_up_kept()?;
        for event in events {
            match event {
                Event::Message(message) => self.receive(message)?,
                Event::Persisted(unsynced) => {
                    self.syncing -= 1;
                    let messages = self.member.persisted(unsynced);
                    self.send(messages);
                }
                Event::Transfer(id, reason) => {
                    self.hands_over_for = reason;
                    self.member.transfer_to(id);
                }
                Event::StepDown => self.member.step_down(),
                Event::Campaign if self.may_stand() && self.member.role() != Role::Leader => {
                    self.stands_for = ElectionReason::StepUp;
                    match self.member.campaign() {
                        // It is asked again, if it is still wanted.
                        Ok(()) | Err(ReplError::Unsynced) => {}
                        Err(error) => return Err(self.storage.consensus_failed(&error)),
                    }
                }
                Event::Campaign => {}
                Event::Barrier(number) => {
                    // Who is elected appends an entry: it withdraws.
                    self.member.set_may_stand(self.may_stand());
                    self.inbox.barriers_heard.fetch_max(number, Ordering::AcqRel);
                }
            }
            // Some of them make a leader a follower, whose outputs are another's.
            self.settle()?;
        }
        if is_time {
            self.member.set_may_stand(self.may_stand());
            let before = self.member.role();
            self.member
                .tick()
                .map_err(|error| self.storage.consensus_failed(&error))?;
            if before == Role::Follower && self.member.role() != Role::Follower {
                self.stands_for = ElectionReason::Timeout;
            }
            self.settle()?;
        }
        self.end_late_transfer();
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

    /// Whether nothing forbids it to lead. Who holds writes back would take none.
    fn is_electable(&self) -> bool {
        self.inbox.may_stand.load(Ordering::Acquire) && !self.storage.holds_writes_back()
    }

    fn may_stand(&self) -> bool {
        self.is_electable() && self.is_caught_up()
    }

    fn now(&self) -> Duration {
        self.storage.env.clock.monotonic()
    }

    fn receive(&mut self, message: Message) -> Result<(), StorageError> {
        if message.asks_to_stand() {
            // Who must not stand is not made the leader by another one's wish either.
            if !self.is_electable() {
                return Ok(());
            }
            if !self.is_caught_up() {
                self.asked_to_stand = Some((message, self.now() + TRANSFER_PATIENCE));
                return Ok(());
            }
            if self.member.role() != Role::Leader {
                self.stands_for = ElectionReason::of_number(message.reason());
            }
        }
        if self.storage.keeps_log_still()
            && let Some(follows) = message.follows()
        {
            let bytes = message.entry_bytes();
            // The leader would send from its first entry anew what cannot be taken, again and again.
            if bytes == 0 && follows > self.member.last() {
                return Ok(());
            }
            if bytes > 0 {
                let is_new = self.kept.last().is_none_or(|last| last.follows() < Some(follows));
                if is_new && self.kept_bytes + bytes <= KEPT_BYTES_MAX {
                    self.kept_bytes += bytes;
                    self.kept.push(message);
                }
                return Ok(());
            }
        }
        let sign_of = message.is_of_leader().then(|| message.from());
        let received = self.member.receive(message);
        // Who never stands for election does not forget a leader that is silent.
        if sign_of.is_some() && self.member.leader() == sign_of {
            self.led_until = self.now();
        }
        received.map_err(|error| self.storage.consensus_failed(&error))
    }

    /// What came too early, if its time has come.
    fn take_up_kept(&mut self) -> Result<(), StorageError> {
        if let Some((message, until)) = self.asked_to_stand.take()
            && self.now() < until
        {
            match self.is_caught_up() {
                true => self.receive(message)?,
                false => self.asked_to_stand = Some((message, until)),
            }
            self.settle()?;
        }
        if self.kept.is_empty() || self.storage.keeps_log_still() {
            return Ok(());
        }
        self.kept_bytes = 0;
        for message in std::mem::take(&mut self.kept) {
            self.receive(message)?;
            self.settle()?;
        }
        Ok(())
    }

    /// No entries are sent while leadership is being handed over: that ends when nobody takes it.
    fn end_late_transfer(&mut self) {
        let now = self.now();
        let heir = self.member.heir();
        let begun = self.heir.filter(|(id, _)| Some(*id) == heir);
        self.heir = heir.map(|id| begun.unwrap_or((id, now)));
        if let Some((_, since)) = self.heir
            && now.saturating_sub(since) >= TRANSFER_PATIENCE
        {
            self.member.end_transfer();
            self.heir = None;
        }
        if self.heir.is_none() {
            self.hands_over_for = ElectionReason::StepUp;
        }
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

    /// Writes to the log, however long the disk is full or no descriptor is left.
    fn persist(&self, mut write: impl FnMut(&oplog::Log) -> Result<(), LogError>) -> Result<(), StorageError> {
        loop {
            match write(&self.storage.log) {
                Ok(()) => return Ok(()),
                Err(error) if error.passes() || matches!(error, LogError::BufferFull { .. }) => {
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
            // Refused for want of room it would leave the set without a leader.
            entry.for_checkpoint = true;
            match storage.propose_under(&mut order, &mut applied, &mut entry, Effect::default()) {
                Ok(seq) => {
                    assert_eq!(seq, elected.first, "the term's first entry");
                    return Ok(());
                }
                Err(error) if error.passes() => {
                    storage.check_running()?;
                    order.new_term = Some(elected.term);
                    // The checkpoint that makes room needs both. Nobody else appends before the term's first entry.
                    drop((order, applied));
                    #[expect(clippy::disallowed_methods, reason = "there is nothing to be woken by")]
                    std::thread::sleep(FULL_DISK_PAUSE);
                    order = storage.pipeline.order.lock();
                    applied = storage.pipeline.applying.lock();
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
        pipeline.clear_queue();
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
            if message.asks_to_stand() {
                message.set_reason(self.hands_over_for as u8);
            }
            self.fill(message).unwrap_or_else(|error| {
                let is_gone = matches!(
                    error,
                    LogError::Truncated { .. } | LogError::NotAppended { .. } | LogError::Purged { .. }
                );
                // No descriptor is left: as if it were lost on its way.
                let passes = matches!(error, LogError::NoDescriptors { .. });
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
        let history = self.storage.log_history();
        let said = history.read(first, |log| read_some(log, first, count, FILLED_BYTES_MAX))?;
        message.keep(said.len());
        let place = |seq: Seq| (seq.0 - first.0) as usize;
        message.fill(|seq| said.get(place(seq)).cloned().unwrap_or_default());
        Ok(!said.is_empty())
    }

    /// Whether the term of the entry before the log's first one is in damage that was stepped over: without it nobody
    /// can be sent entries from the first one on.
    fn lacks_term_before(&self, first: Seq) -> bool {
        let before = Seq(first.0.saturating_sub(1));
        matches!(self.storage.log.term_of(before), Err(LogError::Purged { .. }))
    }

    /// Tells others what it is now.
    fn tell(&mut self) {
        let first = self.storage.log.first_seq();
        if self.inbox.waits_for_time.load(Ordering::Acquire) {
            // What its log has beyond that it did not show before either.
            self.shown = Seq::ZERO;
        }
        // Nobody can tell what else stays of what it has: it may be all that there is left to read.
        let now = self.now();
        if self.member.role() == Role::Leader {
            self.led_until = now;
        } else if now.saturating_sub(self.led_until) >= self.inbox.election_timeout() * LEADERLESS_TIMEOUTS {
            self.shown = self.shown.min(self.member.committed());
        }
        let leads = self.member.role() == Role::Leader;
        let progress = if leads { self.member.progress() } else { Vec::new() };
        let left_behind = progress
            .iter()
            .filter(|member| member.next < first || member.next == first && self.lacks_term_before(first))
            .map(|member| member.id)
            .collect();
        let mut standing = self.inbox.standing.lock();
        self.applied_by_others.clear();
        self.applied_by_others
            .extend(standing.progress.iter().map(|member| (member.id, member.applied)));
        let applied = |id: u64| self.applied_by_others.iter().find(|(of, _)| *of == id);
        let now = Standing {
            id: self.own,
            role: self.member.role(),
            is_writable: self.leads == Leads::Yes,
            is_caught_up: self.storage.reached() >= self.shown,
            term: self.member.term(),
            leader: self.member.leader(),
            reason: self.stands_for,
            left_behind,
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
