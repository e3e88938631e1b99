//! Checkpoints: begin, commit, abandon.
//!
//! A commit goes like this. 1. Under the state's lock: fix the map, copy the pages that changed. 2. Write those pages,
//! the index blocks above them and the directory to new places. 3. Sync every volume written to since the last time. 4.
//! Write both copies of the superblock that is not the durable one, sync them. 5. Under the state's lock: what only the
//! checkpoint before referred to is free. 6. Cut the files' free ends.
//!
//! What fails before 3 leaves everything as it was, and so does a superblock for which the disk has no room. Anything
//! else that fails in 3 or 4 leaves in doubt what a crash would find, so the store closes.

use crate::directory::{Directory, DirectoryVolume, INDEX_BYTES, INDEX_PAGES, PAGE_BYTES, PAGE_SECTORS};
use crate::limits::ROOT_BYTES_MAX;
use crate::space::{Phase, SpaceMap};
use crate::stats::add;
use crate::store::{Running, State};
use crate::superblock::{Superblock, encode_address};
use crate::superblocks::SuperblockFailure;
use crate::{BlockAddr, BlockError, BlockKind, BlockStore, Result, RunWriter, SECTOR_BYTES, VolumeId};
use codec::Codec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

/// Owner of the directory's block; pages and index blocks have their volume's id.
pub(crate) const DIRECTORY_OWNER: u32 = u32::MAX;

/// Where the durable checkpoint's own blocks lie.
#[derive(Clone, Default)]
pub(crate) struct MetaTree {
    pub volumes: BTreeMap<VolumeId, VolumeMeta>,
    pub directory: Option<BlockAddr>,
    pub directory_bytes: Vec<u8>,
}

/// The same of one volume's map.
#[derive(Clone, Default)]
pub(crate) struct VolumeMeta {
    pub pages: Vec<Option<BlockAddr>>,
    pub index: Vec<Option<BlockAddr>>,
}

impl MetaTree {
    /// All blocks; they lie in the main volume.
    pub fn blocks(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        let of_volumes = self
            .volumes
            .values()
            .flat_map(|meta| meta.pages.iter().chain(&meta.index));
        of_volumes.chain([&self.directory]).filter_map(|address| *address)
    }
}

/// The map as it was fixed.
struct Fixed {
    number: u64,
    next_volume: u32,
    volumes: Vec<FixedVolume>,
    /// Volumes that the checkpoint leaves out.
    gone: Vec<VolumeId>,
}

struct FixedVolume {
    id: VolumeId,
    /// Changed map pages.
    pages: Vec<(usize, Vec<u8>)>,
    /// Index blocks that must move.
    index: BTreeSet<usize>,
}

impl BlockStore {
    /// Draws the line: see [`Purpose`](crate::Purpose). Returns the number of the checkpoint that now runs. Panics when
    /// one runs already. Blocks belong by the time of [`RunWriter::append`], not of the flush.
    pub fn begin_checkpoint(&self) -> u64 {
        let mut state = self.state.lock();
        assert_eq!(state.phase(), Phase::Idle, "one checkpoint at a time");
        state.last_number += 1;
        let number = state.last_number;
        state.running = Some(Running {
            number,
            settling: false,
        });
        number
    }

    /// Makes the running checkpoint durable. Every block that belongs to it must have been flushed (else `Invalid`).
    /// Writes the maps, syncs each volume written to, writes a superblock, syncs it. After an error that does not close
    /// the store the checkpoint still runs: commit again, or [`BlockStore::abandon_checkpoint`].
    pub fn commit_checkpoint(&self, seq: u64, root: &[u8]) -> Result<()> {
        self.check_open()?;
        if root.len() > ROOT_BYTES_MAX {
            return Err(invalid(format!(
                "a root of {} bytes, {ROOT_BYTES_MAX} at most",
                root.len()
            )));
        }
        let mut meta = self.checkpoint.lock();
        let fixed = self.fix_map(&meta)?;
        let written = self.write_maps(&meta, &fixed);
        let (next, obsolete) = written.inspect_err(|_| self.unfix_map())?;
        self.sync_volumes().map_err(|error| self.close_after(error))?;
        let superblock = Superblock {
            segment_bytes: self.segment_bytes(),
            store: self.store_id,
            number: fixed.number,
            seq,
            directory: next.directory,
            root: root.to_vec(),
        };
        let mut superblocks = self.superblocks.lock();
        // Another sync may have failed meanwhile; the system tells only one of two.
        self.check_open()?;
        let slot = match self.write_superblock(&mut superblocks, &superblock) {
            Ok(slot) => slot,
            Err(SuperblockFailure::NotWritten(error)) => {
                drop(superblocks);
                self.give_up_maps(&meta, &next);
                self.unfix_map();
                return Err(error);
            }
            // The next start may find it: nobody may write over its maps any more.
            Err(SuperblockFailure::InDoubt(error)) => {
                let error = self.close_after(error);
                drop(superblocks);
                self.unfix_map();
                return Err(error);
            }
        };
        superblocks.durable = slot;
        superblocks.current = superblock;
        let mut state = self.state.lock();
        state.running = None;
        state.durable_number = fixed.number;
        state.durable_seq = seq;
        state.durable_volumes = fixed.volumes.iter().map(|volume| volume.id).collect();
        let withhold = state.pins > 0;
        for space in state.spaces.values_mut() {
            space.settle(withhold);
        }
        if let Some(main) = state.spaces.get_mut(&VolumeId::MAIN) {
            for address in obsolete {
                main.release(address.sector(), address.sectors(), withhold);
            }
        }
        drop(state);
        self.remove_side_file(&mut superblocks);
        drop(superblocks);
        *meta = next;
        drop(meta);
        self.remove_volumes(&fixed.gone);
        if self.has_leftovers.swap(false, Ordering::Relaxed) {
            // What cannot be removed is tried again after the next start.
            let _ = self.remove_leftovers();
        }
        self.shrink_files();
        Ok(())
    }

    /// Syncs what has been written so far. [`BlockStore::commit_checkpoint`] then has little left to sync, and who may
    /// append nothing while that runs waits for little. A failure closes the store, as there.
    pub fn sync_written(&self) -> Result<()> {
        self.check_open()?;
        // A commit at the same time would take for synced what this still syncs.
        let _committing = self.checkpoint.lock();
        self.sync_volumes().map_err(|error| self.close_after(error))
    }

    /// Gives the running checkpoint up; its number is not used again. The durable one stays. All blocks that are alive
    /// belong to the next one, those written for the abandoned one with [`Purpose::Checkpoint`](crate::Purpose) among
    /// them: the owner frees those that it does not want. What only the abandoned one still referred to
    /// ([`Referenced::ByRunningCheckpoint`](crate::Referenced)) is free. A block that is not flushed belongs to the
    /// next one when its writer flushes it, and is void when the writer is dropped instead. Does nothing when none
    /// runs.
    pub fn abandon_checkpoint(&self) {
        let mut state = self.state.lock();
        if state.running.take().is_some() {
            state.spaces.values_mut().for_each(SpaceMap::abandon);
        }
    }

    /// Step 1.
    fn fix_map(&self, meta: &MetaTree) -> Result<Fixed> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(running) = &mut state.running else {
            return Err(invalid("none has begun".to_owned()));
        };
        let number = running.number;
        let unflushed: u64 = state.unflushed.range(..=number).map(|(_, blocks)| *blocks).sum();
        if unflushed > 0 {
            return Err(invalid(format!("{unflushed} blocks are not flushed")));
        }
        running.settling = true;
        let mut fixed = Fixed {
            number,
            next_volume: state.next_volume,
            volumes: Vec::new(),
            gone: Vec::new(),
        };
        let segment_pages = PAGE_SECTORS / u64::from(self.segment_sectors);
        for (id, space) in &state.spaces {
            if state.removing.contains(id) && space.is_empty() {
                fixed.gone.push(*id);
                continue;
            }
            let mut pages: BTreeSet<usize> = space
                .changed_segments()
                .map(|segment| (u64::from(segment) / segment_pages) as usize)
                .collect();
            let old = meta.volumes.get(id);
            pages.extend(old.into_iter().flat_map(|meta| moving(state, &meta.pages)));
            let page = |number: usize| {
                let mut bytes = Vec::with_capacity(PAGE_BYTES);
                for segment in 0..segment_pages {
                    space.encode_map((number as u64 * segment_pages + segment) as u32, &mut bytes);
                }
                (number, bytes)
            };
            fixed.volumes.push(FixedVolume {
                id: *id,
                pages: pages.into_iter().map(page).collect(),
                index: old.into_iter().flat_map(|meta| moving(state, &meta.index)).collect(),
            });
        }
        Ok(fixed)
    }

    fn unfix_map(&self) {
        if let Some(running) = &mut self.state.lock().running {
            running.settling = false;
        }
    }

    /// Step 2: the new tree of the store's own blocks, and the blocks that only the old one has.
    fn write_maps(&self, old: &MetaTree, fixed: &Fixed) -> Result<(MetaTree, Vec<BlockAddr>)> {
        let mut writer = MetaWriter {
            writer: self.own_writer(),
            obsolete: Vec::new(),
        };
        let mut next = MetaTree::default();
        let mut directory = Directory {
            next_volume: fixed.next_volume,
            volumes: Vec::new(),
        };
        for volume in &fixed.volumes {
            let mut meta = old.volumes.get(&volume.id).cloned().unwrap_or_default();
            writer.update(volume, &mut meta)?;
            directory.volumes.push(DirectoryVolume {
                id: volume.id,
                name: self.volume_name(volume.id).unwrap_or_default(),
                index: meta.index.clone(),
            });
            next.volumes.insert(volume.id, meta);
        }
        for id in &fixed.gone {
            if let Some(meta) = old.volumes.get(id) {
                writer
                    .obsolete
                    .extend(meta.pages.iter().chain(&meta.index).filter_map(|address| *address));
            }
        }
        next.directory_bytes = directory.encode();
        next.directory = old.directory;
        let moves = old.directory.is_some_and(|addr| self.wants_move(VolumeId::MAIN, &addr));
        if next.directory.is_none() || moves || next.directory_bytes != old.directory_bytes {
            let bytes = Some(&next.directory_bytes[..]);
            writer.replace(&mut next.directory, BlockKind::Meta, DIRECTORY_OWNER, bytes)?;
        }
        writer.writer.flush()?;
        Ok((next, writer.obsolete))
    }

    /// Gives back the store's own blocks that were written for a superblock which was not.
    fn give_up_maps(&self, durable: &MetaTree, written: &MetaTree) {
        let kept: BTreeSet<u64> = durable.blocks().map(|address| address.sector()).collect();
        let mut state = self.state.lock();
        if let Some(main) = state.spaces.get_mut(&VolumeId::MAIN) {
            for address in written.blocks().filter(|address| !kept.contains(&address.sector())) {
                main.release(address.sector(), address.sectors(), false);
            }
        }
    }

    fn own_writer(&self) -> RunWriter {
        let store = self.this.upgrade().expect("a method of the store runs");
        RunWriter::new(&store, VolumeId::MAIN, None)
    }

    /// Step 3.
    fn sync_volumes(&self) -> Result<()> {
        for volume in self.all_volumes() {
            if volume.sync()? {
                add(&self.counters.syncs, 1);
            }
        }
        Ok(())
    }

    /// Removes the files of volumes that the durable checkpoint does not know, unless they have come back to life.
    fn remove_volumes(&self, gone: &[VolumeId]) {
        if gone.is_empty() {
            return;
        }
        let _creating = self.creation.lock();
        for id in gone {
            let mut state = self.state.lock();
            let dead = state.removing.contains(id)
                && state.pins == 0
                && state.spaces.get(id).is_some_and(|space| space.is_empty());
            if !dead {
                continue;
            }
            state.removing.remove(id);
            state.spaces.remove(id);
            state.names.retain(|_, named| named != id);
            drop(state);
            let Some(volume) = self.volumes.write().remove(id) else {
                continue;
            };
            // What a failure leaves is removed when the store is opened again.
            let _ = self.fs.remove_file(&volume.path);
            if let Some(parent) = volume.path.parent()
                && self.fs.list(parent).is_ok_and(|names| names.is_empty())
            {
                let _ = self.fs.remove_directory_all(parent);
            }
        }
    }

    /// Step 6.
    fn shrink_files(&self) {
        for volume in self.all_volumes() {
            // Else it would be found out when the last hole has gone.
            let is_full = self.state.lock().spaces.get(&volume.id).is_some_and(SpaceMap::is_full);
            if is_full && volume.can_grow() {
                let mut state = self.state.lock();
                state.spaces.get_mut(&volume.id).map(SpaceMap::forget_full);
            }
            volume.shrink(|lower| {
                let mut state = self.state.lock();
                if state.pins > 0 {
                    return false;
                }
                state.spaces.get_mut(&volume.id).is_some_and(|space| {
                    space.trim();
                    lower(space.busy_end() * SECTOR_BYTES as u64)
                })
            });
        }
    }
}

/// The file of the superblocks written while a checkpoint is pinned.
pub(crate) const SIDE_FILE: &str = "main.superblocks";

/// Writes the store's own blocks anew.
struct MetaWriter {
    writer: RunWriter,
    obsolete: Vec<BlockAddr>,
}

impl MetaWriter {
    /// Puts a block with new content (`None`: none) in the place of another.
    fn replace(
        &mut self,
        place: &mut Option<BlockAddr>,
        kind: BlockKind,
        owner: u32,
        raw: Option<&[u8]>,
    ) -> Result<()> {
        let new = match raw {
            Some(raw) => Some(self.writer.append(kind, owner, Codec::Lz4, None, raw)?),
            None => None,
        };
        self.obsolete.extend(std::mem::replace(place, new));
        Ok(())
    }

    /// Writes the changed pages of a volume, and the index blocks above them.
    fn update(&mut self, volume: &FixedVolume, meta: &mut VolumeMeta) -> Result<()> {
        let owner = volume.id.0;
        let mut index = volume.index.clone();
        for (number, bytes) in &volume.pages {
            if meta.pages.len() <= *number {
                meta.pages.resize(*number + 1, None);
            }
            let content = bytes.iter().any(|byte| *byte != 0).then_some(&bytes[..]);
            self.replace(&mut meta.pages[*number], BlockKind::Map, owner, content)?;
            index.insert(*number / INDEX_PAGES);
        }
        while meta.pages.last().is_some_and(Option::is_none) {
            meta.pages.pop();
        }
        for number in index {
            if meta.index.len() <= number {
                meta.index.resize(number + 1, None);
            }
            let mut bytes = Vec::with_capacity(INDEX_BYTES);
            for page in number * INDEX_PAGES..(number + 1) * INDEX_PAGES {
                encode_address(meta.pages.get(page).copied().flatten(), &mut bytes);
            }
            let content = bytes.iter().any(|byte| *byte != 0).then_some(&bytes[..]);
            self.replace(&mut meta.index[number], BlockKind::Meta, owner, content)?;
        }
        while meta.index.last().is_some_and(Option::is_none) {
            meta.index.pop();
        }
        Ok(())
    }
}

/// Indices of the store's own blocks that lie where room is wanted.
fn moving(state: &State, places: &[Option<BlockAddr>]) -> Vec<usize> {
    let Some(main) = state.spaces.get(&VolumeId::MAIN).filter(|main| main.has_evacuation()) else {
        return Vec::new();
    };
    let moves = |address: &Option<BlockAddr>| address.is_some_and(|address| main.is_evacuating(address.sector()));
    places
        .iter()
        .enumerate()
        .filter(|(_, address)| moves(address))
        .map(|(index, _)| index)
        .collect()
}

fn invalid(reason: String) -> BlockError {
    BlockError::Invalid {
        operation: "commit a checkpoint",
        reason,
    }
}
