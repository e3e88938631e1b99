//! Writes and commits that a full disk keeps from being acknowledged.

use super::*;
use vfs::{Fault, FaultKind};

/// What a full disk has no room for is refused and has no effect, or it has one and is told to be unacknowledged: told
/// to have failed it was sent again, and done twice.
#[test]
fn what_a_full_disk_keeps_from_being_acknowledged_is_not_told_to_have_failed() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! {}]);
    let text = "x".repeat(100 << 10);
    let concern = doc! { "w": "majority" };
    bench.fs.set_free_bytes(Some(0));
    let is_there = |id: i32| bench.find("c", doc! { "_id": id }).len() == 1;
    let out_of_space = |error: &Document| assert_eq!(error.get_i32("code").ok(), Some(14031), "{error}");
    let mut number = 0;
    let refused = loop {
        number += 1;
        let documents = vec![doc! { "_id": number, "text": &text }];
        let insert = doc! { "insert": "c", "documents": documents, "writeConcern": concern.clone() };
        let reply = bench.run(insert);
        if code_of(&reply).is_some() {
            break reply;
        }
        assert!(is_there(number), "{reply}");
        if let Ok(error) = reply.get_document("writeConcernError") {
            out_of_space(error);
        }
    };
    out_of_space(&refused);
    assert!(!is_there(number), "it was refused");
    bench.fs.set_free_bytes(None);
    bench.ok(doc! { "insert": "c", "documents": [{}], "writeConcern": concern.clone() });
    bench.fs.set_free_bytes(Some(0));
    loop {
        number += 1;
        let documents = vec![doc! { "_id": number, "text": &text }];
        let insert = doc! { "insert": "c", "documents": documents };
        let reply = bench.run(first(insert, i64::from(number)));
        if code_of(&reply).is_some() {
            out_of_space(&reply);
            break;
        }
        let commit = doc! { "commitTransaction": 1, "writeConcern": concern.clone() };
        let reply = bench.admin(next(commit, i64::from(number)));
        if code_of(&reply).is_some() {
            out_of_space(&reply);
            break;
        }
        assert!(is_there(number), "{reply}");
        if let Ok(error) = reply.get_document("writeConcernError") {
            out_of_space(error);
            let labels = reply.get_array("errorLabels").expect("labelled");
            assert_eq!(labels, &[Bson::from("UnknownTransactionCommitResult")]);
        }
    }
    assert!(!is_there(number));
}

/// The code of a reply to a command that failed.
fn code_of(reply: &Document) -> Option<i32> {
    reply.get_i32("code").ok()
}

/// Too many open files were told as a full disk.
#[test]
fn too_many_open_files_have_a_code_of_their_own() {
    let bench = Bench::member(true);
    bench.insert("c", &[doc! {}]);
    bench.fs.inject(Fault::new(FaultKind::NoDescriptors).times(u64::MAX));
    let text = "x".repeat(1 << 20);
    let mut number = 0;
    let refused = loop {
        number += 1;
        let documents = vec![doc! { "_id": number, "text": &text }];
        let reply = bench.run(doc! { "insert": "c", "documents": documents });
        if code_of(&reply).is_some() {
            break reply;
        }
        assert!(number < 1_000, "nothing is refused: {reply}");
    };
    assert_eq!(code_of(&refused), Some(264), "{refused}");
    assert_eq!(refused.get_str("codeName").ok(), Some("TooManyFilesOpen"));
    assert!(refused.to_string().contains("descriptor"), "{refused}");
    assert!(bench.find("c", doc! { "_id": number }).is_empty());
    bench.fs.clear_faults();
    bench.insert("c", &[doc! { "_id": number }]);
}
