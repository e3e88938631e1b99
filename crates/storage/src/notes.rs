//! Notes and times of the log: what a member of a replica set adds to it.

use crate::StorageError;
use crate::cluster_time::ClusterTime;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::operation::Operation;
use crate::points::AppliedPoint;
use crate::storage::Storage;
use bson::RawDocument;
use engine::Seq;

impl Storage {
    /// A state that readers see and that outlives a crash. To be called now and then, so that it is a recent one.
    pub fn durable(&self) -> AppliedPoint {
        let applied = self.applied();
        self.durable_points.advance(applied, self.log().durable_seq())
    }

    /// Appends an entry that changes nothing but time.
    pub fn write_note(&self, note: &RawDocument) -> Result<Seq, StorageError> {
        let mut entry = EntryWriter::default();
        entry.note(note);
        self.commit_derived(&mut entry, |_| Effect::default())
    }

    /// As [`Storage::write_note`], waiting as long as the operation may. On return this server has led until after the
    /// call began.
    pub fn write_note_in(&self, op: &Operation, note: &RawDocument) -> Result<Seq, StorageError> {
        let mut entry = EntryWriter::default();
        entry.note(note);
        let seq = self.propose(&mut entry, |_| Effect::default())?;
        self.wait_applied_in(op, seq, entry.epoch)?;
        Ok(seq)
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

    /// The time of what readers see, where the log is history.
    pub fn cluster_time(&self) -> Option<ClusterTime> {
        self.keeps_history().then(|| self.pipeline.applied_time())
    }
}
