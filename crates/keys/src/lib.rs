//! Order-preserving keys and the comparison order of BSON values.
//!
//! Everything that must agree on "which value comes first" lives here: [`order`] compares values as queries and sorts
//! do, [`key`] turns values into bytes whose memcmp order is the same, [`extract`] takes the keys of an index out of a
//! document, [`decimal`] computes with Decimal128, [`describe`] shows values in messages. The crate knows no
//! collections, no storage and no query language.
//!
//! Invariant, tested over random values: for any `a` and `b`, `memcmp(encode(a), encode(b))` equals `compare(a, b)`,
//! and equal values hash alike.

pub mod collator;
pub mod decimal;
pub mod describe;
pub mod extract;
mod hash;
pub mod key;
mod number;
pub mod order;
mod raw;
#[cfg(test)]
mod testing;
mod type_name;
mod wide;

pub use collator::Collator;
pub use decimal::Decimal;
pub use extract::{
    ExtractError, FieldKind, IndexPattern, KeyExtractor, KeySet, MultikeyPaths, PatternError, TextSpec, TextSpecError,
    WildcardSpec, WildcardSpecError,
};
pub use hash::hash;
pub use key::{FieldOrder, KeyInterval, KeyOrdering, TypeBits};
pub use order::{canonical_type, compare, compare_documents};
pub use type_name::type_name;
