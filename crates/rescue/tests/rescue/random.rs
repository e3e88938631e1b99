//! Random damage, from seeds.
#![allow(clippy::unwrap_used)]

use crate::generator::{Dice, Entry, Generator, Journal, Made, Spec, documents, lsn, put_i32};
use crate::reading::read;
use std::collections::BTreeSet;

fn seeds(usual: u64) -> Vec<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|text: String| text.parse::<u64>().expect("a number"))
    };
    match number("TENON_RESCUE_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("TENON_RESCUE_RUNS").unwrap_or(usual)).collect(),
    }
}

fn specs(seed: u64) -> Vec<Spec> {
    let mut log = Spec::new("log", documents(30, seed + 1));
    log.is_capped = true;
    log.round = Some((2, 5));
    let mut renamed = Spec::new("renamed", documents(20, seed + 2));
    renamed.old_name = Some("old".to_owned());
    vec![Spec::new("people", documents(40, seed)), log, renamed]
}

fn made(seed: u64, specs: &[Spec]) -> Made {
    let mut generator = Generator::new("shop", seed);
    generator.add_dropped("gone", &documents(9, 99));
    generator.add_dropped("gone", &documents(5, 98));
    generator.make(specs)
}

/// One field of headers is overwritten, with something or with something likely: no document is lost, and none comes
/// out twice or in another collection.
#[test]
fn one_damaged_field_costs_no_document() {
    for seed in seeds(400) {
        println!("TENON_RESCUE_SEED={seed}");
        let specs = specs(seed);
        let mut made = made(seed, &specs);
        let mut dice = Dice(seed ^ 0xDA);
        let name = format!("shop.{}", specs[dice.roll(specs.len())].name);
        let places: Vec<usize> = made.records.values().flatten().map(|place| place.at).collect();
        let value = match dice.roll(6) {
            0 => -1,
            1 => 0,
            2 => dice.roll(1 << 17) as i32,
            3 => made.extents[&name][dice.roll(made.extents[&name].len())].1 as i32,
            4 => places[dice.roll(places.len())] as i32,
            _ => (dice.roll(1 << 32) as u32).cast_signed(),
        };
        let (file, at) = match dice.roll(2) {
            0 => {
                let place = made.place(&name, dice.roll(made.records[&name].len()));
                (place.file, place.at + 4 * dice.roll(4))
            }
            _ => {
                let (file, extent) = made.extents[&name][dice.roll(made.extents[&name].len())];
                // Magic, place, links, first and last record; not the length, which nothing confirms.
                let fields = [0, 4, 8, 12, 16, 20, 24, 160, 164, 168, 172];
                (file, extent + fields[dice.roll(fields.len())])
            }
        };
        put_i32(made.file(file), at, value);
        let everything = read(&made.files);
        for spec in &specs {
            let found = &everything.documents[&format!("shop.{}", spec.name)];
            let set: BTreeSet<_> = found.iter().collect();
            assert_eq!(set.len(), found.len(), "twice in {}", spec.name);
            let expected: BTreeSet<_> = spec.documents.iter().collect();
            assert!(
                set == expected,
                "{}: {file} {at} {value}: {:#?}",
                spec.name,
                everything.findings
            );
        }
    }
}

/// Anything is overwritten: nothing panics or goes on for ever, and what is missing is told.
#[test]
fn losses_are_told() {
    for seed in seeds(400) {
        println!("TENON_RESCUE_SEED={seed}");
        let specs = specs(seed);
        let mut made = made(seed, &specs);
        let mut dice = Dice(seed ^ 0xBE);
        let names: Vec<String> = made.files.keys().cloned().collect();
        for _ in 0..1 + dice.roll(40) {
            let name = &names[dice.roll(names.len())];
            let bytes = made.files.get_mut(name).unwrap();
            let mut at = dice.roll(bytes.len());
            if dice.roll(3) > 0 {
                // Most bytes are nothing.
                at += bytes[at..].iter().position(|&byte| byte != 0).unwrap_or(0);
            }
            let end = (at + 1 + dice.roll(8)).min(bytes.len());
            match dice.roll(4) {
                0 => bytes[at..end].fill(0),
                1 => bytes[at..end].fill(0xFF),
                2 => bytes[at] ^= 1 << dice.roll(8),
                _ => bytes[at..end].iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
            }
        }
        if dice.roll(10) == 0 {
            let name = &names[dice.roll(names.len())];
            let bytes = made.files.get_mut(name).unwrap();
            let length = dice.roll(bytes.len());
            bytes.truncate(length);
        }
        let everything = read(&made.files);
        let found: usize = everything.documents.values().map(Vec::len).sum();
        let expected: usize = made.records.values().map(Vec::len).sum();
        assert!(
            found >= expected || !everything.damages().is_empty(),
            "{found} of {expected}: {:?} of {:?}",
            everything.walked,
            made.records
                .iter()
                .map(|(name, places)| (name, places.len()))
                .collect::<Vec<_>>()
        );
    }
}

/// The journal is damaged anywhere: nothing panics, and each section takes effect whole or not at all.
#[test]
fn sections_are_atomic() {
    for seed in seeds(200) {
        println!("TENON_RESCUE_SEED={seed}");
        let mut made = made(seed, &specs(seed));
        let mut dice = Dice(seed ^ 0x10);
        let mut journal = Journal::new();
        for n in 1..=4u8 {
            let bytes = [n; 16];
            // Two places in the unused part of the headers of two files.
            let entries = [0, 1].map(|file| Entry::Write {
                file,
                at: 4000,
                bytes: &bytes,
            });
            let [first, second] = entries;
            journal.section(1000, &[Entry::Context("shop"), first, second]);
        }
        let mut bytes = journal.bytes();
        for _ in 0..1 + dice.roll(3) {
            let at = dice.roll(bytes.len());
            bytes[at] ^= 1 << dice.roll(8);
        }
        bytes.truncate(bytes.len() - dice.roll(bytes.len()) / 2);
        made.files.insert("journal/j._0".to_owned(), bytes);
        made.files
            .insert("journal/lsn".to_owned(), lsn(dice.roll(20_000) as u64));
        let everything = read(&made.files);
        assert_eq!(everything.documents["shop.people"].len(), 40);
        let directory = crate::reading::open(&made.files).unwrap();
        assert!(directory.replayed().sections <= 4);
        assert_eq!(directory.replayed().writes, 2 * directory.replayed().sections);
    }
}
