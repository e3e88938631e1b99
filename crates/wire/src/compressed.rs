//! OP_COMPRESSED: `i32 original op code`, `i32 uncompressed size`, `u8 compressor`, compressed bytes (of what follows
//! the original header).
//!
//! A size that the compressed bytes cannot have is refused before memory is set aside for it. The contexts are large
//! (zstd's is over a megabyte), so they belong to threads, not to connections, and are made at first use.

use crate::limits::MESSAGE_BYTES_MAX;
use crate::{HEADER_BYTES, Header, OpCode, WireError};

/// Bytes between the header and the compressed bytes.
const FIELDS_BYTES: usize = 4 + 4 + 1;
/// zlib's default: MongoDB's too.
const ZLIB_LEVEL: u32 = 6;
/// MongoDB's default for network messages.
const ZSTD_LEVEL: i32 = 3;

/// A compressor clients can ask for in `hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Compressor {
    /// Stored as it is.
    Noop = 0,
    /// Snappy, raw format.
    Snappy = 1,
    /// zlib format.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl Compressor {
    /// All that clients may name in `hello`, by name.
    pub const NEGOTIABLE: [Self; 3] = [Self::Snappy, Self::Zstd, Self::Zlib];

    /// The compressor of an id in a message.
    pub fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Noop),
            1 => Some(Self::Snappy),
            2 => Some(Self::Zlib),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The compressor of a name in `hello` or in the configuration.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NEGOTIABLE
            .into_iter()
            .find(|compressor| compressor.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// The most bytes that `compressed` bytes can stand for: the format's best ratio, and some slack for short input.
    fn expanded_max(self, compressed: usize) -> usize {
        match self {
            Self::Noop => compressed,
            // A copy of 64 bytes takes three.
            Self::Snappy => compressed.saturating_mul(22).saturating_add(64),
            // Deflate's limit is 1032 to 1.
            Self::Zlib => compressed.saturating_mul(1032).saturating_add(64),
            // A run-length block of 128 KiB takes four bytes.
            Self::Zstd => compressed.saturating_mul(32 * 1024).saturating_add(64),
        }
    }
}

/// Compression contexts, reused from message to message.
pub struct Codecs {
    snappy_encoder: snap::raw::Encoder,
    snappy_decoder: snap::raw::Decoder,
    zlib_encoder: Option<flate2::Compress>,
    zlib_decoder: Option<flate2::Decompress>,
    zstd_encoder: Option<zstd::bulk::Compressor<'static>>,
    zstd_decoder: Option<zstd::bulk::Decompressor<'static>>,
}

impl Default for Codecs {
    fn default() -> Self {
        Self {
            snappy_encoder: snap::raw::Encoder::new(),
            snappy_decoder: snap::raw::Decoder::new(),
            zlib_encoder: None,
            zlib_decoder: None,
            zstd_encoder: None,
            zstd_decoder: None,
        }
    }
}

/// What a compressed message says is in it, in bytes with a header of its own; `None` when it says no such thing.
pub fn uncompressed_bytes(message: &[u8]) -> Option<usize> {
    let fields = message.get(HEADER_BYTES..)?.first_chunk::<FIELDS_BYTES>()?;
    let size = i32::from_le_bytes([fields[4], fields[5], fields[6], fields[7]]);
    usize::try_from(size).ok().map(|size| HEADER_BYTES + size)
}

/// The compressor that a compressed message names; `None` for one that there is not.
pub fn compressor_of(message: &[u8]) -> Option<Compressor> {
    let fields = message.get(HEADER_BYTES..)?.first_chunk::<FIELDS_BYTES>()?;
    Compressor::from_id(fields[8])
}

impl Codecs {
    /// Writes the message inside a compressed one into `out` (cleared first), with a header of its own, and returns
    /// that header and the compressor. The ids are the outer message's.
    pub fn decompress(
        &mut self,
        header: &Header,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(Header, Compressor), WireError> {
        let malformed = WireError::Malformed {
            what: "compressed message",
            offset: HEADER_BYTES,
        };
        let Some((fields, compressed)) = message
            .get(HEADER_BYTES..)
            .and_then(|rest| rest.split_first_chunk::<FIELDS_BYTES>())
        else {
            return Err(malformed);
        };
        let original = i32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]);
        let size = i32::from_le_bytes([fields[4], fields[5], fields[6], fields[7]]);
        let compressor = Compressor::from_id(fields[8]).ok_or(WireError::UnknownCompressor { id: fields[8] })?;
        let op_code = match OpCode::from_number(original) {
            Some(op_code @ (OpCode::Msg | OpCode::Query)) => op_code,
            _ => return Err(WireError::UnknownOpCode { op_code: original }),
        };
        let size = match usize::try_from(size) {
            Ok(bytes) if bytes <= MESSAGE_BYTES_MAX - HEADER_BYTES => bytes,
            _ => return Err(WireError::MessageLength { length: size }),
        };
        if size > compressor.expanded_max(compressed.len()) {
            return Err(fail(
                compressor,
                "more bytes promised than the compressed ones can hold",
            ));
        }
        let inner = Header {
            length: HEADER_BYTES + size,
            op_code,
            ..*header
        };
        out.clear();
        out.reserve(inner.length);
        out.extend_from_slice(&inner.to_bytes());
        self.expand(compressor, compressed, size, out)?;
        if out.len() != inner.length {
            return Err(fail(compressor, "size differs from what the message says"));
        }
        Ok((inner, compressor))
    }

    /// Appends at most `size` bytes to `out`, whose spare capacity is at least that.
    fn expand(
        &mut self,
        compressor: Compressor,
        compressed: &[u8],
        size: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        match compressor {
            Compressor::Noop => out.extend_from_slice(compressed),
            Compressor::Snappy => {
                if snap::raw::decompress_len(compressed).map_err(|error| fail(compressor, error))? != size {
                    return Err(fail(compressor, "size differs from what the message says"));
                }
                let start = out.len();
                out.resize(start + size, 0);
                self.snappy_decoder
                    .decompress(compressed, &mut out[start..])
                    .map_err(|error| fail(compressor, error))?;
            }
            Compressor::Zlib => {
                let decoder = self.zlib_decoder.get_or_insert_with(|| flate2::Decompress::new(true));
                decoder.reset(true);
                let status = decoder
                    .decompress_vec(compressed, out, flate2::FlushDecompress::Finish)
                    .map_err(|error| fail(compressor, error))?;
                if status != flate2::Status::StreamEnd {
                    return Err(fail(compressor, "stream does not end within the size the message says"));
                }
            }
            Compressor::Zstd => {
                let decoder = match &mut self.zstd_decoder {
                    Some(decoder) => decoder,
                    none => none.insert(zstd::bulk::Decompressor::new().map_err(|error| fail(compressor, error))?),
                };
                let mut target = std::io::Cursor::new(&mut *out);
                target.set_position(HEADER_BYTES as u64);
                decoder
                    .decompress_to_buffer(compressed, &mut target)
                    .map_err(|error| fail(compressor, error))?;
            }
        }
        Ok(())
    }

    /// Appends `message` to `out` as a compressed one with the same ids.
    pub fn compress(&mut self, compressor: Compressor, message: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let malformed = WireError::Malformed {
            what: "message to compress",
            offset: 0,
        };
        let (head, body) = message.split_first_chunk::<HEADER_BYTES>().ok_or(malformed)?;
        let header = Header::parse(head)?;
        let start = out.len();
        out.extend_from_slice(head);
        out.extend_from_slice(&(header.op_code as i32).to_le_bytes());
        out.extend_from_slice(&(body.len() as i32).to_le_bytes());
        out.push(compressor as u8);
        self.shrink(compressor, body, out)?;
        let length = out.len() - start;
        if length > MESSAGE_BYTES_MAX {
            return Err(WireError::MessageLength {
                length: i32::try_from(length).unwrap_or(i32::MAX),
            });
        }
        let outer = Header {
            length,
            op_code: OpCode::Compressed,
            ..header
        };
        out[start..start + HEADER_BYTES].copy_from_slice(&outer.to_bytes());
        Ok(())
    }

    fn shrink(&mut self, compressor: Compressor, body: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
        let start = out.len();
        match compressor {
            Compressor::Noop => out.extend_from_slice(body),
            Compressor::Snappy => {
                out.resize(start + snap::raw::max_compress_len(body.len()), 0);
                let written = self
                    .snappy_encoder
                    .compress(body, &mut out[start..])
                    .map_err(|error| fail(compressor, error))?;
                out.truncate(start + written);
            }
            Compressor::Zlib => {
                let encoder = self
                    .zlib_encoder
                    .get_or_insert_with(|| flate2::Compress::new(flate2::Compression::new(ZLIB_LEVEL), true));
                encoder.reset();
                // Deflate's worst case: five bytes per block of 16 KiB and the stream's frame.
                out.reserve(body.len() + body.len() / 1000 + 64);
                let status = encoder
                    .compress_vec(body, out, flate2::FlushCompress::Finish)
                    .map_err(|error| fail(compressor, error))?;
                if status != flate2::Status::StreamEnd {
                    return Err(fail(compressor, "compressed bytes do not fit the bound"));
                }
            }
            Compressor::Zstd => {
                let encoder = match &mut self.zstd_encoder {
                    Some(encoder) => encoder,
                    none => {
                        let made = zstd::bulk::Compressor::new(ZSTD_LEVEL).map_err(|error| fail(compressor, error))?;
                        none.insert(made)
                    }
                };
                out.reserve(zstd::zstd_safe::compress_bound(body.len()));
                let mut target = std::io::Cursor::new(&mut *out);
                target.set_position(start as u64);
                encoder
                    .compress_to_buffer(body, &mut target)
                    .map_err(|error| fail(compressor, error))?;
            }
        }
        Ok(())
    }
}

#[cold]
fn fail(compressor: Compressor, reason: impl std::fmt::Display) -> WireError {
    WireError::Compression {
        compressor: compressor.name(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests;
