//! A cursor: one RocksDB iterator with its bounds set, read a batch at a time.

use crate::error::rocks_error;
use crate::layout::{PREFIX_BYTES, put_key};
use crate::view::RocksSnapshot;
use engine::{Cursor, Direction, FillLimits, Result, Rows, TableId};
use rocksdb::ReadOptions;
use self_cell::self_cell;
use std::sync::Arc;

type RawIterator<'a> = rocksdb::DBRawIterator<'a>;

self_cell!(
    struct OwningIterator {
        owner: Arc<RocksSnapshot>,
        #[covariant]
        dependent: RawIterator,
    }
);

/// Reads a range of a table.
pub(crate) struct RocksCursor {
    /// `None` where the range is empty: RocksDB does not say what it makes of bounds that do not rise.
    iterator: Option<OwningIterator>,
    table: TableId,
    direction: Direction,
    /// False until the iterator was moved to its first row.
    placed: bool,
    /// Bounds, as stored keys.
    from: Vec<u8>,
    to: Vec<u8>,
    target: Vec<u8>,
}

impl RocksCursor {
    pub(crate) fn new(
        snapshot: Arc<RocksSnapshot>,
        table: TableId,
        (from, to): (Vec<u8>, Vec<u8>),
        direction: Direction,
    ) -> Self {
        let iterator = (from < to).then(|| {
            OwningIterator::new(snapshot, |snapshot| {
                snapshot.iterate(from.clone(), to.clone(), ReadOptions::default())
            })
        });
        Self {
            iterator,
            table,
            direction,
            placed: false,
            from,
            to,
            target: Vec::new(),
        }
    }
}

impl Cursor for RocksCursor {
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        put_key(self.table, key, &mut self.target);
        let (target, direction) = (&self.target, self.direction);
        let (before_range, after_range) = (*target <= self.from, *target >= self.to);
        if let Some(iterator) = &mut self.iterator {
            iterator.with_dependent_mut(|_, iterator| match direction {
                Direction::Forward if before_range => iterator.seek_to_first(),
                Direction::Forward => iterator.seek(target),
                Direction::Reverse if after_range => iterator.seek_to_last(),
                Direction::Reverse => iterator.seek_for_prev(target),
            });
            self.placed = true;
        }
        Ok(())
    }

    fn fill(&mut self, rows: &mut Rows, limits: FillLimits) -> Result<bool> {
        rows.clear();
        let (direction, placed) = (self.direction, self.placed);
        let Some(iterator) = &mut self.iterator else {
            return Ok(false);
        };
        self.placed = true;
        iterator.with_dependent_mut(|_, iterator| {
            if !placed {
                match direction {
                    Direction::Forward => iterator.seek_to_first(),
                    Direction::Reverse => iterator.seek_to_last(),
                }
            }
            while let Some((key, value)) = iterator.item() {
                rows.push(&key[PREFIX_BYTES..], value);
                match direction {
                    Direction::Forward => iterator.next(),
                    Direction::Reverse => iterator.prev(),
                }
                if limits.are_reached_by(rows) {
                    break;
                }
            }
            iterator.status().map_err(rocks_error("scan"))
        })?;
        Ok(!rows.is_empty())
    }
}
