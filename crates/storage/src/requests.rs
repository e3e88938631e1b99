//! What is asked of a member's consensus with others, and what is waited for there. `driver.rs` has the thread that
//! does it.

use crate::StorageError;
use crate::limits::WAIT_SLICE;
use crate::operation::Operation;
use crate::standing::{ElectionReason, Standing};
use crate::storage::Storage;
use crate::voter::Event;
use engine::Seq;
use repl::Message;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Storage {
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

    /// Hands leadership over to another member, or asks the leader to. What nobody has taken within
    /// [`crate::TRANSFER_PATIENCE`] is kept.
    pub fn transfer_leadership(&self, id: u64, reason: ElectionReason) {
        self.ask(Event::Transfer(id, reason));
    }

    /// Leads no more, until the next election.
    pub fn give_leadership_up(&self) {
        self.ask(Event::StepDown);
    }

    /// Stands for election without waiting for a time-out.
    pub fn campaign(&self) {
        self.ask(Event::Campaign);
    }

    /// Waits until the thread that appends what others write knows of a barrier that has risen, as long as the
    /// operation may.
    pub(crate) fn tell_of_barrier(&self, op: &Operation) -> Result<(), StorageError> {
        let Some(inbox) = self.consensus.link() else {
            return Ok(());
        };
        let number = inbox.barriers_told.fetch_add(1, Ordering::AcqRel) + 1;
        inbox.push(Event::Barrier(number));
        let has_heard = |_: &Standing| inbox.barriers_heard.load(Ordering::Acquire) >= number;
        self.wait_members(op, None, &has_heard).map(drop)
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
