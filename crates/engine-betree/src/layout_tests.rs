//! Samples of everything that is stored, as bytes, against `tests/layout.snapshot`: what changes there changes
//! the format.

use crate::directory;
use crate::filter::{self, Filter};
use crate::node::{Basement, Child, Inner, Leaf, Node, Segment, SegmentPlace, Slot, UnitRef};
use crate::run::{Key, OpRef, Run, RunBuilder, Tombstone};
use crate::table::{Table, Tree};
use blocks::BlockAddr;
use codec::Codec;
use engine::{Seq, TableId, TableKind, TableSpec};
use std::fmt::Write;

fn addr(number: u8) -> BlockAddr {
    BlockAddr::decode(&[number, 0, 0, 0, 0, 0, 1, 0, number, number, number, number]).expect("it has a length")
}

fn unit(numbers: &[u8]) -> UnitRef {
    UnitRef {
        first: addr(numbers[0]),
        rest: (numbers.len() > 1).then(|| numbers[1..].iter().map(|number| addr(*number)).collect()),
    }
}

fn key(text: &str) -> Key {
    text.as_bytes().into()
}

fn run() -> Run {
    let mut builder = RunBuilder::new(Seq(300));
    builder.push(b"a", Seq::ZERO, OpRef::Put(b"value"));
    builder.push(b"b", Seq(300), OpRef::Add(-2));
    builder.push(b"b", Seq(100), OpRef::Delete);
    builder.push_tombstone(Tombstone {
        start: key("c"),
        end: Some(key("d")),
        seq: Seq(200),
    });
    builder.push_tombstone(Tombstone {
        start: key("x"),
        end: None,
        seq: Seq(7),
    });
    builder.finish()
}

fn leaf() -> Node {
    let basement = |low: &str, numbers: &[u8], has_history| Basement {
        low: key(low),
        unit: unit(numbers),
        entries: 500,
        bytes: 40_000,
        has_history,
    };
    Node::Leaf(Leaf {
        basements: vec![basement("", &[1], false), basement("m", &[2, 3], true)],
    })
}

fn inner() -> Node {
    let segment = |filter, has_tombstones, end| Segment {
        place: SegmentPlace::Disk(unit(&[9])),
        filter,
        entries: 3,
        bytes: 77,
        has_tombstones,
        first: key("a"),
        end,
    };
    let slot = |number, buffer| Slot {
        child: Child::Disk(unit(&[number])),
        buffer,
    };
    Node::Inner(Inner {
        height: 1,
        pivots: vec![key("k")],
        slots: vec![
            slot(
                4,
                vec![segment(Some(addr(8)), false, Some(key("b"))), segment(None, true, None)],
            ),
            slot(5, Vec::new()),
        ],
    })
}

#[test]
fn the_layout_is_as_it_was() {
    let spec = TableSpec {
        kind: TableKind::Index,
        name: "db.rows".to_owned(),
        compressor: Some("zlib".to_owned()),
    };
    let table = Table::new(TableId(7), spec, Codec::Zlib, Seq(3), Tree::default());
    let samples = [
        ("run", run().raw().to_vec()),
        ("leaf", leaf().encode()),
        ("inner", inner().encode()),
        (
            "filter",
            Filter::of(&[filter::hash(b"a"), filter::hash(b"longer than eight")])
                .raw()
                .to_vec(),
        ),
        ("directory key", directory::key_of(TableId(7)).to_vec()),
        ("directory row", directory::encode_row(&table, Some(&unit(&[6])), 1000)),
        ("root", directory::encode_root(Some(&unit(&[7])))),
        ("no root", directory::encode_root(None)),
    ];
    let mut text = String::new();
    for (name, bytes) in &samples {
        let hex: String = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = writeln!(text, "{name}: {hex}");
    }
    assert_eq!(text, include_str!("../tests/layout.snapshot"), "\n{text}");
}

#[test]
fn every_cut_and_every_flipped_byte_is_damage_or_another_node() {
    for node in [leaf(), inner()] {
        let bytes = node.encode();
        assert_eq!(Node::decode(&bytes).expect("its own bytes").encode(), bytes);
        for at in 0..bytes.len() {
            assert!(Node::decode(&bytes[..at]).is_err(), "cut to {at} bytes");
            let mut other = bytes.clone();
            other[at] ^= 0xff;
            // Never a panic; what is accepted is a node.
            if let Ok(node) = Node::decode(&other) {
                assert_eq!(node.check(), Ok(()));
            }
        }
    }
    let run = run();
    let bytes = run.raw().to_vec();
    for at in 0..bytes.len() {
        assert!(Run::decode(bytes[..at].to_vec().into()).is_err(), "cut to {at} bytes");
        let mut other = bytes.clone();
        other[at] ^= 0xff;
        if let Ok(run) = Run::decode(other.into()) {
            assert!((0..run.len()).all(|at| run.entry(at).key.len() <= run.raw().len()));
        }
    }
}
