//! The set, the network between its members, and what happens next.

use super::checks::{Broken, Checks};
use super::disk::{LogEntry, SharedDisk};
use super::faults::Fault;
use super::members::Members;
use super::node::{Around, Node};
use crate::{Message, Role};
use bytes::Bytes;
use engine::Seq;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use vfs::{Random, SeededRandom};

/// Messages on the way; beyond that some are lost.
const NETWORK_MAX: usize = 200;
/// Rounds in which a healed set agrees: each is a tick of all members, all messages and syncs.
const ROUNDS_TO_AGREE: usize = 300;

/// See the module.
pub struct Cluster {
    nodes: Vec<Node>,
    first_members: Members,
    /// By the numbers of the machines that have them.
    disks: Vec<(u64, SharedDisk)>,
    /// The next number of a member.
    next_id: u64,
    network: Vec<Message>,
    /// Pairs of which the first does not reach the second.
    cut: BTreeSet<(usize, usize)>,
    random: SeededRandom,
    /// How often what happens, in this run: weights by [`Act`].
    weights: [u64; ACTS.len()],
    fault: Option<Fault>,
    written: u64,
    /// Of all that happened.
    digest: DefaultHasher,
    pub checks: Checks,
    pub restarts: usize,
}

/// What can happen.
#[derive(Clone, Copy, Debug, Hash)]
enum Act {
    Tick,
    Deliver,
    Sync,
    Write,
    Tell,
    Lose,
    Double,
    Crash,
    Restart,
    Cut,
    Heal,
    Transfer,
    StepDown,
    Campaign,
    Reconfigure,
    Wipe,
    TakeIn,
}

/// With the weight of each, which a run multiplies by 0 to 3.
const ACTS: [(Act, u64); 17] = [
    (Act::Tick, 300),
    (Act::Deliver, 400),
    (Act::Sync, 200),
    (Act::Write, 80),
    (Act::Tell, 80),
    (Act::Lose, 10),
    (Act::Double, 10),
    (Act::Crash, 5),
    (Act::Restart, 12),
    (Act::Cut, 5),
    (Act::Heal, 8),
    (Act::Transfer, 3),
    (Act::StepDown, 2),
    (Act::Campaign, 4),
    (Act::Reconfigure, 8),
    (Act::Wipe, 1),
    (Act::TakeIn, 8),
];

impl Cluster {
    /// `members` of them, all up.
    pub fn new(members: u64, seed: u64, fault: Option<Fault>) -> Result<Self, Broken> {
        let random = SeededRandom::new(seed);
        // Swarm testing (Groce et al., ISSTA 2012): what is missing in a run lets the rest go further.
        let weights = ACTS.map(|(act, weight)| match act {
            Act::Tick | Act::Deliver | Act::Sync | Act::Restart | Act::Heal => weight * (1 + random.next_u64() % 3),
            _ => weight * (random.next_u64() % 4),
        });
        let nodes: Vec<Node> = (1..=members).map(Node::new).collect();
        let mut cluster = Self {
            first_members: Members {
                voters: (1..=members).collect(),
                learners: Vec::new(),
            },
            next_id: members + 1,
            disks: nodes.iter().map(|node| (node.id, node.disk.clone())).collect(),
            nodes,
            network: Vec::new(),
            cut: BTreeSet::new(),
            random,
            weights,
            fault,
            written: 0,
            digest: DefaultHasher::new(),
            checks: Checks::default(),
            restarts: 0,
        };
        for index in 0..members as usize {
            cluster.start(index)?;
        }
        Ok(cluster)
    }

    /// One thing happens.
    pub fn step(&mut self) -> Result<(), Broken> {
        let mut at = self.below(self.weights.iter().sum());
        let act = ACTS
            .iter()
            .zip(self.weights)
            .find_map(|(&(act, _), weight)| match at.checked_sub(weight) {
                None => Some(act),
                Some(rest) => {
                    at = rest;
                    None
                }
            });
        let act = act.expect("the weights' sum is above all");
        let index = self.below(self.nodes.len() as u64) as usize;
        (act, index, self.network.len()).hash(&mut self.digest);
        self.act(act, index)
    }

    fn act(&mut self, act: Act, index: usize) -> Result<(), Broken> {
        match act {
            Act::Tick => self.drive(index, |member, _| member.tick()),
            Act::Deliver => match self.network.len() as u64 {
                0 => Ok(()),
                len => {
                    let at = self.below(len) as usize;
                    self.deliver(at)
                }
            },
            Act::Sync => {
                let count = self.below(self.nodes[index].unsynced() as u64 + 1) as usize;
                self.sync(index, count)
            }
            Act::Write => {
                self.written += 1;
                let bytes = Bytes::from(self.written.to_string());
                // Clients look for the leader; of several, one that does not know yet that it was replaced is found,
                // too.
                let leads = |index: &usize| self.nodes[*index].role() == Some(Role::Leader);
                let count = self.nodes.len();
                let leader = (index..count).chain(0..index).find(leads);
                if let Some(leader) = leader {
                    self.nodes[leader].write(bytes);
                }
                Ok(())
            }
            Act::Tell => self.drive(index, |member, last| member.wrote(last).map(|_| ())),
            Act::Lose => {
                if !self.network.is_empty() {
                    let at = self.below(self.network.len() as u64) as usize;
                    self.network.swap_remove(at);
                }
                Ok(())
            }
            Act::Double => {
                if !self.network.is_empty() {
                    let at = self.below(self.network.len() as u64) as usize;
                    self.network.push(self.network[at].clone());
                }
                Ok(())
            }
            Act::Crash => {
                let random = &self.random;
                self.nodes[index].crash(|below| random.next_u64() % below);
                // Messages that it was sent before find it up again.
                match self.below(2) {
                    0 => Ok(()),
                    _ => self.start(index),
                }
            }
            Act::Restart if self.nodes[index].running.is_some() => Ok(()),
            Act::Restart => self.start(index),
            Act::Cut => {
                let other = self.below(self.nodes.len() as u64) as usize;
                self.cut.insert((index, other));
                // Most cuts are of the wire, and hold both ways.
                if self.below(4) > 0 {
                    self.cut.insert((other, index));
                }
                Ok(())
            }
            Act::Heal => {
                self.cut.clear();
                Ok(())
            }
            Act::Transfer => {
                let to = self.nodes[self.below(self.nodes.len() as u64) as usize].id;
                self.drive(index, |member, _| {
                    match member.heir() {
                        None => member.transfer_to(to),
                        Some(_) => member.end_transfer(),
                    }
                    Ok(())
                })
            }
            Act::Campaign => self.drive(index, |member, _| match member.campaign() {
                Err(crate::ReplError::Unsynced) => Ok(()),
                result => result,
            }),
            Act::StepDown => self.drive(index, |member, _| {
                member.step_down();
                Ok(())
            }),
            Act::Reconfigure => {
                self.reconfigure(index);
                Ok(())
            }
            Act::Wipe => self.wipe(index),
            Act::TakeIn => self.take_in(index),
        }
    }

    /// A leader changes who votes: one vote at a time.
    fn reconfigure(&mut self, index: usize) {
        let early = self.fault == Some(Fault::ChangesBeforeItsTerm);
        let Some(members) = self.nodes[index].settled_members(early) else {
            return;
        };
        let own = self.nodes[index].id;
        let pick = |of: &[u64], at: u64| of.get((at as usize) % of.len().max(1)).copied();
        let mut changed = match self.below(4) {
            // Of two votes none goes: with the other's disk lost nobody could bring it back.
            0 | 1 if members.voters.len() > 2 => match pick(&members.voters, self.below(8)) {
                Some(voter) if voter != own && self.below(2) == 0 => members.without(voter),
                Some(voter) if voter != own => members.with(voter, false),
                _ => return,
            },
            _ => match pick(&members.learners, self.below(8)) {
                Some(learner) => members.with(learner, true),
                None => return,
            },
        };
        if self.fault == Some(Fault::ChangesManyVotes) {
            changed = Members {
                voters: changed
                    .voters
                    .iter()
                    .chain(&changed.learners)
                    .copied()
                    .filter(|id| id % 2 == own % 2)
                    .collect(),
                learners: Vec::new(),
            };
        }
        let breaks_rules = matches!(
            self.fault,
            Some(Fault::ChangesManyVotes | Fault::ChangesBeforeItsTerm | Fault::ComesBackEmpty)
        );
        if breaks_rules || self.all_can_decide(&changed) {
            self.nodes[index].write(changed.encode());
        }
    }

    /// Whether all who vote have their disks: who lost its own goes first. (Of 1, 2, 3 without its disk, and 4 the
    /// latter may decide with 1 and 2 that it goes, be down from then on, and be the only one to know.)
    fn all_can_decide(&self, members: &Members) -> bool {
        let has_disk = |voter: &u64| {
            let mut nodes = self.nodes.iter();
            nodes.any(|node| node.id == *voter && !node.disk.0.borrow().now.entries.is_empty())
        };
        members.voters.iter().all(has_disk)
    }

    /// A machine's disk is emptied, if the set can do without it: more than two vote, all of them have their disks, and
    /// all know who votes, and will after a crash. (Whoever is to replace the lost vote must not need it, or a member
    /// that was dropped, to learn of the last change.)
    fn wipe(&mut self, index: usize) -> Result<(), Broken> {
        let id = self.nodes[index].id;
        let newest = self.newest_members();
        let changes = |entry: &LogEntry| Members::decode(&entry.bytes).is_some();
        let changed_at = self.checks.committed.iter().rposition(changes);
        let changed_at = Seq(changed_at.map_or(0, |index| index as u64 + 1));
        let is_whole = |voter: &u64| {
            let node = self.nodes.iter().find(|node| node.id == *voter);
            let running = node.and_then(|node| node.running.as_ref());
            let knows = running.is_some_and(|running| running.members == newest);
            knows && node.is_some_and(|node| node.knows_after_a_crash(changed_at))
        };
        let decided = self.checks.committed.len();
        let is_changing = self.nodes.iter().any(|node| {
            let disk = node.disk.0.borrow();
            let undecided = disk.now.entries.iter().skip(decided);
            undecided.into_iter().any(changes)
        });
        if newest.voters.len() < 3 || is_changing || !newest.voters.iter().all(is_whole) {
            return Ok(());
        }
        if self.fault == Some(Fault::ComesBackEmpty) {
            self.nodes[index].wipe(id);
            return self.start(index);
        }
        self.nodes[index].wipe(self.next_id);
        self.disks[index].0 = self.next_id;
        self.next_id += 1;
        Ok(())
    }

    /// The members by all changes that are committed.
    fn newest_members(&self) -> Members {
        let mut said = self.checks.committed.iter().rev();
        let said = said.find_map(|entry| Members::decode(&entry.bytes));
        said.unwrap_or_else(|| self.first_members.clone())
    }

    /// A leader takes a machine in that is no member, in the place of one that is gone, and has it copy what it has
    /// applied once that tells of it.
    fn take_in(&mut self, index: usize) -> Result<(), Broken> {
        let Some(members) = self.nodes[index].settled_members(false) else {
            return Ok(());
        };
        let waits = |node: &&Node| node.running.is_none() && node.disk.0.borrow().now.entries.is_empty();
        let Some(newcomer) = self.nodes.iter().filter(waits).map(|node| node.id).find(|id| *id > 1) else {
            return Ok(());
        };
        if !members.has(newcomer) {
            let gone = |id: &&u64| !self.nodes.iter().any(|node| node.id == **id);
            let gone = members.voters.iter().chain(&members.learners).find(gone).copied();
            let members = gone.map_or(members.clone(), |gone| members.without(gone));
            self.nodes[index].write(members.with(newcomer, false).encode());
            return Ok(());
        }
        let applied = self.nodes[index]
            .running
            .as_ref()
            .map_or(Seq(0), |running| running.applied);
        let source = self.nodes[index].disk.clone();
        let disk = source.0.borrow();
        let copied = match self.fault == Some(Fault::CopiesUncommitted) {
            true => &disk.now.entries[..],
            false => &disk.now.entries[..applied.0 as usize],
        };
        let Some(at) = self.nodes.iter().position(|node| node.id == newcomer) else {
            return Ok(());
        };
        self.nodes[at].copy(copied);
        drop(disk);
        self.start(at)
    }

    /// All is mended; in a while the members agree on all that was written, and on one more write.
    pub fn heal_and_agree(&mut self) -> Result<(), Broken> {
        self.cut.clear();
        for index in 0..self.nodes.len() {
            if self.nodes[index].running.is_none() {
                self.start(index)?;
            }
        }
        let mut wrote = false;
        for _ in 0..ROUNDS_TO_AGREE {
            // Whoever is to be a member and has nothing yet is brought in.
            for index in 0..self.nodes.len() {
                self.take_in(index)?;
            }
            for index in 0..self.nodes.len() {
                self.drive(index, |member, _| member.tick())?;
                self.drive(index, |member, last| member.wrote(last).map(|_| ()))?;
                self.sync(index, usize::MAX)?;
            }
            for _ in 0..self.network.len() {
                // What is too much is lost on the way.
                if !self.network.is_empty() {
                    self.deliver(0)?;
                }
            }
            let leader = self.nodes.iter().position(|node| node.role() == Some(Role::Leader));
            if let (Some(leader), false) = (leader, wrote) {
                self.act(Act::Write, leader)?;
                wrote = true;
            } else if wrote && self.agree() {
                return Ok(());
            }
        }
        Err(format!(
            "no agreement after {ROUNDS_TO_AGREE} rounds: {:?}",
            self.nodes.iter().map(Node::describe).collect::<Vec<_>>()
        ))
    }

    /// A healed set agrees on `writes` entries more, and goes on with one follower's disk put back to what it was before
    /// them: that one catches up with the leader that there is. The disk may have had `tail` entries that nobody agreed
    /// on, of a term that is over.
    pub fn put_one_back(&mut self, writes: usize, tail: usize) -> Result<(), Broken> {
        self.heal_and_agree()?;
        let leads = |node: &Node| node.role() == Some(Role::Leader);
        let follower = self.nodes.iter().position(|node| !leads(node));
        let follower = follower.ok_or("there are followers")?;
        let mut image = self.nodes[follower].image();
        for number in 0..tail {
            let term = image.entries.last().map_or(1, |entry| entry.term);
            let bytes = format!("tail {number}").into();
            image.entries.push(LogEntry { term, bytes });
        }
        let terms = self.checks.terms();
        while tail > 0 && self.checks.terms() == terms {
            if let Some(leader) = self.nodes.iter().position(leads) {
                self.act(Act::StepDown, leader)?;
            }
            self.heal_and_agree()?;
        }
        let leader = self.nodes.iter().position(leads).ok_or("there is a leader")?;
        if leader == follower {
            return Ok(());
        }
        for _ in 0..writes {
            self.act(Act::Write, leader)?;
        }
        self.heal_and_agree()?;
        self.nodes[follower].put_back(image);
        let terms = self.checks.terms();
        self.heal_and_agree()?;
        match self.checks.terms() == terms {
            true => Ok(()),
            false => Err("another leader was needed".to_owned()),
        }
    }

    fn agree(&self) -> bool {
        let all = Seq(self.checks.committed.len() as u64);
        let one_leads = self.nodes.iter().any(|node| node.role() == Some(Role::Leader));
        one_leads && self.present().all(|node| node.ends() == Some((all, all)))
    }

    /// The machines that are members now.
    fn present(&self) -> impl Iterator<Item = &Node> {
        let members = self.newest_members();
        self.nodes.iter().filter(move |node| members.has(node.id))
    }

    /// Every member has every write that was acknowledged.
    pub fn check_complete(&self) -> Result<(), Broken> {
        for node in self.present() {
            self.checks.complete(node.id, &node.disk.0.borrow().now.entries)?;
        }
        Ok(())
    }

    /// Of all that happened so far: the same for the same seed.
    pub fn digest(&self) -> u64 {
        let mut digest = self.digest.clone();
        for entry in &self.checks.committed {
            (entry.term, &entry.bytes).hash(&mut digest);
        }
        digest.finish()
    }

    fn below(&self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn start(&mut self, index: usize) -> Result<(), Broken> {
        self.restarts += 1;
        let random = self.random.next_u64();
        let (node, mut around) = self.split(index);
        node.start(random, &mut around)
    }

    fn sync(&mut self, index: usize, count: usize) -> Result<(), Broken> {
        let (node, mut around) = self.split(index);
        node.sync(count, &mut around)
    }

    fn deliver(&mut self, at: usize) -> Result<(), Broken> {
        let message = self.network.remove(at);
        let place = |id: u64| self.nodes.iter().position(|node| node.id == id);
        // What was meant for a member that its machine is no more is lost.
        let (Some(from), Some(to)) = (place(message.from()), place(message.to())) else {
            return Ok(());
        };
        if self.cut.contains(&(from, to)) {
            return Ok(());
        }
        self.drive(to, |member, _| member.receive(message))
    }

    fn drive(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut crate::Member<SharedDisk>, Seq) -> Result<(), crate::ReplError>,
    ) -> Result<(), Broken> {
        let (node, mut around) = self.split(index);
        node.drive(&mut around, act)?;
        if self.network.len() > NETWORK_MAX {
            self.network.drain(..NETWORK_MAX / 4);
        }
        Ok(())
    }

    fn split(&mut self, index: usize) -> (&mut Node, Around<'_>) {
        let around = Around {
            first_members: &self.first_members,
            disks: &self.disks,
            checks: &mut self.checks,
            network: &mut self.network,
            fault: self.fault,
        };
        (&mut self.nodes[index], around)
    }
}
