//! The unit of writing.

use crate::{KeyRange, TableId, TableSpec};
use bytes::Bytes;

/// One operation of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Sets a key.
    Put(TableId, Bytes, Bytes),
    /// Removes a key; a missing one is fine.
    Delete(TableId, Bytes),
    /// Removes every key of a range.
    DeleteRange(TableId, KeyRange),
    /// Adds a signed 64-bit little-endian integer to the value and wraps. A missing key, and a value that is not 8
    /// bytes long, count as 0.
    Add(TableId, Bytes, i64),
    /// Creates a table; one of that id that exists with the same kind is fine and keeps its options.
    CreateTable(TableId, TableSpec),
    /// Removes a table and its rows; a missing one is fine.
    DropTable(TableId),
}

/// Operations that take effect together, in order: a later one on the same key wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    ops: Vec<Op>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for so many operations more: many at once do not make it grow by doubling, and neither do the few
    /// that follow them.
    pub fn reserve(&mut self, operations: usize) {
        if operations > 1024 {
            self.ops.reserve_exact(operations + operations / 16);
        }
    }

    /// Adds [`Op::Put`].
    pub fn put(&mut self, table: TableId, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.ops.push(Op::Put(table, key.into(), value.into()));
    }

    /// Adds [`Op::Delete`].
    pub fn delete(&mut self, table: TableId, key: impl Into<Bytes>) {
        self.ops.push(Op::Delete(table, key.into()));
    }

    /// Adds [`Op::DeleteRange`].
    pub fn delete_range(&mut self, table: TableId, range: KeyRange) {
        self.ops.push(Op::DeleteRange(table, range));
    }

    /// Adds [`Op::Add`].
    pub fn add(&mut self, table: TableId, key: impl Into<Bytes>, amount: i64) {
        self.ops.push(Op::Add(table, key.into(), amount));
    }

    /// Adds [`Op::CreateTable`].
    pub fn create_table(&mut self, table: TableId, spec: TableSpec) {
        self.ops.push(Op::CreateTable(table, spec));
    }

    /// Adds [`Op::DropTable`].
    pub fn drop_table(&mut self, table: TableId) {
        self.ops.push(Op::DropTable(table));
    }

    /// The operations in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Moves the operations of another batch behind these.
    pub fn append(&mut self, behind: &mut Self) {
        self.ops.append(&mut behind.ops);
    }

    /// True without operations.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forgets the operations behind the first `operations`.
    pub fn truncate(&mut self, operations: usize) {
        self.ops.truncate(operations);
    }

    /// Forgets the operations and keeps the memory.
    pub fn clear(&mut self) {
        self.ops.clear();
    }
}
