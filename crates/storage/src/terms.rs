//! Terms and times of the log: what a member of a replica set adds to it.

use crate::StorageError;
use crate::cluster_time::ClusterTime;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::storage::Storage;
use bson::{RawDocument, rawdoc};
use engine::Seq;
use oplog::HardState;

/// The newest state that readers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedPoint {
    /// Its entry.
    pub seq: Seq,
    /// When that was made.
    pub time: ClusterTime,
}

impl Storage {
    /// Begins a term of the log, of which `member` is the leader and the only voter: on return its first entry, a
    /// note, is on disk. Answers the term. (Raft, Ongaro and Ousterhout 2014: a term is voted for before it is used,
    /// and a leader begins with an entry of its own.)
    ///
    /// Errors: [`StorageError::NoJournal`] without a log, and those of writing.
    pub fn begin_term(&self, member: u64) -> Result<u64, StorageError> {
        let last = self.log.last_seq();
        let state = self.log.hard_state();
        let of_log = self.log.term_of(last).map_err(|error| self.log_error(error))?;
        let term = state.map_or(0, |state| state.term).max(of_log) + 1;
        let state = HardState {
            term,
            vote: member,
            commit: last,
        };
        self.log.write_state(state).map_err(|error| self.log_error(error))?;
        self.pipeline.order.lock().new_term = Some(term);
        let seq = self.write_note(&rawdoc! { "msg": "new primary" })?;
        self.wait_durable(seq)?;
        Ok(term)
    }

    /// Appends an entry that changes nothing but time.
    pub fn write_note(&self, note: &RawDocument) -> Result<Seq, StorageError> {
        let mut entry = EntryWriter::default();
        entry.note(note);
        self.commit_derived(&mut entry, |_| Effect::default())
    }

    /// The next entries are later than a point of cluster time that others have seen.
    pub fn saw_cluster_time(&self, time: ClusterTime) {
        self.pipeline.order.lock().saw_time(time);
    }

    /// What readers see now.
    pub fn applied(&self) -> AppliedPoint {
        // The time first: it is never that of a later entry than the position.
        let time = self.pipeline.applied_time();
        AppliedPoint {
            seq: self.last_seq(),
            time,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Machine;
    use bson::rawdoc;

    #[test]
    fn terms_rise_over_restarts_and_times_over_entries() {
        let machine = Machine::new(7);
        let mut before = Default::default();
        for term in 1..4 {
            let storage = machine.open().expect("opened");
            assert_eq!(storage.begin_term(1).expect("a term"), term);
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
}
