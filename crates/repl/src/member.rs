//! One member's state machine.

use crate::log_view::View;
use crate::message::{Entry, Message};
use crate::{LogView, ReplError};
use engine::Seq;
use oplog::HardState;
use raft::eraftpb::{self, ConfChange, ConfChangeType, MessageType};
use raft::{NO_LIMIT, RawNode, Ready, StateRole};
use std::sync::Arc;
use vfs::Random;

/// Bytes of entries in one message, of those that are read from the log. Those that a leader has just written are
/// filled in and bounded where the message leaves.
const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Messages with entries on the way to one member.
const MESSAGES_IN_FLIGHT_MAX: usize = 64;

/// How a member starts.
#[derive(Clone)]
pub struct Config {
    /// Its number in the set, which is never another's: at least 1.
    pub id: u64,
    /// The members that vote.
    pub voters: Vec<u64>,
    /// Those that are sent the log and do not vote.
    pub learners: Vec<u64>,
    /// A follower that hears nothing for this many ticks, or up to half as many again, stands for election.
    pub election_ticks: usize,
    /// A leader says that it is alive every so many ticks.
    pub heartbeat_ticks: usize,
    /// Draws the election's time-outs.
    pub random: Arc<dyn Random>,
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Appends what a leader sends.
    Follower,
    /// Stands for election, or asks whether that has a prospect.
    Candidate,
    /// Appends what clients write.
    Leader,
}

/// This member has become the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elected {
    /// Of this term.
    pub term: u64,
    /// Its first entry, of its own making, goes here.
    pub first: Seq,
}

/// What is to be done, in this order. Then [`Member::written`] is told.
#[derive(Debug, Default)]
pub struct Outputs {
    /// Entries from here on leave the log.
    pub take_back_from: Option<Seq>,
    /// To be written into the log.
    pub state: Option<HardState>,
    /// To be appended.
    pub entries: Vec<Entry>,
    /// The log is to be given the leader's first entry.
    pub elected: Option<Elected>,
    /// To be sent, once they are filled.
    pub messages: Vec<Message>,
    /// Entries up to here stay: they can be applied.
    pub committed: Seq,
}

/// Something that is written and may not be on disk yet.
#[derive(Debug)]
#[must_use]
pub struct Unsynced {
    number: u64,
    messages: Vec<Message>,
}

/// See the crate.
pub struct Member<L: LogView> {
    node: RawNode<View<L>>,
    random: Arc<dyn Random>,
    /// What [`Member::outputs`] answered and nobody has carried out yet.
    in_hand: Option<Ready>,
    /// The newest number given out, and the newest that is on disk.
    written: u64,
    persisted: u64,
    /// What the last state written says.
    state: HardState,
    /// Role and term when the time-out was drawn.
    drawn_for: (StateRole, u64),
    timeout_ticks: usize,
    /// Ticks after which it stands anew where its election has no outcome, of which so many have passed.
    retry_ticks: usize,
    waited_ticks: usize,
    may_stand: bool,
}

/// What a leader knows of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Whose.
    pub id: u64,
    /// Its log agrees with this member's up to here, on its disk.
    pub matched: Seq,
    /// It is sent entries from here on.
    pub next: Seq,
}

/// A time-out that never passes.
const NEVER: usize = usize::MAX / 2;

impl<L: LogView> Member<L> {
    /// A member with its log as it was found on disk. `applied` is the last entry whose effect is on disk; whatever is
    /// applied has been committed.
    ///
    /// # Errors
    /// [`ReplError::Start`]: it is no member, or `applied` lies outside of the log.
    pub fn start(config: &Config, kept: Option<HardState>, applied: Seq, log: L) -> Result<Self, ReplError> {
        let (first, last) = (log.first(), log.last());
        let failed = |sentence: String| ReplError::Start(sentence);
        if !config.voters.contains(&config.id) && !config.learners.contains(&config.id) {
            return Err(failed(format!("{} is no member", config.id)));
        }
        if applied > last || applied.next() < first {
            return Err(failed(format!(
                "{applied:?} is applied, the log has {first:?} to {last:?}"
            )));
        }
        let mut state = kept.unwrap_or_default();
        let of_log = log.term(last).map_err(failed)?;
        if of_log > state.term {
            // Entries of a term that the state does not know, from a restored backup: it has not voted in that.
            state = HardState {
                term: of_log,
                vote: 0,
                ..state
            };
        }
        let alone = config.voters == [config.id];
        // All that the only voter has on disk is committed.
        let applied = if alone { last } else { applied };
        // A set begins with term 1: a vote is refused at term 0 by a message that the state machine itself takes for
        // broken. Who is alone asks nobody, and counts from the log's.
        if !alone {
            state.term = state.term.max(1);
        }
        // The commit position is not forced to disk, so an engine can be ahead of it.
        state.commit = state.commit.max(applied).min(last);
        let settings = raft::Config {
            id: config.id,
            election_tick: config.election_ticks,
            heartbeat_tick: config.heartbeat_ticks,
            max_election_tick: NEVER + 1,
            applied: applied.0,
            max_size_per_msg: MESSAGE_BYTES_MAX,
            max_inflight_msgs: MESSAGES_IN_FLIGHT_MAX,
            check_quorum: true,
            pre_vote: true,
            max_uncommitted_size: NO_LIMIT,
            ..raft::Config::default()
        };
        let view = View {
            log,
            first,
            last,
            state,
            voters: config.voters.clone(),
            learners: config.learners.clone(),
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&settings, view, &logger).map_err(|error| failed(error.to_string()))?;
        let mut member = Self {
            node,
            random: config.random.clone(),
            in_hand: None,
            written: 0,
            persisted: 0,
            state,
            drawn_for: (StateRole::Follower, 0),
            timeout_ticks: config.election_ticks,
            retry_ticks: config.election_ticks,
            waited_ticks: 0,
            may_stand: true,
        };
        member.draw_timeout(true);
        Ok(member)
    }

    /// Time goes on.
    ///
    /// # Errors
    /// The state machine refused.
    pub fn tick(&mut self) -> Result<(), ReplError> {
        self.expect_idle();
        if self.is_alone() && self.role() != Role::Leader && self.may_stand {
            return match self.persisted < self.written {
                true => Ok(()),
                false => self.campaign(),
            };
        }
        let stood = self.node.tick() && self.role() != Role::Leader;
        self.draw_timeout(stood);
        if !stood && self.role() == Role::Candidate && self.may_stand {
            self.waited_ticks += 1;
            if self.waited_ticks >= self.retry_ticks {
                return self.campaign();
            }
        }
        Ok(())
    }

    /// Stands for election now, unless it has no vote. Who is alone has won on return.
    ///
    /// # Errors
    /// [`ReplError::Unsynced`]: alone, with something that is not on disk.
    pub fn campaign(&mut self) -> Result<(), ReplError> {
        self.expect_idle();
        // Others vote after they were asked, and they are asked after a sync. Who is alone has to see to it itself.
        if self.is_alone() && self.persisted < self.written {
            return Err(ReplError::Unsynced);
        }
        if self.node.raft.promotable() {
            self.node.campaign()?;
            self.draw_timeout(true);
        }
        Ok(())
    }

    /// Whether it stands for election when it hears of no leader; who stands already withdraws. It votes for others all
    /// the same.
    pub fn set_may_stand(&mut self, may_stand: bool) {
        self.expect_idle();
        if self.may_stand != may_stand {
            self.may_stand = may_stand;
            if !may_stand && self.role() == Role::Candidate {
                self.follow_nobody();
            }
            self.draw_timeout(true);
        }
    }

    /// The members from here on; a change that an entry made which is applied. At most one comes to vote or ceases to,
    /// so that two majorities always share a member (Ongaro's dissertation, 4.1).
    ///
    /// # Errors
    /// The state machine refused.
    pub fn change_members(&mut self, voters: &[u64], learners: &[u64]) -> Result<(), ReplError> {
        self.expect_idle();
        let own = self.node.raft.id;
        // Elected, or standing for election, before it knew that it was dropped. A leader that has no progress of its
        // own is none to the state machine, and votes that are on their way must not make it one.
        let (votes, learns) = (voters.contains(&own), learners.contains(&own));
        if !votes && (!learns || self.role() == Role::Candidate) {
            self.follow_nobody();
        }
        let known = self.node.raft.prs().conf().to_conf_state();
        let mut changes = Vec::new();
        for &id in voters.iter().filter(|id| !known.voters.contains(id)) {
            changes.push((id, ConfChangeType::AddNode));
        }
        for &id in learners.iter().filter(|id| !known.learners.contains(id)) {
            changes.push((id, ConfChangeType::AddLearnerNode));
        }
        for &id in known.voters.iter().chain(&known.learners) {
            if !voters.contains(&id) && !learners.contains(&id) {
                changes.push((id, ConfChangeType::RemoveNode));
            }
        }
        for (id, kind) in changes {
            let mut change = ConfChange::default();
            change.set_change_type(kind);
            change.node_id = id;
            self.node.apply_conf_change(&change)?;
        }
        let view = self.node.mut_store();
        view.voters = voters.to_vec();
        view.learners = learners.to_vec();
        self.draw_timeout(false);
        Ok(())
    }

    /// What it knows of the others while it leads.
    pub fn progress(&self) -> Vec<Progress> {
        let own = self.node.raft.id;
        let others = self.node.raft.prs().iter().filter(|(id, _)| **id != own);
        let progress = others.map(|(&id, progress)| Progress {
            id,
            matched: Seq(progress.matched),
            next: Seq(progress.next_idx),
        });
        progress.collect()
    }

    /// The leader that it knows of.
    pub fn leader(&self) -> Option<u64> {
        Some(self.node.raft.leader_id).filter(|&id| id != raft::INVALID_ID)
    }

    /// Leads no more, until the next election.
    pub fn step_down(&mut self) {
        self.expect_idle();
        if self.role() == Role::Leader {
            self.follow_nobody();
        }
        self.draw_timeout(false);
    }

    fn follow_nobody(&mut self) {
        if self.role() != Role::Follower {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// Hands leadership to another member, if that catches up within an election's time-out.
    pub fn transfer_to(&mut self, id: u64) {
        self.expect_idle();
        self.node.transfer_leader(id);
        self.draw_timeout(false);
    }

    /// To whom leadership is being handed over. No entries are sent meanwhile.
    pub fn heir(&self) -> Option<u64> {
        self.node.raft.lead_transferee
    }

    /// Goes on leading. Who has been asked to take over may do so all the same.
    pub fn end_transfer(&mut self) {
        self.expect_idle();
        self.node.raft.abort_leader_transfer();
    }

    /// A message arrived.
    ///
    /// # Errors
    /// Entries could not be read. What makes no sense is ignored: a message may be late, or from nobody.
    pub fn receive(&mut self, message: Message) -> Result<(), ReplError> {
        self.expect_idle();
        if message.proposes() || raft::raw_node::is_local_msg(message.0.msg_type) {
            return Ok(());
        }
        let mut message = message.0;
        if message.msg_type == MessageType::MsgHeartbeat {
            // The leader goes by what this member acknowledged, maybe before its disk was put back to an older state.
            // A last entry of the leader's own term says that all of its log is the leader's; else there may be
            // entries that nobody agreed on. (Beyond the log's end the state machine would panic.)
            let log = &self.node.raft.raft_log;
            let sure = match log.last_term() == message.term {
                true => log.last_index(),
                false => log.committed,
            };
            message.commit = message.commit.min(sure);
        }
        let result = self.node.step(message);
        self.draw_timeout(false);
        match result {
            Err(raft::Error::Store(error)) => Err(raft::Error::Store(error).into()),
            // A peer that is not of the set, an answer to what is over.
            _ => Ok(()),
        }
    }

    /// The leader's log now reaches to `last`. Answers whether the entries are on their way: while leadership is handed
    /// over none are taken, and they are told again later, or taken back.
    ///
    /// # Errors
    /// [`ReplError::WrongTerm`]: an entry was not written by the leader of this term.
    pub fn wrote(&mut self, last: Seq) -> Result<bool, ReplError> {
        self.expect_idle();
        let (known, term) = (self.last().0, self.term());
        if self.role() != Role::Leader || last.0 <= known {
            return Ok(self.role() == Role::Leader);
        }
        for seq in known + 1..=last.0 {
            let of_log = self.node.store().log.term(Seq(seq)).map_err(ReplError::Protocol)?;
            if of_log != term {
                let seq = Seq(seq);
                return Err(ReplError::WrongTerm {
                    seq,
                    term: of_log,
                    expected: term,
                });
            }
        }
        let mut message = eraftpb::Message::default();
        message.set_msg_type(MessageType::MsgPropose);
        message.set_from(self.node.raft.id);
        let entries: Vec<_> = (known..last.0).map(|_| eraftpb::Entry::default()).collect();
        message.set_entries(entries.into());
        match self.node.raft.step(message) {
            Ok(()) => Ok(true),
            Err(raft::Error::ProposalDropped) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// What is to be done; `None`: nothing.
    pub fn outputs(&mut self) -> Option<Outputs> {
        self.expect_idle();
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let log_last = self.node.store().log.last();
        let mut outputs = Outputs {
            committed: Seq(self.node.raft.raft_log.committed.min(self.node.raft.raft_log.persisted)),
            ..Outputs::default()
        };
        let leads = self.role() == Role::Leader;
        let entries = ready.take_entries();
        let known = self.node.raft.raft_log.last_index();
        if leads {
            // Its entries are in the log, all but the one that an election begins with.
            if let Some(entry) = entries.iter().find(|entry| entry.index > log_last.0) {
                outputs.elected = Some(Elected {
                    term: entry.term,
                    first: Seq(entry.index),
                });
            }
        } else {
            let replaced = entries
                .first()
                .map(|entry| Seq(entry.index))
                .filter(|&seq| seq <= log_last);
            // What this member appended as a leader and told nobody.
            let untold = (log_last.0 > known).then(|| Seq(known + 1));
            outputs.take_back_from = match (replaced, untold) {
                (Some(replaced), Some(untold)) => Some(replaced.min(untold)),
                (one, other) => one.or(other),
            };
            outputs.entries = entries.into_iter().map(Entry::of).collect();
        }
        debug_assert!(
            outputs.take_back_from.is_none_or(|from| from > outputs.committed),
            "what is committed stays"
        );
        outputs.state = self.new_state();
        outputs.messages = ready.take_messages().into_iter().map(Message).collect();
        self.in_hand = Some(ready);
        Some(outputs)
    }

    /// The [`Outputs`] have been carried out: the log has what they say, on disk or not.
    pub fn written(&mut self) -> Unsynced {
        let mut ready = self.in_hand.take().expect("outputs were asked for");
        let messages = ready.take_persisted_messages().into_iter().map(Message).collect();
        let number = ready.number();
        self.node.mut_store().last = Seq(self.node.raft.raft_log.last_index());
        self.node.advance_append_async(ready);
        self.written = number;
        Unsynced { number, messages }
    }

    /// All that was written up to then is on disk. Answers the messages that waited for it.
    pub fn persisted(&mut self, unsynced: Unsynced) -> Vec<Message> {
        self.expect_idle();
        debug_assert!(self.persisted < unsynced.number && unsynced.number <= self.written);
        self.persisted = unsynced.number;
        self.node.on_persist_ready(unsynced.number);
        self.draw_timeout(false);
        unsynced.messages
    }

    /// The effects of entries up to `seq` are where readers see them.
    pub fn applied(&mut self, seq: Seq) {
        if self.node.raft.raft_log.applied < seq.0 {
            self.node.advance_apply_to(seq.0);
        }
    }

    /// What it is.
    pub fn role(&self) -> Role {
        match self.node.raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
        }
    }

    /// The newest term it has seen.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// Entries up to here stay, as far as it knows.
    pub fn committed(&self) -> Seq {
        Seq(self.node.raft.raft_log.committed)
    }

    /// The last entry that it has been told of.
    pub fn last(&self) -> Seq {
        Seq(self.node.raft.raft_log.last_index())
    }

    /// Term and vote as they were written last, with the commit position of now: to be written where a restart must not
    /// forget that entries stay.
    pub fn state_with_commit(&mut self) -> HardState {
        self.state.commit = self.committed();
        self.state
    }

    /// Term and vote if they are others than those written last; the commit position rides along.
    fn new_state(&mut self) -> Option<HardState> {
        let raft = &self.node.raft;
        if (raft.term, raft.vote) == (self.state.term, self.state.vote) {
            return None;
        }
        self.state = HardState {
            term: raft.term,
            vote: raft.vote,
            commit: Seq(raft.raft_log.committed),
        };
        Some(self.state)
    }

    fn is_alone(&self) -> bool {
        self.node.store().voters == [self.node.raft.id]
    }

    fn expect_idle(&self) {
        debug_assert!(self.in_hand.is_none(), "outputs are carried out before anything else");
    }

    /// The time-outs from here on: drawn anew with each role and term, and after each that has passed. The state
    /// machine's own draws, which no seed reaches, never last.
    ///
    /// Where votes were split nobody has to find out once more that there is no leader: the next election begins
    /// after a fraction of the time that a leader may be silent.
    fn draw_timeout(&mut self, anew: bool) {
        let raft = &mut self.node.raft;
        let now = (raft.state, raft.term);
        if anew || now != self.drawn_for {
            self.drawn_for = now;
            let shortest = raft.election_timeout();
            let up_to = |ticks: usize| (self.random.next_u64() % ticks.max(1) as u64) as usize;
            self.timeout_ticks = match self.may_stand {
                true => shortest + up_to(shortest / 2),
                false => NEVER,
            };
            self.retry_ticks = (shortest / 4).max(1) + up_to(shortest / 2);
            self.waited_ticks = 0;
        }
        raft.set_randomized_election_timeout(self.timeout_ticks);
    }
}
