//! Compression with a context that is reused.

use crate::{Codec, CodecError};
use libdeflater::CompressionLvl;
use lz4_flex::block::CompressTable;

/// Compresses blocks with one algorithm. Not shared between threads; make one each.
pub struct Compressor {
    codec: Codec,
    context: Context,
}

enum Context {
    None,
    Snappy(Box<snap::raw::Encoder>),
    Zlib(libdeflater::Compressor),
    Zstd(zstd::bulk::Compressor<'static>),
    Lz4(Box<CompressTable>),
}

impl Compressor {
    /// A compressor at the algorithm's default level.
    pub fn new(codec: Codec) -> Result<Self, CodecError> {
        Self::with_level(codec, codec.default_level())
    }

    /// A compressor at a level of [`Codec::levels`]; an algorithm without levels ignores it.
    pub fn with_level(codec: Codec, level: i32) -> Result<Self, CodecError> {
        if codec.levels().is_some_and(|levels| !levels.contains(&level)) {
            return Err(CodecError::UnknownLevel { codec, level });
        }
        let context = match codec {
            Codec::None => Context::None,
            Codec::Snappy => Context::Snappy(Box::new(snap::raw::Encoder::new())),
            Codec::Zlib => {
                let level = CompressionLvl::new(level).map_err(|_| CodecError::UnknownLevel { codec, level })?;
                Context::Zlib(libdeflater::Compressor::new(level))
            }
            Codec::Zstd => Context::Zstd(
                zstd::bulk::Compressor::new(level).map_err(|error| CodecError::Compress {
                    codec,
                    bytes: 0,
                    message: error.to_string(),
                })?,
            ),
            Codec::Lz4 => Context::Lz4(Box::new(CompressTable::small())),
        };
        Ok(Self { codec, context })
    }

    /// The algorithm.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Compresses `raw` as one block, appends it to `out`, and returns its length in bytes. The result may be longer
    /// than `raw`: whoever stores it may prefer [`Codec::None`] then. On an error `out` is as it was.
    pub fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<usize, CodecError> {
        let start = out.len();
        let result = self.compress_tail(raw, out);
        match result {
            Ok(written) => out.truncate(start + written),
            Err(_) => out.truncate(start),
        }
        result.map_err(|message| CodecError::Compress {
            codec: self.codec,
            bytes: raw.len(),
            message,
        })
    }

    /// Leaves the block, and perhaps slack after it, behind the old end of `out`.
    fn compress_tail(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
        let start = out.len();
        match &mut self.context {
            Context::None => {
                out.extend_from_slice(raw);
                Ok(raw.len())
            }
            Context::Snappy(encoder) => {
                let bound = snap::raw::max_compress_len(raw.len());
                if bound == 0 {
                    return Err("longer than the format allows".to_owned());
                }
                out.resize(start + bound, 0);
                encoder
                    .compress(raw, &mut out[start..])
                    .map_err(|error| error.to_string())
            }
            Context::Zlib(deflater) => {
                out.resize(start + deflater.zlib_compress_bound(raw.len()), 0);
                deflater
                    .zlib_compress(raw, &mut out[start..])
                    .map_err(|error| error.to_string())
            }
            Context::Zstd(context) => {
                out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
                context
                    .compress_to_buffer(raw, &mut out[start..])
                    .map_err(|error| error.to_string())
            }
            Context::Lz4(table) => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                lz4_flex::block::compress_into_with_table(raw, &mut out[start..], table)
                    .map_err(|error| error.to_string())
            }
        }
    }
}
