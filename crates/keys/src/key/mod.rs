//! Keys: values as bytes whose memcmp order is the comparison order. The format is described in `docs/formats/keys.md`.
//!
//! A key is its fields one after the other, each ascending or descending (all bytes complemented). No field's bytes are
//! a prefix of another value's, so that fields can be appended and ranges are plain byte ranges. What the bytes lose
//! (int or double, string or symbol) goes into [`TypeBits`], kept in the index entry's value; with both a key decodes
//! to what was encoded. The module knows no documents and no index definitions.
//!
//! Invariant: a field's first byte lies in 0x04..=0xFB in either direction, so every key has a byte string after it.

mod bounds;
mod decode;
mod encode;
mod format;
mod length;

pub use bounds::{Discriminator, Edge, KeyInterval, encode_bound, successor};
pub use decode::{DecodeError, KeyDecoder, decode_key};
pub(crate) use encode::encode_field;
pub use encode::{encode_key, encode_missing, encode_value, encode_value_with_types};
pub use length::{is_collated_string, value_length};

use format::null_code;

/// Most fields of a compound key.
pub const FIELDS_MAX: usize = 32;

/// Bytes of a record id behind a key.
pub const RECORD_ID_BYTES: usize = 8;

/// The direction of one field of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOrder {
    /// Smaller values first.
    Ascending,
    /// Larger values first.
    Descending,
}

/// The directions of all fields of a key: bit i is set when field i is descending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyOrdering(u32);

impl KeyOrdering {
    /// Every field ascending.
    pub const ASCENDING: KeyOrdering = KeyOrdering(0);

    /// From the directions of the first fields; at most [`FIELDS_MAX`], the rest is ascending.
    pub fn new(fields: impl IntoIterator<Item = FieldOrder>) -> Self {
        let fields = fields.into_iter().take(FIELDS_MAX).enumerate();
        Self(fields.fold(0, |mask, (index, order)| {
            mask | u32::from(order == FieldOrder::Descending) << index
        }))
    }

    /// The direction of a field, counted from 0.
    pub fn field(self, index: usize) -> FieldOrder {
        if index < FIELDS_MAX && self.0 >> index & 1 == 1 {
            FieldOrder::Descending
        } else {
            FieldOrder::Ascending
        }
    }
}

/// What key bytes lose: one code for each value that could have been of several types, in the order met, trailing
/// defaults left out. Empty when everything is int32 (int64 beyond its range), string, or a double with a fraction.
///
/// Two documents may have equal keys and different type bits: whoever maintains an index compares both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits {
    bytes: Vec<u8>,
    /// Defaults not written yet.
    defaults: usize,
}

impl TypeBits {
    /// Nothing recorded.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.defaults = 0;
    }

    /// The bytes to store.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn push_default(&mut self) {
        self.defaults += 1;
    }

    fn push(&mut self, code: u8, extra: &[u8]) {
        self.bytes.resize(self.bytes.len() + self.defaults, 0);
        self.defaults = 0;
        self.bytes.push(code);
        self.bytes.extend_from_slice(extra);
    }

    fn push_null(&mut self, missing: bool) {
        if missing {
            self.push(null_code::MISSING, &[])
        } else {
            self.push_default()
        }
    }
}

/// Appends a record id, so that equal keys of different records stay apart and order by record.
pub fn append_record_id(key: &mut Vec<u8>, record_id: u64) {
    key.extend_from_slice(&record_id.to_be_bytes());
}

/// Splits what [`append_record_id`] made; `None` when the bytes are too short.
pub fn split_record_id(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let (key, id) = bytes.split_last_chunk::<RECORD_ID_BYTES>()?;
    Some((key, u64::from_be_bytes(*id)))
}

#[cfg(test)]
mod tests;
