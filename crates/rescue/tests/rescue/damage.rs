//! One kind of damage a test: what is told, and that the rest is rescued.
#![allow(clippy::unwrap_used)]

use crate::generator::{FILE_BYTES, Generator, Made, Spec, documents, put_i32};
use crate::reading::{Everything, read};
use bson::doc;
use std::collections::BTreeSet;

const PEOPLE: &str = "shop.people";
const OTHERS: &str = "shop.others";

fn specs() -> Vec<Spec> {
    vec![
        Spec::new("people", documents(60, 1)),
        Spec::new("others", documents(30, 2)),
    ]
}

fn made() -> Made {
    let mut generator = Generator::new("shop", 11);
    generator.add_dropped("gone", &documents(9, 99));
    generator.make(&specs())
}

fn set(documents: &[Vec<u8>]) -> BTreeSet<Vec<u8>> {
    let set: BTreeSet<_> = documents.iter().cloned().collect();
    assert_eq!(set.len(), documents.len(), "a document came out twice");
    set
}

/// All documents are there, in some order, and something was told.
fn expect_all(everything: &Everything) {
    for spec in specs() {
        let found = set(&everything.documents[&format!("shop.{}", spec.name)]);
        assert!(
            found == set(&spec.documents),
            "{}: {:#?}",
            spec.name,
            everything.findings
        );
    }
    assert!(!everything.findings.is_empty());
}

#[test]
fn a_wrong_field_of_a_record_costs_nothing() {
    let place = made().place(PEOPLE, 11);
    let other = made().place(PEOPLE, 14);
    assert_eq!((place.file, place.extent), (other.file, other.extent));
    // Length, extent, next and previous; nowhere, in the middle of something, at another record, at itself.
    for field in [0, 4, 8, 12] {
        for value in [-1, 0, 8500, other.at as i32, place.at as i32, i32::MIN, i32::MAX] {
            let mut made = made();
            put_i32(made.file(place.file), place.at + field, value);
            let everything = read(&made.files);
            expect_all(&everything);
            let told = everything
                .findings
                .iter()
                .any(|finding| finding.namespace.as_deref() == Some(PEOPLE));
            assert!(told, "{field} {value}: {:?}", everything.findings);
        }
    }
}

#[test]
fn records_between_two_breaks_are_searched_for() {
    let mut made = made();
    for n in [9, 13] {
        let place = made.place(PEOPLE, n);
        put_i32(made.file(place.file), place.at + 8, 123);
        put_i32(made.file(place.file), place.at + 12, 456);
    }
    let everything = read(&made.files);
    expect_all(&everything);
    let told = everything
        .findings
        .iter()
        .any(|finding| finding.to_string().contains("records found in the extent"));
    assert!(told, "{:?}", everything.findings);
}

#[test]
fn a_damaged_document_is_told_with_its_place() {
    let mut made = made();
    let place = made.place(PEOPLE, 20);
    // The type of `_id`.
    made.file(place.file)[place.at + 16 + 4] = 0x77;
    let everything = read(&made.files);
    let mut expected = set(&specs()[0].documents);
    expected.remove(&specs()[0].documents[20]);
    assert_eq!(set(&everything.documents[PEOPLE]), expected);
    assert_eq!(everything.walked[PEOPLE].damaged, 1);
    let damages = everything.damages();
    assert_eq!(damages.len(), 1, "{damages:?}");
    let beginning = format!(
        "shop.{} at {} (shop.people): a damaged document: ",
        place.file, place.at
    );
    assert!(damages[0].starts_with(&beginning), "{damages:?}");
}

#[test]
fn a_document_longer_than_its_record() {
    let mut made = made();
    let place = made.place(PEOPLE, 20);
    put_i32(made.file(place.file), place.at + 16, 1 << 20);
    let everything = read(&made.files);
    assert_eq!(everything.documents[PEOPLE].len(), 59);
    let damages = everything.damages();
    assert!(
        damages[0].contains("a document of 1048576 bytes in a record with room for"),
        "{damages:?}"
    );
}

#[test]
fn wrong_links_between_extents_cost_nothing() {
    let (mine, theirs) = (made().extents[PEOPLE].clone(), made().extents[OTHERS].clone());
    assert!(mine.len() > 4 && theirs.len() > 2);
    // Next and previous link of the third extent: nowhere, to itself, back, to those of another collection, out of all
    // files.
    for field in [12, 20] {
        for (file, at) in [(-1, 0), (0, 0), (77, 8192), (0, 12345), (0, i32::MAX), (-2, -7)]
            .into_iter()
            .chain([mine[2], mine[0], theirs[1], theirs[2]].map(|(file, at)| (file as i32, at as i32)))
        {
            let mut made = made();
            let (number, extent) = mine[2];
            put_i32(made.file(number), extent + field, file);
            put_i32(made.file(number), extent + field + 4, at);
            expect_all(&read(&made.files));
        }
    }
}

#[test]
fn an_extent_without_its_header_is_searched() {
    for n in [0, 2, made().extents[PEOPLE].len() - 1] {
        let mut made = made();
        let (file, extent) = made.extents[PEOPLE][n];
        made.file(file)[extent..extent + 176].fill(0);
        let everything = read(&made.files);
        expect_all(&everything);
        let told = everything
            .findings
            .iter()
            .any(|finding| finding.to_string().contains("the header of the extent is gone"));
        assert!(told, "{:?}", everything.findings);
    }
}

#[test]
fn overlapping_extents_belong_to_one() {
    let mut made = made();
    // An extent says that it goes over its neighbour's.
    let (file, extent) = made.extents[PEOPLE][1];
    put_i32(made.file(file), extent + 156, 40 << 10);
    let everything = read(&made.files);
    // Nobody's documents come out as another's, and what is lost is told.
    let found = set(&everything.documents[PEOPLE]);
    assert!(found.is_subset(&set(&specs()[0].documents)));
    assert!(set(&everything.documents[OTHERS]).is_subset(&set(&specs()[1].documents)));
    assert!(
        everything.damages().iter().any(|text| text.contains("belongs to")),
        "{:?}",
        everything.findings
    );
}

#[test]
fn a_file_that_is_cut_off() {
    let whole = made();
    let place = whole.place(PEOPLE, 40);
    for length in [
        place.at + 30,
        place.at + 4,
        place.extent + 100,
        place.extent,
        9000,
        100,
        0,
    ] {
        let mut made = made();
        made.file(place.file).truncate(length);
        let everything = read(&made.files);
        for spec in specs() {
            let name = format!("shop.{}", spec.name);
            // Whole records in front of the cut are there.
            let left: BTreeSet<_> = (0..spec.documents.len())
                .filter(|&n| {
                    let place_n = whole.place(&name, n);
                    place_n.file != place.file || place_n.at + 16 + spec.documents[n].len() <= length
                })
                .map(|n| spec.documents[n].clone())
                .collect();
            assert!(
                set(&everything.documents[&name]) == left,
                "{length} {name}: {:#?}",
                everything.findings
            );
        }
        assert!(!everything.damages().is_empty());
    }
}

#[test]
fn a_file_that_is_missing() {
    let whole = made();
    let missing = whole.place(PEOPLE, 59).file;
    assert!(missing > 0);
    let mut made = made();
    made.files.remove(&format!("shop.{missing}"));
    let everything = read(&made.files);
    let left: BTreeSet<_> = (0..60)
        .filter(|&n| whole.place(PEOPLE, n).file != missing)
        .map(|n| specs()[0].documents[n].clone())
        .collect();
    assert!(!left.is_empty());
    assert_eq!(set(&everything.documents[PEOPLE]), left);
    assert!(
        everything.damages().iter().any(|text| text.contains("is missing")),
        "{:?}",
        everything.findings
    );
}

#[test]
fn without_a_catalog_collections_are_found_by_their_extents() {
    let mut made = made();
    made.files.remove("shop.ns");
    let everything = read(&made.files);
    expect_all(&everything);
    assert!(!everything.documents.contains_key("shop.gone"));
    assert_eq!(everything.documents.len(), 4, "{:?}", everything.documents.keys());
    assert!(
        everything
            .damages()
            .iter()
            .any(|text| text.contains("the catalog is missing"))
    );
    // In the order of their links, too.
    for spec in specs() {
        assert_eq!(everything.documents[&format!("shop.{}", spec.name)], spec.documents);
    }
}

#[test]
fn without_a_catalog_definitions_are_still_there() {
    let mut specs = specs();
    specs[0]
        .indexes
        .push(doc! { "v": 1, "key": { "a": 1 }, "name": "a_1", "unique": true });
    specs[0].options = doc! { "validationLevel": "moderate" };
    let mut made = Generator::new("shop", 4).make(&specs);
    made.files.remove("shop.ns");
    let directory = crate::reading::open(&made.files).unwrap();
    let database = directory.database("shop").unwrap();
    let people = database
        .collections()
        .iter()
        .find(|collection| collection.name == "people")
        .unwrap();
    assert_eq!(people.indexes.len(), 2);
    assert_eq!(people.options, doc! { "validationLevel": "moderate" });
}

#[test]
fn damaged_entries_of_the_catalog() {
    let entry = |made: &Made, name: &str| {
        let catalog = &made.files["shop.ns"];
        let at = catalog
            .windows(name.len() + 1)
            .position(|window| window == [name.as_bytes(), &[0]].concat());
        at.unwrap() - 4
    };
    // The hash; the name; the first extent; both ends; the whole entry.
    for (offset, length) in [(0, 4), (4, 6), (132, 8), (132, 16), (0, 628)] {
        for byte in [0, 0x21, 0xFF] {
            let mut made = made();
            let at = entry(&made, PEOPLE);
            made.files.get_mut("shop.ns").unwrap()[at + offset..at + offset + length].fill(byte);
            let everything = read(&made.files);
            expect_all(&everything);
        }
    }
}

#[test]
fn free_lists_that_lead_round_or_astray_are_harmless() {
    let mut made = made();
    let catalog = made.files.get_mut("shop.ns").unwrap();
    let at = catalog
        .windows(12)
        .position(|window| window == b"shop.people\0")
        .unwrap()
        - 4
        + 132;
    // The list of free records begins at a document, which is searched for, too.
    let place = made.records[PEOPLE][10];
    put_i32(catalog, at + 16, place.file as i32);
    put_i32(catalog, at + 20, place.at as i32);
    for n in [9, 11] {
        let place = made.place(PEOPLE, n);
        put_i32(made.file(place.file), place.at + 8, 123);
        put_i32(made.file(place.file), place.at + 12, 123);
    }
    // The list of free extents begins at one of a collection.
    let (file, extent) = made.extents[OTHERS][1];
    put_i32(made.file(0), 24, file as i32);
    put_i32(made.file(0), 28, extent as i32);
    let everything = read(&made.files);
    expect_all(&everything);
}

#[test]
fn counts_that_differ_are_told() {
    let mut made = made();
    let catalog = made.files.get_mut("shop.ns").unwrap();
    let at = catalog
        .windows(12)
        .position(|window| window == b"shop.people\0")
        .unwrap()
        - 4
        + 132;
    put_i32(catalog, at + 176, 61);
    let everything = read(&made.files);
    expect_all(&everything);
    assert_eq!(
        everything.damages(),
        ["shop.ns (shop.people): the catalog counts 61 documents, 60 were found"]
    );
}

#[test]
fn a_capped_collection_that_begins_nowhere() {
    let mut log = Spec::new("log", documents(40, 2));
    log.is_capped = true;
    log.round = Some((3, 6));
    let mut made = Generator::new("shop", 1).make(std::slice::from_ref(&log));
    let catalog = made.files.get_mut("shop.ns").unwrap();
    let at = catalog.windows(9).position(|window| window == b"shop.log\0").unwrap() - 4 + 132;
    put_i32(catalog, at + 384, 77);
    let everything = read(&made.files);
    assert_eq!(set(&everything.documents["shop.log"]), set(&log.documents));
    assert_eq!(everything.findings.len(), 1, "{:?}", everything.findings);
    // Its options were lost, its kind was not.
    let directory = crate::reading::open(&made.files).unwrap();
    let database = directory.database("shop").unwrap();
    let found = database
        .collections()
        .iter()
        .find(|collection| collection.name == "log")
        .unwrap();
    assert!(found.options.get_bool("capped").unwrap());
    assert!(found.options.get_i64("size").unwrap() > 4096);
    assert_eq!(FILE_BYTES % 4096, 0);
}
