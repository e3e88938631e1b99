//! Notes and times of the log: what a member of a replica set adds to it.

use crate::StorageError;
use crate::cluster_time::ClusterTime;
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::storage::Storage;
use bson::RawDocument;
use engine::Seq;
use parking_lot::Mutex;

/// The newest state that readers see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppliedPoint {
    /// Its entry.
    pub seq: Seq,
    /// When that was made.
    pub time: ClusterTime,
}

/// What is known of how far readers' state is on disk.
#[derive(Default)]
pub(crate) struct DurablePoints(Mutex<(AppliedPoint, AppliedPoint)>);

impl DurablePoints {
    /// The newest point that is on disk for certain: exact when nothing is on its way there, otherwise one that was
    /// looked at before.
    fn advance(&self, applied: AppliedPoint, durable: Seq) -> AppliedPoint {
        let mut points = self.0.lock();
        let (known, awaited) = &mut *points;
        if applied.seq <= durable {
            *known = applied;
        } else if awaited.seq <= durable {
            *known = (*awaited).max(*known);
            *awaited = applied;
        }
        *known
    }
}

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
    use super::*;

    #[test]
    fn a_durable_point_never_runs_ahead_and_follows() {
        let point = |n| AppliedPoint {
            seq: Seq(n),
            time: ClusterTime(n),
        };
        let points = DurablePoints::default();
        let known = |applied, durable| points.advance(point(applied), Seq(durable)).seq.0;
        assert_eq!(known(5, 5), 5);
        assert_eq!(known(9, 7), 5, "what was on disk then was not looked at");
        assert_eq!(known(12, 8), 5);
        assert_eq!(known(12, 9), 9);
        assert_eq!(known(15, 11), 9);
        assert_eq!(known(20, 20), 20);
        assert_eq!(known(25, 21), 20, "an older point that was awaited is no step back");
    }
}
