//! What unit tests work on.

use crate::engine_impl::BtreeEngine;
use crate::foundation::Foundation;
use crate::options::BtreeOptions;
use crate::parts::Parts;
use crate::tree::{Child, Shape, Tree};
use blocks::BlockAddr;
use engine::{Batch, CloseMode, Engine, Seq, TableId, TableKind, TableSpec};
use std::path::Path;
use std::sync::Arc;
use vfs::{Env, FileSystem, SeededRandom, SimulatedClock, SimulatedFs};

/// The table of a [`Store`].
pub(crate) const ROWS: TableId = TableId(1);

/// Where a [`Store`] lies.
pub(crate) const DIRECTORY: &str = "/store";

/// A tree that has no store.
pub(crate) fn lone_tree(root: Child) -> Tree {
    let shape = Shape {
        codec: codec::Codec::None,
        level: None,
        leaf_bytes: 100,
        large_bytes_min: 1000,
        volume: blocks::VolumeId::MAIN,
    };
    Tree::new(ROWS, shape, root)
}

/// An address of a block that nothing is known of but its place.
pub(crate) fn block(sector: u32, sectors: u8) -> BlockAddr {
    let mut bytes = [0; BlockAddr::ENCODED_BYTES];
    bytes[..4].copy_from_slice(&sector.to_le_bytes());
    bytes[6] = sectors;
    BlockAddr::decode(&bytes).expect("an address")
}

fn open(fs: &Arc<SimulatedFs>, options: BtreeOptions) -> BtreeEngine {
    let env = Env {
        fs: fs.clone(),
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(1)),
    };
    BtreeEngine::open(&env, Path::new(DIRECTORY), options).expect("an engine")
}

/// An engine with a table on a disk of its own.
pub(crate) struct Store {
    pub(crate) engine: BtreeEngine,
    pub(crate) fs: Arc<SimulatedFs>,
    /// Of the last batch.
    seq: Seq,
}

impl Store {
    pub(crate) fn new(options: BtreeOptions) -> Self {
        let fs = Arc::new(SimulatedFs::new(1));
        fs.create_directory_all(Path::new(DIRECTORY)).expect("a directory");
        let engine = open(&fs, options);
        let mut store = Self {
            engine,
            fs,
            seq: Seq(0),
        };
        store.create(ROWS, "one.rows");
        store
    }

    /// The same with nothing in memory.
    pub(crate) fn reopened(self, options: BtreeOptions) -> Self {
        self.engine.close(CloseMode::Checkpoint).expect("closed");
        drop(self.engine);
        Self {
            engine: open(&self.fs, options),
            fs: self.fs,
            seq: self.seq,
        }
    }

    /// What is left when power is lost now.
    pub(crate) fn crashed(&self, options: BtreeOptions) -> Self {
        let fs = Arc::new(self.fs.after_crash(0));
        Self {
            engine: open(&fs, options),
            fs,
            seq: self.seq,
        }
    }

    /// Makes another table.
    pub(crate) fn create(&mut self, table: TableId, name: &str) {
        let spec = TableSpec {
            kind: TableKind::Records,
            name: name.to_owned(),
            compressor: None,
        };
        self.write(|batch| batch.create_table(table, spec));
    }

    pub(crate) fn base(&self) -> &Foundation {
        &self.parts().base
    }

    /// The tree of a table.
    pub(crate) fn tree(&self, table: TableId) -> Arc<Tree> {
        self.base().catalog.live(table).expect("the table").tree.clone()
    }

    pub(crate) fn parts(&self) -> &Parts {
        self.engine.parts()
    }

    pub(crate) fn write(&mut self, fill: impl FnOnce(&mut Batch)) {
        self.seq = self.seq.next();
        let mut batch = Batch::new();
        fill(&mut batch);
        self.engine.apply(&batch, self.seq).expect("a batch");
        self.engine.publish(self.seq);
    }

    pub(crate) fn checkpoint(&self) {
        self.engine.checkpoint().expect("a checkpoint");
    }
}
