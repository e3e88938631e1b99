//! The records of one extent, in the order of their links.
//!
//! 1. Forward from the first, as long as each record names the one before it as such. A record has one predecessor and
//!    the first has none, so that this cannot go round.
//! 2. If that does not end at the last record: backward from the last one, in the same way, until both ends meet.
//! 3. If they do not meet, what is between them is searched for (`search`), and stands between them in the order of the
//!    file.

use crate::extents::Extent;
use crate::finding::{Fault, Finding, Findings};
use crate::image::Reader;
use crate::layout::{
    DOCUMENT_BYTES_MIN, EXTENT_HEADER_BYTES, Location, NO_RECORD, RECORD_HEADER_BYTES, RECORD_PROBE_BYTES, RecordHeader,
};
use std::collections::HashMap;

/// An extent whose records are being read.
pub(crate) struct Records<'r, 'i> {
    pub(crate) reader: &'r mut Reader<'i>,
    pub(crate) extent: &'r Extent,
    pub(crate) namespace: &'r str,
}

/// Places of an extent, as bits in pieces that are made when they are needed.
#[derive(Default)]
pub(crate) struct Places(HashMap<u32, Box<[u64; 64]>>);

impl Places {
    pub(crate) fn insert(&mut self, place: u32) {
        let piece = self.0.entry(place >> 12).or_insert_with(|| Box::new([0; 64]));
        piece[(place >> 6 & 63) as usize] |= 1 << (place & 63);
    }

    pub(crate) fn contains(&self, place: u32) -> bool {
        let piece = self.0.get(&(place >> 12));
        piece.is_some_and(|piece| piece[(place >> 6 & 63) as usize] & 1 << (place & 63) != 0)
    }
}

/// Where a record is, and what its header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) at: u32,
    pub(crate) header: RecordHeader,
    /// The record's length lies within the extent.
    pub(crate) has_length: bool,
    /// The record names this extent.
    pub(crate) has_extent: bool,
}

impl Records<'_, '_> {
    pub(crate) fn finding(&self, at: Option<u32>, fault: Fault) -> Finding {
        let place = at.unwrap_or(self.extent.start());
        Finding {
            file: self.reader.image().name(self.extent.file),
            offset: Some(u64::from(place)),
            namespace: Some(self.namespace.to_owned()),
            fault,
        }
    }

    /// Looks at a place of the extent, whatever stands there.
    pub(crate) fn probe(&mut self, at: i32) -> Result<Record, Fault> {
        let broken = |why| Fault::RecordLink { why };
        let at = u32::try_from(at).map_err(|_| broken("a place before the file"))?;
        let first = self.extent.start() + EXTENT_HEADER_BYTES;
        let end = self.extent.end();
        if at < first || at.saturating_add(RECORD_HEADER_BYTES + DOCUMENT_BYTES_MIN) > end {
            return Err(broken("a link leads out of the extent"));
        }
        let bytes = self.reader.array::<RECORD_PROBE_BYTES>(self.extent.file, u64::from(at));
        let header = RecordHeader::decode(&bytes.map_err(|error| Fault::Unreadable {
            error: error.to_string(),
        })?);
        let length = u32::try_from(header.bytes).unwrap_or(0);
        Ok(Record {
            at,
            header,
            has_length: length >= RECORD_HEADER_BYTES + DOCUMENT_BYTES_MIN && length <= end - at,
            has_extent: header.extent == self.extent.location.offset,
        })
    }

    /// A record to which a link leads. One wrong field of two is forgiven.
    fn record(&mut self, at: i32) -> Result<Record, Fault> {
        let record = self.probe(at)?;
        if record.header.is_deleted() {
            return Err(Fault::RecordLink {
                why: "a link leads to a free record",
            });
        }
        if !record.has_length && !record.has_extent {
            return Err(Fault::RecordLink {
                why: "a link leads to no record",
            });
        }
        Ok(record)
    }

    /// A place that the extent's header gives.
    fn end_of(&self, location: Location) -> Result<Option<i32>, Fault> {
        if self.extent.is_headless {
            return Err(Fault::RecordLink {
                why: "the extent has no header",
            });
        }
        match location.is_set() {
            false => Ok(None),
            true if location.file == self.extent.location.file => Ok(Some(location.offset)),
            true => Err(Fault::RecordLink {
                why: "the extent's records are in another file",
            }),
        }
    }

    /// Places of all records that can be found, in order. `is_free` knows the records of the free lists.
    pub(crate) fn places(&mut self, is_free: &mut dyn FnMut(Location) -> bool, findings: &mut Findings) -> Vec<u32> {
        let mut front = Vec::new();
        let Err((at, fault)) = self.forward(&mut front, findings) else {
            return front;
        };
        if !self.extent.is_headless {
            let finding = self.finding(at, fault);
            findings.add(finding);
        }
        let mut seen = Places::default();
        front.iter().for_each(|&at| seen.insert(at));
        let (mut back, meets) = self.backward(&mut seen, front.last().copied());
        if !meets {
            let found = self.search(&seen, is_free, findings);
            if !found.is_empty() {
                let records = found.len() as u64;
                let finding = self.finding(None, Fault::RecordsFound { records });
                findings.add(finding);
            }
            front.extend(found);
        }
        back.reverse();
        front.extend(back);
        front
    }

    /// Ends well only at the last record; otherwise tells where it broke.
    fn forward(&mut self, front: &mut Vec<u32>, findings: &mut Findings) -> Result<(), (Option<u32>, Fault)> {
        let first = self.end_of(self.extent.first).map_err(|fault| (None, fault))?;
        let last = self.end_of(self.extent.last).map_err(|fault| (None, fault))?;
        let (mut at, last) = match (first, last) {
            (None, None) => return Ok(()),
            (Some(first), last) => (first, last),
            (None, Some(_)) => {
                let why = "the extent has a last record and no first one";
                return Err((None, Fault::RecordLink { why }));
            }
        };
        let mut previous = NO_RECORD;
        loop {
            let from = u32::try_from(previous).ok();
            let record = self.record(at).map_err(|fault| (from, fault))?;
            if record.header.previous != previous {
                let why = "a record does not name the one before it";
                return Err((Some(record.at), Fault::RecordLink { why }));
            }
            self.note(&record, findings);
            front.push(record.at);
            if record.header.next == NO_RECORD {
                if last == Some(at) {
                    return Ok(());
                }
                let why = "it ends before the extent's last record";
                return Err((Some(record.at), Fault::RecordLink { why }));
            }
            previous = at;
            at = record.header.next;
        }
    }

    /// From the last record on, and whether the front was met: at its end, or at the record that it leads to.
    fn backward(&mut self, seen: &mut Places, front_end: Option<u32>) -> (Vec<u32>, bool) {
        let mut back = Vec::new();
        let Ok(Some(mut at)) = self.end_of(self.extent.last) else {
            return (back, false);
        };
        let front_next = match front_end {
            Some(end) => self.probe(end.cast_signed()).ok().map(|record| record.header.next),
            None => self.end_of(self.extent.first).ok().flatten(),
        };
        let mut next = NO_RECORD;
        loop {
            let record = match self.record(at) {
                Ok(record) if record.header.next == next && !seen.contains(record.at) => record,
                Ok(record) if record.header.next == next && Some(record.at) == front_end => return (back, true),
                // Where the front leads to, a damaged link back is all that is wrong.
                _ => {
                    let reached = back.last().map(|&at: &u32| at.cast_signed());
                    return (back, reached.is_some() && reached == front_next);
                }
            };
            seen.insert(record.at);
            back.push(record.at);
            next = at;
            at = record.header.previous;
        }
    }

    fn note(&mut self, record: &Record, findings: &mut Findings) {
        let why = match (record.has_length, record.has_extent) {
            (true, true) => return,
            (false, _) => "its length",
            (_, false) => "its extent",
        };
        let finding = self.finding(Some(record.at), Fault::RecordHeader { why });
        findings.add(finding);
    }

    /// Reads the document of a record into the buffer; answers what is invalid in its content, such as text that is not
    /// UTF-8.
    pub(crate) fn document(&mut self, at: u32, buffer: &mut Vec<u8>) -> Result<Option<wire::BsonError>, Fault> {
        let record = self.probe(at.cast_signed())?;
        let whole = match record.has_length {
            true => record.header.bytes.cast_unsigned(),
            false => self.extent.end() - at,
        };
        let room = whole - RECORD_HEADER_BYTES;
        let bytes = record.header.document_bytes;
        let length = u32::try_from(bytes).unwrap_or(0);
        if length < DOCUMENT_BYTES_MIN || length > room || length as usize > wire::limits::DOCUMENT_INTERNAL_BYTES_MAX {
            return Err(Fault::DocumentLength { bytes, room });
        }
        buffer.resize(length as usize, 0);
        let start = u64::from(at + RECORD_HEADER_BYTES);
        let read = self.reader.read(self.extent.file, start, buffer);
        read.map_err(|error| Fault::Unreadable {
            error: error.to_string(),
        })?;
        Ok(wire::validate_structure(buffer)?)
    }
}
