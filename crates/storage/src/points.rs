//! Points of the log: what readers see, and how far that is on disk.

use crate::cluster_time::ClusterTime;
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
    pub(crate) fn advance(&self, applied: AppliedPoint, durable: Seq) -> AppliedPoint {
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
