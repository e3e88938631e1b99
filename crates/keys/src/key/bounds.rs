//! Ranges of values as ranges of bytes.
//!
//! Because no value's bytes are a prefix of another's, "all keys whose first fields are these" is "all keys with this
//! prefix", and every bound of a scan is a byte string. The planner says what it means in values; descending fields are
//! turned round here.

use super::format::{lead, lead_range};
use super::{FieldOrder, KeyOrdering, encode_value};
use crate::Collator;
use bson::raw::RawBsonRef;
use std::ops::Bound;

/// Where a bound stands relative to the keys that start with the given fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discriminator {
    /// Before all of them; also the exact key when all fields are given.
    Before,
    /// After all of them.
    After,
}

/// One end of a range of values of a field. "Lower" and "upper" are meant in values, whatever the field's direction.
#[derive(Clone, Copy, Debug)]
pub enum Edge<'a> {
    /// Up to the first or last key there is.
    Open,
    /// Up to this value, with it.
    Included(RawBsonRef<'a>),
    /// Up to this value, without it.
    Excluded(RawBsonRef<'a>),
    /// Up to the first or last value of a type, given by its [`crate::canonical_type`].
    Bracket(u8),
}

/// A range of keys, compared by memcmp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInterval {
    /// The lower bound.
    pub start: Bound<Vec<u8>>,
    /// The upper bound.
    pub end: Bound<Vec<u8>>,
}

impl KeyInterval {
    /// The keys whose first fields equal `prefix` and whose next field lies between `lower` and `upper`.
    pub fn new(
        prefix: &[RawBsonRef<'_>],
        lower: Edge<'_>,
        upper: Edge<'_>,
        ordering: KeyOrdering,
        collator: Option<&dyn Collator>,
    ) -> Self {
        let before = encode_bound(prefix, Discriminator::Before, ordering, collator);
        let field = Field {
            prefix: &before,
            order: ordering.field(prefix.len()),
            collator,
        };
        let (first, last) = match field.order {
            FieldOrder::Ascending => (lower, upper),
            FieldOrder::Descending => (upper, lower),
        };
        let start = field.edge(first, Side::First);
        let end = field.edge(last, Side::Last);
        Self {
            start: start.map_or(Bound::Unbounded, Bound::Included),
            end: end.map_or(Bound::Unbounded, Bound::Excluded),
        }
    }

    /// The keys whose first fields equal `values`.
    pub fn equal(values: &[RawBsonRef<'_>], ordering: KeyOrdering, collator: Option<&dyn Collator>) -> Self {
        Self::new(values, Edge::Open, Edge::Open, ordering, collator)
    }

    /// True when a key lies inside.
    pub fn contains(&self, key: &[u8]) -> bool {
        let after_start = match &self.start {
            Bound::Included(start) => key >= start.as_slice(),
            Bound::Excluded(start) => key > start.as_slice(),
            Bound::Unbounded => true,
        };
        let before_end = match &self.end {
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
            Bound::Unbounded => true,
        };
        after_start && before_end
    }
}

/// The bytes before or after all keys whose first fields equal `values`. After no fields at all there is nothing:
/// then the bytes are empty for either side.
pub fn encode_bound(
    values: &[RawBsonRef<'_>],
    discriminator: Discriminator,
    ordering: KeyOrdering,
    collator: Option<&dyn Collator>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, value) in values.iter().enumerate() {
        encode_value(&mut bytes, *value, ordering.field(index), collator);
    }
    match discriminator {
        Discriminator::Before => bytes,
        Discriminator::After => successor(bytes).unwrap_or_default(),
    }
}

/// The smallest byte string above every string that starts with `prefix`; `None` when there is none (the prefix is
/// empty or all 0xFF, which no key is).
pub fn successor(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last != 0xFF {
            prefix.push(last + 1);
            return Some(prefix);
        }
    }
    None
}

/// The end of a byte range that is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Last,
}

struct Field<'f> {
    /// The bytes of the fields before.
    prefix: &'f [u8],
    order: FieldOrder,
    collator: Option<&'f dyn Collator>,
}

impl Field<'_> {
    /// An inclusive first or exclusive last bound in bytes; `None`: no bound.
    fn edge(&self, edge: Edge<'_>, side: Side) -> Option<Vec<u8>> {
        let (value, included) = match edge {
            Edge::Open => {
                let prefix = self.prefix.to_vec();
                return match side {
                    Side::First => (!prefix.is_empty()).then_some(prefix),
                    Side::Last => successor(prefix),
                };
            }
            Edge::Bracket(canonical) => return Some(self.bracket(canonical, side)),
            Edge::Included(value) => (value, true),
            Edge::Excluded(value) => (value, false),
        };
        let mut bytes = self.prefix.to_vec();
        encode_value(&mut bytes, value, self.order, self.collator);
        // At the first side an included value starts before its keys, at the last side it ends after them.
        if included == (side == Side::First) {
            Some(bytes)
        } else {
            successor(bytes)
        }
    }

    fn bracket(&self, canonical: u8, side: Side) -> Vec<u8> {
        let (first, end) = lead_range(canonical);
        debug_assert!(
            first >= lead::MIN_KEY && end <= lead::MAX_KEY + 1,
            "every type has its first bytes"
        );
        let byte = match (self.order, side) {
            (FieldOrder::Ascending, Side::First) => first,
            (FieldOrder::Ascending, Side::Last) => end,
            // Complemented bytes fall: the range starts at the complement of its last first byte.
            (FieldOrder::Descending, Side::First) => !(end - 1),
            (FieldOrder::Descending, Side::Last) => !first + 1,
        };
        let mut bytes = self.prefix.to_vec();
        bytes.push(byte);
        bytes
    }
}
