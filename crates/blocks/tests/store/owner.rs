//! An owner of blocks for the tests: numbered blocks of known content, listed by a catalog block that the root names.
#![allow(clippy::unwrap_used)]

use blocks::{BlockAddr, BlockError, BlockKind, BlockStore, CheckpointRoot, Purpose, ReadScratch, Referenced};
use blocks::{RunWriter, StoreOptions, VolumeId};
use codec::Codec;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, FileSystem, KeyedFs, Random, SeededRandom, SimulatedClock, SimulatedFs};

pub const DIRECTORY: &str = "/data";
const OWNER: u32 = 7;
const CATALOG_OWNER: u32 = 1;

pub fn env(fs: &SimulatedFs) -> Env {
    let fs = Arc::new(fs.clone());
    Env {
        fs: match crate::keys() {
            Some(keys) => Arc::new(KeyedFs::new(fs, keys)),
            None => fs,
        },
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(5)),
    }
}

pub fn disk(seed: u64) -> SimulatedFs {
    let fs = SimulatedFs::new(seed);
    fs.create_directory_all(Path::new(DIRECTORY)).unwrap();
    fs.sync_directory(Path::new("/")).unwrap();
    fs
}

pub fn open(fs: &SimulatedFs) -> Result<(Arc<BlockStore>, Option<CheckpointRoot>), BlockError> {
    open_with(fs, 64 << 10)
}

pub fn open_with(
    fs: &SimulatedFs,
    segment_bytes: u32,
) -> Result<(Arc<BlockStore>, Option<CheckpointRoot>), BlockError> {
    // Reads past the cache are checked by the simulated disk for what a real one demands.
    let options = StoreOptions {
        segment_bytes,
        direct_io: true,
    };
    BlockStore::open(&env(fs), Path::new(DIRECTORY), options)
}

/// Content that only this version of this block has; it does not compress.
pub fn content(id: u64, version: u64, bytes: usize) -> Vec<u8> {
    let random = SeededRandom::new(id.wrapping_mul(0x1_0001).wrapping_add(version));
    let mut content = vec![0; bytes];
    random.fill(&mut content);
    content
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    pub volume: VolumeId,
    pub addr: BlockAddr,
    pub version: u64,
    pub bytes: usize,
}

impl Held {
    pub fn read(&self, store: &BlockStore, id: u64) -> Result<(), BlockError> {
        let mut scratch = ReadScratch::default();
        let raw = store.read(self.volume, &self.addr, OWNER, BlockKind::Leaf, &mut scratch)?;
        assert!(
            raw == content(id, self.version, self.bytes),
            "block {id} has other content"
        );
        Ok(())
    }
}

pub struct Owner {
    pub store: Arc<BlockStore>,
    pub blocks: BTreeMap<u64, Held>,
    pub catalog: Option<BlockAddr>,
    pub next_id: u64,
    /// What the running checkpoint refers to.
    pub cut: Option<BTreeMap<u64, Held>>,
}

impl Owner {
    pub fn new(store: Arc<BlockStore>) -> Self {
        Self {
            store,
            blocks: BTreeMap::new(),
            catalog: None,
            next_id: 0,
            cut: None,
        }
    }

    /// Opens, reads everything back, and checks that exactly that is marked.
    pub fn recover(fs: &SimulatedFs) -> (Self, Option<CheckpointRoot>) {
        let (store, root) = open(fs).expect("the store opens");
        let mut owner = Self::new(store);
        if let Some(root) = &root {
            let addr = BlockAddr::decode(&root.root).expect("a root");
            owner.read_catalog(addr);
            assert_eq!(root.seq, owner.next_id * 10, "root and position belong together");
        }
        owner.check();
        (owner, root)
    }

    fn read_catalog(&mut self, addr: BlockAddr) {
        let mut scratch = ReadScratch::default();
        let kind = BlockKind::Meta;
        let raw = self
            .store
            .read(VolumeId::MAIN, &addr, CATALOG_OWNER, kind, &mut scratch)
            .expect("the catalog");
        let word = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().unwrap());
        self.catalog = Some(addr);
        self.next_id = word(0);
        for at in (8..raw.len()).step_by(44) {
            let held = Held {
                volume: VolumeId(word(at + 8) as u32),
                version: word(at + 16),
                bytes: word(at + 24) as usize,
                addr: BlockAddr::decode(&raw[at + 32..]).unwrap(),
            };
            self.blocks.insert(word(at), held);
        }
    }

    /// Every block is readable, and exactly these are marked. No checkpoint runs.
    pub fn check(&self) {
        for (id, held) in &self.blocks {
            held.read(&self.store, *id)
                .expect("a block of the checkpoint is readable");
        }
        assert_eq!(self.store.verify(self.referenced().into_iter()), Vec::<String>::new());
        assert_eq!(self.store.stats().ignored_frees, 0);
    }

    pub fn referenced(&self) -> Vec<(VolumeId, BlockAddr)> {
        let catalog = self.catalog.map(|addr| (VolumeId::MAIN, addr));
        let blocks = self.blocks.values().map(|held| (held.volume, held.addr));
        blocks.chain(catalog).collect()
    }

    /// Writes a new version of a block (a new block when there is none).
    pub fn put(&mut self, writer: &mut RunWriter, volume: VolumeId, id: u64, bytes: usize) -> Result<(), BlockError> {
        let version = self.blocks.get(&id).map_or(1, |held| held.version + 1);
        let raw = content(id, version, bytes);
        let addr = writer.append(BlockKind::Leaf, OWNER, Codec::Lz4, None, &raw)?;
        writer.flush()?;
        self.forget(id);
        let held = Held {
            volume,
            addr,
            version,
            bytes,
        };
        self.blocks.insert(id, held);
        self.next_id = self.next_id.max(id + 1);
        Ok(())
    }

    /// Frees a block as the running checkpoint allows.
    pub fn forget(&mut self, id: u64) {
        let Some(held) = self.blocks.remove(&id) else { return };
        let in_cut = self.cut.as_ref().is_some_and(|cut| cut.get(&id) == Some(&held));
        let referenced = match in_cut {
            true => Referenced::ByRunningCheckpoint,
            false => Referenced::No,
        };
        self.store.free(held.volume, held.addr, referenced);
    }

    pub fn begin(&mut self) {
        self.store.begin_checkpoint();
        self.cut = Some(self.blocks.clone());
    }

    /// Writes the block again for the running checkpoint and all after it.
    pub fn rewrite_for_cut(&mut self, id: u64) -> Result<(), BlockError> {
        let held = self.blocks[&id];
        let cut = self.cut.as_mut().expect("a checkpoint runs");
        assert_eq!(cut.get(&id), Some(&held));
        let mut writer = self.store.writer(held.volume, Purpose::Checkpoint);
        let raw = content(id, held.version, held.bytes);
        let addr = writer.append(BlockKind::Leaf, OWNER, Codec::None, None, &raw)?;
        writer.flush()?;
        self.store.free(held.volume, held.addr, Referenced::No);
        let held = Held { addr, ..held };
        cut.insert(id, held);
        self.blocks.insert(id, held);
        Ok(())
    }

    /// Writes the catalog of the cut and commits. `next_id` is that of the cut's time.
    pub fn commit(&mut self, next_id: u64) -> Result<(), BlockError> {
        let mut raw = next_id.to_le_bytes().to_vec();
        for (id, held) in self.cut.as_ref().expect("a checkpoint runs") {
            for word in [*id, u64::from(held.volume.0), held.version, held.bytes as u64] {
                raw.extend_from_slice(&word.to_le_bytes());
            }
            held.addr.encode(&mut raw);
        }
        let mut writer = self.store.writer(VolumeId::MAIN, Purpose::Checkpoint);
        let addr = writer.append(BlockKind::Meta, CATALOG_OWNER, Codec::Zstd, None, &raw)?;
        writer.flush()?;
        if let Some(old) = self.catalog.replace(addr) {
            self.store.free(VolumeId::MAIN, old, Referenced::No);
        }
        let mut root = Vec::new();
        addr.encode(&mut root);
        self.store.commit_checkpoint(next_id * 10, &root)?;
        self.cut = None;
        Ok(())
    }

    /// A checkpoint with nothing beside it.
    pub fn checkpoint(&mut self) -> Result<(), BlockError> {
        self.begin();
        self.commit(self.next_id)
    }

    /// Moves what the store wants moved.
    pub fn relocate(&mut self) -> Result<(), BlockError> {
        let wanted: Vec<(u64, Held)> = self
            .blocks
            .iter()
            .filter(|(_, held)| self.store.wants_move(held.volume, &held.addr))
            .map(|(id, held)| (*id, *held))
            .collect();
        let mut writers = BTreeMap::new();
        for (id, held) in wanted {
            let store = &self.store;
            let writer = writers
                .entry(held.volume)
                .or_insert_with(|| store.writer(held.volume, Purpose::Later));
            self.put(writer, held.volume, id, held.bytes)?;
        }
        Ok(())
    }
}
