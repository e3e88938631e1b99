//! Opens a directory, perhaps after a crash.
//!
//! 1. Read every segment's header; their numbers must follow each other, their first entries must not fall.
//! 2. Walk the frames from the segment that holds the entry after the engine's durable mark. Every segment but the last
//!    must reach the next one's first entry: it was synced before the next one was made.
//! 3. The last one ends at its first bad frame. A later frame that proves this place was synced once is damage; otherwise a
//!    crash tore the last group, whose left-overs are erased so that they cannot come back behind new frames.
//! 4. The last group is written again and synced before its entries count as durable: it may be in the page cache only,
//!    even after a failed sync of a process that has ended.
//! 5. When the engine is ahead of the log, the log's entries are all in the engine; it starts again behind the mark.
//!
//! All of it can be interrupted by a crash and done again.

use crate::catalog::{Catalog, Segment, segment_name, segment_number};
use crate::disk::Disk;
use crate::format::{FRAME_HEADER_BYTES, SegmentNumber};
use crate::limits::SCAN_WINDOW_BYTES;
use crate::scan::{Scanner, SegmentFile};
use crate::writer::Tail;
use crate::{Damage, LogError, LogMode, LogOptions, Result};
use engine::Seq;
use std::path::Path;
use std::sync::Arc;
use vfs::Access;

/// What was found, ready to be continued.
pub(crate) struct Recovered {
    pub catalog: Catalog,
    /// The last segment; `None` when the next entry needs a new one.
    pub tail: Option<Tail>,
    pub next_number: SegmentNumber,
    /// The last entry, or the engine's mark when that is later.
    pub last: Seq,
}

pub(crate) fn recover(disk: &Disk, options: &LogOptions, durable: Seq) -> Result<Recovered> {
    let directory = options.directory.as_path();
    let writable = options.mode == LogMode::On;
    prepare_directory(disk, directory, writable)?;
    let exists = disk
        .fs
        .exists(directory)
        .map_err(|source| crate::disk::failure("find", directory, source))?;
    let names = if exists {
        disk.list(directory)?
    } else {
        Vec::new()
    };
    let mut numbers: Vec<SegmentNumber> = names
        .iter()
        .filter_map(|name| segment_number(name))
        .collect();
    numbers.sort();
    let spares_max = options.spare_segments_max;
    let catalog = Catalog::new(directory, options.segment_bytes, spares_max, &names);
    let segments = open_segments(disk, directory, &numbers, writable)?;
    let next_number = numbers.last().map_or(SegmentNumber(1), |last| {
        SegmentNumber(last.0.saturating_add(1))
    });

    if let Some(first) = segments.first().map(|file| file.header.first)
        && first > durable.next()
    {
        return Err(LogError::Gap {
            directory: directory.to_owned(),
            durable,
            first,
        });
    }
    let entries: Vec<Arc<Segment>> = segments
        .iter()
        .map(|file| Arc::new(Segment::new(file.header, file.path.clone())))
        .collect();
    for segment in &entries {
        catalog.push(segment.clone());
    }
    let end = match walk(segments, &entries, durable)? {
        None => None,
        Some(scanner) if writable => Some(settle_tail(disk, scanner)?),
        Some(scanner) => Some(scanner),
    };
    let last = end
        .as_ref()
        .map_or(Seq::ZERO, |scanner| Seq(scanner.next_seq().0 - 1));
    if last < durable {
        drop((end, entries));
        if writable {
            catalog.retire_all(disk)?;
        } else {
            catalog.forget_all();
        }
        return Ok(Recovered {
            catalog,
            tail: None,
            next_number,
            last: durable,
        });
    }
    let tail = match (end, entries.last()) {
        (Some(scanner), Some(segment)) if writable => Some(Tail {
            segment: segment.clone(),
            file: scanner.segment().file.clone(),
            offset: scanner.offset(),
        }),
        _ => None,
    };
    Ok(Recovered {
        catalog,
        tail,
        next_number,
        last,
    })
}

/// Makes the directory, and its entries as they are seen now, durable.
fn prepare_directory(disk: &Disk, directory: &Path, writable: bool) -> Result<()> {
    if !writable {
        return Ok(());
    }
    vfs::create_directory_durably(&*disk.fs, directory)
        .map_err(|source| crate::disk::failure("create directory", directory, source))?;
    disk.sync_directory(directory)
}

/// Reads the headers of all segments, in order.
fn open_segments(
    disk: &Disk,
    directory: &Path,
    numbers: &[SegmentNumber],
    writable: bool,
) -> Result<Vec<SegmentFile>> {
    let mut segments: Vec<SegmentFile> = Vec::with_capacity(numbers.len());
    for (index, &number) in numbers.iter().enumerate() {
        let due = SegmentNumber(numbers[0].0 + index as u64);
        if number != due {
            return Err(LogError::MissingSegment {
                directory: directory.to_owned(),
                number: due.0,
            });
        }
        let access = if writable && index + 1 == numbers.len() {
            Access::ReadWrite
        } else {
            Access::Read
        };
        let segment = SegmentFile::open(&*disk.fs, &directory.join(segment_name(number)), access)?;
        let field = |field, expected, found| {
            segment.corrupt(
                0,
                Damage::HeaderField {
                    field,
                    expected,
                    found,
                },
            )
        };
        if segment.header.number != number {
            return Err(field("number", number.0, segment.header.number.0));
        }
        let first = segment.header.first;
        let earliest = segments
            .last()
            .map_or(Seq(1), |previous| previous.header.first);
        if first < earliest {
            return Err(field("first_seq", earliest.0, first.0));
        }
        segments.push(segment);
    }
    Ok(segments)
}

/// Checks every frame from the segment with the entry after `durable` on; returns the walk at the end of the last segment.
fn walk(
    segments: Vec<SegmentFile>,
    entries: &[Arc<Segment>],
    durable: Seq,
) -> Result<Option<Scanner>> {
    let start = segments
        .partition_point(|file| file.header.first <= durable.next())
        .saturating_sub(1);
    let mut rest = segments.into_iter().zip(entries).skip(start).peekable();
    while let Some((file, entry)) = rest.next() {
        let mut scanner = Scanner::new(file);
        let until = rest.peek().map(|(next, _)| next.header.first);
        while until.is_none_or(|until| scanner.next_seq() < until) {
            let Some(frame) = scanner.next_frame()? else {
                break;
            };
            entry.mark(frame.header.first, frame.offset);
        }
        match until {
            None => return Ok(Some(scanner)),
            Some(until) if scanner.next_seq() < until => {
                return Err(scanner.segment().corrupt(scanner.offset(), Damage::Frame));
            }
            Some(until) if scanner.next_seq() > until => {
                let damage = Damage::FrameSeq {
                    expected: until,
                    found: scanner.next_seq(),
                };
                return Err(scanner.segment().corrupt(scanner.offset(), damage));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

/// Steps 3 and 4.
fn settle_tail(disk: &Disk, mut scanner: Scanner) -> Result<Scanner> {
    let stale = scanner.stale_frames()?;
    let SegmentFile { file, path, .. } = scanner.segment();
    let end = scanner.offset();
    let mut offset = scanner.group_start().unwrap_or(end);
    let mut buffer = vec![0; SCAN_WINDOW_BYTES];
    while offset < end {
        let part = &mut buffer[..(end - offset).min(SCAN_WINDOW_BYTES as u64) as usize];
        file.read_exact_at(part, offset)
            .map_err(|source| crate::disk::failure("read", path, source))?;
        disk.write(&**file, path, part, offset)?;
        offset += part.len() as u64;
    }
    for &offset in &stale {
        disk.write(&**file, path, &[0; FRAME_HEADER_BYTES], offset)?;
    }
    disk.sync_file(&**file, path)?;
    Ok(scanner)
}
