//! Opens a directory, perhaps after a crash.
//!
//! 1. Read every segment's header; their numbers must follow each other, their first entries must not fall but where a
//!    segment takes entries back.
//! 2. Walk the frames from the segment that holds the entry after the engine's durable mark. Every segment but the last
//!    must reach the next one's first entry: it was synced before the next one was made. What is damaged before that
//!    entry is stepped over, and told: no entry of it is needed. What consensus wrote down may have stood there, too,
//!    unless the frames' headers say that they held entries.
//! 3. The last one ends at its first bad frame. A later frame that proves this place was synced once is damage, and so
//!    is a file that ends where the frame is due; otherwise a crash tore the last group, whose left-overs are erased so
//!    that they cannot come back behind new frames.
//! 4. The last group is written again and synced before its entries count as durable: it may be in the page cache only,
//!    even after a failed sync of a process that has ended.
//! 5. An engine that is ahead of the log shows that log files are missing: refused, with nothing changed. Where the
//!    engine has everything all the same ([`EngineAhead::BeginBehind`]), the log starts again behind the mark.
//!
//! All of it can be interrupted by a crash and done again.

use crate::catalog::{Catalog, Segment, new_stamp, reserve, segment_name, segment_number};
use crate::disk::{Disk, failure};
use crate::format::{FRAME_ALIGN, FRAME_HEADER_BYTES, FrameKind, HardState, SegmentHeader, SegmentNumber, VERSION};
use crate::limits::SCAN_WINDOW_BYTES;
use crate::position::PositionFile;
use crate::scan::{Scanner, SegmentFile};
use crate::terms::Terms;
use crate::writer::{Tail, create_segment};
use crate::{Damage, EngineAhead, LogError, LogMode, LogOptions, Result};
use engine::Seq;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, create_directory_durably};

/// What was found, ready to be continued.
pub(crate) struct Recovered {
    pub catalog: Catalog,
    /// The last segment; `None` when the next entry needs a new one.
    pub tail: Option<Tail>,
    pub next_number: SegmentNumber,
    /// The last entry, or the engine's mark when that is later.
    pub last: Seq,
    /// The newest hard state.
    pub state: Option<HardState>,
    pub terms: Terms,
    pub position: PositionFile,
    /// Damaged places that were stepped over.
    pub damages: Vec<LogError>,
    /// The first entry behind the last of them.
    pub readable_from: Seq,
    /// See [`Log::may_lack_consensus`](crate::Log::may_lack_consensus).
    pub may_lack_consensus: bool,
}

/// What a walk over the segments found.
#[derive(Default)]
struct Walked {
    /// At the end of the last segment; `None` when there is none.
    end: Option<Scanner>,
    state: Option<HardState>,
    terms: Terms,
    damages: Vec<LogError>,
    readable_from: Seq,
    /// A hard state may have stood in a damage, and none stands behind it.
    may_lack_state: bool,
    /// The term before a damage in which a later one may begin.
    unsure_of: Option<u64>,
}

pub(crate) fn recover(disk: &Disk, options: &LogOptions, durable: Seq, env: &Env) -> Result<Recovered> {
    let directory = options.directory.as_path();
    let writable = options.mode == LogMode::On;
    let position = PositionFile::open(disk, options)?;
    let names = list_directory(disk, directory, writable)?;
    let mut numbers: Vec<_> = names.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort();
    let spares_max = options.spare_segments_max;
    let catalog = Catalog::new(directory, options.segment_bytes, spares_max, &names);
    let segments = read_headers(disk, options, &numbers, durable)?;
    let next_number = numbers.last().map_or(1, |last| last.0.saturating_add(1));
    let next_number = SegmentNumber(next_number);
    if let Some(first) = segments.iter().map(|segment| segment.header.first).min()
        && first > durable.next()
    {
        let directory = directory.to_owned();
        return Err(LogError::Gap {
            directory,
            durable,
            first,
        });
    }
    for segment in &segments {
        catalog.push(segment.clone());
    }
    let Walked {
        end,
        state,
        mut terms,
        damages,
        readable_from,
        may_lack_state,
        unsure_of,
    } = walk(disk, &segments, durable, options)?;
    let may_lack_consensus = may_lack_state || unsure_of.is_some();
    let last = end.as_ref().map_or(Seq::ZERO, |scanner| Seq(scanner.next_seq().0 - 1));
    if last < durable && options.engine_ahead == EngineAhead::Refuse {
        return Err(LogError::Behind {
            directory: directory.to_owned(),
            durable,
            last,
        });
    }
    let (end, stale) = match end {
        // Before it is asked whether the log was longer once, so that damage is told by its place.
        Some(mut scanner) if last >= durable && !options.ends_at_damage => {
            let stale = scanner.stale_frames()?;
            (Some(scanner), stale)
        }
        end => (end, Vec::new()),
    };
    let is_void = position.check(&segments, last, durable, options)?;
    if writable && (is_void || last < durable) {
        position.lock().forget(disk)?;
    }
    if writable {
        for segment in segments.iter().filter(|segment| segment.is_cut) {
            restore_length(disk, segment)?;
        }
    }
    if writable
        && last >= durable
        && let Some(scanner) = &end
    {
        settle_tail(disk, scanner, &stale)?;
    }
    if last < durable {
        drop((end, segments));
        terms.begin(durable.next(), options.term_before);
        let mut recovered = Recovered {
            catalog,
            tail: None,
            next_number,
            last: durable,
            state,
            terms,
            position,
            damages,
            readable_from,
            may_lack_consensus,
        };
        if !writable {
            recovered.catalog.forget_all();
            return Ok(recovered);
        }
        recovered.catalog.retire_all(disk)?;
        // An empty segment says where the log begins: without it the next start would take this log for one that was
        // lost.
        let header = SegmentHeader {
            number: next_number,
            stamp: new_stamp(&*env.random),
            first: durable.next(),
            file_bytes: options.segment_bytes,
            made_ms: env.clock.now_ms().max(0) as u64,
            term_before: recovered.terms.last(),
            truncates: false,
            version: VERSION,
            is_sealed: disk.keys().is_some(),
        };
        recovered.tail = Some(create_segment(disk, &recovered.catalog, header, state.as_ref())?);
        recovered.next_number = SegmentNumber(next_number.0 + 1);
        return Ok(recovered);
    }
    let tail = match (end, segments.last()) {
        // To one of an older format nothing is appended: the next entry begins a new one.
        (Some(scanner), Some(segment)) if writable && segment.header.is_current() => {
            segment.set_written(scanner.offset());
            Some(Tail {
                segment: segment.clone(),
                file: scanner.segment().file.clone(),
                offset: scanner.offset(),
            })
        }
        _ => None,
    };
    Ok(Recovered {
        catalog,
        tail,
        next_number,
        last,
        state,
        terms,
        position,
        damages,
        readable_from,
        may_lack_consensus,
    })
}

/// The names in the directory. It is made when missing; its entries, as they are seen now, are made durable.
fn list_directory(disk: &Disk, directory: &Path, writable: bool) -> Result<Vec<PathBuf>> {
    if writable {
        create_directory_durably(&*disk.fs, directory)
            .map_err(|source| failure("create directory", directory, source))?;
        disk.sync_directory(directory)?;
    }
    let exists = disk
        .fs
        .exists(directory)
        .map_err(|source| failure("find", directory, source))?;
    if exists { disk.list(directory) } else { Ok(Vec::new()) }
}

/// Reads the headers of all segments, in order.
///
/// A hole before a segment that holds everything the engine lacks is left by a purge whose directory sync failed, in an
/// earlier process: what lies in front of it is not needed, and is removed.
fn read_headers(
    disk: &Disk,
    options: &LogOptions,
    numbers: &[SegmentNumber],
    durable: Seq,
) -> Result<Vec<Arc<Segment>>> {
    let directory = options.directory.as_path();
    let mut segments: Vec<Arc<Segment>> = Vec::with_capacity(numbers.len());
    let mut left_over: Vec<Arc<Segment>> = Vec::new();
    for &number in numbers {
        let path = directory.join(segment_name(number));
        let segment = match SegmentFile::open(&*disk.fs, &path, Access::Read) {
            // As if it were missing.
            Err(LogError::Corrupt { .. }) if options.ends_at_damage => continue,
            opened => opened?,
        };
        let field = |field, expected, found| segment.corrupt(0, Damage::HeaderField { field, expected, found });
        if segment.header.number != number {
            return Err(field("number", number.0, segment.header.number.0));
        }
        let first = segment.header.first;
        // One that takes entries back begins at the first of them.
        let earliest = match segments.last() {
            Some(previous) if !segment.header.truncates => previous.header.first,
            _ => Seq(1),
        };
        if first < earliest {
            return Err(field("first_seq", earliest.0, first.0));
        }
        if let Some(previous) = segments.last()
            && previous.header.number.0 + 1 != number.0
        {
            if first > durable.next() {
                if options.ends_at_damage {
                    break;
                }
                let number = previous.header.number.0 + 1;
                return Err(LogError::MissingSegment {
                    directory: directory.to_owned(),
                    number,
                });
            }
            left_over.append(&mut segments);
        }
        let is_cut = segment.is_cut();
        segments.push(Arc::new(Segment::found(segment.header, path, is_cut)));
    }
    if options.mode == LogMode::On && !left_over.is_empty() {
        for segment in left_over {
            disk.remove(&segment.path)?;
        }
        disk.sync_directory(directory)?;
    }
    Ok(segments)
}

/// Checks every frame from the segment with the entry after `durable` on.
fn walk(disk: &Disk, segments: &[Arc<Segment>], durable: Seq, options: &LogOptions) -> Result<Walked> {
    // The last one that begins there or before: earlier ones have nothing of it, or what was taken back.
    let holder = segments
        .iter()
        .rposition(|segment| segment.header.first <= durable.next());
    let mut rest = segments.iter().skip(holder.unwrap_or(0)).peekable();
    let mut walked = Walked::default();
    while let Some(segment) = rest.next() {
        let next = rest.peek().map(|next| next.header);
        let access = if options.mode == LogMode::On && next.is_none() {
            Access::ReadWrite
        } else {
            Access::Read
        };
        walked.terms.begin_segment(&segment.header);
        let mut scanner = Scanner::new(SegmentFile::open(&*disk.fs, &segment.path, access)?);
        // To its end, even where the next one takes entries back: a state may stand behind them.
        let stopped = loop {
            let stopped = match scanner.next_frame() {
                Ok(Some(frame)) => {
                    match frame.header.kind {
                        FrameKind::Entries => {
                            // Terms never fall: all in between have this one.
                            walked.unsure_of.take_if(|term| *term == frame.header.term);
                            walked.terms.note(frame.header.first, frame.header.term);
                            segment.mark(frame.header.first, frame.offset);
                        }
                        FrameKind::State => {
                            walked.state = HardState::decode(frame.payload);
                            walked.may_lack_state = false;
                        }
                    }
                    continue;
                }
                Ok(None) => None,
                // What has no key is not damaged.
                Err(LogError::Corrupt {
                    damage: damage @ (Damage::Sealing { .. } | Damage::Seal(_)),
                    path,
                    offset,
                }) => return Err(LogError::Corrupt { path, offset, damage }),
                Err(error @ LogError::Corrupt { .. }) => Some(error),
                Err(error) => return Err(error),
            };
            match behind_damage(&mut scanner, durable, options.engine_ahead) {
                Ok(Some((offset, first))) => {
                    match scanner.terms_until(offset)? {
                        Some(terms) => terms
                            .into_iter()
                            .for_each(|(first, term)| walked.terms.note(first, term)),
                        None => {
                            walked.may_lack_state = true;
                            walked.unsure_of.get_or_insert(walked.terms.last());
                        }
                    }
                    let damage = scanner.segment().corrupt(scanner.offset(), Damage::Frame);
                    walked.damages.push(stopped.unwrap_or(damage));
                    walked.readable_from = first;
                    segment.mark_behind_damage(first, offset);
                    scanner = scanner.restart(first, offset);
                }
                Ok(None) => break stopped.map_or(Ok(()), Err),
                Err(error) => break Err(error),
            }
        };
        match stopped {
            Err(LogError::Corrupt { .. }) if options.ends_at_damage => {}
            stopped => stopped?,
        }
        segment.set_written(scanner.offset());
        let cut = scanner.cut()?;
        let Some(next) = next else {
            match cut {
                Some(cut) if options.engine_ahead == EngineAhead::Refuse && !options.ends_at_damage => return Err(cut),
                Some(cut) => {
                    // The engine has the entries.
                    walked.may_lack_state = true;
                    walked.damages.push(cut);
                }
                None => {}
            }
            walked.end = Some(scanner);
            return Ok(walked);
        };
        let damage = match scanner.next_seq().cmp(&next.first) {
            Ordering::Equal => continue,
            Ordering::Greater if next.truncates => continue,
            Ordering::Less => Damage::Frame,
            Ordering::Greater => Damage::FrameSeq {
                expected: next.first,
                found: scanner.next_seq(),
            },
        };
        if options.ends_at_damage {
            walked.end = Some(scanner);
            return Ok(walked);
        }
        return Err(cut.unwrap_or_else(|| scanner.segment().corrupt(scanner.offset(), damage)));
    }
    Ok(walked)
}

/// Where a walk that stopped before the entry after `durable` goes on: at the next good frame, when all before it is in
/// the engine. `None` where no entry is missing, and where the log may end.
///
/// Errors: `Corrupt` when an entry that is needed lies in the damage.
pub(crate) fn behind_damage(
    scanner: &mut Scanner,
    durable: Seq,
    engine_ahead: EngineAhead,
) -> Result<Option<(u64, Seq)>> {
    let (offset, due) = (scanner.offset(), scanner.next_seq());
    if due > durable {
        return Ok(None);
    }
    // By the write-ahead rule what the engine has was in the log. An engine that went on without one says nothing of
    // what stands here: it may be the left-over of a torn group.
    if engine_ahead == EngineAhead::BeginBehind {
        match scanner.stale_frames() {
            Ok(_) => return Ok(None),
            Err(LogError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let group = scanner.group_start();
    match scanner.next_good_header(offset + FRAME_ALIGN)? {
        Some((_, header)) if header.first > durable.next() => Err(scanner.segment().corrupt(offset, Damage::Frame)),
        // Not what was taken back before it could be written.
        Some((at, header))
            if header.first >= due && (header.group_start >= offset || group == Some(header.group_start)) =>
        {
            Ok(Some((at, header.first)))
        }
        _ => Ok(None),
    }
}

/// Gives a segment whose file is too short its length back, with zeros behind what there is: whoever copies the log
/// goes by it, and so does what is appended.
fn restore_length(disk: &Disk, segment: &Segment) -> Result<()> {
    let path = &segment.path;
    let file = disk.open(path, Access::ReadWrite)?;
    let bytes = segment.header.file_bytes;
    match reserve(&*file, path, bytes) {
        Err(LogError::OutOfSpace { .. }) => file
            .set_len(bytes)
            .map_err(|source| failure("allocate", path, source))?,
        reserved => reserved?,
    }
    disk.sync_file(&*file, path)
}

/// Steps 3 and 4.
fn settle_tail(disk: &Disk, scanner: &Scanner, stale: &[u64]) -> Result<()> {
    let SegmentFile { file, path, header, .. } = scanner.segment();
    let header_bytes = header.frame_header_bytes();
    let end = scanner.offset();
    let mut offset = scanner.group_start().unwrap_or(end);
    let mut buffer = vec![0; SCAN_WINDOW_BYTES];
    while offset < end {
        let part = &mut buffer[..(end - offset).min(SCAN_WINDOW_BYTES as u64) as usize];
        file.read_exact_at(part, offset)
            .map_err(|source| failure("read", path, source))?;
        disk.write(&**file, path, part, offset)?;
        offset += part.len() as u64;
    }
    for &offset in stale {
        disk.write(&**file, path, &[0; FRAME_HEADER_BYTES][..header_bytes], offset)?;
    }
    disk.sync_file(&**file, path)
}
