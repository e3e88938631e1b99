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
use crate::page::Separators;
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
                // A new root.
                let keys: Vec<&[u8]> = more.iter().map(|(low, _)| low.as_slice()).collect();
                let separators = Separators::from_keys(&keys);
                let children = std::iter::once(first)
                    .chain(more.iter().map(|(_, child)| child.clone()))
                    .collect();
                let root = Inner::new(level + 1, separators, children);
                replaced.memory += root.memory_bytes() as isize;
                cell.replace(Child::Inner(Arc::new(root)), guard);
                return replaced;
            };
            let keys: Vec<&[u8]> = more.iter().map(|(low, _)| low.as_slice()).collect();
            let separators = parent.separators.with_inserted(index, &keys);
            let mut children: Vec<Child> = Vec::with_capacity(parent.children.len() + more.len());
            children.extend(parent.children[..index].iter().map(|cell| cell.load(guard).clone()));
            children.push(first);
            children.extend(more.into_iter().map(|(_, child)| child));
            children.extend(parent.children[index + 1..].iter().map(|cell| cell.load(guard).clone()));
            replaced.memory -= parent.memory_bytes() as isize;
            replaced.freed.push(*parent.disk.lock());
            let appended = index + 1 == parent.children.len();
            (first, more) = split_inner(parent.level, separators, children, appended, &mut replaced.memory);
            level = parent.level;
            cell = parent_cell;
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
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree::new(
            TableId(1),
            Shape {
                codec: Codec::None,
                level: None,
                leaf_bytes: 100,
                large_bytes_min: 1000,
                volume: VolumeId::MAIN,
            },
            Child::Leaf(Arc::new(Leaf::empty(Box::default()))),
        )
    }

    fn key(number: usize) -> Vec<u8> {
        (number as u32).to_be_bytes().to_vec()
    }

    fn leaf(number: usize) -> Child {
        Child::Leaf(Arc::new(Leaf::empty(key(number).into())))
    }

    /// Levels, fences and order, all the way down; the lows of all leaves.
    fn check(tree: &Tree) -> Vec<Vec<u8>> {
        fn walk(child: &Child, level: Option<u8>, low: &[u8], lows: &mut Vec<Vec<u8>>, guard: &Guard) {
            match child {
                Child::Leaf(leaf) => {
                    assert!(level.is_none_or(|level| level == 0));
                    assert!(&*leaf.low >= low);
                    lows.push(leaf.low.to_vec());
                }
                Child::Inner(inner) => {
                    assert!(level.is_none_or(|level| level == inner.level));
                    assert!(inner.children.len() <= CHILDREN_MAX);
                    inner.separators.check_invariants();
                    for (index, cell) in inner.children.iter().enumerate() {
                        let low = if index == 0 {
                            low.to_vec()
                        } else {
                            inner.separators.get(index - 1).to_vec()
                        };
                        walk(cell.load(guard), Some(inner.level - 1), &low, lows, guard);
                    }
                }
                Child::Nothing | Child::OnDisk { .. } => panic!("every child is in memory"),
            }
        }
        let guard = rcu::pin();
        let mut lows = Vec::new();
        walk(tree.root.load(&guard), None, &[], &mut lows, &guard);
        assert!(lows.is_sorted());
        lows
    }

    #[test]
    fn splits_at_the_end_and_in_the_middle_keep_the_structure() {
        for appending in [true, false] {
            let tree = tree();
            let mut expected = vec![Vec::new()];
            let total = CHILDREN_MAX * CHILDREN_MAX + 10;
            for step in 1..total {
                let number = if appending { step } else { step * 7919 % total };
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                let at = key(number);
                let Child::Leaf(here) = tree.descend(Target::At(&at), 0, &guard).child else {
                    panic!("all leaves are in memory")
                };
                let kept = Child::Leaf(here.clone());
                tree.replace_child(&at, 0, kept, vec![(at.clone(), leaf(number))], &guard);
                expected.push(at);
            }
            expected.sort();
            assert_eq!(check(&tree), expected);
            // And out again, down to the last.
            let mut left = expected.clone();
            while left.len() > 1 {
                let low = left.remove(left.len() * 5 / 7 % left.len());
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                assert!(tree.remove_child(&low, 0, &guard).is_some());
                if left.len() % 1000 == 1 {
                    assert_eq!(check(&tree), left);
                }
            }
            assert!(tree.remove_child(&left[0], 0, &rcu::pin()).is_none());
        }
    }

    #[test]
    fn no_reader_finds_a_leaf_whose_neighbour_is_being_merged_with_it() {
        const LEAVES: usize = 400;
        let tree = tree();
        let guard = rcu::pin();
        for number in 1..LEAVES {
            let at = key(number);
            let here = tree.leaf_in_memory(&at, &guard).expect("in memory");
            tree.replace_child(&at, 0, Child::Leaf(here), vec![(at.clone(), leaf(number))], &guard);
        }
        drop(guard);
        // A merged leaf is marked: a reader of a right one's key must find that leaf, or a merged one.
        const MERGED: u8 = 7;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = || {
                while !over.load(Ordering::Acquire) {
                    for number in (1..LEAVES).step_by(2) {
                        let guard = rcu::pin();
                        let found = tree.leaf_in_memory(&key(number), &guard).expect("in memory");
                        let is_merged = found.warmth.load(Ordering::Relaxed) == MERGED;
                        assert!(
                            is_merged || *found.low == *key(number),
                            "leaf {:02x?} for {number}",
                            found.low
                        );
                    }
                }
            };
            scope.spawn(reader);
            scope.spawn(reader);
            let mut merged = 0;
            for number in (1..LEAVES).step_by(2) {
                let guard = rcu::pin();
                let _structure = tree.structure.lock();
                let Child::Leaf(made) = leaf(number - 1) else {
                    unreachable!("a leaf was made")
                };
                made.warmth.store(MERGED, Ordering::Relaxed);
                let replaced = tree.merge_with_previous(&key(number), 0, Child::Leaf(made), &guard);
                if replaced.is_some() {
                    merged += 1;
                    let left = tree.leaf_in_memory(&key(number - 1), &guard).expect("in memory");
                    let right = tree.leaf_in_memory(&key(number), &guard).expect("in memory");
                    assert!(Arc::ptr_eq(&left, &right), "one leaf for both");
                }
            }
            over.store(true, Ordering::Release);
            assert!(
                merged > LEAVES / 4,
                "most neighbours are under one node: {merged} merged"
            );
        });
        let lows = check(&tree);
        assert!(lows.len() < LEAVES * 3 / 4, "{} leaves are left", lows.len());
    }

    #[test]
    fn targets_before_a_separator_lie_to_its_left() {
        let tree = tree();
        let guard = rcu::pin();
        for number in 1..500 {
            let at = key(number * 10);
            let here = tree.leaf_in_memory(&at, &guard).expect("in memory");
            tree.replace_child(&at, 0, Child::Leaf(here), vec![(at.clone(), leaf(number * 10))], &guard);
        }
        let low = |target: Target<'_>| match tree.descend(target, 0, &guard).child {
            Child::Leaf(leaf) => leaf.low.to_vec(),
            _ => panic!("in memory"),
        };
        for number in 1..500 {
            assert_eq!(low(Target::At(&key(number * 10))), key(number * 10));
            assert_eq!(low(Target::At(&key(number * 10 + 9))), key(number * 10));
            let before = if number == 1 {
                Vec::new()
            } else {
                key((number - 1) * 10)
            };
            assert_eq!(low(Target::Before(&key(number * 10))), before);
            assert_eq!(low(Target::Before(&key(number * 10 + 1))), key(number * 10));
        }
        assert_eq!((low(Target::First), low(Target::Last)), (Vec::new(), key(4990)));
        let descent = tree.descend(Target::At(&key(55)), 0, &guard);
        assert_eq!(descent.low.map(Fence::to_vec), Some(key(50)));
        assert_eq!(descent.high.map(Fence::to_vec), Some(key(60)));
    }
}
