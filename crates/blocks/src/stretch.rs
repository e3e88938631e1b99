//! Many blocks that lie side by side, read at once as they are on disk.

use crate::read::read_up_to;
use crate::stats::add;
use crate::{BlockAddr, BlockStore, Result, SECTOR_BYTES, VolumeId};
use std::ops::Range;

/// Sectors of a volume as they were on disk when they were read. Nothing of it has been checked: that is done when a
/// block is read from here ([`crate::Source::Memory`]), and may find that another one lies there now.
pub struct Stretch {
    volume: VolumeId,
    first: u64,
    bytes: Vec<u8>,
    /// So many of `bytes` were read.
    len: usize,
}

impl Stretch {
    /// The block at `addr`, if the stretch has all of it.
    pub fn block(&self, volume: VolumeId, addr: &BlockAddr) -> Option<&[u8]> {
        let sector = addr.sector().checked_sub(self.first)?;
        let start = usize::try_from(sector).ok()?.checked_mul(SECTOR_BYTES)?;
        let end = start.checked_add(addr.bytes() as usize)?;
        self.bytes[..self.len].get(start..end).filter(|_| volume == self.volume)
    }

    /// Its memory, for another one.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

impl BlockStore {
    /// Reads sectors that lie side by side with as few calls of the file as it takes. At the end of the file they are
    /// fewer. `buffer` is memory that can be used; what it holds does not matter.
    pub fn read_stretch(&self, volume: VolumeId, sectors: Range<u64>, mut buffer: Vec<u8>) -> Result<Stretch> {
        self.check_open()?;
        let file = self.find_volume(volume)?;
        let bytes = (sectors.end.saturating_sub(sectors.start)) as usize * SECTOR_BYTES;
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        let len = read_up_to(&file, &mut buffer[..bytes], sectors.start)?;
        add(&self.counters.blocks_read, 1);
        add(&self.counters.bytes_read, len as u64);
        Ok(Stretch {
            volume,
            first: sectors.start,
            bytes: buffer,
            len,
        })
    }
}
