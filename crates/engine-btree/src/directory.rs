//! The directory: a tree like any other whose rows are the tables.
//!
//! Key: the table's id, big-endian. Value (little-endian, `docs/formats/btree-directory.md`): format version, kind,
//! state, flags, root's level, root's address, creation `Seq`, bytes on disk, volume, compressor, name. Only
//! checkpoints write it. A table that was dropped while a snapshot could still read it keeps a row in the state
//! `dropped`, so that its blocks are found and given back after a crash.

use crate::catalog::Catalog;
use crate::pages::Pages;
use crate::tables::Table;
use crate::tree::{Child, Shape, Tree};
use crate::version::{Change, Value};
use crate::walk::Walk;
use blocks::{BlockAddr, VolumeId};
use bytes::Bytes;
use codec::Codec;
use engine::{Direction, FillLimits, KeyRange, Result, Rows, Seq, TableId, TableKind, TableSpec};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Owner of the directory's blocks; no table has this id.
pub(crate) const DIRECTORY: TableId = TableId(u32::MAX);
const FORMAT_VERSION: u8 = 1;
const ROOT_WITHOUT_SAVED: u8 = 1;
const ROOT_WITH_SAVED: u8 = 2;
const STATE_LIVE: u8 = 0;
const STATE_DROPPED: u8 = 1;
const FLAG_HAS_LARGE: u8 = 1;
/// Version, kind, state, flags, level, address, creation, bytes on disk, volume, length of the compressor's name.
const FIXED_BYTES: usize = 5 + BlockAddr::ENCODED_BYTES + 8 + 8 + 4 + 1;
/// In the place of a compressor's length: the specification named none.
const NO_COMPRESSOR: u8 = 0xff;
/// In the place of the root's level: no rows.
const NO_ROOT: u8 = 0xff;

/// Key and change of a table's row.
pub(crate) type RowChange = (Vec<u8>, Change);

/// Where a tree's root lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootAddress {
    pub(crate) address: BlockAddr,
    pub(crate) level: u8,
}

/// The directory's own shape.
pub(crate) fn shape() -> Shape {
    Shape {
        codec: Codec::Lz4,
        level: None,
        leaf_bytes: 16 << 10,
        large_bytes_min: usize::MAX,
        volume: VolumeId::MAIN,
    }
}

fn encode(table: &Table, root: Option<RootAddress>, state: u8) -> RowChange {
    let tree = &table.tree;
    let mut value = Vec::with_capacity(FIXED_BYTES + table.name.len() + 8);
    let has_large = tree.has_large.load(Ordering::Acquire);
    value.extend_from_slice(&[
        FORMAT_VERSION,
        match table.kind {
            TableKind::Records => 0,
            TableKind::Index => 1,
            TableKind::Small => 2,
            TableKind::Clustered => 3,
        },
        state,
        if has_large { FLAG_HAS_LARGE } else { 0 },
        root.map_or(NO_ROOT, |root| root.level),
    ]);
    match root {
        Some(root) => root.address.encode(&mut value),
        None => value.extend_from_slice(&[0; BlockAddr::ENCODED_BYTES]),
    }
    value.extend_from_slice(&table.created.0.to_le_bytes());
    value.extend_from_slice(&tree.disk_bytes.load(Ordering::Relaxed).to_le_bytes());
    value.extend_from_slice(&tree.shape.volume.0.to_le_bytes());
    match table.compressor() {
        None => value.push(NO_COMPRESSOR),
        Some(name) => {
            value.push(name.len() as u8);
            value.extend_from_slice(name.as_bytes());
        }
    }
    value.extend_from_slice(table.name.as_bytes());
    (
        table.id.0.to_be_bytes().to_vec(),
        Change::Put(Value::Inline(Bytes::from(value))),
    )
}

/// The row of a table, which lives at `position` or was dropped and still has readers.
pub(crate) fn row(table: &Table, root: Option<RootAddress>, position: Seq) -> RowChange {
    let state = if table.lives_at(position) {
        STATE_LIVE
    } else {
        STATE_DROPPED
    };
    encode(table, root, state)
}

/// No row any more.
pub(crate) fn removed(id: TableId) -> RowChange {
    (id.0.to_be_bytes().to_vec(), Change::Delete)
}

/// A row of the directory, taken apart.
pub(crate) struct TableRow {
    pub(crate) spec: TableSpec,
    pub(crate) is_dropped: bool,
    /// `None`: no rows.
    pub(crate) root: Option<RootAddress>,
    pub(crate) created: Seq,
    pub(crate) volume: VolumeId,
    has_large: bool,
    disk_bytes: u64,
}

/// Takes a row apart; `None` for bytes that mean nothing.
pub(crate) fn decode(value: &[u8]) -> Option<TableRow> {
    let fixed = value.get(..FIXED_BYTES)?;
    let kind = match fixed[1] {
        0 => TableKind::Records,
        1 => TableKind::Index,
        2 => TableKind::Small,
        3 => TableKind::Clustered,
        _ => return None,
    };
    if fixed[0] != FORMAT_VERSION || fixed[2] > STATE_DROPPED || fixed[3] & !FLAG_HAS_LARGE != 0 {
        return None;
    }
    let mut at = 5;
    let mut take = |bytes: usize| {
        at += bytes;
        &fixed[at - bytes..at]
    };
    let address = take(BlockAddr::ENCODED_BYTES);
    let root = match fixed[4] {
        NO_ROOT => None,
        level if level <= crate::page::LEVEL_MAX => Some(RootAddress {
            address: BlockAddr::decode(address)?,
            level,
        }),
        _ => return None,
    };
    let created = Seq(u64::from_le_bytes(take(8).try_into().ok()?));
    let disk_bytes = u64::from_le_bytes(take(8).try_into().ok()?);
    let volume = VolumeId(u32::from_le_bytes(take(4).try_into().ok()?));
    let rest = &value[FIXED_BYTES..];
    let (compressor, name) = match take(1)[0] {
        NO_COMPRESSOR => (None, rest),
        length => {
            let (name, rest) = rest.split_at_checked(length as usize)?;
            (Some(std::str::from_utf8(name).ok()?.to_owned()), rest)
        }
    };
    let spec = TableSpec {
        kind,
        name: std::str::from_utf8(name).ok()?.to_owned(),
        compressor,
    };
    Some(TableRow {
        spec,
        is_dropped: fixed[2] == STATE_DROPPED,
        root,
        created,
        volume,
        has_large: fixed[3] & FLAG_HAS_LARGE != 0,
        disk_bytes,
    })
}

/// What a checkpoint's root says.
pub(crate) struct Root {
    /// Where the directory begins.
    pub(crate) directory: Child,
    /// The index of the deltas that were saved.
    pub(crate) saved: Option<BlockAddr>,
}

/// What the block store keeps as a checkpoint's root: version, level, address of the directory, and, where deltas were
/// saved, of their index.
pub(crate) fn encode_root(root: Option<RootAddress>, saved: Option<BlockAddr>) -> Vec<u8> {
    let version = saved.map_or(ROOT_WITHOUT_SAVED, |_| ROOT_WITH_SAVED);
    let mut bytes = vec![version, root.map_or(NO_ROOT, |root| root.level)];
    for address in root.map(|root| root.address).into_iter().chain(saved) {
        address.encode(&mut bytes);
    }
    bytes
}

/// Takes a root apart; `None` for bytes that mean nothing.
pub(crate) fn decode_root(bytes: &[u8]) -> Option<Root> {
    let (&[version, level], addresses) = bytes.split_first_chunk()?;
    let (directory, saved) = match (version, level) {
        (ROOT_WITHOUT_SAVED, NO_ROOT) if addresses.is_empty() => (None, None),
        (ROOT_WITHOUT_SAVED, _) => (Some(addresses), None),
        (ROOT_WITH_SAVED, _) => {
            let (directory, saved) = addresses.split_at_checked(BlockAddr::ENCODED_BYTES)?;
            let saved: &[u8; BlockAddr::ENCODED_BYTES] = saved.try_into().ok()?;
            (Some(directory), Some(BlockAddr::decode(saved)?))
        }
        _ => return None,
    };
    let directory = match directory {
        None => Child::Nothing,
        Some(address) if level > crate::page::LEVEL_MAX || address.len() != BlockAddr::ENCODED_BYTES => return None,
        Some(address) => Child::OnDisk {
            address: BlockAddr::decode(address)?,
            level,
        },
    };
    Some(Root { directory, saved })
}

/// Reads the directory as of `at` into the catalog.
pub(crate) fn load_tables(catalog: &Catalog, pages: &Arc<Pages>, at: Seq) -> Result<()> {
    let mut walk = Walk::new(KeyRange::all(), Direction::Forward);
    let mut rows = Rows::new();
    let damaged = || pages.corrupt(None, "a row of the directory of tables that cannot be".to_owned());
    loop {
        walk.fill(pages, catalog.directory_tree(), at, &mut rows, FillLimits::default())?;
        if rows.is_empty() {
            return Ok(());
        }
        for index in 0..rows.len() {
            let id = TableId(u32::from_be_bytes(rows.key(index).try_into().map_err(|_| damaged())?));
            let row = decode(rows.value(index)).ok_or_else(damaged)?;
            let root = row.root.map_or(Child::Nothing, |root| Child::OnDisk {
                address: root.address,
                level: root.level,
            });
            // The shape comes from the specification and today's options; where its blocks lie, from the row.
            let tree = Tree::new(id, catalog.shape_in(&row.spec, row.volume)?, root);
            tree.disk_bytes.store(row.disk_bytes, Ordering::Relaxed);
            tree.has_large.store(row.has_large, Ordering::Relaxed);
            let table = Arc::new(Table::new(&row.spec, Arc::new(tree), row.created));
            if row.is_dropped {
                // Nobody reads it: the next checkpoint gives its blocks back.
                table.set_dropped(Seq::ZERO.max(at));
            }
            catalog.add(table);
            if row.is_dropped {
                catalog.table_changed(id);
            }
        }
    }
}

#[cfg(test)]
mod layout_tests;
