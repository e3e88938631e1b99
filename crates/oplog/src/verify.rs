//! Reading segment files without a log: the full check of one, and a walk over everything readable in it.

use crate::Result;
use crate::catalog::segment_number;
use crate::disk::failure;
use crate::format::{FRAME_ALIGN, FrameHeader, FrameKind, entry_length};
use crate::limits::ENTRY_LENGTH_BYTES;
use crate::scan::{Scanner, SegmentFile, unpack};
use crate::{Damage, LogError};
use codec::Decompressor;
use engine::Seq;
use std::path::{Path, PathBuf};
use vfs::{Access, FileSystem};

/// What [`verify_segment`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// The segment's number.
    pub number: u64,
    /// Position of its first entry, or of the one it is meant for.
    pub first: Seq,
    /// Its good entries.
    pub entries: u64,
    /// Its good frames.
    pub frames: u64,
    /// Offset behind the last good frame.
    pub end_offset: u64,
    /// Left-overs of a torn group behind the end; they are no damage in the last segment.
    pub stale_frames: u64,
}

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The segment's number.
    pub number: u64,
    /// Position of its first entry, or of the one it is meant for.
    pub first: Seq,
    /// Entries from `first` on in earlier segments are void.
    pub truncates: bool,
}

/// What [`walk_segment`] comes across.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SegmentPart<'s> {
    /// An entry, whole.
    Entry {
        /// Its position.
        seq: Seq,
        /// Its term.
        term: u64,
        /// Where its frame begins in the file.
        frame_offset: u64,
        /// What was appended.
        bytes: &'s [u8],
    },
    /// A place from which on something cannot be read. The walk goes on at the next good frame.
    Damage {
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        damage: &'s Damage,
    },
}

/// The segment files of a log's directory, in their order.
pub fn segment_files(fs: &dyn FileSystem, directory: &Path) -> Result<Vec<PathBuf>> {
    let names = fs
        .list(directory)
        .map_err(|source| failure("list", directory, source))?;
    let mut found: Vec<_> = names
        .iter()
        .filter_map(|name| Some((segment_number(name)?, directory.join(name))))
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Reads a segment from its header. What is wrong with the header is an error, and nothing else in the file counts
/// then.
pub fn segment_info(fs: &dyn FileSystem, path: &Path) -> Result<SegmentInfo> {
    let header = SegmentFile::open(fs, path, Access::Read)?.header;
    Ok(SegmentInfo {
        number: header.number.0,
        first: header.first,
        truncates: header.truncates,
    })
}

/// Hands every entry that can be read to `each`, and every damage, in the order of the file. Answers the position
/// behind the last entry. Errors are those of the header, of reading the file, and what `each` returns.
pub fn walk_segment<E: From<LogError>>(
    fs: &dyn FileSystem,
    path: &Path,
    each: &mut dyn FnMut(SegmentPart<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<Seq, E> {
    let mut unpacker = Decompressor::new();
    let mut scanner = Scanner::new(SegmentFile::open(fs, path, Access::Read)?);
    loop {
        // Frames up to the first place that has no good one.
        let stopped = loop {
            let frame = match scanner.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break None,
                Err(error) => break Some(error),
            };
            let header = frame.header;
            match unpack(&frame, &mut unpacker) {
                Ok(raw) => entries(&header, frame.offset, &raw, each)?,
                Err(damage) => each(SegmentPart::Damage {
                    offset: frame.offset,
                    damage: &damage,
                })?,
            }
        };
        let error = match stopped {
            Some(error) => error,
            None => match scanner.stale_frames() {
                // The left-overs of a group that a crash has torn, if any.
                Ok(_) => {
                    if let Some(LogError::Corrupt { offset, damage, .. }) = scanner.cut()? {
                        each(SegmentPart::Damage {
                            offset,
                            damage: &damage,
                        })?;
                    }
                    return Ok(scanner.next_seq());
                }
                Err(error) => error,
            },
        };
        let LogError::Corrupt { offset, damage, .. } = error else {
            return Err(error.into());
        };
        each(SegmentPart::Damage {
            offset,
            damage: &damage,
        })?;
        match scanner.next_good_frame(offset + FRAME_ALIGN)? {
            Some((offset, first)) => scanner = scanner.restart(first, offset),
            None => return Ok(scanner.next_seq()),
        }
    }
}

/// The entries of a frame's raw bytes, which have been checked to split into them.
fn entries<E>(
    header: &FrameHeader,
    frame_offset: u64,
    raw: &[u8],
    each: &mut dyn FnMut(SegmentPart<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if header.kind == FrameKind::State {
        return Ok(());
    }
    let mut rest = raw;
    let mut seq = header.first;
    while let Some(length) = entry_length(rest) {
        let (entry, after) = rest[ENTRY_LENGTH_BYTES..].split_at(length);
        each(SegmentPart::Entry {
            seq,
            term: header.term,
            frame_offset,
            bytes: entry,
        })?;
        seq = seq.next();
        rest = after;
    }
    Ok(())
}

/// Checks header, every frame's checksums, order, decompression and entries. Damage that a crash cannot have done is
/// `Corrupt`; whether the segment may end where it does is known only from the next one.
pub fn verify_segment(fs: &dyn FileSystem, path: &Path) -> Result<SegmentReport> {
    let segment = SegmentFile::open(fs, path, Access::Read)?;
    let mut report = SegmentReport {
        number: segment.header.number.0,
        first: segment.header.first,
        entries: 0,
        frames: 0,
        end_offset: 0,
        stale_frames: 0,
    };
    let mut unpacker = Decompressor::new();
    let mut scanner = Scanner::new(segment);
    loop {
        let bad = match scanner.next_frame()? {
            None => break,
            Some(frame) => {
                report.frames += 1;
                report.entries += u64::from(frame.header.entries);
                unpack(&frame, &mut unpacker).err().map(|damage| (frame.offset, damage))
            }
        };
        if let Some((offset, damage)) = bad {
            return Err(scanner.segment().corrupt(offset, damage));
        }
    }
    if let Some(cut) = scanner.cut()? {
        return Err(cut);
    }
    report.end_offset = scanner.offset();
    report.stale_frames = scanner.stale_frames()?.len() as u64;
    Ok(report)
}
