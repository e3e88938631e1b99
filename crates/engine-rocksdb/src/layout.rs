//! Keys and values inside RocksDB.
//!
//! A row's key is its table's id, four bytes big-endian, and then the caller's key. The id `0xFFFFFFFF` is the engine's
//! own: `m` holds the durable mark, `v` the format version, `t` and an id a table's options. Numbers in values are
//! little-endian. `docs/formats/rocksdb.md` is the description.

use engine::{EngineError, KeyRange, Result, TableId, TableKind, TableSpec};
use std::ops::Bound;

/// Version of the layout.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// Bytes of a table's id before every key.
pub(crate) const PREFIX_BYTES: usize = 4;
/// The id no table can have.
pub(crate) const RESERVED: TableId = TableId(u32::MAX);
/// Where the durable mark lies: a `Seq`, 8 bytes.
pub(crate) const MARK_KEY: &[u8] = b"\xFF\xFF\xFF\xFFm";
/// Where the format version lies: 4 bytes.
pub(crate) const VERSION_KEY: &[u8] = b"\xFF\xFF\xFF\xFFv";
/// What the keys of tables' options begin with.
pub(crate) const TABLE_PREFIX: &[u8] = b"\xFF\xFF\xFF\xFFt";

/// Puts the stored form of a key in `out`, replacing what is there.
#[inline]
pub(crate) fn put_key(table: TableId, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&table.0.to_be_bytes());
    out.extend_from_slice(key);
}

/// The stored form of a key.
pub(crate) fn stored_key(table: TableId, key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX_BYTES + key.len());
    put_key(table, key, &mut out);
    out
}

/// The first stored key of a range and the first one after it. Nothing lies inside where they do not rise.
pub(crate) fn stored_range(table: TableId, range: &KeyRange) -> (Vec<u8>, Vec<u8>) {
    let after = |key: &[u8]| {
        let mut stored = stored_key(table, key);
        stored.push(0);
        stored
    };
    let from = match &range.start {
        Bound::Included(key) => stored_key(table, key),
        Bound::Excluded(key) => after(key),
        Bound::Unbounded => stored_key(table, &[]),
    };
    let to = match &range.end {
        Bound::Included(key) => after(key),
        Bound::Excluded(key) => stored_key(table, key),
        Bound::Unbounded => stored_key(TableId(table.0 + 1), &[]),
    };
    (from, to)
}

/// Where a table's options lie.
pub(crate) fn table_key(table: TableId) -> Vec<u8> {
    [TABLE_PREFIX, &table.0.to_be_bytes()].concat()
}

/// A table's options: kind, whether there is a compressor, the name's length (4 bytes), the name, the compressor.
pub(crate) fn encode_spec(spec: &TableSpec) -> Vec<u8> {
    let kind = match spec.kind {
        TableKind::Records => 1,
        TableKind::Index => 2,
        TableKind::Small => 3,
        TableKind::Clustered => 4,
    };
    let mut bytes = vec![kind, u8::from(spec.compressor.is_some())];
    bytes.extend_from_slice(&(spec.name.len() as u32).to_le_bytes());
    bytes.extend_from_slice(spec.name.as_bytes());
    bytes.extend_from_slice(spec.compressor.as_deref().unwrap_or_default().as_bytes());
    bytes
}

pub(crate) fn decode_table(key: &[u8], value: &[u8]) -> Option<(TableId, TableSpec)> {
    let id = u32::from_be_bytes(key.strip_prefix(TABLE_PREFIX)?.try_into().ok()?);
    let (head, rest) = value.split_first_chunk::<6>()?;
    let kind = match head[0] {
        1 => TableKind::Records,
        2 => TableKind::Index,
        3 => TableKind::Small,
        4 => TableKind::Clustered,
        _ => return None,
    };
    let name_bytes = u32::from_le_bytes([head[2], head[3], head[4], head[5]]);
    let (name, compressor) = rest.split_at_checked(name_bytes as usize)?;
    let compressor = match (head[1], compressor) {
        (0, []) => None,
        (1, text) => Some(String::from_utf8(text.to_vec()).ok()?),
        _ => return None,
    };
    Some((
        TableId(id),
        TableSpec {
            kind,
            name: String::from_utf8(name.to_vec()).ok()?,
            compressor,
        },
    ))
}

/// What [`engine::Op::Add`] makes of values: wrapping addition of little-endian numbers, anything else counting as 0.
pub(crate) fn add_values<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let numbers = values.map(|value| value.try_into().map_or(0, i64::from_le_bytes));
    numbers.fold(0, i64::wrapping_add).to_le_bytes().to_vec()
}

pub(crate) fn check_table(operation: &'static str, table: TableId) -> Result<()> {
    if table == RESERVED {
        return Err(EngineError::Invalid {
            operation,
            reason: format!("{table:?} is the engine's own"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_what_the_document_says() {
        let spec = TableSpec {
            kind: TableKind::Index,
            name: "a.b".into(),
            compressor: Some("lz4".into()),
        };
        let lines = [
            format!("version {FORMAT_VERSION}"),
            format!("row key {:02x?}", stored_key(TableId(258), b"k")),
            format!("mark {MARK_KEY:02x?}"),
            format!("version {VERSION_KEY:02x?}"),
            format!("table {:02x?}", table_key(TableId(258))),
            format!("options {:02x?}", encode_spec(&spec)),
        ];
        let expected = include_str!("../tests/layout.snapshot");
        assert_eq!(lines.join("\n"), expected.trim_end());
    }

    #[test]
    fn options_round_trip_and_damage_is_refused() {
        for compressor in [None, Some(String::new()), Some("zstd".to_owned())] {
            let spec = TableSpec {
                kind: TableKind::Small,
                name: "ä".into(),
                compressor,
            };
            let (key, value) = (table_key(TableId(9)), encode_spec(&spec));
            assert_eq!(decode_table(&key, &value), Some((TableId(9), spec)));
            assert_eq!(decode_table(&key[..7], &value), None);
            (0..7).for_each(|length| assert_eq!(decode_table(&key, &value[..length]), None));
            let mut other_kind = value.clone();
            other_kind[0] = 9;
            assert_eq!(decode_table(&key, &other_kind), None);
        }
    }

    #[test]
    fn ranges_stay_inside_their_table() {
        let (from, to) = stored_range(TableId(5), &KeyRange::all());
        assert_eq!((from, to), (vec![0, 0, 0, 5], vec![0, 0, 0, 6]));
        let range = KeyRange {
            start: Bound::Excluded(vec![1]),
            end: Bound::Included(vec![2]),
        };
        assert_eq!(
            stored_range(TableId(5), &range),
            (vec![0, 0, 0, 5, 1, 0], vec![0, 0, 0, 5, 2, 0])
        );
    }
}
