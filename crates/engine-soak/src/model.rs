//! What must be in an engine: every version of every row, by position.
//!
//! Invariant: the versions of a row rise strictly by position; nothing lies above `newest`.

use bytes::Bytes;
use engine::{Batch, KeyRange, Op, Seq, TableId, TableKind};
use std::collections::BTreeMap;

type Versions = Vec<(Seq, Option<Bytes>)>;

/// A row as a scan yields it.
pub type Row = (Vec<u8>, Bytes);

/// All tables at all positions.
#[derive(Clone, Default)]
pub struct Model {
    tables: BTreeMap<TableId, Table>,
    newest: Seq,
}

#[derive(Clone)]
struct Table {
    kind: TableKind,
    created: Seq,
    dropped: Option<Seq>,
    rows: BTreeMap<Vec<u8>, Versions>,
    /// A load whose rows no checkpoint is known to hold yet, at this position.
    loaded: Option<Seq>,
}

impl Table {
    fn lives_at(&self, at: Seq) -> bool {
        self.created <= at && self.dropped.is_none_or(|dropped| at < dropped)
    }

    fn set(&mut self, key: Vec<u8>, seq: Seq, value: Option<Bytes>) {
        let versions = self.rows.entry(key).or_default();
        match versions.last_mut() {
            Some(last) if last.0 == seq => last.1 = value,
            _ => versions.push((seq, value)),
        }
    }
}

fn seen(versions: &Versions, at: Seq) -> Option<&Bytes> {
    versions.iter().rev().find(|version| version.0 <= at)?.1.as_ref()
}

impl Model {
    /// The newest position applied.
    pub fn newest(&self) -> Seq {
        self.newest
    }

    /// Takes a batch in at `seq`.
    pub fn apply(&mut self, batch: &Batch, seq: Seq) {
        for op in batch.ops() {
            match op {
                Op::Put(table, key, value) => {
                    self.table(*table)
                        .set(key.to_vec(), seq, Some(Bytes::copy_from_slice(value)));
                }
                Op::Delete(table, key) => {
                    let table = self.table(*table);
                    if table.rows.contains_key(&key[..]) {
                        table.set(key.to_vec(), seq, None);
                    }
                }
                Op::DeleteRange(table, range) => self.delete_range(*table, range, seq),
                Op::Add(table, key, amount) => {
                    let table = self.table(*table);
                    let old = table.rows.get(&key[..]).and_then(|versions| seen(versions, seq));
                    let old = old.map_or(0, |value| value[..].try_into().map_or(0, i64::from_le_bytes));
                    let new = old.wrapping_add(*amount).to_le_bytes().to_vec();
                    table.set(key.to_vec(), seq, Some(new.into()));
                }
                Op::CreateTable(id, spec) => {
                    self.tables.entry(*id).or_insert_with(|| Table {
                        kind: spec.kind,
                        created: seq,
                        dropped: None,
                        rows: BTreeMap::new(),
                        loaded: None,
                    });
                }
                Op::DropTable(id) => {
                    if let Some(table) = self.tables.get_mut(id) {
                        table.dropped.get_or_insert(seq);
                    }
                }
            }
        }
        self.newest = self.newest.max(seq);
    }

    fn table(&mut self, id: TableId) -> &mut Table {
        self.tables.get_mut(&id).expect("events name tables that exist")
    }

    fn delete_range(&mut self, id: TableId, range: &KeyRange, seq: Seq) {
        let table = self.table(id);
        let keys: Vec<Vec<u8>> = table.rows.keys().filter(|key| range.contains(key)).cloned().collect();
        for key in keys {
            table.set(key, seq, None);
        }
    }

    /// Takes the rows of a load in.
    pub fn load(&mut self, id: TableId, rows: &[(Vec<u8>, Vec<u8>)], seq: Seq) {
        let table = self.table(id);
        for (key, value) in rows {
            table.set(key.clone(), seq, Some(value.clone().into()));
        }
        table.loaded = Some(seq);
        self.newest = self.newest.max(seq);
    }

    /// A checkpoint that began after all loads has succeeded.
    pub fn loads_are_durable(&mut self) {
        self.tables.values_mut().for_each(|table| table.loaded = None);
    }

    /// Tables whose load may or may not have survived a crash.
    pub fn uncertain_loads(&self) -> Vec<TableId> {
        let uncertain = self.tables.iter().filter(|(_, table)| table.loaded.is_some());
        uncertain.map(|(id, _)| *id).collect()
    }

    /// A load has not survived.
    pub fn unload(&mut self, id: TableId) {
        let table = self.table(id);
        table.rows.clear();
        table.loaded = None;
    }

    /// Forgets all that lies above `seq`.
    pub fn rewind(&mut self, seq: Seq) {
        self.tables.retain(|_, table| table.created <= seq);
        for table in self.tables.values_mut() {
            table.dropped = table.dropped.filter(|dropped| *dropped <= seq);
            table.loaded = table.loaded.filter(|loaded| *loaded <= seq);
            for versions in table.rows.values_mut() {
                versions.retain(|version| version.0 <= seq);
            }
            table.rows.retain(|_, versions| !versions.is_empty());
        }
        self.newest = seq;
    }

    /// Forgets what nobody reads at `low` or above.
    pub fn forget_below(&mut self, low: Seq) {
        self.tables
            .retain(|_, table| table.dropped.is_none_or(|dropped| dropped > low));
        for table in self.tables.values_mut() {
            table.rows.retain(|_, versions| {
                let ground = versions.iter().rposition(|version| version.0 <= low).unwrap_or(0);
                versions.drain(..ground);
                versions.len() > 1 || versions[0].1.is_some() || versions[0].0 > low
            });
        }
    }

    /// The tables that live at a position, with their kinds.
    pub fn tables_at(&self, at: Seq) -> Vec<(TableId, TableKind)> {
        let live = self.tables.iter().filter(|(_, table)| table.lives_at(at));
        live.map(|(id, table)| (*id, table.kind)).collect()
    }

    /// The rows of a table at a position, in a range.
    pub fn rows(&self, id: TableId, range: &KeyRange, at: Seq) -> Vec<Row> {
        let Some(table) = self.tables.get(&id) else {
            return Vec::new();
        };
        let rows = table.rows.iter().filter(|(key, _)| range.contains(key));
        rows.filter_map(|(key, versions)| Some((key.clone(), seen(versions, at)?.clone())))
            .collect()
    }

    /// A row's value at a position.
    pub fn get(&self, id: TableId, key: &[u8], at: Seq) -> Option<Bytes> {
        seen(self.tables.get(&id)?.rows.get(key)?, at).cloned()
    }

    /// The highest key of a table that has or had a row.
    pub fn last_key(&self, id: TableId) -> Option<&[u8]> {
        let (key, _) = self.tables.get(&id)?.rows.last_key_value()?;
        Some(key)
    }

    /// Rows that have versions, of all tables.
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.rows.len()).sum()
    }

    /// True when no row has versions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
