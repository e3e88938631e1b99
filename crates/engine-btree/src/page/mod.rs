//! Page images of the btree engine: what a leaf or an inner page looks like in memory and as the raw bytes of a block.
//!
//! A page knows no blocks, no codec and no versions: it is an immutable sorted run of cells. Raw bytes come from disk and
//! are not trusted: decoding checks every length and the order of all keys, and answers [`PageDamage`] when they are wrong.

mod damage;

pub(crate) use damage::PageDamage;
