//! Byte layout of a checkpoint file. Described in `docs/formats/inmemory-checkpoint.md`.

use codec::Codec;
use crypt::{Keys, SEAL_BYTES};
use engine::{Seq, TableId, TableKind, TableSpec};

/// Version of the files this crate writes.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// The same with every block sealed.
pub(super) const SEALED_FORMAT_VERSION: u32 = 2;
pub(super) const MAGIC: [u8; 8] = *b"TENONIMC";
pub(super) const FILE_HEADER_BYTES: usize = 32;
pub(super) const BLOCK_HEADER_BYTES: usize = 32;
/// A rows block is written out when it has grown to so many bytes.
pub(super) const BLOCK_BYTES_AIM: usize = 128 * 1024;
/// Longest content of a block before compression: one row short of the aim, and then the longest row.
pub(super) const BLOCK_BYTES_MAX: usize =
    BLOCK_BYTES_AIM + ROW_HEADER_BYTES + engine::KEY_BYTES_MAX + engine::VALUE_BYTES_MAX;
pub(super) const ROW_HEADER_BYTES: usize = 8;
pub(super) const END_BYTES: usize = 24;

/// Start of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) seq: Seq,
    /// A seal stands before the stored bytes of each block, which are encrypted.
    pub(super) is_sealed: bool,
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; FILE_HEADER_BYTES] {
        let mut bytes = [0; FILE_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        let version = if self.is_sealed {
            SEALED_FORMAT_VERSION
        } else {
            FORMAT_VERSION
        };
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seq.0.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..32].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The reason is a sentence for the error.
    pub(super) fn decode(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<Self, String> {
        if bytes[0..8] != MAGIC {
            return Err(format!("magic is {:02x?}, not {MAGIC:02x?}", &bytes[0..8]));
        }
        expect_checksum(u32_at(bytes, 28), crc32c::crc32c(&bytes[..28]))?;
        let version = u32_at(bytes, 8);
        if ![FORMAT_VERSION, SEALED_FORMAT_VERSION].contains(&version) {
            return Err(format!(
                "format version is {version}, and this program knows {FORMAT_VERSION} and {SEALED_FORMAT_VERSION}"
            ));
        }
        if u32_at(bytes, 12) != 0 || u32_at(bytes, 24) != 0 {
            return Err("reserved bytes are not zero".into());
        }
        Ok(Self {
            seq: Seq(u64_at(bytes, 16)),
            is_sealed: version == SEALED_FORMAT_VERSION,
        })
    }
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// A table; its rows follow.
    Table = 1,
    /// Rows of the table last named.
    Rows = 2,
    /// The last block, with totals.
    End = 3,
}

impl BlockKind {
    fn from_tag(tag: u8) -> Result<Self, String> {
        match tag {
            1 => Ok(Self::Table),
            2 => Ok(Self::Rows),
            3 => Ok(Self::End),
            _ => Err(format!("{tag} is no kind of block")),
        }
    }
}

/// Start of a block. Its checksum covers the rest of the header and the stored bytes; number and `seq` tell a block
/// that lies at the wrong place or belongs to another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub(super) kind: BlockKind,
    pub(super) codec: Codec,
    pub(super) raw_bytes: u32,
    pub(super) stored_bytes: u32,
    pub(super) number: u64,
    pub(super) seq: Seq,
}

impl BlockHeader {
    /// The header of `stored`, with the seal before it if there is one.
    pub(super) fn encode(&self, stored: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = self.encode_fields();
        let checksum = checksum_of(&bytes, stored);
        bytes[0..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// All but the checksum.
    fn encode_fields(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[4] = self.kind as u8;
        bytes[5] = self.codec.tag();
        bytes[8..12].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.seq.0.to_le_bytes());
        bytes
    }

    /// What the block is, and where it stands: its number, and the checkpoint that it is of.
    fn context(&self) -> Vec<u8> {
        [b"inmemory".as_slice(), &self.encode_fields()[4..]].concat()
    }

    /// Puts seal and ciphertext of the stored bytes into `sealed`.
    pub(super) fn seal(&self, stored: &[u8], keys: &Keys, sealed: &mut Vec<u8>) {
        sealed.clear();
        sealed.resize(SEAL_BYTES, 0);
        sealed.extend_from_slice(stored);
        let (seal, text) = sealed.split_at_mut(SEAL_BYTES);
        seal.copy_from_slice(&keys.seal(&self.context(), text));
    }

    /// Decrypts what [`BlockHeader::seal`] gave, in place, and answers the stored bytes.
    pub(super) fn open<'s>(&self, sealed: &'s mut [u8], keys: &Keys) -> Result<&'s [u8], String> {
        let (seal, text) = sealed.split_first_chunk_mut().ok_or("the block has no seal")?;
        let opened = keys.open(&self.context(), seal, text);
        opened.map_err(|error| format!("encryption: {error}"))?;
        Ok(text)
    }

    /// Reads what must be known to read the stored bytes; they are checked by [`BlockHeader::check`].
    pub(super) fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Result<Self, String> {
        if bytes[6] != 0 || bytes[7] != 0 {
            return Err("reserved bytes are not zero".into());
        }
        let header = Self {
            kind: BlockKind::from_tag(bytes[4])?,
            codec: Codec::from_tag(bytes[5]).map_err(|error| error.to_string())?,
            raw_bytes: u32_at(bytes, 8),
            stored_bytes: u32_at(bytes, 12),
            number: u64_at(bytes, 16),
            seq: Seq(u64_at(bytes, 24)),
        };
        if header.raw_bytes as usize > BLOCK_BYTES_MAX || header.stored_bytes > header.raw_bytes {
            return Err(format!(
                "{} bytes stored as {} are out of bounds",
                header.raw_bytes, header.stored_bytes
            ));
        }
        Ok(header)
    }

    pub(super) fn check(bytes: &[u8; BLOCK_HEADER_BYTES], stored: &[u8]) -> Result<(), String> {
        expect_checksum(u32_at(bytes, 0), checksum_of(bytes, stored))
    }
}

fn checksum_of(header: &[u8; BLOCK_HEADER_BYTES], stored: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[4..]), stored)
}

fn expect_checksum(found: u32, computed: u32) -> Result<(), String> {
    if found == computed {
        Ok(())
    } else {
        Err(format!("checksum is {found:08x}, the bytes give {computed:08x}"))
    }
}

/// Content of a table block.
pub(super) fn encode_table(id: TableId, spec: &TableSpec, out: &mut Vec<u8>) {
    out.extend_from_slice(&id.0.to_le_bytes());
    out.push(match spec.kind {
        TableKind::Records => 1,
        TableKind::Index => 2,
        TableKind::Small => 3,
        TableKind::Clustered => 4,
    });
    out.push(u8::from(spec.compressor.is_some()));
    out.extend_from_slice(&[0, 0]);
    for text in [&spec.name, spec.compressor.as_ref().unwrap_or(&String::new())] {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

pub(super) fn decode_table(bytes: &[u8]) -> Result<(TableId, TableSpec), String> {
    let (head, rest) = bytes.split_first_chunk::<8>().ok_or("a table's block is too short")?;
    let kind = match head[4] {
        1 => TableKind::Records,
        2 => TableKind::Index,
        3 => TableKind::Small,
        4 => TableKind::Clustered,
        tag => return Err(format!("{tag} is no kind of table")),
    };
    let (name, rest) = split_text(rest)?;
    let (compressor, rest) = split_text(rest)?;
    let compressor = match head[5] {
        0 if compressor.is_empty() => None,
        1 => Some(compressor),
        flag => return Err(format!("{flag} does not say whether there is a compressor")),
    };
    if head[6..8] != [0, 0] || !rest.is_empty() {
        return Err("a table's block has bytes nobody wrote".into());
    }
    Ok((TableId(u32_at(head, 0)), TableSpec { kind, name, compressor }))
}

fn split_text(bytes: &[u8]) -> Result<(String, &[u8]), String> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or("a text's length is cut off")?;
    let (text, rest) = rest
        .split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or("a text is cut off")?;
    Ok((
        String::from_utf8(text.to_vec()).map_err(|_| "a text is not UTF-8")?,
        rest,
    ))
}

/// Appends a row to the content of a rows block.
pub(super) fn encode_row(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// A row's key and value, in the content of a block.
pub(super) type RowBytes<'a> = (&'a [u8], &'a [u8]);

/// Splits the first row off; what follows it comes second.
pub(super) fn split_row(bytes: &[u8]) -> Result<(RowBytes<'_>, &[u8]), String> {
    let (head, rest) = bytes
        .split_first_chunk::<ROW_HEADER_BYTES>()
        .ok_or("a row's header is cut off")?;
    let (key, rest) = rest
        .split_at_checked(u32_at(head, 0) as usize)
        .ok_or("a key is cut off")?;
    let (value, rest) = rest
        .split_at_checked(u32_at(head, 4) as usize)
        .ok_or("a value is cut off")?;
    Ok(((key, value), rest))
}

/// Content of the last block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) tables: u64,
    pub(super) rows: u64,
    /// Blocks before this one.
    pub(super) blocks: u64,
}

impl Totals {
    pub(super) fn encode(&self) -> [u8; END_BYTES] {
        let mut bytes = [0; END_BYTES];
        bytes[0..8].copy_from_slice(&self.tables.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.rows.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.blocks.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; END_BYTES] = bytes
            .try_into()
            .map_err(|_| format!("the last block has {} bytes, not {END_BYTES}", bytes.len()))?;
        Ok(Self {
            tables: u64_at(bytes, 0),
            rows: u64_at(bytes, 8),
            blocks: u64_at(bytes, 16),
        })
    }
}

/// Both panic where the caller's array is too short: offsets are constants of this file.
fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(*bytes[offset..].first_chunk().expect("offset lies in the array"))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(*bytes[offset..].first_chunk().expect("offset lies in the array"))
}

#[cfg(test)]
mod tests;
