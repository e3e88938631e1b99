//! Page images of the btree engine: what a leaf or an inner page looks like in memory and as the raw bytes of a block.
//!
//! A page knows no blocks, no codec and no versions: it is an immutable sorted run of cells. Raw bytes come from disk
//! and are not trusted: decoding checks every length and the order of all keys, and answers [`PageDamage`] when they
//! are wrong.

mod bytes;
mod damage;
mod inner;
mod key_parts;
mod large;
mod leaf;
mod leaf_builder;
mod leaf_format;
mod leaf_front;
mod leaf_sections;
mod leaf_stream;
mod sink;

pub(crate) use bytes::{head_u64, shortest_separator};
pub(crate) use damage::PageDamage;
pub(crate) use inner::{LEVEL_MAX, SEPARATOR_BYTES_MAX, Separators, decode_inner, encode_inner};
pub(crate) use key_parts::KeyParts;
pub(crate) use large::{LARGE_CHUNK_BYTES, LargeRef};
pub(crate) use leaf::{CellValue, LEAF_ROW_BYTES_MAX, LeafImage, NewValue};
pub(crate) use leaf_builder::LeafBuilder;
pub(crate) use leaf_front::{LeafFront, SectionRows};
pub(crate) use leaf_sections::LeafSearch;
pub(crate) use leaf_stream::LeafStream;

#[cfg(test)]
mod layout_tests;
#[cfg(test)]
mod tests;
