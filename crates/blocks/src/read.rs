//! Reading blocks, one or many, with every check.

use crate::block::{BlockHeader, Mismatch, block_crc, mismatch};
use crate::limits::{BLOCK_HEADER_BYTES, BUFFER_BYTES_MAX, IO_BYTES_MAX, RAW_BUFFER_BYTES_MAX, READ_GAP_BYTES_MAX};
use crate::sealing::{Sealing, stored_bytes};
use crate::sections::{self, Sections};
use crate::stats::add;
use crate::volume::Volume;
use crate::{BlockAddr, BlockError, BlockKind, BlockStore, Result, SECTOR_BYTES, VolumeId};
use codec::{Codec, Decompressor};
use std::io::ErrorKind;
use std::ops::Range;
use vfs::{DirectBuffer, File};

/// What is read next to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Near {
    /// The system reads nothing on behind it.
    Nothing,
    /// Many others, in the order of the file or nearly so: the system may read on.
    Others,
}

/// Where a block's bytes come from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'b> {
    /// The file.
    Disk(Near),
    /// Memory, in two pieces: it is the block that was had from [`ReadScratch::last_block`]. The same is checked.
    Memory([&'b [u8]; 2]),
}

/// Buffers and contexts that reading uses again and again; one for each thread.
#[derive(Default)]
pub struct ReadScratch {
    /// What was read from the file.
    buffer: DirectBuffer,
    /// What it decompresses to.
    raw: Vec<u8>,
    /// The block of which `raw` begins with all raw bytes, and how many these are, if it has those of one.
    whole: Option<(VolumeId, BlockAddr, usize)>,
    order: Vec<u32>,
    opener: Opener,
}

/// What opening a block needs, and uses again.
#[derive(Default)]
pub(crate) struct Opener {
    /// The stored bytes of a block that was sealed.
    plain: Vec<u8>,
    decompressor: Decompressor,
}

impl ReadScratch {
    /// Gives memory back that only a long block needed.
    fn give_back(&mut self) {
        if self.buffer.len() > BUFFER_BYTES_MAX {
            self.buffer = DirectBuffer::default();
        }
        if self.raw.len() > RAW_BUFFER_BYTES_MAX {
            self.raw = Vec::new();
            self.whole = None;
        }
        if self.opener.plain.len() > RAW_BUFFER_BYTES_MAX {
            self.opener.plain = Vec::new();
        }
    }

    /// The raw bytes of the block at `addr`, where that is the one of which [`BlockStore::read_sections_with`] has
    /// decompressed all, and the buffer has not served for another since.
    pub fn last_whole(&self, volume: VolumeId, addr: &BlockAddr) -> Option<&[u8]> {
        let (of_volume, of_addr, bytes) = self.whole?;
        (of_volume == volume && of_addr == *addr).then(|| &self.raw[..bytes])
    }

    /// The block at `addr` as it is on disk, right after it was read with [`BlockStore::read_with`].
    pub fn last_block(&self, addr: &BlockAddr) -> Option<&[u8]> {
        self.buffer.as_slice().get(..addr.bytes() as usize)
    }
}

impl BlockStore {
    /// Reads a block that was flushed: its raw bytes. Checksum, place, kind and owner are checked.
    pub fn read(
        &self,
        volume: VolumeId,
        addr: &BlockAddr,
        owner: u32,
        kind: BlockKind,
        scratch: &mut ReadScratch,
    ) -> Result<Vec<u8>> {
        let source = Source::Disk(Near::Nothing);
        self.read_with(volume, addr, owner, kind, source, scratch, <[u8]>::to_vec)
    }

    /// As [`BlockStore::read`], for who tells where the block is, and makes something else of the raw bytes: they lie
    /// in memory of `scratch` that the next block uses again, so that nothing is allocated and cleared for each.
    #[expect(clippy::too_many_arguments, reason = "what is checked, and how it is read")]
    pub fn read_with<T>(
        &self,
        volume: VolumeId,
        addr: &BlockAddr,
        owner: u32,
        kind: BlockKind,
        source: Source<'_>,
        scratch: &mut ReadScratch,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.check_open()?;
        let volume = self.find_volume(volume)?;
        self.read_at_with(&volume, addr, owner, kind, source, scratch, take)
    }

    /// As [`BlockStore::read_with`], of which `take` asks for the sections that it needs: others are not decompressed.
    #[expect(clippy::too_many_arguments, reason = "those of `read_with`")]
    pub fn read_sections_with<T>(
        &self,
        volume: VolumeId,
        addr: &BlockAddr,
        owner: u32,
        kind: BlockKind,
        source: Source<'_>,
        scratch: &mut ReadScratch,
        take: impl FnOnce(&mut Sections<'_>) -> T,
    ) -> Result<T> {
        self.check_open()?;
        let volume = self.find_volume(volume)?;
        let ReadScratch {
            buffer,
            raw,
            whole,
            opener,
            ..
        } = scratch;
        *whole = None;
        let bytes = self.bytes_of(&volume, addr, source, buffer)?;
        let Opener { plain, decompressor } = opener;
        let taken = check_block(volume.id, addr, owner, kind, bytes)
            .and_then(|header| {
                let stored = stored_bytes(volume.sealing.as_ref(), &header, bytes, plain)?;
                let mut sections = Sections::new(&volume, header, stored, raw, decompressor)?;
                let taken = take(&mut sections);
                *whole = sections.whole_bytes().map(|bytes| (volume.id, *addr, bytes));
                Ok(taken)
            })
            .map_err(|mismatch| damaged(&volume, addr.sector(), mismatch));
        scratch.give_back();
        taken
    }

    /// As [`BlockStore::read_with`], for who keeps the raw bytes: they are written to `raw` and nowhere else. What it
    /// held does not matter, and after an error it holds anything.
    #[expect(clippy::too_many_arguments, reason = "those of `read_with`")]
    pub fn read_into(
        &self,
        volume: VolumeId,
        addr: &BlockAddr,
        owner: u32,
        kind: BlockKind,
        source: Source<'_>,
        scratch: &mut ReadScratch,
        raw: &mut Vec<u8>,
    ) -> Result<()> {
        self.check_open()?;
        let volume = self.find_volume(volume)?;
        let ReadScratch { buffer, opener, .. } = scratch;
        let bytes = self.bytes_of(&volume, addr, source, buffer)?;
        let opened = open_into(&volume, addr, owner, kind, bytes, raw, opener);
        scratch.give_back();
        opened
    }

    /// A block's bytes as they are on disk, in `buffer` unless they lie in one piece elsewhere.
    fn bytes_of<'b>(
        &self,
        volume: &Volume,
        addr: &BlockAddr,
        source: Source<'b>,
        buffer: &'b mut DirectBuffer,
    ) -> Result<&'b [u8]> {
        match source {
            Source::Disk(near) => {
                let bytes = buffer.filled(addr.bytes() as usize);
                read_from(volume.file_for(near), volume, bytes, addr.sector())?;
                self.count_read(addr);
                Ok(bytes)
            }
            Source::Memory([whole, []]) => Ok(whole),
            Source::Memory(pieces) => Ok(joined(buffer, pieces)),
        }
    }

    /// A hint that a stretch of sectors will be read soon. Costs a call of the system; may be wrong.
    pub fn expect_read(&self, volume: VolumeId, sectors: Range<u64>) {
        if let Ok(volume) = self.find_volume(volume) {
            let [start, end] = [sectors.start, sectors.end].map(|sector| sector * SECTOR_BYTES as u64);
            let end = end.min(volume.length());
            volume.file.expect_read(start, end.saturating_sub(start));
        }
    }

    /// A hint that a block will be read soon, before others that are told of as well: the disk then reads them at once
    /// and not one after the other. Nothing, and false, where single blocks are read past the system's cache.
    pub fn expect_block(&self, volume: VolumeId, addr: &BlockAddr) -> bool {
        match self.find_volume(volume) {
            Ok(volume) if !volume.single.is_direct() => {
                let offset = addr.sector() * SECTOR_BYTES as u64;
                volume.file.expect_read(offset, addr.bytes());
                true
            }
            _ => false,
        }
    }

    /// Whether to read a block would be to wait for the disk, as far as the system tells.
    pub fn would_wait(&self, volume: VolumeId, addr: &BlockAddr) -> bool {
        let volume = self.find_volume(volume);
        volume.is_ok_and(|volume| volume.file.would_wait(addr.sector() * SECTOR_BYTES as u64))
    }

    pub(crate) fn read_at(
        &self,
        volume: &Volume,
        addr: &BlockAddr,
        owner: u32,
        kind: BlockKind,
        scratch: &mut ReadScratch,
    ) -> Result<Vec<u8>> {
        let source = Source::Disk(Near::Nothing);
        self.read_at_with(volume, addr, owner, kind, source, scratch, <[u8]>::to_vec)
    }

    #[expect(clippy::too_many_arguments, reason = "those of `read_with`")]
    fn read_at_with<T>(
        &self,
        volume: &Volume,
        addr: &BlockAddr,
        owner: u32,
        kind: BlockKind,
        source: Source<'_>,
        scratch: &mut ReadScratch,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let ReadScratch {
            buffer,
            raw,
            whole,
            opener,
            ..
        } = scratch;
        *whole = None;
        let bytes = self.bytes_of(volume, addr, source, buffer)?;
        let taken = open_with(volume, addr, owner, kind, bytes, raw, opener, take);
        scratch.give_back();
        taken
    }

    /// Reads many blocks, those near each other with one call of the file (up to 1 MiB). `each` gets the index in
    /// `addrs` and the result, in the order of the file.
    pub fn read_run(
        &self,
        volume: VolumeId,
        addrs: &[BlockAddr],
        owner: u32,
        kind: BlockKind,
        scratch: &mut ReadScratch,
        mut each: impl FnMut(usize, Result<Vec<u8>>),
    ) {
        let found = || self.check_open().and_then(|()| self.find_volume(volume));
        let Ok(volume) = found() else {
            // An error for each; nothing is read while the volume is not there.
            for (index, addr) in addrs.iter().enumerate() {
                each(index, self.read(volume, addr, owner, kind, scratch));
            }
            return;
        };
        let mut order = std::mem::take(&mut scratch.order);
        order.clear();
        order.extend(0..addrs.len() as u32);
        order.sort_by_key(|index| addrs[*index as usize].sector());
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            let start = addrs[*first as usize].sector();
            let mut end = addrs[*first as usize].end();
            let fits = |index: &u32| {
                let addr = &addrs[*index as usize];
                let gap = addr.sector().saturating_sub(end) * SECTOR_BYTES as u64;
                let fits = gap <= READ_GAP_BYTES_MAX
                    && (addr.end().max(end) - start) * SECTOR_BYTES as u64 <= IO_BYTES_MAX as u64;
                if fits {
                    end = end.max(addr.end());
                }
                !fits
            };
            let count = 1 + rest[1..].iter().position(fits).unwrap_or(rest.len() - 1);
            let (group, after) = rest.split_at(count);
            rest = after;
            if count == 1 {
                let index = *first as usize;
                each(index, self.read_at(&volume, &addrs[index], owner, kind, scratch));
                continue;
            }
            let ReadScratch { buffer, opener, .. } = scratch;
            let bytes = buffer.filled((end - start) as usize * SECTOR_BYTES);
            if read_bytes(&volume, bytes, start).is_ok() {
                for index in group {
                    let addr = &addrs[*index as usize];
                    self.count_read(addr);
                    let at = (addr.sector() - start) as usize * SECTOR_BYTES;
                    let block = &mut bytes[at..at + addr.bytes() as usize];
                    each(*index as usize, open_block(&volume, addr, owner, kind, block, opener));
                }
            } else {
                // One by one tells which of them cannot be read.
                for index in group {
                    let index = *index as usize;
                    each(index, self.read_at(&volume, &addrs[index], owner, kind, scratch));
                }
            }
        }
        scratch.order = order;
    }

    fn count_read(&self, addr: &BlockAddr) {
        add(&self.counters.blocks_read, 1);
        add(&self.counters.bytes_read, addr.bytes());
    }
}

/// The first `bytes` of a buffer that only grows.
fn filled(buffer: &mut Vec<u8>, bytes: usize) -> &mut [u8] {
    if buffer.len() < bytes {
        buffer.resize(bytes, 0);
    }
    &mut buffer[..bytes]
}

/// The two pieces of a block, one behind the other.
fn joined<'b>(buffer: &'b mut DirectBuffer, [first, rest]: [&[u8]; 2]) -> &'b [u8] {
    let bytes = buffer.filled(first.len() + rest.len());
    let (first_place, rest_place) = bytes.split_at_mut(first.len());
    first_place.copy_from_slice(first);
    rest_place.copy_from_slice(rest);
    bytes
}

/// Reads a stretch of a volume.
pub(crate) fn read_bytes(volume: &Volume, bytes: &mut [u8], sector: u64) -> Result<()> {
    read_from(&*volume.file, volume, bytes, sector)
}

fn read_from(file: &dyn File, volume: &Volume, bytes: &mut [u8], sector: u64) -> Result<()> {
    let wanted = bytes.len();
    match file.read_exact_at(bytes, sector * SECTOR_BYTES as u64) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(damaged(
            volume,
            sector,
            mismatch("length", format!("{wanted} bytes"), "the end of the file"),
        )),
        result => result.map_err(BlockError::io("read", &volume.path)),
    }
}

/// Fills `bytes` as far as the file goes; answers how far. Always through the system's cache: that reads on behind a
/// long stretch, many pieces at once, while blocks of it are opened. Read directly, scans took twice the time.
pub(crate) fn read_up_to(volume: &Volume, bytes: &mut [u8], sector: u64) -> Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        let offset = sector * SECTOR_BYTES as u64 + len as u64;
        let read = volume.file.read_at(&mut bytes[len..], offset);
        match read.map_err(BlockError::io("read", &volume.path))? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

pub(crate) fn damaged(volume: &Volume, sector: u64, (what, expected, found): Mismatch) -> BlockError {
    BlockError::Damaged {
        path: volume.path.clone(),
        sector,
        what,
        expected,
        found,
    }
}

/// What `take` makes of the raw bytes without the label, which lie in `raw` unless they are stored as they are.
#[expect(clippy::too_many_arguments, reason = "what is checked, and what is used again")]
fn open_with<T>(
    volume: &Volume,
    addr: &BlockAddr,
    owner: u32,
    kind: BlockKind,
    bytes: &[u8],
    raw: &mut Vec<u8>,
    opener: &mut Opener,
    take: impl FnOnce(&[u8]) -> T,
) -> Result<T> {
    check_block(volume.id, addr, owner, kind, bytes)
        .and_then(|header| {
            let raw = decompress_again(&header, bytes, raw, volume.sealing.as_ref(), opener)?;
            Ok(take(&raw[..header.content_bytes()]))
        })
        .map_err(|mismatch| damaged(volume, addr.sector(), mismatch))
}

/// Writes the raw bytes without the label to `raw`.
fn open_into(
    volume: &Volume,
    addr: &BlockAddr,
    owner: u32,
    kind: BlockKind,
    bytes: &[u8],
    raw: &mut Vec<u8>,
    Opener { plain, decompressor }: &mut Opener,
) -> Result<()> {
    check_block(volume.id, addr, owner, kind, bytes)
        .and_then(|header| {
            let stored = stored_bytes(volume.sealing.as_ref(), &header, bytes, plain)?;
            // What a longer block has left here is overwritten, as all of it is.
            raw.resize(header.raw_bytes as usize, 0);
            sections::decompress(&header, stored, decompressor, raw)?;
            raw.truncate(header.content_bytes());
            Ok(())
        })
        .map_err(|mismatch| damaged(volume, addr.sector(), mismatch))
}

pub(crate) fn open_block(
    volume: &Volume,
    addr: &BlockAddr,
    owner: u32,
    kind: BlockKind,
    bytes: &[u8],
    opener: &mut Opener,
) -> Result<Vec<u8>> {
    check_block(volume.id, addr, owner, kind, bytes)
        .and_then(|header| decompress(&header, bytes, volume.sealing.as_ref(), opener))
        .map(|(content, _)| content)
        .map_err(|mismatch| damaged(volume, addr.sector(), mismatch))
}

/// The checksum first: it alone says whether the fields are true, and it tells a block that was written here earlier,
/// or never, from the one that is wanted.
fn check_block(
    volume: VolumeId,
    addr: &BlockAddr,
    owner: u32,
    kind: BlockKind,
    bytes: &[u8],
) -> std::result::Result<BlockHeader, Mismatch> {
    let crc = block_crc(bytes);
    if crc != addr.crc() {
        return Err(mismatch(
            "checksum",
            format!("{:08x}", addr.crc()),
            format!("{crc:08x}"),
        ));
    }
    let header = bytes
        .first_chunk::<BLOCK_HEADER_BYTES>()
        .ok_or_else(|| mismatch("length", BLOCK_HEADER_BYTES, bytes.len()))
        .and_then(BlockHeader::decode)?;
    let stored = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let fields = [
        ("stored checksum", u64::from(crc), u64::from(stored)),
        ("own volume", u64::from(volume.0), u64::from(header.volume.0)),
        ("own sector", addr.sector(), header.sector),
        ("length in sectors", u64::from(addr.sectors()), header.sectors() as u64),
        ("kind", kind as u64, header.kind as u64),
        ("owner", u64::from(owner), u64::from(header.owner)),
    ];
    match fields.into_iter().find(|(_, expected, found)| expected != found) {
        Some((what, expected, found)) => Err(mismatch(what, expected, found)),
        None => Ok(header),
    }
}

/// The raw bytes of a whole block, as long as the header says; in `raw`, unless they are stored as they are.
fn decompress_again<'b>(
    header: &BlockHeader,
    bytes: &'b [u8],
    raw: &'b mut Vec<u8>,
    sealing: Option<&Sealing>,
    Opener { plain, decompressor }: &'b mut Opener,
) -> std::result::Result<&'b [u8], Mismatch> {
    let stored = stored_bytes(sealing, header, bytes, plain)?;
    if header.codec == Codec::None && header.stored_bytes == header.raw_bytes {
        return Ok(stored);
    }
    let raw = filled(raw, header.raw_bytes as usize);
    sections::decompress(header, stored, decompressor, raw)?;
    Ok(raw)
}

/// Content and label of a whole block, as long as the header says.
pub(crate) fn decompress(
    header: &BlockHeader,
    bytes: &[u8],
    sealing: Option<&Sealing>,
    Opener { plain, decompressor }: &mut Opener,
) -> std::result::Result<(Vec<u8>, Vec<u8>), Mismatch> {
    let stored = stored_bytes(sealing, header, bytes, plain)?;
    let mut raw = vec![0; header.raw_bytes as usize];
    sections::decompress(header, stored, decompressor, &mut raw)?;
    let label = raw.split_off(header.content_bytes());
    Ok((raw, label))
}
