//! Where a leaf's rows are cut, so that who looks for one key reads a part of them: each section of the raw bytes can
//! be compressed for itself.
//!
//! The rule is a matter of the format: what is cut has the sections that the lengths of its rows make. Rows are written
//! as if there were no cuts. In front of them stands, for each section but the first, what parts it from the one
//! before: the bytes that its first key shares with the key before, and one more. So that key is known, as far as the
//! row does not say it, to who comes from there.

use super::bytes::{Reader, common_prefix};
use super::leaf_format::{LeafHeader, RowHead};
use super::{LargeRef, NewValue, PageDamage};
use std::ops::Range;

/// A section has at least so many bytes of keys and values, the prefix left out, unless single rows are long: what is
/// decompressed for one row. Leaves of 16 KiB that end a little sooner or later have three.
pub(super) const SECTION_BYTES: usize = 4608;

/// Tells rows that begin a section from others.
///
/// Sections are as many as whole [`SECTION_BYTES`] fit; a row belongs to section `n` of `count` when the bytes before
/// it are at least `n / count` and less than `(n + 1) / count` of all.
pub(super) struct Cutter {
    data_bytes: u64,
    count: u64,
    /// Bytes before the first row of another section; no row has so many when there is none.
    next: u64,
}

impl Cutter {
    /// Of a leaf with so many rows, bytes of rows, and bytes of the prefix, whatever these are.
    pub(super) fn new(rows: usize, row_bytes: usize, prefix_len: usize) -> Self {
        let data_bytes = row_bytes.saturating_sub(rows.saturating_mul(prefix_len));
        let mut cutter = Self {
            data_bytes: data_bytes as u64,
            count: (data_bytes / SECTION_BYTES) as u64,
            next: u64::MAX,
        };
        cutter.expect(1);
        cutter
    }

    /// There is enough for more than one, unless a single row is most of it.
    pub(super) fn has_sections(&self) -> bool {
        self.count > 1
    }

    fn none() -> Self {
        Self::new(0, 0, 0)
    }

    fn expect(&mut self, section: u64) {
        self.next = if section < self.count {
            (section * self.data_bytes).div_ceil(self.count)
        } else {
            u64::MAX
        };
    }

    /// Whether a row begins a section, before which there are so many bytes of keys and values. To be asked of each
    /// row, in their order; [`Cutter::begin`] follows when it does.
    #[inline(always)]
    pub(super) fn begins_section(&self, data_before: usize) -> bool {
        data_before as u64 >= self.next
    }

    pub(super) fn begin(&mut self, data_before: usize) {
        self.expect(data_before as u64 * self.count / self.data_bytes + 1);
    }
}

/// The place of the separator that comes next, which stands behind its length.
pub(super) fn separator_place(reader: &mut Reader<'_>) -> Result<Range<usize>, PageDamage> {
    let length = reader.varint()?;
    reader.take(length)?;
    Ok(reader.at() - length..reader.at())
}

/// Whether a section has this separator whose first key shares `shared` with the key before, and goes on with
/// `unshared`.
pub(super) fn is_separator(separator: &[u8], shared: &[u8], unshared: &[u8]) -> bool {
    let parts = separator.split_last();
    parts.is_some_and(|(last, rest)| rest == shared && unshared.first() == Some(last))
}

/// Compares separators with the rows behind them.
pub(super) struct SeparatorCheck {
    cutter: Cutter,
    /// Those that have not been compared.
    left: Range<usize>,
}

impl SeparatorCheck {
    pub(super) fn new(header: &LeafHeader) -> Self {
        let cutter = match header.separators {
            Some(_) => Cutter::new(header.rows, header.row_bytes, header.prefix_len),
            None => Cutter::none(),
        };
        Self {
            cutter,
            left: header.separators.clone().unwrap_or_default(),
        }
    }

    /// See [`Cutter::begins_section`].
    #[inline(always)]
    pub(super) fn begins_section(&self, data_before: usize) -> bool {
        self.cutter.begins_section(data_before)
    }

    /// The next separator, against the first key of its section: what that shares with the key before, and the rest.
    /// After an error nothing has changed.
    #[cold]
    pub(super) fn begin(
        &mut self,
        data_before: usize,
        raw: &[u8],
        shared: &[u8],
        unshared: &[u8],
    ) -> Result<(), PageDamage> {
        let mut reader = Reader::at_place(&raw[..self.left.end], self.left.start);
        let separator = &raw[separator_place(&mut reader)?];
        if !is_separator(separator, shared, unshared) {
            return Err(reader.damage("a section is not parted by its first key"));
        }
        self.left.start = reader.at();
        self.cutter.begin(data_before);
        Ok(())
    }

    /// Behind the last row.
    pub(super) fn check_end(&self) -> Result<(), PageDamage> {
        match self.left.is_empty() {
            true => Ok(()),
            false => Err(PageDamage::new(self.left.start, "more sections than rows begin")),
        }
    }
}

/// A look for a key in raw bytes, without an image of them. It looks at the rows up to the key's and not at those
/// behind, so that it finds less of what may be wrong than [`super::LeafImage::decode`].
pub(crate) struct LeafSearch<'k> {
    suffix: &'k [u8],
    header: LeafHeader,
    /// Where the first row begins in the raw bytes.
    rows_at: usize,
    sections: usize,
    section: usize,
    /// Bytes that the suffix shares with that of the row before the section, which lies below it.
    known: usize,
}

impl<'k> LeafSearch<'k> {
    /// `front` is what stands in front of the rows, or more. `None` when the key is not in the leaf.
    pub(crate) fn new(front: &[u8], key: &'k [u8]) -> Result<Option<Self>, PageDamage> {
        let mut reader = Reader::new(front);
        let header = LeafHeader::read(&mut reader)?;
        let Some(suffix) = key.strip_prefix(header.prefix(front)) else {
            return Ok(None);
        };
        let mut search = Self {
            suffix,
            rows_at: reader.at(),
            sections: 1,
            section: 0,
            known: 0,
            header,
        };
        if let Some(place) = search.header.separators.clone() {
            let mut reader = Reader::at_place(&front[..place.end], place.start);
            while reader.left() > 0 {
                let separator = &front[separator_place(&mut reader)?];
                if separator <= suffix {
                    search.section = search.sections;
                    search.known = common_prefix(&separator[..separator.len().saturating_sub(1)], suffix);
                }
                search.sections += 1;
            }
        }
        Ok(Some(search))
    }

    /// Sections of the rows, and the one that has the key if there is it. Only of a leaf that was cut they are more
    /// than one.
    pub(crate) fn section(&self) -> (usize, usize) {
        (self.sections, self.section)
    }

    /// Length of what stands in front of the rows.
    pub(crate) fn front_bytes(&self) -> usize {
        self.rows_at
    }

    /// The key's value, from the rows of its section.
    pub(crate) fn find_in_section<'r>(&self, rows: &'r [u8]) -> Result<Option<NewValue<'r>>, PageDamage> {
        self.find(Reader::new(rows), self.known)
    }

    /// The key's value, from all raw bytes.
    pub(crate) fn find_in_whole<'r>(&self, raw: &'r [u8]) -> Result<Option<NewValue<'r>>, PageDamage> {
        self.find(Reader::at_place(raw, self.rows_at), 0)
    }

    fn find<'r>(&self, mut reader: Reader<'r>, known: usize) -> Result<Option<NewValue<'r>>, PageDamage> {
        let suffix = self.suffix;
        // Bytes that the suffix shares with that of the row before, which lies below it.
        let mut known = known;
        let mut fixed = self.header.fixed;
        let mut is_first = true;
        while reader.left() > 0 {
            let head = RowHead::read(&mut reader, fixed)?;
            if std::mem::take(&mut is_first) {
                fixed = self.header.fixed_by_first(head);
            }
            let RowHead { shared, unshared, .. } = head;
            let added = reader.take(unshared + head.value_len())?;
            if shared > known {
                // As far below as the row before.
                continue;
            }
            if shared < known {
                // It rises where the row before is as the suffix: it lies above, and so does all that follows.
                return Ok(None);
            }
            let (unshared, value) = added.split_at(unshared);
            let same = common_prefix(unshared, &suffix[known..]);
            known += same;
            match (unshared.get(same), suffix.get(known)) {
                (None, None) if head.is_large() => {
                    let large = LargeRef::from_cell(value).ok_or_else(|| reader.damage("a large value's cell"))?;
                    return Ok(Some(NewValue::Large(large)));
                }
                (None, None) => return Ok(Some(NewValue::Inline(value))),
                (None, Some(_)) => {}
                (Some(row), Some(wanted)) if row < wanted => {}
                (Some(_), _) => return Ok(None),
            }
        }
        Ok(None)
    }
}
