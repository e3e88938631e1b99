//! What lies in the segments that are to be emptied.
//!
//! Maps know sectors, not blocks. A segment is read as a whole, and each run of used sectors is a row of blocks whose
//! headers tell their lengths; checksums tell that they are blocks. Whoever owns them finds them by what is in them or
//! by their labels, at a cost that goes by the segment and not by all there is.

use crate::block::{BlockHeader, block_crc, u32_at};
use crate::limits::BLOCK_HEADER_BYTES;
use crate::read::{Opener, decompress, read_bytes};
use crate::stats::add;
use crate::volume::Volume;
use crate::{BlockAddr, BlockKind, BlockStore, Result, SECTOR_BYTES, VolumeId};

/// A block that shall move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovingBlock {
    /// Where it lies.
    pub addr: BlockAddr,
    /// What it holds.
    pub kind: BlockKind,
    /// Whose it is.
    pub owner: u32,
    /// Its bytes, decompressed, without the label.
    pub raw: Vec<u8>,
    /// What it was given as a label.
    pub label: Vec<u8>,
}

/// What a segment holds that is to be emptied.
#[derive(Clone, Debug, Default)]
pub struct SegmentBlocks {
    /// The blocks that begin in it, as far as they can be read.
    pub blocks: Vec<MovingBlock>,
    /// There is something in use in it that is no block, or cannot be read, and not on its way to the file either: it
    /// cannot be emptied.
    pub is_damaged: bool,
}

impl BlockStore {
    /// The segments that [`BlockStore::plan_relocation`] has chosen and that are not empty yet.
    pub fn segments_to_empty(&self) -> Vec<(VolumeId, u32)> {
        let state = self.state.lock();
        let of_volume = |(id, space): (&VolumeId, &crate::space::SpaceMap)| {
            let id = *id;
            space
                .evacuating_segments()
                .map(move |number| (id, number))
                .collect::<Vec<_>>()
        };
        state.spaces.iter().flat_map(of_volume).collect()
    }

    /// The blocks that begin in one of them, as far as they can be read: not those on their way to the file, and not
    /// the damaged. None when its volume has been removed meanwhile. What it finds may be given back, and written anew,
    /// at any time: compare addresses.
    pub fn read_segment_to_empty(&self, volume: VolumeId, segment: u32) -> Result<SegmentBlocks> {
        self.check_open()?;
        let Ok(file) = self.find_volume(volume) else {
            return Ok(SegmentBlocks::default());
        };
        let (runs, is_flushed) = {
            let state = self.state.lock();
            let space = state.spaces.get(&volume);
            let runs = space.map_or_else(Vec::new, |space| space.runs_to_move(segment));
            // What is on its way cannot be told from damage.
            (runs, state.unflushed.values().all(|blocks| *blocks == 0))
        };
        let (mut blocks, mut is_damaged) = (Vec::new(), false);
        let first = u64::from(segment) * u64::from(self.segment_sectors);
        let mut bytes = Vec::new();
        let mut opener = Opener::default();
        for run in runs {
            bytes.resize(run.len() * SECTOR_BYTES, 0);
            // Past the end of the file lies what has not been written.
            if read_bytes(&file, &mut bytes, first + run.start as u64).is_err() {
                is_damaged = true;
                continue;
            }
            add(&self.counters.bytes_read, (run.len() * SECTOR_BYTES) as u64);
            let mut at = 0;
            // The rest of a block that begins in the segment before looks like damage, too.
            let mut may_be_rest = run.start == 0;
            while at < run.len() {
                let sector = first + (run.start + at) as u64;
                match block_in(&file, &bytes[at * SECTOR_BYTES..], sector, &mut opener) {
                    Some((block, sectors)) => {
                        blocks.push(block);
                        at += sectors;
                        may_be_rest = false;
                    }
                    // A header tells its own sector: the next block is found behind any damage.
                    None => {
                        is_damaged |= !may_be_rest;
                        at += 1;
                    }
                }
            }
        }
        Ok(SegmentBlocks {
            blocks,
            is_damaged: is_damaged && is_flushed,
        })
    }

    /// A segment has a block that its owner does not move: it is used again, and not chosen before an eighth of what is
    /// in it has gone.
    pub fn give_up_emptying(&self, volume: VolumeId, segment: u32) {
        if let Some(space) = self.state.lock().spaces.get_mut(&volume) {
            space.give_up_evacuation(segment);
        }
    }
}

/// The block at the start of `bytes`, which lie at `sector`, and its length.
fn block_in(volume: &Volume, bytes: &[u8], sector: u64, opener: &mut Opener) -> Option<(MovingBlock, usize)> {
    let head = bytes.first_chunk::<BLOCK_HEADER_BYTES>()?;
    let header = BlockHeader::decode(head).ok()?;
    if header.sector != sector || header.volume != volume.id {
        return None;
    }
    let sectors = header.sectors();
    let mut long = Vec::new();
    let block = match bytes.get(..sectors * SECTOR_BYTES) {
        Some(block) => block,
        None => {
            // It goes on in the next segment.
            long.resize(sectors * SECTOR_BYTES, 0);
            read_bytes(volume, &mut long, sector).ok()?;
            &long
        }
    };
    let crc = u32_at(head, 0);
    if block_crc(block) != crc {
        return None;
    }
    let (raw, label) = decompress(&header, block, volume.sealing.as_ref(), opener).ok()?;
    let block = MovingBlock {
        addr: BlockAddr::new(sector, u16::try_from(sectors).ok()?, crc),
        kind: header.kind,
        owner: header.owner,
        raw,
        label,
    };
    Some((block, sectors))
}
