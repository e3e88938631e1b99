//! Finding blocks when nothing says where they are.

use crate::block::{BLOCK_MAGIC, BlockHeader, block_crc, u32_at};
use crate::limits::{BLOCK_HEADER_BYTES, IO_BYTES_MAX};
use crate::open::volume_files;
use crate::read::{Opener, decompress};
use crate::salvage_reader::store_number;
use crate::sealing::Sealing;
use crate::{BlockAddr, BlockError, BlockKind, BlockStore, Result, SECTOR_BYTES, VolumeId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, Env, File};

/// A block that [`BlockStore::salvage_scan`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedBlock {
    /// The file it was found in.
    pub path: PathBuf,
    /// The volume it was written to.
    pub volume: VolumeId,
    /// Where it lies.
    pub addr: BlockAddr,
    /// What it holds.
    pub kind: BlockKind,
    /// Whose it is.
    pub owner: u32,
    /// The checkpoint it was written for: of two with the same content, the newer one wins. A block of a checkpoint
    /// newer than the durable one may be among others of its time that were lost.
    pub checkpoint: u64,
    /// Its bytes, decompressed.
    pub raw: Vec<u8>,
}

impl BlockStore {
    /// Finds every block whose header and checksum are right and that lies where its header says, whatever superblocks
    /// and maps say; freed blocks that nothing has overwritten are among them. Sealed ones are found as long as a
    /// superblock or the head of a volume still says which store they belong to. Reads all files from start to end;
    /// what cannot be read is passed over.
    pub fn salvage_scan(env: &Env, directory: &Path, each: &mut dyn FnMut(SalvagedBlock)) -> Result<()> {
        let sealing = store_number(env, directory)?.and_then(|store| Sealing::of(&*env.fs, store));
        for path in volume_files(env, directory)? {
            Self::salvage_file(env, &path, sealing.clone(), each)?;
        }
        Ok(())
    }

    /// The same for one file.
    pub(crate) fn salvage_file(
        env: &Env,
        path: &Path,
        sealing: Option<Sealing>,
        each: &mut dyn FnMut(SalvagedBlock),
    ) -> Result<()> {
        let mut scan = Scan::open(env, path.to_owned(), sealing)?;
        while let Some(found) = scan.next_block() {
            each(found);
        }
        Ok(())
    }

    /// The first whole block of a file; `None` when it has none or cannot be opened.
    pub(crate) fn salvage_first(env: &Env, path: &Path, sealing: Option<Sealing>) -> Option<SalvagedBlock> {
        Scan::open(env, path.to_owned(), sealing).ok()?.next_block()
    }
}

struct Scan {
    path: PathBuf,
    file: Arc<dyn File>,
    length: u64,
    /// A part of the file that is read ahead.
    chunk: Vec<u8>,
    chunk_start: u64,
    chunk_bytes: usize,
    block: Vec<u8>,
    opener: Opener,
    sealing: Option<Sealing>,
    /// Where to look next.
    sector: u64,
}

impl Scan {
    fn open(env: &Env, path: PathBuf, sealing: Option<Sealing>) -> Result<Self> {
        let file = env
            .fs
            .open(&path, Access::Read)
            .map_err(BlockError::io("open", &path))?;
        let length = file.len().map_err(BlockError::io("measure", &path))?;
        Ok(Self {
            path,
            file,
            length,
            chunk: vec![0; IO_BYTES_MAX],
            chunk_start: 0,
            chunk_bytes: 0,
            block: Vec::new(),
            opener: Opener::default(),
            sealing,
            sector: 0,
        })
    }

    fn next_block(&mut self) -> Option<SalvagedBlock> {
        while self.sector * (SECTOR_BYTES as u64) < self.length && self.sector < BlockAddr::SECTOR_END {
            if let Some(found) = self.block_at(self.sector) {
                self.sector = found.addr.end();
                return Some(found);
            }
            self.sector += 1;
        }
        None
    }

    fn block_at(&mut self, sector: u64) -> Option<SalvagedBlock> {
        let offset = sector * SECTOR_BYTES as u64;
        let at = self.load(offset)?;
        let head: &[u8; BLOCK_HEADER_BYTES] = self.chunk[at..self.chunk_bytes].first_chunk()?;
        if head[4..6] != BLOCK_MAGIC {
            return None;
        }
        let header = BlockHeader::decode(head)
            .ok()
            .filter(|header| header.sector == sector)?;
        let crc = u32_at(head, 0);
        let bytes = header.sectors() * SECTOR_BYTES;
        if offset + bytes as u64 > self.length {
            return None;
        }
        let block = match self.chunk[..self.chunk_bytes].get(at..at + bytes) {
            Some(block) => block,
            None => {
                self.block.resize(bytes, 0);
                self.file.read_exact_at(&mut self.block, offset).ok()?;
                &self.block
            }
        };
        if block_crc(block) != crc {
            return None;
        }
        let (raw, _) = decompress(&header, block, self.sealing.as_ref(), &mut self.opener).ok()?;
        Some(SalvagedBlock {
            path: self.path.clone(),
            volume: header.volume,
            addr: BlockAddr::new(sector, u16::try_from(header.sectors()).ok()?, crc),
            kind: header.kind,
            owner: header.owner,
            checkpoint: header.checkpoint,
            raw,
        })
    }

    /// The place in the chunk of an offset, once at least a sector from there is in it.
    fn load(&mut self, offset: u64) -> Option<usize> {
        let inside = |scan: &Self| {
            let at = usize::try_from(offset.checked_sub(scan.chunk_start)?).ok()?;
            (at + SECTOR_BYTES <= scan.chunk_bytes).then_some(at)
        };
        if let Some(at) = inside(self) {
            return Some(at);
        }
        (self.chunk_start, self.chunk_bytes) = (offset, 0);
        while self.chunk_bytes < self.chunk.len() {
            let read_from = offset + self.chunk_bytes as u64;
            match self.file.read_at(&mut self.chunk[self.chunk_bytes..], read_from) {
                Ok(count) if count > 0 => self.chunk_bytes += count,
                _ => break,
            }
        }
        inside(self)
    }
}
