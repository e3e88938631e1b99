//! A member with its driver: it carries out what the state machine says, as a server would.

use super::checks::{Broken, Checks};
use super::disk::{Image, LogEntry, SharedDisk};
use super::faults::Fault;
use super::members::Members;
use crate::{Config, Member, Message, Outputs, Role, Unsynced};
use bytes::Bytes;
use engine::Seq;
use oplog::HardState;
use std::collections::VecDeque;
use std::sync::Arc;
use vfs::SeededRandom;

/// A write that its client waits for.
pub struct Waiting {
    term: u64,
    seq: Seq,
    bytes: Bytes,
}

/// What runs between two crashes.
pub struct Running {
    pub member: Member<SharedDisk>,
    /// With how much is to be synced for each.
    unsynced: VecDeque<(u64, Unsynced)>,
    waiting: Vec<Waiting>,
    committed: Seq,
    pub applied: Seq,
    /// As the entries up to `members_at` have them.
    pub members: Members,
    members_at: Seq,
    /// The first entry of the term that it leads, or led last.
    first: Seq,
}

/// A machine, up or down.
pub struct Node {
    /// Its number in the set, another one after its disk was emptied.
    pub id: u64,
    pub disk: SharedDisk,
    /// The last entry whose effect is on the disk.
    applied_on_disk: Seq,
    pub running: Option<Running>,
}

/// What a node needs of the set around it.
pub struct Around<'a> {
    /// The members that the set began with.
    pub first_members: &'a Members,
    /// By the numbers of the machines that have them now.
    pub disks: &'a [(u64, SharedDisk)],
    pub checks: &'a mut Checks,
    pub network: &'a mut Vec<Message>,
    pub fault: Option<Fault>,
}

impl Around<'_> {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn committed(&mut self, id: u64, range: (Seq, Seq), members: &Members) -> Result<(), Broken> {
        let disks = self.disks;
        let own = disk_of(disks, id).expect("it has a disk").0.borrow();
        // The leader that found the majority may have had later members applied, all of which are committed, or, where
        // its own disk is behind, those before the last change: two majorities next to each other share a member.
        let said = self.checks.committed.iter();
        let said = said.filter_map(|entry| Members::decode(&entry.bytes));
        let all: Vec<Members> = std::iter::once(self.first_members.clone()).chain(said).collect();
        let last = all.iter().rposition(|of_all| of_all == members).unwrap_or(0);
        let of_any = &all[last.saturating_sub(1)..];
        self.checks.committed(id, range, &own.now.entries, |seq, entry| {
            of_any.iter().any(|members| {
                // What an emptied disk had was counted when it had it; it votes for nobody any more.
                let has = |voter: &&u64| {
                    disk_of(disks, **voter).is_none_or(|disk| disk.0.borrow().synced.get(seq) == Some(entry))
                };
                members.voters.iter().filter(has).count() > members.voters.len() / 2
            })
        })
    }

    fn send(&mut self, disk: &SharedDisk, messages: Vec<Message>) {
        let disk = disk.0.borrow();
        for mut message in messages {
            message.fill(|seq| disk.now.get(seq).map(|entry| entry.bytes.clone()).unwrap_or_default());
            self.network.push(message);
        }
    }
}

fn disk_of(disks: &[(u64, SharedDisk)], id: u64) -> Option<&SharedDisk> {
    disks.iter().find(|(of, _)| *of == id).map(|(_, disk)| disk)
}

/// The members as the entries up to `applied` leave them.
fn members_at(first: &Members, entries: &[LogEntry], applied: Seq) -> Members {
    let applied = entries.iter().take(applied.0 as usize).rev();
    let mut said = applied.filter_map(|entry| Members::decode(&entry.bytes));
    said.next().unwrap_or_else(|| first.clone())
}

impl Node {
    pub fn new(id: u64) -> Self {
        Self {
            id,
            disk: SharedDisk::default(),
            applied_on_disk: Seq(0),
            running: None,
        }
    }

    pub fn start(&mut self, random: u64, around: &mut Around<'_>) -> Result<(), Broken> {
        let applied = match around.is(Fault::TakesLogForCommitted) {
            true => self.disk.0.borrow().now.last(),
            false => {
                // What is known to stay is applied again.
                let disk = self.disk.0.borrow();
                let stays = disk.now.state.map_or(Seq(0), |state| state.commit);
                self.applied_on_disk.max(stays).min(disk.now.last())
            }
        };
        let members = members_at(around.first_members, &self.disk.0.borrow().now.entries, applied);
        if !members.has(self.id) {
            // It waits to be taken in, or was dropped.
            return Ok(());
        }
        let config = Config {
            id: self.id,
            voters: members.voters.clone(),
            learners: members.learners.clone(),
            election_ticks: 10,
            heartbeat_ticks: 2,
            random: Arc::new(SeededRandom::new(random)),
        };
        let kept = self.disk.0.borrow().now.state;
        let kept = match around.fault {
            Some(Fault::ForgetsVotes) => kept.map(|state| HardState { vote: 0, ..state }),
            Some(Fault::ForgetsTerms) => None,
            _ => kept,
        };
        let member = Member::start(&config, kept, applied, self.disk.clone()).map_err(|error| error.to_string())?;
        around.committed(self.id, (Seq(1), applied), &members)?;
        self.running = Some(Running {
            member,
            unsynced: VecDeque::new(),
            waiting: Vec::new(),
            committed: applied,
            applied,
            members,
            members_at: applied,
            first: Seq(u64::MAX),
        });
        self.settle(around)
    }

    /// Power is lost. The engine's disk has the effects of some of what was applied.
    pub fn crash(&mut self, mut below: impl FnMut(u64) -> u64) {
        if let Some(running) = self.running.take() {
            let since = running.applied.0 - self.applied_on_disk.0;
            self.applied_on_disk.0 += below(since + 1);
        }
        let mut disk = self.disk.0.borrow_mut();
        disk.crash(|pending| below(pending as u64 + 1) as usize);
        // An engine's checkpoint waits for the log.
        self.applied_on_disk = self.applied_on_disk.min(disk.now.last());
    }

    /// The disk is emptied; the machine is another member from now on.
    pub fn wipe(&mut self, id: u64) {
        self.running = None;
        self.disk.0.borrow_mut().wipe();
        self.applied_on_disk = Seq(0);
        self.id = id;
    }

    /// Its disk as it is after a crash.
    pub fn image(&self) -> Image {
        self.disk.0.borrow().synced.clone()
    }

    /// Its disk is put back to what it once was.
    pub fn put_back(&mut self, image: Image) {
        self.running = None;
        self.applied_on_disk = self.applied_on_disk.min(image.last());
        self.disk.0.borrow_mut().put_back(image);
    }

    /// Whether its disk says that `seq` stays.
    pub fn knows_after_a_crash(&self, seq: Seq) -> bool {
        let disk = self.disk.0.borrow();
        let stays = disk.synced.state.map_or(Seq(0), |state| state.commit);
        self.applied_on_disk.max(stays) >= seq
    }

    /// Begins with a copy of what another member has applied.
    pub fn copy(&mut self, entries: &[LogEntry]) {
        self.disk.0.borrow_mut().begin_with(entries);
        self.applied_on_disk = Seq(entries.len() as u64);
    }

    /// The members as a leader has them that may change them: all before its term is applied, and no change is under
    /// way.
    pub fn settled_members(&self, early: bool) -> Option<Members> {
        let running = self
            .running
            .as_ref()
            .filter(|running| running.member.role() == Role::Leader)?;
        let disk = self.disk.0.borrow();
        let pending = disk.now.entries.iter().skip(running.applied.0 as usize);
        let is_changing = pending.into_iter().any(|entry| Members::decode(&entry.bytes).is_some());
        let has_begun = running.applied >= running.first || early;
        (has_begun && !is_changing).then(|| running.members.clone())
    }

    /// A client's write: appended, and not told to the state machine yet.
    pub fn write(&mut self, bytes: Bytes) {
        let Some(running) = &mut self.running else { return };
        if running.member.role() != Role::Leader {
            return;
        }
        let term = running.member.term();
        let mut disk = self.disk.0.borrow_mut();
        disk.append(term, bytes.clone());
        let seq = disk.now.last();
        running.waiting.push(Waiting { term, seq, bytes });
    }

    /// Has the state machine do something, and carries out what comes of it.
    pub fn drive(
        &mut self,
        around: &mut Around<'_>,
        act: impl FnOnce(&mut Member<SharedDisk>, Seq) -> Result<(), crate::ReplError>,
    ) -> Result<(), Broken> {
        let last = self.disk.0.borrow().now.last();
        if let Some(running) = &mut self.running {
            act(&mut running.member, last).map_err(|error| error.to_string())?;
        }
        self.settle(around)
    }

    /// Syncs what was written for the first `count` outputs that wait.
    pub fn sync(&mut self, count: usize, around: &mut Around<'_>) -> Result<(), Broken> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        for (mark, unsynced) in running.unsynced.drain(..count.min(running.unsynced.len())) {
            self.disk.0.borrow_mut().sync_to(mark);
            let messages = running.member.persisted(unsynced);
            around.send(&self.disk, messages);
        }
        self.settle(around)
    }

    pub fn unsynced(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.unsynced.len())
    }

    fn settle(&mut self, around: &mut Around<'_>) -> Result<(), Broken> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        while let Some(outputs) = running.member.outputs() {
            let committed = outputs.committed;
            if let Some(elected) = outputs.elected {
                running.first = elected.first;
            }
            carry_out(&self.disk, running.member.role(), outputs, self.id, around)?;
            let unsynced = running.member.written();
            let early = match running.member.role() {
                Role::Leader => around.is(Fault::CountsItselfBeforeSync),
                _ => around.is(Fault::AnswersBeforeSync),
            };
            if early && running.unsynced.is_empty() {
                let messages = running.member.persisted(unsynced);
                around.send(&self.disk, messages);
            } else {
                running.unsynced.push_back((self.disk.0.borrow().written(), unsynced));
            }
            if running.committed < committed {
                around.committed(self.id, (running.committed.next(), committed), &running.members)?;
                running.committed = committed;
            }
            running.applied = running.committed;
            running.member.applied(running.applied);
            if running.member.role() == Role::Leader || !around.is(Fault::AsksFormerMembers) {
                running.apply_members(&self.disk)?;
            }
        }
        running.answer(&self.disk, around)
    }

    /// The log's last entry and the last one that is known to be committed.
    pub fn ends(&self) -> Option<(Seq, Seq)> {
        let running = self.running.as_ref()?;
        Some((self.disk.0.borrow().now.last(), running.committed))
    }

    /// For messages.
    pub fn describe(&self) -> String {
        match &self.running {
            None => format!("{} with {:?} does not run", self.id, self.disk.0.borrow().now.last()),
            Some(running) => format!(
                "{} with {:?} to {:?} is {:?} in term {} of {:?}",
                self.id,
                running.committed,
                self.disk.0.borrow().now.last(),
                running.member.role(),
                running.member.term(),
                running.members
            ),
        }
    }

    pub fn role(&self) -> Option<Role> {
        self.running.as_ref().map(|running| running.member.role())
    }
}

impl Running {
    /// Takes up changes of members, one by one, that were applied since the last time.
    fn apply_members(&mut self, disk: &SharedDisk) -> Result<(), Broken> {
        let before = std::mem::replace(&mut self.members_at, self.applied);
        let changes: Vec<Members> = {
            let disk = disk.0.borrow();
            let applied = disk
                .now
                .entries
                .iter()
                .take(self.applied.0 as usize)
                .skip(before.0 as usize);
            applied.filter_map(|entry| Members::decode(&entry.bytes)).collect()
        };
        for members in changes {
            let changed = self.member.change_members(&members.voters, &members.learners);
            changed.map_err(|error| error.to_string())?;
            self.members = members;
            let state = self.member.state_with_commit();
            disk.0.borrow_mut().write_state(state);
        }
        Ok(())
    }

    /// Clients hear of what is applied, as long as the leader is that of the term they wrote in.
    fn answer(&mut self, disk: &SharedDisk, around: &mut Around<'_>) -> Result<(), Broken> {
        let (role, term) = (self.member.role(), self.member.term());
        let reached = match around.is(Fault::AcknowledgesAlone) {
            true => disk.0.borrow().synced.last(),
            false => self.applied,
        };
        for waiting in std::mem::take(&mut self.waiting) {
            if role != Role::Leader || term != waiting.term {
                continue;
            }
            if waiting.seq <= reached {
                around.checks.acknowledged(waiting.seq, waiting.bytes)?;
            } else {
                self.waiting.push(waiting);
            }
        }
        Ok(())
    }
}

fn carry_out(disk: &SharedDisk, role: Role, outputs: Outputs, id: u64, around: &mut Around<'_>) -> Result<(), Broken> {
    let mut own = disk.0.borrow_mut();
    let replaces = !outputs.entries.is_empty();
    if let Some(from) = outputs.take_back_from {
        let keeps = match replaces {
            true => around.is(Fault::KeepsReplaced),
            false => around.is(Fault::KeepsUntold),
        };
        if from.0 as usize <= around.checks.committed.len()
            && own.now.entries[from.0 as usize - 1..]
                .iter()
                .zip(&around.checks.committed[from.0 as usize - 1..])
                .any(|(own, all)| own == all)
        {
            return Err(format!("{id} takes back from {from:?} what is committed"));
        }
        if !keeps {
            own.take_back(from);
        }
    }
    if let Some(state) = outputs.state {
        own.write_state(state);
    }
    for entry in outputs.entries {
        if entry.seq > own.now.last() {
            own.append(entry.term, entry.bytes);
        }
    }
    if let Some(elected) = outputs.elected {
        if role != Role::Leader || elected.first != own.now.last().next() {
            return Err(format!("{id} begins {elected:?} behind {:?}", own.now.last()));
        }
        around.checks.elected(id, elected.term, &own.now.entries)?;
        own.append(elected.term, Bytes::from_static(b"elected"));
    }
    drop(own);
    around.send(disk, outputs.messages);
    Ok(())
}
