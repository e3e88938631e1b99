//! A table: its rows, what old snapshots see of them, and when it lived.

use crate::database::Database;
use crate::history::History;
use crate::loc::PAGE_BYTES;
use crate::pager::Pager;
use crate::shared::Shared;
use crate::space::Owner;
use crate::store::{Store, Value, Visit};
use bytes::Bytes;
use engine::{Direction, KeyRange, Result, Seq, TableId, TableSpec};
use parking_lot::{RwLock, RwLockWriteGuard};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// In [`Table::dropped`]: not dropped.
const LIVE: u64 = u64::MAX;

pub(crate) struct Table {
    pub(crate) id: TableId,
    pub(crate) spec: TableSpec,
    pub(crate) database: Arc<Database>,
    created: Seq,
    dropped: AtomicU64,
    /// Held for one operation of a batch, or for one batch of rows read.
    pub(crate) state: RwLock<State>,
    /// How many wait to write to `state`.
    writers_waiting: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) history: History,
    /// How often the store was locked for a change in this run.
    pub(crate) changes: u64,
}

impl Table {
    pub(crate) fn new(id: TableId, spec: TableSpec, database: Arc<Database>, created: Seq, store: Store) -> Self {
        Self {
            id,
            spec,
            database,
            created,
            dropped: AtomicU64::new(LIVE),
            state: RwLock::new(State {
                store,
                history: History::default(),
                changes: 0,
            }),
            writers_waiting: AtomicUsize::new(0),
        }
    }

    pub(crate) fn exists_at(&self, seq: Seq) -> bool {
        self.created <= seq && seq.0 < self.dropped.load(Acquire)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.dropped.load(Acquire) == LIVE
    }

    pub(crate) fn drop_at(&self, seq: Seq) {
        self.dropped.store(seq.0, Release);
    }

    /// The state, for a change of the rows as they are now.
    pub(crate) fn change(&self) -> RwLockWriteGuard<'_, State> {
        let mut state = self.write();
        state.changes += 1;
        state
    }

    /// The state, to be written to. Whoever reads for long gives way: all other writers wait for this one.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.writers_waiting.fetch_add(1, Relaxed);
        let state = self.state.write();
        self.writers_waiting.fetch_sub(1, Relaxed);
        state
    }

    /// Whether somebody waits to write to the state.
    pub(crate) fn has_writers_waiting(&self) -> bool {
        self.writers_waiting.load(Relaxed) > 0
    }

    pub(crate) fn pager<'a>(&'a self, shared: &'a Shared) -> Pager<'a> {
        shared.pager(&self.database, Owner::table(self.id))
    }

    /// Whether a record of so many bytes surely finds room without a new file.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let pages = (bytes + PAGE_BYTES).div_ceil(PAGE_BYTES) as u32;
        let fresh = self.state.read().store.fresh;
        fresh.end - fresh.next >= pages || self.database.space.lock().largest_free_run() >= pages
    }

    /// The value of a key as a snapshot at `seq` sees it.
    pub(crate) fn get(&self, shared: &Shared, key: &[u8], seq: Seq) -> Result<Option<Bytes>> {
        let state = self.state.read();
        if state.history.concerns(seq)
            && let Some(before) = state.history.at(key, seq)
        {
            return Ok(before.cloned());
        }
        state
            .store
            .get(&self.pager(shared), self.spec.kind, key, Bytes::copy_from_slice)
    }

    /// Shows the rows of a range as a snapshot at `seq` sees them, until the visitor has enough.
    pub(crate) fn scan(
        &self,
        shared: &Shared,
        range: &KeyRange,
        direction: Direction,
        seq: Seq,
        visit: &mut dyn FnMut(&[u8], Value<'_>) -> Result<Visit>,
    ) -> Result<()> {
        let state = self.state.read();
        let pager = self.pager(shared);
        let (start, end) = (as_slice(&range.start), as_slice(&range.end));
        let (from, to) = match direction {
            Direction::Forward => (start, end),
            Direction::Reverse => (end, start),
        };
        // Some ranges that leave nothing would make the standard map panic.
        if is_empty(start, end) {
            return Ok(());
        }
        if !state.history.concerns(seq) {
            return state.store.scan(
                &pager,
                from,
                direction,
                &mut |key, value| match passes(key, to, direction) {
                    true => Ok(Visit::Enough),
                    false => visit(key, value),
                },
            );
        }
        // Rows as they are, and between them those that the snapshot sees otherwise.
        let mut other = state
            .history
            .next(from, direction, seq)
            .map(|(key, value)| (key.to_vec(), value.cloned()));
        let mut ended = false;
        let mut show = |key: &[u8], value: Value<'_>| -> Result<Visit> {
            ended = passes(key, to, direction) || visit(key, value)? == Visit::Enough;
            Ok(if ended { Visit::Enough } else { Visit::More })
        };
        state.store.scan(&pager, from, direction, &mut |key, value| {
            while let Some((before, seen)) = other.take_if(|(before, _)| is_before_or_at(before, key, direction)) {
                let next = state.history.next(Bound::Excluded(&before), direction, seq);
                other = next.map(|(key, value)| (key.to_vec(), value.cloned()));
                if let Some(seen) = &seen
                    && show(&before, Value::Here(seen))? == Visit::Enough
                {
                    return Ok(Visit::Enough);
                }
                if before == key {
                    return Ok(Visit::More);
                }
            }
            show(key, value)
        })?;
        while let Some((before, seen)) = other.take() {
            if ended {
                break;
            }
            if let Some(seen) = &seen {
                ended = passes(&before, to, direction) || visit(&before, Value::Here(seen))? == Visit::Enough;
            }
            let next = state.history.next(Bound::Excluded(&before), direction, seq);
            other = next.map(|(key, value)| (key.to_vec(), value.cloned()));
        }
        Ok(())
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}

fn is_before_or_at(left: &[u8], right: &[u8], direction: Direction) -> bool {
    match direction {
        Direction::Forward => left <= right,
        Direction::Reverse => left >= right,
    }
}

/// Whether a key lies behind the end of a scan.
fn passes(key: &[u8], to: Bound<&[u8]>, direction: Direction) -> bool {
    match (to, direction) {
        (Bound::Unbounded, _) => false,
        (Bound::Included(to), Direction::Forward) => key > to,
        (Bound::Excluded(to), Direction::Forward) => key >= to,
        (Bound::Included(to), Direction::Reverse) => key < to,
        (Bound::Excluded(to), Direction::Reverse) => key <= to,
    }
}
