//! Memtables go into their tables' trees, in the background, the largest first.

use crate::change::Change;
use crate::core::{Core, count};
use crate::merge::{Messages, merge};
use crate::push::push_to_root;
use crate::run::{Run, RunBuilder};
use crate::table::Table;
use engine::{ErrorKind, Result, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Puts the messages up to `upto` of the oldest frozen memtable into the tree: false when there are none.
/// Whoever calls holds `structure` and the table's `change`.
pub(crate) fn flush_oldest(core: &Core, table: &Table, upto: Seq) -> Result<bool> {
    let state = table.state();
    let Some(memtable) = state.frozen.last() else {
        return Ok(false);
    };
    let mut builder = RunBuilder::new(upto);
    let mut tombstones = Vec::new();
    let rest = memtable.part(
        upto,
        |key, seq, op| builder.push(key, seq, op),
        |tombstone| tombstones.push(tombstone.clone()),
    );
    if builder.is_empty() && tombstones.is_empty() && rest.is_some() {
        return Ok(false);
    }
    tombstones
        .into_iter()
        .for_each(|tombstone| builder.push_tombstone(tombstone));
    let mut change = Change::new(core, table);
    let messages = match builder.is_empty() {
        true => Messages::none(),
        false => {
            let run: Arc<Run> = Arc::new(builder.finish());
            merge(&[run], &change.horizon, change.segment_bytes())
        }
    };
    let root = push_to_root(&mut change, state.tree.root.as_ref(), messages)?;
    change.install(root, Some((memtable, rest)))?;
    count(&core.counters.flushes, 1);
    Ok(true)
}

/// Memory of messages above which they are flushed: half of what they may have.
pub(crate) fn flush_above(core: &Core) -> u64 {
    core.options.messages_bytes() / 2
}

/// Flushes the table with the most messages that nobody else works on. False when there is nothing to do.
pub(crate) fn flush_largest(core: &Core) -> Result<bool> {
    for (bytes, table) in core.catalog.by_memory() {
        // What little many tables have is left for the checkpoint, unless it is all there is.
        if bytes == 0 {
            break;
        }
        let _shared = core.structure.read();
        let Some(_change) = table.change.try_lock() else {
            continue;
        };
        let frozen = {
            // Between two batches.
            let _applied = core.applied.lock();
            table.freeze()
        };
        if frozen.is_empty() {
            continue;
        }
        if flush_oldest(core, &table, core.pins.published())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Flushes the oldest frozen memtable of a table.
fn flush_table(core: &Core, table: &Table) -> Result<bool> {
    let _shared = core.structure.read();
    let _change = table.change.lock();
    flush_oldest(core, table, core.pins.published())?;
    Ok(true)
}

/// Flushes until messages take as little memory as they shall. An error other than a full disk stops the engine.
pub(crate) fn flush_down(core: &Core) {
    while core.status.is_running() {
        let urgent = core.urgent.lock().pop();
        let flushed = match urgent {
            Some(table) => flush_table(core, &table),
            None if core.held.bytes() > flush_above(core) => flush_largest(core),
            None => return,
        };
        match flushed {
            Ok(true) => core.is_disk_full.store(false, Ordering::Release),
            Ok(false) => return,
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                core.is_disk_full.store(true, Ordering::Release);
                return;
            }
            Err(error) => {
                core.status.stop(format!("a flush failed: {error}"));
                return;
            }
        }
    }
}
