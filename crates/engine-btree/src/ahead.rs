//! Reading ahead: a walk that meets leaves on disk has a worker load those that come next, while it looks at what it has. The
//! system is told earlier where they lie, so that the disk is asked for large pieces and works while leaves are decompressed.
//!
//! The leaves to load stand in a queue. The worker takes them from the front; the walk, when it comes to a leaf that is being
//! loaded, takes one from the back instead of waiting, so that two processors read, check and decompress. A leaf in the queue
//! is in nobody's way: who needs it first loads it.

use crate::core::{Core, Rows};
use crate::tree::{Child, Descent, Fence, Target, Tree};
use crate::workers::Class;
use blocks::BlockAddr;
use engine::{Direction, Result};
use parking_lot::{Condvar, Mutex};
use rcu::Guard;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Leaves on disk that a walk meets before it reads ahead.
const MISSES_MIN: usize = 2;
const WINDOW_MAX: usize = 32;
/// Leaves whose stretch of the file the system is told of at once.
const TOLD_LEAVES: usize = 64;

/// What one walk reads ahead.
#[derive(Default)]
pub(crate) struct Ahead {
    misses: usize,
    /// The last leaf of those that the system was told of.
    told: Option<BlockAddr>,
    shared: Option<Arc<Shared>>,
}

struct Shared {
    core: Weak<Core>,
    tree: Arc<Tree>,
    state: Mutex<State>,
    loaded: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Vec<u8>, BlockAddr)>,
    loading: Vec<BlockAddr>,
    /// Sectors that the worker is to tell the system of.
    untold: Vec<Range<u64>>,
    /// A worker has the queue.
    at_work: bool,
    /// The walk has ended.
    over: bool,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            let mut state = shared.state.lock();
            state.over = true;
            state.waiting.clear();
        }
    }
}

impl Shared {
    /// Loads one leaf. The error, if any, comes again to whoever needs the leaf.
    fn load(&self, core: &Core, key: &[u8], address: BlockAddr) {
        let _ = core.bring_in(&self.tree, Target::At(key), address, 0, Rows::WantedInOrder);
        core.counters.prefetched.add(1);
        self.state.lock().loading.retain(|loading| *loading != address);
        self.loaded.notify_all();
    }

    /// A worker's part.
    fn work(&self) {
        loop {
            let (untold, (key, address)) = {
                let mut state = self.state.lock();
                let untold = std::mem::take(&mut state.untold);
                let next = match state.waiting.pop_front() {
                    Some((key, address)) if !state.over => {
                        state.loading.push(address);
                        (key, address)
                    }
                    _ => {
                        state.at_work = false;
                        return;
                    }
                };
                (untold, next)
            };
            match self.core.upgrade() {
                Some(core) if core.check_running().is_ok() => {
                    for sectors in untold {
                        core.store.expect_read(self.tree.shape.volume, sectors);
                    }
                    self.load(&core, &key, address);
                }
                _ => {
                    let mut state = self.state.lock();
                    state.loading.clear();
                    state.waiting.clear();
                    state.at_work = false;
                    self.loaded.notify_all();
                    return;
                }
            }
        }
    }
}

impl Ahead {
    /// The walk has come to a leaf on disk: puts those that come after it under the same inner node into the queue.
    pub(crate) fn plan(
        &mut self,
        core: &Core,
        tree: &Arc<Tree>,
        descent: &Descent<'_>,
        direction: Direction,
        guard: &Guard,
    ) {
        self.misses += 1;
        let Some((parent, index)) = descent.parent else { return };
        // A window of leaves takes at most an eighth of the cache.
        let room = core.budget.limit() as usize / 8 / tree.shape.leaf_bytes.max(1);
        let window = WINDOW_MAX.min(self.misses).min(room);
        if self.misses < MISSES_MIN || window == 0 || core.workers.threads() == 0 {
            return;
        }
        let shared = self.shared.get_or_insert_with(|| {
            Arc::new(Shared {
                core: core.me.clone(),
                tree: tree.clone(),
                state: Mutex::default(),
                loaded: Condvar::new(),
            })
        });
        let mut state = shared.state.lock();
        if state.waiting.len() >= window / 2 {
            return;
        }
        // The longer the walk, the further ahead: a short one reads little in vain.
        let tell = TOLD_LEAVES.min(2 * window);
        let places: Vec<usize> = match direction {
            Direction::Forward => (index + 1..parent.children.len()).take(tell).collect(),
            Direction::Reverse => (0..index).rev().take(tell).collect(),
        };
        let stored = places
            .iter()
            .filter_map(|place| match parent.children[*place].load(guard) {
                Child::Stored { address, level: 0 } => Some(*address),
                _ => None,
            });
        let stored: Vec<BlockAddr> = stored.collect();
        let told = self
            .told
            .and_then(|told| stored.iter().position(|address| *address == told));
        let told = told.map_or(0, |last| last + 1);
        if told < tell.div_ceil(2) && told < stored.len() {
            state.untold = stretches(&stored[told..]);
            self.told = stored.last().copied();
        }
        for place in places.into_iter().take(window) {
            let Child::Stored { address, level: 0 } = parent.children[place].load(guard) else {
                continue;
            };
            let known = state.loading.contains(address) || state.waiting.iter().any(|(_, waiting)| waiting == address);
            if !known {
                let key = match place {
                    0 => descent_low(tree, descent, guard),
                    place => parent.separators.get(place - 1).to_vec(),
                };
                state.waiting.push_back((key, *address));
            }
        }
        if !state.at_work && !state.waiting.is_empty() {
            let job = shared.clone();
            state.at_work = core.workers.submit(Class::Urgent, move || job.work()).is_ok();
        }
    }

    /// Brings the leaf in that the walk needs now.
    pub(crate) fn bring_in(&self, core: &Core, tree: &Arc<Tree>, target: Target<'_>, address: BlockAddr) -> Result<()> {
        let Some(shared) = &self.shared else {
            return core.bring_in(tree, target, address, 0, Rows::Wanted);
        };
        loop {
            let mut state = shared.state.lock();
            if !state.loading.contains(&address) {
                state.waiting.retain(|(_, waiting)| *waiting != address);
                drop(state);
                return core.bring_in(tree, target, address, 0, Rows::WantedInOrder);
            }
            match state.waiting.pop_back() {
                Some((key, other)) => {
                    state.loading.push(other);
                    drop(state);
                    shared.load(core, &key, other);
                }
                None => {
                    shared.loaded.wait(&mut state);
                    // It is in memory now, or failed to load: the walk looks again.
                    return Ok(());
                }
            }
        }
    }
}

/// The sectors of blocks, those near each other in one piece.
fn stretches(blocks: &[BlockAddr]) -> Vec<Range<u64>> {
    /// Sectors between two blocks that are rather read than left out.
    const GAP_MAX: u64 = 64;
    let mut stretches: Vec<Range<u64>> = Vec::with_capacity(1);
    let mut sectors: Vec<Range<u64>> = blocks.iter().map(|block| block.sector()..block.end()).collect();
    sectors.sort_unstable_by_key(|range| range.start);
    for range in sectors {
        match stretches.last_mut() {
            Some(last) if range.start <= last.end + GAP_MAX => last.end = last.end.max(range.end),
            _ => stretches.push(range),
        }
    }
    stretches
}

/// The lowest key of the inner node above a leaf.
fn descent_low(tree: &Tree, descent: &Descent<'_>, guard: &Guard) -> Vec<u8> {
    let key = descent.low.map_or_else(Vec::new, Fence::to_vec);
    let above = tree.descend(Target::At(&key), 1, guard);
    above.low.map_or_else(Vec::new, Fence::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(sector: u32, sectors: u8) -> BlockAddr {
        let mut bytes = [0; BlockAddr::ENCODED_BYTES];
        bytes[..4].copy_from_slice(&sector.to_le_bytes());
        bytes[6] = sectors;
        BlockAddr::decode(&bytes).unwrap()
    }

    #[test]
    fn blocks_near_each_other_are_one_stretch() {
        let blocks = [(1000, 16), (100, 17), (117, 10), (191, 5), (261, 1), (900, 20)];
        let blocks = blocks.map(|(sector, sectors)| block(sector, sectors));
        assert_eq!((blocks[1].sector(), blocks[1].end()), (100, 117));
        // Between 196 and 261 there is one sector too many.
        assert_eq!(stretches(&blocks), [100..196, 261..262, 900..920, 1000..1016]);
        assert_eq!(stretches(&[]), []);
    }
}
