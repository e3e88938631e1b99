//! Opening a store, and making one.
//!
//! Reads the superblocks, the directory and the maps, never a block of data. Nothing of it is trusted before its
//! checksum and its bounds are checked; what is damaged is an error, with the place, and nothing is written then.

use crate::block::mismatch;
use crate::checkpoint::{DIRECTORY_OWNER, MetaTree, SIDE_FILE, VolumeMeta};
use crate::directory::{Directory, DirectoryVolume, INDEX_BYTES, INDEX_PAGES, PAGE_BYTES, PAGE_SECTORS};
use crate::read::damaged;
use crate::sealing::Sealing;
use crate::space::SpaceMap;
use crate::stats::Counters;
use crate::store::{State, volume_path};
use crate::superblock::{Superblock, VOLUME_HEADER_BYTES, VolumeHeader, check_segment_bytes};
use crate::superblocks::{Superblocks, open_main};
use crate::volume::Volume;
use crate::{BlockAddr, BlockError, BlockKind, BlockStore, CheckpointRoot, ReadScratch, Result, SECTOR_BYTES};
use crate::{StoreOptions, VolumeId};
use engine::EngineStatus;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vfs::{Access, Env, File};

impl BlockStore {
    /// Opens the store in `directory` (which exists), or makes one. The root is that of the last durable checkpoint,
    /// `None` before the first. Takes time in proportion to the maps (256 bytes for each MiB), not to the data.
    pub fn open(
        env: &Env,
        directory: &Path,
        options: StoreOptions,
    ) -> Result<(Arc<BlockStore>, Option<CheckpointRoot>)> {
        let path = volume_path(directory, "");
        let make = || {
            check_segment_bytes(options.segment_bytes).map_err(|(what, expected, found)| BlockError::Invalid {
                operation: "create a block store",
                reason: format!("{what} is {found}, {expected} expected"),
            })?;
            Ok(Superblock {
                segment_bytes: options.segment_bytes,
                store: env.random.next_u64(),
                number: 0,
                seq: 0,
                directory: None,
                root: Vec::new(),
            })
        };
        if !env.fs.exists(&path).map_err(BlockError::io("find", &path))?
            && let Some(volume) = volume_files(env, directory)?.first()
        {
            // A new store would remove what it does not know.
            return Err(BlockError::Damaged {
                path,
                sector: 0,
                what: "file",
                expected: format!("beside {}", volume.display()),
                found: "missing".to_owned(),
            });
        }
        let (file, found) = open_main(env, directory, &path, make)?;
        let length = file.len().map_err(BlockError::io("measure", &path))?;
        let sealing = Sealing::of(&*env.fs, found.superblock.store);
        let main = Arc::new(Volume::new(
            &*env.fs,
            options.access(),
            sealing.clone(),
            VolumeId::MAIN,
            "",
            path,
            file,
            length,
        )?);
        let superblock = found.superblock.clone();
        let segment_sectors = superblock.segment_bytes / SECTOR_BYTES as u32;
        let state = State {
            spaces: BTreeMap::from([(VolumeId::MAIN, SpaceMap::new(segment_sectors))]),
            names: HashMap::from([(String::new(), VolumeId::MAIN)]),
            removing: BTreeSet::new(),
            next_volume: 1,
            running: None,
            last_number: superblock.number,
            durable_number: superblock.number,
            durable_seq: superblock.seq,
            durable_volumes: Vec::new(),
            pins: 0,
            unflushed: BTreeMap::new(),
            written_at_plan: 0,
        };
        let store = Arc::new_cyclic(|this| BlockStore {
            this: this.clone(),
            fs: env.fs.clone(),
            directory: directory.to_owned(),
            segment_sectors,
            access: options.access(),
            store_id: superblock.store,
            sealing,
            volumes: RwLock::new(HashMap::from([(VolumeId::MAIN, main)])),
            state: Mutex::new(state),
            checkpoint: Mutex::new(MetaTree::default()),
            creation: Mutex::new(()),
            superblocks: Mutex::new(Superblocks {
                durable: found.slot,
                side: found.side,
                current: found.superblock,
                pinned: Default::default(),
            }),
            counters: Counters::default(),
            has_leftovers: AtomicBool::new(true),
            status: EngineStatus::default(),
        });
        if let Some(address) = superblock.directory {
            store.load(address)?;
        }
        let root = (superblock.number > 0).then_some(CheckpointRoot {
            number: superblock.number,
            seq: superblock.seq,
            root: superblock.root,
        });
        Ok((store, root))
    }

    fn load(&self, address: BlockAddr) -> Result<()> {
        let main = self.find_volume(VolumeId::MAIN)?;
        let mut scratch = ReadScratch::default();
        let mut meta = MetaTree {
            directory: Some(address),
            ..MetaTree::default()
        };
        meta.directory_bytes = self.read_at(&main, &address, DIRECTORY_OWNER, BlockKind::Meta, &mut scratch)?;
        let directory =
            Directory::decode(&meta.directory_bytes).map_err(|mismatch| damaged(&main, address.sector(), mismatch))?;
        for listed in &directory.volumes {
            let volume = match listed.id {
                VolumeId::MAIN => main.clone(),
                _ => self.open_volume(listed)?,
            };
            let (space, volume_meta) = self.load_map(&volume, listed, &mut scratch)?;
            let mut state = self.state.lock();
            state.spaces.insert(listed.id, space);
            let twin = state.names.insert(listed.name.clone(), listed.id);
            if twin.is_some_and(|twin| twin != listed.id) {
                let twice = mismatch("volume's name", "once", format!("{:?} twice", listed.name));
                return Err(damaged(&main, address.sector(), twice));
            }
            state.durable_volumes.push(listed.id);
            drop(state);
            self.volumes.write().insert(listed.id, volume);
            meta.volumes.insert(listed.id, volume_meta);
        }
        let mut state = self.state.lock();
        state.next_volume = directory.next_volume;
        for block in meta.blocks() {
            let space = state.spaces.get_mut(&VolumeId::MAIN);
            if !space.is_some_and(|space| space.occupy(block.sector(), block.sectors())) {
                let used = mismatch("block of the map", "free sectors", "sectors marked as used");
                return Err(damaged(&main, block.sector(), used));
            }
        }
        drop(state);
        *self.checkpoint.lock() = meta;
        Ok(())
    }

    fn open_volume(&self, listed: &DirectoryVolume) -> Result<Arc<Volume>> {
        let path = volume_path(&self.directory, &listed.name);
        let file = match self.fs.open(&path, Access::ReadWrite) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(BlockError::Damaged {
                    path,
                    sector: 0,
                    what: "file",
                    expected: format!("that of {:?}", listed.id),
                    found: "missing".to_owned(),
                });
            }
            result => result.map_err(BlockError::io("open", &path))?,
        };
        let length = file.len().map_err(BlockError::io("measure", &path))?;
        let volume = Volume::new(
            &*self.fs,
            self.access,
            self.sealing.clone(),
            listed.id,
            &listed.name,
            path,
            file,
            length,
        )?;
        let mut bytes = [0; VOLUME_HEADER_BYTES];
        read_head(&volume.file, &volume.path, &mut bytes, 0)?;
        let expected = VolumeHeader {
            segment_bytes: self.segment_bytes(),
            store: self.store_id,
            volume: listed.id,
        };
        match VolumeHeader::decode(&bytes) {
            Ok(found) if found == expected => Ok(Arc::new(volume)),
            Ok(found) => Err(damaged(
                &volume,
                0,
                mismatch("volume's header", format!("{expected:?}"), format!("{found:?}")),
            )),
            Err(mismatch) => Err(damaged(&volume, 0, mismatch)),
        }
    }

    fn load_map(
        &self,
        volume: &Volume,
        listed: &DirectoryVolume,
        scratch: &mut ReadScratch,
    ) -> Result<(SpaceMap, VolumeMeta)> {
        let main = self.find_volume(VolumeId::MAIN)?;
        let mut space = SpaceMap::new(self.segment_sectors);
        let mut meta = VolumeMeta {
            pages: Vec::new(),
            index: listed.index.clone(),
        };
        let owner = listed.id.0;
        let sized = |bytes: Vec<u8>, wanted: usize, addr: &BlockAddr| match bytes.len() {
            found if found == wanted => Ok(bytes),
            found => Err(damaged(&main, addr.sector(), mismatch("map's length", wanted, found))),
        };
        let segment_bytes = self.segment_sectors as usize / 8;
        let file_sectors = volume.length() / SECTOR_BYTES as u64;
        for (number, address) in listed.index.iter().enumerate() {
            let Some(address) = address else { continue };
            // Before memory is taken for pages that cannot be.
            let first_sector = (number * INDEX_PAGES) as u64 * PAGE_SECTORS;
            if first_sector >= file_sectors {
                let end = mismatch("start of an index block", format!("below {file_sectors}"), first_sector);
                return Err(damaged(&main, address.sector(), end));
            }
            let bytes = self.read_at(&main, address, owner, BlockKind::Meta, scratch)?;
            let bytes = sized(bytes, INDEX_BYTES, address)?;
            meta.pages.resize(number * INDEX_PAGES, None);
            meta.pages
                .extend(bytes.chunks_exact(BlockAddr::ENCODED_BYTES).map(BlockAddr::decode));
        }
        while meta.pages.last().is_some_and(Option::is_none) {
            meta.pages.pop();
        }
        for (number, address) in meta.pages.iter().enumerate() {
            let Some(address) = address else { continue };
            let first_sector = number as u64 * PAGE_SECTORS;
            let bytes = self.read_at(&main, address, owner, BlockKind::Map, scratch)?;
            let bytes = sized(bytes, PAGE_BYTES, address)?;
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| {
                first_sector + at as u64 * 8 + 8 - u64::from(bytes[at].leading_zeros())
            });
            // Before memory is taken for segments that cannot be.
            if used > file_sectors {
                let end = mismatch("end of the used sectors", format!("at most {file_sectors}"), used);
                return Err(damaged(volume, first_sector, end));
            }
            let first_segment = first_sector / u64::from(self.segment_sectors);
            for (at, segment) in bytes.chunks_exact(segment_bytes).enumerate() {
                if !space.decode_map(first_segment as u32 + at as u32, segment) {
                    let head = mismatch("map", "a free head", "a used one");
                    return Err(damaged(volume, first_sector, head));
                }
            }
        }
        Ok((space, meta))
    }

    /// Removes the files of volumes that the checkpoint does not know: made or removed shortly before a crash. Not
    /// before a checkpoint of this process is durable: until then whoever opened the store may yet find that its
    /// superblock is an older one, put there by a restore that went wrong, and that a newer one holds these files.
    pub(crate) fn remove_leftovers(&self) -> Result<()> {
        let _creating = self.creation.lock();
        let directory = &self.directory;
        let names = self.fs.list(directory).map_err(BlockError::io("list", directory))?;
        for name in names.iter().filter_map(|name| name.to_str()) {
            let path = volume_path(directory, name);
            let known = name == SIDE_FILE || self.state.lock().names.contains_key(name);
            // What lies beside the volumes is a file mostly, and then nothing can lie below it.
            if known || !self.fs.exists(&path).unwrap_or(false) {
                continue;
            }
            let file = self
                .fs
                .open(&path, Access::Read)
                .map_err(BlockError::io("open", &path))?;
            let mut bytes = [0; VOLUME_HEADER_BYTES];
            read_head(&file, &path, &mut bytes, 0)?;
            let header = VolumeHeader::decode(&bytes);
            // Of this store, or nothing yet: the header was not synced.
            if bytes.iter().all(|byte| *byte == 0) || header.is_ok_and(|header| header.store == self.store_id) {
                self.fs.remove_file(&path).map_err(BlockError::io("remove", &path))?;
            }
        }
        Ok(())
    }
}

/// Reads at the start of a file, zeros past its end.
fn read_head(file: &Arc<dyn File>, path: &Path, bytes: &mut [u8], offset: u64) -> Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let read = file.read_at(&mut bytes[at..], offset + at as u64);
        match read.map_err(BlockError::io("read", path))? {
            0 => break,
            count => at += count,
        }
    }
    Ok(())
}

/// The files of volumes in a directory: the main one and `<name>/data.blocks`, whether a checkpoint knows them or not.
pub(crate) fn volume_files(env: &Env, directory: &Path) -> Result<Vec<PathBuf>> {
    let names = env.fs.list(directory).map_err(BlockError::io("list", directory))?;
    let below = names.iter().filter_map(|name| name.to_str());
    let paths = std::iter::once("")
        .chain(below)
        .map(|name| volume_path(directory, name));
    Ok(paths.filter(|path| env.fs.exists(path).unwrap_or(false)).collect())
}
