//! The compressors that tables and the log name in their options.
//!
//! [`Codec`] names an algorithm; its [`Codec::tag`] is what files store. [`Compressor`] and [`Decompressor`] hold the
//! contexts that are worth reusing: keep one per thread or per pool of buffers. This crate frames nothing: whoever
//! stores compressed bytes also stores the codec, the raw length and a checksum.
//!
//! Invariant: decompression yields exactly the number of bytes the caller demands, or an error; hostile input can
//! neither make it write more nor make it allocate more than that.

mod compress;
mod decompress;
mod error;
mod name;

pub use compress::Compressor;
pub use decompress::Decompressor;
pub use error::CodecError;
pub use name::Codec;

#[cfg(test)]
mod tests;
