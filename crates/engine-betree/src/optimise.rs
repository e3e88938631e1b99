//! Hot optimisation: messages go down to the rows they are for, what nobody needs any more goes, sparse parts
//! become dense; and blocks move out of where the block store wants room. All of it in steps of a few leaves,
//! beside everything else.

use crate::change::{Change, Rewrite};
use crate::checkpoint::{Need, checkpoint};
use crate::core::Core;
use crate::directory::DIRECTORY;
use crate::flush::flush_oldest;
use crate::leaf_merge::merge_into_leaf;
use crate::merge::Messages;
use crate::node::{Child, Inner, Leaf, Node};
use crate::push::{Successors, flush_child, grow, relieve, replace_child, settle};
use crate::run::Key;
use crate::table::Table;
use blocks::Urgency;
use engine::{MaintenanceReport, Result, TableId, check_wanted};
use std::sync::Arc;

/// Rounds of moving blocks, each with a checkpoint, at most.
const ROUNDS_MAX: usize = 12;

/// Gives space back: of these tables, or of all; files are made shorter as a whole.
pub(crate) fn compact(
    core: &Core,
    tables: Option<&[TableId]>,
    threads: usize,
    goes_on: &dyn Fn() -> bool,
) -> Result<MaintenanceReport> {
    // One at a time: each chooses anew what is to move, which undoes what another has emptied.
    let _compacting = core.compacting.lock();
    core.status.check_running()?;
    let before = core.store.stats().total.file_bytes;
    let result = compact_tables(core, tables, threads, goes_on);
    // What could not be moved, since readers have it, is used again.
    for (volume, segment) in core.store.segments_to_empty() {
        core.store.give_up_emptying(volume, segment);
    }
    result?;
    let after = core.store.stats().total.file_bytes;
    Ok(MaintenanceReport {
        bytes_freed: before.saturating_sub(after),
        ..MaintenanceReport::default()
    })
}

fn compact_tables(core: &Core, tables: Option<&[TableId]>, threads: usize, goes_on: &dyn Fn() -> bool) -> Result<()> {
    let chosen = match tables {
        None => core.catalog.all(),
        Some(ids) => ids.iter().map(|id| core.catalog.live(*id)).collect::<Result<_>>()?,
    };
    for table in chosen.iter().filter(|table| table.is_live()) {
        optimise(core, table, Rewrite::History, goes_on)?;
    }
    // What has gone is free after the first checkpoint, and cut off with the second.
    let twice = || {
        for _ in 0..2 {
            check_wanted(goes_on)?;
            checkpoint(core, Need::Always, threads)?;
        }
        check_wanted(goes_on)
    };
    twice()?;
    let file_bytes = || core.store.stats().total.file_bytes;
    let (mut least, mut idle_rounds) = (file_bytes(), 0);
    for _ in 0..ROUNDS_MAX {
        if core.store.plan_relocation(Urgency::Compact) == 0 {
            break;
        }
        for table in core.catalog.all().iter().filter(|table| table.is_live()) {
            match optimise(core, table, Rewrite::Moving, goes_on) {
                // What cannot be read stays where it is.
                Err(error) if error.is_of_disk() => {}
                moved => moved?,
            }
        }
        optimise(core, &core.directory, Rewrite::Moving, goes_on)?;
        twice()?;
        // Blocks that fit nowhere before the end take turns there.
        idle_rounds = if file_bytes() < least { 0 } else { idle_rounds + 1 };
        least = least.min(file_bytes());
        if idle_rounds == 2 {
            break;
        }
    }
    Ok(())
}

/// One table, from its first key to its last.
fn optimise(core: &Core, table: &Arc<Table>, rewrite: Rewrite, goes_on: &dyn Fn() -> bool) -> Result<()> {
    if rewrite == Rewrite::History && table.memory_bytes() > 0 {
        let _shared = core.structure.read();
        let _change = table.change.lock();
        {
            let _applied = core.applied.lock();
            table.freeze();
        }
        while flush_oldest(core, table, core.pins.published())? {}
    }
    let mut at = Key::from(&[][..]);
    loop {
        core.status.check_running()?;
        check_wanted(goes_on)?;
        let _shared = core.structure.read();
        let _change = table.change.lock();
        if is_loaded_for_later(core, table) {
            return Ok(());
        }
        let state = table.state();
        let Some(root) = &state.tree.root else {
            return Ok(());
        };
        let mut change = Change::new(core, table);
        change.rewrite = rewrite;
        let height = change.load_node(root, None)?.height();
        let step = optimise_at(&mut change, root, height, &[], None, &at)?;
        if let Some(successors) = step.successors {
            let root = grow(&mut change, successors, height)?;
            change.install(root, None)?;
            // The directory is written by every checkpoint, and has no row of itself.
            if table.id != DIRECTORY {
                core.catalog.note_change(table);
            }
        }
        match step.next {
            Some(next) => at = next,
            None => return Ok(()),
        }
    }
}

/// Checkpoints before the position of a load leave the blocks out that the load wrote: they must not become others yet.
pub(crate) fn is_loaded_for_later(core: &Core, table: &Table) -> bool {
    let published = core.pins.published();
    let loads = core.loads.lock();
    loads.iter().any(|load| load.table == table.id && load.seq > published)
}

/// What a step did.
struct Step {
    /// `None` where all is as it was.
    successors: Option<Successors>,
    /// Where the next one begins; `None` at the end.
    next: Option<Key>,
}

/// Optimises the lowest inner node that `at` belongs to, below a node for which nothing waits.
fn optimise_at(
    change: &mut Change<'_>,
    child: &Child,
    height: u8,
    low: &[u8],
    high: Option<&[u8]>,
    at: &[u8],
) -> Result<Step> {
    let node = change.load_node(child, Some(height))?;
    let moves = is_moved(change, child);
    let next = high.map(Key::from);
    let (inner, is_changed, next) = match &*node {
        Node::Leaf(leaf) => {
            let successors = rewritten_leaf(change, leaf, moves, low, high)?;
            retire_if(change, child, successors.is_some());
            return Ok(Step { successors, next });
        }
        Node::Inner(inner) if inner.height == 1 => {
            let mut inner = inner.clone();
            let is_changed = optimise_leaves(change, &mut inner, low, high)?;
            (inner, is_changed, next)
        }
        Node::Inner(inner) => {
            let mut inner = inner.clone();
            let mut is_changed = false;
            let waits = |change: &Change<'_>, inner: &Inner, index: usize| {
                let slot = &inner.slots[index];
                let moves = slot.buffer.iter().any(|segment| change.moves(segment.blocks()));
                !slot.buffer.is_empty() && (change.rewrite == Rewrite::History || moves)
            };
            if waits(change, &inner, inner.find(at)) {
                let index = inner.find(at);
                flush_child(change, &mut inner, index, low, high)?;
                is_changed = true;
            }
            let index = inner.find(at);
            let (child_low, child_high) = inner.range(index, low, high);
            let (child_low, child_high) = (Key::from(child_low), child_high.map(Key::from));
            let child = inner.slots[index].child.clone();
            let step = optimise_at(change, &child, height - 1, &child_low, child_high.as_deref(), at)?;
            if let Some(successors) = step.successors {
                replace_child(change, &mut inner, index, successors)?;
                is_changed = true;
            }
            (inner, is_changed, step.next)
        }
    };
    let is_changed = is_changed || moves;
    let successors = match is_changed {
        false => None,
        true => {
            let mut inner = inner;
            relieve(change, &mut inner, low, high)?;
            Some(settle(change, inner, low)?)
        }
    };
    retire_if(change, child, is_changed);
    Ok(Step { successors, next })
}

fn is_moved(change: &Change<'_>, child: &Child) -> bool {
    match child {
        Child::Disk(unit) => change.moves(unit.blocks()),
        Child::Memory(_) => false,
    }
}

fn retire_if(change: &mut Change<'_>, child: &Child, is_replaced: bool) {
    if let (Child::Disk(unit), true) = (child, is_replaced) {
        change.retire(unit.blocks());
    }
}

/// `None` where nothing of it is to be written anew.
pub(crate) fn rewritten_leaf(
    change: &mut Change<'_>,
    leaf: &Leaf,
    moves: bool,
    low: &[u8],
    high: Option<&[u8]>,
) -> Result<Option<Successors>> {
    if leaf.basements.iter().any(|basement| change.rewrites(basement)) {
        let leaves = merge_into_leaf(change, leaf, &Messages::none(), low, high)?;
        let child = |(low, leaf)| (low, Child::Memory(Arc::new(Node::Leaf(leaf))));
        return Ok(Some(leaves.into_iter().map(child).collect()));
    }
    Ok(moves.then(|| vec![(low.into(), Child::Memory(Arc::new(Node::Leaf(leaf.clone()))))]))
}

/// The leaves below a node, one after the other. Answers whether anything changed.
fn optimise_leaves(change: &mut Change<'_>, inner: &mut Inner, low: &[u8], high: Option<&[u8]>) -> Result<bool> {
    let mut is_changed = false;
    let mut index = 0;
    while index < inner.slots.len() {
        let slot = inner.slots[index].clone();
        let node = change.load_node(&slot.child, Some(0))?;
        let Node::Leaf(leaf) = &*node else {
            unreachable!("its height was checked")
        };
        let moves = is_moved(change, &slot.child);
        let waits = change.rewrite == Rewrite::History || slot.buffer.iter().any(|s| change.moves(s.blocks()));
        let is_touched = moves || leaf.basements.iter().any(|basement| change.rewrites(basement));
        if !slot.buffer.is_empty() && (waits || is_touched) {
            // It stands for another look then, with nothing waiting.
            flush_child(change, inner, index, low, high)?;
            is_changed = true;
            continue;
        }
        if !slot.buffer.is_empty() {
            // What is to move may have been chosen anew since it was asked: what was not emptied stays as it is.
            index += 1;
            continue;
        }
        let (child_low, child_high) = inner.range(index, low, high);
        let (child_low, child_high) = (Key::from(child_low), child_high.map(Key::from));
        let Some(successors) = rewritten_leaf(change, leaf, moves, &child_low, child_high.as_deref())? else {
            index += 1;
            continue;
        };
        retire_if(change, &slot.child, true);
        is_changed = true;
        let passed = match successors.len() {
            0 if inner.slots.len() > 1 => 0,
            count => count.max(1),
        };
        replace_child(change, inner, index, successors)?;
        index += passed;
    }
    Ok(is_changed)
}
