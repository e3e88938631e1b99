//! What stands in front of a leaf's rows: it tells which sections have the rows of a range, and an image of those
//! sections alone can be made with it.

use super::bytes::{Reader, head_u32};
use super::leaf::Slot;
use super::leaf_builder::put_cell_start;
use super::leaf_format::{LeafHeader, RowHead, check_order};
use super::leaf_sections::{SECTION_BYTES, is_separator, separator_place};
use super::sink::Sink;
use super::{KeyParts, LargeRef, LeafImage, PageDamage};
use engine::Direction;
use std::ops::{Bound, Range};

/// See the module.
pub(crate) struct LeafFront {
    bytes: Box<[u8]>,
    header: LeafHeader,
    /// The places of the separators, each of which parts a section from the one before.
    separators: Vec<Range<usize>>,
}

impl LeafFront {
    /// `front` may be longer.
    pub(crate) fn read(front: &[u8]) -> Result<Self, PageDamage> {
        let mut reader = Reader::new(front);
        let header = LeafHeader::read(&mut reader)?;
        let bytes: Box<[u8]> = front[..reader.at()].into();
        let mut separators = Vec::new();
        if let Some(place) = header.separators.clone() {
            let mut reader = Reader::at_place(&bytes[..place.end], place.start);
            while reader.left() > 0 {
                separators.push(separator_place(&mut reader)?);
            }
        }
        Ok(Self {
            bytes,
            header,
            separators,
        })
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of sections behind it.
    pub(crate) fn sections(&self) -> usize {
        self.separators.len() + 1
    }

    fn separator(&self, section: usize) -> KeyParts<'_> {
        KeyParts {
            prefix: self.header.prefix(&self.bytes),
            suffix: &self.bytes[self.separators[section - 1].clone()],
        }
    }

    /// A key at or below all keys of a section, and above those before it; `None` where the leaf begins.
    pub(crate) fn low(&self, section: usize) -> Option<Vec<u8>> {
        (section > 0).then(|| self.separator(section).to_vec())
    }

    /// The same of the section behind; `None` where the leaf ends.
    pub(crate) fn high(&self, section: usize) -> Option<Vec<u8>> {
        (section < self.separators.len()).then(|| self.separator(section + 1).to_vec())
    }

    /// The section of a key.
    fn section_of(&self, key: &[u8]) -> usize {
        let begins_there = |section: &usize| self.separator(*section).cmp(key).is_le();
        (1..self.sections()).take_while(begins_there).count()
    }

    /// The section of what lies just below a key.
    fn section_below(&self, key: &[u8]) -> usize {
        let begins_below = |section: &usize| self.separator(*section).cmp(key).is_lt();
        (1..self.sections()).take_while(begins_below).count()
    }

    /// The sections that have the first rows of a walk from `position` to `far`: about `rows_max` of them, and those of
    /// one section at least.
    pub(crate) fn sections_of(
        &self,
        direction: Direction,
        position: Bound<&[u8]>,
        far: Bound<&[u8]>,
        rows_max: usize,
    ) -> Range<usize> {
        let (low, high) = match direction {
            Direction::Forward => (position, far),
            Direction::Reverse => (far, position),
        };
        let first = match low {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => self.section_of(key),
        };
        let last = match high {
            Bound::Unbounded => self.sections() - 1,
            Bound::Included(key) => self.section_of(key),
            Bound::Excluded(key) => self.section_below(key),
        };
        // It begins at the position, whatever lies behind it.
        let (first, last) = match direction {
            Direction::Forward => (first, last.max(first)),
            Direction::Reverse => (first.min(last), last),
        };
        let rows_of_one = (self.header.rows / self.sections()).max(1);
        let count = rows_max.div_ceil(rows_of_one).clamp(1, last - first + 1);
        match direction {
            Direction::Forward => first..first + count,
            Direction::Reverse => last + 1 - count..last + 1,
        }
    }
}

/// Rows of sections that lie side by side, on their way into an image. That of some has a prefix that all rows of the
/// leaf share, which need not be the longest one of its own: it is for reading, not for writing.
pub(crate) struct SectionRows<'f> {
    front: &'f LeafFront,
    data: Sink,
    index: Vec<Slot>,
    row_bytes: usize,
}

impl<'f> SectionRows<'f> {
    pub(crate) fn new(front: &'f LeafFront) -> Self {
        let mut data = Sink::with_room(front.bytes() + 2 * SECTION_BYTES);
        data.put(front.header.prefix(&front.bytes));
        Self {
            front,
            data,
            index: Vec::with_capacity(front.header.rows.min(SECTION_BYTES) / front.sections() + 1),
            row_bytes: 0,
        }
    }

    /// Adds the rows of a section behind those of the one before it. It looks at no other, so that it finds less of
    /// what may be wrong than [`LeafImage::decode`].
    pub(crate) fn push(&mut self, section: usize, rows: &[u8]) -> Result<(), PageDamage> {
        let LeafFront { header, .. } = self.front;
        let prefix_len = header.prefix_len;
        let separator = (section > 0).then(|| self.front.separator(section).suffix);
        let mut reader = Reader::new(rows);
        // What the first key shares with the one before, which is not here.
        let known = separator
            .and_then(<[u8]>::split_last)
            .map_or(&[][..], |(_, known)| known);
        let mut is_first = true;
        let mut fixed = header.fixed;
        let mut previous = 0..0;
        while reader.left() > 0 {
            let head = RowHead::read(&mut reader, fixed)?;
            let start = reader.at();
            let added = reader.take(head.unshared + head.value_len())?;
            let (unshared, value) = added.split_at(head.unshared);
            let damage = |rule| Err(PageDamage::new(start, rule));
            if is_first {
                fixed = header.fixed_by_first(head);
                let is_it = separator.is_none_or(|separator| is_separator(separator, known, unshared));
                if head.shared != known.len() || !is_it {
                    return damage("a section is not parted by its first key");
                }
            } else {
                check_order(&self.data.bytes()[previous.clone()], head.shared, unshared, false)
                    .map_err(|rule| PageDamage::new(start, rule))?;
            }
            if head.is_large() && LargeRef::from_cell(value).is_none() {
                return damage("a large value's cell");
            }
            self.row_bytes += prefix_len + head.shared + added.len();
            if self.row_bytes > header.row_bytes || self.index.len() == header.rows {
                return damage("more than the header says");
            }
            let offset = self.data.len() as u32;
            put_cell_start(&mut self.data, head.suffix_len(), head.is_large());
            let suffix_start = self.data.len();
            if is_first {
                self.data.put(known);
            } else {
                self.data.put_again(previous.start, head.shared);
            }
            self.data.put_from(rows, start, added.len());
            previous = suffix_start..suffix_start + head.suffix_len();
            let head = head_u32(&self.data.bytes()[previous.clone()]);
            self.index.push(Slot { head, offset });
            is_first = false;
        }
        let is_below_next = section + 1 == self.front.sections()
            || &self.data.bytes()[previous] < self.front.separator(section + 1).suffix;
        if is_first || !is_below_next {
            return Err(reader.damage("a section without its rows"));
        }
        Ok(())
    }

    /// The image of all rows that were added.
    pub(crate) fn finish(mut self) -> LeafImage {
        self.index.push(Slot::end(self.data.len()));
        let (index, prefix_len) = (&self.index, self.front.header.prefix_len);
        LeafImage::from_parts(self.data.into_boxed_slice().into(), index, prefix_len, self.row_bytes)
    }
}
