//! Reads entries back, at replay and while the log runs.
//!
//! Sees what is durable, and what is only in memory where it was asked to. Holds at most one frame, and the segment it
//! reads: a segment that is purged meanwhile keeps its bytes for readers that have opened it.

use crate::catalog::Segment;
use crate::format::{FrameHeader, entry_length};
use crate::limits::ENTRY_LENGTH_BYTES;
use crate::log::Shared;
use crate::scan::{Scanner, SegmentFile, unpack};
use crate::{Damage, LogError, Result};
use bytes::{Buf, Bytes};
use codec::Decompressor;
use engine::Seq;
use std::sync::Arc;
use vfs::Access;

/// How far a reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Durable,
    Appended,
}

/// Yields `(Seq, entry)` in order from where [`crate::Log::read`] was asked to start, up to the durable mark of the
/// moment ([`crate::Log::read_appended`]: to the last entry). After `None` it can be asked again: it goes on when more
/// is durable. After an error it is at its end for ever.
pub struct LogReader {
    shared: Arc<Shared>,
    extent: Extent,
    /// Truncations it has heeded.
    truncations: usize,
    /// The entry to yield next.
    next: Seq,
    place: Option<Place>,
    /// What is left of the frame: raw bytes from the entry `frame_next` on.
    frame: Bytes,
    frame_next: Seq,
    /// What the frame has from here on was taken back.
    frame_end: Option<Seq>,
    frame_term: u64,
    /// The term of the entry yielded last.
    term: u64,
    unpacker: Decompressor,
    ended: bool,
}

/// The segment being read. The catalog does not recycle its file while this holds it.
struct Place {
    segment: Arc<Segment>,
    scanner: Scanner,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<Shared>, from: Seq, extent: Extent) -> Self {
        Self {
            truncations: shared.truncations(),
            shared,
            extent,
            next: from,
            place: None,
            frame: Bytes::new(),
            frame_next: from,
            frame_end: None,
            frame_term: 0,
            term: 0,
            unpacker: Decompressor::new(),
            ended: false,
        }
    }

    /// The position of the entry that comes next.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// The term of the entry yielded last; 0 before the first.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// What was read ahead may have been taken back.
    fn heed_truncations(&mut self) -> Result<()> {
        if let Some(from) = self.shared.truncated_since(self.truncations) {
            if self.next > from {
                return Err(LogError::Truncated {
                    wanted: self.next,
                    from,
                });
            }
            self.truncations = self.shared.truncations();
            self.frame = Bytes::new();
            self.place = None;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(Seq, Bytes)>> {
        loop {
            self.heed_truncations()?;
            while !self.frame.is_empty() {
                let length = entry_length(&self.frame).expect("`unpack` has checked the entries");
                self.frame.advance(ENTRY_LENGTH_BYTES);
                let entry = self.frame.split_to(length);
                let seq = self.frame_next;
                if self.frame_end.is_some_and(|end| seq >= end) {
                    self.frame = Bytes::new();
                    break;
                }
                self.frame_next = seq.next();
                if seq >= self.next {
                    self.next = seq.next();
                    self.term = self.frame_term;
                    return Ok(Some((seq, entry)));
                }
            }
            if self.next <= self.shared.durable_seq() {
                self.next_frame()?;
            } else if self.extent == Extent::Durable || self.next > self.shared.last_seq() {
                return Ok(None);
            } else if let Some(found) = self.shared.buffered(self.next) {
                (self.frame, self.frame_next) = (found.raw, self.next);
                (self.frame_end, self.frame_term) = (None, found.term);
            }
            // Otherwise it reached the disk, or was taken back, just now.
        }
    }

    /// Loads the frame that holds `next`, or walks over one before it.
    fn next_frame(&mut self) -> Result<()> {
        let wanted = self.next;
        let mut place = self.place_for(wanted)?;
        let end = self.shared.catalog.end_of(place.segment.header.number);
        let due = place.scanner.next_seq();
        let result = load_frame(&mut place.scanner, wanted, &mut self.unpacker);
        self.place = Some(place);
        match result {
            Ok(Some((header, raw))) => {
                self.frame_next = header.first;
                self.frame_end = end;
                self.frame_term = header.term;
                self.frame = raw.into();
                Ok(())
            }
            Ok(None) => Ok(()),
            // The segment has been read to its end, and the following ones went meanwhile.
            Err(LogError::Corrupt {
                damage: Damage::Frame, ..
            }) if due < self.shared.first_seq() => Err(LogError::Purged {
                wanted: due,
                first: self.shared.first_seq(),
            }),
            Err(error) => Err(error),
        }
    }

    /// The segment in which the walk goes on.
    fn place_for(&mut self, wanted: Seq) -> Result<Place> {
        let catalog = &self.shared.catalog;
        let purged = || LogError::Purged {
            wanted,
            first: self.shared.first_seq(),
        };
        if let Some(place) = self.place.take()
            && catalog
                .end_of(place.segment.header.number)
                .is_none_or(|end| wanted < end)
        {
            return Ok(place);
        }
        let segment = catalog.find(wanted).ok_or_else(purged)?;
        let file = match SegmentFile::open(&*self.shared.disk.fs, &segment.path, Access::Read) {
            Err(LogError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(purged());
            }
            result => result?,
        };
        let (first, offset) = segment.nearest(wanted);
        Ok(Place {
            segment,
            scanner: Scanner::starting(file, first, offset),
        })
    }
}

/// The next frame's header and raw bytes; `None` for a frame wholly before `wanted`, which is not unpacked. There must
/// be a frame, since what is wanted is durable.
fn load_frame(
    scanner: &mut Scanner,
    wanted: Seq,
    unpacker: &mut Decompressor,
) -> Result<Option<(FrameHeader, Vec<u8>)>> {
    for attempt in 0..2 {
        if attempt > 0 {
            // What was read ahead may be older than the frame.
            scanner.forget_window();
        }
        let (offset, damage) = match scanner.next_frame()? {
            None => continue,
            Some(frame) if frame.header.next_seq() <= wanted => return Ok(None),
            Some(frame) => match unpack(&frame, unpacker) {
                Ok(raw) => return Ok(Some((frame.header, raw))),
                Err(damage) => (frame.offset, damage),
            },
        };
        return Err(scanner.segment().corrupt(offset, damage));
    }
    Err(scanner.segment().corrupt(scanner.offset(), Damage::Frame))
}

impl Iterator for LogReader {
    type Item = Result<(Seq, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.shared.check_alive().and_then(|()| self.step());
        self.ended = step.is_err();
        step.transpose()
    }
}
