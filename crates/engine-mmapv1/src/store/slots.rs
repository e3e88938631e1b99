//! Room in a table's extents: whole pages, and slots that hold records.
//!
//! A slot lies inside one page, or is whole pages. It begins with 16 bytes: its length, the length of the record in
//! it (or [`FREE`]), and the record's tag (or the next free slot of its bucket). Free slots are kept in buckets by
//! their length; of a bucket the first [`SLOTS_LOOKED_AT`] are looked at, as MongoDB did. What a record does not need
//! of a free slot is split off. With [`Allocation::PowersOfTwo`] a record is given the least length of a bucket, so
//! that the first slot of it, or of any later one, is long enough.
//!
//! Invariant: every byte of the extents is in a record's slot, in a page of array or tree, in a free slot, or behind
//! `small` or in `fresh`, which nothing was put into yet.

use super::Store;
use crate::bytes_at::{put, u32_at, u64_at};
use crate::loc::{Loc, PAGE_BYTES};
use crate::options::Allocation;
use crate::pager::Pager;
use crate::space::Extent;
use bytes::Bytes;
use engine::Result;

/// Bytes of a slot before its record.
pub(crate) const SLOT_HEADER_BYTES: usize = 16;
/// The shortest slot.
pub(crate) const SLOT_BYTES_MIN: usize = 32;
/// Bucket 0 holds slots from 32 bytes on, each next one from twice as many; from [`LARGE_BYTES`] on there are two for
/// each power of two.
pub(crate) const BUCKETS: usize = 26;
/// The bucket of single pages.
const PAGE_BUCKET: usize = 8;
/// In the place of a record's length: the slot is free.
pub(crate) const FREE: u32 = u32::MAX;
/// From here on a slot's length is a power of two, or one and a half.
const LARGE_BYTES: usize = 2 << 20;
/// The bucket of those.
const LARGE_BUCKET: usize = 16;
/// Slots of a bucket looked at for one that is long enough.
const SLOTS_LOOKED_AT: usize = 30;
/// The first extent of a table.
const FIRST_EXTENT_PAGES: u32 = 2;
/// Extents grow fourfold up to this size, and by a third beyond.
const FAST_GROWTH_PAGES: u32 = (4 << 20) / PAGE_BYTES as u32;

/// Pages of an extent that were never used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fresh {
    pub(crate) file: u16,
    pub(crate) next: u32,
    pub(crate) end: u32,
}

/// A slot's first bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotHeader {
    pub(crate) slot_bytes: u32,
    pub(crate) record_bytes: u32,
    /// The tag, or the next free slot.
    pub(crate) word: u64,
}

impl SlotHeader {
    fn encode(self) -> [u8; SLOT_HEADER_BYTES] {
        let mut bytes = [0; SLOT_HEADER_BYTES];
        put(&mut bytes, 0, &self.slot_bytes.to_le_bytes());
        put(&mut bytes, 4, &self.record_bytes.to_le_bytes());
        put(&mut bytes, 8, &self.word.to_le_bytes());
        bytes
    }

    /// Reads the header at `at` in its page and checks it against the page.
    pub(crate) fn read(pager: &Pager<'_>, page: &[u8; PAGE_BYTES], at: Loc) -> Result<Self> {
        let read = |offset| u32_at(page, at.offset() + offset);
        let (Some(slot_bytes), Some(record_bytes), Some(word)) = (read(0), read(4), u64_at(page, at.offset() + 8))
        else {
            return Err(pager.corrupt(at, "a slot begins at the end of a page"));
        };
        let length = slot_bytes as usize;
        let whole = at.offset() == 0 && length.is_multiple_of(PAGE_BYTES) && length > 0;
        let inside = length >= SLOT_BYTES_MIN && at.offset() + length <= PAGE_BYTES;
        if !whole && !inside {
            return Err(pager.corrupt(at, format!("no slot can be {length} bytes long here")));
        }
        if record_bytes != FREE && record_bytes as usize + SLOT_HEADER_BYTES > length {
            return Err(pager.corrupt(at, format!("{record_bytes} bytes do not fit into a slot of {length}")));
        }
        Ok(Self {
            slot_bytes,
            record_bytes,
            word,
        })
    }
}

/// The bucket of a slot when there was one for each power of two: who upgraded has large ones there.
fn former_bucket_of(slot_bytes: usize) -> usize {
    (slot_bytes / SLOT_BYTES_MIN).max(1).ilog2() as usize
}

fn bucket_of(slot_bytes: usize) -> usize {
    let bucket = if slot_bytes < LARGE_BYTES {
        former_bucket_of(slot_bytes)
    } else {
        let power = slot_bytes.ilog2();
        let has_half_more = slot_bytes >> (power - 1) & 1;
        LARGE_BUCKET + 2 * (power - LARGE_BYTES.ilog2()) as usize + has_half_more
    };
    bucket.min(BUCKETS - 1)
}

fn pages_of(bytes: usize) -> u32 {
    bytes.div_ceil(PAGE_BYTES) as u32
}

/// The length of the slot for a record.
pub(crate) fn slot_bytes_for(record_bytes: usize, allocation: Allocation) -> usize {
    let needed = (record_bytes + SLOT_HEADER_BYTES).max(SLOT_BYTES_MIN);
    match allocation {
        Allocation::Exact if needed <= PAGE_BYTES => needed.next_multiple_of(16),
        Allocation::Exact => needed.next_multiple_of(PAGE_BYTES),
        Allocation::PowersOfTwo => {
            let power = needed.next_power_of_two();
            let one_and_a_half = power / 4 * 3;
            if power > LARGE_BYTES && needed <= one_and_a_half {
                one_and_a_half
            } else {
                power
            }
        }
    }
}

impl Store {
    /// Puts a record into a slot of its own.
    pub(crate) fn write_record(&mut self, pager: &Pager<'_>, tag: u64, record: &[u8]) -> Result<Loc> {
        let wanted = slot_bytes_for(record.len(), pager.allocation);
        let (at, slot_bytes) = if wanted >= PAGE_BYTES {
            let pages = pages_of(wanted);
            (self.take_pages(pager, pages)?, pages as usize * PAGE_BYTES)
        } else {
            self.take_slot(pager, wanted)?
        };
        self.used_bytes += slot_bytes as u64;
        let header = SlotHeader {
            slot_bytes: slot_bytes as u32,
            record_bytes: record.len() as u32,
            word: tag,
        };
        fill_slot(pager, at, header, record)?;
        Ok(at)
    }

    /// Puts a record into the place of another; where it has to move, returns its new place.
    pub(crate) fn rewrite_record(
        &mut self,
        pager: &Pager<'_>,
        at: Loc,
        tag: u64,
        record: &[u8],
    ) -> Result<Option<Loc>> {
        let page = pager.read(at)?;
        let mut header = record_header(pager, &page, at, tag)?;
        if record.len() + SLOT_HEADER_BYTES <= header.slot_bytes as usize {
            header.record_bytes = record.len() as u32;
            drop(page);
            fill_slot(pager, at, header, record)?;
            return Ok(None);
        }
        drop(page);
        self.free_record(pager, at, tag)?;
        self.moves += 1;
        self.write_record(pager, tag, record).map(Some)
    }

    /// Gives a record's slot back.
    pub(crate) fn free_record(&mut self, pager: &Pager<'_>, at: Loc, tag: u64) -> Result<()> {
        let header = record_header(pager, &*pager.read(at)?, at, tag)?;
        self.used_bytes -= u64::from(header.slot_bytes);
        self.push_free(pager, at, header.slot_bytes as usize)
    }

    /// A page for array or tree; its bytes are whatever was there.
    pub(crate) fn take_page(&mut self, pager: &Pager<'_>) -> Result<Loc> {
        let at = self.take_pages(pager, 1)?;
        self.used_bytes += PAGE_BYTES as u64;
        Ok(at)
    }

    /// Gives a page of array or tree back.
    pub(crate) fn free_page(&mut self, pager: &Pager<'_>, at: Loc) -> Result<()> {
        self.used_bytes -= PAGE_BYTES as u64;
        self.push_free(pager, at, PAGE_BYTES)
    }

    /// A slot inside a page: its place and length, which may be a little more.
    fn take_slot(&mut self, pager: &Pager<'_>, wanted: usize) -> Result<(Loc, usize)> {
        let first = bucket_of(wanted);
        for bucket in first..PAGE_BUCKET {
            if let Some((at, length)) = self.pop_fitting(pager, bucket, wanted)? {
                let rest = length - wanted;
                if rest < SLOT_BYTES_MIN {
                    return Ok((at, length));
                }
                self.push_free(pager, at.plus(wanted), rest)?;
                return Ok((at, wanted));
            }
        }
        let left = if self.small.is_null() {
            0
        } else {
            PAGE_BYTES - self.small.offset()
        };
        if left < wanted {
            if left >= SLOT_BYTES_MIN {
                self.push_free(pager, self.small, left)?;
            }
            self.small = self.take_pages(pager, 1)?;
            pager.create(self.small, |_| ())?;
        }
        let at = self.small;
        let end = at.offset() + wanted;
        if PAGE_BYTES - end < SLOT_BYTES_MIN {
            self.small = Loc::NULL;
            return Ok((at, PAGE_BYTES - at.offset()));
        }
        self.small = at.plus(wanted);
        Ok((at, wanted))
    }

    fn take_pages(&mut self, pager: &Pager<'_>, pages: u32) -> Result<Loc> {
        let wanted = pages as usize * PAGE_BYTES;
        let first = bucket_of(wanted);
        let former = Some(former_bucket_of(wanted)).filter(|former| *former < first);
        for bucket in (first..BUCKETS).chain(former) {
            if let Some((at, length)) = self.pop_fitting(pager, bucket, wanted)? {
                if length > wanted {
                    self.push_free(pager, at.plus(wanted), length - wanted)?;
                }
                return Ok(at);
            }
        }
        if self.fresh.end - self.fresh.next < pages {
            let left = self.fresh;
            self.fresh = Fresh::default();
            if left.end > left.next {
                let bytes = (left.end - left.next) as usize * PAGE_BYTES;
                self.push_free(pager, Loc::of_page(left.file, left.next), bytes)?;
            }
            self.grow(pager, pages)?;
        }
        let at = Loc::of_page(self.fresh.file, self.fresh.next);
        self.fresh.next += pages;
        Ok(at)
    }

    /// Adds an extent.
    fn grow(&mut self, pager: &Pager<'_>, least: u32) -> Result<()> {
        let last = self.extents.last().map_or(0, |extent| extent.pages);
        let next = match last {
            0 => FIRST_EXTENT_PAGES,
            _ if last < FAST_GROWTH_PAGES => last * 4,
            _ => last + last / 3,
        };
        let wanted = next.min(pager.database.extent_pages_max()).max(least);
        let extent = pager.database.allocate(wanted, least, pager.owner)?;
        self.add_extent(extent);
        self.fresh = Fresh {
            file: extent.file,
            next: extent.start,
            end: extent.start + extent.pages,
        };
        Ok(())
    }

    pub(crate) fn add_extent(&mut self, extent: Extent) {
        self.extents.push(extent);
    }

    /// Takes a slot of a bucket that is long enough, if one of the first is.
    fn pop_fitting(&mut self, pager: &Pager<'_>, bucket: usize, wanted: usize) -> Result<Option<(Loc, usize)>> {
        let (mut before, mut at) = (None, self.buckets[bucket]);
        for _ in 0..SLOTS_LOOKED_AT {
            if at.is_null() {
                return Ok(None);
            }
            let header = SlotHeader::read(pager, &*pager.read(at)?, at)?;
            if header.record_bytes != FREE {
                return Err(pager.corrupt(at, "a free slot holds a record"));
            }
            if header.slot_bytes as usize >= wanted {
                self.unlink(pager, bucket, before, header.word)?;
                return Ok(Some((at, header.slot_bytes as usize)));
            }
            (before, at) = (Some(at), Loc(header.word));
        }
        Ok(None)
    }

    /// Takes a slot out of its bucket: the one before it, or the bucket, leads to `next` now.
    fn unlink(&mut self, pager: &Pager<'_>, bucket: usize, before: Option<Loc>, next: u64) -> Result<()> {
        let Some(before) = before else {
            self.buckets[bucket] = Loc(next);
            return Ok(());
        };
        let word = before.offset() + 8;
        pager.modify(before, word..word + 8, |page| put(page, word, &next.to_le_bytes()))
    }

    fn push_free(&mut self, pager: &Pager<'_>, at: Loc, slot_bytes: usize) -> Result<()> {
        let bucket = bucket_of(slot_bytes);
        let header = SlotHeader {
            slot_bytes: slot_bytes as u32,
            record_bytes: FREE,
            word: self.buckets[bucket].0,
        };
        if at.offset() == 0 && slot_bytes >= PAGE_BYTES {
            pager.create(at, |page| put(page, 0, &header.encode()))?;
        } else {
            let bytes = at.offset()..at.offset() + SLOT_HEADER_BYTES;
            pager.modify(at, bytes, |page| put(page, at.offset(), &header.encode()))?;
        }
        self.buckets[bucket] = at;
        Ok(())
    }
}

/// The header of the record that should be at `at`.
fn record_header(pager: &Pager<'_>, page: &[u8; PAGE_BYTES], at: Loc, tag: u64) -> Result<SlotHeader> {
    let header = SlotHeader::read(pager, page, at)?;
    if header.record_bytes == FREE || header.word != tag {
        return Err(pager.corrupt(at, format!("the record of tag {tag} is not here: {header:?}")));
    }
    Ok(header)
}

/// Writes header and record into a slot that has room.
fn fill_slot(pager: &Pager<'_>, at: Loc, header: SlotHeader, record: &[u8]) -> Result<()> {
    let start = at.offset();
    let end = start + SLOT_HEADER_BYTES + record.len();
    if (header.slot_bytes as usize) < PAGE_BYTES {
        return pager.modify(at, start..end, |page| {
            put(page, start, &header.encode());
            put(page, start + SLOT_HEADER_BYTES, record);
        });
    }
    // Whole pages are made anew: those behind a shorter record were never written.
    let (head, mut rest) = record.split_at(record.len().min(PAGE_BYTES - SLOT_HEADER_BYTES));
    pager.create(at, |page| {
        put(page, 0, &header.encode());
        put(page, SLOT_HEADER_BYTES, head);
    })?;
    let mut next = at;
    while !rest.is_empty() {
        next = next.plus(PAGE_BYTES);
        let (part, behind) = rest.split_at(rest.len().min(PAGE_BYTES));
        pager.create(next, |page| put(page, 0, part))?;
        rest = behind;
    }
    Ok(())
}

/// Hands the record at `at` to `read`, which sees it in one piece.
pub(crate) fn with_record<T>(pager: &Pager<'_>, at: Loc, tag: u64, read: impl FnOnce(&[u8]) -> T) -> Result<T> {
    let page = pager.read(at)?;
    let header = record_header(pager, &page, at, tag)?;
    let start = at.offset() + SLOT_HEADER_BYTES;
    let length = header.record_bytes as usize;
    if let Some(record) = page.get(start..start + length) {
        return Ok(read(record));
    }
    let mut record = Vec::with_capacity(length);
    record.extend_from_slice(&page[start..]);
    let mut next = at;
    while record.len() < length {
        next = next.plus(PAGE_BYTES);
        let page = pager.read(next)?;
        record.extend_from_slice(&page[..(length - record.len()).min(PAGE_BYTES)]);
    }
    Ok(read(&record))
}

/// A copy of the record at `at`.
pub(crate) fn read_record(pager: &Pager<'_>, at: Loc, tag: u64) -> Result<Bytes> {
    with_record(pager, at, tag, Bytes::copy_from_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_slot_of_a_bucket_fits_whoever_looks_there() {
        let sizes = (0..4 << 10).chain((4 << 10..17 << 20).step_by(4001));
        for record_bytes in sizes {
            let slot = slot_bytes_for(record_bytes, Allocation::PowersOfTwo);
            assert!(slot >= record_bytes + SLOT_HEADER_BYTES);
            assert!(
                slot == SLOT_BYTES_MIN || bucket_of(slot - 1) < bucket_of(slot),
                "{slot}"
            );
        }
        let megabytes = |bytes: usize| slot_bytes_for(bytes, Allocation::PowersOfTwo) >> 20;
        let found: Vec<_> = (1..=16).map(|whole| megabytes((whole << 20) - 16)).collect();
        assert_eq!(found, [1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 12, 12, 16, 16, 16, 16]);
        assert_eq!(
            [1, 2, 3, 4, 6, 48, 2000].map(|size| bucket_of(size << 20)),
            [15, 16, 17, 18, 19, 25, 25]
        );
    }
}
