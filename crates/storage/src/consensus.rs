//! This server's part in the agreement on the log: it drives the state machine of `repl`, as the only voter.
//!
//! The write path appends; the state machine hears of entries when they are on disk ([`Storage::advance_consensus`]),
//! and says which stay. With nobody else to vote that is all of them, and nothing is ever taken back. A term begins
//! with an election and an entry of the leader's own, appended while nobody else can append.
//!
//! A set of one that steps down does so for its clients: what works in the background goes on writing in the term that
//! there is, so the state machine leads until the next election begins.

use crate::StorageError;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::storage::Storage;
use crate::voter::{Voter, begin};
use bson::rawdoc;
use engine::Seq;
use oplog::HardState;
use repl::{Outputs, ReplError, Role};

/// Entries that the state machine hears of in one step: it makes some hundred bytes of each.
const TOLD_AT_ONCE: u64 = 4096;

impl Storage {
    /// Stands for election as `member`, the only voter, and wins: on return the term's first entry, a note, is on disk
    /// and applied. Answers the term.
    ///
    /// Errors: [`StorageError::NoJournal`] without a log, and those of writing. After a full disk it may stand again.
    pub fn stand_for_election(&self, member: u64) -> Result<u64, StorageError> {
        let mut consensus = self.consensus.voter.lock();
        if self.log.is_short() {
            // There may be room by now; where there is none, what is left is tried.
            let _ = self.log.prepare_segment();
        }
        let elected = self.elect(&mut consensus, member);
        if elected.is_err() {
            // What it knows is not what is on disk; the next election begins with that.
            *consensus = None;
        }
        elected
    }

    /// Makes the terms to come later ones than any that others, who are taken for lost, may still begin. Before an
    /// election.
    ///
    /// Errors: those of writing.
    pub fn skip_terms(&self, count: u64) -> Result<(), StorageError> {
        let last = self.log.last_seq();
        let of_log = self.last_term()?;
        let known = self.log.hard_state().unwrap_or_default();
        let state = HardState {
            term: known.term.max(of_log) + count,
            vote: 0,
            commit: last,
        };
        self.wait_durable(last)?;
        self.log.write_state(state).map_err(|error| self.log_error(error))
    }

    /// The term of the log's last entry, which stays or not.
    ///
    /// Errors: those of reading; the entry was taken back meanwhile.
    pub fn last_term(&self) -> Result<u64, StorageError> {
        let term = self.log.term_of(self.log.last_seq());
        term.map_err(|error| self.log_error(error))
    }

    fn elect(&self, consensus: &mut Option<Voter>, member: u64) -> Result<u64, StorageError> {
        let mut order = self.lock_order();
        self.check_running()?;
        // Nobody appends from here to the end. The vote is for a log that is on disk.
        self.wait_durable(self.log.last_seq())?;
        let member = match consensus {
            Some(member) => member,
            none => {
                let begun = begin(self.log_history(), member, self.env.random.clone());
                none.insert(begun.map_err(|error| self.consensus_failed(&error))?)
            }
        };
        self.tell_durable(member)?;
        member.step_down();
        member.campaign().map_err(|error| self.consensus_failed(&error))?;
        while let Some(outputs) = self.outputs(member)? {
            if let Some(elected) = outputs.elected {
                order.new_term = Some(elected.term);
                let mut entry = EntryWriter::default();
                entry.note(&rawdoc! { "msg": "new primary" });
                // Refused for want of room it would leave the set without a leader.
                entry.for_checkpoint = true;
                let mut applied = self.pipeline.applying.lock();
                let seq = self.propose_under(&mut order, &mut applied, &mut entry, Effect::default())?;
                assert_eq!(seq, elected.first, "the term's first entry");
                drop(applied);
                self.wait_durable(seq)?;
            }
            self.carried_out(member, &outputs)?;
        }
        drop(order);
        match member.role() {
            Role::Leader => Ok(member.term()),
            other => Err(self.stop(&format!("the only voter lost an election: it is {other:?}"))),
        }
    }

    /// Tells the state machine what is on disk by now, and takes from it what stays.
    ///
    /// Errors: those of a storage that has stopped.
    pub fn advance_consensus(&self) -> Result<(), StorageError> {
        // No member: nobody has been elected yet.
        self.consensus
            .voter
            .lock()
            .as_mut()
            .map_or(Ok(()), |member| self.tell_durable(member))
    }

    pub(crate) fn tell_durable(&self, member: &mut Voter) -> Result<(), StorageError> {
        if member.role() != Role::Leader {
            return Ok(());
        }
        let durable = self.log.durable_seq();
        while member.last() < durable {
            let next = Seq(member.last().0 + TOLD_AT_ONCE).min(durable);
            if !member.wrote(next).map_err(|error| self.consensus_failed(&error))? {
                break;
            }
            while let Some(outputs) = self.outputs(member)? {
                self.carried_out(member, &outputs)?;
            }
        }
        Ok(())
    }

    /// What is to be done; term and vote are on disk.
    fn outputs(&self, member: &mut Voter) -> Result<Option<Outputs>, StorageError> {
        let Some(outputs) = member.outputs() else {
            return Ok(None);
        };
        assert!(
            outputs.entries.is_empty() && outputs.messages.is_empty() && outputs.take_back_from.is_none(),
            "there is no other member"
        );
        if let Some(state) = outputs.state {
            self.log.write_state(state).map_err(|error| self.log_error(error))?;
        }
        Ok(Some(outputs))
    }

    /// The entries that outputs speak of are on disk.
    fn carried_out(&self, member: &mut Voter, outputs: &Outputs) -> Result<(), StorageError> {
        let unsynced = member.written();
        let waiting = member.persisted(unsynced);
        assert!(waiting.is_empty(), "there is no other member");
        self.commit_to(outputs.committed)?;
        member.applied(outputs.committed);
        Ok(())
    }

    pub(crate) fn consensus_failed(&self, error: &ReplError) -> StorageError {
        self.stop(&error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::storage::Storage;
    use crate::testing::Machine;
    use bson::rawdoc;
    use engine::Seq;

    impl Storage {
        /// The last entry that the state machine was told of.
        fn consensus_knows(&self) -> Seq {
            self.consensus.voter.lock().as_ref().expect("elected").last()
        }
    }

    #[test]
    fn terms_rise_over_restarts_and_times_over_entries() {
        let machine = Machine::new(7);
        let mut before = Default::default();
        for term in 1..4 {
            let storage = machine.open().expect("opened");
            assert_eq!(storage.stand_for_election(1).expect("a term"), term);
            let seq = storage.write_note(&rawdoc! { "msg": "x" }).expect("noted");
            assert_eq!(storage.log().term_of(seq).expect("known"), term);
            let applied = storage.applied();
            assert_eq!(applied.seq, seq);
            assert!(applied.time > before, "{applied:?} after {before:?}");
            before = applied.time;
            storage.wait_durable(seq).expect("durable");
            drop(storage);
            machine.fs.restart();
        }
    }

    #[test]
    fn a_term_ends_with_the_next_election() {
        let machine = Machine::new(8);
        let storage = machine.open().expect("opened");
        storage.advance_consensus().expect("nothing to do");
        for term in 1..4 {
            assert_eq!(storage.stand_for_election(1).expect("a term"), term);
            for _ in 0..3 {
                let seq = storage.write_note(&rawdoc! { "msg": "x" }).expect("noted");
                assert_eq!(storage.log().term_of(seq).expect("known"), term);
            }
            storage.advance_consensus().expect("told");
        }
        let state = storage.log().hard_state().expect("written");
        assert_eq!((state.term, state.vote), (3, 1));
    }

    #[test]
    fn many_entries_are_told_in_steps() {
        let machine = Machine::new(11);
        let storage = machine.open().expect("opened");
        storage.stand_for_election(1).expect("a term");
        let mut last = storage.applied().seq;
        for _ in 0..2 * super::TOLD_AT_ONCE + 1 {
            last = storage.write_note(&rawdoc! { "msg": "x" }).expect("noted");
        }
        storage.wait_durable(last).expect("durable");
        storage.advance_consensus().expect("told");
        assert_eq!(storage.consensus_knows(), last);
    }

    #[test]
    fn the_log_can_recycle_what_was_not_told() {
        let machine = Machine::new(12);
        let storage = machine.open().expect("opened");
        let mut term = storage.stand_for_election(1).expect("a term");
        for tells_first in [true, false] {
            let first = storage.log().first_seq();
            let note = rawdoc! { "text": "x".repeat(100 << 10) };
            while storage.log().first_seq() <= storage.consensus_knows().next().max(first) {
                for _ in 0..50 {
                    let seq = storage.write_note(&note).expect("noted");
                    storage.wait_durable(seq).expect("durable");
                }
                storage.checkpoint().expect("taken");
            }
            if tells_first {
                storage.advance_consensus().expect("told");
                assert_eq!(storage.consensus_knows(), storage.log().last_seq());
            }
            term += 1;
            assert_eq!(storage.stand_for_election(1).expect("a term"), term);
            assert_eq!(storage.consensus_knows(), storage.log().last_seq());
        }
    }

    #[test]
    fn who_finds_the_disk_full_stands_again() {
        let machine = Machine::new(10);
        let storage = machine.open().expect("opened");
        assert_eq!(storage.stand_for_election(1).expect("a term"), 1);
        for _ in 0..2 {
            machine.fs.set_free_bytes(Some(0));
            // What is prepared for the log is used up first.
            while storage.stand_for_election(1).is_ok() {
                let bytes = bson::Binary {
                    subtype: bson::spec::BinarySubtype::Generic,
                    bytes: vec![0; 64 << 10],
                };
                // Refused before what an election needs is used up.
                let _ = storage.write_note(&rawdoc! { "bytes": bytes });
            }
            storage.advance_consensus().expect("nothing to do");
            machine.fs.set_free_bytes(None);
            let term = storage.stand_for_election(1).expect("a term");
            let applied = storage.applied().seq;
            assert_eq!(storage.log().term_of(applied).expect("known"), term);
        }
        drop(storage);
        machine.fs.restart();
        machine.open().expect("opened").stand_for_election(1).expect("a term");
    }

    #[test]
    fn entries_stay_when_consensus_says_so() {
        let machine = Machine::new(9);
        let storage = machine
            .open_with(|options| options.decides_alone = false)
            .expect("opened");
        storage.stand_for_election(1).expect("a term");
        let elected = storage.applied().seq;
        assert_eq!(elected, storage.log().last_seq(), "its own entry is applied");
        std::thread::scope(|scope| {
            let note = scope.spawn(|| storage.write_note(&rawdoc! { "msg": "x" }));
            while storage.log().last_seq() == elected {
                std::thread::yield_now();
            }
            assert_eq!(storage.applied().seq, elected, "not on disk, hence not committed");
            storage.wait_durable(elected.next()).expect("durable");
            storage.advance_consensus().expect("told");
            assert_eq!(note.join().expect("no panic").expect("noted"), elected.next());
        });
        assert_eq!(storage.applied().seq, elected.next());
    }
}
