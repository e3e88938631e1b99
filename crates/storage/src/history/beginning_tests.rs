//! Where history begins: behind what is gone, and what names of tables were forgotten of.

#![allow(clippy::unwrap_used)]

use super::tests::{inserted_id, member};
use super::*;
use crate::catalog::rows::{self, CATALOG, STATISTICS};
use crate::effect::Effect;
use crate::entry::EntryWriter;
use crate::fold::names_from_row;
use crate::testing::{Calls, Machine, ns, pick};
use bson::rawdoc;
use vfs::SeededRandom;

/// Proposes an entry with counts of a leader whose log begins at `names_from`.
fn forget_names_as_a_leader(storage: &Arc<Storage>, names_from: Seq, change: impl FnOnce(&mut Effect)) {
    let mut order = storage.pipeline.order.lock();
    let mut applied = storage.pipeline.applying.lock();
    let seq = storage.log.last_seq().next();
    let time = storage.next_time(&order, 1);
    let (mut entry, mut effect) = (EntryWriter::default(), Effect::default());
    entry.statistics(Some(seq), names_from, &[]);
    let parts = (Some(seq), names_from);
    effect.statistics(storage, (seq, time.cluster), parts, std::iter::empty());
    change(&mut effect);
    storage
        .propose_under(&mut order, &mut applied, &mut entry, effect)
        .unwrap();
    order.counts_proposed = seq;
}

/// What changed, with the name of the collection then.
fn names_told(storage: &Arc<Storage>, from: Seq) -> Vec<String> {
    let mut reader = storage.history(from, HistoryExtent::Applied);
    let mut told = Vec::new();
    while let Some(unit) = reader.next_unit().unwrap() {
        let inserts = unit
            .operations
            .iter()
            .filter(|operation| matches!(operation.change, HistoryChange::Insert { .. }));
        told.extend(inserts.map(|operation| operation.ns.as_ref().unwrap().collection().to_owned()));
    }
    told
}

/// A renamed collection with a document, and one that was dropped.
fn with_former_names(storage: &Arc<Storage>, op: &Operation) {
    for name in ["first", "gone"] {
        storage.make(op, name, rawdoc! {});
        storage.put(op, name, rawdoc! { "_id": 1 }).unwrap();
    }
    storage
        .rename_collection(op, &ns("first"), &ns("second"), false)
        .unwrap();
    storage.drop_collection(op, &ns("gone")).unwrap();
}

/// All members forgot what tables were called by how far the log of the leader reached back. One whose own log reaches
/// back farther told of changes under later names, and took dropped collections for damage.
#[test]
fn names_are_known_as_long_as_the_members_own_log_needs_them() {
    let machine = Machine::new(16);
    let (storage, op) = (member(&machine), machine.operation());
    with_former_names(&storage, &op);
    forget_names_as_a_leader(&storage, storage.last_seq().next(), |_| {});
    assert_eq!(names_told(&storage, Seq(1)), ["first", "gone"]);
    storage.wait_durable(storage.last_seq()).unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    // By replay.
    let storage = member(&machine);
    assert_eq!(names_told(&storage, Seq(1)), ["first", "gone"]);
    assert_eq!(storage.history_first().unwrap(), Seq(1));
}

/// A member that forgot names its log needs, in an earlier build, has no history before that. A later leader with a
/// longer log does not bring them back.
#[test]
fn what_names_were_forgotten_of_is_lost() {
    for row in [None, Some(names_from_row(Seq(1), Seq(1)))] {
        names_are_forgotten(row);
    }
}

/// By a build that left the row of a later one, if there was any, as it was.
fn names_are_forgotten(row: Option<Vec<u8>>) {
    let leave_row = |effect: &mut Effect| match row.clone() {
        Some(row) => effect.overlay.batch.put(STATISTICS, rows::NAMES_FROM_KEY, row),
        None => effect.overlay.batch.delete(STATISTICS, rows::NAMES_FROM_KEY),
    };
    let machine = Machine::new(17);
    let (storage, op) = (member(&machine), machine.operation());
    with_former_names(&storage, &op);
    let (time, from) = (storage.applied().time, storage.last_seq().next());
    let former = storage.catalog.former_names_before(from, usize::MAX);
    forget_names_as_a_leader(&storage, from, |effect| {
        for (table, until) in former {
            let key = rows::former_name_key(table, until);
            effect.overlay.batch.delete(CATALOG, key);
        }
        leave_row(effect);
    });
    forget_names_as_a_leader(&storage, Seq(1), leave_row);
    storage.put(&op, "second", rawdoc! { "_id": 2 }).unwrap();
    storage.log.flush().unwrap();
    storage.engine.checkpoint().unwrap();
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    for _ in 0..2 {
        let storage = member(&machine);
        assert_eq!(storage.history_first().unwrap(), from);
        let position = storage.history_position(time);
        assert!(matches!(position, Err(StorageError::HistoryLost)), "{position:?}");
        let unit = storage.history(Seq(1), HistoryExtent::Applied).next_unit();
        assert!(matches!(unit, Err(StorageError::HistoryLost)), "{unit:?}");
        assert_eq!(names_told(&storage, from), ["second"]);
        // From here on it is written down.
        forget_names_as_a_leader(&storage, Seq(1), |_| {});
        storage.log.flush().unwrap();
        storage.engine.checkpoint().unwrap();
        drop(storage);
        machine.fs.crash();
        machine.fs.restart();
    }
}

/// The log began within a chain of entries, and the rest of it was told as if it were all: operations had the numbers
/// of others, so that streams that were resumed left some out.
#[test]
fn a_unit_without_its_beginning_is_lost() {
    let machine = Machine::new(18);
    let (storage, op) = (member(&machine), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let random = SeededRandom::new(18);
    let text = || -> String {
        let letter = |_| char::from(b'a' + pick(&random, 26) as u8);
        (0..20_000).map(letter).collect()
    };
    let guard = storage.locked(&op, "c");
    let mut unit = storage.begin_write(&op);
    unit.changes.entry = EntryWriter::with_part_bytes(20_000);
    let chain_first = storage.last_seq().next();
    for n in 0..100 {
        unit.insert(&guard, &rawdoc! { "_id": n, "text": text() }).unwrap();
    }
    unit.commit().unwrap();
    drop(guard);
    let (time, behind) = (storage.applied().time, storage.last_seq().next());
    assert_eq!(storage.history_position(time).unwrap(), chain_first);
    storage.checkpoint().unwrap();
    let first = storage.log().first_seq();
    assert!(
        chain_first < first && first < behind,
        "{first:?} in {chain_first:?}..{behind:?}"
    );
    let position = storage.history_position(time);
    assert!(matches!(position, Err(StorageError::HistoryLost)), "{position:?}");
    // What is kept for all is to begin with it, and it is in front of that.
    let is_lost = || {
        let unit = storage.history(first, HistoryExtent::Applied).next_unit();
        matches!(unit, Err(StorageError::HistoryLost))
    };
    assert!(is_lost());
    let mut kept = storage.history(behind, HistoryExtent::Applied);
    assert!(kept.next_unit().unwrap().is_none());
    assert!(is_lost());
    drop(kept);
    assert_eq!(storage.history_first().unwrap(), behind);
    storage.put(&op, "c", rawdoc! { "_id": 100 }).unwrap();
    let later = storage.applied().time;
    let position = storage.history_position(later).unwrap();
    let unit = storage.history(position, HistoryExtent::Applied).next_unit().unwrap();
    assert_eq!(inserted_id(&unit.unwrap()), 100);
}
