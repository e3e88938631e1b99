//! The set, the network between its members, and what happens next.

use super::checks::{Broken, Checks};
use super::disk::SharedDisk;
use super::faults::Fault;
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
    voters: Vec<u64>,
    disks: Vec<SharedDisk>,
    network: Vec<Message>,
    /// Pairs of which the first does not reach the second.
    cut: BTreeSet<(u64, u64)>,
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
}

/// With the weight of each, which a run multiplies by 0 to 3.
const ACTS: [(Act, u64); 14] = [
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
            voters: (1..=members).collect(),
            disks: nodes.iter().map(|node| node.disk.clone()).collect(),
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
                let (from, to) = (index as u64 + 1, 1 + self.below(self.nodes.len() as u64));
                self.cut.insert((from, to));
                // Most cuts are of the wire, and hold both ways.
                if self.below(4) > 0 {
                    self.cut.insert((to, from));
                }
                Ok(())
            }
            Act::Heal => {
                self.cut.clear();
                Ok(())
            }
            Act::Transfer => {
                let to = 1 + self.below(self.nodes.len() as u64);
                self.drive(index, |member, _| {
                    member.transfer_to(to);
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
        }
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
            self.ends()
        ))
    }

    fn agree(&self) -> bool {
        let all = Seq(self.checks.committed.len() as u64);
        let one_leads = self.nodes.iter().any(|node| node.role() == Some(Role::Leader));
        one_leads && self.ends().iter().all(|ends| *ends == Some((all, all)))
    }

    fn ends(&self) -> Vec<Option<(Seq, Seq)>> {
        self.nodes.iter().map(Node::ends).collect()
    }

    /// Every member has every write that was acknowledged.
    pub fn check_complete(&self) -> Result<(), Broken> {
        for node in &self.nodes {
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
        if self.cut.contains(&(message.from(), message.to())) {
            return Ok(());
        }
        self.drive(message.to() as usize - 1, |member, _| member.receive(message))
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
            voters: &self.voters,
            disks: &self.disks,
            checks: &mut self.checks,
            network: &mut self.network,
            fault: self.fault,
        };
        (&mut self.nodes[index], around)
    }
}
