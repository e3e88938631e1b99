//! The segments of a directory: which there are, making one, recycling one.
//!
//! Knows nothing of frames. Invariants: the segments' numbers follow each other without a hole, on disk too, after any
//! crash: segments come at the end and go at the front, one directory sync each. A file gets a segment's name only when
//! its header is durable. `list` is never locked across I/O.

use crate::disk::{Disk, failure};
use crate::format::{FRAMES_START, SegmentHeader, SegmentNumber, Stamp};
use crate::limits::{FEW_SEGMENTS, MARK_INTERVAL_BYTES, SCAN_WINDOW_BYTES};
use crate::stats::add;
use crate::{LogError, Result, Retention};
use engine::Seq;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use vfs::{Access, File};

/// A segment in use.
pub(crate) struct Segment {
    pub header: SegmentHeader,
    pub path: PathBuf,
    /// Some frames' first entries and offsets, rising, `MARK_INTERVAL_BYTES` apart or behind damage.
    marks: Mutex<Vec<(Seq, u64)>>,
    /// Where its last frame ends; of one that recovery has not read, the file.
    written_bytes: AtomicU64,
    /// How many [`crate::PinnedLog`]s need the file; it rises only while the segment is in a catalog's list, with that
    /// locked.
    pub pins: AtomicUsize,
    /// The file was too short when the log was opened.
    pub is_cut: bool,
}

impl Segment {
    pub fn new(header: SegmentHeader, path: PathBuf) -> Self {
        Self {
            header,
            path,
            marks: Mutex::new(Vec::new()),
            written_bytes: AtomicU64::new(FRAMES_START),
            pins: AtomicUsize::new(0),
            is_cut: false,
        }
    }

    /// One that was there when the log was opened.
    pub fn found(header: SegmentHeader, path: PathBuf, is_cut: bool) -> Self {
        Self {
            is_cut,
            written_bytes: AtomicU64::new(header.file_bytes),
            ..Self::new(header, path)
        }
    }

    /// Its last frame ends at `offset`.
    pub fn set_written(&self, offset: u64) {
        self.written_bytes.store(offset, Ordering::Relaxed);
    }

    /// Remembers where a frame starts, if no remembered one is near.
    pub fn mark(&self, first: Seq, offset: u64) {
        let mut marks = self.marks.lock();
        if offset >= marks.last().map_or(FRAMES_START, |&(_, last)| last) + MARK_INTERVAL_BYTES {
            marks.push((first, offset));
        }
    }

    /// Remembers where the frames behind damage start, so that readers need not pass it.
    pub fn mark_behind_damage(&self, first: Seq, offset: u64) {
        let mut marks = self.marks.lock();
        let place = marks.partition_point(|&(known, _)| known < first);
        marks.insert(place, (first, offset));
    }

    /// A frame start at or before `seq`, as near as is remembered.
    pub fn nearest(&self, seq: Seq) -> (Seq, u64) {
        let marks = self.marks.lock();
        let behind = marks.partition_point(|&(first, _)| first <= seq);
        behind
            .checked_sub(1)
            .map_or((self.header.first, FRAMES_START), |index| marks[index])
    }
}

/// The segments of a directory.
pub(crate) struct Catalog {
    directory: PathBuf,
    segment_bytes: u64,
    spares_max: usize,
    list: Mutex<VecDeque<Arc<Segment>>>,
    spares: Mutex<Spares>,
    next_spare: AtomicU64,
    /// Held by whoever makes a spare file.
    preparing: rcu::Mutex<()>,
    /// When a file was last refused for want of space.
    refused_at: Mutex<Option<Duration>>,
}

/// Files for segments to come.
#[derive(Default)]
struct Spares {
    files: Vec<PathBuf>,
    /// One more is becoming a segment: [`Catalog::entered`] has not been called for it.
    is_entering: bool,
}

/// Why there are no files for segments to come.
pub(crate) struct Refusal {
    pub error: LogError,
    /// Files that there is room for all the same.
    pub room_for: usize,
}

/// Which segments may go, of those at the front. The last one never does.
pub(crate) struct Purge {
    /// All their entries are at or below it.
    pub up_to: Seq,
    /// The segment that the position file names; it and those behind it stay.
    pub named: Option<SegmentNumber>,
    pub retention: Retention,
    pub now_ms: u64,
    /// At most so many.
    pub segments_max: usize,
}

/// For so long no file is tried to be made after one was refused, unless the file system has the space.
const REFUSAL_HOLDS: Duration = Duration::from_secs(1);

/// The operation named in the error where the next segment cannot be made.
const MAKE_SEGMENT: &str = "make a log segment in";

const SEGMENT_SUFFIX: &str = ".log";
const SPARE_PREFIX: &str = "spare-";

/// The file name of a segment.
pub(crate) fn segment_name(number: SegmentNumber) -> String {
    format!("{:016x}{SEGMENT_SUFFIX}", number.0)
}

/// The number in a segment's file name.
pub(crate) fn segment_number(name: &Path) -> Option<SegmentNumber> {
    hex(name.to_str()?.strip_suffix(SEGMENT_SUFFIX)?).map(SegmentNumber)
}

fn spare_id(name: &Path) -> Option<u64> {
    hex(name.to_str()?.strip_prefix(SPARE_PREFIX)?)
}

/// Exactly sixteen lower-case hexadecimal digits.
fn hex(digits: &str) -> Option<u64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:016x}") == digits).then_some(number)
}

impl Catalog {
    /// A catalog of a directory with that listing; segments are added by recovery.
    pub fn new(directory: &Path, segment_bytes: u64, spares_max: usize, names: &[PathBuf]) -> Self {
        let ids: Vec<u64> = names.iter().filter_map(|name| spare_id(name)).collect();
        let spares = names
            .iter()
            .filter(|name| spare_id(name).is_some())
            .map(|name| directory.join(name))
            .collect();
        Self {
            directory: directory.to_owned(),
            segment_bytes,
            spares_max,
            list: Mutex::default(),
            spares: Mutex::new(Spares {
                files: spares,
                is_entering: false,
            }),
            next_spare: AtomicU64::new(ids.into_iter().max().map_or(0, |id| id.wrapping_add(1))),
            preparing: rcu::Mutex::default(),
            refused_at: Mutex::new(None),
        }
    }

    /// Adds the next segment.
    pub fn push(&self, segment: Arc<Segment>) {
        self.list.lock().push_back(segment);
    }

    pub fn len(&self) -> usize {
        self.list.lock().len()
    }

    /// Bytes of the segments' files.
    pub fn bytes(&self) -> u64 {
        self.list.lock().iter().map(|segment| segment.header.file_bytes).sum()
    }

    /// Bytes that are written of those from the one with `from` on.
    pub fn written_bytes(&self, from: Seq) -> u64 {
        let list = self.list.lock();
        let holder = list.iter().rposition(|segment| segment.header.first <= from);
        let rest = list.iter().skip(holder.unwrap_or(0));
        let written = rest.map(|segment| segment.written_bytes.load(Ordering::Relaxed));
        written.sum()
    }

    /// The segment with the first entry. Before it there may be some whose entries were all taken back.
    pub fn first(&self) -> Option<Arc<Segment>> {
        let list = self.list.lock();
        list.iter().rev().min_by_key(|segment| segment.header.first).cloned()
    }

    /// Position of the first entry.
    pub fn first_seq(&self) -> Option<Seq> {
        self.list.lock().iter().map(|segment| segment.header.first).min()
    }

    /// The segment in which `seq` is, or will be.
    ///
    /// The last one that begins at or before it: what earlier ones have of it was taken back by one that begins there.
    pub fn find(&self, seq: Seq) -> Option<Arc<Segment>> {
        let list = self.list.lock();
        list.iter().rev().find(|segment| segment.header.first <= seq).cloned()
    }

    /// The segment with that number.
    pub fn numbered(&self, number: SegmentNumber) -> Option<Arc<Segment>> {
        let list = self.list.lock();
        list.iter().find(|segment| segment.header.number == number).cloned()
    }

    /// The first entry that later segments hold: what that one has from there on is not the log's. `None` for the last
    /// one.
    pub fn end_of(&self, number: SegmentNumber) -> Option<Seq> {
        later_first(&self.list.lock(), number)
    }

    /// True when the next segment must be made from a new file.
    pub fn needs_spare(&self) -> bool {
        self.spares() == 0
    }

    /// Files that there are for segments to come. One that is becoming a segment counts until [`Catalog::entered`].
    pub fn spares(&self) -> usize {
        let spares = self.spares.lock();
        spares.files.len() + usize::from(spares.is_entering)
    }

    /// What the newest segment has left is known from here on: it is no spare any more.
    pub fn entered(&self) {
        self.spares.lock().is_entering = false;
    }

    fn new_spare_path(&self) -> PathBuf {
        let id = self.next_spare.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("{SPARE_PREFIX}{id:016x}"))
    }

    /// Sees to it that there are files for the next `count` segments. Answers whether one was made that leaves room for
    /// few more. After an error there are as many as before: others need the space, perhaps to make room.
    pub fn ensure_spares(&self, disk: &Disk, count: usize) -> std::result::Result<bool, Refusal> {
        let _only = self.preparing.lock();
        let missing = count.saturating_sub(self.spares());
        // Nobody counts on them before there are all.
        let mut made = Vec::new();
        let checked = self.check_room(disk, missing as u64 * self.segment_bytes);
        let was_asked = checked.is_err();
        let result = checked.and_then(|()| self.make_files(disk, missing, &mut made));
        if let Err(error) = result
            // A purge may have recycled some meanwhile.
            && self.spares() + made.len() < count
        {
            made.iter().for_each(|path| remove_quietly(disk, path));
            // A quota refuses though the file system says that it has space: what was tried says more.
            let room_for = match was_asked {
                true => self.count_free(disk),
                false => made.len(),
            };
            return Err(Refusal { error, room_for });
        }
        let is_made = !made.is_empty();
        self.spares.lock().files.append(&mut made);
        let few_bytes = FEW_SEGMENTS * self.segment_bytes;
        let are_few = || {
            let space = disk.fs.space(&self.directory);
            space.is_ok_and(|space| space.available_bytes < few_bytes)
        };
        Ok(is_made && are_few())
    }

    /// Makes files for segments to come. After an error some of them are in `made` all the same.
    fn make_files(&self, disk: &Disk, count: usize, made: &mut Vec<PathBuf>) -> Result<()> {
        for _ in 0..count {
            made.push(self.make_file(disk)?);
        }
        Ok(())
    }

    fn make_file(&self, disk: &Disk) -> Result<PathBuf> {
        let path = self.new_spare_path();
        let made = disk.open(&path, Access::CreateNew).and_then(|file| {
            let reserved = reserve(&*file, &path, self.segment_bytes);
            reserved.and_then(|()| disk.sync_file(&*file, &path))
        });
        match made {
            Ok(()) => Ok(path),
            Err(error) => {
                remove_quietly(disk, &path);
                Err(self.note_refusal(disk, self.segment_bytes, error))
            }
        }
    }

    /// A file system that has just had no room is asked how much it has before it is tried again: whoever is refused
    /// comes back at once, and an attempt costs it several operations.
    fn check_room(&self, disk: &Disk, bytes: u64) -> Result<()> {
        let is_recent = |at: &Duration| disk.clock.monotonic().saturating_sub(*at) < REFUSAL_HOLDS;
        let is_refused = self.refused_at.lock().as_ref().is_some_and(is_recent);
        let space = is_refused.then(|| disk.fs.space(&self.directory));
        match space {
            Some(Ok(space)) if space.available_bytes < bytes => {
                Err(self.no_room(bytes, std::io::ErrorKind::StorageFull.into()))
            }
            _ => Ok(()),
        }
    }

    /// A refusal for want of space or of a descriptor names no file: there is none.
    fn note_refusal(&self, disk: &Disk, bytes: u64, error: LogError) -> LogError {
        match error {
            LogError::OutOfSpace { source, .. } => {
                *self.refused_at.lock() = Some(disk.clock.monotonic());
                self.no_room(bytes, source)
            }
            LogError::NoDescriptors { source, .. } => LogError::NoDescriptors {
                operation: MAKE_SEGMENT,
                path: self.directory.clone(),
                source,
            },
            other => other,
        }
    }

    fn no_room(&self, bytes: u64, source: std::io::Error) -> LogError {
        let reason = format!("it takes {bytes} bytes: {source}");
        LogError::OutOfSpace {
            operation: MAKE_SEGMENT,
            path: self.directory.clone(),
            source: std::io::Error::new(source.kind(), reason),
        }
    }

    /// Makes the next segment, with these frames at its start, and adds it. An error that passes leaves everything as
    /// it was. What it is made of counts as a spare until [`Catalog::entered`].
    pub fn create(&self, disk: &Disk, header: SegmentHeader, frames: &[u8]) -> Result<(Arc<Segment>, Arc<dyn File>)> {
        let spare = match header.file_bytes == self.segment_bytes {
            true => self.take_spare(),
            false => None,
        };
        let recycled = spare.is_some();
        if !recycled {
            self.check_room(disk, header.file_bytes)?;
        }
        let path = spare.unwrap_or_else(|| self.new_spare_path());
        let result = match disk.open(&path, Access::OpenOrCreate) {
            // No descriptor is left: the space is there all the same.
            Err(error) if recycled => {
                let mut spares = self.spares.lock();
                spares.files.push(path);
                spares.is_entering = false;
                Err(error)
            }
            Err(error) => Err(error),
            Ok(file) => {
                let filled = self.fill(disk, (&path, &*file), header, frames);
                // What was allocated in vain is given back: others need it to make room.
                if filled.as_ref().is_err_and(LogError::passes) {
                    remove_quietly(disk, &path);
                }
                filled.map(|segment| (segment, file))
            }
        };
        match &result {
            Ok(_) if recycled => add(&disk.counters.segments_recycled, 1),
            Ok(_) => {}
            Err(_) => self.entered(),
        }
        result.map_err(|error| self.note_refusal(disk, header.file_bytes, error))
    }

    fn take_spare(&self) -> Option<PathBuf> {
        let mut spares = self.spares.lock();
        let spare = spares.files.pop()?;
        spares.is_entering = true;
        Some(spare)
    }

    fn fill(
        &self,
        disk: &Disk,
        (spare, file): (&Path, &dyn File),
        header: SegmentHeader,
        frames: &[u8],
    ) -> Result<Arc<Segment>> {
        reserve(file, spare, header.file_bytes)?;
        disk.write(file, spare, &header.encode(disk.keys()), 0)?;
        if !frames.is_empty() {
            disk.write(file, spare, frames, FRAMES_START)?;
        }
        disk.sync_file(file, spare)?;
        let path = self.directory.join(segment_name(header.number));
        disk.rename(spare, &path)?;
        disk.sync_directory(&self.directory)?;
        let segment = Arc::new(Segment::new(header, path));
        self.push(segment.clone());
        Ok(segment)
    }

    /// Pins the segment that holds `first` and all after it; `None` when it has gone.
    pub fn pin(&self, first: Seq) -> Option<Vec<Arc<Segment>>> {
        let list = self.list.lock();
        let holder = list.iter().rposition(|segment| segment.header.first <= first)?;
        let pinned: Vec<_> = list.iter().skip(holder).cloned().collect();
        for segment in &pinned {
            segment.pins.fetch_add(1, Ordering::Relaxed);
        }
        Some(pinned)
    }

    /// Takes segments off the front, except pinned ones. By one caller at a time.
    pub fn purge(&self, disk: &Disk, purge: &Purge) -> Result<()> {
        let mut left = purge.segments_max;
        self.retire_while(disk, |list| {
            let goes = left > 0 && purge.takes(list, 0);
            left -= usize::from(goes);
            goes
        })
    }

    /// Whether a purge makes room for so many segments, however many it may take. A reader keeps the bytes of a file
    /// that has gone.
    pub fn makes_room_for(&self, purge: &Purge, segments: usize) -> bool {
        let mut missing_bytes = segments as u64 * self.segment_bytes;
        let list = self.list.lock();
        // No more are looked at than that takes: there may be thousands, and each look goes through all others.
        for (place, segment) in list.iter().enumerate() {
            if missing_bytes == 0 || !purge.takes(&list, place) {
                break;
            }
            if Arc::strong_count(segment) == 1 {
                missing_bytes = missing_bytes.saturating_sub(segment.header.file_bytes);
            }
        }
        missing_bytes == 0
    }

    /// How many files for segments the file system says that it has space for.
    fn count_free(&self, disk: &Disk) -> usize {
        let space = disk.fs.space(&self.directory);
        space.map_or(0, |space| (space.available_bytes / self.segment_bytes) as usize)
    }

    /// Takes every segment off. Only before entries are written.
    pub fn retire_all(&self, disk: &Disk) -> Result<()> {
        self.retire_while(disk, |list| !list.is_empty())
    }

    /// Forgets every segment and leaves the files.
    pub fn forget_all(&self) {
        self.list.lock().clear();
    }

    fn retire_while(&self, disk: &Disk, mut more: impl FnMut(&VecDeque<Arc<Segment>>) -> bool) -> Result<()> {
        loop {
            let segment = {
                let mut list = self.list.lock();
                if !more(&list) {
                    return Ok(());
                }
                list.pop_front().expect("`more` saw one")
            };
            if let Err(error) = self.retire(disk, &segment) {
                // The file is still there under its name: without it the numbers on disk would have a hole once the
                // next one went.
                self.list.lock().push_front(segment);
                return Err(error);
            }
        }
    }

    /// Recycles or removes the file of a segment taken off the list. A reader that still holds the segment keeps the
    /// bytes by its open file: such a file is never reused.
    fn retire(&self, disk: &Disk, segment: &Arc<Segment>) -> Result<()> {
        let reusable = Arc::strong_count(segment) == 1
            && segment.header.file_bytes == self.segment_bytes
            && self.spares.lock().files.len() < self.spares_max;
        if !reusable {
            disk.remove(&segment.path)?;
            return disk.sync_directory(&self.directory);
        }
        let spare = self.new_spare_path();
        disk.rename(&segment.path, &spare)?;
        disk.sync_directory(&self.directory)?;
        self.spares.lock().files.push(spare);
        Ok(())
    }
}

impl Purge {
    /// Whether the segment at that place of the list goes when all before it have gone.
    fn takes(&self, list: &VecDeque<Arc<Segment>>, place: usize) -> bool {
        let Some(segment) = list.get(place) else { return false };
        let Some(end) = later_first(list, segment.header.number) else {
            return false;
        };
        let behind = list.iter().skip(place + 1);
        let bytes: u64 = behind.map(|segment| segment.header.file_bytes).sum();
        // What is in a segment was written before the next one was made.
        let newest_ms = list.get(place + 1).map_or(self.now_ms, |next| next.header.made_ms);
        let age_ms = self.now_ms.saturating_sub(newest_ms);
        let kept = bytes < self.retention.bytes || age_ms < self.retention.time.as_millis() as u64;
        let is_named = self.named.is_some_and(|named| named <= segment.header.number);
        end.0 - 1 <= self.up_to.0 && !is_named && segment.pins.load(Ordering::Acquire) == 0 && !kept
    }
}

/// The first entry of all segments behind that one.
fn later_first(list: &VecDeque<Arc<Segment>>, number: SegmentNumber) -> Option<Seq> {
    let later = list.iter().rev().take_while(|segment| segment.header.number > number);
    later.map(|segment| segment.header.first).min()
}

/// Gives a file exactly `bytes` bytes with space behind them, by writing zeros where the file system cannot reserve.
pub(crate) fn reserve(file: &dyn File, path: &Path, bytes: u64) -> Result<()> {
    let failed = |source| failure("allocate", path, source);
    file.allocate(0, bytes).map_err(failed)?;
    let mut length = file.len().map_err(failed)?;
    if length > bytes {
        return file.set_len(bytes).map_err(failed);
    }
    let zeros = [0; SCAN_WINDOW_BYTES];
    while length < bytes {
        let part = (bytes - length).min(zeros.len() as u64);
        file.write_all_at(&zeros[..part as usize], length).map_err(failed)?;
        length += part;
    }
    Ok(())
}

/// Removes a file that nothing refers to; one that stays is found as a spare at the next start.
fn remove_quietly(disk: &Disk, path: &Path) {
    let _ = disk.fs.remove_file(path);
}

/// A random stamp for a new use of a file.
pub(crate) fn new_stamp(random: &dyn vfs::Random) -> Stamp {
    Stamp(random.next_u64())
}
