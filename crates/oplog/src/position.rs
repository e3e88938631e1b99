//! What is known of a log apart from it: that it has reached so far, and by which segment it is told from others.
//!
//! A log whose last segment is gone, or an older copy of it, still looks like a log where it reaches the engine's mark.
//! So a file outside the log's directory says up to where entries were durable when it was written, and the number and
//! stamp of the newest segment that entries went to. It is written before the first frame of a segment, and when the
//! log is opened, purged (after each checkpoint) and closed. What is torn off the end of the named segment, behind the
//! entry that the file tells of, nobody can miss.
//!
//! Invariants: what the file says was true when it was written; the segment it names is there until it names a later
//! one, as no purge takes it; none but the named one and those before it holds entries. Before a tail is taken back the
//! entry told of is an earlier one; the segment never is.

use crate::catalog::{Catalog, Segment};
use crate::disk::Disk;
use crate::format::{SegmentHeader, SegmentNumber, Stamp};
use crate::{EngineAhead, LogError, LogOptions, Result};
use engine::Seq;
use rcu::{Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::Access;

const MAGIC: [u8; 8] = *b"TENONPOS";
const VERSION: u32 = 1;
/// Magic, version, four bytes of zeros, number, stamp, last entry, four bytes of zeros, checksum.
const BYTES: usize = 48;
const CRC_AT: usize = BYTES - 4;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Of the segment with that entry, or of a later one.
    pub number: SegmentNumber,
    pub stamp: Stamp,
    /// The last entry known to be durable.
    pub last: Seq,
}

impl Position {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        for (at, field) in [(16, self.number.0), (24, self.stamp.0), (32, self.last.0)] {
            bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` for what was not written whole.
    pub fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let is_whole =
            bytes[..8] == MAGIC && u32_at(8) == VERSION && u32_at(CRC_AT) == crc32c::crc32c(&bytes[..CRC_AT]);
        is_whole.then(|| Self {
            number: SegmentNumber(u64_at(16)),
            stamp: Stamp(u64_at(24)),
            last: Seq(u64_at(32)),
        })
    }
}

/// The file, if there shall be one.
pub(crate) struct PositionFile {
    path: Option<PathBuf>,
    known: Mutex<Known>,
}

/// What the file says.
struct Known {
    /// `None` when there is none.
    position: Option<Position>,
    /// Found in the page cache it may be lost yet, and the file say again what it said before.
    is_durable: bool,
}

impl PositionFile {
    /// Reads it. One that was not written whole says nothing: the log has checksums of its own.
    pub fn open(disk: &Disk, options: &LogOptions) -> Result<Self> {
        let position = match &options.position_file {
            Some(path) => read(disk, path)?,
            None => None,
        };
        let known = Known {
            position,
            is_durable: false,
        };
        Ok(Self {
            path: options.position_file.clone(),
            known: Mutex::new(known),
        })
    }

    /// Refuses a log that is not the one of the file, or has not got that far any more, or lacks the segment that the
    /// file names, unless the engine has everything that is missing: all there was; or what is missing is given up.
    /// True when the file speaks of another log and nothing of this one is needed: what it says is void.
    pub fn check(&self, segments: &[Arc<Segment>], last: Seq, durable: Seq, options: &LogOptions) -> Result<bool> {
        let Some(position) = self.known.lock().position else {
            return Ok(false);
        };
        let header_is =
            |segment: &Arc<Segment>| (segment.header.number, segment.header.stamp) == (position.number, position.stamp);
        // Behind damage the segment may be there and not be among these.
        let is_behind = || segments.iter().all(|segment| segment.header.number != position.number);
        let is_same = segments.iter().any(header_is) || options.ends_at_damage && is_behind();
        let may_be_short = options.engine_ahead == EngineAhead::BeginBehind || options.ends_at_damage;
        let is_missed = position.last > durable && !may_be_short;
        // Nobody knows how much the segment held, so that it is missed even where the engine has the entry told of.
        let is_gone = !is_same && !may_be_short;
        // Entries of another log must not be put into this engine.
        if is_gone || is_missed && last < position.last || !is_same && last > durable {
            let directory = options.directory.clone();
            return Err(match is_behind() && last >= position.last {
                true => LogError::MissingSegment {
                    directory,
                    number: position.number.0,
                },
                false => LogError::Older {
                    directory,
                    reached: position.last,
                    last,
                },
            });
        }
        Ok(!is_same)
    }

    /// Nobody else writes it until the guard goes.
    pub fn lock(&self) -> HeldPosition<'_> {
        HeldPosition {
            path: self.path.as_deref(),
            known: self.known.lock(),
        }
    }
}

/// The file, locked.
pub(crate) struct HeldPosition<'a> {
    path: Option<&'a Path>,
    known: MutexGuard<'a, Known>,
}

impl HeldPosition<'_> {
    /// Says that entries up to `durable` are durable, which they are. Writes nothing when that is known to be on disk.
    /// Returns the segment that is named then.
    pub fn note(&mut self, disk: &Disk, catalog: &Catalog, durable: Seq) -> Result<Option<SegmentNumber>> {
        // One that was named before its first frame was written holds no durable entry yet.
        let segment = [catalog.find(durable), self.named(catalog)]
            .into_iter()
            .flatten()
            .max_by_key(|segment| segment.header.number);
        match segment {
            Some(segment) => self.name(disk, &segment.header, durable),
            // Purged, or there are no entries yet: none can be named.
            None => self.forget(disk).map(|()| None),
        }
    }

    /// Names a segment whose file has its name for good, for entries behind `durable`, which is durable. Returns the
    /// one that is named then.
    pub fn name(&mut self, disk: &Disk, segment: &SegmentHeader, durable: Seq) -> Result<Option<SegmentNumber>> {
        let Some(path) = self.path else { return Ok(None) };
        let position = Position {
            number: segment.number,
            stamp: segment.stamp,
            last: durable,
        };
        if self.known.is_durable && self.known.position == Some(position) {
            return Ok(Some(position.number));
        }
        match self.write(disk, path, &position) {
            // There is none yet, so that nothing is said.
            Err(error) if error.passes() && self.known.position.is_none() => return Ok(None),
            other => other?,
        }
        *self.known = Known {
            position: Some(position),
            is_durable: true,
        };
        Ok(Some(position.number))
    }

    /// The segment that the file names.
    fn named(&self, catalog: &Catalog) -> Option<Arc<Segment>> {
        let position = self.known.position?;
        let segment = catalog.numbered(position.number)?;
        (segment.header.stamp == position.stamp).then_some(segment)
    }

    /// In place: on a full disk, where purging is to make room, it has its room.
    fn write(&self, disk: &Disk, path: &Path, position: &Position) -> Result<()> {
        let file = disk.open(path, Access::OpenOrCreate)?;
        disk.write(&*file, path, &position.encode(), 0)?;
        disk.sync_file(&*file, path)?;
        match path.parent() {
            Some(parent) if !self.known.is_durable => disk.sync_directory(parent),
            _ => Ok(()),
        }
    }

    /// What it said is to be true no longer.
    pub fn forget(&mut self, disk: &Disk) -> Result<()> {
        if let (Some(path), true) = (self.path, self.known.position.is_some()) {
            disk.remove(path)?;
            if let Some(parent) = path.parent() {
                disk.sync_directory(parent)?;
            }
            self.known.position = None;
            self.known.is_durable = false;
        }
        Ok(())
    }
}

fn read(disk: &Disk, path: &Path) -> Result<Option<Position>> {
    let failed = |operation| move |source| crate::disk::failure(operation, path, source);
    if !disk.fs.exists(path).map_err(failed("find"))? {
        return Ok(None);
    }
    let file = disk.open(path, Access::Read)?;
    let mut bytes = [0; BYTES];
    let length = file.len().map_err(failed("measure"))?.min(BYTES as u64) as usize;
    file.read_exact_at(&mut bytes[..length], 0).map_err(failed("read"))?;
    Ok(Position::decode(&bytes))
}
