//! Requests that wait for their turn, and those whose clients go away meanwhile.

use super::parked::Asked;
use super::{Bench, code, succeeded};
use crate::client::{Begun, WithoutClient};
use bson::{Document, RawDocumentBuf, doc};
use std::time::Duration;

/// A bench none of whose reads and writes runs until there are tickets.
fn held() -> Bench {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }]);
    hold(&bench);
    bench
}

fn hold(bench: &Bench) {
    bench.server.tickets.read.set_bounds(0, 10);
    bench.server.tickets.write.set_bounds(0, 10);
}

fn release(bench: &Bench) {
    bench.server.tickets.read.set_bounds(5, 10);
    bench.server.tickets.write.set_bounds(5, 10);
}

/// A write stopped half way when its client went away: fewer documents were changed than it names.
#[test]
fn what_writes_goes_on_without_its_client_and_what_reads_does_not() {
    let all = || doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true };
    let out = doc! { "aggregate": "c", "pipeline": [{ "$out": "copy" }], "cursor": {} };
    let merge = doc! { "aggregate": "c", "pipeline": [{ "$merge": "copy" }], "cursor": {} };
    for write in [
        doc! { "update": "c", "updates": [all()] },
        doc! { "delete": "c", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "findAndModify": "c", "update": { "$set": { "n": 1 } } },
        out,
        merge,
    ] {
        let bench = held();
        let heard = Asked::new(&bench, "test", write.clone());
        let unheard = Asked::new(&bench, "test", write.clone()).without_reply();
        for mut waits in [heard, unheard] {
            hold(&bench);
            assert!(waits.answer().is_none());
            bench.server.abandon(&waits.client());
            bench.server.end_late();
            assert_eq!(waits.called(), 0, "{write}");
            release(&bench);
            succeeded(waits.answer().unwrap());
        }
    }
    for read in [
        doc! { "find": "c" },
        doc! { "count": "c" },
        doc! { "distinct": "c", "key": "_id" },
        doc! { "aggregate": "c", "pipeline": [{ "$match": {} }], "cursor": {} },
    ] {
        let bench = held();
        let mut waits = Asked::new(&bench, "test", read.clone());
        assert!(waits.answer().is_none());
        bench.server.abandon(&waits.client());
        bench.server.end_late();
        assert_eq!((waits.called(), code(&waits.answer().unwrap())), (1, 11601), "{read}");
        // What is read without a reply is of no use to anybody either.
        let mut unheard = Asked::new(&bench, "test", read.clone()).without_reply();
        assert!(unheard.answer().is_none());
        bench.server.abandon(&unheard.client());
        bench.server.end_late();
        assert_eq!(
            (unheard.called(), code(&unheard.answer().unwrap())),
            (1, 11601),
            "{read}"
        );
    }
}

/// Writes without a reply were thrown away under load.
#[test]
fn what_has_no_reply_is_not_refused() {
    let bench = held();
    bench.server.tickets.write.set_bounds(0, 0);
    let insert = |id: i32| doc! { "insert": "c", "documents": [{ "_id": id }] };
    let refused = Asked::new(&bench, "test", insert(3)).answer().unwrap();
    assert_eq!(code(&refused), 462);
    let late = Asked::new(&bench, "test", insert(3)).too_many().answer().unwrap();
    assert_eq!(code(&late), 462);
    let mut unheard: Vec<Asked<'_>> = (10..20)
        .map(|id| Asked::new(&bench, "test", insert(id)).without_reply().too_many())
        .collect();
    assert!(unheard.iter_mut().all(|request| request.answer().is_none()));
    release(&bench);
    let replies: Vec<Document> = unheard.iter_mut().map(|request| request.answer().unwrap()).collect();
    assert!(
        replies.iter().all(|reply| reply.get_i32("n").ok() == Some(1)),
        "{replies:?}"
    );
    assert_eq!(bench.find("c", doc! {}).len(), 12);
}

/// What began right after the server's end had looked at all that runs was ended by nobody.
#[test]
fn what_begins_while_the_server_ends_is_interrupted() {
    let bench = Bench::new();
    bench.server.begin_shutdown();
    for (command, is_interrupted) in [("find", true), ("shutdown", false)] {
        let body = RawDocumentBuf::try_from(&doc! { command: 1 }).unwrap();
        let operation = bench.server.new_operation();
        let begun = Begun {
            command,
            database: "test",
            body: &body,
            sequences: &[],
            started: Duration::ZERO,
            session: None,
            transaction: None,
            without_client: WithoutClient::Ends,
        };
        bench.server.begin(&bench.client, &operation, &begun);
        assert_eq!(operation.check().is_err(), is_interrupted, "{command}");
    }
}
