//! Searching an extent for records that no link leads to any more.
//!
//! Records and free records fill an extent without gaps, so that each length leads to the next of them. Where a length
//! is damaged, the search goes on step by step until it finds a record that a neighbour confirms by its link. What was
//! deleted stays so: deletion puts a mark over the document's length, which the bytes keep until the place is used
//! again, and takes it out of its neighbours' links.

use crate::finding::{Fault, Findings};
use crate::layout::{
    DOCUMENT_BYTES_MIN, EXTENT_HEADER_BYTES, Location, NO_RECORD, RECORD_ALIGNMENT, RECORD_HEADER_BYTES,
};
use crate::records::{Places, Record, Records};

impl Records<'_, '_> {
    /// Places of valid documents that are not among `seen`, in the order of the file. Damaged ones become findings.
    pub(crate) fn search(
        &mut self,
        seen: &Places,
        is_free: &mut dyn FnMut(Location) -> bool,
        findings: &mut Findings,
    ) -> Vec<u32> {
        let mut found = Vec::new();
        let mut buffer = Vec::new();
        let mut at = self.extent.start() + EXTENT_HEADER_BYTES;
        // Where the last length led: what stands there needs no other confirmation.
        let mut expected = Some(at);
        while at + RECORD_HEADER_BYTES + DOCUMENT_BYTES_MIN <= self.extent.end() {
            let Ok(record) = self.probe(at.cast_signed()) else {
                at += RECORD_ALIGNMENT;
                continue;
            };
            if seen.contains(at) {
                expected = record.has_length.then(|| at + record.header.bytes.cast_unsigned());
                at = self.behind(&record);
                continue;
            }
            if !record.has_length || !record.has_extent {
                at += RECORD_ALIGNMENT;
                continue;
            }
            let is_expected = expected == Some(at);
            let location = Location {
                file: self.extent.location.file,
                offset: at.cast_signed(),
            };
            if record.header.is_deleted() || is_free(location) {
                if is_expected || is_free(location) {
                    expected = Some(at + record.header.bytes.cast_unsigned());
                }
                at += RECORD_ALIGNMENT;
                continue;
            }
            if !is_expected && !self.is_confirmed(&record) {
                at += RECORD_ALIGNMENT;
                continue;
            }
            expected = Some(at + record.header.bytes.cast_unsigned());
            match self.document(at, &mut buffer) {
                Ok(_) => {
                    found.push(at);
                    at = self.behind(&record);
                }
                Err(fault) => {
                    self.note_damaged(&record, fault, findings);
                    at += RECORD_ALIGNMENT;
                }
            }
        }
        found
    }

    /// The first place behind a record's document. Its whole length is not skipped: it may be what is damaged.
    fn behind(&self, record: &Record) -> u32 {
        let room = self.extent.end() - record.at - RECORD_HEADER_BYTES;
        let document = u32::try_from(record.header.document_bytes).unwrap_or(0);
        let document = if document <= room { document } else { 0 };
        let end = record.at + RECORD_HEADER_BYTES + document;
        end.next_multiple_of(RECORD_ALIGNMENT)
    }

    /// Does a neighbour, or the extent's header, lead to this record?
    fn is_confirmed(&mut self, record: &Record) -> bool {
        let (at, next, previous) = (record.at.cast_signed(), record.header.next, record.header.previous);
        let by_next = next != at && self.probe(next).is_ok_and(|other| other.header.previous == at);
        let by_previous = previous != at && self.probe(previous).is_ok_and(|other| other.header.next == at);
        let of_file = |end: Location| end.file == self.extent.location.file && end.offset == at;
        by_next
            || by_previous
            || previous == NO_RECORD && of_file(self.extent.first)
            || next == NO_RECORD && of_file(self.extent.last)
    }

    /// A record whose document is damaged. Bytes that nothing leads to may be no record at all.
    fn note_damaged(&mut self, record: &Record, fault: Fault, findings: &mut Findings) {
        if self.is_confirmed(record) {
            let finding = self.finding(Some(record.at), fault);
            findings.add(finding);
        }
    }
}
