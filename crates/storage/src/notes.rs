//! Notes and times of the log: what a member of a replica set adds to it.

use crate::StorageError;
use crate::cluster_time::ClusterTime;
use crate::effect::Effect;
use crate::entry::{EntryReader, EntryWriter};
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
    #[cfg(test)]
    pub(crate) fn write_note(&self, note: &RawDocument) -> Result<Seq, StorageError> {
        let mut entry = EntryWriter::default();
        entry.note(note);
        self.commit_derived(&mut entry, |_| Effect::default())
    }

    /// Appends an entry that changes nothing but time, unless that would have to wait for a barrier or for room in the
    /// log: `None`.
    pub fn write_note_at_once(&self, note: &RawDocument) -> Result<Option<Seq>, StorageError> {
        let Some(order) = self.order_at_once() else {
            return Ok(None);
        };
        let mut entry = EntryWriter::default();
        entry.note(note);
        let seq = self.propose_in(order, &mut entry, |_| Effect::default())?;
        self.wait_stays(seq, entry.epoch)?;
        Ok(Some(seq))
    }

    /// The time for which this server leads: another one when it has ceased to since, though it may lead again. `None`
    /// where it does not lead.
    pub fn leadership(&self) -> Option<u64> {
        // In this order: who ceases to lead after this is refused by the number.
        let epoch = self.pipeline.epoch();
        self.leads().then_some(epoch)
    }

    /// Appends an entry that changes nothing but time, and waits for it as long as the operation may. Where a
    /// leadership is given ([`Storage::leadership`]), only for as long as that lasts: on return this server has led
    /// from then until after the call began.
    pub fn write_note_in(
        &self,
        op: &Operation,
        note: &RawDocument,
        leadership: Option<u64>,
    ) -> Result<Seq, StorageError> {
        self.wait_for_barrier(op)?;
        let mut entry = EntryWriter::default();
        entry.epoch = leadership;
        entry.note(note);
        let seq = self.propose(&mut entry, |_| Effect::default())?;
        self.wait_applied_in(op, seq, entry.epoch)?;
        Ok(seq)
    }

    /// The next entries are later than a point of cluster time that others have seen.
    pub fn saw_cluster_time(&self, time: ClusterTime) {
        self.pipeline.order.lock().saw_time(time);
    }

    /// What readers see now, of documents and definitions.
    pub fn applied(&self) -> AppliedPoint {
        // The time first: it is never that of a later entry than the position.
        let time = self.pipeline.applied_time();
        AppliedPoint {
            seq: self.pipeline.installed(),
            time,
        }
    }

    /// The newest that is in the log, applied or not.
    pub fn written(&self) -> AppliedPoint {
        let applied = self.applied();
        let last = self.log.last_seq();
        if last <= applied.seq {
            return applied;
        }
        // It may be taken back meanwhile.
        let newest = self
            .log
            .read_appended(last)
            .ok()
            .and_then(|mut entries| entries.next()?.ok());
        let time = newest.and_then(|(seq, bytes)| Some(EntryReader::new(seq, &bytes).ok()?.header().time.cluster));
        time.map_or(applied, |time| AppliedPoint { seq: last, time })
    }

    /// The newest that a reader may have seen: definitions of it may be about to come ([`Storage::wait_shown`]).
    /// The time may be, for a moment, that of the entry behind the position.
    pub fn newest(&self) -> AppliedPoint {
        let time = self.pipeline.published_time();
        AppliedPoint {
            seq: self.last_seq(),
            time,
        }
    }
}
