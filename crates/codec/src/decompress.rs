//! Decompression with contexts that are made when first needed and then reused.

use crate::{Codec, CodecError};
use libdeflater::DecompressionError;

/// Decompresses blocks of any algorithm. Not shared between threads; make one each.
#[derive(Default)]
pub struct Decompressor {
    zlib: Option<libdeflater::Decompressor>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

/// Why a block was refused.
enum Refusal {
    Damaged(String),
    Length(usize),
}

impl Refusal {
    fn damaged(error: impl ToString) -> Self {
        Self::Damaged(error.to_string())
    }
}

impl Decompressor {
    /// A decompressor without contexts yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decompresses the block `stored` and appends its raw bytes, **exactly** `raw_bytes` of them, to `out`; a block of
    /// more, fewer or damaged bytes is an error and leaves `out` as it was. `out` grows by `raw_bytes` at once: a
    /// caller that read the number from a file or the network bounds it first.
    pub fn decompress(
        &mut self,
        codec: Codec,
        stored: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        if codec == Codec::None && stored.len() == raw_bytes {
            out.extend_from_slice(stored);
            return Ok(());
        }
        let start = out.len();
        out.resize(start + raw_bytes, 0);
        let result = self.decompress_into(codec, stored, &mut out[start..]);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Decompresses the block `stored` into `raw`, which is **exactly** as long as its raw bytes; a block of more,
    /// fewer or damaged bytes is an error and leaves anything there. What `raw` held does not matter: a buffer can be
    /// used again as it is.
    pub fn decompress_into(&mut self, codec: Codec, stored: &[u8], raw: &mut [u8]) -> Result<(), CodecError> {
        match self.fill(codec, stored, raw) {
            Ok(found) if found == raw.len() => Ok(()),
            Ok(found) | Err(Refusal::Length(found)) => Err(CodecError::Length {
                codec,
                expected: raw.len(),
                found,
            }),
            Err(Refusal::Damaged(message)) => Err(CodecError::Damaged { codec, message }),
        }
    }

    /// Answers how many raw bytes there are.
    fn fill(&mut self, codec: Codec, stored: &[u8], raw: &mut [u8]) -> Result<usize, Refusal> {
        match codec {
            Codec::None => {
                if stored.len() == raw.len() {
                    raw.copy_from_slice(stored);
                }
                Ok(stored.len())
            }
            Codec::Snappy => {
                let found = snap::raw::decompress_len(stored).map_err(Refusal::damaged)?;
                if found != raw.len() {
                    return Err(Refusal::Length(found));
                }
                snap::raw::Decoder::new()
                    .decompress(stored, raw)
                    .map_err(Refusal::damaged)
            }
            Codec::Zlib => {
                let inflater = self.zlib.get_or_insert_with(libdeflater::Decompressor::new);
                inflater.zlib_decompress(stored, raw).map_err(|error| match error {
                    DecompressionError::InsufficientSpace => Refusal::damaged("longer than it says"),
                    DecompressionError::BadData => Refusal::damaged("not a zlib stream, or its checksum differs"),
                })
            }
            Codec::Zstd => {
                let context = match &mut self.zstd {
                    Some(context) => context,
                    empty => empty.insert(zstd::bulk::Decompressor::new().map_err(Refusal::damaged)?),
                };
                context.decompress_to_buffer(stored, raw).map_err(Refusal::damaged)
            }
            Codec::Lz4 => lz4_flex::block::decompress_into(stored, raw).map_err(Refusal::damaged),
        }
    }
}
