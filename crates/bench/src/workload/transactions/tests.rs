//! The client against replies that are made here, and what decides about a run.

use super::client::{Client, Tally, Task};
use super::*;
use crate::actor::Progress;
use crate::message::tests::parts;
use std::collections::BTreeSet;

const SOME: Range<u64> = 5..15;

fn client(task: &Task) -> (Client, Arc<Tally>) {
    let tally = Arc::new(Tally::default());
    (Client::new(task, &tally, SOME, Random::new(1)), tally)
}

fn task(backoff: Backoff) -> Task {
    Task {
        collection: HOT,
        reads: 1,
        updates: 2,
        backoff,
        write_concern: WriteConcern::One,
        first_number: 100,
    }
}

/// What a request asks for: command, number of the transaction, whether it starts one.
fn asked(message: &Message) -> (String, i64, bool) {
    let (body, _) = parts(message);
    assert_eq!(body.get_bool("autocommit").ok(), Some(false), "{body:?}");
    assert!(body.get_document("lsid").is_ok());
    let command = body.iter().next().expect("it has a command").expect("it is sound").0;
    let number = body.get_i64("txnNumber").expect("it is one of a transaction");
    (
        command.to_string(),
        number,
        body.get_bool("startTransaction").is_ok_and(|starts| starts),
    )
}

/// The `_id`s that the requests of one attempt ask for, answered with success up to the commit, which is left in
/// `message`.
fn until_commit(client: &mut Client, message: &mut Message) -> Vec<i64> {
    let mut ids = Vec::new();
    loop {
        let (body, documents) = parts(message);
        let query = match documents.first() {
            _ if body.get("commitTransaction").is_ok_and(|found| found.is_some()) => return ids,
            Some(update) => update.get_document("q"),
            None => body.get_document("filter"),
        };
        ids.push(query.and_then(|query| query.get_i64("_id")).expect("by _id"));
        let reply = if documents.is_empty() { found() } else { changed() };
        let progress = client.advance(&reply, message);
        assert_eq!(progress.expect("nothing is wrong"), Progress::Next);
    }
}

fn found() -> RawDocumentBuf {
    let mut batch = RawArrayBuf::new();
    batch.push(rawdoc! { "_id": 1, "n": 2 });
    rawdoc! { "cursor": { "firstBatch": batch, "id": 0_i64 }, "ok": 1.0 }
}

fn changed() -> RawDocumentBuf {
    rawdoc! { "n": 1, "nModified": 1, "ok": 1.0 }
}

fn failed(code: i32, label: &str) -> RawDocumentBuf {
    let mut labels = RawArrayBuf::new();
    labels.push(label);
    rawdoc! { "ok": 0.0, "code": code, "errmsg": "no", "errorLabels": labels }
}

#[test]
fn a_transaction_is_its_statements_and_a_commit() {
    let (mut client, tally) = client(&task(Backoff::None));
    let mut message = Message::new(1);
    for number in [101, 102] {
        assert_eq!(client.begin(&mut message), Some(0));
        assert_eq!(asked(&message), ("find".to_owned(), number, true));
        let ids = until_commit(&mut client, &mut message);
        let different: BTreeSet<_> = ids.iter().copied().collect();
        assert_eq!((ids.len(), different.len()), (3, 3), "{ids:?}");
        assert!(ids.iter().all(|id| SOME.contains(&(*id as u64))), "{ids:?}");
        assert_eq!(asked(&message), ("commitTransaction".to_owned(), number, false));
        let (body, _) = parts(&message);
        assert_eq!(body.get_str("$db").ok(), Some("admin"));
        assert_eq!(body.get_document("writeConcern").ok(), Some(&*rawdoc! { "w": 1 }));
        assert_eq!(tally.in_doubt(), 1);
        let done = client.advance(&rawdoc! { "ok": 1.0 }, &mut message);
        assert_eq!(done.expect("it is committed"), Progress::written(16));
    }
    assert_eq!((tally.acknowledged(), tally.in_doubt()), (2, 0));
}

#[test]
fn a_conflict_aborts_and_tries_the_same_again() {
    let (mut client, tally) = client(&task(Backoff::None));
    let mut message = Message::new(1);
    client.begin(&mut message);
    let first = until_commit(&mut client, &mut message);
    let conflict = failed(112, "TransientTransactionError");
    let again = Progress::Again { after: Duration::ZERO };
    assert_eq!(client.advance(&conflict, &mut message).expect("transient"), again);
    assert_eq!(
        asked(&message),
        ("find".to_owned(), 102, true),
        "a commit ends by itself"
    );
    assert_eq!(tally.in_doubt(), 0);
    client.advance(&found(), &mut message).expect("it goes on");
    assert_eq!(
        client.advance(&conflict, &mut message).expect("transient"),
        Progress::Next
    );
    assert_eq!(asked(&message), ("abortTransaction".to_owned(), 102, false));
    let gone = failed(251, "TransientTransactionError");
    assert_eq!(client.advance(&gone, &mut message).expect("whatever it says"), again);
    assert_eq!(asked(&message), ("find".to_owned(), 103, true));
    assert_eq!(until_commit(&mut client, &mut message), first, "the same documents");
    // What is no conflict ends the operation.
    let error = client.advance(&failed(13, "Other"), &mut message).expect_err("refused");
    assert!(matches!(error, Error::Refused { code: 13, .. }), "{error}");
    assert_eq!((tally.acknowledged(), tally.in_doubt()), (0, 0));
}

#[test]
fn a_commit_of_unknown_outcome_is_sent_again() {
    let (mut client, tally) = client(&task(Backoff::None));
    let mut message = Message::new(1);
    client.begin(&mut message);
    until_commit(&mut client, &mut message);
    let late = rawdoc! { "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "late" } };
    for unknown in [
        failed(0, "UnknownTransactionCommitResult"),
        failed(91, "RetryableWriteError"),
        failed(50, ""),
        late,
    ] {
        assert_eq!(client.advance(&unknown, &mut message).expect("unknown"), Progress::Next);
        assert_eq!(asked(&message), ("commitTransaction".to_owned(), 101, false));
        let (body, _) = parts(&message);
        let concern = rawdoc! { "w": "majority", "wtimeout": 10_000 };
        assert_eq!(body.get_document("writeConcern").ok(), Some(&*concern));
        assert_eq!((tally.acknowledged(), tally.in_doubt()), (0, 1));
    }
    client.advance(&rawdoc! { "ok": 1.0 }, &mut message).expect("at last");
    assert_eq!((tally.acknowledged(), tally.in_doubt()), (1, 0));
    client.begin(&mut message);
    until_commit(&mut client, &mut message);
    let never = (0..1000).find_map(|_| client.advance(&failed(91, "RetryableWriteError"), &mut message).err());
    assert!(matches!(never, Some(Error::Refused { code: 91, .. })), "it gives up");
    assert_eq!(tally.in_doubt(), 1, "nobody knows");
}

#[test]
fn pauses_grow_up_to_their_bound() {
    let mut random = Random::new(3);
    let mut longest = |attempts| {
        let pauses = (0..2000).map(|_| Backoff::Exponential.pause(attempts, &mut random));
        pauses.max().expect("there are some").as_secs_f64() * 1e3
    };
    for (attempts, bound) in [
        (1, 5.0),
        (2, 7.5),
        (3, 11.25),
        (12, 432.5),
        (13, 500.0),
        (u32::MAX, 500.0),
    ] {
        let pause = longest(attempts);
        assert!(pause < bound && pause > bound * 0.98, "{attempts}: {pause} ms");
    }
    assert_eq!(Backoff::None.pause(50, &mut random), Duration::ZERO);
    // The pause is asked for with each attempt that failed.
    let (mut client, _) = client(&task(Backoff::Exponential));
    let mut message = Message::new(1);
    client.begin(&mut message);
    let mut sum = Duration::ZERO;
    for _ in 0..30 {
        client
            .advance(&failed(112, "TransientTransactionError"), &mut message)
            .expect("transient");
        match client.advance(&rawdoc! { "ok": 1.0 }, &mut message) {
            Ok(Progress::Again { after }) => sum += after,
            other => panic!("{other:?}"),
        }
    }
    // Half of the bounds, which sum up to 1.3 s for the first 12 and 0.5 s for each other.
    assert!(sum > Duration::from_secs(2) && sum < Duration::from_secs(9), "{sum:?}");
}

#[test]
fn counters_that_do_not_add_up_fail_a_run() {
    let outcome = |grown: i64, acknowledged: u64, in_doubt: u64| {
        let mut run = Run::new("transactions", HOT, report::Configuration::default());
        judge(&mut run, grown, acknowledged, in_doubt, 2);
        run.outcome.message().map(str::to_owned)
    };
    assert_eq!(outcome(20, 10, 0), None);
    assert_eq!(outcome(22, 10, 1), None, "it may have come about");
    assert_eq!(outcome(20, 10, 1), None, "or not");
    let message = "the counters have grown by 18, and 10 commits of 2 each were acknowledged";
    assert_eq!(outcome(18, 10, 0).as_deref(), Some(message));
    let message = "the counters have grown by 21, and 10 commits of 2 each were acknowledged, 1 more without an answer";
    assert_eq!(outcome(21, 10, 1).as_deref(), Some(message), "half a transaction");
    assert!(outcome(24, 10, 1).is_some() && outcome(22, 10, 0).is_some());
}

#[test]
fn clients_have_documents_of_their_own_at_any_scale() {
    let choices = Choices {
        hot_documents: 8,
        reads: 1,
        updates: 2,
        backoffs: vec![Backoff::None],
        write_concern: WriteConcern::One,
        may_be_skipped: false,
    };
    let options = Options {
        scale: 1e-6,
        clients: None,
        duration: None,
        warm_up: Duration::ZERO,
        seed: 1,
        rate: None,
        threads: None,
        cache_bytes: None,
        repetitions: 1,
    };
    assert!(documents(&options, &[1, 500], &choices) / 500 >= choices.touched());
    check(&choices).expect("it is possible");
    let refused = |choices: Choices| check(&choices).expect_err("it is refused").to_string();
    let few = Choices {
        hot_documents: 2,
        ..choices.clone()
    };
    assert!(refused(few).contains("touches 3 different documents"));
    assert!(refused(Choices { updates: 0, ..choices }).contains("nothing to commit"));
}
