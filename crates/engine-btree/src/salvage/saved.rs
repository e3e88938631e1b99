//! The saved deltas of a damaged store's checkpoint: the rows that they say go before those of the leaves.

use crate::directory::DIRECTORY;
use crate::saved_deltas::{SavedPage, decode_index};
use blocks::{BlockAddr, BlockKind, SalvageReader, VolumeId};
use bytes::Bytes;
use engine::TableId;
use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

type Row = (Vec<u8>, Vec<u8>);
/// What is said of keys; `None`: that they are gone.
type Said = BTreeMap<Vec<u8>, Option<Bytes>>;

/// What could be read of saved deltas.
#[derive(Default)]
pub(super) struct SavedRows {
    tables: BTreeMap<TableId, Said>,
    /// Blocks that cannot be read.
    pub(super) blocks_lost: u64,
}

impl SavedRows {
    pub(super) fn read(reader: &SalvageReader, index: Option<BlockAddr>) -> Self {
        let mut saved = Self::default();
        let Some(index) = index else { return saved };
        let read = |address: &BlockAddr| reader.read(VolumeId::MAIN, address, DIRECTORY.0, BlockKind::Large).ok();
        let Some(pages) = read(&index).and_then(|raw| decode_index(&raw)) else {
            saved.blocks_lost = 1;
            return saved;
        };
        for address in &pages {
            let Some(page) = read(address).and_then(|raw| SavedPage::decode(&raw)) else {
                saved.blocks_lost += 1;
                continue;
            };
            for (table, key, value) in page.rows() {
                saved.tables.entry(table).or_default().insert(key, value);
            }
        }
        saved
    }

    /// The rows of a table, what was saved of it put in the place of what its leaves say.
    pub(super) fn over<I: Iterator<Item = Row>>(&mut self, table: TableId, rows: I) -> Overlaid<I> {
        Overlaid {
            rows: rows.peekable(),
            saved: self.tables.remove(&table).unwrap_or_default().into_iter().peekable(),
        }
    }
}

/// See [`SavedRows::over`].
pub(super) struct Overlaid<I: Iterator<Item = Row>> {
    rows: Peekable<I>,
    saved: Peekable<btree_map::IntoIter<Vec<u8>, Option<Bytes>>>,
}

impl<I: Iterator<Item = Row>> Iterator for Overlaid<I> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        loop {
            let Some((key, _)) = self.saved.peek() else {
                return self.rows.next();
            };
            if let Some(row) = self.rows.next_if(|row| row.0 < *key) {
                return Some(row);
            }
            let _outdated = self.rows.next_if(|row| row.0 == *key);
            let (key, value) = self.saved.next()?;
            if let Some(value) = value {
                return Some((key, value.to_vec()));
            }
        }
    }
}
