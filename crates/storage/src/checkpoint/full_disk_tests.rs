//! A log that fills the disk: a checkpoint gives it back before a write is refused.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::*;
use crate::{Operation, RecordId};
use bson::{RawDocumentBuf, rawdoc};
use oplog::Retention;
use vfs::{Fault, FaultKind, Random, SeededRandom};

const SEGMENT_BYTES: u64 = oplog::SEGMENT_BYTES_MIN;
const DOCUMENTS: i32 = 5;

/// A machine with five documents and little space.
fn with_documents(kind: Kind, retention: Retention, free_bytes: u64) -> (Machine, Arc<Storage>, Vec<RecordId>) {
    let mut machine = Machine::new(1);
    // As in life a segment takes many frames, and more than is in memory.
    (machine.frame_bytes, machine.buffer_bytes) = (Some(700), Some((1_000, 50_000)));
    (machine.kind, machine.retention, machine.background) = (kind, retention, true);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let put = |id| storage.put(&op, "c", document(id, 0)).unwrap();
    let ids = (0..DOCUMENTS).map(put).collect();
    storage.checkpoint().unwrap();
    machine.fs.set_free_bytes(Some(free_bytes));
    (machine, storage, ids)
}

/// A text that no compressor shortens by much.
fn document(id: i32, round: i32) -> RawDocumentBuf {
    let random = SeededRandom::new(((id as u64) << 32) | round as u64);
    let text: String = (0..16).map(|_| format!("{:016x}", random.next_u64())).collect();
    rawdoc! { "_id": id, "round": round, "text": text }
}

/// Writes a document over.
fn rewrite(storage: &Arc<Storage>, op: &Operation, ids: &[RecordId], round: i32) -> Result<(), StorageError> {
    let id = round % DOCUMENTS;
    storage.replace(op, "c", ids[id as usize].clone(), document(id, round))
}

fn rounds(storage: &Arc<Storage>) -> Vec<i32> {
    let rows = storage.all("c").into_iter();
    rows.map(|(_, document)| document.get_i32("round").unwrap()).collect()
}

/// The log filled the disk, and the checkpoint that would have freed it could not write to the log what it begins with:
/// each write was refused for ever, and an orderly end lost what had been acknowledged.
#[test]
fn a_log_that_fills_the_disk_is_freed_by_a_checkpoint() {
    let history = Retention {
        bytes: 1 << 30,
        ..Retention::default()
    };
    // A member's history goes when there is no room for it.
    for retention in [Retention::default(), history] {
        let (machine, storage, ids) = with_documents(Kind::Btree, retention, 150_000 + 4 * SEGMENT_BYTES);
        let op = machine.operation();
        let checkpoints = storage.stats().checkpoints;
        for round in 1..=280 {
            // With segments as small as here another's flush may take the room that was found.
            let taken = (0..20).any(|_| rewrite(&storage, &op, &ids, round).is_ok());
            assert!(taken, "round {round}: {:?}", storage.log().stats());
        }
        assert!(storage.stats().checkpoints > checkpoints, "{:?}", storage.stats());
        assert_eq!(rounds(&storage), [280, 276, 277, 278, 279]);
        storage.close(true).unwrap();
        drop(storage);
        let storage = machine.open().unwrap();
        assert_eq!(rounds(&storage), [280, 276, 277, 278, 279]);
        storage.assert_valid(&op, "c");
    }
}

/// Where nothing can go, writes are refused while all that was taken is safe, and an orderly end keeps it.
#[test]
fn what_is_taken_on_a_full_disk_outlasts_an_orderly_end() {
    let (machine, storage, _) = with_documents(Kind::Btree, Retention::default(), SEGMENT_BYTES);
    let op = machine.operation();
    // New documents, for which the engine has no room either.
    let put = |round: i32| storage.put(&op, "c", document(DOCUMENTS + round, round));
    let full = (1..10_000).find_map(|round| put(round).err());
    assert!(matches!(full, Some(StorageError::OutOfSpace(_))), "{full:?}");
    let taken = rounds(&storage);
    assert!(taken.len() > DOCUMENTS as usize, "{taken:?}");
    // The engine's files may find no room; the log has it all.
    let closed = storage.close(true);
    assert!(
        matches!(closed, Err(StorageError::OutOfSpace(_)) | Ok(())),
        "{closed:?}"
    );
    drop(storage);
    machine.fs.crash();
    machine.fs.restart();
    machine.fs.set_free_bytes(None);
    assert_eq!(rounds(&machine.open().unwrap()), taken);
}

/// Segments that something still needed when a checkpoint was taken stayed for ever on a full disk: writes were
/// refused, and so no other checkpoint was due.
#[test]
fn what_a_copy_has_kept_goes_when_that_has_ended() {
    let mut machine = Machine::new(1);
    (machine.frame_bytes, machine.buffer_bytes) = (Some(700), Some((1_000, 50_000)));
    machine.kind = Kind::Btree;
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    storage.make(&op, "c", rawdoc! {});
    let put = |id| storage.put(&op, "c", document(id, 0)).unwrap();
    let ids: Vec<_> = (0..DOCUMENTS).map(put).collect();
    let copy = storage.begin_clone().unwrap();
    for round in 1..=100 {
        rewrite(&storage, &op, &ids, round).unwrap();
    }
    storage.checkpoint().unwrap();
    let kept = storage.log().stats().segments;
    assert!(kept > 2, "{kept}");
    machine.fs.set_free_bytes(Some(0));
    let full = (101..1_000).find_map(|round| rewrite(&storage, &op, &ids, round).err());
    assert!(matches!(full, Some(StorageError::OutOfSpace(_))), "{full:?}");
    drop(copy);
    storage.scheduled_checkpoint();
    assert!(storage.log().stats().segments < kept, "{:?}", storage.log().stats());
    machine.fs.set_free_bytes(None);
    rewrite(&storage, &op, &ids, 1_000).unwrap();
    storage.assert_valid(&op, "c");
}

/// A transaction that needs several segments was refused while history was kept that could make way for it, as there
/// was a file for the next segment.
#[test]
fn history_makes_way_for_a_large_transaction() {
    let history = Retention {
        bytes: 1 << 30,
        ..Retention::default()
    };
    let (machine, storage, ids) = with_documents(Kind::Btree, history, 1 << 30);
    let op = machine.operation();
    for round in 1..=200 {
        rewrite(&storage, &op, &ids, round).unwrap();
    }
    storage.checkpoint().unwrap();
    storage.log().prepare_segment().unwrap();
    machine.fs.set_free_bytes(Some(0));
    assert_eq!(storage.log().stats().history_given_up_bytes, 0);
    storage.wait_for_log_room_for(3 * SEGMENT_BYTES as usize, 30).unwrap();
    let stats = storage.log().stats();
    assert!(stats.history_given_up_bytes > 0, "{stats:?}");
    machine.fs.set_free_bytes(None);
    storage.close(true).unwrap();
}

/// Too many open files were told as a full disk, and history went for nothing.
#[test]
fn too_many_open_files_are_no_full_disk() {
    let history = Retention {
        bytes: 1 << 30,
        ..Retention::default()
    };
    let (machine, storage, ids) = with_documents(Kind::Btree, history, 1 << 30);
    let op = machine.operation();
    for round in 1..=100 {
        rewrite(&storage, &op, &ids, round).unwrap();
    }
    storage.checkpoint().unwrap();
    let before = storage.log().stats();
    machine.fs.inject(Fault::new(FaultKind::NoDescriptors).times(u64::MAX));
    let refused = (101..1_000).find_map(|round| rewrite(&storage, &op, &ids, round).err());
    assert!(
        matches!(refused, Some(StorageError::OutOfDescriptors(_))),
        "{refused:?}"
    );
    storage.scheduled_checkpoint();
    let after = storage.log().stats();
    assert!(!after.is_short && after.segments >= before.segments, "{after:?}");
    assert_eq!((after.shortages, after.history_given_up_bytes), (0, 0), "{after:?}");
    machine.fs.clear_faults();
    rewrite(&storage, &op, &ids, 1_000).unwrap();
    storage.assert_valid(&op, "c");
    storage.close(true).unwrap();
}
