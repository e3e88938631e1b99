//! Bulk loads: a store of its own, filled beside everything, and put into the table at the end.
//!
//! Until then its extents belong to nobody in particular: a checkpoint may write its pages, and after a crash they
//! are free.

use crate::apply::Applier;
use crate::shared::Shared;
use crate::space::Owner;
use crate::store::Store;
use engine::{EngineError, KEY_BYTES_MAX, Result, TableId, VALUE_BYTES_MAX};
use parking_lot::Mutex;

/// Bytes between two looks at whether checkpoints keep up.
const PACE_BYTES: usize = 1 << 20;

/// See [`engine::Engine::bulk_load`]. `pace` waits until more may become dirty; what it fails with ends the load.
pub(crate) fn load(
    shared: &Shared,
    applier: &Mutex<Applier>,
    id: TableId,
    rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
    pace: &dyn Fn() -> Result<()>,
) -> Result<u64> {
    let table = shared.live_table(id)?;
    let is_empty = || table.state.read().store.rows == 0;
    let not_empty = || invalid(format!("{id:?} is not empty"));
    if !is_empty() {
        return Err(not_empty());
    }
    let pager = shared.pager(&table.database, Owner::UNFINISHED);
    let mut store = Store::default();
    let fill = || -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        let mut unpaced_bytes = 0;
        // Many small loads are one large one.
        pace()?;
        for (key, value) in rows {
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
            store.put(&pager, table.spec.kind, &key, &value)?;
            unpaced_bytes += key.len() + value.len();
            last = Some(key);
            if unpaced_bytes >= PACE_BYTES {
                unpaced_bytes = 0;
                pace()?;
            }
        }
        Ok(())
    };
    let filled = fill();
    let mut applier = applier.lock();
    shared.check_open()?;
    let result = filled.and_then(|()| {
        if table.is_live() && is_empty() {
            Ok(store.rows)
        } else {
            Err(not_empty())
        }
    });
    if result.is_err() {
        applier.release(&table.database, &store.extents);
        return result;
    }
    {
        let mut space = table.database.space.lock();
        store
            .extents
            .iter()
            .for_each(|&extent| space.set_owner(extent, Owner::table(id)));
    }
    let mut state = table.change();
    store.moves = state.store.moves;
    let before = std::mem::replace(&mut state.store, store);
    drop(state);
    applier.release(&table.database, &before.extents);
    applier.changed.insert(id);
    result
}

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "bulk load",
        reason,
    }
}
