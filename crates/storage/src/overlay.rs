//! A batch that is being gathered, readable: what a unit (or a log entry being replayed) has changed so far, over a
//! snapshot that does not show it yet.
//!
//! Invariant: `index` holds, for each key touched by the first `indexed` operations, the place of the last one of them.
//! Small batches are searched from the end instead; a single insert never builds the index. `ordered` holds the same of
//! a table, in the order of its keys, from when somebody has asked for rows by the beginning of their keys.

use crate::StorageError;
use bytes::Bytes;
use engine::{Batch, Op, Snapshot, TableId};
use hashbrown::HashTable;
use locks::key_hash;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Below this many operations a search from the end is cheaper than hashing.
const INDEX_FROM: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Overlay {
    pub(crate) batch: Batch,
    index: HashTable<u32>,
    indexed: usize,
    ordered: Vec<OrderedRows>,
}

/// The rows of a table that the first `until` operations change: whether each is there then.
struct OrderedRows {
    table: TableId,
    until: usize,
    rows: BTreeMap<Bytes, bool>,
}

fn touched(op: &Op) -> Option<(TableId, &Bytes, Option<&Bytes>)> {
    match op {
        Op::Put(table, key, value) => Some((*table, key, Some(value))),
        Op::Delete(table, key) => Some((*table, key, None)),
        _ => None,
    }
}

fn hash(table: TableId, key: &[u8]) -> u64 {
    (key_hash(key) ^ u64::from(table.0)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn is(op: &Op, table: TableId, key: &[u8]) -> bool {
    touched(op).is_some_and(|(t, k, _)| t == table && k == key)
}

impl Overlay {
    /// Forgets what was gathered behind the first `operations`.
    pub(crate) fn truncate(&mut self, operations: usize) {
        if operations < self.batch.ops().len() {
            self.batch.truncate(operations);
            self.index.clear();
            self.indexed = 0;
            self.ordered.clear();
        }
    }

    /// What the batch does to a key: `None` nothing, `Some(None)` removes it.
    pub(crate) fn find(&mut self, table: TableId, key: &[u8]) -> Option<Option<&Bytes>> {
        let ops = self.batch.ops();
        let at = if ops.len() < INDEX_FROM {
            ops.iter().rposition(|op| is(op, table, key))?
        } else {
            for (place, op) in ops.iter().enumerate().skip(self.indexed) {
                let Some((table, key, _)) = touched(op) else { continue };
                let hash = hash(table, key);
                match self.index.find_mut(hash, |&at| is(&ops[at as usize], table, key)) {
                    Some(at) => *at = place as u32,
                    None => {
                        self.index.insert_unique(hash, place as u32, |&at| {
                            touched(&ops[at as usize]).map_or(0, |(table, key, _)| self::hash(table, key))
                        });
                    }
                }
            }
            self.indexed = ops.len();
            *self
                .index
                .find(hash(table, key), |&at| is(&ops[at as usize], table, key))? as usize
        };
        touched(&ops[at]).map(|(_, _, value)| value)
    }

    /// The rows of a table that the batch changes and whose keys begin with `prefix`, in the order of the keys: whether
    /// each is there then.
    pub(crate) fn with_prefix<'o>(
        &'o mut self,
        table: TableId,
        prefix: &'o [u8],
    ) -> impl Iterator<Item = (&'o Bytes, bool)> + 'o {
        let at = self.ordered.iter().position(|of| of.table == table);
        let at = at.unwrap_or_else(|| {
            self.ordered.push(OrderedRows {
                table,
                until: 0,
                rows: BTreeMap::new(),
            });
            self.ordered.len() - 1
        });
        let OrderedRows { until, rows, .. } = &mut self.ordered[at];
        let ops = self.batch.ops();
        let new = ops[*until..].iter().filter_map(touched).filter(|row| row.0 == table);
        rows.extend(new.map(|(_, key, value)| (key.clone(), value.is_some())));
        *until = ops.len();
        rows.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(key, is_there)| (key, *is_there))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// A row as it will be: the batch's word, else the snapshot's.
    pub(crate) fn get(
        &mut self,
        snapshot: &dyn Snapshot,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<Bytes>, StorageError> {
        match self.find(table, key) {
            Some(value) => Ok(value.cloned()),
            None => Ok(snapshot.get(table, key)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_the_beginning_of_keys_are_those_of_the_batch() {
        let (rows, other) = (TableId(1), TableId(2));
        let mut overlay = Overlay::default();
        let found = |overlay: &mut Overlay, table: TableId, prefix: &str| -> Vec<(String, bool)> {
            let found = overlay.with_prefix(table, prefix.as_bytes());
            found
                .map(|(key, is_there)| (String::from_utf8_lossy(key).into_owned(), is_there))
                .collect()
        };
        let expected = |rows: &[(&str, bool)]| -> Vec<(String, bool)> {
            rows.iter()
                .map(|(key, is_there)| ((*key).to_owned(), *is_there))
                .collect()
        };
        overlay.batch.put(rows, &b"ab"[..], &b""[..]);
        overlay.batch.put(other, &b"ac"[..], &b""[..]);
        assert_eq!(found(&mut overlay, rows, "a"), expected(&[("ab", true)]));
        overlay.batch.put(rows, &b"aa"[..], &b""[..]);
        overlay.batch.delete(rows, &b"ab"[..]);
        overlay.batch.put(rows, &b"b"[..], &b""[..]);
        assert_eq!(found(&mut overlay, rows, "a"), expected(&[("aa", true), ("ab", false)]));
        assert_eq!(found(&mut overlay, other, ""), expected(&[("ac", true)]));
        overlay.truncate(1);
        assert_eq!(found(&mut overlay, rows, ""), expected(&[("ab", true)]));
        assert_eq!(found(&mut overlay, other, ""), expected(&[]));
    }
}
