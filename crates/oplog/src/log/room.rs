//! Room for what is appended, on a disk that may be full.
//!
//! What is in memory has been acknowledged to those who do not wait for the disk, and must find its place there. So a
//! file for the next segment is made when the one in use is half full. Where that finds no space ([`Room::is_short`])
//! somebody is told, who may have the log purged, and what the segment in use has left is all there is: appending what
//! does not fit is refused, and a part of it is left to what a checkpoint writes, as otherwise no segment could go.

use super::{Log, Shared};
use crate::catalog::Purge;
use crate::limits::{CHECKPOINT_PART_OF_SEGMENT, FRAME_EXTRA_BYTES_MAX};
use crate::stats::add;
use crate::{LogError, LogMode, Result, Retention};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Told when the disk has no room for the next segment, from the thread that saw it, which may hold locks. It must not
/// call the log.
pub type ShortageHandler = Arc<dyn Fn() + Send + Sync>;

/// What an entry is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    Write,
    Checkpoint,
}

/// What the segments that there are can take.
pub(super) struct Room {
    segment_bytes: usize,
    /// Bytes that the segment in use has left. It falls before what is buffered does.
    left: AtomicUsize,
    /// Those of them that only a checkpoint may use.
    for_checkpoint: usize,
    /// No other segment could be made.
    is_short: AtomicBool,
    on_shortage: OnceLock<ShortageHandler>,
}

impl Room {
    pub fn new(left: u64, segment_bytes: u64) -> Self {
        Self {
            segment_bytes: segment_bytes as usize,
            left: AtomicUsize::new(left as usize),
            for_checkpoint: (segment_bytes / CHECKPOINT_PART_OF_SEGMENT) as usize,
            is_short: AtomicBool::new(false),
            on_shortage: OnceLock::new(),
        }
    }

    /// By the holder of the writer.
    pub fn set_left(&self, bytes: u64) {
        self.left.store(bytes as usize, Ordering::Release);
    }

    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Whether so many bytes that are not on disk, in so many frames, find their place there. Where nobody has been
    /// refused a segment they are taken to.
    pub fn takes(&self, bytes: usize, frames: usize, purpose: Purpose) -> bool {
        if !self.is_short() {
            return true;
        }
        let kept = match purpose {
            Purpose::Write => self.for_checkpoint,
            Purpose::Checkpoint => 0,
        };
        bytes + frames * FRAME_EXTRA_BYTES_MAX + kept <= self.left.load(Ordering::Acquire)
    }

    /// Whether writes have used up what the segment in use has for them, but for one of some length that has looked for
    /// room before.
    fn is_used_up(&self, bytes: usize) -> bool {
        bytes + 2 * self.for_checkpoint >= self.left.load(Ordering::Acquire)
    }

    /// Files for further segments that are needed beside the one in use where `buffered` bytes are in memory and
    /// `bytes` more come, in so many entries. A long entry leaves the rest of a segment unused. One that is longer than
    /// a segment gets a file of its own.
    fn spares_wanted(&self, buffered: usize, bytes: usize, entries: usize) -> usize {
        let sum = buffered + bytes + 2 * self.for_checkpoint;
        let Some(beyond) = sum.checked_sub(self.left.load(Ordering::Acquire)) else {
            return 0;
        };
        if bytes <= self.for_checkpoint || bytes / entries.max(1) > self.segment_bytes {
            return 1;
        }
        beyond.div_ceil(self.segment_bytes / 2).max(1)
    }
}

impl Log {
    /// Bounded back-pressure, to be called before locks are taken: waits while more than `buffer_bytes_max` bytes are
    /// not on disk, or more than the segments that there are can take. While the disk is full it answers `OutOfSpace`,
    /// after having tried. Four loads when there is room.
    pub fn wait_for_room(&self) -> Result<()> {
        let shared = &*self.shared;
        shared.check_open()?;
        if shared.mode == LogMode::Off {
            return Ok(());
        }
        if shared.room.is_short() && shared.catalog.needs_spare() {
            // There may be space by now; where there is none, what is left is what there is.
            let _ = shared.make_spare();
        }
        while shared.full.load(Ordering::Relaxed)
            || shared.buffered.load(Ordering::Relaxed) >= shared.buffer_bytes_max
            || shared.lacks_room()
        {
            add(&shared.disk.counters.waits_for_room, 1);
            let last = self.last_seq();
            // A full disk is tried even when all entries are on it: what it had no room for may be a hard state.
            let served = || !shared.full.load(Ordering::Relaxed) && shared.durable_seq() >= last;
            shared.flush_until(last, &served, None)?;
            shared.check_open()?;
            if shared.lacks_room() {
                match shared.make_spare() {
                    Err(error @ LogError::OutOfSpace { .. }) => return Err(error),
                    Ok(()) if !shared.lacks_room() => {}
                    // It has been used already; or else the segment itself meets what is wrong, where somebody can act
                    // on it.
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Whether so many bytes more, appended at once in so many entries, may find no place in the segments that there
    /// are and those that there are files for.
    pub fn lacks_room_for(&self, bytes: usize, entries: usize) -> bool {
        let shared = &*self.shared;
        let buffered = shared.buffered.load(Ordering::Acquire);
        let wanted = shared.room.spares_wanted(buffered, bytes, entries);
        shared.mode == LogMode::On && wanted > 0 && shared.catalog.spares() < wanted
    }

    /// As [`Log::wait_for_room`], until [`Log::lacks_room_for`] says no, but for what others append meanwhile.
    pub fn wait_for_room_for(&self, bytes: usize, entries: usize) -> Result<()> {
        self.wait_for_room()?;
        if !self.lacks_room_for(bytes, entries) {
            return Ok(());
        }
        let shared = &*self.shared;
        let last = self.last_seq();
        shared.flush_until(last, &|| shared.durable_seq() >= last, None)?;
        let buffered = shared.buffered.load(Ordering::Acquire);
        match shared.make_spares(shared.room.spares_wanted(buffered, bytes, entries)) {
            Err(error @ LogError::OutOfSpace { .. }) => Err(error),
            // What else is wrong the segment itself meets, where somebody can act on it.
            _ => Ok(()),
        }
    }

    /// Makes a file for the next segment ahead of time where there is none: [`Log::pin`] needs one. Errors:
    /// `OutOfSpace`, `Io`, `Failed`, `Closed`.
    pub fn prepare_segment(&self) -> Result<()> {
        self.shared.check_open()?;
        match self.shared.mode {
            LogMode::On => self.shared.make_spare(),
            LogMode::Off => Ok(()),
        }
    }

    /// Whether the next append would be refused, as long as nobody brings to disk what is in memory.
    pub fn is_overfull(&self) -> bool {
        let shared = &*self.shared;
        let buffered = shared.buffered.load(Ordering::Acquire);
        buffered > shared.buffer_bytes_refused
            || shared.room.is_short() && shared.room.is_used_up(buffered) && shared.catalog.needs_spare()
    }

    /// The disk has no room for the next segment: when the one in use is full, appending is refused.
    pub fn is_short(&self) -> bool {
        self.shared.is_short()
    }

    /// Has `handler` called each time that the log becomes short of segments.
    pub fn set_shortage_handler(&self, handler: ShortageHandler) {
        // The first one stays.
        let _ = self.shared.room.on_shortage.set(handler);
    }
}

impl Shared {
    /// What is in memory leaves no room in the segment in use, and there is no file for the next one.
    fn lacks_room(&self) -> bool {
        self.room.is_used_up(self.buffered.load(Ordering::Acquire)) && self.catalog.needs_spare()
    }

    /// There is no room for the next segment, or was none for what is in memory.
    fn is_short(&self) -> bool {
        self.room.is_short() || self.full.load(Ordering::Relaxed)
    }

    /// A flush found the disk full.
    pub(super) fn note_full(&self) {
        if !self.full.swap(true, Ordering::Relaxed)
            && !self.room.is_short()
            && let Some(handler) = self.room.on_shortage.get()
        {
            handler();
        }
    }

    /// Sees to it that there is a file for the next segment.
    pub(super) fn make_spare(&self) -> Result<()> {
        self.make_spares(1)
    }

    /// Sees to it that there are files for the next `count` segments.
    fn make_spares(&self, count: usize) -> Result<()> {
        let made = self.catalog.ensure_spares(&self.disk, count);
        let is_refused = match &made {
            Ok(()) => false,
            // A purge may have recycled one meanwhile.
            Err(LogError::OutOfSpace { .. }) => self.catalog.spares() < count,
            Err(_) => return made,
        };
        let is_short = is_refused && self.catalog.needs_spare();
        let was_short = self.room.is_short.swap(is_short, Ordering::Relaxed);
        if is_refused
            && !was_short
            && let Some(handler) = self.room.on_shortage.get()
        {
            handler();
        }
        if is_refused { made } else { Ok(()) }
    }

    /// Purges more, segment by segment, until there is a file for the next one: history that no start needs goes before
    /// writes are refused.
    pub(super) fn give_history_up(&self, mut purge: Purge) -> Result<()> {
        purge.segments_max = 1;
        purge.retention = Retention {
            bytes: 0,
            ..purge.retention
        };
        while self.is_short() && self.make_spare().is_err() {
            let before = self.catalog.len();
            self.catalog.purge(&self.disk, &purge)?;
            if self.catalog.len() == before {
                break;
            }
        }
        Ok(())
    }
}
