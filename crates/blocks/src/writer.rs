//! Appending blocks.

use crate::{BlockAddr, BlockKind, Result};
use codec::Codec;

/// Appends blocks one after the other, in long runs, so that what is appended together is read together.
///
/// Dropping it gives back what was not flushed.
pub struct RunWriter {}

impl RunWriter {
    /// Appends a block of `raw` bytes, compressed where that saves a sector, and returns its address. It **must not be read
    /// or referred to on disk before [`RunWriter::flush`]** has returned. `level` is the codec's own default when `None`.
    ///
    /// `Invalid` (too long for a segment, unknown level) changes nothing. After any other error all addresses handed out
    /// since the last successful [`RunWriter::flush`] are void: they must be neither read nor freed.
    pub fn append(
        &mut self,
        _kind: BlockKind,
        _owner: u32,
        _codec: Codec,
        _level: Option<i32>,
        _raw: &[u8],
    ) -> Result<BlockAddr> {
        todo!()
    }

    /// Writes everything appended, with one call of the file for each contiguous run of up to about 1 MiB. Nothing is
    /// synced: [`crate::BlockStore::commit_checkpoint`] does that. After an error see [`RunWriter::append`].
    pub fn flush(&mut self) -> Result<()> {
        todo!()
    }
}
