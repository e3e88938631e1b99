//! Loads of sorted rows: leaves are written one after the other, the nodes above them at the end.
//!
//! Rows are collected without a lock, since whoever gives them may use the engine meanwhile, and written in
//! slices under `structure`. Until the table has its tree, and until that is part of a checkpoint's position,
//! the blocks are on the list of loads, from which checkpoints know that they do not have them.

use crate::change::Change;
use crate::core::{Core, Load};
use crate::leaf_merge::LeafWriter;
use crate::node::{Child, Leaf, Node};
use crate::push::{Successors, grow};
use crate::run::{Key, OpRef};
use crate::table::Table;
use engine::{EngineError, KEY_BYTES_MAX, Result, Seq, TableId, VALUE_BYTES_MAX};
use parking_lot::RwLockReadGuard;
use std::sync::Arc;

/// Bytes of rows that are collected before they are written.
const SLICE_BYTES: usize = 4 << 20;

type Rows<'r> = dyn Iterator<Item = (Vec<u8>, Vec<u8>)> + 'r;

/// See [`engine::Engine::bulk_load`].
pub(crate) fn load(core: &Core, id: TableId, rows: &mut Rows<'_>, seq: Seq) -> Result<u64> {
    let table = core.catalog.live(id)?;
    check_empty(&table)?;
    {
        let mut loads = core.loads.lock();
        if loads.iter().any(|load| load.table == id && !load.is_installed) {
            return Err(invalid(format!("{id:?} is being loaded")));
        }
        loads.push(Load {
            table: id,
            seq,
            blocks: Vec::new(),
            is_installed: false,
        });
    }
    let mut shared = None;
    let result = write(core, &table, rows, seq, &mut shared);
    if result.is_err() {
        // Before a checkpoint can begin: the blocks are given back, and whoever has one now must not lose it.
        core.loads.lock().retain(|load| load.table != id || load.is_installed);
    }
    drop(shared);
    result
}

fn check_empty(table: &Table) -> Result<()> {
    let state = table.state();
    match state.tree.root.is_none() && state.memtables().all(|memtable| memtable.is_empty()) {
        true => Ok(()),
        false => Err(invalid(format!("{:?} is not empty", table.id))),
    }
}

/// A failed load gives its blocks back with `structure` held, which is left in `shared`.
fn write<'c>(
    core: &'c Core,
    table: &Arc<Table>,
    rows: &mut Rows<'_>,
    seq: Seq,
    shared: &mut Option<RwLockReadGuard<'c, ()>>,
) -> Result<u64> {
    let mut change = Change::new(core, table);
    let row_seq = if seq <= change.horizon.oldest() { Seq::ZERO } else { seq };
    let mut leaves: Successors = Vec::new();
    let mut count = 0;
    let mut last: Option<Vec<u8>> = None;
    let outcome = {
        let mut writer = LeafWriter::new(&mut change, seq);
        writer.begin_region(&[]);
        loop {
            match collect(rows, &mut last) {
                Err(error) => break Err(error),
                Ok(slice) => {
                    let is_last = slice.is_empty();
                    count += slice.len() as u64;
                    let shared = core.structure.read();
                    let written = write_slice(&mut writer, &slice, row_seq, is_last, &mut leaves);
                    let written = written.and_then(|()| note_blocks(core, table.id, &mut writer));
                    drop(shared);
                    if is_last || written.is_err() {
                        break written;
                    }
                }
            }
        }
    };
    shared.replace(core.structure.read());
    outcome?;
    core.status.check_running()?;
    let root = grow(&mut change, leaves, 0)?;
    let _change = table.change.lock();
    check_empty(table)?;
    change.install(root, None)?;
    let mut loads = core.loads.lock();
    let of_table = loads.iter_mut().filter(|load| load.table == table.id);
    of_table.for_each(|load| load.is_installed = true);
    drop(loads);
    core.catalog.note_change(table);
    Ok(count)
}

/// The next rows, checked.
fn collect(rows: &mut Rows<'_>, last: &mut Option<Vec<u8>>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut slice = Vec::new();
    let mut bytes = 0;
    while bytes < SLICE_BYTES {
        let Some((key, value)) = rows.next() else { break };
        if key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(invalid(format!(
                "a row of {} and {} bytes is too long",
                key.len(),
                value.len()
            )));
        }
        if last.as_ref().is_some_and(|last| *last >= key) {
            return Err(invalid(format!("key {key:02x?} does not follow the one before it")));
        }
        bytes += key.len() + value.len() + 16;
        match last {
            Some(last) => last.clone_from(&key),
            None => *last = Some(key.clone()),
        }
        slice.push((key, value));
    }
    Ok(slice)
}

fn write_slice(
    writer: &mut LeafWriter<'_, '_>,
    slice: &[(Vec<u8>, Vec<u8>)],
    seq: Seq,
    is_last: bool,
    leaves: &mut Successors,
) -> Result<()> {
    let node_bytes = u64::from(writer.change.core.options.node_bytes);
    for (key, value) in slice {
        writer.push(key, seq, OpRef::Put(value))?;
        if writer.written_bytes() >= node_bytes {
            add_leaf(writer, leaves);
        }
    }
    if is_last {
        writer.close()?;
        if writer.written_bytes() > 0 {
            add_leaf(writer, leaves);
        }
    }
    Ok(())
}

fn add_leaf(writer: &mut LeafWriter<'_, '_>, leaves: &mut Successors) {
    let basements = writer.take_basements();
    let low: Key = basements
        .first()
        .map_or_else(|| Key::from(&[][..]), |first| first.low.clone());
    leaves.push((low, Child::Memory(Arc::new(Node::Leaf(Leaf { basements })))));
}

/// A checkpoint that begins now leaves them out.
fn note_blocks(core: &Core, table: TableId, writer: &mut LeafWriter<'_, '_>) -> Result<()> {
    let blocks = writer.change.flushed_so_far()?;
    let mut loads = core.loads.lock();
    if let Some(load) = loads.iter_mut().find(|load| load.table == table && !load.is_installed) {
        let known = load.blocks.len();
        load.blocks.extend_from_slice(&blocks[known..]);
    }
    Ok(())
}

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "bulk load",
        reason,
    }
}
