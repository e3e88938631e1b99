//! Makes leaf images from rows in rising order.
//!
//! The prefix common to all keys is known only when the last row is in; rows are therefore gathered whole and moved
//! once. The buffers are kept from one image to the next.

use super::bytes::{common_prefix, head_u32};
use super::leaf::{LEAF_ROW_BYTES_MAX, LONG_SUFFIX, Slot};
use super::sink::Sink;
use super::{KeyParts, LeafImage, NewValue};
use bytes::Bytes;

/// See the module.
#[derive(Default)]
pub(crate) struct LeafBuilder {
    /// Keys and values, one row after the other.
    rows: Sink,
    places: Vec<Place>,
}

/// Where a row lies in `rows`.
struct Place {
    start: u32,
    key_len: u32,
    is_large: bool,
}

impl LeafBuilder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Keys and cell values gathered, as [`LeafImage::row_bytes`] counts.
    pub(crate) fn row_bytes(&self) -> usize {
        self.rows.len()
    }

    /// The last key pushed.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        let last = self.places.len().checked_sub(1)?;
        Some(self.key(last))
    }

    fn key(&self, index: usize) -> &[u8] {
        let place = &self.places[index];
        &self.rows.bytes()[place.start as usize..][..place.key_len as usize]
    }

    /// Adds a row above all others. Panics when the leaf would pass [`LEAF_ROW_BYTES_MAX`]: callers finish a leaf long
    /// before, at the size they aim for.
    #[inline]
    pub(crate) fn push(&mut self, key: KeyParts<'_>, value: NewValue<'_>) {
        debug_assert!(
            self.last_key().is_none_or(|last| key.cmp(last).is_gt()),
            "keys must rise"
        );
        let value_bytes = value.cell_bytes();
        self.begin_row(key.len(), value_bytes.len(), value.is_large());
        self.rows.put(key.prefix);
        self.rows.put(key.suffix);
        self.rows.put(value_bytes);
    }

    /// Adds row `index` of another leaf, above all others.
    #[inline]
    pub(crate) fn push_from(&mut self, leaf: &LeafImage, index: usize) {
        debug_assert!(
            self.last_key().is_none_or(|last| leaf.key(index).cmp(last).is_gt()),
            "keys must rise"
        );
        let cell = leaf.cell(index);
        let prefix_len = leaf.prefix().len();
        let suffix_len = cell.value_start - cell.suffix_start;
        self.begin_row(prefix_len + suffix_len, cell.end - cell.value_start, cell.is_large);
        self.rows.put_from(leaf.data(), 0, prefix_len);
        // Suffix and value lie side by side.
        self.rows
            .put_from(leaf.data(), cell.suffix_start, cell.end - cell.suffix_start);
    }

    #[inline(always)]
    fn begin_row(&mut self, key_len: usize, value_len: usize, is_large: bool) {
        let start = self.rows.len();
        let end = start + key_len + value_len;
        assert!(end <= LEAF_ROW_BYTES_MAX, "a leaf of {end} bytes");
        self.places.push(Place {
            start: start as u32,
            key_len: key_len as u32,
            is_large,
        });
    }

    /// The image of the rows gathered; the builder is empty again.
    pub(crate) fn finish(&mut self) -> LeafImage {
        let Some(last) = self.places.len().checked_sub(1) else {
            return LeafImage::empty();
        };
        let prefix_len = common_prefix(self.key(0), self.key(last));
        let mut index = Vec::with_capacity(self.places.len() + 1);
        let mut data = Sink::with_room(self.data_bytes(prefix_len));
        let rows = self.rows.bytes();
        data.put_from(rows, 0, prefix_len);

        let ends = self.places[1..]
            .iter()
            .map(|place| place.start as usize)
            .chain([rows.len()]);
        for (place, end) in self.places.iter().zip(ends) {
            let offset = data.len() as u32;
            let suffix_len = place.key_len as usize - prefix_len;
            put_cell_start(&mut data, suffix_len, place.is_large);
            // Suffix and value lie side by side here as there.
            let suffix_start = place.start as usize + prefix_len;
            index.push(Slot {
                head: head_u32(&rows[suffix_start..suffix_start + suffix_len]),
                offset,
            });
            data.put_from(rows, suffix_start, end - suffix_start);
        }
        index.push(Slot::end(data.len()));

        let image = LeafImage::from_parts(
            Bytes::from(data.into_boxed_slice()),
            &index,
            prefix_len,
            self.rows.len(),
        );
        self.rows.clear();
        self.places.clear();
        image
    }

    /// Length of the image's data, exactly, so that it need not grow.
    fn data_bytes(&self, prefix_len: usize) -> usize {
        let starts: usize = self
            .places
            .iter()
            .map(|place| cell_start_bytes(place.key_len as usize - prefix_len))
            .sum();
        prefix_len + starts + self.rows.len() - prefix_len * self.places.len()
    }
}

/// Bytes before a cell's suffix.
fn cell_start_bytes(suffix_len: usize) -> usize {
    if suffix_len < LONG_SUFFIX { 1 } else { 5 }
}

/// Appends what lies before a cell's suffix.
#[inline(always)]
pub(super) fn put_cell_start(data: &mut Sink, suffix_len: usize, is_large: bool) {
    if suffix_len < LONG_SUFFIX {
        data.put_byte((suffix_len << 1) as u8 | u8::from(is_large));
    } else {
        data.put_byte((LONG_SUFFIX << 1) as u8 | u8::from(is_large));
        data.put(&(suffix_len as u32).to_le_bytes());
    }
}
