//! Reading ahead: a walk that meets leaves on disk has a worker load those that come next, while it looks at what it has.
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
use std::sync::{Arc, Weak};

/// Leaves on disk that a walk meets before it reads ahead.
const MISSES_MIN: usize = 2;
const WINDOW_MAX: usize = 32;

/// What one walk reads ahead.
#[derive(Default)]
pub(crate) struct Ahead {
    misses: usize,
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
        let _ = core.bring_in(&self.tree, Target::At(key), address, 0, Rows::Wanted);
        core.counters.prefetched.add(1);
        self.state.lock().loading.retain(|loading| *loading != address);
        self.loaded.notify_all();
    }

    /// A worker's part.
    fn work(&self) {
        loop {
            let (key, address) = {
                let mut state = self.state.lock();
                match state.waiting.pop_front() {
                    Some((key, address)) if !state.over => {
                        state.loading.push(address);
                        (key, address)
                    }
                    _ => {
                        state.at_work = false;
                        return;
                    }
                }
            };
            match self.core.upgrade() {
                Some(core) if core.check_running().is_ok() => self.load(&core, &key, address),
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
        let places: Vec<usize> = match direction {
            Direction::Forward => (index + 1..parent.children.len()).take(window).collect(),
            Direction::Reverse => (0..index).rev().take(window).collect(),
        };
        for place in places {
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
                return core.bring_in(tree, target, address, 0, Rows::Wanted);
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

/// The lowest key of the inner node above a leaf.
fn descent_low(tree: &Tree, descent: &Descent<'_>, guard: &Guard) -> Vec<u8> {
    let key = descent.low.map_or_else(Vec::new, Fence::to_vec);
    let above = tree.descend(Target::At(&key), 1, guard);
    above.low.map_or_else(Vec::new, Fence::to_vec)
}
