//! Sealing blocks and superblocks, in a store whose file system has keys.
//!
//! All of a store is sealed or nothing: what is plain where there are keys, and what is sealed where there are none, is
//! damage.

use crate::block::{BlockHeader, Mismatch, mismatch};
use crate::limits::BLOCK_HEADER_BYTES;
use crypt::{Keys, SEAL_BYTES, Seal};
use std::sync::Arc;

const BLOCK_CONTEXT: [u8; 8] = *b"block\0\0\0";
/// What it is, which store, and a block's header but its checksum.
const CONTEXT_BYTES: usize = BLOCK_CONTEXT.len() + 8 + BLOCK_HEADER_BYTES - 4;

/// The keys of a store.
#[derive(Clone, Debug)]
pub(crate) struct Sealing {
    keys: Arc<Keys>,
    /// Its random number: a block of another store with the same keys does not open.
    store: u64,
}

impl Sealing {
    /// `None` where the file system has no keys.
    pub fn of(fs: &dyn vfs::FileSystem, store: u64) -> Option<Self> {
        let keys = fs.keys()?.clone();
        Some(Self { keys, store })
    }

    /// The header says where the block lies, whose it is and for which checkpoint it was written.
    fn context(&self, header: &[u8]) -> [u8; CONTEXT_BYTES] {
        let mut context = [0; CONTEXT_BYTES];
        let (kind, rest) = context.split_at_mut(BLOCK_CONTEXT.len());
        kind.copy_from_slice(&BLOCK_CONTEXT);
        rest[..8].copy_from_slice(&self.store.to_le_bytes());
        rest[8..].copy_from_slice(&header[4..BLOCK_HEADER_BYTES]);
        context
    }

    /// Encrypts the stored bytes of a block whose header is written but for the checksum.
    pub fn seal(&self, block: &mut [u8], stored_bytes: usize) {
        let context = self.context(block);
        let (seal, text) = block[BLOCK_HEADER_BYTES..].split_at_mut(SEAL_BYTES);
        seal.copy_from_slice(&self.keys.seal(&context, &mut text[..stored_bytes]));
    }

    /// Puts the stored bytes of a whole block into `plain`.
    fn open(&self, header: &BlockHeader, block: &[u8], plain: &mut Vec<u8>) -> Result<(), Mismatch> {
        let (seal, rest) = block[BLOCK_HEADER_BYTES..]
            .split_first_chunk::<SEAL_BYTES>()
            .ok_or_else(|| mismatch("length", header.sectors(), block.len()))?;
        let (text, padding) = rest.split_at(header.stored_bytes as usize);
        // Else whoever has an older block could make the checksum fit with them.
        if padding.iter().any(|byte| *byte != 0) {
            return Err(mismatch("bytes behind the block", "zeros", "others"));
        }
        plain.clear();
        plain.extend_from_slice(text);
        let opened = self.keys.open(&self.context(block), seal, plain);
        opened.map_err(|error| mismatch("encryption", "what was sealed here", error))
    }
}

/// The stored bytes of a whole block, as long as the header says; in `plain` where they were sealed.
pub(crate) fn stored_bytes<'b>(
    sealing: Option<&Sealing>,
    header: &BlockHeader,
    block: &'b [u8],
    plain: &'b mut Vec<u8>,
) -> Result<&'b [u8], Mismatch> {
    match (sealing, header.is_sealed) {
        (None, false) => {
            let stored = &block[BLOCK_HEADER_BYTES..];
            Ok(&stored[..header.stored_bytes as usize])
        }
        (Some(sealing), true) => {
            sealing.open(header, block, plain)?;
            Ok(plain)
        }
        (Some(_), false) => Err(mismatch("block", "encrypted", "plain")),
        (None, true) => Err(mismatch("block", "plain", "encrypted")),
    }
}

const SUPERBLOCK_CONTEXT: [u8; 8] = *b"superblk";

/// Encrypts a superblock's root. `fields` are those before it, but the checksum.
pub(crate) fn seal_root(keys: &Keys, fields: &[u8], root: &mut [u8]) -> Seal {
    keys.seal(&[SUPERBLOCK_CONTEXT.as_slice(), fields].concat(), root)
}

/// Decrypts it.
pub(crate) fn open_root(keys: &Keys, fields: &[u8], seal: &Seal, root: &mut [u8]) -> Result<(), Mismatch> {
    let opened = keys.open(&[SUPERBLOCK_CONTEXT.as_slice(), fields].concat(), seal, root);
    opened.map_err(|error| mismatch("encryption", "what was sealed here", error))
}
