//! Deletions that readers pass over go down to the rows they are for, and both are gone.
//!
//! A queue is read from its head, where all that was taken from it was deleted: until a deletion meets its row in a
//! leaf every reader that comes by passes over both. What readers pass is counted for each table; when it has cost
//! about as much as writing a leaf anew, the table's messages in memory are flushed, and those on the path to where
//! readers passed are pushed down to its leaf (the ski rental problem). Deletions that somebody needs to keep,
//! who reads an older state, are not counted: nothing would be gained.

use crate::change::{Change, Rewrite};
use crate::core::{Core, Sinking, count};
use crate::flush::{flush_above, flush_newest_too};
use crate::node::{Child, Node};
use crate::optimise::{is_loaded_for_later, rewritten_leaf};
use crate::push::{Successors, flush_child, grow, relieve, replace_child, retire_node, settle};
use crate::run::Key;
use crate::table::Table;
use engine::{ErrorKind, Result, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// Deleted keys that readers of a table pass before it is seen to: some 50 ns each, and a leaf takes milliseconds.
const PASSED_MAX: u64 = 128 * 1024;

impl Core {
    /// A reader passed so many deleted keys, the first of them at `at`; the oldest deletion came at `oldest`.
    pub(crate) fn note_passed(&self, table: &Arc<Table>, keys: u64, at: &[u8], oldest: Seq) {
        count(&self.counters.passed_keys, keys);
        if self.pins.oldest() < oldest {
            return;
        }
        let before = table.passed.fetch_add(keys, Relaxed);
        // Whoever comes to the bound, and nobody behind: until it was seen to.
        if before < PASSED_MAX && before + keys >= PASSED_MAX {
            let (table, at) = (table.clone(), at.into());
            self.sinking.lock().push(Sinking { table, at });
            if let Some(wake) = self.wake.get() {
                wake();
            }
        }
    }
}

/// Sees to all places where readers passed over much, while no memory is to be given back.
pub(crate) fn sink_all(core: &Core) {
    while core.status.is_running() && !core.is_disk_full.load(Acquire) && core.held.bytes() <= flush_above(core) {
        let sinking = core.sinking.lock().pop();
        let Some(sinking) = sinking else { return };
        match sink(core, &sinking) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::OutOfSpace => return,
            Err(error) => core.status.stop(format!("pushing deletions down failed: {error}")),
        }
    }
}

/// Pushes the messages on the path to a key down to its leaf. What cannot be read stays where it is, and so does all
/// while somebody else works on the table: readers go on counting.
fn sink(core: &Core, sinking: &Sinking) -> Result<()> {
    let done = try_sink(core, &sinking.table, &sinking.at);
    sinking.table.passed.store(0, Relaxed);
    done
}

fn try_sink(core: &Core, table: &Arc<Table>, at: &[u8]) -> Result<()> {
    let _shared = core.structure.read();
    let Some(_change) = table.change.try_lock() else {
        return Ok(());
    };
    if !table.is_live() || table.is_damaged.load(Acquire) || is_loaded_for_later(core, table) {
        return Ok(());
    }
    flush_newest_too(core, table)?;
    let state = table.state();
    let Some(root) = &state.tree.root else {
        return Ok(());
    };
    let mut change = Change::new(core, table);
    // Of the leaf on the path what was kept for somebody who has gone.
    change.rewrite = Rewrite::History;
    let root = match pushed_root(&mut change, root, at) {
        Ok(Some(root)) => root,
        Ok(None) => return Ok(()),
        Err(_) if change.met_damage() => return Ok(()),
        Err(error) => return Err(error),
    };
    change.install(root, None)?;
    core.catalog.note_change(table);
    count(&core.counters.sinks, 1);
    Ok(())
}

/// The new root; `None` where all is as it was.
fn pushed_root(change: &mut Change<'_>, root: &Child, at: &[u8]) -> Result<Option<Option<Child>>> {
    let height = change.load_node(root, None)?.height();
    match sink_at(change, root, height, &[], None, at)? {
        Some(successors) => grow(change, successors, height).map(Some),
        None => Ok(None),
    }
}

/// What takes the place of a node when something waited on the path below it.
fn sink_at(
    change: &mut Change<'_>,
    child: &Child,
    height: u8,
    low: &[u8],
    high: Option<&[u8]>,
    at: &[u8],
) -> Result<Option<Successors>> {
    let node = change.load_node(child, Some(height))?;
    let inner = match &*node {
        Node::Inner(inner) => inner,
        Node::Leaf(leaf) => {
            let successors = rewritten_leaf(change, leaf, false, low, high)?;
            if successors.is_some() {
                retire_node(change, child);
            }
            return Ok(successors);
        }
    };
    let mut inner = inner.clone();
    let waits = !inner.slots[inner.find(at)].buffer.is_empty();
    if waits {
        let index = inner.find(at);
        flush_child(change, &mut inner, index, low, high)?;
    }
    let index = inner.find(at);
    let (below_low, below_high) = inner.range(index, low, high);
    let (below_low, below_high) = (Key::from(below_low), below_high.map(Key::from));
    let below = inner.slots[index].child.clone();
    let successors = sink_at(change, &below, height - 1, &below_low, below_high.as_deref(), at)?;
    if !waits && successors.is_none() {
        return Ok(None);
    }
    if let Some(successors) = successors {
        replace_child(change, &mut inner, index, successors)?;
    }
    retire_node(change, child);
    relieve(change, &mut inner, low, high)?;
    Ok(Some(settle(change, inner, low)?))
}
