//! One key, as a snapshot sees it: memtables, then from the root to a basement, the newest messages first.
//!
//! What lies further down is older. Only within one buffer a tombstone and an entry may lie side by side, in
//! segments of their own; so a tombstone ends the search where the node below begins, and before that hides
//! entries that are older than it is.

use crate::cache::Unit;
use crate::core::{Core, count};
use crate::filter;
use crate::fold::{Seeing, Seen};
use crate::node::{Basement, Node, SegmentPlace};
use crate::run::{self, OpRef, Run};
use crate::table::Table;
use bytes::Bytes;
use engine::{Result, Seq, TableId};
use std::sync::Arc;

/// Longer values are handed out in the memory of their unit.
const COPIED_BYTES_MAX: usize = 2048;

/// The value of a key at a position.
pub(crate) fn get(core: &Core, table: &Table, seq: Seq, key: &[u8]) -> Result<Option<Bytes>> {
    let state = table.state();
    let mut seeing = Seeing::default();
    for memtable in state.memtables() {
        if let Some(found) = memtable.look(key, seq, &mut seeing, |seen| owned(seen, None)) {
            return Ok(found);
        }
    }
    let Some(root) = &state.tree.root else {
        return Ok(owned(seeing.end(), None));
    };
    let hash = filter::hash(key);
    let mut node = core.load_node(table.id, root, None)?;
    loop {
        let inner = match &*node {
            Node::Leaf(leaf) => {
                let Some(index) = leaf.find(key) else {
                    return Ok(owned(seeing.end(), None));
                };
                return look_in_basement(core, table.id, &leaf.basements[index], key, seq, seeing);
            }
            Node::Inner(inner) => inner,
        };
        let slot = &inner.slots[inner.find(key)];
        let mut covered = None;
        for segment in slot.buffer.iter().filter(|segment| segment.may_have(key)) {
            let SegmentPlace::Disk(unit) = &segment.place else {
                unreachable!("segments of a tree that is installed are written")
            };
            if let Some(filter) = segment.filter.as_ref().filter(|_| !segment.has_tombstones)
                && !core.load_filter(table.id, filter)?.may_have(hash)
            {
                count(&core.counters.filter_misses, 1);
                continue;
            }
            let run = core.load_run(table.id, unit)?;
            let over = run.tombstones().iter().filter(|t| t.seq <= seq && t.covers(key));
            covered = covered.max(over.map(|tombstone| tombstone.seq).max());
            if let Some(found) = look(&run, key, seq, covered, &mut seeing) {
                return Ok(owned(found, Some(&run)));
            }
        }
        if covered.is_some() {
            return Ok(owned(seeing.end(), None));
        }
        let below = core.load_node(table.id, &slot.child, Some(inner.height - 1))?;
        node = below;
    }
}

/// Ends a search in a basement. Where rows are not worth their room in the cache, the key is looked up in what the
/// block decompresses to, and the block is kept as it is.
fn look_in_basement(
    core: &Core,
    table: TableId,
    basement: &Basement,
    key: &[u8],
    seq: Seq,
    mut seeing: Seeing,
) -> Result<Option<Bytes>> {
    let (unit, bytes) = (&basement.unit, basement.bytes as usize);
    let run = match core.cache.get(&unit.first) {
        Some(Unit::Run(run)) => run,
        cached if unit.rest.is_some() || core.cache.takes_rows(&unit.first, bytes) => {
            core.load_run_from(table, unit, cached)?
        }
        cached => {
            let mut found = None;
            core.look_in_block(table, unit, cached, |raw| {
                run::visit_key(raw, key, |entry| {
                    if entry.seq <= seq {
                        found = seeing.take(entry.op).map(|seen| owned(seen, None));
                    }
                    found.is_none()
                })
            })?;
            return Ok(found.unwrap_or_else(|| owned(seeing.end(), None)));
        }
    };
    let found = look(&run, key, seq, None, &mut seeing);
    Ok(owned(found.unwrap_or_else(|| seeing.end()), Some(&run)))
}

/// Looks at the versions of a key in one run, those that a tombstone hides left out.
fn look<'r>(run: &'r Arc<Run>, key: &[u8], seq: Seq, covered: Option<Seq>, seeing: &mut Seeing) -> Option<Seen<'r>> {
    for at in run.lower_bound(key)..run.len() {
        let entry = run.entry(at);
        if entry.key != key {
            break;
        }
        if entry.seq > seq {
            continue;
        }
        let op = if covered.is_some_and(|covered| covered > entry.seq) {
            OpRef::Delete
        } else {
            entry.op
        };
        if let Some(seen) = seeing.take(op) {
            return Some(seen);
        }
    }
    None
}

fn owned(seen: Seen<'_>, run: Option<&Arc<Run>>) -> Option<Bytes> {
    match (seen, run) {
        (Seen::Nothing, _) => None,
        (Seen::Number(number), _) => Some(Bytes::copy_from_slice(&number.to_le_bytes())),
        (Seen::Value(value), Some(run)) if value.len() > COPIED_BYTES_MAX => Some(run.raw().slice(run.place_of(value))),
        (Seen::Value(value), _) => Some(Bytes::copy_from_slice(value)),
    }
}
