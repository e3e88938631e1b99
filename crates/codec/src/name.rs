//! Names and tags of the algorithms. Tags are stored in files and never renumbered; those up to zstd's are also the
//! wire protocol's compressor ids.

use crate::CodecError;
use std::fmt;
use std::str::FromStr;

/// A compression algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// Stored as it is.
    #[default]
    None = 0,
    /// Snappy, raw format (no stream framing).
    Snappy = 1,
    /// Deflate in the zlib format (RFC 1950).
    Zlib = 2,
    /// Zstandard frame (RFC 8878).
    Zstd = 3,
    /// LZ4 block, without a length in front.
    Lz4 = 4,
}

impl Codec {
    /// Every algorithm, by tag.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Snappy, Codec::Zlib, Codec::Zstd, Codec::Lz4];

    /// The name used in options.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::None => "none",
            Codec::Snappy => "snappy",
            Codec::Zlib => "zlib",
            Codec::Zstd => "zstd",
            Codec::Lz4 => "lz4",
        }
    }

    /// The byte stored in files.
    pub const fn tag(self) -> u8 {
        self as u8
    }

    /// The algorithm of a stored byte.
    pub fn from_tag(tag: u8) -> Result<Self, CodecError> {
        Self::ALL
            .get(usize::from(tag))
            .copied()
            .ok_or(CodecError::UnknownTag(tag))
    }

    /// Levels the algorithm takes; `None` when it has none.
    pub const fn levels(self) -> Option<std::ops::RangeInclusive<i32>> {
        match self {
            Codec::Zlib => Some(0..=9),
            Codec::Zstd => Some(1..=22),
            Codec::None | Codec::Snappy | Codec::Lz4 => None,
        }
    }

    /// The level used when none is named: zlib 6, zstd 3; 0 where levels mean nothing.
    pub const fn default_level(self) -> i32 {
        match self {
            Codec::Zlib => 6,
            Codec::Zstd => 3,
            Codec::None | Codec::Snappy | Codec::Lz4 => 0,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = CodecError;

    fn from_str(name: &str) -> Result<Self, CodecError> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| CodecError::UnknownName(name.to_owned()))
    }
}
