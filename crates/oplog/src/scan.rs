//! Walks the frames of one segment file, and tells a torn tail from damage.
//!
//! Knows nothing of other segments. Bytes are not trusted: whatever they are, the walk ends, with frames whose
//! checksums, order and groups are right, or with an error. What may follow the last good frame is decided by
//! [`Scanner::stale_frames`].

use crate::disk::failure;
use crate::format::{
    FRAME_ALIGN, FRAMES_START, FrameHeader, FrameKind, HeaderError, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION,
    entry_length,
};
use crate::limits::SCAN_WINDOW_BYTES;
use crate::{Damage, LogError, Result};
use codec::Decompressor;
use crypt::{Keys, SealError};
use engine::Seq;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, File, FileSystem};

/// An open segment whose header has been checked.
pub(crate) struct SegmentFile {
    pub file: Arc<dyn File>,
    pub path: PathBuf,
    pub header: SegmentHeader,
    /// How much of the file there is. What its header says there is besides is read as zeros.
    pub present: u64,
    keys: Option<Arc<Keys>>,
}

impl SegmentFile {
    pub fn open(fs: &dyn FileSystem, path: &Path, access: Access) -> Result<Self> {
        let file = fs.open(path, access).map_err(|source| failure("open", path, source))?;
        let corrupt = |offset, damage| LogError::Corrupt {
            path: path.to_owned(),
            offset,
            damage,
        };
        let found = file.len().map_err(|source| failure("read", path, source))?;
        if found < FRAMES_START {
            return Err(corrupt(
                found,
                Damage::Length {
                    expected: FRAMES_START,
                    found,
                },
            ));
        }
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)
            .map_err(|source| failure("read", path, source))?;
        let keys = fs.keys().cloned();
        let header = SegmentHeader::decode(&bytes, keys.as_deref()).map_err(|error| match error {
            HeaderError::Damage(damage) => corrupt(0, damage),
            HeaderError::Version(found) => LogError::Version {
                path: path.to_owned(),
                found,
                supported: VERSION,
            },
        })?;
        Ok(Self {
            file,
            path: path.to_owned(),
            header,
            present: found.min(header.file_bytes),
            keys,
        })
    }

    pub fn is_cut(&self) -> bool {
        self.present < self.header.file_bytes
    }

    pub fn corrupt(&self, offset: u64, damage: Damage) -> LogError {
        LogError::Corrupt {
            path: self.path.clone(),
            offset,
            damage,
        }
    }
}

/// A walk over the frames of a segment.
pub(crate) struct Scanner {
    segment: SegmentFile,
    /// Where the next frame is due.
    offset: u64,
    /// The first entry of the next frame.
    next: Seq,
    /// Where the group of the last frame starts; `None` before the first.
    group_start: Option<u64>,
    window: Vec<u8>,
    window_at: u64,
    /// The payload of a sealed frame.
    plain: Vec<u8>,
}

/// A frame with valid checksums, at its place.
pub(crate) struct Frame<'a> {
    pub header: FrameHeader,
    pub offset: u64,
    /// Compressed, if it is, and decrypted.
    pub payload: &'a [u8],
}

impl Scanner {
    /// A walk from the first frame.
    pub fn new(segment: SegmentFile) -> Self {
        let first = segment.header.first;
        Self::starting(segment, first, FRAMES_START)
    }

    /// A walk from the frame at `offset`, whose first entry is `next`.
    pub fn starting(segment: SegmentFile, next: Seq, offset: u64) -> Self {
        Self {
            segment,
            offset,
            next,
            group_start: None,
            window: Vec::new(),
            window_at: 0,
            plain: Vec::new(),
        }
    }

    pub fn segment(&self) -> &SegmentFile {
        &self.segment
    }

    /// Where the walk stands: behind the last good frame.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The entry due next.
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// Where the last frame's group starts.
    pub fn group_start(&self) -> Option<u64> {
        self.group_start
    }

    /// Reads the file again where it was read ahead.
    pub fn forget_window(&mut self) {
        self.window.clear();
    }

    /// The next frame; `None` where no valid one stands. A valid frame that does not belong there is an error.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>> {
        let offset = self.offset;
        let segment = self.segment.header;
        let Some(bytes) = self.bytes(offset, segment.frame_header_bytes())? else {
            return Ok(None);
        };
        let Some(header) = FrameHeader::decode(bytes, &segment, offset) else {
            return Ok(None);
        };
        let payload_at = offset + segment.frame_header_bytes() as u64;
        let Some(payload) = self.bytes(payload_at, header.stored_bytes as usize)? else {
            return Ok(None);
        };
        if crc32c::crc32c(payload) != header.payload_crc {
            return Ok(None);
        }
        let stored = header.stored_bytes as usize;
        let start = (payload_at - self.window_at) as usize;
        if let Some(keys) = &self.segment.keys {
            let payload = &self.window[start..start + stored];
            match header.open(&segment, offset, payload, keys, &mut self.plain) {
                Ok(()) => {}
                // As a checksum that does not fit: which place that is in the log says what it means.
                Err(SealError::Tag) => return Ok(None),
                // Never what a crash leaves: the frame may have been acknowledged, and must not be taken for torn.
                Err(error) => return Err(self.segment.corrupt(offset, Damage::Seal(error))),
            }
        }
        if header.first != self.next {
            let damage = Damage::FrameSeq {
                expected: self.next,
                found: header.first,
            };
            return Err(self.segment.corrupt(offset, damage));
        }
        if header.group_start != offset && self.group_start.is_some_and(|group| group != header.group_start) {
            return Err(self.segment.corrupt(
                offset,
                Damage::FrameGroup {
                    found: header.group_start,
                },
            ));
        }
        self.offset = header.end(&segment, offset);
        self.next = header.next_seq();
        self.group_start = Some(header.group_start);
        let payload = match &self.segment.keys {
            Some(_) => &self.plain[..],
            None => &self.window[start..start + stored],
        };
        Ok(Some(Frame {
            header,
            offset,
            payload,
        }))
    }

    /// Looks behind the end of the walk. A crash tears only the last group, so a frame there that was written when
    /// the place where the walk ended had already been synced proves damage; others are left-overs of the torn group,
    /// and their offsets are returned: their headers must be erased before anything is written.
    pub fn stale_frames(&mut self) -> Result<Vec<u64>> {
        let mut stale = Vec::new();
        let end = self.offset;
        let segment = self.segment.header;
        let mut offset = end;
        while let Some(bytes) = self.bytes(offset, segment.frame_header_bytes())? {
            if let Some(header) = FrameHeader::decode(bytes, &segment, offset) {
                if header.group_start > end {
                    return Err(self.segment.corrupt(end, Damage::Frame));
                }
                stale.push(offset);
            }
            offset += FRAME_ALIGN;
        }
        Ok(stale)
    }

    /// What is missing of the file, where the next frame may have been in it. Where the place at which that is due is
    /// there, and no frame stands on it, the walk has not ended for want of the rest, which had nothing.
    pub fn cut(&mut self) -> Result<Option<LogError>> {
        let (segment, present) = (self.segment.header, self.segment.present);
        let (offset, length) = (self.offset, segment.frame_header_bytes());
        let Some(bytes) = self.bytes(offset, length)? else {
            return Ok(None);
        };
        let end = match FrameHeader::decode(bytes, &segment, offset) {
            Some(header) => header.end(&segment, offset),
            None => offset + length as u64,
        };
        let damage = Damage::Length {
            expected: segment.file_bytes,
            found: present,
        };
        Ok((self.segment.is_cut() && end > present).then(|| self.segment.corrupt(present, damage)))
    }

    /// The frames between here and `end`, by their headers, when those are all good and the frames hold entries alone:
    /// the first entry and the term of each. Their payloads may be damaged.
    pub fn terms_until(&mut self, end: u64) -> Result<Option<Vec<(Seq, u64)>>> {
        let segment = self.segment.header;
        let (mut offset, mut next, mut terms) = (self.offset, self.next, Vec::new());
        while offset < end {
            let Some(bytes) = self.bytes(offset, segment.frame_header_bytes())? else {
                return Ok(None);
            };
            match FrameHeader::decode(bytes, &segment, offset) {
                Some(header) if header.kind == FrameKind::Entries && header.first == next => {
                    terms.push((header.first, header.term));
                    (offset, next) = (header.end(&segment, offset), header.next_seq());
                }
                _ => return Ok(None),
            }
        }
        Ok((offset == end).then_some(terms))
    }

    /// The first place from `offset` on where a whole frame with valid checksums stands, and the entry it begins with.
    pub fn next_good_frame(&mut self, offset: u64) -> Result<Option<(u64, Seq)>> {
        let found = self.next_good_header(offset)?;
        Ok(found.map(|(offset, header)| (offset, header.first)))
    }

    /// The same with the frame's header.
    pub fn next_good_header(&mut self, offset: u64) -> Result<Option<(u64, FrameHeader)>> {
        let segment = self.segment.header;
        let mut offset = offset.next_multiple_of(FRAME_ALIGN).max(FRAMES_START);
        while let Some(bytes) = self.bytes(offset, segment.frame_header_bytes())? {
            if let Some(header) = FrameHeader::decode(bytes, &segment, offset) {
                let payload_at = offset + segment.frame_header_bytes() as u64;
                let payload = self.bytes(payload_at, header.stored_bytes as usize)?;
                if payload.is_some_and(|payload| crc32c::crc32c(payload) == header.payload_crc) {
                    return Ok(Some((offset, header)));
                }
            }
            offset += FRAME_ALIGN;
        }
        Ok(None)
    }

    /// The same segment from another frame on.
    pub fn restart(self, next: Seq, offset: u64) -> Self {
        Self::starting(self.segment, next, offset)
    }

    /// `length` bytes at `offset`; `None` when the segment ends before.
    fn bytes(&mut self, offset: u64, length: usize) -> Result<Option<&[u8]>> {
        let segment_end = self.segment.header.file_bytes;
        if segment_end.checked_sub(offset).is_none_or(|left| left < length as u64) {
            return Ok(None);
        }
        let window_end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + length as u64 > window_end {
            let wanted = (segment_end - offset).min(length.max(SCAN_WINDOW_BYTES) as u64);
            self.window.clear();
            self.window.resize(wanted as usize, 0);
            self.window_at = offset;
            let present = self.segment.present.saturating_sub(offset).min(wanted) as usize;
            let read = self.segment.file.read_exact_at(&mut self.window[..present], offset);
            if let Err(source) = read {
                self.window.clear();
                return Err(failure("read", &self.segment.path, source));
            }
        }
        let start = (offset - self.window_at) as usize;
        Ok(Some(&self.window[start..start + length]))
    }
}

/// The raw bytes of a frame, checked to split into its entries; those of a state are none.
pub(crate) fn unpack(frame: &Frame<'_>, unpacker: &mut Decompressor) -> std::result::Result<Vec<u8>, Damage> {
    let header = &frame.header;
    let mut raw = Vec::new();
    if header.kind == FrameKind::State {
        return Ok(raw);
    }
    unpacker
        .decompress(header.codec, frame.payload, header.raw_bytes as usize, &mut raw)
        .map_err(Damage::Decompress)?;
    let mut rest = raw.as_slice();
    for _ in 0..header.entries {
        let length = entry_length(rest).ok_or(Damage::Entries)?;
        rest = &rest[crate::limits::ENTRY_LENGTH_BYTES + length..];
    }
    if rest.is_empty() { Ok(raw) } else { Err(Damage::Entries) }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
