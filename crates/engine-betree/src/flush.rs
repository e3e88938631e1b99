//! Memtables go into their tables' trees, in the background, the largest first.

use crate::change::{Change, PIECE_BUFFERS};
use crate::core::{Core, count};
use crate::merge::merge;
use crate::push::push_to_root;
use crate::run::Key;
use crate::table::Table;
use engine::{ErrorKind, Result, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// And of no more bytes than that: a memtable may be larger than a run can be, and each piece is in memory twice on its
/// way.
const PIECE_BYTES_MAX: usize = 256 << 20;

/// After a flush found the disk full none is tried for so long: each reads and writes much in vain.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

/// Who finds nothing to flush but in a table that somebody else works on waits for it so long, and then looks at all of
/// them anew: a compaction ends its step soon, another flush may take a minute.
const TAKEN_WAIT: Duration = Duration::from_millis(10);

/// What came of looking for something to flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flushed {
    Some,
    Nothing,
    /// Somebody else works on what there is.
    Taken,
}

impl Flushed {
    fn of(is_flushed: bool) -> Self {
        match is_flushed {
            true => Self::Some,
            false => Self::Nothing,
        }
    }
}

/// Puts the messages up to `upto` of the oldest frozen memtable into the tree: false when there are none.
/// Whoever calls holds `structure` and the table's `change`. A table whose root cannot be read is set aside.
pub(crate) fn flush_oldest(core: &Core, table: &Table, upto: Seq) -> Result<bool> {
    let state = table.state();
    let Some(memtable) = state.frozen.last() else {
        return Ok(false);
    };
    let rest = memtable.rest(upto);
    let piece_bytes = (PIECE_BUFFERS * core.options.buffer_bytes as usize).min(PIECE_BYTES_MAX);
    let mut change = Change::new(core, table);
    let mut root = state.tree.root.clone();
    let mut low = Key::from(&[][..]);
    loop {
        let (run, cut) = memtable.piece(&low, upto, piece_bytes);
        if run.is_empty() && low.is_empty() && rest.is_some() {
            return Ok(false);
        }
        if !run.is_empty() {
            let messages = merge(&[Arc::new(run)], &change.horizon, change.segment_bytes());
            root = push_to_root(&mut change, root.as_ref(), messages).inspect_err(|_| {
                if change.met_damage() {
                    core.set_aside(table);
                }
            })?;
        }
        match cut {
            Some(next) => low = next,
            None => break,
        }
    }
    change.install(root, Some((memtable, rest)))?;
    count(&core.counters.flushes, 1);
    Ok(true)
}

/// Memory of messages above which they are flushed: half of what they may have.
pub(crate) fn flush_above(core: &Core) -> u64 {
    core.options.messages_bytes() / 2
}

/// Flushes the table with the most messages that nobody else works on, and where there is none, one that somebody does
/// work on, if it is to be had soon.
fn flush_largest(core: &Core) -> Result<Flushed> {
    let mut taken = None;
    let is_sound = |(_, table): &(u64, Arc<Table>)| !table.is_damaged.load(Ordering::Acquire);
    for (_, table) in core.catalog.by_memory().into_iter().filter(is_sound) {
        let _shared = core.structure.read();
        let Some(_change) = table.change.try_lock() else {
            taken.get_or_insert(table);
            continue;
        };
        if flush_newest_too(core, &table)? {
            return Ok(Flushed::Some);
        }
    }
    // A compaction has it nearly all the time.
    let Some(table) = taken else {
        return Ok(Flushed::Nothing);
    };
    let _shared = core.structure.read();
    let Some(_change) = table.change.try_lock_for(TAKEN_WAIT) else {
        return Ok(Flushed::Taken);
    };
    let is_needed = core.held.bytes() > flush_above(core);
    Ok(Flushed::of(is_needed && flush_newest_too(core, &table)?))
}

/// Flushes the oldest messages of a table, be they frozen or not. Whoever calls holds `structure` and its `change`.
pub(crate) fn flush_newest_too(core: &Core, table: &Table) -> Result<bool> {
    // What an attempt on a full disk froze goes first: else each attempt would leave a small memtable behind.
    if table.state().frozen.is_empty() {
        // Between two batches.
        let _applied = core.applied.lock();
        table.freeze();
    }
    flush_or_set_aside(core, table)
}

/// As [`flush_oldest`]; damage is no error of the others' flushes, and a checkpoint tells of it.
fn flush_or_set_aside(core: &Core, table: &Table) -> Result<bool> {
    match flush_oldest(core, table, core.pins.published()) {
        Err(error) if error.is_of_disk() && table.is_damaged.load(Ordering::Acquire) => Ok(true),
        flushed => flushed,
    }
}

/// Flushes the oldest frozen memtable of a table.
fn flush_table(core: &Core, table: &Table) -> Result<Flushed> {
    let _shared = core.structure.read();
    let _change = table.change.lock();
    flush_or_set_aside(core, table)?;
    Ok(Flushed::Some)
}

/// Flushes until messages take as little memory as they shall. An error other than a full disk, or damage, stops the
/// engine.
pub(crate) fn flush_down(core: &Core) {
    let is_full = core.is_disk_full.load(Ordering::Acquire);
    if is_full && core.clock.monotonic().as_millis() < u128::from(core.flush_again_ms.load(Ordering::Acquire)) {
        return;
    }
    while core.status.is_running() {
        let urgent = core.urgent.lock().pop();
        let flushed = match urgent {
            Some(table) => flush_table(core, &table),
            None if core.held.bytes() > flush_above(core) => flush_largest(core),
            None => return,
        };
        match flushed {
            Ok(Flushed::Some) => core.is_disk_full.store(false, Ordering::Release),
            Ok(Flushed::Taken) => {}
            Ok(Flushed::Nothing) => return,
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                let again = core.clock.monotonic() + FULL_DISK_PAUSE;
                core.flush_again_ms.store(again.as_millis() as u64, Ordering::Release);
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
