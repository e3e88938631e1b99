//! Views of all tables at one position.
//!
//! A snapshot holds a position and no memory: versions that it needs stay in memtables, buffers and basements,
//! on disk if need be, until it is gone. So snapshots last, whatever they hold.

use crate::core::Core;
use crate::cursor::BetreeCursor;
use crate::lookup;
use bytes::Bytes;
use engine::{
    Cursor, Direction, Estimate, FillLimits, KeyRange, Result, Rows, SampledRange, Sampling, Seq, Snapshot, TableId,
    estimate_by_sampling,
};
use pins::{Holder, Pin};
use std::sync::Arc;

/// See the module.
pub(crate) struct BetreeSnapshot {
    core: Arc<Core>,
    /// Taken when it is dropped.
    pin: Option<Pin>,
    seq: Seq,
}

impl BetreeSnapshot {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        let pin = core.pins.pin(Holder::Reader);
        Self {
            core: core.clone(),
            seq: pin.seq(),
            pin: Some(pin),
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn position(&self) -> Seq {
        self.seq
    }
}

impl Drop for BetreeSnapshot {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            self.core.pins.unpin(pin);
        }
    }
}

impl Snapshot for BetreeSnapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        let table = self.core.catalog.at(table, self.seq)?;
        lookup::get(&self.core, &table, self.seq, key)
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        let table = self.core.catalog.at(table, self.seq)?;
        Ok(Box::new(BetreeCursor::new(self, table, &range, direction)))
    }

    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        let table_now = self.core.catalog.at(table, self.seq)?;
        // A snapshot of its own would stand elsewhere: this one lends its position for the time of the call.
        let view = Arc::new(Self {
            core: self.core.clone(),
            pin: None,
            seq: self.seq,
        });
        let open = |direction| BetreeCursor::new(view.clone(), table_now.clone(), range, direction);
        let mut sampled = Sampled {
            forward: open(Direction::Forward),
            reverse: open(Direction::Reverse),
            rows: Rows::new(),
        };
        estimate_by_sampling(&mut sampled, splits)
    }
}

struct Sampled {
    forward: BetreeCursor,
    reverse: BetreeCursor,
    rows: Rows,
}

/// Rows of a look at a range.
const LOOK: FillLimits = FillLimits {
    rows_max: 64,
    bytes_max: 256 << 10,
};

impl SampledRange for Sampled {
    fn scan(&mut self, from: &[u8], visit: &mut dyn FnMut(&[u8], usize) -> Sampling) -> Result<()> {
        self.forward.seek(from)?;
        while self.forward.fill(&mut self.rows, LOOK)? {
            for at in 0..self.rows.len() {
                if visit(self.rows.key(at), self.rows.value(at).len()) == Sampling::Enough {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn last_key(&mut self) -> Result<Option<Vec<u8>>> {
        let one = FillLimits {
            rows_max: 1,
            bytes_max: usize::MAX,
        };
        let is_there = self.reverse.fill(&mut self.rows, one)?;
        Ok(is_there.then(|| self.rows.key(0).to_vec()))
    }
}
