//! What the directory's rows look like, against a checked-in file: a change of format shows in review.

use super::*;
use std::fmt::Write;

const SNAPSHOT: &str = include_str!("../../tests/directory-layout.snapshot");

fn address() -> BlockAddr {
    BlockAddr::decode(&[1, 2, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11]).expect("a length that is not 0")
}

fn table(kind: TableKind, compressor: Option<&str>, name: &str) -> Table {
    let spec = TableSpec {
        kind,
        name: name.to_owned(),
        compressor: compressor.map(ToOwned::to_owned),
    };
    let volume = VolumeId(0x0102_0304);
    let codec = compressor.map_or(Codec::None, |name| name.parse().expect("a compressor"));
    let shape = Shape {
        volume,
        codec,
        ..shape()
    };
    let tree = Tree::new(TableId(7), shape, Child::Nothing);
    tree.disk_bytes.store(0x1112_1314, Ordering::Relaxed);
    tree.has_large.store(compressor.is_some(), Ordering::Relaxed);
    Table::new(&spec, Arc::new(tree), Seq(0x2122_2324_2526_2728))
}

fn value(row: RowChange) -> Bytes {
    match row.1 {
        Change::Put(Value::Inline(bytes)) => bytes,
        _ => unreachable!("a row is put inline"),
    }
}

fn rows() -> Vec<(&'static str, Bytes)> {
    let root = Some(RootAddress {
        address: address(),
        level: 2,
    });
    let with_root = table(TableKind::Records, Some("zstd"), "db.c");
    vec![
        ("with rows", value(encode(&with_root, root, STATE_LIVE))),
        (
            "without rows",
            value(encode(&table(TableKind::Index, None, ""), None, STATE_LIVE)),
        ),
        (
            "dropped",
            value(encode(&table(TableKind::Small, None, "x"), root, STATE_DROPPED)),
        ),
        ("root", encode_root(root, None).into()),
        ("root with saved deltas", encode_root(root, Some(address())).into()),
        ("root without tables", encode_root(None, None).into()),
    ]
}

#[test]
fn layout_snapshot() {
    let mut out = String::new();
    writeln!(out, "row.fixed.bytes {FIXED_BYTES}").expect("a string");
    writeln!(out, "owner {}", DIRECTORY.0).expect("a string");
    for (name, bytes) in rows() {
        writeln!(out, "{name} {} bytes", bytes.len()).expect("a string");
        for line in bytes.chunks(16) {
            let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "  {}", hex.join(" ")).expect("a string");
        }
    }
    assert!(out == SNAPSHOT, "the format has changed; it is now:\n{out}");
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let [(_, whole), ..] = &rows()[..] else {
        unreachable!("there are rows")
    };
    assert!(decode(whole).is_some());
    let clustered = value(encode(&table(TableKind::Clustered, None, "x"), None, STATE_LIVE));
    assert_eq!(clustered[1], 3, "kinds are never renumbered");
    assert!(decode(&clustered).is_some());
    for length in 0..FIXED_BYTES + 4 {
        assert!(decode(&whole[..length]).is_none(), "{length} bytes");
    }
    for (at, byte) in [(0, 2), (1, 4), (2, 2), (3, 2), (4, 49), (11, 0), (37, 200), (38, 0xff)] {
        let mut bytes = whole.to_vec();
        bytes[at] = byte;
        assert!(decode(&bytes).is_none(), "byte {at} is {byte}");
    }
    let roots = [
        encode_root(None, None),
        encode_root(
            Some(RootAddress {
                address: address(),
                level: 2,
            }),
            Some(address()),
        ),
    ];
    for root in &roots {
        assert!(decode_root(root).is_some());
        for length in 0..root.len() {
            assert!(decode_root(&root[..length]).is_none(), "{length} bytes");
        }
        assert!(decode_root(&[&root[..], &[0]].concat()).is_none(), "a byte too many");
    }
    for root in [
        &[3, NO_ROOT][..],
        &[2, NO_ROOT],
        &[1, 0, 1],
        &[1, 49, 1, 2, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11],
    ] {
        assert!(decode_root(root).is_none(), "{root:?}");
    }
}
