//! A snapshot of RocksDB, the position it stands at, and the tables of that position.

use crate::cursor::RocksCursor;
use crate::error::rocks_error;
use crate::estimate::RocksRange;
use crate::layout::{PREFIX_BYTES, put_key, stored_key, stored_range};
use crate::mark::read_mark;
use crate::registry::Registry;
use bytes::Bytes;
use engine::{Cursor, Direction, Estimate, KeyRange, Result, Seq, Snapshot, TableId, estimate_by_sampling};
use rocksdb::{DB, ReadOptions};
use self_cell::self_cell;
use std::cell::RefCell;
use std::sync::Arc;

/// RocksDB's snapshot, with options that name it so that reads need not build them.
pub(crate) struct Pinned<'a> {
    snapshot: rocksdb::Snapshot<'a>,
    options: ReadOptions,
}

self_cell!(
    /// A snapshot together with the database it borrows.
    pub(crate) struct Pin {
        owner: Arc<DB>,
        #[covariant]
        dependent: Pinned,
    }
);

/// A view of all tables.
pub(crate) struct RocksSnapshot {
    pin: Arc<Pin>,
    seq: Seq,
    registry: Arc<Registry>,
}

impl RocksSnapshot {
    /// A view of the database as it is now. The caller knows that this is `seq` and `registry`.
    pub(crate) fn new(db: &Arc<DB>, seq: Seq, registry: Arc<Registry>) -> Self {
        let pin = Pin::new(Arc::clone(db), |db| {
            let snapshot = db.snapshot();
            let mut options = ReadOptions::default();
            options.set_snapshot(&snapshot);
            Pinned { snapshot, options }
        });
        Self {
            pin: Arc::new(pin),
            seq,
            registry,
        }
    }

    /// The same view under a later position, with nothing in between.
    pub(crate) fn at_later(&self, seq: Seq) -> Self {
        Self {
            pin: Arc::clone(&self.pin),
            seq,
            registry: Arc::clone(&self.registry),
        }
    }

    /// The mark in it: where the last batch that it shows ends.
    pub(crate) fn read_mark(&self) -> Result<Seq> {
        read_mark(self.pin.borrow_owner(), &self.pin.borrow_dependent().options)
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A raw iterator over `[from, to)` of the view.
    pub(crate) fn iterate(&self, from: Vec<u8>, to: Vec<u8>, mut options: ReadOptions) -> rocksdb::DBRawIterator<'_> {
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(to);
        options.set_total_order_seek(true);
        self.pin.borrow_dependent().snapshot.raw_iterator_opt(options)
    }
}

thread_local! {
    /// Where `get` puts table id and key together.
    static STORED_KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A longer buffer than this is not kept for the next `get`.
const KEPT_KEY_BYTES: usize = 4096;

impl Snapshot for RocksSnapshot {
    fn seq(&self) -> Seq {
        self.seq
    }

    fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Bytes>> {
        self.registry.check(table)?;
        let options = &self.pin.borrow_dependent().options;
        let found = STORED_KEY.with_borrow_mut(|stored| {
            put_key(table, key, stored);
            let found = self.pin.borrow_owner().get_pinned_opt(&stored[..], options);
            if stored.capacity() > PREFIX_BYTES + KEPT_KEY_BYTES {
                *stored = Vec::new();
            }
            found
        });
        Ok(found
            .map_err(rocks_error("get"))?
            .map(|value| Bytes::copy_from_slice(&value)))
    }

    fn cursor(self: Arc<Self>, table: TableId, range: KeyRange, direction: Direction) -> Result<Box<dyn Cursor>> {
        self.registry.check(table)?;
        let bounds = stored_range(table, &range);
        Ok(Box::new(RocksCursor::new(self, table, bounds, direction)))
    }

    fn estimate(&self, table: TableId, range: &KeyRange, splits: usize) -> Result<Estimate> {
        self.registry.check(table)?;
        let (from, to) = stored_range(table, range);
        if from >= to {
            return Ok(Estimate::default());
        }
        let iterator = self.iterate(from, to, ReadOptions::default());
        estimate_by_sampling(
            &mut RocksRange {
                prefix: stored_key(table, &[]),
                iterator,
            },
            splits,
        )
    }
}
