//! What a block looks like on disk.

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// Rows.
    Leaf = 1,
    /// Addresses of other blocks, between keys.
    Inner = 2,
    /// A piece of a large value.
    Large = 3,
    /// A page of the map of used sectors; the store's own.
    Map = 4,
    /// The store's directory, or whatever else describes others.
    Meta = 5,
}
