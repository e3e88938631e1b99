//! Reading a store whose superblocks, maps or directory may be gone.
//!
//! It opens files for reading only and needs none of the store's own structures: a block is found by its address, and
//! its volume by the head of the file or, where that is damaged, by the first whole block in it. It knows no owner's
//! structures.
//!
//! Invariant: nothing is ever written, so that a salvage that fails has changed nothing.

use crate::block::mismatch;
use crate::checkpoint::{DIRECTORY_OWNER, SIDE_FILE};
use crate::directory::{Directory, INDEX_BYTES, INDEX_PAGES, PAGE_BYTES, PAGE_SECTORS};
use crate::open::volume_files;
use crate::read::{Opener, damaged, open_block, read_bytes};
use crate::sealing::Sealing;
use crate::store::volume_path;
use crate::superblock::{SUPERBLOCK_BYTES, Superblock, VOLUME_HEADER_BYTES, VolumeHeader};
use crate::superblocks::SUPERBLOCKS_BYTES;
use crate::volume::Volume;
use crate::{BlockAddr, BlockError, BlockKind, BlockStore, CheckpointRoot, Result, SalvagedBlock, VolumeId};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use vfs::{Access, Env, File};

/// The files of a store as they are.
pub struct SalvageReader {
    env: Env,
    volumes: Vec<Volume>,
    roots: Vec<CheckpointRoot>,
    /// The store's own directory, as the newest superblock has it.
    meta: Option<BlockAddr>,
}

/// A page of a map of used sectors.
enum MapPage {
    Bits(Vec<u8>),
    Free,
    Unreadable,
}

/// Which sectors the newest checkpoint refers to, as far as its maps can be read.
pub struct SalvageMap {
    volumes: HashMap<VolumeId, Vec<MapPage>>,
}

impl SalvageMap {
    /// Whether the checkpoint refers to a block; `None` where the map cannot be read.
    pub fn is_used(&self, volume: VolumeId, addr: &BlockAddr) -> Option<bool> {
        let pages = self.volumes.get(&volume)?;
        let page = usize::try_from(addr.sector() / PAGE_SECTORS).ok()?;
        let bit = (addr.sector() % PAGE_SECTORS) as usize;
        match pages.get(page) {
            None | Some(MapPage::Free) => Some(false),
            Some(MapPage::Unreadable) => None,
            Some(MapPage::Bits(bits)) => Some(bits.get(bit / 8)? & 1 << (bit % 8) != 0),
        }
    }
}

impl SalvageReader {
    /// Opens what can be opened. Files that bear the number of another store are left out.
    pub fn open(env: &Env, directory: &Path) -> Result<Self> {
        let main_path = volume_path(directory, "");
        let superblocks = superblocks(env, &[main_path.clone(), directory.join(SIDE_FILE)]);
        let store = superblocks.first().map(|superblock| superblock.store);
        let sealing = store_number(env, directory)?.and_then(|store| Sealing::of(&*env.fs, store));
        let mut volumes = Vec::new();
        for path in volume_files(env, directory)? {
            // What cannot be opened cannot be read: its blocks are lost, those of other files are not.
            let Ok(file) = env.fs.open(&path, Access::Read) else {
                continue;
            };
            let Ok(length) = file.len() else { continue };
            let id = match path == main_path {
                true => Some(VolumeId::MAIN),
                false => volume_of(env, &path, &*file, store, sealing.clone()),
            };
            if let Some(id) = id {
                volumes.extend(Volume::new(
                    &*env.fs,
                    Access::Read,
                    sealing.clone(),
                    id,
                    "",
                    path,
                    file,
                    length,
                ));
            }
        }
        let meta = superblocks.first().and_then(|superblock| superblock.directory);
        let roots = superblocks.into_iter().filter(|superblock| superblock.number > 0);
        let roots = roots.map(|superblock| CheckpointRoot {
            number: superblock.number,
            seq: superblock.seq,
            root: superblock.root,
        });
        Ok(Self {
            env: env.clone(),
            volumes,
            roots: roots.collect(),
            meta,
        })
    }

    /// What the whole superblocks say, the newest first.
    pub fn roots(&self) -> &[CheckpointRoot] {
        &self.roots
    }

    /// The maps of the newest checkpoint; `None` when nothing of them can be read. A volume whose index cannot be read
    /// is not in it.
    pub fn map(&self) -> Option<SalvageMap> {
        let raw = self
            .read(VolumeId::MAIN, &self.meta?, DIRECTORY_OWNER, BlockKind::Meta)
            .ok()?;
        let directory = Directory::decode(&raw).ok()?;
        let mut volumes = HashMap::new();
        for listed in &directory.volumes {
            if let Some(pages) = self.map_pages(listed.id, &listed.index) {
                volumes.insert(listed.id, pages);
            }
        }
        Some(SalvageMap { volumes })
    }

    fn map_pages(&self, volume: VolumeId, index: &[Option<BlockAddr>]) -> Option<Vec<MapPage>> {
        let mut pages = Vec::new();
        for address in index {
            let Some(address) = address else {
                pages.extend((0..INDEX_PAGES).map(|_| MapPage::Free));
                continue;
            };
            let raw = self.read(VolumeId::MAIN, address, volume.0, BlockKind::Meta).ok()?;
            if raw.len() != INDEX_BYTES {
                return None;
            }
            for address in raw.chunks_exact(BlockAddr::ENCODED_BYTES).map(BlockAddr::decode) {
                let Some(address) = address else {
                    pages.push(MapPage::Free);
                    continue;
                };
                let bits = self.read(VolumeId::MAIN, &address, volume.0, BlockKind::Map).ok();
                let bits = bits.filter(|bits| bits.len() == PAGE_BYTES);
                pages.push(bits.map_or(MapPage::Unreadable, MapPage::Bits));
            }
        }
        Some(pages)
    }

    /// True when there is no file of a store.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty()
    }

    /// Reads a block: its raw bytes. Every check of [`BlockStore::read`] is made.
    pub fn read(&self, volume: VolumeId, addr: &BlockAddr, owner: u32, kind: BlockKind) -> Result<Vec<u8>> {
        let mut first_error = None;
        // Two files may claim to be one volume, a copy beside it being one: the checksum tells which holds the block.
        for volume in self.volumes.iter().filter(|candidate| candidate.id == volume) {
            match read_one(volume, addr, owner, kind) {
                Ok(raw) => return Ok(raw),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        Err(first_error.unwrap_or_else(|| BlockError::Invalid {
            operation: "read a volume",
            reason: format!("no file of {volume:?} can be opened"),
        }))
    }

    /// Finds every whole block of this store's files, as [`BlockStore::salvage_scan`]. What cannot be opened is passed
    /// over.
    pub fn scan(&self, each: &mut dyn FnMut(SalvagedBlock)) {
        for volume in &self.volumes {
            // A file that cannot be opened any more is one that cannot be read.
            let _ = BlockStore::salvage_file(&self.env, &volume.path, volume.sealing.clone(), &mut |block| {
                if block.volume == volume.id {
                    each(block);
                }
            });
        }
    }
}

fn read_one(volume: &Volume, addr: &BlockAddr, owner: u32, kind: BlockKind) -> Result<Vec<u8>> {
    let end = addr
        .sector()
        .saturating_mul(crate::SECTOR_BYTES as u64)
        .saturating_add(addr.bytes());
    if end > volume.length() {
        let end = mismatch("end of the block", format!("at most {}", volume.length()), end);
        return Err(damaged(volume, addr.sector(), end));
    }
    let mut bytes = vec![0; addr.bytes() as usize];
    read_bytes(volume, &mut bytes, addr.sector())?;
    open_block(volume, addr, owner, kind, &bytes, &mut Opener::default())
}

/// The number of the store, by its superblocks or else by the head of one of its volumes.
pub(crate) fn store_number(env: &Env, directory: &Path) -> Result<Option<u64>> {
    let paths = [volume_path(directory, ""), directory.join(SIDE_FILE)];
    if let Some(superblock) = superblocks(env, &paths).first() {
        return Ok(Some(superblock.store));
    }
    let of_volume = |path: &PathBuf| {
        let mut bytes = [0; VOLUME_HEADER_BYTES];
        let file = env.fs.open(path, Access::Read).ok()?;
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(VolumeHeader::decode(&bytes).ok()?.store)
    };
    Ok(volume_files(env, directory)?.iter().find_map(of_volume))
}

/// The superblocks that are whole, the newest first.
fn superblocks(env: &Env, paths: &[PathBuf]) -> Vec<Superblock> {
    let keys = env.fs.keys().map(|keys| &**keys);
    let mut found = Vec::new();
    for path in paths {
        let Ok(file) = env.fs.open(path, Access::Read) else {
            continue;
        };
        for place in (0..SUPERBLOCKS_BYTES).step_by(SUPERBLOCK_BYTES) {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            if file.read_exact_at(&mut bytes, place as u64).is_ok() {
                found.extend(Superblock::decode(&bytes, place as u32, keys));
            }
        }
    }
    found.sort_by_key(|superblock| std::cmp::Reverse(superblock.number));
    found.dedup_by_key(|superblock| superblock.number);
    found
}

/// The volume that a file other than the main one is; `None` for one of another store, or without any whole block.
fn volume_of(
    env: &Env,
    path: &Path,
    file: &dyn File,
    store: Option<u64>,
    sealing: Option<Sealing>,
) -> Option<VolumeId> {
    let mut bytes = [0; VOLUME_HEADER_BYTES];
    if file.read_exact_at(&mut bytes, 0).is_ok()
        && let Ok(header) = VolumeHeader::decode(&bytes)
    {
        return store.is_none_or(|store| store == header.store).then_some(header.volume);
    }
    BlockStore::salvage_first(env, path, sealing).map(|block| block.volume)
}
