//! Room for what is appended, on a disk that may be full.
//!
//! What is in memory has been acknowledged to those who do not wait for the disk, and must find its place there. So
//! nothing is appended that the segment in use and the files for further ones (spares) cannot take, as frames fill them
//! one after another; a part is left to what a checkpoint writes, as otherwise no segment could go. A spare is made
//! when the segment in use is half full, and where more is to come at once. Where that finds no space
//! ([`Room::is_short`]) somebody is told, who may have the log purged.
//!
//! What is left falls, and a spare becomes the segment in use, with `buffer` locked ([`Shared::set_left`]): whoever
//! appends sees each byte of room once. An entry that is longer than a segment gets a file of its own when it is
//! written, and is refused only while the disk is known to be full.

use super::{Log, Shared};
use crate::buffer::Buffer;
use crate::catalog::{Purge, Refusal};
use crate::format::{FRAMES_START, HARD_STATE_BYTES};
use crate::limits::{CHECKPOINT_PART_OF_SEGMENT, ENTRY_LENGTH_BYTES, FRAME_EXTRA_BYTES_MAX};
use crate::stats::add;
use crate::{LogError, LogMode, Result, Retention};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Told when the disk has no room for the next segment, of each that is made when there is room for few more, and when
/// history has made way for several at once, from the thread that saw it, which may hold locks. It must not call the
/// log.
pub type ShortageHandler = Arc<dyn Fn() + Send + Sync>;

/// Of spares that are wanted: however many there were.
const NO_PLACE: usize = usize::MAX;

/// What entries are appended for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendPurpose {
    /// Of a full disk's last room a part is left.
    Write,
    /// That part is for what a checkpoint writes, and for what must not be refused: a term's first entry, entries of
    /// other members whose room was made sure of.
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

    /// Files for further segments that are needed where entries of these lengths and of one term come behind what is in
    /// the buffer, which is no more than `buffered`. [`NO_PLACE`] where the disk is full and a frame is longer than a
    /// segment.
    pub fn segments_for(
        &self,
        (buffer, buffered): (&Buffer, usize),
        (term, lengths): (u64, impl ExactSizeIterator<Item = usize> + Clone),
        purpose: AppendPurpose,
    ) -> usize {
        let kept = self.kept(purpose);
        let left = self.left.load(Ordering::Acquire);
        let extra = (buffer.frame_count() + lengths.len() + 1) * FRAME_EXTRA_BYTES_MAX;
        let added = lengths.clone().sum::<usize>();
        if buffered + added + kept.unwrap_or(0) + extra <= left {
            return 0;
        }
        let frames = buffer.frames_with(term, lengths);
        self.segments_behind(left, frames.into_iter().chain(kept))
    }

    /// As [`Room::segments_for`], where the segment in use takes nothing more and so much is in the buffer.
    pub fn segments_behind_end(&self, buffer: &Buffer) -> usize {
        self.segments_behind(0, buffer.frames().chain(self.kept(AppendPurpose::Write)))
    }

    /// As [`Room::segments_for`], of some entries of one length.
    pub fn segments_for_some(&self, buffer: &Buffer, bytes: usize, entries: usize) -> usize {
        let entries = entries.max(1);
        let each = std::iter::repeat_n(bytes.div_ceil(entries) + ENTRY_LENGTH_BYTES, entries);
        let left = self.left.load(Ordering::Acquire);
        self.segments_behind(left, buffer.frames().chain(each).chain(self.kept(AppendPurpose::Write)))
    }

    fn kept(&self, purpose: AppendPurpose) -> Option<usize> {
        (purpose == AppendPurpose::Write).then_some(self.for_checkpoint)
    }

    /// Segments that frames need beside the one in use, which has so much left. Compression only shortens frames, and a
    /// frame that is cut in two needs no more: the disk is never asked for more segments than this says.
    fn segments_behind(&self, mut left: usize, frames: impl Iterator<Item = usize>) -> usize {
        let segment = self.segment_bytes - FRAMES_START as usize - HARD_STATE_BYTES - FRAME_EXTRA_BYTES_MAX;
        let mut segments = 0;
        for bytes in frames {
            let bytes = bytes + FRAME_EXTRA_BYTES_MAX;
            if bytes > left {
                if bytes > segment && self.is_short() {
                    return NO_PLACE;
                }
                segments += 1;
                left = segment.max(bytes);
            }
            left -= bytes;
        }
        segments
    }

    /// Whether the segment in use has room for so much, in any number of frames that a buffer may have. In a hurry.
    fn has(&self, bytes: usize, entries: usize) -> bool {
        !self.is_used_up(bytes + entries * (ENTRY_LENGTH_BYTES + FRAME_EXTRA_BYTES_MAX))
    }

    /// Whether writes have used up what the segment in use has for them, but for one of some length that has looked for
    /// room before.
    fn is_used_up(&self, bytes: usize) -> bool {
        bytes + 2 * self.for_checkpoint >= self.left.load(Ordering::Acquire)
    }
}

impl Log {
    /// Bounded back-pressure, to be called before locks are taken: waits while more than `buffer_bytes_max` bytes are
    /// not on disk, or more than the segments that there are can take. While the disk is full it answers `OutOfSpace`,
    /// and `NoDescriptors` where it is that, after having tried. Four loads when there is room.
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
        while shared.stuck.load(Ordering::Relaxed)
            || shared.buffered.load(Ordering::Relaxed) >= shared.buffer_bytes_max
            || shared.lacks_room()
        {
            add(&shared.disk.counters.waits_for_room, 1);
            let last = self.last_seq();
            // It is tried even when all entries are on disk: what was stuck may be a hard state.
            let served = || !shared.stuck.load(Ordering::Relaxed) && shared.durable_seq() >= last;
            shared.flush_until(last, &served, None)?;
            shared.check_open()?;
            if shared.lacks_room() {
                match shared.make_spare() {
                    Err(error) if error.passes() => return Err(error),
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
        if shared.mode == LogMode::Off
            || shared
                .room
                .has(shared.buffered.load(Ordering::Acquire) + bytes, entries)
        {
            return false;
        }
        let wanted = shared.room.segments_for_some(&shared.buffer.lock(), bytes, entries);
        wanted > 0 && shared.catalog.spares() < wanted
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
        let wanted = shared.room.segments_for_some(&shared.buffer.lock(), bytes, entries);
        match shared.make_spares(wanted) {
            Err(error) if error.passes() => Err(error),
            // What else is wrong the segment itself meets, where somebody can act on it.
            _ => Ok(()),
        }
    }

    /// Makes a file for the next segment ahead of time where there is none: [`Log::pin`] needs one. Errors:
    /// `OutOfSpace`, `NoDescriptors`, `Io`, `Failed`, `Closed`.
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

    /// Has `handler` called each time that the log becomes short of segments, or is about to.
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
    pub(super) fn is_short(&self) -> bool {
        self.room.is_short() || self.full.load(Ordering::Relaxed)
    }

    /// A flush found the disk full, or no descriptor for the next segment.
    pub(super) fn note_stuck(&self, error: &LogError) {
        self.stuck.store(true, Ordering::Relaxed);
        let is_full = matches!(error, LogError::OutOfSpace { .. });
        if is_full && !self.full.swap(true, Ordering::Relaxed) && !self.room.is_short() {
            self.tell_of_shortage();
        }
    }

    /// A flush had what it needs.
    pub(super) fn note_unstuck(&self) {
        self.stuck.store(false, Ordering::Relaxed);
        self.full.store(false, Ordering::Relaxed);
    }

    fn tell_of_shortage(&self) {
        add(&self.disk.counters.shortages, 1);
        self.call_handler();
    }

    fn call_handler(&self) {
        if let Some(handler) = self.room.on_shortage.get() {
            handler();
        }
    }

    /// Sees to it that there is a file for the next segment.
    pub(super) fn make_spare(&self) -> Result<()> {
        self.make_spares(1)
    }

    /// Sees to it that there are files for the next `count` segments; for [`NO_PLACE`] it tries whether the disk is
    /// full still. The log is short only where there is no room for the next one: who wants several is refused, and
    /// others go on.
    pub(super) fn make_spares(&self, count: usize) -> Result<()> {
        self.try_spares(count).map_err(|refusal| refusal.error)
    }

    /// As [`Shared::make_spares`], for whoever wants to know what there is room for where that is refused.
    fn try_spares(&self, count: usize) -> std::result::Result<(), Refusal> {
        let count = if count == NO_PLACE { 1 } else { count };
        match self.catalog.ensure_spares(&self.disk, count) {
            Ok(are_few) => {
                self.room.is_short.store(false, Ordering::Relaxed);
                if are_few {
                    self.call_handler();
                }
                Ok(())
            }
            Err(refusal) => {
                if let LogError::OutOfSpace { .. } = refusal.error {
                    let is_short = refusal.room_for == 0 && self.catalog.needs_spare();
                    let was_short = self.room.is_short.swap(is_short, Ordering::Relaxed);
                    if is_short && !was_short {
                        self.tell_of_shortage();
                    }
                }
                Err(refusal)
            }
        }
    }

    /// Purges more, segment by segment, until there are files for the next one and for as many as are `wanted`:
    /// history that no start needs goes before writes are refused. None goes where all of it would not do.
    pub(super) fn give_history_up(&self, mut purge: Purge, wanted: usize) -> Result<()> {
        purge.segments_max = 1;
        purge.retention = Retention {
            bytes: 0,
            ..purge.retention
        };
        let catalog = &self.catalog;
        let wanted = match wanted {
            NO_PLACE => 1,
            several if several > 1 => match self.try_spares(several) {
                Err(Refusal {
                    error: LogError::OutOfSpace { .. },
                    room_for,
                }) if !catalog.makes_room_for(&purge, several.saturating_sub(catalog.spares() + room_for)) => 0,
                _ => several,
            },
            wanted => wanted,
        };
        let lacks = || self.is_short() || catalog.spares() < wanted;
        let mut has_gone = false;
        while lacks() && matches!(self.make_spares(wanted.max(1)), Err(LogError::OutOfSpace { .. })) {
            let before = (catalog.len(), catalog.bytes());
            catalog.purge(&self.disk, &purge)?;
            if catalog.len() == before.0 {
                break;
            }
            let gone = before.1.saturating_sub(catalog.bytes());
            add(&self.disk.counters.history_given_up_bytes, gone);
            has_gone = true;
        }
        // For the next one alone: whoever found the log short has called it.
        if has_gone && wanted > 1 {
            self.call_handler();
        }
        Ok(())
    }
}
