//! What unit tests work on.

use crate::engine_impl::BtreeEngine;
use crate::foundation::Foundation;
use crate::options::BtreeOptions;
use crate::parts::Parts;
use crate::tree::Tree;
use engine::{Batch, Engine, Seq, TableId, TableKind, TableSpec};
use std::sync::Arc;
use vfs::{Env, SeededRandom, SimulatedClock, SimulatedFs};

/// The table of a [`Store`].
pub(crate) const ROWS: TableId = TableId(1);

/// An engine with a table on a disk of its own.
pub(crate) struct Store {
    pub(crate) engine: BtreeEngine,
    /// Of the last batch.
    seq: Seq,
}

impl Store {
    pub(crate) fn new(options: BtreeOptions) -> Self {
        let env = Env {
            fs: Arc::new(SimulatedFs::new(1)),
            clock: Arc::new(SimulatedClock::new(0)),
            random: Arc::new(SeededRandom::new(1)),
        };
        let directory = std::path::Path::new("/store");
        env.fs.create_directory_all(directory).expect("a directory");
        let engine = BtreeEngine::open(&env, directory, options).expect("an engine");
        let mut store = Self { engine, seq: Seq(0) };
        store.create(ROWS, "one.rows");
        store
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
