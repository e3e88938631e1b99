//! Compaction: a table written anew without holes, and files given back.
//!
//! As MongoDB's did, it keeps writers out while it copies a table. Nothing reaches the disk before a checkpoint, so
//! what is copied must fit into the part of the cache that may be dirty.

use crate::apply::Applier;
use crate::shared::Shared;
use crate::store::{Store, Visit};
use crate::table::Table;
use engine::{Direction, EngineError, ErrorKind, Result};
use std::ops::Bound;
use std::sync::Arc;

/// A table with fewer holes is left alone: one part in so many of its extents.
const HOLES_PART: u64 = 4;

/// Bytes that a table could give back.
fn holes(store: &Store) -> u64 {
    store.storage_bytes().saturating_sub(store.used_bytes)
}

/// Whether copying a table is worth it.
pub(crate) fn is_worth_it(table: &Table) -> bool {
    let state = table.state.read();
    holes(&state.store) > state.store.storage_bytes() / HOLES_PART && state.store.extents.len() > 1
}

/// Copies a table and gives back what it had. The applier is held.
pub(crate) fn compact_table(shared: &Shared, applier: &mut Applier, table: &Arc<Table>, dirty_max: u64) -> Result<()> {
    let old = table.state.read().store.clone();
    if old.used_bytes > dirty_max {
        return Err(EngineError::Backend {
            operation: "compact",
            kind: ErrorKind::Unsupported,
            message: format!(
                "{} has {} bytes to be copied, and the cache has room for {dirty_max} that no checkpoint has written",
                table.spec.name, old.used_bytes
            ),
        });
    }
    let pager = table.pager(shared);
    let mut new = Store {
        moves: old.moves,
        ..Store::default()
    };
    let copied = old.scan(&pager, Bound::Unbounded, Direction::Forward, &mut |key, value| {
        value.with(&pager, |value| new.put(&pager, table.spec.kind, key, value))??;
        Ok(Visit::More)
    });
    if let Err(error) = copied {
        applier.release(&table.database, &new.extents);
        return Err(error);
    }
    table.change().store = new;
    applier.changed.insert(table.id);
    applier.release(&table.database, &old.extents);
    Ok(())
}

/// Gives back the last files of each database in which nothing is left. True when there were some.
pub(crate) fn drop_free_files(shared: &Shared) -> bool {
    let mut any = false;
    for database in shared.all_databases() {
        let mut space = database.space.lock();
        while space.pop_free_file() {
            database.pop_file();
            any = true;
        }
    }
    any
}
