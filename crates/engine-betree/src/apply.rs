//! Batches go into memtables.

use crate::core::{Applied, Core, count};
use crate::run::{OpRef, Tombstone};
use crate::table::{Table, Tree};
use codec::Codec;
use engine::{
    Batch, EngineError, KEY_BYTES_MAX, KeyRange, Op, Result, Seq, TableId, TableKind, TableSpec, VALUE_BYTES_MAX,
};
use std::sync::Arc;

/// Applies a batch at `seq`; nobody else applies one. Answers the bytes of it.
pub(crate) fn apply(core: &Core, applied: &mut Applied, batch: &Batch, seq: Seq) -> Result<u64> {
    core.pins.refresh(&mut applied.horizon);
    count(&core.counters.batches, 1);
    count(&core.counters.operations, batch.ops().len() as u64);
    let mut bytes = 0;
    for (index, op) in batch.ops().iter().enumerate() {
        bytes += match op {
            Op::Put(table, key, value) => {
                check_length("value", value.len(), VALUE_BYTES_MAX)?;
                write(core, applied, *table, key, seq, OpRef::Put(value))?
            }
            Op::Delete(table, key) => write(core, applied, *table, key, seq, OpRef::Delete)?,
            Op::Add(table, key, amount) => write(core, applied, *table, key, seq, OpRef::Add(*amount))?,
            Op::DeleteRange(table, range) => {
                delete_range(core, applied, *table, range, seq, &batch.ops()[..index])?;
                0
            }
            Op::CreateTable(table, spec) => {
                create_table(core, *table, spec, seq)?;
                0
            }
            Op::DropTable(table) => {
                applied.recent = None;
                if let Ok(table) = core.catalog.live(*table) {
                    table.drop_at(seq);
                    core.catalog.note_change(&table);
                }
                0
            }
        };
    }
    core.cache.fit();
    Ok(bytes)
}

fn find(core: &Core, applied: &mut Applied, id: TableId) -> Result<Arc<Table>> {
    if let Some(table) = applied.recent.as_ref().filter(|table| table.id == id) {
        return Ok(table.clone());
    }
    let table = core.catalog.live(id)?;
    applied.recent = Some(table.clone());
    Ok(table)
}

fn write(core: &Core, applied: &mut Applied, table: TableId, key: &[u8], seq: Seq, op: OpRef<'_>) -> Result<u64> {
    check_length("key", key.len(), KEY_BYTES_MAX)?;
    let table = find(core, applied, table)?;
    core.catalog.note_change(&table);
    let (added, removed) = table.active().write(key, seq, op, &applied.horizon);
    core.held.change(added, removed);
    Ok(added as u64)
}

/// One tombstone, however many rows there are. Entries of the same batch stand above it, so that what came
/// before it in the batch is deleted by itself.
fn delete_range(
    core: &Core,
    applied: &mut Applied,
    id: TableId,
    range: &KeyRange,
    seq: Seq,
    before: &[Op],
) -> Result<()> {
    let table = find(core, applied, id)?;
    let Some(tombstone) = Tombstone::new(range, seq) else {
        return Ok(());
    };
    for op in before {
        if let Op::Put(of, key, _) | Op::Delete(of, key) | Op::Add(of, key, _) = op
            && *of == id
            && tombstone.covers(key)
        {
            write(core, applied, id, key, seq, OpRef::Delete)?;
        }
    }
    core.catalog.note_change(&table);
    let memtable = table.active();
    let (added, removed) = memtable.delete_range(tombstone, &applied.horizon);
    core.held.change(added, removed);
    if memtable.tombstones() > crate::memtable::TOMBSTONES_MAX {
        // The next ones go to a memtable of their own, after this batch.
        if !applied.freeze_after.iter().any(|other| Arc::ptr_eq(other, &table)) {
            applied.freeze_after.push(table);
        }
    }
    Ok(())
}

fn create_table(core: &Core, id: TableId, spec: &TableSpec, seq: Seq) -> Result<()> {
    match core.catalog.live(id) {
        Ok(table) if table.kind() == spec.kind => Ok(()),
        Ok(table) => Err(invalid(format!(
            "{id:?} exists as {:?}, not {:?}",
            table.kind(),
            spec.kind
        ))),
        Err(_) => {
            let usual = match spec.kind {
                TableKind::Records | TableKind::Clustered => core.options.collection_compressor,
                TableKind::Index | TableKind::Small => core.options.index_compressor,
            };
            let codec = match &spec.compressor {
                None => usual,
                Some(name) => name.parse::<Codec>().map_err(|error| invalid(error.to_string()))?,
            };
            let table = Arc::new(Table::new(id, spec.clone(), codec, seq, Tree::default()));
            core.catalog.insert(table.clone());
            core.catalog.note_change(&table);
            Ok(())
        }
    }
}

fn check_length(what: &str, length: usize, max: usize) -> Result<()> {
    match length <= max {
        true => Ok(()),
        false => Err(invalid(format!("a {what} of {length} bytes is longer than {max}"))),
    }
}

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "apply",
        reason,
    }
}
