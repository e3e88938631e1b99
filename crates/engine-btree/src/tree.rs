//! The tree over the leaves: inner nodes, the way down, and changes of structure.
//!
//! An inner node is immutable but for its child cells ([`Rcu`]): a child's cell is replaced when the child comes into
//! memory, leaves it, or is split; a node whose number of children changes is replaced as a whole. Readers walk down
//! without a latch. Whoever changes a cell holds the tree's `structure` lock, under which a walk sees the current
//! structure.
//!
//! Lock order: `structure`, then one leaf's `state`. Neither is held across I/O.
//!
//! Invariants:
//! - the children of an inner node part its key range at its separators, and are all one level below, also a leaf that
//!   takes the place of a damaged page (`Leaf::level`);
//! - a node that is not `dirty` is on disk as it is in memory, children's addresses included (`address`);
//! - above a dirty node every node is dirty.

use crate::cutting::Cutting;
use crate::fill::Fill;
use crate::leaf::Leaf;
use crate::page::{SEPARATOR_BYTES_MAX, Separators};
use blocks::{BlockAddr, BlockStore, Referenced, VolumeId};
use codec::Codec;
use engine::TableId;
use rcu::{Guard, Mutex, Rcu};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Most children of an inner node in memory. A change of structure copies a node, so they are small.
pub(crate) const CHILDREN_MAX: usize = if cfg!(feature = "shuttle") { 6 } else { 96 };

/// Separator bytes of an inner node beyond which it is split, long keys being rare.
const SEPARATOR_BYTES: usize = 64 << 10;

/// Listed leaves that are looked at when one is added: with one, the list grew as fast as leaves leave the tree.
const DIRTY_LOOKS: usize = 3;

/// What a child cell holds.
#[derive(Clone)]
pub(crate) enum Child {
    /// A tree without rows that nobody has written to: only a root is that.
    Nothing,
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
    /// Not in memory; level 0 is a leaf.
    OnDisk {
        address: BlockAddr,
        level: u8,
    },
}

/// An inner node.
pub(crate) struct Inner {
    /// 1 above leaves.
    pub(crate) level: u8,
    pub(crate) separators: Separators,
    pub(crate) children: Box<[Rcu<Child>]>,
    /// A child's address, or the set of children, changed since `address` was written.
    pub(crate) dirty: AtomicBool,
    pub(crate) disk: Mutex<InnerDisk>,
    /// For eviction: rises when a read goes on from here to a leaf on disk, falls when the hand passes.
    warmth: AtomicU8,
    /// Those who are bringing a child of it in.
    users: AtomicU32,
}

/// Where an inner node lies on disk.
#[derive(Clone, Copy, Default)]
pub(crate) struct InnerDisk {
    pub(crate) address: Option<BlockAddr>,
    /// The running checkpoint's image, and its number. Taken back when the structure below changes before that
    /// checkpoint has the root: see [`Tree::is_settled_for`].
    pub(crate) checkpoint: Option<(u64, BlockAddr)>,
}

impl Inner {
    pub(crate) fn new(level: u8, separators: Separators, children: Vec<Child>) -> Self {
        debug_assert_eq!(separators.len() + 1, children.len(), "a separator between two children");
        Self {
            level,
            separators,
            children: children.into_iter().map(Rcu::new).collect(),
            dirty: AtomicBool::new(true),
            disk: Mutex::new(InnerDisk::default()),
            warmth: AtomicU8::new(1),
            users: AtomicU32::new(0),
        }
    }

    /// A node as it came from disk.
    pub(crate) fn loaded(level: u8, separators: Separators, children: Vec<Child>, address: BlockAddr) -> Self {
        let inner = Self::new(level, separators, children);
        inner.dirty.store(false, Ordering::Release);
        inner.disk.lock().address = Some(address);
        inner
    }

    /// Its children are wanted: it stays longer.
    #[inline]
    pub(crate) fn warm(&self) {
        const HOT: u8 = 3;
        let warmth = self.warmth.load(Ordering::Relaxed);
        if warmth < HOT {
            self.warmth.store(warmth + 1, Ordering::Relaxed);
        }
    }

    /// Makes it colder; true when it is cold, and nobody is about to go on from it: whoever makes room for a child
    /// would have to read its parent again.
    pub(crate) fn cool(&self) -> bool {
        if self.users.load(Ordering::Acquire) > 0 {
            return false;
        }
        let warmth = self.warmth.load(Ordering::Relaxed);
        self.warmth.store(warmth.saturating_sub(1), Ordering::Relaxed);
        warmth == 0
    }

    /// Where the node lies as the running checkpoint `number` has it: its image of this checkpoint, or, where nothing
    /// below has changed, the one before.
    pub(crate) fn address_for(&self, number: u64) -> Option<BlockAddr> {
        let disk = self.disk.lock();
        match disk.checkpoint {
            Some((written, address)) if written == number => Some(address),
            _ if self.dirty.load(Ordering::Acquire) => None,
            _ => disk.address,
        }
    }

    /// Notes where the node lies for the running checkpoint. That holds however leaves below change, as each keeps the
    /// image that the checkpoint has; a change of the structure below takes it back.
    pub(crate) fn set_address_for(&self, number: u64, address: BlockAddr) {
        self.disk.lock().checkpoint = Some((number, address));
    }

    /// Its children, all but the first with their lowest keys, with others in the place of child `index`.
    fn with_replaced(
        &self,
        index: usize,
        first: Child,
        more: Vec<(Vec<u8>, Child)>,
        guard: &Guard,
    ) -> (Child, Vec<(Vec<u8>, Child)>) {
        let separator = |number: usize| self.separators.get(number).to_vec();
        let child = |number: usize| self.children[number].load(guard).clone();
        let behind = (index + 1..self.children.len()).map(|number| (separator(number - 1), child(number)));
        let replaced = more.into_iter().chain(behind);
        if index == 0 {
            return (first, replaced.collect());
        }
        let before = (1..index).map(|number| (separator(number - 1), child(number)));
        let others = before.chain([(separator(index - 1), first)]).chain(replaced);
        (child(0), others.collect())
    }

    /// Heap bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        use crate::budget::good_size;
        good_size(size_of::<Self>() + 16)
            + self.separators.memory_bytes()
            + good_size(self.children.len() * size_of::<Rcu<Child>>())
            + self.children.len() * good_size(size_of::<Child>())
    }
}

/// Keeps an inner node from being evicted.
pub(crate) struct UsedInner(Arc<Inner>);

impl UsedInner {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        inner.users.fetch_add(1, Ordering::AcqRel);
        Self(inner)
    }
}

impl Drop for UsedInner {
    fn drop(&mut self) {
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a table's pages are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) codec: Codec,
    pub(crate) level: Option<i32>,
    /// Row bytes of a leaf.
    pub(crate) leaf_bytes: usize,
    /// Values of so many bytes lie outside leaves.
    pub(crate) large_bytes_min: usize,
    pub(crate) volume: VolumeId,
}

/// Leaves with changes that are not on disk.
#[derive(Default)]
pub(crate) struct DirtyLeaves {
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// Where [`Tree::list_dirty`] looks next.
    hand: usize,
    /// Where [`Tree::next_dirty`] does.
    behind: usize,
    /// How often the list was taken as a whole.
    taken: u64,
}

/// Some leaves of the list of those to write.
pub(crate) struct SomeDirty {
    pub(crate) leaves: Vec<Arc<Leaf>>,
    places: std::ops::Range<usize>,
    taken: u64,
}

/// A table's tree.
pub(crate) struct Tree {
    pub(crate) id: TableId,
    pub(crate) shape: Shape,
    pub(crate) root: Rcu<Child>,
    pub(crate) structure: Mutex<()>,
    /// Leaves with changes that are not on disk.
    pub(crate) dirty: Mutex<DirtyLeaves>,
    /// The leaf at the right edge, once something was written there.
    pub(crate) last_leaf: Mutex<Option<Arc<Leaf>>>,
    /// How long the blocks of leaves get.
    pub(crate) fill: Fill,
    pub(crate) cutting: Cutting,
    /// Bytes of blocks on disk, about.
    pub(crate) disk_bytes: AtomicU64,
    /// Heap bytes of leaves and inner nodes.
    pub(crate) memory_bytes: AtomicU64,
    /// Number of the last checkpoint that has taken the root's address.
    pub(crate) root_taken: AtomicU64,
    /// Number of the last checkpoint that writes this tree, or has written it. Another leaves it as the one before had
    /// it, and refers to all of that.
    pub(crate) written_by: AtomicU64,
    /// Some leaf may hold cells of large values.
    pub(crate) has_large: AtomicBool,
    /// The table is gone for every reader: what is left in memory is of no use.
    pub(crate) dead: AtomicBool,
    /// A checkpoint that has the leaves cannot get hold of the root, as each change of structure sends it back to the
    /// nodes above: leaves are not split, merged or removed meanwhile, unless one has no room at all.
    pub(crate) is_still: AtomicBool,
}

/// The leaf to go down to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'k> {
    /// The one for a key.
    At(&'k [u8]),
    /// The one for the keys just below a key.
    Before(&'k [u8]),
    First,
    Last,
}

/// A separator on the way down.
#[derive(Clone, Copy)]
pub(crate) struct Fence<'g> {
    inner: &'g Inner,
    index: usize,
}

impl Fence<'_> {
    pub(crate) fn to_vec(self) -> Vec<u8> {
        self.inner.separators.get(self.index).to_vec()
    }
}

/// Where a way down ended.
pub(crate) struct Descent<'g> {
    /// The cell of the child reached.
    pub(crate) cell: &'g Rcu<Child>,
    pub(crate) child: &'g Child,
    /// Inclusive; `None` at the left edge.
    pub(crate) low: Option<Fence<'g>>,
    /// Exclusive; `None` at the right edge.
    pub(crate) high: Option<Fence<'g>>,
    /// The inner node above and the child's number.
    pub(crate) parent: Option<(&'g Arc<Inner>, usize)>,
}

impl Tree {
    /// Row bytes beyond which a leaf is split.
    pub(crate) fn split_above(&self) -> usize {
        self.shape.leaf_bytes + self.shape.leaf_bytes / 2
    }

    pub(crate) fn new(id: TableId, shape: Shape, root: Child) -> Self {
        Self {
            id,
            shape,
            root: Rcu::new(root),
            structure: Mutex::new(()),
            dirty: Mutex::new(DirtyLeaves::default()),
            last_leaf: Mutex::new(None),
            fill: Fill::default(),
            cutting: Cutting::default(),
            disk_bytes: AtomicU64::new(0),
            memory_bytes: AtomicU64::new(0),
            root_taken: AtomicU64::new(0),
            written_by: AtomicU64::new(0),
            has_large: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            is_still: AtomicBool::new(false),
        }
    }

    /// Heap bytes rise or fall.
    #[inline]
    pub(crate) fn account(&self, bytes: isize) {
        if bytes >= 0 {
            self.memory_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        } else {
            let fall = |sum: u64| Some(sum.saturating_add_signed(bytes as i64));
            let _ = self
                .memory_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fall);
        }
    }

    /// Gives a block of the tree back.
    pub(crate) fn free_block(&self, store: &BlockStore, address: BlockAddr, referenced: Referenced) {
        let is_freed = store.free(self.shape.volume, address, referenced);
        debug_assert!(
            is_freed,
            "{address:?} of {:?} is given back once, as long as it is in use",
            self.id
        );
        let fall = |sum: u64| Some(sum.saturating_sub(address.bytes()));
        let _ = self.disk_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fall);
    }

    /// Whether it is the tree of a table nobody can see any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Puts a leaf into the list of those to write. Leaves that have left the tree since they were listed, by a split
    /// or because they are on disk, go out of it on the way, some with each call: between two checkpoints they would
    /// otherwise pile up.
    pub(crate) fn list_dirty(&self, leaf: Arc<Leaf>, guard: &Guard) {
        let mut gone: [Option<Arc<Leaf>>; DIRTY_LOOKS] = [const { None }; DIRTY_LOOKS];
        let mut dirty = self.dirty.lock();
        let DirtyLeaves { leaves, hand, .. } = &mut *dirty;
        leaves.push(leaf);
        for place in &mut gone {
            *hand = if *hand < leaves.len() { *hand } else { 0 };
            match leaves.get(*hand) {
                Some(leaf) if leaf.view.load(guard).retired => *place = Some(leaves.swap_remove(*hand)),
                _ => *hand += 1,
            }
        }
        // Dropping a leaf may take long: not under the lock.
        drop(dirty);
        drop(gone);
    }

    /// The list of leaves to write, which is empty then.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Leaf>> {
        let mut dirty = self.dirty.lock();
        dirty.taken += 1;
        std::mem::take(&mut dirty.leaves)
    }

    /// Some leaves of the list of those to write, others with each call until it begins anew.
    pub(crate) fn next_dirty(&self, count: usize) -> SomeDirty {
        let mut dirty = self.dirty.lock();
        let from = if dirty.behind < dirty.leaves.len() {
            dirty.behind
        } else {
            0
        };
        let to = (from + count).min(dirty.leaves.len());
        dirty.behind = to;
        SomeDirty {
            leaves: dirty.leaves[from..to].to_vec(),
            places: from..to,
            taken: dirty.taken,
        }
    }

    /// Takes leaves that `is_clean` holds for out of the list, each once: one that has been listed anew meanwhile is in
    /// it twice. The caller has seen under each leaf's lock that it need not be there. Nothing happens when the list
    /// was taken as a whole in between ([`Tree::take_dirty`]).
    pub(crate) fn unlist(&self, some: &SomeDirty, mut is_clean: HashSet<*const Leaf>) {
        let mut gone = Vec::with_capacity(is_clean.len());
        let mut dirty = self.dirty.lock();
        if dirty.taken != some.taken {
            return;
        }
        // From the end: what comes into a place that gets free has been looked at, or is of no concern here.
        for place in some.places.clone().rev() {
            if let Some(leaf) = dirty.leaves.get(place)
                && is_clean.remove(&Arc::as_ptr(leaf))
            {
                gone.push(dirty.leaves.swap_remove(place));
            }
        }
        // Dropping a leaf may take long: not under the lock.
        drop(dirty);
        drop(gone);
    }

    /// Walks down to level `level` (0: a leaf), or to the first child on the way that is not in memory.
    #[inline]
    pub(crate) fn descend<'g>(&'g self, target: Target<'_>, level: u8, guard: &'g Guard) -> Descent<'g> {
        let mut descent = Descent {
            cell: &self.root,
            child: self.root.load(guard),
            low: None,
            high: None,
            parent: None,
        };
        while let Child::Inner(inner) = descent.child
            && inner.level > level
        {
            let index = match target {
                Target::At(key) => inner.separators.child_for(key),
                Target::Before(key) => {
                    let index = inner.separators.child_for(key);
                    let starts_there = index > 0 && inner.separators.get(index - 1).cmp(key).is_eq();
                    index - usize::from(starts_there)
                }
                Target::First => 0,
                Target::Last => inner.separators.len(),
            };
            if index > 0 {
                descent.low = Some(Fence {
                    inner,
                    index: index - 1,
                });
            }
            if index < inner.separators.len() {
                descent.high = Some(Fence { inner, index });
            }
            descent.cell = &inner.children[index];
            descent.child = descent.cell.load(guard);
            descent.parent = Some((inner, index));
        }
        descent
    }

    /// Marks the inner nodes above a key dirty: an address below changed. Under `structure`.
    pub(crate) fn mark_path(&self, key: &[u8], guard: &Guard) {
        let mut child = self.root.load(guard);
        while let Child::Inner(inner) = child {
            inner.dirty.store(true, Ordering::Release);
            child = inner.children[inner.separators.child_for(key)].load(guard);
        }
    }

    /// Whether checkpoint `number` has the root's address, its own or the one before's. From then on its tree is what
    /// it is: what it refers to stays for it, and what is new is for the next. Until then its tree is the one in
    /// memory, with the leaves' images at its position: a change of structure gives back at once what it replaces, and
    /// every node above it is written again, so that nothing it wrote before refers to that. Nothing in between: a node
    /// that a checkpoint has written may be replaced, and then what lies below belongs to that checkpoint again.
    pub(crate) fn is_settled_for(&self, number: u64) -> bool {
        self.root_taken.load(Ordering::Acquire) == number || self.written_by.load(Ordering::Acquire) != number
    }

    /// Whether changes of structure that can wait shall do so: see `is_still`.
    pub(crate) fn is_still(&self) -> bool {
        self.is_still.load(Ordering::Acquire)
    }

    /// Puts other children in the place of the one at `key` on `level`; each but the first comes with its lowest key.
    /// Under `structure`. Answers the change of inner nodes' heap bytes, and the blocks of inner nodes that are no
    /// more.
    pub(crate) fn replace_child(
        &self,
        key: &[u8],
        level: u8,
        first: Child,
        more: Vec<(Vec<u8>, Child)>,
        guard: &Guard,
    ) -> Replaced {
        let mut replaced = Replaced::default();
        // The way down to the parent.
        let mut path: Vec<(&Arc<Inner>, usize, &Rcu<Child>)> = Vec::new();
        let mut cell = &self.root;
        while let Child::Inner(inner) = cell.load(guard)
            && inner.level > level
        {
            let index = inner.separators.child_for(key);
            path.push((inner, index, cell));
            inner.dirty.store(true, Ordering::Release);
            // What the running checkpoint has written of it refers, some levels down, to what is given back now.
            inner.disk.lock().checkpoint = None;
            cell = &inner.children[index];
        }
        let (mut first, mut more, mut level) = (first, more, level);
        loop {
            if more.is_empty() {
                cell.replace(first, guard);
                return replaced;
            }
            let Some((parent, index, parent_cell)) = path.pop() else {
                // A new root, and one above that where it cannot have all of them.
                level += 1;
                (first, more) = nodes_above(level, first, more, &mut replaced.memory);
                continue;
            };
            replaced.memory -= parent.memory_bytes() as isize;
            replaced.freed.push(*parent.disk.lock());
            level = parent.level;
            cell = parent_cell;
            let more_bytes: usize = more.iter().map(|(low, _)| low.len()).sum();
            if parent.separators.key_bytes() + more_bytes > SEPARATOR_BYTES_MAX {
                // Too long to stand in one node, if only for a moment.
                let (leftmost, others) = parent.with_replaced(index, first, more, guard);
                (first, more) = nodes_above(level, leftmost, others, &mut replaced.memory);
                continue;
            }
            let keys: Vec<&[u8]> = more.iter().map(|(low, _)| low.as_slice()).collect();
            let separators = parent.separators.with_inserted(index, &keys);
            let mut children: Vec<Child> = Vec::with_capacity(parent.children.len() + more.len());
            children.extend(parent.children[..index].iter().map(|cell| cell.load(guard).clone()));
            children.push(first);
            children.extend(more.into_iter().map(|(_, child)| child));
            children.extend(parent.children[index + 1..].iter().map(|cell| cell.load(guard).clone()));
            let appended = index + 1 == parent.children.len();
            (first, more) = split_inner(level, separators, children, appended, &mut replaced.memory);
        }
    }

    /// Takes the child at `key` on `level` out; its keys fall to a neighbour. An inner node that loses its only child
    /// goes too. `None` when the tree would lose its last leaf. Under `structure`.
    pub(crate) fn remove_child(&self, key: &[u8], level: u8, guard: &Guard) -> Option<Replaced> {
        let (parent, index) = self.descend(Target::At(key), level, guard).parent?;
        if parent.children.len() > 1 {
            let others = (0..parent.children.len()).filter(|&at| at != index);
            let children = others.map(|at| parent.children[at].load(guard).clone()).collect();
            return Some(self.replace_parent(key, parent, index.saturating_sub(1), children, guard));
        }
        let mut replaced = self.remove_child(key, parent.level, guard)?;
        replaced.memory -= parent.memory_bytes() as isize;
        replaced.freed.push(*parent.disk.lock());
        Some(replaced)
    }

    /// Puts `merged` in the place of the child at `key` on `level` and of the one before it, in one step: a reader
    /// finds the two or the one, never a leaf whose range has grown and whose rows have not. `None` when they are not
    /// under one inner node. Under `structure`.
    pub(crate) fn merge_with_previous(&self, key: &[u8], level: u8, merged: Child, guard: &Guard) -> Option<Replaced> {
        let (parent, index) = self.descend(Target::At(key), level, guard).parent?;
        let left = index.checked_sub(1)?;
        let mut children: Vec<Child> = parent.children.iter().map(|cell| cell.load(guard).clone()).collect();
        children.remove(index);
        children[left] = merged;
        Some(self.replace_parent(key, parent, left, children, guard))
    }

    /// Puts a node with one separator less and these children in the place of `parent`, which is on the way to `key`.
    fn replace_parent(
        &self,
        key: &[u8],
        parent: &Inner,
        separator: usize,
        children: Vec<Child>,
        guard: &Guard,
    ) -> Replaced {
        let separators = parent.separators.without(separator..separator + 1);
        let inner = Inner::new(parent.level, separators, children);
        let memory = inner.memory_bytes() as isize - parent.memory_bytes() as isize;
        let child = Child::Inner(Arc::new(inner));
        let mut replaced = self.replace_child(key, parent.level, child, Vec::new(), guard);
        replaced.memory += memory;
        replaced.freed.push(*parent.disk.lock());
        replaced
    }

    /// The leaf for a key if it and the way to it are in memory.
    #[cfg(test)]
    pub(crate) fn leaf_in_memory(&self, key: &[u8], guard: &Guard) -> Option<Arc<Leaf>> {
        match self.descend(Target::At(key), 0, guard).child {
            Child::Leaf(leaf) => Some(leaf.clone()),
            _ => None,
        }
    }
}

/// What a change of structure left behind.
#[derive(Default)]
pub(crate) struct Replaced {
    /// Change of heap bytes.
    pub(crate) memory: isize,
    /// Where replaced inner nodes lay.
    pub(crate) freed: Vec<InnerDisk>,
}

/// Nodes above children of which all but the first come with their lowest keys: one, unless they are too many or their
/// keys too long. Each but the last has two children at least, so that there are fewer nodes than children.
fn nodes_above(
    level: u8,
    first: Child,
    more: Vec<(Vec<u8>, Child)>,
    memory: &mut isize,
) -> (Child, Vec<(Vec<u8>, Child)>) {
    let mut node_of = |lows: &[Vec<u8>], children: Vec<Child>| {
        let inner = Inner::new(level, Separators::from_keys(lows), children);
        *memory += inner.memory_bytes() as isize;
        Child::Inner(Arc::new(inner))
    };
    let mut nodes = Vec::new();
    // The lowest key of the node at hand, and of its children but the first.
    let (mut low, mut lows, mut key_bytes) = (Vec::new(), Vec::new(), 0);
    let mut children = vec![first];
    for (key, child) in more {
        if may_take(children.len(), key_bytes, &key) {
            key_bytes += key.len();
            lows.push(key);
        } else {
            let node = node_of(&std::mem::take(&mut lows), std::mem::take(&mut children));
            nodes.push((std::mem::replace(&mut low, key), node));
            key_bytes = 0;
        }
        children.push(child);
    }
    nodes.push((low, node_of(&lows, children)));
    let mut nodes = nodes.into_iter();
    let (_, first) = nodes.next().expect("there is at least one child");
    (first, nodes.collect())
}

/// Whether a node of so many children, with separators of so many bytes, may have another that begins at `low`. Two it
/// may have in any case.
pub(crate) fn may_take(children: usize, key_bytes: usize, low: &[u8]) -> bool {
    children < 2 || (children < CHILDREN_MAX && key_bytes + low.len() <= SEPARATOR_BYTES)
}

/// One node of the children, or several when they are too many.
fn split_inner(
    level: u8,
    separators: Separators,
    children: Vec<Child>,
    appended: bool,
    memory: &mut isize,
) -> (Child, Vec<(Vec<u8>, Child)>) {
    let total = children.len();
    let key_bytes = separators.key_bytes();
    let parts = total
        .div_ceil(CHILDREN_MAX)
        .max(key_bytes.div_ceil(SEPARATOR_BYTES))
        .min(total.div_ceil(2));
    if parts == 1 {
        let inner = Inner::new(level, separators, children);
        *memory += inner.memory_bytes() as isize;
        return (Child::Inner(Arc::new(inner)), Vec::new());
    }
    let size = if appended && key_bytes <= SEPARATOR_BYTES {
        CHILDREN_MAX - 1
    } else {
        total.div_ceil(parts)
    };
    let mut nodes = Vec::with_capacity(parts);
    let mut children = children.into_iter();
    let mut start = 0;
    while start < total {
        let end = (start + size).min(total);
        // The separator before the node's first child is its lowest key; those inside stay.
        let low = (start > 0).then(|| separators.get(start - 1).to_vec());
        let inside = Separators::from_iter((start..end - 1).map(|index| separators.get(index)));
        let inner = Inner::new(level, inside, children.by_ref().take(end - start).collect());
        *memory += inner.memory_bytes() as isize;
        nodes.push((low, Child::Inner(Arc::new(inner))));
        start = end;
    }
    let mut nodes = nodes.into_iter();
    let (_, first) = nodes.next().expect("there is at least one child");
    let more = nodes
        .map(|(low, child)| (low.expect("all but the first begin at a separator"), child))
        .collect();
    (first, more)
}

#[cfg(test)]
mod tests;
