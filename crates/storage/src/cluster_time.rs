//! When entries were made: by the clock, and in an order that no clock disturbs.

use bson::Timestamp;

/// A point of cluster time: seconds since the epoch in the upper half, an increment in the lower one. Rises strictly
/// from entry to entry, whatever the clock does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterTime(pub u64);

impl ClusterTime {
    /// As BSON has it.
    pub fn to_timestamp(self) -> Timestamp {
        Timestamp {
            time: (self.0 >> 32) as u32,
            increment: self.0 as u32,
        }
    }

    /// The next point, not before the clock's.
    pub(crate) fn next(self, now_ms: i64) -> Self {
        let seconds = u64::try_from(now_ms / 1000).unwrap_or(0).min(u64::from(u32::MAX));
        Self((self.0 + 1).max(seconds << 32 | 1))
    }

    /// So many points later.
    pub(crate) fn later_by(self, ticks: u64) -> Self {
        Self(self.0 + ticks)
    }
}

impl From<Timestamp> for ClusterTime {
    fn from(timestamp: Timestamp) -> Self {
        Self(u64::from(timestamp.time) << 32 | u64::from(timestamp.increment))
    }
}

/// When an entry was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryTime {
    /// Milliseconds since the Unix epoch.
    pub(crate) wall_ms: i64,
    pub(crate) cluster: ClusterTime,
}
