//! Arbitrary bytes as a page of the btree engine: an error, or a page that encodes to the same bytes again and finds each of
//! its keys. Never a panic.
//!
//! The first byte chooses: the bytes as they are; or behind a right header's first bytes; or rows from which a page is made.
//! Pages are inside the engine, so their modules are compiled in here.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/engine-btree/src/budget.rs"]
mod budget;
#[path = "../../crates/engine-btree/src/page/mod.rs"]
mod page;

use libfuzzer_sys::fuzz_target;
use page::{KeyParts, LeafBuilder, LeafImage, NewValue, decode_inner, encode_inner};
use std::collections::BTreeMap;

fn check_leaf(raw: &[u8]) {
    let Ok(leaf) = LeafImage::decode(raw) else { return };
    for index in 1..leaf.len() {
        assert!(leaf.key(index - 1).cmp(&leaf.key(index).to_vec()).is_lt());
    }
    for index in 0..leaf.len() {
        assert_eq!(leaf.find(&leaf.key(index).to_vec()), Ok(index));
    }
    let mut again = Vec::new();
    leaf.encode(&mut again);
    if raw[0] == again[0] {
        assert_eq!(again, raw);
    } else {
        let rows = |leaf: &LeafImage| {
            let row = |index| (leaf.key(index).to_vec(), format!("{:?}", leaf.row_to_copy(index).1));
            (0..leaf.len()).map(row).collect::<Vec<_>>()
        };
        assert_eq!(LeafImage::decode(&again).map(|again| rows(&again)), Ok(rows(&leaf)));
    }
}

fn check_inner(raw: &[u8]) {
    let Ok(page) = decode_inner(raw) else { return };
    page.separators.check_invariants();
    for (index, key) in page.separators.iter().enumerate() {
        assert_eq!(page.separators.child_for(&key.to_vec()), index + 1);
    }
    let mut again = Vec::new();
    encode_inner(page.level, &page.separators, &page.children, &mut again);
    assert_eq!(again[1..], raw[1..]);
}

/// Rows, each as two lengths and the bytes.
fn rows(mut data: &[u8]) -> BTreeMap<&[u8], &[u8]> {
    let mut rows = BTreeMap::new();
    while let [key, value, rest @ ..] = data {
        let (key, rest) = rest.split_at(usize::from(*key).min(rest.len()));
        let (value, rest) = rest.split_at(usize::from(*value).min(rest.len()));
        rows.insert(key, value);
        data = rest;
    }
    rows
}

fuzz_target!(|data: &[u8]| {
    let Some((mode, data)) = data.split_first() else { return };
    match mode % 4 {
        0 => {
            check_leaf(data);
            check_inner(data);
        }
        1 => check_leaf(&[&[2, 1, mode / 4 % 4, 0], data].concat()),
        2 => check_inner(&[&[2, 2, 1, 0], data].concat()),
        _ => {
            let rows = rows(data);
            let mut builder = LeafBuilder::new();
            for (key, value) in &rows {
                builder.push(KeyParts::from(*key), NewValue::Inline(value));
            }
            let leaf = builder.finish();
            let mut raw = Vec::new();
            leaf.encode(&mut raw);
            assert_eq!(LeafImage::decode(&raw).map(|leaf| leaf.len()), Ok(rows.len()));
            check_leaf(&raw);
        }
    }
});
