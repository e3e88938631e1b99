//! What can go wrong.

use crate::Codec;

/// A codec's error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// No algorithm has that name.
    #[error("unknown compressor {0:?} (known: none, snappy, zlib, zstd, lz4)")]
    UnknownName(String),
    /// No algorithm has that stored tag.
    #[error("unknown compressor tag {0}")]
    UnknownTag(u8),
    /// The algorithm has no such level.
    #[error("compressor {codec} has no level {level}")]
    UnknownLevel {
        /// The algorithm.
        codec: Codec,
        /// The level asked for.
        level: i32,
    },
    /// The compressor refused its input (too long for the format).
    #[error("cannot compress {bytes} bytes with {codec}: {message}")]
    Compress {
        /// The algorithm.
        codec: Codec,
        /// Length of the input.
        bytes: usize,
        /// The library's words.
        message: String,
    },
    /// The compressed bytes are damaged.
    #[error("damaged {codec} data: {message}")]
    Damaged {
        /// The algorithm.
        codec: Codec,
        /// The library's words.
        message: String,
    },
    /// The compressed bytes hold another number of raw bytes than demanded (`found` counts up to one past `expected`
    /// where the algorithm stops there).
    #[error("{codec} data holds {found} raw bytes, {expected} expected")]
    Length {
        /// The algorithm.
        codec: Codec,
        /// Raw bytes demanded.
        expected: usize,
        /// Raw bytes found.
        found: usize,
    },
}
