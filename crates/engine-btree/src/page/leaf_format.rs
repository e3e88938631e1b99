//! The raw bytes of a leaf, `docs/formats/btree-pages.md`: a header, the common prefix, then each row as the difference
//! to the key before it. Lengths that all rows have in common stand in front of them: entries of an index have no
//! values, and keys of records are of one length. So do, where the rows are cut in sections, the keys that part these.
//!
//! One image has one encoding, and one that is cut: whatever decodes, and is of the version that is written, encodes to
//! the same bytes again.

use super::bytes::{Reader, common_prefix, head_u64, put_varint};
use super::leaf::{Cell, LEAF_ROW_BYTES_MAX, Slot};
use super::leaf_builder::put_cell_start;
use super::leaf_sections::{Cutter, SeparatorCheck, separator_place};
use super::sink::Sink;
use super::{LargeRef, LeafImage, PageDamage};
use ::bytes::Bytes;
use std::cell::RefCell;
use std::ops::Range;

/// First byte of every page.
pub(super) const FORMAT_VERSION: u8 = 3;
/// There, what rows have in common stands in the first of them, and none are cut.
const FORMAT_VERSION_UNCUT: u8 = 2;
/// The oldest that is read: there, rows have nothing in common.
pub(super) const FORMAT_VERSION_MIN: u8 = 1;
/// Second byte: what the page is.
pub(super) const KIND_LEAF: u8 = 1;
/// Version, kind, what rows have in common, a reserved byte, rows, bytes of all rows, bytes of the prefix.
pub(super) const LEAF_HEADER_BYTES: usize = 16;
/// A row behind the first, in a page of keys of one length and without values: a length of one byte, and a byte of the
/// key.
pub(super) const ROW_BYTES_MIN: usize = 2;
/// In the third byte: all keys are of one length.
pub(super) const COMMON_KEY_LENGTH: u8 = 1;
/// In the third byte: all values are of one length, and large ones or not.
pub(super) const COMMON_VALUE: u8 = 2;
/// In the third byte: the rows are cut in sections.
pub(super) const CUT: u8 = 4;
/// Lengths of a row, of one byte each.
const LENGTHS_BYTES: usize = 3;

thread_local! {
    /// The data of the leaf that this thread decodes.
    static DATA: RefCell<Sink> = RefCell::default();
}

/// Puts an image's data together in a buffer that is used again and again. Row by row into new memory would be slower:
/// the processor waits for each of its lines, and does not when all is copied at once.
pub(super) fn with_data<T>(decode: impl FnOnce(&mut Sink) -> T) -> T {
    DATA.with_borrow_mut(|data| {
        let decoded = decode(data);
        data.clear();
        decoded
    })
}

impl LeafImage {
    /// Appends the raw bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.encode_cut(out, &[], &mut Vec::new());
    }

    /// Whether there is enough for more sections than one.
    pub(crate) fn has_sections(&self) -> bool {
        Cutter::new(self.len(), self.row_bytes(), self.prefix().len()).has_sections()
    }

    /// Appends the raw bytes, cut in sections where there is enough for two; puts the places in `out` where the first
    /// one begins, and each other one, into `cuts`, which is empty when there is only one.
    pub(crate) fn encode_in_sections(&self, out: &mut Vec<u8>, cuts: &mut Vec<usize>) {
        let mut cutter = Cutter::new(self.len(), self.row_bytes(), self.prefix().len());
        let mut data_bytes = 0;
        let mut first_rows = Vec::new();
        for index in 0..self.len() {
            if cutter.begins_section(data_bytes) {
                cutter.begin(data_bytes);
                first_rows.push(index);
            }
            let cell = self.cell(index);
            data_bytes += cell.end - cell.suffix_start;
        }
        self.encode_cut(out, &first_rows, cuts);
    }

    /// `first_rows` are those of all sections but the first.
    fn encode_cut(&self, out: &mut Vec<u8>, first_rows: &[usize], cuts: &mut Vec<usize>) {
        cuts.clear();
        let prefix = self.prefix();
        let common = Common::of(self);
        out.reserve(LEAF_HEADER_BYTES + self.data().len() + self.len() * (LENGTHS_BYTES + 1));
        let cut = if first_rows.is_empty() { 0 } else { CUT };
        out.extend_from_slice(&[FORMAT_VERSION, KIND_LEAF, common.flags() | cut, 0]);
        for number in [self.len(), self.row_bytes(), prefix.len()] {
            out.extend_from_slice(&(number as u32).to_le_bytes());
        }
        out.extend_from_slice(prefix);
        let fixed = Fixed::of(self, common);
        for length in [fixed.suffix_len, fixed.value].into_iter().flatten() {
            put_varint(out, length as u64);
        }
        if !first_rows.is_empty() {
            put_varint(out, first_rows.len() as u64);
            for &row in first_rows {
                let suffix = self.suffix(row);
                let separator = &suffix[..common_prefix(self.suffix(row - 1), suffix) + 1];
                put_varint(out, separator.len() as u64);
                out.extend_from_slice(separator);
            }
            cuts.push(out.len());
        }
        let mut first_rows = first_rows.iter().copied().peekable();
        let mut previous: &[u8] = &[];
        for index in 0..self.len() {
            if first_rows.next_if_eq(&index).is_some() {
                cuts.push(out.len());
            }
            let (key, value) = self.row_to_copy(index);
            let shared = common_prefix(previous, key.suffix);
            let value_bytes = value.cell_bytes();
            put_varint(out, shared as u64);
            if fixed.suffix_len.is_none() {
                put_varint(out, (key.suffix.len() - shared) as u64);
            }
            if fixed.value.is_none() {
                put_varint(out, value_field(value_bytes.len(), value.is_large()) as u64);
            }
            out.extend_from_slice(&key.suffix[shared..]);
            out.extend_from_slice(value_bytes);
            previous = key.suffix;
        }
    }

    /// Reads raw bytes, all of them.
    pub(crate) fn decode(raw: &[u8]) -> Result<Self, PageDamage> {
        with_data(|data| Self::decode_with(raw, data))
    }

    fn decode_with(raw: &[u8], data: &mut Sink) -> Result<Self, PageDamage> {
        let mut reader = Reader::new(raw);
        let header = LeafHeader::read(&mut reader)?;
        let prefix = header.prefix(raw);
        let rows = header.rows;
        if rows > reader.left() / ROW_BYTES_MIN {
            return Err(reader.damage("more rows than bytes"));
        }
        let mut index = Vec::with_capacity(rows + 1);
        // No more than the header says and not much more than there is, whatever the header says.
        data.reserve(header.data_bytes_about().min(raw.len().saturating_mul(4)));
        data.put(prefix);

        let mut row_bytes = 0;
        let mut found = Common::possible(rows);
        let mut fixed = header.fixed;
        let mut sections = SeparatorCheck::new(&header);
        let mut previous_head = None;
        // The first bytes of the suffix before, so as not to read what was written a moment ago.
        let mut head = 0u64;
        let mut previous = data.len()..data.len();
        for row in 0..rows {
            let row_head = RowHead::read(&mut reader, fixed)?;
            let RowHead {
                shared,
                unshared,
                value,
            } = row_head;
            let (value_len, is_large) = (row_head.value_len(), row_head.is_large());
            if let Some(before) = previous_head.replace(row_head) {
                found.key_length &= shared + unshared == before.suffix_len();
                found.value &= value == before.value;
            } else {
                fixed = header.fixed_by_first(row_head);
            }
            let added_start = reader.at();
            let added = reader.take(unshared + value_len)?;
            check_order(&data.bytes()[previous.clone()], shared, &added[..unshared], row == 0)
                .map_err(|rule| PageDamage::new(reader.at(), rule))?;
            if is_large && LargeRef::from_cell(&added[unshared..]).is_none() {
                return Err(reader.damage("a large value's cell"));
            }
            let data_before = row_bytes - row * prefix.len();
            if sections.begins_section(data_before) {
                let known = &data.bytes()[previous.clone()][..shared];
                sections.begin(data_before, raw, known, &added[..unshared])?;
            }
            row_bytes += prefix.len() + shared + added.len();
            if row_bytes > header.row_bytes {
                return Err(reader.damage("more bytes than the header says"));
            }
            let offset = data.len() as u32;
            put_cell_start(data, shared + unshared, is_large);
            let suffix_start = data.len();
            if shared <= size_of_val(&head) {
                data.put_part(head.to_be_bytes(), shared);
            } else {
                data.put_again(previous.start, shared);
            }
            data.put_from(raw, added_start, added.len());
            previous = suffix_start..suffix_start + shared + unshared;
            head = extend_head(head, shared, || head_inside(raw, added_start, unshared));
            let head = (head >> 32) as u32;
            index.push(Slot { head, offset });
        }
        if reader.left() > 0 {
            return Err(reader.damage("bytes after the last row"));
        }
        if row_bytes != header.row_bytes {
            return Err(reader.damage("fewer bytes than the header says"));
        }
        if found != header.common && header.version > FORMAT_VERSION_MIN {
            return Err(reader.damage("the rows have not in common what the header says, or more"));
        }
        sections.check_end()?;
        index.push(Slot::end(data.len()));
        let image = Self::from_parts(Bytes::from(data.to_boxed_slice()), &index, header.prefix_len, row_bytes);
        match image.is_prefix_longest() {
            true => Ok(image),
            false => Err(reader.damage("the prefix is not the longest")),
        }
    }

    fn is_prefix_longest(&self) -> bool {
        match self.len() {
            0 => self.prefix().is_empty(),
            1 => self.suffix(0).is_empty(),
            rows => common_prefix(self.suffix(0), self.suffix(rows - 1)) == 0,
        }
    }
}

/// A suffix that shares exactly `shared` bytes with the one before and goes on with `unshared` lies above it, and
/// shares no more.
#[inline(always)]
pub(super) fn check_order(previous: &[u8], shared: usize, unshared: &[u8], is_first: bool) -> Result<(), &'static str> {
    let rises = match previous.get(shared) {
        Some(replaced) => unshared.first() > Some(replaced),
        None => shared == previous.len() && (is_first || !unshared.is_empty()),
    };
    if rises { Ok(()) } else { Err("keys do not rise") }
}

/// Head of a suffix that shares `shared` bytes with one of head `previous`, and goes on with bytes of head `rest`.
#[inline(always)]
fn extend_head(previous: u64, shared: usize, rest: impl FnOnce() -> u64) -> u64 {
    match shared {
        0 => rest(),
        1..8 => previous & (u64::MAX << (64 - 8 * shared)) | rest() >> (8 * shared),
        _ => previous,
    }
}

/// [`head_u64`] of `length` bytes of `raw` that begin at `start`, without a jump that depends on `length`.
#[inline(always)]
fn head_inside(raw: &[u8], start: usize, length: usize) -> u64 {
    match raw[start..].first_chunk::<8>() {
        Some(bytes) => {
            let bits_beyond = 64 - 8 * length.min(8) as u32;
            u64::from_be_bytes(*bytes) & u64::MAX.checked_shl(bits_beyond).unwrap_or(0)
        }
        None => head_u64(&raw[start..start + length]),
    }
}

/// What stands before a row's bytes: lengths, each below 2^35, so that sums of them hold.
#[derive(Clone, Copy)]
pub(super) struct RowHead {
    /// Bytes of the suffix that it shares with the one before.
    pub(super) shared: usize,
    /// Bytes of the suffix behind those.
    pub(super) unshared: usize,
    /// Length of the value, and whether it is a large one: a [`value_field`].
    pub(super) value: usize,
}

/// A value's length in the page, times 2, plus 1 for a large one.
fn value_field(value_len: usize, is_large: bool) -> usize {
    value_len << 1 | usize::from(is_large)
}

impl RowHead {
    #[inline(always)]
    pub(super) fn read(reader: &mut Reader<'_>, fixed: Fixed) -> Result<Self, PageDamage> {
        let shared = reader.varint()?;
        let unshared = match fixed.suffix_len {
            Some(suffix_len) => suffix_len
                .checked_sub(shared)
                .ok_or_else(|| reader.damage("more bytes shared than there are"))?,
            None => reader.varint()?,
        };
        let value = match fixed.value {
            Some(value) => value,
            None => reader.varint()?,
        };
        Ok(Self {
            shared,
            unshared,
            value,
        })
    }

    pub(super) fn suffix_len(self) -> usize {
        self.shared + self.unshared
    }

    pub(super) fn value_len(self) -> usize {
        self.value >> 1
    }

    pub(super) fn is_large(self) -> bool {
        self.value & 1 != 0
    }
}

/// Lengths that no row has to tell: all have them.
#[derive(Clone, Copy, Default)]
pub(super) struct Fixed {
    suffix_len: Option<usize>,
    /// A [`value_field`].
    value: Option<usize>,
}

impl Fixed {
    /// Where there is something in common there is a row.
    fn of(leaf: &LeafImage, common: Common) -> Self {
        let first = || leaf.cell(0);
        let suffix_len = |cell: Cell| cell.value_start - cell.suffix_start;
        let value = |cell: Cell| value_field(cell.end - cell.value_start, cell.is_large);
        Self {
            suffix_len: common.key_length.then(first).map(suffix_len),
            value: common.value.then(first).map(value),
        }
    }
}

/// What all rows of a leaf have in common, of two and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Common {
    /// The length of keys.
    pub(super) key_length: bool,
    /// The length of values, and whether they are large ones.
    pub(super) value: bool,
}

impl Common {
    /// What so many rows may have in common.
    pub(super) fn possible(rows: usize) -> Self {
        Self {
            key_length: rows > 1,
            value: rows > 1,
        }
    }

    fn of(leaf: &LeafImage) -> Self {
        let rows = leaf.len();
        let key_length = |index| {
            let cell = leaf.cell(index);
            cell.value_start - cell.suffix_start
        };
        let value = |index| {
            let cell = leaf.cell(index);
            value_field(cell.end - cell.value_start, cell.is_large)
        };
        let possible = Self::possible(rows);
        Self {
            key_length: possible.key_length && (1..rows).all(|index| key_length(index) == key_length(0)),
            value: possible.value && (1..rows).all(|index| value(index) == value(0)),
        }
    }

    fn flags(self) -> u8 {
        u8::from(self.key_length) * COMMON_KEY_LENGTH + u8::from(self.value) * COMMON_VALUE
    }

    fn from_flags(flags: u8) -> Self {
        Self {
            key_length: flags & COMMON_KEY_LENGTH != 0,
            value: flags & COMMON_VALUE != 0,
        }
    }
}

/// A page's first byte.
pub(super) fn read_version(reader: &mut Reader<'_>) -> Result<u8, PageDamage> {
    match reader.u8()? {
        version @ FORMAT_VERSION_MIN..=FORMAT_VERSION => Ok(version),
        _ => Err(reader.damage("an unknown format version")),
    }
}

/// What stands in front of the rows.
pub(super) struct LeafHeader {
    pub(super) version: u8,
    pub(super) common: Common,
    pub(super) rows: usize,
    pub(super) row_bytes: usize,
    pub(super) prefix_len: usize,
    pub(super) fixed: Fixed,
    /// The place of the separators, each behind its length, when the rows are cut in sections.
    pub(super) separators: Option<Range<usize>>,
}

impl LeafHeader {
    /// Leaves the reader where the first row begins.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, PageDamage> {
        let version = read_version(reader)?;
        if reader.u8()? != KIND_LEAF {
            return Err(reader.damage("no leaf"));
        }
        let (flags, known) = match version {
            FORMAT_VERSION_MIN => (reader.u8()?, 0),
            FORMAT_VERSION_UNCUT => (reader.u8()?, COMMON_KEY_LENGTH | COMMON_VALUE),
            _ => (reader.u8()?, COMMON_KEY_LENGTH | COMMON_VALUE | CUT),
        };
        if flags & !known != 0 {
            return Err(reader.damage("rows have something unknown in common"));
        }
        if reader.u8()? != 0 {
            return Err(reader.damage("a reserved byte is not zero"));
        }
        let mut header = Self {
            version,
            common: Common::from_flags(flags),
            rows: reader.u32()? as usize,
            row_bytes: reader.u32()? as usize,
            prefix_len: reader.u32()? as usize,
            fixed: Fixed::default(),
            separators: None,
        };
        if header.row_bytes > LEAF_ROW_BYTES_MAX {
            return Err(reader.damage("a leaf beyond its limit"));
        }
        if header.prefix_len > header.row_bytes {
            return Err(reader.damage("a prefix longer than its rows"));
        }
        reader.take(header.prefix_len)?;
        if version > FORMAT_VERSION_UNCUT {
            if header.common.key_length {
                header.fixed.suffix_len = Some(reader.varint()?);
            }
            if header.common.value {
                header.fixed.value = Some(reader.varint()?);
            }
        }
        if flags & CUT != 0 {
            let count = reader.varint()?;
            if count == 0 {
                return Err(reader.damage("no second section"));
            }
            let start = reader.at();
            for _ in 0..count {
                separator_place(reader)?;
            }
            header.separators = Some(start..reader.at());
        }
        Ok(header)
    }

    pub(super) fn prefix<'r>(&self, raw: &'r [u8]) -> &'r [u8] {
        &raw[LEAF_HEADER_BYTES..][..self.prefix_len]
    }

    /// What no row behind the first has to tell.
    pub(super) fn fixed_by_first(&self, first: RowHead) -> Fixed {
        if self.version > FORMAT_VERSION_UNCUT {
            return self.fixed;
        }
        Fixed {
            suffix_len: self.common.key_length.then_some(first.suffix_len()),
            value: self.common.value.then_some(first.value),
        }
    }

    /// Length of the image's data when no suffix is long.
    fn data_bytes_about(&self) -> usize {
        let prefixes = self.rows.saturating_mul(self.prefix_len);
        self.prefix_len + self.rows + self.row_bytes.saturating_sub(prefixes)
    }
}
