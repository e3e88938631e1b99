//! What the pages' formats look like, against a checked-in file: a change of format shows in review.

use super::inner::{INNER_HEADER_BYTES, KIND_INNER, SEPARATOR_BYTES_MAX};
use super::leaf::LEAF_ROW_BYTES_MAX;
use super::leaf_format::{
    COMMON_KEY_LENGTH, COMMON_VALUE, CUT, FORMAT_VERSION, KIND_LEAF, LEAF_HEADER_BYTES, ROW_BYTES_MIN,
};
use super::leaf_sections::SECTION_BYTES;
use super::tests::address;
use super::*;
use std::fmt::Write;

const SNAPSHOT: &str = include_str!("../../tests/page-layout.snapshot");

fn dump(out: &mut String, name: &str, raw: &[u8]) {
    writeln!(out, "{name} {} bytes", raw.len()).expect("a string");
    for line in raw.chunks(16) {
        let hex: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = line
            .iter()
            .map(|&byte| if byte.is_ascii_graphic() { byte as char } else { '.' });
        writeln!(out, "  {:47} {}", hex.join(" "), text.collect::<String>()).expect("a string");
    }
}

fn layout() -> String {
    let mut out = String::new();
    for (name, number) in [
        ("page.version", usize::from(FORMAT_VERSION)),
        ("leaf.kind", usize::from(KIND_LEAF)),
        ("leaf.header.bytes", LEAF_HEADER_BYTES),
        ("leaf.common.key_length", usize::from(COMMON_KEY_LENGTH)),
        ("leaf.common.value", usize::from(COMMON_VALUE)),
        ("leaf.cut", usize::from(CUT)),
        ("leaf.section.bytes", SECTION_BYTES),
        ("leaf.row.bytes.min", ROW_BYTES_MIN),
        ("leaf.row_bytes.max", LEAF_ROW_BYTES_MAX),
        ("large.chunk.bytes", LARGE_CHUNK_BYTES),
        ("large.total.max", engine::VALUE_BYTES_MAX),
        ("inner.kind", usize::from(KIND_INNER)),
        ("inner.header.bytes", INNER_HEADER_BYTES),
        ("inner.level.max", usize::from(LEVEL_MAX)),
        ("inner.key_bytes.max", SEPARATOR_BYTES_MAX),
        ("address.bytes", blocks::BlockAddr::ENCODED_BYTES),
    ] {
        writeln!(out, "{name} {number}").expect("a string");
    }

    let large = LargeRef::encode(300_000, &[address(1), address(2)]);
    let large = LargeRef::from_cell(&large).expect("made by encode");
    let long_key = [b"apple ".as_slice(), &[b'y'; 130]].concat();
    let leaf = LeafImage::from_rows([
        (b"apple pie".as_slice(), NewValue::Inline(b"one")),
        (b"apple pies", NewValue::Inline(b"")),
        (b"apple tart", NewValue::Large(large)),
        (&long_key, NewValue::Inline(&[b'v'; 70])),
    ]);
    let mut raw = Vec::new();
    leaf.encode(&mut raw);
    dump(&mut out, "leaf", &raw);

    raw.clear();
    let entries = ["tea 01", "tea 02", "ten 01"].map(|key| (key.as_bytes(), NewValue::Inline(b"")));
    LeafImage::from_rows(entries).encode(&mut raw);
    dump(&mut out, "leaf of an index", &raw);

    raw.clear();
    let long = ["tea 01", "tea 02", "ten 01"].map(|key| (key.as_bytes(), NewValue::Inline(&[b'v'; SECTION_BYTES])));
    let mut cuts = Vec::new();
    LeafImage::from_rows(long).encode_in_sections(&mut raw, &mut cuts);
    writeln!(out, "sections of a leaf {cuts:?}").expect("a string");
    dump(&mut out, "what stands in front of them", &raw[..cuts[0]]);

    raw.clear();
    let separators = Separators::from_keys(&["tenon", "tens", "tenth"]);
    encode_inner(
        1,
        &separators,
        &[address(1), address(2), address(3), address(4)],
        &mut raw,
    );
    dump(&mut out, "inner", &raw);
    out
}

#[test]
fn the_layout_is_as_checked_in() {
    let layout = layout();
    assert!(
        layout == SNAPSHOT,
        "the format changed; if that is meant, tests/page-layout.snapshot is now:\n{layout}"
    );
}
