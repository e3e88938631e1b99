//! The rows of a leaf's raw bytes one after the other, without an image of them: for a walk that passes once.
//!
//! It checks what [`LeafImage::decode`](super::LeafImage::decode) checks, each row before it comes out and the whole
//! before the end does: so what is damaged may be found behind rows that were right.

use super::bytes::Reader;
use super::leaf::CellValue;
use super::leaf_format::{Common, FORMAT_VERSION_MIN, Fixed, LeafHeader, ROW_BYTES_MIN, RowHead, check_order};
use super::leaf_sections::SeparatorCheck;
use super::{LargeRef, PageDamage};
use bytes::Bytes;

/// See the module.
pub(crate) struct LeafStream {
    raw: Bytes,
    header: LeafHeader,
    /// Where the next row begins.
    at: usize,
    /// Rows that came out.
    rows: usize,
    /// Bytes of their keys and cells.
    row_bytes: usize,
    /// What they have in common.
    found: Common,
    previous: Option<RowHead>,
    fixed: Fixed,
    sections: SeparatorCheck,
    /// The key of the last of them.
    key: Vec<u8>,
    /// The first byte of the first suffix, if it has one.
    first: Option<u8>,
    /// It has come out, and what comes next is behind it.
    is_checked: bool,
}

impl LeafStream {
    /// Before the first row.
    pub(crate) fn new(raw: Bytes) -> Result<Self, PageDamage> {
        let mut reader = Reader::new(&raw);
        let header = LeafHeader::read(&mut reader)?;
        let prefix = header.prefix(&raw);
        if header.rows > reader.left() / ROW_BYTES_MIN {
            return Err(reader.damage("more rows than bytes"));
        }
        let (key, at) = (prefix.to_vec(), reader.at());
        Ok(Self {
            at,
            rows: 0,
            row_bytes: 0,
            found: Common::possible(header.rows),
            previous: None,
            fixed: header.fixed,
            sections: SeparatorCheck::new(&header),
            key,
            first: None,
            is_checked: false,
            header,
            raw,
        })
    }

    /// What values are ranges of.
    pub(crate) fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The key of the row that came last; the prefix before the first.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Where the row that came last ends in [`LeafStream::raw`].
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The next row's value, a place in [`LeafStream::raw`]. `None` behind the last, and damage where it lies, whenever
    /// it is asked.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<CellValue<'_>>, PageDamage> {
        if self.rows == self.header.rows {
            return self.check_whole().map(|()| None);
        }
        let prefix_len = self.header.prefix_len;
        let mut reader = Reader::at_place(&self.raw, self.at);
        let head = RowHead::read(&mut reader, self.fixed)?;
        let (shared, unshared) = (head.shared, head.unshared);
        let start = reader.at();
        let added = reader.take(unshared + head.value_len())?;
        check_order(&self.key[prefix_len..], shared, &added[..unshared], self.rows == 0)
            .map_err(|rule| PageDamage::new(start, rule))?;
        let row_bytes = self.row_bytes + prefix_len + shared + added.len();
        if row_bytes > self.header.row_bytes {
            return Err(reader.damage("more bytes than the header says"));
        }
        let end = reader.at();
        let place = start + unshared..end;
        let value = if head.is_large() {
            let large = LargeRef::from_cell(&self.raw[place]);
            CellValue::Large(large.ok_or_else(|| PageDamage::new(start, "a large value's cell"))?)
        } else {
            CellValue::Inline(place)
        };
        let data_before = self.row_bytes - self.rows * prefix_len;
        if self.sections.begins_section(data_before) {
            let known = &self.key[prefix_len..][..shared];
            self.sections.begin(data_before, &self.raw, known, &added[..unshared])?;
        }
        // The row is right. Up to here nothing may have changed: damage is told whenever it is asked for.
        if let Some(before) = self.previous.replace(head) {
            self.found.key_length &= head.suffix_len() == before.suffix_len();
            self.found.value &= head.value == before.value;
        } else {
            self.fixed = self.header.fixed_by_first(head);
        }
        self.row_bytes = row_bytes;
        self.key.truncate(prefix_len + shared);
        self.key.extend_from_slice(&added[..unshared]);
        if self.rows == 0 {
            self.first = self.key.get(prefix_len).copied();
        }
        self.at = end;
        self.rows += 1;
        Ok(Some(value))
    }

    /// What only the end tells.
    fn check_whole(&mut self) -> Result<(), PageDamage> {
        if self.is_checked {
            return Ok(());
        }
        let header = &self.header;
        let damage = |rule| Err(PageDamage::new(self.at, rule));
        if self.at < self.raw.len() {
            return damage("bytes after the last row");
        }
        if self.row_bytes != header.row_bytes {
            return damage("fewer bytes than the header says");
        }
        if self.found != header.common && header.version > FORMAT_VERSION_MIN {
            return damage("the rows have not in common what the header says, or more");
        }
        self.sections.check_end()?;
        let last = self.key.get(header.prefix_len);
        let is_prefix_longest = match self.rows {
            0 => header.prefix_len == 0,
            1 => last.is_none(),
            _ => self.first.is_none() || self.first.as_ref() != last,
        };
        if !is_prefix_longest {
            return damage("the prefix is not the longest");
        }
        self.is_checked = true;
        Ok(())
    }
}
