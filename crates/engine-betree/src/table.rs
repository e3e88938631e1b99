//! A table: its memtables, its tree, and how one state of both follows another.
//!
//! A state is immutable but for its newest memtable; whoever reads takes the current one and keeps it while it
//! reads. A *change* (a flush, a load, a compaction) makes a new tree beside the old one and puts it in its
//! place. What only the old tree had is *retired*: given back when nobody reads the old tree, or one before it,
//! any more ([`Retired`]).
//!
//! Locks, in the order in which they are taken: the engine's `structure` (shared by changes, alone by
//! checkpoints), a table's `change`, the engine's `applied`, a table's `state`.

use crate::memtable::Memtable;
use crate::node::Child;
use blocks::BlockAddr;
use codec::Codec;
use engine::{Seq, TableId, TableKind, TableSpec};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A table that was not dropped.
const NEVER: u64 = u64::MAX;

/// What of a table is not in memtables. Nobody changes it.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) root: Option<Child>,
    /// Bytes of all its blocks that are written.
    pub(crate) disk_bytes: u64,
}

/// See the module.
pub(crate) struct State {
    pub(crate) active: Arc<Memtable>,
    /// Newest first.
    pub(crate) frozen: Vec<Arc<Memtable>>,
    pub(crate) tree: Arc<Tree>,
}

impl State {
    /// From the newest to the oldest.
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }
}

/// See the module.
pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) spec: TableSpec,
    pub(crate) codec: Codec,
    created: Seq,
    dropped: AtomicU64,
    state: RwLock<Arc<State>>,
    /// Held during a change of the tree.
    pub(crate) change: Mutex<()>,
    /// On the list of those that the next checkpoint looks at.
    pub(crate) is_changed: AtomicBool,
    /// A flush met damage: its messages stay in memory, until it is dropped or the next checkpoint stops the engine.
    pub(crate) is_damaged: AtomicBool,
    /// Deleted keys that cursors passed over since it was last seen to, see `sink`.
    pub(crate) passed: AtomicU64,
}

impl Table {
    pub(crate) fn new(id: TableId, spec: TableSpec, codec: Codec, created: Seq, tree: Tree) -> Self {
        let state = State {
            active: Arc::default(),
            frozen: Vec::new(),
            tree: Arc::new(tree),
        };
        Self {
            id,
            spec,
            codec,
            created,
            dropped: AtomicU64::new(NEVER),
            state: RwLock::new(Arc::new(state)),
            change: Mutex::new(()),
            is_changed: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            passed: AtomicU64::new(0),
        }
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().clone()
    }

    pub(crate) fn active(&self) -> Arc<Memtable> {
        self.state.read().active.clone()
    }

    pub(crate) fn created(&self) -> Seq {
        self.created
    }

    pub(crate) fn dropped(&self) -> Seq {
        Seq(self.dropped.load(Ordering::Acquire))
    }

    pub(crate) fn is_live(&self) -> bool {
        self.dropped() == Seq(NEVER)
    }

    pub(crate) fn drop_at(&self, seq: Seq) {
        self.dropped.store(seq.0, Ordering::Release);
    }

    pub(crate) fn lives_at(&self, seq: Seq) -> bool {
        self.created <= seq && seq < self.dropped()
    }

    /// Codec of messages on their way: they are written again soon, so that time counts more than space.
    pub(crate) fn message_codec(&self) -> Codec {
        match self.codec {
            Codec::Zstd | Codec::Zlib => Codec::Lz4,
            codec => codec,
        }
    }

    /// Between two batches only: later messages go to a new memtable. Answers those that are frozen, newest first.
    pub(crate) fn freeze(&self) -> Vec<Arc<Memtable>> {
        let mut state = self.state.write();
        if !state.active.is_empty() {
            let mut frozen = vec![state.active.clone()];
            frozen.extend(state.frozen.iter().cloned());
            *state = Arc::new(State {
                active: Arc::default(),
                frozen,
                tree: state.tree.clone(),
            });
        }
        state.frozen.clone()
    }

    /// Puts a new tree in the place of the old one, which is answered, and `rest` in the place of the oldest
    /// memtable if `flushed` is that.
    pub(crate) fn install(&self, tree: Tree, flushed: Option<(&Arc<Memtable>, Option<Memtable>)>) -> Arc<Tree> {
        let mut state = self.state.write();
        let mut frozen = state.frozen.clone();
        if let Some((memtable, rest)) = flushed {
            let oldest = frozen.pop();
            debug_assert!(
                oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, memtable)),
                "the oldest goes first"
            );
            frozen.extend(rest.map(Arc::new));
        }
        let before = state.tree.clone();
        *state = Arc::new(State {
            active: state.active.clone(),
            frozen,
            tree: Arc::new(tree),
        });
        before
    }

    /// Forgets everything: nobody reads it. Answers the tree that was, and the memory of the messages.
    pub(crate) fn clear(&self) -> (Arc<Tree>, u64) {
        let mut state = self.state.write();
        let bytes = state.memtables().map(|memtable| memtable.memory_bytes()).sum();
        let before = state.tree.clone();
        *state = Arc::new(State {
            active: Arc::default(),
            frozen: Vec::new(),
            tree: Arc::default(),
        });
        (before, bytes)
    }

    /// Memory of all its messages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let state = self.state();
        state.memtables().map(|memtable| memtable.memory_bytes()).sum()
    }

    pub(crate) fn kind(&self) -> TableKind {
        self.spec.kind
    }
}

/// A tree that was replaced, and the blocks that only it and those before it have.
type Replaced = (Arc<Tree>, Vec<BlockAddr>);

/// Blocks that trees no longer refer to, for each table in the order in which that came to be.
#[derive(Default)]
pub(crate) struct Retired {
    /// Each table for itself: who reads one for long keeps no blocks of others. None of the queues is empty.
    waiting: BTreeMap<TableId, VecDeque<Replaced>>,
}

impl Retired {
    /// `tree` was replaced, and only it and those of its table before it have these blocks.
    pub(crate) fn push(&mut self, table: TableId, tree: Arc<Tree>, blocks: Vec<BlockAddr>) {
        self.waiting.entry(table).or_default().push_back((tree, blocks));
    }

    /// The blocks that nobody can read any more. One after the other: an older tree may have what a younger one has.
    pub(crate) fn take_unread(&mut self) -> Vec<BlockAddr> {
        let mut unread = Vec::new();
        self.waiting.retain(|_, trees| {
            // Nobody can come by it any more, so that the count only falls.
            let is_read = |(tree, _): &Replaced| Arc::strong_count(tree) > 1;
            let count = trees.iter().position(is_read).unwrap_or(trees.len());
            unread.extend(trees.drain(..count).flat_map(|(_, blocks)| blocks));
            !trees.is_empty()
        });
        unread
    }

    /// Those that are still read.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        let trees = self.waiting.values().flatten();
        trees.flat_map(|(_, blocks)| blocks.iter().copied())
    }
}
