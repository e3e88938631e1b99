//! How a log is to be kept.

use crate::limits::{
    BUFFER_BYTES_LEAST, BUFFER_BYTES_MOST, BUFFER_BYTES_REFUSED, BUFFER_PART_OF_CACHE, FRAME_RAW_BYTES_TARGET,
    FRAME_RAW_BYTES_TARGET_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
};
use crate::{LogError, Result};
use codec::Codec;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Told once, from the thread that saw it, when the log fails for ever. It must not call the log.
pub type FailureHandler = Arc<dyn Fn(&LogError) + Send + Sync>;

/// Whether there is a log at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Entries go to disk.
    On,
    /// Entries are only counted; entries of earlier days can still be read. A crash loses what came after the engine's
    /// last checkpoint.
    Off,
}

/// What an engine that is ahead of the log means: its durable mark lies behind the log's last entry. By the write-ahead
/// rule this cannot come of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineAhead {
    /// Segments were lost, removed, or replaced by older ones, and with them perhaps entries that the engine has not:
    /// [`Log::open`](crate::Log::open) refuses.
    Refuse,
    /// The engine was closed with a last checkpoint or went on without a log, and has everything: the log begins anew
    /// behind its mark.
    BeginBehind,
}

/// What [`Log::purge`](crate::Log::purge) leaves although the engine does not need it: history for members of a replica
/// set that come back, change streams, restoring to a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// At least so many bytes of segments behind what goes.
    pub bytes: u64,
    /// Nothing that may be younger.
    pub time: Duration,
}

/// Options of [`crate::Log::open`]; start from [`LogOptions::new`].
#[derive(Clone)]
pub struct LogOptions {
    /// Where the segments are; created when missing.
    pub directory: PathBuf,
    /// Compressor of frames of 4 KiB and more.
    pub codec: Codec,
    /// Length of a segment file: 64 to 128 MiB in production, see [`crate::SEGMENT_BYTES_MIN`]. A longer entry gets a
    /// longer segment.
    pub segment_bytes: u64,
    /// A frame takes entries until it holds so many raw bytes; one longer entry makes a longer frame. At most 16 MiB.
    pub frame_bytes: usize,
    /// Longest time between an append and the start of its flush when nobody waits for it.
    pub commit_interval: Duration,
    /// On or off.
    pub mode: LogMode,
    /// What to do when the engine is ahead of the log.
    pub engine_ahead: EngineAhead,
    /// Where an entry that is needed cannot be read, the log ends before it instead of being refused. For repair, with
    /// [`LogMode::Off`]: nothing is written.
    pub ends_at_damage: bool,
    /// The term of the entry before the first, of a log that begins behind an engine.
    pub term_before: u64,
    /// `wait_for_room` waits while more bytes than this, or than half of a segment, are not yet on disk.
    pub buffer_bytes_max: usize,
    /// `append` refuses while more bytes than this are not yet on disk: the last resort against callers that never
    /// wait. Each that has just waited may append an entry of any length, so it lies far above.
    pub buffer_bytes_refused: usize,
    /// What purging leaves.
    pub retention: Retention,
    /// Recycled segment files kept for reuse.
    pub spare_segments_max: usize,
    /// Run the background flusher. Without it (simulation) entries reach the disk by `flush` and `wait_durable` only.
    pub background: bool,
    /// A file outside the directory that says how far the log has come, so that an older copy of it is noticed.
    pub position_file: Option<PathBuf>,
    /// Who is told when the log fails.
    pub on_failure: Option<FailureHandler>,
}

impl LogOptions {
    /// The defaults: snappy, 64 MiB segments, 1 MiB frames, 100 ms, 64 MiB of buffer, 2 spare segments.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            codec: Codec::Snappy,
            segment_bytes: 64 * 1024 * 1024,
            frame_bytes: FRAME_RAW_BYTES_TARGET,
            commit_interval: Duration::from_millis(100),
            mode: LogMode::On,
            engine_ahead: EngineAhead::Refuse,
            ends_at_damage: false,
            term_before: 0,
            buffer_bytes_max: BUFFER_BYTES_MOST as usize,
            buffer_bytes_refused: BUFFER_BYTES_REFUSED,
            retention: Retention::default(),
            spare_segments_max: 2,
            background: true,
            position_file: None,
            on_failure: None,
        }
    }

    /// A bound for the buffer in proportion to the engine's cache: a sixteenth of it, between 4 and 64 MiB.
    pub fn buffer_bytes_for(cache_bytes: u64) -> usize {
        let share = cache_bytes / BUFFER_PART_OF_CACHE;
        share.clamp(BUFFER_BYTES_LEAST, BUFFER_BYTES_MOST) as usize
    }

    pub(crate) fn check(&self) -> Result<()> {
        debug_assert!(!self.ends_at_damage || self.mode == LogMode::Off);
        let within = |option, value: u64, min: u64, max: u64| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(LogError::Option {
                    option,
                    value,
                    min,
                    max,
                })
            }
        };
        within(
            "segment_bytes",
            self.segment_bytes,
            SEGMENT_BYTES_MIN,
            SEGMENT_BYTES_MAX,
        )?;
        within(
            "frame_bytes",
            self.frame_bytes as u64,
            1,
            FRAME_RAW_BYTES_TARGET_MAX as u64,
        )?;
        within("buffer_bytes_max", self.buffer_bytes_max as u64, 1, 1 << 32)?;
        within(
            "commit_interval (ms)",
            self.commit_interval.as_millis() as u64,
            1,
            3_600_000,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{flush_soon_bytes, group_bytes};

    #[test]
    fn the_buffer_is_in_proportion_to_the_cache() {
        const MIB: u64 = 1 << 20;
        let bounds = [0, 64, 256, 1024, 1 << 20].map(|cache| LogOptions::buffer_bytes_for(cache * MIB) as u64 / MIB);
        assert_eq!(bounds, [4, 4, 16, 64, 64]);
        for bound in bounds.map(|bound| (bound * MIB) as usize) {
            assert!(flush_soon_bytes(bound) <= bound / 4, "flushed before anybody waits");
            assert!(
                group_bytes(bound) <= bound / 4,
                "a group takes little beside the buffer"
            );
        }
        let default = LogOptions::new("/log");
        assert_eq!(default.buffer_bytes_max as u64, 64 * MIB);
        assert!(default.check().is_ok() && default.buffer_bytes_refused > default.buffer_bytes_max);
    }
}
