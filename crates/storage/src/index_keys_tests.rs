//! Rows of indexes that an update does not touch are not derived, and would have been the same.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{Calls, Machine, index, ns, pick, seed_of};
use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
use engine::{Direction, FillLimits, KeyRange, Rows};
use vfs::SeededRandom;

const NAMES: [&str; 4] = ["a", "b", "0", "1"];

fn value(random: &SeededRandom, depth: u64) -> Bson {
    match pick(random, 6 + 4 * u64::from(depth < 3)) {
        0 => Bson::Null,
        1 => Bson::Double(1.0),
        2 | 3 => Bson::Int32(pick(random, 3) as i32),
        4 => Bson::String("x".repeat(pick(random, 60) as usize)),
        5 => Bson::Int64(1),
        6 => (0..pick(random, 4)).map(|_| value(random, depth + 1)).collect(),
        _ => Bson::Document(document(random, depth + 1)),
    }
}

fn document(random: &SeededRandom, depth: u64) -> Document {
    (0..pick(random, 5))
        .map(|_| (NAMES[pick(random, 4) as usize].to_owned(), value(random, depth)))
        .collect()
}

/// Changes one place, at any depth.
fn change(random: &SeededRandom, place: &mut Bson) {
    match place {
        Bson::Document(inner) if pick(random, 5) > 0 => {
            let name = NAMES[pick(random, 4) as usize];
            match inner.get_mut(name) {
                Some(_) if pick(random, 5) == 0 => drop(inner.remove(name)),
                Some(value) => change(random, value),
                None => drop(inner.insert(name, value(random, 2))),
            }
        }
        Bson::Array(elements) if !elements.is_empty() && pick(random, 5) > 0 => match pick(random, 4) {
            0 => drop(elements.pop()),
            1 => elements.push(value(random, 2)),
            _ => {
                let at = pick(random, elements.len() as u64) as usize;
                change(random, &mut elements[at]);
            }
        },
        other => *other = value(random, 1),
    }
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).unwrap()
}

#[test]
fn indexes_that_a_difference_does_not_touch_keep_their_rows() {
    let random = SeededRandom::new(seed_of("TENON_SEED"));
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let partial = rawdoc! { "partialFilterExpression": { "b": 1 } };
    let specs = [
        index("a", rawdoc! { "a": 1 }, rawdoc! {}),
        index("ab", rawdoc! { "a.b": 1 }, rawdoc! {}),
        index("a0b", rawdoc! { "a.0.b": -1 }, rawdoc! {}),
        index("a0", rawdoc! { "a.0": 1 }, rawdoc! { "sparse": true }),
        index("ba", rawdoc! { "b.a.a": 1, "1.0": 1 }, rawdoc! {}),
        index("p", rawdoc! { "a.1": 1 }, partial),
    ];
    storage.create_indexes(&op, &ns("c"), &specs).unwrap();
    let guard = storage.locked(&op, "c");
    let (mut kept, mut written, mut difference) = (0, 0, Vec::new());
    for n in 0..6_000 {
        let mut before = doc! { "_id": n, "pad": "y".repeat(200) };
        before.extend(document(&random, 0));
        let mut after = before.clone();
        for _ in 0..=pick(&random, 2) {
            let mut inner = Bson::Document(after.clone());
            change(&random, &mut inner);
            if let Bson::Document(changed) = inner
                && changed.get("_id") == before.get("_id")
            {
                after = changed;
            }
        }
        let (old, new) = (raw(&before), raw(&after));
        if !diff::between(old.as_bytes(), new.as_bytes(), diff::Detail::Compact, &mut difference) {
            continue;
        }
        let versions = Versions {
            old: Some(&old),
            new: Some(&new),
            difference: Some(&difference),
        };
        for index in guard.maintained() {
            let (mut one, id) = (IndexWrites::default(), RecordId::Number(7));
            // Documents that could not be stored.
            if one.derive_one(0, index, &id, None, Some(&old)).is_err()
                || one.derive_one(0, index, &id, None, Some(&new)).is_err()
            {
                continue;
            }
            one.clear();
            one.derive_one(0, index, &id, Some(&old), Some(&new)).unwrap();
            written += usize::from(!one.rows.is_empty());
            if versions.surely_agree_in(index, &|| Ok(())).unwrap() {
                assert!(one.rows.is_empty(), "{} of {before} and {after}", index.name());
                kept += 1;
            }
        }
    }
    assert!(kept > 5_000 && written > 500, "{kept} kept, {written} written");
}

/// A document enters a partial index by a change of a field that is in the filter only.
#[test]
fn a_changed_field_of_a_partial_filter_makes_rows() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let partial = rawdoc! { "partialFilterExpression": { "p": true } };
    storage
        .create_indexes(&op, &ns("c"), &[index("a", rawdoc! { "a": 1 }, partial)])
        .unwrap();
    let pad = "x".repeat(100);
    let id = storage
        .put(&op, "c", rawdoc! { "_id": 1, "a": 1, "pad": &*pad })
        .unwrap();
    let rows = || {
        let guard = storage.locked(&op, "c");
        let table = guard.maintained().nth(1).unwrap().table();
        let snapshot = storage.engine().snapshot().unwrap();
        let mut cursor = snapshot.cursor(table, KeyRange::all(), Direction::Forward).unwrap();
        let mut rows = Rows::new();
        cursor.fill(&mut rows, FillLimits::default()).unwrap();
        rows.len()
    };
    for (belongs, expected) in [(true, 1), (false, 0)] {
        let guard = storage.locked(&op, "c");
        let mut unit = storage.begin_write(&op);
        let old = unit.lock_record(&guard, &id).unwrap().unwrap();
        let new = rawdoc! { "_id": 1, "a": 1, "pad": &*pad, "p": belongs };
        unit.update(&guard, &id, RawDocument::from_bytes::<[u8]>(&old).unwrap(), &new)
            .unwrap();
        unit.commit().unwrap();
        drop(guard);
        assert_eq!(rows(), expected);
        storage.assert_valid(&op, "c");
    }
}

/// Half a million keys were built before anybody asked whether they may be, or whether somebody still waits for them.
#[test]
fn keys_are_not_built_without_room_or_for_nobody() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let indexes = [
        index("one", rawdoc! { "n": 1 }, rawdoc! {}),
        index("two", rawdoc! { "s": 1, "n": 1 }, rawdoc! {}),
    ];
    storage.create_indexes(&op, &ns("c"), &indexes).unwrap();
    let guard = storage.locked(&op, "c");
    let document = raw(&doc! { "_id": 1, "s": "x".repeat(100), "n": (0..50_000).collect::<Vec<_>>() });
    for index in guard.maintained().filter(|index| !index.is_id()) {
        let derive = |writes: &mut IndexWrites, check: &Check<'_>| {
            writes.derive_watched(0, index, &RecordId::Number(1), (None, Some(&document)), check)
        };
        let mut writes = IndexWrites::default();
        derive(&mut writes, &|| Ok(())).unwrap();
        let whole = writes.new.bytes();
        let mut writes = IndexWrites::default();
        writes.rows.bytes_max = 300 << 10;
        let refused = derive(&mut writes, &|| Ok(()));
        assert!(matches!(refused, Err(StorageError::MemoryExceeded(_))), "{refused:?}");
        assert!(
            writes.new.bytes() < whole / 3 && writes.rows.is_empty(),
            "{}",
            index.name()
        );
        let asked = std::cell::Cell::new(0);
        let ended = derive(&mut IndexWrites::default(), &|| {
            asked.set(asked.get() + 1);
            match asked.get() {
                3 => Err(crate::Interrupted::Killed.into()),
                _ => Ok(()),
            }
        });
        assert!(matches!(ended, Err(StorageError::Interrupted(_))), "{ended:?}");
        assert_eq!(asked.get(), 3);
    }
}

/// Whether a document belongs into a partial index may take long: who decides is given what may end it.
#[test]
fn filters_of_partial_indexes_hear_that_an_operation_ended() {
    let machine = Machine::new(1);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let partial = rawdoc! { "partialFilterExpression": { "p": true } };
    storage
        .create_indexes(&op, &ns("c"), &[index("a", rawdoc! { "a": 1 }, partial)])
        .unwrap();
    let guard = storage.locked(&op, "c");
    let (old, new) = (
        raw(&doc! {"_id": 1, "p": true, "a": 1}),
        raw(&doc! {"_id": 1, "p": false, "a": 1}),
    );
    let updated = Versions {
        old: Some(&old),
        new: Some(&new),
        difference: None,
    };
    let mut writes = IndexWrites::default();
    for (versions, rows) in [
        (Versions::inserted(&old), 2),
        (Versions::deleted(&old), 2),
        (updated, 1),
    ] {
        let ended = || Err(crate::Interrupted::Killed.into());
        let derived = writes.derive_checked(&guard, &RecordId::Number(1), versions, &ended);
        assert!(matches!(
            derived,
            Err(StorageError::Interrupted(crate::Interrupted::Killed))
        ));
        writes.derive(&guard, &RecordId::Number(1), versions).unwrap();
        assert_eq!(writes.rows.iter().count(), rows);
    }
}
