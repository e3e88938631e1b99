//! The table of tables, and the root of a checkpoint. See `docs/formats/betree.md`.
//!
//! The directory is a table like any other, with rows by table id; only checkpoints write to it.

use crate::bytes_io::{Damage, Reader, put_bytes, put_varint};
use crate::node::{Child, UnitRef};
use crate::table::{Table, Tree};
use codec::Codec;
use engine::{Seq, TableId, TableKind, TableSpec};

/// Its id, which no other table has: ids are given from 1 upwards, and the block store has the last one.
pub(crate) const DIRECTORY: TableId = TableId(u32::MAX - 1);
const VERSION: u8 = 1;
const HAS_ROOT: u8 = 1;
const HAS_COMPRESSOR: u8 = 2;

pub(crate) fn key_of(table: TableId) -> [u8; 4] {
    table.0.to_be_bytes()
}

/// A directory without rows, or with those below `root`.
pub(crate) fn table(root: Option<UnitRef>) -> Table {
    let spec = TableSpec {
        kind: TableKind::Small,
        name: String::new(),
        compressor: None,
    };
    let tree = Tree {
        root: root.map(Child::Disk),
        disk_bytes: 0,
    };
    Table::new(DIRECTORY, spec, Codec::Lz4, Seq::ZERO, tree)
}

pub(crate) fn encode_row(table: &Table, root: Option<&UnitRef>, disk_bytes: u64) -> Vec<u8> {
    let kind = match table.kind() {
        TableKind::Records => 0,
        TableKind::Index => 1,
        TableKind::Small => 2,
        TableKind::Clustered => 3,
    };
    let compressor = table.spec.compressor.as_deref();
    let flags = if root.is_some() { HAS_ROOT } else { 0 } | if compressor.is_some() { HAS_COMPRESSOR } else { 0 };
    let mut row = vec![VERSION, kind, flags, table.codec.tag()];
    put_bytes(&mut row, table.spec.name.as_bytes());
    if let Some(compressor) = compressor {
        put_bytes(&mut row, compressor.as_bytes());
    }
    put_varint(&mut row, disk_bytes);
    if let Some(root) = root {
        root.encode(&mut row);
    }
    row
}

pub(crate) fn decode_row(key: &[u8], row: &[u8]) -> Result<Table, Damage> {
    let id = TableId(u32::from_be_bytes(key.try_into().map_err(|_| "a table's id")?));
    let mut reader = Reader::new(row);
    if reader.u8()? != VERSION {
        return Err("a version of the directory");
    }
    let kind = match reader.u8()? {
        0 => TableKind::Records,
        1 => TableKind::Index,
        2 => TableKind::Small,
        3 => TableKind::Clustered,
        _ => return Err("a table's kind"),
    };
    let flags = reader.u8()?;
    if flags > 3 {
        return Err("a table's flags");
    }
    let codec = Codec::from_tag(reader.u8()?).map_err(|_| "a table's codec")?;
    let mut text =
        || -> Result<String, Damage> { String::from_utf8(reader.bytes()?.to_vec()).map_err(|_| "a table's name") };
    let name = text()?;
    let compressor = if flags & HAS_COMPRESSOR != 0 {
        Some(text()?)
    } else {
        None
    };
    let disk_bytes = reader.varint()?;
    let root = match flags & HAS_ROOT {
        0 => None,
        _ => Some(Child::Disk(UnitRef::decode(&mut reader)?)),
    };
    if !reader.is_at_end() {
        return Err("bytes behind a row of the directory");
    }
    let spec = TableSpec { kind, name, compressor };
    Ok(Table::new(id, spec, codec, Seq::ZERO, Tree { root, disk_bytes }))
}

/// What the block store keeps with a checkpoint.
pub(crate) fn encode_root(root: Option<&UnitRef>) -> Vec<u8> {
    let mut out = vec![VERSION, u8::from(root.is_some())];
    if let Some(root) = root {
        root.encode(&mut out);
    }
    out
}

pub(crate) fn decode_root(bytes: &[u8]) -> Result<Option<UnitRef>, Damage> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != VERSION {
        return Err("a version of a checkpoint's root");
    }
    let root = match reader.u8()? {
        0 => None,
        1 => Some(UnitRef::decode(&mut reader)?),
        _ => return Err("a checkpoint's root"),
    };
    if !reader.is_at_end() {
        return Err("bytes behind a checkpoint's root");
    }
    Ok(root)
}
