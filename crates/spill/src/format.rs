//! The bytes of a file: a header, then blocks one behind the other. `docs/formats/spill.md` describes them.

use crate::error::{Result, SpillError};
use codec::{Codec, Compressor, Decompressor};
use crypt::{Keys, SEAL_BYTES};
use std::path::Path;

/// Rows are gathered until they are at least so many bytes, and become one block.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of the largest row.
pub const ROW_BYTES_MAX: usize = 1 << 30;

pub(crate) const MAGIC: [u8; 8] = *b"TENONSPL";
pub(crate) const VERSION: u32 = 1;
pub(crate) const FILE_HEADER_BYTES: usize = 16;
pub(crate) const BLOCK_HEADER_BYTES: usize = 32;
/// Of the length in front of a row.
pub(crate) const ROW_HEADER_BYTES: usize = 4;

/// Bytes of a block's rows, at most.
const RAW_BYTES_MAX: usize = BLOCK_BYTES + ROW_HEADER_BYTES + ROW_BYTES_MAX;

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

/// The header of a file.
pub(crate) fn file_header() -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// A block's place: its file's number, and the byte where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPlace {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// The context that a block is sealed in: its header, which says where it is, without the checksum.
fn context(header: &[u8]) -> Vec<u8> {
    [b"spilling".as_slice(), &header[4..BLOCK_HEADER_BYTES]].concat()
}

/// Appends a block with these rows to `out`, compressed where that makes it smaller, and sealed where there are keys.
pub(crate) fn append_block(
    place: BlockPlace,
    raw: &[u8],
    compressor: &mut Compressor,
    keys: Option<&Keys>,
    out: &mut Vec<u8>,
) -> std::result::Result<(), codec::CodecError> {
    debug_assert!(raw.len() <= RAW_BYTES_MAX, "{} bytes of rows in one block", raw.len());
    let start = out.len();
    out.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
    let seal_bytes = keys.map_or(0, |_| SEAL_BYTES);
    out.resize(out.len() + seal_bytes, 0);
    let body = start + BLOCK_HEADER_BYTES + seal_bytes;
    let mut codec = compressor.codec();
    let mut stored = compressor.compress(raw, out)?;
    if stored >= raw.len() {
        out.truncate(body);
        out.extend_from_slice(raw);
        (codec, stored) = (Codec::None, raw.len());
    }
    out[start + 4..start + 8].copy_from_slice(&((seal_bytes + stored) as u32).to_le_bytes());
    out[start + 8..start + 12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    out[start + 12] = codec.tag();
    out[start + 16..start + 24].copy_from_slice(&place.offset.to_le_bytes());
    out[start + 24..start + 32].copy_from_slice(&place.file.to_le_bytes());
    if let Some(keys) = keys {
        let context = context(&out[start..]);
        let (seal, text) = out[start + BLOCK_HEADER_BYTES..].split_at_mut(SEAL_BYTES);
        seal.copy_from_slice(&keys.seal(&context, text));
    }
    let checksum = crc32c::crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Bytes behind a block's header, which has not been checked yet; at most `left`, which are those up to the file's end.
pub(crate) fn stored_bytes(header: &[u8; BLOCK_HEADER_BYTES], left: u64, at: (&Path, u64)) -> Result<usize> {
    let stored = u64::from(u32_at(header, 4));
    match stored <= left {
        true => Ok(stored as usize),
        false => Err(damaged(at, "length", format!("at most {left}"), stored)),
    }
}

/// Checks a block, header and all, and puts its rows into `raw`, which is emptied first. What was sealed is decrypted
/// in place.
pub(crate) fn open_block(
    block: &mut [u8],
    place: BlockPlace,
    path: &Path,
    keys: Option<&Keys>,
    decompressor: &mut Decompressor,
    raw: &mut Vec<u8>,
) -> Result<()> {
    let at = (path, place.offset);
    let (stored, found) = (u32_at(block, 0), crc32c::crc32c(&block[4..]));
    if stored != found {
        return Err(damaged(at, "checksum", format!("{stored:#x}"), format!("{found:#x}")));
    }
    let found = BlockPlace {
        offset: u64_at(block, 16),
        file: u64_at(block, 24),
    };
    if found != place {
        return Err(damaged(at, "place", format!("{place:?}"), format!("{found:?}")));
    }
    let raw_bytes = u32_at(block, 8) as usize;
    if raw_bytes > RAW_BYTES_MAX {
        return Err(damaged(at, "raw length", format!("at most {RAW_BYTES_MAX}"), raw_bytes));
    }
    if block[13..16] != [0; 3] {
        return Err(damaged(
            at,
            "reserved field",
            "0".to_owned(),
            format!("{:?}", &block[13..16]),
        ));
    }
    let codec = Codec::from_tag(block[12]).map_err(|_| damaged(at, "codec", "a known one".to_owned(), block[12]))?;
    let mut body = &block[BLOCK_HEADER_BYTES..];
    if let Some(keys) = keys {
        let context = context(block);
        let (seal, text) = block[BLOCK_HEADER_BYTES..]
            .split_first_chunk_mut()
            .ok_or_else(|| damaged(at, "seal", format!("{SEAL_BYTES} bytes"), "less"))?;
        let opened = keys.open(&context, seal, text);
        opened.map_err(|error| damaged(at, "encryption", "what was sealed here".to_owned(), error))?;
        body = text;
    }
    raw.clear();
    decompressor
        .decompress(codec, body, raw_bytes, raw)
        .map_err(|error| damaged(at, "body", format!("{raw_bytes} bytes"), error))
}

/// The row that begins at `position` of a block's rows, as a range of them.
pub(crate) fn row_at(raw: &[u8], position: usize, at: (&Path, u64)) -> Result<std::ops::Range<usize>> {
    let left = raw.len() - position;
    if left < ROW_HEADER_BYTES {
        return Err(damaged(at, "row", format!("{ROW_HEADER_BYTES} bytes"), left));
    }
    let (begin, bytes) = (position + ROW_HEADER_BYTES, u32_at(raw, position) as usize);
    match bytes <= raw.len() - begin {
        true => Ok(begin..begin + bytes),
        false => Err(damaged(
            at,
            "row",
            format!("at most {} bytes", raw.len() - begin),
            bytes,
        )),
    }
}

fn damaged((path, offset): (&Path, u64), what: &'static str, expected: String, found: impl ToString) -> SpillError {
    SpillError::Damaged {
        path: path.to_owned(),
        offset,
        what,
        expected,
        found: found.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut compressor = Compressor::new(Codec::Snappy).expect("a compressor");
        let mut out = Vec::new();
        let place = BlockPlace { file: 7, offset: 16 };
        append_block(place, &[9; 300], &mut compressor, None, &mut out).expect("appended");
        assert_eq!((FILE_HEADER_BYTES, BLOCK_HEADER_BYTES, ROW_HEADER_BYTES), (16, 32, 4));
        assert_eq!((BLOCK_BYTES, ROW_BYTES_MAX, VERSION), (65_536, 1 << 30, 1));
        assert_eq!(&file_header()[..12], b"TENONSPL\x01\0\0\0");
        assert_eq!(u32_at(&out, 4) as usize, out.len() - 32, "stored bytes");
        assert_eq!(u32_at(&out, 8), 300, "raw bytes");
        assert_eq!((out[12], &out[13..16]), (Codec::Snappy.tag(), &[0; 3][..]));
        assert_eq!((u64_at(&out, 16), u64_at(&out, 24)), (16, 7));
        let start = out.len();
        append_block(place, b"xyz", &mut compressor, None, &mut out).expect("appended");
        assert_eq!(
            out[start + 12],
            Codec::None.tag(),
            "what does not shrink is stored as it is"
        );
        assert_eq!(&out[start + 32..], b"xyz");
    }
}
