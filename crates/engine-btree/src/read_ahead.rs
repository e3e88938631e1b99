//! Reading ahead: a walk that meets leaves on disk has a worker load those that come next, while it looks at what it
//! has. The system is told earlier where they lie, so that the disk is asked for large pieces and works while leaves
//! are decompressed.
//!
//! The nodes to load stand in a queue: leaves in the order of the walk, and before them an inner node that is not in
//! memory and has the leaves behind those. The worker takes from the front; the walk, when it comes to a leaf that is
//! being loaded, takes one from the back instead of waiting, so that two processors read, check and decompress. It
//! fills the queue again while it passes leaves that are loaded: an idle worker costs a switch of threads. A node in
//! the queue is in nobody's way: who needs it first loads it.
//!
//! Leaves of which only changes are in memory are read ahead as well, and come into memory: what is shown of them is
//! base and changes together.
//!
//! Where memory is short, a part is read of the first leaf of a walk, and of one that it ends in
//! ([`crate::leaf_part`]); the next ones come into memory. Those of a *long* walk do not, as most are not wanted again
//! before others are: their raw bytes wait in the queue until the walk comes to them, and go when it has passed
//! ([`Pages::read_for_walk`]). Where they lie side by side, their blocks come in stretches ([`Stretches`]) before they
//! are opened one by one.

use crate::budget::{Use, good_size};
use crate::coming::{Coming, Node, WalkPosition, fence_behind, is_past};
use crate::leaf::Leaf;
use crate::pages::{LoadRows, Pages, is_on_disk_at};
use crate::raw_leaf::{HeldStretch, RawLeaf, WalkMemory};
use crate::stretches::{STRETCH_BYTES_MAX, STRETCH_BYTES_MIN, Stretches, side_by_side};
use crate::tree::{Child, Target, Tree};
use blocks::{BlockAddr, SECTOR_BYTES};
use engine::Result;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rcu::Guard;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Leaves on disk that a walk meets before it reads ahead.
const MISSES_MIN: usize = 2;
const WINDOW_MAX: usize = 32;
/// Leaves whose rows one batch of a cursor may have, by its usual limits.
const RAW_HELD_MAX: usize = 8;
/// Leaves whose memory waits for others.
const SPENT_MAX: usize = 4;
/// Stretches of a walk take at most one part in so many of what all walks may yet take.
const STRETCHES_PART: usize = 8;
/// All walks together have at most one part in so many of the cache, and a leaf or two each beyond.
const WALKS_PART: u64 = 8;
/// Leaves, as [`ReadAhead::walked`] counts them, after which a walk is long.
const LEAVES_OF_SHORT: usize = 8;
/// Leaves whose stretch of the file the system is told of at once.
const TOLD_LEAVES: usize = 128;
/// Leaves in memory that a walk passes before it looks whether the queue has enough; more when all that come are in
/// memory.
const PASSED_MAX: usize = 8;

/// What one walk reads ahead.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Leaves that it met on disk and, since it reads ahead, that it came to.
    walked: usize,
    /// The leaf that it is in is among them: it may come there many times before it has passed it.
    is_counted: bool,
    /// Leaves in memory since the queue was looked at.
    passed: usize,
    /// So many of them may pass before it is looked at again.
    passing: usize,
    /// The last leaf of those that the system was told of.
    told: Option<BlockAddr>,
    queue: Option<Arc<LoadQueue>>,
    /// Raw bytes of leaves that it passed and whose rows may be in use.
    passed_raw: VecDeque<RawLeaf>,
}

/// What a walk and the worker that reads ahead for it share.
struct LoadQueue {
    pages: Weak<Pages>,
    tree: Arc<Tree>,
    state: Mutex<QueueState>,
    loaded: Condvar,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Node>,
    loading: Vec<BlockAddr>,
    /// Sectors that the worker is to tell the system of.
    untold: Vec<Range<u64>>,
    /// Those that it reads at once.
    stretches: Stretches,
    /// Raw bytes of leaves that the walk has not come to.
    ready: Vec<(BlockAddr, RawLeaf)>,
    /// Memory of leaves that the walk has passed: new memory would come from the system page by page.
    spent: Vec<RawLeaf>,
    /// A worker has the queue.
    at_work: bool,
    /// The walk has ended.
    over: bool,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            let mut state = queue.state.lock();
            state.over = true;
            state.waiting.clear();
            state.ready.clear();
            state.spent.clear();
            state.untold.clear();
            state.stretches.clear();
        }
    }
}

/// Ends the loading of a node, also where it ends in a panic: the walk waits for it.
struct NodeLoad<'s> {
    queue: &'s LoadQueue,
    address: BlockAddr,
}

impl Drop for NodeLoad<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.loading.retain(|loading| *loading != self.address);
        self.queue.loaded.notify_all();
    }
}

/// Ends the reading of a stretch, also where it ends in a panic.
struct StretchRead<'s> {
    queue: &'s LoadQueue,
    stretch: Option<HeldStretch>,
}

impl Drop for StretchRead<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        let stretch = self.stretch.take().filter(|_| !state.over);
        state.stretches.end(stretch);
        self.queue.loaded.notify_all();
    }
}

impl QueueState {
    fn is_ready(&self, address: BlockAddr) -> bool {
        self.ready.iter().any(|(ready, _)| *ready == address)
    }

    fn put_ready(&mut self, address: BlockAddr, raw: RawLeaf) {
        if !self.over && !self.is_ready(address) {
            self.ready.push((address, raw));
        }
    }

    fn has_work(&self) -> bool {
        let is_loadable = |node: &Node| !self.stretches.is_coming(&node.address);
        !self.untold.is_empty() || self.stretches.is_time() || self.waiting.front().is_some_and(is_loadable)
    }

    /// The next node to load, noted as being loaded. One whose stretch is yet to come waits for it.
    fn take_next(&mut self) -> Option<Node> {
        if self.stretches.is_coming(&self.waiting.front()?.address) {
            return None;
        }
        let node = self.waiting.pop_front()?;
        self.loading.push(node.address);
        Some(node)
    }

    /// The last one that need not wait, for who has nothing to do.
    fn take_last(&mut self) -> Option<Node> {
        let stretches = &self.stretches;
        let at = self
            .waiting
            .iter()
            .rposition(|node| !stretches.is_coming(&node.address))?;
        let node = self.waiting.remove(at)?;
        self.loading.push(node.address);
        Some(node)
    }

    fn take_ready(&mut self, address: BlockAddr) -> Option<RawLeaf> {
        let index = self.ready.iter().position(|(ready, _)| *ready == address)?;
        Some(self.ready.swap_remove(index).1)
    }
}

impl LoadQueue {
    fn stretch_with(&self, address: BlockAddr) -> Option<Arc<HeldStretch>> {
        let state = self.state.lock();
        state.stretches.holding(self.tree.shape.volume, &address)
    }

    /// Memory for the raw bytes of a leaf.
    fn buffer(&self) -> Vec<u8> {
        let spent = self.state.lock().spent.pop();
        spent.map_or_else(Vec::new, RawLeaf::into_buffer)
    }

    /// Reads the stretch that comes next, which is noted as being read. Where that fails, its leaves are read one by
    /// one, and tell why.
    fn read_stretch(&self, pages: &Pages, (sectors, buffer): (Range<u64>, Vec<u8>)) {
        let mut read = StretchRead {
            queue: self,
            stretch: None,
        };
        // Counted before it is read: other walks that begin now look at what is left, too.
        let bytes = (sectors.end - sectors.start) as usize * SECTOR_BYTES;
        let memory = WalkMemory::new(pages.cache(), good_size(bytes.max(buffer.capacity())));
        if is_within_share(pages) {
            read.stretch = pages.read_stretch(&self.tree, sectors, buffer, memory).ok();
        }
    }

    /// Loads one node that is noted as being loaded.
    fn load(&self, pages: &Pages, node: &Node) {
        let _load = NodeLoad {
            queue: self,
            address: node.address,
        };
        // It may have been loaded between the look at the tree that found it and its coming into the queue.
        let target = Target::At(&node.key);
        let leaf = {
            let guard = rcu::pin();
            match self.tree.descend(target, node.level, &guard).child {
                Child::Leaf(leaf) => Some(leaf.clone()),
                child if is_on_disk_at(child, node.address) => None,
                _ => return,
            }
        };
        if let Some(leaf) = leaf {
            // Only its rows are missing. The error, if any, comes again when the walk needs them.
            let stretch = self.stretch_with(node.address);
            if pages
                .bring_base_in(&self.tree, &leaf, node.address, stretch.as_deref())
                .is_ok()
            {
                pages.note_read_ahead();
            }
            return;
        }
        if node.is_for_long {
            // The leaves that were planned for have been read since, for other walks.
            if left_for_walks(pages) == 0 && !self.state.lock().ready.is_empty() {
                return;
            }
            let stretch = self.stretch_with(node.address);
            let stretch = stretch.as_deref();
            match pages.read_for_walk(&self.tree, target, node.address, stretch, || self.buffer()) {
                Ok(Some(raw)) => {
                    self.state.lock().put_ready(node.address, raw);
                    return;
                }
                Ok(None) => {}
                // It comes again when the walk needs the leaf.
                Err(_) => return,
            }
        }
        pages.read_ahead(&self.tree, &node.key, node.address, node.level);
    }

    /// What a worker tells the system and does next; nothing is left where it is `None`.
    fn next_step(&self) -> Option<(Vec<Range<u64>>, Option<Step>)> {
        let mut state = self.state.lock();
        let untold = std::mem::take(&mut state.untold);
        let step = if state.over {
            None
        } else if let Some(stretch) = state.stretches.begin() {
            Some(Step::Read(stretch))
        } else {
            state.take_next().map(Step::Load)
        };
        state.at_work = step.is_some() || !untold.is_empty();
        state.at_work.then_some((untold, step))
    }

    /// A worker's part.
    fn work(&self) {
        while let Some((untold, step)) = self.next_step() {
            match self.pages.upgrade() {
                Some(pages) if pages.check_running().is_ok() => {
                    for sectors in untold {
                        pages.expect_read(&self.tree, sectors);
                    }
                    match step {
                        Some(Step::Read(stretch)) => self.read_stretch(&pages, stretch),
                        Some(Step::Load(node)) => self.load(&pages, &node),
                        None => {}
                    }
                }
                _ => {
                    let mut state = self.state.lock();
                    state.loading.clear();
                    state.waiting.clear();
                    state.stretches.clear();
                    state.stretches.end(None);
                    state.at_work = false;
                    self.loaded.notify_all();
                    return;
                }
            }
        }
    }
}

/// What a worker does at once.
enum Step {
    Read((Range<u64>, Vec<u8>)),
    Load(Node),
}

impl ReadAhead {
    /// The walk has come to a leaf in memory: now and then it sees to it that the worker has something to do.
    #[inline]
    pub(crate) fn pass(&mut self, pages: &Arc<Pages>, tree: &Arc<Tree>, position: WalkPosition<'_, '_>, guard: &Guard) {
        if self.queue.is_some() && !self.is_counted {
            self.is_counted = true;
            self.passed += 1;
            if self.passed >= self.passing {
                self.plan(pages, tree, position, guard);
            }
        }
    }

    /// The walk has come to a leaf on disk, at `position`. True when that may be all that it wants from disk: it ends
    /// there, or this is the first one.
    pub(crate) fn meet(
        &mut self,
        pages: &Arc<Pages>,
        tree: &Arc<Tree>,
        position: WalkPosition<'_, '_>,
        guard: &Guard,
    ) -> bool {
        if self.queue.is_none() {
            let fence = fence_behind(position.descent, position.direction);
            if fence.is_none_or(|fence| is_past(&fence, position.direction, position.range)) {
                return true;
            }
        }
        self.plan(pages, tree, position, guard);
        self.queue.is_none() && self.walked <= 1
    }

    /// The walk has come to the end of a leaf.
    pub(crate) fn leave_leaf(&mut self) {
        self.is_counted = false;
    }

    /// Whether the walk is long where it is. It stays so as long as it passes leaves in their order: one that seeks
    /// begins anew.
    fn is_long(&self) -> bool {
        self.walked > LEAVES_OF_SHORT
    }

    /// The walk has come to a leaf on disk, or has passed some in memory: puts those on disk that come after it into
    /// the queue.
    fn plan(&mut self, pages: &Arc<Pages>, tree: &Arc<Tree>, position: WalkPosition<'_, '_>, guard: &Guard) {
        let is_first_time = !std::mem::replace(&mut self.is_counted, true);
        self.walked += std::mem::take(&mut self.passed) + usize::from(is_first_time);
        self.passing = PASSED_MAX;
        // A window of leaves takes at most an eighth of the cache, and less where nothing is left of it afterwards.
        let is_long = self.is_long();
        let part = if is_long { 32 } else { 8 };
        let leaf_bytes = tree.shape.leaf_bytes.max(1);
        let room = pages.cache().budget().limit() as usize / part / leaf_bytes;
        // Other walks have what they have, and each goes on.
        let left_for_all = left_for_walks(pages);
        let room_of_all = (left_for_all as usize / leaf_bytes).max(1);
        let window = WINDOW_MAX.min(self.walked).min(room).min(room_of_all);
        if self.walked < MISSES_MIN || window == 0 || !pages.cache().has_workers() {
            return;
        }
        let queue = self.queue.get_or_insert_with(|| {
            Arc::new(LoadQueue {
                pages: Arc::downgrade(pages),
                tree: tree.clone(),
                state: Mutex::default(),
                loaded: Condvar::new(),
            })
        });
        {
            let mut state = queue.state.lock();
            let is_held = position.address.is_some_and(|here| state.stretches.enter(&here));
            if state.waiting.len() > window / 2 {
                set_to_work(queue, &mut state, pages);
                // Where all wait for a stretch that has no room, and the walk is in none, what it has passed may be in
                // its place.
                if state.at_work || is_held {
                    return;
                }
            }
        }
        // The longer the walk, the further ahead: a short one reads little in vain.
        let tell = TOLD_LEAVES.min(4 * window);
        let Coming { leaves, inner } = Coming::after(tree, position, tell, window, guard);
        if leaves.is_empty() && inner.is_none() {
            self.passing = (tell / 2).max(PASSED_MAX);
            return;
        }
        let told = self
            .told
            .and_then(|told| leaves.iter().position(|leaf| leaf.address == told));
        let told = told.map_or(0, |last| last + 1);
        let stretch_bytes = STRETCH_BYTES_MAX.min(left_for_all as usize / STRETCHES_PART);
        let mut state = queue.state.lock();
        let coming: Vec<BlockAddr> = position
            .address
            .into_iter()
            .chain(leaves.iter().map(|leaf| leaf.address))
            .collect();
        state.stretches.keep(&coming);
        state
            .waiting
            .retain(|node| node.level > 0 || coming.contains(&node.address));
        if told < tell.div_ceil(2) && told < leaves.len() {
            let volume = tree.shape.volume;
            let mut untold = leaves[told..].iter().map(|leaf| leaf.address);
            if is_long && stretch_bytes >= STRETCH_BYTES_MIN {
                let stretches = &state.stretches;
                let is_new = |address: &BlockAddr| {
                    !pages.cache().has_block(&(volume, *address)) && !stretches.knows(volume, address)
                };
                let new: Vec<BlockAddr> = untold.filter(is_new).collect();
                let rest = state.stretches.add(new.into_iter(), position.direction, stretch_bytes);
                state.untold.extend(rest);
            } else {
                state.untold.extend(side_by_side(&mut untold, u64::MAX / 2));
            }
            self.told = leaves.last().map(|leaf| leaf.address);
        }
        let known = |state: &QueueState, address: BlockAddr| {
            state.loading.contains(&address)
                || state.is_ready(address)
                || state.waiting.iter().any(|waiting| waiting.address == address)
        };
        if state.ready.len() > window || left_for_all == 0 {
            // Some may be of leaves that have changed, or that the walk has left out.
            state.ready.retain(|(address, _)| coming.contains(address));
        }
        for leaf in leaves.into_iter().take_while(|leaf| leaf.is_near) {
            if !known(&state, leaf.address) {
                state.waiting.push_back(Node {
                    key: leaf.key(),
                    address: leaf.address,
                    level: 0,
                    is_for_long: self.walked + leaf.distance > LEAVES_OF_SHORT && !leaf.is_base,
                });
            }
        }
        if let Some(inner) = inner.filter(|inner| !known(&state, inner.address)) {
            state.waiting.push_front(inner);
        }
        set_to_work(queue, &mut state, pages);
    }

    /// The walk has passed a leaf whose raw bytes it had.
    pub(crate) fn pass_raw(&mut self, pages: &Pages, raw: RawLeaf) {
        self.passed_raw.push_back(raw);
        // Those that came last are still with who walks.
        let held_max = if left_for_walks(pages) > 0 { RAW_HELD_MAX } else { 0 };
        while self.passed_raw.len() > held_max
            && let Some(oldest) = self.passed_raw.pop_front()
        {
            self.reuse(pages, oldest);
        }
    }

    /// The walk needs the raw bytes of a leaf no more.
    pub(crate) fn reuse(&self, pages: &Pages, raw: RawLeaf) {
        if raw.is_reusable()
            && left_for_walks(pages) > 0
            && let Some(queue) = &self.queue
        {
            let mut state = queue.state.lock();
            if state.spent.len() < SPENT_MAX {
                state.spent.push(raw);
            }
        }
    }

    /// Brings the rows in of a leaf whose changes are in memory; or the walk looks again.
    pub(crate) fn fetch_base(
        &self,
        pages: &Arc<Pages>,
        tree: &Arc<Tree>,
        leaf: &Arc<Leaf>,
        address: BlockAddr,
    ) -> Result<()> {
        let stretch = match &self.queue {
            None => None,
            Some(queue) => match self.claim(queue, queue.state.lock(), pages, address) {
                None => return Ok(()),
                Some(stretch) => stretch,
            },
        };
        pages.bring_base_in(tree, leaf, address, stretch.as_deref())
    }

    /// The raw bytes of the leaf that the walk needs now, if it is long. `None`: the leaf was brought in, or the walk
    /// looks again, as the leaf may be in memory meanwhile, or have failed to load.
    pub(crate) fn fetch(
        &self,
        pages: &Arc<Pages>,
        tree: &Arc<Tree>,
        target: Target<'_>,
        address: BlockAddr,
    ) -> Result<Option<RawLeaf>> {
        let Some(queue) = &self.queue else {
            return pages
                .bring_in(tree, target, address, 0, LoadRows::Wanted)
                .map(|()| None);
        };
        let mut state = queue.state.lock();
        if let Some(raw) = state.take_ready(address) {
            return Ok(Some(raw));
        }
        let Some(stretch) = self.claim(queue, state, pages, address) else {
            return Ok(None);
        };
        if !is_on_disk_at(tree.descend(target, 0, &rcu::pin()).child, address) {
            return Ok(None);
        }
        if self.is_long()
            && let Some(raw) = pages.read_for_walk(tree, target, address, stretch.as_deref(), || queue.buffer())?
        {
            return Ok(Some(raw));
        }
        pages
            .bring_in(tree, target, address, 0, LoadRows::WantedInOrder)
            .map(|()| None)
    }

    /// Takes a leaf that the walk needs now from the queue; answers the stretch that has its block, if one has. `None`
    /// where a worker is at it or its stretch is read first: the walk has done something useful or waited meanwhile,
    /// and looks again.
    fn claim(
        &self,
        queue: &LoadQueue,
        mut state: MutexGuard<'_, QueueState>,
        pages: &Pages,
        address: BlockAddr,
    ) -> Option<Option<Arc<HeldStretch>>> {
        if state.loading.contains(&address) || state.stretches.is_reading(&address) {
            match state.take_last() {
                Some(other) => {
                    drop(state);
                    queue.load(pages, &other);
                }
                None => queue.loaded.wait(&mut state),
            }
            return None;
        }
        if self.is_long()
            && let Some(stretch) = state.stretches.begin_at(&address)
        {
            drop(state);
            queue.read_stretch(pages, stretch);
            return None;
        }
        state.waiting.retain(|waiting| waiting.address != address);
        Some(state.stretches.holding(queue.tree.shape.volume, &address))
    }
}

/// Has a worker look at a queue that has something for it.
fn set_to_work(queue: &Arc<LoadQueue>, state: &mut QueueState, pages: &Pages) {
    if !state.at_work && state.has_work() {
        let job = queue.clone();
        state.at_work = pages.read_ahead_soon(move || job.work());
    }
}

fn is_within_share(pages: &Pages) -> bool {
    let budget = pages.cache().budget();
    budget.used(Use::Walks) <= budget.limit() / WALKS_PART
}

/// Bytes that all walks together may yet take.
pub(crate) fn left_for_walks(pages: &Pages) -> u64 {
    let budget = pages.cache().budget();
    (budget.limit() / WALKS_PART).saturating_sub(budget.used(Use::Walks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{block, lone_tree};
    use crate::tree::Child;

    #[test]
    fn a_panic_ends_the_loading() {
        let queue = LoadQueue {
            pages: Weak::new(),
            tree: Arc::new(lone_tree(Child::Nothing)),
            state: Mutex::default(),
            loaded: Condvar::new(),
        };
        let [lost, other] = [block(1, 1), block(2, 1)];
        queue.state.lock().loading = vec![lost, other];
        let load = || {
            let _load = NodeLoad {
                queue: &queue,
                address: lost,
            };
            panic!("in the middle");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(load)).is_err());
        assert_eq!(queue.state.lock().loading, [other]);
    }
}
