//! A full check of one segment file, for the `verify` command and for tests.

use crate::Result;
use crate::scan::{Scanner, SegmentFile, unpack};
use codec::Decompressor;
use engine::Seq;
use std::path::Path;
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
    report.end_offset = scanner.offset();
    report.stale_frames = scanner.stale_frames()?.len() as u64;
    Ok(report)
}
